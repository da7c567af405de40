"""Rights of callers: every path and every frame, with every scope, for two tenants."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import httpx
import pytest
from fastapi.routing import APIRoute
from websockets.sync.client import ClientConnection, connect

from rangecast import Space
from rangecast.server.http.app import PARTS
from rangecast.server.http.auth import SCOPES, digest_of
from rangecast.server.http.routes.websocket import _HANDLERS
from rangecast.server.http.tickets import MOST, SECONDS, Tickets
from rangecast.server.state.registry import RequestError
from tests.support.server.served import Served

SPACE = Space.from_toml("""
attribute = [{ name = "price", type = "number" }, { name = "word", type = "string" }]
""")
ANYBODY = ""
"""No token is needed."""
KNOWN = "any"
"""Any token will do."""
SUBSCRIPTIONS = "/v1/spaces/{space}/subscriptions"
EVENT = {"price": 1}


class Asked(NamedTuple):
    """A request that is right but for who makes it."""

    scope: str
    body: Any = None
    query: str = ""


ROUTES = {
    "GET /healthz": Asked(ANYBODY),
    "GET /readyz": Asked(ANYBODY),
    "GET /": Asked(ANYBODY),
    "GET /v1": Asked(ANYBODY),
    "GET /docs": Asked(ANYBODY),
    "HEAD /docs": Asked(ANYBODY),
    "HEAD /": Asked(ANYBODY),
    "GET /page/{name:path}": Asked(ANYBODY),
    "HEAD /page/{name:path}": Asked(ANYBODY),
    "GET /metrics": Asked("read"),
    "GET /v1/status": Asked("read"),
    "POST /v1/tickets": Asked(KNOWN),
    "GET /v1/tokens": Asked("admin"),
    "POST /v1/tokens": Asked("admin", {"label": "x", "tenant": "other"}),
    "DELETE /v1/tokens/{token}": Asked("admin"),
    "GET /v1/tenants": Asked("admin"),
    "PUT /v1/tenants/{tenant}": Asked("admin", {"consumers": 100}),
    "GET /v1/log": Asked("admin", query="after=0"),
    "GET /v1/spaces": Asked("read"),
    "GET /v1/spaces/{space}": Asked("read"),
    "PUT /v1/spaces/{space}": Asked("admin", SPACE.definition()),
    f"GET {SUBSCRIPTIONS}": Asked("read"),
    f"GET {SUBSCRIPTIONS}/{{name:path}}": Asked("read"),
    f"PUT {SUBSCRIPTIONS}/{{name:path}}": Asked("subscribe", {"filter": "price < 1"}),
    f"DELETE {SUBSCRIPTIONS}/{{name:path}}": Asked("subscribe"),
    f"POST {SUBSCRIPTIONS}:bulk": Asked("subscribe", [{"id": "bulk", "filter": "price < 1"}]),
    f"PATCH {SUBSCRIPTIONS}/{{name:path}}": Asked("subscribe", {"score": 2}),
    f"PATCH {SUBSCRIPTIONS}:bulk": Asked("subscribe", [{"id": "{name}", "filter": "price < 1"}]),
    f"POST {SUBSCRIPTIONS}:select": Asked("read", {"ids": ["{name}"]}),
    f"POST {SUBSCRIPTIONS}:delete": Asked("subscribe", {"ids": []}),
    "POST /v1/spaces/{space}/filters:preview": Asked("read", {"filter": "price < 5"}),
    f"POST {SUBSCRIPTIONS}:find-covering": Asked("read", {"filter": "price < 0.5"}),
    "POST /v1/spaces/{space}/events": Asked("publish", EVENT, "wait=matches"),
    "GET /v1/spaces/{space}/events": Asked("read"),
    "POST /v1/spaces/{space}/events:match": Asked("read", EVENT),
    "POST /v1/spaces/{space}/events:count": Asked("read", EVENT),
    "POST /v1/spaces/{space}/events:rank": Asked("read", EVENT, "relaxed=true"),
    "GET /v1/spaces/{space}/explain": Asked("read"),
    "GET /v1/spaces/{space}/transitions": Asked("read"),
    "POST /v1/spaces/{space}/why": Asked("read", {"event": EVENT, "subscription": "{name}"}),
    "POST /v1/spaces/{space}/why-not": Asked("read", {"event": EVENT}),
    "GET /v1/spaces/{space}/shapes": Asked("read"),
    "GET /v1/spaces/{space}/boxes": Asked("read", query="x=price&y=word"),
    "GET /v1/boards": Asked("read"),
    "GET /v1/boards/{board}": Asked("read"),
    "PUT /v1/boards/{board}": Asked("admin", {"k": 2}),
    "DELETE /v1/boards/{board}": Asked("admin"),
    "GET /v1/boards/{board}/interests": Asked("read"),
    "GET /v1/boards/{board}/interests/{name:path}": Asked("read"),
    "PUT /v1/boards/{board}/interests/{name:path}": Asked("subscribe", {"position_lo": 1}),
    "DELETE /v1/boards/{board}/interests/{name:path}": Asked("subscribe"),
    "POST /v1/boards/{board}/interests:delete": Asked("subscribe", {"ids": []}),
    "POST /v1/boards/{board}/interests:bulk": Asked("subscribe", [{"id": "bulk"}]),
    "POST /v1/boards/{board}/updates": Asked("publish", {"id": "o", "position": 1, "value": 1}),
    "GET /v1/boards/{board}/best": Asked("read"),
    "GET /v1/boards/{board}/objects": Asked("read"),
    "GET /v1/consumers": Asked("read"),
    "GET /v1/consumers/{name}": Asked("read"),
    "PUT /v1/consumers/{name}": Asked("subscribe", {"space": "{space}"}),
    "DELETE /v1/consumers/{name}": Asked("subscribe"),
    "GET /v1/consumers/{name}/messages": Asked("read"),
    "POST /v1/consumers/{name}/ack": Asked("subscribe", {"position": "start"}),
    "POST /v1/consumers/{name}/seek": Asked(
        "subscribe", {"position": "start", "subscriptions": "current"}
    ),
    "GET /v1/consumers/{name}/stream": Asked("read"),
    "GET /v1/consumers/{name}/dead-letters": Asked("read"),
    "POST /v1/consumers/{name}/dead-letters:redrive": Asked("subscribe"),
    "POST /v1/consumers/{name}/secret:rotate": Asked("subscribe"),
    "POST /v1/consumers/{name}:test": Asked("subscribe"),
}
FRAMES = {
    "auth": Asked(ANYBODY, {"token": "{secret}"}),
    "attach": Asked("read", {"consumer": "{name}"}),
    "follow": Asked("subscribe", {"space": "{space}", "filter": "price < 5"}),
    "publish": Asked("publish", {"space": "{space}", "events": [EVENT], "wait": "matches"}),
    "subscribe": Asked("subscribe", {"space": "{space}", "id": "ws", "filter": "price < 5"}),
    "unsubscribe": Asked("subscribe", {"space": "{space}", "id": "ws"}),
    "ack": Asked("subscribe", {"consumer": "{name}", "position": "0:0"}),
    "credit": Asked(ANYBODY, {"messages": 5}),
    "heartbeat": Asked(ANYBODY),
}
HAND_MADE = {"/v1/stream", "/v1/link"}
"""Not an `APIRoute`: its frames have a table of their own, and `links/test_manager.py`."""
TENANTS = ("red", "blue")


class Tenants:
    """A server with two tenants that have things of the same names, and a token per scope."""

    def __init__(self, secrets: dict[tuple[str, str], str] | None = None, **options: Any) -> None:
        self.served = Served(spaces={}, **options)
        self.http = httpx.Client(base_url=self.served.url, trust_env=False, timeout=120)
        self.secrets: dict[tuple[str, str], str] = secrets or {}
        if secrets is None:
            self._begin()

    def _begin(self) -> None:
        admin = None
        for tenant in ("default", *TENANTS):
            for scope in ("admin", *SCOPES[:-1]):
                given = {"label": tenant, "scopes": [scope], "tenant": tenant}
                found = self.http.post("/v1/tokens", json=given, headers=_bearer(admin))
                self.secrets[tenant, scope] = found.raise_for_status().json()["token"]
                admin = admin or self.secrets[tenant, scope]
        for tenant in TENANTS:
            for path, body in (
                ("spaces/s", SPACE.definition()),
                ("consumers/c", {"space": "s", "start_at": "start"}),
                (f"consumers/{tenant}-consumer", {"space": "s", "start_at": "start"}),
                (f"spaces/{tenant}-space", SPACE.definition()),
                ("boards/s", {"k": 2}),
                (f"boards/{tenant}-space", {"k": 2}),
                (f"consumers/{tenant}-lists", {"board": "s"}),
                (
                    f"boards/s/interests/{tenant}-0",
                    {"position_hi": 5, "consumer": f"{tenant}-lists"},
                ),
                *(
                    (f"spaces/s/subscriptions/{tenant}-{n}", wanted | {"consumer": "c"})
                    for n, wanted in enumerate(
                        (
                            {"filter": "price < 5"},
                            {"filter": f"price >= 0 or word = '{tenant}-word'"},
                        )
                    )
                ),
            ):
                self.ask(tenant, "admin", "PUT", f"/v1/{path}", body).raise_for_status()
            events = [{"price": n, "word": f"{tenant}-event"} for n in range(5)]
            path = "/v1/spaces/s/events"
            self.ask(tenant, "admin", "POST", path, events).raise_for_status()
            put = {"id": f"{tenant}-object", "position": 1, "value": 1}
            self.ask(tenant, "admin", "POST", "/v1/boards/s/updates", put).raise_for_status()

    def ask(
        self, tenant: str, scope: str, method: str, path: str, body: Any = None
    ) -> httpx.Response:
        headers = _bearer(self.secrets[tenant, scope] if scope else None)
        with self.http.stream(method, path, json=body, headers=headers) as answer:
            if "event-stream" in answer.headers.get("content-type", ""):
                text = b""
                for part in answer.iter_bytes():
                    text += part
                    if text.count(b"\n\n") > 2:
                        break
                return httpx.Response(answer.status_code, content=text)
            answer.read()
            return answer

    def route(self, tenant: str, scope: str, route: str, names: dict[str, str]) -> httpx.Response:
        method, path = route.split(" ")
        asked = ROUTES[route]
        path = f"{filled(path, names)}?{asked.query}"
        return self.ask(tenant, scope, method, path, filled(asked.body, names))

    def socket(self, secret: str | None) -> ClientConnection:
        url = self.served.url.replace("http", "ws") + "/v1/stream"
        return connect(url, proxy=None, additional_headers=_bearer(secret))

    def end(self) -> None:
        self.http.close()
        self.served.stop()


def _bearer(secret: str | None) -> dict[str, str]:
    return {} if secret is None else {"Authorization": f"Bearer {secret}"}


def filled(given: Any, names: dict[str, str]) -> Any:
    if isinstance(given, dict):
        return {key: filled(value, names) for key, value in given.items()}
    if isinstance(given, list):
        return [filled(one, names) for one in given]
    if isinstance(given, str):
        for name, value in names.items():
            given = given.replace(f"{{{name}}}", value).replace(f"{{{name}:path}}", value)
    return given


@pytest.fixture(scope="module")
def tenants() -> Iterator[Tenants]:
    made = Tenants()
    yield made
    made.end()


def names_of(route: str, tenant: str) -> dict[str, str]:
    """The names that both tenants have, but for subscriptions; nothing of these is deleted."""
    name = f"{tenant}-0" if re.search("subscriptions|why|interests", route) else "c"
    if route.startswith("DELETE"):
        name = "nil"
    return {"space": "s", "board": "s", "name": name, "tenant": "other", "token": "0" * 16}


def test_every_route_is_in_the_table() -> None:
    found = set()
    for part in PARTS:
        for route in part.router.routes:
            if isinstance(route, APIRoute):
                found |= {f"{method} {route.path}" for method in route.methods}
            else:
                assert getattr(route, "path", None) in HAND_MADE
    assert found == ROUTES.keys()
    assert _HANDLERS.keys() == FRAMES.keys()


def test_every_route_with_every_scope(tenants: Tenants) -> None:
    """What is allowed is exactly what the table says; a stranger gets nothing."""
    wrong = []
    for route, (needed, *_) in ROUTES.items():
        status = tenants.route("red", "", route, names_of(route, "red")).status_code
        if (status == 401) != (needed != ANYBODY):
            wrong.append(f"{route} without a token: {status}")
        found = set()
        for scope in SCOPES if needed else ():
            answer = tenants.route("red", scope, route, names_of(route, "red"))
            if answer.status_code == 403:
                assert f"this operation requires '{needed}'" in answer.json()["detail"]
            else:
                found.add(scope)
        if needed and found != ({*SCOPES} if needed == KNOWN else {needed, "admin"}):
            wrong.append(f"{route}: allowed with {sorted(found)}")
    assert not wrong


def test_every_route_rejects_a_token_that_has_ended(tenants: Tenants) -> None:
    """One that was ended, and one that has expired; what needs no token is served with any."""
    given = {"label": "brief", "scopes": ["admin"], "tenant": "red"}
    ended = tenants.ask("red", "admin", "POST", "/v1/tokens", given).json()
    tenants.secrets["red", "ended"] = ended["token"]
    tenants.ask("red", "admin", "DELETE", f"/v1/tokens/{ended['id']}").raise_for_status()
    expired = tenants.ask("red", "admin", "POST", "/v1/tokens", given | {"ttl": 1e-6}).json()
    tenants.secrets["red", "expired"] = expired["token"]
    for scope in ("ended", "expired"):
        for route, (needed, *_) in ROUTES.items():
            status = tenants.route("red", scope, route, names_of(route, "red")).status_code
            assert (status == 401) == (needed != ANYBODY), (route, status)
        with tenants.socket(tenants.secrets["red", scope]) as socket:
            for kind, (needed, body, _) in FRAMES.items():
                names = {"space": "s", "name": "c", "secret": tenants.secrets["red", scope]}
                socket.send(json.dumps({"type": kind, "ref": kind} | (filled(body, names) or {})))
                socket.send('{"type": "heartbeat", "ref": "end"}')
                statuses = []
                while (frame := json.loads(socket.recv(timeout=90))).get("ref") != "end":
                    statuses.append(frame.get("status", 200))
                assert frame == {"type": "ok", "ref": "end"}  # it tells nothing
                if needed != ANYBODY or kind == "auth":
                    assert statuses == [401], kind


def test_every_frame_with_every_scope(tenants: Tenants) -> None:
    wrong = []
    for scope in (ANYBODY, *SCOPES):
        secret = tenants.secrets["red", scope] if scope else None
        with tenants.socket(secret) as socket:
            for kind, (needed, body, _) in FRAMES.items():
                if kind == "auth" and not scope:
                    continue
                names = {"space": "s", "name": "red-consumer", "secret": secret or ""}
                socket.send(json.dumps({"type": kind, "ref": kind} | (filled(body, names) or {})))
                socket.send('{"type": "heartbeat", "ref": "end"}')
                status = 200
                while (frame := json.loads(socket.recv(timeout=90))).get("ref") != "end":
                    status = frame.get("status", 200) if frame.get("ref") == kind else status
                expected = needed in (ANYBODY, scope) or scope == "admin"
                if (status not in (401, 403)) != expected:
                    wrong.append(f"{kind} with {scope or 'no token'}: {status}")
    assert not wrong


def test_no_name_of_another_tenant_is_ever_seen(tenants: Tenants) -> None:
    """Both ask for everything, by names that both have: nobody sees the other's ids or events."""
    for tenant, other in (("red", "blue"), ("blue", "red")):
        seen = ""
        for route, (needed, *_) in ROUTES.items():
            if needed in (ANYBODY, "admin") or route.startswith("DELETE"):
                continue
            scope = "read" if needed == KNOWN else needed
            answer = tenants.route(tenant, scope, route, names_of(route, tenant))
            assert answer.status_code in (200, 409), (route, answer.text)
            assert f"{other}-" not in answer.text, (route, answer.text)
            seen += answer.text
        for mine in ("-0", "-1", "-event", "-consumer", "-space", "-word", "-object", "-lists"):
            assert tenant + mine in seen
        with tenants.socket(tenants.secrets[tenant, "admin"]) as socket:
            for kind, (_, body, _) in FRAMES.items():
                names = {"space": "s", "name": "c", "secret": tenants.secrets[tenant, "admin"]}
                socket.send(json.dumps({"type": kind, "ref": kind} | (filled(body, names) or {})))
            socket.send('{"type": "heartbeat", "ref": "end"}')
            text = ""
            while '"ref":"end"' not in (heard := str(socket.recv(timeout=90))):
                text += heard
            assert f"{other}-" not in text


def test_what_is_anothers_is_answered_like_what_is_nowhere(tenants: Tenants) -> None:
    """Blue asks by names that only red has, and by names that nobody has: the same answers."""
    for route, (needed, *_) in ROUTES.items():
        if "{" not in route or needed in (ANYBODY, "admin"):
            continue
        kind = "-0" if re.search("subscriptions|why|interests", route) else "-consumer"
        own = [] if route.startswith("PUT") or ":bulk" in route else ["s"]
        for in_space in ("{whose}-space", *own):
            answers = []
            for whose in ("red", "nil"):
                space = in_space.replace("{whose}", whose)
                names = {"space": space, "board": space, "name": whose + kind}
                found = tenants.route("blue", needed, route, names)
                text = re.sub(r":\d+", "", found.text.replace(f"{whose}-", ""))  # positions move on
                answers.append((found.status_code, text))
            assert answers[0] == answers[1], route
            if re.search("{space}|{board}", route) and in_space != "s":
                assert answers[0][0] == 404


def test_a_body_is_bounded_before_it_is_read(tenants: Tenants) -> None:
    """Also where there is no token, and where its length isn't said."""
    for path in ("/v1/consumers/c", "/v1/spaces/s/subscriptions/x", "/v1/tenants/x"):
        for content in (b" " * (9 << 20), (b" " * (1 << 20) for _ in range(20))):
            answer = tenants.http.put(path, content=content)
            assert answer.status_code == 413, answer.text
            assert "at most 1,048,576 bytes" in answer.json()["detail"]


def test_a_ticket_opens_one_stream_and_no_other_path(tenants: Tenants) -> None:
    def ticket(scope: str) -> str:
        found: str = tenants.ask("red", scope, "POST", "/v1/tickets").json()["ticket"]
        return found

    def hear(address: str) -> dict[str, Any]:
        with connect(address, proxy=None) as socket:
            socket.send('{"type": "attach", "consumer": "red-consumer"}')
            heard: dict[str, Any] = json.loads(socket.recv(timeout=90))
            return heard

    stream = "/v1/consumers/c/stream"  # it has messages, so that nobody waits for a beat
    one = ticket("read")
    assert tenants.ask("red", "", "GET", f"/v1/status?ticket={one}").status_code == 401
    for scope, status in (("read", 200), ("publish", 403)):
        one = ticket(scope)
        assert tenants.ask("red", "", "GET", f"{stream}?ticket={one}").status_code == status
        assert tenants.ask("red", "", "GET", f"{stream}?ticket={one}").status_code == 401
    address = tenants.served.url.replace("http", "ws") + "/v1/stream?ticket="
    one = ticket("read")
    assert hear(address + one)["type"] == "attached"
    assert hear(address + one)["status"] == 401
    assert hear(address + ticket("publish"))["status"] == 403
    # one whose token has ended meanwhile
    given = {"label": "brief", "scopes": ["read"], "tenant": "red"}
    made = tenants.ask("red", "admin", "POST", "/v1/tokens", given).json()
    brief = {"Authorization": f"Bearer {made['token']}"}
    one = tenants.http.post("/v1/tickets", headers=brief).json()["ticket"]
    tenants.ask("red", "admin", "DELETE", f"/v1/tokens/{made['id']}").raise_for_status()
    assert hear(address + one)["status"] == 401


def test_a_ticket_lasts_for_some_seconds() -> None:
    now = [0.0]
    tickets = Tickets(lambda: now[0])
    early, late = tickets.issue(digest_of("rc_token")), tickets.issue(None)
    now[0] += SECONDS - 1
    assert tickets.used(early) == digest_of("rc_token")
    now[0] += 2
    for one in (late, early, "none"):
        with pytest.raises(RequestError, match="is unknown, already used, or expired"):
            tickets.used(one)
    first = tickets.issue(None)
    for _ in range(MOST):
        tickets.issue(None)
    with pytest.raises(RequestError):  # what waits is bounded
        tickets.used(first)
