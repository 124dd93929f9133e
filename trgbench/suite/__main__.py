"""Run a profile of the suite on a commit, publish it, and print the headline figures."""

from __future__ import annotations

import argparse
import os
import platform
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

from asv import util
from asv.benchmarks import Benchmarks
from asv.commands.run import Run
from asv.config import Config
from asv.console import log
from asv.machine import Machine, MachineCollection
from asv.plugin_manager import plugin_manager
from rich.console import Console

from trgbench.suite import headline, records, site
from trgbench.suite.profiles import PROFILES, Profile


def main(arguments: list[str] | None = None) -> int:
    """Return 0, or 2 if a benchmark failed, or 1 if nothing could be measured."""
    parser = argparse.ArgumentParser("python -m trgbench.suite", description=__doc__)
    parser.add_argument("profile", choices=PROFILES)
    parser.add_argument("--commit", default="HEAD", help="what to measure (default: HEAD)")
    parser.add_argument(
        "--machine", default=machine_name(), help="name of this machine (default: %(default)s)"
    )
    parser.add_argument("--fresh", action="store_true", help="measure again what this commit has records of")
    options = parser.parse_args(arguments)
    log.enable()
    try:
        return bench(PROFILES[options.profile], options.commit, options.machine, options.fresh)
    except (util.UserError, site.EmptySite) as error:
        log.flush()
        print(f"error: {error}", file=sys.stderr)
        return 1


def bench(profile: Profile, commit: str, machine: str, fresh: bool) -> int:
    """Measure, publish and summarise; see `main`."""
    conf = configure(profile)
    commit = git("rev-parse", "--verify", f"{commit}^{{commit}}")
    register(machine)

    def run(bench: list[str]) -> int | None:
        return Run.run(
            conf,
            range_spec=f"{commit}^!",
            bench=bench,
            attribute=dict(profile.attributes),
            show_stderr=True,  # why a combination was skipped, or failed
            machine=machine,
            skip_successful=not fresh,
            record_samples=True,
            pull=False,
        )

    run(["just-discover"])  # asv's own word: makes the environment and the list of benchmarks, runs none
    before = [] if fresh else records.read(profile.results, machine, commit)
    run(profile.selection(Benchmarks.load(conf).values()))
    log.flush()
    found = records.read(profile.results, machine, commit)
    numbers = site.publish(conf, profile.html)
    if before and found == before:
        print("\nnothing was measured: there are records of this commit; FRESH=1 (--fresh) measures again")
    return summarise(profile, found, numbers)


def configure(profile: Profile) -> Config:
    """Return asv.conf.json with the places of the profile, and a branch that holds HEAD."""
    conf = Config.load()
    conf.results_dir = str(profile.results)
    # On a detached HEAD, or where there is no local main, asv would run and then publish nothing.
    on_main = subprocess.run(
        ["git", "merge-base", "--is-ancestor", "HEAD", f"refs/heads/{conf.branches[0]}"],
        stderr=subprocess.DEVNULL,
    )
    if on_main.returncode != 0:
        conf.branches = ["HEAD"]
    for plugin in conf.plugins:
        plugin_manager.import_plugin(plugin)
    return conf


def machine_name() -> str:
    """Return a name that says what a machine is: a container's host name changes, and graphs with it."""
    known = Machine.get_defaults()
    cpu = re.sub(r"\((r|tm)\)|\bcpu\b|@.*|\d+-core|processor", " ", known["cpu"].lower())
    words = re.findall(r"[a-z0-9.]+", cpu) or [known["arch"]]
    return "-".join([*words, f"{known['num_cpu']}cpu"])


def register(name: str) -> None:
    """Tell asv about this machine, without what changes at every boot: asv splits graphs by each of these."""
    known = Machine.get_defaults()
    gibibytes = round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30)
    info = {**known, "machine": name, "os": platform.system(), "ram": f"{gibibytes} GiB"}
    MachineCollection.save(name, info)


def summarise(profile: Profile, found: list[records.Record], numbers: int) -> int:
    """Print the headline table, what failed, and how to open the dashboard."""
    console = Console()
    console.print(*headline.tables(found))
    counts = Counter(record.outcome for record in found)
    console.print(
        f"{counts['measured']} combinations measured, {numbers} numbers published in {profile.html}/"
    )
    for record in found:
        if record.outcome == "failed":
            console.print(f"failed: {record}", style="bold red", markup=False)
    if not counts["measured"]:
        return 1
    console.print(f"open the dashboard: make preview HTML={Path(profile.html)}", markup=False)
    return 2 if counts["failed"] else 0


def git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], capture_output=True, text=True)
    if done.returncode:
        raise util.UserError(f"git {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
