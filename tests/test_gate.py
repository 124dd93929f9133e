"""The gate's statistics on synthetic pairs, and what it makes of them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("asv_runner")

from trgbench.errors import InputError
from trgbench.suite.commits import Trouble
from trgbench.suite.gate import verdict
from trgbench.suite.gate.command import trouble_ends_with
from trgbench.suite.gate.pairs import Pair
from trgbench.suite.gate.report import NOT_MEASURED

FACTORS = st.lists(st.floats(0.5, 2.0), min_size=2, max_size=10)


def drawn(seed: int, change: float, scatter: float, count: int) -> list[float]:
    """Return factors of pairs: a change, with a scatter from process to process."""
    return list(change * np.exp(np.random.default_rng(seed).normal(0, scatter, count)))


@settings(deadline=None)  # the first call imports SciPy
@given(FACTORS, st.floats(0.5, 0.999))
def test_swapped_sides_mirror_the_effect(factors: list[float], confidence: float) -> None:
    found = verdict.effect([1 / factor for factor in factors], confidence)
    assert found == pytest.approx(verdict.effect(factors, confidence).mirrored(), rel=1e-9)


@settings(deadline=None)
@given(FACTORS)
def test_swapped_sides_of_what_is_better_large_are_the_same_suspects(factors: list[float]) -> None:
    mirrored = [1 / factor for factor in factors]
    if math.isclose(verdict.effect(factors).factor, verdict.SMALLEST_TIME, rel_tol=1e-9):
        return
    assert verdict.is_suspect(factors, "s") == verdict.is_suspect(mirrored, "s", larger_is_better=True)


@settings(max_examples=20, deadline=None)
@given(FACTORS, st.floats(0.5, 0.9), st.floats(0.91, 0.999))
def test_more_confidence_is_a_wider_interval(factors: list[float], less: float, more: float) -> None:
    narrow, wide = verdict.effect(factors, less), verdict.effect(factors, more)
    assert wide.low <= narrow.low <= narrow.factor * (1 + 1e-12)
    assert narrow.high <= wide.high * (1 + 1e-12)


def test_the_interval_is_students() -> None:
    # t for 95 % at 2 degrees of freedom is 4.303; the logarithms are −1, 0 and 1 times 0.1.
    found = verdict.effect([math.exp(-0.1), 1.0, math.exp(0.1)])
    assert [math.log(x) for x in found] == pytest.approx([0, -0.2484, 0.2484], abs=1e-4)


def outcome(seed: int, change: float, scatter: float, unit: str = "seconds") -> str:
    """Return what the gate would say: screened, then decided by fresh pairs."""
    if not verdict.is_suspect(drawn(seed, change, scatter, verdict.SCREEN[1]), unit):
        return "same"
    fresh = drawn(seed + 1_000_000, change, scatter, verdict.LOOKS[-1])
    for count in range(1, len(fresh) + 1):
        if decision := verdict.decide(fresh[:count], unit, suspects=1):
            return decision
    raise AssertionError("the last look decides")


@pytest.mark.parametrize("scatter", [0.01, 0.03, 0.1, 0.3])
def test_no_change_is_no_regression(scatter: float) -> None:
    found = [outcome(seed, 1.0, scatter) for seed in range(2000)]
    assert found.count("worse") <= 2


@pytest.mark.parametrize(
    ("change", "unit", "scatter"), [(1.25, "seconds", 0.04), (1.10, "ratio", 0.02), (1.15, "seconds", 0.02)]
)
def test_a_change_is_found(change: float, unit: str, scatter: float) -> None:
    found = [outcome(seed, change, scatter, unit) for seed in range(200)]
    assert found.count("worse") >= 198


def test_a_change_below_the_smallest_that_counts_is_none() -> None:
    assert {outcome(seed, 1.02, 0.001) for seed in range(50)} == {"same"}


def test_a_suspect_too_noisy_to_decide_is_unclear() -> None:
    factors = [1.0, 1.4] * 5
    assert [verdict.decide(factors[:n], "seconds", 1) for n in (1, 4, 7, 9)] == [None] * 4
    assert verdict.decide(factors, "seconds", 1) == "unclear"


def test_the_more_suspects_the_surer_a_verdict_must_be() -> None:
    factors = [1.10, 1.14, 1.12, 1.13]
    assert verdict.decide(factors, "seconds", suspects=1) == "worse"
    assert verdict.decide(factors, "seconds", suspects=100) is None


def test_the_control_moves_either_way() -> None:
    still = [0.98, 1.01, 1.02, 0.99]
    assert not verdict.moved(still, "seconds")
    assert verdict.moved([1.2 * factor for factor in still], "seconds")
    assert verdict.moved([factor / 1.2 for factor in still], "seconds")


@pytest.mark.parametrize(
    ("base", "head", "tolerance", "larger_is_better", "expected"),
    [
        ((1000, 1000), (1000, 1000), 0.0, True, "same"),
        ((1000, 1000), (999, 999), 0.0, True, "worse"),
        ((20, 20), (4, 4), 0.0, True, "worse"),
        ((4, 4), (20, 20), 0.0, True, "better"),
        ((4e-7, 4e-7), (4.00001e-7, 4.00001e-7), 1e-10, False, "same"),
        ((4e-7, 4e-7), (5e-7, 5e-7), 1e-10, False, "worse"),
        ((0.0, 0.0), (1e-6, 1e-6), 1e-10, False, "worse"),
        ((3, 4), (3, 3), 0.0, False, "unclear"),
    ],
)
def test_what_does_not_scatter_is_compared_as_it_is(
    base: tuple[float, float],
    head: tuple[float, float],
    tolerance: float,
    larger_is_better: bool,
    expected: str,
) -> None:
    pairs = [Pair(b, h, math.nan) for b, h in zip(base, head, strict=True)]
    assert verdict.compare_exact(pairs, tolerance, larger_is_better) == expected


@pytest.mark.parametrize(
    ("error", "says"),
    [(Trouble("no main; fetch it"), "trgbench: error: no main"), (KeyError("x"), "KeyError")],
)
def test_what_breaks_the_gate_is_no_regression(
    error: Exception, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stop, trouble_ends_with(NOT_MEASURED):
        raise error
    assert stop.value.code == 3
    assert says in capsys.readouterr().err
    with pytest.raises(InputError, match="a request"), trouble_ends_with(NOT_MEASURED):
        raise InputError("a request")
