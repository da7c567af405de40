"""Verify transitions: derive those of a consumer again, event by event, and compare.

The tracker is the library's; everything around it is independent of the server: subscriptions are
identified by id, events aren't batched, and nothing is read from a snapshot.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from rangecast.engine import Engine
from rangecast.errors import RangecastError
from rangecast.model.encoding.events import encode_event
from rangecast.model.filters.compile import ANY_BOXES
from rangecast.model.filters.filter import Filter
from rangecast.model.space import Space
from rangecast.server.log.base import LogError, Unit
from rangecast.server.state.edits import (
    AdvanceTracks,
    AnyEdit,
    DeleteConsumer,
    DeleteSubscription,
    EventsHead,
    PutConsumer,
    PutSpace,
    PutSubscription,
)
from rangecast.server.state.tracks.transitions import Derived, transitions_head, transitions_of
from rangecast.track.delivery.notifications import Notification
from rangecast.track.delivery.notifier import Notifier
from rangecast.track.delivery.policies import Policy
from rangecast.track.moments import micros_of, moment_of
from rangecast.track.rules import Rule
from rangecast.track.tracker import Tracker
from rangecast.track.transitions import KINDS, Transition, Transitions

_TEXT = pa.large_string()
_Facts = tuple[Any, ...]
"""Subscription, transition, key, at, since, reason, and the seq of the event."""


class TracksOracle:
    """The tracks of a tenant at one log position, and the transitions of one consumer."""

    def __init__(self, tenant: str, consumer: str):
        self._tenant = tenant
        self._consumer = consumer
        self._spaces: dict[str, _Space] = {}
        self._due: dict[str, tuple[int, _Facts]] = {}
        """By id: the seq by which a transition was due, and its content."""
        self._seq = 0
        """Transitions of a seq before this one are in the log."""

    def edits(self, edits: Sequence[AnyEdit], first: int) -> None:
        """Apply edits."""
        for seq, edit in enumerate(edits, first):
            if edit.tenant == self._tenant:
                self._apply(edit, seq)

    def _apply(self, edit: AnyEdit, seq: int) -> None:
        match edit:
            case PutSpace():
                definition = Space.from_definition(edit.definition)
                if edit.name in self._spaces:
                    self._spaces[edit.name].grow(definition)
                elif edit.track is not None:
                    self._spaces[edit.name] = _Space(definition, edit.track)
            case DeleteConsumer():
                for space in self._spaces.values():
                    owned = space.subscriptions.items()
                    for name in [name for name, put in owned if put.consumer == edit.name]:
                        self._note(space, space.end(name), seq)
                        self._set_policy(space, name, None, seq)
                    space.notifier.remove_consumer(edit.name)
            case PutConsumer() if edit.space in self._spaces:
                space = self._spaces[edit.space]
                policy = None if edit.policy is None else Policy.of(edit.policy)
                self._record_notifications(
                    space, space.notifier.set_consumer_policy(edit.name, policy), seq
                )
            case PutSubscription() if edit.space in self._spaces:
                space = self._spaces[edit.space]
                transitions = space.end(edit.name) if edit.track is None else space.put(edit)
                self._note(space, transitions, seq)
                self._set_policy(space, edit.name, (edit.track or {}).get("policy"), seq)
            case DeleteSubscription() if edit.space in self._spaces:
                space = self._spaces[edit.space]
                self._note(space, space.end(edit.name), seq)
                self._set_policy(space, edit.name, None, seq)
            case AdvanceTracks():
                space = self._spaces[edit.name]
                self._note(space, space.tracker.advance(moment_of(edit.moment)), seq)

    def events(self, head: EventsHead, rows: Sequence[Mapping[str, Any]], first: int) -> None:
        """Apply events, one at a time."""
        space = self._spaces.get(head.space) if head.tenant == self._tenant else None
        if space is None:
            return
        pairs = [
            (seq, change) for seq, row in enumerate(rows, first) for change in space.event(row, seq)
        ]
        self._note_all(space, pairs, first + len(rows) - 1)

    def _note(self, space: _Space, transitions: Transitions, seq: int) -> None:
        self._note_all(space, [(seq, transition) for transition in transitions], seq)

    def _note_all(self, space: _Space, pairs: list[tuple[int, Transition]], last: int) -> None:
        """Record the consumer's transitions of a unit, by the seq that causes them."""
        collected = []
        for seq, transition in pairs:
            put = space.known[str(transition.subscription)]
            if transition.transition not in (put.track or {}).get("on", KINDS):
                continue
            named = transition._replace(key=space.keys[str(transition.key)], subscription=put.id)
            if space.notifier.has_policy(put.id):
                collected.append(named)
            elif put.consumer == self._consumer:
                self._due[named.id] = seq, _facts_of(named)
        collected.sort(key=lambda sent: (sent.at, repr(sent.key), sent.number))
        notifications = space.notifier.take(collected)
        if space.tracker.watermark is not None:
            notifications += space.notifier.advance(space.tracker.watermark)
        self._record_notifications(space, notifications, last)

    def _set_policy(self, space: _Space, name: str, definition: Any, seq: int) -> None:
        put = space.known.get(name)
        if put is not None:
            policy = None if definition is None else Policy.of(definition)
            consumer = put.consumer if name in space.subscriptions else None
            has_both_ends = {"enter", "exit"} <= {*(put.track or {}).get("on", KINDS)}
            space.notifier.set_consumer(put.id, consumer, has_both_ends=has_both_ends)
            self._record_notifications(space, space.notifier.set_policy(put.id, policy), seq)

    def _record_notifications(
        self, space: _Space, notifications: Sequence[Notification], seq: int
    ) -> None:
        """Record notifications that are for the consumer."""
        for sent in notifications:
            consumer = sent.consumer
            if sent.subscription is not None:
                consumer = space.known[str(sent.subscription)].consumer
            if consumer != self._consumer:
                continue
            facts = [_facts_of(each) for each in sent.transitions]
            if sent.window is not None:
                first = sent.transitions[0].at
                whole = (
                    "" if sent.subscription is None else sent.subscription,
                    "digest",
                    "",
                    micros_of(sent.at),
                    micros_of(first),
                    "time",
                    0,
                )
                facts[0] = (*whole, sent.window, [each.id for each in sent.transitions])
            self._due[sent.id] = seq, facts[0]

    def written(self, unit: Unit) -> Iterator[tuple[int, str, float]]:
        """Verify transitions in the log; yield seq, id and score of each of the consumer's."""
        whose = transitions_head(unit)
        if whose.tenant != self._tenant:
            return
        for seq, derived in enumerate(transitions_of(unit), unit.first):
            due, facts = self._due.pop(derived.id, (0, None))
            if facts is None:
                continue  # of another consumer
            if facts != _facts(derived):
                raise RangecastError(
                    f"the transition of seq {seq} is {_facts(derived)}, and {facts} by its events"
                )
            self._seq = max(self._seq, due)
            yield seq, derived.id, derived.score

    def check_end(self) -> None:
        """Reject a log that lacks a transition, although it has later ones."""
        for due, facts in self._due.values():
            if due < self._seq:
                raise LogError(f"the log lacks the transition {facts}, due by seq {due}")


class _Space:
    """The tracker of a space."""

    def __init__(self, space: Space, track: Mapping[str, Any]):
        options = {name: value for name, value in track.items() if name != "clock"}
        self.tracker = Tracker(Engine(space), **options)
        self.subscriptions: dict[str, PutSubscription] = {}
        self.known: dict[str, PutSubscription] = {}
        """Current and ended subscriptions."""
        self.keys: dict[str, str | int] = {}
        self.notifier = Notifier()
        column = track.get("accuracy") or ""
        self._accuracy: str = column if isinstance(column, str) else next(iter(column.values()))

    def grow(self, space: Space) -> None:
        """Replace a space by one with more attributes or categories."""
        engine, saved = Engine(space), self.tracker.saved()
        for name, put in self.subscriptions.items():
            engine.subscribe(name, Filter.parse(put.filter, space, max_boxes=ANY_BOXES))
        self.tracker = Tracker.restored(saved, engine)

    def put(self, edit: PutSubscription) -> Transitions:
        """Add or replace a subscription."""
        engine, fields = self.tracker.engine, dict(edit.track or {})
        for other in ("on", "policy"):
            fields.pop(other, None)
        engine.upsert(edit.name, Filter.parse(edit.filter, engine.space, max_boxes=ANY_BOXES))
        self.tracker.set_rule(edit.name, Rule.of(fields))
        self.subscriptions[edit.name] = self.known[edit.name] = edit
        return self._edited()

    def end(self, name: str) -> Transitions:
        """Remove a subscription, if it exists."""
        if self.subscriptions.pop(name, None) is not None:
            self.tracker.engine.unsubscribe(name)
            self.tracker.set_rule(name, None)
        return self._edited()

    def _edited(self) -> Transitions:
        nothing = pa.array([], _TEXT), pa.array([], pa.int64())
        points = encode_event({}, self.tracker.engine.space)[None][:0]
        return self.tracker.update_points(nothing[0], points, nothing[1])

    def event(self, row: Mapping[str, Any], seq: int) -> Transitions:
        """Process an event."""
        space, key = self.tracker.engine.space, row.get(self.tracker.key)
        point = encode_event(dict(row), space, ignore_unknown=True)[None]
        name = None
        if isinstance(key, str | int) and not isinstance(key, bool):
            name = repr(key)
            self.keys[name] = key
        radius = row.get(self._accuracy) if self._accuracy else None
        accuracy = pa.array([radius if isinstance(radius, int | float) else None], pa.float64())
        keys = pa.array([name], _TEXT)
        return self.tracker.update_points(keys, point, pa.array([seq]), accuracy)


def _facts(derived: Derived) -> _Facts:
    kind = derived.subscription, derived.transition, derived.key
    facts = *kind, derived.at, derived.since, derived.reason, derived.seq
    if not derived.window:
        return facts
    return *facts, derived.window, [each["id"] for each in derived.transitions]


def _facts_of(change: Transition) -> _Facts:
    moments = micros_of(change.at), micros_of(change.since)
    return (
        change.subscription,
        change.transition,
        change.key,
        *moments,
        change.reason,
        change.event or 0,
    )
