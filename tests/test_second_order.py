"""Forward mode, second derivatives, the recompute form, and the study's cache figures, on real TRG."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest

from trgbench import backends, engine, ising, problems, staged
from trgbench.backends import native
from trgbench.errors import InputError, Unavailable
from trgbench.problems import Problem

TORUS = (0.799095207857105, 0.8440540736238568, 4.899918373072852)  # 4×4 at β = 0.3, by enumeration
STUDY_U = {0.30: -0.704498679529753, 0.40: -1.106045407611192, 0.50: -1.745583468150079}

# One mode of JAX: each takes XLA 10 to 30 s to compile. Its others are tested at the first order.
SECOND = [("native", mode) for mode in backends.MODES]
SECOND += [("jax", "forward"), ("torch", "eager"), ("torch", "eager-staged")]
STAGED = [
    ("native", "eager-staged"),
    ("native", "traced-staged"),
    ("torch", "eager-staged"),
    ("jax", "traced-staged"),
]


def prepare(name: str, problem: Problem, mode: str, **options: Any) -> backends.Prepared:
    try:
        return backends.get(name).prepare(problem, mode, **options)
    except Unavailable as reason:
        pytest.skip(str(reason))


@pytest.mark.parametrize(("name", "mode"), SECOND)
def test_second_derivative_of_the_torus(name: str, mode: str) -> None:
    found = prepare(name, problems.trg(16, 4), mode, order=2)(0.3)
    for got, exact, tolerance in zip(found, TORUS, (1e-13, 1e-13, 1e-11), strict=True):
        assert float(got) == pytest.approx(exact, abs=tolerance)


@pytest.mark.parametrize("mode", ["traced-staged", "forward"])
def test_specific_heat_of_the_study_s_calculation(mode: str) -> None:
    prepared = prepare("native", problems.trg(16, 20), mode, order=2)
    for beta, tolerance in ((0.2, 1e-6), (0.5, 1e-3)):
        found = beta**2 * float(prepared(beta)[2])
        assert found == pytest.approx(ising.specific_heat(beta), rel=tolerance)


@pytest.mark.parametrize("name", backends.names())
def test_forward_mode_meets_the_study(name: str) -> None:
    prepared = prepare(name, problems.trg(16, 20), "forward")
    for beta, u in STUDY_U.items():
        assert -float(prepared(beta)[1]) == pytest.approx(u, abs=1e-10)


@pytest.mark.parametrize(("name", "mode"), STAGED)
def test_recomputing_gives_the_same_numbers(name: str, mode: str) -> None:
    problem = problems.trg(4, 4)
    kept, recomputed = (prepare(name, problem, mode, recompute=choice)(0.4) for choice in (False, True))
    assert kept == recomputed


def test_hessian_times_vector_in_stages() -> None:
    # The chain is elementwise, so its Hessian is diagonal: H v against central differences of the gradient.
    problem = problems.chain(25)
    x, v = problem.example, np.random.default_rng(5).normal(size=10)
    gradient = backends.get("native").prepare(problem, "traced")
    numeric = (gradient(x + 1e-5 * v)[1] - gradient(x - 1e-5 * v)[1]) / 2e-5
    runtime = engine.Runtime()
    for runner in (native.Tapes(runtime, engine.svd), native.Programs(runtime, engine.svd)):
        value, first, product = staged.hessian_vector(problem.stages, x, v, runner)
        problem.check(x, value, first)
        np.testing.assert_allclose(product, numeric, rtol=1e-7, atol=1e-9)


def test_what_a_stage_recorded_is_gone_as_soon_as_it_is_dropped() -> None:
    """Not when Python next looks for cycles: the memory that a recomputing sweep saves depends on it."""
    problem = problems.trg(4, 2)
    gc.disable()
    try:
        _, _, saved = native.Tapes(engine.Runtime(), engine.svd).forward(problem.stages[0], problem.example)
        session = weakref.ref(saved[0])
        del saved
        assert session() is None
    finally:
        gc.enable()


def counters(runtime: engine.Runtime) -> tuple[int, int, int, int]:
    stats = runtime.stats()
    return stats.entries, stats.hits, stats.misses, stats.evictions


def test_the_study_s_cache_figures_in_stages() -> None:
    runtime = engine.Runtime()
    problem, runner = problems.trg(16, 20), native.Tapes(runtime, engine.svd)
    for beta in (0.30, 0.40, 0.44, 0.50, 0.60):
        for _ in range(4):
            staged.value_and_gradient(problem.stages, np.asarray(beta), runner)
    assert counters(runtime) == (7, 433, 7, 0)


def test_the_study_s_cache_figures_on_the_whole_graph() -> None:
    runtime = engine.Runtime()
    problem = problems.trg(16, 4)
    for _ in range(4):
        session = engine.Session(runtime=runtime)
        leaf = session.variable(problem.example)
        problem.value(engine, engine.svd, leaf).backward()
    assert counters(runtime) == (1, 3, 1, 0)


@pytest.mark.parametrize(
    ("problem", "mode", "options", "message"),
    [
        (problems.vector(3), "forward", {}, "mode forward is for problems with a scalar input"),
        (problems.vector(3), "eager", {"order": 2}, "order 2 is for problems with a scalar input"),
        (problems.trg(4, 2), "eager", {"order": 3}, r"order must be 1 .* or 2 .*; got 3"),
        (problems.trg(4, 2), "eager", {"order": 0}, "order must be a whole number of at least 1"),
        (problems.trg(4, 2), "eager", {"recompute": True}, "recompute is a choice of the staged modes"),
        (problems.trg(4, 2), "eager-staged", {"recompute": True, "order": 2}, "recompute is a choice"),
    ],
)
def test_requests_that_make_no_sense(problem: Problem, mode: str, options: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        backends.get("native").prepare(problem, mode, **options)


@pytest.mark.parametrize("mode", ["traced", "traced-staged", "forward"])
def test_pytorch_says_which_second_derivatives_it_lacks(mode: str) -> None:
    pytest.importorskip("torch")
    with pytest.raises(Unavailable, match=r"take (it|the second derivative) in mode eager or eager-staged"):
        backends.get("torch").prepare(problems.trg(4, 2), mode, order=2)
