"""Kept columns in every sink: nested and old moments, odd names and types, texts of partitions."""

import json
from contextlib import ExitStack
from datetime import UTC, datetime
from typing import ClassVar

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from rangecast.errors import UsageError
from rangecast.model.attributes.base import Number
from rangecast.model.boxes import Boxes
from rangecast.model.space import Space
from rangecast.spark import FixedSet, MatchStep, match
from rangecast.spark.stream.batch import BatchRunner
from rangecast.spark.stream.kafka import Topic
from rangecast.spark.stream.sets import MergedSet
from rangecast.spark.stream.sinks.base import Batch, Folder, JsonFolder
from rangecast.spark.stream.sinks.delta import Delta
from rangecast.spark.stream.steps import FilterStep
from rangecast.store.commits import BATCH_JOB, read_committed
from tests.support.delta_log import delta_rows

SPACE = Space([Number("price")])
SINKS = {"parquet": Folder, "json": JsonFolder, "delta": Delta}
NEW_YEAR = datetime(2026, 1, 1, 10, tzinfo=UTC)
OLD = datetime(1850, 1, 1, 10, 0, 0, 1, tzinfo=UTC)
"""Where New York was 4:56:02 behind Greenwich."""
MOMENTS = {
    "plain": ("timestamp'1850-01-01 10:00:00.000001Z'", OLD),
    "struct": ("struct(timestamp'2026-01-01 10:00:00Z' as at)", {"at": NEW_YEAR}),
    "list": ("array(timestamp'1850-01-01 10:00:00.000001Z', null)", [OLD, None]),
    "structs": ("array(struct(timestamp'2026-01-01 10:00:00Z' as at))", [{"at": NEW_YEAR}]),
    "map": ("map('k', struct(timestamp'2026-01-01 10:00:00Z' as at))", [("k", {"at": NEW_YEAR})]),
}


def rows_with(spark, **columns):
    """Return answers with these columns; of odd events they are null."""
    made = [f"if(id % 2 = 1, null, {text}) as `{name}`" for name, text in columns.items()]
    return spark.range(2).selectExpr("id as event", "'a' as subscription", *made)


def write(sink, rows):
    """Check and write a batch as a stream does."""
    sink.check_columns(rows.schema)
    with ExitStack() as closing:
        sink.open("s", closing)
        sink.write(rows, Batch("s", 0, 1, 1))({"rows": rows.count()})


def read(kind, path):
    """Return the kept columns of a sink by event."""
    if kind == "delta":
        rows = delta_rows(path)
    elif kind == "parquet":
        rows = read_committed(path).to_table().to_pylist()
    else:
        lines = [line for file in path.rglob("part-*") for line in file.read_text().splitlines()]
        rows = [json.loads(line, object_hook=of_json) for line in lines]
    return {row["event"]: row for row in rows}


def of_json(found):
    def value(one):
        if isinstance(one, str) and one[4:5] == "-":
            return datetime.fromisoformat(one)
        return [value(item) for item in one] if isinstance(one, list) else one

    found = {name: value(one) for name, one in found.items()}
    return list(found.items()) if found.keys() == {"k"} else found


@pytest.mark.parametrize("kind", SINKS)
def test_moments_inside_of_other_values_and_of_old_times_are_kept(spark, tmp_path, kind):
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        rows = rows_with(spark, **{name: text for name, (text, _) in MOMENTS.items()})
        write(SINKS[kind](tmp_path / "out"), rows)
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)
    found = read(kind, tmp_path / "out")
    for name, (_, value) in MOMENTS.items():
        assert found[0][name] == value, name
        assert found[1].get(name) is None, name
    if kind == "delta":  # its own table isn't rejected for what Spark knows of nulls
        Delta(tmp_path / "out").check_columns(rows.schema)


def test_names_that_differ_by_case_alone_are_rejected(spark, tmp_path):
    boxes = Boxes.of([[0.0]], [[9.0]], space=SPACE)
    events = spark.range(1).selectExpr("id", "1.0 as price", "'x' as Event", "'y' as kind")
    with pytest.raises(UsageError, match="'event' and 'Event' differ by case alone\n  hint: ren"):
        match(events, boxes, SPACE, keep=["Event"], ignore_unknown=True)
    spark.conf.set("spark.sql.caseSensitive", "true")
    try:
        answers = match(events, boxes, SPACE, keep=["Event"], ignore_unknown=True)
        assert answers.collect()[0].asDict() == {"event": 0, "subscription": 0, "Event": "x"}
        for sink in SINKS.values():
            with pytest.raises(UsageError, match="out: the columns 'event' and 'Event' differ by"):
                sink(tmp_path / "out").check_columns(answers.schema)
    finally:
        spark.conf.unset("spark.sql.caseSensitive")


@pytest.mark.parametrize("kind", SINKS)
def test_a_text_that_readers_of_partitions_take_for_null_is_rejected(spark, tmp_path, kind):
    texts = {"": "an empty string", "__HIVE_DEFAULT_PARTITION__": "'__HIVE_DEFAULT_PARTITION__'"}
    for number, (text, named) in enumerate(texts.items()):
        path = tmp_path / str(number)
        rows = rows_with(spark, kind=f"'{text}'")
        if kind == "delta" and text:  # its log has the text itself
            write(Delta(path, partition_by=["kind"]), rows)
            assert {one: row["kind"] for one, row in read(kind, path).items()} == {0: text, 1: None}
            continue
        with pytest.raises(UsageError, match=f"'kind' has {named}, which a .* can't distinguish"):
            write(SINKS[kind](path, partition_by=["kind"]), rows)
        assert not list(path.glob("batch=*"))


def test_maps_whose_keys_are_no_texts_as_json_are_rejected_there(spark, tmp_path):
    keys = {
        "timestamp'2026-01-01'": "timestamp",
        "date'2026-01-01'": "date",
        "struct(1 as a)": "struct<a:int>",
        "X'00'": "binary",
    }
    for text, kind in keys.items():
        rows = rows_with(spark, odd=f"array(map({text}, 1))")
        for sink in (JsonFolder(tmp_path / "json"), Topic("localhost:9", "t")):
            with pytest.raises(UsageError, match=f"'odd' has a map by {kind}, which can't be writ"):
                sink.check_columns(rows.schema)
        Folder(tmp_path / "parquet").check_columns(rows.schema)
    rows = rows_with(spark, whole="map(1, 'x')", decimal="map(1.50, true)", flag="map(true, 2)")
    write(JsonFolder(tmp_path / "json"), rows)
    row = read("json", tmp_path / "json")[0]
    assert [row[name] for name in ("whole", "decimal", "flag")] == [
        {"1": "x"}, {"1.50": True}, {"true": 2},
    ]  # fmt: skip


def test_values_without_fields_or_types_are_rejected(spark, tmp_path):
    boxes = Boxes.of([[0.0]], [[9.0]], space=SPACE)
    events = spark.range(1).selectExpr("id", "1.0 as price", "array() as odd")
    with pytest.raises(UsageError, match="'odd' of events has the type array<void>, which can't"):
        match(events, boxes, SPACE, keep=["odd"], ignore_unknown=True)
    rows = rows_with(spark, odd="array(struct())")
    for sink in SINKS.values():
        with pytest.raises(UsageError, match=r"expected: a type without .*empty struct"):
            sink(tmp_path / "out").check_columns(rows.schema)


def test_two_streams_that_begin_a_table_together_dont_mix_their_rows(spark, tmp_path):
    path = tmp_path / "out"
    rows = rows_with(spark, kind="'x'")
    with ExitStack() as closing:
        first, second = Delta(path), Delta(path)
        for sink, stream in ((first, "one"), (second, "two")):
            sink.open(stream, closing)  # neither sees the other
        commits = [sink.write(rows, Batch("", 0, 1, 1)) for sink in (first, second)]
        commits[0]({"rows": 2})
        with pytest.raises(UsageError, match="the batches of another stream, one; this one is two"):
            commits[1]({"rows": 2})
        assert len(delta_rows(path)) == 2
        DeltaTable(path).optimize.compact()  # is no stream
        first.write(rows, Batch("", 1, 1, 1))({"rows": 2})
        shared = Delta(path, shared=True)
        shared.open("three", closing)
        shared.write(rows, Batch("", 0, 1, 1))({"rows": 2})
        with pytest.raises(UsageError, match="another stream, three; this one is one"):
            first.write(rows, Batch("", 2, 1, 1))({"rows": 2})
    table = DeltaTable(path).to_pyarrow_table()
    assert table.num_rows == 6
    assert table.schema.field("kind").type == pa.string()


def test_a_commit_that_another_one_overtakes_is_checked_again(spark, tmp_path):
    """Each `between` is committed after this stream looked at the table, before its own commit."""

    class Overtaken(Delta):
        between: ClassVar[list] = []

        def _reject_others(self, table, commits):
            super()._reject_others(table, commits)
            if self.between:
                self.between.pop()()

    def opened(sink, stream):
        sink.open(stream, closing)
        return sink

    path = tmp_path / "out"
    rows = rows_with(spark, kind="'x'")
    with ExitStack() as closing:
        first, other = opened(Overtaken(path), "one"), opened(Delta(path), "two")
        commits = [sink.write(rows, Batch("", 0, 1, 1)) for sink in (first, other)]
        first.between = [lambda: commits[1]({"rows": 2})]
        with pytest.raises(UsageError, match="the batches of another stream, two; this one is one"):
            commits[0]({"rows": 2})
        assert [row["event"] for row in delta_rows(path)] == [0, 1]
        zombie = opened(Delta(path), "two")  # of the same checkpoint
        second = opened(Overtaken(path), "two")
        again = [sink.write(rows, Batch("", 1, 1, 1)) for sink in (second, zombie)]
        second.between = [lambda: again[1]({"rows": 2})]
        again[0]({"rows": 2})
        assert len(delta_rows(path)) == 4, "a batch went in twice"
        last = second.write(rows, Batch("", 2, 1, 1))
        second.between = [DeltaTable(path).optimize.compact] * 2  # is no stream
        last({"rows": 2})
        assert len(delta_rows(path)) == 6
        late = second.write(rows, Batch("", 3, 1, 1))
        rule = {"small": "event < 9"}
        second.between = [lambda: DeltaTable(path).alter.add_constraint(rule)]
        with pytest.raises(UsageError, match="the CHECK constraint small"):
            late({"rows": 2})


def test_a_sink_inside_of_another_one_is_rejected(spark, tmp_path):
    """Rejected rows would be read as answers, with nulls."""
    set_ = FixedSet(Boxes.of([[0.0]], [[9.0]], space=SPACE), SPACE)
    inside = Folder(tmp_path / "out" / "bad")
    runner = BatchRunner([MatchStep(set_, [Folder(tmp_path / "out")])], inside)
    events = spark.range(1).selectExpr("id", "1.0 as price")
    with pytest.raises(UsageError, match=r"out/bad: lies inside of .*out, whose readers would see"):
        runner.check(spark, events)


def test_a_table_that_two_steps_spell_differently_is_rejected(spark, tmp_path, monkeypatch):
    """The second step would find the batch of the first in the table, and write none of its own."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "link").symlink_to("out")
    set_ = FixedSet(Boxes.of([[0.0]], [[9.0]], space=SPACE), SPACE)
    events = spark.range(1).selectExpr("id", "1.0 as price")
    for name in (f"{tmp_path}/out/", "./out", "link", f"file://{tmp_path}/out"):
        steps = [MatchStep(set_, [Delta(path)], name=path) for path in ("out", name)]
        with pytest.raises(UsageError, match="out: is given twice"):
            BatchRunner(steps).check(spark, events)
    steps = [MatchStep(set_, [Delta(f"s3://b/out{end}")], name=f"to {end}") for end in ("", "/")]
    with pytest.raises(UsageError, match="s3://b/out: is given twice"):
        BatchRunner(steps).check(spark, events)


@pytest.mark.parametrize("sink", [Folder, JsonFolder])
def test_lists_that_events_have_are_no_matches(spark, tmp_path, sink):
    """A filter may keep a column that is called as the one of lists of subscriptions."""
    set_ = MergedSet(FixedSet(Boxes.of([[0.0]], [[9.0]], space=SPACE), SPACE))
    events = spark.range(2).selectExpr("id", "1.0 as price", "array(7L, 8L, 9L) as subscriptions")
    done = []
    step = FilterStep([set_], [sink(tmp_path / "out")], keep=["subscriptions"])
    runner = BatchRunner([step], report=done.append, ignore_unknown=True)
    with runner.closing:
        runner.check(spark, events)
        runner.answer(events, f"{BATCH_JOB} 1", 0)
    assert [outcome.steps for outcome in done] == [{"filter": 2}]
