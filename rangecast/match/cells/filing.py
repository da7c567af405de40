"""Filing of boxes in the lists of `cells`, and the entries of each box."""

from __future__ import annotations

from typing import Annotated, NamedTuple

import numpy as np

from rangecast.kernels.arrays import F64, I32, I64, U16, U32, U64, Bool
from rangecast.kernels.bundle import opened
from rangecast.kernels.grid import cell_of, ends_cell, starts_cell
from rangecast.kernels.jit import jit
from rangecast.match.cells.plan import BLOCK_BITS, DOUBTFUL, SURE, Grid, cut


class CellLists(NamedTuple):
    """The boxes and their lists."""

    offsets: I32
    ids: U16
    lo: Annotated[F64, 2]
    hi: Annotated[F64, 2]
    owner: I32
    earlier: I32
    """See `earlier_boxes`."""
    dead: U32
    """A bit for each box, whole blocks: it no longer counts. Empty if all do."""
    holes: U64
    """A bit for each entry: its box is dead. Empty if none is marked."""
    loose: I64
    """The dead boxes whose entries aren't marked."""
    blocks: int
    """Number of blocks; boxes are numbered within one."""
    lists: int
    """Number of lists that an event reads."""
    is_plain: int
    """1 if each subscription has one box: the number of a box is a row."""


@jit
def _cut_box(
    grid: Grid, lo: F64, hi: F64, box: int, nodes: I64, kinds: I64, lengths: I64, turn: I64
) -> int:
    """Cut a box on each axis, and begin with the first node of each; return the combinations."""
    product = 1
    for a in range(len(grid.axes)):
        axis = grid.axes[a]
        edges = grid.edges[grid.edge_ends[a] : grid.edge_ends[a + 1]]
        levels = slice(grid.level_ends[a], grid.level_ends[a + 1])
        lengths[a] = cut(
            cell_of(edges, lo[box, axis]),
            cell_of(edges, hi[box, axis]),
            starts_cell(edges, lo[box, axis]),
            ends_cell(edges, hi[box, axis]),
            len(edges) + 2,
            grid.shifts[levels],
            grid.bases[levels],
            nodes[a],
            kinds[a],
        )
        product *= lengths[a]
        turn[a] = 0
    return product


@jit
def _next_list(
    grid: Grid, nodes: I64, kinds: I64, lengths: I64, turn: I64, kind: int
) -> tuple[int, int]:
    """Return a list of a box that was cut and the kind of its entry, at least `kind`; step on."""
    axes = len(grid.axes)
    node = 0
    for a in range(axes):
        node += nodes[a, turn[a]] * grid.strides[a]
        kind = max(kind, kinds[a, turn[a]])
    a = 0
    while a < axes:
        turn[a] += 1
        if turn[a] < lengths[a]:
            break
        turn[a] = 0
        a += 1
    return node, kind


@jit
def file(
    table: I64,
    lo: F64,
    hi: F64,
    alone: Bool,
    blocks: int,
    nodes: I64,
    kinds: I64,
    places: I64,
    ids: U16,
) -> int:
    """Cut all boxes; count entries in `places`, or write them there if `ids` has room.

    `nodes` and `kinds` (axes, cells) are scratch. Returns the number of entries; with no `places`
    that is all it does.
    """
    grid = opened(table, Grid)
    lengths, turn = np.empty((2, len(grid.axes)), np.int64)
    total = 0
    for box in range(len(lo)):
        product = _cut_box(grid, lo, hi, box, nodes, kinds, lengths, turn)
        total += product
        if len(places) == 0:
            continue
        least = SURE if alone[box] else DOUBTFUL
        for _ in range(product):
            node, kind = _next_list(grid, nodes, kinds, lengths, turn, least)
            slot = (node * 3 + kind) * blocks + (box >> BLOCK_BITS)
            if len(ids):
                ids[places[slot]] = box & 0xFFFF
            places[slot] += 1
    return total


@jit
def _entry_of(filed: CellLists, segment: int, number: int) -> int:
    """Return the entry of a box in a segment, whose numbers ascend; -1 if there is none."""
    first, last = int(filed.offsets[segment]), int(filed.offsets[segment + 1])
    end = last
    while first < last:
        middle = (first + last) >> 1
        if filed.ids[middle] < number:
            first = middle + 1
        else:
            last = middle
    return first if first < end and filed.ids[first] == number else -1


@jit
def mark(
    grid_table: I64,
    filed_table: I64,
    boxes: I64,
    nodes: I64,
    kinds: I64,
    holes: U64,
) -> None:
    """Mark all entries of some boxes; `nodes` and `kinds` as for `file`."""
    grid, filed = opened(grid_table, Grid), opened(filed_table, CellLists)
    lengths, turn = np.empty((2, len(grid.axes)), np.int64)
    for box in boxes:
        number, block = box & 0xFFFF, box >> BLOCK_BITS
        for _ in range(_cut_box(grid, filed.lo, filed.hi, box, nodes, kinds, lengths, turn)):
            node, kind = _next_list(grid, nodes, kinds, lengths, turn, SURE)
            segment = (node * 3 + kind) * filed.blocks + block
            entry = _entry_of(filed, segment, number)
            if entry < 0:  # it doesn't stand alone
                segment += (DOUBTFUL - kind) * filed.blocks
                entry = _entry_of(filed, segment, number)
            holes[entry >> 6] |= np.uint64(1) << np.uint64(entry & 63)
