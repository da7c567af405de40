"""A hunt for lost events between servers: five of them in a tree, cut, delayed, killed.

    python -m tests.soak.link_kills --faults 100

        a        Each server has a writer, a consumer with subscriptions that all servers know
       / \\       of before the first event, and others that come and go. Between a and b, and
      b   c      between b and e, a proxy cuts connections, delays and holds what goes over
     / \\         them. Servers are killed with SIGKILL, at random moments and at named points,
    d   e        and started again.

In the end every log is read by another way, and compared: with the logs where events were
published, with what a plain `Engine` says that subscriptions want, and with what consumers got.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from rangecast import Engine
from tests.soak.server_kills import BASE, SPACE, lines_of
from tests.support.server.server_zygote import POINTS

TREE = {"a": [], "b": ["a"], "c": ["a"], "d": ["b"], "e": ["b"]}
"""Whom each server dials."""
PROXIED = {("b", "a"), ("e", "b")}
SMALL = {"a": [], "b": ["a"], "c": ["b"]}
LONGEST = 600.0
"""Seconds within which anything comes about, on the busiest machine."""


class Proxy:
    """Carries bytes between two servers, or doesn't."""

    def __init__(self, target: int):
        self.delay = 0.0
        self.is_cut = False
        self.flows = threading.Event()
        self.flows.set()
        self._target = target
        self._open: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                try:
                    if self.is_cut:
                        raise OSError
                    far = socket.create_connection(("127.0.0.1", self._target), 5)
                    far.settimeout(None)
                except OSError:
                    near.close()
                    continue
                self._open += [near, far]
                for one, other in ((near, far), (far, near)):
                    threading.Thread(target=self._carry, args=(one, other), daemon=True).start()

    def _carry(self, one: socket.socket, other: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := one.recv(1 << 16):
                self.flows.wait()
                if self.delay:
                    time.sleep(self.delay)
                other.sendall(data)
        self._close(one, other)

    @staticmethod
    def _close(*some: socket.socket) -> None:
        for one in some:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def cut(self) -> None:
        """Close all connections, and take none until `heal`."""
        self.is_cut = True
        some, self._open = self._open, []
        self._close(*some)

    def heal(self) -> None:
        """Carry everything again, at once."""
        self.is_cut, self.delay = False, 0.0
        self.flows.set()

    def end(self) -> None:
        """Close everything."""
        self.heal()
        self.cut()
        self._listener.close()


@dataclass
class Server:
    """One server of the tree, and what its clients know."""

    name: str
    folder: Path
    port: int
    links: list[str]
    process: int = 0
    number: int = 0
    began: dict[str, float] = field(default_factory=dict)
    """By id: when an event was about to be published here."""
    came: dict[int, tuple[str, ...]] = field(default_factory=dict)
    """By seq: the subscriptions that its consumer got an event for."""
    wrong: list[str] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


class Net:
    """Servers, the proxies between them, and their clients."""

    def __init__(self, folder: Path, seed: int, tree: dict[str, list[str]]):
        self.dice = random.Random(seed)
        self.stopping = threading.Event()
        self.settled_at = 0.0
        self.proxies: list[Proxy] = []
        self.zygote = subprocess.Popen(
            [sys.executable, "-m", "tests.support.server.server_zygote"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.servers: dict[str, Server] = {}
        self.edges = [(name, target) for name, targets in tree.items() for target in targets]
        for name, targets in tree.items():
            data = folder / name
            data.mkdir()
            links = []
            for target in targets:
                port = self.servers[target].port
                if (name, target) in PROXIED:
                    self.proxies.append(Proxy(port))
                    port = self.proxies[-1].port
                links.append(f"ws://127.0.0.1:{port}/v1/link")
            self.servers[name] = Server(name, data, free_port(), links)

    # ---- processes

    def start(self, server: Server, point: str = "") -> None:
        """Start a server, and wait until it answers or has died at its point."""
        url = server.folder / "url"
        url.unlink(missing_ok=True)
        options = {"port": server.port, "broker": server.name, "links": server.links}
        after = self.dice.randint(1, 25)
        asked = {"data": str(server.folder), "point": point, "after": after, "options": options}
        assert self.zygote.stdin is not None
        assert self.zygote.stdout is not None
        print(json.dumps(asked), file=self.zygote.stdin, flush=True)
        server.process = int(self.zygote.stdout.readline())
        until(lambda: url.exists() or not is_alive(server), f"{server.name} starts")

    def kill(self, server: Server) -> None:
        """Kill a server, and wait until it is gone."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(server.process, signal.SIGKILL)
        until(lambda: not is_alive(server), f"{server.name} ends")

    def end(self) -> None:
        """End everything."""
        self.stopping.set()
        for server in self.servers.values():
            if server.process:
                self.kill(server)
        for proxy in self.proxies:
            proxy.end()
        assert self.zygote.stdin is not None
        assert self.zygote.stdout is not None
        self.zygote.stdin.close()
        self.zygote.stdout.close()
        self.zygote.wait()

    # ---- clients

    def subscribe(self) -> None:
        """Make a consumer at every server, with subscriptions that all servers know of."""
        with httpx.Client(timeout=90, trust_env=False) as http:
            for name, server in self.servers.items():
                path = f"{server.url}/v1/consumers/c"
                http.put(path, json={"space": "points"}).raise_for_status()
                for number in range(3):
                    low = self.dice.randint(0, 7)
                    what = f"x >= {low} and x <= {low + 2}"
                    if number == 2:
                        what = f"y = {low} or who = '{self.dice.choice('abcde')}'"
                    one = f"{server.url}{BASE}/subscriptions/{name}{number}"
                    http.put(one, json={"filter": what, "consumer": "c"}).raise_for_status()
                    asked = one + "?wait=propagated"
                    until(lambda url=asked: http.get(url).json()["propagated"], "it has settled")
        self.settled_at = time.monotonic()

    def write(self, server: Server, seed: float) -> None:
        """Publish at a server, and let subscriptions come and go there."""
        dice = random.Random(seed)
        with httpx.Client(timeout=60, trust_env=False) as http:
            while not self.stopping.is_set():
                try:
                    self._write_once(http, server, dice)
                except httpx.HTTPError:
                    time.sleep(0.02)

    def _write_once(self, http: httpx.Client, server: Server, dice: random.Random) -> None:
        server.number += 1
        if dice.random() < 0.9:
            now = time.monotonic()
            events = []
            for place in range(dice.randint(1, 5)):
                one = {"id": f"{server.name}{server.number}-{place}", "who": dice.choice("abcdef")}
                events.append(one | {"x": dice.randint(0, 9), "y": dice.randint(0, 9)})
                server.began[str(one["id"])] = now
            answer = http.post(f"{server.url}{BASE}/events", json=events)
        else:
            path = f"{server.url}{BASE}/subscriptions/passing{dice.randint(0, 3)}"
            if dice.random() < 0.5:
                answer = http.delete(path)
            else:
                what = f"x = {dice.randint(0, 9)} and who = '{dice.choice('abcdef')}'"
                answer = http.put(path, json={"filter": what, "consumer": "c"})
        if answer.status_code not in (200, 404, 503):
            server.wrong.append(f"{server.name}: {answer.status_code} {answer.text}")
        time.sleep(dice.uniform(0, 0.02))

    def read(self, server: Server) -> None:
        """Read the consumer of a server, and acknowledge."""
        with httpx.Client(timeout=60, trust_env=False) as http:
            while not self.stopping.is_set():
                with contextlib.suppress(httpx.HTTPError, KeyError, ValueError):
                    self._read_once(http, server, 0.2)
                    continue
                time.sleep(0.02)

    def _read_once(self, http: httpx.Client, server: Server, wait: float) -> int:
        path = f"{server.url}/v1/consumers/c"
        page = http.get(f"{path}/messages", params={"wait": wait, "limit": 500}).json()
        last = max(server.came, default=0)
        for one in page["items"]:
            names = tuple(one["subscriptions"])
            if one["seq"] in server.came and server.came[one["seq"]] != names:
                server.wrong.append(f"{server.name}: seq {one['seq']} came twice, differently")
            if one["seq"] > last + 1 and "gap" in page:
                server.wrong.append(f"{server.name}: a gap: {page['gap']}")
            server.came[one["seq"]] = names
        http.post(f"{path}/ack", json={"position": page["position"]}).raise_for_status()
        return len(page["items"])

    # ---- faults

    def fault(self) -> str:
        """Do some harm; return what."""
        dice = self.dice
        turn = dice.random()
        if turn < 0.5:
            server = dice.choice([*self.servers.values()])
            self.kill(server)
            time.sleep(dice.uniform(0, 0.5))
            point = dice.choice(["", *POINTS])
            self.start(server, point)
            if not is_alive(server):
                self.start(server)
            return f"{server.name} killed, then {point or 'no point'}"
        proxy = dice.choice(self.proxies)
        if turn < 0.7:
            proxy.cut()
            time.sleep(dice.uniform(0, 1.0))
            proxy.heal()
            return "cut"
        if turn < 0.85:
            proxy.delay = dice.uniform(0.01, 0.2)
            return "delayed"
        proxy.flows.clear()
        time.sleep(dice.uniform(0.2, 2.0))
        proxy.flows.set()
        return "held"

    def run(self, faults: list[Callable[[], str]], pause: float) -> str:
        """Do harm while clients write and read; then heal, and judge."""
        try:
            for server in self.servers.values():
                self.start(server)
            self.subscribe()
            threads = [
                threading.Thread(target=run, args=given)
                for one in self.servers.values()
                for run, given in ((self.write, (one, self.dice.random())), (self.read, (one,)))
            ]
            for thread in threads:
                thread.start()
            done = []
            try:
                for fault in faults:
                    time.sleep(self.dice.uniform(0.3, 1.0) * pause)
                    for server in self.servers.values():
                        if not is_alive(server):
                            self.start(server)  # it came to its point
                    done.append(fault())
                time.sleep(pause)
            finally:
                self.stopping.set()
                for thread in threads:
                    thread.join()
            self.heal()
        finally:
            self.end()
        return self.judged(len(done))

    def heal(self) -> None:
        """End all faults; wait until nothing is under way; read what is left."""
        for proxy in self.proxies:
            proxy.heal()
        for server in self.servers.values():
            self.kill(server)  # what was to die at a point lives from now on
            self.start(server)
        with httpx.Client(timeout=60, trust_env=False) as http:
            quiet = [0]

            def is_quiet() -> bool:
                found = [self._is_quiet(http, one) for one in self.servers.values()]
                quiet[0] = quiet[0] + 1 if all(found) else 0
                return quiet[0] >= 3

            until(is_quiet, "nothing is under way", 0.1)
            for server in self.servers.values():
                while self._read_once(http, server, 0):
                    pass

    def _is_quiet(self, http: httpx.Client, server: Server) -> bool:
        found = http.get(f"{server.url}/v1/status").json()
        degree = sum(server.name in pair for pair in self.edges)
        links = found["links"]
        return len(links) == degree and all(
            one["state"] == "up" and one["lag"] == one["in_flight"] == 0 for one in links
        )

    # ---- the judge

    def judged(self, faults: int) -> str:
        """Compare all logs and all that came; return what was found, in a line."""
        wrong = [text for server in self.servers.values() for text in server.wrong]
        logs = {name: Read(server) for name, server in self.servers.items()}
        origins = {log.origin: log for log in logs.values()}
        must = carried = 0
        for name, log in logs.items():
            server = self.servers[name]
            for origin, numbers in log.numbers.items():
                if numbers != sorted(set(numbers)):
                    wrong.append(f"{name}: events of {origin} aren't in order, or come twice")
                home = origins[origin].own
                wrong += [
                    f"{name}: event {number} of {origin} differs from the one published"
                    for number in numbers
                    if home.get(number) != log.other[origin, number]
                ]
                carried += len(numbers)
            for other in logs.values():
                if other is log:
                    continue
                came = set(log.numbers.get(other.origin, []))
                for number, event in other.own.items():
                    if self.servers[other.name].began[event["id"]] < self.settled_at:
                        continue
                    if any(log.fixed.match(event)):
                        must += 1
                        if number not in came:
                            wrong.append(f"{name}: {event['id']} of {other.name} is missing")
            missing = log.expected.keys() - server.came.keys()
            extra = server.came.keys() - log.expected.keys()
            wrong += [f"{name}: its consumer didn't get seq {seq}" for seq in sorted(missing)]
            wrong += [f"{name}: its consumer got seq {seq} by mistake" for seq in sorted(extra)]
            wrong += [
                f"{name}: seq {seq} came for {server.came[seq]}, expected {names}"
                for seq, names in log.expected.items()
                if seq in server.came and server.came[seq] != names
            ]
        if wrong:
            raise AssertionError(f"{len(wrong)} mistakes:\n" + "\n".join(wrong[:20]))
        published = sum(len(log.own) for log in logs.values())
        delivered = sum(len(log.expected) for log in logs.values())
        assert must, "nothing had to go over a link"
        return (
            f"{faults} faults, {len(logs)} servers: {published:,} events published; {must:,} had "
            f"to enter another log, {carried:,} did; {delivered:,} messages to consumers: none "
            "lost, none by mistake, none twice, all in order"
        )


class Read:
    """The log of a server, read by another way."""

    def __init__(self, server: Server):
        self.name = server.name
        self.own: dict[int, dict[str, Any]] = {}
        """Events that were published here, by their number for other servers."""
        self.other: dict[tuple[str, int], dict[str, Any]] = {}
        """Events that came over links, by origin and number."""
        self.numbers: dict[str, list[int]] = {}
        """By origin, in the order of this log."""
        self.expected: dict[int, tuple[str, ...]] = {}
        """By seq: what the consumer had to get."""
        self.fixed = Engine(SPACE)
        """The subscriptions that were there before the first event, and stay."""
        self.origin = server.name
        engine = Engine(SPACE)
        order: dict[str, int] = {}
        epoch = 0, 0
        for seq, line in lines_of(server.folder):
            if "event" in line:
                event = line["event"]
                if "number" in line:
                    origin = line["source"].removeprefix("broker:")
                    self.numbers.setdefault(origin, []).append(line["number"])
                    self.other[origin, line["number"]] = event
                else:
                    self.own[epoch[1] + seq - epoch[0]] = event
                if names := engine.match(event):
                    self.expected[seq] = tuple(sorted(map(str, names), key=order.__getitem__))
            edit = line.get("edit", {})
            if edit.get("op") == "begin-epoch":
                epoch = seq, edit["number"]
            if edit.get("op") == "subscribe":
                if edit["name"] in engine:
                    engine.replace(edit["name"], edit["filter"])
                else:
                    engine.subscribe(edit["name"], edit["filter"])
                    order[edit["name"]] = seq
                if not edit["name"].startswith("passing"):
                    self.fixed.subscribe(edit["name"], edit["filter"])
            elif edit.get("op") == "unsubscribe":
                engine.unsubscribe(edit["name"])


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


def is_alive(server: Server) -> bool:
    """Return whether a server runs."""
    try:
        os.kill(server.process, 0)
    except ProcessLookupError:
        return False
    return True


def until(is_so: Callable[[], bool], what: str, step: float = 0.005) -> None:
    """Wait for something."""
    deadline = time.monotonic() + LONGEST
    while not is_so():
        if time.monotonic() > deadline:
            raise AssertionError(f"within {LONGEST:.0f} s it wasn't so that {what}")
        time.sleep(step)


def main() -> None:
    """Hunt."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak.link_kills", description=__doc__)
    parser.add_argument("--faults", type=int, default=100)
    parser.add_argument("--seed", type=int, default=None)
    given = parser.parse_args()
    seed = random.randrange(10**9) if given.seed is None else given.seed
    print(f"seed {seed}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        net = Net(Path(folder), seed, TREE)
        print(net.run([net.fault] * given.faults, 1.0))


if __name__ == "__main__":
    main()
