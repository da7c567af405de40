"""Contents of the page about matching, as plain numbers and arrays.

Parts without data are left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rangecast.kernels.arrays import F64, I64


class BusySubscription(NamedTuple):
    """A subscription with many matches."""

    subscription: str
    matches: int
    filter: str


class EventRanking(NamedTuple):
    """An event and its top-ranked subscriptions."""

    event: str
    best: Sequence[tuple[str, float, str]]
    """Subscription, score and filter, best first."""


class Proof(NamedTuple):
    """Result of verifying a run against the local engine."""

    name: str
    events: int
    matches: int
    missing: int
    extra: int
    twice: int
    other: int
    """Differences of any other kind."""
    holds: bool


class MicroBatch(NamedTuple):
    """One batch of a stream."""

    events: int
    matches: int
    seconds: float
    version: int


class Stage(NamedTuple):
    """A stage of the run, and its duration."""

    name: str
    seconds: float
    events: int = 0
    """Number of events processed; 0 if the stage doesn't process events."""


@dataclass(frozen=True)
class Group:
    """Events by value or by period: their number, and how many matched nothing."""

    attribute: str
    labels: Sequence[str] | npt.NDArray[np.datetime64]
    events: I64
    unwanted: I64


@dataclass(frozen=True)
class Region:
    """Histograms of events and matches over two attributes, (y, x); the cell edges ascend."""

    x: str
    y: str
    x_edges: F64
    y_edges: F64
    events: I64
    matches: I64


@dataclass(frozen=True)
class MatchReport:
    """Data of the page."""

    title: str
    lead: str
    per_event: I64
    """Matches of each event."""
    per_subscription: I64
    """Matches of each subscription."""
    busiest: Sequence[BusySubscription] = ()
    idle: Sequence[tuple[str, str]] = ()
    """Some subscriptions without a match: the id and the filter."""
    best: Sequence[EventRanking] = ()
    """Some events with their best subscriptions."""
    over_time: Group | None = None
    by_value: Group | None = None
    region: Region | None = None
    stages: Sequence[Stage] = ()
    stream: Sequence[MicroBatch] = ()
    changes: str = ""
    """Edits of the subscriptions while the stream ran."""
    proofs: Sequence[Proof] = ()
    facts: dict[str, str] = field(default_factory=dict)
    foot: str = ""

    @property
    def events(self) -> int:
        """Number of events."""
        return len(self.per_event)

    @property
    def unwanted(self) -> int:
        """Number of events that matched nothing."""
        return int((self.per_event == 0).sum())
