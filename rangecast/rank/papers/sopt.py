"""The SOPT-R-tree (paper 003, section 3.2): an R-tree whose boxes are arranged to leave few holes.

Only boxes that meet must keep the order of their scores; the others may lie where they fit best.
`graph` finds which must come before which: boxes are laid on the line from the best to the worst,
each hides what it lies on, and those of which it hides something must come before it. Every box
leaves at most two visible pieces more than there were, so there are at most 3n such pairs, found in
n log n. `arranged` takes, of the boxes that nothing must come before any more, the one that begins
first. For the top k at most 2k pages of a level are opened.

The line is that of cells between bounds (`kernels.grid`): ranges are closed, so boxes that touch do
meet. Ties of scores go by arrival; without a total order 3n wouldn't hold.

Where a visible piece begins is a bit; bits lie in words of 64, and above them a bit for each word
in use, and so on, so that the piece at a cell is found in log_64 n steps.
"""

from __future__ import annotations

import numpy as np

from rangecast.kernels.arrays import F64, I32, I64, U64
from rangecast.kernels.bits import lowest_bit
from rangecast.kernels.grid import cells_of, edges_of_bounds
from rangecast.kernels.jit import jit
from rangecast.model.boxes import Boxes
from rangecast.rank.papers.rtree import BRANCHING, single_list
from rangecast.rank.papers.source import Axis, Source, axes_of, joined


@jit
def _highest_bit(word: np.uint64) -> int:
    """Return the place of the highest bit set."""
    bit = 0
    for step in (32, 16, 8, 4, 2, 1):
        if word >> np.uint64(step):
            word >>= np.uint64(step)
            bit += step
    return bit


@jit
def _mark(bits: U64, tiers: I64, cell: int) -> None:
    for tier in range(len(tiers)):
        bits[tiers[tier] + (cell >> 6)] |= np.uint64(1) << np.uint64(cell & 63)
        cell >>= 6


@jit
def _clear(bits: U64, tiers: I64, cell: int) -> None:
    for tier in range(len(tiers)):
        word = tiers[tier] + (cell >> 6)
        bits[word] &= ~(np.uint64(1) << np.uint64(cell & 63))
        if bits[word]:
            return
        cell >>= 6


@jit
def _at_or_before(bits: U64, tiers: I64, cell: int) -> int:
    """Return the last marked cell up to this one; cell 0 is always marked."""
    tier = 0
    word = bits[cell >> 6] & (~np.uint64(0) >> np.uint64(63 - (cell & 63)))
    while word == 0:
        tier += 1
        cell = (cell >> 6) - 1
        word = bits[tiers[tier] + (cell >> 6)] & (~np.uint64(0) >> np.uint64(63 - (cell & 63)))
    slot = (cell >> 6 << 6) + _highest_bit(word)
    while tier > 0:
        tier -= 1
        slot = (slot << 6) + _highest_bit(bits[tiers[tier] + slot])
    return slot


@jit
def _after(bits: U64, tiers: I64, cell: int, cells: int) -> int:
    """Return the first marked cell after this one, `cells` if there is none."""
    tier = 0
    word = bits[cell >> 6] & (~np.uint64(1) << np.uint64(cell & 63))
    while word == 0:
        tier += 1
        if tier == len(tiers):
            return cells
        cell >>= 6
        word = bits[tiers[tier] + (cell >> 6)] & (~np.uint64(1) << np.uint64(cell & 63))
    slot = (cell >> 6 << 6) + lowest_bit(word)
    while tier > 0:
        tier -= 1
        slot = (slot << 6) + lowest_bit(bits[tiers[tier] + slot])
    return int(slot)


@jit
def _write_pairs(
    low: I64, high: I64, cells: int, bits: U64, tiers: I64, seen: I64, pairs: I32
) -> int:
    """Write the pairs of the constraint graph; return how many.

    low, high   first and last cell of each box, best box first
    seen        (cells,) the box that is seen where a visible piece begins, -1: none
    pairs       (3 boxes, 2) of each pair the box that must come first, and the other
    """
    count = 0
    for box in range(len(low)):
        begin, end = low[box], high[box]
        piece = _at_or_before(bits, tiers, begin)
        last = seen[piece]
        while piece <= end:
            last = seen[piece]
            if last >= 0:
                pairs[count, 0], pairs[count, 1] = last, box
                count += 1
            following = _after(bits, tiers, piece, cells)
            if piece > begin:
                _clear(bits, tiers, piece)
            piece = following
        if end + 1 < piece:  # the rest of the last piece
            _mark(bits, tiers, end + 1)
            seen[end + 1] = last
        _mark(bits, tiers, begin)
        seen[begin] = box
    return count


@jit
def _arrange(low: I64, first: I64, later: I32, waiting_for: I32, heap: I64, out: I64) -> None:
    """Write the boxes in their arrangement.

    later         those after box i: later[first[i]:first[i + 1]]
    waiting_for   how many must come before each box; counted down
    """
    size = 0
    for box in range(len(low)):
        if waiting_for[box] == 0:
            _push(heap, size, low, box)
            size += 1
    filled = 0
    while size:
        box = heap[0]
        size -= 1
        heap[0] = heap[size]
        _settle(heap, size, low)
        out[filled] = box
        filled += 1
        for slot in range(first[box], first[box + 1]):
            other = later[slot]
            waiting_for[other] -= 1
            if waiting_for[other] == 0:
                _push(heap, size, low, other)
                size += 1


@jit
def _earlier(low: I64, a: int, b: int) -> bool:
    """Return whether box a begins before box b or, if they begin together, is the better one."""
    return bool(low[a] < low[b] or (low[a] == low[b] and a < b))


@jit
def _push(heap: I64, size: int, low: I64, box: int) -> None:
    slot = size
    while slot and _earlier(low, box, heap[(slot - 1) >> 1]):
        heap[slot] = heap[(slot - 1) >> 1]
        slot = (slot - 1) >> 1
    heap[slot] = box


@jit
def _settle(heap: I64, size: int, low: I64) -> None:
    box = heap[0]
    slot = 0
    while 2 * slot + 1 < size:
        child = 2 * slot + 1
        if child + 1 < size and _earlier(low, heap[child + 1], heap[child]):
            child += 1
        if not _earlier(low, heap[child], box):
            break
        heap[slot] = heap[child]
        slot = child
    heap[slot] = box


def _cells(lo: F64, hi: F64) -> tuple[I64, I64, int]:
    edges = edges_of_bounds(lo, hi, 2 * len(lo) + 2)
    low, high = cells_of(edges, lo), cells_of(edges, hi)
    return low.astype(np.int64), high.astype(np.int64), len(edges) + 2


def graph(lo: F64, hi: F64) -> I32:
    """Return the constraint graph of ranges, best first: (pairs, 2), which before which."""
    return _graph(*_cells(lo, hi))


def _graph(low: I64, high: I64, cells: int) -> I32:
    words = [-(-cells // 64)]
    while words[-1] > 1:
        words.append(-(-words[-1] // 64))
    tiers = np.cumsum([0, *words[:-1]])
    bits = np.zeros(sum(words), np.uint64)
    _mark(bits, tiers, 0)
    seen = np.full(cells, -1, np.int64)
    pairs = np.empty((3 * len(low), 2), np.int32)
    return pairs[: _write_pairs(low, high, cells, bits, tiers, seen, pairs)]


def arranged(lo: F64, hi: F64) -> I64:
    """Return ranges that are given best first in their arrangement."""
    n = len(lo)
    low, high, cells = _cells(lo, hi)
    pairs = _graph(low, high, cells)
    waiting_for = np.bincount(pairs[:, 1], minlength=n).astype(np.int32)
    by_first = np.argsort(pairs[:, 0], kind="stable")
    first = np.searchsorted(pairs[by_first, 0], np.arange(n + 1))
    out = np.empty(n, np.int64)
    heap = np.empty(n + 1, np.int64)
    _arrange(low, first, pairs[by_first, 1], waiting_for, heap, out)
    return out


def sopt(boxes: Boxes, *, relaxed: bool = False, branching: int = BRANCHING) -> Source:
    """Build the SOPT-R-trees of all attributes."""
    trees = []
    for axis in axes_of(boxes, relaxed=relaxed):
        order = arranged(axis.lo, axis.hi) if len(axis.box) else np.zeros(0, np.int64)
        moved = Axis(axis.box[order], axis.lo[order], axis.hi[order])
        trees.append(single_list(moved, branching))
    return joined(trees, boxes, relaxed=relaxed, is_arranged=True)
