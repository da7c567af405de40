"""Damaged files of a log: all that was acknowledged is there, or the place is named. Never less."""

from __future__ import annotations

import asyncio
import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from rangecast.server.log.acknowledged import NAME as MARK
from rangecast.server.log.acknowledged import marked_end
from rangecast.server.log.base import Draft, LogError, Unit
from rangecast.server.log.segment import checked_units
from rangecast.server.log.sqlite import SqliteLog
from rangecast.server.log_tools import checked, repaired
from rangecast.server.pipeline.futures import result_of
from rangecast.server.service import Service
from rangecast.server.state.edits import PutConsumer, PutSpace
from tests.support.server.serving import SPACE, Client, T, publish, run, serving, subscribe, until

Files = dict[str, bytes]
_HEADER, _FRAME = 32, 24 + 4096
"""Bytes of SQLite's write-ahead file."""


def drafts(count: int, at: int = 0, size: int = 120) -> list[Draft]:
    dice = random.Random(at)
    return [Draft("events", 1, at, b"%d:" % at + dice.randbytes(size)) for _ in range(count)]


def crashed(folder: Path) -> Files:
    """Return the files of a log as a killed process leaves them."""
    names = [one for one in folder.iterdir() if not one.name.endswith("-shm")]
    return {one.name: one.read_bytes()[: 1024 if one.name == MARK else None] for one in names}


def restored(folder: Path, files: Files) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for name, data in files.items():
        (folder / name).write_bytes(data)
    return folder


def units_of(folder: Path, **options: Any) -> list[Unit]:
    """Return what a start finds in a log."""
    log = SqliteLog(folder, **options)
    try:
        found: list[Unit] = []
        while some := log.read(found[-1].last if found else 0, 1 << 20):
            found += some
        assert not found or found[-1].last == log.last
        return found
    finally:
        log.close()


def judge(folder: Path, units: list[Unit], **options: Any) -> bool:
    """Return whether a damaged log is rejected; where it is read, assert that it is complete."""
    errors = []
    for read in (checked_units, units_of):
        try:
            found = list(read(folder, **options) if read is units_of else checked_units(folder))
            assert found == units, "acknowledged units are gone, silently"
        except LogError as error:
            errors.append(str(error))
    assert all(str(folder) in text for text in errors)
    return bool(errors)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Files, list[Unit]]:
    """A log of two segments: of the second, some is in the file and some in the one beside it."""
    folder = tmp_path_factory.mktemp("log")
    log: Any = SqliteLog(folder, segment=600)
    units = [unit for at in range(6) for unit in log.append(drafts(1, at))]
    assert len(list(folder.glob("log-*.db"))) == 2
    log._segment_bytes = 1 << 30
    log._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    units += [unit for at in range(6, 12) for unit in log.append(drafts(1 + at % 2, at))]
    files = crashed(folder)
    log.close()
    return files, units


def wal_in(files: Files) -> str:
    (name,) = (one for one, data in files.items() if one.endswith("-wal") and data)
    return name


def flipped(data: bytes, place: int, bit: int) -> bytes:
    return data[:place] + bytes([data[place] ^ (1 << bit)]) + data[place + 1 :]


def test_what_a_killed_process_leaves_is_whole(
    tmp_path: Path, written: tuple[Files, list[Unit]]
) -> None:
    files, units = written
    assert not judge(restored(tmp_path / "log", files), units)


@pytest.mark.parametrize("what", ["wal", "db", "mark"])
def test_a_flipped_bit_anywhere_is_found_or_does_no_harm(
    tmp_path: Path, written: tuple[Files, list[Unit]], what: str
) -> None:
    files, units = written
    wal, dice = wal_in(files), random.Random(5)
    name = {"wal": wal, "db": wal.removesuffix("-wal"), "mark": MARK}[what]
    size = len(files[name])
    places: set[int] = {*range(min(size, 100)), *dice.sample(range(size), 150)}
    if what == "wal":
        for frame in range(_HEADER, size, _FRAME):
            places |= {*range(frame, frame + 24)}
    rejected = 0
    for place in sorted(places):
        bad = files | {name: flipped(files[name], place, dice.randrange(8))}
        rejected += judge(restored(tmp_path / "log", bad), units)
    if what == "wal":  # every frame counts
        assert rejected > len(places) * 0.8
    if what == "mark":  # one of its two records is enough
        assert rejected == 0


def test_a_file_that_is_gone_is_missed(tmp_path: Path, written: tuple[Files, list[Unit]]) -> None:
    files, units = written
    first = min(one for one in files if one.endswith(".db"))  # as retention drops it
    for name in files.keys() - {first}:
        left = {other: data for other, data in files.items() if other != name}
        assert judge(restored(tmp_path / "log", left), units) or not files[name], name
    with pytest.raises(LogError, match="the log is missing; it was acknowledged up to seq"):
        SqliteLog(restored(tmp_path / "log", {MARK: files[MARK]}))


def test_a_cut_file_is_missed(tmp_path: Path, written: tuple[Files, list[Unit]]) -> None:
    files, units = written
    wal = wal_in(files)
    size = len(files[wal])
    cuts = {0, 1, 31, *range(_HEADER, size, _FRAME), *range(_HEADER - 1, size, 1999)}
    for cut in sorted(cuts):
        bad = files | {wal: files[wal][:cut]}
        assert judge(restored(tmp_path / "log", bad), units), cut
    for cut in (0, 100, 511, 512, 700):
        judge(restored(tmp_path / "log", files | {MARK: files[MARK][:cut]}), units)


def test_a_torn_end_that_was_never_acknowledged_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "made"
    folder.mkdir()
    log: Any = SqliteLog(folder)
    units = [unit for at in range(4) for unit in log.append(drafts(1, at))]
    acknowledged = crashed(folder)
    monkeypatch.setattr(log, "_note", lambda _end: None)  # the power is cut before
    more = log.append(drafts(2, 9, size=6000))
    files = crashed(folder)
    epoch = log.epoch
    log.close()
    wal = wal_in(files)
    begin, end = len(acknowledged[wal]), len(files[wal])
    assert end - begin > 2 * _FRAME
    dice = random.Random(1)
    for cut in {begin, begin + 10, *range(begin, end, _FRAME), *dice.sample(range(begin, end), 20)}:
        torn = files[wal][:cut] + b"\0" * (end - cut) * dice.randrange(2)
        copy = restored(tmp_path / "log", files | {wal: torn})
        assert not judge(copy, units)
        again = SqliteLog(copy)
        assert again.epoch == epoch
        assert again.append(drafts(1))[0].first == units[-1].last + 1
        again.close()
    assert units_of(restored(tmp_path / "log", files)) == units + more


def test_a_mark_that_a_power_cut_left_behind_is_no_damage(
    tmp_path: Path, written: tuple[Files, list[Unit]]
) -> None:
    """It is never synced by itself: it may be that of any group before."""
    files, units = written
    folder = tmp_path / "old"
    folder.mkdir()
    log = SqliteLog(folder, segment=600, epoch=_epoch(files))
    log.append(drafts(1, 0))
    old = crashed(folder)[MARK]
    log.close()
    copy = restored(tmp_path / "log", files | {MARK: old})
    assert not judge(copy, units)
    end = marked_end(copy)
    assert end is not None
    assert end.last == units[-1].last  # and is brought up to date


def _epoch(files: Files) -> str:
    return files[MARK].split(b" ")[0].decode()


@pytest.mark.parametrize("durability", ["interval", "none"])
def test_without_a_sync_a_lost_end_is_no_damage(tmp_path: Path, durability: str) -> None:
    """What is acknowledged before it is synced may be lost with the power, and nothing is said."""
    folder = tmp_path / "made"
    folder.mkdir()
    log = SqliteLog(folder, durability=durability)
    units = [unit for at in range(4) for unit in log.append(drafts(1, at))]
    if durability == "interval":
        log.sync()
    synced = crashed(folder)
    log.append(drafts(3, 8))
    after = crashed(folder)
    log.close()
    wal = wal_in(after)
    found = units_of(restored(tmp_path / "log", after | {wal: synced[wal]}), durability=durability)
    assert found == units
    if durability == "interval":
        assert judge(restored(tmp_path / "log", after | {wal: synced[wal][:5000]}), units)


def test_a_damaged_write_ahead_file_is_rejected_checked_and_repaired(tmp_path: Path) -> None:
    async def work() -> None:
        folder = tmp_path / "data"
        async with serving(folder) as service:
            await answered_publish(service)
            files = crashed(folder)
            last, epoch = service.core.log.last, service.core.epoch
        wal = wal_in(files)
        files |= {wal: flipped(files[wal], len(files[wal]) // 2, 3)}
        copy = restored(tmp_path / "copy", files)
        for _ in range(2):
            with pytest.raises(LogError, match=rf"-wal: the unit at seq \d+ .* up to {last}"):
                Service(copy)
            with pytest.raises(LogError, match=rf"-wal: the unit at seq \d+ .* up to {last}"):
                checked(copy)
            now = {name: (copy / name).read_bytes() for name in files}
            assert now == files  # nothing was cut, nor lost by looking
        with pytest.raises(LogError, match="--force"):
            repaired(copy, force=False)
        assert "cut after seq" in repaired(copy, force=True)
        (aside,) = copy.glob("damaged-*")
        assert (aside / wal).read_bytes() == files[wal]
        assert "is intact" in checked(copy)
        async with serving(copy) as service:
            assert 0 < service.core.log.last < last
            await publish(service, 1)
            assert service.core.epoch != epoch

    async def answered_publish(service: Service) -> None:
        for price in range(40):
            await publish(service, price)

    run(work)


def altered(folder: Path, old: bytes, new: bytes) -> None:
    """Alter what one of the segments has, in its place."""
    for path in folder.glob("log-*.db"):
        data = path.read_bytes()
        if old in data:
            path.write_bytes(data.replace(old, new, 1))
            return
    raise AssertionError("it isn't there")


async def _prepared(folder: Path) -> int:
    """Return the seq of an event that is altered; snapshots are newer than it."""
    service = Service(folder)
    service.start()
    await result_of(service.core.edit(PutSpace(T, "s", SPACE.definition())))
    await result_of(service.core.edit(PutConsumer(T, "out", "s"), PutConsumer(T, "other", "s")))
    await subscribe(service)
    firsts = [await publish(service, 100 + number) for number in range(20)]
    service.stop()
    altered(folder, b'{"price": 107}', b'{"price": 106}')
    return firsts[7]


def test_an_altered_event_is_not_delivered_and_others_go_on(tmp_path: Path) -> None:
    async def work() -> None:
        seq = await _prepared(tmp_path)
        async with serving(tmp_path) as service:
            ask = Client(service)
            await asyncio.to_thread(service.scrub.wait)
            assert service.why_not_ready() == f"the log is damaged at seq {seq}"  # without readers
            page = await ask("GET", "consumers/out/messages")
            assert page["items"][-1]["seq"] == seq - 1
            await ask("POST", "consumers/out/ack", {"position": page["position"]})
            problem = await ask("GET", "consumers/out/messages", status=503)
            assert f"the unit at seq {seq} is damaged" in problem["detail"]
            status = await ask("GET", "status")
            assert len(status["damage"]) == 1
            # Behind the place all is well, also for this consumer once it is moved there.
            epoch = service.core.epoch
            move = {"position": f"{epoch}:{seq}"}
            await ask("POST", "consumers/out/seek", move)
            page = await ask("GET", "consumers/out/messages")
            assert [one["seq"] for one in page["items"]] == list(range(seq + 1, seq + 13))
            first = await publish(service, 50)
            await until(lambda: service.core.pipeline.matched >= first)
            assert (await ask("GET", "consumers/other"))["position"]

    run(work)


def test_a_stream_says_why_it_ends(tmp_path: Path) -> None:
    async def work() -> None:
        seq = await _prepared(tmp_path)
        async with serving(tmp_path) as service:
            said = (await Client(service)._http.get("/v1/consumers/out/stream")).text
            assert "event: error" in said
            assert f"the unit at seq {seq} is damaged" in said
            assert f'"seq":{seq - 1}' in said
            assert f'"seq":{seq},' not in said

    run(work)


def test_a_damaged_unit_is_met_by_every_way_of_reading(tmp_path: Path) -> None:
    seq = asyncio.run(_prepared(tmp_path))
    log = SqliteLog(tmp_path)
    for most in (1, 1 << 20):
        at, found = 0, []
        while at < seq - 1:
            some = log.read(at, most)
            found += [unit.first for unit in some]
            at = some[-1].last
        assert found[-1] == seq - 1
        with pytest.raises(LogError, match=f"the unit at seq {seq} is damaged"):
            log.read(at, most)
    assert log.read(seq, 1)[0].first == seq + 1
    log.close()
    with pytest.raises(LogError, match=f"the unit at seq {seq} is damaged"):
        checked(tmp_path)
