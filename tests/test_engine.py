"""The engine's two faces: the same bits, right, linear in depth, and nothing lost by an error."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from trgbench import engine, problems
from trgbench.engine.graph import check
from trgbench.engine.ops.table import OPS, Spec
from trgbench.errors import InputError

SEED = 20261129


def both_faces(f: Callable, x: np.ndarray, width: int = 1) -> dict[str, tuple[Any, Any]]:
    """Value and gradient of f at x: eager, traced, and traced with every pass off."""
    graph = engine.trace(f, engine.spec(x.shape, x.dtype))
    gradient = engine.value_and_grad(graph)
    check(graph)
    check(gradient)
    runtime = engine.Runtime(width=width)
    session = engine.Session(runtime=runtime)
    leaf = session.variable(x)
    value = f(leaf)
    value.backward()
    return {
        "eager": (value.value, leaf.grad),
        "traced": runtime.prepare(gradient)(x),
        "traced, no pass": runtime.prepare(gradient, passes=())(x),
    }


PROBLEMS = {
    "vector": problems.vector(1000),
    "chain": problems.chain(400),
    "chain n=1000": problems.chain(40, n=1000),
    "trg 4": problems.trg(16, 4),
    "trg 8": problems.trg(8, 8),
}


@pytest.mark.parametrize("width", [1, 2])
@pytest.mark.parametrize("name", PROBLEMS)
def test_the_faces_give_the_same_bits(name: str, width: int) -> None:
    problem = PROBLEMS[name]
    found = both_faces(lambda x: problem.value(engine, engine.svd, x), problem.example, width)
    value, gradient = found["eager"]
    problem.check(problem.example, value, gradient)
    for other, (v, g) in found.items():
        assert v.tobytes() == value.tobytes(), other
        assert g.tobytes() == np.asarray(gradient).tobytes(), other


def test_one_buffer_twice_is_rounded_as_two_buffers() -> None:
    # BLAS has another routine for A·Aᵀ; sharing of equal subexpressions must not bring it in.
    def f(x: Any) -> Any:
        return engine.sum(engine.tensordot(engine.sin(x), engine.sin(x), axes=((1,), (1,))) * 0.1)

    x = np.random.default_rng(SEED).normal(size=(40, 60))
    found = both_faces(f, x)
    assert len({g.tobytes() for _, g in found.values()}) == 1
    assert len({np.asarray(v).tobytes() for v, _ in found.values()}) == 1


# --- eager ----------------------------------------------------------------------------------------


def test_values_can_be_read_and_branched_on() -> None:
    session = engine.Session()
    x = session.variable([2.0, 1.0])
    y = x * x if float(engine.sum(x)) > 1.0 else engine.sin(x)
    engine.sum(y).backward()
    assert x.grad.tolist() == [4.0, 2.0]
    with pytest.raises(ValueError, match="read-only"):
        y.value[0] = 0.0


def test_gradients_accumulate_until_cleared() -> None:
    session = engine.Session()
    x = session.variable([3.0])
    for _ in range(2):
        engine.sum(x * x).backward()
    assert x.grad.tolist() == [12.0]
    x.grad = None
    engine.sum(x * x).backward()
    assert x.grad.tolist() == [6.0]


def test_backward_runs_through_results_from_before_another_backward() -> None:
    session = engine.Session()
    x = session.variable([0.5])
    y = engine.sin(x)  # recorded before the first backward, used after it
    engine.sum(y * y).backward()
    first, x.grad = x.grad, None
    z = engine.exp(y)
    (engine.sum(z) + engine.sum(y * y)).backward()
    expected = np.exp(np.sin(0.5)) * np.cos(0.5) + first
    np.testing.assert_allclose(x.grad, expected, rtol=1e-15)


def test_grad_through_an_earlier_backward_is_refused() -> None:
    session = engine.Session()
    x = session.variable(1.0)
    z = engine.sin(x)
    (z * 2.0).backward()
    with pytest.raises(InputError, match="leads through a tensor that was recorded before the last backward"):
        session.grad(z * z, [x])
    (found,) = session.grad(z * z, [z])
    assert float(found) == 2.0 * np.sin(1.0)


def test_a_seed_is_the_cotangent_of_the_root() -> None:
    session = engine.Session()
    x = session.variable([1.0, 2.0])
    y = x * x
    with pytest.raises(InputError, match=r"needs a seed of that shape"):
        y.backward()
    y.backward([1.0, 10.0])
    assert x.grad.tolist() == [2.0, 40.0]


def test_paused_recording_and_constants_carry_no_derivative() -> None:
    session = engine.Session()
    x = session.variable([1.0])
    with session.paused():
        y = engine.sum(x * x)
    assert not y.active
    assert not (session.constant([1.0]) * 2.0).active
    with pytest.raises(InputError, match="depends on no variable"):
        y.backward()


def test_a_variable_is_copied_and_a_gradient_is_the_callers() -> None:
    session = engine.Session()
    given = np.array([1.0, 2.0])
    x = session.variable(given)
    y = engine.sum(x * x)
    given[:] = 100.0
    y.backward()
    assert x.grad.tolist() == [2.0, 4.0]
    program = engine.Runtime().prepare(engine.trace(lambda x: engine.reshape(x, (2, 1)), engine.spec(2)))
    result = program(given)
    result[:] = 7.0
    assert given.tolist() == [100.0, 100.0]


def test_gradients_of_gradients_agree_between_the_faces() -> None:
    def f(x: Any) -> Any:
        return engine.sum(engine.sin(x) * engine.exp(x * 0.5) / (x * x + 1.0))

    x = np.random.default_rng(SEED).normal(size=5)
    graph = engine.trace(f, engine.spec(5))
    session = engine.Session()
    leaf = session.variable(x)
    (first,) = session.grad(f(leaf), [leaf])
    (second,) = session.grad(engine.sum(first * first), [leaf])

    gradient = engine.grad(graph)

    def squared_norm(x: Any) -> Any:
        inner = gradient(x)
        return engine.sum(inner * inner)

    squared = engine.trace(squared_norm, engine.spec(5))
    traced = engine.Runtime().prepare(engine.grad(squared))(x)
    assert traced.tobytes() == second.value.tobytes()
    step = 1e-5 * np.eye(5)
    norm = engine.Runtime().prepare(squared)
    numeric = [(norm(x + h) - norm(x - h)) / 2e-5 for h in step]
    np.testing.assert_allclose(traced, numeric, rtol=1e-8, atol=1e-8)


def test_arrays_that_change_later_change_nothing() -> None:
    weights = np.array([1.0, 2.0])
    session = engine.Session()
    x = session.variable([1.0, 1.0])
    y = engine.sum(x * weights)
    runtime = engine.Runtime()
    graph = engine.trace(lambda x: engine.sum(x * weights), engine.spec(2))
    program = runtime.prepare(engine.value_and_grad(graph))
    weights[:] = 100.0
    y.backward()
    assert x.grad.tolist() == [1.0, 2.0]
    assert [found.tolist() for found in program([1.0, 1.0])] == [3.0, [1.0, 2.0]]
    again = runtime.prepare(
        engine.value_and_grad(engine.trace(lambda x: engine.sum(x * weights), engine.spec(2)))
    )
    assert again([1.0, 1.0])[1].tolist() == [100.0, 100.0]
    seed = np.ones(2)
    leaf = session.variable([1.0, 1.0])
    leaf.backward(seed)
    seed[:] = 7.0
    assert leaf.grad.tolist() == [1.0, 1.0]


@pytest.mark.parametrize(
    "view", [lambda a: a.view(), lambda a: np.broadcast_to(a, (2, 2)), lambda a: a[::-1]]
)
def test_a_read_only_view_promises_nothing(view: Callable) -> None:
    given = np.array([1.0, 2.0])
    weights = view(given)
    weights.flags.writeable = False
    session = engine.Session()
    x, kept = session.variable(np.ones(2)), session.constant(weights)
    graph = engine.trace(lambda x: engine.sum(x * weights), engine.spec(2))
    program = engine.Runtime().prepare(graph)
    y = engine.sum(x * weights * x)
    expected, before = 2 * np.sum(weights.reshape(-1, 2), axis=0), program(np.ones(2))
    given[:] = 100.0
    y.backward()
    assert x.grad.tolist() == expected.tolist()
    assert program(np.ones(2)) == before
    assert kept.value.max() == 2.0


def test_arrays_from_another_process_are_the_same_arrays() -> None:
    for array in (np.ones(3), np.ones(3, np.float32), np.ones(3, bool), np.ones(3, np.int64)):
        copy = pickle.loads(pickle.dumps(array))
        choose = engine.trace(lambda x: engine.where(x == x, 1.0, 2.0), engine.spec(3, array.dtype))
        assert engine.Runtime().prepare(choose)(copy).tolist() == [1.0, 1.0, 1.0]
        kept = engine.Session().constant(copy)
        assert engine.where(kept == kept, 1.0, 2.0).value.tolist() == [1.0, 1.0, 1.0]


def test_gradients_that_are_constants_or_of_variables_themselves() -> None:
    session = engine.Session()
    x, z = session.variable(2.0), session.variable(3.0)
    for output, expected in ((x + 1.0, [1.0, 0.0]), (x, [1.0, 0.0]), (x * z, [3.0, 2.0])):
        found = session.grad(output, [x, z])
        assert [float(g) for g in found] == expected
        assert all(isinstance(g, engine.Tensor) for g in found)


def test_a_refused_backward_changes_no_gradient() -> None:
    session = engine.Session()
    x = session.variable([1.0, 2.0])
    with pytest.raises(InputError, match="needs a seed"):
        session.backward([engine.sum(x), x * x])
    assert x.grad is None


def forward_and_reverse(op: Any, operands: tuple, parameters: tuple) -> tuple[np.ndarray, np.ndarray]:
    """⟨w, J t⟩ and ⟨Jᵀ w, t⟩ of x ↦ op(x, x, …): one symbol in every floating-point place of one shape."""
    floats = [i for i, a in enumerate(operands) if a.dtype == np.float64 and a.shape == operands[-1].shape]

    def f(x: Any) -> Any:
        results = op(*[x if i in floats else a for i, a in enumerate(operands)], parameters=parameters)
        first = results if op.outputs == 1 else results[0]
        return engine.sum(first * np.cos(np.arange(first.size)).reshape(first.shape))

    x = 0.5 + np.abs(operands[-1])  # where pow is differentiable too
    tangent = np.sin(1.0 + np.arange(x.size)).reshape(x.shape)
    graph, runtime = engine.trace(f, engine.spec(x.shape)), engine.Runtime()
    _, along = runtime.prepare(engine.jvp(graph))(x, tangent)
    return along, np.sum(runtime.prepare(engine.grad(graph))(x) * tangent)


def shared_operand_cases() -> list[Any]:
    cases = []
    for name, op in sorted(OPS.items()):
        for arrays, parameters in op.samples(np.random.default_rng(SEED)):
            specs = [Spec(a.shape, a.dtype) for a in arrays]
            smooth = op.infer(*specs, *parameters)[0].dtype == np.float64 and name not in (
                "maximum",
                "minimum",
            )
            if smooth and specs[-1].dtype == np.float64 and specs.count(specs[-1]) > 1:
                cases.append(pytest.param(op, arrays, parameters, id=f"{name}{arrays[-1].shape}"))
    return cases


@pytest.mark.parametrize(("op", "operands", "parameters"), shared_operand_cases())
def test_one_value_in_several_places(op: Any, operands: tuple, parameters: tuple) -> None:
    forward, reverse = forward_and_reverse(op, operands, parameters)
    np.testing.assert_allclose(forward, reverse, rtol=1e-11, atol=1e-12)
