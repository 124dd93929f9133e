"""What outlives a session: the thread width and the cache of prepared programs."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
import threadpoolctl

from trgbench.engine.compiler import PASSES, Pass, Program, compile_graph
from trgbench.engine.graph import Fingerprint, Graph, as_graph, collection_paused
from trgbench.engine.memory import keep_freed_pages
from trgbench.engine.ops.table import Array, Spec, as_array
from trgbench.errors import InputError, check_integer

Entry = TypeVar("Entry")


class CacheStats(NamedTuple):
    """Counters of a program cache; `retained_bytes` are those of the entries that are in it now."""

    entries: int
    retained_bytes: int
    hits: int
    misses: int
    evictions: int
    clears: int


class ProgramCache(Generic[Entry]):
    """Prepared programs by key, the least recently used leave first; safe under threads.

    It is bounded by the number of entries and by the bytes they retain; the newest entry stays even if it
    is larger than the bound by itself.
    """

    def __init__(self, entries: int = 512, nbytes: int = 256 * 2**20) -> None:
        self.max_entries = check_integer("entries", entries, minimum=1)
        self.max_bytes = check_integer("nbytes", nbytes, minimum=1)
        self._lock = threading.Lock()
        self._entries: OrderedDict[Hashable, tuple[Entry, int]] = OrderedDict()
        self._bytes = self._hits = self._misses = self._evictions = self._clears = 0

    def get(self, key: Hashable, make: Callable[[], tuple[Entry, int]]) -> Entry:
        """Return the entry under `key`; a miss makes it, with the bytes it retains."""
        with self._lock:
            found = self._entries.get(key)
            if found is not None:
                self._entries.move_to_end(key)
                self._hits += 1
                return found[0]
            self._misses += 1
        made = make()  # outside the lock: it may take long, and may itself use the cache
        with self._lock:
            present = self._entries.get(key)
            if present is not None:  # another thread was faster
                return present[0]
            self._entries[key] = made
            self._bytes += made[1]
            self._shrink()
        return made[0]

    def resize(self, key: Hashable, nbytes: int) -> None:
        """Say that the entry under `key`, if it is still there, retains so many bytes now."""
        with self._lock:
            if key in self._entries:
                entry, before = self._entries[key]
                self._entries[key] = entry, nbytes
                self._bytes += nbytes - before
                self._shrink()

    def _shrink(self) -> None:
        while len(self._entries) > 1 and (
            len(self._entries) > self.max_entries or self._bytes > self.max_bytes
        ):
            _, (_, size) = self._entries.popitem(last=False)
            self._bytes -= size
            self._evictions += 1

    def clear(self) -> None:
        """Drop all entries; counters other than `clears` go on."""
        with self._lock:
            self._entries.clear()
            self._bytes = 0
            self._clears += 1

    def stats(self) -> CacheStats:
        with self._lock:
            return CacheStats(
                len(self._entries), self._bytes, self._hits, self._misses, self._evictions, self._clears
            )


_blas: threadpoolctl.ThreadpoolController | None = None
_active_width: int | None = None


def activate(width: int) -> None:
    """Give BLAS `width` threads, for the whole process; does nothing if this function set that last.

    Whatever else in the process sets them should do it through this function. It is called where BLAS is
    about to be used, and not before: the first call looks through the loaded libraries, for some 6 ms,
    which is longer than all the rest of a small first gradient.
    """
    global _blas, _active_width
    if _active_width == width:
        return
    if _blas is None:
        _blas = threadpoolctl.ThreadpoolController()  # scans the loaded libraries: once, it is slow
    _blas.limit(limits=width, user_api="blas")
    _active_width = width


@dataclass(frozen=True)
class PreparedProgram:
    """A program for one set of shapes and dtypes; call it with arrays, as the traced function.

    The arrays it returns belong to the caller.
    """

    program: Program
    specs: tuple[Spec, ...]
    single: bool
    width: int

    def __call__(self, *arrays: Any) -> Any:
        """Run the program.

        Raises:
            InputError: if the number, a shape or a dtype of `arrays` is not what was prepared.
        """
        if len(arrays) != len(self.specs):
            raise InputError(f"the program was prepared for {len(self.specs)} arguments; got {len(arrays)}")
        values: list[Array] = []
        for x, spec in zip(arrays, self.specs, strict=True):
            usable = x.__class__ is np.ndarray and x.dtype is spec.dtype and x.shape == spec.shape
            values.append(x if usable and x.flags.c_contiguous else self._fitting(x, spec, len(values) + 1))
        if self.program.blas:
            activate(self.width)
        outputs = self.program.run(values, ())
        return outputs[0] if self.single else outputs

    def _fitting(self, x: Any, spec: Spec, position: int) -> Array:
        value = as_array(x, spec.dtype)
        if value.shape != spec.shape or value.dtype is not spec.dtype:
            raise InputError(
                f"argument {position} must be {spec}, for which the program was prepared; "
                f"got {Spec(value.shape, value.dtype)}; prepare another program for it"
            )
        return value


@dataclass(frozen=True)
class Runtime:
    """Prepares graphs, and owns the cache that eager sessions and prepared programs share.

    Args:
        width: threads that BLAS, and the compiled tier on large arrays, may use.
        cache: bounds of the cache; a fresh one by default.

    >>> from trgbench import engine
    >>> runtime = engine.Runtime(width=1)
    >>> graph = engine.trace(lambda x: engine.sum(x * x), engine.spec((3,)))
    >>> program = runtime.prepare(engine.grad(graph))
    >>> program([1.0, 2.0, 3.0])
    array([2., 4., 6.])
    >>> runtime.stats().misses
    1
    """

    width: int = 1
    cache: ProgramCache = field(default_factory=ProgramCache, repr=False)
    root: Fingerprint = field(default_factory=Fingerprint, repr=False)

    def __post_init__(self) -> None:
        check_integer("width", self.width, minimum=1)
        keep_freed_pages()

    def prepare(self, graph: Graph, passes: Sequence[Pass] = PASSES) -> PreparedProgram:
        """Compile `graph`, or take the program of an equal graph from the cache."""

        def make() -> tuple[PreparedProgram, int]:
            sources = [("values", position) for position in range(len(graph.inputs))]
            program = compile_graph(graph, sources, passes, self.width)
            specs = tuple(graph.specs[i] for i in graph.inputs)
            return PreparedProgram(program, specs, graph.single, self.width), program.nbytes

        as_graph(graph)
        with collection_paused():
            key = (*_content(graph), tuple(passes), self.width)
            return self.cache.get(key, make)

    def stats(self) -> CacheStats:
        """Return entries, retained bytes, hits, misses, evictions and clears of the cache."""
        return self.cache.stats()


def _content(graph: Graph) -> tuple:
    """Return all that a graph is, as something to look it up by."""
    return (
        tuple([(node.first, node.op, node.parameters, node.inputs) for node in graph.nodes]),
        tuple([(i, graph.specs[i]) for i in graph.inputs]),
        tuple([(i, graph.specs[i], sha256(x.tobytes()).digest()) for i, x in graph.constants.items()]),
        tuple(graph.outputs),
        graph.single,
    )
