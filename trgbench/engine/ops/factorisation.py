"""Factorisations other than the SVD. The paper and its formula stand above each derivative.

Matrices: A[i, j]; `sym X` is (X + Xᵀ)/2, and `Φ X` the lower triangle of X with half its diagonal.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from trgbench.engine.ops.comparison import where
from trgbench.engine.ops.contraction import matmul, outer
from trgbench.engine.ops.elementwise import abs, maximum, reciprocal
from trgbench.engine.ops.families import TIE_IN_ROUNDINGS, check_finite, float_only
from trgbench.engine.ops.indexing import diagonal
from trgbench.engine.ops.shape import concat, matrix_transpose, reshape
from trgbench.engine.ops.table import OPS, Array, Op, Spec, register
from trgbench.errors import InputError


def _matrix(name: str, a: Spec, square: bool = True) -> None:
    """Refuse what is not a matrix with elements."""
    float_only(name, a)
    if len(a.shape) != 2 or (square and a.shape[0] != a.shape[1]) or 0 in a.shape:
        kind = "square matrix" if square else "matrix"
        raise InputError(f"{name}: argument 1 must be a {kind} with at least one element; got {a}")


def _checked(name: str, a: Array, square: bool = True) -> None:
    """The kernels' check: as strict as `_matrix`, which says what is wrong."""
    if a.ndim != 2 or (square and a.shape[0] != a.shape[1]) or not a.size:
        raise ValueError
    check_finite(name, a)


def _sym(x: Any) -> Any:
    return (x + matrix_transpose(x)) * 0.5


def _spread(rng: np.random.Generator, n: int) -> Array:
    """A matrix with singular values of the order of 1 that are far apart."""
    return np.diag(1.0 + np.arange(n)) + 0.2 * rng.uniform(-1.0, 1.0, (n, n))


# --- symmetric eigenvalue decomposition -----------------------------------------------------------
# sym A = V diag(λ) Vᵀ. M. B. Giles, "An extended collection of matrix derivative results for forward and
# reverse mode algorithmic differentiation" (2008), section 3.1:
#
#     dλ = diag(dP),  dV = V (F ∘ dP),  dP = Vᵀ sym(dA) V,  F_ij = 1 / (λ_j − λ_i), F_ii = 0
#     Ā = sym(V (diag λ̄ + F ∘ (Vᵀ V̄)) Vᵀ)
#
# Eigenvalues closer than ε |λ|_max count as equal, and F is 0 between them. Their eigenvectors have no
# derivative, but a function of them that does not change when they are mixed, such as the projector on all
# of them, has one, and gets it. (A smooth guard, Δ/(Δ² + ε²), has the slope 1/ε² at Δ = 0, so also on the
# diagonal: derivatives of second order would be differences of numbers of 1e24.) In second order that holds
# along perturbations that keep the tie; one that splits it has eigenvectors of its own.


def _eigh_infer(a: Spec) -> tuple[Spec, Spec]:
    _matrix("eigh", a)
    return Spec(a.shape[:1], a.dtype), a


def _eigh(a: Array) -> tuple[Array, Array]:
    _checked("eigh", a)
    values, vectors = np.linalg.eigh((a + a.T) * 0.5)
    return values, np.ascontiguousarray(vectors)


def _inverse_differences(values: Any) -> Any:
    """F_ij = 1 / (λ_j − λ_i), and 0 where they count as equal."""
    n = values.shape[0]
    delta = reshape(values, (1, n)) - reshape(values, (n, 1))
    eps = TIE_IN_ROUNDINGS * float(np.finfo(values.dtype).eps)
    tied = abs(delta) <= maximum(abs(values[0]), abs(values[-1])) * eps
    return where(tied, 0.0, reciprocal(where(tied, 1.0, delta)))


def _eigh_vjp(cotangents: Any, outputs: Any, inputs: Any, parameters: tuple, wanted: Sequence[bool]) -> list:
    (ct_values, ct_vectors), (values, v) = cotangents, outputs
    product = None if ct_values is None else v * ct_values  # V diag λ̄
    if ct_vectors is not None:
        rotation = _inverse_differences(values) * matmul(matrix_transpose(v), ct_vectors)
        part = matmul(v, rotation)
        product = part if product is None else product + part
    return [_sym(matmul(product, matrix_transpose(v)))]


def _eigh_jvp(tangents: Any, outputs: Any, inputs: Any, parameters: tuple) -> list:
    values, v = outputs
    rotated = matmul(matmul(matrix_transpose(v), _sym(tangents[0])), v)
    return [diagonal(rotated), matmul(v, _inverse_differences(values) * rotated)]


register(
    Op(
        "eigh",
        _eigh_infer,
        _eigh,
        _eigh_vjp,
        _eigh_jvp,
        lambda rng: [((_spread(rng, n),), ()) for n in (4, 2, 1)],
        outputs=2,
        blas=True,
    )
)


class EighResult(NamedTuple):
    """Of `eigh`."""

    eigenvalues: Any
    eigenvectors: Any


def eigh(x: Any, /) -> EighResult:
    """Eigenvalues λ[a], ascending, and eigenvectors v[i, a] of the symmetric part of the matrix x[i, j].

    The derivative is finite at equal eigenvalues, and right for functions that do not depend on how the
    eigenvectors of equal ones are mixed.

    Raises:
        InputError: if x is not a square matrix or holds NaN or infinity.
    """
    return EighResult(*OPS["eigh"](x))


# --- QR decomposition -----------------------------------------------------------------------------
# A = Q R with Q (m × p), R (p × n), p = min(m, n). For m ≥ n: H.-J. Liao, J.-G. Liu, L. Wang, T. Xiang,
# "Differentiable programming tensor networks", Phys. Rev. X 9, 031041 (2019), arXiv:1903.09650:
#
#     Ā = (Q̄ + Q L(M)) R⁻ᵀ,   M = R R̄ᵀ − Q̄ᵀ Q,   L(M) = the symmetric matrix with the lower triangle of M
#
# and forward, with W = Qᵀ dA R⁻¹ and Ω = Qᵀ dQ, the antisymmetric matrix with the strict lower triangle of W:
#
#     dR = (W − Ω) R,   dQ = dA R⁻¹ − Q (W − Ω)
#
# For m < n: A = [X Y], R = [U V] with X = Q U square and V = Qᵀ Y; D. A. O. Roberts and L. R. Roberts,
# "QR and LQ decomposition matrix backpropagation algorithms for square, wide, and deep matrices",
# arXiv:2009.10071: Q̄ gains Y V̄ᵀ, X̄ is the Ā above of (Q̄, Ū), and Ȳ = Q V̄.


def _qr_infer(a: Spec) -> tuple[Spec, Spec]:
    _matrix("qr", a, square=False)
    (m, n), p = a.shape, min(a.shape)
    return Spec((m, p), a.dtype), Spec((p, n), a.dtype)


def _qr(a: Array) -> tuple[Array, Array]:
    _checked("qr", a, square=False)
    q, r = np.linalg.qr(a)
    return np.ascontiguousarray(q), np.ascontiguousarray(r)


def _lower(x: Any, diagonal_factor: float) -> Any:
    """The lower triangle of x, the diagonal times a factor."""
    n = x.shape[0]
    return x * (
        np.tril(np.ones((n, n), x.dtype), -1) + np.eye(n, dtype=x.dtype) * x.dtype.type(diagonal_factor)
    )


def _over(x: Any, r: Any) -> Any:
    """X R⁻¹."""
    return matrix_transpose(solve(matrix_transpose(r), matrix_transpose(x)))


def _qr_vjp(cotangents: Any, outputs: Any, inputs: Any, parameters: tuple, wanted: Sequence[bool]) -> list:
    (ct_q, ct_r), (q, r) = cotangents, outputs
    m, n = inputs[0].shape
    u, ct_u, y_part = r, ct_r, None
    if m < n:
        u = r[:, :m]
        if ct_r is not None:
            ct_u, ct_v = ct_r[:, :m], ct_r[:, m:]
            y_part = matmul(q, ct_v)
            through_v = matmul(inputs[0][:, m:], matrix_transpose(ct_v))
            ct_q = through_v if ct_q is None else ct_q + through_v
    parts = [] if ct_u is None else [matmul(u, matrix_transpose(ct_u))]
    if ct_q is not None:
        parts.append(-matmul(matrix_transpose(ct_q), q))
    half = _lower(parts[0] + parts[1] if len(parts) == 2 else parts[0], 0.5)
    within = matmul(q, half + matrix_transpose(half))
    x_part = _over(within if ct_q is None else ct_q + within, matrix_transpose(u))
    if m >= n:
        return [x_part]
    rest = np.zeros((m, n - m), q.dtype) if y_part is None else y_part
    return [concat([x_part, rest], axis=1)]


def _qr_jvp(tangents: Any, outputs: Any, inputs: Any, parameters: tuple) -> list:
    (q, r), (da,) = outputs, tangents
    m, n = da.shape
    u, dx = (r, da) if m >= n else (r[:, :m], da[:, :m])
    quotient = _over(dx, u)
    w = matmul(matrix_transpose(q), quotient)
    lower = _lower(w, 0.0)
    upper = w - (lower - matrix_transpose(lower))  # W − Ω
    dq, du = quotient - matmul(q, upper), matmul(upper, u)
    if m >= n:
        return [dq, du]
    dv = matmul(matrix_transpose(dq), inputs[0][:, m:]) + matmul(matrix_transpose(q), da[:, m:])
    return [dq, concat([du, dv], axis=1)]


register(
    Op(
        "qr",
        _qr_infer,
        _qr,
        _qr_vjp,
        _qr_jvp,
        lambda rng: [
            ((_spread(rng, 5)[:m, :n].copy(),), ()) for m, n in ((3, 3), (5, 3), (3, 5), (1, 1), (4, 1))
        ],
        outputs=2,
        blas=True,
    )
)


class QRResult(NamedTuple):
    """Of `qr`."""

    Q: Any
    R: Any


def qr(x: Any, /) -> QRResult:
    """Orthogonal q[i, a] and upper triangular r[a, j] with x[i, j] = Σ_a q[i, a] r[a, j], a < min(m, n).

    Its derivative needs the first min(m, n) columns of x to be independent.

    Raises:
        InputError: if x is not a matrix or holds NaN or infinity.
    """
    return QRResult(*OPS["qr"](x))


# --- linear equations -----------------------------------------------------------------------------
# X = A⁻¹ B. Giles (2008), section 2.3.1:  dX = A⁻¹ (dB − dA X),  B̄ = A⁻ᵀ X̄,  Ā = −B̄ Xᵀ.


def _solve_infer(a: Spec, b: Spec) -> tuple[Spec]:
    _matrix("solve", a)
    if b.dtype != a.dtype or len(b.shape) not in (1, 2) or b.shape[0] != a.shape[0]:
        raise InputError(
            f"solve: argument 2 is {b} and argument 1 is {a}; it must be a vector or matrix with as many "
            f"rows, of the same dtype"
        )
    return (b,)


def _solve(a: Array, b: Array) -> Array:
    if b.ndim not in (1, 2) or b.shape[0] != a.shape[0]:
        raise ValueError
    _checked("solve", a)
    try:
        return np.ascontiguousarray(np.linalg.solve(a, b))
    except np.linalg.LinAlgError:
        raise InputError(
            f"solve: the {a.shape[0]}×{a.shape[0]} matrix is singular; its equations have no unique solution"
        ) from None


def _solve_vjp(cotangents: Any, outputs: Any, inputs: Any, parameters: tuple, wanted: Sequence[bool]) -> list:
    ct_b = solve(matrix_transpose(inputs[0]), cotangents[0])
    x = outputs[0]
    ct_a = None
    if wanted[0]:
        ct_a = -(outer(ct_b, x) if x.ndim == 1 else matmul(ct_b, matrix_transpose(x)))
    return [ct_a, ct_b]


def _solve_jvp(tangents: Any, outputs: Any, inputs: Any, parameters: tuple) -> list:
    da, db = tangents
    right = None if da is None else -matmul(da, outputs[0])
    if db is not None:
        right = db if right is None else db + right
    return [solve(inputs[0], right)]


register(
    Op(
        "solve",
        _solve_infer,
        _solve,
        _solve_vjp,
        _solve_jvp,
        lambda rng: [
            ((_spread(rng, n), rng.uniform(size=(n, *columns))), ())
            for n, columns in ((3, ()), (3, (2,)), (1, ()), (1, (1,)), (2, (0,)))
        ],
        blas=True,
    )
)


def solve(x1: Any, x2: Any, /) -> Any:
    """The solution y of Σ_j x1[i, j] y[j, …] = x2[i, …], for a vector or matrix x2.

    Raises:
        InputError: if x1 is not a square matrix, is singular, or holds NaN or infinity.
    """
    return OPS["solve"](x1, x2)


# --- Cholesky decomposition -----------------------------------------------------------------------
# sym A = L Lᵀ. I. Murray, "Differentiation of the Cholesky decomposition", arXiv:1602.07527, section 3:
#
#     dL = L Φ(L⁻¹ sym(dA) L⁻ᵀ),   Ā = sym(L⁻ᵀ Φ(Lᵀ L̄) L⁻¹)


def _cholesky_infer(a: Spec) -> tuple[Spec]:
    _matrix("cholesky", a)
    return (a,)


def _cholesky(a: Array) -> Array:
    _checked("cholesky", a)
    try:
        return np.ascontiguousarray(np.linalg.cholesky((a + a.T) * 0.5))
    except np.linalg.LinAlgError:
        raise InputError(
            f"cholesky: the {a.shape[0]}×{a.shape[0]} matrix is not positive definite; its eigenvalues must "
            f"be positive"
        ) from None


def _cholesky_vjp(
    cotangents: Any, outputs: Any, inputs: Any, parameters: tuple, wanted: Sequence[bool]
) -> list:
    (lower,) = outputs
    phi = _lower(matmul(matrix_transpose(lower), cotangents[0]), 0.5)
    return [_sym(solve(matrix_transpose(lower), _over(phi, lower)))]


def _cholesky_jvp(tangents: Any, outputs: Any, inputs: Any, parameters: tuple) -> list:
    (lower,) = outputs
    inner = _over(solve(lower, _sym(tangents[0])), matrix_transpose(lower))
    return [matmul(lower, _lower(inner, 0.5))]


register(
    Op(
        "cholesky",
        _cholesky_infer,
        _cholesky,
        _cholesky_vjp,
        _cholesky_jvp,
        lambda rng: [((_spread(rng, n),), ()) for n in (4, 2, 1)],
        blas=True,
    )
)


def cholesky(x: Any, /, *, upper: bool = False) -> Any:
    """The lower triangular l[i, a] with x[i, j] = Σ_a l[i, a] l[j, a], or its transpose if `upper`.

    It is that of the symmetric part of x.

    Raises:
        InputError: if x is not a square matrix, is not positive definite, or holds NaN or infinity.
    """
    lower = OPS["cholesky"](x)
    return matrix_transpose(lower) if upper else lower
