"""A log in SQLite files, a file per segment: what `rangecast serve` writes.

    data/log-00000000000000000001.db    the units from that seq on; the last one is written to

A segment is closed when it has grown to `SEGMENT` bytes; retention deletes whole files. SQLite's
write-ahead log survives kill -9 and power loss; a group of units is one transaction. Reading is
by connections of their own, in short transactions, so that no reader holds up a checkpoint.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from itertools import chain as chain_of
from itertools import pairwise
from pathlib import Path
from typing import Any

from rangecast.model.durable import sync_folder
from rangecast.server.log import (
    START,
    Draft,
    LogError,
    LogFullError,
    Unit,
    chained,
    is_chained,
    new_epoch,
)

SEGMENT = 256 << 20
"""Bytes of units after which a new segment begins."""
VERSION = 1
DURABILITIES = {"fsync": "FULL", "interval": "NORMAL", "none": "OFF"}
"""What an answer carries: on disk; on disk within `INTERVAL`; in the hands of the system."""
INTERVAL = 0.05
_NAME = re.compile(r"log-(\d{20})\.db")
_SCHEMA = """
CREATE TABLE head (epoch TEXT, version INTEGER, first INTEGER, chain BLOB, mark BLOB);
CREATE TABLE units (
    last INTEGER PRIMARY KEY, first INTEGER, count INTEGER, kind TEXT, at INTEGER, body BLOB,
    chain BLOB
);
"""
_ROWS = 100
"""Units that one statement writes."""
_COLUMNS = "first, count, kind, at, body, chain"


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
        """Open a log, or begin one; `epoch`: it is a copy of the one with this name."""
        self.folder = Path(folder)
        self.durability = durability
        self._segment_bytes = segment
        self._pool = threading.local()
        self._firsts = segments(self.folder)
        self._writer: sqlite3.Connection | None = None
        self._broken: str | None = None
        if self._firsts:
            self._open_last()
        else:
            self.epoch, self.first, self.last, self.chain = epoch or new_epoch(), 1, 0, START
            self._begin_segment()

    # ---- writing

    def append(self, drafts: Sequence[Draft]) -> list[Unit]:
        """Write units in one transaction; they are durable when this returns."""
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
        rows = [(u.last, u.first, u.length, u.kind, u.at, u.body, u.chain) for u in added]
        try:
            self._insert(rows)
        except sqlite3.OperationalError as error:
            if _is_full(error):
                raise LogFullError(
                    f"{self.folder}: the disk is full; nothing was accepted\n"
                    "  to do: free some space, or keep less (--keep-bytes, --keep-days)"
                ) from None
            # What a failed sync left on the disk isn't known: going on could lose what is
            # acknowledged later. So this log takes nothing more.
            self._broken = (
                f"{self.folder}: writing failed ({error}); nothing more is accepted\n"
                "  to do: look at the disk, then start the server again"
            )
            raise LogError(self._broken) from None
        self.chain, self.last = chain, last
        self._written += sum(len(unit.body) for unit in added)
        return added

    def _insert(self, rows: list[tuple[Any, ...]]) -> None:
        """Write rows in one transaction.

        Every step of a statement lets other threads run, and getting back from a busy one takes
        milliseconds. So a group is one statement, and a transaction by itself, if it isn't huge.
        """
        assert self._writer is not None
        if len(rows) <= _ROWS:
            self._writer.execute(_insertion(len(rows)), list(chain_of(*rows)))
            return
        self._writer.execute("BEGIN IMMEDIATE")
        try:
            for begin in range(0, len(rows), _ROWS):
                some = rows[begin : begin + _ROWS]
                self._writer.execute(_insertion(len(some)), list(chain_of(*some)))
            self._writer.execute("COMMIT")
        except BaseException:
            if self._writer.in_transaction:
                self._writer.execute("ROLLBACK")
            raise

    def sync(self) -> None:
        """Wait until all that was written is on the disk: for the durability `interval`."""
        path = self._path(self._firsts[-1])
        for name in (path, path.with_name(path.name + "-wal")):
            if name.exists():
                with name.open("rb") as file:
                    os.fsync(file.fileno())

    def _begin_segment(self) -> None:
        """Begin a file for the units to come."""
        first = self.last + 1
        path = self._path(first)
        # Made under another name: a segment is there with its head, or not at all.
        partial = path.with_name(f".{path.name}.partial")
        for leftover in self.folder.glob(f"{partial.name}*"):
            leftover.unlink()
        try:
            made = sqlite3.connect(partial)
            made.executescript(_SCHEMA)
            with made:
                write_head(made, self.epoch, first, self.chain)
            made.close()
            with partial.open("rb") as file:
                os.fsync(file.fileno())
            partial.replace(path)
            sync_folder(self.folder)
        except (sqlite3.OperationalError, OSError) as error:
            partial.unlink(missing_ok=True)
            raise LogFullError(f"{self.folder}: can't begin a segment: {error}") from None
        self._close_writer()
        self._writer, self._written = self._connect_writer(path), 0
        self._firsts = [*self._firsts, first]

    def _open_last(self) -> None:
        path = self._path(self._firsts[-1])
        with _reading(path) as reader:
            self.epoch, first, self.chain = _head(path, reader)
            row = reader.execute(
                "SELECT last, chain, (SELECT sum(length(body)) FROM units) FROM units "
                "ORDER BY last DESC LIMIT 1"
            ).fetchone()
        self.last, self._written = first - 1, 0
        if row is not None:
            self.last, self.chain, self._written = row
        self.first = self._firsts[0]
        self._writer = self._connect_writer(path)

    def _connect_writer(self, path: Path) -> sqlite3.Connection:
        writer = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        writer.execute("PRAGMA journal_mode = WAL")
        writer.execute(f"PRAGMA synchronous = {DURABILITIES[self.durability]}")
        return writer

    # ---- reading

    def read(self, after: int, most_bytes: int) -> list[Unit]:
        """Return the units after a seq, of one segment."""
        firsts = self._firsts
        for place in range(len(firsts) - 1, -1, -1):
            if firsts[place] <= after + 1 or place == 0:
                break
        while place < len(firsts):
            found: list[Unit] = []
            size = 0
            try:
                reader = self._reader(firsts[place])
                rows = reader.execute(
                    f"SELECT {_COLUMNS} FROM units WHERE last > ? ORDER BY last", (after,)
                )
                for row in rows:
                    if found and size + len(row[4]) > most_bytes:
                        break
                    found.append(Unit(*row))
                    size += len(row[4])
                rows.close()
            except sqlite3.OperationalError:
                if self._path(firsts[place]).exists():
                    raise
                # retention has deleted it meanwhile
            if found:
                return found
            place += 1
        return []

    def _reader(self, first: int) -> sqlite3.Connection:
        """Return this thread's connection to a segment."""
        held: dict[int, sqlite3.Connection] = self._pool.__dict__.setdefault("held", {})
        for old in [one for one in held if one != first]:
            held.pop(old).close()
        if first not in held:
            held[first] = sqlite3.connect(
                f"file:{self._path(first)}?mode=ro", uri=True, isolation_level=None
            )
        return held[first]

    def drop(self, upto: int) -> None:
        """Delete the segments that lie wholly at or before a seq."""
        while len(self._firsts) > 1 and self._firsts[1] <= upto + 1:
            gone = self._path(self._firsts[0])
            self._firsts = self._firsts[1:]
            self.first = self._firsts[0]
            for name in (gone, *(gone.with_name(gone.name + end) for end in ("-wal", "-shm"))):
                name.unlink(missing_ok=True)

    @property
    def bytes(self) -> int:
        """What the segments take on the disk."""
        return sum(one.stat().st_size for one in self.folder.glob("log-*.db*"))

    def segment_sizes(self) -> list[tuple[int, int, float]]:
        """Return of each segment but the last: its last seq, its bytes, when it was last written,
        in microseconds since 1970.
        """
        found = []
        for first, after in pairwise(self._firsts):
            stat = self._path(first).stat()
            found.append((after - 1, stat.st_size, stat.st_mtime * 1e6))
        return found

    def close(self) -> None:
        """Close the files."""
        self._close_writer()
        for reader in self._pool.__dict__.get("held", {}).values():
            reader.close()

    def _close_writer(self) -> None:
        """End a segment: its file has everything then, also while others still read it."""
        if self._writer is not None:
            with contextlib.suppress(sqlite3.Error):  # a full disk: it stays as it is
                self._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            self._writer.close()

    def _path(self, first: int) -> Path:
        return self.folder / f"log-{first:020}.db"


def segments(folder: Path) -> list[int]:
    """Return the first seq of each segment of a folder, ascending."""
    found = (_NAME.fullmatch(one.name) for one in folder.iterdir())
    return sorted(int(match[1]) for match in found if match)


def checked_units(folder: Path) -> Iterator[Unit]:
    """Yield all units of a log; raise a `LogError` that names the place of the first damage."""
    chain: bytes | None = None
    expected = 0
    for first in segments(folder):
        path = folder / f"log-{first:020}.db"
        with _reading(path) as reader:
            _, head_first, before = _head(path, reader)
            if (chain is not None and before != chain) or head_first != first:
                raise LogError(f"{path}: doesn't follow the segment before it")
            if expected and first != expected:
                raise LogError(f"{path}: begins at seq {first}, expected {expected}")
            chain, expected = before, first
            try:
                for row in reader.execute(f"SELECT {_COLUMNS} FROM units ORDER BY last"):
                    unit = Unit(*row)
                    if not _is_sound(unit, expected, chain):
                        raise LogError(
                            f"{path}: the unit at seq {expected} is damaged or missing\n"
                            "  to do: restore a backup, or cut the log there with "
                            f"`rangecast log repair {folder}`"
                        )
                    chain, expected = unit.chain, unit.last + 1
                    yield unit
            except (sqlite3.DatabaseError, UnicodeDecodeError, OverflowError) as error:
                raise LogError(f"{path}: damaged near seq {expected}: {error}") from None


def _is_sound(unit: Unit, expected: int, chain: bytes) -> bool:
    kinds = [type(one) for one in unit]
    if kinds != [int, int, str, int, bytes, bytes] or unit.length < 1:
        return False
    return unit.first == expected and is_chained(chain, unit)


@contextmanager
def _reading(path: Path) -> Iterator[sqlite3.Connection]:
    reader = sqlite3.connect(f"file:{path}?mode=rw", uri=True)
    try:
        yield reader
    except (sqlite3.DatabaseError, UnicodeDecodeError, OverflowError) as error:
        raise LogError(
            f"{path}: is not a segment of a log, or is damaged: {error}\n"
            "  to do: restore a backup; `rangecast log check` says how far the log is whole"
        ) from None
    finally:
        reader.close()


def write_head(segment: sqlite3.Connection, epoch: str, first: int, chain: bytes) -> None:
    """Say what a segment is a part of."""
    segment.execute("DELETE FROM head")
    head = (epoch, VERSION, first, chain)
    segment.execute("INSERT INTO head VALUES (?, ?, ?, ?, ?)", (*head, _mark(*head)))


def _mark(epoch: str, version: int, first: int, chain: bytes) -> bytes:
    """Return the checksum of a head."""
    return hashlib.blake2b(repr((epoch, version, first, chain)).encode(), digest_size=16).digest()


def _head(path: Path, reader: sqlite3.Connection) -> tuple[str, int, bytes]:
    row = reader.execute("SELECT epoch, version, first, chain, mark FROM head").fetchone()
    if row is None:
        raise LogError(f"{path}: has no head: it isn't a segment of a log")
    epoch, version, first, chain, mark = row
    if version != VERSION:
        raise LogError(
            f"{path}: has format version {version}, this rangecast reads version {VERSION}\n"
            "  to do: use the version that wrote it, or restore a backup"
        )
    if mark != _mark(epoch, version, first, chain):
        raise LogError(f"{path}: its head is damaged\n  to do: restore a backup")
    return epoch, first, chain


@cache
def _insertion(count: int) -> str:
    return f"INSERT INTO units VALUES {', '.join(['(?, ?, ?, ?, ?, ?, ?)'] * count)}"


def _is_full(error: sqlite3.OperationalError) -> bool:
    return "full" in str(error)
