"""Share of a weighted grid that lies in ranges of the Hilbert curve.

Each cell of an axis has a weight, and a cell of the grid the product of its own; a cell that no
value can have weighs nothing. A range is cut into the blocks of the curve's binary tree; a block is
a box, so it weighs the product of what its sides do. All terms are added and none taken off: what
holds nothing weighs exactly 0.

    sums, sum_at   the sums of the weights of the cells below each cell, axis behind axis; those of
                   axis i are sums[sum_at[i] : sum_at[i + 1]]. Cells past their end weigh nothing

Cost: two walks down the tree a range, of axes x bits steps each.
"""

from __future__ import annotations

import numpy as np

from rangecast.kernels.arrays import F64, I64, U64
from rangecast.kernels.curves.hilbert import next_state
from rangecast.kernels.jit import jit

_ALL = np.uint64(0xFFFF_FFFF_FFFF_FFFF)
_ZERO = np.uint64(0)
_ONE = np.uint64(1)


@jit
def _weight(sums: F64, first: np.uint64, last: np.uint64) -> float:
    """Return the weight of the cells first .. last of one axis."""
    end = np.uint64(len(sums) - 1)
    return float(sums[min(last, end - _ONE) + _ONE] - sums[first]) if first < end else 0.0


@jit
def _beside(
    key: np.uint64,
    shared: int,
    later: bool,
    bits: int,
    sums: F64,
    sum_at: I64,
    corner: U64,
    sides: F64,
) -> float:
    """Return the weight of a place, with all before (or `later`) it in its block of `shared` bits.

    `corner` and `sides` (axes,) are working memory: the block on the way down, and the weights of
    its sides.
    """
    axes = len(corner)
    for axis in range(axes):
        corner[axis] = _ZERO
        sides[axis] = sums[sum_at[axis + 1] - 1]
    entry, direction = _ZERO, 0
    total = 0.0
    depth = 0
    for level in range(bits - 1, -1, -1):
        number = (key >> (level * axes)) & (_ALL >> (64 - axes))
        above = _ZERO
        size = (_ONE << level) - _ONE
        for bit in range(axes - 1, -1, -1):
            axis = bit + direction + 1
            if axis >= axes:
                axis -= axes
            mine = sums[sum_at[axis] : sum_at[axis + 1]]
            child = (number >> bit) & _ONE
            half = child ^ above ^ ((entry >> axis) & _ONE)
            if depth >= shared and (child == _ZERO) == later:
                other = corner[axis] | ((half ^ _ONE) << level)
                weight = _weight(mine, other, other | size)
                for i in range(axes):
                    if i != axis:
                        weight *= sides[i]
                total += weight
            corner[axis] |= half << level
            sides[axis] = _weight(mine, corner[axis], corner[axis] | size)
            above = child
            depth += 1
        entry, direction = next_state(entry, direction, number, axes)
    weight = 1.0
    for axis in range(axes):
        weight *= sides[axis]
    return total + weight


@jit
def weight_of_ranges(starts: U64, ends: U64, bits: int, sums: F64, sum_at: I64, out: F64) -> None:
    """Write the weight of each range of the curve into `out`."""
    axes = len(sum_at) - 1
    corner, sides = np.empty(axes, np.uint64), np.empty(axes, np.float64)
    for i in range(len(starts)):
        shared = axes * bits
        apart = starts[i] ^ ends[i]
        while apart != _ZERO:
            apart >>= _ONE
            shared -= 1
        if starts[i] == ends[i]:
            out[i] = _beside(starts[i], shared, True, bits, sums, sum_at, corner, sides)
        else:  # they part at this bit: below it the start has what comes later, the end what came
            out[i] = _beside(starts[i], shared + 1, True, bits, sums, sum_at, corner, sides)
            out[i] += _beside(ends[i], shared + 1, False, bits, sums, sum_at, corner, sides)
