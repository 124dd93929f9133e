"""The report's plots: from a table of results to SVG, by matplotlib.

Static SVG with text as text prints well, needs no script in the page, and a plot takes some 30 kB, where a
plotting library in JavaScript would take 1 to 4 MB. Colour (Okabe and Ito's, for colour-blind readers) says
the backend; dash, marker and hatch say the mode, so that nothing rests on colour alone.
"""

from __future__ import annotations

import io
import itertools
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from trgbench.console import duration

COLOURS = {"native": "#0072B2", "jax": "#D55E00", "torch": "#009E73"}
STYLES = {  # of a mode, and of a part of it: dash, marker, width, hatch
    "eager": ("-", "o", 1.8, ""),
    "traced": ("--", "s", 1.8, "////"),
    "eager-staged": ("-.", "D", 1.8, "\\\\\\\\"),
    "traced-staged": (":", "P", 1.8, "xxxx"),
    "forward": ("-.", "^", 0.9, "||||"),
    "backward": (":", "v", 0.9, "++"),
}
FAR = 30.0  # the largest time over the smallest, from where on bars would hide the small ones
SETTINGS: Any = {
    "svg.fonttype": "none",  # text stays text
    "text.parse_math": False,  # a label is data: it may hold any character
    "font.family": "sans-serif",
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#d8d8d8",
    "grid.linewidth": 0.6,
    "hatch.linewidth": 0.6,
}


class Series(NamedTuple):
    """What a column of times is about; `part` is empty for a whole gradient."""

    backend: str
    mode: str
    part: str

    @property
    def label(self) -> str:
        return " ".join(filter(None, self))

    @property
    def style(self) -> tuple[str, str, float, str]:
        return STYLES[self.part if self.part in STYLES else self.mode]


def series(name: str) -> Series | None:
    """Return what the name of a column says, None if it names no backend and mode.

    >>> series("native eager backward").part, series("jax traced: compile").part, series("hits")
    ('backward', 'compile', None)
    """
    match = re.fullmatch(rf"({'|'.join(COLOURS)}) (eager|traced)(?:-staged)?(?::? (.+))?", name)
    if match is None:
        return None
    backend, mode, part = match.groups()
    return Series(backend, f"{mode}-staged" if "-staged" in name else mode, part or "")


def points(xs: Iterable[Any], ys: Iterable[Any]) -> list[tuple[float, float]]:
    """Return the pairs that a logarithmic plot can show."""

    def shows(value: Any) -> bool:
        return type(value) in (int, float) and math.isfinite(value) and value > 0

    return [(x, y) for x, y in zip(xs, ys, strict=True) if shows(x) and shows(y)]


def lines(id: str, table: Mapping[str, Any], xlabel: str) -> str | None:
    """Return time over the table's only parameter, both logarithmic, or None if there is nothing to show."""
    xs = [row[0] for row in table["rows"]]
    columns: dict[Series, list[Any]] = {}
    for number, column in enumerate(table["columns"]):
        what = series(column["name"])
        if column["unit"] == "s" and what and what.part in ("", "run", "forward", "backward"):
            part = "" if what.part == "run" else what.part
            columns[what._replace(part=part)] = [row[number] for row in table["rows"]]
    for what in [what for what in columns if what.part == "forward"]:
        backward = columns.get(what._replace(part="backward"))
        if what._replace(part="") not in columns and backward is not None:
            halves = zip(columns[what], backward, strict=True)
            whole = [None if None in pair else sum(pair) for pair in halves]
            columns[what._replace(part="")] = whole
    drawn = [(what, shown) for what, ys in sorted(columns.items()) if (shown := points(xs, ys))]
    if not drawn:
        return None
    with mpl.rc_context(SETTINGS):
        figure, axes = new_axes((8.6, 4.6))
        for number, (what, pairs) in enumerate(drawn):
            _line(axes, what, pairs, f"{id}-mark-{number}")
        axes.set(xscale="log", yscale="log", xlabel=xlabel, ylabel="time of one gradient (unit at each tick)")
        ticks = sorted({x for _, pairs in drawn for x, _ in pairs})
        _counts(axes.xaxis)
        if len(ticks) <= 12 and ticks[-1] < 1e4:
            axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks], minor=False)
            axes.set_xticks([], minor=True)
        _times(axes.yaxis)
        axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False, handlelength=3.6)
        return to_svg(figure, id, table["title"])


def bars(id: str, table: Mapping[str, Any], width: float = 8.6) -> str | None:
    """Return the times of a table of (backend, mode, time) as bars, grouped by backend.

    Where they are so far apart that most bars would be too short, they are points on a logarithmic axis.

    Args:
        width: in inches.
    """
    rows = [row for row in table["rows"] if row[0] in COLOURS and row[1] in STYLES and points([1], [row[2]])]
    if not rows:
        return None
    modes = [mode for mode in STYLES if any(row[1] == mode for row in rows)]
    names = [name for name in COLOURS if any(row[0] == name for row in rows)]
    far = max(row[2] for row in rows) > FAR * min(row[2] for row in rows)
    with mpl.rc_context(SETTINGS):
        figure, axes = new_axes((width, 0.9 + 0.27 * (len(rows) + len(names))))
        place = 0.0
        middles, labels = [], []
        for number, (name, mode) in enumerate(itertools.product(names, modes)):
            seconds = next((row[2] for row in rows if row[:2] == [name, mode]), None)
            if seconds is not None:
                colour, fill = COLOURS[name], COLOURS[name] if mode == "eager" else "white"
                if far:
                    marker = STYLES[mode][1]
                    (mark,) = axes.plot(seconds, place, marker, color=colour, mfc=fill, markersize=7)
                else:
                    [mark] = axes.barh(place, seconds, 0.8, fc=fill, ec=colour, hatch=STYLES[mode][3])
                mark.set_gid(f"{id}-mark-{number}")
                axes.annotate(
                    duration(seconds), (seconds, place), (7, 0), textcoords="offset points", va="center"
                )
                middles.append(place)
                labels.append(f"{name} {mode}")
                place += 1.0
            if mode == modes[-1]:
                place += 0.5
        axes.set_yticks(middles, labels)
        axes.invert_yaxis()
        axes.grid(visible=far, axis="y")
        axes.set(xlabel="time of one gradient", xscale="log" if far else "linear")
        axes.margins(x=0.14, y=0.06)
        if not far:
            axes.xaxis.set_major_locator(MaxNLocator(5))
        _times(axes.xaxis)
        return to_svg(figure, id, table["title"])


def nth_gradient(id: str, table: Mapping[str, Any]) -> str | None:
    """Return the time to the N-th gradient over N, of a table of (backend, mode, first, further)."""
    if len(table["columns"]) < 4:  # nothing was measured in one of them
        return None
    rows = [
        row for row in table["rows"] if row[0] in COLOURS and row[1] in STYLES and points([row[2]], [row[3]])
    ]
    if not rows:
        return None
    crossings = envelope([(row[2], row[3]) for row in rows])
    last = 10.0 ** math.ceil(math.log10(max([100.0, *(30 * n for n, _ in crossings)])))
    counts = [10 ** (i / 12) for i in range(round(12 * math.log10(last)) + 1)]
    with mpl.rc_context(SETTINGS):
        figure, axes = new_axes((8.6, 4.6))
        for number, (backend, mode, once, each) in enumerate(rows):
            pairs = [(n, once + (n - 1) * each) for n in counts]
            _line(axes, Series(backend, mode, ""), pairs, f"{id}-mark-{number}", every=12)
        for n, seconds in crossings:
            axes.plot([n], [seconds], "o", color="none", markeredgecolor="black", markersize=11, zorder=5)
            axes.annotate(
                f"N = {math.ceil(n):,}", (n, seconds), (6, -16), textcoords="offset points", color="black"
            )
        axes.set(
            xscale="log",
            yscale="log",
            xlabel="number of gradients N",
            ylabel="time to the N-th gradient (unit at each tick)",
        )
        _counts(axes.xaxis)
        _times(axes.yaxis)
        axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False, handlelength=3.6)
        return to_svg(figure, id, table["title"])


def envelope(costs: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return where the fastest of the lines once + (N − 1) each changes, as (N, time), N from 1 on.

    >>> envelope([(1.0, 0.1), (0.1, 0.2), (5.0, 5.0)])
    [(10.0, 1.9)]
    """
    n = 1.0
    found: list[tuple[float, float]] = []
    now = min(costs, key=lambda cost: cost)
    while True:
        ahead = [
            (1 + (once - now[0]) / (now[1] - each), (once, each)) for once, each in costs if each < now[1]
        ]
        ahead = [(at, cost) for at, cost in ahead if at >= n]
        if not ahead:
            return found
        n, now = min(ahead)
        found.append((n, now[0] + (n - 1) * now[1]))


def new_axes(size: tuple[float, float]) -> tuple[Figure, Any]:
    """Return a figure of `size` inches and its only axes."""
    figure = Figure(figsize=size, layout="constrained")
    return figure, figure.add_subplot()


def _line(
    axes: Any, what: Series, pairs: Sequence[tuple[float, float]], gid: str, every: int | None = None
) -> None:
    dash, marker, width, _ = what.style
    (line,) = axes.plot(
        *zip(*pairs, strict=True),
        linestyle=dash,
        marker=marker,
        markersize=5,
        markevery=every,
        linewidth=width,
        color=COLOURS[what.backend],
        markerfacecolor="white" if width < 1 else COLOURS[what.backend],
        label=what.label,
    )
    line.set_gid(gid)


def _times(axis: Any) -> None:
    if axis.get_scale() == "log":
        log_ticks(axis)
    axis.set_major_formatter(
        FuncFormatter(lambda s, _: f"{s:,.0f} s" if s >= 1000 else duration(s) if s else "0")
    )


def log_ticks(axis: Any) -> None:
    """Name 1, 2 and 5 in each decade where there are few, else the decades, and nothing between them."""
    low, high = axis.get_view_interval()
    if high < 100 * low:
        axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.set_minor_formatter(NullFormatter())


def _counts(axis: Any) -> None:
    axis.set_major_formatter(FuncFormatter(lambda count, _: f"{count:,.0f}"))


def to_svg(figure: Figure, id: str, title: str) -> str:
    """Return the figure as an element for a page, with ids of its own and a title for those who hear it."""
    from markupsafe import escape

    text = io.StringIO()
    with mpl.rc_context({"svg.hashsalt": id}):
        figure.savefig(text, format="svg", metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")))
    svg = text.getvalue()
    svg = svg[svg.index("<svg") :]  # without what only a file of its own needs
    svg = re.sub(
        r' id="[A-Za-z0-9.]+_\d+"', "", svg
    )  # figure_1, text_3 …: the same in every plot, and unused
    return svg.replace("<svg", f'<svg role="img" aria-label="{escape(title)}"', 1)
