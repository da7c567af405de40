"""Pointers to the arrays of a layout, in groups, for the kernels of `slabs`."""

from __future__ import annotations

from typing import Any, NamedTuple

from rangecast.kernels.arrays import I32, I64, U8
from rangecast.kernels.blocks import BLOCK
from rangecast.kernels.bundle import opened, pointers
from rangecast.kernels.codes import MISSING
from rangecast.kernels.grid import cell_in_table
from rangecast.kernels.jit import jit
from rangecast.rank.liveness import LiveRows, is_live, live_rows
from rangecast.rank.slabs.layout import EDGES, Layout


class ListPointers(NamedTuple):
    """Pointers to the arrays of a `Layout` whose names begin with list."""

    edges: Any
    shape: Any
    cells: Any
    rows: Any
    scores: Any
    bounds: Any
    are_there: bool


class TermPointers(NamedTuple):
    """Pointers to the arrays of a `Layout` that are about terms."""

    first: Any
    axis: Any
    bounds: Any
    weights: Any
    are_all: bool
    """Whether all boxes mention all attributes."""
    have_weights: bool


class LayoutPointers(NamedTuple):
    """Pointers to the arrays of a `Layout`, by the same names, and what they say by their lengths.

    The pointers needed per box and per event are grouped separately: a function that isn't inlined
    is given each pointer separately, which costs more than the function itself.
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
    lists: ListPointers
    rank: Any
    owner: Any
    worth: Any
    several: Any
    terms: TermPointers
    d: int
    last_band: int
    last_block: int
    boxes: int
    has_head: bool
    is_exact: bool
    """Whether codes leave nothing in doubt."""
    is_simple: bool
    """Whether every box that contains an event counts: all live, and each is of another row."""
    live: LiveRows


@jit
def open_layout(table: I64, set_rows: I32, died: I64, edit: int, dead_bits: U8) -> LayoutPointers:
    """Return what the table of a layout's bundle leads to."""
    layout = opened(table, Layout)
    at = pointers(layout)
    is_exact = True
    for j in range(len(layout.rough)):
        is_exact &= layout.rough[j] == 0
    return LayoutPointers(
        at.edges,
        at.edge_count,
        at.rough,
        at.bands,
        at.hull_first,
        at.hull_attributes,
        at.hull_codes,
        at.first_slot,
        at.attributes,
        at.codes,
        at.head,
        ListPointers(
            at.list_edges,
            at.list_shape,
            at.list_cells,
            at.list_rows,
            at.list_scores,
            at.list_bounds,
            len(layout.list_shape) > 0,
        ),
        at.rank,
        at.owner,
        at.worth,
        at.several,
        TermPointers(
            at.first_term,
            at.axis,
            at.bounds,
            at.weights,
            len(layout.first_term) == 0,
            len(layout.weights) > 0,
        ),
        len(layout.edge_count),
        len(layout.bands) - 1,
        len(layout.first_slot) - 1,
        len(layout.owner),
        len(layout.head) > 0,
        is_exact,
        len(died) == 0 and layout.several[0] == 0,
        live_rows(set_rows, died, edit, dead_bits),
    )


class QueryPointers(NamedTuple):
    """Pointers to events, (events, d): a box holds one if lo <= above and below <= hi."""

    above: Any
    below: Any
    above_codes: Any
    below_codes: Any
    is_span: bool
    """Whether the two differ."""


class Found(NamedTuple):
    """Pointers to the results of each event so far."""

    ranks: Any
    """(events, k + 1): what comes after k may be written there, so that nothing need be query."""
    k: int
    counts: Any
    """(events,) at most k"""
    last: Any
    """(events,) the row that the last box which held it is of; unless all that hold it count."""
    floors: Any
    """(events,) scores below which nothing is needed."""


@jit
def may_add(view: LayoutPointers, band: int, out: Found, e: int) -> bool:
    """Return whether an event needs more rows, and a band may have one."""
    return out.counts[e] < out.k and bool(view.worth[view.bands[band] * BLOCK] >= out.floors[e])


@jit
def encode(view: LayoutPointers, points: Any, event: int, codes: Any) -> None:
    """Write the codes of an event, which begins at points[event], to the same place in `codes`."""
    for j in range(view.d):
        value, edges = points[event + j], view.edge_count[j]
        cell = cell_in_table(view.edges, j * EDGES, edges, value)
        codes[event + j] = MISSING if cell > edges else cell + 1


@jit
def holds(terms: TermPointers, d: int, slot: int, above: Any, below: Any, event: int) -> bool:
    """Return whether the box at a place contains an event, by its bounds."""
    held = True
    bounds = terms.bounds
    if terms.are_all:
        term = 2 * d * slot
        for j in range(event, event + d):
            held &= (bounds[term] <= above[j]) & (below[j] <= bounds[term + 1])
            term += 2
    else:
        for term in range(terms.first[slot], terms.first[slot + 1]):
            j = event + terms.axis[term]
            held &= (bounds[2 * term] <= above[j]) & (below[j] <= bounds[2 * term + 1])
    return held


@jit
def is_new(live: LiveRows, row: int, last: Any, e: int) -> bool:
    """Return whether a box that contains event e counts: its row is live and not found yet.

    The boxes of a subscription follow one another.
    """
    if row == last[e]:
        return False
    last[e] = row
    return is_live(live, row)
