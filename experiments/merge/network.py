"""Papers 000 and 004 in their setting: control traffic in a tree of brokers, by strategy."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from experiments.experiment import Claim, Experiment, Line, Panel, Point, Results
from rangecast.overlay.networks.scenario import Given, Scenario
from rangecast.overlay.networks.tree import ELEVEN, tree_of
from rangecast.report.markdown import Table
from rangecast.workloads import generate

SIZES = {"tiny": (50, 100), "quick": (250, 500, 1_000), "full": (1_000, 2_000, 5_000)}
"""Subscriptions at the eleven brokers."""
BROKERS = {"tiny": (5, 10), "quick": (10, 30, 100), "full": (10, 30, 100, 300, 1_000)}
GROWN = {"tiny": 50, "quick": 500, "full": 1_000}
"""Subscriptions at all brokers of networks that grow."""
DIMENSIONS = (2, 3)
ELEVEN_STRATEGIES = ("covering", "subsumption", "merging")
GROWN_STRATEGIES = ("none", "covering", "merging")
BUDGET = 200
EVENTS = {"tiny": 50, "quick": 500, "full": 1_000}
PART = "Figure 7, in a network"
GROWTH = "Networks that grow"


def points(size: str) -> Iterator[Point]:
    """Networks of more and more brokers; then figure 7 at the eleven brokers of Figure 1."""
    for strategy in GROWN_STRATEGIES:
        for brokers in BROKERS[size]:
            grown = {"part": GROWTH, "d": 2, "n": GROWN[size], "events": EVENTS[size]}
            yield {**grown, "brokers": brokers, "strategy": strategy}
    for d in DIMENSIONS:
        for strategy in ELEVEN_STRATEGIES:
            for n in SIZES[size]:
                eleven = {"part": PART, "d": d, "n": n, "brokers": 11, "events": 0}
                yield {**eleven, "strategy": strategy}


def measure(
    seed: int, part: str, d: int, n: int, brokers: int, strategy: str, events: int
) -> dict[str, Any]:
    """Send subscriptions, then events, through a network."""
    one = generate("equal-boxes", seed=seed, subscriptions=n, events=events, attributes=d)
    ids = one.tables["events"]["id"].combine_chunks()
    tree = ELEVEN if part == PART else tree_of("random", brokers, seed)
    scenario = Scenario(Given(one.space, one.boxes, one.points, ids), tree, brokers, seed)
    network = scenario.through(strategy=strategy, max_ranges=BUDGET, batch_size=max(1, n // 10))
    traffic, sizes = network.traffic, network.table_sizes
    return {
        "messages": traffic.control_messages,
        "bytes": traffic.control_bytes,
        "largest_table": sizes.max(),
        "table_items": sizes.sum(),
        "event_messages": traffic.event_messages,
        "in_vain": traffic.false_forwards,
        "deliveries": traffic.deliveries,
        "hops": traffic.mean_hops,
    }


def claims(results: Results) -> Iterator[Claim]:
    """What the papers say of their settings."""
    n = max(results.where(part=PART).column("n"))
    flooding = n * len(ELEVEN)
    for d in DIMENSIONS:
        left = {
            one: results.one("messages", part=PART, d=d, n=n, strategy=one) / flooding
            for one in ELEVEN_STRATEGIES
        }
        yield Claim(
            PART,
            f"covering reduces the traffic, subsumption reduces it more ({d} attributes)",
            left["subsumption"] < left["covering"] < 1,
            f"left of it: {left['covering']:.0%} and {left['subsumption']:.0%}",
        )
        yield Claim(
            PART,
            f"merging reduces it most ({d} attributes)",
            left["merging"] < left["subsumption"],
            f"left of it: {left['merging']:.1%}",
        )
    delivered = results.where(part=GROWTH).distinct("deliveries")
    yield Claim(
        GROWTH,
        "what is delivered doesn't depend on strategy and tree",
        len(delivered) == 1,
        f"{delivered[0]:,} deliveries",
    )


COLUMNS = {
    "messages": "control messages per link",
    "largest_table": "items in the largest table",
    "event_messages": "event messages per event",
    "in_vain": "event messages in vain, %",
    "hops": "links per delivery",
}


def _grown(row: dict[str, Any], column: str) -> float:
    """Return a value of a network that grows, in the unit of its heading."""
    value = float(row[column])
    if column == "messages":
        value /= row["brokers"] - 1
    elif column == "event_messages":
        value /= row["events"]
    elif column == "in_vain":
        value *= 100 / max(1, row["event_messages"])
    return value


def tables(results: Results) -> Iterator[Table]:
    """Control traffic as a share of flooding; what grows with a network."""
    eleven, grown = results.where(part=PART), results.where(part=GROWTH)
    ns = eleven.distinct("n")
    rows: list[list[Any]] = []
    for d in DIMENSIONS:
        for one in ELEVEN_STRATEGIES:
            some = eleven.where(d=d, strategy=one)
            shares = [100 * row["messages"] / row["n"] / len(ELEVEN) for row in some]
            rows.append([f"{one}, {d} attributes", *shares])
    title = "Eleven brokers: control messages, % of flooding"
    yield Table(title, ["subscriptions", *(f"{n:,}" for n in ns)], rows)
    heads = ["brokers", *(f"{count:,}" for count in grown.distinct("brokers"))]
    for column, heading in COLUMNS.items():
        rows = [
            [one, *(_grown(row, column) for row in grown.where(strategy=one))]
            for one in GROWN_STRATEGIES
        ]
        yield Table(f"{heading[0].upper()}{heading[1:]}", heads, rows)


def panels(results: Results) -> list[Panel]:
    """Figure 7 in the network, and what grows."""
    eleven, grown = results.where(part=PART), results.where(part=GROWTH)
    ns = eleven.distinct("n")
    lines = [Line("flooding", ns, [n * len(ELEVEN) for n in ns], 5, "o--")]
    for colour, one in enumerate(ELEVEN_STRATEGIES):
        for d, style in zip(DIMENSIONS, ("o-", "s:"), strict=True):
            line = eleven.line(f"{one}, {d} attributes", "n", "messages", d=d, strategy=one)
            lines.append(line._replace(colour=colour, style=style))
    shown = [Panel("Eleven brokers (figure 7)", "subscriptions", "control messages", lines, "xy")]
    for column, heading in COLUMNS.items():
        lines = []
        for colour, one in enumerate(GROWN_STRATEGIES):
            some = grown.where(strategy=one)
            values = [_grown(row, column) for row in some]
            lines.append(Line(one, some.column("brokers"), values, colour))
        log = "x" if column in ("in_vain", "hops") else "xy"
        shown.append(Panel(heading[0].upper() + heading[1:], "brokers", "", lines, log))
    return shown


EXPERIMENT = Experiment(
    name="merge-network",
    title="Control traffic in a network of brokers (figures 1 and 7)",
    parts=(GROWTH, PART),
    about=f"""The paper's workload, Zipf, boxes of 4 values per attribute, through trees of brokers:
    the eleven of Figure 1 (which links it has is lost; ours are in `overlay/networks`), and random
    trees of up to 1,000. Subscriptions come in ten batches, each at a random broker. *Flooding* is
    every subscription over every link; equal ones are one item even without a strategy (*none*).
    Merging advertises at most {BUDGET} ranges per neighbour. Control messages are items advertised
    or withdrawn over a link. The paper prints no numbers of a network.""",
    points=points,
    measure=measure,
    claims=claims,
    tables=tables,
    panels=panels,
    columns=3,
    panel_size=(5.0, 3.6),
    seed=4,
    verdicts={},
)
