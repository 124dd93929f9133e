"""Experiment 3: the same bits on TRG? Four steps at χ = 16 truncate nothing, so they are the 4×4 torus."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trgbench.study.claims import Claim, Facts, at_most, equals
from trgbench.study.lab import BACKENDS, MISSING, Lab
from trgbench.study.tables import table
from trgbench.study.tasks import bits, problem_of, ready, ulps

TITLE = "Do they give the same gradient on TRG?"
STEPS = 4
MODES = ("eager", "traced", "eager-staged", "traced-staged")
# The others take half a minute or more to prepare, and the study says nothing about them.
FULL = {"native": MODES, "jax": ("eager", "traced"), "torch": ("eager", "eager-staged")}
QUICK = {"native": MODES, "jax": (), "torch": ("eager",)}
STUDY_BITS = "0x1.b027db048a41ap-1"  # the study's gradient, the same in both of tenferro's modes
TORUS = 0.8440540736238568  # d(lnZ/N)/dβ at β = 0.3, from all 65,536 states of the 4×4 torus


def gradient(backend: str, mode: str) -> dict[str, Any]:
    """Return the gradient of four steps at β = 0.3, as a number and as its bits."""
    problem = problem_of(["trg", 16, STEPS])
    _, call = ready(backend, mode, problem)
    value, found = call()
    problem.check(problem.example, value, found)
    return {"lnz": float(value), "gradient": float(found), "bits": bits(found)[0]}


def measure(lab: Lab) -> dict[str, Any]:
    data: dict[str, Any] = {backend: {} for backend in BACKENDS}
    for backend in BACKENDS:
        for mode in QUICK[backend] if lab.quick else FULL[backend]:
            data[backend][mode] = lab.run(gradient, backend=backend, mode=mode)
    return data


def tables(data: Mapping[str, Any]) -> list[dict[str, Any]]:
    rows = []
    for backend in data:
        for mode, entry in data[backend].items():
            known = MISSING not in entry
            rows.append(
                [
                    backend,
                    mode,
                    f"{entry['gradient']:.15f}" if known else entry,
                    entry["bits"] if known else entry,
                    ulps(entry["bits"], STUDY_BITS) if known else None,
                    entry["gradient"] - TORUS if known else None,
                ]
            )
    columns = [("gradient", ""), ("bits", ""), ("ulp from the study's", ""), ("error against the torus", "")]
    title = f"TRG, {STEPS} steps, chi = 16, beta = 0.3: d(lnZ/N)/dbeta"
    return [table("same-on-trg", title, ["backend", "mode"], columns, rows)]


def _distance(backend: str, one: str, other: str) -> Any:
    return lambda facts: ulps(facts[backend][one]["bits"], facts[backend][other]["bits"])


def _error(facts: Facts) -> float:
    return max(abs(facts["native"][mode]["gradient"] - TORUS) for mode in MODES)


CLAIMS = (
    Claim(
        "trg-modes-same-bits",
        "native",
        "On four whole-graph TRG steps the eager and the traced gradient share one bit pattern.",
        "3feb027db048a41a both",
        _distance("native", "eager", "traced"),
        equals(0),
        "0 ulp apart",
        "{} ulp apart",
    ),
    Claim(
        "trg-staged-same-bits",
        "native",
        "In eager mode, stages give the bits of the whole graph.",
        "3feb027db048a41a both",
        _distance("native", "eager", "eager-staged"),
        equals(0),
        "0 ulp apart",
        "{} ulp apart",
    ),
    Claim(
        "trg-gradient-is-exact",
        "native",
        "Four steps truncate nothing: the gradient is that of the 4×4 torus.",
        "0.844054073623855",
        _error,
        at_most(1e-13),
        "within 1e-13 of the enumeration of all 65,536 states, in all four modes",
        "off by {:.2g}",
    ),
    Claim(
        "trg-torch-agrees",
        "torch",
        "PyTorch's gradient of four steps agrees but for rounding.",
        "the same to the digits shown",
        lambda facts: abs(facts["torch"]["eager"]["gradient"] - facts["native"]["eager"]["gradient"]),
        at_most(1e-12),
        "at most 1e-12 apart",
        "{:.2g} apart",
    ),
)
