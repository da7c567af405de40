"""Networks of brokers by interest: one broker at size, control traffic by strategy, large networks.

The one broker has four links, whose other ends are frames that are made beforehand. What it does
with them, with its clients and with events is timed; nothing is left out but the disk.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.frame import Report
from benchmarks.harness import expected
from experiments.timing import timed
from rangecast import Boxes, Space
from rangecast.overlay import Broker, Settings
from rangecast.overlay.broker import ports
from rangecast.overlay.interest.items import ResolvedItem, wanted_of_boxes
from rangecast.overlay.networks.scenario import Scenario, ScenarioData
from rangecast.overlay.networks.tree import tree_of
from rangecast.overlay.wire import frames as messages
from rangecast.report.markdown import Table
from rangecast.workloads import Workload, generate

PUBLISHED, SUBSCRIBED, RESYNC = 200_000, 20_000, 2.0
"""Expected of one broker: events and subscriptions per second, seconds of a resync."""
COVERING, MERGING, IN_VAIN, MINUTES = 3.0, 20.0, 5.0, 5.0
"""Factors below flooding (covering, merging), percent of event messages sent in vain, and minutes
of a large network."""
LINKS = ("north", "east", "south", "west")
_TOP = (1 << 63) - 1

ABOUT = f"""
Seconds are of a core. One broker, four links, a million different subscriptions (paper 004's boxes,
3 attributes, uniform), a fifth of them of its clients and a fifth from behind each link, covering:
expected are {PUBLISHED:,} publications per second in batches of 10,000, {SUBSCRIBED:,} subscribes
per second in batches of 1,000, and a resync of a link with a million items within {RESYNC:g} s.
*Flooding* is every subscription over every link. Against it, on the paper's workload (2 attributes,
Zipf, also the events), covering is expected to save {COVERING:g} times, merging {MERGING:g} times
with at most {IN_VAIN:g}% of the event messages in vain. A network of 1,000 brokers and 100,000
subscriptions is expected to take minutes: at most {MINUTES:g}. All strategies deliver the same.
"""


def run(report: Report, *, quick: bool) -> None:
    """Measure one broker, one link, strategies, and large networks."""
    report.begin("Networks of brokers", ABOUT, "msgspec")
    size = 5_000 if quick else 1_000_000
    report.table(_one_broker(size))
    report.table(_one_link(size))
    paper = {"attributes": 2, "subscription_distribution": "zipf", "event_distribution": "zipf"}
    n, events = (500, 200) if quick else (100_000, 2_000)
    one = generate("equal-boxes", seed=4, subscriptions=n, events=events, **paper)
    report.table(_strategies("paper 004's workload", one, (100, 200, 300, 500), is_paper=True))
    n, events = (200, 100) if quick else (2_000, 500)
    market = generate("market", seed=1, subscriptions=n, events=events)
    report.table(_strategies("the market", market, (500, 1_000)))
    report.table(_networks(*((20, 500) if quick else (1_000, 100_000)), paper))


# ---- one broker


class Hub:
    """A broker whose neighbours are frames."""

    def __init__(self, space: Space):
        far = Settings(
            heartbeat_interval=None, withdraw_delay=0, window=1 << 40, max_events=1 << 20
        )
        self.broker = Broker("hub", space, settings=far)
        for link in LINKS:
            self.handle(ports.LinkUp(link))
            self.hear(link, greeting(link, space))
            self.hear(link, messages.Snapshot(incarnation=1, version=0, digest=0))

    def handle(self, given: ports.Input) -> list[ports.Output]:
        return self.broker.handle(0.0, given)

    def hear(self, link: str, frame: messages.Frame) -> list[ports.Output]:
        return self.handle(ports.Received(link, frame))

    def publish(self, points: Any) -> int:
        """Publish events, write them down, send them on; they are confirmed at once."""
        (append,) = self.handle(ports.Publish(points))
        assert isinstance(append, ports.Append)
        upto = append.at + len(append.block)
        self.handle(ports.Durable(upto))
        for link in LINKS:
            self.hear(link, messages.EventsAck(kept={"hub": upto}))
        return upto


def greeting(name: str, space: Space) -> messages.Hello:
    """Return the first frame of a neighbour."""
    digest = Broker(name, space)._space_digest
    return messages.Hello(broker=name, incarnation=1, space=digest, seen=1)


def interests(wanted: list[ResolvedItem], most: int = 10_000) -> list[messages.Interest]:
    """Return items as a neighbour tells of them, some at a time."""
    items = [*{one.item.name: one.item for one in wanted}.values()]
    frames, digest = [], 0
    for version, first in enumerate(range(0, len(items), most)):
        some = items[first : first + most]
        digest = (digest + sum(item.name for item in some)) & _TOP
        frames.append(
            messages.Interest(
                incarnation=1, before=version, version=version + 1, digest=digest, added=some
            )
        )
    return frames


def uniform(seed: int, n: int, events: int = 1) -> Workload:
    """Return boxes of which hardly any are equal."""
    drawn = {"subscription_distribution": "uniform", "event_distribution": "uniform"}
    return generate("equal-boxes", seed=seed, subscriptions=n, events=events, attributes=3, **drawn)


def renumbered(boxes: Boxes, first: int, space: Space) -> Boxes:
    """Return the same boxes under other ids."""
    ids = np.arange(first, first + boxes.rows)
    return Boxes.of(boxes.lo, boxes.hi, owner=boxes.owner, ids=ids, space=space)


def _one_broker(n: int) -> Table:
    events = max(100, n // 5)
    data = uniform(1, n, events)
    hub, space = Hub(data.space), data.space
    parts = [data.boxes.take(np.arange(part, n, 5)) for part in range(5)]
    rows: list[list[Any]] = []

    def add(what: str, count: int, seconds: float, least: float | None = None) -> None:
        rate = count / seconds
        rows.append([what, count, seconds, rate, expected(rate, least=least)])

    _, seconds = timed(lambda: hub.handle(ports.Subscribe(parts[0])))
    add("clients subscribe, all at once", parts[0].rows, seconds)
    told = 0.0
    for link, part in zip(LINKS, parts[1:], strict=True):
        frames = interests(wanted_of_boxes(part, space))
        told += timed(lambda: [hub.hear(link, frame) for frame in frames])[1]  # noqa: B023
    add("items heard over four links, by 10,000", n - parts[0].rows, told)
    batch, some = min(1_000, n // 10), uniform(2, max(100, n // 10)).boxes
    batches = [
        renumbered(some.take(np.arange(first, min(first + batch, some.rows))), n + first, space)
        for first in range(0, some.rows, batch)
    ]
    _, seconds = timed(lambda: [hub.handle(ports.Subscribe(one)) for one in batches])
    add("clients subscribe, by 1,000", some.rows, seconds, SUBSCRIBED)
    few = uniform(3, 500).boxes
    given = [(few.lo[row], few.hi[row]) for row in range(few.rows)]
    singles = [{10 * n + row: box} for row, box in enumerate(given)]
    _, seconds = timed(lambda: [hub.handle(ports.Subscribe(one)) for one in singles])
    add("clients subscribe, one by one", len(singles), seconds)
    _, seconds = timed(lambda: hub.publish(data.points[:100]))
    rows.append(["the first events: tables are indexed", 100, seconds, "", ""])
    for table in (hub.broker._clients, *(link.table for link in hub.broker.links.values())):
        table._engine.wait_for_rebuild()
    size = min(10_000, events)
    pieces = [data.points[first : first + size] for first in range(0, events, size)]
    _, seconds = timed(lambda: [hub.publish(piece) for piece in pieces])
    add("publications, by 10,000", events, seconds, PUBLISHED)
    _, seconds = timed(lambda: [hub.publish(point[None]) for point in data.points[:500]])
    add("publications, one by one", min(500, events), seconds)
    told_items = [len(link.wanted) for link in hub.broker.links.values()]
    title = (
        f"One broker, four links, {n:,} subscriptions; advertised to a neighbour: "
        f"{sum(told_items) // 4:,}"
    )
    return Table(title, ["", "how many", "seconds", "per second", "expected"], rows)


def _one_link(n: int) -> Table:
    """Let a neighbour ask for everything, and take it: as it was, and for the first time."""
    data = uniform(5, n)
    settings = Settings(heartbeat_interval=None, withdraw_delay=0)
    here, there = (Broker(name, data.space, strategy="none", settings=settings) for name in "ab")
    for broker, other in ((here, "b"), (there, "a")):
        broker.handle(0, ports.LinkUp(other))
        broker.handle(0, ports.Received(other, greeting(other, data.space)))
    here.handle(0, ports.Subscribe(data.boxes))

    def asked() -> list[bytes]:
        outputs = here.handle(0, ports.Received("b", messages.Resync(version=0, why="gap")))
        return [messages.encode(one.frame) for one in outputs if isinstance(one, ports.Send)]

    frames, made = timed(asked)
    take = lambda: [there.handle(0, ports.Received("a", frame)) for frame in frames]  # noqa: E731
    _, first = timed(take)
    heard = there.links["a"].received
    heard.version -= 1  # as if the last change had been lost
    _, again = timed(take)
    assert heard.digest == here.links["b"].advertised.digest
    size = sum(map(len, frames))
    rows: list[list[Any]] = [
        [f"advertised, as {size / 1e6:,.1f} MB in {len(frames)} frames", made, ""],
        ["taken by a neighbour that knows them", again, ""],
        ["resync: both", made + again, expected(made + again, most=RESYNC)],
        ["taken by a neighbour for which all are new", first, ""],
    ]
    return Table(f"A link with {len(heard.items):,} items", ["", "seconds", "expected"], rows)


# ---- networks


def _scenario(data: Workload, brokers: int) -> Scenario:
    ids = data.tables["events"]["id"].combine_chunks()
    given = ScenarioData(data.space, data.boxes, data.points, ids)
    return Scenario(given, tree_of("random", brokers, 1), brokers, 1)


HEADINGS = ["", "control messages", "times less than flooding", "expected", "their bytes"]
HEADINGS += ["items in tables", "event messages", "in vain %", "at most", "seconds"]


def _strategies(
    name: str, data: Workload, budgets: tuple[int, ...], *, is_paper: bool = False
) -> Table:
    """Run the same with every strategy; of merging, the smallest max_ranges that will do counts."""
    brokers = 10
    scenario = _scenario(data, brokers)
    flooding = data.boxes.rows * (brokers - 1)
    rows: list[list[Any]] = [["flooding", flooding, 1.0, "", "", "", "", "", "", ""]]
    ways = [("none", 1), ("covering", 1), *(("merging", max_ranges) for max_ranges in budgets)]
    right, done = None, False
    for strategy, max_ranges in ways:
        network, seconds = timed(
            lambda: scenario.through(strategy=strategy, max_ranges=max_ranges, batch_size=10_000)  # noqa: B023
        )
        delivered = sorted(network.deliveries)
        right = right or delivered
        assert delivered == right, f"{strategy} delivers something else"
        traffic = network.traffic
        less = flooding / max(1, traffic.control_messages)
        vain = 100 * traffic.false_forwards / max(1, traffic.event_messages)
        wanted, most = {"covering": COVERING}.get(strategy), None
        if strategy == "merging":
            good = vain <= IN_VAIN
            wanted, most = (MERGING, IN_VAIN) if good and not done else (None, None)
            done |= good
        rows.append(
            [
                strategy if strategy != "merging" else f"merging, {max_ranges:,} ranges",
                traffic.control_messages,
                less,
                expected(less, least=wanted) if is_paper else "",
                traffic.control_bytes,
                int(network.table_sizes.sum()),
                traffic.event_messages,
                vain,
                expected(vain, most=most) if is_paper else "",
                seconds,
            ]
        )
    title = f"{brokers} brokers, {data.boxes.rows:,} subscriptions, {len(data.points):,} events: "
    return Table(title + name, HEADINGS, rows)


def _networks(brokers: int, n: int, paper: dict[str, Any]) -> Table:
    """Run large networks."""
    rows = []
    for strategy, size in (("merging", n), ("covering", n // 50)):
        data = generate("equal-boxes", seed=4, subscriptions=size, events=1_000, **paper)
        scenario = _scenario(data, brokers)
        network, seconds = timed(
            lambda: scenario.through(strategy=strategy, max_ranges=200, batch_size=n)  # noqa: B023
        )
        traffic, minutes = network.traffic, seconds / 60
        rows.append(
            [
                f"{strategy}, {brokers:,} brokers, {size:,} subscriptions",
                minutes,
                expected(minutes, most=MINUTES) if size == n else "",
                traffic.control_messages,
                size * (brokers - 1) / max(1, traffic.control_messages),
                int(network.table_sizes.sum()),
                traffic.event_messages,
                100 * traffic.false_forwards / max(1, traffic.event_messages),
                traffic.mean_hops,
            ]
        )
    headings = ["", "minutes", "at most", "control messages", "times less than flooding"]
    headings += ["items in tables", "event messages", "in vain %", "hops"]
    return Table("Large networks: paper 004's workload, 1,000 events", headings, rows)
