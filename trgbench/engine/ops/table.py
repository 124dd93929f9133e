"""What an operation is: its shape rule, kernel, derivative and sample inputs, in one block.

Arrays are positional and metadata is positional behind them, so that every rule has one shape:
`infer(*specs, *parameters)`, `kernel(*arrays, *parameters)`, and derivatives over `Value`s, written
with the table's own operations, so that derivatives of derivatives come free.

Every array inside the engine is C-contiguous. It makes a result depend on its operands' values and
shapes only, never on how they were made, which is what lets eager and traced agree bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

from trgbench.errors import InputError, shown

Array = np.ndarray
Shape = tuple[int, ...]
Rule = Callable[..., Any]
Samples = Callable[[np.random.Generator], Iterable[tuple[tuple[Array, ...], tuple]]]

FLOATS = (np.dtype(np.float64), np.dtype(np.float32))
BOOL = np.dtype(np.bool_)
INTEGER = np.dtype(np.int64)
DTYPES = (*FLOATS, BOOL, INTEGER)


class Spec(NamedTuple):
    """Shape and dtype of a value."""

    shape: Shape
    dtype: np.dtype

    def __str__(self) -> str:
        return f"{self.dtype.name}[{','.join(map(str, self.shape))}]"


class Recorder(Protocol):
    """What operations on a `Value` are handed to: an eager session or a graph under construction."""

    def apply(self, op: Op, inputs: Sequence[Any], parameters: tuple) -> Any: ...

    def constant(self, array: Any) -> Any: ...


class Value:
    """A value that operations can be applied to: an eager tensor or a symbol of a graph."""

    __slots__ = ("recorder",)
    __array_ufunc__ = None  # so that `ndarray + value` reaches `value.__radd__`
    recorder: Recorder

    @property
    def spec(self) -> Spec:
        raise NotImplementedError

    @property
    def shape(self) -> Shape:
        return self.spec.shape

    @property
    def dtype(self) -> np.dtype:
        return self.spec.dtype

    @property
    def ndim(self) -> int:
        return len(self.spec.shape)

    @property
    def size(self) -> int:
        return int(np.prod(self.spec.shape, dtype=np.int64))

    @property
    def mT(self) -> Any:
        from trgbench.engine.ops.shape import matrix_transpose

        return matrix_transpose(self)

    @property
    def T(self) -> Any:
        return OPS["permute_dims"](self, parameters=(tuple(reversed(range(self.ndim))),))

    def __add__(self, other: Any) -> Any:
        return OPS["add"](self, other)

    def __radd__(self, other: Any) -> Any:
        return OPS["add"](other, self)

    def __sub__(self, other: Any) -> Any:
        return OPS["subtract"](self, other)

    def __rsub__(self, other: Any) -> Any:
        return OPS["subtract"](other, self)

    def __mul__(self, other: Any) -> Any:
        return OPS["multiply"](self, other)

    def __rmul__(self, other: Any) -> Any:
        return OPS["multiply"](other, self)

    def __truediv__(self, other: Any) -> Any:
        return OPS["divide"](self, other)

    def __rtruediv__(self, other: Any) -> Any:
        return OPS["divide"](other, self)

    def __neg__(self) -> Any:
        return OPS["negative"](self)

    def __pow__(self, other: Any) -> Any:
        from trgbench.engine.ops.elementwise import pow

        return pow(self, other)

    def __rpow__(self, other: Any) -> Any:
        return OPS["pow"](other, self)

    def __abs__(self) -> Any:
        return OPS["abs"](self)

    def __lt__(self, other: Any) -> Any:
        return OPS["less"](self, other)

    def __le__(self, other: Any) -> Any:
        return OPS["less_equal"](self, other)

    def __gt__(self, other: Any) -> Any:
        return OPS["greater"](self, other)

    def __ge__(self, other: Any) -> Any:
        return OPS["greater_equal"](self, other)

    # == and != compare elements, as arrays do; a value is hashed by its identity.
    def __eq__(self, other: Any) -> Any:
        return OPS["equal"](self, other) if isinstance(other, _OPERANDS) else NotImplemented

    def __ne__(self, other: Any) -> Any:
        return OPS["not_equal"](self, other) if isinstance(other, _OPERANDS) else NotImplemented

    __hash__ = object.__hash__

    def __and__(self, other: Any) -> Any:
        return OPS["logical_and"](self, other)

    __rand__ = __and__

    def __or__(self, other: Any) -> Any:
        return OPS["logical_or"](self, other)

    __ror__ = __or__

    def __invert__(self) -> Any:
        return OPS["logical_not"](self)

    def __getitem__(self, index: Any) -> Any:
        from trgbench.engine.ops.indexing import getitem

        return getitem(self, index)

    def __iter__(self) -> Any:
        if not self.ndim:
            raise InputError("a 0-d value cannot be iterated over")
        return (self[i] for i in range(self.shape[0]))

    def __rmatmul__(self, other: Any) -> Any:
        from trgbench.engine.ops.contraction import matmul

        return matmul(other, self)

    def __len__(self) -> int:
        if not self.ndim:
            raise InputError("len() of a 0-d value")
        return self.shape[0]

    def __matmul__(self, other: Any) -> Any:
        from trgbench.engine.ops.contraction import matmul

        return matmul(self, other)


_OPERANDS = (Value, np.ndarray, np.generic, int, float, list, tuple)


@dataclass(frozen=True, eq=False)
class Op:
    """An operation.

    Attributes:
        name: the array API standard's name where it has one.
        parameters: names of the metadata, in order.
        infer: (*specs, *parameters) → specs of the outputs; raises `InputError` for illegal operands.
        kernel: (*arrays, *parameters) → a C-contiguous array, or a tuple of them if `outputs` > 1.
        vjp: (cotangents, outputs, inputs, parameters, wanted) → a cotangent or `None` for each input.
            A cotangent that is `None` is zero; an input that is not `wanted` may get `None`.
        jvp: (tangents, outputs, inputs, parameters) → a tangent or `None` for each output. A tangent that
            is `None` is zero; one at least is not.
        samples: seed generator → legal (arrays, parameters) that tests and per-op benchmarks iterate.
        outputs: how many arrays the kernel returns.
        ufunc: the kernel is a NumPy ufunc: elementwise, and takes an output array as its last argument.
        alias: the output is a view of the first input.
        blas: the kernel calls BLAS or LAPACK, whose number of threads is to be set first.
    """

    name: str
    infer: Callable[..., tuple[Spec, ...]]
    kernel: Callable[..., Any]
    vjp: Callable[..., Sequence[Any]]
    jvp: Callable[..., Sequence[Any]]
    samples: Samples
    parameters: tuple[str, ...] = ()
    outputs: int = 1
    ufunc: bool = False
    alias: bool = False
    blas: bool = False

    def __call__(self, *inputs: Any, parameters: tuple = ()) -> Any:
        """Apply the operation to values, or at once to arrays if none of `inputs` is a `Value`."""
        for value in inputs:
            if isinstance(value, Value):
                return value.recorder.apply(self, inputs, parameters)
        dtype = next((x.dtype for x in inputs if isinstance(x, np.ndarray)), FLOATS[0])
        return self.run([as_array(x, dtype) for x in inputs], parameters)

    def run(self, arrays: Sequence[Any], parameters: tuple) -> Any:
        """Run the kernel on contiguous arrays; a fault is the shape rule's message.

        Kernels are as strict as shape rules where all arrays are of one floating-point dtype.
        """
        dtype = arrays[0].dtype
        checked = dtype in FLOATS
        for array in arrays:
            checked = checked and array.dtype is dtype
        if not checked:
            self.check(arrays, parameters)
        try:
            return self.kernel(*arrays, *parameters)
        except (ValueError, TypeError, IndexError):
            self.check(arrays, parameters)
            raise

    def check(self, arrays: Sequence[Any], parameters: tuple) -> tuple[Spec, ...]:
        """Return the outputs' specs; raise `InputError` if the operands are illegal."""
        return self.infer(*(Spec(np.shape(x), x.dtype) for x in arrays), *parameters)

    def __repr__(self) -> str:
        return f"<op {self.name}>"


OPS: dict[str, Op] = {}


def register(op: Op) -> Op:
    """Enter `op` in the table."""
    OPS[op.name] = op
    return op


def as_array(x: Any, dtype: np.dtype) -> Array:
    """Return `x` as a contiguous array; a Python number takes `dtype`, if that can hold it.

    Raises:
        InputError: if `x` is not numeric, ragged, or of a dtype the engine does not know.
    """
    if isinstance(x, (int, float)) and not isinstance(x, bool):
        holds = dtype in FLOATS or (isinstance(x, int) and dtype == INTEGER)
        try:
            return np.asarray(x, dtype=dtype if holds else FLOATS[0])
        except OverflowError:
            raise InputError(f"the number {shown(x)} is too large for {dtype}") from None
    try:
        array = np.asarray(x)
    except ValueError:
        raise InputError(f"an array must have rows of equal length; got {shown(x)}") from None
    if array.dtype not in DTYPES:
        raise InputError(
            f"an array must be of dtype {', '.join(d.name for d in DTYPES)}; got {array.dtype}; "
            f"convert it with numpy.asarray(x, dtype=float)"
        )
    canonical = DTYPES[DTYPES.index(array.dtype)]
    if array.dtype is not canonical:  # equal, and another object: so it is with an unpickled array
        array = array.view(canonical)
    return array if array.flags.c_contiguous else np.ascontiguousarray(array)


def kept_array(x: Any, dtype: np.dtype) -> Array:
    """Return `x` as an array to keep: a copy, unless it and all it is a view of are read-only.

    Raises:
        InputError: as `as_array`.
    """
    array = as_array(x, dtype)
    owner = x
    while isinstance(owner, np.ndarray) and not owner.flags.writeable:
        owner = owner.base
    return array if owner is None and x is not None else array.copy()


def shape_of(x: Any) -> Shape:
    """Return the shape of a value, array or number."""
    return x.shape if isinstance(x, Value) else np.shape(x)
