"""What does the derivative of the TRG free energy cost, whole or stage by stage? (experiments 7 and 8)"""

from __future__ import annotations

from benchmarks.common import BACKENDS, SCALAR_MODES, THREADS, WHOLE_GRAPH, Timed, benchmark, loop

# torch.compile takes minutes for a TRG program of the whole graph: too long for the quick profile.
QUICK_TORCH = ["eager", "eager-staged", "traced-staged"]


class WholeGraph(Timed):
    """1 to 4 steps at χ = 16 as one graph: does the cost of a gradient explode with the steps?"""

    params = (BACKENDS, WHOLE_GRAPH, THREADS, (1, 2, 3, 4))
    param_names = ("backend", "mode", "threads", "steps")

    def setup(self, backend: str, mode: str, threads: int, steps: int) -> None:
        self.time(loop(backend, mode, threads, "trg", 16, steps))

    @benchmark(
        "Gradient of TRG on the whole graph over the number of steps",
        quick=[
            {"backend": ["native", "jax"], "threads": [1], "steps": [1, 4]},
            {"backend": ["torch"], "mode": ["eager"], "threads": [1], "steps": [1, 4]},
        ],
        gate={"backend": ["native"], "threads": [1], "steps": [4]},
    )
    def time_gradient(self, *_: object) -> None:
        self.loop()


class TwentySteps(Timed):
    """The study's own calculation: 20 steps (2²⁰ sites) over the bond dimension χ."""

    params = (BACKENDS, SCALAR_MODES, THREADS, (8, 16, 24))
    param_names = ("backend", "mode", "threads", "chi")
    timeout = 900.0
    rounds = 1
    repeat = (3, 7, 2.0)

    def setup(self, backend: str, mode: str, threads: int, chi: int) -> None:
        self.time(loop(backend, mode, threads, "trg", chi, 20))

    @benchmark(
        "Gradient of 20 TRG steps over the bond dimension χ",
        quick=[
            {"backend": ["native", "jax"], "threads": [1], "chi": [16]},
            {"backend": ["torch"], "mode": QUICK_TORCH, "threads": [1], "chi": [16]},
        ],
        gate={"backend": ["native"], "mode": ["traced-staged"], "threads": [1], "chi": [8]},
    )
    def time_gradient(self, *_: object) -> None:
        self.loop()


class CutSvd(Timed):
    """20 steps by the native engine's SVD rules: LAPACK's, Lanczos' of the matrix, and of its tensors."""

    params = (("safe", "lanczos", "matrix-free"), ("eager-staged", "traced-staged"), (16, 24))
    param_names = ("svd", "mode", "chi")
    rounds = 1
    repeat = (3, 7, 2.0)

    def setup(self, svd: str, mode: str, chi: int) -> None:
        self.time(loop("native", mode, 1, "trg", chi, 20, svd=svd))

    @benchmark("Gradient of 20 TRG steps by SVD rule", quick={"mode": ["traced-staged"], "chi": [16]})
    def time_gradient(self, *_: object) -> None:
        self.loop()
