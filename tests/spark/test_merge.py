"""The step `merge` on Spark: the ranges of the library, to the last one."""

import numpy as np
import pyarrow as pa
import pytest

from rangecast.cover import CoverSet
from rangecast.errors import UsageError
from rangecast.merge import Cells, Summary
from rangecast.model.attributes.base import Integer, Number
from rangecast.model.attributes.text import String
from rangecast.model.commands import as_commands
from rangecast.model.encoding.subscriptions import encode_subscriptions
from rangecast.model.space import Space
from rangecast.spark import cover_commands, filter_events, merge, merge_commands
from rangecast.workloads import generate


def ranges_of(data):
    table = data.toArrow()
    return list(zip(table["start"].to_pylist(), table["end"].to_pylist(), strict=True))


def expected(table):
    return list(zip(*(column.tolist() for column in table.ranges()), strict=True))


@pytest.mark.parametrize("gap", [0, 30])
def test_many_partitions_give_the_ranges_of_the_table(spark, gap):
    made = generate("equal-boxes", subscriptions=3000, events=2000, attributes=4, size=9, seed=2)
    frame = spark.createDataFrame(made.tables["subscriptions"]).repartition(7)
    names = made.space.names[1:]
    table = Summary.of(
        made.boxes, made.space, bits=6, attributes=names, gap=gap, max_ranges_per_subscription=20
    )
    found = merge(frame, made.space, 6, attributes=names, gap=gap, max_ranges_per_subscription=20)
    assert ranges_of(found) == expected(table)
    cells = Cells.quantiles(made.space, 5, made.points, names[:2])
    table = Summary.of(made.boxes, made.space, cells=cells, gap=gap)
    assert ranges_of(merge(frame, made.space, cells=cells, gap=gap)) == expected(table)


def test_ranges_that_run_through_all_runs_and_filters_of_several_boxes(spark):
    space = Space([Integer("x", min=0, max=1023), Number("y", min=0, max=1), String("word")])
    texts = ["x < 600", "x between 590 and 800 or x = 1000", "x > 700 and y < 0.5", "word = 'a'"]
    for some in (texts[:3], texts):
        rows = pa.table({"id": [f"s{i}" for i in range(len(some))], "filter": some})
        boxes = encode_subscriptions(rows, space)
        for names in (["x"], ["y", "x"]):
            table = Summary.of(boxes, space, bits=10, attributes=names)
            found = merge(spark.createDataFrame(rows), space, 10, attributes=names)
            assert ranges_of(found) == expected(table)


def test_nothing_in_nothing_out_and_what_makes_no_sense_is_rejected(spark):
    space = Space([Number(name, min=0, max=1) for name in "abcd"])
    columns = {"id": pa.array([1], pa.int64()), "filter": pa.array(["a > 0.5"])}
    frame = spark.createDataFrame(pa.table(columns))
    assert ranges_of(merge(frame.filter("id < 0"), space, 8)) == []
    with pytest.raises(UsageError, match="63 bits"):
        merge(frame, space, 16)
    with pytest.raises(UsageError, match="attributes or cells"):
        merge(frame, space, attributes=["a"], cells=Cells.uniform(space, 8))
    wrong = spark.createDataFrame(pa.table({"id": [1, 2], "filter": ["a >", "true"]}))
    with pytest.raises(Exception, match="subscription 1") as error:
        merge(wrong, space, 8).collect()
    assert "a >" in str(error.value)
    rate = spark.readStream.format("rate").load().selectExpr("value as id", "'a > 1' as filter")
    with pytest.raises(UsageError, match="batch"):
        merge(rate, space)


def test_a_whole_space_is_one_range(spark):
    space = Space([Number("a", min=0, max=1), Number("b", min=0, max=1)])
    frame = spark.createDataFrame(pa.table({"id": np.arange(5), "filter": ["true"] * 5}))
    assert ranges_of(merge(frame, space, 5)) == [(0, 1023)]


def test_commands_send_what_the_sets_of_the_library_send(spark):
    made = generate("covering", commands=300, attributes=3, unsubscribe_share=0.3)
    table, names = made.tables["commands"], made.space.names[:2]
    todo = as_commands(table, made.space)
    sent = todo.messages(CoverSet(made.space, index="scan").update_many(todo))
    ranges = Summary(made.space, bits=5, attributes=names).update_many(table).table()
    alone = spark.createDataFrame(table).repartition(5)
    two = alone.selectExpr("*", "'east' as broker").union(alone.selectExpr("*", "'west' as broker"))
    for expected, found in [
        (sent, lambda data, **by: cover_commands(data, made.space, k=2, **by)),
        (ranges, lambda data, **by: merge_commands(data, made.space, 5, attributes=names, **by)),
    ]:
        rows = [tuple(row.values()) for row in expected.to_pylist()]
        assert [tuple(row) for row in found(alone).collect()] == rows
        both = [tuple(row) for row in found(two, by="broker").collect()]
        for name in ("east", "west"):
            assert [row[1:] for row in both if row[0] == name] == rows
    with pytest.raises(UsageError, match="lack the columns 'seq'"):
        cover_commands(alone.drop("seq"), made.space)


def test_a_summary_of_spark_s_ranges_is_saved_and_filters_elsewhere(spark, tmp_path):
    made = generate("equal-boxes", subscriptions=60, events=200, attributes=3, size=20, seed=4)
    options = {"bits": 4, "attributes": made.space.names[:2]}
    found = merge(spark.createDataFrame(made.tables["subscriptions"]), made.space, **options)
    Summary.of_ranges(found.toArrow(), made.space, **options).save(tmp_path / "summary")
    events = made.tables["events"]
    held = Summary.of(made.boxes, made.space, **options).may_match_many(events)
    passed = filter_events(spark.createDataFrame(events), tmp_path / "summary", made.space)
    assert passed.columns == events.column_names
    expected = events.filter(pa.array(held))["id"].to_pylist()
    assert sorted(row["id"] for row in passed.collect()) == expected
    assert 0 < len(expected) < len(events)
