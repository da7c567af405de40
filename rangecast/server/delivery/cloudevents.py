"""Messages as CloudEvents, the format of webhook, NATS and Kafka deliveries."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from rangecast.server.delivery.messages import BoardMessage, Message, TransitionMessage
from rangecast.server.state.boards import BoardEntry
from rangecast.server.state.entries import Consumer

ONE = "application/cloudevents+json"
BATCH = "application/cloudevents-batch+json"
MATCH, LISTS, GAP, TEST = "rangecast.match", "rangecast.lists", "rangecast.gap", "rangecast.test"
TRANSITION = "rangecast.transition"
_encode = msgspec.json.Encoder().encode


def match_event(message: Message, consumer: Consumer, epoch: str) -> bytes:
    """Return a message as a CloudEvent."""
    position = f"{epoch}:{message.seq}"
    kind = MATCH
    if isinstance(message, BoardMessage | TransitionMessage):
        kind = LISTS if isinstance(message, BoardMessage) else TRANSITION
    return cloud_event(kind, position, consumer, message.json(epoch))


def cloud_event(kind: str, name: str, consumer: Consumer, data: bytes) -> bytes:
    """Return a CloudEvent for a consumer; `data` is JSON."""
    source, kinds = consumer.source, "spaces"
    if isinstance(source, BoardEntry):
        kinds = "boards"
    return b'{"specversion":"1.0","type":%s,"id":%s,"source":%s,"subject":%s,"data":%s}' % (
        _encode(kind),
        _encode(name),
        _encode(f"/v1/{kinds}/{source.name}"),
        _encode(consumer.name),
        data,
    )


def listed(events: Sequence[bytes]) -> bytes:
    """Return several CloudEvents as one JSON batch."""
    return b"[" + b",".join(events) + b"]"


def name_of(consumer: Consumer, epoch: str, first: int, last: int) -> str:
    """Return the id of a delivery; a retry has the same id."""
    many = "" if first == last else f"_{last}"
    return f"msg_{epoch}_{consumer.number}_{first}{many}"
