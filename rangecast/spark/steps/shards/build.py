"""Shards built by the workers: subscriptions go to the task of their shard, which builds it.

A sample of the boxes says where shards lie (`placing`). Every row gets the number of its shard and
of its arrival; one shuffle brings the rows of a shard together, many in one value (`packs`). A task
reads them, builds the structure, and saves it as a snapshot. On a local master rows lie in files,
and the driver tells each task which: nothing is shuffled, and the workers map what one of them
wrote. On a cluster the snapshot stays on the host that built it and travels once through the
driver, which hands it to Spark and never holds more than one shard.

Boxes that are on the driver are assigned there, and mapped by the workers: nothing is shuffled.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import LongType

from rangecast.kernels.arrays import I64
from rangecast.model.answers.answerer import Choice
from rangecast.model.boxes import Boxes
from rangecast.model.shapes.verification.places import places_of, without_places
from rangecast.model.space import Space
from rangecast.spark.columns import as_spark_ids
from rangecast.spark.session import is_local
from rangecast.spark.shipped import (
    build_folder,
    hosts_folder,
    packed,
    save,
    ship,
    ship_archive,
    ship_folder,
)
from rangecast.spark.steps.shards.memory import large_arrays_apart
from rangecast.spark.steps.shards.placing import ShardAssignment, hulls, plan_shards
from rangecast.spark.steps.shards.sharded_set import Shard
from rangecast.spark.subscriptions import packs, spool
from rangecast.spark.subscriptions.encode import boxes_in_order, boxes_of_table
from rangecast.spark.subscriptions.kept import KeptSet, SetSize
from rangecast.spark.subscriptions.packed_boxes import RowBoxes, unpack
from rangecast.spark.subscriptions.spool import Spool

SAMPLE = 20_000
"""Subscriptions that space is cut by."""
_PIECE = 32 << 20
"""Bytes of a shard that a worker hands over at a time."""
_BUILT = (
    "digest string, rows bigint, memory bigint, lo binary, hi binary, index string, why string, "
    "data binary"
)
_COLUMNS = ("id", "score", "weights", "boxes")
_ARRIVAL = "arrival"

Make = Callable[[Boxes], Any]
"""Builds an answerer over some subscriptions."""


@dataclass(frozen=True)
class _InSpace:
    """Builds answerers over boxes of a space with places, whose words they need."""

    make: Make
    space: Space

    def __call__(self, boxes: Boxes) -> Any:
        """Build an answerer over boxes."""
        return self.make(replace(boxes, space=self.space))


def in_space(make: Make, space: Space) -> Make:
    """Return a builder of answerers over boxes that may lack their space."""
    return make if places_of(space) is None else _InSpace(make, space)


def build_shards(
    session: SparkSession, kept: KeptSet, make: Make, size: SetSize, wanted: int
) -> tuple[Shard, ...]:
    """Build the shards of subscriptions on the workers, about `wanted` of them."""
    dimensions, schema = size.dimensions, kept.rows.schema
    sample = kept.packs.sample(schema, SAMPLE / max(1, size.rows))
    placing = plan_shards(boxes_of_table(sample, dimensions), wanted)
    if not size.seqs and isinstance(schema["id"].dataType, LongType):
        source, name = kept.packs.frame, "id"
    else:
        source, name = _in_order(kept.rows), _ARRIVAL
    placed = _placed(source, name, dimensions, placing, kept.folder)
    if kept.folder is not None:
        return _build_from_files(session, placed.toArrow(), placing.shards, dimensions, make)
    ordered = placed.repartition(placing.shards, "shard").sortWithinPartitions("shard")

    def build_all(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for streams in _by_shard(batches):
            yield from _built(streams, dimensions, make, None)

    return _collected(session, ordered.mapInArrow(build_all, _BUILT), None)


def _build_from_files(
    session: SparkSession, placed: pa.Table, shards: int, dimensions: int, make: Make
) -> tuple[Shard, ...]:
    """Build shards whose streams lie in files that all workers see: nothing is shuffled."""
    folder = build_folder()
    streams: dict[int, list[bytes]] = {}
    for shard, data in zip(placed["shard"].to_pylist(), placed["data"].to_pylist(), strict=True):
        streams.setdefault(shard, []).append(data)

    def build_all(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column("id").to_pylist():
                if number in streams:
                    mine = [pa.py_buffer(data) for data in streams[number]]
                    yield from _built(mine, dimensions, make, folder)

    numbers = session.range(0, shards, 1, shards)
    return _collected(session, numbers.mapInArrow(build_all, _BUILT), folder)


class _PlacedBoxes(NamedTuple):
    """Boxes of a whole set, and the rows of its shards."""

    boxes: Boxes
    rows: I64
    """Those of one shard after those of another, ascending within each."""
    begins: I64
    """Where the rows of each shard begin, and the last ones end."""

    def rows_of(self, shard: int) -> I64:
        return self.rows[self.begins[shard] : self.begins[shard + 1]]


def build_shards_of_boxes(
    session: SparkSession, boxes: Boxes, make: Make, wanted: int
) -> tuple[Shard, ...]:
    """Build the shards of boxes that are on the driver, about `wanted` of them.

    The workers map all boxes, and take those of their shards.
    """
    chosen = np.random.default_rng(boxes.rows).random(boxes.rows) < SAMPLE / max(1, boxes.rows)
    placing = plan_shards(boxes.take(np.flatnonzero(chosen)), wanted)
    sizes = np.diff(boxes.box_offsets)
    shard = placing.shards_of(*hulls(RowBoxes(boxes.lo, boxes.hi, sizes)), np.arange(boxes.rows))
    order = placing.sorted_rows(shard)
    begins = np.searchsorted(shard[order], np.arange(placing.shards + 1))
    shipped = ship(session, _PlacedBoxes(boxes, order, begins))
    folder = build_folder() if is_local(session) else None

    def build_all(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        placed: _PlacedBoxes = shipped.open()
        for batch in batches:
            for number in batch.column("id").to_pylist():
                rows = placed.rows_of(number)
                if len(rows):
                    yield from _saved(placed.boxes.take(rows), rows, make, folder)

    numbers = session.range(0, placing.shards, 1, placing.shards)
    try:
        return _collected(session, numbers.mapInArrow(build_all, _BUILT), folder)
    finally:
        shipped.release()


def _collected(session: SparkSession, built: DataFrame, folder: Path | None) -> tuple[Shard, ...]:
    """Build the shards; ship them from the folder, or through the driver if there is none."""
    if folder is not None:
        try:
            return tuple(_shards(session, built.collect(), folder))
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
    built.persist(StorageLevel.DISK_ONLY)
    try:
        built.select(F.count("digest")).collect()  # all at once; what follows goes one by one
        return tuple(_shards(session, built.toLocalIterator(prefetchPartitions=True), None))
    finally:
        built.unpersist()


def _in_order(encoded: DataFrame) -> DataFrame:
    """Number the subscriptions in order of arrival."""
    order = [F.asc_nulls_last("seq"), F.asc("id")]
    tasks = encoded.sparkSession.conf.get("spark.sql.shuffle.partitions")
    ordered = encoded.repartitionByRange(int(tasks or 2), *order).sortWithinPartitions(*order)
    return ordered.select(*_COLUMNS, F.monotonically_increasing_id().alias(_ARRIVAL))


def _placed(
    frame: DataFrame, by: str, dimensions: int, placing: ShardAssignment, folder: Path | None
) -> DataFrame:
    """Return the subscriptions as streams of rows that go to one shard each.

    frame    packs, or rows
    by       the column that says when they arrived
    folder   where streams are kept, if all workers see it
    """
    in_packs = "data" in frame.columns

    def place_all(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        tables = packs.opened(batches) if in_packs else map(_table, batches)
        with Spool(folder) as streams:
            for table in tables:
                arrival = table.column(by).to_numpy().astype(np.int64)
                boxes = unpack(table.column("boxes"), dimensions)
                shard = placing.shards_of(*hulls(boxes), arrival)
                order = placing.sorted_rows(shard)
                sorted_rows = table.select([*_COLUMNS]).append_column(_ARRIVAL, pa.array(arrival))
                sorted_rows = sorted_rows.take(pa.array(order)).combine_chunks()
                ends = np.flatnonzero(np.diff(shard[order], append=-1)) + 1
                begins = np.concatenate([[0], ends[:-1]])[: len(ends)]
                data = [
                    streams.keep(sorted_rows.slice(begin, end - begin))
                    for begin, end in zip(begins.tolist(), ends.tolist(), strict=True)
                ]
                numbers = pa.array(shard[order][begins].astype(np.int32))
                yield pa.record_batch({"shard": numbers, "data": pa.array(data, pa.binary())})

    rows = frame.select("data") if in_packs else frame
    return rows.mapInArrow(place_all, "shard int, data binary")


def _table(batch: pa.RecordBatch) -> pa.Table:
    return pa.Table.from_batches([batch])


def _by_shard(batches: Iterator[pa.RecordBatch]) -> Iterator[list[pa.Buffer]]:
    """Yield the streams of each shard; the input is sorted by shard."""
    number: int | None = None
    held: list[pa.Buffer] = []
    for batch in batches:
        for shard, data in zip(
            batch.column("shard").to_pylist(), batch.column("data"), strict=True
        ):
            if shard != number and held:
                yield held
                held = []
            number = shard
            held.append(data.as_buffer())
    if held:
        yield held


def _built(
    streams: list[pa.Buffer], dimensions: int, make: Make, folder: Path | None
) -> Iterator[pa.RecordBatch]:
    """Build and save the shard of some streams."""
    with large_arrays_apart():
        table = _in_order_of_arrival(streams)
        streams.clear()  # what isn't needed any more goes at once: the structure needs the room
        arrival = table.column(_ARRIVAL).to_numpy()
        boxes = boxes_in_order(table, dimensions)
        del table
        pa.default_memory_pool().release_unused()
        yield from _saved(boxes, arrival, make, folder)


def _saved(boxes: Boxes, arrival: I64, make: Make, folder: Path | None) -> Iterator[pa.RecordBatch]:
    """Build and save the structure of a shard; yield its metadata, and its bytes if needed."""
    space = make.space if isinstance(make, _InSpace) else None
    boxes = replace(boxes, ids=as_spark_ids(boxes.ids), space=space)
    lo, hi = hull_of(boxes)
    answerer = replace(make(boxes), arrival=arrival)
    rows = boxes.rows
    del boxes
    saved = save(folder or hosts_folder(), answerer)
    data = b"" if folder else packed(saved)
    for begin in range(0, max(1, len(data)), _PIECE):
        yield pa.record_batch(
            {
                "digest": [saved.name],
                "rows": [rows],
                "memory": [answerer.memory],
                "lo": [lo.tobytes()],
                "hi": [hi.tobytes()],
                "index": [answerer.choice.name],
                "why": [answerer.choice.why],
                "data": [data[begin : begin + _PIECE]],
            }
        )


def _in_order_of_arrival(streams: list[pa.Buffer]) -> pa.Table:
    """Return the rows of a shard; most often it suffices to put its streams in order."""
    tables = [spool.read(data) for data in streams]
    tables.sort(key=lambda table: table.column(_ARRIVAL)[0].as_py())
    table = pa.concat_tables(tables)
    arrival = table.column(_ARRIVAL).to_numpy()
    return table if (arrival[1:] > arrival[:-1]).all() else table.sort_by(_ARRIVAL)


def hull_of(boxes: Boxes) -> tuple[Any, Any]:
    """Return the hull of all boxes, including the bounding boxes of shapes."""
    boxes = without_places(boxes)
    if not len(boxes.lo):
        return np.full(boxes.dimensions, -np.inf), np.full(boxes.dimensions, np.inf)
    return boxes.lo.min(axis=0), boxes.hi.max(axis=0)


def _shards(session: SparkSession, built: Iterable[Any], folder: Path | None) -> Iterator[Shard]:
    """Ship the shards, one at a time."""
    pieces: list[bytes] = []
    row: Any = None
    for following in built:
        if row is not None and following["digest"] != row["digest"]:
            yield _shard(session, row, pieces, folder)
            pieces = []
        row = following
        pieces.append(bytes(row["data"]))
    if row is not None:
        yield _shard(session, row, pieces, folder)


def _shard(session: SparkSession, row: Any, pieces: list[bytes], folder: Path | None) -> Shard:
    if folder is not None:
        shipped = ship_folder(session, folder / row["digest"])
    else:
        shipped = ship_archive(session, row["digest"], b"".join(pieces))
    lo, hi = (np.frombuffer(row[name], np.float64) for name in ("lo", "hi"))
    choice = Choice(row["index"], row["why"])
    return Shard(shipped, row["rows"], row["memory"], lo, hi, choice)
