"""The compiled tier's programs: straight-line Python that calls the vector machine and NumPy.

Where each value lives is decided once: small arrays in a workspace that the program keeps, the parts of
large ones that are only passed from one instruction to the next in registers of a block's length, everything
else in arrays of its own. What the machine is told (code, addresses) is then fixed but for a few pointers.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from trgbench.engine import lowering
from trgbench.engine.calls import Call
from trgbench.engine.graph import Graph, Node
from trgbench.engine.instructions import BLOCK, MOVING, SCALAR, WHOLE
from trgbench.engine.kernels import Machine
from trgbench.engine.ops.table import FLOATS
from trgbench.engine.schedule import NUMPY, VIEW, WHOLES, Step, size
from trgbench.engine.threads import ENOUGH, added, spread
from trgbench.engine.writer import Writer

Run = Callable[[Sequence[Any], Sequence[Any]], tuple]


class Planner(Writer):
    """Writes the program of a graph."""

    def __init__(
        self, graph: Graph, sources: Sequence[tuple[str, int]], machine: Machine, width: int
    ) -> None:
        super().__init__(graph, sources, machine.exact)
        self.machine = machine
        self.width = width
        self.calls: list[Call] = []
        self.registers: dict[int, int] = {}  # where a value lives during one call over blocks

    # --- the machine ---

    def _operand(self, call: Call, i: int, step: int | None = None) -> int:
        """Return the place and step of an operand of the machine."""
        at = self.root.get(i, i)
        spec = self.specs[at]
        if step is None:
            step = SCALAR if size(spec.shape) == 1 else WHOLE
        offset = self.registers.get(at, self.static.get(at))
        if offset is not None:
            return 4 * call.fixed_place(offset) + step
        if call.elements > 1 and step == WHOLE:
            step = MOVING
        if at in self.graph.constants:
            constant = self.graph.constants[at]
            if constant.dtype is not FLOATS[0]:
                constant = self.names.setdefault(f"n{at}", np.ascontiguousarray(constant, dtype=np.float64))
            return 4 * call.fixed_place(constant) + step
        if not spec.shape:  # NumPy's 0-d results are numbers and no arrays
            if at not in self.scalars:
                # Memory that no instruction of this call has used: it is written before the call.
                self.scalars[at], self.top = self.top, self.top + 8
                self.lines.append(f"m[{self.scalars[at]}] = {self._object(at)}")
            return 4 * call.fixed_place(self.scalars[at]) + step
        return 4 * call.object_place(self._object(at)) + step

    def _wholes(self, call: Call, step: Step, number: int) -> None:
        node = step.nodes[0]
        name, result = node.op.name, self.specs[node.first]
        count = size(result.shape)
        if name in lowering.MOVES:
            self._moves(call, node, count)
        elif name == "sum":
            how = lowering.as_sum(self.specs[node.inputs[0]], node.parameters[0])
            assert how is not None
            target = self._new(node.first, count)
            places = [4 * call.fixed_place(target) + WHOLE, self._operand(call, node.inputs[0])]
            call.add(how.kind, how.rows, places, how.length)
        else:
            operands, temporary = [], []
            for i in node.inputs:
                shape = self.specs[i].shape
                if size(shape) in (1, count):
                    operands.append(self._operand(call, i))
                else:
                    offset = self._allocate(count)
                    temporary.append(offset)
                    self._move(call, lowering.broadcast(shape, result.shape), offset, i)
                    operands.append(4 * call.fixed_place(offset) + WHOLE)
            if len(step.nodes) == 2:
                sine, cosine = sorted(step.nodes, key=lambda each: each.op.name, reverse=True)
                d, c = (4 * call.fixed_place(self._new(each.first, count)) + WHOLE for each in (sine, cosine))
                call.add("sincos", count, [d, operands[0], operands[0], c])
            else:
                # In place, where an operand of the size of the result is used for the last time.
                place = 4 * call.fixed_place(self._in_place(node, count, number)) + WHOLE
                call.add(name, count, [place, *operands])
            for offset in temporary:
                self._release(offset, count)

    def _in_place(self, node: Node, count: int, number: int) -> int:
        for i in node.inputs:
            at = self.root.get(i, i)
            if (
                count > 1
                and at in self.static
                and self.last[at] == number
                and size(self.specs[at].shape) == count
            ):
                self.static[node.first] = self.static.pop(at)
                return self.static[node.first]
        return self._new(node.first, count)

    def _moves(self, call: Call, node: Node, count: int) -> None:
        inputs = [self.specs[i] for i in node.inputs]
        moves = lowering.MOVES[node.op.name](inputs, self.specs[node.first], *node.parameters)
        target = self._new(node.first, count)
        if node.op.name in lowering.ZEROED:
            zero = self.names.setdefault("zero", np.zeros(1))
            call.add(
                "copy", count, [4 * call.fixed_place(target) + WHOLE, 4 * call.fixed_place(zero) + SCALAR]
            )
        for each in moves:
            self._move(call, each, target, node.inputs[each.operand])

    def _move(self, call: Call, move: lowering.Move, target: int, i: int) -> None:
        layout = move.layout()
        places = [4 * call.fixed_place(target) + WHOLE, self._operand(call, i, WHOLE)]
        if len(layout) == 5 and layout[:2] == [0, 0] and layout[3] == 1 and layout[4] in (0, 1):
            call.add("copy", layout[2], [places[0], places[1] - (WHOLE if layout[4] == 0 else 0)])
            return
        call.add("move", 1, places, len(call.layouts), (len(layout) - 2) // 3)
        call.layouts += layout

    def _blocks(self, call: Call, step: Step, number: int, end: int) -> None:
        node = step.nodes[0]
        if node.op.name == "sum":
            place = self._operand(call, node.inputs[0])
            call.add("partial", 0, [0, place], call.sums)
            self.static[node.first] = call.partials[0] + call.sums
            self.last[node.first] = -1  # its memory is the call's
            call.sums += 1
            return
        operands = [self._operand(call, i) for i in node.inputs]
        targets = {}
        for each in step.nodes:
            at = each.first
            if self.last[at] > end:
                name = self.variable[at] = f"r{at}"
                self.owned.add(at)
                self.lines.append(f"{name} = empty({self._literal(self.specs[at].shape)})")
                targets[each.op.name] = 4 * call.object_place(name) + MOVING
            else:
                self.registers[at] = self._allocate(BLOCK * call.parts)
                call.registers.add(self.registers[at])
                targets[each.op.name] = 4 * call.fixed_place(self.registers[at]) + WHOLE
        if len(step.nodes) == 2:
            call.add("sincos", 0, [targets["sin"], operands[0], operands[0], targets["cos"]])
        else:
            name = "copy" if node.op.name == "broadcast_to" else node.op.name
            call.add(name, 0, [targets[node.op.name], *operands])
        for i in {self.root.get(i, i) for i in node.inputs}:
            if self.last.get(i) == number and i in self.registers:
                self._release(self.registers.pop(i), BLOCK * call.parts)

    # --- the whole ---

    def plan(self) -> tuple[list[str], int]:
        """Write the program's lines, and return them with the number of calls of the machine."""
        number = 0
        for kind, steps in self.schedule:
            call = Call(kind[1] or 1)
            if kind[0] == "blocks":
                call.partials = self._partials(kind[1], steps)
            end = number + len(steps)
            for step in steps:
                number += 1
                if step.kind is NUMPY:
                    self._numpy(step.nodes[0], number)
                elif step.kind is WHOLES:
                    self._wholes(call, step, number)
                elif step.kind is not VIEW:
                    self._blocks(call, step, number, end)
                if kind[0] != "blocks":
                    self._free([i for node in step.nodes for i in (*node.inputs, *node.results)], number)
            if kind[0] == "blocks":
                for offset in self.registers.values():
                    self._release(offset, BLOCK * call.parts)
                self.registers.clear()
                for position, step in enumerate(steps, start=end - len(steps) + 1):
                    self._free([i for node in step.nodes for i in (*node.inputs, *node.results)], position)
            if call.words:
                self._emit(call)
            self.lines += self.dropped
            self.dropped.clear()
        self._return()
        return self.lines, len(self.calls)

    def _partials(self, elements: int, steps: list[Step]) -> list[int]:
        """Return memory for the sums over blocks, for each part: one for each sum and level of halving."""
        parts = 1 if elements < ENOUGH else 2 ** (self.width - 1).bit_length()
        sums = sum(step.nodes[0].op.name == "sum" for step in steps)
        return [self._allocate(sums * (elements.bit_length() + 1)) if sums else 0 for _ in range(parts)]

    def _emit(self, call: Call) -> None:
        number, count = len(self.calls), len(call.objects)
        self.calls.append(call)
        tables = [f"t{number}_{part}" for part in range(call.parts)]
        numbered = [place for place, text in enumerate(call.objects) if text.startswith("values[")]
        if count > 8 and len(numbered) == count:
            positions = [int(text[7:-1]) for text in reversed(call.objects)]
            self.names[f"g{number}"] = operator.itemgetter(*positions)
            targets = " = ".join(f"{table}[:{count}]" for table in tables)
            self.lines.append(f'{targets} = array("q", map(id, g{number}(values)))')
        else:
            for place, text in enumerate(call.objects):
                targets = " = ".join(f"{table}[{count - 1 - place}]" for table in tables)
                self.lines.append(f"{targets} = id({text})")
        if call.parts > 1:
            self.names["spread"] = spread
            self.lines.append(f"spread({self.width}, run_released, f{number})")
            for k in range(call.sums):
                terms = [f"m[{first + k}]" for first in call.partials]
                self.lines.append(f"{terms[0]} = {added(terms)}")
        else:
            self.lines.append(f"{'run' if call.elements < 32 * BLOCK else 'run_released'}(f{number})")

    def _return(self) -> None:
        returned: list[str] = []
        given_away: set[int] = set()
        for i in self.graph.outputs:
            at, shape = self.root.get(i, i), self.specs[i].shape
            if at in self.static and not shape:
                returned.append(f"copy(m[{self.static[at]}])")
            elif at in self.static:
                returned.append(f"{self._expression(i)}.copy()")
            elif at in self.owned and at not in given_away and self.specs[at].shape and shape:
                given_away.add(at)
                returned.append(self._expression(i))
            else:
                returned.append(f"copy({self._expression(i)})")
        self.lines.append(f"return ({''.join(f'{text}, ' for text in returned)})")

    def nbytes(self) -> int:
        """Return the bytes that the program's workspace, tables and constants take."""
        constants = sum(x.nbytes for x in self.names.values() if isinstance(x, np.ndarray))
        words = sum(
            len(call.words) + len(call.layouts) + len(call.fixed) + len(call.objects) for call in self.calls
        )
        return 8 * (self.top + words) + constants

    def context(self) -> dict[str, Any]:
        """Return the names of one run at a time: a workspace, views of it, and the machine's tables."""
        workspace = np.zeros(self.top + 8)
        base = workspace.ctypes.data
        shift = -(base // 8) % 8
        workspace = workspace[shift : shift + self.top]
        base = workspace.ctypes.data
        names = dict(self.names)
        names["m"] = memoryview(workspace.data)
        for name, (offset, shape, matrix) in self.views.items():
            view = workspace[offset : offset + size(shape)].reshape(shape)
            names[name] = view if matrix is None else view.transpose(matrix[0]).reshape(matrix[1])
        kept: list[Any] = [workspace]
        for number, call in enumerate(self.calls):
            tables, frames, code = call.bound(base)
            for part, table in enumerate(tables):
                names[f"t{number}_{part}"] = table
            addresses = [frame.buffer_info()[0] for frame in frames]
            names[f"f{number}"] = addresses if call.parts > 1 else addresses[0]
            kept += [frames, code]
        names["run"], names["run_released"], names["kept"] = self.machine.run, self.machine.run_released, kept
        return names
