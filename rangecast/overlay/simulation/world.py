"""A simulated world: time, brokers and their disks, the links between them, and their clients.

Its events are drawn elsewhere (`clients`, `faults`); the oracle observes them.
"""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from rangecast.overlay.broker import ports
from rangecast.overlay.broker.broker import Broker
from rangecast.overlay.broker.state import Identity
from rangecast.overlay.networks.tree import neighbours
from rangecast.overlay.simulation.cabling import Cabling
from rangecast.overlay.simulation.hardware import Disk, Edge
from rangecast.overlay.simulation.oracle import Event, Oracle
from rangecast.overlay.simulation.parameters import cells_of, drawn, space_of

_TICKS = 1000
"""Ticks of a broker's clock per unit of time: no broker publishes more events."""


class World(Cabling):
    """Simulated network whose faults and timing follow from one seed."""

    def __init__(self, seed: int, broker: type[Broker] = Broker, *, trace: bool = False):
        self.seed = seed
        self.parameters = parameters = drawn(seed)
        self.rng = Random(seed * 2 + 1)
        self.now = 0.0
        self.counts: Counter[str] = Counter()
        self.trace: list[str] = []
        self.is_traced = trace
        self._make = broker
        self._heap: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._ties = 0
        self.is_faulty = True
        names = [f"b{number}" for number in range(parameters.brokers)]
        self.near = neighbours(parameters.tree, parameters.brokers)
        self.brokers: dict[str, Broker | None] = dict.fromkeys(names)
        self.disks = {name: Disk() for name in names}
        self.spaces = {name: space_of(parameters.strings) for name in names}
        self.stopped = {}
        self.unread = Counter()
        self.restarted: Callable[[str], None] = lambda _: None
        """Called with the name of a broker that starts again."""
        self.guests = {}
        self._waiting: dict[str, list[ports.Input]] = {name: [] for name in names}
        """Client inputs of a broker that is down, for when it is back."""
        self.oracle = Oracle(space_of(parameters.strings))
        self.edges: dict[tuple[str, str], Edge] = {}
        for node, other in parameters.tree:
            self.new_edge(names[node], names[other])
        self.extra: Edge | None = None
        self.known_logs: dict[tuple[str, str], str] = defaultdict(str)
        """By broker and neighbour: the log that it has accepted."""
        self._expected = {"rejected", "silence", "clock", "identity"}
        if parameters.restores or parameters.hostile:
            self._expected |= {"history", "name", "space", "protocol", "hops"}
        self._version: dict[int, int] = {}
        """Version of the filter of each subscription."""

    # ---- time

    def later(self, delay: float, act: Callable[..., None], *arguments: Any) -> None:
        """Schedule a call after a delay."""
        self._ties += 1
        heapq.heappush(self._heap, (self.now + delay, self._ties, act, arguments))

    def run(self, until: float) -> None:
        """Run the simulation up to a time."""
        while self._heap and self._heap[0][0] <= until:
            self.now, _, act, arguments = heapq.heappop(self._heap)
            act(*arguments)
        self.now = until

    def trace_line(self, text: str) -> None:
        """Add a line to the trace."""
        if self.is_traced:
            self.trace.append(f"{self.now:8.2f}  {text}")

    # ---- brokers

    def start(self, name: str) -> None:
        """Start a broker, for the first time or from its disk."""
        if self.brokers[name] is not None:
            return
        disk = self.disks[name]
        parameters = self.parameters
        clock = int((self.now + self.rng.uniform(-1, 1) * parameters.clock_skew) * _TICKS)
        first = not disk.incarnation
        disk.log = disk.log or f"log-{name}"
        disk.epochs = (f"{name}@{self._ties}", *disk.epochs)
        disk.incarnation = max(clock, disk.incarnation) + 1
        near = [f"b{node}" for node in self.near[int(name[1:])]]
        broker = self.new_broker(
            name,
            max(1, disk.incarnation),
            Identity(disk.log, disk.epochs),
            links=near,
            subscriptions=dict(disk.subscriptions),
            log=disk.blocks,
            delivered=self.rng.choice([0, disk.delivered]),  # not saved after every event
            numbers_from=max(0, clock),
            logs={node: self.known_logs[name, node] for node in near},
        )
        self.brokers[name] = broker
        self.trace_line(f"{name} starts, incarnation {disk.incarnation}")
        disk.synced = len(disk.blocks)
        if not first:
            self._durable(name, broker)
        for edge in self.edges.values():
            if name in edge.ends and edge.is_up:
                self.give(name, ports.LinkUp(edge.other(name)))
        waiting, self._waiting[name] = self._waiting[name], []
        for input_ in waiting:
            self.client(name, input_)
        if not first:
            self.restarted(name)
            for node, at in self.oracle.live():
                if at == name and not self.oracle.is_propagated(node):
                    self.give(name, ports.AskPropagated(self.token(node)))

    def new_broker(self, name: str, incarnation: int, identity: Identity, **options: Any) -> Broker:
        """Return a broker with the parameters of the seed."""
        parameters = self.parameters
        bits = 3 if parameters.same_cells or int(name[1:]) % 2 else 2
        return self._make(
            name,
            self.spaces[name],
            incarnation=incarnation,
            identity=identity,
            strategy=parameters.strategy,
            cells=cells_of(bits),
            words=parameters.words if parameters.strings else None,
            max_ranges=parameters.max_ranges,
            cover_index=parameters.cover_index,
            settings=parameters.settings,
            **options,
        )

    def crash(self, name: str) -> None:
        """Crash a broker, and restart it later; unsynced writes may be lost."""
        broker = self.brokers[name]
        if broker is None:
            return
        self.trace_line(f"{name} crashes")
        self.stopped.pop(name, None)
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

    def give(self, name: str, input_: ports.Input) -> None:
        """Make a broker handle an input, and execute its outputs, up to a crash."""
        broker = self.brokers[name]
        if broker is None or self.waits(name, self.give, name, input_):
            return
        for output in broker.handle(self.now, input_):
            if self.is_faulty and self.rng.random() < self.parameters.crash:
                self.crash(name)
                return
            self._do(name, broker, output)
        disk = self.disks[name]
        disk.delivered = max(disk.delivered, broker.log.durable)

    def _do(self, name: str, broker: Broker, output: ports.Output) -> None:
        if isinstance(output, ports.Send):
            self.transmit(name, output.link, output.frame)
        elif isinstance(output, ports.Append):
            self.disks[name].blocks.append(output.block)
            if output.block.lost:
                self.counts["losses reported"] += 1
                self.oracle.report_loss(name)
            self.later(self.rng.choice([0.0, 0.5, 2.0]), self._sync, name, broker)
        elif isinstance(output, ports.Timer):
            self.later(max(output.at - self.now, 0.0), self._tick, name, broker)
        elif isinstance(output, ports.Deliver):
            self._deliver(name, output)
        elif isinstance(output, ports.IsPropagated):
            self._is_propagated(output.token)
        elif isinstance(output, ports.Dropped) and output.link in self.disks:
            self.trace_line(f"{name} drops {output.origin}#{output.numbers} for {output.link}")
            self.oracle.drop(
                self._events(output.origin, output.numbers), self.behind(output.link, name)
            )
        elif isinstance(output, ports.Accepted):
            self.known_logs[name, output.link] = output.log
        elif isinstance(output, ports.Close):
            self.later(0.0, self.close, self.edge(name, output.link))
        elif isinstance(output, ports.Alarm):
            self.trace_line(f"{name} alarm {output.kind}: {output.text}")
            if output.kind == "cycle":
                self.later(0.0, self.drop_extra)
            elif output.kind not in self._expected and output.link in self.disks:
                self.oracle.wrong.append(f"alarm {output.kind}: {output.text}")

    def _sync(self, name: str, broker: Broker) -> None:
        if self.waits(name, self._sync, name, broker):
            return
        if self.brokers[name] is broker:
            disk = self.disks[name]
            if disk.synced < len(disk.blocks):
                disk.synced = len(disk.blocks)
                self._durable(name, broker)

    def _durable(self, name: str, broker: Broker) -> None:
        """Report that all blocks are on disk, which accepts the events published here."""
        upto = self.disks[name].events(self.disks[name].synced)
        for position, block in broker.log.between(broker.log.durable, upto):
            assert block is not None
            if block.origin == name and position + len(block) <= upto:
                for row, id_ in enumerate(block.ids):
                    words = {axis: texts[row] for axis, texts in block.words.items()}
                    self.oracle.accepted(name, int(id_), block.points[row], words)
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
        if block.origin not in self.disks:
            return  # a stranger's
        for row, (number, ids) in enumerate(zip(block.numbers, output.matches, strict=True)):
            for id_ in ids:
                event = Event(block.origin, int(block.ids[row]))
                self.trace_line(f"{name} delivers {block.origin}#{event.id} to {id_}")
                self.oracle.take(name, event, number, int(id_))

    def _events(self, origin: str, numbers: Sequence[int]) -> set[Event]:
        """Return the events of an origin with these numbers."""
        if origin not in self.disks:
            return set()
        return {
            Event(origin, int(id_))
            for block in self.disks[origin].blocks
            if block.origin == origin
            for number, id_ in zip(block.numbers, block.ids, strict=True)
            if number in numbers
        }

    # ---- brokers that stand still, disks that go back

    def stop(self, name: str, delay: float) -> None:
        """Pause a broker for a while."""
        if self.brokers[name] is not None and name not in self.stopped:
            self.trace_line(f"{name} stands still")
            self.counts["brokers that stand still"] += 1
            self.stopped[name] = []
            self.later(delay, self.resume, name)

    def resume(self, name: str) -> None:
        """Resume a broker."""
        for act, arguments in self.stopped.pop(name, []):
            act(*arguments)

    def restore(self, name: str) -> None:
        """Crash a broker, and restart it with an older copy of its disk."""
        disk = self.disks[name]
        if disk.copy is None or not self.is_faulty:
            return
        self.crash(name)
        lost = disk.restored()
        self.counts["disks restored"] += 1
        self.trace_line(f"the disk of {name} is restored: {len(lost)} blocks are lost")
        events = {Event(block.origin, int(id_)) for block in lost for id_ in block.ids}
        self.oracle.drop(events, [*self.brokers])
        self.oracle.restored(name)

    # ---- clients

    def trust(self) -> None:
        """Ask again about all subscriptions that aren't known to have propagated.

        From now on the oracle believes the answers, also of brokers that lost items.
        """
        self.oracle.trust()
        for id_, name in self.oracle.live():
            if not self.oracle.is_propagated(id_):
                self.ask_again(id_, name)

    def ask_again(self, subscription: int, name: str) -> None:
        """Make a client ask again whether its subscription has propagated."""
        self._version[subscription] += 1
        self.give(name, ports.AskPropagated(self.token(subscription)))

    def client(self, name: str, input_: ports.Input) -> None:
        """Make a client act, now or when its broker is back."""
        if self.brokers[name] is None:
            self._waiting[name].append(input_)
            return
        if self.waits(name, self.client, name, input_):
            return
        disk = self.disks[name]
        if self.is_traced:
            self.trace_line(f"{name} client: {input_}")
        if isinstance(input_, ports.Subscribe):
            for id_, text in input_.subscriptions.items():
                disk.subscriptions[int(id_)] = text
                self._version[int(id_)] = 0
                self.oracle.subscribed(int(id_), name, text)
        elif isinstance(input_, ports.Unsubscribe):
            there = [
                subscription
                for subscription in input_.subscriptions
                if subscription in disk.subscriptions
            ]
            input_ = ports.Unsubscribe(there)
            for id_ in input_.subscriptions:
                del disk.subscriptions[int(id_)], self._version[int(id_)]
                self.oracle.unsubscribed(int(id_))
        elif isinstance(input_, ports.Replace):
            if not disk.subscriptions.keys() >= input_.subscriptions.keys():
                return
            for id_, text in input_.subscriptions.items():
                disk.subscriptions[int(id_)] = text
                self._version[int(id_)] += 1
                self.oracle.replaced(int(id_), text)
        self.give(name, input_)
        if isinstance(input_, ports.Subscribe | ports.Replace):
            for id_ in input_.subscriptions:
                self.give(name, ports.AskPropagated(self.token(int(id_))))

    def token(self, subscription: int) -> str:
        """Return the token of the query whether a subscription's current version has propagated."""
        return f"{subscription}/{self._version[subscription]}"

    def _is_propagated(self, token: str) -> None:
        id_, version = map(int, token.split("/"))
        if self._version.get(id_) == version:
            self.trace_line(f"subscription {id_} has propagated")
            self.oracle.propagated(id_)
