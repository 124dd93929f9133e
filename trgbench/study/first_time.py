"""Experiment 5: the first gradient in a process, taken apart."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from trgbench.study.claims import Claim, Facts, at_least, at_most
from trgbench.study.lab import BACKENDS, LEFT_OUT, MISSING, Lab
from trgbench.study.tables import pick, table
from trgbench.study.tasks import clock, fastest, problem_of, width

TITLE = "What does the first gradient in a process cost?"
N = 1000
PARTS = ("import", "trace", "compile", "forward", "backward", "run", "total", "steady")
CASES = tuple((backend, mode) for backend in BACKENDS for mode in ("eager", "traced"))
# With a compiled program from the disk this would not be a first call.
NO_DISK = {"JAX_ENABLE_COMPILATION_CACHE": "0", "TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1"}


class Watch:
    """Seconds by part, each from the end of the one before."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.parts: dict[str, float] = {}
        self.now = now
        self.last = now()

    def __call__(self, part: str) -> None:
        self.parts[part] = self.now() - self.last
        self.last = self.now()


def first(backend: str, mode: str) -> dict[str, float]:
    """Return the seconds that the parts of the first gradient of vector(1000) take, and of a warm one."""
    problem = problem_of(["vector", N])
    # torch.compile has compilers at work outside this process.
    watch = Watch(time.perf_counter if (backend, mode) == ("torch", "traced") else clock())
    again = {"native": _native, "jax": _jax, "torch": _torch}[backend](problem, mode, watch)
    parts = dict(watch.parts)
    total = sum(seconds for part, seconds in parts.items() if part != "import")
    return {**parts, "total": total, "steady": fastest(again, 0.1)}


def _native(problem: Any, mode: str, watch: Watch) -> Callable[[], Any]:
    from trgbench import engine

    watch("import")
    if mode == "eager":
        session = engine.Session(width())
        value = problem.value(engine, engine.svd, session.variable(problem.example))
        watch("forward")
        value.backward()
        watch("backward")
        return lambda: problem.value(engine, engine.svd, session.variable(problem.example)).backward()
    graph = engine.trace(lambda x: problem.value(engine, engine.svd, x), engine.spec((N,)))
    graph = engine.value_and_grad(graph)
    watch("trace")
    program = engine.Runtime(width()).prepare(graph)
    watch("compile")
    program(problem.example)
    watch("run")
    return lambda: program(problem.example)


def _jax(problem: Any, mode: str, watch: Watch) -> Callable[[], Any]:
    import jax
    import jax.numpy as jnp

    jax.config.update("jax_enable_x64", True)  # type: ignore[no-untyped-call]
    x: Any = jnp.asarray(problem.example)
    x.block_until_ready()
    watch("import")
    gradient = jax.value_and_grad(lambda x: problem.value(jnp, None, x))
    call: Any
    if mode == "eager":
        call = gradient
    else:
        lowered = jax.jit(gradient).trace(x).lower()
        watch("trace")
        call = lowered.compile()
        watch("compile")

    def run() -> None:
        for result in call(x):
            result.block_until_ready()

    run()
    watch("run")
    return run


def _torch(problem: Any, mode: str, watch: Watch) -> Callable[[], Any]:
    import array_api_compat.torch as xp
    import torch

    from trgbench import backends

    torch.set_num_threads(width())
    watch("import")
    if mode == "traced":
        prepared = backends.get("torch").prepare(problem, "traced", width())
        watch("compile")
        x = prepared.built.asarray(problem.example)
        prepared.built.run(x)
        watch("run")
        return lambda: prepared.built.run(x)
    leaf = torch.as_tensor(problem.example).requires_grad_()
    value = problem.value(xp, None, leaf)
    watch("forward")
    torch.autograd.grad(value, leaf)
    watch("backward")
    return lambda: torch.autograd.grad(problem.value(xp, None, leaf), leaf)


def measure(lab: Lab) -> dict[str, Any]:
    data: dict[str, Any] = {}
    for backend, mode in CASES:
        slow = (backend, mode) == ("torch", "traced")
        if slow and lab.quick:
            found = LEFT_OUT
        else:
            repeats = 1 if slow or (lab.quick and backend != "native") else 3
            runs = [lab.run(first, backend=backend, mode=mode, environment=NO_DISK) for _ in range(repeats)]
            bad = [run for run in runs if MISSING in run]
            found = bad[0] if bad else {part: min(run[part] for run in runs) for part in runs[0]}
        data.setdefault(backend, {})[mode] = found
    return data


def tables(data: Mapping[str, Any]) -> list[dict[str, Any]]:
    rows = [[backend, mode, *(pick(data, backend, mode, part) for part in PARTS)] for backend, mode in CASES]
    title = f"vector, n = {N}: the first gradient in a fresh process, part by part; total is without import"
    return [table("first-time", title, ["backend", "mode"], [(part, "s") for part in PARTS], rows)]


def _over(one: tuple[str, str, str], other: tuple[str, str, str]) -> Any:
    def value(facts: Facts) -> float:
        a, b = (facts[backend][mode][part] for backend, mode, part in (one, other))
        return a / b

    return value


CLAIMS = (
    Claim(
        "first-eager-below-jax",
        "native",
        "The first eager gradient takes less than JAX's first without jit.",
        "0.75 against 116 ms",
        _over(("native", "eager", "total"), ("jax", "eager", "total")),
        at_most(0.5),
        "at most half",
        "{:.3f} of JAX's",
    ),
    Claim(
        "first-traced-below-jax",
        "native",
        "The first traced gradient takes less than JAX's first jit(grad).",
        "0.24 against 12 ms",
        _over(("native", "traced", "total"), ("jax", "traced", "total")),
        at_most(0.5),
        "at most half",
        "{:.3f} of JAX's",
    ),
    Claim(
        "first-nojit-above-jit",
        "jax",
        "JAX's first gradient without jit takes longer than its first with jit.",
        "116 against 12 ms",
        _over(("jax", "eager", "total"), ("jax", "traced", "total")),
        at_least(1.2),
        "at least 1.2 times as long",
        "{:.2f} times",
    ),
    Claim(
        "first-backward-prepares",
        "native",
        "The first eager gradient makes the derivative program, and takes far longer than a warm one.",
        "0.75 ms against 75 µs",
        _over(("native", "eager", "total"), ("native", "eager", "steady")),
        at_least(3.0),
        "at least 3 times as long",
        "{:.1f} times",
    ),
    Claim(
        "first-traced-below-eager",
        "native",
        "In a fresh process traced has its first gradient sooner than eager.",
        "0.24 against 0.75 ms",
        _over(("native", "traced", "total"), ("native", "eager", "total")),
        at_most(1.25),
        "traced takes at most 1.25 times as long, for both load the same libraries",
        "{:.2f} of eager's",
    ),
)
