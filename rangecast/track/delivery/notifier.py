"""Notifier: turns transitions into notifications, by the policies of their subscriptions.

    notifier = Notifier(Policy(throttle=(3, "1 h")), {"depot": Policy(digest=Digest(at="08:00"))})
    for one in notifier.take(tracker.update(event)): ...

Time is event time: the same transitions give the same notifications, even if the notifier is saved
and opened in between. docs/explanation/tracks.md has the rules.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import timedelta
from heapq import heapify, heappop, heappush
from pathlib import Path
from typing import Any, NamedTuple

from rangecast.errors import UsageError
from rangecast.model.io.atomic import write_whole
from rangecast.model.sets.members import Id
from rangecast.model.validation.flags import flag
from rangecast.track.delivery.notifications import Notification
from rangecast.track.delivery.policies import Digest, Policy
from rangecast.track.local_time import minutes_of, moment_at, weekdays_of, zone_of
from rangecast.track.machine import NEVER
from rangecast.track.moments import micros_of, moment_of
from rangecast.track.transitions import Transition

REMINDER = "reminder"
"""The kind of a transition that tells a stay again."""
_VERSION = 1


class _Consumer(NamedTuple):
    """Owner of a policy that counts all subscriptions of a consumer."""

    name: Id


_Owner = Id | _Consumer
"""Owner of a policy: a subscription, or a consumer."""
_NO_POLICY = Policy()


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

    policy        policy of all subscriptions that have none of their own
    policies      subscription -> its own policy
    consumers     consumer -> its policy over all of its subscriptions, after theirs
    consumer_of   subscription -> its consumer
    """

    def __init__(
        self,
        policy: Policy | None = None,
        policies: Mapping[Id, Policy] | None = None,
        consumers: Mapping[Id, Policy] | None = None,
        consumer_of: Mapping[Id, Id] | None = None,
    ):
        self.policy, self.policies = policy or Policy(), dict(policies or {})
        self.consumers, self.consumer_of = dict(consumers or {}), dict(consumer_of or {})
        self.dropped = 0
        """Transitions so far that were dropped as repeats or as too many."""
        self._moment = NEVER
        self._unreminded: set[Id] = set()
        """Subscriptions that don't report both ends of stays: consumers' reminders pass them by."""
        self._reported: dict[tuple[_Owner, Id, str], int] = {}
        self._times: dict[tuple[_Owner, Id], list[int]] = {}
        self._stays: dict[Id, dict[Id, _Stay]] = {}
        """By object and subscription."""
        self._windows: dict[_Owner, list[_Window]] = {}
        self._counts: dict[_Owner, int] = {}

    def __repr__(self) -> str:
        return f"<Notifier: {self.waiting} waiting in digests, {self.dropped} dropped>"

    @property
    def waiting(self) -> int:
        """Number of transitions waiting in digests."""
        return sum(
            len(transition.transitions) for some in self._windows.values() for transition in some
        )

    def has_policy(self, subscription: Id) -> bool:
        """Return whether a subscription has a policy of its own, or one of its consumer."""
        return subscription in self.policies or (
            self.consumer_of.get(subscription) in self.consumers
        )

    def set_policy(self, subscription: Id, policy: Policy | None) -> list[Notification]:
        """Set the policy of a subscription; `None`: use the default policy.

        Return a pending digest by count if the new policy has no count. A digest by time stays
        until it is due.
        """
        self.policies.pop(subscription, None)
        if policy is not None:
            self.policies[subscription] = policy
        self._end_reminders(subscription)
        return self._close_digest_by_count(subscription)

    def set_consumer_policy(self, consumer: Id, policy: Policy | None) -> list[Notification]:
        """Set the policy of a consumer over all of its subscriptions; `None`: it has none.

        Return what `set_policy` returns.
        """
        self.consumers.pop(consumer, None)
        if policy is not None:
            self.consumers[consumer] = policy
        for subscription in {id_ for stays in self._stays.values() for id_ in stays}:
            self._end_reminders(subscription)
        return self._close_digest_by_count(_Consumer(consumer))

    def set_consumer(
        self, subscription: Id, consumer: Id | None, *, has_both_ends: bool = True
    ) -> None:
        """Set the consumer of a subscription.

        has_both_ends   whether both enter and exit of its stays are taken: a consumer's `renotify`
                        needs them
        """
        has_both_ends = flag("has_both_ends", has_both_ends)
        self.consumer_of.pop(subscription, None)
        self._unreminded.discard(subscription)
        if consumer is not None:
            self.consumer_of[subscription] = consumer
            if not has_both_ends:
                self._unreminded.add(subscription)
        self._end_reminders(subscription)

    def remove_consumer(self, consumer: Id) -> None:
        """Remove a consumer with all that waits for it; subscriptions stay, without a consumer."""
        owner = _Consumer(consumer)
        self.consumers.pop(consumer, None)
        self._windows.pop(owner, None)
        self._reported = {same: at for same, at in self._reported.items() if same[0] != owner}
        self._times = {pair: times for pair, times in self._times.items() if pair[0] != owner}
        for subscription in [id_ for id_, one in self.consumer_of.items() if one == consumer]:
            self.set_consumer(subscription, None)

    def _close_digest_by_count(self, owner: _Owner) -> list[Notification]:
        """Close the digest by count of an owner whose policy has no count any more."""
        digest = self._policy_of(owner).digest
        if digest is not None and digest.count is not None:
            return []
        windows = self._windows.pop(owner, [])
        timed = [window for window in windows if window.end is not None]
        if timed:
            self._windows[owner] = timed
        return [_digest(owner, window) for window in windows if window.end is None]

    def _end_reminders(self, subscription: Id) -> None:
        """Forget the stays of a subscription if no policy reports them again."""
        if self._renotify(subscription):
            return
        for key in [key for key, stays in self._stays.items() if subscription in stays]:
            self._end_stay(key, subscription)

    def _end_stay(self, key: Id, subscription: Id) -> None:
        stays = self._stays.get(key, {})
        if stays.pop(subscription, None) is not None and not stays:
            del self._stays[key]

    def _policy_of(self, owner: _Owner) -> Policy:
        if isinstance(owner, _Consumer):
            return self.consumers.get(owner.name, _NO_POLICY)
        return self.policies.get(owner, self.policy)

    def _owners(self, subscription: Id) -> list[tuple[_Owner, Policy]]:
        """Return the policies of a subscription in their order: its own, then its consumer's."""
        owners: list[tuple[_Owner, Policy]] = [(subscription, self._policy_of(subscription))]
        consumer = self.consumer_of.get(subscription)
        if consumer is not None and consumer in self.consumers:
            owners.append((_Consumer(consumer), self.consumers[consumer]))
        return owners

    def _renotify(self, subscription: Id) -> int:
        """Return the time between reminders: that of the subscription, or of its consumer."""
        own = self._policy_of(subscription).lengths[3]
        consumer = self.consumer_of.get(subscription)
        if own or consumer not in self.consumers or subscription in self._unreminded:
            return own
        return self.consumers[consumer].lengths[3]

    def is_due(self, moment: Any) -> bool:
        """Return whether `advance` to a moment would deliver anything."""
        limit = micros_of(moment)
        ends = [one.end for some in self._windows.values() for one in some if one.end is not None]
        return any(end <= limit for end in ends) or any(
            stay.due < limit for stays in self._stays.values() for stay in stays.values()
        )

    def is_waiting(self, subscription: Id) -> bool:
        """Return whether transitions are waiting in a digest of a subscription."""
        return subscription in self._windows

    def is_consumer_waiting(self, consumer: Id) -> bool:
        """Return whether transitions are waiting in a digest of a consumer."""
        return _Consumer(consumer) in self._windows

    def take(self, transitions: Iterable[Transition]) -> list[Notification]:
        """Process transitions, those of each object in order; return what is due by now."""
        notifications: list[Notification] = []
        for transition in transitions:
            at, key = micros_of(transition.at), transition.key
            self._remind([key], at, notifications)
            self._note_stay(transition, at)
            for owner, policy in self._owners(transition.subscription):
                repeats = policy.lengths[0]
                if not repeats:
                    continue
                same = owner, key, transition.transition
                last = self._reported.get(same)
                if last is not None and at - last < repeats:
                    self.dropped += 1
                    break
                self._reported[same] = at
            else:
                self._deliver(transition, at, notifications)
        return notifications

    def _note_stay(self, transition: Transition, at: int) -> None:
        """Begin or end the reminders of a stay."""
        subscription, stays = transition.subscription, self._stays.get(transition.key, {})
        if transition.transition == "exit":
            self._end_stay(transition.key, subscription)
        elif transition.transition in ("enter", "inside") and subscription not in stays:
            renotify = self._renotify(subscription)
            if renotify:
                stay = _Stay(transition, at + renotify)
                self._stays.setdefault(transition.key, {})[subscription] = stay

    def advance(self, moment: Any) -> list[Notification]:
        """Advance event time to a moment: no earlier transition will arrive.

        moment   a datetime or an ISO 8601 text; one in the past changes nothing
        """
        limit = micros_of(moment)
        notifications: list[Notification] = []
        if limit <= self._moment:
            return notifications
        self._remind(self._stays, limit, notifications)
        self._moment = limit
        notifications += self._closed(limit)
        self._forget(limit)
        return notifications

    def close(self) -> list[Notification]:
        """Deliver all open digests, whatever their time; for the end of a file."""
        return self._closed(None)

    def _remind(self, keys: Iterable[Id], limit: int, notifications: list[Notification]) -> None:
        """Deliver all reminders of objects that are due before a moment, in order of time."""
        due = [
            (stay.due, repr((subscription, key)), subscription, stay)
            for key in keys
            for subscription, stay in self._stays.get(key, {}).items()
            if stay.due < limit
        ]
        heapify(due)
        while due:
            at, name, subscription, stay = heappop(due)
            reported = stay.begun._replace(
                transition=REMINDER,
                at=moment_of(at),
                event=None,
                reason="time",
                number=stay.number,
            )
            self._deliver(reported, at, notifications)
            stay.due += self._renotify(subscription)
            stay.number += 1
            if stay.due < limit:
                heappush(due, (stay.due, name, subscription, stay))

    def _deliver(self, transition: Transition, at: int, notifications: list[Notification]) -> None:
        """Deliver a transition or add it to its digest; drop it if throttled."""
        owners = self._owners(transition.subscription)
        if any(self._is_throttled(owner, policy, transition.key, at) for owner, policy in owners):
            self.dropped += 1
            return
        digests = [(owner, policy.digest) for owner, policy in owners if policy.digest is not None]
        if not digests:
            notifications.append(
                Notification(transition.subscription, transition.at, None, (transition,))
            )
            return
        owner, digest = digests[0]
        window = self._window(owner, at, digest)
        window.transitions.append(transition)
        if digest.count is not None and len(window.transitions) >= digest.count:
            self._windows[owner].remove(window)
            if not self._windows[owner]:
                del self._windows[owner]
            notifications.append(_digest(owner, window))

    def _is_throttled(self, owner: _Owner, policy: Policy, key: Id, at: int) -> bool:
        """Count a transition of an object; return whether it is too much."""
        _, number, period, _ = policy.lengths
        if not number:
            return False
        times = [before for before in self._times.get((owner, key), ()) if at - before < period]
        self._times[owner, key] = times
        if len(times) >= number:
            return True
        times.append(at)
        return False

    def _window(self, owner: _Owner, at: int, digest: Digest) -> _Window:
        """Return the digest for a moment; the next one if that was already delivered."""
        windows = self._windows.setdefault(owner, [])
        at = max(at, self._moment)
        for one in windows:
            if one.end is None or one.start <= at < one.end:
                return one
        if digest.count is not None:
            self._counts[owner] = self._counts.get(owner, 0) + 1
            window = _Window(str(self._counts[owner]), 0, None)
        else:
            start, end = window_around(at, digest)
            name = moment_of(end).astimezone(zone_of(digest.zone)).isoformat()
            window = _Window(name, start, end)
        windows.append(window)
        return window

    def _closed(self, limit: int | None) -> list[Notification]:
        """Close the digests that end by a moment, or all; return them in order of time."""
        closed = []
        for owner, windows in list(self._windows.items()):
            for window in list(windows):
                if limit is None or (window.end is not None and window.end <= limit):
                    windows.remove(window)
                    closed.append((window.end or 0, repr(owner), _digest(owner, window)))
            if not windows:
                del self._windows[owner]
        return [window for _, _, window in sorted(closed, key=lambda entry: entry[:2])]

    def _forget(self, moment: int) -> None:
        """Forget state that no later transition is compared with."""
        lengths = {owner: self._policy_of(owner).lengths for owner, *_ in self._reported}
        self._reported = {
            same: at for same, at in self._reported.items() if moment - at < lengths[same[0]][0]
        }
        for pair, times in list(self._times.items()):
            period = self._policy_of(pair[0]).lengths[2]
            if not times or moment - times[-1] >= period:
                del self._times[pair]

    # ---- snapshots

    def saved(self) -> dict[str, Any]:
        """Return policies and state as plain data, for JSON."""
        windows = [
            [
                _saved(owner),
                window.name,
                window.start,
                window.end,
                [*map(_listed, window.transitions)],
            ]
            for owner, some in self._windows.items()
            for window in some
        ]
        return {
            "version": _VERSION,
            "policy": self.policy.definition(),
            "policies": [[id_, policy.definition()] for id_, policy in self.policies.items()],
            "consumers": [[id_, policy.definition()] for id_, policy in self.consumers.items()],
            "consumer_of": [[*pair] for pair in self.consumer_of.items()],
            "unreminded": sorted(self._unreminded, key=repr),
            "dropped": self.dropped,
            "moment": self._moment,
            "reported": [[_saved(same[0]), *same[1:], at] for same, at in self._reported.items()],
            "times": [[_saved(owner), key, times] for (owner, key), times in self._times.items()],
            "stays": [
                [_listed(stay.begun), stay.due, stay.number]
                for stays in self._stays.values()
                for stay in stays.values()
            ],
            "windows": windows,
            "counts": [[_saved(owner), count] for owner, count in self._counts.items()],
        }

    @classmethod
    def restored(cls, saved: Mapping[str, Any]) -> Notifier:
        """Return a notifier that continues from a saved state."""
        if saved.get("version") != _VERSION:
            raise UsageError(
                f"notifiers have the version {_VERSION}; given: {saved.get('version')!r}"
            )
        policies, consumers = (
            {id_: Policy.of(policy) for id_, policy in saved[name]}
            for name in ("policies", "consumers")
        )
        made = cls(Policy.of(saved["policy"]), policies, consumers, dict(saved["consumer_of"]))
        made._unreminded = set(saved["unreminded"])
        made.dropped, made._moment = saved["dropped"], saved["moment"]
        made._reported = {
            (_restored(owner), key, kind): at for owner, key, kind, at in saved["reported"]
        }
        made._times = {(_restored(owner), key): list(some) for owner, key, some in saved["times"]}
        for listed, due, number in saved["stays"]:
            begun = _transition(listed)
            stays = made._stays.setdefault(begun.key, {})
            stays[begun.subscription] = _Stay(begun, due, number)
        for owner, name, start, end, listed in saved["windows"]:
            window = _Window(name, start, end)
            window.transitions = [*map(_transition, listed)]
            made._windows.setdefault(_restored(owner), []).append(window)
        made._counts = {_restored(owner): count for owner, count in saved["counts"]}
        return made

    def save(self, path: str | Path) -> None:
        """Write policies and state to a file, atomically."""
        write_whole(path, json.dumps(self.saved()).encode())

    @classmethod
    def open(cls, path: str | Path) -> Notifier:
        """Return a notifier that continues from a saved file."""
        return cls.restored(json.loads(Path(path).read_text()))


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


def _digest(owner: _Owner, window: _Window) -> Notification:
    last = window.transitions[-1].at if window.end is None else moment_of(window.end)
    whole = last, window.name, tuple(window.transitions)
    if isinstance(owner, _Consumer):
        return Notification(None, *whole, owner.name)
    return Notification(owner, *whole)


def _saved(owner: _Owner) -> Id | list[Id]:
    """Return an owner as plain data: a consumer as a list of one."""
    return [owner.name] if isinstance(owner, _Consumer) else owner


def _restored(owner: Any) -> _Owner:
    return _Consumer(*owner) if isinstance(owner, list) else owner


def _listed(transition: Transition) -> list[Any]:
    return [*transition._replace(at=micros_of(transition.at), since=micros_of(transition.since))]  # type: ignore[arg-type]


def _transition(listed: list[Any]) -> Transition:
    transition = Transition(*listed)
    return transition._replace(at=moment_of(listed[3]), since=moment_of(listed[4]))
