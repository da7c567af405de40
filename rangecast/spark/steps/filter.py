"""The step `filter`: the events of a DataFrame that may match a subscription, by a merged summary.

    wanted = filter_events(events, "summary", space)    # the same columns, fewer rows

An event outside the summary (`rangecast.merge`) matches nothing. A few events inside it match
nothing either: the cells of the summary are coarser than the subscriptions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame

from rangecast.errors import UsageError
from rangecast.kernels.arrays import F64, Bool
from rangecast.merge.cells import Cells
from rangecast.merge.ranges import Ranges
from rangecast.merge.summary import Summary
from rangecast.model.answers.answerer import Answers
from rangecast.model.answers.merge_parts import PartAnswers
from rangecast.model.encoding.events import PLAIN
from rangecast.model.space import Space
from rangecast.model.validation.flags import flag
from rangecast.spark.columns import reject_unknown_events
from rangecast.spark.lifetime import release_with_frame
from rangecast.spark.shipped import ShippedObject, ship
from rangecast.spark.steps.query import EventQuery, need_frame
from rangecast.spark.steps.shards.sharded_set import Settings


class Prefilter(NamedTuple):
    """Summary without its subscriptions, which is enough to filter events."""

    cells: Cells
    ranges: Ranges

    def may_match(self, points: F64) -> Bool:
        """Return whether each event (n, d) may match a subscription."""
        return self.ranges.contains_cells(self.cells.places(points))


class PassThroughAnswerer:
    """Answerer that returns one row without columns for each event."""

    schema = pa.schema([])

    def fitted(self, settings: Settings) -> PassThroughAnswerer:
        """Return self: there are no settings."""
        return self

    def answers(self, points: F64) -> Iterator[Answers]:
        """Yield one row per event."""
        yield Answers(0, np.arange(len(points) + 1), {})

    def rows(self, points: F64) -> Iterator[PartAnswers]:
        """Yield one row per event."""
        yield PartAnswers(np.arange(len(points)), {})


@dataclass(frozen=True)
class PassThroughQuery:
    """Answerer of a query without subscriptions: the space of the events alone."""

    shipped_space: ShippedObject
    answerer: PassThroughAnswerer = field(default_factory=PassThroughAnswerer)


def filter_events(
    events: DataFrame,
    summary: Summary | str | Path,
    space: Space,
    *,
    event_id: str = "id",
    allow_missing: bool = False,
    ignore_unknown: bool = False,
    nan: str = "error",
) -> DataFrame:
    """Return the events that may match a subscription, with all their columns.

    summary         what `rangecast.merge.Summary` made of the subscriptions, or the folder that it
                    was saved to, by `Summary.save` or by `rangecast merge --save`
    event_id        the column that names an event
    allow_missing   whether events may lack the column of an attribute: all lack a value then
    ignore_unknown  whether events may have columns that are no attributes
    nan             "error": NaN in events is rejected; "missing": it is a missing value
    """
    if not isinstance(summary, Summary):
        summary = Summary.open(summary)
    if summary.space.definition() != space.definition():
        raise UsageError(f"the summary belongs to {summary.space}; expected: {space}")
    need_frame(events)
    if not flag("ignore_unknown", ignore_unknown):
        reject_unknown_events(events.columns, space, PLAIN, [event_id])
    keep = [name for name in events.columns if name != event_id]
    query = EventQuery.of(
        events, space, taken=(), keep=keep, event_id=event_id, allow_missing=allow_missing, nan=nan
    )
    prefilter = ship(query.session, Prefilter(summary.cells, summary.ranges()))
    passing = PassThroughQuery(ship(query.session, summary.space))
    passed = query.answer(passing, prefilters=[prefilter])

    def release() -> None:
        prefilter.release()
        passing.shipped_space.release()

    release_with_frame(passed, release, prefilter.size)
    return passed.withColumnRenamed("event", event_id).select(
        [f"`{name}`" for name in events.columns]
    )
