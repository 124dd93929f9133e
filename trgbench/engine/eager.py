"""The eager face: every operation runs at once, and a tape remembers it.

Recording an operation appends its result to a flat list and extends a `Fingerprint`. `backward` looks
the fingerprint up: a hit runs the prepared derivative program over the values on the tape, and a miss makes
that program, by the same transform and compiler that the traced face uses. Nothing walks the recording on
a hit.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from trgbench.engine.graph import collection_paused
from trgbench.engine.ops.table import BOOL, FLOATS, Array, Op, Spec, Value, as_array, kept_array
from trgbench.engine.runtime import CacheStats, Runtime, activate
from trgbench.engine.tape import Tape, recorded_graph, unprepared
from trgbench.engine.vjp import Reverse, vjp
from trgbench.errors import InputError, shown

SWEEPS = 1  # backwards of equal recordings before a program is made for them


class Tensor(Value):
    """An array with a record of how it was computed, if it depends on a variable.

    Attributes:
        active: a derivative can flow through it.
        grad: for a variable, the gradient that `backward` calls have accumulated; `None` before.
    """

    __slots__ = ("__weakref__", "active", "array", "fingerprint", "grad", "slot", "tape")
    recorder: Session

    def __init__(
        self,
        session: Session,
        array: Any,
        active: bool = False,
        tape: Tape | None = None,
        slot: int = -1,
    ) -> None:
        self.recorder = session
        self.array = array
        self.active = active
        self.tape = tape
        self.slot = slot
        self.fingerprint = session.runtime.root if tape is None else tape.fingerprint
        self.grad: Any = None

    @property
    def spec(self) -> Spec:
        return Spec(self.array.shape, self.array.dtype)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape

    @property
    def dtype(self) -> np.dtype:
        return self.array.dtype

    @property
    def value(self) -> Array:
        """The array, read-only: derivatives depend on it."""
        view = np.asarray(self.array).view()
        view.flags.writeable = False
        return view

    def backward(self, seed: Any = None) -> None:
        """Add the gradient of this scalar to `grad` of every variable it depends on.

        For an array of another shape give `seed`, the cotangent of this tensor.

        Raises:
            InputError: if `seed` is missing or of another shape, or the tensor depends on no variable.
        """
        self.recorder.backward([self], None if seed is None else [seed])

    def __float__(self) -> float:
        return float(self.array)

    def __int__(self) -> int:
        return int(self.array)

    def __bool__(self) -> bool:
        return bool(self.array)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return np.array(self.array, dtype=dtype)

    def __repr__(self) -> str:
        return f"Tensor({np.array2string(np.asarray(self.array), threshold=8)}, active={self.active})"


class Session:
    """Runs operations at once and records them; use it as a context manager or keep it.

    A session belongs to one thread; the runtime, and so its cache, may be shared.

    Args:
        width: threads that BLAS may use, if no `runtime` is given.
        runtime: shares its cache of prepared derivative programs with other sessions.

    >>> from trgbench import engine
    >>> with engine.Session(width=1) as s:
    ...     x = s.variable([1.0, 2.0])
    ...     y = engine.sum(x * x)
    ...     y.backward()
    >>> float(y), x.grad
    (5.0, array([2., 4.]))
    """

    def __init__(self, width: int = 1, runtime: Runtime | None = None) -> None:
        self.runtime = Runtime(width) if runtime is None else runtime
        self.recording = True
        self._tape = Tape(self.runtime.root, 0)

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.clear()

    def clear(self) -> None:
        """Begin a new recording, as `backward` does; what tensors still refer to stays usable.

        A loop that never calls `backward` (it uses `grad`, or only reads values) should call this once an
        iteration, or record nothing (`paused`): else its recording grows, and no two iterations are alike.
        """
        self._tape = Tape(self.runtime.root, self._tape.serial + 1)

    def variable(self, array: Any) -> Tensor:
        """Return a tensor to differentiate with respect to. The array is copied, unless it is read-only.

        Raises:
            InputError: if the array is not of float64 or float32.
        """
        tensor = self.constant(array)
        if tensor.dtype not in FLOATS:
            raise InputError(
                f"a variable must be float64 or float32; got {tensor.dtype}; convert it to float"
            )
        tensor.active = True
        return tensor

    def constant(self, array: Any) -> Tensor:
        """Return a tensor that derivatives do not flow into. The array is copied, unless it is read-only."""
        if isinstance(array, Value):
            raise InputError("a tensor cannot be made of a tensor; pass its `.value`")
        return Tensor(self, kept_array(array, FLOATS[0]))

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Run operations without recording them."""
        before, self.recording = self.recording, False
        try:
            yield
        finally:
            self.recording = before

    def stats(self) -> CacheStats:
        """Return the counters of the runtime's cache."""
        return self.runtime.stats()

    def apply(self, op: Op, inputs: Sequence[Any], parameters: tuple) -> Any:
        """Run `op` and, if an input is active, record it. What fails is not recorded."""
        tape = self._tape
        arrays: list[Any] = []
        slots = []
        active = False
        dtype = None
        for x in inputs:
            if x.__class__ is not Tensor or x.recorder is not self:
                inputs, arrays = self._operands(op, inputs)
                return self._apply(op, inputs, arrays, parameters)
            array = x.array
            arrays.append(array)
            if array.dtype is not dtype:
                dtype = array.dtype if dtype is None else BOOL  # BOOL: not alike
            if x.active:
                active = True
                slots.append(x.slot if x.tape is tape else -1)
            else:
                slots.append(-1)
        if (dtype is not FLOATS[0] and dtype is not FLOATS[1]) or op.outputs > 1 or op.blas:
            return self._apply(op, inputs, arrays, parameters)
        # The common case, and the one whose cost counts: tensors of one floating-point dtype, one result.
        try:
            result = op.kernel(*arrays, *parameters)
        except (ValueError, TypeError, IndexError):
            op.check(arrays, parameters)
            raise
        if not active or not self.recording:
            return Tensor(self, result)
        if -1 in slots:
            slots = [x.slot if x.tape is tape else tape.enter(x) for x in inputs]
        tape.fingerprint = tape.fingerprint.extended((op, parameters, *slots))
        values = tape.values
        tensor = Tensor(self, result, result.dtype in FLOATS, tape, len(values))
        values.append(result)
        return tensor

    def _operands(self, op: Op, inputs: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """Return operands, not all of them tensors, and their arrays; a number takes a tensor's dtype."""
        dtype = FLOATS[0]
        for x in inputs:
            if x.__class__ is Tensor:
                if x.recorder is not self:
                    raise InputError(f"{op.name} was given a tensor of another session; pass its `.value`")
                dtype = x.array.dtype
            elif isinstance(x, Value):
                raise InputError(
                    f"{op.name} mixes a traced value with an eager tensor; pass it in as an argument"
                )
        return list(inputs), [x.array if x.__class__ is Tensor else as_array(x, dtype) for x in inputs]

    def _apply(self, op: Op, inputs: Sequence[Any], arrays: list[Any], parameters: tuple) -> Any:
        """Run and record any operation."""
        if op.blas:
            activate(self.runtime.width)
        results = op.run(arrays, parameters)
        if not (self.recording and any(x.__class__ is Tensor and x.active for x in inputs)):
            if op.outputs == 1:
                return Tensor(self, results)
            return tuple([Tensor(self, array) for array in results])
        tape = self._tape
        slots = [
            (x.slot if x.tape is tape else tape.enter(x))
            if x.__class__ is Tensor
            else tape.enter_array(kept_array(x, array.dtype))
            for x, array in zip(inputs, arrays, strict=True)
        ]
        tape.fingerprint = tape.fingerprint.extended((op, parameters, *slots))
        slot = len(tape.values)
        if op.outputs == 1:
            tape.values.append(results)
            return Tensor(self, results, results.dtype in FLOATS, tape, slot)
        tape.values.extend(results)
        return tuple([Tensor(self, array, True, tape, slot + i) for i, array in enumerate(results)])

    def backward(self, roots: Sequence[Tensor], seeds: Sequence[Any] | None = None) -> None:
        """Add to `grad` of every variable the gradient of Σ ⟨seed, root⟩.

        Args:
            roots: scalars, or tensors of any shape if `seeds` are given.
            seeds: the cotangent of each root; `None` in its place stands for one.

        Raises:
            InputError: if a seed is missing or of another shape, a root depends on no variable, or is of
                another session; then no gradient has changed.
        """
        pending: dict[Tape, dict[int, tuple[Tensor, Any]]] = {}
        given = [None] * len(roots) if seeds is None else list(seeds)
        if len(given) != len(roots):
            raise InputError(f"backward of {len(roots)} roots needs as many seeds; got {len(given)}")
        checked = [self._checked_seed(root, seed) for root, seed in zip(roots, given, strict=True)]
        for root, seed in zip(roots, checked, strict=True):
            _give(pending, root, seed.copy() if root.tape is None and seed is not None else seed)
        while pending:
            tape = max(pending, key=lambda tape: tape.serial)
            self._run_tape(tape, pending.pop(tape), pending)
        self.clear()

    def _own(self, tensor: Any) -> None:
        """Refuse what is no tensor of this session."""
        if not isinstance(tensor, Tensor):
            raise InputError(f"a derivative is taken of tensors of this session; got {shown(tensor)}")
        if tensor.recorder is not self:
            raise InputError("a tensor of another session was given; a derivative stays within a session")

    def _checked_seed(self, root: Tensor, seed: Any) -> Array | None:
        self._own(root)
        if not root.active:
            raise InputError(
                "backward was called on a tensor that depends on no variable; see Session.variable"
            )
        if seed is None:
            if root.shape != ():
                raise InputError(
                    f"backward of a tensor of shape {root.shape} needs a seed of that shape; "
                    f"give one, or sum the tensor to a scalar"
                )
            return None
        array = as_array(seed.array if isinstance(seed, Tensor) else seed, root.dtype)
        if array.shape != root.shape or array.dtype != root.dtype:
            raise InputError(
                f"the seed must be {root.spec}, as its tensor; got {Spec(array.shape, array.dtype)}"
            )
        return array

    def _run_tape(self, tape: Tape, seeded: dict[int, tuple[Tensor, Any]], pending: dict[Tape, Any]) -> None:
        """Run the derivative program of one tape, and hand its cotangents to variables and older tapes."""
        roots = tuple(seeded)
        given = tuple(seed is not None for _, seed in seeded.values())
        fingerprint = seeded[max(roots)][0].fingerprint
        width = self.runtime.width
        key = (fingerprint, roots, given, width)
        derivative = self.runtime.cache.get(key, lambda: unprepared(fingerprint, roots, given))
        seeds = [seed for _, seed in seeded.values() if seed is not None]
        if derivative.program is None and derivative.sweeps < SWEEPS:
            derivative.sweeps += 1
            with collection_paused():
                swept = derivative.sweep(tape.values, seeds, functools.partial(Tensor, self))
            for slot, cotangent in swept:
                _give(pending, tape.inputs[slot], cotangent)
            return
        if derivative.program is None:
            with collection_paused():
                self.runtime.cache.resize(key, derivative.prepare(tape.values, width))
        if derivative.program.blas:
            activate(width)
        cotangents = derivative.program.run(tape.values, seeds)
        for slot, cotangent in zip(derivative.wrt, cotangents, strict=True):
            _give(pending, tape.inputs[slot], cotangent)

    def grad(self, output: Tensor, wrt: Sequence[Tensor]) -> list[Tensor]:
        """Return the gradient of a scalar with respect to tensors it was computed from.

        The result is recorded, so it can be differentiated again; see `clear` for loops.

        Raises:
            InputError: if `output` is not a scalar of the recording under way, a tensor is of another
                session, or the way from `wrt` to `output` leads through an earlier backward.
        """
        for x in wrt:
            self._own(x)
        self._checked_seed(output, None)
        tape = self._tape
        if output.tape is None:  # a variable
            return [self.constant(np.full(x.shape, float(x is output), x.dtype)) for x in wrt]
        if output.tape is not tape:
            raise InputError("grad of a tensor that was recorded before the last backward; compute it again")
        slots = [x.slot if x.tape is tape else tape.entered.get(id(x), -1) for x in wrt]
        older = any(x.active and x.tape is not None for x in tape.inputs.values())
        if older and min(slots, default=0) < 0:
            raise InputError(
                "grad leads through a tensor that was recorded before the last backward; compute it again"
            )
        fingerprint = output.fingerprint
        known = [slot for slot in slots if slot >= 0]

        def make() -> tuple[Reverse, int]:
            graph, _ = recorded_graph(fingerprint, tape.values)
            reverse = vjp(graph, [output.slot], known, [False])
            return reverse, 200 * len(reverse.graph.nodes)

        key = ("grad", fingerprint, output.slot, tuple(known))
        reverse = self.runtime.cache.get(key, make)
        gradients = iter(self._replay(tape, reverse))
        found = [next(gradients) if slot >= 0 else None for slot in slots]
        return [
            Tensor(self, np.zeros(x.shape, x.dtype)) if gradient is None else gradient
            for x, gradient in zip(wrt, found, strict=True)
        ]

    def _replay(self, tape: Tape, reverse: Reverse) -> list[Tensor | None]:
        """Run the reverse nodes of `reverse` as recorded operations on the values of `tape`."""
        graph = reverse.graph
        boundary = reverse.seeds[0]  # the seed is the first value behind the forward graph
        tensors: dict[int, Tensor] = {}

        def tensor(number: int) -> Any:
            if number in graph.constants:
                return graph.constants[number]
            if number not in tensors:
                tensors[number] = Tensor(self, tape.values[number], True, tape, number)
            return tensors[number]

        for node in graph.nodes:
            if node.first > boundary:
                results = self.apply(node.op, [tensor(i) for i in node.inputs], node.parameters)
                tensors.update(
                    zip(node.results, (results,) if node.op.outputs == 1 else results, strict=True)
                )
        found = [None if ct is None else tensor(ct) for ct in reverse.cotangents]
        return [self.constant(x) if isinstance(x, np.ndarray) else x for x in found]


def _give(pending: dict[Tape, dict[int, tuple[Tensor, Any]]], tensor: Tensor, cotangent: Any) -> None:
    """Add a cotangent (`None`: one) to a variable's `grad`, or to what an older tape has to propagate."""
    if tensor.tape is None:
        one = np.ones(tensor.shape, tensor.dtype) if cotangent is None else cotangent
        tensor.grad = one if tensor.grad is None else tensor.grad + one
        return
    seeded = pending.setdefault(tensor.tape, {})
    if tensor.slot in seeded:
        before = seeded[tensor.slot][1]
        one = np.ones(tensor.shape, tensor.dtype)
        cotangent = (one if before is None else before) + (one if cotangent is None else cotangent)
    seeded[tensor.slot] = (tensor, cotangent)
