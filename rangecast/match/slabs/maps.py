"""Bitmaps for single events, where boxes mention many different sets of attributes.

There `slabs` has many short runs, and a single event would look at each. Boxes are put into chunks
of up to 256, each of a long run or of several short ones. For every attribute that boxes of a chunk
mention, and every slab, a bitmap says which boxes of the chunk may contain a value in it. The AND
of one bitmap per attribute leaves few boxes. Each is compared by the codes of its bounds, which lie
side by side, and exactly where these leave a doubt. So an event costs n k / 256 steps if a chunk
mentions k attributes, however many there are, and the boxes that are left.

Layout. Boxes have the order of the `Layout`. The slabs are as many as memory allows, `SLABS` at
most: neighbouring codes share one. The bitmaps of an attribute and a slab lie side by side, chunk
by chunk: an event reads one stretch of memory for each attribute. The data of a remaining box lies
side by side, too, as one record: its number, its subscription, the place and the codes of its
bounds. All records of a chunk have one size. Memory: k * slabs / 8 bytes per box of a full chunk, 4
for each attribute that it mentions, and 16 more.

Most of the time would go by waiting, for memory and for branches that the processor guesses wrong.
So each step (`maps_search`) is done for many boxes before the next one begins, and hardly has a
branch that depends on a box.
"""

from __future__ import annotations

from typing import Annotated, NamedTuple

import numpy as np

from rangecast.kernels.arrays import I32, I64, U32, U64
from rangecast.kernels.bits import LANE_WORDS, QUAD, aligned_words, bits_up_to
from rangecast.kernels.bundle import Bundle, opened
from rangecast.kernels.codes import FREE_HI, FREE_LO
from rangecast.kernels.jit import jit
from rangecast.match.slabs.layout import CODE, FIRST_BLOCK, SLOT, Layout

SLABS = 128
_FEWEST_SLABS = 8
_BYTES = 150
"""Maximum bytes of bitmaps per box."""
_MIN_BOXES = 2048
"""Boxes below which runs are quick enough."""
_SHORT = 256
"""Boxes of a run, on average, up to which bitmaps are quicker."""
_CHUNK = 64 * QUAD
"""Boxes of a chunk: a bit of a few words for each."""
GROUP = 1024
"""Chunks whose bitmaps are combined together."""
HEAD = 4
"""Numbers of a record before its slots."""
BOX, OWNER, PLACE, STRIDE = 0, 1, 2, 3
"""Block and bit of its box, the subscription of that, where its bounds begin, and the boxes of its
block."""
_ALWAYS = FREE_LO << 8 | FREE_HI
"""A slot that holds for every event."""
_MAX_CODES, _MAX_BLOCKS = 1 << 32, 1 << 26
"""Codes and blocks of a layout up to which a record has room for where they are."""


class Maps(NamedTuple):
    """The bitmaps of a `Layout`."""

    shift: int
    """A code and this many bits to the right is the number of its slab."""
    chunk: I32
    """(slots,) chunk of each slot: a slot is an attribute of a chunk, by attribute, then chunk."""
    first_slot: Annotated[I64, 2]
    """(attributes, groups + 1) first slot of an attribute in a group of chunks."""
    maps: U64
    """Bitmap of slot s of attribute j, slab b: QUAD words at maps[QUAD * (slabs * first + b * count
    + s - first)], where the attribute has `count` slots, from `first` on."""
    first_record: I64
    """(chunks + 1,) where the records of a chunk begin."""
    record_size: I32
    """(chunks,) numbers of a record."""
    records: U32
    """Of each box: four numbers (`BOX` and so on), and its slots. A slot is an attribute that the
    box mentions, and the codes of its bounds: 16, 8 and 8 bits; `_ALWAYS` where there is none."""


@jit
def _cut_chunks(table: I64, d: int, first_box: I32, first_slot: I32, attributes: I32) -> int:
    """Put runs into chunks, several if they fit; write their boxes and attributes.

    A run without attributes has the first one, so that each chunk has one. Returns how many chunks
    there are. The arrays are long enough.
    """
    layout = opened(table, Layout)
    seen = np.full(d, -1, np.int64)  # the last chunk that has an attribute
    chunks = slots = 0
    end = 0  # of the last chunk
    for run in range(len(layout.runs) - 1):
        first = layout.blocks[layout.runs[run, FIRST_BLOCK]]
        last = layout.blocks[layout.runs[run + 1, FIRST_BLOCK]]
        slot, width = layout.runs[run, SLOT], layout.runs[run + 1, SLOT] - layout.runs[run, SLOT]
        while first < last:
            if chunks == 0 or last - first_box[chunks - 1] > _CHUNK:
                first_box[chunks], first_slot[chunks] = first, slots
                chunks += 1
            end = min(last, first_box[chunks - 1] + _CHUNK)
            for s in range(max(1, width)):
                j = layout.attributes[slot + s] if width else 0
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
        record_size[chunk] = HEAD + width
        total += record_size[chunk] * (first_box[chunk + 1] - first_box[chunk])
    return total


@jit
def _write_records(
    table: I64,
    run_of: I32,
    block_of: I32,
    first_box: I32,
    record_size: I32,
    first_record: I64,
    records: U32,
) -> None:
    """Write the records of all boxes."""
    layout = opened(table, Layout)
    filled = 0
    for chunk in range(len(record_size)):
        first_record[chunk] = filled
        size = record_size[chunk]
        for box in range(first_box[chunk], first_box[chunk + 1]):
            block = block_of[box]
            run = run_of[block]
            slot, end = layout.runs[run, SLOT], layout.runs[run + 1, SLOT]
            begin = layout.blocks[block]
            count = layout.blocks[block + 1] - begin
            before = begin - layout.blocks[layout.runs[run, FIRST_BLOCK]]
            place = layout.runs[run, CODE] + 2 * (end - slot) * before + box - begin
            records[filled + BOX] = block << 6 | (box - begin)
            records[filled + OWNER] = layout.owner[box]
            records[filled + PLACE], records[filled + STRIDE] = place, count
            for s in range(size - HEAD):
                code = _ALWAYS
                if slot + s < end:
                    low, high = layout.codes[place], layout.codes[place + count]
                    code = (np.int64(layout.attributes[slot + s]) << 16) | (low << 8) | high
                    place += 2 * count
                records[filled + HEAD + s] = code
            filled += size
    first_record[len(record_size)] = filled


@jit
def _fill(
    arrays: Maps, first_box: I32, first_slot: I32, attributes: I32, sorted_slot: I64, maps: U64
) -> None:
    """Write the bitmaps, chunk by chunk."""
    slabs = 256 >> arrays.shift
    d = len(arrays.first_slot)
    column = np.zeros((d, slabs, QUAD), np.uint64)
    mentions = np.zeros((d, QUAD), np.uint64)
    for chunk in range(len(first_box) - 1):
        first, last = first_box[chunk], first_box[chunk + 1]
        size = arrays.record_size[chunk]
        for box in range(first, last):
            word, bit = (box - first) >> 6, np.uint64(1) << np.uint64((box - first) & 63)
            record = arrays.first_record[chunk] + size * (box - first)
            for slot in range(record + HEAD, record + size):
                code = arrays.records[slot]
                if code == _ALWAYS:
                    continue
                j = code >> 16
                mentions[j, word] |= bit
                low, high = ((code >> 8) & 255) >> arrays.shift, (code & 255) >> arrays.shift
                for slab in range(low, high + 1):
                    column[j, slab, word] |= bit
        for own in range(first_slot[chunk], first_slot[chunk + 1]):
            j = attributes[own]
            start, end = arrays.first_slot[j, 0], arrays.first_slot[j, -1]
            place = QUAD * (slabs * start + sorted_slot[own] - start)
            for word in range(QUAD):
                others = bits_up_to(min(64, max(0, last - first - 64 * word)))
                others &= ~mentions[j, word]
                for slab in range(slabs):
                    maps[place + slab * QUAD * (end - start) + word] = (
                        column[j, slab, word] | others
                    )
                    column[j, slab, word] = 0
                mentions[j, word] = 0


def maps_of(layout: Bundle[Layout], dimensions: int) -> Bundle[Maps] | None:
    """Return the bitmaps, `None` where a single event does without."""
    arrays = layout.arrays
    boxes, runs, blocks = int(arrays.blocks[-1]), len(arrays.runs) - 1, len(arrays.blocks) - 1
    if boxes < _MIN_BOXES or boxes > _SHORT * runs:
        return None
    if len(arrays.codes) >= _MAX_CODES or blocks >= _MAX_BLOCKS:
        return None
    size = boxes // _CHUNK * 2 + runs + 1
    first_box, first_slot = np.empty(size, np.int32), np.empty(size, np.int32)
    widths = np.maximum(1, np.diff(arrays.runs[:, SLOT]))
    per_run = np.diff(arrays.blocks[arrays.runs[:, FIRST_BLOCK]])
    attributes = np.empty(int((widths * (per_run // _CHUNK + 2)).sum()), np.int32)
    chunks = _cut_chunks(layout.table, dimensions, first_box, first_slot, attributes)
    first_box, first_slot = first_box[: chunks + 1].copy(), first_slot[: chunks + 1].copy()
    attributes = attributes[: first_slot[-1]].copy()
    slabs = SLABS
    while 8 * QUAD * len(attributes) * slabs > _BYTES * boxes:
        slabs //= 2
    if slabs < _FEWEST_SLABS:
        return None
    order = np.argsort(attributes, kind="stable")
    chunk = np.repeat(np.arange(chunks, dtype=np.int32), np.diff(first_slot))[order]
    groups = np.arange(-(-chunks // GROUP) + 1) * GROUP
    keys = attributes[order].astype(np.int64) * groups[-1] + chunk
    starts = np.searchsorted(keys, np.arange(dimensions)[:, None] * groups[-1] + groups)
    sorted_slot = np.empty(len(order), np.int64)
    sorted_slot[order] = np.arange(len(order))
    run_of = np.repeat(np.arange(runs, dtype=np.int32), np.diff(arrays.runs[:, FIRST_BLOCK]))
    block_of = np.repeat(np.arange(blocks, dtype=np.int32), np.diff(arrays.blocks))
    record_size = np.empty(chunks, np.int32)
    numbers = _size_records(layout.table, run_of, block_of, first_box, record_size)
    first_record = np.empty(chunks + 1, np.int64)
    records = aligned_words(numbers // (2 * LANE_WORDS) + 1).view(np.uint32)[:numbers]
    maps = aligned_words(QUAD * slabs * len(order) // LANE_WORDS + 1)
    maps = maps[: QUAD * slabs * len(order)]
    shift = (256 // slabs).bit_length() - 1
    made = Maps(shift, chunk, starts, maps, first_record, record_size, records)
    _write_records(layout.table, run_of, block_of, first_box, record_size, first_record, records)
    _fill(made, first_box, first_slot, attributes, sorted_slot, maps)
    return Bundle(made)
