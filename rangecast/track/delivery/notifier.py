"""Notifier: turns transitions into notifications, by the policies of their subscriptions.

    notifier = Notifier(Policy(throttle=(3, "1 h")), {"depot": Policy(digest=Digest(at="08:00"))})
    for one in notifier.take(tracker.update(event)): ...

Time is event time: the same transitions give the same notifications, even if the notifier is saved
and opened in between. docs/explanation/tracks.md has the rules.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from heapq import heapify, heappop, heappush
from pathlib import Path
from typing import Any

from rangecast.errors import UsageError
from rangecast.model.io.atomic import write_whole
from rangecast.model.sets.members import Id
from rangecast.model.validation.flags import flag
from rangecast.track.delivery.digests import (
    ConsumerOwner,
    Owner,
    Window,
    digest_of,
    window_around,
)
from rangecast.track.delivery.notifications import Notification
from rangecast.track.delivery.policies import Digest, Policy
from rangecast.track.delivery.timer_queue import TimerQueue
from rangecast.track.local_time import inner_moment, zone_of
from rangecast.track.machine import FAR, NEVER
from rangecast.track.moments import micros_of, moment_of
from rangecast.track.transitions import Transition

REMINDER = "reminder"
"""The kind of a transition that tells a stay again."""
_VERSION = 1


_NO_POLICY = Policy()


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
        self._reported: dict[Owner, dict[tuple[Id, str], int]] = {}
        """When a transition of an object was last reported."""
        self._times: dict[Owner, dict[Id, list[int]]] = {}
        """When transitions of an object counted for the throttle."""
        self._stays: dict[Id, dict[Id, _Stay]] = {}
        """By object and subscription."""
        self._windows: dict[Owner, list[Window]] = {}
        self._counts: dict[Owner, int] = {}
        self._reminders = TimerQueue[tuple[Id, Id]]()
        """Subscription and object of stays, by their next reminder."""
        self._ends = TimerQueue[tuple[Owner, int, int]]()
        """Owner, start and end of digests, by their end."""
        self._repeats = TimerQueue[tuple[Owner, tuple[Id, str]]]()
        """Entries of `_reported`, by the time at which they are forgotten; next, of `_times`."""
        self._throttles = TimerQueue[tuple[Owner, Id]]()

    def __repr__(self) -> str:
        return f"<Notifier: {self.waiting} waiting in digests, {self.dropped} dropped>"

    @property
    def waiting(self) -> int:
        """Number of transitions waiting in digests."""
        return sum(
            len(transition.transitions)
            for windows in self._windows.values()
            for transition in windows
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
        self._plan_forgetting(subscription)
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
        self._plan_forgetting(ConsumerOwner(consumer))
        return self._close_digest_by_count(ConsumerOwner(consumer))

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
        owner = ConsumerOwner(consumer)
        self.consumers.pop(consumer, None)
        for window in self._windows.pop(owner, []):
            if window.end is not None:
                self._ends.discard((owner, window.start, window.end))
        for same in self._reported.pop(owner, {}):
            self._repeats.discard((owner, same))
        for key in self._times.pop(owner, {}):
            self._throttles.discard((owner, key))
        for subscription in [id_ for id_, name in self.consumer_of.items() if name == consumer]:
            self.set_consumer(subscription, None)

    def _close_digest_by_count(self, owner: Owner) -> list[Notification]:
        """Close the digest by count of an owner whose policy has no count any more."""
        digest = self._policy_of(owner).digest
        if digest is not None and digest.count is not None:
            return []
        return self._close_counted(owner)

    def _close_counted(self, owner: Owner) -> list[Notification]:
        """Close the digest by count of an owner."""
        windows = self._windows.pop(owner, [])
        timed = [window for window in windows if window.end is not None]
        if timed:
            self._windows[owner] = timed
        return [digest_of(owner, window) for window in windows if window.end is None]

    def _end_reminders(self, subscription: Id) -> None:
        """Forget the stays of a subscription if no policy reports them again."""
        if self._renotify(subscription):
            return
        for key in [key for key, stays in self._stays.items() if subscription in stays]:
            self._end_stay(key, subscription)

    def _end_stay(self, key: Id, subscription: Id) -> None:
        stays = self._stays.get(key, {})
        if stays.pop(subscription, None) is not None:
            self._reminders.discard((subscription, key))
            if not stays:
                del self._stays[key]

    def _policy_of(self, owner: Owner) -> Policy:
        if isinstance(owner, ConsumerOwner):
            return self.consumers.get(owner.name, _NO_POLICY)
        return self.policies.get(owner, self.policy)

    def _owners(self, subscription: Id) -> list[tuple[Owner, Policy]]:
        """Return the policies of a subscription in their order: its own, then its consumer's."""
        owners: list[tuple[Owner, Policy]] = [(subscription, self._policy_of(subscription))]
        consumer = self.consumer_of.get(subscription)
        if consumer is not None and consumer in self.consumers:
            owners.append((ConsumerOwner(consumer), self.consumers[consumer]))
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
        limit, end, reminder = micros_of(moment), self._ends.next(), self._reminders.next()
        return (end is not None and end <= limit) or (reminder is not None and reminder < limit)

    def is_waiting(self, subscription: Id) -> bool:
        """Return whether transitions are waiting in a digest of a subscription."""
        return subscription in self._windows

    def is_consumer_waiting(self, consumer: Id) -> bool:
        """Return whether transitions are waiting in a digest of a consumer."""
        return ConsumerOwner(consumer) in self._windows

    def take(self, transitions: Iterable[Transition]) -> list[Notification]:
        """Process transitions, in order per object; return the notifications due by now."""
        notifications: list[Notification] = []
        for transition in transitions:
            at, key = micros_of(transition.at), transition.key
            self._remind([(id_, key) for id_ in self._stays.get(key, ())], at, notifications)
            self._note_stay(transition, at)
            for owner, policy in self._owners(transition.subscription):
                repeats = policy.lengths[0]
                if not repeats:
                    continue
                same, reported = (key, transition.transition), self._reported.setdefault(owner, {})
                if same in reported and at - reported[same] < repeats:
                    self.dropped += 1
                    break
                reported[same] = at
                self._repeats.set((owner, same), at + repeats)
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
                self._begin_stay(_Stay(transition, at + renotify))

    def _begin_stay(self, stay: _Stay) -> None:
        key, subscription = stay.begun.key, stay.begun.subscription
        self._stays.setdefault(key, {})[subscription] = stay
        self._reminders.set((subscription, key), stay.due)

    def advance(self, moment: Any) -> list[Notification]:
        """Advance event time to a moment: no earlier transition will arrive.

        moment   a datetime or an ISO 8601 text; one in the past changes nothing
        """
        limit = micros_of(moment)
        notifications: list[Notification] = []
        if limit <= self._moment:
            return notifications
        self._remind([*self._reminders.take(limit - 1)], limit, notifications)
        self._moment = limit
        notifications += self._closed(limit)
        self._forget(limit)
        return notifications

    def close(self) -> list[Notification]:
        """Deliver all open digests, whatever their time; for the end of a file."""
        return self._closed(None)

    def _remind(
        self, stays: list[tuple[Id, Id]], limit: int, notifications: list[Notification]
    ) -> None:
        """Deliver all reminders of stays that are due before a moment, in order of time.

        stays   (subscription, object) of each
        """
        named = [(id_, key, self._stays[key][id_]) for id_, key in stays]
        due = [(item.due, repr((id_, key)), item) for id_, key, item in named if item.due < limit]
        heapify(due)
        while due:
            at, name, stay = heappop(due)
            reported = stay.begun._replace(
                transition=REMINDER,
                at=moment_of(at),
                event=None,
                reason="time",
                number=stay.number,
            )
            self._deliver(reported, at, notifications)
            stay.due += self._renotify(stay.begun.subscription)
            stay.number += 1
            if stay.due < limit:
                heappush(due, (stay.due, name, stay))
        for id_, key, stay in named:
            self._reminders.set((id_, key), stay.due)

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
            notifications.append(digest_of(owner, window))

    def _is_throttled(self, owner: Owner, policy: Policy, key: Id, at: int) -> bool:
        """Count a transition of an object; return whether it is too much."""
        _, number, period, _ = policy.lengths
        if not number:
            return False
        counted = self._times.setdefault(owner, {})
        times = [before for before in counted.get(key, ()) if at - before < period]
        counted[key] = times
        if len(times) >= number:
            return True
        times.append(at)
        self._throttles.set((owner, key), at + period)
        return False

    def _window(self, owner: Owner, at: int, digest: Digest) -> Window:
        """Return the digest for a moment; the next one if that was already delivered."""
        at = max(at, self._moment)
        for open_ in self._windows.get(owner, ()):
            if open_.end is None or open_.start <= at < open_.end:
                return open_
        if digest.count is not None:
            self._counts[owner] = self._counts.get(owner, 0) + 1
            window = Window(str(self._counts[owner]), 0, None)
        else:
            start, end = window_around(at, digest)
            name = inner_moment(end).astimezone(zone_of(digest.zone)).isoformat()
            window = Window(name, start, end)
        self._add_window(owner, window)
        return window

    def _add_window(self, owner: Owner, window: Window) -> None:
        self._windows.setdefault(owner, []).append(window)
        if window.end is not None:
            self._ends.set((owner, window.start, window.end), window.end)

    def _closed(self, limit: int | None) -> list[Notification]:
        """Close the digests that end by a moment, or all; return them in order of time."""
        closed = []
        if limit is None:
            for owner in sorted(self._windows, key=repr):
                closed += self._close_counted(owner)
        for owner, start, end in self._ends.take(FAR if limit is None else limit):
            windows = self._windows[owner]
            window = next(each for each in windows if (each.start, each.end) == (start, end))
            windows.remove(window)
            closed.append(digest_of(owner, window))
            if not windows:
                del self._windows[owner]
        return closed

    def _plan_forgetting(self, owner: Owner) -> None:
        """Plan when to forget what transitions are compared with, by the policy of an owner."""
        repeats, _, period, _ = self._policy_of(owner).lengths
        for same, at in self._reported.get(owner, {}).items():
            self._repeats.set((owner, same), at + repeats)
        for key, times in self._times.get(owner, {}).items():
            self._throttles.set((owner, key), times[-1] + period)

    def _forget(self, moment: int) -> None:
        """Forget state that no later transition is compared with."""
        for owner, same in self._repeats.take(moment):
            del self._reported[owner][same]
            if not self._reported[owner]:
                del self._reported[owner]
        for owner, key in self._throttles.take(moment):
            del self._times[owner][key]
            if not self._times[owner]:
                del self._times[owner]

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
            for owner, kept in self._windows.items()
            for window in kept
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
            "reported": [
                [_saved(owner), *same, at]
                for owner, reported in self._reported.items()
                for same, at in reported.items()
            ],
            "times": [
                [_saved(owner), key, times]
                for owner, counted in self._times.items()
                for key, times in counted.items()
            ],
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
        for owner, key, kind, at in saved["reported"]:
            made._reported.setdefault(_restored(owner), {})[key, kind] = at
        for owner, key, times in saved["times"]:
            made._times.setdefault(_restored(owner), {})[key] = list(times)
        for owner in made._reported.keys() | made._times.keys():
            made._plan_forgetting(owner)
        for listed, due, number in saved["stays"]:
            made._begin_stay(_Stay(_transition(listed), due, number))
        for owner, name, start, end, listed in saved["windows"]:
            window = Window(name, start, end)
            window.transitions = [*map(_transition, listed)]
            made._add_window(_restored(owner), window)
        made._counts = {_restored(owner): count for owner, count in saved["counts"]}
        return made

    def save(self, path: str | Path) -> None:
        """Write policies and state to a file, atomically."""
        write_whole(path, json.dumps(self.saved()).encode())

    @classmethod
    def open(cls, path: str | Path) -> Notifier:
        """Return a notifier that continues from a saved file."""
        return cls.restored(json.loads(Path(path).read_text()))


def _saved(owner: Owner) -> Id | list[Id]:
    """Return an owner as plain data: a consumer as a list of one."""
    return [owner.name] if isinstance(owner, ConsumerOwner) else owner


def _restored(owner: Any) -> Owner:
    return ConsumerOwner(*owner) if isinstance(owner, list) else owner


def _listed(transition: Transition) -> list[Any]:
    return [*transition._replace(at=micros_of(transition.at), since=micros_of(transition.since))]  # type: ignore[arg-type]


def _transition(listed: list[Any]) -> Transition:
    transition = Transition(*listed)
    return transition._replace(at=moment_of(listed[3]), since=moment_of(listed[4]))
