"""A call of the vector machine: what it is told, as it is written down and as words in memory."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from typing import Any

from trgbench.engine.instructions import FRAME, OPCODES, WORDS
from trgbench.engine.ops.table import Array


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
    partials: int = 0

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

    def bound(self, base: int) -> tuple[array[int], array[int], array[int]]:
        """Return the table, the frame and the code, for a workspace at the address `base`."""
        code = array("q", [*self.words, *self.layouts])
        for at in range(0, len(self.words), WORDS):
            if code[at] == OPCODES["move"]:
                code[at + 6] += len(self.words)
        addresses = [base + 8 * key if isinstance(key, int) else key.ctypes.data for key in self.fixed or [0]]
        table = array("q", [*[0] * len(self.objects), *addresses])
        values = {
            "count": len(self.words) // WORDS,
            "code": code.buffer_info()[0],
            "table": table.buffer_info()[0] + 8 * len(self.objects),
            "start": 0,
            "elements": self.elements,
            "objects": len(self.objects),
            "sums": self.sums,
            "partials": base + 8 * self.partials,
        }
        return table, array("q", [values[name] for name in FRAME]), code
