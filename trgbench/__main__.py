"""The command line: `trgbench COMMAND …`. A subcommand is one entry of `COMMANDS`.

At the top it imports nothing that loads NumPy: `trg` pins the CPUs first (see `trgbench.measure`).
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NoReturn

import trgbench
from trgbench.advise import command as advise_command
from trgbench.console import WORDS, Progress, one_line, prompt_interrupts, signal_of, strict_json
from trgbench.errors import InputError
from trgbench.point import Point, compute_point, remarks, report
from trgbench.suite import command as nightly_command
from trgbench.suite.gate import command as gate_command
from trgbench.sweeps import command as sweep_command

DONE, NOT_FINITE, CANNOT, BROKEN_PIPE = 0, 1, 2, 141

EXIT_CODES = """\
exit codes:
  0  done
  2  the request cannot be carried out; one line on standard error says what to change
"""


def with_1(meaning: str) -> str:
    """Return `EXIT_CODES` of a command that can also end with 1."""
    done, row, rest = EXIT_CODES.partition("  2  ")
    return f"{done}  1  {meaning}\n{row}{rest}"


def trg_command(args: argparse.Namespace) -> int:
    request = {name: getattr(args, name) for name in Point.__dataclass_fields__ if hasattr(args, name)}
    with Progress() as progress:
        point, notes = compute_point(**request, progress=progress)
    print(strict_json(asdict(point)) if args.json else report(point))
    for remark in (*remarks(point), *notes):
        print(f"note: {remark}", file=sys.stderr if args.json else sys.stdout)
    return DONE if point.finite else NOT_FINITE


def trg_options(parser: argparse.ArgumentParser) -> None:
    def add(flag: str, default: object, help: str, kind: Callable[[str], object] = str) -> None:
        parser.add_argument(flag, default=default, type=kind, help=f"{help} (default: {default})")

    add("--beta", 0.3, "inverse temperature, above 0; critical at 0.4407", number(float))
    add("--steps", 20, "steps; n of them give a periodic lattice of 2^n sites", number(int))
    add("--chi", 16, "largest bond dimension kept, at least 2; time grows as its sixth power", number(int))
    add("--backend", "native", "what differentiates; see 'trgbench backends'")
    add(
        "--mode",
        "traced-staged",
        "eager or traced: one graph of all steps; eager-staged or traced-staged: one graph a step; "
        "forward: tangents instead of a reverse sweep",
    )
    add("--threads", 1, "threads, each with a CPU of its own", number(int))
    add(
        "--svd",
        "safe",
        "derivative of the SVD: safe (finite) or builtin (the library's own); of native also lanczos, as "
        "safe and faster from chi = 12 on (it computes only the singular vectors that are kept), and "
        "matrix-free, for larger chi",
    )
    parser.add_argument("--json", action="store_true", help="one JSON object; null for what is not finite")


def number(kind: Callable[[str], float]) -> Callable[[str], object]:
    """Return a converter that leaves what is no number as text, for the check of that argument to refuse."""

    def convert(text: str) -> object:
        try:
            return kind(text)
        except ValueError:
            return text

    return convert


# ----------------------------------------------------------------------------------------- backends


def survey(progress: Callable[[str], None] = lambda doing: None) -> list[dict[str, Any]]:
    """Return what can be asked for on this machine, an entry a backend.

    Each has the keys `backend`, `version`, `svd` (rules) and `modes` (name → why it cannot run here, or
    `None`), and `missing`: why the backend cannot be used at all and what to do, or `None`.
    """
    from trgbench import backends

    entries = []
    for name in backends.names():
        progress(f"importing {name}")
        entry: dict[str, Any] = {"backend": name, "version": None, "svd": [], "modes": {}, "missing": None}
        try:
            found = backends.get(name)
            entry |= {"version": found.version, "svd": list(found.svd_rules)}
            entry["modes"] = {mode: found.unavailable(mode) for mode in found.modes}
        except InputError as error:
            entry["missing"] = str(error)
        except Exception as error:  # a broken installation of one library must not hide the others
            entry["missing"] = f"importing it fails: {one_line(error)}"
        entries.append(entry)
    return entries


def backends_command(args: argparse.Namespace) -> int:
    with Progress() as progress:
        entries = survey(progress)
    if args.json:
        print(strict_json({"backends": entries}))
        return DONE
    for entry in entries:
        if entry["missing"]:
            print(f"{entry['backend']:8}missing: {entry['missing']}")
            continue
        print(f"{entry['backend']:8}{entry['version']}, SVD rules: {', '.join(entry['svd'])}")
        for mode, reason in entry["modes"].items():
            print(f"        {mode:15}{f'cannot run: {reason}' if reason else 'ready'}")
    return DONE


def backends_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="one JSON object")


# -------------------------------------------------------------------------------------------- advise


def advise_options(parser: argparse.ArgumentParser) -> None:
    advise_command.options(parser, number)


# -------------------------------------------------------------------------------------------- study


def study_command(args: argparse.Namespace) -> int:
    from trgbench.study.command import run

    return run(args)


def study_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "experiments", nargs="*", metavar="EXPERIMENT", help="names or numbers (default: all)"
    )
    parser.add_argument("--quick", action="store_true", help="fewer sizes and samples: 3 minutes, not 15")
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="keep the results there (default: in the user's cache)"
    )
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write tables and claims there, too")
    parser.add_argument("--html", type=Path, metavar="FILE", help="write a page with plots there, too")
    parser.add_argument("--resume", action="store_true", help="measure only what the kept results lack")
    parser.add_argument(
        "--claims", action="store_true", help="measure nothing; print the claims of the results that are kept"
    )


# --------------------------------------------------------------------------------------------- sweep


def sweep_options(parser: argparse.ArgumentParser) -> None:
    sweep_command.options(parser, number)


# ------------------------------------------------------------------------------------------- nightly


def nightly_options(parser: argparse.ArgumentParser) -> None:
    nightly_command.options(parser, number)


# ---------------------------------------------------------------------------------- the command line


@dataclass(frozen=True)
class Command:
    """A subcommand: its name and texts, what adds its options, and what runs it and returns the exit code.

    After Ctrl-C or SIGTERM it has `patience` seconds to end by itself.
    """

    name: str
    summary: str
    examples: str
    options: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]
    patience: float = 1.0
    exit_codes: str = EXIT_CODES


COMMANDS = (
    Command(
        "trg",
        "free energy and internal energy of the 2D Ising model by TRG, against Onsager, with what they cost",
        """\
examples:
  trgbench trg --beta 0.44 --chi 24             a larger bond dimension near the critical point
  trgbench trg --backend jax --mode traced      the whole graph as one jitted program
  trgbench trg --backend torch --svd builtin    PyTorch's own SVD derivative: not finite
  trgbench trg --json | jq .times.steady_run    for a script
""",
        trg_options,
        trg_command,
        exit_codes=with_1("done, but lnZ/N or u is not finite; the output says why"),
    ),
    Command(
        "backends",
        "the backends, their modes and versions, and how to get what is missing",
        """\
examples:
  trgbench backends
  trgbench backends --json
""",
        backends_options,
        backends_command,
    ),
    Command(
        "study",
        "study's twelve experiments on this machine, and which of its claims hold here",
        """\
examples:
  trgbench study --quick                        all twelve in 3 minutes
  trgbench study depth 9 --json results.json    two of them, by name or number
  trgbench study --resume                       go on after Ctrl-C
  trgbench study --claims                       the ledger of claims, from the results kept
""",
        study_options,
        study_command,
    ),
    Command(
        "advise",
        "backend and mode to use for so many gradients, from costs measured on this machine",
        advise_command.EXAMPLES,
        advise_options,
        advise_command.run,
    ),
    Command(
        "sweep",
        "curves over beta at several chi, computed on all CPUs or on a Dask cluster",
        sweep_command.EXAMPLES,
        sweep_options,
        sweep_command.run,
        patience=15.0,  # to write the output and to stop the workers
        exit_codes=with_1("done, but points failed; their rows say why"),
    ),
    Command(
        "gate",
        "verdict whether one commit is slower than another, measured in turns on this machine",
        gate_command.EXAMPLES,
        gate_command.options,
        gate_command.run,
        patience=5.0,  # to stop the workers
        exit_codes=gate_command.EXIT_CODES,
    ),
    Command(
        "nightly",
        "outcome of measuring and judging main's new commits, after publishing the dashboard",
        nightly_command.EXAMPLES,
        nightly_options,
        nightly_command.run,
        patience=15.0,  # to stop the benchmark that runs
        exit_codes=nightly_command.EXIT_CODES,
    ),
)


class Parser(argparse.ArgumentParser):
    """An argument parser whose complaint is an `InputError`, one line like every other."""

    def error(self, message: str) -> NoReturn:
        raise InputError(f"{message}; see: {self.prog} --help")

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        # argparse leaves what a subcommand does not know to the main parser, which cannot say what it has.
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            flags = ", ".join(flag for action in self._actions for flag in action.option_strings)
            self.error(f"unknown argument {unknown[0]!r}; the options are: {flags}")
        return found, unknown


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the whole command line."""
    layout: dict[str, Any] = {
        "formatter_class": argparse.RawDescriptionHelpFormatter,
        "allow_abbrev": False,  # or an option added later breaks somebody's script
    }
    examples = "examples:\n  trgbench trg --beta 0.4 --steps 20 --chi 16\n  trgbench backends\n"
    parser = Parser(
        prog="trgbench",
        description=(trgbench.__doc__ or "").partition("\n")[0],
        epilog=f"{examples}\n{with_1('done, but not finite, or points failed, or a commit is slower')}"
        "  3  gate and nightly: not everything was measured\n",
        **layout,
    )
    parser.set_defaults(run=no_command, patience=1.0)
    parser.add_argument("--version", action="version", version=f"trgbench {trgbench.__version__}")
    subparsers = parser.add_subparsers(metavar="COMMAND")
    for command in COMMANDS:
        subparser = subparsers.add_parser(
            command.name,
            help=command.summary,
            description=f"Print the {command.summary.removeprefix('the ')}.",
            epilog=f"{command.examples}\n{command.exit_codes}",
            **layout,
        )
        command.options(subparser)
        subparser.set_defaults(run=command.run, patience=command.patience)
    return parser


def no_command(args: argparse.Namespace) -> NoReturn:
    names = ", ".join(command.name for command in COMMANDS)
    raise InputError(f"no command given; choose one of: {names}; see: trgbench --help")


def complain(message: str, code: int) -> int:
    try:
        print(f"trgbench: {message}", file=sys.stderr, flush=True)
    except (
        OSError
    ):  # a full disk under a log: the exit code still says it, which Python's own 1 or 120 would not
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    return code


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    try:
        try:
            args = make_parser().parse_args(arguments)
            with prompt_interrupts(args.patience):
                code: int = args.run(args)
        except SystemExit as stop:  # --help and --version
            code = int(stop.code or 0)
        print(end="", flush=True)  # here, where a closed pipe or a full disk can be answered
        return code
    except InputError as error:
        return complain(f"error: {' '.join(str(error).split())}", CANNOT)
    except ImportError as error:
        return complain(f"error: a library cannot be imported: {one_line(error)}", CANNOT)
    except MemoryError as error:
        return complain(f"error: out of memory; choose a smaller chi ({one_line(error)})", CANNOT)
    except KeyboardInterrupt as stop:
        number = signal_of(stop)
        return complain(WORDS[number], 128 + number)
    except OSError as error:
        # What standard output still holds cannot be written; without this Python would try again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        if isinstance(error, BrokenPipeError):
            return BROKEN_PIPE  # the reader went away (`| head`): nobody is left to complain to
        return complain(f"error: {one_line(error)}", CANNOT)


if __name__ == "__main__":
    sys.exit(main())
