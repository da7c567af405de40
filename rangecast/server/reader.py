"""What a consumer missed: its part of the log, matched with its subscriptions of that time."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rangecast.kernels.arrays import I64
from rangecast.server.encoding import points_of, rows_of
from rangecast.server.index import History
from rangecast.server.log import Log
from rangecast.server.messages import Batch, Gap, Message
from rangecast.server.records import EVENTS, events_of
from rangecast.server.registry import Consumer, SpaceEntry

CHUNK = 4 << 20
"""Bytes of the log that are read at a time."""
TOGETHER = 2_000
"""Events that are matched at a time, if the units are smaller."""


@dataclass(slots=True)
class _Group:
    """Units of the log that are matched together: their events, and how far they reach."""

    upto: int
    lines: list[bytes] = field(default_factory=list)
    rows: list[dict[str, Any]] = field(default_factory=list)
    seqs: list[I64] = field(default_factory=list)


class Reader:
    """Reads the log for one consumer."""

    def __init__(self, log: Log, consumer: Consumer):
        self._log = log
        self._consumer = consumer
        self._history: History | None = None
        self._one = threading.Lock()

    def read(self, after: int, durable: int, most: int) -> Batch:
        """Return the next messages after a seq; what isn't durable yet is not there.

        They are about `most` at most: all those of an event's unit up to there.
        """
        with self._one:
            return self._read(after, durable, most)

    def _read(self, after: int, durable: int, most: int) -> Batch:
        gap = None
        if after < self._log.first - 1:
            gap = Gap(after, self._log.first - 1)
            after = gap.upto
        mine = self._consumer.source
        assert isinstance(mine, SpaceEntry)
        space = mine.space
        if self._history is None or self._history.engine.space is not space:
            self._history = History(space)
        versions = self._consumer.versions
        self._history.learn(versions)
        messages: list[Message] = []
        upto = after
        for some in self._groups(mine, after, durable):
            if some.lines:
                points = points_of(some.rows, space)
                seqs = np.concatenate(some.seqs)
                options = self._consumer.now_from, self._consumer.best
                for place, ids in self._history.match(points, seqs, *options):
                    messages.append(Message(int(seqs[place]), some.lines[place], ids))
            upto = some.upto
            if len(messages) >= most:
                if len(messages) > most:
                    del messages[most:]
                    upto = messages[-1].seq
                break
        return Batch(messages, upto, gap)

    def _groups(self, mine: SpaceEntry, after: int, durable: int) -> Iterator[_Group]:
        """Yield the next units, some together: a unit may have a single event."""
        group = _Group(after)
        for unit in self._log.read(after, CHUNK):
            if unit.last > durable:
                break
            group.upto = unit.last
            if unit.kind == EVENTS:
                head, lines = events_of(unit)
                if (head.tenant, head.space) == (mine.tenant, mine.name):
                    begin = max(0, after + 1 - unit.first)
                    group.lines += lines[begin:]
                    group.rows += rows_of(lines[begin:], head.form)
                    group.seqs.append(np.arange(unit.first + begin, unit.last + 1))
            if len(group.lines) >= TOGETHER:
                yield group
                group = _Group(unit.last)
        if group.upto > after:
            yield group
