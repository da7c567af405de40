"""The OpenAPI document: FastAPI's paths and query parameters, under public names."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI

from rangecast.server.http.openapi.operation import PATH_EXAMPLES, TAGS, Body, Operation
from rangecast.server.http.openapi.operations import OPERATIONS
from rangecast.server.http.openapi.schemas import SCHEMAS
from rangecast.server.http.openapi.types import ref

_ERRORS = {
    400: "The request can't be read.",
    401: "A token is required, or this one is unknown.",
    403: "The token or a limit of the tenant doesn't allow this.",
    404: "There is no such space, subscription, consumer or board.",
    409: "The request conflicts with the current state.",
    410: "The log of that time was dropped: `earliest` is the first seq that can be asked about.",
    412: "A precondition of a header isn't met.",
    413: "The body is too large.",
    415: "The content type isn't supported.",
    422: "The request is invalid.",
    429: "Too many requests; see Retry-After.",
    503: "The server can't accept it now; see Retry-After.",
    507: "The disk is full.",
}
_OPEN = {"/healthz", "/readyz", "/v1"}
"""Paths that need no token."""
_READING = (401, 403, 404, 422)
_WRITING = (400, 401, 403, 404, 409, 412, 413, 415, 422, 429, 503, 507)
_PROBLEM = "application/problem+json"
_RESULTS = (ref("PublishResult"), ref("BulkResult"))
"""Answers of which one with a status of 422 has no accepted row."""
_EXAMPLE = {
    "type": "about:blank",
    "title": "Unprocessable Entity",
    "status": 422,
    "code": "filter",
    "detail": "no attribute 'prise' (line 1, column 1)\n  prise < 3\n  ^^^^^\n"
    "hint: did you mean 'price'?",
}


def install(app: FastAPI) -> None:
    """Serve this document as the application's description; it is built on the first request."""
    generate = app.openapi

    def described() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = document(generate())
        return app.openapi_schema

    app.openapi = described  # type: ignore[method-assign]


def document(generated: dict[str, Any]) -> dict[str, Any]:
    """Return the OpenAPI document, based on the one that FastAPI generates."""
    paths: dict[str, Any] = {}
    for path, methods in generated["paths"].items():
        paths[path] = {
            method: _operation(path, method, operation, OPERATIONS[method, path])
            for method, operation in methods.items()
        }
    schemas = {name: {"title": name, **schema} for name, schema in SCHEMAS.items()}
    secured = {"token": {"type": "http", "scheme": "bearer"}}
    return {
        "openapi": generated["openapi"],
        "info": generated["info"],
        "tags": [{"name": name, "description": about} for name, about in TAGS.items()],
        "security": [{"token": []}, {}],
        "paths": paths,
        "components": {"schemas": schemas, "securitySchemes": secured},
    }


def _operation(
    path: str, method: str, described: dict[str, Any], operation: Operation
) -> dict[str, Any]:
    made: dict[str, Any] = {
        "operationId": operation.id,
        "summary": operation.summary,
        "description": described.get("description", operation.summary),
        "tags": [operation.tag],
        "parameters": _parameters(described, operation),
    }
    if path in _OPEN:
        made["security"] = []
    if operation.bodies:
        made["requestBody"] = {
            "required": True,
            "content": {body.media: _content(body) for body in operation.bodies},
        }
    statuses = _READING if method == "get" else _WRITING
    if "as_of" in operation.query:
        statuses = (*statuses, 410)
    made["responses"] = {
        str(operation.status): {
            "description": _about(operation),
            "content": {operation.answer.media: _content(operation.answer)},
        },
        **({} if path in _OPEN else _problems(statuses)),
    }
    if operation.answer.schema in _RESULTS:
        either = {"anyOf": [ref("Problem"), operation.answer.schema]}
        contents = {_PROBLEM: {"schema": either, "example": _EXAMPLE}}
        if operation.answer.schema == ref("BulkResult"):
            contents["application/json"] = {"schema": operation.answer.schema}
        made["responses"]["422"]["content"] = contents
    if path == "/readyz":
        made["responses"]["503"] = {
            "description": "Events can't be published.",
            "content": {"application/json": _content(Body(ref("Health"), {"status": "disk full"}))},
        }
    return made


def _about(operation: Operation) -> str:
    """Return the description of an operation's response, from its schema."""
    name = operation.answer.schema.get("$ref", "").rpartition("/")[2]
    text: str = SCHEMAS[name]["description"] if name else operation.summary
    return text


def _parameters(operation_: dict[str, Any], operation: Operation) -> list[dict[str, Any]]:
    made = []
    queries = dict(operation.query)
    for declared in operation_.get("parameters", []):
        name, schema = declared["name"], dict(declared["schema"])
        schema.pop("title", None)
        if declared["in"] == "path":
            example = operation.path.get(name, PATH_EXAMPLES[name])
            made.append({**declared, "schema": schema, "example": example})
        elif declared["in"] == "query":
            described = dict(queries.pop(name))
            about, example = described.pop("description"), described.pop("example", None)
            default = {"default": schema["default"]} if "default" in schema else {}
            parameter = {**declared, "schema": {**described, **default}, "description": about}
            made.append(parameter if example is None else {**parameter, "example": example})
    for location, more in (("query", queries), ("header", operation.headers)):
        for name, schema in more.items():
            about = {"description": schema["description"]} if "description" in schema else {}
            made.append(
                {"name": name, "in": location, "required": False, "schema": schema, **about}
            )
    return made


def _content(body: Body) -> dict[str, Any]:
    example = {} if body.example is None else {"example": body.example}
    return {"schema": body.schema, **example}


def _problems(statuses: tuple[int, ...]) -> dict[str, Any]:
    return {
        str(status): {
            "description": _ERRORS[status],
            "content": {
                "application/problem+json": {"schema": ref("Problem"), "example": _EXAMPLE}
            },
        }
        for status in statuses
    }
