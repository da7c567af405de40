"""A whole set at once: the same kept set as the definition, and the earliest kept coverer."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given

from rangecast import Boxes, Number, Space, UsageError
from rangecast.cover import CoverSet, covered_by
from rangecast.cover.batch import earliest_coverers
from rangecast.cover.choose import INDEXES
from rangecast.kernels.curves.morton import key_of
from tests.support.adversarial import cases
from tests.support.cover_oracle import cover_matrix, earliest_uncovered
from tests.support.examples import examples
from tests.support.strategies import boxes as some_boxes


@examples(100)
@given(boxes=some_boxes(max_rows=30))
def test_any_set(boxes):
    assert covered_by(boxes).tolist() == earliest_uncovered(boxes)


@pytest.mark.parametrize("name", cases())
def test_adversarial_sets(name):
    boxes = cases()[name][0]
    assert covered_by(boxes).tolist() == earliest_uncovered(boxes)


def paper_boxes(rng: np.random.Generator, n: int, d: int) -> Boxes:
    ends = np.sort(rng.integers(0, 2**31, (n, d, 2)), axis=2).astype(float)
    return Boxes.of(ends[..., 0], ends[..., 1])


def test_a_set_of_many_tiles():
    """A hundred thousand kept boxes, past one group of tiles; a sample is compared with all."""
    rng = np.random.default_rng(4)
    boxes = paper_boxes(rng, 130_000, 6)
    found = covered_by(boxes)
    kept = np.flatnonzero(found < 0)
    assert len(kept) > 80_000
    for row in rng.choice(boxes.rows, 150, replace=False).tolist():
        inside = (boxes.lo <= boxes.lo[row]) & (boxes.hi >= boxes.hi[row])
        above = np.setdiff1d(np.flatnonzero(inside.all(axis=1)), [row])
        assert (found[row] < 0) == (len(above) == 0)
        assert len(above) == 0 or found[row] == np.intersect1d(above, kept).min()


@examples(60)
@given(boxes=some_boxes(max_rows=25))
def test_the_earliest_of_another_set(boxes):
    """Both sets overlap, and arrival is not the order of rows."""
    n = boxes.rows
    arrival = np.random.default_rng(n).permutation(n).astype(np.int64)
    kept, others = np.arange(0, n, 2), np.arange(0, n, 3)
    covers = cover_matrix(boxes)
    expected = []
    for row in others:
        above = [
            (arrival[by], place)
            for place, by in enumerate(kept)
            if covers[by, row] and (arrival[by] < arrival[row] or not covers[row, by])
        ]
        expected.append(min(above)[1] if above else -1)
    found = earliest_coverers(boxes.take(kept), arrival[kept], boxes.take(others), arrival[others])
    assert found.tolist() == expected


def test_the_earliest_of_another_set_wants_sets_that_fit():
    one, two = Boxes.of([[0.0]], [[1.0]]), Boxes.of([[0.0, 0.0]], [[1.0, 1.0]])
    with pytest.raises(UsageError, match="the same space"):
        earliest_coverers(one, np.arange(1), two, np.arange(1))


@pytest.mark.parametrize("index", INDEXES)
def test_what_a_batch_keeps_is_what_a_graph_keeps(index):
    boxes = paper_boxes(np.random.default_rng(6), 3000, 3)
    graph = CoverSet(Space(Number(f"a{j}") for j in range(3)), index=index)
    graph.subscribe_many(boxes)
    assert graph.uncovered() == np.flatnonzero(covered_by(boxes) < 0).tolist()
    again = pickle.loads(pickle.dumps(graph))
    assert again.unsubscribe(graph.uncovered()[0]) == graph.unsubscribe(graph.uncovered()[0])
    assert again.uncovered() == graph.uncovered()


def test_the_key_of_the_paper_s_cell():
    """Cell (3, 5) of an 8 x 8 grid is at 011011 = 27, behind a leading 1."""
    assert key_of(np.array([3, 5]), 2, 3) == 0b1011011


def test_keys_order_cells_as_the_curve_does():
    cells = np.stack(np.meshgrid(np.arange(8), np.arange(8), indexing="ij"), -1).reshape(-1, 2)
    keys = [int(key_of(cell, 2, 3)) for cell in cells]
    assert sorted(keys) == list(range(64, 128))
    parents = {int(key_of(cell >> 1, 2, 2)) for cell in cells}
    assert {key >> 2 for key in keys} == parents
