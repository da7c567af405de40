"""Functions of columns, SQL functions, and the data source; they give what `match` gives."""

import numpy as np
import pyarrow as pa
import pyspark
import pytest
from pyspark.sql.functions import explode, lit

from rangecast import Arithmetic, Engine, Location, Number, Space, String, Text, Timestamp
from rangecast.errors import UsageError
from rangecast.model.boxes import Boxes
from rangecast.model.encoding.subscriptions import encode_subscriptions
from rangecast.spark import (
    match,
    match_ids,
    prepare_match,
    prepare_rank,
    register_match,
    register_rank,
)
from rangecast.spark.steps import functions
from rangecast.spark.stream.sources import event_schema
from rangecast.store import Versions
from tests.spark.test_match import combined, events_of, number_space
from tests.support import adversarial
from tests.support.everywhere import CHECKS

ONE = Space([Number("price")])
CHEAP = {"id": [7, 9], "filter": ["price < 10", "price is null"]}


@pytest.mark.parametrize("name", ["shards", "functions", "ranking in SQL", "track"])
def test_what_holds_on_every_session_holds_here(spark, name):
    CHECKS[name](spark)


def cheap():
    return encode_subscriptions(pa.table(CHEAP), ONE)


def test_columns_of_every_kind_give_the_rows_of_match(spark):
    boxes, points = combined(list(adversarial.cases().values()))
    space = number_space(boxes.dimensions)
    data = events_of(spark, points).repartition(3)
    prepared = prepare_match(spark, boxes, space)
    expected = match(data, prepared, space, output="arrays").collect()
    found = data.select("id", match_ids(prepared, space)()).collect()
    assert {row[0]: row[1] for row in found} == {row[0]: row[1] for row in expected}
    assert len(found) == len(expected) > 100


def test_attributes_without_a_column_of_their_own_are_no_columns_in_sql(spark):
    """Locations, arithmetic, and what conditions on texts need."""
    place = Location("place", longitude="lon", latitude="lat")
    space = Space([place, Text("title"), Number("x"), Arithmetic()])
    subscriptions = {
        "near": "within(place, circle(13.4, 52.5, 5 km))",
        "bikes": "title contains 'bike'",
        "sum": "x + lon > 20",
    }
    rows = [(0, 13.4, 52.5, "red", 1.0), (1, 0.0, 0.0, "a bike", None), (2, 19.0, 0.0, None, 2.0)]
    events = spark.createDataFrame(rows, "id int, lon double, lat double, title string, x double")
    events.createOrReplaceTempView("placed")
    frame = spark.createDataFrame(list(subscriptions.items()), "id string, filter string")
    register_match(spark, frame, space, name="placed")
    register_rank(spark, frame, space, k=1, name="placed")
    expected = {(0, "near"), (1, "bikes"), (2, "sum")}
    arrays = "select id, explode(placed_match(lon, lat, title, x)) from placed"
    tables = [f"select event, subscription from placed_{verb}_rows(table(placed))" for verb in
              ("match", "rank")]  # fmt: skip
    for query in (arrays, *tables):
        assert {tuple(row) for row in spark.sql(query).collect()} == expected


def test_a_filter_on_other_columns_reaches_the_files_below_the_match(spark, tmp_path):
    """As an array and as rows: Spark filters, and then matches what is left."""
    rows = [(place, float(place % 20), f"s{place % 3}") for place in range(60)]
    data = spark.createDataFrame(rows, "id int, price double, sector string")
    data.write.parquet(str(tmp_path / "events"))
    events = spark.read.parquet(str(tmp_path / "events"))
    ids = match_ids(prepare_match(spark, cheap(), ONE), ONE)
    arrays = events.select("id", "sector", ids("price").alias("found"))
    for found in (arrays, arrays.select("id", "sector", explode("found").alias("found"))):
        some = found.filter("sector = 's1'")
        plan = some._jdf.queryExecution().executedPlan().toString()
        assert "EqualTo(sector,s1)" in plan
        assert plan.index("ArrowEvalPython") < plan.index("Filter (isnotnull(sector")
        expected = [row for row in found.collect() if row["sector"] == "s1"]
        assert sorted(some.collect()) == sorted(expected)


def test_a_row_that_cannot_be_used_has_the_words_of_match(spark):
    prices = [(1, "5"), (2, "x"), (3, None), (4, "y")]
    events = spark.createDataFrame(prices, "id int, price string")
    prepared = prepare_match(spark, cheap(), ONE)
    of_match = match(events, prepared, ONE, output="arrays", rejected="column").collect()
    reasons = {row["event"]: row["error"] and row["error"]["reason"] for row in of_match}
    ids = match_ids(prepared, ONE, rejected="column")
    found = events.select("id", ids("price").alias("found")).select("id", "found.*").collect()
    assert {row["id"]: row["subscriptions"] for row in found} == {1: [7], 2: [], 3: [9], 4: []}
    assert {row["id"]: row["error"] and row["error"]["reason"] for row in found} == reasons
    assert reasons[2] is not None
    alone = events.filter("id = 2").select(ids("price").alias("found")).select("found.*").collect()
    assert [(row["subscriptions"], row["error"]["reason"]) for row in alone] == [([], reasons[2])]
    register_match(spark, prepared, ONE, name="cheap", rejected="column")
    events.createOrReplaceTempView("prices")
    rows = spark.sql("select * from cheap_match_rows(table(prices))").collect()
    assert {(row["event"], row["subscription"]) for row in rows} == {
        (1, 7),
        (2, None),
        (3, 9),
        (4, None),
    }
    assert {row["event"]: row["error"] and row["error"]["reason"] for row in rows} == reasons
    nothing = events.select(match_ids(prepared, ONE)(lit(None)).alias("found")).distinct()
    assert [row["found"] for row in nothing.collect()] == [[9]]
    with pytest.raises(Exception, match=r"(?s)event with \{'price': 'x'\}, column 'price'.*hint"):
        events.filter("id = 2").select(match_ids(prepared, ONE)("price")).collect()


def test_what_cannot_work_is_rejected_in_clear_words(spark, monkeypatch):
    prepared = prepare_match(spark, cheap(), ONE)
    ids = match_ids(prepared, ONE)
    with pytest.raises(UsageError, match=r"1 attributes: 'price'; given: 2 columns"):
        ids("a", "b")
    flags = spark.createDataFrame([(1, True)], "id bigint, price boolean")
    with pytest.raises(Exception, match=r"'price' of events has the type boolean.*a number"):
        flags.select(ids()).collect()
    register_match(spark, prepared, ONE, name="cheap")
    for query, words in {
        "select 1 as id": "events lack the columns 'price'",
        "select 'a' as id, 1 as price": "event_type='bigint'",
        "select 1 as id, true as price": "has the type boolean",
    }.items():
        with pytest.raises(Exception, match=words):
            spark.sql(f"select * from cheap_match_rows(table({query}))").collect()
    with pytest.raises(UsageError, match="no event_type 'int'"):
        register_match(spark, prepared, ONE, event_type="int")
    with pytest.raises(UsageError, match="no rejected 'null'"):
        match_ids(prepared, ONE, rejected="null")
    with pytest.raises(UsageError, match="use prepare"):
        match_ids(prepare_rank(spark, cheap(), ONE), ONE)
    monkeypatch.setattr(functions, "current_session", lambda: None)
    with pytest.raises(UsageError, match="no Spark session"):
        match_ids(cheap(), ONE)
    monkeypatch.delattr(pyspark.sql.functions, "arrow_udf")
    with pytest.raises(UsageError, match=r"require PySpark 4.1 or newer; this is 4"):
        match_ids(prepared, ONE)


def test_a_ranking_in_sql_rejects_what_rank_rejects_and_tells_of_rejected_rows(spark):
    for options, words in (
        ({"k": 0}, "k"),
        ({"event_type": "int"}, "no event_type 'int'"),
        ({"rejected": "null"}, "no rejected 'null'"),
    ):
        with pytest.raises(UsageError, match=words):
            register_rank(spark, cheap(), ONE, **options)
    with pytest.raises(UsageError, match="use prepare_rank"):
        register_rank(spark, prepare_match(spark, cheap(), ONE), ONE)
    strict = prepare_rank(spark, cheap(), ONE)
    with pytest.raises(UsageError, match="prepared for relaxed=False"):
        register_rank(spark, strict, ONE, relaxed=True)
    register_rank(spark, strict, ONE, name="best", rejected="column")
    query = "select best_rank(price) as b from values ('x'), ('5') as t(price)"
    bad, good = (row["b"] for row in spark.sql(query).collect())
    assert (bad["answers"], bad["error"]["reason"]) == ([], "'x' is not a number")
    assert ([one["subscription"] for one in good["answers"]], good["error"]) == ([7], None)
    rows = spark.sql("select * from best_rank_rows(table(select 1L as id, 'x' as price))").collect()
    assert [(row["event"], row["rank"], row["error"]["column"]) for row in rows] == [
        (1, None, "price")
    ]


def test_the_data_source_gives_what_every_step_takes(spark, tmp_path):
    space = Space([Number("price"), String("name")])
    engine = Engine(space)
    engine.subscribe("b", "price < 10 or name in ('a', 'it''s')", score=2.5, weights={"name": 3})
    engine.subscribe("a", "name is null and price >= 0.1")
    engine.subscribe("c", "true", score=-1)
    engine.save(tmp_path / "set")
    read = spark.read.format("rangecast").load(str(tmp_path / "set"))
    rows = read.orderBy("seq").collect()
    assert read.columns == ["id", "filter", "score", "seq", "weight_price", "weight_name"]
    assert [row["id"] for row in rows] == ["b", "a", "c"]
    assert [row["score"] for row in rows] == [2.5, 0.0, -1.0]
    assert [row["weight_name"] for row in rows] == [3.0, 1.0, 1.0]
    prices = [(1, 5.0, None), (2, 50.0, "it's"), (3, None, "z")]
    events = spark.createDataFrame(prices, "id int, price double, name string")
    found = match(events, read, Space.from_definition(space.definition()), output="arrays")
    assert {row[0]: row[1] for row in found.collect()} == {
        1: ["b", "a", "c"],
        2: ["b", "c"],
        3: ["c"],
    }


def test_the_data_source_reads_versions(spark, tmp_path):
    versions = Versions(tmp_path)
    versions.commit(cheap(), ONE)
    many = np.arange(20_000.0)[:, None]  # more than one partition
    versions.commit(Boxes.of(many, many + 1), ONE)

    def ids(**options):
        read = spark.read.format("rangecast").options(**options).load(str(tmp_path))
        return sorted(row["id"] for row in read.collect())

    assert ids() == list(range(20_000))
    assert ids(version=1) == [7, 9]
    for version, words in {"x": "expected a whole number", "5": "has no version 5"}.items():
        with pytest.raises(Exception, match=words):
            ids(version=version)
    with pytest.raises(Exception, match="is a single snapshot"):
        spark.read.format("rangecast").option("version", 1).load(str(versions.path(1))).collect()
    with pytest.raises(Exception, match="contains no version"):
        spark.read.format("rangecast").load(str(tmp_path / "none")).collect()
    with pytest.raises(Exception, match="give a folder"):
        spark.read.format("rangecast").load().collect()


def test_structs_and_epochs_are_taken_where_the_space_says(spark):
    space = Space(
        [
            Number("total", source="$.order.total"),
            Timestamp("at", epoch="s", source="$.order.sent.at"),
            String("country"),
        ]
    )
    rows = [
        {"id": "large", "filter": "total > 100 and at >= 1700000000"},
        {"id": "local", "filter": "country = 'DE'"},
        {"id": "none", "filter": "at is null"},
    ]
    data = [
        (1, (250.0, (1_700_000_000,)), "DE"),
        (2, (250.0, (1_699_999_999,)), None),
        (3, None, "FR"),
        (4, (101.0, None), "DE"),
    ]
    kind = "id int, order struct<total: double, sent: struct<at: bigint>>, country string"
    events = spark.createDataFrame(data, kind)
    engine = Engine(space)
    engine.subscribe_many(rows)
    dicts = [row.asDict(recursive=True) for row in events.collect()]
    expected = {one["id"]: engine.match(one) for one in dicts}
    assert expected == {1: ["large", "local"], 2: [], 3: ["none"], 4: ["local", "none"]}
    prepared = prepare_match(spark, encode_subscriptions(rows, space), space)
    found = match(events, prepared, space, output="arrays").collect()
    assert {row[0]: row[1] for row in found} == expected
    ids = match_ids(prepared, space)
    by_default = events.select("id", ids().alias("found")).collect()
    given = events.select("id", ids("order.total", "order.sent.at", "country").alias("found"))
    for some in (by_default, given.collect()):
        assert {row[0]: row[1] for row in some} == expected
    register_match(spark, prepared, space, name="nested")
    events.createOrReplaceTempView("nested_events")
    pairs = spark.sql("select * from nested_match_rows(table(nested_events))").collect()
    assert {(row["event"], row["subscription"]) for row in pairs} == {
        (event, one) for event, some in expected.items() for one in some
    }
    flat = events.selectExpr("id", "order.total as order", "country")
    with pytest.raises(UsageError, match=r"column 'order' of events has the type double"):
        match(flat, prepared, space)
    schema = event_schema(space, [], integer_ids=True)
    wanted = "id bigint, order struct<total: string, sent: struct<at: string>>, country string"
    assert schema == spark.createDataFrame([], wanted).schema
