"""The log: everything that was accepted, in one order.

A *unit* is the content of one request: some events, or some edits. Each event and each edit has its
own number, its *seq*; a unit covers the seqs from `first` on. Every unit has a checksum over its
content and the previous checksum, so that loss or corruption in the middle of the log is detected.

`Log` is the interface that the server needs. `MemoryLog` is for tests and simulations; `SqliteLog`
stores files.
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
    """The log can't be used: damaged, locked by another process, or of another version."""


class LogFullError(RangecastError):
    """The disk is full. Nothing was written; existing data is intact."""


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
        """Seq of its last event or edit."""
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
        """Append units; all are durable when this returns.

        If the disk is full, raise `LogFullError` and change nothing.
        """

    def read(self, after: int, max_bytes: int) -> list[Unit]:
        """Return units after a seq, up to `max_bytes` but at least one, if there is one.

        The first may begin earlier. Any thread may read.

        Units are verified: reading stops before a damaged one, and raises a `LogError` if that is
        the first.
        """

    def drop(self, upto: int) -> None:
        """Delete units that lie entirely at or before a seq; a log may keep more."""

    def close(self) -> None:
        """Close the files."""


def chained(before: bytes, first: int, draft: Draft) -> Unit:
    """Return a draft as the unit at a seq, chained to the previous checksum."""
    digest = hashlib.blake2b(before, digest_size=16)
    digest.update(f"{first} {draft.length} {draft.kind} {draft.at} {len(draft.body)}\n".encode())
    digest.update(draft.body)
    return Unit(first, draft.length, draft.kind, draft.at, draft.body, digest.digest())


def is_chained(before: bytes, unit: Unit) -> bool:
    """Return whether a unit is intact, and follows the unit with this checksum."""
    draft = Draft(unit.kind, unit.length, unit.at, unit.body)
    return chained(before, unit.first, draft).chain == unit.chain


def new_epoch() -> str:
    """Return a new epoch name."""
    return secrets.token_hex(4)


class MemoryLog:
    """A log in memory, lost when the process ends."""

    def __init__(self) -> None:
        self.epoch = new_epoch()
        self.first = 1
        self.last = 0
        self.damage: dict[int, str] = {}
        self._units: list[Unit] = []
        self.chain = START

    def append(self, drafts: Sequence[Draft]) -> list[Unit]:
        """Append units."""
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
        """Delete units at or before a seq."""
        cut = bisect_right(self._units, upto, key=lambda unit: unit.last)
        if cut:
            self.first = self._units[cut - 1].last + 1
            del self._units[:cut]

    def close(self) -> None:
        """Do nothing: there are no files."""
