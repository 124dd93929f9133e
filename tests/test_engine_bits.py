"""Random programs drawn from the table of operations: modes, tiers and passes never change a bit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trgbench import engine
from trgbench.engine import kernels, schedule, writer
from trgbench.engine.graph import check
from trgbench.engine.ops.table import FLOATS, OPS
from trgbench.errors import InputError

PROGRAMS = 2000
RUNTIMES = {width: engine.Runtime(width=width) for width in (1, 2)}


class Instruction(NamedTuple):
    """Apply an operation to operands like those of one of its samples."""

    op: str
    sample: int  # which of the operation's samples
    links: tuple[int, ...]  # for each operand, which earlier value it depends on
    direct: bool  # take an earlier value itself where one has the operand's shape


instructions = st.builds(
    Instruction,
    st.sampled_from([name for name, op in sorted(OPS.items()) if list(op.samples(np.random.default_rng(7)))]),
    st.integers(0, 7),
    st.tuples(*[st.integers(0, 50)] * 3),
    st.booleans(),
)


def program(drawn: list[Instruction], dtype: np.dtype) -> Callable[[Any], Any]:
    """Return the function of one vector that the instructions describe: a scalar all their results feed."""

    def run(x: Any) -> Any:
        values = [x]
        for instruction in drawn:
            op = OPS[instruction.op]
            samples = list(op.samples(np.random.default_rng(7)))
            arrays, parameters = samples[instruction.sample % len(samples)]
            operands = []
            for array, link in zip(arrays, (*instruction.links, *[0] * len(arrays)), strict=False):
                if array.dtype not in FLOATS:
                    operands.append(array)
                    continue
                wanted = array.astype(dtype)
                alike = [v for v in values if v.shape == wanted.shape]
                if instruction.direct and alike:
                    operands.append(alike[link % len(alike)])
                else:
                    # Near the sample, so that the operand stays where the operation is defined.
                    source = values[link % len(values)]
                    operands.append(wanted + 0.01 * engine.sin(engine.sum(source)))
            results = op(*operands, parameters=parameters)
            found = results if op.outputs > 1 else (results,)
            floats = [value for value in found if value.dtype in FLOATS]
            values.extend(v if v.dtype == dtype else engine.astype(v, dtype) for v in floats)
        total = engine.sum(x * x)
        for number, value in enumerate(values[1:]):
            total = total + (0.5 + number) * engine.sum(engine.cos(value) if number % 2 else value)
        return total

    return run


def outcome(run: Callable[[], Sequence[Any]]) -> tuple[bytes, ...] | str:
    """The bits of what a run returns, or what it refuses: an operand may leave an operation's domain."""
    try:
        return tuple(np.asarray(array).tobytes() for array in run())
    except InputError as error:
        return str(error)


def eager(f: Callable[[Any], Any], x: np.ndarray, width: int) -> tuple[Any, Any]:
    session = engine.Session(runtime=RUNTIMES[width])
    leaf = session.variable(x)
    value = f(leaf)
    value.backward()
    return value.value, leaf.grad


@contextmanager
def first_tier() -> Iterator[None]:
    """Compile as where there is no Numba."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernels._state, "machine", None)
        patch.setattr(kernels._state, "possible", False)
        yield


@contextmanager
def everything_large() -> Iterator[None]:
    """Compile as if arrays of more than 4 elements were large, which go in blocks."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(schedule, "SMALL", 4)
        patch.setattr(writer, "SMALL", 4)
        yield


@pytest.fixture(scope="module", autouse=True)
def second_tier() -> None:
    """Have the compiled tier, where Numba is installed."""
    if kernels.wanted():
        kernels.build()
        kernels._state.load()


def drawn_programs(count: int) -> Callable[[Any], Any]:
    """Run a test on so many random programs."""
    drawn = given(
        drawn=st.lists(instructions, min_size=1, max_size=6),
        dtype=st.sampled_from(FLOATS),
        width=st.sampled_from(sorted(RUNTIMES)),
    )
    quiet = settings(
        max_examples=count,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=[HealthCheck.too_slow],
    )
    return lambda test: quiet(drawn(test))


@drawn_programs(PROGRAMS)
def test_modes_tiers_and_passes_change_no_bit(drawn: list[Instruction], dtype: np.dtype, width: int) -> None:
    x = np.linspace(0.3, 0.9, 5).astype(dtype)
    f = program(drawn, dtype)
    with np.errstate(all="ignore"):
        graph = engine.value_and_grad(engine.trace(f, engine.spec(x.shape, dtype)))
        check(graph)
        traced = RUNTIMES[width].prepare(graph)
        plain = RUNTIMES[width].prepare(graph, passes=())
        with first_tier():
            straight = engine.Runtime(width=width).prepare(graph)
        results = {
            "eager": outcome(lambda: eager(f, x, width)),
            "traced": outcome(lambda: traced(x)),
            "without Numba": outcome(lambda: straight(x)),
            "without passes": outcome(lambda: plain(x)),
            "eager again": outcome(lambda: eager(f, x, width)),
            "traced again": outcome(lambda: traced(x)),
        }
    assert len(set(results.values())) == 1, f"{results}\n{graph}"


@drawn_programs(PROGRAMS // 4)
def test_blocks_change_no_bit(drawn: list[Instruction], dtype: np.dtype, width: int) -> None:
    x = np.linspace(0.3, 0.9, 50).astype(dtype)
    f = program(drawn, dtype)
    with np.errstate(all="ignore"):
        graph = engine.value_and_grad(engine.trace(f, engine.spec(x.shape, dtype)))
        with everything_large():
            blocks = engine.Runtime(width=width).prepare(graph)
        plain = RUNTIMES[width].prepare(graph, passes=())
        assert outcome(lambda: blocks(x)) == outcome(lambda: plain(x)), str(graph)
