"""Tensor renormalisation group on the square lattice.

The scheme of M. Levin and C. P. Nave, Phys. Rev. Lett. 99, 120601 (2007).

Written once, against the Python array API standard: `xp` is any array namespace and `svd(matrix, k)`
a thin singular value decomposition cut to its k largest values, shapes (m, n) → (m, k), (k,), (k, n).

A tensor T[u,r,d,l] stands for one site with its four bonds. A step of TRG replaces it by a tensor that
stands for two sites, on a lattice rotated by 45°; `steps` steps and a trace give a periodic lattice of
2^steps sites (4×4 after 4 steps), and, with nothing cut off, give it exactly.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from trgbench import ising
from trgbench.errors import check_integer

SVD = Any  # a callable (matrix, k) -> (u, s, vh)

ROUNDING = 1e-32
"""Added to every singular value (the matrices have norm 1), because √s has no derivative at an exact 0.

Such zeros occur at large β, where the tensor has a lower rank. A value above 1e-16 keeps all its bits.
"""


def bond_dimensions(chi: int, steps: int) -> tuple[int, ...]:
    """Return k_i, the number of singular values kept by step i: min(χ, rank of what is split).

    What step i splits is a ring of four half-tensors of step i−1, two and two, which are joined by bonds
    made in step i−2; so its rank is at most k_{i−2}². The bonds of the initial tensor have dimension 2,
    and so has its rank. Uncut that is 2, 4, 4, 16, 16, 256, 256, …; to keep more would keep values that
    are rounding (1e-16), whose square roots poison the derivative.

    Raises:
        InputError: if `chi` is not a whole number of at least 2 or `steps` of at least 1.

    >>> bond_dimensions(chi=16, steps=7), bond_dimensions(chi=24, steps=6)
    ((2, 4, 4, 16, 16, 16, 16), (2, 4, 4, 16, 16, 24))
    """
    chi, steps = check_integer("chi", chi, minimum=2), check_integer("steps", steps, minimum=1)
    bonds = [2, 2]
    for _ in range(steps - 1):
        bonds.append(min(chi, bonds[-2] ** 2))
    return tuple(bonds[1:])


def split(xp: Any, svd: SVD, matrix: Any, k: int) -> tuple[Any, Any]:
    """Return half-tensors with left[i,j,a] right[a,m,n] ≈ matrix (i j | m n), √s on both sides.

    The matrix is (d², d²); shapes (d, d, k) and (k, d, d).
    """
    d = round(matrix.shape[0] ** 0.5)
    u, s, vh = svd(matrix, k)
    root = xp.sqrt(s + ROUNDING)
    return xp.reshape(u * root, (d, d, k)), xp.reshape(xp.reshape(root, (k, 1)) * vh, (k, d, d))


def cut_matrices(xp: Any, tensor: Any) -> tuple[Any, Any]:
    """Return T[u,r,d,l] as the two matrices that a step splits, (u r | d l) and (u l | d r)."""
    d = tensor.shape[0]
    return (
        xp.reshape(tensor, (d * d, d * d)),
        xp.reshape(xp.permute_dims(tensor, (0, 3, 2, 1)), (d * d, d * d)),
    )


def contract(xp: Any, s1: Any, s3: Any, s2: Any, s4: Any) -> Any:
    """Return T'[b,a,c,e] = Σ_wxyz S4[b,z,w] S3[a,x,w] S2[x,y,c] S1[z,y,e], four halves round a plaquette.

    Shapes: S1 (d, d, k), S3 (k, d, d) from (u r | d l); S2 (d, d, k), S4 (k, d, d) from (u l | d r).
    """
    upper = xp.tensordot(s4, s3, axes=((2,), (2,)))  # [b,z,a,x]
    lower = xp.tensordot(s2, s1, axes=((1,), (1,)))  # [x,c,z,e]
    return xp.tensordot(upper, lower, axes=((1, 3), (2, 0)))


def initial(xp: Any, svd: SVD, beta: Any) -> tuple[Any, None]:
    """First stage: β → the initial tensor; adds nothing to lnZ/N."""
    return ising.initial_tensor(xp, beta), None


@dataclass(frozen=True)
class Step:
    """Stage: T[u,r,d,l] → the tensor of twice as many sites, bonds cut to `k`; its term is ln ‖T‖_F."""

    k: int

    def __call__(self, xp: Any, svd: SVD, tensor: Any) -> tuple[Any, Any]:
        norm = xp.sqrt(xp.sum(tensor * tensor))
        first, second = cut_matrices(xp, tensor / norm)
        s1, s3 = split(xp, svd, first, self.k)
        s2, s4 = split(xp, svd, second, self.k)
        return contract(xp, s1, s3, s2, s4), xp.log(norm)


def log_trace(xp: Any, svd: SVD, tensor: Any) -> tuple[None, Any]:
    """Last stage: ln Σ_ur T[u,r,u,r], the one tensor left, closed on itself."""
    return None, xp.log(xp.linalg.trace(cut_matrices(xp, tensor)[0]))


# Matrix-free: a tensor is never formed, but kept as the four halves whose ring it is, stacked: (4, d, d, k).
# S. Morita, R. Igarashi, H.-H. Zhao, N. Kawashima, Phys. Rev. E 97, 033310 (2018), for TRG's own ring:
#
#     T[b,a,c,e] = Σ_wxyz S1[z,y,e] S3[x,w,a] S2[x,y,c] S4[z,w,b]
#
# Products of either cut's matrix with a column cost O(χ⁴), and so a step O(χ⁵).

TENSOR, RING = "urdl", "zye,xwa,xyc,zwb"
CUTS = {TENSOR: ("ur,dl", "ul,dr"), RING: ("ba,ce", "be,ca")}


@dataclass(frozen=True)
class MatrixFreeStep:
    """Stage: as `Step`, from the initial tensor or from four halves to four halves with bonds cut to `k`.

    `svd(subscripts, *operands, k=k)` is that of a network that is not formed. The scale taken out, whose
    logarithm is the term, is the norm of the values kept: ‖T‖_F itself would cost O(χ⁶).
    """

    k: int
    first: bool = False

    def __call__(self, xp: Any, svd: Any, carry: Any) -> tuple[Any, Any]:
        network = TENSOR if self.first else RING
        operands = (carry,) if self.first else tuple(carry[i, ...] for i in range(4))
        d = operands[0].shape[-1]
        cuts = [svd(f"{network}->{cut}", *operands, k=self.k) for cut in CUTS[network]]
        norm = xp.sqrt(xp.sum(cuts[0][1] * cuts[0][1]))
        halves = []
        for u, s, vh in cuts:
            root = xp.sqrt(s / norm + ROUNDING)
            halves += [xp.reshape(side * root, (d, d, self.k)) for side in (u, vh.T)]
        return xp.stack(halves), xp.log(norm)


def matrix_free_log_trace(xp: Any, svd: Any, halves: Any) -> tuple[None, Any]:
    """Last stage: ln Σ_ab T[b,a,b,a], the ring closed on itself."""
    s1, s3, s2, s4 = (halves[i, ...] for i in range(4))
    vertical = xp.tensordot(s4, s2, axes=((2,), (2,)))  # [z,w,x,y]
    horizontal = xp.permute_dims(xp.tensordot(s3, s1, axes=((2,), (2,))), (2, 1, 0, 3))  # [x,w,z,y]
    return None, xp.log(xp.sum(vertical * horizontal))


def numpy_svd(matrix: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the k leading columns of NumPy's thin SVD: the `svd` of values without derivatives."""
    u, s, vh = np.linalg.svd(matrix, full_matrices=False)
    return u[:, :k], s[:k], vh[:k]


def cut_gaps(beta: float, chi: int, steps: int) -> np.ndarray:
    """Return the relative gap (s_k − s_{k+1})/s_k at both cuts of every step, shape (steps, 2).

    Where it is tiny, lnZ/N is about to jump (two levels change places at the cut), and a finite difference
    across the jump is wrong while the derivative is right. A cut that discards nothing, or only rounding
    (values below s_1 times the matrix size times the machine epsilon), has a gap of 1.

    Raises:
        InputError: if an argument cannot be used.

    >>> float(cut_gaps(0.3, chi=16, steps=4).min())
    1.0
    """
    beta = ising.check_beta(beta)
    tensor = ising.initial_tensor(np, np.asarray(beta))
    bonds = bond_dimensions(chi, steps)
    gaps = np.ones((len(bonds), 2))
    for step, k in enumerate(bonds):
        for cut, matrix in enumerate(cut_matrices(np, tensor)):
            s = np.linalg.svd(matrix, compute_uv=False)
            rounding = s[0] * len(s) * np.finfo(s.dtype).eps
            if k < len(s) and s[k] > rounding:
                gaps[step, cut] = (s[k - 1] - s[k]) / s[k - 1]
        tensor, _ = Step(k)(np, numpy_svd, tensor)
    return gaps
