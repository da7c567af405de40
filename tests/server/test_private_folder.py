"""Nobody else on the machine reads what a server keeps, and secrets are shown to nobody."""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner

from rangecast.cli.main import app
from rangecast.server import core as core_module
from rangecast.server.delivery.webhook import Options, new_secret
from rangecast.server.links.manager import LinkOptions
from rangecast.server.log.base import MemoryLog
from rangecast.server.log_tools import dumped
from rangecast.server.process import Settings
from rangecast.server.service import Service
from tests.support.server.serving import Client, publish, run, serving, subscribe

SECRET = new_secret()
ENDED = "http://127.0.0.1:1/"
"""Where nobody answers."""


@pytest.fixture
def open_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def modes(folder: Path) -> dict[str, int]:
    """Return the modes of a folder and of all that is in it."""
    paths = [folder, *folder.rglob("*")]
    return {str(one.relative_to(folder)): stat.S_IMODE(one.stat().st_mode) for one in paths}


def check_private(folder: Path) -> None:
    for name, mode in modes(folder).items():
        assert mode == (0o700 if (folder / name).is_dir() else 0o600), (name, oct(mode))


@pytest.mark.usefixtures("open_umask")
def test_all_files_of_a_data_folder_are_private(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "data"

    async def work() -> None:
        async with serving(folder) as service:
            await Client(service).webhook(ENDED, secret=SECRET)
            await subscribe(service)
            await publish(service, 1, 2, 3)
            service.core.log._begin_segment()  # type: ignore[attr-defined]
            await publish(service, 4)
            service.core.snapshot()
            check_private(folder)  # with -wal and -shm
            names = modes(folder)
        assert {"lock", "log.mark", "log-00000000000000000001.db"} < names.keys()
        assert any(name.endswith("-wal") for name in names)
        assert any(name.endswith("-shm") for name in names)
        assert any(name.startswith("snapshot-") and "state" in name for name in names)

    run(work)
    check_private(folder)
    again = Service(folder)
    check_private(folder)
    again.close()


@pytest.mark.usefixtures("open_umask")
def test_the_snapshots_of_a_log_elsewhere_are_private(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(core_module, "KafkaLog", lambda _where: MemoryLog())

    async def work() -> None:
        async with serving(tmp_path / "data", log="kafka://127.0.0.1:1/x") as service:
            await publish(service, 1)
            service.core.snapshot()
            check_private(tmp_path / "data")

    run(work)


def test_files_that_others_could_read_are_made_private(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The folder keeps its mode, and what isn't the server's is left alone."""
    folder = tmp_path / "data"

    async def work() -> None:
        async with serving(folder) as service:
            await publish(service, 1)
            service.core.snapshot()

    run(work)
    assert "can be opened by other users" not in caplog.text
    (folder / "notes.txt").write_text("mine")
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    with caplog.at_level(logging.WARNING):
        again = Service(folder)
    again.close()
    assert "can be opened by other users (mode 755)" in caplog.text
    found = modes(folder)
    assert (found.pop("."), found.pop("notes.txt")) == (0o755, 0o644)
    for name, mode in found.items():
        assert mode & 0o077 == 0, name


def test_secrets_are_shown_only_if_they_are_asked_for(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "data"

    async def work() -> None:
        async with serving(folder) as service:
            ask = Client(service)
            shown: list[Any] = [await ask.webhook(ENDED, secret=SECRET)]
            await subscribe(service)
            await publish(service, 1)
            for path in ("consumers/out", "consumers", "status"):
                shown.append(await ask("GET", path))
            rotated = await ask("POST", "consumers/out/secret:rotate")
            shown.append(await ask("GET", "consumers/out"))
            news.append(rotated["secret"])
            consumer = service.core.registry.consumers["default", "out"]
            shown += [consumer, consumer.as_put()]
            shown.append(msgspec.convert(consumer.delivery, Options))
            for hidden in (SECRET, *news):
                assert hidden not in f"{shown}"

    news: list[str] = []
    with caplog.at_level(logging.DEBUG):
        run(work)
    assert SECRET not in caplog.text
    assert news[0] not in caplog.text
    plain, whole = "\n".join(dumped(folder, 0)), "\n".join(dumped(folder, 0, with_secrets=True))
    for hidden in (SECRET, *news):
        assert hidden not in plain
        assert hidden in whole
    assert '"secret":"..."' in plain
    told = CliRunner().invoke(app, ["log", "dump", str(folder)])
    assert told.exit_code == 0
    assert SECRET not in told.output
    told = CliRunner().invoke(app, ["log", "dump", str(folder), "--with-secrets"])
    assert SECRET in told.output


def test_options_show_no_token() -> None:
    token = "rc_token"
    assert token not in repr(Settings(None, token=token))
    assert token not in repr(LinkOptions("b", "s", (), token))


def test_a_rejected_webhook_does_not_repeat_its_secret(caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> None:
        async with serving() as service:
            ask = Client(service)
            for out in ({"batch": 0}, {"unknown": 1}, {"url": 5}, {"on_dead": "x"}):
                given = {"kind": "webhook", "url": ENDED, "secret": SECRET} | out
                answer = await ask(
                    "PUT", "consumers/out", {"space": "s", "delivery": given}, status=422
                )
                assert SECRET not in f"{answer}"

    with caplog.at_level(logging.DEBUG):
        run(work)
    assert SECRET not in caplog.text
