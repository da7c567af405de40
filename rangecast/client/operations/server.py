"""Client operations besides those of `Engine`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any
from urllib.parse import quote

from rangecast.client.operations.base import Operation
from rangecast.client.operations.calls import Calls, no_result
from rangecast.client.operations.many import Publishing
from rangecast.client.operations.parts import encode
from rangecast.client.operations.requests import Call
from rangecast.client.results import Messages, Published, message
from rangecast.errors import RangecastError, RejectedRow
from rangecast.model.sets.members import Id
from rangecast.model.space import Space
from rangecast.model.validation.flags import flag
from rangecast.model.validation.inputs import as_space
from rangecast.track.delivery.policies import Policy


def put_space(
    client: Calls, name: str, space: Space, *, track: Mapping[str, Any] | None = None
) -> Call[None]:
    """Create a space, or add attributes and categories to it.

    track   settings for tracking its objects: `key` and `time`; `after`, `lateness` and `inside` as
            in `Tracker`; `clock`: how far time lags the server's clock when no events arrive
    """
    tracked = {} if track is None else {"track": dict(track)}
    body = encode(as_space(space).definition() | tracked)
    return Call("PUT", f"/v1/spaces/{quote(name, safe='')}", body, no_result)


def delete_board(client: Calls, name: str) -> Call[None]:
    """Delete a board with its objects and interests; rejected while it has consumers."""
    path = f"/v1/boards/{quote(name, safe='')}"
    return Call("DELETE", path, read=no_result, repeatable=False)


def publish(
    client: Calls,
    events: Any,
    *,
    matches: bool = False,
    key: str | None = None,
    ignore_unknown: bool = False,
    rejected: list[RejectedRow] | None = None,
) -> Operation[Published]:
    """Publish events; they are durable when this returns.

    Takes one dict, a list of dicts, the path of a file, an Arrow table or a DataFrame; many events
    take several requests. A request whose answer is lost is retried, and applied once. If not all
    events are published, a `PublishError` lists the results.

    matches    also wait for the subscriptions that match them
    key        idempotency key: repeated calls with the same key are applied once
    rejected   a list that gets the events that the server can't use, instead of the error
    """
    params: dict[str, Any] = {"ignore_unknown": flag("ignore_unknown", ignore_unknown)}
    if flag("matches", matches):
        params["wait"] = "matches"
    asked = Publishing(client._in_space("/events"), events, params, key)
    for call in asked:
        try:
            answer = yield call
        except RangecastError as error:
            raise asked.failed(error) from None
        asked.add(answer)
    return asked.result(rejected)


def wait_until_propagated(client: Calls, subscription: Id) -> Call[bool]:
    """Wait until all linked servers know a subscription; return whether they do.

    Returns False after 30 seconds if some can't be reached; call it again then.
    """
    path, params = client._subscription(subscription), {"wait": "propagated"}
    return Call("GET", path, read=itemgetter("propagated"), params=params)


def put_consumer(
    client: Calls, /, name: str, *, start_at: str = "now", **options: Any
) -> Call[dict[str, Any]]:
    """Create a consumer that starts at 'start', 'now' or a position, or change its options.

    options   `board`, `on_gap`, `max_per_event`, `max_per_second`, `policy` (a `Policy`: delivery
              policy over all of its subscriptions), `delivery`
    """
    is_named = "board" in options or "space" in options
    source = {} if is_named else {"space": client._space}
    policy = options.get("policy")
    if isinstance(policy, Policy):
        options["policy"] = policy.definition()
    return Call("PUT", _consumer(name), encode(source | {"start_at": start_at} | options))


def consumers(client: Calls) -> Call[list[dict[str, Any]]]:
    """Return the consumers: the position of each, its lag and its delivery."""
    return Call("GET", "/v1/consumers", read=itemgetter("items"))


def consumer(client: Calls, name: str) -> Call[dict[str, Any]]:
    """Return a consumer: its position, its lag and its delivery."""
    return Call("GET", _consumer(name))


def delete_consumer(client: Calls, name: str) -> Call[None]:
    """Delete a consumer and its subscriptions."""
    return Call("DELETE", _consumer(name), read=no_result, repeatable=False)


def messages(
    client: Calls, consumer: str, *, wait: float = 0.0, limit: int = 500
) -> Call[Messages]:
    """Return the messages after the acknowledged position.

    wait    maximum seconds to wait for messages
    limit   maximum number of messages
    """

    def read(answer: Any) -> Messages:
        items = [message(item) for item in answer["items"]]
        return Messages(items, answer["position"], answer.get("gap"))

    params = {"wait": wait, "limit": limit}
    return Call("GET", _consumer(consumer, "/messages"), read=read, params=params)


def acknowledge(client: Calls, consumer: str, position: str) -> Call[str]:
    """Record that all messages up to a position have arrived."""
    body = encode({"position": position})
    return Call("POST", _consumer(consumer, "/ack"), body, itemgetter("position"))


def seek(
    client: Calls,
    consumer: str,
    position: str,
    *,
    subscriptions: str = "historical",
) -> Call[str]:
    """Move a consumer to 'start', 'now' or a position.

    subscriptions   which ones past events are matched with: those of that time (`historical`), or
                    the `current` ones
    """
    body = encode({"position": position, "subscriptions": subscriptions})
    return Call("POST", _consumer(consumer, "/seek"), body, itemgetter("position"))


def spaces(client: Calls) -> Call[list[str]]:
    """Return the names of the spaces."""
    return Call(
        "GET", "/v1/spaces", read=lambda answer: [space["name"] for space in answer["items"]]
    )


def make_token(
    client: Calls, label: str, scopes: Sequence[str] | None = None, *, tenant: str = "default"
) -> Call[str]:
    """Create a token and return it; the server stores only its digest."""
    chosen = {} if scopes is None else {"scopes": list(scopes)}
    body = encode({"label": label, "tenant": tenant} | chosen)
    return Call("POST", "/v1/tokens", body, itemgetter("token"), repeatable=False)


def ready(client: Calls) -> Call[str]:
    """Return 'ok' if events can be published, else the reason."""
    return Call("GET", "/readyz", read=itemgetter("status"), answers=(503,))


def status(client: Calls) -> Call[dict[str, Any]]:
    """Return the state of the server: epoch, positions, durability, counts, limits."""
    return Call("GET", "/v1/status")


def _consumer(name: str, rest: str = "") -> str:
    return f"/v1/consumers/{quote(name, safe='')}{rest}"
