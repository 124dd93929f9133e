"""The problems: their references, their equality, and what they refuse."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest

from trgbench import problems, trg
from trgbench.errors import InputError
from trgbench.problems import Problem, WrongResult

EVERY = [
    problems.vector(1),
    problems.vector(1000),
    problems.chain(1),
    problems.chain(25, n=3),
    problems.chain(400),
    problems.trg(2, 1),
    problems.trg(8, 6),
    problems.trg(16, 4),
]


def differences(problem: Problem, x: np.ndarray, h: float = 1e-6) -> np.ndarray:
    """Return the gradient by central differences in the first few elements, zero elsewhere."""
    gradient = np.zeros_like(x)
    for i in list(np.ndindex(x.shape))[:3]:
        values = []
        for sign in (1, -1):
            moved = x.copy()
            moved[i] += sign * h
            values.append(float(problem.value(np, trg.numpy_svd, moved)))
        gradient[i] = (values[0] - values[1]) / (2 * h)
    return gradient


@pytest.mark.parametrize("problem", EVERY, ids=str)
def test_reference_is_the_value_and_its_derivative(problem: Problem) -> None:
    x = problem.example
    value, gradient, _, gradient_tolerance = problem.reference(x)
    assert problem.value(np, trg.numpy_svd, x) == pytest.approx(value, rel=1e-13)
    assert np.shape(gradient) == x.shape
    numeric = differences(problem, x)
    np.testing.assert_allclose(np.ravel(gradient)[:3], np.ravel(numeric)[:3], rtol=1e-6, atol=1e-7)
    assert np.max(gradient_tolerance) < 1e-9
    problem.check(x, value, gradient)


@pytest.mark.parametrize("problem", EVERY, ids=str)
def test_check_refuses_a_wrong_result(problem: Problem) -> None:
    x = problem.example
    value, gradient, _, _ = problem.reference(x)
    wrong = np.array(gradient)
    wrong[(0,) * wrong.ndim] += 1e-8
    for bad_value, bad_gradient, what in [
        (value + 1e-8, gradient, "value is off by 1e-08"),
        (math.nan, gradient, "value is off by nan"),
        (value, wrong, "gradient is off by 1e-08"),
        (value, gradient * math.nan, "gradient is off by nan"),
        (value, np.zeros(7), "gradient has shape"),
    ]:
        with pytest.raises(WrongResult, match=what):
            problem.check(x, bad_value, bad_gradient)


def test_a_reference_across_a_level_crossing_is_honest() -> None:
    _, gradient, _, tolerance = problems.trg(16, 20).reference(0.44)
    assert (gradient, tolerance) == (1.402785274913334, 1e-10)  # from the table, not from a difference


def test_problems_are_equal_by_name_and_parameters() -> None:
    assert problems.trg(16, 20) == problems.trg(chi=16, steps=20)
    assert len({problems.trg(16, 4), problems.trg(16, int(np.int64(4))), problems.trg(8, 4)}) == 2
    assert problems.vector(10) != problems.chain(10)
    assert dict(problems.chain(20).parameters) == {"depth": 20, "n": 10}
    assert problems.trg(16, 20).stages == problems.trg(16, 20).stages


def test_stages_of_equal_work_are_equal() -> None:
    assert len({stage.function for stage in problems.chain(400).stages}) == 2
    assert (
        len({stage.function for stage in problems.trg(16, 20).stages}) == 5
    )  # k = 2, 4, 16 and the two ends


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: problems.vector(0), "n must be a whole number of at least 1; got 0"),
        (
            lambda: problems.vector(1.5),  # type: ignore[arg-type]
            "n must be a whole number of at least 1; got 1.5",
        ),
        (lambda: problems.chain(0), "depth must be a whole number of at least 1; got 0"),
        (lambda: problems.chain(5, n=0), "n must be a whole number of at least 1; got 0"),
        (
            lambda: problems.chain("5"),  # type: ignore[arg-type]
            "depth must be a whole number of at least 1; got '5'",
        ),
        (lambda: problems.trg(1, 4), "chi must be a whole number of at least 2; got 1"),
        (lambda: problems.trg(16, 0), "steps must be a whole number of at least 1; got 0"),
        (
            lambda: problems.trg(16, math.nan),  # type: ignore[arg-type]
            "steps must be a whole number of at least 1; got nan",
        ),
    ],
)
def test_bad_parameters(make: Callable[[], Problem], message: str) -> None:
    with pytest.raises(InputError) as error:
        make()
    assert str(error.value) == message


BETA = "beta must be a number above 0 and at most 150; got "
REAL = r"x must be a real array of shape \(3,\)"


@pytest.mark.parametrize(
    ("problem", "x", "message"),
    [
        *(
            (problems.trg(16, 4), x, BETA)
            for x in (
                0.0,
                -0.3,
                math.nan,
                math.inf,
                151.0,
                "0.3",
                None,
                True,
                [0.3],
                np.array([0.3]),
                0.3 + 1j,
            )
        ),
        (problems.trg(16, 4), np.array(math.nan), BETA),
        (problems.vector(3), [1.0, 2.0], REAL + r"; got shape \(2,\)"),
        (problems.vector(3), 1.0, REAL),
        (problems.vector(3), ["a", "b", "c"], REAL),
        (problems.vector(3), [1j, 1, 1], REAL),
        (problems.vector(3), [1.0, [2.0], 3.0], REAL + "; got nested lists"),
        (problems.vector(3), [1.0, math.nan, math.inf], REAL + ", all finite; got 2 elements that are not"),
    ],
)
def test_bad_inputs(problem: Problem, x: object, message: str) -> None:
    for function in (problem.check_input, problem.reference):
        with pytest.raises(InputError, match=message) as error:
            function(x)
        assert "\n" not in str(error.value)


@pytest.mark.parametrize("beta", [0.3, np.float64(0.3), np.float32(0.5), np.array(0.3), 1, Fraction(1, 2)])
def test_what_counts_as_a_number(beta: object) -> None:
    checked = problems.trg(16, 4).check_input(beta)
    assert checked.shape == ()
    assert checked.dtype == np.float64
    assert float(checked) == float(beta)  # type: ignore[arg-type]


def test_check_input_copies() -> None:
    x = np.ones(3)
    problems.vector(3).check_input(x)[0] = 5.0
    assert x[0] == 1.0
