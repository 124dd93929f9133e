"""The headline figures: what one gradient costs, by problem, mode and backend."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from asv_runner.util import human_time
from rich import box
from rich.table import Table

from trgbench.suite.records import Record

# (title, benchmark, the parameters besides backend and mode)
TIMES: tuple[tuple[str, str, Mapping[str, str]], ...] = (
    ("vector, n = 1000", "gradient.Vector.time_gradient", {"threads": "1", "n": "1000"}),
    ("chain, 100 layers", "depth.Chain.time_gradient", {"threads": "1", "depth": "100"}),
    ("TRG, 4 steps, χ = 16", "trg.WholeGraph.time_gradient", {"threads": "1", "steps": "4"}),
    ("TRG, 20 steps, χ = 16", "trg.TwentySteps.time_gradient", {"threads": "1", "chi": "16"}),
)
RATIOS = "ratios.Modes.track_ratio"
FIRST = "first_call.FirstGradient.timeraw_first_gradient"


class Row(NamedTuple):
    """A problem in one mode, or one ratio: what each backend was measured at."""

    problem: str
    mode: str
    cells: Mapping[str, Record]


def times(records: Iterable[Record]) -> list[Row]:
    """Return the times that are asked for first, and what a first call costs; what failed, too."""
    known = list(records)
    rows = [row for choice in TIMES for row in _rows(known, *choice, "mode")]
    for problem in _problems(known, FIRST):
        rows += _rows(known, f"{problem}, first call", FIRST, {"problem": problem}, "mode")
    return rows


def ratios(records: Iterable[Record]) -> list[Row]:
    """Return the ratios of two modes, likewise."""
    known = list(records)
    return [
        row
        for problem in _problems(known, RATIOS)
        for row in _rows(known, problem, RATIOS, {"problem": problem}, "modes")
    ]


def tables(records: Iterable[Record]) -> list[Table]:
    """Return the tables of what was measured; a figure that was not is left open, one that failed says so."""
    known = list(records)
    drawn = (
        _table("One gradient on one thread", "mode", times(known)),
        _table("Ratio of two modes, timed in turns, and its 99 % interval", "modes", ratios(known)),
    )
    return [table for table in drawn if table.row_count]


def cell(record: Record | None) -> str:
    """Return a figure as text: a time with its unit, a ratio with its interval; nothing if it was skipped."""
    if record is None or record.outcome == "skipped":
        return ""
    if record.outcome == "failed":
        return "failed"
    assert record.value is not None
    if not record.benchmark.startswith("ratios."):
        return human_time(record.value)
    spread = ""
    if record.stats and record.stats.get("ci_99_a") is not None:
        spread = f" ({_digits(record.stats['ci_99_a'], 2)}…{_digits(record.stats['ci_99_b'], 2)})"
    return f"{_digits(record.value, 3)}{spread}"


def _digits(value: float, digits: int) -> str:
    """Return a number to so many digits, but all before the point.

    >>> _digits(0.48612, 3), _digits(163.2, 2), _digits(float("inf"), 2)
    ('0.486', '163', 'inf')
    """
    return f"{value:.0f}" if value >= 10**digits else f"{value:.{digits}g}"


def backends(rows: Iterable[Row]) -> list[str]:
    """Return the backends of the rows, in order."""
    return sorted({backend for row in rows for backend in row.cells})


def _problems(known: list[Record], benchmark: str) -> list[str]:
    return list(dict.fromkeys(r.parameters["problem"] for r in known if r.benchmark == benchmark))


def _rows(
    known: list[Record], problem: str, benchmark: str, parameters: Mapping[str, str], mode: str
) -> list[Row]:
    cells: dict[str, dict[str, Record]] = {}
    for record in known:
        if record.benchmark == benchmark and parameters.items() <= record.parameters.items():
            cells.setdefault(record.parameters[mode], {})[record.parameters["backend"]] = record
    return [Row(problem, name, row) for name, row in cells.items() if any(map(cell, row.values()))]


def _table(title: str, mode: str, rows: list[Row]) -> Table:
    drawn = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    drawn.add_column("problem", no_wrap=True)
    drawn.add_column(mode, min_width=len("traced-staged"))
    shown = backends(rows)
    for backend in shown:
        drawn.add_column(backend, justify="right", no_wrap=True)
    for problem, group in itertools.groupby(rows, lambda row: row.problem):
        for i, row in enumerate(same := list(group)):
            figures = (cell(row.cells.get(backend)) for backend in shown)
            drawn.add_row("" if i else problem, row.mode, *figures, end_section=i == len(same) - 1)
    return drawn
