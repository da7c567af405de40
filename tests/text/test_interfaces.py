"""Conditions on texts mean the same in Python, in the shell, on Spark and behind servers."""

from __future__ import annotations

import random

import pyarrow as pa
import pyarrow.csv
import pytest

from rangecast import Client, Engine, Number, Space, Text
from rangecast.cover import CoverSet
from rangecast.errors import UsageError
from rangecast.interop import vespa
from rangecast.merge import ExactSummary, Summary
from rangecast.notify import Board
from tests.support.server.served import Served

FILES = ("events.csv", "subscriptions.csv", "--space", "space.toml", "-q")
WORDS = ["red", "Bike", "old", "city", "Straße", "ÉTÉ"]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Files of offers, and of searches for them."""
    folder = tmp_path_factory.mktemp("texts")
    r = random.Random(5)
    space = Space([Text("title"), Text("ip"), Number("price")])
    space.save(folder / "space.toml")
    filters = []
    for number in range(72):
        one, two = r.sample(WORDS, 2)
        listed = ", ".join(f"'{r.choice(WORDS)} {r.randint(0, 99)}'" for _ in range(90))
        filters.append(
            (
                f"title like '{one[:2]}%' and price > {r.randint(0, 9)}",
                f"title contains '{two.upper()}' ignore case or price < 1",
                f"words(title) has all ('{one}', '{two}')",
                f"not words(title) has any ('{one}', '{two}') and price < 5",
                f"title not like '%{one} _%' and ip in cidr ('10.{r.randint(0, 3)}.0.0/16')",
                f"title in ({listed})",
            )[number % 6]
        )
    scores = [float(score) for score in r.sample(range(100), len(filters))]
    table = {"id": [f"s{i}" for i in range(72)], "filter": filters, "score": scores}
    pa.csv.write_csv(pa.table(table), folder / "subscriptions.csv")
    titles = [
        " ".join([*r.choices(WORDS, k=r.randint(1, 3)), str(r.randint(0, 99))]) for _ in range(200)
    ]
    events = {
        "id": list(range(200)),
        "title": [None if place % 17 == 0 else one for place, one in enumerate(titles)],
        "ip": [r.choice([None, "none", f"10.{r.randint(0, 3)}.0.7"]) for _ in range(200)],
        "price": [r.randint(0, 9) for _ in range(200)],
    }
    pa.csv.write_csv(pa.table(events), folder / "events.csv")
    return folder


@pytest.fixture(scope="module")
def engine(data):
    made = Engine(Space.load(data / "space.toml"))
    made.subscribe_many(data / "subscriptions.csv")
    return made


def rows(table):
    return [tuple(row.values()) for row in table.to_pylist()]


def test_the_shell(data, engine, cli, tmp_path):
    done = cli("match", *FILES, "-o", "matches.csv", cwd=data)
    assert "no column" not in done.stderr
    matches = engine.match_many(data / "events.csv").table()
    assert matches.num_rows > 1000
    assert rows(pa.csv.read_csv(data / "matches.csv")) == rows(matches)
    cli("verify", "events.csv", "subscriptions.csv", "matches.csv", *FILES[2:], cwd=data)
    done = cli(
        "check", "starts_with(title, 'red') and price > 3", "--space", "space.toml", cwd=data
    )
    assert "title like 'red%'" in done.stdout
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


def test_spark_in_the_order_of_a_file(data, engine, spark):
    from rangecast.model.encoding.events import EventFile
    from rangecast.spark import prepare_match
    from rangecast.spark.steps.in_order import answer_in_order

    subscriptions = spark.read.csv(str(data / "subscriptions.csv"), header=True, inferSchema=True)
    prepared = prepare_match(spark, subscriptions, Space.load(data / "space.toml"))
    given = iter(EventFile(data / "events.csv", prepared.space))
    found = []
    for piece in answer_in_order(spark, prepared, given):
        found += zip(piece["event"].to_pylist(), piece["subscription"].to_pylist(), strict=True)
    assert sorted(found) == sorted(rows(engine.match_many(data / "events.csv").table()))


def test_a_server_and_its_log(data, engine, tmp_path):
    space = Space.load(data / "space.toml")
    events = pa.csv.read_csv(data / "events.csv").to_pylist()[:50]
    values = [{key: value for key, value in one.items() if key != "id"} for one in events]
    expected = [engine.match(one) for one in values]
    for start in range(2):  # and again, from its log
        spaces = {} if start else {"offers": space}
        served = Served(data=tmp_path / "data", spaces=spaces)
        try:
            with Client(served.url, space="offers") as client:
                if not start:
                    client.subscribe_many(data / "subscriptions.csv")
                assert [client.match(one) for one in values] == expected
                assert list(client.match_many(values)) == expected
                assert client["s2"].filter == engine["s2"].filter
                assert client.why(values[1], "s2").matches == ("s2" in expected[1])
        finally:
            served.stop()


def test_relaxed_ranking_counts_conditions_on_texts(engine):
    event = {"title": "red city 5", "price": 3}
    found = dict(engine.rank(event, 100, relaxed=True))
    for name in engine.match(event):
        assert found[name] >= 1


def test_cover_compares_prefixes_and_words():
    covers = CoverSet(Space([Text("title"), Number("price")]))
    covers.subscribe("short", "title like 'AB%'")
    covers.subscribe("longer", "title like 'ABC%' and price > 3")
    covers.subscribe("pattern", "title like 'AB%x_'")
    covers.subscribe("very long", "starts_with(title, 'ABCDEFGHIJ')")
    covers.subscribe("word", "words(title) has 'red'")
    covers.subscribe("same word", "words(title) has 'RED' and price > 3")
    covers.subscribe("two words", "words(title) has all ('red', 'bike')")
    assert set(covers.uncovered()) == {"short", "word"}
    assert covers["pattern"].filter == "title like 'AB%x_'"


def test_a_summary_loses_no_event(data, engine):
    space = Space.load(data / "space.toml")
    summary = Summary(space)
    summary.subscribe_many(data / "subscriptions.csv")
    for event in pa.csv.read_csv(data / "events.csv").to_pylist():
        values = {key: value for key, value in event.items() if key != "id"}
        if engine.match(values):
            assert summary.may_match(values)
    narrow = Summary(space, attributes=["title order"])
    narrow.subscribe("one", "title like 'm%'")
    assert narrow.may_match({"title": "max", "price": 1})
    assert not narrow.may_match({"title": "Zzz", "price": 1})


def test_an_exact_summary_matches_what_the_engine_does(data):
    space = Space.load(data / "space.toml")
    summary, engine = ExactSummary(space, bits=4), Engine(space)
    for one in (summary, engine):
        one.subscribe_many(data / "subscriptions.csv")
    for event in pa.csv.read_csv(data / "events.csv").to_pylist()[:80]:
        values = {key: value for key, value in event.items() if key != "id"}
        assert sorted(summary.match(values)) == sorted(engine.match(values))
        assert summary.may_match(values) == bool(engine.match(values))


def test_a_simulated_network_says_that_it_has_no_texts(data, cli):
    done = cli("route", "run", *FILES, "--brokers", "4", cwd=data, code=2)
    assert "'title' is a text, which events of a simulated network don't have" in done.stderr


def test_boards_and_exports_say_what_they_don_t_take(data):
    space = Space.load(data / "space.toml")
    with pytest.raises(UsageError, match="'title' is a string"):
        Board(2, space=space)
    engine = Engine(space)
    engine.subscribe("a", "title like '%x%'")
    engine.subscribe("b", "title like 'x%'")
    reasons = {one.reason for one in vespa.write(engine.boxes(), space).unsupported}
    assert reasons == {"text patterns have no counterpart there"}
