"""Consumers that are read by one request after another: a listener stays between them."""

from __future__ import annotations

import asyncio

from rangecast.server.delivery.hub import Feed, Hub
from rangecast.server.state.registry import Consumer

IDLE = 30.0
"""Seconds after which a listener whom nobody asks is closed."""


class Pulls:
    """The listeners of consumers that are pulled from, by number of the consumer."""

    def __init__(self, hub: Hub):
        self._hub = hub
        self._idle: dict[int, tuple[Feed, asyncio.TimerHandle]] = {}

    def feed(self, consumer: Consumer) -> Feed:
        """Return a listener that stands at what the consumer has acknowledged."""
        if consumer.number in self._idle:
            feed, timer = self._idle.pop(consumer.number)
            timer.cancel()
            if feed.sent == consumer.cursor and not feed.is_closed:
                return feed
            self._hub.close(feed)
        return self._hub.open(consumer)

    def give_back(self, feed: Feed) -> None:
        """Keep a listener for the next request."""
        number = feed.consumer.number
        if number in self._idle or feed.is_closed:
            self._hub.close(feed)
            return
        loop = asyncio.get_running_loop()
        self._idle[number] = feed, loop.call_later(IDLE, self._close, number, feed)

    def _close(self, number: int, feed: Feed) -> None:
        if self._idle.get(number, (None,))[0] is feed:
            del self._idle[number]
        self._hub.close(feed)
