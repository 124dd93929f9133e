"""The reverse sweep over stages, with a runner written by hand."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from trgbench import staged
from trgbench.staged import Stage


@dataclass(frozen=True)
class Power:
    """x → (x^n, x), the last one x → (None, x)."""

    n: int
    last: bool = False
    silent: bool = False

    def __call__(self, xp: Any, svd: Any, x: float) -> tuple[Any, Any]:
        return None if self.last else x**self.n, None if self.silent else x


@dataclass
class ByHand:
    """Differentiates `Power`, and writes down the order in which it was called."""

    calls: list[str] = field(default_factory=list)

    def forward(self, stage: Stage, carry: float) -> tuple[Any, Any, Any]:
        self.calls.append(f"forward {stage.function.n}")  # type: ignore[attr-defined]
        return *stage.function(None, None, carry), carry

    def backward(self, stage: Stage, saved: float, ct_carry: float | None, ct_term: float | None) -> float:
        power = stage.function
        assert isinstance(power, Power)
        self.calls.append(f"backward {power.n}")
        assert (ct_carry is None) == power.last
        assert (ct_term is None) == power.silent
        slope = 0.0 if ct_carry is None else ct_carry * power.n * saved ** (power.n - 1)
        return slope + (ct_term or 0.0)

    def backward_again(
        self, stage: Stage, carry: float, ct_carry: float | None, ct_term: float | None, adjoint: float
    ) -> tuple[float, float | None]:
        n = stage.function.n  # type: ignore[attr-defined]
        if ct_carry is None:
            return 0.0, None
        return adjoint * ct_carry * n * (n - 1) * carry ** (n - 2), adjoint * n * carry ** (n - 1)


STAGES = [
    Stage(Power(2, silent=True)),
    Stage(Power(3)),
    Stage(Power(4), 0.5),
    Stage(Power(5, last=True), 0.25),
]


def test_sweep_meets_the_derivative_and_runs_newest_first() -> None:
    runner = ByHand()
    x = 1.1  # f = x² + ½ x⁶ + ¼ x²⁴
    value, gradient = staged.value_and_gradient(STAGES, x, runner)
    assert value == pytest.approx(x**2 + 0.5 * x**6 + 0.25 * x**24, rel=1e-14)
    assert gradient == pytest.approx(2 * x + 3 * x**5 + 6 * x**23, rel=1e-14)
    order = [f"forward {n}" for n in (2, 3, 4, 5)] + [f"backward {n}" for n in (5, 4, 3, 2)]
    assert runner.calls == order


def test_whole_and_staged_values_are_equal_to_the_last_bit() -> None:
    for x in (0.3, 0.7, 1.3):
        assert staged.whole(STAGES, None, None, x) == staged.value_and_gradient(STAGES, x, ByHand())[0]


def test_second_derivative_by_stages() -> None:
    x = 1.1
    value, gradient, second = staged.hessian_vector(STAGES, x, 1.0, ByHand())
    assert (value, gradient) == staged.value_and_gradient(STAGES, x, ByHand())
    assert second == pytest.approx(2 + 15 * x**4 + 138 * x**22, rel=1e-14)


def test_recompute_runs_forward_again_and_gives_the_same() -> None:
    runner = ByHand()
    expected = staged.value_and_gradient(STAGES, 1.1, ByHand())
    assert staged.value_and_gradient(STAGES, 1.1, runner, recompute=True) == expected
    again = [call for n in (5, 4, 3, 2) for call in (f"forward {n}", f"backward {n}")]
    assert runner.calls == [f"forward {n}" for n in (2, 3, 4, 5)] + again


def test_a_weight_of_one_multiplies_nothing() -> None:
    class NoProduct(float):
        def __rmul__(self, other: float) -> float:
            raise AssertionError("multiplied")

    assert staged.weighted_sum([1.0, 1.0], [NoProduct(2.0), None]) == 2.0
    with pytest.raises(ValueError, match="zip"):
        staged.weighted_sum([1.0], [])
