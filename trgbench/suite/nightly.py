"""The nightly: measure main's new commits, have the gate judge each, publish, and say how it went."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from trgbench.console import one_line
from trgbench.errors import InputError, check_integer
from trgbench.suite import configuration, machines, names, site, store
from trgbench.suite.commits import Commit, Trouble, find_commit
from trgbench.suite.gate.report import NO_REGRESSION, REGRESSION, change_text, plain
from trgbench.suite.gate.report import Report as GateReport
from trgbench.suite.journal import Failure, Verdict, grouped
from trgbench.suite.lock import writer
from trgbench.suite.measuring import Bench
from trgbench.suite.profiles import PROFILES

FINE, SLOWER, BROKEN = 0, 1, 3
OUTCOMES = {FINE: "fine", SLOWER: "slower", BROKEN: "broken"}
PENDING, NOT_JUDGED = Verdict("pending"), Verdict("good", says=("there was nothing to compare with",))
GOOD = ("good", "accepted")

Gate = Callable[[Path, str, str], GateReport]


@dataclass
class Night:
    """One commit: how many numbers there are of it, what failed, and what the gate said."""

    commit: Commit
    measured: int
    failures: list[Failure]
    verdict: Verdict
    details: str = ""  # the gate's report, as Markdown

    @property
    def exit_code(self) -> int:
        if self.verdict.state == "slower":
            return SLOWER
        return BROKEN if self.failures or not self.measured or self.verdict.state == "undecided" else FINE


@dataclass
class Report:
    """What a nightly did.

    Attributes:
        nights: the commits measured or judged, the oldest first; the tip of the branch if there was none.
        news: whether there was a new commit.
        skipped: new commits that were left out because there were too many.
        set_aside: a message of each file that was.
        published: how many numbers the site shows.
        error: why it ended early, if it did.
    """

    machine: str
    profile: str
    branch: str
    nights: list[Night] = field(default_factory=list)
    news: bool = False
    skipped: int = 0
    set_aside: list[str] = field(default_factory=list)
    published: int = 0
    error: str = ""

    @property
    def exit_code(self) -> int:
        codes = {night.exit_code for night in self.nights}
        return next((code for code in (SLOWER, BROKEN) if code in codes), BROKEN if self.error else FINE)

    @property
    def summary(self) -> str:
        """How it went, in one line."""
        said = OUTCOMES[self.exit_code]
        worst = [night.commit for night in self.nights if night.exit_code == self.exit_code]
        if worst and said != "fine":
            said += f": {worst[-1].short} {worst[-1].subject}"
        if self.error:
            return f"{said}; it ended early: {self.error}"
        count = len(self.nights)
        news = f"{count} new commit{'s' if count > 1 else ''} of" if self.news else "nothing new on"
        return f"{said} ({news} {self.branch}, on {self.machine})"

    def as_json(self) -> dict[str, Any]:
        return {
            "format": 1,
            "exit_code": self.exit_code,
            "outcome": OUTCOMES[self.exit_code],
            "summary": self.summary,
            "machine": self.machine,
            "profile": self.profile,
            "branch": self.branch,
            "news": self.news,
            "skipped": self.skipped,
            "commits": [
                {
                    "commit": night.commit.hash,
                    "subject": night.commit.subject,
                    "outcome": OUTCOMES[night.exit_code],
                    "measured": night.measured,
                    "failures": [asdict(failure) for failure in night.failures],
                    "verdict": asdict(night.verdict),
                }
                for night in self.nights
            ],
            "set_aside": self.set_aside,
            "published": self.published,
            "error": self.error,
        }

    def lines(self) -> list[str]:
        """The whole as lines of plain text."""
        found = [self.summary]
        for night in self.nights:
            found.append(f"  {night.commit.short}  {night.commit.subject}")
            found.append(
                f"    {OUTCOMES[night.exit_code]}: {night.measured} measured, {len(night.failures)} failed"
            )
            found += [f"    {says}" for says in night.verdict.says]
            found += [f"    failed: {text}" for text in grouped(night.failures)]
        if self.skipped:
            found.append(f"  {self.skipped} new commits in between were left out: --commits takes more")
        found += [f"  {message}" for message in self.set_aside]
        # A commit may be called anything, and these go to a terminal.
        return [names.printable(line) for line in found]

    def markdown(self) -> str:
        """The whole as Markdown, for the page of a run or for an issue."""
        rows = [
            f"| `{night.commit.short}` | {plain(night.commit.subject)} | {OUTCOMES[night.exit_code]} "
            f"| {night.measured} | {len(night.failures)} | {plain('; '.join(night.verdict.says))} |"
            for night in self.nights
        ]
        parts = [f"## {plain(self.summary)}", ""]
        if rows:
            parts += [
                "| commit | | outcome | measured | failed | gate |",
                "|---|---|---|--:|--:|---|",
                *rows,
                "",
            ]
        for night in self.nights:
            if night.failures:
                parts += [f"What failed at `{night.commit.short}`:", ""]
                parts += [f"* {plain(text)}" for text in grouped(night.failures)] + [""]
            if night.details:
                parts += [f"<details><summary>The gate on {night.commit.short}</summary>", "", night.details]
                parts += ["</details>", ""]
        if self.skipped:
            parts += [f"{self.skipped} new commits in between were left out.", ""]
        parts += [f"* {plain(message)}" for message in self.set_aside]
        return "\n".join(parts).rstrip() + "\n"


def run(
    folder: Path,
    gate: Gate,
    *,
    profile: str,
    commits: int,
    machine: str | None,
    accept: str | None,
    wait: float,
) -> Report:
    """Do the nightly of the checkout that `folder` is in; whatever is broken is in the report.

    Args:
        gate: compares two commits; `trgbench.suite.gate.run.compare`.
        commits: how many to measure at most.
        machine: the name of this machine, if it has none yet.
        accept: a commit that the gate called slower, and that is to count as good.
        wait: seconds to wait for another writer.

    Raises:
        InputError: if the request cannot be carried out.
        Trouble: if the checkout, or another writer, is in the way.
    """
    check_integer("commits", commits, minimum=1)
    root = configuration.enter(folder)
    with writer(configuration.LOCK, "a nightly", wait):
        configuration.check_history(root)
        conf = configuration.configure()
        branch = conf.branches[0]
        configuration.check_work_tree(root, branch, conf.results_dir)
        stored, messages = configuration.look_through(root, Path(conf.results_dir))
        bench = Bench(conf, PROFILES[profile], machines.name(machine))
        report = Report(bench.machine, profile, branch, set_aside=messages)
        work = Work(root, bench, gate, report)
        if accept is not None:
            work.accept(find_commit(root, accept))
        try:
            work.do(stored, commits)
            report.published = site.publish(conf, Path(conf.html_dir))
        except Exception as error:  # or what was found before it would be lost
            report.error = str(error) if isinstance(error, Trouble) else one_line(error)
            if not isinstance(error, Trouble):
                traceback.print_exc()
        return report


class Work:
    """What is to be done with main's commits, in the first environment of the configuration."""

    def __init__(self, root: Path, bench: Bench, gate: Gate, report: Report) -> None:
        self.root, self.bench, self.gate, self.report = root, bench, gate, report
        self.environment = bench.environments[0].name
        self.mainline: list[str] = bench.repo.get_branch_commits(report.branch)  # the newest first
        self.numbers: dict[str, int] = {}

    def do(self, stored: Sequence[store.Stored], limit: int) -> None:
        """Measure and judge what is new or was left pending; without any, look at the tip again."""
        self._count(stored)
        chosen = self._choose(limit)
        self.report.news = bool(chosen)
        for commit in chosen:
            if self._verdict(commit) is None:
                self.bench.journal.judged(commit, self.environment, PENDING)
            self.bench.measure(commit)
            self._count([store.find(self.bench.results, self.bench.machine, self.environment, commit)])
            night = self._night(commit)
            night.verdict, night.details = self._judge(night)
            self.bench.journal.judged(commit, self.environment, night.verdict)
            self.report.nights.append(night)
        if not chosen:
            self.report.nights.append(self._night(self.mainline[0]))

    def accept(self, commit: Commit) -> None:
        """Call a commit good that was slower.

        Raises:
            InputError: if it was not.
        """
        verdict = self._verdict(commit.hash)
        if verdict is None or verdict.state != "slower":
            raise InputError(f"--accept takes a commit that the gate called slower; {commit.short} is none")
        says = ("it was accepted", *verdict.says)
        self.bench.journal.judged(commit.hash, self.environment, Verdict("accepted", verdict.base, says))

    def _choose(self, limit: int) -> list[str]:
        """Return the commits to measure, the oldest first: those pending, and those after the last known one.

        If these are too many they are spread evenly; the newest is always among them. If none is known, they
        are the newest ones.
        """
        known = next((i for i, commit in enumerate(self.mainline) if self._known(commit)), None)
        new = self.mainline[: limit if known is None else known]
        spread = [new[i * len(new) // limit] for i in range(limit)] if len(new) > limit else new
        self.report.skipped = len(new) - len(spread)
        pending = [commit for commit in self.mainline if self._verdict(commit) == PENDING]
        return sorted({*spread, *pending}, key=self.mainline.index, reverse=True)

    def _known(self, commit: str) -> bool:
        return commit in self.numbers or self._verdict(commit) is not None

    def _verdict(self, commit: str) -> Verdict | None:
        return self.bench.journal.of(commit, self.environment).verdict

    def _count(self, stored: Sequence[store.Stored]) -> None:
        for found in stored:
            if (found.machine, found.environment) == (self.bench.machine, self.environment):
                self.numbers[found.commit] = store.count_numbers(found)

    def _night(self, commit: str) -> Night:
        entry = self.bench.journal.of(commit, self.environment)
        known = find_commit(self.root, commit)
        return Night(known, self.numbers.get(commit, 0), entry.failures, entry.verdict or NOT_JUDGED)

    def _judge(self, night: Night) -> tuple[Verdict, str]:
        """Return what the gate says of a commit against the last good one, and its report."""
        if not night.measured:
            return Verdict("undecided", says=("it could not be measured, and so not be judged",)), ""
        base = self._last_good(night.commit.hash)
        if base is None:
            return NOT_JUDGED, ""
        try:
            found = self.gate(self.root, base, night.commit.hash)
        except (Trouble, InputError) as trouble:
            return Verdict("undecided", base, (str(trouble),)), ""
        says = [f"against {base[:8]}: {found.summary.partition(',')[0]}"]
        says += [f"{worse.benchmark} {change_text(worse)}" for worse in found.regressions]
        says += [f"{missing.benchmark}: {missing.reason}" for missing in found.open]
        state = {NO_REGRESSION: "good", REGRESSION: "slower"}.get(found.exit_code, "undecided")
        if state == "slower" and (first := self._slower_since(base, night.commit.hash)):
            says.insert(1, f"it was so already at {first[:8]}")
        return Verdict(state, base, tuple(says)), found.markdown()

    def _last_good(self, commit: str) -> str | None:
        """Return the newest commit before this one that could be measured and is not known to be slower."""
        for older in self.mainline[self.mainline.index(commit) + 1 :]:
            verdict = self._verdict(older)
            if self.numbers.get(older) and (verdict is None or verdict.state in GOOD):
                return older
        return None

    def _slower_since(self, base: str, commit: str) -> str | None:
        between = self.mainline[self.mainline.index(commit) + 1 : self.mainline.index(base)]
        found = [older for older in between if getattr(self._verdict(older), "state", "") == "slower"]
        return found[-1] if found else None
