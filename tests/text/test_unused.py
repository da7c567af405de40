"""A text or a place that no subscription uses costs a set nothing."""

from __future__ import annotations

import numpy as np
import pytest

from rangecast import Engine, Number, Point, Space, Text
from rangecast.match.choose import choose
from rangecast.match.counting import live as counting
from rangecast.match.live import match_live
from rangecast.model.attributes.text_store import TEXTS

COUNT = 20_000


def engine_of(*more, count=COUNT) -> Engine:
    """Small boxes on two attributes, as ranges in a file."""
    rng = np.random.default_rng(9)
    low = rng.uniform(0, 1000, (count, 2))
    high = low + rng.uniform(0, 50, (count, 2))
    engine = Engine(Space([Number("a"), Number("b"), *more]))
    ends = {"a_lo": low[:, 0], "a_hi": high[:, 0], "b_lo": low[:, 1], "b_hi": high[:, 1]}
    engine.subscribe_many({"id": list(range(count)), **ends})
    return engine


@pytest.fixture(scope="module")
def plain():
    return engine_of()


def points_of(engine: Engine, count: int = 600):
    points = np.full((count, len(engine.space)), np.inf)
    points[:, :2] = np.random.default_rng(4).uniform(0, 1000, (count, 2))
    return points


@pytest.mark.parametrize("unused", [Text("title"), Point("place")], ids=["text", "place"])
def test_bytes_and_work_are_those_of_the_space_without_it(plain, unused):
    engine = engine_of(unused)
    more = len(engine.space) - 2
    assert engine.memory - plain.memory == 9 * more  # where its edges begin, and a flag
    (part,), (other,) = engine._view.parts, plain._view.parts
    assert part.index.name == other.index.name
    found, expected = (match_live(one._view, points_of(one)) for one in (engine, plain))
    assert found.work == expected.work
    assert found.rows.tolist() == expected.rows.tolist()


@pytest.mark.parametrize("count", [1_000, 3_000, 6_000, 10_000, 14_000])
def test_the_structure_is_that_of_the_space_without_it(count):
    chosen = [choose(engine_of(*more, count=count).boxes()) for more in ((), (Text("title"),))]
    assert chosen[0] == chosen[1]


@pytest.mark.parametrize("unused", [Text("title"), Point("place")], ids=["text", "place"])
def test_new_rows_are_ranked_without_an_index_of_their_own(unused):
    """One by one, as in the space without it; once a condition is verified, by an index."""
    engine, other = engine_of(unused), engine_of()
    is_text = isinstance(unused, Text)
    condition = "title contains 'bike'" if is_text else "within(place, circle(4, 4, 2))"
    for one in (engine, other):
        one.rescore(7, 3)
        for new in range(100):
            one.subscribe(COUNT + new, f"a > {5 * new}", score=new % 9)
    points = points_of(engine)
    events = [{"a": a, "b": b} for a, b, *_ in points[:20].tolist()]
    for relaxed in (False, True):
        expected = other.rank_many(events, 5, relaxed=relaxed)
        assert list(engine.rank_many(events, 5, relaxed=relaxed)) == list(expected)
        assert [engine.rank(event, 5, relaxed=relaxed) for event in events] == list(expected)
    ranked = engine._view.ranked[0]
    assert not ranked.recent_parts
    assert len(ranked.single_event[0].calls) == 2
    engine.subscribe(-1, condition, score=100)
    matching = {"title": "a bike"} if is_text else {"x": 4, "y": 4}
    assert engine.rank({"a": 1, "b": 1, **matching}, 1) == [(-1, 100.0)]
    assert engine.rank({"a": 1, "b": 1}, 3) == other.rank({"a": 1, "b": 1}, 3)
    assert engine._view.ranked[0].recent_parts


@pytest.mark.parametrize("unused", [Text("title"), Point("place")], ids=["text", "place"])
def test_events_are_counted_without_their_matches(plain, unused, monkeypatch):
    engine = engine_of(unused)
    is_text = isinstance(unused, Text)
    condition = "title contains 'bike'" if is_text else "within(place, circle(4, 4, 2))"
    expected = plain.count_points(points_of(plain, 100)).tolist()
    with monkeypatch.context() as patch:
        patch.setattr(counting, "match_live", None)
        assert engine.count_points(points_of(engine, 100)).tolist() == expected
        engine.unsubscribe(3)
        engine.subscribe(3, "a > 2000")
        assert engine.count({"a": 3000, "b": 1}) == 1
    engine.subscribe(-1, condition)
    event = {"a": 3000, "b": 1, **({"title": "a bike"} if is_text else {"x": 4, "y": 4})}
    assert [engine.count(event), engine.count({"a": 3000, "b": 1})] == [2, 1]


def test_texts_of_events_are_stored_once_a_condition_reads_them(plain):
    engine = engine_of(Text("title"))
    events = [
        {"a": a, "b": b, "title": f"red bike {n} é"}
        for n, (a, b) in enumerate(points_of(plain, 60).tolist())
    ]
    bare = [{"a": event["a"], "b": event["b"]} for event in events]
    expected = [plain.match(event) for event in bare]
    before = TEXTS._size
    assert [engine.match(event) for event in events] == expected
    assert engine.match_each(events) == expected
    assert [list(found) for found in engine.match_many(events)] == expected
    assert [engine.match_ids(event).tolist() for event in events] == expected
    assert TEXTS._size == before
    engine.subscribe(COUNT, "title contains 'bike 7 '")
    expected[7] = [*expected[7], COUNT]
    assert [engine.match(event) for event in events] == expected
    assert [list(found) for found in engine.match_many(events)] == expected
    assert TEXTS._size > before


@pytest.mark.parametrize("title", [5, "\ud800", ["a"]])
def test_wrong_texts_are_rejected_whether_they_are_read_or_not(title):
    engine = engine_of(Text("title"))
    for condition in (None, "title contains 'x'"):
        if condition:
            engine.subscribe(COUNT, condition)
        with pytest.raises(ValueError, match="must be a string"):
            engine.match({"title": title})
        with pytest.raises(ValueError, match="title"):
            engine.match_many([{"title": title}])


@pytest.mark.parametrize(
    "condition",
    ["title like 're%'", "starts_with(title, 'red')", "not title like 'b%'", "title = 'red bike'"],
)
def test_conditions_without_patterns_read_the_events_too(condition):
    """Short prefixes are ranges of the order of texts, and have no pattern."""
    titles = ["red bike", "re", "r", "blue", "", "Red", "rf", "zebra"]
    holds = {
        "title like 're%'": lambda text: text.startswith("re"),
        "starts_with(title, 'red')": lambda text: text.startswith("red"),
        "not title like 'b%'": lambda text: not text.startswith("b"),
        "title = 'red bike'": lambda text: text == "red bike",
    }[condition]
    engine = Engine(Space([Text("title"), Number("v")]))
    engine.subscribe("a", condition)
    engine.subscribe("b", "v > 3")
    events = [{"title": title, "v": v} for title in titles for v in (1, 5)]
    expected = [["a"] * holds(one["title"]) + ["b"] * (one["v"] > 3) for one in events]
    assert [engine.match(event) for event in events] == expected
    assert [engine.match_ids(event).tolist() for event in events] == expected
    assert engine.match_each(events) == expected
    assert list(engine.match_many(events)) == expected
    assert engine.count_many(events).tolist() == [len(ids) for ids in expected]
