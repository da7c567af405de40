"""A simulator that owns time, network, disks and failures of a network of brokers.

    outcome = simulate(4711)
    outcome.wrong                     # empty: no promise was broken

One seed gives the tree, the strategy and its settings, what clients do, and all faults. There are
two phases: first faults happen all the time, then everything heals, and within a bounded time all
must be quiet, known to everybody, and delivered. Only the second finds what never ends.

Frames are lost, doubled, late, cut off in one direction, clogged, torn; links go up and down;
brokers crash at any output and lose what wasn't on disk, the last unit half written. Settings are
extreme on purpose: windows of one event, snapshots of one item per part, nothing that lingers,
budgets of two ranges.
"""

from __future__ import annotations

import heapq
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any, NamedTuple

import msgspec
import numpy as np

from rangecast.model.filters.filter import Filter
from rangecast.model.inputs import as_filter
from rangecast.model.members import Id
from rangecast.overlay import ports
from rangecast.overlay.broker import Broker
from rangecast.overlay.eventlog import Block
from rangecast.overlay.items import wanted_of
from rangecast.overlay.knobs import SIDE, cells_of, drawn, plain_space, space_of
from rangecast.overlay.messages import BoxItem, Frame, Interest, encode
from rangecast.overlay.oracle import Oracle
from rangecast.overlay.packing import unpack
from rangecast.overlay.tree import neighbours

SOMETIMES = (
    "resyncs by gap",
    "resyncs by digest",
    "resyncs by incarnation",
    "snapshots interrupted",
    "subscriptions exposed",
    "duplicates dropped",
    "removals cancelled",
    "forms changed",
    "torn units",
    "cycles refused",
    "cycles found",
    "frames refused",
    "gaps in events",
    "events sent again",
    "crashes",
    "deliveries repeated",
)
"""What must happen in some of a few hundred seeds, or else the simulator tests nothing."""


_ROUND = 5.0
_ROUNDS = 120
"""After faults end, all must be quiet within this many rounds of this length."""


class Outcome(NamedTuple):
    """What came of a simulation."""

    seed: int
    wrong: list[str]
    """Promises that were broken."""
    counts: Counter[str]
    """How often what happened."""
    trace: list[str]


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


class Simulation:
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
        self._faulty = True
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
            self._new_edge(names[one], names[other])
        self._extra: Edge | None = None
        self._next_id = 0
        self._version: dict[int, int] = {}
        """Of the filter of each subscription."""
        self._filters = self._pool()

    # ---- what is drawn

    def _pool(self) -> list[Any]:
        """Return filters: few, of all sizes, so that many are equal or cover others."""
        texts = []
        for _ in range(10):
            terms = []
            for name in "xy":
                size = self.rng.choice([0, 1, 3, 6, 12])
                low = self.rng.randrange(SIDE - size)
                if self.rng.random() < 0.85:
                    terms.append(f"{name} between {low} and {low + size}")
            if self.knobs.strings and self.rng.random() < 0.5:
                words = self.rng.sample(["a", "b", "c", "d"], self.rng.choice([1, 2]))
                listed = ", ".join(f"'{word}'" for word in words)
                terms.append(f"word {self.rng.choice(['in', 'not in'])} ({listed})")
            texts.append(" and ".join(terms) or "x >= 0")
        if self.knobs.strings:
            return texts
        return [Filter.parse(text, plain_space()) for text in texts]

    def _later(self, delay: float, act: Callable[..., None], *given: Any) -> None:
        self._ties += 1
        heapq.heappush(self._heap, (self.now + delay, self._ties, act, given))

    def _tell(self, text: str) -> None:
        if self._is_traced:
            self.trace.append(f"{self.now:8.2f}  {text}")

    # ---- brokers

    def _start(self, name: str) -> None:
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
            budget=knobs.budget,
            cover_index=knobs.cover_index,
            settings=knobs.settings,
            links=[f"b{one}" for one in self.near[number]],
            subscriptions=dict(disk.subscriptions),
            log=disk.blocks,
            delivered=self.rng.choice([0, disk.delivered]),  # written down now and then
        )
        self.brokers[name] = broker
        self._tell(f"{name} starts, incarnation {self._incarnation[name]}")
        disk.synced = len(disk.blocks)
        if not first:
            self._durable(name, broker)
        for edge in self.edges.values():
            if name in edge.ends and edge.is_up:
                self._give(name, ports.LinkUp(edge.other(name)))
        waiting, self._waiting[name] = self._waiting[name], []
        for given in waiting:
            self._client(name, given)
        if not first:
            for one, at in self.oracle.live():
                if at == name and not self.oracle.is_settled(one):
                    self._give(name, ports.AskSettled(self._token(one)))

    def _crash(self, name: str) -> None:
        broker = self.brokers[name]
        if broker is None:
            return
        self._tell(f"{name} crashes")
        self.counts["crashes"] += 1
        self.counts.update(broker.counts)
        self.brokers[name] = None
        disk = self.disks[name]
        kept = self.rng.randint(disk.synced, len(disk.blocks))
        self.counts["torn units"] += kept < len(disk.blocks)
        del disk.blocks[kept:]
        for edge in self.edges.values():
            if name in edge.ends and edge.is_up:
                self._cut(edge)
                self._later(self.rng.uniform(0.5, 6), self._join, edge)
        self._later(self.rng.uniform(0.5, 15), self._start, name)

    def _give(self, name: str, given: ports.Input) -> None:
        """Let a broker handle an input, and do what it says, up to a crash."""
        broker = self.brokers[name]
        if broker is None:
            return
        for output in broker.handle(self.now, given):
            if self._faulty and self.rng.random() < self.knobs.crash:
                self._crash(name)
                return
            self._do(name, broker, output)
        disk = self.disks[name]
        disk.delivered = max(disk.delivered, broker.log.durable)

    def _do(self, name: str, broker: Broker, output: ports.Output) -> None:
        if isinstance(output, ports.Send):
            self._transmit(name, output.link, output.frame)
        elif isinstance(output, ports.Append):
            self.disks[name].blocks.append(output.block)
            self._later(self.rng.choice([0.0, 0.5, 2.0]), self._sync, name, broker)
        elif isinstance(output, ports.Timer):
            self._later(max(output.at - self.now, 0.0), self._tick, name, broker)
        elif isinstance(output, ports.Deliver):
            self._deliver(name, output)
        elif isinstance(output, ports.IsSettled):
            self._is_settled(output.token)
        elif isinstance(output, ports.Close):
            self._later(0.0, self._close, self._edge(name, output.link))
        elif isinstance(output, ports.Alarm):
            self._tell(f"{name} alarm {output.kind}: {output.text}")
            if output.kind == "cycle":
                self._later(0.0, self._drop_extra)
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
        self._give(name, ports.Durable(upto))

    def _tick(self, name: str, broker: Broker) -> None:
        if self.brokers[name] is broker:
            self._give(name, ports.Tick())

    def _deliver(self, name: str, output: ports.Deliver) -> None:
        disk, block = self.disks[name], output.block
        if output.at < disk.delivered:
            self.counts["deliveries repeated"] += 1
            return
        disk.delivered = output.at + len(block)
        for number, ids in zip(block.numbers, output.matches, strict=True):
            for one in ids:
                self._tell(f"{name} delivers {block.origin}#{number} to {one}")
                self.oracle.take(name, block.origin, number, int(one))

    # ---- network

    def _new_edge(self, one: str, other: str) -> Edge:
        edge = self.edges[one, other] = Edge((one, other))
        return edge

    def _edge(self, one: str, other: str) -> Edge | None:
        return self.edges.get((one, other)) or self.edges.get((other, one))

    def _join(self, edge: Edge) -> None:
        if edge.is_up or edge not in self.edges.values():
            return
        edge.is_up = True
        edge.session += 1
        self._tell(f"link {edge.ends[0]}-{edge.ends[1]} is up")
        for end in edge.ends:
            self._give(end, ports.LinkUp(edge.other(end)))

    def _cut(self, edge: Edge, *, forget: bool = False) -> None:
        edge.is_up = False
        edge.session += 1
        self._tell(f"link {edge.ends[0]}-{edge.ends[1]} is down")
        for end in edge.ends:
            self._give(end, ports.LinkDown(edge.other(end), forget=forget))

    def _close(self, edge: Edge | None) -> None:
        """Close a link that a broker refuses, and try again later."""
        if edge is not None and edge.is_up and edge is not self._extra:
            self._cut(edge)
            self._later(3.0, self._join, edge)

    def _drop_extra(self) -> None:
        """A person removes the link that closed a cycle."""
        if self._extra is not None:
            del self.edges[self._extra.ends]
            edge, self._extra = self._extra, None
            self._cut(edge, forget=True)

    def _transmit(self, sender: str, receiver: str, frame: Frame) -> None:
        edge = self._edge(sender, receiver)
        if edge is None or not edge.is_up:
            return
        rng, knobs = self.rng, self.knobs
        copies = 1
        data = encode(frame)
        if self._faulty:
            if rng.random() < knobs.drop or (edge.deaf > self.now and sender == edge.ends[0]):
                copies = 0
            elif rng.random() < knobs.double:
                copies = 2
            if rng.random() < knobs.spoil:
                data = self._spoiled(frame, data)
        if self._is_traced:
            fate = "" if copies == 1 else " (lost)" if not copies else " (twice)"
            self._tell(f"{sender} -> {receiver}: {frame}{fate}")
        for _ in range(copies):
            at = max(self.now + rng.uniform(0.05, knobs.delay), edge.clogged)
            if not (self._faulty and rng.random() < knobs.late):
                at = edge.last[sender] = max(at, edge.last.get(sender, 0.0))
            else:
                at += rng.uniform(0, 4)
            self._later(at - self.now, self._arrive, edge, edge.session, receiver, sender, data)

    def _spoiled(self, frame: Frame, data: bytes) -> bytes:
        """Return a frame that lost something on its way."""
        if isinstance(frame, Interest) and frame.added:
            return encode(msgspec.structs.replace(frame, added=frame.added[1:]))
        return data[: self.rng.randrange(len(data))]

    def _arrive(self, edge: Edge, session: int, receiver: str, sender: str, data: bytes) -> None:
        if session == edge.session:
            self._give(receiver, ports.Received(sender, data))

    # ---- clients

    def _client(self, name: str, given: ports.Input) -> None:
        """Let a client act; if its broker is down, when it is back."""
        if self.brokers[name] is None:
            self._waiting[name].append(given)
            return
        disk = self.disks[name]
        if self._is_traced:
            self._tell(f"{name} client: {given}")
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
        self._give(name, given)
        if isinstance(given, ports.Subscribe | ports.Replace):
            for one in given.subscriptions:
                self._give(name, ports.AskSettled(self._token(int(one))))

    def _token(self, subscription: int) -> str:
        return f"{subscription}/{self._version[subscription]}"

    def _act(self) -> None:
        """Let some client do something."""
        rng = self.rng
        live = self.oracle.live()
        kind = rng.random()
        if kind < 0.45:
            self._publish(f"b{rng.randrange(self.knobs.brokers)}")
        elif kind < 0.70 or not live:
            self._next_id += 1
            name = f"b{rng.randrange(self.knobs.brokers)}"
            self._client(name, ports.Subscribe({self._next_id: rng.choice(self._filters)}))
        else:
            one, name = rng.choice(live)
            if kind < 0.9:
                if rng.random() < 0.5:  # one that probably covers others
                    one, name = max(live, key=self._size)
                self._client(name, ports.Unsubscribe([one]))
                for _ in range(rng.choice([1, 4, 8])):
                    other = f"b{rng.randrange(self.knobs.brokers)}"
                    self._later(rng.uniform(0, self.knobs.delay), self._publish, other)
            else:
                self._client(name, ports.Replace({one: rng.choice(self._filters)}))

    def _size(self, live: tuple[int, str]) -> float:
        """Return how much a subscription holds, roughly."""
        given = self.disks[live[1]].subscriptions[live[0]]
        if not isinstance(given, Filter):
            return 0.0
        return -sum(1 / (1 + hi - lo) for box in given.boxes for _, lo, hi in box)

    def _publish(self, name: str) -> None:
        rng = self.rng
        count = rng.choice([1, 1, 1, 3])
        points = [self._point() for _ in range(count)]
        if not self.knobs.strings:
            self._client(name, ports.Publish(np.array(points, np.float64)))
            return
        words = [rng.choice(["a", "b", "c", "d", "e"]) for _ in points]
        events = [
            {"x": x, "y": y, "word": word} for (x, y), word in zip(points, words, strict=True)
        ]
        self._client(name, ports.Publish(events))

    def _point(self) -> list[int]:
        """Return a point, mostly one that somebody wants."""
        rng, live = self.rng, self.oracle.live()
        point = [rng.randrange(SIDE), rng.randrange(SIDE)]
        if live and rng.random() < 0.7:
            one, name = rng.choice(live)
            given = self.disks[name].subscriptions[one]
            if isinstance(given, Filter):
                for axis, lo, hi in rng.choice(given.boxes):
                    point[axis] = rng.randint(int(lo), int(hi))
        return point

    def _is_settled(self, token: str) -> None:
        one, version = map(int, token.split("/"))
        if self._version.get(one) == version:
            self._tell(f"subscription {one} has settled")
            self.oracle.settled(one)

    # ---- faults

    def _fault(self) -> None:
        """Let something break, for a while."""
        rng = self.rng
        edge = rng.choice([*self.edges.values()])
        kind = rng.random()
        if kind < 0.4 and edge.is_up:
            self._cut(edge)
            self._later(rng.uniform(0.5, 15), self._join, edge)
        elif kind < 0.6:
            edge.deaf = self.now + rng.uniform(1, 10)
        elif kind < 0.8:
            edge.clogged = self.now + rng.uniform(1, 8)
        elif self.knobs.crash:
            self._crash(f"b{rng.randrange(self.knobs.brokers)}")

    def _close_cycle(self) -> None:
        if self.knobs.extra is not None and self._faulty:
            one, other = (f"b{end}" for end in self.knobs.extra)
            self._extra = self._new_edge(one, other)
            self._join(self._extra)

    def _heal(self) -> None:
        self._tell("faults end")
        self._faulty = False
        self._drop_extra()
        for name in self.brokers:
            self._start(name)
        for edge in self.edges.values():
            edge.deaf = edge.clogged = 0.0
            self._join(edge)

    # ---- the two phases

    def run(self) -> Outcome:
        """Run both phases; return what came of it."""
        rng, until = self.rng, self.knobs.until
        for name in self.brokers:
            self._start(name)
        if rng.random() < 0.5:
            self._close_cycle()  # before anybody knows who is behind whom
            if self._extra is not None:
                for name in self.brokers:
                    self._later(rng.uniform(0.5, 2), self._publish, name)
        else:
            self._later(rng.uniform(0, until), self._close_cycle)
        for edge in [*self.edges.values()]:
            self._join(edge)
        for _ in range(rng.choice([20, 40])):
            self._later(rng.uniform(0, until), self._act)
        if self.knobs.drop or self.knobs.late:
            for _ in range(rng.choice([0, 2, 5, 10])):
                self._later(rng.uniform(0, until), self._fault)
        self._play(until)
        self._heal()
        self._rest()
        if not self.oracle.wrong:
            self._last_events()
        self.oracle.wrong += self.oracle.lost()
        for broker in self.brokers.values():
            if broker is not None:
                self.counts.update(broker.counts)
        self.counts["deliveries"] += self.oracle.delivered
        return Outcome(self.seed, self.oracle.wrong, self.counts, self.trace)

    def _play(self, until: float) -> None:
        while self._heap and self._heap[0][0] <= until:
            self.now, _, act, given = heapq.heappop(self._heap)
            act(*given)
        self.now = until

    def _rest(self) -> None:
        """Wait until nothing is left to be said, within a bounded time."""
        for _ in range(_ROUNDS):
            self._play(self.now + _ROUND)
            if not self._unrest():
                return
        self.oracle.wrong.append(f"L1: after {_ROUNDS * _ROUND:g} still {self._unrest()}")

    def _last_events(self) -> None:
        """Publish once more: by now all that match must be delivered, and state is as it should."""
        for name in self.brokers:
            self._publish(name)
        self._rest()
        self.oracle.wrong += wrong_tables(self)

    def _unrest(self) -> str:
        """Return what isn't quiet yet."""
        for one, at in self.oracle.live():
            if not self.oracle.is_settled(one):
                return f"subscription {one} of {at} hasn't settled"
        for edge in self.edges.values():
            for end in edge.ends:
                other = edge.other(end)
                here, there = self.brokers[end], self.brokers[other]
                assert here is not None
                assert there is not None
                told, heard = here.links[other], there.links[end].heard
                if told.leaving or told.flights or told.ready:
                    return f"{end} has something to say to {other}"
                if (here.incarnation, told.told.version, told.told.digest) != (
                    heard.incarnation,
                    heard.version,
                    heard.digest,
                ):
                    return f"{other} doesn't know what {end} wants"
        return ""


def wrong_tables(world: Simulation) -> list[str]:
    """Return what routing tables lack, or hold in vain, when all is quiet.

    Behind each link everything that is wanted there must pass. Without a strategy, tables hold just
    that; with boxes, nothing but live subscriptions.
    """
    wrong = []
    for edge in world.edges.values():
        for end in edge.ends:
            broker = world.brokers[end]
            assert broker is not None
            link = broker.links[edge.other(end)]
            behind = _behind(world, edge.other(end), end)
            items = [
                wanted_of(as_filter(given, broker.space)).item
                for name in behind
                for given in world.disks[name].subscriptions.values()
            ]
            live = {item.name for item in items}
            where = f"{end}'s table of {link.name}"
            boxes = {name for name, item in link.heard.items.items() if isinstance(item, BoxItem)}
            is_plain = world.knobs.same_cells and world.knobs.settings.most_told == 100
            if is_plain and not world.knobs.strings:
                if boxes - live:
                    wrong.append(f"S4: {where} holds {len(boxes - live)} items that nobody wants")
                if world.knobs.strategy == "none" and live - link.heard.items.keys():
                    wrong.append(f"S4: {where} lacks items")
            for x in range(SIDE):
                points = np.array([[x, y] for y in range(SIDE)], np.float64)
                if world.knobs.strings:
                    break
                wanted = np.zeros(SIDE, np.bool_)
                for item in items:
                    wanted |= _held(item, points)
                if (wanted & ~link.table.holds(points)).any():
                    wrong.append(f"S4: {where} doesn't let through what is wanted at x = {x}")
    return wrong


def _held(item: Any, points: Any) -> Any:
    held = np.zeros(len(points), np.bool_)
    for box in unpack(item.boxes):
        inside = np.ones(len(points), np.bool_)
        for axis, lo, hi in box:
            inside &= (points[:, axis] >= lo) & (points[:, axis] <= hi)
        held |= inside
    return held


def _behind(world: Simulation, start: str, besides: str) -> list[str]:
    """Return the brokers that are reached over a link."""
    found = [start]
    for name in found:
        for number in world.near[int(name[1:])]:
            other = f"b{number}"
            if other != besides and other not in found:
                found.append(other)
    return found


def simulate(seed: int, broker: type[Broker] = Broker, *, trace: bool = False) -> Outcome:
    """Run one seed; `broker` may be a broken one, to see that it is found."""
    world = Simulation(seed, broker, trace=trace)
    try:
        return world.run()
    except Exception as error:  # a broker must not fail, whatever happens
        where = traceback.extract_tb(error.__traceback__)[-1]
        wrong = f"{type(error).__name__} in {where.name}, line {where.lineno}: {error}"
        return Outcome(seed, [wrong], world.counts, world.trace)
