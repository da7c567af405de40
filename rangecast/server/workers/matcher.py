"""The matcher of a worker, without Kafka: units of a log in, records of a batch out."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

from rangecast.errors import UsageError, abbreviate, did_you_mean
from rangecast.server.delivery.cloudevents import MATCH, cloud_event
from rangecast.server.delivery.messages import Mailbox, Mailboxes, Message, position
from rangecast.server.encoding import encoded
from rangecast.server.log.base import Unit
from rangecast.server.pipeline.apply import apply_changes, fan_out
from rangecast.server.state.entries import Change, Consumer, SpaceEntry
from rangecast.server.state.replay import Replay

logger = logging.getLogger("rangecast.server")
_FORGET = 10_000
"""Number of changes after which dead subscriptions are dropped."""
_encode = msgspec.json.Encoder().encode


class Event(NamedTuple):
    """An event and its position in a topic."""

    partition: int
    offset: int
    value: bytes


class Match(NamedTuple):
    """An event for a consumer."""

    event: Event
    consumer: str
    body: bytes
    """A CloudEvent."""


@dataclass
class Answer:
    """Result of a batch."""

    edits: str
    """Log position that it was matched with."""
    matches: list[Match] = field(default_factory=list)
    rejected: list[tuple[Event, str]] = field(default_factory=list)
    """Events that can't be used, and why."""


class Matcher:
    """The subscriptions of one space at one log position."""

    def __init__(self, where: object, tenant: str, space: str, topic: str):
        self._replay = Replay(where)
        self._name = tenant, space
        self._topic = topic
        self._epoch = ""
        self._changes: list[Change] = []
        self._since_forgotten = 0
        self._warned_consumers: set[str] = set()

    def begin(self, folder: Path | None, epoch: str, first: int) -> int:
        """Start from the newest snapshot of a folder, if there is one; return its seq."""
        self._epoch = epoch
        self._replay.begin(folder, epoch, first)
        return self._replay.seq

    def take(self, units: Iterable[Unit]) -> None:
        """Apply the next units of the log."""
        for unit in units:
            for change in self._replay.take(unit):
                if isinstance(change, Change) and self._is_mine(change.entry):
                    self._changes.append(change)

    def entry(self) -> SpaceEntry:
        """Return the space; reject a log that doesn't have it."""
        tenant, name = self._name
        spaces = self._replay.registry.spaces
        if self._name not in spaces:
            mine = [known for owner, known in spaces if owner == tenant]
            raise UsageError(
                f"the log has no space {abbreviate(name)} of the tenant {tenant}: "
                f"{did_you_mean(name, mine)}\n"
                "  hint: create it on the server first, or correct --space"
            )
        return spaces[self._name]

    @property
    def seq(self) -> int:
        """Seq up to which the log is applied."""
        return self._replay.seq

    @property
    def position(self) -> str:
        """Position up to which the log is applied."""
        return position(self._epoch, self.seq)

    def match(self, events: Sequence[Event]) -> Answer:
        """Match events with the current subscriptions; return the result."""
        entry = self.entry()
        self._settle(entry)
        index, registry = self._replay.indexes[entry.number], self._replay.registry
        lines = [event.value for event in events]
        taken, rejected = encoded(lines, entry.space, ignore_unknown=True)
        wrong = {at for at, _ in rejected}
        used = [event for at, event in enumerate(events) if at not in wrong]
        answer = Answer(self.position, rejected=[(events[at], why) for at, why in rejected])
        if not used:
            return answer
        messages = Mailboxes(partial(Mailbox, is_bounded=False))
        everybody = np.ones(max(1, len(registry.numbered)), bool)
        begin = 0
        for count, matches in index.match_in_pieces(taken.points):
            lines, places = taken.lines[begin : begin + count], np.arange(begin, begin + count)
            fan_out(matches, index, everybody, registry.numbered, lines, places, messages)
            begin += count
        for number, own in messages.items():
            consumer = registry.numbered[number]
            assert consumer is not None
            self._warn_of_rate_limit(consumer)
            answer.matches += [
                self._match(used[message.seq], message, consumer) for message in own.messages
            ]
        return answer

    def _match(self, event: Event, message: Message, consumer: Consumer) -> Match:
        data = b'{"edits":"%s","event":%s,"subscriptions":[%s]}' % (
            self.position.encode(),
            message.event,
            message.subscriptions,
        )
        name = f"{self._topic}:{event.partition}:{event.offset}"
        return Match(event, consumer.name, cloud_event(MATCH, name, consumer, data))

    def _is_mine(self, entry: SpaceEntry) -> bool:
        return (entry.tenant, entry.name) == self._name

    def _settle(self, entry: SpaceEntry) -> None:
        """Bring the index up to date with the applied log."""
        if not self._changes:
            return
        apply_changes(self._changes, self._replay.indexes)
        self._since_forgotten += sum(max(1, len(change.put)) for change in self._changes)
        self._changes = []
        if self._since_forgotten >= max(_FORGET, len(entry.live)):
            # Nothing of the past is matched again.
            self._replay.registry.forget(self._replay.seq + 1)
            self._since_forgotten = 0

    def _warn_of_rate_limit(self, consumer: Consumer) -> None:
        if consumer.max_per_second and consumer.name not in self._warned_consumers:
            self._warned_consumers.add(consumer.name)
            logger.warning(
                "consumer %s: only the server applies max_per_second; a worker writes every match",
                consumer.name,
            )
