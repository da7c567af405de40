"""A peer of the server: NATS JetStream, which also answers only when an event is on the disk.

It stores events and doesn't match them, so it does less. The load has the same shape: connections
that each send an event, wait for the answer, and send the next.
"""

from __future__ import annotations

import asyncio
import shutil
import sys
import time
from collections import Counter
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from benchmarks.server_load import SINGLES, SINGLES_P99, Load, Theirs
from benchmarks.started import Unavailable, answers, free_port, server
from experiments.timing import DisagreementError

_STREAM = "points"


def jetstream(folder: Path, boxes: Load, quick: bool) -> list[Theirs]:
    """Measure how fast JetStream takes events."""
    beside = str(Path(sys.executable).parent)
    program = shutil.which("nats-server", path=beside) or shutil.which("nats-server")
    if program is None:
        raise Unavailable("nats-server isn't installed")
    if find_spec("nats") is None:
        raise Unavailable("nats-py isn't installed")
    port, settings, store = free_port(), folder / "nats.conf", folder / "jetstream"
    settings.write_text(
        f'listen: 127.0.0.1:{port}\njetstream {{ store_dir: "{store}", sync_interval: always }}\n'
    )
    events = boxes.lines[: 320 if quick else 6_400]
    with server([program, "-c", settings], folder / "log.txt", partial(answers, port)):
        rate, p99 = asyncio.run(_published(f"nats://127.0.0.1:{port}", events, 64))
    return [
        Theirs("one event per request, 64 connections", SINGLES, rate),
        Theirs("the same, p99 of an answer", SINGLES_P99, p99),
    ]


async def _published(url: str, events: list[bytes], connections: int) -> tuple[float, float]:
    """Return events per second, and the 99th percentile of milliseconds of an answer."""
    import nats
    from nats.js.api import StorageType

    made = [
        await nats.connect(url, connect_timeout=10, max_reconnect_attempts=60)
        for _ in range(connections)
    ]
    streams = [one.jetstream(timeout=60) for one in made]
    await streams[0].add_stream(name=_STREAM, subjects=[_STREAM], storage=StorageType.FILE)
    times: list[float] = []

    async def work(place: int) -> None:
        for event in events[place::connections]:
            began = time.perf_counter()
            await streams[place].publish(_STREAM, event)
            times.append(time.perf_counter() - began)

    began = time.perf_counter()
    await asyncio.gather(*map(work, range(connections)))
    seconds = time.perf_counter() - began
    reader = await streams[0].pull_subscribe(_STREAM)
    stored: Counter[bytes] = Counter()
    while stored.total() < len(events):
        for one in await reader.fetch(1_000, timeout=60):
            stored[one.data] += 1
            await one.ack()  # else it comes again
    if stored != Counter(events):
        raise DisagreementError("JetStream has stored other events than it was sent")
    for connection in made:
        await connection.close()
    return len(events) / seconds, float(np.quantile(times, 0.99)) * 1000
