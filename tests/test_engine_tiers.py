"""The compiled tier: its instructions have NumPy's bits, and it comes, is kept, and fails as it should."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trgbench import engine, problems
from trgbench.engine import kernels
from trgbench.engine.compiler import PASSES
from trgbench.engine.instructions import BLOCK, ELEMENTWISE, UNARY
from trgbench.engine.ops.table import BOOL, OPS
from trgbench.engine.schedule import SMALL

pytest.importorskip("numba")

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module", autouse=True)
def machine() -> kernels.Machine:
    """The machine, made if need be."""
    kernels.build()
    kernels._state.load()
    found = kernels.machine()
    assert found is not None
    return found


def numbers(count: int, seed: int) -> np.ndarray:
    """Numbers of every size, and those that rounding, signs and comparisons trip over."""
    rng = np.random.default_rng(seed)
    wide = np.exp(rng.uniform(-700, 700, count // 4)) * rng.choice([-1, 1], count // 4)
    special = [0.0, -0.0, np.inf, -np.inf, np.nan, 5e-324, -1e-310, 1.0, -1.0, np.pi, 1e22, 2.0**53 + 2]
    parts = [
        rng.standard_normal(count // 2),
        wide,
        rng.uniform(-1e5, 1e5, count // 4),
        rng.choice(special, 5000),
    ]
    return rng.permutation(np.concatenate(parts))


def same_bits(found: np.ndarray, wanted: np.ndarray) -> bool:
    """Whether all bits are equal; one NaN is as good as another."""
    nan = np.isnan(wanted)
    return bool((np.isnan(found) == nan).all()) and found[~nan].tobytes() == wanted[~nan].tobytes()


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_an_instruction_has_the_bits_of_the_kernel(name: str, machine: kernels.Machine) -> None:
    assert name in machine.exact
    a, b = numbers(2_000_000, 1), numbers(2_000_000, 2)
    truth = np.random.default_rng(3).uniform(size=a.size) < 0.5
    operands: dict[str, list[np.ndarray]] = {
        "where": [truth, a, b],
        "logical_and": [truth, truth[::-1].copy()],
        "logical_or": [truth, truth[::-1].copy()],
        "logical_not": [truth],
    }
    given = operands.get(name) or [a, b][: 1 if name in UNARY else 2]
    # Each operand in full, and one element of it for all.
    for chosen in [
        given,
        *([*given[:i], x[:1], *given[i + 1 :]] for i, x in enumerate(given) if len(given) > 1),
    ]:
        with np.errstate(all="ignore"):
            wanted = OPS[name].kernel(*chosen)
        found = np.empty(a.size)
        kernels.run_one(machine.run, name, a.size, [found, *(x.astype(float) for x in chosen)])
        assert same_bits(found.astype(BOOL) if wanted.dtype == BOOL else found, wanted)


def test_a_sine_and_a_cosine_together_have_their_bits(machine: kernels.Machine) -> None:
    x = numbers(4_000_000, 4)
    s, c = np.empty_like(x), np.empty_like(x)
    kernels.run_one(machine.run, "sincos", x.size, [s, x, x, c])
    with np.errstate(all="ignore"):
        assert same_bits(s, np.sin(x))
        assert same_bits(c, np.cos(x))


def outputs(graph: engine.Graph, *arguments: Any, width: int = 1) -> list[list[np.ndarray]]:
    """Return what the compiled tier and NumPy's kernels one by one give."""
    runtime = engine.Runtime(width=width)
    compiled, plain = runtime.prepare(graph), runtime.prepare(graph, passes=())
    assert "run(f0)" in compiled.program.source or "run_" in compiled.program.source
    results = [compiled(*arguments), plain(*arguments)]
    return [list(r) if isinstance(r, tuple) else [r] for r in results]


def assert_same(found: list[list[np.ndarray]]) -> None:
    for a, b in zip(*found, strict=True):
        assert a.tobytes() == b.tobytes()


@pytest.mark.parametrize("shape", [(n,) for n in [*range(1, 40), 127, 128, 129, 255, 263, 500, BLOCK]] + [
    (7, 3), (3, 7), (1, 9), (9, 1), (2, 1, 5), (64, 2), (2, 64), (3, 4, 5), (16, 16), (2, 2, 2, 2), (30, 130),
])  # fmt: skip
def test_sums_are_in_numpys_order(shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(5).standard_normal(shape) * 10.0 ** np.random.default_rng(6).integers(
        -8, 8, shape
    )
    axes: list[Any] = [None, *range(len(shape)), tuple(range(1, len(shape))), tuple(range(len(shape) - 1))]
    for axis in axes:
        if axis != ():
            graph = engine.trace(lambda x, axis=axis: engine.sum(-x, axis=axis), engine.spec(shape))
            assert_same(outputs(graph, x))
            assert_same(outputs(graph, np.zeros(shape)))  # of negative zeros: the sign of what it begins with


@pytest.mark.parametrize("n", [SMALL + 1, 5000, 8191, 8192, 8193, 100_000, 123_457, 1_000_003])
@pytest.mark.parametrize("width", [1, 2, 3])
def test_blocks_have_the_bits_of_the_whole(n: int, width: int) -> None:
    x = np.random.default_rng(7).standard_normal(n)

    def f(x: Any) -> Any:
        y = engine.where(x > 0.5, engine.sin(x) * x, -x / (1.0 + engine.square(x)))
        return engine.sum(y) * engine.sum(engine.cos(x)) + engine.sum(engine.exp(y) * 0.25)

    assert_same(outputs(engine.value_and_grad(engine.trace(f, engine.spec((n,)))), x, width=width))


@pytest.mark.parametrize("name", sorted(OPS))
def test_a_program_around_every_operation_has_the_same_bits(name: str) -> None:
    op = OPS[name]
    for arrays, parameters in op.samples(np.random.default_rng(8)):
        graph = engine.trace(
            lambda *xs, p=parameters: op(
                *[-x if x.dtype != BOOL and x.dtype.kind == "f" else x for x in xs], parameters=p
            ),
            *(engine.spec(a.shape, a.dtype) for a in arrays),
        )
        arguments = [-a if a.dtype.kind == "f" else a for a in arrays]
        runtime = engine.Runtime()
        found = [runtime.prepare(graph, passes=p)(*arguments) for p in (PASSES, ())]
        for a, b in zip(*(r if isinstance(r, tuple) else (r,) for r in found), strict=True):
            assert a.dtype == b.dtype
            assert a.shape == b.shape
            assert a.tobytes() == b.tobytes()


def test_two_threads_can_run_one_program(run_hurried: Callable[..., None]) -> None:
    problem = problems.chain(40)
    graph = engine.value_and_grad(
        engine.trace(lambda x: problem.value(engine, engine.svd, x), engine.spec((10,)))
    )
    program = engine.Runtime().prepare(graph)
    inputs = [np.random.default_rng(seed).standard_normal(10) for seed in range(4)]
    wanted = [program(x)[1].tobytes() for x in inputs]
    found: list[set[bytes]] = [set() for _ in inputs]

    def work(number: int) -> None:
        found[number].update(program(inputs[number])[1].tobytes() for _ in range(500))

    run_hurried(*(functools.partial(work, number) for number in range(4)))
    assert found == [{bits} for bits in wanted]


def test_what_a_run_returns_is_the_callers() -> None:
    graph = engine.trace(lambda x: (engine.sin(x), x * 2.0, x, engine.sum(x)), engine.spec((5,)))
    program = engine.Runtime().prepare(graph)
    x = np.arange(5.0)
    first = program(x)
    kept = [np.array(a) for a in first]
    for a in program(x):
        a[...] = 7.0
    for a, b in zip(first, kept, strict=True):
        assert (a == b).all()
    assert (x == np.arange(5.0)).all()


def test_equal_layers_cost_no_compilation() -> None:
    # One call of the machine for 400 layers, and Python that does not grow with them.
    graph = engine.value_and_grad(
        engine.trace(lambda x: problems.chain(400).value(engine, engine.svd, x), engine.spec((10,)))
    )
    source = engine.Runtime().prepare(graph).program.source
    assert source.count("run(f") == 1
    assert len(source.splitlines()) < 10


# --- how it comes ---------------------------------------------------------------------------------

PROGRAM = """
import sys, time, warnings
warnings.simplefilter("always")
{before}
import numpy as np
from trgbench import engine
from trgbench.engine import kernels
kernels.BUILD_SECONDS = 0.001
at_import = kernels.machine() is not None
graph = engine.value_and_grad(engine.trace(lambda x: engine.sum(engine.sin(x) * x), engine.spec((50,))))
program = engine.Runtime().prepare(graph)
x = np.linspace(0.0, 1.0, 50)
bits = {{b"".join(np.asarray(a).tobytes() for a in program(x))}}
start = time.monotonic()
while kernels.wanted() and time.monotonic() - start < 400:
    bits.add(b"".join(np.asarray(a).tobytes() for a in program(x)))
    time.sleep(0.01)
for _ in range(3):
    bits.add(b"".join(np.asarray(a).tobytes() for a in program(x)))
print(at_import, kernels.machine() is not None, len(bits), "numba" in sys.modules)
"""


def python(cache: Path, before: str = "", path: Path | None = None) -> tuple[str, str]:
    """Run the program above in a fresh process with its own cache."""
    folders = [str(ROOT), *([str(path)] if path else [])]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(before=before)],
        env={**os.environ, "XDG_CACHE_HOME": str(cache), "PYTHONPATH": os.pathsep.join(folders[::-1])},
        capture_output=True,
        text=True,
        check=True,
        timeout=450,
    )
    return done.stdout.strip(), done.stderr


def test_it_is_made_when_runs_have_cost_as_much_and_kept(tmp_path: Path) -> None:
    # at import? in the end? one set of bits; Numba is never imported where programs run
    assert python(tmp_path) == ("False True 1 False", "")
    [kept] = tmp_path.rglob("*.o")
    made = kept.stat().st_mtime_ns
    assert python(tmp_path) == ("True True 1 False", "")
    assert kept.stat().st_mtime_ns == made


def test_what_a_full_disk_left_is_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torn = tmp_path / "torn.o"
    monkeypatch.setattr(kernels, "path", lambda: torn)
    assert kernels.load() is None
    torn.write_bytes(b"")
    assert kernels.load() is None
    whole = kernels.keep(b"code")
    torn.write_bytes(whole.read_bytes()[:-1])
    assert kernels.load() is None


@pytest.mark.parametrize("what", ["unwritable", "full", "broken"])
def test_without_it_there_is_one_warning_and_the_same_bits(what: str, tmp_path: Path) -> None:
    cache, before, path = tmp_path / "cache", "", None
    if what == "unwritable":
        cache.write_text("a file, where a folder is wanted")
    elif what == "full":
        before = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))"
    else:
        path = tmp_path / "modules"
        path.mkdir()
        (path / "numba.py").write_text("raise ImportError('numba was built for another NumPy')")
    out, errors = python(cache, before, path)
    assert out == "False False 1 False"
    assert errors.count("CompiledTierMissing: ") == 1
    assert {"unwritable": "cache", "full": "large", "broken": "another NumPy"}[what] in errors


def test_without_numba_it_is_not_missed(tmp_path: Path) -> None:
    assert python(tmp_path, "sys.modules['numba'] = None") == ("False False 1 True", "")
