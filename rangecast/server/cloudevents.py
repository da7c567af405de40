"""Messages as CloudEvents: what webhooks, NATS and Kafka carry."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from rangecast.server.messages import Message
from rangecast.server.registry import Consumer

ONE = "application/cloudevents+json"
BATCH = "application/cloudevents-batch+json"
MATCH, GAP, TEST = "rangecast.match", "rangecast.gap", "rangecast.test"
_encode = msgspec.json.Encoder().encode


def match_event(message: Message, consumer: Consumer, epoch: str) -> bytes:
    """Return a message as a CloudEvent."""
    place = f"{epoch}:{message.seq}"
    return cloud_event(MATCH, place, consumer, message.json(epoch))


def cloud_event(kind: str, name: str, consumer: Consumer, data: bytes) -> bytes:
    """Return a CloudEvent for a consumer; `data` is JSON."""
    return b'{"specversion":"1.0","type":%s,"id":%s,"source":%s,"subject":%s,"data":%s}' % (
        _encode(kind),
        _encode(name),
        _encode(f"/v1/spaces/{consumer.space.name}"),
        _encode(consumer.name),
        data,
    )


def listed(events: Sequence[bytes]) -> bytes:
    """Return several as one batch."""
    return b"[" + b",".join(events) + b"]"


def name_of(consumer: Consumer, epoch: str, first: int, last: int) -> str:
    """Return what recognises a delivery: the same whenever the same is sent again."""
    many = "" if first == last else f"_{last}"
    return f"msg_{epoch}_{consumer.number}_{first}{many}"
