"""The table of ranges against arrays of counts, place by place: never too little, never stale."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rangecast import Integer, Number, Space, UnknownIdError
from rangecast.merge import Cells, Ranges, Summary
from rangecast.merge.levels.tree import FAN, HEIGHT, LEAVES, SIZE
from rangecast.merge.papers.split import SplitSummary
from rangecast.merge.ranges import (
    tree_of_ranges,
)
from tests.support import adversarial, strategies
from tests.support.examples import examples
from tests.support.summaries import (
    LINE,
    PLACES,
    Counted,
    matched,
    pairs,
    shift,
    some_ranges,
    space_of,
)


def check_nodes(table):
    """Sizes of all nodes are in bounds; so the tree is as flat as it claims to be."""
    tree = table._levels._tree
    leaf, leaves, steps = 0, 0, 0
    while leaf >= 0:
        size = tree.leaf[leaf, SIZE]
        assert size >= FAN // 4 or tree.state[0, HEIGHT] == 0
        leaves, steps, leaf = leaves + 1, steps + size, int(tree.leaf[leaf, 1])
    assert (leaves, steps) == (tree.state[0, LEAVES], table.breakpoints)


@pytest.mark.conformance
@pytest.mark.parametrize("gap", [0, 3, 40])
@pytest.mark.parametrize(("most", "longest"), [(8, 4), (60, 200), (3, PLACES)])
def test_a_long_history_leaves_exactly_what_is_live(gap, most, longest):
    rng = np.random.default_rng(most + gap)
    table, oracle = Summary(LINE, bits=12, gap=gap), Counted(gap)
    live = []
    for turn in range(900):
        if live and rng.random() < (0.3 if turn < 450 else 0.7):
            ranges, by = live.pop(rng.integers(len(live))), -1
        else:
            ranges, by = some_ranges(rng, most, longest), 1
            live.append(ranges)
        touched, looked = table.work
        change = shift(table, ranges, by)
        assert pairs(change) == oracle.shift(ranges, by)
        assert table.work.touched - touched <= 2 * len(ranges)
        assert table.work.looked - looked <= 2 * len(ranges) + len(change)
        if turn % 150 == 0:
            oracle.agrees(table)
            check_nodes(table)
    for ranges in live:
        assert pairs(shift(table, ranges, -1)) == oracle.shift(ranges, -1)
    oracle.agrees(table)
    assert table.breakpoints == 1
    assert not len(table.ranges())


def test_a_deep_tree_grows_and_shrinks_and_is_the_same_as_one_built_at_once():
    space = Space([Integer("x", min=0, max=(1 << 20) - 1)])
    rng = np.random.default_rng(1)
    table = Summary(space, bits=20)
    starts = np.sort(rng.choice(1 << 19, 40_000, replace=False)).astype(np.uint64) * np.uint64(2)
    order = rng.permutation(40_000)
    for block in np.array_split(order, 400):
        some = np.sort(starts[block])
        shift(table, Ranges(some, some), 1)
    assert table._levels._tree.state[0, HEIGHT] >= 2
    check_nodes(table)
    built = Summary(space, bits=20)
    built._levels._tree = tree_of_ranges(starts, starts, table.cells.top)
    check_nodes(built)
    assert pairs(built.ranges()) == pairs(table.ranges()) == [(s, s) for s in starts.tolist()]
    for one in (table, built):
        for block in np.array_split(rng.permutation(40_000)[:39_990], 400):
            some = np.sort(starts[block])
            shift(one, Ranges(some, some), -1)
        check_nodes(one)
        assert one._levels._tree.state[0, HEIGHT] == 0
        assert len(one.ranges()) == 10


@st.composite
def histories(draw):
    """Boxes that come, and for some of them when they go."""
    boxes = draw(strategies.boxes(dimensions=st.integers(1, 3), max_rows=12))
    goes = draw(st.lists(st.booleans(), min_size=boxes.rows, max_size=boxes.rows))
    return boxes, goes, draw(strategies.points(boxes.dimensions))


def cells_for(kind, space, bits, boxes, points, names):
    if kind == "uniform":
        return Cells.uniform(space, bits, names)
    if kind == "quantiles":
        return Cells.quantiles(space, bits, points, names)
    return Cells.bounds(space, bits, boxes, names)


@pytest.mark.conformance
@examples(150)
@given(
    histories(),
    st.sampled_from(["uniform", "quantiles", "bounds"]),
    st.integers(1, 5),
    st.sampled_from([1, 2, 64]),
    st.sampled_from([0, 1, 7]),
    st.data(),
)
def test_whatever_the_options_nothing_is_lost(history, kind, bits, limit, gap, data):
    """The one law; and what is told, taken together, is what the table holds."""
    boxes, goes, points = history
    space = space_of(boxes.dimensions)
    names = data.draw(st.lists(st.sampled_from(space.names), min_size=1, unique=True))
    cells = cells_for(kind, space, bits, boxes, points, names)
    table = Summary(space, cells=cells, max_ranges_per_subscription=limit, gap=gap)
    neighbour = Summary(space, cells=cells)
    for forward in table.subscribe_many(boxes):
        neighbour.apply(forward)
    live = list(range(boxes.rows))
    ids = boxes.ids.to_pylist()
    for row, gone in enumerate(goes):
        if gone:
            alone = table.exclusive_ranges(ids[row])
            forward = table.unsubscribe(ids[row])
            assert pairs(alone) == pairs(forward.drop)
            neighbour.apply(forward)
            live.remove(row)
        assert table.individually_redundant() == [
            one for one in table if not len(table.exclusive_ranges(one))
        ]
        assert pairs(table.ranges()) == pairs(neighbour.ranges())
        held = table.may_match_many(points)
        assert (held >= matched(boxes, live, points)).all()
    rebuilt = Summary.of(
        boxes.take(live), space, cells=cells, max_ranges_per_subscription=limit, gap=gap
    )
    assert pairs(rebuilt.ranges()) == pairs(table.ranges())
    assert rebuilt.breakpoints == table.breakpoints
    assert len(table) == len(live) == len(list(table))


def cell_numbers(cells, values):
    """Cells by NumPy's own search, (n, axes)."""
    columns = []
    for axis, edges in zip(cells.axes, cells.edges, strict=True):
        column = np.searchsorted(edges, values[:, axis], side="right") + np.isposinf(
            values[:, axis]
        )
        columns.append(np.minimum(column, (1 << cells.bits) - 1))
    return np.stack(columns, axis=1)


@examples(100)
@given(strategies.boxes_and_points(dimensions=st.integers(1, 3), max_rows=8), st.integers(1, 4))
def test_without_bounds_a_table_holds_exactly_the_cells_of_its_boxes(case, bits):
    boxes, points = case
    space = space_of(boxes.dimensions)
    table = Summary.of(boxes, space, bits=bits, max_ranges_per_subscription=1 << 12)
    first, last = (cell_numbers(table.cells, some) for some in (boxes.lo, boxes.hi))
    last[boxes.hi == np.inf] = (1 << bits) - 1  # what no value has goes with the missing one
    at = cell_numbers(table.cells, points)
    meets = ((first <= at[:, None]) & (at[:, None] <= last)).all(axis=2)
    np.testing.assert_array_equal(table.may_match_many(points), meets.any(axis=1))
    grid = np.indices((1 << bits,) * boxes.dimensions).reshape(boxes.dimensions, -1).T
    cells = ((first <= grid[:, None]) & (grid[:, None] <= last)).all(axis=2).any(axis=1).sum()
    assert table.ranges().cells == cells


@pytest.mark.conformance
@pytest.mark.parametrize("name", adversarial.cases())
def test_adversarial_sets(name):
    boxes, points = adversarial.cases()[name]
    space = Space(Number(f"a{i}") for i in range(boxes.dimensions))
    names = space.names[:3]
    for cells in (
        Cells.uniform(space, 4, names),
        Cells.bounds(space, 8, boxes, names),
        Cells.quantiles(space, 3, points, names),
    ):
        table = Summary(space, cells=cells, max_ranges_per_subscription=16)
        table.subscribe_many(boxes)
        ids = boxes.ids.to_pylist()
        expected = matched(boxes, np.arange(boxes.rows), points)
        assert (table.may_match_many(points) >= expected).all()
        for row in ids[: boxes.rows // 2]:
            table.unsubscribe(row)
        left = np.arange(boxes.rows // 2, boxes.rows)
        assert (table.may_match_many(points) >= matched(boxes, left, points)).all()
        again = Summary.of(boxes.take(left), space, cells=cells, max_ranges_per_subscription=16)
        assert pairs(again.ranges()) == pairs(table.ranges())


@pytest.mark.parametrize("is_split", [False, True])
@pytest.mark.parametrize("unknown", ["b", 5, None, ["a"], {}])
def test_an_unknown_id_is_named_and_nothing_is_removed(is_split: bool, unknown):
    space = Space([Number("value")])
    table = SplitSummary(space, subsets=[["value"]]) if is_split else Summary(space)
    table.subscribe("a", "value < 5")
    with pytest.raises(UnknownIdError):
        table.unsubscribe_many(["a", unknown])
    assert list(table) == ["a"]
    table.unsubscribe_many(["a", "a"])
    assert len(table) == 0
