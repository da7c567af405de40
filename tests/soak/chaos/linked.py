"""An episode of two linked servers, with a proxy between them that cuts, holds and delays."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

from tests.soak.chaos.episode import SOON, Episode
from tests.soak.chaos.history import BrokenPromiseError
from tests.soak.chaos.plan import Plan, Round
from tests.soak.chaos.processes import Server, Zygote, until
from tests.soak.chaos.readers import Readers
from tests.soak.chaos.wire import ask
from tests.soak.chaos.workload import CONSUMERS, Op, Workload
from tests.soak.chaos.writer import SUBSCRIPTIONS, Writer
from tests.soak.link_kills import Proxy

WEIGHTS = {"single": 24, "few": 12, "keyed": 4, "dedup": 4, "late": 4, "put": 8, "delete": 3}
FIXED = {"fixed0": "x >= 10 and x <= 45", "fixed1": "y >= 20 and y <= 50"}
"""Subscriptions that each server has before the first event, and keeps."""


class LinkedEpisode(Episode):
    """Two servers, a writer and a reader at each."""

    def __init__(self, zygote: Zygote, folder: Path, plan: Plan, *others: Any):
        super().__init__(zygote, folder, plan, *others)
        space = ("--space", str(folder / "points.toml"))
        self.a = self.server("a", *space, "--server-name", "a")
        self.proxy = Proxy(self.a.port)
        link = f"ws://127.0.0.1:{self.proxy.port}/v1/link"
        self.b = self.server("b", *space, "--server-name", "b", "--link", link)
        self.both = {"a": self.a, "b": self.b}
        self.workloads = {"a": Workload(plan.seed, 0), "b": Workload(plan.seed, 1)}
        self.readers = [
            Readers(one, self.history, f"{plan.seed}/{one.name}", ("pulled",))
            for one in (self.a, self.b)
        ]
        self.after: dict[str, int] = {}
        """By server: the seq after which its events go to the other one."""

    def run(self) -> None:
        """Go through all rounds, then check everything."""
        for server in self.both.values():
            self.start(server)
        for server in self.both.values():
            self._set_up(server)
        for server in self.both.values():
            self.after[server.name] = self.get(server, "status")["durable_seq"]
        for reader in self.readers:
            reader.start()
        try:
            for one in self.plan.rounds:
                began = time.monotonic()
                self.round += 1
                for server in self.both.values():
                    if server.code() is not None:
                        self.start(server)
                self.numbers[f"fault link {one.fault}"] += 1
                self._round(one)
                self.check_clients()
                self.say(f"link {one.fault}", one.end, time.monotonic() - began)
            self._quiesce()
        finally:
            for reader in self.readers:
                reader.stop()
        for server, reader in zip(self.both.values(), self.readers, strict=True):
            self.drain(server, reader, CONSUMERS)
        for server in self.both.values():
            self.term(server)
        self.check(*self.both.values())
        for home, far in (("a", "b"), ("b", "a")):
            answer = self.check(link=[home, far], fixed=[*FIXED], after=self.after[home])
            self.numbers["events over links"] += answer["came"]

    def close(self) -> None:
        """End everything."""
        super().close()
        self.proxy.end()

    def _set_up(self, server: Server) -> None:
        for name in CONSUMERS:
            body = {
                "space": "points",
                "start_at": "start",
                "max_per_second": 3 * (name == "budget"),
            }
            assert ask(server, "PUT", f"consumers/{name}", body).status == 200
        writer = Writer(server, self.history)
        self.clients.append(writer)
        for name, text in FIXED.items():
            puts = [{"name": name, "filter": text}]
            number = self.history.op(server.name, "put", puts=puts)
            path, body = f"{SUBSCRIPTIONS}/{name}", {"filter": text, "consumer": "pulled"}
            writer.edited(number, ask(server, "PUT", path, body))

            def is_settled(path: str = f"{path}?wait=propagated") -> bool:
                return bool(ask(server, "GET", path).body["propagated"])

            if not until(is_settled, SOON):
                raise BrokenPromiseError("settles", f"{name} of {server.name} doesn't settle")

    def _round(self, one: Round) -> None:
        writers = {name: Writer(server, self.history) for name, server in self.both.items()}
        self.clients += writers.values()
        threads = []
        for name, writer in writers.items():
            ops = self.workloads[name].ops(one.number, one.ops, WEIGHTS)

            def write(name: str = name, writer: Writer = writer, ops: list[Op] = ops) -> None:
                for op in ops:
                    if self.both[name].code() is None:
                        writer.run(op)

            threads.append(threading.Thread(target=write))
        target = self.both[one.with_["server"]]
        if one.fault == "kill-at":
            delay, point = one.with_["sync_delay"], one.with_["point"]
            target.control.set(sync_delay=delay, **{point: one.with_["count"]})
        self.threads = threads
        for thread in threads:
            thread.start()
        until(lambda: sum(writer.done for writer in writers.values()) >= one.after // 2, 3, 0.002)
        if one.fault == "cut":
            self.proxy.cut()
        elif one.fault == "hold":
            self.proxy.flows.clear()
        elif one.fault == "delay":
            self.proxy.delay = 0.05
        elif one.fault in ("kill", "power"):
            self.kill(target, is_power=one.fault == "power")
        elif one.fault == "term":
            self.term(target)
        for thread in threads:
            thread.join()
        if one.fault == "kill-at":
            target.control.heal()
            self.kill(target, is_power=one.with_["is_power"])
        self.proxy.heal()
        if target.code() is not None:
            self.check(target)

    def _quiesce(self) -> None:
        """Wait until nothing is under way between the servers."""
        for server in self.both.values():
            if server.code() is not None:
                self.start(server)
        quiet = [0]

        def is_quiet() -> bool:
            links = [self.get(one, "status")["links"] for one in self.both.values()]
            is_now = all(
                some and all(x["state"] == "up" and x["lag"] == x["in_flight"] == 0 for x in some)
                for some in links
            )
            quiet[0] = quiet[0] + 1 if is_now else 0
            return quiet[0] >= 3

        if not until(is_quiet, 2 * SOON, 0.1):
            said = {name: self.get(one, "status")["links"] for name, one in self.both.items()}
            raise BrokenPromiseError("settles", f"the link doesn't become quiet: {said}")
