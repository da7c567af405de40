"""Data folders of servers, written once and kept: they open, or are rejected with what to do."""

from __future__ import annotations

import asyncio
import json
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from rangecast.server.log.base import Draft, LogError
from rangecast.server.log.segment import _digest
from rangecast.server.log.sqlite import SqliteLog
from rangecast.server.service import Service
from rangecast.server.state.snapshots import snapshots
from tests.support.server.golden_server import FOLDER, crash, told, write_state
from tests.support.server.serving import ids_of


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
    assert service.core.snapshot_seq == (newest if has_snapshot else 0)
    assert 0 < newest < service.core.log.last
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
        connection.execute("UPDATE head SET version = ?, mark = ?", (version, _digest(*head)))
    connection.close()


def test_a_log_of_a_newer_format_is_rejected(data: Path) -> None:
    write_version(max(data.glob("log-*.db")), 2)
    with pytest.raises(LogError, match="format version 2; this version of rangecast reads 1") as e:
        Service(data)
    assert "hint: use the version that wrote it" in str(e.value)


def state_of(data: Path) -> tuple[Path, dict[str, Any]]:
    (path,) = data.glob("snapshot-*/state.json")
    state: dict[str, Any] = json.loads(path.read_text())
    return path, state


def rejection_of_what_is_left_alone(data: Path) -> str:
    """The log has everything; where it hasn't any more, the folder is rejected, by this text."""
    service = Service(data)
    assert service.core.snapshot_seq == 0
    answers = json.loads((FOLDER / "answers.json").read_text())
    assert asyncio.run(told(service)) == answers
    min(data.glob("log-*.db")).unlink()  # as retention does
    with pytest.raises(LogError, match="no snapshot has the part before") as e:
        Service(data)
    return str(e.value)


def test_a_snapshot_of_a_newer_format_is_left_alone(data: Path) -> None:
    path, state = state_of(data)
    write_state(path, json.dumps({"version": 3, "other": state}))
    rejection = rejection_of_what_is_left_alone(data)
    assert "has format version 3; this version of rangecast reads 1 and 2" in rejection
    assert "use the version that wrote it" in rejection


def without_offsets(state: dict[str, Any]) -> None:
    del state["offsets"]


def with_shorter_consumers(state: dict[str, Any]) -> None:
    state["consumers"] = [one[:13] for one in state["consumers"]]


@pytest.mark.parametrize("change", [without_offsets, with_shorter_consumers])
def test_a_snapshot_of_another_shape_is_left_alone(data: Path, change: Any) -> None:
    path, state = state_of(data)
    change(state)
    write_state(path, json.dumps(state))
    assert "use the version that wrote it" in rejection_of_what_is_left_alone(data)


FIRST_RECORDS = [
    (
        "edits",
        [
            (
                '{"op":"put-space","tenant":"t","name":"s","definition":'
                '{"attribute":[{"name":"price","type":"number"},{"name":"who","type":"string"}]}}'
            ),
            '{"op":"put-consumer","tenant":"t","name":"all","space":"s"}',
            '{"op":"put-consumer","tenant":"t","name":"gone","space":"s"}',
            (
                '{"op":"subscribe","tenant":"t","name":"ann","space":"s","filter":"who = \'ann\'",'
                '"consumer":"all"}'
            ),
            '{"op":"subscribe","tenant":"t","name":"low","space":"s","filter":"price < 5"}',
            '{"op":"subscribe","tenant":"t","name":"old","space":"s","filter":"true"}',
            '{"op":"put-token","tenant":"t","name":"aa","label":"l","scopes":["read"]}',
            '{"op":"put-token","tenant":"t","name":"bb","label":"m","scopes":[]}',
            '{"op":"put-tenant","tenant":"","name":"t"}',
        ],
    ),
    ("events", ['{"price": 3, "who": "ann"}', '{"price": 9}']),
    (
        "edits",
        [
            '{"op":"unsubscribe","tenant":"t","name":"old","space":"s"}',
            '{"op":"delete-consumer","tenant":"t","name":"gone"}',
            '{"op":"delete-token","tenant":"","name":"bb"}',
            '{"op":"put-board","tenant":"t","name":"b","k":1}',
            '{"op":"put-interest","tenant":"t","name":"i","board":"b","position_lo":0,"position_hi":1}',
        ],
    ),
    ("acks", ['{"t/all":10}']),
    ("events", ['{"who": "ann"}']),
]
"""Content of a log without any optional field."""


def test_records_with_nothing_but_what_they_need_are_read(tmp_path: Path) -> None:
    log = SqliteLog(tmp_path)
    for kind, lines in FIRST_RECORDS:
        joined = {
            "edits": f"[{','.join(lines)}]",
            "events": "\n".join(['{"tenant":"t","space":"s"}', *lines]),
            "acks": lines[0],
        }
        log.append([Draft(kind, len(lines), 1, joined[kind].encode())])
    log.close()
    service = Service(tmp_path)
    registry = service.core.registry
    entry, owner = registry.space("t", "s"), registry.consumer("t", "all")
    assert [*registry.consumers] == [("t", "all")]
    assert {
        one.id: (one.filter, one.score, one.weights, one.expires) for one in entry.live.values()
    } == {
        "ann": ("who = 'ann'", 0.0, {}, 0),
        "low": ("price < 5", 0.0, {}, 0),
    }
    options = (
        owner.delivery,
        owner.on_gap,
        owner.max_per_event,
        owner.max_per_second,
        owner.now_from,
        owner.stopped,
    )
    assert options == ({}, "report", 0, 0, 0, "")
    assert (owner.cursor, owner.dead_letters) == (10, {})
    assert [(one.label, one.expires) for one in registry.tokens.values()] == [("l", 0)]
    assert registry.tenants == {"t": {}}
    board = registry.board("t", "b")
    assert (board.made.k, board.made.definition, board.made.upper_bound_attribute) == (1, None, "")
    assert (board.live["i"].position_lo, board.live["i"].position_hi, board.live["i"].k) == (
        0.0,
        1.0,
        0,
    )
    units = [one for one in service.core.log.read(0, 1 << 20) if one.kind != "acks"]
    assert registry.retained.of("t") == sum(len(one.body) for one in units)

    async def read() -> list[Any]:
        service.start()
        batch = service.core.hub.reader(owner).read(0, service.core.log.last, 100)
        await crash(service)
        return [(one.seq, ids_of(one)) for one in batch.messages]

    assert asyncio.run(read()) == [(10, ["ann"]), (18, ["ann"])]


@pytest.mark.parametrize(
    ("kind", "body", "words"),
    [
        (
            "edits",
            b'[{"op":"put-planet","tenant":"t","name":"n"}]',
            "that this version of rangecast doesn't",
        ),
        ("planets", b"", "the log has 'planets'"),
    ],
)
def test_what_a_newer_server_wrote_is_rejected(
    data: Path, kind: str, body: bytes, words: str
) -> None:
    log = SqliteLog(data)
    (unit,) = log.append([Draft(kind, 1, 0, body)])
    log.close()
    with pytest.raises(LogError, match=words) as e:
        Service(data)
    assert f"at seq {unit.first}" in str(e.value)
    assert "hint: use the version that wrote it" in str(e.value)


def test_nothing_of_a_rejected_folder_is_changed(data: Path) -> None:
    write_version(max(data.glob("log-*.db")), 2)
    before: dict[Any, bytes] = {one: one.read_bytes() for one in data.rglob("*") if one.is_file()}
    with pytest.raises(LogError):
        Service(data)
    after = {one: one.read_bytes() for one in data.rglob("*") if one.is_file()}
    assert {path: text for path, text in after.items() if path.name != "lock"} == before
