"""Tracks by the letter of the rules: whole histories in plain Python, one tick of time at a time.

A history is a list of steps. `expected` derives its transitions without any code of the package;
`actual` gives the same steps to a `Tracker`, in batches and with saves in between as they say.
"""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from rangecast import Engine, Number, Rule, Space, Timestamp, Tracker

START = datetime(2026, 1, 1, tzinfo=UTC)
ORDER = {"exit": 0, "cross": 1, "enter": 2, "inside": 3, "dwell": 4}
Span = tuple[int, int]


class Step(NamedTuple):
    """A step and what it takes.

    event: key, tick, value, id, accuracy. subscribe, replace: id, span. unsubscribe: id.
    advance: tick. flush, save: nothing.
    """

    do: str
    given: tuple[Any, ...] = ()


class RuleOf(NamedTuple):
    """A rule, in ticks; `until` is a span, `margin` a number."""

    for_: int = 0
    dwell: int = 0
    first: str = "enter"
    margin: int = 0
    until: Span | None = None
    cross: int = 0


@dataclass
class History:
    """Steps, and the settings of the tracker that takes them."""

    steps: list[Step]
    rule: RuleOf = field(default_factory=RuleOf)
    rules: dict[str, RuleOf] = field(default_factory=dict)
    after: int | None = None
    lateness: int | None = None
    inside: bool = False
    accuracy: bool = False


class Row(NamedTuple):
    """A transition as both sides say it."""

    key: str
    at: int
    number: int
    subscription: str
    transition: str
    since: int
    event: int | None
    reason: str


# ---- the oracle


@dataclass
class Stay:
    since: int
    is_first: bool
    signal: bool = True
    confirmed: bool = False
    dwelt: bool = False
    edited: bool = False
    left: int = 0


@dataclass
class Thing:
    """An object: its clock, and its stays by (arrival, subscription)."""

    key: str
    last: int | None = None
    now: int | None = None
    stamp: int | None = None
    """Time of the last event or timer."""
    value: int = 0
    error: int = 0
    """Of the last event."""
    stays: dict[tuple[int, str], Stay] = field(default_factory=dict)


class Oracle:
    def __init__(self, history: History):
        self.h = history
        self.rows: list[Row] = []
        self.filters: dict[str, tuple[int, Span]] = {}
        self.seen: dict[str, tuple[int, Span]] = {}
        self.arrivals = 0
        self.things: dict[str, Thing] = {}
        self.waiting: list[tuple[int, int, str, int, dict[str, Any], Span]] = []
        self.newest: int | None = None
        self.watermark: int | None = None
        self.late = self.repeated = 0
        self.counts: dict[tuple[str, int], int] = defaultdict(int)

    def rule(self, name: str) -> RuleOf:
        return self.h.rules.get(name, self.h.rule)

    def run(self) -> list[Row]:
        for step in self.h.steps:
            getattr(self, step.do)(*step.given)
        return self.rows

    def subscribe(self, name: str, span: Span) -> None:
        self.filters[name] = self.arrivals, span
        self.arrivals += 1

    def replace(self, name: str, span: Span) -> None:
        self.filters[name] = self.filters[name][0], span

    def unsubscribe(self, name: str) -> None:
        del self.filters[name]

    def save(self) -> None:
        pass

    def look(self) -> None:
        """Take in the edits since the last call."""
        for name, (arrival, span) in self.seen.items():
            now = self.filters.get(name)
            for thing in self.things.values():
                stay = thing.stays.get((arrival, name))
                if stay and (now is None or now[0] != arrival):
                    del thing.stays[arrival, name]
                    if stay.confirmed:
                        group = [("exit", arrival, name, stay.since, None, "removed")]
                        self.emit(thing, thing.stamp, group)
                elif stay and now[1] != span:
                    stay.edited = True
            if now is None or now[0] != arrival:
                for one in self.waiting:
                    one[4].pop((arrival, name), None)
        self.seen = dict(self.filters)

    def event(self, key: str, tick: int, value: int, number: int, error: int) -> None:
        error = error if self.h.accuracy else 0
        self.look()
        if self.newest is None or tick > self.newest:
            self.newest = tick
        floor = self.watermark
        if self.h.lateness is not None:
            floor = max(self.newest - self.h.lateness, -1000 if floor is None else floor)
        if floor is not None and tick < floor:
            self.late += 1
            return
        matches = {}
        for name, (arrival, (lo, hi)) in self.filters.items():
            rule = self.rule(name)
            second = None
            if rule.margin:
                second = lo - rule.margin <= value <= hi + rule.margin
            if rule.until:
                second = not rule.until[0] <= value <= rule.until[1]
            matches[arrival, name] = (lo <= value <= hi, second, unsure(lo, hi, value, error))
        place = value, error
        if self.h.lateness is None:
            self.apply(tick, key, number, matches, place)
            return
        self.waiting.append((tick, len(self.waiting), key, number, matches, place))
        self.move(floor)

    def advance(self, tick: int) -> None:
        self.look()
        if self.watermark is None or tick > self.watermark:
            self.move(tick)

    def flush(self) -> None:
        self.look()
        if self.newest is not None:
            self.advance(self.newest + 1)

    def move(self, watermark: int) -> None:
        self.watermark = watermark
        ready = sorted((e for e in self.waiting if e[0] < watermark), key=lambda e: e[0])
        self.waiting = [e for e in self.waiting if e[0] >= watermark]
        for tick, _, key, number, matches, place in ready:
            self.apply(tick, key, number, matches, place)
        for thing in self.things.values():
            self.pass_time(thing, watermark - 1)

    def pass_time(self, thing: Thing, to: int) -> None:
        """Let the ticks after the last one pass, up to this one; nothing happens at them."""
        while thing.now is not None and thing.now < to:
            if not thing.stays:
                break
            thing.now += 1
            group = self.timers(thing, thing.now)
            if group:
                self.emit(thing, thing.now, group)
        if thing.now is not None and thing.stays:
            thing.now = max(thing.now, to)

    def timers(self, thing: Thing, tick: int) -> list[Any]:
        group = []
        silent = self.h.after is not None and tick - thing.last >= self.h.after
        for (arrival, name), stay in list(thing.stays.items()):
            rule = self.rule(name)
            if silent:
                if stay.confirmed:
                    group.append(("exit", arrival, name, stay.since, None, "silent"))
                del thing.stays[arrival, name]
                continue
            if not stay.confirmed and tick - stay.since >= rule.for_:
                stay.confirmed = True
                thing.stamp = tick
                kind = rule.first if stay.is_first else "enter"
                if kind != "silent":
                    group.append((kind, arrival, name, stay.since, None, "time"))
            elif stay.confirmed and not stay.signal and tick - stay.left >= rule.for_:
                reason = "edited" if stay.edited else "time"
                group.append(("exit", arrival, name, stay.since, None, reason))
                del thing.stays[arrival, name]
                continue
            due = stay.confirmed and stay.signal and not stay.dwelt
            if due and rule.dwell and tick - stay.since >= rule.dwell:
                stay.dwelt = True
                group.append(("dwell", arrival, name, stay.since, None, "time"))
        return group

    def crossed(self, thing: Thing, tick: int, value: int, had: set[Any]) -> list[Any]:
        """Return what a path has met since the last event; it must be applied by then."""
        found = []
        gap = tick - thing.last
        for name, (arrival, (lo, hi)) in self.filters.items():
            is_met = max(min(thing.value, value), lo) <= min(max(thing.value, value), hi)
            is_met = is_met and not lo <= thing.value <= hi
            is_met = is_met and not unsure(lo, hi, thing.value, thing.error)
            if is_met and 0 < gap <= self.rule(name).cross and (arrival, name) not in had:
                found.append((arrival, name))
        return found

    def apply(self, tick: int, key: str, number: int, matches: dict[Any, Any], place: Span) -> None:
        thing = self.things.setdefault(key, Thing(key))
        if thing.last is not None and tick <= thing.last:
            if tick == thing.last:
                self.repeated += 1
            else:
                self.late += 1
            return
        self.pass_time(thing, tick - 1)
        is_first = thing.last is None or (
            self.h.after is not None and tick - thing.last > self.h.after
        )
        had = {*thing.stays}
        paths = [] if is_first else self.crossed(thing, tick, place[0], had)
        before = thing.last
        thing.last = thing.now = thing.stamp = tick
        thing.value, thing.error = place
        group: list[Any] = []
        for arrival, name in paths:
            matched, _, doubt = matches.get((arrival, name), (False, None, False))
            if not matched and not doubt:
                group.append(("cross", arrival, name, before, number, "event"))
        for (arrival, name), stay in list(thing.stays.items()):
            rule = self.rule(name)
            # An event matches nothing that came after it.
            unknown = False, rule.until is not None, False
            matched, second, doubt = matches.get((arrival, name), unknown)
            if doubt:
                continue
            inside = matched or (stay.signal and bool(second))
            if inside:
                stay.signal, stay.edited = True, False
                if stay.confirmed and self.h.inside:
                    group.append(("inside", arrival, name, stay.since, number, "event"))
            elif stay.signal:
                if stay.confirmed and rule.for_:
                    stay.signal, stay.left = False, tick
                    continue
                del thing.stays[arrival, name]
                if stay.confirmed:
                    reason = "edited" if stay.edited else "event"
                    group.append(("exit", arrival, name, stay.since, number, reason))
        for (arrival, name), (matched, _, doubt) in matches.items():
            if matched and not doubt and (arrival, name) not in had:
                stay = thing.stays[arrival, name] = Stay(tick, is_first)
                rule = self.rule(name)
                if not rule.for_:
                    stay.confirmed = True
                    kind = rule.first if is_first else "enter"
                    if kind != "silent":
                        group.append((kind, arrival, name, tick, number, "event"))
        self.emit(thing, tick, group + self.timers(thing, tick))

    def emit(self, thing: Thing, at: int, group: list[Any]) -> None:
        thing.stamp = at
        for kind, _, name, since, number, reason in sorted(
            group, key=lambda one: (ORDER[one[0]], one[1])
        ):
            place = self.counts[thing.key, at]
            self.counts[thing.key, at] += 1
            self.rows.append(Row(thing.key, at, place, name, kind, since, number, reason))


def unsure(lo: int, hi: int, value: int, error: int) -> bool:
    """Return whether a value with an error may be inside a span as well as outside it."""
    values = range(value - error, value + error + 1)
    return any(lo <= one <= hi for one in values) and not all(lo <= one <= hi for one in values)


# ---- the tracker


def text(span: Span) -> str:
    return f"value between {span[0]} and {span[1]}"


def length(ticks: int | None) -> str | None:
    return None if ticks is None else f"{ticks} s"


def moment(tick: int) -> datetime:
    return START + timedelta(seconds=tick)


def tick_of(given: datetime) -> int:
    return int((given - START).total_seconds())


def rule_of(rule: RuleOf) -> Rule:
    return Rule(
        for_=length(rule.for_ or None),
        dwell=length(rule.dwell or None),
        first=rule.first,
        margin={"value": rule.margin} if rule.margin else None,
        until=text(rule.until) if rule.until else None,
        cross=length(rule.cross or None),
    )


def row_of(one: Any) -> Row:
    at, since = tick_of(one.at), tick_of(one.since)
    ids = one.subscription, one.transition
    return Row(one.key, at, one.number, *ids, since, one.event, one.reason)


def make(history: History, kind: type[Tracker] = Tracker) -> Tracker:
    engine = Engine(Space([Timestamp("at"), Number("value")]))
    return kind(
        engine,
        key="key",
        time="at",
        rule=rule_of(history.rule),
        rules={name: rule_of(rule) for name, rule in history.rules.items()},
        after=length(history.after),
        lateness=length(history.lateness),
        inside=history.inside,
        accuracy={"value": "error"} if history.accuracy else None,
    )


def actual(
    history: History,
    folder: Path | None = None,
    *,
    batches: bool = False,
    kind: type[Tracker] = Tracker,
) -> tuple[list[Row], Tracker]:
    """Return the transitions of a tracker, which a save replaces by an opened one."""
    tracker = make(history, kind)
    rows: list[Row] = []
    saves = 0
    for do, group in groupby(history.steps, key=lambda step: step.do):
        given = [step.given for step in group]
        if do == "event":
            names = "key", "at", "value", "id", "error"[: 5 * history.accuracy]
            events = [
                dict(zip(names, (key, moment(tick), value, number, error), strict=True))
                for key, tick, value, number, error in given
            ]
            for event in events:
                event.pop("", None)
            if batches:
                rows += map(row_of, tracker.update_many(events))
            else:
                rows += [row_of(one) for event in events for one in tracker.update(event)]
            continue
        for step in given:
            if do in ("subscribe", "replace"):
                getattr(tracker.engine, do)(step[0], text(step[1]))
            elif do == "unsubscribe":
                tracker.engine.unsubscribe(step[0])
            elif do == "advance":
                rows += map(row_of, tracker.advance(moment(step[0])))
            elif do == "flush":
                rows += map(row_of, tracker.flush())
            elif folder is not None:
                saves += 1
                tracker.save(folder / f"{saves}")
                tracker = kind.open(folder / f"{saves}", tracker.engine)
    return rows, tracker


def by_key(rows: list[Row]) -> dict[str, list[Row]]:
    """Return the transitions of each object, as they came."""
    found = defaultdict(list)
    for row in rows:
        found[row.key].append(row)
    return dict(found)


# ---- histories


def history_of(seed: int) -> History:
    """Return a history full of late, repeated and equal times, edits and advances."""
    chance = random.Random(seed)
    span = lambda: tuple(sorted(chance.choices(range(10), k=2)))  # noqa: E731
    first = chance.choice(["enter", "enter", "silent", "inside"])

    def rule(own: bool) -> RuleOf:
        kind = chance.choice(["", "", "margin", "until"]) if own else ""
        return RuleOf(
            for_=chance.choice([0, 0, 2, 5]),
            dwell=chance.choice([0, 0, 1, 3, 6]),
            first=first,
            margin=chance.choice([1, 2]) if kind == "margin" else 0,
            until=span() if kind == "until" else None,
            cross=chance.choice([0, 0, 3, 20]),
        )

    steps: list[Step] = []
    live: set[str] = set()
    clock = 0
    for number in range(chance.randint(5, 40)):
        do = chance.choices(
            ["event", "subscribe", "replace", "unsubscribe", "advance", "save"],
            [20, 3, 2, 1, 1, 1],
        )[0]
        name = f"s{chance.randrange(4)}"
        if do == "event":
            clock += chance.choice([0, 0, 1, 1, 2, 5, 12])
            tick = max(0, clock - chance.choice([0, 0, 0, 0, 1, 2, 4, 9]))
            error = chance.choice([0, 0, 1, 2])
            given = chance.choice("ab"), tick, chance.randrange(10), number, error
            steps.append(Step(do, given))
        elif do == "subscribe" and name not in live:
            live.add(name)
            steps.append(Step(do, (name, span())))
        elif do == "replace" and name in live:
            steps.append(Step(do, (name, span())))
        elif do == "unsubscribe" and name in live:
            live.discard(name)
            steps.append(Step(do, (name,)))
        elif do == "advance":
            steps.append(Step(do, (clock + chance.choice([-3, 0, 1, 4]),)))
        elif do == "save":
            steps.append(Step(do))
    return History(
        [*steps, Step("flush")],
        rule(False),
        {f"s{n}": rule(True) for n in range(4) if chance.random() < 0.4},
        after=chance.choice([None, None, 3, 8]),
        lateness=chance.choice([None, None, 0, 2, 6]),
        inside=chance.random() < 0.3,
        accuracy=chance.random() < 0.3,
    )
