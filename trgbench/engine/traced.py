"""The traced face: a function becomes a graph, a graph becomes its gradient, and then runs.

graph = engine.trace(f, engine.spec((3,)))
program = engine.Runtime(width=1).prepare(engine.grad(graph))
program(x)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from trgbench.engine.graph import Builder, Graph, Symbol, as_graph, collection_paused
from trgbench.engine.ops.table import DTYPES, FLOATS, Spec, Value
from trgbench.engine.vjp import Reverse, differentiable, needed_before, vjp
from trgbench.errors import InputError, check_integer, shown


def spec(shape: Sequence[int] | int, dtype: Any = np.float64) -> Spec:
    """Return the spec of an array argument.

    >>> print(spec((2, 3)))
    float64[2,3]
    """
    lengths = (shape,) if isinstance(shape, int) else tuple(shape)
    try:
        found = np.dtype(dtype)
    except TypeError:
        found = None
    if found is None or found not in DTYPES:  # numpy takes None for float64
        raise InputError(f"dtype must be one of {', '.join(d.name for d in DTYPES)}; got {shown(dtype)}")
    number = DTYPES.index(found)
    return Spec(tuple(check_integer("a length in shape", n, minimum=0) for n in lengths), DTYPES[number])


def trace(function: Callable[..., Any], *specs: Spec) -> Graph:
    """Run `function` on symbols and return the graph of what it did.

    Args:
        function: takes one value per spec and returns a value or a tuple of them.

    >>> from trgbench import engine
    >>> print(trace(lambda x: engine.sum(engine.sin(x)), spec((3,))))
    graph(%0: float64[3])
      %1: float64[3] = sin(%0)
      %2: float64[] = sum(%1, axes=(0,))
      return %2
    """
    for given in specs:
        if not isinstance(given, Spec):
            raise InputError(f"trace takes an engine.spec for each argument; got {shown(given)}")
    builder = Builder(Graph(), _origin(function))
    arguments = [builder.symbol(builder.graph.add_input(s)) for s in specs]
    try:
        returned = function(*arguments)
    finally:
        builder.open = False
    single = not isinstance(returned, (tuple, list))
    outputs = []
    for value in (returned,) if single else returned:
        if isinstance(value, Value) and not isinstance(value, Symbol):
            raise InputError(f"{builder.origin} returned an eager tensor; pass it in as an argument")
        if not isinstance(value, Symbol):
            value = builder.constant(value)
        elif value.recorder is not builder:
            raise InputError(
                f"{builder.origin} returned {value!r} of {value.recorder.origin}; pass it in as an argument"
            )
        outputs.append(value.number)
    builder.graph.outputs, builder.graph.single = outputs, single
    return builder.graph


def _origin(function: Callable[..., Any]) -> str:
    """Return the name of a function and where it stands."""
    name = getattr(function, "__qualname__", repr(function))
    code = getattr(function, "__code__", None)
    return f"`{name}`" + (f" ({code.co_filename}:{code.co_firstlineno})" if code else "")


def grad(graph: Graph, argnums: int | Sequence[int] = 0) -> Graph:
    """Return the graph of the gradient of a scalar graph with respect to the arguments `argnums`.

    Raises:
        InputError: if the graph has not one scalar output, or lacks such an argument.
    """
    return _gradient(graph, argnums, with_value=False)


def value_and_grad(graph: Graph, argnums: int | Sequence[int] = 0) -> Graph:
    """Return the graph of the value and the gradient; see `grad`."""
    return _gradient(graph, argnums, with_value=True)


def _gradient(graph: Graph, argnums: int | Sequence[int], with_value: bool) -> Graph:
    as_graph(graph)
    if len(graph.outputs) != 1 or graph.specs[graph.outputs[0]].shape != ():
        shapes = ", ".join(str(graph.specs[i]) for i in graph.outputs)
        raise InputError(f"a gradient is that of one scalar output; the graph returns {shapes}; sum it")
    if graph.specs[graph.outputs[0]].dtype not in FLOATS:
        raise InputError(
            f"a gradient is that of a floating-point output; got {graph.specs[graph.outputs[0]]}"
        )
    wrt = [graph.inputs[number] for number in differentiable(graph, argnums)]
    with collection_paused():
        reverse = vjp(graph, graph.outputs, wrt, [False])
    result = reverse.graph
    cotangents = _or_zeros(reverse, wrt)
    result.outputs = [*(graph.outputs if with_value else []), *cotangents]
    result.single = not with_value and isinstance(argnums, int)
    return result


def pullback(graph: Graph) -> tuple[Graph, Graph]:
    """Split the derivative of `graph` into a forward graph and a reverse graph that need not repeat it.

    Returns:
        forward: arguments → outputs of `graph`, then the residuals that the reverse graph needs.
        reverse: residuals, then a cotangent of each floating-point output → a cotangent of each argument.
    """
    as_graph(graph)
    roots = [i for i in graph.outputs if graph.specs[i].dtype in FLOATS]
    reverse = vjp(graph, roots, graph.inputs, [True] * len(roots))
    boundary = len(graph.specs)
    extended = reverse.graph
    cotangents = _or_zeros(reverse, graph.inputs)
    residuals = needed_before(extended, cotangents, boundary)
    forward = graph.copy()
    forward.outputs = [*graph.outputs, *residuals]
    forward.single = False
    extended.nodes = [node for node in extended.nodes if node.first >= boundary]
    extended.inputs = [*residuals, *reverse.seeds]
    extended.outputs = cotangents
    extended.single = False
    return forward, extended


def _or_zeros(reverse: Reverse, wrt: Sequence[int]) -> list[int]:
    """Return the values of the cotangents of `wrt`, adding a zero for those that nothing flows into."""
    builder = Builder(reverse.graph)
    return [
        builder.zeros(reverse.graph.specs[i]).number if ct is None else ct
        for i, ct in zip(wrt, reverse.cotangents, strict=True)
    ]
