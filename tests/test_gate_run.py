"""The gate, run for real on scratch repositories: its verdicts, its exit codes, and what it leaves behind."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest

pytest.importorskip("asv_runner")

from trgbench.suite.commits import Trouble
from trgbench.suite.gate.report import schema
from trgbench.suite.gate.run import compare

Make = Callable[..., Any]

CASES = """
import time
import trgbench

class Value:
    version, unit, timeout = "1", "things", 8.0  # on a busy machine Python takes seconds to start
    params = (["raises", "hangs", "crashes", "nan", "text", "leaves", "is skipped", "is fine", "changes"],)
    param_names = ["what"]

    def setup(self, what):
        trgbench.prepare(what)

    def track_value(self, what):
        print("a benchmark may print", flush=True)
        return trgbench.value(what)

Value.track_value.tolerance, Value.track_value.gate = 0.0, {}

class Ratio:
    version, unit = "1", "ratio"

    def track_ratio(self):
        return {"samples": trgbench.ratio(), "number": 1, "numerator": trgbench.numerator()}

Ratio.track_ratio.gate = {}

class Busy:
    version, number, warmup_time = "1", 1, 0.0
    timer = time.thread_time  # whatever else this machine does

    def time_busy(self):
        trgbench.busy()

Busy.time_busy.pretty_name, Busy.time_busy.gate = "Busy for a while", {}
"""
CONTROL = """
import trgbench

class Control:
    version, unit = "1", "ratio"

    def track_control(self):
        return trgbench.control()

Control.track_control.gate = {}
"""
FINE = """
import random, time

def prepare(what): pass
def value(what): return 1.0
def ratio(): return [2 * random.uniform(0.99, 1.01) for _ in range(9)]
def numerator(): return random.uniform(1.99, 2.01)
def control(): return random.uniform(0.99, 1.01)
def busy(milliseconds=2):
    end = time.thread_time() + milliseconds / 1000
    while time.thread_time() < end: pass
"""
TROUBLED = (
    FINE
    + """
import ctypes, os

def prepare(what):
    if what == "is skipped":
        raise NotImplementedError("not on this machine")

def value(what):
    if what == "raises":
        raise ValueError("boom | <b>")
    if what == "hangs":
        time.sleep(1000)
    if what == "crashes":
        ctypes.string_at(0)
    if what == "leaves":
        os._exit(7)
    return {"nan": float("nan"), "text": "many", "changes": 2.0}.get(what, 1.0)
"""
)
REASONS = {
    "raises": "ValueError: boom | <b>",
    "hangs": "no answer within 8 s; it hangs, or is too slow",
    "crashes": "the process was killed by SIGSEGV",
    "nan": "it gave nan, which is no figure",
    "text": "ValueError: could not convert string to float: 'many'",
    "leaves": "the process ended with code 7: a benchmark may print",
    "is skipped": "skipped: NotImplementedError('not on this machine')",
}


def slower(text: str) -> str:
    return text.replace("milliseconds=2", "milliseconds=3")


@pytest.fixture
def repository(scratch: Make) -> Callable[..., Any]:
    """Return what makes a repository of packages, with the benchmarks above."""

    def make(*packages: str) -> Any:
        return scratch(*packages, benchmarks__cases=CASES, benchmarks__control=CONTROL)

    return make


def verdicts(report: Any) -> dict[str, str]:
    return {found.benchmark: found.verdict for found in report.comparisons}


def gate(repository: Any, *arguments: str) -> tuple[int, dict[str, Any], str, str]:
    """Run the command and return its exit code, its report as JSON and Markdown, and what it printed."""
    files = [repository.root.parent / name for name in ("gate.json", "gate.md")]
    options = ("--json", str(files[0]), "--markdown", str(files[1]))
    done = repository.run("gate", *arguments, *options)
    said = done.stdout + done.stderr
    assert all(file.exists() for file in files), said
    report = json.loads(files[0].read_text())
    jsonschema.Draft202012Validator(schema()).validate(report)
    assert report["exit_code"] == done.returncode
    return done.returncode, report, files[1].read_text(), said


def test_a_slower_commit_is_a_regression(repository: Make) -> None:
    made = repository(FINE, slower(FINE))
    made.commit("<script>alert(1)</script> `a|b` *slow*")
    code, report, markdown, said = gate(made, "HEAD~2", "--only", "busy|is fine")
    assert code == 1
    worst, other = report["benchmarks"]
    assert (worst["benchmark"], worst["title"], worst["unit"], worst["verdict"]) == (
        *("cases.Busy.time_busy", "Busy for a while", "seconds"),
        "worse",
    )
    assert 1.3 < worst["effect"]["low"] < worst["effect"]["factor"] < worst["effect"]["high"] < 1.7
    assert (worst["base"], worst["head"]) == (pytest.approx(2e-3, rel=0.2), pytest.approx(3e-3, rel=0.2))
    assert (other["verdict"], other["effect"], other["base"]) == ("same", None, 1.0)
    [control] = report["control"]
    assert (control["benchmark"], control["verdict"]) == ("control.Control.track_control", "same")
    assert markdown.startswith("**Regression**: 1 of 2 worse, most of all cases.Busy.time\\_busy x 1.")
    assert "&lt;script&gt;alert(1)&lt;/script&gt; \\`a\\|b\\` \\*slow\\*" in markdown
    assert "| `cases.Busy.time_busy` | 2" in markdown
    assert "**worse** |" in markdown
    assert said.startswith("Regression: 1 of 2 worse")
    # The other way round it is better, and that is no regression.
    mirrored = compare(made.root, "HEAD", "HEAD~2", only="busy")
    assert (mirrored.exit_code, verdicts(mirrored)) == (0, {"cases.Busy.time_busy": "better"})


def test_a_larger_ratio_is_a_regression(repository: Make) -> None:
    made = repository(
        FINE, FINE.replace("[2 *", "[2.2 *").replace("uniform(1.99, 2.01)", "uniform(2.19, 2.21)")
    )
    report = compare(made.root, "HEAD~1", only="Ratio")
    assert (report.exit_code, verdicts(report)) == (1, {"cases.Ratio.track_ratio": "worse"})
    assert report.comparisons[0].effect is not None
    assert report.comparisons[0].effect.factor == pytest.approx(1.1, rel=0.01)


def test_a_ratio_that_grows_as_what_it_is_divided_by_is_faster_is_none(repository: Make) -> None:
    made = repository(FINE, FINE.replace("[2 *", "[2.2 *"))
    code, report, markdown, said = gate(made, "HEAD~1", "--only", "Ratio")
    assert code == 0
    [found] = report["benchmarks"]
    assert (found["verdict"], found["reason"]) == ("same", "what it is divided by became faster")
    assert "| what it is divided by became faster |" in markdown
    assert "became faster" in said


def test_a_control_that_moves_makes_no_regression(repository: Make) -> None:
    moved = FINE.replace("return random", "return 1.2 * random").replace("[2 *", "[2.2 *")
    made = repository(FINE, moved)
    report = compare(made.root, "HEAD~1", only="Ratio")
    assert (report.exit_code, verdicts(report)) == (3, {"cases.Ratio.track_ratio": "unclear"})
    assert "control.Control.track_control: run it again on a quieter machine" in report.comparisons[0].reason
    assert report.control[0].verdict == "unclear"


@pytest.mark.parametrize("side", ["base", "head"])
def test_what_gives_no_figure_is_not_measured_and_says_why(repository: Make, side: str) -> None:
    packages = (FINE, TROUBLED) if side == "head" else (TROUBLED, FINE)
    made = repository(*packages)
    report = compare(made.root, "HEAD~1", only="^(?!.*changes).*Value")
    assert report.exit_code == 3
    found = {found.benchmark: found for found in report.comparisons}
    for what, reason in REASONS.items():
        missing = found.pop(f"cases.Value.track_value('{what}')")
        assert (missing.verdict, missing.reason) == ("not measured", f"{side}: {reason}")
    assert {one.verdict for one in found.values()} == {"same"}  # the rest is measured
    assert report.summary.startswith("Not everything is known: of 8 benchmarks 7 not measured")
    assert f"`cases.Value.track_value('raises')`: {side}: ValueError: boom \\| &lt;b&gt;" in report.markdown()


def test_a_regression_counts_although_something_else_was_not_measured(repository: Make) -> None:
    made = repository(FINE, TROUBLED)
    code, report, markdown, said = gate(made, "HEAD~1", "--only", "raises|changes")
    assert code == 1
    assert [found["verdict"] for found in report["benchmarks"]] == ["worse", "not measured"]
    for text in (said, markdown.replace("**", "").replace("\\", "")):
        assert text.startswith(
            "Regression: 1 of 2 worse, most of all cases.Value.track_value('changes') 1 -"
        ), text
        assert "; 1 not measured" in text
        assert "head: ValueError: boom" in text


def test_a_dirty_tree_is_measured_as_committed(repository: Make) -> None:
    made = repository(FINE, FINE + "\n")
    made.git("checkout", "-q", "--detach")  # as on a continuous integration service; it does not matter
    (made.root / "trgbench" / "__init__.py").write_text("raise SystemError('not committed')\n")
    code, report, markdown, said = gate(made, "HEAD~1", "--only", "is fine")
    assert code == 0
    assert "as committed" in said
    assert "as committed" in markdown
    assert [note.partition(";")[0] for note in report["notes"]] == [
        "the work tree has changes that are in no commit"
    ]
    assert markdown.startswith("**No regression in 1 benchmark**")


def test_a_benchmark_that_base_does_not_have_is_not_measured(repository: Make) -> None:
    made = repository("names = ['one']\n" + FINE, "names = ['one', 'two']\n" + FINE)
    made.write(
        benchmarks__new=(
            "import trgbench\nclass New:\n    params, unit = (trgbench.names,), 'things'\n"
            "    def track_new(self, name): return 1\nNew.track_new.tolerance = 0.0\n"
        )
    )
    report = compare(made.root, "HEAD~1", only="new")
    assert verdicts(report) == {
        "new.New.track_new('one')": "same",
        "new.New.track_new('two')": "not measured",
    }
    assert report.open[0].reason == "base: with this commit there is no such benchmark"


@pytest.mark.parametrize(
    ("package", "only", "reason"),
    [
        (FINE, "nothing like it", "no benchmark but a control matches 'nothing like it'"),
        ("def step(:\n", None, "the benchmarks cannot be listed with head: SyntaxError"),
        ("import missing_library\n", None, "head: ModuleNotFoundError: No module named 'missing_library'"),
        (None, None, r"HEAD \(\w{8}\) has no package trgbench; choose a commit that has it"),
    ],
)
def test_nothing_to_measure_says_why(
    repository: Make, package: str | None, only: str | None, reason: str
) -> None:
    made = repository(FINE)
    if package is None:
        made.git("rm", "-q", "-r", "trgbench")
        made.commit("without it")
    else:
        made.commit("change", package)
    with pytest.raises(Trouble, match=reason):
        compare(made.root, "HEAD~1", only=only)


def clone(repository: Any, *options: str) -> Any:
    """Return a clone of a scratch repository."""
    target = repository.root.parent / "clone"
    repository.git("clone", "-q", *options, repository.root.as_uri(), str(target))
    repository.root = target
    return repository


def test_the_state_of_a_checkout_is_told_with_its_remedy(repository: Make, tmp_path: Path) -> None:
    made = repository(FINE, FINE + "\n")
    old = made.git("rev-parse", "HEAD~1")
    made.git("switch", "-q", "-c", "topic")

    def told(code: int, *arguments: str) -> str:
        done = made.run("gate", *arguments)
        assert (done.returncode, done.stdout) == (code, ""), done.stderr
        assert done.stderr.startswith("trgbench: error: ")
        assert done.stderr.count("\n") == 1
        return done.stderr

    assert "give a branch, a tag or a hash" in told(2, "nonsense")
    assert "names no commit" in told(2, "--", "-p")
    assert "names no commit" in told(2, "HEAD", "HEAD:trgbench")
    assert "regular expression" in told(2, "HEAD", "--only", "(")
    assert "give the commit to compare with" in told(2)
    assert "needs --json FILE" in told(2, "--calibrate")
    for more in (["HEAD~1", "HEAD~1"], ["--only", "x"]):
        assert "leave HEAD and --only out" in told(2, *more, "--calibrate", "--json", "kept.json")
    assert "is a folder" in told(2, "HEAD", "--json", str(tmp_path))
    made.env["GIT_TEST_ASSUME_DIFFERENT_OWNER"] = "1"  # git's own, for tests of exactly this
    assert "git config --global --add safe.directory" in told(3, "HEAD")
    del made.env["GIT_TEST_ASSUME_DIFFERENT_OWNER"]

    source = made.root
    clone(made, "--depth", "1")
    assert "git fetch --unshallow" in told(3, old)
    made.root = source
    made.root.parent.joinpath("clone").rename(tmp_path / "shallow")
    clone(made)  # has topic checked out, and main only as the remote's
    assert "only origin/main; say origin/main" in told(3, "main")
    made.git("remote", "remove", "origin")
    assert "git fetch origin main:main" in told(3, "main")
    made.root = tmp_path / "nowhere"
    made.root.mkdir()
    made.env["GIT_CEILING_DIRECTORIES"] = str(tmp_path)
    assert "is in no git checkout" in told(2, "HEAD")


def children(pid: int) -> list[int]:
    try:
        return [int(text) for text in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except FileNotFoundError:
        return []


def wait_for(condition: Callable[[], Any]) -> Any:
    end = time.monotonic() + 30
    while not (found := condition()):
        assert time.monotonic() < end
        time.sleep(0.02)
    return found


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_gate_leaves_no_worker_and_no_half_file(
    repository: Make, tmp_path: Path, number: signal.Signals
) -> None:
    made = repository(FINE, TROUBLED)
    made.write(benchmarks__cases=CASES.replace('"things", 8.0', '"things", 100.0'))
    temporary, out = tmp_path / "temporary", tmp_path / "out"
    temporary.mkdir()
    out.mkdir()
    made.env["TMPDIR"] = str(temporary)
    process = made.start("gate", "HEAD~1", "--only", "hangs", "--json", str(out / "gate.json"))
    workers = wait_for(lambda: len(found := children(process.pid)) == 2 and found)
    time.sleep(0.5)  # it hangs by now
    process.send_signal(number)
    _, err = process.communicate(timeout=20)
    if number == signal.SIGKILL:
        assert process.returncode == -number
    else:
        assert process.returncode == 128 + number, err
        assert list(temporary.iterdir()) == []
    wait_for(lambda: not any(Path(f"/proc/{pid}/stat").exists() for pid in workers))
    assert list(out.iterdir()) == []


def test_what_the_engine_compiles_once_is_compiled_before_anything_is_measured(repository: Make) -> None:
    made = repository(FINE)
    made.root.joinpath("trgbench", "engine").mkdir()
    made.root.joinpath("trgbench", "engine", "__main__.py").write_text(
        "import os, pathlib\npathlib.Path(os.environ['ASV_ENV_DIR'], 'compiled.txt').touch()\n"
    )
    file = "os.environ['ASV_ENV_DIR'] + '/compiled.txt'"
    looks = f"import os\ndef value(what): return int(os.path.exists({file}))\n"
    made.commit("compiles", FINE + looks)
    report = compare(made.root, "HEAD", only="is fine")
    assert (report.comparisons[0].base, report.comparisons[0].head) == (1, 1)
