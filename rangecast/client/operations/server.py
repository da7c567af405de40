"""Requests of a client beside those of a set."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rangecast.client.operations.base import Operation
from rangecast.client.operations.calls import Calls
from rangecast.client.results import Messages, Published
from rangecast.errors import RangecastError, RejectedRow
from rangecast.model.sets.members import Id
from rangecast.model.space import Space


def put_space(client: Calls, name: str, space: Space) -> Operation[None]:
    """Make a space, or add attributes and categories to it."""
    yield client._put_space(name, space)


def delete_board(client: Calls, name: str) -> Operation[None]:
    """End a board, with its objects and interests; its consumers are deleted before."""
    yield client._delete_board(name)


def publish(
    client: Calls,
    events: Any,
    *,
    matches: bool = False,
    key: str | None = None,
    ignore_unknown: bool = False,
    rejected: list[RejectedRow] | None = None,
) -> Operation[Published]:
    """Publish events; when this returns, they are durable.

    They are one dict, a list of dicts, the path of a file, an Arrow table or a DataFrame; many
    of them take several requests. A request whose answer is lost is repeated, and carried out
    once. If not all are published, a `PublishError` says which are.

    matches    wait for the subscriptions that match them, too
    key        for a call that may be repeated: the same key is carried out once
    rejected   a list that gets the events that the server can't use, instead of the error
    """
    options: Any = {"matches": matches, "key": key, "ignore_unknown": ignore_unknown}
    asked = client._publishing(events, **options)
    for call in asked:
        try:
            answer = yield call
        except RangecastError as error:
            raise asked.failed(error) from None
        asked.add(answer)
    return asked.result(rejected)


def wait_until_propagated(client: Calls, subscription: Id) -> Operation[bool]:
    """Wait until all linked servers know of a subscription; return whether they do.

    After 30 seconds the answer is no: some of them can't be reached. Ask again then.
    """
    propagated: bool = yield client._propagated(subscription)
    return propagated


def put_consumer(
    client: Calls, /, name: str, *, start_at: str = "now", **options: Any
) -> Operation[dict[str, Any]]:
    """Create a consumer that starts at 'start', 'now' or a position."""
    found: dict[str, Any] = yield client._put_consumer(name, {"start_at": start_at} | options)
    return found


def consumers(client: Calls) -> Operation[list[dict[str, Any]]]:
    """Return the consumers: the position of each, its lag and its delivery."""
    found: list[dict[str, Any]] = yield client._consumers()
    return found


def consumer(client: Calls, name: str) -> Operation[dict[str, Any]]:
    """Return a consumer: its position, its lag and its delivery."""
    found: dict[str, Any] = yield client._get_consumer(name)
    return found


def delete_consumer(client: Calls, name: str) -> Operation[None]:
    """End a consumer, with its subscriptions."""
    yield client._delete_consumer(name)


def messages(
    client: Calls, consumer: str, *, wait: float = 0.0, limit: int = 500
) -> Operation[Messages]:
    """Return the messages after what was acknowledged.

    wait    seconds to wait for some, at most
    limit   messages at most
    """
    found: Messages = yield client._pull(consumer, wait, limit)
    return found


def acknowledge(client: Calls, consumer: str, position: str) -> Operation[str]:
    """Note that all messages up to a position have arrived."""
    found: str = yield client._ack(consumer, position)
    return found


def seek(
    client: Calls,
    consumer: str,
    position: str,
    *,
    subscriptions: str = "historical",
) -> Operation[str]:
    """Move a consumer to 'start', 'now' or a position.

    subscriptions   to match past events with: `historical`, those of that time, or `current`
    """
    found: str = yield client._seek(consumer, position, subscriptions)
    return found


def spaces(client: Calls) -> Operation[list[str]]:
    """Return the names of the spaces."""
    found: list[str] = yield client._spaces()
    return found


def make_token(
    client: Calls, label: str, scopes: Sequence[str] | None = None, *, tenant: str = "default"
) -> Operation[str]:
    """Make a token and return it; the server keeps only its digest."""
    found: str = yield client._make_token(label, scopes, tenant)
    return found


def ready(client: Calls) -> Operation[str]:
    """Return 'ok' if events can be published, else why they can't."""
    found: str = yield client._ready()
    return found


def status(client: Calls) -> Operation[dict[str, Any]]:
    """Return the state of the server: epoch, positions, durability, counts, limits."""
    found: dict[str, Any] = yield client._status()
    return found
