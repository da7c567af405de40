"""What changes of objects come to, one by one: checked as a whole before any is applied."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from rangecast.errors import UsageError, shown
from rangecast.model.arguments import finite
from rangecast.model.members import Id, Members, as_id
from rangecast.notify.tables import Change

Place = Any
"""Where an object lies: x on a line, a tuple of coordinates in a space."""


class Step(NamedTuple):
    """One change that can be applied after those before it."""

    kind: Literal["update", "put", "move", "remove"]
    id: Id
    y: float = 0.0
    """The new value, but for one that is removed; negative if the highest ranks first."""
    place: Place = None
    """Where one lies that is put or moved."""


class Places(NamedTuple):
    """What a place is on a board."""

    of: Callable[[int], Place]
    """Where the object of a slot lies."""
    moved: Callable[[Place | None, Any], Place]
    """Where an object lies after a change, by where it was and what is given."""
    read: Callable[[Any], list[Change]]
    """Changes of a table."""
    words: str
    """What a new object needs."""


def planned(changes: Any, members: Members, places: Places, *, descending: bool) -> list[Step]:
    """Return each change as a step; refuse all of them if one can't be."""
    found: dict[Id, Place | None] = {}
    """Where each object is as the changes go on; None: nowhere."""
    steps, put = [], []
    for change in _changes(changes, places.read):
        one = as_id(change.id, "object")
        if one not in found:
            found[one] = places.of(members.row(one)) if one in members else None
        place = found[one]
        y = None if change.y is None else finite("y", change.y)
        new = place if change.x is None else places.moved(place, change.x)
        if place is None and (new is None or y is None):
            hint = members.hint(one)
            raise UsageError(
                f"no object {one!r}: {hint}\n  to do: give {places.words} to put it there"
            )
        if y is None:
            steps.append(Step("remove", one))
            found[one] = None
            continue
        y = 0.0 - y if descending else y
        if place is None:
            put.append(one)
        if new == place:
            steps.append(Step("update", one, y))
        else:
            steps.append(Step("put" if place is None else "move", one, y, new))
            found[one] = new
    members.check_kinds(put)
    return steps


def _changes(given: Any, read: Callable[[Any], list[Change]]) -> list[Change]:
    """Return changes: pairs (id, y), triples (id, y, x), or rows with these columns."""
    if isinstance(given, Mapping) or hasattr(given, "__arrow_c_stream__"):
        return read(given)
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        raise UsageError(f"changes are pairs (id, y) or triples (id, y, x); given: {shown(given)}")
    rows = list(given)
    if rows and isinstance(rows[0], Mapping):
        return read(rows)
    return [_change(row) for row in rows]


def _change(row: Any) -> Change:
    if isinstance(row, str | bytes) or not isinstance(row, Sequence) or len(row) not in (2, 3):
        raise UsageError(f"a change is a pair (id, y) or a triple (id, y, x); given: {shown(row)}")
    return Change(*row)
