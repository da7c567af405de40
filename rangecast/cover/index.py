"""Protocol of covering indexes, and its dispatch from the covering graphs.

An index is a named tuple of arrays, with a class beside it that owns them. It has some boxes of a
`Store`, by number, and answers one kind of query: which boxes dominate this one, or (the other way
round) which does it dominate? Each result is passed to `consider`, which decides whether it is
wanted. Kernels call `insert`, `drop`, `search` and `room`; numba puts the index's own kernels in
their place when it compiles, by the type of the tuple: `register` says which they are. As of the
store, they take pointers.
"""

# ruff: noqa: ARG001 - an overload is given the types of all its arguments, needed or not

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np
from numba import extending

from rangecast.cover.store import (
    CALLS,
    COMPARISONS,
    COSTS,
    NODES,
    NONE,
    STAMP,
    WIDTH,
    Store,
    is_above,
)
from rangecast.kernels.arrays import I32, I64
from rangecast.kernels.bundle import Bundle
from rangecast.kernels.jit import jit, note_overloads

STALE = -1
"""Result of `room` if the index should be rebuilt first."""


class SearchParameters(NamedTuple):
    """Parameters of a search."""

    row: int
    down: bool
    """Search the rows that `row` covers, instead of those that cover it."""
    roots: bool
    """Only rows without incoming edges."""
    earliest: bool
    """Only the row that arrived first, instead of the first `max_found` found."""
    max_found: int


class Index(Protocol):
    """Owner of an index's arrays."""

    name: str
    state: Bundle[Any]

    def reserve(self, boxes: int) -> None:
        """Reserve memory for the boxes of a store of this size."""

    def make_room(self, inserts: int) -> None:
        """Make room for at least `inserts` inserts."""

    def held(self) -> I64:
        """Return the boxes in the index."""

    def hold(self, store: Bundle[Store], boxes: I64) -> None:
        """Rebuild the index with exactly these boxes."""


def insert(index: Any, store: Store, box: int) -> None:
    """Add a box; there must be room for it."""
    raise NotImplementedError


def drop(index: Any, box: int) -> None:
    """Remove a box."""
    raise NotImplementedError


def search(
    index: Any, store: Store, parameters: SearchParameters, box: int, out: I32, filled: int
) -> tuple[int, int, int]:
    """Append the rows that match `parameters` to `out`, searching with one box of `parameters.row`.

    Returns the filled length of `out`, the nodes visited and the points compared.
    """
    raise NotImplementedError


def room(index: Any) -> int:
    """Return the number of inserts that fit, or `STALE`."""
    raise NotImplementedError


def register(
    kind: type,
    inserts: Callable[..., None],
    drops: Callable[..., None],
    searches: Callable[..., tuple[int, int, int]],
    has_room: Callable[..., int],
) -> None:
    """Register the kernels that the functions above call for an index of this type."""

    def is_kind(index: Any) -> bool:
        return getattr(index, "instance_class", None) is kind

    # numba wants both functions to have the same signature, down to the annotations.
    def for_insert(index: Any, store: Any, box: Any) -> Any:
        def call(index: Any, store: Any, box: Any) -> Any:
            return inserts(index, store, box)

        return call if is_kind(index) else None

    def for_drop(index: Any, box: Any) -> Any:
        def call(index: Any, box: Any) -> Any:
            return drops(index, box)

        return call if is_kind(index) else None

    def for_search(index: Any, store: Any, parameters: Any, box: Any, out: Any, filled: Any) -> Any:
        def call(index: Any, store: Any, parameters: Any, box: Any, out: Any, filled: Any) -> Any:
            return searches(index, store, parameters, box, out, filled)

        return call if is_kind(index) else None

    def for_room(index: Any) -> Any:
        def call(index: Any) -> Any:
            return has_room(index)

        return call if is_kind(index) else None

    for general, chosen in (
        (insert, for_insert),
        (drop, for_drop),
        (search, for_search),
        (room, for_room),
    ):
        extending.overload(general)(chosen)
    note_overloads(kind, searches.__module__)


@jit
def consider(store: Store, parameters: SearchParameters, box: int, out: I32, filled: int) -> int:
    """Append the owner of a found box, if it is wanted and not in the output yet.

    A found box dominates the query box, or is dominated by it.
    """
    row, other = parameters.row, store.owner[box]
    stamp = store.header[STAMP]
    if other == row or store.seen[other] == stamp:
        return filled
    if parameters.roots and store.coverers[other] != 0:
        return filled
    if parameters.earliest and filled and store.arrival[out[0]] < store.arrival[other]:
        return filled
    single = (
        store.following[store.first[row]] == NONE and store.following[store.first[other]] == NONE
    )
    above, below = (row, other) if parameters.down else (other, row)
    if single:
        wanted = store.arrival[above] < store.arrival[below] or not _equal(store, above, below)
    else:
        # Any box of a row is found only if its first one is, when searching downwards.
        if parameters.down and box != store.first[other]:
            return filled
        wanted = is_above(store, above, below)
    store.seen[other] = stamp
    if not wanted:
        return filled
    if parameters.earliest:
        filled = 0
    out[filled] = other
    return filled + 1


@jit
def _equal(store: Store, row: int, other: int) -> bool:
    box, beside = store.first[row], store.first[other]
    width = store.header[WIDTH]
    for j in range(width):
        if store.points[box * width + j] != store.points[beside * width + j]:
            return False
    return True


@jit
def is_enough(parameters: SearchParameters, filled: int) -> bool:
    """Return whether a search may stop."""
    return filled >= parameters.max_found and not parameters.earliest


@jit
def search_all(index: Any, store: Store, parameters: SearchParameters, kind: int, out: I32) -> int:
    """Write the rows related to a row to `out`; return their number.

    The work is counted under `kind`.
    """
    store.header[STAMP] += 1
    filled = 0
    box = store.first[parameters.row]
    at = kind * COSTS
    store.work[at + CALLS] += 1
    while box != NONE:
        filled, nodes, compared = search(index, store, parameters, box, out, filled)
        store.work[at + NODES] += nodes
        store.work[at + COMPARISONS] += compared
        # What covers a row covers its first box; what it covers lies in any of its boxes.
        box = store.following[box] if parameters.down else np.int32(NONE)
    return filled
