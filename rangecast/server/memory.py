"""Memory of a server process: allocators that return what is freed, and no pandas.

glibc and Arrow keep freed blocks for later: after a million edits, a third of a server's memory.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

import pyarrow as pa

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8
"""Parameters of glibc's `mallopt`."""
_LARGE = 1 << 20
"""Bytes of blocks that are mapped one by one, so that freeing one returns it; smaller ones stay in
the heap, where allocating them again is fast."""
_FREE = 4 << 20
"""Free bytes that stay at the end of the heap."""
_libc = ctypes.CDLL(None)


def prepare_memory() -> None:
    """Prepare the process for data that stays; call it before the first thread starts."""
    if hasattr(_libc, "mallopt"):
        _libc.mallopt(_ARENA_MAX, 1)
        _libc.mallopt(_MMAP_THRESHOLD, _LARGE)
        _libc.mallopt(_TRIM_THRESHOLD, _FREE)
    pa.set_memory_pool(pa.system_memory_pool())
    _leave_out_pandas()


def release_memory() -> None:
    """Return freed memory to the system."""
    if hasattr(_libc, "malloc_trim"):
        _libc.malloc_trim(0)


class _NoPandas(MetaPathFinder):
    """Finder that reports pandas as missing."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name == "pandas":
            raise ModuleNotFoundError("a server doesn't convert from or to pandas", name=name)
        return None


def _leave_out_pandas() -> None:
    """Make Arrow do without pandas.

    Arrow imports it with the first array, which takes 30 MB and 0.3 s.
    """
    finder = _NoPandas()
    sys.meta_path.insert(0, finder)
    try:
        pa.scalar(0)  # looks for pandas, once per process
    finally:
        sys.meta_path.remove(finder)
