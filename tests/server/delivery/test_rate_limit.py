"""Consumers with a budget: of each second of the log the best messages, whoever reads when."""

from __future__ import annotations

import asyncio
import json
import random
from pathlib import Path
from typing import Any

import pytest

from rangecast import Number, Space
from rangecast.server.delivery.messages import Message
from rangecast.server.delivery.rate_limit_reader import SECOND
from rangecast.server.log.base import Unit
from rangecast.server.service import Service
from rangecast.server.state.edits import PutConsumer, PutSpace, PutSubscription
from rangecast.server.verify.deliveries import verify_deliveries
from tests.support.server.service import T, edit, publish, run, taken
from tests.support.server.set_clock import SetClock, clock

__all__ = ["clock"]
SPACE = Space([Number("x")])


async def all_of(service: Service, after: int | None = None, most: int = 7) -> list[Message]:
    listener = service.core.hub.open(service.core.registry.consumer(T, "c"), after)
    found: list[Message] = []
    while True:
        batch = await listener.next_batch(most, wait=0)
        found += batch.messages
        if not batch.messages:
            service.core.hub.close(listener)
            return found


def expected(events: list[tuple[int, int, float]], budget: int) -> dict[int, int]:
    """Return the seqs that stay, and what each says of those that don't."""
    found: dict[int, int] = {}
    for second in {at for _, at, _ in events}:
        mine = [(-score, seq) for seq, at, score in events if at == second]
        stay = sorted(seq for _, seq in sorted(mine)[:budget])
        dropped = len(mine) - len(stay)
        found |= dict.fromkeys(stay, 0) | ({stay[-1]: dropped} if stay else {})
    return found


@pytest.mark.parametrize("budget", [1, 3, 40])
def test_the_best_of_each_second_stay(budget: int, clock: SetClock, tmp_path: Path) -> None:
    rng, events = random.Random(budget), []
    last = 0

    async def work() -> None:
        nonlocal last
        service = Service(tmp_path)
        service.start()
        await edit(service, PutSpace(T, "market", SPACE.definition()))
        await edit(service, PutConsumer(T, "c", "market", max_per_second=budget))
        for x in range(5):
            wanted = PutSubscription(T, f"s{x}", "market", f"x >= {x}", "c", score=float(x))
            await edit(service, wanted)
        live = service.core.hub.open(service.core.registry.consumer(T, "c"))
        for _ in range(60):
            clock.seconds += rng.choice([0, 0, 0.3, 2.5])
            values = [rng.randrange(-1, 5) for _ in range(rng.randrange(1, 4))]
            accepted = await publish(service, [b'{"x": %d}' % x for x in values])
            for seq, x in enumerate(values, accepted.first):
                if x >= 0:
                    events.append((seq, int(clock.seconds), float(x)))
        last = events[-1][1]
        over = [one for one in events if one[1] < last]
        # the second that isn't over yet is not there
        assert {one.seq: one.dropped for one in await taken(live)} == expected(over, budget)
        clock.seconds += 1
        wanted_now = expected(events, budget)
        assert {one.seq: one.dropped for one in await all_of(service)} == wanted_now
        for after in range(0, events[-1][0], 5):
            found = {
                one.seq: one.dropped for one in await all_of(service, after, rng.choice([1, 7]))
            }
            assert found == {seq: dropped for seq, dropped in wanted_now.items() if seq > after}
        service.stop()

    run(work())

    async def again() -> None:
        service = Service(tmp_path)
        service.start()
        found = await all_of(service)
        assert {one.seq: one.dropped for one in found} == expected(events, budget)
        told = [json.loads(one.json(service.core.log.epoch)) for one in found]
        assert sum(one.get("dropped", 0) for one in told) == len(events) - len(found)
        (tmp_path / "got.jsonl").write_text("\n".join(map(json.dumps, told)))
        service.stop()

    run(again())
    report = verify_deliveries(tmp_path, T, "c", tmp_path / "got.jsonl")
    assert report.holds, report
    assert report.expected == len(expected(events, budget))


def test_time_never_goes_back_and_a_listener_waits_for_a_second_to_be_over(
    clock: SetClock, tmp_path: Path
) -> None:
    async def work() -> None:
        service = Service(tmp_path)
        service.start()
        await edit(service, PutSpace(T, "market", SPACE.definition()))
        await edit(service, PutConsumer(T, "c", "market", max_per_second=1))
        await edit(service, PutSubscription(T, "s", "market", "x >= 0", "c"))
        listener = service.core.hub.open(service.core.registry.consumer(T, "c"))
        waiting: asyncio.Task[Any] = asyncio.create_task(listener.next_batch(wait=60))
        await publish(service, [b'{"x": 1}', b'{"x": 2}'])
        clock.seconds -= 500
        await publish(service, [b'{"x": 3}'])
        assert {unit.at // SECOND for unit in service.core.log.read(3, 1 << 20)} == {1000}
        assert not (await asyncio.wait([waiting], timeout=1.2))[0]
        clock.seconds += 501
        assert [(one.seq, one.dropped) for one in (await waiting).messages] == [(4, 2)]
        service.stop()
        service = Service(tmp_path)
        service.start()
        clock.seconds -= 500
        await publish(service, [b'{"x": 1}'])
        assert service.core.log.read(service.core.log.last - 1, 1)[0].at // SECOND >= 1000
        service.stop()

    run(work())


def test_a_second_ends_with_all_that_is_written_in_it_whenever_its_reader_began(
    clock: SetClock, tmp_path: Path
) -> None:
    async def work() -> None:
        service = Service(tmp_path)
        service.start()
        await edit(service, PutSpace(T, "market", SPACE.definition()))
        await edit(service, PutConsumer(T, "c", "market", max_per_second=2))
        await edit(service, PutSubscription(T, "s", "market", "x >= 0", "c"))
        first = (await publish(service, [b'{"x": 1}'])).first
        reader = service.core.hub.reader(service.core.registry.consumer(T, "c"))
        durable = service.core.pipeline.durable  # as a reader sees it whose thread begins late
        await publish(service, [b'{"x": 2}', b'{"x": 3}'])
        await edit(service, PutSubscription(T, "t", "market", "x >= 4", "c", score=1.0))
        await publish(service, [b'{"x": 4}'])
        clock.seconds += 1
        await asyncio.to_thread(service.core.pipeline.quiesced, lambda: None)  # its group has ended
        batch = reader.read(first - 1, durable, 500)
        assert [(one.seq, one.dropped) for one in batch.messages] == [(first, 0), (first + 4, 2)]
        assert batch.upto == service.core.pipeline.durable
        service.stop()

    run(work())


def test_what_retention_drops_while_it_is_read_is_told_as_a_gap(
    clock: SetClock, tmp_path: Path
) -> None:
    async def work() -> None:
        service = Service(tmp_path)
        log: Any = service.core.log
        log._segment_bytes = 300
        service.start()
        await edit(service, PutSpace(T, "market", SPACE.definition()))
        await edit(service, PutConsumer(T, "c", "market", max_per_second=2))
        await edit(service, PutSubscription(T, "all", "market", "x >= 0", "c"))
        first = (await publish(service, [b'{"x": 0}'])).first
        for n in range(1, 40):
            clock.seconds += 0.25
            await publish(service, [b'{"x": %d}' % n])
        clock.seconds += 2
        reader = service.core.hub.reader(service.core.registry.consumer(T, "c"))
        read, ends = log.read, [end for end, _, _ in log.segment_sizes()]
        drop = next(end for end in ends if end > first + 6)
        left = 2

        def dropped_between(after: int, most: int) -> list[Unit]:
            nonlocal left
            left -= 1
            if left == 0:
                log.read = read
                log.drop(drop)
            found: list[Unit] = read(after, min(most, 1))  # a segment at a time
            return found

        log.read = dropped_between
        found, after, gaps = [], first - 1, []
        while after < log.last:
            batch = reader.read(after, log.last, 500)
            gaps += [batch.gap] if batch.gap else []
            found += batch.messages
            assert batch.upto > after
            after = batch.upto
        assert [(one.after, one.upto) for one in gaps] == [(gaps[0].after, drop)]
        seqs = [one.seq for one in found]
        assert seqs == sorted(set(seqs))
        assert not [one for one in seqs if gaps[0].after < one <= drop]
        assert [one for one in seqs if one > drop + 4] == [
            seq for seq in range(drop + 5, log.last + 1) if (seq - first) % 4 < 2
        ]
        service.stop()

    run(work())
