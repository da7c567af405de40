"""Frames between processes: the length and the kind of a message, and its fields as MessagePack."""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from rangecast.notify.messages import Message
from rangecast.notify.servers.wire import (
    Ask,
    Completed,
    Edit,
    Enter,
    FirstK,
    Gather,
    Gathered,
    Grant,
    Handover,
    Load,
    Lowest,
    MinY,
    Nearest,
    ServerMessage,
    SetValue,
    Start,
    Tile,
)

_HEAD = struct.Struct(">IB")
_READ = 1 << 16


class Report(NamedTuple):
    """A request for the counts of a server."""


class Counts(NamedTuple):
    """Counts of a server."""

    objects: int
    work: tuple[int, ...]
    hops: tuple[int, ...]
    sent: int
    """Messages to neighbours."""
    received: int


class Failed(NamedTuple):
    """A server can't go on."""

    reason: str


Frame = ServerMessage | Message | Tile | Completed | Start | Report | Counts | Failed
_KINDS: tuple[type[Any], ...] = (
    *(SetValue, Enter, FirstK, MinY, Gather, Nearest, Lowest, Gathered),
    *(Handover, Ask, Grant, Load, Edit),
    *(Message, Tile, Completed, Start, Report, Counts, Failed),
)
_NUMBERS = {kind: number for number, kind in enumerate(_KINDS)}
_DECODERS = [msgspec.msgpack.Decoder(kind) for kind in _KINDS]
_encode = msgspec.msgpack.Encoder().encode


def frame_of(message: Frame) -> bytes:
    """Return a message as a frame."""
    body = _encode(message)
    return _HEAD.pack(len(body), _NUMBERS[type(message)]) + body


class Connection:
    """One end of a link: frames in order, without blocking."""

    def __init__(self, link: socket.socket):
        link.setblocking(False)
        self.link = link
        self.is_open = True
        self._in, self._out = bytearray(), bytearray()

    @property
    def has_output(self) -> bool:
        """Whether something waits to be sent."""
        return bool(self._out)

    def send(self, message: Frame) -> None:
        """Send a message, as soon as the other end reads."""
        self._out += frame_of(message)
        self.flush()

    def flush(self) -> None:
        """Send as much as the link takes."""
        try:
            while self._out:
                del self._out[: self.link.send(self._out)]
        except BlockingIOError:
            pass
        except OSError:  # the link is broken: `received` reports that
            self._out.clear()

    def received(self) -> Iterator[Frame]:
        """Yield the messages that have arrived; `is_open` says whether more may follow."""
        try:
            while self.is_open:
                data = self.link.recv(_READ)
                self.is_open = bool(data)
                self._in += data
        except BlockingIOError:
            pass
        except OSError:
            self.is_open = False
        while len(self._in) >= _HEAD.size:
            length, kind = _HEAD.unpack_from(self._in)
            end = _HEAD.size + length
            if len(self._in) < end:
                return
            body = bytes(memoryview(self._in)[_HEAD.size : end])
            del self._in[:end]
            yield _DECODERS[kind].decode(body)

    def close(self) -> None:
        """Close this end."""
        with contextlib.suppress(OSError):
            self.link.close()


def linked() -> tuple[socket.socket, socket.socket]:
    """Return both ends of a new TCP connection over loopback."""
    with socket.create_server(("127.0.0.1", 0), backlog=1) as listening:
        near = socket.create_connection(listening.getsockname())
        far, peer = listening.accept()
        while peer != near.getsockname():  # another program was quicker
            far.close()
            far, peer = listening.accept()
    for end in (near, far):
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return near, far
