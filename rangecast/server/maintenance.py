"""Maintenance: expiry, snapshots, retention, delayed syncs, and recovery from a full disk."""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass
from itertools import islice

from rangecast.errors import SnapshotError
from rangecast.server.core import Core
from rangecast.server.log.durability import INTERVAL, syncs_in_intervals
from rangecast.server.log.sqlite import SqliteLog
from rangecast.server.memory import release_memory
from rangecast.server.pipeline.commands import Edits
from rangecast.server.state.edits import AdvanceTracks, DeleteSubscription
from rangecast.server.state.tracks.options import clock_of

logger = logging.getLogger("rangecast.server")
SNAPSHOT_AFTER = 100_000
"""Edits after which a snapshot is written, so that a start is quick."""
_PAUSE = 0.5
_MUCH, _SOME, _IDLE = 2.0, 0.2, 0.05
"""Seconds of processor time: much and some work since memory was released, and that of a pause in
which the server is idle."""
_EXPIRED = 10_000
"""Subscriptions of a space that are removed at a time, at most."""
_AGAIN = 30.0
"""Seconds after which a snapshot that could not be written is tried again."""


@dataclass(frozen=True)
class Retention:
    """Retention limits of the log. Events deleted before a consumer read them are a gap for it."""

    bytes: int = 10 << 30
    seconds: float = 7 * 86_400


class Maintenance:
    """Runs the maintenance of a core in a thread."""

    def __init__(self, core: Core, retention: Retention):
        self._core = core
        self._retention = retention
        self._ending = threading.Event()
        self._no_snapshot_until = 0.0
        """After one has failed, by the monotonic clock."""
        self._worked = self._released = 0.0
        """Processor time when it was last looked at, and when memory was last released."""
        self._thread = threading.Thread(target=self._run, name="rangecast-maintenance", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop after the current task."""
        self._ending.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        core, last = self._core, time.monotonic()
        syncs = syncs_in_intervals(core.durability)
        while not self._ending.wait(INTERVAL if syncs else _PAUSE):
            try:
                if syncs and isinstance(core.log, SqliteLog):
                    core.log.sync()
                if time.monotonic() - last < _PAUSE:
                    continue
                last = time.monotonic()
                self._detect_free_space()
                core.pipeline.flush_acks()
                self._expire()
                self._pass_time()
                self.run_once()
                self._release_memory()
            except Exception:
                logger.exception("maintenance failed; retrying")

    def _detect_free_space(self) -> None:
        """Detect that a full disk has space again, even without requests."""
        core, log = self._core, self._core.log
        if core.pipeline.is_full and isinstance(log, SqliteLog) and log.has_space:
            core.pipeline.is_full = False
            log.reserve()

    def _expire(self) -> None:
        """Remove expired subscriptions."""
        if self._core.pipeline.is_copy or self._core.pipeline.is_full:
            return  # the leader does; or later, when there is space to write it
        now = self._core.clock.now()
        for entry in list(self._core.registry.spaces.values()):
            times = list(entry.expiring.items())
            over = (name for name, expires in times if expires <= now)
            for name in islice(over, _EXPIRED):
                version = entry.live.get(name)
                if version is not None and 0 < version.expires <= now:
                    # One by one, and this version alone: others may be renewed at this moment.
                    edit = DeleteSubscription(entry.tenant, name, entry.name)
                    self._core.pipeline.submit(Edits([edit], if_match=str(version.born)))

    def _pass_time(self) -> None:
        """Advance tracks that follow the server's clock, if anything is due."""
        core = self._core
        if core.pipeline.is_copy or core.pipeline.is_full:
            return
        for tracks in list(core.tracks.spaces.values()):
            behind = clock_of(tracks.track)
            if behind is not None and tracks.is_due(core.clock.now() - behind):
                entry, moment = tracks.entry, core.clock.now() - behind
                core.pipeline.submit(Edits([AdvanceTracks(entry.tenant, entry.name, moment)]))

    def _release_memory(self) -> None:
        """Return freed memory to the system: after much work, or after some, once it is done."""
        now, before = time.process_time(), self._worked
        self._worked = now
        since = now - self._released
        if since > _MUCH or (since > _SOME and now - before < _IDLE):
            self._released = now
            release_memory()

    def run_once(self) -> None:
        """Write a snapshot if it is due, and apply retention."""
        core = self._core
        if core.folder is None:
            return
        ends = self._droppable()
        is_due = core.pipeline.matching.edits - core.snapshot_edits >= SNAPSHOT_AFTER
        if (is_due or ends > core.snapshot_seq) and time.monotonic() > self._no_snapshot_until:
            try:
                core.snapshot()
            except (OSError, SnapshotError) as error:
                self._no_snapshot_until = time.monotonic() + _AGAIN
                logger.warning("no snapshot was written: %s; retrying in %g seconds", error, _AGAIN)
        if 0 < ends <= core.snapshot_seq:  # one that was written or read by this process
            core.drop(ends)

    def _droppable(self) -> int:
        """Return the seq up to which retention allows deletion; 0 if there is nothing to delete."""
        log, retention = self._core.log, self._retention
        if not isinstance(log, SqliteLog):
            return 0
        drop, size = 0, log.bytes
        oldest = self._core.clock.now() - retention.seconds * 1e6
        for end, taken, newest in log.segment_sizes():
            if size > retention.bytes or newest < oldest:
                drop, size = end, size - taken
            else:
                break
        return drop
