"""Contractions: sums of products over paired axes, done by BLAS.

One operation serves them all: `tensordot`. `matmul` of matrices is a tensordot over one pair of axes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from trgbench.engine.ops.shape import normalized_axis, permute_dims
from trgbench.engine.ops.table import OPS, Array, Op, Spec, Value, float_only, multilinear_jvp, register
from trgbench.errors import InputError

Axes = tuple[tuple[int, ...], tuple[int, ...]]


def _tensordot_infer(a: Spec, b: Spec, axes: Axes) -> tuple[Spec]:
    float_only("tensordot", a, b)
    if a.dtype != b.dtype:
        raise InputError(f"tensordot: argument 2 is {b} and argument 1 is {a}; their dtypes must be equal")
    if len(axes[0]) != len(axes[1]) or [a.shape[i] for i in axes[0]] != [b.shape[j] for j in axes[1]]:
        raise InputError(f"tensordot: axes {axes[0]} of {a} and {axes[1]} of {b} do not have equal lengths")
    free_a = tuple(n for i, n in enumerate(a.shape) if i not in axes[0])
    free_b = tuple(n for j, n in enumerate(b.shape) if j not in axes[1])
    return (Spec(free_a + free_b, a.dtype),)


def _tensordot(a: Array, b: Array, axes: Axes) -> Array:
    # NumPy calls another BLAS routine (syrk) when both operands are one buffer, and its rounding differs;
    # which values share a buffer depends on the mode, so that must not show.
    if np.may_share_memory(a, b):
        b = b.copy()
    return np.tensordot(a, b, axes)


def _tensordot_vjp(
    cotangents: Any, outputs: Any, inputs: Any, parameters: tuple, wanted: Sequence[bool]
) -> list:
    # With C[f, g] = Σ_p A[f, p] B[p, g]:  Ā[f, p] = Σ_g C̄[f, g] B[p, g]  and  B̄[p, g] = Σ_f A[f, p] C̄[f, g].
    (ct,), (a, b), ((axes_a, axes_b),) = cotangents, inputs, parameters
    free_a = [i for i in range(a.ndim) if i not in axes_a]
    free_b = [j for j in range(b.ndim) if j not in axes_b]
    of_a, of_b = tuple(range(len(free_a))), tuple(range(len(free_a), ct.ndim))
    result: list[Any] = [None, None]
    if wanted[0]:
        product = OPS["tensordot"](ct, b, parameters=((of_b, tuple(free_b)),))
        order = free_a + [axes_a[axes_b.index(j)] for j in sorted(axes_b)]
        result[0] = _ordered(product, order)
    if wanted[1]:
        product = OPS["tensordot"](a, ct, parameters=((tuple(free_a), of_a),))
        order = [axes_b[axes_a.index(i)] for i in sorted(axes_a)] + free_b
        result[1] = _ordered(product, order)
    return result


def _ordered(x: Any, order: list[int]) -> Any:
    """Permute x, whose axis i is to become axis order[i]."""
    axes = tuple(order.index(i) for i in range(len(order)))
    return x if axes == tuple(range(len(axes))) else permute_dims(x, axes)


register(
    Op(
        "tensordot",
        _tensordot_infer,
        _tensordot,
        _tensordot_vjp,
        multilinear_jvp("tensordot"),
        lambda rng: [
            ((rng.uniform(size=(3, 4)), rng.uniform(size=(4, 2))), (((1,), (0,)),)),
            ((rng.uniform(size=(2, 3, 4)), rng.uniform(size=(4, 5, 2))), (((0, 2), (2, 0)),)),
            ((rng.uniform(size=(2,)), rng.uniform(size=(3,))), (((), ()),)),
            ((rng.uniform(size=(3,)), rng.uniform(size=(3,))), (((0,), (0,)),)),
            ((rng.uniform(size=(2, 0)), rng.uniform(size=(0, 3))), (((1,), (0,)),)),
        ],
        parameters=("axes",),
    )
)


def tensordot(x1: Any, x2: Any, /, *, axes: int | tuple[Sequence[int], Sequence[int]] = 2) -> Any:
    """Sum of products of x1 and x2 over paired `axes`; the free axes of x1 come first."""
    ndims = [x.ndim if isinstance(x, Value) else np.ndim(x) for x in (x1, x2)]
    if isinstance(axes, int):
        axes = (range(ndims[0] - axes, ndims[0]), range(axes))
    pair = tuple(
        tuple(normalized_axis("tensordot", axis, ndim) for axis in side)
        for side, ndim in zip(axes, ndims, strict=True)
    )
    return OPS["tensordot"](x1, x2, parameters=(pair,))


def matmul(x1: Any, x2: Any, /) -> Any:
    """The matrix product Σ_j x1[i, j] x2[j, k] of two matrices or vectors."""
    ndims = [x.ndim if isinstance(x, Value) else np.ndim(x) for x in (x1, x2)]
    if not all(n in (1, 2) for n in ndims):
        raise InputError(
            f"matmul: the operands must have 1 or 2 axes; got {ndims[0]} and {ndims[1]}; see tensordot"
        )
    return tensordot(x1, x2, axes=((ndims[0] - 1,), (0,)))


def _trace_infer(x: Spec) -> tuple[Spec]:
    float_only("trace", x)
    if len(x.shape) != 2 or x.shape[0] != x.shape[1]:
        raise InputError(f"trace: the operand must be a square matrix; got {x}")
    return (Spec((), x.dtype),)


register(
    Op(
        "trace",
        _trace_infer,
        np.trace,
        lambda cts, outs, ins, parameters, wanted: [cts[0] * np.eye(ins[0].shape[0], dtype=ins[0].dtype)],
        multilinear_jvp("trace"),
        lambda rng: [((rng.uniform(size=(n, n)),), ()) for n in (3, 1, 0)],
    )
)


def trace(x: Any, /) -> Any:
    """Σ_i x[i, i] of a square matrix."""
    return OPS["trace"](x)
