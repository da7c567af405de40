"""Exact indexing: subscriptions that are advertised, and those that they cover."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rangecast import Integer, Number, Space, UsageError
from rangecast.merge import (
    ExactSummary,
)
from rangecast.merge.holders import Holders
from rangecast.merge.ranges import Ranges
from rangecast.model.boxes import Boxes
from rangecast.model.filters.filter import Filter
from rangecast.workloads import generate
from tests.support.examples import examples
from tests.support.seeds import seeds

# ---- exact indexing


def holds(box, point):
    return bool(((box[0] <= point) & (point <= box[1])).all())


def in_some(boxes, point):
    return any(holds(box, point) for box in boxes.values())


def same_boxes(one, other):
    return all(map(np.array_equal, one, other))


def entry_of(index, one):
    """The box of an entry, by the text that a neighbour would be sent."""
    lo, hi = Filter.parse(index.entry(one).filter, index.space).arrays()
    assert len(lo) == 1
    return lo[0], hi[0]


@examples(25)
@given(st.integers(0, 10**6), st.sampled_from(["integer", "number"]), st.booleans())
def test_the_index_is_exact_and_its_active_ones_hold_everything(seed, kind, merging):
    """Neighbours get entry by entry what `entry` says, and hold exactly what somebody asks for."""
    rng = np.random.default_rng(seed)
    make = {"integer": Integer, "number": Number}[kind]
    kind_of_axis = kind
    space = Space(make(name, min=0, max=15) for name in "wxyz")
    index = ExactSummary(
        space, bits=3, attributes=["w", "y"], max_ranges_per_subscription=4, merging=merging
    )
    live, known = {}, {}
    for turn in range(40):
        low = 4.0 * rng.integers(0, 4, 4)  # boxes that touch, and often are one together
        high = low + 4 * rng.integers(1, 3, 4) - (1 if kind_of_axis == "integer" else 0)
        if turn % 2:
            low, high = rng.integers(0, 12, 4).astype(float), low + rng.integers(12, 15, 4)
        high = np.minimum(high, 15)
        free = rng.random(4) < (0.8 if turn % 4 else 0.3)
        low[free], high[free] = -np.inf, np.inf
        kind = rng.random() if live else 1
        name = list(live)[rng.integers(len(live))] if kind < 0.6 else turn
        if kind < 0.3:
            del live[name]
            forward = index.unsubscribe(name)
        else:
            change = index.replace if kind < 0.6 else index.subscribe
            live[name] = low, high
            forward = change(name, Filter.from_boxes(space, low, high))
        values = rng.integers(0, 16, (20, 4)).astype(float)
        values[rng.random((20, 4)) < 0.1] = np.inf
        before = {n: box for n, box in live.items() if n != name}
        for one in forward.subscribe:
            known[one] = entry_of(index, one)
            for point in values:  # message by message, nothing that others want is missing
                if in_some(before, point):
                    assert in_some(known, point)
        for one in forward.unsubscribe:
            del known[one]
        assert set(known) == set(index.advertised())
        assert {*known, *index.unadvertised()} == set(live)
        for one in known:
            assert same_boxes(known[one], entry_of(index, one))
            assert merging or same_boxes(known[one], live[one])
        for point in values:
            event = {n: v for n, v in zip("wxyz", point.tolist(), strict=True) if v < np.inf}
            right = [n for n, (lo, hi) in live.items() if ((lo <= point) & (point <= hi)).all()]
            assert index.match(event) == right
            assert in_some(known, point) == bool(right)
            assert index.may_match(event) == bool(right)
            assert index.candidates(point) >= len(right)


def test_candidates_are_found_among_many_that_came_and_went():
    """And the search leaves out what ends too early: its work is counted."""
    rng = np.random.default_rng(5)
    holders, live = Holders(), {}
    for row in range(2500):
        start = np.uint64(rng.integers(0, 1 << 20))
        ranges = Ranges(np.array([start]), np.array([start + np.uint64(rng.integers(0, 300))]))
        holders.add(np.array([row]), ranges)
        live[row] = ranges
        if row % 3:
            gone = list(live)[rng.integers(len(live))]
            holders.remove(gone)
            del live[gone]
    for first in rng.integers(0, 1 << 20, 50).tolist():
        last = first + 500
        found, looked = holders.overlapping(Ranges(*np.array([[first], [last]], np.uint64)))
        right = [r for r, (a, b) in live.items() if a[0] <= last and b[0] >= first]
        assert found.tolist() == right
        assert looked < 200 < len(live)


def test_covered_and_subsumed_ones_wait_on_the_passive_list():
    space = Space([Integer("x", min=0, max=99), Number("y", min=0, max=1), Integer("z")])
    index = ExactSummary(space, bits=6, attributes=["x"])
    assert index.subscribe("left", "x <= 50 and z > 3") == (["left"], [])
    assert index.subscribe("right", "x > 50 and z > 3") == (["right"], [])
    assert not index.subscribe("inside", "x between 10 and 20 and z = 7")
    assert not index.subscribe("across", "x between 40 and 60 and z > 5")  # by both together
    assert index.unadvertised() == ["inside", "across"]
    before = index.evaluated
    assert index.unsubscribe("left") == (["inside", "across"], ["left"])
    assert index.evaluated == before + 1
    sent, withdrawn = index.subscribe("all", "z > 1")
    assert sent == ["all"]
    assert sorted(withdrawn) == ["across", "inside", "right"]
    assert not index.unsubscribe("across")
    assert index.replace("all", "z > 3 and x < 15") == (["right", "inside", "all"], [])
    assert index.replace("all", "z > 3 and x < 15") == ([], [])
    assert index.replace("inside", "z = 5 and x = 1") == ([], ["inside"])
    assert index.unadvertised() == ["inside"]
    assert sorted(index.unsubscribe("all").subscribe) == ["inside"]


def test_subscriptions_that_are_one_box_together_are_one_entry():
    space = Space([Integer("x", min=0, max=99), Number("y", min=0, max=9), Integer("z")])
    index = ExactSummary(space, bits=6, attributes=["x"], merging=True)
    assert index.subscribe("left", "x <= 50 and z > 3") == (["left"], [])
    assert index.subscribe("right", "x > 50 and z > 3") == (["left"], [])  # in place of the old one
    assert index.entry("left").filter == "x is not null and z >= 4"
    assert (index.advertised(), index.unadvertised()) == (["left"], ["right"])
    assert index["left"].filter == "x <= 50 and z >= 4"
    assert not index.subscribe("across", "x between 40 and 60 and z > 5")
    with pytest.raises(UsageError, match="neighbours don't know the subscription 'right'"):
        index.entry("right")
    assert index.subscribe("gap", "x <= 50 and z = 1") == (["gap"], [])  # 2 and 3 are between
    assert index.subscribe("low", "x <= 99 and z in (2, 3)") == (["left"], [])
    assert index.entry("left").filter == "x is not null and z >= 2"
    assert index.unsubscribe("left") == (["right", "across", "low"], ["left"])
    assert index.subscribe("left", "x <= 50 and z > 3") == (["right"], ["across", "low"])
    # What the other members hold between them can go without a word but for the host's name.
    whole = ExactSummary(space, bits=6, attributes=["x"], merging=True)
    for one, text in {
        "a": "x < 30",
        "b": "x between 20 and 60",
        "c": "x between 31 and 99",
    }.items():
        whole.subscribe(one, text)
    assert whole.entry("a").filter == "x is not null"
    assert not whole.unsubscribe("b") or whole.advertised() == ["a", "c"]


def test_far_fewer_entries_where_boxes_tile_and_snapshots_go_on(tmp_path):
    """A grid of 12 x 12 tiles in any order is one entry, and with any tile gone it is exact."""
    space = Space([Integer("x", min=0, max=47), Integer("y", min=0, max=47)])
    rng = np.random.default_rng(1)
    index = ExactSummary(space, bits=5, merging=True)
    plain = ExactSummary(space, bits=5)
    tiles = [(x, y) for x in range(12) for y in range(12)]
    for number in rng.permutation(144).tolist():
        x, y = tiles[number]
        text = f"x between {4 * x} and {4 * x + 3} and y between {4 * y} and {4 * y + 3}"
        index.subscribe(number, text)
        plain.subscribe(number, text)
    assert len(plain.advertised()) == 144
    assert len(index.advertised()) < 20  # one box, unless the order left a pinwheel
    for number in rng.permutation(144)[:100].tolist():
        index.unsubscribe(number)
        plain.unsubscribe(number)
        assert len(index.advertised()) <= len(plain.advertised())
    index.save(tmp_path / "s")
    for one in (index, ExactSummary.open(tmp_path / "s")):
        entries = [entry_of(one, name) for name in one.advertised()]
        assert len(entries) < 44 == len(one)
        for x in range(48):
            for y in range(48):
                right = plain.may_match({"x": x, "y": y})
                assert one.may_match({"x": x, "y": y}) == right
                point = np.array([x, y])
                assert any(holds(box, point) for box in entries) == right


@pytest.mark.conformance
@pytest.mark.parametrize("seed", seeds(3, 8))
def test_merged_entries_hold_every_point_that_somebody_wants_and_no_other(seed):
    """On all points of a small space, with several boxes per subscription, message by message."""
    rng = np.random.default_rng(seed)
    space = Space(Integer(name, min=0, max=7) for name in "abc")
    names = ["a", "b"] if seed % 2 else None
    index = ExactSummary(
        space, bits=2, attributes=names, max_ranges_per_subscription=4, merging=True
    )
    grid = np.array([*product([*range(8), np.inf], repeat=3)])

    def points(lo, hi):
        return ((lo[:, None] <= grid) & (grid <= hi[:, None])).all(axis=2).any(axis=0)

    def all_of(some):
        return np.any([np.zeros(len(grid), np.bool_), *some.values()], axis=0)

    live, known = {}, {}
    for turn in range(60):
        lo = 2.0 * rng.integers(0, 4, (1 if rng.random() < 0.8 else 2, 3))
        hi = np.minimum(lo + 2 * rng.integers(1, 4, lo.shape) - 1, 7)
        free = rng.random(lo.shape) < 0.4
        lo[free], hi[free] = -np.inf, np.inf
        what = rng.random() if live else 1
        name = list(live)[rng.integers(len(live))] if what < 0.55 else turn
        wanted = live.pop(name, None)
        others = all_of(live)
        if what < 0.3:
            forward = index.unsubscribe(name)
        else:
            change = index.replace if wanted is not None else index.subscribe
            forward = change(name, (lo, hi))
            live[name] = points(lo, hi)
        for one in forward.subscribe:
            known[one] = points(*Filter.parse(index.entry(one).filter, space).arrays())
            assert not (others & ~all_of(known)).any()
        for one in forward.unsubscribe:
            del known[one]
            assert not (others & ~all_of(known)).any()
        assert (all_of(known) == all_of(live)).all()
        assert set(known) == set(index.advertised())


def test_merging_leaves_fewer_entries_and_fewer_comparisons():
    """The paper's boxes, on a grid of 16 x 16 as limits in a form are."""
    made = generate("equal-boxes", seed=2, subscriptions=800, events=1, attributes=2, size=32)
    lo = np.floor(made.boxes.lo / 16) * 16
    boxes = Boxes.of(lo, np.minimum(lo + 31, 255))
    counts = {}
    for merging in (False, True):
        index = ExactSummary(made.space, bits=4, merging=merging)
        index.subscribe_many(boxes)
        counts[merging] = len(index.advertised()), index.evaluated
    assert counts == {False: (67, 4886), True: (25, 3194)}
