"""How right are the results? Tracked over commits as times are (the study's experiments 1, 3, 8 and 10)."""

from __future__ import annotations

import math
from typing import Any

from benchmarks.common import BACKENDS, MODES, benchmark, installed, ready

STUDY_BETAS = (0.3, 0.4, 0.44, 0.5, 0.6)
SVD_RULES = ("safe", "builtin")
REPRODUCIBLE = 1e-10  # what `problems.trg` allows a gradient that is right


class Energy:
    """The internal energy u = −d(lnZ/N)/dβ of 20 TRG steps at χ = 16."""

    version = "1"
    timeout = 600.0
    unit = "energy per site"
    param_names: tuple[str, ...]

    def energy(self, prepared: Any, beta: float) -> float:
        _, gradient = prepared(beta)
        if not math.isfinite(gradient):  # asv would take a NaN for a skipped benchmark
            raise ArithmeticError(f"u at beta = {beta} is {-float(gradient)}")
        return -float(gradient)


class AgainstOnsager(Energy):
    params = (BACKENDS, STUDY_BETAS)
    param_names = ("backend", "beta")

    def setup(self, backend: str, beta: float) -> None:
        self.prepared = ready(backend, "eager-staged", 1, "trg", 16, 20)

    @benchmark(
        "Error of TRG's internal energy against Onsager's exact solution",
        quick={"beta": [0.3, 0.44]},
        tolerance=REPRODUCIBLE,
    )
    def track_error(self, backend: str, beta: float) -> float:
        from trgbench import ising

        return abs(self.energy(self.prepared, beta) - ising.energy(beta))


class AgainstStudy(Energy):
    params = (BACKENDS, MODES)
    param_names = ("backend", "mode")

    def setup(self, backend: str, mode: str) -> None:
        self.prepared = ready(backend, mode, 1, "trg", 16, 20)

    @benchmark(
        "Largest deviation of the internal energy from the study's table",
        quick={"mode": ["traced-staged"]},
        tolerance=REPRODUCIBLE,
    )
    def track_deviation(self, backend: str, mode: str) -> float:
        reference = self.prepared.problem.reference
        return max(abs(-self.energy(self.prepared, beta) - reference(beta)[1]) for beta in STUDY_BETAS)


class EagerAgainstTraced:
    """Do both modes give the same bits?"""

    version = "1"
    timeout = 300.0
    unit = "elements of 1000"
    params = (BACKENDS,)
    param_names = ("backend",)

    def setup(self, backend: str) -> None:
        self.prepared = [ready(backend, mode, 1, "vector", 1000) for mode in ("eager", "traced")]

    @benchmark(
        "Gradient elements that are bitwise equal in eager and traced mode",
        tolerance=0.0,
        larger_is_better=True,
    )
    def track_bitwise_equal(self, backend: str) -> int:
        import numpy as np

        gradients = [prepared(prepared.problem.example)[1].view(np.uint64) for prepared in self.prepared]
        return int(np.count_nonzero(gradients[0] == gradients[1]))


class SvdRule:
    """Where singular values coincide, from step 5 on, the libraries' own derivatives are NaN."""

    version = "1"
    timeout = 600.0
    unit = "steps of 20"
    params = (BACKENDS, SVD_RULES)
    param_names = ("backend", "svd")

    def setup(self, backend: str, svd: str) -> None:
        self.backend = installed(backend, threads=1)
        if svd not in self.backend.svd_rules:
            raise NotImplementedError(f"backend {backend} has no SVD rule {svd!r} of its own")

    @benchmark(
        "TRG steps up to which the gradient is finite, by SVD rule", tolerance=0.0, larger_is_better=True
    )
    def track_finite_steps(self, backend: str, svd: str) -> int:
        if self.is_finite(20, svd):
            return 20
        return next(steps for steps in range(1, 21) if not self.is_finite(steps, svd)) - 1

    def is_finite(self, steps: int, svd: str) -> bool:
        from trgbench import problems

        prepared = self.backend.prepare(problems.trg(16, steps), "eager", svd=svd)
        built = prepared.built
        value, gradient = built.run(built.asarray(prepared.problem.example))
        return math.isfinite(float(value)) and math.isfinite(float(gradient))
