"""Tracks in the server: positions over HTTP, durable, with polygons of 20 corners.

    python -m benchmarks tracks-server --sizes 10000:100000 100000:1000000 --seconds 8

The page of `tracks` has the same table.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import numpy as np
import pyarrow as pa

from benchmarks.frame import show
from benchmarks.server_load import BODY, BULK, EVENTS, LINES, BusyError, Connection
from benchmarks.server_process import Served, served
from benchmarks.shapes import SIDE, polygon_filters, stars
from experiments.timing import DisagreementError
from rangecast import Engine, Point, Space, Timestamp, Tracker
from rangecast.client import Client
from rangecast.kernels.arrays import F64, I64
from rangecast.report.markdown import Table

ABOUT = """
Through the server: one process with its log on disk, every answer after the sync. Bodies of 1,000
positions come over 4 connections from another process on the same cores; polygons have 20 corners.
First every object is seen once, then objects that are chosen at random move. *Per CPU second*
counts that of the server alone. Transitions and objects are compared with those of a `Tracker`.
*State* is that of this tracker, *resident* the growth of the server's memory while it first sees
all objects, with pages of the log and what waits to be written.
"""
HEADINGS = [
    "",
    "first positions per second",
    "per CPU second",
    "moves per second",
    "moves per CPU second",
    "transitions per position",
    "log bytes per position",
    "bytes of state per object",
    "resident",
]
CONNECTIONS = 4
CORNERS = 20
SPACE = Space([Point("place"), Timestamp("at")])
TRACK = '\n[track]\nkey = "truck"\ntime = "at"\n'
START = np.datetime64("2026-01-31T09:00:00", "s")
_TICKS = os.sysconf("SC_CLK_TCK")
_WAIT_SECONDS = 120.0
_PAUSE_SECONDS = 0.2
"""After an answer that the server has too much to do."""


class Size(NamedTuple):
    """Polygons, and objects that move among them."""

    polygons: int
    objects: int

    @classmethod
    def parse(cls, text: str) -> Size:
        """Return the size that `polygons:objects` names."""
        polygons, _, objects = text.partition(":")
        return cls(int(polygons), int(objects))


class _Batch(NamedTuple):
    """A body: objects, their places and a second."""

    keys: I64
    places: F64
    second: int

    def body(self) -> bytes:
        """Return it as lines of JSON."""
        at = f"{START + self.second}Z"
        rows = zip(self.keys.tolist(), self.places.tolist(), strict=True)
        lines = [f'{{"truck":{key},"at":"{at}","x":{x!r},"y":{y!r}}}' for key, (x, y) in rows]
        return "\n".join(lines).encode()

    def events(self) -> pa.Table:
        """Return it as a table."""
        at = np.full(len(self.keys), START + self.second)
        x, y = self.places.T.copy()
        return pa.table({"truck": self.keys, "at": at, "x": x, "y": y})


def _sent(places: F64, owned: list[I64], size: int, rounds: range | None) -> list[list[_Batch]]:
    """Return the bodies of each connection, which has objects of its own; move what they have.

    rounds   the seconds of moves, one body each; `None`: every object, at second 0
    """
    rng = np.random.default_rng(2 if rounds is None else rounds.start)
    step = SIDE / np.sqrt(size) / 10
    bodies: list[list[_Batch]] = []
    for own in owned:
        if rounds is None:
            some = [own[at : at + BODY] for at in range(0, len(own), BODY)]
            bodies.append([_Batch(keys, places[keys].copy(), 0) for keys in some])
            continue
        bodies.append([])
        for second in rounds:
            keys = rng.choice(own, min(BODY, len(own)), replace=False)
            places[keys] = np.round(places[keys] + rng.normal(0, step, (len(keys), 2)), 4)
            bodies[-1].append(_Batch(keys, places[keys].copy(), second))
    return bodies


class _Usage(NamedTuple):
    """Processor seconds and resident bytes of a process so far, and the time."""

    cpu: float
    resident: int
    at: float

    @classmethod
    def of(cls, served_: Served) -> _Usage:
        folder = Path("/proc") / str(served_.process.pid)
        fields = (folder / "stat").read_text().rpartition(")")[2].split()
        pages = int((folder / "statm").read_text().split()[1])
        cpu = (int(fields[11]) + int(fields[12])) / _TICKS
        return cls(cpu, pages * os.sysconf("SC_PAGE_SIZE"), time.perf_counter())


async def _send(served_: Served, bodies: list[list[bytes]]) -> None:
    async def work(own: list[bytes]) -> None:
        connection = await Connection.opened(served_.host, served_.port)
        for body in own:
            while True:
                try:
                    await connection.ask("POST", EVENTS, body, LINES)
                    break
                except BusyError:
                    await asyncio.sleep(_PAUSE_SECONDS)
        connection.close()

    await asyncio.gather(*map(work, bodies))


def _settled(served_: Served) -> dict[str, Any]:
    """Return the server's status once all transitions are in the log."""
    ends = time.monotonic() + _WAIT_SECONDS
    while time.monotonic() < ends:
        space: dict[str, Any] = httpx.get(f"{served_.url}/v1/spaces/points").json()["tracked"]
        status: dict[str, Any] = httpx.get(f"{served_.url}/v1/status").json()
        if status["matched_seq"] == status["durable_seq"] and not space["pending"]:
            return status | space
        time.sleep(0.05)
    raise DisagreementError(f"the server has been busy for {_WAIT_SECONDS} s after the last body")


def _part(
    served_: Served, tracker: Tracker, batches: list[list[_Batch]]
) -> tuple[int, int, int, _Usage, _Usage]:
    """Send positions; return their number, that of transitions, bytes of log, and usage around."""
    bodies = [[batch.body() for batch in own] for own in batches]
    before, used = _settled(served_), _Usage.of(served_)
    asyncio.run(_send(served_, bodies))
    after, now = _settled(served_), _Usage.of(served_)
    transitions = 0
    for batch in (batch for own in batches for batch in own):
        transitions += len(tracker.update_many(batch.events()))
    count = sum(len(batch.keys) for own in batches for batch in own)
    found = after["durable_seq"] - before["durable_seq"] - count
    if (found, after["objects"]) != (transitions, len(tracker)):
        raise DisagreementError(
            f"the server has {found} transitions and {after['objects']} objects; right are "
            f"{transitions} and {len(tracker)}"
        )
    return count, transitions, after["log_bytes"] - before["log_bytes"], used, now


def measured(size: Size, seconds: float) -> list[Any]:
    """Return the row of a size; moves are as many as about fit into `seconds`."""
    filters = polygon_filters(np.round(stars(size.polygons, CORNERS), 4))
    engine = Engine(SPACE)
    engine.subscribe_many({"id": list(range(len(filters))), "filter": filters})
    tracker = Tracker(engine, key="truck", time="at")
    rng = np.random.default_rng(1)
    places = np.round(rng.uniform(0, SIDE, (size.objects, 2)), 4)
    owned = [np.arange(number, size.objects, CONNECTIONS) for number in range(CONNECTIONS)]
    with tempfile.TemporaryDirectory() as folder, served(Path(folder), SPACE, TRACK) as one:
        with Client(one.url, space="points") as client:
            client.put_consumer("all")
            for at in range(0, len(filters), BULK):
                some = enumerate(filters[at : at + BULK], at)
                rows = [{"id": n, "filter": text, "track": {}} for n, text in some]
                client.upsert_many(rows, consumer="all")
        others = np.arange(size.objects, size.objects + BODY)
        _part(one, tracker, [[_Batch(others, rng.uniform(0, SIDE, (BODY, 2)), 0)]])  # to warm up
        first = _part(one, tracker, _sent(places, owned, size.polygons, None))
        state = tracker.memory / len(tracker)
        rate = first[0] / (first[4].at - first[3].at)
        turns = max(2, int(rate * seconds / BODY / CONNECTIONS))
        moved = _part(one, tracker, _sent(places, owned, size.polygons, range(1, turns + 1)))
    row: list[Any] = [f"{size.polygons:,} polygons, {size.objects:,} objects"]
    for count, _, _, used, now in (first, moved):
        row += [round(count / (now.at - used.at)), round(count / (now.cpu - used.cpu))]
    count = first[0] + moved[0]
    row += [(first[1] + moved[1]) / count, (first[2] + moved[2]) / count]
    return [*row, state, (first[4].resident - first[3].resident) / size.objects]


def table(sizes: Sequence[Size], seconds: float) -> Table:
    """Return the table of these sizes."""
    title = "Through the server, durable"
    return Table(title, HEADINGS, [measured(size, seconds) for size in sizes])


def main(arguments: list[str]) -> None:
    """Measure the sizes that the command line names."""
    about, _, more = (__doc__ or "").partition("\n\n")
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks tracks-server",
        description=f"{about}\n\n{more}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    sizes = [Size(10_000, 100_000), Size(100_000, 1_000_000)]
    parser.add_argument(
        "--sizes", type=Size.parse, nargs="+", default=sizes, metavar="POLYGONS:OBJECTS"
    )
    parser.add_argument("--seconds", type=float, default=8, help="of moves for each size, about")
    given = parser.parse_args(arguments)
    show(table(given.sizes, given.seconds))
