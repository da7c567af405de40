"""Ids of an answer, by arrival: whatever the order in which rows are found, edited or not."""

import gc
import os
import random
import signal
import sys
import threading
import weakref

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rangecast import liveset
from rangecast.engine import Engine
from rangecast.kernels import object_list
from rangecast.kernels.ordering import sort_rows
from rangecast.model.attributes.base import Number
from rangecast.model.sets.id_lists import IdLists
from rangecast.model.sets.rowstore import no_rows
from rangecast.model.space import Space

SPACE = Space([Number("x")])


@pytest.mark.parametrize("bound", [1, 30, 1000, 70_000, 1 << 20])
@pytest.mark.parametrize("found", [0, 1, 2, 24, 25, 100, 256, 257, 1000, 5000])
def test_rows_are_sorted(bound, found):
    rng = np.random.default_rng(found)
    for low in (0, max(0, bound - 2 * found)):  # all over the set, and only the newest
        rows = low + rng.permutation(bound - low)[:found].astype(np.int32)
        for given_rows in (rows, np.sort(rows), np.sort(rows)[::-1].copy()):
            out = np.empty(len(rows) + 4, np.int32)
            sort_rows(given_rows.astype(np.int32), bound, out)
            assert out[: len(rows)].tolist() == sorted(rows.tolist())


@given(st.lists(st.integers(0, 400), unique=True), st.integers(0, 401), st.booleans())
def test_ids_go_by_arrival(found, ascending, are_texts):
    rng = random.Random(ascending)
    late = [place + 0.5 for place in range(401 - ascending)]
    rng.shuffle(late)
    arrival = np.argsort(np.argsort([*range(ascending), *late], kind="stable"), kind="stable")
    ids = np.array([f"s{n}" for n in range(401)], object) if are_texts else np.arange(401) * 10**12
    lists = IdLists(no_rows()._replace(ids=ids, arrival=arrival), ascending)
    expected = [ids.tolist()[row] for row in sorted(found, key=lambda row: arrival[row])]
    rows = np.array(found, np.int32)
    assert lists.list(rows) == expected
    assert lists.array(rows).tolist() == expected
    assert rows.tolist() == found


@pytest.mark.parametrize("name", [str, int])
def test_answers_of_an_edited_set_go_by_arrival(name, monkeypatch):
    monkeypatch.setattr(liveset, "RECENT", 32)  # so that there are parts and rebuilds
    rng, engine, there = random.Random(3), Engine(SPACE), {}
    for step in range(1500):
        kind = rng.random()
        if kind < 0.5 or not there:
            there[name(step)] = low = rng.randrange(10)
            engine.subscribe(name(step), f"x >= {low}")
        elif kind < 0.7:
            gone = rng.choice(list(there))
            del there[gone]
            engine.unsubscribe(gone)
        else:
            one = rng.choice(list(there))
            there[one] = low = rng.randrange(10)
            engine.replace(one, f"x >= {low}")
        if step % 100 == 99:
            if step % 200 == 99:
                engine.wait_for_rebuild()
            for value in (0, 4, 10):
                expected = [one for one, low in there.items() if value >= low]
                assert engine.match({"x": value}) == expected
                assert engine.match_ids({"x": value}).tolist() == expected
                assert engine.match_each([{"x": value}, {"x": value}]) == [expected, expected]
                assert engine.match_points(np.array([[float(value)]]))[0] == expected
    assert engine.rebuild_count


def test_answers_hold_no_more_of_their_ids_than_they_should():
    engine = Engine(SPACE)
    engine.subscribe_many({"id": [f"subscription {n}" for n in range(100)], "x_lo": [0.0] * 100})
    one = next(iter(engine))
    before = sys.getrefcount(one)
    for _ in range(10):
        answers = [engine.match({"x": 1.0}) for _ in range(5)]
        assert sys.getrefcount(one) == before + 5
        assert answers[0] == list(engine)
        del answers
    assert sys.getrefcount(one) == before


def test_an_empty_answer_and_the_types_of_arrays():
    engine = Engine(SPACE)
    assert engine.match({"x": 1}) == []
    assert engine.match_ids({"x": 1}).tolist() == []
    engine.subscribe(7, "x > 5")
    assert engine.match_ids({"x": 6}).dtype == np.int64
    texts = Engine(SPACE)
    texts.subscribe("a", "x > 5")
    assert texts.match_ids({"x": 6}).dtype == object


_EDGES = [0, 1, 255, 256, 65_534, 65_535, 65_536, 65_537, 2**31, 2**62, 2**63 - 1]


@given(st.lists(st.sampled_from([*_EDGES, *(-one for one in _EDGES), -(2**63)]), min_size=1))
def test_integers_that_all_sets_share_and_others_are_told_apart(some):
    ids = np.resize(np.array(some, np.int64), 5000)  # enough for the shared ones to be used
    lists = IdLists(no_rows()._replace(ids=ids, arrival=np.arange(5000)), 5000)
    for rows in (np.arange(len(some)), np.arange(5000), np.arange(0, 5000, 7), np.arange(0)):
        answer = lists.list(rows.astype(np.int32))
        assert answer == ids[rows].tolist()
        assert {type(one) for one in answer} <= {int}
        assert lists.array(rows.astype(np.int32)).tolist() == answer


def test_integers_that_all_sets_share_are_held_as_often_as_answers_have_them():
    ids, rows = np.arange(60_000, 66_000), np.arange(6000, dtype=np.int32)
    several = [
        IdLists(no_rows()._replace(ids=ids, arrival=np.arange(6000)), 6000) for _ in range(2)
    ]
    first = [lists.list(rows) for lists in several]
    one = first[0][0]
    assert one is first[1][0]
    before = sys.getrefcount(one)
    for _ in range(10):
        answers = [lists.list(rows) for lists in several]
        assert sys.getrefcount(one) == before + 2
        assert answers == first
        del answers
    assert sys.getrefcount(one) == before


def test_a_small_set_makes_its_own_integers():
    lists = IdLists(no_rows()._replace(ids=np.arange(300, 310), arrival=np.arange(10)), 10)
    rows = np.arange(10, dtype=np.int32)
    assert lists.list(rows) == [*range(300, 310)]
    assert lists.list(rows)[0] is not lists.list(rows)[0]


def test_threads_that_need_the_objects_of_integers_at_once_share_them(monkeypatch):
    """Kernels read them by address: an array that only one thread has would be freed."""
    monkeypatch.setattr(object_list, "_integers", [])
    start, arrays = threading.Barrier(4), []

    def fetch():
        start.wait()
        arrays.append(object_list.integer_objects())

    threads = [threading.Thread(target=fetch) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({array.ctypes.data for array in arrays}) == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_process_may_fork_while_a_thread_makes_the_objects_of_integers(monkeypatch):
    begun, end = threading.Event(), threading.Event()

    class Slow:
        """NumPy in another thread, which hasn't finished."""

        @staticmethod
        def arange(count):
            begun.set()
            end.wait()
            return np.arange(count)

    monkeypatch.setattr(object_list, "_integers", [])
    monkeypatch.setattr(object_list, "np", Slow)
    thread = threading.Thread(target=object_list.integer_objects)
    thread.start()
    begun.wait()
    monkeypatch.setattr(object_list, "np", np)
    child = os.fork()
    if child == 0:
        signal.alarm(30)  # ends the child if it waits for the thread, which it doesn't have
        os._exit(object_list.integer_objects()[7] != 7)
    end.set()
    thread.join()
    assert os.waitpid(child, 0)[1] == 0


def test_a_set_keeps_the_objects_of_integers_that_its_kernels_read(monkeypatch):
    monkeypatch.setattr(object_list, "_integers", [])
    engine = Engine(SPACE)
    engine.subscribe_many({"id": [*range(5_000)], "filter": ["x < 1"] * 5_000})
    assert engine.match({"x": 0}) == [*range(5_000)]
    array = weakref.ref(object_list._integers.pop())
    gc.collect()
    assert array() is not None
    assert engine.match({"x": 0}) == [*range(5_000)]
