"""Push delivery over HTTP: dead letters, secret rotation, test messages."""

from __future__ import annotations

import asyncio
from typing import Any

from fastapi import APIRouter, Request

from rangecast.errors import abbreviate
from rangecast.server.core import Core
from rangecast.server.delivery.messages import position
from rangecast.server.delivery.push import Deliveries
from rangecast.server.delivery.webhook import Webhook, rotated
from rangecast.server.http.auth import allowed, core_of
from rangecast.server.pipeline.futures import result_of
from rangecast.server.state.edits import DropDeadLetters
from rangecast.server.state.entries import Consumer
from rangecast.server.state.registry import RequestError

router = APIRouter(prefix="/v1/consumers")
REDRIVEN = 100
"""Dead letters of one request."""


@router.get("/{name}/dead-letters")
async def list_dead(request: Request, name: str, after: str = "", limit: int = 1000) -> Any:
    """List the dead letters, messages that could not be delivered, by position."""
    core, consumer = _asked(request, "read", name)
    epoch = core.epoch
    begin = core.seq_of(after) if after else 0
    wanted = sorted(seq for seq in list(consumer.dead_letters) if seq > begin)
    page = wanted[: max(1, min(limit, 1000))]
    return {
        "items": [
            {
                "position": position(epoch, letter),
                "reason": consumer.dead_letters[letter].reason,
                "at": consumer.dead_letters[letter].at / 1e6,
                "is_kept": letter >= core.log.first,
            }
            for letter in page
        ],
        "next": position(epoch, page[-1]) if len(wanted) > len(page) else None,
        "count": len(consumer.dead_letters),
    }


@router.post("/{name}/dead-letters:redrive")
async def redrive(request: Request, name: str) -> Any:
    """Retry dead letters, oldest first, up to 100 or the first failure.

    Those that arrive, and those whose events are gone from the log, are no longer dead letters.
    """
    core, consumer = _asked(request, "subscribe", name)
    webhook = _webhook(request, consumer)
    reader, loop = core.hub.reader(consumer), asyncio.get_running_loop()
    delivered, gone, error = [], [], ""
    try:
        for seq in sorted(consumer.dead_letters)[:REDRIVEN]:
            durable = core.pipeline.durable
            batch = await loop.run_in_executor(None, reader.read, seq - 1, durable, 1)
            if not batch.messages or batch.messages[0].seq != seq:
                gone.append(seq)
                continue
            answer = await webhook.redeliver(batch.messages[0])
            if not answer.has_arrived:
                error = answer.error
                break
            delivered.append(seq)
    finally:
        await webhook.end()
    if delivered or gone:
        edit = DropDeadLetters(consumer.tenant, consumer.name, delivered + gone)
        await result_of(core.edit(edit))
    epoch = core.epoch
    return {
        "delivered": [position(epoch, letter) for letter in delivered],
        "gone": [position(epoch, letter) for letter in gone],
        "left": len(consumer.dead_letters),
        "error": error or None,
    }


@router.post("/{name}/secret:rotate")
async def rotate(request: Request, name: str) -> Any:
    """Rotate the secret of a webhook, shown this once; the old one also signs for 24 hours."""
    core, consumer = _asked(request, "subscribe", name)
    edit, secret = rotated(consumer)
    await result_of(core.edit(edit))
    return {"secret": secret}


@router.post("/{name}:test")
async def test(request: Request, name: str) -> Any:
    """Deliver a test message to a webhook, in one attempt; return the outcome."""
    _, consumer = _asked(request, "subscribe", name)
    webhook = _webhook(request, consumer)
    try:
        answer = await webhook.test()
    finally:
        await webhook.end()
    return {
        "delivered": answer.has_arrived,
        "status": answer.status,
        "error": answer.error or None,
    }


def _asked(request: Request, scope: str, name: str) -> tuple[Core, Consumer]:
    caller = allowed(request, scope)
    core = core_of(request)
    return core, core.registry.consumer(caller.tenant, name)


def _webhook(request: Request, consumer: Consumer) -> Webhook:
    deliveries: Deliveries = request.app.state.deliveries
    delivery = deliveries.separate_delivery(consumer)
    if not isinstance(delivery, Webhook):
        raise RequestError(409, f"the consumer {abbreviate(consumer.name)} has no webhook")
    return delivery
