"""The curves of a sweep: u, specific heat and their errors over β by χ, beside Onsager's, with β_c marked.

PNG (Matplotlib) is for a paper. HTML (Plotly) is to explore: it zooms, says what is under the pointer, and
switches a χ off; the one file holds all it needs and opens without a network.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trgbench.console import replacing
from trgbench.errors import InputError, check_choice
from trgbench.point import TIE
from trgbench.sweeps.rows import Row, need

LIBRARIES = {"png": "matplotlib", "html": "plotly"}
CURVE_POINTS = 601  # of Onsager's curves
COLOURS = (
    "#0072b2",
    "#e69f00",
    "#009e73",
    "#cc79a7",
    "#d55e00",
    "#56b4e9",
)  # Okabe and Ito: told apart by all
MARKERS = ("o", "s", "^", "D", "v", "P")
EXACT = "#444444"
HEIGHT = 1.4  # of the frame of the specific heat over the highest point: Onsager's has no end


def check(path: Path, *, replace: bool) -> None:
    """Return if a picture can be drawn there.

    Raises:
        InputError: if not: another ending, no folder, a file that shall not be replaced, a missing library.
    """
    kind = check_choice("format of the plot", path.suffix.lower().removeprefix("."), LIBRARIES)
    if not path.parent.is_dir() or path.is_dir():
        raise InputError(f"the plot cannot be written to {path}; give a file in a folder that exists")
    if path.exists() and not replace:
        raise InputError(f"{path} exists; give --force to replace it, or another --plot")
    need(LIBRARIES[kind], f"a plot as {kind}", "install it with: pip install 'trgbench[cluster]'")


@dataclass
class Curve:
    """The points of one χ that have a result, by β; `tied` are those where a cut parts a tie."""

    chi: int
    clear: list[Row] = field(default_factory=list)
    tied: list[Row] = field(default_factory=list)


@dataclass(frozen=True)
class Panel:
    """One frame: what of a row it shows, and Onsager's value, if it has one."""

    title: str
    value: Callable[[Row], float | None]
    exact: Callable[[float], float] | None = None


def curves(rows: Iterable[Row]) -> list[Curve]:
    """Return the curves, by ascending χ; failed points are left out."""
    found: dict[int, Curve] = {}
    for row in rows:
        if row.error is None and row.u is not None:
            curve = found.setdefault(row.chi, Curve(row.chi))
            tied = row.min_cut_gap is not None and row.min_cut_gap < TIE
            (curve.tied if tied else curve.clear).append(row)
    return [found[chi] for chi in sorted(found)]


def panels(drawn: list[Curve]) -> list[Panel]:
    """Return the frames: values to the left and their errors to the right."""
    from trgbench import ising

    def magnitude(error: float | None) -> float | None:
        # Zero has no place on a logarithmic axis, and what is not finite has none anywhere.
        return abs(error) if error is not None and math.isfinite(error) and error else None

    frames = [
        Panel("internal energy u per site", lambda row: row.u, ising.energy),
        Panel("|u − u_exact|", lambda row: magnitude(row.u_error)),
    ]
    if any(row.specific_heat is not None for curve in drawn for row in [*curve.clear, *curve.tied]):
        frames += [
            Panel("specific heat C per site", lambda row: row.specific_heat, ising.specific_heat),
            Panel("|C − C_exact|", lambda row: magnitude(row.specific_heat_error)),
        ]
    return frames


def exact_curve(panel: Panel, drawn: list[Curve]) -> tuple[list[float], list[float]]:
    """Return β and Onsager's values, denser towards β_c, where the curves bend."""
    from trgbench.ising import BETA_CRITICAL

    assert panel.exact is not None
    betas = [row.beta for curve in drawn for row in [*curve.clear, *curve.tied]]
    low, high = min(betas), max(betas)
    grid = [low + (high - low) * i / (CURVE_POINTS - 1) for i in range(CURVE_POINTS)]
    near = [BETA_CRITICAL + sign * (high - low) * 0.7**i for i in range(3, 40) for sign in (-1, 1)]
    grid = sorted([*grid, *(beta for beta in near if low <= beta <= high)])
    pairs = [(beta, value) for beta in grid if math.isfinite(value := panel.exact(beta))]
    return [beta for beta, _ in pairs], [value for _, value in pairs]


def top(panel: Panel, drawn: list[Curve]) -> float | None:
    """Return the upper end of a frame whose exact curve has none."""
    if not panel.title.startswith("specific heat"):
        return None
    values = [panel.value(row) for curve in drawn for row in curve.clear]
    return HEIGHT * max((value for value in values if value is not None), default=1.0)


def draw(path: Path, rows: Iterable[Row]) -> None:
    """Draw the rows, replacing the file.

    Raises:
        InputError: if no point has a result.
    """
    drawn = curves(rows)
    if not drawn:
        raise InputError(f"nothing to draw in {path}: no point has a result")
    common = next(row for curve in drawn for row in [*curve.clear, *curve.tied])
    title = f"2D Ising model by TRG, {common.steps} steps ({common.backend}, {common.mode})"
    with replacing(path) as temporary:
        {"png": _png, "html": _html}[path.suffix.lower()[1:]](temporary, title, drawn, panels(drawn))


def _points(panel: Panel, rows: Sequence[Row]) -> tuple[list[float], list[float | None]]:
    return [row.beta for row in rows], [panel.value(row) for row in rows]


def _png(path: Path, title: str, drawn: list[Curve], frames: list[Panel]) -> None:
    from matplotlib.figure import Figure  # not pyplot, which would look for a screen

    from trgbench.ising import BETA_CRITICAL

    figure = Figure(figsize=(10, 1.2 + 3.4 * len(frames) / 2), layout="constrained")
    figure.suptitle(title, fontsize=11)
    axes = figure.subplots(len(frames) // 2, 2, sharex=True, squeeze=False)
    for axis, panel in zip(axes.flat, frames, strict=True):
        axis.axvline(BETA_CRITICAL, color=EXACT, lw=0.8, ls=":", label="β_c")
        if panel.exact is not None:
            axis.plot(*exact_curve(panel, drawn), color=EXACT, lw=1.0, label="Onsager")
        else:
            axis.set_yscale("log")
        for number, curve in enumerate(drawn):
            colour, marker = COLOURS[number % len(COLOURS)], MARKERS[number % len(MARKERS)]
            line = {"ls": "none"} if panel.exact is not None else {"ls": "-", "lw": 0.8}
            betas, values = _points(panel, curve.clear)
            small = 3.0 if len(betas) < 200 else 1.5
            axis.plot(
                *(betas, [math.nan if value is None else value for value in values]),
                **line,
                color=colour,
                marker=marker,
                ms=small,
                alpha=0.8,
                label=f"χ = {curve.chi}",
            )
            betas, values = _points(panel, curve.tied)
            if betas:
                axis.plot(
                    *(betas, [math.nan if value is None else value for value in values]),
                    ls="none",
                    color=colour,
                    marker=marker,
                    mfc="none",
                    ms=7,
                    label=f"χ = {curve.chi}, tie at a cut",
                )
        axis.set_title(panel.title, fontsize=10)
        axis.grid(alpha=0.25)
        if (end := top(panel, drawn)) is not None:
            axis.set_ylim(0, end)
    for axis in axes[-1]:
        axis.set_xlabel("β")
    axes.flat[0].legend(fontsize=8)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # a logarithmic axis of a single value
        figure.savefig(path, format="png", dpi=200)


def _html(path: Path, title: str, drawn: list[Curve], frames: list[Panel]) -> None:
    from plotly.subplots import make_subplots

    from trgbench.ising import BETA_CRITICAL

    figure = make_subplots(
        rows=len(frames) // 2,
        cols=2,
        shared_xaxes="all",
        subplot_titles=[panel.title for panel in frames],
        vertical_spacing=0.08,
        horizontal_spacing=0.07,
    )
    for place, panel in enumerate(frames):
        cell = {"row": place // 2 + 1, "col": place % 2 + 1}
        figure.add_vline(BETA_CRITICAL, line={"dash": "dot", "width": 1, "color": EXACT}, **cell)
        if panel.exact is not None:
            betas, exact = exact_curve(panel, drawn)
            line = {"color": EXACT, "width": 1.5}
            _trace(figure, cell, "Onsager", place == 0, x=betas, y=exact, mode="lines", line=line)
        for number, curve in enumerate(drawn):
            colour = COLOURS[number % len(COLOURS)]
            mode = "markers" if panel.exact is not None else "lines+markers"
            for rows, name, marker in (
                (curve.clear, f"χ = {curve.chi}", {"size": 5, "color": colour}),
                (
                    curve.tied,
                    f"χ = {curve.chi}, tie at a cut",
                    {"size": 10, "color": colour, "symbol": "circle-open"},
                ),
            ):
                if rows:
                    betas, values = _points(panel, rows)
                    _trace(
                        figure,
                        cell,
                        name,
                        place == 0,
                        x=betas,
                        y=values,
                        marker=marker,
                        mode=mode if rows is curve.clear else "markers",
                        line={"color": colour, "width": 1},
                        text=[_hover(row) for row in rows],
                        hovertemplate="%{text}<br>%{y}<extra>%{fullData.name}</extra>",
                    )
        if panel.exact is None:
            figure.update_yaxes(type="log", exponentformat="power", **cell)
        elif (end := top(panel, drawn)) is not None:
            figure.update_yaxes(range=[0, end], **cell)
    figure.update_xaxes(title_text="β", row=len(frames) // 2)
    figure.update_layout(
        title=f"{title}; dotted: β_c = {BETA_CRITICAL:.6f}",
        template="plotly_white",
        height=200 + 380 * len(frames) // 2,
        legend={"tracegroupgap": 2},
    )
    figure.write_html(path, include_plotlyjs=True, full_html=True)


def _trace(figure: Any, cell: dict[str, int], name: str, listed: bool, **what: Any) -> None:
    """Add a trace that the legend switches in all frames at once."""
    from plotly.graph_objects import Scatter

    figure.add_trace(Scatter(name=name, legendgroup=name, showlegend=listed, **what), **cell)


def _hover(row: Row) -> str:
    gap = "nothing cut" if row.min_cut_gap == 1 else f"gap at a cut {row.min_cut_gap:.2g}"
    return f"β = {row.beta!r}, χ = {row.chi}<br>{gap}, {row.seconds:.2g} s on {row.worker}"
