"""Measures every combination of backend and mode, one after the other in fresh processes, within a budget."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import os
import selectors
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from trgbench.advise.costs import NO_TIME_LEFT, Combination, Costs, Setting
from trgbench.console import duration

BUDGET = 110.0  # seconds for all combinations of a setting
LONGEST = 25.0  # seconds for one of them
SHORTEST = 3.0  # a time left that is too short to begin with another
AGREE = 1e-6  # gradients of TRG differ by rounding; what an SVD rule gets wrong shows from the sixth digit on

# What is slow to make ready comes last, so that it cannot use up the time of the rest: XLA's and Inductor's
# compilers, and JAX without jit, which compiles every operation by itself.
SLOW = (
    ("jax", "traced-staged"),
    ("jax", "traced"),
    ("jax", "forward"),
    ("torch", "traced"),
    ("torch", "traced-staged"),
    ("jax", "eager-staged"),
    ("jax", "eager"),
)


def combinations(setting: Setting) -> list[Combination]:
    """Return what to measure, quick ones first; of TRG also the other SVD rules."""
    from trgbench import backends  # here, because it loads NumPy

    found = [
        Combination(name, mode)
        for name in backends.names()
        for mode in backends.MODES
        if setting.problem == "trg" or mode != "forward"
    ]
    if setting.problem == "trg":
        found += [
            Combination("native", mode, rule)
            for rule in backends.get("native").svd_rules
            if rule != "safe"
            for mode in ("eager-staged", "traced-staged")
        ]
        # The libraries' own rules, in one mode: whether they are finite is all that matters.
        found += [
            Combination(name, "traced" if (name, "eager") in SLOW else "eager", "builtin")
            for name in backends.names()
            if name != "native"
        ]

    def slowness(key: Combination) -> tuple[bool, int]:
        slow = SLOW.index((key.backend, key.mode)) if (key.backend, key.mode) in SLOW else -1
        return slow >= 0 and key.svd == "builtin", slow

    return sorted(found, key=slowness)


def measure_all(
    setting: Setting,
    missing: Iterable[Combination],
    budget: float,
    progress: Callable[[str], None],
) -> Iterator[tuple[Combination, Costs]]:
    """Measure the combinations in `missing`, and yield each as it is done.

    One of them may take `LONGEST`, and more if the budget is more than `BUDGET`.
    """
    end = time.monotonic() + budget
    longest = LONGEST * max(1.0, budget / BUDGET)
    for combination in missing:
        left = end - time.monotonic()
        if left < SHORTEST:
            yield combination, Costs(why_not=NO_TIME_LEFT)
            continue
        progress(f"measuring {combination} in {setting}; {left:.0f} s left")
        yield combination, measure_one(setting, combination, min(longest, left))


def measure_one(setting: Setting, combination: Combination, limit: float) -> Costs:
    """Return what a combination costs, measured in a fresh process that may take `limit` seconds."""
    request = {
        "problem": setting.problem,
        "sizes": dict(setting.sizes),
        "threads": setting.threads,
        "changing_shape": setting.changing_shape,
        **dataclasses.asdict(combination),
        "only_check": combination.svd == "builtin",
    }
    said, since, ending = ask(request, limit)
    fields = {name: said[name] for name in Costs.__dataclass_fields__ if name in said}
    if said.get("done"):
        return Costs(**fields)
    if ending != "time":
        return Costs(why_not=f"the measuring process {ending}")
    if "first" in said and not setting.changing_shape:
        return Costs(**{"each": said["first"], **fields})  # only the steady run was not waited for
    fields |= {"first": math.nan, "each": math.nan}
    return Costs(
        **fields, why_not=f"{said.get('doing', 'starting')} took more than {duration(since)}", at_least=since
    )


def ask(request: Mapping[str, Any], limit: float) -> tuple[dict[str, Any], float, str]:
    """Run a probe; return all it said, the seconds since it last said something, and how it ended.

    It ended by `"itself"`, by `"time"`, or with a reason.
    """
    said: dict[str, Any] = {}
    last = start = time.monotonic()
    with tempfile.TemporaryFile() as errors:
        # A session of its own: Ctrl-C reaches only us, and the compilers it has started end with it.
        process = subprocess.Popen(
            [sys.executable, "-m", "trgbench.advise.probe", json.dumps(request)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            start_new_session=True,
        )
        assert process.stdout is not None
        rest = b""
        try:
            with selectors.DefaultSelector() as selector:
                selector.register(process.stdout, selectors.EVENT_READ)
                while selector.select(max(0.0, start + limit - time.monotonic())):
                    piece = os.read(process.stdout.fileno(), 65536)
                    if not piece:
                        break
                    *lines, rest = (rest + piece).split(b"\n")
                    for line in lines:
                        said |= json.loads(line)
                        last = time.monotonic()
                    if said.get("done"):
                        return said, 0.0, "itself"
                else:
                    return said, time.monotonic() - last, "time"
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.stdout.close()
            code = process.wait()
        errors.seek(0)
        words = errors.read().decode(errors="replace").strip().splitlines()[-1:]
    if code < 0:
        return said, 0.0, f"was killed (signal {-code}), for instance for want of memory"
    return said, 0.0, f"ended with {code}: {' '.join(words)[:200]}"


def consensus(measured: Mapping[Combination, Costs]) -> dict[Combination, str]:
    """Return why combinations are excluded whose gradient of TRG is not that of the others."""
    results = {key: costs.result for key, costs in measured.items() if costs.result is not None}
    if len(results) < 3:
        return {}
    middle = statistics.median(results.values())
    return {
        key: f"wrong: its gradient {result:.9g} is not the {middle:.9g} of the others"
        for key, result in results.items()
        if abs(result - middle) > AGREE * max(1.0, abs(middle))
    }
