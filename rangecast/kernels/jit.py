"""Compilation of kernels: all numba options are set here.

Compiled code is kept on disk, under a hash of all sources that a kernel can reach, which are its
own file and those that it imports, directly or not, and overloads for its types: numba itself looks
only at the file of the function, so a change in a kernel that is called from another file would go
unnoticed. The folder lies in the user's cache folder, or else in the temporary folder; what is
loaded from it is run, so no other user may be able to write it. If there is none, nothing is kept.
Each kernel and signature has a file of its own with a checksum. A file that is damaged or can't be
written costs time, never an answer: the kernel is compiled again. Of several processes that need a
kernel at the same time, one compiles it and the others wait for its file.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import logging
import os
import pickle
import re
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, wraps
from pathlib import Path
from typing import Any, TypeVar

import numba
from numba.core import config, event
from numba.core.caching import FunctionCache
from numba.core.compiler import CompileResult
from numba.core.compiler_lock import global_compiler_lock
from numba.core.serialize import dumps

from rangecast.kernels.private_folder import private_folder

_log = logging.getLogger(__name__)
Function = TypeVar("Function", bound=Callable[..., object])

_PACKAGE = Path(__file__).parents[1]
_PARTIAL = ".partial"
_overloads: dict[type, str] = {}
_IMPORT = re.compile(rb"^\s*(?:from|import) (rangecast[\w.]*)(?: import (\([^)]*\)|.*))?", re.M)


def jit(function: Function) -> Function:
    """Compile a kernel that works on a batch; it releases the GIL."""
    return _compile(function, nogil=True)


def jit_single(function: Function) -> Function:
    """Compile a kernel for one event; it holds the GIL, as releasing it costs more than the kernel
    itself.
    """
    return _compile(function, nogil=False)


def note_overloads(kind: type, module: str) -> None:
    """Keep kernels with arguments of a type under the sources of a module, too.

    It has the overloads that they call; numba chooses them when it compiles, so no import shows it.
    """
    _overloads[kind] = module


def direct(kernel: Callable[..., Any], *arguments: object) -> Callable[..., Any]:
    """Return a kernel for arguments of exactly these types, which skips numba's type checks.

    Determining the types of three arrays takes numba a third of a microsecond per call. The caller
    guarantees the types; whether an array is read-only doesn't matter.
    """
    compiled: Any = kernel
    entry: Callable[..., Any] = compiled.compile(tuple(map(numba.typeof, arguments)))
    return entry


def _compile(function: Function, *, nogil: bool) -> Function:
    # No kernel is called through a C function; making one takes a fifth of the compiling.
    options = {"nogil": nogil, "fastmath": False, "no_cfunc_wrapper": True}
    compiled: Any = numba.njit(function, error_model="numpy", **options)
    module = function.__module__
    if module.startswith("rangecast.") and (folder := cache_folder()):
        with contextlib.suppress(OSError):  # without sources to look at, nothing is kept
            kept = _KernelCache(function, folder, sources_digest(module), nogil)
            compiled._cache, compiled.compile = kept, kept.unlocking(compiled.compile)
    kernel: Function = compiled
    return kernel


class _KernelCache(FunctionCache):  # type: ignore[misc]
    """Disk cache of a kernel's compiled code, one file per signature."""

    def __init__(self, function: Callable[..., object], folder: Path, sources: str, nogil: bool):
        self._py_func = function
        self._folder = folder
        self._sources = sources
        self._nogil = nogil
        self._name = f"{function.__module__.partition('.')[2]}.{function.__qualname__}"
        self._locked: list[int] = []

    @property
    def cache_path(self) -> str:
        return str(self._folder)

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return the compiled code, `None` if there is no intact file for exactly this kernel."""
        target_context.refresh()
        key = self._key(sig, target_context.codegen())
        file = self._file(key)
        code = self._read(file, key)
        if code is None:
            self._lock(file)
            code = self._read(file, key)  # another process may have compiled it meanwhile
        if code is None:
            _log.info("compiling %s", self._name)
            return None
        return CompileResult._rebuild(target_context, *code)

    def _read(self, file: Path, key: object) -> Any:
        """Return what a file has, `None` if there is no intact one for exactly this kernel."""
        try:
            kept = file.read_bytes()
        except OSError:
            return None
        digest, data = kept[:32], kept[32:]
        if hashlib.sha256(data).digest() != digest:
            return None
        name, code = pickle.loads(data)
        return code if name == key else None

    def _lock(self, file: Path) -> None:
        """Wait until no other process compiles this kernel, and let others wait for this one."""
        # A byte of the lock file stands for a kernel. The system releases a process's locks when
        # it ends; where a file can't be locked, each process compiles its own.
        offset = int.from_bytes(hashlib.sha256(file.name.encode()).digest()[:7])
        with contextlib.suppress(OSError):
            fcntl.lockf(_lock_file(self._folder), fcntl.LOCK_EX, 1, offset)
            self._locked.append(offset)

    def unlocking(self, compile_: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Wrap a dispatcher's compile method so that it releases this cache's locks afterwards."""

        @wraps(compile_)
        def unlocked(sig: Any) -> Any:
            with global_compiler_lock:
                outer, self._locked = self._locked, []
                try:
                    return compile_(sig)
                finally:
                    for offset in self._locked:
                        fcntl.lockf(_lock_file(self._folder), fcntl.LOCK_UN, 1, offset)
                    self._locked = outer

        return unlocked

    def save_overload(self, sig: Any, data: Any) -> None:
        """Save the compiled code, if the disk has room."""
        if data.library.has_dynamic_globals or any(not part.can_cache for part in data.lifted):
            raise TypeError(f"{self._name} can't be cached: it holds an address or lifted code")
        key = self._key(sig, data.codegen)
        content = dumps((key, data._reduce()))
        path = self._file(key)
        partial = path.with_name(f"{path.name}.{uuid.uuid4().hex}{_PARTIAL}")
        try:
            partial.write_bytes(hashlib.sha256(content).digest() + content)
            partial.replace(path)
        except OSError:
            with contextlib.suppress(OSError):
                partial.unlink()

    def _key(self, sig: Any, codegen: Any) -> tuple[Any, ...]:
        versions = (numba.__version__, sys.implementation.cache_tag, bool(config.BOUNDSCHECK))
        sources = self._sources, self._overload_sources(sig)
        return (*sources, self._nogil, *versions, self._index_key(sig, codegen))

    def _overload_sources(self, sig: Any) -> str:
        """Return a hash of the overloads for the types of arguments and of closure variables."""
        closed_over = [cell.cell_contents for cell in self._py_func.__closure__ or ()]
        kinds = [getattr(each, "instance_class", None) for each in getattr(sig, "args", sig)]
        modules = {_overloads.get(kind, "") for kind in kinds + closed_over if type(kind) is type}
        return sources_digest(*sorted(filter(None, modules)))

    def _file(self, key: object) -> Path:
        return self._folder / (self.stem + hashlib.sha256(repr(key).encode()).hexdigest()[:16])

    @property
    def stem(self) -> str:
        """Prefix of the file names for this kernel and these sources."""
        return f"{self._name}-{self._sources[:16]}-"


def is_compiled(kernel: Any) -> bool:
    """Return whether a kernel is compiled for any signature, in this process or on disk."""
    kept = kernel._cache
    if kernel.overloads or not isinstance(kept, _KernelCache):
        return bool(kernel.overloads)
    files = Path(kept.cache_path).glob(f"{kept.stem}*")
    return any(file.suffix != _PARTIAL for file in files)


class Compiling(event.Listener):  # type: ignore[misc]
    """Listener for kernels that are not in the disk cache: measures their compilation time."""

    def __init__(self, on_first_compile: Callable[[], None]):
        """`on_first_compile` is called once, when the first kernel starts compiling."""
        self.seconds = 0.0
        self._on_first_compile = on_first_compile
        self._has_told = False
        self._depth = 0
        self._began = 0.0

    def on_start(self, _event: event.Event) -> None:
        """Start timing a kernel, which may be nested in another: numba compiles one at a time."""
        if not self._depth:
            self._began = time.perf_counter()
        self._depth += 1
        if not self._has_told:
            self._has_told = True
            self._on_first_compile()

    def on_end(self, _event: event.Event) -> None:
        """Stop timing a kernel."""
        self._depth -= 1
        if not self._depth:
            self.seconds += time.perf_counter() - self._began


@contextmanager
def timing_compilation(on_first_compile: Callable[[], None]) -> Iterator[Compiling]:
    """Call a function once when a kernel must be compiled; sum up the compilation time."""
    listener = Compiling(on_first_compile)
    with event.install_listener("numba:compile", listener):
        yield listener


@cache
def _lock_file(folder: Path) -> int:
    """Open the lock file of a cache folder, once: closing it would release all locks."""
    return os.open(folder / "compiling.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


@cache
def cache_folder() -> Path | None:
    """Return the cache folder of compiled kernels, `None` if none can be created."""
    for base in (_user_folder, _temporary_folder):
        try:
            folder = private_folder(base() / "kernels")
            with tempfile.TemporaryFile(dir=folder):
                _log.info("compiled kernels are kept in %s", folder)
                return folder
        except (OSError, RuntimeError) as error:  # RuntimeError: a user without a home
            _log.info("no compiled kernels are kept in %s: %s", base.__name__, error)
    _log.warning("there is no folder for compiled kernels: each process compiles its own")
    return None


@cache
def sources_digest(*modules: str) -> str:
    """Return a hash of the sources of modules and of all rangecast modules that they import."""
    reached, waiting = set[Path](), list[Path]()
    for module in modules:
        source = _file_of(module)
        if source is None:
            raise FileNotFoundError(f"no source of {module}: the package isn't a folder of files")
        waiting.append(source)
    while waiting:
        file = waiting.pop()
        if file not in reached:
            reached.add(file)
            waiting += _imported_by(file)[1]
    digest = hashlib.sha256()
    for file in sorted(reached):
        digest.update(file.relative_to(_PACKAGE).as_posix().encode() + b"\0")
        digest.update(_imported_by(file)[0])
    return digest.hexdigest()


@cache
def _imported_by(file: Path) -> tuple[bytes, list[Path]]:
    """Return a hash of one source and of the files that it imports from this package."""
    text = file.read_bytes()
    imported = []
    for statement in _IMPORT.finditer(text):
        module, names = statement[1].decode(), (statement[2] or b"").decode()
        imported.append(_file_of(module))
        imported += [_file_of(f"{module}.{name}") for name in re.findall(r"\w+", names)]
    return hashlib.sha256(text).digest(), [file_ for file_ in imported if file_]


@cache
def _file_of(module: str) -> Path | None:
    """Return the file of a module, `None` if there is none of this name."""
    path = _PACKAGE.joinpath(*module.split(".")[1:])
    files = (path.with_suffix(".py"), path / "__init__.py")
    return next((file for file in files if file.is_file()), None)


def _user_folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rangecast"


def _temporary_folder() -> Path:
    return Path(tempfile.gettempdir()) / f"rangecast-{os.getuid()}"
