"""The native engine against the fastest of its peers, on one pinned CPU: measure and print the table.

The peers are PyTorch eager, torch.compile, JAX without jit and JAX jit, all with the safe SVD rule. A ratio
is the median of pairs timed in turns in one process; a time to the N-th gradient is the median of fresh
processes in turns, in which no compiler finds anything on the disk. Every result is checked in the same run:
against the problem's reference, and bit by bit between native modes.
"""

from __future__ import annotations

import argparse
import functools
import os
import re
import sys
import time
from dataclasses import asdict
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

from trgbench import backends
from trgbench.console import Progress, duration, strict_json
from trgbench.errors import InputError
from trgbench.speed.rows import PARTS, Row
from trgbench.study.lab import Lab
from trgbench.study.results import check_writable, machine, write


def main(arguments: list[str] | None = None) -> int:
    """Return 0, or 1 if something could not be measured or was wrong, or 2 if nothing matches `--only`."""
    parser = argparse.ArgumentParser(
        "python -m trgbench.speed", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", metavar="REGEX", help="measure the parts whose titles match")
    parser.add_argument("--list", action="store_true", help="list the titles, and measure nothing")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there, too")
    options = parser.parse_args(arguments)
    try:
        wanted = [title for title in PARTS if re.search(options.only, title)]
    except re.error as error:
        parser.error(f"--only: {options.only!r} is no regular expression: {error}")
    if not wanted:
        parser.error(f"--only {options.only!r} matches none of the titles; --list shows them")
    if options.list:
        print(*wanted, sep="\n")
        return 0
    if options.json:
        try:
            check_writable(options.json)
        except InputError as error:
            parser.error(f"--json: {error}")
    begun, rows = time.monotonic(), list[Row]()
    console = Console()
    with Progress() as progress:
        for number, title in enumerate(wanted, 1):
            where = f"{number} of {len(wanted)}, {title}: "
            for row in PARTS[title](Lab(progress=functools.partial(_say, progress, where))):
                rows.append(row)
                line = f"{row.what}: {_figure(row)}, at most {row.at_most:g}; {row.said}"
                console.print(line, highlight=False)
            if options.json:  # after every part: what is measured is kept
                content = {"machine": _machine(), "rows": [asdict(row) for row in rows]}
                write(options.json, strict_json(content) + "\n")
    console.print(_table(rows))
    console.print(f"{_machine()}; {duration(time.monotonic() - begun)}", highlight=False)
    return int(any(row.figure is None for row in rows))


def _say(progress: Progress, where: str, doing: str) -> None:
    progress(where + doing)


def _figure(row: Row) -> str:
    return "not measured" if row.figure is None else f"{row.figure:.3g}"


def _table(rows: list[Row]) -> Table:
    table = Table(title="Native over the fastest peer", title_justify="left", box=box.SIMPLE_HEAD)
    table.add_column("what")
    for name in ("figure", "at most", "reached"):
        table.add_column(name, justify="right")
    for row in rows:
        table.add_row(row.what, _figure(row), f"{row.at_most:g}", row.verdict)
    return table


def _machine() -> str:
    versions = ", ".join(f"{name} {backends.get(name).version}" for name in backends.names())
    return f"{versions}; {machine()['cpu']}, {os.cpu_count()} CPUs; {time.strftime('%F')}"


if __name__ == "__main__":
    sys.exit(main())
