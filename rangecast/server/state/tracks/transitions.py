"""Transitions in the log: derived by the tracks of a space, each for one consumer.

    transitions   a head as one line of JSON; then one transition per line

They are derived from the events and edits before them, and are written so that a consumer can read
them from any position in the log. The first transition of an event in a unit includes the event, as
published.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

import msgspec

from rangecast.server.log.base import Draft, Log, LogError, Unit
from rangecast.server.state.edits import EVENTS, TRANSITIONS, events_of
from rangecast.track.delivery.notifications import Notification
from rangecast.track.moments import micros_of, moment_of

_NOTHING = msgspec.Raw()
DIGEST = "digest"
"""The kind of a message with several transitions."""
MAX_UNIT = 10_000
"""Transitions in one unit."""


class TransitionsHead(msgspec.Struct):
    """Head of a unit of transitions: their tenant and space."""

    tenant: str
    space: str


class Derived(msgspec.Struct, omit_defaults=True, gc=False):
    """A derived transition for one consumer."""

    id: str
    consumer: int
    """Its number."""
    subscription: str | int
    transition: str
    key: str | int
    at: int
    """In microseconds since 1970, as `since`."""
    since: int
    reason: str
    number: int
    score: float = 0.0
    seq: int = 0
    """Seq of the event that caused it; 0: none did."""
    event: msgspec.Raw = _NOTHING
    """That event, in the first transition of a unit that it caused."""
    window: str = ""
    """Window of a digest: see `Notification`."""
    transitions: list[dict[str, Any]] = []
    """Transitions of a digest, as messages have them."""
    subscriptions: list[str | int] = []
    """Subscriptions of a consumer's digest, by its transitions; `subscription` is empty then."""

    @property
    def ids(self) -> list[str | int]:
        """Ids of its subscriptions."""
        return self.subscriptions or [self.subscription]

    def fields(self) -> dict[str, Any]:
        """Return the fields of its message, except subscription and event."""
        whole: dict[str, Any] = {
            "transition": self.transition,
            "key": self.key,
            "at": _text(self.at),
            "since": _text(self.since),
            "reason": self.reason,
            "id": self.id,
        }
        if self.transition == DIGEST:
            del whole["key"]
            whole |= {"window": self.window, "transitions": self.transitions}
        return whole

    @classmethod
    def of(cls, notice: Notification, consumer: int, score: float) -> Derived:
        """Return a notification for a consumer: a transition, or a digest."""
        listed = [
            cls(
                each.id,
                consumer,
                each.subscription,
                each.transition,
                each.key,
                micros_of(each.at),
                micros_of(each.since),
                each.reason,
                each.number,
                score,
                0 if each.event is None else int(each.event),
            )
            for each in notice.transitions
        ]
        if notice.window is None:
            return listed[0]
        fields = [
            {"subscription": each.subscription}
            | each.fields()
            | ({"seq": each.seq} if each.seq else {})
            for each in listed
        ]
        of_consumer = [] if notice.consumer is None else [each.subscription for each in listed]
        subscription = "" if notice.subscription is None else notice.subscription
        return cls(
            notice.id,
            consumer,
            subscription,
            DIGEST,
            "",
            micros_of(notice.at),
            listed[0].at,
            "time",
            0,
            score,
            window=notice.window,
            transitions=fields,
            subscriptions=list(dict.fromkeys(of_consumer)),
        )

    def shown(self) -> bytes:
        """Return `fields` as the inner part of a JSON object."""
        return _encode(self.fields())[1:-1]


_encode = msgspec.json.Encoder().encode
_head = msgspec.json.Decoder(TransitionsHead).decode
_line = msgspec.json.Decoder(Derived).decode


def transitions_draft(
    head: TransitionsHead, derived: Sequence[Derived], lines: dict[int, bytes], at: int
) -> Draft:
    """Return transitions as a unit; `lines` has the events that caused them, by seq."""
    body, named = [_encode(head)], set[int]()
    for transition in derived:
        if transition.seq in lines and transition.seq not in named:
            named.add(transition.seq)
            # A third of the time that a copy with the event takes.
            body.append(b'%s,"event":%s}' % (_encode(transition)[:-1], lines[transition.seq]))
        else:
            body.append(_encode(transition))
    return Draft(TRANSITIONS, len(derived), at, b"\n".join(body))


def transitions_head(unit: Unit) -> TransitionsHead:
    """Return the head of a unit of transitions."""
    return _head(unit.body[: unit.body.find(b"\n")])


def transitions_of(unit: Unit) -> list[Derived]:
    """Return the transitions of a unit."""
    return [_line(line) for line in unit.body.split(b"\n")[1:]]


def with_events(unit: Unit) -> Iterator[tuple[int, Derived, bytes]]:
    """Yield the seq of each transition, the transition, and its event as JSON."""
    events: dict[int, bytes] = {}
    for seq, transition in enumerate(transitions_of(unit), unit.first):
        if transition.event:
            events[transition.seq] = bytes(transition.event)
        yield seq, transition, events.get(transition.seq, b"null")


def event_lines(log: Log, seqs: Collection[int]) -> dict[int, bytes]:
    """Return published events by seq; deleted ones are missing."""
    by_seq: dict[int, bytes] = {}
    unit: Unit | None = None
    lines: list[bytes] = []
    for seq in sorted(seqs):
        if unit is None or seq > unit.last:
            try:
                unit = next(iter(log.read(seq - 1, 1)), None)
            except LogError:
                continue
            if unit is None:
                break
            lines = events_of(unit)[1] if unit.kind == EVENTS else []
        if unit.first <= seq < unit.first + len(lines):
            by_seq[seq] = lines[seq - unit.first]
    return by_seq


def _text(micros: int) -> str:
    return moment_of(micros).isoformat().replace("+00:00", "Z")
