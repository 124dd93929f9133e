"""Memory that is freed and taken again, without a detour through the kernel."""

from __future__ import annotations

import ctypes
from functools import cache

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of mallopt(3)
LARGE = 2**30


@cache
def keep_freed_pages() -> None:
    """Have the C library keep up to 1 GiB of freed memory for the next array, in this process.

    By default glibc gives large arrays back to the kernel at once, and what is free above 64 MB when a run
    ends; the next run then pays a page fault, and a page of zeros, for every 4 KiB: a gradient of 20 TRG
    steps at χ = 16 spent 90 of 470 ms there. `malloc_trim` still gives it back. Other C libraries have no
    `mallopt`.
    """
    if mallopt := getattr(ctypes.CDLL(None), "mallopt", None):
        mallopt(M_MMAP_THRESHOLD, LARGE)
        mallopt(M_TRIM_THRESHOLD, LARGE)
