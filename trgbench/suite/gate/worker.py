"""One side of a pair: `python -P worker.py PARENT BENCHMARKS [NAME-INDEX]`, a commit's package on the path.

PARENT is the process that it ends with. It knows asv's runner, and of the project only what is on the path:
the package may be any commit's. Without a name it lists the benchmarks and ends. With one it answers
commands, a line of JSON each: `setup`, then any number of `sample`.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import runpy
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from typing import Any

PR_SET_PDEATHSIG = 1
PLAIN = (str, int, float, list, dict, bool)


def main(arguments: list[str]) -> None:
    # What the benchmarks print is no part of the answers.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    # asv's runner can do without it, and it would load NumPy before the benchmark has pinned the process.
    sys.modules["pympler"] = None  # type: ignore[assignment]
    parent = int(arguments.pop(0))
    # However the gate ends, its workers do, even in the middle of a call that never returns.
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
    answering = run(*arguments) if len(arguments) == 2 else iter([lambda: survey(*arguments)])
    for answer in answering:
        try:
            content = answer()
        except Exception as error:
            traceback.print_exc()
            content = {"failed": " ".join(f"{type(error).__name__}: {error}".split())}
        answers.write(json.dumps(content) + "\n")
    answers.flush()
    os._exit(0)  # libraries' threads and exit handlers have nothing to say


def survey(benchmarks: str) -> dict[str, Any]:
    """Return where the package is, and the attributes of all benchmarks, as asv publishes them."""
    compile_ahead()
    from asv_runner import discovery
    from asv_runner._aux import update_sys_path

    import trgbench

    update_sys_path(benchmarks)
    found = [
        {key: value for key, value in vars(benchmark).items() if key[0] != "_" and isinstance(value, PLAIN)}
        for benchmark in discovery.disc_benchmarks(benchmarks)
    ]
    return {"package": trgbench.__file__, "benchmarks": found}


def compile_ahead() -> None:
    """Have the engine compile what it keeps for all processes to come, where a commit has such a thing.

    Else it would come in the background, in the middle of a measurement, and for one side earlier than for
    the other.
    """
    try:
        runpy.run_module("trgbench.engine", run_name="__main__")
    except Exception:  # nothing to compile, or nothing to compile with: the engine goes without
        traceback.print_exc()


def run(benchmarks: str, name: str) -> Iterator[Callable[[], dict[str, Any]]]:
    """Yield what answers each command that comes in."""
    benchmark: Any = None

    def setup() -> dict[str, Any]:
        nonlocal benchmark
        from asv_runner.discovery import get_benchmark_from_name

        benchmark = get_benchmark_from_name(benchmarks, name)
        if benchmark.do_setup():  # asv prints why
            return {"skipped": True}
        return {"ready": True}

    def sample() -> dict[str, Any]:
        start = spent()
        value = seconds(benchmark) if benchmark.type == "time" else benchmark.do_run()
        used = spent() - start
        if not isinstance(value, dict):
            value = {"samples": [value]}
        samples = [float(sample) for sample in value["samples"]]
        return {"values": samples, "numerator": value.get("numerator"), "spent": used}

    for command in sys.stdin:
        yield {"setup": setup, "sample": sample}[command.strip()]


def seconds(benchmark: Any) -> float:
    """Return the seconds that one call takes, by the benchmark's own timer."""
    number = max(1, benchmark.number)
    return benchmark._get_timer(*benchmark._current_params).timeit(number) / number


def spent() -> float:
    """Return the seconds of a CPU that this process and those it has waited for have used."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


if __name__ == "__main__":
    main(sys.argv[1:])
