"""A structure whose rows are found by their boxes or by the terms of their texts.

Each row is filed in the way with fewer expected candidates. Like the structures over boxes
alone it finds candidates, whose words are verified by the caller, unless it `is_exact`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

from rangecast.kernels.arrays import F64, I32, I64, Bool, readonly
from rangecast.kernels.bundle import Bundle
from rangecast.kernels.jit import jit
from rangecast.match.result import MatchRows, Work
from rangecast.match.shared.candidates import Sample
from rangecast.match.single_event import SingleEvent, single_event
from rangecast.match.terms.anchors import Seen, box_shares, choose_anchors
from rangecast.match.terms.postings import Boxed, make_postings
from rangecast.match.terms.requirements import requirements_of
from rangecast.match.terms.search import match_single, search
from rangecast.model.boxes import Boxes
from rangecast.model.shapes.verification.places import Places, places_of, without_places
from rangecast.model.space import Space

_FEW = 16
"""Rows that aren't worth postings of their own."""
_LEARNED, _OFTEN = 64, 4096
"""Events of a batch whose terms are counted; single events, until this many were seen."""
_AGAIN = 4
"""Anchors are chosen again when this many times the events were seen."""
_PIECE = 1024
_KNOWN = 32
"""Events from which on these, and not the ends of boxes, say how many a box contains."""
_CODES = 1 << 40
"""A word of a box: the number of its text times this, and its code."""


class Placed(Protocol):
    """A structure over boxes."""

    name: str

    def match(self, points: F64) -> MatchRows:
        """Return the rows whose boxes contain each event."""

    def stream(self, points: F64) -> Iterator[tuple[int, MatchRows]]:
        """Yield (first event, rows) in pieces."""

    def match_one(self, point: F64) -> I32:
        """Return the rows whose boxes contain one event."""

    @property
    def memory(self) -> int:
        """Bytes of its arrays."""


@jit
def _join(
    offsets: I64, rows: I32, numbers: I32, more_offsets: I64, more: I32, ends: I64, out: I32
) -> None:
    """Write the rows of each event, which have other numbers here, and then more rows."""
    filled = 0
    ends[0] = 0
    for event in range(len(ends) - 1):
        for i in range(offsets[event], offsets[event + 1]):
            out[filled] = numbers[rows[i]]
            filled += 1
        for i in range(more_offsets[event], more_offsets[event + 1]):
            out[filled] = more[i]
            filled += 1
        ends[event + 1] = filled


class Selected:
    """Rows by their boxes, and others by the terms of their texts."""

    def __init__(self, placed: Placed | None, rows: I32, terms: Terms):
        """`rows` are those of the structure over boxes; `None`: there are none."""
        self.name = terms.name if placed is None else placed.name
        self.placed = placed
        self.rows = rows
        self.terms = terms

    @property
    def is_exact(self) -> bool:
        """Return whether all candidates are matches."""
        return self.placed is None and self.terms.is_exact

    @property
    def memory(self) -> int:
        """Bytes of both."""
        placed = 0 if self.placed is None else self.placed.memory
        return placed + self.rows.nbytes + self.terms.memory

    def match(self, points: F64) -> MatchRows:
        """Return the candidates of all events; points have texts as kernels read them."""
        more = self.terms.match(points)
        if self.placed is None:
            return more
        from_index = self.placed.match(points)
        offsets = np.empty_like(more.offsets)
        rows = np.empty(len(more.rows) + len(from_index.rows), np.int32)
        _join(
            from_index.offsets, from_index.rows, self.rows, more.offsets, more.rows, offsets, rows
        )
        return MatchRows(offsets, rows, more.work.plus(from_index.work))

    def stream(self, points: F64) -> Iterator[tuple[int, MatchRows]]:
        """Yield (first event, candidates) in pieces."""
        for first in range(0, len(points), _PIECE):
            yield first, self.match(points[first : first + _PIECE])

    def match_one(self, point: F64) -> I32:
        """Return the candidates of one event."""
        more = self.terms.match(point[None]).rows
        if self.placed is None:
            return more
        return np.concatenate([self.rows[self.placed.match_one(point)], more])


@dataclass(slots=True)
class TermCounts:
    """Work so far."""

    events: int = 0
    verified: int = 0
    """Words verified, of all events."""


class Terms:
    """Rows that are found by the terms of their texts."""

    name = "terms"

    def __init__(self, space: Space, boxed: Boxed):
        """Make it; the words of boxes are numbers of texts times `_CODES`, and codes."""
        self.counts = TermCounts()
        self._space, self._boxed = space, boxed
        places = places_of(space)
        assert places is not None
        self._seen = seen_in(places)
        keys, own = np.unique(boxed.words, return_inverse=True)
        self._words = _programs(places, keys)
        self._own = own.astype(np.int64)
        self._programs = places.tables().programs
        self._needed = requirements_of(self._programs.table, self._words)
        self._choosing = threading.Lock()
        self._choose()

    def __reduce__(self) -> tuple[type[Terms], tuple[Space, Boxed]]:
        """Return the pickled state: each process numbers programs itself."""
        return Terms, (self._space, self._boxed)

    def __str__(self) -> str:
        """Return it in words."""
        events, verified = self.counts.events, self.counts.verified
        terms = np.count_nonzero(self._postings.arrays.slots[:, 1])
        return (
            f"{self.rows:,} subscriptions are selected by {terms:,} terms of their texts: "
            f"{verified / max(events, 1):,.3g} conditions verified per event, of {events:,}"
        )

    def _choose(self) -> None:
        """Choose anchors by the events seen so far."""
        self._due = max(_LEARNED, _AGAIN * self._seen.total)
        parts = self._needed, self._programs, self._words, self._boxed, self._own
        self._postings = make_postings(*parts, self._seen)

    @property
    def is_exact(self) -> bool:
        """Return whether all rows found are matches: no box has a second verified condition."""
        return self._boxed.is_exact

    @property
    def is_settled(self) -> bool:
        """Return whether single events are no longer counted."""
        return self._seen.total >= _OFTEN

    def single_event(self, *beside: Bundle[Any]) -> SingleEvent:
        """Return the single-event kernel, bound to the tables of the rows beside the index."""
        return single_event(match_single, *beside, self._postings, self._programs)

    def without(self, rows: I64) -> Terms:
        """Return the same structure without some rows; all else is shared."""
        other = object.__new__(Terms)  # a copy, as pickles are made, would choose terms again
        other.__dict__.update(self.__dict__)
        other._choosing = threading.Lock()
        other._boxed = self._boxed.without(rows)
        other._postings = self._postings.replaced(state=other._boxed.state)
        return other

    @property
    def rows(self) -> int:
        """Number of rows that are found by terms."""
        return len(np.unique(self._boxed.row))

    @property
    def memory(self) -> int:
        """Bytes of postings, and of the terms that they are chosen from."""
        return self._postings.memory + sum(array.nbytes for array in self._needed)

    def match(self, points: F64) -> MatchRows:
        """Return the rows whose words hold and whose boxes contain each event.

        Work: words verified, and boxes compared.
        """
        seen, postings = self._seen, self._postings
        is_learned = len(points) > 1 or seen.total < _OFTEN
        learned = min(_LEARNED, len(points)) if is_learned else 0
        offsets = np.empty(len(points) + 1, np.int64)
        arguments = postings.table, self._programs.table, readonly(points)
        rows, verified, compared = search(*arguments, seen.counts, learned, offsets)
        self.counts.events += len(points)
        self.counts.verified += verified
        if learned:
            seen.add(points[:learned])
            if seen.total >= self._due and self._choosing.acquire(blocking=False):
                try:
                    self._choose()
                finally:
                    self._choosing.release()
        return MatchRows(offsets, rows, Work(verified, compared))


def seen_in(places: Places) -> Seen:
    """Return what was seen of the events of a space."""
    if places.seen is None:
        places.seen = Seen(len(places.tables().place_of_axis))
    seen: Seen = places.seen
    return seen


def _programs(places: Places, keys: I64) -> I64:
    """Return the programs of words."""
    return readonly(places.tables().word_of[keys // _CODES, keys % _CODES])


class _Chosen(NamedTuple):
    """The word of each box that selects it best."""

    words: I64
    """Number of the text times `_CODES`, and code; -1: none selects it."""
    shares: F64
    """Of events that it is looked at for."""


def _best_words(boxes: Boxes, places: Places) -> _Chosen:
    assert boxes.space is not None
    words, shares = np.full(len(boxes.lo), -1, np.int64), np.full(len(boxes.lo), np.inf)
    tables, seen = places.tables(), seen_in(places)
    for axis in boxes.space.patterns.values():
        mentioned = np.flatnonzero(boxes.lo[:, axis] > -np.inf)
        place = int(tables.place_of_axis[axis])
        codes, at = np.unique(boxes.lo[mentioned, axis].astype(np.int64), return_inverse=True)
        needed = requirements_of(tables.programs.table, _programs(places, place * _CODES + codes))
        _, _, costs = choose_anchors(needed, seen)
        better = costs[at] < shares[mentioned]
        words[mentioned[better]] = place * _CODES + codes[at[better]]
        shares[mentioned[better]] = costs[at[better]]
    return _Chosen(words, shares)


def select(boxes: Boxes, make: Callable[[Boxes], Any]) -> Any:
    """Return a structure that finds the candidates of boxes; `make` makes one over boxes alone."""
    free = without_places(boxes)
    if free is boxes or boxes.space is None or not boxes.space.patterns:
        return make(free)
    places = places_of(boxes.space)
    assert places is not None
    chosen, seen = _best_words(boxes, places), seen_in(places)
    points = seen.points if seen.total >= _KNOWN else Sample(free).events
    shares = box_shares(free.lo, free.hi, points)
    by_word = np.bincount(boxes.owner, chosen.shares, boxes.rows)
    is_found: Bool = by_word < np.bincount(boxes.owner, shares, boxes.rows)
    if np.count_nonzero(is_found) < _FEW:
        return make(free)
    mine = is_found[boxes.owner]
    is_one = (np.diff(boxes.box_offsets) == 1)[boxes.owner]
    arrays = chosen.words[mine], boxes.owner[mine], is_one[mine], free.lo[mine], free.hi[mine]
    conditions = np.count_nonzero(boxes.lo[mine][:, places.axes] > -np.inf, axis=1)
    boxed = Boxed(*arrays, is_exact=bool((conditions == 1).all()))
    others = np.flatnonzero(~is_found)
    placed = make(free.take(others)) if len(others) else None
    return Selected(placed, others.astype(np.int32), Terms(boxes.space, boxed))


def always_verified(boxes: Boxes) -> I64:
    """Return the rows with a condition on a text that neither a range nor a term selects."""
    if boxes.space is None or not boxes.space.patterns:
        return np.empty(0, np.int64)
    places = places_of(boxes.space)
    assert places is not None
    words = list(boxes.space.patterns.values())
    free = without_places(boxes)
    domains = np.array([attribute.domain for attribute in boxes.space])
    is_bounded = (free.lo > domains[:, 0]) | (free.hi < domains[:, 1])
    is_bounded[:, words] = False
    unbounded = (boxes.lo[:, words] > -np.inf).any(axis=1) & ~is_bounded.any(axis=1)
    unbounded &= np.isinf(_best_words(boxes, places).shares)
    return np.unique(boxes.owner[unbounded]).astype(np.int64)
