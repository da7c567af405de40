"""Rank a live set: its parts and its newest rows.

A part of a live set (see `liveset`) gets its ranking index on the first query. Rows in it are in
order of arrival, which breaks ties; a replacement keeps the arrival of the row it replaced. The
newest rows, too few to index, are compared one by one. Kernels skip dead rows, so that these never
take a place in the top k. The first part is searched as a whole; the k-th best that it has is what
rows of the others must reach, so that of small parts hardly anything is looked at.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np

from rangecast.device.live import DeviceSet
from rangecast.errors import UsageError
from rangecast.kernels.arrays import F64, I32, I64, U8, has_nan, readonly
from rangecast.kernels.bundle import opened, pointers
from rangecast.kernels.jit import direct, jit, jit_single
from rangecast.model.boxes import frozen
from rangecast.model.sets.live_view import IndexPart, LiveView
from rangecast.model.sets.rowstore import Bounds, RowArrays, boxes_of
from rangecast.model.space import Space
from rangecast.model.threads import in_turn
from rangecast.rank.choose import Index, best_near, best_spans
from rangecast.rank.device import NOT_ON_A_DEVICE, best_of
from rangecast.rank.liveness import Liveness
from rangecast.rank.merged import merge_into
from rangecast.rank.result import (
    TESTED,
    Best,
    Span,
    Work,
    check_k,
    checked,
    new_best,
    new_counters,
)
from rangecast.rank.scores.combine import check_combine, initial_value, joined, number_of
from rangecast.rank.scores.tolerances import NO_TOLERANCES, TOLERANT, not_tolerant, share_of
from rangecast.rank.slabs.index import Call, Slabs
from rangecast.rank.warmup import WarmupIndex, begin

_PIECE = 512
"""Events that are compared with recent rows at a time."""
_INDEXED = 1 << 17
"""Comparisons with recent rows that take longer than to build a structure of them."""
_SAMPLED = 16
"""Events of which one is looked at for an estimate."""
_UNREAD = new_counters(levels=0)
"""Counters of work that isn't returned."""


class Query(NamedTuple):
    """Ranking query: events as points, or as spans from lo to hi, with its options."""

    lo: F64
    hi: F64
    k: int
    span: Span | None
    """`None`: points."""
    combine: str | None
    """Combination of weights in relaxed ranking; `None`: exact."""
    tolerances: F64 = NO_TOLERANCES
    """Tolerance of each attribute in relaxed ranking; none: empty."""

    @classmethod
    def of(
        cls,
        spans: tuple[F64, ...],
        dimensions: int,
        k: int,
        span: Span | None,
        combine: str,
        *,
        relaxed: bool,
        tolerances: F64 = NO_TOLERANCES,
        on_device: bool = False,
    ) -> Query:
        """Create a query after checking its arguments; a device checks points for NaN itself."""
        check_combine(combine, relaxed=relaxed)
        lo = checked(spans[0], dimensions, k)
        if spans[1] is spans[0]:
            hi, is_wrong = lo, not on_device and has_nan(lo)
        else:
            hi = checked(spans[1], dimensions, k)
            is_wrong = not (lo <= hi).all()
        if is_wrong:
            raise UsageError("a span must not end before it begins, and no value may be NaN")
        return cls(lo, hi, k, span, combine if relaxed else None, tolerances)

    @property
    def ends(self) -> tuple[F64, F64]:
        """Return `above` and `below`: a box contains an event if lo <= above and below <= hi."""
        return (self.lo, self.hi) if self.span == "contain" else (self.hi, self.lo)


class RankedPart(NamedTuple):
    """Ranking index over some rows of a live set."""

    structure: Index
    set_rows: I32
    """The set's row of each own row, in order of arrival; empty: they are equal. Read-only."""
    rows: int

    def shifted(self, shift: int) -> RankedPart:
        """Return a copy whose row numbers in the set are shifted."""
        set_rows = self.set_rows if len(self.set_rows) else np.arange(self.rows, dtype=np.int32)
        return self._replace(set_rows=frozen(set_rows + np.int32(shift), np.int32))


def ranked_part(
    rows: RowArrays, part_rows: I32, space: Space, index: str, combine: str | None
) -> RankedPart:
    """Build the ranking index of some rows; `combine` is that of a `Query`."""
    order = np.argsort(rows.arrival[part_rows], kind="stable")
    set_rows = frozen(part_rows[order], np.int32)
    boxes = boxes_of(rows, set_rows.astype(np.int64), space)
    same = np.array_equal(set_rows, np.arange(len(set_rows)))
    relaxed = combine is not None
    structure, _ = begin(boxes, index, relaxed=relaxed, combine=combine or "sum")
    return RankedPart(structure, set_rows[:0] if same else set_rows, len(set_rows))


@jit
def _insert(rows: I32, scores: F64, filled: int, row: int, score: float, arrival: I64) -> int:
    """Insert a row into a list sorted by score, then by arrival; return the new length.

    A full list drops its last entry, or ignores the new row if that is worse.
    """
    k = len(rows)
    slot = filled
    while slot and (
        scores[slot - 1] < score
        or (scores[slot - 1] == score and arrival[rows[slot - 1]] > arrival[row])
    ):
        slot -= 1
    if slot == k:
        return k
    filled = min(filled + 1, k)
    for after in range(filled - 1, slot, -1):
        rows[after], scores[after] = rows[after - 1], scores[after - 1]
    rows[slot], scores[slot] = row, score
    return filled


@jit_single
def _add_recent(
    table: I64,
    recent: I64,
    arrival: I64,
    relaxed: bool,
    combine: int,
    tolerances: F64,
    worth: F64,
    above: F64,
    below: F64,
    rows: I32,
    scores: F64,
    counts: I64,
    counters: I64,
) -> None:
    """Compare recent rows, best first, with each event; add them to the best of the others.

    table          of the set's `Bounds`
    worth          (rows, 1) scores, (rows, d) weights, or (rows, 0): all weights are 1
    above, below   (events, d) a range contains an event if lo <= above and below <= hi
    """
    bounds = pointers(opened(table, Bounds))
    k = rows.shape[1]
    for event in range(len(above)):
        filled = counts[event]
        for index in range(len(recent)):
            row = recent[index]
            if not relaxed and filled == k:
                score, last = worth[row, 0], scores[event, k - 1]
                later = arrival[row] > arrival[rows[event, k - 1]]
                if score < last or (score == last and later):
                    break
            counters[TESTED] += 1
            best, is_matched = 0.0, False
            for box in range(bounds.first_box[row], bounds.first_box[row + 1]):
                total, all_hold, some_hold = initial_value(combine), True, False
                for term in range(bounds.first_term[box], bounds.first_term[box + 1]):
                    axis = bounds.axis[term]
                    starts, ends = bounds.lo[term], bounds.hi[term]
                    if starts <= above[event, axis] and below[event, axis] <= ends:
                        some_hold = True
                        if relaxed:
                            weight = worth[row, axis] if worth.shape[1] else 1.0
                            total = joined(combine, total, weight)
                    else:
                        all_hold = False
                        if not relaxed:
                            break
                        width = tolerances[axis] if len(tolerances) else 0.0
                        share = share_of(above[event, axis], starts, ends, width)
                        if share > 0.0:
                            some_hold = True
                            weight = worth[row, axis] if worth.shape[1] else 1.0
                            total = joined(combine, total, weight * share)
                if some_hold if relaxed else all_hold:
                    score = total if relaxed else worth[row, 0]
                    best = max(best, score) if is_matched else score
                    is_matched = True
            if is_matched:
                filled = _insert(rows[event], scores[event], filled, row, best, arrival)
        counts[event] = filled


@cache
def _add_recent_entry() -> Callable[..., None]:
    """Return the compiled entry point of the kernel, which skips type dispatch."""
    recent, event = readonly(np.empty(0, np.int64)), readonly(np.empty((1, 1)))
    out = *new_best(1, 1), new_counters(levels=0)
    how = recent, recent, recent, False, 0, NO_TOLERANCES, np.empty((1, 1)), event, event
    return direct(_add_recent, *how, *out)


class _Prepared(NamedTuple):
    """Calls that rank one event by score: one per part, and the recent rows."""

    calls: tuple[Call, ...]
    indexes: tuple[Slabs, ...]
    """Owners of the arrays that the calls read by address: a part may get another index."""


class _Ranked(NamedTuple):
    """Read-only arrays of a view that ranking needs."""

    died: I64
    """Empty if all rows of the set live."""
    dead_bits: U8
    arrival: I64
    recent: I64
    """The live rows that are in no part, by score, then by arrival."""
    recent_parts: dict[str | None, RankedPart]
    """Indexes over these rows, by how they combine weights."""
    single_event: list[_Prepared]
    """Calls that rank one event by score, once one came."""

    @classmethod
    def of(cls, view: LiveView[Any, RankedPart]) -> _Ranked:
        """Return the arrays of a view; the first query on the view creates them."""
        if not view.ranked:
            rows, new = view.rows, slice(view.indexed, view.count)
            order = np.lexsort((rows.arrival[new], -rows.scores[new]))
            recent = view.indexed + order[rows.died[new][order] > view.edit]
            died = readonly(rows.died[: len(rows.died) if view.dead else 0])
            bits, arrival = readonly(rows.dead_bits), readonly(rows.arrival)
            view.ranked.append(cls(died, bits, arrival, readonly(recent), {}, []))
        ranked: _Ranked = view.ranked[0]
        return ranked

    def liveness(self, part: RankedPart, edit: int) -> Liveness:
        """Return which rows of a part are live."""
        return Liveness(part.set_rows, self.died, edit, self.dead_bits)


def _compare_recent(
    view: LiveView[Any, RankedPart], ranked: _Ranked, query: Query, best: Best
) -> Work:
    """Add the recent rows to the best of the parts, one by one; return the work."""
    rows, counters = view.rows, new_counters(levels=0)
    if query.combine is None:
        worth = rows.scores[:, None]
    elif rows.weights is None:
        worth = np.empty((len(rows.scores), 0))
    else:
        worth = rows.weights
    relaxed, combine = query.combine is not None, number_of(query.combine or "sum")
    recent = rows.bounds.table, ranked.recent, ranked.arrival
    how = *recent, relaxed, combine, query.tolerances, worth
    above, below = query.ends
    add = _add_recent_entry()
    if len(above) <= _PIECE:
        add(*how, above, below, best.rows, best.scores, best.counts, counters)
    else:
        for first in range(0, len(above), _PIECE):  # between pieces other threads may run
            piece = slice(first, first + _PIECE)
            out = best.rows[piece], best.scores[piece], best.counts[piece], counters
            add(*how, above[piece], below[piece], *out)
    return Work.of(counters)


def _comparisons(scores: F64, query: Query, best: Best) -> int:
    """Estimate how many comparisons `_add_recent` takes, by the descending scores of recent rows.

    It reads some of the events. So 0 doesn't mean that no recent row is in the top k of an event.
    """
    room = best.rows.shape[1]
    if query.combine is not None or room == 0:
        return len(scores) * len(query.lo)
    counts, lowest = best.counts[::_SAMPLED], best.scores[::_SAMPLED, -1]
    last = np.where(counts == room, lowest, -np.inf)
    return _SAMPLED * int(np.searchsorted(-scores, -last, side="right").sum())


def _best_part(part: RankedPart, liveness: Liveness, query: Query) -> Best:
    """Return the top k of a part, with its own rows."""
    if query.span is None:
        return best_near(part.structure, query.lo, query.k, query.tolerances, liveness)
    return best_spans(part.structure, query.lo, query.hi, query.k, query.span, liveness)


def _best_first(part: RankedPart, liveness: Liveness, query: Query, room: int) -> Best:
    """Return the top k of the first part, with rows of the set and room for those of others."""
    best = _best_part(part, liveness, query)
    rows, scores, counts, work = best
    if len(part.set_rows):  # of rows that aren't there, any will do
        rows = part.set_rows.take(rows, mode="clip")
    missing = room - rows.shape[1]
    if missing > 0:
        rows = np.pad(rows, ((0, 0), (0, missing)))
        scores = np.pad(scores, ((0, 0), (0, missing)))
    return Best(rows, scores, counts, work)


def _settled(part: RankedPart) -> Index:
    """Return the index of a part, or the one that it has become."""
    index = part.structure
    return index.interim.built or index if isinstance(index, WarmupIndex) else index


def _add_part(part: RankedPart, ranked: _Ranked, edit: int, query: Query, best: Best) -> Work:
    """Merge the top k of a part into `best`; return the work."""
    liveness, structure = ranked.liveness(part, edit), _settled(part)
    if isinstance(structure, Slabs):
        is_span = query.span is not None
        near = query.tolerances
        return structure.add(best, *query.ends, is_span, liveness, ranked.arrival, near)
    part_best = _best_part(part, liveness, query)
    merged = best.rows, best.scores, best.counts
    merge_into(
        *merged, part_best.rows, part_best.scores, part_best.counts, part.set_rows, ranked.arrival
    )
    return part_best.work


def best_on_device(view: LiveView[Any, RankedPart], query: Query, held: DeviceSet) -> Best:
    """Return the top k of a live set, found on a device."""
    if query.combine is not None or query.span is not None or view.verifier is not None:
        raise UsageError(NOT_ON_A_DEVICE)
    with held.lock:
        held.show(view)
        return best_of(held, query.lo, min(query.k, max(1, view.count)))


def _ranking(
    part: IndexPart[Any, RankedPart],
    rows: RowArrays,
    combine: str | None,
    index: str,
    space: Space,
) -> RankedPart:
    """Return the ranking index of a part of a set, built if necessary."""
    ranking = part.rankings.get(combine)
    if ranking is None:  # of two threads that build it, both use the first one's
        ranking = ranked_part(rows, part.set_rows, space, index, combine)
        ranking = part.rankings.setdefault(combine, ranking)
    return ranking


def best_live(view: LiveView[Any, RankedPart], query: Query, index: str, space: Space) -> Best:
    """Return the top k of a live set. The first query builds the index of a part.

    index   name of the index of a part
    """
    if len(query.tolerances) and index not in TOLERANT:
        raise not_tolerant(index)  # also if no index is built, as for a few rows
    best = partial(_best_live, view, index=index, space=space)
    return in_turn(best, query, len(query.lo))


def _best_live(view: LiveView[Any, RankedPart], query: Query, index: str, space: Space) -> Best:
    rows, combine, ranked = view.rows, query.combine, _Ranked.of(view)
    room, work = min(query.k, view.count), Work()
    best = Best(*new_best(len(query.lo), 0 if view.parts else room))
    for number, part in enumerate(view.parts):
        ranking = _ranking(part, rows, combine, index, space)
        if number == 0:
            best = _best_first(ranking, ranked.liveness(ranking, view.edit), query, room)
            work = best.work
        else:
            work = work.plus(_add_part(ranking, ranked, view.edit, query, best))
    recent = ranked.recent
    if not len(recent) or not len(query.lo):
        return best._replace(work=work)
    is_long = len(recent) * len(query.lo) > _INDEXED
    if is_long:
        is_long = _comparisons(rows.scores[recent], query, best) > _INDEXED
    if is_long or view.has_words:
        if combine not in ranked.recent_parts:
            newest = ranked_part(rows, recent.astype(np.int32), space, index, combine)
            ranked.recent_parts[combine] = newest
        newest = ranked.recent_parts[combine]
        work = work.plus(_add_part(newest, ranked, view.edit, query, best))
    else:
        work = work.plus(_compare_recent(view, ranked, query, best))
    return best._replace(work=work)


def best_one_live(
    view: LiveView[Any, RankedPart], points: F64, k: int, index: str, space: Space
) -> Best:
    """Return the top k of one encoded event by score, (1, d); work isn't counted.

    The first call on a view prepares the calls for later ones.
    """
    check_k(k)
    ranked = _Ranked.of(view)
    ready = ranked.single_event[0] if ranked.single_event else _prepared(view, ranked, index, space)
    if ready is None:
        return best_live(view, Query(points, points, k, None, None), index, space)
    best = new_best(1, min(k, view.count))
    for kernel, first, others in ready.calls:
        kernel(*first, points, points, *others, *best, _UNREAD)
    return Best(*best)


def _prepared(
    view: LiveView[Any, RankedPart], ranked: _Ranked, index: str, space: Space
) -> _Prepared | None:
    """Return the calls that rank one event; `None` if the set has another index than `Slabs`."""
    if view.has_words:
        return None
    calls, indexes = list[Call](), list[Slabs]()
    for part in view.parts:
        ranking = _ranking(part, view.rows, None, index, space)
        structure = _settled(ranking)
        if not isinstance(structure, Slabs):
            return None
        if ranking.rows:  # a rebuild may have left none, so that there is no arrival to read
            indexes.append(structure)
            live = ranked.liveness(ranking, view.edit)
            calls.append(structure.single_event(live, ranked.arrival))
    if len(ranked.recent):
        recent = view.rows.bounds.table, ranked.recent, ranked.arrival
        how = False, number_of("sum"), NO_TOLERANCES, view.rows.scores[:, None]
        calls.append((_add_recent_entry(), (*recent, *how), ()))
    ready = _Prepared(tuple(calls), tuple(indexes))
    ranked.single_event[:] = [ready]
    return ready
