"""The subscriptions of a space as the matcher sees them: an `Engine` over their numbers."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from rangecast.engine import Engine
from rangecast.errors import FilterError
from rangecast.kernels.arrays import F64, I32, I64
from rangecast.model.boxes import Boxes
from rangecast.model.filters.compile import ANY_BOXES
from rangecast.model.filters.filter import Filter, boxes_of
from rangecast.model.filters.many import filters_of_texts
from rangecast.model.filters.tentative import TentativeSpace
from rangecast.model.space import Space
from rangecast.server.registry import Change, SpaceEntry, Version

_encode = msgspec.json.Encoder().encode


class Found(NamedTuple):
    """All matches of a batch, by event: its place, and the number of a subscription."""

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
        self._note(entry.live.values())

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
        new: list[tuple[Version, Filter | None]] = []
        replaced: list[tuple[Version, Filter | None]] = []
        gone: list[int] = []
        for number, (version, given) in last.items():
            if version is not None:
                (new if first[number] is None else replaced).append((version, given))
            elif first[number] is not None:
                gone.append(number)
        self._note([version for version, _ in new + replaced])
        if gone:
            self.engine.unsubscribe_many(gone)
        if len(new) == 1:
            version = new[0][0]
            (wanted,) = self._filters(new)
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
        self._note(live)
        if live:
            self.engine.subscribe_many(self._boxes([(one, None) for one in live]))

    def _filters(self, pairs: Sequence[tuple[Version, Filter | None]]) -> list[Filter]:
        """Return the filters of versions: those that are given, where they are of this space."""
        space = self.engine.space
        found = [None if one is None else _settled(one, space) for _, one in pairs]
        texts = [pair[0].filter for pair, one in zip(pairs, found, strict=True) if one is None]
        parsed = iter(parsed_again(texts, space))
        return [next(parsed) if one is None else one for one in found]

    def _boxes(self, pairs: Sequence[tuple[Version, Filter | None]]) -> Boxes:
        filters, numbers = self._filters(pairs), [one.number for one, _ in pairs]
        return version_boxes(self.engine.space, [one for one, _ in pairs], numbers, filters)

    def _note(self, versions: Collection[Version]) -> None:
        """Note to whom subscriptions belong, their scores and their names."""
        if not versions:
            return
        numbers = [one.number for one in versions]
        size, least = len(self.owners), max(numbers) + 1
        if least > size:
            more = max(2 * size, least) - size
            self.owners = np.append(self.owners, np.full(more, -1, np.int32))
            self.scores = np.append(self.scores, np.zeros(more))
        self.owners[numbers] = [one.consumer for one in versions]
        self.scores[numbers] = [one.score for one in versions]
        self.names += [b""] * (least - len(self.names))
        for number, version in zip(numbers, versions, strict=True):
            self.names[number] = _encode(version.id)


def _settled(wanted: Filter, space: Space) -> Filter | None:
    """Return a filter that was accepted, once its words are learned; `None`: to parse again."""
    read_in = wanted.space
    if isinstance(read_in, TentativeSpace) and read_in.host is space and read_in.settle():
        return Filter(space, wanted.boxes)
    return None


def parsed_again(texts: Sequence[str], space: Space) -> list[Filter]:
    """Return the filters of texts that were accepted before.

    Words may have other numbers by now: what was one box may be many, and is taken all the same.
    """
    return [
        Filter.parse(text, space, max_boxes=ANY_BOXES) if isinstance(one, FilterError) else one
        for text, one in zip(texts, filters_of_texts(texts, space), strict=True)
    ]


def version_boxes(
    space: Space, versions: Sequence[Version], numbers: Sequence[int], filters: Sequence[Filter]
) -> Boxes:
    """Return subscriptions, each under a number, as boxes."""
    lo, hi, owner = boxes_of(space, filters)
    weights = None
    if any(version.weights for version in versions):
        weights = np.ones((len(versions), len(space)))
        for row, version in enumerate(versions):
            for name, weight in version.weights.items():
                weights[row, space.axis(name)] = weight
    return Boxes.of(
        lo,
        hi,
        owner=owner,
        ids=numbers,
        scores=[version.score for version in versions],
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
        filters = parsed_again([one.filter for one in fresh], space)
        numbers = range(begin, begin + len(fresh))
        self.engine.subscribe_many(version_boxes(space, fresh, numbers, filters))
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
