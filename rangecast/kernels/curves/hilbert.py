"""The Hilbert curve in any dimension: the index of a cell, and the curve ranges of a box.

A curve of d axes and b bits runs through the 2^b cells of each axis, one step at a time, and
gives each cell an index of d * b bits; both must fit 64 bits (`check_curve`). A cell is a row of d
uint64, an index is one uint64. Matching, covering and merging all stand on the same ranges, so
they are made here and nowhere else (paper 004, sections 3.2 and 3.3).

The curve's tree. A level of the curve visits the 2^d corners of a cube in Gray-code order, turned
and mirrored by two numbers: `entry`, the corner where it comes in, and `direction`, the axis along
which it leaves. Taken a bit at a time, each of the d bits that a level adds to the index halves
one axis. So the curve is a binary tree of depth d * b whose nodes are both a box of cells and a run
of indexes. A box is turned into ranges by walking down this tree in curve order: a node outside is
dropped, a node inside is a piece of a range, and only one that is cut by the box's surface is
opened. Cost: no cell is enumerated. A node that is opened has an end of a range inside it, so at
most 2 * d * b nodes are opened for each range, and two looked at for each opened.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from numba.cpython.unsafe.numbers import trailing_zeros

from rangecast.errors import UsageError
from rangecast.kernels.arrays import F64, I64, U32, U64, Bool
from rangecast.kernels.jit import jit

_ZERO = np.uint64(0)
_ONE = np.uint64(1)
_ALL = np.uint64(0xFFFF_FFFF_FFFF_FFFF)

_MAX_TABLED = 6

ROOM = 4
"""Size of the buffer for a range set, as a multiple of the final maximum of ranges."""


def check_curve(axes: int, bits: int) -> None:
    """Reject a curve whose indexes don't fit 64 bits."""
    if axes < 1 or bits < 1 or axes * bits > 64:
        raise UsageError(
            f"a Hilbert curve needs at least one axis and one bit, and axes x bits of at most 64; "
            f"given: {axes} axes of {bits} bits ({axes * bits}). Take fewer bits or fewer axes"
        )


def new_stack() -> U64:
    """Return the working memory that `ranges_of_box` needs; one for each thread."""
    return np.zeros((6, 65), np.uint64)


@jit
def _turned(word: np.uint64, by: int, width: int) -> np.uint64:
    """Rotate the low `width` bits to the left by 0 <= `by` < `width`.

    A shift by 64 has no meaning, but it can't come up: 64 axes have one level, which turns by one.
    """
    return ((word << by) | (word >> (width - by))) & (_ALL >> (64 - width))


@jit
def next_state(
    entry: np.uint64, direction: int, corner: np.uint64, axes: int
) -> tuple[np.uint64, int]:
    """Return the state of the sub-cube that is visited as number `corner`.

    Branch-free: half of the branches would be mispredicted, which would be most of the cost.
    """
    later = np.uint64(corner != _ZERO)
    before = corner - later
    even = before & (_ALL ^ _ONE)
    turn = int(np.int64(trailing_zeros(_ALL ^ (before | later))))
    turn -= axes if turn >= axes else 0
    shift = direction + 1
    shift -= axes if shift >= axes else 0
    following = shift + turn
    following -= axes if following >= axes else 0
    return entry ^ _turned(even ^ (even >> 1), shift, axes), following


@jit
def _number(entry: np.uint64, direction: int, corner: np.uint64, axes: int) -> np.uint64:
    """Return the step at which a level in this state visits a corner: its Gray code, unrotated."""
    number = _turned(corner ^ entry, axes - 1 - direction, axes)
    shift = 1
    while shift < axes:
        number ^= number >> shift
        shift <<= 1
    return number


@jit
def _fill_turns(axes: int, turns: U32) -> None:
    for state in range(axes << axes):
        entry, direction = np.uint64(state) & (_ALL >> (64 - axes)), state >> axes
        for corner in range(1 << axes):
            number = _number(entry, direction, np.uint64(corner), axes)
            inner, following = next_state(entry, direction, number, axes)
            after = (np.uint64(following) << axes) | inner
            turns[(state << axes) | corner] = (after << axes) | number


@cache
def turns_of(axes: int) -> U32:
    """Return the table that makes `index_of` fast: (state, corner) -> (state, number).

    A state is a direction and an entry. The table is empty if it would not fit the cache.
    """
    turns = np.zeros(axes << (2 * axes) if axes <= _MAX_TABLED else 0, np.uint32)
    if len(turns):
        _fill_turns(axes, turns)
    turns.flags.writeable = False
    return turns


@jit
def index_of(cell: U64, bits: int, turns: U32) -> np.uint64:
    """Return the index of a cell on the curve; `turns` is the result of `turns_of`."""
    axes = len(cell)
    mask = _ALL >> (64 - axes)
    tabled = len(turns) > 0
    state, entry, direction = _ZERO, _ZERO, 0
    index = _ZERO
    for level in range(bits - 1, -1, -1):
        corner = _ZERO
        for axis in range(axes):
            corner |= ((cell[axis] >> level) & _ONE) << axis
        if tabled:
            after = np.uint64(turns[state | corner])
            state = after & ~mask
            number = after & mask
        else:
            number = _number(entry, direction, corner, axes)
            entry, direction = next_state(entry, direction, number, axes)
        index = number if axes == 64 else (index << axes) | number
    return index


@jit
def indexes_of(cells: U64, bits: int, turns: U32, out: U64) -> None:
    """Write the index of each row of `cells` (m, d) into `out` (m,)."""
    for i in range(len(cells)):
        out[i] = index_of(cells[i], bits, turns)


@jit
def cell_at(index: np.uint64, bits: int, out: U64) -> None:
    """Write the cell at an index of the curve into `out` (d,)."""
    axes = len(out)
    entry, direction = _ZERO, 0
    out[:] = _ZERO
    for level in range(bits - 1, -1, -1):
        number = (index >> (level * axes)) & (_ALL >> (64 - axes))
        shift = 0 if direction + 1 == axes else direction + 1
        corner = _turned(number ^ (number >> 1), shift, axes) ^ entry
        for axis in range(axes):
            out[axis] |= ((corner >> axis) & _ONE) << level
        entry, direction = next_state(entry, direction, number, axes)


@jit
def cells_at(indexes: U64, bits: int, out: U64) -> None:
    """Write the cell of each index into the rows of `out` (m, d)."""
    for i in range(len(indexes)):
        cell_at(indexes[i], bits, out[i])


@jit
def expected_ranges(first: U64, last: U64, bits: int, dropped: int) -> float:
    """Return the expected number of ranges of a box: its surface / 2d, in cells (Eq. 1).

    The lowest `dropped` bits are left off the cells. A face on the rim of the space costs nothing.
    """
    top = _ALL >> (64 - bits)
    cells, faces = 1.0, 0.0
    for axis in range(len(first)):
        width = float((last[axis] >> dropped) - (first[axis] >> dropped)) + 1.0
        inner = (first[axis] >> dropped != _ZERO) + (last[axis] >> dropped != top >> dropped)
        cells *= width
        faces += inner / width
    return max(1.0, cells * faces / (2 * len(first)))


@jit
def _coarsening(first: U64, last: U64, bits: int, room: int) -> int:
    """Return the number of bits to drop so that at most `room` ranges are expected."""
    dropped = 0
    while dropped < bits - 1 and expected_ranges(first, last, bits, dropped) > room:
        dropped += 1
    return dropped


@jit
def ranges_of_box(
    first: U64, last: U64, bits: int, limit: int, starts: U64, ends: U64, stack: U64
) -> tuple[int, int]:
    """Write the curve ranges of the cells first .. last (both included) in ascending order.

    The ranges are closed and maximal, `limit` at most: past it they are joined over their
    smallest gaps, so that no cell is ever lost. `starts` and `ends` have room for ROOM * limit. A
    box that would need much more is taken in larger cells, and where the room runs out all the
    same, small gaps are joined on the way and nodes that are small beside them taken whole: so
    the work is bounded as well. Returns how many ranges, and how many nodes were looked at.
    """
    axes = len(first)
    cut, entries, directions, corners = stack[0], stack[1], stack[2], stack[3]
    lowest, highest = stack[4], stack[5]
    top = _ALL >> (64 - bits)
    dropped = _coarsening(first, last, bits, 2 * len(starts))
    cut[0] = _ZERO
    for axis in range(axes):
        lowest[axis] = (first[axis] >> dropped) << dropped
        highest[axis] = last[axis] | ((_ONE << dropped) - _ONE)
        if lowest[axis] != _ZERO or highest[axis] != top:
            cut[0] |= _ONE << axis
        corners[axis] = _ZERO
    if cut[0] == _ZERO:
        starts[0], ends[0] = _ZERO, _ALL >> (64 - axes * bits)
        return 1, 1
    entries[bits - 1], directions[bits - 1] = _ZERO, _ZERO
    path, child = _ZERO, _ZERO
    level, step = bits - 1, axes - 1  # the bit of the coordinates, the bit of the corner's number
    left = axes * bits  # bits of the index below the node whose children are looked at
    depth = 0
    count = visited = 0
    gap = _ZERO  # gaps up to this are joined
    while True:
        visited += 1
        axis = step + int(np.int64(directions[level])) + 1
        if axis >= axes:
            axis -= axes
        above = _ZERO if step == axes - 1 else path & _ONE
        open_axes = cut[depth]
        outside = False
        if (open_axes >> axis) & _ONE:
            half = child ^ above ^ ((entries[level] >> axis) & _ONE)
            low = _ZERO if level == 63 else (corners[axis] >> (level + 1)) << (level + 1)
            low |= half << level
            high = low | ((_ONE << level) - _ONE)
            corners[axis] = low
            outside = high < lowest[axis] or low > highest[axis]
            if lowest[axis] <= low and high <= highest[axis]:
                open_axes ^= _ONE << axis
        below = left - 1
        if not outside:
            path = (path << 1) | child
            if open_axes and (_ONE << below) > gap >> 2:
                depth += 1
                left = below
                cut[depth] = open_axes
                if step:
                    step -= 1
                else:
                    number = path & (_ALL >> (64 - axes))
                    entry, direction = next_state(
                        entries[level], int(np.int64(directions[level])), number, axes
                    )
                    level -= 1
                    step = axes - 1
                    entries[level], directions[level] = entry, np.uint64(direction)
                child = _ZERO
                continue
            start = path << below
            end = start | ((_ONE << below) - _ONE)
            path >>= 1
            if count == len(starts) and start - ends[count - 1] - _ONE > gap:
                count, gap = _make_room(starts, ends, count)
            if count and start - ends[count - 1] - _ONE <= gap:
                ends[count - 1] = end
            else:
                starts[count], ends[count] = start, end
                count += 1
        while child:
            if depth == 0:
                return join_smallest(starts, ends, count, limit), visited
            depth -= 1
            left += 1
            child = path & _ONE
            path >>= 1
            step += 1
            if step == axes:
                step = 0
                level += 1
        child = _ONE


@jit
def _make_room(starts: U64, ends: U64, count: int) -> tuple[int, np.uint64]:
    """Join at least half of the ranges over their smaller gaps; return their number and the gap.

    The gap is one less than a power of two, so that it grows fast and the next call is far off.
    """
    gap = _ZERO
    joined = 0
    while 2 * joined < count - 1:
        gap = (gap << 1) | _ONE
        joined = 0
        for i in range(1, count):
            joined += starts[i] - ends[i - 1] - _ONE <= gap
    return _join(starts, ends, count, gap, 0), gap


@jit
def join_smallest(starts: U64, ends: U64, count: int, limit: int) -> int:
    """Join ranges over their smallest gaps until at most `limit` are left."""
    surplus = count - limit
    if surplus <= 0:
        return count
    largest = _ZERO  # such that the gaps below it are no more than the surplus
    for bit in range(63, -1, -1):
        trial = largest | (_ONE << bit)
        below = 0
        for i in range(1, count):
            below += starts[i] - ends[i - 1] - _ONE < trial
        if below <= surplus:
            largest = trial
    for i in range(1, count):
        surplus -= starts[i] - ends[i - 1] - _ONE < largest
    return _join(starts, ends, count, largest - _ONE, surplus)


@jit
def _join(starts: U64, ends: U64, count: int, gap: np.uint64, more: int) -> int:
    """Join all ranges at most `gap` apart, and `more` of those whose gap is one larger."""
    kept = 0
    for i in range(1, count):
        apart = starts[i] - ends[kept] - _ONE
        extra = more > 0 and apart == gap + _ONE
        if apart <= gap or extra:
            ends[kept] = ends[i]
            more -= extra
        else:
            kept += 1
            starts[kept], ends[kept] = starts[i], ends[i]
    return kept + 1


@jit
def ranges_of_boxes(
    first: U64,
    last: U64,
    bits: int,
    limit: int,
    box: int,
    starts: U64,
    ends: U64,
    offsets: I64,
    stack: U64,
) -> tuple[int, int]:
    """Write the range sets of the boxes (n, d) from `box` on, one behind the other.

    The ranges of box i are those from offsets[i] to offsets[i + 1]; offsets[box] says where there
    is room. Stops when less than ROOM * limit is left; returns the next box and the nodes looked
    at.
    """
    visited = 0
    while box < len(first):
        filled = offsets[box]
        if filled + ROOM * limit > len(starts):
            break
        room = slice(filled, filled + ROOM * limit)
        count, looked_at = ranges_of_box(
            first[box], last[box], bits, limit, starts[room], ends[room], stack
        )
        offsets[box + 1] = filled + count
        visited += looked_at
        box += 1
    return box, visited


def axes_by_selectivity(lo: F64, hi: F64, events: F64 | None = None) -> I64:
    """Return the axes of boxes (n, d), the most selective first.

    Selectivity is the share of boxes that contain a value of `events`, (m, d); without events, the
    finite bounds of the boxes are the sample.
    """
    held = np.ones(lo.shape[1])
    for axis in range(lo.shape[1]):
        low, high = lo[:, axis], hi[:, axis]
        bounds = low > -np.inf
        values = np.concatenate([low[bounds], high[bounds]]) if events is None else events[:, axis]
        if len(values) and len(lo):
            values = np.sort(values)
            among = np.searchsorted(values, high, "right") - np.searchsorted(values, low, "left")
            held[axis] = among.mean() / len(values)
    return np.argsort(held, kind="stable").astype(np.int64)


def groups_by_axes(
    mentioned: Bool, order: I64, most: int, smallest: int
) -> tuple[I64, list[list[int]]]:
    """Choose the axes of the curve of each box: return its group, and each group's axes.

    A box takes the first axes that it mentions in `order`, up to `most`: on an axis that it doesn't
    mention it would be as long as the space. It takes one more axis only with enough company: s
    axes need `smallest` * 3^s boxes, or the curve couldn't tell them apart along each.
    """
    boxes, dimensions = mentioned.shape
    group = np.zeros(boxes, np.int64)
    axes: list[list[int]] = [[]]
    ranked = mentioned[:, order]
    growing = np.arange(boxes)
    for size in range(1, min(most, dimensions) + 1):
        first = np.argmax(ranked[growing], axis=1)
        has_more = ranked[growing, first]
        growing, first = growing[has_more], first[has_more]
        ranked[growing, first] = False
        parent_and_axis = group[growing] * dimensions + first
        groups, which, counts = np.unique(parent_and_axis, return_inverse=True, return_counts=True)
        enough = counts >= smallest * 3**size
        number = np.cumsum(enough) - 1 + len(axes)
        axes += [[*axes[key // dimensions], int(order[key % dimensions])] for key in groups[enough]]
        growing, which = growing[enough[which]], which[enough[which]]
        group[growing] = number[which]
    used, group = np.unique(group, return_inverse=True)
    return group.astype(np.int64), [axes[i] for i in used]
