"""Experiment 9: what the cache of prepared derivative programs holds after many staged gradients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trgbench.study.claims import Claim, Facts, at_most, equals
from trgbench.study.lab import Lab
from trgbench.study.stages_native import sweep
from trgbench.study.tables import pick, table
from trgbench.study.tasks import problem_of, width

TITLE = "What does the cache of derivative programs keep?"
BETAS = (0.3, 0.4, 0.44, 0.5, 0.6)


def staged(chi: int, steps: int, betas: list[float], repetitions: int) -> dict[str, Any]:
    """Return the cache's counters after each β, every gradient taken `repetitions` times."""
    import numpy as np

    from trgbench import engine

    runtime, problem = engine.Runtime(width()), problem_of(["trg", chi, steps])
    after = []
    for beta in betas:
        for _ in range(repetitions):
            sweep(problem, np.asarray(beta), runtime)
        after.append({"beta": beta, **runtime.stats()._asdict()})
    return {"stages": len(problem.stages), "gradients": len(betas) * repetitions, "after": after}


def measure(lab: Lab) -> dict[str, Any]:
    repetitions = 2 if lab.quick else 4
    return {"native": lab.run(staged, chi=16, steps=20, betas=list(BETAS), repetitions=repetitions)}


def tables(data: Mapping[str, Any]) -> list[dict[str, Any]]:
    after = pick(data, "native", "after")
    if isinstance(after, Mapping):
        return [table("cache", TITLE, [], [("native", "")], [[after]])]
    counters = ["entries", "retained_bytes", "hits", "misses", "evictions"]
    columns = [(name.replace("_", " "), "bytes" if name.endswith("bytes") else "") for name in counters]
    rows = [[entry["beta"], *(entry[name] for name in counters)] for entry in after]
    per_beta = data["native"]["gradients"] // len(rows)
    title = f"Eager in stages, 20 steps at chi = 16: the cache after {per_beta} gradients at each beta"
    return [table("cache", title, ["beta"], columns, rows)]


def _counters(facts: Facts, which: int = -1) -> Facts:
    return Facts(facts["native"]["after"][which])


CLAIMS = (
    Claim(
        "cache-one-entry-a-shape",
        "native",
        "Twenty steps need 7 derivative programs: 5 step shapes, the initial tensor, the final log-trace.",
        "7 entries",
        lambda facts: _counters(facts)["entries"],
        equals(7),
        "7 entries",
        "{} entries",
    ),
    Claim(
        "cache-shared-by-all-beta",
        "native",
        "All β share them: after the first no further program is made.",
        "7 misses in all",
        lambda facts: _counters(facts)["misses"] - _counters(facts, 0)["misses"],
        equals(0),
        "no miss after the first β",
        "{} misses after the first β",
    ),
    Claim(
        "cache-hits-the-rest",
        "native",
        "Every other lookup is a hit.",
        "433 hits, 7 misses of 440",
        lambda facts: (
            facts["native"]["stages"] * facts["native"]["gradients"]
            - _counters(facts)["hits"]
            - _counters(facts)["entries"]
        ),
        equals(0),
        "hits and entries add up to one lookup a stage and gradient",
        "{} lookups are neither",
    ),
    Claim(
        "cache-evicts-nothing",
        "native",
        "Nothing is evicted.",
        "0 evictions",
        lambda facts: _counters(facts)["evictions"],
        equals(0),
        "no evictions",
        "{} evictions",
    ),
    Claim(
        "cache-is-small",
        "native",
        "What the cache retains is small, and does not depend on how many gradients were taken.",
        "42,848 bytes",
        lambda facts: _counters(facts)["retained_bytes"],
        at_most(2**20),
        "at most 1 MiB",
        "{} bytes",
    ),
)
