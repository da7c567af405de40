"""Load of a server: boxes, points and connections, and the measurements."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from benchmarks.harness import expected
from experiments.timing import DisagreementError
from rangecast.kernels.arrays import F64
from rangecast.model.attributes.base import Number
from rangecast.model.space import Space

BODY = 1_000
"""Events of a body."""
BULK = 5_000
"""Edits of a body."""
EVENTS = "/v1/spaces/points/events"
LINES = "application/x-ndjson"
NAMES = ("a0", "a1", "a2", "a3")
SPACE = Space(map(Number, NAMES))
_SIDE = 0.1
"""Of a box; all values lie between 0 and 1."""

_CHECKED = 50
"""Of how many events ids are compared, at most."""

# ---- what is measured

EDITS_IN_BULK = "edits in bulk, durable"
EDITS = "edits one by one, durable, 64 connections"
BODIES = "events in bodies of 1,000, durable"
BODIES_ANSWERED = "the same, with the matches in the answer"
SINGLES = "one event per request, 64 connections"
SINGLES_P99 = "the same, p99 of an answer"


class Measured(NamedTuple):
    """A row of the page, and what was expected."""

    name: str
    value: float
    unit: str = "/s"
    least: float | None = None
    most: float | None = None

    def shown(self, value: float) -> str:
        """Return a value of this kind as the page has it."""
        return f"{value:,.0f}/s" if self.unit == "/s" else f"{value:,.1f} {self.unit}"

    def row(self) -> list[Any]:
        """Return the row."""
        hoped = expected(self.value, least=self.least, most=self.most)
        return [self.name, self.shown(self.value), hoped]

    def better(self, value: float) -> float:
        """Return how many times better ours is than this value."""
        return self.value / value if self.unit == "/s" else value / self.value


class Theirs(NamedTuple):
    """Measurement of a peer, and the row of ours that it is compared with."""

    what: str
    beside: str
    value: float


# ---- boxes and points


@dataclass(frozen=True)
class Load:
    """Boxes, and points that each lie in about one of 10,000."""

    lo: F64
    hi: F64
    points: F64

    @classmethod
    def made(cls, rng: np.random.Generator, boxes: int, points: int) -> Load:
        """Return random ones; four decimals, which every peer reads as the same doubles."""
        lo = rng.random((boxes, len(NAMES))) * (1 - _SIDE)
        return cls(
            np.round(lo, 4), np.round(lo + _SIDE, 4), np.round(rng.random((points, len(NAMES))), 4)
        )

    @property
    def ids(self) -> list[str]:
        """The ids of the boxes."""
        return [f"s{n}" for n in range(len(self.lo))]

    @property
    def filters(self) -> list[str]:
        """The boxes as filters."""
        return [
            " and ".join(
                f"{name} >= {low} and {name} <= {high}"
                for name, low, high in zip(NAMES, *ends, strict=True)
            )
            for ends in zip(self.lo.tolist(), self.hi.tolist(), strict=True)
        ]

    @property
    def events(self) -> list[dict[str, float]]:
        """The points as events."""
        return [dict(zip(NAMES, point, strict=True)) for point in self.points.tolist()]

    @property
    def lines(self) -> list[bytes]:
        """The points as lines of JSON."""
        return [json.dumps(event).encode() for event in self.events]

    @property
    def bodies(self) -> list[bytes]:
        """The points as bodies of 1,000 lines."""
        lines = self.lines
        return [b"\n".join(lines[at : at + BODY]) for at in range(0, len(lines), BODY)]

    def check(self, who: str, found: Sequence[Sequence[str | int]]) -> None:
        """Compare the ids that somebody gives for the first points with those that are right."""
        for place, (point, ids) in enumerate(zip(self.points[:_CHECKED], found, strict=False)):
            held = ((self.lo <= point) & (point <= self.hi)).all(axis=1)
            right = [f"s{n}" for n in np.flatnonzero(held)]
            if sorted(map(str, ids)) != sorted(right):
                raise DisagreementError(
                    f"{who} gives {sorted(ids)[:5]} for event {place}, right is {sorted(right)[:5]}"
                )


# ---- connections


async def race(
    host: str,
    port: int,
    connections: int,
    turns: int,
    work: Callable[[Connection, int], Awaitable[None]],
) -> tuple[float, list[float]]:
    """Return the seconds that all connections took for their turns, and each answer's."""
    made = [await Connection.opened(host, port) for _ in range(connections)]
    await asyncio.gather(*(work(one, 1) for one in made))
    for one in made:
        one.times.clear()
    began = time.perf_counter()
    await asyncio.gather(*(work(one, turns) for one in made))
    seconds = time.perf_counter() - began
    for one in made:
        one.close()
    return seconds, [one for connection in made for one in connection.times]


class BusyError(Exception):
    """The server asks to try again later."""


class Connection:
    """One kept connection: no more of HTTP than a load needs."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter):
        self._reader = reader
        self._writer = writer
        self.times: list[float] = []

    @classmethod
    async def opened(cls, host: str, port: int) -> Connection:
        return cls(*await asyncio.open_connection(host, port, limit=1 << 24))

    async def ask(self, method: str, path: str, body: bytes, kind: str) -> bytes:
        head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: {kind}\r\n"
        self._writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        answer = await self._reader.readuntil(b"\r\n\r\n")
        length = int(answer.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
        found = await self._reader.readexactly(length)
        if answer.startswith(b"HTTP/1.1 503"):
            raise BusyError(f"{method} {path}: {found[:200]!r}")
        if not answer.startswith(b"HTTP/1.1 20"):
            raise DisagreementError(f"{method} {path}: {answer[:15]!r} {found[:200]!r}")
        return found

    def close(self) -> None:
        self._writer.close()
