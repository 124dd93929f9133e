"""Operations that move elements and compute nothing. Each is linear; its derivative is its adjoint."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from trgbench.engine.ops.families import linear, unbroadcast
from trgbench.engine.ops.table import (
    DTYPES,
    FLOATS,
    INTEGER,
    OPS,
    Array,
    Op,
    Shape,
    Spec,
    Value,
    register,
    shape_of,
)
from trgbench.errors import InputError


def normalized_axis(name: str, axis: int, ndim: int) -> int:
    """Return `axis` counted from 0, or raise `InputError` if an array of `ndim` axes lacks it."""
    try:
        number = operator.index(axis)
    except TypeError:
        raise InputError(f"{name}: an axis must be a whole number; got {axis!r}") from None
    if not -ndim <= number < ndim:
        raise InputError(f"{name}: axis {axis} is out of bounds for an array of {ndim} axes")
    return number % ndim


def normalized_axes(name: str, axes: int | Sequence[int] | None, ndim: int) -> tuple[int, ...]:
    """Return `axes` as sorted distinct axes counted from 0; `None` means all."""
    if axes is None:
        return tuple(range(ndim))
    given = tuple(axes) if isinstance(axes, Sequence) else (axes,)
    found = tuple(sorted(normalized_axis(name, axis, ndim) for axis in given))
    if len(set(found)) != len(found):
        raise InputError(f"{name}: an axis is named twice in {given}")
    return found


# --- reshape --------------------------------------------------------------------------------------


def _reshape(x: Array, shape: Shape) -> Array:
    if shape and min(shape) < 0:  # NumPy would work out the length
        raise ValueError
    return np.reshape(x, shape)


def _reshape_infer(x: Spec, shape: Shape) -> tuple[Spec]:
    if math.prod(x.shape) != math.prod(shape) or any(n < 0 for n in shape):
        raise InputError(
            f"reshape: {x} has {math.prod(x.shape)} elements and shape {shape} wants {math.prod(shape)}"
        )
    return (Spec(shape, x.dtype),)


linear(
    "reshape",
    _reshape_infer,
    _reshape,
    lambda ct, x, shape: reshape(ct, x.shape),
    parameters=("shape",),
    samples=lambda rng: [
        ((rng.uniform(size=(2, 6)),), ((3, 4),)),
        ((rng.uniform(size=()),), ((1, 1),)),
        ((rng.uniform(size=(0, 3)),), ((0,),)),
    ],
    alias=True,
)


def reshape(x: Any, /, shape: int | Sequence[int]) -> Any:
    """The elements of x in row-major order as an array of `shape`; one entry may be −1."""
    wanted = tuple(int(n) for n in shape) if isinstance(shape, Sequence) else (int(shape),)
    if wanted.count(-1) == 1:
        known = -math.prod(wanted)
        size = math.prod(shape_of(x))
        wanted = tuple((size // known if known else 0) if n == -1 else n for n in wanted)
    return OPS["reshape"](x, parameters=(wanted,))


def expand_dims(x: Any, /, *, axis: int = 0) -> Any:
    """The array x with a new axis of length 1 at position `axis`."""
    shape = shape_of(x)
    at = normalized_axis("expand_dims", axis, len(shape) + 1)
    return reshape(x, (*shape[:at], 1, *shape[at:]))


def squeeze(x: Any, /, axis: int | Sequence[int]) -> Any:
    """The array x without its axes `axis`, all of length 1."""
    shape = shape_of(x)
    axes = normalized_axes("squeeze", axis, len(shape))
    if any(shape[i] != 1 for i in axes):
        raise InputError(f"squeeze: axes {axes} of an array of shape {shape} must have length 1")
    return reshape(x, tuple(n for i, n in enumerate(shape) if i not in axes))


# --- permute_dims ---------------------------------------------------------------------------------


def _permute_infer(x: Spec, axes: tuple[int, ...]) -> tuple[Spec]:
    if sorted(axes) != list(range(len(x.shape))):
        raise InputError(f"permute_dims: axes {axes} are not a permutation of the axes of {x}")
    return (Spec(tuple(x.shape[axis] for axis in axes), x.dtype),)


linear(
    "permute_dims",
    _permute_infer,
    # A copy, not a view: see `table` on contiguity.
    lambda x, axes: np.array(np.transpose(x, axes), order="C"),
    lambda ct, x, axes: permute_dims(ct, tuple(int(i) for i in np.argsort(axes))),
    parameters=("axes",),
    samples=lambda rng: [
        ((rng.uniform(size=shape),), (axes,))
        for shape, axes in (
            ((2, 3, 4), (2, 0, 1)),
            ((1, 5), (1, 0)),
            ((0, 2), (1, 0)),
            ((3,), (0,)),
            ((), ()),
        )
    ],
)


def permute_dims(x: Any, /, axes: Sequence[int]) -> Any:
    """The array x with its axes in the order `axes`: y[i_axes[0], i_axes[1], …] = x[i_0, i_1, …]."""
    ndim = len(shape_of(x))
    found = tuple(normalized_axis("permute_dims", axis, ndim) for axis in axes)
    return OPS["permute_dims"](x, parameters=(found,))


def matrix_transpose(x: Any, /) -> Any:
    """The array x with its last two axes exchanged; of a Value also `x.mT`."""
    ndim = len(shape_of(x))
    if ndim < 2:
        raise InputError(f"matrix_transpose: the operand must have at least 2 axes; got {ndim}")
    return permute_dims(x, (*range(ndim - 2), ndim - 1, ndim - 2))


# --- broadcast_to ---------------------------------------------------------------------------------


def _broadcast_infer(x: Spec, shape: Shape) -> tuple[Spec]:
    try:
        fits = np.broadcast_shapes(x.shape, shape) == shape
    except ValueError:
        fits = False
    if not fits:
        raise InputError(f"broadcast_to: {x} does not broadcast to shape {shape}")
    return (Spec(shape, x.dtype),)


linear(
    "broadcast_to",
    _broadcast_infer,
    lambda x, shape: np.array(np.broadcast_to(x, shape), order="C"),
    lambda ct, x, shape: unbroadcast(ct, x.shape),
    parameters=("shape",),
    samples=lambda rng: [
        ((rng.uniform(size=(3, 1)),), ((2, 3, 4),)),
        ((rng.uniform(size=()),), ((2, 2),)),
        ((rng.uniform(size=(1,)),), ((0,),)),
    ],
)


def broadcast_to(x: Any, /, shape: Shape) -> Any:
    """The array x repeated to `shape` by NumPy's broadcasting rules."""
    return OPS["broadcast_to"](x, parameters=(tuple(int(n) for n in shape),))


# --- concat and stack -----------------------------------------------------------------------------


def _concat_infer(*arguments: Any) -> tuple[Spec]:
    *specs, axis = arguments
    first = specs[0]
    if not 0 <= axis < len(first.shape):
        raise InputError(f"concat: argument 1 is {first} and has no axis {axis}; see stack")
    wanted = (*first.shape[:axis], None, *first.shape[axis + 1 :])
    for position, spec in enumerate(specs):
        if spec.dtype != first.dtype or (*spec.shape[:axis], None, *spec.shape[axis + 1 :]) != wanted:
            raise InputError(
                f"concat: argument {position + 1} is {spec} and argument 1 is {first}; their dtypes, and "
                f"their shapes but for axis {axis}, must be equal"
            )
    length = sum(spec.shape[axis] for spec in specs)
    return (Spec((*first.shape[:axis], length, *first.shape[axis + 1 :]), first.dtype),)


def _concat_vjp(cotangents: Any, outputs: Any, inputs: Any, parameters: tuple, wanted: Any) -> list:
    (axis,) = parameters
    result, start = [], 0
    for value in inputs:
        stop = start + value.shape[axis]
        bounds = tuple((start, stop, 1) if i == axis else (0, n, 1) for i, n in enumerate(outputs[0].shape))
        result.append(OPS["slice"](cotangents[0], parameters=(bounds,)))
        start = stop
    return result


def _concat_jvp(tangents: Any, outputs: Any, inputs: Any, parameters: tuple) -> list:
    filled = [
        value.recorder.constant(np.zeros(value.shape, value.dtype)) if tangent is None else tangent
        for tangent, value in zip(tangents, inputs, strict=True)
    ]
    return [OPS["concat"](*filled, parameters=parameters)]


def _concat_samples(rng: np.random.Generator) -> Iterable[tuple[tuple[Array, ...], tuple]]:
    yield (rng.uniform(size=(2, 3)), rng.uniform(size=(2, 1))), (1,)
    yield (rng.uniform(size=(1,)), rng.uniform(size=(0,)), rng.uniform(size=(2,))), (0,)


register(
    Op(
        "concat",
        _concat_infer,
        lambda *arguments: np.concatenate(arguments[:-1], axis=arguments[-1]),
        _concat_vjp,
        _concat_jvp,
        _concat_samples,
        parameters=("axis",),
    )
)


def concat(arrays: Sequence[Any], /, *, axis: int = 0) -> Any:
    """The arrays joined along an existing axis."""
    if not len(arrays):
        raise InputError("concat: no arrays were given; give at least one")
    ndim = arrays[0].ndim if isinstance(arrays[0], Value) else np.ndim(arrays[0])
    return OPS["concat"](*arrays, parameters=(normalized_axis("concat", axis, ndim),))


def stack(arrays: Sequence[Any], /, *, axis: int = 0) -> Any:
    """The arrays joined along a new axis."""
    if not len(arrays):
        raise InputError("stack: no arrays were given; give at least one")
    ndim = arrays[0].ndim if isinstance(arrays[0], Value) else np.ndim(arrays[0])
    at = normalized_axis("stack", axis, ndim + 1)
    return concat([expand_dims(x, axis=at) for x in arrays], axis=at)


# --- astype ---------------------------------------------------------------------------------------


def _astype_vjp(cotangents: Any, outputs: Any, inputs: Any, parameters: tuple, wanted: Any) -> list:
    return [astype(cotangents[0], inputs[0].dtype) if inputs[0].dtype in FLOATS else None]


register(
    Op(
        "astype",
        lambda x, dtype: (Spec(x.shape, dtype),),
        lambda x, dtype: np.array(x, dtype=dtype, order="C"),
        _astype_vjp,
        lambda ts, outs, ins, parameters: [astype(ts[0], *parameters) if parameters[0] in FLOATS else None],
        lambda rng: [
            ((rng.uniform(size=(2, 3)),), (FLOATS[1],)),
            ((rng.uniform(size=()),), (FLOATS[0],)),
            ((rng.uniform(size=(3,)) < 0.5,), (FLOATS[0],)),
            ((rng.uniform(size=(0,)),), (INTEGER,)),
        ],
        parameters=("dtype",),
    )
)


def astype(x: Any, dtype: Any, /) -> Any:
    """The elements of x as float64, float32, int64 or bool; derivatives flow from float to float."""
    found = np.dtype(dtype)
    if found not in DTYPES:
        raise InputError(f"astype: dtype must be one of {', '.join(d.name for d in DTYPES)}; got {found}")
    return OPS["astype"](x, parameters=(found,))


# --- arrays of constants --------------------------------------------------------------------------


def zeros_like(x: Any, /) -> Array:
    """A NumPy array of zeros, of the shape and dtype of x."""
    return np.zeros(x.shape, x.dtype)


def ones_like(x: Any, /) -> Array:
    """A NumPy array of ones, of the shape and dtype of x."""
    return np.ones(x.shape, x.dtype)
