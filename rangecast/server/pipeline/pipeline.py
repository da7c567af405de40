"""The commit pipeline: admits, writes, applies and matches requests, and dispatches messages.

    requests --> committer --> log --> matcher --> dispatch
                 (a thread)            (a thread)

The committer takes all pending requests, checks them, writes them as one group and waits for the
disk; meanwhile the next group collects. So there is no timer, and the busier the server, the larger
the groups. The matcher applies edits and matches events in log order: an event is matched with
exactly the subscriptions as of its seq. Both queues are bounded by bytes.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from rangecast.errors import RangecastError
from rangecast.kernels.arrays import Bool
from rangecast.model.threads import never_wait
from rangecast.server.delivery.messages import Mailboxes
from rangecast.server.log.base import Draft, Log, LogFullError, Unit
from rangecast.server.log.clock import Clock
from rangecast.server.pipeline.apply import Matching, WrittenRequest
from rangecast.server.pipeline.commands import (
    Edits,
    Events,
    NewTransitions,
    PublishedEvents,
    Request,
    ResolvedRequest,
    Updates,
    resolve,
    transition_requests,
)
from rangecast.server.state.admission import Admission
from rangecast.server.state.dedup import Deduplicator
from rangecast.server.state.edits import (
    BeginEpoch,
    DeleteConsumer,
    PutConsumer,
    PutRun,
    acks_draft,
    edits_draft,
    events_draft,
)
from rangecast.server.state.entries import AnyChange, Change, Consumer
from rangecast.server.state.registry import Registry, RequestError
from rangecast.server.state.tracks.spaces import SpaceTracks
from rangecast.server.state.tracks.transitions import Derived

MAX_QUEUE_BYTES = 64 << 20
"""Queue limit in bytes; beyond it requests get 503."""
GROUP = 16 << 20
"""Bytes that are written as one group."""
_PAUSE = 0.2
"""Seconds after which acknowledgements and transitions that found the disk full are retried."""
UNMATCHED = 64 << 20
"""Bytes that may be written and not matched yet; then the committer waits."""


Dispatch = Callable[[int, Mailboxes, int], None]
"""(number of the batch, messages by consumer, all is matched up to this seq)"""


class CommitPipeline:
    """Commits and matches requests. Any thread may submit."""

    def __init__(
        self,
        log: Log,
        registry: Registry,
        matching: Matching,
        deduplicator: Deduplicator,
        dispatch: Dispatch,
        stopped: Callable[[BaseException], None],
    ):
        self.log = log
        self.registry = registry
        self.deduplicator = deduplicator
        self.durable = log.last
        self.matched = log.last
        self.is_full = False
        """Whether the disk was full at the last attempt."""
        self.matching = matching
        self.groups = self.batches = 0
        self.wanted: Bool = np.zeros(64, bool)
        """Consumers that have a listener, by number."""
        self.is_copy, self._rejection = False, ""
        self.begins: Callable[[], BeginEpoch] | None = None
        """Makes the edit that is written before all else, if an epoch of the log has ended."""
        self.links: Callable[[Sequence[WrittenRequest]], None] | None = None
        """Callback for matched batches; feeds linked servers."""
        self.reread: Callable[[int], None] = lambda _: None
        """Makes all listeners read the log up to a seq that wasn't dispatched."""
        self._dispatch = dispatch
        self._stopped = stopped
        self._waiting: deque[Request] = deque()
        self.queue_bytes = 0
        self._acks: dict[str, int] = {}
        self._written: deque[WrittenRequest] = deque()
        self._written_bytes = 0
        self._change = threading.RLock()
        self._to_commit = threading.Condition(self._change)
        self._to_match = threading.Condition(self._change)
        self._at_rest = threading.Condition(self._change)
        self._soon: Callable[[Callable[[], None]], object] | None = None
        self._loop_thread, self._is_wakeup_due = 0, False
        self.clock = Clock(max((unit.at for unit in log.read(log.last - 1, 1)), default=0))
        self._now = self.clock.now()
        """When the last group was written."""
        self._ending = self._paused = False
        self._committing = self._matching = self._all_is_written = False
        self._failure: BaseException | None = None
        self._threads = [
            threading.Thread(target=self._guarded, args=(run,), name=name, daemon=True)
            for run, name in ((self._commit, "rangecast-commit"), (self._match, "rangecast-match"))
        ]

    @property
    def has_failed(self) -> bool:
        """Whether the pipeline has stopped because of an error."""
        return self._failure is not None

    def start(self) -> None:
        """Start the threads."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Write and match everything submitted, then stop."""
        with self._change:
            self._ending = True
            self._to_commit.notify()
        for thread in self._threads:
            if thread.is_alive():
                thread.join()

    def reject(self, why: str) -> None:
        """Reject all requests: the log is a copy of another server's log."""
        self.is_copy, self._rejection = True, why

    def check_open(self) -> None:
        """Reject a write if the pipeline is closed."""
        if self._rejection:
            raise RequestError(421, self._rejection)

    def advance(self, last: int) -> None:
        """Record that everything up to a seq is written and applied.

        Listeners read it from the log.
        """
        self.durable = self.matched = last
        self.batches += 1
        self._dispatch(self.batches, Mailboxes(), last)

    def submit(self, request: Request) -> None:
        """Queue a request; its `answer` is resolved later."""
        size = request.size
        self.check_open()
        with self._change:
            if self._failure is not None or self._ending:
                raise RequestError(503, "the server is stopping; try again later")
            if self.queue_bytes + size > MAX_QUEUE_BYTES and self._waiting:
                raise RequestError(
                    503,
                    f"{self.queue_bytes:,} bytes are waiting to be written; try again in a second",
                )
            self._waiting.append(request)
            self.queue_bytes += size
            if self._soon is None or threading.get_ident() != self._loop_thread:
                self._to_commit.notify()
            elif not self._is_wakeup_due:
                self._is_wakeup_due = True
                self._soon(self._wake_committer)

    def submit_derived(
        self, tracks: SpaceTracks, derived: Sequence[Derived], lines: dict[int, bytes]
    ) -> None:
        """Queue transitions regardless of back-pressure: they follow from accepted events.

        lines   events that caused them, by seq; others are read from the log
        """
        requests = transition_requests(self.log, tracks, derived, lines)
        with self._change:
            self._waiting.extend(requests)
            self.queue_bytes += sum(request.size for request in requests)
            self._to_commit.notify()

    def coalesce_wakeups(self, soon: Callable[[Callable[[], None]], object]) -> None:
        """Batch the submissions of this thread in one turn of its event loop.

        `soon` calls a function at the end of a turn. Waking the committer for each request would
        take longer than everything else that the loop does for it.
        """
        self._soon, self._loop_thread = soon, threading.get_ident()

    def _wake_committer(self) -> None:
        with self._change:
            self._is_wakeup_due = False
            self._to_commit.notify()

    def note_ack(self, consumer: Consumer, seq: int, moved: int | None = None) -> None:
        """Record the position of a consumer, to be written with the next group or `flush_acks`."""
        with self._change:
            is_there = self.registry.consumers.get((consumer.tenant, consumer.name)) is consumer
            if is_there and moved in (None, consumer.moved) and seq > consumer.cursor:
                consumer.cursor = self._acks[consumer.key] = seq

    def flush_acks(self) -> None:
        """Write acknowledgements that no group has included."""
        with self._change:
            if self._acks and not self._waiting:
                self._to_commit.notify()

    def min_next_time(self) -> int:
        """Return a lower bound for future timestamps (0 on a follower)."""
        with self._change:
            if self.is_copy:
                return 0
            return self._now if self._committing else self._tick()

    def quiesced(self, look: Callable[[], Any]) -> Any:
        """Call a function between two groups, when everything written is also matched."""
        with self._change:
            self._paused = True
            try:
                self._at_rest.wait_for(
                    lambda: (
                        self._failure or not (self._committing or self._matching or self._written)
                    )
                )
                if self._failure is not None:
                    raise self._failure
                return look()
            finally:
                self._paused = False
                self._to_commit.notify()

    # ---- the committer

    def _guarded(self, run: Callable[[], None]) -> None:
        try:
            run()
        except BaseException as error:
            self.fail(error)

    def fail(self, error: BaseException, requests: Iterable[Request] = ()) -> None:
        """Stop because of an unrecoverable error. `requests`: the requests that it affects.

        They are answered last, so that a client that retries is rejected.
        """
        with self._change:
            self._failure = error
            written = [unit.request for unit in self._written if unit.request]
            left = [*requests, *self._waiting, *written]
            self._waiting.clear()
            for changed in (self._to_commit, self._to_match, self._at_rest):
                changed.notify_all()
        self._stopped(error)
        for request in left:
            resolve(request, error)

    def _commit(self) -> None:
        while True:
            with self._change:
                self._to_commit.wait_for(self._may_commit)
                if self._failure is not None:
                    return
                if self._ending and not self._waiting and not self._acks:
                    self._all_is_written = True
                    self._to_match.notify()
                    return
                group: list[Request] = []
                size = 0
                while self._waiting and size < GROUP:
                    request = self._waiting.popleft()
                    size += request.size
                    group.append(request)
                self.queue_bytes -= size
                acks, self._acks = self._acks, {}
                self._committing, now = True, self._tick()
            try:
                self._write(group, acks, now)
            except BaseException as error:
                self.fail(error, group)
                return
            finally:
                with self._change:
                    self._committing = False
                    self._at_rest.notify_all()

    def _may_commit(self) -> bool:
        if self._failure is not None or self._ending:
            return True
        has_work = bool(self._waiting or self._acks)
        return has_work and not self._paused and self._written_bytes < UNMATCHED

    def _tick(self) -> int:
        """Return the current time, which never decreases."""
        self._now = self.clock.now()
        return self._now

    def _write(self, group: Sequence[Request], acks: dict[str, int], now: int) -> None:
        admission = Admission(self.registry, self.log.last + 1)
        admitted: list[Request] = []
        held: list[tuple[Request, PublishedEvents | RangecastError]] = []
        """Answers that depend on this group's write, withheld until it is durable."""
        begins = self.begins
        begin = None if begins is None else begins()
        drafts: list[Draft] = [] if begin is None else [edits_draft([begin], now)]
        # Acknowledgements come first: an edit of this group may move a cursor elsewhere.
        drafts += [acks_draft(acks, now)] if acks else []
        admission.seq += len(drafts)
        self.deduplicator.begin()
        for request in group:
            answer: PublishedEvents | RangecastError
            is_pending = bool(admitted)
            try:
                draft = self._admitted(request, admission, now)
            except RangecastError as error:
                answer = error
            else:
                if not isinstance(draft, ResolvedRequest):
                    drafts.append(draft)
                    admitted.append(request)
                    continue
                answer = draft.answer
                is_pending = is_pending and draft.is_pending
            if is_pending:
                held.append((request, answer))
            else:
                resolve(request, answer)
        requests: list[Request | None] = [*([None] * (len(drafts) - len(admitted))), *admitted]
        if not (acks or admitted):
            return
        try:
            units = self.log.append(drafts)
        except LogFullError as error:
            self._reject_full(error, [*admitted, *(unit_ for unit_, _ in held)], acks)
            return
        self.is_full = False
        self.groups += 1
        if begin is not None:
            self.begins = None if self.begins is begins else self.begins
            for _ in self.registry.apply([begin], units[0].first):
                pass
        written = []
        for unit, origin in zip(units, requests, strict=True):
            unit_ = WrittenRequest(unit, origin, [])
            if isinstance(origin, Edits):
                unit_.changes = self._carried_out(origin, unit)
            elif isinstance(origin, Updates):
                unit_.updates = origin.entry.take(unit)
            if origin is not None:
                self.registry.retained.note(origin.tenant, unit.last, len(unit.body))
            written.append(unit_)
        self.durable = self.log.last
        with self._change:
            failure = self._failure
            if failure is None:
                self._written.extend(written)
                self._written_bytes += sum(len(unit_.unit.body) for unit_ in written)
                self._to_match.notify()
        for request in admitted:
            if isinstance(request, Events) and not request.wants_matches:
                assert request.accepted is not None
                request.answer.set_result(request.accepted)
            elif failure is not None:  # the matcher has stopped: it answers nothing any more
                resolve(request, failure)
        for request, answer in held:
            resolve(request, answer)

    def _reject_full(
        self, error: LogFullError, rejected: Sequence[Request], acks: dict[str, int]
    ) -> None:
        """Reject and undo a group that doesn't fit on the disk."""
        self.is_full = True
        self.deduplicator.undo()
        with self._change:
            if not self._ending:  # given up when it ends: what they say is delivered again
                self._acks = acks | self._acks
        own = [full for full in rejected if isinstance(full, NewTransitions)]
        for request in [full for full in rejected if full not in own]:
            resolve(request, error)
        with self._change:
            if not self._ending:  # otherwise the snapshot has them
                self._waiting.extendleft(reversed(own))
                self.queue_bytes += sum(full.size for full in own)
            if len(own) == len(rejected):  # the server's own writes alone: try again soon
                count = len(self._waiting)
                self._to_commit.wait_for(lambda: self._ending or len(self._waiting) > count, _PAUSE)

    def _admitted(
        self, request: Request, admission: Admission, now: int
    ) -> Draft | ResolvedRequest:
        """Return the unit to write for a request."""
        if isinstance(request, Edits):
            inserted = admission.check_all(request.edits, request.if_match, request.board)
            if request.outcome is not None:
                request.outcome.inserted = inserted
            return edits_draft(request.edits, now)
        if isinstance(request, Updates):
            return request.admitted(admission, now)
        if isinstance(request, NewTransitions):
            admission.seq += len(request.derived)
            return request.draft(now)
        encoded, head = request.encoded, request.head
        if head.key:
            before = self.deduplicator.request(head)
            if before is not None:
                again = PublishedEvents(before.first, before.length, before.rejected, repeated=True)
                return ResolvedRequest(again, self.deduplicator.is_pending(head))
        if request.follows is not None:
            self.deduplicator.check_source(head, request.follows)
        skipped, is_pending = 0, False
        if head.dedup:
            unseen, is_pending = self.deduplicator.unseen(head, encoded.rows)
            skipped = len(encoded.rows) - len(unseen)
            if skipped:
                encoded = request.encoded = encoded.take(unseen)
        count = len(encoded.lines)
        request.accepted = PublishedEvents(admission.seq, count, head.rejected, skipped=skipped)
        if head.key:
            self.deduplicator.record(head, admission.seq, count)
        if not count:
            return ResolvedRequest(request.accepted, is_pending)
        if head.source:
            self.deduplicator.note_source(head)
        admission.seq += count
        return events_draft(head, encoded.lines, now)

    def _carried_out(self, request: Edits, unit: Unit) -> list[AnyChange]:
        if isinstance(request.edits, PutRun):
            return [*self.registry.apply(request.edits, unit.first, request.read)]
        with self._change:
            changes = [*self.registry.apply(request.edits, unit.first)]
            for change in changes:
                if isinstance(change, Change) and change.space is not None:
                    # When the matcher rebuilds the index, later edits may have been applied here.
                    change.live = change.entry.live.values()
            for edit in request.edits:
                is_moved = isinstance(edit, PutConsumer) and edit.start >= 0
                if is_moved or isinstance(edit, DeleteConsumer):
                    # Its cursor is elsewhere now. Written after this edit, an acknowledgement
                    # from before would move it back at the next start.
                    self._acks.pop(f"{edit.tenant}/{edit.name}", None)
        return changes

    # ---- the matcher

    def _match(self) -> None:
        never_wait()  # requests that only read would hold up everything that is published
        while True:
            with self._change:
                self._to_match.wait_for(
                    lambda: self._written or self._failure or self._all_is_written
                )
                if self._failure is not None or not self._written:
                    return
                batch = list(self._written)
                self._written.clear()
                if self._written_bytes >= UNMATCHED:
                    self._to_commit.notify()
                self._written_bytes = 0
                self._matching = True
            try:
                self._match_batch(batch)
            except BaseException as error:
                self.fail(error, [unit.request for unit in batch if unit.request is not None])
                return
            finally:
                with self._change:
                    self._matching = False
                    self._at_rest.notify_all()

    def _match_batch(self, batch: Sequence[WrittenRequest]) -> None:
        """Apply and match units, and deliver the matches."""
        self.batches += 1
        messages = self.matching.messages(batch, self.wanted)
        self.matched = batch[-1].unit.last
        for transitions in self.matching.derived():
            self.submit_derived(*transitions)
        if self.links is not None:
            self.links(batch)
            for written in batch:
                if isinstance(written.request, Events) and written.request.head.lost:
                    self.reread(written.unit.last)
        self._dispatch(self.batches, messages, self.matched)
