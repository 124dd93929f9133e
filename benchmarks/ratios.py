"""How many times dearer is one mode than another? Both sides interleaved in one process."""

from __future__ import annotations

from typing import Any

from benchmarks.common import BACKENDS, benchmark, call_of, ready
from trgbench import measure

PROBLEMS = {"vector(1000)": ("vector", 1000), "chain(100)": ("chain", 100), "trg(16, 20)": ("trg", 16, 20)}
COMPARISONS = ("eager / traced", "eager-staged / traced-staged", "eager / eager-staged")


class Modes:
    """A ratio does not drift with the machine as a time does: a slow minute falls on both sides."""

    version = "1"
    timeout = 900.0
    unit = "ratio"
    params = (BACKENDS, COMPARISONS, tuple(PROBLEMS))
    param_names = ("backend", "modes", "problem")

    def setup(self, backend: str, modes: str, problem: str) -> None:
        self.calls = [call_of(ready(backend, mode, 1, *PROBLEMS[problem])) for mode in modes.split(" / ")]

    @benchmark(
        "Time of one mode over another",
        quick=[
            {"modes": ["eager / traced"], "problem": ["vector(1000)"]},
            {"modes": ["eager-staged / traced-staged"], "problem": ["trg(16, 20)"]},
        ],
    )
    def track_ratio(self, *_: object) -> dict[str, Any]:
        # asv computes the median and its interval of whatever comes as samples, as it does for times.
        return {"samples": measure.ratio(*self.calls).samples, "number": 1}
