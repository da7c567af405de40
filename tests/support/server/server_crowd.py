"""Many sessions: all come back after a kill -9 of the server, and miss nothing.

    python -m tests.support.server.server_crowd --sessions 2000

Each session is a WebSocket with a consumer of its own. Events are published, the server is killed
and started again, all sessions reconnect at once where they were, and more events are published. In
the end each session must have got exactly what a plain `Engine` says, and the server's memory must
have stayed within bounds.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import websockets

from rangecast import Engine, Number, Space
from tests.support.server.servers import ROOT, answers, free_port, server

SPACE = Space([Number("x"), Number("y")])
PER_SESSION = 60_000
"""Bytes that the server may grow by for each session."""


class Crowd:
    """Sessions, a server that is killed, and a judge."""

    def __init__(self, folder: Path, sessions: int, events: int):
        self.folder, self.sessions = folder, sessions
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        dice = random.Random(1)
        self.events = [{"x": dice.random(), "y": dice.random()} for _ in range(events)]
        width = min(0.5, 30 / events)
        """Each session gets some 30 events."""
        self.filters = {
            f"c{n}": f"x between {low} and {low + width}"
            for n, low in ((n, dice.uniform(0, 1 - width)) for n in range(sessions))
        }
        self.came: dict[str, list[int]] = {name: [] for name in self.filters}
        self.place: dict[str, str] = {}
        self.seqs: list[int] = []
        SPACE.save(folder / "points.toml")

    @contextmanager
    def _server(self) -> Iterator[int]:
        """A server on the same port and folder; it is killed at the end."""
        command = [sys.executable, "-m", "rangecast", "serve", "--space", "points.toml"]
        with server(
            [*command, "--data", "data", "--port", self.port],
            self.folder / "log.txt",
            lambda: answers(self.port) and "Serving on" in (self.folder / "log.txt").read_text(),
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        ) as process:
            yield process.pid

    async def run(self) -> str:
        """Do all of it; return what was found in a line, or raise."""
        half = len(self.events) // 2
        async with asyncio.TaskGroup() as group:
            with self._server():
                await self._prepare()
                tasks = [group.create_task(self._session(name)) for name in self.filters]
                await self._publish(self.events[:half])
                expected = self._expected()
                await self._until(expected, share=0.5)  # in the middle of it
            began = time.monotonic()
            with self._server() as number:
                before = _memory(number)
                await self._publish(self.events[half:])
                expected = self._expected()
                await self._until(expected)
                seconds = time.monotonic() - began
                grown = _memory(number, "VmHWM") - before
                for task in tasks:
                    task.cancel()
        assert self.came == expected
        assert grown < (64 << 20) + PER_SESSION * self.sessions, f"{grown:,} bytes"
        return (
            f"{self.sessions:,} sessions came back after a kill, and got all "
            f"{sum(map(len, expected.values())):,} messages once, in order, {seconds:.1f} seconds "
            f"after the server's start. It grew by {grown / 2**20:.0f} MiB."
        )

    async def _prepare(self) -> None:
        async with httpx.AsyncClient(base_url=self.url, trust_env=False, timeout=120) as http:
            for name in self.filters:
                (
                    await http.put(f"/v1/consumers/{name}", json={"space": "points"})
                ).raise_for_status()
            rows = [
                {"id": name, "filter": wanted, "consumer": name}
                for name, wanted in self.filters.items()
            ]
            path = "/v1/spaces/points/subscriptions:bulk?strict=true"
            (await http.post(path, json=rows)).raise_for_status()

    async def _publish(self, events: list[dict[str, float]]) -> None:
        async with httpx.AsyncClient(base_url=self.url, trust_env=False, timeout=120) as http:
            for at in range(0, len(events), 100):
                some = events[at : at + 100]
                answer = await http.post("/v1/spaces/points/events", json=some)
                first = int(answer.raise_for_status().json()["first"].split(":")[1])
                self.seqs += range(first, first + len(some))
                await asyncio.sleep(0)

    async def _session(self, name: str) -> None:
        """Follow a consumer; come again when the connection ends, where it was."""
        address = self.url.replace("http", "ws") + "/v1/stream"
        while True:
            with contextlib.suppress(OSError, websockets.WebSocketException, TimeoutError):
                async with websockets.connect(address, proxy=None, open_timeout=120) as socket:
                    frame = {"type": "attach", "consumer": name}
                    if name in self.place:
                        frame["position"] = self.place[name]
                    await socket.send(json.dumps(frame))
                    async for text in socket:
                        one: dict[str, Any] = json.loads(text)
                        assert one["type"] in ("attached", "match", "heartbeat"), one
                        if one["type"] == "match":
                            self.came[name].append(one["seq"])
                            self.place[name] = one["position"]
            await asyncio.sleep(0.05)

    def _expected(self) -> dict[str, list[int]]:
        judge = Engine(SPACE)
        for name, wanted in self.filters.items():
            judge.subscribe(name, wanted)
        found: dict[str, list[int]] = {name: [] for name in self.filters}
        for seq, event in zip(self.seqs, self.events, strict=False):
            for name in judge.match(event):
                found[str(name)].append(seq)
        return found

    async def _until(self, expected: dict[str, list[int]], share: float = 1.0) -> None:
        count = sum(map(len, expected.values())) * share
        deadline = time.monotonic() + 600
        while sum(map(len, self.came.values())) < count:
            assert time.monotonic() < deadline, "some messages never came"
            await asyncio.sleep(0.02)


def _memory(process: int, name: str = "VmRSS") -> int:
    for line in Path(f"/proc/{process}/status").read_text().splitlines():
        if line.startswith(name):
            return int(line.split()[1]) * 1024
    raise AssertionError(f"no {name}")


def main() -> None:
    """Bring a crowd together."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.support.server.server_crowd", description=__doc__
    )
    parser.add_argument("--sessions", type=int, default=2000)
    parser.add_argument("--events", type=int, default=4000)
    given = parser.parse_args()
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # and of the server, which inherits it
    with tempfile.TemporaryDirectory() as folder:
        print(asyncio.run(Crowd(Path(folder), given.sessions, given.events).run()))


if __name__ == "__main__":
    main()
