"""The server: durable ingest, requests, edits, fan-out, replay, restart; load and server on one
machine, ids checked.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.frame import Report
from benchmarks.harness import expected
from benchmarks.server_delivery import delivery_rows
from benchmarks.server_load import Connection, race
from benchmarks.server_peers import jetstream_rows
from rangecast.client import Client
from rangecast.engine import Engine
from rangecast.experiments.timing import DisagreementError
from rangecast.model.attributes import Number
from rangecast.model.space import Space
from rangecast.report.markdown import Table

AXES = 4
SPACE = Space([Number(f"a{axis}") for axis in range(AXES)])
ABOUT = """
One process with its log on disk, every answer after the sync; the load comes from
another process on the same two cores, so both share them. Boxes in four attributes, about ten of
100,000 match an event. NATS JetStream, which stores events and matches nothing, gets
events of the same kind over as many connections.
"""


def run(report: Report, *, quick: bool) -> None:
    """Write the page."""
    report.begin("The server", ABOUT, "fastapi", "uvicorn", "msgspec")
    load, priority = os.getloadavg()[0], os.nice(0)
    if load > 1 or priority:
        report.text(
            f"The machine was busy: a load of {load:.0f} when this began, at nice {priority}. So "
            "these rates are lower than those of a quiet machine, and say little."
        )
    report.table(_measured(quick=quick))


def _measured(*, quick: bool) -> Table:
    """Measure a server that runs."""
    subscriptions = 1_000 if quick else 100_000
    rng = np.random.default_rng(4)
    with tempfile.TemporaryDirectory() as folder, _served(Path(folder)) as served:
        filters = _filters(rng, subscriptions)
        rows: list[list[Any]] = []
        with Client(served.url, space="points") as client:
            client.put_consumer("few")
            began = time.perf_counter()
            _subscribe(client, filters, "s")
            rate = len(filters) / (time.perf_counter() - began)
            rows.append(_row("edits in bulk, durable", rate, 60_000))
            _check(client, filters, rng)
            rows += asyncio.run(_load(served.url, client, rng, quick=quick))
            rows += asyncio.run(
                delivery_rows(served.url, client, _bodies(rng, 20, 99), quick=quick)
            )
            many = subscriptions if quick else 1_000_000
            _subscribe(client, _filters(rng, many - subscriptions), "m")
        rows.append(_restarted(served, many))
        events = [json.dumps(one).encode() for one in _events(rng, 320 if quick else 6_400)]
        rows += jetstream_rows(Path(folder), events, 64)
    title = f"The server, {subscriptions:,} subscriptions"
    return Table(title, ["", "measured", "expected"], rows)


def _subscribe(client: Client, filters: list[str], prefix: str) -> None:
    for at in range(0, len(filters), 5_000):
        some = enumerate(filters[at : at + 5_000], at)
        client.upsert_many([{"id": f"{prefix}{n}", "filter": one} for n, one in some])


def _row(name: str, rate: float, least: float, unit: str = "/s") -> list[Any]:
    return [name, f"{rate:,.0f}{unit}", expected(rate, least=least)]


def _filters(rng: np.random.Generator, count: int) -> list[str]:
    low = rng.random((count, AXES)) * 0.9
    high = low + 0.1
    return [
        " and ".join(
            f"a{axis} >= {low[n, axis]:.4f} and a{axis} <= {high[n, axis]:.4f}"
            for axis in range(AXES)
        )
        for n in range(count)
    ]


def _events(rng: np.random.Generator, count: int) -> list[dict[str, float]]:
    values = np.round(rng.random((count, AXES)), 4)
    return [{f"a{axis}": row[axis] for axis in range(AXES)} for row in values.tolist()]


def _bodies(rng: np.random.Generator, count: int, events: int) -> list[bytes]:
    return ["\n".join(map(json.dumps, _events(rng, events))).encode() for _ in range(count)]


def _check(client: Client, filters: list[str], rng: np.random.Generator) -> None:
    """Compare the ids of some events with those of an engine."""
    engine = Engine(SPACE)
    engine.subscribe_many([{"id": f"s{n}", "filter": one} for n, one in enumerate(filters)])
    events = _events(rng, 50)
    found = client.publish(events, matches=True).matches
    if found != [[str(one) for one in names] for names in engine.match_many(events)]:
        raise DisagreementError("the server and the engine give different ids")


# ---- the load


async def _load(
    url: str, client: Client, rng: np.random.Generator, *, quick: bool
) -> list[list[Any]]:
    host, port = re.findall(r"//([^:]+):(\d+)", url)[0]
    rows = []
    bodies = _bodies(rng, 4 if quick else 20, 1_000)
    kind = "application/x-ndjson"
    path = "/v1/spaces/points/events"

    async def batches(connection: Connection, turns: int) -> None:
        for turn in range(turns):
            await connection.ask("POST", path, bodies[turn % len(bodies)], kind)

    count = 2 if quick else 40
    seconds, _ = await race(host, int(port), 4, count, batches)
    rows.append(_row("events in bodies of 1,000, durable", 4 * count * 1_000 / seconds, 150_000))

    one = json.dumps(_events(rng, 1)[0]).encode()

    async def singles(connection: Connection, turns: int) -> None:
        for _ in range(turns):
            began = time.perf_counter()
            await connection.ask("POST", path, one, "application/json")
            connection.times.append(time.perf_counter() - began)

    count = 5 if quick else 200
    seconds, times = await race(host, int(port), 64, count, singles)
    rows.append(_row("one event per request, 64 connections", 64 * count / seconds, 8_000))
    p99 = float(np.quantile(times, 0.99)) * 1000
    rows.append(["the same, p99 of an answer", f"{p99:,.1f} ms", expected(p99, most=15)])

    text = _filters(rng, 1)[0]

    async def edits(connection: Connection, turns: int) -> None:
        for turn in range(turns):
            body = json.dumps({"filter": text}).encode()
            name = f"e{id(connection)}-{turn}"
            target = f"/v1/spaces/points/subscriptions/{name}"
            await connection.ask("PUT", target, body, "application/json")

    count = 5 if quick else 100
    seconds, _ = await race(host, int(port), 64, count, edits)
    rows.append(_row("edits one by one, durable, 64 connections", 64 * count / seconds, 6_000))

    some = [
        {"id": f"f{n}", "filter": one, "consumer": "few"}
        for n, one in enumerate(_filters(rng, 100 if quick else 1_000))
    ]
    client.upsert_many(some)
    client.seek("few", "start", set="now")
    began, looked_at = time.perf_counter(), client.status()["events"]
    while True:
        page = client.messages("few", limit=5_000)
        client.acknowledge("few", page.position)
        if not page.items:
            break
    rate = looked_at / (time.perf_counter() - began)
    rows.append(_row("events read again for 1,000 subscriptions", rate, 300_000))
    return rows


# ---- the server


class _Served:
    """A server in a process of its own."""

    def __init__(self, folder: Path):
        self.folder = folder
        SPACE.save(folder / "points.toml")
        self.start()

    def start(self) -> None:
        command = [sys.executable, "-m", "rangecast", "serve", "--space", "points.toml"]
        self.process = subprocess.Popen(
            [*command, "--data", "data", "--port", "0"],
            cwd=self.folder,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": str(Path.cwd())},
        )
        assert self.process.stdout is not None
        said = self.process.stdout.readline()
        self.url = re.findall(r"http://[^,]+", said)[0]

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()


@contextmanager
def _served(folder: Path) -> Iterator[_Served]:
    served = _Served(folder)
    try:
        yield served
    finally:
        served.kill()


def _restarted(served: _Served, subscriptions: int) -> list[Any]:
    served.kill()
    began = time.perf_counter()
    served.start()
    seconds = time.perf_counter() - began
    with Client(served.url, space="points") as client:
        if len(client) < subscriptions:
            raise DisagreementError("subscriptions are missing after a restart")
    return [
        f"restart with {subscriptions:,} subscriptions after kill -9, until it serves",
        f"{seconds:,.1f} s",
        expected(seconds, most=5),
    ]
