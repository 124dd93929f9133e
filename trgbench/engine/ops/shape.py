"""Operations that move elements and compute nothing. Each is linear; its derivative is its adjoint."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from trgbench.engine.ops.table import OPS, Array, Op, Shape, Spec, linear, register, unbroadcast
from trgbench.errors import InputError


def normalized_axis(name: str, axis: int, ndim: int) -> int:
    """Return `axis` counted from 0, or raise `InputError` if an array of `ndim` axes lacks it."""
    if not -ndim <= axis < ndim:
        raise InputError(f"{name}: axis {axis} is out of bounds for an array of {ndim} axes")
    return axis % ndim


def normalized_axes(name: str, axes: int | Sequence[int] | None, ndim: int) -> tuple[int, ...]:
    """Return `axes` as sorted distinct axes counted from 0; `None` means all."""
    if axes is None:
        return tuple(range(ndim))
    given = (axes,) if isinstance(axes, int) else tuple(axes)
    found = tuple(sorted(normalized_axis(name, axis, ndim) for axis in given))
    if len(set(found)) != len(found):
        raise InputError(f"{name}: an axis is named twice in {given}")
    return found


# --- reshape --------------------------------------------------------------------------------------


def _reshape_infer(x: Spec, shape: Shape) -> tuple[Spec]:
    if math.prod(x.shape) != math.prod(shape):
        raise InputError(
            f"reshape: {x} has {math.prod(x.shape)} elements and shape {shape} wants {math.prod(shape)}"
        )
    return (Spec(shape, x.dtype),)


linear(
    "reshape",
    _reshape_infer,
    lambda x, shape: np.reshape(x, shape),
    lambda ct, x, shape: reshape(ct, x.shape),
    parameters=("shape",),
    samples=lambda rng: [
        ((rng.uniform(size=(2, 6)),), ((3, 4),)),
        ((rng.uniform(size=()),), ((1, 1),)),
        ((rng.uniform(size=(0, 3)),), ((0,),)),
    ],
    alias=True,
)


def reshape(x: Any, /, shape: Shape) -> Any:
    """The elements of x in row-major order as an array of `shape`; one entry may be −1."""
    shape = tuple(int(n) for n in shape)
    if -1 in shape:
        known = -math.prod(shape)
        size = math.prod(np.shape(x) if not hasattr(x, "spec") else x.shape)
        shape = tuple((size // known if known else 0) if n == -1 else n for n in shape)
    return OPS["reshape"](x, parameters=(shape,))


# --- permute_dims ---------------------------------------------------------------------------------


def _permute_infer(x: Spec, axes: tuple[int, ...]) -> tuple[Spec]:
    if sorted(axes) != list(range(len(x.shape))):
        raise InputError(f"permute_dims: axes {axes} are not a permutation of the axes of {x}")
    return (Spec(tuple(x.shape[axis] for axis in axes), x.dtype),)


linear(
    "permute_dims",
    _permute_infer,
    # A copy, not a view: see `table` on contiguity.
    lambda x, axes: np.ascontiguousarray(np.transpose(x, axes)) if axes else x,
    lambda ct, x, axes: permute_dims(ct, tuple(int(i) for i in np.argsort(axes))),
    parameters=("axes",),
    samples=lambda rng: [
        ((rng.uniform(size=(2, 3, 4)),), ((2, 0, 1),)),
        ((rng.uniform(size=(1, 5)),), ((1, 0),)),
        ((rng.uniform(size=(0, 2)),), ((1, 0),)),
    ],
)


def permute_dims(x: Any, /, axes: Sequence[int]) -> Any:
    """The array x with its axes in the order `axes`: y[i_axes[0], i_axes[1], …] = x[i_0, i_1, …]."""
    ndim = np.ndim(x) if not hasattr(x, "spec") else x.ndim
    axes = tuple(int(a) + ndim if a < 0 else int(a) for a in axes)
    return OPS["permute_dims"](x, parameters=(axes,))


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
    return OPS["broadcast_to"](x, parameters=(tuple(shape),))


# --- static slices --------------------------------------------------------------------------------
# Parameters: one (start, stop, step) per axis, all of them concrete, step > 0.

Bounds = tuple[tuple[int, int, int], ...]


def _slices(bounds: Bounds) -> tuple[slice, ...]:
    return tuple(slice(*b) for b in bounds)


def _slice_infer(x: Spec, bounds: Bounds) -> tuple[Spec]:
    if len(bounds) != len(x.shape):
        raise InputError(f"slice: {len(bounds)} slices given for {x}")
    return (Spec(tuple(len(range(*b)) for b in bounds), x.dtype),)


def _embed(x: Array, shape: Shape, bounds: Bounds) -> Array:
    whole = np.zeros(shape, x.dtype)
    whole[_slices(bounds)] = x
    return whole


linear(
    "slice",
    _slice_infer,
    lambda x, bounds: np.array(x[_slices(bounds)], order="C"),
    lambda ct, x, bounds: OPS["embed"](ct, parameters=(x.shape, bounds)),
    parameters=("bounds",),
    samples=lambda rng: [
        ((rng.uniform(size=(4, 5)),), (((1, 3, 1), (0, 5, 2)),)),
        ((rng.uniform(size=(3,)),), (((2, 2, 1),),)),
    ],
)
linear(
    "embed",
    lambda x, shape, bounds: (Spec(shape, x.dtype),),
    _embed,
    lambda ct, x, shape, bounds: OPS["slice"](ct, parameters=(bounds,)),
    parameters=("shape", "bounds"),
    samples=lambda rng: [((rng.uniform(size=(2, 3)),), ((4, 5), ((1, 3, 1), (0, 5, 2))))],
)


def getitem(x: Any, index: Any) -> Any:
    """Index x: x[index] for integers, slices with a positive step, `...` and `None`."""
    items = list(index) if isinstance(index, tuple) else [index]
    if any(not (i is None or i is Ellipsis or isinstance(i, (int, slice))) for i in items):
        raise InputError(
            f"index must be made of integers, slices, ... and None; got {index!r}; see take_along_axis"
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
        if isinstance(item, int):
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


# --- stack ----------------------------------------------------------------------------------------


def _concat_infer(*arguments: Any) -> tuple[Spec]:
    *specs, axis = arguments
    first = specs[0]
    for position, spec in enumerate(specs):
        others = [n for i, n in enumerate(spec.shape) if i != axis]
        if spec.dtype != first.dtype or others != [n for i, n in enumerate(first.shape) if i != axis]:
            raise InputError(
                f"concat: argument {position + 1} is {spec} and argument 1 is {first}; axis {axis}"
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
    ndim = max(np.ndim(x) if not hasattr(x, "spec") else x.ndim for x in arrays)
    return OPS["concat"](*arrays, parameters=(normalized_axis("concat", axis, ndim),))


def stack(arrays: Sequence[Any], /, *, axis: int = 0) -> Any:
    """The arrays joined along a new axis."""
    ndim = max(np.ndim(x) if not hasattr(x, "spec") else x.ndim for x in arrays)
    at = normalized_axis("stack", axis, ndim + 1)
    expanded = []
    for x in arrays:
        shape = x.shape if hasattr(x, "spec") else np.shape(x)
        expanded.append(reshape(x, (*shape[:at], 1, *shape[at:])))
    return concat(expanded, axis=at)
