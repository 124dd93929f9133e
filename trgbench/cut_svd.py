"""The derivative of a thin SVD cut to k values, M ≈ U_k diag(s_k) V_kᵀ, over any array namespace.

Given the whole thin SVD M = U diag(s) Vᵀ, shapes (m, p), (p,), (n, p), p = min(m, n), and a tangent dM, put

    G[i,j] = (Uᵀ dM V_k)[i,j],  H[i,j] = (Vᵀ dMᵀ U_k)[i,j],  F[i,j] = 1/(s_j² − s_i²),  i ≤ p, j ≤ k.

Then (J. Townsend, Differentiating the singular value decomposition, 2016)

    ds_j = G[j,j]
    dU_k = U [F ∘ (G s_j + s_i H)] + (I − U Uᵀ) dM V_k / s_j
    dV_k = V [F ∘ (s_i G + H s_j)] + (I − V Vᵀ) dMᵀ U_k / s_j.

`jvp` is that, and `vjp` its transpose. The rows i > k of F couple what is kept to what is cut off: without
them the derivative of a truncation is wrong (Francuz, Schuch, Vanhecke, arXiv:2311.11894). Only the k kept
columns carry a cotangent, so no product is larger than (p, p) × (p, k).

1/Δ, Δ = (s_j + s_i)(s_j − s_i), is guarded as Δ³/(Δ⁴ + ε⁴). For equal values of which both are kept, or
both cut off, the exact coefficient of F vanishes wherever the result depends on M smoothly (Wan, Zhang,
arXiv:1909.02659), so leaving out the pair is right, and dividing rounding by rounding is what makes a NaN.
The more usual Δ/(Δ² + ε²) lets through Δ/ε² at a Δ of rounding, which 20 steps of TRG below its critical
temperature amplify: at ε = 10⁻¹² s_1² and χ = 16 it is wrong by 4e-6 at β = 1, at 10⁻¹³ it diverges, and
above 10⁻¹¹ its bias shows. The fourth powers give full accuracy at every β from ε = 10⁻¹³ to 10⁻¹².
"""

from __future__ import annotations

from typing import Any

EPSILON = 1e-12
"""ε relative to the scale of what is inverted: s_1² for Δ, s_1 for s."""

Factors = tuple[Any, Any, Any]


def guarded_inverse(x: Any, scale: Any) -> Any:
    """Return x³/(x⁴ + ε⁴) with ε = EPSILON · scale: 1/x to full accuracy if |x| > 10⁴ ε, 0 at 0.

    >>> guarded_inverse(0.5, 1.0), guarded_inverse(0.0, 1.0), guarded_inverse(1e-17, 1.0) < 0.01
    (2.0, 0.0, True)
    """
    ratio = x / (EPSILON * scale)  # first, because x⁴ may leave the range of float64
    square = ratio * ratio
    return ratio * square / (1 + square * square) / (EPSILON * scale)


def inverse_differences(s: Any, k: int) -> Any:
    """Return F[i,j] = 1/(s_j² − s_i²), shape (p, k), guarded; 0 on the diagonal and for equal values.

    >>> import numpy as np
    >>> inverse_differences(np.array([2.0, 1.0, 1.0]), k=2).round(6).tolist()
    [[0.0, -0.333333], [0.333333, 0.0], [0.333333, 0.0]]
    """
    row, column = s[:, None], s[None, :k]
    return guarded_inverse((column + row) * (column - row), s[0] * s[0])


def jvp(xp: Any, full: Factors, k: int, tangent: Any) -> Factors:
    """Return (dU_k, ds_k, dV_kᵀ), shapes (m, k), (k,), (k, n), for a tangent of shape (m, n).

    `full` is the thin SVD uncut: U (m, p), s (p,), Vᵀ (p, n).
    """
    u, s, vh = full
    left, right = tangent @ vh[:k, :].T, tangent.T @ u[:, :k]  # dM V_k and dMᵀ U_k
    g, h = u.T @ left, vh @ right
    row, column, f = s[:, None], s[None, :k], inverse_differences(s, k)
    du = u @ (f * (g * column + row * h))
    dv = vh.T @ (f * (row * g + h * column))
    if u.shape[0] > s.shape[0]:  # U does not span: there is a part of dU outside
        du = du + (left - u @ g) * guarded_inverse(s[:k], s[0])
    if vh.shape[1] > s.shape[0]:
        dv = dv + (right - vh.T @ h) * guarded_inverse(s[:k], s[0])
    return du, xp.linalg.diagonal(g[:k, :]), dv.T


def vjp(full: Factors, k: int, cotangents: Factors) -> Any:
    """Return the cotangent of M, shape (m, n), for those of U_k (m, k), s_k (k,) and V_kᵀ (k, n).

    `full` is the thin SVD uncut: U (m, p), s (p,), Vᵀ (p, n). Line by line the transpose of `jvp`.
    """
    u, s, vh = full
    ct_u, ct_s, ct_vh = cotangents
    ct_v = ct_vh.T
    a, b = u.T @ ct_u, vh @ ct_v
    row, column, f = s[:, None], s[None, :k], inverse_differences(s, k)
    x, y = f * a, f * b
    left = u @ (x * column + row * y) + u[:, :k] * ct_s
    right = vh.T @ (row * x + y * column)
    if u.shape[0] > s.shape[0]:
        left = left + (ct_u - u @ a) * guarded_inverse(s[:k], s[0])
    if vh.shape[1] > s.shape[0]:
        right = right + (ct_v - vh.T @ b) * guarded_inverse(s[:k], s[0])
    return left @ vh[:k, :] + u[:, :k] @ right.T
