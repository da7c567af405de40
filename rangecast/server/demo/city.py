"""Synthetic city: roads, vehicles that drive along them, and geofences.

Everything is generated from a seed. Roads are rings and spokes around a centre; a junction is
(ring, spoke), and the centre is ring 0.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from rangecast.model.attributes.base import Boolean, Number
from rangecast.model.attributes.places import Location
from rangecast.model.attributes.text import Category, String
from rangecast.model.attributes.timestamps import Timestamp
from rangecast.model.space import Space

Junction = tuple[int, int]
Metres = tuple[float, float]
CENTRE = (13.4, 52.5)
RINGS, SPOKES = 5, 16
_RING = 950.0
"""Metres between two rings."""
_EDGE_OF_CITY = 5_400
_LIMITS = (30.0, 30.0, 30.0, 50.0, 50.0, 80.0)
"""Kilometres per hour on each ring, and on the spoke that leads out to it."""
_KINDS = ("van", "bus", "taxi", "truck")
_DISTRICTS = (
    *("East", "North-east", "North", "North-west"),
    *("West", "South-west", "South", "South-east"),
)
_LINES = (
    ("Line 1", ((5, 8), (4, 8), (3, 8), (2, 8), (1, 8), (0, 0), (1, 0), (2, 0), (3, 0), (4, 0))),
    ("Line 2", ((5, 13), (4, 13), (3, 13), (2, 13), (2, 12), (2, 11), (2, 10), (3, 10), (4, 10))),
    ("Line 3", ((4, 2), (3, 2), (3, 3), (3, 4), (3, 5), (3, 6), (4, 6), (5, 6))),
)


@dataclass
class Vehicle:
    """A vehicle driving from one junction to the next."""

    name: str
    kind: str
    electric: bool
    haste: float
    """Its speed as a share of the limit."""
    route: tuple[Junction, ...]
    """Junctions that it drives to and fro; none: wherever it likes."""
    origin: Junction
    target: Junction
    driven: float = 0.0
    """Metres since the origin."""


class City:
    """Roads, fences and vehicles generated from a seed."""

    def __init__(self, seed: int = 1, vehicles: int = 40):
        self._random = random.Random(seed)
        self._places = {
            (ring, spoke): self._jittered(ring, spoke)
            for ring in range(1, RINGS + 1)
            for spoke in range(SPOKES)
        }
        self._places[0, 0] = (0.0, 0.0)
        self._vehicles = [self._vehicle(number) for number in range(vehicles)]

    @staticmethod
    def space() -> Space:
        """Return the space of its events."""
        return Space(
            [
                String("vehicle"),
                Category("kind", _KINDS),
                Location("position", longitude="lon", latitude="lat"),
                Number("speed"),
                Boolean("electric"),
                Timestamp("at"),
            ]
        )

    def fences(self) -> dict[str, str]:
        """Return the geofences: filters by name."""
        made = {}
        for number, name in enumerate(_DISTRICTS):
            first = 2 * number
            inner = [(2, spoke % SPOKES) for spoke in range(first, first + 3)]
            outer = [(4, spoke % SPOKES) for spoke in range(first + 2, first - 1, -1)]
            made[name] = _within(_polygon([[*inner, *outer]], self._places))
        zone = [self._places[2, spoke] for spoke in range(SPOKES)]
        park = _circle_of_corners((-650.0, 700.0), 420.0, 9)
        made["Clean air zone"] = f"{_within(_wkt([zone, park]))} and electric = false"
        made["Old town"] = _within(_wkt([_circle_of_corners((150.0, -250.0), 800.0, 14)]))
        airport = _circle_of_corners((1500.0, 3900.0), 620.0, 16, flat=0.6)
        terminal = _circle_of_corners((1600.0, 3900.0), 160.0, 7)
        made["Airport"] = _within(_wkt([airport, terminal]))
        for name, junction in (("East", (4, 15)), ("North", (5, 5)), ("West", (3, 9))):
            made[f"Depot {name}"] = _within(_circle(self._places[junction], 350))
        for number, junction in enumerate(((3, 1), (3, 4), (2, 7), (4, 11), (3, 14)), start=1):
            near = _within(_circle(self._places[junction], 260))
            made[f"School {number}: too fast"] = f"{near} and speed > 30"
        for name, junctions in _LINES:
            made[name] = f"{_within(self._corridor(junctions, 120))} and kind = 'bus'"
        outermost = [(RINGS, spoke % SPOKES) for spoke in range(SPOKES + 1)]
        made["Ring road: too fast"] = f"{_within(self._corridor(outermost, 150))} and speed > 80"
        made["Out of town"] = f"not {_within(_circle((0.0, 0.0), _EDGE_OF_CITY))}"
        return made

    def advance(self, seconds: float) -> list[dict[str, Any]]:
        """Move all vehicles; return one event per vehicle."""
        return [self._drive(vehicle, seconds) for vehicle in self._vehicles]

    def _drive(self, vehicle: Vehicle, seconds: float) -> dict[str, Any]:
        left = seconds
        while True:
            start, end = self._places[vehicle.origin], self._places[vehicle.target]
            length = math.dist(start, end)
            limit = _LIMITS[max(vehicle.origin[0], vehicle.target[0])]
            speed = limit * vehicle.haste
            reach = speed / 3.6 * left
            if vehicle.driven + reach < length:
                break
            left -= (length - vehicle.driven) / (speed / 3.6)
            vehicle.driven = 0.0
            vehicle.origin, vehicle.target = vehicle.target, self._next(vehicle)
        vehicle.driven += reach
        share = vehicle.driven / length
        lon, lat = _degrees(
            (start[0] + share * (end[0] - start[0]), start[1] + share * (end[1] - start[1]))
        )
        return {
            "vehicle": vehicle.name,
            "kind": vehicle.kind,
            "lon": lon,
            "lat": lat,
            "speed": round(speed, 1),
            "electric": vehicle.electric,
        }

    def _next(self, vehicle: Vehicle) -> Junction:
        """Return the junction after the target; turn back only at the end of a road."""
        if vehicle.route:
            at = vehicle.route.index(vehicle.target)
            step = at - vehicle.route.index(vehicle.origin)
            return vehicle.route[at + step if 0 <= at + step < len(vehicle.route) else at - step]
        others = [
            neighbour for neighbour in _neighbours(vehicle.target) if neighbour != vehicle.origin
        ]
        return self._random.choice(others or [vehicle.origin])

    def _vehicle(self, number: int) -> Vehicle:
        turn = self._random
        kind = _KINDS[number % len(_KINDS)]
        route: tuple[Junction, ...] = ()
        if kind == "bus":
            route = _LINES[number // len(_KINDS) % len(_LINES)][1]
            at = turn.randrange(len(route) - 1)
            origin, target = route[at], route[at + 1]
        else:
            origin = (turn.randint(1, RINGS), turn.randrange(SPOKES))
            target = turn.choice(_neighbours(origin))
        haste = turn.uniform(0.8, 1.0) if turn.random() < 0.8 else turn.uniform(1.05, 1.3)
        return Vehicle(
            f"{kind} {number + 1}", kind, turn.random() < 0.5, haste, route, origin, target
        )

    def _jittered(self, ring: int, spoke: int) -> Metres:
        turn = self._random
        angle = 2 * math.pi * (spoke + turn.uniform(-0.16, 0.16)) / SPOKES
        far = _RING * (ring + turn.uniform(-0.14, 0.14))
        return far * math.cos(angle), far * math.sin(angle)

    def _corridor(self, junctions: Iterable[Junction], width: int) -> str:
        corners = ", ".join(_corner(self._places[junction]) for junction in junctions)
        return f"buffer('LINESTRING ({corners})', {width} m)"


def _neighbours(junction: Junction) -> list[Junction]:
    ring, spoke = junction
    if ring == 0:
        return [(1, number) for number in range(0, SPOKES, 2)]
    around = [(ring, (spoke + 1) % SPOKES), (ring, (spoke - 1) % SPOKES)]
    if ring < RINGS:
        around.append((ring + 1, spoke))
    if ring > 1:
        around.append((ring - 1, spoke))
    elif spoke % 2 == 0:
        around.append((0, 0))
    return around


def _degrees(point: Metres) -> tuple[float, float]:
    east = 111_320 * math.cos(math.radians(CENTRE[1]))
    return round(CENTRE[0] + point[0] / east, 6), round(CENTRE[1] + point[1] / 111_250, 6)


def _corner(point: Metres) -> str:
    lon, lat = _degrees(point)
    return f"{lon} {lat}"


def _circle_of_corners(
    centre: Metres, radius: float, corners: int, flat: float = 1.0
) -> list[Metres]:
    turns = [2 * math.pi * corner / corners for corner in range(corners)]
    far = [radius * (1 + 0.12 * math.sin(3 * turn)) for turn in turns]
    return [
        (centre[0] + r * math.cos(turn), centre[1] + flat * r * math.sin(turn))
        for r, turn in zip(far, turns, strict=True)
    ]


def _polygon(rings: Sequence[Sequence[Junction]], places: dict[Junction, Metres]) -> str:
    return _wkt([[places[point] for point in ring] for ring in rings])


def _wkt(rings: Sequence[Sequence[Metres]]) -> str:
    texts = [", ".join(_corner(point) for point in [*ring, ring[0]]) for ring in rings]
    return f"'POLYGON ({', '.join(f'({text})' for text in texts)})'"


def _circle(centre: Metres, radius: int) -> str:
    lon, lat = _degrees(centre)
    return f"circle({lon}, {lat}, {radius} m)"


def _within(shape: str) -> str:
    return f"within(position, {shape})"
