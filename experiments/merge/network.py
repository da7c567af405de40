"""Papers 000 and 004 in their setting: control traffic in a tree of brokers, by strategy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from experiments.experiment import Claim, Experiment, Line, Panel, Point, Results
from rangecast.model.boxes import Boxes
from rangecast.overlay.networks.scenario import Scenario, ScenarioData
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
LAST = 255
"""The largest value of an attribute."""
EVENTS = {"tiny": 50, "quick": 500, "full": 1_000}
PART = "Figure 7, in a network"
GROWTH = "Networks that grow"
NESTED = "Boxes of different sizes"
PAYS = "From which size merging pays"
NESTED_BROKERS = {"tiny": (5, 10), "quick": (10, 30), "full": (10, 30)}
WIDEST = 32
"""Values of an attribute in the widest boxes of different sizes; the narrowest have one."""
CROWDS = {"tiny": (50, 100), "quick": (500, 1_000), "full": (500, 1_000, 2_000, 5_000)}
"""Subscriptions by which covering and merging are compared."""
KINDS = {"one size": None, "1 to 32 values": WIDEST}


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
    for strategy in GROWN_STRATEGIES:
        for brokers in NESTED_BROKERS[size]:
            nested = {"part": NESTED, "d": 2, "n": GROWN[size], "events": EVENTS[size]}
            yield {**nested, "brokers": brokers, "strategy": strategy, "widest": WIDEST}
    for widest in KINDS.values():
        for strategy in ("none", "covering", "merging"):
            for n in CROWDS[size]:
                eleven = {"part": PAYS, "d": 2, "n": n, "brokers": 11, "events": 0}
                yield {**eleven, "strategy": strategy, "widest": widest}


def measure(
    seed: int,
    part: str,
    d: int,
    n: int,
    brokers: int,
    strategy: str,
    events: int,
    widest: int | None = None,
) -> dict[str, Any]:
    """Send subscriptions, then events, through a network."""
    one = generate("equal-boxes", seed=seed, subscriptions=n, events=events, attributes=d)
    ids = one.tables["events"]["id"].combine_chunks()
    boxes = one.boxes if widest is None else _of_different_sizes(one.boxes, widest, seed)
    tree = ELEVEN if part in (PART, PAYS) else tree_of("random", brokers, seed)
    scenario = Scenario(ScenarioData(one.space, boxes, one.points, ids), tree, brokers, seed)
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


def _of_different_sizes(boxes: Boxes, widest: int, seed: int) -> Boxes:
    """Return boxes that begin where these do and have from 1 to `widest` values per attribute."""
    values = np.random.default_rng(seed).integers(1, widest, boxes.lo.shape, endpoint=True)
    return Boxes.of(boxes.lo, np.minimum(boxes.lo + values - 1, LAST))


def claims(results: Results) -> Iterator[Claim]:
    """Yield the papers' claims about their settings."""
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
        is_ours=True,
    )
    share = _shares(results, NESTED, "covering", "messages")
    yield Claim(
        NESTED,
        "covering reduces the traffic where boxes can cover each other",
        max(share) < 1,
        f"left of it: {_span(share)}",
        is_ours=True,
    )
    for kind, widest in KINDS.items():
        for what in ("messages", "bytes"):
            some = results.where(part=PAYS, widest=widest)
            n = _pays_from(some, what)
            yield Claim(
                PAYS,
                f"merging sends fewer {_ITEMS[what]} than covering ({kind})",
                n is not None,
                f"from {n:,} subscriptions on" if n else "at none of the sizes",
                is_ours=True,
            )


_ITEMS = {"messages": "items", "bytes": "bytes"}


def _shares(results: Results, part: str, strategy: str, column: str) -> list[float]:
    """Return what a strategy sends of what none sends, by brokers."""
    some = results.where(part=part)
    both = (some.column(column, strategy=one) for one in (strategy, "none"))
    return [left / all_ for left, all_ in zip(*both, strict=True)]


def _pays_from(results: Results, column: str) -> int | None:
    """Return the size from which on merging sends less than covering at every larger one."""
    both = (results.column(column, strategy=one) for one in ("merging", "covering"))
    sizes = results.distinct("n")
    pays = [merged < covered for merged, covered in zip(*both, strict=True)]
    least = max((place + 1 for place, one in enumerate(pays) if not one), default=0)
    return sizes[least] if least < len(sizes) else None


def _span(shares: Sequence[float]) -> str:
    return f"{min(shares):.0%} to {max(shares):.0%}"


def facts(results: Results) -> dict[str, str]:
    """Return what the verdicts name."""
    items = _shares(results, GROWTH, "merging", "messages")
    size = _shares(results, GROWTH, "merging", "bytes")
    found = []
    for kind, widest in KINDS.items():
        some = results.where(part=PAYS, widest=widest)
        sizes = {what: _pays_from(some, what) for what in _ITEMS}
        said = " and ".join(
            f"{what} from {sizes[name]:,} subscriptions on" if sizes[name] else f"{what} at no size"
            for name, what in _ITEMS.items()
        )
        found.append(f"Boxes of {kind}: merging sends fewer {said}.")
    return {
        "grown_n": f"{results.where(part=GROWTH)[0]['n']:,}",
        "grown_least": f"{min(items):.1f}",
        "grown_most": f"{max(items):.1f}",
        "grown_bytes": _span(size),
        "nested_covering": _span(_shares(results, NESTED, "covering", "messages")),
        "nested_merging": _span(_shares(results, NESTED, "merging", "messages")),
        "pays": " ".join(found),
    }


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
    nested = results.where(part=NESTED)
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
    rows = [
        [f"{one}, {heading}", *(_grown(row, column) for row in nested.where(strategy=one))]
        for column, heading in COLUMNS.items()
        for one in GROWN_STRATEGIES
    ]
    counts = [f"{count:,}" for count in nested.distinct("brokers")]
    yield Table(f"{NESTED}, 1 to {WIDEST} values per attribute", ["brokers", *counts], rows)
    pays = results.where(part=PAYS)
    rows = [
        [f"{kind}, {one}, {what}", *pays.column(name, strategy=one, widest=widest)]
        for kind, widest in KINDS.items()
        for name, what in _ITEMS.items()
        for one in GROWN_STRATEGIES
    ]
    yield Table("Eleven brokers: what is sent", ["", *(f"{n:,}" for n in pays.distinct("n"))], rows)


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
    for name, what in _ITEMS.items():
        lines = [
            results.line(f"{one}, {kind}", "n", name, part=PAYS, strategy=one, widest=widest)
            for kind, widest in KINDS.items()
            for one in ("covering", "merging")
        ]
        shown.append(Panel(f"Eleven brokers, {what}", "subscriptions", what, lines, "xy"))
    return shown


EXPERIMENT = Experiment(
    name="merge-network",
    title="Control traffic in a network of brokers (figures 1 and 7)",
    parts=(GROWTH, PART, NESTED, PAYS),
    about=f"""The paper's workload, Zipf, boxes of 4 values per attribute, through trees of brokers:
    the eleven of Figure 1 (which links it has is lost; ours are in `overlay/networks`), and random
    trees of up to 1,000. Subscriptions come in ten batches, each at a random broker. *Flooding* is
    every subscription over every link; equal ones are one item even without a strategy (*none*).
    Merging advertises at most {BUDGET} ranges per neighbour. Control messages are items advertised
    or withdrawn over a link. Boxes of different sizes begin where the paper's do and have from 1 to
    {WIDEST} values per attribute. The paper prints no numbers of a network.""",
    points=points,
    measure=measure,
    claims=claims,
    tables=tables,
    panels=panels,
    facts=facts,
    columns=3,
    panel_size=(5.0, 3.6),
    seed=4,
    verdicts={
        GROWTH: """No claim of the paper: it prints nothing of networks. Covering sends what
        no strategy sends, because boxes of one size cover each other only if they are equal,
        and equal ones are one item without a strategy, too: this workload says nothing of
        covering. Merging, with {grown_n} subscriptions, sends {grown_least} to {grown_most}
        times the items, each of them smaller: {grown_bytes} of the bytes.""",
        PART: """Agrees in part: covering and subsumption reduce the traffic as in Figure 7;
        merging reduces it most only from 5,000 subscriptions on, and with 2 attributes not
        even there, because a new subscription changes ranges that were advertised before.""",
        NESTED: """No claim of the paper: ours, boxes that can cover each other. Covering
        leaves {nested_covering} of the items, and merging {nested_merging}, with as many
        subscriptions as the networks above.""",
        PAYS: "No claim of the paper: ours. {pays}",
    },
)
