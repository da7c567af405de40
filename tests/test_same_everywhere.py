"""One body over library, shell and Spark: the same answers, to the last row and in one order."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rangecast.engine import Engine
from rangecast.model.space import Space
from rangecast.model.subscriptions import encode_subscriptions
from rangecast.workloads import generate

FILES = ("events.parquet", "subscriptions.parquet", "--space", "space.toml", "-q")
K = 3
COLUMNS = {
    "match": ["event", "subscription"],
    "exact": ["event", "rank", "subscription", "score"],
    "relaxed": ["event", "rank", "subscription", "score"],
}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("same")
    made = generate("market", subscriptions=250, events=120, seed=7)
    made.space.save(folder / "space.toml")
    for name, table in made.tables.items():
        pq.write_table(table, folder / f"{name}.parquet")
    return folder


def by_library(data, question):
    engine = Engine(Space.load(data / "space.toml"))
    engine.subscribe_many(data / "subscriptions.parquet")
    events = pq.read_table(data / "events.parquet")
    if question == "match":
        return engine.match_many(events).table()
    return engine.best_many(events, K, relaxed=question == "relaxed").table()


def by_shell(data, question, cli, *more):
    command = {
        "match": ("match",),
        "exact": ("rank", "--top", K),
        "relaxed": ("rank", "--top", K, "--relaxed"),
    }[question]
    cli(*command, *FILES, *more, "-o", "out.parquet", cwd=data)
    return pq.read_table(data / "out.parquet")


def by_spark(data, question, spark, **how):
    from rangecast.spark import match, rank

    space = Space.load(data / "space.toml")
    events = spark.read.parquet(str(data / "events.parquet"))
    table = pq.read_table(data / "subscriptions.parquet")
    boxes = encode_subscriptions(table, space)
    if question == "match":
        found = match(events, boxes, space, **how).toArrow()
        arrival = {one: place for place, one in enumerate(boxes.ids.to_pylist())}
        places = pa.array([arrival[one] for one in found["subscription"].to_pylist()], pa.int64())
        order = [("event", "ascending"), ("place", "ascending")]
        return found.append_column("place", places).sort_by(order).drop_columns("place")
    found = rank(events, boxes, space, K, relaxed=question == "relaxed", **how).toArrow()
    return found.sort_by([("event", "ascending"), ("rank", "ascending")])


def rows(table, question):
    assert table.column_names == COLUMNS[question]
    return table.to_pylist()


@pytest.mark.parametrize("question", COLUMNS)
def test_library_shell_and_spark_give_the_same_rows(cli, spark, data, question):
    expected = rows(by_library(data, question), question)
    assert len(expected) > 100
    assert rows(by_shell(data, question, cli), question) == expected
    assert rows(by_shell(data, question, cli, "--engine", "spark"), question) == expected
    for how in ({"plan": "broadcast"}, {"plan": "partitioned", "group_bytes": 10_000}):
        assert rows(by_spark(data, question, spark, **how), question) == expected, how
