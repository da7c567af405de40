"""Arithmetic in filters: every answer is that of Python's floats."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from rangecast import Arithmetic, Engine, FilterError, Integer, Number, Space, String, Timestamp
from rangecast.match.choose import build
from rangecast.model.arithmetic.tighten import tighten
from rangecast.model.encoding.events import encode_event
from rangecast.model.filters.filter import Filter
from tests.arithmetic.oracle import Draw, holds
from tests.support.seeds import seeds

NAMES = ("a", "b", "n")


def new_space() -> Space:
    return Space([Number("a"), Number("b", min=-10, max=10), Integer("n"), Arithmetic()])


def events(draw: Draw, count: int) -> list[dict[str, float]]:
    made = []
    for _ in range(count):
        values = {"a": draw.number(), "b": draw.number(), "n": draw.number()}
        values["b"] = max(min(values["b"], 10.0), -10.0)
        values["n"] = float(round(values["n"])) if abs(values["n"]) < 2**60 else 2.0**60
        made.append({name: one for name, one in values.items() if draw.random.random() < 0.95})
    return made


class Wanted:
    """A filter of several conditions, and when it holds."""

    def __init__(self, draw: Draw):
        r = draw.random
        self.parts = []
        for _ in range(r.choice([1, 1, 2, 3])):
            self.parts.append((draw.comparison(), r.random() < 0.3))
        self.least = r.choice([None, None, ("a", -1.0), ("b", 0.5), ("n", 1.0)])
        self.any = r.random() < 0.3
        texts = [
            f"not ({draw.comparison_text(one)})" if negated else draw.comparison_text(one)
            for one, negated in self.parts
        ]
        self.text = (" or " if self.any else " and ").join(texts)
        if self.least:
            self.text = f"({self.text}) and {self.least[0]} >= {self.least[1]}"

    def holds(self, event) -> bool:
        found = [holds(one, event, negated) for one, negated in self.parts]
        within = self.least is None or event.get(self.least[0], -np.inf) >= self.least[1]
        return within and (any(found) if self.any else all(found))


@pytest.mark.parametrize("seed", seeds(3, 12))
def test_answers_are_those_of_python(seed):
    """Match, one by one and in batches, rank, and a copy, through edits."""
    draw = Draw(seed, NAMES)
    r = draw.random
    engine = Engine(new_space())
    wanted, given = {}, events(draw, 150)
    for number in range(60):
        one = Wanted(draw)
        try:
            engine.subscribe(number, one.text, score=float(r.randint(0, 3)))
        except FilterError:
            assert not any(one.holds(event) for event in given), one.text
            continue
        wanted[number] = one
        if r.random() < 0.1:
            gone = r.choice(list(wanted))
            engine.unsubscribe(gone)
            del wanted[gone]
    expected = [{k for k, one in wanted.items() if one.holds(event)} for event in given]
    assert sum(map(len, expected)) > 100
    assert [set(engine.match(event)) for event in given] == expected
    for some in (engine, pickle.loads(pickle.dumps(engine))):
        found = some.match_many(given)
        assert [set(found[place]) for place in range(len(given))] == expected
    boxes = engine.boxes()
    points = np.array([encode_event(event, engine.space) for event in given])
    for index in ("slabs", "cells", "scan"):
        matched = build(boxes, index).match(points)
        named = [set(boxes.ids.take(matched.of(i)).to_pylist()) for i in range(len(given))]
        assert named == expected
    for event, names in zip(given[:40], expected, strict=False):
        ranked = engine.rank(event, 1000)
        assert {name for name, _ in ranked} == names
        assert sorted((score for _, score in ranked), reverse=True) == [s for _, s in ranked]


@pytest.mark.parametrize("seed", seeds(2, 6))
def test_no_event_lies_outside_of_the_box_of_an_index(seed):
    """What the oracle accepts lies in the narrowed boxes, and their texts mean the same."""
    draw = Draw(100 + seed, NAMES)
    space = new_space()
    given = events(draw, 200)
    points = [[event.get(name, np.inf) for name in NAMES] for event in given]
    for _ in range(150):
        one = Wanted(draw)
        try:
            found = Filter.parse(one.text, space)
        except FilterError:
            continue
        assert Filter.parse(str(found), space) == found
        lo, hi = found.arrays()
        lo, hi = lo.copy(), hi.copy()
        tighten(space, lo, hi)
        for event, point in zip(given, points, strict=True):
            if one.holds(event):
                inside = (lo[:, :3] <= point) & (point <= hi[:, :3])
                assert inside.all(axis=1).any(), (one.text, event)


def bounds(text, space):
    lo, hi = (side.copy() for side in Filter.parse(text, space).arrays())
    tighten(space, lo, hi)
    return lo[0], hi[0]


def test_the_index_is_selective():
    space = Space([Number("x"), Number("y", min=0, max=100), Integer("n"), Arithmetic()])
    lo, hi = bounds("x + y <= 10 and x >= 8", space)
    assert lo[0] == 8
    assert hi[0] == pytest.approx(10)
    assert lo[1] == 0
    assert hi[1] == pytest.approx(2)
    assert hi[1] >= 2
    lo, hi = bounds("2 * n + 1 < 7 and n > -x and x <= 3", space)
    assert (lo[2], hi[2]) == (-2, 3) or (lo[2], hi[2]) == (-3, 3)
    lo, hi = bounds("abs(x - 50) <= 2", space)
    assert lo[0] == pytest.approx(48)
    assert hi[0] == pytest.approx(52)
    lo, hi = bounds("x / y > 2 and y >= 10", space)
    assert lo[0] == pytest.approx(20)
    lo, hi = bounds("max(x, y) < 5", space)
    assert hi[0] < 5
    assert hi[1] < 5


def test_what_always_holds_needs_no_test_and_what_never_does_is_rejected():
    space = Space([Number("x"), Number("y"), Arithmetic()])
    always = Filter.parse("x + y <= 10 and x <= 5 and y between -1e300 and 5", space)
    axis, number, full = always.boxes[0][-1]
    assert (axis, full - number) == (2, 0)  # x may be so low that the sum is undefined
    always = Filter.parse("x + y <= 10 and x between 0 and 5 and y between -3 and 5", space)
    assert always.boxes[0][-1][2] > always.boxes[0][-1][1]
    for text in ("x + y > 10 and x < 3 and y < 3", "x / 0 > 1", "x is null and x + y > 3"):
        with pytest.raises(
            FilterError, match="can never match: its arithmetic conditions contradict"
        ):
            Filter.parse(text, space)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("x + city > 3", "'city' is a string; arithmetic takes numbers"),
        ("at - to > 3", "'at' is a timestamp, which supports comparisons only"),
        ("x > 'a' + 1", "'a' is a string; arithmetic takes numbers"),
        ("1 < 2 + 1", "this condition mentions no attribute"),
        ("abs(x, y) > 1", "abs takes one argument; given: 2"),
        ("x < y > 3", "the two signs of a chain must point the same way"),
        ("prise + x > 3", "no attribute 'prise'"),
        ("x + > 3", "expected a number or an attribute, found '>'"),
        ("x % 2 > 1", "the character '%' has no meaning here"),
        ("1e999 + x > 3", "beyond the largest double"),
        ("city = Rome", "expected a value, found the word Rome"),
        ("at > 2026-01-31", "put a date in quotes"),
        ("at < x", "a timestamp can only be compared with a timestamp"),
        (" + ".join(["x"] * 64) + " > 1", "has 65 operands and operators, more than the 64"),
        ("- " * 5000 + "x > y", "more than the 64 allowed"),
        ("(" * 200 + "x + y > 3", "nested more than 100 deep"),
    ],
)
def test_errors(text, reason):
    space = Space([Number("x"), Number("y"), String("city"), Timestamp("at"), Timestamp("to")])
    space = Space([*space, Arithmetic()])
    with pytest.raises(FilterError) as raised:
        Filter.parse(text, space)
    assert reason in str(raised.value)


def test_a_space_without_arithmetic_says_what_to_add():
    space = Space([Number("x"), Number("y")])
    with pytest.raises(FilterError, match="add an attribute to the space"):
        Filter.parse("x + y > 3", space)


def test_the_largest_condition_has_room_on_the_stack():
    space = Space([Number("x"), Arithmetic()])

    def balanced(depth):
        return "x" if depth == 0 else f"({balanced(depth - 1)} + {balanced(depth - 1)})"

    engine = Engine(space)
    engine.subscribe("left", " + ".join(["x"] * 63) + " > 62.5")
    engine.subscribe("right", "x + (" * 62 + "x" + ")" * 62 + " > 62.5")
    engine.subscribe("balanced", f"{balanced(5)} >= {balanced(4)} + {balanced(3)} + {balanced(2)}")
    assert engine.match({"x": 1}) == ["left", "right", "balanced"]
    assert engine.match({"x": 0.5}) == ["balanced"]
    assert engine.match({"x": -1}) == []


def test_why_says_the_value_and_what_was_asked():
    engine = Engine(Space([Number("x"), Number("y"), Arithmetic()]))
    engine.subscribe("sum", "x + y <= 10 and x > 1")
    engine.subscribe("ratio", "1.5 < x / y")
    engine.subscribe("near", "x + y <= 12")
    why = engine.why({"x": 8, "y": 4.5}, "sum")
    line = why.boxes[0][2]
    assert (line.wanted, line.value, line.distance) == (
        "x + y <= 10",
        "x + y is 12.5",
        "at most 10 asked",
    )
    assert not why.matches
    assert "x + y <= 10 fails at x + y is 12.5" in why.verdict
    line = engine.why({"x": 1, "y": 0}, "ratio").boxes[0][2]
    assert (line.value, line.holds) == ("x / y is undefined", False)
    line = engine.why({"x": 1}, "ratio").boxes[0][2]
    assert (line.value, line.holds) == ("x / y is missing", False)
    missed = engine.why_not({"x": 8, "y": 4.5})
    assert [one.subscription for one in missed][:2] == ["near", "sum"]
