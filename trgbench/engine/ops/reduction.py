"""Reductions over axes. An operation drops its axes; `keepdims` is a reshape behind it."""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from trgbench.engine.ops.comparison import where
from trgbench.engine.ops.elementwise import abs, sqrt, square
from trgbench.engine.ops.families import float_only, linear
from trgbench.engine.ops.shape import broadcast_to, concat, normalized_axes, permute_dims, reshape
from trgbench.engine.ops.table import OPS, Array, Op, Shape, Spec, register, shape_of
from trgbench.errors import InputError

Axes = tuple[int, ...]
Axis = int | Sequence[int] | None


def dropped(name: str, spec: Spec, axes: Axes) -> Spec:
    """Shape rule of a reduction."""
    float_only(name, spec)
    if any(not 0 <= axis < len(spec.shape) for axis in axes):
        raise InputError(f"{name}: axes {axes} are out of bounds for {spec}")
    return Spec(tuple(n for i, n in enumerate(spec.shape) if i not in axes), spec.dtype)


def expanded(x: Any, shape: Shape, axes: Axes) -> Any:
    """Put back the dropped axes with length 1."""
    return reshape(x, tuple(1 if i in axes else n for i, n in enumerate(shape)))


def _samples(rng: np.random.Generator) -> list:
    """Operands and axes: all, some, none, length 1; distinct elements away from 0."""
    cases = [((3, 4), (0, 1)), ((2, 1, 3), (2,)), ((3, 2, 4), (0, 2)), ((), ()), ((3,), ()), ((1,), (0,))]
    return [((rng.uniform(0.5, 1.5, shape),), (axes,)) for shape, axes in [*cases, ((0, 2), (1,))]]


def _reduced(name: str, x: Any, axis: Axis, keepdims: bool) -> Any:
    """Apply the reduction `name`, as the array API's functions do."""
    shape = shape_of(x)
    axes = normalized_axes(name, axis, len(shape))
    result = OPS[name](x, parameters=(axes,))
    return expanded(result, shape, axes) if keepdims else result


# --- sum and mean ---------------------------------------------------------------------------------


def _sum(x: Array, axes: Axes) -> Array:
    return np.add.reduce(x, axis=axes)


linear(
    "sum",
    lambda x, axes: (dropped("sum", x, axes),),
    _sum,
    lambda ct, x, axes: broadcast_to(expanded(ct, x.shape, axes), x.shape),
    parameters=("axes",),
    samples=lambda rng: [*_samples(rng), ((rng.uniform(size=(0, 2)),), ((0,),))],
)


def sum(x: Any, /, *, axis: Axis = None, keepdims: bool = False) -> Any:
    """The sum of x over `axis` (all axes by default)."""
    return _reduced("sum", x, axis, keepdims)


def mean(x: Any, /, *, axis: Axis = None, keepdims: bool = False) -> Any:
    """The mean of x over `axis` (all axes by default).

    Raises:
        InputError: if there is nothing to take the mean of.
    """
    shape = shape_of(x)
    axes = normalized_axes("mean", axis, len(shape))
    _refuse_empty("mean", shape, axes)
    return sum(x, axis=axes, keepdims=keepdims) / math.prod(shape[i] for i in axes)


def _refuse_empty(name: str, shape: Shape, axes: Axes) -> None:
    if any(shape[axis] == 0 for axis in axes):
        raise InputError(
            f"{name}: an array of shape {shape} has no elements along axes {axes}, and the {name} of "
            f"nothing is not defined; give at least one element"
        )


# --- max and min ----------------------------------------------------------------------------------
# All elements that attain the extremum get an equal share of the derivative: of the subgradients the
# one that is symmetric in them.


def _shares(y: Any, x: Any, axes: Axes) -> Any:
    tied = where(x == expanded(y, x.shape, axes), np.ones((), x.dtype), 0.0)
    return tied / expanded(sum(tied, axis=axes), x.shape, axes)


def _extremum_vjp(cotangents: Any, outputs: Any, inputs: Any, parameters: tuple, wanted: Any) -> list:
    (x,), (axes,) = inputs, parameters
    return [expanded(cotangents[0], x.shape, axes) * _shares(outputs[0], x, axes)]


def _extremum_jvp(tangents: Any, outputs: Any, inputs: Any, parameters: tuple) -> list:
    (axes,) = parameters
    return [sum(tangents[0] * _shares(outputs[0], inputs[0], axes), axis=axes)]


def _extremum(name: str, reduce: Callable[..., Array]) -> None:
    def infer(x: Spec, axes: Axes) -> tuple[Spec]:
        spec = dropped(name, x, axes)
        _refuse_empty(name, x.shape, axes)
        return (spec,)

    def kernel(x: Array, axes: Axes) -> Array:
        return reduce(x, axis=axes)

    register(Op(name, infer, kernel, _extremum_vjp, _extremum_jvp, _samples, parameters=("axes",)))


_extremum("max", np.maximum.reduce)
_extremum("min", np.minimum.reduce)


def max(x: Any, /, *, axis: Axis = None, keepdims: bool = False) -> Any:
    """The largest element of x over `axis` (all axes by default); equal ones share the derivative.

    Raises:
        InputError: if there is nothing to choose from.
    """
    return _reduced("max", x, axis, keepdims)


def min(x: Any, /, *, axis: Axis = None, keepdims: bool = False) -> Any:
    """The smallest element of x over `axis` (all axes by default); equal ones share the derivative.

    Raises:
        InputError: if there is nothing to choose from.
    """
    return _reduced("min", x, axis, keepdims)


# --- prod -----------------------------------------------------------------------------------------
# ∂y/∂x_i = Π_{j≠i} x_j, by products only: y / x_i would be 0/0 at a zero.


def _other_rows(x: Any) -> Any:
    """Return y[i, :] = Π_{j≠i} x[j, :], in log₂ steps: pairs of rows first, then what is in a pair."""
    length = x.shape[0]
    if length < 2:
        return np.ones(x.shape, x.dtype)
    half = length // 2
    first, second, last = x[:half], x[half : 2 * half], x[2 * half :]
    others = _other_rows(concat([first * second, last]))
    return concat([others[:half] * second, others[:half] * first, others[half:]])


def _others(x: Any, axes: Axes) -> Any:
    """Return the product of all other elements over `axes`, of the shape of x."""
    kept = tuple(i for i in range(x.ndim) if i not in axes)
    order = (*axes, *kept)
    rows = math.prod(x.shape[i] for i in axes)
    moved = permute_dims(x, order)
    others = _other_rows(reshape(moved, (rows, x.size // builtins.max(rows, 1))))
    return permute_dims(reshape(others, moved.shape), tuple(order.index(i) for i in range(x.ndim)))


def _prod(x: Array, axes: Axes) -> Array:
    return np.multiply.reduce(x, axis=axes)


register(
    Op(
        "prod",
        lambda x, axes: (dropped("prod", x, axes),),
        _prod,
        lambda cts, outs, ins, parameters, wanted: [
            expanded(cts[0], ins[0].shape, *parameters) * _others(ins[0], *parameters)
        ],
        lambda ts, outs, ins, parameters: [sum(ts[0] * _others(ins[0], *parameters), axis=parameters[0])],
        lambda rng: [*_samples(rng), ((rng.uniform(size=(0, 2)),), ((0,),))],
        parameters=("axes",),
    )
)


def prod(x: Any, /, *, axis: Axis = None, keepdims: bool = False) -> Any:
    """The product of the elements of x over `axis` (all axes by default).

    >>> from trgbench import engine
    >>> graph = engine.trace(engine.prod, engine.spec((3,)))
    >>> engine.Runtime().prepare(engine.grad(graph))([0.0, 2.0, 3.0])
    array([6., 0., 0.])
    """
    return _reduced("prod", x, axis, keepdims)


# --- norms ----------------------------------------------------------------------------------------


def vector_norm(x: Any, /, *, axis: Axis = None, keepdims: bool = False, ord: float = 2) -> Any:
    """The norm of x over `axis` (all axes by default): of `ord` 2, Σ|x| for 1, max |x| for infinity.

    At x = 0, where the norm has no derivative, it is given the subgradient 0, so that it stays finite.

    >>> from trgbench import engine
    >>> graph = engine.trace(engine.linalg.vector_norm, engine.spec((2,)))
    >>> gradient = engine.Runtime().prepare(engine.grad(graph))
    >>> gradient([3.0, 4.0]), gradient([0.0, 0.0])
    (array([0.6, 0.8]), array([0., 0.]))
    """
    if ord == 1:
        return sum(abs(x), axis=axis, keepdims=keepdims)
    if ord == math.inf:
        return max(abs(x), axis=axis, keepdims=keepdims)
    if ord != 2:
        raise InputError(f"vector_norm: ord must be 1, 2 or infinity; got {ord!r}; write it with sum and pow")
    squares = sum(square(x), axis=axis, keepdims=keepdims)
    zero = squares == 0.0
    return where(zero, 0.0, sqrt(where(zero, 1.0, squares)))


def matrix_norm(x: Any, /, *, keepdims: bool = False, ord: str = "fro") -> Any:
    """The Frobenius norm over the last two axes of x; its derivative at 0 is 0.

    Raises:
        InputError: if x has fewer than 2 axes, or `ord` is not "fro".
    """
    ndim = len(shape_of(x))
    if ndim < 2 or ord != "fro":
        raise InputError(
            f"matrix_norm: needs a matrix, and the Frobenius norm (ord='fro'); got {ndim} axes and {ord!r}; "
            f"see vector_norm and svd"
        )
    return vector_norm(x, axis=(ndim - 2, ndim - 1), keepdims=keepdims)
