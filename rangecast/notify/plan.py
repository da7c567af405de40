"""What changes of objects come to, one by one: checked as a whole before any is applied."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from rangecast.errors import UsageError, shown
from rangecast.model.arguments import finite
from rangecast.model.members import Id, Members, as_id
from rangecast.notify.objects import Objects
from rangecast.notify.tables import Change, as_changes


class Step(NamedTuple):
    """One change that can be applied after those before it."""

    kind: Literal["update", "put", "move", "remove"]
    id: Id
    y: float = 0.0
    """The new value, but for one that is removed; negative if the highest ranks first."""
    x: float = 0.0
    """The place of one that is put or moved."""


def planned(changes: Any, members: Members, objects: Objects, *, descending: bool) -> list[Step]:
    """Return each change as a step; refuse all of them if one can't be."""
    places: dict[Id, float | None] = {}
    """Where each object is as the changes go on; None: nowhere."""
    steps, put = [], []
    for change in _changes(changes):
        one = as_id(change.id, "object")
        if one not in places:
            known = one in members
            places[one] = objects.of(members.row(one))[0] if known else None
        place = places[one]
        y = None if change.y is None else finite("y", change.y)
        x = None if change.x is None else finite("x", change.x)
        if place is None and (x is None or y is None):
            hint = members.hint(one)
            raise UsageError(f"no object {one!r}: {hint}\n  to do: give x and y to put it there")
        if y is None:
            steps.append(Step("remove", one))
            places[one] = None
            continue
        y = 0.0 - y if descending else y
        if place is None:
            put.append(one)
        if x is None or x == place:
            steps.append(Step("update", one, y))
        else:
            steps.append(Step("put" if place is None else "move", one, y, x))
            places[one] = x
    members.check_kinds(put)
    return steps


def _changes(given: Any) -> list[Change]:
    """Return changes: pairs (id, y), triples (id, y, x), or rows with these columns."""
    if isinstance(given, Mapping) or hasattr(given, "__arrow_c_stream__"):
        return as_changes(given)
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        raise UsageError(f"changes are pairs (id, y) or triples (id, y, x); given: {shown(given)}")
    rows = list(given)
    if rows and isinstance(rows[0], Mapping):
        return as_changes(rows)
    return [_change(row) for row in rows]


def _change(row: Any) -> Change:
    if isinstance(row, str | bytes) or not isinstance(row, Sequence) or len(row) not in (2, 3):
        raise UsageError(f"a change is a pair (id, y) or a triple (id, y, x); given: {shown(row)}")
    return Change(*row)
