"""Apply units of the log in order: edits change indexes, events are matched and fanned out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from rangecast.device_copy import DeviceCopies
from rangecast.kernels.arrays import I64, Bool
from rangecast.model.sets.members import Id
from rangecast.server.delivery.messages import Mailbox, Mailboxes, Message, TransitionMessage
from rangecast.server.log.base import Unit
from rangecast.server.pipeline.commands import Edits, Events, NewTransitions, Request, Updates
from rangecast.server.state.board_index import Addressed, BoardIndex, Listened
from rangecast.server.state.boards import BoardEntry, InterestChange, ObjectChange
from rangecast.server.state.entries import AnyChange, Change, Consumer
from rangecast.server.state.registry import Registry
from rangecast.server.state.space_index import BatchMatches, SpaceIndex, by_event, grouped
from rangecast.server.state.tracks.spaces import SpaceTracks, Tracks
from rangecast.server.state.tracks.transitions import Derived

MAX_PAIRS = 1_000_000
"""Matches, or entries of rankings, in the answer to one request."""


@dataclass(slots=True)
class WrittenRequest:
    """A request that has been written to the log, for the matcher."""

    unit: Unit
    request: Request | None
    changes: list[AnyChange]
    updates: Sequence[ObjectChange] = ()


@dataclass(slots=True)
class WorkCounts:
    """Counts of the work done since the start."""

    events: int = 0
    edits: int = 0
    pairs: int = 0
    """Number of pairs of an event and a matching subscription."""
    updates: int = 0


class Matching:
    """Applies units of the log to the indexes, matches events, and answers requests.

    One thread calls it; any thread may read the counts.
    """

    def __init__(
        self,
        registry: Registry,
        indexes: dict[int, SpaceIndex],
        board_indexes: dict[BoardEntry, BoardIndex],
        tracks: Tracks,
        device: DeviceCopies | None = None,
    ):
        self._registry = registry
        self._indexes = indexes
        self._board_indexes = board_indexes
        self._tracks = tracks
        self._device = device
        self._found: list[tuple[SpaceTracks, list[Derived], dict[int, bytes]]] = []
        self._done: dict[str, WorkCounts] = {}
        """By tenant."""
        self.edits = 0

    def done(self, tenant: str | None) -> WorkCounts:
        """Return the counts of a tenant, or of all tenants."""
        if tenant is not None:
            return self._done.get(tenant, WorkCounts())
        done_ = WorkCounts()
        for pending in list(self._done.values()):
            done_.events += pending.events
            done_.edits += pending.edits
            done_.pairs += pending.pairs
            done_.updates += pending.updates
        return done_

    def _of(self, tenant: str) -> WorkCounts:
        if tenant not in self._done:
            self._done[tenant] = WorkCounts()
        return self._done[tenant]

    def derived(self) -> list[tuple[SpaceTracks, list[Derived], dict[int, bytes]]]:
        """Return the transitions found since the last call, with available events by seq."""
        derived, self._found = self._found, []
        return derived

    def messages(self, batch: Sequence[WrittenRequest], wanted: Bool) -> Mailboxes:
        """Apply and match units; return the messages of consumers that have a listener."""
        mailboxes = Mailboxes(Mailbox)
        begin = 0
        while begin < len(batch):
            end = begin + 1
            first = batch[begin].request
            if isinstance(first, Events):
                while end < len(batch):
                    other = batch[end].request
                    if not isinstance(other, Events) or other.entry is not first.entry:
                        break
                    end += 1
                self._match_events(batch[begin:end], wanted, mailboxes)
            else:
                while end < len(batch) and not isinstance(batch[end].request, Events):
                    end += 1
                self._make_edits(batch[begin:end], wanted, mailboxes)
            begin = end
        return mailboxes

    def _make_edits(
        self, written: Sequence[WrittenRequest], wanted: Bool, messages: Mailboxes
    ) -> None:
        apply_changes([change for entry in written for change in entry.changes], self._indexes)

        def is_wanted(consumer: int) -> bool:
            return 0 <= consumer < len(wanted) and bool(wanted[consumer])

        for entry in written:
            for tracks, derived in self._tracks.apply(entry.changes):
                self._found.append((tracks, derived, {}))
            if isinstance(entry.request, NewTransitions):
                self._add_transition_messages(entry.request, entry.unit.first, is_wanted, messages)
            for number, message in board_messages(entry.changes, self._board_indexes, is_wanted):
                messages[number].add(message)
            if isinstance(entry.request, Updates):
                request, first = entry.request, entry.unit.first
                index = self._board_indexes[request.entry]
                updated = index.update(entry.updates, first, request.is_batch, is_wanted)
                for number, message in updated:
                    messages[number].add(message)
                self._of(request.entry.tenant).updates += len(entry.updates)
                assert request.accepted is not None
                request.answer.set_result(request.accepted)
            elif isinstance(entry.request, Edits):
                self.edits += entry.unit.length
                self._of(entry.request.edits[0].tenant).edits += entry.unit.length
                entry.request.answer.set_result(entry.unit.first)

    def _add_transition_messages(
        self, written: NewTransitions, first: int, is_wanted: Listened, messages: Mailboxes
    ) -> None:
        """Add messages for transitions that are now in the log."""
        written.tracks.written(written.derived, first)
        consumers = {transition.consumer for transition in written.derived}
        wanted = {consumer for consumer in consumers if is_wanted(consumer)}
        for seq, transition in enumerate(written.derived, first) if wanted else ():
            if transition.consumer in wanted:
                event = written.lines.get(transition.seq, b"null")
                messages[transition.consumer].add(TransitionMessage.of(seq, transition, event))

    def _match_events(
        self, written: Sequence[WrittenRequest], wanted: Bool, messages: Mailboxes
    ) -> None:
        requests = [entry.request for entry in written if isinstance(entry.request, Events)]
        index = self._indexes[requests[0].entry.number]
        space = index.engine.space
        points = [request.encoded.points_in(space) for request in requests]
        lines = [line for request in requests for line in request.encoded.lines]
        seqs = np.concatenate(
            [np.arange(entry.unit.first, entry.unit.last + 1) for entry in written]
        )
        answers = [_Answer(entry.wants_matches, len(entry.encoded.lines)) for entry in requests]
        done = self._of(requests[0].entry.tenant)
        done.events += len(lines)
        begin = 0
        for count, matches in index.match_in_pieces(
            points[0] if len(points) == 1 else np.concatenate(points), self._device
        ):
            done.pairs += len(matches.numbers)
            some_lines, some_seqs = lines[begin : begin + count], seqs[begin : begin + count]
            numbered = self._registry.numbered
            fan_out(matches, index, wanted, numbered, some_lines, some_seqs, messages)
            _add_to(answers, matches, index, count)
            begin += count
        if requests[0].entry.number in self._tracks.spaces:
            self._track(requests, seqs)
        for request, answer in zip(requests, answers, strict=True):
            if request.wants_matches:
                assert request.accepted is not None
                request.accepted.matches = answer.matches
                request.answer.set_result(request.accepted)

    def _track(self, requests: Sequence[Events], seqs: I64) -> None:
        tracks = self._tracks.spaces[requests[0].entry.number]
        transitions, begin = list[Derived](), 0
        # With policies, unit by unit: collected notices depend on the log alone.
        groups = [[request] for request in requests] if tracks.notices else [requests]
        for group in groups:
            points = np.concatenate([request.encoded.points_in(tracks.space) for request in group])
            rows = [row for request in group for row in request.encoded.rows]
            transitions += tracks.events(rows, points, seqs[begin : begin + len(rows)])
            begin += len(rows)
        if transitions:
            lines = [line for request in requests for line in request.encoded.lines]
            wanted = {transition.seq for transition in transitions}
            at_hand = {
                seq: line for seq, line in zip(seqs.tolist(), lines, strict=True) if seq in wanted
            }
            self._found.append((tracks, transitions, at_hand))


class _Answer:
    """Matches of a request by event, if requested and not too many."""

    def __init__(self, is_wanted: bool, events: int):
        self.matches: list[list[Id]] | None = [] if is_wanted else None
        self.missing = events
        """Events that haven't been matched yet."""
        self._pairs = 0

    def add(self, matches: BatchMatches, index: SpaceIndex, begin: int, count: int) -> None:
        """Add the matches of the next events."""
        self.missing -= count
        if self.matches is None:
            return
        first, last = np.searchsorted(matches.events, (begin, begin + count)).tolist()
        self._pairs += last - first
        if self._pairs > MAX_PAIRS:
            self.matches = None
        else:
            self.matches += ids_by_event(matches, index, begin, count)


def _add_to(
    answers: Sequence[_Answer], matches: BatchMatches, index: SpaceIndex, events: int
) -> None:
    """Add matches to the answers of the requests that their events came with."""
    begin = 0
    for answer in answers:
        count = min(answer.missing, events - begin)
        if count:
            answer.add(matches, index, begin, count)
            begin += count


def apply_changes(changes: Sequence[AnyChange], indexes: dict[int, SpaceIndex]) -> None:
    """Apply changes to the indexes of spaces."""
    by_space: dict[int, list[Change]] = {}
    for change in changes:
        if isinstance(change, InterestChange):
            continue
        by_space.setdefault(change.entry.number, []).append(change)
    for number, of_space in by_space.items():
        if number not in indexes:
            indexes[number] = SpaceIndex(of_space[0].entry)
        indexes[number].apply(of_space)


def board_messages(
    changes: Sequence[AnyChange], indexes: dict[BoardEntry, BoardIndex], listened: Listened
) -> Iterator[Addressed]:
    """Apply changes to the boards; yield the lists of new interests."""
    for change in changes:
        if not isinstance(change, InterestChange):
            continue
        entry = change.entry
        if change.is_deleted:
            del indexes[entry]
        elif change.new is not None:
            indexes[entry].put(change.new)
            if listened(change.new.consumer):
                yield indexes[entry].first_list(change.new, change.seq)
        elif change.old is not None:
            indexes[entry].remove(change.old.name)
        else:
            indexes[entry] = BoardIndex(entry, {}, ())


def fan_out(
    matches: BatchMatches,
    index: SpaceIndex,
    wanted: Bool,
    consumers: Sequence[Consumer | None],
    lines: Sequence[bytes],
    seqs: I64,
    messages: Mailboxes,
) -> None:
    """Add a message for each event and matching consumer that has a listener."""
    owners = index.owners[matches.numbers]
    mine = owners >= 0
    mine[mine] = wanted[np.minimum(owners[mine], len(wanted) - 1)] & (owners[mine] < len(wanted))
    if not mine.any():
        return
    owners, events, numbers = owners[mine], matches.events[mine], matches.numbers[mine]
    order = np.argsort(owners, kind="stable")
    owners, events, numbers = owners[order], events[order], numbers[order]
    cuts = [0, *(np.flatnonzero(np.diff(owners)) + 1).tolist(), len(owners)]
    for begin, end in pairwise(cuts):
        owner = int(owners[begin])
        consumer = consumers[owner]
        if consumer is None:
            continue  # it has ended meanwhile
        mailbox = messages[owner]
        if not mailbox.has_room(0 if consumer.max_per_event else end - begin):
            continue
        places, own = events[begin:end], numbers[begin:end]
        turn = by_event(places, own, index.scores(own), consumer.max_per_event)
        limit = consumer.max_per_event
        for event, listed in grouped(places[turn], own[turn], index.ids, limit):
            mailbox.add(Message(int(seqs[event]), lines[event], listed))


def ids_by_event(
    matches: BatchMatches, index: SpaceIndex, begin: int, count: int
) -> list[list[Id]]:
    """Return the ids of the subscriptions that match each event of a range."""
    first, last = np.searchsorted(matches.events, (begin, begin + count))
    events, numbers = matches.events[first:last] - begin, matches.numbers[first:last]
    if count == 1:
        return [index.ids.listed(np.sort(numbers))]
    numbers = numbers[np.lexsort((numbers, events))]
    ids = index.ids.listed(numbers)
    ends = np.cumsum(np.bincount(events, minlength=count)).tolist()
    return [ids[start:end] for start, end in pairwise([0, *ends])]
