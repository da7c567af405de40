"""Delivery policies of a space: those of its subscriptions, and those of its consumers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from rangecast.model.sets.members import Id
from rangecast.server.state.entries import ConsumerPolicy
from rangecast.server.state.tracks.options import kinds_of, policy_of
from rangecast.server.state.tracks.transitions import Derived
from rangecast.server.state.versions.version import Version
from rangecast.track.delivery.notifications import Notification
from rangecast.track.delivery.notifier import Notifier
from rangecast.track.moments import moment_of
from rangecast.track.transitions import Transition

SavedNotices = dict[str, Any]


class Notices:
    """Delivery policies, and the transitions waiting in digests.

    The transitions of one unit are processed in a fixed order, whatever batch found them.
    """

    def __init__(self, saved: SavedNotices | None = None):
        self._notifier = Notifier() if saved is None else Notifier.restored(saved["notifier"])
        self._is_used = saved is not None
        """Whether there ever was a policy: numbers of digests, for example, count on."""
        self._whose: dict[Id, tuple[int, float]] = {}
        """Consumer and score of subscriptions that have a policy, or transitions that wait."""
        self._consumers: dict[str, int] = {}
        """Numbers of consumers that have a policy, or transitions that wait, by name."""
        self._names: dict[int, str] = {}
        """Names of consumers that have a policy, by number."""
        if saved is not None:
            self._whose = {id_: (consumer, score) for id_, consumer, score in saved["whose"]}
            self._consumers = dict(saved["consumers"])
            self._drop_finished()

    def saved(self) -> SavedNotices | None:
        """Return the state for a new instance; `None` if there never was a policy."""
        if not self._is_used:
            return None
        return {
            "notifier": self._notifier.saved(),
            "whose": [[id_, *facts] for id_, facts in self._whose.items()],
            "consumers": [[*pair] for pair in self._consumers.items()],
        }

    def __bool__(self) -> bool:
        return bool(self._whose or self._consumers)

    def __contains__(self, subscription: Id) -> bool:
        return self._notifier.has_policy(subscription)

    def put(self, version: Version) -> list[Derived]:
        """Set or clear the policy of a subscription; return the digests that this ends."""
        track, consumer = version.track or {}, self._names.get(version.consumer)
        policy = policy_of(track.get("policy"))
        if policy is None and consumer is None and version.id not in self._whose:
            return []
        self._is_used = True
        if policy is not None or consumer is not None:
            self._whose[version.id] = version.consumer, version.score
        self._assign(version, consumer)
        derived = self._derived(self._notifier.set_policy(version.id, policy))
        self._drop_finished()
        return derived

    def _assign(self, version: Version, consumer: str | None) -> None:
        has_both_ends = {"enter", "exit"} <= kinds_of(version.track or {})
        self._notifier.set_consumer(version.id, consumer, has_both_ends=has_both_ends)

    def end(self, subscription: Id) -> list[Derived]:
        """Forget a subscription; a digest with a time is still delivered then."""
        if subscription not in self._whose:
            return []
        self._notifier.set_consumer(subscription, None)
        derived = self._derived(self._notifier.set_policy(subscription, None))
        self._drop_finished()
        return derived

    def put_consumer(self, put: ConsumerPolicy, versions: Sequence[Version]) -> list[Derived]:
        """Set or clear the policy of a consumer with these tracked subscriptions.

        Return the digests that this ends. What waits for a deleted consumer is dropped.
        """
        policy = policy_of(put.policy)
        if policy is None and put.name not in self._consumers:
            return []
        self._is_used = True
        if put.is_deleted:
            self._notifier.remove_consumer(put.name)
            derived = []
        else:
            self._consumers[put.name] = put.number
            derived = self._derived(self._notifier.set_consumer_policy(put.name, policy))
        for version in versions:
            if policy is not None:
                self._whose[version.id] = version.consumer, version.score
            self._assign(version, put.name if policy is not None else None)
        self._drop_finished()
        return derived

    def take(self, transitions: list[Transition], watermark: datetime | None) -> list[Derived]:
        """Process the transitions of a unit; return the notices due by the watermark."""
        ordered = sorted(transitions, key=lambda each: (each.at, repr(each.key), each.number))
        notices = self._notifier.take(ordered)
        if watermark is not None:
            notices += self._notifier.advance(watermark)
        derived = self._derived(notices)
        if any(each.window is not None for each in notices):
            self._drop_finished()
        return derived

    def is_due(self, moment: int) -> bool:
        """Return whether anything is due up to a moment."""
        return self._notifier.is_due(moment_of(moment))

    def status(self) -> dict[str, int]:
        """Return how many transitions wait in digests, and how many were dropped."""
        return {"collected": self._notifier.waiting, "dropped": self._notifier.dropped}

    def _derived(self, notices: Iterable[Notification]) -> list[Derived]:
        return [Derived.of(each, *self._address(each)) for each in notices]

    def _address(self, notice: Notification) -> tuple[int, float]:
        """Return the consumer of a notification, and its score: that of its subscription.

        A consumer's digest has the highest score of its subscriptions that still exist.
        """
        if notice.subscription is not None:
            return self._whose[notice.subscription]
        assert notice.consumer is not None
        names = {each.subscription for each in notice.transitions} & self._whose.keys()
        scores = [self._whose[name][1] for name in names]
        return self._consumers[str(notice.consumer)], max(scores, default=0.0)

    def _drop_finished(self) -> None:
        notifier = self._notifier
        self._whose = {
            id_: facts
            for id_, facts in self._whose.items()
            if notifier.has_policy(id_) or notifier.is_waiting(id_)
        }
        self._consumers = {
            name: number
            for name, number in self._consumers.items()
            if name in notifier.consumers or notifier.is_consumer_waiting(name)
        }
        self._names = {
            number: name for name, number in self._consumers.items() if name in notifier.consumers
        }
