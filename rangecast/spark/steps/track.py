"""Step `track`: report when objects enter and leave subscriptions, from a DataFrame of events.

    found = track(events, subscriptions, space, key="truck")   # event, subscription, ...

Objects are dealt into buckets by their keys. A worker takes the events of a bucket in the order of
their times, through one `Tracker`; nothing is called per object. A batch has all events, so none of
them is late, and in the end everything is reported that is due by the newest one of all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import LongType, StringType, StructField, StructType, TimestampType

from rangecast.engine import Engine
from rangecast.errors import UsageError
from rangecast.kernels.arrays import F64
from rangecast.model.answers.answerer import Answers
from rangecast.model.answers.merge_parts import PartAnswers
from rangecast.model.attributes.timestamps import Timestamp
from rangecast.model.boxes import Boxes
from rangecast.model.encoding.events import PLAIN
from rangecast.model.sets.members import Id
from rangecast.model.space import Space
from rangecast.spark.columns import (
    arrow_schema,
    as_spark_ids,
    id_kind,
    reject_unknown_events,
    require_columns,
)
from rangecast.spark.events import encode_batch
from rangecast.spark.lifetime import release_with_frame
from rangecast.spark.shipped import ShippedObject, ship
from rangecast.spark.steps.prepared import Subscriptions, gathered_set, loaded
from rangecast.spark.steps.query import EventQuery
from rangecast.spark.steps.shards.sharded_set import Settings
from rangecast.track.delivery.notifications import table_of as notifications_table
from rangecast.track.delivery.notifier import Notifier
from rangecast.track.delivery.policies import Policy
from rangecast.track.moments import Length, moment_of
from rangecast.track.rules import Rule
from rangecast.track.tracker import Tracker
from rangecast.track.transitions import Transitions

TIME = "_micros"
"""Column with the time of an event, in microseconds since 1970."""
ROW = "_row"
"""Column with the attributes of an event, its key and its accuracy, as a struct."""
BUCKET = "_bucket"
BUCKETS = 16
"""Number of buckets by default."""
_NEWEST = "_newest"
_CHUNK = 32_768
"""Events that a tracker takes at a time."""


class TrackSettings(NamedTuple):
    """Arguments of a `Tracker`, apart from its engine."""

    key: str
    time: str
    rule: Rule | None = None
    rules: Mapping[Id, Rule] | None = None
    after: Length | None = None
    lateness: Length | None = None
    inside: bool = False
    accuracy: str | Mapping[str, str] | None = None
    policy: Policy | None = None
    policies: Mapping[Id, Policy] | None = None

    def tracker(self, engine: Engine) -> Tracker:
        """Return a new tracker."""
        names = [name for name in self._fields if name not in ("policy", "policies")]
        return Tracker(engine, **{name: getattr(self, name) for name in names})

    def notifier(self) -> Notifier | None:
        """Return a new notifier; `None` without policies."""
        if self.policy is None and not self.policies:
            return None
        return Notifier(self.policy, self.policies)

    def check_buckets(self, buckets: int) -> None:
        """Reject a digest by count in several buckets."""
        if buckets < 1:
            raise UsageError(f"buckets must be a whole number, at least 1; given: {buckets!r}")
        policies = [self.policy or Policy(), *(self.policies or {}).values()]
        if buckets > 1 and any(policy.digest and policy.digest.count for policy in policies):
            raise UsageError(
                "a digest by count counts the transitions of all objects, and they are dealt into "
                f"{buckets} buckets\n  hint: give buckets=1, or a digest at a time"
            )

    def columns(self, space: Space) -> list[str]:
        """Return the event columns besides those of the space; reject invalid settings."""
        return [
            column for column in self.tracker(Engine(space)).columns if column not in space.names
        ]


def only_timestamp(space: Space, given: str | None) -> str:
    """Return the timestamp that orders events: the one that is given, or the only one."""
    known = [attribute.name for attribute in space if isinstance(attribute, Timestamp)]
    if given is None and len(known) != 1:
        available = f"{len(known)}: {', '.join(known)}" if known else "none"
        raise UsageError(
            f"tracks require a timestamp; the space has {available}\n  hint: name it with time="
        )
    return known[0] if given is None else given


@dataclass(frozen=True)
class TimedQuery:
    """Answerer of a query without subscriptions: events with their times."""

    shipped_space: ShippedObject
    axis: int

    @property
    def answerer(self) -> _Times:
        return _Times(self.axis)


@dataclass(frozen=True)
class _Times:
    """Answerer that returns the time of each event."""

    axis: int

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([(TIME, pa.int64())])

    def fitted(self, settings: Settings) -> _Times:
        """Return self: there are no settings."""
        return self

    def answers(self, points: F64) -> Iterator[Answers]:
        """Yield one row per event."""
        yield Answers(0, np.arange(len(points) + 1), {TIME: self._times(points)})

    def rows(self, points: F64) -> Iterator[PartAnswers]:
        """Yield one row per event."""
        yield PartAnswers(np.arange(len(points)), {TIME: self._times(points)})

    def _times(self, points: F64) -> pa.Array:
        times = points[:, self.axis]
        known = np.isfinite(times)
        return pa.array(np.where(known, times, 0).astype(np.int64), mask=~known)


def track(
    events: DataFrame,
    subscriptions: Subscriptions,
    space: Space,
    *,
    key: str,
    time: str | None = None,
    rule: Rule | None = None,
    rules: Mapping[Id, Rule] | None = None,
    after: Length | None = None,
    inside: bool = False,
    accuracy: str | Mapping[str, str] | None = None,
    policy: Policy | None = None,
    policies: Mapping[Id, Policy] | None = None,
    event_id: str = "id",
    allow_missing: bool = False,
    ignore_unknown: bool = False,
    nan: str = "error",
    buckets: int = BUCKETS,
) -> DataFrame:
    """Return the transitions of objects: event, subscription, transition, key, at, since, ...

    subscriptions   as `match` takes them, except for what `prepare_match` gave
    key, time       columns of events: the object, and the timestamp that orders its events; of
                    several at one time the one with the smallest id counts
    rule, rules, after, inside, accuracy   as `rangecast.Tracker` takes them
    policy, policies   as `rangecast.Notifier` takes them; each row then has its notification and
                    the window of its digest, too
    event_id        the column that names an event
    allow_missing, ignore_unknown, nan   as `match` takes them
    buckets         parts that the objects are dealt into: a worker holds the events of one
    """
    if events.isStreaming:
        raise UsageError(
            "track requires a batch DataFrame: on a stream, its state must be kept between batches"
            "\n  hint: pass a TrackStep to run_stream"
        )
    settings = TrackSettings(
        key,
        only_timestamp(space, time),
        rule,
        rules,
        after,
        None,
        inside,
        accuracy,
        policy,
        policies,
    )
    settings.check_buckets(buckets)
    boxes, known = whole_set(subscriptions, space)
    query = track_query(
        events,
        known,
        settings,
        event_id=event_id,
        allow_missing=allow_missing,
        ignore_unknown=ignore_unknown,
        nan=nan,
    )
    session = query.session
    engine, shipped_space = ship(session, engine_of(boxes, known)), ship(session, known)
    frame = query.answer(TimedQuery(shipped_space, known.axis(settings.time)))
    schema = track_schema(frame.schema, settings, boxes.ids.type)
    tracked = track_frame(frame, engine, settings, schema, nan=nan, buckets=buckets)

    def release() -> None:
        engine.release()
        shipped_space.release()

    release_with_frame(tracked, release, engine.size)
    return tracked


def whole_set(subscriptions: Subscriptions, space: Space) -> tuple[Boxes, Space]:
    """Return subscriptions on the driver, and the space with their words."""
    if isinstance(subscriptions, DataFrame):
        return gathered_set(subscriptions, space)
    boxes, known = loaded(subscriptions, space)
    return replace(boxes, ids=as_spark_ids(boxes.ids)), known


def engine_of(boxes: Boxes, space: Space) -> Engine:
    """Return an engine with these subscriptions."""
    engine = Engine(space)
    engine.subscribe_many(boxes)
    return engine


def track_query(
    events: DataFrame, space: Space, settings: TrackSettings, **options: Any
) -> EventQuery:
    """Check the columns of the events to track; options are those of `EventQuery.of`."""
    id_kind(events, settings.key, "events")
    known = dict.fromkeys([*settings.columns(space), *PLAIN.all_names(space)])
    more, own = options.pop("keep", ()), [name for name in known if name in events.columns]
    require_columns(events, settings.columns(space), "events")
    if not options.get("ignore_unknown"):
        reject_unknown_events(events.columns, space, PLAIN, [*known, options["event_id"], *more])
    row = F.struct(*(f"`{name}`" for name in own))
    options["ignore_unknown"] = True
    return EventQuery.of(events.withColumn(ROW, row), space, taken=(), keep=[ROW, *more], **options)


def track_schema(answers: StructType, settings: TrackSettings, ids: pa.DataType) -> StructType:
    """Return the schema of transitions; `ids` is the type of subscription ids."""
    row = answers[ROW].dataType
    assert isinstance(row, StructType)
    has_texts = isinstance(row[settings.key].dataType, StringType)
    kinds = {
        "event": answers["event"].dataType,
        "subscription": LongType() if pa.types.is_integer(ids) else StringType(),
        "transition": StringType(),
        "key": StringType() if has_texts else LongType(),
        "at": TimestampType(),
        "since": TimestampType(),
        "reason": StringType(),
        "number": LongType(),
        "id": StringType(),
    }
    if settings.notifier() is not None:
        kinds |= {"notification": StringType(), "window": StringType()}
    return StructType([StructField(name, kind) for name, kind in kinds.items()])


def key_of(key: str) -> Column:
    """Return the object of an event."""
    return F.col(f"{ROW}.`{key}`")


def bucket_of(key: str, buckets: int) -> Column:
    """Return the bucket of an object."""
    return F.pmod(F.xxhash64(key_of(key).cast("string")), F.lit(buckets)).cast("int")


def track_frame(
    frame: DataFrame,
    engine: ShippedObject,
    settings: TrackSettings,
    schema: StructType,
    *,
    nan: str,
    buckets: int,
) -> DataFrame:
    """Return the transitions of all events of a frame that `TimedQuery` has answered."""
    written = arrow_schema(schema)
    settings = settings._replace(lateness=None)

    def play(events: pa.Table) -> pa.Table:
        newest = events[_NEWEST][0].as_py()
        tracker = settings.tracker(engine.open())
        parts = []
        for chunk in chunks_of(events):
            parts.append(take(tracker, chunk, nan))
            first = chunk.column(TIME)[0].as_py()  # earlier events have been taken
            if first is not None:
                parts.append(tracker.advance(moment_of(first)))
        end = None if newest is None else moment_of(newest + 1)
        if end is not None:
            parts.append(tracker.advance(end))
        return table_of(parts, written, settings.notifier(), end, closing=True)

    known = frame.filter(key_of(settings.key).isNotNull())
    newest = known.agg(F.max(TIME).alias(_NEWEST))
    dealt = frame.withColumn(BUCKET, bucket_of(settings.key, buckets)).crossJoin(
        F.broadcast(newest)
    )
    return dealt.groupBy(BUCKET).applyInArrow(play, schema)


def chunks_of(events: pa.Table) -> Iterator[pa.RecordBatch]:
    """Yield events ordered by time, then by id."""
    ordered = events.sort_by([(TIME, "ascending"), ("event", "ascending")])
    yield from ordered.combine_chunks().to_batches(max_chunksize=_CHUNK)


def take(tracker: Tracker, events: pa.RecordBatch, nan: str) -> Transitions:
    """Feed valid events to a tracker."""
    row = pa.RecordBatch.from_struct_array(events.column(ROW))
    encoded = encode_batch(tracker.engine.space, row, None, PLAIN, nan=nan, raising=True)
    columns = [row.column(name) for name in tracker.columns]
    return tracker.update_points(columns[0], encoded.points, events.column("event"), *columns[1:])


def table_of(
    parts: Iterable[Transitions],
    schema: pa.Schema,
    notifier: Notifier | None,
    moment: datetime | None,
    *,
    closing: bool = False,
) -> pa.Table:
    """Return transitions as rows of a frame: all of them, or those that a notifier delivers.

    moment    no earlier transition will come
    closing   whether open digests are delivered, whatever their time
    """
    if notifier is not None:
        due = [notification for part in parts for notification in notifier.take(part)]
        due += [] if moment is None else notifier.advance(moment)
        due += notifier.close() if closing else []
        return notifications_table(due).cast(schema)
    tables = [part.table().cast(schema) for part in parts if len(part)]
    return pa.concat_tables([schema.empty_table(), *tables]).combine_chunks()
