"""Elementwise operations, with NumPy's broadcasting.

A rule `(t, y, *inputs)` gives ∂y/∂input · t; see `table.elementwise`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from trgbench.engine.ops.table import Array, Samples, elementwise


def _draws(*ranges: tuple[float, float]) -> Samples:
    """Samples for an operation whose operands lie in `ranges`: plain, 0-d, empty and broadcast shapes."""

    def samples(rng: np.random.Generator) -> Iterable[tuple[tuple[Array, ...], tuple]]:
        for shapes in (((3, 4), (3, 4)), ((), ()), ((0, 3), (1, 3)), ((1,), (5,)), ((2, 1, 3), (4, 1))):
            yield (
                tuple(
                    rng.uniform(low, high, shape) for (low, high), shape in zip(ranges, shapes, strict=False)
                ),
                (),
            )

    return samples


_ANY, _POSITIVE = (-2.0, 2.0), (0.5, 2.0)

_add = elementwise("add", np.add, lambda t, y, a, b: t, lambda t, y, a, b: t, samples=_draws(_ANY, _ANY))
_subtract = elementwise(
    "subtract", np.subtract, lambda t, y, a, b: t, lambda t, y, a, b: -t, samples=_draws(_ANY, _ANY)
)
_multiply = elementwise(
    "multiply", np.multiply, lambda t, y, a, b: t * b, lambda t, y, a, b: a * t, samples=_draws(_ANY, _ANY)
)
_divide = elementwise(
    "divide",
    np.divide,
    lambda t, y, a, b: t / b,
    lambda t, y, a, b: -((t * y) / b),
    samples=_draws(_ANY, _POSITIVE),
)
_negative = elementwise("negative", np.negative, lambda t, y, x: -t, samples=_draws(_ANY))
_sin = elementwise("sin", np.sin, lambda t, y, x: t * cos(x), samples=_draws(_ANY))
_cos = elementwise("cos", np.cos, lambda t, y, x: -(t * sin(x)), samples=_draws(_ANY))
_sinh = elementwise("sinh", np.sinh, lambda t, y, x: t * cosh(x), samples=_draws(_ANY))
_cosh = elementwise("cosh", np.cosh, lambda t, y, x: t * sinh(x), samples=_draws(_ANY))
_exp = elementwise("exp", np.exp, lambda t, y, x: t * y, samples=_draws(_ANY))
_log = elementwise("log", np.log, lambda t, y, x: t / x, samples=_draws(_POSITIVE))
_sqrt = elementwise("sqrt", np.sqrt, lambda t, y, x: (t * 0.5) / y, samples=_draws(_POSITIVE))


def add(x1: Any, x2: Any, /) -> Any:
    """x1 + x2."""
    return _add(x1, x2)


def subtract(x1: Any, x2: Any, /) -> Any:
    """x1 − x2."""
    return _subtract(x1, x2)


def multiply(x1: Any, x2: Any, /) -> Any:
    """x1 · x2."""
    return _multiply(x1, x2)


def divide(x1: Any, x2: Any, /) -> Any:
    """x1 / x2."""
    return _divide(x1, x2)


def negative(x: Any, /) -> Any:
    """−x."""
    return _negative(x)


def sin(x: Any, /) -> Any:
    """The sine of x, in radians."""
    return _sin(x)


def cos(x: Any, /) -> Any:
    """The cosine of x, in radians."""
    return _cos(x)


def sinh(x: Any, /) -> Any:
    """The hyperbolic sine of x."""
    return _sinh(x)


def cosh(x: Any, /) -> Any:
    """The hyperbolic cosine of x."""
    return _cosh(x)


def exp(x: Any, /) -> Any:
    """The exponential of x."""
    return _exp(x)


def log(x: Any, /) -> Any:
    """The natural logarithm of x."""
    return _log(x)


def sqrt(x: Any, /) -> Any:
    """The square root of x."""
    return _sqrt(x)
