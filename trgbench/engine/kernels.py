"""The compiled tier's machine code: where it is kept, how it is loaded, and when it is made.

`engine.loops` is compiled by Numba once for a machine, in a process of its own, and its object code kept in
the user's cache directory. Every later process loads it through llvmlite, without Numba: 30 ms instead of
the 250 that Numba takes to be imported and to load its own cache.
"""

from __future__ import annotations

import ctypes
import fcntl
import functools
import os
import subprocess
import sys
import threading
import warnings
from array import array
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from trgbench.engine.instructions import OPCODES, SCALAR, WHOLE

ENTRY = "trgbench_loops"
BUILD_SECONDS = 6.0  # what Numba takes to compile the machine
SIZE = 2**16  # bytes that its object code takes, about
_SOURCES = ("instructions.py", "loops.py")


def directory() -> Path:
    root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return root / "trgbench" / "loops"


def target_machine() -> Any:
    """Return LLVM's description of this CPU."""
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm.Target.from_triple(llvm.get_process_triple()).create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=llvm.get_host_cpu_features().flatten(), opt=3, jit=True
    )


@functools.cache
def path() -> Path:
    """Return where the object code for this source, LLVM and CPU is kept."""
    import llvmlite
    import llvmlite.binding as llvm

    # Every release of llvmlite is for one of Numba.
    parts = [llvmlite.__version__, llvm.get_process_triple(), llvm.get_host_cpu_name()]
    parts.append(llvm.get_host_cpu_features().flatten())
    parts += [Path(__file__).with_name(name).read_text() for name in _SOURCES]
    return directory() / f"{sha256('|'.join(parts).encode()).hexdigest()[:32]}.o"


def keep(code: bytes) -> Path:
    """Write object code, with its checksum before it, so that nothing half written is ever run."""
    target = path()
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_suffix(f".{os.getpid()}")
    try:
        temporary.write_bytes(sha256(code).digest() + code)
        os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)
    return target


@dataclass(frozen=True)
class Machine:
    """The loaded interpreter.

    Attributes:
        run: runs the frame at an address, holding Python's lock.
        run_released: the same, other threads of Python running meanwhile.
        exact: the instructions whose bits are NumPy's on this machine.
    """

    run: Callable[[int], None]
    run_released: Callable[[int], None]
    exact: frozenset[str]
    engine: Any  # LLVM's, which owns the code


def load() -> Machine | None:
    """Load the object code, if it is there and whole."""
    import llvmlite.binding as llvm

    try:
        content = path().read_bytes()
    except OSError:
        return None
    digest, code = content[:32], content[32:]
    if sha256(code).digest() != digest:
        return None
    probe = np.zeros(1)
    if ctypes.c_void_p.from_address(id(probe) + 16).value != probe.ctypes.data:  # as `loops.run` reads it
        raise RuntimeError("arrays are laid out otherwise in memory by this NumPy or Python")
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), target_machine())
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    address = engine.get_function_address(ENTRY)
    held = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(address)
    released = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(address)
    return Machine(held, released, _exact(held), engine)


def run_one(run: Callable[[int], None], name: str, count: int, operands: list[Any], p: int = 0) -> None:
    """Run one instruction on arrays, the result's first; an operand of size 1 stands for all elements."""
    table = array("q", [*(x.ctypes.data for x in operands), *[0] * 4])
    steps = [SCALAR if x.size == 1 else WHOLE for x in operands] + [SCALAR] * 4
    places = [4 * place + step for place, step in zip(range(4), steps, strict=False)]
    code = array("q", [OPCODES[name], count, *places, p, 0])
    partials = array("d", [0.0])
    frame = array(
        "q", [1, code.buffer_info()[0], table.buffer_info()[0], 0, 1, 0, 0, partials.buffer_info()[0]]
    )
    run(frame.buffer_info()[0])


def _exact(run: Callable[[int], None]) -> frozenset[str]:
    """Return the instructions that have NumPy's bits here.

    The C library has the sine and the cosine, and NumPy may have its own for this CPU; NumPy's order of
    addition may change. What differs is left to NumPy.
    """
    rng = np.random.default_rng(1)
    x = np.concatenate([rng.standard_normal(500), rng.uniform(-1e3, 1e3, 500), np.logspace(-300, 300, 24)])
    wrong = set()
    s, c = np.empty_like(x), np.empty_like(x)
    run_one(run, "sincos", x.size, [s, x, x, c])
    for name, both, ufunc in (("sin", s, np.sin), ("cos", c, np.cos)):
        one, wanted = np.empty_like(x), ufunc(x).tobytes()
        run_one(run, name, x.size, [one, x])
        if one.tobytes() != wanted or both.tobytes() != wanted:
            wrong |= {name, "sincos"}
    for length in (3, 100, 500):
        rows = np.full((3, length), -0.0)  # the sign of their sum depends on NumPy's release
        rows[:2, 1:] = x[: 2 * length - 2].reshape(2, -1)
        by_row, by_column = np.empty(3), np.empty(length)
        run_one(run, "sum_last", 3, [by_row, rows], length)
        run_one(run, "sum_first", length, [by_column, rows], 3)
        if by_row.tobytes() != np.add.reduce(rows, axis=1).tobytes():
            wrong |= {"sum_last", "partial"}
        if by_column.tobytes() != np.add.reduce(rows, axis=0).tobytes():
            wrong.add("sum_first")
    return frozenset(OPCODES) - wrong


# --- when -----------------------------------------------------------------------------------------


class CompiledTierMissing(RuntimeWarning):
    """The compiled tier cannot be made or loaded: NumPy's tier goes on, with the same results."""


class _State:
    """Of this process: the machine, or how far it is from having one."""

    def __init__(self) -> None:
        self.machine: Machine | None = None
        self.possible = find_spec("numba") is not None and find_spec("llvmlite") is not None
        self.seconds = 0.0  # that programs of the first tier have run
        self.build: subprocess.Popen | None = None
        self.lock = threading.Lock()

    def give_up(self, reason: object) -> None:
        self.possible = False
        warnings.warn(
            f"trgbench runs without its compiled tier, slower and with the same results: {reason}; "
            f"its code is kept in {directory()} (set XDG_CACHE_HOME for another place)",
            CompiledTierMissing,
            stacklevel=2,
        )

    def load(self) -> None:
        """Load the machine if it was made before."""
        try:
            if self.possible and any(directory().glob("*.o")):  # without importing anything for it
                self.machine = load()
        except Exception as error:  # whatever LLVM or a file system may come up with
            self.give_up(f"{type(error).__name__}: {error}")


def machine() -> Machine | None:
    """Return the vector machine, if it is there."""
    return _state.machine


def wanted() -> bool:
    """Whether the machine is not there and could be: programs then say what they cost."""
    return _state.possible and _state.machine is None


def spent(seconds: float) -> None:
    """Count what runs of the first tier cost. When it is as much as making the machine, that begins.

    It is made in a process of its own, so that nothing waits for it.
    """
    _state.seconds += seconds
    if _state.seconds < BUILD_SECONDS or not _state.lock.acquire(blocking=False):
        return
    try:
        if not wanted():
            return
        if _state.build is None:
            _state.build = subprocess.Popen(
                [sys.executable, "-m", "trgbench.engine"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            )
        elif _state.build.poll() is not None:
            _, errors = _state.build.communicate()
            if _state.build.returncode == 0:
                _state.load()
            if wanted():
                _state.give_up((errors.strip().splitlines() or ["it was made and cannot be loaded"])[-1])
    except OSError as error:
        _state.give_up(error)
    finally:
        _state.lock.release()


def build() -> Path:
    """Compile the machine and keep it, unless it is there; of many processes one does it.

    Raises:
        ImportError: if Numba is not installed.
        OSError: if it cannot be kept.
    """
    directory().mkdir(parents=True, exist_ok=True)
    with open(directory() / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if load() is None:
            lock.write(" " * SIZE)  # a full disk is better found out before than after compiling
            lock.flush()
            lock.truncate(0)
            from trgbench.engine import loops

            keep(loops.object_code())
    return path()


_state = _State()
_state.load()
