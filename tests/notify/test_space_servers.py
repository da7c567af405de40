"""Servers over several attributes: lists by a plain oracle, and messages whatever the zones are."""

import math
import os
import random
import signal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rangecast import Space
from rangecast.errors import RangecastError, UsageError
from rangecast.model.attributes.base import Number
from rangecast.model.attributes.text import Category
from rangecast.notify import Board, ServerLostError, ServerProcesses, Servers, SpaceQueryCounts
from tests.notify.test_servers import Chance

INF, MOST = math.inf, math.nextafter(math.inf, 0)
NAMES = ("a", "b", "c")


def space_of(d):
    return Space([Number(name) for name in NAMES[:d]])


class Oracle:
    """Objects by name as (value, arrival, name, values); lists by sorting all that lie inside."""

    def __init__(self, objects, boxes, k, *, descending=False):
        self.k, self.sign = k, -1 if descending else 1
        self.objects, self.arrivals = {}, 0
        for name, place, y in objects:
            self.change(name, y, place)
        self.boxes = dict(enumerate(boxes))
        self.lists = {interest: self.best(interest) for interest in self.boxes}

    def change(self, name, y, place=None):
        known = self.objects.get(name)
        if y is None:
            del self.objects[name]
        elif known is None:
            self.objects[name] = (self.sign * y, self.arrivals, name, place)
            self.arrivals += 1
        else:
            self.objects[name] = (self.sign * y, known[1], name, place or known[3])

    def holds(self, interest, place):
        """Return whether a place lies in a box; a value that is missing has no bounds."""
        for (lo, hi), x in zip(self.boxes[interest], place, strict=True):
            if (lo, hi) != (-INF, INF) and (x is None or not lo <= x <= hi):
                return False
        return True

    def best(self, interest):
        inside = sorted(o for o in self.objects.values() if self.holds(interest, o[3]))
        return [o[:3] for o in inside[: self.k]]

    def receive(self, messages):
        """Apply messages to the lists that they reach; return the objects that each got."""
        heard = {interest: [] for interest in self.boxes}
        for message in messages:
            for interest, box in self.boxes.items():
                # bounds as messages have them: half open ones end at the largest numbers
                sides = [
                    s if s == (-INF, INF) else (max(s[0], -MOST), min(s[1], MOST)) for s in box
                ]
                if not message.reaches(*zip(*sides, strict=True)):
                    continue
                heard[interest].append(message.object)
                entries = self.lists[interest]
                entries[:] = [entry for entry in entries if entry[2] != message.object]
                if not message.is_gone:
                    entries.append((self.sign * message.value, message.arrival, message.object))
                entries.sort()
                del entries[self.k :]
        return heard

    def verify(self):
        for interest, entries in self.lists.items():
            assert entries == self.best(interest), self.boxes[interest]


def tables(d, objects, boxes, first=0):
    names, places, ys = zip(*objects, strict=True) if objects else ((), (), ())
    there = {NAMES[j]: [place[j] for place in places] for j in range(d)}
    ids = list(range(first, first + len(boxes)))
    ends = {
        f"{NAMES[j]}_{end}": [None if math.isinf(box[j][i]) else box[j][i] for box in boxes]
        for j in range(d)
        for i, end in enumerate(("lo", "hi"))
    }
    return {"objects": {"id": names, **there, "value": ys}, "interests": {"id": ids, **ends}}


def given_to(change):
    return (*change[:2], dict(zip(NAMES, change[2], strict=False))) if len(change) == 3 else change


ENDS = st.sampled_from([-INF, *[half / 2 for half in range(-1, 10)], INF])
SIDE = st.tuples(ENDS, ENDS).map(sorted).map(tuple).filter(lambda e: e[0] < INF and e[1] > -INF)
VALUES = st.integers(0, 6).map(float)


@st.composite
def worlds(draw, d):
    """Objects and boxes on a small grid: edges, places and values meet all the time."""
    place = st.tuples(*[st.sampled_from([None, 0.0, 1.0, 2.0, 3.0, 4.0])] * d)
    objects = [(n, draw(place), draw(VALUES)) for n in range(draw(st.integers(0, 9)))]
    boxes = draw(st.lists(st.tuples(*[SIDE] * d), max_size=20))
    there, changes = {name for name, _, _ in objects}, []
    for _ in range(draw(st.integers(1, 12))):
        name = draw(st.integers(0, 11))
        kind = draw(st.sampled_from(["set", "set", "set", "move", "remove"]))
        if name not in there or kind == "move":
            changes.append((name, draw(VALUES), draw(place)))
            there.add(name)
        elif kind == "remove":
            changes.append((name, None))
            there.discard(name)
        else:
            changes.append((name, draw(VALUES)))
    return objects, boxes, changes


@pytest.mark.conformance
@given(st.data(), st.integers(1, 3), st.integers(1, 3), st.integers(1, 6), st.integers(0, 99))
def test_lists_are_right_and_messages_do_not_depend_on_zones(data, d, k, number, seed):
    objects, boxes, changes = data.draw(worlds(d))
    options = {
        "space": space_of(d),
        "algorithm": data.draw(st.sampled_from(["dense", "sparse"])),
        "descending": data.draw(st.booleans()),
        **tables(d, objects, boxes),
    }
    zones = {"zone_attribute": data.draw(st.sampled_from([None, *NAMES[:d]]))}
    board, single = Board(k, **options), Servers(k, 1, **zones, **options)
    servers = Servers(k, number, pick=Chance(seed), **zones, **options)
    oracle = Oracle(objects, boxes, k, descending=options["descending"])
    others = Oracle(objects, boxes, k, descending=options["descending"])
    for change in changes:
        moved = len(change) == 3 and change[0] in oracle.objects
        before = {interest: oracle.best(interest) for interest in oracle.boxes}
        messages = servers.update_many([given_to(change)])
        assert messages == single.update_many([given_to(change)])
        oracle.change(*change)
        heard = oracle.receive(messages)
        oracle.verify()
        theirs = list(board.update_many([given_to(change)]))
        assert heard == others.receive(theirs)
        for interest, names in heard.items():
            if moved:
                continue
            assert len(names) <= 2
            assert bool(names) == (before[interest] != oracle.best(interest))
        if options["algorithm"] == "dense":

            def shown(sent):
                return sorted((m.object, m.value, *m.low_from, *m.high_to) for m in sent)

            assert shown(messages) == shown(theirs)
    servers.settle()
    assert sum(servers.sizes) == len(oracle.objects)
    assert servers.walks.queries == single.walks.queries
    assert single.walks.hops == 0


def crowded(seed, number, d, *, algorithm="sparse"):
    """Play a long history that crowds objects together, with edits of interests between."""
    rng = random.Random(seed)
    places = rng.choice([5, 1000])
    k = rng.randint(1, 3)

    def box():
        sides = [sorted(rng.randint(-1, 2 * places) / 2 for _ in range(2)) for _ in range(d)]
        return tuple((-INF, INF) if rng.random() < 0.15 else tuple(side) for side in sides)

    def place(at=0.0):
        return tuple(float(at + rng.randint(0, places // 3)) for _ in range(d))

    objects = [
        (i, tuple(float(rng.randint(0, places)) for _ in range(d)), float(rng.randint(0, 9)))
        for i in range(20)
    ]
    boxes = [box() for _ in range(20)]
    options = {"space": space_of(d), "algorithm": algorithm, **tables(d, objects, boxes)}
    single, oracle = Servers(k, 1, **options), Oracle(objects, boxes, k)
    servers = Servers(k, number, pick=Chance(seed), **options)
    for turn in range(60):
        if turn % 8 == 3:
            new = tables(d, [], [box()], first=100 + turn)["interests"]
            assert servers.subscribe_many(new) == single.subscribe_many(new) == 1
            ends = [(new[f"{name}_lo"][0], new[f"{name}_hi"][0]) for name in NAMES[:d]]
            oracle.boxes[100 + turn] = tuple((-INF, INF) if e == (None, None) else e for e in ends)
            oracle.lists[100 + turn] = oracle.best(100 + turn)
        if turn % 8 == 7:
            gone = rng.choice(sorted(oracle.boxes))
            assert servers.unsubscribe_many([gone]) == single.unsubscribe_many([gone]) == 1
            del oracle.boxes[gone], oracle.lists[gone]
        y, one = float(rng.randint(0, 9)), rng.choice(sorted(oracle.objects))
        crowd = place(places * (turn // 20) // 3)
        change = rng.choice(
            [(one, y), (one, None), (one, y, crowd), *[(1000 + turn, y, crowd)] * 3]
        )
        messages = servers.update_many([given_to(change)])
        assert messages == single.update_many([given_to(change)])
        oracle.change(*change)
        oracle.receive(messages)
        oracle.verify()
    servers.settle()
    return oracle, servers


@pytest.mark.parametrize("number", [3, 8, 40])
@pytest.mark.parametrize("d", [1, 2, 3])
def test_zones_follow_objects(number, d):
    for seed in range(3):
        oracle, servers = crowded(seed, number, d, algorithm="dense" if seed == 2 else "sparse")
        zones = [server.zone for server in servers.servers]
        assert [zone.hi for zone in zones[:-1]] == [zone.lo for zone in zones[1:]]
        assert sum(servers.sizes) == len(oracle.objects)
        xs = [o[3][0] for o in oracle.objects.values()]
        share = max(len(xs) / number, 1.0)
        assert max(servers.sizes) <= max(1.25 * 1.5 * share + 1, *map(xs.count, xs))
        for zone in zones:  # a server has the interests that overlap its zone, and no others
            expected = {
                interest
                for interest, box in oracle.boxes.items()
                if zone.lo < zone.hi and box[0][0] < zone.hi and box[0][1] >= zone.lo
            }
            assert set(zone._ranges) == expected


def test_an_interest_of_several_boxes_is_heard_in_each():
    space = Space([Number("a"), Category("kind", values=["x", "y"])])
    objects = {
        "id": list(range(8)),
        "a": [float(i) for i in range(8)],
        "kind": ["x", "y"] * 4,
        "value": [float(8 - i) for i in range(8)],
    }
    interests = {"id": ["w"], "filter": ["a < 2 and kind = 'x' or a >= 6"]}
    given = {"space": space, "objects": objects, "interests": interests}
    board, servers = Board(2, **given), Servers(2, 4, **given)
    interest = board["w"]
    for change in [(0, 0.5), (7, 9.0), (3, 0.0), (6, None), (1, 0.1, {"kind": "x"}), (0, 20.0)]:
        for message in servers.update_many([change]):
            interest.receive(message)
        board.update_many([change])
        assert [e.object for e in interest.best] == [e.object for e in board["w"].best]


@pytest.mark.parametrize("number", [1, 3])
def test_an_interest_in_objects_without_a_value_hears_of_them(number):
    objects = {"id": [*"abcd"], "a": [None, None, 1.0, None], "b": [1.0, 2.0, 1.0, 3.0]}
    interests = {"id": ["gone"], "filter": ["a is null and b < 5"]}
    given = {"space": space_of(2), "objects": objects | {"value": [1.0, 2.0, 0.0, 3.0]}}
    servers = Servers(1, number, interests=interests, **given)

    def heard(*change):
        return [(message.object, message.value) for message in servers.update_many([change])]

    assert heard("c", 0.5) == []
    assert heard("d", 2.5) == []  # others are better
    assert heard("b", 0.5) == [("b", 0.5)]
    assert heard("b", 9.0) == [("b", 9.0), ("a", 1.0)]
    assert heard("a", 1.5, {"a": 4.0}) == [("a", INF), ("d", 2.5)]


def test_questions_go_no_further_than_interests_need():
    objects = [(i, (float(i), 0.0), float(i % 10)) for i in range(100)]
    whole, narrow = ((0.0, 99.0), (-1.0, 1.0)), ((45.0, 62.0), (-1.0, 1.0))
    options = {"space": space_of(2), **tables(2, objects, [narrow])}
    servers = Servers(1, 10, **options)
    servers.set_value(55, 4.5)  # 54 is better in the same zone, and 60 in the next one
    assert servers.walks == SpaceQueryCounts(queries=2, hops=1, rivals=2)
    servers.set_value(55, -1.0)  # nothing is better: as far as the interest, one zone each way
    assert servers.walks == SpaceQueryCounts(queries=4, hops=1 + 2, rivals=2)
    servers.subscribe_many(tables(2, [], [whole], first=1)["interests"])
    servers.set_value(55, -2.0)  # to both ends
    assert servers.walks == SpaceQueryCounts(queries=6, hops=3 + 9, rivals=2)
    servers.set_value(55, 4.5)  # it falls behind: the best of what is near, on both sides
    assert servers.walks.queries == 8
    assert servers.walks.rivals == 2 + 11  # 54 to 50, 40, 30, 20, 10 and 0; and 60


def test_an_object_without_an_interest_asks_nobody():
    objects = [(i, (float(i), 5.0), 1.0) for i in range(20)]
    options = {"space": space_of(2), **tables(2, objects, [((0.0, 30.0), (0.0, 1.0))])}
    servers = Servers(1, 5, **options)
    assert servers.set_value(7, 0.0) == []
    assert servers.walks == SpaceQueryCounts(0, 0, 0)


def test_sparse_servers_send_about_as_many_messages_as_a_board():
    rng = random.Random(7)
    objects = [(i, (rng.random(), rng.random()), rng.random()) for i in range(200)]
    boxes = [
        tuple(tuple(sorted((rng.random(), rng.random()))) for _ in range(2)) for _ in range(400)
    ]
    options = {"space": space_of(2), **tables(2, objects, boxes)}
    board, servers = Board(3, **options), Servers(3, 5, **options)
    sent = theirs = 0
    for _ in range(60):
        change = [(rng.randrange(200), rng.random())]
        sent, theirs = (
            sent + len(servers.update_many(change)),
            theirs + len(board.update_many(change)),
        )
    assert theirs > 150
    assert sent <= 1.05 * theirs


@pytest.mark.process
def test_processes_send_the_messages_of_the_simulation_also_in_batches():
    rng = random.Random(3)

    def place():
        return tuple(float(rng.randint(0, 20)) for _ in range(2))

    objects = [(i, place(), float(rng.randint(0, 9))) for i in range(24)]
    boxes = [
        tuple(tuple(sorted(side)) for side in zip(place(), place(), strict=True)) for _ in range(30)
    ]
    boxes.append(((-INF, INF), (-INF, INF)))
    options = {"space": space_of(2), "zone_attribute": "b", **tables(2, objects, boxes)}
    simulated, oracle = Servers(2, 3, **options), Oracle(objects, boxes, 2)
    with ServerProcesses(2, 3, **options) as servers:
        for _ in range(15):  # values alone: no zone moves, so all counts are the same
            change = (rng.randrange(24), float(rng.randint(0, 9)))
            messages = servers.update_many([change])
            assert messages == simulated.update_many([change])
            oracle.change(*change)
            oracle.receive(messages)
            oracle.verify()
        assert servers.walks == simulated.walks
        assert servers.work == simulated.work
        assert servers.walks.hops > 0
        for turn in range(8):
            batch = [(rng.randrange(24), float(rng.randint(0, 9))) for _ in range(3)]
            batch += [(100 + turn, 1.0, (5.0, 5.0 + turn / 8)), (100 + turn, 0.5)]
            messages = servers.update_batch([given_to(change) for change in batch])
            assert messages == simulated.update_batch([given_to(change) for change in batch])
            for change in batch:
                oracle.change(*change)
            oracle.receive(messages)
            oracle.verify()
        servers.settle()
        simulated.settle()
        assert sum(servers.sizes) == sum(simulated.sizes) == 32
        os.kill(servers.processes[1].pid, signal.SIGKILL)
        with pytest.raises(ServerLostError, match="server 1 was killed by signal 9"):
            servers.update_many([(name, 30.0) for name in range(24)])


def test_bad_input_is_rejected():
    given = {"space": space_of(2), **tables(2, [(0, (1.0, 1.0), 1.0)], [])}
    servers = Servers(1, 2, **given)
    for wrong, message in [
        (lambda: Servers(1, 2, zone_attribute="a"), "pass space="),
        (lambda: Servers(1, 2, space=space_of(2), zone_attribute="c"), "no attribute 'c'"),
        (lambda: Servers(1, 2, space=space_of(2), epsilon=0.5), "without a space"),
        (lambda: servers.add(1, 5.0, 1.0), "dict of values"),
        (lambda: servers.move(0, {"z": 1.0}, 1.0), "z"),
    ]:
        with pytest.raises((UsageError, RangecastError), match=message):
            wrong()
    assert servers.seq == 0
