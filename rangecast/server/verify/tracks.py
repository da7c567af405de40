"""Verify transitions: derive those of a consumer once more, event by event, and compare.

The tracker is the library's; everything around it is apart from the server: subscriptions go by
their ids, no event is batched with another one, and nothing is read from a snapshot.
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
    PutSpace,
    PutSubscription,
)
from rangecast.server.state.transitions import Derived, transitions_head, transitions_of
from rangecast.track.moments import micros_of, moment_of
from rangecast.track.rules import Rule
from rangecast.track.tracker import Tracker
from rangecast.track.transitions import Transitions

_TEXT = pa.large_string()
_Facts = tuple[Any, ...]
"""Subscription, transition, key, at, since, reason, and the seq of the event."""


class TracksOracle:
    """The tracks of a tenant at one place of a log, and the transitions of one consumer."""

    def __init__(self, tenant: str, consumer: str):
        self._tenant = tenant
        self._consumer = consumer
        self._spaces: dict[str, _Space] = {}
        self._due: dict[str, tuple[int, _Facts]] = {}
        """By id: the seq by which a transition was due, and what it says."""
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
            case PutSubscription() if edit.space in self._spaces:
                space = self._spaces[edit.space]
                transitions = space.end(edit.name) if edit.track is None else space.put(edit)
                self._note(space, transitions, seq)
            case DeleteSubscription() if edit.space in self._spaces:
                space = self._spaces[edit.space]
                self._note(space, space.end(edit.name), seq)
            case AdvanceTracks():
                space = self._spaces[edit.name]
                self._note(space, space.tracker.advance(moment_of(edit.moment)), seq)

    def events(self, head: EventsHead, rows: Sequence[Mapping[str, Any]], first: int) -> None:
        """Apply events, one after the other."""
        space = self._spaces.get(head.space) if head.tenant == self._tenant else None
        for seq, row in enumerate(rows, first) if space is not None else ():
            assert space is not None
            self._note(space, space.event(row, seq), seq)

    def _note(self, space: _Space, transitions: Transitions, seq: int) -> None:
        for transition in transitions:
            put = space.known[str(transition.subscription)]
            wanted = put.track or {}
            if put.consumer == self._consumer and transition.transition in wanted.get(
                "on", [transition.transition]
            ):
                key = space.keys[str(transition.key)]
                named = transition._replace(key=key, subscription=put.id)
                moments = micros_of(named.at), micros_of(named.since)
                kind = put.id, named.transition, key
                self._due[named.id] = seq, (*kind, *moments, named.reason, named.event or 0)

    def written(self, unit: Unit) -> Iterator[tuple[int, str, float]]:
        """Compare transitions in the log; yield seq, id and score of each of the consumer."""
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
        """Reject a log that lacks a transition, though it has later ones."""
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
        """Those, and ended ones."""
        self.keys: dict[str, str | int] = {}
        column = track.get("accuracy") or ""
        self._accuracy: str = column if isinstance(column, str) else next(iter(column.values()))

    def grow(self, space: Space) -> None:
        """Take a space that has more attributes or categories."""
        engine, saved = Engine(space), self.tracker.saved()
        for name, put in self.subscriptions.items():
            engine.subscribe(name, Filter.parse(put.filter, space, max_boxes=ANY_BOXES))
        self.tracker = Tracker.restored(saved, engine)

    def put(self, edit: PutSubscription) -> Transitions:
        """Add a subscription, or replace it."""
        engine, fields = self.tracker.engine, dict(edit.track or {})
        fields.pop("on", None)
        if "for" in fields:
            fields["for_"] = fields.pop("for")
        engine.upsert(edit.name, Filter.parse(edit.filter, engine.space, max_boxes=ANY_BOXES))
        self.tracker.set_rule(edit.name, Rule(**fields))
        self.subscriptions[edit.name] = self.known[edit.name] = edit
        return self._edited()

    def end(self, name: str) -> Transitions:
        """Remove a subscription, if it is there."""
        if self.subscriptions.pop(name, None) is not None:
            self.tracker.engine.unsubscribe(name)
            self.tracker.set_rule(name, None)
        return self._edited()

    def _edited(self) -> Transitions:
        nothing = pa.array([], _TEXT), pa.array([], pa.int64())
        points = encode_event({}, self.tracker.engine.space)[None][:0]
        return self.tracker.update_points(nothing[0], points, nothing[1])

    def event(self, row: Mapping[str, Any], seq: int) -> Transitions:
        """Take an event."""
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
    return (*kind, derived.at, derived.since, derived.reason, derived.seq)
