"""Brokers without faults, their frames, and what they reject."""

import numpy as np
import pytest

from rangecast import Engine, Integer, Space, String
from rangecast.errors import RangecastError, UsageError
from rangecast.merge import Cells
from rangecast.overlay import Broker, Settings
from rangecast.overlay.broker import ports
from rangecast.overlay.broker.link_state import InFlight
from rangecast.overlay.interest.items import (
    EVERYTHING,
)
from rangecast.overlay.interest.strategies import STRATEGIES
from rangecast.overlay.wire import frames as messages
from tests.support.overlay import SPACE, Net

FIVE = {"a": "b", "b": "acd", "c": "b", "d": "be", "e": "d"}


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_strategy_delivers_what_an_engine_matches(strategy):
    rng = np.random.default_rng(1)
    net, engine, live = Net(FIVE, strategy), Engine(SPACE), {}
    for turn in range(120):
        kind = rng.random() if live else 1
        low = rng.integers(0, 48, 2)
        high = low + rng.integers(0, 16, 2)
        text = f"x between {low[0]} and {high[0]} and y between {low[1]} and {high[1]}"
        one = list(live)[rng.integers(len(live))] if live else None
        if kind < 0.35:
            engine.unsubscribe(one)
            net.do(live.pop(one), ports.Unsubscribe([one]))
        elif kind < 0.5:
            engine.replace(one, text)
            net.do(live[one], ports.Replace({one: text}))
        else:
            live[turn] = "abcde"[rng.integers(5)]
            engine.subscribe(turn, text)
            net.do(live[turn], ports.Subscribe({turn: text}))
        points = rng.integers(0, 64, (3, 2)).astype(float)
        ids = [f"{turn}.{row}" for row in range(3)]
        net.do("abcde"[rng.integers(5)], ports.Publish(points, ids=ids))
        for event, matched in zip(ids, engine.match_points(points), strict=True):
            assert sorted(net.got.get(event, [])) == sorted(matched)
    many = {1000 + row: f"x = {row} and y < {row}" for row in range(1, 40)}
    net.do("c", ports.Subscribe(many))
    net.do("e", ports.Publish(np.array([[7.0, 3.0]]), ids=["last"]))
    assert 1007 in net.got["last"]
    assert not [output for _, output in net.others if isinstance(output, ports.Alarm)]


def test_what_covers_hides_nothing_from_the_link_that_it_came_over():
    net = Net({"a": "b", "b": "a"})
    net.do("a", ports.Subscribe({1: "x < 10"}))
    net.do("b", ports.Subscribe({2: "x < 20"}))
    assert len(net.brokers["b"].links["a"].received.items) == 1
    net.do("b", ports.Publish([{"x": 5, "y": 5}], ids=[0]))
    assert sorted(net.got[0]) == [1, 2]


def test_words_are_numbered_by_each_broker_for_itself():
    spaces = {name: Space([Integer("x"), String("word")]) for name in "abc"}
    net = Net({"a": "b", "b": "ac", "c": "b"}, spaces=spaces, cells=None)
    net.do("a", ports.Subscribe({1: "word = 'up'", 2: "word != 'down' and x > 3"}))
    net.do("c", ports.Subscribe({3: "word in ('down', 'up')", 4: "word is null"}))
    for number, word in enumerate(["up", "down", "else", None]):
        net.do("c", ports.Publish([{"x": 9, "word": word}], ids=[number]))
    assert {event: sorted(ids) for event, ids in net.got.items()} == {
        0: [1, 2, 3],
        1: [3],
        2: [2],
        3: [4],
    }


def test_settled_comes_when_the_last_broker_knows():
    net = Net(FIVE)
    net.do("c", ports.Subscribe({1: "x < 10"}))
    net.do("c", ports.AskPropagated("mine"))
    assert ("c", ports.IsPropagated("mine")) in net.others
    asked = [way for *way, frame in net.sent if isinstance(frame, messages.PropagationQuery)]
    assert sorted(asked) == [["b", "a"], ["b", "d"], ["c", "b"], ["d", "e"]]
    alone = Broker("alone", SPACE)
    assert alone.handle(0, ports.AskPropagated("now")) == [ports.IsPropagated("now")]


def test_a_link_with_another_space_is_rejected_with_both_digests():
    spaces = {"a": SPACE, "b": Space([Integer("x", min=0, max=64), Integer("y", min=0, max=63)])}
    net = Net({"a": "b", "b": "a"}, spaces=spaces)
    closed = [output for _, output in net.others if isinstance(output, ports.Close)]
    digests = [broker._space_digest for broker in net.brokers.values()]
    assert closed
    assert all(digest in closed[0].why for digest in digests)


def test_a_guessed_space_is_that_of_somebody_who_wrote_it_down():
    guessed = Space.infer({"id": ["e"], "x": [1], "y": [2]})
    assert guessed.guesses
    spaces = {"a": guessed, "b": Space(guessed.attributes)}
    net = Net({"a": "b", "b": "a"}, "none", spaces=spaces)
    assert not [output for _, output in net.others if isinstance(output, ports.Close)]


def test_ranges_fall_back_to_boxes_where_cells_differ():
    net = Net({"a": "b", "b": "a"}, "merging")
    net.brokers["c"] = Broker("c", SPACE, strategy="merging", cells=Cells.uniform(SPACE, 3))
    for name, other in ("b", "c"), ("c", "b"), ("b", "c"):
        net.do(name, ports.LinkUp(other))
    net.do("a", ports.Subscribe({1: "x < 10 and y >= 0"}))
    net.do("c", ports.Subscribe({2: "x >= 0 and y < 10"}))
    kinds = {}
    for one, other in ("ab", "ba", "bc", "cb"):
        heard = net.brokers[one].links[other].received.items.values()
        kinds[one + other] = {type(item) for item in heard}
    ranges, boxes = {messages.RangeItem}, {messages.BoxItem}
    assert kinds == {"ab": ranges, "ba": ranges, "bc": boxes, "cb": boxes}
    assert len(net.brokers["c"].links["b"].received.items) == 1
    (told,) = net.brokers["c"].links["b"].received.items.values()
    assert told.boxes == EVERYTHING.boxes  # ranges of other cells: more, never less
    net.do("c", ports.Publish([{"x": 5, "y": 50}], ids=[0]))
    assert net.got == {0: [1]}


def test_more_items_than_a_neighbour_may_be_told_are_everything():
    net = Net(
        {"a": "b", "b": "a"},
        settings=Settings(heartbeat_interval=None, withdraw_delay=0, max_advertised=2),
    )
    for number in range(4):
        net.do("a", ports.Subscribe({number: f"x = {number}"}))
        told = net.brokers["b"].links["a"].received.items
        assert (list(told) == [EVERYTHING.name]) == (number >= 2)
    net.do("a", ports.Unsubscribe([1, 2]))
    assert len(net.brokers["b"].links["a"].received.items) == 2


def test_an_event_that_was_there_before_it_was_sent_makes_room_for_the_next():
    net = Net({"a": "b", "b": "a"})
    link = net.brokers["a"].links["b"]
    link.taken = {"a": 5}
    link.flights.append(InFlight(0, "a", 5, 1, 0))
    link.in_flight = 1
    assert link.confirm({"a": 5}, "a")
    assert link.in_flight == 0
    assert not link.confirm({"a": 5}, "a")


def test_an_event_that_took_too_many_links_stops():
    net = Net(FIVE, settings=Settings(heartbeat_interval=None, withdraw_delay=0, max_hops=2))
    net.do("e", ports.Subscribe({1: "x >= 0"}))
    net.do("b", ports.Publish([{"x": 1}], ids=["near"]))
    net.do("a", ports.Publish([{"x": 1}], ids=["far"]))
    assert list(net.got) == ["near"]
    assert [output.kind for _, output in net.others if isinstance(output, ports.Alarm)] == ["hops"]


def test_a_link_that_closes_a_cycle_is_rejected():
    net = Net({"a": "b", "b": "ac", "c": "b"})
    for name, other in ("a", "c"), ("c", "a"):
        net.do(name, ports.LinkUp(other))
    assert {output.kind for _, output in net.others if isinstance(output, ports.Alarm)} == {"cycle"}
    assert "c" not in net.brokers["a"].links


def test_wrong_arguments_change_nothing():
    broker = Broker("a", SPACE)
    broker.handle(0, ports.Subscribe({1: "x < 5"}))
    for wrong in (
        ports.Subscribe({1: "x < 6"}),
        ports.Subscribe({2: "z < 6"}),
        ports.Replace({3: "x < 6"}),
        ports.Unsubscribe([4]),
        ports.Unsubscribe("1"),
        ports.Publish([{"x": 1}], ids=[1, 2]),
        ports.Publish([{"x": 1}], ids=[1.5]),
        ports.Publish([{"x": 1}], ids=[1 << 70]),
        ports.Publish([{"x": 1}], priorities=[float("nan")]),
        ports.LinkUp(""),
    ):
        with pytest.raises(RangecastError):
            broker.handle(0, wrong)
    (output,) = broker.handle(0, ports.Publish([{"x": 1}]))
    delivered = broker.handle(0, ports.Durable(1))
    assert output.block.ids == [0]
    assert [one.matches for one in delivered] == [[[1]]]
    for options in (
        {"strategy": "all"},
        {"strategy": "merging"},
        {"incarnation": 0},
        {"cover_index": "all"},
        {"cells": Cells.uniform(Space([*SPACE, Integer("z", min=0, max=1)]), 2)},
        {"name": ""},
        {"name": "a" * 201},
    ):
        with pytest.raises(UsageError):
            Broker(**{"name": "a", "space": SPACE} | options)
    for wrong in (
        {"max_items": 0},
        {"window": 0},
        {"heartbeat_interval": 0},
        {"withdraw_delay": -1},
    ):
        with pytest.raises(UsageError, match=next(iter(wrong))):
            Settings(**wrong)


def test_subscriptions_that_come_and_go_leave_nothing():
    broker = Broker("a", SPACE)
    for number in range(50):
        broker.handle(0, ports.Subscribe({number: "x < 5"}))
        broker.handle(0, ports.Unsubscribe([number]))
    assert not broker._clients._late
