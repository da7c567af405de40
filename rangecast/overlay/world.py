"""A simulated world: time, brokers and their disks, the links between them, and their clients.

What happens in it is drawn elsewhere (`clients`, `faults`); the oracle hears of all that counts.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

import msgspec

from rangecast.model.members import Id
from rangecast.overlay import ports
from rangecast.overlay.broker import Broker
from rangecast.overlay.eventlog import Block
from rangecast.overlay.knobs import cells_of, drawn, space_of
from rangecast.overlay.messages import Frame, Interest, encode
from rangecast.overlay.oracle import Oracle
from rangecast.overlay.tree import neighbours


@dataclass(slots=True)
class Disk:
    """What a broker has written; what wasn't synced is lost in a crash."""

    blocks: list[Block] = field(default_factory=list)
    synced: int = 0
    """Of the blocks."""
    delivered: int = 0
    """Place in the log up to which clients have events."""
    subscriptions: dict[Id, Any] = field(default_factory=dict)

    def events(self, blocks: int) -> int:
        """Return the place in the log after this many blocks."""
        return sum(len(block) for block in self.blocks[:blocks])


@dataclass(slots=True)
class Edge:
    """A link between two brokers."""

    ends: tuple[str, str]
    is_up: bool = False
    session: int = 0
    deaf: float = 0.0
    """Until then frames from the first end are lost."""
    clogged: float = 0.0
    """Until then frames are held."""
    last: dict[str, float] = field(default_factory=dict)
    """By sender: when its last frame arrives."""

    def other(self, end: str) -> str:
        """Return the other end."""
        return self.ends[1] if end == self.ends[0] else self.ends[0]


class World:
    """One network, one seed."""

    def __init__(self, seed: int, broker: type[Broker] = Broker, *, trace: bool = False):
        self.seed = seed
        self.knobs = knobs = drawn(seed)
        self.rng = Random(seed * 2 + 1)
        self.now = 0.0
        self.counts: Counter[str] = Counter()
        self.trace: list[str] = []
        self._is_traced = trace
        self._make = broker
        self._heap: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._ties = 0
        self.is_faulty = True
        names = [f"b{number}" for number in range(knobs.brokers)]
        self.near = neighbours(knobs.tree, knobs.brokers)
        self.brokers: dict[str, Broker | None] = dict.fromkeys(names)
        self.disks = {name: Disk() for name in names}
        self.spaces = {name: space_of(knobs.strings) for name in names}
        self._incarnation = dict.fromkeys(names, 0)
        self._waiting: dict[str, list[ports.Input]] = {name: [] for name in names}
        """What clients of a broker that is down do when it is back."""
        self.oracle = Oracle(space_of(knobs.strings))
        self.edges: dict[tuple[str, str], Edge] = {}
        for one, other in knobs.tree:
            self.new_edge(names[one], names[other])
        self.extra: Edge | None = None
        self._version: dict[int, int] = {}
        """Of the filter of each subscription."""

    # ---- time

    def later(self, delay: float, act: Callable[..., None], *given: Any) -> None:
        """Let something happen after some time."""
        self._ties += 1
        heapq.heappush(self._heap, (self.now + delay, self._ties, act, given))

    def play(self, until: float) -> None:
        """Let everything happen up to a time."""
        while self._heap and self._heap[0][0] <= until:
            self.now, _, act, given = heapq.heappop(self._heap)
            act(*given)
        self.now = until

    def tell(self, text: str) -> None:
        """Add a line to the trace."""
        if self._is_traced:
            self.trace.append(f"{self.now:8.2f}  {text}")

    # ---- brokers

    def start(self, name: str) -> None:
        """Start a broker, for the first time or with what is on its disk."""
        if self.brokers[name] is not None:
            return
        disk = self.disks[name]
        self._incarnation[name] += 1
        first = self._incarnation[name] == 1
        knobs = self.knobs
        number = int(name[1:])
        bits = 3 if knobs.same_cells or number % 2 else 2
        broker = self._make(
            name,
            self.spaces[name],
            incarnation=self._incarnation[name],
            strategy=knobs.strategy,
            cells=cells_of(bits),
            words=knobs.words if knobs.strings else None,
            budget=knobs.budget,
            cover_index=knobs.cover_index,
            settings=knobs.settings,
            links=[f"b{one}" for one in self.near[number]],
            subscriptions=dict(disk.subscriptions),
            log=disk.blocks,
            delivered=self.rng.choice([0, disk.delivered]),  # written down now and then
        )
        self.brokers[name] = broker
        self.tell(f"{name} starts, incarnation {self._incarnation[name]}")
        disk.synced = len(disk.blocks)
        if not first:
            self._durable(name, broker)
        for edge in self.edges.values():
            if name in edge.ends and edge.is_up:
                self.give(name, ports.LinkUp(edge.other(name)))
        waiting, self._waiting[name] = self._waiting[name], []
        for given in waiting:
            self.client(name, given)
        if not first:
            for one, at in self.oracle.live():
                if at == name and not self.oracle.is_settled(one):
                    self.give(name, ports.AskSettled(self.token(one)))

    def crash(self, name: str) -> None:
        """Let a broker crash, and start again later; what wasn't synced may be lost."""
        broker = self.brokers[name]
        if broker is None:
            return
        self.tell(f"{name} crashes")
        self.counts["crashes"] += 1
        self.counts.update(broker.counts)
        self.brokers[name] = None
        disk = self.disks[name]
        kept = self.rng.randint(disk.synced, len(disk.blocks))
        self.counts["torn units"] += kept < len(disk.blocks)
        del disk.blocks[kept:]
        for edge in self.edges.values():
            if name in edge.ends and edge.is_up:
                self.cut(edge)
                self.later(self.rng.uniform(0.5, 6), self.join, edge)
        self.later(self.rng.uniform(0.5, 15), self.start, name)

    def give(self, name: str, given: ports.Input) -> None:
        """Let a broker handle an input, and do what it says, up to a crash."""
        broker = self.brokers[name]
        if broker is None:
            return
        for output in broker.handle(self.now, given):
            if self.is_faulty and self.rng.random() < self.knobs.crash:
                self.crash(name)
                return
            self._do(name, broker, output)
        disk = self.disks[name]
        disk.delivered = max(disk.delivered, broker.log.durable)

    def _do(self, name: str, broker: Broker, output: ports.Output) -> None:
        if isinstance(output, ports.Send):
            self._transmit(name, output.link, output.frame)
        elif isinstance(output, ports.Append):
            self.disks[name].blocks.append(output.block)
            self.later(self.rng.choice([0.0, 0.5, 2.0]), self._sync, name, broker)
        elif isinstance(output, ports.Timer):
            self.later(max(output.at - self.now, 0.0), self._tick, name, broker)
        elif isinstance(output, ports.Deliver):
            self._deliver(name, output)
        elif isinstance(output, ports.IsSettled):
            self._is_settled(output.token)
        elif isinstance(output, ports.Shed):
            self.tell(f"{name} sheds {output.origin}#{output.numbers} for {output.link}")
            self.oracle.shed(output.origin, output.numbers, self.behind(output.link, name))
        elif isinstance(output, ports.Close):
            self.later(0.0, self._close, self._edge(name, output.link))
        elif isinstance(output, ports.Alarm):
            self.tell(f"{name} alarm {output.kind}: {output.text}")
            if output.kind == "cycle":
                self.later(0.0, self.drop_extra)
            elif output.kind != "refused":
                self.oracle.wrong.append(f"alarm {output.kind}: {output.text}")

    def _sync(self, name: str, broker: Broker) -> None:
        if self.brokers[name] is broker:
            disk = self.disks[name]
            if disk.synced < len(disk.blocks):
                disk.synced = len(disk.blocks)
                self._durable(name, broker)

    def _durable(self, name: str, broker: Broker) -> None:
        """Say that all blocks are on disk; events published here are accepted by that."""
        upto = self.disks[name].events(self.disks[name].synced)
        for place, block in broker.log.between(broker.log.durable, upto):
            if block.origin == name and place + len(block) <= upto:
                for row, number in enumerate(block.numbers):
                    words = {axis: texts[row] for axis, texts in block.words.items()}
                    self.oracle.accepted(name, number, block.points[row], words)
        self.give(name, ports.Durable(upto))

    def _tick(self, name: str, broker: Broker) -> None:
        if self.brokers[name] is broker:
            self.give(name, ports.Tick())

    def _deliver(self, name: str, output: ports.Deliver) -> None:
        disk, block = self.disks[name], output.block
        if output.at < disk.delivered:
            self.counts["deliveries repeated"] += 1
            return
        disk.delivered = output.at + len(block)
        for number, ids in zip(block.numbers, output.matches, strict=True):
            for one in ids:
                self.tell(f"{name} delivers {block.origin}#{number} to {one}")
                self.oracle.take(name, block.origin, number, int(one))

    # ---- network

    def new_edge(self, one: str, other: str) -> Edge:
        """Add a link between two brokers, which is down."""
        edge = self.edges[one, other] = Edge((one, other))
        return edge

    def _edge(self, one: str, other: str) -> Edge | None:
        return self.edges.get((one, other)) or self.edges.get((other, one))

    def join(self, edge: Edge) -> None:
        """Let a link come up."""
        if edge.is_up or self.edges.get(edge.ends) is not edge:
            return
        edge.is_up = True
        edge.session += 1
        self.tell(f"link {edge.ends[0]}-{edge.ends[1]} is up")
        for end in edge.ends:
            self.give(end, ports.LinkUp(edge.other(end)))

    def cut(self, edge: Edge, *, forget: bool = False) -> None:
        """Let a link go down; `forget`: for good."""
        edge.is_up = False
        edge.session += 1
        self.tell(f"link {edge.ends[0]}-{edge.ends[1]} is down")
        for end in edge.ends:
            self.give(end, ports.LinkDown(edge.other(end), forget=forget))

    def _close(self, edge: Edge | None) -> None:
        """Close a link that a broker refuses, and try again later."""
        if edge is not None and edge.is_up and edge is not self.extra:
            self.cut(edge)
            self.later(3.0, self.join, edge)

    def remove(self, edge: Edge) -> None:
        """Take a link of the tree away for good: there are two networks then."""
        one, other = (int(end[1:]) for end in edge.ends)
        self.near[one].remove(other)
        self.near[other].remove(one)
        del self.edges[edge.ends]
        self.cut(edge, forget=True)
        self.oracle.parted([self.behind(end, "") for end in edge.ends])

    def add(self, one: str, other: str) -> None:
        """Join two networks by a link."""
        self.near[int(one[1:])].append(int(other[1:]))
        self.near[int(other[1:])].append(int(one[1:]))
        self.join(self.new_edge(one, other))
        self._watch(one, other)

    def _watch(self, one: str, other: str) -> None:
        """Wait until both ends have accepted a link, as a person would; then clients ask again.

        It may be refused for a while, as long as some brokers still think that there is a cycle.
        """
        for here, there in ((one, other), (other, one)):
            broker = self.brokers[here]
            if broker is None or there not in broker.links or not broker.links[there].is_ready:
                self.later(0.5, self._watch, one, other)
                return
        self.oracle.joined()
        for subscription, name in self.oracle.live():
            self._version[subscription] += 1
            self.give(name, ports.AskSettled(self.token(subscription)))

    def drop_extra(self) -> None:
        """A person removes the link that closed a cycle."""
        if self.extra is not None:
            del self.edges[self.extra.ends]
            edge, self.extra = self.extra, None
            self.cut(edge, forget=True)

    def _transmit(self, sender: str, receiver: str, frame: Frame) -> None:
        edge = self._edge(sender, receiver)
        if edge is None or not edge.is_up:
            return
        rng, knobs = self.rng, self.knobs
        copies = 1
        data = encode(frame)
        if self.is_faulty:
            if rng.random() < knobs.drop or (edge.deaf > self.now and sender == edge.ends[0]):
                copies = 0
            elif rng.random() < knobs.double:
                copies = 2
            if rng.random() < knobs.spoil:
                data = self._spoiled(frame, data)
        if self._is_traced:
            fate = "" if copies == 1 else " (lost)" if not copies else " (twice)"
            self.tell(f"{sender} -> {receiver}: {frame}{fate}")
        for _ in range(copies):
            at = max(self.now + rng.uniform(0.05, knobs.delay), edge.clogged)
            if not (self.is_faulty and rng.random() < knobs.late):
                at = edge.last[sender] = max(at, edge.last.get(sender, 0.0))
            else:
                at += rng.uniform(0, 4)
            self.later(at - self.now, self._arrive, edge, edge.session, receiver, sender, data)

    def _spoiled(self, frame: Frame, data: bytes) -> bytes:
        """Return a frame that lost something on its way."""
        if isinstance(frame, Interest) and frame.added:
            return encode(msgspec.structs.replace(frame, added=frame.added[1:]))
        return data[: self.rng.randrange(len(data))]

    def _arrive(self, edge: Edge, session: int, receiver: str, sender: str, data: bytes) -> None:
        if session == edge.session:
            self.give(receiver, ports.Received(sender, data))

    def behind(self, start: str, besides: str) -> list[str]:
        """Return the brokers of the tree that are reached over the link from one to `start`."""
        found = [start]
        for name in found:
            for number in self.near[int(name[1:])]:
                other = f"b{number}"
                if other != besides and other not in found:
                    found.append(other)
        return found

    # ---- clients

    def client(self, name: str, given: ports.Input) -> None:
        """Let a client act; if its broker is down, when it is back."""
        if self.brokers[name] is None:
            self._waiting[name].append(given)
            return
        disk = self.disks[name]
        if self._is_traced:
            self.tell(f"{name} client: {given}")
        if isinstance(given, ports.Subscribe):
            for one, text in given.subscriptions.items():
                disk.subscriptions[int(one)] = text
                self._version[int(one)] = 0
                self.oracle.subscribed(int(one), name, text)
        elif isinstance(given, ports.Unsubscribe):
            there = [one for one in given.subscriptions if one in disk.subscriptions]
            given = ports.Unsubscribe(there)
            for one in given.subscriptions:
                del disk.subscriptions[int(one)], self._version[int(one)]
                self.oracle.unsubscribed(int(one))
        elif isinstance(given, ports.Replace):
            if not disk.subscriptions.keys() >= given.subscriptions.keys():
                return
            for one, text in given.subscriptions.items():
                disk.subscriptions[int(one)] = text
                self._version[int(one)] += 1
                self.oracle.replaced(int(one), text)
        self.give(name, given)
        if isinstance(given, ports.Subscribe | ports.Replace):
            for one in given.subscriptions:
                self.give(name, ports.AskSettled(self.token(int(one))))

    def token(self, subscription: int) -> str:
        """Return the name of the question whether a subscription, as it is now, has settled."""
        return f"{subscription}/{self._version[subscription]}"

    def _is_settled(self, token: str) -> None:
        one, version = map(int, token.split("/"))
        if self._version.get(one) == version:
            self.tell(f"subscription {one} has settled")
            self.oracle.settled(one)
