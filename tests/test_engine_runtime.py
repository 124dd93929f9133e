"""The program cache, threads, growth with depth, and memory."""

from __future__ import annotations

import ctypes
import functools
import gc
import os
import sys
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from trgbench import engine, measure, problems
from trgbench.engine.graph import Fingerprint
from trgbench.engine.runtime import ProgramCache

SEED = 20261129


# --- the cache ------------------------------------------------------------------------------------


def test_a_second_equal_backward_is_a_hit_and_a_new_shape_an_entry() -> None:
    # The study's figures: 501 times n = 1000, then n = 1001 twice, then n = 1000 again.
    runtime = engine.Runtime()
    problem = problems.vector(10)

    def backward(n: int) -> None:
        session = engine.Session(runtime=runtime)
        problem.value(engine, engine.svd, session.variable(np.ones(n))).backward()

    for n in [1000] * 501 + [1001, 1001, 1000]:
        backward(n)
    stats = runtime.stats()
    assert (stats.entries, stats.misses, stats.hits, stats.evictions) == (2, 2, 502, 0)


def test_one_session_reused_hits_too() -> None:
    session = engine.Session()
    x = session.variable(np.ones(4))
    for _ in range(10):
        engine.sum(engine.sin(x) * x).backward()
    assert session.stats()[:1] + session.stats()[2:4] == (1, 9, 1)


def test_programs_that_differ_in_one_thing_are_different_entries() -> None:
    runtime = engine.Runtime()
    bodies: list[Callable] = [
        lambda x, y: engine.sum(x * y),
        lambda x, y: engine.sum(x * x),
        lambda x, y: engine.sum(x + y),
        lambda x, y: engine.sum(engine.sum(x * y, axis=0)),
        lambda x, y: engine.sum(engine.sum(x * y, axis=1)),
    ]
    for body in bodies:
        session = engine.Session(runtime=runtime)
        x, y = session.variable(np.full((2, 2), 2.0)), session.variable(np.full((2, 2), 3.0))
        body(x, y).backward()
    assert runtime.stats().misses == len(bodies)


def test_the_cache_is_bounded_by_entries_and_bytes() -> None:
    cache: ProgramCache[int] = ProgramCache(entries=2, nbytes=100)
    for key, size in (("a", 10), ("b", 10), ("a", 10), ("c", 10)):
        cache.get(key, functools.partial(lambda size: (size, size), size))
    assert cache.stats()._asdict() == {
        "entries": 2, "retained_bytes": 20, "hits": 1, "misses": 3, "evictions": 1, "clears": 0,
    }  # fmt: skip
    cache.get("b", lambda: (0, 95))
    assert cache.stats().entries == 1
    cache.clear()
    assert cache.stats()[:2] + cache.stats()[5:] == (0, 0, 1)


def test_sessions_in_threads_share_a_runtime() -> None:
    runtime = engine.Runtime()
    problem = problems.trg(8, 4)
    graph = engine.trace(lambda x: problem.value(engine, engine.svd, x), engine.spec(()))
    expected = engine.Runtime().prepare(engine.grad(graph))(problem.example)
    wrong: list[Any] = []

    def work() -> None:
        for _ in range(20):
            session = engine.Session(runtime=runtime)
            leaf = session.variable(problem.example)
            problem.value(engine, engine.svd, leaf).backward()
            if np.asarray(leaf.grad).tobytes() != expected.tobytes():
                wrong.append(leaf.grad)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    stats = runtime.stats()
    assert not wrong
    assert stats.entries == 1
    assert stats.hits + stats.misses == 80


def test_equal_recordings_in_threads_have_one_fingerprint(run_hurried: Callable[..., None]) -> None:
    root = Fingerprint()
    found: list[set[int]] = [set() for _ in range(2000)]
    alive: list[Fingerprint] = []
    start = threading.Barrier(4)

    def work() -> None:
        start.wait()
        for number, seen in enumerate(found):
            child = root.extended(("op", number))
            alive.append(child)
            seen.add(id(child))

    run_hurried(*[work] * 4)
    assert len(alive) == 4 * len(found)  # no thread died
    assert all(len(seen) == 1 for seen in found)
    alive.clear()
    for number in range(5000):  # what is gone is dropped
        root.extended(("other", number))
    assert len(root.children) < 5000


# --- growth and memory ----------------------------------------------------------------------------


def test_operations_grow_linearly_with_steps() -> None:
    counts = []
    for steps in (8, 12, 16, 20):
        problem = problems.trg(16, steps)
        graph = engine.trace(lambda x, p=problem: p.value(engine, engine.svd, x), engine.spec(()))
        counts.append(len(engine.grad(graph).nodes))
    growth = np.diff(counts)
    assert (growth == growth[0]).all(), counts


def test_a_chain_of_100_000_operations_runs_and_leaves_no_memory() -> None:
    def run(depth: int) -> None:
        session = engine.Session()
        x = session.variable(np.linspace(0.1, 1.0, 3))
        y = x
        for _ in range(depth):
            y = engine.sin(y)
        engine.sum(y).backward()
        assert np.isfinite(x.grad).all()

    limit = sys.getrecursionlimit()
    run(1000)
    before = resident()
    run(100_000)
    gc.collect()
    assert resident() - before < 100 * 2**20  # of some 1.3 GB that it took
    assert sys.getrecursionlimit() == limit


def resident() -> int:
    """Bytes of this process in memory, once the allocator has given back what it holds free."""
    ctypes.CDLL(None).malloc_trim(0)
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_forward_mode_needs_no_more_memory_for_more_depth() -> None:
    peaks = []
    for depth in (20, 200):
        graph = engine.trace(
            lambda x, d=depth: problems.chain(d).value(engine, None, x), engine.spec(100_000)
        )
        program = engine.Runtime().prepare(engine.jvp(graph))
        x = np.full(100_000, 0.5)
        program(x, x)
        peaks.append(measure.peak_memory(functools.partial(program, x, x)))
    assert peaks[1] < peaks[0] + 4 * x.nbytes, peaks


def test_dropping_a_session_frees_its_tape() -> None:
    session = engine.Session()
    big = session.variable(np.ones(1000))
    array = (big * 2.0).array
    watched = weakref.ref(array)
    del array, big
    assert watched() is not None  # the tape holds it
    del session
    gc.collect()
    assert watched() is None


def test_10_000_iterations_do_not_grow_the_process() -> None:
    session = engine.Session()
    x = session.variable(np.ones(100))
    sizes = set()
    for iteration in range(10_000):
        engine.sum(engine.sin(x) * x).backward()
        x.grad = None
        if iteration >= 1:  # the first makes no program yet
            sizes.add((session.stats().entries, session.stats().retained_bytes, len(session._tape.values)))
        if iteration == 1000:
            before = resident()
    assert len(sizes) == 1
    assert resident() - before < 2 * 2**20


def test_a_loop_of_gradients_without_backward_is_cleared_by_hand() -> None:
    session = engine.Session()
    x = session.variable(np.ones(3))
    for _ in range(100):
        session.grad(engine.sum(engine.sin(x)), [x])
        session.clear()
    assert (session.stats().entries, session.stats().hits) == (1, 99)
