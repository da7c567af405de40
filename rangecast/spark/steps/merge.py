"""Step `merge`: the union of all subscriptions of a DataFrame as ranges on the Hilbert curve.

    ranges = merge(subscriptions, space, attributes=["price", "volume"])   # start, end

For sets of tens of millions. Each task converts its subscriptions block by block and keeps only
their union. The curve is cut into runs of equal length and the unions are cut at these; each run is
sorted and scanned where it lies, which leaves the union itself; a last sort and scan of that joins
what touches across runs and closes gaps. The ranges are those of `rangecast.merge.Summary`.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from rangecast.errors import UsageError
from rangecast.kernels.arrays import U64
from rangecast.merge.cells import Cells
from rangecast.merge.ranges import MAX_RANGES, Ranges, joined, union_of_boxes
from rangecast.model.boxes import Boxes
from rangecast.model.io.rejected import RejectedRows
from rangecast.model.space import Space
from rangecast.spark.session import parallelism
from rangecast.spark.subscriptions.encode import encode, encoded_boxes, report_errors
from rangecast.spark.subscriptions.packed_boxes import unpack

_RUNS = 8
"""Bits of a place that say which run it is in."""
_MAX_BITS = 63
"""Spark's whole numbers have a sign."""
_ROWS = 1 << 16
_SCHEMA = "start bigint, end bigint"


def merge(
    subscriptions: DataFrame,
    space: Space,
    bits: int = 8,
    *,
    attributes: Sequence[str] | None = None,
    cells: Cells | None = None,
    max_ranges_per_subscription: int = MAX_RANGES,
    gap: int = 0,
) -> DataFrame:
    """Return the summary of subscriptions: columns start and end, ascending, in one partition.

    The options are those of `rangecast.merge.Summary`. A rejected subscription fails the job.
    """
    if subscriptions.isStreaming:
        raise UsageError(
            "merge requires a batch DataFrame: the union of a stream is never complete"
        )
    grid = Cells.chosen(space, bits, attributes, cells)
    check_width(grid)
    encoded = encode(subscriptions, space)
    union = _union(encoded.rows, grid, len(space), max_ranges_per_subscription, gap)
    weakref.finalize(union, encoded.release).atexit = False
    return union


def check_width(grid: Cells) -> None:
    """Reject a grid whose cell numbers don't fit a Spark type."""
    if grid.width > _MAX_BITS:
        raise UsageError(
            "Spark has no unsigned 64-bit integers: use at most 63 bits in all; given: "
            f"{len(grid.axes)} attributes of {grid.bits} bits"
        )


def union_by_workers(
    session: SparkSession, boxes: Boxes, max_ranges_per_subscription: int
) -> Callable[[Cells], Ranges]:
    """Return a function that computes the union of the driver's boxes on the workers."""
    rows, release = encoded_boxes(session, boxes)

    def union(grid: Cells) -> Ranges:
        if len(grid.axes) * grid.bits > _MAX_BITS:
            return union_of_boxes(
                grid,
                boxes.lo,
                boxes.hi,
                boxes.owner,
                max_ranges_per_subscription=max_ranges_per_subscription,
            )
        table = _union(rows, grid, boxes.dimensions, max_ranges_per_subscription, 0).toArrow()
        return Ranges(*(table[name].to_numpy().astype(np.uint64) for name in ("start", "end")))

    weakref.finalize(union, release)
    return union


def _union(
    encoded: DataFrame, grid: Cells, dimensions: int, max_ranges_per_subscription: int, gap: int
) -> DataFrame:
    """Return the union of encoded subscriptions: start and end, ascending, in one partition."""
    shift = max(len(grid.axes) * grid.bits - _RUNS, 0)

    def sum_up(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        parts: list[Ranges] = []
        for batch in batches:
            union = _union_of_batch(batch, grid, dimensions, max_ranges_per_subscription)
            while parts and len(parts[-1]) <= len(union):
                union = joined([parts.pop(), union])
            parts.append(union)
        starts, ends = _cut(joined(parts), shift)
        for begin in range(0, len(starts), _ROWS):
            block = slice(begin, begin + _ROWS)
            run = pa.array((starts[block] >> np.uint64(shift)).astype(np.int32))
            yield pa.record_batch({"run": run, **_columns(starts[block], ends[block])})

    none = np.zeros((1, dimensions))
    union_of_boxes(
        grid,
        none,
        none,
        np.zeros(1, np.int32),
        max_ranges_per_subscription=max_ranges_per_subscription,
    )  # compile before workers do
    pieces = encoded.select("id", "boxes", "error").mapInArrow(sum_up, f"run int, {_SCHEMA}")
    tasks = 2 * parallelism(encoded.sparkSession)
    merged = pieces.repartition(tasks, "run").sortWithinPartitions("start")
    merged = merged.select("start", "end").mapInArrow(_scan(0), _SCHEMA)
    return merged.repartition(1).sortWithinPartitions("start").mapInArrow(_scan(gap), _SCHEMA)


def _union_of_batch(
    batch: pa.RecordBatch, grid: Cells, dimensions: int, max_ranges_per_subscription: int
) -> Ranges:
    table = pa.Table.from_batches([batch])
    report_errors(table, RejectedRows())
    lo, hi, sizes = unpack(table.column("boxes"), dimensions)
    owner = np.repeat(np.arange(len(sizes), dtype=np.int32), sizes)
    return union_of_boxes(
        grid, lo, hi, owner, max_ranges_per_subscription=max_ranges_per_subscription
    )


def _cut(ranges: Ranges, shift: int) -> tuple[U64, U64]:
    """Split ranges at the starts of runs, so that each lies in one run."""
    by = np.uint64(shift)
    first, last = ranges.starts >> by, ranges.ends >> by
    counts = (last - first).astype(np.int64) + 1
    position = np.repeat(np.arange(len(counts)), counts)
    within = np.arange(len(position)) - np.repeat(np.cumsum(counts) - counts, counts)
    run = first[position] + within.astype(np.uint64)
    begin = run << by
    end = begin + np.uint64((1 << shift) - 1)
    return np.maximum(ranges.starts[position], begin), np.minimum(ranges.ends[position], end)


def _scan(gap: int) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the step that joins sorted ranges of a partition; an open one goes on to the next."""

    def scan(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        carried = Ranges(np.zeros(0, np.uint64), np.zeros(0, np.uint64))
        for batch in batches:
            ranges = Ranges(*(batch.column(i).to_numpy().astype(np.uint64) for i in (0, 1)))
            merged = joined([carried, ranges], gap)
            yield pa.record_batch(_columns(merged.starts[:-1], merged.ends[:-1]))
            carried = Ranges(merged.starts[-1:], merged.ends[-1:])
        yield pa.record_batch(_columns(*carried))

    return scan


def _columns(starts: U64, ends: U64) -> dict[str, pa.Array]:
    return {"start": pa.array(starts.astype(np.int64)), "end": pa.array(ends.astype(np.int64))}
