"""Bitmaps for single events, where boxes mention many different sets of attributes.

There `slabs` has many short runs, and a single event would look at each. For every attribute and
slab a bitmap says which boxes may hold a value in it; boxes that don't mention the attribute are in
all of them. The AND of one bitmap per attribute leaves few boxes, and each is compared exactly.
So an event costs n d / 512 steps, whatever the boxes mention, and the boxes that are left.

Layout. Boxes have the order of the `Layout`. The slabs are as many as memory allows, `SLABS` at
most: neighbouring codes share one. Memory: d * slabs / 8 bytes per box.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rangecast.kernels.arrays import F64, I32, I64, U8, U64
from rangecast.kernels.bits import bits_up_to, lowest_bit
from rangecast.kernels.bundle import Bundle, opened, pointer, pointers
from rangecast.kernels.codes import encode_points
from rangecast.kernels.jit import jit, jit_single
from rangecast.match.slabs.layout import CODE, FIRST_BLOCK, SLOT, Layout
from rangecast.match.slabs.search import Part, holds, is_first

SLABS = 64
_FEWEST_SLABS = 8
_BYTES = 250
"""That bitmaps may take per box."""
_LEAST = 2048
"""Boxes below which runs are quick enough."""
_SHORT = 256
"""Boxes of a run, in the mean, up to which bitmaps are quicker."""
_TILE = 64
"""Words that are looked at together: they stay near the processor."""


class Maps(NamedTuple):
    """The bitmaps of a `Layout`."""

    words: int
    """Of a bitmap: a multiple of _TILE."""
    shift: int
    """A code and this many bits to the right is the number of its slab."""
    maps: U64
    """Bit b of a word w of attribute j and slab s: maps[(j * slabs + s) * words + w]."""
    first_block: I32
    """Of each word: the block of its first box."""
    run_of: I32
    """Of each block."""


@jit
def _fill(table: I64, d: int, slabs: int, shift: int, words: int, maps: U64, run_of: I32) -> None:
    """Write the bitmaps, a word of all of them at a time."""
    layout = opened(table, Layout)
    boxes = layout.blocks[-1]
    column = np.empty(d * slabs, np.uint64)
    block = 0
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
                low, high = layout.codes[place] >> shift, layout.codes[place + size] >> shift
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
    if boxes < _LEAST or boxes > _SHORT * runs or slabs < _FEWEST_SLABS:
        return None
    shift = (256 // slabs).bit_length() - 1
    words = -(-boxes // (64 * _TILE)) * _TILE
    run_of = np.repeat(np.arange(runs, dtype=np.int32), np.diff(arrays.runs[:, FIRST_BLOCK]))
    first = np.searchsorted(arrays.blocks, np.arange(0, boxes, 64), side="right") - 1
    maps = np.empty(dimensions * slabs * words, np.uint64)
    _fill(layout.table, dimensions, slabs, shift, words, maps, run_of)
    return Bundle(Maps(words, shift, maps, first.astype(np.int32), run_of))


@jit
def _narrowed(maps: U64, words: int, slabs: int, shift: int, codes: U8, d: int, tile: int) -> U64:
    """Return which boxes of a tile may hold the event: the AND of a bitmap per attribute."""
    left = np.empty(_TILE, np.uint64)
    for j in range(d):
        begin = (j * slabs + (codes[0, j] >> shift)) * words + tile
        for w in range(_TILE):
            left[w] = maps[begin + w] if j == 0 else left[w] & maps[begin + w]
    return left


@jit_single
def search_maps(
    table: I64, maps_table: I64, point: F64, word: int, out: I32, filled: int
) -> tuple[int, int]:
    """Append the subscriptions that hold one event, from a word on.

    Stops where there is less than a word's room. Returns the word to go on with (the number of
    words when done) and how far `out` is filled.
    """
    layout, maps = opened(table, Layout), opened(maps_table, Maps)
    at, rows = pointers(layout), pointer(out, 0)
    codes = np.empty((1, len(point)), np.uint8)
    encode_points(layout.edges, layout.first_edge, point.reshape(1, -1), codes)
    values = pointer(point, 0)
    d, several = len(point), len(layout.earlier) > 0
    words, shift, slabs = maps.words, maps.shift, 256 >> maps.shift
    for tile in range(word // _TILE * _TILE, words, _TILE):
        left = _narrowed(pointer(maps.maps, 0), words, slabs, shift, codes, d, tile)
        for w in range(max(0, word - tile), _TILE):
            mask = left[w]
            if mask == 0:
                continue
            if filled + 64 > len(out):
                return tile + w, filled
            first = 64 * (tile + w)
            block = maps.first_block[tile + w]
            while mask:
                box = first + lowest_bit(mask)
                mask &= mask - np.uint64(1)
                while at.blocks[block + 1] <= box:
                    block += 1
                begin = at.blocks[block]
                if (at.dead[block] >> np.uint64(box - begin)) & np.uint64(1):
                    continue
                run = 4 * maps.run_of[block]
                slot = at.runs[run + SLOT]
                width, size = at.runs[run + 4 + SLOT] - slot, at.blocks[block + 1] - begin
                before = begin - at.blocks[at.runs[run + FIRST_BLOCK]]
                base = at.runs[run + CODE] + 2 * width * before
                attributes = pointer(at.attributes, slot)
                part = Part(at.codes, base, size, size, attributes, width)
                if holds(part, box - begin, at.bounds, values, 0) and not (
                    several and not is_first(layout, box, values, 0)
                ):
                    rows[filled] = at.owner[box]
                    filled += 1
    return words, filled
