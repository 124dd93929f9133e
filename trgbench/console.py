"""What every subcommand writes with: a line of progress, times, errors and JSON as text, a whole file."""

from __future__ import annotations

import contextlib
import json
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

WORDS: dict[int, str] = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated"}


class Progress:
    """Says on a terminal what is being done, once the whole has taken `DELAY` seconds; elsewhere silent.

    The line changes only when it is told to: a spinner would take time from what is being timed.
    """

    DELAY = 2.0

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._timer = threading.Timer(self.DELAY, self._show)
        self._timer.daemon = True
        self._console: Any = None
        self._doing, self._shown = "", False

    def __enter__(self) -> Self:
        if sys.stderr is not None and sys.stderr.isatty():
            from rich.console import Console

            self._console = Console(file=sys.stderr)
            if not self._console.is_dumb_terminal:  # which could not erase the line
                self._timer.start()
        return self

    def __call__(self, doing: str) -> None:
        """Replace the line."""
        with self._lock:
            self._doing = doing
            if self._shown:
                self._draw()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            self._timer.cancel()
            if self._shown:
                self._shown = False
                self._erase()

    def _show(self) -> None:
        with self._lock:
            self._shown = not self._timer.finished.is_set()
            if self._shown:
                self._draw()

    def _draw(self) -> None:
        from rich.text import Text

        self._erase()
        self._console.print(Text(f"trgbench: {self._doing} ..."), end="", no_wrap=True, overflow="ellipsis")

    def _erase(self) -> None:
        from rich.control import Control
        from rich.segment import ControlType

        self._console.control(Control(ControlType.CARRIAGE_RETURN, (ControlType.ERASE_IN_LINE, 2)))


class Lines:
    """Progress where there is no terminal: a line on standard error, at most one in `seconds`."""

    def __init__(self, seconds: float) -> None:
        self._seconds, self._told = seconds, time.monotonic()

    def __call__(self, doing: str) -> None:
        if time.monotonic() - self._told >= self._seconds:
            print(f"trgbench: {doing}", file=sys.stderr, flush=True)
            self._told = time.monotonic()


class Terminated(KeyboardInterrupt):
    """SIGTERM: a command ends on it as on Ctrl-C, with what is under way kept and cleaned up."""


def signal_of(stop: KeyboardInterrupt) -> int:
    """Return the signal that stopped a command; its exit code is 128 and this, as shells have it."""
    return signal.SIGTERM if isinstance(stop, Terminated) else signal.SIGINT


@contextlib.contextmanager
def prompt_interrupts(patience: float = 1.0) -> Iterator[None]:
    """End the process so many seconds after Ctrl-C or SIGTERM if it has not ended by itself.

    The exit code is then 128 and the signal's number. Python raises KeyboardInterrupt only when it regains
    control, and an SVD or a compiled program can keep that for minutes. The signal's C handler writes to a
    pipe at once; a thread reads it.
    """

    def terminate(number: int, frame: object) -> None:
        raise Terminated

    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    handler = signal.signal(signal.SIGTERM, terminate)
    before = signal.set_wakeup_fd(writer)

    def watch() -> None:
        while number := os.read(reader, 1):
            if number[0] in WORDS and not done.wait(patience):
                print(f"trgbench: {WORDS[number[0]]}", file=sys.stderr, flush=True)
                os._exit(128 + number[0])
        os.close(reader)

    done = threading.Event()
    threading.Thread(target=watch, daemon=True).start()
    try:
        yield
    finally:
        done.set()
        signal.set_wakeup_fd(before)
        signal.signal(signal.SIGTERM, handler)
        os.close(writer)


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give a path beside `path` to write to, and put the file in the place of `path` when it is whole."""
    temporary = path.with_name(f".{path.name}.part")
    try:
        yield temporary
        descriptor = os.open(temporary, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def duration(seconds: float) -> str:
    """Return a time as text.

    >>> duration(0.00123), duration(12.34)
    ('1.23 ms', '12.3 s')
    """
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 1e-6:.3g} us"


def strict_json(content: object) -> str:
    """Return JSON in which a float that is not finite is null: `NaN` is no JSON.

    >>> strict_json({"u": float("nan"), "times": {"trace": None}})
    '{"u": null, "times": {"trace": null}}'
    """

    def clean(node: object) -> object:
        if isinstance(node, float) and not math.isfinite(node):
            return None
        if isinstance(node, Mapping):
            return {key: clean(value) for key, value in node.items()}
        if isinstance(node, (list, tuple)):
            return [clean(value) for value in node]
        return node

    return json.dumps(clean(content), allow_nan=False)


def one_line(error: BaseException) -> str:
    """Return an error's type and message as one line."""
    return " ".join(f"{type(error).__name__}: {error}".split())
