"""The shim of a server: compiled once per run, and the page that says what is to fail."""

from __future__ import annotations

import ctypes
import mmap
import random
import struct
import subprocess
from pathlib import Path
from typing import Any

_UNDO = struct.Struct("=qqq")


class Page(ctypes.Structure):
    """Faults to inject: `struct control` of shim.c."""

    _fields_ = (
        *(
            (name, ctypes.c_int64)
            for name in (
                "clock_offset",
                "write_delay",
                "sync_delay",
                "room",
                "write_errno",
                "sync_errno",
                "kill_before_write",
                "kill_before_sync",
                "kill_after_sync",
                "journal",
                "writes",
                "syncs",
                "failed",
            )
        ),
        *((name, ctypes.c_char * 1024) for name in ("folder", "undo", "archive")),
    )


def compiled(folder: Path) -> Path:
    """Compile the shim into a folder; return its path."""
    path = folder / "shim.so"
    source = Path(__file__).with_name("shim.c")
    command = ["cc", "-shared", "-fPIC", "-O2", "-o", str(path), str(source), "-ldl", "-pthread"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"the shim can't be compiled:\n{done.stderr}")
    return path


class Control:
    """The disk and the clock of one server."""

    def __init__(self, folder: Path, data: Path):
        """`folder`: for the page, what isn't synced, and segments that were deleted."""
        self.path = folder / "control"
        self.data, self.undo, self.archive = data, folder / "undo", folder / "archive"
        for one in (self.undo, self.archive):
            one.mkdir(parents=True)
        self.path.write_bytes(bytes(ctypes.sizeof(Page)))
        with self.path.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), 0)
        self._page: Any = Page.from_buffer(self._memory)
        for name in ("undo", "archive"):
            setattr(self._page, name, str(getattr(self, name)).encode())
        self._page.folder = f"{data}/".encode()
        self.heal()

    def set(self, **values: int) -> None:
        """Set fields of the page."""
        for name, value in values.items():
            setattr(self._page, name, value)

    def get(self, name: str) -> int:
        """Return a field of the page."""
        found: int = getattr(self._page, name)
        return found

    def heal(self, *, clock: bool = False) -> None:
        """Let nothing fail any more; `clock`: and set the clock right."""
        keep = 0 if clock else self._page.clock_offset
        for name, _ in Page._fields_[:10]:
            setattr(self._page, name, 0)
        self.set(room=-1, journal=1, clock_offset=keep)

    def cut_power(self, dice: random.Random) -> int:
        """Undo writes that no sync has followed, of a process that is dead; return how many.

        Of each file all of them are lost, or those after a random one.
        """
        files = {one.stat().st_ino: one for one in self.data.rglob("*") if one.is_file()}
        lost = 0
        for journal in sorted(self.undo.iterdir()):
            target = files.get(int(journal.name))
            if target is not None and not target.name.endswith("-shm"):
                records = list(_records(journal.read_bytes()))
                kept = 0 if dice.random() < 0.7 else dice.randint(0, len(records))
                with target.open("r+b") as file:
                    for offset, size, old in reversed(records[kept:]):
                        file.seek(offset)
                        file.write(old)
                        file.truncate(size)
                        lost += 1
            journal.unlink()
        return lost


def _records(journal: bytes) -> Any:
    """Yield (offset, size before, bytes before) of each write."""
    at = 0
    while at + _UNDO.size <= len(journal):
        offset, length, size = _UNDO.unpack_from(journal, at)
        at += _UNDO.size
        if at + length > len(journal):
            return  # it died while this was written: the write itself hadn't begun
        yield offset, size, journal[at : at + length]
        at += length
