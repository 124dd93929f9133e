"""`trgbench advise`: its options and its run."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from trgbench.advise import profile
from trgbench.advise.advice import Question, advise, as_json
from trgbench.advise.costs import SIZES, Combination, Costs, Setting, check_setting
from trgbench.advise.survey import BUDGET, combinations, measure_all
from trgbench.console import Progress, strict_json
from trgbench.errors import InputError, check_choice, check_integer, shown
from trgbench.point import memory_limit

EXAMPLES = """\
examples:
  trgbench advise --problem trg --chi 16 --steps 20 --evaluations 500
  trgbench advise --problem trg --chi 8 --steps 12 --value-branches
  trgbench advise --problem vector --n 1000 --evaluations 1 --changing-shape
  trgbench advise --problem chain --depth 400 --threads 1 --json | jq .recommended
"""

RECKONING = """
Costs are measured the first time that a setting is asked about: every combination of backend and mode in a
fresh process, with the compilers' disk caches off. They are kept for this machine and these versions
($XDG_CACHE_HOME/trgbench/advice.json). Then
  fixed shape:     N gradients = trace + compile + prepare + first run + (N - 1) x steady run
  changing shape:  N gradients = trace + compile + prepare + first run
                                 + (N - 1) x all of these of another shape, in the same process
so with --changing-shape every evaluation is taken to have a shape that was not seen before. Importing the
library is not counted. On one thread the times are the CPU's, so that other processes of a busy machine do
not count; on several they are the clock's.
"""


def options(parser: argparse.ArgumentParser, number: Callable[[type], Callable[[str], object]]) -> None:
    """Add the options; `number` makes a converter that leaves what is no number to our own checks."""
    parser.description = f"{parser.description}\n{RECKONING}"
    integer = number(int)
    parser.add_argument("--problem", default="trg", help="trg, vector or chain (default: trg)")
    for name, of, what in (
        ("chi", "trg", "largest bond dimension"),
        ("steps", "trg", "steps of coarse graining"),
        ("n", "vector", "length"),
        ("depth", "chain", "layers"),
    ):
        parser.add_argument(f"--{name}", type=integer, help=f"{what}; for problem {of}")
    parser.add_argument(
        "--evaluations", default=100, type=integer, help="gradients you will compute (default: 100)"
    )
    shape = parser.add_mutually_exclusive_group()
    shape.add_argument("--fixed-shape", action="store_true", help="all of one shape (default)")
    shape.add_argument("--changing-shape", action="store_true", help="each of a shape of its own")
    parser.add_argument(
        "--value-branches", action="store_true", help="the function branches on values it computes"
    )
    parser.add_argument("--threads", default=1, type=integer, help="threads, each with a CPU (default: 1)")
    parser.add_argument(
        "--budget",
        default=BUDGET,
        type=number(float),
        help=f"seconds to measure in, if need be (default: {BUDGET:.0f}); with more, what took too long "
        "is tried again",
    )
    parser.add_argument("--profile", help="keep the costs in this file, and refuse those of another machine")
    parser.add_argument("--json", action="store_true", help="one JSON object")


def run(args: argparse.Namespace) -> int:
    """Answer, and return the exit code."""
    question = _question(args)
    if not isinstance(args.budget, float) or not 1 <= args.budget <= 86400:
        raise InputError(f"budget must be a number of seconds, 1 to 86400; got {shown(args.budget)}")
    notes: list[str] = []
    with Progress() as progress:
        measured = costs_of(question.setting, args.budget, args.profile, progress, notes.append)
    advice = advise(question, measured)
    for note in notes:
        print(f"note: {note}", file=sys.stderr)
    if args.json:
        print(strict_json(as_json(advice)))
    else:
        from rich.console import Console

        from trgbench.advise.text import report

        Console(highlight=False).print(report(advice))
    return 0


def _question(args: argparse.Namespace) -> Question:
    problem = check_choice("problem", args.problem, SIZES)
    names = {name for sizes in SIZES.values() for name in sizes}
    sizes = {name: getattr(args, name) for name in sorted(names) if getattr(args, name) is not None}
    if problem == "trg":
        sizes = {"chi": 16, "steps": 20, **sizes}  # the study's
    setting = check_setting(problem, sizes, args.threads, args.changing_shape, memory_limit())
    evaluations = check_integer("evaluations", args.evaluations, minimum=1)
    return Question(setting, evaluations, args.value_branches)


def costs_of(
    setting: Setting,
    budget: float,
    file: str | None,
    progress: Callable[[str], None],
    note: Callable[[str], None],
) -> dict[Combination, Costs]:
    """Return what every combination costs in a setting, measuring what is not known yet.

    Each is kept as soon as it is measured, so an interrupted survey goes on where it was.
    """
    path = profile.default_path() if file is None else Path(file)
    here, strict = profile.conditions(), file is not None
    known, reason = profile.load(path, here, strict=strict)
    if todo := unknown(setting, known.of(setting), budget):
        with profile.only_one(path, lambda: progress("waiting for another 'trgbench advise' to measure")):
            known, reason = profile.load(path, here, strict=strict)
            measured = known.of(setting)
            todo = unknown(setting, measured, budget)
            for key, costs in measure_all(setting, todo, budget, progress):
                measured[key] = costs
                profile.save(path, known)
    if reason:
        note(f"the costs kept in {path} were {reason}; measured again")
    return known.of(setting)


def unknown(setting: Setting, measured: dict[Combination, Costs], budget: float) -> list[Combination]:
    """Return what is to be measured: what is not known, and, given a larger budget, what took too long."""
    more = budget > BUDGET
    return [key for key in combinations(setting) if key not in measured or (measured[key].given_up and more)]
