"""Shards built by the workers: subscriptions go to the task of their shard, which builds it.

A sample of the boxes says where shards lie (`placing`). Every row gets the number of its shard and
of its arrival; one shuffle brings the rows of a shard together, many in one value (`packs`). A task
reads them, builds the structure, and saves it as a snapshot. On a local master that is all: the
workers map what one of them wrote. On a cluster the snapshot stays on the host that built it and
travels once through the driver, which hands it to Spark and never holds more than one shard.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import LongType, StructType

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
    ship_archive,
    ship_folder,
)
from rangecast.spark.steps.shards.placing import ShardAssignment, hulls, place
from rangecast.spark.steps.shards.sharded_set import Shard
from rangecast.spark.subscriptions import packs
from rangecast.spark.subscriptions.encode import boxes_in_order, boxes_of_table
from rangecast.spark.subscriptions.kept import KeptSet, SetSize
from rangecast.spark.subscriptions.spool import Spool

SAMPLE = 20_000
"""Subscriptions that space is cut by."""
_PIECE = 32 << 20
"""Bytes of a shard that a worker hands over at a time."""
_BUILT = (
    "digest string, rows bigint, memory bigint, lo binary, hi binary, index string, why string, "
    "data binary"
)
_COLUMNS = ("id", "seq", "score", "weights", "boxes")
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
    session: SparkSession,
    kept: KeptSet,
    make: Make,
    size: SetSize,
    wanted: int,
    *,
    by_row: bool,
) -> tuple[Shard, ...]:
    """Build the shards of subscriptions on the workers, about `wanted` of them.

    by_row   their `seq` are the rows of one set: these are the numbers of their arrival
    """
    dimensions, schema = size.dimensions, kept.rows.schema
    some = kept.packs.sample(schema, SAMPLE / max(1, size.rows))
    placing = place(boxes_of_table(some, dimensions), wanted)
    by_id = not size.seqs and isinstance(schema["id"].dataType, LongType)
    if by_row or by_id:
        given, name = kept.packs.frame, "seq" if by_row else "id"
    else:
        given, name = _in_order(kept.rows), _ARRIVAL
    placed = _placed(given, name, dimensions, placing, kept.folder)
    ordered = placed.repartition(placing.shards, "shard").sortWithinPartitions("shard")
    folder = build_folder() if is_local(session) else None

    def build_all(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for streams in _by_shard(batches):
            yield from _built(streams, dimensions, make, folder)

    built = ordered.mapInArrow(build_all, _BUILT)
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
    given: DataFrame, by: str, dimensions: int, placing: ShardAssignment, folder: Path | None
) -> DataFrame:
    """Return the subscriptions as streams of rows that go to one shard each.

    given    packs, or rows
    by       the column that says when they arrived
    folder   where streams are kept, if all workers see it
    """
    in_packs = "data" in given.columns

    def place_all(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        tables = packs.opened(batches) if in_packs else map(_table, batches)
        with Spool(folder) as streams:
            for table in tables:
                arrival = table.column(by).to_numpy().astype(np.int64)
                shard = placing.shards_of(*hulls(boxes_in_order(table, dimensions)), arrival)
                order = np.argsort(shard, kind="stable")
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

    rows = given.select("data") if in_packs else given
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
    """Build and save one shard; yield its metadata, and its bytes if they must be shipped."""
    table = packs.rows_of(streams, StructType())
    streams.clear()  # what isn't needed any more goes at once: the structure needs the room
    table = table.sort_by(_ARRIVAL)
    arrival = table.column(_ARRIVAL).to_numpy()
    boxes = boxes_in_order(table, dimensions)
    del table
    pa.default_memory_pool().release_unused()
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
