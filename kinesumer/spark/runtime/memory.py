"""Memory of pages, kept by the process instead of given back after each page.

A page takes some buffers of megabytes. Given back to the kernel, each of them costs a
page fault per 4 KB the next time: half the CPU time of reading records of 1 KB.
"""

from __future__ import annotations

import ctypes

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
KEPT_BYTES = 48 * 1024 * 1024
LARGE_BYTES = 16 * 1024 * 1024


def keep_memory() -> None:
    """Let a C library that is glibc keep freed memory; others do as they like."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return
    mallopt(M_TRIM_THRESHOLD, KEPT_BYTES)
    mallopt(M_MMAP_THRESHOLD, LARGE_BYTES)
