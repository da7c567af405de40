"""NATS JetStream: a subject as a source of events or as a delivery target."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any

from rangecast.errors import abbreviate
from rangecast.server.calls import CLOSE_SECONDS
from rangecast.server.connectors.base import (
    TAKEN,
    BusError,
    Source,
    error_text,
    published,
    read_positions,
    source_task,
)
from rangecast.server.core import Core
from rangecast.server.delivery.cloudevents import ONE, match_event, name_of
from rangecast.server.delivery.messages import Message
from rangecast.server.delivery.push import DeliverySettings, PushDelivery
from rangecast.server.state.entries import Consumer
from rangecast.server.state.registry import RequestError
from rangecast.server.state.sources import SourceState

logger = logging.getLogger("rangecast.server")
PING = 10
"""Seconds after which a silent server is pinged; after two more it counts as lost."""


async def _connected(url: str) -> Any:
    import nats

    async def noted(error: Exception) -> None:
        logger.debug("NATS: %s", error)

    try:
        return await nats.connect(
            url,
            name="rangecast",
            connect_timeout=5,
            allow_reconnect=False,
            error_cb=noted,
            ping_interval=PING,
            max_outstanding_pings=2,
        )
    except (TimeoutError, OSError, nats.errors.Error) as error:
        raise BusError(f"NATS: no connection: {error_text(error)}") from None


async def _close(connection: Any) -> None:
    """Close a connection within a bounded time, even if the peer is gone."""
    import nats

    with suppress(TimeoutError, OSError, nats.errors.Error):
        async with asyncio.timeout(CLOSE_SECONDS):
            await connection.close()


class NatsDelivery(PushDelivery):
    """Publishes messages to a subject; NATS deduplicates them by `Nats-Msg-Id`."""

    scope = "admin"
    batch_size = 100

    def __init__(self, core: Core, consumer: Consumer, settings: DeliverySettings):
        super().__init__(core, consumer, settings)
        self._connection: Any = None

    @classmethod
    def checked(
        cls, settings: DeliverySettings, options: dict[str, Any], old: dict[str, Any]
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        if settings.nats is None:
            raise RequestError(409, "this server has no NATS\n  hint: start it with --nats URL")
        subject = options.get("subject")
        is_subject = isinstance(subject, str) and 0 < len(subject) <= 256 and subject.isprintable()
        if set(options) != {"kind", "subject"} or not is_subject or set(str(subject)) & set(" *>"):
            raise RequestError(
                422,
                'a delivery to NATS must be {"kind": "nats", "subject": ...}, without wildcards\n'
                f"  given: {abbreviate(options)}",
            )
        return options, {}

    async def begin(self) -> int | None:
        assert self.settings.nats is not None
        self._connection = await _connected(self.settings.nats)
        return None

    async def deliver(self, messages: Sequence[Message], upto: int) -> None:
        import nats

        stream, lineage = self._connection.jetstream(), self.core.lineage
        subject = self.consumer.delivery["subject"]
        sent = []
        for message in messages:
            epoch = lineage.at(message.seq)
            name = name_of(self.consumer, epoch, message.seq, message.seq)
            body = match_event(message, self.consumer, epoch)
            headers = {"Nats-Msg-Id": name, "Content-Type": ONE}
            sent.append(stream.publish(subject, body, timeout=10, headers=headers))
        results = await asyncio.gather(*sent, return_exceptions=True)
        for error in results:
            if isinstance(error, nats.js.errors.NoStreamResponseError):
                raise BusError(f"NATS: no JetStream stream accepts the subject {subject!r}")
            if isinstance(error, Exception):
                raise BusError(f"NATS: {error_text(error)}")
        self.error = ""

    async def end(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await _close(connection)


def nats_source(url: str, source: Source) -> Callable[[Core], Awaitable[None]]:
    """Return the task that reads a subject; its read position is logged with the events."""
    return source_task("NATS", source, lambda core, state: _read(core, url, source, state), _reason)


def _reason(error: Exception) -> str | None:
    import nats

    known = isinstance(error, TimeoutError | nats.errors.Error | OSError)
    return error_text(error) if known else None


async def _read(core: Core, url: str, source: Source, state: SourceState) -> None:
    from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy, RetentionPolicy
    from nats.js.errors import NotFoundError

    connection = await _connected(url)
    try:
        stream = connection.jetstream()
        try:
            name = await stream.find_stream_name_by_subject(source.name)
        except NotFoundError:
            raise BusError("no JetStream stream has this subject") from None
        info = await stream.stream_info(name)
        if info.config.retention not in (None, RetentionPolicy.LIMITS):
            raise BusError(
                f"the stream {name!r} deletes acknowledged messages; a stream with limits-based "
                "retention is required, as the server tracks its own position"
            )
        # A stream that is made again begins at 1 again: when it was made is part of its name.
        prefix, made = f"nats:{name}:{source.name}:", str(info.created)
        state.identify(made, known := read_positions(core, prefix, source.space))
        key, begin = f"{prefix}{made}", known.get(made, 0) + 1
        begin = _beginning(state, key, begin, info.state)
        reading = await stream.pull_subscribe(
            source.name,
            stream=name,
            config=ConsumerConfig(
                deliver_policy=DeliverPolicy.BY_START_SEQUENCE,
                opt_start_seq=begin,
                ack_policy=AckPolicy.NONE,
                inactive_threshold=60.0,
            ),
        )
        # Where every message is of this subject, a number that is left out was deleted.
        has_others = info.config.subjects != [source.name]
        expected, following = 1, begin
        while True:
            try:
                messages = await reading.fetch(TAKEN, timeout=1.0)
            except TimeoutError:
                messages = []
            if not messages:
                if not connection.is_connected:
                    raise BusError("the connection was lost")
                continue
            numbers = [message.metadata.sequence for message in messages]
            if [number.consumer for number in numbers] != [
                *range(expected, expected + len(numbers))
            ]:
                raise BusError("messages were lost in transit")
            expected += len(numbers)
            for number in numbers:
                if number.stream != following and not has_others:
                    state.missing(key, following, number.stream - 1)
                following = number.stream + 1
            lines = [message.data for message in messages]
            at = [number.stream for number in numbers]
            await published(core, source.space, lines, key, at[-1], state, numbers=at)
    finally:
        await _close(connection)


def _beginning(state: SourceState, key: str, begin: int, stream: Any) -> int:
    """Return where to continue reading; report messages that were deleted or lost."""
    if begin > 1 and begin > stream.last_seq + 1:
        state.truncated(key, begin - 1, stream.last_seq)
        begin = 1
    elif 1 < begin < stream.first_seq:
        state.missing(key, begin, stream.first_seq - 1)
    return max(begin, int(stream.first_seq))
