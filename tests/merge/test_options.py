"""Cells, projection, subsets, links, exact indexing, and the trade: none of them loses an event."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rangecast import Boolean, Category, Integer, Number, Space, String, Timestamp, UsageError
from rangecast.merge import (
    Cells,
    Links,
    RangeForward,
    SplitSummary,
    Summary,
    chosen_attributes,
    convert,
)
from rangecast.merge.tuning import Setting
from rangecast.model.boxes import Boxes
from rangecast.model.filters.filter import Filter
from tests.support.examples import examples
from tests.support.merge_options import zipf_and_uniform
from tests.support.summaries import matched, pairs


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
        cells = Setting(space.names, 4, kind).make_cells(space, points[:10_000])
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
    with pytest.raises(UsageError, match="received as ranges"):
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
    assert links.links_for({"x": 7}, incoming="a") == ["b"]
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
