"""Lists of interests on the disk, in buckets: a batch writes those that changed, and little else.

    interests/*.parquet     a bucket each: id, x_lo, x_hi, k; written once
    lists/*.parquet         a part of a bucket: place (the interest's row), arrivals, ys

The lists of a bucket are in parts, the oldest first. The first one has them all; of a list that is
in several the newest counts. A new part takes in those before it that are at most twice as large.
So each is more than twice as large as the next: a bucket of n lists has at most log2(n) + 1 parts,
of less than 2 n lists in all, and a list that changed is written about log n times over the years.

A part has a name of its own and never changes. Which parts count is in the `State` that commits a
batch; a file that isn't named there is what an attempt that crashed has left.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from rangecast.model.durable import sync_folder, write_bytes, write_whole
from rangecast.notify.interests import Interests
from rangecast.notify.messages import Counts, Floats
from rangecast.notify.objects import Objects
from rangecast.notify.subscriber import Lists

Places = npt.NDArray[np.int32]
INTERESTS, LISTS, OBJECTS = "interests", "lists", "objects"
_STATE = "state.json"


class Part(NamedTuple):
    """A file of lists, and how many it has."""

    file: str
    lists: int


class Bucket(NamedTuple):
    """Some interests: their file, how many, between which bounds they lie, and their lists."""

    file: str
    interests: int
    bounds: Sequence[float]
    """The least and the greatest x_lo, the least and the greatest x_hi."""
    parts: Sequence[Part]

    def may_hear(self, tile: Floats) -> bool:
        """Whether one of these messages may reach one of the interests."""
        least_lo, most_lo, least_hi, most_hi = self.bounds
        left = (tile[:, 0] < most_lo) & (least_lo <= tile[:, 1])
        right = (tile[:, 2] <= most_hi) & (least_hi < tile[:, 3])
        return bool((left & right).any())


class Work(NamedTuple):
    """What a batch did, in lists."""

    changed: int = 0
    written: int = 0
    """Those that changed, and those of the parts that were taken in."""
    read: int = 0


class State(NamedTuple):
    """What holds after a batch. `settings` are the user's, `id` is the type of interests' ids."""

    batch: int
    settings: dict[str, Any]
    id: str
    objects: str
    buckets: Sequence[Bucket]
    work: Work

    def commit(self, folder: Path) -> None:
        """Make this what holds, by one rename; all files that it names are on the disk."""
        write_whole(folder / _STATE, json.dumps(self._asdict()).encode())

    def files(self) -> set[str]:
        """Return the files that the batches to come may replace."""
        return {self.objects, *(part.file for one in self.buckets for part in one.parts)}


def committed_state(folder: Path) -> State | None:
    """Return what holds, or None if nothing has been committed yet."""
    try:
        found = json.loads((folder / _STATE).read_bytes())
    except FileNotFoundError:
        return None
    buckets = [
        Bucket(file, interests, bounds, [Part(*part) for part in parts])
        for file, interests, bounds, parts in found["buckets"]
    ]
    return State(**{**found, "buckets": buckets, "work": Work(*found["work"])})


def sweep(folder: Path, used: set[str]) -> None:
    """Delete the files of lists and objects that aren't used."""
    for kind in (LISTS, OBJECTS):
        for path in (folder / kind).glob("*.parquet"):
            if path.name not in used:
                path.unlink(missing_ok=True)


def write_table(folder: Path, kind: str, table: pa.Table) -> str:
    """Write a table that is on the disk when this returns; return the name of its file."""
    name = f"{uuid4().hex}.parquet"
    made = pa.BufferOutputStream()
    pq.write_table(table, made)
    (folder / kind).mkdir(exist_ok=True)
    write_bytes(folder / kind / name, memoryview(made.getvalue()))
    sync_folder(folder / kind)
    return name


def read_table(folder: Path, kind: str, name: str) -> pa.Table:
    """Return the table of a file."""
    return pq.ParquetFile(folder / kind / name).read()


def buckets_of(folder: Path) -> list[Bucket]:
    """Return the buckets that were just written, without lists."""
    found = []
    for path in sorted((folder / INTERESTS).glob("*.parquet")):
        table = pq.ParquetFile(path).read(["x_lo", "x_hi"])
        if table.num_rows:
            ends = (table[name].to_numpy() for name in ("x_lo", "x_hi"))
            bounds = [float(end) for column in ends for end in (column.min(), column.max())]
            found.append(Bucket(path.name, table.num_rows, bounds, []))
    return found


class OpenBucket:
    """A bucket in memory: its interests by place, and their lists."""

    def __init__(self, folder: Path, bucket: Bucket, k: int):
        self._folder, self._parts = folder, list(bucket.parts)
        self.table = read_table(folder, INTERESTS, bucket.file)
        ends = (self.table[name].to_numpy() for name in ("x_lo", "x_hi"))
        arrivals = np.full((bucket.interests, k), -1, np.int64)
        ys = np.full((bucket.interests, k), np.inf)
        self._places: list[Places] = []
        for part in self._parts:
            lists = read_table(folder, LISTS, part.file)
            places = lists["place"].to_numpy()
            arrivals[places], ys[places] = (
                lists[name].combine_chunks().flatten().to_numpy().reshape(-1, k)
                for name in ("arrivals", "ys")
            )
            self._places.append(places)
        self._interests = Interests(*ends)
        self.lists = Lists(self._interests, arrivals, ys)

    @property
    def read(self) -> int:
        """How many lists were read."""
        return sum(map(len, self._places))

    def look(self, objects: Objects) -> Places:
        """Make all lists anew from the objects."""
        rows, k = self.lists.arrivals.shape
        self.lists = Lists.now(objects, self._interests, k)
        return np.arange(rows, dtype=np.int32)

    def tell(self, arrival: Counts, y: Floats, tile: Floats) -> Places:
        """Apply messages; return the places of the lists that are others than before."""
        arrivals, ys = self.lists.arrivals.copy(), self.lists.ys.copy()
        self.lists.apply(arrival, y, tile)
        differ = (self.lists.arrivals != arrivals) | (self.lists.ys != ys)
        return np.flatnonzero(differ.any(axis=1)).astype(np.int32)

    def write(self, changed: Places) -> tuple[list[Part], int]:
        """Write the lists at these places; return all parts, and how many lists were written."""
        if not len(changed):
            return self._parts, 0
        kept = len(self._parts)
        while kept and self._parts[kept - 1].lists <= 2 * len(changed):
            kept -= 1
            changed = np.union1d(changed, self._places[kept])
        k = self.lists.arrivals.shape[1]
        offsets = pa.array(np.arange(0, (len(changed) + 1) * k, k, dtype=np.int32))
        columns = {"place": pa.array(changed)}
        for name, values in (("arrivals", self.lists.arrivals), ("ys", self.lists.ys)):
            columns[name] = pa.ListArray.from_arrays(offsets, pa.array(values[changed].ravel()))
        file = write_table(self._folder, LISTS, pa.table(columns))
        return [*self._parts[:kept], Part(file, len(changed))], len(changed)
