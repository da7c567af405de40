"""Requests in the commit pipeline, and their results."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import NamedTuple

from rangecast.model.sets.members import Id
from rangecast.server.encoding import EncodedEvents
from rangecast.server.log.base import Draft, Log
from rangecast.server.state.admission import Admission, Conditions
from rangecast.server.state.boards import BoardEntry, ObjectChange, UpdatesHead, updates_draft
from rangecast.server.state.edits import AnyEdit, EventsHead, size_of
from rangecast.server.state.entries import Read, SpaceEntry
from rangecast.server.state.tracks.spaces import SpaceTracks
from rangecast.server.state.tracks.transitions import (
    MAX_UNIT,
    Derived,
    TransitionsHead,
    event_lines,
    transitions_draft,
)


@dataclass(slots=True, eq=False)
class Outcome:
    """Outcome of edits, part of their answer."""

    inserted: int = 0
    """Number of new subscriptions or interests among those put."""


@dataclass(slots=True, eq=False)
class Edits:
    """Request to apply edits, all or none."""

    edits: Sequence[AnyEdit]
    read: Read = None
    """Their filters, if they are a run."""
    if_match: Conditions = None
    outcome: Outcome | None = None
    board: BoardEntry | None = None
    """The board that their interests were checked with."""
    answer: Future[int] = field(default_factory=Future)
    """The seq of the first edit, once they have taken effect."""
    size: int = field(init=False)
    """Approximate size in bytes."""

    def __post_init__(self) -> None:
        self.size = size_of(self.edits)

    @property
    def tenant(self) -> str:
        """Tenant of the request."""
        return self.edits[0].tenant


@dataclass(slots=True, eq=False)
class PublishedEvents:
    """Result of publishing events."""

    first: int
    count: int
    rejected: list[tuple[int, str]]
    repeated: bool = False
    """Whether the request is a repetition; the seqs are those of the first."""
    skipped: int = 0
    """Events whose id is a duplicate."""
    codes: dict[int, str] = field(default_factory=dict)
    """Error codes by row, where known: see `errors`."""
    matches: list[list[Id]] | None = None
    """Ids of the subscriptions that match each event, if requested."""


@dataclass(slots=True, eq=False)
class Events:
    """Request to publish events."""

    entry: SpaceEntry
    encoded: EncodedEvents
    head: EventsHead
    wants_matches: bool = False
    follows: int | None = None
    """Required read position of the source before this unit, if it is checked."""
    answer: Future[PublishedEvents] = field(default_factory=Future)
    accepted: PublishedEvents | None = None

    @property
    def tenant(self) -> str:
        """Tenant of the request."""
        return self.head.tenant

    @property
    def size(self) -> int:
        """Approximate size in bytes."""
        return sum(map(len, self.encoded.lines)) + 256


@dataclass(slots=True, eq=False)
class Updates:
    """Request to change objects of a board."""

    entry: BoardEntry
    changes: list[tuple[int, ObjectChange]]
    """Each with its row."""
    rejected: list[tuple[int, str]]
    """Changes that can't be decoded."""
    is_batch: bool = False
    all_or_none: bool = False
    only: str = ""
    """`new` or `existing`: all objects must be."""
    bytes: int = 0
    """Bytes of the original texts."""
    answer: Future[PublishedEvents] = field(default_factory=Future)
    accepted: PublishedEvents | None = None

    @property
    def tenant(self) -> str:
        """Tenant of the request."""
        return self.entry.tenant

    @property
    def size(self) -> int:
        """Approximate size in bytes."""
        return 256 * len(self.changes) + 256 + self.bytes

    def admitted(self, admission: Admission, now: int) -> Draft | ResolvedRequest:
        """Return the unit to write, and note what was accepted."""
        entry, first, rejected = self.entry, admission.seq, self.rejected
        taken: list[ObjectChange] = []
        codes: dict[int, str] = {}
        if not (rejected and self.all_or_none):
            changes = self.changes
            taken, more = admission.updates(
                entry, changes, all_or_none=self.all_or_none, only=self.only
            )
            rejected = sorted(rejected + [(row, str(error)) for row, error in more])
            codes = {row: error.code for row, error in more}
        self.accepted = PublishedEvents(first, len(taken), rejected, codes=codes)
        if not taken:
            return ResolvedRequest(self.accepted, True)
        return updates_draft(UpdatesHead(entry.tenant, entry.name, self.is_batch), taken, now)


@dataclass(slots=True, eq=False)
class NewTransitions:
    """Internal request to write derived transitions."""

    tracks: SpaceTracks
    derived: Sequence[Derived]
    lines: dict[int, bytes]
    """Their events, by seq."""
    answer: Future[PublishedEvents] = field(default_factory=Future)

    @property
    def tenant(self) -> str:
        """Tenant of the request."""
        return self.tracks.entry.tenant

    def draft(self, at: int) -> Draft:
        """Return the transitions as a unit."""
        entry = self.tracks.entry
        head = TransitionsHead(entry.tenant, entry.name)
        return transitions_draft(head, self.derived, self.lines, at)

    @property
    def size(self) -> int:
        """Approximate size in bytes."""
        return 256 * len(self.derived) + sum(map(len, self.lines.values()))


Request = Edits | Events | Updates | NewTransitions


class ResolvedRequest(NamedTuple):
    """Result of a request that needs no write."""

    answer: PublishedEvents
    is_pending: bool
    """Whether it becomes valid only when its commit group is written."""


def transition_requests(
    log: Log, tracks: SpaceTracks, derived: Sequence[Derived], lines: dict[int, bytes]
) -> list[NewTransitions]:
    """Return requests to write transitions; events not in `lines` are read from the log."""
    missing = {transition.seq for transition in derived if transition.seq} - lines.keys()
    lines = {**lines, **event_lines(log, missing)}
    requests = []
    for begin in range(0, len(derived), MAX_UNIT):
        piece = derived[begin : begin + MAX_UNIT]
        own = {
            transition.seq: lines[transition.seq] for transition in piece if transition.seq in lines
        }
        requests.append(NewTransitions(tracks, piece, own))
    return requests


def resolve(request: Request, answer: PublishedEvents | BaseException) -> None:
    """Answer a request that is rejected or writes nothing, unless it is already answered."""
    if request.answer.done():
        return
    if isinstance(answer, BaseException):
        request.answer.set_exception(answer)
    else:
        assert not isinstance(request, Edits)
        request.answer.set_result(answer)
