"""Pinning, timing and memory: each figure against something whose true value is known."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from typing import Any

import pytest

from trgbench import measure
from trgbench.errors import InputError


def sleeper(seconds: float) -> measure.Call:
    return lambda: time.sleep(seconds)


def in_fresh_process(code: str) -> Any:
    """Run `code` in a fresh interpreter (pinning cannot be undone) and return the JSON it prints."""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return json.loads(done.stdout)


@pytest.mark.parametrize("threads", range(1, min(2, len(os.sched_getaffinity(0))) + 1))
def test_pin_holds_for_the_process_and_for_threads_of_a_library_imported_later(threads: int) -> None:
    report = in_fresh_process(
        "import json, os; from trgbench import measure\n"
        f"chosen = measure.pin({threads})\n"
        "import numpy as np, threadpoolctl; np.ones((9, 9)) @ np.ones((9, 9))\n"
        "tasks = [sorted(os.sched_getaffinity(int(task))) for task in os.listdir('/proc/self/task')]\n"
        "pools = [pool['num_threads'] for pool in threadpoolctl.threadpool_info()]\n"
        "print(json.dumps([list(chosen), tasks, pools, os.environ['OMP_NUM_THREADS']]))"
    )
    chosen, tasks, pools, variable = report
    assert len(chosen) == threads
    assert all(task == chosen for task in tasks)
    assert pools and all(pool == threads for pool in pools)
    assert variable == str(threads)


@pytest.mark.parametrize("threads", [0, -1, True, 1.5, "2", 10_000])
def test_pin_refuses_thread_counts_it_cannot_give(threads: object) -> None:
    before = os.sched_getaffinity(0)
    with pytest.raises(InputError, match="threads must be"):
        measure.pin(threads)  # type: ignore[arg-type]
    assert os.sched_getaffinity(0) == before


def test_once_times_exactly_one_call() -> None:
    calls: list[int] = []

    def call() -> None:
        calls.append(0)
        time.sleep(0.01)

    assert measure.once(call) >= 0.01
    assert len(calls) == 1


def test_steady_leaves_the_slow_first_call_out() -> None:
    pauses = iter([0.2])
    assert 0.002 <= measure.steady(lambda: time.sleep(next(pauses, 0.002)), budget=0.05) < 0.05


def test_steady_stays_near_its_budget() -> None:
    start = time.perf_counter()
    measure.steady(sleeper(0.001), budget=0.05)
    assert time.perf_counter() - start < 1.0


def test_ratio_covers_the_true_ratio_of_two_sleeps() -> None:
    measured = measure.ratio(sleeper(0.009), sleeper(0.003), pairs=7)
    assert len(measured.samples) == 7
    assert measured.low <= measured.median <= measured.high
    assert 2.0 < measured.median < 3.1  # a sleep overshoots, the short one by more in proportion


def test_ratio_alternates_which_side_comes_first() -> None:
    order: list[str] = []
    pause = 1.5 * measure.SAMPLE_SECONDS  # long enough that a sample is one call

    def call(name: str) -> measure.Call:
        def run() -> None:
            order.append(name)
            time.sleep(pause)

        return run

    measure.ratio(call("a"), call("b"), pairs=6)
    assert "".join(order[-12:]) == "abba" * 3


@pytest.mark.parametrize("pairs", [0, 5, 6.5])
def test_ratio_refuses_too_few_pairs(pairs: object) -> None:
    with pytest.raises(InputError, match="pairs must be a whole number of at least 6"):
        measure.ratio(sleeper(0), sleeper(0), pairs=pairs)  # type: ignore[arg-type]


@pytest.mark.parametrize("size", [8_000_000, 64_000_000])
def test_peak_memory_is_that_of_the_call_alone(size: int) -> None:
    bytearray(4 * size).find(1)  # what came before must not count
    assert measure.peak_memory(lambda: bytearray(size).find(1)) == pytest.approx(size, rel=0.2)


def test_peak_memory_of_nothing_is_nearly_nothing() -> None:
    assert measure.peak_memory(lambda: None) < 1_000_000
