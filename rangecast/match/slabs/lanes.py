"""Search of `slabs` for a batch: the events themselves become bitmaps, LANES at a time.

See `kernels.lanes` for their tables. A box costs a few words for LANES events, however many boxes
there are and whatever they mention. This is done for the hulls of the blocks first. A block that
many events may lie in is taken box by box in the same way; if only a few may, each of these is
compared with the codes of all its boxes, as for a single event. Both ways give the same candidates;
the one that looks at fewer words is taken.

Results come block by block, as records: an event and a first box, 64 bits for that box and those
after it. In the end the records are sorted by event.
"""

from __future__ import annotations

from threading import local
from typing import Any, NamedTuple

import numpy as np

from rangecast.kernels.arrays import F64, I32, I64, U8, U64
from rangecast.kernels.bits import (
    LANE_WORDS,
    LANES,
    ZERO,
    aligned_words,
    bits_set,
    bits_up_to,
    copy_row,
    list_bits,
    lowest_bit,
    narrow,
    words_in_use,
)
from rangecast.kernels.blocks import BLOCK
from rangecast.kernels.bundle import Bundle, edited, opened, pointer, pointers
from rangecast.kernels.jit import jit
from rangecast.kernels.lanes import TABLE_ROWS
from rangecast.match.slabs.layout import CODE, FIRST_BLOCK, HULL, SLOT, Layout
from rangecast.match.slabs.search import Part, candidates, doubtful, holds, is_first

_DOUBTS = 1024
"""Boxes that may be put off, to be compared exactly together."""
LOW = 0xFFFFFFFF
"""The part of a key that is the first box."""


@edited
class Scratch(NamedTuple):
    """Scratch arrays of a search."""

    table: U64
    """(d, chunks, TABLE_ROWS) rows of lanes."""
    hull_rows: U64
    """(chunks, BLOCK) rows of lanes: the events that may lie in each hull."""
    box_rows: U64
    """(2, BLOCK) rows of lanes: the events that may lie in each box, and that surely do."""
    waiting: I64
    """(chunks * LANES + 4,) events that are to be compared with the boxes of a block."""
    doubts: I64
    """(_DOUBTS + LANES + 4,) record << 6 | bit to be compared exactly."""
    picked: I64
    """(BLOCK + 4,) boxes of a block that some event may lie in."""


class SearchRoom(NamedTuple):
    """Scratch arrays to search for this many chunks of LANES events with d attributes."""

    d: int
    chunks: int
    scratch: Bundle[Scratch]


_kept = local()
"""The room that a thread used last: making it takes as long as searching for a few events."""
_MAX_KEPT = 1 << 22
"""Bytes of room that a thread keeps at most: room for thousands of attributes is freed."""


def take_room(d: int, chunks: int) -> SearchRoom:
    """Return scratch arrays for a search, which no other search uses until `keep_room`."""
    room: SearchRoom | None = vars(_kept).pop("room", None)
    if room is None or room.d < d or room.chunks < chunks:
        return SearchRoom(d, chunks, _new_room(d, chunks))
    return room


def keep_room(room: SearchRoom) -> None:
    """Keep the scratch arrays of a search for the next one of this thread."""
    if room.scratch.memory <= _MAX_KEPT:
        _kept.room = room


def _new_room(d: int, chunks: int) -> Bundle[Scratch]:
    scratch = Scratch(
        aligned_words(d * chunks * TABLE_ROWS),
        aligned_words(chunks * BLOCK),
        aligned_words(2 * BLOCK),
        np.empty(chunks * LANES + 4, np.int64),
        np.empty(_DOUBTS + LANES + 4, np.int64),
        np.empty(BLOCK + 4, np.int64),
    )
    return Bundle(scratch)


class _Room(NamedTuple):
    """Pointers to what the search of a block reads and writes."""

    table: Any
    chunks: int
    rough: Any
    bounds: Any
    points: Any
    codes: Any
    d: int
    box_rows: Any
    waiting: Any
    doubts: Any
    picked: Any
    keys: Any
    masks: Any


@jit
def _narrow_rows(part: Part, table: U64, chunks: int, chunk: int, rows: U64, row: int) -> None:
    """Narrow the rows of a part's boxes to the events that may lie in them."""
    for s in range(part.width):
        mine = (np.int64(part.attributes[s]) * chunks + chunk) * TABLE_ROWS
        low = part.base + 2 * s * part.stride
        for i in range(part.size):
            kept = mine + np.int64(part.codes[low + i])
            dropped = mine + np.int64(part.codes[low + part.stride + i]) + 1
            narrow(rows, row + i * LANE_WORDS, table, kept * LANE_WORDS, dropped * LANE_WORDS)


@jit
def _fill_certain_rows(part: Part, room: _Room, chunk: int, count: int) -> None:
    """Fill certain row k with the events whose codes alone place them in box picked[k]."""
    for k in range(count):
        row = room.picked[k] * LANE_WORDS
        copy_row(room.box_rows, (BLOCK + k) * LANE_WORDS, room.box_rows, row)
    for s in range(part.width):
        j = np.int64(part.attributes[s])
        if room.rough[j]:
            row_base = (j * room.chunks + chunk) * TABLE_ROWS
            low = part.base + 2 * s * part.stride
            for k in range(count):
                box = low + room.picked[k]
                kept = (row_base + np.int64(part.codes[box]) + 1) * LANE_WORDS
                dropped = (row_base + np.int64(part.codes[box + part.stride])) * LANE_WORDS
                narrow(room.box_rows, (BLOCK + k) * LANE_WORDS, room.table, kept, dropped)


@jit
def _settle(part: Part, room: _Room, begin: int, count: int) -> None:
    """Compare the boxes in doubt exactly; take those that don't hold out of their records."""
    for i in range(count):
        record = room.doubts[i] >> 6
        bit = room.doubts[i] & 63
        key = room.keys[record]
        box = (key & LOW) + bit - begin
        fails = not holds(part, box, room.bounds, room.points, (key >> 32) * room.d)
        room.masks[record] &= ~(np.uint64(fails) << np.uint64(bit))


@jit
def _box_by_box(
    part: Part,
    room: _Room,
    begin: int,
    live: np.uint64,
    chunk: int,
    hull_rows: U64,
    row: int,
    filled: int,
) -> tuple[int, int, int]:
    """Append the matches of a block's live boxes with the events of its hull's row.

    Returns where the records end, and the work.
    """
    for i in range(part.size):
        copy_row(room.box_rows, i * LANE_WORDS, hull_rows, row)
    _narrow_rows(part, room.table, room.chunks, chunk, room.box_rows, ZERO)
    filled_rows = 0
    for i in range(part.size):
        room.picked[filled_rows] = i
        counts = (live >> np.uint64(i)) & np.uint64(1) != 0
        filled_rows += counts & (words_in_use(room.box_rows, i * LANE_WORDS) != 0)
    _fill_certain_rows(part, room, chunk, filled_rows)
    doubts = tested = ZERO
    for k in range(filled_rows):
        box = room.picked[k]
        used = words_in_use(room.box_rows, box * LANE_WORDS)
        while used:
            w = lowest_bit(used)
            used &= used - np.uint64(1)
            maybe = room.box_rows[box * LANE_WORDS + w]
            surely = room.box_rows[(BLOCK + k) * LANE_WORDS + w]
            key = (chunk * LANES + 64 * w) << 32 | (begin + box)
            while maybe:
                bit = lowest_bit(maybe)
                maybe &= maybe - np.uint64(1)
                room.keys[filled] = key + (bit << 32)
                room.masks[filled] = 1
                room.doubts[doubts] = filled << 6  # counts only if it is in doubt
                doubts += 1 - int((surely >> np.uint64(bit)) & np.uint64(1))
                filled += 1
        if doubts > _DOUBTS:
            _settle(part, room, begin, doubts)
            tested += doubts
            doubts = ZERO
    _settle(part, room, begin, doubts)
    return filled, LANE_WORDS * part.width * (part.size + filled_rows), tested + doubts


@jit
def _event_by_event(
    part: Part, room: _Room, begin: int, live: np.uint64, count: int, filled: int
) -> tuple[int, int, int]:
    """Append the matches of the live boxes with the waiting events; return as `_box_by_box`."""
    first = filled
    for i in range(count):
        e = room.waiting[i]
        mask = candidates(part, room.codes, e * room.d, live)
        room.keys[filled] = e << 32 | begin
        room.masks[filled] = mask
        filled += mask != 0
    doubts = tested = ZERO
    for i in range(first, filled):
        doubt = doubtful(part, room.rough, room.codes, (room.keys[i] >> 32) * room.d)
        doubts = list_bits(room.masks[i] & doubt, i << 6, room.doubts, doubts)
        if doubts > _DOUBTS:
            _settle(part, room, begin, doubts)
            tested += doubts
            doubts = ZERO
    _settle(part, room, begin, doubts)
    return filled, part.width * count, tested + doubts


@jit
def search_batch(
    layout_table: I64,
    points: F64,
    codes: U8,
    chunks: int,
    scratch_table: I64,
    keys: I64,
    masks: U64,
) -> tuple[int, int, int]:
    """Write the records of all matches of some events, whose tables are in the scratch.

    keys     event << 32 | first box
    masks    bit b says that box first + b contains the event

    Returns how many records there are, or -1 if they may not fit, and the work.
    """
    events, d = points.shape
    filled = visited = tested = ZERO
    layout = opened(layout_table, Layout)
    at, scratch = pointers(layout), pointers(opened(scratch_table, Scratch))
    runs, blocks, hulls, hull_rows = at.runs, at.blocks, at.hulls, scratch.hull_rows
    room = _Room(
        scratch.table,
        chunks,
        at.rough,
        at.bounds,
        pointer(points, 0),
        pointer(codes, 0),
        d,
        scratch.box_rows,
        scratch.waiting,
        scratch.doubts,
        scratch.picked,
        pointer(keys, 0),
        pointer(masks, 0),
    )
    for run in range(len(layout.runs) - 1):
        this, after = 4 * run, 4 * run + 4
        attributes = pointer(at.attributes, runs[this + SLOT])
        width = runs[after + SLOT] - runs[this + SLOT]
        first, last = runs[this + FIRST_BLOCK], runs[after + FIRST_BLOCK]
        for tile in range(first, last, BLOCK):
            base = runs[this + HULL] + tile - first
            hull = Part(hulls, base, last - first, min(BLOCK, last - tile), attributes, width)
            for chunk in range(chunks):
                row = chunk * BLOCK * LANE_WORDS
                for w in range(LANE_WORDS):
                    hull_rows[row + w] = bits_up_to(events - chunk * LANES - 64 * w)
                for i in range(1, hull.size):
                    copy_row(hull_rows, row + i * LANE_WORDS, hull_rows, row)
                _narrow_rows(hull, room.table, chunks, chunk, hull_rows, row)
                visited += LANE_WORDS * hull.size * width
            for i in range(hull.size):
                begin = blocks[tile + i]
                size = blocks[tile + i + 1] - begin
                base = runs[this + CODE] + 2 * width * (begin - blocks[first])
                part = Part(at.codes, base, size, size, attributes, width)
                live = bits_up_to(size) & ~at.dead[tile + i]
                waiting = ZERO
                for chunk in range(chunks):
                    row = (chunk * BLOCK + i) * LANE_WORDS
                    alive = 0
                    for w in range(LANE_WORDS):
                        alive += bits_set(hull_rows[row + w])
                    if alive == 0:
                        continue
                    if 2 * alive < size:  # LANES events take as long as about half a block
                        for w in range(LANE_WORDS):
                            event = chunk * LANES + 64 * w
                            waiting = list_bits(hull_rows[row + w], event, room.waiting, waiting)
                        continue
                    if filled + alive * size > len(keys):
                        return -1, visited, tested
                    filled, words, boxes = _box_by_box(
                        part, room, begin, live, chunk, hull_rows, row, filled
                    )
                    visited += words
                    tested += boxes
                if filled + waiting > len(keys):
                    return -1, visited, tested
                filled, words, boxes = _event_by_event(part, room, begin, live, waiting, filled)
                visited += words
                tested += boxes
    if len(layout.earlier):
        for i in range(filled):
            event = (keys[i] >> 32) * d
            left = masks[i]
            while left:
                bit = lowest_bit(left)
                left &= left - np.uint64(1)
                if not is_first(layout, (keys[i] & LOW) + bit, room.points, event):
                    masks[i] ^= np.uint64(1) << np.uint64(bit)
    return filled, visited, tested


@jit
def count_by_event(keys: I64, masks: U64, offsets: I64) -> None:
    """Fill `offsets` (events + 1) with the start of each event's matches."""
    offsets[:] = 0
    for i in range(len(keys)):
        offsets[(keys[i] >> 32) + 1] += bits_set(masks[i])
    for e in range(len(offsets) - 1):
        offsets[e + 1] += offsets[e]


@jit
def sort_by_event(keys: I64, masks: U64, owner: I32, offsets: I64, rows: I32) -> None:
    """Fill `rows` with the owners of the boxes in records, event by event."""
    places = offsets[:-1].copy()
    for i in range(len(keys)):
        e = keys[i] >> 32
        first = keys[i] & LOW
        left = masks[i]
        slot = places[e]
        while left:
            rows[slot] = owner[first + lowest_bit(left)]
            left &= left - np.uint64(1)
            slot += 1
        places[e] = slot
