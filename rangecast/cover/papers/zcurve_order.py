"""Boxes in the order of a Z-curve, kept balanced while they come and go.

Each coordinate is cut at quantiles into a power of two of cells; the bits of a point's cells,
interleaved, are its key (`kernels.morton`). Boxes are kept by (key, box) on shelves of up to 128,
and a directory lists the shelves in order. A full shelf is halved, a small one joined with the
next. An insert takes two binary searches, and moves half a shelf at most; now and then one moves
the directory, an item for 64 boxes or more.
"""

from __future__ import annotations

from typing import Annotated, NamedTuple

import numpy as np

from rangecast.cover.store import WIDTH, Store
from rangecast.kernels.arrays import F64, I32, I64, U64
from rangecast.kernels.bundle import edited, opened, pointers
from rangecast.kernels.grid import cell_in_table
from rangecast.kernels.jit import jit
from rangecast.kernels.morton import key_of

SHELF = 128
TABLE = 255
"""Places for the edges of one coordinate."""

# Items of `notes`: coordinates in a key and bits of each; shelves used, free, in the directory and
# there is room for; boxes at the last build, changes since; places in a queue.
AXES, BITS, USED, SPARE, SHELVES, ROOM, BUILT, CHANGED, QUEUE = range(9)


@edited
class ZState(NamedTuple):
    """The arrays. A position is a place in the directory * SHELF + a place on the shelf."""

    edges: Annotated[F64, 2]
    """(2d, TABLE) by coordinate of the key, padded by +inf."""
    edge_count: I64
    axes: I64
    """(2d,) the coordinates that are in the key."""
    cell: I64
    """(2d,) the cell asked for."""
    key: U64
    """(boxes,) 0 if a box isn't held."""
    keys: U64
    boxes: I32
    """(shelves * SHELF)"""
    sizes: I32
    """(shelves,)"""
    spare: I32
    """(shelves,) free ones."""
    shelf: I32
    """(shelves,) the directory."""
    cells: U64
    masks: U64
    """(2 * places) keys of cells to look into, and which of their coordinates are still those of
    the cell asked for."""
    begins: I64
    ends: I64
    notes: I64


@jit
def encode(index: ZState, store: Store, box: int) -> np.uint64:
    """Write the cell of a box into `cell`; return its key."""
    point = box * store.notes[WIDTH]
    for i in range(index.notes[AXES]):
        value = store.points[point + index.axes[i]]
        index.cell[i] = cell_in_table(index.edges, i * TABLE, index.edge_count[i], value)
    return key_of(index.cell, index.notes[AXES], index.notes[BITS])


@jit
def _is_before(index: ZState, at: int, key: np.uint64, box: int) -> bool:
    return bool(index.keys[at] < key or (index.keys[at] == key and index.boxes[at] < box))


@jit
def seek(index: ZState, key: np.uint64, box: int, low: int, high: int) -> int:
    """Return the position of the first entry from (key, box) on.

    It is looked for on the shelves `low` to before `high` of the directory, or just after them.
    """
    end = high
    while high - low > 1:
        middle = (low + high) >> 1
        if _is_before(index, index.shelf[middle] * SHELF, key, box):
            low = middle
        else:
            high = middle
    if low >= end:
        return low * SHELF
    begin = index.shelf[low] * SHELF
    first, last = 0, int(index.sizes[index.shelf[low]])
    while first < last:
        middle = (first + last) >> 1
        if _is_before(index, begin + middle, key, box):
            first = middle + 1
        else:
            last = middle
    return (low + 1) * SHELF if first == index.sizes[index.shelf[low]] else low * SHELF + first


@jit
def _new_shelf(index: ZState, place: int) -> int:
    """Put an empty shelf into the directory; return it."""
    notes = index.notes
    if notes[SPARE]:
        notes[SPARE] -= 1
        shelf = int(index.spare[notes[SPARE]])
    else:
        shelf = notes[USED]
        notes[USED] += 1
    for at in range(notes[SHELVES], place, -1):
        index.shelf[at] = index.shelf[at - 1]
    index.shelf[place] = shelf
    index.sizes[shelf] = 0
    notes[SHELVES] += 1
    return shelf


@jit
def _move(index: ZState, source: int, begin: int, target: int) -> None:
    """Move the entries of a shelf from `begin` on to the end of another one."""
    to = target * SHELF + index.sizes[target]
    moved = index.sizes[source] - begin
    for i in range(moved):
        index.keys[to + i] = index.keys[source * SHELF + begin + i]
        index.boxes[to + i] = index.boxes[source * SHELF + begin + i]
    index.sizes[target] += moved
    index.sizes[source] = begin


@jit
def insert(index: ZState, store: Store, box: int) -> None:
    """Hold a box."""
    notes = index.notes
    key = encode(index, store, box)
    index.key[box] = key
    notes[CHANGED] += 1
    if notes[SHELVES] == 0:
        _new_shelf(index, 0)
    position = seek(index, key, box, 0, notes[SHELVES])
    place, at = position // SHELF, position % SHELF
    if at == 0 and place > 0:  # it may as well end the shelf before
        place -= 1
        at = int(index.sizes[index.shelf[place]])
    shelf = int(index.shelf[place])
    if index.sizes[shelf] == SHELF:
        new = _new_shelf(index, place + 1)
        _move(index, shelf, SHELF // 2, new)
        if at > SHELF // 2:
            shelf, at = new, at - SHELF // 2
    for i in range(shelf * SHELF + index.sizes[shelf], shelf * SHELF + at, -1):
        index.keys[i], index.boxes[i] = index.keys[i - 1], index.boxes[i - 1]
    index.keys[shelf * SHELF + at], index.boxes[shelf * SHELF + at] = key, box
    index.sizes[shelf] += 1


@jit
def _remove_shelf(index: ZState, place: int) -> None:
    notes = index.notes
    index.spare[notes[SPARE]] = index.shelf[place]
    notes[SPARE] += 1
    notes[SHELVES] -= 1
    for at in range(place, notes[SHELVES]):
        index.shelf[at] = index.shelf[at + 1]


@jit
def drop(index: ZState, box: int) -> None:
    """Hold a box no longer."""
    notes = index.notes
    position = seek(index, index.key[box], box, 0, notes[SHELVES])
    place, at = position // SHELF, position % SHELF
    shelf = int(index.shelf[place])
    index.sizes[shelf] -= 1
    for i in range(shelf * SHELF + at, shelf * SHELF + index.sizes[shelf]):
        index.keys[i], index.boxes[i] = index.keys[i + 1], index.boxes[i + 1]
    index.key[box] = 0
    notes[CHANGED] += 1
    if index.sizes[shelf] == 0:
        _remove_shelf(index, place)
    elif index.sizes[shelf] < SHELF // 4 and place + 1 < notes[SHELVES]:
        after = int(index.shelf[place + 1])
        if index.sizes[shelf] + index.sizes[after] <= SHELF // 2:
            _move(index, after, 0, shelf)
            _remove_shelf(index, place + 1)


@jit
def key_all(index_table: I64, store_table: I64, boxes: I64, out: U64) -> None:
    """Write the key of each of some boxes."""
    curve, live = pointers(opened(index_table, ZState)), pointers(opened(store_table, Store))
    for i in range(len(boxes)):
        out[i] = encode(curve, live, boxes[i])
