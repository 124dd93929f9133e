"""One point (β, χ, steps) of the model by TRG: lnZ/N and u beside Onsager's, and what they cost.

At the top it imports nothing that loads NumPy: the CPUs are pinned first (see `trgbench.measure`).
"""

from __future__ import annotations

import contextlib
import functools
import math
import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from trgbench import measure
from trgbench.console import duration
from trgbench.errors import InputError, check_integer, shown

if TYPE_CHECKING:
    from trgbench.backends import Prepared

STEPS_MAXIMUM = 100  # 2^100 sites: from about step 60 on, a step's share 2^-step of lnZ/N is below rounding
SMALL_GAP = 0.01  # the study's jump at beta = 0.44 has a gap of 0.003
TIE = 1e-12  # a relative gap that is rounding


@dataclass(frozen=True)
class Point:
    """lnZ/N and u of one TRG calculation beside Onsager's, and what it cost; the fields are the JSON keys.

    Attributes:
        min_cut_gap: the smallest relative gap between the last singular value kept and the first one cut.
        times: seconds by name; `None` where the library does not separate a cost.
    """

    beta: float
    steps: int
    chi: int
    backend: str
    mode: str
    threads: int
    svd: str
    lnz: float
    u: float
    lnz_exact: float
    u_exact: float
    min_cut_gap: float
    times: Mapping[str, float | None]

    @property
    def finite(self) -> bool:
        return math.isfinite(self.lnz) and math.isfinite(self.u)


def compute_point(
    beta: object,
    steps: int,
    chi: int,
    backend: str,
    mode: str,
    threads: int,
    svd: str,
    progress: Callable[[str], None] = lambda doing: None,
) -> tuple[Point, tuple[str, ...]]:
    """Return lnZ/N and u at `beta` with their costs, and the backend's notes; confines the process's CPUs.

    Raises:
        InputError: if an argument cannot be used, or the calculation cannot fit into memory.
    """
    measure.pin(threads)  # before the imports below, which load NumPy
    from trgbench import backends, ising, problems

    beta = ising.check_beta(beta)
    check_affordable(chi, steps, memory_limit())
    problem = problems.trg(chi, steps)
    progress(f"importing {backend}")
    library = backends.get(backend)
    results: list[tuple[float, float]] = []
    with quiet():
        progress(f"preparing {problem} in mode {mode} of {backend}")
        prepared = library.prepare(problem, mode, threads=threads, svd=svd)
        run = functools.partial(prepared.built.run, prepared.built.asarray(problem.check_input(beta)))
        progress(f"running {problem}")
        second = measure.once(lambda: results.append(values(prepared, beta)))
        progress("timing the steady run")
        steady = measure.steady(run) if second < 1 else second  # a long run is steady the second time
        progress("comparing with the exact solution")
        gap = smallest_gap(beta, chi, steps)
    [(lnz, u)] = results
    point = Point(
        beta=beta,
        steps=steps,
        chi=chi,
        backend=backend,
        mode=mode,
        threads=threads,
        svd=svd,
        lnz=lnz,
        u=u,
        lnz_exact=ising.lnz(beta),
        u_exact=ising.energy(beta),
        min_cut_gap=gap,
        times={
            **{cost: prepared.built.costs[cost] for cost in ("trace", "compile", "prepare", "first_run")},
            "steady_run": steady,
        },
    )
    return point, prepared.built.notes


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Silence warnings of what is not finite (the result says it), and of old usage inside the libraries."""
    with warnings.catch_warnings():
        for category in (RuntimeWarning, FutureWarning, DeprecationWarning):
            warnings.simplefilter("ignore", category)
        yield


def values(prepared: Prepared, beta: float) -> tuple[float, float]:
    """Return lnZ/N and u = −d(lnZ/N)/dβ of a TRG problem prepared at order 1."""
    lnz, gradient = prepared(beta)
    return lnz, -float(gradient)


def smallest_gap(beta: float, chi: int, steps: int) -> float:
    """Return the smallest relative gap at any cut; see `trgbench.trg.cut_gaps`."""
    from trgbench import trg

    return float(trg.cut_gaps(beta, chi, steps).min())


def check_affordable(chi: int, steps: int, memory: int) -> None:
    """Return if the gradient of `steps` steps at bond dimension `chi` may fit into `memory` bytes.

    Step i splits a tensor of d⁴ float64, d = k_{i−1}, in two ways. The reverse sweep needs that tensor of
    every step, and an SVD at the least three more arrays of that size: the copy that LAPACK destroys and
    both sets of singular vectors.

    Raises:
        InputError: if it cannot, if there are too many steps, or if an argument is no such whole number.
    """
    if check_integer("steps", steps, minimum=1) > STEPS_MAXIMUM:
        raise InputError(
            f"steps must be at most {STEPS_MAXIMUM}; got {shown(steps)}; "
            f"from about 60 steps on, lnZ/N changes no more in double precision"
        )
    from trgbench.trg import bond_dimensions

    bonds = (2, *bond_dimensions(chi, steps)[:-1])
    largest = max(bonds)
    if 8 * (sum(d**4 for d in bonds) + 3 * largest**4) > memory:
        raise InputError(
            f"chi={shown(chi)} at steps={steps} cannot fit into the {memory / 2**30:.3g} GiB of memory here; "
            f"choose a chi well below {math.ceil((memory / 8 / (steps + 3)) ** 0.25)}"
        )


def memory_limit() -> int:
    """Return the bytes of memory that this process may use: the machine's, or its container's if fewer."""
    limit = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    container = Path("/sys/fs/cgroup/memory.max")
    if container.exists() and (text := container.read_text().strip()).isdigit():
        limit = min(limit, int(text))
    return limit


def remarks(point: Point) -> list[str]:
    """Return why a result is not finite or not to be relied on, and what to do: one line, or none."""
    if point.finite and point.min_cut_gap < TIE:
        return [
            f"a cut parts two singular values that are equal but for rounding (relative gap "
            f"{point.min_cut_gap:.1g}): which of them is kept is chance, and u with it; use another chi"
        ]
    if point.finite:
        return []
    return [why_not_finite(point.beta, point.svd)]


def why_not_finite(beta: float, svd: str) -> str:
    """Return why a result is not finite, and what to do."""
    if svd == "builtin":
        return (
            "the gradient is not finite: the builtin derivative of the SVD divides by differences of "
            "singular values, and TRG has equal ones; use --svd safe"
        )
    return (
        f"the result is not finite: the calculation leaves the range of double precision at beta = "
        f"{beta!r}; use a beta nearer to the critical 0.4407"
    )


def report(point: Point) -> str:
    """Return the result as a text for people."""
    rows = [("", "TRG", "exact (Onsager)", "error")]
    for name, got, exact in (
        ("lnZ/N", point.lnz, point.lnz_exact),
        ("u", point.u, point.u_exact),
    ):
        shown = (f"{got:.15f}", f"{got - exact:+.3e}") if math.isfinite(got) else ("not finite", "-")
        rows.append((name, shown[0], f"{exact:.15f}", shown[1]))
    gap = "nothing was cut" if point.min_cut_gap == 1 else f"{point.min_cut_gap:.3g}"
    if TIE <= point.min_cut_gap < SMALL_GAP:
        gap += " (small: lnZ/N may jump near this beta, which spoils finite differences of it but not u)"
    times = {name.replace("_", " "): seconds for name, seconds in point.times.items() if seconds is not None}
    return "\n".join(
        [
            f"Ising model at beta = {point.beta!r} by TRG, chi = {point.chi}, steps = {point.steps} "
            f"(2^{point.steps} sites)",
            f"{point.backend}, {point.mode}, {point.svd} SVD rule, threads = {point.threads}",
            "",
            *(f"{row[0]:7}{row[1]:>19}{row[2]:>21}{row[3]:>13}" for row in rows),
            "",
            f"smallest relative gap at a cut: {gap}",
            "times: " + ", ".join(f"{name} {duration(seconds)}" for name, seconds in times.items()),
        ]
    )
