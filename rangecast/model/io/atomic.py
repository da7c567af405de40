"""Atomic writes: a file or folder appears complete under its name, or not at all.

    .<name>.<token>.partial   file or folder being written; the token is unique per attempt
    .<name>.<token>.old       replaced folder, where two folders cannot be exchanged atomically

The data is flushed to disk before the rename, and the rename before the call returns. Writers of
the same name never share a temporary file, in any process or thread: the last one to finish wins,
and readers always see a complete version. A writer holds a lock (flock) on its temporary file. So
the next writer of the name can remove what a crashed one has left, even if both processes have the
same id, as in a restarted container.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import hashlib
import os
import shutil
import stat
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO
from uuid import uuid4

from rangecast.model.io.durable import sync_folder

_PARTIAL, _OLD = ".partial", ".old"
_MAX_NAME = 200
"""Bytes of a name that fit into a temporary one; a longer name is hashed."""
_MIN_AGE = 60.0
"""Seconds after which a leftover without a lock is removed: a new one is locked by then."""
_MIN_AGE_UNLOCKABLE = 86_400.0
"""`_MIN_AGE` where the file system has no locks."""
_AT_FDCWD = -100
_NO_REPLACE, _EXCHANGE = 1, 2
_UNSUPPORTED = (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP)
_TAKEN = (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR)


class PendingFile:
    """File being written: `commit` gives it its name, `discard` removes it.

    A symbolic link is kept and its target replaced. A pipe or a device is written directly.
    """

    def __init__(self, path: str | Path):
        target = Path(os.path.realpath(path))
        self._target = None if _is_special(target) else target
        # Registered before the file exists: a signal may arrive right after that.
        opened: list[IO[bytes]] = []
        if self._target is None:
            self._discard = weakref.finalize(self, _close_and_remove, opened, None, os.getpid())
            self.file: IO[bytes] = target.open("wb")
            opened.append(self.file)
            return
        _remove_leftovers(target)
        self._partial = _temporary(target, _PARTIAL)
        self._discard = weakref.finalize(
            self, _close_and_remove, opened, self._partial, os.getpid()
        )
        self.file = self._partial.open("xb")
        opened.append(self.file)
        _lock(self.file.fileno())
        with suppress(OSError):  # a file that is replaced keeps its rights
            os.fchmod(self.file.fileno(), stat.S_IMODE(target.stat().st_mode))

    def commit(self) -> None:
        """Flush the file to disk and rename it to its final name."""
        self.file.flush()
        if self._target is None:
            self.file.close()
            return
        os.fsync(self.file.fileno())
        self._partial.replace(self._target)
        self._discard.detach()
        self.file.close()
        sync_folder(self._target.parent)

    def discard(self) -> None:
        """Remove the file, unless it was committed."""
        self._discard()


@contextmanager
def atomic_file(path: str | Path) -> Iterator[IO[bytes]]:
    """Write a file that gets its name when the block ends, and is removed if the block raises."""
    pending = PendingFile(path)
    try:
        yield pending.file
        pending.commit()
    finally:
        pending.discard()


def write_whole(path: str | Path, data: bytes, *, mode: int | None = None) -> None:
    """Write bytes to a file atomically, with these permissions if given."""
    with atomic_file(path) as file:
        file.write(data)
        if mode is not None:
            os.fchmod(file.fileno(), mode)


@contextmanager
def atomic_folder(path: str | Path, *, overwrite: bool = False) -> Iterator[Path]:
    """Write a folder: the block fills a temporary one, which is renamed when the block ends.

    Its files must be flushed by then (`durable.write_bytes`). An existing name raises
    `FileExistsError`; with `overwrite`, it is replaced and removed.
    """
    target = Path(os.path.realpath(path))
    target.parent.mkdir(parents=True, exist_ok=True)
    _remove_leftovers(target)
    partial = _temporary(target, _PARTIAL)
    partial.mkdir()
    try:
        handle = os.open(partial, os.O_RDONLY | os.O_DIRECTORY)
        try:
            _lock(handle)
            yield partial
            os.fsync(handle)
            _put_in_place(partial, target, overwrite=overwrite)
        finally:
            os.close(handle)
        sync_folder(target.parent)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _put_in_place(partial: Path, target: Path, *, overwrite: bool) -> None:
    """Rename a folder to its final name; after an exchange, `partial` is the replaced folder."""
    while True:
        try:
            _rename_new(partial, target)
            return
        except OSError as error:
            if error.errno not in _TAKEN:
                raise
            if not overwrite:
                raise FileExistsError(
                    errno.EEXIST, os.strerror(errno.EEXIST), str(target)
                ) from None
        try:
            _rename(partial, target, _EXCHANGE)
            return
        except FileNotFoundError:
            continue  # another process has just removed it
        except OSError as error:
            if error.errno not in _UNSUPPORTED:
                raise
        old = _temporary(target, _OLD)
        with suppress(FileNotFoundError):
            target.rename(old)
        try:
            _rename_new(partial, target)
        except OSError as error:
            if error.errno not in _TAKEN:  # if it is taken, another writer was faster
                old.rename(target)
                raise
        else:
            shutil.rmtree(old, ignore_errors=True)
            return
        shutil.rmtree(old, ignore_errors=True)


def _rename_new(source: Path, target: Path) -> None:
    """Rename a folder to a name that must not exist."""
    try:
        _rename(source, target, _NO_REPLACE)
    except OSError as error:
        if error.errno not in _UNSUPPORTED:
            raise
        source.rename(target)


def _rename(source: Path, target: Path, flag: int) -> None:
    """Call Linux's `renameat2`, to rename without replacing or to exchange both names."""
    call = getattr(_libc(), "renameat2", None)
    code = errno.ENOSYS
    if call is not None:
        names = os.fsencode(source), os.fsencode(target)
        if call(_AT_FDCWD, names[0], _AT_FDCWD, names[1], ctypes.c_uint(flag)) == 0:
            return
        code = ctypes.get_errno()
    raise OSError(code, os.strerror(code), str(source), None, str(target))


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _temporary(target: Path, suffix: str) -> Path:
    return target.with_name(f".{_stem(target)}.{uuid4().hex[:16]}{suffix}")


def _stem(target: Path) -> str:
    name = os.fsencode(target.name)
    return target.name if len(name) <= _MAX_NAME else hashlib.sha256(name).hexdigest()[:32]


def _remove_leftovers(target: Path) -> None:
    """Remove the temporary files that crashed writers of this name left behind."""
    begin = f".{_stem(target)}."
    try:
        with os.scandir(target.parent) as entries:
            left = [Path(entry.path) for entry in entries if entry.name.startswith(begin)]
    except OSError:
        return  # the caller's own attempt raises the error
    for path in left:
        if path.suffix == _PARTIAL or (path.suffix == _OLD and os.path.lexists(target)):
            with suppress(OSError):
                _remove_if_abandoned(path)


def _remove_if_abandoned(path: Path) -> None:
    age = time.time() - path.stat().st_mtime
    if age < _MIN_AGE:
        return
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    try:
        if not _lock(handle) and age < _MIN_AGE_UNLOCKABLE:
            return
        if stat.S_ISDIR(os.fstat(handle).st_mode):
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
    finally:
        os.close(handle)


def _lock(handle: int) -> bool:
    """Lock an open file or folder; return whether the lock is known to be held."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError:  # a file system without locks
        return False
    return True


def _is_special(target: Path) -> bool:
    try:
        mode = target.stat().st_mode
    except OSError:
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def _close_and_remove(opened: list[IO[bytes]], partial: Path | None, owner: int) -> None:
    """Remove an unfinished file; a forked process leaves its parent's alone."""
    for file in opened:
        with suppress(OSError):
            file.close()
    if partial is not None and os.getpid() == owner:
        partial.unlink(missing_ok=True)
