"""Data folders of servers, written once and kept: they open, or are refused with what to do."""

from __future__ import annotations

import asyncio
import json
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from rangecast.server.log import LogError
from rangecast.server.service import Service
from rangecast.server.snapshots import snapshots
from rangecast.server.sqlite_log import SqliteLog, _mark
from tests.golden_server import FOLDER, told


@pytest.fixture
def data(tmp_path: Path) -> Path:
    shutil.copytree(FOLDER / "data", tmp_path / "data")
    return tmp_path / "data"


@pytest.mark.parametrize("has_snapshot", [True, False])
def test_the_golden_folder_opens_and_means_what_it_meant(data: Path, has_snapshot: bool) -> None:
    (newest,) = snapshots(data)
    if not has_snapshot:
        shutil.rmtree(data / f"snapshot-{newest:020}")
    service = Service(data)
    assert service.snapshot_seq == (newest if has_snapshot else 0)
    assert 0 < newest < service.log.last
    answers = json.loads((FOLDER / "answers.json").read_text())
    assert asyncio.run(told(service)) == answers


def test_the_golden_folder_is_small() -> None:
    assert sum(one.stat().st_size for one in FOLDER.rglob("*") if one.is_file()) < 150_000


def write_version(path: Path, version: int) -> None:
    """Let a segment say that it has another format."""
    connection = sqlite3.connect(path)
    with connection:
        epoch, first, chain = connection.execute("SELECT epoch, first, chain FROM head").fetchone()
        head = (epoch, version, first, chain)
        connection.execute("UPDATE head SET version = ?, mark = ?", (version, _mark(*head)))
    connection.close()


def test_a_log_of_a_newer_format_is_refused(data: Path) -> None:
    write_version(max(data.glob("log-*.db")), 2)
    with pytest.raises(LogError, match="has format version 2, this rangecast reads version 1") as e:
        Service(data)
    assert "to do: use the version that wrote it" in str(e.value)


def newer_snapshot(data: Path) -> None:
    (path,) = data.glob("snapshot-*/state.json")
    state = json.loads(path.read_text())
    path.write_text(json.dumps({"version": 2, "other": state}))


def test_a_snapshot_of_a_newer_format_is_left_alone(data: Path) -> None:
    """The log has everything; where it hasn't any more, the folder is refused."""
    newer_snapshot(data)
    service = Service(data)
    assert service.snapshot_seq == 0
    answers = json.loads((FOLDER / "answers.json").read_text())
    assert asyncio.run(told(service)) == answers
    min(data.glob("log-*.db")).unlink()  # as retention does
    with pytest.raises(LogError, match="no snapshot has what was before") as e:
        Service(data)
    assert "has format version 2, this rangecast reads version 1" in str(e.value)
    assert "use the version that wrote it" in str(e.value)


@pytest.mark.parametrize(
    ("kind", "body", "words"),
    [
        ("edits", b'[{"op":"put-planet","tenant":"t","name":"n"}]', "that this rangecast doesn't"),
        ("planets", b"", "the log has 'planets'"),
    ],
)
def test_what_a_newer_server_wrote_is_refused(
    data: Path, kind: str, body: bytes, words: str
) -> None:
    from rangecast.server.log import Draft

    log = SqliteLog(data)
    (unit,) = log.append([Draft(kind, 1, 0, body)])
    log.close()
    with pytest.raises(LogError, match=words) as e:
        Service(data)
    assert f"at seq {unit.first}" in str(e.value)
    assert "to do: use the version that wrote it" in str(e.value)


def test_nothing_of_a_refused_folder_is_changed(data: Path) -> None:
    write_version(max(data.glob("log-*.db")), 2)
    before: dict[Any, bytes] = {one: one.read_bytes() for one in data.rglob("*") if one.is_file()}
    with pytest.raises(LogError):
        Service(data)
    after = {one: one.read_bytes() for one in data.rglob("*") if one.is_file()}
    assert {path: text for path, text in after.items() if path.name != "lock"} == before
