"""Notifications against an oracle of whole histories; restarts, windows over daylight saving."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from rangecast import Digest, Notifier, Policy, Rule, Transition, UsageError
from rangecast.track.delivery import notifier as module
from rangecast.track.delivery.timer_queue import TimerQueue
from tests.support.policy_model import actual, expected, history_of
from tests.support.shared_policy_model import actual_of, expected_of, shared_history_of

SEEDS = range(200)
START = datetime(2026, 3, 28, 12, tzinfo=UTC)


def transition(hours: float, kind: str = "enter", key: str = "a", subscription: str = "s"):
    at = START + timedelta(hours=hours)
    return Transition(key, subscription, kind, at, at, None, "event", 0)


@pytest.mark.parametrize("restarts", [False, True])
def test_notifications_are_those_of_the_oracle(restarts: bool):
    for seed in SEEDS if not restarts else range(200, 240):
        history = history_of(seed)
        wanted = expected(history.policy, history.rows, history.start, history.end)
        assert actual(history, restarts=restarts) == wanted, f"seed {seed}"


class ThrottlesByDropped(Notifier):
    """Counts dropped transitions, too."""

    def _is_throttled(self, owner, policy, key, at):
        is_throttled = super()._is_throttled(owner, policy, key, at)
        if is_throttled:
            self._times[owner][key].append(at)
        return is_throttled


class RemindsAfterExit(Notifier):
    """Forgets no stay."""

    def _end_stay(self, key, subscription):
        pass


class RemindsAtTheExit(Notifier):
    """Reminds at the very moment of an exit."""

    def _remind(self, stays, limit, found):
        super()._remind(stays, limit + 1, found)


class DigestsInUtc(Notifier):
    """Takes the time of a digest as UTC."""

    def _window(self, owner, at, digest):
        return super()._window(owner, at, Digest(at=digest.at, days=digest.days))


class DeduplicatesForEver(Notifier):
    """Measures from the last repeat, even if it was dropped."""

    def take(self, transitions):
        found = super().take(transitions)
        for one in transitions:
            reported = self._reported.get(one.subscription, {})
            if (one.key, one.transition) in reported:
                reported[one.key, one.transition] = module.micros_of(one.at)
        return found


class ClosesEarly(Notifier):
    """Closes digests a minute early."""

    def _closed(self, limit):
        return super()._closed(None if limit is None else limit + 24 * 60 * 60_000_000)


@pytest.mark.parametrize(
    "kind",
    [
        ThrottlesByDropped,
        RemindsAfterExit,
        RemindsAtTheExit,
        DigestsInUtc,
        DeduplicatesForEver,
        ClosesEarly,
    ],
)
def test_histories_find_every_mistake(kind: type[Notifier]):
    for seed in SEEDS:
        history = history_of(seed)
        wanted = expected(history.policy, history.rows, history.start, history.end)
        try:
            if actual(history, kind) != wanted:
                return
        except AssertionError:
            return
    raise AssertionError("no history shows it")


@pytest.mark.parametrize("restarts", [False, True])
def test_policies_of_a_consumer_follow_those_of_its_subscriptions(restarts: bool):
    for seed in SEEDS if not restarts else range(200, 240):
        shared = shared_history_of(seed)
        assert actual_of(shared, restarts=restarts) == expected_of(shared), f"seed {seed}"


class TakesTheConsumerFirst(Notifier):
    """Applies the consumer's policy before that of a subscription."""

    def _owners(self, subscription):
        return super()._owners(subscription)[::-1]


class CountsEachSubscription(Notifier):
    """Keeps a consumer's throttle and repeats for each subscription alone."""

    def _owners(self, subscription):
        first, *others = super()._owners(subscription)
        return [first, *[((subscription, "consumer"), policy) for _, policy in others]]


class RemindsTwice(Notifier):
    """Adds a consumer's time between reminders to that of a subscription."""

    def _renotify(self, subscription):
        own = super()._renotify(subscription)
        consumer = self.consumers.get(self.consumer_of.get(subscription))
        return own + (consumer.lengths[3] if own and consumer else 0)


class RemindsOneSubscription(Notifier):
    """Reminds of one stay of an object after the other, not in order of time."""

    def _remind(self, stays, limit, found):
        for subscription in ("t", "s"):
            super()._remind([one for one in stays if one[0] == subscription], limit, found)


@pytest.mark.parametrize(
    "kind",
    [TakesTheConsumerFirst, CountsEachSubscription, RemindsTwice, RemindsOneSubscription],
)
def test_shared_histories_find_every_mistake(kind: type[Notifier]):
    for seed in SEEDS:
        shared = shared_history_of(seed)
        if actual_of(shared, kind) != expected_of(shared):
            return
    raise AssertionError("no history shows it")


def test_a_digest_of_a_consumer_has_all_of_its_subscriptions():
    consumers = {"ops": Policy(digest=Digest(count=3), renotify="1 h")}
    notifier = Notifier(consumers=consumers, consumer_of={"s": "ops", "t": "ops"})
    notifier.set_policy("t", Policy(digest=Digest(count=1)))
    (at_once,) = notifier.take([transition(0), transition(0, subscription="t")])
    assert (at_once.subscription, at_once.window, at_once.consumer) == ("t", "1", None)
    notifier.set_consumer("u", "ops", has_both_ends=False)
    notifier.take([transition(0.5, subscription="u")])
    (digest,) = [one for one in notifier.advance(START + timedelta(hours=1.5)) if one.consumer]
    assert (digest.subscription, digest.window, digest.consumer) == (None, "1", "ops")
    told = [(one.subscription, one.transition) for one in digest.transitions]
    assert told == [("s", "enter"), ("u", "enter"), ("s", "reminder")]
    again = Notifier.restored(json.loads(json.dumps(notifier.saved())))
    again.take([transition(2, "exit"), transition(2, "exit", subscription="u")])
    (last,) = again.set_consumer_policy("ops", None)
    assert (last.window, len(last.transitions)) == ("2", 2)
    assert last.id != digest.id
    assert not again.has_policy("s")


def test_a_definition_is_as_one_would_write_it():
    policy = Policy(deduplicate=timedelta(seconds=90), throttle=(3, "60 min"), renotify="0.0015 s")
    written = {"deduplicate": "90 s", "throttle": [3, "1 h"], "renotify": "1.500 ms"}
    assert policy.definition() == written
    assert Policy.of(written).lengths == policy.lengths


def test_a_consumer_that_is_removed_leaves_nothing():
    limits = Policy(deduplicate="9 h", throttle=(1, "9 h"), digest=Digest(at="08:00"))
    notifier = Notifier(consumers={"ops": limits}, consumer_of={"s": "ops"})
    assert notifier.take([transition(0)]) == []
    assert notifier.is_consumer_waiting("ops")
    notifier.remove_consumer("ops")
    saved = notifier.saved()
    empty = ("consumers", "consumer_of", "reported", "times", "windows")
    assert [saved[name] for name in empty] == [[]] * 5
    assert len(notifier.take([transition(1, "exit"), transition(2)])) == 2


@pytest.mark.parametrize(
    ("day", "length"), [((2026, 3, 28, 12), 23), ((2026, 10, 24, 12), 25), ((2026, 6, 1, 12), 24)]
)
def test_windows_have_the_length_of_their_day(day, length: int):
    notifier = Notifier(Policy(digest=Digest(at="08:00", zone="Europe/Berlin")))
    start = datetime(*day, tzinfo=UTC)
    days = [start + timedelta(days=step) for step in range(2)]
    notifier.take([transition(0)._replace(at=at) for at in days])
    found = notifier.advance(start + timedelta(days=3))
    zone = module.zone_of("Europe/Berlin")
    assert [one.at.astimezone(zone).hour for one in found] == [8, 8]
    assert notifier.policy.digest is not None
    begin, end = module.window_around(module.micros_of(start), notifier.policy.digest)
    assert end - begin == length * 3_600_000_000


def test_a_stored_window_keeps_its_end_when_zones_change(monkeypatch: pytest.MonkeyPatch):
    notifier = Notifier(Policy(digest=Digest(at="08:00", zone="Europe/Berlin")))
    notifier.take([transition(0)])
    saved = json.loads(json.dumps(notifier.saved()))
    monkeypatch.setattr(module, "window_around", lambda at, digest: pytest.fail("asked again"))
    again = Notifier.restored(saved)
    again.take([transition(1)])
    (one,) = again.advance(START + timedelta(days=2))
    assert one.window == "2026-03-29T08:00:00+02:00"
    assert len(one.transitions) == 2


def test_what_comes_after_its_digest_is_in_the_next_one():
    notifier = Notifier(Policy(digest=Digest(at="08:00")))
    notifier.take([transition(0)])
    (first,) = notifier.advance(START + timedelta(days=1))
    notifier.take([transition(1, key="late")])
    (second,) = notifier.advance(START + timedelta(days=2))
    assert (first.window, second.window) == (
        "2026-03-29T08:00:00+00:00",
        "2026-03-30T08:00:00+00:00",
    )
    assert [one.key for one in second.transitions] == ["late"]
    assert first.id != second.id


def test_digests_of_a_count_and_of_a_subscription_that_is_gone(tmp_path: Path):
    policies = {"s": Policy(digest=Digest(count=2)), "gone": Policy(digest=Digest(at="00:00"))}
    notifier = Notifier(policies=policies)
    at_once = notifier.take([transition(0, subscription="other")])
    assert [one.window for one in at_once] == [None]
    assert notifier.take([transition(0), transition(0, subscription="gone")]) == []
    (pair,) = notifier.take([transition(1, "exit"), transition(1, "exit", subscription="gone")])
    assert (pair.window, [one.transition for one in pair.transitions]) == ("1", ["enter", "exit"])
    notifier.save(tmp_path / "notifier.json")
    notifier = Notifier.open(tmp_path / "notifier.json")
    (last,) = notifier.advance(START + timedelta(days=1))
    assert (last.subscription, len(last.transitions)) == ("gone", 2)
    assert notifier.take([transition(30), transition(31, "exit")])[0].window == "2"


def test_what_no_transition_is_compared_with_is_forgotten():
    policy = Policy(deduplicate="1 h", throttle=(1, "1 h"), renotify="1 h")
    notifier = Notifier(policy)
    for number in range(1000):
        notifier.take([transition(0, key=f"k{number}"), transition(0.5, "exit", key=f"k{number}")])
    notifier.advance(START + timedelta(hours=2))
    saved = notifier.saved()
    assert [saved[name] for name in ("reported", "times", "stays", "windows")] == [[], [], [], []]


def timer_queues(notifier: Notifier) -> list[TimerQueue]:
    return [notifier._reminders, notifier._ends, notifier._repeats, notifier._throttles]


def visited(notifier: Notifier) -> int:
    """Return how many entries of its state a notifier has looked at to find what is due."""
    return sum(queue.visited for queue in timer_queues(notifier))


def test_time_costs_what_is_due_not_what_there_is():
    often = Policy(deduplicate="1 h", throttle=(9, "1 h"), renotify="1 h")
    seldom = Policy(deduplicate="900 h", throttle=(9, "900 h"), renotify="900 h")
    digest = Policy(digest=Digest(at="08:00", days="Mon"))
    notifier = Notifier(policies={"often": often, "seldom": seldom, "weekly": digest})
    for number in range(5000):
        notifier.take([transition(0, key=f"k{number}", subscription="seldom")])
    notifier.take([transition(0, subscription="weekly")])
    notifier.take([transition(0, key=key, subscription="often") for key in "abc"])
    for step in range(1, 61):
        moment = START + timedelta(minutes=step)
        assert not notifier.is_due(moment)
        assert notifier.advance(moment) == []
    assert visited(notifier) <= 6  # what `often` compared with is forgotten after an hour
    reminded = notifier.advance(START + timedelta(hours=24.5))
    assert len(reminded) == 24 * 3
    assert visited(notifier) <= 6 + 24 * 3 * 3
    before = visited(notifier)
    assert len(notifier.advance(START + timedelta(hours=901))) == 5000 + 3 * 876 + 1
    assert 5000 * 2 <= visited(notifier) - before <= 5000 * 3 + 3 * 3 * 876


def test_a_timer_queue_keeps_nothing_of_entries_that_were_replaced():
    policy = Policy(deduplicate="900 h", renotify="900 h")
    notifier = Notifier(policy)
    for number in range(20_000):
        kind = "exit" if number % 2 else "enter"
        notifier.take([transition(number * 2000, kind, key="a")])
    assert all(len(queue._heap) < 100 for queue in timer_queues(notifier))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Digest(), "a digest requires either a time or a count"),
        (lambda: Digest(at="08:00", count=2), "a digest requires either a time or a count"),
        (lambda: Digest(at="8 am"), "at must be a time such as '08:00'"),
        (lambda: Digest(at="08:00", zone="Mars"), "unknown time zone"),
        (lambda: Digest(at="08:00", days="Someday"), "days must have the form 'Mon-Fri'"),
        (lambda: Digest(count=0), "count must be a whole number"),
        (lambda: Policy(throttle=3), "throttle must be a number and a length"),
        (lambda: Policy(renotify="often"), "renotify must be a length of time"),
        (lambda: Policy(digest="08:00"), "digest must be a Digest"),
        (lambda: Policy(throttle=(1, None)), "throttle must be a number and a length of time"),
        (lambda: Digest(at="08:00", zone=None), "unknown time zone None"),
        (lambda: Digest(at="08:00", days=5), "days must have the form"),
        (lambda: Rule(margin=5), "margin must be a dict"),
    ],
)
def test_mistakes_are_named(make, message: str):
    with pytest.raises(UsageError, match=message):
        make()


@pytest.mark.parametrize("days", [None, "Mon"])
@pytest.mark.parametrize("zone", ["America/New_York", "Asia/Tokyo", "UTC"])
@pytest.mark.parametrize("day", ["0001-01-01", "0001-01-05", "9999-12-24", "9999-12-31"])
def test_a_digest_at_an_end_of_the_calendar(day: str, zone: str, days):
    at = datetime.fromisoformat(f"{day}T12:30:00Z")
    notifier = Notifier(Policy(digest=Digest(at="08:00", days=days, zone=zone)))
    first = transition(0)._replace(at=at, since=at)
    assert notifier.take([first, first._replace(key="b")]) == []
    notifier = Notifier.restored(json.loads(json.dumps(notifier.saved())))
    (digest,) = notifier.close()
    assert [one.key for one in digest.transitions] == ["a", "b"]
    assert digest.at >= at
