"""How much memory does a gradient need?"""

from __future__ import annotations

from benchmarks.common import BACKENDS, MODES, benchmark, call_of, ready
from trgbench import measure

PROBLEMS = {"vector(1000000)": ("vector", 1_000_000), "trg(16, 20)": ("trg", 16, 20)}
QUICK = {"problem": ["trg(16, 20)"], "mode": ["eager-staged", "traced-staged"]}


class Memory:
    """One gradient on one thread, in a process of its own."""

    version = "1"
    timeout = 600.0
    params = (BACKENDS, MODES, tuple(PROBLEMS))
    param_names = ("backend", "mode", "problem")
    unit = "bytes"

    def setup(self, backend: str, mode: str, problem: str) -> None:
        self.call = call_of(ready(backend, mode, 1, *PROBLEMS[problem]))

    @benchmark("Peak memory of the whole process, library and compiler included", quick=QUICK)
    def peakmem_process(self, *_: object) -> None:
        self.call()

    @benchmark("Rise of memory during one warm gradient", quick=QUICK)
    def track_gradient(self, *_: object) -> int:
        return measure.peak_memory(self.call)
