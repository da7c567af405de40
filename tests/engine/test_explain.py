"""Answers that a person can look at: why, why not, what a set is made of, how results look."""

import sys

import numpy as np
import polars
import pytest

from rangecast import Engine, Integer, Number, Space, String
from rangecast.errors import RangecastError, UsageError
from rangecast.workloads import generate

SPACE = Space([Number("price"), Integer("rooms"), String("place")])


@pytest.fixture
def engine():
    engine = Engine(SPACE)
    engine.subscribe("far", "price > 1000 and rooms = 9")
    engine.subscribe("near", "price < 20 and rooms = 2")
    engine.subscribe("either", "price < 5 or rooms > 7")
    engine.subscribe("all", "place = 'kiel'")
    return engine


def test_why_and_what_is_in_the_way(engine):
    event = {"price": 30.0, "rooms": 2, "place": "kiel"}
    told = engine.why(event, "near")
    assert not told.matches
    assert repr(told) == "near does not match: price < 20 fails at 30.0."
    (price, rooms, place) = told.boxes[0]
    assert (price.distance, rooms.distance, place.mentioned) == ("10.0 too high", "0 inside", False)
    assert engine.why(event, "all").matches
    assert repr(engine.why({}, "either")).startswith("either does not match (nearest of its altern")
    assert "<td>10.0 too high</td>" in told._repr_html_()
    assert engine.why(event | {"x": 1}, "all", ignore_unknown=True).matches
    with pytest.raises(RangecastError, match="none"):
        engine.why(event, "none")
    with pytest.raises(UsageError, match="unknown attribute 'x'"):
        engine.why({"x": 1}, "all")


def test_why_not_finds_the_nearest_that_do_not_match(engine):
    event = {"price": 30.0, "rooms": 2, "place": "kiel"}
    assert [told.subscription for told in engine.why_not(event)] == ["near", "either", "far"]
    assert [told.subscription for told in engine.why_not(event, 1)] == ["near"]
    engine.unsubscribe("near")
    assert [told.subscription for told in engine.why_not(event, 1)] == ["either"]
    assert Engine(SPACE).why_not(event) == []


def test_why_not_never_names_one_that_matches():
    made = generate("market", seed=3, subscriptions=200, events=20)
    engine = Engine(made.space, index="scan")
    engine.subscribe_many(made.boxes)
    for event in made.tables["events"].drop_columns(["id"]).to_pylist():
        missed = {told.subscription for told in engine.why_not(event, 200)}
        assert missed == {*engine} - {*engine.match(event)}


def test_explain_says_what_a_set_is_made_of():
    engine = Engine(SPACE, index="scan")
    assert engine.explain().splitlines()[1:] == [
        "recent: 0 of 0 subscriptions are in no part yet",
        "dead: 0 that the next rebuild removes",
    ]
    engine.subscribe_many([{"id": n, "price_lo": n} for n in range(3000)])
    engine.subscribe(-1, "price > 5")
    engine.unsubscribe(7)
    head, part, recent, dead = engine.explain().splitlines()
    assert head == f"{engine!r}, {engine.memory:,} bytes"
    assert part.startswith("part 1: scan, 3,000 rows, ")
    assert part.endswith("; it was requested")
    assert recent == "recent: 1 of 3,000 subscriptions are in no part yet"
    assert dead == "dead: 1 that the next rebuild removes"


def test_results_are_short_to_print_and_tables_elsewhere(engine):
    events = [{"id": "<a>", "price": 1.0}, {"id": "b", "place": "kiel"}, {"id": "c"}]
    matches, ranks = engine.match_many(events), engine.rank_many(events, 1)
    assert (
        repr(matches)
        == "<Matches: 2 matches of 3 events: '<a>': ['either'], 'b': ['all'], 'c': []>"
    )
    assert repr(ranks).startswith("<Rankings: 2 ranked for 3 events: '<a>': [('either', 0.0)], 'b'")
    assert repr(engine.match_many(events[:1])) == "<Matches: 1 match of 1 event: '<a>': ['either']>"
    html = matches._repr_html_()
    assert "<tr><td>&lt;a&gt;</td><td>[&#x27;either&#x27;]</td></tr>" in html
    assert html.count("<td>") == 6
    assert "<td>b</td><td>[(&#x27;all&#x27;, 0.0)]</td>" in ranks._repr_html_()
    many = engine.match_points(np.full((500, 3), np.inf))
    assert many._repr_html_().count("<td>") == 20
    assert "... 490 more" in many._repr_html_()


def test_polars_and_pandas_are_optional(engine, monkeypatch):
    matches = engine.match_many([{"price": 1.0}])
    assert isinstance(matches.to_polars(), polars.DataFrame)
    assert matches.to_polars().rows() == [(0, "either")]
    for library in ("polars", "pandas"):
        monkeypatch.setitem(sys.modules, library, None)
        with pytest.raises(UsageError, match=rf"to_{library}\(\) needs {library}"):
            getattr(matches, f"to_{library}")()
