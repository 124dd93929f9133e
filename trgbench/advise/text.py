"""Advice as a text for people."""

from __future__ import annotations

from rich.console import Group
from rich.table import Table
from rich.text import Text

from trgbench.advise.advice import MODEL, Advice, recommendation
from trgbench.study.tables import cell_text


def report(advice: Advice) -> Group:
    """Return the advice for a terminal."""
    question = advice.question
    n = question.evaluations
    branches = ", branches on values" if question.value_branches else ""
    head = Text(f"{question.setting}, {n:,} gradients{branches}\n{MODEL[question.setting.changing_shape]}\n")
    parts: list[Table | Text] = [head]
    if advice.times:
        parts += [
            Text(f"Time to gradient {n:,}", "italic"),
            _times(advice),
            Text("memory: rise during one warm gradient; process: peak, with library and compiler\n"),
        ]
    if len(advice.times) > 1:
        parts += [
            Text(
                "Break-even: the N from which on the row is ahead of the column (numbers as above)", "italic"
            ),
            _break_evens(advice),
            Text("1: from the start, until the other's number if it has one; -: never\n"),
        ]
    if advice.excluded:
        parts += [Text("Excluded", "italic"), _excluded(advice), Text()]
    return Group(*parts, Text(recommendation(advice), "bold"))


def _times(advice: Advice) -> Table:
    changing = advice.question.setting.changing_shape
    table = _table()
    heads = ("trace", "compile", "prepare", "first", "each new shape" if changing else "steady", "total")
    table.add_column("", justify="right")
    table.add_column("backend and mode")
    for name in (*heads, "memory", "process"):
        table.add_column(name, justify="right")
    for number, (key, seconds) in enumerate(advice.times.items(), 1):
        costs = advice.costs[key]
        spent = (costs.trace, costs.compile, costs.prepare, costs.first, costs.each, seconds)
        texts = [cell_text(part, "s") for part in spent]
        texts += [cell_text(part, "bytes") for part in (costs.memory, costs.process)]
        table.add_row(f"{number}", str(key), *texts, style="bold" if number == 1 else "")
    return table


def _break_evens(advice: Advice) -> Table:
    table = _table()
    keys = list(advice.times)
    table.add_column("", justify="right")
    for number in range(1, len(keys) + 1):
        table.add_column(f"{number}", justify="right")
    for number, a in enumerate(keys, 1):
        cells = (advice.break_evens.get((a, b)) for b in keys)
        texts = ("" if a == b else _short(cell) for b, cell in zip(keys, cells, strict=True))
        table.add_row(f"{number}", *texts)
    return table


def _short(number: int | None) -> str:
    """Return a count in at most five characters.

    >>> _short(None), _short(950), _short(1234567)
    ('-', '950', '1.2e6')
    """
    if number is None:
        return "-"
    return str(number) if number < 100_000 else f"{number:.1e}".replace("e+0", "e").replace("e+", "e")


def _excluded(advice: Advice) -> Table:
    table = _table()
    table.add_column("backend and mode", no_wrap=True)
    table.add_column("why", overflow="fold")
    for key, reason in advice.excluded.items():
        table.add_row(str(key), Text(reason))
    return table


def _table() -> Table:
    return Table(box=None, pad_edge=False)
