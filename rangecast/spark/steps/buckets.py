"""Lists and objects on the disk, in parts: a batch writes those that changed, and little else.

    interests/*.parquet     a bucket each: id, x_lo, x_hi, k; written once
    lists/*.parquet         a part of a bucket: place (the interest's row), arrivals, ys
    objects/*.parquet       a part of the objects: id, x, y, arrival; those without y are gone

The lists of a bucket are in parts, the oldest first. The first one has them all; of a list that is
in several the newest counts. A new part takes in those before it that are at most twice as large.
So each is more than twice as large as the next: a bucket of n lists has at most log2(n) + 1 parts,
of less than 2 n lists in all, and a list that changed is written about log n times over the years.
Objects are kept in parts in the same way.

A part has a name of its own and never changes. Which parts count is in the `State` that commits a
batch; a file that isn't named there is what an attempt that crashed has left.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from rangecast.kernels.arrays import F64, I32, I64
from rangecast.model.durable import sync_folder, write_bytes, write_whole
from rangecast.model.members import Id
from rangecast.notify.interests import Interests
from rangecast.notify.objects import Objects
from rangecast.notify.subscriber import Lists

INTERESTS, LISTS, OBJECTS = "interests", "lists", "objects"
STATE = "state.json"


class FilePart(NamedTuple):
    """A file of lists or objects, and how many it has."""

    file: str
    rows: int


class Bucket(NamedTuple):
    """Some interests: their file, how many, between which bounds they lie, and their lists."""

    file: str
    interests: int
    bounds: Sequence[float]
    """The least and the greatest x_lo, the least and the greatest x_hi."""
    parts: Sequence[FilePart]

    def may_hear(self, tile: F64) -> bool:
        """Whether one of these messages may reach one of the interests."""
        least_lo, most_lo, least_hi, most_hi = self.bounds
        left = (tile[:, 0] < most_lo) & (least_lo <= tile[:, 1])
        right = (tile[:, 2] <= most_hi) & (least_hi < tile[:, 3])
        return bool((left & right).any())


class Work(NamedTuple):
    """What a batch did: lists that changed, lists written and read, and objects written."""

    changed: int = 0
    written: int = 0
    """Those that changed, and those of the parts that were taken in."""
    read: int = 0
    objects: int = 0


class State(NamedTuple):
    """What holds after a batch. `settings` are the user's, `id` is the type of interests' ids."""

    batch: int
    settings: dict[str, Any]
    id: str
    objects: Sequence[FilePart]
    buckets: Sequence[Bucket]
    work: Work

    def commit(self, folder: Path) -> None:
        """Make this what holds, by one rename; all files that it names are on the disk."""
        write_whole(folder / STATE, json.dumps(self._asdict()).encode())

    def files(self) -> set[str]:
        """Return the files that the batches to come may replace."""
        parts = [*self.objects, *(part for one in self.buckets for part in one.parts)]
        return {part.file for part in parts}


def committed_state(folder: Path) -> State | None:
    """Return what holds, or None if nothing has been committed yet."""
    try:
        found = json.loads((folder / STATE).read_bytes())
    except FileNotFoundError:
        return None
    buckets = [
        Bucket(file, interests, bounds, [FilePart(*part) for part in parts])
        for file, interests, bounds, parts in found["buckets"]
    ]
    objects, work = [FilePart(*part) for part in found["objects"]], Work(*found["work"])
    return State(**{**found, "objects": objects, "buckets": buckets, "work": work})


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


def read_objects(folder: Path, parts: Sequence[FilePart]) -> pa.Table:
    """Return all objects, as a board takes them."""
    table = read_table(folder, OBJECTS, parts[0].file)
    for part in parts[1:]:
        newer = read_table(folder, OBJECTS, part.file)
        older = table.filter(pc.invert(_among(table["id"], newer["id"])))
        table = pa.concat_tables([older, newer], promote_options="permissive")
    return table.filter(pc.is_valid(table["y"]))


def write_objects(
    folder: Path,
    parts: Sequence[FilePart],
    objects_of: Callable[[list[Id] | None], pa.Table],
    changed: pa.Array | pa.ChunkedArray,
) -> list[FilePart]:
    """Write the objects with the ids that changed; return all parts.

    `objects_of` returns those of some ids that there are, or all there are.
    """
    if parts and not len(changed):
        return list(parts)
    kept = len(parts)
    changed = changed.unique()
    while kept and parts[kept - 1].rows <= 2 * len(changed):
        kept -= 1
        taken = read_table(folder, OBJECTS, parts[kept].file)["id"]
        both = [pa.table({"id": changed}), pa.table({"id": taken})]
        changed = pa.concat_tables(both, promote_options="permissive")["id"].unique()
    objects = objects_of(changed.to_pylist() if kept else None)
    if kept:
        gone = changed.filter(pc.invert(_among(changed, objects["id"])))
        objects = pa.concat_tables([objects, pa.table({"id": gone})], promote_options="permissive")
    part = FilePart(write_table(folder, OBJECTS, objects), objects.num_rows)
    return [*parts[:kept], part]


def _among(ids: pa.Array, others: pa.Array) -> pa.Array:
    """Return whether each id is one of the others; columns without rows may be of no type."""
    if not len(ids) or not len(others):
        return pa.array(np.zeros(len(ids), np.bool_))
    return pc.is_in(ids, value_set=others.cast(ids.type))


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
        self._places: list[I32] = []
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

    def look(self, objects: Objects) -> I32:
        """Make all lists from the objects."""
        rows, k = self.lists.arrivals.shape
        self.lists = Lists.now(objects, self._interests, k)
        return np.arange(rows, dtype=np.int32)

    def tell(self, arrival: I64, y: F64, tile: F64) -> I32:
        """Apply messages; return the places of the lists that are others than before."""
        arrivals, ys = self.lists.arrivals.copy(), self.lists.ys.copy()
        self.lists.apply(arrival, y, tile)
        differ = (self.lists.arrivals != arrivals) | (self.lists.ys != ys)
        return np.flatnonzero(differ.any(axis=1)).astype(np.int32)

    def write(self, changed: I32) -> tuple[list[FilePart], int]:
        """Write the lists at these places; return all parts, and how many lists were written."""
        if not len(changed):
            return self._parts, 0
        kept = len(self._parts)
        while kept and self._parts[kept - 1].rows <= 2 * len(changed):
            kept -= 1
            changed = np.union1d(changed, self._places[kept])
        k = self.lists.arrivals.shape[1]
        offsets = pa.array(np.arange(0, (len(changed) + 1) * k, k, dtype=np.int32))
        columns = {"place": pa.array(changed)}
        for name, values in (("arrivals", self.lists.arrivals), ("ys", self.lists.ys)):
            columns[name] = pa.ListArray.from_arrays(offsets, pa.array(values[changed].ravel()))
        file = write_table(self._folder, LISTS, pa.table(columns))
        return [*self._parts[:kept], FilePart(file, len(changed))], len(changed)
