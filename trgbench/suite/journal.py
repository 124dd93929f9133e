"""What asv's records have no place for: why a benchmark failed, and what the gate said of a commit.

One file a machine, `results/MACHINE/journal.jsonl`, a line for each commit and environment. It is replaced
as a whole, so that it can be read whenever a run is killed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator as Validator

from trgbench.console import replacing, strict_json

NAME = "journal.jsonl"
TEXT = {"type": "string", "pattern": r"^[^\x00-\x1f\x7f]*$"}  # it is printed on a terminal
FAILURE = {
    "type": "object",
    "properties": {"benchmark": TEXT, "parameters": TEXT, "reason": TEXT},
    "required": ["benchmark", "parameters", "reason"],
    "additionalProperties": False,
}
VERDICT = {
    "type": "object",
    "properties": {
        "state": {"enum": ["pending", "good", "slower", "undecided", "accepted"]},
        "base": TEXT,
        "says": {"type": "array", "items": TEXT},
    },
    "required": ["state", "base", "says"],
    "additionalProperties": False,
}
LINE = Validator(
    {
        "type": "object",
        "properties": {
            "commit": {"type": "string", "pattern": "^[0-9a-f]{40}([0-9a-f]{24})?$"},
            "environment": TEXT,
            "failures": {"type": "array", "items": FAILURE},
            "verdict": {"anyOf": [VERDICT, {"type": "null"}]},
        },
        "required": ["commit", "environment", "failures", "verdict"],
        "additionalProperties": False,
    }
)


@dataclass(frozen=True)
class Failure:
    """Something that was to be measured and was not; a build has no parameters and is called `BUILD`."""

    benchmark: str
    parameters: str
    reason: str

    def __str__(self) -> str:
        return f"{self.benchmark}({self.parameters})" if self.parameters else self.benchmark


BUILD = "build"


@dataclass(frozen=True)
class Verdict:
    """What the gate said of a commit, against `base`; `says` has a line for each benchmark that matters.

    `state` is `pending` until the gate has been run, and `accepted` when a person called a slower one good.
    """

    state: str
    base: str = ""
    says: tuple[str, ...] = ()


@dataclass
class Entry:
    """A commit in one environment. Without a verdict it was measured and nobody wanted one."""

    commit: str
    environment: str
    failures: list[Failure] = field(default_factory=list)
    verdict: Verdict | None = None


class Journal:
    """The entries of one machine. Every change is on the disk when the call returns."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / NAME
        self._entries: dict[tuple[str, str], Entry] = {}
        self.damaged = 0
        try:
            lines = self._path.read_text(errors="replace").splitlines()
        except FileNotFoundError:
            lines = []
        for line in lines:
            try:
                content = json.loads(line)
            except (ValueError, RecursionError):
                content = None
            if not LINE.is_valid(content):
                self.damaged += 1
                continue
            entry = _entry(content)
            self._entries[entry.commit, entry.environment] = entry
        if self.damaged:
            os.replace(self._path, self._path.with_suffix(".damaged"))
            self._write()

    def of(self, commit: str, environment: str) -> Entry:
        """Return the entry of a commit, an empty one if there is none."""
        return self._entries.get((commit, environment)) or Entry(commit, environment)

    def failed(self, commit: str, environment: str, benchmark: str, failures: Collection[Failure]) -> None:
        """Put these in the place of what was known of the failures of one benchmark (or of the build)."""
        entry = self.of(commit, environment)
        others = [failure for failure in entry.failures if failure.benchmark != benchmark]
        if [*others, *failures] != entry.failures:
            entry.failures = [*others, *failures]
            self._save(entry)

    def judged(self, commit: str, environment: str, verdict: Verdict) -> None:
        entry = self.of(commit, environment)
        entry.verdict = verdict
        self._save(entry)

    def _save(self, entry: Entry) -> None:
        self._entries[entry.commit, entry.environment] = entry
        self._write()

    def _write(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(self._path) as temporary:
            temporary.write_text("".join(f"{strict_json(asdict(e))}\n" for e in self._entries.values()))


def grouped(failures: Sequence[Failure]) -> list[str]:
    """Return a line for each reason, for a commit can lack what every benchmark wants."""
    reasons: dict[str, list[str]] = {}
    for failure in failures:
        reasons.setdefault(failure.reason, []).append(str(failure))
    return [
        f"{reason if names == [BUILD] else f'{names[0]}: {reason}'}"
        + (f" (and so {len(names) - 1} more)" if len(names) > 1 else "")
        for reason, names in reasons.items()
    ]


def _entry(content: dict[str, Any]) -> Entry:
    failures = [Failure(**failure) for failure in content["failures"]]
    verdict = content["verdict"]
    if verdict is not None:
        verdict = Verdict(verdict["state"], verdict["base"], tuple(verdict["says"]))
    return Entry(content["commit"], content["environment"], failures, verdict)
