"""Versions of a set of subscriptions, and the version that each batch of a stream was matched with.

    000001/                     a whole set, a snapshot (`model.snapshot`) that never changes
        origin.json             the files of edits that went into this version and those before
        rejected.jsonl          edits that could not be applied, each with its reason
        committed.json          when it was committed; never before the version it follows
    000002/                     or what edits changed, as a layer over others (`layers`)
        over.json               the base version, and the layers in between, the oldest first
    parts/000001/               a pruned version that later versions are layered over
    pins/<stream>/000000012.json    batch 12 of that stream is answered with this version
    file.json                   the manifest of the set that `commit_file` committed last
    unseen/                     versions that are being written or deleted
    lock                        held while a version is committed, pinned or pruned

Edits of a large set make a small version: a layer over the one before. It takes in earlier layers
that are at most twice its size, so there are few layers, and an edit is rewritten only a few times
over the years. When the layers are an eighth of the set, the next version is a whole one.

A version is written in `unseen` and renamed into place when it is complete; any program may add
one, as `Engine.save` does. A pin is on disk before its batch is matched: a batch that is repeated
after a crash finds its pin and gives the same answer, whatever was committed in the meantime.
`prune` keeps pinned versions. A stream's pins are released `REPLAYABLE` batches later: Spark
repeats the last batch, and an earlier one only if a power failure destroyed its newest files.

The folder is on a file system with rename and locks: local, or NFS 4 for several hosts.
"""

from __future__ import annotations

import fcntl
import json
import shutil
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rangecast.errors import SnapshotError, UsageError
from rangecast.model.attributes.timestamps import EPOCH, MICROSECOND
from rangecast.model.boxes import Boxes
from rangecast.model.io.atomic import write_whole
from rangecast.model.io.durable import sync_folder, write_bytes
from rangecast.model.snapshot import MANIFEST, load_boxes, save_boxes
from rangecast.model.space import Space
from rangecast.store.layers import Layer, LayeredSet, edits_of, with_words

REPLAYABLE = 10
_ORIGIN = "origin.json"
_REJECTED = "rejected.jsonl"
_COMMITTED = "committed.json"
_PINS = "pins"
_FROM_FILE = "file.json"
_UNSEEN = "unseen"
_OVER = "over.json"
_PARTS = "parts"
_MERGE_FACTOR = 2
"""Size factor up to which a new layer absorbs earlier layers."""
_SHARE, FEW = 8, 1000
"""Layers that change more than one in `_SHARE` of the set, and more than `FEW`, end: the next
version is whole.
"""


class Versions:
    """A folder of versions, counted from 1.

    few   number of edits that never justifies a whole version
    """

    def __init__(self, folder: str | Path, *, few: int = FEW):
        self.folder = Path(folder)
        self._max_layer_edits = few
        self._checked: set[int] = set()
        """Whole versions whose bytes were all verified before."""
        self._thread = threading.RLock()
        self._holds = False

    def all(self) -> list[int]:
        """Return the numbers of all versions, ascending."""
        if not self.folder.is_dir():
            return []
        return sorted(int(p.name) for p in self.folder.iterdir() if p.name.isdecimal())

    def latest(self) -> int:
        """Return the number of the newest version."""
        numbers = self.all()
        if not numbers:
            raise SnapshotError(f"{self.folder}: contains no version yet; commit one first")
        return numbers[-1]

    def path(self, version: int) -> Path:
        """Return the snapshot folder of a version."""
        path = self.folder / f"{version:06}"
        if not path.is_dir():
            raise SnapshotError(f"{self.folder}: has no version {version}; it has {self.all()}")
        return path

    def load(self, version: int) -> tuple[Boxes, Space]:
        """Return the subscriptions and the space of a version; a whole version is memory-mapped."""
        layered = self.layered(version)
        return layered.whole()[0], layered.space

    def layered(self, version: int) -> LayeredSet:
        """Memory-map a version: its base, and its layers."""
        self.path(version)
        with self._locked():  # meanwhile no part of it moves
            base, layers = self.parts(version)
            boxes, space = load_boxes(self._part(base), verify=base not in self._checked)
            self._checked.add(base)
            mapped = [Layer.load(self._part(layer)) for layer in layers]
        return LayeredSet(boxes, mapped, with_words(space, mapped))

    def parts(self, version: int) -> tuple[int, list[int]]:
        """Return the full version that a version is based on, and the layers up to it, included."""
        over = self._part(version) / _OVER
        if not over.exists():
            return version, []
        layout = json.loads(over.read_bytes())
        return layout["base"], [*layout["layers"], version]

    def edit_files(self, version: int) -> list[str]:
        """Return the names of the edit files that went into a version."""
        base, layers = self.parts(version)
        origin = self._part(base) / _ORIGIN
        names: list[str] = json.loads(origin.read_bytes())["edits"] if origin.exists() else []
        return [*names, *(name for layer in layers for name in edits_of(self._part(layer)))]

    def _part(self, version: int) -> Path:
        """Return the folder of a version, or of a pruned one that others are layered over."""
        path = self.folder / f"{version:06}"
        return path if path.is_dir() else self.folder / _PARTS / path.name

    def rejected(self, version: int) -> list[dict[str, Any]]:
        """Return the edits rejected up to a version."""
        rejected = self.path(version) / _REJECTED
        lines = rejected.read_bytes().splitlines() if rejected.exists() else []
        return [json.loads(line) for line in lines]

    def committed_at(self, version: int) -> datetime:
        """Return when a version was committed, in UTC."""
        committed = self.path(version) / _COMMITTED
        if not committed.exists():
            raise SnapshotError(
                f"{committed.parent}: has no time of its commit, as it wasn't committed but saved\n"
                "  hint: give the number of a version"
            )
        micros: int = json.loads(committed.read_bytes())["micros"]
        return EPOCH + micros * MICROSECOND

    def at(self, moment: datetime) -> int:
        """Return the number of the version that was the newest at a moment; naive ones are UTC."""
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        with self._locked():
            numbers = self.all()
            times = [self.committed_at(version) for version in numbers]
        before = [version for version, at in zip(numbers, times, strict=True) if at <= moment]
        if not before:
            oldest = f"; version {numbers[0]} is of {_shown(times[0])}" if numbers else ""
            raise SnapshotError(f"{self.folder}: has no version of {_shown(moment)}{oldest}")
        version = before[-1]
        following = numbers[len(before)] if version != numbers[-1] else version + 1
        if following > version + 1 and times[len(before) - 1] < moment:
            raise SnapshotError(
                f"{self.folder}: the version of {_shown(moment)} may have been pruned: between "
                f"{version} and {following} some are missing\n"
                "  hint: give the number of a version"
            )
        return version

    def commit(
        self,
        boxes: Boxes,
        space: Space,
        *,
        edits: Sequence[str] = (),
        rejected: Sequence[Mapping[str, Any]] = (),
        after: int | None = None,
    ) -> int | None:
        """Add a version and return its number; a set equal to the newest version isn't added again.

        `edits` are the files that led from the version before to this one. With `after`, nothing
        is committed and `None` returned if `after` is no longer the newest version (0: none).
        """
        with self._locked():
            newest = max(self.all(), default=0)
            if after is not None and after != newest:
                return None
            return self._add(self._stage(boxes, space), edits, rejected)

    def commit_layer(
        self, layer: Layer, *, after: int, rejected: Sequence[Mapping[str, Any]] = ()
    ) -> int | None:
        """Commit a layer on top of the newest version; return the number of the new version.

        `None`: nothing is committed, because `after` is no longer the newest version, or because
        the layers have grown enough that a whole version must be written.
        """
        with self._locked():
            if after != max(self.all(), default=0):
                return None
            layered = self.layered(after)
            size = layer.size + sum(part.size for part in layered.layers)
            if size > max(self._max_layer_edits, layered.base.rows // _SHARE):
                return None
            base, numbers = self.parts(after)
            while numbers and layered.layers[len(numbers) - 1].size <= _MERGE_FACTOR * layer.size:
                layer = layer.after(layered.layers[len(numbers) - 1])
                numbers.pop()
            self._clear()
            staged = self.folder / _UNSEEN / f"{after + 1:06}"
            layer.save(staged)
            over = {"base": base, "layers": numbers}
            write_bytes(staged / _OVER, json.dumps(over).encode())
            return self._commit(staged, rejected)

    def commit_file(self, boxes: Boxes, space: Space) -> None:
        """Commit the contents of a subscription file, unless it is unchanged since the last time.

        Other versions may have been committed since: an unchanged file must not undo them.
        """
        note = self.folder / _FROM_FILE
        with self._locked():
            staged = self._stage(boxes, space)
            content = (staged / MANIFEST).read_bytes()
            if self.all() and note.exists() and note.read_bytes() == content:
                self._clear()
                return
            self._add(staged, (), ())
            write_whole(note, content)

    def _stage(self, boxes: Boxes, space: Space) -> Path:
        """Write the next version to a folder that readers don't see; return the folder."""
        self._clear()
        staged = self.folder / _UNSEEN / f"{max(self.all(), default=0) + 1:06}"
        save_boxes(staged, boxes, space)
        return staged

    def _add(
        self, staged: Path, edits: Sequence[str], rejected: Sequence[Mapping[str, Any]]
    ) -> int:
        """Commit a version unless it equals the newest one; return its number."""
        newest = max(self.all(), default=0)
        if newest and not edits and _same(staged, self.path(newest)):
            self._clear()
            return newest
        applied = [*(self.edit_files(newest) if newest else ()), *edits]
        write_bytes(staged / _ORIGIN, json.dumps({"edits": applied}).encode())
        return self._commit(staged, rejected)

    def _commit(self, staged: Path, rejected: Sequence[Mapping[str, Any]]) -> int:
        """Commit a version; return its number."""
        lines = [json.dumps(rejection, ensure_ascii=False) + "\n" for rejection in rejected]
        write_bytes(staged / _REJECTED, "".join(lines).encode())
        micros = max([time.time_ns() // 1000, *map(self._commit_micros, self.all()[-1:])])
        write_bytes(staged / _COMMITTED, json.dumps({"micros": micros}).encode())
        sync_folder(staged)
        staged.rename(self.folder / staged.name)
        sync_folder(self.folder)
        return int(staged.name)

    def _commit_micros(self, version: int) -> int:
        """Return when a version was committed, in microseconds since 1970; 0: it was saved."""
        if not (self.path(version) / _COMMITTED).exists():
            return 0
        return (self.committed_at(version) - EPOCH) // MICROSECOND

    def pin(self, stream: str, batch: int) -> int:
        """Return the version of a batch: the one it is pinned to, else the newest."""
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
            needed = {
                part
                for version in self.all()
                if version not in gone
                for part in (self.parts(version)[0], *self.parts(version)[1])
            }
            self._clear()
            for version in gone:
                self._move(self.path(version), _PARTS if version in needed else _UNSEEN)
            for part in (self.folder / _PARTS).glob("*"):
                if int(part.name) not in needed:
                    self._move(part, _UNSEEN)
            self._clear()
            return gone

    def _move(self, part: Path, name: str) -> None:
        """Move a version by one rename: readers never see it half deleted."""
        (self.folder / name).mkdir(exist_ok=True)
        part.rename(self.folder / name / part.name)

    def _clear(self) -> None:
        """Remove files that readers can't see, such as those left by a crashed process."""
        shutil.rmtree(self.folder / _UNSEEN, ignore_errors=True)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Exclude other processes and threads; a dead process releases its lock."""
        with self._thread:
            if self._holds:
                yield
                return
            self.folder.mkdir(parents=True, exist_ok=True)
            with (self.folder / "lock").open("a") as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                self._holds = True
                try:
                    yield
                finally:
                    self._holds = False


def has_versions(path: str | Path) -> bool:
    """Return whether a path is a folder of versions."""
    return not (Path(path) / MANIFEST).exists() and bool(Versions(path).all())


def is_set(path: str | Path) -> bool:
    """Return whether `load_set` can read a path: a snapshot, or a folder of versions."""
    return (Path(path) / MANIFEST).exists() or has_versions(path)


def load_set(path: str | Path) -> tuple[Boxes, Space]:
    """Return the subscriptions of a snapshot, or of the newest version of a folder."""
    folder = Path(path)
    if has_versions(folder):
        return Versions(folder).load(Versions(folder).latest())
    if (folder / _OVER).exists():
        return Versions(folder.parent).load(int(folder.name))
    return load_boxes(folder)


def _shown(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")


def _same(path: Path, other: Path) -> bool:
    """Return whether two snapshots are equal, by the digests in their manifests."""
    return (path / MANIFEST).read_bytes() == (other / MANIFEST).read_bytes()


def _pinned_version(pin: Path) -> int:
    version: int = json.loads(pin.read_bytes())["version"]
    return version
