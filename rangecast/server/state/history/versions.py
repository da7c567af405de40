"""Versions of a space's subscriptions since a base, and indexes of those live at one seq."""

from __future__ import annotations

import time
from array import array
from dataclasses import dataclass

import numpy as np

from rangecast.kernels.arrays import F64, I64, Bool
from rangecast.model.space import Space
from rangecast.server.log.base import Unit
from rangecast.server.state.edits import NEVER
from rangecast.server.state.entries import SpaceEntry
from rangecast.server.state.history.base import changes_of
from rangecast.server.state.registry import Registry
from rangecast.server.state.space_index import Bounds, SpaceIndex, bounds_of
from rangecast.server.state.versions.version import Version

MAX_ENDED = 1_000_000
"""Versions that have ended and stay, unless there are more live ones: then as many as these."""
_SLACK = 1.25
"""Factor by which their number may exceed this before the excess is dropped."""
_INDEXES = 2
"""Indexes of one space: two times can be compared without a rebuild."""
_PARSED, _PAUSE = 64, 0.002
"""Filters that are parsed at a time, and seconds between: events aren't delayed by the parser."""


@dataclass(slots=True)
class _PastIndex:
    index: SpaceIndex
    live: Bool
    """Versions that it has, by row."""


class SpaceVersions:
    """Versions of one space, by birth. One thread uses it."""

    def __init__(self, entry: SpaceEntry, registry: Registry, seq: int):
        """`entry`: the only space of `registry`, with the subscriptions that were live at a seq."""
        self.first = self.seq = seq
        """The seqs from the first one to this one can be asked about."""
        self._entry, self._registry = entry, registry
        self._versions = list(entry.live.values())
        self._died = array("q", [NEVER] * len(self._versions))
        """By version, the seq of the edit that ended it."""
        self._rows: dict[int, int] = {}
        """By number, the row of the current version."""
        for row, version in enumerate(self._versions):
            self._rows[version.number] = row
        self._definition = entry.space.definition()
        self._clear()

    def _clear(self) -> None:
        """Forget everything that is derived from the versions."""
        dimensions = len(self._entry.space)
        self._lo: F64 = np.zeros((0, dimensions))
        self._hi: F64 = np.zeros((0, dimensions))
        self._starts: I64 = np.zeros(0, np.int64)
        """By version, the row of its first box; -1 if it isn't parsed yet."""
        self._sizes: I64 = np.zeros(0, np.int64)
        self._indexes: list[_PastIndex] = []
        """The last one was used last."""
        self._refresh()

    def _refresh(self) -> None:
        """Update the arrays after edits."""
        self._born = np.array([version.born for version in self._versions], np.int64)
        self._expires = np.array([version.expires or NEVER for version in self._versions], np.int64)
        more = len(self._versions) - len(self._starts)
        self._starts = np.append(self._starts, np.full(more, -1, np.int64))
        self._sizes = np.append(self._sizes, np.zeros(more, np.int64))
        self._is_fresh = True

    def use_space(self, space: Space) -> None:
        """Use the current definition of the space: events may have its new attributes."""
        definition = space.definition()
        if definition != self._definition:
            self._definition, self._entry.space = definition, Space.from_definition(definition)
            self._clear()

    # ---- replaying

    def take(self, unit: Unit) -> None:
        """Apply the next unit of the log."""
        for change in changes_of(self._registry, unit):
            if change.gone is not None:
                self._died[self._rows.pop(change.gone.number)] = change.gone.died
            for version in change.put:
                if (old := self._rows.get(version.number)) is not None:
                    self._died[old] = version.born
                self._rows[version.number] = len(self._versions)
                self._versions.append(version)
                self._died.append(NEVER)
            self._is_fresh = False
        self.seq = unit.last

    def drop_excess(self) -> None:
        """Drop the versions that ended first if there are too many."""
        live = len(self._entry.live)
        max_ended = max(MAX_ENDED, live)
        if len(self._versions) - live <= _SLACK * max_ended:
            return
        ends = sorted(died for died in self._died if died != NEVER)
        self.first = ends[-max_ended - 1]
        stay = [row for row, died in enumerate(self._died) if died > self.first]
        self._versions = [self._versions[row] for row in stay]
        self._died = array("q", [self._died[row] for row in stay])
        self._rows = {
            version.number: row
            for row, version in enumerate(self._versions)
            if self._died[row] == NEVER
        }
        self._registry.forget(self.first)
        self._clear()

    # ---- answering

    def index_at(self, seq: int, expired_at: int | None = None) -> SpaceIndex:
        """Return the index of the subscriptions that were live at a seq.

        It is valid until the next call. `expired_at`: leave out those that had expired by then, in
        microseconds since 1970.
        """
        if not self._is_fresh:
            self._refresh()
        live = (self._born <= seq) & (seq < np.array(self._died, np.int64))
        if expired_at is not None:
            live &= self._expires > expired_at
        for index in self._indexes:
            if np.array_equal(self._mask_of(index), live):
                self._indexes.remove(index)
                break
        else:
            index = self._moved(live)
        self._indexes.append(index)
        return index.index

    def _mask_of(self, index: _PastIndex) -> Bool:
        """Return the versions of an index, by row of all versions that there are by now."""
        return np.append(index.live, np.zeros(len(self._versions) - len(index.live), np.bool_))

    def _moved(self, live: Bool) -> _PastIndex:
        """Return an index of these versions: the one that was used first is moved, if all of its
        new versions are later than those that stay, so that the order of arrival is right.
        """
        if len(self._indexes) == _INDEXES:
            oldest = self._indexes.pop(0)
            before = self._mask_of(oldest)
            staying, new = np.flatnonzero(before & live), np.flatnonzero(live & ~before)
            if len(staying) and (not len(new) or staying[-1] < new[0]):
                gone = [self._versions[row] for row in np.flatnonzero(before & ~live).tolist()]
                oldest.index.move(gone, self._at(new), self._bounds(new))
                return _PastIndex(oldest.index, live)
        entry = self._entry
        empty = SpaceEntry(entry.tenant, entry.name, entry.number, entry.space, entry.since)
        index, rows = SpaceIndex(empty), np.flatnonzero(live)
        index.move([], self._at(rows), self._bounds(rows))
        return _PastIndex(index, live)

    def _at(self, rows: I64) -> list[Version]:
        return [self._versions[row] for row in rows.tolist()]

    def _bounds(self, rows: I64) -> Bounds:
        """Return the boxes of versions; each is parsed once."""
        unknown = rows[self._starts[rows] < 0]
        los, his, count = [self._lo], [self._hi], len(self._lo)
        for begin in range(0, len(unknown), _PARSED):
            piece = unknown[begin : begin + _PARSED]
            texts = [version.filter for version in self._at(piece)]
            lo, hi, sizes = bounds_of(texts, self._entry.space)
            self._starts[piece], self._sizes[piece] = count + np.cumsum(sizes) - sizes, sizes
            count += len(lo)
            los.append(lo)
            his.append(hi)
            time.sleep(_PAUSE)
        if len(unknown):
            self._lo, self._hi = np.concatenate(los), np.concatenate(his)
        sizes = self._sizes[rows]
        ends = np.cumsum(sizes)
        boxes = np.repeat(self._starts[rows] - (ends - sizes), sizes) + np.arange(sizes.sum())
        return self._lo[boxes], self._hi[boxes], sizes
