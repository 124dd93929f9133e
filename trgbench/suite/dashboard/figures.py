"""The front page's own plot: a ratio over the commits."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import matplotlib as mpl
from matplotlib.ticker import FuncFormatter

from trgbench.study.plots import COLOURS, SETTINGS, log_ticks, new_axes, to_svg

MARKS = {"native": ("o", "-"), "jax": ("s", "--"), "torch": ("^", ":")}  # not by colour alone
LABELS = 5  # commits that are named on the axis


class Measured(NamedTuple):
    """A value with its interval; both ends are the value where none is known."""

    value: float
    low: float
    high: float


def history(
    id: str, title: str, commits: Sequence[str], series: Mapping[str, Sequence[Measured | None]]
) -> str | None:
    """Return values over commits as SVG, a line for each series, or None if there is no value."""
    drawn = {name: [(i, m) for i, m in enumerate(values) if m] for name, values in series.items()}
    drawn = {name: pairs for name, pairs in drawn.items() if pairs}
    if not drawn:
        return None
    ends = [end for pairs in drawn.values() for _, m in pairs for end in (m.low, m.high)]
    with mpl.rc_context(SETTINGS):
        figure, axes = new_axes((4.2, 2.1))
        for number, (name, pairs) in enumerate(drawn.items()):
            marker, dash = MARKS.get(name, ("D", "-."))
            colour = COLOURS.get(name, "#444444")
            # Or the intervals of one commit would hide each other.
            aside = 0.1 * (number - (len(drawn) - 1) / 2)
            xs, ys = [i + aside for i, _ in pairs], [m.value for _, m in pairs]
            errors = [[m.value - m.low for _, m in pairs], [m.high - m.value for _, m in pairs]]
            axes.errorbar(xs, ys, errors, color=colour, fmt="none", elinewidth=1.2, capsize=3)
            (line,) = axes.plot(xs, ys, color=colour, marker=marker, linestyle=dash, markersize=5, label=name)
            line.set_gid(f"{id}-mark-{number}")
        axes.axhline(1.0, color="#888888", linewidth=0.8, zorder=0)
        if min(ends) > 0 and max(ends) / min(ends) > 5:
            axes.set_yscale("log")
            log_ticks(axes.yaxis)
        axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:g}"))
        axes.set_xlim(-0.5, len(commits) - 0.5)
        step = math.ceil(len(commits) / LABELS)
        named = list(range(len(commits) - 1, -1, -step))[::-1]
        axes.set_xticks(named, [commits[i] for i in named], fontsize=8)
        axes.grid(visible=False, axis="x")
        axes.legend(ncols=3, frameon=False, loc="lower left", bbox_to_anchor=(0, 1), borderaxespad=0.2)
        return to_svg(figure, id, title)
