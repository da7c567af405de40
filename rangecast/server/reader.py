"""What a consumer missed: its part of the log, matched with its subscriptions of that time."""

from __future__ import annotations

import threading

import numpy as np

from rangecast.server.encoding import points_of, rows_of
from rangecast.server.index import History
from rangecast.server.log import Log
from rangecast.server.messages import Batch, Gap, Message
from rangecast.server.records import EVENTS, events_of
from rangecast.server.registry import Consumer, SpaceEntry

CHUNK = 4 << 20
"""Bytes of the log that are read at a time."""


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
        for unit in self._log.read(after, CHUNK):
            if unit.last > durable:
                break
            if unit.kind == EVENTS:
                head, lines = events_of(unit)
                if (head.tenant, head.space) == (mine.tenant, mine.name):
                    begin = max(0, after + 1 - unit.first)
                    seqs = np.arange(unit.first + begin, unit.last + 1)
                    some = lines[begin:]
                    points = points_of(rows_of(some, head.form), space)
                    options = self._consumer.now_from, self._consumer.best
                    for place, ids in self._history.match(points, seqs, *options):
                        messages.append(Message(int(seqs[place]), some[place], ids))
                    if len(messages) >= most:
                        upto = unit.last
                        if len(messages) > most:
                            del messages[most:]
                            upto = messages[-1].seq
                        break
            upto = unit.last
        return Batch(messages, upto, gap)
