"""Many servers in one process: a simulated network, with the hops of their queries.

    servers = Servers(3, 10, objects=objects, interests=interests)
    servers.set_value("a", 0.5)             # the messages that one board would send

Each server is a state machine (`server.py`) that knows its own zone only. This class carries what
they say to one another, over links that keep the order, and sends them changes, one after the
other. It knows where each object lies, as any program that changes objects does, but no values.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import count, pairwise
from typing import Any, NamedTuple, Self

import numpy as np

from rangecast.errors import UsageError, did_you_mean
from rangecast.model.sets.members import Id, Members
from rangecast.model.space import Space
from rangecast.model.validation.arguments import check_finite, check_integer
from rangecast.model.validation.flags import flag
from rangecast.notify.base import groups_of
from rangecast.notify.board import ALGORITHMS
from rangecast.notify.messages import Message
from rangecast.notify.new_interests import NewInterests
from rangecast.notify.plan import Place, Places, Step, planned
from rangecast.notify.servers.layout import layout_of, value_of
from rangecast.notify.servers.server import Server
from rangecast.notify.servers.wire import (
    EAST,
    Completed,
    Edit,
    Enter,
    ServerMessage,
    SetValue,
    Start,
    Tile,
    WireObject,
)
from rangecast.notify.tables import MAX_K, Change

Link = tuple[int, int]
"""Servers at both ends of a link, by position in the row: from, to."""


class _KnownObject(NamedTuple):
    """An object as known to the program that changes it."""

    place: Place
    server: int
    """Server that the object was added to: messages are forwarded from there."""


def coalesced(steps: Iterable[Step]) -> list[Step]:
    """Return the steps of a batch without values that the next step replaces.

    Only steps of one object that follow one another are joined: with another change between them
    the object may have hidden that one from the lists, and joining them could send more messages.
    """
    joined: list[Step] = []
    for step in steps:
        before = joined[-1] if joined and joined[-1].id == step.id else None
        if before is not None and before.kind == "set":
            joined[-1] = step
        elif before is not None and step.kind == "set":  # it was added or moved
            joined[-1] = before._replace(y=step.y)
        else:
            joined.append(step)
    return joined


def _first(links: Sequence[Link]) -> Link:
    return links[0]


class Servers:
    """Board whose objects are partitioned by position over a chain of servers.

    Over a space, servers own ranges of one attribute. Messages are `Message`, or `BoxMessage`.
    """

    def __init__(
        self,
        k: int,
        servers: int,
        *,
        space: Space | None = None,
        zone_attribute: str | None = None,
        objects: Any = None,
        interests: Any = None,
        algorithm: str = "sparse",
        epsilon: float | None = None,
        descending: bool = False,
        pick: Callable[[Sequence[Link]], Link] = _first,
    ):
        """Spread objects evenly over this many servers; other options are those of `Board`.

        zone_attribute   the attribute of the space that zones divide; the first one, unless given
        pick             chooses the link that delivers its next message, among those with pending
                         messages, ordered by sending time
        """
        if algorithm not in ALGORITHMS:
            raise UsageError(
                f"no algorithm {algorithm!r}: {did_you_mean(str(algorithm), ALGORITHMS)}"
            )
        self.k = check_integer("k", k, max_value=MAX_K)
        if space is not None and epsilon is not None:
            raise UsageError("epsilon is only for servers without a space")
        groups = groups_of(epsilon, self.k)
        number = check_integer("servers", servers)
        self._layout = layout = layout_of(space, zone_attribute)
        self._tables = layout.tables
        ids, at, ys, arrivals = self._tables.as_objects(objects)
        places = [layout.place(point) for point in at.tolist()]
        xs = np.array([layout.x(server) for server in places])
        came = np.arange(len(xs)) if arrivals is None else arrivals
        self.descending = flag("descending", descending)
        self.seq = 0
        """Number of the next change."""
        self._pick = pick
        self._objects = Members.of(ids, "object")
        self._interests = Members("interest")
        self._arrivals = int(came.max(initial=-1)) + 1
        ranked = np.sort(xs)
        firsts = [len(xs) * number_ // number for number_ in range(1, number)]
        self._bounds = [-math.inf, *(float(ranked[at]) if len(xs) else 0.0 for at in firsts)]
        """Initial starts of the zones."""
        things: list[list[WireObject]] = [[] for _ in range(number)]
        self._known: dict[int, _KnownObject] = {}
        self._slots = count(len(xs))
        columns = (self._signed(ys).tolist(), came.tolist(), places, ids.to_pylist())
        for slot, column in enumerate(zip(*columns, strict=True)):
            self._known[slot] = known = self._known_at(column[2])
            things[known.server].append(layout.wire_object(*column))
        ends = [*self._bounds, math.inf]
        self._sent: list[Message | Tile] = []
        common = number, len(ids), self.k, groups, algorithm == "sparse"
        axis = layout.attributes, layout.axis
        self._begin(
            [
                Start(server, *common, *zone, tuple(of_server), *axis)
                for server, (zone, of_server) in enumerate(zip(pairwise(ends), things, strict=True))
            ]
        )
        if interests is not None:
            self.subscribe_many(interests)

    def __contains__(self, object_id: object) -> bool:
        return object_id in self._objects

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Release the servers."""

    def _begin(self, starts: Sequence[Start]) -> None:
        """Start the servers."""
        self.servers = [Server.of(start) for start in starts]
        self._links: dict[Link, deque[tuple[int, ServerMessage]]] = {}
        self._clock = count()
        self._is_done = True

    # ---- objects

    def set_value(self, object_id: Id, value: float) -> list[Any]:
        """Set the value of an object."""
        self._objects.row(object_id)
        return self.update_many([Change(object_id, check_finite("value", value))])

    def add(self, object_id: Id, position: Any, value: float) -> list[Any]:
        """Add an object; its id must be new. Over a space, a position is a dict of values."""
        new = self._objects.new(object_id, "use set_value() or move()")
        at = self._layout.moved(None, position)
        return self.update_many([Change(new, check_finite("value", value), at)])

    def remove(self, object_id: Id) -> list[Any]:
        """Remove an object."""
        self._objects.row(object_id)
        return self.update_many([Change(object_id, None)])

    def move(self, object_id: Id, position: Any, value: float) -> list[Any]:
        """Set the position and the value of an object.

        Over a space, a position is a dict of the values that change; None takes one away.
        """
        self._layout.moved(self._known[self._objects.row(object_id)].place, position)
        return self.update_many([Change(object_id, check_finite("value", value), position)])

    def update_many(self, changes: Any) -> list[Any]:
        """Apply changes one after the other, as `Board.update_many` takes them."""
        return self._apply_all(self._planned(changes))

    def update_batch(self, changes: Any) -> list[Any]:
        """Apply changes as one batch: of changes of one object that follow one another, only the
        last is made. There are never more messages than with `update_many`.
        """
        return self._apply_all(coalesced(self._planned(changes)))

    def _planned(self, changes: Any) -> list[Step]:
        places = Places(
            lambda slot: self._known[slot].place,
            self._layout.moved,
            self._tables.as_changes,
            self._tables.names,
            self._tables.needs,
        )
        return planned(changes, self._objects, places, descending=self.descending)

    def _apply_all(self, steps: Iterable[Step]) -> list[Any]:
        return [message for step in steps for message in self._apply(step)]

    def _apply(self, step: Step) -> list[Any]:
        """Send one change, and deliver messages until it is done."""
        change: SetValue | Enter
        layout = self._layout
        objects = len(self._objects) + {"add": 1, "remove": -1}.get(step.kind, 0)
        if step.kind == "add":
            thing = layout.wire_object(step.y, self._arrivals, step.place, step.id)
            change = Enter(thing.x, self.seq, 0, thing, objects)
            self._arrivals += 1
            slot = next(self._slots)
            self._objects.bind(step.id, slot)
            self._known[slot] = self._known_at(step.place)
        else:
            slot = self._objects.row(step.id)
            y = math.inf if step.kind == "remove" else step.y
            change = SetValue(
                layout.x(self._known[slot].place), self.seq, step.id, y, None, objects
            )
            if step.kind == "move":
                thing = layout.wire_object(step.y, 0, step.place, step.id)
                change = change._replace(to=thing.x, place=thing.at)
        self._run(self._known[slot].server, change)
        self.seq += 1
        if step.kind == "move":
            self._known[slot] = self._known_at(step.place)
        elif step.kind == "remove":
            del self._known[self._objects.release(step.id)]
        sent, self._sent = self._sent, []
        return [layout.message(output, self._signed(value_of(output))) for output in sent]

    # ---- interests

    def subscribe_many(self, interests: Any) -> int:
        """Add interests as `Board.subscribe_many` takes them; return their number."""
        is_read = isinstance(interests, NewInterests)
        added = interests if is_read else self._tables.as_interests(interests, self.k, None)
        new = self._interests.new_many(added.ids)
        self._run(0, Edit(EAST, self.seq, (), self._layout.ranges(new, added.regions)))
        self._interests.bind_many(new, range(len(new)))
        return len(new)

    def unsubscribe_many(self, interests: Iterable[Id]) -> int:
        """Remove interests, all or none; return their number."""
        gone, _ = self._interests.known_many(interests)
        self._run(0, Edit(EAST, self.seq, tuple(gone), ()))
        self._interests.release_many(gone)
        return len(gone)

    # ---- what servers say

    def _run(self, server: int, message: ServerMessage) -> None:
        """Send a change or an edit to a server, and deliver messages until it is done.

        Messages still in flight then, such as a handover, wait for the next call.
        """
        self._is_done = False
        self._hand(server, message)
        while not self._is_done:
            self._deliver()

    def settle(self) -> None:
        """Deliver all messages in flight."""
        while self._links:
            self._deliver()

    def _deliver(self) -> None:
        links = sorted(self._links, key=lambda link: self._links[link][0][0])
        link = self._pick(links)
        _, message = self._links[link].popleft()
        if not self._links[link]:
            del self._links[link]
        self._hand(link[1], message)

    def _hand(self, server: int, message: ServerMessage) -> None:
        for to, what in self.servers[server].handle(message):
            if isinstance(what, Completed):
                self._is_done = True
            elif isinstance(what, Message | Tile):
                self._sent.append(what)
            else:
                waiting = self._links.setdefault((server, server + to), deque())
                waiting.append((next(self._clock), what))

    def _signed(self, y: Any) -> Any:
        """Return values in the order of servers, the lowest first; also the inverse."""
        return 0.0 - y if self.descending else y

    def _known_at(self, at: Place) -> _KnownObject:
        """Return an object with the server that initially owned its position."""
        return _KnownObject(at, bisect_right(self._bounds, self._layout.x(at)) - 1)

    # ---- counts

    @property
    def sizes(self) -> list[int]:
        """Number of objects of each server, from west to east."""
        return [len(server.zone) for server in self.servers]

    @property
    def work(self) -> Any:
        """Calls of each kind so far, on all servers: `Work`, over a space `BoxWork`."""
        return self._layout.work(self._totals()[0])

    @property
    def walks(self) -> Any:
        """Number and hops of queries so far: `QueryCounts`, over a space `SpaceQueryCounts`."""
        return self._layout.queries(*self._totals())

    def _totals(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the calls and the hops by kind, on all servers."""
        tilers = [server.tiler for server in self.servers]
        return summed(tiler.work for tiler in tilers), summed(tiler.hops for tiler in tilers)


def summed(rows: Iterable[Sequence[int]]) -> tuple[int, ...]:
    """Return the sum of each column."""
    return tuple(map(sum, zip(*rows, strict=True)))
