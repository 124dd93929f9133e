"""Eager, traced or staged: what does it cost to differentiate a tensor-network calculation?

Importing this package imports neither JAX, PyTorch nor asv; a backend's library is imported
when that backend is asked for (`trgbench.backends.get`).
"""

__version__ = "0.1.0"
