"""The SVD cut to k values by Lanczos: of a matrix, and of one that is never formed, as primitives.

Each comes with a second primitive, its `complement`: what couples the kept triplets to those cut off, solved
for (see `trgbench.cut_svd`). With it the derivative needs no triplet but the kept ones, at every order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from math import prod
from typing import Any, NamedTuple

import numpy as np
import opt_einsum

from trgbench import cut_svd
from trgbench.engine.ops import lanczos
from trgbench.engine.ops.contraction import matmul
from trgbench.engine.ops.einsum import einsum
from trgbench.engine.ops.families import check_finite, float_only
from trgbench.engine.ops.linalg import (
    NAMESPACE,
    check_cut,
    full_svd,
    matrix_shape,
    rounding_of,
    warn_of_tie,
)
from trgbench.engine.ops.reduction import sum
from trgbench.engine.ops.shape import concat, reshape, zeros_like
from trgbench.engine.ops.table import OPS, Array, Op, Shape, Spec, register, shape_of
from trgbench.errors import InputError, check_integer

Pair = tuple[Any, Any]


class Kind(NamedTuple):
    """How a matrix M[i, j] is given by the operands of a primitive.

    Attributes:
        shape: (specs, parameters) → (m, n), refusing illegal operands.
        operator: (arrays, parameters) → M as an operator on arrays.
        times: (inputs, parameters, x, transposed) → M x or Mᵀ x, of table operations.
        pull: (inputs, parameters, pairs, wanted) → cotangents of the inputs, where that of M is Σ L Rᵀ over
            the pairs of L (m, r) and R (n, r).
    """

    shape: Callable[[Sequence[Spec], tuple], tuple[int, int]]
    operator: Callable[[Sequence[Array], tuple], lanczos.Operator]
    times: Callable[[Sequence[Any], tuple, Any, bool], Any]
    pull: Callable[[Sequence[Any], tuple, Sequence[Pair], Sequence[bool]], list]


def _register(name: str, kind: Kind, parameters: tuple[str, ...] = ()) -> None:
    """Enter the SVD of one kind of matrix, and its complement, in the table; k is their last parameter."""

    def infer(*given: Any) -> tuple[Spec, ...]:
        specs, (*values, k) = _parted(given)
        float_only(name, *specs)
        dtype = specs[0].dtype
        m, n = kind.shape(specs, tuple(values))
        check_cut(Spec((m, n), dtype), k)
        near = _count((m, n), k) - k
        shapes = ((m, k), (k,), (k, n), (m, near), (near,))
        return tuple(Spec(shape, dtype) for shape in shapes)

    def kernel(*given: Any) -> tuple[Array, ...]:
        arrays, (*values, k) = _parted(given)
        infer(*(Spec(a.shape, a.dtype) for a in arrays), *values, k)
        for a in arrays:
            check_finite("svd", a)
        operator = kind.operator(arrays, tuple(values))
        count = _count(operator.shape, k)
        u, s, vh = lanczos.leading(operator, k, count) or full_svd(operator.dense())
        warn_of_tie(s, k, min(operator.shape))
        parts = (u[:, :k], s[:k], vh[:k], u[:, k:count], s[k:count])
        return tuple(np.ascontiguousarray(part) for part in parts)

    def coupled(inputs: Sequence[Any], outputs: Sequence[Any], values: tuple) -> cut_svd.Complement:
        u, s, vh, *near = outputs
        return lambda c, d: OPS[f"{name}_complement"](*inputs, u, s, vh, *near, c, d, parameters=values)

    def vjp(cts: Any, outputs: Any, inputs: Any, values: tuple, wanted: Sequence[bool]) -> list:
        u, s, vh, *_ = outputs
        ct_u, ct_s, ct_vh, *_ = cts  # the near triplets are nobody's result
        if ct_u is None and ct_vh is None:
            return kind.pull(inputs, values[:-1], [(u * ct_s, vh.T)], wanted)
        full = (
            zeros_like(u) if ct_u is None else ct_u,
            zeros_like(s) if ct_s is None else ct_s,
            zeros_like(vh) if ct_vh is None else ct_vh,
        )
        left, right = cut_svd.vjp_factors(
            NAMESPACE, (u, s, vh), values[-1], full, rounding_of(s), coupled(inputs, outputs, values)
        )
        return kind.pull(inputs, values[:-1], [(left, vh.T), (u, right)], wanted)

    def jvp(tangents: Any, outputs: Any, inputs: Any, values: tuple) -> list:
        u, s, vh, *_ = outputs
        left, right = (
            _along(kind, inputs, tangents, values[:-1], x, t) for x, t in ((vh.T, False), (u, True))
        )
        kept = cut_svd.jvp_of_products(
            NAMESPACE, (u, s, vh), values[-1], left, right, rounding_of(s), coupled(inputs, outputs, values)
        )
        return [*kept, None, None]

    register(Op(name, infer, kernel, vjp, jvp, _no_samples, parameters=(*parameters, "k"), outputs=5))
    _register_complement(name, kind, parameters)


def _parted(given: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """Part operands from the metadata behind them."""
    count = next(i for i, x in enumerate(given) if not isinstance(x, (Spec, np.ndarray)))
    return list(given[:count]), list(given[count:])


def _no_samples(rng: np.random.Generator) -> list:
    """None that vary freely: near triplets have no derivative, and a complement's operands obey equations."""
    return []


def _count(shape: tuple[int, int], k: int) -> int:
    """How many triplets the SVD's primitive returns: the k kept, and as many near ones."""
    return min(2 * k, *shape)


def _along(kind: Kind, inputs: Any, tangents: Any, values: tuple, x: Any, transposed: bool) -> Any:
    """Return dM x or dMᵀ x: M is linear in each of its operands."""
    total = None
    for position, tangent in enumerate(tangents):
        if tangent is not None:
            moved = [tangent if i == position else operand for i, operand in enumerate(inputs)]
            part = kind.times(moved, values, x, transposed)
            total = part if total is None else total + part
    return total


# --- the complement -------------------------------------------------------------------------------
# With L (X, Y) = (X S − M Y, Y S − Mᵀ X) on the complements, L (X, Y) = (P C, Q D) and UᵀX = VᵀY = 0 give
#
#     P dX, Q dY = L⁻¹ (P [dC + dM Y − X dS − dU UᵀC], Q [dD + dMᵀ X − Y dS − dV VᵀD]),
#     UᵀdX = −dUᵀX,   VᵀdY = −dVᵀY,
#
# and, L being symmetric, with (Λ, Μ) = L⁻¹ (P X̄, Q Ȳ),
#
#     C̄ = Λ,  D̄ = Μ,  M̄ = Λ Yᵀ + X Μᵀ,  s̄_j = −Σ_i (Λ ∘ X)_ij − Σ_i (Μ ∘ Y)_ij,
#     Ū = −Λ (UᵀC)ᵀ − X (UᵀX̄)ᵀ,   V̄ = −Μ (VᵀD)ᵀ − Y (VᵀȲ)ᵀ.


def _register_complement(name: str, kind: Kind, parameters: tuple[str, ...]) -> None:
    full_name = f"{name}_complement"

    def split(operands: Sequence[Any]) -> tuple[Any, Any, Any, Any, Any]:
        *inputs, u, s, vh, u_near, s_near, c, d = operands
        return inputs, (u, s, vh), (u_near, s_near), c, d

    def infer(*given: Any) -> tuple[Spec, ...]:
        specs, _ = _parted(given)
        return tuple(specs[-2:])

    def kernel(*given: Any) -> tuple[Array, ...]:
        arrays, values = _parted(given)
        inputs, kept, near, c, d = split(arrays)
        operator = kind.operator(inputs, tuple(values[:-1]))
        found = lanczos.complement(operator, kept, near, c, d)
        x, y = found or _spectral_complement(operator.dense(), kept, c, d)
        return np.ascontiguousarray(x), np.ascontiguousarray(y)

    def vjp(cts: Any, outputs: Any, operands: Any, values: tuple, wanted: Sequence[bool]) -> list:
        (x, y), (inputs, (u, _, vh), _, c, d) = outputs, split(operands)
        ct_x, ct_y = (zeros_like(o) if ct is None else ct for ct, o in zip(cts, outputs, strict=True))
        back_x, back_y = OPS[full_name](*operands[:-2], ct_x, ct_y, parameters=values)
        ct_u = -(back_x @ (u.T @ c).T) - x @ (u.T @ ct_x).T
        ct_v = -(back_y @ (vh @ d).T) - y @ (vh @ ct_y).T
        ct_s = -sum(back_x * x, axis=0) - sum(back_y * y, axis=0)
        pulled = kind.pull(inputs, values[:-1], [(back_x, y), (x, back_y)], wanted[: len(inputs)])
        return [*pulled, ct_u, ct_s, ct_v.T, None, None, back_x, back_y]

    def jvp(tangents: Any, outputs: Any, operands: Any, values: tuple) -> list:
        (x, y), (inputs, (u, s, vh), _, c, d) = outputs, split(operands)
        d_inputs, d_kept, _, dc, dd = split(tangents)
        du, ds, dvh = (zeros_like(o) if t is None else t for t, o in zip(d_kept, (u, s, vh), strict=True))
        right_c, right_d = -(x * ds) - du @ (u.T @ c), -(y * ds) - dvh.T @ (vh @ d)
        if any(tangent is not None for tangent in d_inputs):
            right_c = right_c + _along(kind, inputs, d_inputs, values[:-1], y, False)
            right_d = right_d + _along(kind, inputs, d_inputs, values[:-1], x, True)
        right_c = right_c if dc is None else right_c + dc
        right_d = right_d if dd is None else right_d + dd
        dx, dy = OPS[full_name](*operands[:-2], right_c, right_d, parameters=values)
        return [dx - u @ (du.T @ x), dy - vh.T @ (dvh @ y)]

    register(Op(full_name, infer, kernel, vjp, jvp, _no_samples, parameters=(*parameters, "k"), outputs=2))


def _spectral_complement(a: Array, kept: cut_svd.Factors, c: Array, d: Array) -> tuple[Array, Array]:
    """The complement by the full SVD, with a quotient left out where it would divide by rounding."""
    u, s, vh = kept
    k = len(s)
    c = c - u @ (u.T @ c)
    d = d - vh.T @ (vh @ d)
    u_all, s_all, vh_all = full_svd(a)
    minus, plus = cut_svd.differences_and_sums(np, s_all, k, rounding_of(s_all))
    p, q = u_all[:, k:].T @ c, vh_all[k:] @ d
    p, q = (p + q) * minus[k:], (p - q) * plus[k:]
    x, y = u_all[:, k:] @ (p + q), vh_all[k:].T @ (p - q)
    inverses = cut_svd.inverse_values(np, s_all, k, rounding_of(s_all))
    if a.shape[0] > len(s_all):
        x += (c - u_all @ (u_all.T @ c)) * inverses
    if a.shape[1] > len(s_all):
        y += (d - vh_all.T @ (vh_all @ d)) * inverses
    return x, y


# --- a matrix that is formed ----------------------------------------------------------------------


def _matrix_pull(inputs: Any, parameters: tuple, pairs: Sequence[Pair], wanted: Any) -> list:
    total = None
    for left, right in pairs:
        part = left @ right.T
        total = part if total is None else total + part
    return [total]


_register(
    "svd_leading",
    Kind(
        shape=lambda specs, parameters: matrix_shape(specs[0]),
        operator=lambda arrays, parameters: lanczos.of_matrix(arrays[0]),
        times=lambda inputs, parameters, x, transposed: matmul(inputs[0].T if transposed else inputs[0], x),
        pull=_matrix_pull,
    ),
)


# --- a matrix that is a network of tensors, and never formed --------------------------------------
# M[r, c] = Σ A[…] B[…] …, by Einstein's rule, the letters of the rows and of the columns together making r
# and c. M X is the same sum with X[c, α] as one more factor, and the cotangent of A, where that of M is L Rᵀ,
# is the sum of the other factors with L[r, α] and R[c, α].


class _Letters(NamedTuple):
    """Of each operand, the rows and the columns, with a letter for the columns of a block, and lengths."""

    operands: tuple[str, ...]
    rows: str
    columns: str
    block: str
    lengths: dict[str, int]

    def shape(self, letters: str) -> Shape:
        return tuple(self.lengths[letter] for letter in letters)

    @property
    def matrix(self) -> tuple[int, int]:
        return prod(self.shape(self.rows)), prod(self.shape(self.columns))


@lru_cache(256)
def _letters(subscripts: str, shapes: tuple[Shape, ...]) -> _Letters:
    operands, arrow, result = subscripts.replace(" ", "").partition("->")
    rows, comma, columns = result.partition(",")
    words = tuple(operands.split(","))
    lengths: dict[str, int] = {}
    fits = arrow and comma and rows and columns and len(words) == len(shapes)
    if fits:
        for word, shape in zip(words, shapes, strict=True):
            fits = fits and len(word) == len(shape) == len(set(word))
            for letter, length in zip(word, shape, strict=False):
                fits = fits and lengths.setdefault(letter, length) == length and letter.isalpha()
        fits = fits and len({*rows, *columns}) == len(rows + columns) and {*rows, *columns} <= lengths.keys()
    if not fits:
        listed = ", ".join(map(str, shapes))
        raise InputError(
            f"network_svd: {subscripts!r} does not fit operands of shapes {listed}; write the letters of "
            f"each operand's axes, then those of the rows and of the columns, as in 'iab,jab->i,j'"
        )
    block = next(letter for letter in "αβγ" if letter not in lengths)
    return _Letters(words, rows, columns, block, lengths)


@lru_cache(256)
def _expression(subscripts: str, shapes: tuple[Shape, ...]) -> Any:
    return opt_einsum.contract_expression(subscripts, *shapes)


def _contracted(subscripts: str, *arrays: Array) -> Array:
    return _expression(subscripts, tuple(a.shape for a in arrays))(*arrays)


def _network_operator(arrays: Sequence[Array], parameters: tuple) -> lanczos.Operator:
    words = _letters(parameters[0], tuple(a.shape for a in arrays))
    m, n = words.matrix
    joined = ",".join(words.operands)

    def product(x: Array, given: str, wanted: str) -> Array:
        block = x.reshape((*words.shape(given), x.shape[1]))
        result = _contracted(
            f"{joined},{given}{words.block}->{wanted}{words.block}", *arrays, np.ascontiguousarray(block)
        )
        return np.array(result.reshape(-1, x.shape[1]), order="C")

    return lanczos.Operator(
        (m, n),
        arrays[0].dtype,
        lambda x: product(x, words.columns, words.rows),
        lambda y: product(y, words.rows, words.columns),
        lambda: _contracted(f"{joined}->{words.rows}{words.columns}", *arrays).reshape(m, n),
    )


def _network_times(inputs: Sequence[Any], parameters: tuple, x: Any, transposed: bool) -> Any:
    words = _letters(parameters[0], tuple(shape_of(a) for a in inputs))
    given, wanted = (words.columns, words.rows)[:: -1 if transposed else 1]
    block = reshape(x, (*words.shape(given), x.shape[1]))
    product = einsum(
        f"{','.join(words.operands)},{given}{words.block}->{wanted}{words.block}", *inputs, block
    )
    return reshape(product, (prod(words.shape(wanted)), x.shape[1]))


def _network_pull(
    inputs: Sequence[Any], parameters: tuple, pairs: Sequence[Pair], wanted: Sequence[bool]
) -> list:
    words = _letters(parameters[0], tuple(shape_of(a) for a in inputs))
    sides = [concat(list(side), axis=1) if len(pairs) > 1 else side[0] for side in zip(*pairs, strict=True)]
    factors = [
        reshape(side, (*words.shape(letters), side.shape[1]))
        for side, letters in zip(sides, (words.rows, words.columns), strict=True)
    ]
    ends = [f"{words.rows}{words.block}", f"{words.columns}{words.block}"]
    result: list[Any] = []
    for position, (word, want) in enumerate(zip(words.operands, wanted, strict=True)):
        others = [i for i in range(len(inputs)) if i != position]
        subscripts = ",".join([*(words.operands[i] for i in others), *ends]) + f"->{word}"
        result.append(einsum(subscripts, *(inputs[i] for i in others), *factors) if want else None)
    return result


_register(
    "network_svd",
    Kind(
        shape=lambda specs, parameters: _letters(parameters[0], tuple(s.shape for s in specs)).matrix,
        operator=_network_operator,
        times=_network_times,
        pull=_network_pull,
    ),
    ("subscripts",),
)


def network_svd(subscripts: str, /, *operands: Any, k: int) -> tuple[Any, Any, Any]:
    """The k largest singular triplets of a matrix that is a network of tensors and is not formed.

    `subscripts` are those of `einsum`, the letters of the matrix's rows before those of its columns: with
    "iab,jab->i,j" it is Σ_ab A[i, a, b] B[j, a, b].

    Returns:
        u[r, a], s[a] in descending order, vh[a, c]; r and c number the rows and the columns in C order.

    Raises:
        InputError: if the subscripts do not fit, an operand holds NaN or infinity, or k is not from 1 to the
            shorter side of the matrix.

    >>> import numpy
    >>> network_svd("ia,ja->i,j", numpy.eye(3), numpy.diag([1.0, 3.0, 2.0]), k=2)[1]
    array([3., 2.])
    """
    u, s, vh, *_ = OPS["network_svd"](*operands, parameters=(subscripts, check_integer("k", k, minimum=1)))
    return u, s, vh
