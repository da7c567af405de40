"""Inputs and outputs of brokers of zones, and the frames between them.

Nothing here refers to a broker's insides: all are plain values that any transport can carry.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from rangecast.model.sets.members import Id
from rangecast.overlay.zones.geometry import Box, Point


class ZoneClaim(Struct, frozen=True):
    """A zone that a broker holds. Of two claims to a position, the higher epoch wins."""

    box: Box
    epoch: int = 0
    is_ready: bool = True
    """Whether all its interests are here; after a takeover they are requested from the server."""
    known: int = 0
    """The server's messages below this number are acknowledged, or counted in what it last sent."""


class GatewayInterest(Struct, frozen=True):
    """An interest at its gateway."""

    point: Point
    number: int
    """Number of the message that installed it."""
    last: int
    """Number of the last message that it received."""


# ---- from the server


class Paint(Struct, frozen=True):
    """A message for all interests in a rectangle."""

    message: Any


class Install(Struct, frozen=True):
    """An interest and its list, for its gateway and its subscriber."""

    interest: Id
    point: Point
    subscriber: Any


class Uninstall(Struct, frozen=True):
    """A removed interest."""

    interest: Id
    point: Point


class Probe(Struct, frozen=True):
    """A query to all zones; those without their interests answer, too."""


class NumberedMessage(Struct, frozen=True):
    """One of the server's messages, for the zones that meet a box."""

    number: int
    acknowledged: int
    """All messages below this number have arrived everywhere."""
    box: Box
    what: Paint | Install | Uninstall | Probe
    server: Point | None = None
    """A point of the zone where the server is: the centre, unless no broker holds that."""


class InterestsReply(Struct, frozen=True):
    """All interests of a box as of a number: the answer to `InterestsRequest`."""

    box: Box
    number: int
    interests: tuple[tuple[Id, Point], ...]


class Adopt(Struct, frozen=True):
    """Request to take over a box without an owner: by the broker that is stuck next to it."""

    box: Box
    around: tuple[int, ...]
    """Brokers that answered for boxes beside it."""


# ---- to the server


class Subscribe(Struct, frozen=True):
    """Request of a subscriber for an interest; `where` and `k` as in `Board.subscribe`."""

    interest: Id
    where: tuple[Any, ...]
    k: int | None = None


class Unsubscribe(Struct, frozen=True):
    """A subscriber cancels an interest."""

    interest: Id


class DeliveryAck(Struct, frozen=True):
    """Acknowledgement: a zone has delivered a message to all its interests.

    The box is its part of the rectangle.
    """

    number: int
    box: Box
    broker: int


class InterestsRequest(Struct, frozen=True):
    """Request for the interests of a zone that was taken over."""

    box: Box


# ---- between brokers


class Route(Struct, frozen=True):
    """Envelope of a frame on its way to the zone of a point."""

    target: Point
    at: Point
    """A point of the zone that this frame is addressed to."""
    what: Any
    hops: int = 0


class Spread(Struct, frozen=True):
    """Envelope of a message on its way over the zones that overlap a rectangle."""

    entry: Point
    at: Point
    what: NumberedMessage
    hops: int = 0


class Announce(Struct, frozen=True):
    """The zones of a broker, the number of its interests, and its knowledge of adjacent zones."""

    owner: int
    version: int
    zones: tuple[ZoneClaim, ...]
    load: int
    around: tuple[tuple[int, tuple[ZoneClaim, ...]], ...]
    is_leaving: bool = False


class Join(Struct, frozen=True):
    """Request for a zone, to its receiver."""

    broker: int
    passed: int = 0
    """Number of times it was forwarded to a neighbour with more interests."""


class Handover(Struct, frozen=True):
    """Zones and their interests, for another broker; answered by `HandoverAck`."""

    zones: tuple[ZoneClaim, ...]
    interests: tuple[tuple[Id, GatewayInterest], ...]
    gone: tuple[tuple[Id, int], ...]
    around: tuple[Announce, ...]


class HandoverAck(Struct, frozen=True):
    """Confirmation: the sender now holds the zones of a handover."""

    zones: tuple[ZoneClaim, ...]


class YieldedClaims(Struct, frozen=True):
    """The sender answered for boxes until now that the receiver has the better claim to.

    Interests may have come and gone there, of which the receiver knows nothing.
    """

    boxes: tuple[Box, ...]


# ---- inputs and outputs of a broker


class Start(Struct, frozen=True):
    """Take the whole space, as the first broker."""


class JoinThrough(Struct, frozen=True):
    """Join the network through a broker, at a point."""

    broker: int
    point: Point


class Leave(Struct, frozen=True):
    """Hand all zones to a neighbour and leave."""


class Frame(Struct, frozen=True):
    """A frame from another broker."""

    sender: int
    what: Any


class PeerDown(Struct, frozen=True):
    """Another broker has failed."""

    broker: int


class ToServer(Struct, frozen=True):
    """As an input: route this to the server. As an output: the server is here, this is for it."""

    what: Any


class FromServer(Struct, frozen=True):
    """The server, which is at this broker, sends a message."""

    what: NumberedMessage | InterestsReply | Adopt


class Tick(Struct, frozen=True):
    """Time passes."""


class Send(Struct, frozen=True):
    """An output: a frame for another broker."""

    to: int
    what: Any


class Deliver(Struct, frozen=True):
    """An output: a message for a subscriber, the last hop."""

    interest: Id
    number: int
    what: Paint | Install


class LeftNetwork(Struct, frozen=True):
    """An output: all zones are handed over, and the broker can be switched off."""


class ZonesLost(Struct, frozen=True):
    """An output: another broker's claim was better, and no zone is left; join again."""
