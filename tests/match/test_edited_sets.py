"""Matching after edits: dead rows are left out as a structure searches, for each view its own."""

from __future__ import annotations

import gc
import threading
import time
import weakref

import numpy as np
import pytest

from rangecast.engine import Engine
from rangecast.errors import UsageError
from rangecast.match.cells.index import Cells
from rangecast.match.live import match_live, match_one_live
from rangecast.match.result import MatchRows, stream
from rangecast.match.scan import Scan
from rangecast.match.slabs.index import Slabs
from rangecast.match.tiles import Tiles
from rangecast.match.values.index import Values
from rangecast.model.attributes.base import Number
from rangecast.model.boxes import Boxes
from rangecast.model.space import Space
from tests.support.conformance import as_sets

BORDERS = [0, 1, 31, 32, 33, 62, 63, 64, 65, 95, 96, 127, 128, 298, 299]
"""Where stretches, words and blocks begin and end, of 300 boxes."""
MANY = np.full((600, 2), 5.0)
KINDS = {"slabs": Slabs, "cells": Cells, "tiles": Tiles, "values": Values}
BUNDLES = {"slabs": "layout", "cells": "_filed", "tiles": "bundle", "values": "bundle"}


def equal_boxes(count=300):
    return Boxes.of(np.zeros((count, 2)), np.full((count, 2), 9.0))


def plane():
    return Space([Number("x"), Number("y")])


def integer_boxes(count, seed=0):
    rng = np.random.default_rng(seed)
    lo = rng.integers(0, 30, (count, 2)).astype(float)
    return Boxes.of(lo, lo + rng.integers(3, 12, lo.shape))


def real_boxes(count, seed=0):
    """So many different bounds that some must be compared."""
    rng = np.random.default_rng(seed)
    lo = rng.random((count, 2)) * 30
    return Boxes.of(lo, lo + rng.random(lo.shape) * 9)


def several_each(count=200, seed=1):
    """Subscriptions of one to three boxes that meet one another."""
    rng = np.random.default_rng(seed)
    owner = np.repeat(np.arange(count), rng.integers(1, 4, count))
    lo = rng.integers(0, 12, (len(owner), 2)).astype(float)
    return Boxes.of(lo, lo + rng.integers(3, 9, lo.shape), owner=owner)


def grid(side=40, step=1.0):
    axis = np.arange(0, side, step)
    return np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)


def in_pieces(pieces, events):
    rows = [[] for _ in range(events)]
    for first, piece in pieces:
        for event in range(len(piece.offsets) - 1):
            rows[first + event] += piece.of(event).tolist()
    return rows


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "dead", [BORDERS, [*range(64)], [*range(300)], [*range(1, 300)], [299]], ids=lambda d: len(d)
)
def test_dead_at_the_borders_of_blocks_and_stretches(kind, dead):
    whole = KINDS[kind](equal_boxes())
    index = whole.without(np.array(dead))
    left = set(range(300)) - set(dead)
    for events in (MANY, MANY[:3]):
        assert as_sets(index.match(events)) == [left] * len(events)
    assert set(index.match_one(MANY[0]).tolist()) == left
    for buffer in (64, 65, 299):
        found = in_pieces(index.stream(MANY[:5], buffer), 5)
        assert [sorted(rows) for rows in found] == [sorted(left)] * 5
    assert as_sets(whole.match(MANY)) == [set(range(300))] * 600


@pytest.mark.parametrize("kind", KINDS)
def test_a_structure_without_some_shares_the_rest_and_compares_no_dead_box(kind):
    points = grid(30, 0.7)
    boxes = real_boxes(3_000)
    whole = KINDS[kind](boxes)
    before = whole.match(points)
    half = whole.without(np.arange(0, 3_000, 2))
    none = half.without(np.arange(1, 3_000, 2))
    assert half.memory < 1.02 * whole.memory
    arrays = [getattr(index, BUNDLES[kind]) for index in (whole, half, none)]
    assert all(bundle.arrays[0] is arrays[0].arrays[0] for bundle in arrays)
    assert before.work.tested > 0
    assert half.match(points).work.tested < 0.6 * before.work.tested
    assert none.match(points).work.tested == 0
    assert whole.match(points).work == before.work


@pytest.mark.parametrize("kind", KINDS)
def test_subscriptions_of_several_boxes_leave_whole(kind):
    boxes, points = several_each(), grid(24)
    dead = np.arange(0, boxes.rows, 4)
    expected = [rows - set(dead.tolist()) for rows in as_sets(Scan(boxes).match(points))]
    index = KINDS[kind](boxes).without(dead)
    assert as_sets(index.match(points)) == expected
    assert [set(index.match_one(point).tolist()) for point in points] == expected


@pytest.mark.parametrize("boxes", [integer_boxes(70_000), several_each()], ids=["two blocks", "or"])
@pytest.mark.parametrize("buffer", [1, 50, 1 << 20])
def test_cells_write_the_rows_of_others_behind_their_own(boxes, buffer):
    points = grid(6, 0.5)[:20]
    dead = np.arange(0, boxes.rows, 5)
    index = Cells(boxes, memory=1 << 27).without(dead)
    counts = np.arange(20) % 4
    rows = (1_000_000 + np.arange(counts.sum())).astype(np.int32)
    others = MatchRows(np.concatenate([[0], np.cumsum(counts)]), rows)
    step, _ = index._step(points, others)
    expected = [
        sorted((own - set(dead.tolist())) | set(others.of(event).tolist()))
        for event, own in enumerate(as_sets(Scan(boxes).match(points)))
    ]
    assert [sorted(rows) for rows in in_pieces(stream(step, 20, buffer), 20)] == expected
    assert [sorted(rows) for rows in as_sets(index.match(points, others))] == expected


def expected_of(model, points):
    names = list(model)
    found = Scan(Boxes.of(*(np.stack([model[n][side] for n in names]) for side in (0, 1))))
    return [{names[row] for row in rows} for rows in as_sets(found.match(points))]


def answers(engine, view, points):
    """Return the answers of a view, after comparing batches with single events."""
    ids = view.rows.ids
    found = [set(ids[list(rows)].tolist()) for rows in as_sets(match_live(view, points))]
    for event in range(0, len(points), 97):
        one = match_one_live(view, points[event : event + 1]).tolist()
        assert len(one) == len(set(one))
        assert set(ids[one].tolist()) == found[event]
    return found


def edited(engine, model, rng, boxes, fresh):
    """Remove, replace and add some, in an engine and in a dict of boxes."""
    names = rng.choice(np.array(list(model)), 40, replace=False).tolist()
    engine.unsubscribe_many(names[:30])
    for name in names[:30]:
        del model[name]
    engine.replace_many(Boxes.of(boxes.lo[:10], boxes.hi[:10], ids=names[30:]))
    engine.subscribe_many(Boxes.of(boxes.lo[:25], boxes.hi[:25], ids=[*range(fresh, fresh + 25)]))
    for place, name in enumerate(names[30:]):
        model[name] = boxes.lo[place], boxes.hi[place]
    for place in range(25):
        model[fresh + place] = boxes.lo[place], boxes.hi[place]


@pytest.mark.parametrize("index", ["cells", "slabs", "tiles", "values", "rtree"])
@pytest.mark.parametrize("oldest_first", [True, False])
def test_every_view_keeps_its_own_answer(index, oldest_first):
    rng = np.random.default_rng(4)
    boxes = integer_boxes(2_000)
    engine = Engine(plane(), index=index)
    engine.subscribe_many(boxes)
    model = {row: (boxes.lo[row], boxes.hi[row]) for row in range(2_000)}
    points = grid(30)
    kept = []
    for turn in range(30):
        kept.append((engine._view, expected_of(model, points) if turn % 6 == 0 else None))
        edited(engine, model, rng, integer_boxes(25, seed=turn), 10_000 + 25 * turn)
    kept.append((engine._view, expected_of(model, points)))
    assert len(kept[-1][0].parts) > 1
    for view, expected in kept if oldest_first else reversed(kept):
        if expected is not None:
            assert answers(engine, view, points) == expected


def test_threads_read_old_views_while_edits_go_on():
    rng = np.random.default_rng(6)
    boxes = integer_boxes(3_000)
    engine = Engine(plane(), index="cells")
    engine.subscribe_many(boxes)
    model = {row: (boxes.lo[row], boxes.hi[row]) for row in range(3_000)}
    points = grid(30, 5.0)
    kept = [(engine._view, expected_of(model, points))]
    stop, wrong, read = threading.Event(), [], [0, 0]

    def reader(number):
        chosen = np.random.default_rng(number)
        while not stop.is_set():
            time.sleep(0.0005)  # readers that never rest would starve the writer of the GIL
            view, expected = kept[chosen.integers(len(kept))]
            if answers(engine, view, points) != expected:
                wrong.append(view.edit)
            read[number] += 1

    threads = [threading.Thread(target=reader, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    try:
        for turn in range(40):
            edited(engine, model, rng, integer_boxes(25, seed=turn), 10_000 + 25 * turn)
            kept.append((engine._view, expected_of(model, points)))
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert not wrong
    assert min(read) > 0


@pytest.mark.parametrize("index", ["cells", "slabs", "tiles", "hilbert"])
def test_a_set_all_of_whose_rows_died_and_came_back(index):
    engine = Engine(plane(), index=index)
    engine.subscribe_many(equal_boxes())
    engine.unsubscribe_many(range(300))
    assert [engine.match_points(MANY)[9], engine.match_points(MANY[:1])[0]] == [[], []]
    engine.subscribe_many(equal_boxes())
    assert engine.match_points(MANY)[599] == engine.match({"x": 5, "y": 5}) == [*range(300)]


@pytest.mark.parametrize("index", ["cells", "slabs", "tiles"])
def test_an_edited_set_does_no_more_work_than_its_rows_need(index):
    """What is dead costs nothing, and what is new is compared."""
    boxes, points = real_boxes(5_000), grid(40, 0.9)
    engine = Engine(plane(), index=index)
    engine.subscribe_many(boxes)
    untouched = engine.match_points(points).matches.work
    engine.unsubscribe_many(range(50))
    fewer = engine.match_points(points).matches.work
    assert fewer.visited <= untouched.visited
    assert fewer.tested < untouched.tested
    engine.subscribe_many(boxes.take(np.arange(50)))
    again = engine.match_points(points).matches.work
    assert again.visited <= fewer.visited
    assert again.tested == fewer.tested + 50 * len(points)


def test_the_next_view_starts_from_what_was_made_for_the_last_one():
    engine = Engine(plane(), index="slabs")
    engine.subscribe_many(integer_boxes(2_000))
    engine.unsubscribe(3)
    engine.match_points(MANY)
    (part,) = engine._view.parts
    assert [counted for counted, _ in part.masked] == [1]
    first = part.masked[0][1]
    engine.subscribe_many(Boxes.of([[0, 0]], [[9, 9]], ids=[5_000]))
    engine.match_points(MANY)
    assert part.masked[0][1] is first  # nothing died
    engine.unsubscribe(4)
    engine.match_points(MANY)
    assert part.masked[0][0] == 2
    assert part.masked[0][1]._by_owner is first._by_owner


@pytest.mark.parametrize("index", ["scan", "rtree", "slabs", "cells", "tiles"])
@pytest.mark.parametrize("count", [5, 2_000])
def test_a_point_that_is_no_number_is_rejected_however_it_is_matched(index, count):
    engine = Engine(plane(), index=index)
    engine.subscribe_many(integer_boxes(count))
    for points in ([[np.nan, 1.0]], [[1.0, np.nan]], [[1.0, np.nan], [1.0, 1.0]]):
        with pytest.raises(UsageError, match="NaN"):
            engine.match_points(np.array(points))
    assert len(engine.match_points(np.array([[np.inf, np.inf]])).ids) == 0


@pytest.mark.parametrize("make", [integer_boxes, real_boxes])
def test_a_view_that_answered_single_events_goes_with_its_edit(make):
    """Not when the garbage collector comes: a view may hold large arrays."""
    engine, point = Engine(plane()), np.array([[5.0, 5.0]])
    engine.subscribe_many(make(3_000))
    engine.unsubscribe(7)  # dead entries of cells are looked up, at first
    engine.match_points(point)
    call = weakref.ref(engine._view.single_event[0][0])
    gc.disable()
    try:
        engine.unsubscribe(8)
        assert call() is None
    finally:
        gc.enable()
    assert set(engine.match_points(point)[0]) == set(engine.match_points(point.repeat(2, 0))[0])
