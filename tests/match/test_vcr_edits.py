"""VCR insertion and deletion in place: any history gives what a new index gives, and the oracle."""

import pickle
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rangecast.errors import UsageError
from rangecast.match.papers.vcr import idlists
from rangecast.match.papers.vcr.index import EditWork, Vcr
from rangecast.match.papers.vcr.rectangles import pieces_of
from rangecast.match.scan import Scan
from rangecast.model.boxes import Boxes
from tests.support import strategies
from tests.support.conformance import as_sets
from tests.support.examples import examples

VARIANTS = [
    {"overlapped": overlapped, "hashed": hashed}
    for overlapped in (False, True)
    for hashed in (False, True)
]


def integer_boxes(n, seed=3, most=12):
    rng = np.random.default_rng(seed)
    lo = rng.integers(0, 50, (n, 2)).astype(float)
    return Boxes.of(lo, lo + rng.integers(1, most, (n, 2)))


GRID = (np.arange(63), np.arange(63))
EVENTS = np.stack(np.meshgrid(np.arange(0, 63, 2.0), np.arange(0, 63, 3.0)), -1).reshape(-1, 2)


def joined(parts):
    """Several sets of boxes as one, rows one after the other."""
    first = np.cumsum([0, *(part.rows for part in parts)])
    owners = [part.owner + at for part, at in zip(parts, first[:-1], strict=True)]
    lo, hi = (np.concatenate([getattr(p, side) for p in parts]) for side in ("lo", "hi"))
    return Boxes.of(lo, hi, owner=np.concatenate(owners))


def lists_of(matcher):
    """The ids of every list that has some, by its number."""
    lists = matcher._lists.arrays
    found = {}
    for slot in np.flatnonzero(lists.length).tolist():
        key = int(lists.keys[slot]) if len(lists.keys) else slot
        start = lists.start[slot]
        places = range(start, start + lists.length[slot])
        found[key] = Counter((int(lists.pool[i]), *lists.notes[i].tolist()) for i in places)
    return found


def check(matcher, parts, gone, points):
    boxes = joined(parts)
    expected = [rows - gone for rows in as_sets(Scan(boxes).match(points))]
    assert as_sets(matcher.match(points)) == expected
    for point, rows in zip(points, expected, strict=True):
        assert set(matcher.match_one(point).tolist()) == rows


@examples(60)
@given(data=st.data(), options=st.sampled_from(VARIANTS))
def test_any_history_of_edits_is_answered_as_the_oracle_does(data, options):
    first, points = data.draw(strategies.boxes_and_points())
    matcher, parts, gone = Vcr(first, **options), [first], set()
    for step in range(data.draw(st.integers(1, 5))):
        if data.draw(st.booleans()):
            more, _ = data.draw(strategies.boxes_and_points(dimensions=st.just(first.dimensions)))
            before = sum(part.rows for part in parts)
            parts.append(more)
            assert matcher.insert(more).tolist() == list(range(before, before + more.rows))
        else:
            live = [row for row in range(sum(part.rows for part in parts)) if row not in gone]
            if live:
                rows = data.draw(st.lists(st.sampled_from(live), unique=True, max_size=8))
                matcher.delete(rows)
                gone.update(rows)
        if step == 1:
            matcher = pickle.loads(pickle.dumps(matcher))
        check(matcher, parts, gone, points)


@pytest.mark.parametrize("options", VARIANTS)
def test_lists_after_edits_are_those_of_a_new_index(options):
    """The same ids with the same notes in the same lists, and the same work of a match."""
    options = {"sides": (8, 4), "axes": (0, 1), "edges": GRID, **options}
    boxes = integer_boxes(900)
    half = Boxes.of(boxes.lo[:400], boxes.hi[:400])
    rest = [Boxes.of(boxes.lo[[i]], boxes.hi[[i]]) for i in range(400, 900)]
    matcher = Vcr(half, **options)
    for one in rest:
        matcher.insert(one)
    whole = Vcr(boxes, **options)
    assert lists_of(matcher) == lists_of(whole)
    assert (matcher.entries, matcher.active) == (whole.entries, whole.active)
    assert matcher.match(EVENTS).work == whole.match(EVENTS).work
    matcher.delete(np.arange(400, 900))
    assert lists_of(matcher) == lists_of(Vcr(half, **options))
    matcher.delete(np.arange(400))
    assert (matcher.entries, matcher.active, matcher.covering) == (0, 0, 0)
    assert as_sets(matcher.match(EVENTS)) == [set()] * len(EVENTS)


def test_an_edit_touches_the_lists_of_its_vcrs_and_no_more():
    matcher = Vcr(integer_boxes(5000), sides=(8, 4), axes=(0, 1), edges=GRID)
    new = integer_boxes(200, seed=8)
    widths = (new.hi - new.lo).astype(np.int64)
    pieces = int((pieces_of(widths[:, 0], 3, False) * pieces_of(widths[:, 1], 2, False)).sum())
    rows = matcher.insert(new)
    inserted = matcher.edit_work
    assert inserted.lists == pieces
    longest = int(matcher._lists.arrays.length.max())
    assert inserted.ids <= pieces * longest
    matcher.delete(rows)
    deleted = matcher.edit_work
    assert deleted.lists == 2 * pieces
    assert deleted.ids - inserted.ids <= 2 * pieces * longest


def test_ids_move_a_constant_number_of_times():
    """Blocks double: in the mean an insertion moves an id per list, however long lists are."""
    for n in (2_000, 20_000):
        matcher = Vcr(integer_boxes(0), sides=(8, 4), axes=(0, 1), edges=GRID)
        matcher.insert(integer_boxes(n))
        work = matcher.edit_work
        assert work.ids <= work.lists


def test_a_set_that_changes_but_does_not_grow_comes_to_rest():
    matcher = Vcr(integer_boxes(1000), hashed=True)
    sizes = []
    for turn in range(30):
        rows = matcher.insert(integer_boxes(300, seed=turn % 5))
        matcher.delete(rows)
        lists = matcher._lists.arrays
        sizes.append((len(lists.pool), len(lists.keys)))
    assert sizes[-1] == sizes[8]


def test_an_edit_leaves_the_boxes_given_and_other_copies_alone():
    boxes, more = integer_boxes(300), integer_boxes(50, seed=4)
    before = boxes.lo.copy(), boxes.hi.copy()
    matcher = Vcr(boxes)
    copy = pickle.loads(pickle.dumps(matcher))
    expected = as_sets(copy.match(EVENTS))
    matcher.insert(more)
    matcher.delete([0, 5])
    np.testing.assert_array_equal(boxes.lo, before[0])
    np.testing.assert_array_equal(boxes.hi, before[1])
    assert as_sets(copy.match(EVENTS)) == expected
    assert copy.edit_work == EditWork(0, 0)


def test_an_index_in_memory_that_is_read_only_is_copied_when_it_is_edited():
    matcher = Vcr(integer_boxes(300))
    matcher.insert(integer_boxes(50, seed=4))
    matcher.delete([3])
    buffers = []
    data = pickle.dumps(matcher, protocol=5, buffer_callback=buffers.append)
    frozen = [bytes(buffer.raw()) for buffer in buffers]
    again = pickle.loads(data, buffers=frozen)
    more = integer_boxes(20, seed=9)
    again.insert(more)
    again.delete([4])
    check(again, [integer_boxes(300), integer_boxes(50, seed=4), more], {3, 4}, EVENTS)
    with pytest.raises(UsageError, match="no row 3"):
        again.delete([3])


@pytest.mark.parametrize("hashed", [False, True])
def test_an_insertion_that_fails_changes_nothing(monkeypatch, hashed):
    boxes = integer_boxes(300)
    matcher = Vcr(boxes, hashed=hashed)
    matcher.insert(integer_boxes(5, seed=2))
    expected, stored = as_sets(matcher.match(EVENTS)), lists_of(matcher)

    def reject(lists):
        raise MemoryError

    with monkeypatch.context() as broken:
        broken.setattr(idlists, "with_larger_pool", reject)
        with pytest.raises(MemoryError):
            matcher.insert(integer_boxes(20_000, seed=9))
    assert lists_of(matcher) == stored
    assert as_sets(matcher.match(EVENTS)) == expected
    assert matcher.insert(integer_boxes(2, seed=5)).tolist() == [305, 306]


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([300], "there is no row 300, of 300 in all"),
        ([-1], "there is no row -1"),
        ([1, 1], "a row appears twice"),
        ([7], "there is no row 7"),
        ([0.5], "rows must be whole numbers"),
        (["a"], "rows must be whole numbers"),
    ],
)
def test_rows_that_cannot_be_deleted_are_rejected(rows, words):
    matcher = Vcr(integer_boxes(300))
    matcher.delete([7])
    expected = as_sets(matcher.match(EVENTS))
    with pytest.raises(UsageError, match=words):
        matcher.delete(rows)
    assert as_sets(matcher.match(EVENTS)) == expected


def test_boxes_of_other_dimensions_are_rejected():
    matcher = Vcr(integer_boxes(30))
    with pytest.raises(UsageError, match="boxes of 2 attributes; given: boxes of 3"):
        matcher.insert(Boxes.of(np.zeros((1, 3)), np.ones((1, 3))))
    matcher.delete([])
    assert matcher.entries == Vcr(integer_boxes(30)).entries
