"""The leading singular triplets of a matrix by block Lanczos, and linear equations on what they leave out.

The matrix is given by what it does to a block of columns (`Operator`), so it need not be formed.

Both functions return `None` where they cannot vouch for the result: the caller then takes the full method.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from trgbench.engine.ops.families import TIE_IN_ROUNDINGS
from trgbench.engine.ops.table import FLOATS, Array

Triplets = tuple[Array, Array, Array]

RESIDUAL_IN_ROUNDINGS = 8  # of s_1: as exact as LAPACK's own
CLUSTER = 1e-6  # values within this of each other, relatively, may be one value to the Lanczos process
CONJUGATE_GRADIENT_STEPS = 50
_HALF_THE_DIGITS = {dtype: float(np.sqrt(np.finfo(dtype).eps)) for dtype in FLOATS}


class Operator(NamedTuple):
    """A real matrix M[i, j] by its products with blocks of columns.

    Attributes:
        shape: (m, n).
        dtype: of the matrix and of the blocks.
        times: X[j, a] → Σ_j M[i, j] X[j, a], a new array.
        transposed_times: Y[i, a] → Σ_i M[i, j] Y[i, a], a new array.
        dense: () → M, for the full method.
        formed: M exists, and `dense` costs nothing.
    """

    shape: tuple[int, int]
    dtype: np.dtype
    times: Callable[[Array], Array]
    transposed_times: Callable[[Array], Array]
    dense: Callable[[], Array]
    formed: bool = False


def of_matrix(a: Array) -> Operator:
    """Return the operator of a matrix that is formed."""
    return Operator(a.shape, a.dtype, lambda x: np.dot(a, x), lambda y: np.dot(a.T, y), lambda: a, True)


def block_width(k: int) -> int:
    """Return how many columns a Lanczos block has for k triplets."""
    return 8 * -(-k // 24)


def pays(shape: tuple[int, int], k: int) -> bool:
    """Return whether k triplets of a matrix with falling singular values cost less by `leading` than in full.

    Measured: at 64×64 the two cost the same for k = 8; at 144×144 `leading` costs half for k = 12, at 256×256
    a sixth for k = 16 and at 1024×1024 a tenth for k = 32.
    """
    p = min(shape)
    return p >= 128 and p >= 10 * k


@lru_cache(64)
def _first_block(n: int, width: int, dtype: np.dtype) -> Array:
    """A fixed random block: the same matrix gives the same bits in every mode and process."""
    normal = np.random.default_rng(n).standard_normal((n, width))
    return np.linalg.qr(normal)[0].astype(dtype)


def _appended(basis: Array, block: Array) -> tuple[Array, Array, Array] | None:
    """Return (q, h, r) with block = basis h + q r and orthonormal (basis, q), or `None` if that fails.

    Gram–Schmidt before and after the QR decomposition, which also normalises what is rounding, and so not
    orthogonal, where r is tiny. It fails where it normalises nothing, as for the zero matrix. `block` is
    overwritten.
    """
    h = np.dot(basis.T, block)
    block -= np.dot(basis, h)
    q, r = np.linalg.qr(block)
    for _ in range(3):
        correction = np.dot(basis.T, q)
        q -= np.dot(basis, correction)
        h += np.dot(correction, r)
        # What this took from q's own orthonormality is the square of it.
        if np.abs(correction).max(initial=0.0) <= _HALF_THE_DIGITS[q.dtype]:
            return q, h, r
        q, again = np.linalg.qr(q)
        r = np.dot(again, r)
    return None


def leading(operator: Operator, k: int, count: int) -> Triplets | None:
    """Return the `count` largest singular triplets U (m, count), s, Vᵀ (count, n), of which k + 1 are exact.

    Block Golub–Kahan–Lanczos bidiagonalisation with full reorthogonalisation (G. H. Golub, F. T. Luk, M. L.
    Overton, ACM Trans. Math. Softw. 7, 149 (1981)): orthonormal bases with

        M V = U B,   Mᵀ U = V Bᵀ + Z,   Z the next block,

    give Ritz triplets of the small matrix B, whose residual ‖Mᵀ u − s v‖ is that of Z alone. They are
    accepted when it is rounding for the first k + 1. The others, not yet converged, are near triplets of M.

    A block of b columns sees each value at most b times, so b equal values may hide more of them: then, as
    when the values fall too slowly, s_k is rounding or something overflows, the result is `None`.
    """
    m, n = operator.shape
    width, most = block_width(k), min(m, n) // 2
    eps = float(np.finfo(operator.dtype).eps)
    look = max(count, k) + width  # the dimension at which to look at the Ritz triplets
    if look > most:
        return None
    # By columns: a third of the price in a product with the leading ones.
    u_basis, v_basis = (np.empty((length, most), operator.dtype, order="F") for length in (m, n))
    small = np.zeros((most, most), operator.dtype)
    block = _first_block(n, width, operator.dtype)
    v_basis[:, :width] = block
    for end in range(width, most + 1, width):
        begin = end - width
        new = slice(begin, end)
        appended = _appended(u_basis[:, :begin], operator.times(block))
        if appended is None:
            return None
        block = appended[0]
        u_basis[:, new], small[:begin, new], small[new, new] = appended
        rest = operator.transposed_times(block)
        rest -= np.dot(v_basis[:, :end], np.dot(v_basis[:, :end].T, rest))
        if end >= look:
            if not np.isfinite(rest).all():
                return None
            u, s, vh = np.linalg.svd(small[:end, :end])
            # Relative to s_1 before it is squared, or the square of a small matrix would be 0.
            residuals = np.dot(rest, u[new, : k + 1]) / s[0]
            if np.sqrt(np.max(_squared_norms(residuals))) <= RESIDUAL_IN_ROUNDINGS * eps:
                if not _certain(s, k, width):
                    return None
                u_kept, vh_kept = (
                    np.dot(u_basis[:, :end], u[:, :count]),
                    np.dot(vh[:count], v_basis[:, :end].T),
                )
                return u_kept, s[:count].copy(), vh_kept
        if end + width > most:
            return None
        appended = _appended(v_basis[:, :end], rest)
        if appended is None:
            return None
        block = appended[0]
        v_basis[:, end : end + width] = block
    return None


def _certain(s: Array, k: int, width: int) -> bool:
    """Return whether no value can be missing among the first k, and none of them is rounding."""
    rounding = TIE_IN_ROUNDINGS * np.finfo(s.dtype).eps * s[0]
    spread = s[:k] - s[width - 1 : width - 1 + k]
    return bool(s[k - 1] > rounding and np.all(spread > np.maximum(CLUSTER * s[:k], rounding)))


def complement(
    operator: Operator, kept: Triplets, near: tuple[Array, Array], c: Array, d: Array
) -> tuple[Array, Array] | None:
    """Return the X = P X, shape (m, k), and Y = Q Y, (n, k), with X S − M Y = P C and Y S − Mᵀ X = Q D.

    U (m, k), S = diag(s), Vᵀ (k, n) are the `kept` triplets, P = I − U Uᵀ, Q = I − V Vᵀ, and `near` are
    (U, s) of some that follow them. Without Y, each column j of X obeys

        (s_j² − N Nᵀ) x_j = (C S + N D)_j,   N = P M Q = M − U S Vᵀ,

    positive definite since s_j exceeds the values of N. Conjugate gradients, with what `near` knows of N as
    preconditioner, need no step to four of them at TRG's values.

    The result is `None` where nothing or a tie of s_k was cut off, or they do not converge.
    """
    u, s, vh = kept
    u_near, s_near = near
    if not len(s_near):
        return None
    eps = float(np.finfo(operator.dtype).eps)
    scale = 1.0 / s[0]  # of order 1: the equations have squares
    s, s_near = s * scale, s_near * scale
    squares, near_squares = s * s, s_near * s_near
    if not s[-1] - s_near[0] > TIE_IN_ROUNDINGS * eps:  # a tie at the cut, or NaN
        return None
    times, transposed_times = _deflated(operator, kept, scale)
    # By a power of two, which changes no bit: cotangents have the scale of the matrix, and are squared.
    exponent = np.frexp(max(np.abs(c).max(), np.abs(d).max()))[1]
    c, d = np.ldexp(c, -exponent), np.ldexp(d, -exponent)
    c -= np.dot(u, np.dot(u.T, c))
    d -= np.dot(vh.T, np.dot(vh, d))
    right = times(d)
    right += c * s
    weights = near_squares[:, None] / (squares - near_squares[:, None])

    def preconditioned(r: Array) -> Array:
        z = np.dot(u_near, weights * np.dot(u_near.T, r))
        z += r
        z /= squares
        return z

    def applied(x: Array) -> Array:
        y = x * squares
        y -= times(transposed_times(x))
        return y

    # As exact as N is relative to s_j, whose elements carry roundings of s_1.
    allowed = np.maximum(1e-12, 64 * eps / s) ** 2 * _squared_norms(right)
    x = preconditioned(right)
    r = right - applied(x)
    direction = z = preconditioned(r)
    product = _products(r, z)
    for _ in range(CONJUGATE_GRADIENT_STEPS):
        if (_squared_norms(r) <= allowed).all():
            break
        image = applied(direction)
        curvature = _products(direction, image)
        step = product / np.where(curvature > 0.0, curvature, 1.0)
        x += step * direction
        r -= step * image
        z = preconditioned(r)
        before, product = product, _products(r, z)
        direction = z + product / np.where(before > 0.0, before, 1.0) * direction
    else:
        return None
    y = transposed_times(x)
    y += d
    y /= s
    x = x - np.dot(u, np.dot(u.T, x))
    y -= np.dot(vh.T, np.dot(vh, y))
    x *= scale
    y *= scale
    return np.ldexp(x, exponent), np.ldexp(y, exponent)


def _deflated(
    operator: Operator, kept: Triplets, scale: float
) -> tuple[Callable[[Array], Array], Callable[[Array], Array]]:
    """Return the products with N = M − U S Vᵀ and Nᵀ, times `scale`."""
    u, s, vh = kept
    us = u * s
    if operator.formed:
        n = operator.dense() - np.dot(us, vh)
        n *= scale
        return lambda x: np.dot(n, x), lambda y: np.dot(n.T, y)

    def times(x: Array) -> Array:
        y = operator.times(x)
        y -= np.dot(us, np.dot(vh, x))
        y *= scale
        return y

    def transposed_times(y: Array) -> Array:
        x = operator.transposed_times(y)
        x -= np.dot(vh.T, np.dot(us.T, y))
        x *= scale
        return x

    return times, transposed_times


def _products(x: Array, y: Array) -> Array:
    """Σ_i x[i, j] y[i, j]."""
    return np.einsum("ij,ij->j", x, y)


def _squared_norms(x: Array) -> Array:
    return _products(x, x)
