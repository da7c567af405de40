"""Requests of a client and the decoding of answers, without I/O."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

import httpx
import msgspec
import numpy as np

from rangecast.client import tls
from rangecast.client.errors import ServerError, error_of
from rangecast.client.operations.parts import encode
from rangecast.client.operations.requests import Call, Condition
from rangecast.errors import UnknownIdError, UsageError
from rangecast.model.sets.base import Subscription
from rangecast.model.sets.members import Id, as_id
from rangecast.model.space import Space
from rangecast.model.validation.arguments import score_of
from rangecast.model.validation.flags import flag
from rangecast.track.delivery.policies import Policy
from rangecast.track.rules import Rule

URL = "http://127.0.0.1:8080"
"""Default address of a server, if neither the caller nor RANGECAST_SERVER names one."""
ATTEMPTS = 5
"""Maximum attempts of a request that the server couldn't accept, or that got no answer."""


class Calls:
    """All requests, under the names of the library; a subclass sends them."""

    def __init__(
        self,
        url: str | None,
        *,
        space: str | None,
        token: str | None,
        verify: tls.Verify,
        cert: tls.Cert | None,
    ):
        url = url or os.environ.get("RANGECAST_SERVER", URL)
        token = token or os.environ.get("RANGECAST_TOKEN")
        if not url.startswith(("http://", "https://")):
            raise UsageError(
                f"the address of a server must start with http:// or https://\n  given: {url!r}"
            )
        self.url = url.rstrip("/")
        self._space = space
        self._tls = tls.context(self.url, verify, cert)
        self._headers = {"Content-Type": "application/json"}
        if token is not None:
            self._headers["Authorization"] = f"Bearer {token}"

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self._space or 'no space'} at {self.url}>"

    # ---- requests and responses

    def _named_space(self) -> str:
        if self._space is None:
            raise UsageError(f"this call needs a space: {type(self).__name__}(url, space='...')")
        return self._space

    def _in_space(self, rest: str) -> str:
        return f"/v1/spaces/{quote(self._named_space(), safe='')}{rest}"

    def _known(self, name: Any) -> str:
        """Return the path of a subscription that must exist; reject an invalid id as unknown."""
        if isinstance(name, bool) or not isinstance(name, str | int | np.integer):
            raise UnknownIdError(f"no subscription {name!r}")
        return self._subscription(as_id(name))

    def _subscription(self, name: Id) -> str:
        return self._in_space(f"/subscriptions/{quote(str(as_id(name)), safe='')}")

    def _put(
        self,
        name: Id,
        wanted: dict[str, Any],
        condition: Condition,
        *,
        create_consumer: bool,
    ) -> Call[Any]:
        return Call(
            "PUT",
            self._subscription(name),
            encode(_present(name, wanted)),
            params={"create_consumer": True} if flag("create_consumer", create_consumer) else {},
            headers=dict([condition] if condition else []),
            repeatable=condition is None,
        )

    def _patch(self, name: Id, wanted: dict[str, Any]) -> Call[Any]:
        return Call("PATCH", self._known(name), encode(_present(name, wanted)))

    def _by_ids(self, verb: str, ids: Sequence[Id]) -> Call[Any]:
        path, body = self._in_space(f"/subscriptions:{verb}"), encode({"ids": ids})
        return Call("POST", path, body, repeatable=verb != "delete")

    def _error_text(self, path: str, asked: dict[str, Any], ignore_unknown: bool) -> Call[Any]:
        options = {"ignore_unknown": flag("ignore_unknown", ignore_unknown), "boxes": True}
        return Call("POST", self._in_space(path), encode(asked | options))

    def _get_space(self) -> Call[Space]:
        def read(answer: Any) -> Space:
            own = ("name", "subscriptions", "track", "tracked")
            return Space.from_definition({key: answer[key] for key in answer if key not in own})

        return Call("GET", self._in_space(""), read=read)

    def _get(self, name: Id) -> Call[Subscription]:
        def read(answer: Any) -> Subscription:
            weights = {name: weight for name, weight in answer["weights"].items() if weight != 1}
            return Subscription(answer["id"], answer["filter"], answer["score"], weights)

        return Call("GET", self._known(name), read=read)

    def _page(self, after: str, limit: int = 1000) -> Call[Any]:
        params = {"after": after, "limit": limit}
        return Call("GET", self._in_space("/subscriptions"), params=params)

    def _put_board(self, name: str, options: dict[str, Any]) -> Call[Any]:
        flag("descending", options["descending"])
        body = encode({key: value for key, value in options.items() if value is not None})
        return Call("PUT", f"/v1/boards/{quote(name, safe='')}", body, no_result)

    def _request(self, call: Call[Any]) -> dict[str, Any]:
        return {
            "method": call.method,
            "url": self.url + call.path,
            "content": call.body,
            "params": {key: _param(value) for key, value in call.params.items()},
            "headers": self._headers | call.headers,
        }

    def _answered(self, call: Call[Any], answer: httpx.Response) -> Any:
        try:
            document = msgspec.json.decode(answer.content)
        except msgspec.DecodeError:
            document = {"detail": answer.text[:200] or answer.reason_phrase}
            if answer.is_success:
                raise ServerError(
                    f"{self.url}: the response isn't JSON: {document['detail']}\n"
                    "  hint: give the address of a rangecast server"
                ) from None
        is_told = answer.status_code == 422 and "rejected" in document
        if answer.is_success or is_told or answer.status_code in call.answers:
            return call.read(document)
        if answer.status_code == 401:
            why = str(document.get("detail", document)).partition("\n")[0]
            document = {
                "detail": f"{why}\n  hint: pass a token: Client(token=...), --token, or "
                "RANGECAST_TOKEN"
            }
        raise error_of(document, answer.status_code)

    def _may_try_again(self, call: Call[Any], attempt: int, outcome: int | Exception) -> bool:
        """Return whether to retry a request after this status, or after this error."""
        if attempt >= ATTEMPTS:
            return False
        if isinstance(outcome, int):
            return outcome in (429, 503) and outcome not in call.answers
        return call.repeatable and not tls.is_failure(outcome)

    def _unreachable(self, error: Exception) -> ServerError:
        reason = tls.failure(self.url, error)
        if reason is None:
            reason = (
                f"no response: {str(error) or type(error).__name__}\n"
                "  hint: start a server with `rangecast serve`, or give its address"
            )
        return ServerError(f"{self.url}: {reason}")


def subscription_body(
    filter: str | None,  # noqa: A002
    score: float | None,
    weights: Mapping[str, float] | None,
    consumer: str | None,
    ttl: float | None,
    track: Rule | Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return a subscription, or changes of one, in the server's format."""
    return {
        "filter": filter,
        "score": None if score is None else score_of(score),
        "weights": dict(weights) if isinstance(weights, Mapping) else weights,
        "consumer": consumer,
        "ttl": ttl,
        "track": encoded_track_rule(track),
    }


def encoded_track_rule(track: Rule | Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return a track rule in the server's format."""
    if track is None:
        return None
    fields = track.definition() if isinstance(track, Rule) else track
    plain = {name.rstrip("_"): value for name, value in fields.items()}
    policy = plain.get("policy")
    return plain | ({"policy": policy.definition()} if isinstance(policy, Policy) else {})


def _present(name: Id, wanted: dict[str, Any]) -> dict[str, Any]:
    """Return the given fields of a subscription; a text id is part of the path instead."""
    own = {"id": as_id(name)} if not isinstance(name, str) else {}
    return own | {key: value for key, value in wanted.items() if value is not None}


def no_result(_: Any) -> None:
    """Ignore an answer."""


def _param(value: Any) -> Any:
    return str(value).lower() if isinstance(value, bool) else value
