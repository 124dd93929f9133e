"""Experiment 8: TRG in stages, 20 steps at χ = 16 and five β, forward and backward."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trgbench.study.cache import BETAS
from trgbench.study.claims import Claim, Facts, at_least, at_most, equals
from trgbench.study.lab import BACKENDS, LEFT_OUT, Lab
from trgbench.study.stages_native import sweep
from trgbench.study.tables import pick, table
from trgbench.study.tasks import bits, clock, eager_calls, halves, problem_of, ready, ulps, versus, width

TITLE = "What does TRG cost in stages?"
MODES = ("eager-staged", "traced-staged")
STEPS, CHI = 20, 16
# The study's u of 20 steps at χ = 16.
STUDY_ENERGY = dict(
    zip(
        BETAS,
        (-0.704498679529753, -1.106045407611192, -1.402785274913334, -1.745583468150079, -1.909086939792358),
        strict=True,
    )
)


def energies(backend: str, mode: str, betas: list[float], repeats: int) -> dict[str, Any]:
    """Return lnZ/N, u, its error against Onsager's and the fastest seconds of a gradient, by β."""
    from trgbench import ising

    problem = problem_of(["trg", CHI, STEPS])
    prepared, _ = ready(backend, mode, problem)
    found, now = {}, clock()
    for beta in betas:
        x = prepared.built.asarray(problem.check_input(beta))
        seconds = []
        for _ in range(repeats):
            start = now()
            value, gradient = prepared.built.run(x)
            seconds.append(now() - start)
        u = -float(gradient)
        error = u - ising.energy(beta)
        found[str(beta)] = {"lnz": float(value), "u": u, "error": error, "bits": bits(gradient)[0]}
        found[str(beta)]["seconds"] = min(seconds)
    return found


def native_halves(betas: list[float], repeats: int) -> dict[str, Any]:
    """Return the fastest seconds of the forward and of the reverse sweep of eager stages, by β."""
    import numpy as np

    from trgbench import engine

    runtime, problem = engine.Runtime(width()), problem_of(["trg", CHI, STEPS])
    found = {}
    for beta in betas:
        runs = [sweep(problem, np.asarray(beta), runtime)[2:] for _ in range(repeats)]
        found[str(beta)] = {"forward": min(a for a, _ in runs), "backward": min(b for _, b in runs)}
    return found


def native_modes(rounds: int) -> dict[str, float]:
    """Return how many times longer an eager gradient in stages takes than a traced one, in turns."""
    problem = problem_of(["trg", CHI, STEPS])
    eager, traced = (ready("native", mode, problem)[1] for mode in MODES)
    return {"eager_over_traced": versus(eager, traced, rounds)}


def four_steps() -> dict[str, float]:
    """Return the seconds of native eager's backward of four steps, as one graph and in stages."""
    from trgbench import engine

    runtime, problem = engine.Runtime(width()), problem_of(["trg", CHI, 4])
    whole = halves(*eager_calls("native", problem), 1.0)[1]
    staged = min(sweep(problem, problem.example, runtime)[3] for _ in range(50))
    return {"whole": whole, "staged": staged}


def measure(lab: Lab) -> dict[str, Any]:
    data: dict[str, Any] = {}
    repeats = 1 if lab.quick else 3
    for backend in BACKENDS:
        data[backend] = {}
        for mode in MODES:
            if lab.quick and backend != "native" and (backend, mode) != ("torch", "eager-staged"):
                data[backend][mode] = LEFT_OUT
                continue
            data[backend][mode] = lab.run(
                energies,
                backend=backend,
                mode=mode,
                betas=list(BETAS),
                repeats=1 if (backend, mode) == ("jax", "eager-staged") else repeats,
            )
    data["halves"] = lab.run(native_halves, betas=[0.3] if lab.quick else list(BETAS), repeats=2)
    data["ratio"] = lab.run(native_modes, rounds=2 if lab.quick else 4)
    data["four_steps"] = lab.run(four_steps)
    return data


def _digits(cell: Any) -> Any:
    return f"{cell:.15f}" if isinstance(cell, float) else cell


def tables(data: Mapping[str, Any]) -> list[dict[str, Any]]:
    rows = [
        [
            beta,
            backend,
            mode,
            *(_digits(pick(data, backend, mode, beta, what)) for what in ("lnz", "u")),
            *(pick(data, backend, mode, beta, what) for what in ("error", "seconds")),
        ]
        for beta in BETAS
        for backend in BACKENDS
        for mode in MODES
    ]
    columns = [("lnZ/N", ""), ("u", ""), ("u - Onsager's", ""), ("gradient", "s")]
    title = f"TRG in stages, {STEPS} steps, chi = {CHI}, 1 thread"
    result = [table("staged", title, ["beta", "backend", "mode"], columns, rows)]
    rows = [[beta, *(pick(data, "halves", beta, half) for half in ("forward", "backward"))] for beta in BETAS]
    title = f"Native eager in stages, {STEPS} steps, chi = {CHI}: the two sweeps"
    result.append(table("staged-halves", title, ["beta"], [("forward", "s"), ("backward", "s")], rows))
    rows = [[how, pick(data, "four_steps", how)] for how in ("whole", "staged")]
    result.append(
        table("staged-four", "Native eager, 4 steps: backward", ["graph"], [("backward", "s")], rows)
    )
    return result


def _energies(backend: str, mode: str, what: str) -> Any:
    return lambda facts: [facts[backend][mode][beta][what] for beta in BETAS]


def _off_the_study(backend: str) -> Any:
    def value(facts: Facts) -> float:
        return max(abs(facts[backend]["eager-staged"][beta]["u"] - u) for beta, u in STUDY_ENERGY.items())

    return value


def _mode_distance(facts: Facts) -> int:
    native = facts["native"]
    return max(ulps(*(native[mode][beta]["bits"] for mode in MODES)) for beta in BETAS)


def _worst_beta(facts: Facts) -> float:
    errors = [abs(error) for error in _energies("native", "eager-staged", "error")(facts)]
    return BETAS[errors.index(max(errors))]


def _energy_claim(backend: str) -> Claim:
    return Claim(
        f"staged-{backend}-energies",
        backend,
        "In stages, u of 20 steps is finite and right at all five β.",
        "-0.704498679529753 at β = 0.3, and four more",
        _off_the_study(backend),
        at_most(1e-10),
        "within 1e-10 of the study's five values",
        "off by {:.2g}",
    )


CLAIMS = (
    _energy_claim("native"),
    _energy_claim("torch"),
    Claim(
        "staged-error-is-largest-near-critical",
        "native",
        "The error against Onsager is largest near the critical point, from cutting at χ = 16.",
        "-5.6e-4 at β = 0.44",
        _worst_beta,
        equals(0.44),
        "of the five β the error is largest at 0.44",
        "largest at β = {}",
    ),
    Claim(
        "staged-modes-near",
        "native",
        "In stages eager and traced agree but for rounding, not to the last bit.",
        "10 ulp apart at β = 0.3",
        _mode_distance,
        lambda value: 0 < value <= 1000,
        "more than 0 and at most 1000 ulp apart",
        "{} ulp apart",
        better="both stage modes run the same operations, so they agree to the last bit",
    ),
    Claim(
        "staged-beats-whole-in-eager",
        "native",
        "In eager, stages make the backward of four steps a thousand times cheaper than the whole graph.",
        "6,981 against 4.29 ms",
        lambda facts: facts["four_steps"]["whole"] / facts["four_steps"]["staged"],
        at_least(10.0),
        "the whole graph takes at least 10 times as long",
        "{:.2f} times",
        better="the whole graph is linear in its steps, so stages gain nothing in time",
    ),
    Claim(
        "staged-eager-faster-than-traced",
        "native",
        "In stages eager is faster, since traced runs each step's forward again, both SVDs included.",
        "638 against 945 ms",
        lambda facts: facts["ratio"]["eager_over_traced"],
        at_most(0.8),
        "eager takes at most 0.8 of traced's time",
        "{:.3f} of traced's",
        better="traced hands its residuals to the reverse program and repeats no SVD",
    ),
    Claim(
        "staged-backward-below-forward",
        "native",
        "Eager's reverse sweep takes no longer than its forward sweep: it uses what the forward left.",
        "298 against 340 ms",
        lambda facts: facts["halves"][0.3]["backward"] / facts["halves"][0.3]["forward"],
        at_most(1.2),
        "at most 1.2 of the forward's time",
        "{:.2f} of the forward's",
    ),
)
