"""asv's records, kept whole: put in place in one step, and looked through before anything reads them.

asv writes a file in place, so that a killed run leaves half of one, and reads whatever lies among the
records. Here everything asv saves goes into a folder aside and is moved, and what is no record of this
project is set aside, with the reason.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from asv.machine import Machine
from asv.results import Results, get_filename
from jsonschema import Draft202012Validator as Validator

from trgbench.suite import machines, names

LARGEST = 64 * 2**20  # bytes of a file; one commit of the full profile has about 1 MB
UNFINISHED = ".unfinished-"
LIST = "benchmarks.json"  # asv's list of benchmarks, made anew from benchmarks/ whenever it is needed
NUMBER = {"type": ["number", "null"]}
STATISTICS = ("stats_ci_99_a", "stats_ci_99_b", "stats_q_25", "stats_q_75", "stats_number", "stats_repeat")
COLUMNS = ["result", "params", "version", "started_at", "duration", *STATISTICS, "samples", "profile"]
TEXTS = {"type": "object", "additionalProperties": {"type": ["string", "null"]}}
RECORD_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "version": {"const": Results.api_version},
        "commit_hash": {"type": "string", "pattern": "^[0-9a-f]{40}([0-9a-f]{24})?$"},
        "env_name": {"type": "string", "pattern": r"^[\w.+-]+$"},
        "date": {"type": "integer", "minimum": 0, "maximum": 8.64e15},  # the last date of JavaScript
        "python": {"type": "string"},
        "params": TEXTS,
        "requirements": TEXTS,
        "env_vars": TEXTS,
        "result_columns": {"const": COLUMNS},
        "durations": {"type": "object", "additionalProperties": NUMBER},
        "results": {"type": "object", "additionalProperties": {"type": "array", "maxItems": len(COLUMNS)}},
    },
}
RECORD_SCHEMA["required"] = list(RECORD_SCHEMA["properties"])
RECORD = Validator(RECORD_SCHEMA)
MACHINE = Validator(
    {
        "type": "object",
        "properties": {field: {"type": "string"} for field in machines.FIELDS}
        | {"version": {"const": Machine.api_version}},
        "required": [*machines.FIELDS, "version"],
        "additionalProperties": False,
    }
)


class Unusable(ValueError):
    """A file among the records is none of ours; the message says why."""


@dataclass(frozen=True)
class Stored:
    """A results file: what asv recorded of one commit in one environment on one machine."""

    path: Path
    machine: str
    environment: str
    commit: str


def find(results: Path, machine: str, environment: str, commit: str) -> Stored:
    """Return where a commit is, or would be, recorded."""
    return Stored(results / get_filename(machine, commit, environment), machine, environment, commit)


def keep(results: Path, save: Callable[[str], object]) -> None:
    """Have `save` write into a folder, and move every whole file to the same place in `results`."""
    results.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=results, prefix=UNFINISHED) as folder:
        save(folder)
        for path in [path for path in Path(folder).rglob("*") if path.is_file()]:
            with path.open("rb") as file:
                os.fsync(file.fileno())
            target = results / path.relative_to(folder)
            target.parent.mkdir(exist_ok=True)
            path.chmod(0o644)
            path.replace(target)


def look_through(results: Path, commits: Collection[str], aside: Path) -> tuple[list[Stored], list[str]]:
    """Return the results files of this project, and a message for each other file, which is moved to `aside`.

    Nothing is removed but what a killed run left unfinished. A description of a machine that is lost or set
    aside is made again from the records of that machine; without it asv would pass over them.

    Args:
        commits: the full hashes of all commits of this repository.
    """
    for folder in results.glob(f"{UNFINISHED}*"):
        shutil.rmtree(folder)
    found, messages = [], []
    for path in sorted(_files(results)):
        try:
            stored = _check(path, path.relative_to(results), commits)
            found += [stored] if stored else []
        except Unusable as reason:
            target = _free(aside / path.relative_to(results))
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.move(path, target)
            messages.append(f"{_plain(path)} was set aside, to {_plain(target.parent)}: {reason}")
    for machine in sorted({stored.machine for stored in found}):
        if not (results / machine / "machine.json").exists():
            newest = max((stored for stored in found if stored.machine == machine), key=_date)
            params = json.loads(newest.path.read_text())["params"]
            description = {field: str(params.get(field)) for field in machines.FIELDS}
            keep(results, lambda folder, known=description: machines.save(folder, known))  # type: ignore[misc]
    return found, messages


def count_numbers(stored: Stored) -> int:
    """Return how many combinations of parameters have a number."""
    rows = json.loads(stored.path.read_text())["results"].values()
    return sum(value is not None and not math.isnan(value) for row in rows for value in row[0] or ())


def _files(results: Path) -> Iterator[Path]:
    """Yield all that asv would read: files by that name at any depth, but none behind a link."""
    for folder, _, names_ in os.walk(results):
        yield from (Path(folder) / name for name in names_ if name.endswith(".json"))


def _check(path: Path, place: Path, commits: Collection[str]) -> Stored | None:
    """Return a results file, None for another of asv's files; `place` is the path below the results.

    Raises:
        Unusable: if it is neither.
    """
    if place == Path(LIST):
        return None
    if len(place.parts) != 2:
        raise Unusable("asv keeps no records there")
    machine, name = place.parts
    if not machines.NAME.fullmatch(machine):
        raise Unusable("no machine can be called like its folder")
    content = _read(path)
    if name == "machine.json":
        _match(content, MACHINE, "a description of a machine")
        _no_markup(names.unclean(content))
        if content["machine"] != machine:
            raise Unusable("it describes another machine")
        return None
    _match(content, RECORD, "a results file of asv 0.6")
    _no_markup(names.unclean_results(content))
    commit, environment = content["commit_hash"], content["env_name"]
    if content["params"].get("machine") != machine:
        raise Unusable("it is of another machine")
    if place != Path(get_filename(machine, commit, environment)):
        raise Unusable("its name does not fit its commit and its environment")
    if commit not in commits:
        raise Unusable(f"this repository has no commit {commit[:8]}")
    for benchmark, row in content["results"].items():
        if not _is_row(row):
            raise Unusable(f"what it has of {benchmark} are no results")
    return Stored(path, machine, environment, commit)


def _read(path: Path) -> Any:
    if path.is_symlink() or not path.is_file():
        raise Unusable("it is no ordinary file")
    if path.stat().st_size > LARGEST:
        raise Unusable("it is too large for a file of asv's")
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError, OSError) as error:
        raise Unusable(f"it is no JSON ({type(error).__name__})") from None


def _match(content: object, validator: Validator, what: str) -> None:
    if error := next(validator.iter_errors(content), None):
        where = "".join(f"[{ascii(part)[:40]}]" for part in error.absolute_path)
        raise Unusable(f"it is not {what} ({where or error.validator})")


def _no_markup(wrong: str | None) -> None:
    if wrong:
        raise Unusable(wrong)


def _is_row(row: list[Any]) -> bool:
    """Return whether asv can read this: a value for each combination of parameters, and what goes with it."""
    known = dict(zip(COLUMNS, row, strict=False))
    result, samples = known.get("result"), known.get("samples")
    parameters = known.get("params")
    if not isinstance(parameters, list) or not all(_are(values, str) for values in parameters):
        return False
    count = math.prod(map(len, parameters))
    if not isinstance(known.get("version"), str | None):
        return False
    if result is not None and not (_are_numbers(result) and len(result) == count):
        return False
    if samples is not None and not (
        isinstance(samples, list)
        and len(samples) == count
        and all(sample is None or _are_numbers(sample) for sample in samples)
    ):
        return False
    # The interval of a few samples is infinite.
    columns = [known.get(name) for name in STATISTICS]
    return all(c is None or (_are(c, int | float | None) and len(c) == count) for c in columns) and all(
        type(known.get(name)) in (int, float, type(None)) for name in ("started_at", "duration")
    )


def _are(values: object, kind: Any) -> bool:
    return isinstance(values, list) and all(isinstance(value, kind) for value in values)


def _are_numbers(values: object) -> bool:
    """Return whether these are numbers, None (failed) or NaN (skipped); no browser can read an infinity."""
    return isinstance(values, list) and all(
        value is None or (type(value) in (int, float) and not math.isinf(value)) for value in values
    )


def _date(stored: Stored) -> int:
    date: int = json.loads(stored.path.read_text())["date"]
    return date


def _free(path: Path) -> Path:
    """Return `path`, or one like it that nothing lies at."""
    candidates: Iterable[Path] = (path.with_name(f"{path.name}.{i}") for i in range(1, 10**6))
    return path if not os.path.lexists(path) else next(p for p in candidates if not os.path.lexists(p))


def _plain(path: Path) -> str:
    """Return the path as text that can be printed anywhere; a name can hold what moves the cursor."""
    return ascii(str(path))[1:-1]
