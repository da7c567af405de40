"""A network of brokers in one process with lossless links: counts the savings of a strategy.

    network = Network(space, tree_of("random", 50), 50, strategy="covering")
    network.do(3, Subscribe({"cheap": "price < 10"}))
    network.publish(7, points, ids)
    network.deliveries, network.traffic

The brokers are those that also run behind sockets and in the simulator; frames are handed over as
they are.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from rangecast.errors import UsageError
from rangecast.kernels.arrays import F64, I64
from rangecast.merge.cells import Cells, chosen_attributes
from rangecast.model.attributes.patterns import Patterns
from rangecast.model.attributes.text import String
from rangecast.model.boxes import Boxes
from rangecast.model.filters.filter import Filter
from rangecast.model.sets.members import Id
from rangecast.model.space import Space
from rangecast.overlay.broker import ports
from rangecast.overlay.broker.broker import Broker
from rangecast.overlay.broker.settings import Settings
from rangecast.overlay.networks.tree import Tree, parents
from rangecast.overlay.wire.frames import Events, Interest, encode


@dataclass(slots=True)
class Traffic:
    """Traffic over links."""

    control_messages: int = 0
    """Items advertised or withdrawn over links."""
    control_bytes: int = 0
    event_messages: int = 0
    """Number of link crossings of events."""
    needed_messages: int = 0
    """Crossings without which a client would have missed an event."""
    deliveries: int = 0
    hops: int = 0
    """Links crossed by delivered events, summed over deliveries."""
    longest: int = 0
    """Maximum links crossed by a delivered event."""
    by_link: dict[tuple[int, int], int] = field(default_factory=dict)
    """Events by link, both directions together; the lower broker first."""

    @property
    def false_forwards(self) -> int:
        """Crossings to where no subscription matched."""
        return self.event_messages - self.needed_messages

    @property
    def mean_hops(self) -> float:
        """Links per delivery."""
        return self.hops / max(1, self.deliveries)


class StrategyOptions(NamedTuple):
    """Options of a strategy."""

    cells: Cells | None = None
    words: str | None = None


_FINE = 16
"""Bits of the cells of a single attribute."""


def chosen_for(
    strategy: str, space: Space, boxes: Boxes, points: F64, max_attributes: int = 3, bits: int = 8
) -> StrategyOptions:
    """Return the cells for a strategy, from typical subscriptions and events.

    For ranges, words of the string that most subscriptions mention, if half of them do, and cells
    of attributes that at least half of the subscriptions bound together, the best first.
    """
    if strategy in ("none", "covering"):
        return StrategyOptions()
    names = chosen_attributes(boxes, space, len(space), points if len(points) else None)
    if strategy == "subsumption":
        return StrategyOptions(Cells.uniform(space, bits, names[:max_attributes]))
    strings = [name for name in names if isinstance(space[name], String)]
    numbers = [name for name in names if not isinstance(space[name], String)]
    if not numbers:
        raise UsageError(
            f"the strategy {strategy!r} requires an attribute that isn't a string\n"
            "  hint: use covering or subsumption"
        )
    bound = np.ones(len(boxes.lo), np.bool_)
    words: str | None = None
    taken: list[str] = []
    for name in (*strings, *numbers):
        together = bound & boxes.mentions[:, space.axis(name)]
        if 2 * together.sum() < len(together) or len(taken) == max_attributes:
            continue
        if name in numbers:
            taken.append(name)
        elif words is None:
            words = name
        else:
            continue
        bound = together
    taken = taken or numbers[:1]
    if len(taken) == 1:
        return StrategyOptions(Cells.bounds(space, _FINE, boxes, taken), words)
    if len(points):
        return StrategyOptions(Cells.quantiles(space, bits, points, taken), words)
    return StrategyOptions(Cells.uniform(space, bits, taken), words)


def filters_of(boxes: Boxes, space: Space) -> list[Filter]:
    """Return subscriptions as filters."""
    filters: list[list[tuple[tuple[int, float, float], ...]]] = [[] for _ in range(boxes.rows)]
    mentions = boxes.mentions
    for box, owner in enumerate(boxes.owner.tolist()):
        axes = np.flatnonzero(mentions[box]).tolist()
        lo, hi = boxes.lo[box, axes].tolist(), boxes.hi[box, axes].tolist()
        filters[owner].append(tuple(zip(axes, lo, hi, strict=True)))
    return [Filter(space, tuple(regions)) for regions in filters]


class Network:
    """Brokers in a tree, numbered from 0."""

    def __init__(
        self,
        space: Space,
        tree: Tree,
        brokers: int,
        *,
        strategy: str = "covering",
        chosen: StrategyOptions | None = None,
        max_ranges: int = 1000,
    ):
        for attribute in space:
            if isinstance(attribute, Patterns):
                raise UsageError(
                    f"{attribute.of!r} is a text, which events of a simulated network don't have\n"
                    "  hint: link servers, or make it a string, which is compared as a whole"
                )
        self._space = space
        self.traffic = Traffic()
        self.deliveries: list[tuple[Id, Id]] = []
        """Pairs of an event and a subscription."""
        chosen = chosen or StrategyOptions()
        self._now = 0.0
        settings = Settings(
            heartbeat_interval=None,
            withdraw_delay=0,
            batch_delay=1.0,
            window=1 << 40,
            max_hops=brokers,
        )
        self.brokers = [
            Broker(
                str(number),
                space,
                strategy=strategy,
                cells=chosen.cells,
                words=chosen.words,
                max_ranges=max_ranges,
                settings=settings,
            )
            for number in range(brokers)
        ]
        self._above = parents(tree, brokers)
        self._found: dict[Id, set[int]] = {}
        """Brokers that deliver each event of the current batch."""
        for node, other in tree:
            self.do(node, ports.LinkUp(str(other)))
            self.do(other, ports.LinkUp(str(node)))
            self.do(node, ports.LinkUp(str(other)))
        self.traffic = Traffic()

    def do(self, broker: int, input_: ports.Input) -> None:
        """Make a broker handle an input, and pass its outputs to the others."""
        self.do_all([(broker, input_)])

    def do_all(self, inputs: Iterable[tuple[int, ports.Input]]) -> None:
        """Make brokers handle inputs at one time, and then all resulting frames.

        A broker handles all inputs of one time before it advertises.
        """
        todo, later = deque(inputs), dict[int, None]()
        while todo or later:
            if not todo:
                self._now += 1.0
                todo += [(broker, ports.Tick()) for broker in later]
                later = {}
            at, input_ = todo.popleft()
            for output in self.brokers[at].handle(self._now, input_):
                if isinstance(output, ports.Send):
                    self._count(at, int(output.link), output.frame)
                    todo.append((int(output.link), ports.Received(str(at), output.frame)))
                elif isinstance(output, ports.Timer):
                    later[at] = None
                elif isinstance(output, ports.Append):
                    todo.append((at, ports.Durable(output.at + len(output.block))))
                elif isinstance(output, ports.Deliver):
                    self._deliver(at, output)

    def publish(self, broker: int, points: F64, ids: Sequence[Id]) -> None:
        """Publish events, (n, d), at a broker."""
        self._found = {}
        self.do(broker, ports.Publish(points, ids=list(ids), words=self._words(points)))
        for wanting in self._found.values():
            self.traffic.needed_messages += self._links_between(broker, wanting)

    def _words(self, points: F64) -> dict[str, list[str | None]]:
        """Return the values of string attributes; one in no filter becomes any such text."""
        words: dict[str, list[str | None]] = {}
        for axis, attribute in enumerate(self._space):
            if isinstance(attribute, String):
                other = "?"
                while other in attribute.codes:
                    other += "?"
                words[attribute.name] = [
                    None if at == np.inf else attribute.value(at) or other
                    for at in points[:, axis].tolist()
                ]
        return words

    @property
    def table_sizes(self) -> I64:
        """By broker: the number of items that its neighbours have advertised."""
        sizes = [
            sum(len(link.received.items) for link in broker.links.values())
            for broker in self.brokers
        ]
        return np.array(sizes, np.int64)

    def _count(self, sender: int, receiver: int, frame: object) -> None:
        traffic = self.traffic
        if isinstance(frame, Interest):
            traffic.control_messages += len(frame.added) + len(frame.removed)
            traffic.control_bytes += len(encode(frame))
        elif isinstance(frame, Events):
            traffic.event_messages += len(frame.numbers)
            way = (min(sender, receiver), max(sender, receiver))
            traffic.by_link[way] = traffic.by_link.get(way, 0) + len(frame.numbers)

    def _deliver(self, broker: int, output: ports.Deliver) -> None:
        block, traffic = output.block, self.traffic
        for event, ids in zip(block.ids, output.matches, strict=True):
            if ids:
                self._found.setdefault(event, set()).add(broker)
                self.deliveries += [(event, id_) for id_ in ids]
                traffic.deliveries += len(ids)
                traffic.hops += block.hops * len(ids)
        traffic.longest = max(traffic.longest, block.hops)

    def _links_between(self, origin: int, wanting: set[int]) -> int:
        """Return the number of links of the smallest subtree that joins some brokers."""
        ends = {origin, *wanting}
        seen: dict[int, list[int]] = {}
        """Brokers on the paths from these to broker 0, with their predecessors."""
        for end in ends:
            node, before = end, -1
            while node >= 0:
                is_new = node not in seen
                seen.setdefault(node, [])
                if before >= 0:
                    seen[node].append(before)
                if not is_new:
                    break
                node, before = self._above[node], node
        links, top = len(seen) - 1, 0
        while top not in ends and len(seen[top]) == 1:  # the ways are one from here on
            top = seen[top][0]
            links -= 1
        return links
