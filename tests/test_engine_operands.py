"""Operations at the edges: derivatives that have to be chosen, what is refused, code written for NumPy."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, cast

import numpy as np
import pytest

from trgbench import engine as xp
from trgbench.engine import linalg
from trgbench.errors import InputError

RUNTIME = xp.Runtime(width=1)
INF = np.inf


def gradients(f: Callable[..., Any], *arrays: Any) -> list[np.ndarray]:
    """The gradient of Σ f with respect to all operands; both faces must agree on it."""
    operands = [np.asarray(x, float) for x in arrays]
    graph = xp.trace(lambda *xs: xp.sum(f(*xs)), *(xp.spec(x.shape) for x in operands))
    traced = RUNTIME.prepare(xp.grad(graph, range(len(operands))))(*operands)
    session = xp.Session(runtime=RUNTIME)
    leaves = [session.variable(x) for x in operands]
    xp.sum(f(*leaves)).backward()
    for leaf, gradient in zip(leaves, traced, strict=True):
        assert leaf.grad is None or leaf.grad.tobytes() == gradient.tobytes()
    return list(traced)


def second(f: Callable[[Any], Any], x: Any) -> np.ndarray:
    """The derivative of the sum of the gradient of Σ f."""
    operand = np.asarray(x, float)
    first = xp.grad(xp.trace(lambda y: xp.sum(f(y)), xp.spec(operand.shape)))
    total = xp.trace(lambda y: xp.sum(first(y)), xp.spec(operand.shape))
    return RUNTIME.prepare(xp.grad(total))(operand)


# f, operands, the gradient by each of them
CHOICES: dict[str, tuple[Callable[..., Any], list, list]] = {
    "abs at 0": (xp.abs, [[0.0, -2.0, 3.0]], [[0.0, -1.0, 1.0]]),
    "sign": (xp.sign, [[0.0, 2.0]], [[0.0, 0.0]]),
    "maximum at a tie": (xp.maximum, [[1.0, 2.0, 3.0], [1.0, 3.0, 2.0]], [[0.5, 0, 1], [0.5, 1, 0]]),
    "minimum at a tie": (xp.minimum, [[1.0, 2.0, 3.0], [1.0, 3.0, 2.0]], [[0.5, 1, 0], [0.5, 0, 1]]),
    "maximum of one value": (lambda x: xp.maximum(x, x), [[1.0]], [[1.0]]),
    "maximum of infinities": (xp.maximum, [[INF], [INF]], [[0.5], [0.5]]),
    "max of ties": (xp.max, [[1.0, 3.0, 3.0, 2.0]], [[0, 0.5, 0.5, 0]]),
    "max of ties by row": (
        functools.partial(xp.max, axis=1, keepdims=True),
        [[[2.0, 2.0], [1.0, 0.0]]],
        [[[0.5, 0.5], [1, 0]]],
    ),
    "min of ties": (xp.min, [[3.0, 1.0, 1.0, 1.0]], [[0, 1 / 3, 1 / 3, 1 / 3]]),
    "prod without zeros": (xp.prod, [[2.0, 3.0, 5.0]], [[15, 10, 6]]),
    "prod with a zero": (xp.prod, [[2.0, 0.0, 5.0]], [[0, 10, 0]]),
    "prod with two zeros": (xp.prod, [[0.0, 0.0, 5.0]], [[0, 0, 0]]),
    "prod of nothing": (xp.prod, [[]], [[]]),
    "square at 0": (lambda x: x**2, [[0.0, 3.0]], [[0, 6]]),
    "first power at 0": (lambda x: x**1, [[0.0, 3.0]], [[1, 1]]),
    "zeroth power at 0": (lambda x: x**0, [[0.0, 3.0]], [[0, 0]]),
    "cube at 0": (lambda x: x**3, [[0.0, -2.0]], [[0, 12]]),
    "power 1.5 at 0": (lambda x: x**1.5, [[0.0, 4.0]], [[0, 3]]),
    "inverse": (lambda x: x**-1, [[2.0]], [[-0.25]]),
    "root": (lambda x: x**0.5, [[4.0]], [[0.25]]),
    "number to a power": (lambda x: 2.0**x, [[0.0, 1.0]], [[np.log(2), 2 * np.log(2)]]),
    "array power at base 0": (xp.pow, [[0.0] * 4, [0.0, 1.0, 2.0, 3.0]], [[0, 1, 0, 0], [0, 0, 0, 0]]),
    "array power at exponent 0": (xp.pow, [[2.0, 3.0], [0.0, 0.0]], [[0, 0], [np.log(2), np.log(3)]]),
    "negative base": (lambda x: xp.pow(x, np.asarray([2.0, 3.0])), [[-2.0, -2.0]], [[-4, 12]]),
    "norm": (linalg.vector_norm, [[3.0, 4.0]], [[0.6, 0.8]]),
    "norm at 0": (linalg.vector_norm, [[0.0, 0.0]], [[0, 0]]),
    "norm by row": (
        functools.partial(linalg.vector_norm, axis=-1),
        [[[0.0, 0.0], [3.0, 4.0]]],
        [[[0, 0], [0.6, 0.8]]],
    ),
    "1-norm": (functools.partial(linalg.vector_norm, ord=1), [[3.0, -4.0]], [[1, -1]]),
    "infinity norm": (functools.partial(linalg.vector_norm, ord=INF), [[3.0, -4.0]], [[0, -1]]),
    "Frobenius norm at 0": (linalg.matrix_norm, [[[0.0, 0.0]]], [[[0, 0]]]),
    "where": (lambda x: xp.where(x > 0, x * x, 0.0), [[-1.0, 0.0, 2.0]], [[0, 0, 4]]),
    "where with a safe operand": (
        lambda x: xp.where(x > 0, xp.sqrt(xp.where(x > 0, x, 1.0)), 0.0),
        [[0.0, 4.0]],
        [[0, 0.25]],
    ),
    "where by a number": (lambda x: xp.where(np.asarray([True, False]), 1.0, x), [[5.0, 6.0]], [[0, 1]]),
    "taken twice": (lambda x: xp.take(x, [0, 2, 0, -1]), [[1.0, 2.0, 3.0]], [[2, 0, 2]]),
    "taken along rows": (
        lambda x: xp.take_along_axis(x, np.asarray([[1]]), axis=1),
        [[[1.0, 2.0], [3.0, 4.0]]],
        [[[0, 1], [0, 1]]],
    ),
    "logic": (lambda x: xp.where((x > 0) & ~(x >= 2) | (x == 5), x, 0.0), [[-1, 1, 2, 5]], [[0, 1, 0, 1]]),
}  # fmt: skip


@pytest.mark.parametrize("name", CHOICES)
def test_the_derivative_where_it_has_to_be_chosen(name: str) -> None:
    f, operands, wanted = CHOICES[name]
    for found, expected in zip(gradients(f, *operands), wanted, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-14, atol=0)


@pytest.mark.parametrize(
    ("f", "x", "wanted"),
    [
        (lambda x: x**2, [0.0, 1.0], [2, 2]),
        (lambda x: x**3, [0.0, 1.0], [0, 6]),
        (lambda x: xp.pow(x, np.asarray([0.0, 1.0, 2.0, 3.0])), [0.0] * 4, [0, 0, 2, 0]),
        (xp.prod, [0.0, 0.0, 5.0], [5, 5, 0]),
        (xp.prod, [0.0, 2.0, 5.0], [7, 5, 2]),
        (linalg.vector_norm, [0.0, 0.0], [0, 0]),
        (xp.abs, [0.0, 1.0], [0, 0]),
        (lambda x: xp.max(x * x), [1.0, 1.0, 0.5], [1, 1, 0]),
    ],
)
def test_the_second_derivative_at_zeros_and_ties(f: Callable, x: list, wanted: list) -> None:
    np.testing.assert_allclose(second(f, x), wanted, rtol=1e-14)


# --- bad operands ---------------------------------------------------------------------------------

ONES = np.ones((2, 3))
THREE = np.ones((3, 3))
INTEGERS = np.arange(3)

BAD: dict[str, tuple[Callable[..., Any], list[np.ndarray], str]] = {
    "shapes": (xp.multiply, [ONES, np.ones(2)], r"multiply: the shapes \(2, 3\) and \(2,\) do not"),
    "dtypes": (xp.maximum, [ONES, ONES.astype(np.float32)], r"maximum: .* 2 is float32\[2,3\].*float64\["),
    "integers": (xp.sin, [INTEGERS], r"sin: argument 1 must be float64 or float32; got int64\[3\]"),
    "power of integers": (lambda x: x**3, [INTEGERS], r"pow: argument 1 must be float64"),
    "comparison": (xp.less, [ONES, INTEGERS], r"less: .* 2 is int64\[3\] and .* 1 is float64\["),
    "logic of numbers": (xp.logical_and, [ONES, ONES], r"logical_and: .* 1 must be bool; got float64"),
    "not of a number": (xp.logical_not, [ONES], "logical_not: argument 1 must be bool"),
    "where by a number": (lambda x: xp.where(x, x, x), [ONES], "where: the condition must be bool; got"),
    "where of two dtypes": (lambda x: xp.where(x > 0, x, INTEGERS), [ONES], r"where: .* 3 is int64\[3\]"),
    "where of shapes": (lambda x: xp.where(x > 0, x, np.ones(2)), [ONES], "where: the shapes"),
    "sum over no axis": (lambda x: xp.sum(x, axis=2), [ONES], "sum: axis 2 is out of bounds"),
    "an axis twice": (lambda x: xp.sum(x, axis=(0, -2)), [ONES], "sum: an axis is named twice"),
    "a fractional axis": (lambda x: xp.sum(x, axis=cast(Any, 0.5)), [ONES], "must be a whole number"),
    "sum of bool": (lambda x: xp.sum(x > 0), [ONES], "sum: argument 1 must be float64"),
    "max of nothing": (xp.max, [ONES[:0]], r"max: an array of shape \(0, 3\) has no elements along axes"),
    "min of nothing": (lambda x: xp.min(x, axis=0), [ONES[:0]], "min of nothing is not defined"),
    "mean of nothing": (xp.mean, [ONES[:0]], "mean of nothing is not defined"),
    "reshape": (lambda x: xp.reshape(x, (4, 2)), [ONES], r"reshape: float64\[2,3\] has 6 elements and"),
    "reshape to two unknowns": (lambda x: xp.reshape(x, (-1, -1)), [ONES], "reshape"),
    "permutation": (lambda x: xp.permute_dims(x, (0, 0)), [ONES], "permute_dims: .* not a permutation"),
    "matrix_transpose": (xp.matrix_transpose, [np.ones(3)], "at least 2 axes; got 1"),
    "broadcast_to": (lambda x: xp.broadcast_to(x, (3, 3)), [ONES], r"broadcast_to: float64\[2,3\] does not"),
    "squeeze": (lambda x: xp.squeeze(x, 0), [ONES], "must have length 1"),
    "concat of shapes": (lambda x, y: xp.concat([x, y], axis=1), [ONES, THREE], r"concat: .* 2 is float64\["),
    "concat of ndims": (lambda x, y: xp.concat([x, y]), [ONES, np.ones(3)], r"concat: .* 2 is float64\[3\]"),
    "concat of numbers": (lambda x: xp.concat([x, x]), [np.ones(())], "concat: axis 0 is out of bounds"),
    "stack of shapes": (lambda x, y: xp.stack([x, y]), [ONES, THREE], "concat: argument 2"),
    "concat of nothing": (lambda x: xp.concat([]), [ONES], "concat: no arrays were given"),
    "index": (lambda x: x[2], [ONES], "index 2 is out of bounds for axis 0 of length 2"),
    "indices": (lambda x: x[0, 0, 0], [ONES], "too many entries for an array of 2 axes"),
    "index by a list": (lambda x: x[[0, 1]], [ONES], "an index must be made of integers"),
    "negative step": (lambda x: x[::-1], [ONES], "positive step"),
    "iteration": (list, [np.ones(())], "0-d value cannot be iterated|iteration needs a value"),
    "indices out of bounds": (lambda x: xp.take(x, [3]), [ONES], "3 to 3, and axis 1 has length 3"),
    "fractional indices": (lambda x: xp.take_along_axis(x, ONES, axis=0), [ONES], "must be int64"),
    "indices of a shape": (
        lambda x: xp.take_along_axis(x, INTEGERS, axis=0), [ONES], r"indices, is int64\[3\] and argument 1",
    ),
    "matrix of indices": (lambda x: xp.take(x, [[0]]), [ONES], "indices must be a vector"),
    "diagonal": (xp.diagonal, [np.ones(3)], r"diagonal: .* at least 2 axes; got float64\[3\]"),
    "matmul": (xp.matmul, [ONES, ONES], r"contract: axes \(1,\) of .* \(2, 3\) and \(0,\)"),
    "matmul of a number": (xp.matmul, [ONES, np.ones(())], "matmul: .* at least one axis.*use multiply"),
    "matmul of stacks": (xp.matmul, [np.ones((2, 3, 3)), np.ones((4, 3, 3))], "matmul: .* broadcast"),
    "matmul of dtypes": (xp.matmul, [THREE, THREE.astype(np.float32)], r"argument 2 is float32\[3,3\]"),
    "tensordot lengths": (
        lambda x, y: xp.tensordot(x, y, axes=((0, 1), (0, 1))), [ONES, np.ones((3, 2))], "have equal lengths",
    ),
    "tensordot axes": (lambda x: xp.tensordot(x, x, axes=3), [ONES], "axes must be from 0 to 2"),
    "outer": (xp.outer, [ONES, ONES], "outer: the operands must be vectors"),
    "einsum letters": (lambda x: xp.einsum("ijk->i", x), [ONES], "einsum: 'ijk->i' does not fit"),
    "einsum lengths": (lambda x, y: xp.einsum("ij,ij->", x, y), [ONES, np.ones((3, 2))], "einsum: .* not"),
    "einsum output": (lambda x: xp.einsum("ij->k", x), [ONES], "einsum: 'ij->k' does not fit"),
    "einsum without subscripts": (lambda x: xp.einsum(x, [0, 1]), [ONES], "subscripts must be a string"),
    "norm of order 3": (lambda x: linalg.vector_norm(x, ord=3), [ONES], "ord must be 1, 2 or infinity"),
    "matrix norm": (linalg.matrix_norm, [np.ones(3)], "needs a matrix"),
    "astype": (lambda x: xp.astype(x, complex), [ONES], "dtype must be one of .*got complex128"),
    "a word": (lambda x: x + "a", [ONES], "must be of dtype"),
    "eigh of a rectangle": (linalg.eigh, [ONES], r"eigh: .* a square matrix.*float64\[2,3\]"),
    "eigh of nothing": (linalg.eigh, [np.ones((0, 0))], "eigh: .* at least one element"),
    "eigh of a stack": (linalg.eigh, [np.ones((2, 3, 3))], "eigh: argument 1 must be a square matrix"),
    "qr of a vector": (linalg.qr, [np.ones(3)], r"qr: argument 1 must be a matrix.*float64\[3\]"),
    "solve shapes": (linalg.solve, [THREE, np.ones(2)], r"solve: argument 2 is float64\[2\]"),
    "solve of a stack": (linalg.solve, [THREE, np.ones((3, 3, 3))], "must be a vector or matrix"),
    "cholesky of a rectangle": (linalg.cholesky, [ONES], "cholesky: .* a square matrix"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_bad_operands_are_refused_in_both_faces(name: str) -> None:
    f, operands, message = BAD[name]
    session = xp.Session(runtime=RUNTIME)

    def eager() -> None:
        f(*(session.constant(x) if x.dtype.kind != "f" else session.variable(x) for x in operands))

    def traced() -> None:
        # An index is looked at when the program runs.
        RUNTIME.prepare(xp.trace(f, *(xp.spec(x.shape, x.dtype) for x in operands)))(*operands)

    for face in (eager, traced):
        with pytest.raises(InputError, match=message) as caught:
            face()
        assert "\n" not in str(caught.value)
    x = session.variable(np.ones(3))
    xp.sum(x * x).backward()  # the session goes on
    assert x.grad is not None and x.grad.tolist() == [2.0, 2.0, 2.0]


SINGULAR: dict[str, tuple[Callable[..., Any], list[np.ndarray], str]] = {
    "singular": (linalg.solve, [THREE, np.ones(3)], "solve: the 3×3 matrix is singular"),
    "NaN into solve": (linalg.solve, [THREE * np.nan, np.ones(3)], "solve: .* NaN or infinity"),
    "NaN into eigh": (linalg.eigh, [THREE * np.nan], "eigh: .* NaN or infinity"),
    "infinity into qr": (linalg.qr, [ONES * INF], "qr: the 2×3 matrix holds NaN or infinity"),
    "NaN into cholesky": (linalg.cholesky, [THREE * np.nan], "cholesky: .* NaN or infinity"),
    "indefinite": (linalg.cholesky, [-THREE], "cholesky: the 3×3 matrix is not positive definite"),
}


@pytest.mark.parametrize("name", SINGULAR)
def test_values_that_have_no_factorisation_are_refused(name: str) -> None:
    f, operands, message = SINGULAR[name]
    session = xp.Session(runtime=RUNTIME)
    program = RUNTIME.prepare(xp.trace(f, *(xp.spec(x.shape) for x in operands)))
    with pytest.raises(InputError, match=message):
        f(*(session.variable(x) for x in operands))
    with pytest.raises(InputError, match=message):
        program(*operands)
    with pytest.raises(InputError, match=message):
        f(*operands)


# --- code written for NumPy -----------------------------------------------------------------------


def normalised(xp: Any, x: Any, y: Any) -> Any:
    """A function of many operations, in the words of the array API standard."""
    centred = x - xp.mean(x, axis=1, keepdims=True)
    scale = xp.sqrt(xp.sum(centred**2, axis=1, keepdims=True) / x.shape[1] + 0.01)
    z = xp.where(centred > 0, centred / scale, xp.tanh(centred)) @ y
    z = xp.concat([z, xp.abs(z[:, :1]) ** 1.5], axis=1)
    z = xp.stack([z, xp.maximum(z, 0.1), 2.0 - z])
    z = xp.matmul(z, xp.matrix_transpose(z)) + xp.eye(2)
    norm = xp.linalg.vector_norm(z, axis=-1) + xp.linalg.matrix_norm(z)[:, None]
    spread = xp.max(norm, axis=0) - xp.min(norm) + xp.prod(norm[1:, 0])
    return spread + xp.linalg.trace(xp.linalg.solve(z[0, ...], z[1])) + xp.squeeze(z[2, :1, 0:1], axis=(0, 1))


def test_code_written_for_numpy_runs() -> None:
    rng = np.random.default_rng(20261129)
    x, y = rng.normal(size=(2, 5)), rng.normal(size=(5, 3))
    wanted = normalised(np, x, y)
    session = xp.Session(runtime=RUNTIME)
    graph = xp.trace(functools.partial(normalised, xp), xp.spec((2, 5)), xp.spec((5, 3)))
    found = [
        normalised(xp, x, y),
        normalised(xp, session.variable(x), session.variable(y)).value,
        normalised(xp, session.variable(x), y).value,
        RUNTIME.prepare(graph)(x, y),
    ]
    for result in found:
        np.testing.assert_allclose(result, wanted, rtol=1e-13)
    assert len({np.asarray(result).tobytes() for result in found}) == 1


def test_comparison_is_by_element_and_a_value_can_be_a_key() -> None:
    x = xp.Session().variable([1.0, 2.0])
    assert (x == 2.0).value.tolist() == [False, True]
    assert (x != np.asarray([1.0, 1.0])).value.tolist() == [False, True]
    assert (x < 3.0).value.tolist() == [True, True]
    assert {x: "kept"}[x] == "kept"
    assert x != "a"
    if xp.sum(x) > 2.5:  # a comparison can be branched on
        x = x * 2.0
    assert x.value.tolist() == [2.0, 4.0]


def test_constants_are_numpy_arrays() -> None:
    x = xp.Session().variable(np.ones((2, 2), np.float32))
    for made in (xp.zeros_like(x), xp.ones_like(x), xp.zeros(2), xp.eye(2)):
        assert isinstance(made, np.ndarray)
    assert xp.zeros_like(x).dtype == np.float32
    assert (x + xp.ones_like(x)).dtype == np.float32


def test_single_precision_stays_single() -> None:
    def f(x: Any) -> Any:
        y = xp.where(x > 0.5, x**2, 0.25 * x**3) + xp.maximum(x, 0.1) / 3
        return xp.sum(linalg.vector_norm(y) * xp.mean(y) ** 0.5)

    graph = xp.value_and_grad(xp.trace(f, xp.spec(4, np.float32)))
    value, gradient = RUNTIME.prepare(graph)(np.linspace(0.2, 0.9, 4, dtype=np.float32))
    assert value.dtype == gradient.dtype == np.float32


def test_precision_can_be_changed_within_a_function() -> None:
    (gradient,) = gradients(lambda x: xp.astype(xp.astype(x, np.float32) ** 2, np.float64), [1.0, 3.0])
    assert gradient.dtype == np.float64 and gradient.tolist() == [2.0, 6.0]
