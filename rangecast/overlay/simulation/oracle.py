"""Oracle: what a network must and may deliver, by one global `Engine` and the times.

A pair of an event and a subscription *must* be delivered if every broker knew of the subscription
(it had propagated) when the event was accepted, and if the subscription is unchanged until then.
A pair *may* be delivered if the subscription is there, with a filter that matches the event, when
it is. Deliveries lie between the two; once faults have healed, every pair that must be delivered
is.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple

from rangecast.engine import Engine
from rangecast.kernels.arrays import F64
from rangecast.model.sets.members import Id
from rangecast.model.space import Space


class Event(NamedTuple):
    """An event, by a unique id: numbers could be used twice."""

    origin: str
    id: int


class Oracle:
    """Verifies every delivery as it happens, and at the end that none is missing."""

    def __init__(self, space: Space):
        self.space = space
        self._engine = Engine(space)
        self._broker: dict[int, str] = {}
        """Broker of each live subscription."""
        self._propagated: dict[int, None] = {}
        self._parts: list[list[str]] = []
        """Brokers of each part while the network is partitioned."""
        self._within: dict[int, list[str]] = {}
        """Brokers that surely know a subscription, if not all do."""
        self._doubted: dict[str, None] = {}
        """Brokers whose answers about propagation may be wrong."""
        self._points: dict[Event, tuple[F64, dict[str, str | None]]] = {}
        self._missing: dict[tuple[Event, int], None] = {}
        self._last: dict[tuple[int, str], int] = {}
        """By subscription and origin: the number of the last event."""
        self.wrong: list[str] = []
        """Violations of guarantees."""
        self.delivered = 0

    def subscribed(self, subscription: int, broker: str, filter: Any) -> None:  # noqa: A002
        """Record that a client subscribes."""
        self._engine.subscribe(subscription, filter)
        self._broker[subscription] = broker

    def replaced(self, subscription: int, filter: Any) -> None:  # noqa: A002
        """Record that a client replaces its filter: what the old one was due becomes optional."""
        self._engine.replace(subscription, filter)
        self._forget(subscription)

    def unsubscribed(self, subscription: int) -> None:
        """Record that a client unsubscribes."""
        self._engine.unsubscribe(subscription)
        del self._broker[subscription]
        self._forget(subscription)

    def propagated(self, subscription: int) -> None:
        """Record that every broker knows a subscription; in a partition, those of its part."""
        if self._broker[subscription] in self._doubted:
            return
        self._propagated[subscription] = None
        self._within.pop(subscription, None)
        for part in self._parts:
            if self._broker[subscription] in part:
                self._within[subscription] = part

    def is_propagated(self, subscription: int) -> bool:
        """Return whether every broker knows a subscription."""
        return subscription in self._propagated and subscription not in self._within

    def parted(self, parts: list[list[str]]) -> None:
        """Record a partition: events in transit between the parts may be lost."""
        self._parts = parts
        for key in self._propagated:
            self.propagated(key)
        self._missing = {
            (event, key): None
            for event, key in self._missing
            if event.origin in self._within.get(key, [event.origin])
        }

    def joined(self) -> None:
        """Record that a partition has ended; what propagated in one part must propagate again."""
        self._parts = []

    def accepted(self, origin: str, name: int, point: F64, words: dict[str, str | None]) -> None:
        """Record that an event is on the disk of its origin."""
        event = Event(origin, name)
        if event in self._points:
            return  # said again after a crash
        self._points[event] = point, words
        for match in self._matches(event):
            if match in self._propagated and origin in self._within.get(int(match), [origin]):
                self._missing[event, int(match)] = None

    def take(self, broker: str, event: Event, number: int, subscription: int) -> None:
        """Verify one delivery to a client of a broker; the event has this number at its origin."""
        self.delivered += 1
        origin = event.origin
        what = f"{origin}#{number} to {subscription} at {broker}"
        if event not in self._points:
            self.wrong.append(f"S2: {what}, which no client published")
            return
        if self._broker.get(subscription) != broker:
            self.wrong.append(f"S2: {what}, which isn't there")
        elif subscription not in self._matches(event):
            self.wrong.append(f"S2: {what}, which doesn't want it")
        last = self._last.get((subscription, origin), 0)
        if number <= last:
            self.wrong.append(f"S3: {what}, after #{last}")
        self._last[subscription, origin] = number
        self._missing.pop((event, subscription), None)

    def drop(self, events: Collection[Event], brokers: Collection[str]) -> None:
        """Record that clients of some brokers may miss events that a link or a disk loses."""
        for pair in [*self._missing]:
            if pair[0] in events and self._broker[pair[1]] in brokers:
                del self._missing[pair]

    def report_loss(self, broker: str) -> None:
        """Record that a broker and its clients know about events lost in transit."""
        self._missing = {pair: None for pair in self._missing if self._broker[pair[1]] != broker}

    def restored(self, broker: str) -> None:
        """Record a broker restored from an older disk: its clients may get events again."""
        self._last = {
            (id_, by): at for (id_, by), at in self._last.items() if self._broker.get(id_) != broker
        }

    def doubt(self, brokers: Collection[str]) -> None:
        """Record that interest of these brokers' clients may not have propagated."""
        self._doubted |= dict.fromkeys(brokers)
        for id_, at in self._broker.items():
            if at in brokers:
                self._forget(id_)

    def trust(self) -> None:
        """Believe again what brokers report as propagated (see `doubt`)."""
        self._doubted.clear()

    def lost(self) -> list[str]:
        """Return the required deliveries that are missing."""
        return [f"S1: {event.origin}#{event.id} to {id_}" for event, id_ in self._missing]

    def live(self) -> list[tuple[int, str]]:
        """Return all subscriptions and their brokers."""
        return list(self._broker.items())

    def _matches(self, event: Event) -> list[Id]:
        """Return the live subscriptions that match an event, by the current meaning of words."""
        point, words = self._points[event]
        for name, text in words.items():
            point = point.copy()
            point[self.space.axis(name)] = self.space[name].coordinate(text)
        ids: list[Id] = self._engine.match_points(point[None])[0]
        return ids

    def _forget(self, subscription: int) -> None:
        self._propagated.pop(subscription, None)
        self._within.pop(subscription, None)
        self._missing = {pair: None for pair in self._missing if pair[1] != subscription}
