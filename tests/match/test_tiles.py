"""Tiles: steps and cells decide nothing that an exact comparison would decide otherwise."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rangecast import Engine, Number, Point, Space
from rangecast.match.choose import build, choose
from rangecast.match.scan import Scan
from rangecast.match.tiles import Tiles
from rangecast.model.boxes import Boxes
from tests.support import adversarial, strategies
from tests.support.conformance import as_sets, check_matcher, streamed

CASES = adversarial.cases()
INF = np.inf


def small_boxes(n, seed=0, width=0.01, d=2):
    rng = np.random.default_rng(seed)
    lo = rng.random((n, d))
    return Boxes.of(lo, lo + rng.uniform(0, 2 * width, (n, d))), rng.random((1000, d))


def borders(index):
    """Values at which an event changes its step, and both neighbours of each, on both axes."""
    arrays = index.bundle.arrays
    made = []
    for origin, scale, sides in zip(arrays.origin, arrays.scale, arrays.sides, strict=True):
        cells = np.concatenate([np.arange(sides + 1), np.arange(sides) + 0.5, [1 / 128]])
        at = origin + cells * 128 / scale if scale else np.array([origin])
        made.append(np.concatenate([at, np.nextafter(at, -INF), np.nextafter(at, INF), [INF]]))
    return made


@given(strategies.boxes_and_points(), st.integers(1, 9))
def test_streams_and_single_events_say_the_same(case, buffer):
    boxes, points = case
    index = Tiles(boxes)
    expected = as_sets(Scan(boxes).match(points))
    assert streamed(index, points, buffer) == expected
    for point, rows in zip(points, expected, strict=True):
        one = index.match_one(point).tolist()
        assert len(one) == len(rows)
        assert set(one) == rows


@pytest.mark.parametrize("name", CASES)
def test_adversarial_streams(name):
    boxes, points = CASES[name]
    assert streamed(Tiles(boxes), points, 7) == as_sets(Scan(boxes).match(points))


@pytest.mark.parametrize("scale", [1.0, 1e-300, 1e300, 1e-3, 12345.678])
@pytest.mark.parametrize("origin", [0.0, -0.7, 1e6])
def test_ends_and_events_at_the_borders_of_steps_and_cells(scale, origin):
    """Boxes that end where cells do, or a hair beside, and events there."""
    boxes, _ = small_boxes(300, width=0.1)
    first = Tiles(Boxes.of((boxes.lo + origin) * scale, (boxes.hi + origin) * scale))
    x, y = borders(first)
    rng = np.random.default_rng(1)
    ends = np.sort(np.stack([rng.choice(at[:-1], (400, 2)) for at in (x, y)], axis=1), axis=2)
    boxes = Boxes.of(
        np.concatenate([first.bundle.arrays.lo, ends[..., 0]]),
        np.concatenate([first.bundle.arrays.hi, ends[..., 1]]),
    )
    index = Tiles(boxes)
    x, y = (np.concatenate(pair) for pair in zip((x, y), borders(index), strict=True))
    points = np.column_stack([rng.choice(x, 2000), rng.choice(y, 2000)])
    points = np.concatenate([points, boxes.lo, boxes.hi, np.nextafter(boxes.hi, INF)])
    check_matcher(Tiles, boxes, points)


def test_boxes_and_events_beyond_the_grid():
    """The grid is where finite boxes are; all else lies in its outermost cells."""
    boxes, points = small_boxes(500)
    half = np.array(
        [
            [[-INF, 0.2], [0.5, 0.3]],
            [[0.5, -INF], [INF, 0.01]],
            [[-INF, -INF], [INF, INF]],
            [[INF, 0.1], [INF, 0.9]],
            [[-INF, 0.1], [-INF, 0.9]],
            [[0.99, 0.99], [INF, INF]],
            [[-1.7e308, 0.4], [1.7e308, 0.5]],
        ]
    )
    boxes = Boxes.of(np.concatenate([boxes.lo, half[:, 0]]), np.concatenate([boxes.hi, half[:, 1]]))
    far = np.array([-INF, -1.7e308, -2.0, 0.0, 0.25, 0.5, 1.0, 1.1, 3.0, 1.7e308, INF])
    grid = np.stack(np.meshgrid(far, far), axis=-1).reshape(-1, 2)
    check_matcher(Tiles, boxes, np.concatenate([grid, points]))


@pytest.mark.parametrize(
    "ends",
    [
        ([0.5, 0.5], [0.5, 0.5]),
        ([-1.7e308, 0.0], [1.7e308, 0.0]),
        ([0.0, 0.0], [5e-324, 1.0]),
        ([-INF, -INF], [INF, INF]),
        ([INF, INF], [INF, INF]),
    ],
    ids=["points", "huge", "subnormal", "free", "null"],
)
def test_one_cell_with_everything(ends):
    boxes = Boxes.of(np.tile(ends[0], (300, 1)), np.tile(ends[1], (300, 1)))
    values = [0.0, 5e-324, 1e-323, 0.5, 1.0, -1.7e308, 1.7e308, INF]
    points = np.stack(np.meshgrid(values, values), axis=-1).reshape(-1, 2)
    check_matcher(Tiles, boxes, points)


def test_one_large_box_does_not_spoil_the_grid():
    boxes, points = small_boxes(2000)
    wide = Boxes.of(np.r_[boxes.lo, [[-1e6, -1e6]]], np.r_[boxes.hi, [[1e6, 1e6]]])
    check_matcher(Tiles, wide, points[:200])
    entries = len(Tiles(wide).bundle.arrays.boxes)
    assert entries <= 16 * len(wide.lo) + 1024


@pytest.mark.parametrize("d", [1, 3, 5])
def test_other_numbers_of_attributes(d):
    boxes, points = small_boxes(600, width=0.2, d=d)
    check_matcher(Tiles, boxes, points[:200])
    check_matcher(lambda given: Tiles(given, axes=(0, d - 1)), boxes, points[:200])


def test_a_subscription_of_several_boxes_is_reported_once():
    rng = np.random.default_rng(2)
    lo = rng.random((900, 2)) * 0.5
    boxes = Boxes.of(lo, lo + 0.4, owner=np.repeat(np.arange(300), 3))
    check_matcher(Tiles, boxes, rng.random((200, 2)))


def test_an_event_reads_one_cell_and_compares_hardly_a_box():
    boxes, points = small_boxes(50_000, width=0.005)
    index = Tiles(boxes)
    found = index.match(points)
    cell, held = found.work.visited / len(points), len(found.rows) / len(points)
    entries = len(index.bundle.arrays.boxes)
    assert entries <= 16 * len(boxes.lo)
    assert held <= cell <= 4 * held + 2
    assert found.work.tested < 0.1 * found.work.visited
    assert index.memory < 160 * len(boxes.lo)


def test_an_event_that_matches_everything_streams():
    boxes = Boxes.of(np.full((20_000, 2), -INF), np.full((20_000, 2), INF))
    index = Tiles(boxes)
    pieces = [piece for _, piece in index.stream(np.zeros((2, 2)), 1000)]
    assert sum(len(piece.rows) for piece in pieces) == 40_000
    assert index.match(np.zeros((2, 2))).work.tested == 40_000  # no end of a box tells it
    assert sorted(index.match_one(np.zeros(2)).tolist()) == list(range(20_000))


def test_sets_without_shapes_keep_their_structures():
    boxes, _ = small_boxes(5000)
    plain = Space([Number("x"), Number("y")])
    for space in (None, plain):
        given = Boxes.of(boxes.lo, boxes.hi, space=space)
        assert choose(given).name == build(given).name != "tiles"


def test_small_shapes_get_tiles_and_large_ones_do_not():
    rng = np.random.default_rng(3)
    for radius, is_small in ((5, True), (400, False)):
        engine = Engine(Space([Point("place")]))
        x, y = rng.uniform(0, 1000, (2, 3000)).tolist()
        engine.subscribe_many(
            {
                "id": list(range(3000)),
                "filter": [
                    f"within(place, circle({a!r}, {b!r}, {radius}))"
                    for a, b in zip(x, y, strict=True)
                ],
            }
        )
        name = choose(engine.boxes()).name
        assert (name == "tiles") == is_small
        assert f"part 1: {name}" in engine.explain()


def test_circles_through_edits():
    """Tiles without dead rows, with new ones beside, and after a rebuild."""
    rng = np.random.default_rng(5)
    engine = Engine(Space([Point("place")]))
    circles = {}

    def add(names):
        made = dict(zip(names, rng.uniform(0, 100, (len(names), 2)).tolist(), strict=True))
        engine.subscribe_many(
            {
                "id": list(made),
                "filter": [f"within(place, circle({x!r}, {y!r}, 1.5))" for x, y in made.values()],
            }
        )
        circles.update(made)

    add(range(3000))
    assert engine._view.parts[0].index.name == "tiles"
    for turn in range(6):
        gone = rng.choice(list(circles), 300, replace=False).tolist()
        engine.unsubscribe_many(gone)
        for name in gone:
            del circles[name]
        add(range(10_000 + 200 * turn, 10_000 + 200 * turn + 200))
        points = rng.uniform(0, 100, (50, 2))
        found = engine.match_many({"x": points[:, 0], "y": points[:, 1]})
        for event, (x, y) in enumerate(points.tolist()):
            held = {n for n, (a, b) in circles.items() if math.hypot(x - a, y - b) <= 1.5}
            assert set(found[event]) == held
            assert set(engine.match({"x": x, "y": y})) == held
    engine.wait_for_rebuild()
    assert engine.rebuild_count > 0
