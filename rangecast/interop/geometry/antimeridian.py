"""Polygons cut at the antimeridian, as RFC 7946 asks (section 3.1.9).

Edges that cross it get a corner there; the parts on one side are closed along it: the corners on
it, sorted by latitude, pair up as the ends of the segments inside the polygon.
"""

from __future__ import annotations

import math

import numpy as np

from rangecast.kernels.arrays import F64, Bool
from rangecast.model.shapes.exact.predicates import locate

_CUT = 180.0


def split_at_antimeridian(rings: tuple[F64, ...], *, geodesic: bool) -> list[tuple[F64, ...]]:
    """Return a polygon as polygons with longitudes from -180 to 180.

    rings   the outer one first; longitudes are continuous, and go on beyond 180

    A ring around a pole, which has no end there, is returned unchanged.
    """
    outer = rings[0]
    if outer[:, 0].max() <= _CUT or outer[0, 0] != outer[-1, 0]:
        return [rings]
    sides = [_side(rings, geodesic, is_west=is_west) for is_west in (True, False)]
    # Both sides have all corners on the cut, so that they share their edges there.
    levels = {float(y) for ring in rings for x, y in ring if x == _CUT}
    levels |= {float(chain[end, 1]) for chains, _ in sides for chain in chains for end in (0, -1)}
    west, east = (_polygons(chains, holes, sorted(levels)) for chains, holes in sides)
    return west + [tuple(ring - [360.0, 0.0] for ring in part) for part in east]


def _side(rings: tuple[F64, ...], geodesic: bool, *, is_west: bool) -> tuple[list[F64], list[F64]]:
    """Return the parts of the rings on one side of the antimeridian, and the rings wholly there."""
    chains, holes = list[F64](), list[F64]()
    for ring in rings:
        beyond = ring[:, 0] - _CUT if is_west else _CUT - ring[:, 0]
        has_side = ((beyond[:-1] == 0) & (beyond[1:] == 0)).any()
        if (beyond <= 0).all() and not has_side:
            holes.append(ring)
        elif (beyond < 0).any():
            chains += _chains(ring[:-1], beyond[:-1] < 0, geodesic)
    return chains, holes


def _polygons(chains: list[F64], holes: list[F64], levels: list[float]) -> list[tuple[F64, ...]]:
    """Return what lies on one side as polygons."""
    outers = _closed(chains, levels)
    return [(ring, *(hole for hole in holes if _holder(outers, hole) is ring)) for ring in outers]


def _chains(corners: F64, is_here: Bool, geodesic: bool) -> list[F64]:
    """Return the parts of a ring on one side, each from the antimeridian to the antimeridian."""
    count = len(corners)
    starts = [at for at in range(count) if is_here[at] and not is_here[at - 1]]
    chains = []
    for start in starts:
        chain, at = [_crossing(corners[start - 1], corners[start], geodesic)], start
        while is_here[at % count]:
            chain.append(corners[at % count])
            at += 1
        chain.append(_crossing(corners[(at - 1) % count], corners[at % count], geodesic))
        chains.append(np.array(chain))
    return chains


def _crossing(a: F64, b: F64, geodesic: bool) -> F64:
    """Return where an edge crosses the antimeridian; the same for both directions."""
    for corner in (a, b):
        if corner[0] == _CUT:
            return corner
    (x1, y1), (x2, y2) = sorted([tuple(a.tolist()), tuple(b.tolist())])
    if not geodesic:
        return np.array([_CUT, y1 + (_CUT - x1) / (x2 - x1) * (y2 - y1)])
    before, after = math.radians(_CUT - x1), math.radians(x2 - _CUT)
    south, north = math.tan(math.radians(y1)), math.tan(math.radians(y2))
    tangent = (south * math.sin(after) + north * math.sin(before)) / math.sin(before + after)
    return np.array([_CUT, math.degrees(math.atan(tangent))])


def _closed(chains: list[F64], levels: list[float]) -> list[F64]:
    """Join chains along the antimeridian to rings; those without an area are left out.

    levels   latitudes of all corners there
    """
    ends = [(number, end) for number in range(len(chains)) for end in (0, -1)]
    # Of two ends at one corner, the one whose chain comes from the south is first.
    ends.sort(key=lambda at: (chains[at[0]][at[1], 1], chains[at[0]][-1 - at[1], 1]))
    partner = {}
    for first, second in zip(ends[::2], ends[1::2], strict=True):
        partner[first], partner[second] = second, first
    rings, pending = [], dict.fromkeys(range(len(chains)))
    while pending:
        number, end, parts = next(iter(pending)), 0, list[F64]()
        while number in pending:
            del pending[number]
            parts.append(chains[number] if end == 0 else chains[number][::-1])
            number, end = partner[number, -1 if end == 0 else 0]
            parts.append(_along(float(parts[-1][-1, 1]), float(chains[number][end, 1]), levels))
        ring = np.concatenate([*parts, parts[0][:1]])
        ring = ring[np.append(True, (np.diff(ring, axis=0) != 0).any(axis=1))]
        if len(ring) > 3 and ring[:, 0].min() < ring[:, 0].max():
            rings.append(ring)
    return rings


def _along(start: float, end: float, levels: list[float]) -> F64:
    """Return the corners on the antimeridian between two latitudes, in order."""
    between = [y for y in levels if min(start, end) < y < max(start, end)]
    if start > end:
        between.reverse()
    return np.array([(_CUT, y) for y in between]).reshape(-1, 2)


def _holder(outers: list[F64], hole: F64) -> F64:
    """Return the ring that a hole lies in."""
    for ring in outers:
        xs, ys, edges = ring[:, 0].copy(), ring[:, 1].copy(), np.arange(len(ring) - 1)
        sides = [locate(xs, ys, edges, 0, len(edges), x, y) for x, y in hole.tolist()]
        if 1 in sides:  # strictly inside
            return ring
    return outers[0]
