"""Cells of large polygons and sketches of short rings: exact, and few edges are visited."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from rangecast import Engine, Point, Space
from rangecast.model.filters.filter import Filter
from tests.shapes.oracle import Ring, polygon_holds, wkt


def _round(corners: int, r: random.Random, low: float = 0.9) -> Ring:
    ring = []
    for corner in range(corners):
        angle, size = 2 * math.pi * corner / corners, r.uniform(low, 1.0)
        ring.append((size * math.cos(angle), size * math.sin(angle)))
    return [*ring, ring[0]]


def _comb(teeth: int) -> Ring:
    """A ring of whole numbers, whose edges run along borders of cells."""
    ring = [(0.0, 0.0), (2.0 * teeth, 0.0), (2.0 * teeth, 16.0)]
    for tooth in range(teeth - 1, -1, -1):
        ring += [(2.0 * tooth + 1, 16.0), (2.0 * tooth + 1, 4.0), (2.0 * tooth, 4.0)]
        ring += [(2.0 * tooth, 16.0)] if tooth else []
    return [*ring, ring[0]]


def _answers(rings: list[Ring], points: list[tuple[float, float]], border: str) -> list[bool]:
    engine = Engine(Space([Point("place", border=border)]))
    engine.subscribe(0, f"within(place, '{wkt(rings)}')")
    found = engine.match_many([{"x": x, "y": y} for x, y in points])
    some = range(0, len(points), 7)
    alone = [bool(engine.match({"x": points[at][0], "y": points[at][1]})) for at in some]
    assert alone == [bool(found[at]) for at in some]
    return [bool(one) for one in found]


@pytest.mark.parametrize("border", ["closed", "open", "once"])
@pytest.mark.parametrize("teeth", [8, 16, 32])
def test_edges_along_the_borders_of_cells(border, teeth):
    ring = _comb(teeth)
    r = random.Random(teeth)
    points = [(r.randint(0, 4 * teeth) / 2, r.randint(0, 32) / 2) for _ in range(250)]
    points += [
        (math.nextafter(x, r.choice([-1e9, 1e9])), math.nextafter(y, r.choice([-1e9, 1e9])))
        for x, y in points[:60]
    ]
    expected = [polygon_holds([ring], x, y, border) for x, y in points]
    assert _answers([ring], points, border) == expected


@pytest.mark.parametrize("scale", [1.0, 1e-9, 1e12])
@pytest.mark.parametrize("away", [0.0, 1.0, 1e6])
def test_any_scale_and_far_from_the_origin(scale, away):
    """Far from the origin, cells are hardly larger than what doubles can tell apart."""
    r = random.Random(f"{scale} {away}")
    outer = _round(90, r, 0.6)
    hole = [(0.3 * x, 0.3 * y) for x, y in _round(40, r)]
    rings = [[(scale * (x + away), scale * (y - away)) for x, y in ring] for ring in (outer, hole)]
    points = []
    for _ in range(150):
        ring = r.choice(rings)
        at = r.randrange(len(ring) - 1)
        (x1, y1), (x2, y2) = ring[at], ring[at + 1]
        share = r.choice([0.0, 0.5, r.random()])
        points.append((x1 + share * (x2 - x1), y1 + share * (y2 - y1)))
        x, y = r.uniform(-1, 1), r.uniform(-1, 1)
        points.append((scale * (x + away), scale * (y - away)))
    for some in (rings, rings[1:]):
        expected = [polygon_holds(some, x, y, "once") for x, y in points]
        assert _answers(some, points, "once") == expected


def _edges_visited(ring: Ring) -> float:
    """Edges that a point within the bounds is compared with, on average."""
    engine = Engine(Space([Point("place")]))
    engine.subscribe(0, f"within(place, '{wkt([ring])}')")
    points = np.random.default_rng(1).uniform(-1, 1, (5000, 2))
    engine.match_points(np.column_stack([points, np.full(len(points), np.inf)]))
    counts = engine._view.verifier.counts
    return counts.edges / counts.verified


def test_ten_thousand_corners_cost_as_few_edges_as_twenty():
    r = random.Random(3)
    assert _edges_visited(_round(20, r)) < 8
    for corners in (100, 1000, 10_000):
        assert _edges_visited(_round(corners, r, 0.999)) < 8
    assert _edges_visited(_round(10_000, r, 0.7)) < 60  # all edges are long, in a ring of spikes


def test_a_split_pays_for_its_boxes():
    space = Space([Point("place")])
    r = random.Random(4)

    def boxes(ring: Ring) -> int:
        return len(Filter.parse(f"within(place, '{wkt([ring])}')", space).boxes)

    assert boxes(_round(20, r)) == boxes(_round(1000, r)) == 1
    there = [(x / 100, x / 100 + math.sin(x / 9) / 20) for x in range(101)]
    back = [(x, y - 0.1) for x, y in reversed(there)]
    assert 4 <= boxes([*there, *back, there[0]]) <= 16
