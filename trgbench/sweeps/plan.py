"""Which points to compute next, how many at a time, and how long the rest will take."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from trgbench.sweeps.grid import Settings

BATCH_SECONDS = 2.0  # Dask needs a few milliseconds a batch, and an interrupted batch is lost
WORKER_SECONDS = 0.03  # a batch longer for each worker, since the scheduler and the client are shared by all
BATCH_MAXIMUM = 1000  # points


@dataclass(frozen=True)
class Batch:
    """Points of one χ, by their numbers; `suspect` if an earlier batch that held them came to nothing."""

    chi: int
    numbers: tuple[int, ...]
    suspect: bool = False


@dataclass
class Rest:
    """What is left of one χ, and what its points took so far."""

    count: int
    numbers: Iterator[int] = field(repr=False)
    seconds: float = 0.0
    computed: int = 0

    @property
    def mean(self) -> float | None:
        return self.seconds / self.computed if self.computed else None


class Plan:
    """Hands out the missing points in batches, dear ones first: the last to finish are then short.

    >>> settings = Settings((0.1, 0.2, 0.3), (8, 16), 20, "native", "traced-staged", "safe", 1, "")
    >>> plan = Plan(settings, missing=lambda number: number != 4)
    >>> plan.take(workers=1), plan.take(workers=1), plan.take(workers=1)
    (Batch(chi=16, numbers=(3,), suspect=False),
     Batch(chi=16, numbers=(5,), suspect=False),
     Batch(chi=8, numbers=(0,), suspect=False))
    """

    def __init__(self, settings: Settings, missing: Callable[[int], bool]) -> None:
        width = len(settings.beta)
        self._again: list[Batch] = []
        self._rests: dict[int, Rest] = {}
        for column, chi in reversed(list(enumerate(settings.chi))):
            numbers = range(column * width, (column + 1) * width)
            self._rests[chi] = Rest(sum(map(missing, numbers)), filter(missing, numbers))

    def take(self, workers: int) -> Batch | None:
        """Return the next batch, or `None` if all points are given out.

        One point, until one of that χ has come back. Then so many that the batch lasts long enough for its
        cost not to matter, but not more than a fraction of what is left, so that all finish together.
        """
        for chi, rest in self._rests.items():
            if rest.count:
                size = 1
                if rest.mean is not None:
                    wanted = max(BATCH_SECONDS, WORKER_SECONDS * workers) / max(rest.mean, 1e-9)
                    size = math.ceil(min(wanted, rest.count / (4 * workers), BATCH_MAXIMUM))
                rest.count -= size
                return Batch(chi, tuple(next(rest.numbers) for _ in range(size)))
        return self._again.pop() if self._again else None

    @property
    def only_suspects(self) -> bool:
        return not any(rest.count for rest in self._rests.values())

    def put_back(self, batch: Batch) -> None:
        """Give a batch that came to nothing out again, after all others and point by point.

        One of its points may have killed the worker, and the batch that waited there is blamed for it, too.
        """
        self._again += [Batch(batch.chi, (number,), suspect=True) for number in reversed(batch.numbers)]

    def computed(self, batch: Batch, seconds: float) -> None:
        rest = self._rests[batch.chi]
        rest.seconds += seconds
        rest.computed += len(batch.numbers)

    def seconds_left(self, flying: list[Batch]) -> float | None:
        """Return the seconds of one worker that the rest will take, or `None` before anything is known.

        A χ of which no point has come back yet is reckoned by the sixth power from the nearest one.
        """
        known = {chi: rest.mean for chi, rest in self._rests.items() if rest.mean is not None}
        if not known:
            return None
        total = 0.0
        for chi, rest in self._rests.items():
            near = min(known, key=lambda other: abs(math.log(other / chi)))
            waiting = rest.count + sum(
                len(batch.numbers) for batch in [*flying, *self._again] if batch.chi == chi
            )
            total += waiting * known[near] * (chi / near) ** 6
        return total
