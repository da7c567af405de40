"""Interests, lists and objects on the disk, in parts: a batch writes those that changed.

    interests/*.arrow   a part of a bucket: place, id, point, k; one without id has left
    lists/*.arrow       a part of a bucket: place, arrivals, ys
    objects/*.arrow     a part of the objects: id, where, value, arrival; one without value is gone

A bucket holds boxes of interests that lie side by side, in the order of their points
(`board_schema`); most interests have one. A box has a place there, which is never given to another
one. The boxes of a bucket are in parts, the oldest first; so are their lists. Of a place that is in
several parts the newest counts. A new part takes in those before it that are at most twice as
large. So each is more than twice as large as the next: a bucket of n lists has at most log2(n) + 1
parts, of less than 2 n lists in all, and a list that changed is written about log n times over the
years. Objects are kept in parts in the same way.

A part is an uncompressed Arrow file, and lists are of a fixed size: it maps into memory, and only
the lists that are needed are read. It has a name of its own and never changes. Which parts count is
in the `State` that commits a batch; a file that isn't named there is what an attempt that crashed
has left.
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

from rangecast.errors import FileError
from rangecast.kernels.arrays import F64, Bool
from rangecast.model.io.atomic import write_whole
from rangecast.model.io.durable import sync_folder, write_bytes
from rangecast.model.sets.members import Id

INTERESTS, LISTS, OBJECTS = "interests", "lists", "objects"
STATE = "state.json"
_SUFFIX = ".arrow"


class FilePart(NamedTuple):
    """A file of interests, lists or objects, and how many it has."""

    file: str
    rows: int


class Bucket(NamedTuple):
    """Some boxes of interests and their lists."""

    start: Sequence[float]
    """A point: those from here to the start of the next bucket lie in this one."""
    bounds: Sequence[float]
    """The least and then the largest coordinates of all points."""
    places: int
    """Number of those assigned, also to boxes that have left."""
    interests: int
    members: Sequence[FilePart]
    lists: Sequence[FilePart]

    @classmethod
    def of(cls, values: Sequence[Any]) -> Bucket:
        """Create a bucket from its JSON values."""
        start, bounds, places, interests, *files = values
        members, lists = ([FilePart(*part) for part in parts] for parts in files)
        return cls(start, bounds, places, interests, members, lists)

    def reached_by(self, tile: F64) -> Bool:
        """Return, for each message (by its bounds), whether it may reach one of the boxes."""
        least, largest = np.split(np.array(self.bounds), 2)
        first, last = np.split(tile, 2, axis=1)
        reached: Bool = np.all((first <= largest) & (least <= last), axis=1)
        return reached


class Work(NamedTuple):
    """Work of a batch: lists that changed, lists written and read, and objects written."""

    changed: int = 0
    written: int = 0
    """Lists that changed, and lists of the parts that were merged."""
    read: int = 0
    """Lists that a message reached, and lists of the parts that were merged."""
    objects: int = 0

    @classmethod
    def total(cls, works: Sequence[Sequence[int]]) -> Work:
        """Return the sum."""
        return cls(*(sum(counts) for counts in zip(*works, strict=True)))


class State(NamedTuple):
    """State after a batch or an edit; `batch` and `edit` are the last ones.

    `settings` are the user's, `id` is the type of interests' ids, and `several` says whether some
    interests have, or had, several boxes. Buckets are in order of `start`.
    """

    batch: int
    edit: int
    settings: dict[str, Any]
    id: str
    several: bool
    objects: Sequence[FilePart]
    buckets: Sequence[Bucket]
    work: Work

    def commit(self, folder: Path) -> None:
        """Commit this state by one rename; all files that it names are already on disk."""
        write_whole(folder / STATE, json.dumps(self._asdict()).encode())

    def files(self) -> set[str]:
        """Return the files that this state uses."""
        parts = [part for bucket in self.buckets for part in (*bucket.members, *bucket.lists)]
        return {part.file for part in (*self.objects, *parts)}


def committed_state(folder: Path) -> State | None:
    """Return the committed state, or None if nothing has been committed yet."""
    try:
        state = json.loads((folder / STATE).read_bytes())
    except FileNotFoundError:
        return None
    try:
        buckets = [Bucket.of(bucket) for bucket in state["buckets"]]
        objects, work = [FilePart(*part) for part in state["objects"]], Work(*state["work"])
        return State(**{**state, "objects": objects, "buckets": buckets, "work": work})
    except (KeyError, TypeError):
        raise FileError(
            f"{folder / STATE}: written by another version of rangecast\n"
            "  hint: read it with that version, or start in another folder"
        ) from None


def sweep(folder: Path, used: set[str]) -> None:
    """Delete unused files."""
    for kind in (INTERESTS, LISTS, OBJECTS):
        for path in (folder / kind).glob(f"*{_SUFFIX}"):
            if path.name not in used:
                path.unlink(missing_ok=True)


def write_table(folder: Path, kind: str, table: pa.Table) -> FilePart:
    """Write a table durably."""
    name = f"{uuid4().hex}{_SUFFIX}"
    made = pa.BufferOutputStream()
    with pa.ipc.new_file(made, table.schema) as file:
        file.write_table(table.combine_chunks())
    (folder / kind).mkdir(exist_ok=True)
    write_bytes(folder / kind / name, memoryview(made.getvalue()))
    sync_folder(folder / kind)
    return FilePart(name, len(table))


def read_table(folder: Path, kind: str, part: FilePart) -> pa.Table:
    """Open a written table; its columns are read on first use."""
    with pa.memory_map(str(folder / kind / part.file)) as file:
        return pa.ipc.open_file(file).read_all()


def read_members(folder: Path, bucket: Bucket) -> pa.Table:
    """Return the interests of a bucket, in the order of their places."""
    members = pa.concat_tables(read_table(folder, INTERESTS, part) for part in bucket.members)
    newest = np.full(bucket.places, -1)
    newest[members["place"].to_numpy()] = np.arange(len(members))
    members = members.take(pa.array(newest[newest >= 0]))
    return members.filter(pc.is_valid(members["id"])).combine_chunks()


def read_objects(folder: Path, parts: Sequence[FilePart]) -> pa.Table:
    """Return all objects, as a board takes them."""
    table = read_table(folder, OBJECTS, parts[0])
    for part in parts[1:]:
        newer = read_table(folder, OBJECTS, part)
        older = table.filter(pc.invert(among(table["id"], newer["id"])))
        table = pa.concat_tables([older, newer], promote_options="permissive")
    return table.filter(pc.is_valid(table["value"]))


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
        taken = read_table(folder, OBJECTS, parts[kept])["id"]
        both = [pa.table({"id": changed}), pa.table({"id": taken})]
        changed = pa.concat_tables(both, promote_options="permissive")["id"].unique()
    objects = objects_of(changed.to_pylist() if kept else None)
    if kept:
        gone = changed.filter(pc.invert(among(changed, objects["id"])))
        objects = pa.concat_tables([objects, pa.table({"id": gone})], promote_options="permissive")
    return [*parts[:kept], write_table(folder, OBJECTS, objects)]


def among(ids: pa.Array, others: pa.Array) -> pa.Array:
    """Return whether each id is one of the others; columns without rows may be of no type."""
    if not len(ids) or not len(others):
        return pa.array(np.zeros(len(ids), np.bool_))
    return pc.is_in(ids, value_set=others.cast(ids.type))
