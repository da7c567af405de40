"""Workers that share a topic of a real Kafka: every match once, also when some of them die."""

from __future__ import annotations

import asyncio
import json
import random
import signal
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import pytest

from rangecast import Engine
from rangecast.errors import RangecastError
from rangecast.model.space import Space
from rangecast.server.log.base import LogError, MemoryLog
from rangecast.server.log.kafka import KafkaLog, connecting, make_topic
from rangecast.server.pipeline.apply import apply_changes
from rangecast.server.pipeline.futures import result_of
from rangecast.server.state.edits import (
    AnyEdit,
    DeleteConsumer,
    DeleteSubscription,
    PutConsumer,
    PutSpace,
    PutSubscription,
    edits_draft,
)
from rangecast.server.state.replay import Replay
from rangecast.server.state.snapshots import SnapshotState
from rangecast.server.verify.workers import verify_workers
from rangecast.server.workers.group_member import AbortedError, Batch, FencedError, Member, Record
from rangecast.server.workers.matcher import Event, Match, Matcher
from rangecast.server.workers.worker import Worker, WorkerSettings
from tests.support.server.serving import SPACE, T, run, serving, until

pytestmark = [pytest.mark.process, pytest.mark.xdist_group("kafka")]


# ---- without Kafka


def test_a_matcher_finds_what_an_engine_does_at_every_place_of_a_log() -> None:
    words = Space.from_toml(
        'attribute = [{ name = "price", type = "number" }, { name = "word", type = "string" }]'
    )
    rng = random.Random(7)
    log = MemoryLog()
    matcher = Matcher("here", T, "s", "in")
    assert matcher.begin(None, log.epoch, 1) == 0
    with pytest.raises(RangecastError, match="no space 's' of the tenant default"):
        matcher.match([])
    live: dict[str, tuple[str, str]] = {}

    def edit(*edits: AnyEdit) -> None:
        matcher.take(log.append([edits_draft([*edits], 0)]))

    edit(PutSpace(T, "s", SPACE.definition()), PutSpace(T, "t", SPACE.definition()))
    edit(PutConsumer(T, "one", "s"), PutConsumer(T, "two", "s"), PutConsumer(T, "other", "t"))
    edit(
        PutSubscription(T, "a", "t", "price > 0", "other"),
        PutSubscription(T, "x", "s", "price > 0"),
    )
    space = SPACE
    for step in range(60):
        name = f"n{rng.randrange(12)}"
        if step == 30:
            space = words
            edit(PutSpace(T, "s", words.definition()))
        elif name in live and rng.random() < 0.3:
            del live[name]
            edit(DeleteSubscription(T, name, "s"))
        else:
            wanted = f"price > {rng.randrange(10)}"
            if space is words and rng.random() < 0.5:
                wanted += f" and word = 'w{step}'"
            live[name] = wanted, rng.choice(("one", "two"))
            edit(PutSubscription(T, name, "s", *live[name]))
        if step == 50:
            live = {name: one for name, one in live.items() if one[1] != "two"}
            edit(DeleteConsumer(T, "two"), PutConsumer(T, "two", "s"))
        engine = Engine(space)
        for name, (wanted, _) in live.items():
            engine.subscribe(name, wanted)
        rows = [{"price": rng.randrange(12), "word": f"w{rng.randrange(60)}"} for _ in range(5)]
        lines = [json.dumps(row).encode() for row in rows]
        given = [b"{", *lines, b"", b'{"price": "much"}', b"[1]"]
        answer = matcher.match([Event(3, 10 + n, line) for n, line in enumerate(given)])
        assert answer.edits == f"{log.epoch}:{log.last}"
        assert [one.offset for one, _ in answer.rejected] == [10, 16, 17, 18]
        found = {(one.event.offset - 11, one.consumer): ids_of(one) for one in answer.matches}
        assert len(found) == len(answer.matches)
        expected: dict[tuple[int, str], set[str]] = {}
        for n, row in enumerate(rows):
            for name in map(str, engine.match(row, ignore_unknown=True)):
                expected.setdefault((n, live[name][1]), set()).add(name)
        assert found == expected


def ids_of(one: Match) -> set[str]:
    """The ids of a match; its body is a CloudEvent that says where the event lies."""
    said = json.loads(one.body)
    assert said["id"] == f"in:3:{one.event.offset}"
    assert said["subject"] == one.consumer
    assert said["data"]["event"] == json.loads(one.event.value)
    return set(said["data"]["subscriptions"])


def test_a_consumers_best_are_found_too() -> None:
    log, matcher = MemoryLog(), Matcher("here", T, "s", "in")
    matcher.begin(None, log.epoch, 1)
    edits: list[AnyEdit] = [
        PutSpace(T, "s", SPACE.definition()),
        PutConsumer(T, "one", "s", max_per_event=2),
    ]
    for name, score in {"a": 1.0, "b": 3.0, "c": 2.0}.items():
        edits.append(PutSubscription(T, name, "s", "price > 0", "one", score))
    matcher.take(log.append([edits_draft(edits, 0)]))
    (one,) = matcher.match([Event(3, 0, b'{"price": 1}')]).matches
    assert json.loads(one.body)["data"]["subscriptions"] == ["b", "c"]


# ---- with Kafka

DIES = """
import os, signal, sys
from rangecast.cli.main import main
from rangecast.server.workers import group_member as member, worker
point, member.SESSION, worker.TAKEN, calls = sys.argv.pop(1), 2.0, 20, []
commit = member.Member._end_transaction
def dies(one):
    calls.append(1)
    if len(calls) == 4 and point == "before":
        os.kill(os.getpid(), signal.SIGKILL)
    commit(one)
    if len(calls) == 4 and point == "after":
        os.kill(os.getpid(), signal.SIGKILL)
member.Member._end_transaction = dies
main()
"""


@pytest.mark.soak
def test_two_share_the_work_while_edits_go_on_and_some_are_killed(kafka: str) -> None:
    """Each has to know of the edits that were acknowledged before an event was sent."""
    from confluent_kafka import Producer

    url = f"kafka://{kafka}/shared"
    settings = WorkerSettings(url, "s", "shared-in", "shared-out")
    make_topic(connecting(kafka), settings.events, 4)
    sending = Producer({"bootstrap.servers": kafka})
    rng = random.Random(3)
    edits: list[tuple[int, str, range, str]] = []
    sent: list[dict[str, int]] = []
    running: list[subprocess.Popen[str]] = []

    def start(point: str, name: str) -> subprocess.Popen[str]:
        options = ["--space", "s", "--events", settings.events, "--matches", settings.matches]
        command = ["worker", "run", url, *options, "--name", name, "--metrics-port", "0"]
        code = [sys.executable, "-c", DIES, point]
        running.append(subprocess.Popen([*code, *command], stdout=subprocess.PIPE, text=True))
        return running[-1]

    async def work() -> None:
        async with serving(log=url) as service:
            owners = [PutConsumer(T, one, "s") for one in ("one", "two")]
            await result_of(service.core.edit(*owners))

            async def step() -> None:
                name, owner = f"n{rng.randrange(30)}", rng.choice(("one", "two"))
                wanted = range(low := rng.randrange(40), low + rng.randrange(1, 40))
                text = f"price >= {wanted.start} and price < {wanted.stop}"
                known = await result_of(
                    service.core.edit(PutSubscription(T, name, "s", text, owner))
                )
                edits.append((known, name, wanted, owner))
                for _ in range(5):
                    event = {"price": rng.randrange(60), "known": known}
                    sending.produce(settings.events, json.dumps(event), partition=len(sent) % 4)
                    sent.append(event)
                sending.flush()

            first, second = start("before", "first"), start("", "second")
            assert second.stdout is not None
            where = (await asyncio.to_thread(second.stdout.readline)).split()[-1].rstrip(".")
            while first.poll() is None:
                await step()
            third = start("after", "first")  # under the same name: nobody waits for the first
            while third.poll() is None:
                await step()
            assert [first.returncode, third.returncode] == [-signal.SIGKILL] * 2
            sending.produce(settings.events, b"{", partition=0)
            sending.flush()
            await until(lambda: has_all(settings, kafka))
            await until(lambda: lag_of(where) == 0)
            second.send_signal(signal.SIGTERM)
            said, _ = await asyncio.to_thread(second.communicate)
            assert (second.returncode, "1 rejected" in said) == (0, True), said

    try:
        run(work)
    finally:
        for one in running:
            one.kill()
            one.wait()
            assert one.stdout is not None
            one.stdout.close()

    # where each event was matched, which was once
    places: dict[tuple[int, int], int] = {}
    for one in committed(kafka, settings.batches):
        said = json.loads(one.value())
        for offset in range(said["first"], said["upto"]):
            assert (said["partition"], offset) not in places
            places[said["partition"], offset] = int(said["edits"].partition(":")[2])
    assert len(places) == len(sent) + 1
    for (here, at), (there, later) in pairwise(sorted(places.items())):
        assert here[0] != there[0] or at <= later
    # and for whom, by the edits up to there
    expected: dict[tuple[int, int, str], set[str]] = {}
    for number, event in enumerate(sent):
        partition, offset = number % 4, number // 4
        assert places[partition, offset] >= event["known"]
        live = {name: one for at, name, *one in edits if at <= places[partition, offset]}
        for name, (wanted, owner) in live.items():
            if event["price"] in wanted:
                expected.setdefault((partition, offset, owner), set()).add(name)
    records = committed(kafka, settings.matches)
    found: dict[tuple[int, int, str], set[str]] = {}
    for one in records:
        head = {name: value.decode() for name, value in one.headers()}
        place = int(head["partition"]), int(head["offset"])
        assert int(head["edits"].partition(":")[2]) == places[place]
        found[(*place, one.key().decode())] = set(json.loads(one.value())["data"]["subscriptions"])
    assert len(found) == len(records)
    assert found == expected
    assert len(expected) > 100
    # the proof finds the same, and what is wrong
    report = verify_workers(settings)
    assert report.holds, report.samples
    assert (report.events, report.expected) == (len(sent) + 1, len(expected))
    assert (report.rejected, report.waiting) == (1, 0)
    one, head = records[0], dict(records[0].headers())
    sending.produce(settings.matches, one.value(), "one", headers={**head, "offset": b"900000"})
    sending.produce(settings.matches, one.value(), one.key(), headers=head)
    sending.flush()
    report = verify_workers(settings)
    assert (report.holds, report.extra, report.repeated) == (False, 1, 1)


def lag_of(where: str) -> float | None:
    """Return the lag of a worker that has all four partitions."""
    lines = httpx.get(where).text.splitlines()
    lags = [line.split()[-1] for line in lines if line.startswith("rangecast_worker_lag{")]
    return sum(map(float, lags)) if len(lags) == 4 else None


def has_all(settings: WorkerSettings, kafka: str) -> bool:
    """Return whether a group has committed everything."""
    from confluent_kafka import Consumer, TopicPartition

    one = Consumer({"bootstrap.servers": kafka, "group.id": settings.group_name})
    places = [TopicPartition(settings.events, number) for number in range(4)]
    ends = [one.get_watermark_offsets(place)[1] for place in places]
    found = [place.offset for place in one.committed(places, 30)] == ends
    one.close()
    return found


def committed(kafka: str, topic: str) -> list[Any]:
    """Return the committed records of a topic."""
    from rangecast.server.verify.workers import _committed

    return [*_committed(kafka, topic)]


class Trial:
    """A topic of two partitions with some events, and members of one group that read it."""

    def __init__(self, kafka: str, topic: str):
        from confluent_kafka import Producer

        self._kafka, self._topic = kafka, topic
        make_topic(connecting(kafka), topic, 2)
        make_topic(connecting(kafka), f"{topic}-out", 1)
        sending = Producer({"bootstrap.servers": kafka})
        for number in range(10):
            sending.produce(topic, b"%d" % number, partition=number % 2)
        sending.flush()

    def member(self, name: str) -> Member:
        made = Member(self._kafka, self._topic, f"{self._topic}-group", name)
        made.join(from_start=True)
        return made

    def fetched(self, one: Member, *others: Member, count: int) -> Batch:
        """Let members of a group go on until one of them has so many events at once."""
        for _ in range(300):
            batch = one.fetch(100, 0.05)
            for other in others:
                other.fetch(100, 0.05)
            if len(batch.events) >= count:
                return batch
        raise AssertionError("they never came")

    def record(self, size: int = 1) -> Record:
        return Record(f"{self._topic}-out", "k", b"x" * size, {})


def test_who_has_lost_its_partitions_or_its_name_commits_nothing(kafka: str) -> None:
    trial = Trial(kafka, "lost")
    one = trial.member("one")
    batch = trial.fetched(one, count=1)
    other = trial.member("two")
    trial.fetched(other, one, count=1)
    with pytest.raises(AbortedError):  # it was fetched in another generation of the group
        one.commit(batch, [trial.record()])
    one.close()
    batch = trial.fetched(other, count=5)
    with pytest.raises(RangecastError, match=r"raise max\.message\.bytes of the topic of matches"):
        other.commit(batch, [trial.record(2 << 20)])
    trial.member("two").close()
    with pytest.raises(FencedError, match="another one uses its name, 'two'"):
        other.commit(batch, [trial.record()])
    other.close()
    assert not committed(kafka, "lost-out")


def test_what_cant_be_worked_on_is_rejected(kafka: str, tmp_path: Path) -> None:
    make_topic(connecting(kafka), "some-in", 1)

    def worker(prefix: str = "some", space: str = "s", **more: Any) -> None:
        given = {"events": "some-in", "matches": "some-out"} | more
        one = Worker(WorkerSettings(f"kafka://{kafka}/{prefix}", space, **given))
        try:
            one.prepare(lambda: False)
        finally:
            one.close()

    with pytest.raises(RangecastError, match="no topic 'some-log'"):
        worker()
    log = KafkaLog(f"kafka://{kafka}/some")
    with pytest.raises(RangecastError, match="no space 's'"):
        worker()
    for number in range(3):
        edits: list[AnyEdit] = [PutSpace(T, f"s{number}", SPACE.definition())]
        log.append([edits_draft(edits, 0)])
    worker(space="s2")
    with pytest.raises(RangecastError, match="no topic 'elsewhere'"):
        worker(space="s2", events="elsewhere")
    with pytest.raises(RangecastError, match="three topics"):
        worker(matches="some-in")
    # the beginning is gone: a snapshot has it, or nobody has
    replay = Replay("here")
    for unit in log.read(0, 1 << 20):
        apply_changes(replay.take(unit), replay.indexes)
    parts = replay.registry, replay.indexes, replay.deduplicator, replay.tracks
    SnapshotState(*parts, (log.epoch, log.last, log.chain)).write(tmp_path)
    log.drop(2)
    with pytest.raises(LogError, match="starts at seq 3, and no snapshot has the part before"):
        worker(space="s2")
    worker(space="s0", data=tmp_path)
    log.close()
