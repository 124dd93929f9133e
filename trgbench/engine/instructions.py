"""The instructions of the compiled tier: a small vector machine, one operation on an array each.

`engine.loops` is its interpreter, compiled once for a machine; `engine.planner` writes programs for it. An
operation of the table may be an instruction only if the machine gives the bits of its NumPy kernel, which
tests/test_engine_tiers.py holds over millions of values. Arithmetic does by IEEE 754; the sine and the cosine
are the C library's here as there, which `engine.kernels` checks on the computer it runs on; the exponential
and the logarithm are NumPy's own on some CPUs, and are no instructions.

An instruction is eight words: opcode, count, d, a, b, c, p, q. d is where the result goes and a, b, c the
operands: each a place in the table of addresses times 4, plus how to step through it (`SCALAR`, `WHOLE`,
`BLOCK`). A count of 0 is the number of elements in the block under way.
"""

from __future__ import annotations

WORDS = 8  # of an instruction
LANES = 128  # elements that NumPy's pairwise sum adds up without halving
BLOCK = 4 * LANES  # elements at most: the arrays of a block then fit the innermost cache

SCALAR = 0  # one element for all
WHOLE = 1  # an array from its beginning
MOVING = 2  # the block's part of an array

BINARY = (
    "add",
    "subtract",
    "multiply",
    "divide",
    "less",
    "less_equal",
    "greater",
    "greater_equal",
    "equal",
    "not_equal",
    "logical_and",
    "logical_or",
)
UNARY = ("negative", "square", "reciprocal", "sign", "abs", "sqrt", "logical_not", "sin", "cos")
ELEMENTWISE = (*BINARY, *UNARY, "where")

# sincos    d, c ← sin a, cos a, at the price of one
# copy      d ← a
# move      d ← a, both strided: `p` is where its shape and strides stand in the code, `q` the number of axes
# sum_last  d[i] ← Σ_j a[i, j] for j < p, in NumPy's pairwise order
# sum_first d[j] ← Σ_i a[i, j] for i < p
# partial   the sum of the block, to be added up over the blocks in NumPy's pairwise order, as sum number p
OPCODES: dict[str, int] = {
    name: number
    for number, name in enumerate(
        (*ELEMENTWISE, "sincos", "copy", "move", "sum_last", "sum_first", "partial")
    )
}

# A frame is what one run of the machine is given: these words, in this order.
FRAME = ("count", "code", "table", "start", "elements", "objects", "sums", "partials")
