"""Types that a user's checker sees: mypy reads this file, too."""

from __future__ import annotations

from typing import assert_type

from rangecast import Engine, Forward, Matches, Number, Rankings, Space
from rangecast.cover import CoverSet
from rangecast.merge import Summary
from rangecast.merge.forward import RangeForward

SPACE = Space([Number("price")])


def test_items_of_results_have_types() -> None:
    engine = Engine(SPACE)
    engine.subscribe("cheap", "price < 5", score=2)
    matches = engine.match_many([{"price": 1.0}, {"price": 9.0}])
    assert_type(matches, Matches)
    assert assert_type(matches[0], list[str | int]) == ["cheap"]
    assert assert_type(matches[:1], list[list[str | int]]) == [["cheap"]]
    assert assert_type(list(matches), list[list[str | int]]) == matches[0:] == [["cheap"], []]
    assert matches[::-1] == [[], ["cheap"]]
    ranks = engine.rank_many([{"price": 1.0}])
    assert_type(ranks, Rankings)
    assert assert_type(ranks[-1], list[tuple[str | int, float]]) == [("cheap", 2.0)]


def test_items_of_forwards_have_types() -> None:
    rows = [{"id": "a", "filter": "price < 5"}]
    forward = CoverSet(SPACE).subscribe_many(rows)[0]
    assert assert_type(forward, Forward) == Forward(["a"], [])
    ranges = Summary(SPACE).subscribe_many(rows)[0]
    assert bool(assert_type(ranges, RangeForward))
