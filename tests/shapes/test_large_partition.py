"""10,000 polygons with shared corners: no point is lost between them, and none counts twice."""

from __future__ import annotations

import numpy as np
import pytest
import shapely

from rangecast import Engine, Location, Point, Space

SIDE = 100
"""Polygons in a row, and rows."""


class Partition:
    """Octagons between corners that were moved: those of cells, and one on each edge of a cell."""

    def __init__(self, side: int, seed: int, scale: float = 1.0):
        self.side, self.scale = side, scale
        rng = np.random.default_rng(seed)
        at = np.stack(np.meshgrid(*[np.arange(2 * side + 1) / 2] * 2, indexing="ij"), axis=-1)
        moved = rng.random(at.shape[:2]) < 0.8  # the others stay on one level with neighbours
        corner = np.where(moved[..., None], (at + rng.uniform(-0.12, 0.12, at.shape)), at) * scale
        self.corner = corner
        around = [(0, 0), (1, 0), (2, 0), (2, 1), (2, 2), (1, 2), (0, 2), (0, 1), (0, 0)]
        cell = 2 * np.arange(side)
        self.rings = np.stack(
            [corner[np.ix_(cell + x, cell + y)].reshape(-1, 2) for x, y in around], axis=1
        )

    def filters(self) -> list[str]:
        return [
            f"within(place, 'POLYGON (({', '.join(f'{x!r} {y!r}' for x, y in ring)}))')"
            for ring in self.rings.tolist()
        ]

    def inner_points(self, rng: np.random.Generator, count: int) -> np.ndarray:
        """Inner corners, points of inner edges as doubles have them, neighbours of both, and any.

        A corner in the middle of a cell's edge is on an edge of two polygons, others are of four.
        """
        corners = np.concatenate(
            [self.corner[2:-2:2, 1:-1].reshape(-1, 2), self.corner[1:-1, 2:-2:2].reshape(-1, 2)]
        )
        first, second = self.rings[:, :-1].reshape(-1, 2), self.rings[:, 1:].reshape(-1, 2)
        share = rng.choice([0.5, 0.25, 0.1], len(first))
        share = np.where(rng.random(len(first)) < 0.5, rng.random(len(first)), share)
        edges = first + share[:, None] * (second - first)
        some = np.concatenate([corners, edges])
        beside = np.nextafter(some, rng.choice([-np.inf, np.inf], some.shape))
        low, high = 0.15 * self.scale, (self.side - 0.15) * self.scale  # the outline moves less
        anywhere = rng.uniform(low, high, (count, 2))
        points = np.concatenate([some, beside, anywhere])
        return points[((points > low) & (points < high)).all(axis=1)]


def engine_of(place: Point | Location, filters: list[str]) -> Engine:
    engine = Engine(Space([place]))
    engine.subscribe_many({"id": list(range(len(filters))), "filter": filters})
    return engine


def holders(engine: Engine, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the number of polygons that contain each point, and (event, polygon) of all pairs."""
    found = engine.match_points(np.column_stack([points, np.full(len(points), np.inf)]))
    counts = np.diff(found.matches.offsets)
    pairs = np.stack([np.repeat(np.arange(len(points)), counts), found.ids])
    return counts, pairs


def test_every_point_of_10000_polygons_is_in_one():
    partition = Partition(SIDE, seed=1)
    points = partition.inner_points(np.random.default_rng(2), 20_000)
    assert len(points) > 150_000
    filters = partition.filters()
    once, _ = holders(engine_of(Point("place", border="once"), filters), points)
    assert (once == 1).all()
    closed, pairs = holders(engine_of(Point("place"), filters), points)
    assert (closed >= 1).all()
    inside, _ = holders(engine_of(Point("place", border="open"), filters), points)
    assert (inside <= 1).all()
    # What lies on a border is in none of the open ones and in several of the closed ones.
    assert ((inside == 0) == (closed > 1)).all()
    assert (inside == 0).sum() > 29_000
    tree = shapely.STRtree(shapely.points(points))
    polygon, point = tree.query(shapely.polygons(partition.rings), predicate="covers")
    order = np.lexsort([polygon, point])
    expected = np.stack([point, polygon])[:, order]
    np.testing.assert_array_equal(pairs[:, np.lexsort(pairs[::-1])], expected)


@pytest.mark.parametrize("scale", [1e-7, 1e12])
def test_tiny_and_huge_ones(scale):
    partition = Partition(20, seed=5, scale=scale)
    points = partition.inner_points(np.random.default_rng(6), 2000)
    filters = partition.filters()
    once, _ = holders(engine_of(Point("place", border="once"), filters), points)
    assert (once == 1).all()
    closed, _ = holders(engine_of(Point("place"), filters), points)
    assert (closed >= 1).all()


@pytest.mark.parametrize("edges", ["straight", "geodesic"])
@pytest.mark.parametrize("turn", [0.0, 175.0])
def test_the_same_on_the_earth_and_over_the_antimeridian(edges, turn):
    partition = Partition(20, seed=3)
    rng = np.random.default_rng(4)
    points = partition.inner_points(rng, 2000)
    # Halves and twentieths of degrees are turned as they are: a corner stays what it is.
    lattice = 2.0**20
    partition.rings = np.round(partition.rings * lattice) / lattice
    corners = np.round(partition.corner[2:-2, 2:-2].reshape(-1, 2) * lattice) / lattice
    points = np.concatenate([points, corners])
    for values in (partition.rings, points):
        values[..., 0] = (values[..., 0] + turn + 180.0) % 360.0 - 180.0
    names = {"longitude": "x", "latitude": "y", "edges": edges}
    filters = partition.filters()
    once, _ = holders(engine_of(Location("place", border="once", **names), filters), points)
    assert (once == 1).all()
    closed, _ = holders(engine_of(Location("place", **names), filters), points)
    assert (closed >= 1).all()
