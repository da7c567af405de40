"""The step `rank` on Spark: the same as the oracle, in batches and in a stream."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rangecast.engine import Engine
from rangecast.errors import UsageError
from rangecast.model.attributes.base import Number
from rangecast.model.attributes.text import String
from rangecast.model.attributes.timestamps import Timestamp
from rangecast.model.boxes import Boxes
from rangecast.model.space import Space
from rangecast.rank.scan import Scan
from rangecast.spark import match, prepare_match, prepare_rank, rank
from tests.spark.test_match import combined, events_of, in_shards, number_space
from tests.support import adversarial


def scored(boxes):
    rng = np.random.default_rng(1)
    return Boxes.of(
        boxes.lo,
        boxes.hi,
        owner=boxes.owner,
        ids=boxes.ids,
        scores=rng.integers(0, 4, boxes.rows).astype(float),
        weights=rng.integers(0, 4, (boxes.rows, boxes.dimensions)) / 3,
    )


def answers(found):
    ranked = {}
    for row in sorted(found.collect(), key=lambda row: (row["event"], row["rank"])):
        some = ranked.setdefault(row["event"], [])
        assert row["rank"] == len(some) + 1
        some.append((row["subscription"], row["score"]))
    return ranked


def expected(oracle, points, k, relaxed):
    ids = oracle.boxes.ids.to_pylist()
    told = {}
    for event, one in enumerate(oracle.rank(points, k, relaxed=relaxed)):
        rows, scores = one.rows.tolist(), one.scores.tolist()
        if rows:
            told[event] = [(ids[row], score) for row, score in zip(rows, scores, strict=True)]
    return told


@pytest.mark.parametrize("relaxed", [False, True], ids=["exact", "relaxed"])
def test_the_oracle_s_answers(spark, relaxed):
    boxes, points = combined(list(adversarial.cases().values()))
    boxes, points = scored(boxes), points[::7]
    space, events = number_space(boxes.dimensions), events_of(spark, points)
    prepared = prepare_rank(spark, boxes, space, relaxed=relaxed)
    for k in (1, 6):
        found = rank(events, prepared, space, k, relaxed=relaxed)
        right = expected(Scan(boxes), points, k, relaxed)
        assert answers(found) == right
    lists = rank(events, prepared, space, 6, relaxed=relaxed, output="arrays").collect()
    told = {one["event"]: [*zip(one["subscriptions"], one["score"], strict=True)] for one in lists}
    assert told == {event: right.get(event, []) for event in range(len(points))}
    assert all(row["rank"] == list(range(1, len(row["score"]) + 1)) for row in lists)


@pytest.mark.parametrize("relaxed", [False, True], ids=["exact", "relaxed"])
def test_shards_give_the_same(spark, relaxed):
    boxes, points = combined(list(adversarial.cases().values()))
    boxes, points = scored(boxes), points[::11]
    space, events = number_space(boxes.dimensions), events_of(spark, points)
    how = {"relaxed": relaxed, "max_worker_memory": 200_000}
    right = expected(Scan(boxes), points, 4, relaxed)
    assert answers(rank(events, boxes, space, 4, **how)) == right


@in_shards
def test_weights_are_combined(spark, max_worker_memory):
    boxes, points = combined(list(adversarial.cases().values()))
    boxes, points = scored(boxes), points[::31]
    space, events = number_space(boxes.dimensions), events_of(spark, points)
    size = max(max_worker_memory, 400_000)
    for combine in ("min", "product"):
        oracle = Scan(boxes, relaxed=True, combine=combine)
        how = {"relaxed": True, "combine": combine, "max_worker_memory": size}
        assert answers(rank(events, boxes, space, 4, **how)) == expected(oracle, points, 4, True)


SUBSCRIPTIONS = {
    "id": ["b", "a", "c", "d"],
    "filter": ["symbol = 'AAA' and price < 10", "symbol != 'AAA'", "price > 5", "price > 8"],
    "score": [1.0, 2.0, 2.0, 3.0],
    "weight_price": [0.5, 1.0, 2.0, 1.0],
    "seq": [3, 2, 1, 0],
}
EVENTS = {
    "id": [10, 11, 12],
    "symbol": ["AAA", "BBB", None],
    "price": [4.0, 6.0, 9.0],
}


@pytest.fixture
def market(spark):
    space = Space([String("symbol"), Number("price", min=0)])
    subscriptions = spark.createDataFrame(pa.table(SUBSCRIPTIONS))
    return space, spark.createDataFrame(pa.table(EVENTS)), subscriptions


@pytest.mark.parametrize("relaxed", [False, True], ids=["exact", "relaxed"])
def test_filters_scores_weights_and_order_of_arrival(spark, market, relaxed):
    space, _, subscriptions = market
    events = spark.createDataFrame(pa.table(EVENTS | {"desk": ["x", "y", "z"]}))
    engine = Engine(Space([String("symbol"), Number("price", min=0)]))
    engine.subscribe_many(pa.table(SUBSCRIPTIONS))
    rows = [dict(zip(EVENTS, row, strict=True)) for row in zip(*EVENTS.values(), strict=True)]
    wanted = {}
    for event in rows:
        values = {name: event[name] for name in ("symbol", "price")}
        wanted[event["id"]] = engine.rank(values, 3, relaxed=relaxed)
    found = rank(events, subscriptions, space, 3, relaxed=relaxed, keep=["desk"])
    assert found.columns == ["event", "rank", "subscription", "score", "desk"]
    assert answers(found) == {event: best for event, best in wanted.items() if best}


def test_bad_events_are_told_in_a_column(spark, market):
    space, _, subscriptions = market
    events = spark.createDataFrame(
        pa.table({"id": [1, 2], "symbol": ["AAA", "AAA"], "price": [-1.0, 1.0]})
    )
    found = rank(events, subscriptions, space, 1, rejected="column").collect()
    told = {row["event"]: row for row in found}
    assert "outside its domain" in told[1]["error"]["reason"]
    assert (told[1]["rank"], told[1]["subscription"]) == (None, None)
    assert (told[2]["rank"], told[2]["subscription"], told[2]["error"]) == (1, "b", None)


@in_shards
@pytest.mark.parametrize("relaxed", [False, True], ids=["exact", "relaxed"])
def test_whole_and_in_shards_keep_columns_errors_and_events_of_one_id(
    spark, market, max_worker_memory, relaxed
):
    space, _, subscriptions = market
    rows = {"id": [1, 2, 2, 3], "symbol": ["AAA"] * 4, "price": [-1.0, 1.0, 9.0, 9.0]}
    rows |= {"desk": ["w", "x", "y", "z"], "seq": ["s"] * 4, "number": ["n"] * 4}
    events = spark.createDataFrame(pa.table(rows))
    keep = ["desk", "seq", "number"]
    how = {
        "relaxed": relaxed,
        "rejected": "column",
        "keep": keep,
        "max_worker_memory": max_worker_memory,
    }
    found = rank(events, subscriptions, space, 2, **how)
    assert found.columns == ["event", "rank", "subscription", "score", *keep, "error"]
    assert {(row["seq"], row["number"]) for row in found.collect()} == {("s", "n")}
    rows = sorted(found.collect(), key=lambda row: (row["desk"], row["rank"] or 0))
    told = [(row["desk"], row["event"], row["rank"], row["subscription"]) for row in rows]
    best = ["d", "c"] if not relaxed else ["c", "b"]
    assert told == [
        ("w", 1, None, None),
        ("x", 2, 1, "b"),
        *(("y", 2, place, one) for place, one in enumerate(best, 1)),
        *(("z", 3, place, one) for place, one in enumerate(best, 1)),
    ]
    assert "outside its domain" in rows[0]["error"]["reason"]
    assert [row["error"] for row in rows[1:]] == [None] * 5


@in_shards
@pytest.mark.parametrize("relaxed", [False, True], ids=["exact", "relaxed"])
def test_a_limit_per_event_and_per_second(spark, max_worker_memory, relaxed):
    space = Space([Number("x"), Timestamp("at")])
    given = {"id": ["a", "b", "c"], "filter": ["x < 5", "x < 9", "true"], "score": [1.0, 3.0, 2.0]}
    rows = [
        {"id": i, "x": float(i), "at": None if i == 7 else f"2026-01-01T00:00:0{i // 3}"}
        for i in range(9)
    ]
    engine = Engine(space)
    engine.subscribe_many(pa.table(given))
    events = spark.createDataFrame(pa.Table.from_pylist(rows))
    subscriptions = spark.createDataFrame(pa.table(given | {"seq": [0, 1, 2]}))
    for how in ({"max_per_second": 1}, {"max_per_second": 4, "time_attribute": "at"}):
        wanted = engine.rank_many(rows, 3, relaxed=relaxed, **how).table().to_pylist()
        found = rank(
            events,
            subscriptions,
            space,
            3,
            relaxed=relaxed,
            max_worker_memory=max_worker_memory,
            **how,
        )
        order = lambda row: (row["event"], row["rank"])  # noqa: E731
        assert sorted((row.asDict() for row in found.collect()), key=order) == wanted
    with pytest.raises(UsageError, match="hint: give both, or neither"):
        rank(events, subscriptions, space, time_attribute="at")
    with pytest.raises(UsageError, match="isn't a timestamp"):
        rank(events, subscriptions, space, time_attribute="x", max_per_second=5)
    with pytest.raises(
        UsageError, match="max_per_second drops rows, which output='arrays' doesn't have"
    ):
        rank(events, subscriptions, space, time_attribute="at", max_per_second=5, output="arrays")
    with pytest.raises(UsageError, match="no output 'pairs'"):
        rank(events, subscriptions, space, output="pairs")


def test_a_prepared_set_answers_its_own_question_in_its_own_space(spark, market):
    space, events, subscriptions = market
    prepared = prepare_rank(spark, subscriptions, space)
    other = Space([Number("price", min=0), String("symbol")])
    with pytest.raises(UsageError, match="were prepared for Space"):
        rank(events, prepared, other)
    with pytest.raises(UsageError, match="index='scan' has no effect"):
        rank(events, prepared, space, index="scan")
    with pytest.raises(UsageError, match="max_worker_memory=5 has no effect"):
        rank(events, prepared, space, max_worker_memory=5)
    with pytest.raises(UsageError, match="index='scan' has no effect"):
        match(events, prepare_match(spark, subscriptions, space), space, index="scan")
    with pytest.raises(UsageError, match=r"prepared with prepare_match\(\)\n  hint: use prepare_r"):
        rank(events, prepare_match(spark, subscriptions, space), space)
    with pytest.raises(UsageError, match=r"prepared with prepare_rank\(\)\n  hint: use prep"):
        match(events, prepared, space)
    assert (prepared.rows, prepared.choice.name) == (4, "slabs")
    assert prepared.memory > 0
    prepared.release()


def test_a_path_is_read_as_subscriptions_and_rejected_as_events(spark, market, tmp_path):
    space, events, subscriptions = market
    pq.write_table(pa.table(SUBSCRIPTIONS), tmp_path / "subs.parquet")
    for max_worker_memory in (1 << 30, 1000):
        for path in (tmp_path / "subs.parquet", str(tmp_path / "subs.parquet")):
            found = answers(rank(events, path, space, 2, max_worker_memory=max_worker_memory))
            assert found == answers(rank(events, subscriptions, space, 2))
    for step in (match, rank):
        with pytest.raises(UsageError, match=r"events must be a Spark DataFrame; given: 'e.csv'"):
            step("e.csv", subscriptions, space)


def test_a_stream_gives_the_same(spark, market, tmp_path):
    space, events, subscriptions = market
    events.repartition(2).write.parquet(str(tmp_path / "in"))
    stream = spark.readStream.schema(events.schema).parquet(str(tmp_path / "in"))
    found = rank(stream, subscriptions, space, 2)
    query = (
        found.writeStream.format("parquet")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(tmp_path / "out"))
    )
    query.awaitTermination()
    streamed = spark.read.parquet(str(tmp_path / "out"))
    assert answers(streamed) == answers(rank(events, subscriptions, space, 2))


def test_mistakes_are_told_before_anything_runs(spark, market):
    space, events, subscriptions = market
    with pytest.raises(UsageError, match="at least 1"):
        rank(events, subscriptions, space, 0)
    with pytest.raises(UsageError, match="no rejected"):
        rank(events, subscriptions, space, 1, rejected="tell")
    named = events.withColumn("rank", events["id"])
    with pytest.raises(UsageError, match="the result already has a column"):
        rank(named, subscriptions, space, 1, keep=["rank"])
    with pytest.raises(UsageError, match="for ranking"):
        rank(events, subscriptions, space, 1, index="cells")
    prepared = prepare_rank(spark, subscriptions, space)
    with pytest.raises(UsageError, match="prepared for relaxed=False, combine='sum'; given"):
        rank(events, prepared, space, 1, relaxed=True)
    with pytest.raises(UsageError, match="no combination 'mean'"):
        rank(events, subscriptions, space, 1, relaxed=True, combine="mean")
