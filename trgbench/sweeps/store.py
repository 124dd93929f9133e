"""Where a sweep keeps what is done: a journal that only grows, and the output file, replaced as a whole.

Every finished batch is appended to the journal, `.NAME.journal` beside the output, and is on the disk before
the next one is looked at. The output is written from it now and then and at the end, after which the journal
is deleted. A sweep goes on from the journal if there is one, else from the output.
"""

from __future__ import annotations

import array
import fcntl
import json
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Self

from trgbench.errors import InputError
from trgbench.point import TIE
from trgbench.sweeps import rows
from trgbench.sweeps.grid import Settings
from trgbench.sweeps.rows import Row
from trgbench.sweeps.work import Outcome

MISSING = -1
SHARE = 0.01  # of the time may go into writing the output again
PAUSE = 5.0  # seconds between two writings, at the least
COMMON = ("steps", "backend", "mode", "svd", "order", "versions")  # the same in every row


def journal_of(output: Path) -> Path:
    return output.with_name(f".{output.name}.journal")


def check_output(output: Path, *, resume: bool, force: bool) -> None:
    """Return if a sweep may write there.

    Raises:
        InputError: if it may not: another ending than .csv and .parquet, no such folder, or a file that is
            there and shall neither be resumed nor replaced.
    """
    rows.kind_of(output)
    if not output.parent.is_dir():
        raise InputError(f"there is no folder {output.parent} for the output; make it, or give another --out")
    if output.is_dir():
        raise InputError(f"{output} is a folder; give a file as --out")
    if resume and force:
        raise InputError("resume continues an output and force replaces it; give only one of them")
    for path in (output, journal_of(output)):
        if path.exists() and not (resume or force):
            raise InputError(f"{path} exists; give --resume to go on with it, or --force to replace it")


class Store:
    """The outcomes of a sweep by the number of their point. A failed point counts as missing when resumed."""

    def __init__(self, output: Path, settings: Settings, journal: BinaryIO) -> None:
        self.output, self.settings = output, settings
        self._journal = journal
        self._end = journal.seek(0, os.SEEK_END)
        # Where in the journal the outcome of a point is: 8 bytes a point, however large the sweep.
        self._offsets = array.array("q", [MISSING]) * len(settings)
        self.done = self.failed = self.ties = 0
        self._written = self._cost = 0.0

    @classmethod
    def open(cls, output: Path, settings: Settings, *, resume: bool) -> Self:
        """Return the store of an output, with what is done already if resumed; else an empty one.

        Raises:
            InputError: if another sweep is writing there, or what is there has other settings.
        """
        path = journal_of(output)
        old = _locked(path, "r+b") if path.exists() else None
        part = None if old and resume else path.with_suffix(".part")
        journal = old if old and part is None else _locked(part or path, "w+b")
        try:
            store = cls(output, settings, journal)
            if part is None:
                store._go_on(path)
            else:
                store._append([settings.as_json()])
                if resume and output.exists():
                    store._take_over()
                part.replace(path)
        except BaseException:
            journal.close()
            if part is not None:
                part.unlink(missing_ok=True)
            raise
        finally:
            if old is not None and old is not journal:
                old.close()
        return store

    def missing(self, number: int) -> bool:
        return self._offsets[number] == MISSING

    def keep(self, numbers: Sequence[int], outcomes: Sequence[Outcome]) -> None:
        """Append the outcomes of a batch to the journal and make sure that they are on the disk."""
        self._record(numbers, outcomes)
        if time.monotonic() - self._written > max(PAUSE, self._cost / SHARE):
            self.write()

    def _record(self, numbers: Sequence[int], outcomes: Sequence[Outcome]) -> None:
        fresh = [pair for pair in zip(numbers, outcomes, strict=True) if self.missing(pair[0])]
        offsets = self._append([[number, *outcome] for number, outcome in fresh])
        for (number, outcome), offset in zip(fresh, offsets, strict=True):
            self._note(number, offset, outcome)

    def write(self) -> None:
        """Replace the output by all that is done so far."""
        start = time.monotonic()
        rows.write(self.output, self.rows())
        self._written = time.monotonic()
        self._cost = self._written - start

    def finish(self) -> None:
        """Write the output; delete the journal if nothing is missing."""
        self.write()
        if self.done == len(self.settings):
            journal_of(self.output).unlink(missing_ok=True)

    def close(self) -> None:
        self._journal.close()

    def rows(self) -> Iterator[Row]:
        """Yield the rows of all points done, in their order."""
        common: list[Any] = [getattr(self.settings, name) for name in COMMON]
        for number, offset in enumerate(self._offsets):
            if offset != MISSING:
                self._journal.seek(offset)
                outcome = Outcome(*json.loads(self._journal.readline())[1:])
                rest: list[Any]
                lnz, u, heat, lnz_exact, u_exact, heat_exact, *rest = outcome
                errors = _less(lnz, lnz_exact), _less(u, u_exact), _less(heat, heat_exact)
                beta, chi = self.settings.point(number)
                yield Row(beta, chi, *outcome[:6], *errors, *rest, *common)

    def _note(self, number: int, offset: int, outcome: Outcome) -> None:
        self.done += self.missing(number)
        self.failed += outcome.error is not None
        self.ties += outcome.min_cut_gap is not None and outcome.min_cut_gap < TIE
        self._offsets[number] = offset

    def _append(self, records: Sequence[Any]) -> list[int]:
        """Append a line a record; return where each begins. All of them are on the disk, or none."""
        descriptor, offsets, lines, end = self._journal.fileno(), [], [], self._end
        for record in records:
            offsets.append(end)
            lines.append(json.dumps(record).encode() + b"\n")
            end += len(lines[-1])
        try:
            data = memoryview(b"".join(lines))
            while data:  # not through the file's buffer, which would try again what failed
                data = data[os.pwrite(descriptor, data, end - len(data)) :]
            os.fsync(descriptor)
        except OSError:
            os.ftruncate(descriptor, self._end)
            raise
        self._end = end
        return offsets

    def _go_on(self, path: Path) -> None:
        """Note what the journal holds, and cut off what a kill left half-written."""
        self._journal.seek(0)
        self._end = 0
        for count, line in enumerate(self._journal, 1):
            if not line.endswith(b"\n"):
                break
            try:
                content = json.loads(line)
                if count > 1 and (outcome := Outcome(*content[1:])).error is None:
                    self._note(content[0], self._end, outcome)
                kept = Settings.from_json(content) if count == 1 else None
            except (ValueError, TypeError, KeyError, IndexError) as error:
                remedy = f"delete it to go on from {self.output}"
                raise InputError(f"line {count} of {path} cannot be read ({error}); {remedy}") from error
            if kept is not None:
                self.settings.check_same(kept, self.output)
            self._end += len(line)
        self._journal.truncate(self._end)

    def _take_over(self) -> None:
        """Append what the output holds to the journal."""
        first, betas, chis = None, set(), set()
        for row in rows.read(self.output):
            first = first or row
            betas.add(row.beta)
            chis.add(row.chi)
        if first is None:
            return
        common = {name: getattr(first, name) for name in COMMON}
        # Points may be missing in it, so fewer β and χ are no other settings, but any more are.
        beta = self.settings.beta if betas <= set(self.settings.beta) else tuple(sorted(betas))
        chi = self.settings.chi if chis <= set(self.settings.chi) else tuple(sorted(chis))
        self.settings.check_same(Settings(beta=beta, chi=chi, **common), self.output)
        for block in rows.blocks(rows.read(self.output)):
            done = [row for row in block if row.error is None]
            self._record(
                [self.settings.number(row.beta, row.chi) for row in done],
                [Outcome(**{name: getattr(row, name) for name in Outcome._fields}) for row in done],
            )


def _locked(path: Path, mode: str) -> BinaryIO:
    file: BinaryIO = path.open(mode)  # type: ignore[assignment]
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        raise InputError(f"another sweep is writing {path}; wait for it, or give another --out") from None
    return file


def _less(value: float | None, exact: float | None) -> float | None:
    return None if value is None or exact is None else value - exact
