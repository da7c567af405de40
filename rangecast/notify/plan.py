"""Changes of objects as steps, all checked before any is applied."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from rangecast.errors import InvalidValueError, UnknownIdError, UsageError, abbreviate, did_you_mean
from rangecast.model.sets.members import Id, Members, as_id
from rangecast.model.validation.arguments import check_finite
from rangecast.notify.tables import SAME, Change

Place = Any
"""The position of an object: x on a line, a tuple of coordinates in a space."""


class Step(NamedTuple):
    """One checked change, to be applied after those before it."""

    kind: Literal["set", "add", "move", "remove"]
    id: Id
    y: float = 0.0
    """New value, unless the object is removed; negated if the highest ranks first."""
    place: Place = None
    """The position of an object that is added or moved."""


class Places(NamedTuple):
    """Comparable positions of a board."""

    of: Callable[[int], Place]
    """Returns the position of the object of a slot."""
    moved: Callable[[Place | None, Any], Place]
    """Returns the position after a change, from the old one and the given one."""
    read: Callable[[Any], list[Change]]
    """Reads the changes of a table."""
    names: Sequence[str]
    """Fields of an object's position: position, or the attributes of a space."""
    words: str
    """Columns that a new object needs, for error messages."""
    value: Callable[[int], float] | None = None
    """Returns the value of the object of a slot, if changes may leave it unchanged."""


def planned(changes: Any, members: Members, places: Places, *, descending: bool) -> list[Step]:
    """Return each change as a step; reject all if one is invalid."""
    edits = _changes(changes, places)
    steps = _Steps(members, places, descending=descending)
    for row, change in enumerate(edits):
        try:
            steps.add(change if isinstance(change, Change) else _fields(change, places))
        except (UsageError, InvalidValueError) as error:
            if len(edits) == 1:
                raise
            raise type(error)(f"row {row}: {error}") from None
    members.check_kinds(steps.added)
    return steps.found


class _Steps:
    """Changes as steps, and the resulting position of each object."""

    def __init__(self, members: Members, places: Places, *, descending: bool):
        self.found: list[Step] = []
        self.added: list[Id] = []
        self._members, self._places, self._descending = members, places, descending
        self._place: dict[Id, Place | None] = {}
        """Position of each object while the changes are applied; None: removed."""
        self._value: dict[Id, float] = {}
        """Values set by earlier changes."""

    def add(self, change: Change) -> None:
        """Append the step of a change, or reject the change."""
        members, places = self._members, self._places
        object_id = as_id(change.id, "object")
        if object_id not in self._place:
            self._place[object_id] = (
                places.of(members.row(object_id)) if object_id in members else None
            )
        position = self._place[object_id]
        y = self._value_of(object_id, change)
        new = position if change.position is None else places.moved(position, change.position)
        if position is None and (new is None or y is None):
            hint = members.hint(object_id)
            raise UnknownIdError(
                f"no object {object_id!r}: {hint}\n  hint: give {places.words} to add it"
            )
        if y is None:
            self.found.append(Step("remove", object_id))
            self._place[object_id] = None
            return
        self._value[object_id] = y
        y = 0.0 - y if self._descending else y
        if position is None:
            self.added.append(object_id)
        if new == position:
            self.found.append(Step("set", object_id, y))
        else:
            self.found.append(Step("add" if position is None else "move", object_id, y, new))
            self._place[object_id] = new

    def _value_of(self, object_id: Id, change: Change) -> float | None:
        """Return the value of an object after a change; None if it is removed or unknown."""
        if change.value is None:
            return None
        if change.value is not SAME:
            return check_finite("value", change.value)
        if self._place[object_id] is None:
            return None
        if self._places.value is None:
            raise UsageError(f"the change of {object_id!r} has no value\n  hint: give a value")
        if object_id in self._value:
            return self._value[object_id]
        return self._places.value(self._members.row(object_id))


def _changes(value: Any, places: Places) -> Sequence[Change | Mapping[str, Any]]:
    """Return changes given as tuples (id, value[, position]), dicts or a table of these columns."""
    if isinstance(value, Mapping) or hasattr(value, "__arrow_c_stream__"):
        return places.read(value)
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        raise UsageError(
            f"changes must be pairs (id, value) or triples (id, value, position)\n"
            f"  given: {abbreviate(value)}"
        )
    return [row if isinstance(row, Mapping) else _change(row) for row in value]


def _fields(row: Mapping[str, Any], places: Places) -> Change:
    """Return a change given as a dict: missing fields stay unchanged, None removes a value."""
    known = ["id", "value", *places.names]
    for name in row:
        if name not in known:
            raise UsageError(
                f"unknown field {name!r}: {did_you_mean(str(name), known)}\n"
                f"  expected: {', '.join(known)}\n  hint: rename it or leave it out"
            )
    coordinates = {name: row[name] for name in places.names if name in row}
    if "id" not in row or ("value" not in row and not coordinates):
        raise UsageError(
            "a change must have an id, and a value or a position\n"
            f"  given: {abbreviate(dict(row))}\n"
            "  hint: give both"
        )
    position: Any = coordinates or None
    if coordinates and tuple(places.names) == ("position",):
        position = check_finite("position", coordinates["position"])
    return Change(row["id"], row.get("value", SAME), position)


def _change(row: Any) -> Change:
    if isinstance(row, str | bytes) or not isinstance(row, Sequence) or len(row) not in (2, 3):
        raise UsageError(
            f"a change must be a pair (id, value) or a triple (id, value, position)\n"
            f"  given: {abbreviate(row)}"
        )
    return Change(*row)
