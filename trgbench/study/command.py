"""`trgbench study`: run experiments, keep what is finished, print tables and the ledger of claims."""

from __future__ import annotations

import argparse
import functools
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from trgbench import study
from trgbench.console import signal_of, strict_json
from trgbench.errors import InputError
from trgbench.study import report, results, tables
from trgbench.study.claims import SOURCE_MACHINE, summary
from trgbench.study.lab import MISSING, Lab
from trgbench.study.tasks import survey


def run(args: argparse.Namespace) -> int:
    """Carry out `trgbench study` and return the exit code; see `trgbench.__main__`."""
    names = study.select(args.experiments)
    path = args.json or results.default_path(args.quick)
    if args.claims:
        kept = results.load(path) if path.exists() else None
        if kept is None and args.json:
            raise InputError(f"there is no file {path}; measure first: trgbench study --json {path}")
        print_ledger(kept, names)
        return 0
    kept = kept_results(path, args)
    done = {entry["id"]: entry for entry in kept["experiments"]}
    results.check_writable(path)
    if args.markdown:
        results.check_writable(args.markdown)
    if args.html:
        report.check_available()
        results.check_writable(args.html)
    left = [name for name in names if not (args.resume and name in done)]
    interrupted: KeyboardInterrupt | None = None
    missing = kept["missing"]
    with progress_bar(len(left)) as (progress, advance):
        lab = Lab(quick=args.quick, progress=progress)
        try:
            if left:
                lab.missing = missing = find_missing(lab)
            for name in left:
                progress(name)
                lab.progress = functools.partial(_say, progress, name)
                start = time.perf_counter()
                data = study.get(name).measure(lab)
                done[name] = results.experiment(name, data, time.perf_counter() - start)
                results.write(path, strict_json(results.assemble(done, args.quick, missing)) + "\n")
                advance()
        except KeyboardInterrupt as stop:
            interrupted = stop
    whole = results.assemble(done, args.quick, missing)
    if args.markdown and not interrupted:
        results.write(args.markdown, tables.markdown(whole, summary))
    if args.html and not interrupted:
        results.write(args.html, report.html(whole))
    if interrupted:
        remark = f"interrupted; {len(done)} of {len(study.EXPERIMENTS)} experiments are kept in {path}"
        Console(stderr=True, soft_wrap=True).print(
            f"trgbench: {remark}; go on with: {resume_line(args)}", markup=False, highlight=False
        )
        return 128 + signal_of(interrupted)
    print_tables(whole, names)
    return 0


def _say(progress: Any, name: str, doing: str) -> None:
    progress(f"{name}: {doing}")


def resume_line(args: argparse.Namespace) -> str:
    """Return the command that goes on where this one stopped."""
    words = ["trgbench study", *args.experiments, "--resume"]
    words += ["--quick"] if args.quick else []
    for option in ("json", "markdown", "html"):
        words += [f"--{option} {value}"] if (value := getattr(args, option)) else []
    return " ".join(map(str, words))


def kept_results(path: Path, args: argparse.Namespace) -> dict[str, Any]:
    """Return the results in the file; what is measured now takes the place of what it has of the same.

    Raises:
        InputError: if they were measured on another machine or with other versions, and the user named the
            file or asked to go on with it. What is in our own place is replaced in silence.
    """
    nothing: dict[str, Any] = {"experiments": [], "missing": {}}
    if not path.exists():
        if args.resume and args.json:
            raise InputError(f"there is nothing to resume: no file {path}; leave out --resume")
        return nothing
    try:
        kept = results.load(path)
        if reason := results.difference(kept, args.quick):
            raise InputError(f"{path} cannot be continued: {reason}; give another file with --json")
    except InputError:
        if args.resume or args.json:
            raise
        return nothing
    return kept


def find_missing(lab: Lab) -> dict[str, str]:
    """Return which backends cannot be used here, and why; each is tried in a process of its own."""
    found = lab.each(survey)
    return {name: answer[MISSING] for name, answer in found.items() if MISSING in answer}


@contextmanager
def progress_bar(total: int) -> Iterator[tuple[Any, Any]]:
    """Yield what to call with what is being done, and when an experiment is finished."""
    columns = (BarColumn(20), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    console = Console(stderr=True)
    # Drawn twice a second at most, and only on a terminal: a bar must not take time from what is timed.
    with Progress(*columns, console=console, refresh_per_second=2, transient=True) as bar:
        task = bar.add_task("looking for backends", total=total)
        yield (
            lambda doing: bar.update(task, description=_fitted(doing, console.width - 50)),
            lambda: bar.advance(task),
        )


def _fitted(text: str, width: int) -> str:
    width = max(20, width)
    return text if len(text) <= width else text[: width - 3] + "..."


def print_tables(whole: Mapping[str, Any], names: Sequence[str]) -> None:
    """Print the tables of the named experiments, and their claims."""
    console = Console()
    for entry in whole["experiments"]:
        if entry["id"] in names:
            console.rule(f"{entry['number']}. {entry['title']}", align="left")
            for content in entry["tables"]:
                console.print(tables.drawn(content))
                console.print()
    _print_claims(console, whole["claims"], [n for n in names if _has(whole, n)])
    for backend, reason in whole["missing"].items():
        console.print(f"note: {backend} is left out: {reason}", markup=False, highlight=False)


def _has(whole: Mapping[str, Any], name: str) -> bool:
    return any(entry["id"] == name for entry in whole["experiments"])


def print_ledger(kept: Mapping[str, Any] | None, names: Sequence[str]) -> None:
    """Print the ledger of claims from results that are kept, and where they are from."""
    console = Console()
    if kept is None:
        claims = results.judge([])
        console.print("nothing is measured yet: trgbench study", markup=False, highlight=False)
    else:
        # Judged again: the data is what was measured, a verdict is what this version makes of it.
        claims = results.judge(kept["experiments"])
        machine = kept["machine"]
        versions = ", ".join(f"{name} {version}" for name, version in kept["versions"].items())
        console.print(
            f"measured {kept['date']} on {machine['cpu']}, {machine['cpus']} CPUs, {versions}",
            markup=False,
            highlight=False,
        )
    _print_claims(console, claims, names)


def _print_claims(console: Console, claims: Sequence[Mapping[str, Any]], names: Sequence[str]) -> None:
    shown = [claim for claim in claims if claim["experiment"] in names]
    console.print(tables.ledger(shown))
    console.print(f"{summary(shown)} (the study's figures: {SOURCE_MACHINE})", markup=False)
