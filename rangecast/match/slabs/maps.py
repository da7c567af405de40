"""Bitmaps for single events, where boxes mention many different sets of attributes.

There `slabs` has many short runs, and a single event would look at each. For every attribute and
slab a bitmap says which boxes may hold a value in it; boxes that don't mention the attribute are in
all of them. The AND of one bitmap per attribute leaves few boxes. Each is compared by the codes of
its bounds, which lie side by side, and exactly where these leave a doubt. So an event costs
n d / 512 steps, whatever the boxes mention, and the boxes that are left.

Layout. Boxes have the order of the `Layout`. The slabs are as many as memory allows, `SLABS` at
most: neighbouring codes share one. Memory: d * slabs / 8 bytes per box, and 4 for each attribute
that it mentions.

Most of the time goes by waiting for memory. So the boxes that are left of a tile are listed first,
then what is needed of them is fetched for all, and only then it is looked at: the processor waits
for many of them at once.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from rangecast.kernels.arrays import F64, I32, I64, U8, U32, U64
from rangecast.kernels.bits import ZERO, bits_up_to, lowest_bit
from rangecast.kernels.bundle import Bundle, opened, pointer, pointers, table_size
from rangecast.kernels.codes import encode_points
from rangecast.kernels.jit import jit, jit_single
from rangecast.match.single_event import OWN, max_beside, put_beside, reject_nan
from rangecast.match.slabs.layout import CODE, FIRST_BLOCK, SLOT, Layout
from rangecast.match.slabs.search import FIRST_ROWS, is_first, more_room

SLABS = 64
_FEWEST_SLABS = 8
_BYTES = 250
"""That bitmaps may take per box."""
_MIN_BOXES = 2048
"""Boxes below which runs are quick enough."""
_SHORT = 256
"""Boxes of a run, in the mean, up to which bitmaps are quicker."""
_TILE = 64
"""Words that are looked at together: they stay near the processor."""
_LAYOUT = table_size(Layout)


class Maps(NamedTuple):
    """The bitmaps of a `Layout`."""

    words: int
    """Of a bitmap: a multiple of _TILE."""
    shift: int
    """A code and this many bits to the right is the number of its slab."""
    maps: U64
    """Bit b of a word w of attribute j and slab s: maps[(j * slabs + s) * words + w]."""
    block_of: I32
    """Of each box."""
    run_of: I32
    """Of each block."""
    slots: U32
    """An attribute that a box mentions, and the codes of its bounds: 16, 8 and 8 bits. Those of a
    box of k attributes lie side by side; those of a run begin at half its place in the codes.
    """


@jit
def _fill(
    table: I64,
    d: int,
    slabs: int,
    shift: int,
    words: int,
    maps: U64,
    run_of: I32,
    slots: U32,
) -> None:
    """Write the bitmaps, a word of all of them at a time, and the slots of all boxes."""
    layout = opened(table, Layout)
    boxes = layout.blocks[-1]
    column = np.empty(d * slabs, np.uint64)
    block = filled = 0
    for word in range(words):
        first = 64 * word
        full = bits_up_to(min(64, max(0, boxes - first)))
        for place in range(len(column)):
            column[place] = full
        for box in range(first, min(first + 64, boxes)):
            while layout.blocks[block + 1] <= box:
                block += 1
            run = run_of[block]
            slot, end = layout.runs[run, SLOT], layout.runs[run + 1, SLOT]
            begin = layout.blocks[block]
            size = layout.blocks[block + 1] - begin
            before = begin - layout.blocks[layout.runs[run, FIRST_BLOCK]]
            place = layout.runs[run, CODE] + 2 * (end - slot) * before + box - begin
            others = ~(np.uint64(1) << np.uint64(box - first))
            for s in range(slot, end):
                base = layout.attributes[s] * slabs
                low, high = layout.codes[place], layout.codes[place + size]
                slots[filled] = (layout.attributes[s] << 16) | (low << 8) | high
                filled += 1
                low, high = low >> shift, high >> shift
                place += 2 * size
                for slab in range(slabs):
                    if slab < low or slab > high:
                        column[base + slab] &= others
        for place in range(len(column)):
            maps[place * words + word] = column[place]


def maps_of(layout: Bundle[Layout], dimensions: int) -> Bundle[Maps] | None:
    """Return the bitmaps, `None` where a single event does without."""
    arrays = layout.arrays
    boxes, runs = int(arrays.blocks[-1]), len(arrays.runs) - 1
    slabs = SLABS
    while slabs * dimensions > 8 * _BYTES:
        slabs //= 2
    if boxes < _MIN_BOXES or boxes > _SHORT * runs or slabs < _FEWEST_SLABS:
        return None
    shift = (256 // slabs).bit_length() - 1
    words = -(-boxes // (64 * _TILE)) * _TILE
    run_of = np.repeat(np.arange(runs, dtype=np.int32), np.diff(arrays.runs[:, FIRST_BLOCK]))
    block_of = np.repeat(np.arange(len(run_of), dtype=np.int32), np.diff(arrays.blocks))
    maps = np.empty(dimensions * slabs * words, np.uint64)
    slots = np.empty(len(arrays.codes) // 2, np.uint32)
    _fill(layout.table, dimensions, slabs, shift, words, maps, run_of, slots)
    return Bundle(Maps(words, shift, maps, block_of, run_of, slots))


@jit
def _narrowed(maps: U64, words: int, slabs: int, shift: int, codes: U8, d: int, tile: int) -> U64:
    """Return which boxes of a tile may contain the event: the AND of a bitmap per attribute."""
    left = np.empty(_TILE, np.uint64)
    for j in range(d):
        begin = (j * slabs + (codes[0, j] >> shift)) * words + tile
        for w in range(_TILE):
            left[w] = maps[begin + w] if j == 0 else left[w] & maps[begin + w]
    return left


class Left(NamedTuple):
    """The boxes that are left of a tile, and what is needed to check them: pointers."""

    boxes: Any
    blocks: Any
    places: Any
    """Of the slots of each box."""
    widths: Any
    """Number of these."""
    heads: Any
    """The first of them."""


@jit
def _list_left(at: Any, maps: Any, masks: U64, tile: int, left: Left) -> int:
    """Write down the boxes of a tile that are left and not dead; return how many.

    at, maps   the arrays of the layout and of its maps, as pointers
    """
    count = 0
    for w in range(_TILE):
        mask, first = masks[w], 64 * (tile + w)
        while mask:
            left.boxes[count] = first + lowest_bit(mask)
            mask &= mask - np.uint64(1)
            count += 1
    for i in range(count):
        left.blocks[i] = maps.block_of[left.boxes[i]]
    kept = 0
    for i in range(count):
        box, block = left.boxes[i], left.blocks[i]
        run = 4 * maps.run_of[block]
        width = at.runs[run + 4 + SLOT] - at.runs[run + SLOT]
        before = box - at.blocks[at.runs[run + FIRST_BLOCK]]
        left.boxes[kept], left.blocks[kept], left.widths[kept] = box, block, width
        left.places[kept] = at.runs[run + CODE] // 2 + width * before
        is_dead = (at.dead[block] >> np.uint64(box - at.blocks[block])) & np.uint64(1)
        kept += 1 - int(is_dead)
    for i in range(kept):
        left.heads[i] = maps.slots[left.places[i]] if left.widths[i] else 0
    return kept


@jit
def _judged(at: Any, slots: Any, left: Left, i: int, codes: Any) -> int:
    """Return whether a box that is left contains the event, by the codes of its bounds.

    0 no, 1 yes, 2 it depends on bounds that have the code of the event.
    """
    verdict = 1
    for s in range(left.widths[i]):
        slot = left.heads[i] if s == 0 else slots[left.places[i] + s]
        attribute, low, high = slot >> 16, (slot >> 8) & 255, slot & 255
        code = codes[attribute]
        if code < low or code > high:
            return 0
        if at.rough[attribute] and ((code == low) | (code == high)):
            verdict = 2
    return verdict


@jit
def _holds_exactly(at: Any, maps: Any, left: Left, i: int, codes: Any, point: Any) -> bool:
    """Compare the bounds of a box that have the code of the event: the others aren't in doubt."""
    block, width = left.blocks[i], left.widths[i]
    run, begin = 4 * maps.run_of[block], at.blocks[block]
    size = at.blocks[block + 1] - begin
    before = begin - at.blocks[at.runs[run + FIRST_BLOCK]]
    word = at.runs[run + CODE] + 2 * width * before + left.boxes[i] - begin
    for s in range(width):
        slot = maps.slots[left.places[i] + s]
        attribute, low, high = slot >> 16, (slot >> 8) & 255, slot & 255
        code, value = codes[attribute], point[attribute]
        if code == low and not at.bounds[word] <= value:
            return False
        if code == high and not value <= at.bounds[word + size]:
            return False
        word += 2 * size
    return True


@jit
def _search_maps(
    layout: Layout,
    arrays: Maps,
    points: F64,
    codes: U8,
    scratch: tuple[I32, I64, U32],
    tile: int,
    out: I32,
    filled: int,
) -> tuple[int, int]:
    """Append the subscriptions that match one event, from a tile on.

    scratch   room for what is left of a tile: the caller holds it, as there are pointers into it

    Stops where there is no room for all that is left of a tile. Returns the tile to go on with (the
    number of words when done) and how far `out` is filled.
    """
    at, maps, rows = pointers(layout), pointers(arrays), pointer(out, 0)
    coded, values = pointer(codes, 0), pointer(points, 0)
    d, several = points.shape[1], len(layout.earlier) > 0
    words, shift, slabs = arrays.words, arrays.shift, 256 >> arrays.shift
    numbers, places, heads = scratch
    boxes, widths = pointer(numbers, 0), pointer(numbers, 128 * _TILE)
    blocks = pointer(numbers, 64 * _TILE)
    left = Left(boxes, blocks, pointer(places, 0), widths, pointer(heads, 0))
    for now in range(tile, words, _TILE):
        masks = _narrowed(maps.maps, words, slabs, shift, codes, d, now)
        count = _list_left(at, maps, masks, now, left)
        if filled + count > len(out):
            return now, filled
        for i in range(count):
            verdict = _judged(at, maps.slots, left, i, coded)
            if verdict == 2:
                verdict = _holds_exactly(at, maps, left, i, coded, values)
            box = boxes[i]
            if verdict and not (several and not is_first(layout, box, values, 0)):
                rows[filled] = at.owner[box]
                filled += 1
    return words, filled


@jit_single
def match_one_by_maps(table: I64, points: F64, others: I32) -> I32:
    """The kernel of a `Single`: the tables behind its own are those of the layout and the maps."""
    reject_nan(points)
    layout, maps = opened(table[OWN:], Layout), opened(table[OWN + _LAYOUT :], Maps)
    codes = np.empty(points.shape, np.uint8)
    encode_points(layout.edges, layout.first_edge, points, codes)
    beside = max_beside(table, others)
    rows = np.empty(FIRST_ROWS + beside, np.int32)
    numbers, places = np.empty(192 * _TILE, np.int32), np.empty(64 * _TILE, np.int64)
    scratch = numbers, places, np.empty(64 * _TILE, np.uint32)
    tile = filled = ZERO
    while True:
        out = rows[: len(rows) - beside]
        tile, filled = _search_maps(layout, maps, points, codes, scratch, tile, out, filled)
        if tile == maps.words:
            break
        rows = more_room(rows, filled)
    return rows[: put_beside(table, points, others, rows, filled)]
