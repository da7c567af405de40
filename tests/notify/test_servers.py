"""Many servers: the messages of one board, however their own messages interleave."""

import itertools
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rangecast.errors import UsageError
from rangecast.notify.board import Board
from rangecast.notify.servers.servers import Servers
from rangecast.notify.servers.wire import Ask, FirstK, Handover, MinY
from tests.support.notify_model import Model, Receivers, boards, changes

MOST = 50_000
"""Messages between servers in a test: many more say that they never come to rest."""


def columns(objects, interests):
    ids, xs, ys = zip(*objects, strict=True) if objects else ((), (), ())
    los, his = zip(*interests, strict=True) if interests else ((), ())
    ranges = {"id": list(range(len(los))), "position_lo": los, "position_hi": his}
    return {"objects": {"id": ids, "position": xs, "value": ys}, "interests": ranges}


class Chance:
    """Picks links at random, some of them hardly ever; and counts."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.picked = 0

    def __call__(self, links):
        self.picked += 1
        assert self.picked < MOST
        slow = [link for link in links if hash(link) % 3]
        return self.random.choice(slow if slow and self.random.random() < 0.9 else links)


@pytest.mark.conformance
@given(st.data(), st.integers(1, 4), st.integers(1, 6), st.integers(0, 99))
def test_servers_send_the_messages_of_one_board(data, k, number, seed):
    given = columns(*data.draw(boards()))
    options = {
        "algorithm": data.draw(st.sampled_from(["dense", "sparse"])),
        "epsilon": data.draw(st.sampled_from([None, None, 0.5])),
        "descending": data.draw(st.booleans()),
    }
    board = Board(k, **given, **options)
    servers = Servers(k, number, pick=Chance(seed), **given, **options)
    there = list(zip(*given["objects"].values(), strict=True))
    for change in data.draw(changes(there, most=25)):
        assert servers.update_many([change]) == list(board.update_many([change]))
    servers.settle()
    assert sum(servers.sizes) == len(board.objects)
    assert servers.work[:3] == board.work[:3]  # probes depend on how interests lie in memory


def history(seed, number, *, edits=True):
    """Play a long history that crowds objects together, to servers and to one board."""
    rng = random.Random(seed)
    places = rng.choice([6, 1000])
    k, options = rng.randint(1, 4), {"algorithm": rng.choice(["dense", "sparse", "sparse"])}

    def ends():
        return sorted(rng.randint(-1, 2 * places) / 2 for _ in range(2))

    objects = [(i, float(rng.randint(0, places)), float(rng.randint(0, 9))) for i in range(20)]
    given = columns(objects, [ends() for _ in range(20)])
    board, chance = Board(k, **given, **options), Chance(seed)
    servers = Servers(k, number, pick=chance, **given, **options)
    for turn in range(60):
        if edits and turn % 8 == 3:
            lo, hi = ends()
            board.subscribe(100 + turn, lo, hi)
            servers.subscribe_many({"id": [100 + turn], "position_lo": [lo], "position_hi": [hi]})
        if edits and turn % 8 == 7:
            gone = rng.choice(list(board))
            board.unsubscribe(gone)
            servers.unsubscribe_many([gone])
        crowd = places * (turn // 20) / 3 + rng.randint(0, places // 3)
        y, one = float(rng.randint(0, 9)), rng.choice(list(board.objects))
        change = rng.choice(
            [(one, y), (one, None), (one, y, crowd), *[(1000 + turn, y, crowd)] * 3]
        )
        assert servers.update_many([change]) == list(board.update_many([change]))
    servers.settle()
    assert servers.work[:3] == board.work[:3]
    return board, servers


@pytest.mark.parametrize("number", [1, 3, 8, 40])
def test_zones_follow_objects(number):
    for seed in range(6):
        board, servers = history(seed, number)
        zones = [server.zone for server in servers.servers]
        assert [zone.hi for zone in zones[:-1]] == [zone.lo for zone in zones[1:]]
        fullest = max(servers.sizes)
        crowd = max(len(board.best(x, x, k=1000)) for x in board.table()["position"].to_pylist())
        share = max(len(board.objects) / number, 1.0)
        assert fullest <= max(1.25 * 1.5 * share + 1, crowd)


@pytest.mark.conformance
@given(st.data(), st.integers(1, 4), st.integers(1, 4))
def test_batches_keep_lists_right_and_never_send_more(data, k, number):
    objects, interests = data.draw(boards())
    given = columns(objects, interests)
    options = {"algorithm": data.draw(st.sampled_from(["dense", "sparse"]))}
    one_by_one, batches = (Servers(k, number, **given, **options) for _ in range(2))
    model = Model(objects)
    receivers = Receivers(model, interests, k)
    edits = data.draw(changes(objects, most=20))
    repeated = [change for change in edits for _ in range(data.draw(st.integers(1, 3)))]
    # Of repetitions, all but the last have other values, which the last one replaces.
    row = [
        change if follows != change or change[1] is None else (change[0], 7.0, *change[2:])
        for change, follows in itertools.pairwise([*repeated, None])
    ]
    row = [change for change, follows in itertools.pairwise([*row, None]) if change != follows]
    size = data.draw(st.integers(1, 8))
    for begin in range(0, len(row), size):
        batch = row[begin : begin + size]
        messages = batches.update_batch(batch)
        assert len(messages) <= len(one_by_one.update_many(batch))
        for change in batch:
            model.change(*change)
        receivers.take(messages)
        receivers.verify(model)


def test_a_batch_makes_only_the_last_of_changes_of_one_object_that_follow_one_another():
    given = columns([("a", 1.0, 5.0), ("b", 2.0, 3.0)], [(0.0, 9.0)])
    servers = Servers(1, 2, **given)
    batch = [("a", 1.0), ("a", 2.0), ("b", 9.0), ("a", 8.0), ("a", None), ("c", 5.0, 3.0)]
    messages = servers.update_batch([*batch, ("c", 4.0)])
    assert [(one.object, one.value) for one in messages] == [
        ("a", 2.0),
        ("a", float("inf")),
        ("b", 9.0),
        ("c", 4.0),
    ]
    assert servers.seq == 4


def test_the_same_order_gives_the_same_servers():
    one, other = (history(5, 4)[1] for _ in range(2))
    assert one.sizes == other.sizes
    assert one.walks == other.walks
    assert [server.zone.lo for server in one.servers] == [s.zone.lo for s in other.servers]


def test_a_question_follows_a_run_that_is_handed_over():
    """It comes to a server that has just given away the place it asks about."""
    objects = [(i, float(i), 10.0 - i) for i in range(6)]
    given = columns(objects, [(-1.0, 99.0), (0.0, 3.5), (2.0, 5.0)])
    board, seen = Board(2, **given), []
    servers = Servers(2, 2, pick=max, **given)  # what the first server says comes late
    hand = servers._hand
    servers._hand = lambda to, one: (seen.append((to, type(one))), hand(to, one))
    for i in range(6, 16):
        assert servers.add(i, 0.5 + i / 100, 20.0) == list(board.add(i, 0.5 + i / 100, 20.0))
    (waiting,) = servers._links.values()
    assert Handover in {type(one) for _, one in waiting}
    seen.clear()
    assert servers.set_value(5, 6.5) == list(board.set_value(5, 6.5))
    asked = seen.index((0, FirstK))
    assert (1, Handover) not in seen[:asked]
    assert seen[asked:].index((1, Handover)) < seen[asked:].index((1, FirstK))
    assert servers.set_value(5, 50.0) == list(board.set_value(5, 50.0))
    assert (0, MinY) in seen


def test_neighbours_that_both_have_too_many_take_turns():
    """Else each would move the border at once, and both runs would be nobody's."""
    objects = [(i, 10.0 * (i // 2) + 9 * (i % 2), 0.0) for i in range(8)]
    given = columns(objects, [(0.0, 40.0), (3.0, 15.0)])
    board, servers = Board(1, **given), Servers(1, 4, **given)
    new = itertools.count(10)
    for zone, link, kind in [(0, (0, 1), Handover), (1, (1, 0), Ask)]:
        while kind not in {type(one) for _, one in servers._links.get(link, ())}:
            i = next(new)  # all that is asked is answered in the zone
            x = 10.0 * zone + i / 10
            assert servers.add(i, x, 5.0) == list(board.add(i, x, 5.0))
    servers.settle()
    assert sum(servers.sizes) == len(board.objects)
    for i in range(10, next(new)):
        assert servers.set_value(i, -i) == list(board.set_value(i, -i))


def test_questions_go_no_further_than_they_must():
    objects = [(i, float(i), float(i % 10)) for i in range(100)]
    given = columns(objects, [(0.0, 99.0)])
    servers = Servers(1, 10, algorithm="dense", **given)
    servers.set_value(55, 4.5)  # a better one is next to it in the west, and in the next zone
    assert servers.walks == (2, 1, 0, 0)
    servers.set_value(50, -1.0)  # nothing is better: to both ends
    assert servers.walks == (4, 10, 0, 0)
    servers.set_value(50, -0.5)  # and nothing comes next
    assert servers.walks == (6, 19, 1, 9)


def test_nothing_lies_east_of_the_largest_number():
    largest = np.finfo(float).max
    given = columns([("a", largest, 1.0), ("b", 0.0, 2.0)], [(-1.0, None)])
    servers, board = Servers(1, 2, **given), Board(1, **given)
    for y in (3.0, 0.5):
        assert servers.set_value("a", y) == list(board.set_value("a", y))


def test_bad_input_is_rejected_and_changes_nothing():
    given = columns([("a", 1.0, 1.0), ("b", 2.0, 2.0)], [(0.0, 5.0)])
    servers = Servers(1, 2, **given)
    for wrong, message in [
        (lambda: servers.set_value("c", 1.0), "no object 'c'"),
        (lambda: servers.add("a", 1.0, 1.0), "already exists"),
        (lambda: servers.set_value("a", float("nan")), "value"),
        (lambda: servers.move("a", float("inf"), 0.0), "position"),
        (lambda: servers.unsubscribe_many([7]), "7"),
        (lambda: servers.unsubscribe_many("0"), "put a single id into a list"),
        (lambda: Servers(1, 0), "servers"),
        (lambda: Servers(1, 2, algorithm="dens"), "dense"),
    ]:
        with pytest.raises(UsageError, match=message):
            wrong()
    assert servers.seq == 0
    assert [m.object for m in servers.set_value("b", 0.0)] == ["b"]
