"""The singular value decomposition, cut to k values: one primitive, exact for the cut.

The formulas of its derivative, their sources, and what they do at equal singular values stand in
`trgbench.cut_svd`. The first k of the p = min(m, n) triplets are the result; the others are outputs that only
derivatives use, since what is kept couples to what is cut off.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import scipy.linalg
from scipy.linalg import lapack

from trgbench import cut_svd
from trgbench.engine.ops import lanczos
from trgbench.engine.ops.comparison import where
from trgbench.engine.ops.elementwise import abs
from trgbench.engine.ops.families import TIE_IN_ROUNDINGS, check_finite, float_only
from trgbench.engine.ops.reduction import sum
from trgbench.engine.ops.shape import concat, zeros_like
from trgbench.engine.ops.table import OPS, Array, Op, Spec, Value, register, shape_of
from trgbench.errors import InputError, check_choice, check_integer

NAMESPACE = SimpleNamespace(abs=abs, sum=sum, where=where)  # what `cut_svd` uses of an array namespace


class CutThroughTie(RuntimeWarning):
    """The SVD was cut between equal values: what is kept, and its derivative, is a matter of rounding."""


def matrix_shape(a: Spec) -> tuple[int, int]:
    """Return the shape of a matrix; refuse what is none."""
    if len(a.shape) != 2:
        raise InputError(f"svd: the operand must be a matrix; got {a}")
    m, n = a.shape
    return m, n


def check_cut(a: Spec, k: int) -> None:
    """Refuse to keep k values of a matrix that has fewer, or none."""
    if not 1 <= k <= min(a.shape):
        raise InputError(f"svd: k must be from 1 to {min(a.shape)} for {a}; got {k}")


def _svd_infer(a: Spec, k: int) -> tuple[Spec, ...]:
    float_only("svd", a)
    (m, n), p = matrix_shape(a), min(a.shape)
    check_cut(a, k)
    shapes = ((m, k), (k,), (k, n), (m, p - k), (p - k,), (p - k, n))
    return tuple(Spec(shape, a.dtype) for shape in shapes)


def full_svd(a: Array) -> cut_svd.Factors:
    """Return the thin SVD U (m, p), s (p,), Vᵀ (p, n) of a finite matrix, p = min(m, n)."""
    # LAPACK stores by columns, so that it sees Aᵀ = V S Uᵀ, and gives Vᵀ and U as they are wanted.
    divide_and_conquer = lapack.dgesdd if a.dtype == np.float64 else lapack.sgesdd
    v, s, uh, failed = divide_and_conquer(a.T, full_matrices=0)
    if failed:  # it did not converge: the slower QR iteration does
        u, s, vh = scipy.linalg.svd(a, full_matrices=False, lapack_driver="gesvd")
        return u, s, vh
    return uh.T, s, v.T


def warn_of_tie(s: Array, k: int, p: int) -> None:
    """Warn if the cut at k parts equal ones of the p values, of which `s` holds the first k + 1 at least."""
    rounding = float(np.finfo(s.dtype).eps)
    if k < p and s[k - 1] - s[k] < TIE_IN_ROUNDINGS * rounding * s[k - 1] and s[k] > p * rounding * s[0]:
        warnings.warn(
            f"svd: the cut at k={k} parts s_k={s[k - 1]:.6g} from s_k+1={s[k]:.6g}, whose gap of "
            f"{s[k - 1] - s[k]:.2g} is rounding; keep both or neither",
            CutThroughTie,
            stacklevel=3,
        )


def _svd(a: Array, k: int) -> tuple[Array, ...]:
    if not 1 <= k <= min(a.shape, default=0) or a.ndim != 2:
        raise ValueError  # the shape rule says what is wrong
    check_finite("svd", a)
    u, s, vh = full_svd(a)
    warn_of_tie(s, k, len(s))
    cut = (u[:, :k], s[:k], vh[:k], u[:, k:], s[k:], vh[k:])
    return tuple(np.ascontiguousarray(part) for part in cut)


def rounding_of(x: Value | Array) -> float:
    """Return the ε of `trgbench.cut_svd` for the dtype of x."""
    return TIE_IN_ROUNDINGS * float(np.finfo(x.dtype).eps)


def _joined(parts: Sequence[Any]) -> cut_svd.Factors:
    """Return (U, s, Vᵀ) of all p triplets."""
    u, s, vh, u_rest, s_rest, vh_rest = parts
    if not s_rest.shape[0]:
        return u, s, vh
    return concat([u, u_rest], axis=1), concat([s, s_rest], axis=0), concat([vh, vh_rest], axis=0)


def _svd_vjp(cotangents: Any, outputs: Any, inputs: Any, parameters: tuple, wanted: Sequence[bool]) -> list:
    full = _joined(outputs)
    given = [ct is not None for ct in cotangents]
    cts = [zeros_like(y) if ct is None else ct for ct, y in zip(cotangents, outputs, strict=True)]
    if any(given[3:]):  # only in a derivative of a derivative: every triplet carries a cotangent
        p, joined = full[1].shape[0], _joined(cts)
        return [cut_svd.vjp(NAMESPACE, full, p, joined, rounding_of(full[1]))]
    if not (given[0] or given[2]):
        return [(outputs[0] * cts[1]) @ outputs[2]]
    return [cut_svd.vjp(NAMESPACE, full, parameters[0], (cts[0], cts[1], cts[2]), rounding_of(full[1]))]


def _svd_jvp(tangents: Any, outputs: Any, inputs: Any, parameters: tuple) -> list:
    (k,), full = parameters, _joined(outputs)
    kept = cut_svd.jvp(NAMESPACE, full, k, tangents[0], rounding_of(full[1]))
    p = full[1].shape[0]
    if k == p:
        return [*kept, None, None, None]
    # Dead code, unless a derivative is taken of this derivative.
    du, ds, dvh = cut_svd.jvp(NAMESPACE, full, p, tangents[0], rounding_of(full[1]))
    return [*kept, du[:, k:], ds[k:], dvh[k:, :]]


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
        blas=True,
    )
)


METHODS = ("auto", "full", "lanczos")


def svd(x: Any, /, k: int | None = None, *, method: str = "auto") -> tuple[Any, Any, Any]:
    """Thin singular value decomposition of x[i, j], cut to the k largest values (all by default).

    Args:
        method: "full" computes all min(m, n) triplets (LAPACK); "lanczos" only the leading ones, and takes
            the full method where it cannot vouch for them (values that fall slowly, a rank below k, one value
            many times); "auto" chooses by shape and k what costs less. They agree to rounding.

    Returns:
        u[i, a], s[a] in descending order, vh[a, j] with x ≈ Σ_a u[i, a] s[a] vh[a, j].

    Raises:
        InputError: if x is not a matrix, holds NaN or infinity, or k is not from 1 to min(m, n).
    """
    check_choice("method", method, METHODS)
    shape = shape_of(x)
    cut = min(shape, default=0) if k is None else check_integer("k", k, minimum=1)
    if method == "auto":
        method = "lanczos" if len(shape) == 2 and lanczos.pays(shape, cut) else "full"
    name = "svd" if method == "full" else "svd_leading"
    u, s, vh, *_ = OPS[name](x, parameters=(cut,))
    return u, s, vh
