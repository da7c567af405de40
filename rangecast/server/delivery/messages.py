"""Messages to consumers: an event with the ids of all subscriptions that match it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any, NamedTuple, Self

import msgspec

from rangecast.errors import RangecastError
from rangecast.model.sets.members import Id
from rangecast.server.state.tracks.transitions import Derived

WINDOW = 500
WINDOW_BYTES = 1 << 20
"""Messages, and their bytes, that may wait for a live listener."""
_MIN_ID_BYTES = 2
"""Bytes of an id in a message, with a comma."""
_encode = msgspec.json.Encoder().encode


class Message(NamedTuple):
    """One event for one consumer."""

    seq: int
    event: bytes
    """The published JSON text."""
    subscriptions: bytes
    """Their ids as JSON, with commas between them."""
    dropped: int = 0
    """Messages of its second that the rate limit dropped; set in the last one that stays."""

    @property
    def size(self) -> int:
        """Approximate size in bytes."""
        return len(self.event) + len(self.subscriptions) + 64

    def json(self, epoch: str) -> bytes:
        """Return the message as a JSON object."""
        return b'{"position":"%s:%d","seq":%d,"event":%s,"subscriptions":[%s]%s}' % (
            epoch.encode(),
            self.seq,
            self.seq,
            self.event,
            self.subscriptions,
            b',"dropped":%d' % self.dropped if self.dropped else b"",
        )


class TransitionMessage(Message):
    """Transition of a tracked object, or digest of several, for one consumer."""

    @classmethod
    def of(cls, seq: int, derived: Derived, event: bytes) -> Self:
        """Return the message for a transition; `event` is `null` if no event caused it."""
        return cls(seq, event, b"%s],%s" % (_encode(derived.ids)[1:-1], derived.shown()))

    def json(self, epoch: str) -> bytes:
        """Return the message as a JSON object."""
        return b'{"position":"%s:%d","seq":%d,"event":%s,"subscriptions":[%s%s}' % (
            epoch.encode(),
            self.seq,
            self.seq,
            self.event,
            self.subscriptions,
            b',"dropped":%d' % self.dropped if self.dropped else b"",
        )


class BoardMessage(Message):
    """Changed lists of a board for one consumer, by interest."""

    @classmethod
    def of(cls, seq: int, board: str, lists: Mapping[Id, Any]) -> Self:
        """Return the message for new lists, by interest."""
        items = [{"interest": name, "best": best} for name, best in lists.items()]
        return cls(seq, _encode({"board": board, "lists": items}), b",".join(map(_encode, lists)))

    def json(self, epoch: str) -> bytes:
        """Return the message as a JSON object."""
        return b'{"position":"%s:%d","seq":%d,%s' % (
            epoch.encode(),
            self.seq,
            self.seq,
            self.event[1:],
        )


class Mailbox:
    """Messages of a batch for one consumer; all are dropped if they exceed the window."""

    def __init__(self, *, is_bounded: bool = True) -> None:
        self.messages: list[Message] = []
        self._is_bounded = is_bounded
        self.is_dropped = False
        """Whether messages exceeded the window and were dropped; listeners read the log then."""
        self._bytes = 0

    def add(self, message: Message) -> None:
        """Add a message; drop all of them if they exceed the window."""
        if self.is_dropped:
            return
        self.messages.append(message)
        self._bytes += message.size
        if self._is_bounded and (len(self.messages) > WINDOW or self._bytes > WINDOW_BYTES):
            self._drop()

    def has_room(self, ids: int) -> bool:
        """Return whether messages with this many ids may fit; drop the batch if not."""
        if self._is_bounded and _MIN_ID_BYTES * ids > WINDOW_BYTES:
            self._drop()
        return not self.is_dropped

    def _drop(self) -> None:
        self.messages.clear()
        self.is_dropped = True


Mailboxes = defaultdict[int, Mailbox]
"""By the number of the consumer."""


class Gap(NamedTuple):
    """Range of events that a consumer has lost."""

    after: int
    upto: int
    reason: str = "retention"
    """`retention`: they are gone from the log. `history`: they were in another history (`lost`).
    `link`: they are gone from the log of another server, and didn't get here."""
    lost: str = ""
    """The position that the consumer had in the other history."""

    def json(self, epoch: str) -> bytes:
        """Return the gap as a JSON object."""
        after = self.lost or position(epoch, self.after)
        gap = {"after": after, "upto": position(epoch, self.upto), "reason": self.reason}
        return _encode({"gap": gap})


class Batch(NamedTuple):
    """Messages of one read, and the seq up to which the log was read."""

    messages: list[Message]
    upto: int
    """All messages up to this seq are here or were before."""
    gap: Gap | None = None


class PositionError(RangecastError):
    """A position is malformed, or belongs to another history."""


def position(epoch: str, seq: int) -> str:
    """Return a log position as text."""
    return f"{epoch}:{seq}"
