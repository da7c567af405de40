"""The server without a network: a folder with a log and snapshots, and everything that runs on it.

service = Service("data")
service.start()          # on the event loop that listeners live on
...
service.stop()
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from rangecast.errors import FileError, RangecastError, SnapshotError
from rangecast.model.durable import try_lock
from rangecast.model.filters.tentative import TentativeSpace
from rangecast.server.board_index import BoardIndex
from rangecast.server.boards import LONGEST_BATCH, BoardEntry, parsed_changes, updates_of
from rangecast.server.buses.kafka import KafkaWay
from rangecast.server.buses.nats import NatsWay
from rangecast.server.encoding import encoded
from rangecast.server.fanout import board_messages, carry_out
from rangecast.server.follow import Follower, Leader
from rangecast.server.house import Housekeeper
from rangecast.server.hub import Hub
from rangecast.server.kafka_log import KafkaLog
from rangecast.server.links.driver import TENANT
from rangecast.server.links.links import LinkOptions, Links
from rangecast.server.log import Log, LogError, MemoryLog, Unit
from rangecast.server.pulls import Pulls
from rangecast.server.pump import Pump
from rangecast.server.quotas import Quotas
from rangecast.server.records import (
    UPDATES,
    AnyEdit,
    DeleteConsumer,
    EventsHead,
    PutConsumer,
    PutSubscription,
    StopConsumer,
    run_or_not,
)
from rangecast.server.registry import AnyChange, Consumer, Read, RefusedError, SpaceEntry
from rangecast.server.replay import Replay
from rangecast.server.requests import Accepted, Edits, Events, Updates
from rangecast.server.snapshots import Picture
from rangecast.server.sqlite_log import SqliteLog
from rangecast.server.ways import Ways
from rangecast.server.webhook import Webhook

logger = logging.getLogger("rangecast.server")
_REPLAYED = 64 << 20


def _nobody(_consumer: int) -> bool:
    """Nobody waits for messages that come from the log of another server: they are read."""
    return False


@dataclass(frozen=True)
class Retention:
    """How much of the log stays. What a consumer hasn't read by then is a gap for it."""

    bytes: int = 10 << 30
    seconds: float = 7 * 86_400


class Service:
    """One log and all that follows from it."""

    def __init__(
        self,
        folder: str | Path | None,
        *,
        durability: str = "fsync",
        retention: Retention | None = None,
        is_open: bool = False,
        leader: Leader | None = None,
        allow_private_webhooks: bool = False,
        nats: str | None = None,
        kafka: str | None = None,
        links: LinkOptions | None = None,
        log: str | None = None,
        stopped: Callable[[BaseException], None] | None = None,
    ):
        """Recover what a folder has; `None`: all is in memory, and gone with the process.

        `is_open`: callers from elsewhere need no token either, as long as there is none. `leader`:
        another server, whose log is copied; then nothing is written here. `links`: how it is
        linked to other servers. `log`: where the log is, if not in the folder:
        kafka://HOST:PORT/PREFIX; the folder then has snapshots alone.
        """
        self.folder = None if folder is None else Path(folder)
        self.durability = durability if folder is not None else "none"
        if log is not None:
            self.durability = "kafka"
        self._where = log or self.folder
        self.retention = retention or Retention()
        self.started_at = time.time()
        self._replay = Replay(self._where)
        self.hub = Hub()
        self.pulls = Pulls(self.hub)
        self.sessions: set[Any] = set()
        """The connections that are open."""
        self.is_open = is_open
        self.allow_private_webhooks = allow_private_webhooks
        self.nats, self.kafka = nats, kafka
        """The addresses of message buses, for ways out."""
        self.ways = Ways(self, {"webhook": Webhook, "nats": NatsWay, "kafka": KafkaWay})
        self._lock: IO[str] | None = None
        self._leader = leader
        self.snapshot_seq = 0
        """Where the newest snapshot ends."""
        self.snapshot_edits = 0
        """The edits that had been made when it was taken."""
        self._one_snapshot = threading.Lock()
        self.house = Housekeeper(self)
        self.log: Log = self._opened_log(log)
        try:
            self._recover()
        except BaseException:
            self.close()
            raise
        self.quotas = Quotas(self.registry)
        self.pump = Pump(
            self.log,
            self.registry,
            self.indexes,
            self.repeats,
            self.hub.handed_out,
            stopped or self._log_failure,
        )
        try:
            self.links = None if links is None else Links(self, links)
        except RangecastError:
            self.close()
            raise
        self.follower = None if leader is None else Follower(self, leader)
        if leader is not None:
            self.pump.refuse(f"this server follows {leader.url}\n  to do: send it there")

    # ---- starting and stopping

    def start(self) -> None:
        """Begin to take requests; call it on the event loop."""
        self.hub.start(self.pump)
        self.pump.start()
        self.house.start()
        if self.follower is not None:
            self.follower.start()  # its leader delivers
        else:
            self.ways.start()

    def stop(self) -> None:
        """Write all that was accepted, take a snapshot, and let go of the folder.

        Ways out end before, by `await ways.stop()`.
        """
        if self.follower is not None:
            self.follower.stop()
        self.house.stop()
        self.pump.stop()
        if self.folder is not None and self.log.last > self.snapshot_seq:
            try:
                self._picture().write(self.folder)
            except (OSError, SnapshotError) as error:
                logger.warning("no snapshot: %s; the next start reads the log instead", error)
        self.close()

    def close(self) -> None:
        """Let go of the folder at once."""
        self.log.close()
        if self._leader is not None:
            self._leader.close()
        if self._lock is not None:
            self._lock.close()

    def _opened_log(self, log: str | None) -> Log:
        folder = self.folder
        if folder is None:
            return MemoryLog() if log is None else KafkaLog(log)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._lock = try_lock(folder / "lock")
        except OSError as error:
            raise FileError(f"{folder}: can't be used as a data folder: {error}") from None
        if self._lock is None:
            raise LogError(
                f"{folder}: another server uses this folder\n"
                "  to do: stop it, or choose another folder with --data"
            )
        try:
            if log is not None:
                return KafkaLog(log)
            epoch = None if self._leader is None else self._leader.epoch()
            return SqliteLog(folder, durability=self.durability, epoch=epoch)
        except BaseException:
            self._lock.close()
            if self._leader is not None:
                self._leader.close()
            raise

    def _recover(self) -> None:
        """Get to where the log ends: by the newest whole snapshot, then by the log after it."""
        replay, log = self._replay, self.log
        replay.begin(self.folder, log.epoch, log.first)
        self.registry, self.repeats, self.indexes = replay.registry, replay.repeats, replay.indexes
        self.snapshot_seq = replay.seq
        if replay.seq > log.last:
            raise LogError(
                f"{self._where}: the snapshot is of seq {replay.seq}, the log ends at {log.last}: "
                "something acknowledged was lost\n  to do: restore the folder from a backup"
            )
        if not self.registry.retained.is_counted:
            self.registry.retained.count(log, replay.seq)
        changes: list[AnyChange] = []
        while replay.seq < log.last:
            for unit in log.read(replay.seq, _REPLAYED):
                changes += replay.take(unit)
        carry_out(changes, self.indexes)
        for board in self.registry.boards.values():
            board.index = BoardIndex(board, board.objects, board.live.values())

    def follow(self, unit: Unit) -> None:
        """Carry out a unit that another server wrote."""
        changes = self._replay.carried_out(unit)
        carry_out(changes, self.indexes)
        for _ in board_messages(changes, _nobody):
            pass
        if unit.kind == UPDATES:
            head, updates = updates_of(unit)
            index = self.registry.boards[head.tenant, head.board].index
            for _ in index.update(updates, unit.first, head.is_batch, _nobody):
                pass

    # ---- snapshots

    def snapshot(self) -> int:
        """Write a snapshot; return its seq."""
        assert self.folder is not None
        with self._one_snapshot:
            self.snapshot_edits = self.pump.matching.edits
            picture: Picture = self.pump.paused(self._picture)
            if isinstance(self.log, SqliteLog) and self.durability != "fsync":
                self.log.sync()
            picture.write(self.folder)
            self.snapshot_seq = picture.seq
            return picture.seq

    def _picture(self) -> Picture:
        place = self.log.epoch, self.log.last, self.log.chain
        return Picture(self.registry, self.indexes, self.repeats, place)

    @staticmethod
    def _log_failure(error: BaseException) -> None:
        logger.critical("the server has stopped taking requests: %s", error)

    # ---- what callers want

    def edit(self, *edits: AnyEdit, if_match: str | None = None) -> Future[int]:
        """Ask for edits, all of them or none; the answer is the seq of the first."""
        read: Read = None
        for edit in edits:
            if isinstance(edit, PutSubscription):
                entry = self.registry.spaces.get((edit.tenant, edit.space))
                if entry is not None:
                    space = TentativeSpace(entry.space)
                    read = self.quotas.parsed(edit.tenant, edit.filter, space)
        asked = Edits(run_or_not(edits), read if len(edits) == 1 else None, if_match)
        moved = [
            (edit.tenant, edit.name)
            for edit in edits
            if isinstance(edit, PutConsumer | DeleteConsumer | StopConsumer)
        ]
        if moved:
            self.ways.refresh_after(asked.answer, moved)
        self.pump.submit(asked)
        return asked.answer

    def subscribe_many(
        self, edits: Sequence[PutSubscription], read: Read, if_match: str | None = None
    ) -> Future[int]:
        """Ask for subscriptions, as `edit` does; their filters have been read."""
        asked = Edits(run_or_not(edits), read, if_match)
        self.pump.submit(asked)
        return asked.answer

    def publish(
        self,
        entry: SpaceEntry,
        lines: Sequence[bytes],
        *,
        ignore_unknown: bool = False,
        wants_matches: bool = False,
        strict: bool = False,
        key: str = "",
        digest: str = "",
        dedup: bool = False,
        form: str = "",
        source: str = "",
        upto: int = 0,
    ) -> Future[Accepted]:
        """Publish events, each a JSON text; those that can't be used are refused one by one."""
        taken, refused = encoded(lines, entry.space, ignore_unknown=ignore_unknown, form=form)
        if self.links is not None:
            taken, refused = self.links.fitting(taken, refused)
        given = entry.tenant, entry.name, key, digest, form, dedup, source, upto
        head = EventsHead(*given, refused)
        asked = Events(entry, taken, head, wants_matches)
        if (strict and refused) or not taken.lines:
            asked.answer.set_result(Accepted(self.log.last + 1, 0, refused))
        else:
            self.pump.submit(asked)
        return asked.answer

    def update(
        self,
        entry: BoardEntry,
        lines: Sequence[bytes],
        *,
        is_batch: bool = False,
        strict: bool = False,
    ) -> Future[Accepted]:
        """Change objects of a board, a JSON text each; those that can't be made are refused one by
        one, or (`strict`, and always in a batch) all of them.
        """
        if is_batch and len(lines) > LONGEST_BATCH:
            raise RefusedError(413, f"a batch has at most {LONGEST_BATCH:,} changes")
        changes, refused = parsed_changes(entry, lines)
        asked = Updates(entry, changes, refused, is_batch, strict or is_batch)
        self.pump.submit(asked)
        return asked.answer

    def acknowledge(self, consumer: Consumer, seq: int) -> None:
        """Note that a consumer has got everything up to a seq."""
        self.pump.check_open()
        self.pump.note_ack(consumer, seq)

    def why_not_ready(self) -> str:
        """Return what keeps events from being taken; nothing if all is well."""
        if self.pump.has_failed:
            return "stopped"
        return "disk full" if self.pump.is_full else ""

    @property
    def log_bytes(self) -> int:
        """Bytes of the log on the disk."""
        return self.log.bytes if isinstance(self.log, SqliteLog) else 0

    def status(self, tenant: str) -> dict[str, Any]:
        """Return how things are; spaces, subscriptions and consumers are those of a tenant."""
        pump, log, registry = self.pump, self.log, self.registry
        return {
            "epoch": log.epoch,
            "first": log.first,
            "durable": pump.durable,
            "matched": pump.matched,
            "durability": self.durability,
            "disk_full": pump.is_full,
            "log_bytes": self.log_bytes,
            "snapshot": self.snapshot_seq,
            "seconds": round(time.time() - self.started_at, 1),
            "events": pump.matching.events,
            "edits": pump.matching.edits,
            "matches": pump.matching.pairs,
            "updates": pump.matching.updates,
            "spaces": sum(owner == tenant for owner, _ in list(registry.spaces)),
            "boards": sum(owner == tenant for owner, _ in list(registry.boards)),
            "subscriptions": registry.counts.get(tenant, 0),
            "consumers": sum(owner == tenant for owner, _ in list(registry.consumers)),
            "listeners": sum(map(len, self.hub.feeds.values())),
            **({} if self.follower is None else {"follower": self.follower.status()}),
            **({} if self.links is None or tenant != TENANT else self.links.status()),
        }
