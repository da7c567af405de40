"""Contents of the units of the log: events as published, and edits.

    events   a head as one line of JSON; then one event per line, as published
    edits    a list of JSON objects, each with its `op`
    acks     acknowledged positions of consumers, by name
    updates  of a board's objects: see `boards`
    transitions  of tracked objects: see `transitions`

All of it can be read without this program.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from rangecast.server.log.base import Draft, LogError, Unit

EVENTS, EDITS, ACKS, UPDATES, TRANSITIONS = "events", "edits", "acks", "updates", "transitions"
KINDS = EVENTS, EDITS, ACKS, UPDATES, TRANSITIONS
NEVER = 1 << 62
"""Expiry of something that doesn't expire."""


class EventsHead(msgspec.Struct, omit_defaults=True):
    """Head of a unit of events, common to all of them."""

    tenant: str
    space: str
    key: str = ""
    """The request's `Idempotency-Key`."""
    digest: str = ""
    """Digest of the request's body: the same key with another body is an error."""
    form: str = ""
    """Form of a line: an event, or `cloudevents`: an envelope with the event as its data."""
    dedup: bool = False
    """Whether the events were deduplicated by id."""
    source: str = ""
    """Source of the events, if the server reads them itself: see `connectors`."""
    upto: int = 0
    """Position up to which the source was read, these events included."""
    rejected: list[tuple[int, str]] = []
    """Rejected rows, for the answer to a repetition."""
    numbers: list[int] = []
    """Of events that came over a link: their seqs in the log of the server where they were
    published, which `source` names."""
    hops: int = 0
    """Links that they came over."""
    over: str = ""
    """The last link: the name of the neighbour."""
    mark: str = ""
    """Checksum of the other server's log up to the last event, as hexadecimal digits."""
    lost: bool = False
    """Whether events before these were lost from the log of another server."""


class Edit(msgspec.Struct, tag_field="op", omit_defaults=True, frozen=True):
    """An edit of a named entity of a tenant."""

    tenant: str
    name: str


class PutSpace(Edit, tag="put-space", frozen=True):
    """Create a space, or add attributes or categories to it."""

    definition: dict[str, Any]
    track: dict[str, Any] | None = None
    """Options by which its objects are tracked: see `tracks`; `None`: as before."""


class PutSubscription(Edit, tag="subscribe", frozen=True, gc=False):
    """Create a subscription, or replace the one with this id."""

    space: str
    filter: str
    consumer: str = ""
    score: float = 0.0
    weights: dict[str, float] = {}
    expires: int = 0
    """When it expires, in microseconds since 1970; 0: never."""
    is_integer: bool = False
    """Whether its id was given as an integer."""
    track: dict[str, Any] | None = None
    """Rule of its transitions: see `tracks`; `None`: it gets matches."""

    @property
    def id(self) -> str | int:
        """Id as it was given: text or integer."""
        return int(self.name) if self.is_integer else self.name


class DeleteSubscription(Edit, tag="unsubscribe", frozen=True):
    """Delete a subscription."""

    space: str


SECRETS = ("secret", "old_secret")
"""Delivery options that are never shown."""


class PutConsumer(Edit, tag="put-consumer", frozen=True):
    """Create a consumer, or change its options; a position sets its cursor."""

    space: str
    delivery: dict[str, Any] = {}
    """Options of the push delivery: see `webhook`, `connectors`."""
    on_gap: str = "report"
    start: int = -1
    """The seq after which it reads; -1: after this edit, or from where it is."""
    current_subscriptions: bool = False
    """Whether events before this edit are matched with the current subscriptions instead of the
    historical ones.
    """
    max_per_event: int = 0
    """Subscriptions per message at most, highest scores first; 0: all."""
    board: str = ""
    """Board whose messages it gets, instead of a space's matches."""
    max_per_second: int = 0
    """Messages per second at most, highest scores first; 0: all."""
    policy: dict[str, Any] | None = None
    """Delivery policy of its transitions, over all of its subscriptions: see `tracks`."""
    only_new: bool = False
    """Reject the edit if the consumer exists: it is created with its first subscription."""

    def __repr__(self) -> str:
        """Hide the secrets: the text may end up in error messages."""
        delivery = hidden(self.delivery)
        return f"PutConsumer({self.tenant!r}, {self.name!r}, {self.space!r}, {delivery!r})"


def hidden(delivery: dict[str, Any]) -> dict[str, Any]:
    """Return delivery options without their secrets."""
    return {name: "..." if name in SECRETS else value for name, value in delivery.items()}


class DeleteConsumer(Edit, tag="delete-consumer", frozen=True):
    """Delete a consumer and its subscriptions."""


class StopConsumer(Edit, tag="stop-consumer", frozen=True):
    """Stop the push delivery of a consumer until the consumer is put again."""

    reason: str
    since: int = 0
    """`Consumer.since` of that delivery: one that was put again goes on. 0: not known."""


class AddDeadLetters(Edit, tag="add-dead-letters", frozen=True):
    """Record messages as dead letters: all attempts failed, and the consumer continues."""

    seqs: list[int]
    reason: str
    at: int
    moved: int = 0
    """`Consumer.moved` when they were read: one that was moved reads them again. 0: not known."""


class DropDeadLetters(Edit, tag="drop-dead-letters", frozen=True):
    """Remove dead letters: redelivered, or discarded."""

    seqs: list[int]


class PutBoard(Edit, tag="put-board", frozen=True):
    """Create a board."""

    k: int
    definition: dict[str, Any] | None = None
    """Definition of the space of its objects at that time; `None`: positions are numbers."""
    upper_bound_attribute: str = ""
    descending: bool = False


class DeleteBoard(Edit, tag="delete-board", frozen=True):
    """Delete a board with its objects and interests."""


class PutInterest(Edit, tag="put-interest", frozen=True):
    """Create an interest of a board, or replace the one with this id."""

    board: str
    consumer: str = ""
    filter: str = ""
    position_lo: float | None = None
    position_hi: float | None = None
    k: int = 0
    is_integer: bool = False
    """Whether its id was given as an integer."""

    @property
    def id(self) -> str | int:
        """Id as it was given: text or integer."""
        return int(self.name) if self.is_integer else self.name


class DeleteInterest(Edit, tag="delete-interest", frozen=True):
    """Delete an interest of a board."""

    board: str


class PutToken(Edit, tag="put-token", frozen=True):
    """Create a token; its name is the digest of the secret."""

    label: str
    scopes: list[str]
    expires: int = 0


class DeleteToken(Edit, tag="delete-token", frozen=True):
    """Delete a token."""


class PutBroker(Edit, tag="put-broker", frozen=True):
    """Set the broker name under which the server links to its neighbours."""

    space: str
    incarnation: int
    """Higher at every start."""


class BeginEpoch(Edit, tag="begin-epoch", frozen=True):
    """Begin a new epoch with this name, at a start of the server that writes; see `lineage`."""

    before: str
    """The epoch that ends."""
    number: int
    """Number of this seq for other servers; later ones count from there."""
    chain: str
    """The checksum of the unit before, as hexadecimal digits."""


class AdvanceTracks(Edit, tag="advance-tracks", frozen=True):
    """Advance the tracks of a space to a time, by the server's clock."""

    moment: int
    """In microseconds since 1970."""


class PutTenant(Edit, tag="put-tenant", frozen=True):
    """Set the limits of a tenant."""

    limits: dict[str, int] = {}


AnyEdit = (
    PutSpace
    | PutSubscription
    | DeleteSubscription
    | PutConsumer
    | DeleteConsumer
    | StopConsumer
    | AddDeadLetters
    | DropDeadLetters
    | PutBoard
    | DeleteBoard
    | PutInterest
    | DeleteInterest
    | PutToken
    | DeleteToken
    | PutTenant
    | PutBroker
    | BeginEpoch
    | AdvanceTracks
)

CHARGED_EDITS = (PutSubscription, PutInterest, PutConsumer, PutSpace, PutBoard)
"""Edits that count against a tenant's limits: the others need one of these before, or are the
server's own.
"""
_OVERHEAD = 256
"""Bytes of an edit, about, beside its texts of any length."""
_encoder = msgspec.json.Encoder()
_edits = msgspec.json.Decoder(list[AnyEdit])
_head = msgspec.json.Decoder(EventsHead)
_acks = msgspec.json.Decoder(dict[str, int])


def events_draft(head: EventsHead, lines: list[bytes], at: int) -> Draft:
    """Return events as a unit."""
    return Draft(EVENTS, len(lines), at, b"\n".join([_encoder.encode(head), *lines]))


def events_of(unit: Unit) -> tuple[EventsHead, list[bytes]]:
    """Return the events of a unit."""
    head, *lines = unit.body.split(b"\n")
    return _head.decode(head), lines


def head_of(unit: Unit) -> EventsHead:
    """Return the common header of all events of a unit."""
    return _head.decode(unit.body[: unit.body.find(b"\n")])


def is_after_loss(unit: Unit) -> bool:
    """Return whether events of a link were lost before those of this unit."""
    return unit.kind == EVENTS and unit.body.find(b'"lost":true', 0, unit.body.find(b"\n")) > 0


def edits_draft(edits: Sequence[AnyEdit], at: int) -> Draft:
    """Return edits as a unit."""
    return Draft(EDITS, len(edits), at, _encoder.encode(edits))


def edits_of(unit: Unit) -> Sequence[AnyEdit]:
    """Return the edits of a unit; reject those of a newer version of rangecast."""
    try:
        return as_run(_edits.decode(unit.body))
    except msgspec.ValidationError as error:
        raise LogError(
            f"the log has an edit at seq {unit.first} that this version of rangecast doesn't "
            f"know: {error}\n"
            "  hint: use the version that wrote it, or a newer one"
        ) from None


def size_of(edits: Sequence[AnyEdit]) -> int:
    """Return the approximate size of edits in bytes."""
    size = _OVERHEAD * len(edits)
    if isinstance(edits, PutRun):
        return size + sum([len(edit.filter) + len(edit.name) for edit in edits])
    for edit in edits:
        if isinstance(edit, PutSubscription | PutInterest):
            size += len(edit.filter) + len(edit.name)
        elif isinstance(edit, PutSpace | PutBoard | PutConsumer):
            size += len(_encoder.encode(edit))
    return size


class PutRun(list[PutSubscription]):
    """Puts of subscriptions of one space with distinct ids, which are processed together."""


def as_run(edits: Sequence[AnyEdit]) -> Sequence[AnyEdit]:
    """Return edits as a `PutRun` if they qualify, else unchanged."""
    puts = [edit for edit in edits if isinstance(edit, PutSubscription)]
    if not puts or len(puts) < len(edits):
        return edits
    if len(puts) > 1 and (
        len({put.name for put in puts}) < len(puts)
        or len({put.space for put in puts}) > 1
        or len({put.tenant for put in puts}) > 1
    ):
        return edits
    return PutRun(puts)


def acks_draft(acks: dict[str, int], at: int) -> Draft:
    """Return the acknowledged positions of consumers as a unit."""
    return Draft(ACKS, 1, at, _encoder.encode(acks))


def acks_of(unit: Unit) -> dict[str, int]:
    """Return the acknowledged positions of consumers."""
    return _acks.decode(unit.body)
