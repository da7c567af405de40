"""Policies of delivery by the letter of the rules: whole histories, one pair of object and
subscription after the other, and local clocks read minute by minute.
"""

from __future__ import annotations

import json
import random
from collections import defaultdict
from datetime import UTC, date, datetime, timedelta
from functools import cache
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

from rangecast import Digest, Notifier, Policy, Transition

STARTS = (datetime(2026, 3, 28, 20, tzinfo=UTC), datetime(2026, 10, 24, 20, tzinfo=UTC))
MINUTE = timedelta(minutes=1)


class PolicyOf(NamedTuple):
    """A policy, in minutes."""

    deduplicate: int = 0
    throttle: tuple[int, int] | None = None
    renotify: int = 0
    digest: tuple[str, str, str] | None = None
    """Time, days and zone."""
    count: int = 0


class Told(NamedTuple):
    """A transition as both sides say it."""

    minute: int
    key: str
    kind: str


def policy_of(policy: PolicyOf) -> Policy:
    digest = None
    if policy.digest:
        at, days, zone = policy.digest
        digest = Digest(at=at, days=days, zone=zone)
    elif policy.count:
        digest = Digest(count=policy.count)
    number, period = policy.throttle or (0, 0)
    return Policy(
        deduplicate=f"{policy.deduplicate} min" if policy.deduplicate else None,
        throttle=(number, f"{period} min") if number else None,
        renotify=f"{policy.renotify} min" if policy.renotify else None,
        digest=digest,
    )


def expected(
    policy: PolicyOf, rows: list[Told], start: datetime, end: int
) -> tuple[dict[str, list[Told]], int]:
    """Return what is delivered, by window (at once: by its own time), and how much is dropped."""
    dropped = 0
    kept: list[Told] = []
    for key in sorted({row.key for row in rows}):
        own = [row for row in rows if row.key == key]
        told: dict[str, int] = {}
        passed: list[Told] = []
        for row in own:
            last = told.get(row.kind)
            if policy.deduplicate and last is not None and row.minute - last < policy.deduplicate:
                dropped += 1
                continue
            told[row.kind] = row.minute
            passed.append(row)
        passed += [Told(minute, key, "reminder") for minute in reminders(policy, own, end)]
        # A transition comes before a reminder of the same minute.
        passed.sort(key=lambda row: (row.minute, row.kind == "reminder"))
        times: list[int] = []
        for row in passed:
            if policy.throttle:
                number, period = policy.throttle
                if sum(row.minute - one < period for one in times) >= number:
                    dropped += 1
                    continue
                times.append(row.minute)
            kept.append(row)
    found = defaultdict(list)
    for row in kept:
        name = f"at once {row.minute} {row.key} {row.kind}"
        if policy.digest:
            name = window(policy.digest, start, start + row.minute * MINUTE)
        found[name].append(row)
    return {name: sorted(some) for name, some in found.items()}, dropped


def reminders(policy: PolicyOf, own: list[Told], end: int) -> list[int]:
    """Return when the stays of an object are notified again."""
    found = []
    begun = None
    for row in [*own, Told(end, "", "exit")]:
        if row.kind == "exit":
            if begun is not None and policy.renotify:
                found += range(begun + policy.renotify, row.minute, policy.renotify)
            begun = None
        elif row.kind == "enter" and begun is None:
            begun = row.minute
    return found


@cache
def ends(digest: tuple[str, str, str], start: datetime) -> list[datetime]:
    """Return when digests are due: at the first minute of each day that shows the time or later."""
    at, days, zone = digest
    hour, minute = map(int, at.split(":"))
    weekdays = {"daily": range(7), "Mon-Fri": range(5), "Sun": [6]}[days]
    found: dict[date, datetime] = {}
    for step in range(20 * 24 * 60):
        local = (start + (step - 24 * 60) * MINUTE).astimezone(ZoneInfo(zone))
        if local.hour * 60 + local.minute >= hour * 60 + minute and local.weekday() in weekdays:
            found.setdefault(local.date(), local)
    return sorted(found.values())


def window(digest: tuple[str, str, str], start: datetime, moment: datetime) -> str:
    """Return the end of a digest's window: the first one after a moment."""
    return next(end.isoformat() for end in ends(digest, start) if end > moment)


class History(NamedTuple):
    policy: PolicyOf
    start: datetime
    rows: list[Told]
    steps: list[Any]
    """Rows, as they come, and minutes to which time advances."""
    end: int


def history_of(seed: int) -> History:
    chance = random.Random(seed)
    policy = PolicyOf(
        deduplicate=chance.choice([0, 0, 30, 200]),
        throttle=chance.choice([None, None, (1, 60), (3, 500)]),
        renotify=chance.choice([0, 0, 60, 170]),
        digest=chance.choice(
            [
                None,
                ("08:00", "daily", "Europe/Berlin"),
                ("02:30", "daily", "Europe/Berlin"),
                ("02:30", "Sun", "Europe/Berlin"),
                ("23:45", "Mon-Fri", "America/New_York"),
            ]
        ),
    )
    rows: list[Told] = []
    for key in "abc":
        minute, inside = 0, False
        for _ in range(chance.randint(0, 12)):
            minute += chance.choice([1, 5, 29, 60, 61, 340, 900])
            kind = chance.choice(["exit", "dwell"]) if inside else "enter"
            inside = kind != "exit" and (inside or kind == "enter")
            rows.append(Told(minute, key, kind))
    end = max((row.minute for row in rows), default=0) + chance.choice([1, 1500, 4000])
    queues = {key: [row for row in rows if row.key == key] for key in "abc"}
    steps: list[Any] = []
    while any(queues.values()):
        key = chance.choice([key for key, queue in queues.items() if queue])
        steps.append(queues[key].pop(0))
        if chance.random() < 0.3:
            steps.append(min((queue[0].minute for queue in queues.values() if queue), default=end))
    return History(policy, chance.choice(STARTS), rows, [*steps, end], end)


def actual(history: History, kind: type[Notifier] = Notifier, *, restarts: bool = False) -> Any:
    """Return what a notifier delivers, which plain data replace after every step if it restarts."""
    notifier = kind(policy_of(history.policy))
    found: list[Any] = []
    for number, step in enumerate(history.steps):
        if isinstance(step, Told):
            at = history.start + step.minute * MINUTE
            one = Transition(step.key, "s", step.kind, at, at, number, "event", 0)
            found += notifier.take([one])
        else:
            found += notifier.advance(history.start + step * MINUTE)
        if restarts:
            notifier = kind.restored(json.loads(json.dumps(notifier.saved())))
    assert len({one.id for one in found}) == len(found)
    due = found + notifier.close()
    told: dict[str, list[Told]] = defaultdict(list)
    for one in due:
        for each in one.transitions:
            row = Told(int((each.at - history.start) / MINUTE), each.key, each.transition)
            told[one.window or f"at once {row.minute} {row.key} {row.kind}"].append(row)
    return {name: sorted(some) for name, some in told.items()}, notifier.dropped
