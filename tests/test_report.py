"""The report: what it draws, what it says where there is nothing to draw, and how a browser takes it."""

from __future__ import annotations

import copy
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from trgbench.study.claims import FAILS, HOLDS, UNMEASURED

pytest.importorskip("matplotlib", reason="the extra `report` is not installed")
pytest.importorskip("jinja2", reason="the extra `report` is not installed")

from trgbench.study import plots, report

PLOTS = ("time-over-n-1", "time-over-n-2", "depth", "whole-graph", "trg-by-mode", "nth-vector", "nth-trg")
HOSTILE = "</td><script>alert(1)</script><img src=x onerror=alert(1)> \"' & $\\frac{1}$ {{ 7*7 }} {% raw %}"


def table(id: str, columns: str, rows: list[list[Any]], notes: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return a table; columns are separated by `|`, `*` marks a parameter and `:s` a time."""
    heads = [
        {
            "name": name.strip("*").removesuffix(":s"),
            "unit": "s" if name.endswith(":s") else "",
            "parameter": name[0] == "*",
        }
        for name in columns.split("|")
    ]
    return {"id": id, "title": f"table {id}", "columns": heads, "rows": rows, "notes": list(notes)}


def experiment(number: int, id: str, *tables: dict[str, Any]) -> dict[str, Any]:
    date = "2026-01-01T00:00:00+00:00"
    entry = {"id": id, "number": number, "title": f"Experiment {id}?", "date": date, "seconds": 1.0}
    return {**entry, "data": {}, "tables": list(tables)}


def claim(id: str, verdict: str) -> dict[str, Any]:
    return {
        "id": id,
        "experiment": "depth",
        "about": "native",
        "statement": f"statement of {id}",
        "source": {"figure": "13 times", "machine": "M2 Max, macOS"},
        "better": None,
        "criterion": "at most 5",
        "value": 4.2,
        "measured": "4.2 times",
        "verdict": verdict,
        "reason": f"reason of {id}",
    }


@pytest.fixture
def results() -> dict[str, Any]:
    columns = "native eager forward:s|native eager backward:s|native eager:s|native traced:s|jax traced:s"
    times = [[n, 1e-5 + n * 1e-9, 2e-5, 3e-5 + n * 1e-8, 1e-5 + n * 1e-8, None] for n in (10, 1000, 10**6)]
    depths = [[n, 1e-5 * n, 2e-5 * n, 3e-5 * n, 1e-5 * n, 2e-4 * n] for n in (10, 100, 400)]
    graph = (
        "*steps|native eager forward:s|native eager backward:s|native traced: trace:s"
        "|native traced: compile:s|native traced: operations|native traced: run:s"
    )
    steps = [[n, 1e-3 * n, 2e-3 * n, 0.01 * n, 0.02 * n, 200 * n, 2e-3 * n] for n in (1, 4, 20)]
    first = "*backend|*mode|import:s|trace:s|compile:s|total:s|steady:s"
    staged = [[beta, "torch", "eager-staged", -0.7, 0.5 + beta] for beta in (0.3, 0.4, 0.5)]
    machine = {"cpu": "a CPU", "architecture": "x86_64", "cpus": 2, "memory": 2**34, "system": "Linux"}
    return {
        "format": 1,
        "quick": False,
        "date": "2026-01-01T00:00:00+00:00",
        "machine": machine,
        "versions": {"python": "3.11.7", "trgbench": "0", "numpy": "2", "scipy": "1"},
        "missing": {"jax": "not installed; install it with: pip install 'trgbench[jax]'"},
        "experiments": [
            experiment(
                4,
                "time-over-n",
                table("time-over-n-1", f"*n|{columns}", times, ("jax traced: not installed",)),
                table("time-over-n-2", f"*n|{columns}", times),
            ),
            experiment(
                5,
                "first-time",
                table(
                    "first-time",
                    first,
                    [
                        ["native", "eager", 0.5, None, None, 1e-3, 6e-5],
                        ["native", "traced", 0.5, 1e-3, 1e-3, 3e-3, 2e-5],
                        ["jax", "traced", None, None, None, None, None],
                    ],
                ),
            ),
            experiment(6, "depth", table("depth", f"*depth|{columns}", depths)),
            experiment(7, "whole-graph", table("whole-graph", graph, steps)),
            experiment(8, "staged", table("staged", "*beta|*backend|*mode|u|gradient:s", staged)),
            experiment(9, "cache", table("cache", "*beta|entries|hits", [[0.3, 7, 37], [0.4, 7, 81]])),
        ],
        "claims": [claim("one", HOLDS), claim("two", FAILS), claim("three", UNMEASURED)],
    }


def test_the_results_here_are_as_the_schema_has_them(results: dict[str, Any]) -> None:
    from trgbench.study.results import validate

    validate(results)


def test_every_plot_is_drawn_from_the_table_beside_it(results: dict[str, Any]) -> None:
    drawn = {plot.id: plot for plot in report.plots(results)}
    assert sorted(drawn) == sorted(PLOTS)
    assert all(plot.svg and f"plot-{plot.id}-mark-0" in plot.svg for plot in drawn.values())
    assert drawn["time-over-n-1"].table is results["experiments"][0]["tables"][0]
    # whole graph: 20 steps forward + backward; in stages: the median over β
    wanted = [["native", "eager", 0.06], ["native", "traced", 0.04], ["torch", "eager-staged", 0.9]]
    rows = drawn["trg-by-mode"].table["rows"]
    assert [row[:2] for row in rows] == [row[:2] for row in wanted]
    assert [row[2] for row in rows] == pytest.approx([row[2] for row in wanted])
    # the N-th gradient of 4 steps: trace + compile + run, then run
    assert drawn["nth-trg"].table["rows"][1] == ["native", "traced", pytest.approx(0.128), 8e-3]


def test_times_that_are_far_apart_are_points_on_a_logarithmic_axis() -> None:
    near = {"title": "near", "rows": [["native", "eager", 1e-3], ["jax", "traced", 0.02]]}
    far = {"title": "far", "rows": [["native", "eager", 1e-3], ["jax", "traced", 0.2]]}
    bars, dots = plots.bars("near", near), plots.bars("far", far)
    assert bars and ">10 ms<" in bars and ">0<" in bars  # the axis begins at zero
    assert dots and ">100 ms<" in dots and ">0<" not in dots
    assert all(f">{time}<" in text for text, time in ((bars, "1 ms"), (bars, "20 ms"), (dots, "200 ms")))


@pytest.mark.parametrize(
    ("costs", "crossings"),
    [
        ([(1.0, 1.0)], []),
        ([(1.0, 1.0), (3.0, 0.5)], [(5.0, 5.0)]),
        ([(1.0, 1.0), (3.0, 2.0)], []),  # behind from the start, and falling back
        ([(1.0, 1.0), (1.0, 0.5)], []),  # the same start: the steady one is the fastest all along
        ([(1.0, 1.0), (3.0, 0.5), (100.0, 0.9), (8.0, 0.25)], [(5.0, 5.0), (21.0, 13.0)]),
    ],
)
def test_break_evens_are_the_corners_of_the_lower_envelope(
    costs: list[tuple[float, float]], crossings: list[tuple[float, float]]
) -> None:
    assert plots.envelope(costs) == crossings  # exact: all are binary fractions


class Page(HTMLParser):
    """The tags of a page with their attributes, and its text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_page_has_every_figure_claim_and_no_address_outside(results: dict[str, Any]) -> None:
    page = Page(report.html(results))
    for name in ("src", "href", "xlink:href", "action", "data", "srcset"):
        found = {attrs[name] or "" for _, attrs in page.tags if name in attrs}
        assert all(re.match(r"#|data:", address) for address in found), found
    assert not {"script", "iframe", "object", "embed", "form"} & {tag for tag, _ in page.tags}
    assert (
        [tag for tag, _ in page.tags].count("svg") == len(PLOTS) == [t for t, _ in page.tags].count("details")
    )
    ids = [attrs["id"] for _, attrs in page.tags if "id" in attrs]
    assert len(ids) == len(set(ids))
    for part in ("✓ holds", "✗ does not hold here", "? could not be measured", "reason of two", "13 times"):
        assert part in page.text
    for part in ("jax was left out: not installed", "a CPU, 2 CPUs", "16 GiB", "numpy 2", "1 holds"):
        assert part in page.text
    assert len(report.html(results)) < 1e6


def test_results_without_times_make_a_page_that_says_so(results: dict[str, Any]) -> None:
    results["experiments"] = [
        experiment(6, "depth", table("depth", "*depth|native eager:s", [[10, None]], ("native: it crashed",)))
    ]
    page = Page(report.html(results))
    assert page.text.count("Nothing to draw") == 2
    assert "native: it crashed" in page.text
    results["experiments"], results["claims"] = [], []
    assert "0 claims" in report.html(results)


def hostile(node: Any) -> Any:
    """Return results with every text that the schema leaves free replaced by a hostile one."""
    free = {"cpu", "architecture", "system", "title", "statement", "figure", "measured", "reason", "better"}
    if isinstance(node, dict):
        return {key: HOSTILE if key in free else hostile(value) for key, value in node.items()}
    if isinstance(node, list):
        return [HOSTILE if isinstance(value, str) else hostile(value) for value in node]
    return node


def test_a_hostile_text_stays_text(results: dict[str, Any]) -> None:
    bad = hostile(results)
    bad["missing"] = {"jax": HOSTILE}
    bad["versions"]["numpy"] = HOSTILE
    page = Page(report.html(bad))
    assert not {"script", "img"} & {tag for tag, _ in page.tags}
    assert not [name for _, attrs in page.tags for name in attrs if name.startswith("on")]
    assert page.text.count(HOSTILE) > 20


# ------------------------------------------------------------------------------------ in a browser


def opened(browser: Any, path: Path, width: int = 1100) -> tuple[Any, list[str]]:
    """Return the page and everything that went on but the opening of the file itself."""
    events: list[str] = []
    page = browser.new_page(viewport={"width": width, "height": 900})
    page.on("console", lambda message: events.append(f"console: {message.text}"))
    page.on("pageerror", lambda error: events.append(f"error: {error}"))
    page.on("dialog", lambda dialog: events.append(f"dialog: {dialog.message}"))
    page.on("request", lambda request: events.append(f"request: {request.url}"))
    page.goto(path.as_uri())
    page.wait_for_load_state("networkidle")
    assert events.pop(0) == f"request: {path.as_uri()}"
    return page, [event for event in events if not event.startswith("request: data:")]


@pytest.mark.parametrize("kind", ["usual", "hostile"])
def test_a_browser_opens_the_page(browser: Any, results: dict[str, Any], tmp_path: Path, kind: str) -> None:
    path = tmp_path / "report.html"
    content = copy.deepcopy(results) if kind == "usual" else hostile(results)
    path.write_text(report.html(content))
    page, events = opened(browser, path)
    assert events == []
    if kind == "usual":
        for name in PLOTS:
            marks = page.locator(f"#figure-{name} [id^='plot-{name}-mark-'] path")
            assert marks.count() > 0, name
            boxes = [mark.bounding_box() for mark in marks.all()]
            assert max(box["width"] for box in boxes if box) > 50, name
            page.locator(f"#figure-{name} summary").click()
            assert page.locator(f"#figure-{name} details td").first.is_visible()
    for width in (1100, 400):
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.close()


def test_the_example_of_the_study_makes_a_page() -> None:
    example = json.loads((Path(__file__).parent / "study_example.json").read_text())
    assert "Claims of the study" in report.html(example)
