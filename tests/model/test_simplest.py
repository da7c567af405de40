"""Boxes mean what a filter of them means: redundant ones don't count, at any interface."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given

from rangecast import Engine, Filter, Integer, Number, Space
from rangecast.client import Client
from rangecast.cover import CoverSet
from rangecast.model.attributes.numbers import MAX
from rangecast.model.boxes import Boxes
from rangecast.model.simplest import simplest
from tests.support import strategies
from tests.support.examples import examples
from tests.support.server.served import Served

INF = np.inf
SPACE = Space([Number("a"), Number("b")])
REDUNDANT = "a < 5 or a < 3 and b > 1"
MERGED = "a between 0 and 3 or a between 3 and 6 or a between 1 and 5 and b > 1"
EVENT = {"a": 2, "b": 2}
BELOW = float(np.nextafter(5, 0))
BOXES = Boxes.of(
    [[-MAX, -INF], [-MAX, np.nextafter(1, 2)], [0, -INF], [3, -INF], [1, np.nextafter(1, 2)]],
    [[BELOW, INF], [np.nextafter(3, 0), MAX], [3, INF], [6, INF], [5, MAX]],
    owner=[0, 0, 1, 1, 1],
    ids=["redundant", "merged"],
    weights=[[1, 1], [1, 1]],
)
RIGHT = [("redundant", 1.0), ("merged", 1.0)]


def test_a_redundant_alternative_does_not_count_however_it_is_given(tmp_path, cli) -> None:
    rows = [{"id": "redundant", "filter": REDUNDANT}, {"id": "merged", "filter": MERGED}]
    (tmp_path / "set.jsonl").write_text("\n".join(map(json.dumps, rows)))
    filters = [Filter.from_boxes(SPACE, BOXES.lo[:2], BOXES.hi[:2])]
    filters.append(Filter.from_boxes(SPACE, BOXES.lo[2:], BOXES.hi[2:]))
    assert [str(one) for one in filters] == ["a < 5", "a between 0 and 6"]
    ways = [BOXES, rows, pa.Table.from_pylist(rows), tmp_path / "set.jsonl"]
    ways.append([row | {"filter": str(one)} for row, one in zip(rows, filters, strict=True)])
    for way in ways:
        engine = Engine(SPACE)
        engine.subscribe_many(way)
        assert engine.rank(EVENT, relaxed=True) == RIGHT, way
    engine = Engine(SPACE)
    for row, one in zip(rows, filters, strict=True):
        engine.subscribe(row["id"], one)
    assert engine.rank(EVENT, relaxed=True) == RIGHT
    engine.replace("redundant", (BOXES.lo[:2], BOXES.hi[:2]))
    engine.upsert_many(BOXES)
    assert engine.rank(EVENT, relaxed=True) == RIGHT
    engine.save(tmp_path / "saved")
    assert Engine.open(tmp_path / "saved").rank(EVENT, relaxed=True) == RIGHT
    SPACE.save(tmp_path / "space.toml")
    (tmp_path / "events.jsonl").write_text(json.dumps({"id": 1, **EVENT}))
    files = ("events.jsonl", "set.jsonl", "--space", "space.toml", "-q", "-o", "out.jsonl")
    cli("rank", "--relaxed", *files, cwd=tmp_path)
    found = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [(one["subscription"], one["score"]) for one in found] == RIGHT


def test_a_redundant_alternative_does_not_count_at_a_server() -> None:
    served = Served(spaces={"plane": SPACE})
    try:
        with Client(served.url, space="plane") as client:
            client.subscribe("redundant", REDUNDANT)
            client.subscribe("merged", MERGED)
            assert client.rank(EVENT, relaxed=True) == RIGHT
    finally:
        served.stop()


def test_a_redundant_alternative_does_not_count_on_spark(spark) -> None:
    from rangecast.spark import rank

    events = spark.createDataFrame([(1, 2.0, 2.0)], "id long, a double, b double")
    texts = [("redundant", REDUNDANT, 0), ("merged", MERGED, 1)]
    for given_set in (BOXES, spark.createDataFrame(texts, "id string, filter string, seq long")):
        found = rank(events, given_set, SPACE, 5, relaxed=True).orderBy("rank").collect()
        assert [(row["subscription"], row["score"]) for row in found] == RIGHT


def test_boxes_that_make_one_cover_what_lies_in_it() -> None:
    cover = CoverSet(SPACE)
    cover.subscribe_many(
        Boxes.of([[0, 0], [3, 0], [1, 1]], [[3, 9], [6, 9], [5, 5]], owner=[0, 0, 1])
    )
    assert cover.covered_by(1) == [0]


@examples(60)
@given(strategies.boxes(max_rows=8))
def test_each_row_is_as_its_filter_has_it(boxes: Boxes) -> None:
    space = Space([Number(f"a{axis}") for axis in range(boxes.dimensions)])
    found = simplest(boxes, space)
    assert found.ids.equals(boxes.ids)
    for row in range(boxes.rows):
        some = slice(*boxes.box_offsets[row : row + 2])
        lo, hi = Filter.from_boxes(space, boxes.lo[some], boxes.hi[some]).arrays()
        mine = slice(*found.box_offsets[row : row + 2])
        order, other = (
            np.lexsort((*h.T, *one.T)) for one, h in ((lo, hi), (found.lo[mine], found.hi[mine]))
        )
        assert np.array_equal(lo[order], found.lo[mine][other])
        assert np.array_equal(hi[order], found.hi[mine][other])


@pytest.mark.parametrize(
    ("lo", "hi", "right"),
    [
        ([[0], [4]], [[3], [9]], "n between 0 and 9"),
        ([[0], [5]], [[3], [9]], "n between 0 and 9 and n != 4"),
        ([[0.5], [1]], [[1.5], [1]], "n = 1"),  # off the grid: the second lies inside the first
        ([[-INF], [INF]], [[INF], [INF]], "true"),
    ],
)
def test_the_grid_of_an_attribute_counts(lo, hi, right) -> None:
    space = Space([Integer("n")])
    found = simplest(Boxes.of(lo, hi, owner=[0, 0]), space)
    assert str(Filter.from_boxes(space, found.lo, found.hi)) == right
    assert len(found.lo) == len(Filter.parse(right, space).boxes)
