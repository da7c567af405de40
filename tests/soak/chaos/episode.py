"""An episode: a new server, its clients and the model, through the rounds of a plan."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tests.soak.chaos.history import BrokenPromiseError, History
from tests.soak.chaos.plan import Plan, Round
from tests.soak.chaos.processes import ROOT, Server, Zygote, until
from tests.soak.chaos.readers import PULLED, Readers
from tests.soak.chaos.wire import Connection, ask
from tests.soak.chaos.workload import PLAIN, REPEATS, Workload
from tests.soak.chaos.writer import SUBSCRIPTIONS, Writer

SHUTDOWN = 30.0
"""Seconds within which SIGTERM ends a server."""
SOON = 60.0
"""Seconds within which something comes about that has to."""
BUDGET = 3
SPACE = """
attribute = [
  { name = "x", type = "number" }, { name = "y", type = "number" },
  { name = "note", type = "string" },
]
"""


class Model:
    """The process of the model."""

    def __init__(self, history: Path):
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.soak.chaos.model", str(history)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
            text=True,
        )

    def ask(self, **question: Any) -> dict[str, Any]:
        """Ask a question; return the answer."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps(question), file=self._process.stdin, flush=True)
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("the model has ended")
        found: dict[str, Any] = json.loads(line)
        return found

    def end(self) -> None:
        """End it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()


class Episode:
    """One server under faults. `numbers` are counted over all episodes of a run."""

    def __init__(
        self,
        zygote: Zygote,
        folder: Path,
        plan: Plan,
        numbers: Counter[str],
        plant: str,
        tell: Callable[[str], None],
    ):
        self.plan, self.numbers, self._tell = plan, numbers, tell
        self.round = 0
        """Rounds that have begun."""
        self.probes = 0
        self._judged = {"messages": 0, "units": 0}
        self.dice = random.Random(f"{plan.seed}/play")
        self.folder = folder
        folder.mkdir(parents=True)
        (folder / "points.toml").write_text(SPACE)
        self.history = History(folder / "history.jsonl")
        self.model = Model(self.history.path)
        self.zygote, self.plant = zygote, plant
        self.servers: list[Server] = []
        self.clients: list[Writer] = []
        """Writers whose connections are to be closed."""
        self.threads: list[threading.Thread] = []
        """The threads of writers; they end when their servers do."""

    def server(self, name: str, *arguments: str, is_copy: bool = False) -> Server:
        """Return a new server of the episode."""
        found = Server(self.zygote, name, self.folder, arguments=list(arguments), plant=self.plant)
        self.servers.append(found)
        archive = found.control.archive
        self.model.ask(server=name, data=str(found.data), archive=str(archive), is_copy=is_copy)
        return found

    def run(self) -> None:
        """Go through all rounds, then check everything."""
        raise NotImplementedError

    def close(self) -> None:
        """End everything."""
        for server in self.servers:
            server.kill()
        for thread in self.threads:
            thread.join()
        for client in self.clients:
            client.close()
        self.model.end()
        self.history.close()
        for name in ("messages", "units"):
            self.numbers[f"{name} judged"] += self._judged[name]
        for outcome, count in self.history.outcomes.items():
            self.numbers[f"requests {outcome}"] += count

    # ---- what every kind of episode does

    def start(self, server: Server) -> None:
        """Start a server; it must."""
        if not server.start():
            raise BrokenPromiseError(
                "starts", f"{server.name} doesn't start (exit {server.code()}):\n{server.said()}"
            )
        self.numbers["starts"] += 1

    def term(self, server: Server) -> None:
        """End a server by SIGTERM: with 0, in a bounded time."""
        server.is_up.clear()
        began = time.monotonic()
        server.signal(signal.SIGTERM)
        code = server.wait(SHUTDOWN)
        if code is None:
            server.kill()
            raise BrokenPromiseError(
                "stops", f"{server.name} still runs {SHUTDOWN:.0f} s after SIGTERM\n{server.said()}"
            )
        if code:
            raise BrokenPromiseError(
                "stops", f"SIGTERM ends {server.name} with {code}\n{server.said()}"
            )
        slowest = int((time.monotonic() - began) * 1000)
        self.numbers["slowest SIGTERM ms"] = max(self.numbers["slowest SIGTERM ms"], slowest)
        self.numbers["SIGTERM"] += 1

    def kill(self, server: Server, *, is_power: bool = False) -> None:
        """Kill a server; with a power cut what wasn't synced is lost."""
        server.kill()
        self.numbers["kill -9"] += 1
        if is_power:
            lost = server.control.cut_power(self.dice)
            self.numbers["power cuts"] += 1
            self.numbers["writes lost by power cuts"] += lost

    def check(self, *down: Server, **question: Any) -> dict[str, Any]:
        """Let the model look at servers that are down; raise what is broken."""
        answer = self.model.ask(check=[one.name for one in down], **question)
        self.numbers["checks"] += 1
        self._judged = {name: answer[name] for name in self._judged}
        for one in answer["findings"][:1]:
            raise BrokenPromiseError(one["promise"], one["detail"], **one["keys"])
        self.check_clients()
        return answer

    def check_clients(self) -> None:
        """Raise what clients have seen."""
        if self.history.broken:
            raise self.history.broken[0]

    def get(self, server: Server, path: str) -> Any:
        """Return what a server answers to a GET that it must answer."""
        answer = ask(server, "GET", path)
        if answer.status != 200:
            raise BrokenPromiseError(
                "answered",
                f"GET {path} was answered {answer.status}: {str(answer.body)[:300]}; the server's "
                f"exit code is {server.code()}\n{server.said()}",
            )
        return answer.body

    def say(self, fault: str, end: str, seconds: float) -> None:
        """Print a line about a round."""
        counts = self.history.outcomes
        self._tell(
            f"  {fault:13} end {end:5} {seconds:5.1f} s   requests: {counts['ok']} ok, "
            f"{counts['rejected']} rejected, {counts['unknown']} unknown"
        )

    def drain(self, server: Server, readers: Readers, consumers: Sequence[str]) -> None:
        """Read what is left of each consumer, by pull, until there is no more."""
        last = self.get(server, "status")["durable_seq"]
        with Connection(server) as connection:
            for consumer in consumers:
                self._drain(server, readers, consumer, last, connection)

    def _drain(
        self, server: Server, readers: Readers, consumer: str, last: int, connection: Connection
    ) -> None:
        got = [0]

        def is_through() -> bool:
            found = readers.pull_once(
                connection, consumer, server.life, wait=0.3, share=1, dice=self.dice
            )
            if found is not None:
                got[0] = found[1]
            return got[0] >= last

        if not until(is_through, SOON, 0.01):
            raise BrokenPromiseError(
                "delivered",
                f"{consumer} stays at {got[0]} of {last}: nothing more comes",
                consumer=consumer,
            )


class SingleEpisode(Episode):
    """One server with readers, and maybe a follower."""

    def __init__(self, zygote: Zygote, folder: Path, plan: Plan, *others: Any):
        super().__init__(zygote, folder, plan, *others)
        keep = ["--retention-gb", "0.0003"] if plan.has_retention else []
        self.main = self.server("a", "--space", str(folder / "points.toml"), *keep)
        self.readers = Readers(self.main, self.history, plan.seed)
        self.workloads = [Workload(plan.seed, one) for one in range(plan.writers)]
        self.writers = [Writer(self.main, self.history) for _ in self.workloads]
        self.clients += self.writers
        self.copy: Any = None
        """The follower, as `follower.Copy`."""

    def run(self) -> None:
        """Go through all rounds, then check everything."""
        from tests.soak.chaos.faults import FAULTS
        from tests.soak.chaos.follower import Copy

        self.start(self.main)
        self._set_up()
        if self.plan.has_follower:
            self.copy = Copy(self)
        self.readers.start()
        try:
            for one in self.plan.rounds:
                began = time.monotonic()
                self.round += 1
                self._ensure_up()
                self.look()
                self.numbers[f"fault {one.fault}"] += 1
                FAULTS[one.fault](self, one)
                self.check_clients()
                self.say(one.fault, one.end, time.monotonic() - began)
            self._ensure_up()
            self.main.control.heal()
            self._probe("after all rounds")
        finally:
            self.readers.stop()
        self.drain(self.main, self.readers, (*PULLED, "socket", "streamed", "slow"))
        self.look()
        if self.copy is not None:
            self.copy.finish()
        self.term(self.main)
        self.check(self.main)
        if self.copy is not None:
            self.copy.check()

    def _set_up(self) -> None:
        def put(path: str, body: Any) -> None:
            answer = ask(self.main, "PUT", path, body)
            assert answer.status == 200, answer

        for name in ("pulled", "socket", "streamed", "slow"):
            put(f"consumers/{name}", {"space": "points", "start_at": "start"})
        put("consumers/budget", {"space": "points", "start_at": "start", "max_per_second": BUDGET})
        put("boards/board", {"k": 3})
        put("consumers/board", {"board": "board", "start_at": "start"})

    def _ensure_up(self) -> None:
        if self.main.code() is not None:
            self.start(self.main)

    # ---- parts of rounds

    def work(self, one: Round, weights: dict[str, int] | None = None) -> list[threading.Thread]:
        """Start all writers on the ops of a round; return their threads."""
        for writer in self.writers:
            writer.done = 0
        threads = []
        for writer, workload in zip(self.writers, self.workloads, strict=True):
            ops = workload.ops(one.number, one.ops, weights or PLAIN)

            def write(writer: Writer = writer, ops: Any = ops) -> None:
                for op in ops:
                    if self.main.code() is not None:
                        return
                    writer.run(op)

            threads.append(threading.Thread(target=write))
            threads[-1].start()
        self.threads = threads
        return threads

    def work_repeats(self, one: Round) -> list[threading.Thread]:
        """Start all writers on ops that are mostly repeats; return their threads."""
        return self.work(one, REPEATS)

    def until_done(self, count: int, threads: list[threading.Thread]) -> None:
        """Wait until writers have done some ops, or are done, or the server has ended."""
        until(
            lambda: (
                sum(writer.done for writer in self.writers) >= count
                or self.main.code() is not None
                or not any(thread.is_alive() for thread in threads)
            ),
            120,
            0.002,
        )

    def join(self, threads: list[threading.Thread]) -> None:
        """Wait for all writers."""
        for thread in threads:
            thread.join()

    def expect_end(self, why: str, seconds: float = SOON) -> int:
        """Wait until the server has ended by itself."""
        code = self.main.wait(seconds)
        self.main.is_up.clear()
        if code is None:
            raise BrokenPromiseError("stops", f"the server runs on {why}\n{self.main.said()}")
        return code

    def finish(self, one: Round) -> None:
        """End the server as a round wants it, and check."""
        if self.main.code() is not None:
            raise BrokenPromiseError(
                "alive", f"the server has ended with {self.main.code()}\n{self.main.said()}"
            )
        if one.end == "term":
            self.term(self.main)
        elif one.end in ("kill", "power"):
            self.kill(self.main, is_power=one.end == "power")
        else:
            return
        self.check(self.main)

    # ---- looking at the server

    def look(self) -> None:
        """Note the live set and the objects of the board, if nothing changes meanwhile."""
        before = self.get(self.main, "status")
        items, after = {}, ""
        while True:
            page = self.get(self.main, f"{SUBSCRIPTIONS}?limit=100&after={after}")
            for sub in page["items"]:
                items[sub["id"]] = [sub["filter"], sub["consumer"] or "", sub["score"]]
            after = page["next"]
            if not after:
                break
        objects = self.get(self.main, "boards/board/objects?limit=100")["items"]
        status = self.get(self.main, "status")
        if before["durable_seq"] == status["durable_seq"] == status["matched_seq"]:
            at = status["durable_seq"]
            self.history.note("live", "a", at=at, items=items)
            shown = {sub["id"]: [sub["value"], sub["position"]] for sub in objects}
            self.history.note("objects", "a", at=at, board="board", items=shown)

    def _probe(self, when: str) -> None:
        """Publish one event; it must be accepted soon."""
        if not until(lambda: self.publish_one() == 200, SOON, 0.2):
            raise BrokenPromiseError("recovers", f"{when} no event is accepted")

    def publish_one(self) -> int:
        """Publish one event, and note it; return the status of the answer."""
        self.probes += 1
        event = {"id": f"p{self.probes}", "x": 1, "y": 1}
        rows = [[json.dumps(event["id"]), {"x": 1, "y": 1}]]
        number = self.history.op("a", "events", events=rows)
        answer = ask(self.main, "POST", "spaces/points/events", event)
        self.writers[0].published(number, answer)
        return answer.status
