"""What a server does by itself from time to time: expiry, snapshots, retention, late syncs."""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING

from rangecast.server.records import AnyEdit, DeleteSubscription
from rangecast.server.requests import Edits
from rangecast.server.snapshots import snapshots
from rangecast.server.sqlite_log import INTERVAL, SqliteLog

if TYPE_CHECKING:
    from rangecast.server.service import Service

logger = logging.getLogger("rangecast.server")
SNAPSHOT_AFTER = 100_000
"""Edits after which a snapshot is written, so that a start is quick."""
_PAUSE = 0.5


class Housekeeper:
    """A thread that keeps house for a service."""

    def __init__(self, service: Service):
        self._service = service
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="rangecast-keep", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End, after what is under way."""
        self._ending.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        service, last = self._service, time.monotonic()
        syncs = service.durability == "interval"
        while not self._ending.wait(INTERVAL if syncs else _PAUSE):
            try:
                if syncs and isinstance(service.log, SqliteLog):
                    service.log.sync()
                if time.monotonic() - last < _PAUSE:
                    continue
                last = time.monotonic()
                service.pump.flush_acks()
                self._expire()
                self.tidy()
            except Exception:
                logger.exception("keeping house failed; it is tried again")

    def _expire(self) -> None:
        """End subscriptions whose time is over."""
        if self._service.follower is not None:
            return  # the leader does
        now = time.time_ns() // 1000
        for entry in list(self._service.registry.spaces.values()):
            over: list[AnyEdit] = [
                DeleteSubscription(entry.tenant, name, entry.name)
                for name, expires in list(entry.expiring.items())
                if expires <= now
            ]
            if over:
                self._service.pump.submit(Edits(over))

    def tidy(self) -> None:
        """Write a snapshot when it is due, and drop what retention doesn't keep."""
        service = self._service
        if service.folder is None:
            return
        ends = self._droppable()
        is_due = service.pump.matching.edits - service.snapshot_edits >= SNAPSHOT_AFTER
        if is_due or ends > service.snapshot_seq:
            service.snapshot()
        if 0 < ends <= max(snapshots(service.folder), default=0):
            service.log.drop(ends)
            service.registry.forget(service.log.first)

    def _droppable(self) -> int:
        """Return the seq up to which retention doesn't keep the log; 0 if it keeps all."""
        log, retention = self._service.log, self._service.retention
        if not isinstance(log, SqliteLog):
            return 0
        drop, size = 0, log.bytes
        oldest = (time.time() - retention.seconds) * 1e6
        for end, taken, newest in log.segment_sizes():
            if size > retention.bytes or newest < oldest:
                drop, size = end, size - taken
            else:
                break
        return drop
