"""What somebody wants of the server, on its way through the pump, and what becomes of it."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from rangecast.server.boards import BoardEntry, ObjectChange
from rangecast.server.encoding import Encoded
from rangecast.server.records import AnyEdit, EventsHead
from rangecast.server.registry import Read, SpaceEntry


@dataclass(slots=True, eq=False)
class Edits:
    """Edits that somebody wants to be made, all of them or none."""

    edits: Sequence[AnyEdit]
    read: Read = None
    """Their filters, if they are a run."""
    if_match: str | None = None
    answer: Future[int] = field(default_factory=Future)
    """The seq of the first edit, once they have taken effect."""

    @property
    def size(self) -> int:
        """Roughly its bytes."""
        return 256 * len(self.edits)


@dataclass(slots=True, eq=False)
class Accepted:
    """What became of events."""

    first: int
    count: int
    refused: list[tuple[int, str]]
    repeated: bool = False
    """The same request had come before; these are its seqs."""
    skipped: int = 0
    """Events whose id had come before."""
    matches: list[list[str]] | None = None
    """The ids of the subscriptions that match each event, if that was asked for."""


@dataclass(slots=True, eq=False)
class Events:
    """Events that somebody publishes."""

    entry: SpaceEntry
    encoded: Encoded
    head: EventsHead
    wants_matches: bool = False
    follows: int | None = None
    """Up to where its source must have been read before, if that is to be checked."""
    answer: Future[Accepted] = field(default_factory=Future)
    accepted: Accepted | None = None

    @property
    def size(self) -> int:
        """Roughly its bytes."""
        return sum(map(len, self.encoded.lines)) + 256


@dataclass(slots=True, eq=False)
class Updates:
    """Changes of a board's objects that somebody wants to be made."""

    entry: BoardEntry
    changes: list[tuple[int, ObjectChange]]
    """Each with its row."""
    refused: list[tuple[int, str]]
    """Those that can't be read."""
    is_batch: bool = False
    all_or_none: bool = False
    answer: Future[Accepted] = field(default_factory=Future)
    accepted: Accepted | None = None

    @property
    def size(self) -> int:
        """Roughly its bytes."""
        return 256 * len(self.changes) + 256


Request = Edits | Events | Updates


def fail(request: Request, error: BaseException) -> None:
    """Answer a request by an error, if it hasn't been answered."""
    if not request.answer.done():
        request.answer.set_exception(error)
