"""How `slabs` searches its layout: many events against one box, or many boxes against one event.

A batch of events is itself made into bitmaps: bit e of row c of attribute j's table says that
event e lies in slab c or above. The events that may lie in a box are then the AND, over its
attributes, of one row and not another: LANES events at a time, however many boxes there are and
whatever they mention. This is done for the hulls of the blocks first. A block that many events
may lie in is taken box by box in the same way; in one that only a few may lie in, each of them is
compared with the codes of 64 boxes at a time. Both ways give the same candidates; whichever
looks at fewer words is taken.

A candidate that lies strictly between the slabs of its bounds holds for sure. Only the others,
which share a slab with a bound, are compared exactly.

Kernels count `visited`, words of 64 comparisons, and `tested`, boxes compared exactly.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rangecast.kernels.bits import (
    LANE_WORDS,
    LANES,
    aligned_words,
    bits_set,
    copy_row,
    lowest_bit,
    narrow,
    offset,
    pointer,
    touching,
    within,
    words_in_use,
)
from rangecast.kernels.grid import cells_of
from rangecast.kernels.jit import jit, jit_single
from rangecast.match.slabs_layout import (
    BLOCK,
    CODE,
    FIRST_BLOCK,
    HULL,
    MISSING,
    SLOT,
    Bytes,
    Floats,
    Ints,
    Layout,
    Rows,
    Words,
)


class Scratch(NamedTuple):
    """Room that a search of up to `chunks` * LANES events works in."""

    table: Words
    """(d, chunks, TABLE_ROWS) rows of lanes."""
    hull_rows: Words
    """(chunks, BLOCK) rows of lanes: the events in each hull."""
    box_rows: Words
    """(BLOCK,) rows of lanes: the events that may lie in each box."""
    sure_rows: Words
    """(BLOCK,) rows of lanes: those of them that surely do."""
    masks: Words
    """(chunks * LANES,) the boxes that may hold each event."""
    waiting: Ints
    """(chunks * LANES + 4,) events that are to be compared with the boxes of a block."""
    doubts: Ints
    """(DOUBTS + LANES,) pairs to be compared exactly."""
    picked: Ints
    """(2, 68) box rows that are not empty, and their words that are not."""

    @classmethod
    def for_events(cls, d: int, chunks: int) -> Scratch:
        """Return room for so many chunks of events with d attributes."""
        return cls(
            aligned_words(d * chunks * TABLE_ROWS),
            aligned_words(chunks * BLOCK),
            aligned_words(BLOCK),
            aligned_words(BLOCK),
            aligned_words(chunks * LANES // LANE_WORDS),
            np.empty(chunks * LANES + 4, np.int64),
            np.empty(DOUBTS + LANES, np.int64),
            np.empty((2, 68), np.int64),
        )


DOUBTS = 1024
"""Pairs that are put off, to be compared exactly together."""
TABLE_ROWS = 257
"""Rows of an attribute's table: one for each code, and one that no event is in."""
ALL = np.uint64(0xFFFFFFFFFFFFFFFF)


@jit
def encode(edges: Floats, first_edge: Ints, points: Floats, codes: Bytes) -> None:
    """Write the codes of some events, (events, d)."""
    cells = np.empty(len(points), np.int32)
    for j in range(points.shape[1]):
        mine = edges[first_edge[j] : first_edge[j + 1]]
        cells_of(mine, points[:, j], cells)
        missing = len(mine) + 1
        for e in range(len(points)):
            codes[e, j] = MISSING if cells[e] == missing else cells[e] + 1


@jit
def tabulate(codes: Bytes, chunks: int, table: Words) -> None:
    """Make the tables of some events: attribute by attribute, `chunks` of LANES events each."""
    events, d = codes.shape
    table[:] = 0
    for j in range(d):
        for chunk in range(chunks):
            base = (j * chunks + chunk) * TABLE_ROWS * LANE_WORDS
            first = chunk * LANES
            for e in range(first, min(first + LANES, events)):
                lane = e - first
                at = base + np.int64(codes[e, j]) * LANE_WORDS + (lane >> 6)
                table[at] |= np.uint64(1) << np.uint64(lane & 63)
            for at in range(base + 255 * LANE_WORDS - 1, base - 1, -1):
                table[at] |= table[at + LANE_WORDS]


@jit
def _sift(
    rows: Words,
    row: int,
    codes: Bytes,
    base: int,
    stride: int,
    count: int,
    attributes: Rows,
    width: int,
    table: Words,
    chunks: int,
    chunk: int,
) -> None:
    """Narrow `count` rows to the events that may lie in as many boxes.

    The bounds of box i in slot s have their codes at base + 2 * s * stride + i, and stride on.
    """
    for s in range(width):
        j = np.int64(attributes[s])
        mine = (j * chunks + chunk) * TABLE_ROWS
        low = base + 2 * s * stride
        for i in range(count):
            kept = mine + np.int64(codes[low + i])
            dropped = mine + np.int64(codes[low + stride + i]) + 1
            narrow(rows, row + i * LANE_WORDS, table, kept * LANE_WORDS, dropped * LANE_WORDS)


@jit
def _sift_surely(
    rows: Words,
    candidates: Words,
    picked: Ints,
    count: int,
    codes: Bytes,
    base: int,
    stride: int,
    attributes: Rows,
    width: int,
    rough: Bytes,
    table: Words,
    chunks: int,
    chunk: int,
) -> None:
    """Fill row k with those of the candidates of box picked[k] that are sure to lie in it."""
    for k in range(count):
        copy_row(rows, k * LANE_WORDS, candidates, picked[k] * LANE_WORDS)
    for s in range(width):
        j = np.int64(attributes[s])
        if rough[j] == 0:
            continue
        mine = (j * chunks + chunk) * TABLE_ROWS
        low = base + 2 * s * stride
        for k in range(count):
            kept = mine + np.int64(codes[low + picked[k]]) + 1
            dropped = mine + np.int64(codes[low + stride + picked[k]])
            narrow(rows, k * LANE_WORDS, table, kept * LANE_WORDS, dropped * LANE_WORDS)


@jit
def _holds(
    bounds: Floats,
    place: int,
    stride: int,
    attributes: Rows,
    width: int,
    points: Floats,
    point: int,
) -> bool:
    """Compare a box with an event exactly."""
    for s in range(width):
        value = points[point + attributes[s]]
        if not ((bounds[place] <= value) & (value <= bounds[place + stride])):
            return False
        place += 2 * stride
    return True


@jit
def _is_first(layout: Layout, box: int, points: Floats, e: int) -> bool:
    """Whether no earlier box of the same subscription holds the event."""
    other = layout.earlier[box]
    while other >= 0:
        block = np.searchsorted(layout.blocks, other, side="right") - 1
        run = np.searchsorted(layout.runs[:, FIRST_BLOCK], block, side="right") - 1
        first = layout.blocks[layout.runs[run, FIRST_BLOCK]]
        slots = layout.attributes[layout.runs[run, SLOT] : layout.runs[run + 1, SLOT]]
        begin = layout.blocks[block]
        place = layout.runs[run, CODE] + 2 * len(slots) * (begin - first) + other - begin
        size = layout.blocks[block + 1] - begin
        held = _holds(
            pointer(layout.bounds),
            place,
            size,
            pointer(slots),
            len(slots),
            pointer(points),
            e * points.shape[1],
        )
        if held:
            return False
        other = layout.earlier[other]
    return True


@jit
def _candidates(
    codes: Bytes,
    base: int,
    size: int,
    attributes: Rows,
    width: int,
    events: Bytes,
    event: int,
    mask: np.uint64,
) -> np.uint64:
    """Return which boxes of a block may hold an event."""
    for s in range(width):
        mask &= within(codes, base, base + size, events[event + attributes[s]])
        base += 2 * size
        if s & 3 == 3 and mask == 0:  # now and then: a branch costs more than a comparison
            break
    return mask


@jit
def _doubtful(
    codes: Bytes,
    base: int,
    size: int,
    attributes: Rows,
    width: int,
    rough: Bytes,
    events: Bytes,
    event: int,
) -> np.uint64:
    """Return which boxes have a bound inside a slab that the event is in."""
    doubt = np.uint64(0)
    for s in range(width):
        j = attributes[s]
        touched = touching(codes, base, base + size, events[event + j])
        if rough[j] != 0:
            doubt |= touched
        base += 2 * size
    return doubt


@jit
def _list_bits(word: np.uint64, first: int, out: Ints, filled: int) -> int:
    """Append first + b for each bit b of a word; return where the list ends.

    Four at a time, so that the usual word takes one turn: `out` needs room for four more.
    """
    end = filled + bits_set(word)
    one = np.uint64(1)
    while filled < end:
        out[filled] = first + lowest_bit(word)
        word &= word - one
        out[filled + 1] = first + lowest_bit(word)
        word &= word - one
        out[filled + 2] = first + lowest_bit(word)
        word &= word - one
        out[filled + 3] = first + lowest_bit(word)
        word &= word - one
        filled += 4
    return end


@jit
def _up_to(count: int) -> np.uint64:
    """Return a word with the lowest `count` bits set."""
    if count >= 64:
        return ALL
    return (np.uint64(1) << np.uint64(max(count, 0))) - np.uint64(1)


@jit
def _settle(
    doubts: Ints,
    count: int,
    begin: int,
    bounds: Floats,
    base: int,
    size: int,
    attributes: Rows,
    width: int,
    points: Floats,
    d: int,
    pairs: Ints,
    filled: int,
) -> int:
    """Append those of the doubtful pairs of a block that hold; return where the pairs end."""
    for i in range(count):
        pair = doubts[i]
        place = base + (pair & 0xFFFFFFFF) - begin
        pairs[filled] = pair
        filled += _holds(bounds, place, size, attributes, width, points, (pair >> 32) * d)
    return filled


@jit
def search_batch(
    layout: Layout, all_points: Floats, all_codes: Bytes, chunks: int, scratch: Scratch, out: Ints
) -> tuple[int, int, int]:
    """Write event << 32 | box for all matches of some events.

    Returns how many pairs there are, or -1 if they may not fit into `out`, and the work.
    """
    events, d = all_points.shape
    filled = visited = tested = 0
    room = len(out) - 4
    runs, blocks = pointer(layout.runs), pointer(layout.blocks)
    box_codes, hulls, bounds = pointer(layout.codes), pointer(layout.hulls), pointer(layout.bounds)
    rough = pointer(layout.rough)
    points, codes, pairs = pointer(all_points), pointer(all_codes), pointer(out)
    table = pointer(scratch.table)
    hull_rows, box_rows = pointer(scratch.hull_rows), pointer(scratch.box_rows)
    sure_rows, masks = pointer(scratch.sure_rows), pointer(scratch.masks)
    waiting, doubts = pointer(scratch.waiting), pointer(scratch.doubts)
    picked, words = pointer(scratch.picked[0]), pointer(scratch.picked[1])
    for run in range(len(layout.runs) - 1):
        slot = runs[4 * run + SLOT]
        width = runs[4 * run + 4 + SLOT] - slot
        attributes = offset(layout.attributes, slot)
        first, last = runs[4 * run + FIRST_BLOCK], runs[4 * run + 4 + FIRST_BLOCK]
        run_base = runs[4 * run + CODE]
        for tile in range(first, last, BLOCK):
            tiled = min(BLOCK, last - tile)
            for chunk in range(chunks):
                start = chunk * BLOCK * LANE_WORDS
                for w in range(LANE_WORDS):
                    hull_rows[start + w] = _up_to(events - chunk * LANES - 64 * w)
                for i in range(1, tiled):
                    copy_row(hull_rows, start + i * LANE_WORDS, hull_rows, start)
                _sift(
                    hull_rows,
                    start,
                    hulls,
                    runs[4 * run + HULL] + tile - first,
                    last - first,
                    tiled,
                    attributes,
                    width,
                    table,
                    chunks,
                    chunk,
                )
                visited += LANE_WORDS * tiled * width
            for i in range(tiled):
                block = tile + i
                begin = blocks[block]
                size = blocks[block + 1] - begin
                base = run_base + 2 * width * (begin - blocks[first])
                whole = _up_to(size)
                put_off = 0
                doubtful = 0
                for chunk in range(chunks):
                    row = (chunk * BLOCK + i) * LANE_WORDS
                    if words_in_use(hull_rows, row) == 0:
                        continue
                    alive = 0
                    for w in range(LANE_WORDS):
                        alive += bits_set(hull_rows[row + w])
                    if alive < size:
                        for w in range(LANE_WORDS):
                            put_off = _list_bits(
                                hull_rows[row + w], chunk * LANES + w * 64, waiting, put_off
                            )
                        continue
                    if filled + doubtful + alive * size > room:
                        return -1, visited, tested
                    for k in range(size):
                        copy_row(box_rows, k * LANE_WORDS, hull_rows, row)
                    _sift(
                        box_rows,
                        0,
                        box_codes,
                        base,
                        size,
                        size,
                        attributes,
                        width,
                        table,
                        chunks,
                        chunk,
                    )
                    visited += LANE_WORDS * size * width
                    some = 0
                    for lane in range(size):
                        picked[some] = lane
                        some += words_in_use(box_rows, lane * LANE_WORDS) != 0
                    _sift_surely(
                        sure_rows,
                        box_rows,
                        picked,
                        some,
                        box_codes,
                        base,
                        size,
                        attributes,
                        width,
                        rough,
                        table,
                        chunks,
                        chunk,
                    )
                    visited += LANE_WORDS * some * width
                    for k in range(some):
                        lane = picked[k]
                        used = words_in_use(box_rows, lane * LANE_WORDS)
                        while used:
                            w = lowest_bit(used)
                            used &= used - np.uint64(1)
                            maybe = box_rows[lane * LANE_WORDS + w]
                            surely = sure_rows[k * LANE_WORDS + w]
                            pair = (chunk * LANES + w * 64) << 32 | (begin + lane)
                            while maybe:
                                bit = lowest_bit(maybe)
                                maybe &= maybe - np.uint64(1)
                                sure = np.int64((surely >> np.uint64(bit)) & np.uint64(1))
                                pairs[filled] = pair + (bit << 32)
                                filled += sure
                                doubts[doubtful] = pair + (bit << 32)
                                doubtful += 1 - sure
                        if doubtful > DOUBTS:
                            tested += doubtful
                            filled = _settle(
                                doubts,
                                doubtful,
                                begin,
                                bounds,
                                base,
                                size,
                                attributes,
                                width,
                                points,
                                d,
                                pairs,
                                filled,
                            )
                            doubtful = 0
                if filled + doubtful + put_off * size > room:
                    return -1, visited, tested
                visited += put_off * width
                candidates = 0
                for at in range(put_off):
                    e = waiting[at]
                    mask = _candidates(
                        box_codes, base, size, attributes, width, codes, e * d, whole
                    )
                    masks[candidates] = mask
                    waiting[candidates] = e
                    candidates += mask != 0
                for at in range(candidates):
                    e = waiting[at]
                    mask = masks[at]
                    doubt = mask & _doubtful(
                        box_codes, base, size, attributes, width, rough, codes, e * d
                    )
                    filled = _list_bits(mask ^ doubt, e << 32 | begin, pairs, filled)
                    doubtful = _list_bits(doubt, e << 32 | begin, doubts, doubtful)
                    if doubtful > DOUBTS:
                        tested += doubtful
                        filled = _settle(
                            doubts,
                            doubtful,
                            begin,
                            bounds,
                            base,
                            size,
                            attributes,
                            width,
                            points,
                            d,
                            pairs,
                            filled,
                        )
                        doubtful = 0
                tested += doubtful
                filled = _settle(
                    doubts,
                    doubtful,
                    begin,
                    bounds,
                    base,
                    size,
                    attributes,
                    width,
                    points,
                    d,
                    pairs,
                    filled,
                )
    if len(layout.earlier):
        kept = 0
        for i in range(filled):
            out[kept] = out[i]
            kept += _is_first(layout, out[i] & 0xFFFFFFFF, all_points, out[i] >> 32)
        filled = kept
    return filled, visited, tested


@jit
def by_event(pairs: Ints, owner: Rows, offsets: Ints, rows: Rows) -> None:
    """Sort pairs by event: fill `rows`, and `offsets` (events + 1) of each event's rows in it."""
    offsets[:] = 0
    for i in range(len(pairs)):
        offsets[(pairs[i] >> 32) + 1] += 1
    for e in range(len(offsets) - 1):
        offsets[e + 1] += offsets[e]
    places = offsets[:-1].copy()
    for i in range(len(pairs)):
        e = pairs[i] >> 32
        rows[places[e]] = owner[pairs[i] & 0xFFFFFFFF]
        places[e] += 1


@jit
def _search_one(
    layout: Layout,
    all_points: Floats,
    all_codes: Bytes,
    e: int,
    run: int,
    block: int,
    all_rows: Rows,
) -> tuple[int, int, int, int, int]:
    """Write the subscriptions that hold one event, from a block on.

    Stops where less than a block's room is left; returns where to go on, rows written, work.
    """
    filled = visited = tested = 0
    several = len(layout.earlier) > 0
    d = all_points.shape[1]
    points, codes, rows = pointer(all_points), pointer(all_codes), pointer(all_rows)
    runs, blocks = pointer(layout.runs), pointer(layout.blocks)
    box_codes, hulls, bounds = pointer(layout.codes), pointer(layout.hulls), pointer(layout.bounds)
    rough, owner = pointer(layout.rough), pointer(layout.owner)
    for run in range(run, len(layout.runs) - 1):
        slot = runs[4 * run + SLOT]
        width = runs[4 * run + 4 + SLOT] - slot
        attributes = offset(layout.attributes, slot)
        first, last = runs[4 * run + FIRST_BLOCK], runs[4 * run + 4 + FIRST_BLOCK]
        for tile in range(max(first, block), last, BLOCK):
            alive = _up_to(last - tile)
            if last - first > 1:
                alive = _candidates(
                    hulls,
                    runs[4 * run + HULL] + tile - first,
                    last - first,
                    attributes,
                    width,
                    codes,
                    e * d,
                    alive,
                )
                visited += width
            while alive:
                here = tile + lowest_bit(alive)
                alive &= alive - np.uint64(1)
                if filled + BLOCK > len(all_rows):
                    return run, here, filled, visited, tested
                begin = blocks[here]
                size = blocks[here + 1] - begin
                base = runs[4 * run + CODE] + 2 * width * (begin - blocks[first])
                mask = _candidates(
                    box_codes, base, size, attributes, width, codes, e * d, _up_to(size)
                )
                visited += width
                if mask == 0:
                    continue
                doubt = mask & _doubtful(
                    box_codes, base, size, attributes, width, rough, codes, e * d
                )
                surely = mask ^ doubt
                while surely:
                    lane = lowest_bit(surely)
                    surely &= surely - np.uint64(1)
                    rows[filled] = owner[begin + lane]
                    filled += not several or _is_first(layout, begin + lane, all_points, e)
                while doubt:
                    lane = lowest_bit(doubt)
                    doubt &= doubt - np.uint64(1)
                    tested += 1
                    rows[filled] = owner[begin + lane]
                    if _holds(bounds, base + lane, size, attributes, width, points, e * d):
                        filled += not several or _is_first(layout, begin + lane, all_points, e)
    return len(layout.runs) - 1, 0, filled, visited, tested


@jit_single
def search_single(
    layout: Layout, point: Floats, run: int, block: int, rows: Rows
) -> tuple[int, int, int, int, int]:
    """Encode one event and search it; the rest as `_search_one`."""
    codes = np.empty((1, len(point)), np.uint8)
    points = point.reshape(1, -1)
    encode(layout.edges, layout.first_edge, points, codes)
    return _search_one(layout, points, codes, 0, run, block, rows)
