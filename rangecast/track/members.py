"""Subscriptions as a tracker sees them: arrival numbers, ids, and the effects of edits.

An arrival number identifies a subscription while it lives: a replacement keeps it, and it survives
rebuilds of the live set. A subscription that is removed and added again gets a new one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rangecast.kernels.arrays import I32, I64
from rangecast.match.live import match_live, match_one_live
from rangecast.model.attributes.base import MISSING
from rangecast.model.sets.members import Id
from rangecast.model.sets.rowstore import terms_of
from rangecast.track.columns import MatchColumns, Rules
from rangecast.track.geometry.accuracy import Accuracy
from rangecast.track.geometry.crossings import Paths, crossings
from rangecast.track.geometry.extents import Extents
from rangecast.track.local_time import Schedule
from rangecast.track.machine import CROSSED, ENDS, MATCHED, SECOND, UNSURE
from rangecast.track.rules import Rule, rule_table, second_condition
from rangecast.track.waiting import merged

if TYPE_CHECKING:
    from rangecast.engine import Engine
    from rangecast.kernels.arrays import F64
    from rangecast.model.filters.regions import Box
    from rangecast.rebuilt import View


class Edits(NamedTuple):
    """Subscriptions in use that were removed, and those whose filter was edited."""

    removed: I64
    edited: I64


class News(NamedTuple):
    """Edits since the last look, to be processed."""

    view: View
    rebuilds: int
    changed: dict[int, tuple[Id, int]]
    """Number -> id and row of the subscriptions in use that an edit may have changed."""
    rows: dict[Id, int]
    """Their rows now; -1: removed."""
    ruled: dict[Id, int]
    """The same, of subscriptions whose rule or second condition an edit may affect."""


class Subscriptions:
    """The live set of a tracker as of the last edit that it has seen."""

    def __init__(
        self, engine: Engine, default: Rule, rules: Mapping[Id, Rule], accuracy: Accuracy | None
    ):
        self._engine = engine
        self._space = engine.space
        self._accuracy = accuracy
        self._extents = Extents(engine)
        """Extents of subscriptions with a `cross` rule, or of all if events have an accuracy."""
        self._second = type(engine)(engine.space)
        """Second conditions of rules, by number."""
        self.default = default
        self.by_id = dict(rules)
        self._view: View = engine._view
        self._rebuilds: int | None = None
        """Rebuilds of the live set up to the view; `None`: everything must be looked at again."""
        self._in_use: dict[int, tuple[Id, int]] = {}
        """Number -> id and row of a subscription with stays, or that a waiting event matches."""
        self._ruled: dict[Id, tuple[int, int]] = {}
        """Id -> number and row of those that have a rule of their own or a condition."""
        self._numbered: dict[int, Id] = {}
        """Number -> id of those that have a condition or an extent."""
        self._new_rules: set[Id] = set()
        """Subscriptions whose rule has changed since the last look."""
        self.rules: Rules = rule_table(default, {})
        self._schedules: dict[str, Schedule] = {}
        self.longest_gap = 0
        """Microseconds of the longest path that a rule looks at; 0: none does."""
        self._update_totals()
        self.refresh(self.news())

    def __len__(self) -> int:
        return len(self._in_use)

    def rule(self, id_: Id) -> Rule:
        """Return the rule of a subscription."""
        return self.by_id.get(id_, self.default)

    def news(self) -> News | None:
        """Return the edits since the last call of `refresh`, without processing them."""
        engine = self._engine
        if engine._view is self._view and self._rebuilds is not None and not self._new_rules:
            return None
        with engine._edits:  # the view, the members and the count of rebuilds belong together
            old, view = self._view, engine._view
            changed = {number: self._in_use[number] for number in self._changed(old, view)}
            rows = {id_: self._row(id_) for id_, _ in changed.values()}
            ruled = {id_: self._row(id_) for id_ in self._with_rules(old, view)}
            return News(view, engine.rebuild_count, changed, rows, ruled)

    def refresh(self, news: News | None) -> Edits | None:
        """Process edits; return their effect, `None` if there is none."""
        if news is None:
            return None
        old, (view, self._rebuilds, changed, rows, ruled) = self._view, news
        self._view = view
        removed, edited = [], []
        for number, (id_, row) in changed.items():
            new = rows[id_]
            if new < 0 or view.rows.arrival[new] != number:
                removed.append(number)
                continue
            if terms_of(old.rows, row) != terms_of(view.rows, new):
                edited.append(number)
            self._in_use[number] = id_, new
        self._apply_rules(old, ruled)
        if not removed and not edited:
            return None
        return Edits(np.array(sorted(removed), np.int64), np.array(sorted(edited), np.int64))

    def _row(self, id_: Id) -> int:
        return self._engine._members.row(id_) if id_ in self._engine else -1

    def _changed(self, old: View, view: View) -> Iterable[int]:
        """Return the subscriptions in use that an edit may have changed."""
        if self._engine.rebuild_count != self._rebuilds:
            return list(self._in_use)
        dead = view.rows.arrival[view.rows.deaths[old.dead : view.dead]].tolist()
        return {number for number in dead if number in self._in_use}

    def _with_rules(self, old: View, view: View) -> set[Id]:
        """Return the subscriptions whose rule or second condition an edit may affect."""
        everything = bool(self.default.second or self._has_extent(self.default))
        if self._engine.rebuild_count != self._rebuilds:
            return {*self._ruled, *self.by_id, *(self._engine if everything else ())}
        ids = view.rows.ids
        dead = ids[view.rows.deaths[old.dead : view.dead]].tolist()
        touched = {*dead, *ids[old.count : view.count].tolist()}
        return {id_ for id_ in touched if everything or id_ in self.by_id} | self._new_rules

    def _apply_rules(self, old: View, rows: Mapping[Id, int]) -> None:
        """Update rules and second conditions to the current subscriptions."""
        view, renewed = self._view, False
        gone: list[int] = []
        extents: dict[int, list[Box]] = {}
        for id_, row in rows.items():
            known = self._ruled.get(id_)
            number = -1 if row < 0 else int(view.rows.arrival[row])
            is_same = known is not None and known[0] == number and id_ not in self._new_rules
            if row >= 0:
                self._ruled[id_] = number, row
            else:
                self._ruled.pop(id_, None)
            if known is not None and is_same:
                before = terms_of(old.rows, known[1])
                if known[1] == row or before == terms_of(view.rows, row):
                    continue
            if known is not None and self._numbered.pop(known[0], None) is not None:
                gone.append(known[0])
                if known[0] in self._second:
                    self._second.unsubscribe(known[0])
            rule = self.rule(id_)
            renewed = renewed or (not is_same and (id_ in self.by_id or id_ in self._new_rules))
            if row < 0:
                continue
            terms = terms_of(view.rows, row)
            if rule.second:
                self._second.subscribe(number, second_condition(rule, self._space, terms))
                self._numbered[number] = id_
            if self._has_extent(rule):
                extents[number] = terms
                self._numbered[number] = id_
        self._extents.edit(gone, extents)
        self._new_rules.clear()
        if renewed:
            own = [
                (self._ruled[id_][0], rule)
                for id_, rule in self.by_id.items()
                if id_ in self._ruled
            ]
            self.rules = rule_table(self.default, dict(own))

    def set_rule(self, subscription: Id, rule: Rule | None) -> None:
        """Set the rule of a subscription; `None`: use the default rule."""
        self.by_id.pop(subscription, None)
        if rule is not None:
            self.by_id[subscription] = rule
        self._new_rules.add(subscription)
        self._update_totals()

    def _has_extent(self, rule: Rule) -> bool:
        return bool(rule.gap) or self._accuracy is not None

    def _update_totals(self) -> None:
        """Update what depends on all rules."""
        rules = self.default, *self.by_id.values()
        self.longest_gap = max(rule.gap for rule in rules)
        self._schedules = {
            rule.schedule: rule.hours for rule in rules if rule.schedule and rule.hours
        }
        has_second = any(rule.second for rule in rules)
        self.is_plain = not (has_second or self.longest_gap or self._schedules or self._accuracy)
        """Whether only filters are to be matched."""

    def shortest_timer(self, silence: int) -> int | None:
        """Return the shortest timer of all rules and of silence, in microseconds."""
        others = [silence, self.longest_gap]
        lengths = np.concatenate([self.rules.confirm, self.rules.dwell, others])
        return int(lengths[lengths > 0].min()) if (lengths > 0).any() else None

    def match_one(self, point: F64) -> I64:
        """Return the subscriptions that match one event, ascending; requires `is_plain`.

        All of them are marked as in use.
        """
        rows = match_one_live(self._view, point[None])
        stored = self._view.rows
        numbers = stored.arrival[rows]
        if len(rows) > 1:
            order = np.argsort(numbers)
            numbers, rows = numbers[order], rows[order]
        for number, row in zip(numbers.tolist(), rows.tolist(), strict=True):
            self._in_use[number] = stored.ids[row : row + 1].tolist()[0], row
        return numbers

    def match(self, points: F64, times: I64, radii: F64 | None) -> MatchColumns:
        """Match events with the set as of the last edit seen, and mark the matches as in use.

        radii   accuracy of each event, if available
        """
        matches = match_live(self._view, points)
        numbers = self._view.rows.arrival[matches.rows]
        self._use(numbers, matches.rows)
        parts = [(matches.events, numbers, MATCHED)]
        if len(self._second):
            view = self._second._view
            second = match_live(view, points)
            parts.append((second.events, view.rows.ids[second.rows].astype(np.int64), SECOND))
            self._use_numbered(parts[-1][1])
        if self._accuracy is not None and radii is not None and (radii > 0).any():
            unsure = self._accuracy.unsure(self._extents, points, radii)
            parts.append((*unsure, UNSURE))
            self._use_numbered(unsure[1])
        return self._scheduled(merged(len(points), parts), times)

    def crossed(self, matched: MatchColumns, paths: Paths, times: I64) -> MatchColumns:
        """Return the matches of events, merged with the crossings of the paths to them."""
        # Only to sift: a stay rules a crossing out, too. Texts of then may be gone.
        start = paths.start.copy()
        start[:, [*self._space.patterns.values()]] = MISSING
        inside = match_live(self._view, start)
        ends = np.diff(matched.offsets)[paths.event]
        first = matched.offsets[paths.event]
        later = np.repeat(first - np.cumsum(ends) + ends, ends) + np.arange(ends.sum())
        later = later[matched.flags[later] & MATCHED != 0]
        after = np.searchsorted(first + ends, later, side="right")
        which, numbers = crossings(
            self._extents,
            self._accuracy,
            lambda number: self.rule(self._numbered[number]),
            paths,
            (
                np.concatenate([inside.events, after]),
                np.concatenate([self._view.rows.arrival[inside.rows], matched.subscription[later]]),
            ),
        )
        self._use_numbered(numbers)
        events = np.repeat(np.arange(len(matched.offsets) - 1), np.diff(matched.offsets))
        parts = [(paths.event[which], numbers, CROSSED)]
        for flag in (MATCHED, SECOND, UNSURE):
            flagged = matched.flags & flag != 0
            parts.append((events[flagged], matched.subscription[flagged], flag))
        return self._scheduled(merged(len(times), parts), times)

    def _scheduled(self, matched: MatchColumns, times: I64) -> MatchColumns:
        """Return the matches without those outside the schedule of their rule."""
        if not self._schedules:
            return matched
        offsets, numbers, flags = matched
        events = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
        held = {text: hours.holds(times) for text, hours in self._schedules.items()}
        for at, (event, number) in enumerate(zip(events.tolist(), numbers.tolist(), strict=True)):
            rule = self.rule(self._in_use[number][0])
            if rule.schedule is not None and not held[rule.schedule][event]:
                # Outside of its hours a filter matches nothing; `until` is a filter of its own.
                flags[at] &= SECOND if rule.second == ENDS else 0
        return matched

    def _use_numbered(self, numbers: I64) -> None:
        for number in set(numbers.tolist()):
            id_ = self._numbered[number]
            self._in_use[number] = id_, self._ruled[id_][1]

    def _use(self, numbers: I64, rows: I32) -> None:
        distinct, first = np.unique(numbers, return_index=True)
        in_use = self._in_use
        # Those in use have their row of now: `refresh` has seen to it.
        new = [at for at, number in enumerate(distinct.tolist()) if number not in in_use]
        if new:
            used = rows[first[new]]
            named = zip(self._view.rows.ids[used].tolist(), used.tolist(), strict=True)
            in_use.update(zip(distinct[new].tolist(), named, strict=True))

    def keep(self, numbers: I64) -> None:
        """Mark only these subscriptions as in use."""
        self._in_use = {number: self._in_use[number] for number in numbers.tolist()}

    def ids(self, numbers: I64) -> list[Id]:
        """Return the ids of subscriptions in use."""
        in_use = self._in_use
        return [in_use[number][0] for number in numbers.tolist()]

    def pending(self, numbers: I64) -> tuple[list[bool], I64]:
        """Return which numbers are gone from the live set, and which `refresh` will find edited.

        The edits aren't processed by this call.
        """
        gone, edited = [], []
        with self._engine._edits:
            view = self._engine._view
            for number in numbers.tolist():
                id_, row = self._in_use[number]
                new = self._row(id_)
                gone.append(new < 0 or int(view.rows.arrival[new]) != number)
                if not gone[-1] and terms_of(self._view.rows, row) != terms_of(view.rows, new):
                    edited.append(number)
        return gone, np.array(edited, np.int64)

    def restore(self, ids: list[Id], gone: list[bool]) -> I64:
        """Add subscriptions of a saved tracker; return their numbers, negative if gone."""
        numbers = []
        with self._engine._edits:
            self._view, self._rebuilds = self._engine._view, None
            for index, (id_, is_gone) in enumerate(zip(ids, gone, strict=True)):
                row = -1 if is_gone else self._row(id_)
                number = index - len(ids) if row < 0 else int(self._view.rows.arrival[row])
                self._in_use[number] = id_, row
                numbers.append(number)
        return np.array(numbers, np.int64)
