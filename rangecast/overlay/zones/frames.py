"""Inputs and outputs of brokers of zones, and the frames between them.

Nothing here refers to a broker's insides: all are plain values that any transport can carry.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rangecast.model.sets.members import Id
from rangecast.overlay.zones.geometry import Box, Point


@dataclass(frozen=True)
class Held:
    """A zone that a broker holds. Of two claims to a place, that of the higher epoch is right."""

    box: Box
    epoch: int = 0
    is_ready: bool = True
    """Whether all its interests are here; one that was taken over asks the server for them."""
    known: int = 0
    """The server's messages below this number are acknowledged, or counted in what it last sent."""


@dataclass(frozen=True)
class Kept:
    """An interest at its gateway."""

    point: Point
    number: int
    """Of the message that put it here."""
    last: int
    """The number of the last message that it was handed."""


# ---- from the server


@dataclass(frozen=True)
class Paint:
    """A message for all interests in a rectangle."""

    message: Any


@dataclass(frozen=True)
class Install:
    """An interest and its list, for the gateway and the subscriber."""

    interest: Id
    point: Point
    subscriber: Any


@dataclass(frozen=True)
class Uninstall:
    """An interest that has gone."""

    interest: Id
    point: Point


@dataclass(frozen=True)
class Probe:
    """A question to all zones; those without their interests answer too."""


@dataclass(frozen=True)
class Numbered:
    """One of the server's messages, for the zones that meet a box."""

    number: int
    acknowledged: int
    """All messages below this number have arrived wherever they had to."""
    box: Box
    what: Paint | Install | Uninstall | Probe
    server: Point | None = None
    """A point of the zone where the server is: the centre, unless no broker holds that."""


@dataclass(frozen=True)
class Filled:
    """All interests of a box as of a number: the answer to `Fill`."""

    box: Box
    number: int
    interests: tuple[tuple[Id, Point], ...]


@dataclass(frozen=True)
class Adopt:
    """No broker answers for a box: the one that gets stuck beside it takes what is free."""

    box: Box
    around: tuple[int, ...]
    """Brokers that answered for boxes beside it."""


# ---- to the server


@dataclass(frozen=True)
class Subscribe:
    """A subscriber wants an interest; `where` and `k` are as a board takes them."""

    interest: Id
    where: tuple[Any, ...]
    k: int | None = None


@dataclass(frozen=True)
class Unsubscribe:
    """A subscriber wants an interest no more."""

    interest: Id


@dataclass(frozen=True)
class Taken:
    """A zone has handed a message to all its interests; the box is its part of the rectangle."""

    number: int
    box: Box
    broker: int


@dataclass(frozen=True)
class Fill:
    """A zone was taken over without its interests and asks for them."""

    box: Box


# ---- between brokers


@dataclass(frozen=True)
class Route:
    """On the way to the zone that holds a point."""

    target: Point
    at: Point
    """A point of the zone that this frame is for."""
    what: Any
    hops: int = 0


@dataclass(frozen=True)
class Spread:
    """On the way over the zones that meet a rectangle."""

    entry: Point
    at: Point
    what: Numbered
    hops: int = 0


@dataclass(frozen=True)
class Announce:
    """The zones that a broker holds, how many interests, and what it knows of those around it."""

    owner: int
    version: int
    zones: tuple[Held, ...]
    load: int
    around: tuple[tuple[int, tuple[Held, ...]], ...]
    is_leaving: bool = False


@dataclass(frozen=True)
class Join:
    """A broker wants a zone: from the one that gets this."""

    broker: int
    passed: int = 0
    """Number of times that it was passed on to a neighbour with more interests."""


@dataclass(frozen=True)
class Handover:
    """Zones and their interests, for another broker; it answers `Took`."""

    zones: tuple[Held, ...]
    interests: tuple[tuple[Id, Kept], ...]
    gone: tuple[tuple[Id, int], ...]
    around: tuple[Announce, ...]


@dataclass(frozen=True)
class Took:
    """The zones of a hand-over are held by the sender now."""

    zones: tuple[Held, ...]


@dataclass(frozen=True)
class Yielded:
    """The sender answered for boxes until now that the receiver has the better claim to.

    Interests may have come and gone there, of which the receiver knows nothing.
    """

    boxes: tuple[Box, ...]


# ---- inputs and outputs of a broker


@dataclass(frozen=True)
class Start:
    """Hold the whole space: for the first broker."""


@dataclass(frozen=True)
class JoinBy:
    """Ask for a zone: by way of a broker, at a point."""

    broker: int
    point: Point


@dataclass(frozen=True)
class Leave:
    """Hand all zones to a neighbour and go."""


@dataclass(frozen=True)
class Frame:
    """A frame from another broker."""

    sender: int
    what: Any


@dataclass(frozen=True)
class PeerDown:
    """Another broker has failed."""

    broker: int


@dataclass(frozen=True)
class ToServer:
    """As an input: route this to the server. As an output: the server is here, this is for it."""

    what: Any


@dataclass(frozen=True)
class FromServer:
    """The server, which is at this broker, sends a message."""

    what: Numbered | Filled | Adopt


@dataclass(frozen=True)
class Tick:
    """Time passes."""


@dataclass(frozen=True)
class Send:
    """An output: a frame for another broker."""

    to: int
    what: Any


@dataclass(frozen=True)
class Deliver:
    """An output: a message for a subscriber, the last hop."""

    interest: Id
    number: int
    what: Paint | Install


@dataclass(frozen=True)
class Left:
    """An output: all zones are handed over, and the broker can be switched off."""


@dataclass(frozen=True)
class Homeless:
    """An output: another broker's claim was better, and no zone is left; join again."""
