"""Rank a live set: its parts and its newest rows.

A part of a live set (see `liveset`) gets its ranking index on the first query. Rows in it are in
order of arrival, which breaks ties; a replacement keeps the arrival of the row it replaced. The
newest rows, too few to index, are compared one by one. Kernels skip dead rows, so that these never
take a place in the top k.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from rangecast.device.live import DeviceSet
from rangecast.errors import UsageError
from rangecast.kernels.arrays import F64, I32, I64, has_nan, readonly
from rangecast.kernels.bundle import opened, pointers
from rangecast.kernels.jit import direct, jit_single
from rangecast.model.boxes import frozen
from rangecast.model.sets.live_view import LiveView
from rangecast.model.sets.rowstore import Bounds, RowArrays, boxes_of
from rangecast.model.space import Space
from rangecast.rank.choose import Index
from rangecast.rank.device import NOT_ON_A_DEVICE, best_of
from rangecast.rank.liveness import Liveness
from rangecast.rank.merged import PartBest, merged
from rangecast.rank.result import TESTED, Best, Work, checked, new_best, new_counters
from rangecast.rank.scores.combine import check_combine, joined, nothing, number_of
from rangecast.rank.slabs.index import Slabs, Span
from rangecast.rank.top import insert
from rangecast.rank.verified import Verified, VerifiedScan
from rangecast.rank.warmup import Starting, begin

_PIECE = 512
"""Events that are compared with recent rows at a time."""
_INDEXED = 1 << 17
"""Comparisons with recent rows that take longer than to build a structure of them."""


class Query(NamedTuple):
    """Ranking query: events as points, or as spans from lo to hi, with its options."""

    lo: F64
    hi: F64
    k: int
    span: Span | None
    """`None`: points."""
    combine: str | None
    """Combination of weights in relaxed ranking; `None`: exact."""

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
    ) -> Query:
        """Create a query after checking its arguments."""
        check_combine(combine, relaxed=relaxed)
        lo = checked(spans[0], dimensions, k)
        if spans[1] is spans[0]:
            hi, is_wrong = lo, has_nan(lo)
        else:
            hi = checked(spans[1], dimensions, k)
            is_wrong = not (lo <= hi).all()
        if is_wrong:
            raise UsageError("a span begins where it ends or before, and no value is NaN")
        return cls(lo, hi, k, span, combine if relaxed else None)


class RankedPart(NamedTuple):
    """Ranking index over some rows of a live set."""

    structure: Index
    set_rows: I32
    """The set's row of each of its own rows, which go by arrival; none: the same. Read-only."""
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


@jit_single
def _compare(
    table: I64,
    order: I64,
    died: I64,
    edit: int,
    relaxed: bool,
    combine: int,
    worth: F64,
    above: F64,
    below: F64,
    places: I32,
    scores: F64,
    counts: I64,
    counters: I64,
) -> None:
    """Compare each row with each event; write the best ones as positions in `order`.

    table          of the set's `Bounds`
    worth          (rows, 1) scores, (rows, d) weights, or (rows, 0): all weights are 1
    above, below   (events, d) a range contains an event if lo <= above and below <= hi
    """
    bounds = pointers(opened(table, Bounds))
    for event in range(len(above)):
        filled = 0
        for index in range(len(order)):
            row = order[index]
            if died[row] <= edit:
                continue
            counters[TESTED] += 1
            best, is_matched = 0.0, False
            for box in range(bounds.first_box[row], bounds.first_box[row + 1]):
                total, all_hold, some_hold = nothing(combine), True, False
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
                if some_hold if relaxed else all_hold:
                    score = total if relaxed else worth[row, 0]
                    best = max(best, score) if is_matched else score
                    is_matched = True
            if is_matched:
                filled = insert(places[event], scores[event], filled, index, best)
        counts[event] = filled


@cache
def _compare_entry() -> Callable[..., None]:
    """Return the compiled entry point of the kernel, which skips type dispatch."""
    rows, event = readonly(np.empty(0, np.int64)), readonly(np.empty((1, 1)))
    out = *new_best(1, 1), new_counters(levels=0)
    return direct(_compare, rows, rows, rows, 0, False, 0, np.empty((1, 1)), event, event, *out)


class _Ranked(NamedTuple):
    """Read-only arrays of a view that ranking needs."""

    died: I64
    """Empty if all rows of the set live."""
    arrival: I64
    recent: I64
    """The rows that are in no part, by arrival."""
    recent_rows: I32
    """The same."""

    @classmethod
    def of(cls, view: LiveView[Any, RankedPart]) -> _Ranked:
        """Return the arrays of a view; the first query on the view creates them."""
        if not view.ranked:
            rows, start = view.rows, view.indexed
            order = start + np.argsort(rows.arrival[start : view.count], kind="stable")
            died = rows.died[: len(rows.died) if view.dead else 0]
            arrays = readonly(died), readonly(rows.arrival), readonly(order)
            view.ranked.append(cls(*arrays, frozen(order, np.int32)))
        ranked: _Ranked = view.ranked[0]
        return ranked


def _best_recent(view: LiveView[Any, RankedPart], ranked: _Ranked, query: Query) -> PartBest:
    """Return the top k of the rows that are in no part."""
    rows, order = view.rows, ranked.recent
    places, scores, counts = new_best(len(query.lo), min(query.k, len(order)))
    counters = new_counters(levels=0)
    if query.combine is None:
        worth = rows.scores[:, None]
    elif rows.weights is None:
        worth = np.empty((len(rows.scores), 0))
    else:
        worth = rows.weights
    above, below = (query.lo, query.hi) if query.span == "contain" else (query.hi, query.lo)
    relaxed, combine = query.combine is not None, number_of(query.combine or "sum")
    live = rows.bounds.table, order, rows.died, view.edit, relaxed, combine, worth
    compare = _compare_entry()
    if len(above) <= _PIECE:
        compare(*live, above, below, places, scores, counts, counters)
    else:
        for first in range(0, len(above), _PIECE):  # between pieces other threads may run
            some = slice(first, first + _PIECE)
            out = places[some], scores[some], counts[some], counters
            compare(*live, above[some], below[some], *out)
    return PartBest(Best(places, scores, counts, Work.of(counters)), ranked.recent_rows)


def _best_part(part: RankedPart, died: I64, edit: int, query: Query) -> PartBest:
    """Return the top k of a part at an edit; `died` is empty if all rows of the set are live."""
    liveness = Liveness(part.set_rows, died, edit)
    if query.span is None:
        return PartBest(part.structure.best(query.lo, query.k, liveness=liveness), part.set_rows)
    if isinstance(part.structure, Verified | VerifiedScan):
        raise UsageError("spans can't be ranked by subscriptions with shapes")
    assert isinstance(part.structure, Slabs | Starting)  # a set with another index takes no spans
    best = part.structure.best_spans(query.lo, query.hi, query.k, query.span, liveness=liveness)
    return PartBest(best, part.set_rows)


def _recent_part(
    view: LiveView[Any, RankedPart], ranked: _Ranked, combine: str | None, index: str, space: Space
) -> RankedPart:
    """Return an index over the rows that are in no part; the first query on a view builds it."""
    made: dict[str | None, RankedPart]
    if len(view.ranked) == 1:
        view.ranked.append({})
    made = view.ranked[1]
    if combine not in made:
        made[combine] = ranked_part(view.rows, ranked.recent_rows, space, index, combine)
    return made[combine]


def best_on_device(view: LiveView[Any, RankedPart], query: Query, held: DeviceSet) -> Best:
    """Return the top k of a live set, found on a device."""
    if query.combine is not None or query.span is not None or view.verifier is not None:
        raise UsageError(NOT_ON_A_DEVICE)
    with held.turn:
        held.show(view)
        return best_of(held, query.lo, min(query.k, max(1, view.count)))


def best_live(view: LiveView[Any, RankedPart], query: Query, index: str, space: Space) -> Best:
    """Return the top k of a live set. The first query builds the index of a part.

    index   name of the index of a part
    """
    rows, combine, ranked = view.rows, query.combine, _Ranked.of(view)
    best = []
    for part in view.parts:
        if combine not in part.rankings:
            part.rankings[combine] = ranked_part(rows, part.set_rows, space, index, combine)
        best.append(_best_part(part.rankings[combine], ranked.died, view.edit, query))
    comparisons = len(ranked.recent) * len(query.lo)
    if comparisons > _INDEXED or (view.verifier is not None and comparisons):
        newest = _recent_part(view, ranked, combine, index, space)
        best.append(_best_part(newest, ranked.died, view.edit, query))
    elif len(ranked.recent) or not best:
        best.append(_best_recent(view, ranked, query))
    return merged(best, ranked.arrival, query.k)
