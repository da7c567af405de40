"""The server's log: what it keeps, what it recognises, what it does on a full disk."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from rangecast.server.delivery.messages import Gap
from rangecast.server.log.base import Draft, Log, LogError, LogFullError, MemoryLog, Unit
from rangecast.server.log.segment import checked_units
from rangecast.server.log.sqlite import SqliteLog
from rangecast.server.log_tools import checked, dumped, repaired
from rangecast.server.maintenance import Retention
from rangecast.server.service import Service
from rangecast.server.state.edits import PutConsumer, PutSpace, PutSubscription
from rangecast.server.state.lineage import LostPositionError
from tests.support.server.service import EVENTS, SPACE, T, all_of, edit, prepared, publish, put, run


def filled(log: Log, units: int = 12) -> list[Unit]:
    dice = random.Random(3)
    found: list[Unit] = []
    while len(found) < units:
        group = [
            Draft("events", dice.randint(1, 4), number, dice.randbytes(dice.randint(0, 300)))
            for number in range(min(dice.randint(1, 3), units - len(found)))
        ]
        found += log.append(group)
    return found


@pytest.mark.parametrize("segment", [1 << 30, 700, 0])
def test_what_was_written_is_read_from_any_place(tmp_path: Path, segment: int) -> None:
    memory = MemoryLog()
    log = SqliteLog(tmp_path, segment=segment)
    units = filled(log)
    assert [one[:5] for one in filled(memory)] == [one[:5] for one in units]
    for one in (log, memory):
        for after in range(log.last + 1):
            found: list[Unit] = []
            at = after
            while some := one.read(at, 400):
                found += some
                at = some[-1].last
            assert [unit[:5] for unit in found] == [u[:5] for u in units if u.last > after]
    log.close()
    again = SqliteLog(tmp_path, segment=segment)
    assert (again.epoch, again.last, again.chain) == (log.epoch, log.last, units[-1].chain)
    more = filled(again)
    assert more[0].first == units[-1].last + 1
    again.close()
    assert [unit.chain for unit in checked_units(tmp_path)] == [u.chain for u in units + more]


def test_retention_drops_whole_segments(tmp_path: Path) -> None:
    log = SqliteLog(tmp_path, segment=500)
    units = filled(log, 30)
    ends = [end for end, _, _ in log.segment_sizes()]
    assert len(ends) > 3
    log.drop(ends[1])
    assert log.first == ends[1] + 1
    assert log.read(0, 1 << 30)[0].first == ends[1] + 1
    assert log.read(ends[-1], 1 << 30)[-1] == units[-1]
    log.close()
    assert checked(tmp_path).startswith(f"{tmp_path}: the log is intact: seqs {ends[1] + 1:,} to")


def test_the_size_of_a_log_is_known_while_retention_removes_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = SqliteLog(tmp_path)
    filled(log)
    size, glob = log.bytes, Path.glob
    gone = tmp_path / "log-00000000000000000000.db-wal"

    def listed(folder: Path, pattern: str) -> list[Path]:
        return [*glob(folder, pattern), gone]  # listed, and removed before it is looked at

    monkeypatch.setattr(Path, "glob", listed)
    assert log.bytes == size
    log.close()


def test_a_damaged_log_is_recognised_wherever_it_is_damaged(tmp_path: Path) -> None:
    folder = tmp_path / "whole"
    folder.mkdir()
    log = SqliteLog(folder)
    units = filled(log)
    log.close()
    path = next(folder.glob("log-*.db"))
    good = path.read_bytes()
    dice = random.Random(1)
    found = 0
    for place in dice.sample(range(100, len(good)), 500):
        copy = tmp_path / "copy"
        copy.mkdir()
        bad = bytearray(good)
        bad[place] ^= 1 << dice.randrange(8)
        (copy / path.name).write_bytes(bad)
        try:
            assert list(checked_units(copy)) == units
        except LogError:
            found += 1
        shutil.rmtree(copy)
    assert found > 50  # the others were in space that nothing uses


def test_a_damaged_log_is_rejected_checked_and_repaired(tmp_path: Path) -> None:
    async def work() -> None:
        service = Service(tmp_path)
        await prepared(service)
        await edit(service, put("all", "one", "price is not null"))
        for at in range(0, 60, 10):
            await publish(service, EVENTS[at : at + 10])
        epoch = service.core.log.epoch
        service.core.pipeline.stop()
        service.close()
        path = next(tmp_path.glob("log-*.db"))
        data = path.read_bytes()
        place = data.index(EVENTS[35])
        path.write_bytes(data[:place] + b"#" + data[place + 1 :])
        with pytest.raises(LogError, match="the unit at seq 35 is damaged"):
            Service(tmp_path)
        with pytest.raises(LogError, match="the unit at seq 35 is damaged"):
            checked(tmp_path)
        with pytest.raises(LogError, match="--force"):
            repaired(tmp_path, force=False)
        assert "cut after seq 34" in repaired(tmp_path, force=True)
        assert "nothing to repair" in repaired(tmp_path, force=True)
        assert len(list(tmp_path.glob("damaged-*/log-*.db"))) == 1
        service = Service(tmp_path)
        service.start()
        assert service.core.seq_of(f"{epoch}:34") == 34
        await publish(service, EVENTS[:20])
        assert service.core.epoch != epoch
        with pytest.raises(LostPositionError) as lost:  # these seqs were given before
            service.core.seq_of(f"{epoch}:35")
        assert lost.value.resume == 34
        assert len(await all_of(service, "one")) == 50
        service.stop()

    run(work())


def test_a_full_disk_rejects_writes_and_serves_on(tmp_path: Path) -> None:
    async def work() -> None:
        service = Service(tmp_path)
        await prepared(service)
        await edit(service, put("all", "one", "price is not null"))
        acked: list[int] = []
        accepted = await publish(service, EVENTS[:50])
        acked += range(accepted.first, accepted.first + 50)
        log: Any = service.core.log
        pages = log._writer.execute("PRAGMA page_count").fetchone()[0]
        log._writer.execute(f"PRAGMA max_page_count = {pages + 1}")
        rejected = 0
        for _ in range(20):
            try:
                accepted = await publish(service, EVENTS)
                acked += range(accepted.first, accepted.first + accepted.count)
            except LogFullError:
                rejected += 1
        assert rejected > 10
        with pytest.raises(LogFullError, match="free some space"):
            await edit(service, *[put(f"s{n}", "one", "price < 5") for n in range(400)])
        assert "s0" not in service.core.registry.space(T, "market").live
        assert service.why_not_ready() == "disk full"
        assert len(await all_of(service, "one")) == len(acked)  # deliveries go on
        log._writer.execute("PRAGMA max_page_count = 1000000")
        accepted = await publish(service, EVENTS[:5])
        acked += range(accepted.first, accepted.first + 5)
        assert service.why_not_ready() == ""
        service.core.pipeline.stop()
        service.close()
        assert [one.seq for one in await _reopened(tmp_path)] == acked

    run(work())


def test_a_large_group_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    log: Any = SqliteLog(tmp_path)
    drafts = [Draft("any", 1, 0, b"%d" % n) for n in range(1_050)]
    assert [unit.first for unit in log.append(drafts)] == list(range(1, 1_051))
    pages = log._writer.execute("PRAGMA page_count").fetchone()[0]
    log._writer.execute(f"PRAGMA max_page_count = {pages + 20}")
    with pytest.raises(LogFullError):
        log.append([Draft("any", 1, 0, b"x" * 500)] * 1_050)
    log._writer.execute("PRAGMA max_page_count = 1000000")
    assert log.append(drafts[:2])[0].first == 1_051
    log.close()
    bodies = [unit.body for unit in checked_units(tmp_path)]
    assert bodies == [b"%d" % n for n in [*range(1_050), 0, 1]]


async def _reopened(folder: Path) -> list[Any]:
    service = Service(folder)
    service.start()
    found = await all_of(service, "one")
    service.stop()
    return found


def test_a_failed_write_stops_the_server_and_loses_nothing(tmp_path: Path) -> None:
    async def work() -> None:
        stopped: list[BaseException] = []
        service = Service(tmp_path, stopped=stopped.append)
        await prepared(service)
        log: Any = service.core.log
        log._writer.close()  # as a disk that has gone
        with pytest.raises(Exception, match=r"closed|writing failed"):
            await publish(service, EVENTS[:5])
        with pytest.raises(Exception, match="stopping"):
            await publish(service, EVENTS[:5])
        assert len(stopped) == 1
        service.close()
        service = Service(tmp_path)
        assert service.core.log.last == 3
        service.close()

    run(work())


def test_one_folder_one_server(tmp_path: Path) -> None:
    service = Service(tmp_path)
    with pytest.raises(LogError, match="another server is using this folder"):
        Service(tmp_path)
    service.close()
    Service(tmp_path).close()


def test_what_retention_drops_is_told_as_a_gap(tmp_path: Path) -> None:
    async def work() -> None:
        service = Service(tmp_path, retention=Retention(bytes=1))
        log: Any = service.core.log
        log._segment_bytes = 1000
        service.start()
        await edit(service, PutSpace(T, "market", SPACE.definition()))
        await edit(service, PutConsumer(T, "one", "market"))
        await edit(service, PutSubscription(T, "all", "market", "price is not null", "one"))
        for at in range(0, 100, 10):
            await publish(service, EVENTS[at : at + 10])
        service.maintenance.run_once()
        assert service.core.log.first > 50
        listener = service.core.hub.open(service.core.registry.consumer(T, "one"))
        batch = await listener.next_batch(1000, wait=0)
        assert batch.gap == Gap(2, service.core.log.first - 1)
        assert batch.messages[0].seq == service.core.log.first
        service.core.hub.close(listener)
        service.stop()
        service = Service(tmp_path)
        service.start()
        assert (await publish(service, EVENTS[:1], wants_matches=True)).matches == [["all"]]
        service.stop()

    run(work())


def test_what_retention_drops_while_it_is_read_is_told_as_a_gap(tmp_path: Path) -> None:
    async def work() -> None:
        service = Service(tmp_path)
        log: Any = service.core.log
        log._segment_bytes = 1000
        await prepared(service)
        await edit(service, put("all", "one", "price is not null or price is null"))
        first = (await publish(service, EVENTS[:10])).first
        for at in range(10, 100, 10):
            await publish(service, EVENTS[at : at + 10])
        reader = service.core.hub.reader(service.core.registry.consumer(T, "one"))
        assert reader.read(first - 1, log.last, 5).messages[0].seq == first
        read, ends = log.read, [end for end, _, _ in log.segment_sizes()]

        def dropped_first(after: int, most: int) -> list[Unit]:
            log.read = read
            log.drop(ends[2])
            found: list[Unit] = read(after, most)
            return found

        log.read = dropped_first
        batch = reader.read(first + 2, log.last, 500)
        assert batch.gap == Gap(first + 2, ends[2])
        assert batch.messages[0].seq == ends[2] + 1
        service.stop()

    run(work())


def test_a_segment_that_is_full_is_a_file_by_itself(tmp_path: Path) -> None:
    """Also while somebody reads it: a copy of the files of closed segments has everything."""
    log = SqliteLog(tmp_path, segment=500)
    log.append([Draft("events", 1, 0, b"x" * 600)])
    assert log.read(0, 1)  # holds the file open
    log.append([Draft("events", 1, 0, b"y")])
    assert [one.stat().st_size for one in tmp_path.glob(f"log-{1:020}.db-wal")] in ([], [0])
    log.close()


def test_a_dump_says_everything(tmp_path: Path) -> None:
    async def work() -> None:
        service = Service(tmp_path)
        await prepared(service)
        await edit(service, put("all", "one", "price < 5"))
        await publish(service, EVENTS[:2])
        consumer = service.core.registry.consumer(T, "one")
        service.core.acknowledge(consumer, 5)
        service.stop()

    run(work())
    lines = [json.loads(line) for line in dumped(tmp_path, 1)]
    assert [line["seq"] for line in lines] == [2, 3, 4, 5, 6, 7]
    assert lines[2]["edit"]["filter"] == "price < 5"
    assert lines[3]["event"] == json.loads(EVENTS[0])
    assert lines[5]["acks"] == {"default/one": 5}
