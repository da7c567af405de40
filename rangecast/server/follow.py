"""A warm follower: a server that copies another one's log, unit by unit, and carries it out.

It checks that both logs are one history: the same epoch, and at every unit the same checksum over
all before it. It answers what can be answered without writing. When the other one is gone for good,
start it again without --follow: it goes on where the copy ends.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Any

import httpx
import msgspec

from rangecast.errors import RangecastError
from rangecast.server.log import Draft, Log, LogError, Unit, is_chained

if TYPE_CHECKING:
    from rangecast.server.service import Service

logger = logging.getLogger("rangecast.server")
WAIT = 10.0
"""Seconds that the leader may take to answer when there is nothing new."""
_AGAIN = 0.5
_PIECE = 4 << 20


class Piece(msgspec.Struct, array_like=True):
    """A part of a log, as one server gives it to another."""

    epoch: str
    first: int
    last: int
    before: bytes
    """The checksum of the unit before the first one here; empty: it is gone."""
    units: list[Unit]


def piece_of(log: Log, after: int) -> bytes:
    """Return the units after a seq."""
    before = b""
    if after >= log.first:
        before = next((one.chain for one in log.read(after - 1, 1) if one.last == after), b"")
    return msgspec.msgpack.encode(
        Piece(log.epoch, log.first, log.last, before, log.read(after, _PIECE))
    )


class Leader:
    """Another server, whose log is wanted."""

    def __init__(self, url: str, token: str | None):
        self.url = url.rstrip("/")
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self._http = httpx.Client(headers=headers, timeout=WAIT + 20, trust_env=False)

    def piece(self, after: int, wait: float = 0.0) -> Piece:
        """Return what comes after a seq; wait for something, at most so long."""
        params = {"after": after, "wait": wait}
        answer = self._http.get(f"{self.url}/v1/log", params=params)
        if answer.status_code != 200:
            raise LogError(f"{self.url}: gives no log: {answer.status_code} {answer.text[:200]}")
        return msgspec.msgpack.decode(answer.content, type=Piece)

    def epoch(self) -> str:
        """Return which history it has; refuse to begin when nobody answers."""
        try:
            return self.piece(0).epoch
        except httpx.HTTPError as error:
            raise LogError(
                f"{self.url}: can't be followed: {error or type(error).__name__}"
            ) from None

    def close(self) -> None:
        """Close the connections."""
        self._http.close()


class Follower:
    """Keeps a service's log equal to that of a leader."""

    def __init__(self, service: Service, leader: Leader):
        self._service = service
        self._leader = leader
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="rangecast-follow", daemon=True)
        self.leader_last = 0
        self.error = ""
        """Why it doesn't get on, if it doesn't."""

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End after the piece that is under way."""
        self._ending.set()
        self._leader.close()
        self._thread.join()

    def status(self) -> dict[str, Any]:
        """Return how far it is."""
        behind = max(0, self.leader_last - self._service.log.last)
        return {"follows": self._leader.url, "behind": behind, "error": self.error}

    def _run(self) -> None:
        while not self._ending.is_set():
            try:
                self._take(self._leader.piece(self._service.log.last, WAIT))
                self.error = ""
            except (httpx.HTTPError, RuntimeError, msgspec.DecodeError) as error:
                self.error = f"{self._leader.url}: {error or type(error).__name__}"
                self._ending.wait(_AGAIN)
            except RangecastError as error:
                self.error = str(error)
                logger.error("following has stopped: %s", error)
                return

    def _take(self, piece: Piece) -> None:
        """Write and carry out a part of the leader's log, if it goes on where this log ends."""
        service, log = self._service, self._service.log
        self.leader_last = piece.last
        if piece.epoch != log.epoch or piece.last < log.last:
            raise LogError(
                f"{self._leader.url} has another history: epoch {piece.epoch} up to "
                f"{piece.last}, here {log.epoch} up to {log.last}\n"
                "  to do: begin with an empty folder, or with a copy of the leader's"
            )
        if piece.first > log.last + 1:
            raise LogError(
                f"{self._leader.url}: its log begins at {piece.first}, after what is here\n"
                "  to do: begin with a copy of the leader's folder"
            )
        if log.last >= piece.first and piece.before != log.chain:
            raise LogError(f"{self._leader.url}: its log differs from this one before {log.last}")
        for unit in piece.units:
            if not is_chained(log.chain, unit):
                raise LogError(f"{self._leader.url}: the unit at {unit.first} came damaged")
            log.append([Draft(unit.kind, unit.length, unit.at, unit.body)])
            service.follow(unit)
            service.pump.advance(unit.last)
