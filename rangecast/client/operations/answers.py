"""Client operations that answer events: match, count, rank and explain, as in `Engine`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

import numpy as np

from rangecast.client.operations.base import Operation
from rangecast.client.operations.calls import Calls
from rangecast.client.operations.event_parts import EventParts, checked_event
from rangecast.client.operations.requests import Call
from rangecast.client.results import explanation, matches_of, rankings_of
from rangecast.errors import RangecastError, UsageError
from rangecast.kernels.arrays import I64
from rangecast.model.explain import Explanation
from rangecast.model.io.kept_columns import as_names
from rangecast.model.sets.members import Id, as_id
from rangecast.model.validation.arguments import check_integer
from rangecast.model.validation.flags import flag
from rangecast.rank.scores.combine import Combine
from rangecast.rank.scores.tolerances import Tolerances, check_tolerances, write_tolerances
from rangecast.results import Matches, Rankings

AsOf = int | str | datetime
"""A seq; a position, or a timestamp as text; a time with a zone."""


def match(
    client: Calls,
    event: Mapping[str, Any],
    *,
    ignore_unknown: bool = False,
    nan: str = "error",
    as_of: AsOf | None = None,
) -> Operation[list[Id]]:
    """Return the subscriptions that match one event, in order of arrival; it isn't published.

    ignore_unknown   ignore fields that are not attributes of the space
    nan              "error": NaN in an event is rejected; "missing": it is a missing value
    as_of            answer with the subscriptions as they were at a seq, a position, or a time with
                     a zone
    """
    parts = EventParts([checked_event(event)], nan)
    answers = yield from _matched(client, parts, ignore_unknown, as_of)
    if isinstance(answers[0], RangecastError):
        raise answers[0]
    ids: list[Id] = answers[0]
    return ids


def match_many(
    client: Calls,
    events: Any,
    *,
    ignore_unknown: bool = False,
    nan: str = "error",
    id: str | None = None,  # noqa: A002
    keep: str | Sequence[str] = (),
    as_of: AsOf | None = None,
) -> Operation[Matches]:
    """Return the subscriptions that match each event; they aren't published.

    Takes the path of a file, an Arrow table, a DataFrame, a list of dicts or a dict of
    columns. Each request has up to 5,000 events; edits may happen between requests.

    ignore_unknown   ignore fields that are not attributes of the space
    nan              "error": NaN in an event is rejected; "missing": it is a missing value
    id               the column of the ids of events, if it isn't `id`
    keep             columns of events that `table()` of the result has, too
    as_of            as in `match`
    """
    parts = yield from _parts(client, events, nan, id, keep)
    answers = yield from _matched(client, parts, ignore_unknown, as_of, is_strict=True)
    return matches_of(answers, parts.labels())


def _parts(
    client: Calls,
    events: Any,
    nan: str,
    id: str | None,  # noqa: A002
    keep: str | Sequence[str],
) -> Operation[EventParts]:
    names = (id or "id", *as_names(keep))
    if names == ("id",):
        return EventParts(events, nan)
    space = yield client._get_space()
    return EventParts(events, nan, names=names, fields=space.fields)


def match_each(
    client: Calls,
    events: Iterable[Mapping[str, Any]],
    *,
    ignore_unknown: bool = False,
    nan: str = "error",
    as_of: AsOf | None = None,
) -> Operation[list[list[Id] | RangecastError]]:
    """Return the subscriptions that match each event, or the error of a rejected event.

    A rejected event doesn't affect the others. The options are those of `match`.
    """
    parts = EventParts(list(events), nan, one_by_one=True)
    answers: list[list[Id] | RangecastError] = yield from _matched(
        client, parts, ignore_unknown, as_of
    )
    return answers


def count(
    client: Calls,
    event: Mapping[str, Any],
    *,
    ignore_unknown: bool = False,
    nan: str = "error",
    as_of: AsOf | None = None,
) -> Operation[int]:
    """Return the number of subscriptions that match one event, without listing them.

    The event isn't published. The options are those of `match`.
    """
    parts = EventParts([checked_event(event)], nan)
    answers = yield from _counted(client, parts, ignore_unknown, as_of, is_strict=False)
    if isinstance(answers[0], RangecastError):
        raise answers[0]
    return int(answers[0])


def count_many(
    client: Calls,
    events: Any,
    *,
    ignore_unknown: bool = False,
    nan: str = "error",
    as_of: AsOf | None = None,
) -> Operation[I64]:
    """Return the number of matching subscriptions per event; `events` is as in `match_many`."""
    parts = EventParts(events, nan)
    answers = yield from _counted(client, parts, ignore_unknown, as_of, is_strict=True)
    return np.array(answers, np.int64)


def _matched(
    client: Calls,
    parts: EventParts,
    ignore_unknown: bool,
    as_of: AsOf | None,
    *,
    is_strict: bool = False,
) -> Operation[list[Any]]:
    options = {"ignore_unknown": flag("ignore_unknown", ignore_unknown), **_as_of(as_of)}
    return (yield from _answers(client, parts, ("match", "matches"), options, is_strict=is_strict))


def _counted(
    client: Calls,
    parts: EventParts,
    ignore_unknown: bool,
    as_of: AsOf | None,
    *,
    is_strict: bool,
) -> Operation[list[Any]]:
    options = {"ignore_unknown": flag("ignore_unknown", ignore_unknown), **_as_of(as_of)}
    return (yield from _answers(client, parts, ("count", "counts"), options, is_strict=is_strict))


def _as_of(as_of: AsOf | None) -> dict[str, str]:
    """Return the parameter of a request for an earlier seq or time."""
    if as_of is None:
        return {}
    if isinstance(as_of, datetime):
        if as_of.tzinfo is None:
            raise UsageError(
                f"as_of must be a time with a zone; given: {as_of!r}\n"
                "  hint: datetime.now(UTC), or as_of.astimezone() for a local time"
            )
        return {"as_of": as_of.isoformat()}
    return {"as_of": as_of if isinstance(as_of, str) else str(check_integer("as_of", as_of, 0))}


def _answers(
    client: Calls,
    parts: EventParts,
    verb: tuple[str, str],
    options: dict[str, Any],
    *,
    is_strict: bool,
) -> Operation[list[Any]]:
    """Return the result or the error of each event.

    verb   its route, and the field of the response that has the results
    """
    route, name = verb
    answers: list[Any] = []
    for body in parts:
        path = client._in_space(f"/events:{route}")
        answer = yield Call("POST", path, body, params=options)
        answers += parts.taken(answer, name, is_strict=is_strict)
    return answers


def rank(
    client: Calls,
    event: Mapping[str, Any],
    k: int = 10,
    *,
    relaxed: bool = False,
    combine: Combine = "sum",
    tolerances: Tolerances | None = None,
    ignore_unknown: bool = False,
    nan: str = "error",
    as_of: AsOf | None = None,
) -> Operation[list[tuple[Id, float]]]:
    """Return the top k subscriptions of one event and their scores, best first.

    The options are those of `rank_many`.
    """
    parts = EventParts([checked_event(event)], nan)
    options = _rank_options(k, relaxed, combine, tolerances, ignore_unknown) | _as_of(as_of)
    answers = yield from _ranked(client, parts, options, is_strict=False)
    if isinstance(answers[0], RangecastError):
        raise answers[0]
    best: list[tuple[Id, float]] = answers[0]
    return best


def rank_many(
    client: Calls,
    events: Any,
    k: int = 10,
    *,
    relaxed: bool = False,
    combine: Combine = "sum",
    tolerances: Tolerances | None = None,
    ignore_unknown: bool = False,
    nan: str = "error",
    id: str | None = None,  # noqa: A002
    keep: str | Sequence[str] = (),
    as_of: AsOf | None = None,
) -> Operation[Rankings]:
    """Return the top k subscriptions of each event. Takes events as `match_many` does.

    relaxed   one matching attribute is enough, and the score is the sum of the weights of the
              matching ones
    combine   how a relaxed ranking combines these weights: "sum", "product", "min" or "max"
    tolerances   in a relaxed ranking, distance by attribute below which a value outside its range
                 still counts, as in `Engine.rank_many`
    ignore_unknown   ignore fields that are not attributes of the space
    nan              "error": NaN in an event is rejected; "missing": it is a missing value
    id               the column of the ids of events, if it isn't `id`
    keep             columns of events that `table()` of the result has, too
    as_of            as in `match`
    """
    options = _rank_options(k, relaxed, combine, tolerances, ignore_unknown) | _as_of(as_of)
    parts = yield from _parts(client, events, nan, id, keep)
    answers = yield from _ranked(client, parts, options, is_strict=True)
    return rankings_of(answers, parts.labels())


def _rank_options(
    k: int, relaxed: bool, combine: str, tolerances: Tolerances | None, ignore_unknown: bool
) -> dict[str, Any]:
    check_tolerances(tolerances, relaxed=relaxed)
    return {
        "k": check_integer("k", k),
        "relaxed": flag("relaxed", relaxed),
        "combine": combine,
        "tolerance": write_tolerances(tolerances or {}),
        "ignore_unknown": flag("ignore_unknown", ignore_unknown),
    }


def _ranked(
    client: Calls, parts: EventParts, options: dict[str, Any], *, is_strict: bool
) -> Operation[list[Any]]:
    answers = yield from _answers(client, parts, ("rank", "best"), options, is_strict=is_strict)
    return [
        ranking
        if isinstance(ranking, RangecastError)
        else [(row["subscription"], row["score"]) for row in ranking]
        for ranking in answers
    ]


# ---- explaining


def why(
    client: Calls,
    event: Mapping[str, Any],
    subscription: Id,
    *,
    ignore_unknown: bool = False,
    nan: str = "error",
) -> Call[Explanation]:
    """Explain why a subscription matches an event, or which conditions fail and by how much.

    It prints as one line; `boxes` has one line per attribute, for each alternative of the filter.
    The options are those of `match`.
    """
    asked = {"event": _one(event, nan), "subscription": as_id(subscription)}
    return client._error_text("/why", asked, ignore_unknown)._replace(read=explanation)


def why_not(
    client: Calls,
    event: Mapping[str, Any],
    k: int = 5,
    *,
    ignore_unknown: bool = False,
    nan: str = "error",
) -> Call[list[Explanation]]:
    """Return the k subscriptions nearest to matching an event, with the failing conditions.

    Subscriptions with the fewest failing attributes come first, then those with the smallest
    distance. The server examines the first 100,000 subscriptions; k is at most 100. The options are
    those of `match`.
    """
    asked = {"event": _one(event, nan), "k": check_integer("k", k, 1, 100)}
    call = client._error_text("/why-not", asked, ignore_unknown)
    return call._replace(
        read=lambda answer: [explanation(neighbour) for neighbour in answer["nearest"]]
    )


def _one(event: Mapping[str, Any], nan: str) -> Mapping[str, Any]:
    (row,) = EventParts([checked_event(event)], nan).rows()
    if isinstance(row, RangecastError):
        raise row
    return row
