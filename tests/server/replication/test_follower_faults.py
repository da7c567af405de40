"""A follower whose leader, network or disk fails: it goes on, and says the truth meanwhile."""

from __future__ import annotations

import gzip
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import msgspec
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from rangecast.server.log.base import Draft, LogError, LogFullError, MemoryLog, Unit
from rangecast.server.log.sqlite import SqliteLog
from rangecast.server.metrics import exposition
from rangecast.server.replication import follower as follow
from rangecast.server.replication.follower import Follower, Leader, Piece, piece_of
from rangecast.server.service import Service
from rangecast.server.state.edits import AnyEdit, PutSpace, PutSubscription, edits_draft
from tests.support.server.served import Served
from tests.support.server.serving import SPACE, Client, T, run

Reply = tuple[int, dict[str, str], bytes]


@dataclass
class FakeLeader:
    """A leader that answers as a test says."""

    log: MemoryLog = field(default_factory=MemoryLog)
    faults: list[Callable[[bytes], Reply | None]] = field(default_factory=list)
    """Replacements for the next answers; `None`: the connection is cut."""
    url: str = ""
    is_hanging: threading.Event = field(default_factory=threading.Event)
    hung: int = 0
    """Requests that have met that."""

    def edit(self, *edits: AnyEdit) -> None:
        self.log.append([edits_draft([*edits], 1)])

    def subscribe(self, count: int) -> None:
        for _ in range(count):
            name = f"n{self.log.last}"
            self.edit(PutSubscription(T, name, "s", f"price > {self.log.last}"))


@contextmanager
def leading() -> Iterator[FakeLeader]:
    leader = FakeLeader()
    leader.edit(PutSpace(T, "s", SPACE.definition()))
    leader.subscribe(3)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            after = int(parse_qs(urlsplit(self.path).query)["after"][0])
            if leader.is_hanging.is_set():
                leader.hung += 1
                while leader.is_hanging.is_set():
                    time.sleep(0.01)
                self.close_connection = True
                return
            body = piece_of(leader.log, after)
            reply: Reply | None = (200, {}, body)
            if leader.faults:
                reply = leader.faults.pop(0)(body)
            elif after >= leader.log.last:
                time.sleep(0.02)  # as one that waits for news
            if reply is None:
                self.close_connection = True
                return
            status, headers, body = reply
            self.send_response(status)
            for name, value in ({"Content-Length": str(len(body))} | headers).items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)
            if "Content-Length" in headers:
                self.close_connection = True

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    leader.url = f"http://127.0.0.1:{server.server_address[1]}"
    serving = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    serving.start()
    try:
        yield leader
    finally:
        leader.is_hanging.clear()
        server.shutdown()
        server.server_close()
        serving.join()


@contextmanager
def following(folder: Path, url: str) -> Iterator[tuple[Service, Follower]]:
    """Run a follower without a server around it."""
    service = Service(folder, leader=Leader(url, None))
    assert service.follower is not None
    service.follower.start()
    try:
        yield service, service.follower
    finally:
        service.follower.stop()
        service.close()


def until(is_so: Callable[[], Any], seconds: float = 90) -> None:
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline, "it didn't come about"
        time.sleep(0.005)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "FIRST_PAUSE", 0.01)
    monkeypatch.setattr(follow, "LAST_PAUSE", 0.02)


def damaged(body: bytes) -> Reply:
    """Return a part of a log of which one unit isn't as it was written."""
    piece = msgspec.msgpack.decode(body, type=Piece)
    first, *others = piece.units
    piece.units = [first._replace(body=first.body[:-1] + b"?"), *others]
    return 200, {}, msgspec.msgpack.encode(piece)


def of_another_history(body: bytes) -> Reply:
    piece = msgspec.msgpack.decode(body, type=Piece)
    return 200, {}, msgspec.msgpack.encode(msgspec.structs.replace(piece, epoch="other"))


def unknown(body: bytes) -> Reply:
    """Return a part of a log that a later version wrote."""
    log = MemoryLog()
    piece = msgspec.msgpack.decode(body, type=Piece)
    log.append([Draft("news", 1, 1, b"")])
    unit: Unit = log.read(0, 1)[0]
    return 200, {}, msgspec.msgpack.encode(msgspec.structs.replace(piece, units=[unit]))


FAULTS: dict[str, tuple[Callable[[bytes], Reply | None], str]] = {
    "502": (lambda _: (502, {}, b"bad gateway"), "502 bad gateway"),
    "401": (lambda _: (401, {}, b"no token"), "401"),
    "500": (lambda _: (500, {}, b""), "500"),
    "redirect": (lambda _: (302, {"Location": "http://127.0.0.1:1/"}, b""), "302"),
    "cut": (lambda _: None, "disconnected"),
    "garbage": (lambda _: (200, {}, b"<html>\xff"), "isn't part of a log"),
    "of another type": (lambda _: (200, {}, msgspec.msgpack.encode([1])), "isn't part of a log"),
    "short": (lambda body: (200, {"Content-Length": str(len(body) + 9)}, body), "complete message"),
    "not gzip": (lambda body: (200, {"Content-Encoding": "gzip"}, body), "header check"),
    "damaged": (damaged, "arrived damaged"),
    "unknown": (unknown, "this version of rangecast doesn't know"),
    "one answer of another history": (of_another_history, "another history"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_of_the_leader_is_retried(tmp_path: Path, fault: str) -> None:
    reply, words = FAULTS[fault]
    with leading() as leader:
        leader.faults += [reply]
        is_over = threading.Event()

        def held(body: bytes) -> Reply:
            is_over.wait(90)
            return 200, {}, body

        leader.faults += [held]
        # A copy that exists doesn't ask for the epoch: the first question meets the fault.
        SqliteLog(tmp_path, epoch=leader.log.epoch).close()
        with following(tmp_path, leader.url) as (service, follower):
            until(lambda: follower.failures == 1)
            assert words in follower.error
            assert follower.state == "retrying"
            assert follower.why_not_ready()
            is_over.set()
            until(lambda: follower.state == "following")
            assert service.core.log.chain == leader.log.chain
            assert not follower.why_not_ready()
            assert follower.status()["error"] == ""
            assert set(service.core.registry.space(T, "s").live) == {"n1", "n2", "n3"}


def test_a_compressed_answer_is_read_and_an_endless_one_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with leading() as leader:

        def zipped(body: bytes) -> Reply:
            return 200, {"Content-Encoding": "gzip"}, gzip.compress(body)

        leader.faults += [zipped, zipped]
        with following(tmp_path, leader.url) as (service, follower):
            until(lambda: service.core.log.last == leader.log.last)
            assert follower.failures == 0
            monkeypatch.setattr(follow, "MAX_ANSWER_BYTES", 100_000)
            leader.faults += [
                lambda _: (200, {"Content-Encoding": "gzip"}, gzip.compress(b"\0" * 10_000_000))
            ]
            until(lambda: follower.failures == 1)
            leader.subscribe(1)
            until(lambda: service.core.log.last == leader.log.last)


def test_another_history_stops_it_for_good(tmp_path: Path) -> None:
    with leading() as leader, following(tmp_path, leader.url) as (service, follower):
        until(lambda: follower.state == "following")
        leader.faults += [of_another_history, of_another_history]
        until(lambda: follower.state == "stopped")
        follower._thread.join(90)
        assert not follower._thread.is_alive()
        assert "another history" in follower.why_not_ready()
        assert service.why_not_ready() == follower.why_not_ready()
        assert follower.status()["state"] == "stopped"
        text = exposition(service, None)[0].decode()
        assert "rangecast_follower_stopped 1.0" in text
        assert "rangecast_follower_ready 0.0" in text


@pytest.mark.parametrize("lost", ["shorter", "other"])
def test_a_leader_that_lost_or_changed_its_end_has_another_history(
    tmp_path: Path, lost: str
) -> None:
    with leading() as leader, following(tmp_path, leader.url) as (service, follower):
        until(lambda: follower.state == "following")
        again = MemoryLog()
        again.epoch = leader.log.epoch
        units = leader.log.read(0, 1 << 20)[: -1 if lost == "shorter" else None]
        for unit in units:
            at = unit.at + (lost == "other")
            again.append([Draft(unit.kind, unit.length, at, unit.body)])
        leader.log = again
        until(lambda: follower.state == "stopped")
        assert service.why_not_ready()


def test_a_full_disk_of_the_copy_is_retried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with leading() as leader, following(tmp_path, leader.url) as (service, follower):
        until(lambda: follower.state == "following")
        append, is_full = service.core.log.append, True

        def full(drafts: Any) -> Any:
            if is_full:
                raise LogFullError("the disk is full")
            return append(drafts)

        monkeypatch.setattr(service.core.log, "append", full)
        leader.subscribe(2)
        until(lambda: follower.failures > 2)
        assert service.why_not_ready() == "disk full"
        assert (follower.lag, follower.state) == (2, "retrying")
        assert "the disk is full" in follower.error
        is_full = False
        until(lambda: follower.state == "following")
        assert service.why_not_ready() == ""
        assert service.core.log.chain == leader.log.chain


def test_a_copy_starts_while_its_leader_is_away(tmp_path: Path) -> None:
    with leading() as leader:
        with following(tmp_path / "copy", leader.url) as (service, follower):
            until(lambda: follower.state == "following")
        leader.subscribe(1)
        with following(tmp_path / "copy", "http://127.0.0.1:1") as (service, follower):
            until(lambda: follower.failures > 1)
            assert len(service.core.registry.space(T, "s").live) == 3
            assert "not caught up" in service.why_not_ready()
            assert follower.status()["contact_age_seconds"] is None
        with pytest.raises(LogError, match="starts without it"):
            Service(tmp_path / "new", leader=Leader("http://127.0.0.1:1", None))
        with following(tmp_path / "copy", leader.url) as (service, follower):
            until(lambda: follower.state == "following")
            assert len(service.core.registry.space(T, "s").live) == 4


def test_readiness_tells_of_a_copy_that_is_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with leading() as leader, following(tmp_path, leader.url) as (service, follower):
        until(lambda: service.why_not_ready() == "")
        assert follower.contact_age is not None
        assert follower.contact_age < 90
        leader.is_hanging.set()
        until(lambda: leader.hung)
        monkeypatch.setattr(follow, "MAX_AGE", 0.05)
        until(lambda: "stale" in service.why_not_ready())
        assert "rangecast_follower_contact_age_seconds" in exposition(service, None)[0].decode()

        async def work() -> None:
            client = Client(service)
            answer = await client._http.get("/readyz")
            assert answer.status_code == 503
            shown = (await client("GET", "status"))["follower"]
            assert shown["contact_age_seconds"] >= 0
            assert shown["lag"] == 0

        run(work)
        leader.is_hanging.clear()
        monkeypatch.setattr(follow, "MAX_AGE", 60.0)
        until(lambda: service.why_not_ready() == "")


def test_readiness_tells_of_a_leader_that_has_dropped_what_is_needed(tmp_path: Path) -> None:
    with leading() as leader:
        with following(tmp_path, leader.url) as (_, follower):
            until(lambda: follower.state == "following")
        leader.subscribe(5)
        leader.log.drop(leader.log.last - 2)
        with following(tmp_path, leader.url) as (service, follower):
            until(lambda: follower.failures > 2)
            assert "can't catch up" in service.why_not_ready()
            assert (follower.state, follower.lag) == ("retrying", 5)


def test_a_snapshot_has_all_that_the_copy_has_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with leading() as leader:
        with following(tmp_path, leader.url) as (service, follower):
            until(lambda: follower.state == "following")
            apply_changes, is_held, go_on = (
                service.core._apply_unit,
                threading.Event(),
                threading.Event(),
            )

            def hold(unit: Unit) -> None:
                is_held.set()  # it is in the log
                go_on.wait(90)
                apply_changes(unit)

            monkeypatch.setattr(service.core, "_apply_unit", hold)
            leader.subscribe(1)
            assert is_held.wait(90)
            assert service.core.log.last == leader.log.last
            snapshot = threading.Thread(target=service.core.snapshot)
            snapshot.start()
            snapshot.join(1.0)
            assert snapshot.is_alive()
            go_on.set()
            snapshot.join(90)
            assert service.core.snapshot_seq == leader.log.last
        service = Service(tmp_path)  # by the snapshot alone: the log has nothing after it
        assert set(service.core.registry.space(T, "s").live) == {"n1", "n2", "n3", "n4"}
        service.close()


def test_what_cannot_be_carried_out_stops_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with leading() as leader, following(tmp_path, leader.url) as (service, follower):
        until(lambda: follower.state == "following")

        def broken(_unit: Unit) -> None:
            raise KeyError("what is in memory isn't what the log says")

        monkeypatch.setattr(service.core, "_apply_unit", broken)
        leader.subscribe(1)
        until(lambda: service.core.pipeline.has_failed)
        follower._thread.join(90)
        assert not follower._thread.is_alive()
        assert service.why_not_ready() == "stopped"


def test_a_stop_waits_for_no_leader(tmp_path: Path) -> None:
    with leading() as leader:
        service = Service(tmp_path, leader=Leader(leader.url, None))
        assert service.follower is not None
        leader.is_hanging.set()
        service.follower.start()
        until(lambda: leader.hung)
        service.follower.stop(0.05)
        assert service.follower._thread.is_alive()  # abandoned
        service.close()
        leader.is_hanging.clear()
        service.follower._thread.join(90)
        assert not service.follower._thread.is_alive()
        assert service.core.log.last == 0


def certify(folder: Path) -> tuple[Path, Path]:
    """Return a certificate of 127.0.0.1 that only itself has signed, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "private authority")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(IPv4Address("127.0.0.1"))]), critical=False
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
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
    return folder / "tls.pem", folder / "tls.key"


def test_a_leader_with_a_private_authority(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    certificate, key = certify(tmp_path)
    first = Served(data=tmp_path / "first", certificate=certificate, key=key)
    assert first.url.startswith("https://")
    try:
        monkeypatch.delenv("SSL_CERT_FILE", raising=False)
        with pytest.raises(LogError, match="certificate"):
            Service(tmp_path / "copy", leader=Leader(first.url, None))
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        with following(tmp_path / "copy", first.url) as (service, follower):
            until(lambda: follower.state == "following")
            assert service.core.registry.spaces
    finally:
        first.stop()
