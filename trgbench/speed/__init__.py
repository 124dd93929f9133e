"""The native engine against the fastest of its peers: `python -m trgbench.speed` prints the table.

| file | what it holds |
|---|---|
| `cells.py` | the table as data: what is compared with what, and the ratio that is aimed at |
| `tasks.py` | what is measured in a fresh process |
| `rows.py` | from what was measured to the rows of the table |
| `__main__.py` | the command line |
"""
