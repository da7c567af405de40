"""Do the polygons of a set tile an area? Gaps, overlaps and T-junctions, with their positions.

An edge of a tiling has a twin: the same edge of a neighbour, the other way round. Edges without one
are the outline of the area, and where something is wrong. They are cut where a corner of another
polygon lies on them exactly (a T-junction), so that parts find their twins. Of the rest,

    two edges that cross                        are an overlap
    a corner inside of another polygon          is an overlap
    a loop around something that is no polygon  is a gap

Signs are exact (`model.shapes.exact`). Corners on edges, and corners inside of polygons, are
found by the indexes of matching; edges that cross by comparing each edge without a twin with those
beside it, in order of x.
"""

from __future__ import annotations

import math
from collections import defaultdict
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from rangecast.engine import Engine
from rangecast.errors import UsageError
from rangecast.kernels.arrays import F64, I64, Bool
from rangecast.kernels.jit import jit
from rangecast.match.choose import build
from rangecast.model.attributes.places import Location, Place
from rangecast.model.boxes import Boxes
from rangecast.model.shapes.exact.predicates import orientation
from rangecast.model.shapes.geometry import Polygons, number_text
from rangecast.model.shapes.words import literals_of
from rangecast.model.space import Space

KINDS = ("gap", "overlap", "T-junction", "near corners")
_MAX_CROSSINGS = 100_000
_NAMED = 5
"""Maximum number of subscriptions named in a fault."""
_NEAR = 1e-7
"""Distance, as a share of the extent, below which two distinct corners are near."""


class Fault(NamedTuple):
    """A fault of a partition: its kind, its position, and the subscriptions concerned."""

    kind: str
    x: float
    y: float
    subscriptions: tuple[Any, ...]
    size: float = 0.0
    """Area of a gap, distance of near corners."""

    def text(self) -> str:
        """Return the fault as one line."""
        sizes = {"gap": f" of area {self.size:.3g}", "near corners": f" {self.size:.3g} apart"}
        names = ", ".join(map(str, self.subscriptions[:_NAMED]))
        more = len(self.subscriptions) - _NAMED
        names += f" and {more:,} more" if more > 0 else ""
        at = f"({number_text(self.x)} {number_text(self.y)})"
        return f"{self.kind}{sizes.get(self.kind, '')} at {at}: {names}"


class PartitionReport(NamedTuple):
    """Faults of a partition, and the rings of all polygons for drawing."""

    polygons: int
    edges: int
    faults: list[Fault]
    rings: list[F64]
    gaps: list[F64]
    """Corners of each gap."""

    def counts(self) -> dict[str, int]:
        """Return the number of faults of each kind."""
        return {kind: sum(fault.kind == kind for fault in self.faults) for kind in KINDS}

    def summary(self) -> str:
        """Return the number of faults in words; empty if there are none."""
        counts = self.counts().items()
        return ", ".join(
            f"{n:,} {kind}" if n == 1 or kind[-1] == "s" else f"{n:,} {kind}s"
            for kind, n in counts
            if n
        )


class _Edges(NamedTuple):
    ends: F64
    """(edges, 4) x and y of the beginning, x and y of the end; the inside is on the left."""
    owner: I64
    """Row of the subscription."""

    def select(self, mask: Bool | I64) -> _Edges:
        return _Edges(self.ends[mask], self.owner[mask])


def check_partition(boxes: Boxes, space: Space) -> PartitionReport:
    """Return where the polygons of a set leave gaps, overlap, or meet without a shared corner."""
    place = _place(space)
    rings, owners, polygons = _rings(boxes, space, place)
    if not rings:
        raise UsageError(f"no subscription has a polygon of {place.name!r}: nothing to check")
    edges = _edges(rings, owners)
    ids = boxes.ids.to_pylist()
    faults: list[Fault] = []
    left = _without_twins(edges, ids, faults)
    cuts = _cuts(left, ids, faults)
    left = _without_twins(_cut(left, cuts), ids, faults)
    is_clean = _overlaps(left, edges, ids, faults, _inside(boxes, space, place, edges))
    _near_corners(left, ids, faults)
    gaps = _gaps(left.select(is_clean), ids, faults)
    faults = sorted(dict.fromkeys(faults), key=lambda fault: KINDS.index(fault.kind))
    return PartitionReport(polygons, len(edges.ends), faults, rings, gaps)


def _place(space: Space) -> Place:
    places = [attribute for attribute in space if isinstance(attribute, Place)]
    if len(places) != 1:
        raise UsageError(f"a partition requires exactly one location or point; the space: {space}")
    if isinstance(places[0], Location) and places[0].edges == "geodesic":
        raise UsageError("a partition can't be checked with geodesic edges")
    return places[0]


def _rings(boxes: Boxes, space: Space, place: Place) -> tuple[list[F64], list[int], int]:
    """Return all rings with the inside on their left, their owners, and the number of polygons."""
    axis = space.axes[place.name]
    words = np.unique(
        np.column_stack([boxes.owner, boxes.lo[:, axis]])[boxes.mentions[:, axis]], axis=0
    )
    rings: list[F64] = []
    owners: list[int] = []
    polygons = 0
    for owner, word in words.tolist():
        for literal in literals_of(place, place.literal(word)):
            if not isinstance(literal.shape, Polygons) or literal.negated:
                continue
            for polygon in literal.shape.polygons:
                polygons += 1
                for number, ring in enumerate(polygon):
                    turned = _is_counterclockwise(ring) != (number == 0)
                    rings.append(np.ascontiguousarray(ring[::-1]) if turned else ring)
                    owners.append(int(owner))
    return rings, owners, polygons


def _is_counterclockwise(ring: F64) -> bool:
    """Return whether a ring is counterclockwise, by the turn at its lowest corner."""
    corners = ring[:-1]
    lowest = int(np.lexsort((corners[:, 0], corners[:, 1]))[0])
    before, after = corners[lowest - 1], corners[(lowest + 1) % len(corners)]
    return bool(orientation(*before, *corners[lowest], *after) > 0)


def _edges(rings: list[F64], owners: list[int]) -> _Edges:
    ends = np.concatenate([np.column_stack([ring[:-1], ring[1:]]) for ring in rings])
    owner = np.repeat(owners, [len(ring) - 1 for ring in rings])
    return _Edges(ends, owner.astype(np.int64))


def _without_twins(edges: _Edges, ids: list[Any], faults: list[Fault]) -> _Edges:
    """Return the edges without an opposite twin; record two in one direction as an overlap."""
    ends = edges.ends
    forward = (ends[:, 0] < ends[:, 2]) | ((ends[:, 0] == ends[:, 2]) & (ends[:, 1] < ends[:, 3]))
    keys = np.where(forward[:, None], ends, ends[:, [2, 3, 0, 1]])
    _, group = np.unique(keys, axis=0, return_inverse=True)
    group = group.reshape(-1)
    groups = int(group.max(initial=-1)) + 1
    ahead, back = (np.bincount(group[side], minlength=groups) for side in (forward, ~forward))
    for side, count in ((forward, ahead), (~forward, back)):
        several = np.flatnonzero(side & (count[group] > 1))
        several = several[np.argsort(group[several], kind="stable")]
        for same in np.split(several, np.flatnonzero(np.diff(group[several])) + 1):
            if len(same):
                x, y = ((ends[same[0], :2] + ends[same[0], 2:]) / 2).tolist()
                names = tuple(sorted({ids[owner] for owner in edges.owner[same]}, key=str))
                faults.append(Fault("overlap", x, y, names))
    alone = (ahead[group] == 0) | (back[group] == 0)
    first = np.zeros(len(ends), np.bool_)
    first[np.unique(np.column_stack([group, forward]), axis=0, return_index=True)[1]] = True
    return edges.select(alone & first)


@jit
def _on_edges(ends: F64, points: F64, edge: I64, point: I64, on_edge: Bool) -> None:
    """Write whether each point lies on its edge, strictly between its ends."""
    for i in range(len(edge)):
        ax, ay, bx, by = ends[edge[i]]
        x, y = points[point[i]]
        is_end = (x == ax and y == ay) or (x == bx and y == by)
        on_edge[i] = not is_end and orientation(ax, ay, bx, by, x, y) == 0


def _cuts(
    edges: _Edges, ids: list[Any], faults: list[Fault]
) -> dict[int, list[tuple[float, float]]]:
    """Return the corners that lie on each edge."""
    points, owners = _corners(edges)
    low = np.minimum(edges.ends[:, :2], edges.ends[:, 2:])
    high = np.maximum(edges.ends[:, :2], edges.ends[:, 2:])
    if not len(points):
        return {}
    candidates = build(Boxes.of(low, high), "auto").match(points)
    edge = candidates.rows.astype(np.int64)
    point = np.repeat(np.arange(len(points)), np.diff(candidates.offsets))
    cut = np.zeros(len(edge), np.bool_)
    _on_edges(edges.ends, points, edge, point, cut)
    cuts: dict[int, list[tuple[float, float]]] = defaultdict(list)
    for e, p in zip(edge[cut].tolist(), point[cut].tolist(), strict=True):
        x, y = points[p].tolist()
        cuts[e].append((x, y))
        names = dict.fromkeys([ids[edges.owner[e]], *(ids[owner] for owner in owners[p])])
        faults.append(Fault("T-junction", x, y, tuple(names)))
    return cuts


def _corners(edges: _Edges) -> tuple[F64, list[list[int]]]:
    """Return the distinct corners of edges, and their owners."""
    if not len(edges.ends):
        return np.empty((0, 2)), []
    both = np.concatenate([edges.ends[:, :2], edges.ends[:, 2:]])
    points, number = np.unique(both, axis=0, return_inverse=True)
    owners_at: list[list[int]] = [[] for _ in points]
    owners = [*edges.owner.tolist(), *edges.owner.tolist()]
    for corner, owner in zip(number.reshape(-1).tolist(), owners, strict=True):
        if owner not in owners_at[corner]:
            owners_at[corner].append(owner)
    return points, owners_at


def _cut(edges: _Edges, cuts: dict[int, list[tuple[float, float]]]) -> _Edges:
    """Return the edges, split at their cuts."""
    pieces, owners = [], []
    for edge, (ax, ay, bx, by) in enumerate(edges.ends.tolist()):
        along = sorted(cuts.get(edge, ()), key=lambda at: (at[0] - ax) ** 2 + (at[1] - ay) ** 2)
        stops = [(ax, ay), *along, (bx, by)]
        for start, stop in pairwise(stops):
            pieces.append((*start, *stop))
            owners.append(int(edges.owner[edge]))
    return _Edges(np.array(pieces).reshape(-1, 4), np.array(owners, np.int64))


@jit
def _crossings(ends: F64, others: F64, order: I64, out: I64) -> int:
    """Write pairs of edges and others that cross in a point inside both; return their number.

    order   the others in order of their left ends
    """
    widest = 0.0
    left = np.empty(len(order))
    for i in range(len(order)):
        cx, _, dx, _ = others[order[i]]
        left[i] = min(cx, dx)
        widest = max(widest, abs(dx - cx))
    filled = 0
    for a in range(len(ends)):
        ax, ay, bx, by = ends[a]
        first = np.searchsorted(left, min(ax, bx) - widest)
        for i in range(first, len(order)):
            if left[i] > max(ax, bx):
                break
            cx, cy, dx, dy = others[order[i]]
            if max(cy, dy) < min(ay, by) or min(cy, dy) > max(ay, by):
                continue
            if orientation(ax, ay, bx, by, cx, cy) * orientation(ax, ay, bx, by, dx, dy) >= 0:
                continue
            if orientation(cx, cy, dx, dy, ax, ay) * orientation(cx, cy, dx, dy, bx, by) >= 0:
                continue
            if filled == len(out):
                return filled
            out[filled, 0], out[filled, 1] = a, order[i]
            filled += 1
    return filled


def _inside(
    boxes: Boxes, space: Space, place: Place, edges: _Edges
) -> list[tuple[float, float, Any, list[int]]]:
    """Return the corners that lie inside a polygon, that polygon, and the owners of the corners."""
    table = {**place.definition(), "border": "open"}
    opened = Space.from_definition({"attribute": [table]})
    engine = Engine(opened)
    axis = space.axes[place.name]
    for row, id_ in enumerate(boxes.ids.to_pylist()):
        part = boxes.lo[boxes.box_offsets[row] : boxes.box_offsets[row + 1], axis]
        words = [place.literal(word) for word in np.unique(part[part > -np.inf]).tolist()]
        if words:
            engine.subscribe(id_, " or ".join(words))
    points, owners = _corners(edges)
    x, y = (axis.name for axis in place.coordinates)
    shift = 360.0 * place.earth
    events = [
        {x: math.remainder(px, shift) if shift and abs(px) > 180 else px, y: py}
        for px, py in points.tolist()
    ]
    inside = []
    if events:
        matches = engine.match_many(events)
        for number, (px, py) in enumerate(points.tolist()):
            inside += [(px, py, id_, owners[number]) for id_ in matches[number]]
    return inside


def _overlaps(
    edges: _Edges,
    every: _Edges,
    ids: list[Any],
    faults: list[Fault],
    inside: list[tuple[float, float, Any, list[int]]],
) -> Bool:
    """Record overlaps, the first of each pair; return the edges that are part of none.

    edges   those without a twin, of every one
    """
    is_clean = np.ones(len(edges.ends), np.bool_)
    pairs = set()

    def note(x: float, y: float, fault: Any, other: Any) -> None:
        pair = tuple(sorted({fault, other}, key=str))
        if pair not in pairs:
            pairs.add(pair)
            faults.append(Fault("overlap", x, y, pair))

    order = np.argsort(np.minimum(every.ends[:, 0], every.ends[:, 2]), kind="stable")
    crossings = np.empty((_MAX_CROSSINGS, 2), np.int64)
    for a, b in crossings[: _crossings(edges.ends, every.ends, order, crossings)].tolist():
        is_clean[a] = False
        x, y = _crossing_point(edges.ends[a].tolist(), every.ends[b].tolist())
        note(x, y, ids[edges.owner[a]], ids[every.owner[b]])
    spots = set()
    for x, y, id_, owners in inside:
        for owner in owners:
            if ids[owner] != id_:
                note(x, y, ids[owner], id_)
                spots.add((x, y))
    for edge, (ax, ay, bx, by) in enumerate(edges.ends.tolist()):
        is_clean[edge] &= (ax, ay) not in spots and (bx, by) not in spots
    return is_clean


def _crossing_point(first: list[float], second: list[float]) -> tuple[float, float]:
    ax, ay, bx, by = first
    cx, cy, dx, dy = second
    turn = (bx - ax) * (dy - cy) - (by - ay) * (dx - cx)
    along = ((cx - ax) * (dy - cy) - (cy - ay) * (dx - cx)) / turn if turn else 0.5
    return ax + along * (bx - ax), ay + along * (by - ay)


def _near_corners(edges: _Edges, ids: list[Any], faults: list[Fault]) -> None:
    points, owners = _corners(edges)
    if not len(points):
        return
    reach = _NEAR * float((points.max(axis=0) - points.min(axis=0)).max())
    order = np.argsort(points[:, 0], kind="stable").tolist()
    for rank, corner in enumerate(order):
        for other in order[rank + 1 :]:
            if points[other, 0] - points[corner, 0] > reach:
                break
            apart = math.dist(points[corner], points[other])
            names = dict.fromkeys(ids[owner] for owner in [*owners[corner], *owners[other]])
            if 0 < apart <= reach and len(names) > 1:
                x, y = points[corner].tolist()
                faults.append(Fault("near corners", x, y, tuple(names), apart))


def _gaps(edges: _Edges, ids: list[Any], faults: list[Fault]) -> list[F64]:
    """Record the loops of edges around gaps; return their corners."""
    leaving: dict[tuple[float, float], list[int]] = defaultdict(list)
    for edge, (x, y) in enumerate(edges.ends[:, :2].tolist()):
        leaving[x, y].append(edge)
    left = set(range(len(edges.ends)))
    gaps = []
    for start in range(len(edges.ends)):
        if start not in left:
            continue
        edge = start
        loop: list[int] = []
        while edge in left:
            left.remove(edge)
            loop.append(edge)
            x, y = edges.ends[edge, 2:].tolist()
            after = [e for e in leaving[x, y] if e in left or e == start]
            if not after:
                break
            edge = _next(edges.ends, edge, after)
        corners = edges.ends[loop, :2]
        closes = np.array_equal(edges.ends[loop[-1], 2:], edges.ends[loop[0], :2])
        dx, dy = (corners - corners[0]).T
        area = float(np.dot(dx, np.roll(dy, -1)) - np.dot(np.roll(dx, -1), dy)) / 2
        if closes and area < 0:
            names = dict.fromkeys(ids[owner] for owner in edges.owner[loop].tolist())
            faults.append(Fault("gap", *_point_inside(corners), tuple(names), -area))
            gaps.append(corners)
    return gaps


def _point_inside(corners: F64) -> tuple[float, float]:
    """Return a point in the middle of a loop, halfway between two of its edges."""
    heights = np.unique(corners[:, 1])
    middle = len(heights) // 2
    y = float(heights[middle - 1] + heights[middle]) / 2
    ends = np.roll(corners, -1, axis=0)
    crossed = (corners[:, 1] <= y) != (ends[:, 1] <= y)
    (ax, ay), (bx, by) = corners[crossed].T, ends[crossed].T
    xs = np.sort(ax + (y - ay) / (by - ay) * (bx - ax))
    widest = int(np.argmax(xs[1::2] - xs[::2]))
    return float(xs[2 * widest] + xs[2 * widest + 1]) / 2, y


def _next(ends: F64, edge: int, after: list[int]) -> int:
    """Return the next edge around the same gap."""
    return min(after, key=lambda other: _turn(ends[edge], ends[other]))


def _turn(edge: F64, after: F64) -> float:
    """Return the counterclockwise angle from the reversed edge to the next edge, in (0, 2 pi]."""
    back = math.atan2(edge[1] - edge[3], edge[0] - edge[2])
    ahead = math.atan2(after[3] - after[1], after[2] - after[0])
    return (ahead - back) % math.tau or math.tau
