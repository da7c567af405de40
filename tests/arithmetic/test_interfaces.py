"""Arithmetic means the same in Python, in the shell, on Spark and behind a server."""

from __future__ import annotations

import random

import pyarrow as pa
import pyarrow.csv
import pytest

from rangecast import Arithmetic, Client, Engine, Integer, Number, Space
from rangecast.cover import CoverSet
from rangecast.errors import UsageError
from rangecast.interop import vespa
from rangecast.merge import ExactSummary, Summary
from tests.support.server.served import Served

FILES = ("events.csv", "subscriptions.csv", "--space", "space.toml", "-q")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Files of orders, and of conditions on them."""
    folder = tmp_path_factory.mktemp("arithmetic")
    r = random.Random(5)
    space = Space([Number("price"), Number("mean"), Integer("size", min=0), Arithmetic("sums")])
    space.save(folder / "space.toml")
    filters = []
    for number in range(60):
        text = (
            f"price / mean > {r.uniform(0.8, 1.2)!r}",
            f"price * size >= {r.randint(100, 3000)} and size >= {r.randint(1, 20)}",
            f"not (abs(price - mean) < {r.randint(1, 20)}) or size < 2",
            f"mean < price <= mean + {r.randint(1, 20)} and price between 80 and 120",
        )[number % 4]
        filters.append(text)
    scores = [float(score) for score in r.sample(range(100), len(filters))]
    table = {"id": [f"s{i}" for i in range(60)], "filter": filters, "score": scores}
    pa.csv.write_csv(pa.table(table), folder / "subscriptions.csv")
    events = {
        "id": list(range(200)),
        "price": [r.choice([None, r.uniform(80, 120), 100.0]) for _ in range(200)],
        "mean": [r.choice([0.0, 100.0, r.uniform(90, 110)]) for _ in range(200)],
        "size": [r.randint(0, 40) for _ in range(200)],
    }
    pa.csv.write_csv(pa.table(events), folder / "events.csv")
    return folder


@pytest.fixture(scope="module")
def engine(data):
    made = Engine(Space.load(data / "space.toml"))
    made.subscribe_many(data / "subscriptions.csv")
    return made


def pairs(path):
    table = pa.csv.read_csv(path)
    return [tuple(row.values()) for row in table.to_pylist()]


def test_the_shell(data, engine, cli, tmp_path):
    done = cli("match", *FILES, "-o", "matches.csv", cwd=data)
    assert "no column" not in done.stderr
    matches = engine.match_many(data / "events.csv").table()
    expected = [tuple(row.values()) for row in matches.to_pylist()]
    assert len(expected) > 300
    assert pairs(data / "matches.csv") == expected
    cli("verify", "events.csv", "subscriptions.csv", "matches.csv", *FILES[2:], cwd=data)
    done = cli("check", "price + 5 > mean and size > 3", "--space", "space.toml", cwd=data)
    assert "price + 5 > mean" in done.stdout
    engine.save(tmp_path / "saved")
    again = Engine.open(tmp_path / "saved")
    assert again.match_many(data / "events.csv").table() == matches
    assert [again[name].filter for name in again] == [engine[name].filter for name in engine]


def test_spark(data, engine, spark):
    from rangecast.spark import match, prepare_match, rank

    space = Space.load(data / "space.toml")
    events = spark.read.csv(str(data / "events.csv"), header=True, inferSchema=True)
    subscriptions = spark.read.csv(str(data / "subscriptions.csv"), header=True, inferSchema=True)
    found = match(events, subscriptions, space).collect()
    expected = engine.match_many(data / "events.csv").table().to_pylist()
    assert {(row.event, row.subscription) for row in found} == {
        (row["event"], row["subscription"]) for row in expected
    }
    prepared = prepare_match(spark, subscriptions, space, max_worker_memory=2_000)
    in_shards = match(events, prepared, space).collect()
    assert {tuple(row) for row in in_shards} == {tuple(row) for row in found}
    best = rank(events, subscriptions, space, k=2).collect()
    ranked = engine.rank_many(data / "events.csv", 2).table().to_pylist()
    assert {(row.event, row["rank"], row.subscription) for row in best} == {
        (row["event"], row["rank"], row["subscription"]) for row in ranked
    }


def test_a_server_and_its_log(data, engine, tmp_path):
    space = Space.load(data / "space.toml")
    events = pa.csv.read_csv(data / "events.csv").to_pylist()[:50]
    values = [{key: value for key, value in one.items() if key != "id"} for one in events]
    expected = [engine.match(one) for one in values]
    for start in range(2):  # and again, from its log
        spaces = {} if start else {"orders": space}
        served = Served(data=tmp_path / "data", spaces=spaces)
        try:
            with Client(served.url, space="orders") as client:
                if not start:
                    client.subscribe_many(data / "subscriptions.csv")
                assert [client.match(one) for one in values] == expected
                assert client["s0"].filter == engine["s0"].filter
                assert client.why(values[0], "s0").matches == ("s0" in expected[0])
        finally:
            served.stop()


def test_relaxed_ranking_counts_arithmetic_as_one_attribute(engine):
    event = {"price": 100.0, "mean": 99.0, "size": 30}
    found = dict(engine.rank(event, 60, relaxed=True))
    matched = set(engine.match(event))
    for name, score in found.items():
        if " or " in engine[name].filter:
            continue
        conditions = 1 if name == "s0" or int(name[1:]) % 4 == 0 else 2
        assert (score == conditions) == (name in matched), engine[name].filter


def test_cover_is_exact_for_the_same_condition_and_careful_elsewhere():
    covers = CoverSet(Space([Number("x"), Number("y"), Arithmetic()]))
    covers.subscribe("sum", "x + y <= 10")
    covers.subscribe("less", "x + y <= 10 and x > 3")
    covers.subscribe("other", "x + y <= 9")
    covers.subscribe("range", "x > 5")
    covers.subscribe("within", "x > 6 and x * y = 1")
    assert set(covers.uncovered()) == {"sum", "other", "range"}


def test_a_summary_loses_no_event(data, engine):
    space = Space.load(data / "space.toml")
    summary = Summary(space)
    summary.subscribe_many(data / "subscriptions.csv")
    for event in pa.csv.read_csv(data / "events.csv").to_pylist():
        values = {key: value for key, value in event.items() if key != "id"}
        if engine.match(values):
            assert summary.may_match(values)
    narrow = Summary(space)
    narrow.subscribe("one", "price + mean <= 10 and price >= 8 and mean >= 0")
    assert narrow.may_match({"price": 8.5, "mean": 1.0, "size": 1})
    assert not narrow.may_match({"price": 8.5, "mean": 90.0, "size": 1})
    narrow.unsubscribe("one")
    assert not narrow.may_match({"price": 8.5, "mean": 1.0, "size": 1})
    with pytest.raises(UsageError, match="'sums' is arithmetic, which has no ranges"):
        Summary(space, attributes=["sums"])


def test_an_exact_summary_matches_what_the_engine_does(data):
    space = Space.load(data / "space.toml")
    summary, engine = ExactSummary(space, bits=4), Engine(space)
    for one in (summary, engine):
        one.subscribe_many(data / "subscriptions.csv")
    for event in pa.csv.read_csv(data / "events.csv").to_pylist()[:80]:
        values = {key: value for key, value in event.items() if key != "id"}
        assert sorted(summary.match(values)) == sorted(engine.match(values))
        assert summary.may_match(values) == bool(engine.match(values))


def test_a_network(data, cli):
    cli("match", *FILES, "-o", "matches.csv", cwd=data)
    cli("route", "run", *FILES, "--brokers", "4", "-o", "routed.csv", cwd=data)
    routed, matches = ((data / name).read_text() for name in ("routed.csv", "matches.csv"))
    assert sorted(routed.splitlines()) == sorted(matches.splitlines())


def test_exports_say_what_they_don_t_take(data):
    space = Space.load(data / "space.toml")
    engine = Engine(space)
    engine.subscribe("a", "price > mean")
    assert vespa.write(engine.boxes(), space).unsupported[0].reason == (
        "arithmetic has no counterpart there"
    )
