"""One set of subscriptions behind every interface: Engine, Client, AsyncClient and HTTP."""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.parse import quote

import httpx
import numpy as np

from rangecast import AsyncClient, Client, Engine, Number, Space, String
from rangecast.errors import (
    DuplicateIdError,
    FileError,
    FilterError,
    InvalidValueError,
    RangecastError,
    RejectedRowError,
    SpaceError,
    UnknownIdError,
    UsageError,
)
from rangecast.model.boxes import Boxes
from rangecast.model.sets.base import Subscription, UpsertResult


def space() -> Space:
    """Return a space of its own: a string attribute learns words."""
    return Space([Number("price"), String("sector"), Number("size")])


ROWS = [
    {"id": "b", "filter": "price < 10", "score": 1.0},
    {"id": "a", "filter": "price < 20 and sector = 'tech'", "score": 5.0, "weight_price": 2.0},
    {"id": "c", "filter": "price < 5 or size > 100", "score": 3.0},
]
"""Not in the order of their ids; each case begins with these."""


# ---- the interfaces


class ByEngine:
    """The library."""

    def __init__(self) -> None:
        self.set: Any = Engine(space())

    def call(self, method: str, *args: Any, **options: Any) -> Any:
        special = {
            "get": lambda one: self.set[one],
            "contains": lambda one: one in self.set,
            "size": lambda: len(self.set),
        }
        return special.get(method, getattr(self.set, method, None))(*args, **options)

    def members(self) -> list[Subscription]:
        return [self.call("get", one) for one in self.set]


class ByClient(ByEngine):
    """A client, which has the same names."""

    def __init__(self, url: str, name: str):
        self.set = Client(url, space=name)
        self.set.put_space(name, space())

    def close(self) -> None:
        self.set.close()


class ByAsyncClient:
    """A client that is awaited."""

    def __init__(self, url: str, name: str):
        self._loop = asyncio.Runner()
        self.set = AsyncClient(url, space=name)
        self.call("put_space", name, space())

    def call(self, method: str, *args: Any, **options: Any) -> Any:
        return self._loop.run(getattr(self.set, method)(*args, **options))

    def members(self) -> list[Subscription]:
        async def work() -> list[Subscription]:
            return [await self.set.get(one) async for one in self.set]

        return self._loop.run(work())

    def close(self) -> None:
        self._loop.run(self.set.close())
        self._loop.close()


class ByHttp:
    """Requests as a program in another language makes them."""

    def __init__(self, url: str, name: str):
        self._http = httpx.Client(trust_env=False)
        self._url = f"{url}/v1/spaces/{name}"
        self._ask("PUT", "", space().definition())

    def close(self) -> None:
        self._http.close()

    def _ask(self, method: str, path: str, body: Any = None, **more: Any) -> Any:
        answer = self._http.request(method, self._url + path, json=body, **more)
        found = answer.json()
        if answer.is_success:
            return found
        code = found["code"] if "code" in found else found["rejected"][0]["code"]
        code = RejectedRowError.code if "rejected" in found and code == FilterError.code else code
        raise next(one for one in KINDS if one.code == code)(found.get("detail", ""))

    def call(self, method: str, *args: Any, **options: Any) -> Any:
        return getattr(self, method)(*args, **options)

    def members(self) -> list[Subscription]:
        return [_shown(one) for one in self._ask("GET", "/subscriptions")["items"]]

    @staticmethod
    def _path(one: Any) -> str:
        return f"/subscriptions/{quote(str(one), safe='')}"

    def subscribe(self, one: Any, text: Any, **more: Any) -> None:
        new = {"If-None-Match": "*"}
        self._ask("PUT", self._path(one), {"filter": str(text), **more}, headers=new)

    def upsert(self, one: Any, text: str) -> bool:
        return bool(self._ask("PUT", self._path(one), {"filter": text})["created"])

    def replace(self, one: Any, text: str, **more: Any) -> None:
        self._ask("PATCH", self._path(one), {"filter": text, **more})

    def rescore(self, one: Any, score: Any = None, **more: Any) -> None:
        self._ask("PATCH", self._path(one), {"score": score, **more})

    def unsubscribe(self, one: Any) -> None:
        self._ask("DELETE", self._path(one))

    def subscribe_many(self, rows: Any) -> int:
        path, new = "/subscriptions:bulk?strict=true", {"If-None-Match": "*"}
        return int(self._ask("POST", path, rows, headers=new)["accepted"])

    def replace_many(self, rows: Any) -> int:
        return int(self._ask("PATCH", "/subscriptions:bulk?strict=true", rows)["accepted"])

    def upsert_many(self, rows: Any) -> UpsertResult:
        found = self._ask("POST", "/subscriptions:bulk?strict=true", rows)
        return UpsertResult(found["inserted"], found["accepted"] - found["inserted"])

    def unsubscribe_many(self, ids: Any) -> int:
        return int(self._ask("POST", "/subscriptions:delete", {"ids": ids})["deleted"])

    def get(self, one: Any) -> Subscription:
        return _shown(self._ask("GET", self._path(one)))

    def contains(self, one: Any) -> bool:
        return self._http.get(self._url + self._path(one)).is_success

    def size(self) -> int:
        return int(self._ask("GET", "/subscriptions?limit=1")["count"])

    def select(self, ids: Any) -> tuple[list[Any], list[int]]:
        items = self._ask("POST", "/subscriptions:select", {"ids": ids})["items"]
        return [one["id"] for one in items], [one["arrival"] for one in items]

    def match(self, event: Any, **more: Any) -> Any:
        found = self._ask("POST", "/events:match", [event], params=_params(more))
        _raise_rejected(found, is_row=False)
        return found["matches"][0]

    def match_many(self, events: Any, **more: Any) -> Any:
        found = self._ask("POST", "/events:match", events, params=_params(more))
        _raise_rejected(found, is_row=True)
        return found["matches"]

    def match_each(self, events: Any) -> Any:
        found = self._ask("POST", "/events:match", events)
        wrong = {one["row"]: one["code"] for one in found["rejected"]}
        matches = iter(found["matches"])
        kinds = {one.code: one for one in KINDS}
        return [kinds[wrong[at]] if at in wrong else next(matches) for at in range(len(events))]

    def count(self, event: Any, **more: Any) -> Any:
        found = self._ask("POST", "/events:count", [event], params=_params(more))
        _raise_rejected(found, is_row=False)
        return found["counts"][0]

    def count_many(self, events: Any, **more: Any) -> Any:
        found = self._ask("POST", "/events:count", events, params=_params(more))
        _raise_rejected(found, is_row=True)
        return found["counts"]

    def rank(self, event: Any, k: Any = 10, **more: Any) -> Any:
        return self.rank_many([event], k, **more)[0]

    def rank_many(self, events: Any, k: Any = 10, **more: Any) -> Any:
        found = self._ask("POST", "/events:rank", events, params=_params({"k": k, **more}))
        _raise_rejected(found, is_row=True)
        return [[(one["subscription"], one["score"]) for one in best] for best in found["best"]]

    def why(self, event: Any, one: Any) -> str:
        asked = {"event": event, "subscription": one, "boxes": True}
        return str(self._ask("POST", "/why", asked)["verdict"])

    def why_not(self, event: Any, k: int = 5) -> list[str]:
        found = self._ask("POST", "/why-not", {"event": event, "k": k, "boxes": True})
        return [one["verdict"] for one in found["nearest"]]


KINDS: tuple[Any, ...] = (
    FileError,
    InvalidValueError,
    DuplicateIdError,
    FilterError,
    SpaceError,
    UnknownIdError,
    UsageError,
    type("AnyRejectedRowError", (RejectedRowError,), {"__init__": RangecastError.__init__}),
)


def _params(given: dict[str, Any]) -> dict[str, Any]:
    params: dict[str, Any] = {name: str(value).lower() for name, value in given.items()}
    if "tolerances" in params:
        del params["tolerances"]
        params["tolerance"] = [f"{name}={near}" for name, near in given["tolerances"].items()]
    return params


def _raise_rejected(found: Any, *, is_row: bool) -> None:
    if found["rejected"]:
        code = found["rejected"][0]["code"]
        code = RejectedRowError.code if is_row and code == InvalidValueError.code else code
        raise next(one for one in KINDS if one.code == code)("")


def _shown(one: Any) -> Subscription:
    weights = {name: weight for name, weight in one["weights"].items() if weight != 1}
    return Subscription(one["id"], one["filter"], one["score"], weights)


def _as_json(row: dict[str, Any]) -> dict[str, Any]:
    weights = {name[7:]: value for name, value in row.items() if name.startswith("weight_")}
    rest = {name: value for name, value in row.items() if not name.startswith("weight_")}
    return rest | ({"weights": weights} if weights else {})


def plain(found: Any) -> Any:
    if isinstance(found, tuple) and isinstance(found[0], list | Boxes):
        boxes, places = found
        return (boxes.ids.to_pylist() if isinstance(boxes, Boxes) else boxes), list(places)
    if isinstance(found, RangecastError):
        return type(found)
    if isinstance(found, np.ndarray):
        return found.tolist()
    if isinstance(found, list):
        return [plain(one) for one in found]
    if hasattr(found, "verdict"):
        return found.verdict
    return list(found) if hasattr(found, "table") else found
