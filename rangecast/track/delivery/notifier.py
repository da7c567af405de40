"""Notifier: turns transitions into notifications, by the policies of their subscriptions.

    notifier = Notifier(Policy(throttle=(3, "1 h")), {"depot": Policy(digest=Digest(at="08:00"))})
    for one in notifier.take(tracker.update(event)): ...

Time is event time: the same transitions give the same notifications, even if the notifier is saved
and opened in between. docs/explanation/tracks.md has the rules.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from rangecast.errors import UsageError
from rangecast.model.io.atomic import write_whole
from rangecast.model.sets.members import Id
from rangecast.track.delivery.policies import Digest, Policy
from rangecast.track.local_time import minutes_of, moment_at, weekdays_of, zone_of
from rangecast.track.machine import NEVER
from rangecast.track.moments import micros_of, moment_of
from rangecast.track.transitions import COLUMNS, Transition

REMINDER = "reminder"
"""The kind of a transition that tells a stay again."""
_VERSION = 1


class Notification(NamedTuple):
    """Transitions of a subscription that are delivered together: a single one, or a digest."""

    subscription: Id
    at: datetime
    """When it was due, in event time."""
    window: str | None
    """Of a digest: its end in local time, or its number; an idempotency key with `subscription`."""
    transitions: tuple[Transition, ...]

    @property
    def id(self) -> str:
        """Deterministic id: the same whenever this notification is derived again."""
        if self.window is None:
            return self.transitions[0].id
        data = repr((self.subscription, self.window)).encode(errors="backslashreplace")
        return blake2b(data, digest_size=16).hexdigest()


class _Window:
    """An open digest of transitions in [start, end), or without an end if it is closed by count."""

    def __init__(self, name: str, start: int, end: int | None):
        self.name, self.start, self.end = name, start, end
        self.transitions: list[Transition] = []


class _Stay:
    """A stay that has reminders."""

    def __init__(self, begun: Transition, due: int, number: int = 1):
        self.begun, self.due, self.number = begun, due, number


class Notifier:
    """Derives notifications from transitions.

    policy     policy of all subscriptions that have none of their own
    policies   subscription -> its own policy
    """

    def __init__(self, policy: Policy | None = None, policies: Mapping[Id, Policy] | None = None):
        self.policy, self.policies = policy or Policy(), dict(policies or {})
        self.dropped = 0
        """Transitions so far that were dropped as repeats or as too many."""
        self._moment = NEVER
        self._reported: dict[tuple[Id, Id, str], int] = {}
        self._times: dict[tuple[Id, Id], list[int]] = {}
        self._stays: dict[tuple[Id, Id], _Stay] = {}
        self._windows: dict[Id, list[_Window]] = {}
        self._counts: dict[Id, int] = {}

    def __repr__(self) -> str:
        return f"<Notifier: {self.waiting} waiting in digests, {self.dropped} dropped>"

    @property
    def waiting(self) -> int:
        """Number of transitions waiting in digests."""
        return sum(
            len(transition.transitions) for some in self._windows.values() for transition in some
        )

    def set_policy(self, subscription: Id, policy: Policy | None) -> list[Notification]:
        """Set the policy of a subscription; `None`: use the default policy.

        Return a pending digest by count if the new policy has no count. A digest by time stays
        until it is due.
        """
        self.policies.pop(subscription, None)
        if policy is not None:
            self.policies[subscription] = policy
        now = self.policies.get(subscription, self.policy)
        if not now.lengths[3]:
            gone = [pair for pair in self._stays if pair[0] == subscription]
            for pair in gone:
                del self._stays[pair]
        if now.digest is not None and now.digest.count is not None:
            return []
        windows = self._windows.get(subscription, [])
        counting = [one for one in windows if one.end is None]
        self._windows[subscription] = [one for one in windows if one.end is not None]
        if not self._windows[subscription]:
            del self._windows[subscription]
        return [_digest(subscription, one) for one in counting]

    def is_due(self, moment: Any) -> bool:
        """Return whether `advance` to a moment would deliver anything."""
        limit = micros_of(moment)
        ends = [one.end for some in self._windows.values() for one in some if one.end is not None]
        return any(end <= limit for end in ends) or any(
            stay.due < limit for stay in self._stays.values()
        )

    def is_waiting(self, subscription: Id) -> bool:
        """Return whether transitions of a subscription are waiting in a digest."""
        return subscription in self._windows

    def take(self, transitions: Iterable[Transition]) -> list[Notification]:
        """Process transitions, those of each object in order; return what is due by now."""
        notifications: list[Notification] = []
        for transition in transitions:
            at, pair = micros_of(transition.at), (transition.subscription, transition.key)
            policy = self.policies.get(transition.subscription, self.policy)
            repeats, _, _, again = policy.lengths
            self._remind(pair, at, notifications)
            if transition.transition == "exit":
                self._stays.pop(pair, None)
            elif again and transition.transition in ("enter", "inside") and pair not in self._stays:
                self._stays[pair] = _Stay(transition, at + again)
            if repeats:
                same = *pair, transition.transition
                last = self._reported.get(same)
                if last is not None and at - last < repeats:
                    self.dropped += 1
                    continue
                self._reported[same] = at
            self._deliver(transition, at, policy, notifications)
        return notifications

    def advance(self, moment: Any) -> list[Notification]:
        """Advance event time to a moment: no earlier transition will arrive.

        moment   a datetime or an ISO 8601 text; one in the past changes nothing
        """
        limit = micros_of(moment)
        notifications: list[Notification] = []
        if limit <= self._moment:
            return notifications
        due = sorted(
            (stay.due, repr(pair), pair) for pair, stay in self._stays.items() if stay.due < limit
        )
        for _, _, pair in due:
            self._remind(pair, limit, notifications)
        self._moment = limit
        notifications += self._closed(limit)
        self._forget(limit)
        return notifications

    def close(self) -> list[Notification]:
        """Deliver all open digests, whatever their time; for the end of a file."""
        return self._closed(None)

    def _remind(self, pair: tuple[Id, Id], limit: int, notifications: list[Notification]) -> None:
        """Deliver all reminders of a stay that are due before a moment."""
        stay = self._stays.get(pair)
        if stay is None:
            return
        policy = self.policies.get(pair[0], self.policy)
        while policy.lengths[3] and stay.due < limit:
            reported = stay.begun._replace(
                transition=REMINDER,
                at=moment_of(stay.due),
                event=None,
                reason="time",
                number=stay.number,
            )
            self._deliver(reported, stay.due, policy, notifications)
            stay.due += policy.lengths[3]
            stay.number += 1

    def _deliver(
        self, transition: Transition, at: int, policy: Policy, notifications: list[Notification]
    ) -> None:
        """Deliver a transition or add it to its digest; drop it if throttled."""
        _, number, period, _ = policy.lengths
        if number:
            pair = transition.subscription, transition.key
            times = [before for before in self._times.get(pair, ()) if at - before < period]
            self._times[pair] = times
            if len(times) >= number:
                self.dropped += 1
                return
            times.append(at)
        if policy.digest is None:
            notifications.append(
                Notification(transition.subscription, transition.at, None, (transition,))
            )
            return
        window = self._window(transition.subscription, at, policy.digest)
        window.transitions.append(transition)
        if policy.digest.count is not None and len(window.transitions) >= policy.digest.count:
            self._windows[transition.subscription].remove(window)
            notifications.append(_digest(transition.subscription, window))

    def _window(self, subscription: Id, at: int, digest: Digest) -> _Window:
        """Return the digest for a moment; the next one if that was already delivered."""
        windows = self._windows.setdefault(subscription, [])
        at = max(at, self._moment)
        for one in windows:
            if one.end is None or one.start <= at < one.end:
                return one
        if digest.count is not None:
            self._counts[subscription] = self._counts.get(subscription, 0) + 1
            window = _Window(str(self._counts[subscription]), 0, None)
        else:
            start, end = window_around(at, digest)
            name = moment_of(end).astimezone(zone_of(digest.zone)).isoformat()
            window = _Window(name, start, end)
        windows.append(window)
        return window

    def _closed(self, limit: int | None) -> list[Notification]:
        """Close the digests that end by a moment, or all; return them in order of time."""
        closed = []
        for subscription, windows in list(self._windows.items()):
            for window in list(windows):
                if limit is None or (window.end is not None and window.end <= limit):
                    windows.remove(window)
                    closed.append(
                        (window.end or 0, repr(subscription), _digest(subscription, window))
                    )
            if not windows:
                del self._windows[subscription]
        return [window for _, _, window in sorted(closed, key=lambda entry: entry[:2])]

    def _forget(self, moment: int) -> None:
        """Forget state that no later transition is compared with."""
        lengths = {id_: self.policies.get(id_, self.policy).lengths for id_, *_ in self._reported}
        self._reported = {
            same: at for same, at in self._reported.items() if moment - at < lengths[same[0]][0]
        }
        for pair, times in list(self._times.items()):
            period = self.policies.get(pair[0], self.policy).lengths[2]
            if not times or moment - times[-1] >= period:
                del self._times[pair]

    # ---- snapshots

    def saved(self) -> dict[str, Any]:
        """Return policies and state as plain data, for JSON."""
        windows = [
            [subscription, id_.name, id_.start, id_.end, [*map(_listed, id_.transitions)]]
            for subscription, some in self._windows.items()
            for id_ in some
        ]
        return {
            "version": _VERSION,
            "policy": self.policy.definition(),
            "policies": [[id_, policy.definition()] for id_, policy in self.policies.items()],
            "dropped": self.dropped,
            "moment": self._moment,
            "reported": [[*same, at] for same, at in self._reported.items()],
            "times": [[*pair, times] for pair, times in self._times.items()],
            "stays": [
                [_listed(stay.begun), stay.due, stay.number] for stay in self._stays.values()
            ],
            "windows": windows,
            "counts": [[id_, count] for id_, count in self._counts.items()],
        }

    @classmethod
    def restored(cls, saved: Mapping[str, Any]) -> Notifier:
        """Return a notifier that continues from a saved state."""
        if saved.get("version") != _VERSION:
            raise UsageError(
                f"notifiers have the version {_VERSION}; given: {saved.get('version')!r}"
            )
        policies = {id_: Policy.of(policy) for id_, policy in saved["policies"]}
        made = cls(Policy.of(saved["policy"]), policies)
        made.dropped, made._moment = saved["dropped"], saved["moment"]
        made._reported = {(id_, key, kind): at for id_, key, kind, at in saved["reported"]}
        made._times = {(id_, key): list(times) for id_, key, times in saved["times"]}
        for listed, due, number in saved["stays"]:
            begun = _transition(listed)
            made._stays[begun.subscription, begun.key] = _Stay(begun, due, number)
        for subscription, name, start, end, listed in saved["windows"]:
            window = _Window(name, start, end)
            window.transitions = [*map(_transition, listed)]
            made._windows.setdefault(subscription, []).append(window)
        made._counts = dict(saved["counts"])
        return made

    def save(self, path: str | Path) -> None:
        """Write policies and state to a file, atomically."""
        write_whole(path, json.dumps(self.saved()).encode())

    @classmethod
    def open(cls, path: str | Path) -> Notifier:
        """Return a notifier that continues from a saved file."""
        return cls.restored(json.loads(Path(path).read_text()))


def table_of(notifications: Iterable[Notification]) -> pa.Table:
    """Return notifications as a table: one row per transition, with its columns, and the id and
    window of its notification.
    """
    rows = [
        (notification, transition)
        for notification in notifications
        for transition in notification.transitions
    ]
    transitions = [transition for _, transition in rows]
    columns: dict[str, pa.Array] = {}
    for name in COLUMNS:
        values = [getattr(transition, name) for transition in transitions]
        is_moment = name in ("at", "since")
        columns[name] = pa.array(values, pa.timestamp("us", "UTC") if is_moment else None)
    columns["notification"] = pa.array([notification.id for notification, _ in rows], pa.string())
    columns["window"] = pa.array([notification.window for notification, _ in rows], pa.string())
    return pa.table(columns)


def window_around(at: int, digest: Digest) -> tuple[int, int]:
    """Return the digest times around a moment: the last one at or before it, and the next one."""
    assert digest.at is not None
    minutes, days = minutes_of(digest.at), weekdays_of(digest.days)
    assert minutes is not None
    assert days is not None
    zone = zone_of(digest.zone)
    today = moment_of(at).astimezone(zone).date()
    near = (today + timedelta(days=step) for step in range(-8, 9))
    times = [micros_of(moment_at(day, minutes, zone)) for day in near if day.weekday() in days]
    return max(time for time in times if time <= at), min(time for time in times if time > at)


def _digest(subscription: Id, window: _Window) -> Notification:
    last = window.transitions[-1].at if window.end is None else moment_of(window.end)
    return Notification(subscription, last, window.name, tuple(window.transitions))


def _listed(transition: Transition) -> list[Any]:
    return [*transition._replace(at=micros_of(transition.at), since=micros_of(transition.since))]  # type: ignore[arg-type]


def _transition(listed: list[Any]) -> Transition:
    transition = Transition(*listed)
    return transition._replace(at=moment_of(listed[3]), since=moment_of(listed[4]))
