"""`trgbench study`: its results as a file, its measuring processes, and the command, run for real."""

from __future__ import annotations

import copy
import errno
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from trgbench import study
from trgbench.__main__ import CANNOT, DONE, main
from trgbench.console import strict_json
from trgbench.errors import InputError
from trgbench.study import results, tables
from trgbench.study.claims import summary
from trgbench.study.lab import Lab
from trgbench.study.why_jax_differs import fused_multiply_add

EXAMPLE = Path(__file__).parent / "study_example.json"


def example(**changes: Any) -> dict[str, Any]:
    """Return the example as if it had been measured here, but for `changes`."""
    content = json.loads(EXAMPLE.read_text())
    return {**content, "machine": results.machine(), "versions": results.versions(), **changes}


# ------------------------------------------------------------------------------------------- results


def test_the_example_is_as_the_schema_has_it() -> None:
    jsonschema.Draft202012Validator.check_schema(results.schema())
    content = json.loads(EXAMPLE.read_text())
    results.validate(content)
    assert [entry["id"] for entry in content["experiments"]] == list(study.EXPERIMENTS)
    assert [entry["number"] for entry in content["experiments"]] == list(range(1, 13))
    for entry in content["experiments"]:
        assert entry["tables"]
        for table in entry["tables"]:
            assert table["rows"], table["id"]
            assert all(len(row) == len(table["columns"]) for row in table["rows"])


def test_tables_follow_from_the_data() -> None:
    for entry in json.loads(EXAMPLE.read_text())["experiments"]:
        made = study.get(entry["id"]).tables(entry["data"])
        assert json.loads(strict_json(made)) == entry["tables"]


@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_a_missing_backend_drops_its_columns_and_says_so(backend: str) -> None:
    for entry in json.loads(EXAMPLE.read_text())["experiments"]:
        data = {**entry["data"], backend: {"missing": "not installed"}}
        if backend in entry["data"]:
            data[backend] = _all_missing(entry["data"][backend])
        for table in study.get(entry["id"]).tables(data):
            figures = [
                (column["name"], [row[i] for row in table["rows"]])
                for i, column in enumerate(table["columns"])
                if column["name"].startswith(backend)
            ]
            assert not figures, table["id"]
        assert strict_json(study.get(entry["id"]).tables(data))


def _all_missing(found: dict[str, Any]) -> dict[str, Any]:
    """Replace the tasks' answers by what a lab returns for a backend that is missing."""
    gone = {"missing": "not installed"}
    if "missing" in found:
        return gone
    if "same_at_all_widths" in found:
        return {key: dict.fromkeys(part, gone) for key, part in found.items()}
    return dict.fromkeys(found, gone)


CHANGES = [
    ({"machine": {**results.machine(), "cpu": "Another CPU"}}, "cpu Another CPU"),
    ({"machine": {**results.machine(), "cpus": 64}}, "cpus 64"),
    ({"versions": {**results.versions(), "numpy": "1.0"}}, "numpy 1.0"),
    ({"versions": {k: v for k, v in results.versions().items() if k != "scipy"} | {"scipy": "0"}}, "scipy 0"),
    ({"quick": None}, "quick"),
]


@pytest.mark.parametrize(("change", "said"), CHANGES, ids=[said for _, said in CHANGES])
def test_results_from_elsewhere_are_not_continued(
    change: dict[str, Any], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content = example(**change)
    if change.get("quick", 0) is None:
        content["quick"] = True
    quick = [] if content["quick"] and said == "quick" else ["--quick"] * content["quick"]
    file = tmp_path / "study.json"
    file.write_text(json.dumps(content))
    before = file.read_bytes()
    for resume in ([], ["--resume"]):
        assert main(["study", "depth", "--json", str(file), *quick, *resume]) == CANNOT
        err = capsys.readouterr().err
        assert said in err
        assert "give another file" in err
        assert err.count("\n") == 1
    assert file.read_bytes() == before


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"format": 1}', json.dumps({**json.loads(EXAMPLE.read_text()), "format": 2})]
)
def test_what_is_no_study_is_refused(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "study.json"
    file.write_text(text)
    assert main(["study", "--resume", "--json", str(file)]) == CANNOT
    assert "holds no results of a study" in capsys.readouterr().err
    assert file.read_text() == text


def test_an_unwritable_place_is_said_before_measuring(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def measured(*_: object, **__: object) -> None:
        raise AssertionError("measured")

    monkeypatch.setattr(Lab, "run", measured)
    for option in ("--json", "--markdown"):
        for path in (tmp_path / "no" / "folder.x", tmp_path, Path("/proc/study.x")):
            other = [] if option == "--json" else ["--json", str(tmp_path / "study.json")]
            assert main(["study", "depth", option, str(path), *other]) == CANNOT
            assert str(path) in capsys.readouterr().err

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full)
    assert main(["study", "depth", "--json", str(tmp_path / "study.json")]) == CANNOT
    assert "No space left on device" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_device_or_a_link_is_not_replaced(tmp_path: Path) -> None:
    pipe, file, link = (tmp_path / name for name in ("pipe", "file", "link"))
    os.mkfifo(pipe)
    link.symlink_to(file)
    for path in (pipe, Path("/dev/null")):
        with pytest.raises(InputError, match="no ordinary file"):
            results.check_writable(path)
    results.check_writable(link)
    results.write(link, "new")
    assert link.is_symlink()
    assert file.read_text() == "new"


def test_results_are_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "study.json"
    results.write(file, "old")
    monkeypatch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError(errno.ENOSPC, "full")))
    with pytest.raises(OSError, match="full"):
        results.write(file, "new")
    assert file.read_text() == "old"
    assert list(tmp_path.iterdir()) == [file]


# ------------------------------------------------------------------------------------- the processes


def cpus(backend: str = "native") -> dict[str, Any]:
    import numpy  # noqa: F401 - what a task imports comes after the pinning

    print("a library that talks")
    return {
        "cpus": len(os.sched_getaffinity(0)),
        "openblas": os.environ["OPENBLAS_NUM_THREADS"],
        "nan": float("nan"),
    }


def fails() -> None:
    raise ValueError("one\ntwo")


def dies() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def sleeps() -> None:
    time.sleep(60)


def test_the_lab_runs_a_task_in_a_pinned_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(EXAMPLE.parent.parent), *sys.path]))
    for task in (cpus, fails, dies, sleeps):
        monkeypatch.setattr(task, "__module__", "tests.test_study")
    lab = Lab(missing={"jax": "not installed"})
    assert lab.run(cpus, threads=1) == {"cpus": 1, "openblas": "1", "nan": None}
    assert lab.run(cpus, backend="jax") == {"missing": "not installed"}
    assert lab.run(fails) == {"missing": "ValueError: one two"}
    assert "killed" in lab.run(dies)["missing"]
    assert lab.run(sleeps, timeout=1.0) == {"missing": "it took longer than the 1 s allowed"}


def test_fma_rounds_once() -> None:
    fma, _ = fused_multiply_add()
    a = 1 + 2.0**-30
    assert fma(a, a, -1 - 2.0**-29) == 2.0**-60
    assert a * a - 1 - 2.0**-29 == 0


# --------------------------------------------------------------------------------------- the command


@pytest.mark.parametrize("names", [["nonsense"], ["0"], ["13"], ["depth", "x"]])
def test_an_unknown_experiment_is_refused(names: list[str]) -> None:
    with pytest.raises(InputError, match="12 branching"):
        study.select(names)


def test_a_study_is_measured_interrupted_and_resumed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file, document = tmp_path / "study.json", tmp_path / "study.md"
    arguments = ["study", "shape-change", "branching", "--quick", "--json", str(file)]
    # Without PyTorch, which takes longest to import; a package of its name that is not there is as good.
    absent = tmp_path / "absent" / "torch"
    absent.mkdir(parents=True)
    (absent / "__init__.py").write_text("raise ModuleNotFoundError('No module named torch', name='torch')")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(absent.parent), *sys.path])}
    with subprocess.Popen(
        [sys.executable, "-m", "trgbench", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    ) as process:
        deadline = time.monotonic() + 60
        while not file.exists() and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=10)
    assert process.returncode == 128 + signal.SIGINT
    assert "1 of 12 experiments are kept" in err
    assert f"trgbench study shape-change branching --resume --quick --json {file}" in err
    kept = json.loads(file.read_text())
    results.validate(kept)
    assert [entry["id"] for entry in kept["experiments"]] == ["shape-change"]
    assert "pip install 'trgbench[torch]'" in kept["missing"]["torch"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["absent", "study.json"]

    # What is kept is not measured again.
    monkeypatch.setattr(Lab, "run", None)
    monkeypatch.setenv("COLUMNS", "160")
    options = ["--quick", "--resume", "--json", str(file), "--markdown", str(document)]
    assert main(["study", "11", *options]) == DONE
    out = capsys.readouterr().out
    assert "holds" in out
    assert "shape-miss-then-hits" in out
    assert "## 11." in document.read_text()
    resumed = json.loads(file.read_text())
    assert resumed == kept
    assert "note: torch is left out" in out

    assert main(["study", "--claims", "--json", str(file)]) == DONE
    out = capsys.readouterr().out
    assert "could not be measured" in out
    assert "\x1b" not in out


def test_the_ledger_reads_without_colour(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["study", "--claims", "--json", str(EXAMPLE)]) == DONE
    out = capsys.readouterr().out
    assert "does not hold here" in " ".join(out.split())
    assert summary(json.loads(EXAMPLE.read_text())["claims"]) in " ".join(out.split())


def test_markdown_has_every_table_and_claim() -> None:
    content = json.loads(EXAMPLE.read_text())
    text = tables.markdown(content, summary)
    for entry in content["experiments"]:
        assert all(f"**{table['title']}**" in text for table in entry["tables"])
    assert all(f"| {claim['id']} |" in text for claim in content["claims"])


def test_results_round_trip(tmp_path: Path) -> None:
    content = example()
    file = tmp_path / "study.json"
    results.write(file, strict_json(content))
    loaded = results.load(file)
    assert loaded == content
    assert results.difference(loaded, content["quick"]) is None
    again = results.assemble({entry["id"]: entry for entry in loaded["experiments"]}, content["quick"], {})
    assert again["claims"] == content["claims"]
    results.validate(copy.deepcopy(again))
