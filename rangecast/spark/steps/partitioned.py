"""The partitioned plan of `match`: subscriptions too large for one worker, cut by space.

Boxes go to the partitions of space that they meet, events to the one they lie in (`cut`). Both
become rows of one DataFrame, which is shuffled by group and sorted so that a group's boxes come
before its events:

    group  subscriptions ...  events ...   next group  subscriptions ...

A worker reads that once: it builds a structure over the boxes of a group, streams the group's
events through it, and drops it when the next group begins. So it holds the boxes of one group at a
time, and never the events. Subscriptions of a DataFrame are not collected anywhere.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, functions
from pyspark.sql.types import BinaryType, ByteType, DoubleType, IntegerType, StructType

from rangecast.match.choose import build, choose
from rangecast.model.space import Space
from rangecast.spark.columns import ERROR
from rangecast.spark.events import Encoded, encode_batch
from rangecast.spark.session import session_of
from rangecast.spark.steps.cut import Cut, cut_space, runs
from rangecast.spark.steps.results import Form, Served, answer, result_schema
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
_BOX, _EVENT = 0, 1


def match(
    events: DataFrame,
    encoded: DataFrame,
    space: Space,
    form: Form,
    *,
    index: str,
    nan: str,
    group_bytes: int,
) -> DataFrame:
    """Return the answer to `match`, worked out by partitions of space.

    `encoded` are the subscriptions as boxes, `space` knows every word that they mention.
    """
    dimensions = len(space)
    points = _encoded_events(events, space, form, nan)
    tasks = 2 * max(1, session_of(events).sparkContext.defaultParallelism)
    some, scale = _sample(encoded.select("id", "seq", "boxes"))
    seen, _ = _sample(events)
    where = _encoded_events(seen, space, form, nan).filter("error is null")
    cut = cut_space(
        boxes_of_table(some.toArrow(), dimensions),
        floats_of(where.select("point").toArrow().column("point"), dimensions),
        scale=scale,
        tasks=tasks,
        most_boxes=group_bytes / (_BYTES * dimensions),
    )
    rows = _placed_boxes(encoded, dimensions, cut).unionByName(
        _placed_events(points, dimensions, cut), allowMissingColumns=True
    )
    # More shuffle partitions than tasks at a time, so that uneven ones even out.
    ordered = rows.repartition(min(cut.groups, 4 * tasks), "group").sortWithinPartitions(
        "group", "kind", "seq", "id"
    )
    inner = form._replace(event_id="event")

    def answer_all(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return _answers(batches, dimensions, index, inner)

    return ordered.mapInArrow(answer_all, result_schema(form, encoded.schema["id"].dataType))


def _encoded_events(events: DataFrame, space: Space, form: Form, nan: str) -> DataFrame:
    """Return events as `event`, `kept` (a struct), `point` (bytes) and `error`."""

    def encode_all(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            done = encode_batch(
                space,
                batch,
                form.event_id,
                nan=nan,
                raising=not form.errors,
            )
            points = np.full((batch.num_rows, len(space)), np.inf)
            points[done.places] = done.points
            ends = np.arange(batch.num_rows + 1) * 8 * len(space)
            error_place = np.full(batch.num_rows, -1)
            error_place[done.bad_places] = np.arange(len(done.bad_places))
            taken = pa.array(error_place, mask=error_place < 0)
            columns = {
                "event": batch.column(form.event_id),
                "point": binary_of(ends, points),
                "error": done.errors.take(taken),
            }
            if form.keep:
                kept = [batch.column(name) for name in form.keep]
                columns["kept"] = pa.StructArray.from_arrays(kept, list(form.keep))
            yield pa.record_batch(columns)

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

    schema = _keys().add("seq", DoubleType()).add(encoded.schema["id"]).add("boxes", BinaryType())
    return encoded.select("seq", "id", "boxes").mapInArrow(place, schema)


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
            "seq": batch.column("seq").take(rows),
            "id": batch.column("id").take(rows),
            "boxes": binary_of(ends * 16 * dimensions, flat[box]),
        }
    ).take(pa.array(copies))
    kind = pa.array(np.full(len(groups), _BOX, np.int8))
    columns = [pa.array(groups.astype(np.int32)), kind, *one.columns]
    return pa.record_batch(columns, ["group", "kind", *one.schema.names])


def _placed_events(points: DataFrame, dimensions: int, cut: Cut) -> DataFrame:
    """Return events with their group."""

    def place(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            points = floats_of(batch.column("point"), dimensions)
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
    batches: Iterator[pa.RecordBatch], dimensions: int, index: str, form: Form
) -> Iterator[pa.RecordBatch]:
    """Yield the answers of sorted rows: the boxes of a group, then its events, group by group."""
    group = None
    boxes: list[pa.RecordBatch] = []
    served: Served | None = None
    for batch in batches:
        for run in runs(batch):
            number = run.column("group")[0].as_py()
            if number != group:
                group, boxes, served = number, [], None
            if run.column("kind")[0].as_py() == _BOX:
                boxes.append(run.select(["seq", "id", "boxes"]))
                continue
            if served is None:
                served = _served(boxes, run.schema, dimensions, index)
                boxes = []
            yield from _answer_run(served, run, dimensions, form)


def _served(
    batches: list[pa.RecordBatch], schema: pa.Schema, dimensions: int, index: str
) -> Served:
    names = ["seq", "id", "boxes"]
    fields = pa.schema([schema.field(name) for name in names])
    boxes = boxes_of_table(pa.Table.from_batches(batches, fields), dimensions)
    ids = boxes.ids
    if not pa.types.is_integer(ids.type):
        ids = ids.cast(pa.string())
    return Served(build(boxes, choose(boxes, index).name), ids)


def _answer_run(
    served: Served, run: pa.RecordBatch, dimensions: int, form: Form
) -> Iterator[pa.RecordBatch]:
    places = np.arange(run.num_rows)
    bad = run.column("error").is_valid().to_numpy(zero_copy_only=False)
    points = floats_of(run.column("point"), dimensions)
    encoded = Encoded(
        points[~bad], places[~bad], places[bad], run.column("error").filter(pa.array(bad))
    )
    columns = {"event": run.column("event")}
    if form.keep:
        columns |= dict(zip(form.keep, run.column("kept").flatten(), strict=True))
    yield from answer(served, pa.record_batch(columns), encoded, form)
