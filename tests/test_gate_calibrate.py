"""The gate's calibration: it counts, it goes on, and what it plants is as slow as it says."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("asv_runner")

from trgbench.errors import InputError
from trgbench.suite.gate.calibrate import TRIALS, Trial, calibrate, table

BUSY = """
import time

def busy():
    end = time.thread_time() + 0.002
    while time.thread_time() < end: pass
"""
CASES = """
import time
import trgbench

class Case:
    version, unit, number, timer = "1", "things", 1, time.thread_time

    def time_busy(self):
        trgbench.busy()

    def track_value(self):
        return 1.0

Case.track_value.tolerance = 0.0
"""


def test_a_calibration_counts_and_goes_on(scratch: Callable[..., Any], tmp_path: Path) -> None:
    made = scratch(BUSY, benchmarks__cases=CASES)
    trials = (
        Trial("same", "no change", 1, only="value"),
        Trial("busy", "slower", 1, "__init__.py", "busy = _slower(busy, 1.5)\n", "time_busy"),
    )
    kept, told = tmp_path / "calibration.json", []
    content = calibrate(made.root, "HEAD", kept, lambda *doing: told.append(doing), trials)
    assert [(run["trial"], run["exit_code"]) for run in content["runs"]] == [("same", 0), ("busy", 1)]
    assert content["runs"][1]["benchmarks"][0]["effect"]["factor"] == pytest.approx(1.5, abs=0.1)
    lines = table(content, trials).splitlines()
    assert lines[2].startswith("| no change | 1 | 1 | 0 | 0 |")
    assert lines[3].startswith("| slower | 1 | 0 | 1 | 0 |")
    before = kept.read_text()
    assert told
    told.clear()
    assert calibrate(made.root, "HEAD", kept, lambda *doing: told.append(doing), trials) == content
    assert (told, kept.read_text()) == ([], before)
    made.commit("another")
    with pytest.raises(InputError, match="another commit"):
        calibrate(made.root, "HEAD", kept, lambda *doing: None, trials)
    kept.write_text("[1]")
    with pytest.raises(InputError, match="no calibration"):
        calibrate(made.root, "HEAD", kept, lambda *doing: None, trials)


@pytest.mark.parametrize("trial", [trial for trial in TRIALS if trial.plant], ids=lambda trial: trial.name)
def test_a_planted_copy_is_another_package_that_computes_the_same(trial: Trial, tmp_path: Path) -> None:
    from trgbench.suite.gate import calibrate as module

    copy = tmp_path / "trgbench"
    source = Path(module.__file__).parents[2]
    subprocess.run(["cp", "-r", str(source), str(copy)], check=True)
    with (copy / trial.module).open("a") as file:
        file.write(module.SLOWER + trial.plant)
    code = (
        "import cProfile, trgbench; from trgbench import backends, problems\n"
        "p = backends.get('native').prepare(problems.vector(5), 'eager'); x = p.problem.example\n"
        "with cProfile.Profile() as profile: p.problem.check(x, *p(x))\n"
        "print(trgbench.__file__, 'call' in {entry.code.co_name for entry in profile.getstats() "
        "if not isinstance(entry.code, str)})"
    )
    env = os.environ | {"PYTHONPATH": str(tmp_path)}
    done = subprocess.run([sys.executable, "-P", "-c", code], env=env, capture_output=True, text=True)
    assert done.stdout.split() == [str(copy / "__init__.py"), "True"], done.stderr
