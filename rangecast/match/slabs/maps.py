"""Bitmaps for single events, where boxes mention many different sets of attributes.

There `slabs` has many short runs, and a single event would look at each. Boxes are put into chunks
of up to 256, each of a long run or of several short ones. For every attribute that boxes of a chunk
mention, and every slab, a bitmap says which boxes of the chunk may hold a value in it. The AND of
one bitmap per attribute leaves few boxes. Each is compared by the codes of its bounds, which lie
side by side, and exactly where these leave a doubt. So an event costs n k / 256 steps if a chunk
mentions k attributes, however many there are, and the boxes that are left.

Layout. Boxes have the order of the `Layout`. The slabs are as many as memory allows, `SLABS` at
most: neighbouring codes share one. The bitmaps of an attribute and a slab lie side by side, chunk
by chunk: an event reads one stretch of memory for each attribute. Memory: k * slabs / 8 bytes per
box of a full chunk, 4 for each attribute that it mentions, and 8 more.

Most of the time goes by waiting for memory. So the boxes that are left are listed first, about a
thousand of them, then what is needed of them is fetched for all, and only then it is looked at: the
processor waits for many of them at once.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from rangecast.kernels.arrays import F64, I32, I64, U8, U32, U64
from rangecast.kernels.bits import ZERO, bits_up_to, lowest_bit, prefetch
from rangecast.kernels.bundle import Bundle, opened, pointer, pointers, table_size
from rangecast.kernels.codes import encode_points
from rangecast.kernels.jit import jit, jit_single
from rangecast.match.single_event import OWN, append_other_rows, max_beside, reject_nan
from rangecast.match.slabs.layout import CODE, FIRST_BLOCK, SLOT, Layout
from rangecast.match.slabs.search import is_first, more_room

SLABS = 128
_FEWEST_SLABS = 8
_BYTES = 150
"""That bitmaps may take per box."""
_MIN_BOXES = 2048
"""Boxes below which runs are quick enough."""
_SHORT = 256
"""Boxes of a run, in the mean, up to which bitmaps are quicker."""
_WORDS = 4
"""Words of a chunk: a bit for each box."""
_CHUNK = 64 * _WORDS
_LISTED = 1024
"""Boxes that are left of chunks before they are looked at together, about."""
_FIRST_ROWS = 2 * (_LISTED + _CHUNK)
"""Rows that a single event has room for at first."""
_LAYOUT = table_size(Layout)


class Maps(NamedTuple):
    """The bitmaps of a `Layout`."""

    shift: int
    """A code and this many bits to the right is the number of its slab."""
    first_box: I32
    """(chunks + 1,)"""
    first_slot: I32
    """(chunks + 1,) first of a chunk's attributes."""
    attributes: I32
    """Of each slot."""
    places: I32
    """Of each slot: where its words begin among those of its attribute and any slab."""
    first_word: I64
    """(attributes + 1,) where the bitmaps of an attribute begin."""
    maps: U64
    """Word w of a slot of attribute j, slab s: maps[first_word[j] + s * length[j] + place + w],
    where length[j] is that of one slab's."""
    block_of: I32
    """Of each box."""
    run_of: I32
    """Of each block."""
    first_code: I32
    """(boxes + 1,) first of a box's slots."""
    slots: U32
    """An attribute that a box mentions, and the codes of its bounds: 16, 8 and 8 bits."""


class DeadBoxes(NamedTuple):
    """Says whether boxes of the layout are dead."""

    are_some: int


_MAPS = table_size(Maps)


@jit
def _cut_chunks(table: I64, d: int, first_box: I32, first_slot: I32, attributes: I32) -> int:
    """Put runs into chunks, several if they fit; write their boxes and attributes.

    Returns how many chunks there are. The arrays are long enough.
    """
    layout = opened(table, Layout)
    seen = np.full(d, -1, np.int64)  # the last chunk that has an attribute
    chunks = slots = 0
    end = 0  # of the last chunk
    for run in range(len(layout.runs) - 1):
        first = layout.blocks[layout.runs[run, FIRST_BLOCK]]
        last = layout.blocks[layout.runs[run + 1, FIRST_BLOCK]]
        while first < last:
            if chunks == 0 or last - first_box[chunks - 1] > _CHUNK:
                first_box[chunks], first_slot[chunks] = first, slots
                chunks += 1
            end = min(last, first_box[chunks - 1] + _CHUNK)
            for slot in range(layout.runs[run, SLOT], layout.runs[run + 1, SLOT]):
                j = layout.attributes[slot]
                if seen[j] < chunks - 1:
                    seen[j] = chunks - 1
                    attributes[slots] = j
                    slots += 1
            first = end
    first_box[chunks], first_slot[chunks] = end, slots
    return chunks


@jit
def _list_slots(table: I64, run_of: I32, first_code: I32, slots: U32) -> None:
    """Write the slots of all boxes: the attributes that these mention, and their codes."""
    layout = opened(table, Layout)
    filled = 0
    first_code[0] = 0
    for block in range(len(run_of)):
        run = run_of[block]
        slot, end = layout.runs[run, SLOT], layout.runs[run + 1, SLOT]
        begin = layout.blocks[block]
        size = layout.blocks[block + 1] - begin
        before = begin - layout.blocks[layout.runs[run, FIRST_BLOCK]]
        base = layout.runs[run, CODE] + 2 * (end - slot) * before
        for box in range(size):
            place = base + box
            for s in range(slot, end):
                low, high = layout.codes[place], layout.codes[place + size]
                slots[filled] = (layout.attributes[s] << 16) | (low << 8) | high
                filled += 1
                place += 2 * size
            first_code[begin + box + 1] = filled


@jit
def _fill(arrays: Maps, maps: U64) -> None:
    """Write the bitmaps, chunk by chunk."""
    slabs = 256 >> arrays.shift
    d = len(arrays.first_word) - 1
    column = np.zeros((d, slabs, _WORDS), np.uint64)
    mentions = np.zeros((d, _WORDS), np.uint64)
    for chunk in range(len(arrays.first_box) - 1):
        first, last = arrays.first_box[chunk], arrays.first_box[chunk + 1]
        for box in range(first, last):
            word, bit = (box - first) >> 6, np.uint64(1) << np.uint64((box - first) & 63)
            for slot in range(arrays.first_code[box], arrays.first_code[box + 1]):
                code = arrays.slots[slot]
                j = code >> 16
                mentions[j, word] |= bit
                low, high = ((code >> 8) & 255) >> arrays.shift, (code & 255) >> arrays.shift
                for slab in range(low, high + 1):
                    column[j, slab, word] |= bit
        for own in range(arrays.first_slot[chunk], arrays.first_slot[chunk + 1]):
            j = arrays.attributes[own]
            length = (arrays.first_word[j + 1] - arrays.first_word[j]) // slabs
            for word in range(_WORDS):
                others = bits_up_to(min(64, max(0, last - first - 64 * word)))
                others &= ~mentions[j, word]
                place = arrays.first_word[j] + arrays.places[own] + word
                for slab in range(slabs):
                    maps[place + slab * length] = column[j, slab, word] | others
                    column[j, slab, word] = 0
                mentions[j, word] = 0


def maps_of(layout: Bundle[Layout], dimensions: int) -> Bundle[Maps] | None:
    """Return the bitmaps, `None` where a single event does without."""
    arrays = layout.arrays
    boxes, runs = int(arrays.blocks[-1]), len(arrays.runs) - 1
    if boxes < _MIN_BOXES or boxes > _SHORT * runs:
        return None
    size = boxes // _CHUNK * 2 + runs + 1
    first_box, first_slot = np.empty(size, np.int32), np.empty(size, np.int32)
    widths, per_run = (
        np.diff(arrays.runs[:, SLOT]),
        np.diff(arrays.blocks[arrays.runs[:, FIRST_BLOCK]]),
    )
    attributes = np.empty(int((widths * (per_run // _CHUNK + 2)).sum()), np.int32)
    chunks = _cut_chunks(layout.table, dimensions, first_box, first_slot, attributes)
    first_box, first_slot = first_box[: chunks + 1].copy(), first_slot[: chunks + 1].copy()
    attributes = attributes[: first_slot[-1]].copy()
    slabs = SLABS
    while 8 * _WORDS * len(attributes) * slabs > _BYTES * boxes:
        slabs //= 2
    if slabs < _FEWEST_SLABS:
        return None
    shift = (256 // slabs).bit_length() - 1
    counts = np.bincount(attributes, minlength=dimensions)
    order = np.argsort(attributes, kind="stable")
    places = np.empty(len(attributes), np.int32)
    before = np.cumsum(counts) - counts
    places[order] = _WORDS * (np.arange(len(order)) - np.repeat(before, counts))
    first_word = np.concatenate([[0], np.cumsum(_WORDS * slabs * counts)]).astype(np.int64)
    run_of = np.repeat(np.arange(runs, dtype=np.int32), np.diff(arrays.runs[:, FIRST_BLOCK]))
    block_of = np.repeat(np.arange(len(run_of), dtype=np.int32), np.diff(arrays.blocks))
    slots = np.empty(len(arrays.codes) // 2, np.uint32)
    first_code = np.empty(boxes + 1, np.int32)
    _list_slots(layout.table, run_of, first_code, slots)
    maps = np.empty(first_word[-1], np.uint64)
    made = Maps(
        shift,
        first_box,
        first_slot,
        attributes,
        places,
        first_word,
        maps,
        block_of,
        run_of,
        first_code,
        slots,
    )
    _fill(made, maps)
    return Bundle(made)


@jit
def _begin(arrays: Maps, codes: U8, starts: I64) -> None:
    """Write where the bitmaps of an event's slabs begin, by attribute."""
    slabs = 256 >> arrays.shift
    for j in range(len(starts)):
        length = (arrays.first_word[j + 1] - arrays.first_word[j]) // slabs
        starts[j] = arrays.first_word[j] + (codes[0, j] >> arrays.shift) * length


@jit
def _list_bits(mask: np.uint64, first: int, boxes: Any, count: int) -> int:
    """Append the boxes of a mask; return how many are listed."""
    while mask:
        boxes[count] = first + lowest_bit(mask)
        mask &= mask - np.uint64(1)
        count += 1
    return count


@jit
def _list_left(maps: Any, chunk: int, starts: Any, boxes: Any, count: int) -> int:
    """Append the boxes of a chunk that may contain the event: the AND of a bitmap per attribute."""
    first = maps.first_box[chunk]
    size = maps.first_box[chunk + 1] - first
    a, b = bits_up_to(min(64, size)), bits_up_to(min(64, max(0, size - 64)))
    c, e = bits_up_to(min(64, max(0, size - 128))), bits_up_to(min(64, max(0, size - 192)))
    for slot in range(maps.first_slot[chunk], maps.first_slot[chunk + 1]):
        place = starts[maps.attributes[slot]] + maps.places[slot]
        a &= maps.maps[place]
        b &= maps.maps[place + 1]
        c &= maps.maps[place + 2]
        e &= maps.maps[place + 3]
    count = _list_bits(a, first, boxes, count)
    count = _list_bits(b, first + 64, boxes, count)
    count = _list_bits(c, first + 128, boxes, count)
    return _list_bits(e, first + 192, boxes, count)


@jit
def _verdict(at: Any, slots: Any, first: int, last: int, codes: Any) -> int:
    """Return whether a box contains the event, by the codes of its bounds.

    0 no, 1 yes, 2 it depends on bounds that have the code of the event.
    """
    verdict = 1
    for place in range(first, last):
        slot = slots[place]
        attribute, low, high = slot >> 16, (slot >> 8) & 255, slot & 255
        code = codes[attribute]
        if code < low or code > high:
            return 0
        if at.rough[attribute] and ((code == low) | (code == high)):
            verdict = 2
    return verdict


@jit
def _holds_exactly(at: Any, maps: Any, box: int, codes: Any, point: Any) -> bool:
    """Compare the bounds of a box that have the code of the event: the others aren't in doubt."""
    block = maps.block_of[box]
    run, begin = 4 * maps.run_of[block], at.blocks[block]
    size = at.blocks[block + 1] - begin
    before = begin - at.blocks[at.runs[run + FIRST_BLOCK]]
    first, last = maps.first_code[box], maps.first_code[box + 1]
    place = at.runs[run + CODE] + 2 * (last - first) * before + box - begin
    for s in range(first, last):
        slot = maps.slots[s]
        attribute, low, high = slot >> 16, (slot >> 8) & 255, slot & 255
        code, value = codes[attribute], point[attribute]
        if code == low and not at.bounds[place] <= value:
            return False
        if code == high and not value <= at.bounds[place + size]:
            return False
        place += 2 * size
    return True


@jit
def _keep_containing(at: Any, maps: Any, boxes: Any, count: int, codes: Any, point: Any) -> int:
    """Keep those of the boxes listed that contain the event; return how many."""
    for i in range(count):
        prefetch(maps.slots, maps.first_code[boxes[i]])
    kept = doubtful = 0
    for i in range(count):
        box = boxes[i]
        first, last = maps.first_code[box], maps.first_code[box + 1]
        verdict = _verdict(at, maps.slots, first, last, codes)
        if verdict:
            boxes[kept] = ~box if verdict == 2 else box
            prefetch(at.owner, box)
            prefetch(maps.block_of, box)
            doubtful += verdict == 2
            kept += 1
    if doubtful == 0:
        return kept
    count, kept = kept, 0
    for i in range(count):
        box = boxes[i]
        if box >= 0 or _holds_exactly(at, maps, ~box, codes, point):
            boxes[kept] = box if box >= 0 else ~box
            kept += 1
    return kept


@jit
def _search_maps(
    layout: Layout,
    arrays: Maps,
    are_dead: bool,
    points: F64,
    codes: U8,
    scratch: tuple[I32, I64],
    chunk: int,
    out: I32,
    filled: int,
) -> tuple[int, int]:
    """Append the subscriptions that match one event, from a chunk on.

    are_dead   whether some boxes are
    scratch    room for the boxes that are left, and where the bitmaps of the event's slabs begin:
               the caller holds it, as there are pointers into it

    Stops where there may be no room for what is left. Returns the chunk to go on with (their number
    when done) and how far `out` is filled.
    """
    at, maps, rows = pointers(layout), pointers(arrays), pointer(out, 0)
    coded, values = pointer(codes, 0), pointer(points, 0)
    chunks, several = len(arrays.first_box) - 1, len(layout.earlier) > 0
    boxes, starts = pointer(scratch[0], 0), pointer(scratch[1], 0)
    while chunk < chunks:
        if filled + _LISTED + _CHUNK > len(out):
            break
        count = 0
        while chunk < chunks and count <= _LISTED:
            before = count
            count = _list_left(maps, chunk, starts, boxes, count)
            for i in range(before, count):
                prefetch(maps.first_code, boxes[i])
            chunk += 1
        count = _keep_containing(at, maps, boxes, count, coded, values)
        for i in range(count):
            box = boxes[i]
            if are_dead:
                block = maps.block_of[box]
                if (at.dead[block] >> np.uint64(box - at.blocks[block])) & np.uint64(1):
                    continue
            if not several or is_first(layout, box, values, 0):
                rows[filled] = at.owner[box]
                filled += 1
    return chunk, filled


@jit_single
def match_one_by_maps(table: I64, points: F64, others: I32) -> I32:
    """The kernel of a `Single`: the tables behind its own are those of the layout and the maps."""
    reject_nan(points)
    layout, maps = opened(table[OWN:], Layout), opened(table[OWN + _LAYOUT :], Maps)
    are_dead = opened(table[OWN + _LAYOUT + _MAPS :], DeadBoxes).are_some != 0
    codes = np.empty(points.shape, np.uint8)
    encode_points(layout.edges, layout.first_edge, points, codes)
    beside = max_beside(table, others)
    rows = np.empty(_FIRST_ROWS + beside, np.int32)
    scratch = np.empty(_LISTED + _CHUNK, np.int32), np.empty(points.shape[1], np.int64)
    _begin(maps, codes, scratch[1])
    chunk = filled = ZERO
    while True:
        out = rows[: len(rows) - beside]
        chunk, filled = _search_maps(
            layout, maps, are_dead, points, codes, scratch, chunk, out, filled
        )
        if chunk == len(maps.first_box) - 1:
            break
        rows = more_room(rows, filled)
    return rows[: append_other_rows(table, points, others, rows, filled)]
