"""Data folder that only its owner can read: it has events, and the secrets of webhooks.

A new folder is created with mode 0700, and all files in it with 0600, whatever the umask. An
existing folder keeps its mode, which may be intended; a warning is logged if others can read it.
The server's own files in it are made private; other files are left alone.
"""

from __future__ import annotations

import logging
import os
import re
import stat
from pathlib import Path

logger = logging.getLogger("rangecast.server")
FILE, FOLDER = 0o600, 0o700
_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_OURS = re.compile(r"lock|\.?(log|snapshot|damaged)[-.].*")


def make_private(folder: Path) -> None:
    """Create a data folder if it doesn't exist; make its files private to this user."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=FOLDER)
        return
    except FileExistsError:
        pass
    mode = stat.S_IMODE(folder.stat().st_mode)
    if mode & _OTHERS:
        logger.warning(
            "%s can be opened by other users (mode %03o); the server's files in it are private\n"
            "  hint: chmod 700 %s",
            folder,
            mode,
            folder,
        )
    for path in folder.iterdir():
        if _OURS.fullmatch(path.name):
            tighten(path)


def tighten(path: Path) -> None:
    """Make a file, or a folder and its contents, private to this user."""
    if path.is_symlink():
        return
    if path.is_dir():
        _set_mode(path, FOLDER)
        for inner, folders, names in os.walk(path):
            for name in folders:
                _set_mode(Path(inner, name), FOLDER)
            for name in names:
                _set_mode(Path(inner, name), FILE)
    else:
        _set_mode(path, FILE)


def create(path: Path) -> None:
    """Create an empty file that is private to this user, unless it exists."""
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, FILE))


def _set_mode(path: Path, mode: int) -> None:
    try:
        if not path.is_symlink() and stat.S_IMODE(path.stat().st_mode) & _OTHERS:
            path.chmod(mode)
    except OSError as error:
        logger.warning("%s can be read by other users, and its mode can't be set: %s", path, error)
