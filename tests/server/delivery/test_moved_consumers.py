"""A consumer that is moved or put again while its delivery still works by the consumer of before.

The edit is in effect before the delivery's task is restarted: by as much as the matcher is behind.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from rangecast.server.delivery.messages import Message
from rangecast.server.delivery.push import DeliverySettings, PushDelivery
from rangecast.server.delivery.webhook import Webhook
from rangecast.server.pipeline.futures import result_of
from rangecast.server.service import Service
from rangecast.server.state.edits import PutConsumer, PutSubscription
from rangecast.server.state.entries import Consumer
from tests.support.server.serving import WANTED, T, publish, run, serving, until

HOOK = {"kind": "webhook", "url": "http://127.0.0.1:9/x", "allow_private": True, "secret": ""}


async def prepared(service: Service) -> tuple[Consumer, int]:
    """Return a consumer with messages, and the seq of the first one."""
    made = PutConsumer(T, "out", "s")
    await result_of(service.core.edit(made, PutSubscription(T, "all", "s", WANTED["all"], "out")))
    return service.core.registry.consumer(T, "out"), await publish(service, 1, 2, 3)


async def put(service: Service, start: int = -1) -> None:
    edit = PutConsumer(T, "out", "s", start=start)
    await result_of(service.core.edit(edit))


def test_what_is_delivered_while_a_consumer_is_moved_does_not_move_it_back() -> None:
    class Held(PushDelivery):
        began, may_go_on = asyncio.Event(), asyncio.Event()
        delivered = 0

        async def deliver(self, messages: Sequence[Message], upto: int) -> None:
            self.began.set()
            await self.may_go_on.wait()
            self.delivered += len(messages)

    async def work() -> None:
        async with serving() as service:
            consumer, first = await prepared(service)
            delivery = Held(service.core, consumer, DeliverySettings())
            task = asyncio.create_task(delivery.run())
            await delivery.began.wait()
            await put(service, first - 1)
            delivery.may_go_on.set()
            await until(lambda: delivery.delivered == 3)
            assert consumer.cursor == first - 1
            task.cancel()
            await asyncio.wait([task])
            delivery.delivered, delivery.batch_size = 0, 3
            task = asyncio.create_task(delivery.run())
            await until(lambda: consumer.cursor >= first + 2)
            assert delivery.delivered == 3
            task.cancel()
            await asyncio.wait([task])

    run(work)


def test_a_dead_letter_from_before_does_not_move_a_consumer(tmp_path: Path) -> None:
    async def work() -> None:
        async with serving(tmp_path) as service:
            consumer, first = await prepared(service)
            consumer.delivery = HOOK
            delivery = Webhook(service.core, consumer, DeliverySettings())
            messages = [Message(first + 2, b"{}", b'"all"')]
            await put(service, first - 1)
            await delivery._add_dead_letter(messages)
            assert (consumer.cursor, consumer.dead_letters) == (first - 1, {})
        async with serving(tmp_path) as service:
            consumer = service.core.registry.consumer(T, "out")
            assert (consumer.cursor, consumer.dead_letters) == (first - 1, {})
            consumer.delivery = HOOK
            delivery = Webhook(service.core, consumer, DeliverySettings())
            await delivery._add_dead_letter(messages)
            assert (consumer.cursor, [*consumer.dead_letters]) == (first + 2, [first + 2])

    run(work)


def test_a_delivery_from_before_does_not_stop_a_consumer_that_was_put_again() -> None:
    async def work() -> None:
        async with serving() as service:
            consumer, _ = await prepared(service)
            before = PushDelivery(service.core, consumer, DeliverySettings())
            await put(service)
            now = PushDelivery(service.core, consumer, DeliverySettings())
            for delivery, stopped in ((before, ""), (now, "gone")):
                task = asyncio.create_task(delivery.stop("gone"))
                await publish(service, 1)  # is written after it
                await publish(service, 1)
                assert consumer.stopped == stopped
                task.cancel()
                await asyncio.wait([task])

    run(work)
