"""The log: everything that was accepted, in one order.

A *unit* is what one request brought: some events, or some edits. Each event and each edit has a
number of its own, its *seq*; a unit has those from `first` on. Every unit carries a checksum over
its content and the checksum before it, so that a log that lost or changed something in the middle
is recognised.

`Log` is all that the server needs of one. `MemoryLog` is for tests and simulations; `SqliteLog`
keeps files.
"""

from __future__ import annotations

import hashlib
import secrets
from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from rangecast.errors import RangecastError

START = b"\0" * 16
"""The checksum before the first unit."""


class LogError(RangecastError):
    """The log can't be used: damaged, locked by another, of another version."""


class LogFullError(RangecastError):
    """The disk is full. Nothing was written; existing data stays."""


class Draft(NamedTuple):
    """A unit without a position yet."""

    kind: str
    """Kind of the body; opaque to the log."""
    length: int
    """Number of seqs that it takes."""
    at: int
    """When it came, in microseconds since 1970."""
    body: bytes


class Unit(NamedTuple):
    """A unit at its log position: the entries of one request."""

    first: int
    length: int
    kind: str
    at: int
    body: bytes
    chain: bytes
    """The checksum of this unit and all before it."""

    @property
    def last(self) -> int:
        """The seq of its last event or edit."""
        return self.first + self.length - 1


class Log(Protocol):
    """An append-only sequence of units."""

    epoch: str
    """Changes when history was lost: positions of another epoch mean nothing here."""
    first: int
    """The first seq that is still there."""
    last: int
    """The last seq; `first - 1` if the log is empty."""
    chain: bytes
    """The checksum of the last unit."""
    damage: dict[int, str]
    """Damage found when reading, by seq."""

    def append(self, drafts: Sequence[Draft]) -> list[Unit]:
        """Write units; they are durable, all of them, when this returns. A full disk changes
        nothing and raises `LogFullError`.
        """

    def read(self, after: int, max_bytes: int) -> list[Unit]:
        """Return the units with seqs after this one, up to this many bytes; at least one, if there
        is one. The first may begin earlier. Any thread may read.

        They are as they were written: one that isn't ends what is returned, and is a `LogError`
        that names it where it comes first.
        """

    def drop(self, upto: int) -> None:
        """Delete data entirely at or before a seq; a log may keep more."""

    def close(self) -> None:
        """Close the files."""


def chained(before: bytes, first: int, draft: Draft) -> Unit:
    """Return the unit at a position."""
    digest = hashlib.blake2b(before, digest_size=16)
    digest.update(f"{first} {draft.length} {draft.kind} {draft.at} {len(draft.body)}\n".encode())
    digest.update(draft.body)
    return Unit(first, draft.length, draft.kind, draft.at, draft.body, digest.digest())


def is_chained(before: bytes, unit: Unit) -> bool:
    """Return whether a unit is intact, and follows the unit with this checksum."""
    draft = Draft(unit.kind, unit.length, unit.at, unit.body)
    return chained(before, unit.first, draft).chain == unit.chain


def new_epoch() -> str:
    """Return a name for a history that begins now."""
    return secrets.token_hex(4)


class MemoryLog:
    """A log in memory, lost with its process."""

    def __init__(self) -> None:
        self.epoch = new_epoch()
        self.first = 1
        self.last = 0
        self.damage: dict[int, str] = {}
        self._units: list[Unit] = []
        self.chain = START

    def append(self, drafts: Sequence[Draft]) -> list[Unit]:
        """Add units."""
        added = []
        for draft in drafts:
            unit = chained(self.chain, self.last + 1, draft)
            self._units.append(unit)
            self.chain, self.last = unit.chain, unit.last
            added.append(unit)
        return added

    def read(self, after: int, max_bytes: int) -> list[Unit]:
        """Return the units after a seq."""
        units: list[Unit] = []
        size = 0
        for unit in self._units[bisect_right(self._units, after, key=lambda stored: stored.last) :]:
            if units and size + len(unit.body) > max_bytes:
                break
            units.append(unit)
            size += len(unit.body)
        return units

    def drop(self, upto: int) -> None:
        """Forget units."""
        cut = bisect_right(self._units, upto, key=lambda unit: unit.last)
        if cut:
            self.first = self._units[cut - 1].last + 1
            del self._units[:cut]

    def close(self) -> None:
        """Do nothing: there are no files."""
