"""Boards as recorded in the log: their objects, their interests, and changes of both.

A position is a tuple of coordinates, one per attribute; without a space it is one number. Of
objects with equal values the earlier one ranks first; its arrival is the seq that put it there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any, NamedTuple

import msgspec
from msgspec import UNSET, UnsetType

from rangecast.errors import (
    DuplicateIdError,
    RangecastError,
    UnknownIdError,
    UsageError,
    abbreviate,
    did_you_mean,
)
from rangecast.model.attributes.places import Point
from rangecast.model.attributes.residuals import Arithmetic, Residual
from rangecast.model.encoding.events import encode_event
from rangecast.model.sets.members import Id, as_id
from rangecast.model.space import Space
from rangecast.model.validation.arguments import check_finite
from rangecast.notify import Board
from rangecast.notify.boxes.messages import values_of
from rangecast.server.json_text import decode
from rangecast.server.log.base import Draft, Unit
from rangecast.server.state.edits import NEVER, UPDATES, PutBoard, PutInterest

MAX_BATCH = 1_000
"""Maximum changes applied at once: the earlier lists are derived from the later ones."""
_encode = msgspec.json.Encoder().encode


class PlacedObject(NamedTuple):
    """Position and value of an object."""

    id: Id
    """Original id of the object."""
    arrival: int
    value: float
    place: tuple[float, ...]


class ObjectChange(msgspec.Struct, omit_defaults=True):
    """A change of an object as one line of the log: its new and its old values."""

    id: Id
    """Original id of the object."""
    value: float | UnsetType | None = UNSET
    """Its new value; `None` removes it."""
    position: Any = UNSET
    """New position: a number, or over a space the values that change."""
    was: tuple[int, float, list[float | None]] | None = None
    """Arrival, value and position before the change; a missing value is null. Used to reconstruct
    past states.
    """

    @property
    def name(self) -> str:
        """The object's id as text, its key in the board."""
        return str(self.id)


class UpdatesHead(msgspec.Struct, omit_defaults=True):
    """Head of a unit of updates, common to all its changes."""

    tenant: str
    board: str
    is_batch: bool = False
    """Whether they are applied at once: lists are compared before the first and after the last."""


class Interest(msgspec.Struct, eq=False, array_like=True):
    """One version of an interest, valid from one edit to the next."""

    name: str
    consumer: int
    born: int
    """The seq of the edit that made it."""
    died: int
    filter: str
    position_lo: float | None
    position_hi: float | None
    k: int
    """Length of its list; 0: that of the board."""
    is_integer: bool = False
    """Whether its id was given as an integer."""

    @property
    def id(self) -> Id:
        """Id as it was given: text or integer."""
        return int(self.name) if self.is_integer else self.name

    @property
    def where(self) -> tuple[Any, ...]:
        """Bounds or filter, in the format of `Board.subscribe`."""
        return (self.filter,) if self.filter else (self.position_lo, self.position_hi)


@dataclass(slots=True, eq=False)
class BoardEntry:
    """A board with its settings, objects and interests."""

    made: PutBoard
    since: int
    """The seq of the edit that made it."""
    objects: dict[str, PlacedObject] = field(default_factory=dict)
    """Objects as of the last unit of the log; replaced one by one, never mutated."""
    live: dict[str, Interest] = field(default_factory=dict)
    space: Space | None = field(init=False)

    def __post_init__(self) -> None:
        definition = self.made.definition
        self.space = None if definition is None else Space.from_definition(definition)

    @property
    def tenant(self) -> str:
        """Tenant of the board."""
        return self.made.tenant

    @property
    def name(self) -> str:
        """Name of the board."""
        return self.made.name

    @property
    def label(self) -> str:
        """Label, distinct from that of a space with the same name."""
        return board_label(self.name)

    def shown(self, placed: PlacedObject) -> dict[str, Any]:
        """Return an object in the format of a change that would put it."""
        values = (
            {"position": placed.place[0]}
            if self.space is None
            else values_of(self.space, placed.place)
        )
        return {"id": placed.id, **values, "value": placed.value}

    def take(self, unit: Unit) -> list[ObjectChange]:
        """Apply a unit of updates; return its changes."""
        _, changes = updates_of(unit)
        self.take_some(changes, unit.first)
        return changes

    def take_some(self, changes: Sequence[ObjectChange], first: int) -> None:
        """Apply changes, the first of which has this seq."""
        for seq, change in enumerate(changes, first):
            carried_out(self.objects, change, seq, self.space)


@dataclass(slots=True)
class InterestChange:
    """Effect of an edit on the lists of a board."""

    entry: BoardEntry
    seq: int
    old: Interest | None = None
    new: Interest | None = None
    """Neither: the board itself was made, or deleted."""
    is_deleted: bool = False
    """The board was deleted."""


def board_label(name: str) -> str:
    """Return the label that distinguishes a board from a space of the same name."""
    return f"boards/{name}"


def empty_board(made: PutBoard, space: Space | None, objects: Any = None) -> Any:
    """Return a `notify` board with these options and no interests."""
    return Board(
        made.k,
        space=space,
        upper_bound_attribute=made.upper_bound_attribute or None,
        descending=made.descending,
        objects=objects,
    )


def check_board(made: PutBoard) -> None:
    """Reject invalid board options."""
    definition = made.definition
    empty_board(made, None if definition is None else Space.from_definition(definition))


def warm(made: PutBoard) -> None:
    """Reject invalid options; compile the board's kernels ahead of use.

    Otherwise the first change after an installation would block the matcher.
    """
    space = None if made.definition is None else Space.from_definition(made.definition)
    where: tuple[Any, ...] = ("true",) if space else (0, 1)
    _try_out(empty_board(made, space), where, {} if space else 0.5, made.k)
    if space is not None and any(isinstance(attribute, Residual) for attribute in space):
        verified = Board(made.k, space=Space([Point("place"), Arithmetic("sums")]))
        where = ("within(place, circle(0, 0, 1)) and x + y < 1",)
        _try_out(verified, where, {"x": 0, "y": 0}, made.k)


def _try_out(board: Board, where: tuple[Any, ...], position: Any, k: int) -> None:
    """Apply every kind of change to an empty board."""
    board.subscribe("one", *where)
    board.affected_interests(board.update_many([("a", 1, position), ("b", 2, position), ("a", 3)]))
    board.affected_interests(board.update_batch([("a", 4), ("b", None)]))
    board.best(*where, k=k)


def check_interest(entry: BoardEntry, edit: PutInterest) -> None:
    """Reject an interest that is invalid for the board."""
    if bool(edit.filter) != (entry.space is not None):
        needs = "position_lo and position_hi" if entry.space is None else "a filter"
        raise UsageError(f"an interest of the board {abbreviate(entry.name)} has {needs}")
    where = (edit.filter,) if edit.filter else (edit.position_lo, edit.position_hi)
    empty_board(entry.made, entry.space).subscribe(edit.name, *where, k=edit.k or None)


def interest_of(edit: PutInterest, consumer: int, seq: int) -> Interest:
    """Return the interest that an edit puts."""
    bounds = edit.filter, edit.position_lo, edit.position_hi
    return Interest(edit.name, consumer, seq, NEVER, *bounds, edit.k, edit.is_integer)


# ---- changes of objects


def parsed_changes(
    entry: BoardEntry, lines: Sequence[bytes]
) -> tuple[list[tuple[int, ObjectChange]], list[tuple[int, str]]]:
    """Return the valid changes with their rows, and the row and error of each invalid one."""
    changes, rejected = [], []
    for row, line in enumerate(lines):
        try:
            changes.append((row, _parsed(entry.space, line)))
        except (RangecastError, OverflowError) as error:
            rejected.append((row, str(error)))
    return changes, rejected


def _parsed(space: Space | None, line: bytes) -> ObjectChange:
    try:
        row = decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"not JSON: {error}") from None
    if not isinstance(row, dict) or "id" not in row:
        raise UsageError(
            'a change must be a JSON object {"id": ..., "value": ...}\n'
            f"  given: {abbreviate(row)}"
        )
    known = ["id", "value", *(["position"] if space is None else space.event_columns)]
    for name in row:
        if name not in known:
            raise UsageError(f"unknown field {name!r}: {did_you_mean(name, known)}")
    change = ObjectChange(as_id(row["id"], "object"))
    if "value" in row:
        change.value = None if row["value"] is None else check_finite("value", row["value"])
    rest = {name: value for name, value in row.items() if name not in ("id", "value")}
    if rest:
        is_number = space is None
        change.position = check_finite("position", row["position"]) if is_number else rest
        moved(space, change.position, None)
    return change


def check_object(name: Id, only: str, *, exists: bool) -> None:
    """Reject an object that isn't `new` or `existing`, as required."""
    if only == "new" and exists:
        raise DuplicateIdError(f"object {name!r} already exists\n  hint: update it, or move it")
    if only == "existing" and not exists:
        raise UnknownIdError(f"no object {name!r}\n  hint: add it first")


def checked_change(
    change: ObjectChange, old: PlacedObject | None, space: Space | None, seq: int
) -> PlacedObject | None:
    """Record the old state in a change; return the new state, or reject the change."""
    if old is None and not (isinstance(change.value, float) and change.position is not UNSET):
        needs = "a position and a value" if space is None else "its attributes and a value"
        raise UnknownIdError(f"no object {change.id!r}\n  hint: give {needs} to add it")
    if change.value is UNSET and change.position is UNSET:
        raise UsageError(
            f"the change of the object {change.id!r} is empty\n  hint: give a value or a position"
        )
    change.was = None
    if old is not None:
        change.id = old.id
        change.was = (
            old.arrival,
            old.value,
            [None if coordinate == inf else coordinate for coordinate in old.place],
        )
    objects = {} if old is None else {change.name: old}
    carried_out(objects, change, seq, space)
    return objects.get(change.name)


def carried_out(
    objects: dict[str, PlacedObject], change: ObjectChange, seq: int, space: Space | None
) -> None:
    """Apply a checked change."""
    if change.value is None:
        del objects[change.name]
        return
    old = objects.get(change.name)
    position = () if old is None else old.place
    if change.position is not UNSET:
        position = moved(space, change.position, old)
    value = old.value if old is not None and change.value is UNSET else change.value
    assert isinstance(value, float)
    arrival = seq if old is None else old.arrival
    objects[change.name] = PlacedObject(change.id, arrival, value, position)


def moved(space: Space | None, value: Any, old: PlacedObject | None) -> tuple[float, ...]:
    """Return the position of an object after a change; over a space, missing values stay."""
    if space is None:
        return (float(value),)
    here = (inf,) * len(space) if old is None else old.place
    point = encode_event(value, space, by_name=True).tolist()
    names = space.names
    return tuple(
        new if name in value else was for name, new, was in zip(names, point, here, strict=True)
    )


def was_of(change: ObjectChange) -> PlacedObject | None:
    """Return the state of an object before a change in the log."""
    if change.was is None:
        return None
    arrival, value, position = change.was
    return PlacedObject(
        change.id,
        arrival,
        value,
        tuple(inf if coordinate is None else coordinate for coordinate in position),
    )


# ---- units of the log

_head = msgspec.json.Decoder(UpdatesHead)
_line = msgspec.json.Decoder(ObjectChange)


def updates_draft(head: UpdatesHead, changes: Sequence[ObjectChange], at: int) -> Draft:
    """Return changes as a unit: a head, then one line per change."""
    lines = [_encode(row) for row in (head, *changes)]
    return Draft(UPDATES, len(changes), at, b"\n".join(lines))


def updates_of(unit: Unit) -> tuple[UpdatesHead, list[ObjectChange]]:
    """Return the changes of a unit."""
    head, *lines = unit.body.split(b"\n")
    return _head.decode(head), [_line.decode(line) for line in lines]
