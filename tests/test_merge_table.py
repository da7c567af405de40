"""The table of ranges against arrays of counts, place by place: never too little, never stale."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rangecast import Integer, Number, Space, UsageError
from rangecast.merge import Cells, Ranges, Table, convert
from rangecast.merge.levels.tree import FAN, HEIGHT, LEAVES, SIZE
from rangecast.merge.ranges import range_sets, tree_of_ranges, union, union_of_boxes, within_budget
from rangecast.model.boxes import Boxes
from tests import adversarial, strategies

LINE = Space([Integer("x", min=0, max=(1 << 12) - 1)])
PLACES = 1 << 12


def runs(mask):
    """Maximal runs of true places, as pairs."""
    padded = np.concatenate([[False], mask, [False]])
    edges = np.flatnonzero(padded[1:] != padded[:-1])
    return list(zip(edges[::2].tolist(), (edges[1::2] - 1).tolist(), strict=True))


def closed(counts, gap):
    """Held places, with gaps between two ranges that are no longer than `gap`."""
    mask = counts > 0
    for first, last in runs(~mask):
        if first and last + 1 < len(mask) and last - first < gap:
            mask[first : last + 1] = True
    return mask


def pairs(ranges):
    return list(zip(ranges.starts.tolist(), ranges.ends.tolist(), strict=True))


def some_ranges(rng, most, longest):
    cuts = np.sort(rng.choice(PLACES, 2 * rng.integers(1, most + 1), replace=False))
    starts, ends = cuts[::2], np.minimum(cuts[1::2], cuts[::2] + rng.integers(0, longest))
    apart = np.append(True, starts[1:] > ends[:-1] + 1)
    return Ranges(starts[apart].astype(np.uint64), ends[apart].astype(np.uint64))


class Counted:
    """The oracle: how many hold each place, and what was told."""

    def __init__(self, gap):
        self.counts = np.zeros(PLACES, np.int64)
        self.gap = gap

    def shift(self, ranges, by):
        before = closed(self.counts, self.gap)
        for first, last in pairs(ranges):
            self.counts[first : last + 1] += by
        return runs(before != closed(self.counts, self.gap))

    def agrees(self, table):
        held = closed(self.counts, self.gap)
        assert pairs(table.ranges()) == runs(held)
        points = np.arange(PLACES, dtype=float)[:, None]
        bits, table._bits = table._bits, None
        halves = [table.holds_many(half) for half in np.array_split(points, 2)]  # by the tree
        np.testing.assert_array_equal(np.concatenate(halves), held)
        table._bits = bits
        np.testing.assert_array_equal(table.holds_many(points), held)  # by bits, kept up since
        assert table._bits is not None
        steps = np.count_nonzero(np.diff(self.counts)) + 1
        assert table.steps == steps


def check_nodes(table):
    """Sizes of all nodes are in bounds; so the tree is as flat as it claims to be."""
    tree = table._tree
    leaf, leaves, steps = 0, 0, 0
    while leaf >= 0:
        size = tree.leaf[leaf, SIZE]
        assert size >= FAN // 4 or tree.state[0, HEIGHT] == 0
        leaves, steps, leaf = leaves + 1, steps + size, int(tree.leaf[leaf, 1])
    assert (leaves, steps) == (tree.state[0, LEAVES], table.steps)


@pytest.mark.parametrize("gap", [0, 3, 40])
@pytest.mark.parametrize(("most", "longest"), [(8, 4), (60, 200), (3, PLACES)])
def test_a_long_history_leaves_exactly_what_is_live(gap, most, longest):
    rng = np.random.default_rng(most + gap)
    table, oracle = Table(LINE, 12, gap=gap), Counted(gap)
    live = []
    for turn in range(900):
        if live and rng.random() < (0.3 if turn < 450 else 0.7):
            ranges, by = live.pop(rng.integers(len(live))), -1
        else:
            ranges, by = some_ranges(rng, most, longest), 1
            live.append(ranges)
        change = table.shift(ranges, by)
        assert pairs(change.ranges) == oracle.shift(ranges, by)
        assert change.work.touched <= 2 * len(ranges)
        assert change.work.looked <= 2 * len(ranges) + len(change.ranges)
        if turn % 150 == 0:
            oracle.agrees(table)
            check_nodes(table)
    for ranges in live:
        assert pairs(table.shift(ranges, -1).ranges) == oracle.shift(ranges, -1)
    oracle.agrees(table)
    assert table.steps == 1
    assert not len(table.ranges())


def test_a_deep_tree_grows_and_shrinks_and_is_the_same_as_one_built_at_once():
    space = Space([Integer("x", min=0, max=(1 << 20) - 1)])
    rng = np.random.default_rng(1)
    table = Table(space, 20)
    starts = np.sort(rng.choice(1 << 19, 40_000, replace=False)).astype(np.uint64) * np.uint64(2)
    order = rng.permutation(40_000)
    for block in np.array_split(order, 400):
        some = np.sort(starts[block])
        table.shift(Ranges(some, some), 1)
    assert table._tree.state[0, HEIGHT] >= 2
    check_nodes(table)
    built = Table(space, 20)
    built._tree = tree_of_ranges(starts, starts, table.cells.top)
    check_nodes(built)
    assert pairs(built.ranges()) == pairs(table.ranges()) == [(s, s) for s in starts.tolist()]
    for one in (table, built):
        for block in np.array_split(rng.permutation(40_000)[:39_990], 400):
            some = np.sort(starts[block])
            one.shift(Ranges(some, some), -1)
        check_nodes(one)
        assert one._tree.state[0, HEIGHT] == 0
        assert len(one.ranges()) == 10


@st.composite
def histories(draw):
    """Boxes that come, and for some of them when they go."""
    boxes = draw(strategies.boxes(dimensions=st.integers(1, 3), max_rows=12))
    goes = draw(st.lists(st.booleans(), min_size=boxes.rows, max_size=boxes.rows))
    return boxes, goes, draw(strategies.points(boxes.dimensions))


def matched(boxes, rows, points):
    """Which points a live subscription holds, by comparing coordinates."""
    mine = np.isin(boxes.owner, rows)
    inside = (boxes.lo[mine] <= points[:, None]) & (points[:, None] <= boxes.hi[mine])
    return inside.all(axis=2).any(axis=1)


def space_of(dimensions):
    kinds = [Number("a", min=-3, max=7), Number("b"), Integer("c", min=-8, max=8), Number("e")]
    return Space(kinds[:dimensions])


def cells_for(kind, space, bits, boxes, points, names):
    if kind == "uniform":
        return Cells.uniform(space, bits, names)
    if kind == "quantiles":
        return Cells.quantiles(space, bits, points, names)
    return Cells.bounds(space, bits, boxes, names)


@settings(max_examples=150)
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
    table = Table(space, cells=cells, limit=limit, gap=gap)
    neighbour = Table(space, cells=cells)
    changes = table.add_many(boxes)
    for row in range(boxes.rows):
        neighbour.shift(changes.of(row), 1)
    live = list(range(boxes.rows))
    ids = boxes.ids.to_pylist()
    for row, gone in enumerate(goes):
        if gone:
            told = table.forward(ids[row])
            change = table.remove(ids[row])
            assert pairs(told) == pairs(change.ranges)
            neighbour.shift(change.ranges, -1)
            live.remove(row)
        assert pairs(table.ranges()) == pairs(neighbour.ranges())
        held = table.holds_many(points)
        assert (held >= matched(boxes, live, points)).all()
    rebuilt = Table.of(space, boxes.take(live), cells=cells, limit=limit, gap=gap)
    assert pairs(rebuilt.ranges()) == pairs(table.ranges())
    assert rebuilt.steps == table.steps
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


@settings(max_examples=100)
@given(strategies.boxes_and_points(dimensions=st.integers(1, 3), max_rows=8), st.integers(1, 4))
def test_without_bounds_a_table_holds_exactly_the_cells_of_its_boxes(case, bits):
    boxes, points = case
    space = space_of(boxes.dimensions)
    table = Table.of(space, boxes, bits, limit=1 << 12)
    first, last = (cell_numbers(table.cells, some) for some in (boxes.lo, boxes.hi))
    last[boxes.hi == np.inf] = (1 << bits) - 1  # what no value has goes with the missing one
    at = cell_numbers(table.cells, points)
    meets = ((first <= at[:, None]) & (at[:, None] <= last)).all(axis=2)
    np.testing.assert_array_equal(table.holds_many(points), meets.any(axis=1))
    grid = np.indices((1 << bits,) * boxes.dimensions).reshape(boxes.dimensions, -1).T
    cells = ((first <= grid[:, None]) & (grid[:, None] <= last)).all(axis=2).any(axis=1).sum()
    assert table.ranges().cells == cells


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
        table = Table(space, cells=cells, limit=16)
        table.add_many(boxes)
        ids = boxes.ids.to_pylist()
        expected = matched(boxes, np.arange(boxes.rows), points)
        assert (table.holds_many(points) >= expected).all()
        for row in ids[: boxes.rows // 2]:
            table.remove(row)
        left = np.arange(boxes.rows // 2, boxes.rows)
        assert (table.holds_many(points) >= matched(boxes, left, points)).all()
        again = Table.of(space, boxes.take(left), cells=cells, limit=16)
        assert pairs(again.ranges()) == pairs(table.ranges())


def test_the_example_of_the_paper():
    """Figure 3; our curve happens to run as the paper's does."""
    space = Space([Integer("x", min=0, max=7), Integer("y", min=0, max=7)])
    table = Table(space, 3)
    change = table.add("s2", "x between 4 and 6 and y between 2 and 5")
    assert pairs(change.ranges) == pairs(table.ranges()) == [(32, 35), (45, 46), (50, 55)]
    grid = np.indices((8, 8)).reshape(2, -1).T.astype(float)
    places = table.cells.places(grid).tolist()
    held = dict(zip(places, table.holds_many(grid).tolist(), strict=True))
    assert [held[place] for place in (28, 52, 50)] == [False, True, True]
    assert sum(held.values()) == 12


def test_covering_subsumption_and_merging_in_one_look_up():
    space = Space([Integer("x", min=0, max=255)])
    table = Table(space, 8)
    assert pairs(table.add("a", "x between 10 and 19").ranges) == [(10, 19)]
    assert table.add("covered", "x between 12 and 15").covered
    assert pairs(table.add("touching", "x between 20 and 29").ranges) == [(20, 29)]
    assert pairs(table.ranges()) == [(10, 29)]  # perfect merging
    assert table.add("subsumed", "x between 15 and 25").covered  # by two together
    assert pairs(table.add("partly", "x between 25 and 34").ranges) == [(30, 34)]
    assert pairs(table.add("around", "x between 0 and 99").ranges) == [(0, 9), (35, 99)]
    assert sorted(table.passive()) == sorted(["a", "covered", "touching", "subsumed", "partly"])
    assert pairs(table.remove("around").ranges) == [(0, 9), (35, 99)]
    assert pairs(table.remove("a").ranges) == [(10, 11)]  # the covered one takes over
    assert pairs(table.forward("covered")) == [(12, 14)]
    imperfect = Table(space, 8, gap=5)
    imperfect.add("a", "x between 10 and 19")
    assert pairs(imperfect.add("b", "x between 25 and 29").ranges) == [(20, 29)]
    assert imperfect.holds({"x": 22})
    assert imperfect.add("c", "x between 21 and 23").covered
    assert pairs(imperfect.add("d", "x between 36 and 39").ranges) == [(36, 39)]


def test_the_last_place_of_the_largest_curve():
    space = Space(Number(name, min=0, max=1) for name in "abcd")
    table = Table(space, 16)
    top = 2**64 - 1
    assert pairs(table.add("all", "true").ranges) == [(0, top)]
    assert table.holds({})
    assert table.share() == 1.0
    end = Ranges(np.array([5, top - 3], np.uint64), np.array([9, top], np.uint64))
    assert table.shift(end, 1).covered
    assert pairs(table.remove("all").ranges) == [(0, 4), (10, top - 4)]
    assert pairs(table.missing(Ranges(np.zeros(1, np.uint64), np.full(1, top, np.uint64)))) == [
        (0, 4),
        (10, top - 4),
    ]
    assert pairs(table.shift(end, -1).ranges) == pairs(end)
    assert table.steps == 1


@pytest.mark.parametrize(("axes", "bits"), [(1, 64), (2, 32), (3, 21), (7, 9), (16, 4), (64, 1)])
def test_any_resolution_that_fits_64_bits(axes, bits):
    rng = np.random.default_rng(axes)
    space = Space(Integer(f"a{i}", min=0, max=40) for i in range(axes))
    lo = rng.integers(0, 35, (30, axes)).astype(float)
    boxes = Boxes.of(lo, lo + 5)
    table = Table(space, bits, limit=8)
    table.add_many(boxes)
    points = np.concatenate([lo + rng.integers(0, 6, lo.shape), rng.integers(0, 41, (50, axes))])
    for gone in range(30):
        live = np.arange(gone, 30)
        assert (table.holds_many(points) >= matched(boxes, live, points)).all()
        table.remove(gone)
    assert table.steps == 1


def test_work_depends_on_the_subscription_and_not_on_the_table():
    rng = np.random.default_rng(2)
    space = Space(Number(name, min=0, max=1) for name in "xyz")
    lo = rng.random((3000, 3)) * 0.97
    boxes = Boxes.of(lo, lo + 0.02)
    table = Table(space, 8)
    sets = range_sets(table.cells, boxes.lo, boxes.hi, boxes.owner, 64)
    counts = np.diff(sets.offsets)
    done = table.add_many(boxes)
    assert done.work.touched <= 2 * counts.sum()
    for row in rng.permutation(3000)[:300].tolist():
        change = table.remove(row)
        assert change.work.touched <= 2 * counts[row]
        assert change.work.looked <= 2 * counts[row] + len(change.ranges)


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
    table = Table(space, 8, limit=3)
    change = table.add("s", "x between 1 and 9 or x between 5 and 20 or x in (30, 33, 40, 99)")
    assert pairs(change.ranges) == [(1, 20), (30, 40), (99, 99)]  # 3 ranges: two gaps are closed
    assert pairs(table.remove("s").ranges) == pairs(change.ranges)
    assert table.steps == 1


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
    together = union_of_boxes(cells, boxes.lo, boxes.hi, boxes.owner, limit=3)
    table = Table.of(space, boxes, cells=cells, limit=3)
    assert pairs(together) == pairs(table.ranges())


def test_a_client_converts_as_the_broker_does():
    space = space_of(3)
    broker = Table(space, 5)
    plain = Table(space, 5)
    client = pickle.loads(pickle.dumps(broker.cells))  # what a client is sent
    texts = ["a > 2 and c between 1 and 3", "b is null", "a < 0 or c = 7", "true"]
    for number, text in enumerate(texts):
        sent = convert(space, client, text)
        assert pairs(broker.add_ranges(number, sent, client.digest).ranges) == pairs(
            plain.add(number, text).ranges
        )
    assert pairs(broker.remove(3).ranges) == pairs(plain.remove(3).ranges)
    for table in (broker, plain):
        table.add("mine", "c = 5")
    several = broker.remove_many([1, "mine", 0]), plain.remove_many([1, "mine", 0])
    for place in range(3):
        assert pairs(several[0].of(place)) == pairs(several[1].of(place))
    assert pairs(broker.ranges()) == pairs(plain.ranges())
    assert len(broker) == len(plain) == 1
    other = Cells.uniform(space, 4)
    with pytest.raises(UsageError, match="other cells"):
        broker.add_ranges("x", convert(space, other, "true"), other.digest)


def test_a_table_pickles():
    table = Table(LINE, 12)
    table.add("s", "x > 7")
    again = pickle.loads(pickle.dumps(table))
    again.add("t", "x = 3")
    assert pairs(table.ranges()) == [(8, 4095)]
    assert pairs(again.ranges()) == [(3, 3), (8, 4095)]


def test_what_makes_no_sense_is_refused():
    table = Table(LINE, 12)
    table.add("s", "x = 3")
    one = np.ones(1, np.uint64)
    for call in (
        lambda: table.add("s", "x = 4"),
        lambda: table.remove("t"),
        lambda: table.forward("t"),
        lambda: table.remove_many(["s", "s"]),
        lambda: table.remove_many(["s", "t"]),
        lambda: Table.of(LINE, Boxes.of([[1.0], [2.0]], [[1.0], [2.0]], ids=["u", "u"])),
        lambda: table.add_many(Boxes.of([[1.0], [2.0]], [[1.0], [2.0]], ids=["u", "u"])),
        lambda: table.add_many(Boxes.of([[1.0, 1.0]], [[1.0, 1.0]])),
        lambda: table.shift(Ranges(one * 5, one * 4), 1),
        lambda: table.shift(Ranges(np.array([3, 4], np.uint64), np.array([3, 4], np.uint64)), 1),
        lambda: table.shift(Ranges(one, one * PLACES), 1),
        lambda: table.shift(Ranges(one, one * 4), -1),
        lambda: table.shift(Ranges(one, one), 2),
        lambda: table.holds_many(np.zeros((2, 3))),
        lambda: table.refresh(np.zeros((2, 1))),
        lambda: Table(LINE, 65),
        lambda: Table(space_of(4), 17),
        lambda: Table(LINE, 12, limit=0),
        lambda: Table(LINE, 12, gap=-1),
        lambda: Table(LINE, 12, attributes=[]),
        lambda: Table(LINE, 12, attributes=["x"], cells=table.cells),
        lambda: within_budget(table.ranges(), 0),
    ):
        with pytest.raises(UsageError):
            call()
    assert pairs(table.ranges()) == [(3, 3)]
