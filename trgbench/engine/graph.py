"""Graphs: straight lists of operations on numbered values, and the symbols that build them.

A graph is in order of execution; a value's number is its place in `specs`. Inputs, constants and
results of nodes are numbered in one sequence, so an operand always has a smaller number than the
result. That order is the one in which `vjp` adds cotangents up, so it decides about bits.
"""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from trgbench.engine.ops.table import FLOATS, Array, Op, Spec, Value, kept_array
from trgbench.errors import InputError, shown


@dataclass(slots=True, eq=False)
class Node:
    """An operation in a graph; its results are the values `first` … `first + op.outputs − 1`."""

    op: Op
    inputs: tuple[int, ...]
    parameters: tuple
    first: int

    @property
    def results(self) -> range:
        return range(self.first, self.first + self.op.outputs)


@dataclass
class Graph:
    """Numbered values, the nodes that compute them, and which of them go in and come out.

    Attributes:
        specs: shape and dtype of every value.
        inputs: values that are given at each run, in order of arguments.
        constants: values that are fixed.
        nodes: in order of execution.
        outputs: values that come out.
        single: a run returns its only output itself, not a tuple of one.
    """

    specs: list[Spec] = field(default_factory=list)
    inputs: list[int] = field(default_factory=list)
    constants: dict[int, Array] = field(default_factory=dict)
    nodes: list[Node] = field(default_factory=list)
    outputs: list[int] = field(default_factory=list)
    single: bool = True

    def copy(self) -> Graph:
        """Return a graph that can grow without changing this one."""
        return Graph(
            list(self.specs),
            list(self.inputs),
            dict(self.constants),
            list(self.nodes),
            list(self.outputs),
            self.single,
        )

    def add_value(self, spec: Spec) -> int:
        self.specs.append(spec)
        return len(self.specs) - 1

    def add_input(self, spec: Spec) -> int:
        number = self.add_value(spec)
        self.inputs.append(number)
        return number

    def add_constant(self, array: Array) -> int:
        number = self.add_value(Spec(array.shape, array.dtype))
        self.constants[number] = array
        return number

    def add_node(self, op: Op, inputs: tuple[int, ...], parameters: tuple) -> Node:
        """Append an operation.

        Raises:
            InputError: if its shape rule refuses the operands.
        """
        results = op.infer(*[self.specs[i] for i in inputs], *parameters)
        node = Node(op, inputs, parameters, len(self.specs))
        self.specs.extend(results)
        self.nodes.append(node)
        return node

    def __call__(self, *arguments: Any) -> Any:
        """Apply the graph's operations one by one to arrays, tensors or symbols: a graph is a function.

        It nests transforms: `trace(lambda x: sum(grad(g)(x) ** 2), spec)` is a graph that has a gradient.

        Raises:
            InputError: if the number of arguments is wrong, or an operation refuses them.
        """
        if len(arguments) != len(self.inputs):
            raise InputError(f"the graph takes {len(self.inputs)} arguments; got {len(arguments)}")
        values: dict[int, Any] = {**self.constants, **dict(zip(self.inputs, arguments, strict=True))}
        for node in self.nodes:
            results = node.op(*[values[i] for i in node.inputs], parameters=node.parameters)
            values.update(zip(node.results, (results,) if node.op.outputs == 1 else results, strict=True))
        outputs = tuple([values[i] for i in self.outputs])
        return outputs[0] if self.single else outputs

    def __str__(self) -> str:
        """One line per value that something uses, for instance `%2: float64[3] = sin(%0)`."""

        lines = [f"graph({', '.join(f'%{i}: {self.specs[i]}' for i in self.inputs)})"]
        used = {i for node in self.nodes for i in node.inputs} | set(self.outputs)
        for number, array in self.constants.items():
            if number in used:
                text = np.array2string(array, threshold=4, separator=",").replace("\n", "")
                lines.append(f"  %{number}: {self.specs[number]} = constant {text}")
        for node in self.nodes:
            results = ", ".join(f"%{i}: {self.specs[i]}" for i in node.results)
            metadata = [f"{k}={v}" for k, v in zip(node.op.parameters, node.parameters, strict=True)]
            arguments = ", ".join([*(f"%{i}" for i in node.inputs), *metadata])
            lines.append(f"  {results} = {node.op.name}({arguments})")
        return "\n".join([*lines, f"  return {', '.join(f'%{i}' for i in self.outputs)}"])


@contextmanager
def collection_paused() -> Iterator[None]:
    """Hold the garbage collector off while a graph or program is built.

    All that is built stays; looking through it, and all else, again and again is a third of the time.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def as_graph(graph: object) -> Graph:
    """Return `graph`, or raise `InputError` if it is none: a function has to be traced first."""
    if not isinstance(graph, Graph):
        raise InputError(f"a graph is wanted, which engine.trace makes of a function; got {shown(graph)}")
    return graph


def check(graph: Graph) -> None:
    """Hold the graph against the definition of a legal one.

    Raises:
        AssertionError: naming the first node or value that breaks it. It is a fault of the engine,
            never of its user.
    """
    defined = set(graph.inputs) | set(graph.constants)
    for number, array in graph.constants.items():
        assert graph.specs[number] == Spec(array.shape, array.dtype), f"constant %{number} is not its spec"
    for node in graph.nodes:
        for operand in node.inputs:
            assert operand in defined, f"{node.op.name} at %{node.first} uses %{operand} before it is defined"
        inferred = node.op.infer(*[graph.specs[i] for i in node.inputs], *node.parameters)
        assert [graph.specs[i] for i in node.results] == list(inferred), f"specs of %{node.first} are wrong"
        assert not defined & set(node.results), f"%{node.first} is defined twice"
        defined |= set(node.results)
    for number in graph.outputs:
        assert number in defined, f"output %{number} is not defined"


class Symbol(Value):
    """A value of a graph under construction: it has a shape and a dtype, and no value yet."""

    __slots__ = ("__weakref__", "number")
    recorder: Builder

    def __init__(self, recorder: Builder, number: int) -> None:
        self.recorder = recorder
        self.number = number

    @property
    def spec(self) -> Spec:
        return self.recorder.graph.specs[self.number]

    def __repr__(self) -> str:
        return f"Symbol(%{self.number}: {self.spec})"

    def _no_value(self, what: str) -> InputError:
        return InputError(
            f"{what} needs a value, and {self!r} has none while a function is traced; "
            f"compute both branches and choose with `where`, or run eagerly"
        )

    def __bool__(self) -> bool:
        raise self._no_value("bool()")

    def __int__(self) -> int:
        raise self._no_value("int()")

    def __float__(self) -> float:
        raise self._no_value("float()")

    def __index__(self) -> int:
        raise self._no_value("an index")

    def __iter__(self) -> Any:
        raise self._no_value("iteration")

    def __array__(self, *_: Any, **__: Any) -> Array:
        raise self._no_value("numpy.asarray()")

    def __setitem__(self, index: Any, value: Any) -> None:
        raise InputError("a traced value cannot be changed in place; compute a new one (`where`, `concat`)")


class Builder:
    """Appends operations on symbols to a graph: what tracing and every transform record with."""

    def __init__(self, graph: Graph, origin: str = "a transform") -> None:
        self.graph = graph
        self.origin = origin  # what is traced, for messages
        self.open = True

    def symbol(self, number: int) -> Symbol:
        return Symbol(self, number)

    def constant(self, array: Any) -> Symbol:
        """Return the symbol of a fixed value; a Python number is float64, an array is copied."""
        return self.symbol(self.graph.add_constant(kept_array(array, FLOATS[0])))

    def zeros(self, spec: Spec) -> Symbol:
        """Return the symbol of the zero that stands for a missing cotangent or tangent."""
        return self.symbol(self.graph.add_constant(np.zeros(spec.shape, spec.dtype)))

    def apply(self, op: Op, inputs: Sequence[Any], parameters: tuple) -> Any:
        if not self.open:
            kept = next(x for x in inputs if isinstance(x, Symbol))
            raise InputError(
                f"{op.name} was given {kept!r} of {self.origin} after its trace ended; "
                f"return the value from the traced function instead of keeping it"
            )
        dtype = next(x.dtype for x in inputs if isinstance(x, Symbol))
        numbers = tuple([self._number(op, x, dtype) for x in inputs])
        node = self.graph.add_node(op, numbers, parameters)
        if op.outputs == 1:
            return self.symbol(node.first)
        return tuple(self.symbol(i) for i in node.results)

    def _number(self, op: Op, x: Any, dtype: np.dtype) -> int:
        if isinstance(x, Symbol):
            if x.recorder is not self:
                state = "which is still traced" if x.recorder.open else "whose trace has ended"
                raise InputError(
                    f"{op.name} in {self.origin} was given {x!r} of {x.recorder.origin}, {state}; "
                    f"pass it in as an argument, or return it"
                )
            return x.number
        if isinstance(x, Value):
            raise InputError(
                f"{op.name} mixes an eager tensor with a traced value; pass it in as an argument"
            )
        return self.graph.add_constant(kept_array(x, dtype))


_growing = threading.Lock()


class Fingerprint:
    """What was recorded up to a point: a node of a tree whose paths are recordings.

    Recording an operation is one look-up in `children`, so a fingerprint is extended in O(1) and two
    recordings have the same fingerprint, the same object, exactly if they recorded the same operations on
    the same values in the same order: nothing is hashed away. A child keeps its parent alive, and not the
    reverse, so what no tape and no cached program holds is gone.
    """

    __slots__ = ("__weakref__", "children", "key", "parent", "pruned")

    def __init__(self, parent: Fingerprint | None = None, key: tuple = ()) -> None:
        self.parent = parent
        self.key = key
        self.children: dict[tuple, weakref.ref[Fingerprint]] = {}
        self.pruned = 64  # how many children to have before those that are gone are dropped

    def extended(self, key: tuple) -> Fingerprint:
        """Return the fingerprint of this recording followed by `key`."""
        found = self.children.get(key)
        child = found() if found is not None else None
        return self._new_child(key) if child is None else child

    def _new_child(self, key: tuple) -> Fingerprint:
        with _growing:  # two threads that record the same must get the same object
            found = self.children.get(key)
            child = found() if found is not None else None
            if child is None:
                if len(self.children) >= self.pruned:
                    self.children = {k: r for k, r in self.children.items() if r() is not None}
                    self.pruned = max(64, 2 * len(self.children))
                child = Fingerprint(self, key)
                self.children[key] = weakref.ref(child)
            return child

    def path(self) -> list[tuple]:
        """Return the keys from the beginning of the recording to here."""
        keys = []
        at: Fingerprint = self
        while at.parent is not None:
            keys.append(at.key)
            at = at.parent
        return keys[::-1]
