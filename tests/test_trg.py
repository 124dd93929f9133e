"""TRG's values against the study, the enumerated torus and Onsager; its cuts; and the SVD derivative."""

from __future__ import annotations

import math

import numpy as np
import pytest

from trgbench import cut_svd, ising, trg
from trgbench.errors import InputError
from trgbench.problems import trg as trg_problem


def lnz(chi: int, steps: int, beta: float) -> float:
    return float(trg_problem(chi, steps).value(np, trg.numpy_svd, np.asarray(beta)))


def enumerated_torus(beta: float, length: int = 4) -> tuple[float, float]:
    """Return lnZ/N and its derivative for the length × length torus, by summing over all its states."""
    sites = length * length
    states = np.arange(2**sites, dtype=np.uint32)
    spins = (1 - 2 * ((states[:, None] >> np.arange(sites, dtype=np.uint32)) & 1).astype(np.int8)).reshape(
        -1, length, length
    )
    bonds = sum((spins * np.roll(spins, 1, axis)).sum((1, 2), dtype=np.int64) for axis in (1, 2))
    levels, counts = np.unique(bonds, return_counts=True)
    weights = [n * math.exp(beta * b) for b, n in zip(levels.tolist(), counts.tolist(), strict=True)]
    partition = math.fsum(weights)
    mean = math.fsum(b * w for b, w in zip(levels.tolist(), weights, strict=True)) / partition
    return math.log(partition) / sites, mean / sites


def test_bond_dimensions_are_the_exact_ranks_up_to_chi() -> None:
    assert trg.bond_dimensions(1000, 7) == (2, 4, 4, 16, 16, 256, 256)
    assert trg.bond_dimensions(16, 20) == (2, 4, 4) + 17 * (16,)
    assert trg.bond_dimensions(2, 3) == (2, 2, 2)
    assert max(trg.bond_dimensions(10, 10_000)) == 10


@pytest.mark.parametrize(("chi", "steps"), [(16, 4), (3, 6), (8, 7)])
def test_the_ranks_are_bounds_that_hold_after_cutting_too(chi: int, steps: int) -> None:
    tensor = ising.initial_tensor(np, np.asarray(0.37))
    bonds = [2, 2]
    for k in trg.bond_dimensions(chi, steps):
        for matrix in trg.cut_matrices(np, tensor):
            assert np.linalg.matrix_rank(matrix, tol=1e-11 * np.linalg.norm(matrix)) <= bonds[-2] ** 2
        tensor, _ = trg.Step(k)(np, trg.numpy_svd, tensor)
        bonds.append(k)


@pytest.mark.parametrize("beta", [0.1, 0.3, 0.44, 1.0])
def test_four_steps_are_the_torus_of_four_by_four(beta: float) -> None:
    assert lnz(16, 4, beta) == pytest.approx(enumerated_torus(beta)[0], abs=1e-13)


def test_the_enumeration_meets_the_study() -> None:
    assert enumerated_torus(0.3) == pytest.approx((0.799095207857105, 0.8440540736238568), abs=1e-15)


@pytest.mark.parametrize("beta", [0.2, 0.6])
@pytest.mark.parametrize(("chi", "tolerance"), [(4, 3e-3), (8, 3e-5), (16, 1e-6)])
def test_lnz_converges_to_onsager_with_chi(beta: float, chi: int, tolerance: float) -> None:
    assert lnz(chi, 20, beta) == pytest.approx(ising.lnz(beta), abs=tolerance)


@pytest.mark.parametrize("beta", [5.0, 50.0, ising.BETA_MAXIMUM])
def test_a_cold_torus_has_two_ground_states(beta: float) -> None:
    assert lnz(8, 12, beta) == pytest.approx(2 * beta + math.log(2) / 2**12, rel=1e-14)


def test_a_step_conserves_the_partition_function_when_nothing_is_cut() -> None:
    """One step rewrites Σ T[u,r,d,l] over two sites, whatever the tensor."""
    rng = np.random.default_rng(0)
    tensor = rng.uniform(0.5, 1.5, (2, 2, 2, 2))
    coarse, log_norm = trg.Step(4)(np, trg.numpy_svd, tensor)
    two_sites = np.einsum("urdl,dlur->", tensor, tensor)
    assert 2 * log_norm + math.log(np.einsum("urur->", coarse)) == pytest.approx(
        math.log(two_sites), abs=1e-13
    )


def test_cut_gaps() -> None:
    assert (trg.cut_gaps(0.3, 16, 4) == 1.0).all()  # nothing is cut off
    gaps = trg.cut_gaps(0.44, 16, 20)
    assert gaps.shape == (20, 2)
    assert gaps.min() == pytest.approx(0.0043, rel=0.01)  # the level that is about to cross
    assert (gaps[:5] == 1.0).all()
    assert (gaps[5:] < 1.0).all()
    assert trg.cut_gaps(50.0, 16, 20).min() == 1.0  # what is cut off is rounding


@pytest.mark.parametrize(("chi", "steps"), [(1, 4), (16, 0), (2.0, 4), (16, "4"), (True, 4), (16, None)])
def test_bad_chi_and_steps(chi: object, steps: object) -> None:
    wanted = r"(chi must be a whole number of at least 2|steps must be a whole number of at least 1); got "
    for function in (trg.bond_dimensions, lambda chi, steps: trg.cut_gaps(0.3, chi, steps)):
        with pytest.raises(InputError, match=wanted):
            function(chi, steps)  # type: ignore[arg-type]


SHAPES = [(6, 6, 3), (6, 6, 6), (7, 5, 3), (5, 8, 2), (4, 1, 1)]


@pytest.mark.parametrize(("m", "n", "k"), SHAPES)
def test_svd_derivative_against_differences_and_its_transpose(m: int, n: int, k: int) -> None:
    rng = np.random.default_rng(m + n)
    matrix, tangent = rng.standard_normal((2, m, n))
    full = np.linalg.svd(matrix, full_matrices=False)

    def factors(at: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        u, s, vh = np.linalg.svd(at, full_matrices=False)
        sign = np.sign(np.sum(u * full[0], axis=0))  # the SVD's own freedom
        return (u * sign)[:, :k], s[:k], (sign[:, None] * vh)[:k]

    h = 1e-6
    tangents = cut_svd.jvp(np, full, k, tangent)
    for got, above, below in zip(
        tangents, factors(matrix + h * tangent), factors(matrix - h * tangent), strict=True
    ):
        np.testing.assert_allclose(got, (above - below) / (2 * h), atol=1e-7)
    cotangents = tuple(rng.standard_normal(part.shape) for part in tangents)
    forward = sum(np.sum(a * b) for a, b in zip(cotangents, tangents, strict=True))
    assert np.sum(cut_svd.vjp(np, full, k, cotangents) * tangent) == pytest.approx(forward, rel=1e-12)


@pytest.mark.parametrize("splitting", [0.0, 1e-17, 1e-15, 1e-9, 1e-4])
def test_svd_derivative_of_a_projection_at_equal_values(splitting: float) -> None:
    """What the halves multiply to, U_k S_k V_kᵀ, is smooth where two of the values kept are equal."""
    rng = np.random.default_rng(3)
    left, right = (np.linalg.qr(rng.standard_normal((6, 6)))[0] for _ in range(2))
    matrix = left @ np.diag([2.0, 1.0 + splitting, 1.0, 0.5, 0.25, 1e-3]) @ right.T
    # A tangent that turns both bases and scales the values, equal ones equally.
    turn_left, turn_right = (a - a.T for a in rng.standard_normal((2, 6, 6)))
    scaled = left @ np.diag([0.3, 0.7, 0.7, 0.1, -0.2, 0.5]) @ right.T
    tangent = turn_left @ matrix + matrix @ turn_right + scaled
    weight = rng.standard_normal((6, 6))

    def projected(at: np.ndarray) -> float:
        u, s, vh = trg.numpy_svd(at, 3)
        return float(np.sum(weight * ((u * s) @ vh)))

    full = np.linalg.svd(matrix)
    u, s, vh = full[0][:, :3], full[1][:3], full[2][:3]
    cotangents = ((weight @ vh.T) * s, np.sum(u * (weight @ vh.T), axis=0), s[:, None] * (u.T @ weight))
    h = 1e-6
    difference = (projected(matrix + h * tangent) - projected(matrix - h * tangent)) / (2 * h)
    assert np.sum(cut_svd.vjp(np, full, 3, cotangents) * tangent) == pytest.approx(difference, rel=1e-8)
