"""The array API standard's `linalg` namespace, as far as the engine has it."""

from trgbench.engine.ops.contraction import matmul, outer, tensordot, trace
from trgbench.engine.ops.factorisation import cholesky, eigh, qr, solve
from trgbench.engine.ops.indexing import diagonal
from trgbench.engine.ops.leading import network_svd
from trgbench.engine.ops.linalg import svd
from trgbench.engine.ops.reduction import matrix_norm, vector_norm
from trgbench.engine.ops.shape import matrix_transpose

__all__ = [
    "cholesky",
    "diagonal",
    "eigh",
    "matmul",
    "matrix_norm",
    "matrix_transpose",
    "network_svd",
    "outer",
    "qr",
    "solve",
    "svd",
    "tensordot",
    "trace",
    "vector_norm",
]
