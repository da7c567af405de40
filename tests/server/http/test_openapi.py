"""The OpenAPI document: whole, under public names, and its examples are what the server answers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from rangecast.server.http.app import make_app
from rangecast.server.http.openapi.operation import TAGS
from rangecast.server.http.openapi.operations import OPERATIONS
from rangecast.server.service import Service
from tests.support.server.serving import run

_NO_BODY = {
    "makeTicket",
    "redriveDeadLetters",
    "rotateSecret",
    "testDelivery",
}
"""Requests by POST that have no body."""


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    found: dict[str, Any] = {}

    async def work() -> None:
        service = Service(None)
        transport = httpx.ASGITransport(make_app(service))
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as http:
            found.update((await http.get("/v1/openapi.json")).json())
        service.close()

    asyncio.run(work())
    return found


def operations(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in document["paths"].items():
        for method, one in methods.items():
            yield method, path, one


def wrong(schema: dict[str, Any], value: Any, document: dict[str, Any], at: str = "") -> list[str]:
    """Return where a value isn't what a schema says, as far as these schemas go."""
    if "$ref" in schema:
        target = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
        return wrong(target, value, document, at)
    if "anyOf" in schema:
        each = [wrong(one, value, document, at) for one in schema["anyOf"]]
        return [] if [] in each else min(each, key=len)
    kinds: dict[str, Any] = {
        "string": str,
        "number": (int, float),
        "integer": int,
        "boolean": bool,
        "array": list,
        "object": dict,
        "null": type(None),
    }
    names = schema.get("type", [])
    names = [names] if isinstance(names, str) else names
    if names and not any(
        isinstance(value, kinds[name]) and (name == "boolean" or not isinstance(value, bool))
        for name in names
    ):
        return [f"{at}: {value!r} is no {names}"]
    found = []
    if "enum" in schema and value not in schema["enum"]:
        found.append(f"{at}: {value!r} is none of {schema['enum']}")
    if isinstance(value, list) and "items" in schema:
        for place, item in enumerate(value):
            found += wrong(schema["items"], item, document, f"{at}[{place}]")
    if isinstance(value, dict):
        known, more = schema.get("properties", {}), schema.get("additionalProperties", True)
        found += [
            f"{at}.{name} is missing" for name in schema.get("required", ()) if name not in value
        ]
        for name, item in value.items():
            if name in known:
                found += wrong(known[name], item, document, f"{at}.{name}")
            elif more is False:
                found.append(f"{at}.{name} isn't known")
            elif isinstance(more, dict):
                found += wrong(more, item, document, f"{at}.{name}")
    return found


def test_every_operation_is_described(document: dict[str, Any]) -> None:
    listed = {(method, path): one for method, path, one in operations(document)}
    assert listed.keys() == OPERATIONS.keys()
    names = [one["operationId"] for one in listed.values()]
    assert len(set(names)) == len(names)
    for (method, path), one in listed.items():
        assert one["summary"], path
        assert one["description"], path
        assert one["tags"][0] in TAGS
        assert "_" not in one["operationId"]
        for given in one["parameters"]:
            assert given["schema"], given
            assert given["in"] != "path" or given["example"], given
            assert given["in"] != "query" or given["description"], given
        takes_body = method in ("put", "post", "patch") and one["operationId"] not in _NO_BODY
        assert takes_body == ("requestBody" in one), path
        success = [status for status in one["responses"] if status < "300"]
        assert len(success) == 1
        for media, content in one["responses"][success[0]]["content"].items():
            assert content["schema"], (path, media)
            assert content["example"], (path, media)
        if takes_body:
            contents = one["requestBody"]["content"]
            assert all(content["schema"] for content in contents.values())
            assert "example" in next(iter(contents.values())), path
        if path not in ("/healthz", "/readyz", "/v1"):
            problem = one["responses"]["401"]["content"]["application/problem+json"]
            assert problem["schema"] == {"$ref": "#/components/schemas/Problem"}
            assert wrong(problem["schema"], problem["example"], document) == []


def test_names_are_public(document: dict[str, Any]) -> None:
    text = json.dumps(document)
    for leak in (
        "rangecast__",
        "HTTPValidationError",
        "SubscriptionRequest",
        "_v1_",
        "server.http",
    ):
        assert leak not in text
    used = {part.partition('"')[0] for part in text.split("#/components/schemas/")[1:]}
    schemas = document["components"]["schemas"]
    assert used == schemas.keys()
    for name, schema in schemas.items():
        assert schema["title"] == name
        assert schema["description"]


def test_examples_fit_their_schemas(document: dict[str, Any]) -> None:
    for _, path, one in operations(document):
        bodies = list(one.get("requestBody", {"content": {}})["content"].items())
        for answer in one["responses"].values():
            bodies += answer["content"].items()
        for media, content in bodies:
            if "example" in content:
                assert wrong(content["schema"], content["example"], document) == [], (path, media)


def test_a_schema_can_be_missed(document: dict[str, Any]) -> None:
    """What compares examples with schemas does find differences."""
    schema = {"$ref": "#/components/schemas/NewSubscription"}
    assert wrong(schema, {"filter": "price < 3"}, document) == []
    for value in ({}, {"filter": 3}, {"filter": "x", "colour": 1}, {"filter": "x", "ttl": "long"}):
        assert len(wrong(schema, value, document)) == 1
    assert wrong({"$ref": "#/components/schemas/Token"}, {"id": "x"}, document)


ORDER = ["put", "post", "patch", "get", "delete"]
LAST = ["listTokens", "deleteToken", "deleteSubscriptions"]


def test_the_server_answers_as_the_examples_say(document: dict[str, Any]) -> None:
    """All requests are sent as their examples are: what is made first is there for the others."""
    todo = sorted(operations(document), key=lambda one: ORDER.index(one[0]))
    late = [one for one in todo if one[2]["operationId"] in LAST]
    made = [one for one in todo if one[2]["operationId"] == "makeToken"]
    todo = [one for one in todo if one not in late + made]
    gone = [one for one in todo if one[0] == "delete"]
    todo = [one for one in todo if one[0] != "delete"]
    # what is in a space or a board goes before it
    gone.sort(key=lambda one: -one[1].count("/"))
    todo.sort(key=lambda one: (one[0] != "put", one[1].count("/") if one[0] == "put" else 0))

    async def work() -> None:
        service = Service(None, allow_private_webhooks=True)
        service.start()
        transport = httpx.ASGITransport(make_app(service), client=("127.0.0.1", 1))
        http = httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1")
        token: dict[str, Any] = {}

        async def sent(method: str, path: str, one: dict[str, Any], media: str | None) -> Any:
            headers = {"Authorization": f"Bearer {token['token']}"} if token else {}
            query = {}
            for given in one["parameters"]:
                if given["in"] == "path":
                    value = token.get("id") if given["name"] == "token" else given["example"]
                    path = path.replace(f"{{{given['name']}}}", value)
                elif given["in"] == "query" and "example" in given:
                    query[given["name"]] = given["example"]
            body = None
            if media is not None:
                example = one["requestBody"]["content"][media]["example"]
                body = example if isinstance(example, str) else json.dumps(example)
                headers["Content-Type"] = media
            return await http.request(method, path, params=query, content=body, headers=headers)

        async def check(method: str, path: str, one: dict[str, Any]) -> None:
            contents = one.get("requestBody", {"content": {}})["content"]
            for media in [name for name, body in contents.items() if "example" in body] or [None]:
                answer = await sent(method, path, one, media)
                status = str(answer.status_code)
                assert status < "300", (path, media, answer.text)
                kind = answer.headers["content-type"].partition(";")[0]
                content = one["responses"][status]["content"][kind]
                if kind == "application/json":
                    found = answer.json()
                    assert wrong(content["schema"], found, document) == [], (path, found)
                    expected = set(content["example"])
                    assert expected <= found.keys() | {"gap"}, (path, found)
                if one["operationId"] == "makeToken":
                    token.update(answer.json())

        hook = {"kind": "webhook", "url": "http://127.0.0.1:9/", "allow_private": True}
        try:
            for method, path, one in todo:
                if one["operationId"] == "streamMessages":
                    continue  # it has no end: test_server_http.py reads it
                await check(method, path, one)
                if one["operationId"] == "putSpace":
                    given = {"space": "market", "delivery": hook}
                    (await http.put("/v1/consumers/hook", json=given)).raise_for_status()
            for method, path, one in gone + made + late:
                await check(method, path, one)
        finally:
            await http.aclose()
            await service.deliveries.stop()
            service.maintenance.stop()
            service.core.pipeline.stop()
            service.close()

    run(work)
