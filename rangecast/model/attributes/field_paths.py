"""Paths to attribute values in nested events.

    source = "$.order.total"     of {"order": {"total": 9.5}}

A path is `$` followed by one step per field: `.name` or `['any name']`. If a field on the path is
absent or null, the value is missing. Fields outside the path are ignored.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from rangecast.errors import InvalidValueError, SpaceError, abbreviate

Fields = tuple[str, ...]
"""The names of fields, one within the other."""
_STEP = re.compile(r"""\.([^\s.\[\]'"$]+)|\[(?:'([^']+)'|"([^"]+)")\]""")


def path_of(attribute: str, source: Any) -> Fields:
    """Parse a source into the sequence of nested field names."""
    steps, end = [], 1
    if isinstance(source, str) and source.startswith("$"):
        while step := _STEP.match(source, end):
            steps.append(next(filter(None, step.groups())))
            end = step.end()
        if steps and end == len(source):
            return tuple(steps)
    raise SpaceError(
        f"attribute {attribute!r}: source must be the path of a field, such as $.order.total or "
        f"$['order']['total'], without array elements; given: {source!r}"
    )


def source_of(path: Fields) -> str | None:
    """Return the source that denotes a path, or `None` if there is none."""
    steps = []
    for name in path:
        ways = (f".{name}", f"['{name}']", f'["{name}"]')
        step = next((way for way in ways if _STEP.fullmatch(way)), None)
        if step is None:
            return None
        steps.append(step)
    return f"${''.join(steps)}"


class NoObject:
    """Marker for an unreadable value: its path goes through something other than an object."""

    def __init__(self, step: str, value: Any):
        self._text = f"{step!r} is {abbreviate(value)}, not an object"

    def __str__(self) -> str:
        return self._text

    __repr__ = __str__


def value_at(event: Mapping[str, Any], path: Fields) -> Any:
    """Return the value at a path in one event."""
    value: Any = event
    for before, step in zip(("", *path), path, strict=False):
        if value is None:
            return None
        if not isinstance(value, Mapping):
            return NoObject(before, value)
        value = value.get(step)
    return value


def checked(attribute: str, value: Any) -> Any:
    """Return a value unchanged; raise if it is unreadable."""
    if isinstance(value, NoObject):
        raise InvalidValueError(f"{attribute!r} has no value there", str(value))
    return value
