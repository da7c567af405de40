"""The two indexes of notify against plain Python: answers, edits, and work."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rangecast.notify.board import Board
from rangecast.notify.line.interests import Interests
from rangecast.notify.line.objects import Objects
from rangecast.notify.line.objects_line import first_east, first_west, next_best
from rangecast.workloads.topk import topk
from tests.support.notify_model import PLACES, VALUES

INF = math.inf


def check_line(objects, live, x, key, k, lo, hi):
    """Hold all three questions to a dict of slot -> (x, y, arrival)."""
    found = np.zeros(k + 1)
    below = [place for place, y, arrival in live.values() if (y, arrival) < key]
    west = sorted((p for p in below if p <= x), reverse=True)[:k]
    east = sorted(p for p in below if p > x)[:k]
    assert first_west(objects.line, x, *key, k, found) == len(west)
    assert found.tolist() == [x, *west] + [-INF] * (k - len(west))
    assert first_east(objects.line, x, *key, k, found) == len(east)
    assert found.tolist() == [x, *east] + [INF] * (k - len(east))
    above = [
        (y, arrival)
        for place, y, arrival in live.values()
        if lo <= place <= hi and (y, arrival) > key and y < INF
    ]
    p = next_best(objects.line, lo, hi, *key, INF, -1)
    found_key = None if p < 0 else (objects.line.y[p], objects.line.arrival[p])
    assert found_key == min(above, default=None)


@pytest.mark.conformance
@given(st.data())
def test_the_line_answers_as_a_sort_does(data):
    n = data.draw(st.integers(0, 100))
    rng = np.random.default_rng(data.draw(st.integers(0, 1000)))
    spread = data.draw(st.sampled_from([1, 8, 500]))
    xs, ys = rng.integers(0, spread, n).astype(float), rng.integers(0, 7, n).astype(float)
    objects = Objects(xs, ys)
    live = {i: (xs[i], ys[i], i) for i in range(n)}
    arrivals = n
    for _ in range(data.draw(st.integers(1, 40))):
        kind = data.draw(st.sampled_from(["add", "add", "remove", "change"]))
        if kind == "add" or not live:
            x, y = data.draw(PLACES), data.draw(VALUES)
            slot = objects.add(x, y)
            assert slot not in live
            live[slot] = (x, y, arrivals)
            arrivals += 1
        else:
            slot = sorted(live)[data.draw(st.integers(0, len(live) - 1))]
            if kind == "remove":
                objects.remove(slot)
                del live[slot]
            else:
                y = data.draw(st.one_of(VALUES, st.just(INF)))
                objects.change_many([slot], [y])
                live[slot] = (live[slot][0], y, live[slot][2])
        lo, hi = sorted((data.draw(PLACES), data.draw(PLACES)))
        key = (data.draw(VALUES), data.draw(st.integers(-1, arrivals)))
        check_line(objects, live, data.draw(PLACES), key, data.draw(st.integers(1, 5)), lo, hi)
    slots, xs, ys, came = objects.columns()
    assert dict(zip(slots.tolist(), zip(xs, ys, came, strict=True), strict=True)) == live
    assert (np.diff(xs) >= 0).all()


def test_a_crowd_at_one_end_finds_room():
    objects = Objects()
    for i in range(3000):
        assert objects.add(1000.0 - i if i % 2 else -500.0, float(i % 7)) == i
    assert (np.diff(objects.columns()[1]) >= 0).all()
    assert objects.best(-INF, INF, 3).tolist() == [0, 7, 14]


def around(points):
    if not points:
        return None
    ls, rs = zip(*points, strict=True)
    return min(ls), max(ls), min(rs), max(rs)


@pytest.mark.conformance
@pytest.mark.parametrize("grid", [1, 4, 1000])
@pytest.mark.parametrize("order", ["random", "ascending"])
def test_the_tree_snaps_as_a_scan_does(grid, order):
    rng = np.random.default_rng(grid)
    first = np.sort(rng.integers(0, grid, (300, 2)), axis=1).astype(float)
    interests = Interests(first[:, 0], first[:, 1])
    live = {i: tuple(pair) for i, pair in enumerate(first.tolist())}
    for step in range(1200):
        if rng.random() < (0.6 if step < 800 else 0.2) or not live:
            pair = sorted(rng.integers(0, grid, 2).tolist())
            lo, hi = (float(step), float(step)) if order == "ascending" else map(float, pair)
            row = interests.add(lo, hi)
            assert row not in live
            live[row] = (lo, hi)
        else:
            row = int(rng.choice(list(live)))
            interests.remove(row)
            del live[row]
        if step % 20 == 0:
            l0, l1 = sorted(rng.integers(0, grid + 1, 2).astype(float))
            r0, r1 = sorted(rng.integers(0, grid + 1, 2).astype(float))
            held = {i: p for i, p in live.items() if l0 <= p[0] <= l1 and r0 <= p[1] <= r1}
            assert interests.snap(l0, l1, r0, r1) == around(held.values())
            assert sorted(interests.within(l0, l1, r0, r1).tolist()) == sorted(held)
            assert interests.number_within(l0, l1, r0, r1) == len(held)
    assert {row: interests.of(row) for row in live} == live


@pytest.mark.parametrize(("before", "gone", "more"), [(0, 0, 300), (40, 30, 500), (300, 10, 50)])
def test_many_are_put_in_as_one_by_one(before, gone, more):
    rng = np.random.default_rng(before)
    pairs = np.sort(rng.integers(0, 50, (before + more, 2)), axis=1).astype(float)
    interests = Interests(pairs[:before, 0], pairs[:before, 1])
    live = {row: tuple(pair) for row, pair in enumerate(pairs[:before].tolist())}
    for row in range(gone):
        interests.remove(row)
        del live[row]
    rows = interests.add_many(pairs[before:, 0], pairs[before:, 1])
    assert not set(rows.tolist()) & set(live)
    live |= dict(zip(rows.tolist(), map(tuple, pairs[before:].tolist()), strict=True))
    assert interests.count == len(live)
    assert interests.rows == max(live) + 1
    assert {row: interests.of(row) for row in live} == live
    found = zip(*(column.tolist() for column in interests.columns()), strict=True)
    assert {row: (lo, hi) for row, lo, hi in found} == live
    for _ in range(30):
        (l0, l1), (r0, r1) = np.sort(rng.integers(0, 51, (2, 2)), axis=1).tolist()
        held = [row for row, p in live.items() if l0 <= p[0] <= l1 and r0 <= p[1] <= r1]
        assert sorted(interests.within(l0, l1, r0, r1).tolist()) == sorted(held)
    for row in list(live):
        interests.remove(row)
    assert interests.count == 0


def test_a_sketch_covers_all_with_few_rectangles():
    pairs = np.sort(np.random.default_rng(1).random((5000, 2)), axis=1)
    interests = Interests(pairs[:, 0], pairs[:, 1])
    for size in (1, 7, 300):
        sketch = interests.sketch(size)
        assert sketch.count == size
        for lo, hi in pairs[:200].tolist():
            assert sketch.snap(lo, lo, hi, hi) == (lo, lo, hi, hi)
    assert interests.sketch(1).snap(-INF, INF, -INF, INF) == interests.snap(-INF, INF, -INF, INF)
    assert Interests().sketch(3).count == 0


PAPER = {1: 1.12, 2: 1.73, 5: 3.57, 10: 6.60, 15: 9.63, 20: 12.63}


@pytest.mark.parametrize("k", PAPER)
def test_table_three_comes_out(k):
    """Calls of min_y per update of Paint-Dense: a count, the same on every machine."""
    tables = topk(1, interests=0, updates=20_000).tables
    board = Board(k, objects=tables["objects"], algorithm="dense")
    changes = zip(*(tables["updates"][c].to_pylist() for c in ("id", "value")), strict=True)
    board.update_many(changes)
    assert board.work.first_k == 2 * 20_000
    assert board.work.min_y / 20_000 == pytest.approx(PAPER[k], rel=0.02)
