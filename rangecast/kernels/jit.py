"""The one place where functions are compiled: every option of numba is set here.

Compiled code is kept on disk, in a folder that is named after a hash of all sources that a kernel
can reach, which are those of its own folder and of the floors below it: numba itself looks only at
the file of the function, so a change in a kernel that is called from another file would go
unnoticed. The folder lies in the user's cache folder, or else in the temporary folder; what is
loaded from it is run, so it must be one that nobody else can write. If there is none, nothing is
kept. Each kernel and signature has a file of its own with a checksum. A file that is damaged or
can't be written costs time, never an answer: the kernel is compiled again.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import pickle
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import numba
from numba.core import config, event
from numba.core.caching import FunctionCache
from numba.core.compiler import CompileResult
from numba.core.serialize import dumps

from rangecast.kernels.private_folder import private_folder

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
    compiled: Any = numba.njit(function, nogil=nogil, fastmath=False, error_model="numpy")
    package, floor = function.__module__.split(".")[:2]
    if package == "rangecast" and (folder := cache_folder(floor)):
        compiled._cache = _KernelCache(function, folder)
    kernel: Function = compiled
    return kernel


class _KernelCache(FunctionCache):  # type: ignore[misc]
    """The compiled code of one kernel on disk, a file per signature."""

    def __init__(self, function: Callable[..., object], folder: Path):
        self._py_func = function
        self._folder = folder
        self._name = f"{function.__module__.partition('.')[2]}.{function.__qualname__}"

    @property
    def cache_path(self) -> str:
        return str(self._folder)

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return the compiled code, `None` if there is no whole file of just this kernel."""
        target_context.refresh()
        key = self._index_key(sig, target_context.codegen())
        try:
            kept = self._file(key).read_bytes()
        except OSError:
            return None
        digest, data = kept[:32], kept[32:]
        if hashlib.sha256(data).digest() != digest:
            return None
        found, code = pickle.loads(data)
        return CompileResult._rebuild(target_context, *code) if found == key else None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep the compiled code, if there is room on the disk."""
        if data.library.has_dynamic_globals or any(not part.can_cache for part in data.lifted):
            raise TypeError(f"{self._name} can't be cached: it holds an address or lifted code")
        key = self._index_key(sig, data.codegen)
        content = dumps((key, data._reduce()))
        path = self._file(key)
        partial = path.with_name(f"{path.name}.{uuid.uuid4().hex}.partial")
        try:
            partial.write_bytes(hashlib.sha256(content).digest() + content)
            partial.replace(path)
        except OSError:
            with contextlib.suppress(OSError):
                partial.unlink()

    def _file(self, key: object) -> Path:
        return self._folder / f"{self._name}-{hashlib.sha256(repr(key).encode()).hexdigest()[:16]}"


class Compiling(event.Listener):  # type: ignore[misc]
    """Notices kernels that are compiled because they aren't kept on disk, and for how long."""

    def __init__(self, tell: Callable[[], None]):
        """`tell` is called once, when the first kernel starts compiling."""
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
    versions = (numba.__version__, sys.implementation.cache_tag)
    digest.update(repr(versions).encode())
    name = f"{floor}-{digest.hexdigest()[:16]}" + ("-boundscheck" if config.BOUNDSCHECK else "")
    for base in (_user_folder, _temporary_folder):
        try:
            folder = private_folder(base() / "kernels" / name)
            with tempfile.TemporaryFile(dir=folder):
                return folder
        except (OSError, RuntimeError):  # RuntimeError: a user without a home
            continue
    return None


def _user_folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rangecast"


def _temporary_folder() -> Path:
    return Path(tempfile.gettempdir()) / f"rangecast-{os.getuid()}"
