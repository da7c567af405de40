"""Replay of past transitions for a consumer that seeks back with its current subscriptions.

Transitions are derived again from the log, as if the tracked subscriptions had existed since the
first event in the log. All transitions caused by a unit have the seq of its last event.
"""

from __future__ import annotations

import numpy as np

from rangecast.server.delivery.messages import Message, TransitionMessage
from rangecast.server.encoding import points_of, rows_of
from rangecast.server.log.base import Log, Unit
from rangecast.server.state.edits import EDITS, EVENTS, AdvanceTracks, edits_of, events_of
from rangecast.server.state.entries import Change, Consumer, ConsumerPolicy, SpaceEntry
from rangecast.server.state.tracks.spaces import SpaceTracks
from rangecast.server.state.tracks.transitions import Derived, event_lines

_CHUNK = 4 << 20
"""Bytes of the log that are read at a time."""


class TrackReplay:
    """Replays the log from its beginning, deriving the transitions of one consumer."""

    def __init__(self, log: Log, consumer: Consumer, source: SpaceEntry):
        assert source.track is not None
        self.now_from = consumer.now_from
        self._log = log
        self._source = source
        self._tracks = SpaceTracks(source, source.space, source.track)
        versions = [
            version
            for version in list(consumer.versions)
            if version.track is not None and version.born <= consumer.now_from < version.died
        ]
        policy = ConsumerPolicy(consumer.number, consumer.name, consumer.policy)
        self._tracks.apply(Change(source, policy=policy))
        versions.sort(key=lambda version: version.number)  # by arrival
        self._tracks.apply(Change(source, put=versions))
        self._upto = log.first - 1

    def is_before(self, unit: Unit) -> bool:
        """Return whether the replay has not yet reached the end of a unit."""
        return self._upto < unit.last

    def messages(self, unit: Unit) -> list[tuple[Message, float]]:
        """Return the transitions that a unit causes, each with its score."""
        while self._upto < unit.first - 1:
            for earlier in self._log.read(self._upto, _CHUNK):
                if earlier.first >= unit.first:
                    self._upto = unit.first - 1
                    break
                self._derived(earlier)
                self._upto = earlier.last
        transitions = self._derived(unit)
        self._upto = unit.last
        lines = event_lines(self._log, {derived.seq for derived in transitions if derived.seq})
        return [
            (
                TransitionMessage.of(unit.last, transition, lines.get(transition.seq, b"null")),
                transition.score,
            )
            for transition in transitions
        ]

    def _derived(self, unit: Unit) -> list[Derived]:
        entry, tracks, derived = self._source, self._tracks, list[Derived]()
        if unit.kind == EVENTS:
            head, lines = events_of(unit)
            if (head.tenant, head.space) == (entry.tenant, entry.name):
                rows = rows_of(lines, head.form)
                seqs = np.arange(unit.first, unit.last + 1)
                derived += tracks.events(rows, points_of(rows, tracks.space), seqs)
        elif unit.kind == EDITS:
            for edit in edits_of(unit):
                is_mine = (edit.tenant, edit.name) == (entry.tenant, entry.name)
                if isinstance(edit, AdvanceTracks) and is_mine:
                    derived += tracks.apply(Change(entry, moment=edit.moment))
        tracks.pending.clear()  # nothing of it is written
        return derived
