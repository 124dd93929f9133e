"""What a gate found: as an object, as JSON, and as Markdown for a pull request."""

from __future__ import annotations

import html
import json
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import resources
from typing import Any

from trgbench.console import duration
from trgbench.suite.commits import Commit
from trgbench.suite.gate.verdict import CONFIDENCE, Effect

NO_REGRESSION, REGRESSION, NOT_MEASURED = 0, 1, 3
MARKS = {"worse": "**worse**", "unclear": "unclear", "same": "", "better": "better", "not measured": ""}


@dataclass(frozen=True)
class Comparison:
    """One benchmark, with its parameters, in both commits.

    Attributes:
        verdict: `worse` (confirmed in fresh processes), `better`, `same`, `unclear` (it looks worse, and the
            machine is too noisy to say) or `not measured`.
        base: the median of what was measured; in `unit`.
        effect: by what factor head's value is larger, with its interval over pairs of processes.
        pairs: how many of them.
        reason: why it was not measured or is unclear, or why a ratio that grew is no regression.
    """

    benchmark: str
    title: str
    unit: str
    verdict: str
    larger_is_better: bool = False
    base: float | None = None
    head: float | None = None
    effect: Effect | None = None
    pairs: int = 0
    reason: str = ""

    @property
    def harm(self) -> float:
        """The effect as a factor that is above 1 if head is worse; to sort by."""
        if self.effect is None:
            return {"worse": math.inf, "better": 0.0}.get(self.verdict, 1.0)
        return 1 / self.effect.factor if self.larger_is_better else self.effect.factor


@dataclass(frozen=True)
class Report:
    """What a gate found, `comparisons` in the order of the suite; see `Comparison`."""

    base: Commit
    head: Commit
    comparisons: Sequence[Comparison]
    control: Sequence[Comparison]
    notes: Sequence[str]
    machine: Mapping[str, Any]
    versions: Mapping[str, str]
    date: str
    seconds: float
    only: str | None = None

    @property
    def regressions(self) -> list[Comparison]:
        return [found for found in self.by_harm() if found.verdict == "worse"]

    @property
    def open(self) -> list[Comparison]:
        """What was not measured, or not well enough to say."""
        return [found for found in self.by_harm() if found.verdict in ("unclear", "not measured")]

    @property
    def exit_code(self) -> int:
        if self.regressions:
            return REGRESSION
        return NOT_MEASURED if self.open or not self.comparisons else NO_REGRESSION

    @property
    def summary(self) -> str:
        """The verdict in one line of plain text."""
        count = len(self.comparisons)
        counts = Counter(found.verdict for found in self.comparisons)
        missing = [f"{counts[v]} {v}" for v in ("unclear", "not measured") if counts[v]]
        if self.regressions:
            worst = self.regressions[0]
            text = f"Regression: {counts['worse']} of {count} worse, most of all {worst.benchmark}"
            return "; ".join([f"{text} {change_text(worst)}", *missing])
        if counts["not measured"] == count:
            return "Nothing was measured, so nothing is known"
        if missing:
            shown = ", ".join(missing)
            return f"Not everything is known: of {count} benchmarks {shown}; no regression in the others"
        return f"No regression in {count} benchmark{'s' if count > 1 else ''}"

    def by_harm(self) -> list[Comparison]:
        return sorted(self.comparisons, key=lambda found: -found.harm)

    def as_json(self) -> dict[str, Any]:
        """Return the report as `schema.json` has it."""
        return {
            "format": 1,
            "exit_code": self.exit_code,
            "summary": self.summary,
            "date": self.date,
            "seconds": round(self.seconds, 1),
            "only": self.only,
            "base": asdict(self.base),
            "head": asdict(self.head),
            "benchmarks": [_as_json(found) for found in self.by_harm()],
            "control": [_as_json(found) for found in self.control],
            "notes": list(self.notes),
            "machine": dict(self.machine),
            "versions": dict(self.versions),
        }

    def markdown(self) -> str:
        """Return the report as a comment on a pull request: verdict, table, what is missing."""
        verdict, colon, rest = self.summary.partition(":")
        lines = [
            f"**{verdict}**{colon} {plain(rest)}".strip(),
            "",
            f"Head {_commit(self.head)} against base {_commit(self.base)}, taking turns on the same CPU.",
            "",
        ]
        measured = [found for found in self.by_harm() if found.base is not None]
        if measured:
            lines += [
                f"| benchmark | base | head | head / base ({CONFIDENCE:.0%} interval) | |",
                "|---|--:|--:|--:|---|",
                *(_row(found) for found in measured),
                "",
            ]
        if self.open:
            lines += ["Not measured, or unclear:", ""]
            lines += [f"* {_code(found.benchmark)}: {plain(found.reason)}" for found in self.open]
            lines += [""]
        for found in self.control:
            shown = change_text(found) if found.effect else found.reason
            lines += [f"Control, which no commit can change: {_code(found.benchmark)} {plain(shown)}.", ""]
        lines += [f"Note: {plain(note)}." for note in self.notes]
        versions = ", ".join(f"{name} {version}" for name, version in self.versions.items())
        lines += [
            "",
            f"<sub>{plain(self.machine['cpu'])}, {self.machine['cpus']} CPUs; {plain(versions)}; "
            f"{self.date}, {duration(self.seconds)}</sub>",
        ]
        return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)) + "\n"


def value_text(found: Comparison, value: float | None) -> str:
    """Return a value with its unit."""
    if value is None:
        return ""
    if found.unit == "bytes":
        return f"{value / 2**20:.4g} MiB"
    return duration(value) if found.unit == "seconds" else f"{value:.4g}"


def effect_text(found: Comparison) -> str:
    """Return the factor and its interval, as far as there are any."""
    if found.effect is None:
        return ""
    return f"{found.effect.factor:.3f} ({found.effect.low:.3f} to {found.effect.high:.3f})"


def change_text(found: Comparison) -> str:
    """Return what changed by how much, where there is no table."""
    if found.effect is None:
        return f"{value_text(found, found.base)} -> {value_text(found, found.head)}"
    return f"x {effect_text(found)}"


def schema() -> dict[str, Any]:
    return json.loads(resources.files(__package__).joinpath("schema.json").read_text())


def _as_json(found: Comparison) -> dict[str, Any]:
    return asdict(found) | {"effect": found.effect._asdict() if found.effect else None}


def _commit(commit: Commit) -> str:
    return f"`{commit.short}` ({plain(commit.subject)})"


def _row(found: Comparison) -> str:
    cells = [
        _code(found.benchmark),
        value_text(found, found.base),
        value_text(found, found.head),
        effect_text(found),
        MARKS[found.verdict] or plain(found.reason),
    ]
    return f"| {' | '.join(cells)} |"


def _code(text: str) -> str:
    return f"`{' '.join(text.split()).replace('`', chr(39)).replace('|', chr(92) + '|')}`"


def plain(text: str) -> str:
    """Return text that neither Markdown nor HTML takes for anything else: a commit may be called anything."""
    return re.sub(r"([\\`*_\[\]|~#])", r"\\\1", html.escape(" ".join(text.split()), quote=False))
