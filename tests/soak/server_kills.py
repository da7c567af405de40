"""A hunt for lost data: a server is killed again and again while clients write and read.

    python -m tests.soak.server_kills --kills 500

Four writers publish events and make, change and remove subscriptions, and note what was
acknowledged. Three consumers read by pull, by server-sent events and by WebSocket, and note what
came. The server is killed with SIGKILL at random moments and at each named point, and started
again. In the end the log is read by another way, a plain `Engine` says what each consumer had to
get, and everything is compared.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import websockets

from rangecast import Engine, Number, Space, String
from rangecast.server.log_tools import dumped
from tests.support.server.server_zygote import POINTS

SPACE = Space([Number("x"), Number("y"), String("who")])
CONSUMERS = ("pulled", "streamed", "socket")
WRITERS = 4
BASE = "/v1/spaces/points"


@dataclass
class Noted:
    """Confirmed answers of clients, and the messages that they got."""

    events: dict[int, dict[str, Any]] = field(default_factory=dict)
    """By seq: events that were acknowledged."""
    edits: dict[int, tuple[str, str]] = field(default_factory=dict)
    """By seq: edits that were acknowledged, and the subscription."""
    came: dict[str, list[tuple[int, int, tuple[str, ...]]]] = field(
        default_factory=lambda: {name: [] for name in CONSUMERS}
    )
    """By consumer: (connection, seq, subscriptions)."""
    acked: dict[str, dict[int, int]] = field(
        default_factory=lambda: {name: {} for name in CONSUMERS}
    )
    """By consumer: the seq that was acknowledged when a connection began."""
    wrong: list[str] = field(default_factory=list)


class Hunt:
    """One server, killed again and again."""

    def __init__(self, folder: Path, seed: int):
        self.folder = folder
        self.dice = random.Random(seed)
        self.noted = Noted()
        self.url = ""
        self.epoch = ""
        self.process = 0
        self.stopping = threading.Event()
        self.numbers = [0] * WRITERS
        self.zygote = subprocess.Popen(
            [sys.executable, "-m", "tests.support.server.server_zygote"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def start(self, point: str = "") -> None:
        """Start the server; without a point it runs until it is killed."""
        (self.folder / "url").unlink(missing_ok=True)
        after = self.dice.randint(1, 25)
        asked = {"data": str(self.folder), "point": point, "after": after, "options": {}}
        assert self.zygote.stdin is not None
        assert self.zygote.stdout is not None
        print(json.dumps(asked), file=self.zygote.stdin, flush=True)
        self.process = int(self.zygote.stdout.readline())
        deadline = time.monotonic() + 120
        while not (self.folder / "url").exists():
            if not self.is_alive():
                return  # it died at its point, before it was ready
            if time.monotonic() > deadline:
                raise AssertionError("the server didn't start within 120 s")
            time.sleep(0.005)
        self.url = (self.folder / "url").read_text()

    def is_alive(self) -> bool:
        """Return whether the server runs."""
        try:
            os.kill(self.process, 0)
        except ProcessLookupError:
            return False
        return True

    def kill(self, number: int = signal.SIGKILL) -> None:
        """Kill the server, and wait until it is gone."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.process, number)
        deadline = time.monotonic() + 120
        while self.is_alive():
            if time.monotonic() > deadline:
                raise AssertionError(f"the server didn't end within 120 s of signal {number}")
            time.sleep(0.002)

    # ---- clients

    def write(self, writer: int) -> None:
        """Publish and edit until it is over; note what is acknowledged."""
        dice = random.Random(self.dice.random())
        mine: list[str] = []
        with httpx.Client(timeout=60, trust_env=False) as http:
            while not self.stopping.is_set():
                try:
                    self._write_once(http, writer, dice, mine)
                except httpx.HTTPError:
                    time.sleep(0.01)  # down: what was under way may or may not be in the log

    def _write_once(
        self, http: httpx.Client, writer: int, dice: random.Random, mine: list[str]
    ) -> None:
        self.numbers[writer] += 1
        number = self.numbers[writer]
        turn = dice.random()
        if turn < 0.7:
            events = [
                {"id": f"{writer}-{number}-{i}", "x": dice.randint(0, 9), "y": dice.randint(0, 9)}
                for i in range(dice.randint(1, 5))
            ]
            answer = http.post(f"{self.url}{BASE}/events", json=events)
            if answer.status_code == 200:
                first = int(answer.json()["first"].split(":")[1])
                for place, event in enumerate(events):
                    self.noted.events[first + place] = event
            elif answer.status_code not in (503, 507):
                self.noted.wrong.append(f"publish: {answer.status_code} {answer.text}")
        elif turn < 0.9 or not mine:
            name = dice.choice(mine) if mine and turn < 0.75 else f"s{writer}-{number}"
            low, word = dice.randint(0, 9), dice.choice("abc")
            wanted = f"x >= {low} and (y < {dice.randint(1, 9)} or who = '{word}{number}')"
            body = {"filter": wanted, "consumer": dice.choice(CONSUMERS)}
            if name not in mine:
                mine.append(name)
            self._edit(http.put(f"{self.url}{BASE}/subscriptions/{name}", json=body), name)
        else:
            name = dice.choice(mine)
            self._edit(http.delete(f"{self.url}{BASE}/subscriptions/{name}"), name)

    def _edit(self, answer: httpx.Response, name: str) -> None:
        if answer.status_code == 200:
            seq = int(answer.json()["position"].split(":")[1])
            self.noted.edits[seq] = answer.request.method, name
        elif answer.status_code not in (404, 503, 507):
            self.noted.wrong.append(f"edit: {answer.status_code} {answer.text}")

    def pull(self) -> None:
        """Read by pull; acknowledge some of it."""
        dice = random.Random(self.dice.random())
        turn = 0
        with httpx.Client(timeout=60, trust_env=False) as http:
            while not self.stopping.is_set():
                turn += 1
                with contextlib.suppress(httpx.HTTPError, KeyError, ValueError):
                    path = f"{self.url}/v1/consumers/pulled"
                    at = int(http.get(path).json()["position"].split(":")[1])
                    page = http.get(f"{path}/messages", params={"wait": 0.2, "limit": 50}).json()
                    self.noted.acked["pulled"][turn] = at
                    for one in page["items"]:
                        self._note("pulled", turn, one)
                    if dice.random() < 0.7:
                        http.post(f"{path}/ack", json={"position": page["position"]})
                    continue
                time.sleep(0.01)

    def stream(self) -> None:
        """Read server-sent events, each connection from where the one before ended."""
        last, turn = f"{self.epoch}:0", 0
        with httpx.Client(timeout=2, trust_env=False) as http:
            while not self.stopping.is_set():
                turn += 1
                self.noted.acked["streamed"][turn] = int(last.split(":")[1])
                with contextlib.suppress(httpx.HTTPError):
                    path = f"{self.url}/v1/consumers/streamed/stream"
                    with http.stream("GET", path, headers={"Last-Event-ID": last}) as answer:
                        for line in answer.iter_lines():
                            if line.startswith("data: ") and answer.status_code == 200:
                                one = json.loads(line[6:])
                                self._note("streamed", turn, one)
                                last = one["position"]
                            if self.stopping.is_set():
                                return
                    continue
                time.sleep(0.01)

    def socket(self) -> None:
        """Read by WebSocket, and acknowledge what came before."""
        asyncio.run(self._socket())

    async def _socket(self) -> None:
        turn = 0
        while not self.stopping.is_set():
            turn += 1
            with contextlib.suppress(OSError, websockets.WebSocketException, TimeoutError):
                address = self.url.replace("http", "ws") + "/v1/stream"
                async with websockets.connect(address, open_timeout=5, proxy=None) as socket:
                    await socket.send(json.dumps({"type": "attach", "consumer": "socket"}))
                    count = 0
                    while not self.stopping.is_set():
                        one = json.loads(await asyncio.wait_for(socket.recv(), 1))
                        if one["type"] == "attached":
                            at = int(one["position"].split(":")[1])
                            self.noted.acked["socket"][turn] = at
                        elif one["type"] == "match":
                            self._note("socket", turn, one)
                            count += 1
                            if count % 20 == 0:
                                said = {"type": "ack", "position": one["position"]}
                                await socket.send(json.dumps(said))
                        elif one["type"] in ("error", "gap"):
                            self.noted.wrong.append(f"socket: {one}")
            await asyncio.sleep(0.01)

    def _note(self, consumer: str, turn: int, one: dict[str, Any]) -> None:
        self.noted.came[consumer].append((turn, one["seq"], tuple(one["subscriptions"])))

    # ---- the hunt and its judge

    def run(self, kills: int) -> str:
        """Kill a server so often; return what was found, in a line, or raise."""
        try:
            self._run(kills)
        finally:
            self.kill()
            self._end_zygote()
        return self.judged(kills)

    def _run(self, kills: int) -> None:
        self.start()
        assert self.url, "the server didn't start"
        with httpx.Client(timeout=60, trust_env=False) as http:
            self.epoch = http.get(f"{self.url}/v1/status").json()["epoch"]
            for name in CONSUMERS:
                http.put(
                    f"{self.url}/v1/consumers/{name}", json={"space": "points", "start_at": "start"}
                ).raise_for_status()
        work = [(self.write, (one,)) for one in range(WRITERS)]
        threads = [threading.Thread(target=run, args=given) for run, given in work]
        threads += [threading.Thread(target=one) for one in (self.pull, self.stream, self.socket)]
        for thread in threads:
            thread.start()
        try:
            for number in range(kills):
                if number:
                    self.start(POINTS[number % len(POINTS)] if number % 2 else "")
                self._let_work(self.dice.randint(0, 40))
                self.kill()
            self.start()
            time.sleep(0.3)
        finally:
            self.stopping.set()
            for thread in threads:
                thread.join()
        self._drain()
        self.kill(signal.SIGTERM)

    def _let_work(self, answers: int) -> None:
        """Wait until clients have got so many answers more, and a little longer."""
        noted, deadline = self.noted, time.monotonic() + 5
        wanted = len(noted.events) + len(noted.edits) + answers
        while len(noted.events) + len(noted.edits) < wanted and time.monotonic() < deadline:
            if not self.is_alive():
                return  # it was at its point
            time.sleep(0.002)
        time.sleep(self.dice.uniform(0, 0.01))

    def _end_zygote(self) -> None:
        assert self.zygote.stdin is not None
        assert self.zygote.stdout is not None
        self.zygote.stdin.close()
        self.zygote.stdout.close()
        self.zygote.wait()

    def _drain(self) -> None:
        """Read what is left of each consumer, by pull, until there is no more."""
        with httpx.Client(timeout=120, trust_env=False) as http:
            for name in CONSUMERS:
                path = f"{self.url}/v1/consumers/{name}"
                at = int(http.get(path).json()["position"].split(":")[1])
                turn = 10**6
                self.noted.acked[name][turn] = at
                while True:
                    page = http.get(f"{path}/messages", params={"limit": 5000}).json()
                    for one in page["items"]:
                        self._note(name, turn, one)
                    http.post(f"{path}/ack", json={"position": page["position"]})
                    if not page["items"]:
                        break

    def judged(self, kills: int) -> str:
        """Compare all that is known with the log."""
        wrong = list(self.noted.wrong)
        expected: dict[str, dict[int, tuple[str, ...]]] = {name: {} for name in CONSUMERS}
        engine, owner = Engine(SPACE), {}
        order: dict[str, int] = {}
        events, edits = {}, {}
        for seq, line in lines_of(self.folder):
            if "event" in line:
                events[seq] = line["event"]
                by_consumer: dict[str, list[str]] = {}
                for name in engine.match(line["event"]):
                    by_consumer.setdefault(owner[name], []).append(str(name))
                for consumer, names in by_consumer.items():
                    expected[consumer][seq] = tuple(sorted(names, key=order.__getitem__))
            elif line.get("edit", {}).get("op") == "subscribe":
                edit = line["edit"]
                edits[seq] = "PUT", edit["name"]
                if edit["name"] in engine:
                    engine.replace(edit["name"], edit["filter"])
                else:
                    engine.subscribe(edit["name"], edit["filter"])
                    order[edit["name"]] = seq
                owner[edit["name"]] = edit["consumer"]
            elif line.get("edit", {}).get("op") == "unsubscribe":
                edits[seq] = "DELETE", line["edit"]["name"]
                engine.unsubscribe(line["edit"]["name"])
        for seq, event in self.noted.events.items():
            if events.get(seq) != event:
                wrong.append(f"the event at {seq} was acknowledged, and is {events.get(seq)}")
        for seq, edit in self.noted.edits.items():
            if edits.get(seq) != edit:
                wrong.append(
                    f"the edit at {seq}, {edit}, was acknowledged, and is {edits.get(seq)}"
                )
        repeated = 0
        for name in CONSUMERS:
            repeated += self._judge_consumer(name, expected[name], wrong)
        if wrong:
            raise AssertionError("\n".join([f"{len(wrong)} findings:", *wrong[:20]]))
        came = sum(len(one) for one in self.noted.came.values())
        return (
            f"{kills} kills: 0 of {len(self.noted.events):,} acknowledged events and 0 of "
            f"{len(self.noted.edits):,} acknowledged edits lost; {came:,} messages to "
            f"{len(CONSUMERS)} consumers, {repeated:,} of them repeated after a kill, are exactly "
            f"what the log says."
        )

    def _judge_consumer(
        self, name: str, expected: dict[int, tuple[str, ...]], wrong: list[str]
    ) -> int:
        seen: dict[int, tuple[str, ...]] = {}
        last: dict[int, int] = {}
        repeated = 0
        for turn, seq, subscriptions in self.noted.came[name]:
            if seq <= last.get(turn, self.noted.acked[name].get(turn, 0)):
                wrong.append(f"{name}: seq {seq} came out of order, or after its ack")
            last[turn] = seq
            if expected.get(seq) != subscriptions:
                wrong.append(f"{name}: at {seq} came {subscriptions}, not {expected.get(seq)}")
            repeated += seq in seen
            seen[seq] = subscriptions
        if missing := expected.keys() - seen.keys():
            wrong.append(f"{name}: {len(missing)} messages never came, the first at {min(missing)}")
        return repeated


def lines_of(folder: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the log, line by line."""
    for text in dumped(folder, 0):
        line = json.loads(text)
        yield line["seq"], line


def main() -> None:
    """Hunt."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak.server_kills", description=__doc__)
    parser.add_argument("--kills", type=int, default=500)
    parser.add_argument("--seed", type=int, default=None)
    given = parser.parse_args()
    seed = random.randrange(10**9) if given.seed is None else given.seed
    print(f"seed {seed}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        print(Hunt(Path(folder), seed).run(given.kills))


if __name__ == "__main__":
    main()
