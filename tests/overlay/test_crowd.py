"""The network of a billion subscriptions, at sizes where everything can be kept and compared."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from experiments.beyond.crowd import (
    SIDE,
    WIDEST,
    WORDS,
    behind_links,
    box_of,
    cells_of,
    curve,
    events_of,
    fill,
    links_of,
    merged,
    network_of,
    note_kinds,
    packed,
    route,
    tables_of,
    uncovered,
)

TABLES = tables_of()


def drawn(stream: int, count: int, home: int) -> list[tuple[int, ...]]:
    return [tuple(box_of(np.uint64(stream), i, home, *TABLES)) for i in range(count)]


def held(boxes: list[tuple[int, ...]]) -> set[tuple[int, int]]:
    """The cells of boxes, one by one."""
    return {
        (x, y) for x0, x1, y0, y1 in boxes for x in range(x0, x1 + 1) for y in range(y0, y1 + 1)
    }


def test_a_broker_holds_what_its_subscriptions_hold() -> None:
    bits = np.zeros((SIDE, WORDS), np.uint64)
    new = fill(bits, np.uint64(9), 400, 1000, *TABLES)
    boxes = drawn(9, 400, 1000)
    cells = cells_of(bits.reshape(-1)).reshape(SIDE, SIDE)
    assert set(zip(*map(np.ndarray.tolist, np.nonzero(cells)), strict=True)) == held(boxes)
    advertised = 0
    for number, box in enumerate(boxes):
        advertised += not held([box]) <= held(boxes[:number])
    assert new == advertised


def test_covering_by_its_definition() -> None:
    kinds = np.zeros((WIDEST, WIDEST, SIDE, SIDE), np.bool_)
    note_kinds(kinds, np.uint64(3), 500, 40, *TABLES)
    boxes = {*drawn(3, 500, 40)}
    assert int(kinds.sum()) == len(boxes)
    alone = [
        one
        for one in boxes
        if not any(
            a <= one[0] and one[1] <= b and c <= one[2] and one[3] <= d
            for a, b, c, d in boxes - {one}
        )
    ]
    assert uncovered(kinds) == len(alone)


def test_a_table_of_few_ranges_closes_the_smallest_gaps() -> None:
    order = curve()
    assert sorted(order.tolist()) == list(range(SIDE * SIDE))
    bits = np.zeros((SIDE, WORDS), np.uint64)
    fill(bits, np.uint64(1), 300, 500, *TABLES)
    cells = cells_of(bits.reshape(-1))
    places = np.flatnonzero(cells[order])
    gaps = sorted(b - a - 1 for a, b in pairwise(places.tolist()) if b > a + 1)
    for most in (1, 5, 50, 10**6):
        found, ranges, closed = merged(bits.reshape(-1), order, most)
        assert ranges == len(gaps) + 1
        assert closed == sum(gaps[: max(0, ranges - most)])
        assert (found >= cells).all()
        assert int(found.sum() - cells.sum()) == closed


def test_links_hold_what_lies_behind_them_and_events_reach_who_holds_them() -> None:
    network = network_of(2, 12, 300, 600)
    bits = np.zeros((12, SIDE, WORDS), np.uint64)
    for one in range(12):
        fill(
            bits[one], np.uint64(one << 32), int(network.size[one]), int(network.home[one]), *TABLES
        )
    below, beyond = behind_links(bits, network.parent)

    def under(one: int) -> set[int]:
        mine = {one}
        for child in np.flatnonzero(network.parent == one).tolist():
            mine |= under(child)
        return mine

    for one in range(1, 12):
        inside = under(one)
        union = np.bitwise_or.reduce([bits[each] for each in inside])
        rest = np.bitwise_or.reduce([bits[each] for each in range(12) if each not in inside])
        assert (below[one] == union).all()
        assert (beyond[one] == rest).all()
    order, words = curve(), SIDE * WORDS
    tables: list[Any] = [np.zeros((12, words), np.uint64) for _ in range(2)]
    for one in range(1, 12):
        for target, source in zip(tables, (below, beyond), strict=True):
            target[one] = packed(merged(source[one].reshape(-1), order, 20)[0])
    flat = [array.reshape(12, words) for array in (bits, below, beyond)]
    origins, cells = events_of(2, network, TABLES, 300)
    totals = np.zeros(5, np.int64)
    given = network.parent, *links_of(network.parent), network.length, *tables
    route(*given, *flat, origins, cells, totals)
    reached = sum(int(cells_of(flat[0][one])[cells].sum()) for one in range(12))
    assert totals[2] == reached
    assert totals[0] >= totals[1] >= 0
    exact = np.zeros(5, np.int64)
    given = network.parent, *links_of(network.parent), network.length, flat[1], flat[2]
    route(*given, *flat, origins, cells, exact)
    assert exact[1] == 0, "without closed gaps nothing is in vain"
    assert exact[2] == reached
    assert exact[3] == totals[3], "events go the same ways to those who hold them"
