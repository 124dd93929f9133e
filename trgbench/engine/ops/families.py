"""Families of operations that share a derivative or a part of a shape rule."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from trgbench.engine.ops.table import FLOATS, OPS, Array, Op, Rule, Samples, Shape, Spec, Value, register
from trgbench.errors import InputError

TIE_IN_ROUNDINGS = 4096  # a relative gap below so many roundings is a tie: 9.1e-13 in float64


def broadcast(name: str, *specs: Spec) -> Spec:
    """Shape rule of elementwise operations: one dtype, NumPy's broadcasting."""
    if len(specs) == 1 or specs.count(specs[0]) == len(specs):
        return specs[0]
    for position, spec in enumerate(specs):
        if spec.dtype != specs[0].dtype:
            raise InputError(
                f"{name}: argument {position + 1} is {spec} and argument 1 is {specs[0]}; "
                f"their dtypes must be equal; convert one of them"
            )
    try:
        return Spec(np.broadcast_shapes(*(spec.shape for spec in specs)), specs[0].dtype)
    except ValueError:
        shapes = " and ".join(str(spec.shape) for spec in specs)
        raise InputError(
            f"{name}: the shapes {shapes} do not broadcast together; reshape one of them"
        ) from None


def float_only(name: str, *specs: Spec) -> None:
    """Refuse operands that are not floating point."""
    for position, spec in enumerate(specs):
        if spec.dtype is not FLOATS[0] and spec.dtype not in FLOATS:
            raise InputError(
                f"{name}: argument {position + 1} must be float64 or float32; got {spec}; "
                f"convert it with numpy.asarray(x, dtype=float)"
            )


def unbroadcast(cotangent: Value, shape: Shape) -> Value:
    """Sum `cotangent` over the axes along which an operand of `shape` was broadcast."""
    if cotangent.shape == shape:
        return cotangent
    added = cotangent.ndim - len(shape)
    axes = (*range(added), *(i + added for i, n in enumerate(shape) if n == 1 != cotangent.shape[i + added]))
    summed = OPS["sum"](cotangent, parameters=(axes,)) if axes else cotangent
    return summed if summed.shape == shape else OPS["reshape"](summed, parameters=(shape,))


def elementwise(
    name: str, kernel: Callable[..., Array], *rules: Rule, samples: Samples, result: np.dtype | None = None
) -> Op:
    """Register an elementwise operation.

    `rules[i](t, y, *inputs)` is ∂y/∂input_i · t. The Jacobian is diagonal, so the rule is at once the
    reverse rule (t is the cotangent of y) and the forward rule (t is the tangent of input i).
    """

    def infer(*specs: Spec) -> tuple[Spec]:
        spec = broadcast(name, *specs)
        if result is None:
            float_only(name, *specs)
        return (Spec(spec.shape, result or spec.dtype),)

    def vjp(cotangents: Any, outputs: Any, inputs: Any, parameters: tuple, wanted: Sequence[bool]) -> list:
        return [
            unbroadcast(rule(cotangents[0], outputs[0], *inputs), value.shape) if want else None
            for rule, value, want in zip(rules, inputs, wanted, strict=True)
        ]

    def jvp(tangents: Any, outputs: Any, inputs: Any, parameters: tuple) -> list:
        total = None
        for rule, tangent in zip(rules, tangents, strict=True):
            if tangent is not None:
                part = rule(tangent, outputs[0], *inputs)
                if part.shape != outputs[0].shape:
                    part = OPS["broadcast_to"](part, parameters=(outputs[0].shape,))
                total = part if total is None else total + part
        return [total]

    if not rules:
        return register(Op(name, infer, kernel, no_vjp, no_jvp, samples, ufunc=True))
    return register(Op(name, infer, kernel, vjp, jvp, samples, ufunc=True))


def no_vjp(cotangents: Any, outputs: Any, inputs: Sequence[Any], parameters: tuple, wanted: Any) -> list:
    """The derivative of a piecewise constant operation: nothing flows back."""
    return [None] * len(inputs)


def no_jvp(tangents: Any, outputs: Sequence[Any], inputs: Any, parameters: tuple) -> list:
    """The derivative of a piecewise constant operation: nothing flows on."""
    return [None] * len(outputs)


def linear(
    name: str,
    infer: Callable[..., tuple[Spec, ...]],
    kernel: Callable[..., Any],
    transpose: Callable[..., Any],
    *,
    samples: Samples,
    parameters: tuple[str, ...] = (),
    alias: bool = False,
) -> Op:
    """Register a linear operation of one array; `transpose(ct, x, *parameters)` is its adjoint."""

    def vjp(cotangents: Any, outputs: Any, inputs: Any, values: tuple, wanted: Any) -> list:
        return [transpose(cotangents[0], inputs[0], *values)]

    def jvp(tangents: Any, outputs: Any, inputs: Any, values: tuple) -> list:
        return [OPS[name](tangents[0], parameters=values)]

    return register(Op(name, infer, kernel, vjp, jvp, samples, parameters=parameters, alias=alias))


def multilinear_jvp(name: str) -> Callable[..., list]:
    """Forward derivative of an operation that is linear in each operand: one term per tangent, added up."""

    def jvp(tangents: Any, outputs: Any, inputs: Any, parameters: tuple) -> list:
        total = None
        for position, tangent in enumerate(tangents):
            if tangent is not None:
                operands = [tangent if i == position else x for i, x in enumerate(inputs)]
                part = OPS[name](*operands, parameters=parameters)
                total = part if total is None else total + part
        return [total]

    return jvp


def check_finite(name: str, a: Array) -> None:
    """Refuse a matrix with NaN or infinity."""
    flat = a.reshape(-1)
    # LAPACK may hang or return rubbish. A finite sum of squares, the quickest test, has finite terms only.
    if not (np.isfinite(np.dot(flat, flat)) or np.isfinite(a).all()):
        raise InputError(
            f"{name}: the {'×'.join(map(str, a.shape))} matrix holds NaN or infinity; look at what made it"
        )
