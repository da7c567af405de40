"""Versions of a set of subscriptions, and which of them a batch of a stream was answered with.

    000001/                     a snapshot (`model.snapshot`), never changed once it is there
        origin.json             the files of edits that went into this version and those before
        refused.jsonl           edits that could not be applied, each with its reason
    pins/<stream>/000000012.json    batch 12 of that stream is answered with this version
    file.json                   the manifest of what `publish_file` published last
    unseen/                     versions that are being written or deleted
    lock                        held while a version is published, pinned or pruned

A version is written in `unseen` and renamed into place when it is complete; any program may add
one, as `Engine.save` does. A pin is on the disk
before its batch is matched: a batch that is run again after a crash finds its pin and gives the
same answer, whatever was published meanwhile. `prune` leaves pinned versions alone. A stream's
pins are let go `REPLAYABLE` batches later: Spark repeats the last batch, and only after a power
failure that took its newest files with it perhaps one before.

The folder is on a file system with rename and locks: local, or NFS 4 for several hosts.
"""

from __future__ import annotations

import fcntl
import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rangecast.errors import SnapshotError, UsageError
from rangecast.model.boxes import Boxes
from rangecast.model.durable import sync_folder, write_bytes, write_whole
from rangecast.model.snapshot import MANIFEST, load_boxes, save_boxes
from rangecast.model.space import Space

REPLAYABLE = 10
_ORIGIN = "origin.json"
_REFUSED = "refused.jsonl"
_PINS = "pins"
_FROM_FILE = "file.json"
_UNSEEN = "unseen"


class Versions:
    """A folder of versions, counted from 1."""

    def __init__(self, folder: str | Path):
        self.folder = Path(folder)

    def all(self) -> list[int]:
        """Return the numbers of all versions, ascending."""
        if not self.folder.is_dir():
            return []
        return sorted(int(p.name) for p in self.folder.iterdir() if p.name.isdecimal())

    def latest(self) -> int:
        """Return the number of the newest version."""
        numbers = self.all()
        if not numbers:
            raise SnapshotError(
                f"{self.folder}: holds no version of a set of subscriptions yet; publish one first"
            )
        return numbers[-1]

    def path(self, version: int) -> Path:
        """Return the snapshot folder of a version."""
        path = self.folder / f"{version:06}"
        if not path.is_dir():
            raise SnapshotError(f"{self.folder}: has no version {version}; it has {self.all()}")
        return path

    def load(self, version: int) -> tuple[Boxes, Space]:
        """Map the subscriptions of a version into memory, with its space."""
        return load_boxes(self.path(version))

    def edit_files(self, version: int) -> list[str]:
        """Return the names of the files of edits that went into a version."""
        origin = self.path(version) / _ORIGIN
        names: list[str] = json.loads(origin.read_bytes())["edits"] if origin.exists() else []
        return names

    def refused(self, version: int) -> list[dict[str, Any]]:
        """Return the edits that could not be applied on the way to a version."""
        refused = self.path(version) / _REFUSED
        lines = refused.read_bytes().splitlines() if refused.exists() else []
        return [json.loads(line) for line in lines]

    def publish(
        self,
        boxes: Boxes,
        space: Space,
        *,
        edits: Sequence[str] = (),
        refused: Sequence[Mapping[str, Any]] = (),
        after: int | None = None,
    ) -> int | None:
        """Add a version and return its number; a set equal to the newest version isn't added again.

        `edits` are the files that led from the version before to this one. With `after`, nothing
        is published and `None` returned if `after` is no longer the newest version (0: none).
        """
        with self._locked():
            newest = max(self.all(), default=0)
            if after is not None and after != newest:
                return None
            return self._add(self._unseen(boxes, space), edits, refused)

    def publish_file(self, boxes: Boxes, space: Space) -> None:
        """Add what a file of subscriptions holds, unless it is what the file held the last time.

        Others may have published since then: a file that didn't change must not undo that.
        """
        note = self.folder / _FROM_FILE
        with self._locked():
            unseen = self._unseen(boxes, space)
            content = (unseen / MANIFEST).read_bytes()
            if self.all() and note.exists() and note.read_bytes() == content:
                self._clear()
                return
            self._add(unseen, (), ())
            write_whole(note, content)

    def _unseen(self, boxes: Boxes, space: Space) -> Path:
        """Write the next version where nobody sees it, and return its folder."""
        self._clear()
        unseen = self.folder / _UNSEEN / f"{max(self.all(), default=0) + 1:06}"
        save_boxes(unseen, boxes, space)
        return unseen

    def _add(self, unseen: Path, edits: Sequence[str], refused: Sequence[Mapping[str, Any]]) -> int:
        """Put a version in place, unless it is the newest one already; return its number."""
        newest = max(self.all(), default=0)
        if newest and not edits and _same(unseen, self.path(newest)):
            self._clear()
            return newest
        applied = [*(self.edit_files(newest) if newest else ()), *edits]
        write_bytes(unseen / _ORIGIN, json.dumps({"edits": applied}).encode())
        lines = [json.dumps(one, ensure_ascii=False) + "\n" for one in refused]
        write_bytes(unseen / _REFUSED, "".join(lines).encode())
        sync_folder(unseen)
        unseen.rename(self.folder / unseen.name)
        sync_folder(self.folder)
        return newest + 1

    def pin(self, stream: str, batch: int) -> int:
        """Return the version of a batch: the one it was pinned to before, else the newest."""
        with self._locked():
            pins = self.folder / _PINS / stream
            pin = pins / f"{batch:09}.json"
            if pin.exists():
                version = _pinned_version(pin)
                self.path(version)  # it must still be there
                return version
            version = self.latest()
            if not pins.exists():
                pins.mkdir(parents=True)
                sync_folder(pins.parent)
                sync_folder(self.folder)
            write_whole(pin, json.dumps({"version": version}).encode())
            for old in pins.glob("*.json"):
                if int(old.stem) <= batch - REPLAYABLE:
                    old.unlink()
            return version

    def pinned(self) -> dict[tuple[str, int], int]:
        """Return the version of every pinned batch, by (stream, batch)."""
        pins = (self.folder / _PINS).glob("*/[0-9]*.json")
        return {(pin.parent.name, int(pin.stem)): _pinned_version(pin) for pin in pins}

    def forget(self, stream: str) -> None:
        """Remove all pins of a stream that will never run again."""
        with self._locked():
            shutil.rmtree(self.folder / _PINS / stream, ignore_errors=True)

    def prune(self, *, keep: int = 1) -> list[int]:
        """Delete all but the newest `keep` versions and those that are pinned; return which."""
        if keep < 1:
            raise UsageError(f"the newest version is always kept: keep is 1 or more, not {keep}")
        with self._locked():
            used = set(self.pinned().values())
            gone = [v for v in self.all()[:-keep] if v not in used]
            self._clear()
            for version in gone:  # so that none is ever seen half deleted
                (self.folder / _UNSEEN).mkdir(exist_ok=True)
                self.path(version).rename(self.folder / _UNSEEN / f"{version:06}")
            self._clear()
            return gone

    def _clear(self) -> None:
        """Remove what nobody can see, perhaps left by a process that crashed."""
        shutil.rmtree(self.folder / _UNSEEN, ignore_errors=True)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Keep out other processes; a lock of a process that died is free."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / "lock").open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


def _same(one: Path, other: Path) -> bool:
    """Whether two snapshots hold the same: a manifest has the digest of every array."""
    return (one / MANIFEST).read_bytes() == (other / MANIFEST).read_bytes()


def _pinned_version(pin: Path) -> int:
    version: int = json.loads(pin.read_bytes())["version"]
    return version
