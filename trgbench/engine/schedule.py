"""In which order the compiled tier runs a graph, and what runs each node: the vector machine or NumPy.

Nodes are grouped so that the machine is called seldom: all that is ready for it goes into one stretch.
Any order that respects the operands gives the same bits, since every node computes what it always does.
"""

from __future__ import annotations

import heapq
import math
from collections import defaultdict
from dataclasses import dataclass
from functools import lru_cache

from trgbench.engine.graph import Graph, Node
from trgbench.engine.instructions import BLOCK, ELEMENTWISE
from trgbench.engine.lowering import MOVES, as_sum, is_whole_sum
from trgbench.engine.ops.table import BOOL, FLOATS

SMALL = 8 * BLOCK  # elements up to which arrays are handled whole, in memory that a program keeps

Kind = tuple[str, int]  # who runs it; elements of the arrays that are handled in blocks
NUMPY, WHOLES, VIEW = ("numpy", 0), ("wholes", 0), ("view", 0)


@dataclass(slots=True)
class Step:
    """One or two nodes that are done together: a sine and a cosine of the same value."""

    nodes: list[Node]
    kind: Kind
    waiting: int = 0  # operands that are not computed yet


@lru_cache(4096)
def size(shape: tuple[int, ...]) -> int:
    return math.prod(shape)


def roots(graph: Graph) -> dict[int, int]:
    """Return, for a view, the value whose array it is a view of."""
    root: dict[int, int] = {}
    for node in graph.nodes:
        if node.op.alias:
            root[node.first] = root.get(node.inputs[0], node.inputs[0])
    return root


def kinds(graph: Graph, exact: frozenset[str]) -> list[Kind]:
    """Say who runs each node.

    Inside the machine truth values are numbers; so a truth value must not come in from NumPy, nor go out.
    """
    found = [_kind(graph, node, exact) for node in graph.nodes]
    root = roots(graph)
    truths = {root.get(i, i) for i, spec in enumerate(graph.specs) if spec.dtype is BOOL}
    changed = bool(truths)
    while changed:
        changed = False
        inside = set(graph.constants)
        outside = {root.get(i, i) for i in graph.outputs}
        for node, kind in zip(graph.nodes, found, strict=True):
            if kind is NUMPY:
                outside.update(root.get(i, i) for i in node.inputs)
            else:
                inside.update(node.results)
        for position, node in enumerate(graph.nodes):
            if found[position] in (NUMPY, VIEW):
                continue
            refused = node.first in truths and node.first in outside
            for i in node.inputs:
                at = root.get(i, i)
                refused = refused or (at in truths and at not in inside)
            if refused:
                found[position], changed = NUMPY, True
    return found


def _kind(graph: Graph, node: Node, exact: frozenset[str]) -> Kind:
    name, specs = node.op.name, graph.specs
    result = specs[node.first]
    if node.op.alias:
        return VIEW
    operands = [specs[i] for i in node.inputs]
    largest = count = size(result.shape)
    for spec in (result, *operands):
        length = size(spec.shape)
        if length == 0 or (spec.dtype is not FLOATS[0] and spec.dtype is not BOOL):
            return NUMPY
        largest = max(largest, length)
    if node.op.outputs > 1:
        return NUMPY
    if largest <= SMALL:
        if name in ELEMENTWISE and name in exact:
            return WHOLES
        if name in MOVES:
            return WHOLES
        if name == "sum":
            how = as_sum(operands[0], node.parameters[0])
            return WHOLES if how is not None and how.kind in exact else NUMPY
        return NUMPY
    if name in ELEMENTWISE and name in exact:
        fits = all(s.shape == result.shape or size(s.shape) == 1 for s in operands)
        return ("blocks", count) if fits else NUMPY
    if name == "broadcast_to" and size(operands[0].shape) == 1:
        return ("blocks", count)
    if is_whole_sum(node, operands[0]) and "partial" in exact:
        return ("blocks", largest)
    return NUMPY


def _steps(graph: Graph, exact: frozenset[str]) -> list[Step]:
    """Return a step for every node, with the cosine of a value at its sine, if both are there."""
    steps: list[Step] = []
    trigonometric: dict[tuple[int, str], Step] = {}
    for node, kind in zip(graph.nodes, kinds(graph, exact), strict=True):
        if node.op.name in ("sin", "cos") and kind[0] in ("wholes", "blocks"):
            other = trigonometric.get((node.inputs[0], "cos" if node.op.name == "sin" else "sin"))
            if other is not None and len(other.nodes) == 1:
                other.nodes.append(node)
                continue
            trigonometric[node.inputs[0], node.op.name] = step = Step([node], kind)
        else:
            step = Step([node], kind)
        steps.append(step)
    return steps


def schedule(graph: Graph, exact: frozenset[str]) -> list[tuple[Kind, list[Step]]]:
    """Return stretches of steps of one kind, in order of execution."""
    steps = _steps(graph, exact)
    maker = {i: number for number, step in enumerate(steps) for node in step.nodes for i in node.results}
    users: dict[int, list[int]] = defaultdict(list)
    ready: dict[Kind, list[int]] = defaultdict(list)
    for number, step in enumerate(steps):
        for i in step.nodes[0].inputs:
            if i in maker:
                users[maker[i]].append(number)
                step.waiting += 1
        if not step.waiting:
            heapq.heappush(ready[step.kind], number)

    def done(number: int) -> None:
        for user in users[number]:
            steps[user].waiting -= 1
            if not steps[user].waiting:
                heapq.heappush(ready[steps[user].kind], user)

    result: list[tuple[Kind, list[Step]]] = []
    left = len(steps)
    while left:
        kind = _next(ready)
        stretch: list[Step] = []
        summed: list[int] = []  # sums over blocks are there when the whole stretch is done
        while ready[kind]:
            number = heapq.heappop(ready[kind])
            stretch.append(steps[number])
            if kind[0] == "blocks" and steps[number].nodes[0].op.name == "sum":
                summed.append(number)
            else:
                done(number)
            if kind is not VIEW:
                while ready[VIEW]:
                    view = heapq.heappop(ready[VIEW])
                    stretch.append(steps[view])
                    done(view)
        for number in summed:
            done(number)
        left -= len(stretch)
        result.append((kind, stretch))
    return result


def _next(ready: dict[Kind, list[int]]) -> Kind:
    """Return the kind to go on with: the machine while it has work, for whatever else is ready can wait."""
    waiting = [kind for kind, numbers in ready.items() if numbers]
    for first in (VIEW, WHOLES):
        if first in waiting:
            return first
    return min(waiting, key=lambda kind: (kind is NUMPY, ready[kind][0]))
