"""The interpreter of the compiled tier's instructions, in the part of Python that Numba compiles.

It is compiled once for a computer, whatever programs it will run (`engine.kernels`). Each instruction is one
loop over one operation, so there is nothing that a compiler could contract, and none may reorder.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import llvmlite.binding as llvm
import numba
from numba import types
from numba.extending import intrinsic

from trgbench.engine import kernels
from trgbench.engine.instructions import BLOCK, LANES, MOVING, WORDS

compiled = numba.njit(error_model="numpy")  # a division by zero is infinity or NaN


def _memory(kind: Any) -> Any:
    """Return a function from an address to the memory there, as elements of `kind`."""

    @intrinsic  # type: ignore[untyped-decorator]
    def at(typing_context: Any, address: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return builder.inttoptr(arguments[0], context.get_value_type(signature.return_type))

        return types.CPointer(kind)(types.int64), generate

    return at


doubles = _memory(types.float64)
integers = _memory(types.int64)


def _arithmetic(function: Callable[[float, float], float]) -> Any:
    """Return the loop d[i] ← f(a[i], b[i]), in forms that a compiler turns into vector instructions."""
    function = compiled(function)

    @compiled
    def loop(d, a, i_a, b, i_b, n):  # type: ignore[no-untyped-def]
        if i_a and i_b:
            for i in range(n):
                d[i] = function(a[i], b[i])
        elif i_a:
            y = b[0]
            for i in range(n):
                d[i] = function(a[i], y)
        else:
            x = a[0]
            for i in range(n):
                d[i] = function(x, b[i * i_b])

    return loop


add = _arithmetic(lambda x, y: x + y)
subtract = _arithmetic(lambda x, y: x - y)
multiply = _arithmetic(lambda x, y: x * y)
divide = _arithmetic(lambda x, y: x / y)


@compiled
def where(d, a, i_a, b, i_b, c, i_c, n):  # type: ignore[no-untyped-def]
    if i_a and i_b and i_c:
        for i in range(n):
            d[i] = b[i] if a[i] != 0.0 else c[i]
    else:
        for i in range(n):
            d[i] = b[i * i_b] if a[i * i_a] != 0.0 else c[i * i_c]


@compiled
def sincos(s, c, a, step, n):  # type: ignore[no-untyped-def]
    for i in range(n):
        x = a[i * step]
        sine = math.sin(x)
        s[i] = sine
        c[i] = math.cos(x)
        # Never so. It keeps the loop one element wide, and only there the two calls become one of the C
        # library's sincos, which costs hardly more than a sine.
        if sine > 2.0:
            break


@compiled
def _lanes(a, start, n):  # type: ignore[no-untyped-def]
    """Sum of at most 128 elements: in eight lanes, and what is left over one by one."""
    if n < 8:
        total = -0.0
        for i in range(start, start + n):
            total += a[i]
        return total
    r0, r1, r2, r3 = a[start], a[start + 1], a[start + 2], a[start + 3]
    r4, r5, r6, r7 = a[start + 4], a[start + 5], a[start + 6], a[start + 7]
    i = start + 8
    last = start + n - n % 8
    while i < last:
        r0 += a[i]
        r1 += a[i + 1]
        r2 += a[i + 2]
        r3 += a[i + 3]
        r4 += a[i + 4]
        r5 += a[i + 5]
        r6 += a[i + 6]
        r7 += a[i + 7]
        i += 8
    total = ((r0 + r1) + (r2 + r3)) + ((r4 + r5) + (r6 + r7))
    while i < start + n:
        total += a[i]
        i += 1
    return total


def _in_halves(inner: Any) -> Any:
    """Return the sum of up to twice as many elements as `inner` adds up."""

    @compiled
    def total(a, start, n):  # type: ignore[no-untyped-def]
        if n <= LANES:
            return _lanes(a, start, n)
        half = n // 2
        half -= half % 8
        return inner(a, start, half) + inner(a, start + half, n - half)

    return total


pairwise = _in_halves(
    _in_halves(_in_halves(_lanes))
)  # of `BLOCK` elements, in the order of NumPy's add.reduce


@compiled
def move(d, a, layout, axes):  # type: ignore[no-untyped-def]
    """d[Σ d-stride · index] ← a[Σ a-stride · index] for all indices within the shape.

    `layout` holds the offsets of d and a, then length, stride of d and stride of a for each axis.
    """
    to, source = layout[0], layout[1]
    last = 2 + 3 * (axes - 1)
    length, step_d, step_a = layout[last], layout[last + 1], layout[last + 2]
    rows = 1
    for axis in range(axes - 1):
        rows *= layout[2 + 3 * axis]
    for row in range(rows):
        at_d, at_a, rest = to, source, row
        for axis in range(axes - 2, -1, -1):
            here = 2 + 3 * axis
            index = rest % layout[here]
            rest //= layout[here]
            at_d += index * layout[here + 1]
            at_a += index * layout[here + 2]
        for i in range(length):
            d[at_d + i * step_d] = a[at_a + i * step_a]


@compiled
def execute(code, count, table, start, n, partials):  # type: ignore[no-untyped-def]
    """Run the instructions once, on the block of n elements from `start` on."""
    for number in range(count):
        at = code + 8 * WORDS * number
        word = integers(at)
        opcode = word[0]
        m = word[1] if word[1] else n
        address_d = table[word[2] >> 2]
        address_a = table[word[3] >> 2]
        address_b = table[word[4] >> 2]
        address_c = table[word[5] >> 2]
        if word[2] & MOVING:
            address_d += 8 * start
        if word[3] & MOVING:
            address_a += 8 * start
        if word[4] & MOVING:
            address_b += 8 * start
        if word[5] & MOVING:
            address_c += 8 * start
        d, a, b, c = doubles(address_d), doubles(address_a), doubles(address_b), doubles(address_c)
        i_a = 1 if word[3] & 3 else 0
        i_b = 1 if word[4] & 3 else 0
        i_c = 1 if word[5] & 3 else 0
        if opcode == 0:
            add(d, a, i_a, b, i_b, m)
        elif opcode == 1:
            subtract(d, a, i_a, b, i_b, m)
        elif opcode == 2:
            multiply(d, a, i_a, b, i_b, m)
        elif opcode == 3:
            divide(d, a, i_a, b, i_b, m)
        elif opcode == 4:
            for i in range(m):
                d[i] = 1.0 if a[i * i_a] < b[i * i_b] else 0.0
        elif opcode == 5:
            for i in range(m):
                d[i] = 1.0 if a[i * i_a] <= b[i * i_b] else 0.0
        elif opcode == 6:
            for i in range(m):
                d[i] = 1.0 if a[i * i_a] > b[i * i_b] else 0.0
        elif opcode == 7:
            for i in range(m):
                d[i] = 1.0 if a[i * i_a] >= b[i * i_b] else 0.0
        elif opcode == 8:
            for i in range(m):
                d[i] = 1.0 if a[i * i_a] == b[i * i_b] else 0.0
        elif opcode == 9:
            for i in range(m):
                d[i] = 1.0 if a[i * i_a] != b[i * i_b] else 0.0
        elif opcode == 12:
            for i in range(m):
                d[i] = -a[i * i_a]
        elif opcode == 13:
            for i in range(m):
                d[i] = a[i * i_a] * a[i * i_a]
        elif opcode == 14:
            for i in range(m):
                d[i] = 1.0 / a[i * i_a]
        elif opcode == 15:
            for i in range(m):
                x = a[i * i_a]
                d[i] = 1.0 if x > 0.0 else (-1.0 if x < 0.0 else (0.0 if x == 0.0 else x))
        elif opcode == 16:
            for i in range(m):
                d[i] = abs(a[i * i_a])
        elif opcode == 17:
            for i in range(m):
                d[i] = math.sqrt(a[i * i_a])
        elif opcode == 18:
            for i in range(m):
                d[i] = 1.0 - a[i * i_a]
        elif opcode == 19:
            for i in range(m):
                d[i] = math.sin(a[i * i_a])
        elif opcode == 20:
            for i in range(m):
                d[i] = math.cos(a[i * i_a])
        elif opcode == 10:  # truth values are 0 and 1
            for i in range(m):
                d[i] = a[i * i_a] * b[i * i_b]
        elif opcode == 11:
            for i in range(m):
                d[i] = max(a[i * i_a], b[i * i_b])
        elif opcode == 21:
            where(d, a, i_a, b, i_b, c, i_c, m)
        elif opcode == 22:
            sincos(d, c, a, i_a, m)
        elif opcode == 23:
            for i in range(m):
                d[i] = a[i * i_a]
        elif opcode == 24:
            move(d, a, integers(code + 8 * word[6]), word[7])
        elif opcode == 25:
            for i in range(m):
                d[i] = 0.0 + pairwise(a, i * word[6], word[6])  # so NumPy's sum of negative zeros is 0
        elif opcode == 26:
            for i in range(m):
                d[i] = 0.0
            for row in range(word[6]):
                for i in range(m):
                    d[i] += a[row * m + i]
        elif opcode == 27:
            partials[word[6]] = 0.0 + pairwise(a, 0, m)


@compiled
def sweep(code, count, table, start, n, sums, partials):  # type: ignore[no-untyped-def]
    """Run the instructions block by block, and add the partial sums up as NumPy does.

    The blocks are the halves, quarters … of NumPy's pairwise sum: so a sum over blocks has its bits.
    """
    here = doubles(partials)
    if n <= BLOCK:
        execute(code, count, table, start, n, here)
        return
    half = n // 2
    half -= half % 8
    sweep(code, count, table, start, half, sums, partials)
    sweep(code, count, table, start + half, n - half, sums, partials + 8 * sums)
    for number in range(sums):
        here[number] += here[number + sums]


def run(frame: Any) -> None:
    """Run what the frame at this address says; see `instructions.FRAME`.

    The entries before the table are NumPy arrays, as addresses of the Python objects: their elements are
    where the pointer behind the object's head points (`PyArrayObject_fields.data`).
    """
    word = integers(frame)
    table = integers(word[2])
    for number in range(word[5]):
        table[-1 - number] = integers(table[-1 - number])[2]
    sweep(word[1], word[0], table, word[3], word[4], word[6], word[7])


# Numba's own entry points hand errors to Python; this one has none to hand on, and needs only the C library.
_ENTRY = """
define void @{name}(i64 %frame) {{
  %result = alloca ptr
  %error = alloca ptr
  %status = call i32 @{function}(ptr %result, ptr %error, i64 %frame)
  ret void
}}
"""


def object_code() -> bytes:
    """Compile the interpreter for this machine."""
    function = numba.cfunc(types.void(types.int64), error_model="numpy")(run)
    machine = kernels.target_machine()
    name = function.native_name.removeprefix("cfunc.")
    text = function.inspect_llvm() + _ENTRY.format(name=kernels.ENTRY, function=name)
    module = llvm.parse_assembly(re.sub(r"^source_filename = .*$", "", text, flags=re.MULTILINE))
    for item in (*module.functions, *module.global_variables):
        if not item.is_declaration and item.name != kernels.ENTRY:
            item.linkage = "internal"
    builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=0))
    passes = llvm.create_new_module_pass_manager()
    passes.add_global_dead_code_eliminate_pass()
    passes.run(module, builder)
    return machine.emit_object(module)
