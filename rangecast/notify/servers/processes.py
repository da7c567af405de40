"""Many servers as processes of this machine, linked over loopback.

with ServerProcesses(3, 4, objects=objects, interests=interests) as servers:
    servers.set_value("a", 0.5)         # the messages that one board would send
"""

from __future__ import annotations

import os
import selectors
import subprocess
import sys
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import Any

from rangecast.errors import RangecastError
from rangecast.model.validation.arguments import check_finite
from rangecast.notify.messages import Message
from rangecast.notify.servers.frames import (
    Connection,
    Counts,
    Failed,
    Report,
    linked,
)
from rangecast.notify.servers.servers import Servers, summed
from rangecast.notify.servers.wire import Completed, ServerMessage, Start, Tile

_STOP_SECONDS = 2.0
"""Seconds to wait for a process to exit before it is killed."""


class ServerLostError(RangecastError):
    """A process of a server ended, or doesn't answer; its zone is lost."""


class ServerProcesses(Servers):
    """`Servers` with one process each. Close it, or use it in a `with` statement."""

    def __init__(self, k: int, servers: int, *, timeout: float = 300.0, **options: Any):
        """Start the processes; other options are those of `Servers`.

        timeout   seconds without any answer after which a server counts as lost
        """
        self._timeout = check_finite("timeout", timeout)
        self._failure: ServerLostError | None = None
        self._end: Callable[[], Any] = lambda: None
        try:
            super().__init__(k, servers, **options)
        except BaseException:
            self._end()
            raise

    def close(self) -> None:
        """End the processes."""
        self._failure = self._failure or ServerLostError("the servers are closed")
        self._end()

    # ---- processes

    def _begin(self, starts: Sequence[Start]) -> None:
        self._homes: list[Connection] = []
        self.processes: list[subprocess.Popen[bytes]] = []
        """Process of each server, from west to east."""
        self._counts: list[Counts | None] = [None] * len(starts)
        self._expected: int | None = None
        """Messages of the change that is made, once it is complete."""
        self._end = weakref.finalize(self, _end, self._homes, self.processes)
        west = None
        for start in starts:
            home, there = linked()
            self._homes.append(Connection(home))
            east, next_west = linked() if start.place < len(starts) - 1 else (None, None)
            links = [there, west, east]
            self.processes.append(_process([-1 if e is None else e.fileno() for e in links]))
            for link in links:
                if link is not None:
                    link.close()
            west = next_west
            self._homes[-1].send(start)

    def _run(self, server: int, message: ServerMessage) -> None:
        self._expected = None
        self._send(server, message)
        self._wait(lambda: self._expected == len(self._sent))
        self._sent.sort(key=lambda sent: sent.ordinal)

    def _send(self, server: int, message: ServerMessage | Report) -> None:
        if self._failure is not None:
            raise self._failure
        self._homes[server].send(message)

    def _wait(self, is_done: Callable[[], bool]) -> None:
        """Take what servers say until a condition holds."""
        with selectors.DefaultSelector() as ready:
            for number, home in enumerate(self._homes):
                ready.register(home.link, selectors.EVENT_READ, number)
            deadline = monotonic() + self._timeout
            while not is_done():
                for number, home in enumerate(self._homes):
                    writes = selectors.EVENT_WRITE if home.has_output else 0
                    ready.modify(home.link, selectors.EVENT_READ | writes, number)
                keys = ready.select(max(0.0, deadline - monotonic()))
                if not keys:
                    raise self._lost(f"no server has answered for {self._timeout:g} seconds")
                deadline = monotonic() + self._timeout
                for key, _ in keys:
                    self._take(key.data)

    def _take(self, number: int) -> None:
        home = self._homes[number]
        home.flush()
        for message in home.received():
            if isinstance(message, Message | Tile):
                self._sent.append(message)
            elif isinstance(message, Completed):
                self._expected = message.messages
            elif isinstance(message, Counts):
                self._counts[number] = message
            elif isinstance(message, Failed):
                raise self._lost(f"server {number} has failed: {message.reason}")
        if not home.is_open:
            with suppress(subprocess.TimeoutExpired):
                self.processes[number].wait(1.0)
            raise self._lost(f"server {number} has ended")

    def _lost(self, reason: str) -> ServerLostError:
        """End all processes: without one zone there are no right answers."""
        for number, process in enumerate(self.processes):
            if (process.poll() or 0) < 0:  # its neighbours ended because of it
                reason = f"server {number} was killed by signal {-process.returncode}"
        self._failure = ServerLostError(
            f"{reason}: its objects are lost\n  hint: start again with the current objects"
        )
        self._end()
        return self._failure

    # ---- counts

    def settle(self) -> None:
        """Wait until no message is in flight."""
        before = None
        while True:
            counts = self._ask_counts()
            sent, received = sum(c.sent for c in counts), sum(c.received for c in counts)
            if before == (sent, received) and sent == received:
                return
            before = sent, received

    def _ask_counts(self) -> list[Counts]:
        self._counts = [None] * len(self._homes)
        for number in range(len(self._homes)):
            self._send(number, Report())
        self._wait(lambda: None not in self._counts)
        return [counts for counts in self._counts if counts is not None]

    @property
    def sizes(self) -> list[int]:
        """Number of objects of each server, from west to east."""
        return [counts.objects for counts in self._ask_counts()]

    def _totals(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        counts = self._ask_counts()
        return summed(c.work for c in counts), summed(c.hops for c in counts)


def _process(links: Sequence[int]) -> subprocess.Popen[bytes]:
    path = os.pathsep.join(entry or str(Path.cwd()) for entry in sys.path)
    return subprocess.Popen(
        [sys.executable, "-m", "rangecast.notify.servers.process", *map(str, links)],
        stdin=subprocess.DEVNULL,
        env=os.environ | {"PYTHONPATH": path},
        pass_fds=[link for link in links if link >= 0],
    )


def _end(homes: Sequence[Connection], processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """End processes: each does when its link ends, or is killed."""
    for home in homes:
        home.close()
    deadline = monotonic() + _STOP_SECONDS
    for process in processes:
        try:
            process.wait(max(0.0, deadline - monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
