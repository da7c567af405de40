"""Results and errors of a client."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from rangecast.client.errors import ServerError


class RejectedRow(NamedTuple):
    """A row that the server can't use."""

    row: int
    """Its number, counted from 0."""
    reason: str


class Published(NamedTuple):
    """Events that were published."""

    accepted: int
    first: str | None
    last: str | None
    """The positions of the first and the last event."""
    rejected: list[RejectedRow]
    matches: list[list[str]] | None = None
    """The subscriptions that match each accepted event, if that was asked for."""


class PublishError(ServerError):
    """Not all events were published: some were rejected, or a request failed."""

    def __init__(
        self,
        text: str,
        status: int | None,
        published: Published,
        unpublished_from: int | None = None,
    ):
        super().__init__(text, status)
        self.published = published
        """What was accepted and rejected until then."""
        self.unpublished_from = unpublished_from
        """The row from which on events weren't sent, or got no answer; `None`: all got one."""

    @property
    def accepted(self) -> int:
        """The number of events that are published."""
        return self.published.accepted

    @property
    def rejected(self) -> list[RejectedRow]:
        """The events that the server can't use, with the reason of each."""
        return self.published.rejected


class SubscribeError(ServerError):
    """Not all of many subscriptions were saved: some were rejected, or a request failed."""

    def __init__(self, text: str, status: int | None, accepted: int, rejected: list[RejectedRow]):
        super().__init__(text, status)
        self.accepted = accepted
        """The number of subscriptions that are saved, by the requests before."""
        self.rejected = rejected


class Message(NamedTuple):
    """An event that a consumer's subscriptions match."""

    position: str
    event: dict[str, Any]
    subscriptions: list[str]
    shed: int = 0
    """How many messages of its second the consumer's budget has shed."""


class Ranked(NamedTuple):
    """An object of a list."""

    object: str
    y: float
    x: Any
    """Where it lies: a number, or over a space a dict of values."""


def ranked(row: Mapping[str, Any]) -> Ranked:
    """Return an object of a list as the server gives it."""
    return Ranked(row["object"], row["y"], row["values"] if "values" in row else row["x"])


class Lists(NamedTuple):
    """Lists of a board that have changed."""

    position: str
    board: str
    lists: dict[str, list[Ranked]]
    """The new list of each interest, the best first."""


class Messages(NamedTuple):
    """Some messages of a consumer."""

    items: list[Any]
    """`Message`, or `Lists` if the consumer is of a board."""
    position: str
    """All messages up to here are in `items`, or were before: what to acknowledge."""
    gap: dict[str, str] | None = None
    """What is gone from the log before this consumer got it."""


def message(row: Mapping[str, Any]) -> Message | Lists:
    """Return a message as the server gives it."""
    if "lists" in row:
        lists = {
            found["interest"]: [ranked(one) for one in found["best"]] for found in row["lists"]
        }
        return Lists(row["position"], row["board"], lists)
    return Message(row["position"], row["event"], row["subscriptions"], row.get("shed", 0))
