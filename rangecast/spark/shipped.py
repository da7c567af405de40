"""An object made of arrays on its way to the Python workers: built once, mapped by all of them.

The object is pickled with its arrays apart, and both are written as a snapshot folder
(`model.snapshot`) named after its content. A worker maps the arrays read-only, so that all workers
of a host share the same pages of memory. On a local master the workers find the folder where the
driver wrote it. On a cluster the folder travels as one archive that Spark hands to each host; the
first worker there unpacks it under a lock, checks every byte, and renames it into place.
"""

from __future__ import annotations

import fcntl
import hashlib
import itertools
import os
import pickle
import shutil
import tarfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from pyspark import SparkFiles
from pyspark.sql import SparkSession

from rangecast.model.snapshot import MANIFEST, load_arrays, save_arrays
from rangecast.spark.places import own_folder
from rangecast.spark.session import is_local

_KIND = "shipped"
_OPEN = 4
"""Objects that a worker holds at a time; a stream goes on to new ones and lets old ones go."""
_UNUSED_SECONDS = 7 * 24 * 3600
_numbers = itertools.count()


@dataclass(frozen=True)
class Shipped:
    """What a task carries instead of the object: its name, and the archive it travels in."""

    digest: str
    archive: str | None

    def open(self) -> Any:
        """Return the object, mapped into this process's memory."""
        return _opened(self.digest, self.archive)


def ship(session: SparkSession, thing: Any) -> Shipped:
    """Write an object where the workers of a session can map it."""
    digest = _save(thing)
    if is_local(session):
        return Shipped(digest, None)
    archive = _packed(digest)
    session.sparkContext.addFile(str(archive))
    return Shipped(digest, archive.name)


def _save(thing: Any) -> str:
    """Write an object as a snapshot named after its content; return the name."""
    arrays: list[np.ndarray[Any, Any]] = []

    def keep(buffer: pickle.PickleBuffer) -> None:
        arrays.append(np.frombuffer(buffer.raw(), np.uint8))

    state = pickle.dumps(thing, protocol=5, buffer_callback=keep)
    folder = _snapshots()
    fresh = folder / f".new-{os.getpid()}-{next(_numbers)}"
    named = {f"array{place}": array for place, array in enumerate(arrays)}
    named["state"] = np.frombuffer(state, np.uint8)
    save_arrays(fresh, _KIND, named, {"arrays": len(arrays)})
    digest = _digest(fresh)
    with _lock(digest):
        if (folder / digest).exists():
            shutil.rmtree(fresh)
        else:
            fresh.rename(folder / digest)
    _forget_unused(folder)
    return digest


def _packed(digest: str) -> Path:
    """Return the archive of a snapshot; made once."""
    # Not .tar: Spark would unpack that itself, a copy for each worker process.
    target = own_folder() / "archives" / f"rangecast-{digest}.packed"
    with _lock(digest):
        if not target.exists():
            target.parent.mkdir(exist_ok=True)
            partial = target.with_suffix(".partial")
            with tarfile.open(partial, "w") as archive:
                archive.add(_snapshots() / digest, arcname=digest)
            partial.rename(target)
    return target


@lru_cache(maxsize=_OPEN)
def _opened(digest: str, archive: str | None) -> Any:
    folder = _snapshots() / digest
    if not folder.exists() and archive is not None:
        _unpack(digest, archive)
    os.utime(folder)  # still of use
    arrays, meta = load_arrays(folder, _KIND, verify=False)
    buffers = [arrays[f"array{place}"] for place in range(meta["arrays"])]
    return pickle.loads(arrays["state"].tobytes(), buffers=buffers)


def _unpack(digest: str, archive: str) -> None:
    """Unpack and check a snapshot, unless another worker of this host did so meanwhile."""
    folder = _snapshots()
    with _lock(digest):
        if (folder / digest).exists():
            return
        partial = folder / f".unpacking-{os.getpid()}"
        shutil.rmtree(partial, ignore_errors=True)
        with tarfile.open(SparkFiles.get(archive)) as packed:
            packed.extractall(partial, filter="data")
        load_arrays(partial / digest, _KIND, verify=True)
        (partial / digest).rename(folder / digest)
        partial.rmdir()
    _forget_unused(folder)


def _snapshots() -> Path:
    folder = own_folder() / "snapshots"
    folder.mkdir(exist_ok=True)
    return folder


def _digest(folder: Path) -> str:
    return hashlib.sha256((folder / MANIFEST).read_bytes()).hexdigest()[:32]


@contextmanager
def _lock(digest: str) -> Iterator[None]:
    folder = own_folder() / "locks"
    folder.mkdir(exist_ok=True)
    with (folder / digest).open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _forget_unused(folder: Path) -> None:
    """Remove what no process has opened for a week; what is mapped stays readable all the same."""
    limit = time.time() - _UNUSED_SECONDS
    for kind in (folder, folder.parent / "archives", folder.parent / "locks"):
        for old in kind.iterdir() if kind.is_dir() else []:
            try:
                if old.stat().st_mtime < limit:
                    shutil.rmtree(old) if old.is_dir() else old.unlink()
            except OSError:  # another process was faster
                continue
