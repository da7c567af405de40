"""Memory of a worker that builds a shard: how large a shard may be, and how little more it takes.

A worker takes about 110 MB for Python and its libraries, and keeps some of what it used before. To
build a shard it takes its boxes as two arrays of doubles twice, their order and their owners, and
twice the structure, which is copied once to be written. glibc would keep most of what is freed:
arrays from 1 MB on are mapped on their own meanwhile, and returned to the system.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager

from rangecast.spark.subscriptions.kept import SetSize

PYTHON = 140 << 20
"""Bytes that a worker has taken before it builds."""
_OF_BOX, _OF_MENTION, _OF_PLAIN, _OF_OTHER = 110, 25, 2.1, 2.5
"""Bytes to build with: of a box, of an attribute that it mentions, and as multiples of its plain
bounds, and of ids and weights."""
_BALANCE = 0.85
"""Share that shards fill: a cut by a sample makes some of them larger."""
_STRUCTURE = 20
"""About what a structure takes for each attribute that a box mentions."""
_M_MMAP_THRESHOLD = -3
_APART, _USUAL = 1 << 20, 32 << 20
"""mmap threshold while a shard is built, so that larger arrays are mapped on their own, and the
largest that glibc's dynamic threshold reaches."""
_libc = ctypes.CDLL(None)


def room_of_structure(max_worker_memory: int) -> int:
    """Return the bytes that the structure of a shard may take: a worker opens several."""
    return max_worker_memory // 4


def shards_wanted(size: SetSize, max_worker_memory: int) -> int:
    """Return the number of shards for a set: 1 if it fits into a worker."""
    plain = size.boxes * size.dimensions * 16
    structure = size.mentions * _STRUCTURE
    if structure <= room_of_structure(max_worker_memory) and plain <= max_worker_memory // 2:
        return 1
    needed = (
        size.boxes * _OF_BOX
        + size.mentions * _OF_MENTION
        + plain * _OF_PLAIN
        + size.other_bytes * _OF_OTHER
    )
    return int(needed // (_BALANCE * room_to_build(max_worker_memory))) + 1


def room_to_build(max_worker_memory: int) -> int:
    """Return the bytes that a worker may take to build a shard, beyond those that it has."""
    return max(max_worker_memory - PYTHON, max_worker_memory // 2)


@contextmanager
def large_arrays_apart() -> Iterator[None]:
    """Return freed memory to the system at once, within the block."""
    if not hasattr(_libc, "mallopt"):  # not glibc
        yield
        return
    _libc.malloc_trim(0)
    _libc.mallopt(_M_MMAP_THRESHOLD, _APART)
    try:
        yield
    finally:
        _libc.mallopt(_M_MMAP_THRESHOLD, _USUAL)
