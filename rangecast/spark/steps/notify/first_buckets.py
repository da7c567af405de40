"""The first buckets of interests: Spark sorts their boxes into files, the workers add lists."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from rangecast.errors import FileError, UsageError
from rangecast.notify.board import Board
from rangecast.notify.new_interests import NewInterests
from rangecast.spark.columns import id_kind
from rangecast.spark.steps.notify.board_schema import BoardSchema, as_points, boxes_of
from rangecast.spark.steps.notify.buckets import Work
from rangecast.spark.steps.notify.open_bucket import Entries, make_bucket

SHARED = "use a folder on a file system that the driver and all workers mount"


def first_boxes(
    session: SparkSession, board_schema: BoardSchema, interests: DataFrame | NewInterests, k: int
) -> tuple[DataFrame, str]:
    """Return the boxes of the initial interests, and the type of their ids."""
    if not isinstance(interests, DataFrame):
        kind = "bigint" if pa.types.is_integer(interests.ids.type) else "string"
        return session.createDataFrame(boxes_of(interests, k, kind)), kind
    board_schema.check_interests(interests, "interests")
    kind = id_kind(interests, "id", "interests").simpleString()
    for row in interests.groupBy("id").count().where("count > 1").limit(1).collect():
        raise UsageError(f"interests: duplicate id {row['id']!r}, {row['count']:,} times")
    return board_schema.boxes(interests, kind, k), kind


def sorted_strips(folder: Path, boxes: DataFrame, most: int) -> tuple[list[Path], bool]:
    """Write boxes of interests, in the order of their points, to files of at most this many.

    Return the files that have some, and whether an interest has several boxes.
    """
    if boxes.isEmpty():  # Spark would leave out the observation, too
        folder.mkdir(parents=True, exist_ok=True)
        return [], False
    seen = Observation()
    columns = (
        F.count(F.lit(1)).alias("rows"),
        F.max("boxes").alias("boxes"),
        F.first("error", ignorenulls=True).alias("error"),
    )
    boxes = boxes.observe(seen, *columns).select("id", "point", "k")
    writer = boxes.orderBy("point").write.mode("overwrite")
    writer.option("maxRecordsPerFile", most).parquet(f"file://{folder}")
    if seen.get["error"] is not None:
        raise UsageError(f"interests: {seen.get['error']}\n  hint: correct or drop them")
    strips = strips_of(folder)
    there = sum(strips.values())
    if there != seen.get["rows"]:
        raise FileError(
            f"{folder}: {seen.get['rows']:,} interests were written, but only {there:,} were "
            f"found\n  hint: {SHARED}"
        )
    return list(strips), (seen.get["boxes"] or 0) > 1


def strips_of(folder: Path) -> dict[Path, int]:
    """Return the non-empty files of boxes, and the number of boxes in each."""
    rows = {path: pq.read_metadata(path).num_rows for path in folder.glob("*.parquet")}
    return {path: count for path, count in rows.items() if count}


def bucket_maker(folder: Path, board: Board) -> Callable[[Path], list[Any]]:
    """Return a function that builds a bucket from a file of boxes, with the lists of a board."""

    def make(strip: Path) -> list[Any]:
        strip_table = pq.ParquetFile(strip).read()
        table = pa.table(
            dict(zip(strip_table.column_names, strip_table.columns, strict=True))
        )  # all nullable
        flat = table["point"].combine_chunks().flatten().to_numpy()
        points = flat.reshape(len(table), -1)
        table = table.set_column(1, "point", as_points(points))
        entries = Entries.of(board.lists(points))
        return [make_bucket(folder, table, entries), Work(len(table), len(table))]

    return make
