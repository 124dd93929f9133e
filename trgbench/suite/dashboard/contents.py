"""What the front page says: read from asv's records and from what asv has just published."""

from __future__ import annotations

import datetime
import json
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from asv.machine import iter_machine_files
from asv.results import Results, iter_results
from asv.util import human_value, load_json

from trgbench.suite import machines
from trgbench.suite.journal import Entry, Journal, Verdict
from trgbench.suite.records import Record, of_results


@dataclass(frozen=True)
class Commit:
    hash: str
    date: str
    subject: str

    @property
    def short(self) -> str:
        return self.hash[:8]  # as asv shows it: asv.conf.json's hash_length


@dataclass(frozen=True)
class Recorded:
    """What there is of a commit in a setting: its records by benchmark, and what the journal says."""

    commit: Commit
    records: Mapping[str, Sequence[Record]]
    entry: Entry


@dataclass(frozen=True)
class Setting:
    """A machine with an environment, and what was measured there, the oldest commit first."""

    machine: Mapping[str, str]
    environment: Sequence[str]
    measured: str
    history: Sequence[Recorded]

    @property
    def commit(self) -> Commit:
        return self.history[-1].commit

    def newest(self) -> dict[str, tuple[Commit, Sequence[Record]]]:
        """Return the newest records of each benchmark, with their commit: a commit need not have them all."""
        return {name: (at.commit, found) for at in self.history for name, found in at.records.items()}

    def judged(self) -> list[tuple[Commit, Verdict]]:
        """Return what the gate said of each commit that it was asked about, the newest first."""
        return [(at.commit, at.entry.verdict) for at in reversed(self.history) if at.entry.verdict]


@dataclass(frozen=True)
class Regression:
    """A step up that asv found: `before` and `after` as text, the way to its graph on asv's page."""

    name: str
    benchmark: str
    commit: Commit
    factor: float
    before: str
    after: str
    link: str


def commits(repository: str, hashes: Iterable[str]) -> dict[str, Commit]:
    """Return what git knows of each commit; no subject where it knows nothing."""
    wanted = sorted(set(hashes))
    command = ["git", "-C", repository, "log", "--no-walk", "--ignore-missing", "--stdin"]
    done = subprocess.run(
        [*command, "--format=%H%x09%cs%x09%s"],
        input="\n".join(wanted) + "\n",
        capture_output=True,
        encoding="utf-8",
        errors="replace",
    )
    known = {hash: Commit(hash, "", "") for hash in wanted}
    for line in done.stdout.split("\n")[:-1]:  # a subject may hold what else separates lines
        hash, date, subject = line.split("\t", 2)
        known[hash] = Commit(hash, date, subject)
    return known


def settings(
    results: str, benchmarks: Any, known: Mapping[str, Commit], revisions: Mapping[str, int]
) -> list[Setting]:
    """Return every machine and environment with records of a known commit, the newest commit first.

    The name of a machine is that of a folder too: one that cannot be is left out.
    """
    described = {content["machine"]: content for content in map(load_json, iter_machine_files(results))}
    groups: dict[tuple[str, ...], list[Results]] = {}
    for result in iter_results(results):
        if result.commit_hash in revisions and machines.NAME.fullmatch(result.params["machine"]):
            groups.setdefault((result.params["machine"], *_environment(result)), []).append(result)
    found = []
    for (name, *environment), group in groups.items():
        group.sort(key=lambda result: revisions[result.commit_hash])
        last = group[-1]
        started = max((stamp for stamp in last.started_at.values() if stamp), default=last.date)
        journal = Journal(Path(results) / name)
        history = [
            Recorded(
                known[result.commit_hash],
                _by_benchmark(result, benchmarks),
                journal.of(result.commit_hash, result._env_name),  # asv has no other way to it
            )
            for result in group
        ]
        fields = described.get(name, last.params)
        machine = {field: fields.get(field) or "unknown" for field in machines.FIELDS}
        found.append(
            (revisions[last.commit_hash], started, Setting(machine, environment, _day(started), history))
        )
    return [setting for *_, setting in sorted(found, key=lambda entry: entry[:2], reverse=True)]


def regressions(
    site: Path, benchmarks: Any, known: Mapping[str, Commit], revisions: Mapping[str, int]
) -> list[Regression]:
    """Return what asv's `regressions.json` lists, the newest first."""
    hashes = {revision: hash for hash, revision in revisions.items()}
    found = []
    listed = json.loads((site / "regressions.json").read_text())["regressions"]
    for name, _, parameters, index, _, _, jumps in listed:
        benchmark = benchmarks[name.partition("(")[0]]
        for first, last, before, after in jumps:
            between = "-".join(hashes[revision][:8] for revision in (first, last) if revision is not None)
            unit = benchmark.get("unit", "")
            link = graph_link(benchmark, _combination(benchmark, index), {**parameters, "commits": between})
            factor = after / before if before else float("inf")
            step = Regression(
                name,
                benchmark["name"],
                known[hashes[last]],
                factor,
                as_text(before, unit),
                as_text(after, unit),
                link,
            )
            found.append((last, step))
    found.sort(key=lambda entry: (-entry[0], entry[1].benchmark, -entry[1].factor))
    return [regression for _, regression in found]


def as_text(value: float, unit: str) -> str:
    """Return a value with its unit; asv's own text has all digits of what is neither time nor memory.

    >>> as_text(0.00123456, "seconds"), as_text(1.23456, "ratio")
    ('1.23ms', '1.23 ratio')
    """
    return human_value(value, unit) if unit in ("seconds", "bytes") else f"{value:.3g} {unit}"


def graph_link(
    benchmark: Mapping[str, Any], chosen: Mapping[str, str], more: Mapping[str, str] | None = None
) -> str:
    """Return the address on asv's page of a benchmark's graph, for some values of its parameters.

    >>> graph_link({"name": "a.time", "param_names": ["n"], "params": [["'x'", "'y'"]]}, {"n": "y"})
    'index.html#a.time?p-n=%27y%27'
    """
    query = dict(more or {})
    for name, values in zip(benchmark["param_names"], benchmark["params"], strict=True):
        if name in chosen:
            query[f"p-{name}"] = next(value for value in values if value.strip("'") == chosen[name])
    return f"index.html#{quote(benchmark['name'])}" + (
        f"?{urlencode(query, quote_via=quote)}" if query else ""
    )


def _combination(benchmark: Mapping[str, Any], index: int | None) -> dict[str, str]:
    """Return the values of the parameters at asv's flat index."""
    chosen = {}
    for name, values in reversed(list(zip(benchmark["param_names"], benchmark["params"], strict=True))):
        if index is not None:
            index, place = divmod(index, len(values))
            chosen[name] = values[place].strip("'")
    return chosen


def _environment(result: Results) -> tuple[str, ...]:
    """Return what is not the machine's: packages with their versions, and what was set."""
    packages = {key: value for key, value in result.params.items() if value and key not in machines.FIELDS}
    return (
        *(f"{key} {value}" for key, value in packages.items()),
        *(f"{key}={value}" for key, value in result.env_vars.items()),
    )


def _by_benchmark(result: Results, benchmarks: Any) -> dict[str, list[Record]]:
    found: dict[str, list[Record]] = {}
    for record in of_results(result, benchmarks):
        found.setdefault(record.benchmark, []).append(record)
    return found


def _day(stamp: float) -> str:
    return datetime.datetime.fromtimestamp(stamp / 1000, datetime.UTC).date().isoformat()
