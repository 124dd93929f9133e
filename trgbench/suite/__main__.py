"""Measure commits, publish what is recorded, and print the headline figures; what `make` calls."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from trgbench.console import one_line
from trgbench.errors import InputError, check_integer
from trgbench.suite import configuration, headline, machines, records, site
from trgbench.suite.commits import GitFailed, Trouble, find_commit, git
from trgbench.suite.journal import grouped
from trgbench.suite.lock import writer
from trgbench.suite.measuring import Bench, discover
from trgbench.suite.profiles import PROFILES

FINE, USAGE, BROKEN = 0, 2, 3


def main(arguments: list[str] | None = None) -> int:
    """Return 0, or 2 for a request that cannot be carried out, or 3 if not everything was measured."""
    parser = argparse.ArgumentParser("python -m trgbench.suite", description=__doc__)
    parser.add_argument("profile", choices=[*PROFILES, "publish"], help="what to measure, or only publish")
    parser.add_argument("commits", nargs="*", help="commits and ranges FIRST..LAST (default: HEAD)")
    parser.add_argument("--last", type=int, metavar="N", help="the last N commits of main")
    parser.add_argument("--history", action="store_true", help="record into results/, where history is kept")
    parser.add_argument("--machine", metavar="NAME", help="what this machine is called, kept from then on")
    parser.add_argument("--environment", metavar="NAME", help="one of asv.conf.json's, not its matrix")
    parser.add_argument("--fresh", action="store_true", help="measure again what there are records of")
    parser.add_argument("--wait", type=float, default=0.0, metavar="SECONDS", help="for another writer")
    options = parser.parse_args(arguments)
    if options.profile == "publish" and (options.commits or options.last):
        parser.error("publish takes no commits: it publishes all that results/ has")
    try:
        root = configuration.enter(Path.cwd())
        with writer(configuration.LOCK, f"{parser.prog} {options.profile}", options.wait):
            return publish(root) if options.profile == "publish" else measure(root, options)
    except (InputError, Trouble) as error:
        print(f"error: {error}", file=sys.stderr)
        return USAGE if isinstance(error, InputError) else BROKEN
    except OSError as error:  # a full disk, say
        print(f"error: {one_line(error)}", file=sys.stderr)
        return BROKEN


def publish(root: Path) -> int:
    """Publish what results/ has."""
    configuration.check_history(root)
    conf = configuration.configure()
    configuration.look_through(root, Path(conf.results_dir))
    discover(conf, PROFILES["full"])
    html = Path(conf.html_dir)
    print(f"{site.publish(conf, html)} numbers published in {html}/")
    return FINE


def measure(root: Path, options: Any) -> int:
    """Measure commits, publish, and summarise the last one; see `main`."""
    profile, conf = PROFILES[options.profile], configuration.configure(options.environment)
    results, html = (conf.results_dir, conf.html_dir) if options.history else (profile.results, profile.html)
    conf.results_dir = str(results)
    commits = choose(root, options, conf.branches[0])
    if not all(is_on(root, commit, conf.branches[0]) for commit in commits):
        conf.branches = ["HEAD"]  # a detached HEAD, or no local main: asv would measure and publish nothing
    configuration.look_through(root, Path(results))
    bench = Bench(conf, profile, machines.name(options.machine))
    ran = [bench.measure(commit, options.fresh) for commit in commits]
    numbers = site.publish(conf, Path(html))
    if not any(ran):
        print("\nnothing was measured: there are records of it; FRESH=1 (--fresh) measures again")
    return summarise(bench, commits, Path(html), numbers)


def choose(root: Path, options: Any, branch: str) -> list[str]:
    """Return the commits that are asked for, the oldest first.

    Raises:
        InputError: if there is none.
    """
    if options.last is None:
        commits = configuration.resolve(root, options.commits or ["HEAD"])
    else:
        newest = find_commit(root, branch).hash
        count = check_integer("last", options.last, minimum=1)
        listed = git("rev-list", "--first-parent", "--reverse", f"--max-count={count}", newest, folder=root)
        commits = listed.split()
    if not commits:
        raise InputError(f"{' '.join(options.commits)} has no commit in it")
    return commits


def is_on(root: Path, commit: str, branch: str) -> bool:
    try:
        git("merge-base", "--is-ancestor", commit, f"refs/heads/{branch}", folder=root)
    except GitFailed:
        return False
    return True


def summarise(bench: Bench, commits: Sequence[str], html: Path, numbers: int) -> int:
    """Print the headline table of the last commit, what failed at all, and how to open the dashboard."""
    console = Console()
    found = [
        records.read(bench.results, bench.machine, env.name, commit)
        for commit in commits
        for env in bench.environments
    ]
    console.print(*headline.tables(found[-1]))
    counts = Counter(record.outcome for known in found for record in known)
    console.print(f"{counts['measured']} combinations measured, {numbers} numbers published in {html}/")
    failed = [
        f"failed at {commit[:8]}: {text}"
        for commit in commits
        for env in bench.environments
        for text in grouped(bench.journal.of(commit, env.name).failures)
    ]
    for line in failed:
        console.print(line, style="bold red", markup=False, soft_wrap=True)
    if not counts["measured"]:
        return BROKEN
    console.print(f"open the dashboard: {html}/dashboard.html, or make preview HTML={html}", markup=False)
    return BROKEN if failed else FINE


if __name__ == "__main__":
    sys.exit(main())
