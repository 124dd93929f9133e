"""Sweeps end to end: the numbers of `trgbench trg`, whatever computes them and whatever breaks on the way."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from trgbench.sweeps import rows, store
from trgbench.sweeps.rows import Row

for needed in ("distributed", "pyarrow"):
    pytest.importorskip(needed)

ROOT = Path(__file__).parent.parent
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}
STUDY = "0.3,0.4,0.44,0.5,0.6"  # the five β of the study's table
LONG = ["--beta", "0.2:0.7:25", "--chi", "6,8", "--steps", "16"]  # some seconds

# What `trgbench trg` computes, prepared once for all β and without timing it.
EXPECTED = """
import json, sys
from trgbench import measure, point
measure.pin(1)
from trgbench import backends
prepare, made = backends.Backend.prepare, []
def prepare_once(*given, **options):
    if not made:
        made.append(prepare(*given, **options))
    return made[0]
backends.Backend.prepare = prepare_once
measure.steady = lambda call: 0.0
backend, mode, chi, steps, *betas = sys.argv[1:]
for beta in map(float, betas):
    p, _ = point.compute_point(beta, int(steps), int(chi), backend, mode, threads=1, svd="safe")
    print(json.dumps([p.beta, p.chi, p.lnz, p.u, p.min_cut_gap, p.lnz_exact, p.u_exact]))
"""


def start(
    *arguments: object, environment: dict[str, str] = ENVIRONMENT, **options: Any
) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "trgbench", "sweep", *map(str, arguments)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, env=environment, stdout=pipe, stderr=pipe, text=True, **options)


def sweep(*arguments: object, code: int = 0, **options: Any) -> str:
    """Run a sweep, check its exit code, and return what it says."""
    process = start(*arguments, **options)
    said = "".join(process.communicate(timeout=120))
    assert process.returncode == code, said
    assert "Traceback" not in said
    return said


def expected(backend: str, mode: str, chi: int, steps: int, betas: list[float]) -> list[list[float]]:
    command = [sys.executable, "-c", EXPECTED, backend, mode, chi, steps, *betas]
    done = subprocess.run(
        list(map(str, command)), env=ENVIRONMENT, check=True, capture_output=True, text=True
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


def numbers(row: Row) -> list[Any]:
    return [row.beta, row.chi, row.lnz, row.u, row.min_cut_gap, row.lnz_exact, row.u_exact]


@contextlib.contextmanager
def killed_at_last(process: subprocess.Popen[Any]) -> Iterator[None]:
    try:
        yield
    finally:
        process.kill()
        process.communicate()


@contextlib.contextmanager
def scheduler(
    folder: Path, workers: int, *options: str, protocol: str = "tcp", both: Sequence[str] = ()
) -> Iterator[tuple[str, list[subprocess.Popen[bytes]]]]:
    """Give the address of a scheduler on the loopback address, and its process and those of its workers.

    Of the command lines' options, `options` are for the workers and `both` for the scheduler too.
    """
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    address = f"{protocol}://127.0.0.1:{port}"
    quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    python = [sys.executable, "-m"]
    commands = [[*python, "distributed.cli.dask_scheduler", "--host", address]]
    worker = [*python, "distributed.cli.dask_worker", address, "--nthreads", "1", "--no-nanny", *options]
    commands += [[*worker, "--local-directory", str(folder / f"{i}")] for i in range(workers)]
    with contextlib.ExitStack() as stack:
        processes: list[subprocess.Popen[bytes]] = []
        for command in commands:
            processes.append(
                subprocess.Popen([*command, *both, "--no-dashboard"], env=ENVIRONMENT, cwd=folder, **quiet)
            )
            stack.enter_context(killed_at_last(processes[-1]))
        yield address, processes


def wait_for(condition: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    for _ in range(600):
        if condition():
            return
        assert process.poll() is None, "".join(process.communicate())
        time.sleep(0.05)
    raise AssertionError("nothing happened for 30 s")


def kept(out: Path) -> int:
    """Return how many outcomes the journal of an output has; the first line is the settings."""
    journal = store.journal_of(out)
    return journal.read_bytes().count(b"\n") - 1 if journal.exists() else 0


def check_every_point_once(out: Path, betas: int, chis: int) -> None:
    points = [(row.chi, row.beta) for row in rows.read(out)]
    assert len(points) == betas * chis
    assert points == sorted(set(points))
    assert all(row.error is None for row in rows.read(out))
    assert not store.journal_of(out).exists()


@pytest.fixture(scope="module")
def by_hand(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with scheduler(tmp_path_factory.mktemp("dask"), workers=2) as (address, _):
        yield address


# Steps enough to reach the cuts, and as few as keep XLA's and Inductor's compilers out of the way.
@pytest.mark.parametrize(
    ("backend", "mode", "steps"),
    [
        ("native", "traced-staged", 20),
        ("native", "eager", 8),
        ("jax", "forward", 3),
        ("torch", "eager-staged", 8),
    ],
)
def test_one_worker_two_and_a_scheduler_compute_what_trg_does(
    tmp_path: Path, by_hand: str, backend: str, mode: str, steps: int
) -> None:
    if backend != "native":
        pytest.importorskip(backend)
    workers = range(1, min(2, len(os.sched_getaffinity(0))) + 1)
    places = [*(["--workers", str(count)] for count in workers), ["--scheduler", by_hand]]
    choice = ["--backend", backend, "--mode", mode, "--chi", "4", "--steps", steps]
    found = []
    for number, place in enumerate(places):
        out = tmp_path / f"{number}.csv"
        said = sweep("--beta", f"{STUDY},0.05:1.005:20", *choice, "--out", out, *place)
        assert "25 of 25 points computed" in said
        found.append([numbers(row) for row in rows.read(out)])
    wanted = expected(backend, mode, 4, steps, [row[0] for row in found[0]])
    assert len(wanted) == 25
    assert all(result == wanted for result in found)


def test_the_specific_heat_comes_with_the_same_bits(tmp_path: Path, by_hand: str) -> None:
    out = tmp_path / "out.parquet"
    sweep("--beta", STUDY, "--chi", "4", "--specific-heat", "--out", out, "--scheduler", by_hand)
    found = list(rows.read(out))
    wanted = expected("native", "traced-staged", 4, 20, [row.beta for row in found])
    assert [numbers(row) for row in found] == wanted
    assert all((row.specific_heat or 0) > 0 for row in found)


def test_a_scheduler_that_wants_tls(tmp_path: Path) -> None:
    if not (openssl := shutil.which("openssl")):
        pytest.skip("openssl, which makes the certificates of this test, is not installed")
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    make = [openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    subprocess.run([*make, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    files = ["--tls-ca-file", certificate, "--tls-cert", certificate, "--tls-key", key]
    out = tmp_path / "out.csv"
    with scheduler(tmp_path, 1, protocol="tls", both=list(map(str, files))) as (address, _):
        said = sweep("--beta", STUDY, "--chi", "4", "--out", out, "--scheduler", address, *files)
        assert "5 of 5 points computed" in said
        bare = ["--beta", STUDY, "--chi", "4", "--out", tmp_path / "bare.csv"]
        assert "TLS" in sweep(*bare, "--scheduler", address, code=2)


def test_a_killed_worker_loses_no_point_and_doubles_none(tmp_path: Path) -> None:
    out = tmp_path / "out.csv"
    with scheduler(tmp_path, workers=2) as (address, processes):
        process = start(*LONG, "--out", out, "--scheduler", address)
        with killed_at_last(process):
            wait_for(lambda: kept(out) >= 4, process)
            processes[1].kill()
            said = "".join(process.communicate(timeout=60))
            assert process.returncode == 0, said
    check_every_point_once(out, 25, 2)


def test_a_lost_scheduler_ends_the_sweep_and_resume_goes_on(tmp_path: Path, by_hand: str) -> None:
    out = tmp_path / "out.csv"
    with scheduler(tmp_path, workers=2) as (address, processes):
        process = start(*LONG, "--out", out, "--scheduler", address)
        with killed_at_last(process):
            wait_for(lambda: kept(out) >= 4, process)
            processes[0].kill()
            said = "".join(process.communicate(timeout=30))
    assert process.returncode == 2, said
    assert "Traceback" not in said
    assert "the scheduler is gone" in said
    before = kept(out)
    assert f"{before} of 50 points are kept" in said
    assert len(list(rows.read(out))) == before
    assert f"{50 - before} of 50 points computed" in sweep(
        *LONG, "--out", out, "--scheduler", by_hand, "--resume"
    )
    check_every_point_once(out, 25, 2)


@pytest.mark.parametrize(
    ("signal_number", "code"), [(signal.SIGKILL, -9), (signal.SIGINT, 130), (signal.SIGTERM, 143)]
)
def test_a_killed_client_goes_on_where_it_was(
    tmp_path: Path, by_hand: str, signal_number: int, code: int
) -> None:
    out = tmp_path / "out.parquet"
    process = start(*LONG, "--out", out, "--scheduler", by_hand)
    with killed_at_last(process):
        wait_for(lambda: kept(out) >= 4, process)
        list(rows.read(out))  # readable at every moment
        process.send_signal(signal_number)
        said = "".join(process.communicate(timeout=30))
    assert process.returncode == code, said
    before = kept(out)
    assert len(list(rows.read(out))) <= before < 50
    if signal_number != signal.SIGKILL:
        assert f"{before} of 50 points are kept in {out}; go on with --resume" in said
    with store.journal_of(out).open("ab") as journal:
        journal.write(b"[49, 0.1, 0.2")  # torn by the kill
    again = [*LONG, "--out", out, "--scheduler", by_hand]
    if signal_number == signal.SIGKILL:
        assert "--resume" in sweep(*again, code=2)
        other = sweep(*again, "--resume", "--mode", "eager", code=2)
        assert "mode was traced-staged and is eager" in other
    assert f"{50 - before} of 50 points computed" in sweep(*again, "--resume")
    check_every_point_once(out, 25, 2)


def test_a_full_disk_keeps_what_was_kept(tmp_path: Path, by_hand: str) -> None:
    out = tmp_path / "out.csv"
    full = 6000

    def limit() -> None:  # no file may grow beyond this: the journal's next line then fails as on a full disk
        resource.setrlimit(resource.RLIMIT_FSIZE, (full, resource.RLIM_INFINITY))

    said = sweep(*LONG, "--out", out, "--scheduler", by_hand, code=2, preexec_fn=limit)
    before = kept(out)
    assert 0 < before < 50
    assert "error: OSError: [Errno 27] File too large" in said
    assert f"{before} of 50 points are kept" in said
    assert store.journal_of(out).stat().st_size <= full
    assert f"{50 - before} of 50 points computed" in sweep(
        *LONG, "--out", out, "--scheduler", by_hand, "--resume"
    )
    check_every_point_once(out, 25, 2)


SABOTAGE = """
from trgbench import point
values = getattr(point, "unharmed", point.values)  # Dask loads a file twice
point.unharmed = values
def sabotaged(prepared, beta):
    if beta == 0.4:
        raise RuntimeError("this one fails")
    return values(prepared, beta) if beta < 0.5 else (1.0, float("nan"))
point.values = sabotaged
"""


def test_a_failed_point_is_a_row_with_its_error_and_is_computed_again(tmp_path: Path, by_hand: str) -> None:
    out, preload = tmp_path / "out.csv", tmp_path / "sabotage.py"
    preload.write_text(SABOTAGE)
    arguments = ["--beta", "0.3,0.4,0.45,0.5", "--chi", "4", "--steps", "6", "--out", out]
    with scheduler(tmp_path, 1, "--preload", str(preload)) as (address, _):
        said = sweep(*arguments, "--scheduler", address, code=1)
    assert "2 points failed" in said
    assert "beta = 0.4, chi = 4: RuntimeError: this one fails" in said
    errors = [row.error for row in rows.read(out)]
    assert [error is None for error in errors] == [True, False, True, False]
    assert "not finite" in str(errors[3])
    assert "2 of 4 points computed" in sweep(*arguments, "--scheduler", by_hand, "--resume")
    check_every_point_once(out, 4, 1)


DEADLY = """
import os
from trgbench import point
values = getattr(point, "unharmed", point.values)
point.unharmed = values
point.values = lambda prepared, beta: os._exit(1) if beta == 0.4 else values(prepared, beta)
"""


def test_a_point_that_kills_its_worker_is_found_out(tmp_path: Path) -> None:
    out, preload = tmp_path / "out.csv", tmp_path / "deadly.py"
    preload.write_text(DEADLY)
    workers = {**ENVIRONMENT, "DASK_DISTRIBUTED__WORKER__PRELOAD": json.dumps([str(preload)])}
    arguments = ["--beta", "0.3:0.5:11", "--chi", "4", "--steps", "6", "--out", out, "--workers", "1"]
    said = sweep(*arguments, code=1, environment=workers)
    assert "beta = 0.4, chi = 4: the point killed the workers that tried it" in said
    assert [row.beta for row in rows.read(out) if row.error is not None] == [0.4]
    assert "1 of 11 points computed" in sweep(*arguments, "--resume")
    check_every_point_once(out, 11, 1)


def test_other_versions_are_named(tmp_path: Path, by_hand: str) -> None:
    lie = "import trgbench; trgbench.__version__ = '9.9'; from trgbench.__main__ import main; exit(main())"
    arguments = [
        "sweep",
        "--beta",
        "0.3",
        "--chi",
        "4",
        "--out",
        tmp_path / "out.csv",
        "--scheduler",
        by_hand,
    ]
    done = subprocess.run(
        [sys.executable, "-c", lie, *map(str, arguments)], env=ENVIRONMENT, capture_output=True, text=True
    )
    assert done.returncode == 2
    assert "has trgbench 0.1.0 (client: 9.9)" in done.stderr
    assert not (tmp_path / "out.csv").exists()


def test_many_empty_points_in_little_memory(tmp_path: Path, by_hand: str) -> None:
    out = tmp_path / "out.parquet"
    points = ["--beta", "0.1:1.0:5000", "--chi", "8,16"]
    assert "10000 of 10000 points" in sweep(*points, "--out", out, "--scheduler", by_hand, "--dry-run")
    check_every_point_once(out, 5000, 2)
    assert "backend was dry-run and is native" in sweep(*points, "--out", out, "--resume", code=2)


def test_an_unreachable_scheduler_says_so_soon(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        begin = time.monotonic()
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        said = sweep(
            "--beta", "0.3", "--chi", "4", "--out", tmp_path / "o.csv", "--scheduler", address, code=2
        )
        assert time.monotonic() - begin < 15  # of which Python's imports are some
    assert f"no Dask scheduler answers at {address}: nothing within 5 s" in said
