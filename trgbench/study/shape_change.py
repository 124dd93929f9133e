"""Experiment 11: the shape of the input changes, and changes back."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from trgbench.study.claims import Claim, Facts, at_least, at_most, equals
from trgbench.study.lab import LEFT_OUT, Lab
from trgbench.study.tables import pick, table
from trgbench.study.tasks import problem_of, width

TITLE = "What does a change of shape cost?"
BEFORE = 501
N, OTHER = 1000, 1001
CALLS = ("first", "steady", "new shape", "new shape again", "old shape again")


def calls(backend: str) -> dict[str, Any]:
    """Return the seconds of gradients at n = 1000 (501 times), 1001, 1001 and 1000, and the programs made."""
    gradient, programs = {"native": _native, "jax": _jax, "torch": _torch}[backend]()
    inputs = {n: problem_of(["vector", n]).example for n in (N, OTHER)}
    found: dict[str, Any] = {}

    def timed(n: int) -> float:
        start = time.perf_counter()
        gradient(inputs[n])
        return time.perf_counter() - start

    def note(call: str, seconds: float) -> None:
        found[call] = {"seconds": seconds, **programs()}

    note("first", timed(N))
    note("steady", min(timed(N) for _ in range(BEFORE - 1)))
    note("new shape", timed(OTHER))
    note("new shape again", timed(OTHER))
    note("old shape again", timed(N))
    return found


def _native() -> tuple[Callable[[Any], Any], Callable[[], dict[str, int]]]:
    from trgbench import engine

    session, problem = engine.Session(width()), problem_of(["vector", N])

    def gradient(x: Any) -> Any:
        leaf = session.variable(x)
        problem.value(engine, engine.svd, leaf).backward()
        return leaf.grad

    def programs() -> dict[str, int]:
        stats = session.stats()
        return {
            "programs": stats.entries,
            "hits": stats.hits,
            "misses": stats.misses,
            "evictions": stats.evictions,
        }

    return gradient, programs


def _jax() -> tuple[Callable[[Any], Any], Callable[[], dict[str, int]]]:
    import jax
    import jax.numpy as jnp

    jax.config.update("jax_enable_x64", True)  # type: ignore[no-untyped-call]
    problem = problem_of(["vector", N])
    program = jax.jit(jax.grad(lambda x: problem.value(jnp, None, x)))
    cache_size: Callable[[], int] = program._cache_size  # type: ignore[attr-defined]
    return lambda x: program(x).block_until_ready(), lambda: {"programs": cache_size()}


def _torch() -> tuple[Callable[[Any], Any], Callable[[], dict[str, int]]]:
    import array_api_compat.torch as xp
    import torch
    from torch._dynamo.utils import counters

    from trgbench import backends

    if reason := backends.get("torch").unavailable("traced"):
        raise RuntimeError(reason)
    torch.set_num_threads(width())
    problem = problem_of(["vector", N])
    program = torch.compile(lambda x: problem.value(xp, None, x))

    def gradient(x: Any) -> Any:
        leaf = torch.as_tensor(x).requires_grad_()
        return torch.autograd.grad(program(leaf), leaf)

    return gradient, lambda: {"programs": counters["stats"]["unique_graphs"]}


def measure(lab: Lab) -> dict[str, Any]:
    data = {backend: lab.run(calls, backend=backend) for backend in ("native", "jax")}
    data["torch"] = (
        LEFT_OUT
        if lab.quick
        else lab.run(calls, backend="torch", environment={"TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1"})
    )
    return data


def tables(data: Mapping[str, Any]) -> list[dict[str, Any]]:
    columns = [
        ("native eager", "s", "native", "seconds"),
        ("entries", "", "native", "programs"),
        ("hits", "", "native", "hits"),
        ("misses", "", "native", "misses"),
        ("jax jit", "s", "jax", "seconds"),
        ("jax programs", "", "jax", "programs"),
        ("torch.compile", "s", "torch", "seconds"),
        ("torch graphs", "", "torch", "programs"),
    ]
    sizes = (N, N, OTHER, OTHER, N)
    rows = [
        [call, n, *(pick(data, backend, call, what) for _, _, backend, what in columns)]
        for call, n in zip(CALLS, sizes, strict=True)
    ]
    title = f"vector: a gradient after a change of shape; steady is the fastest of {BEFORE - 1} calls"
    heads = [(name, unit) for name, unit, _, _ in columns]
    return [table("shape-change", title, ["call", "n"], heads, rows)]


def _over_steady(backend: str, call: str) -> Any:
    return lambda facts: facts[backend][call]["seconds"] / facts[backend]["steady"]["seconds"]


def _counts(facts: Facts) -> list[int]:
    native = facts["native"]
    return [native[call]["misses"] for call in CALLS]


CLAIMS = (
    Claim(
        "shape-miss-then-hits",
        "native",
        "A new shape is one miss; after that the new and the old shape both hit.",
        "misses 1, 2, 2, 2 and hits 500 … 502",
        _counts,
        equals([1, 1, 2, 2, 2]),
        "misses after the five kinds of call: 1, 1, 2, 2, 2",
        "misses: {}",
    ),
    Claim(
        "shape-entries-stay",
        "native",
        "Both entries stay: neither evicts the other.",
        "entries 2, evictions 0",
        lambda facts: [facts["native"][CALLS[-1]][what] for what in ("programs", "evictions")],
        equals([2, 0]),
        "2 entries and 0 evictions at the end",
        "entries and evictions: {}",
    ),
    Claim(
        "shape-new-costs-more",
        "native",
        "The first backward at a new shape is the slowest: it makes a program.",
        "197 against 64.6 µs",
        _over_steady("native", "new shape"),
        at_least(2.0),
        "at least twice a steady gradient",
        "{:.1f} times a steady one",
    ),
    Claim(
        "shape-new-below-first",
        "native",
        "It costs less than the first gradient in the process.",
        "197 against 528 µs",
        lambda facts: facts["native"]["new shape"]["seconds"] / facts["native"]["first"]["seconds"],
        at_most(1.0),
        "less than the first",
        "{:.3f} of the first",
    ),
    Claim(
        "shape-jax-compiles-again",
        "jax",
        "JAX's jit traces and compiles again at a new shape.",
        "traced and compiled again",
        lambda facts: facts["jax"]["new shape"]["programs"] - facts["jax"]["steady"]["programs"],
        equals(1),
        "one more program",
        "{} more program",
    ),
    Claim(
        "shape-native-below-jax",
        "native",
        "A new shape costs eager far less than it costs JAX's jit.",
        "197 µs; JAX's is a compilation",
        lambda facts: facts["native"]["new shape"]["seconds"] / facts["jax"]["new shape"]["seconds"],
        at_most(0.5),
        "at most half",
        "{:.3f} of JAX's",
    ),
)
