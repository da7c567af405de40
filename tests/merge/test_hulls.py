"""Bounding boxes: they hold all that the subscriptions hold, and are as few as asked for."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rangecast import Boxes, Engine, Integer, Number, Space, String, UsageError
from rangecast.match.scan import Scan
from rangecast.merge import bounding_boxes
from rangecast.model.io.files import read_tables
from rangecast.model.simplest import simplest
from tests.support import adversarial, strategies
from tests.support.examples import examples


def space_of(boxes):
    return Space([Number(f"a{axis}") for axis in range(boxes.dimensions)])


def held(boxes, points):
    return np.diff(Scan(boxes).match(points).offsets) > 0


def check(boxes, points, most):
    space = space_of(boxes)
    hulls = bounding_boxes(boxes, space, most)
    given = len(simplest(boxes, space).lo)  # without boxes that another of their filter holds
    assert len(hulls.lo) == hulls.rows == min(most, given)
    assert not (held(boxes, points) & ~held(hulls, points)).any()
    for bounds, whole in ((hulls.lo, boxes.lo), (hulls.hi, boxes.hi)):
        assert (np.isin(bounds, whole) | (bounds == -np.inf)).all()  # no wider than they need be


@pytest.mark.conformance
@examples(60)
@given(case=strategies.boxes_and_points(), most=st.integers(1, 40))
def test_no_event_is_lost(case, most):
    check(*case, most)


@pytest.mark.parametrize("case", adversarial.cases().values(), ids=adversarial.cases())
def test_no_event_is_lost_in_adversarial_cases(case):
    boxes, points = case
    for most in (1, 7, 10_000):
        check(boxes, points, most)


def test_the_example_of_the_paper():
    """Figure 5b: three overlapping rectangles become their bounding rectangle."""
    boxes = Boxes.of([[0, 0], [1, 2], [3, 1]], [[2, 3], [4, 5], [6, 4]])
    hull = bounding_boxes(boxes, space_of(boxes), 1)
    assert (hull.lo.tolist(), hull.hi.tolist()) == ([[0, 0]], [[6, 5]])


def test_clusters_are_found():
    rng = np.random.default_rng(0)
    centres = np.array([[0, 0], [100, 0], [0, 100], [100, 100]])
    lo = np.repeat(centres, 250, axis=0) + rng.random((1000, 2))
    order = rng.permutation(1000)
    boxes = Boxes.of(lo[order], lo[order] + 1)
    hulls = bounding_boxes(boxes, space_of(boxes), 4)
    assert sorted(np.round(hulls.lo, -1).tolist()) == sorted(centres.astype(float).tolist())
    assert ((hulls.hi - hulls.lo) < 3).all()


def test_equal_boxes_take_few_rounds():
    boxes = Boxes.of(np.zeros((50_000, 2)), np.ones((50_000, 2)))
    hulls = bounding_boxes(boxes, space_of(boxes), 1)
    assert (hulls.lo.tolist(), hulls.hi.tolist()) == ([[0, 0]], [[1, 1]])


def test_a_missing_value_and_a_range_together_are_no_condition():
    space = Space([Number("price", min=0), Number("risk")])
    given = {"id": [1, 2], "filter": ["price < 5 and risk < 1", "price is null and risk < 2"]}
    engine = Engine(space)
    engine.subscribe_many(bounding_boxes(given, space, 1))
    assert engine[0].filter == "risk < 2"


def test_none_is_rejected():
    boxes = Boxes.of([[0.0]], [[1.0]])
    with pytest.raises(UsageError, match="bounding boxes must be at least 1"):
        bounding_boxes(boxes, space_of(boxes), 0)


def test_they_are_written_as_filters(cli, tmp_path):
    space = Space([String("symbol"), Integer("price", min=0, max=99)])
    space.save(tmp_path / "space.toml")
    filters = {i: f"symbol = 'S{i % 3}' and price between {i} and {i + 3}" for i in range(40)}
    filters |= {40: "price is null", 41: "symbol != 'S1' or price > 90"}
    lines = [f'{i},"{text}"' for i, text in filters.items()]
    (tmp_path / "subscriptions.csv").write_text("id,filter\n" + "\n".join(lines) + "\n")
    events = [{"symbol": f"S{i % 4}", "price": (7 * i) % 100} for i in range(200)]
    rows = [f"{event['symbol']},{event['price']}" for event in events]
    (tmp_path / "events.csv").write_text("symbol,price\n" + "\n".join(rows) + "\n")
    given = ("merge", "subscriptions.csv", "--space", "space.toml", "--max-ranges", 5)
    done = cli(*given, "--events", "events.csv", "--bounding-boxes", "boxes.csv", "-o", "s.csv")
    assert "% of the sample events pass 5 bounding boxes" in done.stderr
    (written,) = read_tables(tmp_path / "boxes.csv")
    whole, summary = Engine(space), Engine(space)
    whole.subscribe_many({"id": list(filters), "filter": list(filters.values())})
    summary.subscribe_many(tmp_path / "boxes.csv")
    assert written.num_rows == len(summary) == 5
    for wanted, passes in zip(whole.match_many(events), summary.match_many(events), strict=True):
        assert passes or not wanted
