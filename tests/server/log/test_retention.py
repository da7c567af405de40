"""Retention under load: segments roll and are dropped while consumers read behind."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from rangecast.server.maintenance import Retention
from rangecast.server.pipeline.futures import result_of
from rangecast.server.service import Service
from rangecast.server.state.edits import DeleteSubscription, PutConsumer, PutSubscription
from tests.support.server.serving import T, publish, run, serving

ROUNDS = 120
KEPT = 60_000
"""Bytes of the log that stay: several segments."""


async def read_all(service: Service, name: str, until_seq: asyncio.Future[int]) -> dict[str, Any]:
    """Read as a consumer that acknowledges nothing; return its messages and gaps."""
    listener = service.core.hub.open(service.core.registry.consumer(T, name))
    seqs: list[int] = []
    gaps: list[tuple[int, int]] = []
    while not until_seq.done() or listener.sent < until_seq.result():
        batch = await listener.next_batch(5, wait=0.02)
        if batch.gap is not None:
            gaps.append((batch.gap.after, batch.gap.upto))
        seqs += [one.seq for one in batch.messages]
        await asyncio.sleep(0.002)  # slower than what comes
    service.core.hub.close(listener)
    return {"seqs": seqs, "gaps": gaps}


def test_what_is_within_retention_is_delivered_and_the_rest_is_a_gap(tmp_path: Path) -> None:
    async def work() -> None:
        async with serving(tmp_path, retention=Retention(bytes=KEPT)) as service:
            log: Any = service.core.log
            log._segment_bytes = 2_000
            await result_of(
                service.core.edit(*[PutConsumer(T, one, "s") for one in ("a", "b", "c")])
            )
            for one in ("a", "b", "c"):
                edit = PutSubscription(T, f"of-{one}", "s", "price > 0", one)
                await result_of(service.core.edit(edit))
            ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()
            readers = [asyncio.create_task(read_all(service, one, ended)) for one in ("a", "b")]
            published: list[int] = []
            lows: list[int] = []
            for number in range(ROUNDS):
                first = await publish(service, *range(1, 11))
                published += range(first, first + 10)
                if number % 3 == 0:  # versions that retention has to forget, beside those that stay
                    put = PutSubscription(T, "comes", "s", "price > 5", "c")
                    await result_of(service.core.edit(put))
                    await result_of(service.core.edit(DeleteSubscription(T, "comes", "s")))
                if number % 5 == 0:
                    await asyncio.to_thread(service.maintenance.run_once)
                    lows.append(log.first)
            assert lows[-1] > published[ROUNDS * 5]  # it has dropped, again and again
            assert len({*lows}) > 5
            ended.set_result(published[-1])
            for found in await asyncio.gather(*readers):
                missed = {
                    one for after, upto in found["gaps"] for one in range(after + 1, upto + 1)
                }
                assert found["seqs"] == [one for one in published if one not in missed]
            # One that comes late gets a gap, then all that is left.
            late = asyncio.create_task(read_all(service, "c", ended))
            found = await late
            ((_, upto),) = found["gaps"][:1]
            assert found["seqs"] == [one for one in published if one > upto]
            assert upto == log.first - 1
            assert service.why_not_ready() == ""
            live = json.dumps(sorted(service.core.registry.space(T, "s").live))
        async with serving(tmp_path) as service:
            assert json.dumps(sorted(service.core.registry.space(T, "s").live)) == live

    run(work)


def test_a_subscription_made_while_retention_forgets_is_kept(tmp_path: Path) -> None:
    """What a consumer had is sorted out between two groups, never beside one."""

    async def work() -> None:
        async with serving(tmp_path) as service:
            log: Any = service.core.log
            await result_of(service.core.edit(PutConsumer(T, "a", "s")))
            await publish(service, 1)
            append, forget = log.append, service.core.registry.forget
            writing = asyncio.Event()
            loop = asyncio.get_running_loop()
            in_forget: list[bool] = []

            def slow(drafts: Any) -> Any:
                loop.call_soon_threadsafe(writing.set)
                return append(drafts)

            def watched(first: int) -> None:
                in_forget.append(service.core.pipeline._committing)
                forget(first)

            log.append, service.core.registry.forget = slow, watched  # type: ignore[method-assign]
            made = service.core.edit(PutSubscription(T, "x", "s", "price > 0", "a"))
            await writing.wait()
            await asyncio.to_thread(service.core.drop, 1)
            await result_of(made)
            assert in_forget == [False]

    run(work)
