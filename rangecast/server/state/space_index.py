"""Index of a space's subscriptions for matching: an `Engine` keyed by their numbers."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from itertools import groupby
from typing import NamedTuple, Self

import numpy as np

from rangecast.device_copy import DeviceCopies
from rangecast.engine import Engine
from rangecast.errors import FilterError
from rangecast.kernels.arrays import F64, I32, I64
from rangecast.model.boxes import Boxes
from rangecast.model.filters.compile import ANY_BOXES
from rangecast.model.filters.filter import Filter, boxes_of
from rangecast.model.filters.many import boxes_of_texts
from rangecast.model.filters.tentative import TentativeBoxes, TentativeSpace
from rangecast.model.space import Space
from rangecast.results import Matches
from rangecast.server.state.entries import Change, SpaceEntry
from rangecast.server.state.versions.ids import IdTexts
from rangecast.server.state.versions.owned import OwnedVersions
from rangecast.server.state.versions.version import NO_CONSUMER, Version

Bounds = tuple[F64, F64, I64]
"""Bounds of all boxes of subscriptions, (boxes, d), and the number of boxes of each."""
MAX_PAIRS = 1 << 22
"""Maximum matches returned as arrays at a time, except those of one event."""
_AT_ONCE, _FEWER = 1 << 28, 8
"""Matches that are in memory at a time if every subscription matches every event: fewer events are
matched together then, and still fewer while they have many matches."""
_MIN_EVENTS, _DENSE_EVENTS = 512, 16


class BatchMatches(NamedTuple):
    """All matches of a batch, as pairs of an event's row and a subscription's number."""

    events: I64
    numbers: I64

    @classmethod
    def of(cls, matches: Matches) -> Self:
        """Return the matches of an engine whose ids are numbers."""
        return cls(matches.matches.events, matches.ids.astype(np.int64, copy=False))


class SpaceIndex:
    """The live subscriptions of one space, and their consumers.

    It is empty at first; `note` and `engine` are for those of a snapshot.
    """

    def __init__(self, entry: SpaceEntry):
        self.entry = entry
        self.engine = Engine(entry.space)
        self.owners: I32 = np.full(1024, -1, np.int32)
        """The consumer that gets the matches of each subscription, by number."""
        self._scores: F64 = np.zeros(0)
        """By number; none while all of them are 0."""
        self.ids = IdTexts()
        """By number."""

    @property
    def memory(self) -> int:
        """Size in bytes of what is known by number, without the engine."""
        return self.owners.nbytes + self._scores.nbytes + self.ids.memory

    @contextmanager
    def reading(self) -> Iterator[SpaceIndex]:
        """Yield the index as another thread than the writing one reads it.

        It has one engine, even if the space changes meanwhile, and the ids of what that matches.
        """
        with self.ids.reading():
            yield copy(self)

    def scores(self, numbers: I64) -> F64:
        """Return the scores of subscriptions."""
        return self._scores[numbers] if len(self._scores) else np.zeros(len(numbers))

    def match(self, points: F64, device: DeviceCopies | None = None) -> BatchMatches:
        """Return the subscriptions that match each point."""
        return BatchMatches.of(_matches(self.engine, points, device))

    def match_in_pieces(
        self, points: F64, device: DeviceCopies | None = None
    ) -> Iterator[tuple[int, BatchMatches]]:
        """Yield the matches of points in pieces, each with its number of points."""
        for _, piece in matched_in_pieces(self.engine, points, device):
            yield len(piece), BatchMatches.of(piece)

    def apply(self, changes: Sequence[Change]) -> None:
        """Apply changes to the index; no event is matched in between."""
        rebuilds = [at for at, change in enumerate(changes) if change.space is not None]
        if rebuilds:
            change, changes = changes[rebuilds[-1]], changes[rebuilds[-1] + 1 :]
            self._rebuild_index(change)
            if change.live is None:
                return  # it has all that follows
        put: list[Version] = []
        last: dict[int, int | None] = {}  # by number: index in `put`; `None`: removed
        for change in changes:
            if change.gone is not None:
                last[change.gone.number] = None
            for version in change.put:
                last[version.number] = len(put)
                put.append(version)
        gone = [number for number, index in last.items() if index is None and number in self.engine]
        if gone:
            self.engine.unsubscribe_many(gone)
            self.ids.remove(gone)
        places = [index for index in last.values() if index is not None]
        if not places:
            return
        self.note(put if len(places) == len(put) else [put[index] for index in places])
        if len(put) == 1:
            self._put_one(put[0], next(change for change in changes if change.put))
        else:
            boxes = version_boxes(self.engine.space, put, self._bounds(changes))
            self.engine.upsert_many(boxes if len(places) == len(put) else boxes.take(places))

    def move(self, gone: Sequence[Version], put: Sequence[Version], bounds: Bounds) -> None:
        """Remove versions, then add others, with their boxes."""
        if gone:
            numbers = [version.number for version in gone]
            self.engine.unsubscribe_many(numbers)
            self.ids.remove(numbers)
        if put:
            self.note(put)
            self.engine.subscribe_many(version_boxes(self.engine.space, put, bounds))

    def _rebuild_index(self, change: Change) -> None:
        """Rebuild the index after the space has changed: filters have new boxes."""
        space, live = self.entry.space, self.entry.live.values()
        if change.space is not None and change.live is not None:
            space, live = change.space, change.live
        before, engine = self.engine, Engine(space)
        versions = sorted(live, key=lambda version: version.number)
        self.note(versions)
        if versions:
            bounds = bounds_of([version.filter for version in versions], space)
            engine.subscribe_many(version_boxes(space, versions, bounds))
        self.engine = engine
        if removed := [int(number) for number in before if number not in engine]:
            self.ids.remove(removed)

    def _put_one(self, version: Version, change: Change) -> None:
        space = self.engine.space
        wanted = _settled(change, space)
        if wanted is None:
            wanted = Filter.parse(version.filter, space, max_boxes=ANY_BOXES)
        self.engine.upsert(version.number, wanted, score=version.score, weights=version.weights)

    def _bounds(self, changes: Sequence[Change]) -> Bounds:
        """Return the boxes of put subscriptions, reusing parsed filters."""
        space, bounds = self.engine.space, []
        for is_many, run in groupby(changes, lambda edit: isinstance(edit.read, TentativeBoxes)):
            if is_many:
                bounds += [self._many(edit) for edit in run]
                continue
            texts: list[str] = []
            known: list[Filter | None] = []
            for change in run:
                texts += [edit.filter for edit in change.put]
                known += [_settled(change, space)] * len(change.put)
            bounds.append(bounds_of(texts, space, known))
        lo, hi, sizes = map(np.concatenate, zip(*bounds, strict=True))
        return lo, hi, sizes

    def _many(self, change: Change) -> Bounds:
        read, space = change.read, self.engine.space
        if isinstance(read, TentativeBoxes) and read.space.is_settled_in(space):
            return read.lo, read.hi, read.sizes
        return bounds_of([edit.filter for edit in change.put], space)

    def note(self, versions: Collection[Version]) -> None:
        """Record the consumers, scores and ids of subscriptions."""
        if not versions:
            return
        numbers = [version.number for version in versions]
        size, least = len(self.owners), max(numbers) + 1
        if least > size:
            more = max(size // 4, least - size)
            self.owners = np.append(self.owners, np.full(more, -1, np.int32))
        # Consumers of tracked ones get transitions, which come from the log, not the matches.
        self.owners[numbers] = [
            version.consumer if version.track is None else NO_CONSUMER for version in versions
        ]
        scores = [version.score for version in versions]
        if len(self._scores) or any(scores):
            more = len(self.owners) - len(self._scores)
            self._scores = np.append(self._scores, np.zeros(more)) if more else self._scores
            self._scores[numbers] = scores
        self.ids.put(numbers, [version.id for version in versions])


def _settled(change: Change, space: Space) -> Filter | None:
    """Return the parsed filter of a change if it is valid in a space; `None`: parse it again."""
    if isinstance(change.read, Filter):
        read_in = change.read.space
        if isinstance(read_in, TentativeSpace) and read_in.is_settled_in(space):
            return Filter(space, change.read.boxes)
    return None


def bounds_of(texts: Sequence[str], space: Space, known: Sequence[Filter | None] = ()) -> Bounds:
    """Return the boxes of accepted filter texts, reusing the filters in `known`.

    Words may have new numbers by now, so one box may have become many; that is accepted.
    """
    if known and None not in known:
        lo, hi, owner = boxes_of(space, [box for box in known if box is not None])
        return lo, hi, np.bincount(owner)

    def parse(index: int, text: str) -> Filter:
        boxes = known[index] if known else None
        return boxes or Filter.parse(text, space, max_boxes=ANY_BOXES)

    def reject(_: int, error: FilterError) -> None:
        raise error

    return boxes_of_texts(texts, space, reject, parse)


def version_boxes(
    space: Space,
    versions: Sequence[Version],
    bounds: Bounds,
    numbers: Sequence[int] | None = None,
) -> Boxes:
    """Return subscriptions as boxes, each under the given number or its own."""
    lo, hi, sizes = bounds
    weights = None
    if any(version.weights for version in versions):
        weights = np.ones((len(versions), len(space)))
        for row, version in enumerate(versions):
            for name, weight in version.weights.items():
                weights[row, space.axis(name)] = weight
    return Boxes.of(
        lo,
        hi,
        owner=np.repeat(np.arange(len(versions)), sizes),
        ids=[version.number for version in versions] if numbers is None else numbers,
        scores=[version.score for version in versions],
        weights=weights,
        space=space,
    )


class History:
    """All versions of a consumer's subscriptions, to match past events with those of their time."""

    def __init__(self, space: Space, owned: OwnedVersions):
        self.engine = Engine(space)
        self._owned = owned
        self._places: I64 = np.zeros(0, np.int64)
        self._ids = IdTexts()
        self._numbers: I64 = np.zeros(0, np.int64)
        self._scores: F64 = np.zeros(0)
        self._born: I64 = np.zeros(0, np.int64)
        self._last = -1

    def add_versions(self) -> None:
        """Add the versions that the consumer has had since."""
        places: list[int] = []
        fresh: list[Version] = []
        for place, version in self._owned.since(self._last):
            self._last = version.born
            if version.track is None:  # others get transitions
                places.append(place)
                fresh.append(version)
        if not fresh:
            return
        space, begin = self.engine.space, len(self._places)
        bounds = bounds_of([edit.filter for edit in fresh], space)
        numbers = range(begin, begin + len(fresh))
        self.engine.subscribe_many(version_boxes(space, fresh, bounds, numbers))
        self._ids.put(numbers, [version.id for version in fresh])
        self._places = np.append(self._places, places)
        self._numbers = np.append(self._numbers, [version.number for version in fresh])
        self._scores = np.append(self._scores, [version.score for version in fresh])
        self._born = np.append(self._born, [version.born for version in fresh])

    def match(
        self, points: F64, seqs: I64, now_from: int = 0, best: int = 0
    ) -> Iterator[tuple[int, bytes, float]]:
        """Yield the index of each event that matched in its time, the ids as JSON, and the highest
        score.

        Events before `now_from` are matched with the subscriptions that were live at that seq.
        """
        if not len(self._places):
            return
        for first, piece in matched_in_pieces(self.engine, points):
            for index, ids, score in self._alive(piece, seqs[first:], now_from, best):
                yield first + index, ids, score

    def _alive(
        self, matches: Matches, seqs: I64, now_from: int, best: int
    ) -> Iterator[tuple[int, bytes, float]]:
        events, rows = BatchMatches.of(matches)
        died = self._owned.died(self._places)
        at = np.maximum(seqs[events], now_from)
        alive = (self._born[rows] < at) & (at < died[rows])
        rows, events = rows[alive], events[alive]
        order = by_event(events, self._numbers[rows], self._scores[rows], best)
        rows, events = rows[order], events[order]
        starts = np.flatnonzero(np.diff(events, prepend=-1))
        scores = np.maximum.reduceat(self._scores[rows], starts) if len(rows) else self._scores[:0]
        listed = grouped(events, rows, self._ids, best)
        for (index, ids), score in zip(listed, scores.tolist(), strict=True):
            yield index, ids, score


def _matches(engine: Engine, points: F64, device: DeviceCopies | None) -> Matches:
    return engine.match_points(points) if device is None else device.match_points(engine, points)


def matched_in_pieces(
    engine: Engine, points: F64, device: DeviceCopies | None = None
) -> Iterator[tuple[int, Matches]]:
    """Yield the matches of events in pieces, as they may not all fit into memory."""
    usual = step = max(_MIN_EVENTS, _AT_ONCE // max(1, len(engine)))
    first = 0
    while first < len(points):
        matches = _matches(engine, points[first : first + step], device)
        pairs = 0
        for piece in matches.split(MAX_PAIRS):
            yield first, piece
            first += len(piece)
            pairs += len(piece.matches.rows)
        step = max(_DENSE_EVENTS, step // _FEWER) if pairs > MAX_PAIRS else min(usual, 2 * step)


def by_event(events: I64, numbers: I64, scores: F64, best: int) -> I64:
    """Return the order of matches: by event, then by arrival, or with `best` by score."""
    keys = (numbers, -scores, events) if best else (numbers, events)
    return np.lexsort(keys)


def grouped(events: I64, numbers: I64, ids: IdTexts, best: int = 0) -> Iterator[tuple[int, bytes]]:
    """Yield each event once, with the ids of its numbers as JSON; with `best`, only a few."""
    if not len(events):
        return
    begins = np.flatnonzero(np.diff(events, prepend=events[0] - 1))
    ends = np.append(begins[1:], len(events))
    if best:
        ends = np.minimum(ends, begins + best)
    text, starts = ids.joined(numbers)
    spans = zip(starts[begins].tolist(), (starts[ends] - 1).tolist(), strict=True)
    for event, (start, end) in zip(events[begins].tolist(), spans, strict=True):
        yield event, bytes(text[start:end])
