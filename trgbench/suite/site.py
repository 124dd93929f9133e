"""Publishing: into a folder aside, looked through, and only then in the place of the old dashboard."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import Any

from asv.commands.publish import Publish
from asv.config import Config


class EmptySite(RuntimeError):
    """asv published without an error and there is nothing to see (asv does so on a shallow clone)."""


def publish(conf: Config, html: Path) -> int:
    """Publish asv's records to `html` and return how many numbers it shows; an old site survives a failure.

    Raises:
        EmptySite: if the new site shows no number.
    """
    aside = Path(".asv/html.new")
    conf.html_dir = str(aside)
    Publish.run(conf, pull=False)
    numbers = count_numbers(aside)
    if not numbers:
        raise EmptySite(
            f"asv published a dashboard without a single number; {html} is left as it was. "
            f"On a shallow clone, fetch the history: git fetch --unshallow"
        )
    old = Path(".asv/html.old")
    shutil.rmtree(old, ignore_errors=True)
    if html.exists():
        html.rename(old)
    html.parent.mkdir(parents=True, exist_ok=True)
    aside.rename(html)
    shutil.rmtree(old, ignore_errors=True)
    return numbers


def count_numbers(site: Path) -> int:
    """Return how many finite numbers the graphs of a published site show.

    Raises:
        ValueError: if a graph holds NaN or an infinity, which no browser can read.
    """
    benchmarks = json.loads((site / "index.json").read_text())["benchmarks"]
    total = 0
    for graph in (site / "graphs").rglob("*.json"):
        if graph.stem in benchmarks and graph.parent.name != "summary":
            total += sum(_finite(value) for _, value in json.loads(graph.read_text(), parse_constant=_refuse))
    return total


def _finite(value: Any) -> int:
    if isinstance(value, list):
        return sum(map(_finite, value))
    return value is not None and math.isfinite(value)


def _refuse(constant: str) -> float:
    raise ValueError(f"a published graph holds {constant}, which is not JSON")
