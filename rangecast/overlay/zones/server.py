"""The server of a network by zones: it paints changes, and sees that messages arrive in order.

    outputs = server.handle(input)

It has the board, all objects and interests, but doesn't know which broker an interest is at. It
is at the broker whose zone contains the centre; its database, as one on disk does, outlives that.

Messages are numbered. One waits until all earlier ones that a subscriber of it may get too have
arrived: whatever way they take, each subscriber gets them in order. A message has arrived when the
zones that answered for it cover its rectangle. If zones are missing after some ticks, the message
is sent again, to these only. Where neighbours fail together their zones can be lost: regularly, the
server asks all zones, and has others adopt the zones that no broker answers for.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rangecast.errors import RangecastError, UsageError, choices_hint
from rangecast.kernels.arrays import F64
from rangecast.model.sets.members import Id
from rangecast.notify.board import Board
from rangecast.notify.boxes.tables import reject_residuals
from rangecast.overlay.zones.frames import (
    Adopt,
    DeliveryAck,
    FromServer,
    Install,
    InterestsReply,
    InterestsRequest,
    NumberedMessage,
    Paint,
    Probe,
    Subscribe,
    Tick,
    Uninstall,
    Unsubscribe,
)
from rangecast.overlay.zones.geometry import Box, Point
from rangecast.overlay.zones.rectangles import Rectangles

AGAIN = 4
"""Ticks after which a message that didn't arrive everywhere is sent again."""
PROBE = 24
"""Ticks after which the server asks all zones."""
_PROBES = 3
"""Number of times that it asks zones that don't answer."""
_CHANGES = ("set_value", "add", "remove", "move", "update_many", "update_batch")


@dataclass(frozen=True)
class Update:
    """An input: change an object as `Board.set_value`, `add`, `remove` or `move` do."""

    change: str
    given: tuple[Any, ...]


@dataclass
class _PendingMessage:
    number: int
    box: Box
    what: Any
    missing: list[Box]
    """The part of its rectangle without an answer."""
    waits_for: int = 0
    """Earlier messages under way whose rectangles meet its own."""
    holds_up: list[int] = field(default_factory=list)
    """Later messages that wait for it."""
    answered: list[tuple[Box, int]] = field(default_factory=list)
    is_sent: bool = False
    waited: int = 0
    times: int = 0


def interest_axes(board: Board) -> list[int]:
    """Return the ends of interests that differ: lower ones, then upper ones, by attribute."""
    if board.space is None:
        return [0, 1]
    reject_residuals(board.space, "a network of zones", "use a space without this attribute")
    d = len(board.space)
    attribute = board.upper_bound_attribute
    fixed = None if attribute is None else board.space.names.index(attribute)
    return [axis for axis in range(2 * d) if axis != fixed]


class ZoneServer:
    """A board, and its messages in transit."""

    def __init__(self, board: Board):
        self.board = board
        self._points: dict[Id, Point] = {}
        self.rejected: Counter[str] = Counter()
        """Rejected requests of brokers, by reason."""
        self._next = 0
        self._pending: dict[int, _PendingMessage] = {}
        self._ready: list[int] = []
        self._probe: _PendingMessage | None = None
        self._ticks = 0
        self._axes = interest_axes(board)
        self._under_way = Rectangles(len(self._axes))
        self._out: list[FromServer] = []
        for interest in board:
            self._points[interest] = self._point_of(board.bounds(interest))

    @property
    def comparisons(self) -> int:
        """Pairs of rectangles compared so far, to find what a message waits for."""
        return self._under_way.comparisons

    @property
    def is_quiet(self) -> bool:
        """Whether all messages have arrived."""
        return not self._pending

    @property
    def points(self) -> dict[Id, Point]:
        """All interests, and where they lie."""
        return dict(self._points)

    def handle(self, value: Any) -> list[FromServer]:
        """Handle an input and return what the broker of the centre is to send."""
        self._out = []
        match value:
            case Update(change, arguments):
                if change not in _CHANGES:
                    raise UsageError(f"no change {change!r}: {choices_hint(change, _CHANGES)}")
                messages = getattr(self.board, change)(*arguments)
                lows, highs = np.hsplit(messages.bounds, 2)
                ends = lows[:, self._axes].tolist(), highs[:, self._axes].tolist()
                for message, lo, hi in zip(messages, *ends, strict=True):
                    self._add(Box(tuple(lo), tuple(hi)), Paint(message))
            case Subscribe(interest, where, k):
                self._subscribe(interest, where, k)
            case Unsubscribe(interest):
                if interest in self._points:
                    point = self._points.pop(interest)
                    self.board.unsubscribe(interest)
                    self._add(Box.at(point), Uninstall(interest, point))
            case DeliveryAck(number, box, broker):
                self._take(number, box, broker)
            case InterestsRequest(box):
                self._fill(box)
            case Tick():
                self._tick()
        self._send_ready()
        return self._out

    def _point_of(self, region: F64) -> Point:
        """Return where an interest lies: the bounds that the board paints it by.

        An open end is what messages reach.
        """
        if len(region) != 1:
            raise UsageError(
                f"a zone only takes interests of one box; given: {len(region)} boxes\n"
                "  hint: subscribe its boxes one by one"
            )
        return tuple(region[0, self._axes].tolist())

    def _subscribe(self, interest: Id, where: tuple[Any, ...], k: int | None) -> None:
        """Install an interest; one that already exists is installed again: its list may be lost.

        It comes from elsewhere, so what makes no sense is rejected and counted, and raises nothing.
        """
        try:
            point = self._point_of(self.board.region(interest, *where))
            if interest not in self._points:
                self.board.subscribe(interest, *where, k=k)
                self._points[interest] = point
        except (RangecastError, TypeError, ValueError, IndexError):
            self.rejected["interests that can't be"] += 1
            return
        subscriber = self.board[interest]
        if point != self._points[interest] or (k or self.board.k) != subscriber.k:
            self.rejected["ids of other interests"] += 1
            return
        self._add(Box.at(point), Install(interest, point, subscriber))

    def _add(self, box: Box, what: Any) -> None:
        """Register a message; compare it, once, with those in flight."""
        number, self._next = self._next, self._next + 1
        pending = self._pending[number] = _PendingMessage(number, box, what, [box])
        for earlier in self._under_way.meeting(box):
            self._pending[earlier].holds_up.append(number)
            pending.waits_for += 1
        self._under_way.add(number, box)
        if not pending.waits_for:
            self._ready.append(number)

    def _complete(self, number: int) -> None:
        """Release a message that has arrived; those that waited for it alone are ready."""
        pending = self._pending.pop(number)
        self._under_way.remove(number)
        for later in pending.holds_up:
            waiting = self._pending.get(later)  # None: answered for before it was sent
            if waiting is not None:
                waiting.waits_for -= 1
                if not waiting.waits_for:
                    self._ready.append(later)

    def _send_ready(self) -> None:
        """Send what waits for nothing any more, in order."""
        for number in sorted(self._ready):
            pending = self._pending[number]
            pending.is_sent = True
            self._send(pending)
        self._ready.clear()

    def _send(self, pending: _PendingMessage) -> None:
        acknowledged = next(iter(self._pending), self._next)
        pending.waited, pending.times = 0, pending.times + 1
        for box in pending.missing:
            self._out.append(
                FromServer(NumberedMessage(pending.number, acknowledged, box, pending.what))
            )

    def _take(self, number: int, box: Box, broker: int) -> None:
        probe = self._probe
        pending = probe if probe and probe.number == number else self._pending.get(number)
        if pending is None:
            return
        pending.answered.append((box, broker))
        pending.missing = [part for rest in pending.missing for part in rest.without(box)]
        if not pending.missing:
            if pending is probe:
                self._probe = None
            else:
                self._complete(number)

    def _fill(self, box: Box) -> None:
        """Answer with all interests of a box as they are now."""
        inside = tuple((name, point) for name, point in self._points.items() if box.holds(point))
        self._out.append(FromServer(InterestsReply(box, self._next, inside)))

    def _tick(self) -> None:
        for pending in self._pending.values():
            pending.waited += pending.is_sent
            if pending.waited >= AGAIN:
                self._send(pending)
        self._ticks += 1
        if self._probe is not None:
            self._retry_pending(self._probe)
        elif self._ticks % PROBE == 0:
            everything = Box.everything(len(self._axes))
            self._probe = _PendingMessage(self._next, everything, Probe(), [everything])
            self._next += 1
            self._send(self._probe)

    def _retry_pending(self, probe: _PendingMessage) -> None:
        """Ask again; in the end, give away what no broker answered for."""
        probe.waited += 1
        if probe.waited < AGAIN:
            return
        if probe.times < _PROBES:
            self._send(probe)
            return
        self._probe = None
        for box in probe.missing:
            beside = {broker for other, broker in probe.answered if other.touches(box)}
            self._out.append(FromServer(Adopt(box, tuple(sorted(beside)))))
