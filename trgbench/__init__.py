"""Eager, traced or staged: what does it cost to differentiate a tensor-network calculation?

Importing this package imports neither JAX, PyTorch nor asv; a backend's library is imported
when that backend is asked for (`trgbench.backends.get`).
"""

__version__ = "0.1.0"

TYPE_CHECKING = False  # as typing's, without importing it
if TYPE_CHECKING:
    from trgbench.sweeps import sweep as sweep
else:

    def __getattr__(name: str) -> object:
        """Give `trgbench.sweep`, which is imported when it is asked for."""
        if name != "sweep":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from trgbench.sweeps import sweep

        return sweep
