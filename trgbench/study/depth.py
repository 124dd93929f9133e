"""Experiment 6: the time of a gradient over the depth of the graph: sum(sin(sin(… sin x))), n = 10."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trgbench.study.claims import Claim, at_least, at_most
from trgbench.study.lab import BACKENDS, Lab
from trgbench.study.tables import pick, table
from trgbench.study.tasks import eager_calls, fastest, halves, problem_of, ready, versus

TITLE = "How does the cost of a gradient grow with the depth of the graph?"
DEPTHS = (10, 25, 50, 100, 200, 400)
QUICK_DEPTHS = (10, 100, 400)
SHALLOW, DEEP = 100, 400
LINEAR = 7.0  # growth from 100 to 400 layers: 4 if linear, 16 if quadratic


def times(backend: str, modes: list[str], depths: list[int], budget: float) -> dict[str, Any]:
    """Return seconds by depth, of a gradient in each mode and of the halves of the eager one, and growths."""
    found: dict[str, Any] = {str(depth): {} for depth in depths}
    calls: dict[tuple[str, int], Any] = {}
    for depth in depths:
        problem = problem_of(["chain", depth])
        for mode in modes:
            _, call = ready(backend, mode, problem)
            problem.check(problem.example, *call())
            found[str(depth)][mode] = fastest(call, budget)
            calls[mode, depth] = call
        if backend != "jax":
            pair = eager_calls(backend, problem)
            found[str(depth)]["forward"], found[str(depth)]["backward"] = halves(*pair, budget)
            calls["halves", depth] = pair
    grown = {mode: versus(calls[mode, DEEP], calls[mode, SHALLOW]) for mode in modes}
    if backend != "jax":
        grown["forward"], grown["backward"] = _growth_of_halves(
            calls["halves", DEEP], calls["halves", SHALLOW]
        )
    return {"by_depth": found, "growth": grown}


def _growth_of_halves(deep: Any, shallow: Any) -> tuple[float, float]:
    """Return how many times longer the forward and the backward take, timed in turns."""
    turns = [[halves(forward, backward, 0.05) for forward, backward in (deep, shallow)] for _ in range(7)]
    fastest_of = [[min(turn[side][half] for turn in turns) for side in (0, 1)] for half in (0, 1)]
    return fastest_of[0][0] / fastest_of[0][1], fastest_of[1][0] / fastest_of[1][1]


def native_against(backend: str, depth: int) -> dict[str, float]:
    """Return how native's eager backward compares with that of `backend` and with native traced, in turns."""
    problem = problem_of(["chain", depth])
    native, torch = (eager_calls(name, problem) for name in ("native", backend))
    _, program = ready("native", "traced", problem)
    turns = [(halves(*native, 0.05)[1], halves(*torch, 0.05)[1], fastest(program, 0.05)) for _ in range(7)]
    ours, theirs, traced = (min(turn[i] for turn in turns) for i in range(3))
    return {"over_torch": ours / theirs, "over_traced": ours / traced}


def measure(lab: Lab) -> dict[str, Any]:
    depths = list(QUICK_DEPTHS if lab.quick else DEPTHS)
    budget = 0.1 if lab.quick else 0.3
    jax_modes = ["traced"] if lab.quick else ["eager", "traced"]
    modes = {"native": ["eager", "traced"], "jax": jax_modes, "torch": ["eager"]}
    data: dict[str, Any] = {
        backend: lab.run(times, backend=backend, modes=modes[backend], depths=depths, budget=budget)
        for backend in BACKENDS
    }
    data["native_backward"] = lab.run(native_against, backend="torch", depth=DEEP)
    return data


def tables(data: Mapping[str, Any]) -> list[dict[str, Any]]:
    columns = [
        ("native eager forward", "native", "forward"),
        ("native eager backward", "native", "backward"),
        ("native eager", "native", "eager"),
        ("native traced", "native", "traced"),
        ("jax eager", "jax", "eager"),
        ("jax traced", "jax", "traced"),
        ("torch eager forward", "torch", "forward"),
        ("torch eager backward", "torch", "backward"),
        ("torch eager", "torch", "eager"),
    ]
    known = [d for d in map(str, DEPTHS) if any(d in pick(data, b, "by_depth") for b in BACKENDS)]
    rows = [[int(d), *(pick(data, b, "by_depth", d, what) for _, b, what in columns)] for d in known]
    title = "chain, n = 10: one gradient, warm, 1 thread"
    grown = [[what, pick(data, backend, "growth", key)] for what, backend, key in columns]
    return [
        table("depth", title, ["depth"], [(name, "s") for name, _, _ in columns], rows),
        table(
            "depth-growth",
            f"How many times longer at {DEEP} layers than at {SHALLOW}, in turns; 4 is linear",
            ["what"],
            [("growth", "")],
            grown,
        ),
    ]


def _growth(backend: str, what: str) -> Any:
    return lambda facts: facts[backend]["growth"][what]


def _linear(id: str, about: str, what: str, statement: str, source: str) -> Claim:
    criterion = f"from {SHALLOW} to {DEEP} layers at most {LINEAR:g} times as long"
    return Claim(
        id, about, statement, source, _growth(about, what), at_most(LINEAR), criterion, "{:.2f} times"
    )


CLAIMS = (
    Claim(
        "depth-eager-backward-superlinear",
        "native",
        "Eager's backward grows faster than the depth, although every call hits its cache.",
        "13 times from 100 to 400 layers",
        _growth("native", "backward"),
        at_least(LINEAR),
        f"from {SHALLOW} to {DEEP} layers at least {LINEAR:g} times as long",
        "{:.2f} times",
        better="nothing walks the recording on a hit, so backward is linear",
    ),
    Claim(
        "depth-eager-backward-above-traced",
        "native",
        "At 400 layers eager's backward takes many times as long as the traced gradient program.",
        "39 times",
        lambda facts: facts["native_backward"]["over_traced"],
        at_least(5.0),
        "at least 5 times as long",
        "{:.2f} times",
        better="a hit runs the prepared derivative program and nothing else",
    ),
    Claim(
        "depth-eager-backward-above-torch",
        "native",
        "At 400 layers eager's backward takes many times as long as PyTorch's.",
        "31 times",
        lambda facts: facts["native_backward"]["over_torch"],
        at_least(5.0),
        "at least 5 times as long",
        "{:.2f} times",
        better="it is of the order of PyTorch's backward or below it",
    ),
    _linear("depth-eager-forward-linear", "native", "forward", "Eager's forward grows linearly.", "linear"),
    _linear(
        "depth-traced-linear", "native", "traced", "The traced gradient program grows linearly.", "linear"
    ),
    _linear(
        "depth-torch-backward-linear", "torch", "backward", "PyTorch's backward grows linearly.", "linear"
    ),
)
