"""What a worker does: it prepares a calculation once and computes batches of points with it."""

from __future__ import annotations

import functools
import importlib.metadata
import math
import os
import platform
import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import trgbench
from trgbench import measure
from trgbench.console import one_line
from trgbench.errors import InputError
from trgbench.sweeps.grid import Calculation

if TYPE_CHECKING:
    from trgbench.backends import Backend, Prepared

DRY_RUN = "dry-run"  # in the place of a backend: nothing is computed
LIBRARIES: dict[str, tuple[str, ...]] = {"jax": ("jax", "jaxlib"), "torch": ("torch",)}

# Thread counts and warning filters are settings of the whole process, so it computes one point at a time,
# however many threads its Dask worker has.
_one_at_a_time = threading.Lock()


class Outcome(NamedTuple):
    """What a worker tells of one point; see `trgbench.sweeps.rows.Row`."""

    lnz: float | None = None
    u: float | None = None
    specific_heat: float | None = None
    lnz_exact: float | None = None
    u_exact: float | None = None
    specific_heat_exact: float | None = None
    min_cut_gap: float | None = None
    seconds: float | None = None
    worker: str | None = None
    error: str | None = None


class Batch(NamedTuple):
    """The outcomes of a batch, in its order, and the backend's remarks for the user."""

    outcomes: list[Outcome]
    notes: tuple[str, ...]


class OtherVersions(InputError):
    """A worker has other versions than the client."""


def versions(backend: str) -> dict[str, str]:
    """Return the versions here of all that a result depends on."""
    found = {"trgbench": trgbench.__version__, "python": platform.python_version()}
    for name in ("numpy", "scipy", *LIBRARIES.get(backend, ())):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "missing"
    return found


def as_text(versions: dict[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in versions.items())


@functools.cache
def library(backend: str) -> Backend:
    """Return the backend, imported on one CPU: XLA's thread pool takes its size from the CPUs at that time.

    The process gets its CPUs back: which it should stay on is for those to say who started the worker.
    """
    before = os.sched_getaffinity(0)
    measure.pin(1)
    from trgbench import backends

    try:
        return backends.get(backend)
    finally:
        measure.confine(before)


@functools.lru_cache(maxsize=2)  # batches of the next χ overlap with the last ones of this
def prepared(calculation: Calculation) -> tuple[Prepared, ...]:
    """Return the programs of lnZ/N and u and, of order 2, of the second derivative.

    Those of lnZ/N and u are the same whether the specific heat is wanted or not, so that their bits are.
    """
    import threadpoolctl

    threadpoolctl.threadpool_limits(1)  # for the gap at the cuts too, which is NumPy's
    from trgbench import problems

    backend = library(calculation.backend)
    problem = problems.trg(calculation.chi, calculation.steps)
    return tuple(
        backend.prepare(problem, calculation.mode, threads=1, svd=calculation.svd, order=order)
        for order in range(1, calculation.order + 1)
    )


def compute(calculation: Calculation, betas: Sequence[float], wanted: dict[str, str]) -> Batch:
    """Compute a batch of points; one that fails says so in its outcome and does not stop the others.

    Raises:
        OtherVersions: if this worker's versions are not the ones wanted.
        InputError: if the calculation cannot be prepared here, whatever β is.
    """
    if calculation.backend == DRY_RUN:
        return Batch([Outcome(seconds=0.0, worker=_address())] * len(betas), ())
    here = versions(calculation.backend)
    if here != wanted:
        names = [name for name in wanted if here.get(name) != wanted[name]]
        differences = ", ".join(f"{name} {here.get(name)} (client: {wanted[name]})" for name in names)
        raise OtherVersions(
            f"worker {_address()} has other versions than the client: {differences}; install the same on both"
        )
    from trgbench.point import quiet

    with _one_at_a_time, quiet():
        programs = prepared(calculation)
        outcomes = [_point(calculation, programs, beta) for beta in betas]
        return Batch(outcomes, tuple(note for program in programs[:1] for note in program.built.notes))


def _point(calculation: Calculation, programs: tuple[Prepared, ...], beta: float) -> Outcome:
    from trgbench import ising, point

    start = time.perf_counter()
    outcome = Outcome(worker=_address())
    try:
        lnz, u = point.values(programs[0], beta)
        specific_heat = None
        if calculation.order == 2:
            specific_heat = beta * beta * float(programs[1](beta)[2])
        outcome = outcome._replace(
            lnz=lnz,
            u=u,
            specific_heat=specific_heat,
            lnz_exact=ising.lnz(beta),
            u_exact=ising.energy(beta),
            specific_heat_exact=ising.specific_heat(beta),
            min_cut_gap=point.smallest_gap(beta, calculation.chi, calculation.steps),
        )
        if not all(map(math.isfinite, (lnz, u, specific_heat or 0.0))):
            outcome = outcome._replace(error=point.why_not_finite(beta, calculation.svd))
    except Exception as error:  # whatever it is: the row says so, and the other points go on
        outcome = outcome._replace(error=one_line(error))
    return outcome._replace(seconds=time.perf_counter() - start)


def _address() -> str:
    from distributed import get_worker

    return get_worker().address
