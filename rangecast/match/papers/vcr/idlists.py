"""Very many short lists of ids, addressed by large numbers, that grow and shrink in place.

`slot_of` takes the number of a list (a key) to a slot: the key itself (direct), or by open
addressing over `keys` (hashed: the key is mixed well, as keys in use cluster; a key stays in its
slot when its list runs empty, until the table is made anew). The list of a slot is

    pool[start[slot] : start[slot] + length[slot]]

in a block of 2^size words. A list that grows out of its block moves to one twice as large, a list
that fills a quarter to one half as large; the block it leaves waits in `free` for the next list
that needs that size. Blocks aren't split, so a set that changes but doesn't grow comes to rest.

Each id carries two small numbers, `notes`, that are the owner's business.

Memory: 8 bytes an id, before rounding up, and 9 a slot, 17 if hashed.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rangecast.errors import UsageError
from rangecast.kernels.arrays import I8, I16, I32, I64
from rangecast.kernels.jit import jit

_SIZES = 32
SLOTS_USED, POOL_USED = 0, 1


class Lists(NamedTuple):
    """Arrays that kernels change in place."""

    keys: I64
    """Key of each slot, -1 if it has none; an empty array if slots are keys."""
    start: I32
    length: I32
    size: I8
    """-1: no block."""
    pool: I32
    notes: I16
    """(pool, 2): what goes with each id."""
    free: I64
    """First free block of 2^c words by c, -1 if none; its first word is the next one."""
    used: I64
    """Slots that have a key (hashed), words of the pool that are in blocks."""


def direct(keys: int) -> Lists:
    """Return empty lists for keys 0 .. keys - 1."""
    return _lists(np.empty(0, np.int64), keys)


def hashed(slots: int) -> Lists:
    """Return empty lists for any keys."""
    return _lists(np.full(slots, -1, np.int64), slots)


def _lists(keys: I64, slots: int) -> Lists:
    start, length = np.zeros(slots, np.int32), np.zeros(slots, np.int32)
    size = np.full(slots, -1, np.int8)
    free, used = np.full(_SIZES, -1, np.int64), np.zeros(2, np.int64)
    return Lists(keys, start, length, size, *_pool(0), free, used)


def laid_out(lists: Lists) -> Lists:
    """Return the lists emptied, with a block for as many ids in each slot as it counts now."""
    some = lists.length > 0
    lists.size[some] = np.frexp(np.maximum(lists.length[some] - 0.5, 0.5))[1]
    blocks = np.where(some, np.int64(1) << np.maximum(lists.size, 0).astype(np.int64), 0)
    ends = np.cumsum(blocks)
    words = int(ends[-1]) if len(ends) else 0
    pool, notes = _pool(words)
    lists.used[POOL_USED] = words
    lists.start[:] = ends - blocks
    lists.length[:] = 0
    return lists._replace(pool=pool, notes=notes)


def with_larger_pool(lists: Lists) -> Lists:
    """Return the lists with room for more blocks."""
    pool, notes = _pool(max(2 * len(lists.pool), 1024))
    pool[: len(lists.pool)] = lists.pool
    notes[: len(lists.pool)] = lists.notes
    return lists._replace(pool=pool, notes=notes)


def _pool(words: int) -> tuple[I32, I16]:
    if words >= 1 << 31:
        raise UsageError(
            f"the id lists need {words} words, at most {(1 << 31) - 1} can be addressed: "
            "cut boxes into fewer pieces, or split the set"
        )
    return np.empty(words, np.int32), np.empty((words, 2), np.int16)


def with_more_slots(lists: Lists) -> Lists:
    """Return hashed lists with room for more keys; empty lists are dropped."""
    live = np.flatnonzero(lists.length > 0)
    larger = hashed(max(2 * len(lists.keys), 16))
    _rehash(lists, live, larger)
    larger.used[POOL_USED] = lists.used[POOL_USED]
    return larger._replace(pool=lists.pool, notes=lists.notes, free=lists.free)


@jit
def _rehash(lists: Lists, live: I64, larger: Lists) -> None:
    for old in live:
        slot = slot_of(larger.keys, lists.keys[old])
        larger.keys[slot] = lists.keys[old]
        larger.start[slot] = lists.start[old]
        larger.length[slot] = lists.length[old]
        larger.size[slot] = lists.size[old]
    larger.used[SLOTS_USED] = len(live)


@jit
def slot_of(keys: I64, key: int) -> int:
    """Return the slot of a key, or the empty one where it would go."""
    slots = len(keys)
    if slots == 0:
        return key
    mixed = np.uint64(key) * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(32))) * np.uint64(0xD6E8FEB86659FD93)
    slot = int((np.int64(mixed >> np.uint64(32)) * slots) >> 32)
    while keys[slot] != key and keys[slot] != -1:
        slot += 1
        if slot == slots:
            slot = 0
    return slot


@jit
def claim(lists: Lists, key: int, fullest: float) -> int:
    """Return the slot of a key, made its own if it is new; -1 if the table is too full for it."""
    slot = slot_of(lists.keys, key)
    if len(lists.keys) and lists.keys[slot] == -1:
        if lists.used[SLOTS_USED] + 1 > fullest * len(lists.keys):
            return -1
        lists.keys[slot] = key
        lists.used[SLOTS_USED] += 1
    return slot


@jit
def put(lists: Lists, slot: int, entry: int, note: int, other: int) -> None:
    """Add an id to a list whose block is large enough."""
    place = lists.start[slot] + lists.length[slot]
    lists.pool[place] = entry
    lists.notes[place, 0] = note
    lists.notes[place, 1] = other
    lists.length[slot] += 1


@jit
def _move(lists: Lists, old: int, new: int) -> None:
    lists.pool[new] = lists.pool[old]
    lists.notes[new, 0] = lists.notes[old, 0]
    lists.notes[new, 1] = lists.notes[old, 1]


@jit
def append(lists: Lists, slot: int, entry: int, note: int, other: int) -> bool:
    """Add an id to a list; False if the pool has no room for the block it needs."""
    size = lists.size[slot]
    full = size < 0 or lists.length[slot] == 1 << size
    if full and not _resize(lists, slot, size + 1):
        return False
    put(lists, slot, entry, note, other)
    return True


@jit
def remove(lists: Lists, slot: int, entry: int) -> None:
    """Take an id, which must be there, out of a list."""
    start, count = lists.start[slot], lists.length[slot] - 1
    place = start
    while lists.pool[place] != entry:
        place += 1
    _move(lists, start + count, place)
    lists.length[slot] = count
    size = lists.size[slot]
    if count == 0:
        _give_back(lists, start, size)
        lists.size[slot] = -1
    elif size >= 2 and count <= 1 << (size - 2):
        _resize(lists, slot, size - 1)  # if there is no room it stays where it is


@jit
def _resize(lists: Lists, slot: int, size: int) -> bool:
    """Move a list to a block of another size; False if the pool has no room for it."""
    block = lists.free[size]
    if block >= 0:
        lists.free[size] = lists.pool[block]
    else:
        block = lists.used[POOL_USED]
        if block + (1 << size) > len(lists.pool):
            return False
        lists.used[POOL_USED] = block + (1 << size)
    old = lists.start[slot]
    for i in range(lists.length[slot]):
        _move(lists, old + i, block + i)
    if lists.size[slot] >= 0:
        _give_back(lists, old, lists.size[slot])
    lists.start[slot] = block
    lists.size[slot] = size
    return True


@jit
def _give_back(lists: Lists, block: int, size: int) -> None:
    lists.pool[block] = lists.free[size]
    lists.free[size] = block


@jit
def copy(pool: I32, start: int, count: int, out: I32, place: int) -> bool:
    """Copy ids to out[place:]; False if one of them was negative.

    Indexes are unsigned, so that the loop needs no test for negative ones and becomes SIMD code;
    slices would do as well, but cost more than a short list.
    """
    a, b = np.uint64(start), np.uint64(place)
    signs = np.int32(0)
    for i in range(np.uint64(count)):
        entry = pool[a + i]
        out[b + i] = entry
        signs |= entry
    return bool(signs >= 0)
