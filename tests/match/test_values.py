"""Value lists: every answer is that of the oracle, and only the boxes of a value are looked at."""

from __future__ import annotations

import numpy as np
import pytest

from rangecast import Category, Engine, Integer, Number, Space, String, Text
from rangecast.match.choose import build, choose
from rangecast.match.scan import Scan
from rangecast.match.values.index import Values
from rangecast.model.boxes import Boxes
from tests.support.conformance import as_sets, check_matcher, streamed


def drawn(seed: int, *, single: bool = False) -> tuple[Boxes, np.ndarray]:
    """Boxes with a value, several neighbouring ones, or none, alone and of one subscription."""
    r = np.random.default_rng(seed)
    space = Space([Number("x"), Integer("code"), Number("y")])
    count = 300
    lo, hi = np.full((count, 3), -np.inf), np.full((count, 3), np.inf)
    lo[:, 1] = r.integers(0, 30, count)
    hi[:, 1] = lo[:, 1] + np.where(r.random(count) < 0.2, r.integers(0, 5, count), 0)
    for axis in (0, 2):
        some = r.random(count) < 0.5
        lo[some, axis] = r.integers(0, 9, some.sum())
        hi[some, axis] = lo[some, axis] + r.integers(0, 5, some.sum())
    wide = r.random(count) < 0.02
    lo[wide, 1], hi[wide, 1] = -np.inf, np.inf
    owner = np.arange(count) if single else np.sort(r.integers(0, 120, count))
    owner = np.unique(owner, return_inverse=True)[1].astype(np.int32)
    points = np.column_stack([r.integers(0, 12, 200), r.integers(-1, 40, 200), r.random(200) * 12])
    points[r.random(points.shape) < 0.05] = np.inf
    return Boxes.of(lo, hi, owner=owner, space=space), points.astype(np.float64)


@pytest.mark.parametrize("seed", range(6))
def test_answers_are_those_of_the_oracle(seed):
    boxes, points = drawn(seed, single=seed % 2 == 0)
    check_matcher(Values, boxes, points)
    assert streamed(Values(boxes), points, 3) == as_sets(Scan(boxes).match(points))
    check_matcher(lambda some: Values(some, axis=0), boxes, points)
    check_matcher(Values, Boxes.of(boxes.lo, boxes.hi, owner=boxes.owner), points)
    check_matcher(Values, boxes.take(np.arange(0)), points)


@pytest.mark.parametrize("kind", [Category, String, Text])
def test_equality_looks_at_the_boxes_of_a_value(kind):
    symbols = [f"S{n}" for n in range(400)]
    engine = Engine(Space([kind("symbol", symbols), Number("price")]))
    filters = [f"symbol = 'S{n % 400}'" + f" and price < {n % 7}" * (n % 2) for n in range(4000)]
    filters += ["symbol in ('S1', 'S2', 'S3')", "symbol = 'S5' or symbol = 'S5' and price > 3"]
    engine.subscribe_many({"id": list(range(len(filters))), "filter": filters})
    index = build(engine.boxes())
    assert (choose(engine.boxes()).name, index.name) == ("values", "values")
    for symbol, price in [("S5", 4), ("S2", 1), ("S399", 6), ("other", 1)]:
        if symbol == "other" and kind is Category:
            continue
        asked = [n for n in range(4000) if symbol == f"S{n % 400}"]
        expected = [n for n in asked if n % 2 == 0 or price < n % 7]
        expected += [4000] * (symbol == "S2") + [4001] * (symbol == "S5")
        event = {"symbol": symbol, "price": price}
        assert engine.match(event) == list(engine.match_many([event])[0]) == expected
    engine.unsubscribe(5)
    engine.subscribe(4002, "symbol = 'S5' and price = 4")
    found = engine.match({"symbol": "S5", "price": 4})
    assert {4001, 4002} < {*found}
    assert 5 not in found


def test_few_values_and_others_are_found_otherwise():
    r = np.random.default_rng(1)
    lo = r.integers(0, 5, (20_000, 2)).astype(np.float64)
    assert choose(Boxes.of(lo, lo.copy())).name != "values"
    hi = lo + r.random((20_000, 2))
    assert choose(Boxes.of(lo, hi)).name != "values"
