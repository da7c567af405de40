"""Immutable view of a live set at one edit, with all that queries need.

The newest rows are not indexed and are compared one by one. The index types for match and rank are
type parameters here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Generic, Self, TypeVar

import numpy as np

from rangecast.kernels.arrays import I32, I64
from rangecast.model.sets.id_lists import IdLists
from rangecast.model.sets.rowstore import RowArrays
from rangecast.model.shapes.verification.candidates import Verifier

MatchIndex = TypeVar("MatchIndex")
RankPart = TypeVar("RankPart")


@dataclass(frozen=True, slots=True)
class IndexPart(Generic[MatchIndex, RankPart]):
    """Static index over the rows `start` to `end` (exclusive) that were live when it was built."""

    index: MatchIndex
    renumbered: I32 | None
    """The set's row of each own row; `None`: the numbers are equal."""
    start: int
    end: int
    rankings: dict[str | None, RankPart] = field(default_factory=dict)
    """Structures that rank its rows, by how they combine weights; `None`: by score. Readers build
    them on first use, without a lock; so take a copy before you iterate over them."""
    masked: list[tuple[int, MatchIndex]] = field(default_factory=list)
    """At most one: the structure without the rows that were the first to die, and how many deaths
    of the set these are. The next view takes it from there."""
    counters: list[Any] = field(default_factory=list)
    """At most one: what counts matches of its rows, once an answer needed it."""

    @classmethod
    def of(
        cls,
        index: MatchIndex,
        set_rows: I32,
        start: int,
        end: int,
        rankings: dict[str | None, RankPart] | None = None,
    ) -> Self:
        """Return the part of an index over some of the set's rows from `start` to `end`."""
        is_whole = start == 0 and end == len(set_rows)
        return cls(index, None if is_whole else set_rows, start, end, rankings or {})

    @property
    def is_whole(self) -> bool:
        """Return whether its row numbers equal the set's, so that none need renumbering."""
        return self.renumbered is None

    @property
    def count(self) -> int:
        """Return the number of its rows."""
        return self.end if self.renumbered is None else len(self.renumbered)

    @property
    def set_rows(self) -> I32:
        """Return the set's row of each of its own rows."""
        if self.renumbered is None:
            return np.arange(self.end, dtype=np.int32)
        return self.renumbered

    def own_rows(self, rows: I32) -> I64:
        """Convert rows of the set to rows of the index, dropping those that it lacks."""
        if self.is_whole:
            return rows[rows < self.end].astype(np.int64)
        own: I64 = np.searchsorted(self.set_rows, rows)
        return own[own < np.searchsorted(self.set_rows, rows, side="right")]


@dataclass(frozen=True, slots=True)
class LiveView(Generic[MatchIndex, RankPart]):
    """Visible rows of a live set at one edit, and the indexes over them."""

    rows: RowArrays
    count: int
    """Number of rows, dead ones included."""
    dead: int
    edit: int
    """Number of the last edit: row r lives iff edit < died[r]."""
    arrivals: int
    """Number of subscriptions that ever arrived."""
    ascending: int = 0
    """Rows before this one arrived in their order; one that replaced another is behind it."""
    parts: tuple[IndexPart[MatchIndex, RankPart], ...] = ()
    verifier: Verifier | None = None
    """Of a space with places: their words are verified on what the structures find."""
    lineage: int = 0
    """Number of rebuilds before it: after each, rows have other numbers."""
    recent: list[Any] = field(default_factory=list, init=False)
    """The newest rows as matching compares them, once an answer needed them."""
    living: list[tuple[MatchIndex, ...]] = field(default_factory=list, init=False)
    """The structures of the parts without the rows that are dead, once an answer needed them."""
    single_event: list[Any] = field(default_factory=list, init=False)
    """Calls that answer single events, once one came: the search, and verification of places."""
    id_lists: list[IdLists] = field(default_factory=list, init=False)
    """Lists of the ids of rows, once an answer needed one."""
    ranked: list[Any] = field(default_factory=list, init=False)
    """Arrays for ranking, made when an answer first needs them."""
    is_plain: bool = field(init=False)
    """Whether its one part finds just the rows that live: nothing to sift, nothing to add."""

    def __post_init__(self) -> None:
        parts = self.parts
        alone = len(parts) == 1 and parts[0].is_whole and parts[0].end == self.count
        is_plain = alone and not self.dead and not self.has_words
        object.__setattr__(self, "is_plain", is_plain)

    @property
    def indexed(self) -> int:
        """Number of indexed rows; those from here to `count` are recent."""
        return self.parts[-1].end if self.parts else 0

    @property
    def lists(self) -> IdLists:
        """Return the object that lists the ids of rows by arrival."""
        if not self.id_lists:
            self.id_lists.append(IdLists(self.rows, self.ascending))
        return self.id_lists[0]

    @property
    def has_words(self) -> bool:
        """Return whether rows may have a verified condition; otherwise boxes decide."""
        return self.verifier is not None and self.verifier.has_words

    @property
    def reads_texts(self) -> bool:
        """Return whether conditions of its rows may read the texts of events."""
        return self.verifier is not None and self.verifier.places.has_patterns

    def live(self) -> I64:
        """Return the live rows, in order of arrival."""
        rows = np.flatnonzero(self.rows.died[: self.count] > self.edit)
        if self.ascending == self.count:
            return rows
        return rows[np.argsort(self.rows.arrival[rows], kind="stable")]
