"""The table of native against its peers: right results only, real ratios, honest extrapolation."""

from __future__ import annotations

import itertools
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from trgbench.problems import WrongResult
from trgbench.speed import rows, tasks
from trgbench.speed.cells import CELLS, RACES, Cell, Contender, Race
from trgbench.study.lab import Lab

SMALL = ("vector", 3)
EAGER, TRACED = (Contender("native", mode, SMALL) for mode in ("eager", "traced"))


def test_every_part_has_a_title_of_its_own() -> None:
    assert len(rows.PARTS) == len(CELLS) + len(RACES) + 6


def test_a_ratio_is_taken_in_a_fresh_process_and_names_its_peer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "WARM_SECONDS", 0.1)
    [row] = rows.steady(Lab(), Cell("small", 100.0, (TRACED, EAGER), (EAGER,)))
    assert row.figure is not None
    assert 0.01 < row.figure < 100
    assert row.verdict == "yes"
    assert "native eager" in row.said
    low, high = row.details["interval"]
    assert low <= row.figure <= high


def test_a_time_to_the_nth_gradient_grows_with_n_and_is_extrapolated() -> None:
    found = tasks.race(EAGER.request, [1, 10, 10**9], limit=0.2)
    assert 0 < found["times"][0] < found["times"][1] < found["times"][2]
    assert found["measured"] < 10**6
    each = (found["times"][2] - found["times"][1]) / (10**9 - 10)
    assert each < 0.01
    course = list(rows.race(Lab(), Race("small", (EAGER, TRACED), (EAGER,))))
    assert [row.figure is not None and row.figure <= 1.5 for row in course] == [True] * len(course)


@pytest.mark.parametrize("part", [0, 1])
def test_a_wrong_result_is_no_figure(part: int) -> None:
    _, call = tasks.prepare(EAGER.request)
    result: list[Any] = list(call())
    tasks.right(EAGER.request, (result[0], result[1]))
    result[part] = result[part] + 1e-9
    with pytest.raises(WrongResult):
        tasks.right(EAGER.request, (result[0], result[1]))


def test_native_modes_that_differ_in_a_bit_are_no_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    count = itertools.count()
    right = tasks.right
    monkeypatch.setattr(tasks, "right", lambda *given: right(*given) + bytes([next(count)]))
    with pytest.raises(WrongResult, match="differ in bits"):
        tasks.steady([EAGER.request, TRACED.request], [EAGER.request], [], warm=0.0)


def test_what_cannot_be_measured_says_why() -> None:
    nowhere = Contender("native", "sideways", SMALL)
    [row] = rows.steady(Lab(), Cell("small", 1.0, (nowhere,), (EAGER,)))
    assert row.figure is None
    assert row.verdict == "not measured"
    assert "sideways" in row.said


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--list"], 0, "chain, 400 layers, eager"),
        (["--only", "no such part"], 2, "--list shows them"),
        (["--only", "("], 2, "no regular expression"),
        (["--json", "/nowhere/speed.json"], 2, "cannot write /nowhere/speed.json"),
    ],
)
def test_the_command_line(arguments: list[str], code: int, said: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "trgbench.speed", *arguments],
        cwd=Path(__file__).parent.parent,
        capture_output=True,
        text=True,
    )
    assert done.returncode == code, done.stderr
    assert said in done.stdout + done.stderr
