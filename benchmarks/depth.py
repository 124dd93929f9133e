"""How does the cost of a gradient grow with the depth of the graph? (the study's experiment 6)"""

from __future__ import annotations

from benchmarks.common import BACKENDS, MODES, THREADS, Timed, benchmark, loop


class Chain(Timed):
    """f(x) = Σ sin(sin(…sin(x))) on 10 elements: hardly any arithmetic, so it shows the cost of a layer."""

    params = (BACKENDS, MODES, THREADS, (10, 50, 100, 200, 400))
    param_names = ("backend", "mode", "threads", "depth")

    def setup(self, backend: str, mode: str, threads: int, depth: int) -> None:
        self.time(loop(backend, mode, threads, "chain", depth))

    @benchmark(
        "Gradient of a chain of sines over its depth",
        quick=[{"threads": [1], "depth": [10, 100]}, {"backend": ["native"], "threads": [1], "depth": [400]}],
        gate={"backend": ["native"], "threads": [1], "depth": [100]},
    )
    def time_gradient(self, *_: object) -> None:
        self.loop()
