"""The client's side: it keeps the workers busy, and keeps what comes back."""

from __future__ import annotations

import queue
import time
import uuid
from collections.abc import Callable
from concurrent.futures import CancelledError

from distributed import Client, Future
from distributed.comm import CommClosedError
from distributed.scheduler import KilledWorker

from trgbench.console import one_line
from trgbench.errors import InputError
from trgbench.sweeps import work
from trgbench.sweeps.grid import Settings
from trgbench.sweeps.plan import Batch, Plan
from trgbench.sweeps.store import Store
from trgbench.sweeps.work import Outcome

AHEAD = 2  # batches a worker: one that it computes and one that waits for it there
LOOK_SECONDS = 2.0  # how often to look whether workers came or went
TELL_SECONDS = 0.5  # how often to say how far it is


LOST = "the scheduler is gone; start it again, then go on with --resume"


class LostScheduler(InputError):
    """The scheduler went away."""


def compute(
    client: Client, settings: Settings, store: Store, progress: Callable[[str], None], *, patience: float
) -> tuple[str, ...]:
    """Compute all that is missing in the store, and return the backend's remarks.

    Args:
        patience: seconds to wait for a worker when there is none.

    Raises:
        LostScheduler: if the scheduler goes away.
        InputError: if a worker cannot compute any point, for instance because it has other versions, or if
            there are no workers any more.
        OSError: if an outcome cannot be kept.
    """
    try:
        return _compute(client, settings, store, progress, patience)
    except (CommClosedError, CancelledError) as error:  # whatever was being asked of it just then
        raise LostScheduler(LOST) from error


def _compute(
    client: Client, settings: Settings, store: Store, progress: Callable[[str], None], patience: float
) -> tuple[str, ...]:
    plan = Plan(settings, store.missing)
    wanted = work.versions(settings.backend)
    clock = Clock(plan, store)
    finished: queue.SimpleQueue[Future] = queue.SimpleQueue()
    flying: dict[Future, Batch] = {}
    notes: dict[str, None] = {}
    name = f"trgbench-{uuid.uuid4().hex}"  # two sweeps on one scheduler do not take each other's results
    workers, looked, told, alive, count = 1, 0.0, 0.0, time.monotonic(), 0
    while True:
        if client.status != "running":
            raise LostScheduler(LOST)
        if time.monotonic() - looked > LOOK_SECONDS:
            workers, looked = len(client.nthreads()), time.monotonic()
            alive = looked if workers else alive
            if looked - alive > patience:
                raise InputError(
                    "all workers are dead, and none came back (out of memory?); choose a smaller chi"
                )
        while _room(plan, flying, workers) and (batch := plan.take(max(workers, 1))):
            future = client.submit(
                work.compute,
                settings.calculation(batch.chi),
                [settings.point(number)[0] for number in batch.numbers],
                wanted,
                key=f"{name}-{count}",
                pure=False,
            )
            count += 1
            flying[future] = batch
            future.add_done_callback(finished.put)
        if not flying:
            return tuple(notes)
        if time.monotonic() - told > TELL_SECONDS:
            progress(clock.text(list(flying.values()), workers))
            told = time.monotonic()
        try:
            future = finished.get(timeout=1.0)
        except queue.Empty:
            continue
        batch = flying.pop(future)
        if future.cancelled():
            plan.put_back(batch)  # the scheduler forgot it: lost, or restarted
            continue
        failure = future.exception()
        if failure is None:
            outcomes, remarks = future.result()
            notes |= dict.fromkeys(remarks)
        elif isinstance(failure, InputError):
            raise failure
        elif isinstance(failure, KilledWorker) and not batch.suspect:
            plan.put_back(batch)
            continue
        else:
            outcomes = [Outcome(error=_reason(failure))] * len(batch.numbers)
        store.keep(batch.numbers, outcomes)
        plan.computed(batch, sum(outcome.seconds or 0.0 for outcome in outcomes))


def _room(plan: Plan, flying: dict[Future, Batch], workers: int) -> bool:
    """Return if another batch may be sent off. Of suspects a worker has one: none is blamed for another."""
    if plan.only_suspects:
        alone = all(batch.suspect for batch in flying.values())
        return alone and len(flying) < max(workers, 1)
    return len(flying) < AHEAD * max(workers, 1)


def _reason(failure: BaseException) -> str:
    if isinstance(failure, KilledWorker):
        return "the point killed the workers that tried it (out of memory?)"
    return one_line(failure)


class Clock:
    """Says how far a sweep is, how fast it goes, and when it ends."""

    def __init__(self, plan: Plan, store: Store) -> None:
        self._plan, self._store = plan, store
        self._start, self._before = time.monotonic(), store.done

    def text(self, flying: list[Batch], workers: int) -> str:
        total, done = len(self._store.settings), self._store.done
        text = f"{done} of {total} points"
        if self._store.failed:
            text += f" ({self._store.failed} failed)"
        if not workers:
            return f"{text}; there are no workers, waiting for one"
        rate = (done - self._before) / max(time.monotonic() - self._start, 1e-9)
        left = self._plan.seconds_left(flying)
        if left is None or not rate:
            return f"{text}, {workers} workers"
        end = time.localtime(time.time() + left / workers)
        form = "%H:%M:%S" if left / workers < 12 * 3600 else "%Y-%m-%d %H:%M"
        return f"{text}, {rate:.3g} a second on {workers} workers, done at {time.strftime(form, end)}"
