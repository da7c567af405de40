"""Cost of messages in a network by zones: bytes from the server, and over all links.

A broker is a node of an internet; the overlay link between two brokers is a shortest path there.
Traffic is bytes x links. As in paper 001, the last hop from a gateway to its subscribers isn't part
of it; redundancy is about that.

    Paint-*    the server's messages, spread over the zones that meet their rectangles
    CN-Relax   every change, from the broker nearest to its source, to all interests that hold its x
    Unicast    a message for each affected interest, from the server to its gateway: through the
               zones, or `direct`, over one overlay link
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rangecast.errors import UsageError
from rangecast.kernels.arrays import F64, I32, I64
from rangecast.kernels.bundle import opened
from rangecast.kernels.jit import jit
from rangecast.notify.line.interests import Interests
from rangecast.notify.line.tree import STACK, Tree, rows_within
from rangecast.notify.messages import BYTES, LETTER_BYTES, Messages
from rangecast.overlay.networks.internet import Internet
from rangecast.overlay.zones.zonemap import RouteLengths, ZoneMap


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
def _letters(
    table: I64, row: I32, tiles: F64, ways: I32, rows: I32
) -> tuple[int, int, int, int, int]:
    """Return how many interests lie in tiles, and the links from the server to all of them.

    Overlay links and IP links through the zones, then both direct.
    """
    tree = opened(table, Tree)
    stack = np.empty(STACK, np.int32)
    count = overlay = through = once = straight = 0
    for t in range(len(tiles)):
        l0, r1 = np.nextafter(tiles[t, 0], np.inf), np.nextafter(tiles[t, 3], -np.inf)
        n = rows_within(tree, row, l0, tiles[t, 1], tiles[t, 2], r1, rows, stack)
        for j in range(n):
            way = ways[rows[j]]
            overlay += way[0]
            through += way[1]
            once += way[0] > 0
            straight += way[2]
        count += n
    return count, overlay, through, once, straight


class ZoneTraffic:
    """A network by zones over an internet, for interests in ranges."""

    def __init__(self, zones: ZoneMap, internet: Internet, interests: Interests, seed: int = 0):
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
        self.interests, self._seed = interests, seed
        row, lo, hi = interests.columns()
        points = np.zeros((interests.rows, 2))  # also of rows that are free again
        points[row] = np.stack([lo, hi], axis=1)
        server = self.zones.server
        self.gateways, links, ip = self.zones.routes(server, points)
        direct = hops[server, self.nodes][self.gateways]
        self._ways = np.stack([links, ip, direct], axis=1).astype(np.int32)
        """From the server to each interest: overlay and IP links, and IP links of the direct path.
        """

    def painted(self, messages: Messages) -> tuple[Traffic, RouteLengths]:
        """Return the cost of messages of the server; receivers aren't counted."""
        lo, hi = np.hsplit(messages.bounds, 2)
        ways = self.zones.spreads(np.full(len(lo), self.zones.server), lo, hi)
        sent = BYTES * len(lo)
        return self._traffic(len(lo), sent, BYTES, ways), ways

    def relaxed(self, xs: F64) -> tuple[Traffic, RouteLengths]:
        """Return what it costs to send changes at these places to all interests that hold them."""
        rng = np.random.default_rng([self._seed, 0x50CE])
        sources = rng.integers(0, len(self._nearest), len(xs))
        endless = np.full(len(xs), np.inf)
        lo, hi = np.stack([-endless, xs], axis=1), np.stack([xs, endless], axis=1)
        ways = self.zones.spreads(self._nearest[sources], lo, hi)
        received = self.interests.reached(np.stack([-endless, xs, xs, endless], axis=1)).sum()
        return self._traffic(len(xs), 0, BYTES, ways)._replace(received=int(received)), ways

    def unicast(self, tiles: F64) -> tuple[Traffic, Traffic]:
        """Return what letters to all interests in tiles cost: through the zones, and direct."""
        _, row, _ = self.interests.entries()
        rows = np.empty(self.interests.count, np.int32)
        count, overlay, ip, once, direct = _letters(
            self.interests.table, row, tiles, self._ways, rows
        )
        sent = LETTER_BYTES * count
        through = Traffic(count, sent, LETTER_BYTES * overlay, LETTER_BYTES * ip, count)
        direct_ip = LETTER_BYTES * direct
        return through, through._replace(overlay=LETTER_BYTES * once, ip=direct_ip)

    @staticmethod
    def _traffic(count: int, sent: int, size: int, ways: RouteLengths) -> Traffic:
        overlay, ip = int(ways.overlay.sum()), int(ways.ip.sum())
        return Traffic(count, sent, size * overlay, size * ip)
