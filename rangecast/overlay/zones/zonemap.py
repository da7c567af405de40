"""All zones of a static network, as arrays; kernels compute the routes of millions of messages.

The rules are those of `geometry.py`, which brokers follow; here they run over a whole network that
doesn't change in the meantime. Zones are numbered in the order of their lower corners.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from rangecast.errors import UsageError
from rangecast.kernels.arrays import F64, I64, U8, offsets_of, readonly
from rangecast.kernels.jit import jit
from rangecast.overlay.zones import geometry
from rangecast.overlay.zones.geometry import Box, Point

ROUTE, SPREAD, IP, ZONES = 0, 1, 2, 3
"""Columns of the counts per message: see `RouteLengths`."""


class RouteLengths(NamedTuple):
    """Hops and links of each message."""

    route: I64
    """Overlay links to the first zone of the rectangle."""
    spread: I64
    """Overlay links between the zones that meet the rectangle."""
    ip: I64
    """Links of the underlying internet, for all overlay links."""
    zones: I64
    """Zones that were reached."""

    @property
    def overlay(self) -> I64:
        """All overlay links."""
        return np.asarray(self.route + self.spread)


class Layout(NamedTuple):
    """Zones: their boxes, neighbours, and the frame in which distances are measured."""

    lo: F64
    hi: F64
    first: I64
    beside: I64
    frame: F64
    """Lower and upper ends, (2, dimensions)."""
    hops: U8
    """Links of the internet between the brokers of two zones."""


@jit
def _holds(zones: Layout, zone: int, point: F64) -> bool:
    for axis in range(len(point)):
        if not zones.lo[zone, axis] <= point[axis] <= zones.hi[zone, axis]:
            return False
    return True


@jit
def _nearest(zones: Layout, zone: int, axis: int, x: float) -> float:
    nearest: float = min(max(x, zones.lo[zone, axis]), zones.hi[zone, axis])
    return nearest


@jit
def _following(zones: Layout, zone: int, target: F64) -> int:
    """Return the zone that comes next on the way to a point."""
    best, least = -1, np.inf
    for e in range(zones.first[zone], zones.first[zone + 1]):
        other = zones.beside[e]
        is_nearer, is_between, total = False, True, 0.0
        for axis in range(len(target)):
            x = target[axis]
            q, p = _nearest(zones, zone, axis, x), _nearest(zones, other, axis, x)
            is_nearer |= p != q
            is_between &= min(q, x) <= p <= max(q, x)
            low, high = zones.frame[0, axis], zones.frame[1, axis]
            if high > low:
                apart = (min(max(p, low), high) - min(max(x, low), high)) / (high - low)
                total += apart * apart
        if is_nearer and is_between and total < least:
            best, least = other, total
    return best


@jit
def _route(zones: Layout, zone: int, target: F64) -> tuple[int, int, int]:
    """Return the zone of a point, and the overlay and IP links on the way there; -1: no way."""
    links = ip = 0
    while not _holds(zones, zone, target):
        following = _following(zones, zone, target)
        if following < 0:
            return -1, links, ip
        links += 1
        ip += zones.hops[zone, following]
        zone = following
    return zone, links, ip


@jit
def _routes(zones: Layout, start: int, points: F64, links: I64, ip: I64, home: I64) -> None:
    """Fill the path from a zone to each of some points."""
    for i in range(len(points)):
        home[i], links[i], ip[i] = _route(zones, start, points[i])


@jit
def _is_child(
    zones: Layout, parent: int, child: int, low: F64, high: F64, entry: F64, point: F64
) -> bool:
    """Return whether a zone gets a message about a rectangle from another one."""
    step = -1
    for axis in range(len(entry)):
        a, b = max(zones.lo[child, axis], low[axis]), min(zones.hi[child, axis], high[axis])
        if a > b:
            return False
        point[axis] = min(max(entry[axis], a), b)
        if step < 0 and point[axis] != entry[axis]:
            step = axis
    if step < 0:
        return False
    point[step] = np.nextafter(point[step], entry[step])
    return _holds(zones, parent, point)


@jit
def _count_spread_links(zones: Layout, starts: I64, lows: F64, highs: F64, counts: I64) -> None:
    """Count the links that messages take, from a zone to all zones that meet a rectangle."""
    d = lows.shape[1]
    entry, point = np.empty(d), np.empty(d)
    stack = np.empty(len(zones.lo), np.int64)
    for i in range(len(lows)):
        zone, low, high = starts[i], lows[i], highs[i]
        for axis in range(d):
            if low[axis] > zones.hi[zone, axis]:
                entry[axis] = low[axis]
            else:
                entry[axis] = min(max(low[axis], zones.lo[zone, axis]), high[axis])
        stack[0], counts[i, ROUTE], counts[i, IP] = _route(zones, zone, entry)
        if stack[0] < 0:
            counts[i, ZONES] = -1
            continue
        depth, count = 1, 0
        while depth:
            depth -= 1
            zone = stack[depth]
            count += 1
            for e in range(zones.first[zone], zones.first[zone + 1]):
                other = zones.beside[e]
                if _is_child(zones, zone, other, low, high, entry, point):
                    counts[i, IP] += zones.hops[zone, other]
                    stack[depth] = other
                    depth += 1
        counts[i, SPREAD], counts[i, ZONES] = count - 1, count


class ZoneMap:
    """The zones of a network, in order of their lower corners."""

    def __init__(self, boxes: Iterable[Box], frame: Box, hops: U8 | None = None):
        """Lay out zones, which must tile the space.

        frame   where interests lie: distances are measured in it, and the server is at its centre
        hops    links of the internet between the brokers of two zones; 1 if left out
        """
        self.boxes = sorted(boxes)
        self.frame = frame
        lo, hi = (np.array([box[side] for box in self.boxes]) for side in (0, 1))
        beside = [_adjacent(lo, hi, zone) for zone in range(len(lo))]
        if hops is None:
            hops = 1 - np.eye(len(lo), dtype=np.uint8)
        self._layout = Layout(
            readonly(lo),
            readonly(hi),
            readonly(offsets_of([len(zones) for zones in beside])),
            readonly(np.concatenate([np.empty(0, np.int64), *beside]).astype(np.int64)),
            readonly(np.array(frame)),
            readonly(hops),
        )
        centre = tuple(a / 2 + b / 2 for a, b in zip(*frame, strict=True))
        self.server = self.zone_of(centre)
        """The zone that contains the centre of the frame."""

    @classmethod
    def grown(
        cls, points: F64, brokers: int, frame: Box, *, by_load: bool = True, seed: int = 0
    ) -> ZoneMap:
        """Make brokers join one by one, for interests at these points.

        by_load   a broker joins the one with most interests, and takes half of them (Meghdoot);
                  else it halves the zone that holds a random point of the frame (CAN)
        """
        if by_load:
            return cls(_by_load(points, brokers, frame), frame)
        rng = np.random.default_rng([seed, 0x2043])
        boxes = [Box.everything(len(frame.lo))]
        for _ in range(100 * brokers):
            if len(boxes) >= brokers:
                return cls(boxes, frame)
            point = rng.uniform(frame.lo, frame.hi).tolist()
            index = next(at for at, box in enumerate(boxes) if box.holds(point))
            if (cut := geometry.middle_cut(boxes[index], frame)) is not None:
                boxes[index : index + 1] = boxes[index].cut(*cut)
        raise UsageError(f"there is no room for {brokers} zones in {frame}")

    def __len__(self) -> int:
        return len(self.boxes)

    def with_hops(self, hops: U8) -> ZoneMap:
        """Return the same zones over another internet."""
        return ZoneMap(self.boxes, self.frame, hops)

    def zone_of(self, point: Point) -> int:
        """Return the zone that contains a point."""
        return next(at for at, box in enumerate(self.boxes) if box.holds(point))

    def beside(self, zone: int) -> list[int]:
        """Return the zones adjacent to one."""
        first = self._layout.first
        zones: list[int] = self._layout.beside[first[zone] : first[zone + 1]].tolist()
        return zones

    def routes(self, start: int, points: F64) -> tuple[I64, I64, I64]:
        """Return the zone of each point, and the overlay and IP links on the way from a zone."""
        counts = np.zeros((3, len(points)), np.int64)
        home, links, ip = counts
        _routes(self._layout, start, readonly(points), links, ip, home)
        _check_reached(home)
        return home, links, ip

    def spreads(self, starts: I64, lo: F64, hi: F64) -> RouteLengths:
        """Return the ways of messages, from a zone to all zones that meet a box."""
        counts = np.zeros((len(lo), 4), np.int64)
        _count_spread_links(self._layout, readonly(starts), readonly(lo), readonly(hi), counts)
        _check_reached(counts[:, ZONES])
        return RouteLengths(*counts.T)

    def path(self, start: int, box: Box) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
        """Return the links of one message: those to the box, and those over the zones in it."""
        target = geometry.entry_of(self.boxes[start], box)
        route, spread, at = [], [], start
        while not self.boxes[at].holds(target):
            beside = {self.boxes[other]: other for other in self.beside(at)}
            following = geometry.next_zone(self.boxes[at], target, beside, self.frame)
            assert following is not None
            route.append((at, beside[following]))
            at = beside[following]
        waiting = [at]
        while waiting:
            at = waiting.pop()
            for other in self.beside(at):
                if self.boxes[other].meets(box):
                    parent = geometry.parent_point(self.boxes[other], box, target)
                    if parent is not None and self.boxes[at].holds(parent):
                        spread.append((at, other))
                        waiting.append(other)
        return route, spread


def _check_reached(zones: I64) -> None:
    if (zones < 0).any():
        raise UsageError(
            f"no zone contains point {int(np.flatnonzero(zones < 0)[0])}: it has NaN, or the zones "
            "don't tile the space"
        )


def _adjacent(lo: F64, hi: F64, zone: int) -> I64:
    """Return the zones that share part of a face with a zone."""
    meets = (lo <= hi[zone]) & (lo[zone] <= hi)
    touches = (np.nextafter(hi, np.inf) == lo[zone]) | (np.nextafter(hi[zone], np.inf) == lo)
    return np.flatnonzero((meets | touches).all(axis=1) & ((~meets).sum(axis=1) == 1))


def _by_load(points: F64, brokers: int, frame: Box) -> list[Box]:
    """Split the zone with the most interests at their median, until each broker has a zone."""
    heap = [(-len(points), 0, Box.everything(len(frame.lo)), points)]
    done: list[Box] = []
    number = 0
    while heap and len(heap) + len(done) < brokers:
        _, _, box, inside = heapq.heappop(heap)
        cut = geometry.median_cut(box, frame, inside) or geometry.middle_cut(box, frame)
        if cut is None:
            done.append(box)
            continue
        axis, at = cut
        is_below = inside[:, axis] < at
        for half, is_inside in zip(box.cut(axis, at), (is_below, ~is_below), strict=True):
            number += 1
            part = inside[is_inside]
            heapq.heappush(heap, (-len(part), number, half, part))
    if len(heap) + len(done) < brokers:
        raise UsageError(f"there is no room for {brokers} zones in {frame}")
    return done + [box for _, _, box, _ in heap]
