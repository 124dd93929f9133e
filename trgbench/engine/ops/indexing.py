"""Static slices, elements by index along an axis, diagonals, and the adjoint of each. All are linear."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from trgbench.engine.ops.families import float_only, linear
from trgbench.engine.ops.shape import broadcast_to, normalized_axis, reshape
from trgbench.engine.ops.table import FLOATS, INTEGER, OPS, Array, Op, Shape, Spec, Value, register, shape_of
from trgbench.errors import InputError

# --- static slices --------------------------------------------------------------------------------
# Parameters: one (start, stop, step) per axis, all of them concrete, step > 0.

Bounds = tuple[tuple[int, int, int], ...]


def _slices(bounds: Bounds) -> tuple[slice, ...]:
    return tuple(slice(*b) for b in bounds)


def _sliced(shape: Shape, bounds: Bounds) -> Shape:
    """Return the shape of a slice of an array of `shape`."""
    if len(bounds) != len(shape) or any(b[1] > n for b, n in zip(bounds, shape, strict=True)):
        raise InputError(f"slice: bounds {bounds} do not lie in an array of shape {shape}")
    return tuple([len(range(*b)) for b in bounds])


def _slice_infer(x: Spec, bounds: Bounds) -> tuple[Spec]:
    return (Spec(_sliced(x.shape, bounds), x.dtype),)


def _embed_infer(x: Spec, shape: Shape, bounds: Bounds) -> tuple[Spec]:
    if _sliced(shape, bounds) != x.shape:
        raise InputError(f"embed: {x} is not a slice with bounds {bounds} of an array of shape {shape}")
    return (Spec(shape, x.dtype),)


def _slice(x: Array, bounds: Bounds) -> Array:
    _sliced(x.shape, bounds)
    return np.array(x[_slices(bounds)], order="C")


def _embed(x: Array, shape: Shape, bounds: Bounds) -> Array:
    if _sliced(shape, bounds) != x.shape:
        raise ValueError  # the shape rule says what is wrong; NumPy would broadcast
    whole = np.zeros(shape, x.dtype)
    whole[_slices(bounds)] = x
    return whole


linear(
    "slice",
    _slice_infer,
    _slice,
    lambda ct, x, bounds: OPS["embed"](ct, parameters=(x.shape, bounds)),
    parameters=("bounds",),
    samples=lambda rng: [
        ((rng.uniform(size=(4, 5)),), (((1, 3, 1), (0, 5, 2)),)),
        ((rng.uniform(size=(3,)),), (((2, 2, 1),),)),
        ((rng.uniform(size=(3,)),), (((0, 3, 1),),)),
        ((rng.uniform(size=()),), ((),)),
    ],
)
linear(
    "embed",
    _embed_infer,
    _embed,
    lambda ct, x, shape, bounds: OPS["slice"](ct, parameters=(bounds,)),
    parameters=("shape", "bounds"),
    samples=lambda rng: [((rng.uniform(size=(2, 3)),), ((4, 5), ((1, 3, 1), (0, 5, 2))))],
)


def getitem(x: Value, index: Any) -> Any:
    """Return x[index] for integers, slices with a positive step, `...` and `None`."""
    items = list(index) if isinstance(index, tuple) else [index]
    for item in items:
        known = item is None or item is Ellipsis or isinstance(item, (int, np.integer, slice))
        if not known or isinstance(item, bool):
            raise InputError(
                f"an index must be made of integers, slices, ... and None; got a "
                f"{type(item).__name__}; see where, take and take_along_axis"
            )
    missing = x.ndim - sum(i is not None and i is not Ellipsis for i in items)
    if missing < 0:
        raise InputError(f"index {index!r} has too many entries for an array of {x.ndim} axes")
    at = items.index(Ellipsis) if Ellipsis in items else len(items)
    items[at : at + 1] = [slice(None)] * missing
    bounds, shape, axis = [], [], 0
    for item in items:
        if item is None:
            shape.append(1)
            continue
        length = x.shape[axis]
        if isinstance(item, (int, np.integer)):
            item = int(item)
            if not -length <= item < length:
                raise InputError(f"index {item} is out of bounds for axis {axis} of length {length}")
            bounds.append((item % length, item % length + 1, 1))
        else:
            start, stop, step = item.indices(length)
            if step < 1:
                raise InputError(f"a slice must have a positive step; got {item}")
            bounds.append((start, max(start, stop), step))
            shape.append(len(range(*bounds[-1])))
        axis += 1
    result = x
    if tuple(bounds) != tuple((0, n, 1) for n in x.shape):
        result = OPS["slice"](x, parameters=(tuple(bounds),))
    return result if result.shape == tuple(shape) else reshape(result, tuple(shape))


# --- along an axis --------------------------------------------------------------------------------
# take:  y[…, i, …] = x[…, indices[…, i, …], …];   its adjoint adds y[…, i, …] to x[…, indices[…, i, …], …].


def _along(shape: Shape, indices: Shape, axis: int) -> bool:
    """Whether `indices` fits an array of `shape` in all axes but `axis`."""
    fits = len(shape) == len(indices) and 0 <= axis < len(shape)
    return fits and all(m == n for i, (m, n) in enumerate(zip(shape, indices, strict=True)) if i != axis)


def _take_infer(x: Spec, indices: Spec, axis: int) -> tuple[Spec]:
    if indices.dtype != INTEGER:
        raise InputError(f"take_along_axis: argument 2, the indices, must be int64; got {indices}")
    if not _along(x.shape, indices.shape, axis):
        raise InputError(
            f"take_along_axis: argument 2, the indices, is {indices} and argument 1 is {x}; "
            f"their shapes but for axis {axis} must be equal"
        )
    return (Spec(indices.shape, x.dtype),)


def _check_bounds(indices: Array, axis: int, length: int) -> None:
    if indices.size and not (-length <= indices.min() and indices.max() < length):
        raise InputError(
            f"take_along_axis: the indices go from {indices.min()} to {indices.max()}, and axis {axis} has "
            f"length {length}; they must be from {-length} to {length - 1}"
        )


def _take(x: Array, indices: Array, axis: int) -> Array:
    if indices.dtype.kind != "i" or not _along(x.shape, indices.shape, axis):
        raise ValueError  # the shape rule says what is wrong
    _check_bounds(indices, axis, x.shape[axis])
    return np.take_along_axis(x, indices, axis)


def _add_infer(x: Spec, indices: Spec, axis: int, length: int) -> tuple[Spec]:
    float_only("add_along_axis", x)
    if indices.dtype != INTEGER or x.shape != indices.shape or not 0 <= axis < len(x.shape):
        raise InputError(
            f"add_along_axis: argument 2, the indices, must be int64 and of the shape of argument 1, which "
            f"is {x}; got {indices} and axis {axis}"
        )
    return (Spec((*x.shape[:axis], length, *x.shape[axis + 1 :]), x.dtype),)


def _add_at(x: Array, indices: Array, axis: int, length: int) -> Array:
    if indices.dtype.kind != "i" or x.shape != indices.shape or not 0 <= axis < x.ndim:
        raise ValueError
    _check_bounds(indices, axis, length)
    result = np.zeros((*x.shape[:axis], length, *x.shape[axis + 1 :]), x.dtype)
    at = list(np.ix_(*(np.arange(n) for n in x.shape)))
    at[axis] = indices
    np.add.at(result, tuple(at), x)  # element by element, in order
    return result


def _take_vjp(cotangents: Any, outputs: Any, inputs: Any, parameters: tuple, wanted: Sequence[bool]) -> list:
    (x, indices), (axis,) = inputs, parameters
    if x.dtype not in FLOATS:
        return [None, None]
    return [OPS["add_along_axis"](cotangents[0], indices, parameters=(axis, x.shape[axis])), None]


def _take_samples(rng: np.random.Generator) -> list:
    return [
        ((rng.uniform(size=shape), rng.integers(low, shape[axis], indices)), (axis,))
        for shape, indices, axis, low in (
            ((4,), (7,), 0, 0),
            ((2, 3), (2, 2), 1, -3),
            ((3, 2), (4, 2), 0, 0),
            ((1,), (1,), 0, 0),
            ((3, 2), (0, 2), 0, 0),
        )
    ]


def _add_samples(rng: np.random.Generator) -> list:
    return [
        ((rng.uniform(size=indices.shape), indices), (axis, x.shape[axis]))
        for (x, indices), (axis,) in _take_samples(rng)
    ]


register(
    Op(
        "take_along_axis",
        _take_infer,
        _take,
        _take_vjp,
        lambda ts, outs, ins, parameters: [
            None if ts[0] is None else OPS["take_along_axis"](ts[0], ins[1], parameters=parameters)
        ],
        _take_samples,
        parameters=("axis",),
    )
)
register(
    Op(
        "add_along_axis",
        _add_infer,
        _add_at,
        lambda cts, outs, ins, parameters, wanted: [
            OPS["take_along_axis"](cts[0], ins[1], parameters=parameters[:1]),
            None,
        ],
        lambda ts, outs, ins, parameters: [
            None if ts[0] is None else OPS["add_along_axis"](ts[0], ins[1], parameters=parameters)
        ],
        _add_samples,
        parameters=("axis", "length"),
    )
)


def _as_indices(indices: Any) -> Any:
    """Integers of any width as int64; anything else is left for the shape rule to refuse."""
    if isinstance(indices, Value):
        return indices
    array = np.asarray(indices)
    return array.astype(INTEGER) if array.dtype.kind in "iu" or not array.size else array


def take_along_axis(x: Any, indices: Any, /, *, axis: int = -1) -> Any:
    """The elements x[…, indices[…, i, …], …] along `axis`; the other axes broadcast.

    Raises:
        InputError: if the indices are not integers, are out of bounds, or do not fit x.
    """
    indices = _as_indices(indices)
    shapes = [a.shape if isinstance(a, Value) else np.shape(a) for a in (x, indices)]
    at = normalized_axis("take_along_axis", axis, len(shapes[0]))
    if len(shapes[0]) == len(shapes[1]) and not _along(shapes[0], shapes[1], at):
        try:
            others = np.broadcast_shapes(*((*shape[:at], 1, *shape[at + 1 :]) for shape in shapes))
        except ValueError:
            pass  # refused by the shape rule
        else:
            x, indices = (
                broadcast_to(a, (*others[:at], shape[at], *others[at + 1 :]))
                for a, shape in zip((x, indices), shapes, strict=True)
            )
    return OPS["take_along_axis"](x, indices, parameters=(at,))


def take(x: Any, indices: Any, /, *, axis: int = -1) -> Any:
    """The elements x[…, indices[i], …] along `axis`, for a vector of indices.

    Raises:
        InputError: if the indices are not a vector of integers, or are out of bounds.
    """
    indices = _as_indices(indices)
    ndim = len(shape_of(x))
    if indices.ndim != 1:
        raise InputError(f"take: the indices must be a vector; got {indices.ndim} axes; see take_along_axis")
    at = normalized_axis("take", axis, ndim)
    row = reshape(indices, tuple(indices.shape[0] if i == at else 1 for i in range(ndim)))
    return take_along_axis(x, row, axis=at)


# --- diagonals ------------------------------------------------------------------------------------


def _diagonal_length(shape: Shape, offset: int) -> int:
    m, n = shape[-2:]
    return max(0, min(m, n - offset) if offset >= 0 else min(m + offset, n))


def _diagonal_infer(x: Spec, offset: int) -> tuple[Spec]:
    if len(x.shape) < 2:
        raise InputError(f"diagonal: the operand must have at least 2 axes; got {x}")
    return (Spec((*x.shape[:-2], _diagonal_length(x.shape, offset)), x.dtype),)


def _embed_diagonal_infer(x: Spec, matrix: Shape, offset: int) -> tuple[Spec]:
    if not x.shape or x.shape[-1] != _diagonal_length(matrix, offset):
        raise InputError(f"embed_diagonal: {x} is not the diagonal {offset} of a matrix of shape {matrix}")
    return (Spec((*x.shape[:-1], *matrix), x.dtype),)


def _embed_diagonal(x: Array, matrix: Shape, offset: int) -> Array:
    if not x.shape or x.shape[-1] != _diagonal_length(matrix, offset):
        raise ValueError
    result = np.zeros((*x.shape[:-1], *matrix), x.dtype)
    i = np.arange(x.shape[-1])
    result[..., i + max(-offset, 0), i + max(offset, 0)] = x
    return result


linear(
    "diagonal",
    _diagonal_infer,
    lambda x, offset: np.array(np.diagonal(x, offset, -2, -1), order="C"),
    lambda ct, x, offset: OPS["embed_diagonal"](ct, parameters=(x.shape[-2:], offset)),
    parameters=("offset",),
    samples=lambda rng: [
        ((rng.uniform(size=shape),), (offset,))
        for shape, offset in (
            ((3, 3), 0),
            ((2, 3, 4), 1),
            ((4, 2), -1),
            ((1, 1), 0),
            ((0, 0), 0),
            ((2, 2), 5),
        )
    ],
)
linear(
    "embed_diagonal",
    _embed_diagonal_infer,
    _embed_diagonal,
    lambda ct, x, matrix, offset: OPS["diagonal"](ct, parameters=(offset,)),
    parameters=("matrix", "offset"),
    samples=lambda rng: [
        ((rng.uniform(size=(3,)),), ((3, 3), 0)),
        ((rng.uniform(size=(2, 2)),), ((2, 4), 1)),
        ((rng.uniform(size=(0,)),), ((0, 3), 0)),
    ],
)


def diagonal(x: Any, /, *, offset: int = 0) -> Any:
    """The elements x[…, i, i + offset] of the matrices in the last two axes of x."""
    return OPS["diagonal"](x, parameters=(int(offset),))
