"""The headline figures: what one gradient costs, by problem, mode and backend."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

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


def tables(records: Iterable[Record]) -> list[Table]:
    """Return the tables of what was measured; a figure that was not is left open, one that failed says so."""
    known = list(records)
    backends = sorted({record.parameters["backend"] for record in known if "backend" in record.parameters})
    times = _empty("One gradient on one thread", "mode", backends)
    for title, benchmark, parameters in TIMES:
        _add_rows(times, backends, known, title, benchmark, "mode", parameters)
    for problem in _problems(known, FIRST):
        _add_rows(times, backends, known, f"{problem}, first call", FIRST, "mode", {"problem": problem})
    ratios = _empty("Ratio of two modes, timed in turns, and its 99 % interval", "modes", backends)
    for problem in _problems(known, RATIOS):
        _add_rows(ratios, backends, known, problem, RATIOS, "modes", {"problem": problem})
    return [drawn for drawn in (times, ratios) if drawn.row_count]


def _problems(known: list[Record], benchmark: str) -> list[str]:
    return list(dict.fromkeys(r.parameters["problem"] for r in known if r.benchmark == benchmark))


def _empty(title: str, mode: str, backends: list[str]) -> Table:
    drawn = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    drawn.add_column("problem", no_wrap=True)
    drawn.add_column(mode, min_width=len("traced-staged"))
    for backend in backends:
        drawn.add_column(backend, justify="right", no_wrap=True)
    return drawn


def _add_rows(
    drawn: Table,
    backends: list[str],
    known: list[Record],
    title: str,
    benchmark: str,
    mode: str,
    parameters: Mapping[str, str],
) -> None:
    cells: dict[str, dict[str, str]] = {}
    for record in known:
        if record.benchmark == benchmark and parameters.items() <= record.parameters.items():
            row = cells.setdefault(record.parameters[mode], {})
            row[record.parameters["backend"]] = _cell(record)
    shown = [(name, row) for name, row in cells.items() if any(row.values())]
    for i, (name, row) in enumerate(shown):
        end = i == len(shown) - 1
        drawn.add_row("" if i else title, name, *(row.get(b, "") for b in backends), end_section=end)


def _cell(record: Record) -> str:
    if record.outcome != "measured":
        return "failed" if record.outcome == "failed" else ""
    assert record.value is not None
    if record.benchmark != RATIOS:
        return human_time(record.value)
    spread = ""
    if record.stats and record.stats.get("ci_99_a") is not None:
        spread = f" ({record.stats['ci_99_a']:.2g}…{record.stats['ci_99_b']:.2g})"
    return f"{record.value:.3g}{spread}"
