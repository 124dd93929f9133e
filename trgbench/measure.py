"""Measuring: pinned CPUs, steady times, interleaved ratios with an interval, and the peak of memory.

Imports nothing but the standard library until a function needs more, so that `pin` can act before
NumPy or a backend's library is loaded: an OpenMP or BLAS thread pool takes its size when it is loaded.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import math
import os
import re
import statistics
import time
import timeit
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from trgbench.errors import check_integer, check_threads

THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "NUMBA_NUM_THREADS",
)
SAMPLE_SECONDS = 0.002  # a sample of a short call repeats it until the clock's own cost is below 0.01 %

# A program that a compiler finds on the disk costs the user nothing, but the first time it was not there.
NO_CACHES = {"JAX_ENABLE_COMPILATION_CACHE": "0", "TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1"}

Call = Callable[[], object]
Timer = Callable[[], float]


class Ratio(NamedTuple):
    """How many times longer one call takes than another: the median and its confidence interval."""

    median: float
    low: float
    high: float
    samples: list[float]


class Clock:
    """Seconds of this process and of the compilers it has waited for.

    On one thread they are the CPU's, so that other processes of a busy machine do not count. On several they
    are the wall's: the CPUs' time is no longer what one waits for.
    """

    def __init__(self, threads: int) -> None:
        self.timer = time.process_time if threads == 1 else time.perf_counter
        self.one = threads == 1

    def __call__(self) -> float:
        children = os.times() if self.one else None
        return self.timer() + (children.children_user + children.children_system if children else 0.0)


def pin(threads: int) -> tuple[int, ...]:
    """Confine this process to as many CPUs as it has threads, and return their numbers.

    Call it once, before NumPy or a backend's library is imported. The highest-numbered CPUs are
    taken: the kernel serves most interrupts on CPU 0.

    Raises:
        InputError: if `threads` is no whole number of at least 1, or more than the CPUs there are.
    """
    count = check_threads(threads)
    chosen = tuple(sorted(os.sched_getaffinity(0))[-count:])
    confine(chosen)
    for variable in THREAD_VARIABLES:
        os.environ[variable] = str(count)
    return chosen


def confine(cpus: Iterable[int]) -> None:
    """Confine every thread of this process to these CPUs.

    Those that exist already, too: affinity is a thread's, and only later threads inherit it.
    """
    chosen = frozenset(cpus)
    for task in os.listdir("/proc/self/task"):
        with contextlib.suppress(ProcessLookupError):  # it has just ended
            os.sched_setaffinity(int(task), chosen)


def once(call: Call, *, timer: Timer = time.perf_counter) -> float:
    """Return the seconds that one call takes, garbage collection held off; right for a first call."""
    return timeit.Timer(call, timer=timer).timeit(1)


def steady(call: Call, *, budget: float = 0.5, timer: Timer = time.perf_counter) -> float:
    """Return the median seconds of a warm call: at least 3 samples, at most 15, about `budget` seconds.

    With `timer=time.process_time` they are the CPU's: on a busy machine a call on one thread then costs what
    it costs on an idle one.

    >>> 0 < steady(lambda: sum(range(100)), budget=0.01) < 0.01
    True
    """
    once(call)
    number = repeats(call)
    samples: list[float] = []
    spent = 0.0
    while len(samples) < 3 or (len(samples) < 15 and spent < budget):
        samples.append(timeit.Timer(call, timer=timer).timeit(number) / number)
        spent += samples[-1] * number
    return statistics.median(samples)


def ratio(numerator: Call, denominator: Call, *, pairs: int = 9, confidence: float = 0.95) -> Ratio:
    """Return how many times longer a warm call of `numerator` takes than one of `denominator`.

    The two are timed in pairs, back to back and in alternating order, so that a drift of the machine
    falls on both sides of each ratio. The interval is the exact one of a median (order statistics), which
    assumes nothing about the distribution of the samples.

    Raises:
        InputError: if there are too few pairs for an interval of this confidence (6 for 0.95).
    """
    fewest = math.ceil(1 - math.log2(1 - confidence))
    check_integer("pairs", pairs, minimum=fewest)
    calls = (numerator, denominator)
    for call in calls:
        once(call)
    numbers = [repeats(call) for call in calls]
    samples = []
    for pair in range(pairs):
        times = [0.0, 0.0]
        for side in (0, 1) if pair % 2 == 0 else (1, 0):
            times[side] = timeit.Timer(calls[side]).timeit(numbers[side]) / numbers[side]
        samples.append(times[0] / times[1])
    from scipy import stats

    interval = stats.quantile_test(samples, p=0.5).confidence_interval(confidence)
    return Ratio(statistics.median(samples), float(interval.low), float(interval.high), samples)


def peak_memory(call: Call) -> int:
    """Return by how many bytes the process's resident memory rises, at its highest, during one call.

    The kernel's high-water mark is reset first (Linux, proc(5), `clear_refs`), and memory that the
    allocator holds free is given back, so that earlier calls neither hide nor inflate the figure.
    """
    gc.collect()
    if trim := getattr(ctypes.CDLL(None), "malloc_trim", None):  # glibc
        trim(0)
    Path("/proc/self/clear_refs").write_text("5")
    before = _status_bytes("VmRSS")
    call()
    return max(0, _status_bytes("VmHWM") - before)


def repeats(call: Call, seconds: float = SAMPLE_SECONDS) -> int:
    """Return how often to repeat a warm call so that a sample lasts `seconds`."""
    return max(1, math.ceil(seconds / min(once(call), once(call))))


def _status_bytes(field: str) -> int:
    """Return a size in bytes from /proc/self/status."""
    match = re.search(rf"^{field}:\s+(\d+) kB$", Path("/proc/self/status").read_text(), re.MULTILINE)
    assert match is not None, f"the kernel's /proc/self/status has no {field}"
    return 1024 * int(match[1])
