"""A repository with asv's records of some commits, made up by formula, through asv's classes, to publish."""

from __future__ import annotations

import datetime
import itertools
import math
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent.parent
PACKAGES = {"python": "3.11", "numpy": "2.4.6", "jax": "0.10.2", "torch": "2.13.0"}
BACKENDS = ("jax", "native", "torch")
VECTOR, TRG = "gradient.Vector.time_gradient", "trg.TwentySteps.time_gradient"
MODES, GROWTH = "ratios.Modes.track_ratio", "ratios.Depth.track_growth"
LISTED = {VECTOR, TRG, MODES, GROWTH, "control.Interpreter.time_numpy_calls"}

Value = Callable[[str, Mapping[str, str], int], float | None]


def made_up(benchmark: str, parameters: Mapping[str, str], commit: int) -> float | None:
    """Return a value by formula, NaN if it is skipped, None if it failed; TRG is slower from commit 3 on."""
    backend, mode = parameters.get("backend", "native"), parameters.get("mode", "eager")
    if backend == "torch" and mode == "traced":
        return math.nan
    if backend == "jax" and mode == "forward":
        return None
    size = math.prod(float(parameters.get(name, 1)) for name in ("n", "depth", "steps", "chi"))
    slower = 1.5 if benchmark.startswith("trg.") and commit >= 3 else 1.0
    unit = 1.0 if benchmark.startswith("ratios.") else 1e-6
    return unit * slower * (1 + BACKENDS.index(backend)) * (2 if "eager" in mode else 1) * (3 + 0.01 * size)


def environment(packages: Mapping[str, str]) -> str:
    return "-".join(f"{key}{number}" for key, number in packages.items())


@dataclass
class Scratch:
    """A repository of its own with records to publish."""

    root: Path
    commits: list[str] = field(default_factory=list)

    def git(self, *arguments: str, date: str = "2026-01-01T12:00:00+00:00") -> str:
        identity = {"GIT_AUTHOR_NAME": "t", "GIT_AUTHOR_EMAIL": "t@t", "GIT_COMMITTER_NAME": "t"}
        env = os.environ | identity | {"GIT_COMMITTER_EMAIL": "t@t", "HOME": str(self.root)}
        env |= {"GIT_AUTHOR_DATE": date, "GIT_COMMITTER_DATE": date}
        done = subprocess.run(["git", *arguments], cwd=self.root, env=env, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def commit(self, subject: str) -> str:
        day = f"2026-01-{len(self.commits) + 1:02}T12:00:00+00:00"
        self.git("commit", "-q", "--allow-empty", "-m", subject, date=day)
        self.commits.append(self.git("rev-parse", "HEAD"))
        return self.commits[-1]

    def record(
        self,
        benchmarks: Iterable[Mapping[str, Any]],
        commit: int,
        machine: str = "here",
        packages: Mapping[str, str] = PACKAGES,
        value: Value = made_up,
    ) -> None:
        """Save records of a commit, with 9 samples where asv would have samples."""
        from asv.machine import Machine
        from asv.results import Results
        from asv.runner import BenchmarkResult

        about = {"machine": machine, "os": "Linux", "arch": "x86_64", "cpu": "A CPU", "num_cpu": "2"}
        about["ram"] = "8 GiB"
        written = Machine()
        vars(written).update(about)
        written.save(str(self.root / "results"))
        stamp = datetime.datetime(2026, 1, commit + 1, 18, tzinfo=datetime.UTC)
        date, name = int(stamp.timestamp() * 1000), environment(packages)
        results = Results({**about, **packages}, {}, self.commits[commit], date, "3.11", name, {})
        for benchmark in benchmarks:
            values, samples = [], []
            for combination in itertools.product(*benchmark["params"]):
                stripped = [text.strip("'") for text in combination]
                parameters = dict(zip(benchmark["param_names"], stripped, strict=True))
                one = value(benchmark["name"], parameters, commit)
                values.append(one)
                good = one is not None and math.isfinite(one)
                samples.append([one * (1 + 0.01 * i) for i in range(-4, 5)] if one and good else None)
            number = [1 if sample else None for sample in samples]
            result = BenchmarkResult(values, samples, number, 0, "", None)
            results.add_result(benchmark, result, started_at=stamp, duration=1.0, record_samples=True)
        results.save(str(self.root / "results"))

    def list_benchmarks(self, benchmarks: Iterable[Mapping[str, Any]]) -> None:
        """Save asv's list of benchmarks."""
        from asv.benchmarks import Benchmarks
        from asv.config import Config

        conf = Config()
        conf.results_dir = str(self.root / "results")
        Benchmarks(conf, benchmarks).save()

    def publish(self, code: str = "") -> subprocess.CompletedProcess[str]:
        """Run `asv publish` here, or some code; pip has no index, so nothing can come from outside."""
        command = [sys.executable, *(("-c", code) if code else ("-m", "asv", "publish", "--no-pull"))]
        env = os.environ | {"PYTHONPATH": str(ROOT), "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": ""}
        return subprocess.run(command, cwd=self.root, env=env, capture_output=True, text=True)


@pytest.fixture(scope="session")
def suite() -> dict[str, Any]:
    """Some of the benchmarks of this project, as asv lists them."""
    pytest.importorskip("asv")
    from asv_runner.discovery import disc_benchmarks

    found = {}
    for benchmark in disc_benchmarks(str(ROOT / "benchmarks")):
        if benchmark.name in LISTED:
            listed = {key: value for key, value in vars(benchmark).items() if key[0] != "_"}
            found[benchmark.name] = {
                k: v for k, v in listed.items() if type(v) in (str, int, float, list, dict)
            }
    assert found.keys() == LISTED
    return found


@pytest.fixture(scope="session")
def vendor() -> Path:
    """The scripts of asv's pages: fetched once for this clone, then kept."""
    pytest.importorskip("asv")
    from asv.util import UserError

    from trgbench.suite.dashboard import assets

    try:
        return assets.ready(ROOT / assets.KEPT)
    except UserError as reason:
        pytest.skip(str(reason))


@pytest.fixture
def scratch(tmp_path: Path, vendor: Path) -> Scratch:
    """A repository without a commit, ready to publish."""
    return make_scratch(tmp_path, vendor)


def make_scratch(root: Path, vendor: Path) -> Scratch:
    pytest.importorskip("matplotlib", reason="the extra `report` is not installed")
    pytest.importorskip("jinja2", reason="the extra `report` is not installed")
    from trgbench.suite.dashboard import assets

    shutil.copytree(vendor, root / assets.KEPT)
    shutil.copy(ROOT / "asv.conf.json", root)
    made = Scratch(root)
    made.git("init", "-q", "-b", "main")
    return made


@pytest.fixture(scope="session")
def published(tmp_path_factory: pytest.TempPathFactory, vendor: Path, suite: dict[str, Any]) -> Scratch:
    """Five commits, TRG slower from the fourth on; some of it in a second environment at the third."""
    made = make_scratch(tmp_path_factory.mktemp("published"), vendor)
    made.list_benchmarks(suite.values())
    for number in range(5):
        made.commit(f"Change number {number}")
        made.record(suite.values(), number)
    made.record([suite[VECTOR], suite[GROWTH]], 2, packages=PACKAGES | {"jax": "0.12.0.1"})
    judge(made)
    (made.root / ".asv" / "study.html").write_text("<!DOCTYPE html><title>study</title>the study's report")
    done = made.publish()
    assert done.returncode == 0, done.stdout + done.stderr
    return made


def judge(made: Scratch) -> None:
    """Write what the gate said of two commits, and why a benchmark failed at the newest."""
    from trgbench.suite.journal import Failure, Journal, Verdict

    journal, name = Journal(made.root / "results" / "here"), environment(PACKAGES)
    journal.judged(made.commits[3], name, Verdict("slower", made.commits[2], (f"{TRG} x 1.5",)))
    journal.judged(made.commits[4], name, Verdict("good", made.commits[2]))
    journal.failed(made.commits[4], name, TRG, [Failure(TRG, "'jax', 'forward'", "ValueError: no such mode")])
