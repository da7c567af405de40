"""A board of a server, under the names of `notify.Board`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

from rangecast.client.calls import accepted
from rangecast.client.parts import BULK, encode, listed, split
from rangecast.client.requests import EXISTS, IS_NEW, Call, Condition
from rangecast.client.results import Ranked, ranked
from rangecast.errors import UnknownIdError

if TYPE_CHECKING:
    from rangecast.client.awaited import AsyncClient
    from rangecast.client.blocking import Client


class ListedInterest(NamedTuple):
    """An interest of a board with its list."""

    id: str
    where: tuple[Any, ...]
    """Its bounds of x, or its filter."""
    k: int | None
    """How many objects it wants, if not as many as the board has."""
    consumer: str | None
    best: list[Ranked]


class BoardCalls:
    """All requests about a board; a subclass sends them."""

    def __init__(self, name: str):
        self.name = name

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.name}>"

    def _path(self, rest: str = "") -> str:
        return f"/v1/boards/{quote(self.name, safe='')}{rest}"

    def _interest(self, name: str | int) -> str:
        return self._path(f"/interests/{quote(str(name), safe='')}")

    def _put(
        self,
        name: str | int,
        where: tuple[Any, ...],
        k: int | None,
        consumer: str | None,
        condition: Condition,
    ) -> Call:
        wanted = _bounds(where) | {"k": k, "consumer": consumer}
        body = encode({key: value for key, value in wanted.items() if value is not None})
        headers = dict([condition] if condition else [])
        path, repeatable = self._interest(name), condition is None
        return Call("PUT", path, lambda _: None, body, headers=headers, repeatable=repeatable)

    def _bulk(self, interests: Iterable[Mapping[str, Any]]) -> Iterator[Call]:
        path = self._path("/interests:bulk")
        for part in split(map(encode, interests), BULK):
            yield Call("POST", path, accepted, listed(part), params={"strict": True})

    def _delete(self, name: str | int) -> Call:
        return Call("DELETE", self._interest(name), lambda _: None, repeatable=False)

    def _get(self, name: str | int) -> Call:
        def read(found: Any) -> ListedInterest:
            where = (found["filter"],) if "filter" in found else (found["x_lo"], found["x_hi"])
            rest = found["k"], found["consumer"], [ranked(one) for one in found["best"]]
            return ListedInterest(found["id"], where, *rest)

        return Call("GET", self._interest(name), read)

    def _page(self, after: str, limit: int = 1000) -> Call:
        params = {"after": after, "limit": limit}
        return Call("GET", self._path("/interests"), lambda one: one, params=params)

    def _best(self, where: tuple[Any, ...], k: int | None) -> Call:
        asked = _bounds(where) | {"k": k}
        params = {key: value for key, value in asked.items() if value is not None}
        path = self._path("/best")
        return Call("GET", path, lambda one: [ranked(r) for r in one["items"]], params=params)

    def _update(self, changes: Iterable[Any], *, is_batch: bool = False) -> Call:
        def read(answer: Any) -> str:
            accepted(answer)
            last: str = answer["last"]
            return last

        body = encode([_change(one) for one in changes])
        params = {"batch": is_batch, "strict": True}
        return Call("POST", self._path("/updates"), read, body, params=params, repeatable=False)


class ClientBoard(BoardCalls):
    """A board of a server: `Client.board` returns it. Changes are durable when a call returns.

    What changes in lists comes as messages to the consumers of interests, not as an answer.
    """

    def __init__(self, client: Client, name: str):
        super().__init__(name)
        self._send = client._send

    def subscribe(
        self, interest: str | int, *where: Any, k: int | None = None, consumer: str | None = None
    ) -> ListedInterest:
        """Add an interest, bounds of x or a filter, and return it with its list."""
        self._send(self._put(interest, where, k, consumer, IS_NEW))
        return self[interest]

    def replace(
        self, interest: str | int, *where: Any, k: int | None = None, consumer: str | None = None
    ) -> ListedInterest:
        """Replace an interest, all of it, and return it with its list."""
        self._send(self._put(interest, where, k, consumer, EXISTS))
        return self[interest]

    def upsert(
        self, interest: str | int, *where: Any, k: int | None = None, consumer: str | None = None
    ) -> ListedInterest:
        """Add an interest, or replace all of the one that has its id; return it with its list."""
        self._send(self._put(interest, where, k, consumer, None))
        return self[interest]

    def upsert_many(self, interests: Iterable[Mapping[str, Any]]) -> int:
        """Add or replace many, dicts with `id` and bounds or `filter`; return how many.

        A request takes 5,000 of them, all or none.
        """
        return sum(map(self._send, self._bulk(interests)))

    def unsubscribe(self, interest: str | int) -> None:
        """Remove an interest."""
        self._send(self._delete(interest))

    def __getitem__(self, interest: str | int) -> ListedInterest:
        """Return an interest with its list as it is now."""
        found: ListedInterest = self._send(self._get(interest))
        return found

    def __contains__(self, interest: object) -> bool:
        if not isinstance(interest, str | int):
            return False
        try:
            self[interest]
        except UnknownIdError:
            return False
        return True

    def __iter__(self) -> Iterator[str]:
        """Go through the ids of interests, ascending."""
        after: str | None = ""
        while after is not None:
            page = self._send(self._page(after))
            yield from (one["id"] for one in page["items"])
            after = page["next"]

    def __len__(self) -> int:
        count: int = self._send(self._page("", 1))["count"]
        return count

    def best(self, *where: Any, k: int | None = None) -> list[Ranked]:
        """Return the k best objects of bounds of x, or of a filter."""
        found: list[Ranked] = self._send(self._best(where, k))
        return found

    def update(self, one: str | int, y: float) -> str:
        """Give an object a new value; return the position."""
        return self.update_many([(one, y)])

    def put(self, one: str | int, x: Any, y: float) -> str:
        """Put an object somewhere; over a space, x is a dict of values."""
        return self.update_many([(one, y, x)])

    def remove(self, one: str | int) -> str:
        """Remove an object."""
        return self.update_many([(one, None)])

    def move(self, one: str | int, x: Any, y: float | None = None) -> str:
        """Give an object a new place, and a new value too unless y is None."""
        return self.update_many([_moved(one, x, y)])

    def update_many(self, changes: Iterable[Any]) -> str:
        """Apply changes one after the other, all of them or none: (id, y), (id, y, x) or dicts.

        Return the position of the last one.
        """
        found: str = self._send(self._update(changes))
        return found

    def update_batch(self, changes: Iterable[Any]) -> str:
        """Apply changes as one batch: messages say what it comes to."""
        found: str = self._send(self._update(changes, is_batch=True))
        return found


class AsyncClientBoard(BoardCalls):
    """A board of a server: `ClientBoard`, to be awaited."""

    def __init__(self, client: AsyncClient, name: str):
        super().__init__(name)
        self._send = client._send

    async def subscribe(
        self, interest: str | int, *where: Any, k: int | None = None, consumer: str | None = None
    ) -> ListedInterest:
        """Add an interest, bounds of x or a filter, and return it with its list."""
        await self._send(self._put(interest, where, k, consumer, IS_NEW))
        return await self.get(interest)

    async def replace(
        self, interest: str | int, *where: Any, k: int | None = None, consumer: str | None = None
    ) -> ListedInterest:
        """Replace an interest, all of it, and return it with its list."""
        await self._send(self._put(interest, where, k, consumer, EXISTS))
        return await self.get(interest)

    async def upsert(
        self, interest: str | int, *where: Any, k: int | None = None, consumer: str | None = None
    ) -> ListedInterest:
        """Add an interest, or replace all of the one that has its id; return it with its list."""
        await self._send(self._put(interest, where, k, consumer, None))
        return await self.get(interest)

    async def upsert_many(self, interests: Iterable[Mapping[str, Any]]) -> int:
        """Add or replace many, dicts with `id` and bounds or `filter`; return how many."""
        return sum([await self._send(call) for call in self._bulk(interests)])

    async def unsubscribe(self, interest: str | int) -> None:
        """Remove an interest."""
        await self._send(self._delete(interest))

    async def get(self, interest: str | int) -> ListedInterest:
        """Return an interest with its list as it is now."""
        found: ListedInterest = await self._send(self._get(interest))
        return found

    async def best(self, *where: Any, k: int | None = None) -> list[Ranked]:
        """Return the k best objects of bounds of x, or of a filter."""
        found: list[Ranked] = await self._send(self._best(where, k))
        return found

    async def update(self, one: str | int, y: float) -> str:
        """Give an object a new value; return the position."""
        return await self.update_many([(one, y)])

    async def put(self, one: str | int, x: Any, y: float) -> str:
        """Put an object somewhere; over a space, x is a dict of values."""
        return await self.update_many([(one, y, x)])

    async def remove(self, one: str | int) -> str:
        """Remove an object."""
        return await self.update_many([(one, None)])

    async def move(self, one: str | int, x: Any, y: float | None = None) -> str:
        """Give an object a new place, and a new value too unless y is None."""
        return await self.update_many([_moved(one, x, y)])

    async def update_many(self, changes: Iterable[Any]) -> str:
        """Apply changes one after the other, all of them or none; return the last position."""
        found: str = await self._send(self._update(changes))
        return found

    async def update_batch(self, changes: Iterable[Any]) -> str:
        """Apply changes as one batch: messages say what it comes to."""
        found: str = await self._send(self._update(changes, is_batch=True))
        return found


def _bounds(where: tuple[Any, ...]) -> dict[str, Any]:
    """Return bounds of x, or a filter, as the server takes them."""
    if len(where) == 1 and where[0] is not None and not isinstance(where[0], int | float):
        return {"filter": str(where[0])}
    lo, hi = (*where, None, None)[:2]
    return {"x_lo": lo, "x_hi": hi}


def _moved(one: str | int, x: Any, y: float | None) -> dict[str, Any]:
    row = _change((one, y, x))
    return {name: value for name, value in row.items() if name != "y" or value is not None}


def _change(given: Any) -> dict[str, Any]:
    """Return a change as the server takes it."""
    if isinstance(given, Mapping):
        return dict(given)
    one, y, *place = given
    x = place[0] if place else None
    rest = {} if x is None else dict(x) if isinstance(x, Mapping) else {"x": x}
    return {"id": one, "y": y, **rest}
