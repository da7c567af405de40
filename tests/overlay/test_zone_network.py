"""Brokers of zones that come, go and fail while messages are under way."""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np
import pytest

from rangecast.model.attributes.base import Number
from rangecast.model.attributes.numbers import MAX
from rangecast.model.space import Space
from rangecast.notify.board import Board
from rangecast.overlay.zones.broker import ZoneBroker
from rangecast.overlay.zones.frames import (
    DeliveryAck,
    Frame,
    GatewayInterest,
    InterestsReply,
    InterestsRequest,
    NumberedMessage,
    Route,
    Send,
    Subscribe,
    Tick,
    ToServer,
    YieldedClaims,
    ZoneClaim,
)
from rangecast.overlay.zones.geometry import Box
from rangecast.overlay.zones.server import Update, ZoneServer
from rangecast.overlay.zones.simulate import ZoneSimulation

OBJECTS, INTERESTS = 12, 30


class Story:
    """A seeded history of a network: over one attribute, or over a space of two.

    With `upper`, interests have no lower bound on the second: zones have three dimensions.
    Some ends of interests are open. Over a space, objects lack some values, and some interests
    don't mention an attribute, or ask for objects that lack it.
    """

    def __init__(
        self,
        seed: int,
        attributes: int = 1,
        *,
        by_load: bool = False,
        upper: bool = False,
        algorithm: str = "sparse",
    ):
        self.rng = rng = random.Random(seed)
        self.attributes, self.upper = attributes, upper
        names = ("position",) if attributes == 1 else ("x", "z")
        objects: dict[str, Any] = {"id": list(range(OBJECTS))}
        for column in (*names, "value"):
            objects[column] = [rng.random() for _ in range(OBJECTS)]
        for column in names if attributes > 1 else ():
            objects[column][rng.randrange(OBJECTS)] = None
        space = None if attributes == 1 else Space([Number(name) for name in names])
        options: dict[str, Any] = {
            "upper_bound_attribute": "z" if upper else None,
            "algorithm": algorithm,
        }
        board = Board(3, space=space, objects=objects, **options)
        for interest in range(INTERESTS):
            board.subscribe(interest, *self.where())
        sides = 2 * attributes - upper
        frame = Box((0.0,) * sides, (1.0,) * sides)
        self.network = ZoneSimulation(board, frame, seed=seed, by_load=by_load)
        self.next = INTERESTS

    def where(self) -> tuple[Any, ...]:
        """Draw where an interest lies, as `Board.subscribe` takes it; a quarter of ends is open."""
        ends = [
            [None if self.rng.random() < 0.25 else end for end in sorted(self._two())]
            for _ in range(self.attributes)
        ]
        if self.attributes == 1:
            return tuple(ends[0])
        if self.upper:
            ends[1][0] = None
        parts = ["true"]
        for name, (low, high) in zip("xz", ends, strict=True):
            dice = self.rng.random()
            if dice < 0.1 and not (self.upper and name == "z"):
                parts.append(f"{name} is null")
            elif dice < 0.9:
                parts += [f"{name} >= {low}"] * (low is not None)
                parts += [f"{name} <= {high}"] * (high is not None)
        return (" and ".join(parts[1:] or parts),)

    def _two(self) -> tuple[float, float]:
        return self.rng.random(), self.rng.random()

    def _moved(self) -> dict[str, float | None]:
        """Draw new values of some attributes; None takes one away."""
        some = self.rng.sample("xz", self.rng.choice([1, 2]))
        return {name: None if self.rng.random() < 0.3 else self.rng.random() for name in some}

    def grow(self, brokers: int) -> None:
        for _ in range(brokers):
            self.network.add_broker()
            self.network.run(self.rng.random() * 3)

    def step(self) -> None:
        """Do one thing, while the last ones may still be under way."""
        rng, network = self.rng, self.network
        dice = rng.random()
        if dice < 0.4:
            network.update("set_value", rng.randrange(OBJECTS), rng.random())
        elif dice < 0.5:
            place = rng.random() if self.attributes == 1 else self._moved()
            network.update("move", rng.randrange(OBJECTS), place)
        elif dice < 0.6:
            network.subscribe(self.next, *self.where())
            self.next += 1
        elif dice < 0.68 and network.subscribers:
            network.unsubscribe(rng.choice(list(network.subscribers)))
        elif dice < 0.78:
            network.add_broker()
        elif dice < 0.86:
            network.leave(rng.choice(sorted(network.brokers)))
        elif dice < 0.94 and len(network.brokers) > 3:
            network.fail(rng.choice(sorted(network.brokers)))
        network.run(rng.random() * 2)


@pytest.mark.parametrize(
    ("seed", "attributes", "by_load", "upper"),
    [
        (1, 1, False, False),
        (2, 1, True, False),
        (125, 1, True, False),
        (3, 2, True, False),
        (4, 2, False, True),
    ],
)
def test_all_is_well_after_joins_leaves_and_failures(
    seed: int, attributes: int, by_load: bool, upper: bool
) -> None:
    story = Story(seed, attributes, by_load=by_load, upper=upper)
    story.grow(8 if attributes == 1 else 6)
    for _ in range(50 if attributes == 1 else 25):
        story.step()
    story.network.run_until_quiet()
    story.network.check()
    counts = story.network.counts
    assert all(counts[what] for what in ("failed", "left", "taken over", "delivered"))


def test_neighbours_that_fail_together_lose_nothing() -> None:
    story = Story(7)
    story.grow(16)
    network = story.network
    network.run_until_quiet()
    lost = max(network.brokers.values(), key=lambda one: len(one.around))
    for broker in [lost.id, *lost.around]:
        if len(network.brokers) > 2:
            network.fail(broker)
    for number in range(20):
        network.update("set_value", number % OBJECTS, story.rng.random())
    network.run_until_quiet()
    network.check()


def test_a_quiet_network_sends_a_message_to_exactly_the_zones_that_it_meets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    boxes: dict[int, Box] = {}
    add = ZoneServer._add

    def noted(self: ZoneServer, box: Box, what: Any) -> None:
        boxes[self._next] = box
        add(self, box, what)

    monkeypatch.setattr(ZoneServer, "_add", noted)
    story = Story(11)
    story.grow(12)
    network = story.network
    network.run_until_quiet()
    server, sent = network.server, 0
    for _ in range(30):
        network.visits.clear()
        boxes.clear()
        first = {name: len(one.handed) for name, one in network.subscribers.items()}
        network.update("set_value", story.rng.randrange(OBJECTS), story.rng.random())
        network.run_until_quiet()
        for number, box in boxes.items():
            meant = [
                one.id
                for one in network.brokers.values()
                for zone in one.zones
                if zone.box.meets(box)
            ]
            visited = network.visits[number]
            host = [one for one in meant if one not in visited]  # the server's own zone: no frame
            assert sorted(visited + host) == sorted(meant)
            assert len(host) <= 1
            sent += 1
        for name, one in network.subscribers.items():
            wanted = [n for n, box in boxes.items() if box.holds(server.points[name])]
            assert one.handed[first[name] :] == wanted
    assert sent > 30
    assert not network.counts["repeated"]


def test_the_same_seed_is_the_same_history() -> None:
    def history() -> tuple[Any, Any]:
        story = Story(5)
        story.grow(5)
        for _ in range(20):
            story.step()
        story.network.run_until_quiet()
        return story.network.counts, story.network.links

    assert history() == history()


def test_a_broker_that_answers_before_it_has_its_interests_is_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    take = ZoneBroker._take

    def hasty(self: ZoneBroker, zone: ZoneClaim, given: NumberedMessage) -> None:
        self.zones = [ZoneClaim(one.box, one.epoch, True, one.known) for one in self.zones]
        take(self, zone, given)

    def play() -> None:
        for seed in range(20):
            story = Story(seed)
            story.grow(6)
            for _ in range(30):
                story.step()
            story.network.run_until_quiet()
            story.network.check()

    monkeypatch.setattr(ZoneBroker, "_take", hasty)
    with pytest.raises(AssertionError):
        play()


def test_the_winner_of_a_claim_hears_who_answered_before_and_asks_for_the_interests() -> None:
    frame = Box((0.0, 0.0), (1.0, 1.0))
    old, new = ZoneBroker(0, frame), ZoneBroker(1, frame)
    left, right = Box.everything(2).cut(0, 0.5)
    old.zones, new.zones = [ZoneClaim(Box.everything(2), 5)], [ZoneClaim(right, 7)]
    new.interests["gone"] = GatewayInterest((0.6, 0.7), 1, 1)
    told = [one.what for one in old.handle(Frame(1, new._announcement())) if isinstance(one, Send)]
    assert [zone.box for zone in old.zones] == [left]
    assert YieldedClaims((right,)) in told
    for what in told:
        new.handle(Frame(0, what))
    assert not new.zones[0].is_ready
    assert ToServer(InterestsRequest(right)) in new.handle(Tick())
    filled = InterestsReply(right, 9, (("here", (0.8, 0.9)),))
    new.handle(Frame(0, Route((0.6, 0.7), (0.6, 0.7), filled)))
    assert new.zones[0].is_ready
    assert set(new.interests) == {"here"}


def test_a_server_that_waits_for_nothing_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def hasty(self: ZoneServer) -> None:
        self._ready.clear()
        for one in self._pending.values():
            if not one.is_sent:
                one.is_sent = True
                self._send(one)

    def play() -> None:
        for seed in range(20):
            story = Story(seed)
            story.grow(10)
            story.network.run_until_quiet()
            for number in range(60):
                story.network.update("set_value", number % OBJECTS, story.rng.random())
            story.network.run_until_quiet()
            story.network.check()

    monkeypatch.setattr(ZoneServer, "_send_ready", hasty)
    with pytest.raises(AssertionError):
        play()


def test_an_open_end_that_no_message_reaches_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    point_of = ZoneServer._point_of

    def endless(self: ZoneServer, region: Any) -> Any:
        point = point_of(self, region)
        return tuple(math.copysign(math.inf, end) if abs(end) == MAX else end for end in point)

    def play() -> None:
        for seed in range(5):
            story = Story(seed)
            story.grow(4)
            for _ in range(20):
                story.step()
            story.network.run_until_quiet()
            story.network.check()

    monkeypatch.setattr(ZoneServer, "_point_of", endless)
    with pytest.raises(AssertionError):
        play()


@pytest.mark.parametrize(
    "where", [(), (None, None), (0.2,), (None, 0.7), (-MAX, 0.7), (0.2, MAX), (0.2, 0.7)]
)
def test_an_interest_subscribed_through_the_network_hears_of_changes(where: Any) -> None:
    board = Board(1, objects={"id": ["a", "b"], "position": [0.3, 0.6], "value": [5.0, 7.0]})
    network = ZoneSimulation(board, ((0.0, 0.0), (1.0, 1.0)), seed=1)
    network.add_broker()
    network.add_broker()
    network.run_until_quiet()
    network.subscribe("mine", *where)
    network.run_until_quiet()
    network.update("set_value", "b", 2.0)
    network.run_until_quiet()
    network.check()
    assert [entry.object for entry in network.subscribers["mine"].interest.best] == ["b"]


@pytest.mark.parametrize("brokers", [1, 2, 5])
def test_brokers_that_leave_while_nobody_else_is_there_give_way_to_one_that_joins(
    brokers: int,
) -> None:
    story = Story(3)
    story.grow(brokers)
    network = story.network
    network.run_until_quiet()
    for broker in range(brokers):
        network.leave(broker)
    network.run(30)
    assert len(network.brokers) == 1  # nobody else can take its zones: it stays
    late = network.add_broker()
    network.run_until_quiet()
    assert list(network.brokers) == [late]
    for _ in range(3):
        network.add_broker()
    network.update("set_value", 1, 0.0)
    network.run_until_quiet()
    network.check()


def test_what_a_message_waits_for_is_worked_out_once() -> None:
    story = Story(2016, 2, algorithm="dense")
    server, rng = story.network.server, story.rng
    under_way: dict[int, NumberedMessage] = {}

    def take(outputs: list[Any]) -> None:
        under_way.update((one.what.number, one.what) for one in outputs)

    while len(server._pending) < 300:
        take(server.handle(Update("set_value", (rng.randrange(OBJECTS), rng.random()))))
    messages, compared = len(server._pending), server.comparisons
    assert len(under_way) < messages
    assert compared <= messages**2 / 2
    earlier: list[tuple[int, Box]] = [(one.number, one.box) for one in server._pending.values()]
    while under_way:
        number = rng.choice(list(under_way))
        sent = under_way.pop(number)
        before = set(server._pending)
        take(server.handle(DeliveryAck(number, sent.box, 0)))
        assert before - set(server._pending) == {number}
        for late in rng.sample(list(under_way), min(3, len(under_way))):
            box = under_way[late].box
            blocking = [n for n, b in earlier if n < late and b.meets(box)]
            assert not set(blocking) & set(server._pending)
    assert server.is_quiet
    assert server.comparisons == compared


def test_an_interest_of_several_boxes_is_rejected() -> None:
    space = Space([Number("x")])
    objects = {"id": [1], "x": [0.5], "value": [1.0]}
    server = ZoneServer(Board(1, space=space, objects=objects))
    assert server.handle(Subscribe("mine", ("x < 0.1 or x > 0.9",))) == []
    assert server.rejected == {"interests that can't be": 1}
    assert "mine" not in server.board
    assert "mine" not in server.points


@pytest.mark.parametrize(
    "wrong",
    [
        Subscribe("b", (0.2, 0.1)),
        Subscribe("b", ("low", 1)),
        Subscribe("b", (float("nan"), 1)),
        Subscribe("b", (0.1, 0.2, 0.3)),
        Subscribe("b", (0.1, 0.2), 0),
        Subscribe("b", (0.1, 0.2), 99),
        Subscribe("b", (0.1, 0.2), "many"),
        Subscribe(7, (0.1, 0.2)),
        Subscribe("a", (0.1, 0.3)),
        Subscribe("a", (0.1, 0.2), 1),
    ],
)
def test_what_brokers_ask_wrongly_is_rejected_and_counted(wrong) -> None:
    server = ZoneServer(Board(2, objects={"id": [1], "position": [0.5], "value": [1.0]}))
    assert len(server.handle(Subscribe("a", (0.1, 0.2)))) == 1
    server.handle(wrong)
    assert server.rejected.total() == 1
    assert server.points == {"a": (0.1, 0.2)}
    assert [server.board["a"].lo, server.board["a"].hi, server.board["a"].k] == [0.1, 0.2, 2]
    again = len(server._pending)
    server.handle(Subscribe("a", (0.1, 0.2)))
    assert len(server._pending) == again + 1


def test_the_rectangle_of_a_message_is_what_it_reaches() -> None:
    board = Board(
        2, objects={"id": [1, 2], "position": [0.3, 0.6], "value": [0.5, 0.4]}, algorithm="dense"
    )
    messages = board.set_value(1, 0.1)
    rng = random.Random(1)
    assert len(messages)
    lows, highs = np.hsplit(messages.bounds, 2)
    for message, lo, hi in zip(messages, lows.tolist(), highs.tolist(), strict=True):
        box = Box(tuple(lo), tuple(hi))
        for point in (box.lo, box.hi):
            assert message.reaches(*point)
        for _ in range(200):
            point = (rng.random(), rng.random())
            assert box.holds(point) == message.reaches(*point)
