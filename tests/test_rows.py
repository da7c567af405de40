import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rangecast.errors import UsageError
from rangecast.model.boxes import Boxes
from rangecast.model.rowstore import RowStore
from tests import strategies

THREE = st.just(3)


@given(st.lists(strategies.boxes(dimensions=THREE, max_rows=8), max_size=6), st.randoms())
def test_rows_come_back_as_they_were_added(parts, random):
    parts = [part for part in parts if str(part.ids.type) == "int64"]
    store = RowStore(3)
    for part in parts:
        store.append(part)
    rows = list(range(store.count))
    random.shuffle(rows)
    some = store.boxes_of(np.array(rows, np.int64))
    everything = [(part, row) for part in parts for row in range(part.rows)]
    assert some.rows == len(everything)
    for place, row in enumerate(rows):
        part, within = everything[row]
        np.testing.assert_array_equal(some.lo[some.owner == place], part.lo[part.owner == within])
        np.testing.assert_array_equal(some.hi[some.owner == place], part.hi[part.owner == within])
        assert some.scores[place] == part.scores[within]
        expected = np.ones(3) if part.weights is None else part.weights[within]
        if some.weights is not None:
            np.testing.assert_array_equal(some.weights[place], expected)


@given(strategies.boxes(dimensions=THREE, max_rows=8))
def test_one_row_at_a_time_gives_the_same_columns(some):
    together, apart = RowStore(3), RowStore(3)
    together.append(Boxes.of(some.lo, some.hi, owner=some.owner, ids=some.ids, scores=some.scores))
    mentioned = some.mentions
    for row in range(some.rows):
        terms = [
            tuple((int(j), some.lo[b, j], some.hi[b, j]) for j in np.flatnonzero(mentioned[b]))
            for b in np.flatnonzero(some.owner == row)
        ]
        assert apart.append_one(some.ids[row].as_py(), terms, some.scores[row], None, row) == row
    assert (apart.count, apart.boxes, apart.terms) == (
        together.count,
        together.boxes,
        together.terms,
    )
    everything = np.arange(some.rows)
    one, other = apart.boxes_of(everything), together.boxes_of(everything)
    for name in ("lo", "hi", "owner", "scores"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    assert one.ids.equals(other.ids)
    np.testing.assert_array_equal(apart.columns.arrival[: some.rows], everything)


def test_ids_of_a_set_are_of_one_kind():
    store = RowStore(1)
    store.append(Boxes.of([[0.0]], [[1.0]], ids=["a"]))
    with pytest.raises(UsageError, match="the ids of this set are texts"):
        store.append(Boxes.of([[0.0]], [[1.0]], ids=[5]))
    assert store.count == 1


def test_only_what_is_mentioned_is_kept():
    store = RowStore(100)
    lo, hi = np.full((1000, 100), -np.inf), np.full((1000, 100), np.inf)
    lo[:, 7], hi[:, 7] = 1, 2
    store.append(Boxes.of(lo, hi))
    assert store.terms == 1000
    assert store.memory < 100 * 1000
