"""Measures what the table holds, and makes a row of it."""

from __future__ import annotations

import functools
import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from trgbench.console import duration
from trgbench.measure import NO_CACHES
from trgbench.speed import tasks
from trgbench.speed.cells import (
    CELLS,
    COUNTS,
    GROWTH,
    GROWTH_CHI,
    GROWTH_STEPS,
    MEMORY,
    PREPARE,
    RACES,
    Cell,
    Contender,
    Race,
    exponent,
)
from trgbench.study.lab import MISSING, Lab

ROUNDS = 3
WARM_SECONDS = 4.0  # so long, because a program that keeps being run is compiled
LIMIT = 12.0  # seconds of gradients in one process of a race
LONG = 900.0  # seconds that a measuring process may take
BETAS = [*(0.1 + 0.05 * i for i in range(19)), 0.4406867935097715]  # with the critical point
AGREE = 1e-10


@dataclass(frozen=True)
class Row:
    """A line of the table: a figure, what it may be at most, and how it came about."""

    what: str
    figure: float | None
    at_most: float
    said: str
    details: Any = field(default=None, repr=False)

    @property
    def verdict(self) -> str:
        if self.figure is None:
            return "not measured"
        return "yes" if self.figure <= self.at_most else "no"


def _missing(what: str, at_most: float, *answers: Any) -> Row | None:
    """Return a row that says why there is no figure, if one of the answers does."""
    for answer in answers:
        if isinstance(answer, dict) and MISSING in answer:
            return Row(what, None, at_most, answer[MISSING])
    return None


def steady(lab: Lab, cell: Cell) -> Iterator[Row]:
    """Yield the row of a steady ratio."""
    native, peers, beside = (
        [contender.request for contender in side] for side in (cell.native, cell.peers, cell.beside)
    )
    answer = lab.run(
        tasks.steady,
        threads=cell.threads,
        timeout=LONG,
        native=native,
        peers=peers,
        beside=beside,
        warm=WARM_SECONDS,
    )
    if row := _missing(cell.title, cell.at_most, answer):
        yield row
        return
    low, high = answer["interval"]
    times = ", ".join(f"{name} {duration(seconds)}" for name, seconds in answer["seconds"].items())
    yield Row(
        cell.title,
        answer["ratio"],
        cell.at_most,
        f"({low:.2f}…{high:.2f}) of {answer['peer']}; {times}",
        answer,
    )


def race(lab: Lab, course: Race) -> Iterator[Row]:
    """Yield a row for every N.

    Compilers find no program on the disk. What the native engine keeps there is part of no program: a
    library, compiled once for a computer; without it (`XDG_CACHE_HOME` set to an empty folder) NumPy runs.
    """
    times: dict[str, list[list[float]]] = {}
    left: dict[str, str] = {}
    for number in range(ROUNDS):
        for contender in (*course.native, *course.peers):
            if contender.name in left or (number and _hopeless(contender, times)):
                continue
            answer = lab.run(
                tasks.race,
                contender=contender.request,
                counts=list(COUNTS),
                limit=LIMIT,
                timeout=LONG,
                environment=NO_CACHES,
            )
            if MISSING in answer:
                left[contender.name] = answer[MISSING]
            else:
                times.setdefault(contender.name, []).append(answer["times"])
    for index, n in enumerate(COUNTS):
        at = {name: statistics.median(run[index] for run in runs) for name, runs in times.items()}
        ours, others = (
            {c.name: at[c.name] for c in side if c.name in at} for side in (course.native, course.peers)
        )
        what = f"time to the N-th gradient, {course.title}, N = {n}"
        if not ours or not others:
            yield Row(what, None, course.at_most, "; ".join(f"{name}: {why}" for name, why in left.items()))
            continue
        best, peer = min(ours, key=lambda name: ours[name]), min(others, key=lambda name: others[name])
        said = f"{best} {duration(ours[best])}, {peer} {duration(others[peer])}"
        yield Row(what, ours[best] / others[peer], course.at_most, said, at)


def _hopeless(contender: Contender, times: dict[str, list[list[float]]]) -> bool:
    """Whether another was ahead of this one by far at every N in the first round: once is enough then."""
    first = times[contender.name][0]
    best = [min(runs[0][i] for runs in times.values()) for i in range(len(first))]
    return all(mine > 3 * least for mine, least in zip(first, best, strict=True))


def prepared(lab: Lab) -> Iterator[Row]:
    contender, at_most = PREPARE
    answers = [lab.run(tasks.once_paid, contender=contender.request) for _ in range(ROUNDS)]
    yield _missing(PREPARE_TITLE, at_most, *answers) or Row(
        PREPARE_TITLE, statistics.median(answers), at_most, f"the median of {ROUNDS} processes", answers
    )


def memory(lab: Lab) -> Iterator[Row]:
    ours, peer, at_most = MEMORY
    peaks = [lab.run(tasks.memory, contender=c.request, timeout=LONG) for c in (ours, peer)]
    yield _missing(MEMORY_TITLE, at_most, *peaks) or Row(
        MEMORY_TITLE,
        peaks[0] / peaks[1],
        at_most,
        ", ".join(f"{c.name} {peak / 2**20:.0f} MiB" for c, peak in zip((ours, peer), peaks, strict=True)),
        peaks,
    )


def growth(lab: Lab, title: str, options: dict[str, str], at_most: float) -> Iterator[Row]:
    seconds = [
        lab.run(tasks.steps, chi=chi, counts=list(GROWTH_STEPS), options=options, timeout=LONG)
        for chi in GROWTH_CHI
    ]
    if row := _missing(title, at_most, *seconds):
        yield row
        return
    said = ", ".join(f"χ = {chi} {duration(s)}" for chi, s in zip(GROWTH_CHI, seconds, strict=True))
    yield Row(title, exponent(GROWTH_CHI, seconds), at_most, said, seconds)


def agreement(lab: Lab, title: str, options: dict[str, str]) -> Iterator[Row]:
    answer = lab.run(tasks.against_full, options=options, chi=16, count=20, betas=BETAS, timeout=LONG)
    yield _missing(title, AGREE, answer) or Row(
        title, answer, AGREE, f"{len(BETAS)} values of β, χ = 16", answer
    )


PREPARE_TITLE = "prepare of traced-staged, TRG, 20 steps: seconds"
MEMORY_TITLE = "peak memory, TRG, 20 steps, χ = 24, recomputing"

# What is measured together, by its title.
PARTS: dict[str, Callable[[Lab], Iterator[Row]]] = {
    **{cell.title: functools.partial(steady, cell=cell) for cell in CELLS},
    **{
        f"time to the N-th gradient, {course.title}": functools.partial(race, course=course)
        for course in RACES
    },
    PREPARE_TITLE: prepared,
    MEMORY_TITLE: memory,
}
for _name, _options, _at_most in GROWTH:
    _title = f"growth of a TRG step with χ, 16 to 48, {_name}: exponent"
    PARTS[_title] = functools.partial(growth, title=_title, options=_options, at_most=_at_most)
    _title = f"u by {_name} against the full SVD, β from 0.1 to 1: largest difference"
    PARTS[_title] = functools.partial(agreement, title=_title, options=_options)
