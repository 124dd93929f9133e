"""Experiment 7: TRG as one graph, from 1 step to 20: what is paid once, and what every time?"""

from __future__ import annotations

import functools
import time
from collections.abc import Mapping
from typing import Any

from trgbench import measure as timer
from trgbench.study.claims import Claim, Facts, at_least, at_most, equals
from trgbench.study.lab import LEFT_OUT, MISSING, Lab
from trgbench.study.tables import pick, table
from trgbench.study.tasks import clock, eager_calls, fastest, halves, problem_of, ready, width

TITLE = "What does TRG cost as one graph, from 1 step to 20?"
CHI = 16
STEPS = (1, 2, 3, 4, 6, 8, 10, 12, 16, 20)
QUICK_STEPS = (1, 4, 10, 20)


def native_eager(steps: list[int]) -> dict[str, Any]:
    """Return the seconds of forward and backward, first and warm, by steps."""
    found, now = {}, clock()
    for count in steps:
        forward, backward = eager_calls("native", problem_of(["trg", CHI, count]))
        start = now()
        value = forward()
        middle = now()
        backward(value)
        first = {"first_forward": middle - start, "first_backward": now() - middle}
        warm = halves(forward, backward, 0.5)
        found[str(count)] = {**first, "forward": warm[0], "backward": warm[1], "run": sum(warm)}
    return found


def cache_by_call(steps: int, calls: int) -> list[dict[str, Any]]:
    """Return the seconds of each of the first backward calls of one graph, and the cache's counters."""
    from trgbench import engine

    problem, session = problem_of(["trg", CHI, steps]), engine.Session(width())
    found, now = [], clock()
    for _ in range(calls):
        value = problem.value(engine, engine.svd, session.variable(problem.example))
        start = now()
        value.backward()
        seconds = now() - start
        found.append({"backward": seconds, **session.stats()._asdict()})
    return found


def native_traced(steps: list[int]) -> dict[str, Any]:
    """Return the seconds of trace and transform, of compiling, and of a run, and the operations, by steps."""
    from trgbench import engine

    found, now = {}, clock()
    for count in steps:
        problem = problem_of(["trg", CHI, count])

        def transformed(problem: Any = problem) -> Any:
            graph = engine.trace(lambda x: problem.value(engine, engine.svd, x), engine.spec(()))
            return engine.value_and_grad(graph)

        graph = transformed()
        trace = min(timer.once(transformed, timer=now) for _ in range(3))
        start = now()
        program = engine.Runtime(width()).prepare(graph)
        compile_seconds = now() - start
        value, gradient = program(problem.example)
        problem.check(problem.example, value, gradient)
        run = fastest(functools.partial(program, problem.example))
        operations = len(graph.nodes)
        found[str(count)] = {"trace": trace, "compile": compile_seconds, "operations": operations, "run": run}
    return found


def torch_eager(backend: str, steps: list[int]) -> dict[str, Any]:
    """Return the seconds of forward and backward by steps."""
    found = {}
    for count in steps:
        warm = halves(*eager_calls(backend, problem_of(["trg", CHI, count])), 0.5)
        found[str(count)] = {"forward": warm[0], "backward": warm[1], "run": sum(warm)}
    return found


def prepared(backend: str, mode: str, steps: list[int], limit: float) -> dict[str, Any]:
    """Return what a mode pays once and every time, by steps, none begun after `limit` seconds."""
    found: dict[str, Any] = {}
    begun = time.perf_counter()
    for count in steps:
        if time.perf_counter() - begun > limit:
            found[str(count)] = {MISSING: f"not begun: preparing fewer steps took {limit:.0f} s"}
            continue
        problem = problem_of(["trg", CHI, count])
        made, call = ready(backend, mode, problem)
        problem.check(problem.example, *call())
        found[str(count)] = {**made.built.costs, "run": fastest(call)}
    return found


def measure(lab: Lab) -> dict[str, Any]:
    steps = list(QUICK_STEPS if lab.quick else STEPS)
    fewer = [1, 4, 20] if lab.quick else steps

    def costly(backend: str, mode: str, steps: list[int]) -> Any:
        """Measure what takes half a minute to prepare."""
        return (
            LEFT_OUT if lab.quick else lab.run(prepared, backend=backend, mode=mode, steps=steps, limit=60.0)
        )

    return {
        "native": {
            "eager": lab.run(native_eager, steps=fewer),
            "traced": lab.run(native_traced, steps=steps),
            "calls": lab.run(cache_by_call, steps=4, calls=4),
        },
        "jax": {
            "eager": costly("jax", "eager", [4]),
            "traced": lab.run(
                prepared, backend="jax", mode="traced", steps=[4] if lab.quick else [1, 4, 20], limit=60.0
            ),
        },
        "torch": {
            "eager": lab.run(torch_eager, backend="torch", steps=fewer),
            "traced": costly("torch", "traced", [1, 4]),
        },
    }


def tables(data: Mapping[str, Any]) -> list[dict[str, Any]]:
    columns = [
        ("native eager forward", "s", "native", "eager", "forward"),
        ("native eager backward", "s", "native", "eager", "backward"),
        ("native traced: trace", "s", "native", "traced", "trace"),
        ("native traced: compile", "s", "native", "traced", "compile"),
        ("native traced: operations", "", "native", "traced", "operations"),
        ("native traced: run", "s", "native", "traced", "run"),
        ("jax eager: run", "s", "jax", "eager", "run"),
        ("jax traced: trace", "s", "jax", "traced", "trace"),
        ("jax traced: compile", "s", "jax", "traced", "compile"),
        ("jax traced: run", "s", "jax", "traced", "run"),
        ("torch eager forward", "s", "torch", "eager", "forward"),
        ("torch eager backward", "s", "torch", "eager", "backward"),
        ("torch traced: compile", "s", "torch", "traced", "compile"),
        ("torch traced: run", "s", "torch", "traced", "run"),
    ]
    known = [
        n for n in map(str, STEPS) if any(n in modes.get(m, {}) for modes in data.values() for m in modes)
    ]
    rows = [[int(n), *(pick(data, b, mode, n, what) for _, _, b, mode, what in columns)] for n in known]
    heads = [(name, unit) for name, unit, *_ in columns]
    result = [
        table("whole-graph", f"TRG as one graph, chi = {CHI}, beta = 0.3, 1 thread", ["steps"], heads, rows)
    ]
    calls = pick(data, "native", "calls")
    if not isinstance(calls, Mapping):
        heads = [("backward", "s"), ("entries", ""), ("hits", ""), ("misses", "")]
        rows = [[number, *(call[name] for name, _ in heads)] for number, call in enumerate(calls, 1)]
        title = "Native eager, 4 steps: the first backward calls and the cache after each"
        result.append(table("whole-graph-calls", title, ["call"], heads, rows))
    return result


def _native(mode: str, steps: int, what: str) -> Any:
    return lambda facts: facts["native"][mode][steps][what]


def _traced_growth(what: str) -> Any:
    # Between 10 and 20 steps every step has the same shapes and the same operations.
    return lambda facts: facts["native"]["traced"][20][what] / facts["native"]["traced"][10][what]


def _counters(facts: Facts) -> list[int]:
    calls = facts["native"]["calls"]
    return [calls[-1]["entries"], calls[-1]["misses"], *(call["hits"] for call in calls)]


def _repeat_over_first(facts: Facts) -> float:
    calls = facts["native"]["calls"]
    return min(call["backward"] for call in calls[1:]) / calls[0]["backward"]


CLAIMS = (
    Claim(
        "whole-eager-backward-takes-seconds",
        "native",
        "Eager's backward of four whole-graph steps takes seconds.",
        "7,500 ms",
        _native("eager", 4, "backward"),
        at_least(1.0),
        "at least 1 s",
        "{:.4f} s",
        better="a hit costs what the derivative program costs",
    ),
    Claim(
        "whole-eager-pays-every-time",
        "native",
        "Hits in the cache do not help: each backward of four steps costs what the first did.",
        "7,502, 7,488, 7,457, 7,481 ms",
        _repeat_over_first,
        at_least(0.8),
        "the fastest repetition takes at least 0.8 of the first",
        "{:.3f} of the first",
        better="only the first call pays for the derivative program",
    ),
    Claim(
        "whole-eager-cache-hits",
        "native",
        "Four backward calls of one graph are one miss and three hits of one entry.",
        "entries 1, misses 1, hits 0, 1, 2, 3",
        _counters,
        equals([1, 1, 0, 1, 2, 3]),
        "entries 1, misses 1, hits 0, 1, 2, 3",
        "entries, misses, hits: {}",
    ),
    Claim(
        "whole-transform-exponential",
        "native",
        "The traced transform grows exponentially with the number of steps.",
        "2,097 ms at 4 steps",
        _traced_growth("trace"),
        at_least(16.0),
        "twice the steps, 10 to 20, take at least 16 times as long",
        "{:.2f} times",
        better="one VJP transform that visits every node once",
    ),
    Claim(
        "whole-operations-grow",
        "native",
        "The gradient program of four steps has 863 operations.",
        "863",
        _native("traced", 4, "operations"),
        at_least(863),
        "at least 863 operations",
        "{}",
        better="SVD is one operation with one derivative, and nothing is transformed twice",
    ),
    Claim(
        "whole-operations-linear",
        "native",
        "The gradient program grows in proportion to the steps.",
        "not so: the transform is exponential",
        _traced_growth("operations"),
        at_most(2.2),
        "twice the steps, 10 to 20, give at most 2.2 times the operations",
        "{:.3f} times",
    ),
    Claim(
        "whole-traced-pays-once",
        "native",
        "Traced pays once: trace and compile cost many runs, every later gradient only the run.",
        "2,106 ms once, then 1.2 ms",
        lambda facts: (
            (_native("traced", 4, "trace")(facts) + _native("traced", 4, "compile")(facts))
            / _native("traced", 4, "run")(facts)
        ),
        at_least(3.0),
        "at 4 steps trace and compile take at least 3 runs",
        "{:.1f} runs",
    ),
    Claim(
        "whole-eager-worse-than-traced",
        "native",
        "A whole graph is of less use in eager than in traced: each gradient pays the transform again.",
        "7,500 ms against 1.2 ms",
        lambda facts: _native("eager", 4, "run")(facts) / _native("traced", 4, "run")(facts),
        at_least(10.0),
        "at 4 steps an eager gradient takes at least 10 times a traced one",
        "{:.2f} times",
        better="eager looks its derivative program up",
    ),
    Claim(
        "whole-torch-backward-small",
        "torch",
        "PyTorch's backward of four steps takes milliseconds.",
        "1.2 ms",
        lambda facts: facts["torch"]["eager"][4]["backward"],
        at_most(0.05),
        "at most 50 ms",
        "{:.4f} s",
    ),
)
