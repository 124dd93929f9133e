"""Contractions in the compiled tier: a matrix product on views and memory that are the same for every run.

What NumPy copies to make a matrix of an operand becomes a node of its own, which the vector machine runs
and equal ones share. The products are those of `ops.contraction`, on equal matrices stored in equal order: so
their bits are.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from trgbench.engine.graph import Graph, Node
from trgbench.engine.ops.contraction import plan
from trgbench.engine.ops.table import OPS, Shape, Spec


@lru_cache(4096)
def is_view(shape: Shape, order: Shape, matrix: Shape) -> bool:
    """Whether an array of `shape`, its axes in `order`, is a matrix without being copied."""
    array = np.empty(shape)
    return np.may_share_memory(array, array.transpose(order).reshape(matrix))


def expose_copies(graph: Graph) -> Graph:
    """Put a permutation of the axes before a contraction that would have to copy an operand."""
    contract, permute = OPS["contract"], OPS["permute_dims"]
    if not any(node.op is contract for node in graph.nodes):
        return graph
    result = graph.copy()
    result.nodes = []
    permuted: dict[tuple[int, Shape], int] = {}
    for node in graph.nodes:
        if node.op is not contract:
            result.nodes.append(node)
            continue
        (axes, batch), inputs = node.parameters, list(node.inputs)
        if inputs[0] == inputs[1]:  # of one array the kernel copies an operand as it is
            result.nodes.append(node)
            continue
        shapes = [graph.specs[i].shape for i in inputs]
        found = plan(*shapes, axes, batch)
        sides = [(found.order_a, found.matrix_a), (found.order_b, found.matrix_b)]
        for side, (order, matrix) in enumerate(sides):
            shape = shapes[side]
            if 0 in shape or is_view(shape, order, matrix):
                continue
            key = (inputs[side], order)
            if key not in permuted:
                spec = Spec(tuple([shape[i] for i in order]), graph.specs[inputs[side]].dtype)
                permuted[key] = result.add_value(spec)
                result.nodes.append(Node(permute, (inputs[side],), (order,), permuted[key]))
            inputs[side] = permuted[key]
            place = {axis: position for position, axis in enumerate(order)}
            axes, batch = (
                tuple(
                    tuple([place[i] for i in group]) if number == side else group
                    for number, group in enumerate(pair)
                )
                for pair in (axes, batch)
            )
        result.nodes.append(Node(contract, tuple(inputs), (axes, batch), node.first))
    return result
