"""Bitmaps for single events, where boxes mention many different sets of attributes.

There `slabs` has many short runs, and a single event would look at each. Boxes are put into chunks
of up to 256, each of a long run or of several short ones. For every attribute that boxes of a chunk
mention, and every slab, a bitmap says which boxes of the chunk may hold a value in it. The AND of
one bitmap per attribute leaves few boxes. Each is compared by the codes of its bounds, which lie
side by side, and exactly where these leave a doubt. So an event costs n k / 256 steps if a chunk
mentions k attributes, however many there are, and the boxes that are left.

Layout. Boxes have the order of the `Layout`. The slabs are as many as memory allows, `SLABS` at
most: neighbouring codes share one. The bitmaps of an attribute and a slab lie side by side, chunk
by chunk: an event reads one stretch of memory for each attribute. What is looked at of a box that
is left lies side by side, too, as one record: its number, its subscription, where its bounds are,
and the codes of these. All records of a chunk have one size. Memory: k * slabs / 8 bytes per box of
a full chunk, 4 for each attribute that it mentions, and 20 more.

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
_HEAD = 4
"""Numbers of a record before its slots."""
_BOX, _OWNER, _PLACE, _STRIDE = 0, 1, 2, 3
"""Its box, the subscription of that, where its bounds begin, and the boxes of its block."""
_END = 0xFFFFFFFF
_SIZE_BITS = 20
"""Bits of a listed record that are its size; the others are where it begins."""
_MAX_SIZE = (1 << _SIZE_BITS) - 1
_MAX_CODES = 1 << 32
"""Codes of a layout up to which a record has room for where they are."""
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
    first_record: I64
    """(chunks + 1,) where the records of a chunk begin."""
    record_size: I32
    """(chunks,) numbers of a record."""
    records: U32
    """Of each box: four numbers (`_BOX` and so on), and its slots. A slot is an attribute that the
    box mentions, and the codes of its bounds: 16, 8 and 8 bits; `_END` behind the last one."""


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
def _size_records(table: I64, run_of: I32, block_of: I32, first_box: I32, record_size: I32) -> int:
    """Write the size of the records of each chunk; return that of all records together."""
    layout = opened(table, Layout)
    total = 0
    for chunk in range(len(record_size)):
        width = 0
        for box in range(first_box[chunk], first_box[chunk + 1]):
            run = run_of[block_of[box]]
            width = max(width, layout.runs[run + 1, SLOT] - layout.runs[run, SLOT])
        record_size[chunk] = _HEAD + width
        total += record_size[chunk] * (first_box[chunk + 1] - first_box[chunk])
    return total


@jit
def _write_records(table: I64, arrays: Maps, first_record: I64, records: U32) -> None:
    """Write the records of all boxes."""
    layout = opened(table, Layout)
    filled = 0
    for chunk in range(len(arrays.record_size)):
        first_record[chunk] = filled
        size = arrays.record_size[chunk]
        for box in range(arrays.first_box[chunk], arrays.first_box[chunk + 1]):
            block = arrays.block_of[box]
            run = arrays.run_of[block]
            slot, end = layout.runs[run, SLOT], layout.runs[run + 1, SLOT]
            begin = layout.blocks[block]
            count = layout.blocks[block + 1] - begin
            before = begin - layout.blocks[layout.runs[run, FIRST_BLOCK]]
            place = layout.runs[run, CODE] + 2 * (end - slot) * before + box - begin
            records[filled + _BOX], records[filled + _OWNER] = box, layout.owner[box]
            records[filled + _PLACE], records[filled + _STRIDE] = place, count
            for s in range(size - _HEAD):
                code = _END
                if slot + s < end:
                    low, high = layout.codes[place], layout.codes[place + count]
                    code = (np.int64(layout.attributes[slot + s]) << 16) | (low << 8) | high
                    place += 2 * count
                records[filled + _HEAD + s] = code
            filled += size
    first_record[len(arrays.record_size)] = filled


@jit
def _fill(arrays: Maps, maps: U64) -> None:
    """Write the bitmaps, chunk by chunk."""
    slabs = 256 >> arrays.shift
    d = len(arrays.first_word) - 1
    column = np.zeros((d, slabs, _WORDS), np.uint64)
    mentions = np.zeros((d, _WORDS), np.uint64)
    for chunk in range(len(arrays.first_box) - 1):
        first, last = arrays.first_box[chunk], arrays.first_box[chunk + 1]
        size = arrays.record_size[chunk]
        for box in range(first, last):
            word, bit = (box - first) >> 6, np.uint64(1) << np.uint64((box - first) & 63)
            record = arrays.first_record[chunk] + size * (box - first)
            for slot in range(record + _HEAD, record + size):
                code = arrays.records[slot]
                if code == _END:
                    break
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
    if boxes < _MIN_BOXES or boxes > _SHORT * runs or len(arrays.codes) >= _MAX_CODES:
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
    record_size = np.empty(chunks, np.int32)
    numbers = _size_records(layout.table, run_of, block_of, first_box, record_size)
    first_record, records = np.empty(chunks + 1, np.int64), np.empty(numbers, np.uint32)
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
        first_record,
        record_size,
        records,
    )
    _write_records(layout.table, made, first_record, records)
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
def _list_bits(mask: np.uint64, first: int, size: int, left: Any, count: int) -> int:
    """Append where the records of the boxes of a mask begin; return how many are listed."""
    while mask:
        left[count] = first + lowest_bit(mask) * size
        mask &= mask - np.uint64(1)
        count += 1
    return count


@jit
def _list_left(maps: Any, chunk: int, starts: Any, left: Any, count: int) -> int:
    """Append the records of boxes of a chunk that may contain the event.

    They are the AND of a bitmap per attribute.
    """
    slot, end = maps.first_slot[chunk], maps.first_slot[chunk + 1]
    a = b = c = e = ~np.uint64(0)
    if slot == end:  # the bitmaps have no bits behind the last box; without any, all boxes are left
        boxes = maps.first_box[chunk + 1] - maps.first_box[chunk]
        a, b = bits_up_to(min(64, boxes)), bits_up_to(min(64, max(0, boxes - 64)))
        c, e = bits_up_to(min(64, max(0, boxes - 128))), bits_up_to(min(64, max(0, boxes - 192)))
    while slot < end:
        place = starts[maps.attributes[slot]] + maps.places[slot]
        a &= maps.maps[place]
        b &= maps.maps[place + 1]
        c &= maps.maps[place + 2]
        e &= maps.maps[place + 3]
        slot += 1
    if a | b | c | e == 0:
        return count
    first, size = maps.first_record[chunk], maps.record_size[chunk]
    before = count
    count = _list_bits(a, first, size, left, count)
    count = _list_bits(b, first + 64 * size, size, left, count)
    count = _list_bits(c, first + 128 * size, size, left, count)
    count = _list_bits(e, first + 192 * size, size, left, count)
    for i in range(before, count):
        prefetch(maps.records, left[i])
        prefetch(maps.records, left[i] + size - 1)
        left[i] = left[i] << _SIZE_BITS | size
    return count


@jit
def _verdict(at: Any, records: Any, first: int, last: int, codes: Any) -> int:
    """Return whether a box contains the event, by the codes of its bounds.

    0 no, 1 yes, 2 it depends on bounds that have the code of the event.
    """
    verdict = 1
    for place in range(first, last):
        slot = records[place]
        if slot == _END:
            break
        attribute, low, high = slot >> 16, (slot >> 8) & 255, slot & 255
        code = codes[attribute]
        if code < low or code > high:
            return 0
        if at.rough[attribute] and ((code == low) | (code == high)):
            verdict = 2
    return verdict


@jit
def _fetch_bounds(at: Any, records: Any, first: int, last: int, codes: Any) -> None:
    """Prefetch the bounds of a box that have the code of the event."""
    place, stride = np.int64(records[first + _PLACE]), np.int64(records[first + _STRIDE])
    for s in range(first + _HEAD, last):
        slot = records[s]
        if slot == _END:
            break
        code = codes[slot >> 16]
        if code == (slot >> 8) & 255:
            prefetch(at.bounds, place)
        if code == slot & 255:
            prefetch(at.bounds, place + stride)
        place += 2 * stride


@jit
def _holds_exactly(at: Any, records: Any, first: int, last: int, codes: Any, point: Any) -> bool:
    """Compare the bounds of a box that have the code of the event: the others aren't in doubt."""
    place, stride = np.int64(records[first + _PLACE]), np.int64(records[first + _STRIDE])
    for s in range(first + _HEAD, last):
        slot = records[s]
        if slot == _END:
            break
        attribute, low, high = slot >> 16, (slot >> 8) & 255, slot & 255
        code, value = codes[attribute], point[attribute]
        if code == low and not at.bounds[place] <= value:
            return False
        if code == high and not value <= at.bounds[place + stride]:
            return False
        place += 2 * stride
    return True


@jit
def _keep_containing(
    at: Any, maps: Any, are_dead: bool, left: Any, count: int, codes: Any, point: Any
) -> int:
    """Keep the records of boxes that contain the event; return how many."""
    kept = doubtful = 0
    for i in range(count):
        first, size = left[i] >> _SIZE_BITS, left[i] & _MAX_SIZE
        verdict = _verdict(at, maps.records, first + _HEAD, first + size, codes)
        if verdict:
            left[kept] = ~left[i] if verdict == 2 else left[i]
            if verdict == 2:
                _fetch_bounds(at, maps.records, first, first + size, codes)
            if are_dead:
                prefetch(maps.block_of, maps.records[first + _BOX])
            doubtful += verdict == 2
            kept += 1
    if doubtful == 0:
        return kept
    count, kept = kept, 0
    for i in range(count):
        record = left[i] if left[i] >= 0 else ~left[i]
        first, last = record >> _SIZE_BITS, (record >> _SIZE_BITS) + (record & _MAX_SIZE)
        if left[i] >= 0 or _holds_exactly(at, maps.records, first, last, codes, point):
            left[kept] = record
            kept += 1
    return kept


@jit
def _search_maps(
    layout: Layout,
    arrays: Maps,
    are_dead: bool,
    points: F64,
    codes: U8,
    scratch: tuple[I64, I64],
    chunk: int,
    out: I32,
    filled: int,
) -> tuple[int, int]:
    """Append the subscriptions that match one event, from a chunk on.

    are_dead   whether some boxes are
    scratch    room for the records that are left, and where the bitmaps of the event's slabs begin:
               the caller holds it, as there are pointers into it

    Stops where there may be no room for what is left. Returns the chunk to go on with (their number
    when done) and how far `out` is filled.
    """
    at, maps, rows = pointers(layout), pointers(arrays), pointer(out, 0)
    coded, values = pointer(codes, 0), pointer(points, 0)
    chunks, several = len(arrays.first_box) - 1, len(layout.earlier) > 0
    left, starts = pointer(scratch[0], 0), pointer(scratch[1], 0)
    while chunk < chunks:
        if filled + _LISTED + _CHUNK > len(out):
            break
        count = 0
        while chunk < chunks and count <= _LISTED:
            count = _list_left(maps, chunk, starts, left, count)
            chunk += 1
        count = _keep_containing(at, maps, are_dead, left, count, coded, values)
        for i in range(count):
            record = left[i] >> _SIZE_BITS
            box: Any = np.int64(maps.records[record + _BOX])
            if are_dead:
                block = maps.block_of[box]
                if (at.dead[block] >> np.uint64(box - at.blocks[block])) & np.uint64(1):
                    continue
            if not several or is_first(layout, box, values, 0):
                rows[filled] = maps.records[record + _OWNER]
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
    scratch = np.empty(_LISTED + _CHUNK, np.int64), np.empty(points.shape[1], np.int64)
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
