"""Comparisons, logic and choice.

What a comparison returns is piecewise constant, so no derivative flows through it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from trgbench.engine.ops.families import broadcast, elementwise, no_jvp, no_vjp, unbroadcast
from trgbench.engine.ops.table import BOOL, FLOATS, OPS, Array, Op, Spec, Value, register
from trgbench.errors import InputError

_SHAPES = (((3, 4), (3, 4)), ((), ()), ((0, 3), (1, 3)), ((1,), (5,)), ((2, 1, 3), (4, 1)))


def _pairs(rng: np.random.Generator) -> list:
    """Pairs of operands of which about a third are equal."""
    return [(tuple(rng.integers(0, 3, shape).astype(float) for shape in pair), ()) for pair in _SHAPES]


_less = elementwise("less", np.less, samples=_pairs, result=BOOL)
_less_equal = elementwise("less_equal", np.less_equal, samples=_pairs, result=BOOL)
_greater = elementwise("greater", np.greater, samples=_pairs, result=BOOL)
_greater_equal = elementwise("greater_equal", np.greater_equal, samples=_pairs, result=BOOL)
_equal = elementwise("equal", np.equal, samples=_pairs, result=BOOL)
_not_equal = elementwise("not_equal", np.not_equal, samples=_pairs, result=BOOL)


def _logical(name: str, kernel: np.ufunc) -> Op:
    def infer(*specs: Spec) -> tuple[Spec]:
        for position, spec in enumerate(specs):
            if spec.dtype != BOOL:
                raise InputError(
                    f"{name}: argument {position + 1} must be bool; got {spec}; compare it first"
                )
        return (broadcast(name, *specs),)

    def samples(rng: np.random.Generator) -> list:
        return [(tuple(rng.uniform(size=s) < 0.5 for s in pair[: kernel.nin]), ()) for pair in _SHAPES]

    return register(Op(name, infer, kernel, no_vjp, no_jvp, samples, ufunc=True))


# NumPy's bitwise ufuncs do the same on bool and, unlike its logical ones, refuse floating point.
_logical_and = _logical("logical_and", np.bitwise_and)
_logical_or = _logical("logical_or", np.bitwise_or)
_logical_not = _logical("logical_not", np.invert)


# --- where ----------------------------------------------------------------------------------------


def _where_infer(condition: Spec, x1: Spec, x2: Spec) -> tuple[Spec]:
    if condition.dtype != BOOL:
        raise InputError(f"where: the condition must be bool; got {condition}; compare it with a number")
    if x1.dtype != x2.dtype:
        raise InputError(f"where: argument 3 is {x2} and argument 2 is {x1}; their dtypes must be equal")
    broadcast("where", Spec(condition.shape, x1.dtype), x1, x2)
    return (Spec(np.broadcast_shapes(condition.shape, x1.shape, x2.shape), x1.dtype),)


def _where(condition: Array, x1: Array, x2: Array) -> Array:
    if condition.dtype is not BOOL:
        raise TypeError  # the shape rule says what is wrong
    return np.where(condition, x1, x2)


def _where_vjp(cotangents: Any, outputs: Any, inputs: Any, parameters: tuple, wanted: Sequence[bool]) -> list:
    (ct,), (condition, x1, x2) = cotangents, inputs
    return [
        None,
        unbroadcast(where(condition, ct, 0.0), x1.shape) if wanted[1] else None,
        unbroadcast(where(condition, 0.0, ct), x2.shape) if wanted[2] else None,
    ]


def _where_jvp(tangents: Any, outputs: Any, inputs: Any, parameters: tuple) -> list:
    t1, t2 = (0.0 if t is None else t for t in tangents[1:])
    chosen, shape = where(inputs[0], t1, t2), outputs[0].shape
    return [chosen if chosen.shape == shape else OPS["broadcast_to"](chosen, parameters=(shape,))]


def _where_samples(rng: np.random.Generator) -> list:
    shapes = [(a, a, b) for a, b in _SHAPES] + [((4, 1), (1, 3), ()), ((2, 3), (), (3,))]
    return [((rng.uniform(size=c) < 0.5, rng.uniform(size=a), rng.uniform(size=b)), ()) for c, a, b in shapes]


register(Op("where", _where_infer, _where, _where_vjp, _where_jvp, _where_samples))


def less(x1: Any, x2: Any, /) -> Any:
    """x1 < x2."""
    return _less(x1, x2)


def less_equal(x1: Any, x2: Any, /) -> Any:
    """x1 ≤ x2."""
    return _less_equal(x1, x2)


def greater(x1: Any, x2: Any, /) -> Any:
    """x1 > x2."""
    return _greater(x1, x2)


def greater_equal(x1: Any, x2: Any, /) -> Any:
    """x1 ≥ x2."""
    return _greater_equal(x1, x2)


def equal(x1: Any, x2: Any, /) -> Any:
    """x1 = x2, element by element."""
    return _equal(x1, x2)


def not_equal(x1: Any, x2: Any, /) -> Any:
    """x1 ≠ x2, element by element."""
    return _not_equal(x1, x2)


def logical_and(x1: Any, x2: Any, /) -> Any:
    """x1 and x2, of bool arrays; also `x1 & x2`."""
    return _logical_and(x1, x2)


def logical_or(x1: Any, x2: Any, /) -> Any:
    """x1 or x2, of bool arrays; also `x1 | x2`."""
    return _logical_or(x1, x2)


def logical_not(x: Any, /) -> Any:
    """Not x, of a bool array; also `~x`."""
    return _logical_not(x)


def where(condition: Any, x1: Any, x2: Any, /) -> Any:
    """The elements of x1 where the condition holds, of x2 elsewhere; both are evaluated.

    The derivative flows to the chosen one. If the other has an infinite derivative there, give it a
    harmless operand, for 0 · ∞ is NaN: `where(x > 0, sqrt(where(x > 0, x, 1.0)), 0.0)`.

    >>> from trgbench import engine
    >>> clipped = engine.trace(lambda x: engine.sum(engine.where(x > 0, x, 0.0)), engine.spec((3,)))
    >>> engine.Runtime().prepare(engine.grad(clipped))([1.0, -1.0, 2.0])
    array([1., 0., 1.])
    """
    dtype = next((x.dtype for x in (x1, x2) if isinstance(x, (Value, np.ndarray))), FLOATS[0])
    x1, x2 = (
        np.asarray(x, dtype) if isinstance(x, (int, float)) and not isinstance(x, bool) else x
        for x in (x1, x2)
    )
    return OPS["where"](condition, x1, x2)
