"""Very many short lists of ids, addressed by large numbers.

`slot_of` takes the number of a list (a key) to a slot: the key itself (direct), or by open
addressing over `keys` (hashed: the key is mixed well, as keys in use cluster). A slot's list is

    pool[start[slot] : start[slot] + length[slot]]

Lists are counted first, then laid out one after the other, then filled.

Each id carries two small numbers, `notes`, that are the owner's business.

Memory: 8 bytes an id, and 8 a slot, 16 if hashed.
"""

from __future__ import annotations

from typing import Annotated, NamedTuple

import numpy as np

from rangecast.errors import UsageError
from rangecast.kernels.arrays import I16, I32, I64
from rangecast.kernels.bundle import Bundle, edited, opened
from rangecast.kernels.jit import jit


class Lists(NamedTuple):
    """The arrays."""

    keys: I64
    """Key of each slot, -1 if it has none; an empty array if slots are keys."""
    start: I32
    length: I32
    pool: I32
    notes: Annotated[I16, 2]
    """(pool, 2): what goes with each id."""
    used: I64
    """(1,) slots that have a key."""


@edited
class NewLists(Lists):
    """Lists that are being counted or filled."""


def direct(keys: int) -> Bundle[NewLists]:
    """Return empty lists for keys 0 .. keys - 1."""
    return _lists(np.empty(0, np.int64), keys)


def hashed(slots: int) -> Bundle[NewLists]:
    """Return empty lists for any keys."""
    return _lists(np.full(slots, -1, np.int64), slots)


def _lists(keys: I64, slots: int) -> Bundle[NewLists]:
    start, length = np.zeros(slots, np.int32), np.zeros(slots, np.int32)
    return Bundle(NewLists(keys, start, length, *_pool(0), np.zeros(1, np.int64)))


def laid_out(lists: Bundle[NewLists]) -> Bundle[NewLists]:
    """Return the lists emptied, with room for as many ids in each slot as it counts now."""
    length = lists.arrays.length.astype(np.int64)
    ends = np.cumsum(length)
    pool, notes = _pool(int(ends[-1]) if len(ends) else 0)
    lists.arrays.start[:] = ends - length
    lists.arrays.length[:] = 0
    return lists.replaced(pool=pool, notes=notes)


def _pool(words: int) -> tuple[I32, I16]:
    if words >= 1 << 31:
        raise UsageError(
            f"the id lists need {words} words, at most {(1 << 31) - 1} can be addressed: "
            "cut boxes into fewer pieces, or split the set"
        )
    return np.empty(words, np.int32), np.empty((words, 2), np.int16)


def with_more_slots(lists: Bundle[NewLists]) -> Bundle[NewLists]:
    """Return hashed lists, of which only the lengths are known yet, with room for more keys."""
    larger = hashed(max(2 * len(lists.arrays.keys), 16))
    _rehash(lists.table, larger.table)
    return larger


@jit
def _rehash(table: I64, larger_table: I64) -> None:
    lists, larger = opened(table, NewLists), opened(larger_table, NewLists)
    for old in range(len(lists.keys)):
        if lists.keys[old] >= 0:
            slot = slot_of(larger.keys, lists.keys[old])
            larger.keys[slot], larger.length[slot] = lists.keys[old], lists.length[old]
    larger.used[0] = lists.used[0]


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
        if lists.used[0] + 1 > fullest * len(lists.keys):
            return -1
        lists.keys[slot] = key
        lists.used[0] += 1
    return slot


@jit
def put(lists: NewLists, slot: int, entry: int, note: int, other: int) -> None:
    """Add an id to a list that has room for it."""
    place = lists.start[slot] + lists.length[slot]
    lists.pool[place] = entry
    lists.notes[place, 0] = note
    lists.notes[place, 1] = other
    lists.length[slot] += 1


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
