"""Step `cover`: find the redundant subscriptions of a DataFrame, and what covers them.

    found = cover(subscriptions, space)      # subscription, covered_by (null: keep it)

For sets that no one machine holds. Space is cut into partitions (`cut`). A subscription's home is
where the lower corner of its first box lies; whatever covers it holds that corner, and so meets
its home. Three rounds, each over the groups of the partitions, all on the workers:

1. At home: what another one of the same group covers is out. Most are.
2. Visits: those left go to every group that they meet. Where a visitor covers one at home, that
   one is out as well; the rest is kept, as what covers anything is covered by something kept.
3. Names: a kept one goes to every group that it meets, and every subscription looks among these
   for the one that covers it and arrived first.

A worker holds those at home in one group. Its visitors come in order of arrival, a piece at a time;
one that is covered by a piece skips the next pieces. The output of a round goes to the disks of the
workers, and its input is deleted there.

Order of arrival is that of `seq`, or else of the ids. The kept set is the library's, whatever the
partitions.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import lit
from pyspark.sql.types import BinaryType, BooleanType, DataType, DoubleType, IntegerType, StructType

from rangecast.cover.batch import covered_by, earliest_coverers
from rangecast.kernels.arrays import I32, I64
from rangecast.model.boxes import Boxes
from rangecast.model.io.rejected import RejectedRows
from rangecast.model.io.subset import named_by_row
from rangecast.model.shapes.nesting import Nesting, with_nested
from rangecast.model.space import Space
from rangecast.spark.session import job_name, parallelism
from rangecast.spark.steps.curve_partition import CurvePartition, cut_space, runs
from rangecast.spark.subscriptions.encode import (
    boxes_of_table,
    encode,
    encoded_boxes,
    need_no_errors,
    without_duplicates,
)
from rangecast.spark.subscriptions.packed_boxes import pack, sizes_of, unpack

SAMPLE = 20_000
"""Subscriptions that space is cut by."""
GROUP_BYTES = 256 << 20
"""Approximate memory of a group's own subscriptions in a worker, and of a piece of its
visitors."""
_BYTES = 64
"""For each attribute of a box: the box as it arrives, and the structures over it."""
_BATCH = 64 << 20
"""Bytes of visitors that a worker hands over at a time, at most."""

_ROW = ("seq", "id", "boxes")
_HOME, _VISIT, _END = 0, 1, 2


def cover(subscriptions: DataFrame, space: Space, *, group_bytes: int = GROUP_BYTES) -> DataFrame:
    """Return what covers each subscription: `subscription`, `covered_by`, null for kept ones.

    `covered_by` names the kept subscription that covers it and arrived first. `group_bytes` is
    about what the subscriptions at home in one group may take in a worker, and their visitors at a
    time as well. The result is computed when this returns. Keep a reference to it while you use
    DataFrames derived from it, or it is computed again.
    """
    with job_name(subscriptions.sparkSession, "cover"):
        encoded = encode(subscriptions, space)
        rows = _with_nested(encoded.rows, encoded.space)
        covered = _covered(rows, len(space), group_bytes)
    encoded.release()
    answer = covered.select("*")
    weakref.finalize(answer, _release_rows, covered).atexit = False
    return answer


def covered_rows(session: SparkSession, boxes: Boxes, group_bytes: int = GROUP_BYTES) -> I32:
    """Return `cover.batch.covered_by` of boxes that are on the driver, found by the workers."""
    encoded = encoded_boxes(session, named_by_row(with_nested(boxes)))
    try:
        covered = _covered(encoded.rows, boxes.dimensions, group_bytes)
        with _held(covered):
            table = covered.toArrow()
    finally:
        encoded.release()
    above = np.full(boxes.rows, -1, np.int32)
    above[table["subscription"].to_numpy()] = table["covered_by"].fill_null(-1).to_numpy()
    return above


def _with_nested(rows: DataFrame, space: Space) -> DataFrame:
    """Return rows with boxes for shapes inside of others (`model.shapes.nesting`)."""
    nesting = Nesting.of_words(space)
    if nesting.is_empty:
        return rows

    def extend(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            lo, hi, sizes = unpack(batch.column("boxes"), len(space))
            owner = np.repeat(np.arange(len(sizes)), sizes).astype(np.int32)
            more_lo, more_hi, more = nesting.more_boxes(lo, hi, owner)
            owner = np.concatenate([owner, more])
            order = np.argsort(owner, kind="stable")
            lo, hi = np.concatenate([lo, more_lo])[order], np.concatenate([hi, more_hi])[order]
            boxes = pack(lo, hi, np.bincount(owner, minlength=len(sizes)))
            yield batch.set_column(batch.schema.get_field_index("boxes"), "boxes", boxes)

    return rows.mapInArrow(extend, rows.schema)


def _covered(encoded: DataFrame, dimensions: int, group_bytes: int) -> DataFrame:
    """Compute what covers each subscription; the result stays on the workers' disks."""
    most = max(1, group_bytes // (_BYTES * dimensions))
    judged, cut = _uncovered_by_group(encoded, dimensions, most)
    kind = judged.schema["id"].dataType
    names = StructType().add("subscription", kind).add("covered_by", kind)
    with _held(judged):
        candidates = judged.filter("kept").drop("kept")
        kept = _with_visitors(candidates, candidates, dimensions, cut).mapInArrow(
            lambda batches: _not_covered(batches, dimensions, most), _row_type(kind)
        )
        with _held(_compute(kept)):
            covered = _with_visitors(kept, judged.drop("kept"), dimensions, cut).mapInArrow(
                lambda batches: _named(batches, dimensions, most), names
            )
            return _compute(covered)


def _uncovered_by_group(
    encoded: DataFrame, dimensions: int, most: int
) -> tuple[DataFrame, CurvePartition]:
    """Return the subscriptions at home, whether each is uncovered in its group, and the cut.

    There are about `most` boxes in a group.
    """
    with _held(_compute(encoded)):  # filters are parsed once, looked at often
        need_no_errors(encoded)
        without_duplicates(encoded, RejectedRows())  # raises the first one
        rows = encoded.select(*_ROW)
        cut = _cut(rows, dimensions, most)
        at_home = _placed(rows, cut, lambda batch: _homes(batch, dimensions, cut))
        judged = at_home.groupBy("group").applyInArrow(
            lambda table: _uncovered_in_group(table, dimensions),
            _row_type(rows.schema["id"].dataType).add("kept", BooleanType()),
        )
        return _compute(judged), cut


def _compute(data: DataFrame) -> DataFrame:
    """Compute a DataFrame and keep it on the workers' disks."""
    try:
        data.persist(StorageLevel.DISK_ONLY).count()
    except BaseException:
        _release_rows(data)
        raise
    return data


@contextmanager
def _held(data: DataFrame) -> Iterator[None]:
    """Release a computed DataFrame when it is no longer needed."""
    try:
        yield
    finally:
        _release_rows(data)


def _release_rows(data: DataFrame) -> None:
    with suppress(Exception):  # its session may have ended, and the data with it
        data.unpersist()


def _cut(rows: DataFrame, dimensions: int, most: int) -> CurvePartition:
    """Cut space by a sample of the subscriptions, with their corners for events."""
    count = rows.count()
    scale = max(1.0, count / SAMPLE)
    sampled = rows if scale == 1.0 else rows.sample(fraction=1 / scale, seed=1)
    sample = boxes_of_table(sampled.toArrow(), dimensions)
    corners = sample.lo[sample.box_offsets[:-1]]
    # As many partitions as those at home need. More of them would make visits, not groups, smaller.
    wanted = max(_tasks(rows), count // most + 1)
    return cut_space(sample, corners, scale=scale, tasks=wanted, max_boxes=np.inf)


def _tasks(rows: DataFrame) -> int:
    return 2 * parallelism(rows.sparkSession)


def _row_type(kind: DataType) -> StructType:
    fields = StructType().add("group", IntegerType()).add("seq", DoubleType()).add("id", kind)
    return fields.add("boxes", BinaryType())


def _placed(
    rows: DataFrame, cut: CurvePartition, place: Callable[[pa.RecordBatch], tuple[I64, I64]]
) -> DataFrame:
    """Return rows with their groups; `place` gives the groups, and the row that each is of."""

    def place_all(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            # A row may go to every group: no batch is larger than this allows.
            size = max(1, batch.num_rows * _BATCH // (cut.groups * max(1, batch.nbytes)))
            for begin in range(0, batch.num_rows, size):
                piece = batch.slice(begin, size)
                groups, taken = place(piece)
                columns = [piece.column(name).take(pa.array(taken)) for name in _ROW]
                columns = [pa.array(groups.astype(np.int32)), *columns]
                yield pa.record_batch(columns, ["group", *_ROW])

    return rows.select(*_ROW).mapInArrow(place_all, _row_type(rows.schema["id"].dataType))


def _homes(batch: pa.RecordBatch, dimensions: int, cut: CurvePartition) -> tuple[I64, I64]:
    lo, _, sizes = unpack(batch.column("boxes"), dimensions)
    corners = lo[np.cumsum(sizes) - sizes]
    deal = np.bitwise_xor.reduce(corners.view(np.int64), axis=1) >> 20 & 0xFFFF_FFFF
    return cut.groups_of_events(corners, deal), np.arange(batch.num_rows)


def _visits(batch: pa.RecordBatch, dimensions: int, cut: CurvePartition) -> tuple[I64, I64]:
    """Return every group that any box of each row intersects."""
    lo, hi, sizes = unpack(batch.column("boxes"), dimensions)
    box, part = cut.parts_of_boxes(lo, hi)
    owner = np.repeat(np.arange(len(sizes)), sizes)[box]
    pairs = np.unique(owner * cut.partitions + part)
    groups, position = cut.groups_of_parts(pairs % cut.partitions)
    return groups, (pairs // cut.partitions)[position]


def _with_visitors(
    visitors: DataFrame, homes: DataFrame, dimensions: int, cut: CurvePartition
) -> DataFrame:
    """Return both kinds of rows, sorted: those at home in a group, then its visitors."""
    there = _placed(visitors, cut, lambda batch: _visits(batch, dimensions, cut))
    rows = there.withColumn("kind", lit(_VISIT).cast("byte")).unionByName(
        homes.withColumn("kind", lit(_HOME).cast("byte"))
    )
    # More shuffle partitions than tasks at a time, so that uneven ones even out.
    parts = min(cut.groups, 4 * _tasks(rows))
    return rows.repartition(parts, "group").sortWithinPartitions("group", "kind", "seq", "id")


def _uncovered_in_group(table: pa.Table, dimensions: int) -> pa.Table:
    """Return the rows of a group, and whether each is uncovered within the group."""
    table = _in_order(table)
    coverers = covered_by(_boxes(table, dimensions))
    return table.append_column("kept", pa.array(coverers < 0))


def _not_covered(
    batches: Iterator[pa.RecordBatch], dimensions: int, most: int
) -> Iterator[pa.RecordBatch]:
    """Yield those at home that no visitor of their group covers."""
    for homes, names in _covered_by_visitors(batches, dimensions, most):
        if names is None:
            yield from homes.select(["group", *_ROW]).to_batches()


def _named(
    batches: Iterator[pa.RecordBatch], dimensions: int, most: int
) -> Iterator[pa.RecordBatch]:
    """Yield, for each row at home, the first visitor of its group that covers it."""
    for homes, names in _covered_by_visitors(batches, dimensions, most):
        if names is None:
            names = pa.nulls(homes.num_rows, homes["id"].type)
        yield from pa.table({"subscription": homes["id"], "covered_by": names}).to_batches()


def _covered_by_visitors(
    batches: Iterator[pa.RecordBatch], dimensions: int, most: int
) -> Iterator[tuple[pa.Table, pa.Array | None]]:
    """Yield those at home that a piece of visitors covers, with the ids of the earliest above each.

    Last in a group come those that nothing covers, with None.
    """
    homes = None
    for kind, table in _pieces(batches, most):
        if kind == _HOME:
            homes = table
        elif kind == _VISIT and homes is not None and homes.num_rows:
            coverers = _earliest(table, homes, dimensions)
            covered = pa.array(coverers >= 0)
            names = table["id"].combine_chunks().take(pa.array(coverers[coverers >= 0]))
            yield homes.filter(covered), names
            homes = homes.filter(pc.invert(covered))
        elif kind == _END and homes is not None:
            yield homes, None
            homes = None
        del table  # before the next one is read


def _pieces(batches: Iterator[pa.RecordBatch], most: int) -> Iterator[tuple[int, Any]]:
    """Yield kind and rows: all at home in a group at once, then its visitors by `most` boxes, then
    that the group has ended, before anything of the next one is read.
    """
    last, boxes = (-1, _END), 0
    rows: list[pa.RecordBatch] = []
    for batch in batches:
        for run in runs(batch):
            own = run.column("group")[0].as_py(), run.column("kind")[0].as_py()
            for piece, size in _slices(run, most):
                full = own[1] == _VISIT and boxes + size > most
                if rows and (own != last or full):
                    yield last[1], _concatenate(rows)
                    boxes = 0
                if own[0] != last[0]:
                    yield _END, None
                last, boxes = own, boxes + size
                rows.append(piece)
    if rows:
        yield last[1], _concatenate(rows)
    yield _END, None


def _concatenate(rows: list[pa.RecordBatch]) -> pa.Table:
    """Concatenate rows in order, and empty the list to free its memory."""
    table = pa.Table.from_batches(rows)
    rows.clear()
    return _in_order(table)


def _slices(run: pa.RecordBatch, most: int) -> Iterator[tuple[pa.RecordBatch, int]]:
    """Yield a run by `most` boxes, with how many they are; a row of more boxes is alone."""
    ends = np.cumsum(sizes_of(run.column("boxes")))
    begin = before = 0
    while begin < len(ends):
        end = max(begin + 1, int(np.searchsorted(ends, before + most, "right")))
        yield run.slice(begin, end - begin), int(ends[end - 1]) - before
        begin, before = end, int(ends[end - 1])


def _earliest(visitors: pa.Table, homes: pa.Table, dimensions: int) -> I32:
    """Return, for each row at home, the index of the earliest visitor that covers it, or -1."""
    keys = pa.concat_tables([visitors.select(["seq", "id"]), homes.select(["seq", "id"])])
    places = pc.sort_indices(keys, sort_keys=[("seq", "ascending"), ("id", "ascending")])
    # A subscription that visits its own home stands here twice, with one place in the order.
    ids = keys["id"].take(places).combine_chunks()
    new = np.ones(len(ids), np.int64)
    new[1:] = pc.not_equal(ids[1:], ids[:-1]).to_numpy(zero_copy_only=False)
    order = np.empty(len(ids), np.int64)
    order[places.to_numpy()] = np.cumsum(new)
    n = visitors.num_rows
    return earliest_coverers(
        _boxes(visitors, dimensions), order[:n], _boxes(homes, dimensions), order[n:]
    )


def _in_order(table: pa.Table) -> pa.Table:
    return table.sort_by([("seq", "ascending"), ("id", "ascending")])


def _boxes(table: pa.Table, dimensions: int) -> Boxes:
    return boxes_of_table(table.select(_ROW), dimensions)
