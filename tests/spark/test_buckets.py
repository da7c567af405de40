"""Lists on the disk: what was written is what is read, and little more than changed is written."""

import json
import math
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rangecast.errors import FileError
from rangecast.notify import Board
from rangecast.notify.messages import Messages
from rangecast.spark.steps.notify.board_schema import BoardSchema, as_points, points_of
from rangecast.spark.steps.notify.buckets import (
    INTERESTS,
    LISTS,
    OBJECTS,
    Bucket,
    FilePart,
    State,
    Work,
    committed_state,
    read_members,
    read_objects,
    sweep,
    write_objects,
)
from rangecast.spark.steps.notify.interest_edits import apply_edits, checked_edits
from rangecast.spark.steps.notify.open_bucket import Entries, OpenBucket, cut, make_bucket

K = 3
NOWHERE = np.array([[1.0, 0.0, 0.0, 0.0]])


def interests(ids, x):
    x = np.asarray(x, float)
    points = as_points(np.stack([x, x + 1], axis=1))
    k = np.full(len(x), K, np.int32)
    return pa.table({"id": pa.array(ids, pa.int64()), "point": points, "k": k})


def entries_of(rng, rows):
    return Entries(rng.integers(0, 99, (rows, K)), rng.random((rows, K)))


def names(folder):
    return {path.name for path in folder.glob("*")}


@pytest.mark.parametrize("most", [1, 30, 1000])
def test_lists_are_read_as_they_were_written_last(tmp_path, most):
    """Many small batches, or large ones, each after a restart: few parts, few lists twice."""
    rng = np.random.default_rng(most)
    rows = 1000
    now = entries_of(rng, rows)
    bucket = make_bucket(tmp_path, interests(range(rows), range(rows)), now)
    everywhere = np.arange(rows, dtype=np.int32)
    changed, written = 0, []
    for _ in range(150):
        first = int(rng.integers(0, rows))
        last = min(rows - 1, first + int(rng.integers(0, most + 1)))
        # interests [x, x + 1] with first < x <= last hear of an object, which becomes the best
        tile = np.array([[first + 1.0, -1.0, last, rows + 9.0]])
        reached = np.arange(first + 1, last + 1, dtype=np.int32)
        best = -1.0 - changed
        now.arrivals[reached] = np.roll(now.arrivals[reached], 1, axis=1)
        now.ys[reached] = np.roll(now.ys[reached], 1, axis=1)
        now.arrivals[reached, 0], now.ys[reached, 0] = 100 + changed, best
        before = names(tmp_path / LISTS)
        opened = OpenBucket(tmp_path, bucket, K)
        bucket, work = opened.deliver(np.array([100 + changed]), np.array([best]), tile)
        again = OpenBucket(tmp_path, bucket, K).entries(everywhere)
        assert (again.arrivals == now.arrivals).all()
        assert (again.ys == now.ys).all()
        some = rng.choice(everywhere, 20)
        assert (OpenBucket(tmp_path, bucket, K).entries(some).ys == now.ys[some]).all()
        fresh = names(tmp_path / LISTS) - before
        assert len(fresh) == (len(reached) > 0)
        assert sum(part.rows for part in bucket.lists if part.file in fresh) == work.written
        assert work.changed == len(reached) <= work.written
        assert work.read == work.written, "nothing is read but what was reached or taken in"
        sizes = [part.rows for part in bucket.lists]
        assert all(more > 2 * fewer for more, fewer in pairwise(sizes))
        changed += len(reached)
        written.append(work.written)
    assert sum(written) <= math.log2(rows) * changed
    if most == 1:
        assert max(written) < rows / 2, "one list that changes never makes all be written"
        assert np.median(written) <= 3


def test_a_bucket_that_no_message_changes_writes_nothing(tmp_path):
    bucket = make_bucket(
        tmp_path, interests(range(5), range(5)), entries_of(np.random.default_rng(1), 5)
    )
    before = names(tmp_path / LISTS)
    told = OpenBucket(tmp_path, bucket, K).deliver(np.array([1]), np.array([0.0]), NOWHERE)
    assert told == (bucket, Work())
    assert names(tmp_path / LISTS) == before


@pytest.mark.parametrize("most", [1, 40])
def test_interests_come_and_go_with_their_lists_and_little_is_written(tmp_path, most):
    """Many edits, small or large, against a dict; a bucket is cut in two, and made again."""
    rng = np.random.default_rng(most)
    size = 200
    buckets = cut(tmp_path, interests(range(150), rng.random(150)), entries_of(rng, 150), size)
    there = {}

    def contents(bucket):
        opened = OpenBucket(tmp_path, bucket, K)
        lists = opened.entries(opened.places).ys.tolist()
        table = opened.table
        assert bucket.interests == len(table)
        points = points_of(table)
        least, largest = np.split(np.array(bucket.bounds), 2)
        assert ((least <= points) & (points <= largest)).all()
        return dict(
            zip(table["id"].to_pylist(), zip(points[:, 0], lists, strict=True), strict=True)
        )

    there = contents(buckets[0])
    following, edits, rows = 150, 0, 0
    for step in range(120):
        number = int(rng.integers(0, len(buckets)))
        bucket = buckets[number]
        mine = contents(bucket)
        leave = int(rng.integers(0, most + 1)) if step < 70 else most + 3
        gone = [int(one) for one in rng.permutation(list(mine))[:leave]]
        ids = list(range(following, following + int(rng.integers(0, most + 1))))
        following += len(ids)
        x, entries = rng.random(len(ids)), entries_of(rng, len(ids))
        if not gone and not ids:
            continue
        opened = OpenBucket(tmp_path, bucket, K)
        places = opened.places[np.isin(opened.table["id"].to_numpy(), gone)]
        before = names(tmp_path / INTERESTS)
        made, work = opened.edit(places, interests(ids, x), entries, size)
        for one in gone:
            del there[one]
        there.update(zip(ids, zip(x, entries.ys.tolist(), strict=True), strict=True))
        buckets[number : number + 1] = made
        found = {}
        for one in buckets:
            found |= contents(one)
        assert found == there
        assert all(one.places <= 2 * size and 2 * one.interests >= one.places for one in made)
        fresh = names(tmp_path / INTERESTS) - before
        edits += len(gone) + len(ids)
        rows += sum(part.rows for one in made for part in one.members if part.file in fresh)
        assert work.changed == len(ids)
        if not buckets:
            break
    assert rows <= 12 * edits, "an edit writes little beside itself"
    assert following > 150 + 50


def test_a_bucket_whose_interests_all_left_is_no_more(tmp_path):
    (bucket,) = cut(tmp_path, interests([1, 2], [0, 1]), entries_of(np.random.default_rng(1), 2), 9)
    assert read_members(tmp_path, bucket)["id"].to_pylist() == [1, 2]
    opened = OpenBucket(tmp_path, bucket, K)
    assert (
        opened.edit(opened.places, interests([], []), entries_of(np.random.default_rng(1), 0), 9)[0]
        == []
    )


ENDS = st.integers(0, 6).map(float)


@given(
    st.lists(st.tuples(ENDS, ENDS).map(sorted), min_size=1, max_size=4),
    st.lists(st.tuples(ENDS, ENDS, ENDS, ENDS), max_size=4),
)
def test_a_bucket_that_is_passed_over_is_reached_by_no_message(ranges, tiles):
    ends, tile = np.array(ranges), np.array(tiles).reshape(-1, 4)
    bounds = [*ends.min(axis=0), *ends.max(axis=0)]
    bucket = Bucket([0.0, 0.0], bounds, len(ends), len(ends), [], [])
    none, names = np.zeros(len(tile)), np.full(len(tile), "o", object)
    messages = Messages(none, none, names, none, none, none, none, tile)
    reached = any(one.reaches(lo, hi) for one in messages for lo, hi in ranges)
    is_reached = bucket.reached_by(messages.bounds).any()
    assert is_reached or not reached
    if len(ranges) == 1:
        assert is_reached == reached


def test_a_state_is_read_as_it_was_committed_and_names_the_files_to_keep(tmp_path):
    assert committed_state(tmp_path) is None
    ends = [-np.finfo(float).max, 0.1, 1 / 3, np.finfo(float).max]
    lists = [FilePart("p", 2), FilePart("q", 1)]
    buckets = [
        Bucket([0.1, 0.2], ends, 3, 2, [FilePart("a", 2)], lists),
        Bucket([0.3, 0.3], ends, 1, 1, [FilePart("b", 1)], []),
    ]
    parts = [FilePart("o", 9), FilePart("n", 4)]
    state = State(7, 2, {"k": 3, "epsilon": None}, "bigint", True, parts, buckets, Work(3, 2, 1, 4))
    state.commit(tmp_path)
    assert committed_state(tmp_path) == state
    for kind in (INTERESTS, LISTS, OBJECTS):
        (tmp_path / kind).mkdir()
        for name in ("p", "crashed"):
            (tmp_path / kind / f"{name}.arrow").touch()
    sweep(tmp_path, {"p.arrow"})
    left = {path.relative_to(tmp_path).as_posix() for path in tmp_path.glob("*/*")}
    assert left == {"interests/p.arrow", "lists/p.arrow", "objects/p.arrow"}
    assert state.files() == {"a", "b", "p", "q", "o", "n"}
    before = {**state._asdict(), "buckets": []}
    del before["several"]
    (tmp_path / "state.json").write_text(json.dumps(before))
    with pytest.raises(FileError, match="another version of rangecast"):
        committed_state(tmp_path)


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
                "position": pa.array(columns[0], pa.float64()),
                "value": pa.array(columns[1], pa.float64()),
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
        assert {
            one["id"]: (one["position"], one["value"], one["arrival"]) for one in found
        } == objects
        assert len(found) == len(objects)
        sizes = [part.rows for part in parts]
        assert all(more > 2 * fewer for more, fewer in pairwise(sizes))
        changed += len(set(ids))
        written += sizes[-1] if ids else 0
    assert written <= 8 * changed


def test_edits_find_their_interests_in_whatever_bucket_they_lie(tmp_path):
    """Few distinct ranges, so that equal ones fill several buckets; lists as a board has them."""
    rng = np.random.default_rng(4)
    x, y = rng.integers(0, 6, (2, 15)).astype(float)
    board = Board(K, objects={"id": np.arange(15), "position": x, "value": y})
    state = State(-1, -1, {}, "bigint", False, [], [], Work())
    following, most = 0, 5
    shown = {}
    for step in range(35):
        there = list(board)
        gone = rng.permutation(there)[: int(rng.integers(0, 8))].tolist()
        rows = [(one, "unsubscribe", None, None, None) for one in gone[::2]]
        for one in (*gone[1::2], *range(following, following + int(rng.integers(0, 9)))):
            lo, hi = sorted(rng.integers(1, 4, 2).astype(float).tolist())
            k = int(rng.integers(1, K + 1)) if rng.random() < 0.5 else None
            rows.append((one, "replace" if one in board else "subscribe", lo, hi, k))
            shown[one] = k or shown.get(one, K)
            following = max(following, one + 1)
        if step == 28:
            rows = [(one, "unsubscribe", None, None, None) for one in there]
        if not rows:
            continue
        columns = [pa.array(column) for column in zip(*rows, strict=True)]
        types = (pa.int64(), pa.string(), pa.float64(), pa.float64(), pa.int64())
        table = pa.table(
            [column.cast(kind) for column, kind in zip(columns, types, strict=True)],
            names=("id", "op", "position_lo", "position_hi", "k"),
        )
        edits = checked_edits(table, board, BoardSchema(None))
        state = apply_edits(tmp_path, state, edits, board, most)
        board.unsubscribe_many(edits.gone)
        board.subscribe_many(edits.new)
        found = {}
        for bucket in state.buckets:
            opened = OpenBucket(tmp_path, bucket, K)
            lists = opened.entries(opened.places).arrivals.tolist()
            for row, entries in zip(opened.table.to_pylist(), lists, strict=True):
                found[row["id"]] = (*row["point"], row["k"], [one for one in entries if one >= 0])
        wanted = {}
        for one in board:
            mine = board[one]
            arrivals = [entry.object for entry in board.best(mine.lo, mine.hi)]
            wanted[one] = (mine.lo, mine.hi, shown[one], arrivals)
        assert found == wanted
        assert step != 28 or not state.buckets
        sweep(tmp_path, state.files())
