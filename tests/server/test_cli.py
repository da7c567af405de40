"""The server from the shell: serve, publish, subscribe, token, log, verify."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import typer

from rangecast.cli.main import app
from rangecast.client import Client
from tests.support.server.served import EVENTS, MADE, SUBSCRIPTIONS
from tests.support.server.servers import ROOT

Cli = Callable[..., Any]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("server")
    MADE.space.save(folder / "market.toml")
    lines = [json.dumps(one) for one in EVENTS]
    (folder / "events.jsonl").write_text("\n".join([*lines, '{"price": "x"}']))
    return folder


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    command = [sys.executable, "-m", "rangecast", "serve", "--space", "market.toml"]
    process = subprocess.Popen(
        [*command, "--data", "data", "--port", "0"], cwd=folder, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    said = process.stdout.readline()
    found = re.search(r"Serving on (http://127\.0\.0\.1:\d+), in data: 1 space,", said)
    assert found, said
    yield found[1], process
    process.kill()
    process.wait()
    process.stdout.close()


@pytest.mark.process
def test_a_server_from_the_shell(
    cli: Cli, folder: Path, server: tuple[str, subprocess.Popen[str]]
) -> None:
    url, process = server
    at = ("--server", url)
    said = cli("subscribe", "price > 0", "--id", "any", "--consumer", "alerts", *at).stdout
    assert "any is saved; its matches are delivered to the consumer alerts" in said
    with Client(url, space="market") as client:
        client.upsert_many([{**row, "consumer": "alerts"} for row in SUBSCRIPTIONS])
    done = cli("publish", folder / "events.jsonl", *at, code=2)
    assert f"{len(EVENTS)} events published, 1 rejected." in done.stdout
    assert f"row {len(EVENTS)} was rejected: 'price': 'x' is not a number" in done.stderr
    follow = subprocess.Popen(
        [sys.executable, "-m", "rangecast", "subscribe", "symbol = 'NOW'", "--follow", *at],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert follow.stdout is not None
    with Client(url, space="market") as client:
        while len(client.consumers()) == 1:
            assert follow.poll() is None
        client.publish([{"symbol": "NOW", "price": 5}])
        assert json.loads(follow.stdout.readline())["event"] == {"symbol": "NOW", "price": 5}
        follow.send_signal(signal.SIGINT)
        assert follow.wait(90) == 0
        follow.stdout.close()
        deadline = time.monotonic() + 600
        while len(client.consumers()) > 1:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        expected = client.match_many(EVENTS)
        items = client.messages("alerts", limit=5000).items
    delivered = folder / "delivered.jsonl"
    lines = [{"position": one.position, "subscriptions": one.subscriptions} for one in items]
    delivered.write_text("\n".join(map(json.dumps, lines)))
    secret = cli("token", "the operator", "--scope", "admin", *at).stdout.strip()
    assert secret.startswith("rc_")
    rejected = cli("publish", folder / "events.jsonl", *at, code=2)
    assert "a token is required" in rejected.stderr
    assert "--token" in rejected.stderr
    assert cli("publish", "none.jsonl", *at, "--token", secret, code=2).stderr
    process.send_signal(signal.SIGTERM)
    assert process.wait(90) == 0
    data = folder / "data"
    assert "the log is intact" in cli("log", "check", data).stdout
    dump = [json.loads(line) for line in cli("log", "dump", data).stdout.splitlines()]
    assert len([one for one in dump if "event" in one]) == len(EVENTS) + 1
    assert secret not in cli("log", "dump", data).stdout
    assert "nothing to repair" in cli("log", "repair", data).stdout
    prove = ("log", "verify", data, delivered, "--consumer", "alerts")
    assert "0 missing, 0 unexpected, 0 with other" in cli(*prove).stdout
    delivered.write_text("\n".join(map(json.dumps, [*lines[1:], lines[1]])))
    assert "1 missing, 0 unexpected, 0 with other" in cli(*prove, code=1).stdout
    assert "no consumer 'none'" in cli(*prove[:-1], "none", code=2).stderr
    out = folder / "exported"
    cli("log", "export", data, "--space", "market", "-o", out)
    cli(
        *("match", out / "events.parquet", out / "subscriptions.parquet"),
        *("--space", out / "space.toml", "-o", out / "matches.csv"),
    )
    rows = (out / "matches.csv").read_text().splitlines()[1:]
    assert len(rows) == sum(map(len, expected)) + 1  # and the one event that was followed


def test_what_serve_rejects(cli: Cli, folder: Path) -> None:
    def said(*arguments: Any) -> str:
        text: str = cli("serve", *arguments, code=2, cwd=folder).stderr
        return text

    pool = pa.default_memory_pool().backend_name
    assert "would be reachable from other machines without TLS" in said("--host", "0.0.0.0")
    assert pa.default_memory_pool().backend_name == pool
    assert "must be given together" in said("--tls-cert", "x.pem")
    assert "can't be read" in said("--space", "none.toml")
    assert "no log found" in cli("log", "check", folder / "nothing", code=2).stderr
    assert "no response" in cli("token", "x", "--server", "http://127.0.0.1:9", code=2).stderr
    assert "must start with http" in cli("token", "x", "--server", "nowhere", code=2).stderr


def test_help_and_imports_stay_light() -> None:
    code = (
        "import sys, rangecast, rangecast.cli.main\n"
        "heavy = {'fastapi', 'uvicorn', 'httpx', 'websockets', 'prometheus_client'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env=os.environ)


@pytest.mark.parametrize("name", ["rangecast.service", "Dockerfile"])
def test_the_deployment_uses_what_there_is(name: str) -> None:
    text = (ROOT / "deploy" / name).read_text()
    started = re.search(r"^(?:ExecStart=|ENTRYPOINT )(.*)$", text, re.MULTILINE)
    assert started is not None
    words = json.loads(started[1]) if name == "Dockerfile" else shlex.split(started[1])
    assert (Path(words[0]).name, words[1]) == ("rangecast", "serve")
    serve: Any = typer.main.get_command(app).commands["serve"]  # type: ignore[attr-defined]
    options = {one for parameter in serve.params for one in parameter.opts}
    mentioned = re.findall(r"(?<![\w-])--[a-z-]+", " ".join([started[1], *_comments(text)]))
    assert set(mentioned) - {"--scope", "--create-home"} <= options
    given = serve.make_context("serve", words[2:]).params
    assert given["data"] in (Path("/data"), Path("/var/lib/rangecast"))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert set(re.findall(r"/src\[(\w+)\]", text)) <= project["optional-dependencies"].keys()


def _comments(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("#")]
