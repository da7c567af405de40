import pickle
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rangecast.errors import UsageError
from rangecast.kernels.blocks import BLOCK
from rangecast.kernels.codes import SLABS
from rangecast.match.scan import Scan
from rangecast.match.slabs import index, lanes, maps
from rangecast.match.slabs.index import Slabs
from rangecast.match.slabs.layout import FIRST_BLOCK, SLOT
from rangecast.model.boxes import Boxes
from tests.support import adversarial, strategies
from tests.support.conformance import as_sets, check_matcher

INF = np.inf
CASES = adversarial.cases()


def dense(n, d=4, width=0.2, seed=0):
    rng = np.random.default_rng(seed)
    lo = rng.random((n, d)) * (1 - width)
    return Boxes.of(lo, lo + rng.random((n, d)) * width)


def sparse(n, d=20, mentioned=4, seed=0):
    rng = np.random.default_rng(seed)
    lo, hi = np.full((n, d), -INF), np.full((n, d), INF)
    slots = rng.random((n, d)).argsort(axis=1)[:, :mentioned]
    width = rng.uniform(0.1, 0.3, (n, mentioned))
    some = rng.random((n, mentioned)) * (1 - width)
    np.put_along_axis(lo, slots, some, axis=1)
    np.put_along_axis(hi, slots, some + width, axis=1)
    return Boxes.of(lo, hi)


def events(m, d, seed=1, missing=0.0):
    rng = np.random.default_rng(seed)
    points = rng.random((m, d))
    points[rng.random((m, d)) < missing] = INF
    return points


def streamed(slabs, points, buffer):
    """The stream of small pieces put together again; no piece is longer than the buffer."""
    rows = [[] for _ in points]
    for first, piece in slabs.stream(points, buffer):
        assert len(piece.rows) <= buffer
        for i in range(len(piece.offsets) - 1):
            rows[first + i] += piece.of(i).tolist()
    return rows


@pytest.mark.parametrize(
    ("boxes", "missing"),
    [
        (dense(3000), 0.0),
        (dense(3000, d=2, width=0.9), 0.1),
        (dense(300, d=8, width=1.0), 0.1),
        (sparse(3000), 0.1),
        (sparse(2000, d=6, mentioned=2), 0.3),
        (sparse(500, d=300, mentioned=3), 0.5),
        (sparse(700, d=64, mentioned=1), 0.5),
    ],
)
def test_many_boxes_and_more_events_than_lanes(boxes, missing):
    check_matcher(Slabs, boxes, events(1100, boxes.dimensions, missing=missing))


def check_one_by_one(boxes, points):
    slabs = Slabs(boxes)
    expected = as_sets(Scan(boxes).match(points))
    for point, rows in zip(points, expected, strict=True):
        found = slabs.match_one(point).tolist()
        assert len(found) == len(set(found))
        assert set(found) == rows
    dead = np.arange(0, boxes.rows, 3)
    some = slabs.without(dead)
    for point, rows in zip(points, expected, strict=True):
        assert set(some.match_one(point).tolist()) == rows - set(dead.tolist())
    assert some._maps is slabs._maps
    return slabs


@given(strategies.boxes_and_points(dimensions=st.integers(1, 9)))
def test_one_event_is_a_batch_of_one(case):
    check_one_by_one(*case)


ALWAYS_MAPS = {"_MIN_BOXES": 0, "_SHORT": 1 << 40, "_BYTES": 1 << 40}


@given(strategies.boxes_and_points(dimensions=st.integers(1, 9)))
def test_one_event_by_bitmaps(case):
    with patch.multiple(maps, **ALWAYS_MAPS):
        slabs = check_one_by_one(*case)
        assert not len(case[1]) or slabs._maps[0] is not None


@pytest.mark.parametrize("name", CASES)
def test_one_event_by_bitmaps_in_adversarial_cases(name):
    with patch.multiple(maps, **ALWAYS_MAPS):
        check_one_by_one(*CASES[name])


def test_bitmaps_are_made_for_single_events_of_many_short_runs_alone():
    boxes = sparse(5000)
    slabs = check_one_by_one(boxes, events(50, 20, missing=0.1))
    untouched = Slabs(boxes)
    untouched.match(events(50, 20))
    assert untouched._maps == []
    assert slabs._maps[0].memory < maps._BYTES * len(boxes.lo) * 1.25
    again = pickle.loads(pickle.dumps(slabs))
    point = events(1, 20)[0]
    assert again.match_one(point).tolist() == slabs.match_one(point).tolist()
    assert check_one_by_one(dense(3000), events(5, 4))._maps == [None]
    assert check_one_by_one(sparse(2500, d=300, mentioned=3), events(5, 300))._maps == [None]


def test_one_event_by_bitmaps_of_several_groups_of_chunks():
    some = sparse(290_000)
    lo, hi = some.lo.copy(), some.hi.copy()
    lo[:1000], hi[:1000] = -INF, INF  # more than a chunk without any attribute
    slabs = check_one_by_one(Boxes.of(lo, hi), events(10, 20, missing=0.1))
    assert slabs._maps[0].arrays.first_slot.shape[1] > 2


def test_one_event_that_matches_all_by_bitmaps():
    n = 10_000
    boxes = Boxes.of(np.zeros((n, 3)), np.ones((n, 3)))
    with patch.multiple(maps, **ALWAYS_MAPS):
        assert sorted(Slabs(boxes).match_one(np.full(3, 0.5)).tolist()) == list(range(n))


@given(strategies.boxes_and_points(), st.integers(1, 9))
def test_tiny_buffers_stream_the_same_rows(case, buffer):
    boxes, points = case
    rows = streamed(Slabs(boxes), points, buffer)
    assert [set(r) for r in rows] == as_sets(Scan(boxes).match(points))
    assert all(len(r) == len(set(r)) for r in rows)


def test_events_that_match_everything_stream_through_a_small_buffer():
    n = 5000
    boxes = Boxes.of(np.zeros((n, 2)), np.ones((n, 2)))
    rows = streamed(Slabs(boxes), np.full((40, 2), 0.5), 777)
    assert all(sorted(r) == list(range(n)) for r in rows)


def test_a_batch_whose_matches_do_not_fit_is_searched_in_parts(monkeypatch):
    """Room for 700 matches and 600 events with 8 each: fewer and fewer events at a time."""
    monkeypatch.setattr("rangecast.match.slabs.index._ROWS", 100)
    n = 700
    lo, hi = np.zeros((n, 2)), np.full((n, 2), 0.01)
    hi[::90] = 1.0
    boxes, points = Boxes.of(lo, hi), events(600, 2)
    assert as_sets(Slabs(boxes).match(points)) == as_sets(Scan(boxes).match(points))


def test_one_event_may_match_more_than_its_first_buffer_holds():
    n = 20_000
    slabs = Slabs(Boxes.of(np.zeros((n, 2)), np.ones((n, 2))))
    assert sorted(slabs.match_one(np.full(2, 0.5)).tolist()) == list(range(n))


def test_whole_slabs_leave_nothing_to_compare():
    """Integers in a small domain: every bound is an edge, so no candidate is in doubt."""
    rng = np.random.default_rng(5)
    lo = rng.integers(0, 90, (4000, 3)).astype(float)
    boxes = Boxes.of(lo, lo + rng.integers(0, 30, (4000, 3)))
    points = rng.integers(0, 120, (700, 3)).astype(float)
    matches = Slabs(boxes).match(points)
    assert as_sets(matches) == as_sets(Scan(boxes).match(points))
    assert matches.work.tested == 0
    assert matches.work.visited > 0


def test_unbounded_sides_are_never_in_doubt():
    rng = np.random.default_rng(6)
    n, largest = 2000, np.finfo(np.float64).max
    choice = rng.integers(0, 3, (n, 4))
    lo = np.choose(choice, [-largest, INF, -INF])
    hi = np.choose(choice, [largest, INF, INF])
    matches = Slabs(Boxes.of(lo, hi)).match(events(600, 4, missing=0.4))
    assert matches.work.tested == 0
    assert as_sets(matches) == as_sets(Scan(Boxes.of(lo, hi)).match(events(600, 4, missing=0.4)))


def test_little_is_looked_at_and_little_compared():
    """Far fewer words than a scan's, and no more comparisons than there are candidates."""
    boxes = dense(20_000)
    matches = Slabs(boxes).match(events(1024, 4))
    found = len(matches.rows)
    assert matches.work.visited / 1024 < 20_000 * 4 / 64 / 2
    assert matches.work.tested < found


def test_what_is_not_mentioned_costs_nothing():
    """Attributes that no box mentions have no codes, no bounds, and no words to look at."""
    boxes = dense(5000)
    free = np.full((5000, 30), INF)
    wide = Boxes.of(np.c_[boxes.lo, -free], np.c_[boxes.hi, free])
    points = events(512, 4)
    narrow, spread = Slabs(boxes), Slabs(wide)
    ours = narrow.match(points)
    theirs = spread.match(np.c_[points, np.full((512, 30), INF)])
    assert as_sets(ours) == as_sets(theirs)
    assert ours.work == theirs.work
    assert spread.memory <= narrow.memory + 30 * 16


def test_memory_is_bounded():
    assert Slabs(dense(20_000)).memory < 20_000 * 4 * 24
    assert Slabs(sparse(20_000)).memory < 20_000 * 4 * 48
    assert Slabs(sparse(3000, d=200, mentioned=3)).memory < 3000 * 3 * 96
    assert Slabs(Boxes.of(np.zeros((0, 3)), np.zeros((0, 3)))).memory < 1000


def test_runs_hold_what_their_boxes_mention():
    boxes = sparse(3000, d=8, mentioned=2)
    layout = Slabs(boxes).layout.arrays
    assert len(layout.runs) - 1 == 8 * 7 // 2
    assert (np.diff(layout.runs[:, SLOT]) == 2).all()
    assert (np.diff(layout.blocks) <= BLOCK).all()
    assert layout.blocks[-1] == 3000
    assert sorted(layout.owner[:3000].tolist()) == list(range(3000))
    assert (np.diff(layout.first_edge) <= SLABS - 2).all()


def test_rare_sets_of_attributes_share_runs():
    boxes = sparse(2000, d=12, mentioned=4)
    layout = Slabs(boxes).layout.arrays
    kinds = len(np.unique(boxes.mentions, axis=0))
    assert layout.runs[-1, FIRST_BLOCK] < kinds
    slots = np.repeat(np.diff(layout.runs[:, SLOT]), np.diff(layout.runs[:, FIRST_BLOCK]))
    assert (slots * np.diff(layout.blocks)).sum() <= 1.5 * boxes.mentions.sum()


@pytest.mark.parametrize("name", CASES)
def test_adversarial_cases_one_by_one_and_streamed(name):
    boxes, points = CASES[name]
    slabs = Slabs(boxes)
    expected = as_sets(Scan(boxes).match(points))
    assert [set(slabs.match_one(point).tolist()) for point in points] == expected
    assert [set(rows) for rows in streamed(slabs, points, 50)] == expected


def test_events_of_another_space_are_rejected():
    slabs = Slabs(dense(10))
    with pytest.raises(UsageError, match="shape"):
        slabs.match(np.zeros((3, 5)))
    with pytest.raises(UsageError, match="shape"):
        slabs.match_one(np.zeros(5))


def test_a_batch_has_room_for_more_matches_than_the_one_before(monkeypatch):
    """The room is that of the last batch; events with more matches are searched again."""
    monkeypatch.setattr(index, "_SPARE", 16)
    n = 3_000
    lo = np.zeros((n, 2))
    lo[: n - 5, 0] = 5.0
    slabs = Slabs(Boxes.of(lo, np.full((n, 2), 10.0)))
    few, many = np.full((600, 2), 1.0), np.full((600, 2), 7.0)
    for points, matches in ((few, 5), (many, n), (few, 5)):
        found = slabs.match(points)
        assert np.diff(found.offsets).tolist() == [matches] * 600
        assert [*map(len, map(set, np.split(found.rows, found.offsets[1:-1])))] == [matches] * 600
    mixed = np.concatenate([few[:40], many[:40]])
    assert np.diff(slabs.match(mixed).offsets).tolist() == [5] * 40 + [n] * 40


def test_searches_of_other_sizes_share_the_room_of_a_thread():
    dice = np.random.default_rng(3)
    sets = []
    for d in (1, 5, 2):
        lo = dice.random((500, d))
        sets.append(Boxes.of(lo, lo + dice.random((500, d))))
    for _ in range(2):
        for boxes in sets:
            slabs, scan = Slabs(boxes), Scan(boxes)
            for events in (40, 2_000, 700):
                points = 1.5 * dice.random((events, boxes.dimensions))
                ours, right = slabs.match(points), scan.match(points)
                assert ours.offsets.tolist() == right.offsets.tolist()
                for e in range(events):
                    mine, his = ours.offsets[e : e + 2], right.offsets[e : e + 2]
                    assert set(ours.rows[slice(*mine)]) == set(right.rows[slice(*his)])


def test_a_search_within_a_search_has_room_of_its_own(monkeypatch):
    """A signal handler or a finalizer may match a batch while the thread searches another one."""
    dice = np.random.default_rng(5)
    outer, inner = (Boxes.of(lo := dice.random((500, d)), lo + 0.4) for d in (3, 2))
    points, others = dice.random((700, 3)), dice.random((900, 2))
    searched, nested = Slabs(outer), Slabs(inner)
    expected, tabulate, found = Scan(outer).match(points), index.tabulate, []

    def tabulated(*arguments):
        tabulate(*arguments)
        if not found:
            found.append(None)
            found.append(nested.match(others))

    monkeypatch.setattr(index, "tabulate", tabulated)
    result = searched.match(points)
    assert result.offsets.tolist() == expected.offsets.tolist()
    for e in range(len(points)):
        assert sorted(result.of(e)) == expected.of(e).tolist()
    assert found[1].offsets.tolist() == Scan(inner).match(others).offsets.tolist()


def test_a_thread_keeps_no_room_for_many_attributes():
    lo = np.random.default_rng(6).random((100, 300))
    Slabs(Boxes.of(lo, lo + 1)).match(lo)
    assert "room" not in vars(lanes._kept)
    Slabs(Boxes.of(lo[:, :2], lo[:, :2] + 1)).match(lo[:, :2])
    kept = lanes._kept.room
    Slabs(Boxes.of(lo[:, :1], lo[:, :1] + 1)).match(lo[:, :1])
    assert lanes._kept.room is kept
