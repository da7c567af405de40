"""A set in shards: each subscription in exactly one, so that a worker need not hold the whole set.

A shard is an answerer over some of the subscriptions, shipped on its own (`shipped`), with the hull
of its boxes. A task takes its events in pieces; for each shard whose hull holds some of them it
maps the shard, answers these events, and merges what the shards found. Nothing is shuffled, no box
is in two places, and a worker keeps at most its memory limit of shards open. A set of
one shard is answered by that alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from rangecast.kernels.arrays import F64, I64
from rangecast.model.answers.answerer import Answerer, Answers, Choice
from rangecast.model.answers.merge_parts import ARRIVAL, PartAnswers, merge
from rangecast.spark.columns import as_spark_ids
from rangecast.spark.shipped import ROOM, ShippedObject

_FIRST, _LEAST = 4096, 64
"""Events that are answered at first, and at least."""
_ROWS = 1 << 21
"""Answers that are held before they are merged, about."""

Settings = Callable[[Any], Answerer]
"""Fits an answerer to a query: how many answers it takes, for instance."""


def as_it_is(answerer: Any) -> Answerer:
    """Return an answerer that needs no settings."""
    fitting: Answerer = answerer
    return fitting


@dataclass(frozen=True)
class Shard:
    """Location and metadata of a shard that is not opened."""

    shipped: ShippedObject
    rows: int
    memory: int
    """Bytes of its structure."""
    lo: F64
    hi: F64
    """The hull of its boxes: none of them contains an event outside it."""
    choice: Choice
    gone: I64 = field(default_factory=lambda: np.empty(0, np.int64))
    """When the subscriptions arrived that answer no more, ascending."""

    def events_in_hull(self, points: F64) -> I64:
        """Return the events (n, d) that lie in the hull."""
        inside = np.ones(len(points), np.bool_)
        for axis in np.flatnonzero((self.lo > -np.inf) | (self.hi < np.inf)).tolist():
            values = points[:, axis]
            inside &= (self.lo[axis] <= values) & (values <= self.hi[axis])
        return np.flatnonzero(inside)


@dataclass(frozen=True)
class ShardedSet:
    """Shards that answer as one set, as a task carries them."""

    shards: tuple[Shard, ...]
    empty: Answerer
    """Over no subscriptions: it has the columns of the answers, and the options."""
    room: int = ROOM
    """Bytes of shards that a worker keeps open."""
    settings: Settings = as_it_is

    def fitted(self, settings: Settings) -> ShardedSet:
        """Return the set configured for a query."""
        return replace(self, settings=settings)

    def with_ids(self, kind: pa.DataType) -> ShardedSet:
        """Return the set with ids of this type; only an empty set may change its type."""
        empty: Any = self.empty
        return replace(self, empty=replace(empty, ids=as_spark_ids(pa.array([], kind))))

    @property
    def schema(self) -> pa.Schema:
        """Schema of the answers."""
        return self.settings(self.empty).schema

    def answers(self, points: F64) -> Iterator[Answers]:
        """Yield the answers for events (n, d) in bounded chunks that never split an event."""
        if len(self.shards) == 1 and not len(self.shards[0].gone):
            yield from self._open(self.shards[0]).answers(points)
            return
        fitted = self.settings(self.empty)
        first, rows, take = 0, 0, _FIRST
        while first < len(points):
            piece = points[first : first + take]
            parts = [
                part
                for shard in self.shards
                for part in self._parts(shard, piece, everywhere=not fitted.only_holders)
            ]
            merged = merge(first, len(piece), parts or [self._nothing()], fitted.best)
            yield merged
            first += len(piece)
            rows += int(merged.offsets[-1])
            take = max(_LEAST, _ROWS * first // max(1, rows))

    def rows(self, points: F64) -> Iterator[PartAnswers]:
        """Yield the answers for events (n, d) in bounded chunks, in any order.

        Where all answers count, those of one shard come after those of another: nothing is merged.
        """
        fitted = self.settings(self.empty)
        if len(self.shards) > 1 and fitted.best is None:
            everywhere = not fitted.only_holders
            for shard in self.shards:
                yield from self._parts(shard, points, everywhere=everywhere, is_merged=False)
        else:
            for answer in self.answers(points):
                yield PartAnswers(answer.events, answer.columns)

    def _parts(
        self, shard: Shard, points: F64, *, everywhere: bool, is_merged: bool = True
    ) -> Iterator[PartAnswers]:
        """Yield the answers of a shard, if any; `everywhere`: also for events outside its hull."""
        events = np.arange(len(points)) if everywhere else shard.events_in_hull(points)
        if len(events):
            selected = points if len(events) == len(points) else points[events]
            part = self._open(shard).as_part(shard.gone, is_merged=is_merged)
            for answer in part.answers(selected):
                if len(answer.events):  # of a part that is gone, ids may have another type
                    yield PartAnswers(events[answer.events], answer.columns)

    def _open(self, shard: Shard) -> Answerer:
        return self.settings(shard.shipped.open(self.room))

    def _nothing(self) -> PartAnswers:
        columns = {field.name: pa.nulls(0, field.type) for field in self.schema}
        return PartAnswers(np.empty(0, np.int64), {**columns, ARRIVAL: pa.nulls(0, pa.int64())})
