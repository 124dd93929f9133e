"""The gate itself: first some pairs of every benchmark, then fresh ones of those that look worse."""

from __future__ import annotations

import itertools
import re
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from trgbench.errors import InputError
from trgbench.study.results import machine, now, versions
from trgbench.suite import commits
from trgbench.suite.commits import Commit, Trouble
from trgbench.suite.gate import pairs, verdict
from trgbench.suite.gate.pairs import SIDES, Case, NotMeasured, Package, Pair
from trgbench.suite.gate.report import Comparison, Report
from trgbench.suite.profiles import pattern

DEFINITIONS = "benchmarks"
PACKAGE = "trgbench"
CONTROL = "control."
FASTER_DENOMINATOR = "what it is divided by became faster"

Tell = Callable[[int, int, str], None]
Benchmarks = list[dict[str, Any]]


def compare(
    root: Path,
    base: str,
    head: str = "HEAD",
    *,
    only: str | None = None,
    tell: Tell = lambda done, total, doing: None,
) -> Report:
    """Measure the package of two commits of the checkout `root` against each other.

    The benchmarks are those of the work tree, as they are for asv; the interpreter and what is installed are
    this process's.

    Args:
        base, head: a branch, a tag, a hash.
        only: a regular expression on `file.Class.method(parameters)`; what to measure, not the default set.
        tell: is called with how many pairs are done, of how many, and what is being measured.

    Raises:
        InputError: if a name means no commit, or `only` is no regular expression.
        Trouble: if the checkout is in a state that prevents it, or there is nothing to measure.
    """
    start = time.monotonic()
    sides = {"base": commits.find_commit(root, base), "head": commits.find_commit(root, head)}
    notes = []
    if commits.is_dirty(root, PACKAGE, DEFINITIONS):
        notes.append(
            f"the work tree has changes that are in no commit; measured are the packages of {base} and "
            f"{head} as committed, by the benchmarks as they are in the work tree"
        )
    if sides["base"].hash == sides["head"].hash:
        notes.append(f"{base} and {head} are the same commit")
    with tempfile.TemporaryDirectory(prefix="trgbench-gate-") as folder:
        packages = lay_out(root, sides, Path(folder))
        return report_on(packages, sides, only, tell, start, notes)


def report_on(
    packages: Mapping[str, Package],
    sides: Mapping[str, Commit],
    only: str | None,
    tell: Tell,
    start: float,
    notes: Sequence[str] = (),
) -> Report:
    """Measure two packages that are laid out; see `compare`. `start`: when, on the monotonic clock."""
    found, control = measure(packages, only, tell)
    return Report(
        base=sides["base"],
        head=sides["head"],
        comparisons=found,
        control=control,
        notes=notes,
        machine=machine(),
        versions={key: value for key, value in versions().items() if key != PACKAGE},
        date=now(),
        seconds=time.monotonic() - start,
        only=only,
    )


def lay_out(root: Path, sides: Mapping[str, Commit], folder: Path) -> dict[str, Package]:
    """Write both packages and the benchmarks below `folder`.

    Raises:
        Trouble: if a commit has no package, or the work tree no benchmarks.
    """
    definitions = folder / DEFINITIONS
    if not (root / DEFINITIONS).is_dir():
        raise Trouble(f"the work tree {root} has no folder {DEFINITIONS}; check out a commit that has one")
    shutil.copytree(root / DEFINITIONS, definitions, ignore=shutil.ignore_patterns("__pycache__"))
    packages = {}
    for side, commit in sides.items():
        # Their paths are equally long: where the stack begins depends on the size of the environment.
        packages[side] = Package(side, folder / side, definitions)
        try:
            commits.export(root, commit, PACKAGE, folder / side)
        except commits.GitFailed:
            raise Trouble(
                f"{commit.name} ({commit.short}) has no package {PACKAGE}; choose a commit that has it"
            ) from None
    return packages


def measure(
    packages: Mapping[str, Package], only: str | None, tell: Tell
) -> tuple[list[Comparison], list[Comparison]]:
    """Return the comparisons of two packages, and those of the control; see `compare`."""
    cases = choose(packages, only)
    gate = Gate(packages, tell)
    gate.screen(cases)
    gate.confirm()
    entries = sorted(gate.entries, key=lambda entry: cases.index(entry.case))
    moved = [entry for entry in entries if entry.is_control and entry.moved]
    found: list[Comparison] = []
    control: list[Comparison] = []
    for entry in entries:
        (control if entry.is_control else found).append(entry.comparison(moved))
    return found, control


def choose(packages: Mapping[str, Package], only: str | None) -> list[Case]:
    """Return what to measure: what `only` matches, or what the benchmarks name for the gate; and the control.

    Raises:
        InputError: if `only` is no regular expression.
        Trouble: if nothing is to be measured, or a package cannot be imported.
    """
    try:
        wanted = None if only is None else re.compile(only)
    except re.error as error:
        raise InputError(f"--only must be a regular expression; got {only!r} ({error})") from None
    try:
        listed = {side: pairs.survey(packages[side]) for side in SIDES}
    except NotMeasured as reason:
        raise Trouble(f"nothing was measured: the benchmarks cannot be listed with {reason}") from None
    numbers = {side: dict(_combinations(listed[side])) for side in SIDES}
    cases = []
    for benchmark in listed["head"]:
        gate = benchmark.get("gate")
        default = re.compile("(?!)" if gate is None else pattern(benchmark, gate))
        for full, _ in _combinations([benchmark]):
            is_control = full.startswith(CONTROL) and default.search(full)
            if is_control or (wanted or default).search(full):
                index = {side: numbers[side][full] for side in SIDES if full in numbers[side]}
                cases.append(Case(benchmark["name"], full, index, benchmark))
    if all(case.name.startswith(CONTROL) for case in cases):
        asked = "is for the gate" if only is None else f"but a control matches {only!r}"
        raise Trouble(f"nothing was measured: no benchmark {asked}; benchmarks/README.md says what there is")
    return cases


def _combinations(benchmarks: Benchmarks) -> Iterator[tuple[str, int]]:
    """Yield the full name of every combination of parameters, as asv writes it, and its number."""
    for benchmark in benchmarks:
        for number, values in enumerate(itertools.product(*benchmark["params"])):
            yield benchmark["name"] + (f"({', '.join(values)})" if values else ""), number


@dataclass
class Entry:
    """What is known of a case: its first pairs and, if it looked worse, the fresh ones that decide."""

    case: Case
    first: list[Pair] = field(default_factory=list)
    fresh: list[Pair] = field(default_factory=list)
    decision: str | None = None
    reason: str = ""

    @property
    def is_control(self) -> bool:
        return self.case.name.startswith(CONTROL)

    @property
    def unit(self) -> str:
        return self.case.attributes["unit"]

    @property
    def larger_is_better(self) -> bool:
        return bool(self.case.attributes.get("larger_is_better"))

    @property
    def tolerance(self) -> float | None:
        return self.case.attributes.get("tolerance")

    @property
    def decisive(self) -> list[Pair]:
        return self.fresh if len(self.fresh) > 1 else self.first  # of a single pair there is no interval

    @property
    def factors(self) -> list[float]:
        return [pair.factor for pair in self.decisive]

    @property
    def moved(self) -> bool:
        return len(self.fresh) >= verdict.LOOKS[0] and verdict.moved(self.factors, self.unit)

    @property
    def is_suspect(self) -> bool:
        if self.reason or self.is_control:
            return False
        if self.tolerance is not None:
            return self.exact == "worse"
        return not self.is_excused and verdict.is_suspect(self.factors, self.unit, self.larger_is_better)

    @property
    def is_excused(self) -> bool:
        return verdict.is_the_denominators(self.decisive)

    @property
    def exact(self) -> str:
        assert self.tolerance is not None
        return verdict.compare_exact([*self.first, *self.fresh], self.tolerance, self.larger_is_better)

    def decide(self, suspects: int) -> None:
        """Decide after another fresh pair, if it is time."""
        if self.tolerance is not None:
            self.decision = self.exact
        else:
            self.decision = verdict.decide(self.factors, self.unit, suspects, self.larger_is_better)

    def comparison(self, moved: Sequence[Entry]) -> Comparison:
        """Return what was found; `moved` are the controls that changed although nothing can change them."""
        found = Comparison(
            benchmark=self.case.full,
            title=self.case.attributes.get("pretty_name", self.case.name),
            unit=self.unit,
            verdict="not measured",
            larger_is_better=self.larger_is_better,
            reason=self.reason,
        )
        if self.reason:
            return found
        base, head = (statistics.median(getattr(pair, side) for pair in self.decisive) for side in SIDES)
        found = replace(found, base=base, head=head, pairs=len(self.decisive))
        if self.tolerance is not None:
            exact = self.exact
            scatters = "it should give the same in every run, and does not"
            return replace(found, verdict=exact, reason=scatters if exact == "unclear" else "")
        found = replace(found, effect=verdict.effect(self.factors))
        if self.is_control:
            noisy = "it moved, so the machine was too noisy" if self in moved else ""
            return replace(found, verdict="unclear" if noisy else "same", reason=noisy)
        if self.is_excused and found.harm > verdict.smallest(self.unit):
            return replace(found, verdict="same", reason=FASTER_DENOMINATOR)
        if self.decision is None:
            better = verdict.is_better(self.factors, self.unit, self.larger_is_better)
            return replace(found, verdict="better" if better else "same")
        reason = ""
        decision = self.decision
        if decision == "worse" and moved:
            decision = "unclear"
            reason = (
                f"it is worse, but so is the control {moved[0].case.full}: run it again on a quieter machine"
            )
        elif decision == "unclear":
            reason = (
                "it looks worse, and the machine is too noisy to be sure: run it again on a quieter machine"
            )
        return replace(found, verdict=decision, reason=reason)


class Gate:
    """Measures pairs, and keeps count."""

    def __init__(self, packages: Mapping[str, Package], tell: Tell) -> None:
        self.packages, self.tell = packages, tell
        self.entries: list[Entry] = []
        self.done = self.total = 0

    def screen(self, cases: Sequence[Case]) -> None:
        """Measure some pairs of every case, those of the same case well apart in time."""
        self.entries = [Entry(case) for case in cases]
        fewest, most = verdict.SCREEN
        scatter = [entry for entry in self.entries if entry.tolerance is None]
        self.total = len(self.entries) + (most - 1) * len(scatter)
        end = time.monotonic() + verdict.SCREEN_SECONDS * len(cases)
        for entry in self.entries:
            self.take(entry, entry.first, verdict.SCREEN_BUDGET)
        for number in range(1, most):
            for entry in scatter:
                if number < fewest or time.monotonic() < end:
                    self.take(entry, entry.first, verdict.SCREEN_BUDGET)

    def confirm(self) -> None:
        """Measure what looks worse again, in fresh processes, and then the control."""
        suspects = [entry for entry in self.entries if entry.is_suspect]
        self.total += verdict.GLANCES[0] * len(suspects)
        while waiting := [entry for entry in suspects if entry.decision is None and not entry.reason]:
            for entry in waiting:
                self.take(entry, entry.fresh, verdict.FRESH_BUDGET)
                if not entry.reason:
                    entry.decide(len(suspects))
        if any(entry.decision == "worse" and entry.tolerance is None for entry in suspects):
            for _ in range(verdict.LOOKS[0]):
                for entry in self.entries:
                    if entry.is_control:
                        self.take(entry, entry.fresh, verdict.FRESH_BUDGET)

    def take(self, entry: Entry, to: list[Pair], budget: float) -> None:
        """Measure a pair, or note why not."""
        self.tell(self.done, max(self.total, self.done + 1), entry.case.full)
        self.done += 1
        if entry.reason:
            return
        first = SIDES[len(to) % 2]  # each side begins as often
        try:
            to.append(pairs.measure(entry.case, self.packages, first, budget))
        except NotMeasured as reason:
            entry.reason = str(reason)
