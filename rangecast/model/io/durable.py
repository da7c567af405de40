"""Flushing of files and folders to disk, and file locks."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import IO


def write_bytes(path: Path, data: bytes | memoryview) -> None:
    """Write a file and flush it to disk; a crash may leave a partial file."""
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Flush the entries of a folder to disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_file(path: Path) -> None:
    """Flush a file to disk, even if another process wrote it."""
    with path.open("rb") as file:
        os.fsync(file.fileno())


def sync_tree(folder: Path) -> None:
    """Flush all files below a folder, and their directory entries, to disk."""
    for inner, _, names in os.walk(folder):
        for name in names:
            sync_file(Path(inner, name))
        sync_folder(Path(inner))


def try_lock(path: Path) -> IO[str] | None:
    """Lock a file as long as it is open; return `None` if it is already locked.

    The lock is released when its process dies.
    """
    file = path.open("a")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        return None
    return file
