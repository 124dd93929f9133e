"""Experiment 1: do the two modes of a backend give the same gradient?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trgbench.study.claims import Claim, Facts, at_most, equals
from trgbench.study.lab import LEFT_OUT, MISSING, Lab
from trgbench.study.tables import pick, table
from trgbench.study.tasks import bits, problem_of, ready

TITLE = "Do eager and traced give the same gradient?"
N = 1000


def gradients(backend: str) -> dict[str, Any]:
    """Return how the eager and the traced gradient of vector(1000) agree, and the bits of both."""
    import numpy as np

    problem = problem_of(["vector", N])
    found = []
    for mode in ("eager", "traced"):
        _, call = ready(backend, mode, problem)
        value, gradient = call()
        problem.check(problem.example, value, gradient)
        found.append(np.asarray(gradient))
    return {
        "equal": int(np.count_nonzero(found[0].view(np.int64) == found[1].view(np.int64))),
        "max_difference": float(np.max(np.abs(found[0] - found[1]))),
        "eager": bits(found[0]),
        "traced": bits(found[1]),
    }


def measure(lab: Lab) -> dict[str, Any]:
    data: dict[str, Any] = {}
    for backend in ("native", "jax", "torch"):
        widths = lab.widths if backend == "native" or not lab.quick else (1,)
        slow = lab.quick and backend == "torch"  # its traced gradient takes half a minute to compile
        by_width = {
            width: LEFT_OUT if slow else lab.run(gradients, backend=backend, threads=width)
            for width in widths
        }
        found = [entry for entry in by_width.values() if MISSING not in entry]
        data[backend] = {
            "threads": {
                str(width): entry if MISSING in entry else {k: entry[k] for k in ("equal", "max_difference")}
                for width, entry in by_width.items()
            },
            "same_at_all_widths": {
                mode: all(entry[mode] == found[0][mode] for entry in found)
                if len(found) > 1
                else {MISSING: f"measured with {len(found)} thread count only"}
                for mode in ("eager", "traced")
            },
        }
    return data


def tables(data: Mapping[str, Any]) -> list[dict[str, Any]]:
    rows = [
        [
            backend,
            int(threads),
            pick(entry, "equal"),
            pick(entry, "max_difference"),
            pick(data, backend, "same_at_all_widths", "eager"),
            pick(data, backend, "same_at_all_widths", "traced"),
        ]
        for backend, found in data.items()
        for threads, entry in found["threads"].items()
    ]
    columns = [
        (f"bitwise equal of {N}", ""),
        ("largest difference", ""),
        ("eager same at all threads", ""),
        ("traced same at all threads", ""),
    ]
    title = f"vector, n = {N}: the eager gradient against the traced one"
    return [table("same-gradient", title, ["backend", "threads"], columns, rows)]


def _equal(backend: str) -> Any:
    return lambda facts: min(
        facts[backend]["threads"][threads]["equal"] for threads in facts[backend]["threads"].data
    )


def _both_widths(facts: Facts) -> list[bool]:
    same = facts["native"]["same_at_all_widths"]
    return [same["eager"], same["traced"]]


CLAIMS = (
    Claim(
        "native-modes-same-bits",
        "native",
        "Eager and traced gradients are bitwise equal.",
        "max diff 0, bitwise equal: true",
        _equal("native"),
        equals(N),
        f"all {N} elements have the same bits, at every thread count",
        f"{{}} of {N} bitwise equal",
    ),
    Claim(
        "native-widths-same-bits",
        "native",
        "The gradient is the same to the last bit with one thread and with all.",
        "1 and 8 threads: output the same",
        _both_widths,
        all,
        "eager and traced each give the same bits with 1 thread and with all",
        "same bits, eager and traced: {}",
    ),
    Claim(
        "jax-modes-differ-in-bits",
        "jax",
        "JAX without and with jit are not bitwise equal.",
        "777 of 1000 equal",
        _equal("jax"),
        at_most(N - 1),
        f"fewer than {N} elements have the same bits",
        f"{{}} of {N} bitwise equal",
    ),
    Claim(
        "jax-modes-differ-in-last-digit",
        "jax",
        "They differ by a rounding only.",
        "max diff 4.4e-16",
        lambda facts: facts["jax"]["threads"][1]["max_difference"],
        lambda value: 0 < value <= 1.8e-15,
        "more than 0 and at most 1.8e-15, two roundings of the largest element",
        "max diff {:.2g}",
    ),
)
