"""Requests that nobody would make: every path, with odd names, parameters and bodies.

    python -m tests.soak.server_fuzz --requests 100000 [--seed N]

No answer may be an internal error, every rejection must be a problem that says what is wrong,
and the server must go on.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
from typing import Any
from urllib.parse import quote, urlencode

import httpx

NAMES = [
    *("market", "a", "all", "", " ", "..", "%00", "a/b", "\u00fc", "x" * 300, "session-1", "'"),
    *("\x00", "a\r\nb", "\x1b[31m", "\u2028", "x" * 20_000, "a?b", "a#b", "%", "%zz", "."),
]
RAW = ["%ed%a0%80", "%ff", "%00", "%", "%zz", "a%0d%0aX", "%C0%AF", "%2e%2e%2f", "%f0%9f%98%80"]
"""Names as they may stand in a path that no client would make: half a surrogate, not UTF-8."""
TEXTS = [
    *NAMES,
    "start",
    "now",
    "0:1",
    "1",
    "-1",
    "1e9",
    "true",
    "nan",
    "inf",
    "-inf",
    "1e400",
    "-0",
    "0",
    "9" * 5000,
    "9223372036854775808",
    "-9223372036854775809",
    "1_000",
    "0x10",
    "\x00",
    "\ufffd",
    "x" * 20_000,
    "\ud7ff",
    "price < 5",
    "{}",
]
DEEP: Any = []
for _ in range(200):
    DEEP = [DEEP]
VALUES: list[Any] = [
    *(10**400, -(10**400), 2**53 + 1, -0.0, 1e-320, "\x00", "\ud800", "x" * 70_000, "a\nb", DEEP),
    *(float("nan"), float("inf"), {"": None}, {"a": DEEP}, [None] * 300, "1e400", {"filter": []}),
    *(None, True, False, 0, -1, 1, 2**63, 2**70, 1.5, 1e308, "", "x", "market", "price < 5"),
    *("price <", "symbol = '\u00fc'", "start", "now", "webhook", "http://127.0.0.1:1/", [], {}),
    *([1], [[]], {"a": 1}, {"kind": "webhook"}, {"kind": "nats"}, {"price": "x"}, {"price": 3}),
]
KEYS = [
    *("filter", "score", "weights", "consumer", "ttl", "space", "start_at", "on_gap", "delivery"),
    *(
        "position",
        "max_per_event",
        "max_per_second",
        "label",
        "scopes",
        "tenant",
        "attribute",
        "id",
        "price",
        "symbol",
        "event",
    ),
    *("specversion", "data", "type", "subscriptions", "url", "kind"),
    *(
        "k",
        "position",
        "value",
        "position_lo",
        "position_hi",
        "board",
        "upper_bound_attribute",
        "descending",
    ),
]
KINDS = [
    *("application/json", "application/x-ndjson", "application/cloudevents+json", "text/plain"),
    *("application/cloudevents-batch+json", "application/vnd.apache.arrow.stream", "", "x"),
]


class Fuzz:
    """Makes odd requests, by seed."""

    def __init__(self, url: str, seed: int):
        self.dice = random.Random(seed)
        self.http = httpx.Client(base_url=url, trust_env=False, timeout=120)
        described = self.http.get("/v1/openapi.json").json()
        paths, self.schemas = described["paths"], described.get("components", {}).get("schemas", {})
        self.routes = [
            (method.upper(), path, about)
            for path, methods in sorted(paths.items())
            for method, about in sorted(methods.items())
            # A token would lock the next request out; a stream has no end.
            if not (path == "/v1/tokens" and method == "post") and not path.endswith("/stream")
        ]
        self.statuses: dict[int, int] = {}

    def run(self, count: int) -> str:
        """Make so many requests; return what came of them, or raise."""
        for _ in range(count):
            method, path, about = self.dice.choice(self.routes)
            self._ask(method, path, about)
        assert self.http.get("/healthz").status_code == 200
        assert self.http.get("/readyz").status_code == 200
        return f"{count:,} odd requests: {dict(sorted(self.statuses.items()))}"

    def _ask(self, method: str, path: str, about: dict[str, Any]) -> None:
        dice, params = self.dice, {}
        for one in about.get("parameters", ()):
            if one["in"] == "path":
                name = quote(dice.choice(NAMES), safe="")
                name = dice.choice(RAW) if dice.random() < 0.2 else name
                path = path.replace(f"{{{one['name']}}}", name)
            elif one["in"] == "query" and dice.random() < 0.5:
                params[one["name"]] = dice.choice(TEXTS)
        path = path.replace("{name}", "x").replace("{", "").replace("}", "")
        params.pop("wait", None) if dice.random() < 0.9 else None
        headers = {"Content-Type": dice.choice(KINDS)}
        for name in ("If-Match", "If-None-Match", "Idempotency-Key", "Last-Event-ID", "Accept"):
            if dice.random() < 0.1:
                headers[name] = dice.choice(["*", "", "x", '"1"', "toml", "0:1"])
        body = self._body() if method != "GET" else None
        if "requestBody" in about and dice.random() < 0.6:
            body = self._described(about) or body
        if dice.random() < 0.1:
            del headers["Content-Type"]
        if dice.random() < 0.1 and body is not None:
            headers["Content-Encoding"] = dice.choice(["gzip", "br", "identity"])
            body = gzip.compress(body) if dice.random() < 0.7 else body
        # As it is: the client would write it in another way, or reject it.
        url = httpx.URL(self.http.base_url, raw_path=_target(path, params))
        answer = self.http.request(method, url, headers=headers, content=body)
        self.statuses[answer.status_code] = self.statuses.get(answer.status_code, 0) + 1
        what = f"{method} {path} {params} {headers} {body!r}: {answer.status_code} {answer.text}"
        assert answer.status_code < 500, what
        if answer.status_code >= 400 and "rejected" not in answer.text:
            assert answer.json()["detail"], what
            assert answer.json()["status"] == answer.status_code, what

    def _described(self, about: dict[str, Any]) -> bytes:
        """Return a body that has the fields of its schema, most of them as they should be."""
        found = about["requestBody"].get("content", {}).get("application/json", {})
        name = found.get("schema", {}).get("$ref", "").rpartition("/")[2]
        fields = self.schemas.get(name, {}).get("properties", {})
        good = {"space": "market", "filter": "price < 5", "start_at": "now", "position": "start"}
        good |= {
            "subscriptions": "historical",
            "label": "x",
            "k": 2,
            "on_gap": "report",
            "scopes": ["read"],
        }  # type: ignore[dict-item]
        dice, body = self.dice, dict[str, Any]()
        for one, about_it in fields.items():
            if dice.random() < 0.2:
                body[one] = dice.choice(VALUES)
            elif one in good:
                body[one] = good[one]
            elif dice.random() < 0.3 and "default" in about_it:
                body[one] = about_it["default"]
        return json.dumps(body).encode() if body else b""

    def _body(self) -> bytes:
        dice = self.dice
        turn = dice.random()
        if turn < 0.1:
            return dice.randbytes(dice.randint(0, 40))
        if turn < 0.2:
            return json.dumps(dice.choice(VALUES)).encode()
        made = [
            {dice.choice(KEYS): dice.choice(VALUES) for _ in range(dice.randint(0, 5))}
            for _ in range(dice.randint(1, 3))
        ]
        if turn < 0.35:
            return "\n".join(map(json.dumps, made)).encode()
        if turn < 0.5:
            return json.dumps(made).encode()
        good = {"filter": "price < 5", "space": "market", "position": "start", "label": "x"} | {
            "k": 2
        }
        picked = {key: good[key] for key in good if dice.random() < 0.6}
        return json.dumps(picked | made[0] if dice.random() < 0.5 else picked).encode()


def _target(path: str, params: dict[str, str]) -> bytes:
    """Return a path and a query as they stand in a request."""
    query = "?" + urlencode(params) if params else ""
    return (path + query).encode("ascii", "ignore")


def main() -> None:
    """Start a server and fuzz it."""
    from tests.support.server.served import Served

    parser = argparse.ArgumentParser(prog="python -m tests.soak.server_fuzz", description=__doc__)
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=random.randrange(10**9))
    given = parser.parse_args()
    print(f"seed {given.seed}", flush=True)
    served = Served()
    try:
        print(Fuzz(served.url, given.seed).run(given.requests))
    finally:
        served.stop()


if __name__ == "__main__":
    main()
