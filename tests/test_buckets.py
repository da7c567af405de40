"""Lists on the disk: what was written is what is read, and little more than changed is written."""

import math
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rangecast.notify.messages import Message
from rangecast.spark.steps.buckets import (
    INTERESTS,
    LISTS,
    OBJECTS,
    Bucket,
    FilePart,
    OpenBucket,
    State,
    Work,
    buckets_of,
    committed_state,
    read_objects,
    sweep,
    write_objects,
)

K = 3


def bucket_of(folder, rows):
    (folder / INTERESTS).mkdir()
    x = np.arange(rows, dtype=float)
    table = pa.table({"id": np.arange(rows), "x_lo": x, "x_hi": x + 1, "k": np.full(rows, K)})
    pq.write_table(table, folder / INTERESTS / "a.parquet")
    (bucket,) = buckets_of(folder)
    assert bucket == Bucket("a.parquet", rows, [0, rows - 1, 1, rows], [])
    return bucket


@pytest.mark.parametrize("most", [1, 30, 1000])
def test_lists_are_read_as_they_were_written_last(tmp_path, most):
    """Many small batches, or large ones, each after a restart: few parts, few lists twice."""
    rng = np.random.default_rng(most)
    rows = 1000
    bucket = bucket_of(tmp_path, rows)
    arrivals, ys = np.full((rows, K), -1), np.full((rows, K), np.inf)
    changed, written = 0, []
    for batch in range(150):
        opened = OpenBucket(tmp_path, bucket, K)
        assert (opened.lists.arrivals == arrivals).all()
        assert (opened.lists.ys == ys).all()
        assert opened.read == sum(part.rows for part in bucket.parts) < 2 * rows
        size = int(rng.integers(0, most + 1)) if batch else rows
        places = np.sort(rng.choice(rows, size, replace=False)).astype(np.int32)
        arrivals[places], ys[places] = rng.integers(0, 99, (size, K)), rng.random((size, K))
        opened.lists.arrivals[places], opened.lists.ys[places] = arrivals[places], ys[places]
        before = {path.name for path in (tmp_path / LISTS).glob("*")}
        parts, count = opened.write(places)
        fresh = {path.name for path in (tmp_path / LISTS).glob("*")} - before
        in_files = sum(pq.read_metadata(tmp_path / LISTS / name).num_rows for name in fresh)
        assert in_files == count >= size
        assert len(fresh) == (size > 0)
        bucket = bucket._replace(parts=parts)
        sizes = [part.rows for part in parts]
        assert all(more > 2 * fewer for more, fewer in pairwise(sizes))
        if batch:
            changed += size
            written.append(count)
    assert sum(written) <= math.log2(rows) * changed
    if most == 1:
        assert max(written) < rows / 2, "one list that changes never makes all be written"
        assert np.median(written) <= 3


def test_a_bucket_that_no_message_changes_writes_nothing(tmp_path):
    opened = OpenBucket(tmp_path, bucket_of(tmp_path, 5), K)
    assert opened.write(np.zeros(0, np.int32)) == ([], 0)
    assert not (tmp_path / LISTS).exists()


ENDS = st.integers(0, 6).map(float)


@given(
    st.lists(st.tuples(ENDS, ENDS).map(sorted), min_size=1, max_size=4),
    st.lists(st.tuples(ENDS, ENDS, ENDS, ENDS), max_size=4),
)
def test_a_bucket_that_is_passed_over_is_reached_by_no_message(ranges, tiles):
    ends = np.array(ranges)
    bounds = [ends[:, 0].min(), ends[:, 0].max(), ends[:, 1].min(), ends[:, 1].max()]
    bucket = Bucket("a", len(ends), bounds, [])
    messages = [
        Message(0, 0, "o", 0.0, 0.0, inner_l, inner_r, outer_l, outer_r, 0)
        for outer_l, inner_l, inner_r, outer_r in tiles
    ]
    reached = any(one.reaches(lo, hi) for one in messages for lo, hi in ranges)
    hears = bucket.may_hear(np.array(tiles).reshape(-1, 4))
    assert hears or not reached
    if len(ranges) == 1:
        assert hears == reached


def test_a_state_is_read_as_it_was_committed_and_names_the_files_to_keep(tmp_path):
    assert committed_state(tmp_path) is None
    ends = [-np.finfo(float).max, 0.1, 1 / 3, np.finfo(float).max]
    buckets = [Bucket("a", 2, ends, [FilePart("p", 2), FilePart("q", 1)]), Bucket("b", 1, ends, [])]
    parts = [FilePart("o", 9), FilePart("n", 4)]
    state = State(7, {"k": 3, "epsilon": None}, "bigint", parts, buckets, Work(3, 2, 1, 4))
    state.commit(tmp_path)
    assert committed_state(tmp_path) == state
    for kind in (LISTS, OBJECTS):
        (tmp_path / kind).mkdir()
        for name in ("p", "crashed"):
            (tmp_path / kind / f"{name}.parquet").touch()
    sweep(tmp_path, {"p.parquet"})
    left = {path.relative_to(tmp_path).as_posix() for path in tmp_path.glob("*/*")}
    assert left == {"lists/p.parquet", "objects/p.parquet"}
    assert state.files() == {"p", "q", "o", "n"}


@pytest.mark.parametrize("most", [1, 20])
def test_objects_are_read_as_they_were_written_last(tmp_path, most):
    """Objects come, change and go, all of them at times; few are written that didn't change."""
    rng = np.random.default_rng(most)

    def table(wanted=None):
        some = {one: objects[one] for one in wanted or objects if one in objects}
        columns = list(zip(*some.values(), strict=True)) or [[], [], []]
        ids = pa.array(list(some))  # of no type if there are none, as a board has it
        return pa.table(
            {
                "id": ids,
                "x": pa.array(columns[0], pa.float64()),
                "y": pa.array(columns[1], pa.float64()),
                "arrival": pa.array(columns[2], pa.int64()),
            }
        )

    objects = {f"o{i}": (float(i), 0.5, i) for i in range(200)}
    parts = write_objects(tmp_path, [], table, table()["id"])
    changed, written = 0, 0
    for batch in range(120):
        ids = [f"o{i}" for i in rng.integers(0, 250, int(rng.integers(0, most + 1)))]
        if batch == 60:
            ids = list(objects)
        for one in ids:
            if one in objects and (batch == 60 or rng.random() < 0.3):
                del objects[one]
            else:
                objects[one] = (rng.random(), rng.random(), batch)
        before = parts
        parts = write_objects(tmp_path, parts, table, pa.chunked_array([ids], pa.string()))
        assert (parts == before) == (not ids)
        found = read_objects(tmp_path, parts).to_pylist()
        assert {one["id"]: (one["x"], one["y"], one["arrival"]) for one in found} == objects
        assert len(found) == len(objects)
        sizes = [part.rows for part in parts]
        assert all(more > 2 * fewer for more, fewer in pairwise(sizes))
        changed += len(set(ids))
        written += sizes[-1] if ids else 0
    assert written <= 8 * changed
