"""The reference of the server's HTTP interface, from its OpenAPI document: `make reference`."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx

from rangecast.server.http.app import make_app
from rangecast.server.service import Service

HEAD = """\
# HTTP

Generated from the server's OpenAPI document by `make reference`. A running server has the document
at `/v1/openapi.json`, and at `/docs` a page that sends the requests.

"""
_METHODS = {"get": "GET", "put": "PUT", "post": "POST", "patch": "PATCH", "delete": "DELETE"}


def openapi() -> dict[str, Any]:
    """Return the OpenAPI document of a server."""

    async def fetched() -> dict[str, Any]:
        service = Service(None)
        transport = httpx.ASGITransport(make_app(service))
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as http:
            answer = await http.get("/v1/openapi.json")
        service.close()
        document: dict[str, Any] = answer.raise_for_status().json()
        return document

    return asyncio.run(fetched())


def page(document: dict[str, Any] | None = None) -> str:
    """Return the page as Markdown."""
    document = document or openapi()
    contents, body = "", ""
    for tag in document["tags"]:
        contents += f"**{tag['name']}**: {tag['description']}\n\n| request | |\n| --- | --- |\n"
        body += f"## {tag['name']}\n\n{tag['description']}\n\n"
        for path, methods in document["paths"].items():
            for method, operation in methods.items():
                if operation["tags"] == [tag["name"]]:
                    title = f"{_METHODS[method]} {path}"
                    anchor = operation["operationId"].lower()
                    contents += f"| [`{title}`](#{anchor}) | {operation['summary']} |\n"
                    body += f"### `{title}` {{ #{anchor} }}\n\n{_operation(operation)}"
        contents += "\n"
    schemas = document["components"]["schemas"]
    return HEAD + contents + body + _schemas(schemas).rstrip() + "\n"


def _operation(operation: dict[str, Any]) -> str:
    shown = f"{operation['description']}\n\n"
    if operation["parameters"]:
        shown += "| parameter | in | type | |\n| --- | --- | --- | --- |\n"
        for each in operation["parameters"]:
            about = [each.get("description", "")]
            if each["schema"].get("default") not in (None, ""):
                about.append(f"Default: `{json.dumps(each['schema']['default'])}`.")
            row = (f"`{each['name']}`", each["in"], _type(each["schema"]), " ".join(about).strip())
            shown += _row(*row)
        shown += "\n"
    for media, body in operation.get("requestBody", {}).get("content", {}).items():
        shown += f"Body, `{media}`: {_described(body['schema'])}\n\n{_example(body, media)}"
    errors = []
    for status, response in operation["responses"].items():
        if status < "300":
            for media, body in response["content"].items():
                shown += f"Answer {status}, `{media}`: {_described(body['schema'])}\n\n"
                shown += _example(body, media)
        else:
            errors.append(status)
    return shown + (f"Errors: {', '.join(errors)}.\n\n" if errors else "")


def _described(schema: dict[str, Any]) -> str:
    said = schema.get("description", "")
    return _type(schema) + (f". {said}" if said else ".")


def _example(body: dict[str, Any], media: str) -> str:
    if "example" not in body:
        return ""
    example = body["example"]
    if media in ("application/json", "application/problem+json") or not isinstance(example, str):
        return f"```json\n{json.dumps(example, indent=2)}\n```\n\n"
    return f"```text\n{example.rstrip()}\n```\n\n"


def _schemas(schemas: dict[str, Any]) -> str:
    shown = "## Schemas\n\n"
    for name, schema in schemas.items():
        shown += f"### {name} {{ #{_anchor(name)} }}\n\n{schema.get('description', '')}\n\n"
        if "properties" in schema:
            shown += "| field | type | |\n| --- | --- | --- |\n"
            for field, each in schema["properties"].items():
                is_required = field in schema.get("required", ())
                name_shown = f"`{field}`" + ("" if is_required else " (optional)")
                shown += _row(name_shown, _type(each), each.get("description", ""))
            shown += "\n"
        else:
            shown += f"{_type(schema)}.\n\n"
    return shown


def _anchor(name: str) -> str:
    """Return the anchor of a schema: some have the name of a tag or of an operation."""
    return f"schema-{name.lower()}"


def _type(schema: dict[str, Any]) -> str:
    """Return the type of a schema in one line; named schemas are links."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{_anchor(name)})"
    if "anyOf" in schema:
        return " or ".join(_type(each) for each in schema["anyOf"])
    if "enum" in schema:
        return ", ".join(f"`{json.dumps(each)}`" for each in schema["enum"])
    kinds = schema.get("type", "any")
    if kinds == "array" and "items" in schema:
        return f"array of {_type(schema['items'])}"
    if kinds == "object" and isinstance(schema.get("additionalProperties"), dict):
        return f"object of {_type(schema['additionalProperties'])}"
    return " or ".join([kinds] if isinstance(kinds, str) else kinds)


def _row(*cells: str) -> str:
    return "| " + " | ".join(" ".join(each.split()).replace("|", "\\|") for each in cells) + " |\n"
