"""TLS of clients: private authorities, client certificates, and failures that say what they are."""

from __future__ import annotations

import asyncio
import ipaddress
import ssl
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from rangecast.client import AsyncClient, Client, ServerError
from rangecast.errors import UsageError
from tests.support.server.served import Served

pytestmark = pytest.mark.xdist_group("client_tls")


class Signed(NamedTuple):
    """A certificate and its key, in files."""

    certificate: Path
    key: Path


class Authority:
    """A private authority."""

    def __init__(self, folder: Path, name: str):
        self.folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self.file = folder / f"{name}.pem"
        made = self._builder(self._name, self._key, 0, 1).add_extension(
            x509.BasicConstraints(ca=True, path_length=None), critical=True
        )
        self.file.write_bytes(_pem(made.sign(self._key, hashes.SHA256())))

    def _builder(self, name: x509.Name, key: Any, begin: int, end: int) -> Any:
        now = datetime.now(UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now + timedelta(days=begin, hours=-1))
            .not_valid_after(now + timedelta(days=end))
        )

    def signed(self, name: str, host: str = "127.0.0.1", begin: int = 0, end: int = 1) -> Signed:
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        address = x509.IPAddress(ipaddress.ip_address(host))
        made = self._builder(subject, key, begin, end).add_extension(
            x509.SubjectAlternativeName([address]), critical=False
        )
        found = Signed(self.folder / f"{name}.pem", self.folder / f"{name}.key")
        found.certificate.write_bytes(_pem(made.sign(self._key, hashes.SHA256())))
        found.key.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        return found


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"), "ours")


@pytest.fixture(scope="module")
def url(authority: Authority) -> Iterator[str]:
    own = authority.signed("server")
    served = Served(certificate=own.certificate, key=own.key)
    yield served.url
    served.stop()


def failure(url: str, **options: Any) -> str:
    """Return why a server can't be asked."""
    with Client(url, **options) as client, pytest.raises(ServerError) as caught:
        client.status()
    assert caught.value.status is None
    return str(caught.value)


def test_a_private_authority_is_trusted_when_it_is_named(
    url: str, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert url.startswith("https://")
    said = failure(url)
    assert "TLS: the server's certificate isn't trusted: " in said
    assert "--ca-file" in said
    assert "SSL_CERT_FILE" in said
    assert "rangecast serve" not in said
    context = ssl.create_default_context(cafile=str(authority.file))
    for verify in (authority.file, str(authority.file), context, False):
        with Client(url, space="market", verify=verify) as client:
            assert client.ready() == "ok"
            assert client.publish({"price": 1}).accepted == 1
    with (
        Client(url, space="market", verify=authority.file) as client,
        client.watch("price < 3") as watch,
    ):
        client.publish({"price": 2})
        assert next(iter(watch)).event == {"price": 2}  # type: ignore[union-attr]
    with Client(url, space="market") as client, pytest.raises(ServerError, match="isn't trusted"):
        client.watch("price < 3")

    async def work() -> None:
        async with AsyncClient(url, verify=authority.file) as client:
            assert await client.ready() == "ok"
        async with AsyncClient(url) as client:
            with pytest.raises(ServerError, match="isn't trusted"):
                await client.ready()

    asyncio.run(work())
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.file))
    with Client(url) as client:
        assert client.ready() == "ok"


def test_files_that_cannot_be_used(url: str, tmp_path: Path, monkeypatch: Any) -> None:
    (tmp_path / "bad.pem").write_text("nothing")
    for options in (
        {"verify": tmp_path / "none.pem"},
        {"verify": tmp_path / "bad.pem"},
        {"cert": tmp_path / "bad.pem"},
        {"cert": (tmp_path / "none.pem", tmp_path / "none.key")},
    ):
        with pytest.raises(UsageError, match="can't be used"):
            Client(url, **options)  # type: ignore[arg-type]
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "none.pem"))
    with pytest.raises(UsageError, match="SSL_CERT_FILE: the certificates in "):
        Client(url)
    Client("http://127.0.0.1:1", verify=tmp_path / "none.pem").close()  # it isn't needed


@pytest.fixture
def https(authority: Authority) -> Iterator[Callable[..., str]]:
    """Starts servers that speak TLS with a certificate: gives the address of each."""
    running: list[tuple[HTTPServer, threading.Thread]] = []

    def start(own: Signed | None, asks: Path | None = None) -> str:
        server = HTTPServer(("127.0.0.1", 0), _Ok)
        if own is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(own.certificate, own.key)
            if asks is not None:
                context.verify_mode = ssl.CERT_REQUIRED
                context.load_verify_locations(asks)
            server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        running.append((server, thread))
        scheme = "http" if own is None else "https"
        return f"{scheme}://127.0.0.1:{server.server_address[1]}"

    yield start
    for server, thread in running:
        server.shutdown()
        thread.join(90)
        server.server_close()


class _Ok(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "15")
        self.end_headers()
        self.wfile.write(b'{"status":"ok"}')

    def log_message(self, *_given: Any) -> None:
        pass


def test_what_is_wrong_with_a_certificate_is_said(
    https: Callable[..., str], authority: Authority
) -> None:
    for options, words in (
        ({"begin": -9, "end": -1}, "certificate has expired"),
        ({"begin": 3, "end": 9}, "certificate isn't valid yet"),
        ({"host": "127.0.0.9"}, "certificate doesn't cover this host"),
    ):
        own = authority.signed(f"bad-{options.get('begin', 0)}", **options)  # type: ignore[arg-type]
        said = failure(https(own), verify=authority.file)
        assert f"TLS: the server's {words}" in said
        assert "  hint: " in said


def test_a_client_certificate(https: Callable[..., str], authority: Authority) -> None:
    at = https(authority.signed("asking"), asks=authority.file)
    said = failure(at, verify=authority.file)
    assert "TLS: the server requires a client certificate" in said
    assert "--client-cert" in said
    own = authority.signed("client")
    with Client(at, verify=authority.file, cert=tuple(own)) as client:
        assert client.ready() == "ok"
    stranger = Authority(authority.folder, "strangers").signed("stranger")
    assert "TLS: " in failure(at, verify=authority.file, cert=tuple(stranger))


def test_the_other_protocol(url: str, https: Callable[..., str]) -> None:
    said = failure(https(None).replace("http:", "https:"))
    assert "doesn't use TLS on this port\n  hint: use http://" in said
    said = failure(url.replace("https:", "http:"))
    assert "the server expects TLS on this port\n  hint: use https://" in said


def test_a_tls_failure_is_not_repeated(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    monkeypatch.setattr("time.sleep", waits.append)
    failure(url)
    assert waits == []


def test_the_shell_takes_certificates(cli: Any, url: str, authority: Authority) -> None:
    own = authority.signed("shell")
    assert "isn't trusted" in cli("status", "--server", url, code=2).stderr
    at = ("--server", url, "--ca-file", authority.file)
    with_key = ("--client-cert", own.certificate, "--client-key", own.key)
    assert "ready" in cli("status", *at, *with_key).stdout
    assert "requires --client-cert" in cli("status", *at, *with_key[2:], code=2).stderr
    for command in (("consumers",), ("unsubscribe", "none"), ("subscribe", "price < 3")):
        cli(*command, *at, code=2 if command[0] == "unsubscribe" else 0)
