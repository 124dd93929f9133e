"""From a graph to a program: ordered passes, then one of two tiers.

Passes keep bits: they remove, share and fold, and never reassociate or contract.

The first tier is straight-line Python over NumPy kernels (`engine.straight`). The second hands whatever it
can to a small vector machine that Numba has compiled (`engine.planner`, `engine.loops`). The machine is the
same for all programs: it is compiled once for a computer, kept on disk, and loaded with the engine, so that
from then on every program is of the second tier from its first run, and none is compiled. Until it is there,
or without Numba, programs are of the first tier; what they cost says when the machine is worth making
(`engine.kernels`). The tiers give the same bits.

What is left for large arrays is the C library's scalar sine and cosine, 12 to 15 ns an element for both.
PyTorch's, on vector instructions, take half of that, with other bits than NumPy's; so on one thread PyTorch
stays ahead in the vector function from 10⁵ elements on: by a third of a program's time, and by more of eager
mode's, whose forward and backward are separate passes over memory.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import CodeType
from typing import Any

import numpy as np

from trgbench.engine import kernels
from trgbench.engine.graph import Graph, Node
from trgbench.engine.ops.table import OPS
from trgbench.engine.planner import Planner, Run
from trgbench.engine.straight import straight

FOLDED_SIZE = 1024  # elements up to which a constant expression is computed once, at compile time

Pass = Callable[[Graph], Graph]


@dataclass
class Program:
    """A compiled graph.

    Attributes:
        run: (values, seeds) → tuple of outputs; never an input or another output's buffer.
        nbytes: retained by the program itself: its code, constants and workspace.
        blas: it calls BLAS or LAPACK.
        source: the Python text, for reading.
    """

    run: Run
    nbytes: int
    blas: bool
    source: str = field(repr=False)


def _substituted(graph: Graph, rewrite: Callable[[Graph, Node], Sequence[int] | None]) -> Graph:
    """Return `graph` without the nodes for which `rewrite` names other values that hold their results."""
    result = graph.copy()
    result.nodes = []
    renamed: dict[int, int] = {}
    for node in graph.nodes:
        if renamed and not renamed.keys().isdisjoint(node.inputs):
            inputs = tuple([renamed.get(i, i) for i in node.inputs])
            node = Node(node.op, inputs, node.parameters, node.first)
        same = rewrite(result, node)
        if same is None:
            result.nodes.append(node)
        else:
            renamed.update(zip(node.results, same, strict=True))
    result.outputs = [renamed.get(i, i) for i in graph.outputs]
    return result


def remove_dead_code(graph: Graph) -> Graph:
    """Drop what no output needs."""
    needed = set(graph.outputs)
    nodes = []
    for node in reversed(graph.nodes):
        if node.first in needed or (node.op.outputs > 1 and not needed.isdisjoint(node.results)):
            nodes.append(node)
            needed.update(node.inputs)
    result = graph.copy()
    result.nodes = nodes[::-1]
    result.constants = {i: array for i, array in graph.constants.items() if i in needed}
    return result


def fold_constants(graph: Graph) -> Graph:
    """Compute small results of constants now, by the kernels that a run would use."""

    def rewrite(result: Graph, node: Node) -> Sequence[int] | None:
        for i in node.inputs:
            if i not in result.constants:
                return None
        operands = [result.constants[i] for i in node.inputs]
        if max(math.prod(result.specs[i].shape) for i in node.results) > FOLDED_SIZE:
            return None
        with np.errstate(all="ignore"):
            computed = node.op.kernel(*operands, *node.parameters)
        arrays = (computed,) if node.op.outputs == 1 else computed
        for number, array in zip(node.results, arrays, strict=True):
            result.constants[number] = np.asarray(array)
        return tuple(node.results)

    return _substituted(graph, rewrite)


def remove_unit_factors(graph: Graph) -> Graph:
    """Replace 1·x by x, which is the same number bit for bit, and drop shape changes that change nothing.

    The seed of a backward is one, so this removes a multiplication behind every sum.
    """
    ones = {i for i, array in graph.constants.items() if (array == 1).all()}
    reshaping = (OPS["broadcast_to"], OPS["reshape"])

    def rewrite(result: Graph, node: Node) -> Sequence[int] | None:
        (first, *others), spec = node.inputs, result.specs[node.first]
        if node.op in reshaping:
            if first in ones:
                ones.add(node.first)
            return (first,) if result.specs[first] == spec else None
        if node.op is OPS["multiply"]:
            for unit, kept in ((first, others[0]), (others[0], first)):
                if unit in ones and result.specs[kept] == spec:
                    return (kept,)
        return None

    return _substituted(graph, rewrite)


def share_common_subexpressions(graph: Graph) -> Graph:
    """Compute equal expressions once. Kernels are functions of their operands, so the bits are the same."""
    seen: dict[tuple, Sequence[int]] = {}
    by_content: dict[tuple, int] = {}
    canonical: dict[int, int] = {}
    for number, array in graph.constants.items():
        if array.size <= FOLDED_SIZE:
            key = (array.dtype, array.shape, array.tobytes())
            canonical[number] = by_content.setdefault(key, number)

    def rewrite(result: Graph, node: Node) -> Sequence[int] | None:
        key = (node.op, tuple([canonical.get(i, i) for i in node.inputs]), node.parameters)
        if key in seen:
            return seen[key]
        seen[key] = node.results
        return None

    return _substituted(graph, rewrite)


PASSES: tuple[Pass, ...] = (
    remove_dead_code,
    remove_unit_factors,
    fold_constants,
    share_common_subexpressions,
    remove_dead_code,
)


def compile_graph(
    graph: Graph, sources: Sequence[tuple[str, int]], passes: Sequence[Pass] = PASSES, width: int = 1
) -> Program:
    """Compile `graph` for so many threads; without passes, to NumPy's kernels one by one.

    `sources[i]` says where a run finds input i: ("values", position) or ("seeds", position).
    """
    for apply_pass in passes:
        graph = apply_pass(graph)
    machine = kernels.machine() if passes else None
    if machine is not None:
        program = _second_tier(graph, sources, machine, width)
        if program is not None:
            return program
    program = _first_tier(graph, sources)
    if passes and machine is None and kernels.wanted():
        program.run = _Counted(program, graph, sources, width)
    return program


def _first_tier(graph: Graph, sources: Sequence[tuple[str, int]]) -> Program:
    lines, names = straight(graph, sources)
    code, source = _code(lines)
    exec(code, names)
    constants = sum(graph.constants[i].nbytes for i in graph.constants if f"c{i}" in names)
    return Program(names["run_program"], _code_size(code) + constants, _calls_blas(graph), source)


def _second_tier(
    graph: Graph, sources: Sequence[tuple[str, int]], machine: kernels.Machine, width: int
) -> Program | None:
    """Return the program, or None if there is nothing in it for the machine."""
    planner = Planner(graph, sources, machine, width)
    lines, calls = planner.plan()
    if not calls:
        return None
    code, source = _code(lines)
    size = _code_size(code) + planner.nbytes()
    return Program(_Pool(planner, code), size, _calls_blas(graph), source)


class _Pool:
    """A program with a workspace: two threads that run it at once have one each."""

    def __init__(self, planner: Planner, code: CodeType) -> None:
        self.planner = planner
        self.code = code
        self.idle: list[Run] = []

    def __call__(self, values: Sequence[Any], seeds: Sequence[Any]) -> tuple:
        try:
            run = self.idle.pop()
        except IndexError:
            names = self.planner.context()
            exec(self.code, names)
            run = names["run_program"]
        try:
            return run(values, seeds)
        finally:
            self.idle.append(run)


class _Counted:
    """A program of the first tier that says what its runs cost, and moves up when the machine is there."""

    def __init__(
        self, program: Program, graph: Graph, sources: Sequence[tuple[str, int]], width: int
    ) -> None:
        self.program = program
        self.width = width
        self.run = program.run
        self.graph = graph
        self.sources = sources

    def __call__(self, values: Sequence[Any], seeds: Sequence[Any]) -> tuple:
        start = time.perf_counter()
        outputs = self.run(values, seeds)
        kernels.spent(time.perf_counter() - start)
        machine = kernels.machine()
        if machine is not None:
            better = _second_tier(self.graph, self.sources, machine, self.width)
            self.program.run = self.run if better is None else better.run
        elif not kernels.wanted():
            self.program.run = self.run
        return outputs


def _calls_blas(graph: Graph) -> bool:
    return any(node.op.blas for node in graph.nodes)


def _code(lines: list[str]) -> tuple[CodeType, str]:
    source = "def run_program(values, seeds):\n    " + "\n    ".join(lines) + "\n"
    return compile(source, "<trgbench program>", "exec"), source


def _code_size(code: CodeType) -> int:
    """Bytes of a code object and of the functions in it."""
    inner = sum(_code_size(c) for c in code.co_consts if isinstance(c, CodeType))
    return inner + sys.getsizeof(code) + sum(sys.getsizeof(c) for c in code.co_consts)
