"""Rows as Arrow streams: as bytes, or in a file whose location is passed on.

On a local master all workers see the driver's folder. What one task hands to another lies there in
files, one per task, and the JVM passes on a few bytes that say where. On a cluster the streams
themselves pass through Spark.
"""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import BinaryIO
from uuid import uuid4

import pyarrow as pa

_FILE = b"file "
"""Begins the place of a stream; a stream itself begins with four bytes of ff."""


class Spool:
    """Streams that a task passes on; with a folder, they are written there."""

    def __init__(self, folder: Path | None):
        self._folder = folder
        self._file: BinaryIO | None = None

    def __enter__(self) -> Spool:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._file is not None:
            self._file.close()

    def keep(self, rows: pa.RecordBatch | pa.Table) -> bytes:
        """Return rows as an Arrow stream, or its location."""
        stream = pa.BufferOutputStream()
        with pa.ipc.new_stream(stream, rows.schema) as writer:
            writer.write(rows)
        data = stream.getvalue()
        if self._folder is None:
            return bytes(data)
        if self._file is None:
            self._file = (self._folder / uuid4().hex).open("xb", buffering=0)
        begin = self._file.tell()
        self._file.write(data)
        return _FILE + f"{begin} {data.size} {self._file.name}".encode()


def read(kept: pa.Buffer) -> pa.Table:
    """Return the rows that a spool kept; those of a file are mapped, not read."""
    if kept.slice(0, len(_FILE)).to_pybytes() != _FILE:
        return pa.ipc.open_stream(kept).read_all()
    begin, size, name = kept.to_pybytes()[len(_FILE) :].decode().split(" ", 2)
    with pa.memory_map(name) as file:
        file.seek(int(begin))
        return pa.ipc.open_stream(file.read_buffer(int(size))).read_all()
