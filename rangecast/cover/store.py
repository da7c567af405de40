"""Live boxes and their covering relation: the arrays below every covering graph.

A box is a point of 2d coordinates, -lo and hi of each attribute in turn. Then a box lies inside
another one iff the other's point is at least as large in every coordinate: it *dominates* it.
Coordinates are only compared; a negative sign changes no comparison but its direction.

    points     (boxes, 2d)  the point of each box
    owner      (boxes,)     the subscription's row
    following  (boxes,)     the next box of the same row, NONE after the last
    first      (rows,)      the first box of a row
    arrival    (rows,)      order of arrival
    advertised (rows,)      1 once it was advertised to neighbours
    coverers   (rows,)      in-degree: edges that come in
    inward, outward (rows,) first edge that comes in, that goes out
    edges      (edges, 6)   doubly linked on both sides, so that one is cut in constant time

`covers` is the definition. `is_above` is the relation of all graphs: a row that covers another one,
and of two that cover each other the one that arrived first. It is a strict order, so that of equal
boxes exactly one represents the rest.

A row or a box whose subscription left is used again. Arrays only grow, by copying.

Kernels work on pointers to the arrays, under the same names. So everything is indexed flat, and how
much room there is stands in `header`.
"""

from __future__ import annotations

from typing import Annotated, NamedTuple

import numpy as np

from rangecast.kernels.arrays import F64, I32, I64, U8
from rangecast.kernels.bundle import Bundle, edited
from rangecast.kernels.jit import jit

NONE = -1

# Columns of `edges`. A free edge has the next free one as its source.
SOURCE, TARGET, NEXT_OUT, BEFORE_OUT, NEXT_IN, BEFORE_IN = range(6)
# Items of `header`.
FREE_EDGE, USED_EDGES, FREE_EDGES, STAMP, WIDTH, ROW_ROOM, EDGE_ROOM = range(7)
EDGE = 6
"""Numbers per edge."""
# Rows of `work`: why the index was asked. Columns: calls, nodes, comparisons.
SUBSCRIBE, UNSUBSCRIBE, LATE, REJOIN = range(4)
KINDS = 4
CALLS, NODES, COMPARISONS = range(3)
COSTS = 3


@edited
class Store(NamedTuple):
    """Arrays of the store."""

    points: Annotated[F64, 2]
    owner: I32
    following: I32
    first: I32
    arrival: I64
    advertised: U8
    coverers: I32
    inward: I32
    outward: I32
    edges: Annotated[I32, 2]
    seen: I64
    """(rows,) number of the last search that visited a row."""
    found: I32
    others: I32
    """(rows,) each: output of searches."""
    header: I64
    work: Annotated[I64, 2]
    """(2 * kinds, 3) work of searches so far, and up to the last command."""


def empty(dimensions: int) -> Bundle[Store]:
    """Return the arrays of a set without subscriptions."""
    none, header = np.empty(0, np.int32), np.zeros(7, np.int64)
    header[FREE_EDGE], header[WIDTH] = NONE, 2 * dimensions
    store = Store(
        points=np.empty((0, 2 * dimensions)),
        owner=none,
        following=none,
        first=none,
        arrival=np.empty(0, np.int64),
        advertised=np.empty(0, np.uint8),
        coverers=none,
        inward=none,
        outward=none,
        edges=np.empty((0, EDGE), np.int32),
        seen=np.empty(0, np.int64),
        found=none,
        others=none,
        header=header,
        work=np.zeros((2 * KINDS, COSTS), np.int64),
    )
    return Bundle(store)


BY_BOX = ("points", "owner", "following")
BY_ROW = ("first", "arrival", "advertised", "coverers", "inward", "outward")
_SCRATCH = ("seen", "found", "others")
"""Columns by the type of their items; the last ones are also by row, and are scratch."""


def with_room(store: Bundle[Store], *, rows: int, boxes: int, edges: int) -> Bundle[Store]:
    """Return arrays grown to hold the rows, boxes and edges; the contents are kept."""
    sizes = dict.fromkeys(BY_BOX, boxes) | dict.fromkeys((*BY_ROW, *_SCRATCH), rows)
    larger = store.grown(**sizes, edges=edges)
    arrays = larger.arrays
    arrays.header[ROW_ROOM], arrays.header[EDGE_ROOM] = len(arrays.first), len(arrays.edges)
    return larger


def boxes_of(store: Store, rows: I64) -> I64:
    """Return the boxes of rows."""
    boxes, all_boxes = store.first[rows], [np.empty(0, np.int32)]
    while len(boxes):
        all_boxes.append(boxes)
        boxes = store.following[boxes]
        boxes = boxes[boxes != NONE]
    return np.concatenate(all_boxes).astype(np.int64)


def points_of(lo: F64, hi: F64) -> F64:
    """Return each box as a point, -lo and hi of each attribute in turn, (boxes, 2d)."""
    points = np.empty((len(lo), 2 * lo.shape[1]))
    points[:, 0::2], points[:, 1::2] = -lo, hi
    return points


@jit
def dominates(store: Store, larger: int, smaller: int) -> bool:
    """Return whether the box `smaller` lies inside the box `larger`."""
    points, width = store.points, store.header[WIDTH]
    above, below = larger * width, smaller * width
    for j in range(width):  # noqa: SIM110 - numba has no quicker way
        if points[above + j] < points[below + j]:
            return False
    return True


@jit
def covers(store: Store, row: int, other: int) -> bool:
    """Return whether each box of `other` lies inside a single box of `row`."""
    inner = store.first[other]
    while inner != NONE:
        outer = store.first[row]
        while outer != NONE and not dominates(store, outer, inner):
            outer = store.following[outer]
        if outer == NONE:
            return False
        inner = store.following[inner]
    return True


@jit
def is_above(store: Store, row: int, other: int) -> bool:
    """Return whether `row` covers `other`, and arrived first if they cover each other."""
    if not covers(store, row, other):
        return False
    return store.arrival[row] < store.arrival[other] or not covers(store, other, row)


@jit
def link(store: Store, source: int, target: int) -> None:
    """Add an edge; there must be room for it."""
    edges, header = store.edges, store.header
    edge = header[FREE_EDGE]
    if edge == NONE:
        edge = header[USED_EDGES]
        header[USED_EDGES] += 1
    else:
        header[FREE_EDGE] = edges[edge * EDGE + SOURCE]
        header[FREE_EDGES] -= 1
    after_out, after_in = store.outward[source], store.inward[target]
    at = edge * EDGE
    edges[at + SOURCE], edges[at + TARGET] = source, target
    edges[at + NEXT_OUT], edges[at + BEFORE_OUT] = after_out, NONE
    edges[at + NEXT_IN], edges[at + BEFORE_IN] = after_in, NONE
    if after_out != NONE:
        edges[after_out * EDGE + BEFORE_OUT] = edge
    if after_in != NONE:
        edges[after_in * EDGE + BEFORE_IN] = edge
    store.outward[source] = store.inward[target] = edge
    store.coverers[target] += 1


@jit
def cut(store: Store, edge: int) -> None:
    """Remove an edge."""
    edges, at = store.edges, edge * EDGE
    source, target = edges[at + SOURCE], edges[at + TARGET]
    after, before = edges[at + NEXT_OUT], edges[at + BEFORE_OUT]
    if before == NONE:
        store.outward[source] = after
    else:
        edges[before * EDGE + NEXT_OUT] = after
    if after != NONE:
        edges[after * EDGE + BEFORE_OUT] = before
    after, before = edges[at + NEXT_IN], edges[at + BEFORE_IN]
    if before == NONE:
        store.inward[target] = after
    else:
        edges[before * EDGE + NEXT_IN] = after
    if after != NONE:
        edges[after * EDGE + BEFORE_IN] = before
    store.coverers[target] -= 1
    edges[at + SOURCE] = store.header[FREE_EDGE]
    store.header[FREE_EDGE] = edge
    store.header[FREE_EDGES] += 1
