"""Elementwise operations, with NumPy's broadcasting.

A rule `(t, y, *inputs)` gives ∂y/∂input · t; see `table.elementwise`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from trgbench.engine.ops.comparison import where
from trgbench.engine.ops.families import elementwise, float_only
from trgbench.engine.ops.table import OPS, Array, Op, Samples, Spec, register


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
_square = elementwise("square", np.square, lambda t, y, x: t * (2.0 * x), samples=_draws(_ANY))
_reciprocal = elementwise(
    "reciprocal", np.reciprocal, lambda t, y, x: -(t * square(y)), samples=_draws(_POSITIVE)
)
_sign = elementwise("sign", np.sign, samples=_draws(_ANY))
_abs = elementwise("abs", np.abs, lambda t, y, x: t * sign(x), samples=_draws(_ANY))
_sin = elementwise("sin", np.sin, lambda t, y, x: t * cos(x), samples=_draws(_ANY))
_cos = elementwise("cos", np.cos, lambda t, y, x: -(t * sin(x)), samples=_draws(_ANY))
_tan = elementwise("tan", np.tan, lambda t, y, x: t * (1.0 + square(y)), samples=_draws((-1.0, 1.0)))
_sinh = elementwise("sinh", np.sinh, lambda t, y, x: t * cosh(x), samples=_draws(_ANY))
_cosh = elementwise("cosh", np.cosh, lambda t, y, x: t * sinh(x), samples=_draws(_ANY))
_tanh = elementwise("tanh", np.tanh, lambda t, y, x: t * (1.0 - square(y)), samples=_draws(_ANY))
_exp = elementwise("exp", np.exp, lambda t, y, x: t * y, samples=_draws(_ANY))
_log = elementwise("log", np.log, lambda t, y, x: t / x, samples=_draws(_POSITIVE))
_sqrt = elementwise("sqrt", np.sqrt, lambda t, y, x: (t * 0.5) / y, samples=_draws(_POSITIVE))


# --- maximum and minimum ---------------------------------------------------------------------------
# Where the operands are equal each gets half of the derivative: of the subgradients the one that is
# symmetric in the operands.


def _larger_gets(t: Any, a: Any, b: Any) -> Any:
    """What of t belongs to a: all where a > b, half where a = b."""
    return where(a > b, t, where(a == b, t * 0.5, 0.0))


# Of these two ufuncs NumPy wants the output array by its name.
def _larger(a: Array, b: Array, out: Array | None = None) -> Array:
    return np.maximum(a, b, out=out)


def _smaller(a: Array, b: Array, out: Array | None = None) -> Array:
    return np.minimum(a, b, out=out)


_maximum = elementwise(
    "maximum",
    _larger,
    lambda t, y, a, b: _larger_gets(t, a, b),
    lambda t, y, a, b: _larger_gets(t, b, a),
    samples=_draws(_ANY, _ANY),
)
_minimum = elementwise(
    "minimum",
    _smaller,
    lambda t, y, a, b: _larger_gets(t, b, a),
    lambda t, y, a, b: _larger_gets(t, a, b),
    samples=_draws(_ANY, _ANY),
)

# --- powers ----------------------------------------------------------------------------------------
# y = a^b:  ∂y/∂a = b a^(b−1),  ∂y/∂b = a^b ln a. At a = 0 the first is 0 · ∞ for b = 0, where a^b is constant
# in a, and the second 0 · ∞ for b > 0, with the limit 0.


def _power_of_base(t: Any, y: Any, a: Any, b: Any) -> Any:
    lowered = where((a == 0.0) & (b == 0.0), 1.0, b - 1.0)
    return t * (b * OPS["pow"](a, lowered))


def _power_of_exponent(t: Any, y: Any, a: Any, b: Any) -> Any:
    return t * (y * log(where(a == 0.0, 1.0, a)))


_pow = elementwise(
    "pow", np.power, _power_of_base, _power_of_exponent, samples=_draws(_POSITIVE, (-2.0, 3.0))
)


def _pow_number_infer(x: Spec, exponent: float) -> tuple[Spec]:
    float_only("pow", x)
    return (x,)


def _pow_number_rule(t: Any, x: Any, exponent: float) -> Any:
    return t * (exponent * pow(x, exponent - 1.0)) if exponent else t * 0.0


register(
    Op(
        "pow_number",
        _pow_number_infer,
        np.power,
        lambda cts, outs, ins, parameters, wanted: [_pow_number_rule(cts[0], ins[0], *parameters)],
        lambda ts, outs, ins, parameters: [_pow_number_rule(ts[0], ins[0], *parameters)],
        lambda rng: [
            ((rng.uniform(0.5, 2.0, shape),), (exponent,))
            for shape, exponent in (((3, 4), 3.0), ((), -1.5), ((0, 2), 2.5), ((1,), 0.0), ((5,), -2.0))
        ],
        parameters=("exponent",),
        ufunc=True,
    )
)


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


def square(x: Any, /) -> Any:
    """X · x."""
    return _square(x)


def reciprocal(x: Any, /) -> Any:
    """1 / x."""
    return _reciprocal(x)


def sign(x: Any, /) -> Any:
    """−1, 0 or 1, as x is negative, zero or positive; its derivative is 0."""
    return _sign(x)


def abs(x: Any, /) -> Any:
    """The absolute value of x; its derivative at 0 is 0."""
    return _abs(x)


def maximum(x1: Any, x2: Any, /) -> Any:
    """The larger of x1 and x2; where they are equal each gets half of the derivative."""
    return _maximum(x1, x2)


def minimum(x1: Any, x2: Any, /) -> Any:
    """The smaller of x1 and x2; where they are equal each gets half of the derivative."""
    return _minimum(x1, x2)


def pow(x1: Any, x2: Any, /) -> Any:
    """x1 to the power x2, as `x1 ** x2`; for a number x2 of 2, 1, ½ or −1 by the cheap way.

    The derivative with respect to x2 at x1 = 0 is 0.

    >>> from trgbench import engine
    >>> print(engine.trace(lambda x: x**2 + x**3, engine.spec((4,))))
    graph(%0: float64[4])
      %1: float64[4] = square(%0)
      %2: float64[4] = pow_number(%0, exponent=3.0)
      %3: float64[4] = add(%1, %2)
      return %3
    """
    if not isinstance(x2, (int, float)) or isinstance(x2, bool):
        return _pow(x1, x2)
    if x2 == 1:
        return _multiply(x1, 1.0)
    cheap = {2.0: _square, 0.5: _sqrt, -1.0: _reciprocal}.get(x2)
    return OPS["pow_number"](x1, parameters=(float(x2),)) if cheap is None else cheap(x1)


def sin(x: Any, /) -> Any:
    """The sine of x, in radians."""
    return _sin(x)


def cos(x: Any, /) -> Any:
    """The cosine of x, in radians."""
    return _cos(x)


def tan(x: Any, /) -> Any:
    """The tangent of x, in radians."""
    return _tan(x)


def sinh(x: Any, /) -> Any:
    """The hyperbolic sine of x."""
    return _sinh(x)


def cosh(x: Any, /) -> Any:
    """The hyperbolic cosine of x."""
    return _cosh(x)


def tanh(x: Any, /) -> Any:
    """The hyperbolic tangent of x."""
    return _tanh(x)


def exp(x: Any, /) -> Any:
    """The exponential of x."""
    return _exp(x)


def log(x: Any, /) -> Any:
    """The natural logarithm of x."""
    return _log(x)


def sqrt(x: Any, /) -> Any:
    """The square root of x."""
    return _sqrt(x)
