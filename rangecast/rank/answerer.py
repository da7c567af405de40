"""Answerer for ranking: the top k subscriptions of each event, best first."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from rangecast.kernels.arrays import F64, I64, readonly
from rangecast.model.answers.answerer import Answers, Choice
from rangecast.model.answers.merge_parts import ARRIVAL, arrivals_of, dead_rows
from rangecast.model.boxes import Boxes, frozen
from rangecast.model.encoding.event_columns import EventColumns
from rangecast.rank.choose import (
    Index,
    TolerantIndex,
    best_near,
    best_spans,
    build,
    check_spans,
    choose,
)
from rangecast.rank.liveness import ALL, Liveness
from rangecast.rank.rate_limit import WINDOW, seconds_of
from rangecast.rank.result import Best, Span
from rangecast.rank.scores.adjusted import best_adjusted, best_uncertain, check_adjusted
from rangecast.rank.scores.factors import Factors, FactorTable
from rangecast.rank.scores.tolerances import not_tolerant
from rangecast.rank.warmup import begin

_NEVER = np.iinfo(np.int64).max
PIECE = 10_000
"""Events that are answered at a time."""


@dataclass(frozen=True)
class RankQuery:
    """Options of a ranking query, independent of the index."""

    k: int = 10
    time_axis: int | None = None
    """Axis of a timestamp: its second is the window of an answer."""
    span: Span | None = None
    """Events are spans, which a subscription must overlap or contain."""
    probabilities: bool = False
    """Whether events have probabilities."""
    factors: FactorTable | None = None
    """Scores depend on the event."""
    tolerances: tuple[float, ...] = ()
    """Tolerance of each axis in relaxed ranking; none: empty."""

    @property
    def columns(self) -> EventColumns:
        """Columns that the coordinates of events stand for."""
        spans = self.probabilities or self.span is not None
        return EventColumns(spans=spans, probabilities=self.probabilities)


@dataclass(frozen=True)
class RankAnswerer:
    """Answerer that returns `rank`, `subscription`, `score`, optionally `WINDOW`, `ARRIVAL`."""

    index: Index
    ids: pa.Array
    choice: Choice
    dimensions: int
    relaxed: bool = False
    combine: str = "sum"
    query: RankQuery = RankQuery()
    boxes: Boxes | None = None
    """Where events may be uncertain: which attributes a subscription mentions decides then."""
    factors: Factors | None = None
    """Score factors of `query`, by row."""
    arrival: I64 | None = None
    """When each subscription of a part of a set arrived, ascending; `None`: as they are counted."""
    is_part: bool = False
    """Whether answers say when their subscriptions arrived, so that they can be merged."""
    liveness: Liveness = ALL
    """Subscriptions that no longer answer."""

    @classmethod
    def of(
        cls,
        boxes: Boxes,
        index: str = "auto",
        *,
        relaxed: bool = False,
        combine: str = "sum",
        query: RankQuery = RankQuery(),  # noqa: B008
        at_once: bool = False,
        device: str | None = None,
    ) -> RankAnswerer:
        """Build the index with this name over the given subscriptions.

        at_once   allow a plain scan to answer until the kernels are compiled; not for spans
        device    device to rank on; `None`: the CPU
        """
        how: dict[str, Any] = {"relaxed": relaxed, "combine": combine}
        if device is not None:
            choice = choose(boxes, index, device=device)
            built = build(boxes, index, **how, device=device)
        elif at_once and not query.columns.spans:
            built, choice = begin(boxes, index, **how)
        else:
            choice = choose(boxes, index, relaxed=relaxed)
            built = build(boxes, choice.name, **how)
        made = cls(built, boxes.ids, choice, boxes.dimensions, relaxed, combine)
        made.check(query)
        return replace(
            made,
            query=replace(query, factors=None),
            boxes=boxes if query.probabilities else None,
            factors=None if query.factors is None else query.factors.rows_of(boxes.ids),
        )

    def check(self, query: RankQuery) -> None:
        """Raise an error if this index doesn't support the options."""
        check_adjusted(
            relaxed=self.relaxed,
            span=query.span,
            probabilities=query.probabilities,
            score_factors=query.factors is not None,
        )
        if len(query.tolerances) and not isinstance(self.index, TolerantIndex):
            raise not_tolerant(self.choice.name)
        if query.columns.spans:
            check_spans(self.index)

    def as_part(self, gone: I64, *, is_merged: bool = True) -> RankAnswerer:
        """Return this answerer as a part of a set, without the arrival numbers in `gone`."""
        dead = dead_rows(self.arrival, len(self.ids), gone)
        died = None if dead is None else np.where(dead, 0, _NEVER)
        liveness = ALL if died is None else Liveness(ALL.set_rows, readonly(died), 0)
        return replace(self, is_part=is_merged, liveness=liveness)

    @property
    def best(self) -> int:
        """Maximum number of answers per event."""
        return self.query.k

    @property
    def only_holders(self) -> bool:
        """Whether every answer is a subscription that matches the event."""
        return not (self.relaxed or self.query.columns.spans)

    @property
    def memory(self) -> int:
        """Size of the index in bytes."""
        return self.index.memory

    @property
    def schema(self) -> pa.Schema:
        """Schema of the answers."""
        columns = [("rank", pa.int64()), ("subscription", self.ids.type), ("score", pa.float64())]
        return pa.schema(columns + [(WINDOW, pa.int64())] * (self.query.time_axis is not None))

    def answers(self, points: F64) -> Iterator[Answers]:
        """Yield the answers for events (n, width) in chunks that never split an event."""
        for first in range(0, len(points), PIECE):
            piece = points[first : first + PIECE]
            best = self._best(piece)
            event, rank, rows, scores = best.pairs()
            columns = {
                "rank": pa.array(rank),
                "subscription": self.ids.take(pa.array(rows)),
                "score": pa.array(scores),
            }
            if self.is_part:
                columns[ARRIVAL] = arrivals_of(self.arrival, rows)
            if self.query.time_axis is not None:
                columns[WINDOW] = pa.array(seconds_of(piece[event, self.query.time_axis]))
            yield Answers(first, np.concatenate([[0], np.cumsum(best.counts)]), columns)

    def _best(self, points: F64) -> Best:
        """Rank events whose coordinates are laid out as in `RankQuery.columns`."""
        query, factors = self.query, self.factors
        tolerances = frozen(query.tolerances, np.float64)
        if factors is None and not query.columns.spans:
            return best_near(self.index, points, query.k, tolerances, self.liveness)
        parts = query.columns.parts(points, self.dimensions)

        def search(events: I64, k: int) -> Best:
            lo, hi = parts.lo[events], parts.hi[events]
            if query.columns.spans:
                how = query.span or "contain"
                return best_spans(self.index, lo, hi, k, how, self.liveness)
            return best_near(self.index, lo, k, tolerances, self.liveness)

        if parts.probabilities is not None:
            assert self.boxes is not None
            spans = parts.lo, parts.hi, parts.probabilities
            return best_uncertain(search, self.boxes.take, spans, query.k)
        if factors is None:
            return search(np.arange(len(points)), query.k)
        return best_adjusted(
            search,
            len(points),
            query.k,
            lambda event, rows: factors.of(parts.last[event], rows),
            factors.bounds,
        )
