"""Tracker: transitions of objects, derived from their events and a live set.

    tracker = Tracker(engine, key="truck", time="at")
    tracker.update({"truck": "t1", "at": "2026-01-31T09:30:00Z", "price": 120})

docs/explanation/tracks.md has the rules. One thread at a time may use a tracker; others may edit
and use its engine meanwhile.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from rangecast.engine import Engine
from rangecast.errors import UsageError, abbreviate
from rangecast.kernels.arrays import F64, I64
from rangecast.model.display import counted
from rangecast.model.encoding.events import encode_event, encode_events, values_of
from rangecast.model.sets.ids import id_or_none
from rangecast.model.sets.members import Id
from rangecast.model.validation.flags import flag
from rangecast.results import separated
from rangecast.track.columns import Output
from rangecast.track.geometry.accuracy import Accuracy
from rangecast.track.keys import key_of, key_texts
from rangecast.track.machine import AS_ENTER, CONFIRMED, EDITED, FAR, NEVER
from rangecast.track.members import News, Subscriptions
from rangecast.track.moments import (
    Length,
    length_of,
    micros_of,
    moment_of,
    text_of_length,
    time_axis,
)
from rangecast.track.rules import Rule, check_rule
from rangecast.track.saved import TrackerState, load_tracker, save_tracker
from rangecast.track.state import State
from rangecast.track.transitions import KINDS, REASONS, Transition, Transitions, joined
from rangecast.track.waiting import Batch, Single, Waiting

_MIN_PRUNED = 4096
"""Subscriptions in use up to which none is looked for that is no longer."""


class Tracker:
    """Transitions of objects into and out of the subscriptions of an engine.

    key        column of events that identifies the object: integers or texts
    time       timestamp of the space that orders the events of an object
    rule       default rule, for subscriptions that have none of their own
    rules      subscription -> its own rule
    after      an object that was silent for longer has left everything
    lateness   how far behind the newest event an event may arrive; events wait this long for
               earlier ones. `None`: events of an object arrive in order, and none waits
    inside     also report each event of a stay as `inside`
    accuracy   column of events with the accuracy of their place, in metres for a location, in units
               for a point; or attribute -> column. An event that may be on either side of a border
               changes nothing
    """

    def __init__(
        self,
        engine: Engine,
        *,
        key: str,
        time: str,
        rule: Rule | None = None,
        rules: Mapping[Id, Rule] | None = None,
        after: Length | None = None,
        lateness: Length | None = None,
        inside: bool = False,
        accuracy: str | Mapping[str, str] | None = None,
    ):
        space = engine.space
        self.engine, self.key, self.time = engine, key, time
        self._axis = time_axis(space, time)
        if key == time:
            raise UsageError(f"key and time must be different columns; given for both: {key!r}")
        self._after = length_of("after", after)
        self._lateness = length_of("lateness", lateness, min=0)
        self._inside = flag("inside", inside)
        default = rule or Rule()
        for each in (default, *(rules or {}).values()):
            check_rule(each, space)
        self._accuracy = None if accuracy is None else Accuracy(space, accuracy)
        self._set = Subscriptions(engine, default, rules or {}, self._accuracy)
        self._state = State()
        self._waiting = Waiting()
        self._kind: type | None = None
        self._newest = self._watermark = NEVER
        self._next_timer = NEVER
        self._pruned = _MIN_PRUNED
        self._late = self._incomplete = 0

    def __repr__(self) -> str:
        stays = counted(self._state.stays, "stay")
        return f"<Tracker: {counted(len(self), 'object')} with {stays} in {self.engine!r}>"

    def __len__(self) -> int:
        """Return the number of objects that have a state."""
        return len(self._state)

    @property
    def late(self) -> int:
        """Number of events so far that came too late to change a state."""
        return self._late + self._state.late

    @property
    def repeated(self) -> int:
        """Number of events so far at the time of an earlier event of their object."""
        return self._state.repeated

    @property
    def incomplete(self) -> int:
        """Number of events so far without a key or a time."""
        return self._incomplete

    @property
    def waiting(self) -> int:
        """Number of events waiting for earlier ones."""
        return len(self._waiting)

    @property
    def watermark(self) -> datetime | None:
        """The moment before which no more events are expected; `None` if not set yet."""
        return None if self._watermark == NEVER else moment_of(self._watermark)

    @property
    def memory(self) -> int:
        """Size of the state in bytes: objects, stays and waiting events."""
        return self._state.memory + self._waiting.nbytes

    def inside(self, key: Id) -> list[Id]:
        """Return the subscriptions that an object is inside, in order of arrival."""
        key = key_of(key)
        slot = int(self._state.keys.find(pa.array([str(key)], pa.large_string()), add=False)[0])
        if slot < 0 or type(key) is not self._kind:
            return []
        numbers, flags = self._state.stays_of(slot)
        return self._set.ids(np.sort(numbers[(flags & CONFIRMED) != 0]))

    def set_rule(self, subscription: Id, rule: Rule | None) -> None:
        """Set the rule of a subscription, `None` for the default; stays continue under it."""
        if rule is not None:
            check_rule(rule, self.engine.space)
        self._set.set_rule(subscription, rule)
        self._next_timer = NEVER

    # ---- events

    def update(
        self, event: Mapping[str, Any], *, ignore_unknown: bool = False, nan: str = "error"
    ) -> list[Transition]:
        """Process one event; return the transitions known by now.

        The options are those of `Engine.match`.
        """
        values = dict(values_of(event))
        key, id_ = key_of(values.get(self.key)), id_or_none(values.get("id"))
        radius = None if self._accuracy is None else values.get(self._accuracy.column)
        for column in self.columns:
            if column not in self.engine.space.names:
                values.pop(column, None)
        news = self._set.news()  # before encoding: a string that a filter has is known by then
        point = encode_event(values, self.engine.space, ignore_unknown=ignore_unknown, nan=nan)
        if self._set.is_plain and isinstance(key, str | int) and not isinstance(key, bool):
            self._check_kind(int if isinstance(key, int) else str, key)
            parts = self._take_edits(news)
            transitions = self._take_one(key, point, id_)
            return [*joined(parts), *transitions] if parts else transitions
        radii = self._radii(pa.array([radius]))
        keys, ids = self._as_texts(pa.array([key])), pa.array([id_])
        return [*joined([*self._take_edits(news), *self._take(keys, point[None], ids, radii)])]

    def _take_one(self, key: Id, point: F64, known: Id | None) -> list[Transition]:
        """Like `_take`, for one event and with plain rules only."""
        time = float(point[self._axis])
        if not math.isfinite(time):
            self._incomplete += 1
            return []
        at = int(time)
        self._newest = max(self._newest, at)
        watermark = self._watermark
        if self._lateness is not None:
            watermark = max(watermark, self._newest - self._lateness)
        if at < watermark:
            self._late += 1
            return []
        numbers = self._set.match_one(point)
        if self._lateness is None:
            return self._apply_singles([Single(at, 0, key, known, numbers)])
        self._waiting.add_one(at, key, known, numbers)
        if watermark == self._watermark:
            return []
        due = self._waiting.take_singles(watermark)
        if due is None:
            return [*joined(self._move(watermark))]
        self._watermark = watermark
        transitions = self._apply_singles(due)
        return transitions + [each for part in self._run_timers(watermark) for each in part]

    def _apply_singles(self, events: Sequence[Single]) -> list[Transition]:
        """Like `_apply`, for a few events and with plain rules only."""
        transitions, slots = [], []
        rules, silence = self._set.rules, self._silence
        for at, _, key, known, numbers in events:
            arguments = str(key).encode(), at, numbers, rules, silence
            slot, out, count = self._state.apply_one(*arguments, inside=self._inside)
            slots.append(slot)
            for row in range(count):
                (id_,) = self._set.ids(out.subscription[row : row + 1])
                kind, reason = KINDS[out.kind[row]], REASONS[out.reason[row]]
                moments = moment_of(int(out.at[row])), moment_of(int(out.since[row]))
                event = known if out.event[row] >= 0 else None
                number = int(out.number[row])
                transitions.append(Transition(key, id_, kind, *moments, event, reason, number))
        if self._watermark != NEVER and slots:
            self._state.forget(self._forgotten(), np.array(slots))
        self._prune()
        return transitions

    def update_many(
        self,
        events: Any,
        *,
        ignore_unknown: bool = False,
        nan: str = "error",
        id: str | None = None,  # noqa: A002
    ) -> Transitions:
        """Process events in order; return the transitions known by now.

        Events are given as to `Engine.match_many`, with the column of the key. The result is that
        of one event at a time; only the order of transitions of different objects may differ.
        """
        news = self._set.news()
        ids, points = encode_events(
            events,
            self.engine.space,
            ignore_unknown=ignore_unknown,
            nan=nan,
            id=id,
            keep=self.columns,
        )
        known, kept = separated(ids)
        if kept is None:
            return joined(self._take_edits(news))
        radii = self._radii(kept.column(kept.num_columns - 1).combine_chunks())
        keys = self._as_texts(kept.column(0).combine_chunks())
        return joined([*self._take_edits(news), *self._take(keys, points, known, radii)])

    def update_points(
        self, keys: pa.Array, points: F64, ids: pa.Array, accuracy: pa.Array | None = None
    ) -> Transitions:
        """Process encoded events, (events, d), with their keys, ids and accuracy."""
        radii = None if accuracy is None else self._radii(accuracy)
        texts = self._as_texts(keys)
        parts = self._take_edits(self._set.news())
        return joined([*parts, *self._take(texts, points, ids, radii)])

    @property
    def columns(self) -> list[str]:
        """Event columns besides those of the space: the key, and the accuracy if any."""
        return [self.key] if self._accuracy is None else [self.key, self._accuracy.column]

    def _radii(self, column: pa.Array) -> F64 | None:
        return None if self._accuracy is None else self._accuracy.radii(column)

    def advance(self, moment: Any) -> Transitions:
        """Advance event time to a moment: no earlier event will arrive.

        moment   a datetime or an ISO 8601 text; one in the past changes nothing
        """
        return self._advance(micros_of(moment))

    def is_due(self, moment: Any) -> bool:
        """Return whether `advance` to a moment may apply an event or run a timer."""
        micros = micros_of(moment)
        if micros <= self._watermark:
            return False
        return self._waiting.is_due(micros) or (self._state.stays > 0 and micros > self._next_timer)

    def flush(self) -> Transitions:
        """Advance event time past the newest event, so that no event waits any more."""
        return self._advance(self._newest + 1 if self._newest > NEVER else NEVER)

    def _advance(self, moment: int) -> Transitions:
        parts = self._take_edits(self._set.news())
        if moment > self._watermark:
            parts += self._move(moment)
        return joined(parts)

    # ---- one step after the other

    def _take_edits(self, news: News | None) -> list[Transitions]:
        """End the stays with subscriptions that were removed."""
        rules = self._set.rules
        edits = self._set.refresh(news)
        if self._set.rules is not rules:
            self._next_timer = NEVER
        if edits is None:
            return []
        if len(edits.removed):
            self._waiting = self._waiting.without(edits.removed)
        out = self._state.edit(edits.removed, edits.edited)
        return [self._named(out, None)]

    def _take(
        self, texts: pa.Array, points: F64, ids: pa.Array, radii: F64 | None
    ) -> list[Transitions]:
        """Process events, except incomplete and late ones."""
        times = points[:, self._axis]
        good = np.isfinite(times) & np.asarray(texts.is_valid())
        self._incomplete += int(np.count_nonzero(~good))
        micros = np.where(good, times, 0).astype(np.int64)
        newest = np.where(good, micros, NEVER)
        newest = np.maximum(np.maximum.accumulate(newest), self._newest)
        is_late = good & (micros < np.maximum(self._watermark, self._behind(newest)))
        self._late += int(np.count_nonzero(is_late))
        if len(newest):
            self._newest = int(newest[-1])
        rows = np.flatnonzero(good & ~is_late)
        taken = pa.array(rows)
        points, radii = points[rows], None if radii is None else radii[rows]
        matched = self._set.match(points, micros[rows], radii)
        kept = np.zeros((len(rows), 0))
        if self._set.longest_gap:
            kept = np.column_stack([points, np.zeros(len(rows)) if radii is None else radii])
        batch = Batch(texts.take(taken), micros[rows], ids.take(taken), matched, kept)
        if self._lateness is None:
            return [self._apply(batch)]
        self._waiting.add(batch)
        return self._move(max(self._watermark, int(self._behind(np.array([self._newest]))[0])))

    def _behind(self, newest: I64) -> I64:
        """Return the watermark for the newest event times."""
        if self._lateness is None:
            return np.full(len(newest), NEVER)
        return np.where(newest == NEVER, NEVER, newest - self._lateness)

    def _move(self, watermark: int) -> list[Transitions]:
        """Advance the watermark: apply the events before it, then run the timers that are due."""
        parts = []
        self._watermark = watermark
        batch = self._waiting.take(watermark)
        if len(batch.times):
            parts.append(self._apply(batch))
        return parts + self._run_timers(watermark)

    def _run_timers(self, watermark: int) -> list[Transitions]:
        """Run the timers of all objects that are due before the watermark."""
        parts = []
        if watermark > self._next_timer:
            out, following = self._state.run_timers(watermark, self._set.rules, self._silence)
            parts.append(self._named(out, None))
            shortest = self._set.shortest_timer(self._silence)
            shortest = FAR - max(watermark, 0) if shortest is None else shortest
            self._next_timer = min(following, watermark + shortest)
            self._state.forget(self._forgotten())
        return parts

    def _apply(self, batch: Batch) -> Transitions:
        """Apply events in order."""
        slots = self._state.slots_of(batch.keys)
        matched, longest = batch.matched, self._set.longest_gap
        if longest and batch.points.shape[1]:
            arguments = slots, batch.times, batch.points
            paths = self._state.paths(*arguments, longest, self._silence)
            matched = self._set.crossed(matched, paths, batch.times)
        out = self._state.apply(
            slots, batch.times, matched, self._set.rules, self._silence, inside=self._inside
        )
        named = self._named(out, batch.ids)
        self._state.forget(self._forgotten(), slots)
        self._prune()
        return named

    def _prune(self) -> None:
        """Forget subscriptions that no object is inside of, once there are many."""
        if len(self._set) > self._pruned:
            in_use = [self._state.subscriptions(), self._waiting.subscriptions()]
            self._set.keep(np.unique(np.concatenate(in_use)))
            self._pruned = max(2 * len(self._set), _MIN_PRUNED)

    @property
    def _silence(self) -> int:
        return -1 if self._after is None else self._after

    def _forgotten(self) -> int:
        """Return the moment before which objects without later events may be forgotten."""
        held = self._set.longest_gap
        if (self._set.rules.first != AS_ENTER).any():
            if self._after is None:
                return NEVER
            held = max(held, self._after)
        return self._watermark if self._watermark == NEVER else self._watermark - held

    def _as_texts(self, keys: pa.Array) -> pa.Array:
        """Return keys as text, after checking their type."""
        texts, first = key_texts(self.key, keys)
        if first is not None:
            self._check_kind(int if isinstance(first, int) else str, first)
        return texts

    def _check_kind(self, kind: type, key: Id) -> None:
        """Reject a key whose type differs from that of earlier keys."""
        if self._kind is not None and kind is not self._kind:
            shown = f"{abbreviate(key)}, and others before"
            raise UsageError(f"keys must be all integers or all strings; given: {shown}")
        self._kind = kind

    def _named(self, out: Output, ids: pa.Array | None) -> Transitions:
        """Return the output of a kernel as transitions."""
        keys: list[Any] = self._state.keys.texts(out.slot).to_pylist()
        if self._kind is int:
            keys = [*map(int, keys)]
        events: list[Id | None] = [None] * len(keys)
        if ids is not None:
            events = ids.take(pa.array(out.event, mask=out.event < 0)).to_pylist()
        columns = out.kind, out.reason, out.at, out.since, out.number
        return Transitions(keys, self._set.ids(out.subscription), events, columns)

    # ---- snapshots

    def save(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Write the state, the waiting events and all settings as a snapshot folder, atomically.

        Subscriptions aren't included: save the engine, too.
        """
        save_tracker(path, self.saved(), overwrite=overwrite)

    def saved(self) -> TrackerState:
        """Return a copy of the state, the waiting events and all settings."""
        content, waiting = self._state.content(), self._waiting.whole()
        numbers = np.unique(np.concatenate([content.subscription, waiting.matched.subscription]))
        settings = {
            "key": self.key,
            "time": self.time,
            "rule": self._set.default.definition(),
            "rules": [[id_, rule.definition()] for id_, rule in self._set.by_id.items()],
            "after": text_of_length(self._after),
            "lateness": text_of_length(self._lateness),
            "inside": self._inside,
            "accuracy": None if self._accuracy is None else self._accuracy.definition(),
        }
        progress = {
            "newest": self._newest,
            "watermark": self._watermark,
            "late": self.late,
            "repeated": self.repeated,
            "incomplete": self._incomplete,
            "has_texts": None if self._kind is None else self._kind is str,
        }
        gone, edited = self._set.pending(numbers)
        content.flags[np.isin(content.subscription, edited)] |= EDITED
        ids = self._set.ids(numbers)
        return TrackerState(content, waiting, numbers, ids, gone, settings, progress)

    @classmethod
    def open(cls, path: str | Path, engine: Engine) -> Tracker:
        """Return a tracker that continues from a saved one.

        engine   a live set with the same subscription ids; missing ones count as removed
        """
        return cls.restored(load_tracker(path), engine)

    @classmethod
    def restored(cls, saved: TrackerState, engine: Engine, edited: Collection[Id] = ()) -> Tracker:
        """Return a tracker that continues from a saved state, as `open` does.

        edited   subscriptions whose filter has changed since the save
        """
        settings, progress = dict(saved.settings), saved.progress
        settings["rule"] = Rule(**settings["rule"])
        settings["rules"] = {id_: Rule(**rule) for id_, rule in settings["rules"]}
        tracker = cls(engine, **settings)
        numbers = tracker._set.restore(saved.ids, saved.gone)
        content, waiting = saved.renumbered(numbers, len(engine.space) + 1)
        if edited:
            changed = numbers[[id_ in edited for id_ in saved.ids]]
            flags = content.flags | np.where(np.isin(content.subscription, changed), EDITED, 0)
            content = content._replace(flags=flags.astype(np.uint8))
        tracker._state = State(content)
        tracker._waiting = Waiting(waiting)
        tracker._newest, tracker._watermark = progress["newest"], progress["watermark"]
        tracker._late, tracker._incomplete = progress["late"], progress["incomplete"]
        tracker._state.count_repeated(progress["repeated"])
        has_texts = progress["has_texts"]
        tracker._kind = None if has_texts is None else str if has_texts else int
        return tracker
