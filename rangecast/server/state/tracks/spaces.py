"""Tracks of spaces: one tracker per space with a key, over its tracked subscriptions.

    events, edits -> tracker -> pending transitions -> log (see `transitions`) -> consumers

The state at a seq is derived from the log up to it: the tracker, and the transitions that it has
found but that aren't written yet. So after a crash, or when a follower takes over, those are
written.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rangecast.engine import Engine
from rangecast.kernels.arrays import F64, I64
from rangecast.model.sets.members import Id
from rangecast.model.space import Space
from rangecast.server.encoding import (
    MAX_KEY,
    accuracy_of,
    is_key,
    points_of,
    rows_of,
)
from rangecast.server.log.base import Unit
from rangecast.server.state.boards import InterestChange
from rangecast.server.state.edits import EVENTS, TRANSITIONS, events_of
from rangecast.server.state.entries import AnyChange, Change, SpaceEntry
from rangecast.server.state.registry import Registry
from rangecast.server.state.space_index import bounds_of, version_boxes
from rangecast.server.state.tracks.notices import Notices, SavedNotices
from rangecast.server.state.tracks.options import kinds_of, rule_of, track_columns, tracker_of
from rangecast.server.state.tracks.transitions import Derived, transitions_head, transitions_of
from rangecast.server.state.versions.version import NO_CONSUMER, Version
from rangecast.track.moments import moment_of
from rangecast.track.rules import Rule
from rangecast.track.saved import TrackerState
from rangecast.track.tracker import Tracker
from rangecast.track.transitions import Transition, Transitions, transition_id

_TEXT = pa.large_string()
_AS_TEXT, _NOTHING = pa.scalar("t", _TEXT), pa.scalar("", _TEXT)
"""Before a key that is a text, and after it."""
RECENT = 200
"""Number of recent transitions kept per space, for display."""


class _Address(NamedTuple):
    """Kinds of transitions of a subscription that are delivered, and its consumer."""

    kinds: frozenset[str]
    consumer: int
    """Its number."""
    id: Id
    score: float


class SavedTracks(NamedTuple):
    """Tracks of a space in a snapshot."""

    tracker: TrackerState
    pending: list[Derived]
    notices: SavedNotices | None = None


class SpaceTracks:
    """The tracker of a space, and its transitions that aren't in the log yet."""

    def __init__(self, entry: SpaceEntry, space: Space, track: Mapping[str, Any]):
        self.entry = entry
        self.track = track
        self.pending: dict[str, Derived] = {}
        """By id."""
        self.recent: deque[tuple[int, Derived]] = deque(maxlen=RECENT)
        """The newest that are in the log, each with its seq."""
        self.tracker = tracker_of(Engine(space), track)
        self.notices = Notices()
        self._versions: dict[int, Version] = {}
        """Tracked subscriptions, by number."""
        self._addresses: dict[Any, _Address] = {}
        """Where their transitions go, by number."""

    @classmethod
    def restored(cls, entry: SpaceEntry, saved: SavedTracks) -> SpaceTracks:
        """Return tracks that continue from a saved state."""
        assert entry.track is not None
        made = cls(entry, entry.space, entry.track)
        made._note([version for version in entry.live.values() if version.track is not None])
        made._restore(saved.tracker, entry.space)
        made.pending = {derived.id: derived for derived in saved.pending}
        made.notices = Notices(saved.notices)
        return made

    def saved(self) -> SavedTracks:
        """Return the state for `restored`."""
        return SavedTracks(self.tracker.saved(), [*self.pending.values()], self.notices.saved())

    @property
    def space(self) -> Space:
        """Space of the tracked subscriptions."""
        return self.tracker.engine.space

    def _restore(self, saved: TrackerState, space: Space) -> None:
        engine = Engine(space)
        versions = sorted(self._versions.values(), key=lambda version: version.number)
        if versions:
            bounds = bounds_of([version.filter for version in versions], space)
            engine.subscribe_many(version_boxes(space, versions, bounds))
        self.tracker = Tracker.restored(saved, engine)

    def _note(self, versions: Iterable[Version]) -> None:
        for version in versions:
            assert version.track is not None
            self._versions[version.number] = version
            kinds = kinds_of(version.track) if version.consumer != NO_CONSUMER else frozenset()
            address = _Address(kinds, version.consumer, version.id, version.score)
            self._addresses[version.number] = address

    def apply(self, change: Change) -> list[Derived]:
        """Apply an edit; return the transitions that it causes."""
        if change.moment is not None:
            return self._derived(self.tracker.advance(moment_of(change.moment)))
        if change.policy is not None:
            mine = [
                version
                for version in self._versions.values()
                if version.consumer == change.policy.number
            ]
            return self._noted(self.notices.put_consumer(change.policy, mine))
        if change.space is not None:
            self._restore(self.tracker.saved(), change.space)
            return []
        gone = [] if change.gone is None else [change.gone.number]
        gone += [version.number for version in change.put if version.track is None]
        removed = [number for number in gone if number in self._versions]
        put = [version for version in change.put if version.track is not None]
        if not removed and not put:
            return []
        engine = self.tracker.engine
        for number in removed:
            engine.unsubscribe(number)
            self.tracker.set_rule(number, None)
        if put:
            bounds = bounds_of([version.filter for version in put], engine.space)
            engine.upsert_many(version_boxes(engine.space, put, bounds))
            for version in put:
                assert version.track is not None
                rule, before = rule_of(version.track), self._versions.get(version.number)
                if rule != (Rule() if before is None else rule_of(before.track or {})):
                    self.tracker.set_rule(version.number, None if rule == Rule() else rule)
        self._note(put)
        nothing = np.zeros((0, len(engine.space)))
        transitions = self._update(pa.array([], _TEXT), nothing, np.zeros(0, np.int64))
        over = [notification for version in put for notification in self.notices.put(version)]
        for number in removed:
            over += self.notices.end(self._versions[number].id)
            del self._versions[number], self._addresses[number]
        return transitions + self._noted(over)

    def events(self, rows: Sequence[Mapping[str, Any]], points: F64, seqs: I64) -> list[Derived]:
        """Process events; return the transitions derived so far."""
        columns = track_columns(self.track)
        assert columns is not None
        keys = _as_texts([row.get(columns.key) for row in rows])
        accuracy = None
        if columns.accuracy:
            radii = [accuracy_of(row.get(columns.accuracy)) for row in rows]
            accuracy = pa.array(radii, pa.float64())
        return self._update(keys, points, seqs, accuracy)

    def _update(
        self, keys: pa.Array, points: F64, seqs: I64, accuracy: pa.Array | None = None
    ) -> list[Derived]:
        return self._derived(self.tracker.update_points(keys, points, pa.array(seqs), accuracy))

    def _derived(self, transitions: Transitions) -> list[Derived]:
        """Return the transitions to deliver to consumers, and mark them as pending."""
        derived, collected = list[Derived](), list[Transition]()
        addresses, has_policies = self._addresses, bool(self.notices)
        for text, number, kind, at, since, event, reason, count in transitions.rows():
            kinds, consumer, name, score = addresses[number]
            if kind not in kinds:
                continue
            key = _as_key(text)
            if has_policies and name in self.notices:
                times = moment_of(at), moment_of(since)
                collected.append(Transition(key, name, kind, *times, event, reason, count))
                continue
            id_, seq = transition_id(key, name, kind, at), int(event or 0)
            fields = id_, consumer, name, kind, key, at, since, reason, count, score, seq
            derived.append(Derived(*fields))
        derived += self.notices.take(collected, self.tracker.watermark)
        return self._noted(derived)

    def _noted(self, derived: list[Derived]) -> list[Derived]:
        self.pending.update((transition.id, transition) for transition in derived)
        return derived

    def written(self, transitions: Sequence[Derived], first: int) -> None:
        """Record that transitions are in the log, starting at a seq."""
        for transition in transitions:
            self.pending.pop(transition.id, None)
        begin = max(0, len(transitions) - RECENT)
        self.recent.extend(enumerate(transitions[begin:], first + begin))

    def is_due(self, moment: int) -> bool:
        """Return whether anything is due up to a time."""
        return self.tracker.is_due(moment_of(moment)) or self.notices.is_due(moment)

    def status(self) -> dict[str, int]:
        """Return the counts of tracks and of skipped events."""
        tracker = self.tracker
        return {
            "objects": len(tracker),
            "waiting": tracker.waiting,
            "late": tracker.late,
            "repeated": tracker.repeated,
            "incomplete": tracker.incomplete,
            "pending": len(self.pending),
            **self.notices.status(),
        }


class Tracks:
    """Tracks of all spaces, by space number. Only one thread at a time may change them."""

    def __init__(self) -> None:
        self.spaces: dict[int, SpaceTracks] = {}

    def apply(self, changes: Sequence[AnyChange]) -> Iterator[tuple[SpaceTracks, list[Derived]]]:
        """Apply edits in order; yield the transitions that they cause."""
        for change in changes:
            if isinstance(change, InterestChange):
                continue
            number = change.entry.number
            if change.track is not None:
                before = self.spaces.get(number)
                space = change.entry.space if before is None else before.space
                self.spaces[number] = SpaceTracks(change.entry, space, change.track)
            elif number in self.spaces:
                derived = self.spaces[number].apply(change)
                if derived:
                    yield self.spaces[number], derived

    def take(self, unit: Unit, changes: Sequence[AnyChange], registry: Registry) -> None:
        """Apply a unit that is replayed from the log, or copied from a leader."""
        for _ in self.apply(changes):
            pass
        if not self.spaces:
            return
        if unit.kind == EVENTS:
            head, lines = events_of(unit)
            tracks = self.spaces.get(registry.spaces[head.tenant, head.space].number)
            if tracks is not None:
                rows = rows_of(lines, head.form)
                points = points_of(rows, tracks.space)
                tracks.events(rows, points, np.arange(unit.first, unit.last + 1))
        elif unit.kind == TRANSITIONS:
            whose = transitions_head(unit)
            tracks = self.spaces.get(registry.spaces[whose.tenant, whose.space].number)
            if tracks is not None:
                tracks.written(transitions_of(unit), unit.first)


def _as_texts(keys: list[Any]) -> pa.Array:
    """Return keys as text, as `_as_text` does."""
    if {*map(type, keys)} == {str} and max(map(len, keys)) <= MAX_KEY:
        parts = _AS_TEXT, pa.array(keys, _TEXT), _NOTHING
        joined: pa.Array = pc.binary_join_element_wise(*parts)
        return joined
    return pa.array([*map(_as_text, keys)], _TEXT)


def _as_text(key: Any) -> str | None:
    """Return a key as text, with integers distinct from their decimal text.

    `None`: the key is invalid. Events from other servers aren't checked before.
    """
    if not is_key(key):
        return None
    return f"i{key}" if isinstance(key, int) else f"t{key}"


def _as_key(text: Any) -> str | int:
    return int(text[1:]) if text[0] == "i" else text[1:]
