"""Notifications against an oracle of whole histories; restarts, windows over daylight saving."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from rangecast import Digest, Notifier, Policy, Transition, UsageError
from rangecast.track.delivery import notifier as module
from tests.support.policy_model import actual, expected, history_of

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

    def _deliver(self, one, at, policy, found):
        before = self.dropped
        super()._deliver(one, at, policy, found)
        if self.dropped > before:
            self._times[one.subscription, one.key].append(at)


class RemindsAfterExit(Notifier):
    """Forgets no stay."""

    def take(self, transitions):
        stays = dict(self._stays)
        found = super().take(transitions)
        self._stays = stays | self._stays
        return found


class RemindsAtTheExit(Notifier):
    """Reminds at the very moment of an exit."""

    def _remind(self, pair, limit, found):
        super()._remind(pair, limit + 1, found)


class DigestsInUtc(Notifier):
    """Takes the time of a digest as UTC."""

    def _window(self, subscription, at, digest):
        return super()._window(subscription, at, Digest(at=digest.at, days=digest.days))


class DeduplicatesForEver(Notifier):
    """Measures from the last repeat, even if it was dropped."""

    def take(self, transitions):
        found = super().take(transitions)
        for one in transitions:
            same = one.subscription, one.key, one.transition
            if same in self._reported:
                self._reported[same] = module.micros_of(one.at)
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


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Digest(), "a digest takes a time or a count"),
        (lambda: Digest(at="08:00", count=2), "a digest takes a time or a count"),
        (lambda: Digest(at="8 am"), "at is a time such as '08:00'"),
        (lambda: Digest(at="08:00", zone="Mars"), "there is no time zone"),
        (lambda: Digest(at="08:00", days="Someday"), "days are such as 'Mon-Fri'"),
        (lambda: Digest(count=0), "count is a whole number"),
        (lambda: Policy(throttle=3), "throttle takes a number and a length"),
        (lambda: Policy(renotify="often"), "renotify takes a length of time"),
        (lambda: Policy(digest="08:00"), "digest takes a Digest"),
    ],
)
def test_mistakes_are_named(make, message: str):
    with pytest.raises(UsageError, match=message):
        make()
