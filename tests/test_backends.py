"""Every backend in every mode: the study's figures, the same gradients, and what is refused.

Preparing costs seconds to minutes (torch.compile), so a test prepares once and runs its whole table.
"""

from __future__ import annotations

import math
import os
import sys
import warnings

import numpy as np
import pytest

from trgbench import backends, ising, problems
from trgbench.backends import NonFiniteGradient, Prepared
from trgbench.engine.ops.linalg import CutThroughTie
from trgbench.errors import InputError, Unavailable
from trgbench.problems import Problem

MODES = ("eager", "traced", "eager-staged", "traced-staged")  # those that every problem has
EVERY = [(name, mode) for name in backends.names() for mode in MODES]
each_mode = pytest.mark.parametrize(("name", "mode"), EVERY)
each_backend = pytest.mark.parametrize("name", backends.names())

# β, lnZ/N, u of 20 steps at χ = 16: the study's table.
STUDY = [
    (0.30, 0.790559063800966, -0.704498679529753),
    (0.40, 0.879363060306853, -1.106045407611192),
    (0.44, 0.928723962577072, -1.402785274913334),
    (0.50, 1.025792858455948, -1.745583468150079),
    (0.60, 1.210133028164417, -1.909086939792358),
]
# 4 steps at β = 0.3: lnZ/N of the 4×4 torus and its first two derivatives, by enumeration of its states.
TORUS = (0.799095207857105, 0.8440540736238568, 4.899918373072852)


def prepare(name: str, problem: Problem, mode: str, threads: int = 1, svd: str = "safe") -> Prepared:
    """Prepare a problem, or skip the test and say why that is not possible here."""
    try:
        return backends.get(name).prepare(problem, mode, threads, svd)
    except Unavailable as reason:
        pytest.skip(str(reason))


@pytest.mark.parametrize(
    ("name", "mode"),
    # torch.compile takes minutes for twenty steps as one graph: see `make test-slow`.
    [pytest.param(*case, marks=pytest.mark.slow) if case == ("torch", "traced") else case for case in EVERY],
)
def test_the_study_s_table(name: str, mode: str) -> None:
    prepared = prepare(name, problems.trg(16, 20), mode)
    for beta, lnz, energy in STUDY:
        value, gradient = prepared(beta)
        assert value == pytest.approx(lnz, abs=1e-12), beta
        assert -float(gradient) == pytest.approx(energy, abs=1e-10), beta
    # Where the tensor's rank is lower than χ, singular values are ties, rounding, or exactly zero.
    for beta in (1.0, 10.0, 50.0):
        value, gradient = prepared(beta)
        assert value == pytest.approx(ising.lnz(beta) + math.log(2) / 2**20, abs=1e-12), beta
        assert -float(gradient) == pytest.approx(ising.energy(beta), abs=1e-10), beta


@each_mode
def test_small_problems(name: str, mode: str) -> None:
    for problem in (problems.vector(1000), problems.chain(25), problems.trg(16, 4)):
        prepared = prepare(name, problem, mode)
        value, gradient = prepared(problem.example)
        problem.check(problem.example, value, gradient)
        assert type(value) is float
        assert gradient.dtype == np.float64
        assert gradient.shape == problem.example.shape
        gradient += 1.0  # writable, and nobody else's
        problem.check(problem.example, *prepared(problem.example))
        costs = prepared.built.costs
        assert set(costs) == {"trace", "compile", "prepare", "first_run"}
        assert costs["first_run"]
        assert all(seconds is None or seconds >= 0 for seconds in costs.values())
    assert prepared(0.3)[0] == pytest.approx(TORUS[0], abs=1e-13)
    assert float(prepared(0.3)[1]) == pytest.approx(TORUS[1], abs=1e-13)


@each_mode
def test_a_deep_chain(name: str, mode: str) -> None:
    if (name, mode) == ("torch", "traced"):
        pytest.skip("compiles for long, and shows nothing that the chain of 25 does not")
    problem = problems.chain(400)
    problem.check(problem.example, *prepare(name, problem, mode)(problem.example))


@each_backend
def test_a_larger_chi(name: str) -> None:
    _, gradient = prepare(name, problems.trg(24, 20), "eager-staged")(0.3)
    assert -float(gradient) == pytest.approx(-0.704498845364033, abs=1e-10)  # all three backends agree on it


@each_backend
def test_threads(name: str) -> None:
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("this process may use one CPU only")
    for problem in (problems.vector(100_000), problems.trg(16, 4)):
        for threads in (2, 1):
            prepared = prepare(name, problem, "eager", threads)
            problem.check(problem.example, *prepared(problem.example))
            if name == "torch":
                import torch

                assert torch.get_num_threads() == threads
            if name == "jax":
                from trgbench.backends.jax import POOL_SIZE

                assert len(prepared.built.notes) == (threads != POOL_SIZE)


@pytest.mark.parametrize(
    ("name", "mode"),
    [("jax", "traced"), ("jax", "eager-staged"), ("torch", "eager"), ("torch", "eager-staged")],
)
def test_the_library_s_own_svd_rule_gives_nan_and_says_so(name: str, mode: str) -> None:
    prepared = prepare(name, problems.trg(16, 20), mode, svd="builtin")
    with pytest.warns(NonFiniteGradient, match="with the builtin SVD rule gave .* use svd='safe'"):
        value, gradient = prepared(0.3)
    assert value == pytest.approx(STUDY[0][1], abs=1e-12)
    assert np.isnan(gradient)


def test_native_gradients_are_one_bit_pattern() -> None:
    for problem in (problems.vector(1000), problems.chain(400), problems.trg(16, 4)):
        bits = {
            (value, gradient.tobytes())
            for mode in MODES
            for threads in range(1, min(2, len(os.sched_getaffinity(0))) + 1)
            for value, gradient in [prepare("native", problem, mode, threads)(problem.example)]
        }
        assert len(bits) == 1, problem


def test_jax_safe_rule_in_forward_mode_and_second_order() -> None:
    jax = pytest.importorskip("jax")
    from trgbench.backends.jax import safe_svd

    def lnz(beta: object) -> object:
        return problems.trg(16, 4).value(jax.numpy, safe_svd, beta)

    assert float(jax.jit(jax.grad(jax.grad(lnz)))(0.3)) == pytest.approx(TORUS[2], abs=1e-11)
    assert float(jax.jit(jax.jacfwd(lnz))(0.3)) == pytest.approx(TORUS[1], abs=1e-13)


def test_torch_safe_rule_in_second_order() -> None:
    torch = pytest.importorskip("torch")
    import array_api_compat.torch

    from trgbench.backends.torch import safe_svd

    beta = torch.tensor(0.3, dtype=torch.float64, requires_grad=True)
    value = problems.trg(16, 4).value(array_api_compat.torch, safe_svd, beta)
    (first,) = torch.autograd.grad(value, beta, create_graph=True)
    (second,) = torch.autograd.grad(first, beta)
    assert float(second) == pytest.approx(TORUS[2], abs=1e-11)


def test_torch_compile_needs_a_compiler() -> None:
    pytest.importorskip("torch")
    import torch._inductor.config as inductor

    from trgbench.backends.torch import _missing_compiler

    _missing_compiler.cache_clear()
    try:
        with inductor.patch({"cpp.cxx": ("no-such-compiler",)}):
            with pytest.raises(Unavailable, match=r"cannot run mode traced: .* install g\+\+"):
                backends.get("torch").prepare(problems.vector(3), "traced")
            assert backends.get("torch").unavailable("eager-staged") is None
    finally:
        _missing_compiler.cache_clear()


@pytest.mark.parametrize("name", ["jax", "torch"])
def test_a_missing_library_names_what_to_install(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules, f"trgbench.backends.{name}", raising=False)
    with pytest.raises(Unavailable, match=rf"which is not installed; .*pip install 'trgbench\[{name}\]'"):
        backends.get(name)


@each_backend
def test_bad_requests(name: str) -> None:
    try:
        backend = backends.get(name)
    except Unavailable as reason:
        pytest.skip(str(reason))
    problem = problems.vector(3)
    for arguments, message in [
        ({"mode": "lazy"}, "unknown mode 'lazy'; choose one of: eager, traced, eager-staged, traced-staged"),
        ({"mode": "eager", "svd": "best"}, f"unknown SVD rule of backend {name} 'best'; choose one of: safe"),
        ({"mode": "eager", "threads": 0}, "threads must be a whole number of at least 1; got 0"),
        ({"mode": "eager", "threads": "2"}, "threads must be a whole number of at least 1; got '2'"),
        ({"mode": "eager", "threads": 10_000}, "CPUs this process may use; got 10000; ask for fewer"),
    ]:
        with pytest.raises(InputError) as error:
            backend.prepare(problem, **arguments)  # type: ignore[arg-type]
        assert message in str(error.value)
        assert "\n" not in str(error.value)
    prepared = backend.prepare(problem, "eager")
    for x in ([1.0, 2.0], "abc", [1.0, math.nan, 3.0]):
        with pytest.raises(InputError, match="x must be a real array of shape"):
            prepared(x)


def test_an_unknown_backend_lists_those_there_are() -> None:
    with pytest.raises(InputError, match="unknown backend 'numpy'; choose one of: jax, native, torch"):
        backends.get("numpy")


def test_a_finite_result_does_not_warn() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", NonFiniteGradient)
        prepare("native", problems.trg(8, 4), "eager")(0.3)


NEW_RULES = pytest.mark.parametrize("rule", ["lanczos", "matrix-free"])


@NEW_RULES
@pytest.mark.parametrize("beta", [0.1, 0.3, 0.4406867935097715, 0.6, 1.0])
def test_cut_rules_give_the_energy_of_the_full_svd(rule: str, beta: float) -> None:
    """At χ = 12 the matrices are 144 × 144, where Lanczos starts to pay. Bits are equal between modes."""
    problem = problems.trg(12, 9)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CutThroughTie)
        wanted = prepare("native", problem, "traced-staged")(beta)
        found = [prepare("native", problem, mode, svd=rule)(beta) for mode in backends.MODES]
    for value, gradient in found:
        assert value == pytest.approx(wanted[0], abs=1e-13)
        assert gradient == pytest.approx(wanted[1], abs=1e-10)
    assert len({(value, float(gradient)) for value, gradient in found[:4]}) == 1


@NEW_RULES
@pytest.mark.parametrize(("chi", "steps"), [(4, 1), (4, 2), (16, 4)])
def test_cut_rules_on_small_lattices_and_in_second_order(rule: str, chi: int, steps: int) -> None:
    native, problem = backends.get("native"), problems.trg(chi, steps)
    for order in (1, 2):
        wanted = native.prepare(problem, "traced-staged", order=order)(0.3)
        found = native.prepare(problem, "traced-staged", svd=rule, order=order)(0.3)
        np.testing.assert_allclose(np.asarray(found), np.asarray(wanted), rtol=1e-10)


@pytest.mark.slow
@NEW_RULES
@pytest.mark.parametrize("beta", [0.1, 0.2, 0.3, 0.4, 0.44, 0.4406867935097715, 0.5, 0.6, 0.8, 1.0])
@pytest.mark.parametrize(("chi", "steps"), [(16, 20), (24, 8)])
def test_cut_rules_give_the_energy_of_the_full_svd_at_every_temperature(
    rule: str, chi: int, steps: int, beta: float
) -> None:
    problem = problems.trg(chi, steps)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CutThroughTie)
        wanted, found = (
            prepare("native", problem, "eager-staged", svd=name)(beta) for name in ("safe", rule)
        )
    assert found[0] == pytest.approx(wanted[0], abs=1e-13)
    assert found[1] == pytest.approx(wanted[1], abs=1e-10)
