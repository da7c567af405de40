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
    """A link to a neighbour can be used, for the first time or again."""

    link: str


class LinkDown(Struct, frozen=True):
    """A link can no longer be used; `forget` it, and what came over it, if it won't come back."""

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
    """Subscriptions of clients get other filters, all at this very moment; see `Subscribe`."""

    subscriptions: Any


class Publish(Struct, frozen=True):
    """Clients of this broker publish events, as `Engine.match_many` takes them, or points (n, d).

    An event is accepted once it is durable. Where a link can't take all, those of a higher
    priority go first.
    """

    events: Any
    ids: list[Id] | None = None
    words: dict[str, list[str | None]] | None = None
    """With points: the values of string attributes, which points don't tell."""
    priorities: list[float] = field(default_factory=list)


class Durable(Struct, frozen=True):
    """All that was appended before this place of the log is on disk."""

    upto: int


class Clogged(Struct, frozen=True):
    """More waits to be sent over a link than should: `Drained` comes when that is over."""

    link: str


class Drained(Struct, frozen=True):
    """A link that was clogged can take more."""

    link: str


class AskPropagated(Struct, frozen=True):
    """Say `IsPropagated` once every broker knows what clients of this one want by now."""

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
    | Clogged
    | Drained
    | AskPropagated
    | Tick
)

# ---- outputs


class Send(Struct, frozen=True):
    """Send a frame over a link. It may be lost: a broker sends again what matters."""

    link: str
    frame: Frame


class Deliver(Struct, frozen=True):
    """Hand events to clients: for each event of the block, the subscriptions that it matches.

    `at` is the place of the block in the log. After a restart events may come again: a client
    knows them by their place.
    """

    at: int
    block: Block
    matches: Sequence[list[Id]]


class Append(Struct, frozen=True):
    """Append events to the log on disk, and say `Durable` when they are there."""

    at: int
    block: Block


class Timer(Struct, frozen=True):
    """Say `Tick` at this time. It replaces a timer that was set before."""

    at: float


class Close(Struct, frozen=True):
    """Close a link: its neighbour can't be talked to."""

    link: str
    why: str


class Alarm(Struct, frozen=True):
    """A fault that needs the attention of an operator."""

    kind: str
    text: str
    link: str = ""


class Accepted(Struct, frozen=True):
    """A link is accepted for the first time, or with another log of its neighbour: write that down,
    before anything is sent over it.
    """

    link: str
    log: str
    """The identity of the neighbour's log."""


class Renumber(Struct, frozen=True):
    """A neighbour has events of this broker up to a number that wasn't given here: events that are
    published from now on need higher ones. Without a journal the broker sees to that itself.
    """

    above: int


class IsPropagated(Struct, frozen=True):
    """The answer to `AskPropagated`."""

    token: str


class Dropped(Struct, frozen=True):
    """Events, by their numbers, that a link couldn't take: no broker behind it gets them."""

    link: str
    origin: str
    numbers: list[int]


Output = (
    Send | Deliver | Append | Timer | Close | Alarm | Accepted | Renumber | IsPropagated | Dropped
)
