"""The step `notify` on Spark: lists as a recomputation gives them, also after a crash."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rangecast.errors import FileError, RangecastError, UsageError
from rangecast.spark.steps.notify import first_buckets
from rangecast.spark.steps.notify import step as notifying
from rangecast.spark.steps.notify.buckets import State, Work, committed_state
from rangecast.spark.steps.notify.step import TopKLists
from tests.support.notify_model import Model

K = 3


def frame(spark, **columns):
    return spark.createDataFrame(pa.table(columns))


def data(seed, ids):
    """Return objects, interests with a k each, and updates in four files' worth."""
    rng = np.random.default_rng(seed)
    objects = [(ids(i), float(rng.integers(0, 20)), float(rng.integers(0, 9))) for i in range(12)]
    ends = np.sort(rng.integers(-1, 21, (60, 2)), axis=1).astype(float)
    changes = []
    there = {name for name, _, _ in objects}
    for _ in range(80):
        name = ids(int(rng.integers(0, 16)))
        y, x = float(rng.integers(0, 9)), float(rng.integers(0, 20))
        if name not in there:
            changes.append((name, y, x))
            there.add(name)
        elif rng.random() < 0.15:
            changes.append((name, None, None))
            there.discard(name)
        else:
            changes.append((name, y, x if rng.random() < 0.2 else None))
    return objects, ends, changes


def write(folder, number, changes, first):
    names, ys, xs = zip(*changes, strict=True)
    table = pa.table(
        {
            "seq": np.arange(first, first + len(changes)),
            "id": list(names),
            "value": pa.array(ys, pa.float64()),
            "position": pa.array(xs, pa.float64()),
        }
    ).take(np.random.default_rng(number).permutation(len(changes)))
    folder.mkdir(exist_ok=True)
    pq.write_table(table, folder / f"{number}.parquet")


def wishes_of(ends):
    """Return the interests of a frame by id: range and k."""
    return {place: (lo, hi, 1 + place % K) for place, (lo, hi) in enumerate(ends.tolist())}


def check(kept, model, wishes):
    found = {}
    for row in kept.read().orderBy("interest", "rank").collect():
        found.setdefault(row["interest"], []).append(
            (row["rank"], row["object"], row["position"], row["value"])
        )
    wanted = {}
    for one, (lo, hi, k) in wishes.items():
        best = model.best(lo, hi, k)
        if best:
            wanted[one] = [(rank, o[2], o[3], o[0]) for rank, o in enumerate(best, 1)]
    assert found == wanted


def fails(*_):
    raise OSError("the disk is gone")


@pytest.mark.parametrize("kind", ["numbers", "texts"])
def test_a_stream_keeps_lists_through_restarts_and_a_crash(spark, tmp_path, monkeypatch, kind):
    objects, ends, changes = data(3, int if kind == "numbers" else lambda i: f"o{i:02}")
    names, xs, ys = zip(*objects, strict=True)
    things = frame(spark, id=list(names), position=list(xs), value=list(ys))
    wishes = frame(
        spark,
        id=np.arange(len(ends)),
        position_lo=ends[:, 0],
        position_hi=ends[:, 1],
        k=[1 + place % K for place in range(len(ends))],
    )
    source, folder = tmp_path / "updates", tmp_path / "lists"
    model = Model(sorted(objects))
    kept = TopKLists(spark, folder, things, wishes, k=K, algorithm="sparse")
    check(kept, model, wishes_of(ends))
    kind_of_id = "long" if kind == "numbers" else "string"

    def run(lists):
        updates = (
            spark.readStream.schema(f"seq long, id {kind_of_id}, value double, position double")
            .option("maxFilesPerTrigger", 1)
            .parquet(str(source))
        )
        query = lists.start(updates, availableNow=True)
        assert query.awaitTermination(600)

    def give(part):
        some = changes[20 * part : 20 * part + 20]
        write(source, part, some, 20 * part)
        for change in some:
            model.change(*change)

    give(0)
    run(kept)
    check(kept, model, wishes_of(ends))
    give(1)

    monkeypatch.setattr(TopKLists, "_commit", fails)
    query = kept.start(
        spark.readStream.schema(
            f"seq long, id {kind_of_id}, value double, position double"
        ).parquet(str(source)),
        availableNow=True,
    )
    with pytest.raises(Exception, match="the disk is gone"):
        query.awaitTermination(600)
    monkeypatch.undo()
    give(2)
    kept.close()
    again = TopKLists(spark, folder, k=K, algorithm="sparse")  # as a new process would
    run(again)
    check(again, model, wishes_of(ends))
    give(3)
    run(again)
    check(again, model, wishes_of(ends))
    last = again.committed
    # Spark runs a batch again: nothing happens
    again.apply(things.selectExpr("id seq", "id", "value"), last)
    check(again, model, wishes_of(ends))
    sent = spark.read.parquet(str(folder / "messages"))
    assert {row["seq"] for row in sent.collect()} <= set(range(last + 1))


def test_a_batch_writes_what_changed_and_survives_a_crash_on_either_side_of_its_commit(
    spark, tmp_path, monkeypatch
):
    """Each batch by a process of its own, which some crash before or after the commit."""
    monkeypatch.setattr(notifying, "ENTRIES", 20 * K)  # buckets of 20 interests
    objects, ends, changes = data(5, int)
    ends[:, 1] = ends[:, 0] + 2  # each object is seen by few
    names, xs, ys = zip(*objects, strict=True)
    things = frame(spark, id=list(names), position=list(xs), value=list(ys))
    shown = [1 + place % K for place in range(len(ends))]
    ids = np.arange(len(ends))
    wishes = frame(spark, id=ids, position_lo=ends[:, 0], position_hi=ends[:, 1], k=shown)
    folder = tmp_path / "lists"
    kept = TopKLists(spark, folder, things, wishes, k=K)
    assert kept.work == Work(changed=60, written=60, read=0, objects=12)
    assert len(committed_state(folder).buckets) >= 3
    model = Model(sorted(objects))

    def lists():
        return [[one[:2] for one in model.best(lo, hi, K)] for lo, hi in ends.tolist()]

    def there():
        """The files of lists, each with how many it has."""
        files = (folder / "lists").glob("*.arrow")
        return {path.name: len(pa.ipc.open_file(path).read_all()) for path in files}

    works, crashes = [], {4: "commit", 7: "sweep", 9: "commit", 10: "sweep"}
    for batch, first in enumerate(range(0, 30, 2)):
        some = changes[first : first + 2]
        before, old_files = lists(), there()
        for change in some:
            model.change(*change)
        table = pa.table(
            {
                "seq": np.arange(len(some)),
                "id": [one[0] for one in some],
                "value": pa.array([one[1] for one in some], pa.float64()),
                "position": pa.array([one[2] for one in some], pa.float64()),
            }
        )
        kept.close()
        kept = TopKLists(spark, folder, k=K)
        if batch in crashes:
            owner = {"commit": State, "sweep": notifying}[crashes[batch]]
            with monkeypatch.context() as broken:
                broken.setattr(owner, crashes[batch], fails)
                with pytest.raises(OSError, match="disk is gone"):
                    kept.apply(spark.createDataFrame(table), batch)
            kept.close()
            kept = TopKLists(spark, folder, k=K)
            assert kept.committed == batch - (crashes[batch] == "commit")
        kept.apply(spark.createDataFrame(table), batch)
        check(kept, model, wishes_of(ends))
        work = kept.work
        assert work.changed == sum(old != new for old, new in zip(before, lists(), strict=True))
        fresh = {name: count for name, count in there().items() if name not in old_files}
        assert sum(fresh.values()) == work.written >= work.changed
        assert work.changed <= work.read <= work.written, "lists that stay as they are were read"
        assert work.objects == committed_state(folder).objects[-1].rows
        works.append(work)
    state = committed_state(folder)
    assert set(there()) >= {part.file for one in state.buckets for part in one.lists}
    assert len(there()) < 2 * len(state.files()), "what crashed has been swept away"
    assert sum(work.written for work in works) < 60 * len(works) / 2, "all lists in every batch"
    assert np.median([work.objects for work in works]) < 12, "all objects in every batch"
    assert min(work.read for work in works) < 60, "buckets that nothing reaches stay closed"


def edits_of(spark, edits, kind="bigint"):
    """Return edits of interests: (id, op) and for new ones position_lo, position_hi, k."""
    rows = [(*one, None, None, None)[:5] for one in edits]
    return spark.createDataFrame(
        rows, f"id {kind}, op string, position_lo double, position_hi double, k int"
    )


def test_interests_come_and_go_between_batches_restarts_and_crashes(spark, tmp_path, monkeypatch):
    """A random history; each edit or batch may be by a new process, and may crash first."""
    monkeypatch.setattr(notifying, "ENTRIES", 20 * K)  # buckets of 20 interests, at most of 40
    rng = np.random.default_rng(8)
    objects, ends, changes = data(8, int)
    names, xs, ys = zip(*objects, strict=True)
    things = frame(spark, id=list(names), position=list(xs), value=list(ys))
    wishes = wishes_of(ends)
    start = frame(
        spark,
        id=list(wishes),
        position_lo=ends[:, 0],
        position_hi=ends[:, 1],
        k=[one[2] for one in wishes.values()],
    )
    model = Model(sorted(objects))
    kept = TopKLists(spark, tmp_path, things, start, k=K)

    def random_edits(count):
        gone = rng.choice(list(wishes), int(rng.integers(0, count)), replace=False).tolist()
        edits = []
        for one in [*gone, *range(1000 + 100 * number, 1000 + 100 * number + count)]:
            lo, hi = sorted(rng.integers(-1, 21, 2).astype(float).tolist())
            k = int(rng.integers(1, K + 1))
            if one not in wishes:
                edits.append((one, "subscribe", lo, hi, k))
                wishes[one] = lo, hi, k
            elif rng.random() < 0.5:
                edits.append((one, "unsubscribe"))
                del wishes[one]
            else:
                keeps = rng.random() < 0.5
                edits.append((one, "replace", lo, hi, None if keeps else k))
                wishes[one] = lo, hi, wishes[one][2] if keeps else k
        return edits_of(spark, edits)

    crashes = {1: "commit", 3: "sweep", 4: "commit"}
    for number, count in enumerate([1, 2, 30, 5, 90]):
        edits = random_edits(count)
        if number % 2:
            kept.close()
            kept = TopKLists(spark, tmp_path, k=K)
        if number in crashes:
            owner = {"commit": State, "sweep": notifying}[crashes[number]]
            with monkeypatch.context() as broken:
                broken.setattr(owner, crashes[number], fails)
                with pytest.raises(OSError, match="disk is gone"):
                    kept.edit(edits, number)
            assert kept.edited == number - (crashes[number] == "commit")
        before = kept.edited
        kept.edit(edits, number)
        if count < 3 and before < number:
            assert kept.work.written <= 8, "an edit writes little beside itself"
        check(kept, model, wishes)
        some = changes[8 * number : 8 * number + 8]
        for change in some:
            model.change(*change)
        write(tmp_path / "updates", number, some, 0)
        kept.apply(spark.read.parquet(str(tmp_path / "updates" / f"{number}.parquet")), number)
        kept.edit(edits, number)  # again: nothing happens
        assert (kept.edited, kept.committed) == (number, number)
    state = committed_state(tmp_path)
    assert sum(bucket.interests for bucket in state.buckets) == len(wishes)
    assert len(state.buckets) > 4
    files = {path.name for path in tmp_path.glob("*/*.arrow")}
    assert len(files) < 2 * len(state.files()), "what no longer counts has been swept away"
    check(kept, model, wishes)
    kept.edit(edits_of(spark, [(one, "unsubscribe") for one in wishes]), 5)
    assert kept.read().collect() == []
    kept.edit(edits_of(spark, [(5, "subscribe", None, None, 2)]), 6)
    check(kept, model, {5: (-np.inf, np.inf, 2)})


def test_streams_of_updates_and_of_edits_run_beside_each_other(spark, tmp_path):
    things = frame(spark, id=[1, 2], position=[1.0, 2.0], value=[1.0, 2.0])
    kept = TopKLists(
        spark, tmp_path, things, frame(spark, id=["a"], position_lo=[0.0], position_hi=[5.0]), k=1
    )
    folders = [tmp_path / "new_updates", tmp_path / "new_edits"]
    for number in range(3):
        write(folders[0], number, [(1, float(number), None), (2, 9.0 - number, None)], 2 * number)
        folders[1].mkdir(exist_ok=True)
        edits = edits_of(spark, [(f"i{number}", "subscribe", float(number), None)], "string")
        pq.write_table(edits.toArrow(), folders[1] / f"{number}.parquet")
    schemas = "seq long, id long, value double, position double", edits.schema
    starts = kept.start, kept.start_edits
    queries = [
        start(
            spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(folder)),
            availableNow=True,
        )
        for start, schema, folder in zip(starts, schemas, folders, strict=True)
    ]
    assert all(query.awaitTermination(100) for query in queries)
    assert (kept.committed, kept.edited) == (2, 2)
    found = {tuple(row) for row in kept.read().collect()}
    wanted = {("a", 1, 1, 1.0, 2.0), ("i0", 1, 1, 1.0, 2.0), ("i1", 1, 1, 1.0, 2.0)}
    assert found == wanted | {("i2", 1, 2, 2.0, 7.0)}


WRONG_EDITS = [
    ([(1, "unsubscribe"), (7, "replace", 0, 1), (9, "unsubscribe")], "not subscribed: 7, 9\n"),
    ([(1, "subscribe", 0.0, 1.0)], "already subscribed: 1; use replace"),
    ([(3, "subscribe", 0.0, 1.0), (3, "unsubscribe")], "duplicate id: 3; edit an interest"),
    (
        [(1, "unsubscribe"), (3, "subscribe", 2.0, 1.0)],
        r"column 'position_hi': .* 2.0 and 1.0; given: .*3,",
    ),
    ([(1, "unsubscribe"), (3, "subscribe", 0.0, 1.0, 2)], r"column 'k': .*; given: .*3,"),
    ([(1, "drop")], "op must be one of subscribe, replace, unsubscribe; given: 'drop' for 1"),
    ([(None, "unsubscribe")], "1 of them have no id"),
]


def test_edits_of_which_one_is_wrong_change_nothing(spark, tmp_path):
    things = frame(spark, id=[1], position=[1.0], value=[1.0])
    wishes = frame(spark, id=[1, 2], position_lo=[0.0, 1.0], position_hi=[5.0, 5.0])
    kept = TopKLists(spark, tmp_path, things, wishes, k=1)
    before = committed_state(tmp_path)
    for edits, message in WRONG_EDITS:
        edits = [(one, op, *(map(float, ends[:2])), *ends[2:]) for one, op, *ends in edits]
        with pytest.raises(RangecastError, match=message):
            kept.edit(edits_of(spark, edits), 0)
    good = edits_of(spark, [(1, "unsubscribe")])
    with pytest.raises(UsageError, match=r"of the type string, but those of .* are bigint"):
        kept.edit(edits_of(spark, [("1", "unsubscribe")], "string"), 0)
    with pytest.raises(UsageError, match="unknown column 'weight'"):
        kept.edit(good.withColumn("weight", good.k), 0)
    with pytest.raises(UsageError, match="lack the columns 'op'"):
        kept.edit(good.drop("op"), 0)
    with pytest.raises(
        UsageError, match=r"unknown column 'z': .*\n  expected: seq, id, value, position\n"
    ):
        kept.apply(frame(spark, seq=[1], id=[1], value=[2.0], z=[1.0]), 0)
    assert committed_state(tmp_path) == before
    kept.edit(good, 0)
    assert [row["interest"] for row in kept.read().collect()] == [2]


def test_objects_arrive_in_the_order_of_seq(spark, tmp_path):
    things = frame(
        spark, id=[1, 2, 3], position=[1.0, 1.0, 1.0], value=[5.0, 5.0, 5.0], seq=[30, 10, 20]
    )
    wishes = frame(spark, id=[1], position_lo=[float("nan")], position_hi=[float("inf")])
    kept = TopKLists(spark, tmp_path, things, wishes, k=3)
    found = kept.read().orderBy("rank").collect()
    assert [row["object"] for row in found] == [2, 3, 1]


def test_a_batch_that_changes_no_list_opens_none_and_all_objects_may_go(spark, tmp_path):
    things = frame(spark, id=[1, 2], position=[1.0, 50.0], value=[1.0, 1.0])
    kept = TopKLists(
        spark, tmp_path, things, frame(spark, id=[7], position_lo=[0.0], position_hi=[5.0]), k=1
    )
    kept.apply(frame(spark, seq=[1], id=[2], value=[0.5]), 0)  # lies outside of the interest
    assert (kept.committed, kept.work) == (0, Work(0, 0, 0, objects=2))
    kept.apply(frame(spark, seq=[1], id=[1], value=[0.25]), 1)
    assert kept.work == Work(1, 1, 1, objects=2)
    assert [tuple(row) for row in kept.read().collect()] == [(7, 1, 1, 1.0, 0.25)]
    gone = pa.table({"seq": [1, 2], "id": [1, 2], "value": pa.nulls(2, pa.float64())})
    kept.apply(spark.createDataFrame(gone), 2)
    assert TopKLists(spark, tmp_path, k=1).read().collect() == []
    again = frame(spark, seq=[1], id=[3], value=[0.5], position=[2.0])
    with pytest.raises(
        UsageError,
        match=r"another process applies batches there\n"
        "  hint: stop that",
    ):
        TopKLists(spark, tmp_path, k=1).apply(again, 3)  # it would go on from its own state
    kept.close()
    with TopKLists(spark, tmp_path, k=1) as other:
        other.apply(again, 3)
    assert [tuple(row) for row in kept.read().collect()] == [(7, 1, 3, 2.0, 0.5)]


def test_without_interests_there_is_nothing_to_keep(spark, tmp_path):
    none = frame(spark, id=["a"], position_lo=[0.0], position_hi=[1.0]).where("false")
    kept = TopKLists(spark, tmp_path, frame(spark, id=[1], position=[1.0], value=[1.0]), none)
    kept.apply(frame(spark, seq=[1], id=[1], value=[2.0]), 0)
    assert TopKLists(spark, tmp_path).read().collect() == []


def test_a_folder_that_workers_dont_share_is_rejected(spark, tmp_path, monkeypatch):
    """Files stay on the disks of other hosts: nothing is committed, and it says what to do."""
    monkeypatch.setattr(notifying, "ENTRIES", 5)
    things = frame(spark, id=[1, 2], position=[1.0, 3.0], value=[1.0, 2.0])
    places = np.arange(20.0)
    wishes = frame(spark, id=np.arange(20), position_lo=places, position_hi=places + 5)
    all_of = first_buckets.strips_of
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(
            first_buckets, "strips_of", lambda folder: dict([*all_of(folder).items()][1:])
        )
        with pytest.raises(FileError, match=r"20 interests were written, but only 15 were found"):
            TopKLists(spark, tmp_path / "a", things, wishes, k=1)
    assert committed_state(tmp_path / "a") is None
    kept = TopKLists(spark, tmp_path / "b", things, wishes, k=1)
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(notifying, "LISTS", "nowhere")
        with pytest.raises(FileError, match=r"wrote lists that can't be found.*\n  hint: use a f"):
            kept.apply(frame(spark, seq=[1], id=[1], value=[5.0]), 0)
    assert kept.committed == -1


def test_wrong_use_is_rejected(spark, tmp_path):
    things = frame(spark, id=[1], position=[1.0], value=[1.0])
    wishes = frame(spark, id=[1], position_lo=[2.0], position_hi=[1.0])
    with pytest.raises(UsageError, match="contains no lists yet"):
        TopKLists(spark, tmp_path / "a")
    with pytest.raises(
        UsageError, match=r"interests: column 'position_hi': .*2.0 and 1.0; given: .*1"
    ):
        TopKLists(spark, tmp_path / "b", things, wishes)
    with pytest.raises(UsageError, match="lack the columns 'value'"):
        TopKLists(spark, tmp_path / "c", things.drop("value"), wishes)
    with pytest.raises(UsageError, match="objects: unknown column 'z'"):
        TopKLists(spark, tmp_path / "c", things.withColumn("z", things.value), wishes)
    with pytest.raises(UsageError, match="interests: unknown column 'z'"):
        TopKLists(spark, tmp_path / "c", things, wishes.withColumn("z", wishes.id))
    twice = frame(spark, id=[1, 4, 4], position_lo=[0.0] * 3, position_hi=[1.0] * 3)
    with pytest.raises(UsageError, match="duplicate id 4, 2 times"):
        TopKLists(spark, tmp_path / "c", things, twice)
    TopKLists(
        spark, tmp_path / "d", things, frame(spark, id=[1], position_lo=[0.0], position_hi=[5.0])
    )
    with pytest.raises(UsageError, match="was created with"):
        TopKLists(spark, tmp_path / "d", k=2)
