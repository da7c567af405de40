"""Very many short lists of ids, addressed by large numbers.

`slot_of` takes the number of a list (a key) to a slot: the key itself (direct), or by open
addressing over `keys` (hashed: the key is mixed well, as keys in use cluster). A slot's list is

    pool[start[slot] : start[slot] + length[slot]]

Lists are counted first, then laid out one after the other, then filled: they have no room to
spare. The first edit makes them `editable`. A list that has no room moves to a block of 2^size
words behind them, and from there to one twice as large; one that fills a quarter of its block moves
to one half as large. The block that it leaves waits in `free` for the next list that needs that
size. Blocks aren't split, so lists that change but don't grow come to rest. What a list leaves in
the tight part is lost, once a list. A key stays in its slot when its list runs empty, until the
table grows.

Each id carries two small numbers, `notes`, that are the owner's business.

Memory: 8 bytes per id, and 8 per slot, 16 if hashed; once edited, up to 16 per id and 1 more per
slot.
"""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import numpy as np

from rangecast.errors import UsageError
from rangecast.kernels.arrays import I8, I16, I32, I64
from rangecast.kernels.bundle import Bundle, edited, opened
from rangecast.kernels.jit import jit

_SIZES = 32
SLOTS_USED, POOL_USED = 0, 1


class Lists(NamedTuple):
    """The arrays."""

    keys: I64
    """Key of each slot, -1 if it has none; an empty array if slots are keys."""
    start: I32
    length: I32
    pool: I32
    notes: Annotated[I16, 2]
    """(pool, 2): what goes with each id."""
    totals: I64
    """(4,) ids by section, which is the owner's business too."""
    size: I8
    """Of the block of each slot: it has 2^size words; -1 if it has no block. Empty until edited."""
    free: I64
    """(_SIZES,) by size, the first free block, -1 if none; its first word is the next one."""
    used: I64
    """(2,) slots that have a key, words of the pool that are in use."""


@edited
class NewLists(Lists):
    """Lists that are being counted, filled or edited."""


def direct(keys: int) -> Bundle[Lists]:
    """Return empty lists for keys 0 .. keys - 1."""
    return _lists(np.empty(0, np.int64), keys)


def hashed(slots: int) -> Bundle[Lists]:
    """Return empty lists for any keys."""
    return _lists(np.full(slots, -1, np.int64), slots)


def _lists(keys: I64, slots: int) -> Bundle[Lists]:
    start, length = np.zeros(slots, np.int32), np.zeros(slots, np.int32)
    totals, used = np.zeros(4, np.int64), np.zeros(2, np.int64)
    free = np.full(_SIZES, -1, np.int64)
    lists = NewLists(keys, start, length, *_pool(0), totals, np.empty(0, np.int8), free, used)
    return Bundle(lists)


def laid_out(lists: Bundle[Lists]) -> Bundle[Lists]:
    """Return the lists emptied, with room for as many ids in each slot as it counts now."""
    length = lists.arrays.length.astype(np.int64)
    ends = np.cumsum(length)
    pool, notes = _pool(int(ends[-1]) if len(ends) else 0)
    lists.arrays.start[:] = ends - length
    lists.arrays.length[:] = 0
    lists.arrays.used[POOL_USED] = len(pool)
    return lists.replaced(pool=pool, notes=notes)


def _pool(words: int) -> tuple[I32, I16]:
    if words >= 1 << 31:
        raise UsageError(
            f"the id lists need {words} words, at most {(1 << 31) - 1} can be addressed: "
            "cut boxes into fewer pieces, or split the set"
        )
    return np.empty(words, np.int32), np.empty((words, 2), np.int16)


def finished(lists: Bundle[Lists]) -> Bundle[Lists]:
    """Return lists that were filled, read-only."""
    return Bundle(Lists(*lists.arrays))


def editable(lists: Bundle[Lists]) -> Bundle[Lists]:
    """Return a copy of lists that can be edited; these themselves if they can be."""
    if isinstance(lists.arrays, NewLists) and lists.arrays.pool.flags.writeable:
        return lists
    copies: list[Any] = [array.copy() for array in lists.arrays]
    made = NewLists(*copies)
    if not len(made.size):
        made = made._replace(size=np.full(len(made.start), -1, np.int8))
    return Bundle(made)


def with_larger_pool(lists: Bundle[Lists]) -> Bundle[Lists]:
    """Return lists with room for more blocks."""
    old = lists.arrays
    pool, notes = _pool(max(2 * len(old.pool), 1024))
    pool[: len(old.pool)], notes[: len(old.pool)] = old.pool, old.notes
    return lists.replaced(pool=pool, notes=notes)


def with_more_slots(lists: Bundle[Lists]) -> Bundle[Lists]:
    """Return hashed lists with room for more keys; keys of empty lists are dropped."""
    old = lists.arrays
    in_use = int(np.count_nonzero(old.length))
    larger = hashed(max((2 if 2 * in_use > old.used[SLOTS_USED] else 1) * len(old.keys), 16))
    larger = larger.replaced(
        pool=old.pool,
        notes=old.notes,
        totals=old.totals,
        free=old.free,
        size=np.full(len(larger.arrays.keys) if len(old.size) else 0, -1, np.int8),
    )
    _rehash(lists.table, larger.table)
    return larger


@jit
def _rehash(table: I64, larger_table: I64) -> None:
    lists, larger = opened(table, NewLists), opened(larger_table, NewLists)
    for old in range(len(lists.keys)):
        if lists.keys[old] >= 0 and lists.length[old] > 0:
            slot = slot_of(larger.keys, lists.keys[old])
            larger.keys[slot], larger.length[slot] = lists.keys[old], lists.length[old]
            larger.start[slot] = lists.start[old]
            if len(lists.size):
                larger.size[slot] = lists.size[old]
            larger.used[SLOTS_USED] += 1
    larger.used[POOL_USED] = lists.used[POOL_USED]


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
def claim(lists: NewLists, key: int, fullest: float) -> int:
    """Return the slot of a key, made its own if it is new; -1 if the table is too full for it."""
    slot = slot_of(lists.keys, key)
    if len(lists.keys) and lists.keys[slot] == -1:
        if lists.used[SLOTS_USED] + 1 > fullest * len(lists.keys):
            return -1
        lists.keys[slot] = key
        lists.used[SLOTS_USED] += 1
    return slot


@jit
def put(lists: NewLists, slot: int, entry: int, note: int, other: int) -> None:
    """Add an id to a list that has room for it."""
    end = lists.start[slot] + lists.length[slot]
    lists.pool[end] = entry
    lists.notes[end, 0] = note
    lists.notes[end, 1] = other
    lists.length[slot] += 1


@jit
def append(lists: NewLists, slot: int, entry: int, note: int, other: int) -> int:
    """Add an id to a list; return how many ids moved, -1 if the pool has no room for its block."""
    size, moved = int(lists.size[slot]), 0
    if size < 0 or lists.length[slot] == 1 << size:
        wanted = size + 1
        while 1 << wanted <= lists.length[slot]:
            wanted += 1  # the first block of a list that was laid out tight
        moved = _resize(lists, slot, wanted)
        if moved < 0:
            return -1
    put(lists, slot, entry, note, other)
    return moved


@jit
def remove(lists: NewLists, slot: int, entry: int) -> int:
    """Remove an id, which must exist, from a list; return how many ids were read or moved."""
    start, count = int(lists.start[slot]), int(lists.length[slot]) - 1
    at = start
    while lists.pool[at] != entry:
        at += 1
    _move(lists, start + count, at)
    lists.length[slot] = count
    work, size = at - start + 1, int(lists.size[slot])
    if count == 0 and size >= 0:
        _give_back(lists, start, size)
        lists.size[slot] = -1
    elif size >= 2 and count <= 1 << (size - 2):
        work += max(0, _resize(lists, slot, size - 1))  # if there is no room, it stays
    return work


@jit
def _resize(lists: NewLists, slot: int, size: int) -> int:
    """Move a list to a block of another size; return its length, -1 if there is no room."""
    block = int(lists.free[size])
    if block >= 0:
        lists.free[size] = lists.pool[block]
    else:
        block = int(lists.used[POOL_USED])
        if block + (1 << size) > len(lists.pool):
            return -1
        lists.used[POOL_USED] = block + (1 << size)
    old, length = int(lists.start[slot]), int(lists.length[slot])
    for i in range(length):
        _move(lists, old + i, block + i)
    if lists.size[slot] >= 0:
        _give_back(lists, old, int(lists.size[slot]))
    lists.start[slot], lists.size[slot] = block, size
    return length


@jit
def _move(lists: NewLists, old: int, new: int) -> None:
    lists.pool[new] = lists.pool[old]
    lists.notes[new, 0] = lists.notes[old, 0]
    lists.notes[new, 1] = lists.notes[old, 1]


@jit
def _give_back(lists: NewLists, block: int, size: int) -> None:
    lists.pool[block] = lists.free[size]
    lists.free[size] = block


@jit
def copy(pool: I32, start: int, count: int, out: I32, slot: int) -> bool:
    """Copy ids to out[place:]; False if one of them was negative.

    Indexes are unsigned, so that the loop needs no test for negative ones and becomes SIMD code;
    slices would do as well, but cost more than a short list.
    """
    a, b = np.uint64(start), np.uint64(slot)
    signs = np.int32(0)
    for i in range(np.uint64(count)):
        entry = pool[a + i]
        out[b + i] = entry
        signs |= entry
    return bool(signs >= 0)
