"""Tracks in a stream: the trackers of all buckets are kept between batches.

    TrackStep(subscriptions, sinks, key="truck", lateness="1 min", state="tracks/")

    tracks/
        state.json      stream, batch, version of the set, newest event; the files of this batch
        <name>          the tracker of a bucket
        <name>.parquet  its transitions in this batch
        <name>.json     the state of its policies

The workers write the trackers and transitions of a batch under new names, then `state.json` names
them: that commits the batch, whatever crashes. If it is run again, its transitions are read, not
derived; so every sink gets the same ones.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from itertools import pairwise
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from rangecast.errors import UsageError
from rangecast.model.boxes import Boxes
from rangecast.model.io.atomic import write_whole
from rangecast.model.sets.members import Id
from rangecast.model.space import Space
from rangecast.spark.columns import arrow_schema, as_spark_ids
from rangecast.spark.shipped import ShippedObject, ship
from rangecast.spark.steps.query import EventQuery, QuerySource
from rangecast.spark.steps.track import (
    BUCKET,
    BUCKETS,
    TIME,
    TimedQuery,
    TrackSettings,
    bucket_of,
    chunks_of,
    engine_of,
    key_of,
    only_timestamp,
    table_of,
    take,
    track_frame,
    track_query,
    track_schema,
)
from rangecast.spark.stream.sets import whole
from rangecast.spark.stream.sinks.base import Batch
from rangecast.spark.stream.steps import AnswerStep, is_good, query_options
from rangecast.store.commits import BATCH_JOB
from rangecast.track.delivery.notifier import Notifier
from rangecast.track.delivery.policies import Policy
from rangecast.track.moments import Length, length_of, moment_of
from rangecast.track.rules import Rule
from rangecast.track.saved import load_tracker
from rangecast.track.tracker import Tracker

_STATE = "state.json"
_HELD = 2
"""Sets that are held at a time: the last one, and the one that follows it."""
_REPORT = StructType(
    [
        StructField("bucket", IntegerType()),
        StructField("name", StringType()),
        StructField("rows", LongType()),
    ]
)


class _SetVersion(NamedTuple):
    """A version of the subscriptions, on the driver and at the workers."""

    boxes: Boxes
    space: Space
    engine: ShippedObject
    shipped_space: ShippedObject

    def release(self) -> None:
        self.engine.release()
        self.shipped_space.release()


class _State(NamedTuple):
    """Contents of `state.json`."""

    stream: str
    batch: int
    version: int
    key: str
    time: str
    newest: int | None
    """Time of the newest event."""
    trackers: list[str]
    """By bucket."""
    rows: list[int]
    """Transitions of each bucket in the batch."""


@dataclass
class TrackStep(AnswerStep):
    """When objects enter and leave subscriptions: event, subscription, transition, key, ...

    key, time, rule, rules, after, lateness, inside, accuracy   as `rangecast.Tracker` takes them
    policy, policies   as `rangecast.Notifier` takes them: rows then have notification and window
    state     folder of the trackers, on a file system that the driver and all workers mount; a
              batch job needs none
    buckets   parts that the objects are dealt into, each with a tracker

    Events of a batch are taken in the order of their times. Edits between two batches are one edit.
    """

    key: str = field(kw_only=True)
    time: str | None = None
    rule: Rule | None = None
    rules: Mapping[Id, Rule] | None = None
    after: Length | None = None
    lateness: Length | None = None
    inside: bool = False
    accuracy: str | Mapping[str, str] | None = None
    policy: Policy | None = None
    policies: Mapping[Id, Policy] | None = None
    state: str | PathLike[str] | None = None
    buckets: int = BUCKETS

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.keep or self.filters:
            option = "keep" if self.keep else "filters"
            raise UsageError(
                f"step {self.name!r}: a step of type track doesn't support {option}\n"
                "  hint: join its transitions with the events; it also needs events outside"
            )
        self._track = TrackSettings(
            self.key,
            only_timestamp(self.space, self.time),
            self.rule,
            self.rules,
            self.after,
            self.lateness,
            self.inside,
            self.accuracy,
            self.policy,
            self.policies,
        )
        self._track.check_buckets(self.buckets)
        self.keep = self._track.columns(self.space)
        self._nan = "error"
        self._sets: dict[int, _SetVersion] = {}

    def query(self, events: DataFrame, keep: Sequence[str], nan: str) -> EventQuery:
        self._nan = nan
        return track_query(events, self.space, self._track, **query_options(keep, nan))

    def ready(self, session: SparkSession, version: int) -> tuple[QuerySource, int]:
        held = self._held(session, version)
        return TimedQuery(held.shipped_space, held.space.axis(self._track.time)), held.boxes.rows

    def release(self) -> None:
        super().release()
        for held in self._sets.values():
            held.release()
        self._sets.clear()

    @property
    def by_workers(self) -> bool:
        return False

    @property
    def good(self) -> Column:
        return F.col("subscription").isNotNull()

    def columns(self, answers: StructType) -> StructType:
        ids = self._sets[max(self._sets)].boxes.ids.type
        return track_schema(answers, self._track, ids)

    def finish(self, frame: DataFrame, batch: Batch, held: ExitStack) -> DataFrame:
        set_ = self._held(frame.sparkSession, batch.version)
        schema = track_schema(frame.schema, self._track, set_.boxes.ids.type)
        frame = frame.persist()
        held.callback(frame.unpersist)
        good = frame.filter(is_good())
        if batch.stream.startswith(BATCH_JOB):
            how: dict[str, Any] = {"nan": self._nan, "buckets": self.buckets}
            tracked = track_frame(good, set_.engine, self._track, schema, **how)
        else:
            tracked = self._tracked(good, batch, set_, schema)
        errors = frame.schema["error"].dataType
        bad = frame.filter(~is_good()).select(*_nulls(schema), "error")
        return tracked.withColumn("error", F.lit(None).cast(errors)).unionByName(bad)

    def _held(self, session: SparkSession, version: int) -> _SetVersion:
        """Return a version of the set, shipped to the workers."""
        if version not in self._sets:
            boxes, space = whole(self.subscriptions, version)
            boxes = replace(boxes, ids=as_spark_ids(boxes.ids))
            engine = ship(session, engine_of(boxes, space))
            self._sets[version] = _SetVersion(boxes, space, engine, ship(session, space))
            for old in sorted(self._sets)[:-_HELD]:
                self._sets.pop(old).release()
        return self._sets[version]

    # ---- state

    def _tracked(
        self, good: DataFrame, batch: Batch, set_: _SetVersion, schema: StructType
    ) -> DataFrame:
        """Return the transitions of a batch; derive them and commit the trackers, if need be."""
        if self.state is None:
            raise UsageError(
                f"step {self.name!r}: a stream requires a folder for the state of its objects\n"
                "  hint: give state='tracks/'"
            )
        folder = Path(self.state).absolute()
        folder.mkdir(parents=True, exist_ok=True)
        state = self._loaded(folder, batch)
        if state is None or state.batch < batch.number:
            state = self._derived(folder, state, good, batch, set_, schema)
        named = zip(state.trackers, state.rows, strict=True)
        files = [f"file://{folder}/{name}.parquet" for name, rows in named if rows]
        session = good.sparkSession
        if not files:
            return session.createDataFrame([], schema)
        return session.read.schema(schema).parquet(*files)

    def _loaded(self, folder: Path, batch: Batch) -> _State | None:
        """Return the state of the last batch; reject that of another stream."""
        if not (folder / _STATE).exists():
            return None
        state = _State(**json.loads((folder / _STATE).read_bytes()))
        if state.stream != batch.stream:
            raise UsageError(
                f"{folder}: contains the objects of another stream, {state.stream}; this one is "
                f"{batch.stream}\n  hint: use a new folder, or continue with the old checkpoint"
            )
        if (state.key, state.time) != (self.key, self._track.time):
            raise UsageError(
                f"{folder}: contains objects by {state.key!r} and {state.time!r}; given: "
                f"{self.key!r} and {self._track.time!r}\n  hint: use a new folder"
            )
        if state.batch > batch.number:
            raise UsageError(
                f"{folder}: is at batch {state.batch}, but the stream is at batch {batch.number}\n"
                "  hint: use the checkpoint that belongs to it"
            )
        return state

    def _derived(
        self,
        folder: Path,
        before: _State | None,
        good: DataFrame,
        batch: Batch,
        set_: _SetVersion,
        schema: StructType,
    ) -> _State:
        """Feed a batch to the trackers, and commit it."""
        session = good.sparkSession
        count = self.buckets if before is None else len(before.trackers)
        known = [] if before is None or before.newest is None else [before.newest]
        latest = good.filter(key_of(self.key).isNotNull()).agg(F.max(TIME)).collect()[0][0]
        newest = max([*known, *([] if latest is None else [latest])], default=None)
        lateness = length_of("lateness", self.lateness, min=0)
        moment = None if newest is None else newest - (lateness or 0)
        edited: frozenset[Id] = frozenset()
        if before is not None and before.version != batch.version:
            edited = _edited(whole(self.subscriptions, before.version), (set_.boxes, set_.space))
        turn = _BatchTask(
            str(folder),
            batch.number,
            [] if before is None else before.trackers,
            set_.engine,
            self._track,
            edited,
            moment,
            arrow_schema(schema),
            self._nan,
        )

        def feed(events: pa.Table) -> pa.Table:
            return turn.feed(events)

        # A row for each bucket, so that edits and time reach those without events, too.
        number = F.col("id").cast("int").alias(BUCKET)
        everywhere = session.range(count).select(*_nulls(good.schema), number)
        dealt = good.withColumn(BUCKET, bucket_of(self.key, count)).unionByName(everywhere)
        done = sorted(dealt.groupBy(BUCKET).applyInArrow(feed, _REPORT).collect())
        state = _State(
            batch.stream,
            batch.number,
            batch.version,
            self.key,
            self._track.time,
            newest,
            [task.name for task in done],
            [task.rows for task in done],
        )
        write_whole(folder / _STATE, json.dumps(state._asdict()).encode())
        _remove_others(folder, state)
        return state


def _nulls(schema: StructType) -> list[Column]:
    return [F.lit(None).cast(column.dataType).alias(column.name) for column in schema]


@dataclass(frozen=True)
class _BatchTask:
    """Task of one batch, shipped to the workers."""

    folder: str
    batch: int
    trackers: Sequence[str]
    """Tracker files of the previous batch, by bucket."""
    engine: ShippedObject
    settings: TrackSettings
    edited: frozenset[Id]
    moment: int | None
    """Time of the newest event of all objects, less the lateness."""
    schema: pa.Schema
    nan: str

    def feed(self, events: pa.Table) -> pa.Table:
        """Feed its events to the tracker of a bucket; write the tracker and the transitions."""
        bucket = events[BUCKET][0].as_py()
        tracker = self.settings.tracker(self.engine.open())
        if self.trackers:
            saved = load_tracker(f"{self.folder}/{self.trackers[bucket]}")
            saved = saved._replace(settings=tracker.saved().settings)
            tracker = Tracker.restored(saved, tracker.engine, self.edited)
        valid = events.filter(pc.is_valid(events["event"]))
        empty = pa.array([], pa.large_string()), np.zeros((0, len(tracker.engine.space)))
        parts = [tracker.update_points(*empty, pa.array([], pa.int64()))]  # takes edits
        parts += [take(tracker, chunk, self.nan) for chunk in chunks_of(valid)]
        moment = None if self.moment is None else moment_of(self.moment)
        if moment is not None and self.settings.lateness is not None:
            parts.append(tracker.advance(moment))
        name = f"{self.batch:09}-{bucket:05}-{uuid4().hex}"
        notifier = self._notifier(bucket)
        transitions = table_of(parts, self.schema, notifier, moment)
        if notifier is not None:
            notifier.save(f"{self.folder}/{name}.json")
        tracker.save(f"{self.folder}/{name}")
        if transitions.num_rows:
            pq.write_table(transitions, f"{self.folder}/{name}.parquet")
        report = {"bucket": [bucket], "name": [name], "rows": [transitions.num_rows]}
        return pa.table(report, arrow_schema(_REPORT))

    def _notifier(self, bucket: int) -> Notifier | None:
        """Return the notifier of a bucket, with the policies of now."""
        new = self.settings.notifier()
        path = Path(self.folder, f"{self.trackers[bucket]}.json") if self.trackers else None
        if new is None or path is None or not path.exists():
            return new
        policies = {name: new.saved()[name] for name in ("policy", "policies")}
        return Notifier.restored({**json.loads(path.read_bytes()), **policies})


def _edited(old: tuple[Boxes, Space], new: tuple[Boxes, Space]) -> frozenset[Id]:
    """Return the subscriptions of both sets whose filters differ."""
    words = new[1].vocabularies
    if all(words[name][: len(earlier)] == earlier for name, earlier in old[1].vocabularies.items()):
        before, after = _bounds(old[0]), _bounds(new[0])
    else:  # the same words have other numbers
        before, after = _texts(*old), _texts(*new)
    return frozenset(id_ for id_, filter_ in before.items() if after.get(id_, filter_) != filter_)


def _bounds(boxes: Boxes) -> dict[Id, Any]:
    """Return the bounds of each subscription, as bytes."""
    ends = boxes.box_offsets.tolist()
    bounds = np.concatenate([boxes.lo, boxes.hi], axis=1)
    parts = [bounds[begin:end].tobytes() for begin, end in pairwise(ends)]
    return dict(zip(boxes.ids.to_pylist(), parts, strict=True))


def _texts(boxes: Boxes, space: Space) -> dict[Id, Any]:
    engine = engine_of(boxes, space)
    return {id_: engine[id_].filter for id_ in engine}


def _remove_others(folder: Path, state: _State) -> None:
    """Remove trackers of earlier batches, and of tasks that failed or ran twice."""
    needed = {_STATE, *state.trackers}
    needed |= {f"{name}{end}" for name in state.trackers for end in (".parquet", ".json")}
    for path in folder.iterdir():
        if path.name in needed:
            continue
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
