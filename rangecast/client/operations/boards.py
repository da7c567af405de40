"""Board operations with the same names as in `notify.Board`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from rangecast.client.errors import error_of, row_error
from rangecast.client.operations.base import Operation
from rangecast.client.operations.parts import (
    BULK,
    encode,
    file_rows,
    json_array,
    present,
    split_rows,
)
from rangecast.client.operations.requests import EXISTS, IS_NEW, Call, Condition
from rangecast.client.results import Ranked, ranked
from rangecast.errors import RangecastError, UnknownIdError
from rangecast.model.io.tables import batches_of
from rangecast.model.sets.base import UpsertResult
from rangecast.model.sets.members import Id, Members, as_id

_MAX_IDS = 10_000
"""Maximum number of ids per request."""


class ListedInterest(NamedTuple):
    """An interest of a board with its list."""

    id: Id
    where: tuple[Any, ...]
    """Bounds or filter of the interest."""
    k: int | None
    """Length of its list, if it differs from the board's."""
    consumer: str | None
    best: list[Ranked]


class BoardCalls:
    """All requests of a board; a subclass sends them."""

    def __init__(self, name: str):
        self.name = name

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.name}>"

    def _path(self, rest: str = "") -> str:
        return f"/v1/boards/{quote(self.name, safe='')}{rest}"

    def _interest(self, name: Id) -> str:
        return self._path(f"/interests/{quote(str(as_id(name, 'interest')), safe='')}")

    def _put(
        self,
        name: Id,
        where: tuple[Any, ...],
        k: int | None,
        consumer: str | None,
        condition: Condition,
    ) -> Call[Any]:
        own = None if isinstance(name, str) else as_id(name, "interest")
        wanted = {"id": own} | _bounds(where) | {"k": k, "consumer": consumer}
        body = encode({key: value for key, value in wanted.items() if value is not None})
        headers = dict([condition] if condition else [])
        path, repeatable = self._interest(name), condition is None
        return Call("PUT", path, body, headers=headers, repeatable=repeatable)

    def _bulk(self, rows: list[bytes], condition: Condition) -> Call[Any]:
        path, headers = self._path("/interests:bulk"), dict([condition] if condition else [])
        params, repeatable = {"strict": True}, condition is None
        return Call(
            "POST",
            path,
            json_array(rows),
            params=params,
            headers=headers,
            repeatable=repeatable,
        )

    def _get(self, name: Id) -> Call[Any]:
        return Call("GET", self._interest(name))

    def _page(self, after: str, limit: int = 1000) -> Call[Any]:
        params = {"after": after, "limit": limit}
        return Call("GET", self._path("/interests"), params=params)

    def _update(
        self, changes: Iterable[Any], *, is_batch: bool = False, only: str = ""
    ) -> Call[str]:
        body = encode([_change(change) for change in changes])
        params = {"batch": is_batch, "strict": True, "only": only}
        return Call("POST", self._path("/updates"), body, _last, params=params, repeatable=False)


# ---- interests


def subscribe(
    board: BoardCalls,
    interest: Id,
    *where: Any,
    k: int | None = None,
    consumer: str | None = None,
) -> Operation[ListedInterest]:
    """Add an interest, bounds or a filter, and return it with its list."""
    yield board._put(interest, where, k, consumer, IS_NEW)
    current: ListedInterest = yield get(board, interest)
    return current


def replace(
    board: BoardCalls,
    interest: Id,
    *where: Any,
    k: int | None = None,
    consumer: str | None = None,
) -> Operation[ListedInterest]:
    """Replace the range or filter of an interest; return it with its list.

    k and consumer stay unless given.
    """
    while True:
        before = yield board._get(interest)
        _, _, seq = before["position"].partition(":")
        settings = k or before["k"], consumer or before["consumer"]
        try:
            yield board._put(interest, where, *settings, ("If-Match", f'"{seq}"'))
        except RangecastError as error:
            if getattr(error, "status", None) == 412:
                continue  # another program has replaced it in the meantime
            raise
        current: ListedInterest = yield get(board, interest)
        return current


def upsert(
    board: BoardCalls,
    interest: Id,
    *where: Any,
    k: int | None = None,
    consumer: str | None = None,
) -> Operation[ListedInterest]:
    """Add an interest, or replace the one with this id entirely; return it with its list."""
    yield board._put(interest, where, k, consumer, None)
    current: ListedInterest = yield get(board, interest)
    return current


def unsubscribe(board: BoardCalls, interest: Id) -> Call[None]:
    """Remove an interest."""
    return Call("DELETE", board._interest(interest), read=lambda _: None, repeatable=False)


def subscribe_many(board: BoardCalls, interests: Any) -> Operation[int]:
    """Add interests, whose ids must be new; return their number.

    They are dicts with `id` and bounds or `filter`, or a path, a table or a DataFrame with these
    columns. Each request adds up to 5,000, all or none.
    """
    return sum((yield from _put_many(board, _rows(interests), IS_NEW)))


def replace_many(board: BoardCalls, interests: Any) -> Operation[int]:
    """Replace ranges or filters of interests, as `subscribe_many` takes them; return how many.

    Without a k or a consumer, their own stay.
    """
    before: dict[str, Any] = {}
    after: str | None = ""
    while after is not None:
        page = yield board._page(after)
        before |= {str(item["id"]): item for item in page["items"]}
        after = page["next"]
    rows = []
    for row in _rows(interests):
        old = before.get(str(row.get("id")))
        if old is None:
            raise UnknownIdError(f"no interest {row.get('id')!r}; nothing was replaced")
        kept = {name: old[name] for name in ("k", "consumer") if old[name] is not None}
        rows.append(kept | dict(row))
    return sum((yield from _put_many(board, rows, EXISTS)))


def upsert_many(board: BoardCalls, interests: Any) -> Operation[UpsertResult]:
    """Add new interests and replace existing ones; return both counts.

    They are given as to `subscribe_many`.
    """
    return (yield from _put_many(board, _rows(interests), None))


def unsubscribe_many(board: BoardCalls, interests: Iterable[Id]) -> Operation[int]:
    """Remove interests; return their number.

    Each request removes up to 10,000, all or none.
    """
    known = [as_id(interest, "interest") for interest in Members("interest").listed(interests)]
    ids = list(dict.fromkeys(known))
    for first in range(0, len(ids), _MAX_IDS):
        body = encode({"ids": ids[first : first + _MAX_IDS]})
        yield Call("POST", board._path("/interests:delete"), body, repeatable=False)
    return len(ids)


def _rows(interests: Any) -> Iterator[Mapping[str, Any]]:
    """Yield interests as dicts."""
    if isinstance(interests, str | Path):
        yield from file_rows(interests)
    elif isinstance(interests, Mapping) or hasattr(interests, "__arrow_c_stream__"):
        for batch in batches_of(interests, "interests", nan_is_null=True):
            yield from present(batch.arrow())
    else:
        yield from Members("interest").listed(interests)


def _put_many(
    board: BoardCalls, rows: Iterable[Mapping[str, Any]], condition: Condition
) -> Operation[UpsertResult]:
    saved = inserted = done = 0
    for part in split_rows(rows, BULK):
        answer = yield board._bulk([body for _, body in part], condition)
        for rejection in answer["rejected"]:
            raise row_error(
                "interests", rejection, done + rejection["row"], part[rejection["row"]][0]
            )
        saved, inserted = saved + answer["accepted"], inserted + answer["inserted"]
        done += len(part)
    return UpsertResult(inserted, saved - inserted)


def get(board: BoardCalls, interest: Id) -> Call[ListedInterest]:
    """Return an interest with its current list."""
    return board._get(interest)._replace(read=_listed)


def _listed(answer: Any) -> ListedInterest:
    is_filter = "filter" in answer
    where = (answer["filter"],) if is_filter else (answer["position_lo"], answer["position_hi"])
    rest = answer["k"], answer["consumer"], [ranked(item) for item in answer["best"]]
    return ListedInterest(answer["id"], where, *rest)


def contains(board: BoardCalls, interest: object) -> Operation[bool]:
    """Return whether an interest with this id exists."""
    if isinstance(interest, bool) or not isinstance(interest, str | int):
        return False
    try:
        yield board._get(interest)
    except UnknownIdError:
        return False
    return True


def size(board: BoardCalls) -> Call[int]:
    """Return the number of interests."""
    return board._page("", 1)._replace(read=lambda page: page["count"])


def best(board: BoardCalls, *where: Any, k: int | None = None) -> Call[list[Ranked]]:
    """Return the top k objects within bounds, or matching a filter."""
    query = _bounds(where) | {"k": k}
    params = {key: value for key, value in query.items() if value is not None}
    path = board._path("/best")
    return Call("GET", path, read=lambda answer: [*map(ranked, answer["items"])], params=params)


# ---- objects


def set_value(board: BoardCalls, object_id: Id, value: float) -> Call[str]:
    """Set the value of an object; return the position."""
    return board._update([(object_id, value)])


def add(board: BoardCalls, object_id: Id, position: Any, value: float) -> Call[str]:
    """Add an object; its id must be new. Over a space, a position is a dict of values."""
    return board._update([(object_id, value, position)], only="new")


def remove(board: BoardCalls, object_id: Id) -> Call[str]:
    """Remove an object."""
    return board._update([(object_id, None)])


def move(board: BoardCalls, object_id: Id, position: Any, value: float | None = None) -> Call[str]:
    """Set the position of an object, and its value unless that is None."""
    change = _change((object_id, value, position))
    if value is None:
        del change["value"]
    return board._update([change], only="existing")


def update_many(board: BoardCalls, changes: Iterable[Any]) -> Call[str]:
    """Apply changes in order, all or none.

    A change is (id, value), (id, value, position) or a dict. Return the position of the last one.
    """
    return board._update(changes)


def update_batch(board: BoardCalls, changes: Iterable[Any]) -> Call[str]:
    """Apply changes as one batch: messages describe its net effect."""
    return board._update(changes, is_batch=True)


def _last(answer: Any) -> str:
    """Return the position of the last change; raise the error of a rejected one."""
    for rejection in answer["rejected"]:
        problem = {"code": "usage", "detail": f"row {rejection['row']}: {rejection['reason']}"}
        raise error_of(problem | ({"code": rejection["code"]} if "code" in rejection else {}), 422)
    last: str = answer["last"]
    return last


def _bounds(where: tuple[Any, ...]) -> dict[str, Any]:
    """Return bounds or a filter in the server's format."""
    if len(where) == 1 and where[0] is not None and not isinstance(where[0], int | float):
        return {"filter": str(where[0])}
    lo, hi = (*where, None, None)[:2]
    return {"position_lo": lo, "position_hi": hi}


def _change(row: Any) -> dict[str, Any]:
    """Return a change in the server's format."""
    if isinstance(row, Mapping):
        return dict(row)
    object_id, value, *rest = row
    change = {"id": object_id, "value": value}
    if rest and rest[0] is not None:
        position = rest[0]
        change |= position if isinstance(position, Mapping) else {"position": position}
    return change
