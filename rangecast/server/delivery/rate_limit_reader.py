"""Reader of a consumer with `max_per_second`: the top-scored messages of each second of the log.

The score of a message is the highest score of its subscriptions; ties go to the earlier message.
Seconds are those of the log's clock, so the result depends only on the log. Messages are sent when
their second is over; the last one has the number of dropped messages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from rangecast.rank.rate_limit import staying
from rangecast.server.delivery.log_reader import CHUNK, Group, Reader
from rangecast.server.delivery.messages import Batch, Gap, Message
from rangecast.server.log.base import Log, Unit
from rangecast.server.state.entries import Consumer

SECOND = 1_000_000
"""Microseconds, as units of the log have them."""
_SPARE = 1_000
"""Number of messages buffered beyond the limit before they are compared."""


class SecondBuffer:
    """Top-scored messages of one second so far."""

    def __init__(self, max_messages: int):
        self.dropped = 0
        self._max = max_messages
        self._found: list[tuple[Message, float]] = []

    def add(self, message: Message, score: float) -> None:
        """Add a message; messages arrive in order of seq."""
        self._found.append((message, score))
        if len(self._found) > 2 * self._max + _SPARE:
            self._compare()

    def best(self) -> list[Message]:
        """Return the kept messages by seq; the last one has the number of dropped ones."""
        self._compare()
        messages = [message for message, _ in self._found]
        if self.dropped:
            messages[-1] = messages[-1]._replace(dropped=self.dropped)
        return messages

    def _compare(self) -> None:
        scores = np.array([score for _, score in self._found], np.float64)
        stay = staying(np.zeros(len(scores), np.int64), scores, self._max).tolist()
        self.dropped += stay.count(False)
        self._found = [pair for pair, stays in zip(self._found, stay, strict=True) if stays]


class RateLimitReader(Reader):
    """Reads the log for one consumer with a rate limit, second by second."""

    def __init__(
        self,
        log: Log,
        consumer: Consumer,
        min_next_time: Callable[[], int],
        durable: Callable[[], int],
    ):
        super().__init__(log, consumer)
        self._min_next_time = min_next_time
        """Lower bound on the time of all later units."""
        self._durable = durable
        """The last seq that is durable now."""
        self._over_before = 0
        """Seconds before this one are over, and durable as far as is read."""
        self._boundary = -1
        """A seq with which a second ended."""

    def _read(self, after: int, durable: int, limit: int) -> Batch:
        # In this order: what is written between the two lies in a second that isn't over, or is
        # read. The caller's end of the log may be older than the time.
        self._over_before = self._min_next_time() // SECOND
        return super()._read(after, max(durable, self._durable()), limit)

    def _read_after(self, after: int, durable: int, limit: int) -> Batch:
        begin = after if after == self._boundary else self._start_of_second(after)
        kept: list[Message] = []
        second: SecondBuffer | None = None
        gap, is_cut = None, False
        upto, last, number, size = begin, begin, -1, 0
        for unit in self._units(begin, durable):
            is_lost = self._is_after_loss(unit, after)
            if unit.first > last + 1 or is_lost:  # retention was quicker, or a part is missing
                if last > begin:
                    is_cut = True  # reported by the next read
                    break
                if unit.first > after + 1:
                    gap = Gap(after, unit.first - 1)
                elif is_lost:
                    gap = Gap(after, after, "link")
                upto = unit.first - 1
            if second is not None and unit.at // SECOND != number:
                kept += second.best()
                second, upto = None, last
                if len(kept) >= limit or size > CHUNK:
                    break
            if second is None:
                second, number = SecondBuffer(self._consumer.max_per_second), unit.at // SECOND
            group = Group(begin)
            self._take(group, unit, begin)
            for message, score in self._matched(group):
                second.add(message, score)
            last, size = unit.last, size + len(unit.body)
        if second is not None and (is_cut or number < self._over_before):
            kept += second.best()
            upto = last
        messages = [entry for entry in kept if entry.seq > after]
        if len(messages) > limit:
            return Batch(messages[:limit], messages[limit - 1].seq, gap)
        self._boundary = upto
        return Batch(messages, max(after, upto), gap)

    def _start_of_second(self, after: int) -> int:
        """Return the last seq before the second that a log position falls into."""
        following = self._log.read(after, 1)
        if not following:
            return after
        number, step = following[0].at // SECOND, 64
        while True:
            begin = start = max(self._log.first - 1, after - step)
            for unit in self._units(begin, after):
                if unit.at // SECOND == number:
                    break
                start = unit.last
            if start > begin or begin < self._log.first:
                return start
            step *= 8

    def _units(self, after: int, durable: int) -> Iterator[Unit]:
        while units := self._log.read(after, CHUNK):
            for unit in units:
                if unit.last > durable:
                    return
                after = unit.last
                yield unit
