"""Flush files and folders to the disk, and lock them."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import IO


def write_bytes(path: Path, data: bytes | memoryview) -> None:
    """Write a file and wait until its bytes are on the disk; a crash may leave a part of it."""
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Wait until the names in a folder are on the disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_file(path: Path) -> None:
    """Wait until a file is on the disk, even if another process wrote it."""
    with path.open("rb") as file:
        os.fsync(file.fileno())


def sync_tree(folder: Path) -> None:
    """Wait until all files below a folder, and their names, are on the disk."""
    for inner, _, names in os.walk(folder):
        for name in names:
            sync_file(Path(inner, name))
        sync_folder(Path(inner))


def try_lock(path: Path) -> IO[str] | None:
    """Lock a file for as long as it stays open; `None`: another holds it.

    A lock of a process that died is free.
    """
    file = path.open("a")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        return None
    return file
