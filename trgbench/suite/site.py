"""Publishing: into a folder beside, looked through, and put in the place of the old dashboard in one step."""

from __future__ import annotations

import ctypes
import errno
import json
import math
import os
import shutil
from pathlib import Path
from typing import Any

from asv.commands.publish import Publish
from asv.config import Config
from asv.console import log
from asv.util import UserError

from trgbench.suite.commits import Trouble

AT_FDCWD, RENAME_EXCHANGE = -100, 2  # linux/fcntl.h, linux/fs.h


class EmptySite(Trouble):
    """asv published without an error and there is nothing to see (asv does so on a shallow clone)."""


def publish(conf: Config, html: Path) -> int:
    """Publish asv's records to `html` and return how many numbers it shows.

    Whenever it is killed, `html` is the whole old site or the whole new one; so it is after a failure.

    Raises:
        EmptySite: if the new site shows no number.
        Trouble: if asv, or the plugin that makes the dashboard, cannot publish.
    """
    html = Path(os.path.realpath(html))  # where html is a link, what it points to
    aside = html.with_name(f".{html.name}.new")
    aside.parent.mkdir(parents=True, exist_ok=True)
    remove(aside)
    conf.html_dir = str(aside)
    try:
        try:
            Publish.run(conf, pull=False)
        except UserError as error:
            raise Trouble(str(error)) from error
        finally:
            log.flush()  # which ends asv's last line
        numbers = count_numbers(aside)
        if not numbers:
            raise EmptySite(
                f"asv published a dashboard without a single number; {html.name}/ is left as it was. "
                f"On a shallow clone, fetch the history: git fetch --unshallow"
            )
        put_in_place(aside, html)
    finally:
        remove(aside)
    return numbers


def remove(path: Path) -> None:
    """Remove a folder, as far as it can be, or the file or link that lies there instead."""
    if path.is_symlink() or path.is_file():
        path.unlink()
    shutil.rmtree(path, ignore_errors=True)


def put_in_place(new: Path, html: Path) -> None:
    """Make `new` what is found at `html`; what was there is then at `new`, if anything was.

    The two exchange their names in one call of the kernel, so that at no moment there is none.
    """
    if not os.path.lexists(html):
        new.rename(html)
        return
    if exchange(new, html):
        return
    # This file system cannot (NFS, for one): between two renames there is no site.
    old = html.with_name(f".{html.name}.old")
    shutil.rmtree(old, ignore_errors=True)
    html.rename(old)
    new.rename(html)
    shutil.rmtree(old)


def exchange(one: Path, other: Path) -> bool:
    """Exchange the names of two files or folders; return False on a file system that cannot do it.

    Raises:
        OSError: if one of them is missing, or may not be renamed.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if not libc.renameat2(AT_FDCWD, os.fsencode(one), AT_FDCWD, os.fsencode(other), RENAME_EXCHANGE):
        return True
    code = ctypes.get_errno()
    if code in (errno.EINVAL, errno.ENOSYS):
        return False
    raise OSError(code, os.strerror(code), str(one), None, str(other))


def count_numbers(site: Path) -> int:
    """Return how many finite numbers the graphs of a published site show.

    Raises:
        ValueError: if a graph holds NaN or an infinity, which no browser can read.
    """
    benchmarks = json.loads((site / "index.json").read_text())["benchmarks"]
    total = 0
    for graph in (site / "graphs").rglob("*.json"):
        if graph.stem in benchmarks and graph.parent.name != "summary":
            total += sum(_finite(value) for _, value in json.loads(graph.read_text(), parse_constant=_refuse))
    return total


def _finite(value: Any) -> int:
    if isinstance(value, list):
        return sum(map(_finite, value))
    return value is not None and math.isfinite(value)


def _refuse(constant: str) -> float:
    raise ValueError(f"a published graph holds {constant}, which is not JSON")
