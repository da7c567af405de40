"""Verifies matches that came from elsewhere: event by event, as sets of rows.

Matches to verify arrive in any order, as pairs of the position of an event and the row of a
subscription. Each pair becomes one number; those of `BLOCK` events go to a file of their own, so
that memory stays bounded. Then each block is sorted and compared with what a structure finds.

A stream changes its subscriptions on the way. Each event then belongs to one of several versions
of the set, whose rows are numbered alike (`Version.rows`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from rangecast.errors import FileError
from rangecast.kernels.arrays import F64, I64
from rangecast.match.choose import Index

BLOCK = 1 << 14
"""Events whose pairs are compared at a time."""


class Rows(NamedTuple):
    """The rows of a result as pairs: the events, and how many subscriptions follow each of them."""

    events: pa.Array
    sizes: I64
    """One for each event; where each row is a pair, all are 1."""
    subscriptions: pa.Array
    are_lists: bool


def rows_of(batch: pa.RecordBatch) -> Rows:
    """Return the rows of a result; reject one that lacks the columns."""
    names = batch.schema.names
    are_lists = "subscriptions" in names
    if "event" not in names or are_lists == ("subscription" in names):
        raise FileError(
            "a result must have the columns 'event' and 'subscription', or 'event' and "
            f"'subscriptions' (lists); found: {', '.join(names)}"
        )
    events = batch.column("event")
    if not are_lists:
        return Rows(events, np.ones(len(events), np.int64), batch.column("subscription"), False)
    lists = batch.column("subscriptions")
    if not (pa.types.is_list(lists.type) or pa.types.is_large_list(lists.type)):
        raise FileError(
            f"the column 'subscriptions' of a result must contain lists; found: {lists.type}"
        )
    sizes = lists.value_lengths().fill_null(0).to_numpy().astype(np.int64)
    return Rows(events, sizes, lists.flatten(), True)


@dataclass
class Findings:
    """Outcome of a comparison: its counts, and the differences."""

    pairs: int = 0
    """Pairs that there should be."""
    missing: int = 0
    extra: int = 0
    twice: int = 0
    differing: int = 0
    """Events of which something is missing, extra or there twice."""
    samples: list[tuple[int, I64, I64, I64]] = field(default_factory=list)
    """The first events that differ: the place, then rows that are missing, extra, there twice."""

    def note(self, first: int, expected: I64, claimed: I64, rows: int, show: int) -> None:
        """Compare the sorted pairs of a block of events that begins at `first`."""
        self.pairs += len(expected)
        if np.array_equal(expected, claimed):
            return
        again = claimed[1:][claimed[1:] == claimed[:-1]]
        kinds = (
            np.setdiff1d(expected, claimed),
            np.setdiff1d(claimed, expected),
            np.unique(again),
        )
        self.missing += len(kinds[0])
        self.extra += len(kinds[1])
        self.twice += len(again)
        events = np.unique(np.concatenate(kinds) // rows)
        self.differing += len(events)
        for event in events[: max(0, show - len(self.samples))].tolist():
            missing, extra, twice = (kind[kind // rows == event] % rows for kind in kinds)
            self.samples.append((first + event, missing, extra, twice))


class Claims:
    """The pairs that are claimed, kept in a folder until they are compared."""

    def __init__(self, folder: Path, rows: int):
        self.rows = max(rows, 1)
        self._folder = folder

    def add(self, events: I64, rows: I64) -> None:
        """Add claimed pairs: positions of events, and rows of subscriptions."""
        block = events // BLOCK
        keys = (events - block * BLOCK) * self.rows + rows
        if (np.diff(block) < 0).any():
            order = np.argsort(block, kind="stable")
            block, keys = block[order], keys[order]
        starts = np.flatnonzero(np.diff(block, prepend=-1))
        for number, part in zip(block[starts], np.split(keys, starts)[1:], strict=True):
            with self._file(int(number)).open("ab") as file:
                file.write(part.tobytes())

    def of(self, block: int) -> I64:
        """Return the pairs of a block, sorted: the event within the block times rows, plus row."""
        path = self._file(block)
        return np.sort(np.fromfile(path, np.int64)) if path.exists() else np.zeros(0, np.int64)

    def _file(self, block: int) -> Path:
        return self._folder / f"{block}.pairs"


@dataclass(frozen=True)
class Version:
    """A structure, and the number that each of its rows has among the rows of all versions."""

    index: Index
    rows: I64

    def pairs(self, points: F64, events: I64, rows: int) -> I64:
        """Return the expected pairs of these events and points, sorted: event * rows + row."""
        parts = [np.zeros(0, np.int64)]
        for first, matches in self.index.stream(points):
            named = events[first + matches.events]
            parts.append(named * rows + self.rows[matches.rows])
        return np.sort(np.concatenate(parts))
