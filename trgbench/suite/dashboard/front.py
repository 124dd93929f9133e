"""The front page: one file with all its data in it, which opens from a file and runs no script."""

from __future__ import annotations

import itertools
import math
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trgbench.study import plots, report
from trgbench.suite import headline
from trgbench.suite.dashboard import contents, figures
from trgbench.suite.dashboard.contents import Commit, Regression, Setting
from trgbench.suite.dashboard.offline import FRONT
from trgbench.suite.journal import grouped
from trgbench.suite.records import Record

STUDY = Path(".asv/study.html")  # where `trgbench study --html` is to leave its page
LINES = ("backend", "peer")  # the parameters of a ratio that are lines of one plot
SHOWN = 30  # commits of a history

# (title, benchmark, the parameter to grow, its axis): times of a gradient on one thread
GROWTH = (
    ("Vector function over its size", "gradient.Vector.time_gradient", "n", "n [elements]"),
    ("Chain of sines over its depth", "depth.Chain.time_gradient", "depth", "depth [layers]"),
    ("TRG at χ = 16 over the steps, as one graph", "trg.WholeGraph.time_gradient", "steps", "steps"),
    ("TRG, 20 steps, over the bond dimension", "trg.TwentySteps.time_gradient", "chi", "χ"),
)


@dataclass(frozen=True)
class Card:
    """A plot with what it shows, as text too."""

    title: str
    svg: str | None
    link: str
    texts: Sequence[tuple[str, str]] = ()
    note: str = ""


def write(site: Path, conf: Any, benchmarks: Any, revisions: Mapping[str, int]) -> None:
    """Write the front page into a site that asv has just published, with the study's report if any."""
    known = contents.commits(conf.repo, revisions)
    if STUDY.is_file():
        shutil.copyfile(STUDY, site / "study.html")
    settings = contents.settings(conf.results_dir, benchmarks, known, revisions)
    common = set.intersection(*(set(setting.environment) for setting in settings)) if settings else set()
    steps = contents.regressions(site, benchmarks, known, revisions)
    recorded = {at.commit.hash: at.commit for setting in settings for at in setting.history}
    page = render(
        settings=[
            {
                "of": setting,
                "times": list(times(f"times-{number}", setting, benchmarks)),
                "growth": list(growth(f"growth-{number}", setting, benchmarks)),
                "ratios": list(ratios(f"ratios-{number}", setting, benchmarks)),
                "rows": headline.times(_newest_records(setting)),
                "special": [part for part in setting.environment if part not in common],
                "reasons": grouped(setting.history[-1].entry.failures),
                "failed": [record for record in _newest_records(setting) if record.outcome == "failed"],
            }
            for number, setting in enumerate(settings)
        ],
        regressions=steps,
        regressed=list(summarised(steps)),
        commits=sorted(recorded.values(), key=lambda commit: -revisions[commit.hash]),
        study=STUDY.is_file(),
    )
    (site / FRONT).write_text(page, encoding="utf-8")


def render(**content: Any) -> str:
    """Return the page; every text in `content` stays text."""
    template = report.templates(__package__).get_template(FRONT)
    return template.render(cell=headline.cell, backends=headline.backends, study_path=STUDY, **content)


def summarised(steps: Sequence[Regression]) -> Iterator[tuple[Regression, int]]:
    """Yield the largest step of each benchmark at each commit, and how many combinations it has there."""
    for _, group in itertools.groupby(steps, lambda step: (step.commit.hash, step.benchmark)):
        same = list(group)
        yield max(same, key=lambda step: step.factor), len(same)


def times(id: str, setting: Setting, benchmarks: Any) -> Iterator[Card]:
    """Yield a card for each problem: the newest times by backend and mode."""
    newest = setting.newest()
    rows = headline.times(_newest_records(setting))
    for number, (problem, group) in enumerate(itertools.groupby(rows, lambda row: row.problem)):
        cells = [(backend, row.mode, record) for row in group for backend, record in row.cells.items()]
        measured = [[b, mode, record.value] for b, mode, record in cells if record.outcome == "measured"]
        failed = [(f"{b} {mode}", "failed") for b, mode, record in cells if record.outcome == "failed"]
        some = cells[0][2]
        same = {k: v for k, v in some.parameters.items() if k not in ("backend", "mode")}
        table = {"title": problem, "rows": measured}
        yield Card(
            problem,
            plots.bars(f"{id}-{number}", table, width=4.8),
            contents.graph_link(benchmarks[some.benchmark], same),
            failed,
            _older(newest[some.benchmark][0], setting.commit),
        )


def growth(id: str, setting: Setting, benchmarks: Any) -> Iterator[Card]:
    """Yield a card for each parameter that a gradient's time was measured over, if at more than one value."""
    newest = setting.newest()
    for number, (title, benchmark, parameter, axis) in enumerate(GROWTH):
        commit, records = newest.get(benchmark, (setting.commit, []))
        columns: dict[str, dict[float, float | None]] = {}
        for record in records:
            if record.parameters["threads"] == "1" and record.outcome == "measured":
                name = f"{record.parameters['backend']} {record.parameters['mode']}"
                columns.setdefault(name, {})[float(record.parameters[parameter])] = record.value
        xs = sorted({x for column in columns.values() for x in column})
        if len(xs) < 2:
            continue
        table = {
            "title": title,
            "columns": [{"name": parameter, "unit": ""}, *({"name": name, "unit": "s"} for name in columns)],
            "rows": [[x, *(column.get(x) for column in columns.values())] for x in xs],
        }
        link = contents.graph_link(
            benchmarks[benchmark], {"threads": "1"}, {"x-axis": parameter, "y-axis-scale": "log"}
        )
        yield Card(
            title, plots.lines(f"{id}-{number}", table, axis), link, (), _older(commit, setting.commit)
        )


def ratios(id: str, setting: Setting, benchmarks: Any) -> Iterator[tuple[str, list[Card]]]:
    """Yield the ratio benchmarks, each with its cards: the newest values, their intervals and history."""
    shown = setting.history[-SHOWN:]
    labels = [at.commit.short for at in shown]
    known = [item for item in setting.newest().items() if item[0].startswith("ratios.")]
    for name, (newest, records) in sorted(known, key=lambda item: (item[0] != headline.RATIOS, item[0])):
        cards: dict[str, dict[str, Record]] = {}
        for record in records:
            if record.outcome != "skipped":
                card, line = _card_and_line(record)
                cards.setdefault(card, {})[line] = record
        over = [{_card_and_line(record): record for record in at.records.get(name, ())} for at in shown]
        pretty = benchmarks[name].get("pretty_name") or name
        drawn = []
        for number, (title, cells) in enumerate(cards.items()):
            series = {line: [_measured(past.get((title, line))) for past in over] for line in cells}
            same = {k: v for k, v in next(iter(cells.values())).parameters.items() if k not in LINES}
            drawn.append(
                Card(
                    title or "by backend",
                    figures.history(
                        f"{id}-{name.replace('.', '-')}-{number}", f"{pretty} {title}", labels, series
                    ),
                    contents.graph_link(benchmarks[name], same),
                    [(line, headline.cell(record)) for line, record in cells.items()],
                    _older(newest, setting.commit),
                )
            )
        if drawn:
            yield pretty, drawn


def _newest_records(setting: Setting) -> list[Record]:
    return [record for _, records in setting.newest().values() for record in records]


def _card_and_line(record: Record) -> tuple[str, str]:
    """Return which card a ratio belongs to, and which line of its plot."""
    lines = [value for name, value in record.parameters.items() if name in LINES]
    words = [
        value if value[:1].isalpha() else f"{name} = {value}"
        for name, value in record.parameters.items()
        if name not in LINES
    ]
    return " · ".join(words), " ".join(lines) or "ratio"


def _measured(record: Record | None) -> figures.Measured | None:
    if record is None or record.outcome != "measured" or record.value is None:
        return None
    low, high = ((record.stats or {}).get(end) for end in ("ci_99_a", "ci_99_b"))
    if low is None or high is None or not -math.inf < low <= record.value <= high < math.inf:
        return figures.Measured(record.value, record.value, record.value)
    return figures.Measured(record.value, low, high)


def _older(measured: Commit, newest: Commit) -> str:
    return "" if measured == newest else f"of commit {measured.short}; the newest has no record of it"
