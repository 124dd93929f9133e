"""The problems whose derivative is taken. Every backend, mode and benchmark takes them from here.

>>> trg(chi=16, steps=4).check_input(0.3)
array(0.3)
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from trgbench import ising, staged
from trgbench.errors import InputError, check_integer
from trgbench.staged import Stage
from trgbench.trg import (
    MatrixFreeStep,
    Step,
    bond_dimensions,
    initial,
    log_trace,
    matrix_free_log_trace,
    numpy_svd,
)

Reference = tuple[Any, Any, Any, Any]


class WrongResult(ArithmeticError):
    """A value or gradient misses the reference: as a measurement it does not count."""


@dataclass(frozen=True)
class Problem:
    """A real function of one array, in stages, with an example of its input and a reference for its results.

    Problems with the same name and parameters are equal and hash alike.

    Attributes:
        name: `vector`, `chain` or `trg`.
        parameters: what it was made with, as pairs of name and value; `dict(parameters)` reads well.
        stages: see `trgbench.staged`.
        example: an input, float64; benchmarks run on it.
        matrix_free: stages of the same function whose `svd` is that of a network of tensors, for backends
            that have one; none for problems without an SVD.
    """

    name: str
    parameters: tuple[tuple[str, int], ...]
    stages: tuple[Stage, ...] = field(repr=False, compare=False)
    example: np.ndarray = field(repr=False, compare=False)
    _reference: Callable[[np.ndarray], Reference] = field(repr=False, compare=False)
    matrix_free: tuple[Stage, ...] = field(default=(), repr=False, compare=False)

    def value(self, xp: Any, svd: Any, x: Any) -> Any:
        """Return the function's value at `x`, computed as one graph in the array namespace `xp`."""
        return staged.whole(self.stages, xp, svd, x)

    def check_input(self, x: object) -> np.ndarray:
        """Return `x` as a float64 array.

        Raises:
            InputError: if it has not the shape of the example, is not real, or is not finite; for `trg` also
                if it is no usable inverse temperature.
        """
        wanted = f"x must be a real array of shape {self.example.shape}"
        try:
            array = np.asarray(x)
        except ValueError:
            raise InputError(f"{wanted}; got nested lists of unequal length") from None
        usable = array.dtype.kind in "fiu" and array.shape == self.example.shape
        if self.name == "trg":
            return np.asarray(ising.check_beta(array.item() if usable else x))
        if not usable:
            raise InputError(f"{wanted}; got shape {array.shape} and type {array.dtype}")
        array = array.astype(np.float64)
        if bad := np.count_nonzero(~np.isfinite(array)):
            raise InputError(f"{wanted}, all finite; got {bad} elements that are not")
        return array

    def reference(self, x: object) -> Reference:
        """Return (value, gradient, value tolerance, gradient tolerance) at `x`; tolerances are absolute."""
        return self._reference(self.check_input(x))

    def check(self, x: object, value: object, gradient: object) -> None:
        """Return if a result at `x` is right.

        Raises:
            WrongResult: if the value or the gradient misses the reference; NaN always does.
        """
        wanted_value, wanted_gradient, value_tolerance, gradient_tolerance = self.reference(x)
        for what, got, wanted, tolerance in (
            ("value", value, wanted_value, value_tolerance),
            ("gradient", gradient, wanted_gradient, gradient_tolerance),
        ):
            array = np.asarray(got, dtype=np.float64)
            if array.shape != np.shape(wanted):
                raise WrongResult(f"{self}: the {what} has shape {array.shape}, not {np.shape(wanted)}")
            error = np.abs(array - wanted)
            if not np.all(error <= tolerance):
                worst, allowed = np.max(error), np.max(tolerance)
                raise WrongResult(f"{self}: the {what} is off by {worst:.3g}; at most {allowed:.3g} is right")

    def __str__(self) -> str:
        return f"{self.name}({', '.join(f'{name}={value}' for name, value in self.parameters)})"


def _vector(xp: Any, svd: Any, x: Any) -> tuple[None, Any]:
    return None, xp.sum(xp.sin(x) * (x * x))


def _vector_reference(x: np.ndarray) -> Reference:
    terms = np.sin(x) * (x * x)
    gradient = np.sin(x) * (2 * x) + (x * x) * np.cos(x)
    # A sum in any order errs by at most (n − 1) ε Σ|t|; the libraries sum in blocks and do far better.
    return math.fsum(terms), gradient, 1e-14 * (1 + np.sum(np.abs(terms))), 1e-14 * (1 + x * x)


def vector(n: int) -> Problem:
    """Return f(x) = Σ sin(x)·x², x of shape (n,): two operations an element and no depth.

    Raises:
        InputError: if `n` is not a whole number of at least 1.

    >>> print(vector(10), vector(10).example.shape)
    vector(n=10) (10,)
    """
    n = check_integer("n", n, minimum=1)
    example = np.random.default_rng(n).standard_normal(n)
    return Problem("vector", (("n", n),), (Stage(_vector),), example, _vector_reference)


@dataclass(frozen=True)
class Layers:
    """Stage: x → sin(sin(…sin(x))), `count` times; the last stage adds up."""

    count: int
    last: bool

    def __call__(self, xp: Any, svd: Any, x: Any) -> tuple[Any, Any]:
        for _ in range(self.count):
            x = xp.sin(x)
        return (None, xp.sum(x)) if self.last else (x, None)


def _chain_reference(depth: int, x: np.ndarray) -> Reference:
    gradient = np.ones_like(x)
    for _ in range(depth):
        gradient *= np.cos(x)
        x = np.sin(x)
    return np.sum(x), gradient, 1e-14 * x.size, 1e-14 * depth * np.abs(gradient) + 1e-300


def chain(depth: int, n: int = 10) -> Problem:
    """Return f(x) = Σ sin(sin(…sin(x))), `depth` times, x of shape (n,): hardly any arithmetic, only depth.

    Its stages are of 10 layers each.

    Raises:
        InputError: if `depth` or `n` is not a whole number of at least 1.

    >>> len(chain(25).stages)
    3
    """
    depth, n = check_integer("depth", depth, minimum=1), check_integer("n", n, minimum=1)
    counts = [10] * ((depth - 1) // 10) + [(depth - 1) % 10 + 1]
    stages = tuple(Stage(Layers(count, last=i == len(counts) - 1)) for i, count in enumerate(counts))
    example = np.random.default_rng(n).standard_normal(n)
    reference = functools.partial(_chain_reference, depth)
    return Problem("chain", (("depth", depth), ("n", n)), stages, example, reference)


# (χ, steps, β) → lnZ/N and d(lnZ/N)/dβ, for the inputs that benchmarks use. 16, 20: the study's table;
# 16, 4: the 4×4 torus by enumeration of its 65,536 states; 8: an independent PyTorch program;
# 24: all three backends, and central differences to 2e-12.
_TRG_TABLE = {
    (16, 4, 0.3): (0.799095207857105, 0.8440540736238568),
    (16, 20, 0.3): (0.790559063800966, 0.704498679529753),
    (16, 20, 0.4): (0.879363060306853, 1.106045407611192),
    (16, 20, 0.44): (0.928723962577072, 1.402785274913334),
    (16, 20, 0.5): (1.025792858455948, 1.745583468150079),
    (16, 20, 0.6): (1.210133028164417, 1.909086939792358),
    (24, 20, 0.3): (0.7905590661519551, 0.7044988453640311),
    (8, 20, 0.3): (0.790553787036549, 0.7043801526204984),
    (8, 12, 0.44): (0.9288191577544778, 1.4205872541458675),
    (8, 12, 0.6): (1.2103013567455876, 1.9090928326397592),
}


@functools.lru_cache(maxsize=256)
def _trg_reference(chi: int, steps: int, beta: float) -> Reference:
    if (chi, steps, beta) in _TRG_TABLE:
        return *_TRG_TABLE[chi, steps, beta], 1e-12, 1e-10
    problem = trg(chi, steps)

    def lnz(at: float) -> float:
        return float(problem.value(np, numpy_svd, np.asarray(at)))

    def slope(h: float) -> float:
        return (8 * (lnz(beta + h) - lnz(beta - h)) - (lnz(beta + 2 * h) - lnz(beta - 2 * h))) / (12 * h)

    # Central differences of order h⁴: their own error is what two widths disagree by. Where a level
    # crosses a cut inside the width that is large, and honestly so (see trg.cut_gaps).
    h = min(2e-4, beta / 8)
    fine, coarse = slope(h), slope(2 * h)
    return lnz(beta), fine, 1e-12, 1e-10 + 4 * abs(fine - coarse)


def trg(chi: int, steps: int) -> Problem:
    """Return β → lnZ/N of the Ising model by `steps` steps of TRG at bond dimension `chi`; u = −gradient.

    Its stages are the initial tensor, the steps and the trace. Step i is weighted by 2^−i, since each of
    the tensors it rescales stands for 2^i sites.

    Raises:
        InputError: if `chi` is not a whole number of at least 2 or `steps` of at least 1.

    >>> problem = trg(chi=16, steps=4)
    >>> round(float(problem.value(np, numpy_svd, problem.example)), 13)  # the 4×4 torus
    0.7990952078571
    """
    bonds = bond_dimensions(chi, steps)
    stages = (
        Stage(initial),
        *(Stage(Step(k), 2.0**-i) for i, k in enumerate(bonds)),
        Stage(log_trace, 2.0 ** -len(bonds)),
    )
    matrix_free = (
        Stage(initial),
        *(Stage(MatrixFreeStep(k, first=i == 0), 2.0**-i) for i, k in enumerate(bonds)),
        Stage(matrix_free_log_trace, 2.0 ** -len(bonds)),
    )
    chi = int(chi)
    return Problem(
        "trg",
        (("chi", chi), ("steps", len(bonds))),
        stages,
        np.asarray(0.3),
        lambda beta: _trg_reference(chi, len(bonds), float(beta)),
        matrix_free,
    )
