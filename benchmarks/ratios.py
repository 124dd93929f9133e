"""How many times dearer is one way than another? Both sides interleaved in one process.

A ratio does not drift with the machine as a time does: a slow minute falls on both sides.
"""

from __future__ import annotations

from typing import Any

from benchmarks.common import BACKENDS, MODES, benchmark, call_of, ratio, ready

PROBLEMS = {"vector(1000)": ("vector", 1000), "chain(100)": ("chain", 100), "trg(16, 20)": ("trg", 16, 20)}
COMPARISONS = ("eager / traced", "eager-staged / traced-staged", "eager / eager-staged")


class Ratio:
    version = "1"
    timeout = 900.0
    unit = "ratio"


class Modes(Ratio):
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
        gate={"backend": ["native"], "modes": ["eager / traced"], "problem": ["vector(1000)", "chain(100)"]},
    )
    def track_ratio(self, *_: object) -> dict[str, Any]:
        return ratio(*self.calls)


class Size(Ratio):
    """f(x) = Σ sin(x)·x²: what eager costs is dispatch when n is small, and memory when it is large."""

    params = (BACKENDS, (10, 1_000, 100_000, 1_000_000))
    param_names = ("backend", "n")

    def setup(self, backend: str, n: int) -> None:
        self.calls = [call_of(ready(backend, mode, 1, "vector", n)) for mode in ("eager", "traced")]

    @benchmark("Time of eager over traced, over the size n of a vector function", quick={"n": [10, 100_000]})
    def track_eager_over_traced(self, *_: object) -> dict[str, Any]:
        return ratio(*self.calls)


class Peers(Ratio):
    """Our engine over another library's, in one process and on the same CPU."""

    params = (tuple(name for name in BACKENDS if name != "native"), MODES, tuple(PROBLEMS))
    param_names = ("peer", "mode", "problem")

    def setup(self, peer: str, mode: str, problem: str) -> None:
        self.calls = [call_of(ready(backend, mode, 1, *PROBLEMS[problem])) for backend in ("native", peer)]

    @benchmark(
        "Time of native over JAX and PyTorch",
        quick=[
            {"mode": ["eager", "traced"], "problem": ["vector(1000)", "chain(100)"]},
            {"mode": ["traced-staged"], "problem": ["trg(16, 20)"]},
        ],
    )
    def track_native_over_peer(self, *_: object) -> dict[str, Any]:
        return ratio(*self.calls)


class Depth(Ratio):
    """Four times the layers: a ratio of 4 is linear growth; the study found 13 in one library."""

    params = (BACKENDS,)
    param_names = ("backend",)

    def setup(self, backend: str) -> None:
        self.calls = [call_of(ready(backend, "eager", 1, "chain", depth)) for depth in (400, 100)]

    @benchmark(
        "Growth of an eager gradient from a chain of 100 layers to one of 400", gate={"backend": ["native"]}
    )
    def track_growth(self, *_: object) -> dict[str, Any]:
        return ratio(*self.calls)


class BondDimension(Ratio):
    """Twice χ: the cost of a step that is cut grows as χ⁶, by 64; that of SVDs and dispatch by less."""

    params = (BACKENDS, ("eager-staged", "traced-staged"))
    param_names = ("backend", "mode")

    def setup(self, backend: str, mode: str) -> None:
        self.calls = [call_of(ready(backend, mode, 1, "trg", chi, 20)) for chi in (16, 8)]

    @benchmark("Growth of the gradient of 20 TRG steps from χ = 8 to 16", quick={"mode": ["traced-staged"]})
    def track_growth(self, *_: object) -> dict[str, Any]:
        return ratio(*self.calls)
