"""The subcommand `trgbench gate`. At the top it imports nothing that loads NumPy or asv."""

from __future__ import annotations

import argparse
import contextlib
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from trgbench.console import Lines, one_line, strict_json
from trgbench.errors import InputError
from trgbench.suite.commits import Trouble, checkout_root
from trgbench.suite.gate.report import NOT_MEASURED, Report, effect_text, schema, value_text

TELL_SECONDS = 30.0  # between two lines of progress where there is no terminal

EXAMPLES = """\
examples:
  trgbench gate main                                HEAD against main
  trgbench gate v1.0 v1.1 --only 'depth.*eager'     other benchmarks than the default set
  trgbench gate main --json gate.json               for a nightly job
  trgbench gate origin/main --markdown comment.md   for a pull request
  trgbench gate --calibrate --json calibration.json   in an hour or two: how well does it work here?
"""
EXIT_CODES = """\
exit codes:
  0  everything was measured, and there is no regression
  1  a regression, confirmed in fresh processes
  2  the request cannot be carried out; one line on standard error says what to change
  3  nothing, or not everything, was measured, or the machine was too noisy; the output says what and why
"""


def options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("base", metavar="BASE", nargs="?", help="what to compare with: a branch, a tag, a hash")
    add("head", metavar="HEAD", nargs="?", default="HEAD", help="what to judge (default: HEAD)")
    add(
        "--only",
        metavar="REGEX",
        help="measure these, not the default set; matched on 'file.Class.method(parameters)'",
    )
    add("--json", type=Path, metavar="FILE", help="write the report there, for a script")
    add(
        "--calibrate",
        action="store_true",
        help="gate BASE (default: HEAD) against itself and against slowed copies; --json keeps every run, "
        "and the same command goes on with them",
    )
    add("--markdown", type=Path, metavar="FILE", help="write it there, to be posted on a pull request")


def run(args: argparse.Namespace) -> int:
    from trgbench.study.results import check_writable, write
    from trgbench.suite.gate.run import compare

    if args.base is None and not args.calibrate:
        raise InputError("give the commit to compare with, such as main; see: trgbench gate --help")
    if args.calibrate and args.json is None:
        raise InputError("--calibrate takes an hour and needs --json FILE to keep what is done")
    if args.calibrate and (args.head != "HEAD" or args.only is not None):
        raise InputError("--calibrate gates one commit, BASE, by the default set; leave HEAD and --only out")
    for path in (args.json, args.markdown):
        if path is not None:
            check_writable(path)
    with trouble_ends_with(NOT_MEASURED):
        root = checkout_root(Path.cwd())
        if args.calibrate:
            return calibrate(root, args)
        with Progress() as progress:
            report = compare(root, args.base, args.head, only=args.only, tell=progress)
    if args.json is not None:
        write(args.json, strict_json(checked(report)) + "\n")
    if args.markdown is not None:
        write(args.markdown, report.markdown())
    show(report)
    return report.exit_code


def calibrate(root: Path, args: argparse.Namespace) -> int:
    from trgbench.study.results import write
    from trgbench.suite.gate.calibrate import calibrate, table

    with Progress() as progress:
        content = calibrate(root, args.base or "HEAD", args.json, progress)
    print(table(content))
    if args.markdown is not None:
        write(args.markdown, table(content) + "\n")
    return 0


def checked(report: Report) -> dict[str, Any]:
    """Return the report as JSON has it, which the schema must find right."""
    import jsonschema

    content = report.as_json()
    jsonschema.Draft202012Validator(schema()).validate(content)
    return content


def show(report: Report) -> None:
    """Print the verdict, the table, and what else a person wants to know."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("benchmark", overflow="fold")
    for name in ("base", "head", "head / base, 95 %"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("")
    for found in [*report.by_harm(), *report.control]:
        cells = value_text(found, found.base), value_text(found, found.head), effect_text(found)
        verdict = "control" if found in report.control else found.verdict.replace("same", found.reason)
        table.add_row(found.benchmark, *cells, verdict, style="bold red" if verdict == "worse" else None)
    console = Console(markup=False, highlight=False, emoji=False)
    console.print(report.summary, style="bold", soft_wrap=True)
    console.print(table)
    for found in report.open:
        console.print(f"{found.verdict}: {found.benchmark}: {found.reason}", soft_wrap=True)
    for note in report.notes:
        console.print(f"note: {note}", soft_wrap=True)


@contextlib.contextmanager
def trouble_ends_with(code: int) -> Iterator[None]:
    """End the program with `code`, saying why, if anything but the request is in the way of the body.

    For what nobody catches Python's own exit code is 1, which stands for a slower commit here.

    Raises:
        SystemExit: with `code`.
    """
    try:
        yield
    except InputError:
        raise
    except Trouble as trouble:
        print(f"trgbench: error: {trouble}", file=sys.stderr)
        raise SystemExit(code) from None
    except OSError as error:  # a full disk, say
        print(f"trgbench: error: {one_line(error)}", file=sys.stderr)
        raise SystemExit(code) from None
    except Exception:
        traceback.print_exc()
        raise SystemExit(code) from None


class Progress:
    """A bar on a terminal, else a line on standard error now and then.

    It is drawn between two pairs only: one that moves by itself would take time from what is being timed.
    """

    def __init__(self) -> None:
        self._bar: Any = None
        self._lines = Lines(TELL_SECONDS)

    def __enter__(self) -> Progress:
        if sys.stderr.isatty():
            from rich import progress
            from rich.console import Console

            self._bar = progress.Progress(
                progress.BarColumn(),
                progress.MofNCompleteColumn(),
                progress.TimeRemainingColumn(),
                progress.TextColumn("{task.description}", markup=False),
                console=Console(file=sys.stderr),
                auto_refresh=False,
                transient=True,
            )
            self._bar.start()
            self._task = self._bar.add_task("")
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def __call__(self, done: int, total: int, doing: str) -> None:
        if self._bar is not None:
            self._bar.update(self._task, completed=done, total=total, description=doing, refresh=True)
        else:
            self._lines(f"{done} of {total} done; {doing}")
