"""fsync policy: what each setting syncs, and in which order."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, get_args

import pytest

from rangecast.cli.commands.server.serve import Durability
from rangecast.server.log import durability as policy
from rangecast.server.log.acknowledged import marked_end
from rangecast.server.log.base import Draft, LogError
from rangecast.server.log.sqlite import SqliteLog
from rangecast.server.pipeline.futures import result_of
from rangecast.server.service import Service
from rangecast.server.state.edits import PutSpace
from rangecast.server.state.snapshots import SnapshotState, snapshots
from tests.support.server.serving import SPACE, T

SETTINGS = {"fsync": 2, "interval": 1, "none": 0}
"""SQLite's number for `synchronous`, by policy: FULL, NORMAL, OFF."""


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of what is synced, in order; a file is synced under the name that it has then."""
    names: list[str] = []
    for function in ("sync_file", "sync_folder"):
        original = getattr(policy, function)

        def recording(path: Path, original: object = original) -> None:
            assert callable(original)
            original(path)
            names.append(path.name)

        monkeypatch.setattr(policy, function, recording)
    return names


def test_the_shell_offers_every_policy() -> None:
    assert set(get_args(Durability)) == set(policy.SYNCHRONOUS) == set(SETTINGS)


@pytest.mark.parametrize("durability", SETTINGS)
def test_a_policy_sets_when_a_transaction_is_synced(tmp_path: Path, durability: str) -> None:
    log = SqliteLog(tmp_path, durability=durability)
    assert log._writer is not None
    assert log._writer.execute("PRAGMA synchronous").fetchone()[0] == SETTINGS[durability]
    log.append([Draft("events", 1, 0, b"x")])
    mark = marked_end(tmp_path)
    assert mark is not None
    assert mark.last == (1 if durability == "fsync" else 0)  # others are marked by a sync
    log.sync()
    mark = marked_end(tmp_path)
    assert mark is not None
    assert mark.last == 1
    log.close()


@pytest.mark.parametrize("durability", SETTINGS)
def test_a_segment_is_on_disk_before_it_has_its_name(
    tmp_path: Path, durability: str, synced: list[str]
) -> None:
    log = SqliteLog(tmp_path, durability=durability, segment=0)
    first = "log-00000000000000000001.db"
    assert synced == [f".{first}.partial", tmp_path.name]
    log.append([Draft("events", 1, 0, b"x")])
    synced.clear()
    log.append([Draft("events", 1, 0, b"y")])
    second = "log-00000000000000000002.db"
    begun = [f".{second}.partial", tmp_path.name]
    # With `none` SQLite syncs no checkpoint: the finished segment is synced as it is closed.
    assert [name for name in synced if not name.endswith("-wal")] == (
        [*begun, first] if durability == "none" else begun
    )
    log.close()


def test_a_start_syncs_what_a_killed_process_left(tmp_path: Path, synced: list[str]) -> None:
    log = SqliteLog(tmp_path)
    log.append([Draft("events", 1, 0, b"x")])
    synced.clear()
    again = SqliteLog(tmp_path)  # the first one still has its files open
    segment = "log-00000000000000000001.db"
    assert synced == [segment, f"{segment}-wal"]
    again.close()
    log.close()


@pytest.mark.parametrize("durability", ["interval", "none"])
def test_a_stop_syncs_the_log_before_it_writes_a_snapshot(
    tmp_path: Path, durability: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the snapshot may have what the log has not, and no start accepts that."""
    marked: list[int] = []
    write = SnapshotState.write

    def noted(state: SnapshotState, *arguments: Any) -> None:
        mark = marked_end(tmp_path)
        marked.append(0 if mark is None else mark.last)
        write(state, *arguments)

    async def work() -> None:
        monkeypatch.setattr(SnapshotState, "write", noted)
        service = Service(tmp_path, durability=durability)
        service.core.start()  # without maintenance, which syncs as well
        await result_of(service.core.edit(PutSpace(T, "s", SPACE.definition())))
        service.core.stop()
        assert marked == [1]

    asyncio.run(work())


def test_after_a_failed_sync_a_stop_writes_no_snapshot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the log has isn't known: a snapshot could be of another history."""

    def fails(_path: Path) -> None:
        raise OSError(5, "Input/output error")

    async def work() -> None:
        service = Service(tmp_path, durability="interval")
        service.core.start()
        await result_of(service.core.edit(PutSpace(T, "s", SPACE.definition())))
        with monkeypatch.context() as patched:
            patched.setattr(policy, "sync_file", fails)
            assert isinstance(service.core.log, SqliteLog)
            with pytest.raises(LogError, match="writing failed"):
                service.core.log.sync()
        service.core.stop()
        assert snapshots(tmp_path) == []
        Service(tmp_path).close()  # the folder is released

    asyncio.run(work())
