"""Measuring commits through asv's own environments and runner, each finished benchmark kept at once.

`asv run` saves a commit when all of it is done, and keeps to itself why a benchmark failed. So its parts are
called here, one benchmark after the other.
"""

from __future__ import annotations

import itertools
import json
import math
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from asv import environment, util
from asv.benchmarks import Benchmarks
from asv.config import Config
from asv.console import log
from asv.repo import get_repo
from asv.results import Results
from asv.runner import BENCHMARK_RUN_SCRIPT, run_benchmarks, skip_benchmarks

from trgbench.suite import machines, names, store
from trgbench.suite.commits import Trouble
from trgbench.suite.journal import BUILD, Failure, Journal
from trgbench.suite.profiles import Profile


class Kept(Results):  # type: ignore[misc]
    """asv's results of a commit, which also keep why something failed, and take no NaN for a skip."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.failures: dict[str, list[Failure]] = {}

    def add_result(self, benchmark: dict[str, Any], result: Any, *arguments: Any, **options: Any) -> None:
        failed = dict(failures_of(benchmark, result, options.get("selected_idx")))
        self.failures[benchmark["name"]] = list(failed.values())
        values = [None if i in failed else value for i, value in enumerate(result.result)]
        super().add_result(benchmark, result._replace(result=values), *arguments, **options)


class Bench:
    """The benchmarks of a profile, the environments of asv's configuration, and where the results go.

    Attributes:
        journal: why something failed, and the gate's verdicts.
    """

    def __init__(self, conf: Config, profile: Profile, machine: str) -> None:
        self.machine, self.results = machine, Path(conf.results_dir)
        self.description = machines.describe(self.results, machine)
        self.conf, self.profile, self.repo = conf, profile, get_repo(conf)
        self.journal = Journal(self.results / machine)
        if self.journal.damaged:
            print(
                f"trgbench: {self.journal.damaged} lines of the journal in {self.results / machine} cannot "
                f"be read and were left out; the whole is kept beside it",
                file=sys.stderr,
            )
        self.benchmarks = discover(conf, profile)
        self.environments = list(environment.get_environments(conf, None))
        if not self.environments:
            raise Trouble(f"there is no Python {' or '.join(conf.pythons)} here; install it")
        # What a crash of the interpreter prints is the reason that is shown for it.
        os.environ.setdefault("PYTHONFAULTHANDLER", "1")

    def measure(self, commit: str, fresh: bool = False) -> int:
        """Measure what there is no record of at `commit`, or everything; return how many benchmarks that is.

        Raises:
            Trouble: if asv's environment cannot be made.
        """
        store.keep(self.results, lambda folder: machines.save(folder, self.description))
        return sum(self._measure(env, commit, fresh) for env in self.environments)

    def _measure(self, env: Any, commit: str, fresh: bool) -> int:
        params = {**self.description, "python": env.python, **env.requirements}
        date = self.repo.get_date(commit)
        results = Kept(params, env.requirements, commit, date, env.python, env.name, env.env_vars)
        results.load_data(str(self.results))
        done = set() if fresh else self._done(results)
        left = self.benchmarks.filter_out(done)
        if not left:
            return 0
        log.info(f"For {self.conf.project} commit {commit[:8]}: {len(left)} benchmarks")
        log.set_nitems(sum(self._rounds(benchmark) for benchmark in left.values()))
        with log.indent():
            if reason := self._build(env, commit):
                self.journal.failed(commit, env.name, BUILD, [Failure(BUILD, "", reason)])
                skip_benchmarks(left, env, results=results)
                store.keep(self.results, results.save)
                return len(left)
            self.journal.failed(commit, env.name, BUILD, [])
            for name in sorted(left):
                self._run(env, left.filter_out(left.keys() - {name}), results)
                # In this order: what is recorded as failed has its reason whenever the run is killed.
                self.journal.failed(commit, env.name, name, results.failures[name])
                store.keep(self.results, results.save)
        return len(left)

    def _done(self, results: Kept) -> set[str]:
        """Return the benchmarks of which everything is recorded, or its failure is."""
        recorded = results.get_result_keys(self.benchmarks)
        failures = self.journal.of(results.commit_hash, results.env_name).failures
        failed = {failure.benchmark for failure in failures}
        if BUILD in failed:
            return set(recorded)
        return {name for name in recorded if name in failed or not self._gaps(results, name)}

    def _gaps(self, results: Kept, name: str) -> bool:
        values = results.get_result_value(name, self.benchmarks[name]["params"])
        chosen = self.benchmarks.benchmark_selection[name]
        return any(values[i] is None for i in (chosen if chosen is not None else range(len(values))))

    def _build(self, env: Any, commit: str) -> str:
        """Build and install the commit; return why it could not be done, or nothing."""
        try:
            env.create()
        except (util.ProcessError, util.UserError, OSError) as error:
            raise Trouble(
                f"asv's environment cannot be made ({_last_words(error)}); see above, and whether a package "
                f"index is within reach"
            ) from error
        try:
            env.install_project(self.conf, self.repo, commit)
        except (util.ProcessError, util.UserError) as error:
            return f"does not build: {_last_words(error)}"
        return ""

    def _run(self, env: Any, benchmarks: Benchmarks, results: Kept) -> None:
        try:
            run_benchmarks(
                benchmarks,
                env,
                results=results,
                show_stderr=True,
                extra_params=dict(self.profile.attributes),
                record_samples=True,
            )
        except util.UserError as error:
            if isinstance(error.__context__, KeyboardInterrupt):  # of which asv makes an error like any other
                raise error.__context__ from None
            raise

    def _rounds(self, benchmark: dict[str, Any]) -> int:
        return int(self.profile.attributes.get("rounds", benchmark.get("rounds", 1)))


def discover(conf: Config, profile: Profile) -> Benchmarks:
    """Return the benchmarks of the work tree that the profile selects, and write the list of all for asv.

    They are found by this interpreter, in a process of its own, with the package of the work tree: no commit
    has to be built for it.

    Raises:
        Trouble: if they cannot be imported.
    """
    root = Path(conf.benchmark_dir).absolute()
    path = os.pathsep.join(filter(None, [str(Path.cwd()), os.environ.get("PYTHONPATH")]))
    with tempfile.NamedTemporaryFile() as listing:
        done = subprocess.run(
            [sys.executable, BENCHMARK_RUN_SCRIPT, "discover", str(root), listing.name],
            env=os.environ | {"PYTHONPATH": path},
            capture_output=True,
            text=True,
        )
        if done.returncode:
            words = (done.stderr or done.stdout).strip().splitlines() or ["no reason given"]
            raise Trouble(f"the benchmarks in {root.name}/ cannot be imported ({words[-1]}); mend them first")
        found = json.load(listing)
    benchmarks = Benchmarks(conf, found, regex=profile.selection(found))
    if not benchmarks:
        raise Trouble(f"the profile {profile.name} selects none of the {len(found)} benchmarks")

    def save(folder: str) -> None:
        aside = Config()
        aside.results_dir, aside.benchmark_dir = folder, conf.benchmark_dir
        Benchmarks(aside, found).save()

    store.keep(Path(conf.results_dir), save)
    return benchmarks


def failures_of(
    benchmark: dict[str, Any], result: Any, selected: Collection[int] | None
) -> Iterator[tuple[int, Failure]]:
    """Yield the number of each combination of parameters that gave no result, and why.

    asv gives all that the processes of a benchmark printed as one text, with a line in front of what each
    combination printed, and the exit code of the last that failed. NaN is its sign for what was skipped, and
    then it says so.
    """
    printed = _printed(result.stderr)
    last = max((i for i, value in enumerate(result.result) if value is None), default=None)
    for i, combination in enumerate(itertools.product(*benchmark["params"])):
        if selected is not None and i not in selected:
            continue
        parameters = ", ".join(combination)
        text, code = printed.get(parameters, ""), result.errcode if i == last else None
        if reason := _reason(result.result[i], result.samples[i], text, code):
            yield i, Failure(benchmark["name"], parameters, reason)


def _printed(text: str) -> dict[str, str]:
    """Split what was printed by combination; without parameters all of it belongs to the only one."""
    first, *parts = re.split(r"^For parameters: (.*)$", text, flags=re.MULTILINE)
    return {"": first} | dict(zip(parts[::2], parts[1::2], strict=True))


def _reason(value: Any, samples: list[float] | None, text: str, code: int | None) -> str:
    """Return why there is no number, or nothing if there is one, or asv says that it was skipped."""
    values = samples if value is True else [value]
    if value is not None:
        bad = next((v for v in values or [] if not isinstance(v, int | float) or not math.isfinite(v)), None)
        return "" if bad is None or "asv: skipped" in text else f"returned {_short(str(bad))}"
    if timeout := re.search(r"^asv: benchmark timed out \(timeout (.*)s\)$", text, flags=re.MULTILINE):
        return f"timed out: no word for {float(timeout[1]):g} s"
    if crash := re.search(r"^Fatal Python error: (.*)$", text, flags=re.MULTILINE):
        return f"crashed: {_short(crash[1])}"
    _, found, trace = text.rpartition("Traceback (most recent call last):\n")
    if found:
        return f"raised {_short(next((line for line in trace.splitlines() if line[:1].strip()), ''))}"
    if code is not None and -code in set(signal.Signals):
        return f"killed by {signal.Signals(-code).name}"
    return "ended without a result" + ("" if code is None else f" (exit code {code})")


def _last_words(error: Exception) -> str:
    """Return the line of what a command printed that says best why it failed, without our path."""
    text = f"{getattr(error, 'stdout', '')}\n{getattr(error, 'stderr', '')}".strip() or str(error)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    raised = [line for line in lines if re.match(r"(\w+\.)*\w*(Error|Exception)\b", line)]
    complaints = [line for line in lines if line.lower().startswith("error:")]
    return _short([*lines[-1:], *complaints[::-1], *raised][-1] if lines else type(error).__name__)


def _short(text: str) -> str:
    return names.printable(" ".join(text.replace(f"{Path.cwd()}{os.sep}", "").split())[:300])
