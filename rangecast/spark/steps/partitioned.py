"""The partitioned plan of `match` and `rank`: subscriptions too large for one worker, cut by space.

Boxes go to the partitions of space that they meet, events to the one they lie in (`cut`). Both
become rows of one DataFrame, which is shuffled by group and sorted so that a group's boxes come
before its events:

    group  subscriptions ...  events ...   next group  subscriptions ...

A worker reads that once: it builds a structure over the boxes of a group, streams the group's
events through it, and drops it when the next group begins. So it holds the boxes of one group at a
time, and never the events. Subscriptions of a DataFrame are not collected anywhere.

Relaxed ranking can't be cut so, as a box may count for an event that it doesn't hold: there
subscriptions are dealt out to groups, every group answers all events, and the best are merged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, Window, functions
from pyspark.sql.types import (
    BinaryType,
    ByteType,
    DataType,
    IntegerType,
    LongType,
    StructType,
)

from rangecast.kernels.arrays import F64
from rangecast.model.answers import Answerer, Answers, Choice
from rangecast.model.boxes import Boxes
from rangecast.model.event_columns import EventColumns
from rangecast.model.space import Space
from rangecast.model.subset import named_by_row
from rangecast.spark.columns import ERROR, arrow_ids
from rangecast.spark.events import Encoded, encode_batch
from rangecast.spark.session import session_of
from rangecast.spark.steps.cut import Cut, cut_space, runs
from rangecast.spark.steps.results import Form, answer, result_schema
from rangecast.spark.subscriptions import (
    binary_of,
    boxes_of_table,
    floats_of,
)

SAMPLE = 20_000
"""Events and subscriptions that space is cut by."""
GROUP_BYTES = 256 << 20
"""What the boxes of a group may take in a worker, about."""
_BYTES = 48
"""For each attribute of a box: the box as it arrives, and the structure over it."""
_BATCH = 64 << 20
"""Bytes of boxes that a worker hands over at a time, at most."""
_POSITIVE = 0x7FFF_FFFF_FFFF_FFFF
_WORTH = 1 << 20
"""Bytes of boxes that are worth a group of their own."""
_BOX, _EVENT = 0, 1
_ROW = ("seq", "id", "score", "weights", "boxes")
_SORTED = ("group", "kind", "seq", "id")
NUMBER, ARRIVAL, PLACE = "_number", "_arrival", "_place"
"""Columns on the way: the row of the event, when the subscription arrived, its new rank."""


Make = Callable[[Boxes], Answerer]
"""Builds the answerer of a group, in a worker."""


def by_space(
    events: DataFrame,
    encoded: DataFrame,
    space: Space,
    form: Form,
    make: Make,
    nan: str,
    columns: EventColumns,
    group_bytes: int,
) -> DataFrame:
    """Return the answers, worked out by partitions of space.

    `encoded` are the subscriptions as boxes, `space` knows every word that they mention.
    """
    dimensions, width = len(space), columns.width(len(space))

    def values_of(points: Any) -> F64:
        return np.ascontiguousarray(floats_of(points, width)[:, :dimensions])

    points = _encoded_events(events, space, form, nan, columns)
    tasks = _tasks(events)
    some, scale = _sample(encoded.select("id", "seq", "boxes"))
    seen, _ = _sample(events)
    where = _encoded_events(seen, space, form, nan, columns).filter("error is null")
    cut = cut_space(
        boxes_of_table(some.toArrow(), dimensions),
        values_of(where.select("point").toArrow().column("point")),
        scale=scale,
        tasks=tasks,
        most_boxes=group_bytes / (_BYTES * dimensions),
    )
    rows = _placed_boxes(encoded, dimensions, cut).unionByName(
        _placed_events(points, values_of, cut), allowMissingColumns=True
    )
    # More shuffle partitions than tasks at a time, so that uneven ones even out.
    ordered = rows.repartition(min(cut.groups, 4 * tasks), "group").sortWithinPartitions(*_SORTED)
    inner = form._replace(event_id="event")
    kind = encoded.schema["id"].dataType

    def answer_all(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return _answers(batches, width, lambda table: make(_boxes(table, dimensions)), inner)

    return ordered.mapInArrow(answer_all, result_schema(form, _schema(make, kind, dimensions)))


def by_subscriptions(
    events: DataFrame,
    encoded: DataFrame,
    space: Space,
    form: Form,
    make: Make,
    nan: str,
    columns: EventColumns,
    group_bytes: int,
    best: int,
) -> DataFrame:
    """Return the best answers of each event, where any subscription may be one.

    Subscriptions are dealt out to groups, each of which answers all events; the best of every group
    are merged by score, then by arrival.
    """
    dimensions = len(space)
    kind = encoded.schema["id"].dataType
    sizes = encoded.select(functions.sum(functions.length("boxes"))).collect()
    held = int(sizes[0][0] or 0)  # bytes of all boxes, 16 for each attribute
    tasks = _tasks(events)
    groups = max(1, -(-held * _BYTES // (16 * group_bytes)), min(tasks, -(-held // _WORTH)))
    points = _encoded_events(events, space, form, nan, columns)
    # Which row of the events it is: ids may occur more than once.
    numbered = points.withColumn(NUMBER, functions.monotonically_increasing_id())
    everywhere = functions.explode(functions.sequence(functions.lit(0), functions.lit(groups - 1)))
    copies = numbered.select("*", everywhere.alias("group")).filter("error is null or group = 0")
    dealt = functions.pmod(functions.xxhash64("id"), functions.lit(groups)).cast("int")
    boxes = encoded.select(*_ROW).withColumn("group", dealt)
    rows = boxes.withColumn("kind", functions.lit(_BOX).cast("byte")).unionByName(
        copies.withColumn("kind", functions.lit(_EVENT).cast("byte")), allowMissingColumns=True
    )
    ordered = rows.repartition(min(groups, 4 * tasks), "group").sortWithinPartitions(*_SORTED)
    extra = StructType().add(NUMBER, LongType())
    inner = form._replace(event_id="event", kept=StructType([*form.kept.fields, *extra.fields]))
    schema = _schema(make, kind, dimensions).append(pa.field(ARRIVAL, pa.float64()))

    def build_group(table: pa.Table) -> Answerer:
        return _WithArrival.of(table, make, dimensions)

    def answer_all(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return _answers(batches, columns.width(dimensions), build_group, inner)

    found = ordered.mapInArrow(answer_all, result_schema(inner, schema))
    order = [
        functions.desc("score"),
        functions.asc_nulls_last(ARRIVAL),
        functions.asc("subscription"),
    ]
    place = functions.row_number().over(Window.partitionBy(NUMBER).orderBy(*order))
    merged = found.withColumn(PLACE, place).filter(functions.col(PLACE) <= best)
    rank = functions.when(functions.col("rank").isNotNull(), functions.col(PLACE).cast("long"))
    wanted = result_schema(form, _schema(make, kind, dimensions)).names
    return merged.withColumn("rank", rank).select([f"`{name}`" for name in wanted])


class _WithArrival(NamedTuple):
    """An answerer that also gives the order of arrival of each subscription."""

    inner: Answerer
    ids: pa.Array
    seq: pa.Array

    @classmethod
    def of(cls, table: pa.Table, make: Make, dimensions: int) -> _WithArrival:
        table = table.sort_by([("seq", "ascending"), ("id", "ascending")])
        inner = make(named_by_row(_boxes(table, dimensions)))
        ids, seq = (table[name].combine_chunks() for name in ("id", "seq"))
        return cls(inner, ids if pa.types.is_integer(ids.type) else ids.cast(pa.string()), seq)

    @property
    def choice(self) -> Choice:
        return self.inner.choice

    @property
    def memory(self) -> int:
        return self.inner.memory

    @property
    def schema(self) -> pa.Schema:
        place = self.inner.schema.get_field_index("subscription")
        known = self.inner.schema.set(place, pa.field("subscription", self.ids.type))
        return known.append(pa.field(ARRIVAL, pa.float64()))

    def answers(self, points: F64) -> Iterator[Answers]:
        for found in self.inner.answers(points):
            rows = found.columns["subscription"]
            columns = {**found.columns, "subscription": self.ids.take(rows)}
            yield found._replace(columns={**columns, ARRIVAL: self.seq.take(rows)})


def _schema(make: Make, kind: DataType, dimensions: int) -> pa.Schema:
    """Return the columns of answers about subscriptions with ids of this type."""
    none = np.zeros((0, dimensions))
    return make(Boxes.of(none, none, ids=pa.array([], arrow_ids(kind)))).schema


def _tasks(events: DataFrame) -> int:
    return 2 * max(1, session_of(events).sparkContext.defaultParallelism)


def _boxes(table: pa.Table, dimensions: int) -> Boxes:
    boxes = boxes_of_table(table, dimensions)
    whole = pa.types.is_integer(boxes.ids.type)
    return boxes if whole else replace(boxes, ids=boxes.ids.cast(pa.string()))


def _encoded_events(
    events: DataFrame, space: Space, form: Form, nan: str, columns: EventColumns
) -> DataFrame:
    """Return events as `event`, `kept` (a struct), `point` (bytes) and `error`."""
    width = columns.width(len(space))

    def encode_all(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            done = encode_batch(
                space,
                batch,
                form.event_id,
                columns,
                nan=nan,
                raising=not form.errors,
            )
            points = np.full((batch.num_rows, width), np.inf)
            points[done.places] = done.points
            ends = np.arange(batch.num_rows + 1) * 8 * width
            error_place = np.full(batch.num_rows, -1)
            error_place[done.bad_places] = np.arange(len(done.bad_places))
            taken = pa.array(error_place, mask=error_place < 0)
            made = {
                "event": batch.column(form.event_id),
                "point": binary_of(ends, points),
                "error": done.errors.take(taken),
            }
            if form.keep:
                kept = [batch.column(name) for name in form.keep]
                made["kept"] = pa.StructArray.from_arrays(kept, list(form.keep))
            yield pa.record_batch(made)

    schema = StructType().add("event", form.event_type).add("point", BinaryType())
    schema = schema.add("error", ERROR)
    if form.keep:
        schema = schema.add("kept", form.kept)
    return events.mapInArrow(encode_all, schema)


def _sample(data: DataFrame) -> tuple[DataFrame, float]:
    """Return about `SAMPLE` rows, and one in how many they are."""
    count = data.count()
    if count <= SAMPLE:
        return data, 1.0
    return data.sample(fraction=SAMPLE / count, seed=1), count / SAMPLE


def _placed_boxes(encoded: DataFrame, dimensions: int, cut: Cut) -> DataFrame:
    """Return a row for every group of every subscription, with those of its boxes that it needs."""

    def place(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        # A box may go to every group: no batch is larger than this allows.
        rows = max(1, _BATCH // (16 * dimensions * cut.groups))
        for batch in batches:
            for begin in range(0, batch.num_rows, rows):
                yield _boxes_by_group(batch.slice(begin, rows), dimensions, cut)

    schema = StructType(_keys().fields + [encoded.schema[name] for name in _ROW])
    return encoded.select(*_ROW).mapInArrow(place, schema)


def _boxes_by_group(batch: pa.RecordBatch, dimensions: int, cut: Cut) -> pa.RecordBatch:
    sizes = pc.binary_length(batch.column("boxes")).to_numpy() // (16 * dimensions)
    flat = floats_of(batch.column("boxes"), 2 * dimensions)
    owner = np.repeat(np.arange(len(sizes)), sizes)
    box, part = cut.parts_of_boxes(flat[:, :dimensions], flat[:, dimensions:])
    # Of a subscription in a partition, one row with the boxes that meet it.
    order = np.lexsort((box, part, owner[box]))
    box, part = box[order], part[order]
    begins = np.ones(len(box), np.bool_)
    begins[1:] = (np.diff(owner[box]) != 0) | (np.diff(part) != 0)
    starts = np.flatnonzero(begins)
    ends = np.append(starts, len(box))
    rows = pa.array(owner[box[starts]])
    groups, copies = cut.groups_of_parts(part[starts])
    one = pa.record_batch(
        {
            **{name: batch.column(name).take(rows) for name in _ROW[:-1]},
            "boxes": binary_of(ends * 16 * dimensions, flat[box]),
        }
    ).take(pa.array(copies))
    kind = pa.array(np.full(len(groups), _BOX, np.int8))
    columns = [pa.array(groups.astype(np.int32)), kind, *one.columns]
    return pa.record_batch(columns, ["group", "kind", *one.schema.names])


def _placed_events(points: DataFrame, values_of: Callable[[pa.Array], F64], cut: Cut) -> DataFrame:
    """Return events with their group."""

    def place(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            points = values_of(batch.column("point"))
            deal = batch.column("deal").to_numpy() & np.int64(_POSITIVE)
            group = cut.groups_of_events(points, deal)
            kind = pa.array(np.full(len(group), _EVENT, np.int8))
            columns = [pa.array(group.astype(np.int32)), kind, *batch.columns[:-1]]
            yield pa.record_batch(columns, ["group", "kind", *batch.schema.names[:-1]])

    schema = _keys()
    for field in points.schema:
        schema = schema.add(field)
    dealt = points.withColumn("deal", functions.xxhash64("event", "point"))
    return dealt.mapInArrow(place, schema)


def _keys() -> StructType:
    return StructType().add("group", IntegerType()).add("kind", ByteType())


def _answers(
    batches: Iterator[pa.RecordBatch],
    width: int,
    build_group: Callable[[pa.Table], Answerer],
    form: Form,
) -> Iterator[pa.RecordBatch]:
    """Yield the answers of sorted rows: the boxes of a group, then its events, group by group."""
    group = None
    boxes: list[pa.RecordBatch] = []
    answerer: Answerer | None = None
    for batch in batches:
        for run in runs(batch):
            number = run.column("group")[0].as_py()
            if number != group:
                group, boxes, answerer = number, [], None
            if run.column("kind")[0].as_py() == _BOX:
                boxes.append(run.select(list(_ROW)))
                continue
            if answerer is None:
                fields = pa.schema([run.schema.field(name) for name in _ROW])
                answerer = build_group(pa.Table.from_batches(boxes, fields))
                boxes = []
            yield from _answer_run(answerer, run, width, form)


def _answer_run(
    answerer: Answerer, run: pa.RecordBatch, width: int, form: Form
) -> Iterator[pa.RecordBatch]:
    places = np.arange(run.num_rows)
    bad = run.column("error").is_valid().to_numpy(zero_copy_only=False)
    points = floats_of(run.column("point"), width)
    encoded = Encoded(
        points[~bad], places[~bad], places[bad], run.column("error").filter(pa.array(bad))
    )
    columns = {"event": run.column("event")}
    if "kept" in run.schema.names:
        kept = run.column("kept")
        columns |= dict(zip(kept.type.names, kept.flatten(), strict=True))
    if NUMBER in run.schema.names:
        columns[NUMBER] = run.column(NUMBER)
    yield from answer(answerer, pa.record_batch(columns), encoded, form)
