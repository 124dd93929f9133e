"""Experiment 10: the libraries' own SVD derivative on TRG, where singular values coincide."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from typing import Any

from trgbench.study.claims import Claim, Facts, at_most, equals
from trgbench.study.lab import LEFT_OUT, MISSING, Lab
from trgbench.study.tables import pick, table
from trgbench.study.tasks import problem_of, ready

TITLE = "What does the library's own SVD derivative give?"
CHI = 16
STEPS = (1, 2, 3, 4, 5, 6, 8, 12, 20)
QUICK_STEPS = (4, 5, 20)
RULES = {"native": ("safe",), "jax": ("builtin", "safe"), "torch": ("builtin", "safe")}


def gradients(backend: str, mode: str, svd: str, steps: list[int]) -> dict[str, Any]:
    """Return by steps whether the value and the gradient are finite, and the gradient."""
    found = {}
    for count in steps:
        problem = problem_of(["trg", CHI, count])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what is not finite is the result here
            _, call = ready(backend, mode, problem, svd)
            value, gradient = (float(number) for number in call())
        found[str(count)] = {
            "value_finite": math.isfinite(value),
            "gradient_finite": math.isfinite(gradient),
            "gradient": gradient,
        }
    return found


def measure(lab: Lab) -> dict[str, Any]:
    steps = list(QUICK_STEPS if lab.quick else STEPS)
    data: dict[str, Any] = {}
    for backend, rules in RULES.items():
        data[backend] = {}
        for svd in rules:
            # JAX compiles every operation that is new to it, which takes half a minute.
            data[backend][svd] = (
                LEFT_OUT
                if lab.quick and backend == "jax"
                else lab.run(gradients, backend=backend, mode="eager", svd=svd, steps=steps)
            )
    return data


def tables(data: Mapping[str, Any]) -> list[dict[str, Any]]:
    columns = [(backend, svd) for backend, rules in RULES.items() for svd in rules]
    rows = []
    for count in map(str, STEPS):
        entries = [pick(data, backend, svd, count) for backend, svd in columns]
        if any(entry and MISSING not in entry for entry in entries):
            rows.append([int(count), *map(_shown, entries)])
    heads = [(f"{backend} {svd}", "") for backend, svd in columns]
    title = f"TRG as one graph, eager, chi = {CHI}, beta = 0.3: d(lnZ/N)/dbeta by SVD rule"
    return [table("svd-rule", title, ["steps"], heads, rows)]


def _shown(entry: Any) -> Any:
    if not entry or MISSING in entry:
        return entry
    return f"{entry['gradient']:.12f}" if entry["gradient_finite"] else "NaN"


def _first_not_finite(backend: str) -> Any:
    def value(facts: Facts) -> int:
        by_steps = facts[backend]["builtin"]
        bad = [int(count) for count in by_steps.data if not by_steps[count]["gradient_finite"]]
        return min(bad, default=0)

    return value


def _torch_twenty(facts: Facts) -> str:
    entry = facts["torch"]["builtin"][20]
    value, gradient = ("finite" if entry[f"{what}_finite"] else "NaN" for what in ("value", "gradient"))
    return f"value {value}, gradient {gradient}"


def _safe_error(backend: str) -> Any:
    wanted = 0.704498679529753  # the study's -u of 20 steps at β = 0.3
    return lambda facts: abs(facts[backend]["safe"][20]["gradient"] - wanted)


CLAIMS = (
    Claim(
        "svd-torch-20-steps-nan",
        "torch",
        "PyTorch's gradient of 20 steps, as one graph with its own SVD derivative, is NaN; the value is not.",
        "nan",
        _torch_twenty,
        equals("value finite, gradient NaN"),
        "the value is finite and the gradient is not",
    ),
    Claim(
        "svd-torch-nan-from-step-5",
        "torch",
        "PyTorch's gradient is NaN from the fifth step on.",
        "nan at 20 steps",
        _first_not_finite("torch"),
        equals(5),
        "finite at 4 steps, not at 5",
        "NaN from step {}",
    ),
    Claim(
        "svd-jax-nan-from-step-5",
        "jax",
        "JAX's own SVD derivative gives NaN as well.",
        "not measured there",
        _first_not_finite("jax"),
        equals(5),
        "finite at 4 steps, not at 5",
        "NaN from step {}",
    ),
    Claim(
        "svd-native-finite",
        "native",
        "The engine's SVD rule gives a finite, right gradient of 20 steps.",
        "0.704498679529753",
        _safe_error("native"),
        at_most(1e-10),
        "within 1e-10 of the study's",
        "off by {:.2g}",
    ),
    Claim(
        "svd-torch-safe-right",
        "torch",
        "With a guarded rule PyTorch's gradient of 20 steps is finite and right too.",
        "not measured there",
        _safe_error("torch"),
        at_most(1e-10),
        "within 1e-10 of the study's",
        "off by {:.2g}",
    ),
)
