"""Columns of events that are no attributes: rejected by default, as in Python and in the shell."""

import pytest

from rangecast import Number, Space
from rangecast.errors import RangecastError, UsageError
from rangecast.merge import Summary
from rangecast.spark import filter_events, match, rank, register_match, register_rank
from rangecast.spark.stream.pipeline.pipeline import Pipeline

SPACE = Space([Number("price")])
MESSAGE = "unknown column 'note'"


@pytest.fixture
def events(spark):
    return spark.createDataFrame([(1, 5.0, "x")], "id long, price double, note string")


def _match(spark, events, **options):
    subscriptions = spark.createDataFrame([("cheap", "price < 10")], "id string, filter string")
    return match(events, subscriptions, SPACE, **options)


def _rank(spark, events, **options):
    subscriptions = spark.createDataFrame([("cheap", "price < 10")], "id string, filter string")
    return rank(events, subscriptions, SPACE, **options)


def _filter(_, events, **options):
    summary = Summary(SPACE, attributes=["price"])
    summary.subscribe("cheap", "price < 10")
    return filter_events(events, summary, SPACE, **options)


STEPS = {"match": _match, "rank": _rank, "filter": _filter}


@pytest.mark.parametrize("step", STEPS)
def test_steps_reject_unknown_columns_unless_they_are_ignored(spark, events, step):
    answer = STEPS[step]
    with pytest.raises(UsageError, match=MESSAGE) as caught:
        answer(spark, events)
    assert str(caught.value).endswith("leave it out; ignore_unknown=True ignores it")
    (row,) = answer(spark, events, ignore_unknown=True).collect()
    if step != "filter":  # it keeps all columns of the events that it takes
        assert "note" not in row
        (row,) = answer(spark, events, keep=["note"]).collect()
    assert row["note"] == "x"
    with pytest.raises(RangecastError, match="ignore_unknown"):
        answer(spark, events, ignore_unknown="yes")


def test_a_typo_is_named_first(spark):
    events = spark.createDataFrame([(1, 5.0, 6.0)], "id long, price double, Prise double")
    with pytest.raises(UsageError) as caught:
        _match(spark, events)
    meant = "rename it to 'price'; if it isn't a typo, ignore_unknown=True ignores it"
    assert str(caught.value).endswith(f"\n  hint: {meant}")
    events = spark.createDataFrame([(1, 5.0, 6.0)], "id long, price double, price_lo double")
    with pytest.raises(UsageError, match="rank takes such columns with span="):
        _match(spark, events)


@pytest.mark.parametrize(("register", "rows"), [(register_match, "match"), (register_rank, "rank")])
def test_table_functions_reject_them_too(spark, events, register, rows):
    subscriptions = spark.createDataFrame([("cheap", "price < 10")], "id string, filter string")
    events.createOrReplaceTempView("notes")
    query = f"select subscription from %s_{rows}_rows(table(select * from notes))"
    register(spark, subscriptions, SPACE, name="strict")
    with pytest.raises(UsageError, match=MESSAGE):
        spark.sql(query % "strict").collect()
    register(spark, subscriptions, SPACE, name="lenient", ignore_unknown=True)
    assert [row[0] for row in spark.sql(query % "lenient").collect()] == ["cheap"]


PIPELINE = """
mode = "batch"
space = "space.toml"
[[source]]
type = "files"
format = "csv"
path = "events.csv"
%s
[[subscriptions]]
file = "subs.csv"
[[step]]
type = "match"
%s
[[step]]
type = "rank"
[[sink]]
type = "parquet"
input = "match"
path = "OUT/matches"
[[sink]]
type = "parquet"
input = "rank"
path = "OUT/best"
"""


def test_pipelines_reject_what_no_step_keeps(spark, tmp_path):
    (tmp_path / "space.toml").write_text('[[attribute]]\nname = "price"\ntype = "number"\n')
    (tmp_path / "subs.csv").write_text("id,filter\ncheap,price < 10\n")
    (tmp_path / "events.csv").write_text("id,price,note\na,5,x\n")

    def run(name, source="", step=""):
        (tmp_path / "p.toml").write_text((PIPELINE % (source, step)).replace("OUT", name))
        reports = []
        Pipeline.load(tmp_path / "p.toml").run(spark, reports.append)
        return reports[0].matches

    with pytest.raises(UsageError, match=MESSAGE) as caught:
        run("none")
    assert str(caught.value).endswith("leave it out; ignore_unknown = true ignores it")
    assert run("ignored", source="ignore_unknown = true") == 1
    assert run("kept", step='keep = ["note"]') == 1  # by one of the two steps
