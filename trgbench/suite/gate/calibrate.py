"""How well the gate works here: how often it cries wolf, and how often it misses what is slower by plan."""

from __future__ import annotations

import json
import os
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trgbench.console import strict_json
from trgbench.errors import InputError
from trgbench.study.results import machine, versions, write
from trgbench.suite import commits
from trgbench.suite.gate.report import NO_REGRESSION, NOT_MEASURED, REGRESSION
from trgbench.suite.gate.run import PACKAGE, Tell, lay_out, report_on

# Appended to a module of a copy of the package: a call takes so many times as long as it did at its fastest.
# The time added is a fixed one, found out by the first calls: a pause of the process must not become longer.
SLOWER = """

def _slower(function, factor):
    import functools, time

    clock, calls, extra = time.perf_counter, 0, 1e9

    @functools.wraps(function)
    def call(*arguments, **options):
        nonlocal calls, extra
        if calls < 60:
            calls += 1
            start = clock()
            result = function(*arguments, **options)
            extra = min(extra, (factor - 1) * (clock() - start))
        else:
            result = function(*arguments, **options)
        end = clock() + extra
        while clock() < end:
            pass
        return result

    return call
"""


@dataclass(frozen=True)
class Trial:
    """What is done so many times: a commit against a copy of itself, in which a function may be slower.

    Attributes:
        module: the file of the package to change.
        plant: what to append to it, besides `_slower`.
        only: what to measure; `None` for the default set.
    """

    name: str
    title: str
    runs: int
    module: str = ""
    plant: str = ""
    only: str | None = None


TRIALS = (
    Trial("same", "no change, the default set", 20),
    Trial(
        "backward",
        "native eager backward takes 1.25 times as long",
        10,
        "engine/eager.py",
        "Session.backward = _slower(Session.backward, 1.25)\n",
        r"^gradient\.Vector\.time_gradient\('native', 'eager', 1, 1000\)$",
    ),
    Trial(
        "ratio",
        "a ratio is 1.10 times as large: native eager takes so much longer, native traced does not",
        10,
        "backends/native.py",
        "_build_eager = _eager\n\n\n"
        "def _eager(*arguments):\n    return _slower(_build_eager(*arguments), 1.10)\n",
        r"^ratios\.Modes\.track_ratio\('native', 'eager / traced', 'vector\(1000\)'\)$",
    ),
)


def calibrate(
    root: Path, name: str, path: Path, tell: Tell, trials: Sequence[Trial] = TRIALS
) -> dict[str, Any]:
    """Run what `path` does not have of the trials, write it there after each, and return all of it.

    Raises:
        InputError: if `name` means no commit, or `path` holds something else.
        Trouble: as `run.compare`.
    """
    commit = commits.find_commit(root, name)
    content: dict[str, Any] = {
        "format": 1,
        "commit": commit.hash,
        "machine": machine(),
        "versions": {key: value for key, value in versions().items() if key != PACKAGE},
    }
    runs = _kept(path, content)
    wanted = sum(trial.runs for trial in trials)
    for trial in trials:
        while sum(run["trial"] == trial.name for run in runs) < trial.runs:
            runs.append(_run(root, commit, trial, lambda *doing: tell(len(runs), wanted, doing[-1])))
            write(path, strict_json(content | {"runs": runs}) + "\n")
    return content | {"runs": runs}


def table(content: Mapping[str, Any], trials: Sequence[Trial] = TRIALS) -> str:
    """Return the counts as a Markdown table."""
    lines = [
        "| planted | runs | exit 0 | exit 1 | exit 3 | seconds: median, most | load |",
        "|---|--:|--:|--:|--:|--:|--:|",
    ]
    for trial in trials:
        runs = [run for run in content["runs"] if run["trial"] == trial.name]
        codes = Counter(run["exit_code"] for run in runs)
        counts = " | ".join(str(codes[code]) for code in (NO_REGRESSION, REGRESSION, NOT_MEASURED))
        seconds, load = [run["seconds"] for run in runs], [run["load"] for run in runs]
        lines.append(
            f"| {trial.title} | {len(runs)} | {counts} | "
            f"{statistics.median(seconds):.0f}, {max(seconds):.0f} | {min(load):.1f} to {max(load):.1f} |"
        )
    return "\n".join(lines)


def _run(root: Path, commit: commits.Commit, trial: Trial, tell: Tell) -> dict[str, Any]:
    start = time.monotonic()
    sides = {"base": commit, "head": commit}
    with tempfile.TemporaryDirectory(prefix="trgbench-gate-") as folder:
        packages = lay_out(root, sides, Path(folder))
        if trial.plant:
            with (packages["head"].folder / PACKAGE / trial.module).open("a") as module:
                module.write(SLOWER + "\n\n" + trial.plant)
        report = report_on(packages, sides, trial.only, tell, start)
    content = report.as_json()
    return {
        "trial": trial.name,
        "load": round(os.getloadavg()[1], 1),  # of the last five minutes: who else was working
        **{key: content[key] for key in ("date", "seconds", "exit_code", "summary", "benchmarks", "control")},
    }


def _kept(path: Path, content: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the runs that a file has, if they may be joined with those that are made here and now."""
    if not path.exists():
        return []
    try:
        kept = json.loads(path.read_text())
        runs: list[dict[str, Any]] = kept.pop("runs")
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        raise InputError(f"{path} holds no calibration of a gate; give another file as --json") from None
    for key, value in content.items():
        if kept.get(key) != value:
            raise InputError(
                f"{path} holds a calibration with another {key}; give another file as --json, or remove it"
            )
    return runs
