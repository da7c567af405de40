"""Folders whose files may be loaded as code: owned by this user, and writable by no other."""

from __future__ import annotations

import os
import stat
from pathlib import Path


def private_folder(folder: Path) -> Path:
    """Create a folder for this user alone (mode 0700) if it doesn't exist, and return it.

    Raises `PermissionError` if another user could put a file there: the folder must belong to this
    user and be no symbolic link; every folder above it must belong to this user or to root, and if
    others can write it, it must be sticky, as the temporary folder is.
    """
    for directory in reversed([folder, *folder.parents]):
        if not directory.exists():
            directory.mkdir(mode=0o700, exist_ok=True)
    own = folder.lstat()
    if stat.S_ISLNK(own.st_mode):
        raise PermissionError(f"{folder}: is a symbolic link")
    if own.st_uid != os.getuid():
        raise PermissionError(f"{folder}: belongs to another user")
    if own.st_mode & 0o022:
        raise PermissionError(f"{folder}: can be written by others")
    for directory in (*folder.absolute().parents, *folder.resolve().parents):
        seen = directory.lstat()
        if seen.st_uid not in (0, os.getuid()):
            raise PermissionError(f"{directory}: belongs to another user")
        if seen.st_mode & 0o022 and not seen.st_mode & stat.S_ISVTX and not directory.is_symlink():
            raise PermissionError(f"{directory}: can be written by others")
    return folder
