"""The subcommand `trgbench nightly`. At the top it imports nothing that loads NumPy or asv."""

from __future__ import annotations

import argparse
import functools
from collections.abc import Callable
from pathlib import Path

from trgbench.console import strict_json
from trgbench.errors import check_choice
from trgbench.suite.gate.command import Progress, trouble_ends_with
from trgbench.suite.profiles import PROFILES

BROKEN = 3

EXAMPLES = """\
examples:
  trgbench nightly                                   the new commits of main since the last record
  trgbench nightly --wait 3600 --markdown night.md   after another one that may be running
  trgbench nightly --machine ci --json night.json    on a machine whose CPU is another one every night
  trgbench nightly --accept 1f2e3d4c                 call a slower commit good, and go on from there
"""
EXIT_CODES = """\
exit codes:
  0  everything was measured, and nothing is slower
  1  a commit is slower, confirmed in fresh processes
  2  the request cannot be carried out; one line on standard error says what to change
  3  something was not measured: a build, a benchmark, the gate, or all of it; the output says what and why
"""


def options(parser: argparse.ArgumentParser, number: Callable[[type], Callable[[str], object]]) -> None:
    """Add the options; `number(kind)` converts a text and leaves what is no number to be refused later."""
    add = parser.add_argument
    add("--profile", default="quick", help=f"how much to measure: {', '.join(PROFILES)} (default: quick)")
    add(
        "--commits",
        type=number(int),
        default=5,
        help="most new commits of a night, spread evenly if there are more (default: 5)",
    )
    add("--machine", metavar="NAME", help="what this machine is called in the records, kept from then on")
    add("--accept", metavar="COMMIT", help="from now on count this slower commit as good")
    add(
        "--wait", type=number(float), default=0.0, metavar="SECONDS", help="wait for another writer to finish"
    )
    add("--json", type=Path, metavar="FILE", help="write the report there, for a script")
    add("--markdown", type=Path, metavar="FILE", help="write it there, for people")


def run(args: argparse.Namespace) -> int:
    from trgbench.study.results import check_writable, write
    from trgbench.suite import nightly
    from trgbench.suite.gate.run import compare

    check_choice("profile", args.profile, PROFILES)
    outputs = [None if path is None else path.absolute() for path in (args.json, args.markdown)]
    for path in filter(None, outputs):
        check_writable(path)
    with trouble_ends_with(BROKEN), Progress() as progress:
        report = nightly.run(
            Path.cwd(),
            functools.partial(compare, tell=progress),
            profile=args.profile,
            commits=args.commits,
            machine=args.machine,
            accept=args.accept,
            wait=args.wait,
        )
    for path, text in zip(outputs, (strict_json(report.as_json()) + "\n", report.markdown()), strict=True):
        if path is not None:
            write(path, text)
    print("", *report.lines(), sep="\n")
    return report.exit_code
