"""What a node is to the compiled tier: an instruction, strided moves, a sum, or none of these.

Moves and sums are lowered for small arrays only: NumPy is as fast with large ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from trgbench.engine.graph import Node
from trgbench.engine.instructions import BLOCK
from trgbench.engine.ops.table import Shape, Spec

Axis = tuple[int, int, int]  # length, stride of the result, stride of the operand; strides in elements


class Move(NamedTuple):
    """A strided copy of (a part of) an operand to (a part of) the result."""

    operand: int  # which of the node's inputs
    to: int  # where it begins in the result
    source: int  # where it begins in the operand
    axes: tuple[Axis, ...]

    def layout(self) -> list[int]:
        """Return the words that the instruction reads: without axes of length 1."""
        joined: list[Axis] = []  # neighbours that are one axis to both sides
        for length, d, a in self.axes:
            if length == 1:
                continue
            if joined and joined[-1][1] == length * d and joined[-1][2] == length * a:
                joined[-1] = (joined[-1][0] * length, d, a)
            else:
                joined.append((length, d, a))
        return [self.to, self.source, *(x for axis in joined or [(1, 0, 0)] for x in axis)]


def strides(shape: Shape) -> list[int]:
    """Return the strides of a C-contiguous array, in elements."""
    result = [1] * len(shape)
    for axis in range(len(shape) - 1, 0, -1):
        result[axis - 1] = result[axis] * shape[axis]
    return result


def broadcast(shape: Shape, wanted: Shape, operand: int = 0) -> Move:
    """Return the move that repeats an array of `shape` to `wanted`."""
    added = len(wanted) - len(shape)
    from_strides = [0] * added + [0 if n == 1 else s for n, s in zip(shape, strides(shape), strict=True)]
    return Move(operand, 0, 0, tuple(zip(wanted, strides(wanted), from_strides, strict=True)))


def _permute(inputs: Sequence[Spec], result: Spec, axes: Shape) -> list[Move]:
    of_operand = strides(inputs[0].shape)
    steps = [of_operand[axis] for axis in axes]
    return [Move(0, 0, 0, tuple(zip(result.shape, strides(result.shape), steps, strict=True)))]


def _slice_steps(shape: Shape, bounds: Sequence[Shape]) -> tuple[int, list[int]]:
    """Return where a slice of an array of `shape` begins, and its strides."""
    whole = strides(shape)
    start = sum(b[0] * s for b, s in zip(bounds, whole, strict=True))
    return start, [b[2] * s for b, s in zip(bounds, whole, strict=True)]


def _slice(inputs: Sequence[Spec], result: Spec, bounds: Sequence[Shape]) -> list[Move]:
    start, steps = _slice_steps(inputs[0].shape, bounds)
    return [Move(0, 0, start, tuple(zip(result.shape, strides(result.shape), steps, strict=True)))]


def _embed(inputs: Sequence[Spec], result: Spec, shape: Shape, bounds: Sequence[Shape]) -> list[Move]:
    start, steps = _slice_steps(shape, bounds)
    small = inputs[0].shape
    return [Move(0, start, 0, tuple(zip(small, steps, strides(small), strict=True)))]


def _concat(inputs: Sequence[Spec], result: Spec, axis: int) -> list[Move]:
    whole, moves, start = strides(result.shape), [], 0
    for operand, spec in enumerate(inputs):
        moves.append(Move(operand, start, 0, tuple(zip(spec.shape, whole, strides(spec.shape), strict=True))))
        start += spec.shape[axis] * whole[axis]
    return moves


def _diagonal_steps(matrix: Shape, offset: int) -> tuple[int, int]:
    """Return where a diagonal begins in a matrix, and its stride."""
    columns = matrix[1]
    return max(-offset, 0) * columns + max(offset, 0), columns + 1


def _diagonal(inputs: Sequence[Spec], result: Spec, offset: int) -> list[Move]:
    shape = inputs[0].shape
    start, step = _diagonal_steps(shape[-2:], offset)
    return [
        Move(
            0,
            0,
            start,
            tuple(zip(result.shape, strides(result.shape), [*strides(shape)[:-2], step], strict=True)),
        )
    ]


def _embed_diagonal(inputs: Sequence[Spec], result: Spec, matrix: Shape, offset: int) -> list[Move]:
    shape = inputs[0].shape
    start, step = _diagonal_steps(matrix, offset)
    return [
        Move(
            0,
            start,
            0,
            tuple(zip(shape, [*strides(result.shape)[:-2], step], strides(shape), strict=True)),
        )
    ]


MOVES: dict[str, Callable[..., list[Move]]] = {
    "permute_dims": _permute,
    "broadcast_to": lambda inputs, result, shape: [broadcast(inputs[0].shape, shape)],
    "slice": _slice,
    "embed": _embed,
    "concat": _concat,
    "diagonal": _diagonal,
    "embed_diagonal": _embed_diagonal,
}
ZEROED = ("embed", "embed_diagonal")  # whose moves do not fill the result


class Sum(NamedTuple):
    """A sum over the last or the first axes: `rows` results of `length` elements each."""

    kind: str
    rows: int
    length: int


def as_sum(x: Spec, axes: Shape) -> Sum | None:
    """Return how to do NumPy's sum of x over `axes`, None where only NumPy knows the order."""
    kept = [(n, axis in axes) for axis, n in enumerate(x.shape) if n != 1]
    reduced = [is_reduced for _, is_reduced in kept]
    length = math.prod(n for n, is_reduced in kept if is_reduced)
    rows = math.prod(n for n, is_reduced in kept if not is_reduced)
    count = sum(reduced)
    if not count:
        return Sum("sum_first", rows, 1)  # no copy: it makes 0 of a negative zero
    if all(reduced[len(reduced) - count :]) and length <= BLOCK:
        return Sum("sum_last", rows, length)
    if all(reduced[:count]) and rows > 1:
        return Sum("sum_first", rows, length)
    return None


def is_whole_sum(node: Node, x: Spec) -> bool:
    """Whether the node adds all elements of x up."""
    return node.op.name == "sum" and all(
        n == 1 or axis in node.parameters[0] for axis, n in enumerate(x.shape)
    )
