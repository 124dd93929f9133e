"""asv's records of one commit on one machine, read through asv's own classes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from asv.benchmarks import Benchmarks
from asv.config import Config
from asv.results import Results, iter_results_for_machine_and_hash


@dataclass(frozen=True)
class Record:
    """What asv recorded for one combination of parameters; `stats` has the interval of what was sampled."""

    benchmark: str
    parameters: dict[str, str]
    value: float | None
    stats: dict[str, Any] | None

    @property
    def outcome(self) -> str:
        """`measured`, `skipped` (asv's NaN) or `failed` (asv's null, or a value that is no number)."""
        if self.value is None or math.isinf(self.value):
            return "failed"
        return "skipped" if math.isnan(self.value) else "measured"

    def __str__(self) -> str:
        values = ", ".join(f"{name}={value}" for name, value in self.parameters.items())
        return f"{self.benchmark}({values})"


def read(results: Path, machine: str, environment: str, commit: str) -> list[Record]:
    """Return all records of `commit` on `machine` in `environment`, of benchmarks as they are now defined."""
    conf = Config()
    conf.results_dir = str(results)
    conf.benchmark_dir = "benchmarks"
    benchmarks = Benchmarks.load(conf)
    found = iter_results_for_machine_and_hash(conf.results_dir, machine, commit)
    return [
        record
        for result in found
        if result.env_name == environment
        for record in of_results(result, benchmarks)
    ]


def of_results(result: Results, benchmarks: Benchmarks) -> Iterator[Record]:
    """Yield the records of one results file, of benchmarks as they are now defined."""
    for name in sorted(result.get_result_keys(benchmarks)):
        benchmark = benchmarks[name]
        combinations = itertools.product(*benchmark["params"])
        values = result.get_result_value(name, benchmark["params"])
        stats = result.get_result_stats(name, benchmark["params"])
        for combination, value, stat in zip(combinations, values, stats, strict=True):
            parameters = {
                key: text.strip("'") for key, text in zip(benchmark["param_names"], combination, strict=True)
            }
            yield Record(name, parameters, value, stat)
