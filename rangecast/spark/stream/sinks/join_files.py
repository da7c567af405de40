"""Join small files of a batch on the driver, before the commit.

Each task writes a file of its own for each sink and partition. Many of them are small in a stream;
readers and file systems prefer few large ones. Files below an eighth of the target size are joined
up to it, so that a batch has at most one small file per partition. Larger ones are left as they
are: to write them once more would cost more than it brings.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq

from rangecast.spark.stream.sinks.written import Place, WrittenFile, encodings

TARGET_FILE_BYTES = 32 << 20
"""Bytes up to which small files are joined, by default."""

_SMALL = 8
"""Factor by which a file must be below the target to be joined with others."""
T = TypeVar("T")


def join_parquet(
    place: Place, files: Sequence[WrittenFile], target_bytes: int
) -> list[WrittenFile]:
    """Join small files of the same partition; return the resulting files."""
    joined: list[WrittenFile] = []
    for group in _groups(files, target_bytes, lambda file: (file.size, file.partition)):
        if len(group) == 1 or not all(place.has(file.name) for file in group):
            joined += group  # those that stayed on other hosts are rejected by the commit
            continue
        table = pa.concat_tables([place.read(file.name) for file in group])
        folder = group[0].name.rpartition("/")
        name = f"{folder[0]}{folder[1]}part-{uuid4().hex}.parquet"
        with place.create(name) as sink:
            options = encodings(table.schema)
            pq.write_table(table, sink, row_group_size=max(1, table.num_rows), **options)
            size = sink.tell()
        joined.append(WrittenFile(name, table.num_rows, size, group[0].partition))
        for file in group:
            place.remove(file.name)
    return joined


def join_lines(folder: Path, target_bytes: int) -> None:
    """Join small files of JSON Lines below a folder, each with others of its own folder."""
    files = sorted(path for path in folder.rglob("part-*") if path.is_file())
    for group in _groups(files, target_bytes, lambda path: (path.stat().st_size, path.parent)):
        if len(group) == 1:
            continue
        joined = group[0].with_name(f"part-{uuid4().hex}.json")
        with joined.open("wb") as file:
            for path in group:
                file.write(path.read_bytes())
        for path in group:
            path.unlink()
            path.with_name(f".{path.name}.crc").unlink(missing_ok=True)


def _groups(
    files: Sequence[T], target_bytes: int, facts: Callable[[T], tuple[int, object]]
) -> list[list[T]]:
    """Return files in groups: small ones of a partition together, up to the target size."""
    groups: list[list[T]] = []
    open_groups: dict[object, tuple[int, list[T]]] = {}
    for file in files:
        size, partition = facts(file)
        if size * _SMALL > target_bytes:
            groups.append([file])
            continue
        held, group = open_groups.get(partition, (0, []))
        if not group or held + size > target_bytes:
            held, group = 0, []
            groups.append(group)
        group.append(file)
        open_groups[partition] = held + size, group
    return groups
