"""The nightly, run for real on scratch repositories: what it flags, what it keeps, and what stops it."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("asv")

from asv.results import Results
from asv.runner import BenchmarkResult

from trgbench.__main__ import main
from trgbench.suite import nightly, site
from trgbench.suite.commits import Commit
from trgbench.suite.journal import Verdict

Make = Callable[..., Any]
TIMED_GATE = "\nStep.time_step.gate, Figure.track_figure.gate = {}, None\n"


def test_a_slower_commit_is_flagged_and_nothing_is_measured_twice(scratch: Make) -> None:
    repository = scratch(1.0, 1.0)
    last = repository.commit("slower by plan", "def step(): pass\ndef figure(n): return 1.3 * n\n")
    report, said = repository.nightly("--markdown", "report.md")
    assert report["outcome"] == "slower"
    assert [night["outcome"] for night in report["commits"]] == ["fine", "fine", "slower"]
    flagged = report["commits"][-1]
    assert (flagged["commit"], flagged["verdict"]["base"]) == (last, report["commits"][1]["commit"])
    assert flagged["verdict"]["says"][-1].startswith("tiny.Figure.track_figure(")
    assert f"slower: {last[:8]} slower by plan" in said
    assert "**worse**" in (repository.root / "report.md").read_text()
    assert report["published"] == site.count_numbers(repository.root / "html") == 9

    before = repository.records()
    assert len(before) == 3
    again, _ = repository.nightly()
    assert (again["news"], again["outcome"]) == (False, "slower")  # as long as nobody mends it
    assert repository.records() == before


@pytest.mark.slow
def test_what_is_slower_stays_so_until_it_is_mended_or_accepted(scratch: Make) -> None:
    package = "# {}\nimport time\ndef step(): time.sleep({})\ndef figure(n): return n\n"
    repository = scratch(package.format(0, 0.01), package.format(1, 0.02))
    with (repository.root / "benchmarks" / "tiny.py").open("a") as file:
        file.write(TIMED_GATE)
    last = repository.commit("something else, and timed by the gate", package.format(2, 0.02))
    report, _ = repository.nightly()
    assert [night["verdict"]["state"] for night in report["commits"]] == ["good", "slower", "slower"]
    first, second = report["commits"][1:]
    assert re.fullmatch(r"tiny\.Step\.time_step x (1\.9|2\.0).*", first["verdict"]["says"][-1])
    assert second["verdict"]["base"] == report["commits"][0]["commit"]  # the last good one, not the last
    assert f"so already at {first['commit'][:8]}" in " ".join(second["verdict"]["says"])
    before = repository.records()
    accepted, _ = repository.nightly("--accept", last)
    assert (accepted["outcome"], accepted["commits"][0]["verdict"]["state"]) == ("fine", "accepted")
    assert repository.records() == before
    repository.commit("on top", package.format(3, 0.02))
    report, _ = repository.nightly()
    assert (report["outcome"], report["commits"][0]["verdict"]["base"]) == ("fine", last)


@pytest.mark.slow
def test_commits_that_cannot_be_measured_show_as_what_they_are(scratch: Make) -> None:
    repository = scratch(1.0)
    install = (repository.root / "install.py").read_text()
    broken = repository.commit(
        "no build", "def step(:\n", install=f"raise SyntaxError('no build')\n{install}"
    )
    shutil.rmtree(repository.root / "trgbench")
    lacking = repository.commit("no package", None, install=install)
    empty = repository.commit("no contract", "")
    good = repository.commit("good again", "def step(): pass\ndef figure(n): return 1.0 * n\n")
    report, said = repository.nightly()
    nights = {night["commit"]: night for night in report["commits"]}
    assert report["outcome"] == "broken"
    reasons = {
        commit: {failure["reason"] for failure in nights[commit]["failures"]}
        for commit in (broken, lacking, empty)
    }
    assert reasons[broken] == {"does not build: SyntaxError: no build"}
    [reason] = reasons[lacking]
    assert reason.startswith("does not build: FileNotFoundError")
    assert reasons[empty] == {
        f"raised AttributeError: module 'trgbench' has no attribute '{name}'" for name in ("step", "figure")
    }
    for commit in (broken, lacking, empty):
        assert (nights[commit]["outcome"], nights[commit]["measured"]) == ("broken", 0)
        assert nights[commit]["verdict"]["state"] == "undecided"
    # The rest is measured, and compared with the last that could be.
    assert (nights[good]["outcome"], nights[good]["measured"]) == ("fine", 3)
    assert nights[good]["verdict"]["base"] == report["commits"][0]["commit"]
    assert report["published"] == 6
    before = repository.records()
    assert len(before) == 5
    assert repository.nightly()[0]["outcome"] == "fine"
    assert repository.records() == before
    assert "does not build" in said


TROUBLES = """
import ctypes, os, time
import trgbench

class Trouble:
    version, unit, timeout = "1", "things", 8.0  # on a busy machine Python takes seconds to start
    whats = "raises", "hangs", "crashes", "nan", "inf", "text", "is killed", "leaves", "is skipped", "is fine"
    params = (list(whats),)
    param_names = ["what"]

    def setup(self, what):
        if what == "is skipped":
            raise NotImplementedError("not here")

    def track_trouble(self, what):
        if what == "raises":
            raise ValueError("boom <b>\\nand more")
        if what == "is killed":
            print("hello", flush=True)
            os.kill(os.getpid(), 9)
        if what == "hangs":
            time.sleep(1000)
        if what == "crashes":
            ctypes.string_at(0)
        if what == "leaves":
            os._exit(7)
        return {"is fine": 1.0, "nan": float("nan"), "inf": float("inf"), "text": "many"}[what]
"""


def test_benchmarks_that_give_no_figure_show_as_what_they_are(scratch: Make) -> None:
    repository = scratch(1.0, benchmarks__trouble=TROUBLES)
    report, _ = repository.nightly()
    [night] = report["commits"]
    assert (report["outcome"], night["measured"]) == ("broken", 4)
    assert {failure["parameters"].strip("'"): failure["reason"] for failure in night["failures"]} == {
        "raises": "raised ValueError: boom <b>",
        "hangs": "timed out: no word for 8 s",
        "crashes": "crashed: Segmentation fault",
        "nan": "returned nan",
        "inf": "returned inf",
        "text": "returned many",
        "is killed": "ended without a result",
        "leaves": "ended without a result (exit code 7)",
    }
    [content] = repository.records().values()
    assert content["results"]["trouble.Trouble.track_trouble"][0][:8] == [None] * 8
    assert report["published"] == 4
    before = repository.records()
    again, said = repository.nightly()
    assert (again["outcome"], again["commits"][0]["failures"]) == ("broken", night["failures"])
    assert repository.records() == before
    assert "timed out" in said


def shallow(repository: Any) -> None:
    whole = repository.root.rename(repository.root.with_name("whole"))
    subprocess.run(
        ["git", "clone", "-q", "--depth", "1", f"file://{whole}", str(repository.root)], check=True
    )


def detached(repository: Any) -> None:
    repository.git("checkout", "-q", "--detach")


def without_main(repository: Any) -> None:
    repository.git("branch", "-m", "trunk")


def on_a_branch(repository: Any) -> None:
    repository.git("switch", "-q", "-c", "topic")


def dirty(repository: Any) -> None:
    (repository.root / "benchmarks" / "tiny.py").write_text("raise SystemExit\n")


def untracked(repository: Any) -> None:
    (repository.root / "benchmarks" / "more.py").write_text("")


def foreign(repository: Any) -> None:
    if os.getuid():
        pytest.skip("only root can give a file away")
    for path in (repository.root, *repository.root.rglob("*")):
        os.lchown(path, 12345, 12345)


@pytest.mark.parametrize(
    ("spoil", "remedy"),
    [
        (shallow, "git fetch --unshallow"),
        (detached, "git switch main"),
        (without_main, "git fetch origin main:main"),
        (on_a_branch, "git switch main"),
        (dirty, "git stash"),
        (untracked, "git stash"),
        (foreign, "safe.directory"),
    ],
)
def test_a_checkout_in_trouble_is_a_sentence_and_no_site(
    scratch: Make, spoil: Callable[[Any], None], remedy: str
) -> None:
    repository = scratch(1.0, 1.0)
    spoil(repository)
    done = repository.run("nightly", "--machine", "here")
    assert done.returncode == 3, done.stderr
    assert done.stderr.startswith("trgbench: error: ")
    assert done.stderr.count("\n") == 1
    assert remedy in done.stderr
    assert not (repository.root / "html").exists()
    assert not (repository.root / "results").exists()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("--commits 0", "at least 1"),
        ("--commits many", "whole number"),
        ("--wait -1", "--wait"),
        ("--wait nan", "--wait"),
        ("--profile slow", "full, quick, history, smoke"),
        ("--json /nowhere/report.json", "/nowhere"),
        ("--machine ../../etc", "'../../etc'"),
        ("--machine <script>alert(1)</script>", "letters"),
        ("--accept HEAD", "slower"),
        ("--accept nothing", "names no commit"),
    ],
)
def test_a_request_that_cannot_be_carried_out(
    scratch: Make,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: str,
    says: str,
) -> None:
    repository = scratch(1.0)
    monkeypatch.chdir(repository.root)
    # asv imports its plugins from ".", and Python remembers which folder that was the first time.
    monkeypatch.delitem(sys.path_importer_cache, ".", raising=False)
    monkeypatch.setenv("HOME", repository.env["HOME"])
    assert main(["nightly", *arguments.split(" ")]) == 2
    assert says in capsys.readouterr().err
    assert not (repository.root / "html").exists()


@pytest.mark.slow
def test_a_machine_has_one_name(scratch: Make) -> None:
    repository = scratch(1.0)
    repository.nightly()
    repository.commit("another", "def step(): pass\ndef figure(n): return 1.0 * n\n")
    other = repository.run("nightly", "--machine", "there")
    assert other.returncode == 2
    assert "called here" in other.stderr
    assert repository.run("nightly").returncode == 0  # the name that is kept
    assert len(repository.records()) == 2
    assert sorted(path.name for path in (repository.root / "results").iterdir()) == [
        "benchmarks.json",
        "here",
    ]
    # The same machine with another CPU, as in a cloud: its lines in the graphs go on.
    kept = Path(repository.env["HOME"]) / ".asv-machine.json"
    kept.write_text(json.dumps({"version": 1}))
    described = repository.root / "results" / "here" / "machine.json"
    described.write_text(described.read_text().replace("x86_64", "sparc"))
    repository.commit("a third", "def step(): pass\ndef figure(n): return 1.0 * n + 0\n")
    repository.nightly()
    assert {content["params"]["arch"] for content in repository.records().values()} >= {"sparc"}


@pytest.mark.slow
def test_too_many_new_commits_are_spread_and_the_newest_is_among_them(scratch: Make) -> None:
    repository = scratch(1.0)
    repository.nightly()
    for i in range(5):
        repository.commit(f"change {i}")
    report, said = repository.nightly("--commits", "2")
    assert [night["subject"] for night in report["commits"]] == ["change 2", "change 4"]
    assert report["skipped"] == 3
    assert "3 new commits in between were left out" in said


def test_a_second_writer_names_the_first_and_leaves_or_waits(scratch: Make) -> None:
    slow = "import time\ndef step(): pass\ndef figure(n):\n    time.sleep(2)\n    return 1.0 * n\n"
    repository = scratch(slow)
    first = repository.start("nightly", "--machine", "here", stdout=subprocess.DEVNULL)
    lock = repository.root / ".asv" / "lock"
    while first.poll() is None and not (lock.exists() and lock.read_text()):
        time.sleep(0.01)
    second = repository.run("nightly")
    assert second.returncode == 3
    assert f"a nightly (process {first.pid} on " in second.stderr
    assert second.stderr.count("\n") == 1
    third = repository.run("publish", "--wait", "60", module="trgbench.suite")
    first.communicate(timeout=60)
    assert first.returncode == 0
    assert third.returncode == 0, third.stderr
    assert "waiting" in third.stderr
    assert site.count_numbers(repository.root / "html") == 3


def test_two_environments_stand_beside_each_other(scratch: Make) -> None:
    repository = scratch(1.0)
    repository.nightly()
    [path] = (repository.root / "results" / "here").glob("????????-*.json")
    known = Results.load(str(path))
    requirements = {"jax": "0.12.0.1"}
    other = Results(
        {**known.params, "python": "3.12", **requirements},
        requirements, known.commit_hash, known.date, "3.12", "light-py3.12-jax0.12.0.1", {},
    )  # fmt: skip
    figure = {"name": "tiny.Figure.track_figure", "version": "1", "params": [["1", "2"]]}
    other.add_result(figure, BenchmarkResult([3.0, 6.0], [None, None], [None, None], 0, "", None))
    other.save(str(repository.root / "results"))
    done = repository.run("publish", module="trgbench.suite")
    assert done.returncode == 0, done.stderr
    assert site.count_numbers(repository.root / "html") == 5
    index = json.loads((repository.root / "html" / "index.json").read_text())
    assert index["params"]["python"] == ["3.11", "3.12"]
    assert index["params"]["jax"] == ["0.12.0.1", None]
    graphs = sorted((repository.root / "html" / "graphs").rglob("tiny.Figure.track_figure.json"))
    values = [json.loads(graph.read_text())[0][1] for graph in graphs if graph.parent.name != "summary"]
    assert sorted(values) == [[1.0, 2.0], [3.0, 6.0]]
    assert not repository.nightly()[0]["news"]  # the other environment's records are none of its own


def test_a_slower_commit_stays_the_verdict_of_a_night_that_ends_early() -> None:
    commit = Commit("0" * 40, "a change", "main")
    report = nightly.Report("here", "quick", "main", news=True, error="the disk is full")
    assert (report.exit_code, report.summary) == (3, "broken; it ended early: the disk is full")
    report.nights.append(nightly.Night(commit, 3, [], Verdict("slower", "1" * 40)))
    assert report.exit_code == 1
    assert report.summary == "slower: 00000000 a change; it ended early: the disk is full"
    report.error = ""
    assert report.summary == "slower: 00000000 a change (1 new commit of main, on here)"
