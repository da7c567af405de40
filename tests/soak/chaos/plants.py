"""Bugs that are planted in a server, to see that each is found. The starter applies one by
patching, before it serves; the package itself stays as it is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Plant:
    """A bug, the faults that bring it out, and the promises that it breaks."""

    patch: Callable[[], None]
    faults: str
    promises: str

    @property
    def says(self) -> str:
        """Return what it does."""
        return (self.patch.__doc__ or "").partition("\n")[0]


def early_repeats() -> None:
    """A repeat is answered while its group is admitted, before it is on disk."""
    from rangecast.server.state.dedup import Deduplicator

    unseen = Deduplicator.unseen

    def hasty(self: Deduplicator, *given: Any) -> Any:
        return unseen(self, *given)[0], False

    Deduplicator.unseen = hasty  # type: ignore[method-assign]
    Deduplicator.is_pending = lambda self, head: False  # type: ignore[method-assign]


def unbounded_nesting() -> None:
    """JSON is taken as deep as a thread with a short stack can read it, and replay fails on it."""
    from concurrent.futures import ThreadPoolExecutor

    from rangecast.server import encoding, json_text
    from rangecast.server.state import dedup

    plain, threads = json_text.decode, ThreadPoolExecutor(1)

    def unbounded(text: bytes, *given: Any, **options: Any) -> Any:
        if text.count(b"[") <= json_text.MAX_DEPTH:
            return plain(text, *given, **options)
        return threads.submit(plain, text, *given, **options).result()

    json_text.decode = unbounded
    json_text.check_depth = lambda *given: None  # type: ignore[assignment]
    for module in (encoding, dedup):
        module.shallow = lambda text: text  # type: ignore[attr-defined]


def no_sync() -> None:
    """A group is answered before it is synced."""
    from rangecast.server.log import durability

    durability.SYNCHRONOUS["fsync"] = "OFF"


def unsynced_start() -> None:
    """A start doesn't sync what a killed process has left, and delivers it."""
    from rangecast.server.log.sqlite import SqliteLog

    SqliteLog.sync = lambda self: None  # type: ignore[method-assign]


def answered_first() -> None:
    """Events are answered before their group is appended."""
    from rangecast.server.log.base import Draft
    from rangecast.server.pipeline.commands import Events
    from rangecast.server.pipeline.pipeline import CommitPipeline

    admitted = CommitPipeline._admitted

    def hasty(self: CommitPipeline, request: Any, *given: Any) -> Any:
        draft = admitted(self, request, *given)
        is_plain = isinstance(request, Events) and not request.wants_matches
        if is_plain and isinstance(draft, Draft):
            request.answer.set_result(request.accepted)
            request.answer = Future()
        return draft

    CommitPipeline._admitted = hasty  # type: ignore[method-assign]


def stale_snapshot() -> None:
    """A snapshot misses the last edit before it."""
    from rangecast.server.pipeline.apply import apply_changes
    from rangecast.server.state import replay
    from rangecast.server.state.edits import DeleteSubscription

    plain = replay.opened

    def stale(*given: Any) -> Any:
        found = plain(*given)
        state, registry, indexes, _ = found
        for entry in registry.spaces.values():
            newest = max(entry.live.values(), key=lambda one: one.born, default=None)
            if newest is not None:
                edit = DeleteSubscription(entry.tenant, newest.id, entry.name)
                apply_changes([*registry.apply([edit], state.seq)], indexes)
        return found

    replay.opened = stale


def ack_beyond() -> None:
    """An acknowledgement is written beyond what was delivered."""
    from rangecast.server.pipeline import pipeline

    plain = pipeline.acks_draft
    pipeline.acks_draft = lambda acks, at: plain({key: seq + 7 for key, seq in acks.items()}, at)


def dedup_forgotten() -> None:
    """A restart forgets which requests and ids have come."""
    from rangecast.server.state import replay
    from rangecast.server.state.dedup import Deduplicator

    plain = replay.opened

    def forgetful(*given: Any) -> Any:
        found = plain(*given)
        found[3].requests.clear()
        found[3].ids.clear()
        return found

    replay.opened = forgetful
    Deduplicator.replay = lambda self, *given: None  # type: ignore[method-assign]


def tail_dropped() -> None:
    """A start drops half of the write-ahead log."""
    from rangecast.server.log.sqlite import SqliteLog, segments

    begin = SqliteLog.__init__

    def careless(self: SqliteLog, folder: Any, **options: Any) -> None:
        for first in segments(folder) if folder.exists() else ():
            path = folder / f"log-{first:020}.db-wal"
            if path.exists():
                with path.open("r+b") as file:
                    file.truncate(path.stat().st_size // 2)
        begin(self, folder, **options)

    SqliteLog.__init__ = careless  # type: ignore[method-assign]


def silent_gap() -> None:
    """A consumer isn't told of the gap when retention was quicker."""
    from rangecast.server.delivery.log_reader import Reader

    read = Reader.read
    Reader.read = lambda self, *given: read(self, *given)._replace(  # type: ignore[method-assign]
        gap=None
    )


def endless_stop() -> None:
    """A stop waits for a WebSocket that doesn't read."""
    from rangecast.server import process

    end = process.Server.shutdown

    async def patient(self: process.Server, sockets: Any = None) -> None:
        while any(one.transport.get_write_buffer_size() for one in self.server_state.connections):
            await asyncio.sleep(0.05)
        await end(self, sockets)

    process.Server.shutdown = patient  # type: ignore[method-assign]
    process.exit_after = lambda seconds: None  # type: ignore[assignment]


def frozen_clock() -> None:
    """The log's clock stands still after a jump back."""
    import time

    from rangecast.server.pipeline.pipeline import CommitPipeline

    def tick(self: Any) -> int:
        self._now = max(self._now, time.time_ns() // 1000)
        return int(self._now)

    CommitPipeline._tick = tick  # type: ignore[method-assign]


def edit_not_applied() -> None:
    """An edit is acknowledged, and the matcher never hears of it."""
    from rangecast.server.pipeline import apply

    plain, count = apply.apply_changes, [0]

    def forgetful(changes: Any, indexes: Any) -> None:
        count[0] += 1
        plain(changes if count[0] % 7 else changes[1:], indexes)

    apply.apply_changes = forgetful


def budget_exceeded() -> None:
    """A consumer gets one message per second more than its budget."""
    from rangecast.server.delivery.rate_limit_reader import SecondBuffer

    begin = SecondBuffer.__init__
    SecondBuffer.__init__ = lambda self, budget: begin(self, budget + 1)  # type: ignore[method-assign]


def ready_while_full() -> None:
    """Readiness says yes while the disk is full."""
    from rangecast.server.service import Service

    Service.why_not_ready = lambda self: ""  # type: ignore[method-assign]


def rejected_written() -> None:
    """What was rejected on a full disk is written when there is room."""
    from rangecast.server.pipeline.pipeline import CommitPipeline

    reject = CommitPipeline._reject_full

    def stubborn(self: Any, error: Any, rejected: Any, acks: Any) -> None:
        reject(self, error, rejected, acks)
        for request in rejected:
            request.answer = Future()
            with self._change:
                self._waiting.append(request)
                self.queue_bytes += request.size

    CommitPipeline._reject_full = stubborn  # type: ignore[method-assign]


def follower_gives_up() -> None:
    """A follower stops at the first error of its leader."""
    from rangecast.server.replication.follower import Follower

    def process(self: Any) -> None:
        try:
            while not self._ending.is_set():
                self._take(self._leader.piece(self._core.log.last, 10.0))
        except Exception:
            return

    Follower._run = process  # type: ignore[method-assign]


def link_forgets() -> None:
    """A server forgets after a restart how far it has read its neighbours' events."""
    from rangecast.server.state.dedup import Deduplicator

    Deduplicator.check_source = lambda self, *given: None  # type: ignore[method-assign]
    Deduplicator.read_from = lambda self, *given: {}  # type: ignore[method-assign]


PLANTS = {
    "early-repeats": Plant(early_repeats, "repeats", "acknowledged-lost"),
    "unbounded-nesting": Plant(unbounded_nesting, "hostile", "starts readable answered"),
    "no-sync": Plant(no_sync, "power,kill-at", "acknowledged-lost log-shrunk seq-reused starts"),
    "unsynced-start": Plant(unsynced_start, "quiet-restart", "log-shrunk seq-reused delivered"),
    "answered-first": Plant(answered_first, "repeats,full-disk", "acknowledged-lost"),
    "stale-snapshot": Plant(stale_snapshot, "term,calm", "live-set matched message-lost delivered"),
    "ack-beyond": Plant(ack_beyond, "kill", "cursor"),
    "dedup-forgotten": Plant(dedup_forgotten, "repeats", "written-twice"),
    "tail-dropped": Plant(tail_dropped, "kill", "acknowledged-lost log-shrunk seq-reused starts"),
    "silent-gap": Plant(silent_gap, "retention,calm,kill", "message-lost"),
    "endless-stop": Plant(endless_stop, "slow-reader", "stops"),
    "frozen-clock": Plant(frozen_clock, "clock", "delivered clock"),
    "edit-not-applied": Plant(edit_not_applied, "calm,term", "matched message-lost delivered"),
    "budget-exceeded": Plant(budget_exceeded, "calm,kill", "budget"),
    "ready-while-full": Plant(ready_while_full, "full-disk", "ready"),
    "rejected-written": Plant(rejected_written, "full-disk", "rejected-written"),
    "follower-gives-up": Plant(follower_gives_up, "follower,kill,term", "follows"),
    "link-forgets": Plant(link_forgets, "links", "link-order"),
}
