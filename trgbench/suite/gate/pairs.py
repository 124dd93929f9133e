"""Two processes, one for each commit, that take turns on the same benchmark, and never run at once."""

from __future__ import annotations

import contextlib
import json
import math
import os
import select
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from trgbench.errors import shown

WORKER = Path(__file__).with_name("worker.py")
LIMIT = 120.0  # seconds for one answer; else it hangs
ROUNDS = (3, 30)  # of four samples in a pair of processes: at the least, at the most
SIDES = ("base", "head")


class NotMeasured(RuntimeError):
    """A benchmark gave no figure; the message says why."""


@dataclass(frozen=True)
class Package:
    """A commit's package, laid out in a folder of its own, and what measures it."""

    label: str
    folder: Path
    definitions: Path  # the folder `benchmarks`

    def environment(self) -> dict[str, str]:
        env = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
        # A place for what compilers keep: the second pair need not compile again.
        return env | {"PYTHONPATH": str(self.folder), "ASV_ENV_DIR": str(self.definitions.parent)}


@dataclass(frozen=True)
class Case:
    """A benchmark with one combination of its parameters.

    Attributes:
        name: `file.Class.method`.
        full: the same with `(parameters)`.
        index: the number that each side gives the combination; a side that does not have it is not in it.
        attributes: the benchmark's, as asv publishes them.
    """

    name: str
    full: str
    index: Mapping[str, int]
    attributes: Mapping[str, Any]

    @property
    def timeout(self) -> float:
        return min(self.attributes.get("timeout") or LIMIT, LIMIT)


class Worker:
    """A process that measures one side; see `worker.py`. Use it as a context manager: it ends with it."""

    def __init__(self, package: Package, *arguments: str, env: Mapping[str, str] | None = None) -> None:
        self.label = package.label
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 — closed by __exit__
        self._process = subprocess.Popen(
            [sys.executable, "-P", str(WORKER), str(os.getpid()), str(package.definitions), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=package.environment() | dict(env or {}),
            cwd=package.folder,
            start_new_session=True,  # Ctrl-C is for the gate to answer; and what a worker starts ends with it
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._errors):
            with contextlib.suppress(BrokenPipeError):
                stream.close()  # type: ignore[union-attr]

    def ask(self, command: str, timeout: float) -> dict[str, Any]:
        """Return the answer to a command.

        Raises:
            NotMeasured: if it is none: it failed, hung, died, or skips this benchmark.
        """
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(f"{command}\n".encode())
            self._process.stdin.flush()
        return self.answer(timeout)

    def answer(self, timeout: float) -> dict[str, Any]:
        """Return the next answer; see `ask`."""
        line = self._line(time.monotonic() + timeout)
        if line is None:
            raise NotMeasured(f"{self.label}: no answer within {timeout:g} s; it hangs, or is too slow")
        if not line:
            raise NotMeasured(f"{self.label}: {self._why_dead()}")
        answer = json.loads(line)
        if "failed" in answer:
            raise NotMeasured(f"{self.label}: {answer['failed'][:300]}")
        if "skipped" in answer:
            raise NotMeasured(f"{self.label}: skipped: {self._said('asv: skipped: ')}")
        return answer

    def _line(self, deadline: float) -> bytes | None:
        """Return the next line, empty if the process is dead, `None` if it comes too late."""
        assert self._process.stdout is not None
        stream = self._process.stdout.fileno()
        line = b""
        while not line.endswith(b"\n"):
            if not select.select([stream], [], [], max(0.0, deadline - time.monotonic()))[0]:
                return None
            if not (part := os.read(stream, 65536)):
                return b""
            line += part
        return line

    def _why_dead(self) -> str:
        code = self._process.wait()
        if code >= 0:
            return f"the process ended with code {code}: {self._said()}"
        name = signal.Signals(-code).name if -code in set(signal.Signals) else str(-code)
        hint = " (out of memory?)" if -code == signal.SIGKILL else ""
        return f"the process was killed by {name}{hint}"

    def _said(self, prefix: str = "") -> str:
        """Return the last line of what it printed, or the last with a prefix, without it."""
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").splitlines()
        found = [
            line.removeprefix(prefix).strip() for line in lines if line.strip() and line.startswith(prefix)
        ]
        return found[-1][:300] if found else "it said nothing"


@dataclass(frozen=True)
class Pair:
    """What one pair of processes measured: a value for each side, and by what factor head's is larger.

    `factor` is the median over the rounds of A B B A: in each of them a drift falls on both sides.
    `numerator`, of a ratio, is by what factor the time above the line is larger.
    """

    base: float
    head: float
    factor: float
    numerator: float | None = None


def survey(package: Package) -> list[dict[str, Any]]:
    """Return the attributes of all benchmarks, as they come out with this package.

    Raises:
        NotMeasured: if it cannot be imported, or is not there.
    """
    with Worker(package) as worker:
        answer = worker.answer(LIMIT)
    if not Path(answer["package"]).is_relative_to(package.folder):
        raise NotMeasured(f"{package.label}: another trgbench was imported, {shown(answer['package'])}")
    return answer["benchmarks"]


def measure(case: Case, packages: Mapping[str, Package], first: str, budget: float) -> Pair:
    """Measure a case in a fresh pair of processes.

    Args:
        first: the side that begins.
        budget: seconds of a CPU to spend on samples. On a busy machine they take longer, but are as many.

    Raises:
        NotMeasured: if a side gives no finite figure.
    """
    for side in SIDES:
        if side not in case.index:
            raise NotMeasured(f"{side}: with this commit there is no such benchmark")
    order = [first, *(side for side in SIDES if side != first)]
    env = {str(key): str(value) for key, value in (case.attributes.get("env") or {}).items()}
    with contextlib.ExitStack() as stack:
        workers = {
            side: stack.enter_context(Worker(packages[side], f"{case.name}-{case.index[side]}", env=env))
            for side in order
        }
        for side in order:
            workers[side].ask("setup", case.timeout)
        taken: dict[str, list[float]] = {side: [] for side in SIDES}
        factors: list[float] = []
        numerators: list[float] = []
        for sides in _rounds(order, case.attributes):
            values: dict[str, list[float]] = {side: [] for side in SIDES}
            above: dict[str, list[float]] = {side: [] for side in SIDES}
            for side in sides:
                answer = workers[side].ask("sample", case.timeout)
                values[side].append(_value(answer, side))
                if answer["numerator"] is not None:
                    above[side].append(answer["numerator"])
                budget -= answer["spent"]
            for side in SIDES:
                taken[side] += values[side]
            factors.append(_factor(values))
            if above["base"] and above["head"]:
                numerators.append(_factor(above))
            if len(factors) >= ROUNDS[0] and budget < 0:
                break
    base, head = (statistics.median(taken[side]) for side in SIDES)
    if math.nan in factors and case.attributes.get("tolerance") is None:
        raise NotMeasured(f"{base:g} and {head:g} have no ratio")
    numerator = statistics.median(numerators) if numerators else None
    return Pair(base, head, statistics.median(factors), numerator)


def _rounds(order: list[str], attributes: Mapping[str, Any]) -> Iterator[list[str]]:
    """Yield the sides of each round: A B B A, B A A B, …; one turn each for what is measured only once."""
    if attributes["type"] != "time" and attributes["unit"] != "ratio":
        yield order
        return
    a, b = order
    for _ in range(ROUNDS[1]):
        yield [a, b, b, a]
        a, b = b, a


def _value(answer: Mapping[str, Any], label: str) -> float:
    value = statistics.median(answer["values"])
    if not math.isfinite(value):
        raise NotMeasured(f"{label}: it gave {value}, which is no figure")
    return value


def _factor(values: Mapping[str, list[float]]) -> float:
    base, head = (statistics.fmean(values[side]) for side in SIDES)
    if base == head:
        return 1.0
    return head / base if base > 0 and head > 0 else math.nan
