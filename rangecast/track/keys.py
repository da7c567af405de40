"""Keys of objects and their slots: a hash table over text bytes, without Python objects.

table           slot of a key, at its hash or after it; -1: free
start, length   location of the text of a slot's key
text            the bytes of all keys, including removed ones
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rangecast.errors import UsageError
from rangecast.kernels.arrays import I32, I64, U8, AnyArray, readonly
from rangecast.kernels.jit import jit
from rangecast.model.attributes.base import plain
from rangecast.model.encoding.casts import is_text
from rangecast.model.sets.members import Id, as_id
from rangecast.model.snapshot import id_buffers

_SLOTS, _FREE, _BYTES, _GONE = 0, 1, 2, 3
"""Places in the totals: slots ever used, first free slot, bytes used, bytes of keys that are gone.
A free slot has the next free one as its start, and the length -1."""


def key_of(value: Any) -> Any:
    """Return a key as a Python integer or text; reject those that no column of keys can hold."""
    key = plain(value)
    is_id = isinstance(key, str | int) and not isinstance(key, bool) and key != ""
    return as_id(key, "object") if is_id else key


def key_texts(name: str, keys: pa.Array) -> tuple[pa.Array, Id | None]:
    """Return a column of keys as text, and the first of them."""
    if pa.types.is_dictionary(keys.type):
        keys = keys.dictionary_decode()
    if keys.null_count == len(keys):
        return keys.cast(pa.large_string()), None
    if not pa.types.is_integer(keys.type) and not is_text(keys.type):
        raise UsageError(f"{name!r} must be integers or strings; given: {keys.type}")
    if pa.types.is_uint64(keys.type):
        as_id(pc.max(keys).as_py(), "object")
    return keys.cast(pa.large_string()), keys.drop_null()[0].as_py()


class _Table(NamedTuple):
    table: I32
    start: I64
    length: I32
    text: U8


@jit
def _place(text: U8, begin: int, end: int, mask: int) -> int:
    """Return the home index of a key: FNV-1a, with its high bits folded in."""
    value = np.uint64(14695981039346656037)
    for at in range(begin, end):
        value = (value ^ np.uint64(text[at])) * np.uint64(1099511628211)
    value ^= value >> np.uint64(32)
    return int(np.int64(value & np.uint64(mask)))


@jit
def _find(keys: _Table, totals: I64, text: U8, ends: I64, add: bool, slots: I64) -> None:
    """Write the slot of each key; for an unknown key a new slot if `add`, else -1."""
    mask = len(keys.table) - 1
    for key in range(len(ends) - 1):
        begin, end = ends[key], ends[key + 1]
        size = end - begin
        slot_ = _place(text, begin, end, mask)
        slot = keys.table[slot_]
        while slot >= 0:
            if keys.length[slot] == size:
                start = keys.start[slot]
                same = True
                for at in range(size):
                    if keys.text[start + at] != text[begin + at]:
                        same = False
                        break
                if same:
                    break
            slot_ = (slot_ + 1) & mask
            slot = keys.table[slot_]
        if slot < 0 and add:
            slot = totals[_FREE]
            if slot >= 0:
                totals[_FREE] = keys.start[slot]
            else:
                slot = totals[_SLOTS]
                totals[_SLOTS] += 1
            start = totals[_BYTES]
            for at in range(size):
                keys.text[start + at] = text[begin + at]
            keys.start[slot] = start
            keys.length[slot] = size
            keys.table[slot_] = slot
            totals[_BYTES] += size
        slots[key] = slot


@jit
def _fill(keys: _Table, count: int) -> None:
    """Insert all keys into an empty table."""
    mask = len(keys.table) - 1
    for slot in range(count):
        if keys.length[slot] >= 0:
            start = keys.start[slot]
            at = _place(keys.text, start, start + keys.length[slot], mask)
            while keys.table[at] >= 0:
                at = (at + 1) & mask
            keys.table[at] = slot


@jit
def _forget(keys: _Table, totals: I64, slots: I64) -> None:
    """Remove keys; keys after them in the table move up."""
    mask = len(keys.table) - 1
    for index in range(len(slots)):
        slot = slots[index]
        start = keys.start[slot]
        hole = _place(keys.text, start, start + keys.length[slot], mask)
        while keys.table[hole] != slot:
            hole = (hole + 1) & mask
        at = hole
        while True:
            at = (at + 1) & mask
            other = keys.table[at]
            if other < 0:
                break
            start = keys.start[other]
            home = _place(keys.text, start, start + keys.length[other], mask)
            if (at - home) & mask >= (at - hole) & mask:
                keys.table[hole] = other
                hole = at
        keys.table[hole] = -1
        totals[_GONE] += keys.length[slot]
        keys.length[slot] = -1
        keys.start[slot] = totals[_FREE]
        totals[_FREE] = slot


@jit
def _copied(start: I64, length: I32, text: U8, slots: I64, out: U8) -> None:
    """Copy the texts of `slots` to `out`, concatenated."""
    end = 0
    for index in range(len(slots)):
        slot = slots[index]
        for at in range(length[slot]):
            out[end + at] = text[start[slot] + at]
        end += length[slot]


def with_capacity(array: AnyArray, size: int, fill: int = 0) -> AnyArray:
    """Return the array if it has room for `size` items, else a copy with an eighth to spare."""
    if size <= len(array):
        return array
    larger = np.full(max(size + (size >> 3), 64), fill, array.dtype)
    larger[: len(array)] = array
    return larger


class Keys:
    """Keys by slot; slots are small integers that are reused."""

    def __init__(self, texts: pa.Array | None = None) -> None:
        """Use distinct texts as the keys of slots 0, 1, ..."""
        self._totals = np.array([0, -1, 0, 0], np.int64)
        self._keys = _Table(
            np.full(64, -1, np.int32), np.zeros(0, np.int64), np.zeros(0, np.int32), no_bytes()
        )
        if texts is not None and len(texts):
            self.find(texts, add=True)

    @property
    def slots(self) -> int:
        """Number of slots ever used, including free ones."""
        return int(self._totals[_SLOTS])

    @property
    def memory(self) -> int:
        """Size of the arrays in bytes."""
        return sum(array.nbytes for array in self._keys)

    def find(self, texts: pa.Array, *, add: bool) -> I64:
        """Return the slot of each key; for an unknown key a new slot if `add`, else -1."""
        buffers = id_buffers(texts)
        text, ends = readonly(buffers["id_text"]), readonly(buffers["id_ends"])
        slots = np.empty(len(texts), np.int64)
        _find(self._keys, self._totals, text, ends, False, slots)
        if add and (slots < 0).any():
            new = np.flatnonzero(slots < 0)
            self._make_room(len(new), int((ends[new + 1] - ends[new]).sum()))
            _find(self._keys, self._totals, text, ends, True, slots)
        return slots

    def find_one(self, text: bytes) -> int:
        """Return the slot of one key; a new slot if the key is unknown."""
        data, ends = np.frombuffer(text, np.uint8), readonly(np.array([0, len(text)]))
        slots = np.empty(1, np.int64)
        _find(self._keys, self._totals, data, ends, False, slots)
        if slots[0] < 0:
            self._make_room(1, len(text))
            _find(self._keys, self._totals, data, ends, True, slots)
        return int(slots[0])

    def _make_room(self, count: int, size: int) -> None:
        keys, (slots, _, used, gone) = self._keys, self._totals.tolist()
        if used + size > len(keys.text) and gone > used // 2:
            live = np.flatnonzero(keys.length[:slots] >= 0)
            packed = np.zeros(used - gone, np.uint8)
            _copied(keys.start, keys.length, keys.text, live, packed)
            keys.start[live] = np.cumsum(keys.length[live]) - keys.length[live]
            keys = keys._replace(text=packed)
            used = used - gone
            self._totals[_BYTES], self._totals[_GONE] = used, 0
        keys = keys._replace(
            start=with_capacity(keys.start, slots + count),
            length=with_capacity(keys.length, slots + count, -1),
            text=with_capacity(keys.text, used + size),
        )
        if 5 * (slots + count) > 4 * len(keys.table):
            places = 1 << (5 * (slots + count) // 4).bit_length()
            keys = keys._replace(table=np.full(places, -1, np.int32))
            _fill(keys, slots)
        self._keys = keys

    def live(self) -> I64:
        """Return the slots that have a key."""
        return np.flatnonzero(self._keys.length[: self.slots] >= 0)

    def texts(self, slots: I64) -> pa.Array:
        """Return the keys of some slots."""
        length = self._keys.length[slots].astype(np.int64)
        ends = np.concatenate([[0], np.cumsum(length)])
        data = np.empty(int(ends[-1]), np.uint8)
        _copied(self._keys.start, self._keys.length, self._keys.text, slots, data)
        buffers = [None, pa.py_buffer(ends), pa.py_buffer(data)]
        return pa.Array.from_buffers(pa.large_string(), len(slots), buffers)

    def forget(self, slots: I64) -> None:
        """Remove the keys of some slots, and free the slots."""
        _forget(self._keys, self._totals, slots)


def no_bytes() -> U8:
    """Return an empty array of bytes."""
    return np.zeros(0, np.uint8)
