"""What every benchmark shares: the parameters, a problem made ready and checked, and how it is timed.

Nothing here imports NumPy or a backend before `measure.pin` has run, and only a backend that is measured is
imported at all: asv gives every combination of parameters a process of its own.
"""

from __future__ import annotations

import functools
import os
import statistics
import time
import timeit
from collections.abc import Callable
from pathlib import Path
from typing import Any

import trgbench
from trgbench import measure
from trgbench.errors import InputError, Unavailable

# As `trgbench.backends.names` finds them, which would import NumPy, and with it BLAS, before `pin`.
BACKENDS = tuple(sorted(file.stem for file in (Path(trgbench.__path__[0]) / "backends").glob("[!_]*.py")))
MODES = ("eager", "traced", "eager-staged", "traced-staged")  # those that every problem has
SCALAR_MODES = (*MODES, "forward")
WHOLE_GRAPH = ("eager", "traced")
THREADS = (1, 2)
SAMPLE_SECONDS = 0.005  # a sample repeats a short call until it lasts this long
RATIO_PAIRS = 9  # asv's interval of a median at 99 % needs 8

# Compilers keep what they compiled in asv's environment. Every combination is a process of its own, so
# else most of the suite's time would go into compiling the same programs; what compiling costs is
# measured by first_call.py, which turns these caches off.
if environment := os.environ.get("ASV_ENV_DIR"):
    os.environ["JAX_COMPILATION_CACHE_DIR"] = f"{environment}/compiled/jax"
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = f"{environment}/compiled/torch"

Function = Callable[..., Any]
Part = dict[str, list[Any]]


def benchmark(
    pretty_name: str,
    *,
    quick: Part | list[Part] | None = None,
    gate: Part | list[Part] | None = None,
    tolerance: float | None = None,
    larger_is_better: bool = False,
) -> Callable[[Function], Function]:
    """Name a benchmark on the dashboard, and choose what the quick profile and the gate run of it.

    asv publishes these attributes with the list of benchmarks, where `trgbench.suite` reads them.

    Args:
        quick: parameter → the values to run; a parameter that is not in it keeps all of its values. A list of
            such runs them all.
        gate: likewise, for `trgbench gate`; `None` for nothing.
        tolerance: the value is the same in every run, and a change of it by more than this is one of the
            code; `None` for what scatters.
        larger_is_better: of two values; times and errors are better small.
    """
    attributes = {"pretty_name": pretty_name, "quick": quick or {}, "gate": gate, "tolerance": tolerance}

    def decorate(function: Function) -> Function:
        vars(function).update(attributes, larger_is_better=larger_is_better)
        return function

    return decorate


class Clock:
    """Wall-clock seconds without those in which this thread was ready to run and the kernel ran others.

    On a busy machine the pauses are most of a short sample, and none of it is the benchmark's. Unlike the
    CPU's time this still counts sleeping, and waiting for another thread: what other threads of this process
    ran in the meantime, such as XLA's, is the benchmark's.
    """

    def __init__(self) -> None:
        try:
            # proc_pid_schedstat: nanoseconds on a CPU, nanoseconds waiting for one, number of turns
            self.file = os.open("/proc/thread-self/schedstat", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:  # a kernel without it
            self.file = -1
        self.waited, self.others, self.paused = self._waited(), self._others(), 0.0

    def __call__(self) -> float:
        waited = self._waited()
        while True:
            now, before, waited = time.perf_counter(), waited, self._waited()
            if waited == before:  # else it was made to wait between the two readings, likely after the first
                break
        others = self._others()
        self.paused += max(0.0, (waited - self.waited) * 1e-9 - (others - self.others))
        self.waited, self.others = waited, others
        return now - self.paused

    @staticmethod
    def _others() -> float:
        """Return the seconds of CPU that the other threads of this process have had."""
        return time.process_time() - time.thread_time()

    def _waited(self) -> int:
        return int(os.pread(self.file, 64, 0).split()[1]) if self.file >= 0 else 0


class Loop:
    """A call, warm, repeated so often that one run lasts long enough for the clock to be exact.

    asv sets `number` to 1 for a benchmark with a `setup` (its issue 1613), which times a call of a
    microsecond half as long again as it is. So the body is this loop, and `timer` counts in units of a call.
    """

    def __init__(self, call: Callable[[], object]) -> None:
        self.call = call
        self.calls = measure.repeats(call, SAMPLE_SECONDS)
        self.clock = Clock()  # here, in the process and the thread that run it

    def __call__(self) -> None:
        call = self.call
        for _ in range(self.calls):
            call()

    def timer(self) -> float:
        return self.clock() / self.calls

    def seconds(self) -> float:
        """Run once, garbage collection held off, and return the seconds a call takes."""
        return timeit.Timer(self, timer=self.timer).timeit(1)


class Timed:
    """A benchmark of one warm call: `setup` hands `self.time` the loop, and `time_…` runs `self.loop()`."""

    version = "1"
    timeout = 600.0
    rounds = 2
    repeat = (5, 15, 2.0)  # at least 5 samples, at most 15, no new one after 2 s
    loop: Loop

    def time(self, loop: Loop) -> None:
        self.loop = loop
        self.timer = loop.timer  # asv reads both after every setup
        self.warmup_time = 0.1 if loop.calls > 1 else 0.0  # a long call is warm by now


def pin(threads: int) -> None:
    """Pin this process, or skip the benchmark on a machine with too few CPUs."""
    try:
        measure.pin(threads)
    except InputError as reason:
        raise NotImplementedError(str(reason)) from reason


def installed(backend: str, threads: int) -> Any:
    """Return the backend, in a pinned process, or skip the benchmark where its library is missing."""
    pin(threads)
    from trgbench import backends

    try:
        return backends.get(backend)
    except Unavailable as reason:
        raise NotImplementedError(str(reason)) from reason


@functools.cache
def ready(backend: str, mode: str, threads: int, problem: str, *sizes: int, svd: str = "safe") -> Any:
    """Return a `Prepared` of `problems.<problem>(*sizes)`, after it gave the right value and gradient once.

    asv calls `setup` before every sample, hence the cache.

    Raises:
        NotImplementedError: if the combination cannot run on this machine; asv then records it as skipped.
        WrongResult: if the result misses the problem's reference; asv then records a failure, and no time.
    """
    library = installed(backend, threads)
    from trgbench import problems

    try:
        prepared = library.prepare(getattr(problems, problem)(*sizes), mode, threads, svd)
    except Unavailable as reason:
        raise NotImplementedError(str(reason)) from reason
    check(prepared)
    return prepared


def check(prepared: Any) -> None:
    """Raise `WrongResult` if the value or the gradient at the problem's example is wrong."""
    problem, built = prepared.problem, prepared.built
    value, gradient = built.run(built.asarray(problem.example))
    problem.check(problem.example, value, gradient)


def call_of(prepared: Any) -> Callable[[], object]:
    """Return a call without arguments that computes one value and gradient, finished when it returns."""
    x = prepared.built.asarray(prepared.problem.example)
    return functools.partial(prepared.built.run, x)


@functools.cache
def loop(backend: str, mode: str, threads: int, problem: str, *sizes: int, svd: str = "safe") -> Loop:
    """Return the loop over one gradient of `problems.<problem>(*sizes)`; see `ready`."""
    return Loop(call_of(ready(backend, mode, threads, problem, *sizes, svd=svd)))


def ratio(numerator: Callable[[], object], denominator: Callable[[], object]) -> dict[str, Any]:
    """Return how many times longer one warm call takes than the other, as samples for asv.

    The two are timed in pairs, back to back and in alternating order, so that a drift of the machine falls
    on both. asv computes the median and its interval, as it does for times. It is done here, and not by
    `measure.ratio`, so that every commit is measured in the same way. asv leaves the seconds of the numerator
    alone; the gate learns from them whether that became slower, or the denominator faster.
    """
    loops = Loop(numerator), Loop(denominator)
    samples, numerators = [], []
    for pair in range(RATIO_PAIRS):
        seconds = [0.0, 0.0]
        for side in (0, 1) if pair % 2 == 0 else (1, 0):
            seconds[side] = loops[side].seconds()
        samples.append(seconds[0] / seconds[1])
        numerators.append(seconds[0])
    return {"samples": samples, "number": 1, "numerator": statistics.median(numerators)}
