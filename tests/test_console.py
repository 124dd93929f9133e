"""What the command line writes with."""

import io
import json
import math
import sys
import time

import pytest

from trgbench.console import Progress, strict_json


def test_strict_json_has_no_nan() -> None:
    text = strict_json({"a": math.nan, "b": [math.inf, 1.0], "c": {"d": -math.inf}, "e": 0.1})
    assert json.loads(text, parse_constant=pytest.fail) == {
        "a": None,
        "b": [None, 1.0],
        "c": {"d": None},
        "e": 0.1,
    }


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    with Progress() as progress:
        progress("quick")
    assert terminal.getvalue() == ""
    monkeypatch.setattr(Progress, "DELAY", 0.01)
    with Progress() as progress:
        progress("one [thing]")
        time.sleep(0.2)
        progress("another")
    assert "one [thing]" in terminal.getvalue()
    assert "another" in terminal.getvalue()


def test_progress_elsewhere_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", stream := io.StringIO())
    monkeypatch.setattr(Progress, "DELAY", 0.01)
    with Progress() as progress:
        progress("thing")
        time.sleep(0.05)
    assert stream.getvalue() == ""
