"""What the compiled tier's programs are written with: a plan of memory, and NumPy's part of the lines."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any

import numpy as np

from trgbench.engine.graph import Graph, Node
from trgbench.engine.ops.contraction import plan
from trgbench.engine.ops.table import FLOATS, Array, Shape
from trgbench.engine.products import expose_copies
from trgbench.engine.schedule import SMALL, roots, schedule, size


class Writer:
    """A program being written: where its values live, and the lines that are NumPy's work.

    Attributes:
        lines: of the program.
        names: what stands in them.
    """

    def __init__(self, graph: Graph, sources: Sequence[tuple[str, int]], exact: frozenset[str]) -> None:
        self.graph = expose_copies(graph)
        self.specs = self.graph.specs
        self.root = roots(self.graph)
        self.source_of = dict(zip(graph.inputs, sources, strict=True))
        self.schedule = schedule(self.graph, exact)
        self.last = self._last_uses()
        self.lines: list[str] = []
        self.dropped: list[str] = []  # lines that let large arrays go, for behind the call under way
        self.names: dict[str, Any] = {"copy": np.array, "empty": np.empty, "array": array, "id": id}
        self.literals: dict[tuple, str] = {}
        # Names of views of the workspace: where, shape, and which axes' order and shape as a matrix.
        self.views: dict[str, tuple[int, Shape, tuple[Shape, Shape] | None]] = {}
        self.top = 8  # the workspace's size so far, in elements
        self.free: dict[int, list[int]] = {}  # by size
        self.static: dict[int, int] = {}  # where in the workspace a value lives
        self.scalars: dict[int, int] = {}  # where the machine finds a 0-d value from outside
        self.variable: dict[int, str] = {}  # a value's array that differs from run to run
        self.owned: set[int] = set()  # those that nothing outside refers to

    def _last_uses(self) -> dict[int, int]:
        """Return the number of the last step that uses each value."""
        last: dict[int, int] = {}
        number = 0
        for _, steps in self.schedule:
            for step in steps:
                number += 1
                for node in step.nodes:
                    for i in node.results:
                        last.setdefault(self.root.get(i, i), number)
                    for i in node.inputs:
                        last[self.root.get(i, i)] = number
        for i in self.graph.outputs:
            last[self.root.get(i, i)] = number + 1
        return last

    # --- the workspace ---

    def _allocate(self, count: int) -> int:
        rounded = -(-count // 8) * 8  # a cache line
        free = self.free.get(rounded)
        if free:
            return free.pop()
        self.top += rounded
        return self.top - rounded

    def _new(self, i: int, count: int) -> int:
        self.static[i] = self._allocate(count)
        return self.static[i]

    def _release(self, offset: int, count: int) -> None:
        self.free.setdefault(-(-count // 8) * 8, []).append(offset)

    def _free(self, inputs: Sequence[int], number: int) -> None:
        """Give back what step `number` was the last to use."""
        for i in inputs:
            at = self.root.get(i, i)
            if self.last.get(at) != number:
                continue
            if at in self.static:
                self._release(self.static.pop(at), size(self.specs[at].shape))
            if at in self.scalars:
                self._release(self.scalars.pop(at), 1)
            if at in self.variable and at in self.owned and size(self.specs[at].shape) > SMALL:
                self.dropped.append(f"{self.variable[at]} = None")

    # --- operands ---

    def _expression(self, i: int) -> str:
        """Return the text of a value as an array for NumPy."""
        at = self.root.get(i, i)
        shape = self.specs[i].shape
        if at in self.static:
            name = f"v{i}"
            self.views[name] = (self.static[at], shape, None)
            return name
        if at in self.graph.constants:
            self.names[f"c{i}"] = self.graph.constants[at].reshape(shape)
            return f"c{i}"
        text = self._object(at)
        return text if shape == self.specs[at].shape else f"{text}.reshape({self._literal(shape)})"

    def _object(self, at: int) -> str:
        if at in self.variable:
            return self.variable[at]
        sequence, position = self.source_of[at]
        return f"{sequence}[{position}]"

    def _literal(self, value: Any) -> str:
        name = self.literals.setdefault((type(value), value), f"p{len(self.literals)}")
        self.names[name] = value
        return name

    def _numpy(self, node: Node, number: int) -> None:
        if node.op.name == "contract" and self._product(node):
            return
        arguments = [self._expression(i) for i in node.inputs]
        self.names[node.op.name] = node.op.kernel
        arguments += [self._literal(value) for value in node.parameters]
        result = self.specs[node.first]
        if node.op.ufunc and result.dtype is FLOATS[0] and 0 < size(result.shape) <= SMALL:
            self._new(node.first, size(result.shape))
            self.lines.append(f"{node.op.name}({', '.join([*arguments, self._expression(node.first)])})")
            return
        results = []
        for i in node.results:
            if self.last[i] == number:
                results.append("_")
                continue
            self.variable[i] = f"r{i}"
            self.owned.add(i)
            results.append(self.variable[i])
        self.lines.append(f"{', '.join(results)} = {node.op.name}({', '.join(arguments)})")

    def _product(self, node: Node) -> bool:
        """Write a contraction as a product of matrices; False if only its kernel knows how."""
        (axes, batch), result = node.parameters, self.specs[node.first]
        at_a, at_b = (self.root.get(i, i) for i in node.inputs)
        # Two arrays from outside may share memory, which the kernel looks out for.
        unknown = at_a == at_b or {at_a, at_b} <= self.source_of.keys()
        if unknown or batch[0] or result.dtype is not FLOATS[0] or not size(result.shape):
            return False
        a, b = (self.specs[i].shape for i in node.inputs)
        how = plan(a, b, axes, batch)
        left = self._matrix(node.inputs[0], how.order_a, how.matrix_a)
        right = self._matrix(node.inputs[1], how.order_b, how.matrix_b)
        product = (how.matrix_a[0], how.matrix_b[1])
        self.names["dot"] = np.dot
        if size(result.shape) <= SMALL:
            offset = self._new(node.first, size(result.shape))
            self.views[f"w{node.first}"] = (offset, product, None)
            self.lines.append(f"dot({left}, {right}, w{node.first})")
        else:
            self.variable[node.first] = f"r{node.first}"
            self.owned.add(node.first)
            shaped = "" if product == result.shape else f".reshape({self._literal(result.shape)})"
            self.lines.append(f"r{node.first} = dot({left}, {right}){shaped}")
        return True

    def _matrix(self, i: int, order: Shape, matrix: Shape) -> str:
        """Return the text of a value as a matrix."""
        at, shape = self.root.get(i, i), self.specs[i].shape
        if at in self.static:
            name = f"w{i}_{len(self.views)}"
            self.views[name] = (self.static[at], shape, (order, matrix))
            return name
        if at in self.graph.constants:
            constant = self.graph.constants[at].reshape(shape)
            return self._literal_array(constant.transpose(order).reshape(matrix))
        text = self._object(at)
        if order == tuple(range(len(order))):
            return text if self.specs[at].shape == matrix else f"{text}.reshape({self._literal(matrix)})"
        shaped = "" if self.specs[at].shape == shape else f".reshape({self._literal(shape)})"
        return f"{text}{shaped}.transpose({self._literal(order)}).reshape({self._literal(matrix)})"

    def _literal_array(self, value: Array) -> str:
        name = f"a{len(self.names)}"
        self.names[name] = value
        return name
