"""Batches on several threads: the same answers, whatever their number and however events split."""

from __future__ import annotations

import os
import queue
import threading

import numpy as np
import pytest

from rangecast import Boxes, Engine, Number, Space
from rangecast.errors import RangecastError
from rangecast.model import threads as threads_module
from rangecast.model.threads import number_of_threads, pieces_of, side_by_side, usable_cores

MANY = 1 << 40
"""Events that wait for their turn as long as a chunk waits at most."""


def crowd(n=1500):
    """Boxes of which some hold everything, and a set over them that was edited."""
    rng = np.random.default_rng(1)
    lo = rng.random((n, 2))
    hi = lo + rng.random((n, 2)) / 8
    lo[:20], hi[:20] = 0.0, 2.0
    return Boxes.of(lo, hi), rng.random((9000, 2))


@pytest.mark.parametrize("index", ["slabs", "cells", "tiles", "rtree", "scan"])
@pytest.mark.parametrize("edits", [0, 5])
def test_any_number_of_threads_gives_the_same_matches(index, edits):
    boxes, points = crowd()
    engine = Engine(Space([Number("a"), Number("b")]), index=index)
    engine.subscribe_many(boxes)
    for one in range(edits):
        engine.replace(one * 7, "a < 0.5")
    for events in (0, 1, 2, 3, 100, 1025, 9000):
        one = engine.match_points(points[:events])
        for threads in (2, 3, "auto"):
            many = engine.match_points(points[:events], threads=threads)
            assert [sorted(ids) for ids in one] == [sorted(ids) for ids in many]
            # Slabs look at many events in a word, and a tree goes back to a node where a buffer was
            # full: what these visit depends on which events come together.
            if index != "rtree":
                assert one.matches.work.tested == many.matches.work.tested
            if index in ("cells", "scan"):
                assert one.matches.work.visited == many.matches.work.visited


def test_pieces_are_read_as_one_answer():
    boxes, points = crowd()
    engine = Engine(Space([Number("a"), Number("b")]))
    engine.subscribe_many(boxes)
    points = points[:8000]
    one, many = engine.match_points(points), engine.match_points(points, threads=2)
    assert (len(one.pieces), len(many.pieces)) == (1, 2)
    assert repr(one) == repr(many)
    assert many[-1] == one[-1] == one[7999]
    assert many[4095] == one[4095]
    assert many[4096] == one[4096]
    assert sorted(many.ids.tolist()) == sorted(one.ids.tolist())
    by_both = [("event", "ascending"), ("subscription", "ascending")]
    assert many.table().sort_by(by_both) == one.table().sort_by(by_both)
    assert len(many.pieces) == 2
    assert many.matches.offsets.tolist() == one.matches.offsets.tolist()
    assert len(many.pieces) == 1


def test_an_event_with_all_matches_beside_events_without_any():
    engine = Engine(Space([Number("a")]))
    engine.subscribe_many({"id": [*range(5000)], "a_lo": [0.0] * 5000})
    points = np.full((20_000, 1), -1.0)
    points[[0, 19_999]] = 1.0
    found = engine.match_points(points, threads=2)
    counts = np.diff(found.matches.offsets)
    assert np.flatnonzero(counts).tolist() == [0, 19_999]
    assert counts.max() == 5000


def test_events_that_are_rejected_one_by_one_may_be_many():
    """More than one piece has."""
    engine = Engine(Space([Number("a")]))
    engine.subscribe("all", "a > 0")
    events = [{"a": 1.0}] * 9000 + [{"b": 1}]
    found = engine.match_each(events)
    assert found[:-1] == [["all"]] * 9000
    assert isinstance(found[-1], RangecastError)


def test_pieces_have_every_event_once():
    for events in (0, 1, 2, 5, 511, 512, 513, 5000, 100_001):
        for threads in (1, 2, 3, 7):
            pieces = pieces_of(events, threads)
            assert [i for piece in pieces for i in range(events)[piece]] == [*range(events)]


def test_small_batches_stay_in_one_thread(monkeypatch):
    monkeypatch.setattr(threads_module, "usable_cores", lambda: 4)
    assert [number_of_threads("auto", n) for n in (0, 1, 2047, 2048, 10_000)] == [1, 1, 1, 2, 4]
    assert [number_of_threads(3, n) for n in (0, 1, 2, 100)] == [1, 1, 2, 3]
    assert usable_cores() >= 1


def test_after_an_error_no_other_piece_is_begun():
    begun = []

    def work(piece):
        begun.append(piece)
        if piece == 1:
            raise MemoryError("no room")
        return piece

    with pytest.raises(MemoryError, match="no room"):
        side_by_side(work, range(1000), 2)
    assert len(begun) < 1000
    assert side_by_side(str, range(5), 3) == ["0", "1", "2", "3", "4"]
    assert side_by_side(str, [], 3) == []


def test_hardly_more_threads_than_cores_work_at_a_time(monkeypatch):
    monkeypatch.setattr(threads_module, "_MAX_WAIT", 60)
    lock, inside, seen = threading.Lock(), [0], []
    others = threading.Barrier(usable_cores())

    def work(_):
        with lock:
            inside[0] += 1
            seen.append(inside[0])
        others.wait()  # as many as there are cores come here together
        with lock:
            inside[0] -= 1

    tasks = [
        threading.Thread(target=threads_module.in_turn, args=(work, None, MANY))
        for _ in range(4 * usable_cores())
    ]
    for task in tasks:
        task.start()
    for task in tasks:
        task.join()
    assert len(seen) == len(tasks)
    assert max(seen) == usable_cores()


def test_a_turn_that_never_comes_is_not_waited_for(monkeypatch):
    monkeypatch.setattr(threads_module, "_MAX_WAIT", 0.001)
    monkeypatch.setattr(threads_module, "_turns", queue.SimpleQueue())
    assert threads_module.in_turn(len, "abc", MANY) == 3
    assert threads_module._turns.empty()


class _NoTurns:
    """Turns that all belong to others."""

    def get(self, **_):
        raise AssertionError("waits for a turn")


def test_small_batches_wait_for_no_turn(monkeypatch):
    """They may be on an event loop, and take less time than a thread waits for its turn."""
    engine = Engine(Space([Number("a")]))
    engine.subscribe_many({"id": [*range(1000)], "a_lo": [0.0] * 1000, "score": [*range(1000)]})
    few, many = ([{"a": 1.0}] * events for events in (threads_module._FEW - 1, threads_module._FEW))
    expected, best = engine.match_many(few), engine.rank_many(few, 3)
    monkeypatch.setattr(threads_module, "_turns", _NoTurns())
    assert engine.match_each(few) == list(expected)
    assert list(engine.match_many(few)) == list(expected)
    assert list(engine.match_many(few, threads="auto")) == list(expected)
    assert list(engine.match_points(np.ones((len(few), 1)))) == list(expected)
    assert list(engine.rank_many(few, 3)) == list(best)
    assert engine.rank({"a": 1.0}, 3) == best[0]
    for call in (engine.match_each, engine.match_many, engine.rank_many):
        with pytest.raises(AssertionError, match="turn"):
            call(many)


def test_an_error_gives_its_turn_back():
    for _ in range(3 * usable_cores()):
        with pytest.raises(ZeroDivisionError):
            threads_module.in_turn(lambda _: 1 // 0, None, MANY)
    assert threads_module._turns.qsize() == usable_cores()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_has_all_turns():
    turn = threads_module._turns.get()
    child = os.fork()
    if child == 0:
        os._exit(threads_module._turns.qsize() != usable_cores())
    threads_module._turns.put(turn)
    assert os.waitpid(child, 0)[1] == 0
