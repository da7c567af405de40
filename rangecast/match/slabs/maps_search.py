"""Search of `maps` for one event, step by step, each one for many boxes.

The AND of the bitmaps, attribute by attribute, for the chunks of a group; the list of the boxes
that are left, whose records are fetched meanwhile; the codes of all that are listed; then the
bounds of those in doubt.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from rangecast.kernels.arrays import F64, I32, I64, U8, U64
from rangecast.kernels.bits import (
    LANE_WORDS,
    QUAD,
    ZERO,
    bits_set,
    list_bits,
    lowest_bit,
    narrow_quad,
    prefetch,
    words_in_use,
)
from rangecast.kernels.bundle import opened, pointer, pointers, table_size
from rangecast.kernels.codes import encode_points
from rangecast.kernels.jit import jit, jit_single
from rangecast.match.single_event import OWN, append_other_rows, max_beside, reject_nan
from rangecast.match.slabs.layout import Layout
from rangecast.match.slabs.maps import BOX, GROUP, HEAD, OWNER, PLACE, STRIDE, Maps
from rangecast.match.slabs.search import is_first, more_room

_WORDS = 64
"""Words that boxes are listed from together."""
_LISTED = 1024
"""Boxes that are left before they are looked at together, about."""
_ROOM = _LISTED + 64 * _WORDS + 4
"""Boxes that may be listed."""
_SIZE_BITS = 20
"""Bits of a listed record that are its size; the others are where it begins."""
_MAX_SIZE = (1 << _SIZE_BITS) - 1


class DeadBoxes(NamedTuple):
    """Says whether boxes of the layout are dead."""

    are_some: int


_LAYOUT, _MAPS = table_size(Layout), table_size(Maps)


@jit
def _stretch(arrays: Maps, j: int, codes: U8) -> int:
    """Return where the bitmaps of an attribute and the event's slab are, less its first slot."""
    start, end = arrays.first_slot[j, 0], arrays.first_slot[j, -1]
    slab = np.int64(codes[0, j]) >> arrays.shift
    slabs = 256 >> arrays.shift
    return int(slabs * start + slab * (end - start) - start)


@jit
def _combine(arrays: Maps, group: int, codes: U8, masks: U64) -> int:
    """Write the boxes of each chunk of a group that may contain the event; return the words.

    They are the AND of a bitmap per attribute. The number of words is a multiple of `_WORDS`.
    """
    maps, chunk, mine = pointer(arrays.maps, 0), pointer(arrays.chunk, 0), pointer(masks, 0)
    first_chunk = GROUP * group
    used = QUAD * min(GROUP, len(arrays.record_size) - first_chunk)
    words = -(-used // _WORDS) * _WORDS
    masks[:used] = ~np.uint64(0)
    masks[used:words] = 0
    d = len(arrays.first_slot)
    stretch = _stretch(arrays, ZERO, codes)
    for j in range(d):
        first, last = arrays.first_slot[j, group], arrays.first_slot[j, group + 1]
        after = min(j + 1, d - 1)
        next_stretch = _stretch(arrays, after, codes)
        ahead = next_stretch + arrays.first_slot[after, group] - first
        for slot in range(first, last):
            prefetch(maps, QUAD * (ahead + slot))
            word = QUAD * (np.int64(chunk[slot]) - first_chunk)
            narrow_quad(mine, word, maps, QUAD * (stretch + slot))
        stretch = next_stretch
    return words


@jit
def _list_left(arrays: Maps, group: int, masks: U64, word: int, words: int, left: I64) -> Any:
    """List the records of the boxes of a group that are left, from a word on, and fetch them.

    Returns the word to go on with, and how many are listed.
    """
    at, mine, listed = pointers(arrays), pointer(masks, 0), pointer(left, 0)
    used_words = np.empty(_WORDS + 4, np.int64)
    count = ZERO
    while word < words and count <= _LISTED:
        used = np.uint64(0)
        for row in range(_WORDS // LANE_WORDS):
            bits = words_in_use(mine, word + row * LANE_WORDS)
            used |= bits << np.uint64(row * LANE_WORDS)
        for i in range(list_bits(used, word, used_words, ZERO)):
            chunk = GROUP * group + used_words[i] // QUAD
            size = np.int64(at.record_size[chunk])
            first = at.first_record[chunk] + 64 * size * (used_words[i] % QUAD)
            mask = mine[used_words[i]]
            end = count + bits_set(mask)
            while count < end:  # as in `list_bits`: most words take one turn
                for ahead in range(4):
                    record = first + lowest_bit(mask) * size
                    listed[count + ahead] = record << _SIZE_BITS | size
                    prefetch(at.records, record)
                    prefetch(at.records, record + size - 1)
                    mask &= mask - np.uint64(1)
                count += 4
            count = end
        word += _WORDS
    return word, count


@jit
def _keep_possible(at: Any, records: Any, left: Any, count: int, codes: Any) -> tuple[int, int]:
    """Keep the records of boxes that contain the event by the codes of their bounds.

    Those in doubt, as a bound has the code of the event, are complemented. Returns how many are
    kept, and how many of them are in doubt.
    """
    kept = doubtful = ZERO
    for i in range(count):
        record, size = left[i] >> _SIZE_BITS, left[i] & _MAX_SIZE
        holds, is_in_doubt = True, False
        for place in range(record + HEAD, record + size):
            slot = records[place]
            attribute, low, high = np.int64(slot >> 16), (slot >> 8) & 255, slot & 255
            code = codes[attribute]
            holds &= (low <= code) & (code <= high)
            is_in_doubt |= (at.rough[attribute] != 0) & ((code == low) | (code == high))
        left[kept] = left[i] ^ -np.int64(is_in_doubt)
        kept += holds
        doubtful += holds & is_in_doubt
    return kept, doubtful


@jit
def _fetch_bounds(at: Any, records: Any, first: int, last: int, codes: Any) -> None:
    """Prefetch the bounds of a box that have the code of the event."""
    place, stride = np.int64(records[first + PLACE]), np.int64(records[first + STRIDE])
    for s in range(first + HEAD, last):
        slot = records[s]
        code = codes[slot >> 16]
        if code == (slot >> 8) & 255:
            prefetch(at.bounds, place)
        if code == slot & 255:
            prefetch(at.bounds, place + stride)
        place += 2 * stride


@jit
def _holds_exactly(at: Any, records: Any, first: int, last: int, codes: Any, point: Any) -> bool:
    """Return whether a box contains the event; only bounds with its own codes are compared."""
    place, stride = np.int64(records[first + PLACE]), np.int64(records[first + STRIDE])
    for s in range(first + HEAD, last):
        slot = records[s]
        attribute, low, high = slot >> 16, (slot >> 8) & 255, slot & 255
        code, value = codes[attribute], point[attribute]
        if code == low and not at.bounds[place] <= value:
            return False
        if code == high and not value <= at.bounds[place + stride]:
            return False
        place += 2 * stride
    return True


@jit
def _keep_containing(at: Any, records: Any, left: Any, count: int, codes: Any, point: Any) -> int:
    """Keep the records of boxes that contain the event; return how many."""
    count, doubtful = _keep_possible(at, records, left, count, codes)
    if doubtful == 0:
        return count
    for i in range(count):
        if left[i] < 0:
            record, size = ~left[i] >> _SIZE_BITS, ~left[i] & _MAX_SIZE
            _fetch_bounds(at, records, record, record + size, codes)
    kept = ZERO
    for i in range(count):
        entry = left[i]
        if entry < 0:
            entry = ~entry
            record, size = entry >> _SIZE_BITS, entry & _MAX_SIZE
            if not _holds_exactly(at, records, record, record + size, codes, point):
                continue
        left[kept] = entry
        kept += 1
    return kept


@jit
def _append(
    layout: Layout,
    maps: Maps,
    are_dead: bool,
    points: F64,
    codes: U8,
    left: I64,
    count: int,
    out: I32,
    filled: int,
) -> int:
    """Append the subscriptions of the listed boxes that contain the event; return the new length.

    are_dead   whether some boxes are
    """
    at, records, listed, rows = (
        pointers(layout),
        pointer(maps.records, 0),
        pointer(left, 0),
        pointer(out, 0),
    )
    coded, values = pointer(codes, 0), pointer(points, 0)
    several = len(layout.earlier) > 0
    count = _keep_containing(at, records, listed, count, coded, values)
    for i in range(count):
        record = listed[i] >> _SIZE_BITS
        box: Any = np.int64(records[record + BOX])
        is_match = True
        if are_dead:
            is_match = (at.dead[box >> 6] >> np.uint64(box & 63)) & np.uint64(1) == 0
        if several and is_match:
            is_match = is_first(layout, at.blocks[box >> 6] + (box & 63), values, 0)
        rows[filled] = records[record + OWNER]
        filled += is_match
    return filled


@jit_single
def match_one_by_maps(table: I64, points: F64, others: I32) -> I32:
    """The kernel of a `Single`: the tables behind its own are those of the layout and the maps."""
    reject_nan(points)
    layout, maps = opened(table[OWN:], Layout), opened(table[OWN + _LAYOUT :], Maps)
    are_dead = opened(table[OWN + _LAYOUT + _MAPS :], DeadBoxes).are_some != 0
    codes = np.empty(points.shape, np.uint8)
    encode_points(layout.edges, layout.first_edge, points, codes)
    beside = max_beside(table, others)
    rows = np.empty(_ROOM + beside, np.int32)
    masks, left = np.empty(QUAD * GROUP, np.uint64), np.empty(_ROOM, np.int64)
    filled = ZERO
    for group in range(maps.first_slot.shape[1] - 1):
        words = _combine(maps, group, codes, masks)
        word = ZERO
        while word < words:
            word, count = _list_left(maps, group, masks, word, words, left)
            if filled + count + beside > len(rows):
                rows = more_room(rows, filled)
            filled = _append(layout, maps, are_dead, points, codes, left, count, rows, filled)
    return rows[: append_other_rows(table, points, others, rows, filled)]
