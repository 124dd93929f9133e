"""The study: twelve experiments on this machine, and what becomes of each of the study's claims here.

An experiment is a module `trgbench.study.<name>`, which defines

* `TITLE`          what it asks;
* `measure(lab)`   measures and returns plain data (see `trgbench.study.lab`);
* `tables(data)`   that data as tables for people;
* `CLAIMS`         what the study states about it (see `trgbench.study.claims`).

It imports nothing that loads NumPy at its top: its tasks run in processes of their own, pinned first.
"""

from __future__ import annotations

import importlib
from types import ModuleType

from trgbench.errors import InputError, check_choice

EXPERIMENTS = (
    "same-gradient",
    "why-jax-differs",
    "same-on-trg",
    "time-over-n",
    "first-time",
    "depth",
    "whole-graph",
    "staged",
    "cache",
    "svd-rule",
    "shape-change",
    "branching",
)


def get(name: str) -> ModuleType:
    """Return the module of the experiment `name`."""
    check_choice("experiment", name, EXPERIMENTS)
    return importlib.import_module(f"{__name__}.{name.replace('-', '_')}")


def select(names: list[str]) -> tuple[str, ...]:
    """Return the experiments asked for, by name or by number, in the study's order; all if none is named.

    Raises:
        InputError: if there is no such experiment.

    >>> select(["9", "depth"])
    ('depth', 'cache')
    """
    chosen = set()
    for name in names:
        if name.isdigit() and 1 <= int(name) <= len(EXPERIMENTS):
            chosen.add(EXPERIMENTS[int(name) - 1])
        elif name in EXPERIMENTS:
            chosen.add(name)
        else:
            listed = ", ".join(f"{number} {known}" for number, known in enumerate(EXPERIMENTS, 1))
            raise InputError(f"unknown experiment {name!r}; choose by name or number: {listed}")
    return tuple(name for name in EXPERIMENTS if not names or name in chosen)
