"""Push delivery (webhook, NATS, Kafka): one task per consumer.

    Deliveries     starts, restarts and stops tasks as consumers are created, changed, deleted
    PushDelivery   takes messages from the consumer's listener, delivers them, and moves its cursor

The subclasses of `PushDelivery` are in `webhook` and `connectors`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from rangecast.errors import RangecastError, abbreviate
from rangecast.server.core import Core
from rangecast.server.delivery.messages import Gap, Message
from rangecast.server.delivery.resolver import Resolver
from rangecast.server.pipeline.futures import result_of
from rangecast.server.state.edits import StopConsumer
from rangecast.server.state.entries import Consumer
from rangecast.server.state.registry import Name, RequestError

logger = logging.getLogger("rangecast.server")
IDLE = 15.0
FAR = 1_000
"""Seqs without a match after which a cursor moves as well: not for each, as that is a write."""
AGAIN = 5.0
"""Seconds before a delivery that raised an error is retried."""
ENDING = 2.0
"""Seconds that running deliveries have to finish; unfinished ones are repeated later."""


@dataclass
class DeliverySettings:
    """Destinations available to the push deliveries of a server."""

    allow_private_webhooks: bool = False
    nats: str | None = None
    """Address of NATS."""
    kafka: str | None = None
    """Addresses of Kafka brokers."""
    resolver: Resolver = field(default_factory=Resolver)
    """Resolves the host names of webhooks."""


class PushDelivery:
    """Pushes the messages of one consumer; one subclass per kind of destination."""

    scope = "subscribe"
    """Token scope required to configure it."""
    batch_size = 1
    """Messages that are delivered at a time."""

    def __init__(self, core: Core, consumer: Consumer, settings: DeliverySettings):
        self.core = core
        self.settings = settings
        self.consumer = consumer
        self.since, self.moved = consumer.since, consumer.moved
        """Of the consumer that it goes by: after later edits it has no effect on it."""
        self.error = ""
        """Why the last attempt failed; empty once one succeeds."""

    @classmethod
    def checked(
        cls, settings: DeliverySettings, options: dict[str, Any], old: dict[str, Any]
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the options to store, and those shown only in this response; reject invalid ones.

        old   the delivery options that the consumer has now
        """
        raise NotImplementedError

    @classmethod
    def shown(cls, options: dict[str, Any]) -> dict[str, Any]:
        """Return delivery options without their secrets."""
        return options

    def state(self) -> dict[str, Any]:
        """Return the state of the delivery and its last error."""
        return {"state": "failing" if self.error else "running", "error": self.error or None}

    async def run(self) -> None:
        """Deliver until cancelled."""
        core, consumer = self.core, self.consumer
        self.moved = moved = consumer.moved
        listener = core.hub.open(consumer, await self.begin())
        try:
            while not listener.is_closed:
                batch = await listener.next_batch(wait=IDLE)
                if batch.gap is not None:
                    if consumer.on_gap == "stop":
                        await self.stop(
                            f"events up to seq {batch.gap.upto} are no longer in the log"
                        )
                    await self.tell_gap(batch.gap)
                for at in range(0, len(batch.messages), self.batch_size):
                    piece = batch.messages[at : at + self.batch_size]
                    is_last = at + self.batch_size >= len(batch.messages)
                    upto = batch.upto if is_last else piece[-1].seq
                    await self.deliver(piece, upto)
                    core.acknowledge(consumer, upto, moved)
                if batch.upto - consumer.cursor > FAR:
                    core.acknowledge(consumer, batch.upto, moved)
        finally:
            core.hub.close(listener)
            await self.end()

    async def begin(self) -> int | None:
        """Connect; return the seq to continue after, if it isn't the consumer's cursor."""
        return None

    async def deliver(self, messages: Sequence[Message], upto: int) -> None:
        """Deliver messages or record them as dead letters; then all up to `upto` is done."""
        raise NotImplementedError

    async def tell_gap(self, gap: Gap) -> None:
        """Report that events were deleted from the log before this consumer received them."""
        text = "missed seqs %s to %s"
        logger.warning(text, gap.after + 1, gap.upto, extra=about(self.consumer))

    async def end(self) -> None:
        """Release the resources acquired by `begin`."""

    async def stop(self, reason: str) -> None:
        """Stop delivering until the consumer is put again; never returns."""
        logger.warning("stopped: %s", reason, extra=about(self.consumer))
        edit = StopConsumer(self.consumer.tenant, self.consumer.name, reason, self.since)
        await result_of(self.core.edit(edit))
        await asyncio.Event().wait()  # this task is cancelled, now that the edit is made


def about(consumer: Consumer) -> dict[str, str]:
    """Return the log fields that identify a consumer."""
    return {"tenant": consumer.tenant, "consumer": consumer.name}


class Deliveries:
    """All running push deliveries."""

    def __init__(
        self, core: Core, kinds: Mapping[str, type[PushDelivery]], settings: DeliverySettings
    ):
        self._core = core
        self.settings = settings
        self._kinds = kinds
        self._running: dict[Name, tuple[int, PushDelivery, asyncio.Task[None]]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None

    def start(self) -> None:
        """Start the deliveries; call it on the event loop."""
        self._loop = asyncio.get_running_loop()
        for name in list(self._core.registry.consumers):
            self.refresh(name)

    def refresh_after(self, answer: Future[Any], names: Sequence[Name]) -> None:
        """Refresh the deliveries of consumers once an edit is committed."""

        def done(_: Future[Any]) -> None:
            if self._loop is not None and not self._loop.is_closed():
                for name in names:
                    self._loop.call_soon_threadsafe(self.refresh, name)

        answer.add_done_callback(done)

    def refresh(self, name: Name) -> None:
        """Start, restart or stop the delivery of a consumer, according to its options."""
        if self._loop is None:
            return
        consumer = self._core.registry.consumers.get(name)
        if consumer is not None and (
            consumer.delivery.get("kind") not in self._kinds or consumer.stopped
        ):
            consumer = None
        since, _, before = self._running.get(name, (None, None, None))
        if consumer is not None and consumer.since == since:
            return
        if before is not None:
            before.cancel()
            del self._running[name]
        if consumer is not None:
            delivery = self._kinds[consumer.delivery["kind"]](self._core, consumer, self.settings)
            task = self._loop.create_task(_run_with_restarts(delivery, before))
            self._running[name] = delivery.since, delivery, task

    async def stop(self) -> None:
        """Stop all deliveries within `ENDING` seconds."""
        self._loop = None
        tasks = {task: delivery for _, delivery, task in self._running.values()}
        self._running.clear()
        for task in tasks:
            task.cancel()
        late = (await asyncio.wait(tasks, timeout=ENDING))[1] if tasks else set()
        for task in late:
            text = (
                "a delivery did not stop within %g seconds; it was cancelled and will be repeated"
            )
            logger.warning(text, ENDING, extra=about(tasks[task].consumer))

    def checked(
        self, settings: dict[str, Any], old: Consumer | None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the options to store, and those shown only in this response."""
        if not settings:
            return {}, {}
        kind = settings.get("kind")
        delivery = self._kinds.get(kind) if isinstance(kind, str) else None
        if delivery is None:
            known = ", ".join(self._kinds)
            raise RequestError(
                422, f"'kind' of a delivery must be one of {known}\n  given: {abbreviate(kind)}"
            )
        before = {} if old is None or old.delivery.get("kind") != kind else old.delivery
        return delivery.checked(self.settings, settings, before)

    def scope(self, settings: dict[str, Any]) -> str:
        """Return the token scope required to configure a delivery."""
        kind = self._kinds.get(str(settings.get("kind")))
        return "subscribe" if kind is None else kind.scope

    def shown(self, consumer: Consumer) -> dict[str, Any]:
        """Return the delivery options of a consumer, and the state of the delivery."""
        kind = self._kinds.get(consumer.delivery.get("kind", ""))
        if kind is None:
            return {"delivery": consumer.delivery}
        state: dict[str, Any] = {"delivery": kind.shown(consumer.delivery)}
        if consumer.stopped:
            state |= {"state": "stopped", "error": consumer.stopped}
        elif running := self._running.get((consumer.tenant, consumer.name)):
            state |= running[1].state()
        return state | {"dead_letters": len(consumer.dead_letters)}

    def separate_delivery(self, consumer: Consumer) -> PushDelivery:
        """Return a separate delivery of a consumer, for single messages."""
        kind = self._kinds.get(consumer.delivery.get("kind", ""))
        if kind is None:
            raise RequestError(409, f"the consumer {abbreviate(consumer.name)} has no delivery")
        return kind(self._core, consumer, self.settings)


async def _run_with_restarts(delivery: PushDelivery, before: asyncio.Task[None] | None) -> None:
    if before is not None:
        await asyncio.wait([before])
    while True:
        try:
            await delivery.run()
        except RangecastError as error:
            delivery.error = str(error)
        except Exception as error:
            logger.exception("the delivery failed; retrying", extra=about(delivery.consumer))
            delivery.error = f"internal error: {type(error).__name__}"
        await asyncio.sleep(AGAIN if delivery.error else 0)
