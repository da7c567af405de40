"""Inputs and outputs of brokers of zones, and the frames between them.

Nothing here refers to a broker's insides: all are plain values that any transport can carry.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from rangecast.model.sets.members import Id
from rangecast.overlay.zones.geometry import Box, Point


class Held(Struct, frozen=True):
    """A zone that a broker holds. Of two claims to a place, that of the higher epoch is right."""

    box: Box
    epoch: int = 0
    is_ready: bool = True
    """Whether all its interests are here; one that was taken over asks the server for them."""
    known: int = 0
    """The server's messages below this number are acknowledged, or counted in what it last sent."""


class Kept(Struct, frozen=True):
    """An interest at its gateway."""

    point: Point
    number: int
    """Of the message that put it here."""
    last: int
    """The number of the last message that it was handed."""


# ---- from the server


class Paint(Struct, frozen=True):
    """A message for all interests in a rectangle."""

    message: Any


class Install(Struct, frozen=True):
    """An interest and its list, for the gateway and the subscriber."""

    interest: Id
    point: Point
    subscriber: Any


class Uninstall(Struct, frozen=True):
    """An interest that has gone."""

    interest: Id
    point: Point


class Probe(Struct, frozen=True):
    """A question to all zones; those without their interests answer too."""


class Numbered(Struct, frozen=True):
    """One of the server's messages, for the zones that meet a box."""

    number: int
    acknowledged: int
    """All messages below this number have arrived wherever they had to."""
    box: Box
    what: Paint | Install | Uninstall | Probe
    server: Point | None = None
    """A point of the zone where the server is: the centre, unless no broker holds that."""


class Filled(Struct, frozen=True):
    """All interests of a box as of a number: the answer to `Fill`."""

    box: Box
    number: int
    interests: tuple[tuple[Id, Point], ...]


class Adopt(Struct, frozen=True):
    """No broker owns a box: the one that gets stuck next to it takes over what is free."""

    box: Box
    around: tuple[int, ...]
    """Brokers that answered for boxes beside it."""


# ---- to the server


class Subscribe(Struct, frozen=True):
    """A subscriber wants an interest; `where` and `k` are as a board takes them."""

    interest: Id
    where: tuple[Any, ...]
    k: int | None = None


class Unsubscribe(Struct, frozen=True):
    """A subscriber cancels an interest."""

    interest: Id


class Taken(Struct, frozen=True):
    """A zone has handed a message to all its interests; the box is its part of the rectangle."""

    number: int
    box: Box
    broker: int


class Fill(Struct, frozen=True):
    """A zone was taken over without its interests and asks for them."""

    box: Box


# ---- between brokers


class Route(Struct, frozen=True):
    """On the way to the zone that holds a point."""

    target: Point
    at: Point
    """A point of the zone that this frame is for."""
    what: Any
    hops: int = 0


class Spread(Struct, frozen=True):
    """On the way over the zones that meet a rectangle."""

    entry: Point
    at: Point
    what: Numbered
    hops: int = 0


class Announce(Struct, frozen=True):
    """The zones that a broker holds, how many interests, and what it knows of those around it."""

    owner: int
    version: int
    zones: tuple[Held, ...]
    load: int
    around: tuple[tuple[int, tuple[Held, ...]], ...]
    is_leaving: bool = False


class Join(Struct, frozen=True):
    """A broker wants a zone: from the one that gets this."""

    broker: int
    passed: int = 0
    """Number of times that it was passed on to a neighbour with more interests."""


class Handover(Struct, frozen=True):
    """Zones and their interests, for another broker; it answers `Took`."""

    zones: tuple[Held, ...]
    interests: tuple[tuple[Id, Kept], ...]
    gone: tuple[tuple[Id, int], ...]
    around: tuple[Announce, ...]


class Took(Struct, frozen=True):
    """The zones of a hand-over are held by the sender now."""

    zones: tuple[Held, ...]


class Yielded(Struct, frozen=True):
    """The sender answered for boxes until now that the receiver has the better claim to.

    Interests may have come and gone there, of which the receiver knows nothing.
    """

    boxes: tuple[Box, ...]


# ---- inputs and outputs of a broker


class Start(Struct, frozen=True):
    """Hold the whole space: for the first broker."""


class JoinBy(Struct, frozen=True):
    """Ask for a zone: by way of a broker, at a point."""

    broker: int
    point: Point


class Leave(Struct, frozen=True):
    """Hand all zones to a neighbour and go."""


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

    what: Numbered | Filled | Adopt


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


class Left(Struct, frozen=True):
    """An output: all zones are handed over, and the broker can be switched off."""


class Homeless(Struct, frozen=True):
    """An output: another broker's claim was better, and no zone is left; join again."""
