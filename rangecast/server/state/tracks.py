"""Tracks of spaces: one tracker per space with a key, over its tracked subscriptions.

    events, edits -> tracker -> pending transitions -> log (see `transitions`) -> consumers

The state at a seq is derived from the log up to it: the tracker, and the transitions that it has
found but that aren't written yet. So after a crash, or when a follower takes over, those are
written.
"""

from __future__ import annotations

import tomllib
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rangecast.engine import Engine
from rangecast.errors import RangecastError, SpaceError, UsageError, abbreviate, did_you_mean
from rangecast.kernels.arrays import F64, I64
from rangecast.model.sets.members import Id
from rangecast.model.space import Space
from rangecast.server.encoding import (
    MAX_KEY,
    TrackColumns,
    accuracy_of,
    is_key,
    points_of,
    rows_of,
)
from rangecast.server.log.base import Unit
from rangecast.server.state.boards import InterestChange
from rangecast.server.state.edits import EVENTS, TRANSITIONS, events_of
from rangecast.server.state.registry import (
    NO_CONSUMER,
    AnyChange,
    Change,
    Registry,
    SpaceEntry,
    Version,
)
from rangecast.server.state.space_index import bounds_of, version_boxes
from rangecast.server.state.transitions import Derived, transitions_head, transitions_of
from rangecast.track.delivery.notifier import Notification, Notifier
from rangecast.track.delivery.policies import Policy
from rangecast.track.moments import Length, length_of, moment_of
from rangecast.track.rules import Rule, check_rule
from rangecast.track.saved import Saved
from rangecast.track.tracker import Tracker
from rangecast.track.transitions import KINDS, Transition, Transitions, transition_id

OPTIONS = ("key", "time", "after", "lateness", "inside", "accuracy", "clock")
"""Options of a space's tracks: those of a `Tracker`, and the lag behind the server's clock."""
_RULE = tuple(field.name.rstrip("_") for field in fields(Rule) if field.init)
"""Fields of a rule, by their names over HTTP."""
_POLICY = tuple(field.name for field in fields(Policy) if field.init)
_TEXT = pa.large_string()
_AS_TEXT, _NOTHING = pa.scalar("t", _TEXT), pa.scalar("", _TEXT)
"""Before a key that is a text, and after it."""
RECENT = 200
"""Number of recent transitions kept per space, for display."""


def check_track(track: Mapping[str, Any], space: Space) -> None:
    """Reject track options that are invalid for a space."""
    if not isinstance(track, dict):
        raise UsageError(f"track of a space is an object; given: {abbreviate(track)}")
    _check_names(track, OPTIONS, "track of a space")
    for name in ("key", "time"):
        if not isinstance(track.get(name), str) or not track[name]:
            raise UsageError(
                f"track of a space takes the name of a column as {name}; "
                f"given: {abbreviate(track.get(name))}"
            )
    length_of("clock", track.get("clock"), min=0)
    tracker_of(Engine(space), track)


def space_and_track(text: str) -> tuple[Space, dict[str, Any] | None]:
    """Parse a space in TOML, with its track settings from the table `track`."""
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return Space.from_toml(text), None  # which says what is wrong
    track = document.pop("track", None)
    if track is None:
        return Space.from_toml(text), None
    space = Space.from_definition(document)
    check_track(track, space)
    return space, track


def load_space(path: Path) -> tuple[Space, dict[str, Any] | None]:
    """Return the space in a TOML file, and its track settings."""
    try:
        return space_and_track(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise SpaceError(f"{path}: can't be read: {error}") from None
    except RangecastError as error:
        raise SpaceError(f"{path}: {error}") from None


def tracker_of(engine: Engine, track: Mapping[str, Any]) -> Tracker:
    """Return a tracker with the track options of a space."""
    return Tracker(engine, **{name: value for name, value in track.items() if name != "clock"})


def track_columns(track: Mapping[str, Any] | None) -> TrackColumns | None:
    """Return the event columns that the tracks of a space need."""
    if track is None:
        return None
    accuracy = track.get("accuracy") or ""
    if isinstance(accuracy, dict):
        (accuracy,) = accuracy.values()
    return TrackColumns(track["key"], accuracy)


def clock_of(track: Mapping[str, Any]) -> int | None:
    """Return the lag behind the server's clock; `None`: only events advance time."""
    clock: Length | None = track.get("clock")
    return length_of("clock", clock, min=0)


def rule_of(track: Mapping[str, Any]) -> Rule:
    """Return the rule of a subscription from its HTTP form."""
    return Rule.of({name: value for name, value in track.items() if name in _RULE})


def policy_of(track: Mapping[str, Any]) -> Policy | None:
    """Return the policy of a subscription from its HTTP form."""
    given = track.get("policy")
    if given is None:
        return None
    if not isinstance(given, dict):
        raise UsageError(f"policy is an object; given: {abbreviate(given)}")
    _check_names(given, _POLICY, "policy of a subscription")
    try:
        return Policy.of(given)
    except TypeError as error:
        raise UsageError(f"policy can't be read: {error}") from None


def check_rule_of(track: Mapping[str, Any], space: Space) -> None:
    """Reject a rule that is invalid for a subscription of this space."""
    _check_names(track, ("on", "policy", *_RULE), "track of a subscription")
    kinds = track.get("on", ["enter", "exit"])
    if not isinstance(kinds, list) or not kinds or not set(map(str, kinds)) <= set(KINDS):
        raise UsageError(
            f"on takes a list of {', '.join(map(repr, KINDS))}; given: {abbreviate(kinds)}"
        )
    check_rule(rule_of(track), space)
    policy = policy_of(track)
    if policy is not None and policy.renotify is not None and not {"enter", "exit"} <= set(kinds):
        raise UsageError(
            f"renotify needs both ends of stays; given: on = {abbreviate(kinds)}\n"
            "  hint: add enter and exit, or leave out on"
        )


def _check_names(track: Mapping[str, Any], known: Sequence[str], what: str) -> None:
    for name in track:
        if name not in known:
            raise UsageError(
                f"{what} has no {abbreviate(name)}: {did_you_mean(str(name), [*known])}"
            )


SavedNotices = dict[str, Any]


class SavedTracks(NamedTuple):
    """Tracks of a space in a snapshot."""

    tracker: Saved
    pending: list[Derived]
    notices: SavedNotices | None = None


class Notices:
    """Delivery policies of a space's subscriptions, and the transitions waiting in digests.

    The transitions of one unit are processed in a fixed order, whatever batch found them.
    """

    def __init__(self, saved: SavedNotices | None = None):
        self._notifier = Notifier() if saved is None else Notifier.restored(saved["notifier"])
        self._whose: dict[Id, tuple[int, float]] = {}
        """Consumer and score of subscriptions that have a policy, or transitions that wait."""
        if saved is not None:
            self._whose = {one: (consumer, score) for one, consumer, score in saved["whose"]}

    def saved(self) -> SavedNotices | None:
        """Return the state for a new instance; `None` if it is empty."""
        if not self._whose:
            return None
        whose = [[one, *facts] for one, facts in self._whose.items()]
        return {"notifier": self._notifier.saved(), "whose": whose}

    def __bool__(self) -> bool:
        return bool(self._whose)

    def __contains__(self, subscription: Id) -> bool:
        return subscription in self._notifier.policies

    def put(self, version: Version) -> list[Derived]:
        """Set or clear the policy of a subscription; return the digests that this ends."""
        policy = policy_of(version.track or {})
        if policy is None and version.id not in self._whose:
            return []
        if policy is not None:
            self._whose[version.id] = version.consumer, version.score
        return self._with_policy(version.id, policy)

    def end(self, subscription: Id) -> list[Derived]:
        """Forget a subscription; a digest with a time is still delivered then."""
        return self._with_policy(subscription, None) if subscription in self._whose else []

    def _with_policy(self, subscription: Id, policy: Policy | None) -> list[Derived]:
        found = self._derived(self._notifier.set_policy(subscription, policy))
        self._tidy()
        return found

    def take(self, transitions: list[Transition], watermark: datetime | None) -> list[Derived]:
        """Process the transitions of a unit; return what is due by the watermark."""
        ordered = sorted(transitions, key=lambda one: (one.at, repr(one.key), one.number))
        found = self._notifier.take(ordered)
        if watermark is not None:
            found += self._notifier.advance(watermark)
        derived = self._derived(found)
        self._tidy()
        return derived

    def is_due(self, moment: int) -> bool:
        """Return whether anything is due up to a moment."""
        return self._notifier.is_due(moment_of(moment))

    def status(self) -> dict[str, int]:
        """Return how many transitions wait in digests, and how many were dropped."""
        return {"collected": self._notifier.waiting, "dropped": self._notifier.dropped}

    def _derived(self, found: Iterable[Notification]) -> list[Derived]:
        return [Derived.of(one, *self._whose[one.subscription]) for one in found]

    def _tidy(self) -> None:
        notifier = self._notifier
        self._whose = {
            one: facts
            for one, facts in self._whose.items()
            if one in notifier.policies or notifier.is_waiting(one)
        }


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
        self._kinds: dict[int, frozenset[str]] = {}
        """Transitions that they want."""

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

    def _restore(self, saved: Saved, space: Space) -> None:
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
            self._kinds[version.number] = frozenset(version.track.get("on", KINDS))

    def apply(self, change: Change) -> list[Derived]:
        """Apply an edit; return the transitions that it causes."""
        if change.moment is not None:
            return self._derived(self.tracker.advance(moment_of(change.moment)))
        if change.space is not None:
            self._restore(self.tracker.saved(), change.space)
            return []
        gone = [change.gone] if change.gone is not None else []
        gone += [version for version in change.put if version.track is None]
        removed = [version.number for version in gone if version.number in self._versions]
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
        over = [one for version in put for one in self.notices.put(version)]
        for number in removed:
            over += self.notices.end(self._versions[number].id)
            del self._versions[number], self._kinds[number]
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
        for key, subscription, kind, at, since, event, reason, count in transitions.rows():
            number = int(subscription)
            version = self._versions[number]
            if kind not in self._kinds[number] or version.consumer == NO_CONSUMER:
                continue
            name, key = version.id, _as_key(str(key))
            if name in self.notices:
                times = moment_of(at), moment_of(since)
                collected.append(Transition(key, name, kind, *times, event, reason, count))
                continue
            derived.append(
                Derived(
                    transition_id(key, name, kind, at, count),
                    version.consumer,
                    name,
                    kind,
                    key,
                    at,
                    since,
                    reason,
                    count,
                    version.score,
                    0 if event is None else int(event),
                )
            )
        if self.notices:
            derived += self.notices.take(collected, self.tracker.watermark)
        return self._noted(derived)

    def _noted(self, derived: list[Derived]) -> list[Derived]:
        self.pending.update((transition.id, transition) for transition in derived)
        return derived

    def written(self, transitions: Iterable[Derived], first: int) -> None:
        """Record that transitions are in the log, starting at a seq."""
        for seq, transition in enumerate(transitions, first):
            self.pending.pop(transition.id, None)
            self.recent.append((seq, transition))

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


def _as_key(text: str) -> str | int:
    return int(text[1:]) if text[0] == "i" else text[1:]
