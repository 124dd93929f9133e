"""The table as data: what is compared with what, and the ratio native/peer that is aimed at."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Contender:
    """A backend and one of its modes on a problem, for instance `("trg", 16, 20)`."""

    backend: str
    mode: str
    problem: tuple[Any, ...]
    options: Mapping[str, Any] = field(default_factory=dict)
    threads: int = 1

    @property
    def name(self) -> str:
        said = [f"{name} {value}" for name, value in self.options.items()]
        said += [f"{self.threads} threads"] if self.threads > 1 else []
        return f"{self.backend} {self.mode}" + (f" ({', '.join(said)})" if said else "")

    @property
    def request(self) -> dict[str, Any]:
        """The contender as JSON, for a measuring process."""
        return {
            "name": self.name,
            "backend": self.backend,
            "mode": self.mode,
            "problem": list(self.problem),
            "options": dict(self.options),
            "threads": self.threads,
        }


@dataclass(frozen=True)
class Cell:
    """A steady ratio: the first of `native` is compared with the fastest of `peers`, in one process.

    The others of `native` must give the same bits. `beside` is timed and shown, and does not count.
    """

    title: str
    at_most: float
    native: tuple[Contender, ...]
    peers: tuple[Contender, ...]
    beside: tuple[Contender, ...] = ()
    threads: int = 1


@dataclass(frozen=True)
class Race:
    """Time to the N-th gradient in fresh processes: at every N the best native mode against the best peer."""

    title: str
    native: tuple[Contender, ...]
    peers: tuple[Contender, ...]
    at_most: float = 1.0


def contenders(problem: tuple[Any, ...], *names: tuple[str, str], **options: Any) -> tuple[Contender, ...]:
    return tuple(Contender(backend, mode, problem, options) for backend, mode in names)


EAGER, TRACED, STAGED, TAPES = "eager", "traced", "traced-staged", "eager-staged"
WHOLE = (("torch", EAGER), ("torch", TRACED), ("jax", TRACED), ("jax", EAGER))
# Twenty steps as one graph take torch.compile minutes, and JAX without jit is dearest of all.
STEPS = (("torch", EAGER), ("torch", TAPES), ("torch", STAGED), ("jax", TRACED), ("jax", STAGED))
CUT = {"svd": "lanczos"}


def vectors() -> list[Cell]:
    cells = []
    for n, traced, eager in ((10, 0.8, 0.45), (1000, 0.6, 0.7), (100_000, 1.0, 1.1), (1_000_000, 1.0, 1.1)):
        problem = ("vector", n)
        both = contenders(problem, ("native", TRACED), ("native", EAGER))
        peers = contenders(problem, ("jax", TRACED), ("torch", EAGER))
        compiled = contenders(problem, ("torch", TRACED))
        cells.append(Cell(f"vector, n = {n}, traced", traced, both, peers, compiled))
        cells.append(Cell(f"vector, n = {n}, eager", eager, both[::-1], peers[1:]))
        for mode in (TRACED, EAGER):
            one, two = (Contender("native", mode, problem, threads=threads) for threads in (1, 2))
            cells.append(Cell(f"vector, n = {n}, {mode}, 2 threads over 1", 1.0, (two,), (one,), threads=2))
    return cells


def chains() -> list[Cell]:
    chain = ("chain", 400)
    eager, traced = contenders(chain, ("native", EAGER), ("native", TRACED))
    return [
        Cell("chain, 400 layers, eager", 0.6, (eager, traced), contenders(chain, ("torch", EAGER))),
        Cell("chain, 400 layers, traced", 0.8, (traced, eager), contenders(chain, ("jax", TRACED))),
    ]


def trgs() -> list[Cell]:
    cells = [
        Cell(
            "TRG, 4 steps, χ = 16, whole and traced",
            1.0,
            contenders(("trg", 16, 4), ("native", TRACED), ("native", EAGER)),
            contenders(("trg", 16, 4), *WHOLE),
        )
    ]
    for chi, steps, full, cut in ((16, 20, 0.85, 0.35), (24, 12, None, 0.35), (32, 8, None, 0.3)):
        problem = ("trg", chi, steps)
        peers = contenders(problem, *(STEPS if chi == 16 else (STEPS[0], STEPS[3], STEPS[4])))
        title = f"TRG, {steps} steps, χ = {chi}"
        if full:
            native = contenders(problem, ("native", STAGED), ("native", EAGER), ("native", TAPES))
            cells.append(Cell(f"{title}, full SVD", full, native, peers))
        native = contenders(problem, ("native", STAGED), ("native", TAPES), **CUT)
        cells.append(Cell(f"{title}, cut SVD", cut, native, peers))
    return cells


CELLS = (*vectors(), *chains(), *trgs())

COUNTS = (1, 10, 100, 1000, 10_000)

RACES = (
    *(
        Race(
            f"vector, n = {n}",
            contenders(("vector", n), ("native", EAGER), ("native", TRACED)),
            contenders(("vector", n), *WHOLE),
        )
        for n in (10, 1000, 100_000)
    ),
    Race(
        "chain, 400 layers",
        contenders(("chain", 400), *(("native", mode) for mode in (EAGER, TRACED, TAPES, STAGED))),
        contenders(("chain", 400), ("torch", EAGER), ("torch", TAPES), ("jax", TRACED), ("jax", STAGED)),
    ),
    Race(
        "TRG, 20 steps, χ = 16",
        (
            *contenders(("trg", 16, 20), ("native", EAGER), ("native", STAGED)),
            *contenders(("trg", 16, 20), ("native", TAPES), ("native", STAGED), **CUT),
        ),
        contenders(("trg", 16, 20), ("torch", EAGER), ("torch", TAPES), ("jax", TRACED), ("jax", STAGED)),
    ),
)

PREPARE = (Contender("native", STAGED, ("trg", 16, 20)), 0.050)  # seconds
MEMORY = (
    Contender("native", TAPES, ("trg", 24, 20), {"recompute": True, "svd": "matrix-free"}),
    Contender("torch", EAGER, ("trg", 24, 20)),
    0.25,
)
# Twelve steps less eight: four steps whose every bond is χ.
GROWTH_CHI, GROWTH_STEPS = (16, 24, 32, 48), (8, 12)
GROWTH = (("cut SVD", CUT, 6.0), ("matrix-free", {"svd": "matrix-free"}, 5.4))


def exponent(sizes: tuple[int, ...], seconds: list[float]) -> float:
    """Return the slope of a straight line through log seconds over log sizes, by least squares.

    >>> round(exponent((1, 2, 4), [3.0, 24.0, 192.0]), 12)
    3.0
    """
    from scipy import stats

    return float(stats.linregress([math.log(n) for n in sizes], [math.log(t) for t in seconds]).slope)
