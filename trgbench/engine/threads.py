"""Threads over blocks: the vector machine lets go of Python's lock, so plain threads do."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache

ENOUGH = 2**16  # elements from which a second thread is worth the 40 µs that it takes to hand it work


def halves(start: int, n: int, parts: int) -> list[tuple[int, int]]:
    """Return beginning and length of `parts`, a power of two, of n elements, halved as the pairwise sum does.

    >>> halves(0, 1000, 2)
    [(0, 496), (496, 504)]
    """
    if parts == 1:
        return [(start, n)]
    half = n // 2
    half -= half % 8
    return [*halves(start, half, parts // 2), *halves(start + half, n - half, parts // 2)]


def added(terms: Sequence[str]) -> str:
    """Return the text of the sum of the parts' sums, in pairs as the pairwise sum adds them.

    >>> added(["a", "b", "c", "d"])
    '((a + b) + (c + d))'
    """
    if len(terms) == 1:
        return terms[0]
    middle = len(terms) // 2
    return f"({added(terms[:middle])} + {added(terms[middle:])})"


@cache
def _pool(width: int, process: int) -> ThreadPoolExecutor:
    """Of this process: a fork has none of its parent's threads."""
    return ThreadPoolExecutor(width - 1, thread_name_prefix="trgbench")


def spread(width: int, run: Callable[[int], None], frames: Sequence[int]) -> None:
    """Run frames on `width` threads, this one among them."""
    pool = _pool(width, os.getpid())
    others = [pool.submit(run, frame) for frame in frames[1:]]
    run(frames[0])
    for other in others:
        other.result()
