"""One writer at a time: whoever measures or publishes holds a lock that names its owner."""

from __future__ import annotations

import contextlib
import json
import math
import os
import platform
import signal
import sys
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from filelock import FileLock, Timeout

from trgbench.errors import InputError, shown
from trgbench.suite.commits import Trouble

# What a writer starts inherits this variable, so that what it leaves behind when it is killed can be found.
MARK = "TRGBENCH_WRITER"
POLL_SECONDS = 0.2
GONE_SECONDS = 10.0  # a killed process is a zombie at most this long


@contextlib.contextmanager
def writer(path: Path, what: str, wait: float = 0.0) -> Iterator[None]:
    """Hold the lock at `path`, for at most one process at a time, while the body runs.

    The kernel frees it when the process ends, however it ends. What a killed predecessor had started and
    left running, a benchmark or an installation, is ended first: it would disturb whatever is measured now.

    Args:
        what: what the owner does, for the message to the next one.
        wait: seconds to wait for another owner.

    Raises:
        InputError: if `wait` is no such number.
        Trouble: if another process holds it, with its name.
    """
    if not isinstance(wait, int | float) or not 0 <= wait < math.inf:  # type: ignore[redundant-expr]
        raise InputError(f"--wait takes a number of seconds, at least 0; got {shown(wait)}")
    path = path.absolute()
    path.parent.mkdir(parents=True, exist_ok=True)
    owner = {"what": what, "pid": os.getpid(), "host": platform.node()}

    def sign(descriptor: int) -> None:
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps(owner | {"since": datetime.now().isoformat()}).encode(), 0)

    lock = FileLock(path, on_acquired=sign)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        if wait > 0:
            print(f"waiting up to {wait:g} s for {_owner(path)}", file=sys.stderr, flush=True)
        try:
            lock.acquire(timeout=wait, poll_interval=POLL_SECONDS)
        except Timeout:
            raise Trouble(
                f"{_owner(path)} is at work in this checkout; let it finish, or wait for it: --wait SECONDS "
                f"(with make: WAIT=SECONDS)"
            ) from None
    try:
        mark = f"{MARK}={path}"
        _end_orphans(mark.encode())
        os.environ[MARK] = str(path)
        yield
    finally:
        os.environ.pop(MARK, None)
        lock.release()


def _owner(path: Path) -> str:
    try:
        owner = json.loads(path.read_text())
        return f"{owner['what']} (process {owner['pid']} on {owner['host']}, since {owner['since'][:19]})"
    except (OSError, ValueError, KeyError, TypeError):  # it has the lock and has not signed yet
        return "another process"


def _end_orphans(mark: bytes) -> None:
    """Kill what was started with this variable; ours is not among them, for it was set after our start."""
    left = set()
    for environ in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):  # it has ended, or belongs to somebody else
            if mark in environ.read_bytes().split(b"\0"):
                os.kill(int(environ.parent.name), signal.SIGKILL)
                left.add(environ.parent)
    if left:
        print(f"ended {len(left)} processes that a killed run had left behind", file=sys.stderr, flush=True)
    end = time.monotonic() + GONE_SECONDS
    while time.monotonic() < end and any((process / "exe").exists() for process in left):
        time.sleep(0.01)
