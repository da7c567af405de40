"""IR-trees that are edited in place: histories against the oracle, room that comes back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rangecast.errors import UsageError
from rangecast.model.boxes import Boxes
from rangecast.rank.papers import ir as ir_module
from rangecast.rank.papers.ir import IrTrees
from rangecast.rank.scan import Scan


def drawn(rng: Any, count: int, dimensions: int) -> Boxes:
    """Boxes with ends, scores and weights that tie, and attributes that they don't mention."""
    lo = rng.integers(0, 20, (count, dimensions)).astype(float)
    hi = lo + rng.integers(0, 8, (count, dimensions))
    unmentioned = rng.random((count, dimensions)) < 0.3
    lo[unmentioned], hi[unmentioned] = -np.inf, np.inf
    one_side = rng.random((count, dimensions)) < 0.1
    lo[one_side] = -np.inf
    scores = rng.integers(0, 5, count)
    weights = rng.integers(1, 4, (count, dimensions)).astype(float)
    return Boxes.of(lo, hi, scores=scores, weights=weights)


class History:
    """A set that is edited, beside everything that it ever had."""

    def __init__(self, rng: Any, dimensions: int, *, relaxed: bool, branching: int):
        first = drawn(rng, int(rng.integers(0, 30)), dimensions)
        self.rng, self.relaxed, self.dimensions = rng, relaxed, dimensions
        self.trees = IrTrees(first, relaxed=relaxed, branching=branching)
        self.parts, self.live = [first], np.ones(first.rows, bool)

    def edit(self) -> None:
        if self.rng.random() < 0.5 or not self.live.any():
            more = drawn(self.rng, int(self.rng.integers(0, 6)), self.dimensions)
            rows = self.trees.insert(more)
            assert rows.tolist() == list(range(len(self.live), len(self.live) + more.rows))
            self.parts.append(more)
            self.live = np.append(self.live, np.ones(more.rows, bool))
        else:
            there = np.flatnonzero(self.live)
            rows = self.rng.choice(there, min(len(there), int(self.rng.integers(1, 5))), False)
            self.trees.delete(rows)
            self.live[rows] = False

    def check(self) -> None:
        kept = np.flatnonzero(self.live)
        columns = [
            np.concatenate([getattr(part, name) for part in self.parts])[kept]
            for name in ("lo", "hi", "scores", "weights")
        ]
        lo, hi, scores, weights = columns
        oracle = Scan(Boxes.of(lo, hi, scores=scores, weights=weights), relaxed=self.relaxed)
        points = self.rng.integers(-1, 28, (5, self.dimensions)).astype(float)
        k = int(self.rng.integers(1, 8))
        found, wanted = self.trees.best(points, k), oracle.best(points, k)
        for event in range(len(points)):
            rows, values = found.of(event)
            expected, worth = wanted.of(event)
            assert rows.tolist() == kept[expected].tolist()
            assert values.tolist() == pytest.approx(worth.tolist())


@pytest.mark.parametrize("relaxed", [False, True])
@pytest.mark.parametrize("branching", [2, 5, 50])
@pytest.mark.parametrize("anew", [10, 1000])
def test_a_history_of_edits_ranks_as_the_oracle(
    relaxed: bool, branching: int, anew: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ir_module, "_EDITS_BEFORE_REBUILD", anew)
    for seed in range(4):
        rng = np.random.default_rng(seed)
        history = History(rng, 1 + seed % 3, relaxed=relaxed, branching=branching)
        for _ in range(40):
            history.edit()
            history.check()


def test_boxes_in_order_of_their_values_are_built_anew() -> None:
    """Each new box hangs below the last one: a path of thousands, were it never built anew."""
    none = np.zeros((0, 1))
    trees = IrTrees(Boxes.of(none, none))
    for row in range(600):
        at = np.array([[2.0 * row]])
        trees.insert(Boxes.of(at, at + 1))
    assert trees._shape.depth <= 2 * ir_module._DEEP
    assert trees.best(np.array([[1000.5]]), 3).of(0)[0].tolist() == [500]


@pytest.mark.parametrize("branching", [2, 3, 4, 5, 50])
@pytest.mark.parametrize("order", ["rising", "falling", "inwards", "random"])
def test_lists_have_few_levels_however_boxes_are_inserted(branching: int, order: str) -> None:
    """A page that is cut in two leaves at least two items in either: kernels have 32 levels."""
    count = 3000
    scores = {
        "rising": np.arange(count),
        "falling": -np.arange(count),
        "inwards": np.where(np.arange(count) % 2, 1, -1) * np.arange(count, 0, -1),
        "random": np.random.default_rng(2).permutation(count),
    }[order].astype(float)
    trees = IrTrees(Boxes.of([[0.0]], [[9.0]], scores=[0.5]), branching=branching)
    ends = np.zeros((100, 1)), np.full((100, 1), 9.0)
    for first in range(0, count, 100):
        trees.insert(Boxes.of(*ends, scores=scores[first : first + 100]))
        assert trees._shape.levels <= 14
    best = trees.best(np.array([[5.0]]), 5)
    assert best.of(0)[1].tolist() == sorted([0.5, *scores.tolist()], reverse=True)[:5]


def test_room_that_is_given_up_comes_back() -> None:
    rng = np.random.default_rng(1)
    lo = rng.random((4000, 1))
    trees = IrTrees(Boxes.of(lo, lo + 0.1, scores=rng.random(4000)))
    trees.delete(trees.insert(Boxes.of(lo[:100], lo[:100] + 0.1)))
    begun = trees.memory
    for _ in range(30):
        trees.delete(trees.insert(Boxes.of(lo[:100], lo[:100] + 0.1)))
    assert trees.memory <= 1.5 * begun


def test_rows_that_are_not_there_are_rejected() -> None:
    trees = IrTrees(drawn(np.random.default_rng(1), 5, 2))
    trees.delete(3)
    for rows in (3, 5, -1, [0, 0]):
        with pytest.raises(UsageError, match="rows to delete must exist"):
            trees.delete(rows)
    with pytest.raises(UsageError, match="this set has 2 attributes; given: 1"):
        trees.insert(Boxes.of(np.zeros((1, 1)), np.ones((1, 1))))
    assert len(trees.best(np.full((1, 2), 5.0), 9).of(0)[0]) <= 4
