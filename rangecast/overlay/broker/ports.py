"""Inputs and outputs of a broker: the two sides of `Broker.handle`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct, field

from rangecast.model.sets.members import Id
from rangecast.overlay.broker.event_log import Block
from rangecast.overlay.wire.frames import Frame

# ---- inputs


class LinkUp(Struct, frozen=True):
    """A link to a neighbour is up, for the first time or again."""

    link: str


class LinkDown(Struct, frozen=True):
    """A link is down; `forget` it and what came over it, if it won't come back."""

    link: str
    forget: bool = False


class Received(Struct, frozen=True):
    """A frame came in over a link, as bytes or decoded."""

    link: str
    frame: bytes | Frame


class Subscribe(Struct, frozen=True):
    """Clients of this broker subscribe.

    A dict has ids and filters, as `Engine.subscribe` takes them; anything else is taken as by
    `Engine.subscribe_many`, which is quicker for many.
    """

    subscriptions: Any


class Unsubscribe(Struct, frozen=True):
    """Clients of this broker unsubscribe."""

    subscriptions: list[Id]


class Replace(Struct, frozen=True):
    """Clients replace the filters of subscriptions atomically; see `Subscribe`."""

    subscriptions: Any


class Publish(Struct, frozen=True):
    """Clients of this broker publish events, as `Engine.match_many` takes them, or points (n, d).

    An event is accepted once it is durable. Where a link can't take all, those of a higher
    priority go first.
    """

    events: Any
    ids: list[Id] | None = None
    words: dict[str, list[str | None]] | None = None
    """With points: the values of string attributes."""
    priorities: list[float] = field(default_factory=list)


class Durable(Struct, frozen=True):
    """Everything appended before this log position is on disk."""

    upto: int


class LinkFull(Struct, frozen=True):
    """Back-pressure: a link has too much queued, until `LinkDrained`."""

    link: str


class LinkDrained(Struct, frozen=True):
    """A clogged link has room again."""

    link: str


class AskPropagated(Struct, frozen=True):
    """Report `IsPropagated` once every broker knows the current subscriptions of clients."""

    token: str


class Tick(Struct, frozen=True):
    """Time has passed."""


Input = (
    LinkUp
    | LinkDown
    | Received
    | Subscribe
    | Unsubscribe
    | Replace
    | Publish
    | Durable
    | LinkFull
    | LinkDrained
    | AskPropagated
    | Tick
)

# ---- outputs


class Send(Struct, frozen=True):
    """Send a frame over a link. It may be lost: the broker retransmits until it is confirmed."""

    link: str
    frame: Frame


class Deliver(Struct, frozen=True):
    """Deliver events to clients: for each event of the block, the subscriptions that match it.

    `at` is the log position of the block. After a restart events may be delivered again: a client
    recognizes them by their position.
    """

    at: int
    block: Block
    matches: Sequence[list[Id]]


class Append(Struct, frozen=True):
    """Append events to the log on disk, and report `Durable` when they are there."""

    at: int
    block: Block


class Timer(Struct, frozen=True):
    """Report `Tick` at this time. Replaces an earlier timer."""

    at: float


class Close(Struct, frozen=True):
    """Close a link to an incompatible neighbour."""

    link: str
    why: str


class Alarm(Struct, frozen=True):
    """A fault that needs an operator's attention."""

    kind: str
    text: str
    link: str = ""


class Accepted(Struct, frozen=True):
    """A link is accepted for the first time, or with a new log of the neighbour.

    Persist that before anything is sent over it.
    """

    link: str
    log: str
    """Identity of the neighbour's log."""


class Renumber(Struct, frozen=True):
    """A neighbour has events of this broker up to a number that was never used here.

    New events need higher numbers. Without a journal the broker handles that itself.
    """

    above: int


class IsPropagated(Struct, frozen=True):
    """Answer to `AskPropagated`."""

    token: str


class Dropped(Struct, frozen=True):
    """Numbers of events that a link couldn't take: no broker behind it gets them."""

    link: str
    origin: str
    numbers: list[int]


Output = (
    Send | Deliver | Append | Timer | Close | Alarm | Accepted | Renumber | IsPropagated | Dropped
)
