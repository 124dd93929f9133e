"""What this machine is called in the records: one name, whatever its host name or its CPU are today."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import re
from pathlib import Path
from typing import Any

from asv.machine import Machine, MachineCollection

from trgbench.console import replacing
from trgbench.errors import InputError, shown

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,99}")
FIELDS = tuple(name for name, _ in Machine.fields)


def name(wanted: str | None = None) -> str:
    """Return the name of this machine, and keep it where asv keeps it (`~/.asv-machine.json`).

    It is the one that is kept, else `wanted`, else one that says what the machine is.

    Raises:
        InputError: if `wanted` cannot be a name, or this machine has another one.
    """
    if wanted is not None and not NAME.fullmatch(wanted):
        raise InputError(
            f"a machine cannot be called {shown(wanted)}; use letters, digits, and . _ + - between them"
        )
    kept, path = _kept(), MachineCollection.get_machine_file_path()
    if wanted in kept:
        return wanted
    if kept and wanted is not None:
        raise InputError(
            f"this machine is called {' or '.join(kept)} and cannot be {wanted} too: its graphs would fall "
            f"apart; leave out --machine, or rename it in {path} and its folder among the records"
        )
    found = wanted or _derived_name()
    if found in kept or not kept:
        chosen = found
    elif len(kept) == 1:
        [chosen] = kept
    else:
        raise InputError(
            f"{path} knows several machines; say which is this one: --machine {' or '.join(kept)}"
        )
    if chosen not in kept:
        with contextlib.suppress(OSError):  # a home that cannot be written to: the name is found again
            keep(chosen, probe(chosen))
    return chosen


def describe(results: Path, name: str) -> dict[str, Any]:
    """Return asv's description of the machine `name`.

    asv draws a line of its own for every CPU, system and memory. So the first description stays: the one
    among the records, which `trgbench.suite.store` has looked through.
    """
    with contextlib.suppress(OSError):
        known = json.loads((results / name / "machine.json").read_text())
        return {field: known[field] for field in FIELDS}
    return _kept().get(name) or probe(name)


def save(results: str, description: dict[str, Any]) -> None:
    """Write the description among the records in `results`."""
    machine = Machine()
    vars(machine).update(description)
    machine.save(results)


def probe(name: str) -> dict[str, Any]:
    """Return what this machine is, without what changes at every boot."""
    gibibytes = round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30)
    return {**Machine.get_defaults(), "machine": name, "os": platform.system(), "ram": f"{gibibytes} GiB"}


def keep(name: str, description: dict[str, Any]) -> None:
    path = Path(MachineCollection.get_machine_file_path())
    with replacing(path) as temporary:
        known = {**_kept(), name: description}
        temporary.write_text(json.dumps({**known, "version": MachineCollection.api_version}))


def _kept() -> dict[str, dict[str, Any]]:
    try:
        known = json.loads(Path(MachineCollection.get_machine_file_path()).read_text())
    except (OSError, ValueError):
        return {}
    if not isinstance(known, dict):
        return {}
    return {
        name: {**description, "machine": name}
        for name, description in known.items()
        if NAME.fullmatch(name) and isinstance(description, dict) and set(FIELDS) <= description.keys()
    }


def _derived_name() -> str:
    """Return a name that says what the machine is: a container's host name changes, and graphs with it."""
    known = Machine.get_defaults()
    cpu = re.sub(r"\((r|tm)\)|\bcpu\b|@.*|\d+-core|processor", " ", known["cpu"].lower())
    words = re.findall(r"[a-z0-9.]+", cpu) or [known["arch"]]
    return "-".join([*words, f"{known['num_cpu']}cpu"])
