"""The engine's two faces: the same bits, right, linear in depth, and nothing lost by an error."""

from __future__ import annotations

import functools
import gc
import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from trgbench import engine, problems
from trgbench.engine.graph import check
from trgbench.engine.runtime import ProgramCache
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


# --- the cache ------------------------------------------------------------------------------------


def test_a_second_equal_backward_is_a_hit_and_a_new_shape_an_entry() -> None:
    # The study's figures: 501 times n = 1000, then n = 1001 twice, then n = 1000 again.
    runtime = engine.Runtime()
    problem = problems.vector(10)

    def backward(n: int) -> None:
        session = engine.Session(runtime=runtime)
        problem.value(engine, engine.svd, session.variable(np.ones(n))).backward()

    for n in [1000] * 501 + [1001, 1001, 1000]:
        backward(n)
    stats = runtime.stats()
    assert (stats.entries, stats.misses, stats.hits, stats.evictions) == (2, 2, 502, 0)


def test_one_session_reused_hits_too() -> None:
    session = engine.Session()
    x = session.variable(np.ones(4))
    for _ in range(10):
        engine.sum(engine.sin(x) * x).backward()
    assert session.stats()[:1] + session.stats()[2:4] == (1, 9, 1)


def test_programs_that_differ_in_one_thing_are_different_entries() -> None:
    runtime = engine.Runtime()
    bodies: list[Callable] = [
        lambda x, y: engine.sum(x * y),
        lambda x, y: engine.sum(x * x),
        lambda x, y: engine.sum(x + y),
        lambda x, y: engine.sum(engine.sum(x * y, axis=0)),
        lambda x, y: engine.sum(engine.sum(x * y, axis=1)),
    ]
    for body in bodies:
        session = engine.Session(runtime=runtime)
        x, y = session.variable(np.full((2, 2), 2.0)), session.variable(np.full((2, 2), 3.0))
        body(x, y).backward()
    assert runtime.stats().misses == len(bodies)


def test_the_cache_is_bounded_by_entries_and_bytes() -> None:
    cache: ProgramCache[int] = ProgramCache(entries=2, nbytes=100)
    for key, size in (("a", 10), ("b", 10), ("a", 10), ("c", 10)):
        cache.get(key, functools.partial(lambda size: (size, size), size))
    assert cache.stats()._asdict() == {
        "entries": 2, "retained_bytes": 20, "hits": 1, "misses": 3, "evictions": 1, "clears": 0,
    }  # fmt: skip
    cache.get("b", lambda: (0, 95))
    assert cache.stats().entries == 1
    cache.clear()
    assert cache.stats()[:2] + cache.stats()[5:] == (0, 0, 1)


def test_sessions_in_threads_share_a_runtime() -> None:
    runtime = engine.Runtime()
    problem = problems.trg(8, 4)
    expected = both_faces(lambda x: problem.value(engine, engine.svd, x), problem.example)["traced"][1]
    wrong: list[Any] = []

    def work() -> None:
        for _ in range(20):
            session = engine.Session(runtime=runtime)
            leaf = session.variable(problem.example)
            problem.value(engine, engine.svd, leaf).backward()
            if np.asarray(leaf.grad).tobytes() != expected.tobytes():
                wrong.append(leaf.grad)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    stats = runtime.stats()
    assert not wrong
    assert stats.entries == 1
    assert stats.hits + stats.misses == 80


# --- growth and memory ----------------------------------------------------------------------------


def test_operations_grow_linearly_with_steps() -> None:
    counts = []
    for steps in (8, 12, 16, 20):
        problem = problems.trg(16, steps)
        graph = engine.trace(lambda x, p=problem: p.value(engine, engine.svd, x), engine.spec(()))
        counts.append(len(engine.grad(graph).nodes))
    growth = np.diff(counts)
    assert (growth == growth[0]).all(), counts


def test_a_deep_chain_needs_no_recursion_and_leaves_no_memory() -> None:
    session = engine.Session()
    x = session.variable(np.linspace(0.1, 1.0, 3))
    y = x
    for _ in range(20_000):
        y = engine.sin(y)
    tape = weakref.ref(y)
    engine.sum(y).backward()
    assert np.isfinite(x.grad).all()
    del y
    gc.collect()
    assert tape() is None


def test_dropping_a_session_frees_its_tape() -> None:
    session = engine.Session()
    big = session.variable(np.ones(1000))
    array = (big * 2.0).array
    watched = weakref.ref(array)
    del array, big
    assert watched() is not None  # the tape holds it
    del session
    gc.collect()
    assert watched() is None


def test_many_iterations_do_not_grow_the_recording_or_the_cache() -> None:
    session = engine.Session()
    x = session.variable(np.ones(3))
    sizes = set()
    for _ in range(1000):
        engine.sum(engine.sin(x) * x).backward()
        x.grad = None
        sizes.add((session.stats().entries, session.stats().retained_bytes, len(session._tape.values)))
    assert len(sizes) == 1


# --- bad input ------------------------------------------------------------------------------------


SIN = engine.trace(engine.sin, engine.spec(3))


def escaped_symbol() -> Any:
    kept: list[Any] = []

    def leaking(x: Any) -> Any:
        kept.append(x)
        return x

    engine.trace(leaking, engine.spec(3))
    return kept[0]


BAD_INPUT: dict[str, tuple[Callable[[engine.Session, engine.Tensor], object], str]] = {
    "shapes": (lambda s, x: x + s.variable(np.ones(4)), r"add: the shapes \(3,\) and \(4,\) do not"),
    "dtypes": (lambda s, x: x * np.ones(3, np.float32), r"multiply: argument 2 is float32\[3\].*dtypes"),
    "another session": (lambda s, x: x + engine.Session().variable(np.ones(3)), "tensor of another session"),
    "after its trace": (
        lambda s, x: engine.sin(escaped_symbol()),
        r"of `escaped.*leaking` \(.*test_engine.py:\d+\) after its trace ended",
    ),
    "of an ended trace in another": (
        lambda s, x: engine.trace(lambda y: y + escaped_symbol(), engine.spec(3)),
        r"add in `.*lambda.*was given Symbol.* of `escaped.*leaking` .*, whose trace has ended; pass it in",
    ),
    "iteration while tracing": (lambda s, x: engine.trace(list, engine.spec(3)), "iteration needs a value"),
    "bool while tracing": (
        lambda s, x: engine.trace(lambda y: y if y else -y, engine.spec(())),
        r"bool\(\) needs a value.*`where`",
    ),
    "float while tracing": (lambda s, x: engine.trace(float, engine.spec(())), r"float\(\) needs a value"),
    "int while tracing": (lambda s, x: engine.trace(int, engine.spec(())), r"int\(\) needs a value"),
    "assignment while tracing": (
        lambda s, x: engine.trace(lambda y: y.__setitem__(0, 1.0), engine.spec(3)),
        "cannot be changed in place",
    ),
    "mixed faces": (
        lambda s, x: engine.trace(lambda y: y + x, engine.spec(3)),
        "mixes an eager tensor with a traced value",
    ),
    "nan into svd": (lambda s, x: engine.svd(np.full((2, 2), np.nan)), "svd: .* NaN or infinity"),
    "k too large": (lambda s, x: engine.svd(np.ones((2, 2)), 3), "k must be from 1 to 2"),
    "other shape": (
        lambda s, x: engine.Runtime().prepare(SIN)(np.ones(4)),
        r"argument 1 must be float64\[3\].*got float64\[4\]",
    ),
    "other dtype": (
        lambda s, x: engine.Runtime().prepare(SIN)(np.ones(3, np.float32)),
        r"got float32\[3\]",
    ),
    "other count": (
        lambda s, x: engine.Runtime().prepare(SIN)(),
        "prepared for 1 arguments; got 0",
    ),
    "gradient of a vector": (lambda s, x: engine.grad(SIN), "one scalar output"),
    "no such argument": (
        lambda s, x: engine.grad(engine.trace(engine.sum, engine.spec(3)), 1),
        "argnums 1 is out of range",
    ),
    "width": (lambda s, x: engine.Session(width=0), "width must be a whole number of at least 1"),
    "a list of words": (lambda s, x: s.variable(["a"]), "an array must be of dtype"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD_INPUT)
def test_bad_input_is_one_line_and_nothing_is_lost(name: str) -> None:
    act, message = BAD_INPUT[name]
    session = engine.Session()
    x = session.variable(np.ones(3))
    y = engine.sum(x * x)
    with pytest.raises(InputError, match=message) as caught:
        act(session, x)
    assert "\n" not in str(caught.value)
    (y + engine.sum(x)).backward()  # the session goes on
    assert x.grad.tolist() == [3.0, 3.0, 3.0]
