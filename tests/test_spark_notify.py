"""The step `notify` on Spark: lists as a recomputation gives them, also after a crash."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rangecast.errors import FileError, UsageError
from rangecast.spark.steps import notify as notifying
from rangecast.spark.steps.buckets import State, Work, committed_state
from rangecast.spark.steps.notify import TopKLists
from tests.notify_model import Model

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
            "y": pa.array(ys, pa.float64()),
            "x": pa.array(xs, pa.float64()),
        }
    ).take(np.random.default_rng(number).permutation(len(changes)))
    folder.mkdir(exist_ok=True)
    pq.write_table(table, folder / f"{number}.parquet")


def check(kept, model, ends):
    found = {}
    for row in kept.read().orderBy("interest", "rank").collect():
        found.setdefault(row["interest"], []).append(
            (row["rank"], row["object"], row["x"], row["y"])
        )
    for place, (lo, hi) in enumerate(ends.tolist()):
        best = model.best(lo, hi, 1 + place % K)
        wanted = [(rank, o[2], o[3], o[0]) for rank, o in enumerate(best, 1)]
        assert found.get(place, []) == wanted


def fails(*_):
    raise OSError("the disk is gone")


@pytest.mark.parametrize("kind", ["numbers", "texts"])
def test_a_stream_keeps_lists_through_restarts_and_a_crash(spark, tmp_path, monkeypatch, kind):
    objects, ends, changes = data(3, int if kind == "numbers" else lambda i: f"o{i:02}")
    names, xs, ys = zip(*objects, strict=True)
    things = frame(spark, id=list(names), x=list(xs), y=list(ys))
    wishes = frame(
        spark,
        id=np.arange(len(ends)),
        x_lo=ends[:, 0],
        x_hi=ends[:, 1],
        k=[1 + place % K for place in range(len(ends))],
    )
    source, folder = tmp_path / "updates", tmp_path / "lists"
    model = Model(sorted(objects))
    kept = TopKLists(spark, folder, things, wishes, k=K, algorithm="sparse")
    check(kept, model, ends)
    kind_of_id = "long" if kind == "numbers" else "string"

    def run(lists):
        updates = (
            spark.readStream.schema(f"seq long, id {kind_of_id}, y double, x double")
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
    check(kept, model, ends)
    give(1)

    monkeypatch.setattr(TopKLists, "_commit", fails)
    query = kept.start(
        spark.readStream.schema(f"seq long, id {kind_of_id}, y double, x double").parquet(
            str(source)
        ),
        availableNow=True,
    )
    with pytest.raises(Exception, match="the disk is gone"):
        query.awaitTermination(600)
    monkeypatch.undo()
    give(2)
    kept.close()
    again = TopKLists(spark, folder, k=K, algorithm="sparse")  # as a new process would
    run(again)
    check(again, model, ends)
    give(3)
    run(again)
    check(again, model, ends)
    last = again.committed
    again.apply(things, last)  # Spark runs a batch again: nothing happens
    check(again, model, ends)
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
    things = frame(spark, id=list(names), x=list(xs), y=list(ys))
    shown = [1 + place % K for place in range(len(ends))]
    ids = np.arange(len(ends))
    wishes = frame(spark, id=ids, x_lo=ends[:, 0], x_hi=ends[:, 1], k=shown)
    folder = tmp_path / "lists"
    kept = TopKLists(spark, folder, things, wishes, k=K)
    assert kept.work == Work(changed=60, written=60, read=0, objects=12)
    assert len(committed_state(folder).buckets) >= 3
    model = Model(sorted(objects))

    def lists():
        return [[one[:2] for one in model.best(lo, hi, K)] for lo, hi in ends.tolist()]

    def there():
        """The files of lists, each with how many it has."""
        files = (folder / "lists").glob("*.parquet")
        return {path.name: pq.read_metadata(path).num_rows for path in files}

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
                "y": pa.array([one[1] for one in some], pa.float64()),
                "x": pa.array([one[2] for one in some], pa.float64()),
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
        check(kept, model, ends)
        work = kept.work
        assert work.changed == sum(old != new for old, new in zip(before, lists(), strict=True))
        fresh = {name: count for name, count in there().items() if name not in old_files}
        assert sum(fresh.values()) == work.written >= work.changed
        assert work.objects == committed_state(folder).objects[-1].rows
        works.append(work)
    state = committed_state(folder)
    assert set(there()) >= {part.file for one in state.buckets for part in one.parts}
    assert len(there()) < 2 * len(state.files()), "what crashed has been swept away"
    assert sum(work.written for work in works) < 60 * len(works) / 2, "all lists in every batch"
    assert np.median([work.objects for work in works]) < 12, "all objects in every batch"
    assert min(work.read for work in works) < 60, "buckets that nothing reaches stay closed"


def test_a_batch_that_changes_no_list_opens_none_and_all_objects_may_go(spark, tmp_path):
    things = frame(spark, id=[1, 2], x=[1.0, 50.0], y=[1.0, 1.0])
    kept = TopKLists(spark, tmp_path, things, frame(spark, id=[7], x_lo=[0.0], x_hi=[5.0]), k=1)
    kept.apply(frame(spark, seq=[1], id=[2], y=[0.5]), 0)  # lies outside of the interest
    assert (kept.committed, kept.work) == (0, Work(0, 0, 0, objects=2))
    kept.apply(frame(spark, seq=[1], id=[1], y=[0.25]), 1)
    assert kept.work == Work(1, 1, 1, objects=2)
    assert [tuple(row) for row in kept.read().collect()] == [(7, 1, 1, 1.0, 0.25)]
    gone = pa.table({"seq": [1, 2], "id": [1, 2], "y": pa.nulls(2, pa.float64())})
    kept.apply(spark.createDataFrame(gone), 2)
    assert TopKLists(spark, tmp_path, k=1).read().collect() == []
    again = frame(spark, seq=[1], id=[3], y=[0.5], x=[2.0])
    with pytest.raises(UsageError, match=r"another one applies batches there\n  to do: stop that"):
        TopKLists(spark, tmp_path, k=1).apply(again, 3)  # it would go on from its own state
    kept.close()
    with TopKLists(spark, tmp_path, k=1) as other:
        other.apply(again, 3)
    assert [tuple(row) for row in kept.read().collect()] == [(7, 1, 3, 2.0, 0.5)]


def test_without_interests_there_is_nothing_to_keep(spark, tmp_path):
    none = frame(spark, id=["a"], x_lo=[0.0], x_hi=[1.0]).where("false")
    kept = TopKLists(spark, tmp_path, frame(spark, id=[1], x=[1.0], y=[1.0]), none)
    kept.apply(frame(spark, seq=[1], id=[1], y=[2.0]), 0)
    assert TopKLists(spark, tmp_path).read().collect() == []


def test_a_folder_that_workers_dont_share_is_refused(spark, tmp_path, monkeypatch):
    """Files stay on the disks of other hosts: nothing is committed, and it says what to do."""
    monkeypatch.setattr(notifying, "ENTRIES", 5)
    things = frame(spark, id=[1, 2], x=[1.0, 3.0], y=[1.0, 2.0])
    places = np.arange(20.0)
    wishes = frame(spark, id=np.arange(20), x_lo=places, x_hi=places + 5)
    all_of = notifying.buckets_of
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(notifying, "buckets_of", lambda folder: all_of(folder)[1:])
        with pytest.raises(FileError, match=r"20 interests were written, and 15 of them are there"):
            TopKLists(spark, tmp_path / "a", things, wishes, k=1)
    assert committed_state(tmp_path / "a") is None
    kept = TopKLists(spark, tmp_path / "b", things, wishes, k=1)
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(notifying, "LISTS", "nowhere")
        with pytest.raises(FileError, match=r"wrote lists that aren't there.*\n  to do: give a f"):
            kept.apply(frame(spark, seq=[1], id=[1], y=[5.0]), 0)
    assert kept.committed == -1


def test_wrong_use_is_refused(spark, tmp_path):
    things = frame(spark, id=[1], x=[1.0], y=[1.0])
    wishes = frame(spark, id=[1], x_lo=[2.0], x_hi=[1.0])
    with pytest.raises(UsageError, match="holds no lists yet"):
        TopKLists(spark, tmp_path / "a")
    with pytest.raises(UsageError, match="x_lo <= x_hi"):
        TopKLists(spark, tmp_path / "b", things, wishes)
    with pytest.raises(UsageError, match="lack the columns 'y'"):
        TopKLists(spark, tmp_path / "c", things.drop("y"), wishes)
    TopKLists(spark, tmp_path / "d", things, frame(spark, id=[1], x_lo=[0.0], x_hi=[5.0]))
    with pytest.raises(UsageError, match="was begun with"):
        TopKLists(spark, tmp_path / "d", k=2)
