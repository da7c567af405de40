"""Cost of messages in a network by zones: bytes from the server, and over all links.

A broker is a node of an internet; the overlay link between two brokers is a shortest path there.
Traffic is bytes x links. As in paper 001, the last hop from a gateway to its subscribers isn't part
of it; redundancy is about that.

    Paint-*    the server's messages, spread over the zones that meet their rectangles
    CN-Relax   every change, from the broker nearest to its source, to all interests that hold its
               position
    Unicast    a message for each affected interest, from the server to its gateway: through the
               zones, or `direct`, over one overlay link

An interest is a point: its lower and then its upper bounds. Bounds of messages are least and then
largest coordinates of the points they reach, as `Messages.bounds` has them. A number counts 4
bytes: a painted message has a position, a value and the bounds of its box, a letter a position, a
value and the point of its interest. With one attribute these are the 24 and 16 bytes of the paper.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rangecast.errors import UsageError
from rangecast.kernels.arrays import F64, I32, I64
from rangecast.kernels.bundle import opened
from rangecast.kernels.jit import jit
from rangecast.notify.boxes.kdtree import LEVELS, KdTree
from rangecast.notify.boxes.points import Points
from rangecast.notify.boxes.search import count_within, entries_within
from rangecast.overlay.networks.internet import Internet
from rangecast.overlay.zones.zonemap import RouteLengths, ZoneMap

_NUMBER = 4
"""Bytes of a number on the wire."""


class Traffic(NamedTuple):
    """Cost of changes."""

    messages: int = 0
    server_bytes: int = 0
    overlay: int = 0
    """Bytes x overlay links."""
    ip: int = 0
    """Bytes x links of the internet."""
    received: int = 0
    """Number of messages about a changed object that subscribers got."""

    def __add__(self, other: object) -> Traffic:
        assert isinstance(other, Traffic)
        return Traffic(*(a + b for a, b in zip(self, other, strict=True)))


@jit
def _count_unicast(
    table: I64, bounds: F64, route_lengths: I32, entries: I32
) -> tuple[int, int, int, int, int]:
    """Return how many interests lie within bounds, and the links from the server to all of them.

    Overlay links and IP links through the zones, then both direct.
    """
    tree = opened(table, KdTree)
    stack = np.empty(tree.used[LEVELS] + 2, np.int32)
    count = overlay = over_ip = direct_overlay = direct_ip = 0
    for i in range(len(bounds)):
        n = entries_within(tree, bounds[i], entries, stack)
        for j in range(n):
            way = route_lengths[tree.row[entries[j]]]
            overlay += way[0]
            over_ip += way[1]
            direct_overlay += way[0] > 0
            direct_ip += way[2]
        count += n
    return count, overlay, over_ip, direct_overlay, direct_ip


@jit
def _received(table: I64, bounds: F64, most: int) -> int:
    """Return how many interests lie within bounds, summed over all bounds."""
    tree = opened(table, KdTree)
    stack = np.empty(tree.used[LEVELS] + 2, np.int32)
    count = 0
    for i in range(len(bounds)):
        count += count_within(tree, bounds[i], most, stack)
    return count


class ZoneTraffic:
    """A network by zones over an internet, for interests at these points."""

    def __init__(self, zones: ZoneMap, internet: Internet, points: F64, seed: int = 0):
        if len(zones) > internet.nodes:
            raise UsageError(
                f"each broker needs a node of the internet: {len(zones):,} don't fit into "
                f"{internet.nodes:,} nodes\n  hint: use fewer brokers, or more nodes"
            )
        draw = np.random.default_rng([seed, 0xB40C]).choice
        self.nodes = draw(internet.nodes, len(zones), replace=False)
        """The node of each zone's broker."""
        hops = internet.hops(self.nodes)
        self.zones = zones.with_hops(np.ascontiguousarray(hops[:, self.nodes]))
        self._nearest = hops.argmin(axis=0)
        """The zone whose broker is nearest to each node."""
        self._interests, self._seed = Points(points), seed
        ends = points.shape[1]
        attributes = (ends + 1) // 2  # one that has only upper bounds adds a single end
        self.message_bytes = _NUMBER * (attributes + 1 + 2 * ends)
        self.letter_bytes = _NUMBER * (attributes + 1 + ends)
        server = self.zones.server
        self.gateways, links, ip = self.zones.routes(server, points)
        direct = hops[server, self.nodes][self.gateways]
        self._ways = np.stack([links, ip, direct], axis=1).astype(np.int32)
        """From the server to each interest: overlay and IP links, and IP links of the direct path.
        """

    def painted(self, bounds: F64) -> tuple[Traffic, RouteLengths]:
        """Return the cost of messages of the server; receivers aren't counted."""
        lo, hi = np.hsplit(bounds, 2)
        ways = self.zones.spreads(np.full(len(lo), self.zones.server), lo, hi)
        return self._traffic(len(lo), self.message_bytes * len(lo), ways), ways

    def relaxed(self, bounds: F64) -> tuple[Traffic, RouteLengths]:
        """Return what it costs to send changes to all interests within bounds, one row each."""
        rng = np.random.default_rng([self._seed, 0x50CE])
        sources = rng.integers(0, len(self._nearest), len(bounds))
        ways = self.zones.spreads(self._nearest[sources], *np.hsplit(bounds, 2))
        return self._traffic(len(bounds), 0, ways)._replace(received=self.received(bounds)), ways

    def received(self, bounds: F64) -> int:
        """Return how many messages subscribers get."""
        index = self._interests
        return int(_received(index.table, np.ascontiguousarray(bounds), index.count))

    def unicast(self, bounds: F64) -> tuple[Traffic, Traffic]:
        """Return the cost of unicast to all interests within bounds: through zones, and direct."""
        index, size = self._interests, self.letter_bytes
        count, overlay, ip, once, direct = _count_unicast(
            index.table,
            np.ascontiguousarray(bounds),
            self._ways,
            np.empty(index.count, np.int32),
        )
        through = Traffic(count, size * count, size * overlay, size * ip, count)
        return through, through._replace(overlay=size * once, ip=size * direct)

    def _traffic(self, count: int, sent: int, ways: RouteLengths) -> Traffic:
        size = self.message_bytes
        return Traffic(count, sent, size * int(ways.overlay.sum()), size * int(ways.ip.sum()))


def holding(positions: F64) -> F64:
    """Return the bounds of all interests that contain a position, a row for each."""
    endless = np.full_like(positions, np.inf)
    return np.concatenate([-endless, positions, positions, endless], axis=1)
