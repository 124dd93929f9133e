"""The first tier: straight-line Python over NumPy kernels, ready at once.

A program keeps its intermediate arrays in registers (local variables), and writes elementwise results into
registers that are no longer needed, so a run allocates about as much as is alive at once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np

from trgbench.engine.graph import Graph
from trgbench.engine.ops.table import Spec


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


def straight(graph: Graph, sources: Sequence[tuple[str, int]]) -> tuple[list[str], dict[str, Any]]:
    """Return the lines of the program and the names that stand in them."""
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
    return lines, names
