"""Einstein summation, as a sequence of pairwise contractions in the order that opt_einsum finds."""

from __future__ import annotations

from collections.abc import Set
from functools import lru_cache
from typing import Any

import numpy as np
import opt_einsum

from trgbench.engine.ops.contraction import Axes
from trgbench.engine.ops.indexing import diagonal
from trgbench.engine.ops.reduction import sum
from trgbench.engine.ops.shape import permute_dims, reshape
from trgbench.engine.ops.table import OPS, Shape, Value
from trgbench.errors import InputError

Term = tuple[str, Any]  # one letter per axis, and the operand


@lru_cache(1024)
def _planned(subscripts: str, shapes: tuple[Shape, ...]) -> tuple[list[str], str, list[tuple[int, ...]]]:
    """Return the letters of each operand and of the result, and which operands to contract in each step."""
    try:
        inputs, output, _ = opt_einsum.parser.parse_einsum_input((subscripts, *shapes), shapes=True)
        path, _ = opt_einsum.contract_path(f"{inputs}->{output}", *shapes, shapes=True)
    except (ValueError, KeyError, IndexError, TypeError) as error:
        listed = ", ".join(map(str, shapes))
        raise InputError(
            f"einsum: {subscripts!r} does not fit operands of shapes {listed}: {error}"
        ) from None
    return inputs.split(","), output, list(path)


def _reduced(letters: str, x: Any, kept: Set[str]) -> Term:
    """Take the diagonal of repeated letters, and sum over those that are not `kept`."""
    for letter in sorted(set(letters)):
        while letters.count(letter) > 1:
            i, j = letters.index(letter), letters.rindex(letter)
            rest = [axis for axis in range(len(letters)) if axis not in (i, j)]
            x = diagonal(permute_dims(x, (*rest, i, j)))
            letters = "".join(letters[axis] for axis in rest) + letter
    gone = tuple(axis for axis, letter in enumerate(letters) if letter not in kept)
    if gone:
        x = sum(x, axis=gone)
    return "".join(letter for letter in letters if letter in kept), x


def _pair(first: Term, second: Term, kept: Set[str]) -> Term:
    """Multiply two operands, and sum over the letters that are not `kept`."""
    a, x = _reduced(*first, kept=kept | set(second[0]))
    b, y = _reduced(*second, kept=kept | set(a))
    shared = [letter for letter in a if letter in b]
    summed = [letter for letter in shared if letter not in kept]
    if not summed:
        letters = a + "".join(letter for letter in b if letter not in a)
        return letters, _aligned(a, x, letters) * _aligned(b, y, letters)
    stacked = [letter for letter in shared if letter in kept]
    axes, batch = (
        (tuple(a.index(i) for i in group), tuple(b.index(i) for i in group)) for group in (summed, stacked)
    )
    pairs: tuple[Axes, Axes] = (axes, batch)
    letters = "".join([*stacked, *(i for i in a if i not in shared), *(i for i in b if i not in shared)])
    return letters, OPS["contract"](x, y, parameters=pairs)


def _aligned(letters: str, x: Any, wanted: str) -> Any:
    """Order the axes of x as in `wanted`, with axes of length 1 for the letters that it lacks."""
    x = _permuted(letters, x, "".join(i for i in wanted if i in letters))
    lengths = iter(x.shape)
    return reshape(x, tuple(next(lengths) if i in letters else 1 for i in wanted))


def _permuted(letters: str, x: Any, wanted: str) -> Any:
    return x if letters == wanted else permute_dims(x, tuple(letters.index(i) for i in wanted))


def einsum(subscripts: str, /, *operands: Any) -> Any:
    """The Einstein sum of the operands, as `numpy.einsum`: "ij,jk->ik" is a matrix product.

    Raises:
        InputError: if the subscripts are not a string, or do not fit the operands.

    >>> import numpy
    >>> einsum("ij,jk,ki->", numpy.eye(3), numpy.ones((3, 2)), numpy.ones((2, 3)))
    array(6.)
    """
    if not isinstance(subscripts, str):
        raise InputError(
            f"einsum: the subscripts must be a string such as 'ij,jk->ik'; got a {type(subscripts).__name__}"
        )
    arrays = [x if isinstance(x, Value) else np.asarray(x) for x in operands]
    letters, output, path = _planned(subscripts, tuple(x.shape for x in arrays))
    terms: list[Term] = list(zip(letters, arrays, strict=True))
    for step in path:
        picked = [terms.pop(i) for i in sorted(step, reverse=True)][::-1]
        kept = set(output).union(*(term[0] for term in terms))
        result = picked[0]
        for position, other in enumerate(picked[1:], start=2):
            result = _pair(result, other, kept.union(*(term[0] for term in picked[position:])))
        terms.append(_reduced(*result, kept=kept))
    ((found, x),) = terms
    return _permuted(found, x, output)
