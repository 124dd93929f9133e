"""The command line, run for real: in this process for the tables, as a program where that matters."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

import trgbench
from trgbench import backends, measure
from trgbench.__main__ import CANNOT, COMMANDS, DONE, NOT_FINITE, main
from trgbench.errors import InputError

KEYS = [  # the issue's, in its order
    *("beta", "steps", "chi", "backend", "mode", "threads", "svd"),
    *("lnz", "u", "lnz_exact", "u_exact", "min_cut_gap", "times"),
]
TIMES = ["trace", "compile", "prepare", "first_run", "steady_run"]
TORUS_4X4 = (0.799095207857105, -0.8440540736238568)  # lnZ/N, u at beta = 0.3 from all 65,536 states


def installed(name: str) -> bool:
    try:
        backends.get(name)
    except InputError:
        return False
    return True


INSTALLED = [name for name in backends.names() if installed(name)]


@pytest.fixture(autouse=True)
def _unpinned() -> Iterator[None]:
    """Undo what `measure.pin` does to this process, so that a test may ask for more threads than the last."""
    cpus = os.sched_getaffinity(0)
    variables = {name: os.environ.get(name) for name in measure.THREAD_VARIABLES}
    yield
    for task in os.listdir("/proc/self/task"):
        with contextlib.suppress(ProcessLookupError):
            os.sched_setaffinity(int(task), cpus)
    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def program(*arguments: str, **options: object) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "trgbench", *arguments],
        text=True,
        timeout=50,
        **{"capture_output": True} | options,  # type: ignore[call-overload]
    )


# What takes no half a minute to prepare; test_backends runs every mode.
QUICK = [
    (backend, mode)
    for backend, mode in [
        *(("native", mode) for mode in backends.get("native").modes),
        ("torch", "eager"),
        ("torch", "eager-staged"),
        ("jax", "traced"),
    ]
    if backend in INSTALLED
]


@pytest.mark.parametrize(("backend", "mode"), QUICK)
def test_trg_json(backend: str, mode: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trg", "--steps", "4", "--backend", backend, "--mode", mode, "--json"]) == DONE
    out, err = capsys.readouterr()
    result = json.loads(out)
    assert list(result) == KEYS
    assert (result["backend"], result["mode"], result["svd"]) == (backend, mode, "safe")
    assert [result["lnz"], result["u"]] == pytest.approx(TORUS_4X4, abs=1e-12)
    assert result["lnz_exact"] == pytest.approx(0.7905590709512627, abs=1e-13)
    assert result["u_exact"] == pytest.approx(-0.7044990708324452, abs=1e-13)
    assert result["min_cut_gap"] == 1  # nothing is cut
    assert list(result["times"]) == TIMES
    assert all(seconds is None or seconds >= 0 for seconds in result["times"].values())
    assert result["times"]["steady_run"] > 0
    assert all(line.startswith("note: XLA's own pool") for line in err.splitlines())  # JAX was there before


def test_trg_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trg", "--chi", "8"]) == DONE
    out = capsys.readouterr().out
    assert out.isascii()
    for part in ("beta = 0.3", "chi = 8", "steps = 20", "2^20 sites", "native, traced-staged, safe"):
        assert part in out
    for part in ("0.7905537870365", "-0.7043801526204", "0.7905590709512", "-0.7044990708324"):
        assert part in out
    for part in ("-5.284e-06", "+1.189e-04", "gap at a cut: 0.163", "first run", "steady run"):
        assert part in out


@pytest.mark.parametrize(
    ("backend", "mode"),
    [(backend, mode) for backend, mode in QUICK if backend != "native" and mode != "eager-staged"],
)
def test_nan_gradient_is_not_passed_on_in_silence(
    backend: str, mode: str, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["trg", "--chi", "8", "--steps", "6", "--backend", backend, "--mode", mode, "--svd", "builtin"]
    assert main([*options, "--json"]) == NOT_FINITE
    out, err = capsys.readouterr()
    result = json.loads(out)
    assert list(result) == KEYS
    assert result["u"] is None
    assert result["lnz"] == pytest.approx(0.79055, abs=0.01)
    assert "--svd safe" in err
    if mode == "eager":  # cheap enough to do again
        assert main(options) == NOT_FINITE
        out = capsys.readouterr().out
        for part in ("not finite", "equal", "--svd safe"):
            assert part in out


TOO_MANY = str(len(os.sched_getaffinity(0)) + 1)
BAD = [  # arguments, and what the one line must say: what was given, what is wanted or what to do
    ("trg --beta 0", "above 0", "0.0"),
    ("trg --beta -0.3", "above 0", "-0.3"),
    ("trg --beta nan", "above 0", "nan"),
    ("trg --beta inf", "above 0", "inf"),
    ("trg --beta 1e400", "above 0", "inf"),
    ("trg --beta hot", "above 0", "'hot'"),
    ("trg --beta 0,3", "above 0", "'0,3'"),
    ("trg --beta=", "above 0", "''"),
    ("trg --beta", "--beta", "expected one argument"),
    ("trg --steps 0", "at least 1", "got 0"),
    ("trg --steps -4", "at least 1", "got -4"),
    ("trg --steps 2.5", "whole number", "'2.5'"),
    ("trg --steps many", "whole number", "'many'"),
    ("trg --steps 1000000000", "at most 100", "1000000000"),
    ("trg --chi 1", "at least 2", "got 1"),
    ("trg --chi 1e3", "whole number", "'1e3'"),
    ("trg --chi 1000000000", "chi=1000000000", "choose a chi"),
    ("trg --threads 0", "at least 1", "got 0"),
    ("trg --threads two", "whole number", "'two'"),
    (f"trg --threads {TOO_MANY}", "CPUs", TOO_MANY),
    ("trg --backend tensorflow", "tensorflow", ", ".join(backends.names())),
    ("trg --backend", "--backend", "expected one argument"),
    *(
        (f"trg --backend {name} --mode fast", "fast", ", ".join(backends.get(name).modes))
        for name in INSTALLED
    ),
    *((f"trg --backend {name} --svd exact", "exact", "safe") for name in INSTALLED),
    ("trg --gamma 0.3", "'--gamma'", "--beta"),
    ("trg --bet 0.3", "'--bet'", "--beta"),
    ("trg 0.3", "'0.3'", "--beta"),
    ("backends jax", "'jax'", "--json"),
    ("frobnicate", "frobnicate", "trg"),
    ("--frobnicate", "--frobnicate", "--version"),
    ("", "no command", "trg, backends"),
]


@pytest.mark.parametrize(("line", "given", "wanted"), BAD, ids=[line or "nothing" for line, *_ in BAD])
def test_bad_input_is_one_line(
    line: str, given: str, wanted: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(line.split(" ") if line else []) == CANNOT
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("trgbench: error: ")
    assert err.count("\n") == 1
    assert err.endswith("\n")
    assert given in err
    assert wanted in err


def test_backends_lists_all(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["backends", "--json"]) == DONE
    entries = json.loads(capsys.readouterr().out)["backends"]
    assert [entry["backend"] for entry in entries] == list(backends.names())
    for entry in entries:
        assert list(entry) == ["backend", "version", "svd", "modes", "missing"]
        if entry["backend"] in INSTALLED:
            assert entry["missing"] is None
            assert entry["version"]
            assert entry["svd"][0] == "safe"
            assert tuple(entry["modes"]) == backends.get(entry["backend"]).modes
        else:
            assert "pip install" in entry["missing"]
    assert main(["backends"]) == DONE
    out = capsys.readouterr().out
    assert all(name in out for name in (*backends.names(), *backends.MODES))


WITHOUT = """
import sys

class Without:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {missing!r}:
            raise {error}

sys.meta_path.insert(0, Without())
from trgbench.__main__ import main
sys.exit(main(sys.argv[1:]))
"""
NOT_INSTALLED = 'ModuleNotFoundError(f"No module named {name!r}", name=name)'
BROKEN = 'OSError("libfoo.so.6: cannot open\\nshared object file")'


@pytest.mark.parametrize(("error", "says"), [(NOT_INSTALLED, "pip install"), (BROKEN, "libfoo.so.6")])
def test_a_library_that_cannot_be_imported(error: str, says: str) -> None:
    code = WITHOUT.format(missing=["jax", "jaxlib", "torch"], error=error)

    def without(*arguments: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, "-c", code, *arguments], text=True, capture_output=True, timeout=50
        )

    listing = without("backends")
    assert listing.returncode == DONE
    assert listing.stderr == ""
    for name in ("jax", "torch"):
        (row,) = [row for row in listing.stdout.splitlines() if row.startswith(name)]
        assert "missing" in row
        assert says in row
        result = without("trg", "--backend", name)
        assert (result.returncode, result.stdout) == (CANNOT, "")
        assert result.stderr.startswith("trgbench: error: ")
        assert result.stderr.count("\n") == 1
        assert says in result.stderr


def test_help_and_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == DONE
    assert capsys.readouterr().out == f"trgbench {trgbench.__version__}\n"
    assert main(["--help"]) == DONE
    out = capsys.readouterr().out
    assert "examples:" in out
    assert "exit codes:" in out
    for command in COMMANDS:
        assert command.name in out
        assert main([command.name, "--help"]) == DONE
        assert "examples:" in capsys.readouterr().out
    assert main(["trg", "--help"]) == DONE
    out = capsys.readouterr().out
    assert all(word in out for word in (*backends.MODES, *backends.SVD_RULES))


def test_examples_of_the_help_parse() -> None:
    from trgbench.__main__ import make_parser

    for command in COMMANDS:
        for row in command.examples.splitlines()[1:]:
            words = row.partition("   ")[0].partition("|")[0].split()
            assert words[:2] == ["trgbench", command.name]
            make_parser().parse_args(words[1:])


def test_a_closed_pipe_is_quiet() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    result = program("trg", "--steps", "1", capture_output=False, stdout=writer, stderr=subprocess.PIPE)
    os.close(writer)
    assert result.stderr == ""
    assert result.returncode == 141


def test_a_full_disk_is_one_line() -> None:
    with open("/dev/full", "w") as full:
        result = program("trg", "--steps", "1", capture_output=False, stdout=full, stderr=subprocess.PIPE)
    assert result.returncode == CANNOT
    assert result.stderr.startswith("trgbench: error: ")
    assert result.stderr.count("\n") == 1


def test_a_full_disk_under_standard_error_too_keeps_the_exit_code() -> None:
    with open("/dev/full", "w") as full:
        for wrong in (["trg", "--steps", "0"], ["gate"], ["nightly", "--commits", "0"]):
            result = program(*wrong, capture_output=False, stdout=full, stderr=full)
            assert result.returncode == CANNOT  # of gate and nightly 1 would be a regression


INTERRUPTED_WHILE_COMPUTING = """
import sys, threading
import numpy as np
from trgbench import __main__ as command_line

def compute(args):
    print("computing", flush=True)
    while True:
        np.linalg.svd(np.ones((3000, 3000)))  # seconds in which Python cannot raise KeyboardInterrupt

command = command_line.Command("compute", "", "", lambda parser: None, compute)
command_line.COMMANDS = (command,)
sys.exit(command_line.main(["compute"]))
"""


@pytest.mark.parametrize(
    ("number", "code", "word"), [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated")]
)
def test_a_stop_is_one_line_and_prompt(number: int, code: int, word: str) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED_WHILE_COMPUTING],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "computing\n"
    time.sleep(0.5)
    start = time.monotonic()
    process.send_signal(number)
    out, err = process.communicate(timeout=30)
    assert (process.returncode, out, err) == (code, "", f"trgbench: {word}\n")
    assert time.monotonic() - start < 3
