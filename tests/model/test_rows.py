import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from rangecast.model.attributes.base import Number
from rangecast.model.boxes import Boxes
from rangecast.model.sets.rowstore import (
    NEVER,
    append,
    append_one,
    boxes_of,
    mark_dead,
    no_rows,
    with_room_for_deaths,
)
from rangecast.model.space import Space
from tests.support import strategies

THREE = st.just(3)
SPACE = Space([Number(f"a{j}") for j in range(3)])


def written(parts):
    """The arrays after some sets of boxes, and how many rows they have."""
    rows, count = no_rows(), 0
    for part in parts:
        rows = append(rows, count, part, np.arange(count, count + part.rows))
        count += part.rows
    return rows, count


@given(st.lists(strategies.boxes(dimensions=THREE, max_rows=8), max_size=6), st.randoms())
def test_rows_come_back_as_they_were_added(parts, random):
    parts = [part for part in parts if str(part.ids.type) == "int64"]
    rows, count = written(parts)
    order = list(range(count))
    random.shuffle(order)
    some = boxes_of(rows, np.array(order, np.int64), SPACE)
    everything = [(part, row) for part in parts for row in range(part.rows)]
    assert some.rows == len(everything)
    for place, row in enumerate(order):
        part, within = everything[row]
        np.testing.assert_array_equal(some.lo[some.owner == place], part.lo[part.owner == within])
        np.testing.assert_array_equal(some.hi[some.owner == place], part.hi[part.owner == within])
        assert some.scores[place] == part.scores[within]
        expected = np.ones(3) if part.weights is None else part.weights[within]
        if some.weights is not None:
            np.testing.assert_array_equal(some.weights[place], expected)


@given(strategies.boxes(dimensions=THREE, max_rows=8))
def test_one_row_at_a_time_gives_the_same_arrays(some):
    plain = Boxes.of(some.lo, some.hi, owner=some.owner, ids=some.ids, scores=some.scores)
    together, count = written([plain])
    apart = no_rows()
    for row in range(some.rows):
        terms = [
            tuple((int(j), some.lo[b, j], some.hi[b, j]) for j in np.flatnonzero(some.mentions[b]))
            for b in np.flatnonzero(some.owner == row)
        ]
        one = some.ids[row].as_py(), terms, some.scores[row], None, row
        apart = append_one(apart, row, *one)
    everything = np.arange(count)
    one, other = boxes_of(apart, everything, SPACE), boxes_of(together, everything, SPACE)
    for name in ("lo", "hi", "owner", "scores"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    assert one.ids.equals(other.ids)
    for rows in (apart, together):
        np.testing.assert_array_equal(rows.arrival[:count], everything)
        assert (rows.died[:count] == NEVER).all()


@given(st.lists(strategies.boxes(dimensions=THREE, max_rows=8), min_size=2, max_size=4))
def test_rows_that_were_never_counted_are_as_good_as_not_written(parts):
    parts = [Boxes.of(p.lo, p.hi, owner=p.owner, scores=p.scores) for p in parts]
    rows, count = written(parts[:1])
    for part in parts[1:]:
        append(rows, count, part, np.arange(part.rows))  # an edit that failed afterwards
        rows = append(rows, count, part, np.arange(part.rows))
        count += part.rows
    found = boxes_of(rows, np.arange(count), SPACE)
    for name in ("lo", "hi", "scores"):
        right = np.concatenate([getattr(part, name) for part in parts])
        np.testing.assert_array_equal(getattr(found, name), right)


def test_only_what_is_mentioned_is_kept():
    lo, hi = np.full((1000, 100), -np.inf), np.full((1000, 100), np.inf)
    lo[:, 7], hi[:, 7] = 1, 2
    rows = append(no_rows(), 0, Boxes.of(lo, hi), np.arange(1000))
    assert rows.bounds.arrays.first_term[1000] == 1000
    assert rows.memory < 100 * 1000


def test_rows_that_died_have_a_bit_which_growing_keeps():
    rows, count, dead = no_rows(), 0, set()
    rng = np.random.default_rng(2)
    for edit in range(1, 12):
        lo = rng.random((int(rng.integers(1, 90)), 3))
        rows = append(rows, count, Boxes.of(lo, lo), count + np.arange(len(lo)))
        count += len(lo)
        alive = sorted(set(range(count)) - dead)
        dying = rng.permutation(alive)[:5]
        rows = with_room_for_deaths(rows, len(dead), len(dying))
        mark_dead(rows, len(dead), dying, edit)
        dead |= set(dying.tolist())
        bits = np.unpackbits(rows.dead_bits, bitorder="little")[:count]
        assert set(np.flatnonzero(bits).tolist()) == dead
        assert set(np.flatnonzero(rows.died[:count] <= edit).tolist()) == dead
