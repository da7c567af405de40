"""Ship an object made of arrays to the Python workers: built once, memory-mapped by all.

The object is pickled with its arrays apart, and both are written as a snapshot folder
(`model.snapshot`) named after its content, all arrays in one file. A worker maps it read-only, so
that all workers of a host share the same pages of memory, and lets go of the pages of objects that
it has no room for. On a local master the workers map the folder that the
driver wrote. On a cluster the folder travels as one archive in a broadcast of Spark, from host to
host; on Spark Connect as an artifact of the session. The first worker of a host that lacks it
unpacks it under a lock, checks every byte, and renames it into place. Nothing of it stays on the
driver or in Spark once it is released; an artifact stays for as long as its session.

    <own folder>/drivers/<number>/   of a driver, for as long as it lives: lock, snapshots
    <own folder>/snapshots/          unpacked or built on a host of a cluster; what was not opened
                                     for an hour goes, and is unpacked again should it be needed
"""

from __future__ import annotations

import atexit
import fcntl
import hashlib
import io
import os
import pickle
import shutil
import tarfile
import tempfile
import time
from collections import Counter, OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from threading import RLock
from typing import IO, Any, NamedTuple
from uuid import uuid4
from weakref import WeakKeyDictionary

import numpy as np
from pyspark import Broadcast, SparkFiles
from pyspark.sql import SparkSession

from rangecast.model.snapshot import MANIFEST, drop_pages, load_arrays, save_arrays
from rangecast.spark.cache_folder import own_folder
from rangecast.spark.session import is_connect, is_local
from rangecast.spark.worker_errors import raise_worker_errors

_KIND = "shipped"
ROOM = 512 << 20
"""Bytes of objects that a worker keeps open, by default: it lets go of the others."""
_UNUSED_SECONDS = 3600
_BUILD = "build-"
_uses: Counter[str] = Counter()
"""Number of times that each folder was shipped."""
_shipping = RLock()
"""Held while folders are created and removed: streams of one process may ship equal objects."""
_artifacts: WeakKeyDictionary[SparkSession, set[str]] = WeakKeyDictionary()
"""Files sent to each session of Spark Connect."""
_ALIGNED = 64
"""Arrays begin at multiples of this in the file of an object."""
_MAX_PAGED_OUT = 64


class _Mapped(NamedTuple):
    """Object that a worker has mapped; its arrays are parts of one file."""

    thing: Any
    size: int
    data: np.ndarray[Any, Any]
    place: Path


_open: OrderedDict[str, _Mapped] = OrderedDict()
_paged_out: OrderedDict[str, _Mapped] = OrderedDict()
"""Objects without a page in memory: to use one again takes no opening of files."""


@dataclass(frozen=True)
class Artifact:
    """Archive that a Spark Connect session copies to each host; it lives as long as the session."""

    name: str

    @property
    def value(self) -> bytes:
        """Bytes of the archive, in a worker."""
        return Path(SparkFiles.get(self.name)).read_bytes()

    def destroy(self) -> None:
        """Do nothing: a session can't remove an artifact."""


@dataclass(frozen=True)
class ShippedObject:
    """Handle that a task carries instead of the object: its name and its location."""

    digest: str
    folder: str | None
    """On the driver's host; `None`: it was built by a worker elsewhere."""
    archive: Broadcast[bytes] | Artifact | None
    """File that Spark copies to each host; `None`: the workers are on the driver's host."""
    size: int
    """Bytes that it takes when it is mapped."""

    def open(self, room: int = ROOM) -> Any:
        """Map the object into a worker's memory; keep at most `room` bytes open."""
        if self.digest in _open:
            _open.move_to_end(self.digest)
            return _open[self.digest].thing
        while _open and self.size + sum(mapped.size for mapped in _open.values()) > room:
            _page_out(*_open.popitem(last=False))
        mapped = _paged_out.pop(self.digest, None)
        if mapped is None:
            for digest in [digest for digest, one in _paged_out.items() if not one.place.exists()]:
                del _paged_out[digest]  # released; its file takes room on the disk until now
            mapped = _mapped(self._place(), self.size)
        _open[self.digest] = mapped
        return mapped.thing

    def open_here(self) -> Any:
        """Map the object into the driver's memory."""
        return replace(self, archive=None).open()

    def release(self) -> None:
        """Remove the object from the driver and from Spark, unless it was shipped more than once.

        Workers that have mapped it may continue; new tasks must not use it.
        """
        if self.archive is not None:
            with suppress(Exception):  # its session may have stopped, and the archive with it
                self.archive.destroy()
        if self.folder is None:
            return
        with _shipping:
            _uses[self.folder] -= 1
            if _uses[self.folder] > 0:
                return
            del _uses[self.folder]
            folder = Path(self.folder)
            shutil.rmtree(folder, ignore_errors=True)
            if folder.parent.name.startswith(_BUILD):
                with suppress(OSError):  # it has other shards
                    folder.parent.rmdir()

    def _place(self) -> Path:
        if self.archive is None:
            assert self.folder is not None
            return Path(self.folder)
        return _unpacked(self.digest, self.archive)


def ship(session: SparkSession, thing: Any) -> ShippedObject:
    """Write an object where the workers of a session can map it."""
    with _shipping:
        return ship_folder(session, save(drivers_folder(), thing))


def ship_folder(session: SparkSession, folder: Path) -> ShippedObject:
    """Make an object that was saved in the driver's folder available to the workers."""
    raise_worker_errors(session)
    with _shipping:
        _uses[str(folder)] += 1
    archive = None if is_local(session) else _sent(session, folder.name, packed(folder))
    return ShippedObject(folder.name, str(folder), archive, _size(folder))


def ship_archive(session: SparkSession, digest: str, archive: bytes) -> ShippedObject:
    """Make an object that a worker saved and packed available to all workers."""
    return ShippedObject(digest, None, _sent(session, digest, archive), len(archive))


def _sent(session: SparkSession, digest: str, archive: bytes) -> Broadcast[bytes] | Artifact:
    """Send an archive to Spark; a Spark Connect session receives each archive only once."""
    if not is_connect(session):
        return session.sparkContext.broadcast(archive)
    sent = _artifacts.setdefault(session, set())
    artifact = Artifact(f"{digest}.tar")
    if digest not in sent:
        with tempfile.TemporaryDirectory(dir=drivers_folder()) as folder:
            file = Path(folder) / artifact.name
            file.write_bytes(archive)
            session.addArtifacts(str(file), file=True)
        sent.add(digest)
    return artifact


def save(folder: Path, thing: Any) -> Path:
    """Write an object as a snapshot named after its content; return the folder."""
    arrays: list[np.ndarray[Any, Any]] = []

    def keep(buffer: pickle.PickleBuffer) -> None:
        arrays.append(np.frombuffer(buffer.raw(), np.uint8))

    state = pickle.dumps(thing, protocol=5, buffer_callback=keep)
    sizes = [len(array) for array in arrays]
    data = np.zeros(sum(_room_of(size) for size in sizes), np.uint8)
    begin = 0
    for array in arrays:
        data[begin : begin + len(array)] = array
        begin += _room_of(len(array))
    named = {"state": np.frombuffer(state, np.uint8), "data": data}
    fresh = folder / f"new-{uuid4().hex}"
    save_arrays(fresh, _KIND, named, {"sizes": sizes})
    digest = hashlib.sha256((fresh / MANIFEST).read_bytes()).hexdigest()[:32]
    target = folder / digest
    try:
        fresh.rename(target)
    except OSError:
        shutil.rmtree(fresh)
        if not target.exists():  # else another process, or the same task before, has saved it
            raise
    return target


def packed(folder: Path) -> bytes:
    """Return the archive of a snapshot."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as archive:
        archive.add(folder, arcname=folder.name)
    return data.getvalue()


def hosts_folder() -> Path:
    """Return the snapshot folder of a cluster host."""
    folder = own_folder() / "snapshots"
    folder.mkdir(exist_ok=True)
    return folder


def _room_of(size: int) -> int:
    """Return the bytes that an array takes in the file of an object."""
    return -(-size // _ALIGNED) * _ALIGNED


def _mapped(folder: Path, size: int) -> _Mapped:
    arrays, meta = load_arrays(folder, _KIND, verify=False)
    data, begin, buffers = arrays["data"], 0, []
    for length in meta["sizes"]:
        buffers.append(data[begin : begin + length])
        begin += _room_of(length)
    thing = pickle.loads(arrays["state"].tobytes(), buffers=buffers)
    return _Mapped(thing, size, data, folder)


def _page_out(digest: str, mapped: _Mapped) -> None:
    """Let go of the pages of an object; it stays mapped, and a task may go on using it."""
    drop_pages(mapped.data)
    _paged_out[digest] = mapped
    while len(_paged_out) > _MAX_PAGED_OUT:
        _paged_out.popitem(last=False)


def _size(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.iterdir())


def _unpacked(digest: str, archive: Broadcast[bytes] | Artifact) -> Path:
    """Return the folder of a snapshot on a cluster host; the first worker unpacks it."""
    folder = hosts_folder()
    target = folder / digest
    with _locked(folder / f"{digest}.lock"):
        if not target.exists():
            partial = folder / f"new-{uuid4().hex}"
            with tarfile.open(fileobj=io.BytesIO(archive.value)) as content:
                content.extractall(partial, filter="data")
            archive.__dict__.pop("_value", None)  # else it stays in memory beside the mapped one
            load_arrays(partial / digest, _KIND, verify=True)
            (partial / digest).rename(target)
            partial.rmdir()
        os.utime(target)
    limit = time.time() - _UNUSED_SECONDS
    for old in folder.iterdir():
        with suppress(OSError):  # another process was faster
            if old.stat().st_mtime < limit:
                _remove(old)
    return target


@cache
def drivers_folder() -> Path:
    """Return this process's own folder, and remove those of processes that died."""
    drivers = own_folder() / "drivers"
    drivers.mkdir(exist_ok=True)
    for other in drivers.iterdir():
        with suppress(OSError), (other / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _remove(other)
    mine = drivers / uuid4().hex
    mine.mkdir()
    lock = (mine / "lock").open("w")
    fcntl.flock(lock, fcntl.LOCK_EX)  # for as long as this process lives
    atexit.register(_leave, mine, lock)
    return mine


def build_folder() -> Path:
    """Create a driver folder for the shards that workers build; the last shard removes it."""
    folder = drivers_folder() / f"{_BUILD}{uuid4().hex}"
    folder.mkdir()
    return folder


def _leave(folder: Path, lock: IO[str]) -> None:
    """Remove the folder of this process, then release its lock."""
    shutil.rmtree(folder, ignore_errors=True)
    lock.close()


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _remove(path: Path) -> None:
    """Remove a file or a folder; no reader sees half of a folder."""
    if path.is_dir():
        path = path.rename(path.with_name(f"old-{uuid4().hex}"))
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink()
