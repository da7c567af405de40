"""The process of a server: its certificate, the lines that it writes, a disk that fills up."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from rangecast.server.log_tools import dumped
from tests.support.server.served import MADE
from tests.support.server.servers import ROOT, need_namespaces, server

SERVE = [sys.executable, "-m", "rangecast", "serve", "--space", "market.toml", "--port", "0"]
HERE = {**os.environ, "PYTHONPATH": str(ROOT)}


def certify(folder: Path, name: str) -> None:
    """Write a certificate that says it is `name`, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now)
        .not_valid_after(now + timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    (folder / "tls.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    (folder / "tls.key").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )


def shown_name(url: str) -> str:
    """Return the name in the certificate that a server shows."""
    host, _, port = url.removeprefix("https://").partition(":")
    text = ssl.get_server_certificate((host, int(port)), timeout=90)
    found = x509.load_pem_x509_certificate(text.encode()).subject
    return str(found.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value)


def address(log: Path) -> str:
    found = re.search(r"Serving on (\S+),", log.read_text())
    assert found is not None
    return found[1]


@pytest.mark.process
def test_a_new_certificate_without_a_restart_and_lines_of_json(tmp_path: Path) -> None:
    MADE.space.save(tmp_path / "market.toml")
    certify(tmp_path, "first")
    log = tmp_path / "log.txt"
    options = ["--tls-cert", "tls.pem", "--tls-key", "tls.key", "--log-format", "json"]
    command = [*SERVE, *options, "--log-level", "info"]
    with server(
        command, log, lambda: "Serving on" in log.read_text(), cwd=tmp_path, env=HERE
    ) as process:
        url = address(log)
        assert url.startswith("https://")
        open_before = httpx.Client(base_url=url, trust_env=False, verify=False, timeout=90)
        given = {"label": "admin", "scopes": ["admin"]}
        secret = open_before.post("/v1/tokens", json=given).json()["token"]
        assert shown_name(url) == "first"

        def reloaded(words: str) -> None:
            process.send_signal(signal.SIGHUP)
            deadline = time.monotonic() + 600
            while words not in log.read_text():
                assert time.monotonic() < deadline
                time.sleep(0.05)

        (tmp_path / "tls.key").write_text("no key")
        reloaded("not reloaded")
        assert shown_name(url) == "first"
        certify(tmp_path, "second")
        reloaded("was reloaded")
        assert shown_name(url) == "second"
        bearer = {"Authorization": f"Bearer {secret}"}
        path = "/v1/spaces/market/events"
        answer = open_before.post(
            f"{path}?wait=matches&ticket=hidden-query",
            json={"symbol": "hidden-body"},
            headers=bearer | {"X-Request-ID": "my-request.1"},
        )
        assert answer.status_code == 200
        assert answer.headers["x-request-id"] == "my-request.1"
        rejected = open_before.get(path, headers={"X-Request-ID": "not one"})
        assert re.fullmatch("[0-9a-f]{16}", rejected.headers["x-request-id"])
        # Neither a client that keeps its connection for later, nor one that is silent from the
        # beginning holds up the end.
        with socket.create_connection((open_before.base_url.host, open_before.base_url.port)):
            process.send_signal(signal.SIGTERM)
            assert process.wait(90) == 0
        open_before.close()
    text = log.read_text()
    assert "graceful shutdown exceeded" not in text
    for hidden in (secret, "hidden-query", "hidden-body", "Bearer"):
        assert hidden not in text
    lines = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    assert {*lines[0]} >= {"time", "level", "logger", "message"}
    requests = [one for one in lines if one["logger"] == "rangecast.requests"]
    mine = next(one for one in requests if one["request"] == "my-request.1")
    assert mine | {"time": "", "seconds": 0} == {
        "time": "",
        "level": "info",
        "logger": "rangecast.requests",
        "message": "request",
        "request": "my-request.1",
        "method": "POST",
        "path": path,
        "status": 200,
        "seconds": 0,
        "tenant": "default",
        "seq": int(answer.json()["last"].split(":")[1]),
    }
    stranger = next(one for one in requests if one["status"] == 401)
    assert "tenant" not in stranger


def test_a_certificate_that_cannot_be_used_is_rejected(cli: Any, tmp_path: Path) -> None:
    certify(tmp_path, "one")
    for name, key in (("none.pem", "tls.key"), ("tls.pem", "tls.pem"), ("tls.key", "tls.key")):
        done = cli("serve", "--tls-cert", name, "--tls-key", key, "--port", "0", code=2)
        assert f"--tls-cert {name} and --tls-key {key} can't be used" in done.stderr


@pytest.mark.process
def test_a_small_disk_fills_up_under_load_and_is_freed(tmp_path: Path) -> None:
    need_namespaces()
    MADE.space.save(tmp_path / "market.toml")
    log, disk = tmp_path / "log.txt", tmp_path / "disk"
    disk.mkdir()
    own = 'mount --make-rprivate / && mount -t tmpfs -o size=3m own "$0" && exec "$@"'
    command = ["unshare", "-m", "sh", "-c", own, disk, *SERVE, "--data", disk]
    with server(
        command, log, lambda: "Serving on" in log.read_text(), cwd=tmp_path, env=HERE
    ) as process:
        inside = Path(f"/proc/{process.pid}/root{disk}")
        ballast = inside / "ballast"
        ballast.write_bytes(b"x" * (1 << 20))
        with httpx.Client(base_url=address(log), trust_env=False, timeout=90) as http:
            _fill_up_and_free(http, ballast, acked := {})
        process.send_signal(signal.SIGSTOP)
        shutil.copytree(inside, tmp_path / "copy")  # what a kill -9 leaves
    lines = [json.loads(line) for line in dumped(tmp_path / "copy", 0)]
    assert {one["seq"]: one["event"]["price"] for one in lines if "event" in one} == acked


def _fill_up_and_free(http: httpx.Client, ballast: Path, acked: dict[int, int]) -> None:
    http.put("/v1/consumers/c", json={"space": "market"}).raise_for_status()
    given = {"filter": "price >= 0", "consumer": "c"}
    http.put("/v1/spaces/market/subscriptions/all", json=given).raise_for_status()
    number = 0

    def publish(count: int) -> int:
        nonlocal number
        events = [{"symbol": "x" * 200, "price": number + n} for n in range(count)]
        number += count
        answer = http.post("/v1/spaces/market/events", json=events)
        if answer.status_code == 200:
            first = int(answer.json()["first"].split(":")[1])
            acked.update({first + n: one["price"] for n, one in enumerate(events)})
        return answer.status_code

    statuses = [publish(100) for _ in range(150)]
    assert {*statuses} == {200, 507}
    assert statuses[-10:].count(507) >= 5  # it stays full: nothing is freed by itself
    assert http.get("/readyz").json()["status"] == "disk full"
    came: list[Any] = []
    while items := http.get("/v1/consumers/c/messages?limit=2000").json()["items"]:
        came += [(one["seq"], one["event"]["price"]) for one in items]
        there = {"position": items[-1]["position"]}
        http.post("/v1/consumers/c/ack", json=there).raise_for_status()  # deliveries go on
    assert came == sorted(acked.items())
    ballast.unlink()
    assert publish(10) == 200  # it comes back by itself
    assert http.get("/readyz").json()["status"] == "ok"
    log = http.get("/v1/spaces/market/events?limit=1000000").text.splitlines()
    assert [json.loads(line)["event"]["price"] for line in log] == list(acked.values())


@pytest.mark.process
def test_the_garbage_collector_spares_what_stays() -> None:
    asked = """
import gc
from rangecast.server.process import freeze_garbage_collector
freeze_garbage_collector()
kept = gc.get_freeze_count()
gc.collect()
print(kept, gc.get_freeze_count() == kept, len(gc.get_objects()))
"""
    command = [sys.executable, "-c", asked]
    told = subprocess.run(command, env=HERE, capture_output=True, text=True, check=True).stdout
    kept, stays, left = told.split()
    assert stays == "True"
    assert int(left) < int(kept) / 100
