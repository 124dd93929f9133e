"""Contractions: sums of products over paired axes, done by BLAS.

One operation serves them all: `contract`, of which `tensordot`, `matmul` and each pair of an `einsum` are
cases.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import prod
from typing import Any, NamedTuple

import numpy as np

from trgbench.engine.ops.families import float_only, multilinear_jvp
from trgbench.engine.ops.indexing import diagonal
from trgbench.engine.ops.reduction import sum
from trgbench.engine.ops.shape import broadcast_to, normalized_axis, permute_dims
from trgbench.engine.ops.table import OPS, Array, Op, Shape, Spec, register, shape_of
from trgbench.errors import InputError

Axes = tuple[tuple[int, ...], tuple[int, ...]]  # axes of the first operand, paired with those of the second

# --- contract -------------------------------------------------------------------------------------
# C[z, f, g] = Σ_p A[z, f, p] B[z, p, g], where z, f, g, p each stand for several axes: z are `batch`, p are
# `axes`, and f and g those of A and B that are in neither, in their order.


class Plan(NamedTuple):
    """How to make matrices of the operands: their axes in order, then as a matrix or stack of matrices."""

    order_a: tuple[int, ...]
    matrix_a: Shape
    order_b: tuple[int, ...]
    matrix_b: Shape
    shape: Shape


@lru_cache(4096)
def plan(a: Shape, b: Shape, axes: Axes, batch: Axes) -> Plan:
    """Raises `InputError` if the axes do not pair up."""
    for (of_a, of_b), what in ((axes, "axes"), (batch, "batch axes")):
        lengths = [[s[i] for i in side if 0 <= i < len(s)] for s, side in ((a, of_a), (b, of_b))]
        if len(of_a) != len(of_b) or lengths[0] != lengths[1] or len(lengths[0]) != len(of_a):
            raise InputError(
                f"contract: {what} {of_a} of an array of shape {a} and {of_b} of one of shape {b} do not "
                f"have equal lengths; pair each axis with one of the same length"
            )
    (p_a, p_b), (z_a, z_b) = axes, batch
    if len({*p_a, *z_a}) < len(p_a) + len(z_a) or len({*p_b, *z_b}) < len(p_b) + len(z_b):
        raise InputError(f"contract: an axis is named twice in axes {axes} and batch {batch}; name it once")
    free_a = tuple(i for i in range(len(a)) if i not in p_a and i not in z_a)
    free_b = tuple(j for j in range(len(b)) if j not in p_b and j not in z_b)
    z, f, g, p = ([s[i] for i in side] for s, side in ((a, z_a), (a, free_a), (b, free_b), (a, p_a)))
    stack = (prod(z),) if z_a else ()
    return Plan(
        (*z_a, *free_a, *p_a),
        (*stack, prod(f), prod(p)),
        (*z_b, *p_b, *free_b),
        (*stack, prod(p), prod(g)),
        (*z, *f, *g),
    )


def _contract_infer(a: Spec, b: Spec, axes: Axes, batch: Axes) -> tuple[Spec]:
    float_only("contract", a, b)
    if a.dtype != b.dtype:
        raise InputError(
            f"contract: argument 2 is {b} and argument 1 is {a}; their dtypes must be equal; convert one"
        )
    return (Spec(plan(a.shape, b.shape, axes, batch).shape, a.dtype),)


def _contract(a: Array, b: Array, axes: Axes, batch: Axes) -> Array:
    # NumPy calls another BLAS routine (syrk) when both operands are one buffer, and its rounding differs;
    # which values share a buffer depends on the mode, so that must not show.
    if np.may_share_memory(a, b):
        b = b.copy()
    how = plan(a.shape, b.shape, axes, batch)
    left = a.transpose(how.order_a).reshape(how.matrix_a)
    right = b.transpose(how.order_b).reshape(how.matrix_b)
    product = np.matmul(left, right) if batch[0] else np.dot(left, right)
    return product.reshape(how.shape)


def _contract_vjp(
    cotangents: Any, outputs: Any, inputs: Any, parameters: tuple, wanted: Sequence[bool]
) -> list:
    # Ā[z, f, p] = Σ_g C̄[z, f, g] B[z, p, g]   and   B̄[z, p, g] = Σ_f A[z, f, p] C̄[z, f, g].
    (ct,), (a, b), ((p_a, p_b), (z_a, z_b)) = cotangents, inputs, parameters
    free_a = tuple(i for i in range(a.ndim) if i not in p_a and i not in z_a)
    free_b = tuple(j for j in range(b.ndim) if j not in p_b and j not in z_b)
    z = tuple(range(len(z_a)))
    f = tuple(range(len(z), len(z) + len(free_a)))
    g = tuple(range(len(z) + len(f), ct.ndim))
    result: list[Any] = [None, None]
    if wanted[0]:
        product = OPS["contract"](ct, b, parameters=((g, free_b), (z, z_b)))
        result[0] = _ordered(product, (*z_a, *free_a, *(p_a[p_b.index(j)] for j in sorted(p_b))))
    if wanted[1]:
        product = OPS["contract"](a, ct, parameters=((free_a, f), (z_a, z)))
        result[1] = _ordered(product, (*z_b, *(p_b[p_a.index(i)] for i in sorted(p_a)), *free_b))
    return result


def _ordered(x: Any, order: tuple[int, ...]) -> Any:
    """Permute x, whose axis i is to become axis order[i]."""
    axes = tuple(order.index(i) for i in range(len(order)))
    return x if axes == tuple(range(len(axes))) else permute_dims(x, axes)


_NONE: Axes = ((), ())

register(
    Op(
        "contract",
        _contract_infer,
        _contract,
        _contract_vjp,
        multilinear_jvp("contract"),
        lambda rng: [
            ((rng.uniform(size=a), rng.uniform(size=b)), (axes, batch))
            for a, b, axes, batch in (
                ((3, 4), (4, 2), ((1,), (0,)), _NONE),
                ((2, 3, 4), (4, 5, 2), ((0, 2), (2, 0)), _NONE),
                ((2,), (3,), _NONE, _NONE),
                ((3,), (3,), ((0,), (0,)), _NONE),
                ((), (2,), _NONE, _NONE),
                ((2, 0), (0, 3), ((1,), (0,)), _NONE),
                ((2, 3, 4), (2, 4, 5), ((2,), (1,)), ((0,), (0,))),
                ((3, 2, 4), (4, 3, 5, 2), ((2,), (0,)), ((0, 1), (1, 3))),
                ((2, 3), (2, 3), ((1,), (1,)), ((0,), (0,))),
                ((0, 3), (0, 3), ((1,), (1,)), ((0,), (0,))),
                ((1, 1), (1, 1), ((1,), (0,)), _NONE),
            )
        ],
        parameters=("axes", "batch"),
        blas=True,
    )
)


def _ndims(*operands: Any) -> list[int]:
    return [len(shape_of(x)) for x in operands]


def tensordot(x1: Any, x2: Any, /, *, axes: int | Sequence[int | Sequence[int]] = 2) -> Any:
    """Sum of products of x1 and x2 over paired `axes`; the free axes of x1 come first.

    An integer n stands for the last n axes of x1 and the first n of x2.

    Raises:
        InputError: if the paired axes do not exist or differ in length.
    """
    ndims = _ndims(x1, x2)
    if isinstance(axes, int):
        if not 0 <= axes <= min(ndims):
            raise InputError(f"tensordot: axes must be from 0 to {min(ndims)} for these operands; got {axes}")
        axes = (range(ndims[0] - axes, ndims[0]), range(axes))
    pair = tuple(
        tuple(
            normalized_axis("tensordot", axis, ndim)
            for axis in (side if isinstance(side, Sequence) else [side])
        )
        for side, ndim in zip(axes, ndims, strict=True)
    )
    return OPS["contract"](x1, x2, parameters=(pair, _NONE))


def matmul(x1: Any, x2: Any, /) -> Any:
    """The matrix product Σ_j x1[…, i, j] x2[…, j, k]; the axes before the last two broadcast.

    A vector is a row on the left and a column on the right, without the axis of length 1 in the result.

    Raises:
        InputError: if an operand is 0-d, or the shapes do not fit.

    >>> import numpy
    >>> matmul(numpy.ones((5, 2, 3)), numpy.ones((3, 4))).shape
    (5, 2, 4)
    """
    shapes = [shape_of(x) for x in (x1, x2)]
    if not all(shapes):
        raise InputError(
            f"matmul: the operands must have at least one axis; got shapes {shapes[0]} and {shapes[1]}; "
            f"use multiply for a scalar"
        )
    n1, n2 = len(shapes[0]), len(shapes[1])
    last, first = n1 - 1, max(n2 - 2, 0)
    if n2 <= 2:
        return OPS["contract"](x1, x2, parameters=(((last,), (first,)), _NONE))
    if n1 <= 2:  # [i, …, k]: the axes of x2 before its last two go to the front
        product = OPS["contract"](x1, x2, parameters=(((last,), (first,)), _NONE))
        return product if n1 == 1 else permute_dims(product, (*range(1, n2 - 1), 0, n2 - 1))
    try:
        stack = np.broadcast_shapes(shapes[0][:-2], shapes[1][:-2])
    except ValueError:
        raise InputError(
            f"matmul: the shapes {shapes[0]} and {shapes[1]} do not broadcast in the axes before the last two"
        ) from None
    x1, x2 = (
        x if shape[:-2] == stack else broadcast_to(x, (*stack, *shape[-2:]))
        for x, shape in zip((x1, x2), shapes, strict=True)
    )
    z = tuple(range(len(stack)))
    return OPS["contract"](x1, x2, parameters=(((len(z) + 1,), (len(z),)), (z, z)))


def outer(x1: Any, x2: Any, /) -> Any:
    """The products x1[i] x2[j] of two vectors."""
    ndims = _ndims(x1, x2)
    if ndims != [1, 1]:
        raise InputError(
            f"outer: the operands must be vectors; got {ndims[0]} and {ndims[1]} axes; see tensordot"
        )
    return tensordot(x1, x2, axes=0)


def trace(x: Any, /, *, offset: int = 0) -> Any:
    """Σ_i x[…, i, i + offset] of the matrices in the last two axes of x."""
    return sum(diagonal(x, offset=offset), axis=-1)
