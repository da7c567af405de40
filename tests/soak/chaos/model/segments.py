"""The log of a server, read from copies of its SQLite files while the server is down."""

from __future__ import annotations

import hashlib
import re
import shutil
import sqlite3
import tempfile
from pathlib import Path
from typing import NamedTuple

from tests.soak.chaos.model.findings import Findings

_NAME = re.compile(r"log-(\d{20})\.db")


class Unit(NamedTuple):
    """A row of the log: one request's events, edits, acknowledgements or updates."""

    first: int
    count: int
    kind: str
    at: int
    body: bytes
    chain: bytes

    @property
    def last(self) -> int:
        """Return its last seq."""
        return self.first + self.count - 1


class Segment(NamedTuple):
    """A file of the log."""

    epoch: str
    first: int
    chain: bytes
    """The checksum of what comes before."""
    units: list[Unit]


class LogFiles:
    """All that was ever seen of a server's log, whatever retention has deleted since."""

    def __init__(self, data: Path, archive: Path):
        self._data, self._archive = data, archive
        self._archived: dict[str, Segment] = {}
        self.epoch = ""
        self.first = 1
        """Where the oldest segment begins that is there."""
        self.units: list[Unit] = []
        """From seq 1 on, without a hole."""

    @property
    def last(self) -> int:
        """Return the last seq."""
        return self.units[-1].last if self.units else 0

    def read(self, findings: Findings) -> list[Unit]:
        """Read everything again; return the units that are new."""
        live = {one.name: one for one in _names(self._data)}
        segments = dict(self._archived)
        for path in _names(self._archive):
            if path.name not in self._archived and path.name not in live:
                self._archived[path.name] = segments[path.name] = _read(path)
        for name, path in live.items():
            segments[name] = _read(path)
        ordered = sorted(segments.values(), key=lambda one: one.first)
        chain, seq, found = bytes(16), 0, []
        for segment in ordered:
            self.epoch = self.epoch or segment.epoch
            if segment.epoch != self.epoch:
                findings.add("one-epoch", f"the log of {self.epoch} has become {segment.epoch}")
            if segment.first != seq + 1 or segment.chain != chain:
                findings.add(
                    "gapless", f"a segment begins at {segment.first}, the one before ends at {seq}"
                )
                return []
            for unit in segment.units:
                if unit.first != seq + 1 or unit.chain != _chained(chain, unit):
                    findings.add("gapless", f"the unit at {unit.first} doesn't follow {seq}")
                    return []
                if found and unit.at < found[-1].at:
                    findings.add("clock", f"the unit at {unit.first} is older than the one before")
                chain, seq = unit.chain, unit.last
                found.append(unit)
        if live:
            self.first = min(int(_NAME.fullmatch(one)[1]) for one in live)  # type: ignore[index]
        for old, new in zip(self.units, found, strict=False):
            if old != new:
                findings.add(
                    "seq-reused", f"seq {old.first} was {_shown(old)}, and is {_shown(new)} now"
                )
                return []
        if len(found) < len(self.units):
            lost = self.units[len(found)]
            findings.add("log-shrunk", f"the log went to {self.last}, and ends at {lost.first - 1}")
            return []
        fresh = found[len(self.units) :]
        self.units = found
        return fresh


def _names(folder: Path) -> list[Path]:
    return [one for one in folder.iterdir() if _NAME.fullmatch(one.name)]


def _read(path: Path) -> Segment:
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / path.name
        for end in ("", "-wal"):
            source = path.with_name(path.name + end)
            if source.exists():
                shutil.copyfile(source, copy.with_name(copy.name + end))
        database = sqlite3.connect(copy)
        try:
            epoch, first, chain = database.execute(
                "SELECT epoch, first, chain FROM head"
            ).fetchone()
            rows = database.execute(
                "SELECT first, count, kind, at, body, chain FROM units ORDER BY last"
            )
            return Segment(epoch, first, chain, [Unit(*row) for row in rows])
        finally:
            database.close()


def _chained(before: bytes, unit: Unit) -> bytes:
    digest = hashlib.blake2b(before, digest_size=16)
    head = f"{unit.first} {unit.count} {unit.kind} {unit.at} {len(unit.body)}\n"
    digest.update(head.encode() + unit.body)
    return digest.digest()


def _shown(unit: Unit) -> str:
    return f"{unit.kind} {unit.body[:200]!r}"
