"""The first buckets of interests: Spark sorts these into files, and the workers add their lists."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F  # noqa: N812

from rangecast.errors import FileError, UsageError
from rangecast.model.numbers import MAX
from rangecast.notify.objects import Objects
from rangecast.spark.steps.buckets import Work
from rangecast.spark.steps.open_bucket import Entries, ends_of, make_bucket

SHARED = "give a folder on a file system that the driver and all workers mount"


def sorted_strips(folder: Path, interests: DataFrame, kind: str, k: int, most: int) -> list[Path]:
    """Write interests to files of at most this many, by place; return those that have some."""
    wanted = F.col("k") if "k" in interests.columns else F.lit(k)
    ranges = interests.select(
        F.col("id").cast(kind).alias("id"),
        _bound("x_lo", -MAX),
        _bound("x_hi", MAX),
        F.coalesce(wanted, F.lit(k)).cast("int").alias("k"),
    )
    wrong = ranges.where(f"id is null or not x_lo <= x_hi or k < 1 or k > {k}").limit(1)
    for row in wrong.collect():
        raise UsageError(f"interest {row['id']!r}: needs an id, x_lo <= x_hi and 1 <= k <= {k}")
    for row in ranges.groupBy("id").count().where("count > 1").limit(1).collect():
        raise UsageError(f"interests: duplicate id {row['id']!r}, {row['count']:,} times")
    seen = Observation()
    ranges = ranges.observe(seen, F.count(F.lit(1)).alias("rows"))
    writer = ranges.orderBy("x_lo", "x_hi").write.mode("overwrite")
    writer.option("maxRecordsPerFile", most).parquet(f"file://{folder}")
    strips = strips_of(folder)
    there = sum(strips.values())
    if there != seen.get["rows"]:
        raise FileError(
            f"{folder}: {seen.get['rows']:,} interests were written, and {there:,} of "
            f"them are there\n  to do: {SHARED}"
        )
    return list(strips)


def _bound(name: str, none: float) -> Column:
    """Return a bound, finite; `none` where there isn't one."""
    bound = F.coalesce(F.nanvl(F.col(name).cast("double"), F.lit(none)), F.lit(none))
    return F.greatest(F.least(bound, F.lit(MAX)), F.lit(-MAX)).alias(name)


def strips_of(folder: Path) -> dict[Path, int]:
    """Return the files of interests that have some, and how many."""
    rows = {path: pq.read_metadata(path).num_rows for path in folder.glob("*.parquet")}
    return {path: count for path, count in rows.items() if count}


def bucket_maker(folder: Path, objects: Objects, k: int) -> Callable[[Path], list[Any]]:
    """Return what makes a bucket of a file of interests, with their first lists."""
    _, xs, ys, arrivals = objects.columns()

    def make(strip: Path) -> list[Any]:
        found = pq.ParquetFile(strip).read()
        table = pa.table(dict(zip(found.column_names, found.columns, strict=True)))  # all nullable
        entries = Entries.now(Objects(xs, ys, arrivals), *ends_of(table), k)
        return [make_bucket(folder, table, entries), Work(len(table), len(table))]

    return make
