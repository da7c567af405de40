"""Covering graphs: the effect of an edit, and the advertisements to neighbours.

G_k keeps up to k coverers of each subscription (paper 000, section III): one question to the index
for a new subscription, and one for each that lost its last coverer. G* keeps every pair; the
strict poset keeps the pairs with nothing between them. Which graph it is changes the cost and
never the messages: a new subscription is forwarded iff nothing live is above it, and when one
leaves, those are forwarded that nothing is above any more and that never were.

Deviations from the published algorithm:

- Above is a strict order (`store.is_above`): of equal boxes, one represents the rest.
- Property 1 holds at every step. A new subscription that nothing is above may be above roots that
  came before it: they get an edge from it. What something is above can't be above a root, so no
  other one needs to look. So the roots are at all times the subscriptions to be kept. `late` says
  so; without it the algorithm is the published one: the messages are the same, but a root may be
  covered.
- With k = 1 an index may hold the roots alone (`roots_only`): every covered row is covered by a
  root. Rows that lost their coverer are then indexed while they look for another one.

The room for the results is checked before anything is changed, so a command is done whole or not at
all, and can be repeated once there is room.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

from rangecast.cover.index import STALE, Index, SearchParameters, drop, insert, room, search_all
from rangecast.cover.store import (
    COSTS,
    EDGE,
    EDGE_ROOM,
    FREE_EDGES,
    KINDS,
    LATE,
    NEXT_IN,
    NEXT_OUT,
    NONE,
    REJOIN,
    ROW_ROOM,
    SOURCE,
    STAMP,
    SUBSCRIBE,
    TARGET,
    UNSUBSCRIBE,
    USED_EDGES,
    Store,
    covers,
    cut,
    is_above,
    link,
)
from rangecast.kernels.arrays import I32, I64, U8
from rangecast.kernels.bundle import edited, opened, pointers
from rangecast.kernels.jit import jit, jit_single

EVERY, POSET = 0, -1
"""Special values of k: G*, and the strict poset."""

# Why `run` stopped.
DONE, NEEDS_EDGES, NEEDS_ROOM, IS_STALE, NEEDS_LOG = range(5)


@edited
class Messages(NamedTuple):
    """Messages to neighbours, in any order within a command except that the withdrawal is last."""

    command: I64
    row: I32
    withdraws: U8


@edited
class Commands(NamedTuple):
    """Edits in order: rows added or removed. The boxes of the rows are in the store."""

    row: I32
    comes: U8


@jit
def _insert_row(index: Any, store: Store, row: int) -> None:
    box = store.first[row]
    while box != NONE:
        insert(index, store, box)
        box = store.following[box]


@jit
def _drop_row(index: Any, store: Store, row: int) -> None:
    box = store.first[row]
    while box != NONE:
        drop(index, box)
        box = store.following[box]


@jit
def _boxes(store: Store, row: int) -> int:
    count, box = 0, store.first[row]
    while box != NONE:
        count += 1
        box = store.following[box]
    return count


@jit
def _copy_work(store: Store, source: int, target: int) -> None:
    for i in range(KINDS * COSTS):
        store.work[target + i] = store.work[source + i]


@jit
def _has_edge_room(store: Store, wanted: int) -> bool:
    """Return whether there is room for `wanted` more edges."""
    used: int = store.header[USED_EDGES] - store.header[FREE_EDGES]
    return used + wanted <= int(store.header[EDGE_ROOM])


@jit
def _nearest(store: Store, rows: I32, count: int, down: bool) -> int:
    """Keep only the minimal rows above a row (`down`: maximal ones below); return their number."""
    store.header[STAMP] += 1
    stamp = store.header[STAMP]
    for i in range(count):
        for j in range(count):
            if i != j and store.seen[rows[i]] != stamp:
                far, near = (rows[j], rows[i]) if down else (rows[i], rows[j])
                if is_above(store, far, near):
                    store.seen[rows[i]] = stamp
    kept = 0
    for i in range(count):
        if store.seen[rows[i]] != stamp:
            rows[kept] = rows[i]
            kept += 1
    return kept


@jit
def _add_to_all(index: Any, store: Store, row: int, k: int) -> tuple[int, int]:
    """Add a row to G* or to the poset; return how many are above, and the edges needed."""
    everything = store.header[ROW_ROOM]
    above = search_all(
        index, store, SearchParameters(row, False, False, False, everything), SUBSCRIBE, store.found
    )
    below = search_all(
        index, store, SearchParameters(row, True, False, False, everything), LATE, store.others
    )
    forwarded = above == 0
    if k == POSET:
        above = _nearest(store, store.found, above, False)
        below = _nearest(store, store.others, below, True)
    if not _has_edge_room(store, above + below):
        return -1, above + below
    if k == POSET:
        _cut_across(store, above, below)
    for i in range(above):
        link(store, store.found[i], row)
    for i in range(below):
        link(store, row, store.others[i])
    _insert_row(index, store, row)
    return 0 if forwarded else 1, 0


@jit
def _cut_across(store: Store, above: int, below: int) -> None:
    """Cut the edges from found[:above] to others[:below], as a row is inserted between them."""
    store.header[STAMP] += 1
    stamp = store.header[STAMP]
    for i in range(below):
        store.seen[store.others[i]] = stamp
    for i in range(above):
        edge = store.outward[store.found[i]]
        while edge != NONE:
            after = store.edges[edge * EDGE + NEXT_OUT]
            if store.seen[store.edges[edge * EDGE + TARGET]] == stamp:
                cut(store, edge)
            edge = after


@jit
def _add(
    index: Any, store: Store, row: int, k: int, roots_only: bool, late: bool
) -> tuple[int, int]:
    """Add a row; return how many rows above it were found, -1 if more room for edges is needed."""
    if k <= 0:
        return _add_to_all(index, store, row, k)
    above = search_all(
        index, store, SearchParameters(row, False, False, False, k), SUBSCRIBE, store.found
    )
    below = 0
    if above == 0 and late:
        all_roots = SearchParameters(row, True, True, False, store.header[ROW_ROOM])
        below = search_all(index, store, all_roots, LATE, store.others)
    if not _has_edge_room(store, above + below):
        return -1, above + below
    for i in range(above):
        link(store, store.found[i], row)
    for i in range(below):
        link(store, row, store.others[i])
        if roots_only:
            _drop_row(index, store, store.others[i])
    if above == 0 or not roots_only:
        _insert_row(index, store, row)
    return above, 0


@jit
def _bridge(store: Store, row: int) -> int:
    """Add edges that bypass a leaving `row`; return how many edges don't fit."""
    above = below = 0
    edge = store.inward[row]
    while edge != NONE:
        store.found[above] = store.edges[edge * EDGE + SOURCE]
        above += 1
        edge = store.edges[edge * EDGE + NEXT_IN]
    edge = store.outward[row]
    while edge != NONE:
        store.others[below] = store.edges[edge * EDGE + TARGET]
        below += 1
        edge = store.edges[edge * EDGE + NEXT_OUT]
    if not _has_edge_room(store, above * below):
        return above * below
    for i in range(above):
        for j in range(below):
            between = False
            edge = store.outward[store.found[i]]
            while edge != NONE and not between:
                other = store.edges[edge * EDGE + TARGET]
                between = other == store.others[j] or (
                    other != row and is_above(store, other, store.others[j])
                )
                edge = store.edges[edge * EDGE + NEXT_OUT]
            if not between:
                link(store, store.found[i], store.others[j])
    return 0


@jit
def _remove(index: Any, store: Store, row: int, k: int, roots_only: bool) -> int:
    """Remove a row; return how many rows lost their last coverer, written into `others`.

    Rows that found another coverer have an edge to it already.
    """
    if store.coverers[row] == 0 or not roots_only:
        _drop_row(index, store, row)
    while store.inward[row] != NONE:
        cut(store, store.inward[row])
    orphans = 0
    while store.outward[row] != NONE:
        edge = store.outward[row]
        other = store.edges[edge * EDGE + TARGET]
        cut(store, edge)
        if store.coverers[other] == 0:
            store.others[orphans] = other
            orphans += 1
    if k <= 0:
        return orphans
    if roots_only:
        for i in range(orphans):
            _insert_row(index, store, store.others[i])
    for i in range(orphans):
        other = store.others[i]
        kind = REJOIN if store.advertised[other] else UNSUBSCRIBE
        above = search_all(
            index, store, SearchParameters(other, False, False, False, k), kind, store.found
        )
        for j in range(above):
            link(store, store.found[j], other)
    if roots_only:
        for i in range(orphans):
            if store.coverers[store.others[i]]:
                _drop_row(index, store, store.others[i])
    return orphans


@jit
def _extent(store: Store, row: int, comes: bool, roots_only: bool) -> tuple[int, int]:
    """Return the maximum number of boxes a command inserts, and of rows that lose their coverer."""
    if comes:
        return _boxes(store, row), 0
    boxes = rows = 0
    edge = store.outward[row]
    while edge != NONE:
        rows += 1
        if roots_only:
            boxes += _boxes(store, store.edges[edge * EDGE + TARGET])
        edge = store.edges[edge * EDGE + NEXT_OUT]
    return boxes, rows


@jit
def _run(
    index: Any,
    store: Store,
    commands: Commands,
    start: int,
    k: int,
    roots_only: bool,
    late: bool,
    log: Messages,
) -> tuple[int, int, int, int]:
    """Apply the commands from `start` on, and log the messages.

    Stops before a command that doesn't fit. Returns its number, the messages logged, the reason,
    and the missing room.
    """
    logged = 0
    for at in range(start, len(commands.row)):
        row, comes = commands.row[at], commands.comes[at] == 1
        inserts, below = _extent(store, row, comes, roots_only)
        if logged + below + 1 > len(log.row):
            return at, logged, NEEDS_LOG, below + 1
        left = room(index)
        if left == STALE:
            return at, logged, IS_STALE, 0
        if left < inserts:
            return at, logged, NEEDS_ROOM, inserts
        if comes:
            _copy_work(store, 0, KINDS * COSTS)
            above, lacking = _add(index, store, row, k, roots_only, late)
            if above < 0:
                _copy_work(store, KINDS * COSTS, 0)  # it will be done again
                return at, logged, NEEDS_EDGES, lacking
            if above == 0:
                store.advertised[row] = 1
                log.command[logged], log.row[logged], log.withdraws[logged] = at, row, 0
                logged += 1
            continue
        if k == POSET:
            lacking = _bridge(store, row)
            if lacking:
                return at, logged, NEEDS_EDGES, lacking
        elif k > 0 and not _has_edge_room(store, k * below):
            return at, logged, NEEDS_EDGES, k * below
        orphans = _remove(index, store, row, k, roots_only)
        for i in range(orphans):
            other = store.others[i]
            if store.coverers[other] == 0 and not store.advertised[other]:
                store.advertised[other] = 1
                log.command[logged], log.row[logged], log.withdraws[logged] = at, other, 0
                logged += 1
        if store.advertised[row]:
            log.command[logged], log.row[logged], log.withdraws[logged] = at, row, 1
            logged += 1
    return len(commands.row), logged, DONE, 0


class Kernels(NamedTuple):
    """Kernels for one kind of index. They take the tables of bundles (`kernels.bundle`)."""

    run: Callable[..., tuple[int, int, int, int]]
    """Apply many commands; see `_run`."""
    run_one: Callable[..., tuple[int, int, int, int]]
    """Apply one command; see `_run`."""
    earliest_above: Callable[[I64, I64, I32, I32], None]
    """Write for each row the stored one above it that arrived first, NONE if there is none."""


def kernels_for(index: Index) -> Kernels:
    """Return the kernels for an index."""
    return _kernels_for(type(index.state.arrays))  # type: ignore[arg-type]  # classes are hashable


@cache
def _kernels_for(kind: Any) -> Kernels:

    def run(
        index: I64,
        store: I64,
        commands: I64,
        start: int,
        k: int,
        roots_only: bool,
        late: bool,
        log: I64,
    ) -> tuple[int, int, int, int]:
        held, live = pointers(opened(index, kind)), pointers(opened(store, Store))
        todo, out = opened(commands, Commands), opened(log, Messages)
        return _run(held, live, todo, start, k, roots_only, late, out)

    @jit
    def earliest_above(index: I64, store: I64, rows: I32, out: I32) -> None:
        held, live = pointers(opened(index, kind)), pointers(opened(store, Store))
        for i in range(len(rows)):
            parameters = SearchParameters(rows[i], False, False, True, 1)
            count = search_all(held, live, parameters, SUBSCRIBE, live.found)
            out[i] = live.found[0] if count else NONE

    return Kernels(jit(run), jit_single(run), earliest_above)


@jit_single
def covers_row(store: I64, row: int, other: int) -> bool:
    """Return whether a row covers another one."""
    return covers(pointers(opened(store, Store)), row, other)
