"""The core of a server: one log, the state derived from it, and the commit pipeline.

Everything that uses this state (HTTP, push delivery, connectors, links, a follower, maintenance) is
given a `Core`; `service` builds and runs all of them.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import IO, Any

from rangecast.device_copy import DeviceCopies
from rangecast.errors import FileError, SnapshotError
from rangecast.model.filters.tentative import TentativeSpace
from rangecast.model.io.durable import try_lock
from rangecast.server.delivery.listeners import Hub, PullListeners
from rangecast.server.delivery.messages import Gap
from rangecast.server.encoding import EncodedEvents, encoded, without_long_events
from rangecast.server.log.base import Draft, Log, LogError, MemoryLog, Unit
from rangecast.server.log.durability import syncs_each_write
from rangecast.server.log.kafka import KafkaLog
from rangecast.server.log.segment import segments
from rangecast.server.log.sqlite import SqliteLog
from rangecast.server.pipeline.apply import Matching, apply_changes, board_messages
from rangecast.server.pipeline.commands import Edits, Events, Outcome, PublishedEvents, Updates
from rangecast.server.pipeline.futures import chained_future
from rangecast.server.pipeline.pipeline import CommitPipeline
from rangecast.server.security.hosts import Hosts
from rangecast.server.security.private_folder import create, make_private
from rangecast.server.state.admission import Conditions
from rangecast.server.state.board_index import BoardIndex
from rangecast.server.state.boards import MAX_BATCH, BoardEntry, parsed_changes, updates_of
from rangecast.server.state.edits import (
    KINDS,
    UPDATES,
    AnyEdit,
    DeleteConsumer,
    EventsHead,
    PutConsumer,
    PutRun,
    PutSubscription,
    StopConsumer,
    as_run,
)
from rangecast.server.state.entries import AnyChange, Consumer, Read, SpaceEntry
from rangecast.server.state.history.base import Bases
from rangecast.server.state.history.histories import Histories
from rangecast.server.state.lineage import Lineage, LostPositionError
from rangecast.server.state.quotas import INLINE_LENGTH, Quotas
from rangecast.server.state.registry import Name, RequestError
from rangecast.server.state.replay import Replay
from rangecast.server.state.snapshots import SnapshotState
from rangecast.server.state.sources import SourceState
from rangecast.server.state.space_index import SpaceIndex
from rangecast.server.state.tracks.options import track_columns

logger = logging.getLogger("rangecast.server")
_REPLAYED = 64 << 20


class Core:
    """A log and the state derived from it. Any thread may publish, edit and acknowledge."""

    def __init__(
        self,
        folder: str | Path | None,
        *,
        durability: str = "fsync",
        log: str | None = None,
        epoch_of_copy: Callable[[], str] | None = None,
        max_event_bytes: int | None = None,
        hosts: Hosts | None = None,
        device: str | None = None,
        stopped: Callable[[BaseException], None] | None = None,
    ):
        """Recover the state from a folder; with `None`, keep everything in memory only.

        log               location of the log, if not in the folder: kafka://HOST:PORT/PREFIX; the
                          folder then has only snapshots
        epoch_of_copy     for a copy of another server's log: returns the epoch of that log; called
                          if the folder has no log yet
        max_event_bytes   longer events are rejected
        hosts             callers that need no token as long as none exists
        device            device that matches large batches of events, such as `cuda`
        stopped           called with the error that ends the commit pipeline
        """
        self.device = None if device is None else DeviceCopies(device)
        self.folder = None if folder is None else Path(folder)
        self.durability = durability if folder is not None else "none"
        if log is not None:
            self.durability = "kafka"
        self._where = log or self.folder
        self._max_event_bytes = max_event_bytes
        self._replay = Replay(self._where)
        self.hosts = hosts or Hosts((), is_open=False)
        self.hub = Hub()
        self.pulls = PullListeners(self.hub)
        self.sources: dict[str, SourceState] = {}
        """State of the sources that the server polls, by name."""
        self.consumers_changed: Callable[[Future[Any], Sequence[Name]], None] = lambda *_: None
        """Called with the answer of an edit and the consumers that it creates, changes or ends."""
        self._lock: IO[str] | None = None
        self.snapshot_seq = 0
        """Seq of the newest snapshot."""
        self.snapshot_edits = 0
        """Edits applied when it was taken."""
        self._one_snapshot = threading.Lock()
        self._copying = threading.Lock()
        """Held while a unit of a leader is written and applied."""
        self._is_closed = False
        self._reading = ThreadPoolExecutor(2, "rangecast-filters")
        """Reads long filters."""
        self.log: Log = self._opened_log(log, epoch_of_copy)
        try:
            self._recover()
        except BaseException:
            self.close()
            raise
        self.quotas = Quotas(self.registry)
        self.pipeline = CommitPipeline(
            self.log,
            self.registry,
            Matching(self.registry, self.indexes, self.board_indexes, self.tracks, self.device),
            self.deduplicator,
            self.hub.dispatch,
            stopped or self._log_failure,
        )
        self.clock = self.pipeline.clock
        self.pipeline.is_full = isinstance(self.log, SqliteLog) and not self.log.has_space
        self.lineage = Lineage(self.log.epoch, self.registry)
        self._bases = Bases(self.log, self.folder, self._chain_at)
        self.histories = Histories(
            self.log, self._bases, self.lineage, lambda: self.pipeline.durable
        )

    # ---- starting and stopping

    def start(self) -> None:
        """Start the commit pipeline; call it on the event loop of the listeners."""
        self.hub.start(self.pipeline)
        if not self.pipeline.is_copy:
            for tracks in self.tracks.spaces.values():  # found before, and not yet written
                self.pipeline.submit_derived(tracks, list(tracks.pending.values()), {})
        self.pipeline.start()

    def stop(self) -> None:
        """Write all accepted requests, take a snapshot, and release the folder."""
        self.pipeline.stop()
        with self._copying:  # a follower that was abandoned writes nothing more
            self._is_closed = True
        # After a failure the indexes may lack edits that are in the log: the next start reads it.
        is_whole = not self.pipeline.has_failed
        if self.folder is not None and is_whole and self.log.last > self.snapshot_seq:
            try:
                self._sync_log()
                self._snapshot_state().write(self.folder)
            except (OSError, LogError, SnapshotError) as error:
                logger.warning(
                    "no snapshot was written: %s; the next start reads the log instead", error
                )
        self.close()

    def close(self) -> None:
        """Release the folder immediately."""
        with self._copying:
            self._is_closed = True
        self._reading.shutdown(wait=False)
        if hasattr(self, "histories"):  # not if the state couldn't be recovered
            self.histories.close()
        self.log.close()
        if self._lock is not None:
            self._lock.close()

    def _opened_log(self, log: str | None, epoch_of_copy: Callable[[], str] | None) -> Log:
        folder = self.folder
        if folder is None:
            return MemoryLog() if log is None else KafkaLog(log)
        try:
            make_private(folder)
            create(folder / "lock")
            self._lock = try_lock(folder / "lock")
        except OSError as error:
            raise FileError(
                f"{folder}: can't be used as a data folder: {error}\n"
                "  hint: check its owner and mode, or choose another folder with --data"
            ) from None
        if self._lock is None:
            raise LogError(
                f"{folder}: another server is using this folder\n"
                "  hint: stop it, or choose another folder with --data"
            )
        try:
            if log is not None:
                return KafkaLog(log)
            is_new_copy = epoch_of_copy is not None and not segments(folder)
            epoch = epoch_of_copy() if epoch_of_copy is not None and is_new_copy else None
            return SqliteLog(folder, durability=self.durability, epoch=epoch)
        except BaseException:
            self._lock.close()
            raise

    def _recover(self) -> None:
        """Recover the state at the end of the log: load the newest intact snapshot, then replay."""
        replay, log = self._replay, self.log
        replay.begin(self.folder, log.epoch, log.first, self._chain_at)
        self.registry, self.deduplicator, self.indexes, self.tracks = (
            replay.registry,
            replay.deduplicator,
            replay.indexes,
            replay.tracks,
        )
        self.snapshot_seq = replay.seq
        if replay.seq > log.last:
            raise LogError(
                f"{self._where}: the snapshot is at seq {replay.seq}, but the log ends at "
                f"{log.last}: acknowledged data was lost\n  hint: restore the folder from a backup"
            )
        changes: list[AnyChange] = []
        while replay.seq < log.last:
            for unit in log.read(replay.seq, _REPLAYED):
                changes += replay.take(unit)
        apply_changes(changes, self.indexes)
        self.board_indexes = {
            board: BoardIndex(board, board.objects, board.live.values())
            for board in self.registry.boards.values()
        }

    def _chain_at(self, seq: int) -> bytes | None:
        """Return the checksum of the log at a seq; `None` if it is unknown."""
        if not self.log.first <= seq <= self.log.last:
            return None
        try:
            return next(
                (unit.chain for unit in self.log.read(seq - 1, 1) if unit.last == seq), None
            )
        except LogError:
            return None  # damage before a snapshot is met when it is read

    def follow(self, unit: Unit) -> None:
        """Write and apply a unit that another server wrote.

        No snapshot is taken between the two steps: it would lack a unit that the log already has.
        """
        if unit.kind not in KINDS:
            raise LogError(
                f"the leader's log has {unit.kind!r} at seq {unit.first}, which this version of "
                "rangecast doesn't know\n  hint: use the leader's version, or a newer one"
            )
        with self._copying:
            if self._is_closed:
                return
            self.log.append([Draft(unit.kind, unit.length, unit.at, unit.body)])
            try:
                self._apply_unit(unit)
            except BaseException as error:  # memory and log have diverged
                self.pipeline.fail(error)
                raise
            self.pipeline.advance(unit.last)

    def _apply_unit(self, unit: Unit) -> None:
        self.clock.advance(unit.at)
        changes = self._replay.carried_out(unit)
        apply_changes(changes, self.indexes)
        # No listener waits for messages that come from the log of another server: they are read.
        for _ in board_messages(changes, self.board_indexes, lambda _: False):
            pass
        if unit.kind == UPDATES:
            head, updates = updates_of(unit)
            index = self.board_indexes[self.registry.boards[head.tenant, head.board]]
            for _ in index.update(updates, unit.first, head.is_batch, lambda _: False):
                pass

    def index(self, entry: SpaceEntry) -> SpaceIndex:
        """Return the index of a space: an empty one until the matcher has made it."""
        return self.indexes.get(entry.number) or SpaceIndex(entry)

    # ---- positions

    @property
    def epoch(self) -> str:
        """Current epoch, the prefix of new positions; see `lineage`."""
        return self.lineage.epoch

    def begin_epoch(self, above: int = 0) -> None:
        """Begin a new epoch with the next write.

        Its event numbers for other servers are greater than `above`.
        """
        self.lineage.ended = self.lineage.epoch
        self.pipeline.begins = lambda: self.lineage.next(self.log.last, self.log.chain, above)

    def seq_of(self, text: str) -> int:
        """Return the seq of a position; reject one outside this log's history."""
        return self.lineage.seq_of(text, self.pipeline.durable, self.log.first)

    def resumed(self, consumer: Consumer, text: str) -> tuple[int, Gap | None]:
        """Return the seq at which a listener resumes from a position, and the gap if any."""
        try:
            return self.seq_of(text), None
        except LostPositionError as lost:
            after = consumer.cursor if lost.resume is None else lost.resume
            return after, Gap(after, after, "history", text)

    # ---- snapshots

    def snapshot(self) -> int:
        """Write a snapshot; return its seq."""
        assert self.folder is not None
        with self._one_snapshot:
            self.snapshot_edits = self.pipeline.matching.edits
            with self._copying:
                state: SnapshotState = self.pipeline.quiesced(self._snapshot_state)
            if state.seq == self.snapshot_seq:
                return state.seq
            self._sync_log()
            state.write(self.folder)
            self.snapshot_seq = state.seq
            return state.seq

    def _sync_log(self) -> None:
        """Sync the log before a snapshot is written, which must not be ahead of it."""
        if isinstance(self.log, SqliteLog) and not syncs_each_write(self.durability):
            self.log.sync()

    def drop(self, upto: int) -> None:
        """Drop the log up to a seq, and the state that only that part needs."""
        spaces = {name: entry.space for name, entry in list(self.registry.spaces.items())}
        self._bases.keep(upto, spaces)
        self.log.drop(upto)
        with self._copying:
            self.pipeline.quiesced(lambda: self.registry.forget(self.log.first))

    def _snapshot_state(self) -> SnapshotState:
        position = self.log.epoch, self.log.last, self.log.chain
        return SnapshotState(self.registry, self.indexes, self.deduplicator, self.tracks, position)

    @staticmethod
    def _log_failure(error: BaseException) -> None:
        logger.critical("the server no longer accepts requests: %s", error)

    # ---- what callers want

    def edit(
        self,
        *edits: AnyEdit,
        if_match: Conditions = None,
        outcome: Outcome | None = None,
        board: BoardEntry | None = None,
    ) -> Future[int]:
        """Submit edits, all or none; the future resolves to the seq of the first.

        Long filters are parsed in another thread, so their syntax errors may also arrive through
        the future. `outcome` is filled in by the time it resolves. `board`: the one that interests
        were checked with; another one of its name rejects them.
        """
        if edits:
            self.quotas.charge_edits(edits[0].tenant, edits)
        for edit in edits:
            if isinstance(edit, PutSubscription) and len(edit.filter) > INLINE_LENGTH:
                self.quotas.check_length(edit.tenant, edit.filter)
                return chained_future(self._reading, self._edit, edits, if_match, outcome, board)
        return self._edit(edits, if_match, outcome, board)

    def _edit(
        self,
        edits: Sequence[AnyEdit],
        if_match: Conditions,
        outcome: Outcome | None,
        board: BoardEntry | None,
    ) -> Future[int]:
        read: Read = None
        for edit in edits:
            if isinstance(edit, PutSubscription):
                entry = self.registry.spaces.get((edit.tenant, edit.space))
                if entry is not None:
                    space = TentativeSpace(entry.space)
                    read = self.quotas.parsed(edit.tenant, edit.filter, space)
        read = read if len(edits) == 1 else None
        return self._submit(Edits(as_run(edits), read, if_match, outcome, board))

    def _submit(self, asked: Edits) -> Future[int]:
        edits = () if isinstance(asked.edits, PutRun) else asked.edits
        kinds = PutConsumer | DeleteConsumer | StopConsumer
        moved = [(edit.tenant, edit.name) for edit in edits if isinstance(edit, kinds)]
        if moved:
            self.consumers_changed(asked.answer, moved)
        self.pipeline.submit(asked)
        return asked.answer

    def subscribe_many(
        self,
        edits: Sequence[PutSubscription],
        read: Read,
        if_match: Conditions = None,
        consumers: Sequence[PutConsumer] = (),
        outcome: Outcome | None = None,
    ) -> Future[int]:
        """Submit subscriptions whose filters are already parsed; see `edit`.

        consumers   consumers to create first, in the same unit
        """
        if edits:
            self.quotas.charge_edits(edits[0].tenant, [*consumers, *edits])
        if consumers:
            return self._submit(Edits([*consumers, *edits], None, if_match, outcome))
        return self._submit(Edits(as_run(edits), read, if_match, outcome))

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
    ) -> Future[PublishedEvents]:
        """Publish events, each a JSON text; invalid events are rejected individually."""
        taken, rejected = self.encode(entry, lines, ignore_unknown=ignore_unknown, form=form)
        arguments = entry.tenant, entry.name, key, digest, form, dedup, source, upto
        head = EventsHead(*arguments, rejected)
        events = Events(entry, taken, head, wants_matches)
        if (strict and rejected) or not taken.lines:
            events.answer.set_result(PublishedEvents(self.log.last + 1, 0, rejected))
        else:
            self.pipeline.submit(events)
        return events.answer

    def encode(
        self, entry: SpaceEntry, lines: Sequence[bytes], *, ignore_unknown: bool, form: str = ""
    ) -> tuple[EncodedEvents, list[tuple[int, str]]]:
        """Return the valid events, and the row and reason of each rejected one."""
        encoded_ = encoded(
            lines,
            entry.space,
            ignore_unknown=ignore_unknown,
            form=form,
            tracked=track_columns(entry.track),
        )
        limit = self._max_event_bytes
        return encoded_ if limit is None else without_long_events(*encoded_, limit)

    def update(
        self,
        entry: BoardEntry,
        lines: Sequence[bytes],
        *,
        is_batch: bool = False,
        strict: bool = False,
        only: str = "",
    ) -> Future[PublishedEvents]:
        """Change objects of a board, each given as a JSON text.

        Invalid changes are rejected individually, or all together with `strict` or in a batch.
        `only`: require `new` or `existing` objects.
        """
        if is_batch and len(lines) > MAX_BATCH:
            raise RequestError(413, f"a batch has at most {MAX_BATCH:,} changes")
        changes, rejected = parsed_changes(entry, lines)
        size = sum(map(len, lines))
        updates = Updates(entry, changes, rejected, is_batch, strict or is_batch, only, size)
        self.pipeline.submit(updates)
        return updates.answer

    def acknowledge(self, consumer: Consumer, seq: int, moved: int | None = None) -> None:
        """Record that a consumer has received everything up to a seq.

        `moved`: its `moved` when that was read; nothing is recorded once it has another one.
        """
        self.pipeline.check_open()
        self.pipeline.note_ack(consumer, seq, moved)

    def source(self, name: str) -> SourceState:
        """Return the state of a source."""
        return self.sources.setdefault(name, SourceState(name))

    @property
    def log_bytes(self) -> int:
        """Size of the log on disk in bytes."""
        return self.log.bytes if isinstance(self.log, SqliteLog) else 0
