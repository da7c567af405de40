"""Results and errors of a client."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from rangecast.client.errors import ServerError
from rangecast.errors import RejectedRow
from rangecast.kernels.arrays import I64, AnyArray
from rangecast.match.result import MatchRows
from rangecast.model.boxes import Boxes
from rangecast.model.encoding.subscriptions import encode_subscriptions
from rangecast.model.explain import Explanation, Line
from rangecast.model.sets.id_lists import IdLists
from rangecast.model.sets.members import Id
from rangecast.model.sets.rowstore import RowArrays, no_rows
from rangecast.model.space import Space
from rangecast.rank.result import Best
from rangecast.results import Matches, Rankings


class Published(NamedTuple):
    """Result of publishing events."""

    accepted: int
    first: str | None
    last: str | None
    """The positions of the first and the last event."""
    rejected: list[RejectedRow]
    matches: list[list[Id]] | None = None
    """Subscriptions that match each accepted event, if requested. Also `None` if a request had more
    than a million matches or was a repetition; `match` has no limit.
    """


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
        """Events accepted and rejected so far."""
        self.unpublished_from = unpublished_from
        """First row that wasn't sent or got no answer; `None` if all got one."""

    @property
    def accepted(self) -> int:
        """Number of published events."""
        return self.published.accepted

    @property
    def rejected(self) -> list[RejectedRow]:
        """Rejected events, with the reason of each."""
        return self.published.rejected


class SubscribeError(ServerError):
    """Not all of many subscriptions were saved: some were rejected, or a request failed."""

    def __init__(self, text: str, status: int | None, accepted: int, rejected: list[RejectedRow]):
        super().__init__(text, status)
        self.accepted = accepted
        """Number of subscriptions saved by the requests before."""
        self.rejected = rejected


class Message(NamedTuple):
    """An event that a consumer's subscriptions match."""

    position: str
    event: dict[str, Any]
    subscriptions: list[Id]
    dropped: int = 0
    """Number of messages of the same second dropped by the consumer's `max_per_second`."""


class TransitionMessage(NamedTuple):
    """A transition of an object relative to a subscription with a track rule."""

    position: str
    event: dict[str, Any] | None
    """Event that caused the transition; `None` if time or an edit did."""
    subscriptions: list[Id]
    """The subscription, as a list of one."""
    transition: str
    """enter, exit, inside, dwell, cross, or reminder by a policy."""
    key: Id
    """Key of the object."""
    at: datetime
    """Time of the transition, in event time."""
    since: datetime
    """Start of the stay."""
    reason: str
    """event, time, silent, edited or removed."""
    id: str
    """Id of the transition; stays the same when it is sent again."""
    dropped: int = 0
    """Number of messages of the same second dropped by the consumer's `max_per_second`."""


class DigestMessage(NamedTuple):
    """Transitions that the policy of a subscription or of the consumer delivers together."""

    position: str
    subscriptions: list[Id]
    """The one subscription, or those of the consumer's digest."""
    window: str
    """Its end in local time, or its number."""
    at: datetime
    """When it was due, in the time of events."""
    transitions: list[TransitionMessage]
    """Without their events."""
    id: str
    """Idempotency key: equal whenever the digest is sent again."""
    dropped: int = 0
    """Messages of its second that the consumer's `max_per_second` dropped."""


class Ranked(NamedTuple):
    """An object in a list."""

    object: str
    value: float
    position: Any
    """Position of the object: a number, or a dict of values over a space."""


def ranked(row: Mapping[str, Any]) -> Ranked:
    """Decode an object of a list."""
    return Ranked(row["object"], row["value"], row["position"])


class Lists(NamedTuple):
    """Lists of a board that have changed."""

    position: str
    board: str
    lists: dict[Id, list[Ranked]]
    """New list of each interest, the best first."""


class Messages(NamedTuple):
    """A batch of messages of a consumer."""

    items: list[Any]
    """`Message`; `TransitionMessage` and `DigestMessage`, of subscriptions with a track; `Lists`,
    of a board."""
    position: str
    """Position to acknowledge: that of the last message in `items`."""
    gap: dict[str, str] | None = None
    """Gap: events deleted from the log before this consumer received them."""


AnyMessage = Message | TransitionMessage | DigestMessage | Lists


def message(row: Mapping[str, Any]) -> AnyMessage:
    """Decode a message of the server."""
    if row.get("transition") == "digest":
        whole = {"position": row["position"], "event": None}
        parts: list[Any] = [
            message({**whole, "subscriptions": [transition["subscription"]], **transition})
            for transition in row["transitions"]
        ]
        about = row["position"], row["subscriptions"], row["window"]
        at = datetime.fromisoformat(row["at"])
        return DigestMessage(*about, at, parts, row["id"], row.get("dropped", 0))
    if "transition" in row:
        fields = {name: row[name] for name in TransitionMessage._fields if name in row}
        moments = {name: datetime.fromisoformat(row[name]) for name in ("at", "since")}
        return TransitionMessage(**fields | moments)
    if "lists" in row:
        lists = {
            list_["interest"]: [ranked(item) for item in list_["best"]] for list_ in row["lists"]
        }
        return Lists(row["position"], row["board"], lists)
    return Message(row["position"], row["event"], row["subscriptions"], row.get("dropped", 0))


# ---- as an Engine returns them


EventLabels = tuple[pa.Array, pa.Table | None]
"""Ids of events, and their kept columns."""


def matches_of(lists: Sequence[Sequence[Id]], events: EventLabels) -> Matches:
    """Return the ids that match each event, in this order, as `Matches`."""
    counts = [len(list_) for list_ in lists]
    total = sum(counts)
    rows = MatchRows(np.concatenate(([0], np.cumsum(counts, dtype=np.int64))), _numbered(total))
    ids = _rows([id_ for list_ in lists for id_ in list_])
    return Matches((rows,), *events, IdLists(ids, total))


def rankings_of(lists: Sequence[Sequence[tuple[Id, float]]], events: EventLabels) -> Rankings:
    """Return the ids and scores of each event, the best first, as `Rankings`."""
    counts = np.array([len(list_) for list_ in lists], np.int64)
    shape = len(lists), int(counts.max(initial=0))
    rows, scores = np.zeros(shape, np.int32), np.zeros(shape)
    is_there = np.arange(shape[1]) < counts[:, None]
    rows[is_there] = _numbered(int(counts.sum()))
    scores[is_there] = [score for ranking in lists for _, score in ranking]
    ids = _rows([list_ for ranking in lists for list_, _ in ranking])
    return Rankings(Best(rows, scores, counts), *events, ids)


def _numbered(count: int) -> AnyArray:
    return np.arange(count, dtype=np.int32)


def _rows(ids: list[Id]) -> RowArrays:
    """Return rows with only an id and a position in the order of arrival."""
    are_integers = all(isinstance(id_, int) for id_ in ids)
    array: AnyArray = np.array(ids, np.int64 if are_integers else object)
    return no_rows()._replace(ids=array, arrival=np.arange(len(ids)))


def selected(space: Space, items: Sequence[Mapping[str, Any]]) -> tuple[Boxes, I64]:
    """Decode subscriptions into boxes and their positions by arrival."""
    rows = [
        {"id": item["id"], "filter": item["filter"], "score": item["score"]}
        | {f"weight_{name}": weight for name, weight in item["weights"].items()}
        for item in items
    ]
    places = np.array([item["arrival"] for item in items], np.int64)
    return encode_subscriptions(rows or {"id": [], "filter": []}, space), places


def explanation(answer: Mapping[str, Any]) -> Explanation:
    """Decode an explanation of why a subscription matches or doesn't."""
    boxes = [[Line(**line) for line in box] for box in answer["boxes"]]
    return Explanation(answer["subscription"], boxes, answer["nearest"])
