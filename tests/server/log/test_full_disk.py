"""A disk without space: the server stops, starts, delivers, and takes events when it has some."""

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from rangecast.server.log.acknowledged import NAME as MARK
from rangecast.server.log.base import Draft, LogError, LogFullError
from rangecast.server.log.sqlite import SqliteLog
from rangecast.server.pipeline.futures import result_of
from rangecast.server.service import Service
from rangecast.server.state.edits import PutConsumer
from rangecast.server.state.entries import Consumer
from tests.server.test_process import HERE, SERVE, address
from tests.support.server.served import MADE
from tests.support.server.serving import T, publish, run, serving, until

EVENTS = "/v1/spaces/market/events"


@contextlib.contextmanager
def small_disk(folder: Path, size: str) -> Iterator[Path]:
    """A disk of some megabytes."""
    disk = folder / "disk"
    disk.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "small", str(disk)]
    if os.geteuid() != 0 or subprocess.run(command, capture_output=True).returncode != 0:
        pytest.skip("a small disk needs the right to mount one")
    try:
        yield disk
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


def fill(disk: Path) -> Path:
    """Take all the space that is left; return what takes it."""
    ballast = disk / "ballast"
    with ballast.open("ab", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(b"x" * 4096)
    return ballast


@contextlib.contextmanager
def served(folder: Path, data: Path) -> Iterator[tuple[httpx.Client, subprocess.Popen[bytes]]]:
    log = folder / "log.txt"
    log.write_text("")
    command = [*SERVE, "--data", str(data)]
    with log.open("ab") as output:
        process = subprocess.Popen(command, cwd=folder, env=HERE, stdout=output, stderr=output)
    try:
        deadline = time.monotonic() + 600
        while "Serving on" not in log.read_text():
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.05)
        with httpx.Client(base_url=address(log), trust_env=False, timeout=60) as http:
            yield http, process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()


def comes(http: httpx.Client, status: str) -> None:
    deadline = time.monotonic() + 600
    while (found := http.get("/readyz").json()["status"]) != status:
        assert time.monotonic() < deadline, found
        time.sleep(0.05)


@pytest.mark.process
def test_a_full_disk_prevents_neither_stopping_nor_starting(tmp_path: Path) -> None:
    MADE.space.save(tmp_path / "market.toml")
    with small_disk(tmp_path, "4m") as disk:
        data = disk / "data"
        with served(tmp_path, data) as (http, process):
            http.put("/v1/consumers/c", json={"space": "market"}).raise_for_status()
            given = {"filter": "price >= 0", "consumer": "c"}
            http.put("/v1/spaces/market/subscriptions/all", json=given).raise_for_status()
            events = [{"price": number} for number in range(20)]
            http.post(EVENTS, json=events).raise_for_status()
            fill(disk)
            big = [{"symbol": "y" * 20_000}]  # nobody wants it
            assert 507 in {http.post(EVENTS, json=big).status_code for _ in range(10)}
            comes(http, "disk full")
            items = http.get("/v1/consumers/c/messages").json()["items"]
            for one in items[:3]:  # what can't be written
                there = {"position": one["position"]}
                http.post("/v1/consumers/c/ack", json=there).raise_for_status()
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0, (tmp_path / "log.txt").read_text()
        ballast = fill(disk)
        with served(tmp_path, data) as (http, process):
            assert http.get("/readyz").status_code == 503
            comes(http, "disk full")
            rejected = http.post(EVENTS, json=[{"symbol": "y" * 300_000}])
            assert rejected.status_code == 507
            assert "--retention-gb" in rejected.json()["detail"]
            came = http.get("/v1/consumers/c/messages").json()["items"]
            assert [one["event"]["price"] for one in came] == list(range(20))
            ballast.unlink()
            comes(http, "ok")  # nothing is sent that would find out
            http.post(EVENTS, json=[{"price": 20}]).raise_for_status()
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0


def test_segments_and_snapshots_on_a_full_disk(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def work(disk: Path) -> None:
        async with serving(disk / "data") as service:
            log: Any = service.core.log
            first = await publish(service, *range(1, 50))
            ballast = fill(disk)
            log._segment_bytes = 0  # the next unit needs a new one
            for _ in range(3):
                with pytest.raises(LogFullError, match="the disk is full"):
                    await publish(service, 1)
            assert service.why_not_ready() == "disk full"
            assert not list((disk / "data").glob("*.partial*"))
            service.core.snapshot_edits = -(10**9)  # one is due
            service.maintenance.run_once()
            service.maintenance.run_once()
            assert caplog.text.count("no snapshot was written: ") == 1
            assert log.read(0, 1 << 20)[-1].last == first + 48
            service.core.acknowledge(_consumer(service), 0)
            ballast.unlink()
            await until(lambda: not service.why_not_ready())
            await publish(service, 1)
            assert len(list((disk / "data").glob("log-*.db"))) == 2
            fill(disk)
        assert Service(disk / "data").close() is None

    def _consumer(service: Service) -> Any:
        return Consumer(T, "none", 0, service.core.registry.space(T, "s"), 0, 0, {}, "report", 0, 0)

    with small_disk(tmp_path, "3m") as disk:
        run(lambda: work(disk))


def test_the_reserve_opens_a_log_that_was_killed_on_a_full_disk(tmp_path: Path) -> None:
    """What SQLite makes to open it takes some space: an index of its write-ahead file."""
    with small_disk(tmp_path, "2m") as disk:
        child = os.fork()
        if child == 0:
            log = SqliteLog(disk)
            for number in range(20):
                log.append([Draft("events", 1, number, b"x" * 100)])
            os._exit(0)  # as a kill -9
        assert os.waitpid(child, 0)[1] == 0
        for name in disk.glob("*-shm"):
            name.unlink()
        assert (disk / MARK).stat().st_size > 100_000
        ballast = fill(disk)
        log = SqliteLog(disk)
        assert log.last == 20
        assert len(log.read(0, 1 << 20)) == 20
        ballast.unlink()
        log.append([Draft("events", 1, 0, b"x" * 100)])
        log.reserve()
        assert (disk / MARK).stat().st_size > 100_000
        log.close()


@pytest.mark.parametrize(
    ("code", "text", "has_space", "is_full"),
    [
        ("SQLITE_FULL", "something", True, True),
        ("SQLITE_IOERR_WRITE", "disk I/O error", False, True),  # a quota
        ("SQLITE_IOERR_WRITE", "disk I/O error", True, False),
        ("SQLITE_IOERR_FSYNC", "the disk isn't full", False, False),
        ("SQLITE_IOERR_SHMSIZE", "disk I/O error", False, True),
        ("SQLITE_CORRUPT", "database disk image is malformed", True, False),
    ],
)
def test_full_is_told_from_broken_by_the_code(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    code: str,
    text: str,
    has_space: bool,
    is_full: bool,
) -> None:
    log = SqliteLog(tmp_path)
    log.append([Draft("events", 1, 0, b"x")])

    def fails(_rows: Any) -> None:
        error = sqlite3.OperationalError(text)
        error.sqlite_errorcode = getattr(sqlite3, code)
        raise error

    with monkeypatch.context() as patched:
        patched.setattr("rangecast.server.log.sqlite._has_space", lambda _folder: has_space)
        patched.setattr(log, "_insert", fails)
        with pytest.raises(LogFullError if is_full else LogError):
            log.append([Draft("events", 1, 0, b"y")])
    if is_full:
        assert log.append([Draft("events", 1, 0, b"y")])[0].first == 2
    else:
        with pytest.raises(LogError, match="nothing more is accepted"):
            log.append([Draft("events", 1, 0, b"y")])
    log.close()


def test_a_failed_late_sync_ends_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it has lost isn't known, and a second attempt would say that all is well."""
    log = SqliteLog(tmp_path, durability="interval")
    log.append([Draft("events", 1, 0, b"x")])

    def fails(_path: Path) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr("rangecast.server.log.durability.sync_file", fails)
        with pytest.raises(LogError, match="writing failed"):
            log.sync()
    with pytest.raises(LogError, match="nothing more is accepted"):
        log.append([Draft("events", 1, 0, b"y")])
    log.close()


def test_acknowledgements_are_given_up_when_it_ends(tmp_path: Path) -> None:
    async def work() -> None:
        async with serving(tmp_path) as service:
            await result_of(service.core.edit(PutConsumer(T, "c", "s")))
            seq = await publish(service, 1)
            log: Any = service.core.log

            def full(_drafts: Any) -> Any:
                raise LogFullError("full")

            log.append = full
            service.core.acknowledge(service.core.registry.consumer(T, "c"), seq)
            service.core.pipeline.flush_acks()
            await until(lambda: service.core.pipeline.is_full)
            service.core.pipeline.stop()  # and doesn't wait for ever

    run(work)
