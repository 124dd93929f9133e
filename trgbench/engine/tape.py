"""The tape of an eager session, and the derivative programs made from one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from trgbench.engine.compiler import Program, compile_graph
from trgbench.engine.graph import Fingerprint, Graph, Node
from trgbench.engine.ops.table import Spec
from trgbench.engine.vjp import needed_before, pull_back, vjp

if TYPE_CHECKING:
    from trgbench.engine.eager import Tensor


class Tape:
    """A recording: the values in order, what they were recorded from, and where it started from.

    Attributes:
        values: arrays by slot: inputs where they were first used, and results of operations.
        inputs: the tensors from outside that the recording uses, by slot.
        fingerprint: of the whole recording so far.
        serial: tapes of a session are numbered in order; a tape depends on older ones only.
    """

    __slots__ = ("entered", "fingerprint", "inputs", "serial", "values")

    def __init__(self, root: Fingerprint, serial: int) -> None:
        self.values: list[Any] = []
        self.inputs: dict[int, Tensor] = {}
        self.entered: dict[int, int] = {}
        self.fingerprint = root
        self.serial = serial

    def enter(self, tensor: Tensor) -> int:
        """Return the slot of a tensor from outside, giving it one at its first use."""
        slot = self.entered.get(id(tensor))
        if slot is None:
            slot = self.enter_array(tensor.array, tensor.active)
            self.entered[id(tensor)] = slot
            self.inputs[slot] = tensor
        return slot

    def enter_array(self, array: Any, active: bool = False) -> int:
        slot = len(self.values)
        self.values.append(array)
        self.fingerprint = self.fingerprint.extended(("input", Spec(array.shape, array.dtype), active))
        return slot


def recorded(fingerprint: Fingerprint) -> tuple[list[Node], list[int], list[int]]:
    """Return the nodes of a recording, its inputs, and the active ones; a value's number is its slot."""
    nodes: list[Node] = []
    inputs, active = [], []
    slot = 0
    for key in fingerprint.path():
        if key[0] == "input":
            inputs.append(slot)
            if key[2]:
                active.append(slot)
            slot += 1
        else:
            op, parameters, *slots = key
            nodes.append(Node(op, tuple(slots), parameters, slot))
            slot += op.outputs
    return nodes, inputs, active


def recorded_graph(fingerprint: Fingerprint, values: Sequence[Any]) -> tuple[Graph, list[int]]:
    """Return the graph of a recording, of which `values` are one run, and its active inputs."""
    nodes, inputs, active = recorded(fingerprint)
    count = nodes[-1].results.stop if nodes else len(inputs)
    count = max(count, inputs[-1] + 1 if inputs else 0)
    return Graph([Spec(x.shape, x.dtype) for x in values[:count]], inputs, {}, nodes), active


class Derivative:
    """The cotangents of a recording's active inputs, for given roots: swept at first, then by a program.

    To prepare a program costs as much as some sweeps, which is more than a recording that never comes again
    should pay.
    """

    def __init__(self, fingerprint: Fingerprint, roots: tuple[int, ...], given: tuple[bool, ...]) -> None:
        self.fingerprint = fingerprint
        self.roots = roots
        self.given = given
        self.sweeps = 0
        self.program: Program | None = None
        self.wrt: tuple[int, ...] = ()  # the slots that the program's outputs are cotangents of

    def prepare(self, values: Sequence[Any], width: int) -> int:
        """Make the program from values on a tape and seeds to cotangents; return the bytes it retains."""
        graph, active = recorded_graph(self.fingerprint, values)
        boundary = len(graph.specs)
        reverse = vjp(graph, self.roots, active, self.given)
        found = [(slot, ct) for slot, ct in zip(active, reverse.cotangents, strict=True) if ct is not None]
        extended = reverse.graph
        extended.nodes = [node for node in extended.nodes if node.first >= boundary]
        extended.outputs = [ct for _, ct in found]
        residuals = needed_before(extended, extended.outputs, boundary)
        seeds = [number for number, given in zip(reverse.seeds, self.given, strict=True) if given]
        extended.inputs = [*residuals, *seeds]
        sources = [("values", slot) for slot in residuals] + [("seeds", i) for i in range(len(seeds))]
        self.wrt = tuple(slot for slot, _ in found)
        self.program = compile_graph(extended, sources, width=width)
        return self.program.nbytes + self.path_bytes()

    def sweep(self, values: Sequence[Any], seeds: Sequence[Any], tensor: Callable[[Any], Tensor]) -> Any:
        """Return pairs of an active input's slot and its cotangent, computed operation by operation.

        `tensor` makes an unrecorded tensor of an array.
        """
        nodes, _, active = recorded(self.fingerprint)
        left = iter(seeds)
        cotangents: dict[int, Any] = {}
        for root, given in zip(self.roots, self.given, strict=True):
            seed = tensor(next(left) if given else np.ones(values[root].shape, values[root].dtype))
            cotangents[root] = cotangents[root] + seed if root in cotangents else seed
        found = pull_back(nodes, cotangents, active, lambda slot: tensor(values[slot]))
        # Copies: a cotangent may be a view of another, or of a seed.
        return [(slot, np.array(ct.array)) for slot, ct in zip(active, found, strict=True) if ct is not None]

    def path_bytes(self) -> int:
        """Return about how much the fingerprint's path takes, which this keeps alive."""
        return 200 * len(self.fingerprint.path())


def unprepared(
    fingerprint: Fingerprint, roots: tuple[int, ...], given: tuple[bool, ...]
) -> tuple[Derivative, int]:
    """Return an entry for the cache, and the bytes it retains."""
    derivative = Derivative(fingerprint, roots, given)
    return derivative, derivative.path_bytes()
