"""The way of subscriptions to their structure: few jobs, no rows in the JVM, bounded shards."""

import os
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.types import LongType, StructField, StructType

from rangecast import Integer, Number, Space
from rangecast.match.result import BUFFER
from rangecast.model.boxes import Boxes
from rangecast.model.encoding.subscriptions import encode_subscriptions
from rangecast.model.io.rejected import CollectedRows
from rangecast.spark import match, prepare_match, prepare_rank, rank, shipped
from rangecast.spark.steps.prepared import match_maker
from rangecast.spark.steps.shards import build, memory
from rangecast.spark.subscriptions import kept, packs, spool
from rangecast.spark.subscriptions.kept import gather_small, keep_rows
from rangecast.spark.subscriptions.local_files import read_files
from rangecast.spark.subscriptions.spool import Spool

SPACE = Space([Number("x"), Number("y"), Integer("lots")])
RANDOM = np.random.default_rng(30)
BYTES = 265
"""Bytes that a worker needs to build a shard, per subscription on 3 attributes."""


@pytest.mark.parametrize("in_files", [True, False])
def test_a_spool_gives_back_what_it_kept(tmp_path, in_files):
    tables = [pa.table({"id": range(size), "text": ["ü"] * size}) for size in (3, 0, 1000)]
    with Spool(tmp_path if in_files else None) as streams:
        places = [streams.keep(table) for table in tables]
    assert [spool.read(pa.py_buffer(data)) for data in places] == tables
    assert len([*tmp_path.iterdir()]) == in_files
    assert (max(map(len, places)) < 200) == in_files


def bounds(rows):
    lo = RANDOM.random((rows, 2))
    columns = {"id": range(rows)}
    for axis, name in enumerate("xy"):
        columns |= {f"{name}_lo": lo[:, axis], f"{name}_hi": lo[:, axis] + 0.01}
    lots = RANDOM.integers(0, 1000, rows)
    return pa.table({**columns, "lots_lo": lots, "lots_hi": lots + 5})


def test_a_small_set_takes_one_job_and_is_read_as_elsewhere(spark, tmp_path):
    table = bounds(500).append_column("score", pa.array(RANDOM.random(500)))
    table = table.append_column("seq", pa.array(RANDOM.permutation(500)))
    holes = pa.array([None, *table["x_lo"].to_pylist()[1:]], pa.float64())
    table = table.set_column(1, "x_lo", holes)
    wrong = table.slice(7, 1).set_column(2, "x_hi", pa.array([-9.0]))
    wrong = wrong.set_column(0, "id", pa.array([900]))
    again = table.slice(9, 1).set_column(table.num_columns - 1, "seq", pa.array([1000]))
    every = pa.concat_tables([table, wrong, again])
    frame = spark.createDataFrame(every)
    spark.sparkContext.setJobGroup("small", "small")
    bad = CollectedRows()
    found = gather_small(frame, SPACE, 1 << 30, bad)
    tracker = spark.sparkContext.statusTracker()
    assert len(tracker.getJobIdsForGroup("small")) == 1
    expected = encode_subscriptions(table, SPACE)
    assert found.ids.to_pylist() == expected.ids.to_pylist()
    for name in ("lo", "hi", "scores"):
        assert np.array_equal(getattr(found, name), getattr(expected, name))
    assert sorted(one.source for one, _ in bad.kept) == ["subscription 9", "subscription 900"]
    assert gather_small(frame, SPACE, 10, bad) is None
    texts = spark.createDataFrame([(1, "x < 3")], "id long, filter string")
    assert gather_small(texts, SPACE, 1 << 30) is None


def test_files_of_this_host_take_no_job_and_are_read_as_by_spark(spark, tmp_path):
    table = bounds(500).append_column("score", pa.array([None, *RANDOM.random(499)]))
    folder = tmp_path / "a b%20ü"
    folder.mkdir()
    for number in range(2):
        pq.write_table(table.slice(250 * number, 250), folder / f"{number}.parquet")
    frame = spark.read.parquet(str(folder))
    spark.sparkContext.setJobGroup("files", "files")
    found = gather_small(frame, SPACE, 1 << 30)
    assert not spark.sparkContext.statusTracker().getJobIdsForGroup("files")
    expected = encode_subscriptions(table, SPACE)
    assert found.ids.to_pylist() == expected.ids.to_pylist()
    for name in ("lo", "hi", "scores"):
        assert np.array_equal(getattr(found, name), getattr(expected, name))
    assert read_files(frame).sort_by("id") == frame.toArrow().sort_by("id")


def test_what_spark_and_arrow_may_read_in_two_ways_is_left_to_spark(spark, tmp_path):
    table = bounds(20)
    when = pa.array([0] * 20, pa.timestamp("us", "UTC"))
    for name, some in (("plain", table), ("when", table.append_column("when", when))):
        pq.write_table(some, tmp_path / f"{name}.parquet")
    plain = spark.read.parquet(str(tmp_path / "plain.parquet"))
    plain.write.partitionBy("lots_lo").parquet(str(tmp_path / "parts"))
    plain.write.csv(str(tmp_path / "text"))
    assert read_files(plain) is not None
    left = [
        plain.filter("id < 5"),
        plain.limit(5),
        plain.union(plain),
        spark.createDataFrame(table),
        spark.read.parquet(str(tmp_path / "when.parquet")),
        spark.read.parquet(str(tmp_path / "parts")),
        spark.read.csv(str(tmp_path / "text")),
        spark.read.option("mergeSchema", True).parquet(str(tmp_path / "plain.parquet")),
        spark.read.schema("id int").parquet(str(tmp_path / "plain.parquet")),
    ]
    assert [read_files(frame) for frame in left] == [None] * len(left)
    (tmp_path / "plain.parquet").write_bytes(b"PAR1 no more")
    assert read_files(plain) is None


def test_columns_that_spark_finds_by_their_numbers_are_left_to_spark(spark, tmp_path):
    names = ("id", "x_lo")
    numbered = [
        pa.field(name, pa.int64(), metadata={"PARQUET:field_id": str(number)})
        for number, name in enumerate(names)
    ]
    table = pa.table([[7], [8]], schema=pa.schema(numbered))
    pq.write_table(table, tmp_path / "numbered.parquet")
    swapped = [StructField(name, LongType(), True, {"parquet.field.id": 1 - number})
               for number, name in enumerate(names)]  # fmt: skip
    frame = spark.read.schema(StructType(swapped)).parquet(str(tmp_path / "numbered.parquet"))
    spark.conf.set("spark.sql.parquet.fieldId.read.enabled", "true")
    try:
        assert gather_small(frame, Space([Number("x")]), 1 << 30).ids.to_pylist() == [8]
    finally:
        spark.conf.unset("spark.sql.parquet.fieldId.read.enabled")


def test_files_that_differ_in_what_may_be_null_are_read(spark, tmp_path):
    """Columns of a range are REQUIRED, those of rows from Python are OPTIONAL."""
    folder = str(tmp_path / "appended")
    spark.range(5).selectExpr("id", "double(id) x_lo", "double(id) + 1 x_hi").write.parquet(folder)
    more = spark.createDataFrame([(50, 1.0, None)], "id long, x_lo double, x_hi double")
    more.write.mode("append").parquet(folder)
    frame = spark.read.parquet(folder)
    assert read_files(frame).sort_by("id") == frame.toArrow().sort_by("id")
    found = gather_small(frame, Space([Number("x")]), 1 << 30)
    assert found.ids.to_pylist() == [0, 1, 2, 3, 4, 50]


@pytest.mark.parametrize("name", ["_metadata", "_metadata_old.parquet", "_a=b.parquet"])
def test_files_with_hidden_names_are_read_if_spark_reads_them(spark, tmp_path, name):
    pq.write_table(bounds(20), tmp_path / "a.parquet")
    if name == "_metadata":
        pq.write_metadata(bounds(20).schema, tmp_path / name)
    else:
        more = bounds(90).set_column(0, "id", pa.array(range(100, 190)))
        pq.write_table(more, tmp_path / name)
    frame = spark.read.parquet(str(tmp_path))
    found = gather_small(frame, SPACE, 1 << 30)
    assert len(found.ids) == frame.count()


def test_small_files_of_many_equal_values_are_not_read_on_the_driver(spark, tmp_path):
    rows = 200_000
    columns = {"id": range(rows)} | dict.fromkeys(("x_lo", "x_hi"), np.zeros(rows))
    path = tmp_path / "equal.parquet"
    pq.write_table(pa.table(columns), path, column_encoding={"id": "DELTA_BINARY_PACKED"},
                   use_dictionary=["x_lo", "x_hi"])  # fmt: skip
    frame, in_memory = spark.read.parquet(str(path)), rows * 3 * 8
    assert path.stat().st_size < in_memory // 20
    space = Space([Number("x")])
    assert gather_small(frame, space, in_memory - 1) is None
    assert gather_small(frame, space, in_memory).rows == rows


def test_the_driver_takes_what_a_part_of_its_heap_holds(spark):
    """About 39 MB of bounds, by Spark's estimate; a billion rows stay where they are."""
    near = [f"rand({axis}) as {name}_lo" for axis, name in enumerate("xy")]
    wide = [f"{name}_lo + 1e-6 as {name}_hi" for name in "xy"]
    lots = ["cast(0 as long) as lots_lo", "cast(9 as long) as lots_hi"]

    def made(rows):
        return spark.range(rows).selectExpr("*", *near).selectExpr("*", *wide, *lots)

    heap = spark.sparkContext._jvm.java.lang.Runtime.getRuntime().maxMemory()
    assert heap // 16 > 700_000 * 56
    found = gather_small(made(700_000), SPACE, 1 << 30)
    assert found.ids.to_numpy().tolist() == [*range(700_000)]
    some = made(700_000).where("id % 70000 = 0").toArrow()
    chosen = some["id"].to_numpy()
    for axis, name in enumerate(SPACE.names):
        assert np.array_equal(found.lo[chosen, axis], some[f"{name}_lo"].to_numpy())
        assert np.array_equal(found.hi[chosen, axis], some[f"{name}_hi"].to_numpy())
    assert gather_small(made(700_000), SPACE, 1 << 20) is None
    assert gather_small(made(1_000_000_000), SPACE, 1 << 40) is None


@pytest.mark.parametrize("ids", ["long", "string"])
def test_rows_that_arrive_out_of_order_are_ordered(spark, ids):
    """Without a `seq` by their ids, over several batches."""
    table = bounds(300)
    shuffled = table.take(pa.array(RANDOM.permutation(300)))
    frame = spark.createDataFrame(shuffled).repartition(3)
    found = gather_small(frame.withColumn("id", frame["id"].cast(ids)), SPACE, 1 << 30)
    kind = {"long": int, "string": str}[ids]
    order = np.array(sorted(range(300), key=kind))
    assert found.ids.to_pylist() == [kind(row) for row in order.tolist()]
    assert np.array_equal(found.lo[:, 0], table["x_lo"].to_numpy()[order])


def test_no_rows_are_an_empty_set(spark):
    assert gather_small(spark.createDataFrame(bounds(3)).limit(0), SPACE, 1 << 30).rows == 0


def test_rows_of_a_large_set_lie_in_files_while_it_is_prepared(spark):
    """The JVM gets their places."""
    table = bounds(3000)
    with keep_rows(spark.createDataFrame(table).repartition(3), SPACE) as rows:
        assert rows.size()[:3] == (3000, 3000, 9000)
        assert max(len(one.as_py()) for one in rows.packs.places["data"]) < 300
        assert len([*rows.folder.iterdir()]) == 3
        assert rows.gather().ids.to_pylist() == table["id"].to_pylist()
        ids = rows.packs.unpack(rows.rows.schema, ["id"]).toArrow()["id"]
        assert sorted(ids.to_pylist()) == table["id"].to_pylist()
    assert not rows.folder.exists()


def test_ids_are_compared_by_the_driver_if_it_can_map_them(spark, monkeypatch):
    table = bounds(3000)
    frame = spark.createDataFrame(table)
    with monkeypatch.context() as context:
        context.setattr(packs, "_MAX_COMPARED", 0)
        with keep_rows(frame, SPACE) as rows:
            assert rows.packs.are_ids_apart()  # they ascend
        with keep_rows(frame.repartition(3), SPACE) as rows:
            assert not rows.packs.are_ids_apart()
    for mixed in (frame, frame.withColumn("id", frame["id"].cast("string"))):
        with keep_rows(mixed.repartition(3), SPACE) as rows:
            assert rows.packs.are_ids_apart()
        with keep_rows(mixed.union(mixed.limit(1)).repartition(3), SPACE) as rows:
            assert not rows.packs.are_ids_apart()


def test_a_duplicate_of_a_set_in_shards_is_rejected(spark):
    table = bounds(3000)
    twice = pa.concat_tables([table.slice(0, 2000), table.slice(1999)])
    bad = CollectedRows()
    prepared = prepare_match(
        spark, spark.createDataFrame(twice), SPACE, rejected=bad, max_worker_memory=200_000
    )
    assert len(prepared.shards) > 1
    assert prepared.rows == len(table)
    assert [one.source for one, _ in bad.kept] == ["subscription 1999"]
    prepared.release()


def test_rows_pass_through_spark_where_workers_dont_see_the_drivers_folder(spark, monkeypatch):
    for module in (kept, build, shipped):
        monkeypatch.setattr(module, "is_local", lambda session: False)
    table = bounds(3000)
    frame = spark.createDataFrame(table).repartition(3)
    prepared = prepare_match(spark, frame, SPACE, max_worker_memory=200_000)
    assert len(prepared.shards) > 1
    points = [(number, *RANDOM.random(2).tolist(), int(number)) for number in range(300)]
    events = spark.createDataFrame(points, "id long, x double, y double, lots long")
    found = [
        (row["event"], row["subscription"]) for row in match(events, prepared, SPACE).collect()
    ]
    bound = {name: table[name].to_numpy() for name in table.column_names}
    expected = set()
    for number, *values in points:
        held = np.ones(len(table), np.bool_)
        for name, value in zip(SPACE.names, values, strict=True):
            held &= (bound[f"{name}_lo"] <= value) & (value <= bound[f"{name}_hi"])
        expected |= {(number, one) for one in np.flatnonzero(held).tolist()}
    assert len(found) == len(expected)
    assert set(found) == expected
    prepared.release()


@pytest.mark.parametrize("is_local", [True, False])
def test_workers_map_boxes_of_the_driver_and_take_those_of_their_shards(
    spark, monkeypatch, is_local
):
    """Subscriptions of several boxes, with scores and names, ranked: nothing is shuffled."""
    if not is_local:
        for module in (build, shipped):
            monkeypatch.setattr(module, "is_local", lambda session: False)
    sizes = RANDOM.integers(1, 3, 900)
    lo = RANDOM.random((sizes.sum(), 3)) * [1, 1, 900]
    boxes = Boxes.of(
        lo,
        lo + np.array([0.2, 0.2, 90]),
        owner=np.repeat(np.arange(900), sizes),
        ids=[f"s{number}" for number in RANDOM.permutation(900)],
        scores=RANDOM.permutation(900).astype(float),
    )
    spark.sparkContext.setJobGroup(f"boxes {is_local}", "boxes")
    prepared = prepare_rank(spark, boxes, SPACE, max_worker_memory=200_000)
    tracker = spark.sparkContext.statusTracker()
    jobs = tracker.getJobIdsForGroup(f"boxes {is_local}")
    assert len(prepared.shards) > 1
    assert sum(shard.rows for shard in prepared.shards) == 900
    if is_local:  # else each shard passes through the driver
        assert [len(tracker.getJobInfo(job).stageIds) for job in jobs] == [1]
    points = RANDOM.random((100, 3)) * [1, 1, 900]
    rows = [(number, *point[:2], int(point[2])) for number, point in enumerate(points.tolist())]
    events = spark.createDataFrame(rows, "id long, x double, y double, lots long")
    found = rank(events, prepared, SPACE, k=900, output="arrays").collect()
    for row in found:
        point = np.array(rows[row["event"]][1:])
        held = ((boxes.lo <= point) & (point <= boxes.hi)).all(axis=1)
        matches = np.unique(boxes.owner[held])
        best = matches[np.argsort(-boxes.scores[matches])]
        assert row["subscriptions"] == boxes.ids.take(pa.array(best)).to_pylist()
    assert len(found) == 100
    prepared.release()


BUILD = """
import gc, resource, sys
from functools import partial
from pathlib import Path
import numpy as np
import pyarrow as pa
from rangecast.match.answerer import MatchAnswerer
from rangecast.spark.steps.shards import build, memory
from rangecast.spark.subscriptions import encode, packs, spool
from rangecast.spark.subscriptions.kept import SetSize
from rangecast.spark.subscriptions.packed_boxes import pack

rows, mentioned, dimensions, width, share = map(float, sys.argv[1:6])
rows, mentioned, dimensions = int(rows), int(mentioned), int(dimensions)
folder = Path(sys.argv[6])
rng = np.random.default_rng(0)
lo = rng.random((rows, dimensions))
hi = lo + 0.01
left_out = rng.random(lo.shape).argsort(axis=1) >= mentioned
lo[left_out], hi[left_out] = -np.inf, np.inf
numbers = np.arange(rows)
ids = pa.array([f"{n:0{int(width)}d}" for n in numbers] if width else numbers)
table = pa.record_batch({
    "id": ids, "seq": pa.nulls(rows, pa.float64()), "score": pa.array(np.zeros(rows)),
    "weights": pa.nulls(rows, pa.binary()), "boxes": pack(lo, hi, np.ones(rows, np.int64)),
    "error": pa.nulls(rows, encode.ERROR_TYPE), "arrival": pa.array(numbers),
})
counts = {name: 0 for name in packs.COUNTS}
streams = []
for batch in packs.pack([table.slice(n, 20_000) for n in range(0, rows, 20_000)], folder):
    for name in counts:
        counts[name] += batch.column(name)[0].as_py()
    streams.append(batch.column("data")[0].as_buffer().to_pybytes())
size = SetSize(dimensions=dimensions, **{name: 10 * count for name, count in counts.items()})
limit = next(m for m in range(1 << 20, 1 << 30, 1 << 18) if memory.shards_wanted(size, m) <= 10)
del table, lo, hi, left_out, ids, batch

def built(streams):
    mine = [pa.py_buffer(data) for data in streams]
    return [*build._built(mine, dimensions, partial(MatchAnswerer.of, index="auto"), folder)]

built(streams[:1])  # kernels are loaded, or compiled; a whole shard would leave room that was freed
gc.collect()
status = Path("/proc/self/status").read_text().split("VmData:")[1].split()
taken = int(status[0]) << 10
room = int(memory.room_to_build(limit) * share)
resource.setrlimit(resource.RLIMIT_DATA, (taken + room, resource.RLIM_INFINITY))
print(built(streams)[0].column("rows")[0].as_py())
"""
"""Builds a shard of the size that is planned for some memory, with no more than that."""


@pytest.mark.process
@pytest.mark.parametrize(
    ("rows", "mentioned", "dimensions", "width"),
    [(300_000, 3, 3, 36), (150_000, 4, 20, 0)],
)
def test_a_shard_can_be_built_in_the_memory_that_it_is_planned_for(
    tmp_path, rows, mentioned, dimensions, width
):
    """The system refuses more; it refuses half as much as is planned."""

    def built(share):
        numbers = map(str, (rows, mentioned, dimensions, width, share))
        return subprocess.run(
            [sys.executable, "-c", BUILD, *numbers, str(tmp_path)],
            env={
                **os.environ,
                "ARROW_DEFAULT_MEMORY_POOL": "system",
                "OMP_NUM_THREADS": "1",
                "MALLOC_MMAP_THRESHOLD_": "1000000",
            },
            capture_output=True,
            text=True,
        )

    enough = built(1)
    assert enough.stdout.strip() == str(rows), enough.stderr
    assert built(0.5).returncode


def test_a_structure_that_auto_chooses_fits_into_its_part_of_a_workers_memory():
    lo = RANDOM.integers(0, 200, (20_000, 2)).astype(float)
    boxes = Boxes.of(lo, lo + RANDOM.integers(1, 20, lo.shape))
    large, small = (match_maker("auto", room)(boxes) for room in (1 << 30, 8 << 20))
    assert (large.choice.name, small.choice.name) == ("cells", "slabs")
    assert large.memory > memory.room_of_structure(8 << 20) >= small.memory
    assert match_maker("cells", 8 << 20)(boxes).choice.name == "cells"


@pytest.mark.parametrize("is_merged", [True, False])
def test_answers_that_are_not_merged_are_the_same_ones(is_merged):
    def pairs(answerer):
        for some in answerer.answers(points):
            ids = some.columns["subscription"].to_pylist()
            yield from zip(some.events.tolist(), ids, strict=True)

    lo = RANDOM.random((2_000, 2))
    boxes = Boxes.of(lo, lo + 0.3)
    points = np.tile(RANDOM.random((200, 2)), (50, 1))
    whole = match_maker("auto", 1 << 30)(boxes)
    gone = [3, 70]
    part = replace(whole, arrival=np.arange(2_000)).as_part(np.array(gone), is_merged=is_merged)
    found = [*pairs(part)]
    expected = [pair for pair in pairs(whole) if pair[1] not in gone]
    assert len(expected) > BUFFER  # an event is split
    assert (found if is_merged else sorted(found)) == expected


@pytest.mark.parametrize("rows", [6_000, 20_000])
def test_shards_are_as_large_as_the_memory_of_a_worker_allows(spark, rows):
    max_worker_memory = 3_500_000
    frame = spark.createDataFrame(bounds(rows)).repartition(2)
    prepared = prepare_match(spark, frame, SPACE, max_worker_memory=max_worker_memory)
    assert prepared.rows == rows
    most = max(shard.rows for shard in prepared.shards)
    room = memory.room_to_build(max_worker_memory)
    assert most * BYTES < room
    assert len(prepared.shards) < 2 + 1.4 * rows * BYTES / room
    prepared.release()
