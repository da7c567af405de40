"""Summaries: what is covered, limits on ranges, and edits of many subscriptions."""

from __future__ import annotations

import pickle
from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rangecast import Integer, Number, Space, String, UsageError
from rangecast.merge import Cells, Ranges, Summary, convert, kept
from rangecast.merge.ranges import (
    RangeSets,
    difference,
    range_sets,
    union,
    union_of_boxes,
    within_budget,
)
from rangecast.model.boxes import Boxes
from tests.support.summaries import (
    LINE,
    PLACES,
    Counted,
    closed,
    matched,
    pairs,
    runs,
    shift,
    some_ranges,
    space_of,
)


def test_the_example_of_the_paper():
    """Figure 3; our curve happens to run as the paper's does."""
    space = Space([Integer("x", min=0, max=7), Integer("y", min=0, max=7)])
    table = Summary(space, bits=3)
    forward = table.subscribe("s2", "x between 4 and 6 and y between 2 and 5")
    assert pairs(forward.add) == pairs(table.ranges()) == [(32, 35), (45, 46), (50, 55)]
    grid = np.indices((8, 8)).reshape(2, -1).T.astype(float)
    places = table.cells.places(grid).tolist()
    held = dict(zip(places, table.may_match_many(grid).tolist(), strict=True))
    assert [held[place] for place in (28, 52, 50)] == [False, True, True]
    assert sum(held.values()) == 12


def test_covering_subsumption_and_merging_in_one_look_up():
    space = Space([Integer("x", min=0, max=255)])
    table = Summary(space, bits=8)
    assert pairs(table.subscribe("a", "x between 10 and 19").add) == [(10, 19)]
    assert not table.subscribe("covered", "x between 12 and 15")
    assert pairs(table.subscribe("touching", "x between 20 and 29").add) == [(20, 29)]
    assert pairs(table.ranges()) == [(10, 29)]  # perfect merging
    assert not table.subscribe("subsumed", "x between 15 and 25")  # by two together
    assert pairs(table.subscribe("partly", "x between 25 and 34").add) == [(30, 34)]
    assert pairs(table.subscribe("around", "x between 0 and 99").add) == [(0, 9), (35, 99)]
    assert table.individually_redundant() == ["a", "covered", "touching", "subsumed", "partly"]
    assert pairs(table.unsubscribe("around").drop) == [(0, 9), (35, 99)]
    assert pairs(table.unsubscribe("a").drop) == [(10, 11)]  # the covered one takes over
    assert pairs(table.exclusive_ranges("covered")) == [(12, 14)]
    imperfect = Summary(space, bits=8, gap=5)
    imperfect.subscribe("a", "x between 10 and 19")
    assert pairs(imperfect.subscribe("b", "x between 25 and 29").add) == [(20, 29)]
    assert imperfect.may_match({"x": 22})
    assert not imperfect.subscribe("c", "x between 21 and 23")
    assert pairs(imperfect.subscribe("d", "x between 36 and 39").add) == [(36, 39)]


def told_of(table, ranges):
    """Return what a table says of ranges: contained or not, and the gaps that it looked for."""
    before = table.work
    held = bool(table._levels.covered(RangeSets.single(ranges))[0])
    assert table.work.touched == before.touched
    return held, table.work.looked - before.looked


@pytest.mark.conformance
@pytest.mark.parametrize("gap", [0, 3, 40])
def test_whether_a_subscription_is_covered_is_asked_without_adding_it(gap):
    rng = np.random.default_rng(gap)
    table, oracle = Summary(LINE, bits=12, gap=gap), Counted(gap)
    answers = set()
    for turn in range(600):
        ranges = some_ranges(rng, 6, 120 if turn % 2 else 6)
        held = closed(oracle.counts, gap)
        holes = [
            sum(1 for first, last in runs(oracle.counts == 0) if first <= high and low <= last)
            for low, high in pairs(ranges)
        ]
        expected = all(held[first : last + 1].all() for first, last in pairs(ranges))
        covered, looked = told_of(table, ranges)
        assert covered == expected == (not len(table.difference(ranges)))
        assert looked <= len(ranges) + sum(holes)
        assert gap or looked <= len(ranges)  # one look-up per range
        answers.add(covered)
        if not covered or turn % 3:
            shift(table, ranges, 1)
            oracle.shift(ranges, 1)
        if turn % 100 == 99:
            oracle.agrees(table)
            dropped = Ranges(np.array([0], np.uint64), np.array([PLACES - 1], np.uint64))
            table, oracle = Summary(LINE, bits=12, gap=gap), Counted(gap)
            assert told_of(table, dropped) == (False, 1)
    assert answers == {False, True}


def test_filters_and_sets_that_are_covered():
    space = Space([Integer("x", min=0, max=255), Number("y")])
    table = Summary(space, bits=8, attributes=["x"])
    table.subscribe("a", "x between 10 and 19")
    table.subscribe("b", "x between 20 and 29")
    looked = table.work.looked
    assert table.covers("x between 12 and 25")
    assert table.covers("x = 12 or x = 29 and y > 3")
    assert not table.covers("x between 12 and 30")
    assert not table.covers("y = 3")
    assert table.work.looked == looked + 1 + 2 + 1 + 1
    filters = ["x = 10", "x = 9", "x between 15 and 29"]
    assert table.covers_many({"id": [1, 2, 3], "filter": filters}).tolist() == [True, False, True]
    assert len(table.covers_many({"id": [], "filter": []})) == 0
    assert list(table) == ["a", "b"]
    assert not Summary(space).covers("x = 1")
    assert Summary(space).individually_redundant() == []


@given(st.data())
def test_the_gaps_that_are_closed_are_those_that_cost_least(data):
    """Every choice of gaps is tried: none lets fewer of the sample through, or is shorter then."""
    cuts = data.draw(st.lists(st.integers(0, 60), min_size=2, max_size=14, unique=True))
    cuts = sorted(cuts)[: len(cuts) // 2 * 2]
    ranges = union(np.array(cuts[::2], np.uint64), np.array(cuts[1::2], np.uint64))
    budget = data.draw(st.integers(1, 8))
    sample = data.draw(st.none() | st.lists(st.integers(0, 60), max_size=40))
    places = None if sample is None else np.array(sample, np.uint64)
    few, widest = within_budget(ranges, budget, places)
    gaps = [range(end + 1, start) for (_, end), (start, _) in pairwise(pairs(ranges))]
    held = {place for first, last in pairs(few) for place in range(first, last + 1)}
    before = {place for first, last in pairs(ranges) for place in range(first, last + 1)}
    assert before <= held
    assert len(few) == min(budget, len(ranges))
    closed = [gap for gap in gaps if gap[0] in held]
    assert held - before == {place for gap in closed for place in gap}
    assert widest == max(map(len, closed), default=0)

    def cost(some):
        return sum((sample or []).count(place) for gap in some for place in gap)

    choices = [*combinations(gaps, len(closed))]
    least = min(map(cost, choices))
    assert cost(closed) == least
    shortest = min(sum(map(len, some)) for some in choices if cost(some) == least)
    assert sum(map(len, closed)) == shortest


def test_the_last_place_of_the_largest_curve():
    space = Space(Number(name, min=0, max=1) for name in "abcd")
    table = Summary(space, bits=16)
    top = 2**64 - 1
    assert pairs(table.subscribe("all", "true").add) == [(0, top)]
    assert table.may_match({})
    assert table.coverage() == 1.0
    end = Ranges(np.array([5, top - 3], np.uint64), np.array([9, top], np.uint64))
    assert not len(shift(table, end, 1))
    assert pairs(table.unsubscribe("all").drop) == [(0, 4), (10, top - 4)]
    assert pairs(table.difference(Ranges(np.zeros(1, np.uint64), np.full(1, top, np.uint64)))) == [
        (0, 4),
        (10, top - 4),
    ]
    assert pairs(shift(table, end, -1)) == pairs(end)
    assert table.breakpoints == 1


@pytest.mark.parametrize(("axes", "bits"), [(1, 64), (2, 32), (3, 21), (7, 9), (16, 4), (64, 1)])
def test_any_resolution_that_fits_64_bits(axes, bits):
    rng = np.random.default_rng(axes)
    space = Space(Integer(f"a{i}", min=0, max=40) for i in range(axes))
    lo = rng.integers(0, 35, (30, axes)).astype(float)
    boxes = Boxes.of(lo, lo + 5)
    table = Summary(space, bits=bits, max_ranges_per_subscription=8)
    table.subscribe_many(boxes)
    points = np.concatenate([lo + rng.integers(0, 6, lo.shape), rng.integers(0, 41, (50, axes))])
    for gone in range(30):
        live = np.arange(gone, 30)
        assert (table.may_match_many(points) >= matched(boxes, live, points)).all()
        table.unsubscribe(gone)
    assert table.breakpoints == 1


def test_work_depends_on_the_subscription_and_not_on_the_table():
    rng = np.random.default_rng(2)
    space = Space(Number(name, min=0, max=1) for name in "xyz")
    lo = rng.random((3000, 3)) * 0.97
    boxes = Boxes.of(lo, lo + 0.02)
    table = Summary(space, bits=8)
    sets = range_sets(table.cells, boxes.lo, boxes.hi, boxes.owner, 64)
    counts = np.diff(sets.offsets)
    table.subscribe_many(boxes)
    assert table.work.touched <= 2 * counts.sum()
    for row in rng.permutation(3000)[:300].tolist():
        touched, looked = table.work
        lost = table.unsubscribe(row).drop
        assert table.work.touched - touched <= 2 * counts[row]
        assert table.work.looked - looked <= 2 * counts[row] + len(lost)


def test_a_bound_on_ranges_coarsens_and_never_narrows():
    rng = np.random.default_rng(3)
    space = Space(Number(name, min=0, max=1) for name in "xyz")
    lo = rng.random((200, 3)) * 0.7
    boxes = Boxes.of(lo, lo + 0.3 * rng.random((200, 3)))
    cells = Cells.uniform(space, 7)
    exact = range_sets(cells, boxes.lo, boxes.hi, boxes.owner, 1 << 14)
    for limit in (1, 5, 40):
        few = range_sets(cells, boxes.lo, boxes.hi, boxes.owner, limit)
        assert np.diff(few.offsets).max() <= limit
        for row in range(200):
            mine = slice(*few.offsets[row : row + 2])
            for i in range(*exact.offsets[row : row + 2]):
                at = np.searchsorted(few.starts[mine], exact.starts[i], side="right") - 1
                assert at >= 0
                assert exact.ends[i] <= few.ends[mine][at]


def test_many_boxes_of_one_subscription_count_once():
    space = Space([Integer("x", min=0, max=255)])
    table = Summary(space, bits=8, max_ranges_per_subscription=3)
    gained = table.subscribe(
        "s", "x between 1 and 9 or x between 5 and 20 or x in (30, 33, 40, 99)"
    ).add
    assert pairs(gained) == [(1, 20), (30, 40), (99, 99)]  # 3 ranges: two gaps are closed
    assert pairs(table.unsubscribe("s").drop) == pairs(gained)
    assert table.breakpoints == 1


def test_union_by_one_sort_and_one_scan():
    rng = np.random.default_rng(4)
    for gap in (0, 2, 50):
        starts = rng.integers(0, PLACES - 60, 300).astype(np.uint64)
        ends = starts + rng.integers(0, 9, 300).astype(np.uint64)
        counts = np.zeros(PLACES, np.int64)
        for first, last in zip(starts.tolist(), ends.tolist(), strict=True):
            counts[first : last + 1] += 1
        assert pairs(union(starts, ends, gap)) == runs(closed(counts, gap))
    exact = union(starts, ends)
    few, gap = within_budget(exact, 10)
    gaps = np.sort(exact.starts[1:] - exact.ends[:-1] - np.uint64(1))[: len(exact) - 10]
    assert len(few) == 10
    assert gap == gaps[-1]
    assert few.cells == exact.cells + gaps.sum()
    enough, none = within_budget(exact, 10_000)
    assert pairs(enough) == pairs(exact)
    assert none == 0
    space = Space(Number(name, min=0, max=1) for name in "xy")
    lo = rng.random((70_000, 2)) * 0.999
    cells = Cells.uniform(space, 10)
    boxes = Boxes.of(lo, lo + 0.0005, owner=np.arange(70_000) // 3)
    together = union_of_boxes(cells, boxes.lo, boxes.hi, boxes.owner, max_ranges_per_subscription=3)
    table = Summary.of(boxes, space, cells=cells, max_ranges_per_subscription=3)
    assert pairs(together) == pairs(table.ranges())


def test_a_client_converts_as_the_broker_does():
    space = space_of(3)
    broker = Summary(space, bits=5)
    plain = Summary(space, bits=5)
    client = pickle.loads(pickle.dumps(broker.cells))  # what a client is sent
    texts = ["a > 2 and c between 1 and 3", "b is null", "a < 0 or c = 7", "true"]
    for number, text in enumerate(texts):
        sent = broker.subscribe_ranges(number, convert(text, space, client))
        assert pairs(sent.add) == pairs(plain.subscribe(number, text).add)
    assert pairs(broker.unsubscribe(3).drop) == pairs(plain.unsubscribe(3).drop)
    for table in (broker, plain):
        table.subscribe(9, "c = 5")
    several = broker.unsubscribe_many([1, 9, 0]), plain.unsubscribe_many([1, 9, 0])
    for one, other in zip(*several, strict=True):
        assert pairs(one.drop) == pairs(other.drop)
    assert pairs(broker.ranges()) == pairs(plain.ranges())
    assert len(broker) == len(plain) == 1
    with pytest.raises(UsageError, match="other cells"):
        broker.subscribe_ranges(5, convert("true", space, Cells.uniform(space, 4)))
    assert pairs(broker.replace(2, "a < 0").drop) == pairs(plain.replace(2, "a < 0").drop)
    assert broker[2].filter == "a < 0"


def test_ranges_over_words_that_a_client_numbers_otherwise_are_rejected():
    """The same cells and ranges would mean other words: a wanted event would be lost."""
    here, there = (Space([String("symbol", words)]) for words in (["IBM", "AAPL"], ["AAPL"]))
    broker = Summary(here, bits=4)
    sent = convert("symbol = 'AAPL'", there, broker.cells)
    with pytest.raises(UsageError, match="other words"):
        broker.subscribe_ranges(1, sent)
    there = Space([String("symbol", ["IBM"])])
    broker.subscribe_ranges(1, convert("symbol != 'IBM'", there, broker.cells))
    assert broker.may_match({"symbol": "AAPL"})
    assert not broker.may_match({"symbol": "IBM"})
    with pytest.raises(UsageError, match="other words"):  # the broker doesn't know this word yet
        broker.subscribe_ranges(2, convert("symbol = 'MSFT'", there, broker.cells))
    with pytest.raises(UsageError, match="received as ranges"):
        broker[1]


@pytest.mark.parametrize("gap", [0, 6])
def test_a_replaced_one_comes_before_the_old_one_goes(gap):
    """What a neighbour hears, applied in order, always leaves it with exactly the union."""
    rng = np.random.default_rng(gap)
    table, neighbour = Summary(LINE, bits=12, gap=gap), Summary(LINE, bits=12)
    held = {}

    def boxes(ids):
        lo = rng.integers(0, 300, (len(ids), 1)).astype(float)
        held.update({one: (a, a + 9) for one, (a,) in zip(ids, lo.tolist(), strict=True)})
        return Boxes.of(lo, lo + 9, ids=ids)

    for forward in table.subscribe_many(boxes(list(range(12)))):
        neighbour.apply(forward)
    for turn in range(150):
        some = rng.choice(12, 3, replace=False).tolist()
        if turn % 2:
            a = int(rng.integers(0, 300))
            held[some[0]] = a, a + 9
            forwards = [table.replace(some[0], f"x between {a} and {a + 9}")]
        else:
            forwards = table.replace_many(boxes(some))
        for forward in forwards:
            before = neighbour.ranges().contains_cells(forward.drop.starts)
            assert before.all(), "nothing is dropped that it never knew"
            assert not neighbour.ranges().contains_cells(forward.add.starts).any()
            neighbour.apply(forward)
        counts = np.zeros(PLACES, np.int64)
        for a, b in held.values():
            counts[int(a) : int(b) + 1] += 1
        assert pairs(table.ranges()) == pairs(neighbour.ranges()) == runs(closed(counts, gap))
    assert list(table) == list(range(12))


def test_what_one_set_of_ranges_holds_and_another_does_not():
    rng = np.random.default_rng(11)
    top = 2**64 - 1
    for _ in range(200):
        some, others = some_ranges(rng, 12, 300), some_ranges(rng, 12, 300)
        held = [np.zeros(PLACES, np.bool_) for _ in range(2)]
        for mask, ranges in zip(held, (some, others), strict=True):
            for first, last in pairs(ranges):
                mask[first : last + 1] = True
        assert pairs(difference(some, others)) == runs(held[0] & ~held[1])
    whole = Ranges(np.zeros(1, np.uint64), np.full(1, top, np.uint64))
    ends = Ranges(np.array([0, top], np.uint64), np.array([0, top], np.uint64))
    assert pairs(difference(whole, ends)) == [(1, top - 1)]
    assert pairs(difference(ends, whole)) == []


def test_many_subscriptions_that_fail_half_way_leave_nothing_behind(monkeypatch):
    table = Summary(LINE, bits=12)
    table.subscribe(-1, "x = 3")
    lo = np.arange(6.0)[:, None] * 10
    monkeypatch.setattr(kept, "BLOCK", 2)
    convert_block, calls = kept.range_sets, []

    def failing(*given):
        calls.append(given)
        if len(calls) == 3:
            raise MemoryError
        return convert_block(*given)

    monkeypatch.setattr(kept, "range_sets", failing)
    with pytest.raises(MemoryError):
        table.subscribe_many(Boxes.of(lo, lo))
    assert pairs(table.ranges()) == [(3, 3)]
    assert list(table) == [-1]
    assert len(table.subscribe_many(Boxes.of(lo, lo))) == 6
    del calls[:]
    with pytest.raises(MemoryError):
        table.unsubscribe_many(range(6))
    assert len(table) == 7
    assert len(table.ranges()) == 7


def test_what_makes_no_sense_is_rejected():
    table = Summary(LINE, bits=12)
    table.subscribe("s", "x = 3")
    one = np.ones(1, np.uint64)
    for call in (
        lambda: shift(table, Ranges(one * 5, one * 4), 1),
        lambda: shift(table, Ranges(np.array([3, 4], np.uint64), np.array([3, 4], np.uint64)), 1),
        lambda: shift(table, Ranges(one, one * PLACES), 1),
        lambda: shift(table, Ranges(one, one * 4), -1),
        lambda: table.exclusive_ranges("t"),
        lambda: table.may_match_many(np.zeros((2, 3))),
        lambda: table.rebuild_cells(np.zeros((2, 1))),
        lambda: Summary(LINE, bits=65),
        lambda: Summary(space_of(4), bits=17),
        lambda: Summary(LINE, bits=12, max_ranges_per_subscription=0),
        lambda: Summary(LINE, bits=12, gap=-1),
        lambda: Summary(LINE, bits=12, attributes=[]),
        lambda: Summary(LINE, bits=12, attributes=["x"], cells=table.cells),
        lambda: Summary(LINE, cells=Cells.uniform(space_of(2), 4)),
        lambda: within_budget(table.ranges(), 0),
    ):
        with pytest.raises(UsageError):
            call()
    assert pairs(table.ranges()) == [(3, 3)]
