"""The cut SVD and its derivative: exact for the cut, and what it does where singular values are equal."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from trgbench import engine
from trgbench.engine.ops.linalg import CutThroughTie

SEED = 20261129
SHAPES = [(6, 6), (9, 5), (5, 9), (1, 1), (4, 1), (1, 4)]


def matrix(shape: tuple[int, int], values: list[float]) -> np.ndarray:
    """A matrix with the given singular values (the rest are zero) and random singular vectors."""
    rng = np.random.default_rng(SEED)
    left, right = (np.linalg.qr(rng.normal(size=(n, n)))[0] for n in shape)
    middle = np.zeros(shape)
    np.fill_diagonal(middle, values)
    return left @ middle @ right


def gradient(f: Callable[[Any], Any], a: np.ndarray) -> np.ndarray:
    """The gradient of f at a, which eager and traced must agree on bit for bit."""
    session = engine.Session()
    leaf = session.variable(a)
    f(leaf).backward()
    traced = engine.Runtime().prepare(engine.grad(engine.trace(f, engine.spec(a.shape, a.dtype))))(a)
    assert traced.tobytes() == leaf.grad.tobytes()
    return traced


def projector(k: int, weights: np.ndarray) -> Callable[[Any], Any]:
    """⟨weights, Σ_{a≤k} u_a u_aᵀ⟩: depends on the kept space, and on no vector in it."""

    def f(a: Any) -> Any:
        u, _, _ = engine.svd(a, k)
        return engine.sum((u @ u.T) * weights)

    return f


def projector_gradient(a: np.ndarray, k: int, weights: np.ndarray) -> np.ndarray:
    """Its gradient in closed form: only the coupling of kept to discarded triplets enters.

    With W = Uᵀ (weights + weightsᵀ) U of the full SVD,
    dP = Σ_{j≤k<i} (u_i u_jᵀ + u_j u_iᵀ) (s_j u_iᵀ dA v_j + s_i v_iᵀ dAᵀ u_j) / (s_j² − s_i²).
    """
    m, n = a.shape
    u, s, vh = np.linalg.svd(a, full_matrices=True)
    full = np.zeros(max(m, n))
    full[: len(s)] = s
    w = u.T @ (weights + weights.T) @ u
    result = np.zeros((m, n))
    for j in range(k):
        for i in range(k, m):
            factor = w[i, j] / (full[j] ** 2 - full[i] ** 2)
            result += factor * full[j] * np.outer(u[:, i], vh[j])
            if i < n:
                result += factor * full[i] * np.outer(u[:, j], vh[i])
    return result


@pytest.mark.parametrize("shape", SHAPES)
def test_rebuilds_the_matrix_and_its_gradient(shape: tuple[int, int]) -> None:
    a = np.random.default_rng(SEED).normal(size=shape)
    weights = np.random.default_rng(SEED + 1).normal(size=shape)

    def rebuilt(a: Any) -> Any:
        u, s, vh = engine.svd(a)
        return engine.sum(((u * s) @ vh) * weights)

    np.testing.assert_allclose(gradient(rebuilt, a), weights, atol=1e-12)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("shape", [(6, 6), (9, 5), (5, 9)])
@pytest.mark.parametrize("k", [1, 3, 5])
def test_cut_to_k_as_pytorch_differentiates_the_whole(shape: tuple[int, int], k: int, dtype: type) -> None:
    torch = pytest.importorskip("torch")
    a: np.ndarray = matrix(shape, [3.0, 2.2, 1.7, 1.1, 0.6, 0.3][: min(shape)]).astype(dtype)
    rng = np.random.default_rng(SEED)
    weights: list[np.ndarray] = [
        rng.normal(size=n).astype(dtype) for n in ((shape[0], shape[0]), k, (shape[1], shape[1]))
    ]
    w_u, w_s, w_v = map(np.asarray, weights)

    def f(xp: Any, svd: Any, a: Any, constant: Callable) -> Any:
        # Signs of singular vectors are free: products of two of them are not.
        u, s, vh = svd(a)
        left = xp.sum((u @ (u * s).T) * constant(w_u)) + xp.sum(s * s * constant(w_s))
        return left + xp.sum((vh.T @ (vh.T * s).T) * constant(w_v))

    ours = gradient(lambda x: f(engine, lambda x: engine.svd(x, k), x, lambda x: x), a)
    leaf = torch.tensor(a.astype(np.float64), requires_grad=True)

    def cut(x: Any) -> Any:
        u, s, vh = torch.linalg.svd(x, full_matrices=False)
        return u[:, :k], s[:k], vh[:k]

    f(torch, cut, leaf, lambda x: torch.tensor(x.astype(np.float64))).backward()
    tolerance = 1e-11 if dtype is np.float64 else 2e-4
    np.testing.assert_allclose(ours, leaf.grad.numpy(), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("gap", [1e-9, 1e-12, 1e-13, 1e-15, 0.0])
@pytest.mark.parametrize("shape", [(6, 6), (9, 6), (6, 9)])
def test_a_cluster_that_is_kept_whole(gap: float, shape: tuple[int, int]) -> None:
    a = matrix(shape, [3.0, 2.0, 2.0 * (1 - gap), 2.0 * (1 - 2 * gap), 1.0, 0.5])
    weights = np.random.default_rng(SEED).normal(size=(shape[0], shape[0]))
    # Where a cluster counts as distinct, what must cancel in it does so to rounding over gap.
    loss = 1e-14 / gap if gap > 5e-13 else 0.0
    expected = projector_gradient(a, 4, weights)
    np.testing.assert_allclose(gradient(projector(4, weights), a), expected, atol=1e-10 + loss)
    # The sum of the values' squares is Σ A², and the nuclear norm has the gradient U Vᵀ.
    np.testing.assert_allclose(gradient(lambda a: engine.sum(engine.svd(a)[1] ** 2), a), 2 * a, atol=1e-13)
    u, _, vh = np.linalg.svd(a, full_matrices=False)
    np.testing.assert_allclose(gradient(lambda a: engine.sum(engine.svd(a)[1]), a), u @ vh, atol=1e-13)


@pytest.mark.parametrize("gap", [1e-6, 1e-9])
def test_a_near_tie_is_as_right_as_its_gap_allows(gap: float) -> None:
    # What splits the cluster is known to rounding over gap. The rebuilt matrix's gradient is the weights.
    a = matrix((5, 5), [3.0, 2.0, 2.0 * (1 - gap), 1.0, 0.5])
    weights = np.random.default_rng(SEED).normal(size=(5, 5))

    def rebuilt(a: Any) -> Any:
        u, s, vh = engine.svd(a)
        return engine.sum(((u * s) @ vh) * weights)

    np.testing.assert_allclose(gradient(rebuilt, a), weights, atol=5e-15 / gap)


def test_at_a_tie_all_but_what_splits_it_is_exact() -> None:
    # A = 1 is one cluster. Of the rebuilt matrix's gradient, the weights, the part that is symmetric off the
    # diagonal in the singular basis splits the cluster, which singular vectors of a tie know nothing of.
    weights = np.random.default_rng(SEED).normal(size=(4, 4))
    u, _, vh = np.linalg.svd(np.eye(4))

    def rebuilt(a: Any) -> Any:
        u, s, vh = engine.svd(a)
        return engine.sum(((u * s) @ vh) * weights)

    inside = u.T @ weights @ vh.T
    known = (inside - inside.T) / 2 + np.diag(np.diag(inside))
    np.testing.assert_allclose(gradient(rebuilt, np.eye(4)), u @ known @ vh, atol=1e-14)


@pytest.mark.parametrize("shape", [(6, 6), (9, 5), (5, 9)])
def test_a_matrix_of_lower_rank(shape: tuple[int, int]) -> None:
    a = matrix(shape, [3.0, 1.0, 0.0, 0.0, 0.0])
    weights = np.random.default_rng(SEED).normal(size=(shape[0], shape[0]))
    np.testing.assert_allclose(
        gradient(projector(2, weights), a), projector_gradient(a, 2, weights), atol=1e-12
    )
    kept_zeros = gradient(projector(4, weights), a)
    assert np.isfinite(kept_zeros).all()
    assert np.isfinite(gradient(projector(2, weights), np.zeros(shape))).all()


def test_a_cut_through_a_pair_warns_with_its_gap() -> None:
    a = matrix((5, 5), [3.0, 2.0, 2.0, 1.0, 0.5])
    weights = np.random.default_rng(SEED).normal(size=(5, 5))
    with pytest.warns(
        CutThroughTie, match=r"the cut at k=2 parts s_k=2 from s_k\+1=2, whose gap of .* is rounding"
    ):
        found = gradient(projector(2, weights), a)
    assert np.isfinite(found).all()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for k in (1, 3, 4, 5):
            gradient(projector(k, weights), a)
        gradient(
            projector(3, weights), matrix((5, 5), [3.0, 2.0, 0.0, 0.0, 0.0])
        )  # parts rounding from rounding


def test_does_not_depend_on_scale() -> None:
    a = matrix((5, 5), [3.0, 2.0, 1.5, 1.0, 0.5])
    weights = np.random.default_rng(SEED).normal(size=(5, 5))
    expected = gradient(projector(2, weights), a)
    for scale in (2.0**-300, 2.0**300):
        np.testing.assert_allclose(gradient(projector(2, weights), a * scale) * scale, expected, rtol=1e-12)
