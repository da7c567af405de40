"""Segment of a log: a SQLite file with a head and units; reading and verification.

Every unit is covered by two checksums: its own, verified whenever it is read, and that of the log,
which includes the previous unit and is verified at start-up and by `rangecast log check`.

Reading never changes a segment or its write-ahead file: damaged data stays as it was found.
"""

from __future__ import annotations

import hashlib
import os
import re
import sqlite3
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from zlib import crc32

from rangecast.server.log.acknowledged import NAME, End, marked_end
from rangecast.server.log.base import LogError, Unit, is_chained

VERSION = 1
"""Format version of a segment."""
SCHEMA = """
CREATE TABLE head (epoch TEXT, version INTEGER, first INTEGER, chain BLOB, mark BLOB);
CREATE TABLE units (
    last INTEGER PRIMARY KEY, first INTEGER, count INTEGER, kind TEXT, at INTEGER, body BLOB,
    chain BLOB, crc INTEGER
);
"""
_COLUMNS = "first, count, kind, at, body, chain"
UNREADABLE = (sqlite3.Error, UnicodeDecodeError, OverflowError)
"""Errors that reading a damaged file may raise."""
_NAME = re.compile(r"log-(\d{20})\.db")
_KINDS = [int, int, str, int, bytes, bytes]
_REPAIR = "restore a backup, or cut the log there with `rangecast log repair {} --force`"


class Head:
    """Head of a segment: its format, epoch and log position."""

    def __init__(self, path: Path, reader: sqlite3.Connection):
        row = reader.execute("SELECT epoch, version, first, chain, mark FROM head").fetchone()
        if row is None:
            raise LogError(f"{path}: has no header: it isn't a log segment")
        self.epoch: str
        self.version: int
        self.first: int
        self.chain: bytes
        self.epoch, self.version, self.first, self.chain, mark = row
        if isinstance(self.version, int) and self.version != VERSION:
            raise LogError(
                f"{path}: has format version {self.version}; this version of rangecast reads "
                f"{VERSION}\n"
                "  hint: use the version that wrote it, or restore a backup"
            )
        if mark != _digest(*row[:4]) or path != path_of(path.parent, self.first):
            raise LogError(f"{path}: its header is damaged\n  hint: restore a backup")


def write_head(segment: sqlite3.Connection, epoch: str, first: int, chain: bytes) -> None:
    """Write the head of a segment."""
    segment.execute("DELETE FROM head")
    head = (epoch, VERSION, first, chain)
    segment.execute("INSERT INTO head VALUES (?, ?, ?, ?, ?)", (*head, _digest(*head)))


def _digest(epoch: str, version: int, first: int, chain: bytes) -> bytes:
    return hashlib.blake2b(repr((epoch, version, first, chain)).encode(), digest_size=16).digest()


def path_of(folder: Path, first: int) -> Path:
    """Return the file of the segment that starts at a seq."""
    return folder / f"log-{first:020}.db"


def wal_of(path: Path) -> Path:
    """Return the write-ahead file of a segment."""
    return path.with_name(path.name + "-wal")


def segments(folder: Path) -> list[int]:
    """Return the first seq of each segment of a folder, ascending."""
    names = (_NAME.fullmatch(path.name) for path in folder.iterdir())
    return sorted(int(match[1]) for match in names if match)


def read_only(path: Path, *, at_rest: bool = False) -> str:
    """Return the SQLite URI of a segment for a read-only connection.

    `at_rest`: nothing writes to it in the meantime. Then a file without a write-ahead file is
    opened as immutable, even where SQLite can't create its working files.
    """
    wal, address = wal_of(path), f"{path.absolute().as_uri()}?mode=ro"
    if at_rest and not (wal.exists() and wal.stat().st_size):
        address += "&immutable=1"
    return address


@contextmanager
def reading(path: Path) -> Iterator[sqlite3.Connection]:
    """Open a segment for reading; convert failures to `LogError`."""
    reader: sqlite3.Connection | None = None
    try:
        reader = sqlite3.connect(read_only(path, at_rest=True), uri=True)
        yield reader
    except UNREADABLE as error:
        raise LogError(unreadable(path, error)) from None
    finally:
        if reader is not None:
            reader.close()


def unreadable(path: Path, error: BaseException) -> str:
    """Return the message for an unreadable segment, with the cause."""
    if not os.access(path, os.R_OK):
        return f"{path}: can't be read by this user\n  hint: check its owner and mode"
    if isinstance(error, sqlite3.OperationalError) and "unable to open" in str(error):
        return (
            f"{path}: can't be opened: {error}\n"
            "  hint: check the permissions of the folder and the free disk space"
        )
    return (
        f"{path}: is not a log segment, or is damaged: {error}\n"
        "  hint: restore a backup; `rangecast log check` shows how far the log is intact"
    )


def insertion(count: int) -> str:
    """Return the SQL statement that inserts `count` units, with the columns of `row_of`."""
    return f"INSERT INTO units VALUES {', '.join(['(?, ?, ?, ?, ?, ?, ?, ?)'] * count)}"


def row_of(unit: Unit) -> tuple[Any, ...]:
    """Return a unit as a row of a segment."""
    return (unit.last, *unit, _crc(unit))


def _crc(unit: Unit) -> int:
    first, length, kind, at, body, chain = unit
    return crc32(body, crc32(b"%d %d %d " % (first, length, at) + kind.encode() + chain))


def units_after(
    path: Path, head: Head, reader: sqlite3.Connection, after: int, *, is_all: bool = False
) -> Generator[Unit, None, None]:
    """Yield the units after a seq; raise a `LogError` at the first damaged one.

    `is_all`: also verify the checksum of the log.
    """
    last, before = head.first - 1, head.chain
    if is_all and after >= head.first:
        row = reader.execute(
            "SELECT last, chain FROM units WHERE last <= ? ORDER BY last DESC LIMIT 1", (after,)
        ).fetchone()
        last, before = row or (last, before)
    rows = reader.execute(
        f"SELECT {_COLUMNS}, crc FROM units WHERE last > ? ORDER BY last", (after,)
    )
    expected, is_first = max(after + 1, head.first), not is_all
    if is_all:
        expected = last + 1
    try:
        for row in rows:
            unit = Unit(*row[:6])
            try:
                is_sound = unit.first <= expected if is_first else unit.first == expected
                is_sound = is_sound and _crc(unit) == row[6]
                if is_all:
                    is_sound = is_sound and is_chained(before, unit) and is_typed(unit)
            except (TypeError, AttributeError, OverflowError):
                is_sound = False
            if not is_sound:
                raise damaged(path, expected)
            yield unit
            expected, before, is_first = unit.last + 1, unit.chain, False
    finally:
        rows.close()


def is_typed(unit: Unit) -> bool:
    """Return whether the fields of a unit have valid types."""
    return [type(column) for column in unit] == _KINDS and unit.length > 0


def damaged(path: Path, seq: int) -> LogError:
    """Return the error for a damaged unit."""
    hint = _REPAIR.format(path.parent)
    return LogError(f"{path}: the unit at seq {seq} is damaged or missing\n  hint: {hint}")


def segment_end(path: Path) -> tuple[Head, End]:
    """Return the head of a segment, and its end; without units, the previous segment's."""
    with reading(path) as reader:
        head = Head(path, reader)
        row = reader.execute("SELECT last, chain FROM units ORDER BY last DESC LIMIT 1").fetchone()
    if row is None:
        return head, End(head.epoch, head.first - 1, head.chain)
    if [type(value) for value in row] != [int, bytes]:
        raise damaged(path, head.first)
    return head, End(head.epoch, *row)


def last_written(path: Path) -> float:
    """Return the time of the last unit of a segment, in microseconds since 1970."""
    try:
        with reading(path) as reader:
            row = reader.execute("SELECT at FROM units ORDER BY last DESC LIMIT 1").fetchone()
        if row is not None and isinstance(row[0], int):
            return float(row[0])
    except LogError:
        pass  # it is met when it is read
    return path.stat().st_mtime * 1e6


def checked_end(folder: Path, firsts: list[int]) -> End:
    """Return the end of a log, whose segments must follow each other and reach the mark.

    This reads only the ends of segments; `checked_units` reads everything.
    """
    mark, end = marked_end(folder), None
    for first in firsts:
        path = path_of(folder, first)
        head, after = segment_end(path)
        if end is not None:
            _check_follows(path, head, end)
        end = after
    assert end is not None
    _check_mark(folder, mark, head, end)
    if mark is not None and firsts[0] <= mark.last < end.last:
        path = path_of(folder, max(first for first in firsts if first <= mark.last))
        with reading(path) as reader:
            row = reader.execute("SELECT chain FROM units WHERE last = ?", (mark.last,)).fetchone()
        if row != (mark.chain,):
            raise damaged(path, mark.last)
    return end


def _check_follows(path: Path, head: Head, before: End) -> None:
    if head.first != before.last + 1:
        raise LogError(
            f"{path}: starts at seq {head.first}, expected {before.last + 1}: the part in between "
            f"is damaged or missing\n  hint: {_REPAIR.format(path.parent)}"
        )
    if (head.epoch, head.chain) != (before.epoch, before.chain):
        raise LogError(
            f"{path}: doesn't continue the previous segment\n  hint: {_REPAIR.format(path.parent)}"
        )


def _check_mark(folder: Path, mark: End | None, head: Head, end: End) -> None:
    """Reject a log that ends before its end mark, or whose mark is missing."""
    path = folder / NAME
    begin_anew = f"or start a new epoch with `rangecast log repair {folder} --force`"
    if mark is None:
        raise LogError(
            f"{path}: is damaged or missing: it is unknown whether the log contains everything "
            f"acknowledged; it ends at seq {end.last}\n"
            f"  hint: restore it together with the other files, {begin_anew}"
        )
    if mark.epoch != end.epoch:
        raise LogError(
            f"{path}: is of epoch {mark.epoch}, but the log is of epoch {end.epoch}\n"
            f"  hint: restore both from the same backup, {begin_anew}"
        )
    if mark.last > end.last or (mark.last == end.last and mark.chain != end.chain):
        where, seq = wal_of(path_of(folder, head.first)), min(end.last + 1, mark.last)
        raise LogError(
            f"{where}: the unit at seq {seq} is damaged or missing: the log ends at seq "
            f"{end.last}, but was acknowledged up to {mark.last}\n"
            f"  hint: {_REPAIR.format(folder)}"
        )


def checked_units(folder: Path) -> Iterator[Unit]:
    """Yield all units of a log; raise a `LogError` that locates the first damage."""
    mark, end = marked_end(folder), None
    for first in segments(folder):
        path = path_of(folder, first)
        with reading(path) as reader:
            head = Head(path, reader)
            if end is not None:
                _check_follows(path, head, end)
            end = End(head.epoch, first - 1, head.chain)
            try:
                for unit in units_after(path, head, reader, first - 1, is_all=True):
                    end = End(head.epoch, unit.last, unit.chain)
                    yield unit
            except UNREADABLE as error:
                raise LogError(f"{path}: damaged near seq {end.last + 1}: {error}") from None
    if end is not None:
        _check_mark(folder, mark, head, end)
