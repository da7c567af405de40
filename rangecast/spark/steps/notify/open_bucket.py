"""Open bucket, in a worker or the driver: interests in memory, lists on disk."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rangecast.kernels.arrays import F64, I32, I64
from rangecast.notify.boxes.points import Points
from rangecast.notify.boxes.subscriber import BoxLists
from rangecast.notify.subscriber import InterestLists
from rangecast.spark.steps.notify.board_schema import points_of
from rangecast.spark.steps.notify.buckets import (
    INTERESTS,
    LISTS,
    Bucket,
    FilePart,
    Work,
    among,
    read_members,
    read_table,
    write_table,
)


class Entries(NamedTuple):
    """Entries of some lists, one row each."""

    arrivals: I64
    ys: F64

    @classmethod
    def of(cls, lists: InterestLists) -> Entries:
        """Create entries from lists."""
        return cls(lists.arrivals, lists.ys)

    def take(self, rows: I64 | I32) -> Entries:
        """Return the entries of the given rows."""
        return Entries(self.arrivals[rows], self.ys[rows])

    def concatenated(self, other: Entries) -> Entries:
        """Concatenate two sets of entries."""
        arrivals = np.concatenate([self.arrivals, other.arrivals])
        return Entries(arrivals, np.concatenate([self.ys, other.ys]))


class _ListPart:
    """Part of the lists, read on demand."""

    def __init__(self, folder: Path, part: FilePart, k: int):
        table = read_table(folder, LISTS, part)
        self.places: I32 = table["place"].to_numpy()
        self.arrivals, self.ys = (
            table[name].chunk(0).values.to_numpy().reshape(-1, k) for name in ("arrivals", "ys")
        )

    def at(self, places: I32) -> I64:
        """Return the rows of some places, -1 where there is none."""
        rows = np.searchsorted(self.places, places)
        hits = self.places[np.minimum(rows, len(self.places) - 1)] == places
        return np.where(hits, rows, -1)


def make_bucket(folder: Path, table: pa.Table, entries: Entries) -> Bucket:
    """Write a bucket of boxes of interests (id, point, k) that have these lists."""
    places = np.arange(len(table), dtype=np.int32)
    members = write_table(folder, INTERESTS, table.add_column(0, "place", pa.array(places)))
    lists = _write_lists(folder, places, entries)
    points = points_of(table)
    start = points[_in_order(points)[0]].tolist()
    return Bucket(start, _around(points), len(table), len(table), [members], [lists])


def cut(folder: Path, table: pa.Table, entries: Entries, most: int) -> list[Bucket]:
    """Split boxes of interests with their lists into buckets of at most `most` boxes."""
    order = _in_order(points_of(table))
    pieces = np.array_split(order, -(-len(order) // most)) if len(order) else []
    return [make_bucket(folder, table.take(piece), entries.take(piece)) for piece in pieces]


def _in_order(points: F64) -> I64:
    return np.lexsort(points.T[::-1])


def _around(points: F64) -> list[float]:
    return [*points.min(axis=0).tolist(), *points.max(axis=0).tolist()]


def _write_lists(folder: Path, places: I32, entries: Entries) -> FilePart:
    k = entries.ys.shape[1]
    columns = {"place": pa.array(places)}
    for name, values in entries._asdict().items():
        columns[name] = pa.FixedSizeListArray.from_arrays(pa.array(values.ravel()), k)
    return write_table(folder, LISTS, pa.table(columns))


class OpenBucket:
    """Boxes of a bucket, in the order of their places, with access to their lists."""

    def __init__(self, folder: Path, bucket: Bucket, k: int):
        self._folder, self.bucket, self._k = folder, bucket, k
        self.table = read_members(folder, bucket)
        self._lists = [_ListPart(folder, part, k) for part in bucket.lists]

    @property
    def places(self) -> I32:
        """The places of the boxes."""
        places: I32 = self.table["place"].to_numpy()
        return places

    def entries(self, places: I32) -> Entries:
        """Return the lists at these places; no others are read."""
        entries = Entries(
            np.empty((len(places), self._k), np.int64), np.empty((len(places), self._k))
        )
        left = np.arange(len(places))
        for part in reversed(self._lists):
            rows = part.at(places[left])
            here = rows >= 0
            entries.arrivals[left[here]] = part.arrivals[rows[here]]
            entries.ys[left[here]] = part.ys[rows[here]]
            left = left[~here]
        return entries

    def deliver(self, arrival: I64, y: F64, tile: F64) -> tuple[Bucket, Work]:
        """Apply messages with the bounds `tile`, and write the lists that changed."""
        affects = self.bucket.reached_by(tile)
        arrival, y, tile = arrival[affects], y[affects], tile[affects]
        points = points_of(self.table)
        reached = Points(points).within_any(tile)
        places = self.places[reached]
        before = self.entries(places)
        after = Entries(before.arrivals.copy(), before.ys.copy())
        BoxLists(Points(points[reached]), *after).apply(arrival, y, tile)
        differ = (after.arrivals != before.arrivals) | (after.ys != before.ys)
        changed = np.flatnonzero(differ.any(axis=1))
        lists, taken = self._written(places[changed], after.take(changed), self.places)
        work = Work(len(changed), len(changed) + taken, len(places) + taken)
        return self.bucket._replace(lists=lists), work

    def _written(self, places: I32, entries: Entries, there: I32) -> tuple[Sequence[FilePart], int]:
        """Write the lists at these places, of those that there are.

        Return all parts, and how many lists of older parts were written again.
        """
        parts = self.bucket.lists
        if not len(places):
            return parts, 0
        kept, taken = len(parts), np.zeros(0, np.int32)
        while kept and parts[kept - 1].rows <= 2 * (len(places) + len(taken)):
            kept -= 1
            more = np.union1d(taken, np.intersect1d(self._lists[kept].places, there))
            taken = np.setdiff1d(more, places)
        every = np.concatenate([places, taken])
        order = np.argsort(every)
        both = entries.concatenated(self.entries(taken)).take(order)
        part = _write_lists(self._folder, every[order], both)
        return [*parts[:kept], part], len(taken)

    def edit(
        self, gone: I32, new: pa.Table, entries: Entries, most: int
    ) -> tuple[list[Bucket], Work]:
        """Remove the interests at some places, and add others with their lists.

        A bucket that grew to twice `most`, or shrank to less than half, is made again.
        """
        bucket = self.bucket
        stays = np.isin(self.places, gone, invert=True)
        there = int(stays.sum()) + len(new)
        places = bucket.places + len(new)
        if places > 2 * most or 2 * there < places:
            old = self.table.filter(pa.array(stays)).drop_columns("place")
            both = self.entries(self.places[stays]).concatenated(entries)
            made = cut(self._folder, pa.concat_tables([old, new]), both, most)
            return made, Work(len(new), there, len(old))
        fresh = np.arange(bucket.places, places, dtype=np.int32)
        left = pa.table({"place": pa.array(gone)})
        came = new.add_column(0, "place", pa.array(fresh))
        members = self._written_members(pa.concat_tables([came, left], promote_options="default"))
        lists, taken = self._written(fresh, entries, self.places[stays])
        bounds = bucket.bounds
        if len(new):
            wider = np.array([*np.split(np.array(bounds), 2), *points_of(new)])
            bounds = _around(wider)
        after = Bucket(bucket.start, bounds, places, there, members, lists)
        return [after], Work(len(new), len(new) + taken, taken)

    def _written_members(self, rows: pa.Table) -> list[FilePart]:
        """Write interests that came or left; return all parts."""
        parts = self.bucket.members
        kept = len(parts)
        while kept and parts[kept - 1].rows <= 2 * len(rows):
            kept -= 1
            older = read_table(self._folder, INTERESTS, parts[kept])
            known = among(older["place"], rows["place"])
            rows = pa.concat_tables([older.filter(pc.invert(known)), rows])
        if not kept:
            rows = rows.filter(pc.is_valid(rows["id"]))
        return [*parts[:kept], write_table(self._folder, INTERESTS, rows)]
