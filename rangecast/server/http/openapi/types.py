"""Constructors of JSON schemas."""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]


def ref(name: str) -> Schema:
    """Return a reference to a schema."""
    return {"$ref": f"#/components/schemas/{name}"}


def text(about: str = "", **more: Any) -> Schema:
    """Return the schema of a string."""
    return _about({"type": "string", **more}, about)


def number(about: str = "", **more: Any) -> Schema:
    """Return the schema of a number."""
    return _about({"type": "number", **more}, about)


def whole(about: str = "", **more: Any) -> Schema:
    """Return the schema of an integer."""
    return _about({"type": "integer", **more}, about)


def flag(about: str = "") -> Schema:
    """Return the schema of a boolean."""
    return _about({"type": "boolean"}, about)


def listed(items: Schema, about: str = "", **more: Any) -> Schema:
    """Return the schema of an array."""
    return _about({"type": "array", "items": items, **more}, about)


def mapped(values: Schema, about: str = "") -> Schema:
    """Return the schema of an object with arbitrary keys."""
    return _about({"type": "object", "additionalProperties": values}, about)


def maybe(schema: Schema) -> Schema:
    """Return the schema of a nullable value."""
    if "$ref" in schema:
        return {"anyOf": [schema, {"type": "null"}]}
    kinds = schema["type"]
    return {**schema, "type": [*([kinds] if isinstance(kinds, str) else kinds), "null"]}


def record(about: str, optional: dict[str, Schema] | None = None, **needed: Schema) -> Schema:
    """Return the schema of an object with these keys."""
    properties = {name.rstrip("_"): schema for name, schema in needed.items()} | (optional or {})
    required = [name.rstrip("_") for name in needed]
    return {
        "type": "object",
        "description": about,
        "properties": properties,
        **({"required": required} if required else {}),
    }


def closed(schema: Schema) -> Schema:
    """Return the schema with no additional keys allowed."""
    return {**schema, "additionalProperties": False}


def page(items: Schema, about: str) -> Schema:
    """Return the schema of a page of a list."""
    return record(
        about,
        items=listed(items),
        next=maybe(text("Value of `after` for the next page; null: this is the last.")),
        count=whole("Total number of items.", minimum=0),
    )


def _about(schema: Schema, about: str) -> Schema:
    return {**schema, "description": about} if about else schema
