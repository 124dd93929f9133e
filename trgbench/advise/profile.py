"""Keeps measured costs between runs: for one machine and one set of versions, written whole or not at all."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trgbench.advise.costs import Combination, Costs, Setting
from trgbench.errors import InputError, shown
from trgbench.study.results import check_writable, machine, versions, write

FORMAT = 1
PACKAGE = Path(__file__).parent.parent

# The sources that are measured, or measure.
MEASURED = ("engine", "backends", "staged.py", "trg.py", "cut_svd.py", "problems.py", "measure.py")

Measured = dict[Combination, Costs]


def conditions() -> dict[str, Any]:
    """Return what the costs depend on. The sources count too: between two versions the engine changes."""
    digest = hashlib.blake2b(digest_size=8)
    for path in sorted(PACKAGE.rglob("*.py")):
        if path.relative_to(PACKAGE).parts[0] in MEASURED or path.name == "probe.py":
            digest.update(path.read_bytes())
    here = machine()
    return {**{name: here[name] for name in ("cpu", "cpus")}, **versions(), "sources": digest.hexdigest()}


def difference(theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> str | None:
    """Return how two conditions differ, or None.

    >>> difference({"numpy": "2.3.0"}, {"numpy": "2.4.6"})
    'measured with numpy 2.3.0, and here it is 2.4.6'
    """
    for name in sorted(theirs.keys() | ours.keys()):
        if theirs.get(name) != ours.get(name):
            return (
                f"measured with {name} {theirs.get(name, 'missing')}, "
                f"and here it is {ours.get(name, 'missing')}"
            )
    return None


@dataclass
class Profile:
    """The costs of every setting that was asked about, and the conditions they were measured under."""

    conditions: Mapping[str, Any]
    settings: dict[str, Measured] = field(default_factory=dict)

    def of(self, setting: Setting) -> Measured:
        return self.settings.setdefault(str(setting), {})

    def text(self) -> str:
        settings = {
            setting: [
                {"backend": key.backend, "mode": key.mode, "svd": key.svd, "costs": costs.to_json()}
                for key, costs in measured.items()
            ]
            for setting, measured in self.settings.items()
        }
        return json.dumps(
            {"format": FORMAT, "conditions": dict(self.conditions), "settings": settings}, indent=1
        )

    @classmethod
    def parse(cls, text: str) -> Profile:
        """Return what `text` made.

        Raises:
            ValueError: if it is something else.
        """
        content = json.loads(text)
        if not isinstance(content, dict) or content.get("format") != FORMAT:
            raise ValueError(f"no profile of format {FORMAT}: {shown(content)}")
        try:
            settings = {
                setting: {
                    Combination(entry["backend"], entry["mode"], entry["svd"]): Costs.from_json(
                        entry["costs"]
                    )
                    for entry in entries
                }
                for setting, entries in content["settings"].items()
            }
            return cls(dict(content["conditions"]), settings)
        except (AttributeError, KeyError, TypeError) as error:
            raise ValueError(f"a profile with other fields: {error}") from error


def default_path() -> Path:
    """Return where profiles are kept if no file is given: in the user's cache."""
    root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "trgbench"
    try:
        root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"cannot make {root} to keep the measured costs in: {error.strerror}; give a file with --profile"
        ) from error
    return root / "advice.json"


def load(path: Path, ours: Mapping[str, Any], *, strict: bool) -> tuple[Profile, str | None]:
    """Return the profile in `path`, or an empty one and why what is there cannot be used (None: nothing is).

    Raises:
        InputError: if it cannot be read; with `strict` also where it cannot be used: a file that the user
            named is not to be replaced in silence.
    """
    try:
        text = path.read_text(errors="replace")
    except FileNotFoundError:
        return Profile(ours), None
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}; give another file with --profile") from error
    try:
        profile = Profile.parse(text)
        reason = difference(profile.conditions, ours)
    except (ValueError, RecursionError) as error:
        reason = f"not readable: {' '.join(str(error).split())[:120]}"
    if reason is None:
        return profile, None
    if strict:
        raise InputError(
            f"the costs in {path} cannot be used: {reason}; give another file with --profile, or remove it"
        )
    return Profile(ours), reason


@contextlib.contextmanager
def only_one(path: Path, waiting: Callable[[], None]) -> Iterator[None]:
    """Hold the lock of a profile: two that measure at once would measure one another.

    The kernel takes the lock back when a process ends, however it ends.
    """
    check_writable(path)  # before measuring, not after
    with open(path.with_name(f".{path.name}.lock"), "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            waiting()
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def save(path: Path, profile: Profile) -> None:
    """Write a profile, whole or not at all."""
    write(path, profile.text())
