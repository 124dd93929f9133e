"""What more workers gain, and what Dask costs: `python -m trgbench.sweeps.scaling`.

It runs the same sweep on one worker and on more, in turns, on this machine, and prints how many times as fast
more are, and which share of the workers' time went into other things than points. Run it on a quiet machine.
Beside it stands the most that this machine can give: how many times as many SVDs as one do as many processes
that share nothing. CPUs that share a core, a cache or a memory bus with others give less than their number.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import statistics
import tempfile
import time
from pathlib import Path

from trgbench import measure, sweeps

SECONDS = 5.0  # of SVDs in every process


def once(beta: str, chi: str, workers: int, folder: Path) -> tuple[float, float]:
    """Return the seconds of a sweep, and the share of the workers' time in which they computed no point."""
    out = folder / f"{workers}.csv"
    swept = sweeps.sweep(beta, chi, out, workers=workers, force=True)
    busy = sum(row.seconds for row in swept.rows())
    return swept.seconds, 1 - busy / (workers * swept.seconds)


def svds(cpu: int) -> float:
    """Return how many SVDs a second of the matrices that TRG has at χ = 16 this process does on one CPU."""
    os.sched_setaffinity(0, {cpu})
    measure.pin(1)
    import numpy as np

    matrix = np.random.default_rng(0).standard_normal((256, 256))
    count, end = 0, time.monotonic() + SECONDS
    while time.monotonic() < end:
        np.linalg.svd(matrix)
        count += 1
    return count / SECONDS


def machine_limit(workers: int) -> float:
    """Return how many times as many SVDs as one process so many do, each on a CPU of its own."""
    cpus = sorted(os.sched_getaffinity(0))[:workers]
    with multiprocessing.get_context("spawn").Pool(workers) as pool:
        together = sum(pool.map(svds, cpus, chunksize=1))
        alone = statistics.mean(pool.apply(svds, (cpu,)) for cpu in cpus)
    return together / alone


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--beta", default="0.1:1.0:91")
    parser.add_argument("--chi", default="16")
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)), help="default: the CPUs")
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    ratios: list[float] = []
    limits: list[float] = []
    others: dict[int, list[float]] = {1: [], args.workers: []}
    print(f"load of this machine before: {os.getloadavg()[0]:.2f} (0 is quiet)")
    with tempfile.TemporaryDirectory() as folder:
        for number in range(args.rounds):
            times = {}
            for workers in (1, args.workers) if number % 2 == 0 else (args.workers, 1):
                times[workers], other = once(args.beta, args.chi, workers, Path(folder))
                others[workers].append(other)
                print(f"{workers} workers: {times[workers]:.2f} s, {100 * other:.1f} % of it not in points")
            ratios.append(times[1] / times[args.workers])
            limits.append(machine_limit(args.workers))
            print(f"{ratios[-1]:.2f} times as fast; SVDs that share nothing: {limits[-1]:.2f} times as many")
    print(
        f"\n{args.workers} workers are {statistics.median(ratios):.2f} times as fast as one; processes that "
        f"share nothing do {statistics.median(limits):.2f} times as much"
    )
    print(f"one worker spends {100 * statistics.median(others[1]):.1f} % of its time on other things")


if __name__ == "__main__":
    main()
