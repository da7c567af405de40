"""Messages between neighbouring servers.

A message with a place, `at`, is passed from neighbour to neighbour to the server whose zone holds
that place. A question walks on from there, and its `at` moves along: everything between where it
began and `at` has been asked. So it doesn't matter whose zone a place is in: if a run of objects
is handed over while a question walks, the question follows the run, and no object is left out or
found twice.

Links between neighbours lose nothing and keep the order: that is all that is asked of them.
"""

from __future__ import annotations

from typing import NamedTuple

from rangecast.model.sets.members import Id

WEST, EAST = -1, 1
HOME = 0
"""Destination of messages that leave the servers: to subscribers, and `Completed`."""


class WireObject(NamedTuple):
    """An object in transit; the lowest y ranks first."""

    y: float
    arrival: int
    x: float
    object: Id
    at: tuple[float, ...] = ()
    """Coordinates in a space; x is the finite number nearest to the one that zones divide."""


class Range(NamedTuple):
    """An interest in transit."""

    interest: Id
    lo: float
    hi: float
    boxes: tuple[tuple[float, ...], ...] = ()
    """Boxes in a space, lower and then upper bounds; all lie between lo and hi."""


class Start(NamedTuple):
    """Everything that a server begins with."""

    place: int
    servers: int
    objects: int
    """Number of objects on all servers."""
    k: int
    groups: int
    uses_interests: bool
    lo: float
    hi: float
    things: tuple[WireObject, ...]
    attributes: int = 0
    """Number of attributes of the space; 0: a line."""
    axis: int = 0
    """Number of the attribute that zones divide."""


class SetValue(NamedTuple):
    """Set the value of the object at a position; inf removes it. `to`: move it there first."""

    at: float
    seq: int
    object: Id
    y: float
    to: float | None
    objects: int
    """Number of objects on all servers after this change."""
    place: tuple[float, ...] = ()
    """Coordinates in a space after a move."""


class Enter(NamedTuple):
    """Add an object at a position. Its messages start with the given ordinal."""

    at: float
    seq: int
    position: int
    thing: WireObject
    objects: int


class FirstK(NamedTuple):
    """Algorithm 1: query for the nearest objects with a key below this one."""

    at: float
    towards: int
    home: float
    """Position of the painted object, to which the answer goes."""
    y: float
    arrival: int
    wanted: int
    """Number of objects still missing."""
    found: tuple[float, ...]
    hops: int


class MinY(NamedTuple):
    """Algorithm 2: query for the object with the lowest key above this one and below the limit."""

    at: float
    towards: int
    home: float
    end: float
    """Last position to search."""
    y: float
    arrival: int
    limit_y: float
    limit_arrival: int
    best: WireObject | None
    hops: int


class Nearest(NamedTuple):
    """The answer to `FirstK`."""

    at: float
    towards: int
    found: tuple[float, ...]
    hops: int


class Lowest(NamedTuple):
    """The answer to `MinY`."""

    at: float
    towards: int
    best: WireObject | None
    hops: int


class Gather(NamedTuple):
    """Query over a space: the rivals of an object (see `boxes/rivals.py`) on one side of it."""

    at: float
    towards: int
    home: float
    thing: WireObject
    """The object with its old value."""
    y: float
    """Its new value."""
    hull: tuple[float, ...]
    """Box around the interests for which objects from `at` on matter: lower, then upper bounds."""
    found: tuple[WireObject, ...]
    hops: int


class Gathered(NamedTuple):
    """The answer to `Gather`."""

    at: float
    found: tuple[WireObject, ...]
    hops: int


class Tile(NamedTuple):
    """A message to subscribers of boxes: an object, and the bounds of the boxes it reaches."""

    seq: int
    ordinal: int
    thing: WireObject
    bounds: tuple[float, ...]
    """Least and then largest coordinates of boxes, each lower and then upper bounds."""


class Handover(NamedTuple):
    """Objects handed over to a neighbour, whose zone begins (or ends) at `border` from now on.

    Includes all interests that overlap them.
    """

    towards: int
    border: float
    things: tuple[WireObject, ...]
    ranges: tuple[Range, ...]


class Ask(NamedTuple):
    """Request to move the border to a neighbour out of turn."""

    towards: int


class Grant(NamedTuple):
    """Permission to move the border; a handover implies it."""

    towards: int


class Load(NamedTuple):
    """Number of objects of a neighbour, and of all servers, as of a change."""

    towards: int
    own: int
    seq: int
    objects: int


class Edit(NamedTuple):
    """Interests to remove and to add.

    Eastwards it only freezes the zones; on the way back, westwards from the last server, it is
    applied, and zones may change again. So nothing is handed over during an edit.
    """

    towards: int
    seq: int
    """Number of the next change."""
    removed: tuple[Id, ...]
    added: tuple[Range, ...]


class Completed(NamedTuple):
    """A change or an edit is complete: all of its messages have been sent."""

    seq: int
    messages: int = 0
    """Number of its messages to subscribers: some may come over other links, and later."""


Question = FirstK | MinY | Gather
Answer = Nearest | Lowest | Gathered
Routed = SetValue | Enter | Question | Answer
"""Messages addressed to a position."""
ServerMessage = Routed | Handover | Ask | Grant | Load | Edit
