"""A network of brokers with more subscriptions than any memory: drawn one by one, never kept.

The space has two attributes of 1,024 values: a place and a topic. A subscription is a box of 1 to 8
values on each. Its place lies about the home of its broker, by a heavy-tailed distance; its topic
is Zipf's. A broker has one bit per cell of the space: what its subscriptions hold together. So a
link between brokers can be given the union of all brokers behind it, cell by cell.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from rangecast.kernels.arrays import I32, I64, U16, U64, Bool
from rangecast.kernels.curves.hilbert import indexes_of, turns_of
from rangecast.kernels.jit import jit
from rangecast.overlay.networks.internet import Internet
from rangecast.workloads.draws import zipf

BITS = 10
SIDE = 1 << BITS
WORDS = SIDE // 64
WIDEST = 8
_TABLE = 1 << 16
_SCALE = 6.0
"""Half of all subscriptions lie within this distance of their broker's home."""
_ONE = np.uint64(1)


class Tables(NamedTuple):
    """Quantiles to draw from."""

    distance: U16
    topic: U16


def tables_of() -> Tables:
    """Return the distances from home (around the end of the attribute), and the topics."""
    quantiles = (np.arange(_TABLE) + 0.5) / _TABLE
    distance = np.round(_SCALE * np.tan(np.pi * (quantiles - 0.5))).astype(np.int64) % SIDE
    topic = np.searchsorted(np.cumsum(zipf(SIDE, 1.0)), quantiles)
    return Tables(distance.astype(np.uint16), np.minimum(topic, SIDE - 1).astype(np.uint16))


@jit
def _mixed(state: np.uint64) -> np.uint64:
    """Return 64 random bits of a counter: splitmix64."""
    z = state * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@jit
def box_of(stream: np.uint64, number: int, home: int, distance: U16, topic: U16) -> Any:
    """Return the first and last place, first and last topic, of a broker's subscription."""
    drawn = _mixed(stream + np.uint64(number))
    place = (home + np.int64(distance[drawn & np.uint64(0xFFFF)])) % SIDE
    first = np.int64(topic[(drawn >> np.uint64(16)) & np.uint64(0xFFFF)])
    wide = np.int64((drawn >> np.uint64(32)) & np.uint64(WIDEST - 1))
    high = np.int64((drawn >> np.uint64(35)) & np.uint64(WIDEST - 1))
    return place, min(place + wide, SIDE - 1), first, min(first + high, SIDE - 1)


@jit
def fill(bits: U64, stream: np.uint64, count: int, home: int, distance: U16, topic: U16) -> int:
    """Mark what `count` subscriptions hold; return how many held something new when they came."""
    new = 0
    for number in range(count):
        x0, x1, y0, y1 = box_of(stream, number, home, distance, topic)
        low, high = y0 // 64, y1 // 64
        first = ~np.uint64(0) << np.uint64(y0 % 64)
        last = ~np.uint64(0) >> np.uint64(63 - y1 % 64)
        is_new = False
        for x in range(x0, x1 + 1):
            if low == high:
                mask = first & last
                is_new |= (bits[x, low] & mask) != mask
                bits[x, low] |= mask
            else:
                is_new |= (bits[x, low] & first) != first or (bits[x, high] & last) != last
                bits[x, low] |= first
                bits[x, high] |= last
        new += is_new
    return new


@jit
def note_kinds(
    kinds: Bool, stream: np.uint64, count: int, home: int, distance: U16, topic: U16
) -> None:
    """Mark boxes: kinds[further places, further topics, first place, first topic]."""
    for number in range(count):
        x0, x1, y0, y1 = box_of(stream, number, home, distance, topic)
        kinds[x1 - x0, y1 - y0, x0, y0] = True


def uncovered(kinds: Bool) -> int:
    """Return how many of the marked boxes no other one covers."""
    covered = np.zeros_like(kinds)
    for wide in range(kinds.shape[0] - 1, -1, -1):
        for high in range(kinds.shape[1] - 1, -1, -1):
            here = covered[wide, high]
            if wide + 1 < kinds.shape[0]:
                wider = kinds[wide + 1, high] | covered[wide + 1, high]
                here |= wider
                here[1:] |= wider[:-1]
            if high + 1 < kinds.shape[1]:
                higher = kinds[wide, high + 1] | covered[wide, high + 1]
                here |= higher
                here[:, 1:] |= higher[:, :-1]
    return int((kinds & ~covered).sum())


class Network(NamedTuple):
    """Brokers that join the nearest one before them, over an internet."""

    parent: I64
    """(brokers,) -1: the first one."""
    length: I64
    """(brokers,) links of the internet to the parent."""
    home: I64
    size: I64
    """(brokers,) subscriptions of each, skewed."""


def network_of(seed: int, brokers: int, nodes: int, subscriptions: int) -> Network:
    """Draw a network."""
    rng = np.random.default_rng(seed)
    internet = Internet(nodes, seed=seed)
    places = rng.choice(nodes, brokers, replace=False)
    hops = internet.hops(places)[:, places].astype(np.int64)
    parent, length = np.full(brokers, -1), np.zeros(brokers, np.int64)
    for one in range(1, brokers):
        near = np.flatnonzero(hops[one, :one] == hops[one, :one].min())
        parent[one] = rng.choice(near)
        length[one] = hops[one, parent[one]]
    shares = zipf(brokers, 0.8)[rng.permutation(brokers)]
    size = np.maximum(1, np.round(shares * subscriptions)).astype(np.int64)
    return Network(parent, length, rng.integers(0, SIDE, brokers), size)


def curve() -> I64:
    """Return the cells, numbered row by row, in the order of the Hilbert curve."""
    cells = np.indices((SIDE, SIDE)).reshape(2, -1).T.astype(np.uint64).copy()
    index = np.empty(len(cells), np.uint64)
    indexes_of(cells, BITS, turns_of(2), index)
    return np.argsort(index)


def behind_links(bits: U64, parent: I64) -> tuple[U64, U64]:
    """Return what lies below each broker, itself included, and what lies beyond its parent."""
    brokers = len(parent)
    below = bits.copy()
    for one in range(brokers - 1, 0, -1):
        below[parent[one]] |= below[one]
    beyond = np.zeros_like(bits)
    children: dict[int, list[int]] = {}
    for one in range(1, brokers):
        children.setdefault(int(parent[one]), []).append(one)
    for above in range(brokers):
        mine = children.get(above, [])
        after = np.zeros_like(bits[0])
        for one in reversed(mine):  # the brothers behind it,
            beyond[one] = after
            after |= below[one]
        before = bits[above] | beyond[above]
        for one in mine:  # and those before it, with all that the parent has
            beyond[one] |= before
            before |= below[one]
    return below, beyond


@jit
def _merge(held: Bool, order: I64, gaps: I32, most: int, out: Bool) -> tuple[int, int]:
    """Close the smallest gaps on the curve until there are at most `most` ranges.

    Returns how many ranges there are, and how many cells gaps were closed over. `gaps` is scratch.
    """
    ranges, gap = 0, 0
    counts = np.zeros(len(order) + 1, np.int64)
    for i in range(len(order)):
        cell = order[i]
        out[cell] = held[cell]
        if held[cell]:
            if ranges and gap:
                gaps[ranges] = gap
                counts[gap] += 1
            if not ranges or gap:
                ranges += 1
            gap = 0
        else:
            gap += 1
    closed, left, limit = 0, max(0, ranges - most), 0
    while left > 0:  # all gaps up to `limit`, and some of the next size
        limit += 1
        left -= counts[limit]
    spare = counts[limit] + left if limit else 0
    if ranges <= most:
        return ranges, 0
    gap, begun = 0, False
    for i in range(len(order)):
        if held[order[i]]:
            if begun and gap and (gap < limit or (gap == limit and spare > 0)):
                if gap == limit:
                    spare -= 1
                for back in range(1, gap + 1):
                    out[order[i - back]] = True
                closed += gap
            gap, begun = 0, True
        else:
            gap += 1
    return ranges, closed


def cells_of(bits: U64) -> Bool:
    """Return a bitmap as one value per cell, row by row."""
    found: Bool = np.unpackbits(bits.view(np.uint8), bitorder="little").view(np.bool_)
    return found


def merged(bits: U64, order: I64, most: int) -> tuple[Bool, int, int]:
    """Return the cells of a link's table of at most `most` ranges, its ranges, and cells added."""
    held = cells_of(bits)
    out = np.empty(len(held), np.bool_)
    ranges, closed = _merge(held, order, np.empty(len(held) + 1, np.int32), most, out)
    return out, ranges, closed


@jit
def route(
    parent: I64,
    first_child: I64,
    next_child: I64,
    length: I64,
    down: U64,
    up: U64,
    own: U64,
    exact_down: U64,
    exact_up: U64,
    origins: I64,
    cells: I64,
    totals: I64,
) -> None:
    """Send events through the tree; add up what they cost.

    down, up   tables by broker: of the link from its parent to it, and from it to its parent
    totals     messages, messages in vain, deliveries, links to deliveries, IP links to deliveries
    """
    stack = np.empty((3 * len(parent) + 3, 4), np.int64)
    for event in range(len(origins)):
        cell = cells[event]
        word, bit = cell // 64, _ONE << np.uint64(cell % 64)
        waiting = 1
        stack[0, 0], stack[0, 1], stack[0, 2], stack[0, 3] = origins[event], -2, 0, 0
        while waiting:
            waiting -= 1
            broker, origin = stack[waiting, 0], stack[waiting, 1]
            hops, far = stack[waiting, 2], stack[waiting, 3]
            if own[broker, word] & bit:
                totals[2] += 1
                totals[3] += hops
                totals[4] += far
            above = parent[broker]
            if above >= 0 and above != origin and up[broker, word] & bit:
                totals[0] += 1
                totals[1] += (exact_up[broker, word] & bit) == 0
                stack[waiting, 0], stack[waiting, 1] = above, broker
                stack[waiting, 2], stack[waiting, 3] = hops + 1, far + length[broker]
                waiting += 1
            child = first_child[broker]
            while child >= 0:
                if child != origin and down[child, word] & bit:
                    totals[0] += 1
                    totals[1] += (exact_down[child, word] & bit) == 0
                    stack[waiting, 0], stack[waiting, 1] = child, broker
                    stack[waiting, 2], stack[waiting, 3] = hops + 1, far + length[child]
                    waiting += 1
                child = next_child[child]


def events_of(seed: int, network: Network, tables: Tables, count: int) -> tuple[I64, I64]:
    """Return where events come from, and their cells: about the home of their own broker."""
    rng = np.random.default_rng([seed, 1])
    origins = rng.integers(0, len(network.parent), count)
    x = (network.home[origins] + rng.choice(tables.distance, count)) % SIDE
    return origins, x * SIDE + rng.choice(tables.topic, count)


def links_of(parent: I64) -> tuple[I64, I64]:
    """Return the first child of each broker and the next brother, -1: there is none."""
    first, following = np.full(len(parent), -1), np.full(len(parent), -1)
    for one in range(len(parent) - 1, 0, -1):
        following[one], first[parent[one]] = first[parent[one]], one
    return first, following


def packed(cells: Any) -> U64:
    """Return one value per cell as a bitmap of words."""
    found: U64 = np.packbits(cells, bitorder="little").view(np.uint64)
    return found
