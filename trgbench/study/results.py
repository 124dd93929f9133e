"""The file of results: made, checked against the schema, read again, and written whole or not at all."""

from __future__ import annotations

import contextlib
import datetime
import importlib.metadata
import json
import os
import platform
import tempfile
from collections.abc import Iterable, Mapping
from importlib import resources
from pathlib import Path
from typing import Any

import trgbench
from trgbench import study
from trgbench.console import strict_json
from trgbench.errors import InputError
from trgbench.study.lab import MISSING

RESERVE = 2**20  # bytes; a whole study takes a tenth of it


def machine() -> dict[str, Any]:
    """Return what a time depends on: processor, CPUs that may be used, memory, system."""
    model = platform.processor() or "unknown"
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                model = line.partition(":")[2].strip()
                break
    return {
        "cpu": model,
        "architecture": platform.machine(),
        "cpus": len(os.sched_getaffinity(0)),
        "memory": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "system": platform.system(),
    }


def versions() -> dict[str, str]:
    """Return the versions of what is installed, without importing any of it."""
    found = {"python": platform.python_version(), "trgbench": trgbench.__version__}
    for name in ("numpy", "scipy", "numba", "jax", "jaxlib", "torch"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


def now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def experiment(name: str, data: Mapping[str, Any], seconds: float) -> dict[str, Any]:
    """Return the entry of a measured experiment; its tables are made of the data as JSON has it."""
    plain = json.loads(strict_json(data))
    module = study.get(name)
    return {
        "id": name,
        "number": study.EXPERIMENTS.index(name) + 1,
        "title": module.TITLE,
        "date": now(),
        "seconds": round(seconds, 3),
        "data": plain,
        "tables": module.tables(plain),
    }


def judge(experiments: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the ledger: every claim of every experiment, measured or not."""
    data = {entry["id"]: entry["data"] for entry in experiments}
    unmeasured = "not measured yet; run: trgbench study {}"
    return [
        claim.judged(name, data.get(name, {MISSING: unmeasured.format(name)}))
        for name in study.EXPERIMENTS
        for claim in study.get(name).CLAIMS
    ]


def assemble(
    experiments: Mapping[str, Mapping[str, Any]], quick: bool, missing: Mapping[str, str]
) -> dict[str, Any]:
    """Return results as the schema has them."""
    ordered = [experiments[name] for name in study.EXPERIMENTS if name in experiments]
    results = {
        "format": 1,
        "quick": quick,
        "date": now(),
        "machine": machine(),
        "versions": versions(),
        "missing": dict(missing),
        "experiments": ordered,
        "claims": judge(ordered),
    }
    return json.loads(strict_json(results))


def schema() -> dict[str, Any]:
    return json.loads(resources.files(study).joinpath("schema.json").read_text())


def validate(results: object) -> None:
    """Return if `results` are as the schema has them.

    Raises:
        jsonschema.ValidationError: if not.
    """
    import jsonschema

    jsonschema.Draft202012Validator(schema()).validate(results)


def load(path: Path) -> dict[str, Any]:
    """Return the results in the file `path`.

    Raises:
        InputError: if it cannot be read or holds no results of this version's format.
    """
    import jsonschema

    try:
        results = json.loads(path.read_text())
        validate(results)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}; give another file with --json") from error
    except (ValueError, jsonschema.ValidationError) as error:
        reason = getattr(error, "message", str(error))
        raise InputError(
            f"{path} holds no results of a study ({' '.join(str(reason).split())[:120]}); "
            f"give another file with --json, or remove it"
        ) from error
    return results


def difference(results: Mapping[str, Any], quick: bool) -> str | None:
    """Return why `results` cannot be joined with what is measured here and now, or `None` if they can."""
    here: dict[str, Any] = {"machine": machine(), "versions": versions()}
    for what, current in here.items():
        for name in sorted(results[what].keys() | current.keys()):
            theirs, ours = results[what].get(name, "none"), current.get(name, "none")
            if theirs != ours:
                return f"it was measured with {name} {theirs}, and here it is {ours}"
    if results["quick"] != quick:
        return f"it was measured {'with' if results['quick'] else 'without'} --quick"
    return None


def check_writable(path: Path) -> None:
    """Return if results can be written to `path`: the folder is there and has room.

    Raises:
        InputError: if not.
    """
    path = Path(os.path.realpath(path))
    if path.is_dir():
        raise InputError(f"{path} is a folder; give the name of a file in it")
    if path.exists() and not path.is_file():  # it would be replaced, which is no good of a device
        raise InputError(f"{path} is no ordinary file; give another name")
    try:
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.") as probe:
            os.posix_fallocate(probe.fileno(), 0, RESERVE)
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}; give another file, or make room") from error


def write(path: Path, text: str) -> None:
    """Write `text` to `path`, whole or not at all; what a link there points to is written, not the link."""
    path = Path(os.path.realpath(path))
    with tempfile.NamedTemporaryFile("w", dir=path.parent, prefix=f".{path.name}.", delete=False) as aside:
        try:
            aside.write(text)
            aside.flush()
            os.fsync(aside.fileno())
            # A temporary file is private; results are as readable as any other new file.
            mask = os.umask(0)
            os.umask(mask)
            os.fchmod(aside.fileno(), 0o666 & ~mask)
            os.replace(aside.name, path)
        except BaseException:
            os.unlink(aside.name)
            raise


def default_path(quick: bool) -> Path:
    """Return where results are kept if no file is given: in the user's cache."""
    root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "trgbench"
    try:
        root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot make {root}: {error.strerror}; give a file with --json") from error
    return root / ("study-quick.json" if quick else "study.json")
