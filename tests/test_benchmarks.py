"""The asv suite: what is declared, how it times, how it fails, and a run and publish of real benchmarks."""

from __future__ import annotations

import io
import json
import math
import os
import shutil
import statistics
import subprocess
import sys
import timeit
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

pytest.importorskip("asv")

from asv.benchmarks import Benchmarks
from asv.config import Config
from asv_runner.benchmarks.time import TimeBenchmark
from asv_runner.discovery import disc_benchmarks

from benchmarks import common
from trgbench import backends, measure, problems
from trgbench.errors import Unavailable
from trgbench.problems import WrongResult
from trgbench.suite import headline, names, site
from trgbench.suite.profiles import PROFILES, pattern
from trgbench.suite.records import Record

ROOT = Path(__file__).parent.parent
BENCHMARKS = {benchmark.name: benchmark for benchmark in disc_benchmarks(str(ROOT / "benchmarks"))}


@pytest.mark.parametrize("name", BENCHMARKS)
def test_a_benchmark_says_what_the_dashboard_and_the_quick_profile_need(name: str) -> None:
    benchmark = BENCHMARKS[name]
    assert benchmark.check(str(ROOT / "benchmarks"))
    assert benchmark.pretty_name
    assert benchmark.version.isdigit(), "set by hand: asv's own hash does not cover the helpers"
    assert benchmark.timeout >= 300
    assert benchmark.unit != "unit"
    shown = [benchmark.name, benchmark.pretty_name, benchmark.unit, benchmark.param_names, benchmark.params]
    assert names.unclean(shown) is None, "the dashboard would take it for HTML, and not show it"
    assert len(benchmark.param_names) == len(benchmark.params)
    values = dict(zip(benchmark.param_names, benchmark.params, strict=True))
    for part in benchmark.quick if isinstance(benchmark.quick, list) else [benchmark.quick]:
        for parameter, chosen in part.items():
            assert set(map(repr, chosen)) <= set(values[parameter])


def selected(profile: str) -> Counter[str]:
    listed = [{key: value for key, value in vars(b).items() if key[0] != "_"} for b in BENCHMARKS.values()]
    conf = Config()
    chosen = Benchmarks(conf, listed, regex=PROFILES[profile].selection(listed))
    return Counter({name: len(chosen.benchmark_selection[name] or [0]) for name in chosen})


def test_the_quick_profile_runs_some_of_every_benchmark_and_the_full_one_everything() -> None:
    everything = Counter({n: math.prod(map(len, b.params)) if b.params else 1 for n, b in BENCHMARKS.items()})
    assert selected("full") == everything
    quick = selected("quick")
    assert quick.keys() == everything.keys()
    assert quick < everything
    # On one thread, at χ = 16: (backend, mode) pairs, without torch.compile on the whole graph.
    assert quick["trg.TwentySteps.time_gradient"] == 2 * 5 + 3


def test_the_gate_measures_twelve_by_default_and_the_control() -> None:
    listed = {name: vars(benchmark) for name, benchmark in BENCHMARKS.items()}
    wanted = [
        pattern(benchmark, benchmark["gate"])
        for benchmark in listed.values()
        if benchmark["gate"] is not None
    ]
    chosen = Benchmarks(
        Config(), [{k: v for k, v in b.items() if k[0] != "_"} for b in listed.values()], regex=wanted
    )
    counts = Counter({name: len(chosen.benchmark_selection[name] or [0]) for name in chosen})
    assert counts.pop("control.Interpreter.time_numpy_calls") == 1
    assert counts.total() == 12
    assert {name.partition(".")[0] for name in counts} == {"gradient", "depth", "trg", "ratios"}


def test_the_history_profile_is_the_quick_one_without_what_takes_longest() -> None:
    history, quick = selected("history"), selected("quick")
    assert history <= quick
    left_out = {name.partition(".")[0] for name in quick.keys() - history.keys()}
    assert left_out == {"correctness", "first_call", "memory"}
    assert history["trg.TwentySteps.time_gradient"] == 5  # native in every mode
    assert history["gradient.Vector.time_gradient"] == 2
    assert history["depth.Chain.time_gradient"] == 4
    assert history["ratios.Peers.track_native_over_peer"] == 2 * 2 + 2  # JAX eager and traced, PyTorch eager
    assert history.total() < 35


def test_the_smoke_profile_is_small() -> None:
    assert 0 < selected("smoke").total() <= 20


def sample(call: Callable[[], object]) -> list[float]:
    """Time `call` the way the suite has asv do it."""

    class Example(common.Timed):
        repeat = (5, 5, 1.0)

        def setup(self) -> None:
            self.time(loop)

        def time_it(self) -> None:
            self.loop()

    loop = common.Loop(call)
    example = Example()
    benchmark = TimeBenchmark("Example.time_it", example.time_it, [example.time_it, example])
    assert not benchmark.do_setup()
    return benchmark.run()["samples"]


def test_a_call_of_a_fraction_of_a_microsecond_is_timed_truly() -> None:
    def call() -> None:
        math.sin(math.sin(math.sin(math.sin(1.0))))

    truth = min(timeit.repeat(call, number=10_000, repeat=5)) / 10_000
    assert min(sample(call)) == pytest.approx(truth, rel=0.4)


def test_a_call_of_milliseconds_is_timed_truly() -> None:
    import time

    assert 0.02 <= min(sample(lambda: time.sleep(0.02))) < 0.03


def test_a_ratio_is_sampled_in_pairs() -> None:
    import time

    found = common.ratio(lambda: time.sleep(0.02), lambda: time.sleep(0.01))
    assert found["number"] == 1
    assert len(found["samples"]) == common.RATIO_PAIRS
    assert statistics.median(found["samples"]) == pytest.approx(2, rel=0.1)


def test_the_clock_counts_work_and_sleep_but_not_waiting_for_a_cpu() -> None:
    import time

    cpus = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(cpus)})
    other = subprocess.Popen([sys.executable, "-c", "while True: pass"])  # inherits the CPU
    try:
        clock = common.Clock()
        start, worked = clock(), time.thread_time()
        while time.thread_time() < worked + 0.2:
            pass
        assert clock() - start == pytest.approx(0.2, abs=0.05)
        start = clock()
        time.sleep(0.05)
        assert clock() - start >= 0.049
    finally:
        other.kill()
        other.wait()
        os.sched_setaffinity(0, cpus)


class FakeBackend:
    """Prepares problems with a function of its own instead of a derivative."""

    def __init__(self, run: Callable[[Any], tuple[Any, Any]]) -> None:
        self.run = run

    def prepare(self, problem: Any, mode: str, threads: int, svd: str) -> Any:
        built = backends.Built(self.run, np.asarray, {})
        return backends.Prepared(problem, "fake", mode, threads, svd, built)


def right(x: Any) -> tuple[Any, Any]:
    return problems.vector(5).reference(x)[:2]


def off(x: Any) -> tuple[Any, Any]:
    value, gradient = right(x)
    return value, gradient + 1e-6


def not_a_number(x: Any) -> tuple[Any, Any]:
    return math.nan, right(x)[1]


def unavailable(*_: Any) -> Any:
    raise Unavailable("no C++ compiler; install g++")


@pytest.fixture
def ready(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[Any], Any]], Any]:
    """Return `common.ready` on a problem of 5 elements, with a fake backend, and without pinning us."""

    def call(run: Callable[[Any], Any]) -> Any:
        monkeypatch.setattr(backends, "get", lambda name: FakeBackend(run))
        monkeypatch.setattr(measure, "pin", lambda threads: (0,))
        return common.ready.__wrapped__("native", "eager", 1, "vector", 5)

    return call


def test_a_right_gradient_is_timed(ready: Callable[..., Any]) -> None:
    value, gradient = cast("tuple[Any, Any]", common.call_of(ready(right))())
    assert value == right(problems.vector(5).example)[0]
    assert gradient.shape == (5,)


@pytest.mark.parametrize("run", [off, not_a_number])
def test_a_wrong_result_fails_and_is_not_timed(ready: Callable[..., Any], run: Callable[..., Any]) -> None:
    with pytest.raises(WrongResult):
        ready(run)


def test_what_cannot_run_here_is_skipped_with_its_reason(
    ready: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FakeBackend, "prepare", unavailable)
    with pytest.raises(NotImplementedError, match=r"no C\+\+ compiler"):
        ready(right)


def test_more_threads_than_cpus_are_skipped() -> None:
    with pytest.raises(NotImplementedError, match="threads must be at most"):
        common.pin(len(os.sched_getaffinity(0)) + 1)


def record(value: float | None, **parameters: str) -> Record:
    known = {"backend": "jax", "mode": "eager", "threads": "1", "n": "1000"}
    return Record("gradient.Vector.time_gradient", known | parameters, value, None)


@pytest.mark.parametrize(
    ("value", "outcome"),
    [(1.0, "measured"), (0.0, "measured"), (math.nan, "skipped"), (None, "failed"), (math.inf, "failed")],
)
def test_three_outcomes(value: float | None, outcome: str) -> None:
    assert record(value).outcome == outcome


def test_the_headline_shows_what_was_measured_and_says_what_failed() -> None:
    from rich.console import Console

    shown = io.StringIO()
    Console(width=80, file=shown).print(
        *headline.tables(
            [
                record(1.5e-5),
                record(None, backend="torch"),
                record(math.nan, mode="traced", backend="native"),
                record(7.0, n="10"),
            ]
        )
    )
    text = shown.getvalue()
    assert "15.0μs" in text
    assert "failed" in text
    assert "traced" not in text  # nothing measured in that row
    assert "7.0" not in text


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """Run two real benchmarks on a repository of their own, in the environment of this test, and publish."""
    root = tmp_path_factory.mktemp("suite")
    shutil.copytree(ROOT / "benchmarks", root / "benchmarks", ignore=shutil.ignore_patterns("__pycache__"))
    conf = {"version": 1, "project": "trgbench", "repo": ".", "branches": ["main"]}
    (root / "asv.conf.json").write_text(json.dumps(conf | {"environment_type": "virtualenv"}))
    identity = {"GIT_AUTHOR_NAME": "t", "GIT_AUTHOR_EMAIL": "t@t", "GIT_COMMITTER_NAME": "t"}
    env = os.environ | identity | {"GIT_COMMITTER_EMAIL": "t@t", "HOME": str(root)}

    def run(*command: str) -> str:
        done = subprocess.run(command, cwd=root, env=env, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    run("git", "init", "-q", "-b", "main")
    run("git", "add", ".")
    run("git", "commit", "-q", "-m", "begin")
    asv = (sys.executable, "-m", "asv")
    run(*asv, "machine", "--yes", "--machine", "here")
    run(
        *asv, "run", "--quick", "--machine", "here", "--environment", f"existing:{sys.executable}",
        "--set-commit-hash", run("git", "rev-parse", "HEAD").strip(),
        "--bench", "control.Interpreter", "--bench", r"Vector.*'native', 'eager', 1, (10|1000)\)",
    )  # fmt: skip
    publish = (
        "from pathlib import Path; from asv.config import Config; from trgbench.suite import site\n"
        "print('shown:', site.publish(Config.load(), Path('html')))"
    )
    return SimpleNamespace(root=root, publish=publish, out=run(sys.executable, "-c", publish))


def test_what_is_published_are_the_numbers_that_were_measured(published: SimpleNamespace) -> None:
    assert "shown: 3" in published.out
    [graph] = [
        path
        for path in (published.root / "html" / "graphs").rglob("gradient.Vector.time_gradient.json")
        if path.parent.name != "summary"
    ]
    [[_, values]] = json.loads(graph.read_text())
    assert len(values) == 48
    assert all(0 < value < 0.1 for value in values if value is not None)
    assert (
        sum(value is not None for value in values) == 2
    )  # what was not selected is null, as is what is skipped


def test_a_failed_publish_leaves_the_old_dashboard(published: SimpleNamespace) -> None:
    before = sorted(path.relative_to(published.root) for path in (published.root / "html").rglob("*"))
    code = published.publish.replace("Config.load()", "conf").replace(
        "print(", "conf = Config.load(); conf.results_dir = 'none'\nprint(", 1
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=published.root, capture_output=True, text=True)
    assert done.returncode != 0
    after = sorted(path.relative_to(published.root) for path in (published.root / "html").rglob("*"))
    assert after == before


def site_with(folder: Path, graph: str) -> Path:
    (folder / "graphs" / "machine-here").mkdir(parents=True)
    (folder / "graphs" / "machine-here" / "a.B.time_c.json").write_text(graph)
    (folder / "index.json").write_text(json.dumps({"benchmarks": {"a.B.time_c": {}}}))
    return folder


@pytest.mark.parametrize(
    ("graph", "numbers"),
    [("[]", 0), ("[[1, null]]", 0), ("[[1, 2.5], [2, 3.5]]", 2), ("[[1, [null, 2.5, 0]]]", 2)],
)
def test_the_numbers_of_a_site_are_counted(tmp_path: Path, graph: str, numbers: int) -> None:
    assert site.count_numbers(site_with(tmp_path, graph)) == numbers


@pytest.mark.parametrize("graph", ["[[1, NaN]]", "[[1, [1.0, Infinity]]]"])
def test_what_no_browser_can_read_is_refused(tmp_path: Path, graph: str) -> None:
    with pytest.raises(ValueError, match="not JSON"):
        site.count_numbers(site_with(tmp_path, graph))
