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
"""Where a server sends what leaves the servers: messages to subscribers, and what is done."""


class Thing(NamedTuple):
    """An object in transit: y is such that the lowest ranks first."""

    y: float
    arrival: int
    x: float
    object: Id


class Range(NamedTuple):
    """An interest in transit."""

    interest: Id
    lo: float
    hi: float


class Alter(NamedTuple):
    """The object at a place gets the value y; inf: it leaves. `to`: it goes there first."""

    at: float
    seq: int
    object: Id
    y: float
    to: float | None
    objects: int
    """Number of objects on all servers after this change."""


class Enter(NamedTuple):
    """An object comes to a place. Its messages begin with the position given."""

    at: float
    seq: int
    position: int
    thing: Thing
    objects: int


class FirstK(NamedTuple):
    """Algorithm 1: where do the nearest objects with a key below this one lie?"""

    at: float
    towards: int
    home: float
    """The place of the object that is painted: the answer goes there."""
    y: float
    arrival: int
    wanted: int
    """Number of objects that are still missing."""
    found: tuple[float, ...]
    hops: int


class MinY(NamedTuple):
    """Algorithm 2: which object has the lowest key above this one and below the limit?"""

    at: float
    towards: int
    home: float
    end: float
    """The last place to look at."""
    y: float
    arrival: int
    limit_y: float
    limit_arrival: int
    best: Thing | None
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
    best: Thing | None
    hops: int


class Handover(NamedTuple):
    """A run of objects for a neighbour, whose zone begins (or ends) at `border` from now on.

    With all interests that meet the run.
    """

    towards: int
    border: float
    things: tuple[Thing, ...]
    ranges: tuple[Range, ...]


class Ask(NamedTuple):
    """A server wants to move the border to its neighbour, and it isn't its turn."""

    towards: int


class Grant(NamedTuple):
    """The neighbour may move the border; a handover says the same."""

    towards: int


class Load(NamedTuple):
    """Number of objects of a neighbour, and of all servers as of a change."""

    towards: int
    own: int
    seq: int
    objects: int


class Edit(NamedTuple):
    """Interests that go and come.

    Eastwards it only says that zones must stay as they are; westwards, from the last server back,
    it is applied, and zones may move again. So no run is handed over while an edit is under way.
    """

    towards: int
    seq: int
    """Of the next change."""
    removed: tuple[Id, ...]
    added: tuple[Range, ...]


class Done(NamedTuple):
    """A change or an edit is complete: all of its messages have been sent."""

    seq: int


Routed = Alter | Enter | FirstK | MinY | Nearest | Lowest
"""Messages that go to a place."""
ServerMessage = Routed | Handover | Ask | Grant | Load | Edit
