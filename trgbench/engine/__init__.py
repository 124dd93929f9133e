"""A small differentiable array engine: one VJP transform under an eager and a traced face.

Functions have the array API standard's names, take arrays, eager tensors and traced values alike,
and eager, traced and staged results are equal bit for bit.
"""

from trgbench.engine import linalg
from trgbench.engine.eager import Session, Tensor
from trgbench.engine.graph import Graph
from trgbench.engine.jvp import jvp
from trgbench.engine.ops.contraction import matmul, tensordot
from trgbench.engine.ops.elementwise import (
    add,
    cos,
    cosh,
    divide,
    exp,
    log,
    multiply,
    negative,
    sin,
    sinh,
    sqrt,
    subtract,
)
from trgbench.engine.ops.linalg import svd
from trgbench.engine.ops.reduction import sum
from trgbench.engine.ops.shape import broadcast_to, concat, permute_dims, reshape, stack
from trgbench.engine.runtime import PreparedProgram, ProgramCache, Runtime
from trgbench.engine.traced import grad, pullback, spec, trace, value_and_grad

__all__ = [
    "Graph",
    "PreparedProgram",
    "ProgramCache",
    "Runtime",
    "Session",
    "Tensor",
    "add",
    "broadcast_to",
    "concat",
    "cos",
    "cosh",
    "divide",
    "exp",
    "grad",
    "jvp",
    "linalg",
    "log",
    "matmul",
    "multiply",
    "negative",
    "permute_dims",
    "pullback",
    "reshape",
    "sin",
    "sinh",
    "spec",
    "sqrt",
    "stack",
    "subtract",
    "sum",
    "svd",
    "tensordot",
    "trace",
    "value_and_grad",
]
