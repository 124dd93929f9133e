"""What is measured in a fresh process; every task takes and returns what JSON can hold."""

from __future__ import annotations

import functools
import statistics
import time
from typing import Any

import numpy as np

from trgbench import backends, measure, problems
from trgbench.errors import Unavailable

CLOSE = 1.5  # peers within this of the fastest are raced, too: which is the fastest may change with the hour
PAIRS = 9
LONG = 2.0  # seconds; of calls as long as this fewer pairs are timed
ALIKE = 1e-10  # gradients of TRG by different libraries, and by the cut and the full SVD


def prepare(contender: dict[str, Any]) -> tuple[Any, Any]:
    """Return the `Built`, and a call without arguments that computes one value and gradient."""
    name, *sizes = contender["problem"]
    problem = getattr(problems, name)(*sizes)
    library = backends.get(contender["backend"])
    built = library.prepare(problem, contender["mode"], contender["threads"], **contender["options"]).built
    return built, functools.partial(built.run, built.asarray(problem.example))


def right(contender: dict[str, Any], result: tuple[Any, Any]) -> bytes:
    """Return the bits of a result.

    Raises:
        WrongResult: if it misses the reference of its problem.
    """
    name, *sizes = contender["problem"]
    problem = getattr(problems, name)(*sizes)
    value, gradient = (np.asarray(part, dtype=np.float64) for part in result)
    problem.check(problem.example, value, gradient)
    return value.tobytes() + gradient.tobytes()


def steady(
    native: list[dict[str, Any]], peers: list[dict[str, Any]], beside: list[dict[str, Any]], warm: float
) -> dict[str, Any]:
    """Return the ratio of the first of `native` to the fastest of `peers`, warm and timed in turns.

    Args:
        warm: seconds that a native call is repeated before it is timed.

    Raises:
        WrongResult: if any result misses the reference, or two native modes differ in a bit.
    """
    calls: dict[str, Any] = {}
    bits: dict[str, bytes] = {}
    left_out: dict[str, str] = {}
    for contender in [*native, *peers, *beside]:
        try:
            _, call = prepare(contender)
        except Unavailable as reason:
            left_out[contender["name"]] = str(reason)
            continue
        bits[contender["name"]] = right(contender, call())
        if contender["backend"] == "native":  # which compiles a program that has run for long enough
            end = time.monotonic() + warm
            while time.monotonic() < end:
                call()
        calls[contender["name"]] = call
    different = [c["name"] for c in native if bits[c["name"]] != bits[native[0]["name"]]]
    if different:
        raise problems.WrongResult(f"{different} differ in bits from {native[0]['name']}")
    seconds = {name: measure.steady(call, budget=0.3) for name, call in calls.items()}
    first = native[0]["name"]
    there = [peer["name"] for peer in peers if peer["name"] in calls]
    if not there:
        raise Unavailable(f"no peer can run here: {left_out}")
    fastest = min(seconds[name] for name in there)
    pairs = PAIRS if seconds[first] + fastest < LONG else 6
    ratios = {
        name: measure.ratio(calls[first], calls[name], pairs=pairs)
        for name in there
        if seconds[name] <= CLOSE * fastest
    }
    peer = max(ratios, key=lambda name: ratios[name].median)
    ratio = ratios[peer]
    return {
        "ratio": ratio.median,
        "interval": [ratio.low, ratio.high],
        "peer": peer,
        "seconds": seconds,
        "left_out": left_out,
    }


def race(contender: dict[str, Any], counts: list[int], limit: float) -> dict[str, Any]:
    """Return the seconds to the N-th gradient for every N in `counts`, from the import of the backend on.

    What is not reached in `limit` seconds is extrapolated from the last quarter of the runs.

    Raises:
        WrongResult: if the last result misses the reference.
    """
    backends.get(contender["backend"])
    clock = measure.Clock(contender["threads"])
    end = time.monotonic() + limit
    start = clock()
    _, call = prepare(contender)  # which ends with the first gradient
    times = [clock() - start]
    while len(times) < counts[-1] and time.monotonic() < end:
        result = call()
        times.append(clock() - start)
    tail = max(1, len(times) // 4)
    each = (times[-1] - times[-1 - tail]) / tail if len(times) > 1 else times[0]
    right(contender, result if len(times) > 1 else call())
    return {
        "times": [times[n - 1] if n <= len(times) else times[-1] + (n - len(times)) * each for n in counts],
        "measured": len(times),
    }


def once_paid(contender: dict[str, Any]) -> float:
    """Return the seconds of tracing, compiling and preparing."""
    built, _ = prepare(contender)
    return sum(built.costs[name] or 0.0 for name in ("trace", "compile", "prepare"))


def memory(contender: dict[str, Any]) -> int:
    """Return by how many bytes resident memory rises during one warm gradient."""
    _, call = prepare(contender)
    right(contender, call())
    return measure.peak_memory(call)


def steps(chi: int, counts: list[int], options: dict[str, Any]) -> float:
    """Return the seconds of one step and its derivative, whose every bond is `chi`."""
    short, long = (
        prepare(
            {
                "backend": "native",
                "mode": "traced-staged",
                "problem": ["trg", chi, n],
                "options": options,
                "threads": 1,
            }
        )[1]
        for n in counts
    )
    clock = measure.Clock(1)
    seconds = [
        (measure.once(long, timer=clock) - measure.once(short, timer=clock)) / (counts[1] - counts[0])
        for _ in range(3)
    ]
    return statistics.median(seconds)


def against_full(options: dict[str, Any], chi: int, count: int, betas: list[float]) -> float:
    """Return the largest difference of u between `options` and the full SVD."""
    native, problem = backends.get("native"), problems.trg(chi, count)
    cut, full = (native.prepare(problem, "eager-staged", **chosen) for chosen in (options, {}))
    return max(abs(float(cut(beta)[1]) - float(full(beta)[1])) for beta in betas)
