"""Ranking of a live set: its parts, its newest rows, and what the caller gets.

A part of a live set (see `liveset`) gets a ranking structure when it is first ranked. Within it
rows go by arrival, as ties do; a replacement has the arrival of what it replaced. The newest rows,
too few to index, are compared one by one. Dead rows take no place: every kernel is told who lives.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from rangecast.errors import UsageError
from rangecast.kernels.arrays import F64, I32, I64, U16, AnyArray
from rangecast.kernels.jit import jit_single
from rangecast.model.boxes import frozen
from rangecast.model.events import values_of
from rangecast.model.rowstore import Columns, boxes_of
from rangecast.rank.choose import Index, build
from rangecast.rank.liveness import Liveness
from rangecast.rank.merged import PartBest, merged
from rangecast.rank.result import TESTED, Best, Work, checked, new_best, new_counters
from rangecast.rank.slabs.index import How, Slabs
from rangecast.rank.top import insert

Id = str | int
_PIECE = 512
"""Events that are compared with recent rows at a time."""


class Query(NamedTuple):
    """Events that are to be ranked: points, or spans from lo to hi."""

    lo: F64
    hi: F64
    k: int
    how: How | None
    """`None`: points."""
    relaxed: bool

    @classmethod
    def of(
        cls, spans: tuple[F64, ...], dimensions: int, k: int, how: How | None, *, relaxed: bool
    ) -> Query:
        """Check what was given."""
        if how not in (None, "overlap", "contain"):
            raise UsageError(f"how is 'overlap' or 'contain'; given: {how!r}")
        if how is not None and relaxed:
            raise UsageError("events with spans are ranked exactly; give relaxed=False")
        lo = checked(spans[0], dimensions, k)
        hi = lo if spans[1] is spans[0] else checked(spans[1], dimensions, k)
        if not (lo <= hi).all():
            raise UsageError("a span begins where it ends or before, and no value is NaN")
        return cls(lo, hi, k, how, relaxed)


def split_spans(event: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the beginnings and the ends of an event whose values may be pairs."""
    pairs = {
        name: value if isinstance(value, tuple | list) else (value, value)
        for name, value in values_of(event)
    }
    for name, pair in pairs.items():
        if len(pair) != 2:
            raise UsageError(f"a span is a pair, (first, last); given for {name!r}: {pair!r}")
    firsts, lasts = ({name: pair[end] for name, pair in pairs.items()} for end in (0, 1))
    return firsts, lasts


class RankedPart(NamedTuple):
    """A ranking structure over some rows of a live set."""

    structure: Index
    names: I32
    """The set's row of each of its own rows, which go by arrival; none: the same. Read-only."""
    rows: int

    def shifted(self, shift: int) -> RankedPart:
        """Return it for a set whose rows have other numbers."""
        names = self.names if len(self.names) else np.arange(self.rows, dtype=np.int32)
        return self._replace(names=frozen(names + np.int32(shift), np.int32))


def ranked_part(
    columns: Columns, rows: I32, dimensions: int, index: str, *, relaxed: bool
) -> RankedPart:
    """Build the ranking structure of some rows."""
    names = frozen(rows[np.argsort(columns.arrival[rows], kind="stable")], np.int32)
    boxes = boxes_of(columns, names.astype(np.int64), dimensions)
    same = np.array_equal(names, np.arange(len(names)))
    structure = build(boxes, index, relaxed=relaxed)
    return RankedPart(structure, names[:0] if same else names, len(names))


@jit_single
def _compare(
    first_box: I64,
    first_term: I64,
    axes: U16,
    lo: F64,
    hi: F64,
    order: I64,
    died: I64,
    edit: int,
    relaxed: bool,
    worth: F64,
    above: F64,
    below: F64,
    places: I32,
    scores: F64,
    counts: I64,
    counters: I64,
) -> None:
    """Write the best of some rows by comparing each with each event, as places in `order`.

    The first five are a set's `Bounds`: numba takes plain arrays faster than a tuple of them.

    worth          (rows, 1) scores, or (rows, d) weights, or (rows, 0): all weigh 1
    above, below   (events, d) a range holds an event if lo <= above and below <= hi
    """
    for event in range(len(above)):
        filled = 0
        for place in range(len(order)):
            row = order[place]
            if died[row] <= edit:
                continue
            counters[TESTED] += 1
            best, found = 0.0, False
            for box in range(first_box[row], first_box[row + 1]):
                total, all_hold, some_hold = 0.0, True, False
                for term in range(first_term[box], first_term[box + 1]):
                    axis = axes[term]
                    if lo[term] <= above[event, axis] and below[event, axis] <= hi[term]:
                        some_hold = True
                        if relaxed:
                            total += worth[row, axis] if worth.shape[1] else 1.0
                    else:
                        all_hold = False
                        if not relaxed:
                            break
                if some_hold if relaxed else all_hold:
                    score = total if relaxed else worth[row, 0]
                    best = max(best, score) if found else score
                    found = True
            if found:
                filled = insert(places[event], scores[event], filled, place, best)
        counts[event] = filled


def _best_recent(columns: Columns, edit: int, start: int, end: int, query: Query) -> PartBest:
    """Return the k best among the rows from `start` to before `end`."""
    order = start + np.argsort(columns.arrival[start:end], kind="stable")
    places, scores, counts = new_best(len(query.lo), min(query.k, len(order)))
    counters = new_counters(levels=0)
    if not query.relaxed:
        worth = columns.scores[:, None]
    elif columns.weights is None:
        worth = np.empty((len(columns.scores), 0))
    else:
        worth = columns.weights
    above, below = (query.lo, query.hi) if query.how == "contain" else (query.hi, query.lo)
    live = *columns.bounds, order, columns.died, edit, query.relaxed, worth
    for first in range(0, len(above), _PIECE):  # between pieces other threads may run
        some = slice(first, first + _PIECE)
        out = places[some], scores[some], counts[some], counters
        _compare(*live, above[some], below[some], *out)
    return PartBest(Best(places, scores, counts, Work.of(counters)), frozen(order, np.int32))


def _best_part(part: RankedPart, died: I64, edit: int, query: Query) -> PartBest:
    """Return the k best of a part at an edit; `died` is empty if all rows of the set live."""
    liveness = Liveness(part.names, died, edit)
    if query.how is None:
        return PartBest(part.structure.best(query.lo, query.k, liveness=liveness), part.names)
    assert isinstance(part.structure, Slabs)  # a set with another index takes no spans
    found = part.structure.best_spans(query.lo, query.hi, query.k, query.how, liveness=liveness)
    return PartBest(found, part.names)


class LivePart(Protocol):
    """What a part of a live set shows to be ranked."""

    @property
    def names(self) -> I32:
        """The set's row of each of its rows."""

    @property
    def rankings(self) -> dict[bool, RankedPart]:
        """Its ranking structures, relaxed or not: made here when they are first asked."""


def best_live(
    parts: Sequence[LivePart],
    recent: tuple[int, int],
    columns: Columns,
    edit: int,
    dead: int,
    query: Query,
    index: str,
) -> Best:
    """Return the k best of a live set at an edit; `recent` rows are in no part.

    dead   how many rows don't live: if none, nobody need ask
    """
    relaxed, d = query.relaxed, query.lo.shape[1]
    died = columns.died[: len(columns.died) if dead else 0].view()
    died.flags.writeable = False
    found = []
    for part in parts:
        if relaxed not in part.rankings:
            part.rankings[relaxed] = ranked_part(columns, part.names, d, index, relaxed=relaxed)
        found.append(_best_part(part.rankings[relaxed], died, edit, query))
    if recent[0] < recent[1] or not found:
        found.append(_best_recent(columns, edit, *recent, query))
    return merged(found, columns.arrival, query.k)


@dataclass(frozen=True, slots=True)
class Rankings:
    """The best subscriptions of events, best first."""

    best: Best
    event_ids: pa.Array | None
    """Of the batch; `None`: its events are numbered from 0."""
    _ids: AnyArray

    def __len__(self) -> int:
        return len(self.best.counts)

    def of(self, event: int) -> list[tuple[Id, float]]:
        """Return the best subscriptions of an event and their scores, by its place in the batch."""
        rows, scores = self.best.of(event)
        return list(zip(self._ids[rows].tolist(), scores.tolist(), strict=True))

    def table(self) -> pa.Table:
        """Return all of them, with columns event, rank, subscription and score."""
        event, rank, rows, scores = self.best.pairs()
        events = pa.array(event)
        if self.event_ids is not None:
            events = self.event_ids.take(events)
        kind = pa.int64() if self._ids.dtype == np.int64 else pa.large_string()
        columns = {"event": events, "rank": pa.array(rank)}
        columns["subscription"] = pa.array(self._ids[rows], kind)
        return pa.table(columns | {"score": pa.array(scores)})
