"""Many β and χ at once, on the CPUs of this machine or on a Dask cluster: `trgbench.sweep`.

| module | what it holds |
|---|---|
| `grid` | which points, and which settings two runs must share |
| `plan` | which points next, and how many at a time |
| `work` | what a worker computes |
| `cluster` | workers on this machine, or those of a scheduler |
| `run` | the client's loop |
| `store`, `rows` | what is kept, and the files |
| `pictures` | the curves, as PNG and HTML |

At the top it imports neither NumPy nor Dask.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from trgbench.errors import InputError, check_choice

LOCAL_PATIENCE = 60.0  # seconds; on a cluster workers may come hours later, when a batch system lets them
INSTALL = "install it with: pip install 'trgbench[cluster]'"


@dataclass(frozen=True)
class Swept:
    """What a sweep did.

    Attributes:
        out: the file with all rows; `rows()` reads them.
        points: how many points the sweep has, `computed` of them now and the others by earlier runs.
        failed: how many of the points computed now have an error in the place of a result.
        ties: how many points have a cut that parts a tie, so that u there is a matter of rounding.
        seconds: from the first point to the last.
        notes: the backend's remarks, and those about the workers.
    """

    out: Path
    points: int
    computed: int
    failed: int
    ties: int
    seconds: float
    notes: tuple[str, ...]

    def rows(self) -> Iterator[Any]:
        """Yield the rows (`trgbench.sweeps.rows.Row`), ordered by χ, then β."""
        from trgbench.sweeps import rows

        return rows.read(self.out)


def sweep(
    beta: object,
    chi: object,
    out: str | PathLike[str],
    *,
    steps: int = 20,
    backend: str = "native",
    mode: str = "traced-staged",
    svd: str = "safe",
    specific_heat: bool = False,
    workers: int | None = None,
    scheduler: str | None = None,
    tls: Mapping[str, str] | None = None,
    plot: str | PathLike[str] | None = None,
    resume: bool = False,
    force: bool = False,
    dry_run: bool = False,
    progress: Callable[[str], None] = lambda doing: None,
) -> Swept:
    """Compute lnZ/N, u and, if wanted, the specific heat at every (β, χ), into a CSV or Parquet file.

    The numbers are those of `trgbench trg`, bit for bit. A finished batch of points is kept at once: after an
    interruption of any kind, the same call with `resume=True` computes what is missing.

    Workers on this machine are processes that import the caller's main module: a script calls this under
    `if __name__ == "__main__":`.

    Args:
        beta: numbers, or a text such as "0.1:1.0:91" (first, last, count) or "0.3,0.4".
        chi: whole numbers, or a text such as "8,16".
        out: a path that ends in .csv or .parquet.
        workers: processes on this machine, one thread each; by default one a CPU.
        scheduler: the address of a Dask scheduler to use instead, and `tls` the files to encrypt with
            (`tls_ca_file`, `tls_cert`, `tls_key`).
        plot: a path that ends in .png or .html, for the curves.
        resume: go on with what `out` holds; points that failed are computed again.
        force: replace what is there.
        dry_run: send the points round, but compute nothing.
        progress: called with one line about how far it is, about twice a second.

    Raises:
        InputError: if an argument cannot be used, `out` exists or has other settings, the scheduler does not
            answer or goes away, or a worker has other versions. Its notes say what was kept.
        OSError: if a file cannot be written, for instance on a full disk.
    """
    from trgbench.sweeps import grid, rows, store, work

    rows.need("distributed", "a sweep", INSTALL)
    from trgbench.sweeps import cluster

    path, picture = Path(out), None if plot is None else Path(plot)
    if workers is not None and scheduler is not None:
        raise InputError("workers are started on this machine and scheduler is elsewhere; give one of them")
    if tls and scheduler is None:
        raise InputError("TLS files are for a scheduler; give its address too")
    if scheduler is None:
        workers = cluster.check_workers(workers)
    settings = grid.Settings(
        beta=grid.parse_betas(beta),
        chi=grid.parse_chis(chi),
        steps=steps,
        backend=work.DRY_RUN if dry_run else backend,
        mode=mode,
        svd=svd,
        order=2 if specific_heat else 1,
        versions=work.as_text(work.versions(backend)),
    )
    check_calculation(settings, backend, workers or 1)
    store.check_output(path, resume=resume, force=force)
    if picture is not None:
        from trgbench.sweeps import pictures

        pictures.check(picture, replace=resume or force)
    progress("starting workers" if scheduler is None else f"connecting to {scheduler}")
    place = cluster.local(workers) if scheduler is None else cluster.remote(scheduler, tls or {})
    with place as client:
        remarks = cluster.check_workers_of(client, settings.backend, scheduler)
        kept = store.Store.open(path, settings, resume=resume)
        with contextlib.closing(kept):
            result = _run(client, kept, remarks, progress, LOCAL_PATIENCE if scheduler is None else math.inf)
    if picture is not None:
        progress(f"drawing {picture}")
        pictures.draw(picture, result.rows())
    return result


def _run(
    client: Any, kept: Any, remarks: list[str], progress: Callable[[str], None], patience: float
) -> Swept:
    from trgbench.sweeps import run

    before, start = kept.done, time.perf_counter()
    kept.write()
    try:
        notes = run.compute(client, kept.settings, kept, progress, patience=patience)
        seconds = time.perf_counter() - start
        kept.finish()
    except BaseException as stop:
        with contextlib.suppress(OSError):  # the disk may be full: the journal has it all the same
            kept.write()
        stop.add_note(
            f"{kept.done} of {len(kept.settings)} points are kept in {kept.output}; go on with --resume"
        )
        raise
    return Swept(
        out=kept.output,
        points=len(kept.settings),
        computed=kept.done - before,
        failed=kept.failed,
        ties=kept.ties,
        seconds=seconds,
        notes=(*notes, *remarks),
    )


def check_calculation(settings: Any, backend: str, workers: int) -> None:
    """Return if the calculations can be prepared on a machine like this one, `workers` at a time.

    Raises:
        InputError: if not, for instance because the mode has no second derivative.
    """
    from trgbench.errors import Unavailable
    from trgbench.point import check_affordable, memory_limit
    from trgbench.sweeps import work

    library = work.library(backend)
    check_choice("mode", settings.mode, library.modes)
    check_choice(f"SVD rule of backend {backend}", settings.svd, library.svd_rules)
    if reason := library.unavailable(settings.mode, settings.order):
        raise Unavailable(f"backend {backend} cannot run mode {settings.mode}: {reason}")
    for chi in settings.chi:
        check_affordable(chi, settings.steps, memory_limit() // workers)
