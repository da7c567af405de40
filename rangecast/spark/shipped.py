"""An object made of arrays on its way to the Python workers: built once, mapped by all of them.

The object is pickled with its arrays apart, and both are written as a snapshot folder
(`model.snapshot`) named after its content. A worker maps the arrays read-only, so that all workers
of a host share the same pages of memory. On a local master the workers map the folder that the
driver wrote. On a cluster the folder travels as one archive that Spark hands to each host; the
first worker there unpacks it under a lock, checks every byte, and renames it into place.

    <own folder>/drivers/<number>/   of a driver, for as long as it lives: lock, snapshots, archives
    <own folder>/snapshots/          unpacked on a host of a cluster; what was not used for a day
                                     goes, and is unpacked again should it be needed
"""

from __future__ import annotations

import atexit
import fcntl
import hashlib
import os
import pickle
import shutil
import tarfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from pathlib import Path
from typing import IO, Any
from uuid import uuid4

import numpy as np
from pyspark import SparkFiles
from pyspark.sql import SparkSession

from rangecast.model.snapshot import MANIFEST, load_arrays, save_arrays
from rangecast.spark.cache_folder import own_folder
from rangecast.spark.session import is_local

_KIND = "shipped"
_OPEN = 4
"""Objects that a worker holds at a time; a stream goes on to new ones and lets old ones go."""
_UNUSED_SECONDS = 24 * 3600
_uses: Counter[str] = Counter()


@dataclass(frozen=True)
class ShippedObject:
    """What a task carries instead of the object: its name, and where a worker finds it."""

    digest: str
    folder: str
    """On the driver's host."""
    archive: str | None
    """The file that Spark distributes; `None`: the workers are on the driver's host."""

    def open(self) -> Any:
        """Return the object, mapped into a worker's memory."""
        return _opened(self)

    def open_here(self) -> Any:
        """Return the object, mapped into the driver's memory."""
        return _opened(replace(self, archive=None))

    def release(self) -> None:
        """Remove it from the driver's host, unless it was shipped more than once.

        Workers that map it go on; no new ones may be given it.
        """
        _uses[self.digest] -= 1
        if _uses[self.digest] <= 0:
            del _uses[self.digest]
            shutil.rmtree(self.folder, ignore_errors=True)


def ship(session: SparkSession, thing: Any) -> ShippedObject:
    """Write an object where the workers of a session can map it."""
    folder = _save(_drivers_folder(), thing)
    _uses[folder.name] += 1
    if is_local(session):
        return ShippedObject(folder.name, str(folder), None)
    archive = _packed(folder)
    session.sparkContext.addFile(str(archive))
    return ShippedObject(folder.name, str(folder), archive.name)


def _save(place: Path, thing: Any) -> Path:
    """Write an object as a snapshot named after its content; return the folder."""
    arrays: list[np.ndarray[Any, Any]] = []

    def keep(buffer: pickle.PickleBuffer) -> None:
        arrays.append(np.frombuffer(buffer.raw(), np.uint8))

    state = pickle.dumps(thing, protocol=5, buffer_callback=keep)
    named = {f"array{number}": array for number, array in enumerate(arrays)}
    named["state"] = np.frombuffer(state, np.uint8)
    fresh = place / f"new-{uuid4().hex}"
    save_arrays(fresh, _KIND, named, {"arrays": len(arrays)})
    digest = hashlib.sha256((fresh / MANIFEST).read_bytes()).hexdigest()[:32]
    target = place / digest
    if target.exists():
        shutil.rmtree(fresh)
    else:
        fresh.rename(target)
    return target


def _packed(folder: Path) -> Path:
    """Return the archive of a snapshot; made once."""
    # Not .tar: Spark would unpack that itself, a copy for each worker process.
    target = folder.with_name(f"rangecast-{folder.name}.packed")
    if not target.exists():
        partial = target.with_suffix(".partial")
        with tarfile.open(partial, "w") as archive:
            archive.add(folder, arcname=folder.name)
        partial.rename(target)
    return target


@lru_cache(maxsize=_OPEN)
def _opened(shipped: ShippedObject) -> Any:
    if shipped.archive is None:
        folder = Path(shipped.folder)
    else:
        folder = _unpacked(shipped.digest, shipped.archive)
    arrays, meta = load_arrays(folder, _KIND, verify=False)
    buffers = [arrays[f"array{number}"] for number in range(meta["arrays"])]
    return pickle.loads(arrays["state"].tobytes(), buffers=buffers)


def _unpacked(digest: str, archive: str) -> Path:
    """Return the folder of a snapshot on a host of a cluster; the first worker unpacks it."""
    place = own_folder() / "snapshots"
    place.mkdir(exist_ok=True)
    target = place / digest
    with _locked(place / f"{digest}.lock"):
        if not target.exists():
            partial = place / f"new-{uuid4().hex}"
            with tarfile.open(SparkFiles.get(archive)) as packed:
                packed.extractall(partial, filter="data")
            load_arrays(partial / digest, _KIND, verify=True)
            (partial / digest).rename(target)
            partial.rmdir()
        os.utime(target)
    limit = time.time() - _UNUSED_SECONDS
    for old in place.iterdir():
        with suppress(OSError):  # another process was faster
            if old.stat().st_mtime < limit:
                _remove(old)
    return target


@cache
def _drivers_folder() -> Path:
    """Return this process's own folder, and remove those of processes that died."""
    drivers = own_folder() / "drivers"
    drivers.mkdir(exist_ok=True)
    for other in drivers.iterdir():
        with suppress(OSError), (other / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _remove(other)
    mine = drivers / uuid4().hex
    mine.mkdir()
    _hold(mine / "lock")
    atexit.register(shutil.rmtree, mine, ignore_errors=True)
    return mine


_held: list[IO[str]] = []


def _hold(path: Path) -> None:
    """Lock a file for as long as this process lives."""
    file = path.open("w")
    fcntl.flock(file, fcntl.LOCK_EX)
    _held.append(file)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _remove(path: Path) -> None:
    """Remove a file or a folder; nobody sees half of a folder."""
    if path.is_dir():
        path = path.rename(path.with_name(f"old-{uuid4().hex}"))
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink()
