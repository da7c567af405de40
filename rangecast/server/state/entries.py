"""Entries of the registry: spaces, subscriptions, consumers and tokens, and changes of indexes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec

from rangecast.model.filters.filter import Filter
from rangecast.model.filters.tentative import TentativeBoxes
from rangecast.model.space import Space
from rangecast.server.state.boards import BoardEntry, Interest, InterestChange
from rangecast.server.state.edits import PutConsumer
from rangecast.server.state.versions.live import CurrentVersions, LiveVersions
from rangecast.server.state.versions.owned import OwnedVersions
from rangecast.server.state.versions.version import Gone, Version

NO_WEIGHTS: dict[str, float] = {}
"""Weights of a subscription without any: one object for all of them, never changed."""


@dataclass(slots=True, eq=False)
class SpaceEntry:
    """A space and its subscriptions."""

    tenant: str
    name: str
    number: int
    space: Space
    since: int
    live: LiveVersions = field(default_factory=LiveVersions)
    next_number: int = 0
    track: dict[str, Any] | None = None
    """Options by which its objects are tracked: see `tracks`."""
    expiring: dict[str, int] = field(default_factory=dict)
    """Expiry times, by id."""

    @property
    def label(self) -> str:
        """Label, distinct from that of a board with the same name."""
        return self.name


class DeadLetter(msgspec.Struct, array_like=True):
    """A message that couldn't be delivered."""

    seq: int
    reason: str
    at: int
    """Time when it became a dead letter, in microseconds since 1970."""


@dataclass(slots=True, eq=False)
class Consumer:
    """A receiver of messages: a cursor in the log, and subscriptions or interests."""

    tenant: str
    name: str
    number: int
    source: SpaceEntry | BoardEntry
    """Space or board of its messages."""
    since: int
    cursor: int
    """All up to this seq has been acknowledged."""
    delivery: dict[str, Any] = field(default_factory=dict, repr=False)
    on_gap: str = "report"
    max_per_event: int = 0
    """Subscriptions per message at most, highest scores first; 0: all."""
    now_from: int = 0
    """Events before this seq are matched with the subscriptions that lived at it."""
    versions: OwnedVersions = field(init=False)
    """All that it has had, as far as the log still has events for them; by birth."""
    stopped: str = ""
    """Why its push delivery has stopped."""
    dead_letters: dict[int, DeadLetter] = field(default_factory=dict)
    """Messages that could not be delivered, by seq."""
    moved: int = 0
    """The seq of the edit that made it, or moved its cursor elsewhere."""
    interests: list[Interest] = field(default_factory=list)
    """All that it has had on its board, as `versions`."""
    max_per_second: int = 0
    """Messages per second at most, highest scores first; 0: all."""
    policy: dict[str, Any] | None = None
    """Delivery policy of its transitions, over all of its subscriptions."""

    def __post_init__(self) -> None:
        live = self.source.live if isinstance(self.source, SpaceEntry) else LiveVersions()
        self.versions = OwnedVersions(live)

    @property
    def is_session(self) -> bool:
        """Whether the consumer ends with its connection, like the live tail of a page."""
        return self.delivery.get("kind") == "session"

    def as_put(self) -> PutConsumer:
        """Return the edit that recreates the consumer."""
        board = self.source.name if isinstance(self.source, BoardEntry) else ""
        return PutConsumer(
            self.tenant,
            self.name,
            "" if board else self.source.name,
            self.delivery,
            self.on_gap,
            max_per_event=self.max_per_event,
            board=board,
            max_per_second=self.max_per_second,
            policy=self.policy,
        )

    @property
    def key(self) -> str:
        """Key of the consumer in the log's acknowledgements."""
        return f"{self.tenant}/{self.name}"


class Epoch(NamedTuple):
    """A part of the log written by one start of a server; see `lineage`."""

    name: str
    first: int
    """Its first seq."""
    number: int
    """The number of that seq for other servers."""
    chain: str
    """The checksum of the unit before it."""


@dataclass(frozen=True, slots=True)
class Token:
    """A token of a tenant, with its scopes and expiry."""

    tenant: str
    digest: str
    label: str
    scopes: tuple[str, ...]
    expires: int
    since: int


Read = Filter | TentativeBoxes | None
"""Parsed filters: of one subscription, or of several."""


class ConsumerPolicy(NamedTuple):
    """Delivery policy of a consumer as an edit leaves it."""

    number: int
    name: str
    policy: dict[str, Any] | None
    is_deleted: bool = False
    """The consumer itself was deleted."""


@dataclass(slots=True)
class Change:
    """Effect of an edit on the index or the tracks of a space."""

    entry: SpaceEntry
    put: Sequence[Version] = ()
    """New, or replacing an earlier one with the same number."""
    gone: Gone | None = None
    read: Read = None
    space: Space | None = None
    """The new definition of the space: its index is rebuilt."""
    live: CurrentVersions | None = None
    """Subscriptions that the index then has; `None`: those that the entry has by now."""
    track: dict[str, Any] | None = None
    """Options by which its objects are tracked from now on."""
    moment: int | None = None
    """Time has passed up to here, in its tracks."""
    policy: ConsumerPolicy | None = None
    """One of its consumers has another delivery policy."""


AnyChange = Change | InterestChange
