"""Policies in a server: what a consumer gets is that of a local tracker and notifier."""

import json
import random
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from rangecast import Engine, Notifier, Number, Policy, Rule, Space, Timestamp, Tracker
from rangecast.client.results import DigestMessage, message
from rangecast.errors import UsageError
from rangecast.server.pipeline.futures import result_of
from rangecast.server.service import Service
from rangecast.server.state.edits import (
    DeleteSubscription,
    PutConsumer,
    PutSpace,
    PutSubscription,
)
from rangecast.server.state.tracks.options import check_rule_of
from rangecast.server.verify.deliveries import verify_deliveries
from tests.support.server.service import all_of, run
from tests.support.server.tracks import settled

T, SPACE = "default", "things"
START = datetime(2026, 1, 31, 9, tzinfo=UTC)
THINGS = Space([Timestamp("at"), Number("value")])
TRACK = {"key": "key", "time": "at", "lateness": "3 min"}
POLICIES: dict[str, dict[str, Any]] = {
    "few": {"throttle": [2, "30 min"], "deduplicate": "5 min"},
    "again": {"renotify": "7 min"},
    "daily": {"digest": {"at": "11:30", "zone": "Europe/Berlin"}},
    "five": {"digest": {"count": 5}, "renotify": "20 min"},
}
FILTERS = {
    "few": "value < 5",
    "again": "value > 6",
    "daily": "value between 2 and 7",
    "five": "value between 4 and 8",
    "plain": "value > 3",
}


CONSUMERS: dict[str, dict[str, Any]] = {
    "one": {},
    "two": {"throttle": [3, "20 min"], "deduplicate": "4 min", "renotify": "9 min"},
    "both": {"digest": {"at": "11:00", "zone": "Europe/Berlin"}, "renotify": "30 min"},
    "count": {"digest": {"count": 4}},
}
"""Policies of consumers: the last three have two subscriptions each, one with a policy."""


def own_of(consumer: str) -> dict[str, dict[str, Any]]:
    """Return the subscriptions of a consumer, with their policies."""
    if consumer == "one":
        return {name: POLICIES.get(name, {}) for name in FILTERS}
    return {f"{consumer} few": POLICIES["few"], f"{consumer} plain": {}}


def filter_of(subscription: str) -> str:
    return FILTERS[subscription.rpartition(" ")[2]]


def events_of(seed: int) -> list[list[dict[str, Any]]]:
    """Requests of one to five events each."""
    chance, minute, found = random.Random(seed), 0, []
    for _ in range(60):
        rows = []
        for _ in range(chance.randint(1, 5)):
            minute += chance.choice([0, 0, 1, 2])
            at = START + timedelta(minutes=minute - chance.choice([0, 0, 1, 2, 9]))
            key = chance.choice(["a", "b", "c", 7])
            rows.append({"key": key, "at": at.isoformat(), "value": chance.randrange(10)})
        found.append(rows)
    return found


def locally(
    requests: list[list[dict[str, Any]]], gone: int, changed: int, consumers: list[str]
) -> list[tuple[Any, ...]]:
    """Return the deliveries if the subscriptions with a digest end before a request, and the
    policies of consumers before another one.
    """
    engine, owner = Engine(THINGS), dict[Any, Any]()
    policies = {}
    for consumer in consumers:
        for name, own in own_of(consumer).items():
            engine.subscribe(name, filter_of(name))
            owner[name] = consumer
            policies |= {name: Policy.of(own)} if own else {}
    tracker = Tracker(engine, time="at", key="key", lateness="3 min", rule=Rule(dwell="4 min"))
    theirs = {name: Policy.of(CONSUMERS[name]) for name in consumers if CONSUMERS[name]}
    notifier = Notifier(None, policies, theirs, owner)
    names = {"a": "a", "b": "b", "c": "c", 7: "7"}
    keys: dict[str, Any] = {text: key for key, text in names.items()}
    told = []

    def take(found: Any) -> None:
        named = [one._replace(key=keys[str(one.key)], event=None) for one in found]
        named.sort(key=lambda one: (one.at, repr(one.key), one.number))
        told.extend(notifier.take(named))
        if tracker.watermark is not None:
            told.extend(notifier.advance(tracker.watermark))

    for number, rows in enumerate(requests):
        if number == changed:
            for name in theirs:
                told.extend(notifier.set_consumer_policy(name, None))
        if number == gone:
            for name in [name for name in ("daily", "five", "count few") if name in owner]:
                engine.unsubscribe(name)
                take(tracker.update_many([{"key": "a", "at": START.isoformat()}]))  # is late
                notifier.set_consumer(name, None)
                told.extend(notifier.set_policy(name, None))
        take(tracker.update_many([{**row, "key": names[row["key"]]} for row in rows]))
    return sorted(
        (
            tuple(dict.fromkeys(str(each.subscription) for each in one.transitions)),
            one.window or "",
            tuple(each.id for each in one.transitions),
            one.id,
        )
        for one in told
    )


def edits_of(consumers: list[str]) -> list[Any]:
    """Return the edits that make consumers and their subscriptions."""
    edits: list[Any] = []
    for consumer in consumers:
        policy = CONSUMERS[consumer] or None
        # one of them gets its policy after its subscriptions
        edits.append(PutConsumer(T, consumer, SPACE, start=0))
        if consumer != "both":
            edits.append(PutConsumer(T, consumer, SPACE, policy=policy))
        for name, own in own_of(consumer).items():
            track = {"dwell": "4 min"} | ({"policy": own} if own else {})
            edits.append(PutSubscription(T, name, SPACE, filter_of(name), consumer, track=track))
        if consumer == "both":
            edits.append(PutConsumer(T, consumer, SPACE, policy=policy))
    return edits


async def delivered(
    folder: Path, seed: int, gone: int, changed: int, consumers: list[str], requests: Any
) -> list[Any]:
    """Return the messages of consumers of a server that is restarted repeatedly."""
    chance = random.Random(seed)
    service = Service(folder, durability="none")
    service.start()
    space = PutSpace(T, SPACE, THINGS.definition(), TRACK)
    await result_of(service.core.edit(space, *edits_of(consumers)))
    for number, rows in enumerate(requests):
        if chance.random() < 0.1:
            service.stop()
            if chance.random() < 0.5:
                for one in folder.glob("snapshot-*"):
                    shutil.rmtree(one)
            service = Service(folder, durability="none")
            service.start()
        if number == changed:
            for name in [name for name in consumers if CONSUMERS[name]]:
                await result_of(service.core.edit(PutConsumer(T, name, SPACE)))
        if number == gone:
            live = service.core.registry.space(T, SPACE).live
            for name in [name for name in ("daily", "five", "count few") if name in live]:
                await result_of(service.core.edit(DeleteSubscription(T, name, SPACE)))
        entry = service.core.registry.space(T, SPACE)
        lines = [json.dumps(row).encode() for row in rows]
        if chance.random() < 0.5:
            await result_of(service.core.publish(entry, lines, wants_matches=True))
        else:  # perhaps together with the next one
            service.core.publish(entry, lines)
    await settled(service)
    messages = {consumer: await all_of(service, consumer, 0) for consumer in consumers}
    status = service.core.tracks.spaces[entry.number].status()
    service.stop()
    assert status["dropped"] > 0
    for consumer, some in messages.items():
        file = folder.parent / f"{folder.name}.jsonl"
        file.write_bytes(b"".join(one.json("e") + b"\n" for one in some))
        report = verify_deliveries(folder, T, consumer, file)
        assert report.holds, report.samples
        assert report.expected == len(some) > 0
    return [message(json.loads(one.json("e"))) for some in messages.values() for one in some]


def rows_of(found: list[Any]) -> list[tuple[Any, ...]]:
    rows = []
    for one in found:
        is_digest = isinstance(one, DigestMessage)
        ids = tuple(each.id for each in one.transitions) if is_digest else (one.id,)
        window = one.window if is_digest else ""
        rows.append((tuple(one.subscriptions), window, ids, one.id))
    return sorted(rows)


@pytest.mark.parametrize("seed", range(2))
def test_a_restarted_server_delivers_what_a_local_notifier_does(seed: int, tmp_path: Path):
    requests, gone = events_of(seed), 40

    async def work() -> None:
        found = await delivered(tmp_path / "data", seed, gone, -1, ["one"], requests)
        assert rows_of(found) == locally(requests, gone, -1, ["one"])
        digests = [one for one in found if isinstance(one, DigestMessage)]
        assert {one.subscriptions[0] for one in digests} == {"daily", "five"}
        reasons = {each.reason for one in digests for each in one.transitions}
        assert {"event", "removed"} <= reasons
        assert "reminder" in {one.transition for one in found if not isinstance(one, DigestMessage)}

    run(work())


@pytest.mark.parametrize("seed", range(2))
def test_policies_of_consumers_are_those_of_a_local_notifier(seed: int, tmp_path: Path):
    requests, gone, changed = events_of(seed), 30, 50
    consumers = [name for name, policy in CONSUMERS.items() if policy]

    async def work() -> None:
        found = await delivered(tmp_path / "data", seed, gone, changed, consumers, requests)
        assert rows_of(found) == locally(requests, gone, changed, consumers)
        digests = [one for one in found if isinstance(one, DigestMessage)]
        names = {tuple(sorted(one.subscriptions)) for one in digests}
        assert {("both few", "both plain"), ("count few", "count plain")} <= names
        for one in digests:
            inner = [each.subscriptions for each in one.transitions]
            assert one.subscriptions == list(dict.fromkeys(name for (name,) in inner))

    run(work())


def test_numbers_of_digests_count_on_after_a_restart(tmp_path: Path):
    """A subscription that ends and comes back never has the number of an earlier digest."""
    track = {"policy": {"digest": {"count": 2}}}
    put = PutSubscription(T, "five", SPACE, "value > 3", "one", track=track)

    async def work(*, restarts: bool) -> list[str]:
        folder, minute = tmp_path / str(restarts), 0
        service = Service(folder, durability="none")
        service.start()
        space = PutSpace(T, SPACE, THINGS.definition(), TRACK)
        await result_of(service.core.edit(space, PutConsumer(T, "one", SPACE, start=0)))
        for _ in range(2):
            await result_of(service.core.edit(put))
            entry = service.core.registry.space(T, SPACE)
            for value in (5, 0, 0):
                minute += 4
                at = (START + timedelta(minutes=minute)).isoformat()
                line = json.dumps({"key": "a", "at": at, "value": value}).encode()
                await result_of(service.core.publish(entry, [line], wants_matches=True))
            await result_of(service.core.edit(DeleteSubscription(T, "five", SPACE)))
            if restarts:
                service.stop()
                service = Service(folder, durability="none")
                service.start()
        await settled(service)
        found = [json.loads(one.json("e")) for one in await all_of(service, "one", 0)]
        service.stop()
        return [one["window"] for one in found]

    async def both() -> None:
        assert await work(restarts=True) == await work(restarts=False) == ["1", "2"]

    run(both())


@pytest.mark.parametrize(
    "policy",
    [
        {"throttle": 3},
        {"digest": {}},
        {"digest": {"at": "25:00"}},
        {"digest": {"until": "08:00"}},
        {"often": "1 h"},
        "daily",
    ],
)
def test_a_policy_that_cannot_be_is_rejected(policy: Any):
    with pytest.raises(UsageError):
        check_rule_of({"policy": policy}, THINGS)


def test_reminders_need_both_ends_of_a_stay():
    with pytest.raises(UsageError, match="requires enter and exit"):
        check_rule_of({"on": ["enter"], "policy": {"renotify": "1 h"}}, THINGS)
