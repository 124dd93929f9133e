"""The array API standard's `linalg` namespace, as far as the engine has it."""

from trgbench.engine.ops.contraction import matmul, tensordot, trace
from trgbench.engine.ops.linalg import svd

__all__ = ["matmul", "svd", "tensordot", "trace"]
