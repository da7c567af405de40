"""What changes of objects come to, one by one: checked as a whole before any is applied."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from rangecast.errors import UsageError
from rangecast.model.members import Id, Members, as_id
from rangecast.notify.given import changes_of, number
from rangecast.notify.objects import Objects


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
    for change in changes_of(changes):
        one = as_id(change.id, "object")
        if one not in places:
            known = one in members
            places[one] = objects.of(members.row(one))[0] if known else None
        place = places[one]
        y = None if change.y is None else number(change.y, "y")
        x = None if change.x is None else number(change.x, "x")
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
