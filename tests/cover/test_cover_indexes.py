"""Indexes of covering graphs: the work they do, and the limits of their buckets."""

from __future__ import annotations

import numpy as np
import pytest

from rangecast import Boxes, UsageError
from rangecast.cover import CoverSet
from rangecast.cover.blocks.index import Blocks
from rangecast.cover.live import Live
from rangecast.cover.papers.kdtree import KdTree
from rangecast.cover.store import CALLS, LATE, REJOIN
from rangecast.workloads import generate
from tests.support.cover_traces import INF, play, random_boxes, space_of


@pytest.mark.parametrize("index", ["kdtree", "zcurve", "blocks"])
def test_an_index_does_less_than_a_scan(index):
    rng = np.random.default_rng(1)
    ends = np.sort(rng.random((6000, 6, 2)), axis=2)
    boxes = Boxes.of(ends[..., 0], ends[..., 1])
    work = {}
    for name in (index, "scan"):
        graph = CoverSet(space_of(6), index=name)
        graph.subscribe_many(boxes)
        work[name] = graph.work
    assert work["scan"].subscribe.comparisons > 6 * work[index].subscribe.comparisons
    assert work["scan"].late.comparisons > 4 * work[index].late.comparisons
    assert work["scan"].subscribe.nodes == 0 < work[index].subscribe.nodes


def test_a_wildcard_is_found_at_once():
    """Boxes that mention two of forty attributes; a search for one looks at few of them."""
    rng = np.random.default_rng(2)
    lo, hi = np.full((5000, 40), -INF), np.full((5000, 40), INF)
    for row in range(5000):
        for j in rng.choice(40, 2, replace=False):
            lo[row, j], hi[row, j] = np.sort(rng.integers(0, 10**6, 2))
    graph = CoverSet(space_of(40))
    graph.subscribe_many(Boxes.of(lo, hi))
    graph._live.store.arrays.work[:] = 0
    graph.subscribe_many(Boxes.of(lo[:100], hi[:100], ids=list(range(5000, 5100))))
    assert graph.work.subscribe.comparisons < 100 * 20


def test_a_tree_that_grew_deep_is_built_anew():
    tree = KdTree(1)
    assert tree.state.memory
    ramp = np.arange(30_000.0)
    graph = CoverSet(space_of(1), index="kdtree")
    assert all(graph.subscribe_many(Boxes.of(ramp[:, None], ramp[:, None] + 0.5)))
    axis, parent = graph._live.index.state.arrays.axis, graph._live.index.state.arrays.parent
    depths = []
    for leaf in np.flatnonzero(axis[: graph._live.index.state.arrays.header[2]] == -1).tolist():
        depth = 0
        while leaf > 0:
            leaf, depth = int(parent[leaf]), depth + 1
        depths.append(depth)
    assert max(depths) < 250  # each of its 1,800 leaves would hang below the one before


def test_blocks_hold_only_roots_when_one_coverer_is_enough():
    rng = np.random.default_rng(3)
    boxes = random_boxes(rng, 800, 2)
    graphs = {k: CoverSet(space_of(2), index="blocks", k=k) for k in (1, 2)}
    for graph in graphs.values():
        graph.subscribe_many(boxes)
    held = {k: graph._live.index.state.arrays.place >= 0 for k, graph in graphs.items()}
    owners = graphs[1]._live.store.arrays.owner[np.flatnonzero(held[1])]
    assert set(owners.tolist()) == set(graphs[1].uncovered())
    assert held[2].sum() == len(boxes.lo)
    assert Blocks(2).state.memory < graphs[1].memory


@pytest.mark.parametrize("segment", ["ends", "length"])
@pytest.mark.parametrize("k", [1, 3])
def test_the_algorithm_as_printed_sends_the_same_messages(k, segment):
    made = generate(
        "covering", seed=3, commands=3000, attributes=2, unsubscribe_share=0.4, segment=segment
    )
    table = made.tables["commands"]
    comes = (table["command"].to_numpy() == "subscribe").astype(np.uint8)
    played = []
    for late in (True, False):
        live = Live(KdTree(2), 2, k, roots_only=False, late=late)
        rows = live.new_rows(made.boxes.lo, made.boxes.hi, made.boxes.owner, made.boxes.rows)
        played.append((live.do(rows[table["id"].to_numpy()], comes), live.store.arrays.work))
    (whole, work), (printed, less) = played
    for ours, theirs in zip(whole, printed, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert less[[LATE, REJOIN]].sum() == 0 < work[LATE, CALLS]


def test_a_region_that_lies_wholly_inside_needs_no_comparisons():
    """Paper 000, section IV-C: all points of such a node are in the region asked for."""
    rng = np.random.default_rng(0)
    n = 2000
    lo, hi = -rng.integers(1, 1000, (n, 1)).astype(float), rng.integers(1, 1000, (n, 1))
    live = CoverSet(space_of(1), index="kdtree", k="all")
    live.subscribe_many(Boxes.of(lo, hi))
    before = live.work.subscribe.comparisons
    live.subscribe(-1, "a0 between 0 and 0")  # everything covers it
    assert len(live.covered_by(-1)) == n
    assert live.work.subscribe.comparisons - before < n / 5
    before = live.work.late.comparisons
    live.subscribe(-2, "a0 between -2000 and 2000")  # it covers everything
    assert len(live.covered_by(-2)) == 0
    assert live.work.late.comparisons - before < n / 5


@pytest.mark.parametrize("limits", ["overflow=2,underflow=1", "overflow=5", "overflow=400"])
def test_the_limits_of_buckets_never_change_a_message(limits, tmp_path):
    index = f"kdtree:{limits}" if "underflow" in limits else f"kdtree:{limits},underflow=0"
    rng = np.random.default_rng(3)
    boxes = random_boxes(rng, 80, 2)
    commands = rng.integers(0, boxes.rows, 300).tolist()
    graph = CoverSet(space_of(2), index=index)
    play(graph, boxes, commands, 9)
    assert graph.index == index
    graph.save(tmp_path / "set")
    assert CoverSet.open(tmp_path / "set").index == index


def test_small_buckets_visit_more_nodes():
    rng = np.random.default_rng(3)
    lo = rng.random((2_000, 2))
    work = []
    for overflow in (4, 128):
        graph = CoverSet(space_of(2), index=f"kdtree:overflow={overflow},underflow=1")
        graph.subscribe_many(Boxes.of(lo, lo + rng.random((2_000, 2)) * 0.01))
        work.append(graph.work)
    nodes = [sum(cost.nodes for cost in one) for one in work]
    assert nodes[0] > 2 * nodes[1]


def test_limits_of_buckets_that_would_join_what_was_split_are_rejected():
    with pytest.raises(UsageError, match="an overflow of 40 or more"):
        CoverSet(space_of(1), index="kdtree:underflow=20")
    with pytest.raises(UsageError, match="index 'blocks' takes no options"):
        CoverSet(space_of(1), index="blocks:overflow=2")
