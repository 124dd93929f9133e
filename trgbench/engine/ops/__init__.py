"""The table of operations, by family. To add an operation, add a block in its family's file."""

from trgbench.engine.ops import (
    comparison,
    contraction,
    einsum,
    elementwise,
    factorisation,
    indexing,
    leading,
    linalg,
    reduction,
    shape,
)
from trgbench.engine.ops.table import OPS, Op, Spec, Value

__all__ = [
    "OPS",
    "Op",
    "Spec",
    "Value",
    "comparison",
    "contraction",
    "einsum",
    "elementwise",
    "factorisation",
    "indexing",
    "leading",
    "linalg",
    "reduction",
    "shape",
]
