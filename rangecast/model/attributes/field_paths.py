"""Where an event has the value of an attribute: a path into fields within fields.

    source = "$.order.total"     of {"order": {"total": 9.5}}

A path is `$`, and then a field per step: `.name`, or `['any name']`. A value that is absent or null
on the way is missing; fields beside the path count for nothing.
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
    """Return the fields that a source names, one within the other."""
    steps, end = [], 1
    if isinstance(source, str) and source.startswith("$"):
        while step := _STEP.match(source, end):
            steps.append(next(filter(None, step.groups())))
            end = step.end()
        if steps and end == len(source):
            return tuple(steps)
    raise SpaceError(
        f"attribute {attribute!r}: a source is the path of a field, such as $.order.total or "
        f"$['order']['total'], without elements of arrays; given: {source!r}"
    )


def source_of(path: Fields) -> str | None:
    """Return a source that names these fields; `None`: none can."""
    steps = []
    for name in path:
        ways = (f".{name}", f"['{name}']", f'["{name}"]')
        step = next((way for way in ways if _STEP.fullmatch(way)), None)
        if step is None:
            return None
        steps.append(step)
    return f"${''.join(steps)}"


class NoObject:
    """Stands for an unreadable value: its path leads through something other than an object."""

    def __init__(self, step: str, value: Any):
        self._text = f"{step!r} is {abbreviate(value)}, not an object"

    def __str__(self) -> str:
        return self._text

    __repr__ = __str__


def value_at(event: Mapping[str, Any], path: Fields) -> Any:
    """Return the value of one event."""
    value: Any = event
    for before, step in zip(("", *path), path, strict=False):
        if value is None:
            return None
        if not isinstance(value, Mapping):
            return NoObject(before, value)
        value = value.get(step)
    return value


def checked(attribute: str, value: Any) -> Any:
    """Return a value; reject one that can't be."""
    if isinstance(value, NoObject):
        raise InvalidValueError(f"{attribute!r} has no value there", str(value))
    return value
