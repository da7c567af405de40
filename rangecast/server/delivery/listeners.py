"""Listeners: dispatch of messages to the open listeners of each consumer.

A `Listener` is an open reader of a consumer: a WebSocket, a stream, a long poll, a webhook. It is
*live* while it keeps up with the matcher: messages are dispatched to it as they are found. When
more than a window of messages is pending, they are dropped and the listener switches to *reading*:
it reads the log at its own pace, and goes live again when it reaches the end. So a slow listener
costs a cursor, not memory, and puts no back-pressure on the matcher.

Everything here runs on the event loop's thread, except `dispatch`.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict, deque
from typing import TYPE_CHECKING

import numpy as np

from rangecast.server.delivery.board_reader import BoardReader
from rangecast.server.delivery.log_reader import Reader
from rangecast.server.delivery.messages import (
    WINDOW,
    WINDOW_BYTES,
    Batch,
    Gap,
    Mailbox,
    Mailboxes,
    Message,
)
from rangecast.server.delivery.rate_limit_reader import SECOND, RateLimitReader
from rangecast.server.state.boards import BoardEntry
from rangecast.server.state.entries import Consumer

if TYPE_CHECKING:
    from rangecast.server.pipeline.pipeline import CommitPipeline

_READERS = 256
_IDLE = 30.0
"""Seconds after which a listener without a pull is closed."""
TAKEN = 500
"""Messages that a listener takes at a time."""


class Hub:
    """Open listeners, by consumer."""

    def __init__(self) -> None:
        self.listeners: dict[int, list[Listener]] = {}
        self.matched = 0
        """All up to this seq has been handed out."""
        self.reading: set[Listener] = set()
        """Listeners that aren't live: few, so that only these are notified of every batch."""
        self.overflows: Counter[str] = Counter()
        """Times that a listener fell behind, by tenant."""
        self.is_ended = False
        """Whether the server is stopping, so that no listener may open."""
        self.batch = 0
        """Number of the last dispatched batch."""
        self.pipeline: CommitPipeline
        self._loop: asyncio.AbstractEventLoop | None = None
        self._readers: OrderedDict[int, Reader | BoardReader] = OrderedDict()

    def start(self, pipeline: CommitPipeline) -> None:
        """Start the hub; call it on the event loop."""
        self._loop = asyncio.get_running_loop()
        self.pipeline, self.matched = pipeline, pipeline.matched
        pipeline.reread = self._schedule_reread

    def dispatch(self, batch: int, messages: Mailboxes, matched: int) -> None:
        """Dispatch the matches of a batch; called by the matcher's thread."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._dispatch, batch, messages, matched)

    def _dispatch(self, batch: int, messages: Mailboxes, matched: int) -> None:
        self.batch, self.matched = batch, matched
        for number, own in messages.items():
            for listener in self.listeners.get(number, ()):
                listener.dispatch(own)
        for listener in list(self.reading):
            listener.dispatch(Mailbox())  # there is more to read

    def _schedule_reread(self, seq: int) -> None:
        """Schedule listeners to read the log; called by the matcher's thread."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._reread, seq)

    def _reread(self, seq: int) -> None:
        for listeners in self.listeners.values():
            for listener in listeners:
                listener.reread(seq)

    def open(
        self, consumer: Consumer, after: int | None = None, gap: Gap | None = None
    ) -> Listener:
        """Open a listener of a consumer, starting after a seq or after its acknowledged position.

        gap   a gap to report first
        """
        self._want(
            consumer.number, not consumer.max_per_second
        )  # before the listener looks at the number of batches
        listener = Listener(self, consumer, consumer.cursor if after is None else after, gap)
        if self.is_ended:
            listener.is_closed = True
            return listener
        self.reading.add(listener)
        self.listeners.setdefault(consumer.number, []).append(listener)
        return listener

    def reader(self, consumer: Consumer) -> Reader | BoardReader:
        """Return the log reader of a consumer; recently used readers are cached."""
        reader_ = self._readers.pop(consumer.number, None)
        if reader_ is None or isinstance(reader_, RateLimitReader) != (consumer.max_per_second > 0):
            log, source = self.pipeline.log, consumer.source
            if isinstance(source, BoardEntry):
                reader_ = BoardReader(log, consumer, source)
            elif consumer.max_per_second:
                pipeline = self.pipeline
                reader_ = RateLimitReader(
                    log, consumer, pipeline.min_next_time, lambda: pipeline.durable
                )
            else:
                reader_ = Reader(log, consumer)
        self._readers[consumer.number] = reader_
        while len(self._readers) > _READERS:
            self._readers.popitem(last=False)
        return reader_

    def close(self, listener: Listener) -> None:
        """Close a listener."""
        listeners = self.listeners.get(listener.consumer.number, [])
        if listener in listeners:
            listeners.remove(listener)
        if not listeners:
            self.listeners.pop(listener.consumer.number, None)
            self._want(listener.consumer.number, False)
        self.reading.discard(listener)
        listener.is_closed = True
        listener.wake()

    def move(self, consumer: Consumer) -> None:
        """Close the listeners of a consumer after a seek; they reopen at the new position."""
        for listener in list(self.listeners.get(consumer.number, ())):
            self.close(listener)

    def end(self) -> None:
        """Close all listeners, including any opened later."""
        self.is_ended = True
        for listeners in list(self.listeners.values()):
            for listener in list(listeners):
                self.close(listener)

    def _want(self, number: int, wanted: bool) -> None:
        mask = self.pipeline.wanted
        if number >= len(mask):
            grown = np.zeros(max(2 * len(mask), number + 1), bool)
            grown[: len(mask)] = mask
            mask = grown
        mask[number] = wanted
        self.pipeline.wanted = mask


class Listener:
    """An open reader of a consumer.

    `next_batch` returns messages in order, without gaps or repeats.
    """

    def __init__(self, hub: Hub, consumer: Consumer, after: int, gap: Gap | None = None):
        self.consumer = consumer
        self.sent = after
        """All messages up to this seq have been taken."""
        self.is_closed = False
        self.is_live = False
        self.overflows = 0
        self._hub = hub
        self._gap = gap
        """A gap to report before any message."""
        self._window: deque[Message] = deque()
        self._window_bytes = 0
        self._joined = hub.pipeline.batches
        """Batches after this one are certain to have seen the listener."""
        self._whole_after: int | None = None
        """The window has all messages after this seq; `None` until the first batch."""
        self._take_batch()
        self._wakeup = asyncio.Event()

    def dispatch(self, mailbox: Mailbox) -> None:
        """Add messages to the window of pending messages."""
        if self.consumer.max_per_second:
            return  # it reads when a second is over
        self._take_batch()
        for message in mailbox.messages:
            if message.seq > self.sent:
                self._window.append(message)
                self._window_bytes += message.size
        is_full = len(self._window) > WINDOW or self._window_bytes > WINDOW_BYTES
        if is_full or mailbox.is_dropped:
            self._window.clear()
            self._window_bytes = 0
            self._whole_after, self.is_live = self._hub.matched, False
            self._hub.reading.add(self)
            self.overflows += 1
            self._hub.overflows[self.consumer.tenant] += 1
        self.wake()

    def reread(self, seq: int) -> None:
        """Read the log up to a seq before taking live messages."""
        if self._whole_after is not None:
            self._whole_after = max(self._whole_after, seq)
        self.is_live = False
        self._hub.reading.add(self)

    def _take_batch(self) -> None:
        if self._whole_after is None and self._hub.batch >= self._joined:
            self._whole_after = self._hub.matched

    def wake(self) -> None:
        """Wake the task that waits for messages."""
        self._wakeup.set()

    async def next_batch(self, limit: int = TAKEN, wait: float | None = None) -> Batch:
        """Return the next messages; wait up to `wait` seconds if there are none.

        An empty batch says up to which seq there is nothing for this consumer.
        """
        loop = asyncio.get_running_loop()
        deadline = None if wait is None else loop.time() + wait
        while not self.is_closed:
            if self._gap is not None:
                gap, self._gap = self._gap, None
                return Batch([], self.sent, gap)
            self._wakeup.clear()
            before = self.sent
            batch = self._from_window(limit) if self.is_live else await self._from_log(limit)
            if batch.messages or batch.gap is not None:
                return batch
            if not self.is_live and (self._may_go_live() or self.sent > before):
                continue  # there is more of the log to look at, or of the window
            left = None if deadline is None else deadline - loop.time()
            if left is not None and left <= 0:
                return batch
            if self.consumer.max_per_second:
                rest = 1 - self._hub.pipeline.clock.now() % SECOND / SECOND
                left = rest if left is None else min(left, rest)
            try:
                async with asyncio.timeout(left):  # wait_for of 3.11 may swallow a cancellation
                    await self._wakeup.wait()
            except TimeoutError:
                continue
        return Batch([], self.sent)

    def _from_window(self, limit: int) -> Batch:
        messages: list[Message] = []
        while self._window and len(messages) < limit:
            message = self._window.popleft()
            self._window_bytes -= message.size
            messages.append(message)
        self.sent = max(self.sent, messages[-1].seq if self._window else self._hub.matched)
        return Batch(messages, self.sent)

    async def _from_log(self, limit: int) -> Batch:
        reader = self._hub.reader(self.consumer)
        durable = self._hub.pipeline.durable
        loop = asyncio.get_running_loop()
        batch = await loop.run_in_executor(None, reader.read, self.sent, durable, limit)
        self.sent = max(self.sent, batch.upto)
        while self._window and self._window[0].seq <= self.sent:
            self._window_bytes -= self._window.popleft().size
        return batch

    def _may_go_live(self) -> bool:
        """Go live if the window starts where reading of the log ended."""
        is_whole = self._whole_after is not None and self.sent >= self._whole_after
        self.is_live = (
            is_whole and not self._hub.pipeline.is_copy and not self.consumer.max_per_second
        )
        if self.is_live:
            self._hub.reading.discard(self)
        return self.is_live


class PullListeners:
    """Listeners kept open between the pulls of a consumer."""

    def __init__(self, hub: Hub):
        self._hub = hub
        self._idle: dict[int, tuple[Listener, asyncio.TimerHandle]] = {}

    def listener(self, consumer: Consumer) -> Listener:
        """Return a listener at the acknowledged position of the consumer."""
        if consumer.number in self._idle:
            listener, timer = self._idle.pop(consumer.number)
            timer.cancel()
            if listener.sent == consumer.cursor and not listener.is_closed:
                return listener
            self._hub.close(listener)
        return self._hub.open(consumer)

    def give_back(self, listener: Listener) -> None:
        """Keep a listener for the next request."""
        number = listener.consumer.number
        if number in self._idle or listener.is_closed:
            self._hub.close(listener)
            return
        loop = asyncio.get_running_loop()
        self._idle[number] = listener, loop.call_later(_IDLE, self._close, number, listener)

    def _close(self, number: int, listener: Listener) -> None:
        if self._idle.get(number, (None,))[0] is listener:
            del self._idle[number]
        self._hub.close(listener)
