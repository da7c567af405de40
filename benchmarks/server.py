"""The server: durable ingest, requests, edits, fan-out, replay and restart, beside other systems.

Load and server share one machine, ids are compared, and the others get the same boxes and events.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.frame import Report
from benchmarks.server_beside import JETSTREAM, PERCOLATOR, POSTGRES, beside
from benchmarks.server_delivery import delivery
from benchmarks.server_load import (
    BODIES,
    BODIES_ANSWERED,
    BODY,
    BULK,
    EDITS,
    EDITS_IN_BULK,
    EVENTS,
    LINES,
    SINGLES,
    SINGLES_P99,
    Connection,
    Load,
    Measured,
    race,
)
from benchmarks.server_process import Served, served
from experiments.timing import DisagreementError
from rangecast.client import Client
from rangecast.report.markdown import Table

ABOUT = """
One process with its log on disk, every answer after the sync; the load comes from
another process on the same two cores, so both share them. Boxes in four attributes, about ten of
100,000 match an event. Kernels are compiled beforehand. Ids are compared with those of a plain
scan. Peers get the same boxes and events in the same run, each alone; their answers are compared,
too.
"""
NOT_BESIDE = """
Tile38 has geofences in the plane, and is what one would take for those. It wasn't run: its program
can't be fetched on the machine that this page is made on.
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
    subscriptions = 1_000 if quick else 100_000
    rng = np.random.default_rng(4)
    boxes = Load.made(rng, subscriptions, BODY * (4 if quick else 20))
    if not quick:
        subprocess.run(
            [sys.executable, "-m", "rangecast", "precompile", "match", "--quiet"], check=True
        )
        _alone(Load.made(rng, 1_000, BODY), quick=True)  # and what else is used for the first time
    with tempfile.TemporaryDirectory() as folder:
        ours = _measured(Path(folder), boxes, rng, quick=quick)
    title = f"The server, {subscriptions:,} subscriptions"
    report.table(Table(title, ["", "measured", "expected"], [one.row() for one in ours]))
    beside(report, (JETSTREAM, POSTGRES), boxes, lambda: ours, quick=quick)
    few = min(subscriptions, 20_000)
    fewer = Load(boxes.lo[:few], boxes.hi[:few], boxes.points)
    beside(report, [PERCOLATOR], fewer, partial(_alone, fewer, quick=quick), quick=quick)
    report.text(NOT_BESIDE)


def _alone(boxes: Load, *, quick: bool) -> list[Measured]:
    """Measure edits and events of a server that has had no others."""
    with (
        tempfile.TemporaryDirectory() as folder,
        served(Path(folder)) as one,
        Client(one.url, space="points") as client,
    ):
        return _loaded(one, client, boxes, quick=quick)


def _measured(
    folder: Path, boxes: Load, rng: np.random.Generator, *, quick: bool
) -> list[Measured]:
    """Measure a server that runs."""
    with served(folder) as one:
        with Client(one.url, space="points") as client:
            found = _loaded(one, client, boxes, quick=quick)
            found.append(_read_again(client, Load.made(rng, 1_000, 0), quick=quick))
            others = Load.made(rng, 0, 20 * 99).lines
            bodies = [b"\n".join(others[at::20]) for at in range(20)]
            found += asyncio.run(delivery(one.url, client, bodies, quick=quick))
            many = len(boxes.lo) if quick else 1_000_000
            _subscribe(client, Load.made(rng, many - len(boxes.lo), 0).filters, "m")
        found.append(_restarted(one, many))
    return found


def _loaded(one: Served, client: Client, boxes: Load, *, quick: bool) -> list[Measured]:
    """Measure edits and events."""
    filters = boxes.filters
    began = time.perf_counter()
    _subscribe(client, filters, "s")
    rate = len(filters) / (time.perf_counter() - began)
    found = client.publish(boxes.events[:50], matches=True).matches
    assert found is not None
    boxes.check("the server", found)
    return [
        Measured(EDITS_IN_BULK, rate, least=60_000),
        *asyncio.run(_raced(one, boxes, filters[0], quick=quick)),
    ]


def _subscribe(client: Client, filters: list[str], prefix: str) -> None:
    for at in range(0, len(filters), BULK):
        some = enumerate(filters[at : at + BULK], at)
        client.upsert_many([{"id": f"{prefix}{n}", "filter": one} for n, one in some])


async def _raced(one: Served, boxes: Load, text: str, *, quick: bool) -> list[Measured]:
    bodies, single = boxes.bodies, boxes.lines[0]

    async def batches(connection: Connection, turns: int, path: str = EVENTS) -> None:
        for turn in range(turns):
            await connection.ask("POST", path, bodies[turn % len(bodies)], LINES)

    async def answered(connection: Connection, turns: int) -> None:
        await batches(connection, turns, EVENTS + "?wait=matches")

    async def singles(connection: Connection, turns: int) -> None:
        for _ in range(turns):
            began = time.perf_counter()
            await connection.ask("POST", EVENTS, single, "application/json")
            connection.times.append(time.perf_counter() - began)

    async def edits(connection: Connection, turns: int) -> None:
        for turn in range(turns):
            body = json.dumps({"filter": text}).encode()
            target = f"/v1/spaces/points/subscriptions/e{id(connection)}-{turn}"
            await connection.ask("PUT", target, body, "application/json")

    count = 2 if quick else 40
    unanswered, _ = await race(one.host, one.port, 4, count, batches)
    seconds, _ = await race(one.host, one.port, 4, count, answered)
    requests = 5 if quick else 200
    alone, times = await race(one.host, one.port, 64, requests, singles)
    turns = 5 if quick else 100
    edited, _ = await race(one.host, one.port, 64, turns, edits)
    p99 = float(np.quantile(times, 0.99)) * 1000
    return [
        Measured(BODIES, 4 * count * BODY / unanswered, least=150_000),
        Measured(BODIES_ANSWERED, 4 * count * BODY / seconds),
        Measured(SINGLES, 64 * requests / alone, least=8_000),
        Measured(SINGLES_P99, p99, "ms", most=15),
        Measured(EDITS, 64 * turns / edited, least=6_000),
    ]


def _read_again(client: Client, boxes: Load, *, quick: bool) -> Measured:
    client.put_consumer("few")
    client.upsert_many(
        {"id": f"f{n}", "filter": one, "consumer": "few"}
        for n, one in enumerate(boxes.filters[: 100 if quick else 1_000])
    )
    client.seek("few", "start", subscriptions="current")
    began, looked_at = time.perf_counter(), client.status()["events"]
    while True:
        page = client.messages("few", limit=5_000)
        client.acknowledge("few", page.position)
        if not page.items:
            break
    rate = looked_at / (time.perf_counter() - began)
    return Measured("events read again for 1,000 subscriptions", rate, least=300_000)


def _restarted(one: Served, subscriptions: int) -> Measured:
    one.kill()
    began = time.perf_counter()
    one.start()
    seconds = time.perf_counter() - began
    with Client(one.url, space="points") as client:
        if len(client) < subscriptions:
            raise DisagreementError("subscriptions are missing after a restart")
    name = f"restart with {subscriptions:,} subscriptions after kill -9, until it serves"
    return Measured(name, seconds, "s", most=5)
