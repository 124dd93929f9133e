"""Contractions against NumPy, and factorisations against PyTorch, closed forms and each other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from trgbench import engine as xp
from trgbench.engine import linalg

SEED = 20261129
RUNTIME = xp.Runtime(width=1)


def value_and_gradients(f: Callable[..., Any], *arrays: np.ndarray) -> tuple[np.ndarray, ...]:
    """f, then the gradients of Σ weights · f by its operands, from a traced program; eager must agree."""
    graph = xp.trace(f, *(xp.spec(x.shape) for x in arrays))
    result = RUNTIME.prepare(graph)(*arrays)
    weights = np.random.default_rng(SEED).normal(size=result.shape)

    def weighted(*operands: Any) -> Any:
        return xp.sum(f(*operands) * weights)

    traced = RUNTIME.prepare(
        xp.grad(xp.trace(weighted, *(xp.spec(x.shape) for x in arrays)), range(len(arrays)))
    )
    gradients = traced(*arrays)
    session = xp.Session(runtime=RUNTIME)
    leaves = [session.variable(x) for x in arrays]
    weighted(*leaves).backward()
    assert all(leaf.grad.tobytes() == g.tobytes() for leaf, g in zip(leaves, gradients, strict=True))
    return result, *gradients


# --- contractions ---------------------------------------------------------------------------------

EINSUMS = [
    ("ij,jk->ik", [(3, 4), (4, 2)]),
    ("ij,jk", [(3, 4), (4, 2)]),
    ("ij,jk,kl->il", [(3, 4), (4, 2), (2, 5)]),
    ("bij,bjk->bik", [(2, 3, 4), (2, 4, 5)]),
    ("...ij,...jk->...ik", [(2, 3, 4), (2, 4, 5)]),
    ("ibj,jkb->kbi", [(3, 2, 4), (4, 5, 2)]),
    ("ij,ij->ij", [(3, 4), (3, 4)]),
    ("ij,ji->ij", [(3, 4), (4, 3)]),
    ("i,j->ij", [(3,), (4,)]),
    ("i,j->ji", [(3,), (4,)]),
    ("ij->", [(3, 4)]),
    ("ij->ji", [(3, 4)]),
    ("ij->ij", [(3, 4)]),
    ("ii", [(3, 3)]),
    ("ii->i", [(3, 3)]),
    ("iij->j", [(3, 3, 4)]),
    ("iii->i", [(3, 3, 3)]),
    ("ij,k->i", [(3, 4), (2,)]),
    (",ij->ji", [(), (3, 4)]),
    ("ab,bc,cd,da->", [(2, 3), (3, 4), (4, 5), (5, 2)]),
    ("bzw,axw,xyc,zye->bace", [(3, 2, 2), (3, 2, 2), (2, 2, 3), (2, 2, 3)]),  # a plaquette of TRG
    ("ij,jk->ik", [(0, 4), (4, 2)]),
]


@pytest.mark.parametrize(("subscripts", "shapes"), EINSUMS)
def test_einsum_is_numpys(subscripts: str, shapes: list[tuple[int, ...]]) -> None:
    rng = np.random.default_rng(SEED)
    arrays = [rng.normal(size=shape) for shape in shapes]
    wanted = np.einsum(subscripts, *arrays)
    result, *gradients = value_and_gradients(lambda *xs: xp.einsum(subscripts, *xs), *arrays)
    np.testing.assert_allclose(result, wanted, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(xp.einsum(subscripts, *arrays), wanted, rtol=1e-12, atol=1e-12)
    # The result is linear in each operand, so the gradient by one is the result for a basis of it.
    weights = np.random.default_rng(SEED).normal(size=wanted.shape)
    for position, gradient in enumerate(gradients):
        direction = rng.normal(size=arrays[position].shape)
        moved = [direction if i == position else x for i, x in enumerate(arrays)]
        along = np.sum(weights * np.einsum(subscripts, *moved))
        assert np.sum(gradient * direction) == pytest.approx(along, rel=1e-11, abs=1e-11)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ((3,), (3,)),
        ((3,), (3, 4)),
        ((2, 3), (3,)),
        ((2, 3), (3, 4)),
        ((3,), (5, 3, 4)),
        ((5, 2, 3), (3,)),
        ((2, 3), (5, 3, 4)),
        ((5, 2, 3), (3, 4)),
        ((5, 2, 3), (5, 3, 4)),
        ((6, 1, 2, 3), (5, 3, 4)),
        ((1, 2, 3), (5, 3, 4)),
        ((0, 2, 3), (0, 3, 4)),
        ((2, 0), (0, 4)),
    ],
)
def test_matmul_is_numpys(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    rng = np.random.default_rng(SEED)
    x, y = rng.normal(size=a), rng.normal(size=b)
    result, by_x, by_y = value_and_gradients(xp.matmul, x, y)
    np.testing.assert_allclose(result, x @ y, rtol=1e-12)
    weights = np.random.default_rng(SEED).normal(size=result.shape)
    for gradient, operand in ((by_x, x), (by_y, y)):  # Euler: the result is of degree 1 in each
        assert np.sum(gradient * operand) == pytest.approx(np.sum(weights * result), rel=1e-11, abs=1e-11)


@pytest.mark.parametrize("axes", [0, 1, 2, ((0, 1), (1, 0)), ([-1], [0]), (1, 0)])
def test_tensordot_is_numpys(axes: Any) -> None:
    rng = np.random.default_rng(SEED)
    x, y = rng.normal(size=(3, 3)), rng.normal(size=(3, 3))
    np.testing.assert_allclose(xp.tensordot(x, y, axes=axes), np.tensordot(x, y, axes=axes), rtol=1e-12)


@pytest.mark.parametrize("offset", [-3, -1, 0, 2, 9])
def test_trace_and_diagonal_are_numpys(offset: int) -> None:
    x = np.random.default_rng(SEED).normal(size=(2, 3, 4))
    diagonal, by_x = value_and_gradients(lambda y: linalg.diagonal(y, offset=offset), x)
    np.testing.assert_array_equal(diagonal, np.linalg.diagonal(x, offset=offset))
    np.testing.assert_allclose(linalg.trace(x, offset=offset), np.linalg.trace(x, offset=offset), rtol=1e-14)
    assert np.count_nonzero(by_x) == diagonal.size


# --- factorisations -------------------------------------------------------------------------------


def spread(n: int, m: int | None = None) -> np.ndarray:
    """A matrix whose singular values are far apart."""
    noise = np.random.default_rng(SEED).uniform(-1.0, 1.0, (n, n))
    return (np.diag(1.0 + np.arange(n)) + 0.2 * noise)[:, :m]


def symmetric(n: int) -> np.ndarray:
    return (spread(n) + spread(n).T) / 2


# The same words for both libraries; signs of vectors do not show.
AGAINST_TORCH: dict[str, tuple[Callable[[Any, Any], Any], np.ndarray]] = {
    "eigh": (lambda la, a: (la.eigh(a)[0][:, None] + 0.5) * la.eigh(a)[1] ** 2, symmetric(5)),
    "qr square": (lambda la, a: la.qr(a)[0] ** 2 + la.qr(a)[1] ** 2, spread(4)),
    "qr tall": (lambda la, a: la.qr(a)[0] @ la.qr(a)[1] ** 2, spread(5, 3)),
    "solve": (lambda la, a: la.solve(a, a[:, :2] ** 2), spread(4)),
    "cholesky": (lambda la, a: la.cholesky(a) * 1.5, symmetric(5)),
}


@pytest.mark.parametrize("name", AGAINST_TORCH)
def test_factorisations_have_pytorchs_gradient(name: str) -> None:
    torch = pytest.importorskip("torch")
    f, matrix = AGAINST_TORCH[name]
    result, gradient = value_and_gradients(lambda a: f(linalg, a), matrix)
    weights = np.random.default_rng(SEED).normal(size=result.shape)
    a = torch.tensor(matrix, requires_grad=True)
    theirs = f(torch.linalg, a)
    (theirs * torch.tensor(weights)).sum().backward()
    wanted = a.grad.numpy()
    if name in ("eigh", "cholesky"):  # theirs is that of one triangle
        gradient, wanted = gradient + gradient.T, wanted + wanted.T
    np.testing.assert_allclose(result, theirs.detach().numpy(), rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(gradient, wanted, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("shape", [(4, 4), (5, 3), (3, 5), (1, 1)])
def test_factors_multiply_to_the_matrix_and_so_do_their_derivatives(shape: tuple[int, int]) -> None:
    a = np.random.default_rng(SEED).normal(size=shape)
    product, gradient = value_and_gradients(lambda x: xp.matmul(*linalg.qr(x)), a)
    np.testing.assert_allclose(product, a, atol=1e-13)
    weights = np.random.default_rng(SEED).normal(size=shape)
    np.testing.assert_allclose(gradient, weights, atol=1e-11)  # that of the identity


def test_a_factorisation_sees_the_symmetric_part() -> None:
    a = spread(4)
    functions: list[Callable[[Any], Any]] = [lambda x: linalg.eigh(x).eigenvalues, linalg.cholesky]
    for f in functions:
        np.testing.assert_array_equal(f(a), f((a + a.T) / 2))
        _, gradient = value_and_gradients(f, a)
        np.testing.assert_array_equal(gradient, gradient.T)
    np.testing.assert_array_equal(linalg.cholesky(a, upper=True), linalg.cholesky(a).T)


INSIDE = np.asarray([0, 0, 1, 1, 0])  # which of five eigenvectors, in ascending order, are kept


def projector_gradient(a: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The gradient of ⟨weights, P⟩, P the projector on the kept eigenvectors, by perturbation theory.

    dP = Σ_{i kept, j not} (v_i v_iᵀ dA v_j v_jᵀ + its transpose) / (λ_i − λ_j)
    """
    values, v = np.linalg.eigh(a)
    pairs = INSIDE[:, None] - INSIDE[None, :]
    differences = np.where(pairs != 0, values[:, None] - values[None, :], 1.0)
    return v @ ((v.T @ weights @ v) * pairs / differences) @ v.T


@pytest.mark.parametrize("gap", [0.0, 1e-15, 1e-13, 1e-11, 1e-9, 1e-3])
def test_eigh_at_ties_and_clusters(gap: float) -> None:
    """The projector on clustered eigenvectors has a derivative, and gets it, whatever their gap."""
    values = np.asarray([-3.0, -1.0, 2.0, 2.0 + 2.0 * gap, 5.0])
    basis = np.linalg.qr(np.random.default_rng(SEED).normal(size=(5, 5)))[0]
    a = (basis * values) @ basis.T
    weights = np.random.default_rng(SEED).normal(size=(5, 5))
    weights = weights + weights.T

    def projector(x: Any) -> Any:
        v = linalg.eigh(x).eigenvectors[:, 2:4]
        return xp.matmul(v, xp.matrix_transpose(v))

    first = xp.grad(xp.trace(lambda x: xp.sum(projector(x) * weights), xp.spec((5, 5))))
    # In second order along a direction that keeps the tie, as a perturbation does that respects the symmetry
    # behind it. One that splits it picks its own eigenvectors, which are not the given ones.
    inside = basis[:, 2:4] @ basis[:, 2:4].T
    direction = weights - inside @ weights @ inside + inside
    gradient, along = RUNTIME.prepare(xp.jvp(first))(a, direction)
    # Where a cluster counts as distinct, its cotangents cancel to rounding over gap, in second order squared.
    loss = 1e-15 / gap if gap > 1e-12 else 0.0
    np.testing.assert_allclose(gradient, projector_gradient(a, weights), atol=1e-12 + 10.0 * loss)
    if loss < 1e-9:
        h = 1e-4
        plus, minus = (projector_gradient(a + step * direction, weights) for step in (h, -h))
        np.testing.assert_allclose(along, (plus - minus) / (2.0 * h), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("n", [1, 2, 5])
def test_trace_functions_of_a_matrix_with_all_eigenvalues_equal(n: int) -> None:
    # Σ exp(λ) of 2·1: the gradient is exp(A).
    graph = xp.trace(lambda x: xp.sum(xp.exp(linalg.eigh(x).eigenvalues)), xp.spec((n, n)))
    gradient = RUNTIME.prepare(xp.grad(graph))(2.0 * np.eye(n))
    np.testing.assert_allclose(gradient, np.exp(2.0) * np.eye(n), rtol=1e-14)


def test_derivatives_of_the_zero_matrix_are_finite() -> None:
    for matrix in (np.zeros((3, 3)), np.diag([0.0, 0.0, 1.0])):
        _, gradient = value_and_gradients(lambda x: linalg.eigh(x).eigenvectors ** 2, matrix)
        assert np.isfinite(gradient).all()
