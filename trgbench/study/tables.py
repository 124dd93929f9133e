"""Tables of results: as data, on a terminal, in Markdown."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from trgbench.console import duration
from trgbench.study.claims import FAILS, HOLDS, SOURCE_MACHINE

STYLES = {HOLDS: "green", FAILS: "red"}
Columns = Sequence[tuple[str, str]]


def table(
    id: str,
    title: str,
    parameters: Iterable[str],
    columns: Columns,
    rows: Iterable[Sequence[Any]],
    notes: Iterable[str] = (),
) -> dict[str, Any]:
    """Return a table as the schema has it; columns are pairs of name and unit (`s`, `bytes` or none).

    A cell may be what a measurement that is missing left in its place: it stays empty, and its reason becomes
    a note. Rows and columns without a single figure are left out.
    """
    heads = [{"name": name, "unit": "", "parameter": True} for name in parameters]
    heads += [{"name": name, "unit": unit, "parameter": False} for name, unit in columns]
    measured = [i for i, head in enumerate(heads) if not head["parameter"]]
    reasons: dict[str, dict[str, None]] = {}
    cells = []
    for row in rows:
        figures = [None if isinstance(cell, Mapping) else cell for cell in row]
        empty = all(figures[i] is None for i in measured)
        label = " ".join(cell for cell in row[: measured[0]] if isinstance(cell, str)) if empty else ""
        for i in measured:
            if isinstance(row[i], Mapping):
                reasons.setdefault(row[i]["missing"], {})[label or str(heads[i]["name"])] = None
        if not empty:
            cells.append(figures)
    kept = [
        i for i, head in enumerate(heads) if head["parameter"] or any(row[i] is not None for row in cells)
    ]
    return {
        "id": id,
        "title": title,
        "columns": [heads[i] for i in kept],
        "rows": [[row[i] for i in kept] for row in cells],
        "notes": [*notes, *(f"{', '.join(which)}: {reason}" for reason, which in reasons.items())],
    }


def pick(data: Any, *path: object) -> Any:
    """Return what stands under `path` in measured data, or the mapping that says why it is missing.

    >>> pick({"jax": {"missing": "not installed"}}, "jax", 1000, "eager")
    {'missing': 'not installed'}
    """
    for key in path:
        if not isinstance(data, Mapping) or "missing" in data:
            break
        data = data.get(str(key))
    return data


def cell_text(value: Any, unit: str) -> str:
    """Return a cell as text.

    >>> cell_text(0.00123, "s"), cell_text(None, "s"), cell_text(0.25, ""), cell_text(2048, "bytes")
    ('1.23 ms', '-', '0.25', '2 KiB')
    """
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return value
    if unit == "s":
        return duration(value)
    if unit == "bytes":
        return f"{value / 2**20:.3g} MiB" if value >= 2**20 else f"{value / 2**10:.3g} KiB"
    return str(value) if isinstance(value, int) else f"{value:.4g}"


def drawn(content: Mapping[str, Any]) -> Table:
    """Return a table for a terminal."""
    result = Table(title=content["title"], title_justify="left", caption="\n".join(content["notes"]) or None)
    result.caption_justify = "left"
    for column in content["columns"]:
        result.add_column(column["name"], justify="right", overflow="fold")
    for row in content["rows"]:
        texts = (
            cell_text(cell, column["unit"]) for cell, column in zip(row, content["columns"], strict=True)
        )
        result.add_row(*map(Text, texts))
    return result


def ledger(claims: Iterable[Mapping[str, Any]]) -> Table:
    """Return the ledger of claims for a terminal; colour repeats what the verdict says in words."""
    title = "Claims of the study, and what holds on this machine"
    result = Table(title=title, title_justify="left", expand=True)
    result.add_column("verdict", no_wrap=True)
    result.add_column("claim", ratio=5, overflow="fold")
    result.add_column(f"the study ({SOURCE_MACHINE})", ratio=2, overflow="fold")
    result.add_column("here", ratio=2, overflow="fold")
    last = None
    for claim in claims:
        if last not in (None, claim["experiment"]):
            result.add_section()
        last = claim["experiment"]
        statement = Text(f"{claim['id']} ({claim['about']})\n", "bold").append(claim["statement"], "not bold")
        if claim["better"]:
            statement.append(f"\nmeant to be better than tenferro: {claim['better']}", "not bold italic")
        result.add_row(
            Text(claim["verdict"], STYLES.get(claim["verdict"], "yellow")),
            statement,
            Text(claim["source"]["figure"]),
            Text(claim["measured"] or claim["reason"]),
        )
    return result


def markdown(results: Mapping[str, Any], summary: Callable[[Any], str]) -> str:
    """Return the whole study as a Markdown document."""
    machine, versions = results["machine"], results["versions"]
    lines = [
        "# Eager or traced: the study on this machine",
        "",
        f"{machine['cpu']}, {machine['cpus']} CPUs, {machine['system']}; "
        + ", ".join(f"{name} {version}" for name, version in versions.items())
        + f"; {results['date']}"
        + (" (quick)" if results["quick"] else ""),
        "",
        *(f"- {name} was left out: {reason}" for name, reason in results["missing"].items()),
    ]
    for experiment in results["experiments"]:
        lines += ["", f"## {experiment['number']}. {experiment['title']}"]
        for content in experiment["tables"]:
            lines += ["", f"**{content['title']}**", ""]
            lines += _pipes(
                [column["name"] for column in content["columns"]],
                [
                    [
                        cell_text(cell, column["unit"])
                        for cell, column in zip(row, content["columns"], strict=True)
                    ]
                    for row in content["rows"]
                ],
            )
            lines += ["", *(f"- {note}" for note in content["notes"])]
    heads = ["claim", "about", "statement", f"the study ({SOURCE_MACHINE})", "here", "verdict"]
    rows = [
        [
            claim["id"],
            claim["about"],
            claim["statement"]
            + (f" *Meant to be better than tenferro: {claim['better']}*" if claim["better"] else ""),
            claim["source"]["figure"],
            claim["measured"],
            f"**{claim['verdict']}**: {claim['reason']}",
        ]
        for claim in results["claims"]
    ]
    lines += ["", "## Claims", "", summary(results["claims"]), "", *_pipes(heads, rows)]
    return "\n".join(lines) + "\n"


def _pipes(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = [heads, ["---"] * len(heads), *rows]
    return ["| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines]
