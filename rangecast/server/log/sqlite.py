"""A log in SQLite files, one per segment, as written by `rangecast serve`.

    data/log-00000000000000000001.db    units from that seq on; the last file is written to

A segment is closed when it has grown to `SEGMENT` bytes; retention deletes whole files. SQLite's
write-ahead log survives kill -9 and power loss; a group of units is one transaction. `durability`
says when it is synced. Readers have their own connections and short transactions, so that none of
them delays a checkpoint.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import sqlite3
import threading
from collections.abc import Sequence
from functools import cache
from itertools import chain as chain_of
from itertools import pairwise
from pathlib import Path
from typing import Any

from rangecast.server.log import durability as policy
from rangecast.server.log.acknowledged import End, EndMark, marked_end, release_reserve
from rangecast.server.log.base import START, Draft, LogError, LogFullError, Unit, chained, new_epoch
from rangecast.server.log.segment import (
    SCHEMA,
    UNREADABLE,
    Head,
    checked_end,
    damaged,
    insertion,
    last_written,
    path_of,
    read_only,
    row_of,
    segments,
    units_after,
    unreadable,
    write_head,
)
from rangecast.server.security.private_folder import create

logger = logging.getLogger("rangecast.server")
SEGMENT = 256 << 20
"""Bytes of units after which a new segment begins."""
_ROWS = 100
"""Units that one statement writes."""
_PROBED = 1 << 20
"""Bytes for which there must be space before a full disk counts as having some again."""
_FULL_ERRNOS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_MAYBE_FULL = (
    sqlite3.SQLITE_IOERR_WRITE,
    sqlite3.SQLITE_IOERR_TRUNCATE,
    sqlite3.SQLITE_IOERR_SHMSIZE,
    sqlite3.SQLITE_IOERR_SHMMAP,
    sqlite3.SQLITE_IOERR_SHMOPEN,
    sqlite3.SQLITE_CANTOPEN,
)
"""Errors of SQLite that a quota or a full disk may cause: whether it does, the disk is asked. A
failed sync isn't among them.
"""


class SqliteLog:
    """A log in a folder. One process at a time may write: `serve` holds the folder's lock."""

    def __init__(
        self,
        folder: str | Path,
        *,
        durability: str = "fsync",
        segment: int = SEGMENT,
        epoch: str | None = None,
    ):
        """Open or create a log; `epoch`: the log is a copy of the one with this epoch."""
        self.folder = Path(folder)
        self.durability = durability
        self._segment_bytes = segment
        self._pool = threading.local()
        self._firsts = segments(self.folder)
        self._writer: sqlite3.Connection | None = None
        self._broken: str | None = None
        self._mark: EndMark | None = None
        self._newest: dict[int, float] = {}
        """When segments that are full were last written, by their first seq."""
        self.damage: dict[int, str] = {}
        """Damage found when reading, by seq."""
        if self._firsts:
            self._open_last()
        else:
            self._begin(epoch or new_epoch())

    # ---- opening

    def _begin(self, epoch: str) -> None:
        mark = marked_end(self.folder)
        if mark is not None and mark.last:
            raise LogError(
                f"{self.folder}: the log is missing; it was acknowledged up to seq {mark.last}\n"
                "  hint: restore the folder from a backup, or choose another one"
            )
        self.epoch, self.first, self.last, self.chain = epoch, 1, 0, START
        try:
            self._mark = EndMark(self.folder)
            self._mark.begin(self._end)
        except OSError as error:
            raise self._unusable(error) from None
        try:
            self._begin_segment()
        except BaseException:
            self._close_mark()
            raise
        self.reserve()

    def _open_last(self) -> None:
        path = self._path(self._firsts[-1])
        for name in (self.folder, path):
            if os.access(name, os.R_OK) and not os.access(name, os.W_OK):
                raise LogError(
                    f"{name}: can't be written by this user\n  hint: check its owner and mode"
                )
        try:
            end = checked_end(self.folder, self._firsts)
        except LogError:
            if not self._released_reserve():
                raise
            end = checked_end(self.folder, self._firsts)
        self.epoch, self.last, self.chain = end
        self.first = self._firsts[0]
        try:
            self._writer = self._connect_writer(path)
            sizes = "SELECT coalesce(sum(length(body)), 0) FROM units"
            self._written = self._writer.execute(sizes).fetchone()[0]
        except sqlite3.Error as error:
            self._close_writer()
            raise LogError(unreadable(path, error)) from None
        try:
            self.sync()  # a killed process may have left what isn't on the disk yet
        except BaseException:
            self._close_writer()
            raise
        self.reserve()

    def _connect_writer(self, path: Path) -> sqlite3.Connection:
        writer = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        policy.configure(writer, self.durability)
        return writer

    def _released_reserve(self) -> bool:
        """Release reserved space if the disk is full; return whether that was done."""
        if self.has_space:
            return False
        with contextlib.suppress(OSError):
            release_reserve(self.folder)
        return True

    def _unusable(self, error: OSError) -> LogError:
        return LogError(
            f"{self.folder}: can't be written: {error.strerror}\n"
            "  hint: check the disk, and the owner and mode of the folder and its files"
        )

    @property
    def _end(self) -> End:
        return End(self.epoch, self.last, self.chain)

    # ---- writing

    def append(self, drafts: Sequence[Draft]) -> list[Unit]:
        """Write units in one transaction; they are as durable as the policy says."""
        if self._broken is not None:
            raise LogError(self._broken)
        if self._written > self._segment_bytes:
            self._begin_segment()
        added = []
        chain, last = self.chain, self.last
        for draft in drafts:
            unit = chained(chain, last + 1, draft)
            chain, last = unit.chain, unit.last
            added.append(unit)
        try:
            self._insert([row_of(unit) for unit in added])
        except sqlite3.Error as error:
            raise self._rejection(error) from None
        self.chain, self.last = chain, last
        self._written += sum(len(unit.body) for unit in added)
        if policy.syncs_each_write(self.durability):
            self._note(self._end)
        return added

    def _rejection(self, error: sqlite3.Error | OSError) -> LogError | LogFullError:
        """Return the error for a failed write: the disk is full, or the log is unusable."""
        if self._is_full(error):
            return LogFullError(
                f"{self.folder}: the disk is full; nothing was accepted\n"
                "  hint: free some space, or reduce retention (--retention-gb, --retention-days)"
            )
        return self._failed(error)

    def _failed(self, error: BaseException) -> LogError:
        """Stop accepting writes.

        The result of a failed sync is unknown, and continuing could lose data acknowledged later.
        """
        self._broken = (
            f"{self.folder}: writing failed ({error}); nothing more is accepted\n"
            "  hint: check the disk, then restart the server"
        )
        return LogError(self._broken)

    def _is_full(self, error: sqlite3.Error | OSError) -> bool:
        if isinstance(error, OSError):
            return error.errno in _FULL_ERRNOS
        code = getattr(error, "sqlite_errorcode", 0)
        return code == sqlite3.SQLITE_FULL or (code in _MAYBE_FULL and not self.has_space)

    @property
    def has_space(self) -> bool:
        """Whether there is space for more units."""
        return _has_space(self.folder)

    def reserve(self) -> None:
        """Reserve some disk space for the next start, if available."""
        with contextlib.suppress(OSError):
            if self._mark is not None:
                self._mark.reserve()

    def _note(self, end: End) -> None:
        """Record that everything up to this end is on disk."""
        try:
            if self._mark is None:
                self._mark = EndMark(self.folder)
            self._mark.write(end)
        except OSError as error:  # the units themselves are there
            logger.warning("%s: the mark of the log can't be written: %s", self.folder, error)

    def _close_mark(self) -> None:
        if self._mark is not None:
            with contextlib.suppress(OSError):
                self._mark.close()
            self._mark = None

    def _insert(self, rows: list[tuple[Any, ...]]) -> None:
        """Write rows in one transaction.

        Every step of a statement releases the GIL, and reacquiring it from a busy thread takes
        milliseconds. So a group is one statement and one transaction, unless it is huge.
        """
        assert self._writer is not None
        if len(rows) <= _ROWS:
            self._writer.execute(_insertion(len(rows)), list(chain_of.from_iterable(rows)))
            return
        self._writer.execute("BEGIN IMMEDIATE")
        try:
            for begin in range(0, len(rows), _ROWS):
                piece = rows[begin : begin + _ROWS]
                self._writer.execute(_insertion(len(piece)), list(chain_of.from_iterable(piece)))
            self._writer.execute("COMMIT")
        except BaseException:
            if self._writer.in_transaction:
                self._writer.execute("ROLLBACK")
            raise

    def sync(self) -> None:
        """Sync everything written to disk."""
        if self._broken is not None:
            raise LogError(self._broken)
        end = self._end
        try:
            policy.sync_segment(self._path(self._firsts[-1]))
        except OSError as error:
            raise self._failed(error) from None
        self._note(end)

    def _begin_segment(self) -> None:
        """Start a new file for the following units."""
        first = self.last + 1
        path = self._path(first)
        # Made under another name: a segment is there with its head, or not at all.
        partial = path.with_name(f".{path.name}.partial")
        try:
            for leftover in self.folder.glob(f"{partial.name}*"):
                leftover.unlink()
            create(partial)  # its -wal and -shm get its mode
            with contextlib.closing(sqlite3.connect(partial)) as made:
                made.executescript(SCHEMA)
                with made:
                    write_head(made, self.epoch, first, self.chain)
            policy.install_segment(partial, path)
            writer = self._connect_writer(path)
        except (sqlite3.Error, OSError) as error:
            for leftover in (partial, path):
                with contextlib.suppress(OSError):
                    leftover.unlink()
            raise self._rejection(error) from None
        self._close_writer()
        if self._writer is not None and not policy.checkpoints_sync(self.durability):
            policy.sync_segment(self._path(self._firsts[-1]))
            self._note(self._end)
        self._writer, self._written = writer, 0
        self._firsts = [*self._firsts, first]

    # ---- reading

    def read(self, after: int, max_bytes: int) -> list[Unit]:
        """Return verified units after a seq, from one segment.

        Reading stops before a damaged unit, and raises a `LogError` if that is the first.
        """
        last, firsts = self.last, self._firsts
        for index in range(len(firsts) - 1, -1, -1):
            if firsts[index] <= after + 1 or index == 0:
                break
        for first in firsts[index:]:
            try:
                units = self._read_segment(first, after, max_bytes)
            except (LogError, *UNREADABLE) as error:
                path = self._path(first)
                if not path.exists():
                    continue  # retention has deleted it in the meantime
                if not isinstance(error, LogError):
                    error = LogError(unreadable(path, error))
                raise self._damaged(max(first, after + 1), error) from None
            if units:
                return units
        if self._firsts is not firsts:
            return self.read(after, max_bytes)
        after = max(after, firsts[0] - 1)
        if after < last:
            raise self._damaged(after + 1, damaged(self._path(firsts[-1]), after + 1))
        return []

    def _read_segment(self, first: int, after: int, max_bytes: int) -> list[Unit]:
        reader, head = self._reader(first)
        read: list[Unit] = []
        size = 0
        units = units_after(self._path(first), head, reader, after)
        with contextlib.closing(units):
            try:
                for unit in units:
                    if read and size + len(unit.body) > max_bytes:
                        break
                    read.append(unit)
                    size += len(unit.body)
            except (LogError, *UNREADABLE):
                if not read:
                    raise
                # What can't be read is met again, as the first one.
        return read

    def _damaged(self, seq: int, error: LogError) -> LogError:
        """Record damage found while reading, for readiness and status."""
        if seq not in self.damage:
            self.damage[seq] = str(error)
            logger.error("%s", error)
        return error

    def _reader(self, first: int) -> tuple[sqlite3.Connection, Head]:
        """Return this thread's connection to a segment, and the segment's head."""
        held: dict[int, tuple[sqlite3.Connection, Head]]
        held = self._pool.__dict__.setdefault("held", {})
        for old in [connection for connection in held if connection != first]:
            held.pop(old)[0].close()
        if first not in held:
            path = self._path(first)
            reader = sqlite3.connect(read_only(path), uri=True, isolation_level=None)
            try:
                held[first] = reader, Head(path, reader)
            except BaseException:
                reader.close()
                raise
        return held[first]

    def drop(self, upto: int) -> None:
        """Delete the segments that lie entirely at or before a seq."""
        while len(self._firsts) > 1 and self._firsts[1] <= upto + 1:
            gone = self._path(self._firsts[0])
            self._newest.pop(self._firsts[0], None)
            self._firsts = self._firsts[1:]
            self.first = self._firsts[0]
            for seq in [damage for damage in self.damage if damage < self.first]:
                del self.damage[seq]
            for name in (gone, *(gone.with_name(gone.name + end) for end in ("-wal", "-shm"))):
                name.unlink(missing_ok=True)

    @property
    def bytes(self) -> int:
        """Size of the segments on disk in bytes."""
        return sum(map(_size_of, self.folder.glob("log-*.db*")))

    def segment_sizes(self) -> list[tuple[int, int, float]]:
        """Return the last seq, bytes and last write time of each segment but the last.

        Times are microseconds since 1970, by the log's clock.
        """
        sizes = []
        for first, after in pairwise(self._firsts):
            path = self._path(first)
            if first not in self._newest:
                self._newest[first] = last_written(path)
            sizes.append((after - 1, path.stat().st_size, self._newest[first]))
        return sizes

    def close(self) -> None:
        """Close the files."""
        self._close_writer()
        if self._broken is None and self._mark is not None:
            with contextlib.suppress(LogError):
                self.sync()
        self._close_mark()
        for reader, _ in self._pool.__dict__.get("held", {}).values():
            reader.close()

    def _close_writer(self) -> None:
        """Close the current segment; its file is then complete, even while others read it."""
        if self._writer is not None:
            with contextlib.suppress(sqlite3.Error):  # a full disk: it stays unchanged
                self._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            self._writer.close()

    def _path(self, first: int) -> Path:
        return path_of(self.folder, first)


_insertion = cache(insertion)


def _has_space(folder: Path) -> bool:
    """Return whether a file can be written; other disk faults are ignored."""
    probe = folder / ".space.partial"
    try:
        handle = os.open(probe, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(handle, 0, _PROBED)
        finally:
            os.close(handle)
            probe.unlink(missing_ok=True)
    except OSError as error:
        return error.errno not in _FULL_ERRNOS
    return True


def _size_of(path: Path) -> int:
    """Return the size of a file; 0 if retention or a checkpoint has removed it in the meantime."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
