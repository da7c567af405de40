"""End mark: records the acknowledged end of the log, to detect a log that has lost entries.

    data/log.mark    two records, written in turn: epoch, last seq, its checksum, and their own

The mark is written after the units are on disk, so a log that ends before its mark is damaged: a
bit of SQLite's write-ahead file has changed, or a copy was made without that file. SQLite itself
treats this as the torn end of an unacknowledged write, and ignores everything after it.

The mark isn't synced separately: after a power cut it may be older than the log, never newer.

The rest of the file is a reserve: on a full disk, releasing it gives SQLite the space that it needs
to open files.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

from rangecast.model.io.durable import sync_folder
from rangecast.server.log.base import LogError

NAME = "log.mark"
_SLOT = 512
"""Bytes of a record: a sector, which a disk writes whole or not at all."""
_RESERVE = 256 << 10


class End(NamedTuple):
    """The last acknowledged unit of a log."""

    epoch: str
    last: int
    chain: bytes


class EndMark:
    """Writes the end mark of a data folder."""

    def __init__(self, folder: Path):
        """Open or create the mark; raise `OSError` if the disk is full."""
        path = folder / NAME
        is_new = not path.exists()
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._turn = 0
        if is_new:
            os.pwrite(self._file, b"\0" * 2 * _SLOT, 0)
            sync_folder(folder)

    def write(self, end: End) -> None:
        """Record the end of the log."""
        os.pwrite(self._file, _record(end), self._turn * _SLOT)
        self._turn ^= 1

    def begin(self, end: End) -> None:
        """Record the end of the log, discarding earlier records."""
        self.write(end)
        self.write(end)
        os.fsync(self._file)

    def reserve(self) -> None:
        """Reserve some disk space, if available."""
        if os.fstat(self._file).st_size < _RESERVE:
            os.posix_fallocate(self._file, 0, _RESERVE)

    def close(self) -> None:
        """Close the file; all recorded ends are on disk."""
        os.fsync(self._file)
        os.close(self._file)


def release_reserve(folder: Path) -> None:
    """Release the disk reserve."""
    path = folder / NAME
    if path.exists() and path.stat().st_size > 2 * _SLOT:
        os.truncate(path, 2 * _SLOT)


def marked_end(folder: Path) -> End | None:
    """Return the newest intact end mark; `None` if there is none."""
    path = folder / NAME
    try:
        with path.open("rb") as file:
            data = file.read(2 * _SLOT)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise LogError(f"{path}: can't be read: {error.strerror}") from None
    ends = [_end(data[:_SLOT]), _end(data[_SLOT:])]
    return max(
        (candidate for candidate in ends if candidate is not None),
        key=lambda end: end.last,
        default=None,
    )


def _record(end: End) -> bytes:
    text = f"{end.epoch} {end.last} {end.chain.hex()}".encode()
    return b"%s %08x\n" % (text, crc32(text))


def _end(record: bytes) -> End | None:
    try:
        text, _, checksum = record.partition(b"\n")[0].rpartition(b" ")
        if checksum != b"%08x" % crc32(text):
            return None
        epoch, last, chain = text.decode("ascii").split(" ")
        return End(epoch, int(last), bytes.fromhex(chain))
    except ValueError:
        return None
