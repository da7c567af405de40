"""The geometry of zones: they tile, routes arrive, a spread visits each zone that it meets once."""

from __future__ import annotations

import math
import random
from collections import Counter

import numpy as np
import pytest

from rangecast.overlay.zones.geometry import (
    Box,
    entry_of,
    left_of,
    median_cut,
    middle_cut,
    next_zone,
    parent_point,
)


def tiling(rng: random.Random, dimensions: int, zones: int) -> list[Box]:
    """Return zones that tile the space, cut at random places of random zones."""
    found = [Box.everything(dimensions)]
    while len(found) < zones:
        zone = found.pop(rng.randrange(len(found)))
        axis, at = rng.randrange(dimensions), rng.random()
        found += zone.cut(axis, at) if zone.lo[axis] < at <= zone.hi[axis] else [zone]
    return found


def frame(dimensions: int) -> Box:
    return Box((0.0,) * dimensions, (1.0,) * dimensions)


def somewhere(rng: random.Random, dimensions: int) -> tuple[float, ...]:
    return tuple(rng.choice([rng.random(), math.inf, -math.inf]) for _ in range(dimensions))


def rectangle(rng: random.Random, dimensions: int) -> Box:
    ends = [sorted((rng.uniform(-0.2, 1.2), rng.uniform(-0.2, 1.2))) for _ in range(dimensions)]
    if rng.random() < 0.3:
        ends[0][1] = math.inf
    if rng.random() < 0.3:
        ends[-1][0] = ends[-1][1]
    return Box(tuple(low for low, _ in ends), tuple(high for _, high in ends))


@pytest.mark.parametrize("dimensions", [2, 3, 4])
def test_zones_tile_and_routes_arrive(dimensions: int) -> None:
    rng = random.Random(dimensions)
    for _ in range(8):
        zones = tiling(rng, dimensions, 25)
        assert left_of(Box.everything(dimensions), zones) == []
        assert not any(a.meets(b) for at, a in enumerate(zones) for b in zones[:at])
        target = somewhere(rng, dimensions)
        (home,) = [zone for zone in zones if zone.holds(target)]
        for start in zones:
            at, hops = start, 0
            while at != home:
                beside = [zone for zone in zones if zone.touches(at)]
                following = next_zone(at, target, beside, frame(dimensions))
                assert following is not None
                at, hops = following, hops + 1
            assert hops < len(zones)


@pytest.mark.parametrize("dimensions", [2, 3, 4])
def test_a_spread_visits_each_zone_that_meets_the_rectangle_once(dimensions: int) -> None:
    rng = random.Random(10 + dimensions)
    for _ in range(15):
        zones = tiling(rng, dimensions, 40)
        area = rectangle(rng, dimensions)
        entry = entry_of(rng.choice(zones), area)
        assert area.holds(entry)
        visits: Counter[Box] = Counter()
        waiting = [zone for zone in zones if zone.holds(entry)]
        while waiting:
            zone = waiting.pop()
            visits[zone] += 1
            for other in zones:
                if other.touches(zone) and other.meets(area):
                    parent = parent_point(other, area, entry)
                    if parent is not None and zone.holds(parent):
                        waiting.append(other)
        assert visits == Counter(zone for zone in zones if zone.meets(area))


def test_what_is_left_of_a_box_and_the_cut_out_part_tile_it() -> None:
    rng = random.Random(1)
    for dimensions in (2, 3):
        for _ in range(50):
            one, other = rectangle(rng, dimensions), rectangle(rng, dimensions)
            left = one.without(other)
            assert not any(box.meets(other) for box in left)
            parts = [*left, one.common(other)] if one.meets(other) else left
            assert left_of(one, parts) == []
            assert not any(a.meets(b) for at, a in enumerate(parts) for b in parts[:at])


def test_halves_join_to_the_whole_and_other_parts_do_not() -> None:
    whole = Box((0.0, 0.0), (1.0, 1.0))
    low, high = whole.cut(0, 0.25)
    assert low.joined(high) == high.joined(low) == whole
    assert low.touches(high)
    quarter, _ = high.cut(1, 0.5)
    assert low.joined(quarter) is None
    assert low.joined(low) is None


def test_a_cut_by_load_halves_points_and_a_plain_one_halves_the_box() -> None:
    box, points = Box.everything(2), np.array([[0.1, 0.9], [0.1, 0.8], [0.1, 0.7], [0.1, 0.2]])
    assert middle_cut(box, frame(2)) == (0, 0.5)
    assert median_cut(box, frame(2), points) == (1, 0.8)
    assert median_cut(box, frame(2), points[:1]) is None
    assert median_cut(box, frame(2), points[:0]) is None
    below, above = box.cut(1, 0.8)
    assert sum(below.holds(point) for point in points.tolist()) == 2
    assert sum(above.holds(point) for point in points.tolist()) == 2
    assert middle_cut(Box.at((0.5, 0.5)), frame(2)) is None
