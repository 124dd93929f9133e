"""Is it the machine? Work without any differentiation of ours, which no change of this project can touch."""

from __future__ import annotations

import functools
from collections.abc import Callable

from benchmarks.common import THREADS, Loop, Timed, benchmark, pin


@functools.cache
def interpreter_loop() -> Loop:
    """Return a loop over NumPy calls on 10 elements: the speed of the interpreter and of dispatch."""
    pin(1)
    import numpy as np

    def call() -> None:
        x = np.linspace(0.1, 1.0, 10)
        for _ in range(1000):
            x = np.sin(x)

    return Loop(call)


@functools.cache
def blas_loop(threads: int) -> Loop:
    """Return a loop over a product of matrices of the size that TRG has at χ = 16: the speed of BLAS."""
    pin(threads)
    import numpy as np

    matrix = np.random.default_rng(0).standard_normal((256, 256))
    call: Callable[[], object] = functools.partial(np.matmul, matrix, matrix)
    return Loop(call)


class Interpreter(Timed):
    def setup(self) -> None:
        self.time(interpreter_loop())

    @benchmark("Control: 1000 NumPy calls on 10 elements", gate={})
    def time_numpy_calls(self) -> None:
        self.loop()


class Blas(Timed):
    params = (THREADS,)
    param_names = ("threads",)

    def setup(self, threads: int) -> None:
        self.time(blas_loop(threads))

    @benchmark("Control: product of two 256 × 256 matrices")
    def time_matmul(self, threads: int) -> None:
        self.loop()
