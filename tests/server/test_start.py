"""The start of a server: signals that come early, folders and files that it may not use."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rangecast.errors import RangecastError
from rangecast.server import process
from rangecast.server.core import Core
from rangecast.server.log.base import Draft
from rangecast.server.log.sqlite import SqliteLog
from rangecast.server.log_tools import checked
from rangecast.server.pipeline.futures import result_of
from rangecast.server.service import Service
from rangecast.server.state.edits import PutConsumer, PutSpace
from tests.support.server.served import MADE, Served
from tests.support.server.servers import ROOT
from tests.support.server.serving import T

_STRANGER = 65_534
_EARLY = """
import os, signal, sys, time
from pathlib import Path
from rangecast import Number, Space
from rangecast.server.process import Settings, serve
from rangecast.server.log.sqlite import SqliteLog

plain, asked = SqliteLog.append, []

def slow(log, drafts):
    if not asked:
        asked.append(True)
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.5)
    return plain(log, drafts)

SqliteLog.append = slow
told = []
space = Space([Number("price")])
serve(Settings(Path(sys.argv[1]), port=0, spaces={"s": space}), lambda url, _: told.append(url))
print("ended", len(asked), told)
"""


@pytest.mark.process
def test_a_signal_during_the_start_ends_it_cleanly(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _EARLY, str(tmp_path / "data")]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "ended 1 []\n"  # it never said that it serves
    assert "Bad file descriptor" not in done.stderr
    assert "is intact" in checked(tmp_path / "data")


def test_only_the_sessions_of_the_last_process_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clients that come back at once have new ones while the server still prepares itself."""
    make_spaces = process._make_spaces

    async def with_a_client(core: Core, settings: process.Settings) -> None:
        await make_spaces(core, settings)
        if (T, "new") not in core.registry.consumers:
            await result_of(core.edit(PutConsumer(T, "new", "market", {"kind": "session"})))

    async def first() -> None:
        service = Service(tmp_path / "data")
        service.start()
        space = PutSpace(T, "market", MADE.space.definition())
        session = PutConsumer(T, "old", "market", {"kind": "session"})
        await result_of(service.core.edit(space, session, PutConsumer(T, "plain", "market")))
        service.stop()

    asyncio.run(first())
    monkeypatch.setattr(process, "_make_spaces", with_a_client)
    served = Served(data=tmp_path / "data")
    assert served.server is not None
    consumers = {name for _, name in served.server.service.core.registry.consumers}
    served.stop()
    assert consumers == {"plain", "new"}


def as_stranger(work: Callable[[], Any]) -> str:
    """Return the error that another user meets."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        try:
            os.setgroups([])
            os.setgid(_STRANGER)
            os.setuid(_STRANGER)
            work()
            text = "no error"
        except RangecastError as error:
            text = str(error)
        except BaseException:
            text = "raw: " + traceback.format_exc()
        os.write(writing, text.encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as file:
        text = file.read()
    os.waitpid(child, 0)
    return text


@pytest.fixture
def data(tmp_path: Path) -> Path:
    if os.geteuid() != 0:
        pytest.skip("another user needs root to become one")
    for one in (tmp_path, *tmp_path.parents):
        if one.stat().st_uid == os.geteuid() and not one.stat().st_mode & 1:
            one.chmod(one.stat().st_mode | 0o011)
    folder = tmp_path / "data"
    service = Service(folder)
    service.core.log.append([Draft("events", 1, 0, b"{}\n{}")] * 3)
    service.close()
    return folder


def own(folder: Path) -> None:
    for one in (folder, *folder.rglob("*")):
        os.chown(one, _STRANGER, _STRANGER)


def test_a_folder_of_another_user_is_rejected(data: Path) -> None:
    for mode in (0o700, 0o755):
        data.chmod(mode)
        told = as_stranger(lambda: Service(data))
        assert told.startswith(f"{data}: can't be used as a data folder: ")
        assert "hint: " in told


def test_a_folder_that_may_only_be_read_is_rejected_and_can_be_checked(data: Path) -> None:
    own(data)
    data.chmod(0o555)
    for one in data.rglob("*"):
        one.chmod(0o444)
    assert "can't be written by this user" in as_stranger(lambda: Service(data))
    (data / "lock").chmod(0o644)
    told = as_stranger(lambda: Service(data))
    assert told.startswith(str(data))
    assert "hint: " in told
    assert as_stranger(lambda: checked(data)) == "no error"


def test_a_segment_that_may_not_be_read_is_named(data: Path) -> None:
    own(data)
    (segment,) = data.glob("log-*.db")
    os.chown(segment, 0, 0)
    segment.chmod(0o600)
    for work in (lambda: Service(data), lambda: checked(data), lambda: SqliteLog(data)):
        told = as_stranger(work)
        assert told.startswith(f"{segment}: can't be read by this user")


def test_a_segment_that_may_not_be_written_is_named(data: Path) -> None:
    own(data)
    (segment,) = data.glob("log-*.db")
    os.chown(segment, 0, 0)
    segment.chmod(0o644)
    told = as_stranger(lambda: SqliteLog(data).append([Draft("events", 1, 0, b"x")]))
    assert told.startswith(str(data))
    assert "hint: " in told


def test_a_mark_that_may_not_be_read_is_named(data: Path) -> None:
    own(data)
    os.chown(data / "log.mark", 0, 0)
    (data / "log.mark").chmod(0o600)
    assert as_stranger(lambda: Service(data)).startswith(f"{data / 'log.mark'}: can't be read")
