"""Client operations with the same names as in `Engine`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from operator import itemgetter
from typing import Any

from rangecast.client.operations.base import Operation
from rangecast.client.operations.calls import Calls, no_result, subscription_body
from rangecast.client.operations.many import BulkOptions, Subscribing, is_file
from rangecast.client.operations.requests import IS_NEW, Call, Condition
from rangecast.client.results import selected
from rangecast.errors import RangecastError, RejectedRow, UnknownIdError
from rangecast.kernels.arrays import I64
from rangecast.model.boxes import Boxes
from rangecast.model.filters.filter import Filter
from rangecast.model.sets.base import Subscription, UpsertResult
from rangecast.model.sets.members import Id, Members, as_id
from rangecast.model.validation.flags import flag
from rangecast.model.validation.inputs import as_filter
from rangecast.track.rules import Rule

_MAX_IDS = 10_000
"""Maximum number of ids per request."""


def _text(client: Calls, value: Any) -> Operation[str]:
    """Return a filter as text; bounds need the space of the server."""
    if isinstance(value, str | Filter):
        return str(value)
    space = yield client._get_space()
    return str(as_filter(value, space))


# ---- edits


def subscribe(
    client: Calls,
    subscription: Id,
    filter: str | Filter,  # noqa: A002
    *,
    score: float = 0.0,
    weights: Mapping[str, float] | None = None,
    consumer: str | None = None,
    ttl: float | None = None,
    create_consumer: bool = False,
    track: Rule | Mapping[str, Any] | None = None,
) -> Operation[None]:
    """Add a subscription; its id must be new. Every later event is matched with it.

    consumer          the consumer of its matches
    ttl               seconds until it expires
    create_consumer   create the consumer if it doesn't exist
    track             track rule: the consumer gets transitions instead of matches; a mapping may
                      also have `on`, the kinds of transitions
    """
    text = yield from _text(client, filter)
    wanted = subscription_body(text, score, weights, consumer, ttl, track)
    yield client._put(subscription, wanted, IS_NEW, create_consumer=create_consumer)


def upsert(
    client: Calls,
    subscription: Id,
    filter: str | Filter,  # noqa: A002
    *,
    score: float = 0.0,
    weights: Mapping[str, float] | None = None,
    consumer: str | None = None,
    ttl: float | None = None,
    create_consumer: bool = False,
    track: Rule | Mapping[str, Any] | None = None,
) -> Operation[bool]:
    """Add a subscription, or replace the one with this id entirely; return whether it is new.

    A replaced subscription keeps its position in ties. The options are those of `subscribe`.
    """
    text = yield from _text(client, filter)
    wanted = subscription_body(text, score, weights, consumer, ttl, track)
    answer = yield client._put(subscription, wanted, None, create_consumer=create_consumer)
    return bool(answer["created"])


def replace(
    client: Calls,
    subscription: Id,
    filter: str | Filter,  # noqa: A002
    *,
    score: float | None = None,
    weights: Mapping[str, float] | None = None,
    consumer: str | None = None,
    ttl: float | None = None,
    track: Rule | Mapping[str, Any] | None = None,
) -> Operation[None]:
    """Replace a subscription's filter; it keeps its position in ties.

    Its score, weights, consumer, expiry and track rule stay unless given.
    """
    text = yield from _text(client, filter)
    yield client._patch(subscription, subscription_body(text, score, weights, consumer, ttl, track))


def rescore(
    client: Calls,
    subscription: Id,
    score: float | None = None,
    *,
    weights: Mapping[str, float] | None = None,
) -> Call[None]:
    """Set the score or the weights of a subscription; values not given stay unchanged."""
    wanted = subscription_body(None, score, weights, None, None)
    return client._patch(subscription, wanted)._replace(read=no_result)


def unsubscribe(client: Calls, subscription: Id) -> Call[None]:
    """Remove a subscription."""
    return Call("DELETE", client._known(subscription), read=no_result, repeatable=False)


def unsubscribe_many(client: Calls, subscriptions: Iterable[Id]) -> Operation[int]:
    """Remove subscriptions; return their number. An id given twice counts once.

    Each request removes up to 10,000, all or none.
    """
    known = [as_id(subscription) for subscription in Members().listed(subscriptions)]
    ids = list(dict.fromkeys(known))
    for first in range(0, len(ids), _MAX_IDS):
        yield client._by_ids("delete", ids[first : first + _MAX_IDS])
    return len(ids)


def subscribe_many(
    client: Calls,
    subscriptions: Any,
    *,
    rejected: list[RejectedRow] | None = None,
    consumer: str | None = None,
    create_consumer: bool = False,
    progress: Callable[[int], None] | None = None,
    id: str | None = None,  # noqa: A002
) -> Operation[int]:
    """Add subscriptions, whose ids must be new; return their number.

    Takes the path of a file, an Arrow table, a DataFrame, a list of dicts or a dict of
    columns, with the columns of a file (docs/how-to/spaces.md), `consumer` and `ttl`. Each request
    adds up to 5,000, all or none.

    rejected          a list that receives the rejected rows, while the others are saved; by
                      default, the first rejected row raises an error
    consumer          the consumer of rows that name none
    create_consumer   create the consumers that don't exist
    progress          is called with the rows of each request
    id                the column of the ids, if it isn't `id`
    """
    options = BulkOptions(rejected, consumer, create_consumer, progress, id=id)
    return sum((yield from _put_many(client, subscriptions, IS_NEW, options)))


def replace_many(
    client: Calls,
    subscriptions: Any,
    *,
    rejected: list[RejectedRow] | None = None,
    consumer: str | None = None,
    progress: Callable[[int], None] | None = None,
) -> Operation[int]:
    """Replace the filters of subscriptions; return their number. Takes what `subscribe_many` takes.

    They keep their positions in ties. Scores, weights, consumers and expiries stay unless given.
    """
    options = BulkOptions(rejected, consumer, False, progress, is_patch=True)
    return sum((yield from _put_many(client, subscriptions, None, options)))


def upsert_many(
    client: Calls,
    subscriptions: Any,
    *,
    rejected: list[RejectedRow] | None = None,
    consumer: str | None = None,
    create_consumer: bool = False,
    progress: Callable[[int], None] | None = None,
) -> Operation[UpsertResult]:
    """Add new subscriptions and replace existing ones entirely; return both counts.

    Takes what `subscribe_many` takes.
    """
    options = BulkOptions(rejected, consumer, create_consumer, progress)
    return (yield from _put_many(client, subscriptions, None, options))


def _put_many(
    client: Calls, subscriptions: Any, condition: Condition, options: BulkOptions
) -> Operation[UpsertResult]:
    space = (yield client._get_space()) if is_file(subscriptions) else None
    flag("create_consumer", options.create_consumer)
    path = client._in_space("/subscriptions:bulk")
    asked = Subscribing(path, subscriptions, space, condition, options)
    for call in asked:
        try:
            answer = yield call
        except RangecastError as error:
            raise asked.failed(error) from None
        asked.add(answer)
    return asked.result()


# ---- the set


def get(client: Calls, subscription: Id) -> Call[Subscription]:
    """Return the filter, the score and the weights of a subscription."""
    return client._get(subscription)


def contains(client: Calls, subscription: object) -> Operation[bool]:
    """Return whether a subscription with this id exists."""
    if isinstance(subscription, bool) or not isinstance(subscription, str | int):
        return False
    try:
        yield client._get(subscription)
    except UnknownIdError:
        return False
    return True


def size(client: Calls) -> Call[int]:
    """Return the number of subscriptions."""
    return client._page("", 1)._replace(read=itemgetter("count"))


def select(client: Calls, subscriptions: Iterable[Id]) -> Operation[tuple[Boxes, I64]]:
    """Return the subscriptions with these ids, and the position of each in the order of arrival.

    The boxes have their own copy of the server's space.
    """
    ids = [as_id(subscription) for subscription in Members().listed(subscriptions)]
    space = yield client._get_space()
    items: list[Any] = []
    for first in range(0, len(ids), _MAX_IDS):
        items += (yield client._by_ids("select", ids[first : first + _MAX_IDS]))["items"]
    return selected(space, items)


def explain(client: Calls) -> Call[str]:
    """Describe the set: its structures, why they were chosen, and their memory."""
    return Call("GET", client._in_space("/explain"), read=itemgetter("text"))
