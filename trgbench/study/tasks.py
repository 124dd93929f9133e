"""What several experiments do in their measuring processes: prepare, time, and compare bits."""

from __future__ import annotations

import functools
import math
import os
import time
from collections.abc import Callable
from typing import Any

from trgbench import measure


def width() -> int:
    """Return the threads of this process: as many as the CPUs it was pinned to."""
    return len(os.sched_getaffinity(0))


def problem_of(problem: list[Any]) -> Any:
    """Return the problem of a name and its sizes, for instance of `["trg", 16, 4]`."""
    from trgbench import problems

    return getattr(problems, problem[0])(*problem[1:])


def ready(backend: str, mode: str, problem: Any, svd: str = "safe") -> tuple[Any, Callable[[], Any]]:
    """Return what `prepare` gives, and a call without arguments that computes one gradient."""
    from trgbench import backends

    prepared = backends.get(backend).prepare(problem, mode, width(), svd)
    x = prepared.built.asarray(problem.example)
    return prepared, functools.partial(prepared.built.run, x)


def survey(backend: str) -> dict[str, str]:
    """Return the backend's version, after it gave a right gradient: a broken library is no backend."""
    problem = problem_of(["vector", 3])
    _, call = ready(backend, "eager", problem)
    problem.check(problem.example, *call())
    from trgbench import backends

    return {"version": backends.get(backend).version}


def clock() -> Callable[[], float]:
    """Return the clock for a warm call: on one thread the CPU's time, which other work does not run up."""
    return time.process_time if width() == 1 else time.perf_counter


def fastest(call: Callable[[], Any], budget: float = 0.3) -> float:
    """Return the seconds of a warm call: the fastest of 3 samples or more, over about `budget` seconds.

    The fastest and not the median: other work on the machine can only add to a time. On one thread it is the
    CPU's time, which is the same as the clock's on an idle machine.
    """
    samples: list[float] = []
    number, spent = _repeats(call), 0.0
    while len(samples) < 3 or spent < budget:
        samples.append(_sample(call, number))
        spent += number * samples[-1]
        if spent > 5 * budget and len(samples) > 1:  # a call of seconds is steady the second time
            break
    return min(samples)


def versus(call: Callable[[], Any], other: Callable[[], Any], rounds: int = 7) -> float:
    """Return how many times longer a warm `call` takes than a warm `other`: the fastest of both, in turns."""
    calls = (call, other)
    repeats = [_repeats(each) for each in calls]
    times = [[_sample(*pair) for pair in zip(calls, repeats, strict=True)] for _ in range(rounds)]
    return min(a for a, _ in times) / min(b for _, b in times)


def _repeats(call: Callable[[], Any]) -> int:
    """Warm a call up, and return how often to repeat it so that a sample lasts long enough for the clock."""
    first = measure.once(call)
    if first > 0.1:
        return 1
    return max(1, math.ceil(measure.SAMPLE_SECONDS / min(measure.once(call) for _ in range(3))))


def _sample(call: Callable[[], Any], number: int) -> float:
    """Return the seconds of one of `number` calls in a row."""

    def loop() -> None:
        for _ in range(number):
            call()

    return measure.once(loop, timer=clock()) / number


def halves(forward: Callable[[], Any], backward: Callable[[Any], Any], budget: float) -> tuple[float, float]:
    """Return the fastest seconds of a warm `forward` and of the `backward` that takes what it returned."""
    pairs: list[tuple[float, float]] = []
    backward(forward())
    once = measure.once(lambda: backward(forward()))
    now = (
        clock() if once > 1e-3 else time.perf_counter
    )  # whose call costs less, and among many one is undisturbed
    begun = time.perf_counter()
    while len(pairs) < 3 or time.perf_counter() - begun < budget:
        start = now()
        kept = forward()
        middle = now()
        backward(kept)
        pairs.append((middle - start, now() - middle))
        del kept  # or the next forward's memory is new every time
        if time.perf_counter() - begun > 3 * budget and len(pairs) > 1:
            break
    return min(a for a, _ in pairs), min(b for _, b in pairs)


def eager_calls(backend: str, problem: Any) -> tuple[Callable[[], Any], Callable[[Any], Any]]:
    """Return the halves of an eager gradient of native or PyTorch: forward, and backward of its result."""
    if backend == "native":
        from trgbench import engine

        session = engine.Session(width())
        x = problem.example.copy()
        x.flags.writeable = False
        return lambda: problem.value(engine, engine.svd, session.variable(x)), lambda value: value.backward()
    import array_api_compat.torch as xp
    import torch

    from trgbench.backends.torch import safe_svd

    torch.set_num_threads(width())
    leaf = torch.as_tensor(problem.example).requires_grad_()
    return (
        lambda: problem.value(xp, safe_svd, leaf),
        lambda value: torch.autograd.grad(value, leaf),
    )


def bits(array: Any) -> list[str]:
    """Return every float64 of an array as hexadecimal text, which keeps all of its bits."""
    import numpy as np

    return [float(x).hex() for x in np.ravel(np.asarray(array, dtype=np.float64))]


def ulps(a: str, b: str) -> int:
    """Return how many floats apart two floats of one sign are, both as hexadecimal text.

    >>> ulps((1.0).hex(), (1.0 + 2**-52).hex())
    1
    """
    import struct

    first, second = (struct.unpack("<q", struct.pack("<d", float.fromhex(x)))[0] for x in (a, b))
    return abs(first - second)
