"""The tape of an eager session, and the derivative programs made from one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from trgbench.engine.compiler import Program, compile_graph
from trgbench.engine.graph import Fingerprint, Graph
from trgbench.engine.ops.table import Spec
from trgbench.engine.vjp import needed_before, vjp

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


class Derivative(NamedTuple):
    """A prepared derivative program: which slots it reads, and the slots its outputs are cotangents of."""

    program: Program
    wrt: tuple[int, ...]


def recorded_graph(fingerprint: Fingerprint) -> Graph:
    """Return the graph of a recording; the number of a value is its slot on the tape."""
    graph = Graph()
    for key in fingerprint.path():
        if key[0] == "input":
            graph.add_input(key[1])
        else:
            op, parameters, *slots = key
            graph.add_node(op, tuple(slots), parameters)
    return graph


def prepare_derivative(
    fingerprint: Fingerprint, roots: tuple[int, ...], given: tuple[bool, ...]
) -> tuple[Derivative, int]:
    """Make the program from values on a tape and seeds to the cotangents of its active inputs."""
    graph = recorded_graph(fingerprint)
    boundary = len(graph.specs)
    active = [
        number
        for number, key in zip(graph.inputs, (k for k in fingerprint.path() if k[0] == "input"), strict=True)
        if key[2]
    ]
    reverse = vjp(graph, roots, active, given)
    found = [(slot, ct) for slot, ct in zip(active, reverse.cotangents, strict=True) if ct is not None]
    extended = reverse.graph
    extended.nodes = [node for node in extended.nodes if node.first >= boundary]
    extended.outputs = [ct for _, ct in found]
    residuals = needed_before(extended, extended.outputs, boundary)
    seeds = [number for number, is_given in zip(reverse.seeds, given, strict=True) if is_given]
    extended.inputs = [*residuals, *seeds]
    sources = [("values", slot) for slot in residuals] + [("seeds", i) for i in range(len(seeds))]
    program = compile_graph(extended, sources)
    path_bytes = 200 * boundary  # the fingerprint's path, which this entry keeps alive
    return Derivative(program, tuple(slot for slot, _ in found)), program.nbytes + path_bytes
