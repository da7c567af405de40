"""Covering graphs over every index: the messages, and Property 1, by the definition alone."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rangecast import Boxes, Filter, Integer, Space, UsageError
from rangecast.cover import CoverSet
from rangecast.cover.choose import INDEXES
from rangecast.model.filters.filter import boxes_of
from rangecast.model.sets.base import Subscription
from rangecast.workloads import generate
from tests.support.adversarial import cases
from tests.support.cover_oracle import Neighbourhood, cover_matrix
from tests.support.cover_traces import GRAPHS, INF, play, random_boxes, space_of
from tests.support.examples import examples
from tests.support.strategies import boxes as some_boxes

LONG = [
    pytest.param("zcurve", marks=pytest.mark.soak) if index == "zcurve" else index
    for index in INDEXES
]
"""The Z-curve takes half a minute for a long trace."""


@pytest.mark.conformance
@pytest.mark.parametrize("k", GRAPHS)
@pytest.mark.parametrize("index", LONG)
def test_a_long_trace_gives_what_the_definition_gives(index, k):
    rng = np.random.default_rng(5)
    for d in (1, 3):
        space, pool = space_of(d), random_boxes(rng, 60, d)
        first = pool.box_offsets
        filters = [
            Filter.from_boxes(space, pool.lo[begin:end], pool.hi[begin:end])
            for begin, end in pairwise(first)
        ]
        lo, hi, owner = boxes_of(space, filters)
        commands = rng.integers(0, 60, 250).tolist()
        play(CoverSet(space, index=index, k=k), Boxes.of(lo, hi, owner=owner), commands, 9, filters)


@pytest.mark.conformance
@pytest.mark.parametrize("index", INDEXES)
@examples(25)
@given(data=st.data())
def test_any_boxes_in_any_order(index, data):
    boxes = data.draw(some_boxes(max_rows=14))
    if not boxes.rows:
        return
    boxes = Boxes.of(boxes.lo, boxes.hi, owner=boxes.owner)
    commands = data.draw(st.lists(st.integers(0, boxes.rows - 1), max_size=40))
    k = data.draw(st.sampled_from(GRAPHS))
    play(CoverSet(space_of(boxes.dimensions), index=index, k=k), boxes, commands)


@pytest.mark.conformance
@pytest.mark.parametrize("index", INDEXES)
@pytest.mark.parametrize("name", [name for name in cases() if "none" not in name])
def test_adversarial_sets_come_and_go(index, name):
    boxes = cases()[name][0]
    boxes = Boxes.of(boxes.lo, boxes.hi, owner=boxes.owner)
    n = boxes.rows
    everything = [*range(n), *range(n)[::2], *range(0, n, 2), *range(n)[::-1]]
    play(CoverSet(space_of(boxes.dimensions), index=index), boxes, everything, check_each=150)


def forwards_of(right: Neighbourhood, commands: list[tuple[bool, int]]) -> list[tuple]:
    return [right.subscribe(row) if comes else right.unsubscribe(row) for comes, row in commands]


def as_table(boxes: Boxes, commands: list[tuple[bool, int]]) -> pa.Table:
    rows = np.array([row for _, row in commands])
    comes = np.array([new for new, _ in commands])
    columns = {"command": np.where(comes, "subscribe", "unsubscribe"), "id": rows}
    for j in range(boxes.dimensions):
        columns[f"a{j}_lo"] = pa.array(boxes.lo[rows, j], mask=~comes)
        columns[f"a{j}_hi"] = pa.array(boxes.hi[rows, j], mask=~comes)
    return pa.table(columns)


@cache
def long_history(d: int, values: int) -> tuple[Boxes, list[tuple[bool, int]], list[int], Any]:
    """Return thousands of boxes, how they come and go, those left, and the messages."""
    rng = np.random.default_rng(d + values)
    n = 3500
    ends = np.sort(rng.integers(0, values, (n, d, 2)), axis=2).astype(float)
    boxes = Boxes.of(ends[..., 0], ends[..., 1])
    commands, live = [], []
    for row in range(n):
        commands.append((True, row))
        live.append(row)
        while live and rng.random() < 0.3:
            commands.append((False, live.pop(int(rng.integers(len(live))))))
    return boxes, commands, live, forwards_of(Fast(boxes), commands)


@pytest.mark.parametrize("index", INDEXES)
@pytest.mark.parametrize(("d", "values"), [(2, 1000), (5, 30), (5, 10**6)])
def test_a_batch_of_commands_sends_the_same_messages(index, d, values):
    """Leaves, tiles and shelves split, and everything is rebuilt meanwhile."""
    boxes, commands, live, expected = long_history(d, values)
    table = as_table(boxes, commands)
    for k in (1, 3):
        graph = CoverSet(space_of(d), index=index, k=k)
        got = []
        for at in range(0, len(table), 1500):
            got += graph.update_many(table.slice(at, 1500))
        assert got == expected
        assert sorted(live) == [row for row in range(boxes.rows) if row in graph]


class Fast(Neighbourhood):
    """The same definitions over arrays, for thousands of rows that arrive in their order."""

    def __init__(self, boxes: Boxes):
        super().__init__(boxes)
        n = boxes.rows
        earlier = np.arange(n)[:, None] < np.arange(n)
        self.over = self.covers & (earlier | ~self.covers.T) & ~np.eye(n, dtype=np.bool_)
        self.live = np.zeros(n, np.bool_)
        self.count = np.zeros(n, np.int64)
        self.known = np.zeros(n, np.bool_)

    def subscribe(self, row: int) -> tuple[list[int], list[int]]:
        self.live[row] = True
        self.count += self.over[row]
        self.known[row] = self.count[row] == 0
        return [row] if self.known[row] else [], []

    def unsubscribe(self, row: int) -> tuple[list[int], list[int]]:
        self.live[row] = False
        self.count -= self.over[row]
        exposed = np.flatnonzero(self.live & ~self.known & (self.count == 0))
        self.known[exposed] = True
        return exposed.tolist(), [row] if self.known[row] else []


@pytest.mark.parametrize("k", GRAPHS)
@pytest.mark.parametrize("index", INDEXES)
def test_of_equal_boxes_one_represents_the_rest(index, k):
    """The algorithm as printed lets the two cover each other here, and events are lost."""
    graph = CoverSet(space_of(1), index=index, k=k)
    assert graph.subscribe("cover", "a0 between 0 and 9") == (["cover"], [])
    assert not graph.subscribe("one", "a0 between 3 and 4")
    assert not graph.subscribe("two", "a0 between 3 and 4")
    assert graph.unsubscribe("cover") == (["one"], ["cover"])
    assert graph.covered_by("two") == ["one"]
    assert graph.covers("one", "two")
    assert graph.covers("two", "one")
    assert graph.unsubscribe("one") == (["two"], ["one"])
    assert graph.unsubscribe("two") == ([], ["two"])


@pytest.mark.parametrize("index", INDEXES)
def test_what_was_forwarded_stays_so_and_is_not_sent_again(index):
    graph = CoverSet(space_of(1), index=index)
    assert graph.subscribe("small", "a0 between 3 and 4")
    assert graph.subscribe("large", "a0 between 0 and 9")
    assert graph.uncovered() == ["large"]
    assert graph.advertised() == ["small", "large"]
    assert graph.covered_by("small") == ["large"]
    assert graph.unsubscribe("large") == ([], ["large"])
    assert graph.uncovered() == ["small"]
    assert graph.work.rejoin.calls == 1


@pytest.mark.parametrize("k", GRAPHS)
@pytest.mark.parametrize("index", INDEXES)
def test_a_replaced_one_comes_before_the_old_one_goes(index, k):
    """Ids that take boxes of a pool in turn, one by one and many at once."""
    rng = np.random.default_rng(7)
    pool = random_boxes(rng, 60, 2, values=6)
    graph, right = CoverSet(space_of(2), index=index, k=k), Neighbourhood(pool)
    row_of: dict[str, int] = {}

    def named(rows):
        return [one for row in rows for one, held in row_of.items() if held == row]

    def expected(one, row):
        old, row_of[one] = row_of[one], row
        sent, withdrawn = right.replace(old, row)
        return named(sent), [one] if withdrawn else []

    for turn in range(120):
        spare = [row for row in range(60) if row not in right.arrival]
        if turn < 8 or (turn % 10 == 0 and len(spare) > 3):
            one, row = f"s{turn}", int(rng.choice(spare))
            row_of[one] = row
            boxes = replace(pool.take([row]), ids=pa.array([one]))
            sent, _ = right.subscribe(row)
            assert graph.subscribe_many(boxes)[0] == (named(sent), [])
        elif turn % 3 == 0:
            some = rng.choice(sorted(row_of), 3, replace=False).tolist()
            rows = rng.choice(spare, 3, replace=False)
            boxes = replace(pool.take(rows), ids=pa.array(some))
            right_ones = [expected(one, int(row)) for one, row in zip(some, rows, strict=True)]
            assert list(graph.replace_many(boxes)) == right_ones
        else:
            one, row = str(rng.choice(sorted(row_of))), int(rng.choice(spare))
            filter_ = Filter(graph.space, sparse(pool.take([row])))
            assert graph.replace(one, filter_) == expected(one, row)
        assert graph.uncovered() == named(right.uncovered())
        assert set(graph.advertised()) == set(named(right.advertised))
        assert list(graph) == named(sorted(right.arrival, key=right.arrival.get))
    everything = sorted(row_of)
    assert len(graph.unsubscribe_many(everything)) == len(everything)
    assert graph.uncovered() == graph.edges() == []


def sparse(boxes):
    return tuple(
        tuple((j, a, b) for j, (a, b) in enumerate(zip(*box, strict=True)) if (a, b) != (-INF, INF))
        for box in zip(boxes.lo.tolist(), boxes.hi.tolist(), strict=True)
    )


def test_a_neighbour_hears_of_what_is_exposed_before_the_filter_that_covered_it_shrinks():
    graph = CoverSet(space_of(1))
    graph.subscribe("wide", "a0 < 9")
    graph.subscribe("inner", "a0 between 3 and 4")
    assert graph.replace("wide", "a0 < 2") == (["inner", "wide"], [])
    assert graph.replace("wide", "a0 < 2") == ([], [])
    assert graph.replace("inner", "a0 < 1") == ([], ["inner"])
    assert graph["inner"] == Subscription("inner", "a0 < 1")
    assert list(graph) == ["wide", "inner"]
    assert graph.update_many(
        [
            {"command": "replace", "id": "inner", "filter": "a0 between 1 and 3"},
            {"command": "unsubscribe", "id": "wide"},
            {"command": "replace", "id": "inner", "filter": "a0 < 1"},
            {"command": "subscribe", "id": "wide", "filter": "a0 < 9"},
            {"command": "replace", "id": "inner", "filter": "a0 < 2"},
        ]
    ).table().to_pylist() == [
        {"command": 0, "action": "subscribe", "id": "inner"},
        {"command": 1, "action": "unsubscribe", "id": "wide"},
        {"command": 2, "action": "subscribe", "id": "inner"},
        {"command": 3, "action": "subscribe", "id": "wide"},
        {"command": 4, "action": "unsubscribe", "id": "inner"},
    ]
    assert list(graph) == ["inner", "wide"]


def test_alternatives_are_covered_one_by_one():
    graph = CoverSet(Space([Integer("x"), Integer("y")]))
    graph.subscribe("two", "x between 0 and 9 or y between 0 and 9")
    assert not graph.subscribe("in each", "x between 1 and 2 or y between 3 and 4")
    assert not graph.subscribe("in one", "x between 1 and 2 and y > 100")
    assert graph.subscribe("in their union only", "x between 0 and 20 and y between 0 and 20")
    assert graph.covers("two", "in each")
    assert not graph.covers("in each", "two")


def test_lemma_1_and_theorem_1_hold_on_the_paper_s_workload():
    made = generate("covering", commands=4000, attributes=3, unsubscribe_share=0.3)
    commands = made.tables["commands"]
    left = commands["command"].to_pylist().count("unsubscribe")
    calls = {}
    for k in (1, 2, 4):
        graph = CoverSet(made.space, index="kdtree", k=k)
        graph.update_many(commands)
        work = graph.work
        assert work.subscribe.calls == len(commands) - left
        calls[k] = work.subscribe.calls + work.unsubscribe.calls
    assert calls[1] - (len(commands) - left) <= left
    assert calls[1] <= 2 * min(calls.values())
    assert calls[1] > calls[2] >= calls[4]


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda g: g.covers("a", "c"), "no subscription 'c'"),
        (lambda g: g.update_many(pa.table({"id": [1]})), "'command' and 'id'"),
        (lambda g: g.update_many({"command": ["leave"], "id": ["a"]}), "expected: subscribe"),
        (lambda g: g.update_many({"command": ["unsubscribe"], "id": ["b"]}), "doesn't exist"),
        (
            lambda g: g.update_many({"command": ["subscribe"], "id": ["a"], "filter": ["true"]}),
            "already exists",
        ),
        (lambda g: g.update_many({"command": ["unsubscribe"], "id": [1]}), "are strings"),
        (lambda g: CoverSet(g.space, index="rtree"), "no index"),
        (lambda g: CoverSet(g.space, k=0), "at least 1"),
        (lambda g: CoverSet(g.space, k="some"), "'poset'"),
    ],
)
def test_mistakes_are_named_and_change_nothing(call, says):
    graph = CoverSet(space_of(1))
    graph.subscribe("a", "a0 > 0")
    with pytest.raises(UsageError, match=says):
        call(graph)
    assert graph.uncovered() == list(graph) == ["a"]


def test_many_are_removed_in_order_and_rows_are_used_again():
    graph = CoverSet(space_of(1))
    for size in range(9, 0, -1):
        graph.subscribe(size, f"a0 between 0 and {size}")
    assert list(graph.unsubscribe_many([9, 8, 6])) == [([8], [9]), ([7], [8]), ([], [])]
    graph.replace(7, "a0 between 0 and 8")  # what a replacement needs beside the old one
    before = graph.memory
    for turn in range(200):
        graph.subscribe(-1, "a0 = 3")
        graph.replace(7, f"a0 between 0 and {7 + turn % 2}")
        graph.unsubscribe(-1)
    assert graph.memory == before


def test_the_oracle_itself_on_a_case_by_hand():
    boxes = Boxes.of([[0.0], [1.0], [1.0], [5.0]], [[9.0], [2.0], [2.0], [12.0]])
    assert cover_matrix(boxes).astype(int).tolist() == [
        [1, 1, 1, 0],
        [0, 1, 1, 0],
        [0, 1, 1, 0],
        [0, 0, 0, 1],
    ]
    right = Neighbourhood(boxes)
    assert [right.subscribe(row)[0] for row in range(4)] == [[0], [], [], [3]]
    assert right.uncovered() == [0, 3]
    assert right.unsubscribe(0) == ([1], [0])
    assert right.replace(1, 0) == ([0], [])
    assert right.replace(0, 1) == ([1], [])
