"""Shapes that can't be used: an error with its position, and the rest of a batch is kept."""

from __future__ import annotations

import math

import pytest

from rangecast import Arithmetic, Engine, FilterError, Location, Number, Point, Space
from rangecast.errors import RangecastError
from rangecast.model.filters.filter import Filter

GOOD = "within(place, 'POLYGON ((0 0, 4 0, 4 4, 0 0))')"
CROSSED = "within(place, 'POLYGON ((0 0, 2 2, 2 0, 0 2, 0 0))')"


def circle_of(corners: int) -> str:
    """Return a polygon of many corners, whose first one is repeated at its end."""
    turns = [2 * math.pi * at / corners for at in range(corners)]
    listed = [f"{math.cos(turn):.9f} {math.sin(turn):.9f}" for turn in turns]
    return f"POLYGON (({', '.join([*listed, listed[0]])}))"


def test_a_million_corners():
    engine = Engine(Space([Point("place")]))
    engine.subscribe("good", GOOD)
    large = f"within(place, 'POLYGON ((0 0{', 1 1' * 999_999}, 0 0))')"
    with pytest.raises(FilterError) as raised:
        engine.subscribe("large", large)
    assert "at most 100,000 corners; given: 1,000,001" in str(raised.value)
    assert "simplify it" in raised.value.hint
    assert raised.value.span is not None
    assert len(str(raised.value)) < 2000
    with pytest.raises(RangecastError, match=r"at most 100,000 corners"):
        engine.subscribe_many([{"id": "a", "filter": GOOD}, {"id": "b", "filter": large}])
    assert engine.match({"x": 3, "y": 1}) == ["good"]


def test_the_largest_shape():
    engine = Engine(Space([Point("place")]))
    engine.subscribe("large", f"within(place, '{circle_of(99_999)}')")
    assert engine.match({"x": 0.7, "y": 0.7}) == ["large"]
    assert engine.match({"x": 0.71, "y": 0.71}) == []


@pytest.mark.parametrize(
    ("wkt", "reason"),
    [
        ("POLYGON ()", "at least one ring"),
        ("POLYGON (())", "at least three corners"),
        ("POLYGON ((0 0, 4 0, 4 4, 0 0), ())", "at least three corners"),
        ("MULTIPOLYGON (((0 0, 4 0, 4 4, 0 0)), ())", "at least one ring"),
        ("MULTIPOLYGON EMPTY", "the shape is empty"),
        ("POLYGON ((0 0, 0 0, 0 0, 0 0))", "must enclose an area"),
        ("POLYGON ((0 0, 4 0, 4 inf, 0 0))", "has no meaning here"),
        ("POLYGON ((0 0, 4 0, 4 1e999, 0 0))", "magnitude"),
        ("POLYGON ((0 0, 4 0, 4 1e-200, 0 0))", "magnitude"),
        ('{"type": "Polygon", "coordinates": [[[0, 0], [NaN, 0], [4, 4], [0, 0]]]}', "magnitude"),
        ('{"type": "Polygon", "coordinates": []}', "at least one ring"),
        ('{"type": "Polygon", "coordinates": [[]]}', "at least three corners"),
        ('{"type": "MultiPolygon", "coordinates": []}', "the shape is empty"),
    ],
)
def test_empty_rings_and_no_numbers(wkt, reason):
    text = f"x > 3 and within(place, '{wkt}')"
    with pytest.raises(FilterError) as raised:
        Filter.parse(text, Space([Point("place")]))
    assert reason in str(raised.value)
    assert raised.value.span is not None
    assert raised.value.span[0] >= text.index("within")


def test_winding_heights_and_measures_make_no_difference():
    engine = Engine(Space([Point("place")]))
    rings = {
        "left": "POLYGON ((0 0, 4 0, 4 4, 0 4, 0 0), (1 1, 1 2, 2 2, 1 1))",
        "right": "POLYGON ((0 0, 0 4, 4 4, 4 0, 0 0), (1 1, 2 2, 1 2, 1 1))",
        "z": "POLYGON Z ((0 0 9, 4 0 9, 4 4 9, 0 4 9, 0 0 9), (1 1 9, 1 2 9, 2 2 9, 1 1 9))",
        "m": "POLYGON M ((0 0 7, 4 0 7, 4 4 8, 0 4 8, 0 0 7), (1 1 1, 1 2 1, 2 2 1, 1 1 1))",
        "zm": "POLYGON ZM ((0 0 1 2, 4 0 1 2, 4 4 1 2, 0 4 1 2, 0 0 1 2))",
    }
    for name, ring in rings.items():
        engine.subscribe(name, f"within(place, '{ring}')")
    assert engine.match({"x": 3, "y": 3}) == list(rings)
    assert engine.match({"x": 1.2, "y": 1.6}) == ["zm"]
    assert engine.match({"x": 5, "y": 3}) == []


def test_a_bad_row_is_rejected_and_the_others_are_kept(tmp_path, cli):
    Space([Point("place")]).save(tmp_path / "space.toml")
    rows = [("a", GOOD), ("b", CROSSED), ("c", "within(place, circle(3, 1, 1))")]
    lines = ["id,filter", *(f'{name},"{text}"' for name, text in rows)]
    (tmp_path / "subscriptions.csv").write_text("\n".join(lines) + "\n")
    (tmp_path / "events.csv").write_text("id,x,y\n1,3,1\n")
    files = ("events.csv", "subscriptions.csv", "--space", "space.toml")
    done = cli("match", *files, "--rejected", "no.csv", "-o", "-", cwd=tmp_path)
    assert "1,a" in done.stdout
    assert "1,c" in done.stdout
    assert "cross or overlap" in (tmp_path / "no.csv").read_text()


def test_undefined_arithmetic_of_a_batch_matches_nothing():
    """Overflow and division by zero: no match, no exception, and the other events are matched."""
    engine = Engine(Space([Number("a"), Number("b"), Arithmetic()]))
    engine.subscribe("ratio", "a / b > 1")
    engine.subscribe("not", "not (a / b > 1)")
    engine.subscribe("product", "a * b > 10")
    engine.subscribe("difference", "a * b - a * b <= 0")
    events = [
        {"a": 3, "b": 2},
        {"a": 3, "b": 0},
        {"a": 0, "b": 0},
        {"a": 1e300, "b": 1e300},
        {"a": 1e300, "b": 1e-300},
        {"a": 12, "b": 1},
    ]
    expected = [
        ["ratio", "difference"],
        ["difference"],
        ["difference"],
        ["not"],
        ["difference"],
        ["ratio", "product", "difference"],
    ]
    assert [engine.match(event) for event in events] == expected
    assert [list(ids) for ids in engine.match_many(events)] == expected


def test_units_are_named():
    with pytest.raises(FilterError) as raised:
        Filter.parse("within(at, circle(13, 52, 5 miles))", Space([Location("at")]))
    assert "units: m, km, mi" in str(raised.value)
    assert raised.value.span is not None
