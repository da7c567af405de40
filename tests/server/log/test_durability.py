"""fsync policy: what each setting syncs, and in which order."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest

from rangecast.cli.commands.server.serve import Durability
from rangecast.server.log import durability as policy
from rangecast.server.log.acknowledged import marked_end
from rangecast.server.log.base import Draft
from rangecast.server.log.sqlite import SqliteLog

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
