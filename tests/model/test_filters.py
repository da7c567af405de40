"""Filters: their meaning, and their texts."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rangecast.errors import FilterError, UsageError
from rangecast.model.attributes.base import Boolean, Integer, Number
from rangecast.model.attributes.numbers import MAX
from rangecast.model.attributes.text import OTHER, String
from rangecast.model.attributes.timestamps import Timestamp
from rangecast.model.filters.filter import Filter
from rangecast.model.space import Space
from tests.support import filter_language as language
from tests.support.examples import examples
from tests.support.strategies import COORDINATES, intervals

INF = math.inf
NULL = (INF, INF)


def point(space: Space, event: dict[str, Any]) -> np.ndarray:
    return np.array([a.coordinate(event[a.name]) for a in space])


def held(some: Filter, points: np.ndarray) -> np.ndarray:
    """Return for each point whether any box contains it."""
    lo, hi = some.arrays()
    inside = (lo[:, None] <= points) & (points <= hi[:, None])
    return inside.all(axis=2).any(axis=0)


def or_never(make: Callable[[], Filter]) -> Filter | None:
    """Return the filter, `None` if it is rejected because it can never match."""
    try:
        return make()
    except FilterError as error:
        if "can never match" not in str(error):
            raise
        return None


def assert_small(some: Filter) -> None:
    """No box lies inside another, no two could be merged into one, and boxes are in order."""
    lo, hi = some.arrays()
    assert list(some.boxes) == sorted(set(some.boxes))
    for a, b in itertools.permutations(range(len(lo)), 2):
        assert not ((lo[a] <= lo[b]) & (hi[b] <= hi[a])).all()
        differing = np.flatnonzero((lo[a] != lo[b]) | (hi[a] != hi[b]))
        if len(differing) == 1 and lo[a, differing[0]] <= lo[b, differing[0]] < INF:
            attribute = some.space.attributes[differing[0]]
            step = np.nextafter(hi[a, differing[0]], INF)
            if not isinstance(attribute, Number):
                step = max(step, hi[a, differing[0]] + 1)
            assert lo[b, differing[0]] > step, (some, a, b)


# ---- meaning: against an interpreter that knows nothing of boxes


@examples(300)
@given(st.data())
def test_boxes_mean_what_the_text_says(data: st.DataObject) -> None:
    tree = data.draw(language.trees())
    text = data.draw(language.texts(tree))
    events = data.draw(st.lists(language.events(), min_size=1, max_size=12))
    expected = [language.holds(tree, event) is True for event in events]
    space = language.space()
    some = or_never(lambda: Filter.parse(text, space))
    if some is None:
        assert not any(expected)
        return
    points = np.array([point(space, event) for event in events])
    assert held(some, points).tolist() == expected
    assert_small(some)
    assert Filter.parse(text, space) == some
    written = str(some)
    assert Filter.parse(written, space) == some, written
    assert str(Filter.parse(written, space)) == written
    assert Filter.from_boxes(space, *some.arrays()) == some


@given(st.data())
def test_every_condition_and_its_negation(data: st.DataObject) -> None:
    condition = data.draw(language.conditions())
    for tree in (condition, ("not", condition), ("or", (condition, ("not", condition)))):
        space = language.space()
        every = [
            dict.fromkeys(language.VALUES) | {name: value}
            for name, values in language.EVENT_VALUES.items()
            for value in values
        ]
        expected = [language.holds(tree, event) is True for event in every]
        text = data.draw(language.texts(tree))
        some = or_never(lambda space=space, text=text: Filter.parse(text, space))
        if some is None:
            assert not any(expected)
        else:
            assert held(some, np.array([point(space, e) for e in every])).tolist() == expected


SMALL_GRID = [Integer("a", min=0, max=4), Integer("b", min=0, max=4), Boolean("c")]
EVERY_POINT = np.array(
    list(itertools.product([0, 1, 2, 3, 4, INF], [0, 1, 2, 3, 4, INF], [0, 1, INF])),
    dtype=np.float64,
)


@st.composite
def crowded_boxes(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    """Boxes that overlap, touch and lie inside one another all the time."""
    sides = st.tuples(st.integers(0, 4), st.integers(0, 4)).map(sorted)
    free, null = st.just([-INF, INF]), st.just([INF, INF])
    side = st.one_of(sides, sides, free, null)
    truth = st.one_of(st.sampled_from([[0, 0], [1, 1], [0, 1]]), free, free)
    boxes = np.array(draw(st.lists(st.tuples(side, side, truth), min_size=1, max_size=9)), float)
    return boxes[:, :, 0], boxes[:, :, 1]


@examples(400)
@given(crowded_boxes())
def test_crowded_boxes_become_few(bounds: tuple[np.ndarray, np.ndarray]) -> None:
    lo, hi = bounds
    space = Space(SMALL_GRID)
    each = [Filter.from_boxes(space, *one) for one in zip(lo, hi, strict=True)]
    inside = np.any([held(one, EVERY_POINT) for one in each], axis=0)
    together = Filter.from_boxes(space, lo, hi)
    written = Filter.parse(" or ".join(f"({one})" for one in each), space)
    for some in (together, written, Filter.parse(str(together), space)):
        assert held(some, EVERY_POINT).tolist() == inside.tolist()
        assert_small(some)
    assert Filter.parse(str(together), space) == together
    neither = or_never(lambda: Filter.parse(f"not ({together})", space))
    assert neither is None or not (held(neither, EVERY_POINT) & inside).any()


def test_growing_boxes_merge_to_the_end() -> None:
    """A spiral: each strip makes one box with all the strips before it, and with nothing else."""
    space = Space([Integer("a"), Integer("b")])
    a = b = (0, 0)
    strips = [(a, b)]
    for turn in range(60):
        if turn % 2 == 0:
            at = a[1] + 1 if turn % 4 == 0 else a[0] - 1
            strips.append(((at, at), b))
            a = min(at, a[0]), max(at, a[1])
        else:
            at = b[1] + 1 if turn % 4 == 1 else b[0] - 1
            strips.append((a, (at, at)))
            b = min(at, b[0]), max(at, b[1])
    parts = [
        f"a between {a[0]} and {a[1]} and b between {b[0]} and {b[1]}" for a, b in reversed(strips)
    ]
    assert (
        str(Filter.parse(" or ".join(parts), space))
        == "a between -15 and 15 and b between -15 and 15"
    )


def ranges(space: Space, text: str) -> list[dict[str, tuple[float, float]]]:
    some = Filter.parse(text, space)
    return [{space.names[axis]: (lo, hi) for axis, lo, hi in box} for box in some.boxes]


JUST_BELOW_5 = math.nextafter(5, 0)
JUST_ABOVE_5 = math.nextafter(5, 9)


@pytest.mark.parametrize(
    ("text", "boxes"),
    [
        ("true", [{}]),
        ("not false", [{}]),
        ("x < 5", [{"x": (-MAX, JUST_BELOW_5)}]),
        ("x > 5", [{"x": (JUST_ABOVE_5, MAX)}]),
        ("n < 5", [{"n": (-MAX, 4)}]),
        ("n <= 4.5", [{"n": (-MAX, 4)}]),
        ("n > 4.5", [{"n": (5, MAX)}]),
        ("percent >= -7", [{"percent": (0, 10)}]),
        ("small < 100", [{"small": (-2, 3)}]),
        ("x is null", [{"x": NULL}]),
        ("x is not null", [{"x": (-MAX, MAX)}]),
        ("not x is not null", [{"x": NULL}]),
        ("percent is not null", [{"percent": (0, 10)}]),
        ("x = 5 or x != 5", [{"x": (-MAX, MAX)}]),
        ("x <= 5 or x > 5", [{"x": (-MAX, MAX)}]),
        ("x is null or x is not null", [{"x": (-MAX, MAX)}, {"x": NULL}]),
        ("x != 5", [{"x": (-MAX, JUST_BELOW_5)}, {"x": (JUST_ABOVE_5, MAX)}]),
        ("not x < 5", [{"x": (5, MAX)}]),
        ("not (x < 5 and n < 5)", [{"x": (5, MAX)}, {"n": (5, MAX)}]),
        ("x = -0.0", [{"x": (0, 0)}]),
        ("x = 0.1", [{"x": (0.1, 0.1)}]),
        ("x = 0.1000000000000000055511151231257827", [{"x": (0.1, 0.1)}]),
        ("n in (1, 2, 3, 7)", [{"n": (1, 3)}, {"n": (7, 7)}]),
        ("n != 9007199254740993", [{"n": (-MAX, MAX)}]),
        ("n >= 1e30 and n <= 1e31", [{"n": (1e30, 1e31)}]),
        ("n <= 1e300 or n > 1e300", [{"n": (-MAX, MAX)}]),
        ("h = 'EU'", [{"h": (0, 2)}]),
        ("h in ('EU', 'ny')", [{"h": (0, 3)}]),
        ("h != 'fr'", [{"h": (0, 0)}, {"h": (2, 4)}]),
        ("ok = true or ok = false", [{"ok": (0, 1)}]),
        ("c != 'blue'", [{"c": (0, 1)}, {"c": (3, 3)}]),
        ("s = 'u'", [{"s": (0, 0)}]),
        ("s != 'u'", [{"s": (1, OTHER)}]),
        ("s in ('u', 'v') or s = 'w'", [{"s": (0, 2)}]),
        ("s not in ('u', 'v')", [{"s": (2, OTHER)}]),
        ("s = 'u' or s != 'u'", [{"s": (0, OTHER)}]),
        ("x between 20 and 10 or n = 1", [{"n": (1, 1)}]),
        ("x not between 20 and 10", [{"x": (-MAX, MAX)}]),
        ("n < 5 or n < 7 and x = 2 or n < 6", [{"x": (2, 2), "n": (-MAX, 6)}, {"n": (-MAX, 5)}]),
        ("x = 1 or true", [{}]),
        ("x = 1 and n = 1 or x = 1", [{"x": (1, 1)}]),
        ("n = 1 and x = 1 or n = 2 and x = 1", [{"x": (1, 1), "n": (1, 2)}]),
    ],
)  # fmt: skip
def test_semantics(text: str, boxes: list[dict[str, tuple[float, float]]]) -> None:
    assert ranges(language.space(), text) == boxes


def test_timestamps_are_exact_microseconds_in_utc() -> None:
    space = language.space()
    second = 1_000_000.0
    assert ranges(space, "at > '1970-01-01T00:00:01'") == [{"at": (second + 1, MAX)}]
    assert ranges(space, "at < '1970-01-01T02:00:01+02:00'") == [{"at": (-MAX, second - 1)}]
    assert ranges(space, "at = '1970-01-01T00:00:01.000001Z'") == [{"at": (second + 1,) * 2}]


def test_a_string_means_the_same_when_the_vocabulary_has_grown() -> None:
    space = language.space()
    first = Filter.parse("s != 'b'", space)
    Filter.parse("s in ('a', 'b', 'c')", space)
    assert str(first) == "s != 'b'"
    for text, expected in (("a", True), ("b", False), ("c", True), ("unheard of", True)):
        at = np.full((1, len(space)), INF)
        at[0, space.axis("s")] = space["s"].coordinate(text)
        assert held(first, at) == [expected]


# ---- back to a text


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("x >= 5 and x <= 5", "x = 5"),
        ("5 <= x and x <= 6.5", "x between 5 and 6.5"),
        ("x < 5 and x > 1", "1 < x < 5"),
        ("x >= 1 and x < 5", "1 <= x < 5"),
        ("n > 999", "n >= 1000"),
        ("x in (3, 2, 1)", "x in (1, 2, 3)"),
        ("x < 1 or x > 5", "x < 1 or x > 5"),
        ("not (1 < x < 5)", "x <= 1 or x >= 5"),
        ("x != 1 and x != 5", "x not in (1, 5)"),
        ("x >= 0 and x != 5", "x >= 0 and x != 5"),
        ("(x != 5 or x is null) and n = 1", "(x != 5 or x is null) and n = 1"),
        ("x not between 5 and 7 and x != 3", "x < 3 or 3 < x < 5 or x > 7"),
        ("x > 0 and x not in (3, 5, 7)", "x > 0 and x not in (3, 5, 7)"),
        ("n not in (5, 6) and n > 0", "n between 1 and 4 or n >= 7"),
        ("s not in ('v', 'u')", "s not in ('v', 'u')"),
        ("s = 'it''s'", "s = 'it''s'"),
        ("h in ('de', 'fr', 'it')", "h = 'EU'"),
        ("c != 'red'", "c != 'red'"),
        ("ok != true", "ok = false"),
        ("`my ``x` = 1", "`my ``x` = 1"),
        ("percent >= 0", "percent is not null"),
        ("at < '2026-01-01'", "at < '2026-01-01T00:00:00Z'"),
        ("x = 1 and n = 1 or x = 1 and n = 5", "x = 1 and n in (1, 5)"),
        ("x = 1 or n = 1", "x = 1 or n = 1"),
        ("x = 0 and n is null or x is null", "x = 0 and n is null or x is null"),
    ],
)
def test_written_as_a_person_would(text: str, written: str) -> None:
    space = language.space()
    assert str(Filter.parse(text, space)) == written
    assert Filter.parse(written, space) == Filter.parse(text, space)


EXTREMES = [
    f"at {sign} '{moment}'"
    for sign in ("<", "<=", "=", ">=", ">", "!=")
    for moment in (
        "0001-01-01T00:00:00+23:59:59.999999",
        "0001-01-01",
        "2255-06-05T23:47:34.740993",
        "9999-12-31T23:59:59.999999",
        "9999-12-31T23:59:59.999999-23:59:59.999999",
    )
] + [f"x {sign} {'-' * k}{MAX!r}" for sign in ("<", "<=", "=", ">=", ">") for k in (0, 1)]


@pytest.mark.parametrize("text", EXTREMES)
def test_the_ends_of_the_calendar_and_of_the_doubles(text: str) -> None:
    space = language.space()
    some = or_never(lambda: Filter.parse(text, space))
    assert some is None or Filter.parse(str(some), space) == some


@given(st.data())
def test_any_boxes_have_a_text(data: st.DataObject) -> None:
    space = Space(
        [Number("x"), Number("y", min=-1, max=2), Integer("n"), Timestamp("t"), Boolean("b")]
    )
    box = st.lists(intervals(), min_size=5, max_size=5)
    given_boxes = np.array(data.draw(st.lists(box, min_size=1, max_size=4)))
    lo, hi = given_boxes[:, :, 0], given_boxes[:, :, 1]
    coordinates = st.sampled_from([*COORDINATES, INF])
    points = np.array(
        data.draw(st.lists(st.lists(coordinates, min_size=5, max_size=5), min_size=1))
    )
    points[:, 1] = np.where(points[:, 1] < INF, np.clip(points[:, 1], -1, 2), INF)
    points[:, 2:4] = np.where(np.abs(points[:, 2:4]) < 100, np.floor(points[:, 2:4]), INF)
    points[:, 4] = np.where(points[:, 4] < INF, points[:, 4] > 0, INF)
    inside = ((lo[:, None] <= points) & (points <= hi[:, None])).all(axis=2).any(axis=0)
    some = or_never(lambda: Filter.from_boxes(space, lo, hi))
    if some is None:
        assert not inside.any()
        return
    assert held(some, points).tolist() == inside.tolist()
    assert_small(some)
    assert Filter.parse(str(some), space) == some


def test_one_box_has_a_text() -> None:
    space = Space([Number("x"), String("s", ["a", "b"])])
    assert str(Filter.from_boxes(space, [-INF, 1], [INF, OTHER])) == "s != 'a'"
    assert str(Filter.from_boxes(space, [-INF, -INF], [INF, INF])) == "true"
    assert str(Filter.from_boxes(space, [5, -INF], [INF, INF])) == "x >= 5 or x is null"
    assert str(Filter.from_boxes(space, [-INF, INF], [2, INF])) == "x <= 2 and s is null"
    with pytest.raises(UsageError, match="vocabulary of 2"):
        Filter.from_boxes(space, [0, 2], [1, 2])
    with pytest.raises(UsageError, match="empty or contains NaN"):
        Filter.from_boxes(space, [2, 0], [1, 0])
    with pytest.raises(UsageError, match="must have the shape"):
        Filter.from_boxes(space, [2], [1])
