"""The study as one self-contained page: it opens from a file, and has neither script nor network."""

from __future__ import annotations

import importlib.util
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trgbench.errors import Unavailable
from trgbench.study.claims import HOLDS, UNMEASURED, summary
from trgbench.study.tables import cell_text, table

if TYPE_CHECKING:
    from jinja2 import Environment

SYMBOLS = {HOLDS: "✓", UNMEASURED: "?"}  # and ✗; beside the words, not instead of them

OVER = (  # the experiments over one parameter: its axis, and what to see
    ("time-over-n", "n [elements]", "Small arrays cost what dispatch costs, large ones what memory costs."),
    ("depth", "depth [layers]", "A straight line of slope 1 is a cost linear in depth."),
    ("whole-graph", "steps", "One run of a graph of all steps; tracing and compiling are in the table."),
)

Table = Mapping[str, Any]


@dataclass(frozen=True)
class Plot:
    """A plot and the table that it shows; `svg` is None if that has nothing to show."""

    id: str
    svg: str | None
    caption: str
    table: Table


def tables_of(results: Mapping[str, Any], experiment: str) -> list[Table]:
    return [t for entry in results["experiments"] if entry["id"] == experiment for t in entry["tables"]]


def whole_graph_costs(results: Mapping[str, Any]) -> dict[int, dict[tuple[str, str], dict[str, float]]]:
    """Return steps → (backend, mode) → part → seconds of the experiment on the whole graph."""
    from trgbench.study.plots import series

    found: dict[int, dict[tuple[str, str], dict[str, float]]] = {}
    for content in tables_of(results, "whole-graph"):
        if content["columns"][0]["name"] != "steps":
            continue
        for row in content["rows"]:
            for column, seconds in zip(content["columns"], row, strict=True):
                what = series(column["name"])
                if what and column["unit"] == "s" and seconds is not None:
                    costs = found.setdefault(row[0], {}).setdefault((what.backend, what.mode), {})
                    costs[what.part] = seconds
    return found


def run_seconds(parts: Mapping[str, float]) -> float | None:
    """Return the time of a warm gradient from its parts, None if it is not among them."""
    if "run" in parts:
        return parts["run"]
    return parts["forward"] + parts["backward"] if {"forward", "backward"} <= parts.keys() else None


def nth_tables(results: Mapping[str, Any]) -> Iterator[Table]:
    """Yield what the N-th gradient costs: of the vector, and of TRG on the whole graph."""
    columns = [("first", "s"), ("each further one", "s")]
    for content in tables_of(results, "first-time"):
        names = [column["name"] for column in content["columns"]]
        if {"backend", "mode", "total", "steady"} <= set(names):
            picked = [names.index(name) for name in ("backend", "mode", "total", "steady")]
            rows = [[row[i] for i in picked] for row in content["rows"]]
            title = "Time to the N-th gradient: vector, n = 1000, in a fresh process, 1 thread"
            yield table("nth-vector", title, ["backend", "mode"], columns, rows, content["notes"])
    steps = whole_graph_costs(results)
    if not steps:
        return
    number = 4 if 4 in steps else max(steps)
    rows = []
    for (backend, mode), parts in steps[number].items():
        each = run_seconds(parts)
        once = [parts[part] for part in ("trace", "compile", "prepare") if part in parts]
        rows.append([backend, mode, None if each is None else sum(once) + each, each])
    note = "first: trace + compile + a warm run; the first run of all in a process costs a little more"
    title = f"Time to the N-th gradient: TRG as one graph, {number} steps, chi = 16, 1 thread"
    yield table("nth-trg", title, ["backend", "mode"], columns, rows, [note])


def trg_table(results: Mapping[str, Any]) -> Table:
    """Return the time of a warm gradient of TRG by backend and mode, of as many steps as were measured."""
    rows: list[list[Any]] = []
    steps = whole_graph_costs(results)
    number = max(steps, default=20)
    for (backend, mode), parts in steps.get(number, {}).items():
        if (seconds := run_seconds(parts)) is not None:
            rows.append([backend, mode, seconds])
    staged: dict[tuple[str, str], list[float]] = {}
    for content in tables_of(results, "staged"):
        names = [column["name"] for column in content["columns"]]
        if {"backend", "mode", "gradient"} <= set(names):
            for row in content["rows"]:
                cells = dict(zip(names, row, strict=True))
                if cells["gradient"] is not None:
                    staged.setdefault((cells["backend"], cells["mode"]), []).append(cells["gradient"])
    rows += [[*key, statistics.median(times)] for key, times in staged.items()]
    title = f"TRG, {number} steps, chi = 16, 1 thread: one warm gradient by backend and mode"
    notes = ["in stages: the median over all beta"] if staged else []
    return table("trg-by-mode", title, ["backend", "mode"], [("gradient", "s")], rows, notes)


def plots(results: Mapping[str, Any]) -> list[Plot]:
    """Return the report's plots, with those that have nothing to show."""
    from trgbench.study import plots

    found = []
    for experiment, xlabel, caption in OVER:
        for content in tables_of(results, experiment):
            names = [column["name"] for column in content["columns"]]
            if names[0] in ("n", "depth", "steps") and any(plots.series(name) for name in names):
                svg = plots.lines(f"plot-{content['id']}", content, xlabel)
                found.append(Plot(content["id"], svg, caption, content))
    bars = trg_table(results)
    caption = "Filled: eager on the whole graph. Hatched: the other modes."
    found.append(Plot(bars["id"], plots.bars(f"plot-{bars['id']}", bars), caption, bars))
    caption = "First + (N - 1) x each further one. From the N of a circle on, another mode is the fastest."
    for content in nth_tables(results):
        svg = plots.nth_gradient(f"plot-{content['id']}", content)
        found.append(Plot(content["id"], svg, caption, content))
    return found


def groups(claims: Sequence[Mapping[str, Any]], results: Mapping[str, Any]) -> list[tuple[str, list[Any]]]:
    """Return the ledger by experiment, with the experiment's title where it was measured."""
    titles = {entry["id"]: f"{entry['number']}. {entry['title']}" for entry in results["experiments"]}
    found: dict[str, list[Any]] = {}
    for claim in claims:
        found.setdefault(claim["experiment"], []).append(claim)
    return [(titles.get(name, name), group) for name, group in found.items()]


def check_available() -> None:
    """Return if a page can be made.

    Raises:
        Unavailable: if matplotlib or Jinja is not installed.
    """
    for package in ("matplotlib", "jinja2"):
        if importlib.util.find_spec(package) is None:
            raise Unavailable(
                f"the report needs the package {package}, which is not installed; "
                "install it with: pip install 'trgbench[report]'"
            )


def templates(package: str) -> Environment:
    """Return the environment of the templates in `package`; they may include `head.html` and `page.css`."""
    import jinja2

    return jinja2.Environment(
        loader=jinja2.ChoiceLoader([jinja2.PackageLoader(name, ".") for name in (package, "trgbench.study")]),
        autoescape=True,  # what the results hold is text, whatever it looks like
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def html(results: Mapping[str, Any]) -> str:
    """Return the page.

    Raises:
        Unavailable: if matplotlib or Jinja is not installed.
    """
    check_available()
    drawn = plots(results)
    return (
        templates("trgbench.study")
        .get_template("report.html")
        .render(
            results=results,
            plots=drawn,
            shown={plot.table["id"] for plot in drawn},
            groups=groups(results["claims"], results),
            summary=summary(results["claims"]),
            cell=cell_text,
            symbol=lambda verdict: SYMBOLS.get(verdict, "✗"),
        )
    )
