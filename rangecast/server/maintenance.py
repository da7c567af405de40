"""Maintenance: expiry, snapshots, retention, late syncs, and a full disk that has space again."""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING

from rangecast.errors import SnapshotError
from rangecast.server.log.sqlite import INTERVAL, SqliteLog
from rangecast.server.pipeline.commands import Edits
from rangecast.server.state.edits import AnyEdit, DeleteSubscription

if TYPE_CHECKING:
    from rangecast.server.service import Service

logger = logging.getLogger("rangecast.server")
SNAPSHOT_AFTER = 100_000
"""Edits after which a snapshot is written, so that a start is quick."""
_PAUSE = 0.5
_AGAIN = 30.0
"""Seconds after which a snapshot that could not be written is tried again."""


class Housekeeper:
    """A thread that keeps house for a service."""

    def __init__(self, service: Service):
        self._service = service
        self._ending = threading.Event()
        self._no_snapshot_until = 0.0
        """After one has failed, by the monotonic clock."""
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
                self._look_for_space()
                service.pump.flush_acks()
                self._expire()
                self.tidy()
            except Exception:
                logger.exception("keeping house failed; it is tried again")

    def _look_for_space(self) -> None:
        """Note that a disk that was full has space again: nothing may be sent that finds out."""
        service, log = self._service, self._service.log
        if service.pump.is_full and isinstance(log, SqliteLog) and log.has_space:
            service.pump.is_full = False
            log.reserve()

    def _expire(self) -> None:
        """End subscriptions whose time is over."""
        if self._service.follower is not None or self._service.pump.is_full:
            return  # the leader does; or later, when there is space to write it
        now = self._service.clock.now()
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
        if (is_due or ends > service.snapshot_seq) and time.monotonic() > self._no_snapshot_until:
            try:
                service.snapshot()
            except (OSError, SnapshotError) as error:
                self._no_snapshot_until = time.monotonic() + _AGAIN
                logger.warning("no snapshot: %s; it is tried again in %g seconds", error, _AGAIN)
        if 0 < ends <= service.snapshot_seq:  # one that was written or read by this process
            service.drop(ends)

    def _droppable(self) -> int:
        """Return the seq up to which retention doesn't keep the log; 0 if it keeps all."""
        log, retention = self._service.log, self._service.retention
        if not isinstance(log, SqliteLog):
            return 0
        drop, size = 0, log.bytes
        oldest = self._service.clock.now() - retention.seconds * 1e6
        for end, taken, newest in log.segment_sizes():
            if size > retention.bytes or newest < oldest:
                drop, size = end, size - taken
            else:
                break
        return drop
