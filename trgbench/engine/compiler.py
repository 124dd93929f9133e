"""From a graph to a program: ordered passes, then straight-line Python over kernels.

Passes keep bits: they remove, share and fold, and never reassociate or contract. A program keeps its
intermediate arrays in registers (local variables), and writes elementwise results into registers that are
no longer needed, so a run allocates about as much as is alive at once.
"""

from __future__ import annotations

import math
import sys
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import CodeType
from typing import Any

import numpy as np

from trgbench.engine.graph import Graph, Node
from trgbench.engine.ops.table import OPS, Array, Spec

FOLDED_SIZE = 1024  # elements up to which a constant expression is computed once, at compile time

Pass = Callable[[Graph], Graph]


@dataclass(frozen=True)
class Program:
    """A compiled graph.

    Attributes:
        run: (values, seeds) → tuple of outputs; never an input or another output's buffer.
        nbytes: retained by the program itself: its code and constants.
        blas: it calls BLAS or LAPACK.
        source: the Python text, for reading.
    """

    run: Callable[[Sequence[Any], Sequence[Any]], tuple]
    nbytes: int
    blas: bool
    source: str = field(repr=False)


def _substituted(graph: Graph, rewrite: Callable[[Graph, Node], Sequence[int] | None]) -> Graph:
    """Return `graph` without the nodes for which `rewrite` names other values that hold their results."""
    result = graph.copy()
    result.nodes = []
    renamed: dict[int, int] = {}
    for node in graph.nodes:
        inputs = tuple([renamed.get(i, i) for i in node.inputs])
        if inputs != node.inputs:
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
        if any(i in needed for i in node.results):
            nodes.append(node)
            needed.update(node.inputs)
    result = graph.copy()
    result.nodes = nodes[::-1]
    result.constants = {i: array for i, array in graph.constants.items() if i in needed}
    return result


def fold_constants(graph: Graph) -> Graph:
    """Compute small results of constants now, by the kernels that a run would use."""

    def rewrite(result: Graph, node: Node) -> Sequence[int] | None:
        operands = [result.constants.get(i) for i in node.inputs]
        if not all(x is not None for x in operands):
            return None
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


class _Registers:
    """Assigns values to local variables, and plans which arrays are written over."""

    def __init__(self, graph: Graph) -> None:
        self.specs = graph.specs
        self.register: dict[int, str] = {}
        self.count = 0
        # An array and its views are one group; it is free when the last use of all of them has passed.
        self.group: dict[int, int] = {}
        self.members: dict[int, list[int]] = defaultdict(list)
        self.uses: dict[int, int] = defaultdict(int)  # left, by group
        self.owned: set[int] = set()  # groups whose array this program has made
        self.free_buffers: dict[Spec, list[str]] = defaultdict(list)
        self.free_names: list[str] = []
        for node in graph.nodes:
            for i in node.results:
                root = self.group.get(node.inputs[0], node.inputs[0]) if node.op.alias else i
                self.group[i] = root
                if not node.op.alias:
                    self.owned.add(root)
            for i in node.inputs:
                self.uses[self.group.get(i, i)] += 1
        for i in graph.outputs:
            self.uses[self.group.get(i, i)] += 1

    def assign(self, value: int, name: str) -> None:
        self.register[value] = name
        self.members[self.group.get(value, value)].append(value)

    def take_name(self) -> str:
        """Return a free variable, dropping the array it holds."""
        if self.free_names:
            return self.free_names.pop()
        for buffers in self.free_buffers.values():
            if buffers:
                return buffers.pop()
        self.count += 1
        return f"r{self.count}"

    def release(self, operands: Sequence[int]) -> None:
        """Count one use of each operand; free the groups that have none left."""
        for i in operands:
            root = self.group.get(i, i)
            self.uses[root] -= 1
            if self.uses[root] == 0:
                self.free(root)

    def free(self, root: int) -> None:
        names = {self.register[i]: self.specs[i] for i in self.members.pop(root, [])}
        for position, (name, spec) in enumerate(names.items()):
            if root in self.owned and spec.shape and position == len(names) - 1:
                self.free_buffers[spec].append(name)
            else:
                self.free_names.append(name)


def compile_graph(
    graph: Graph, sources: Sequence[tuple[str, int]], passes: Sequence[Pass] = PASSES
) -> Program:
    """Compile `graph` to straight-line Python.

    `sources[i]` says where a run finds input i: ("values", position) or ("seeds", position).
    """
    for apply_pass in passes:
        graph = apply_pass(graph)
    registers = _Registers(graph)
    source_of = dict(zip(graph.inputs, sources, strict=True))
    names: dict[str, Any] = {"copy": np.array}
    lines: list[str] = []
    literals: dict[tuple, str] = {}

    def operand(i: int) -> str:
        if i in graph.constants:
            names[f"c{i}"] = graph.constants[i]
            return f"c{i}"
        if i not in registers.register:
            name = registers.take_name()
            registers.assign(i, name)
            sequence, position = source_of[i]
            lines.append(f"{name} = {sequence}[{position}]")
        return registers.register[i]

    for node in graph.nodes:
        op = node.op
        arguments = [operand(i) for i in node.inputs]
        names[op.name] = op.kernel
        for value in node.parameters:
            literal = literals.setdefault((type(value), value), f"p{len(literals)}")
            names[literal] = value
            arguments.append(literal)
        registers.release([i for i in node.inputs if i not in graph.constants])
        target = None
        if op.ufunc and graph.specs[node.first].shape:
            buffers = registers.free_buffers[graph.specs[node.first]]
            target = buffers.pop() if buffers else None
        if target is not None:
            lines.append(f"{op.name}({', '.join([*arguments, target])})")
            registers.assign(node.first, target)
        else:
            results = []
            for i in node.results:
                if registers.uses[registers.group[i]]:
                    name = registers.take_name()
                    registers.assign(i, name)
                else:
                    name = "_"
                results.append(name)
            lines.append(f"{', '.join(results)} = {op.name}({', '.join(arguments)})")
    returned: list[str] = []
    given_away: set[int] = set()
    for i in graph.outputs:
        root = registers.group.get(i, i)
        fresh = root in registers.owned and root not in given_away and graph.specs[i].shape
        given_away.add(root)
        returned.append(operand(i) if fresh else f"copy({operand(i)})")
    lines.append(f"return ({''.join(f'{text}, ' for text in returned)})")

    source = "def run(values, seeds):\n    " + "\n    ".join(lines) + "\n"
    code = compile(source, "<trgbench program>", "exec")
    exec(code, names)
    constants: list[Array] = [names[f"c{i}"] for i in graph.constants if f"c{i}" in names]
    return Program(
        run=names["run"],
        nbytes=_code_size(code) + sum(array.nbytes for array in constants),
        blas=any(node.op.blas for node in graph.nodes),
        source=source,
    )


def _code_size(code: CodeType) -> int:
    """Bytes of a code object and of the functions in it."""
    inner = sum(_code_size(c) for c in code.co_consts if isinstance(c, CodeType))
    return inner + sys.getsizeof(code) + sum(sys.getsizeof(c) for c in code.co_consts)
