"""Policies of a consumer and of its two subscriptions by the letter of the rules: whole histories,
one object after the other.
"""

from __future__ import annotations

import json
import random
from collections import defaultdict
from datetime import datetime
from typing import Any, NamedTuple

from rangecast import Notifier, Transition
from tests.support.policy_model import (
    MINUTE,
    STARTS,
    PolicyOf,
    Told,
    policy_of,
    reminders,
    window,
)

SUBSCRIPTIONS = ("s", "t")


class Row(NamedTuple):
    """A transition of one of the subscriptions."""

    minute: int
    key: str
    kind: str
    subscription: str


class Shared(NamedTuple):
    """A history of two subscriptions with one consumer."""

    own: dict[str, PolicyOf]
    consumer: PolicyOf
    start: datetime
    rows: list[Row]
    steps: list[Any]
    """Rows, as they come, and minutes to which time advances."""
    end: int


def shared_history_of(seed: int) -> Shared:
    chance = random.Random(seed)

    def policy(digest: tuple[str, str, str]) -> PolicyOf:
        return PolicyOf(
            deduplicate=chance.choice([0, 0, 30, 200]),
            throttle=chance.choice([None, None, (1, 60), (3, 500)]),
            renotify=chance.choice([0, 0, 60, 170]),
            digest=chance.choice([None, None, digest]),
        )

    own = {name: policy(("02:30", "daily", "Europe/Berlin")) for name in SUBSCRIPTIONS}
    rows: list[Row] = []
    for key in "ab":
        minute, inside = 0, dict.fromkeys(SUBSCRIPTIONS, False)
        for _ in range(chance.randint(0, 16)):
            minute += chance.choice([0, 1, 5, 29, 60, 61, 340, 900])
            name = chance.choice(SUBSCRIPTIONS)
            kind = chance.choice(["exit", "dwell"]) if inside[name] else "enter"
            inside[name] = kind != "exit"
            rows.append(Row(minute, key, kind, name))
    end = max((row.minute for row in rows), default=0) + chance.choice([1, 1500, 4000])
    queues = {key: [row for row in rows if row.key == key] for key in "ab"}
    steps: list[Any] = []
    while any(queues.values()):
        key = chance.choice([key for key, queue in queues.items() if queue])
        steps.append(queues[key].pop(0))
        if chance.random() < 0.3:
            steps.append(min((queue[0].minute for queue in queues.values() if queue), default=end))
    consumer = policy(("08:00", "daily", "Europe/Berlin"))
    return Shared(own, consumer, chance.choice(STARTS), rows, [*steps, end], end)


def expected_of(shared: Shared) -> tuple[dict[Any, list[Row]], int]:
    """Return what is delivered, by owner and window (`None`: at once), and what is dropped."""
    kept: list[Row] = []
    dropped = 0
    for key in "ab":
        rows = [row for row in shared.rows if row.key == key]
        passed = _without_repeats(shared, rows)
        dropped += len(rows) - len(passed)
        for name, own in shared.own.items():
            policy = own if own.renotify else shared.consumer
            stays = [Told(row.minute, key, row.kind) for row in rows if row.subscription == name]
            again = reminders(policy, stays, shared.end)
            passed += [Row(minute, key, "reminder", name) for minute in again]
        # A transition comes before a reminder of the same minute.
        passed.sort(key=lambda row: (row.minute, row.kind == "reminder"))
        few = _throttled(shared, passed)
        dropped += len(passed) - len(few)
        kept += few
    found: dict[Any, list[Row]] = defaultdict(list)
    for row in kept:
        moment = shared.start + row.minute * MINUTE
        own_digest, digest = shared.own[row.subscription].digest, shared.consumer.digest
        if own_digest is not None:
            found[row.subscription, window(own_digest, shared.start, moment)].append(row)
        elif digest is not None:
            found["consumer", window(digest, shared.start, moment)].append(row)
        else:
            found[row].append(row)
    return {name: sorted(some) for name, some in found.items()}, dropped


def _without_repeats(shared: Shared, rows: list[Row]) -> list[Row]:
    passed = []
    told: dict[Any, int] = {}
    for row in rows:
        for name, policy in _stages(shared, row):
            last = told.get((name, row.kind))
            if policy.deduplicate and last is not None and row.minute - last < policy.deduplicate:
                break
            told[name, row.kind] = row.minute
        else:
            passed.append(row)
    return passed


def _throttled(shared: Shared, rows: list[Row]) -> list[Row]:
    passed = []
    times: dict[str, list[int]] = defaultdict(list)
    for row in rows:
        for name, policy in _stages(shared, row):
            number, period = policy.throttle or (1, 0)
            if sum(row.minute - one < period for one in times[name]) >= number:
                break
            times[name].append(row.minute)
        else:
            passed.append(row)
    return passed


def _stages(shared: Shared, row: Row) -> list[tuple[str, PolicyOf]]:
    return [(row.subscription, shared.own[row.subscription]), ("consumer", shared.consumer)]


def actual_of(shared: Shared, kind: type[Notifier] = Notifier, *, restarts: bool = False) -> Any:
    """Return what a notifier delivers, which plain data replace after every step if it restarts."""
    own = {name: policy_of(policy) for name, policy in shared.own.items()}
    consumers = {"ops": policy_of(shared.consumer)}
    notifier = kind(policies=own, consumers=consumers, consumer_of=dict.fromkeys(own, "ops"))
    found: list[Any] = []
    for number, step in enumerate(shared.steps):
        if isinstance(step, Row):
            at = shared.start + step.minute * MINUTE
            one = Transition(step.key, step.subscription, step.kind, at, at, number, "event", 0)
            found += notifier.take([one])
        else:
            found += notifier.advance(shared.start + step * MINUTE)
        if restarts:
            notifier = kind.restored(json.loads(json.dumps(notifier.saved())))
    told: dict[Any, list[Row]] = defaultdict(list)
    for one in found + notifier.close():
        for each in one.transitions:
            minute = int((each.at - shared.start) / MINUTE)
            row = Row(minute, each.key, each.transition, each.subscription)
            assert one.consumer == (None if one.subscription else "ops")
            told[(one.subscription or "consumer", one.window) if one.window else row].append(row)
    return {name: sorted(some) for name, some in told.items()}, notifier.dropped
