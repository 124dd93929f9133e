"""The SVD cut by Lanczos against the full one: values, derivatives of both orders, and when not to use it."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from trgbench import engine
from trgbench.engine.ops import lanczos, leading, linalg
from trgbench.engine.ops.linalg import CutThroughTie
from trgbench.errors import InputError

SEED = 20261129
RUNTIME = engine.Runtime(width=1)
FALLING = 0.4 ** np.arange(80)


def matrix(values: Any, m: int = 80, n: int = 80, scale: float = 1.0) -> np.ndarray:
    """An (m, n) matrix with the given singular values, the rest zero, and random singular vectors."""
    rng = np.random.default_rng(SEED)
    count = min(len(values), m, n)
    left, right = (np.linalg.qr(rng.normal(size=(length, count)))[0] for length in (m, n))
    result: np.ndarray = (left * (scale * np.asarray(values)[:count])) @ right.T
    return result


def found_by_lanczos(a: np.ndarray, k: int) -> bool:
    """Whether the Lanczos process vouches for k triplets, so that the full method is not needed."""
    with np.errstate(all="ignore"):
        return lanczos.leading(lanczos.of_matrix(a), k, min(2 * k, *a.shape)) is not None


def with_pair(position: int, values: np.ndarray = FALLING, count: int = 2, gap: float = 0.0) -> np.ndarray:
    """The values with `count` of them equal, or `gap` apart, from `position` on."""
    changed = values.copy()
    changed[position : position + count] = values[position] * (1.0 - gap * np.arange(count))
    return np.sort(changed)[::-1]


# name: matrix, k, whether Lanczos vouches for it
CASES: dict[str, tuple[np.ndarray, int, bool]] = {
    "square": (matrix(FALLING), 6, True),
    "tall": (matrix(FALLING, 110, 70), 6, True),
    "wide": (matrix(FALLING, 70, 110), 6, True),
    "one value": (matrix(FALLING), 1, True),
    "rank just k": (matrix(FALLING[:6]), 6, True),
    "a pair": (matrix(with_pair(2)), 6, True),
    "a cluster of six": (matrix(with_pair(0, count=6)), 8, True),
    "a near pair": (matrix(with_pair(2, gap=1e-7)), 6, True),
    "a narrow gap at the cut": (matrix(with_pair(5, gap=1e-5)), 6, True),
    "tiny values": (matrix(0.1 ** np.arange(80)), 8, True),
    "scale 1e150": (matrix(FALLING, scale=1e150), 6, True),
    "scale 1e-150": (matrix(FALLING, scale=1e-150), 6, True),
    "a cluster of twelve": (matrix(with_pair(0, count=12)), 14, False),
    "rank below k": (matrix(FALLING[:4]), 6, False),
    "zero": (np.zeros((80, 80)), 6, False),
    "the identity": (np.eye(80), 80, False),
    "values that do not fall": (np.random.default_rng(SEED).normal(size=(80, 80)), 6, False),
    "squares that leave the range": (matrix(FALLING, scale=1e200), 6, True),
    "k = full": (matrix(FALLING, 20, 20), 20, False),
    "1×1": (np.asarray([[-3.0]]), 1, False),
    "a column": (matrix([2.0], 30, 1), 1, False),
}


@pytest.mark.filterwarnings("ignore:overflow", "ignore:invalid value")
@pytest.mark.parametrize("name", CASES)
def test_the_triplets_are_those_of_the_full_method(name: str) -> None:
    a, k, vouched = CASES[name]
    assert found_by_lanczos(a, k) == vouched
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CutThroughTie)  # the identity
        u, s, vh = engine.svd(a, k, method="lanczos")
    wanted = np.linalg.svd(a, compute_uv=False)
    top = max(wanted[0], np.finfo(float).tiny)
    np.testing.assert_allclose(s / top, wanted[:k] / top, atol=2e-14)
    for basis in (u, vh.T):
        np.testing.assert_allclose(basis.T @ basis, np.eye(k), atol=2e-14)
    for product, basis in ((a @ vh.T, u), (a.T @ u, vh.T)):
        np.testing.assert_allclose(product / top, basis * (s / top), atol=3e-14)


def kept_part(weights: np.ndarray, k: int, method: str) -> Callable[[Any], Any]:
    """⟨weights, U_k √S Vᵀ_k⟩ + Σ s²: of the kept triplets, free of the signs of their vectors."""

    def f(a: Any) -> Any:
        u, s, vh = engine.svd(a, k, method=method)
        return engine.sum(((u * engine.sqrt(s)) @ vh) * weights) + engine.sum(s * s)

    return f


def kept_spaces(weights: np.ndarray, k: int, method: str) -> Callable[[Any], Any]:
    """⟨weights, U_k Uᵀ_k M V_k Vᵀ_k⟩ + Σ s: of the kept spaces, and so of no vector in a cluster."""

    def f(a: Any) -> Any:
        u, s, vh = engine.svd(a, k, method=method)
        return engine.sum((u @ (u.T @ weights @ vh.T) @ vh) * a) + engine.sum(s)

    return f


def both_modes(f: Callable[[Any], Any], a: np.ndarray) -> np.ndarray:
    """The gradient of f at a, which eager and traced must agree on bit for bit."""
    session = engine.Session(runtime=RUNTIME)
    leaf = session.variable(a)
    f(leaf).backward()
    traced: np.ndarray = RUNTIME.prepare(engine.grad(engine.trace(f, engine.spec(a.shape, a.dtype))))(a)
    assert traced.tobytes() == leaf.grad.tobytes()
    return traced


# What has a derivative, and the derivative of which is in range.
SMOOTH = CASES.keys() - {"zero", "rank below k", "squares that leave the range"}


@pytest.mark.filterwarnings("ignore:overflow", "ignore:invalid value")
@pytest.mark.parametrize("name", sorted(SMOOTH))
def test_the_gradient_is_that_of_the_full_method(name: str) -> None:
    a, k, _ = CASES[name]
    tied = "pair" in name or "cluster" in name or name == "the identity"
    function = kept_spaces if tied else kept_part
    weights = np.random.default_rng(SEED + 1).normal(size=a.shape)
    wanted = both_modes(function(weights, k, "full"), a)
    found = both_modes(function(weights, k, "lanczos"), a)
    # Both know what couples to a value to the rounding of the largest over the gap and over the value.
    np.testing.assert_allclose(found, wanted, atol=1e-8 * np.abs(wanted).max())


@pytest.mark.filterwarnings("ignore:overflow", "ignore:invalid value")
@pytest.mark.parametrize("exponent", [-990, -600, -530, -100, 100, 500, 515, 560, 990])
@pytest.mark.parametrize("shape", [(140, 140), (200, 130), (130, 200)])
def test_the_scale_is_no_matter(shape: tuple[int, int], exponent: int) -> None:
    weights = np.random.default_rng(SEED + 1).normal(size=shape)

    def f(a: Any) -> Any:  # as large as the matrix, so that its gradient is of no scale
        u, s, vh = engine.svd(a, 3, method="lanczos")
        return engine.sum(((u * s) @ vh) * weights) + engine.sum(s)

    a = matrix(FALLING, *shape)
    scaled = np.ldexp(a, exponent)
    values = [engine.svd(x, 3, method="lanczos")[1] for x in (a, scaled)]
    np.testing.assert_allclose(np.ldexp(values[1], -exponent), values[0], rtol=1e-13)
    wanted, found = both_modes(f, a), both_modes(f, scaled)
    np.testing.assert_allclose(found, wanted, atol=1e-10 * np.abs(wanted).max())


def test_the_gradient_of_a_cut_is_a_difference() -> None:
    a, k, _ = CASES["tall"]
    rng = np.random.default_rng(SEED + 2)
    weights, direction = rng.normal(size=(2, *a.shape))
    gradient = both_modes(kept_part(weights, k, "lanczos"), a)

    def value(at: np.ndarray) -> float:
        u, s, vh = np.linalg.svd(at, full_matrices=False)
        return float(np.sum(((u[:, :k] * np.sqrt(s[:k])) @ vh[:k]) * weights) + np.sum(s[:k] ** 2))

    h = 1e-7
    slope = (value(a + h * direction) - value(a - h * direction)) / (2 * h)
    assert np.sum(gradient * direction) == pytest.approx(slope, rel=1e-6)


FLOORED = 0.4 ** np.arange(80) + 1e-6 * np.linspace(1.0, 0.5, 80)  # of full rank: the full method needs it


@pytest.mark.parametrize("shape", [(80, 80), (110, 70), (70, 110), (12, 12), (12, 1)])
def test_second_derivatives_and_tangents_are_those_of_the_full_method(shape: tuple[int, int]) -> None:
    a, k = matrix(FLOORED, *shape), min(6, *shape)
    assert found_by_lanczos(a, k) == (min(shape) > 60)
    rng = np.random.default_rng(SEED + 3)
    weights, direction = rng.normal(size=(2, *a.shape))
    results = []
    for method in ("full", "lanczos"):
        graph = engine.trace(kept_part(weights, k, method), engine.spec(a.shape))
        tangent = RUNTIME.prepare(engine.jvp(graph))(a, direction)[1]
        first = engine.grad(graph)
        twice = RUNTIME.prepare(
            engine.grad(engine.trace(lambda x, g=first: engine.sum(g(x) * direction), engine.spec(a.shape)))
        )(a)
        along = RUNTIME.prepare(engine.jvp(first))(a, direction)[1]
        np.testing.assert_allclose(along, twice, atol=1e-9 * np.abs(twice).max())  # the Hessian is symmetric
        results.append((tangent, twice))
    for found, wanted in zip(results[1], results[0], strict=True):
        np.testing.assert_allclose(found, wanted, atol=1e-9 * np.abs(wanted).max())


def test_float32_keeps_its_precision() -> None:
    a = matrix(FALLING).astype(np.float32)
    assert found_by_lanczos(a, 6)
    _, s, _ = engine.svd(a, 6, method="lanczos")
    assert s.dtype == np.float32
    np.testing.assert_allclose(s, FALLING[:6], rtol=1e-5)
    weights = np.random.default_rng(SEED).normal(size=a.shape).astype(np.float32)
    wanted, found = (both_modes(kept_part(weights, 6, method), a) for method in ("full", "lanczos"))
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, wanted, atol=1e-4 * np.abs(wanted).max())


@pytest.mark.parametrize("gap", [0.0, 1e-14, 1e-10, 1e-7])
def test_a_cut_through_a_tie(gap: float) -> None:
    """It warns as the full method does, and the gradient that conjugate gradients cannot give is its too."""
    a = matrix(with_pair(5, gap=gap))
    weights = np.random.default_rng(SEED).normal(size=a.shape)
    results = []
    for method in ("full", "lanczos"):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            gradient = both_modes(kept_part(weights, 6, method), a)
        told = [w for w in caught if issubclass(w.category, CutThroughTie)]
        assert bool(told) == (gap < 1e-12)
        assert np.isfinite(gradient).all()
        results.append(gradient)
    if gap > 1e-9:  # below, the two kept vectors are any of a plane
        np.testing.assert_allclose(results[1], results[0], atol=1e-13 / gap * np.abs(results[0]).max())


def test_the_complement_falls_back_to_the_full_method_where_it_does_not_converge(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    a, k, _ = CASES["square"]
    weights = np.random.default_rng(SEED).normal(size=a.shape)
    wanted = both_modes(kept_part(weights, k, "lanczos"), a)
    calls = []

    def counted(*arguments: Any) -> Any:
        calls.append(1)
        return linalg.full_svd(*arguments)

    monkeypatch.setattr(leading, "full_svd", counted)
    assert np.array_equal(both_modes(kept_part(weights, k, "lanczos"), a), wanted)
    assert not calls
    monkeypatch.setattr(lanczos, "CONJUGATE_GRADIENT_STEPS", 0)
    found = both_modes(kept_part(weights, k, "lanczos"), a)
    assert len(calls) == 2  # once in each mode
    np.testing.assert_allclose(found, wanted, atol=1e-10 * np.abs(wanted).max())


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_matrix_that_is_not_finite_is_refused(bad: float) -> None:
    a = matrix(FALLING)
    a[3, 5] = bad
    with pytest.raises(InputError, match=r"svd: the 80×80 matrix holds NaN or infinity"):
        engine.svd(a, 6, method="lanczos")


@pytest.mark.parametrize(
    ("shape", "k", "method", "message"),
    [
        ((80, 80), 81, "lanczos", r"svd: k must be from 1 to 80 for float64\[80,80\]; got 81"),
        *[((80, 80), k, "lanczos", "k must be a whole number of at least 1") for k in (0, 2.5, True, "3")],
        ((80,), 2, "lanczos", "the operand must be a matrix"),
        ((80, 80), 2, "Lanczos", "unknown method 'Lanczos'; choose one of: auto, full, lanczos"),
    ],
)
def test_bad_arguments(shape: tuple[int, ...], k: Any, method: str, message: str) -> None:
    for x in (np.ones(shape), engine.Session().variable(np.ones(shape))):
        with pytest.raises(InputError, match=message):
            engine.svd(x, k, method=method)


def test_auto_takes_what_costs_less() -> None:
    def operations(shape: tuple[int, int], k: int | None) -> set[str]:
        graph = engine.trace(lambda a: engine.svd(a, k)[1], engine.spec(shape))
        return {node.op.name for node in graph.nodes}

    assert operations((256, 256), 16) == {"svd_leading"}
    assert operations((256, 256), None) == operations((64, 64), 8) == operations((256, 256), 64) == {"svd"}


# --- a matrix that is not formed ------------------------------------------------------------------

NETWORK = "xyc,zye,axw,bzw->ba,ce"  # a plaquette of TRG
DENSE = "xyc,zye,axw,bzw->bace"


def tensors(d: int = 6) -> list[np.ndarray]:
    """Four tensors whose network has singular values that fall."""
    rng = np.random.default_rng(SEED)
    weights = 0.5 ** np.arange(d)
    return [rng.normal(size=(d, d, d)) * weights * weights[:, None] for _ in range(4)]


@pytest.mark.parametrize("d", [3, 8])
def test_the_svd_of_a_network_is_that_of_its_matrix(d: int) -> None:
    halves, k = tensors(d), 5
    rng = np.random.default_rng(SEED)
    weights = rng.normal(size=(d * d, d * d))
    directions = [rng.normal(size=x.shape) for x in halves]

    def value(factors: Any) -> Any:
        u, s, vh = factors
        return engine.sum(((u * s) @ vh) * weights) + engine.sum(s)

    def by_network(*xs: Any) -> Any:
        return value(engine.linalg.network_svd(NETWORK, *xs, k=k))

    def by_matrix(*xs: Any) -> Any:
        return value(engine.svd(engine.reshape(engine.einsum(DENSE, *xs), (d * d, d * d)), k, method="full"))

    specs = [engine.spec(x.shape) for x in halves]
    results = []
    for f in (by_network, by_matrix):
        graph = engine.trace(f, *specs)
        gradient = engine.value_and_grad(graph, range(4))
        along = RUNTIME.prepare(engine.jvp(gradient))(*halves, *directions)
        results.append([*RUNTIME.prepare(gradient)(*halves), *along])
    for found, wanted in zip(*results, strict=True):
        np.testing.assert_allclose(found, wanted, atol=1e-9 * max(1.0, np.abs(wanted).max()))
    session = engine.Session(runtime=RUNTIME)
    leaves = [session.variable(x) for x in halves]
    by_network(*leaves).backward()
    assert [leaf.grad.tobytes() for leaf in leaves] == [g.tobytes() for g in results[0][1:5]]


@pytest.mark.parametrize(
    "subscripts",
    ["ab,bc->a", "ab,bc->a,a", "ab,bc->a,d", "ab,bd,de->a,e", "aa,bc->a,c", "ab,cb->a,c", "ab,bc"],
)
def test_bad_subscripts_of_a_network(subscripts: str) -> None:
    with pytest.raises(
        InputError, match=r"network_svd: .* does not fit operands of shapes \(3, 4\), \(4, 5\)"
    ):
        engine.linalg.network_svd(subscripts, np.ones((3, 4)), np.ones((4, 5)), k=2)
