"""What the kernels of `slabs` see of a layout: pointers to its arrays, made from their addresses.

numba takes a microsecond to take over each array of a tuple; a single event is ranked in less.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from rangecast.kernels.arrays import I32, I64
from rangecast.kernels.bits import items_at, pointer
from rangecast.kernels.codes import MISSING
from rangecast.kernels.grid import cell_in_table
from rangecast.kernels.jit import jit
from rangecast.model.boxes import frozen
from rangecast.rank.slabs.layout import EDGES, Layout

_ARRAYS = len(Layout._fields)
_KINDS = (
    *(np.float64, np.int64, np.uint64, np.int64, np.int64, np.int32, np.uint8, np.int64, np.int32),
    *(np.uint8, np.float64, np.float64, np.int64, np.int32, np.int32, np.float64, np.int32),
    *(np.int32, np.float64, np.uint8, np.int64, np.int32, np.float64, np.float64),
)
"""What the arrays are of, in order; `look` has the same."""
# Where the lengths of some arrays are.
_D = _ARRAYS + Layout._fields.index("edge_count")
_BANDS = _ARRAYS + Layout._fields.index("bands")
_BLOCKS = _ARRAYS + Layout._fields.index("first_slot")
_HEAD = _ARRAYS + Layout._fields.index("head")
_LISTS = _ARRAYS + Layout._fields.index("list_counts")
_BOXES = _ARRAYS + Layout._fields.index("owner")
_FIRST_TERMS = _ARRAYS + Layout._fields.index("first_term")
_WEIGHTS = _ARRAYS + Layout._fields.index("weights")


def addresses(layout: Layout) -> I64:
    """Return the address of each array, then the length of each; the layout must outlive it."""
    assert [array.dtype for array in layout] == [np.dtype(kind) for kind in _KINDS]
    where = [array.ctypes.data for array in layout]
    return frozen(where + [len(array) for array in layout], np.int64)


class Lists(NamedTuple):
    """Pointers to the arrays of a `Layout` whose names begin with list."""

    edges: Any
    edge_count: Any
    counts: Any
    rows: Any
    scores: Any
    are_there: bool


class Terms(NamedTuple):
    """Pointers to the arrays of a `Layout` that are about terms."""

    first: Any
    axis: Any
    bounds: Any
    weights: Any
    are_all: bool
    """Whether all boxes mention all attributes."""
    have_weights: bool


class Living(NamedTuple):
    """Pointers to who lives: see `Life`."""

    names: Any
    died: Any
    edit: int
    has_names: bool
    has_dead: bool


class View(NamedTuple):
    """Pointers to the arrays of a `Layout`, by the same names, and what they say by their lengths.

    What is needed for a box or an event is in parts of its own: a function that isn't inlined is
    given each pointer by itself, which costs more than such a function does.
    """

    edges: Any
    edge_count: Any
    rough: Any
    bands: Any
    hull_first: Any
    hull_attributes: Any
    hull_codes: Any
    first_slot: Any
    attributes: Any
    codes: Any
    head: Any
    lists: Lists
    rank: Any
    owner: Any
    worth: Any
    several: Any
    terms: Terms
    d: int
    last_band: int
    last_block: int
    boxes: int
    has_head: bool
    is_exact: bool
    """Whether codes leave nothing in doubt."""
    is_simple: bool
    """Whether every box that holds an event counts: all live, and each is of another row."""
    living: Living


@jit
def look(table: I64, names: I32, died: I64, edit: int) -> View:
    """Return what the addresses lead to."""
    rough = items_at(table[2], np.uint64)
    is_exact = True
    for j in range(table[_D]):
        is_exact &= rough[j] == 0
    is_simple = len(died) == 0 and items_at(table[19], np.uint8)[0] == 0
    return View(
        items_at(table[0], np.float64),
        items_at(table[1], np.int64),
        rough,
        items_at(table[3], np.int64),
        items_at(table[4], np.int64),
        items_at(table[5], np.int32),
        items_at(table[6], np.uint8),
        items_at(table[7], np.int64),
        items_at(table[8], np.int32),
        items_at(table[9], np.uint8),
        items_at(table[10], np.float64),
        Lists(
            items_at(table[11], np.float64),
            items_at(table[12], np.int64),
            items_at(table[13], np.int32),
            items_at(table[14], np.int32),
            items_at(table[15], np.float64),
            table[_LISTS] > 0,
        ),
        items_at(table[16], np.int32),
        items_at(table[17], np.int32),
        items_at(table[18], np.float64),
        items_at(table[19], np.uint8),
        Terms(
            items_at(table[20], np.int64),
            items_at(table[21], np.int32),
            items_at(table[22], np.float64),
            items_at(table[23], np.float64),
            table[_FIRST_TERMS] == 0,
            table[_WEIGHTS] > 0,
        ),
        table[_D],
        table[_BANDS] - 1,
        table[_BLOCKS] - 1,
        table[_BOXES],
        table[_HEAD] > 0,
        is_exact,
        is_simple,
        Living(pointer(names, 0), pointer(died, 0), edit, len(names) > 0, len(died) > 0),
    )


@jit
def is_alive(living: Living, row: int) -> bool:
    """Whether a row of the structure lives."""
    if not living.has_dead:
        return True
    name = living.names[row] if living.has_names else row
    return bool(living.died[name] > living.edit)


class Asked(NamedTuple):
    """Pointers to events, (events, d): a box holds one if lo <= above and below <= hi."""

    above: Any
    below: Any
    above_codes: Any
    below_codes: Any
    is_span: bool
    """Whether the two differ."""


class Found(NamedTuple):
    """Pointers to what was found of each event so far."""

    ranks: Any
    """(events, k + 1): what comes after k may be written there, so that nothing need be asked."""
    k: int
    counts: Any
    """(events,) at most k"""
    last: Any
    """(events,) the row that the last box which held it is of; unless all that hold it count."""


@jit
def encode(view: View, points: Any, event: int, codes: Any) -> None:
    """Write the codes of an event, which begins at points[event], to the same place in `codes`."""
    for j in range(view.d):
        value, edges = points[event + j], view.edge_count[j]
        cell = cell_in_table(view.edges, j * EDGES, edges, value)
        codes[event + j] = MISSING if cell > edges else cell + 1


@jit
def holds(terms: Terms, d: int, place: int, above: Any, below: Any, event: int) -> bool:
    """Whether the box at a place holds an event, by its bounds."""
    held = True
    bounds = terms.bounds
    if terms.are_all:
        term = 2 * d * place
        for j in range(event, event + d):
            held &= (bounds[term] <= above[j]) & (below[j] <= bounds[term + 1])
            term += 2
    else:
        for term in range(terms.first[place], terms.first[place + 1]):
            j = event + terms.axis[term]
            held &= (bounds[2 * term] <= above[j]) & (below[j] <= bounds[2 * term + 1])
    return held


@jit
def is_new(living: Living, row: int, last: Any, e: int) -> bool:
    """Whether a box of a row that holds event e counts: the row lives, and didn't come already.

    The boxes of a subscription follow one another.
    """
    if row == last[e]:
        return False
    last[e] = row
    return is_alive(living, row)
