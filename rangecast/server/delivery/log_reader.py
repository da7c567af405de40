"""Read the log for a consumer: match past events with the subscriptions of their time."""

from __future__ import annotations

import heapq
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from rangecast.kernels.arrays import F64, I64
from rangecast.model.space import Space
from rangecast.server.delivery.messages import Batch, Gap, Message, TransitionMessage
from rangecast.server.delivery.track_replay import TrackReplay
from rangecast.server.encoding import points_of_lines
from rangecast.server.log.base import Log, Unit
from rangecast.server.state.edits import EVENTS, TRANSITIONS, events_of, head_of, is_after_loss
from rangecast.server.state.entries import Consumer, SpaceEntry
from rangecast.server.state.space_index import History
from rangecast.server.state.tracks.transitions import with_events

CHUNK = 4 << 20
"""Bytes of the log that are read at a time."""
TOGETHER = 2_000
"""Events that are matched at a time, if the units are smaller."""
MAX_BATCH_BYTES = 1 << 20
"""Maximum bytes of messages returned at a time, which bounds the memory of a slow listener."""


@dataclass(slots=True)
class Group:
    """Units of the log that are matched together, with their events and seqs."""

    upto: int
    lines: list[bytes] = field(default_factory=list)
    forms: list[tuple[str, int]] = field(default_factory=list)
    """Forms of the lines, each with the number of lines that follow one another."""
    seqs: list[I64] = field(default_factory=list)
    transitions: list[tuple[Message, float]] = field(default_factory=list)
    """Transitions of the consumer, each with its score."""

    def add(self, lines: list[bytes], form: str, first: int) -> None:
        """Add events of one form, starting at a seq."""
        before = 0
        if self.forms and self.forms[-1][0] == form:
            before = self.forms.pop()[1]
        self.forms.append((form, before + len(lines)))
        self.lines += lines
        self.seqs.append(np.arange(first, first + len(lines)))

    def points(self, space: Space) -> F64:
        """Return the events as points."""
        points_, end = [], 0
        for form, count in self.forms:
            end += count
            points_.append(points_of_lines(self.lines[end - count : end], form, space))
        return points_[0] if len(points_) == 1 else np.concatenate(points_)


class Reader:
    """Reads the log for one consumer."""

    def __init__(self, log: Log, consumer: Consumer):
        self._log = log
        self._consumer = consumer
        assert isinstance(consumer.source, SpaceEntry)
        self._source = consumer.source
        self._history: History | None = None
        self._replay: TrackReplay | None = None
        self._one = threading.Lock()

    def read(self, after: int, durable: int, limit: int) -> Batch:
        """Return the next durable messages after a seq.

        At most `limit` messages, and about `MAX_BATCH_BYTES`.
        """
        with self._one:
            return self._read(after, durable, limit)

    def _read(self, after: int, durable: int, limit: int) -> Batch:
        gap = None
        if after < self._log.first - 1:
            gap = Gap(after, self._log.first - 1)
            after = gap.upto
        space = self._source.space
        if self._history is None or self._history.engine.space is not space:
            self._history = History(space, self._consumer.versions)
        self._history.add_versions()
        batch = self._read_after(after, durable, limit)
        if gap is None:
            return batch
        return batch._replace(gap=gap if batch.gap is None else Gap(gap.after, batch.gap.upto))

    def _read_after(self, after: int, durable: int, limit: int) -> Batch:
        messages: list[Message] = []
        units, gap = self._log.read(after, CHUNK), None
        if units and units[0].first > after + 1:  # retention was quicker, or a part is missing
            gap = Gap(after, units[0].first - 1)
            after = gap.upto
        for index, unit in enumerate(units):
            if self._is_after_loss(unit, after):
                if index:  # reported by the next read
                    units = units[:index]
                    break
                gap = gap or Gap(after, after, "link")
        upto, size = after, 0
        for group in self._groups(units, after, durable):
            for message, _ in self._matched(group):
                is_full = len(messages) >= limit or size >= MAX_BATCH_BYTES
                if is_full and message.seq > messages[-1].seq:  # those of one seq stay together
                    return Batch(messages, messages[-1].seq, gap)
                messages.append(message)
                size += message.size
            upto = group.upto
            if len(messages) >= limit or size >= MAX_BATCH_BYTES:
                break
        return Batch(messages, upto, gap)

    def _is_after_loss(self, unit: Unit, after: int) -> bool:
        """Return whether events before this unit were lost in transit."""
        if unit.first <= after or not is_after_loss(unit):
            return False
        head = head_of(unit)
        return (head.tenant, head.space) == (self._source.tenant, self._source.name)

    def _matched(self, group: Group) -> Iterator[tuple[Message, float]]:
        """Yield this consumer's messages for a group, each with its highest score."""
        if group.transitions:
            matches = self._matches(group)
            yield from heapq.merge(matches, group.transitions, key=lambda pair: pair[0].seq)
        else:
            yield from self._matches(group)

    def _matches(self, group: Group) -> Iterator[tuple[Message, float]]:
        if not group.lines:
            return
        assert self._history is not None
        points = group.points(self._history.engine.space)
        seqs = np.concatenate(group.seqs)
        options = self._consumer.now_from, self._consumer.max_per_event
        for index, ids, score in self._history.match(points, seqs, *options):
            yield Message(int(seqs[index]), group.lines[index], ids), score

    def _take(self, group: Group, unit: Unit, after: int) -> None:
        """Add the events of a unit after a seq to a group, if they belong to this space."""
        group.upto = unit.last
        now_from = self._consumer.now_from
        if unit.last < now_from and self._source.track is not None and unit.last > after:
            group.transitions += self._replayed(unit)
        elif unit.kind == TRANSITIONS:
            for seq, transition, event in with_events(unit):
                if transition.consumer == self._consumer.number and seq > after:
                    message = TransitionMessage.of(seq, transition, event)
                    group.transitions.append((message, transition.score))
        if unit.kind != EVENTS:
            return
        head, lines = events_of(unit)
        if (head.tenant, head.space) == (self._source.tenant, self._source.name):
            begin = max(0, after + 1 - unit.first)
            group.add(lines[begin:], head.form, unit.first + begin)

    def _replayed(self, unit: Unit) -> list[tuple[Message, float]]:
        """Return the transitions that a unit would have caused with the current subscriptions."""
        replay = self._replay
        if (
            replay is None
            or replay.now_from != self._consumer.now_from
            or not replay.is_before(unit)
        ):
            replay = self._replay = TrackReplay(self._log, self._consumer, self._source)
        return replay.messages(unit)

    def _groups(self, units: Sequence[Unit], after: int, durable: int) -> Iterator[Group]:
        """Yield the next units in groups, as a unit may have only one event."""
        group = Group(after)
        for unit in units:
            if unit.last > durable:
                break
            self._take(group, unit, after)
            if len(group.lines) >= TOGETHER:
                yield group
                group = Group(unit.last)
        if group.upto > after:
            yield group
