"""Experiment 4: the time of a gradient over the size of the array, with one thread and with all."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from trgbench.study.claims import Claim, at_least, at_most
from trgbench.study.lab import BACKENDS, LEFT_OUT, MISSING, Lab
from trgbench.study.tables import pick, table
from trgbench.study.tasks import eager_calls, fastest, halves, problem_of, ready, versus, width

TITLE = "What does one gradient cost, over the size of the array?"
SIZES = (10, 100, 1000, 10_000, 100_000, 1_000_000)
QUICK_SIZES = (10, 1000, 1_000_000)
SLOW = 1_000_000


def times(backend: str, sizes: list[int], traced: bool, budget: float) -> dict[str, Any]:
    """Return seconds by size: a gradient in each mode, the halves of the eager one, eager/traced in turns."""
    found: dict[str, Any] = {}
    for n in sizes:
        problem = problem_of(["vector", n])
        _, eager = ready(backend, "eager", problem)
        problem.check(problem.example, *eager())
        entry: dict[str, Any] = {"eager": fastest(eager, budget)}
        if traced:
            _, program = ready(backend, "traced", problem)
            problem.check(problem.example, *program())
            entry["traced"] = fastest(program, budget)
            entry["eager_over_traced"] = versus(eager, program)
        if backend != "jax":
            entry["forward"], entry["backward"] = halves(*eager_calls(backend, problem), budget)
        if backend == "native":
            entry["recorded_over_not"] = _recorded_over_not(problem)
        found[str(n)] = entry
    return found


def _recorded_over_not(problem: Any) -> float:
    """Return how many times longer a forward takes when it is recorded for a derivative."""
    from trgbench import engine

    session = engine.Session(width())
    x = problem.example.copy()
    x.flags.writeable = False

    def recorded() -> None:
        problem.value(engine, engine.svd, session.variable(x))
        session.__exit__()  # forgets the recording, which would grow from call to call

    def unrecorded() -> None:
        problem.value(engine, engine.svd, session.constant(x))

    return versus(recorded, unrecorded)


def speedup() -> dict[str, float]:
    """Return how many times faster a gradient at n = 10⁶ is with all threads than with one, by mode."""
    from trgbench import backends

    problem, native = problem_of(["vector", SLOW]), backends.get("native")
    found = {}
    for mode in ("eager", "traced"):
        one, every = (native.prepare(problem, mode, threads).built for threads in (1, width()))
        x = one.asarray(problem.example)
        found[mode] = versus(functools.partial(one.run, x), functools.partial(every.run, x))
    return found


def measure(lab: Lab) -> dict[str, Any]:
    sizes = list(QUICK_SIZES if lab.quick else SIZES)
    budget = 0.1 if lab.quick else 0.5
    data: dict[str, Any] = {}
    for backend in BACKENDS:
        data[backend] = {}
        for threads in lab.widths:
            if lab.quick and threads > 1 and backend != "native":
                data[backend][str(threads)] = LEFT_OUT
                continue
            data[backend][str(threads)] = lab.run(
                times,
                threads=threads,
                backend=backend,
                sizes=sizes,
                traced=not (lab.quick and backend == "torch"),
                budget=budget,
            )
    alone = {MISSING: "with a single CPU there is nothing to compare"}
    data["native_speedup"] = lab.run(speedup, threads=lab.cpus) if lab.cpus > 1 else alone
    return data


def tables(data: Mapping[str, Any]) -> list[dict[str, Any]]:
    columns = [
        ("native eager forward", "s", "native", "forward"),
        ("native eager backward", "s", "native", "backward"),
        ("native eager", "s", "native", "eager"),
        ("native traced", "s", "native", "traced"),
        ("jax eager", "s", "jax", "eager"),
        ("jax traced", "s", "jax", "traced"),
        ("torch eager forward", "s", "torch", "forward"),
        ("torch eager backward", "s", "torch", "backward"),
        ("torch eager", "s", "torch", "eager"),
        ("torch traced", "s", "torch", "traced"),
        ("native eager / traced", "", "native", "eager_over_traced"),
    ]
    result = []
    for threads in data["native"]:
        sizes = [n for n in map(str, SIZES) if any(n in pick(data, b, threads) for b in BACKENDS)]
        rows = [[int(n), *(pick(data, b, threads, n, what) for _, _, b, what in columns)] for n in sizes]
        title = f"vector: one gradient, warm, {threads} thread{'s' if threads != '1' else ''}"
        heads = [(name, unit) for name, unit, _, _ in columns]
        result.append(table(f"time-over-n-{threads}", title, ["n"], heads, rows))
    rows = [[mode, pick(data, "native_speedup", mode)] for mode in ("eager", "traced")]
    title = f"native, n = {SLOW}: how many times faster with all threads, in turns"
    result.append(table("time-over-n-speedup", title, ["mode"], [("speed-up", "")], rows))
    return result


def _ratio(backend: str, n: int) -> Any:
    return lambda facts: facts[backend][1][n]["eager_over_traced"]


def _between(backend: str, what: str, n: int, m: int) -> Any:
    return lambda facts: facts[backend][1][n][what] / facts[backend][1][m][what]


CLAIMS = (
    Claim(
        "eager-backward-has-fixed-cost",
        "native",
        "On small arrays eager's backward costs the same whatever their size.",
        "58.3 µs at n = 10, 60.1 µs at 1000",
        _between("native", "backward", 1000, 10),
        at_most(5.0),
        "at n = 1000 at most 5 times that at n = 10, for 100 times the data",
        "{:.2f} times",
    ),
    Claim(
        "eager-slower-when-small",
        "native",
        "On small arrays eager takes several times as long as traced.",
        "8.6 times at n = 10",
        _ratio("native", 10),
        at_least(1.5),
        "at n = 10 at least 1.5 times as long",
        "{:.2f} times",
        better="the eager gradient at n = 10 is closer to the traced one than 8.6 times",
    ),
    Claim(
        "eager-overhead-amortises",
        "native",
        "On large arrays eager's overhead is spread thin: eager nears traced.",
        "8.6 times at n = 10, 1.5 at 10⁶",
        lambda facts: [_ratio("native", 10)(facts), _ratio("native", SLOW)(facts)],
        lambda pair: pair[1] < pair[0] and pair[1] <= 2.0,
        "at 10⁶ at most 2 times as long, and nearer than at n = 10",
        "eager/traced at n = 10 and 10⁶: {0[0]:.2f}, {0[1]:.2f}",
    ),
    Claim(
        "recording-doubles-a-small-forward",
        "native",
        "A forward that is recorded takes about twice as long as one that is not.",
        "14.7 against 7.6 µs at n = 1000",
        lambda facts: facts["native"][1][1000]["recorded_over_not"],
        at_least(1.75),
        "at least 1.75 times as long at n = 1000",
        "{:.2f} times",
        better="recording costs less than doubling",
    ),
    Claim(
        "traced-uses-threads",
        "native",
        "Traced uses the threads at n = 10⁶.",
        "7.8 ms with 1 thread, 1.1 ms with 8",
        lambda facts: facts["native_speedup"]["traced"],
        at_least(1.3),
        "with all threads at least 1.3 times as fast as with one",
        "{:.2f} times as fast",
    ),
    Claim(
        "eager-uses-threads-badly",
        "native",
        "Eager does not use the threads at n = 10⁶ as traced does.",
        "5.9 ms against traced's 1.1 ms with 8 threads",
        lambda facts: facts["native_speedup"]["traced"] / facts["native_speedup"]["eager"],
        at_least(1.25),
        "threads speed traced up at least 1.25 times as much as eager",
        "traced gains {:.2f} times what eager gains",
        better="both modes run the same kernels with the same width",
    ),
    Claim(
        "jax-nojit-is-flat",
        "jax",
        "JAX without jit takes the same time from n = 10 to 1000: it is dispatch.",
        "1.1 ms both",
        _between("jax", "eager", 1000, 10),
        at_most(3.0),
        "at n = 1000 at most 3 times that at n = 10, for 100 times the data",
        "{:.2f} times",
    ),
    Claim(
        "jax-nojit-is-no-counterpart",
        "jax",
        "JAX without jit is no counterpart of eager: it is many times slower on small arrays.",
        "15 times tenferro's eager",
        lambda facts: facts["jax"][1][1000]["eager"] / facts["native"][1][1000]["eager"],
        at_least(5.0),
        "at n = 1000 at least 5 times as long as native eager",
        "{:.1f} times",
    ),
    Claim(
        "jax-jit-fastest-when-small",
        "jax",
        "On small arrays JAX's jit is the fastest of all.",
        "the fastest",
        lambda facts: (
            facts["jax"][1][10]["traced"]
            / min(facts["native"][1][10]["traced"], facts["torch"][1][10]["eager"])
        ),
        at_most(1.0),
        "at n = 10 faster than native traced and PyTorch eager",
        "{:.2f} times the fastest other",
    ),
    Claim(
        "eager-backward-above-torch-when-small",
        "native",
        "At n = 10 eager's backward takes several times as long as PyTorch's.",
        "58.3 against 17.8 µs",
        lambda facts: facts["native"][1][10]["backward"] / facts["torch"][1][10]["backward"],
        at_least(1.5),
        "at least 1.5 times as long",
        "{:.2f} times",
        better="a hit in the cache runs a short prepared program and nothing else",
    ),
)
