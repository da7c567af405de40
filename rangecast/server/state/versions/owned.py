"""All versions of one consumer's subscriptions that the log still has events for, by birth."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from rangecast.kernels.arrays import I64
from rangecast.server.state.edits import NEVER
from rangecast.server.state.versions.live import LiveVersions
from rangecast.server.state.versions.version import Version

_FORGOTTEN = 0
"""End of a version that is no longer known: before all events."""


class _Columns(NamedTuple):
    """Values of each version; all ascend but `died`. A version counts once it has a place."""

    places: array[int]
    born: array[int]
    died: array[int]


class OwnedVersions:
    """Versions of one consumer: where they are, and from when to when they were valid.

    One thread writes; any thread reads.
    """

    def __init__(self, live: LiveVersions):
        self._live = live
        self._columns = _Columns(array("q"), array("q"), array("q"))

    def __len__(self) -> int:
        return len(self._columns.places)

    def __iter__(self) -> Iterator[Version]:
        return (version for _, version in self.since(-1))

    @property
    def live_count(self) -> int:
        """Number of versions that haven't ended."""
        return self._columns.died.count(NEVER)

    def since(self, born: int) -> Iterator[tuple[int, Version]]:
        """Yield the versions that were made after a seq, each with its place."""
        columns = self._columns
        for at in range(bisect_right(columns.born, born), len(columns.places)):
            place = columns.places[at]
            version = self._live.records.get(place)
            if version is not None:  # else it was forgotten in the meantime
                yield place, version.ended(columns.died[at])

    def ended(self) -> list[Version]:
        """Return the versions that have ended."""
        return [version for version in self if version.died != NEVER]

    def died(self, places: I64) -> I64:
        """Return when the versions at places ended: `NEVER`, a seq, or 0 if they are forgotten."""
        columns = self._columns
        mine = np.array(columns.places[:], np.int64)  # of a copy: the writer may resize it
        ends = np.append(np.array(columns.died[: len(mine)], np.int64), _FORGOTTEN)
        at = np.searchsorted(mine, places)
        known = np.append(mine, -1)[at] == places
        died: I64 = np.where(known, ends[at], _FORGOTTEN)
        return died

    def append(self, place: int, born: int, died: int = NEVER) -> None:
        """Add a version, later than all others."""
        self._columns.died.append(died)
        self._columns.born.append(born)
        self._columns.places.append(place)

    def end(self, place: int, died: int) -> None:
        """End a version."""
        self._columns.died[bisect_left(self._columns.places, place)] = died

    def forget(self, first: int) -> None:
        """Drop the versions that ended at or before a seq."""
        rows = list(zip(*self._columns, strict=True))
        kept = [row for row in rows if row[2] > first]
        if len(kept) == len(rows):
            return
        columns = [array("q", column) for column in zip(*kept, strict=True)]
        self._columns = _Columns(*columns) if kept else _Columns(*(array("q") for _ in range(3)))
        for place, _, died in rows:
            if died <= first:
                self._live.release(place)
