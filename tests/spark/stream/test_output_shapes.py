"""The shape of rows in sinks that hold none themselves: it is kept by the checkpoint."""

import json
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.types import LongType, StringType, StructType

from rangecast.errors import UsageError
from rangecast.model.boxes import Boxes
from rangecast.spark.stream.kafka import Topic, messages_of_rows
from rangecast.spark.stream.run import run_stream
from rangecast.spark.stream.sets import FixedSet, MergedSet, VersionedSet
from rangecast.spark.stream.sinks.base import (
    Callback,
    CatalogTable,
    Console,
    Folder,
    Sink,
    no_commit,
)
from rangecast.spark.stream.sinks.delta import Delta
from rangecast.spark.stream.sinks.shapes import OutputShapes, outputs
from rangecast.spark.stream.steps import FilterStep, MatchStep, RankStep
from rangecast.store.edits import Edits
from rangecast.store.versions import Versions
from tests.spark.stream.test_sinks import SPACE, add

HELD = r"its batches have the columns event bigint, subscription string.*; given: "


class Messages(Topic):
    """A topic that keeps its messages here."""

    def __init__(self, kept, **options):
        super().__init__("localhost:9", "t", **options)
        self._kept = kept

    def check(self, session):
        pass

    def write(self, rows, batch):
        self._kept += messages_of_rows(rows, self._key, batch).collect()
        return no_commit


class Own(Sink):
    """A user's own sink."""

    name = "own"

    def __init__(self, kept):
        self._kept = kept

    def write(self, rows, batch):
        self._kept += rows.collect()
        return no_commit


class Shown(Console):
    def __init__(self, kept):
        super().__init__()
        self._kept = kept

    def write(self, rows, batch):
        self._kept += rows.collect()
        return super().write(rows, batch)


SINKS = {
    "kafka": Messages,
    "console": Shown,
    "callback": lambda kept: Callback(lambda rows, batch: kept.extend(rows.collect())),
    "own": Own,
}


def numbered(*ids):
    """A set whose subscriptions have these ids."""
    lo = np.zeros((len(ids), 1))
    return FixedSet(Boxes.of(lo, lo + 50, ids=list(ids), space=SPACE), SPACE)


def go(spark, folder, *steps, checkpoint="checkpoint"):
    add(folder, "zero.parquet", [])  # so that columns are known
    schema = spark.read.parquet(str(folder / "events")).schema
    events = spark.readStream.schema(schema).parquet(str(folder / "events"))
    run_stream(events, steps, checkpoint=folder / checkpoint, ignore_unknown=True)


@pytest.mark.parametrize("kind", SINKS)
def test_a_changed_shape_is_rejected_on_a_restart_and_the_old_one_goes_on(spark, tmp_path, kind):
    sink, kept, ids = SINKS[kind], [], numbered("a")
    checkpoint = "check point[1]{x}"  # not a pattern
    how = {"keep": ["price", "kind"]}

    def step(make=MatchStep, of=ids, **options):
        go(spark, tmp_path, make(of, [sink(kept)], **(how | options)), checkpoint=checkpoint)

    add(tmp_path, "0.parquet", [5])
    step()
    assert len(kept) == 1
    add(tmp_path, "1.parquet", [6])
    for changed in (
        {"output": "arrays"},
        {"keep": ["price"]},
        {"keep": ["kind", "price"]},
        {"keep": ["price", "kind", "at"]},
        {"make": RankStep},
        {"name": "another", "output": "arrays"},
    ):
        with pytest.raises(UsageError, match=HELD) as error:
            step(**changed)
        assert str(tmp_path / checkpoint / "rangecast-outputs") in str(error.value)
        assert len(kept) == 1, "it was written"
    step(name="another")  # the same rows
    assert len(kept) == 2


def test_the_key_of_messages_is_part_of_their_shape(spark, tmp_path):
    add(tmp_path, "0.parquet", [5])
    kept = []
    go(spark, tmp_path, MatchStep(numbered("a"), [Messages(kept)]))
    with pytest.raises(UsageError, match=r"string; key event; given: .*; key subscription\n  hint"):
        go(spark, tmp_path, MatchStep(numbered("a"), [Messages(kept, key="subscription")]))


def test_a_checkpoint_without_shapes_is_accepted_and_gets_them(spark, tmp_path):
    """Also one whose first attempt to write them died; steps and sinks may be added."""
    kept, held = [], tmp_path / "checkpoint" / "rangecast-outputs"
    add(tmp_path, "0.parquet", [5])
    go(spark, tmp_path, MatchStep(numbered("a"), [Own(kept)]))
    shutil.rmtree(held)
    (held / "_temporary" / "0").mkdir(parents=True)
    add(tmp_path, "1.parquet", [6])
    arrays = {"output": "arrays", "name": "lists"}
    go(spark, tmp_path, MatchStep(numbered("a"), [Own(kept)], output="arrays"))
    assert [type(row[1]) for row in kept] == [str, list]
    with pytest.raises(UsageError, match="columns event bigint, subscriptions array<string>; giv"):
        go(spark, tmp_path, MatchStep(numbered("a"), [Own(kept)]))
    (held / "_temporary").mkdir(exist_ok=True)
    lists = MatchStep(numbered("a"), [Own(kept), SINKS["callback"](kept)], output="arrays")
    add(tmp_path, "2.parquet", [7])
    go(spark, tmp_path, lists, RankStep(numbered("a"), [Own(kept)]))
    assert len(kept) == 5
    for steps in ([RankStep(numbered("a"), [Own(kept)], name="match")], [MatchStep(numbered("a"),
            [SINKS["callback"](kept)])]):  # fmt: skip
        with pytest.raises(UsageError, match="its batches have the columns"):
            go(spark, tmp_path, *steps)
    go(spark, tmp_path, MatchStep(numbered("a"), [Own(kept)], **arrays))  # a step was removed


def test_ids_of_a_set_that_was_empty_may_have_any_type_once(spark, tmp_path):
    kept = []
    sets = {"none": numbered(), "whole": numbered(7), "text": numbered("x")}
    for number, (name, fits) in enumerate(
        [("none", True), ("whole", True), ("none", True), ("text", False), ("whole", True)]
    ):
        add(tmp_path, f"{number}.parquet", [number])
        step = MatchStep(sets[name], [Own(kept)], output="arrays")
        if fits:
            go(spark, tmp_path, step)
        else:
            with pytest.raises(UsageError, match=r"array<bigint>; given: .*array<string>"):
                go(spark, tmp_path, step)
    assert sorted((row["event"], tuple(row["subscriptions"])) for row in kept) == [
        (0, ()), (1, (7,)), (2, ()), (3, (7,)), (4, (7,)),
    ]  # fmt: skip


def test_a_table_of_the_catalog_says_itself_what_it_holds(spark, tmp_path):
    assert CatalogTable("t").shape(spark.range(1).schema) is None
    add(tmp_path, "0.parquet", [5])
    sink = CatalogTable("shapes_of_outputs")
    try:
        go(spark, tmp_path, MatchStep(numbered("a"), [sink]))
        add(tmp_path, "1.parquet", [6])
        changed = MatchStep(numbered("a"), [sink], keep=["price"])
        with pytest.raises(UsageError, match="Spark can't write to it"):
            go(spark, tmp_path, changed)
        assert not (tmp_path / "checkpoint" / "rangecast-outputs").exists()
        assert spark.table("shapes_of_outputs").count() == 1
    finally:
        spark.sql("drop table if exists shapes_of_outputs")


A, B, C, D = (StructType().add("event", LongType()).add(name, StringType()) for name in "abcd")


def shown(**steps):
    """The outputs of steps on the console, from the columns of each."""
    return outputs([(name, [Console()], columns, 1) for name, columns in steps.items()])


class Restarts:
    """A checkpoint with batches; each restart gives the steps of a stream."""

    def __init__(self, spark, checkpoint):
        self._spark, self._checkpoint = spark, checkpoint
        self._batch = 0

    def check(self, given, fits=True):
        """Check outputs; return the shapes, to be recorded."""
        shapes = OutputShapes(self._spark, str(self._checkpoint))
        if fits:
            shapes.check(given)
        else:
            with pytest.raises(UsageError, match="hint: revert"):
                shapes.check(given)
        return shapes

    def answer(self, given):
        """Write a batch."""
        ids = self.check(given).record(given, self._batch)
        (self._checkpoint / "commits").mkdir(parents=True, exist_ok=True)
        (self._checkpoint / "commits" / str(self._batch)).write_text("v1\n{}")
        self._batch += 1
        return ids


def test_a_step_may_be_renamed_removed_and_added_in_any_order(spark, tmp_path):
    stream = Restarts(spark, tmp_path)
    stream.answer(shown(match=A, rank=B))
    stream.check(shown(match=A, rank=B, filter=C))
    stream.check(shown(m=A, rank=B, filter=C))
    stream.check(shown(m=A, r=B, filter=C))
    stream.check(shown(match=A, filter=C), fits=False)  # rank, renamed and changed?
    stream.check(shown(filter=C), fits=False)
    stream.answer(shown(match=A))  # rank was removed
    stream.check(shown(match=A, rank=C), fits=False)  # a name keeps its shape
    stream.answer(shown(match=A, filter=C))
    stream.answer(shown(m=A, filter=C))
    stream.check(shown(m=A, filter=C, new=B))  # no name has gone since match was renamed
    stream.check(shown(match=B, filter=C), fits=False)
    stream.answer(shown(match=A, filter=C))  # the old name again
    stream.check(shown(match=A, filter=B), fits=False)
    stream.check(shown(match=A, filter=C, rank=B))


def test_a_change_is_found_whatever_is_added_and_removed_beside_it(spark, tmp_path):
    stream = Restarts(spark, tmp_path)
    stream.answer(shown(match=A, rank=B))
    for given in (
        {"match": A, "top": C, "filter": D},  # rank was renamed
        {"match": A, "top": C, "filter": A},
        {"top": C, "filter": D},
        {"m": A, "top": C, "filter": D},
        {"match": A, "rank": C, "filter": B},
        {"match": A, "rank": A, "filter": B},
        {"match": B, "rank": A},
        {"match": A, "filter": A},
    ):
        stream.check(shown(**given), fits=False)
    stream.check(shown(match=A, top=B, filter=C, other=D))


def test_one_of_two_steps_of_a_shape_may_be_removed_while_another_is_added(spark, tmp_path):
    stream = Restarts(spark, tmp_path)
    stream.answer(shown(first=A, second=A))
    stream.check(shown(first=A, other=B))  # all readers of the second know the first


@pytest.mark.parametrize("given", [("two",), ("two", "one"), ("two", "three", "one")])
def test_sinks_of_a_step_that_share_a_name_have_no_order(spark, tmp_path, given):
    def topics(*names, **changed):
        keys = {"one": "event", "two": "a", "three": "b"} | changed
        columns = StructType.fromDDL("event bigint, a string, b string")
        sinks = [Topic(f"{name}:9092", "t", key=keys[name]) for name in names]
        return outputs([("match", sinks, columns, 1)])

    stream = Restarts(spark, tmp_path)
    stream.answer(topics("one", "two"))
    stream.check(topics("three"), fits=False)
    stream.check(topics("one", "two", two="b"), fits=False)
    stream.answer(topics(*given))
    stream.check(topics(*given, two="b"), fits=False)


def test_a_sink_that_has_a_batch_is_not_taken_for_one_that_was_removed(spark, tmp_path):
    given = shown(match=A, rank=B)
    Restarts(spark, tmp_path).answer(given)
    shapes = OutputShapes(spark, str(tmp_path))
    shapes.check(given)
    shapes.record(given[1:], 0)
    assert len([*(tmp_path / "rangecast-outputs").glob("part-*")]) == 1


def test_a_first_batch_that_failed_may_have_been_written(spark, tmp_path):
    """What a sink got of it isn't known: so it is a hint, and no new shape, that is given."""

    def fail(rows, batch):
        raise RuntimeError("the broker has left")

    add(tmp_path, "0.parquet", [5])
    with pytest.raises(RuntimeError):
        go(spark, tmp_path, MatchStep(numbered("a"), [Callback(fail)]))
    kept = []
    arrays = MatchStep(numbered("a"), [SINKS["callback"](kept)], output="arrays")
    rows = "event bigint, subscription string; given: .*array"
    for _ in range(2):
        with pytest.raises(UsageError, match=f"may have been written with the columns {rows}"):
            go(spark, tmp_path, arrays)
    shutil.rmtree(tmp_path / "checkpoint" / "rangecast-outputs")  # as the hint says
    go(spark, tmp_path, arrays)
    assert len(kept) == 1
    with pytest.raises(UsageError, match="callback: its batches have the columns"):
        go(spark, tmp_path, MatchStep(numbered("a"), [SINKS["callback"](kept)]))


def test_the_type_of_a_kept_column_counts_that_is_called_as_the_one_with_ids(spark, tmp_path):
    """A filter has no ids of subscriptions."""
    stream = Restarts(spark, tmp_path)
    kept, changed = (
        StructType.fromDDL(f"event bigint, subscription {kind}") for kind in ("double", "timestamp")
    )
    assert [*stream.answer(shown(filter=kept)).values()] == [""]
    stream.check(shown(filter=changed), fits=False)


@pytest.mark.parametrize("kind", [Folder, Delta])
def test_a_kept_column_that_is_called_as_the_one_with_ids_keeps_its_type(spark, tmp_path, kind):
    names = ["subscription", "subscriptions"]
    columns = "".join(f", {name} double" for name in names)
    events = spark.createDataFrame([(1, 5.0, 0.5, 1.5)], f"id long, price double{columns}")
    for number in range(2):
        events.write.mode("append").parquet(str(tmp_path / "events"))
        reader = spark.readStream.schema(events.schema).parquet(str(tmp_path / "events"))
        sink = kind(tmp_path / "out")
        step = FilterStep([MergedSet(numbered("a"))], [sink], keep=names)
        run_stream(reader, [step], checkpoint=tmp_path / "checkpoint", ignore_unknown=True)
        files = [*(tmp_path / "out").rglob("*.parquet")]
        assert len(files) == number + 1
        found = [pq.ParquetFile(file).read(names).to_pylist() for file in files]
        assert found == [[{"subscription": 0.5, "subscriptions": 1.5}]] * len(files)


def edits_file(folder, name, *edits):
    rows = [{"id": id_, "op": op, "filter": "price < 50"} for op, id_ in edits]
    pq.write_table(pa.Table.from_pylist(rows), folder / name)


@pytest.mark.parametrize("kind", ["folder", "kafka", "console", "callback", "own"])
@pytest.mark.parametrize("output", ["rows", "arrays"])
def test_integers_that_follow_texts_as_ids_are_written_as_texts(spark, tmp_path, kind, output):
    """A set that loses all its subscriptions may get others, with ids of another type."""
    kept = []
    (edits := tmp_path / "edits").mkdir()
    edits_file(edits, "0.parquet", ("subscribe", "a"))

    def step():
        versions = Versions(tmp_path / "versions")
        set_ = VersionedSet(versions, SPACE, edits=Edits(edits, versions, SPACE))
        sink = Folder(tmp_path / "out") if kind == "folder" else SINKS[kind](kept)
        return MatchStep(set_, [sink], output=output)

    for number, changes in enumerate(
        [[], [("unsubscribe", "a")], [("subscribe", 7)], [("unsubscribe", 7)]]
    ):
        if changes:
            edits_file(edits, f"{number}.parquet", *changes)
        add(tmp_path, f"{number}.parquet", [number])
        go(spark, tmp_path, step())
    if kind == "folder":
        files = (tmp_path / "out").rglob("*.parquet")
        rows = [row for file in files for row in pq.ParquetFile(file).read().to_pylist()]
    elif kind == "kafka":
        rows = [json.loads(row["value"]) for row in kept]
    else:
        rows = [row.asDict() for row in kept]
    name = "subscription" if output == "rows" else "subscriptions"
    found = {row["event"]: row[name] for row in rows}
    expected = {0: "a", 2: "7"}
    if output == "arrays":
        expected = {0: ["a"], 1: [], 2: ["7"], 3: []}
    assert found == expected


def test_texts_that_follow_integers_as_ids_are_rejected(spark, tmp_path):
    add(tmp_path, "0.parquet", [5])
    go(spark, tmp_path, MatchStep(numbered(7), [Own([])]))
    with pytest.raises(UsageError, match=r"subscription bigint; given: .*subscription string"):
        go(spark, tmp_path, MatchStep(numbered("a"), [Own([])]))
