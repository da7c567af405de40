"""Warm follower: a server that copies another server's log, unit by unit, and applies it.

It verifies that both logs are one history: the same epoch, and at every unit the same cumulative
checksum. It serves all requests that don't write. When the leader is lost, restart the follower
without --follow: it continues where the copy ends.

All other failures (the leader, the network, a proxy between them, this disk) are retried. Only a
different history stops it for good: nothing later could be appended to this copy.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import msgspec

from rangecast.errors import RangecastError
from rangecast.server.core import Core
from rangecast.server.log.base import Log, LogError, LogFullError, Unit, is_chained
from rangecast.server.security.trust import trusted

logger = logging.getLogger("rangecast.server")
WAIT = 2.0
"""Maximum seconds that the leader may take to answer when there is nothing new."""
FIRST_PAUSE, LAST_PAUSE = 0.5, 10.0
"""Seconds between two attempts that fail: they double from the first to the last."""
MAX_AGE = 30.0
"""Seconds without a complete copy after which a follower isn't ready."""
MAX_ANSWER_BYTES = 256 << 20
"""Bytes of one answer of the leader, decompressed."""
MAX_ANSWER_SECONDS = 120.0
"""Seconds that one answer may take from its first byte to its last."""
STOP_SECONDS = 5.0
"""Seconds that an attempt under way has to end when the server stops."""
_PIECE = 4 << 20
_SILENCE = 10.0
"""Seconds of silence that end an attempt."""


class HistoryError(LogError):
    """The leader's log isn't the one that was copied."""


class Piece(msgspec.Struct, array_like=True):
    """A part of a log, as sent from one server to another."""

    epoch: str
    first: int
    last: int
    before: bytes
    """Checksum of the unit before the first one here; empty: deleted."""
    units: list[Unit]


def piece_of(log: Log, after: int) -> bytes:
    """Return the units after a seq, encoded as a `Piece`."""
    before = b""
    if log.first <= after <= log.last:
        before = next((unit.chain for unit in log.read(after - 1, 1) if unit.last == after), b"")
    units = log.read(after, _PIECE) if after < log.last else []
    return msgspec.msgpack.encode(Piece(log.epoch, log.first, log.last, before, units))


class Leader:
    """Client of the server whose log is copied."""

    def __init__(self, url: str, token: str | None):
        self.url = url.rstrip("/")
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self._http = httpx.Client(
            headers=headers, timeout=WAIT + _SILENCE, trust_env=False, verify=trusted()
        )

    def piece(self, after: int, wait: float = 0.0) -> Piece:
        """Return units after a seq; wait up to `wait` seconds if there are none."""
        params = {"after": after, "wait": wait}
        with (
            self._naming_leader(),
            self._http.stream("GET", f"{self.url}/v1/log", params=params) as answer,
        ):
            body = _read(answer)
            if answer.status_code != 200:
                text = body[:200].decode("utf-8", "replace")
                raise LogError(f"gives no log: {answer.status_code} {text}".rstrip())
            return msgspec.msgpack.decode(body, type=Piece)

    @contextmanager
    def _naming_leader(self) -> Iterator[None]:
        """Add the leader's URL to any error."""
        try:
            yield
        except msgspec.DecodeError as error:
            raise LogError(f"{self.url}: its response isn't part of a log: {error}") from None
        except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError, OSError) as error:
            raise LogError(f"{self.url}: {str(error) or type(error).__name__}") from None
        except LogError as error:
            raise LogError(f"{self.url}: {error}") from None

    def epoch(self) -> str:
        """Return the epoch of the leader's log; a copy can't begin without it."""
        try:
            return self.piece(0).epoch
        except LogError as error:
            raise LogError(
                f"{error}\n  hint: a first copy needs the leader: start again once it responds; "
                "an existing copy starts without it"
            ) from None

    def close(self) -> None:
        """Close the connections."""
        self._http.close()


def _read(answer: httpx.Response) -> bytes:
    """Return the body of a response; reject one that is too large or too slow."""
    parts: list[bytes] = []
    size, deadline = 0, time.monotonic() + MAX_ANSWER_SECONDS
    for part in answer.iter_bytes():
        size += len(part)
        if size > MAX_ANSWER_BYTES:
            raise LogError(f"a response may have at most {MAX_ANSWER_BYTES:,} bytes")
        if time.monotonic() > deadline:
            raise LogError(f"a response took more than {MAX_ANSWER_SECONDS:g} seconds")
        parts.append(part)
    return b"".join(parts)


class Follower:
    """Replicates the log of a leader into a service."""

    def __init__(self, core: Core, leader: Leader):
        self._core = core
        self._leader = leader
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="rangecast-follow", daemon=True)
        self.leader_last = 0
        """The last seq of the leader, by its last answer."""
        self.error = ""
        """Why the last attempt failed; empty if it didn't."""
        self.failures = 0
        """Attempts that failed since the start."""
        self._contact: float | None = None
        """When the leader last answered with a part of its log."""
        self._current: float | None = None
        """When this copy last had all that the leader had."""
        self._is_stopped = False
        self._is_beyond = False
        """Whether the leader has deleted the next units."""
        self._has_doubt = False
        """Whether the last answer was of another history."""

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self, seconds: float = STOP_SECONDS) -> None:
        """Stop after the current unit; abandon an attempt that takes longer."""
        self._ending.set()
        if self._thread.is_alive():
            self._thread.join(seconds)
        self._leader.close()

    @property
    def lag(self) -> int:
        """Number of seqs that this copy is behind, by the leader's last response."""
        return max(0, self.leader_last - self._core.log.last)

    @property
    def contact_age(self) -> float | None:
        """Seconds since the leader last responded; `None` if it never has since the start."""
        return None if self._contact is None else time.monotonic() - self._contact

    @property
    def state(self) -> str:
        """Replication state: `following`, `copying` (still behind), `retrying` or `stopped`."""
        if self._is_stopped:
            return "stopped"
        if self.error:
            return "retrying"
        return "copying" if self.lag or self._current is None else "following"

    def status(self) -> dict[str, Any]:
        """Return the replication state, position and times."""
        age = self.contact_age
        return {
            "follows": self._leader.url,
            "state": self.state,
            "lag": self.lag,
            "contact_age_seconds": None if age is None else round(age, 1),
            "failures": self.failures,
            "error": self.error,
        }

    def why_not_ready(self) -> str:
        """Return why this copy must not be read; empty if it is at most `MAX_AGE` old."""
        if self._is_stopped:
            return "follower stopped: the leader has another history"
        if self._is_beyond:
            return "follower can't catch up: the leader no longer has the next entries"
        if self._current is None:
            return "follower has not caught up with its leader since it started"
        age = time.monotonic() - self._current
        if age <= MAX_AGE:
            return ""
        return f"follower is stale: its copy was complete {age:.0f} seconds ago"

    def _run(self) -> None:
        pause = FIRST_PAUSE
        while not self._ending.is_set() and not self._is_stopped:
            try:
                self._take(self._leader.piece(self._core.log.last, WAIT))
                self.error, pause = "", FIRST_PAUSE
                self._has_doubt = False
                continue
            except HistoryError as error:
                # The first time it may be a proxy's mistake; the second time it is so.
                self._is_stopped, self._has_doubt = self._has_doubt, True
                self._failed(str(error))
            except RangecastError as error:
                self._has_doubt = False
                self._failed(str(error))
            except Exception as error:
                if self._core.pipeline.has_failed or self._ending.is_set():
                    return  # the server stops
                logger.exception("following failed")
                self._failed(f"internal error: {type(error).__name__}")
            self._ending.wait(pause * random.uniform(0.5, 1.0))
            pause = min(2 * pause, LAST_PAUSE)
        if self._is_stopped:
            logger.error("following has stopped: %s", self.error)

    def _failed(self, why: str) -> None:
        if why != self.error:
            logger.warning("following failed, retrying: %s", why)
        self.error = why
        self.failures += 1

    def _take(self, piece: Piece) -> None:
        """Write and apply a part of the leader's log, if it continues this log."""
        core, log = self._core, self._core.log
        arrived = time.monotonic()
        self._check(piece)
        self._contact, self.leader_last = arrived, piece.last
        self._is_beyond = piece.first > log.last + 1
        if self._is_beyond:
            raise LogError(
                f"{self._leader.url}: its log starts at {piece.first}, after the end of this copy\n"
                "  hint: start with a copy of the leader's folder"
            )
        for unit in piece.units:
            if self._ending.is_set():
                return
            if unit.first != log.last + 1 or not is_chained(log.chain, unit):
                raise LogError(f"{self._leader.url}: the unit at {unit.first} arrived damaged")
            try:
                core.follow(unit)
            except LogFullError:
                core.pipeline.is_full = True
                raise
        core.pipeline.is_full = False
        if log.last >= piece.last:
            self._current = arrived

    def _check(self, piece: Piece) -> None:
        """Reject a part that belongs to another history."""
        log = self._core.log
        if piece.epoch != log.epoch or piece.last < log.last:
            raise HistoryError(
                f"{self._leader.url} has another history: epoch {piece.epoch} up to "
                f"{piece.last}, this copy {log.epoch} up to {log.last}\n"
                "  hint: start with an empty folder, or with a copy of the leader's"
            )
        if log.last >= piece.first and piece.before != log.chain:
            raise HistoryError(
                f"{self._leader.url} has another history: it differs from this one before "
                f"{log.last}\n  hint: start with an empty folder, or with a copy of the leader's"
            )
