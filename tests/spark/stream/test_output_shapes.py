"""The shape of rows in sinks that hold none themselves: it is kept by the checkpoint."""

import shutil

import numpy as np
import pytest

from rangecast.errors import UsageError
from rangecast.model.boxes import Boxes
from rangecast.spark.stream.kafka import Topic, messages_of_rows
from rangecast.spark.stream.run import run_stream
from rangecast.spark.stream.sets import FixedSet
from rangecast.spark.stream.sinks.base import Callback, CatalogTable, Console, Sink, no_commit
from rangecast.spark.stream.steps import MatchStep, RankStep
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
        {"of": numbered(7)},
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
