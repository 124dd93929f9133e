"""Every operation of the table over its own samples: shape rule, kernel, derivatives of both orders."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from trgbench import engine
from trgbench.engine.ops.table import FLOATS, OPS, Spec

SEED = 20261129
RUNTIME = engine.Runtime(width=1)
CASES = [
    (name, number)
    for name, op in OPS.items()
    for number in range(len(list(op.samples(np.random.default_rng(SEED)))))
]
# Kernels that are not analytic functions of their operands, so that no complex step can be taken.
REAL_ONLY = {"abs", "sign", "maximum", "minimum", "max", "min", "astype", "eigh", "qr", "cholesky", "svd"}


def sample(name: str, number: int, dtype: np.dtype = FLOATS[0]) -> tuple[list[np.ndarray], tuple]:
    arrays, parameters = list(OPS[name].samples(np.random.default_rng(SEED)))[number]
    # Through float32 in any case, so that both precisions have the same operands.
    return [x.astype(np.float32).astype(dtype) if x.dtype in FLOATS else x for x in arrays], parameters


def as_tuple(results: Any) -> tuple:
    return results if isinstance(results, tuple) else (results,)


class Case:
    """An operation on one sample: a function from its floating-point operands to such results."""

    def __init__(self, name: str, number: int, dtype: np.dtype) -> None:
        self.op = OPS[name]
        self.arrays, self.parameters = sample(name, number, dtype)
        self.where = [i for i, x in enumerate(self.arrays) if x.dtype in FLOATS]
        self.operands = [self.arrays[i] for i in self.where]
        inferred = self.op.check(self.arrays, self.parameters)
        self.results = [i for i, spec in enumerate(inferred) if spec.dtype in FLOATS]
        single = FLOATS[1] in [dtype, *(spec.dtype for spec in inferred)]
        self.tolerance = 1e-3 if single else 1e-8
        rng = np.random.default_rng(SEED + 1)
        self.directions = [rng.uniform(-1.0, 1.0, x.shape).astype(x.dtype) for x in self.operands]
        self.weights = [
            rng.uniform(-1.0, 1.0, inferred[i].shape).astype(inferred[i].dtype) for i in self.results
        ]

    def __call__(self, *operands: Any) -> tuple:
        arguments: list[Any] = list(self.arrays)
        for i, x in zip(self.where, operands, strict=True):
            arguments[i] = x
        results = as_tuple(self.op(*arguments, parameters=self.parameters))
        return tuple(results[i] for i in self.results)

    def scalar(self, *operands: Any) -> Any:
        """Σ_k ⟨weight_k, result_k²⟩: it has a curvature, and does not see the sign of a singular vector."""
        total: Any = 0.0
        for weight, result in zip(self.weights, self(*operands), strict=True):
            total = total + engine.sum(weight * (result * result))
        return total

    def linear(self, *operands: Any) -> Any:
        """Σ_k ⟨weight_k, result_k⟩."""
        total: Any = 0.0
        for weight, result in zip(self.weights, self(*operands), strict=True):
            total = total + engine.sum(weight * result)
        return total

    def trace(self, function: Callable[..., Any]) -> engine.Graph:
        return engine.trace(function, *(Spec(x.shape, x.dtype) for x in self.operands))

    @property
    def differentiable(self) -> bool:
        return bool(self.operands and self.results)


def directional(case: Case) -> list[np.ndarray]:
    """The derivative of a float64 case along its directions, from its kernel alone."""
    if case.op.name not in REAL_ONLY:
        moved = [x + 1e-30j * v for x, v in zip(case.operands, case.directions, strict=True)]
        arguments: list[Any] = list(case.arrays)
        for i, x in zip(case.where, moved, strict=True):
            arguments[i] = x
        results = as_tuple(case.op.kernel(*arguments, *case.parameters))
        return [np.imag(results[i]) / 1e-30 for i in case.results]
    return five_point(case, case.operands, case.directions)


def five_point(
    function: Callable[..., Sequence[Any]], at: Sequence[np.ndarray], along: Sequence[np.ndarray]
) -> list[np.ndarray]:
    """Central differences of fourth order."""
    h = 1e-3

    def moved(steps: int) -> list[np.ndarray]:
        return [np.asarray(y) for y in function(*(x + steps * h * v for x, v in zip(at, along, strict=True)))]

    points = zip(moved(-2), moved(-1), moved(1), moved(2), strict=True)
    return [(a - 8.0 * b + 8.0 * c - d) / (12.0 * h) for a, b, c, d in points]


def run(graph: engine.Graph, *arrays: np.ndarray) -> tuple:
    return as_tuple(RUNTIME.prepare(graph)(*arrays))


def gradient(case: Case, function: Callable[..., Any]) -> engine.Graph:
    return engine.grad(case.trace(function), argnums=range(len(case.operands)))


def assert_close(found: Sequence[Any], wanted: Sequence[Any], tolerance: float) -> None:
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


# --- the kernel -----------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize(("name", "number"), CASES)
def test_the_shape_rule_tells_what_the_kernel_returns(name: str, number: int, dtype: np.dtype) -> None:
    op = OPS[name]
    arrays, parameters = sample(name, number, dtype)
    before = [x.copy() for x in arrays]
    inferred = op.check(arrays, parameters)
    results = [np.asarray(y) for y in as_tuple(op.run(arrays, parameters))]
    assert [Spec(y.shape, y.dtype) for y in results] == list(inferred)
    assert all(y.flags.c_contiguous for y in results)
    assert op.alias or not any(np.shares_memory(y, x) for y in results for x in arrays)
    assert not any(np.shares_memory(y, z) for i, y in enumerate(results) for z in results[:i])
    again = as_tuple(op.run([x.copy() for x in arrays], parameters))
    assert [y.tobytes() for y in results] == [np.asarray(y).tobytes() for y in again]
    assert all((x == y).all() for x, y in zip(arrays, before, strict=True))


@pytest.mark.parametrize(("name", "number"), [case for case in CASES if OPS[case[0]].ufunc])
def test_writing_over_an_array_does_not_change_the_bits(name: str, number: int) -> None:
    op = OPS[name]
    arrays, parameters = sample(name, number)
    (spec,) = op.check(arrays, parameters)
    wanted = np.asarray(op.kernel(*arrays, *parameters))
    if not spec.shape:
        return  # numbers are never written over
    targets = [np.empty(spec.shape, spec.dtype)]
    for i, x in enumerate(arrays):
        if Spec(x.shape, x.dtype) == spec:
            arrays = [*arrays[:i], x.copy(), *arrays[i + 1 :]]
            targets.append(arrays[i])
            break
    for target in targets:
        op.kernel(*arrays, *parameters, target)
        assert target.tobytes() == wanted.tobytes()


# --- derivatives ----------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize(("name", "number"), CASES)
def test_derivatives_of_first_order(name: str, number: int, dtype: np.dtype) -> None:
    case, exact = Case(name, number, dtype), Case(name, number, FLOATS[0])
    if not case.differentiable:
        return
    forward = run(engine.jvp(case.trace(case)), *case.operands, *case.directions)
    tangents = forward[len(case.results) :]
    cotangents = run(gradient(case, case.linear), *case.operands)
    assert all(
        x.dtype == dtype and x.shape == y.shape for x, y in zip(cotangents, case.operands, strict=True)
    )
    assert_close(tangents, directional(exact), case.tolerance)
    # ⟨ct, J t⟩ = ⟨Jᵀ ct, t⟩
    left = sum(float(np.sum(c * t)) for c, t in zip(case.weights, tangents, strict=True))
    right = sum(float(np.sum(g * v)) for g, v in zip(cotangents, case.directions, strict=True))
    assert left == pytest.approx(right, rel=case.tolerance * 1e-2, abs=case.tolerance * 1e-2)


@pytest.mark.parametrize(("name", "number"), CASES)
def test_derivatives_of_second_order(name: str, number: int) -> None:
    case = Case(name, number, FLOATS[0])
    if not case.differentiable:
        return
    first = gradient(case, case.scalar)

    def slope(*operands: Any) -> Any:
        """The derivative along the directions."""
        total: Any = 0.0
        for g, v in zip(as_tuple(first(*operands)), case.directions, strict=True):
            total = total + engine.sum(g * v)
        return total

    wanted = five_point(RUNTIME.prepare(first), case.operands, case.directions)
    reverse_twice = run(gradient(case, slope), *case.operands)
    assert_close(reverse_twice, wanted, 10.0 * case.tolerance)
    count = len(case.operands)
    forward_over_reverse = run(engine.jvp(first), *case.operands, *case.directions)[count:]
    assert_close(forward_over_reverse, reverse_twice, case.tolerance * 1e-2)

    session = engine.Session(runtime=RUNTIME)
    leaves = [session.variable(x) for x in case.operands]
    total: Any = 0.0
    for g, v in zip(session.grad(case.scalar(*leaves), leaves), case.directions, strict=True):
        total = total + engine.sum(g * v)
    if total.active:
        eager = [g.value for g in session.grad(total, leaves)]
        assert [g.tobytes() for g in eager] == [g.tobytes() for g in reverse_twice]
    else:  # nothing depends on the operands any more
        assert not any(g.any() for g in reverse_twice)


@pytest.mark.parametrize(("name", "number"), CASES)
def test_operands_need_not_be_contiguous(name: str, number: int) -> None:
    case = Case(name, number, FLOATS[0])
    if not case.differentiable:
        return
    strided = [np.repeat(x[..., None], 3, axis=-1)[..., 1] for x in case.operands]
    graph = engine.value_and_grad(case.trace(case.linear), argnums=range(len(strided)))
    wanted = [y.tobytes() for y in run(graph, *case.operands)]
    assert [y.tobytes() for y in run(graph, *strided)] == wanted
    session = engine.Session(runtime=RUNTIME)
    leaves = [session.variable(x) for x in strided]
    value = case.linear(*leaves)
    assert value.value.tobytes() == wanted[0]
