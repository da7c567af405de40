"""The subscriptions of a space as the matcher sees them: an `Engine` over their numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from rangecast.engine import Engine
from rangecast.kernels.arrays import F64, I32, I64
from rangecast.model.boxes import Boxes
from rangecast.model.filters.filter import Filter, boxes_of
from rangecast.model.space import Space
from rangecast.server.registry import Change, SpaceEntry, Version

_encode = msgspec.json.Encoder().encode


class Found(NamedTuple):
    """All matches of a batch: the place of an event, and the number of a subscription."""

    events: I64
    numbers: I64


class SpaceIndex:
    """The live subscriptions of one space, and to whom they belong."""

    def __init__(self, entry: SpaceEntry, engine: Engine | None = None):
        self.entry = entry
        self.engine = Engine(entry.space) if engine is None else engine
        self.owners: I32 = np.full(1024, -1, np.int32)
        """The consumer of each subscription, by number."""
        self.scores: F64 = np.zeros(1024)
        """By number."""
        self.names: list[bytes] = []
        """The id of each subscription as JSON, by number."""
        for version in entry.live.values():
            self._note(version)

    def match(self, points: F64) -> Found:
        """Return the subscriptions that match each point."""
        matches = self.engine.match_points(points)
        return Found(matches.matches.events, matches.ids.astype(np.int64, copy=False))

    def name(self, number: int) -> str:
        """Return the id of a subscription."""
        found: str = msgspec.json.decode(self.names[number])
        return found

    def carry_out(self, changes: Sequence[Change]) -> None:
        """Bring the index to where all these changes lead; nobody matches in between."""
        if any(change.space is not None for change in changes):
            self._make_anew()
            return
        first: dict[int, Version | None] = {}
        last: dict[int, tuple[Version | None, Filter | None]] = {}
        for change in changes:
            version = change.new or change.old
            assert version is not None
            first.setdefault(version.number, change.old)
            last[version.number] = change.new, change.filter
        new: list[tuple[Version, Filter]] = []
        replaced: list[tuple[Version, Filter]] = []
        gone: list[int] = []
        for number, (version, given) in last.items():
            if version is None:
                if first[number] is not None:
                    gone.append(number)
                continue
            self._note(version)
            pair = version, self._filter(version, given)
            (new if first[number] is None else replaced).append(pair)
        if gone:
            self.engine.unsubscribe_many(gone)
        if len(new) == 1:
            version, wanted = new[0]
            self.engine.subscribe(
                version.number, wanted, score=version.score, weights=version.weights
            )
        elif new:
            self.engine.subscribe_many(self._boxes(new))
        if replaced:
            self.engine.replace_many(self._boxes(replaced))

    def _make_anew(self) -> None:
        """The space has changed: all filters mean boxes of the new one."""
        self.engine = Engine(self.entry.space)
        live = sorted(self.entry.live.values(), key=lambda one: one.number)
        for version in live:
            self._note(version)
        if live:
            self.engine.subscribe_many(
                self._boxes([(one, self._filter(one, None)) for one in live])
            )

    def _filter(self, version: Version, given: Filter | None) -> Filter:
        space = self.engine.space
        if given is not None and given.space is space:
            return given
        return Filter.parse(version.filter, space)

    def _boxes(self, pairs: Sequence[tuple[Version, Filter]]) -> Boxes:
        return version_boxes(
            self.engine.space, [(one, one.number, wanted) for one, wanted in pairs]
        )

    def _note(self, version: Version) -> None:
        number = version.number
        if number >= len(self.owners):
            size = max(2 * len(self.owners), number + 1)
            self.owners = np.append(self.owners, np.full(size - len(self.owners), -1, np.int32))
            self.scores = np.append(self.scores, np.zeros(size - len(self.scores)))
        self.owners[number], self.scores[number] = version.consumer, version.score
        while len(self.names) <= number:
            self.names.append(b"")
        self.names[number] = _encode(version.id)


def version_boxes(space: Space, given: Sequence[tuple[Version, int, Filter]]) -> Boxes:
    """Return subscriptions, each under a number, as boxes."""
    lo, hi, owner = boxes_of(space, [wanted for _, _, wanted in given])
    weights = None
    if any(version.weights for version, _, _ in given):
        weights = np.ones((len(given), len(space)))
        for row, (version, _, _) in enumerate(given):
            for name, weight in version.weights.items():
                weights[row, space.axis(name)] = weight
    return Boxes.of(
        lo,
        hi,
        owner=owner,
        ids=[number for _, number, _ in given],
        scores=[version.score for version, _, _ in given],
        weights=weights,
        space=space,
    )


class History:
    """All versions that a consumer has had, to match events of the log with those of their time."""

    def __init__(self, space: Space):
        self.engine = Engine(space)
        self._versions: list[Version] = []
        self._names: list[bytes] = []
        self._numbers: I64 = np.zeros(0, np.int64)
        self._scores: F64 = np.zeros(0)
        self._born: I64 = np.zeros(0, np.int64)
        self._last = -1

    def learn(self, versions: Sequence[Version]) -> None:
        """Take the versions that weren't there before; they are in order of birth."""
        fresh = [one for one in versions if one.born > self._last]
        if not fresh:
            return
        space, begin = self.engine.space, len(self._versions)
        given = [(one, begin + at, Filter.parse(one.filter, space)) for at, one in enumerate(fresh)]
        self.engine.subscribe_many(version_boxes(space, given))
        self._versions += fresh
        self._names += [_encode(one.id) for one in fresh]
        self._numbers = np.array([one.number for one in self._versions], np.int64)
        self._scores = np.array([one.score for one in self._versions])
        self._born = np.array([one.born for one in self._versions], np.int64)
        self._last = fresh[-1].born

    def match(
        self, points: F64, seqs: I64, now_from: int = 0, best: int = 0
    ) -> Iterator[tuple[int, list[bytes], float]]:
        """Yield the events that matched in their time: the place of each, the ids as JSON, and the
        highest score.

        For those before `now_from`, what lived at that seq counts.
        """
        if not self._versions:
            return
        matches = self.engine.match_points(points)
        rows, events = matches.ids.astype(np.int64, copy=False), matches.matches.events
        died = np.array([one.died for one in self._versions], np.int64)
        at = np.maximum(seqs[events], now_from)
        alive = (self._born[rows] < at) & (at < died[rows])
        rows, events = rows[alive], events[alive]
        order = by_event(events, self._numbers[rows], self._scores[rows], best)
        rows, events = rows[order], events[order]
        names = [self._names[row] for row in rows.tolist()]
        starts = np.flatnonzero(np.diff(events, prepend=-1))
        scores = np.maximum.reduceat(self._scores[rows], starts) if len(rows) else self._scores[:0]
        for (place, ids), score in zip(grouped(events, names, best), scores.tolist(), strict=True):
            yield place, ids, score


def by_event(events: I64, numbers: I64, scores: F64, best: int) -> I64:
    """Return the order of matches: by event, then by arrival; or by score, if the best count."""
    keys = (numbers, -scores, events) if best else (numbers, events)
    return np.lexsort(keys)


def grouped(events: I64, names: list[bytes], best: int = 0) -> Iterator[tuple[int, list[bytes]]]:
    """Yield each event once, with its part of the names, or with the first few of them."""
    ends = [*(np.flatnonzero(np.diff(events)) + 1).tolist(), len(events)]
    begin = 0
    for end in ends if len(events) else ():
        yield int(events[begin]), names[begin : min(end, begin + best) if best else end]
        begin = end
