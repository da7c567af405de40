"""Messages to consumers: an event, once, with the ids of the subscriptions that match it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Self

import msgspec

from rangecast.errors import RangecastError
from rangecast.model.sets.members import Id

_encode = msgspec.json.Encoder().encode


class Message(NamedTuple):
    """One event for one consumer."""

    seq: int
    event: bytes
    """As it was published: JSON."""
    subscriptions: bytes
    """Their ids as JSON, with commas between them."""
    dropped: int = 0
    """Messages of its second that the rate limit dropped; set in the last one that stays."""

    @property
    def size(self) -> int:
        """Roughly its bytes."""
        return len(self.event) + len(self.subscriptions) + 64

    def json(self, epoch: str) -> bytes:
        """Return it as a JSON object."""
        return b'{"position":"%s:%d","seq":%d,"event":%s,"subscriptions":[%s]%s}' % (
            epoch.encode(),
            self.seq,
            self.seq,
            self.event,
            self.subscriptions,
            b',"dropped":%d' % self.dropped if self.dropped else b"",
        )


class BoardMessage(Message):
    """Lists of a board that have changed, for one consumer: the event; whose they are, with it."""

    @classmethod
    def of(cls, seq: int, board: str, lists: Mapping[Id, Any]) -> Self:
        """Return new lists, by interest."""
        items = [{"interest": name, "best": best} for name, best in lists.items()]
        return cls(seq, _encode({"board": board, "lists": items}), b",".join(map(_encode, lists)))

    def json(self, epoch: str) -> bytes:
        """Return it as a JSON object."""
        return b'{"position":"%s:%d","seq":%d,%s' % (
            epoch.encode(),
            self.seq,
            self.seq,
            self.event[1:],
        )


class Gap(NamedTuple):
    """Events that a consumer doesn't get."""

    after: int
    upto: int
    reason: str = "retention"
    """`retention`: they are gone from the log. `history`: they were in another history (`lost`).
    `link`: they are gone from the log of another server, and didn't get here."""
    lost: str = ""
    """The position that the consumer had in the other history."""

    def json(self, epoch: str) -> bytes:
        """Return it as a JSON object."""
        after = self.lost or position(epoch, self.after)
        gap = {"after": after, "upto": position(epoch, self.upto), "reason": self.reason}
        return _encode({"gap": gap})


class Batch(NamedTuple):
    """Messages of one read, and the seq up to which it went."""

    messages: list[Message]
    upto: int
    """All messages up to this seq are here or were before."""
    gap: Gap | None = None


class PositionError(RangecastError):
    """A position is none, or is one of another history."""


def position(epoch: str, seq: int) -> str:
    """Return a place in the log as a text."""
    return f"{epoch}:{seq}"
