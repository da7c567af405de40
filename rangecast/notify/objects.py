"""The objects of a board by id, in the form that users read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any, NamedTuple

from rangecast.model.display import ITEMS, brief, counted
from rangecast.model.sets.members import Id, Members, as_id


class Object(NamedTuple):
    """An object of a board."""

    id: Id
    position: Any
    """A number, or a dict of values over a space."""
    value: float


class BoardObjects(Mapping[Id, Object]):
    """The objects of a board by id, in order of arrival; `at` returns the one with an id
    and slot.
    """

    def __init__(self, members: Members, at: Callable[[Id, int], Object]):
        self._members = members
        self._at = at

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[Id]:
        return iter(self._members)

    def __contains__(self, object_id: object) -> bool:
        return object_id in self._members

    def __repr__(self) -> str:
        first = ", ".join(brief(self[name], 120) for name in islice(self, ITEMS))
        more = ", ..." if len(self) > ITEMS else ""
        return f"<{counted(len(self), 'object')}{f': {first}{more}' if first else ''}>"

    def __getitem__(self, object_id: Id) -> Object:
        return self._at(as_id(object_id), self._members.row(object_id))
