"""How does the cost of a gradient grow with the size of its input? (the study's experiment 4)"""

from __future__ import annotations

from benchmarks.common import BACKENDS, THREADS, WHOLE_GRAPH, Timed, benchmark, loop


class Vector(Timed):
    """f(x) = Σ sin(x)·x², hardly any work an element: dispatch when n is small, memory when it is large."""

    params = (BACKENDS, WHOLE_GRAPH, THREADS, (10, 1_000, 100_000, 1_000_000))
    param_names = ("backend", "mode", "threads", "n")

    def setup(self, backend: str, mode: str, threads: int, n: int) -> None:
        self.time(loop(backend, mode, threads, "vector", n))

    @benchmark(
        "Gradient of a vector function over its size n",
        quick={"threads": [1]},
        gate={"backend": ["native"], "threads": [1], "n": [1_000]},
    )
    def time_gradient(self, *_: object) -> None:
        self.loop()
