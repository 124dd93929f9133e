"""The subcommand `trgbench sweep`. At the top it imports nothing that loads NumPy."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable

from trgbench import sweeps
from trgbench.console import Lines, Progress, duration

DONE, FAILED_POINTS = 0, 1
TELL_SECONDS = 60.0  # between two lines of progress where there is no terminal

EXAMPLES = """\
examples:
  trgbench sweep --beta 0.1:1.0:91 --chi 8,16,24 --specific-heat --out ising.parquet --plot ising.png
  trgbench sweep --beta 0.1:1.0:91 --chi 8,16,24 --specific-heat --out ising.parquet --resume
  trgbench sweep --beta 0.3,0.44 --chi 16 --backend jax --out two.csv --workers 1
  trgbench sweep --beta 0.1:1.0:1801 --chi 32 --out fine.parquet --scheduler tcp://192.0.2.1:8786
"""


def options(parser: argparse.ArgumentParser, number: Callable[[type], Callable[[str], object]]) -> None:
    """Add the options; `number(kind)` converts a text and leaves what is no number to be refused later."""
    add = parser.add_argument
    add(
        "--beta",
        required=True,
        help="inverse temperatures: numbers and ranges FIRST:LAST:COUNT, such as 0.1:1.0:91,0.44",
    )
    add("--chi", required=True, help="largest bond dimensions kept, such as 8,16,24")
    add("--out", required=True, help="file for the rows, .parquet or .csv; readable at every moment")
    add("--steps", default=20, type=number(int), help="steps; 2^n sites (default: 20)")
    add("--backend", default="native", help="what differentiates; see 'trgbench backends' (default: native)")
    add("--mode", default="traced-staged", help="as of 'trgbench trg' (default: traced-staged)")
    add(
        "--svd",
        default="safe",
        help="derivative of the SVD: safe, builtin, lanczos or matrix-free (default: safe)",
    )
    add("--specific-heat", action="store_true", help="take the second derivative too")
    add("--workers", type=number(int), help="processes here, a thread each (default: one a CPU)")
    add("--scheduler", help="compute on the workers of this Dask scheduler, such as tcp://192.0.2.1:8786")
    add("--tls-ca-file", help="with --scheduler: certificates to trust (PEM)")
    add("--tls-cert", help="with --scheduler: this client's certificate (PEM)")
    add("--tls-key", help="with --scheduler: its key (PEM)")
    add("--plot", help="draw u, specific heat and errors: .png for a paper, .html to explore")
    add("--resume", action="store_true", help="go on with --out: compute what is missing or failed")
    add("--force", action="store_true", help="replace --out and --plot")
    add("--dry-run", action="store_true", help="send the points to the workers, but compute nothing")


def run(args: argparse.Namespace) -> int:
    request = {name: value for name, value in vars(args).items() if name not in ("run", "patience")}
    names = ("tls_ca_file", "tls_cert", "tls_key")
    request["tls"] = {name: value for name in names if (value := request.pop(name)) is not None}
    try:
        with Progress() as progress:
            tell: Callable[[str], None] = progress if sys.stderr.isatty() else Lines(TELL_SECONDS)
            swept = sweeps.sweep(**request, progress=tell)
    except BaseException as stop:
        for note in getattr(stop, "__notes__", ()):
            print(f"trgbench: {note}", file=sys.stderr, flush=True)
        raise
    took = f"{swept.computed} of {swept.points} points computed in {duration(swept.seconds)}"
    if swept.computed:
        took += f", {swept.computed / swept.seconds:.3g} a second"
    print(f"{took}; all are in {swept.out}" + (f", drawn in {args.plot}" if args.plot else ""))
    if swept.ties:
        print(f"note: at {swept.ties} points a cut parts a tie (min_cut_gap below 1e-12): u is chance there")
    for note in swept.notes:
        print(f"note: {note}")
    if swept.failed:
        reasons = [row for row in swept.rows() if row.error][:3]
        print(f"{swept.failed} points failed; their rows say why:")
        for row in reasons:
            print(f"  beta = {row.beta!r}, chi = {row.chi}: {row.error}")
        return FAILED_POINTS
    return DONE
