"""The step `match` on Spark: the same as the oracle, whole and in shards, in every form."""

import tomllib

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rangecast.engine import Engine
from rangecast.errors import RangecastError, UsageError
from rangecast.match.scan import Scan
from rangecast.model.attributes.base import Integer, Number
from rangecast.model.attributes.text import String
from rangecast.model.boxes import Boxes
from rangecast.model.encoding.subscriptions import encode_subscriptions
from rangecast.model.io.rejected import RejectedRows
from rangecast.model.snapshot import save_boxes
from rangecast.model.space import Space
from rangecast.spark import match, prepare_match
from rangecast.spark.subscriptions.kept import keep_rows
from rangecast.store.versions import Versions, load_set
from tests.support import adversarial, strategies
from tests.support.conformance import as_sets

in_shards = pytest.mark.parametrize("max_worker_memory", [1 << 30, 400], ids=["whole", "shards"])
"""A set as one structure, and in many shards that hold a few boxes each."""


def combined(cases):
    """Many cases as one: an attribute more says which case a box or an event is of."""
    d = max(boxes.dimensions for boxes, _ in cases)
    lo, hi, owner, points = [], [], [], []
    rows = 0
    for number, (boxes, events) in enumerate(cases):
        wide = np.full((2, len(boxes.lo), d + 1), [[[-np.inf]], [[np.inf]]])
        wide[0, :, : boxes.dimensions], wide[1, :, : boxes.dimensions] = boxes.lo, boxes.hi
        wide[:, :, d] = number
        lo.append(wide[0])
        hi.append(wide[1])
        owner.append(boxes.owner + rows)
        rows += boxes.rows
        more = np.full((len(events), d + 1), np.inf)
        more[:, : boxes.dimensions] = events
        more[:, d] = number
        points.append(more)
    ids = [f"µ-{row}" for row in range(rows)]
    boxes = Boxes.of(
        np.concatenate(lo), np.concatenate(hi), owner=np.concatenate(owner), ids=ids or None
    )
    return boxes, np.concatenate(points)


def number_space(d):
    return Space([Number(f"a{axis}") for axis in range(d)])


def events_of(spark, points):
    columns = {"id": pa.array(np.arange(len(points), dtype=np.int16))}
    for axis in range(points.shape[1]):
        columns[f"a{axis}"] = pa.array(points[:, axis], mask=np.isinf(points[:, axis]))
    return spark.createDataFrame(pa.table(columns))


def sets_of(arrays):
    answer = {}
    for row in arrays.collect():
        assert row["event"] not in answer, "an event was answered twice"
        assert len(set(row["subscriptions"])) == len(row["subscriptions"])
        answer[row["event"]] = set(row["subscriptions"])
    return answer


def check(spark, boxes, points, **options):
    ids = boxes.ids.to_pylist()
    expected = [{ids[row] for row in rows} for rows in as_sets(Scan(boxes).match(points))]
    space, events = number_space(boxes.dimensions), events_of(spark, points)
    prepared = prepare_match(spark, boxes, space, **options)
    arrays = match(events, prepared, space, output="arrays")
    assert sets_of(arrays) == dict(enumerate(expected))
    pairs = match(events, prepared, space).collect()
    wanted = {(event, one) for event, found in enumerate(expected) for one in found}
    assert len(pairs) == len(wanted)
    assert {(row["event"], row["subscription"]) for row in pairs} == wanted
    prepared.release()


@in_shards
def test_adversarial_cases(spark, max_worker_memory):
    check(
        spark,
        *combined(list(adversarial.cases().values())),
        max_worker_memory=max(max_worker_memory, 200_000),
    )


@in_shards
def test_random_cases(spark, max_worker_memory):
    @settings(max_examples=2)
    @given(st.lists(strategies.boxes_and_points(), min_size=20, max_size=20))
    def look(cases):
        check(spark, *combined(cases), max_worker_memory=max(max_worker_memory, 20_000))

    look()


@in_shards
def test_nothing_in_nothing_out(spark, max_worker_memory):
    none = Boxes.of(np.zeros((0, 2)), np.zeros((0, 2)))
    some = Boxes.of(np.zeros((3, 2)), np.ones((3, 2)))
    points = np.array([[0.5, 0.5], [2.0, np.inf]])
    check(spark, none, points, max_worker_memory=max_worker_memory)
    check(spark, some, points[:0], max_worker_memory=max_worker_memory)
    check(spark, some, points, max_worker_memory=max_worker_memory)


@pytest.mark.parametrize(("max_worker_memory", "n"), [(1 << 30, (1 << 20) + 5), (1 << 20, 50_000)])
def test_an_event_that_matches_everything_and_one_value_for_all(spark, max_worker_memory, n):
    """More matches of one event than a piece holds; every event the same: a hot partition."""
    boxes = Boxes.of(np.full((n, 1), -np.inf), np.full((n, 1), np.inf))
    events = events_of(spark, np.zeros((2, 1)))
    arrays = match(
        events, boxes, number_space(1), output="arrays", max_worker_memory=max_worker_memory
    )
    found = arrays.selectExpr(
        "size(subscriptions) n", "subscriptions[0] a", f"subscriptions[{n - 1}] b"
    )
    assert [tuple(row) for row in found.collect()] == [(n, 0, n - 1)] * 2
    pairs = match(events, boxes, number_space(1), max_worker_memory=max_worker_memory)
    pairs.createOrReplaceTempView("pairs")
    counted = spark.sql("select sum(subscription), count(*) from pairs group by event").collect()
    assert [tuple(row) for row in counted] == [(n * (n - 1) // 2, n)] * 2


SPACE = """
[[attribute]]
name = "symbol"
type = "string"

[[attribute]]
name = "price"
type = "number"
min = 0

[[attribute]]
name = "lots"
type = "integer"
"""
SUBSCRIPTIONS = {
    "id": ["b", "a", "c", "d"],
    "filter": [
        "symbol = 'AAA' and price < 10",
        "symbol != 'AAA'",
        "price > 5 or lots in (1, 2)",
        "symbol in ('ÄÖ', 'BBB') and lots is null",
    ],
}
EVENTS = {
    "id": [10, 11, 12, 13],
    "symbol": ["AAA", "BBB", "ÄÖ", None],
    "price": [4.0, 6.0, None, 9.0],
    "lots": [1, None, None, 2],
}
DESKS = EVENTS | {"desk": ["x", "y", "z", None]}


@pytest.fixture
def tables(spark):
    events = spark.createDataFrame(pa.table(EVENTS))
    return events, spark.createDataFrame(pa.table(SUBSCRIPTIONS)), Space.from_toml(SPACE)


def local(subscriptions=SUBSCRIPTIONS):
    engine = Engine(Space.from_toml(SPACE))
    engine.subscribe_many(pa.table(subscriptions).sort_by("id"))
    answers = engine.match_many(pa.table(EVENTS))
    return {one: set(answers[place]) for place, one in enumerate(EVENTS["id"])}


@in_shards
def test_filters_in_a_dataframe_mean_what_they_mean_in_the_engine(spark, tables, max_worker_memory):
    _, subscriptions, space = tables
    arrays = match(
        spark.createDataFrame(pa.table(DESKS)),
        subscriptions,
        space,
        output="arrays",
        max_worker_memory=max_worker_memory,
        keep=["desk"],
    )
    assert sets_of(arrays) == local()
    assert {row["event"]: row["desk"] for row in arrays.collect()} == dict(
        zip(DESKS["id"], DESKS["desk"], strict=True)
    )
    assert space.vocabularies == {"symbol": []}, "the caller's space was changed"


def test_the_boxes_of_filters_are_those_of_words_in_order(spark):
    """Though words are numbered after their filters were parsed."""
    filters = [
        "symbol in ('x', 'b', 'a')",
        "symbol != 'b' or price < 3",
        "symbol not in ('x', 'c')",
        "symbol = 'a' or symbol = 'b'",
        "symbol = 'ü' and lots > 3",
        "symbol is null",
    ]
    table = pa.table({"id": range(len(filters)), "filter": filters})
    words = sorted(["a", "b", "c", "x", "ü"])
    ranges = pa.table({"id": [7, 8], "symbol_lo": ["x", "b"], "symbol_hi": ["x", "b"]})
    for rows, known in ((table, words), (ranges, ["b", "x"])):
        frame = spark.createDataFrame(rows).repartition(3)
        with keep_rows(frame, Space.from_toml(SPACE)) as kept:
            assert kept.space.vocabularies == {"symbol": known}
            found = kept.gather()
        space = Space.from_definition(tomllib.loads(SPACE), {"symbol": known})
        expected = encode_subscriptions(rows, space)
        assert found.ids.equals(expected.ids)
        for name in ("lo", "hi", "owner"):
            assert np.array_equal(getattr(found, name), getattr(expected, name))


def test_shards_go_by_boxes_and_the_attributes_that_they_mention(spark):
    """Not by rows and all attributes: one filter may be many boxes, and most mention a few."""
    space = number_space(20)
    few = pa.table({"id": range(100), "filter": ["a0 < 5 and a1 > 3"] * 100})
    many = pa.table({"id": [1], "filter": [f"a0 in ({', '.join(map(str, range(200)))})"]})
    wide = pa.table({"id": range(100), "filter": ["a0 < 5"] * 100})
    for table, max_worker_memory, shards in (
        (few, 70_000, 1),
        (many, 130_000, 1),
        (wide, 40_000, 5),
    ):
        for subscriptions in (encode_subscriptions(table, space), spark.createDataFrame(table)):
            prepared = prepare_match(
                spark, subscriptions, space, max_worker_memory=max_worker_memory
            )
            assert len(prepared.shards) == shards, table
            assert prepared.rows == len(table)


def test_most_events_miss_most_shards(spark):
    """Each box is in one shard; hulls are short on the attribute that boxes are narrowest on."""
    random = np.random.default_rng(8)
    d, n = 6, 6000
    lo, hi = np.full((n, d), -np.inf), np.full((n, d), np.inf)
    for row in range(n):
        axes = random.choice(d, 2, replace=False)
        lo[row, axes] = random.random(2)
        hi[row, axes] = lo[row, axes] + [0.01, 0.4]
    prepared = prepare_match(spark, Boxes.of(lo, hi), number_space(d), max_worker_memory=110_000)
    points = random.random((500, d))
    assert 20 < len(prepared.shards) < 60
    assert prepared.rows == n
    sizes = [shard.rows for shard in prepared.shards]
    assert max(sizes) < 4 * np.mean(sizes)
    met = sum(len(shard.events_in_hull(points)) for shard in prepared.shards)
    assert met < 0.4 * len(points) * len(prepared.shards)
    told = prepared.explain(events_of(spark, points), sample=500)
    assert told.startswith(f"subscriptions: {n:,}\nstructure: slabs (")
    assert f"\nshards: {len(prepared.shards)}, " in told
    assert f"\nan event touches: {met / 500:.1f} shards (" in told
    assert told.endswith(" at most, of 500 sample events")
    assert told.startswith(prepared.explain())


@in_shards
def test_order_of_arrival(spark, tables, max_worker_memory):
    """By `seq` if there is one, else by id."""
    events, _, space = tables
    always = {"id": ["b", "a", "c"], "filter": ["true", "true", "true"]}
    for seq, expected in ((None, ["a", "b", "c"]), ([1, 7, 3], ["b", "c", "a"])):
        table = pa.table(always | ({} if seq is None else {"seq": seq}))
        found = match(
            events,
            spark.createDataFrame(table),
            space,
            output="arrays",
            max_worker_memory=max_worker_memory,
        ).collect()
        assert [row["subscriptions"] for row in found] == [expected] * 4


def test_prepared_once_used_twice_and_from_a_snapshot(spark, tables, tmp_path):
    events, subscriptions, space = tables
    prepared = prepare_match(spark, subscriptions, space)
    assert (prepared.rows, prepared.choice.name) == (4, "slabs")
    for _ in range(2):
        assert sets_of(match(events, prepared, space, output="arrays")) == local()
    engine = Engine(Space.from_toml(SPACE))
    engine.subscribe_many(pa.table(SUBSCRIPTIONS))
    engine.save(tmp_path / "set")
    assert sets_of(match(events, tmp_path / "set", space, output="arrays")) == local()
    versions = Versions(tmp_path / "versions")
    empty = encode_subscriptions({"id": [], "filter": []}, space)
    versions.commit(empty, space)
    versions.commit(*load_set(tmp_path / "set"))
    assert sets_of(match(events, tmp_path / "versions", space, output="arrays")) == local()
    other = Space([Number("price")])
    save_boxes(tmp_path / "other", Boxes.of([[0.0]], [[1.0]]), other)
    with pytest.raises(UsageError, match="is a snapshot of"):
        prepare_match(spark, tmp_path / "other", space)
    with pytest.raises(UsageError, match="were prepared for"):
        match(events.select("id", "price"), prepared, other)
    with pytest.raises(UsageError, match="don't fit a space of 3"):
        match(events, Boxes.of([[0.0]], [[1.0]]), space)


@in_shards
def test_bad_events_are_told_apart_and_nothing_is_lost(spark, tables, max_worker_memory):
    _, subscriptions, space = tables
    how = {"max_worker_memory": max_worker_memory, "ignore_unknown": True}
    wrong = DESKS | {"price": [4.0, -1.0, float("nan"), 9.0]}
    events = spark.createDataFrame(pa.table(wrong))
    found = match(
        events,
        subscriptions,
        space,
        output="arrays",
        rejected="column",
        keep=["desk"],
        **how,
    )
    rows = {row["event"]: row for row in found.collect()}
    assert len(rows) == 4
    assert rows[10]["error"] is None
    assert rows[10]["subscriptions"]
    assert rows[11]["subscriptions"] == []
    assert (rows[11]["error"]["column"], rows[11]["error"]["value"]) == ("price", "-1.0")
    assert "outside its domain, 0 to any" in rows[11]["error"]["reason"]
    assert '"symbol": "BBB"' in rows[11]["error"]["row"]
    assert rows[11]["desk"] == "y"
    assert rows[12]["error"]["column"] == "price"
    pairs = match(events, subscriptions, space, rejected="column", **how).collect()
    assert {row["event"] for row in pairs if row["error"]} == {11, 12}
    assert all(row["subscription"] is None for row in pairs if row["error"])
    with pytest.raises(Exception, match=r"event 1[12], column 'price'"):
        match(events, subscriptions, space, **how).collect()
    nameless = spark.createDataFrame(pa.table(EVENTS | {"id": [1, None, 3, 4]}))
    found = match(nameless, subscriptions, space, output="arrays", rejected="column", **how)
    bad = [row["error"] for row in found.collect() if row["event"] is None]
    assert [(error["column"], '"symbol": "BBB"' in error["row"]) for error in bad] == [("id", True)]


@in_shards
def test_bad_subscriptions_are_rejected_before_any_event(spark, tables, max_worker_memory):
    events, _, space = tables
    cases = {
        "subscription 'b', column 'filter'": {"id": ["a", "b"], "filter": ["price < 1", "price <"]},
        "duplicate id": {"id": ["a", "a"], "filter": ["true", "true"]},
        "column 'id'": {"id": ["a", None], "filter": ["true", "true"]},
    }
    for told, table in cases.items():
        with pytest.raises(RangecastError, match=told):
            match(
                events,
                spark.createDataFrame(pa.table(table)),
                space,
                max_worker_memory=max_worker_memory,
            )


@in_shards
def test_duplicates_go_to_the_rejected_rows_however_large_the_set(
    spark, tmp_path, max_worker_memory
):
    space = Space([Number("price")])
    rows = {"id": ["a", "b", "a", "c", "a"], "filter": ["price < 5", "price < 6"] * 2 + ["true"]}
    given = spark.createDataFrame(pa.table(rows | {"seq": [1, 2, 3, 4, 5]}))
    with RejectedRows(tmp_path / "bad.csv") as bad:
        prepared = prepare_match(
            spark, given, space, rejected=bad, max_worker_memory=max_worker_memory
        )
    assert (prepared.rows, bad.count) == (3, 2)
    assert (tmp_path / "bad.csv").read_text().count("duplicate id") == 2
    events = spark.createDataFrame(pa.table({"id": [1], "price": [5.5]}))
    found = match(events, prepared, space).collect()
    assert sorted(row["subscription"] for row in found) == ["b", "c"]


def test_columns_are_checked_by_name_and_type(spark, tables):
    events, subscriptions, space = tables
    cases = [
        (events.drop("price"), {}, r"events lack the columns 'price'\n  present: 'id', 'symbol'"),
        (events.drop("id"), {}, "events lack the columns 'id'"),
        (events.withColumn("price", events["price"] > 1), {}, "'price'.*boolean.*a number"),
        (events.withColumn("id", events["price"]), {}, "'id'.*double.*an id must be"),
        (events, {"keep": ["dsk"]}, "events lack the columns 'dsk'"),
        (events.withColumn("event", events["id"]), {"keep": ["event"]}, "'event' can't be kept"),
        (events.withColumn("a.b", events["id"]), {"keep": ["a.b"]}, "has a dot in its name"),
        (events, {"output": "row"}, "did you mean 'rows'"),
        (events, {"rejected": "drop"}, "no rejected 'drop'"),
        (
            events,
            {"max_worker_memory": 0},
            "max_worker_memory must be a number of bytes, 1 or more",
        ),
        (events, {"index": "slab"}, "did you mean 'slabs'"),
    ]
    for data, options, told in cases:
        with pytest.raises(UsageError, match=told):
            match(data, subscriptions, space, **options)
    with pytest.raises(RangecastError, match="unknown column 'scor'"):
        match(events, subscriptions.withColumn("scor", subscriptions["id"]), space)
    found = match(events.drop("price"), subscriptions, space, allow_missing=True, output="arrays")
    assert {row["event"]: row["subscriptions"] for row in found.collect()}[12] == ["a", "d"]


def test_texts_are_parsed_and_an_id_column_may_have_another_name(spark, tables):
    events, subscriptions, space = tables
    short = events.withColumn("id", events["id"].cast("smallint"))
    kept = match(short, subscriptions, space, output="arrays", keep=["id"]).collect()
    assert all(row["event"] == row["id"] for row in kept)
    texts = events.selectExpr(
        "id as key", "symbol", "cast(price as string)", "cast(lots as string)"
    )
    assert sets_of(match(texts, subscriptions, space, output="arrays", event_id="key")) == local()


@in_shards
def test_a_streaming_dataframe(spark, tables, tmp_path, max_worker_memory):
    events, subscriptions, space = tables
    events.write.parquet(str(tmp_path / "in"))
    stream = spark.readStream.schema(events.schema).parquet(str(tmp_path / "in"))
    found = match(
        stream, subscriptions, space, output="arrays", max_worker_memory=max_worker_memory
    )
    query = (
        found.writeStream.format("parquet")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(tmp_path / "out"))
    )
    query.awaitTermination()
    assert sets_of(spark.read.parquet(str(tmp_path / "out"))) == local()


def test_skew_and_many_shards_give_the_same_answer(spark):
    random = np.random.default_rng(3)
    d, n, m = 3, 1000, 1500
    centre = random.random((n, d))
    width = random.random((n, d)) * 0.1
    lo, hi = centre - width, centre + width
    free = random.random((n, d)) < 0.3
    lo[free], hi[free] = -np.inf, np.inf
    points = random.random((m, d))
    points[: m // 2] = points[0]
    points[random.random((m, d)) < 0.05] = np.inf
    check(spark, Boxes.of(lo, hi), points, max_worker_memory=200_000)


def test_integer_kinds_fit(spark):
    space = Space([Integer("n"), String("s")])
    events = spark.createDataFrame(
        pa.table({"id": ["x"], "n": pa.array([3], pa.int16()), "s": ["t"]})
    )
    subscriptions = spark.createDataFrame(pa.table({"id": [7], "n_lo": [1], "n_hi": [3]}))
    assert [tuple(row) for row in match(events, subscriptions, space).collect()] == [("x", 7)]
