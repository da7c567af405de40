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
from rangecast.server.state.tracks import check_rule_of
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


def locally(requests: list[list[dict[str, Any]]], gone: int) -> list[tuple[Any, ...]]:
    """What is delivered if the subscriptions with a digest end before a request."""
    engine = Engine(THINGS)
    for name, text in FILTERS.items():
        engine.subscribe(name, text)
    tracker = Tracker(engine, time="at", key="key", lateness="3 min", rule=Rule(dwell="4 min"))
    notifier = Notifier(policies={one: Policy.of(given) for one, given in POLICIES.items()})
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
        if number == gone:
            for name in ("daily", "five"):
                engine.unsubscribe(name)
                take(tracker.update_many([{"key": "a", "at": START.isoformat()}]))  # is late
                told.extend(notifier.set_policy(name, None))
        take(tracker.update_many([{**row, "key": names[row["key"]]} for row in rows]))
    return sorted(
        (one.subscription, one.window or "", tuple(each.id for each in one.transitions), one.id)
        for one in told
    )


async def delivered(folder: Path, seed: int, gone: int, requests: Any) -> list[Any]:
    """What a consumer gets of a server that is restarted again and again."""
    chance = random.Random(seed)
    service = Service(folder, durability="none")
    service.start()
    edits = [PutSpace(T, SPACE, THINGS.definition(), TRACK), PutConsumer(T, "one", SPACE, start=0)]
    for name, text in FILTERS.items():
        policy = {"policy": POLICIES[name]} if name in POLICIES else {}
        track = {"dwell": "4 min", **policy}
        edits.append(PutSubscription(T, name, SPACE, text, "one", track=track))
    await result_of(service.core.edit(*edits))
    for number, rows in enumerate(requests):
        if chance.random() < 0.1:
            service.stop()
            if chance.random() < 0.5:
                for one in folder.glob("snapshot-*"):
                    shutil.rmtree(one)
            service = Service(folder, durability="none")
            service.start()
        if number == gone:
            for name in ("daily", "five"):
                await result_of(service.core.edit(DeleteSubscription(T, name, SPACE)))
        entry = service.core.registry.space(T, SPACE)
        lines = [json.dumps(row).encode() for row in rows]
        if chance.random() < 0.5:
            await result_of(service.core.publish(entry, lines, wants_matches=True))
        else:  # perhaps together with the next one
            service.core.publish(entry, lines)
    await settled(service)
    messages = await all_of(service, "one", 0)
    status = service.core.tracks.spaces[entry.number].status()
    service.stop()
    assert status["dropped"] > 0
    file = folder.parent / f"{folder.name}.jsonl"
    file.write_bytes(b"".join(one.json("e") + b"\n" for one in messages))
    report = verify_deliveries(folder, T, "one", file)
    assert report.holds, report.samples
    assert report.expected == len(messages)
    return [message(json.loads(one.json("e"))) for one in messages]


def rows_of(found: list[Any]) -> list[tuple[Any, ...]]:
    rows = []
    for one in found:
        is_digest = isinstance(one, DigestMessage)
        ids = tuple(each.id for each in one.transitions) if is_digest else (one.id,)
        window = one.window if is_digest else ""
        rows.append((one.subscriptions[0], window, ids, one.id))
    return sorted(rows)


@pytest.mark.parametrize("seed", range(2))
def test_a_restarted_server_delivers_what_a_local_notifier_does(seed: int, tmp_path: Path):
    requests, gone = events_of(seed), 40

    async def work() -> None:
        found = await delivered(tmp_path / "data", seed, gone, requests)
        assert rows_of(found) == locally(requests, gone)
        digests = [one for one in found if isinstance(one, DigestMessage)]
        assert {one.subscriptions[0] for one in digests} == {"daily", "five"}
        reasons = {each.reason for one in digests for each in one.transitions}
        assert {"event", "removed"} <= reasons
        assert "reminder" in {one.transition for one in found if not isinstance(one, DigestMessage)}

    run(work())


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
    with pytest.raises(UsageError, match="both ends"):
        check_rule_of({"on": ["enter"], "policy": {"renotify": "1 h"}}, THINGS)
