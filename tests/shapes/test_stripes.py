"""Large polygons with geodesic edges: stripes of longitude change no answer, and save work."""

from __future__ import annotations

import math

import numpy as np
import pytest

from rangecast import Engine, Location, Space
from rangecast.kernels.arrays import F64
from rangecast.model.shapes.verification import programs, stripes

CORNERS = 10_000


def coast(longitude: float, latitude: float, size: float, corners: int = CORNERS) -> F64:
    """Return a ring with many bays, (corners + 1, 2)."""
    angle = np.arange(corners) / corners * 2 * np.pi
    rng = np.random.default_rng(corners)
    radius = np.full(corners, size)
    for wave in range(2, 40):
        radius *= 1 + 0.2 / wave * np.sin(wave * angle + rng.uniform(0, 6))
    ring = np.column_stack([longitude + radius * np.cos(angle), latitude + radius * np.sin(angle)])
    return np.vstack([ring, ring[:1]])


def cap(latitude: float, corners: int = CORNERS) -> F64:
    """Return a ring round the north pole, which it has on its left."""
    turn = np.arange(corners + 1) / corners * 360.0
    bays = latitude + 3 * np.sin(np.radians(7 * turn)) + np.sin(np.radians(101 * turn))
    return np.column_stack([(turn + 180.0) % 360.0 - 180.0, bays])


def text_of(ring: F64) -> str:
    corners = [((x + 180.0) % 360.0 - 180.0, y) for x, y in ring.tolist()]
    corners[-1] = corners[0]
    return f"within(at, 'POLYGON (({', '.join(f'{x!r} {y!r}' for x, y in corners)}))')"


def engine_of(rings: dict[str, F64]) -> Engine:
    space = Space([Location("at", longitude="x", latitude="y", edges="geodesic")])
    engine = Engine(space)
    for name, ring in rings.items():
        engine.subscribe(name, text_of(ring))
    return engine


def north_of(ring: F64, x: float, y: float) -> tuple[int, float]:
    """Return how many edges lie north of a point, and how near one of them is, by a formula for the
    latitude of a great circle at a longitude.
    """
    x1, x2 = ring[:-1, 0], ring[1:, 0]
    y1, y2 = np.radians(ring[:-1, 1]), np.radians(ring[1:, 1])
    wide = (x2 - x1 + 180.0) % 360.0 - 180.0
    along = (x - x1 + 180.0) % 360.0 - 180.0
    meets = np.where(wide > 0, (along >= 0) & (along < wide), (along < 0) & (along >= wide))
    turn, part = np.radians(wide[meets]), np.radians(along[meets])
    tangent = np.tan(y1[meets]) * np.sin(turn - part) + np.tan(y2[meets]) * np.sin(part)
    latitude = np.degrees(np.arctan2(tangent, np.sin(turn)))
    latitude = np.where(np.sin(turn) < 0, latitude - 180 * np.sign(latitude), latitude)
    apart = np.abs(latitude - y)
    return int((latitude > y).sum()), float(apart.min()) if len(apart) else math.inf


@pytest.mark.parametrize(
    ("ring", "pole"),
    [
        (coast(13.0, 50.0, 4.0), False),
        (coast(179.5, -20.0, 9.0), False),
        (coast(-60.0, 80.0, 6.0), False),
        (cap(70.0), True),
    ],
    ids=["berlin", "antimeridian", "north", "pole"],
)
def test_large_polygons_are_those_of_great_circles(ring: F64, pole: bool):
    engine = engine_of({"one": ring})
    rng = np.random.default_rng(3)
    (x0, y0), (x1, y1) = ring.min(axis=0) - 1, np.minimum(ring.max(axis=0) + 1, [540.0, 90.0])
    points = np.column_stack([rng.uniform(x0, x1, 400), rng.uniform(y0, y1, 400)])
    near = ring[rng.integers(0, len(ring), 200)] + rng.normal(0, 1e-4, (200, 2))
    inside = 0
    for x, y in [*points.tolist(), *near.tolist()]:
        above, apart = north_of(ring, x, y)
        if apart < 1e-9 or y > 90:
            continue
        event = {"x": (x + 180.0) % 360.0 - 180.0, "y": y}
        wanted = (above % 2 == 1) != pole
        assert engine.match(event) == ["one"] * wanted, event
        inside += wanted
    assert 100 < inside < 550


def test_few_edges_are_visited():
    rings = {"one": coast(13.0, 50.0, 4.0), "cap": cap(70.0), "far": coast(179.5, 10.0, 8.0)}
    engine = engine_of(rings)
    rng = np.random.default_rng(4)
    for name, ring in rings.items():
        before = engine._view.verifier.counts if engine._view.verifier else None
        x, y = ring[rng.integers(0, CORNERS, 500)].T
        x = (x + 180.0) % 360.0 - 180.0
        engine.match_many({"x": x, "y": np.minimum(y + 0.01, 90.0)})
        counts = engine._view.verifier.counts
        edges = counts.edges - (before.edges if before else 0)
        assert 500 <= edges < 500 * 30, name  # of 10,000


def test_stripes_change_no_answer_at_corners_and_borders(monkeypatch: pytest.MonkeyPatch):
    rings = {"one": coast(179.9, 50.0, 0.5, 301), "cap": cap(70.0, 400), "tiny": coast(0, 0, 1e-8)}
    rng = np.random.default_rng(5)
    points = []
    for ring in rings.values():
        some = ring[rng.integers(0, len(ring) - 1, 60)]
        points += [some, (some + np.roll(some, 1, axis=0)) / 2]
        for beside in (-np.inf, np.inf):
            points.append(np.column_stack([np.nextafter(some[:, 0], beside), some[:, 1]]))
    points.append(np.column_stack([np.linspace(-180, 180, 37), np.full(37, 90.0)]))
    whole = np.concatenate(points)
    whole[:, 0] = (whole[:, 0] + 180.0) % 360.0 - 180.0
    events = [{"x": x, "y": y} for x, y in whole.tolist()]

    def answers() -> list[list[str]]:
        engine = engine_of(rings)
        return [engine.match(event) for event in events]

    found = answers()
    assert sum(map(len, found)) > 200
    monkeypatch.setattr(stripes, "_MAX_STRIPES", 1)
    assert len(programs.stripes_of(rings["one"], np.arange(301)).cells) == 2
    assert answers() == found
