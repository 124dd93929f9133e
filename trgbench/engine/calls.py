"""A call of the vector machine: what it is told, as it is written down and as words in memory."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from typing import Any

from trgbench.engine.instructions import BLOCK, FRAME, OPCODES, WORDS
from trgbench.engine.ops.table import Array
from trgbench.engine.threads import halves


@dataclass
class Call:
    """One call of the machine: its code, and what its operands' places in the table stand for."""

    elements: int  # 1 where instructions have counts of their own
    words: list[int] = field(default_factory=list)
    layouts: list[int] = field(default_factory=list)
    fixed: list[int | Array] = field(default_factory=list)  # offsets in the workspace, or constants
    places: dict[Any, int] = field(default_factory=dict)
    objects: list[str] = field(default_factory=list)  # expressions of arrays that differ from run to run
    sums: int = 0
    partials: list[int] = field(default_factory=lambda: [0])  # where the sums over blocks go, for each part
    registers: set[int] = field(default_factory=set)  # those of `fixed` of which each part has its own

    @property
    def parts(self) -> int:
        """Into how many parts, for threads, the elements are cut."""
        return len(self.partials)

    def fixed_place(self, key: int | Array) -> int:
        name = key if isinstance(key, int) else ("constant", id(key))
        place = self.places.get(name)
        if place is None:
            place = self.places[name] = len(self.fixed)
            self.fixed.append(key)
        return place

    def object_place(self, expression: str) -> int:
        place = self.places.get(expression)
        if place is None:
            self.objects.append(expression)
            place = self.places[expression] = -len(self.objects)
        return place

    def add(self, name: str, count: int, places: list[int], p: int = 0, q: int = 0) -> None:
        places += [0] * (4 - len(places))
        self.words += (OPCODES[name], count, *places, p, q)

    def bound(self, base: int) -> tuple[list[array[int]], list[array[int]], array[int]]:
        """Return a table and a frame for each part, and the code, for a workspace at the address `base`."""
        code = array("q", [*self.words, *self.layouts])
        for at in range(0, len(self.words), WORDS):
            if code[at] == OPCODES["move"]:
                code[at + 6] += len(self.words)
        tables, frames = [], []
        for part, (start, elements) in enumerate(halves(0, self.elements, self.parts)):
            table = array("q", [0] * len(self.objects))
            for key in self.fixed or [0]:
                if isinstance(key, int):
                    table.append(base + 8 * (key + (part * BLOCK if key in self.registers else 0)))
                else:
                    table.append(key.ctypes.data)
            values = {
                "count": len(self.words) // WORDS,
                "code": code.buffer_info()[0],
                "table": table.buffer_info()[0] + 8 * len(self.objects),
                "start": start,
                "elements": elements,
                "objects": len(self.objects),
                "sums": self.sums,
                "partials": base + 8 * self.partials[part],
            }
            tables.append(table)
            frames.append(array("q", [values[name] for name in FRAME]))
        return tables, frames, code
