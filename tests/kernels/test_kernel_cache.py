"""Compiled kernels on disk: only in a folder of ours, and a damaged file costs time, not a run."""

import fcntl
import os
import subprocess
import sys
import time
from pathlib import Path

import numba
import pytest
from numba.core.registry import cpu_target

from rangecast import Number, Space
from rangecast.cover import CoverSet, graph
from rangecast.cover.choose import INDEXES
from rangecast.cover.graph import kernels_for
from rangecast.kernels import jit
from rangecast.kernels.jit import cache_folder, sources_digest
from rangecast.kernels.private_folder import private_folder

USE = """
import sys
import numpy as np
from rangecast.kernels.jit import timing_compilation
from rangecast.kernels.curves.morton import key_of
with timing_compilation(lambda: print("compiled")):
    assert key_of(np.array([1, 2]), 2, 2) == 0b10110
"""


def folders(monkeypatch, user: Path, temporary: Path) -> Path | None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(user))
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    return cache_folder.__wrapped__()


@pytest.fixture
def no_user_folder(tmp_path):
    (tmp_path / "file").touch()
    return tmp_path / "file"  # nothing can be created in it


def test_the_folder_is_the_users_own_and_nobody_elses(monkeypatch, tmp_path):
    before = os.umask(0o002)  # a group of colleagues
    try:
        folder = folders(monkeypatch, tmp_path / "user", tmp_path)
    finally:
        os.umask(before)
    assert folder.is_relative_to(tmp_path / "user")
    for place in (folder, folder.parent, tmp_path / "user"):
        assert place.stat().st_mode & 0o777 == 0o700


def test_without_a_user_folder_it_lies_in_the_temporary_folder(
    monkeypatch, tmp_path, no_user_folder
):
    tmp_path.chmod(0o1777)
    folder = folders(monkeypatch, no_user_folder, tmp_path)
    assert folder.is_relative_to(tmp_path / f"rangecast-{os.getuid()}")
    assert folder.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("trap", ["open to all", "a link", "another user's", "a folder above"])
def test_a_folder_that_others_can_write_is_not_used(monkeypatch, tmp_path, no_user_folder, trap):
    tmp_path.chmod(0o1777)
    if trap == "another user's":
        theirs = os.getuid()
        monkeypatch.setattr(os, "getuid", lambda: theirs + 1)
    folder = tmp_path / f"rangecast-{os.getuid()}"
    if trap == "a link":
        (tmp_path / "elsewhere").mkdir()
        (tmp_path / "elsewhere").chmod(0o777)
        folder.symlink_to(tmp_path / "elsewhere")
    else:
        folder.mkdir()
        folder.chmod(0o777 if trap == "open to all" else 0o700)
    if trap == "a folder above":
        tmp_path.chmod(0o777)
    assert folders(monkeypatch, no_user_folder, tmp_path) is None
    with pytest.raises(PermissionError, match=r"others|link|another user"):
        private_folder(folder)


def test_a_user_without_a_home_has_the_temporary_folder(monkeypatch, tmp_path):
    def no_home(_kind):
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", classmethod(no_home))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert cache_folder.__wrapped__().is_relative_to(tmp_path)


def start(folder: Path, code: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code],
        env=os.environ | {"XDG_CACHE_HOME": str(folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def compiled(process: subprocess.Popen[str]) -> int:
    """Return how often a process that has used a kernel has compiled it."""
    out, errors = process.communicate()
    assert process.returncode == 0, errors
    return out.count("compiled")


def use(folder: Path, before: str = "") -> int:
    """Run a kernel in a process of its own; return how often it was compiled."""
    return compiled(start(folder, before + USE))


@pytest.mark.process
def test_of_processes_that_need_a_kernel_at_once_one_compiles_it(tmp_path):
    folder = private_folder(tmp_path / "rangecast" / "kernels")
    with (folder / "compiling.lock").open("w") as locks:
        fcntl.lockf(locks, fcntl.LOCK_EX)  # all kernels: both wait here, whoever is faster
        both = [start(tmp_path, USE) for _ in range(2)]
        number = (folder / "compiling.lock").stat().st_ino
        while Path("/proc/locks").read_text().count(f":{number} ") < 3:
            assert all(process.poll() is None for process in both)
            time.sleep(0.02)
    assert sorted(map(compiled, both)) == [0, 1]


@pytest.mark.process
def test_a_process_that_ends_while_it_compiles_holds_nobody_up(tmp_path):
    dies = """
import os
from numba.core import event
class Dies(event.Listener):
    def on_start(self, _event): os._exit(7)
    def on_end(self, _event): pass
event.register("numba:compile", Dies())
"""
    process = start(tmp_path, dies + USE)
    process.communicate()
    assert process.returncode == 7
    assert use(tmp_path) == 1


def test_a_kernel_that_cannot_be_compiled_is_not_waited_for(tmp_path):
    fails = """
import subprocess
import sys
from numba.core import errors
from rangecast.kernels import jit
def wrong(value):
    return value.nothing
wrong.__module__ = "rangecast.kernels.bits"
try:
    jit.jit(wrong)(1)
except errors.TypingError:
    print("compiled")
lock = "import fcntl, sys; fcntl.lockf(open(sys.argv[1], 'w'), fcntl.LOCK_EX | fcntl.LOCK_NB)"
subprocess.run([sys.executable, "-c", lock, jit.cache_folder() / "compiling.lock"], check=True)
"""
    assert use(tmp_path, fails) == 2


@pytest.mark.process
def test_a_damaged_file_is_replaced(tmp_path):
    assert use(tmp_path) == 1
    assert use(tmp_path) == 0
    (kept,) = (file for file in tmp_path.rglob("*key_of*"))
    whole = kept.read_bytes()
    flipped = bytearray(whole)
    flipped[len(whole) // 2] ^= 1
    for damaged in (whole[:100], bytes(flipped)):
        kept.write_bytes(damaged)
        assert use(tmp_path) == 1
        assert use(tmp_path) == 0


def test_a_function_compiled_with_and_without_the_gil_is_kept_twice(monkeypatch, tmp_path):
    def doubled(value):
        return 2 * value

    doubled.__module__ = "rangecast.kernels.bits"
    monkeypatch.setattr(jit, "cache_folder", lambda: tmp_path)
    for count, compiled in enumerate((jit.jit, jit.jit_single), 1):
        assert compiled(doubled)(3) == 6
        assert len(list(tmp_path.glob("kernels.bits.*"))) == count


def test_a_full_disk_keeps_nothing_and_stops_nobody(tmp_path):
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (500, 500))\n"
    assert use(tmp_path, limit) == 1
    assert not [file for file in tmp_path.rglob("*") if file.is_file() and file.stat().st_size]


def test_a_kernel_is_kept_under_all_that_it_imports_and_nothing_else(monkeypatch, tmp_path):
    sources = {
        "kernels/bits.py": "",
        "kernels/heap.py": "",
        "match/__init__.py": "",
        "match/tree.py": "from rangecast.kernels import (\n    bits,\n)\n",
        "match/search.py": "if True:\n    from rangecast.match.tree import walk\n",
        "match/other.py": "import rangecast.kernels.heap\n",
    }
    for name, text in sources.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(jit, "_PACKAGE", tmp_path)

    def digests() -> list[str]:
        for function in (sources_digest, jit._imported_by, jit._file_of):
            function.cache_clear()
        return [sources_digest(f"rangecast.match.{name}") for name in ("search", "other")]

    search, other = digests()
    (tmp_path / "kernels/bits.py").write_text("# changed")
    changed, same = digests()
    assert changed != search
    assert same == other
    (tmp_path / "kernels/heap.py").write_text("# changed")
    assert digests()[0] == changed
    assert digests()[1] != other
    with pytest.raises(FileNotFoundError):
        sources_digest("rangecast.match.gone")
    for function in (sources_digest, jit._imported_by, jit._file_of):
        function.cache_clear()


def test_kernels_that_numba_completes_by_type_are_kept_under_the_sources_of_the_type(
    monkeypatch,
):
    """The covering graphs don't import the indexes whose kernels they call."""
    space = Space([Number("a")])
    for name in INDEXES:
        index = CoverSet(space, index=name)._live.index
        state = numba.typeof(index.state.arrays)
        kernels = {
            kernels_for(index).run: (state,),
            kernels_for(index).earliest_above: (),
            graph._insert_row: (state,),
        }
        for kernel, types in kernels.items():
            before = kernel._cache._key(types, cpu_target.target_context.codegen())
            with monkeypatch.context() as changing:
                changing.setattr(jit, "_imported_by", changed(type(index).__module__))
                sources_digest.cache_clear()
                after = kernel._cache._key(types, cpu_target.target_context.codegen())
            sources_digest.cache_clear()
            assert before != after


def changed(module: str):
    """Return `_imported_by` as if the source of a module were another one."""
    imported_by, file = jit._imported_by, jit._file_of(module)
    return lambda each: (b"another", imported_by(each)[1]) if each == file else imported_by(each)
