"""The reverse transform, graph → graph, the only one: eager backward and traced `grad` both use it.

Nodes are visited once, newest first, so the cost is linear in the graph. Contributions to a
cotangent are added in that order, which is the same for a recording and for a trace of one program:
the reason for the equal bits. Passes run after all transforms, never before one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from trgbench.engine.graph import Builder, Graph, Node
from trgbench.engine.ops.table import FLOATS
from trgbench.errors import InputError


@dataclass(frozen=True)
class Reverse:
    """A graph extended by the computation of cotangents.

    Attributes:
        graph: the forward graph with the reverse nodes behind it; `outputs` are not set.
        seeds: the values that hold the given cotangents of the roots; they are inputs of `graph`,
            or constants of ones where a root is seeded with one.
        cotangents: the value of the cotangent of each `wrt`, `None` where it is zero.
    """

    graph: Graph
    seeds: tuple[int, ...]
    cotangents: tuple[int | None, ...]


def vjp(graph: Graph, roots: Sequence[int], wrt: Sequence[int], given_seeds: Sequence[bool]) -> Reverse:
    """Extend a copy of `graph` by the cotangents of the values `wrt`, given those of `roots`.

    A root whose `given_seeds` is false is seeded with ones.
    """
    extended = graph.copy()
    builder = Builder(extended)
    cotangents: dict[int, Any] = {}
    seeds = []
    for root, given in zip(roots, given_seeds, strict=True):
        spec = graph.specs[root]
        if given:
            seed = builder.symbol(extended.add_input(spec))
        else:
            seed = builder.constant(np.ones(spec.shape, spec.dtype))
        seeds.append(seed.number)
        cotangents[root] = cotangents[root] + seed if root in cotangents else seed

    found = pull_back(graph.nodes, cotangents, wrt, builder.symbol)
    return Reverse(extended, tuple(seeds), tuple(None if ct is None else ct.number for ct in found))


def pull_back(
    nodes: Sequence[Node], cotangents: dict[int, Any], wrt: Sequence[int], value: Callable[[int], Any]
) -> list[Any]:
    """Return the cotangents of the values `wrt`, None for zero, given those of some values.

    `value(i)` is value i as something that operations can be applied to: a symbol, and then this writes the
    reverse program; or an eager tensor, and then this runs it.
    """
    active = _depends_on(nodes, wrt)
    wanted_values = set(wrt)
    for node in reversed(nodes):
        wanted = [i in active for i in node.inputs]
        if True not in wanted:
            continue
        results = node.results if node.op.outputs > 1 else (node.first,)
        cts = [cotangents.get(i) if i in wanted_values else cotangents.pop(i, None) for i in results]
        if all(ct is None for ct in cts):
            continue
        contributions = node.op.vjp(
            cts,
            [value(i) for i in results],
            [value(i) for i in node.inputs],
            node.parameters,
            wanted,
        )
        for operand, contribution, want in zip(node.inputs, contributions, wanted, strict=True):
            if want and contribution is not None:
                so_far = cotangents.get(operand)
                cotangents[operand] = contribution if so_far is None else so_far + contribution
    return [cotangents.get(i) for i in wrt]


def _depends_on(nodes: Sequence[Node], sources: Sequence[int]) -> set[int]:
    """Return the values that are, or are computed from, `sources`."""
    active = set(sources)
    for node in nodes:
        if not active.isdisjoint(node.inputs):
            active.update(node.results)
    return active


def needed_before(graph: Graph, outputs: Sequence[int], boundary: int) -> list[int]:
    """Return the non-constant values numbered below `boundary` that `outputs` need directly from it."""
    needed = set(outputs)
    for node in reversed(graph.nodes):
        if node.first < boundary:
            break
        if any(i in needed for i in node.results):
            needed.update(node.inputs)
    return sorted(i for i in needed if i < boundary and i not in graph.constants)


def differentiable(graph: Graph, argnums: int | Sequence[int]) -> list[int]:
    """Return `argnums` counted from 0.

    Raises:
        InputError: if one is out of range, given twice, or not of floating point.
    """
    count = len(graph.inputs)
    numbers = [argnums] if isinstance(argnums, int) else list(argnums)
    for number in numbers:
        if not -count <= number < count:
            raise InputError(f"argnums {number} is out of range for {count} arguments")
        if graph.specs[graph.inputs[number]].dtype not in FLOATS:
            spec = graph.specs[graph.inputs[number]]
            raise InputError(f"argument {number} is {spec}; a derivative is taken of float64 or float32")
    found = [number % count for number in numbers]
    if len(set(found)) < len(found):
        raise InputError(f"argnums {numbers} name an argument twice")
    return found
