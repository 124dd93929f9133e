"""The forward transform, graph → graph.

Every operation is followed at once by its tangent, so a program holds no more than the values that are
alive at one point of the function: for one input (β, say) it needs no tape, whatever the depth.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trgbench.engine.graph import Builder, Graph, as_graph
from trgbench.engine.ops.table import FLOATS
from trgbench.engine.vjp import differentiable


def jvp(graph: Graph, argnums: int | Sequence[int] | None = None) -> Graph:
    """Return the graph of the values and of their derivative along a direction.

    Args:
        argnums: the arguments that vary; all of floating point by default.

    Returns:
        arguments, then a tangent for each of `argnums` → outputs, then the tangent of each output.

    Raises:
        InputError: if there is no such argument, it is named twice, or it is not of floating point.

    >>> from trgbench import engine
    >>> graph = engine.trace(lambda x: engine.sum(x * x), engine.spec((2,)))
    >>> value, tangent = engine.Runtime(width=1).prepare(jvp(graph))([1.0, 2.0], [1.0, 0.0])
    >>> float(value), float(tangent)
    (5.0, 2.0)
    """
    as_graph(graph)
    floating = [position for position, i in enumerate(graph.inputs) if graph.specs[i].dtype in FLOATS]
    numbers = differentiable(graph, floating if argnums is None else argnums)
    builder = Builder(Graph())
    values: dict[int, Any] = {
        i: builder.symbol(builder.graph.add_input(graph.specs[i])) for i in graph.inputs
    }
    tangents: dict[int, Any] = {
        graph.inputs[number]: builder.symbol(builder.graph.add_input(graph.specs[graph.inputs[number]]))
        for number in numbers
    }
    values |= {i: builder.symbol(builder.graph.add_constant(x)) for i, x in graph.constants.items()}
    for node in graph.nodes:
        inputs = [values[i] for i in node.inputs]
        applied = builder.apply(node.op, inputs, node.parameters)
        outputs = (applied,) if node.op.outputs == 1 else applied
        values.update(zip(node.results, outputs, strict=True))
        along = [tangents.get(i) for i in node.inputs]
        if any(tangent is not None for tangent in along):
            found = node.op.jvp(along, outputs, inputs, node.parameters)
            tangents.update(
                (i, tangent) for i, tangent in zip(node.results, found, strict=True) if tangent is not None
            )
    builder.open = False
    result = builder.graph
    result.outputs = [values[i].number for i in graph.outputs]
    for i in graph.outputs:
        tangent = tangents.get(i)
        result.outputs.append((builder.zeros(graph.specs[i]) if tangent is None else tangent).number)
    result.single = False
    return result
