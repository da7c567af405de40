"""The one place where functions are compiled: every option of numba is set here.

Compiled code is kept on disk. numba looks only at the file of the function itself, so a change in
a kernel that is called from another file would go unnoticed: the folder is therefore named after
a hash of all sources that a kernel can reach, which are those of its own folder and of the floors
below it. It lies in the user's cache folder; if that can't be written, in the temporary folder; if
neither can, nothing is kept.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TypeVar

import numba
from numba.core import config, event

Function = TypeVar("Function", bound=Callable[..., object])

_GROUND = ("errors.py", "kernels", "model")
"""What the kernels of every verb may use; the verbs don't use one another's."""


def jit(function: Function) -> Function:
    """Compile a kernel that works on a batch; it lets other threads run meanwhile."""
    return _compile(function, nogil=True)


def jit_single(function: Function) -> Function:
    """Compile a kernel for one event; it keeps the GIL, as giving it up costs more than it does."""
    return _compile(function, nogil=False)


def _compile(function: Function, *, nogil: bool) -> Function:
    package, floor = function.__module__.split(".")[:2]
    folder = cache_folder(floor) if package == "rangecast" else None
    before = config.CACHE_DIR
    config.CACHE_DIR = str(folder) if folder else before  # read once, when caching is set up
    try:
        compiled: Function = numba.njit(
            function, cache=folder is not None, nogil=nogil, fastmath=False, error_model="numpy"
        )
    finally:
        config.CACHE_DIR = before
    return compiled


class Compiling(event.Listener):  # type: ignore[misc]
    """Notices kernels that are compiled because they aren't kept on disk, and for how long."""

    def __init__(self, tell: Callable[[], None]):
        """Take whom to call when the first one begins."""
        self.seconds = 0.0
        self._tell = tell
        self._told = False
        self._depth = 0
        self._began = 0.0

    def on_start(self, _event: event.Event) -> None:
        """Begin a kernel, perhaps within another one: numba compiles one at a time."""
        if not self._depth:
            self._began = time.perf_counter()
        self._depth += 1
        if not self._told:
            self._told = True
            self._tell()

    def on_end(self, _event: event.Event) -> None:
        """End a kernel."""
        self._depth -= 1
        if not self._depth:
            self.seconds += time.perf_counter() - self._began


@contextmanager
def noticing(tell: Callable[[], None]) -> Iterator[Compiling]:
    """Call `tell` when a kernel must be compiled, once, and add up how long it takes."""
    listener = Compiling(tell)
    with event.install_listener("numba:compile", listener):
        yield listener


@cache
def cache_folder(floor: str) -> Path | None:
    """Return the folder of the compiled kernels of a part of the package, `None` if none can be.

    `floor` is the name of its folder, such as `match`.
    """
    package = Path(__file__).parents[1]
    digest = hashlib.sha256()
    for part in sorted({*_GROUND, floor}):
        place = package / part
        for source in sorted(place.rglob("*.py")) if place.is_dir() else [place]:
            digest.update(source.relative_to(package).as_posix().encode() + b"\0")
            digest.update(source.read_bytes())
    name = f"{floor}-{digest.hexdigest()[:16]}" + ("-boundscheck" if config.BOUNDSCHECK else "")
    user = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    for base in (user, Path(tempfile.gettempdir())):
        folder = base / "rangecast" / "kernels" / name
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder):
                return folder
        except OSError:
            continue
    return None
