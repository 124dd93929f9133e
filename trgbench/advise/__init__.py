"""Which backend and mode to use for a calculation: the study's decision chart, with measured costs.

| file | what it does |
|---|---|
| `costs` | what is asked, what one combination of backend and mode costs, and the model of N gradients |
| `probe` | measures one combination, in a fresh process |
| `survey` | measures all combinations, within a budget of time |
| `profile` | keeps what was measured, for this machine and these versions only |
| `advice` | what is excluded and why, the break-evens, the recommendation |
| `command`, `text` | `trgbench advise` and what it prints |
| `check` | holds the advice against brute force: `python -m trgbench.advise.check` |

Nothing here imports NumPy or a backend: the process that measures pins its CPUs first.
"""
