"""Reductions over axes. An operation drops its axes; `keepdims` is a reshape behind it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from trgbench.engine.ops.shape import broadcast_to, normalized_axes, reshape
from trgbench.engine.ops.table import OPS, Array, Spec, Value, float_only, linear
from trgbench.errors import InputError


def dropped(spec: Spec, axes: tuple[int, ...]) -> Spec:
    """Shape rule of a reduction."""
    if any(not 0 <= axis < len(spec.shape) for axis in axes):
        raise InputError(f"a reduction over axes {axes} is out of bounds for {spec}")
    return Spec(tuple(n for i, n in enumerate(spec.shape) if i not in axes), spec.dtype)


def expanded(x: Value, shape: tuple[int, ...], axes: tuple[int, ...]) -> Any:
    """Put back the dropped axes with length 1."""
    return reshape(x, tuple(1 if i in axes else n for i, n in enumerate(shape)))


def _sum_infer(x: Spec, axes: tuple[int, ...]) -> tuple[Spec]:
    float_only("sum", x)
    return (dropped(x, axes),)


def _sum(x: Array, axes: tuple[int, ...]) -> Array:
    return np.add.reduce(x, axis=axes)


linear(
    "sum",
    _sum_infer,
    _sum,
    lambda ct, x, axes: broadcast_to(expanded(ct, x.shape, axes), x.shape),
    parameters=("axes",),
    samples=lambda rng: [
        ((rng.uniform(size=(3, 4)),), ((0, 1),)),
        ((rng.uniform(size=(2, 1, 3)),), ((2,),)),
        ((rng.uniform(size=()),), ((),)),
        ((rng.uniform(size=(0, 2)),), ((0,),)),
    ],
)


def sum(x: Any, /, *, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Any:
    """The sum of x over `axis` (all axes by default)."""
    shape = x.shape if isinstance(x, Value) else np.shape(x)
    axes = normalized_axes("sum", axis, len(shape))
    result = OPS["sum"](x, parameters=(axes,))
    return reshape(result, tuple(1 if i in axes else n for i, n in enumerate(shape))) if keepdims else result
