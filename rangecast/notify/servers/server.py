"""A server of a zone: a state machine without I/O, clock or randomness.

    for to, message in server.handle(message):
        ...   # WEST, EAST: to that neighbour; HOME: to subscribers, or `Completed`

Servers stand in a row, and each knows its two neighbours. The server whose zone contains an object
paints its changes: it asks for the nearest k better objects on each side (Algorithm 1), then again
and again for the next object that the changed one falls behind (Algorithm 2). Questions walk from
neighbour to neighbour as far as they must. Over a space it asks once on each side, for the objects
that decide whose lists change (`box_painting.py`).

Changes are applied one after the other: the sender waits for `Completed`. Each has a number, and
its messages depend on all before it.

Zones move independently of everything else. A server's share is the number of all objects by that
of servers. One that has more than one and a half shares hands the outermost objects to a neighbour,
the one that has fewer, and keeps one and a quarter. A neighbour that has too many then hands the
excess on in the same direction, and at the last server back again: there is room for half as many
objects again as there are. Objects at one place stay together.

Three things make that safe. Questions are for places, not for servers (`wire.py`). A server hands
nothing over while it paints, or while interests are edited. And neighbours take turns at moving
their border: it is the turn of the one that received the last run, until the other one asks.

Appendix C of paper 001, which is silent about zones that move.
"""

from __future__ import annotations

import math
from collections import deque
from typing import Any, NamedTuple, Self

from rangecast.errors import UsageError
from rangecast.notify.messages import Message
from rangecast.notify.servers.box_painting import BoxTiler
from rangecast.notify.servers.box_zone import BoxZone
from rangecast.notify.servers.painting import AnyPainting, AnyTiler, Tiler
from rangecast.notify.servers.wire import (
    EAST,
    HOME,
    WEST,
    Answer,
    Ask,
    Completed,
    Edit,
    Enter,
    Grant,
    Handover,
    Load,
    Question,
    Routed,
    ServerMessage,
    SetValue,
    Start,
    Tile,
    WireObject,
)
from rangecast.notify.servers.zone import LineZone, Zone

_FULL, _RELIEVED = 1.5, 1.25
"""Maximum load factor of a server, and the one it returns to."""
_DRIFT = 0.25
"""Relative change of counts that is reported to neighbours."""


class Output(NamedTuple):
    """A message of a server, and its direction: WEST, EAST or HOME."""

    to: int
    what: ServerMessage | Message | Tile | Completed


class Server:
    """Server of one zone; exchanges messages with its west and east neighbours."""

    def __init__(self, zone: Zone, tiler: AnyTiler, *, place: int, servers: int, objects: int):
        """Own a zone; `place` is its number among all servers, from west to east."""
        self.zone = zone
        self.tiler = tiler
        self._place, self._servers = place, servers
        self._seq, self._objects = -1, objects
        self._reported = len(zone), objects
        """Own and total object counts, as last reported to neighbours."""
        self._loads = {WEST: 0, EAST: 0}
        self._has_turn = {WEST: False, EAST: True}
        """Whether it may move the border to a neighbour: never both at once, or handovers would
        cross.
        """
        self._has_asked = {WEST: False, EAST: False}
        self._painting: AnyPainting | None = None
        self._change: SetValue | Enter | None = None
        self._is_held = False
        self._onwards = HOME
        """Direction of an incoming handover, until nothing more is passed on."""
        self._queue: deque[ServerMessage] = deque()
        self._outputs: list[Output] = []

    @classmethod
    def of(cls, start: Start) -> Self:
        """Return a server in its first state."""
        ends, uses_interests = (start.lo, start.hi), start.uses_interests
        zone: Zone
        tiler: AnyTiler
        if start.attributes:
            d, axis = start.attributes, start.axis
            zone = BoxZone(*ends, start.things, d=d, axis=axis)
            tiler = BoxTiler(start.k, d, axis, uses_interests=uses_interests)
        else:
            zone = LineZone(*ends, start.things)
            tiler = Tiler(start.k, start.groups, uses_interests=uses_interests)
        return cls(
            zone,
            tiler,
            place=start.place,
            servers=start.servers,
            objects=start.objects,
        )

    def handle(self, message: ServerMessage) -> list[Output]:
        """Process a message from a neighbour, a change or an edit; return the messages to send."""
        self._queue.append(message)
        while self._queue:
            self._take(self._queue.popleft())
        self._notify_neighbours()
        self._rebalance()
        outputs, self._outputs = self._outputs, []
        return outputs

    def _neighbours(self) -> list[int]:
        return [WEST] * (self._place > 0) + [EAST] * (self._place < self._servers - 1)

    def _send(self, to: int, what: Any) -> None:
        self._outputs.append(Output(to, what))

    def _take(self, message: ServerMessage) -> None:
        if isinstance(message, Routed):
            self._take_routed(message)
        elif isinstance(message, Handover):
            self.zone.gain(*message)
            self._onwards = message.towards
            self._take_turn(-message.towards)
        elif isinstance(message, Grant):
            self._take_turn(-message.towards)
        elif isinstance(message, Ask):
            side = -message.towards
            if self._has_turn[side]:  # else it is under way to the neighbour
                self._has_turn[side] = False
                self._send(side, Grant(side))
        elif isinstance(message, Load):
            self._loads[-message.towards] = message.own
            self._update_total(message.seq, message.objects)
        else:
            self._edit(message)

    def _take_routed(self, message: Routed) -> None:
        if not self.zone.holds(message.at):
            if isinstance(message, Question):
                message = message._replace(hops=message.hops + 1)
            self._send(WEST if message.at < self.zone.lo else EAST, message)
        elif isinstance(message, Question):
            self._queue.append(self.tiler.answer(self.zone, message))
        elif isinstance(message, Answer):
            assert self._painting is not None
            self._painting.take(message)
            self._continue_change()
        else:
            self._begin(message)

    # ---- changes

    def _begin(self, change: SetValue | Enter) -> None:
        self._update_total(change.seq, change.objects)
        zone = self.zone
        if isinstance(change, Enter):
            old, y, position = change.thing._replace(y=math.inf), change.thing.y, change.position
            zone.add(old)
        else:
            if change.object not in zone:
                raise UsageError(f"no object {change.object!r} at {change.at!r}")
            old, position = zone[change.object], 0
            y = change.y if change.to is None else math.inf
        self._change = change
        self._painting = self.tiler.paint(zone, change.seq, position, old, y)
        self._continue_change()

    def _continue_change(self) -> None:
        """Send pending messages and queries; finish if nothing is outstanding."""
        painting = self._painting
        assert painting is not None
        for message in painting.messages:
            self._send(HOME, message)
        painting.messages = []
        self._queue.extend(painting.questions)
        painting.questions = []
        if painting.is_done:
            self._finish(painting)

    def _finish(self, painting: AnyPainting) -> None:
        change = self._change
        assert change is not None
        self._painting = self._change = None
        if isinstance(change, Enter):
            self.zone.change(change.thing.object, change.thing.y)
        elif change.to is not None:
            old = self.zone.remove(change.object)
            thing = WireObject(change.y, old.arrival, change.to, change.object, change.place)
            entry = Enter(change.to, change.seq, painting.position, thing, change.objects)
            self._queue.append(entry)
            return
        elif change.y == math.inf:
            self.zone.remove(change.object)
        else:
            self.zone.change(change.object, change.y)
        self._send(HOME, Completed(change.seq, painting.position))

    # ---- interests

    def _edit(self, edit: Edit) -> None:
        if edit.towards == EAST:
            self._is_held = True
            if EAST in self._neighbours():
                self._send(EAST, edit)
                return
        if self.tiler.watches_interests:
            for interest in edit.removed:
                self.zone.ignore(interest)
            self.zone.watch(edit.added)
        self._is_held = False
        if WEST in self._neighbours():
            self._send(WEST, edit._replace(towards=WEST))
        else:
            self._send(HOME, Completed(edit.seq))

    # ---- zones

    def _update_total(self, seq: int, objects: int) -> None:
        """Set the total number of objects as of change `seq`, unless a later one is known."""
        if seq >= self._seq:
            self._seq, self._objects = seq, objects

    def _take_turn(self, side: int) -> None:
        self._has_turn[side], self._has_asked[side] = True, False

    @property
    def _share(self) -> float:
        return max(self._objects / self._servers, 1.0)

    def _notify_neighbours(self) -> None:
        own, objects = self._reported
        drift = _DRIFT * self._share
        if (
            abs(len(self.zone) - own) > drift
            or abs(self._objects - objects) > drift * self._servers
        ):
            self._reported = len(self.zone), self._objects
            for side in self._neighbours():
                self._send(side, Load(side, len(self.zone), self._seq, self._objects))

    def _rebalance(self) -> None:
        """Hand over some objects if there are too many, or pass on the excess."""
        most = math.ceil(_FULL * self._share)
        if self._painting is not None or self._is_held:
            return
        sides = self._neighbours()
        if len(self.zone) <= most or not sides:
            self._onwards = HOME
            return
        if self._onwards == HOME:
            side = min(sides, key=self._loads.__getitem__)
            least = len(self.zone) - math.floor(_RELIEVED * self._share)
        else:
            side = self._onwards if self._onwards in sides else -self._onwards
            least = len(self.zone) - most
        border = self.zone.cut(side, least)
        if border is not None and not self._has_turn[side]:
            if not self._has_asked[side]:
                self._has_asked[side] = True
                self._send(side, Ask(side))
            return
        self._onwards = HOME
        if border is not None:
            self._has_turn[side] = False
            self._send(side, Handover(side, border, *self.zone.give(side, border)))
