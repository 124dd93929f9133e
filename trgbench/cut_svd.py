"""The derivative of a thin SVD cut to k values, M ≈ U_k diag(s_k) V_kᵀ, over any array namespace.

Given the full thin SVD M = U diag(s) Vᵀ, shapes (m, p), (p,), (n, p), p = min(m, n), and a tangent dM, let

    G[i,j] = (Uᵀ dM V_k)[i,j],  H[i,j] = (Vᵀ dMᵀ U_k)[i,j],  F[i,j] = 1/(s_j² − s_i²),  i ≤ p, j ≤ k.

Then (J. Townsend, Differentiating the singular value decomposition, 2016)

    ds_j = G[j,j]
    dU_k = U [F ∘ (G s_j + s_i H)] + (I − U Uᵀ) dM V_k / s_j
    dV_k = V [F ∘ (s_i G + H s_j)] + (I − V Vᵀ) dMᵀ U_k / s_j.

`jvp` is that, and `vjp` its transpose. The rows i > k of F couple what is kept to what is cut off: without
them the derivative of a truncation is wrong (Francuz, Schuch, Vanhecke, arXiv:2311.11894). Only the k kept
columns carry a cotangent, so no product is larger than (p, p) × (p, k).

Equal and nearly equal values occur in TRG. Partial fractions part what is singular there from what is not,

    F (G s_j + s_i H) = P + Q,   F (s_i G + H s_j) = P − Q,
    P = ½ (G + H) / (s_j − s_i),   Q = ½ (G − H) / (s_j + s_i),

and a quotient is left out where its denominator is below ε s_1. So within a cluster of equal values Q is
exact. P is not determined there, since any rotation of the cluster gives an SVD too; leaving it out is right
for a result that depends on the cluster through its projector and its singular values, and along every dM
that does not split the cluster, as where a symmetry of the lattice makes it. Dividing rounding by rounding
instead is what makes a NaN (Wan, Zhang, arXiv:1909.02659).

Where only the k triplets kept are known, the sums run over i ≤ k, and what couples to the rest is solved
for. With the projectors P = I − U_k U_kᵀ and Q = I − V_k V_kᵀ, S = diag(s_k), C = dM V_k and D = dMᵀ U_k, the
parts of dU_k and dV_k outside the kept spaces, X = P X and Y = Q Y, obey

    X S − M Y = P C,   Y S − Mᵀ X = Q D.

The operator is symmetric, so the transposed rule solves it too, with the cotangents of U_k and V_k for C and
D.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

EPSILON = 1e-12
"""ε relative to s_1, for float64."""

Factors = tuple[Any, Any, Any]
Complement = Callable[[Any, Any], tuple[Any, Any]]
"""(C, D) → the X = P X, (m, k), and Y = Q Y, (n, k), that solve the equations above."""


def inverse(xp: Any, x: Any, epsilon: float = EPSILON) -> Any:
    """Return 1/x where |x| > ε, and 0 elsewhere.

    A step and no smooth guard: its derivative at a tie is zero too, where that of x/(x² + ε²) is 1/ε² times
    rounding, which ruins second derivatives.

    >>> import numpy as np
    >>> inverse(np, np.array([2.0, 1e-15])).tolist()
    [0.5, 0.0]
    """
    far = xp.abs(x) > epsilon
    return xp.where(far, 1.0 / xp.where(far, x, 1.0), 0.0)


def largest(xp: Any, s: Any) -> Any:
    """Return s_1, or 1 for the zero matrix, whose values need no scale."""
    return xp.where(s[0] > 0.0, s[0], 1.0)


def differences_and_sums(xp: Any, s: Any, k: int, epsilon: float = EPSILON) -> tuple[Any, Any]:
    """Return ½/(s_j − s_i) and ½/(s_j + s_i), shapes (p, k), guarded relative to s_1.

    >>> import numpy as np
    >>> minus, plus = differences_and_sums(np, np.array([2.0, 1.0, 1.0]), k=2)
    >>> minus.round(6).tolist(), plus.round(6).tolist()
    ([[0.0, -0.5], [0.5, 0.0], [0.5, 0.0]], [[0.125, 0.166667], [0.166667, 0.25], [0.166667, 0.25]])
    """
    scale = largest(xp, s)
    unit = s / scale
    row, column = unit[:, None], unit[None, :k]
    half = 0.5 / scale
    return inverse(xp, column - row, epsilon) * half, inverse(xp, column + row, epsilon) * half


def inverse_values(xp: Any, s: Any, k: int, epsilon: float = EPSILON) -> Any:
    """Return 1/s_j, shape (k,), guarded relative to s_1."""
    scale = largest(xp, s)
    return inverse(xp, s[:k] / scale, epsilon) / scale


def jvp(xp: Any, full: Factors, k: int, tangent: Any, epsilon: float = EPSILON) -> Factors:
    """Return (dU_k, ds_k, dV_kᵀ), shapes (m, k), (k,), (k, n), for a tangent of shape (m, n).

    `full` is the thin SVD uncut: U (m, p), s (p,), Vᵀ (p, n).
    """
    u, _, vh = full
    return jvp_of_products(xp, full, k, tangent @ vh[:k, :].T, tangent.T @ u[:, :k], epsilon)


def jvp_of_products(
    xp: Any,
    triplets: Factors,
    k: int,
    left: Any,
    right: Any,
    epsilon: float = EPSILON,
    complement: Complement | None = None,
) -> Factors:
    """Return (dU_k, ds_k, dV_kᵀ), given dM only by left = dM V_k, (m, k), and right = dMᵀ U_k, (n, k)."""
    u, s, vh = triplets
    g, h = u.T @ left, vh @ right
    minus, plus = differences_and_sums(xp, s, k, epsilon)
    p, q = (g + h) * minus, (g - h) * plus
    du, dv = u @ (p + q), vh.T @ (p - q)
    x, y = _outside(xp, triplets, k, (left, right), (g, h), epsilon, complement)
    du, dv = du if x is None else du + x, dv if y is None else dv + y
    return du, xp.sum(u[:, :k] * left, axis=0), dv.T


def vjp(xp: Any, full: Factors, k: int, cotangents: Factors, epsilon: float = EPSILON) -> Any:
    """Return the cotangent of M, shape (m, n), for those of U_k (m, k), s_k (k,) and V_kᵀ (k, n).

    `full` is the thin SVD uncut: U (m, p), s (p,), Vᵀ (p, n). Line by line the transpose of `jvp`.
    """
    u, _, vh = full
    left, right = vjp_factors(xp, full, k, cotangents, epsilon)
    return left @ vh[:k, :] + u[:, :k] @ right.T


def vjp_factors(
    xp: Any,
    triplets: Factors,
    k: int,
    cotangents: Factors,
    epsilon: float = EPSILON,
    complement: Complement | None = None,
) -> tuple[Any, Any]:
    """Return left (m, k) and right (n, k): the cotangent of M is left V_kᵀ + U_k rightᵀ, of rank 2k."""
    u, s, vh = triplets
    ct_u, ct_s, ct_vh = cotangents
    ct_v = ct_vh.T
    a, b = u.T @ ct_u, vh @ ct_v
    minus, plus = differences_and_sums(xp, s, k, epsilon)
    p, q = (a + b) * minus, (a - b) * plus
    left = u @ (p + q) + u[:, :k] * ct_s
    right = vh.T @ (p - q)
    x, y = _outside(xp, triplets, k, (ct_u, ct_v), (a, b), epsilon, complement)
    return left if x is None else left + x, right if y is None else right + y


def _outside(
    xp: Any,
    triplets: Factors,
    k: int,
    given: tuple[Any, Any],
    inside: tuple[Any, Any],
    epsilon: float,
    complement: Complement | None,
) -> tuple[Any, Any]:
    """Return what lies outside the triplets' spaces, `None` where they span all."""
    if complement is not None:
        return complement(*given)
    u, s, vh = triplets
    m, p, n = u.shape[0], s.shape[0], vh.shape[1]
    if m == n == p:
        return None, None
    inverses = inverse_values(xp, s, k, epsilon)
    (c, d), (a, b) = given, inside
    return (c - u @ a) * inverses if m > p else None, (d - vh.T @ b) * inverses if n > p else None
