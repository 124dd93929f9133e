"""Factorisations. The paper and its formula stand above each derivative."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.linalg

from trgbench.engine.ops.contraction import tensordot
from trgbench.engine.ops.shape import concat, permute_dims, reshape
from trgbench.engine.ops.table import OPS, Array, Op, Spec, Value, float_only, register
from trgbench.errors import InputError

# --- singular value decomposition, cut to k values ------------------------------------------------
#
# A = U S Vᵀ thin, with p = min(m, n) triplets, of which the first k are kept (u, s, v) and the others
# (u_rest, s_rest, v_rest) are outputs that only derivatives use. With P̄ the cotangent of Uᵀ dA V,
#
#     Ā = U P̄ Vᵀ + (1 − U Uᵀ) Ū S⁻¹ Vᵀ + U S⁻¹ V̄ᵀ (1 − V Vᵀ)
#     P̄ = (X + Xᵀ) S + S (Y + Yᵀ) + diag S̄,   X = F ∘ (Uᵀ Ū),  Y = F ∘ (Vᵀ V̄),  F_ij = 1 / (s_j² − s_i²)
#
# J. Townsend, "Differentiating the singular value decomposition" (2016); Z.-Q. Wan and S.-X. Zhang,
# arXiv:1909.02659; for the cut: A. Francuz, N. Schuch, B. Vanhecke, arXiv:2311.11894: the part of X and Y
# that couples kept to discarded triplets belongs to it.
#
# Only k columns of Ū and V̄ are not zero, so X and Y are p × k and no p × p × p product is formed:
#
#     Ā = [U C + u diag S̄ + …] vᵀ + u [V D + …]ᵀ,   C = X s_j + s_i Y,   D = s_i X + Y s_j   (i ≤ p, j ≤ k)
#
# Exactly or nearly equal singular values occur in TRG, so F is guarded, relative to s_1:
# F = Δ / (Δ² + ε²) with Δ = (s_j + s_i)(s_j − s_i) / s_1², which is 0 at a tie; likewise 1/s.

GUARD_IN_EPS = 4096  # ε in units of the dtype's rounding: 9.1e-13 in float64


def _svd_infer(a: Spec, k: int) -> tuple[Spec, ...]:
    float_only("svd", a)
    if len(a.shape) != 2:
        raise InputError(f"svd: the operand must be a matrix; got {a}")
    (m, n), p = a.shape, min(a.shape)
    if not 1 <= k <= p:
        raise InputError(f"svd: k must be from 1 to {p} for {a}; got {k}")
    shapes = ((m, k), (k,), (k, n), (m, p - k), (p - k,), (p - k, n))
    return tuple(Spec(shape, a.dtype) for shape in shapes)


def _svd(a: Array, k: int) -> tuple[Array, ...]:
    if not 1 <= k <= min(a.shape, default=0) or a.ndim != 2:
        raise ValueError  # the shape rule says what is wrong
    if not np.isfinite(a).all():  # LAPACK may hang or return rubbish
        raise InputError(
            f"svd: the {a.shape[0]}×{a.shape[1]} matrix holds NaN or infinity; look at what made it"
        )
    try:
        u, s, vh = np.linalg.svd(a, full_matrices=False)
    except np.linalg.LinAlgError:  # divide and conquer did not converge: the slower QR iteration does
        u, s, vh = scipy.linalg.svd(a, full_matrices=False, lapack_driver="gesvd")
    cut = (u[:, :k], s[:k], vh[:k], u[:, k:], s[k:], vh[k:])
    return tuple(np.ascontiguousarray(part) for part in cut)


def _svd_vjp(cotangents: Any, outputs: Any, inputs: Any, parameters: tuple, wanted: Sequence[bool]) -> list:
    u, s, vh, u_rest, s_rest, vh_rest = outputs
    du, ds, dvh = cotangents[:3]
    rest = s_rest.shape[0] > 0
    if any(ct is not None for ct in cotangents[3:]):
        # Only in a derivative of a derivative: every triplet carries a cotangent.
        cts = [zeros_like(y) if ct is None else ct for ct, y in zip(cotangents, outputs, strict=True)]
        du, ds, dvh = (concat([cts[i], cts[i + 3]], axis=axis) for i, axis in enumerate((1, 0, 0)))
        u, s, vh = (concat([outputs[i], outputs[i + 3]], axis=axis) for i, axis in enumerate((1, 0, 0)))
        rest = False
    left = None if ds is None else u * reshape(ds, (1, s.shape[0]))
    if du is None and dvh is None:
        return [None if left is None else tensordot(left, vh, axes=1)]
    du = zeros_like(u) if du is None else du
    dvh = zeros_like(vh) if dvh is None else dvh

    (m, k), n, p = u.shape, vh.shape[1], s.shape[0] + (s_rest.shape[0] if rest else 0)
    all_u = concat([u, u_rest], axis=1) if rest else u
    all_vh = concat([vh, vh_rest], axis=0) if rest else vh
    eps = GUARD_IN_EPS * float(np.finfo(s.dtype).eps)
    scale = s[0] + float(np.finfo(s.dtype).tiny)  # s_1, and not 0 for the zero matrix
    kept = s / scale
    column = reshape(kept, (1, k))
    row = reshape(concat([kept, s_rest / scale], axis=0) if rest else kept, (p, 1))
    delta = (column + row) * (column - row)
    f = delta / (delta * delta + eps * eps)
    a = tensordot(all_u, du, axes=((0,), (0,)))  # Uᵀ Ū, (p, k)
    b = tensordot(all_vh, dvh, axes=((1,), (1,)))  # Vᵀ V̄, (p, k)
    x, y = f * a, f * b
    c = (x * column + row * y) / scale
    d = (row * x + y * column) / scale
    left_c = tensordot(all_u, c, axes=1)
    left = left_c if left is None else left + left_c  # (m, k)
    right = tensordot(all_vh, d, axes=((0,), (0,)))  # (n, k)
    inverse = column / (column * column + eps * eps) / scale
    if m > p:
        left = left + (du - tensordot(all_u, a, axes=1)) * inverse
    if n > p:
        right = right + permute_dims(dvh - tensordot(b, all_vh, axes=((0,), (0,))), (1, 0)) * inverse
    return [tensordot(left, vh, axes=1) + tensordot(u, right, axes=((1,), (1,)))]


def _svd_jvp(tangents: Any, outputs: Any, inputs: Any, parameters: tuple) -> list:
    raise NotImplementedError


def zeros_like(x: Value) -> Any:
    """Zeros of the shape and dtype of x."""
    return x.recorder.constant(np.zeros(x.shape, x.dtype))


register(
    Op(
        "svd",
        _svd_infer,
        _svd,
        _svd_vjp,
        _svd_jvp,
        lambda rng: [
            ((rng.normal(size=shape),), (k,))
            for shape, k in (((4, 4), 2), ((5, 3), 3), ((3, 5), 2), ((1, 1), 1), ((6, 6), 6))
        ],
        parameters=("k",),
        outputs=6,
    )
)


def svd(x: Any, /, k: int | None = None) -> tuple[Any, Any, Any]:
    """Thin singular value decomposition of x[i, j], cut to the k largest values (all by default).

    Returns:
        u[i, a], s[a] in descending order, vh[a, j] with x ≈ Σ_a u[i, a] s[a] vh[a, j].

    Raises:
        InputError: if x is not a matrix, holds NaN or infinity, or k is not from 1 to min(m, n).
    """
    shape = x.shape if isinstance(x, Value) else np.shape(x)
    u, s, vh, *_ = OPS["svd"](x, parameters=(min(shape, default=0) if k is None else int(k),))
    return u, s, vh
