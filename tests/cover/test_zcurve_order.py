"""The B+-tree of the Z-curve: in order, balanced, and O(log n) items moved by an edit."""

import numpy as np
import pytest

from rangecast import Number, Space
from rangecast.cover import CoverSet
from rangecast.cover.papers.zcurve_order import END, FAN, LEAF, LEVELS, MOVED, TOP, ZState, seek
from rangecast.kernels.arrays import I64, U64
from rangecast.kernels.bundle import opened, pointers
from rangecast.kernels.jit import jit
from rangecast.model.boxes import Boxes

SPACE = Space([Number("x"), Number("y")])


@jit
def seek_all(table: I64, keys: U64, begin: int, end: int, out: I64) -> None:
    state = pointers(opened(table, ZState))
    for i in range(len(keys)):
        out[i] = seek(state, keys[i], begin, end)


def boxes_of(n, seed, first=0, scale=1.0):
    ends = np.sort(np.random.default_rng(seed).random((n, 2, 2)), axis=2) * scale
    return Boxes.of(ends[..., 0], ends[..., 1], ids=list(range(first, first + n)))


def state_of(cover):
    return cover._live.index.state.arrays


def entries_of(state):
    """(key, box) of all leaves as they are linked; and the leaves."""
    leaves, leaf = [], int(state.after[END])
    while leaf != END:
        assert state.before[state.after[leaf]] == leaf
        leaves.append(leaf)
        leaf = int(state.after[leaf])
    places = [leaf * LEAF + i for leaf in leaves for i in range(state.sizes[leaf])]
    return list(zip(state.keys[places].tolist(), state.boxes[places].tolist(), strict=True)), leaves


def check(cover):
    """Hold the tree to all that its docstring says; return the number of leaves."""
    state = state_of(cover)
    entries, leaves = entries_of(state)
    held = np.flatnonzero(state.key)
    assert entries == sorted(zip(state.key[held].tolist(), held.tolist(), strict=True))
    found = []

    def descend(node, level, low, high):
        """All below a node lies from `low` to before `high`."""
        if level == 0:
            found.append(node)
            size = state.sizes[node]
            assert 0 < size <= LEAF
            places = slice(node * LEAF, node * LEAF + size)
            some = zip(state.keys[places].tolist(), state.boxes[places].tolist(), strict=True)
            assert all(low <= entry < high for entry in some)
            return
        count = int(state.counts[node])
        assert count <= FAN
        assert count >= (1 if level < state.header[LEVELS] else min(len(leaves), 2 - (level == 1)))
        least = [
            (int(state.min_key[node * FAN + i]), int(state.min_box[node * FAN + i]))
            for i in range(count)
        ]
        least = [low, *least[1:], high]
        for i in range(count):
            descend(int(state.child[node * FAN + i]), level - 1, least[i], least[i + 1])

    descend(int(state.header[TOP]), int(state.header[LEVELS]), (-1, -1), (1 << 64, 0))
    assert found == leaves
    return len(leaves)


def check_seek(cover, seed):
    state = state_of(cover)
    entries, leaves = entries_of(state)
    places = [leaf * LEAF + i for leaf in leaves for i in range(state.sizes[leaf])]
    keys = np.array([key for key, _ in entries], np.uint64)
    rng = np.random.default_rng(seed)
    for _ in range(40):
        first, last = np.sort(rng.integers(0, len(entries) + 1, 2))
        if rng.random() < 0.5:  # within a leaf, or two
            last = min(first + int(rng.integers(1, 2 * LEAF)), len(entries))
        if first == last or (first and keys[first - 1] == keys[first]):
            continue
        if last < len(entries) and keys[last - 1] == keys[last]:
            continue
        end = places[last] if last < len(entries) else END * LEAF
        wanted = keys[first:last][rng.integers(0, last - first, 20)] + np.uint64(rng.random() < 0.5)
        if last < len(entries):
            wanted = np.minimum(wanted, keys[last])
        got = np.empty(len(wanted), np.int64)
        seek_all(cover._live.index.state.table, wanted, places[first], end, got)
        expected = first + np.searchsorted(keys[first:last], wanted)
        assert got.tolist() == [(places[at] if at < last else end) for at in expected.tolist()]


@pytest.mark.parametrize("order", ["first", "last", "any", "one end"])
def test_the_tree_stays_in_order_and_balanced(order):
    cover = CoverSet(SPACE, index="zcurve")
    check(cover)
    cover.subscribe_many(boxes_of(12_000, 1))
    check(cover)
    cover.subscribe_many(boxes_of(9_000, 2, first=12_000, scale=0.01))  # all in one corner
    assert check(cover) > FAN * 2
    check_seek(cover, 3)
    assert state_of(cover).header[LEVELS] > 1
    ids = np.arange(21_000)
    if order == "last":
        ids = ids[::-1]
    elif order == "any":
        ids = np.random.default_rng(4).permutation(ids)
    elif order == "one end":
        ids = np.argsort(state_of(cover).key[:21_000], kind="stable")
    for part in np.array_split(ids, 12):
        cover.unsubscribe_many(part.tolist())
        check(cover)
    assert len(cover) == 0
    assert state_of(cover).after[END] == END
    cover.subscribe_many(boxes_of(300, 5))
    check(cover)


def test_a_mixed_history_gives_what_the_oracle_gives():
    rng = np.random.default_rng(6)
    one, oracle = CoverSet(SPACE, index="zcurve"), CoverSet(SPACE, index="scan")
    for cover in (one, oracle):
        cover.subscribe_many(boxes_of(3_000, 7))
    live, following = list(range(3_000)), 3_000
    for turn in range(12):
        scale = 1.0 if turn % 2 else 0.02
        more = boxes_of(200, 100 + turn, first=following, scale=scale)
        live += range(following, following + 200)
        following += 200
        gone = rng.choice(live, 350, replace=False).tolist()
        live = sorted({*live} - {*gone})
        for cover in (one, oracle):
            cover.subscribe_many(more)
            cover.unsubscribe_many(gone)
        check(one)
        assert list(one.uncovered()) == list(oracle.uncovered())


def test_an_edit_moves_no_more_items_in_a_larger_set():
    """Ten times the boxes, and a hundred: a level of nodes more, not ten times the directory."""
    most, mean = {}, {}
    for n in (2_000, 20_000, 200_000):
        cover = CoverSet(SPACE, index="zcurve")
        cover.subscribe_many(boxes_of(n, 8))
        header, moved = state_of(cover).header, []
        for one in range(n, n + 600):  # at three places, so that leaves and nodes there are halved
            before = int(header[MOVED])
            cover.subscribe(one, f"x between 0.{one % 3} and 0.4 and y between 0.5 and 0.6")
            moved.append(int(header[MOVED]) - before)
        for one in range(n, n + 600):
            before = int(header[MOVED])
            cover.unsubscribe(one)
            moved.append(int(header[MOVED]) - before)
        most[n], mean[n] = max(moved), np.mean(moved)
        assert most[n] <= 2 * LEAF + 2 * FAN * int(header[LEVELS])
        assert int(header[LEVELS]) <= 1 + np.log(n / (LEAF / 4)) / np.log(FAN / 4)
    assert mean[200_000] <= 1.5 * mean[2_000]
