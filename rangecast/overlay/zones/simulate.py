"""A seeded simulation of a network by zones: brokers that come, go and fail; a server; subscribers.

    network = ZoneSimulation(board, ((0.0, 0.0), (1.0, 1.0)), seed=1)
    network.add_broker() ...
    network.update("set_value", "a", 0.5)
    network.run_until_quiet()
    network.check()

It owns time and the network: between two brokers frames arrive in order, after random delays; what
a failed broker sent last may be lost, and others notice its failure at different times.
"""

from __future__ import annotations

import copy
import heapq
import random
from collections import Counter, defaultdict
from typing import Any

from rangecast.model.sets.members import Id
from rangecast.model.validation.flags import flag
from rangecast.notify.board import Board
from rangecast.overlay.zones.broker import ZoneBroker
from rangecast.overlay.zones.frames import (
    Deliver,
    Frame,
    FromServer,
    Install,
    JoinThrough,
    Leave,
    LeftNetwork,
    NumberedMessage,
    Paint,
    PeerDown,
    Route,
    Send,
    Spread,
    Start,
    Subscribe,
    Tick,
    ToServer,
    Unsubscribe,
    ZonesLost,
)
from rangecast.overlay.zones.geometry import Box, Point, left_of
from rangecast.overlay.zones.server import Update, ZoneServer


class Subscriber:
    """A subscriber's side: its list, and what it was handed, in order."""

    def __init__(self, interest: Any, number: int):
        self.interest, self.number = copy.deepcopy(interest), number
        self.handed: list[int] = []

    def receive(self, number: int, message: Any) -> bool:
        """Apply a message and return whether it came for the first time; reject a wrong order."""
        if number <= self.number or number in self.handed:
            return False
        if self.handed and number < self.handed[-1]:
            raise AssertionError(f"message {number} came after message {self.handed[-1]}")
        self.handed.append(number)
        self.interest.receive(message)
        return True


class ZoneSimulation:
    """Brokers, a server and subscribers, under one seed."""

    def __init__(
        self,
        board: Board,
        frame: tuple[Point, Point],
        *,
        seed: int = 0,
        by_load: bool = False,
    ):
        """Simulate a network for the interests of a board.

        frame     the lower and upper ends between which interests lie, as points
        by_load   a broker that joins takes half the interests of another one, not half its zone
        """
        self.frame, self.by_load = Box(*frame), flag("by_load", by_load)
        self.random = random.Random(seed)
        self.server = ZoneServer(board)
        self.brokers: dict[int, ZoneBroker] = {}
        self.subscribers = {
            interest: Subscriber(board[interest], -1) for interest in self.server.points
        }
        self.counts: Counter[str] = Counter()
        """Counts by kind: links that messages took, take-overs, repeated messages."""
        self.links: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
        """By the number of a painted message: the overlay links that it took."""
        self.visits: defaultdict[int, list[int]] = defaultdict(list)
        """By the number of a message: the brokers of the zones that it was spread to."""
        self.now = 0.0
        self._heap: list[tuple[float, int, int, Any]] = []
        self._tie = 0
        self._last: dict[tuple[int, int], float] = {}
        self._cut: dict[int, float] = {}
        self._next_broker = 0
        self._wanted: dict[Id, Subscribe] = {}
        self._unwanted: dict[Id, None] = {}
        self._next_tick = 1.0

    # ---- what happens

    def add_broker(self) -> int:
        """Start a broker; the first holds everything, others join where a random point lies."""
        broker, self._next_broker = self._next_broker, self._next_broker + 1
        self.brokers[broker] = ZoneBroker(broker, self.frame, by_load=self.by_load)
        if broker == 0:
            self._give(0, Start())
        else:
            self._ask_to_join(broker)
        return broker

    def leave(self, broker: int) -> None:
        """Make a broker hand over its zones and leave."""
        self._give(broker, Leave())

    def fail(self, broker: int) -> None:
        """Stop a broker at once; some of what it sent last is lost."""
        del self.brokers[broker]
        cut = self._cut[broker] = self.now + self.random.random() * 0.5
        self.counts["failed"] += 1
        for other in self.brokers:
            self._at(cut + self.random.random() * 2, other, PeerDown(broker))

    def update(self, change: str, *message: Any) -> None:
        """Change an object at the server: `change` is the name of the board's function."""
        self._from_server(self.server.handle(Update(change, message)))

    def subscribe(self, interest: Id, *where: Any) -> None:
        """Make a subscriber install an interest, through any broker, until it has its list."""
        self._wanted[interest] = Subscribe(interest, where)
        self._unwanted.pop(interest, None)

    def unsubscribe(self, interest: Id) -> None:
        """Make a subscriber cancel an interest."""
        self.subscribers.pop(interest, None)
        self._wanted.pop(interest, None)
        self._unwanted[interest] = None

    # ---- time

    def run(self, duration: float) -> None:
        """Advance time."""
        end = self.now + duration
        while True:
            due = min(self._next_tick, self._heap[0][0] if self._heap else self._next_tick)
            if due > end:
                break
            self.now = due
            if due == self._next_tick:
                self._next_tick += 1.0
                self._tick()
                continue
            _, _, broker, message = heapq.heappop(self._heap)
            self._give(broker, message)
        self.now = end

    def run_until_quiet(self, limit: int = 400) -> None:
        """Advance time until no message is in flight; an error if that takes too long."""
        for _ in range(limit):
            self.run(1.0)
            if self.is_quiet():
                return
        raise AssertionError(f"not quiet after {limit} ticks")

    def is_quiet(self) -> bool:
        """Return whether all messages arrived, and all zones have an owner and their interests."""
        return (
            self.server.is_quiet
            and not self._wanted
            and not self._unwanted
            and all(
                broker.zones and all(zone.is_ready for zone in broker.zones)
                for broker in self.brokers.values()
            )
            and not self.untiled()
        )

    def _tick(self) -> None:
        for broker in list(self.brokers):
            if broker in self.brokers:
                self._give(broker, Tick())
                if not self._has_home(broker):
                    self._ask_to_join(broker)
        self._from_server(self.server.handle(Tick()))
        for interest in list(self._unwanted):
            if interest in self.server.points:
                self._give(self._any(), ToServer(Unsubscribe(interest)))
            else:
                del self._unwanted[interest]
        for wanted in list(self._wanted.values()):
            self._give(self._any(), ToServer(wanted))

    def _has_home(self, broker: int) -> bool:
        return broker not in self.brokers or bool(self.brokers[broker].zones)

    def _any(self) -> int:
        return self.random.choice(sorted(self.brokers))

    def _ask_to_join(self, broker: int) -> None:
        homes = [name for name in sorted(self.brokers) if self.brokers[name].zones]
        if homes:
            point = tuple(self.random.uniform(a, b) for a, b in zip(*self.frame, strict=True))
            self._give(broker, JoinThrough(self.random.choice(homes), point))

    # ---- the network

    def _at(self, time: float, broker: int, value: Any) -> None:
        self._tie += 1
        heapq.heappush(self._heap, (time, self._tie, broker, value))

    def _give(self, broker: int, value: Any) -> None:
        broker_ = self.brokers.get(broker)
        if broker_ is None:
            if isinstance(value, Frame):  # the broker is gone: the sender finds out
                self._at(self.now + self.random.random(), value.sender, PeerDown(broker))
            return
        if isinstance(value, Frame) and self.now > self._cut.get(value.sender, self.now):
            self.counts["lost with their sender"] += 1
            return
        claimed = sum(not zone.is_ready for zone in broker_.zones)
        self._visit(broker, value)
        for output in broker_.handle(value):
            self._put(broker, output)
        if sum(not zone.is_ready for zone in broker_.zones) > claimed:
            self.counts["taken over"] += 1

    def _visit(self, broker: int, value: Any) -> None:
        match value:
            case Frame(_, Spread(what=NumberedMessage(number=number))):
                self.visits[number].append(broker)
            case Frame(_, Route(target=target, what=NumberedMessage(number=number))):
                if any(zone.box.holds(target) for zone in self.brokers[broker].zones):
                    self.visits[number].append(broker)

    def _put(self, broker: int, output: Any) -> None:
        match output:
            case Send(to, what):
                match what:
                    case Route(what=NumberedMessage(number, what=Paint())):
                        self.links[number].append((broker, to))
                    case Spread(what=NumberedMessage(number, what=Paint())):
                        self.links[number].append((broker, to))
                delay = self.random.uniform(0.01, 0.3)
                arrival = max(self.now + delay, self._last.get((broker, to), 0.0))
                self._last[broker, to] = arrival
                self._at(arrival, to, Frame(broker, what))
            case ToServer(what):
                self._from_server(self.server.handle(what))
            case Deliver(interest, number, what):
                self._deliver(interest, number, what)
            case LeftNetwork():
                del self.brokers[broker]
                self.counts["left"] += 1
            case ZonesLost():
                self.counts["homeless"] += 1

    def _from_server(self, outputs: list[FromServer]) -> None:
        if not outputs:
            return
        homes = [broker for broker in self.brokers.values() if broker.zones]
        at_centre = (home for home in homes if any(z.box.holds(home.centre) for z in home.zones))
        host = next(at_centre, homes[0] if homes else None)
        if host is not None:
            for output in outputs:
                self._give(host.id, output)

    def _deliver(self, interest: Id, number: int, what: Paint | Install) -> None:
        subscriber = self.subscribers.get(interest)
        if isinstance(what, Install):
            if interest in self._wanted or (subscriber and subscriber.number < number):
                self.subscribers[interest] = Subscriber(what.subscriber, number)
                self._wanted.pop(interest, None)
        elif subscriber is not None:
            fresh = subscriber.receive(number, what.message)
            self.counts["delivered" if fresh else "repeated"] += 1

    # ---- what must hold

    def untiled(self) -> list[str]:
        """Return the faults of the tiling: positions that two brokers hold, or none."""
        held = [(zone.box, broker.id) for broker in self.brokers.values() for zone in broker.zones]
        wrong = [
            f"{a} and {b} overlap"
            for at, (first, a) in enumerate(held)
            for second, b in held[:at]
            if first.meets(second)
        ]
        free = left_of(Box.everything(len(self.frame.lo)), [box for box, _ in held])
        return wrong + [f"no broker holds {box}" for box in free]

    def check(self) -> None:
        """Raise AssertionError unless zones tile, interests have one gateway, lists are right."""
        assert not self.untiled(), self.untiled()
        points = self.server.points
        assert set(points) == set(self.subscribers)
        gateways: defaultdict[Id, list[int]] = defaultdict(list)
        for broker in self.brokers.values():
            for interest, kept in broker.interests.items():
                assert kept.point == points[interest], interest
                assert any(zone.box.holds(kept.point) for zone in broker.zones), interest
                gateways[interest].append(broker.id)
        assert set(gateways) == set(points), set(gateways) ^ set(points)
        assert all(len(gateway) == 1 for gateway in gateways.values())
        for interest, subscriber in self.subscribers.items():
            right = self.server.board[interest]
            assert subscriber.interest.best == right.best, interest
