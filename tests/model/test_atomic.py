"""Whole files and folders: writers of one name at the same time, readers meanwhile, leftovers."""

import errno
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from rangecast.errors import SnapshotError
from rangecast.model.io import atomic
from rangecast.model.io.atomic import atomic_file, atomic_folder, write_whole
from rangecast.model.io.writer import TableWriter
from rangecast.model.snapshot import load_arrays, save_arrays

Outcome = list[BaseException | None]


def at_once(*calls: Callable[[], None]) -> Outcome:
    """Run calls in threads that start together; return what each raised."""
    start = threading.Barrier(len(calls))
    outcome: Outcome = [None] * len(calls)

    def run(index: int) -> None:
        start.wait()
        try:
            calls[index]()
        except BaseException as error:
            outcome[index] = error

    threads = [threading.Thread(target=run, args=(index,)) for index in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return outcome


def save(path: Path, value: int, *, overwrite: bool = False) -> None:
    arrays = {name: np.full(50, value) for name in ("a", "b", "c")}
    save_arrays(path, "test", arrays, {"value": value}, overwrite=overwrite)


def value_of(path: Path, *, verify: bool = True) -> int:
    """Return the one value that a whole snapshot holds, in its arrays and in its meta data."""
    arrays, meta = load_arrays(path, "test", verify=verify)
    values = {int(one) for array in arrays.values() for one in array} | {meta["value"]}
    assert len(values) == 1, f"parts of several snapshots: {values}"
    return values.pop()


@pytest.mark.parametrize("overwrite", [False, True])
def test_of_threads_that_save_one_name_at_once_one_wins(tmp_path: Path, overwrite: bool) -> None:
    for turn in range(20):
        path = tmp_path / f"s{turn}"

        def saving(value: int, path: Path = path) -> Callable[[], None]:
            return lambda: save(path, value, overwrite=overwrite)

        outcome = at_once(*map(saving, range(3)))
        won = [value for value in range(3) if outcome[value] is None]
        lost = [one for one in outcome if one is not None]
        assert won, outcome
        assert len(won) == (3 if overwrite else 1)
        assert all(isinstance(one, SnapshotError) and "already exists" in str(one) for one in lost)
        assert value_of(path) in won
        assert [one.name for one in tmp_path.iterdir() if one.name.startswith(".")] == []


@pytest.mark.parametrize("has_exchange", [True, False])
def test_a_snapshot_is_there_whole_at_every_moment_of_an_overwrite(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_exchange: bool
) -> None:
    path = tmp_path / "s"
    save(path, 0)
    if not has_exchange:
        monkeypatch.setattr(atomic, "_rename", unsupported)
    done = threading.Event()
    seen: set[int] = set()

    def read() -> None:
        while not done.is_set():
            try:
                seen.add(value_of(path, verify=False))
            except SnapshotError as error:
                if has_exchange or "no snapshot found" not in str(error):
                    raise

    def write() -> None:
        try:
            for value in range(1, 60):
                save(path, value, overwrite=True)
        finally:
            done.set()

    assert at_once(read, read, write) == [None, None, None]
    assert value_of(path) == 59
    assert len(seen) > 1


def unsupported(source: Path, target: Path, _flag: int) -> None:
    raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS), str(source), None, str(target))


def test_an_overwrite_that_fails_keeps_the_old_snapshot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "s"
    save(path, 1)

    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    rename = Path.rename

    def full_for_new(self: Path, target: Path) -> Path:
        return full() if self.suffix == ".partial" else rename(self, target)  # type: ignore[func-returns-value]

    for exchange in (full, unsupported):
        with monkeypatch.context() as patch:
            patch.setattr(atomic, "_rename", exchange)
            patch.setattr(Path, "rename", full_for_new)
            with pytest.raises(SnapshotError, match="No space left"):
                save(path, 2, overwrite=True)
        assert value_of(path) == 1
        assert [one.name for one in tmp_path.iterdir()] == ["s"]


LEAVE = """
import os, sys
from pathlib import Path
from rangecast.model.io.atomic import PendingFile, atomic_folder
path = Path(sys.argv[1])
with atomic_folder(path) as folder:
    (folder / "half").write_bytes(b"x")
    pending = PendingFile(path.with_name("t.csv"))
    print(folder.name, pending._partial.name, flush=True)
    os._exit(1) if sys.argv[2] == "crash" else sys.stdin.read()
"""


def leave(path: Path, how: str) -> subprocess.Popen[bytes]:
    given = [sys.executable, "-c", LEAVE, str(path), how]
    return subprocess.Popen(given, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def age(folder: Path) -> None:
    for one in folder.iterdir():
        os.utime(one, (1, 1))


def write_both(path: Path) -> None:
    with atomic_folder(path) as folder:
        (folder / "whole").write_bytes(b"y")
    write_whole(path.with_name("t.csv"), b"z")


def test_what_a_crashed_writer_left_is_removed_and_blocks_nothing(tmp_path: Path) -> None:
    crashed = leave(tmp_path / "s", "crash")
    out, _ = crashed.communicate()
    assert set(out.decode().split()) == {one.name for one in tmp_path.iterdir()}
    age(tmp_path)
    write_both(tmp_path / "s")
    assert sorted(one.name for one in tmp_path.iterdir()) == ["s", "t.csv"]
    assert [one.name for one in (tmp_path / "s").iterdir()] == ["whole"]


def test_what_a_live_or_new_writer_has_is_left_alone(tmp_path: Path) -> None:
    writer = leave(tmp_path / "s", "wait")
    try:
        assert writer.stdout is not None
        names = set(writer.stdout.readline().decode().split())
        age(tmp_path)
        write_both(tmp_path / "s")
        assert {one.name for one in tmp_path.iterdir()} == names | {"s", "t.csv"}
    finally:
        writer.kill()
        writer.communicate()
    write_whole(tmp_path / "t.csv", b"new")
    left = {one.name for one in tmp_path.iterdir()}
    assert len(left & names) == 1, (
        "dead and old: the file is removed, the folder is of another name"
    )


def test_two_writers_of_one_table_dont_mix_their_rows(tmp_path: Path) -> None:
    schema = pa.schema({"n": pa.int64()})
    path = tmp_path / "t.csv"
    with TableWriter(path, schema) as one:
        one.write(pa.record_batch({"n": [1, 1]}, schema))
        with TableWriter(path, schema) as other:
            other.write(pa.record_batch({"n": [2]}, schema))
        assert path.read_text() == "n\n2\n"
        one.write(pa.record_batch({"n": [1]}, schema))
    assert path.read_text() == "n\n1\n1\n1\n"
    assert [one.name for one in tmp_path.iterdir()] == ["t.csv"]


def test_files_written_at_once_are_one_of_them(tmp_path: Path) -> None:
    path = tmp_path / "f"
    texts = [bytes([65 + index]) * 10_000 for index in range(4)]
    for _ in range(20):
        writes = [lambda text=text: write_whole(path, text) for text in texts]
        assert at_once(*writes) == [None] * 4
        assert path.read_bytes() in texts


def test_a_block_that_raises_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "f"
    write_whole(path, b"old")

    def stop() -> None:
        with atomic_file(path) as file:
            file.write(b"new")
            raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        stop()
    assert path.read_bytes() == b"old"
    with pytest.raises(FileExistsError), atomic_folder(path):
        pass
    assert [one.name for one in tmp_path.iterdir()] == ["f"]


def test_links_rights_long_names_and_pipes(tmp_path: Path) -> None:
    real = tmp_path / "real"
    write_whole(real, b"1", mode=0o640)
    (tmp_path / "link").symlink_to(real)
    write_whole(tmp_path / "link", b"2")
    assert (tmp_path / "link").is_symlink()
    assert real.read_bytes() == b"2"
    assert real.stat().st_mode & 0o777 == 0o640
    name = "n" * 255
    write_whole(tmp_path / name, b"3")
    assert (tmp_path / name).read_bytes() == b"3"
    pipe = tmp_path / "pipe.csv"
    os.mkfifo(pipe)
    got: list[bytes] = []
    outcome = at_once(lambda: got.append(pipe.read_bytes()), lambda: write_whole(pipe, b"4"))
    assert outcome == [None, None]
    assert got == [b"4"]
    assert pipe.is_fifo()
