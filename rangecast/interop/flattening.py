"""Nested events as flat ones: attributes named by their path."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rangecast.errors import UsageError, abbreviate


def flatten(event: Mapping[str, Any]) -> dict[str, Any]:
    """Return an event as one dict: `{"detail": {"state": "on"}}` is `{"detail.state": "on"}`.

    Nested names are joined by dots. An array is rejected: an attribute has one value.
    """
    flat: dict[str, Any] = {}
    for name, value in _leaves(event, ""):
        if name in flat:
            raise UsageError(
                f"the event has two fields {name!r}: one is nested, one has a dot in its name"
            )
        flat[name] = value
    return flat


def _leaves(event: Mapping[str, Any], prefix: str) -> list[tuple[str, Any]]:
    leaves: list[tuple[str, Any]] = []
    for key, value in event.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            leaves.extend(_leaves(value, f"{name}."))
        elif isinstance(value, list | tuple):
            raise UsageError(
                f"{name!r} is an array, but an attribute has a single value\n"
                f"  given: {abbreviate(value)}\n"
                "  hint: leave the field out, or publish one event per element"
            )
        else:
            leaves.append((name, value))
    return leaves
