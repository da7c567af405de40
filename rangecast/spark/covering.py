"""The step `cover`: which subscriptions of a DataFrame are redundant, and what covers them.

    found = cover(subscriptions, space)      # subscription, covered_by (null: keep it)

For sets that no one machine holds. Space is cut into partitions (`cut`). A subscription's home is
where the lower corner of its first box lies; whatever covers it holds that corner, and so meets
its home. Three rounds, each over the groups of the partitions, all on the workers:

1. At home: what another one of the same group covers is out. Most are.
2. Visits: those left go to every group that they meet. Where a visitor covers one at home, that
   one is out as well; what is left is kept, as what covers anything is covered by something kept.
3. Names: what is kept goes to every group that it meets, and every subscription looks among these
   for the one that covers it and arrived first.

Order of arrival is that of `seq`, or else of the ids. The kept set is the library's, whatever the
partitions.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import StorageLevel
from pyspark.sql import DataFrame
from pyspark.sql.functions import lit
from pyspark.sql.types import BinaryType, BooleanType, DataType, DoubleType, IntegerType, StructType

from rangecast.cover.batch import covered_by, earliest_coverers
from rangecast.model.boxes import Boxes
from rangecast.model.space import Space
from rangecast.spark.cut import Cut, cut_space
from rangecast.spark.session import session_of
from rangecast.spark.subscriptions import (
    boxes_of_table,
    encode,
    floats_of,
    need_distinct_ids,
    need_no_errors,
)

SAMPLE = 20_000
"""Subscriptions that space is cut by."""
GROUP_BYTES = 256 << 20
"""What the subscriptions at home in a group may take in a worker, about."""
_BYTES = 64
"""For each attribute of a box: the box as it arrives, and the structures over it."""

_ROW = ("seq", "id", "boxes")
Longs = npt.NDArray[np.int64]


def cover(subscriptions: DataFrame, space: Space, *, group_bytes: int = GROUP_BYTES) -> DataFrame:
    """Return what covers each subscription: `subscription`, `covered_by`, null for what is kept.

    `covered_by` names the kept subscription that covers it and arrived first. `group_bytes` is
    about what the subscriptions at home in one group may take in a worker; visitors come on top.
    """
    session = session_of(subscriptions)
    encoded, _ = encode(subscriptions, space)
    encoded = encoded.persist(StorageLevel.DISK_ONLY)  # filters are parsed once, looked at often
    need_no_errors(encoded)
    need_distinct_ids(encoded)
    dimensions, kind = len(space), encoded.schema["id"].dataType
    rows = encoded.select(*_ROW)
    cut = _cut(rows, dimensions, session.sparkContext.defaultParallelism, group_bytes)

    at_home = _placed(rows, kind, lambda batch: _homes(batch, dimensions, cut))
    judged = at_home.groupBy("group").applyInArrow(
        lambda table: _judged_at_home(table, dimensions),
        _row_type(kind).add("kept", BooleanType()),
    )
    judged = judged.persist(StorageLevel.DISK_ONLY)
    candidates = judged.filter("kept").drop("kept")
    kept = (
        _with_visitors(candidates, candidates, kind, dimensions, cut)
        .groupBy("group")
        .applyInArrow(lambda table: _not_covered(table, dimensions), _row_type(kind))
    )
    kept = kept.persist(StorageLevel.DISK_ONLY)
    found = (
        _with_visitors(kept, judged.drop("kept"), kind, dimensions, cut)
        .groupBy("group")
        .applyInArrow(
            lambda table: _named(table, dimensions),
            StructType().add("subscription", kind).add("covered_by", kind),
        )
    )
    for data in (encoded, judged, kept):
        weakref.finalize(found, data.unpersist).atexit = False  # by then Spark may be gone
    return found


def _cut(rows: DataFrame, dimensions: int, tasks: int, group_bytes: int) -> Cut:
    """Cut space by a sample of the subscriptions, with their corners for events."""
    count = rows.count()
    scale = max(1.0, count / SAMPLE)
    some = rows if scale == 1.0 else rows.sample(fraction=1 / scale, seed=1)
    sample = boxes_of_table(some.toArrow(), dimensions)
    corners = sample.lo[sample.first[:-1]]
    # As many partitions as those at home need. More of them would make visits, not groups, smaller.
    wanted = max(2 * tasks, int(count * _BYTES * dimensions / group_bytes) + 1)
    return cut_space(sample, corners, scale=scale, tasks=wanted, most_boxes=np.inf)


def _row_type(kind: DataType) -> StructType:
    fields = StructType().add("group", IntegerType()).add("seq", DoubleType()).add("id", kind)
    return fields.add("boxes", BinaryType())


def _placed(
    rows: DataFrame, kind: DataType, place: Callable[[pa.RecordBatch], tuple[Longs, Longs]]
) -> DataFrame:
    """Return rows with their groups; `place` gives the groups, and the row that each is of."""

    def place_all(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            groups, taken = place(batch)
            columns = [batch.column(name).take(pa.array(taken)) for name in _ROW]
            yield pa.record_batch([pa.array(groups.astype(np.int32)), *columns], ["group", *_ROW])

    return rows.select(*_ROW).mapInArrow(place_all, _row_type(kind))


def _homes(batch: pa.RecordBatch, dimensions: int, cut: Cut) -> tuple[Longs, Longs]:
    sizes = pc.binary_length(batch.column("boxes")).to_numpy() // (16 * dimensions)
    first = np.cumsum(sizes) - sizes
    corners = floats_of(batch.column("boxes"), 2 * dimensions)[first, :dimensions]
    corners = np.ascontiguousarray(corners)
    deal = np.bitwise_xor.reduce(corners.view(np.int64), axis=1) >> 20 & 0xFFFF_FFFF
    return cut.groups_of_events(corners, deal), np.arange(batch.num_rows)


def _visits(batch: pa.RecordBatch, dimensions: int, cut: Cut) -> tuple[Longs, Longs]:
    """Return every group that each row meets with any of its boxes."""
    sizes = pc.binary_length(batch.column("boxes")).to_numpy() // (16 * dimensions)
    flat = floats_of(batch.column("boxes"), 2 * dimensions)
    box, part = cut.parts_of_boxes(flat[:, :dimensions], flat[:, dimensions:])
    owner = np.repeat(np.arange(len(sizes)), sizes)[box]
    pairs = np.unique(owner * cut.partitions + part)
    groups, place = cut.groups_of_parts(pairs % cut.partitions)
    return groups, (pairs // cut.partitions)[place]


def _with_visitors(
    visitors: DataFrame, homes: DataFrame, kind: DataType, dimensions: int, cut: Cut
) -> DataFrame:
    """Return both kinds of rows by group; `visits` tells them apart."""
    there = _placed(visitors, kind, lambda batch: _visits(batch, dimensions, cut))
    return there.withColumn("visits", lit(True)).unionByName(homes.withColumn("visits", lit(False)))


def _judged_at_home(table: pa.Table, dimensions: int) -> pa.Table:
    """Return the rows of a group, and whether no other one of them covers each."""
    table = _in_order(table)
    found = covered_by(_boxes(table, dimensions))
    return table.append_column("kept", pa.array(found < 0))


def _not_covered(table: pa.Table, dimensions: int) -> pa.Table:
    """Return those at home in a group that no visitor covers."""
    _, homes, found = _met(table, dimensions)
    return homes.filter(pa.array(found < 0)).select(["group", *_ROW])


def _named(table: pa.Table, dimensions: int) -> pa.Table:
    """Return for those at home in a group the first visitor that covers each."""
    visitors, homes, found = _met(table, dimensions)
    names = visitors["id"].combine_chunks().take(pa.array(found, mask=found < 0))
    return pa.table({"subscription": homes["id"], "covered_by": names})


def _met(table: pa.Table, dimensions: int) -> tuple[pa.Table, pa.Table, npt.NDArray[np.int32]]:
    """Return the visitors of a group, those at home, and the earliest visitor above each."""
    table = _in_order(table)
    visits = table["visits"].to_numpy()
    # A subscription that visits its own home stands here twice, with one place in the order.
    ids = table["id"].combine_chunks()
    new = np.ones(len(ids), np.int64)
    new[1:] = pc.not_equal(ids[1:], ids[:-1]).to_numpy(zero_copy_only=False)
    order = np.cumsum(new)
    visitors, homes = table.filter(pa.array(visits)), table.filter(pa.array(~visits))
    found = earliest_coverers(
        _boxes(visitors, dimensions), order[visits], _boxes(homes, dimensions), order[~visits]
    )
    return visitors, homes, found


def _in_order(table: pa.Table) -> pa.Table:
    return table.sort_by([("seq", "ascending"), ("id", "ascending")])


def _boxes(table: pa.Table, dimensions: int) -> Boxes:
    return boxes_of_table(table.select(_ROW), dimensions)
