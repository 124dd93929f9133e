"""A Dask cluster to compute on: one made here for the occasion, or one that is there already."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
import signal
import threading
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import dask
from distributed import Client, LocalCluster, WorkerPlugin
from distributed.comm import connect
from distributed.security import Security

from trgbench import measure, point
from trgbench.console import one_line
from trgbench.errors import InputError, check_integer
from trgbench.sweeps import work

CONNECT_SECONDS = 5.0
ADDRESS = re.compile(r"((tcp|tls)://)?([^:/\s]+|\[[0-9a-fA-F:.%]+\]):[0-9]{1,5}")
WORKERS_SECONDS = 10.0  # to wait for the first worker of a scheduler
TLS = ("tls_ca_file", "tls_cert", "tls_key")

CONFIGURATION = {
    "distributed.scheduler.allowed-failures": 0,  # `plan` tries again, with more care than Dask
    "distributed.worker.profile.enabled": False,  # it interrupts the worker every 10 ms
    "distributed.nanny.pre-spawn-environ": dict.fromkeys(measure.THREAD_VARIABLES, 1),
}


class Uninterrupted(WorkerPlugin):  # type: ignore[misc]
    """Leaves Ctrl-C, which a terminal sends to every process of a command, to the client."""

    name = "trgbench-uninterrupted"

    def setup(self, worker: Any) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)


@contextlib.contextmanager
def local(workers: int | None) -> Iterator[Client]:
    """Give a client of a cluster on this machine: a process for each worker, one thread each.

    Raises:
        InputError: if `workers` is no whole number of at least 1, or more than the CPUs there are.
    """
    count = check_workers(workers)
    with contextlib.ExitStack() as stack:
        stack.enter_context(_silent())
        stack.enter_context(dask.config.set(CONFIGURATION))
        cluster = stack.enter_context(
            LocalCluster(
                n_workers=count,
                threads_per_worker=1,
                processes=True,
                host="127.0.0.1",
                dashboard_address=None,
                memory_limit=point.memory_limit() // count,
                silence_logs=logging.CRITICAL,
            )
        )
        client = stack.enter_context(Client(cluster, set_as_default=False))
        client.register_plugin(Uninterrupted())
        yield client


def check_workers(workers: object) -> int:
    """Return the number of local workers: by default the CPUs this process may use."""
    available = len(os.sched_getaffinity(0))
    count = available if workers is None else check_integer("workers", workers, minimum=1)
    if count > available:
        raise InputError(
            f"workers must be at most the {available} CPUs this process may use; got {count}; "
            f"ask for fewer, or use more machines (--scheduler)"
        )
    return count


@contextlib.contextmanager
def remote(address: str, tls: Mapping[str, str]) -> Iterator[Client]:
    """Give a client of the scheduler at `address`.

    Raises:
        InputError: if it does not answer within 10 s, or has no workers.
    """
    for name, path in tls.items():
        if not os.access(path, os.R_OK):
            raise InputError(f"--{name.replace('_', '-')}: there is no readable file {path}")
    names = {"tls_cert": "tls_client_cert", "tls_key": "tls_client_key"}
    settings: dict[str, Any] = {names.get(name, name): path for name, path in tls.items()}
    security = Security(require_encryption=True, **settings) if tls else Security()
    with contextlib.ExitStack() as stack:
        stack.enter_context(_silent())
        if failure := _probe(address, security):
            raise InputError(
                f"no Dask scheduler answers at {address}: {failure[:200]}; start one (dask scheduler), "
                f"or leave --scheduler out to compute on this machine"
            )
        client = Client(address, timeout=CONNECT_SECONDS, security=security, set_as_default=False)
        yield stack.enter_context(client)


def _probe(address: str, security: Security) -> str | None:
    """Return why no scheduler answers at the address in time, or `None` if one does.

    A client that cannot connect takes long to give up, whatever limit it is given, and longer if something
    that is no scheduler listens there.
    """
    if not ADDRESS.fullmatch(address):
        return "an address is HOST:PORT, tcp://HOST:PORT or tls://HOST:PORT"

    async def ask() -> str | None:
        comm = await connect(address, CONNECT_SECONDS, **security.get_connection_args("client"))
        try:
            await comm.write({"op": "identity", "reply": True})
            answer = await comm.read()
        finally:
            comm.abort()
        kind = answer.get("type") if isinstance(answer, dict) else None
        return None if kind == "Scheduler" else f"what answers is a {kind}"

    result: list[str | None] = []

    def run() -> None:
        try:
            result.append(asyncio.run(asyncio.wait_for(ask(), CONNECT_SECONDS)))
        except TimeoutError:
            pass
        except Exception as error:
            result.append(one_line(error))

    # In a thread, since looking up a name cannot be interrupted.
    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(CONNECT_SECONDS + 0.5)
    return result[0] if result else f"nothing within {CONNECT_SECONDS:g} s"


def check_workers_of(client: Client, backend: str, address: str | None) -> list[str]:
    """Return remarks about the workers there are, if all have the client's versions.

    Raises:
        InputError: if there are none, or some have other versions or lack trgbench; it names them.
    """
    try:
        client.wait_for_workers(1, timeout=WORKERS_SECONDS)
    except TimeoutError as error:
        raise InputError(
            f"the scheduler at {address} has no workers; start some (dask worker {address} --nthreads 1)"
        ) from error
    wanted = work.versions(backend)
    answers = client.run(work.versions, backend, on_error="return")
    complaints = []
    for worker, answer in sorted(answers.items()):
        if isinstance(answer, Exception):
            complaints.append(f"worker {worker} cannot use trgbench ({one_line(answer)})")
        elif answer != wanted:
            names = [name for name in wanted if answer.get(name) != wanted[name]]
            found = ", ".join(f"{name} {answer.get(name)} (client: {wanted[name]})" for name in names)
            complaints.append(f"worker {worker} has {found}")
    if complaints:
        shown = "; ".join(complaints[:4]) + (
            f"; and {len(complaints) - 4} more" if len(complaints) > 4 else ""
        )
        raise InputError(f"other versions than the client's: {shown}; install the same on both")
    return [
        f"worker {worker} has {threads} threads, of which a sweep uses one; start it with --nthreads 1"
        for worker, threads in client.nthreads().items()
        if threads > 1
    ]


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    """Silence what Dask logs about workers and schedulers that went away: what matters is said by us."""
    loggers = [
        logging.getLogger(name) for name in ("distributed", "distributed.client", "tornado.application")
    ]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", category=UserWarning, module="distributed")
            yield
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)
