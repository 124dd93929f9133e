"""Holds the advice against brute force: `python -m trgbench.advise.check`; takes about half an hour.

In 12 settings N gradients are really computed, in a fresh process, by every combination that the advice
does not put far behind, in turns, and the medians compared. The advice is right where what it recommends
takes at most 15 % longer than the fastest.
"""

from __future__ import annotations

import dataclasses
import json
import os
import statistics
import subprocess
import sys
import time
import warnings
from typing import Any

from rich.console import Console
from rich.table import Table

from trgbench import measure
from trgbench.advise.advice import Advice, Question, advise
from trgbench.advise.command import costs_of
from trgbench.advise.costs import Combination, Setting
from trgbench.advise.survey import BUDGET
from trgbench.console import duration

ALLOWED = 1.15
FAR = 2.0  # what is predicted to take longer by more than this is not run, but the first three
ROUNDS = 3


def question(
    problem: str, evaluations: int, changing: bool = False, branches: bool = False, **sizes: int
) -> Question:
    setting = Setting(problem, tuple(sizes.items()), changing_shape=changing)
    return Question(setting, evaluations, branches)


QUESTIONS = (
    question("vector", 1, n=1000),
    question("vector", 5000, n=1000),
    question("vector", 20, n=1_000_000),
    question("vector", 20, changing=True, n=1000),
    question("chain", 1, depth=100),
    question("chain", 3000, depth=100),
    question("chain", 1, depth=400, branches=True),
    question("chain", 3000, depth=400),
    question("trg", 1, chi=16, steps=4),
    question("trg", 3000, chi=16, steps=4),
    question("trg", 1, chi=16, steps=20),
    question("trg", 20, chi=16, steps=20),
)


def compute(sizes: dict[str, int], evaluations: int, request: dict[str, Any]) -> float:
    """Return the seconds in which this process, which should be fresh, computes N gradients."""
    measure.pin(request["threads"])
    from trgbench import backends, problems

    library, make = backends.get(request["backend"]), getattr(problems, request["problem"])
    changing = request["changing_shape"]
    made = [make(**{**sizes, "n": sizes["n"] + i}) if changing else make(**sizes) for i in range(evaluations)]
    clock = measure.Clock(request["threads"])
    start = clock()
    for number, problem in enumerate(made):
        if number == 0 or changing:  # preparing ends with a gradient
            built = library.prepare(problem, request["mode"], request["threads"], request["svd"]).built
            x = built.asarray(problem.example)
        else:
            built.run(x)
    return clock() - start


def brute_force(asked: Question, combination: Combination) -> float:
    """Return the seconds to the N-th gradient, measured in a fresh process."""
    request = {**dataclasses.asdict(asked.setting), **dataclasses.asdict(combination)}
    arguments = json.dumps([dict(asked.setting.sizes), asked.evaluations, request])
    command = [sys.executable, "-m", "trgbench.advise.check", arguments]
    done = subprocess.run(command, check=True, capture_output=True, env={**os.environ, **measure.NO_CACHES})
    return float(done.stdout.splitlines()[-1])


def compare(asked: Question, advice: Advice) -> dict[Combination, float]:
    """Return the measured medians of what is not predicted to be far behind."""
    assert advice.best is not None
    limit = FAR * advice.times[advice.best]
    near = [key for rank, (key, seconds) in enumerate(advice.times.items()) if rank < 3 or seconds <= limit]
    rounds: dict[Combination, list[float]] = {key: [] for key in near}
    for number in range(ROUNDS):
        for key in near if number % 2 == 0 else reversed(near):
            rounds[key].append(brute_force(asked, key))
    return {key: statistics.median(times) for key, times in rounds.items()}


def main() -> int:
    if len(sys.argv) > 1:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            print(compute(*json.loads(sys.argv[1])))
        return 0
    table = Table(title=f"Advice against brute force, medians of {ROUNDS} in turns")
    for name in (
        "setting",
        "N",
        "recommended",
        "predicted",
        "measured",
        "fastest measured",
        "its time",
        "ratio",
    ):
        table.add_column(name)
    console, worst = Console(), 0.0
    for asked in QUESTIONS:
        start = time.monotonic()
        advice = advise(asked, costs_of(asked.setting, BUDGET, None, lambda doing: None, print))
        best = advice.best
        assert best is not None
        measured = compare(asked, advice)
        fastest = min(measured, key=lambda key: measured[key])
        ratio = measured[best] / measured[fastest]
        worst = max(worst, ratio)
        branches = ", branches" if asked.value_branches else ""
        head = (f"{asked.setting}{branches}", f"{asked.evaluations}")
        times = (duration(advice.times[best]), duration(measured[best]))
        table.add_row(*head, str(best), *times, str(fastest), duration(measured[fastest]), f"{ratio:.2f}")
        others = ", ".join(f"{key} {duration(seconds)}" for key, seconds in measured.items())
        console.print(f"{head[0]}, N={head[1]}: {others} ({time.monotonic() - start:.0f} s)", highlight=False)
    console.print(table)
    console.print(f"worst ratio {worst:.2f}; {ALLOWED} is allowed")
    return int(worst > ALLOWED)


if __name__ == "__main__":
    sys.exit(main())
