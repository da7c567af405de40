"""What a consumer gets: an event that its subscriptions match, once, with their ids."""

from __future__ import annotations

from typing import Any, NamedTuple, Self

import msgspec

from rangecast.errors import RangecastError

_encode = msgspec.json.Encoder().encode


class Message(NamedTuple):
    """One event for one consumer."""

    seq: int
    event: bytes
    """As it was published: JSON."""
    subscriptions: bytes
    """Their ids as JSON, with commas between them."""
    shed: int = 0
    """How many messages of its second a budget has shed; said by the last that stays."""

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
            b',"shed":%d' % self.shed if self.shed else b"",
        )


class BoardMessage(Message):
    """Lists of a board that have changed, for one consumer: the event; whose they are, with it."""

    @classmethod
    def of(cls, seq: int, board: str, lists: dict[str, Any]) -> Self:
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
    """Events that are gone from the log before a consumer got them."""

    after: int
    upto: int

    def json(self, epoch: str) -> bytes:
        """Return it as a JSON object."""
        return b'{"gap":{"after":"%s:%d","upto":"%s:%d"}}' % (
            epoch.encode(),
            self.after,
            epoch.encode(),
            self.upto,
        )


class Batch(NamedTuple):
    """What a consumer gets at a time."""

    messages: list[Message]
    upto: int
    """All messages up to this seq are here or were before."""
    gap: Gap | None = None


class PositionError(RangecastError):
    """A position is none, or is one of another history."""


def position(epoch: str, seq: int) -> str:
    """Return a place in the log as a text."""
    return f"{epoch}:{seq}"


def seq_of(text: str, epoch: str, last: int) -> int:
    """Return the seq of a position; refuse one that isn't of this log."""
    first, _, number = text.partition(":")
    if not number.isdecimal() or len(number) > 18:
        raise PositionError(
            f"a position is a text such as {epoch}:123, as messages carry it\n"
            f"  given: {text[:80]!r}"
        )
    if first != epoch:
        raise PositionError(
            f"the position {text[:80]!r} is of another history; this log's epoch is {epoch!r}\n"
            "  to do: begin again at 'start' or 'now': what lies between may be lost"
        )
    if int(number) > last:
        raise PositionError(f"the position {text!r} lies beyond the log's last, {epoch}:{last}")
    return int(number)
