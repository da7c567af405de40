"""Peers of a server that behave badly: they don't read, or don't go on."""

from __future__ import annotations

import base64
import json
import os
import socket
import ssl
from typing import Any
from urllib.parse import urlsplit


def dial(url: str, *, room: int | None = 4096) -> socket.socket:
    """Connect to a server, over TLS if its address says so; `room`: bytes that it may send unread.

    Its certificate isn't checked.
    """
    parts = urlsplit(url)
    assert parts.hostname is not None
    assert parts.port is not None
    plain = socket.socket()
    if room is not None:
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, room)
    plain.settimeout(90)
    plain.connect((parts.hostname, parts.port))
    if parts.scheme == "http":
        return plain
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context.wrap_socket(plain)


def request(method: str, path: str, body: bytes = b"", **headers: str) -> bytes:
    """Return a request as it is sent."""
    lines = [f"{method} {path} HTTP/1.1", "Host: 127.0.0.1"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    if body:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode() + body


def upgrade(one: socket.socket, path: str = "/v1/stream", **headers: str) -> None:
    """Open a WebSocket; return when the server has agreed."""
    key = base64.b64encode(os.urandom(16)).decode()
    asked = {"Upgrade": "websocket", "Connection": "Upgrade", "Sec_WebSocket_Version": "13"}
    one.sendall(request("GET", path, **asked, Sec_WebSocket_Key=key, **headers))
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        part = one.recv(1)
        assert part, head
        head += part
    assert head.startswith(b"HTTP/1.1 101 "), head


def send_frame(one: socket.socket, frame: dict[str, Any], opcode: int = 1) -> None:
    """Send a frame of a WebSocket."""
    text = json.dumps(frame).encode()
    assert len(text) < 126
    one.sendall(bytes([0x80 | opcode, 0x80 | len(text)]) + bytes(4) + text)
