"""What a caller can get wrong: the checks of `trgbench.errors`, and requests that a backend refuses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from trgbench import backends, problems
from trgbench.backends import Backend
from trgbench.errors import InputError, Unavailable, check_choice, check_integer, shown


class Nothing:
    """Is nothing that could be used; its text has no address, which xdist's workers would disagree about."""

    def __repr__(self) -> str:
        return "<nothing>"


NOTHING = Nothing()

NOT_WHOLE: list[Any] = [
    *(
        None,
        True,
        False,
        4.0,
        np.float64(4),
        "4",
        b"4",
        4j,
        [4],
        (4,),
        {},
        np.ones(3),
        np.ones((99, 99)),
        object,
    )
]
anything = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.binary(), st.lists(st.text())
)


def refusal(call: Callable[[], object]) -> str:
    """Return the message of the `InputError` that a call raises; it is one line of readable length."""
    with pytest.raises(InputError) as error:
        call()
    message = str(error.value)
    assert len(message.splitlines()) == 1
    assert len(message) < 300
    return message


def test_a_user_s_mistake_is_a_value_error() -> None:
    assert issubclass(InputError, ValueError)
    assert issubclass(Unavailable, InputError)


@given(anything)
def test_shown_is_one_short_line(value: object) -> None:
    text = shown(value)
    assert len(text.splitlines()) <= 1
    assert len(text) <= 80


@given(st.integers(), st.integers())
def test_check_integer(value: int, minimum: int) -> None:
    if value >= minimum:
        assert check_integer("n", value, minimum) == value
    else:
        message = refusal(lambda: check_integer("n", value, minimum))
        assert message.startswith(f"n must be a whole number of at least {minimum}; got")


@pytest.mark.parametrize("value", [np.int8(4), np.uint64(4), np.asarray(4)])
def test_check_integer_returns_python_s_int(value: Any) -> None:
    assert type(check_integer("n", value, 1)) is int


@pytest.mark.parametrize("value", NOT_WHOLE, ids=lambda value: shown(value)[:20])
def test_check_integer_refuses_what_is_not_whole(value: object) -> None:
    assert "n must be a whole number of at least 1; got" in refusal(lambda: check_integer("n", value, 1))


@pytest.mark.parametrize("value", [-(10**30), -(10**5000)], ids=["1e30", "1e5000"])
def test_check_integer_survives_any_size(value: int) -> None:
    refusal(lambda: check_integer("n", value, 1))
    assert check_integer("n", -value, 1) == -value


@given(anything)
def test_check_choice(value: object) -> None:
    message = refusal(lambda: check_choice("mode", value, iter(["eager mode", "traced mode"])))
    assert message.startswith("unknown mode ")
    assert message.endswith("; choose one of: eager mode, traced mode")


@pytest.mark.parametrize("value", [np.asarray(["a", "b"]), np.asarray("a"), ["a"], {"a"}])
def test_check_choice_takes_strings_only(value: object) -> None:
    refusal(lambda: check_choice("mode", value, ["a", "b"]))
    assert check_choice("mode", "a", ["a", "b"]) == "a"


# ------------------------------------------------------------------------------------- at a backend


@pytest.fixture(scope="module", params=backends.names())
def backend(request: pytest.FixtureRequest) -> Backend:
    try:
        return backends.get(request.param)
    except Unavailable as reason:
        pytest.skip(str(reason))


@pytest.mark.parametrize("name", [None, "", "Native", "jax ", "../jax", "__init__", 3, ["jax"]], ids=shown)
def test_what_is_no_backend(name: Any) -> None:
    assert refusal(lambda: backends.get(name)).endswith(f"choose one of: {', '.join(backends.names())}")


@pytest.mark.parametrize("mode", [None, "", "Eager", "eager ", "staged", 1, ["eager"], np.ones(2)], ids=shown)
def test_what_is_no_mode(backend: Backend, mode: Any) -> None:
    message = refusal(lambda: backend.prepare(problems.vector(3), mode))
    assert message.endswith(f"choose one of: {', '.join(backend.modes)}")
    assert refusal(lambda: backend.unavailable(mode)) == message


@pytest.mark.parametrize("svd", [None, "", "Safe", True, ["safe"]], ids=shown)
def test_what_is_no_svd_rule(backend: Backend, svd: Any) -> None:
    message = refusal(lambda: backend.prepare(problems.vector(3), "eager", svd=svd))
    assert message.endswith(f"choose one of: {', '.join(backend.svd_rules)}")


@pytest.mark.parametrize("threads", [*NOT_WHOLE, 0, -1, -(10**5000), 10**6], ids=lambda n: shown(n)[:20])
def test_what_is_no_number_of_threads(backend: Backend, threads: Any) -> None:
    assert "threads must be" in refusal(lambda: backend.prepare(problems.vector(3), "eager", threads))


NO_VECTOR: list[object] = [  # for a problem whose input has shape (3,)
    None, True, "abc", b"abc", {}, NOTHING, 0.3, [], [0.1, 0.2], [0.1, 0.2, 0.3, 0.4], [[0.1, 0.2, 0.3]],
    [[0.1], [0.2, 0.3]], [0.1, 0.2, np.nan], [np.inf, 0.2, 0.3], [-np.inf, 0.2, 0.3], [0.1, 0.2, 0.3j],
    [0.1, 0.2, None], ["0.1", "0.2", "0.3"], [True, False, True], np.array([1, 2, 3], "M8[s]"),
]  # fmt: skip
NO_BETA: list[object] = [
    None, True, np.True_, "0.3", b"0.3", {}, NOTHING, [], [0.3], np.ones(1), np.ones((1, 1)), 0.3j, 151,
    1e308, 0, 0.0, -0.0, -0.3, -1, np.nan, np.inf, -np.inf, np.float32("nan"), np.array("2026", "M8[s]"),
]  # fmt: skip


@pytest.mark.parametrize("x", NO_VECTOR, ids=lambda x: shown(x)[:30])
def test_what_is_no_vector(backend: Backend, x: Any) -> None:
    prepared = backend.prepare(problems.vector(3), "eager")
    assert "x must be a real array of shape (3,)" in refusal(lambda: prepared(x))


@pytest.mark.parametrize("beta", NO_BETA, ids=lambda beta: shown(beta)[:30])
def test_what_is_no_beta(beta: Any) -> None:
    assert "beta must be a number above 0" in refusal(lambda: problems.trg(4, 2).check_input(beta))


@given(
    arrays.arrays(np.float64, arrays.array_shapes(min_dims=0, max_dims=3).filter(lambda shape: shape != (3,)))
)
def test_no_other_shape_will_do(x: np.ndarray) -> None:
    assert "of shape (3,)" in refusal(lambda: problems.vector(3).check_input(x))


THREE = np.array([0.1, 0.2, 0.3])
read_only = THREE.copy()
read_only.flags.writeable = False


@pytest.mark.parametrize(
    "x",
    [
        [0.1, 0.2, 0.3],
        (0.1, 0.2, 0.3),
        read_only,
        THREE[::-1].copy()[::-1],
        np.repeat(THREE, 2)[::2],
        THREE.astype(">f8"),
        THREE.astype(np.longdouble),
    ],
    ids=["list", "tuple", "read-only", "reversed", "strided", "big-endian", "long double"],
)
def test_unusual_input_that_is_right(backend: Backend, x: Any) -> None:
    prepared = backend.prepare(problems.vector(3), "eager")
    value, gradient = prepared(THREE)
    again, gradient_again = prepared(x)
    assert again == value
    np.testing.assert_array_equal(gradient_again, gradient)
    np.testing.assert_array_equal(np.asarray(x, np.float64), THREE)  # and it is as it was


@pytest.mark.parametrize("beta", [1, np.int32(1), np.float32(1), np.asarray(1), np.asarray(1.0)], ids=repr)
def test_unusual_beta_that_is_right(beta: Any) -> None:
    checked = problems.trg(4, 2).check_input(beta)
    assert checked.dtype == np.float64
    assert checked.tolist() == 1.0
