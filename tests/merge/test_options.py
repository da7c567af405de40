"""Cells, projection, subsets, links, exact indexing, and the trade: none of them loses an event."""

from __future__ import annotations

from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rangecast import Boolean, Category, Integer, Number, Space, String, Timestamp, UsageError
from rangecast.merge import (
    Cells,
    ExactSummary,
    Links,
    RangeForward,
    SplitSummary,
    Summary,
    chosen_attributes,
    convert,
)
from rangecast.merge.holders import Holders
from rangecast.merge.ranges import Ranges, union_of_boxes
from rangecast.merge.tuning import Sample, Setting, outcome, recommend, recommended
from rangecast.merge.tuning import settings as to_try
from rangecast.model.boxes import Boxes
from rangecast.model.filters.filter import Filter
from rangecast.workloads import generate
from tests.merge.test_summary import matched, pairs
from tests.support.examples import examples


def zipf_and_uniform(n, m, d=3, **options):
    made = generate("equal-boxes", subscriptions=n, events=m, attributes=d, **options)
    return made.space, made.boxes, made.points


def filters_of(space, boxes):
    """Each subscription as the filter that it came from."""
    first = boxes.box_offsets
    return {
        one: Filter.from_boxes(space, boxes.lo[a:b], boxes.hi[a:b])
        for one, a, b in zip(boxes.ids.to_pylist(), first[:-1], first[1:], strict=True)
    }


# ---- cells


def test_every_value_has_a_cell_and_a_missing_one_has_its_own():
    space = Space(
        [
            Number("bounded", min=0, max=1),
            Number("free"),
            Integer("few", min=3, max=9),
            Integer("many", min=0, max=10**6),
            Boolean("yes"),
            Category("kind", [f"k{i}" for i in range(5)]),
            String("word"),
            Timestamp("at"),
            Number("positive", min=0),
        ]
    )
    for bits in (2, 4, 7):
        for name in space.names:
            cells = Cells.uniform(space, bits, [name])
            axis = space.axis(name)
            points = np.full((5, len(space)), np.inf)
            points[:, axis] = [-1e300, 0.0, 1e300, np.finfo(float).max, np.inf]
            found = cells.cells(points)[:, 0]
            assert (np.diff(found[:4].astype(int)) >= 0).all()
            assert found[4] == found[:4].max() + 1  # its own, the next one
            assert found[4] < 1 << bits
    exact = Cells.uniform(space, 3, ["few"])
    points = np.full((7, len(space)), np.inf)
    points[:, space.axis("few")] = np.arange(3, 10)
    assert len(set(exact.cells(points)[:, 0].tolist())) == 7


def test_when_a_domain_fills_all_cells_the_missing_share_the_last():
    space = Space([Integer("x", min=0, max=255)])
    cells = Cells.uniform(space, 8)
    points = np.append(np.arange(256.0), np.inf)[:, None]
    assert cells.cells(points)[:, 0].tolist() == [*range(256), 255]
    table = Summary(space, bits=8)
    table.subscribe("s", "x is null")
    assert table.may_match({})
    table.unsubscribe("s")
    table.subscribe("t", "x = 255")
    assert table.may_match({"x": 255})
    assert not table.may_match({"x": 254})


def test_quantile_cells_let_fewer_pass_where_publications_crowd():
    space, boxes, points = zipf_and_uniform(
        60, 20_000, subscription_distribution="uniform", size=37, domain=4096
    )
    truth = matched(boxes, np.arange(60), points)
    passed = {}
    for kind in ("uniform", "quantiles"):
        cells = Setting(space.names, 4, kind).made(space, points[:10_000])
        held = Summary.of(boxes, space, cells=cells).may_match_many(points)
        assert (held >= truth).all()
        passed[kind] = held.sum()
    assert passed["quantiles"] < passed["uniform"]


def test_cells_are_made_anew_when_publications_move():
    rng = np.random.default_rng(1)
    space = Space([Number("x"), Number("y")])
    early, later = rng.normal(0, 1, (4000, 2)), rng.normal(3, 1, (4000, 2))
    centre = rng.normal(1.5, 2, (300, 2))
    boxes = Boxes.of(centre - 0.05, centre + 0.05)
    table = Summary.of(boxes, space, cells=Cells.quantiles(space, 6, early))
    fresh = rng.normal(0, 1, (4000, 2))
    assert table.cells.moved(early) == 0.0
    assert table.cells.moved(fresh) < 0.05
    assert table.cells.moved(later) > 0.5
    assert not table.rebuild_cells(fresh)
    before = table.may_match_many(later).sum()
    assert table.rebuild_cells(later)
    held = table.may_match_many(later)
    assert (held >= matched(boxes, np.arange(300), later)).all()
    assert held.sum() < before
    for row in range(300):
        table.unsubscribe(row)
    assert table.breakpoints == 1
    assert table.cells.moved(later[:0]) == 0.0


def test_subscriptions_that_came_as_ranges_stop_a_refresh():
    space = Space([Number("x")])
    points = np.linspace(0, 1, 100)[:, None]
    table = Summary(space, cells=Cells.quantiles(space, 4, points))
    table.subscribe_ranges("s", convert("x > 3", space, table.cells))
    with pytest.raises(UsageError, match="came as ranges"):
        table.rebuild_cells(points + 5)


# ---- projection and subsets


def test_the_attributes_that_tell_subscriptions_apart_are_chosen():
    rng = np.random.default_rng(2)
    space = Space(Number(name, min=0, max=1) for name in ("wide", "narrow", "medium"))
    lo = rng.random((500, 3)) * 0.4
    boxes = Boxes.of(lo, lo + np.array([0.6, 0.01, 0.1]))
    assert chosen_attributes(boxes, space, 2) == ("narrow", "medium")
    with pytest.raises(UsageError, match="1 to 3"):
        chosen_attributes(boxes, space, 4)


@examples(25)
@given(st.integers(0, 10**6), st.sampled_from(["all", "any"]), st.integers(1, 3))
def test_tables_of_subsets_lose_nothing(seed, combine, most):
    rng = np.random.default_rng(seed)
    d = 5
    space = Space(Number(f"a{i}", min=0, max=1) for i in range(d))
    lo = rng.random((40, d)) * 0.8
    hi = lo + 0.2 * rng.random((40, d))
    free = rng.random((40, d)) < (0.2 if combine == "all" else 0.6)
    lo[free], hi[free] = -np.inf, np.inf
    boxes = Boxes.of(lo, hi)
    if combine == "all":
        subsets = [space.names[i : i + most] for i in range(0, d, most)]
    else:
        subsets = [list(some) for some in combinations(space.names, most)][:6]
    tables = SplitSummary(
        space, subsets=subsets, bits=4, combine=combine, max_ranges_per_subscription=8
    )
    points = rng.random((60, d))
    points[rng.random((60, d)) < 0.1] = np.inf
    for one, text in list(filters_of(space, boxes).items())[:20]:
        tables.subscribe(one, text)
    assert tables.subscribe_many(boxes.take(range(20, 40))) == 20
    for row in range(40):
        live = np.arange(row, 40)
        held = tables.may_match_many(points)
        assert (held >= matched(boxes, live, points)).all()
        if row % 3 == 2 and row < 39:  # the next one takes this one's box, and back
            tables.replace(row + 1, filters_of(space, boxes)[row])
            tables.unsubscribe(row)
            assert (tables.may_match_many(points) >= matched(boxes, [row, *live[2:]], points)).all()
            tables.replace_many(boxes.take([row + 1]))
        else:
            tables.unsubscribe(row)
    assert len(tables) == 0
    assert not tables.may_match_many(points).any()
    for wrong in ({"subsets": []}, {"subsets": subsets, "combine": "most"}):
        with pytest.raises(UsageError):
            SplitSummary(space, **wrong)


def test_more_subsets_let_fewer_pass():
    space, boxes, points = zipf_and_uniform(
        300, 5000, d=6, subscription_distribution="uniform", event_distribution="uniform", size=60
    )
    one = SplitSummary(space, subsets=[space.names[:2]], bits=6)
    thirds = [space.names[:2], space.names[2:4], space.names[4:]]
    three = SplitSummary(space, subsets=thirds, bits=6)
    for name, text in filters_of(space, boxes).items():
        one.subscribe(name, text)
        three.subscribe(name, text)
    truth = matched(boxes, np.arange(300), points)
    assert (three.may_match_many(points) >= truth).all()
    assert three.may_match_many(points).sum() < one.may_match_many(points).sum()


# ---- links


CLIENTS = -1


@pytest.mark.parametrize("gap", [0, 5])
def test_brokers_in_a_chain_tell_differences_and_lose_no_event(gap):
    """Five brokers; what each knows of a link is the sum of what lies behind it."""
    rng = np.random.default_rng(gap)
    space = Space([Integer("x", min=0, max=63), Integer("y", min=0, max=63)])
    ways = {0: [1], 1: [0, 2, 3], 2: [1], 3: [1, 4], 4: [3]}
    brokers = {one: Links(space, bits=6, max_ranges_per_subscription=8, gap=gap) for one in ways}
    for one, others in ways.items():
        for link in [CLIENTS, *others]:
            assert not brokers[one].connect(link)
    sent = 0

    def pass_on(broker, forwards):
        nonlocal sent
        for link, forward in forwards.items():
            if link != CLIENTS:
                sent += 1
                pass_on(link, brokers[link].apply(broker, forward))

    def reached(start, event):
        """Brokers whose clients get an event that a client of `start` publishes."""
        got, open_ways = set(), [(start, None)]
        while open_ways:
            broker, came_over = open_ways.pop()
            for link in brokers[broker].links_for(event, came_over):
                if link == CLIENTS:
                    got.add(broker)
                else:
                    open_ways.append((link, broker))
        return got

    live = {}
    for turn in range(160):
        kind = rng.random() if live else 1
        name = list(live)[rng.integers(len(live))] if kind < 0.6 else turn
        broker = live[name][0] if kind < 0.6 else int(rng.integers(5))
        if kind < 0.35:
            del live[name]
            pass_on(broker, brokers[broker].unsubscribe(CLIENTS, name))
        else:
            low = rng.integers(0, 56, 2)
            high = low + rng.integers(0, 8, 2)
            text = f"x between {low[0]} and {high[0]} and y between {low[1]} and {high[1]}"
            live[name] = broker, low, high
            change = brokers[broker].replace if kind < 0.6 else brokers[broker].subscribe
            pass_on(broker, change(CLIENTS, name, text))
        event = dict(zip("xy", rng.integers(0, 64, 2).tolist(), strict=True))
        wanted = {
            broker
            for broker, low, high in live.values()
            if (low <= list(event.values())).all() and (list(event.values()) <= high).all()
        }
        assert wanted <= reached(int(rng.integers(5)), event)
        if turn % 40 == 39:
            for one, others in ways.items():
                for link in others:
                    known = brokers[one].known_to(link)
                    expected = what_a_neighbour_holds(known, brokers[one][CLIENTS])
                    assert pairs(brokers[link][one].ranges()) == pairs(expected.ranges())
    for name, (broker, *_) in live.items():
        pass_on(broker, brokers[broker].unsubscribe(CLIENTS, name))
    for one, others in ways.items():
        assert not any(len(brokers[one][link].ranges()) for link in others)
    assert sent < 160 * 4 * 2


def what_a_neighbour_holds(ranges, model):
    """The summary of a neighbour once it heard of these ranges."""
    table = Summary(model.space, cells=model.cells, gap=model.gap)
    table.apply(RangeForward(add=ranges))
    return table


def test_a_link_that_comes_late_hears_all_and_one_that_goes_is_forgotten():
    space = Space([Integer("x", min=0, max=63)])
    links = Links(space, bits=6)
    links.connect("a")
    links.connect("b")
    assert pairs(links.subscribe("a", 1, "x < 10")["b"].add) == [(0, 9)]
    assert links.subscribe("a", 2, "x < 5") == {}
    assert pairs(links.subscribe("b", 3, "x between 5 and 20")["a"].add) == [(5, 20)]
    assert pairs(links.connect("c").add) == [(0, 20)]
    assert links.links_for({"x": 7}) == ["a", "b"]
    assert links.links_for({"x": 7}, came_over="a") == ["b"]
    assert {link: held.tolist() for link, held in links.links_for_many({"x": [7, 15]}).items()} == {
        "a": [True, False],
        "b": [True, True],
        "c": [False, False],
    }
    forwards = links.replace("a", 2, "x between 15 and 30")
    assert {link: pairs(one.add) for link, one in forwards.items()} == {
        "b": [(15, 30)],
        "c": [(21, 30)],
    }
    assert not any(len(one.drop) for one in forwards.values())
    forwards = links.replace_many("a", [{"id": i, "filter": "x between 40 and 50"} for i in (1, 2)])
    assert {link: (pairs(one.add), pairs(one.drop)) for link, one in forwards.items()} == {
        "b": ([(40, 50)], [(0, 9), (15, 30)]),
        "c": ([(40, 50)], [(0, 4), (21, 30)]),
    }
    links.subscribe_many("a", [{"id": 4, "filter": "x < 10"}])
    links.unsubscribe_many("a", [1, 2])
    forwards = links.disconnect("a")
    assert pairs(forwards["c"].drop) == [(0, 4)]
    assert pairs(forwards["b"].drop) == [(0, 9)]
    assert not any(len(one.add) for one in forwards.values())
    with pytest.raises(UsageError, match="no link"):
        links.unsubscribe("a", 1)
    with pytest.raises(UsageError, match="link 'b' already exists"):
        links.connect("b")


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
    with pytest.raises(UsageError, match="neighbours don't know subscription 'right'"):
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
@pytest.mark.parametrize("seed", range(8))
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


# ---- the trade


def test_a_summary_within_a_budget_is_measured_and_the_best_recommended():
    space, boxes, points = zipf_and_uniform(400, 3000, d=4, size=20)
    truth = matched(boxes, np.arange(400), points)
    order = chosen_attributes(boxes, space, 4, points)
    tried = [
        outcome(space, boxes, one, 50, points, truth)
        for one in to_try(order, max_attributes=2, sampled=True)
        if one.bits <= 6
    ]
    assert {one.setting.cells for one in tried} == {"uniform", "quantiles"}
    for one in tried:
        assert one.ranges <= min(50, one.all_ranges)
        assert (one.gap > 0) == (one.ranges < one.all_ranges)
        assert one.matched == truth.sum() <= one.passed
        assert 0 <= one.false_positives < 1
        assert 0 < one.coverage <= 1
    best = recommended(tried)
    assert best.passed == min(one.passed for one in tried)
    wide = [outcome(space, boxes, best.setting, b, points, truth).passed for b in (5, 50, 5000)]
    assert wide == sorted(wide, reverse=True)  # the slider from memory to precision
    with pytest.raises(UsageError, match="no setting"):
        recommended([])
    steps = []
    found = recommend(
        boxes, space, 50, Sample(points, truth), max_attributes=2, progress=steps.append
    )
    assert found.best == recommended(found.outcomes)
    assert len(steps) == len(found.outcomes) >= len(tried)
    assert len(found.summary.ranges()) == found.best.ranges
    passed = found.summary.may_match_many(points).sum()
    assert passed == found.best.passed <= best.passed
    assert found.best.pass_rate == passed / len(points)
    assert found.is_worth_it == (found.best.pass_rate < 0.95)
    blind = recommend(boxes, space, 50, max_attributes=1)
    assert blind.best.pass_rate == min(one.coverage for one in blind.outcomes)


def test_imperfect_merging_costs_traffic_that_is_measured():
    space, boxes, points = zipf_and_uniform(2000, 5000, size=2, event_distribution="uniform")
    truth = matched(boxes, np.arange(2000), points)
    ranges, passed = [], []
    for gap in (0, 4, 64, 4096):
        table = Summary.of(boxes, space, bits=8, gap=gap)
        held = table.may_match_many(points)
        assert (held >= truth).all()
        ranges.append(len(table.ranges()))
        passed.append(int(held.sum()))
    assert ranges == sorted(ranges, reverse=True)
    assert passed == sorted(passed)
    assert ranges[-1] < ranges[0] / 10


def test_no_boxes_and_no_events():
    space = Space([Number("x", min=0, max=1)])
    none = Boxes.of(np.zeros((0, 1)), np.zeros((0, 1)))
    cells = Cells.uniform(space, 4)
    assert not len(union_of_boxes(cells, none.lo, none.hi, none.owner))
    table = Summary.of(none, space, bits=4)
    assert not table.may_match_many(np.array([[0.5]])).any()
    assert not len(table.may_match_many(np.zeros((0, 1))))
    assert not table.ranges().contains_cells(cells.places(np.array([[0.5]]))).any()
    assert len(table.subscribe_many(none)) == 0
    assert not table.may_match({"x": 0.5})
    assert table.coverage() == 0.0
    nobody = np.zeros((0, 1)), np.zeros(0, np.bool_)
    assert outcome(space, none, Setting(("x",), 4, "uniform"), 3, *nobody).false_positives == 0
