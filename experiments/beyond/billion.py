"""A thousand brokers and a billion subscriptions: tables, traffic and hops as a network grows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from experiments.beyond.crowd import (
    SIDE,
    WIDEST,
    WORDS,
    behind_links,
    events_of,
    fill,
    links_of,
    merged,
    network_of,
    note_kinds,
    packed,
    route,
    tables_of,
    uncovered,
)
from experiments.beyond.crowd import curve as hilbert_curve
from experiments.experiment import Claim, Experiment, Panel, Point, Results
from rangecast.report.markdown import Table

PART = "1,000 brokers"
NUMBERS = {
    "tiny": (1_000, 10_000),
    "quick": (10**5, 10**6, 10**7),
    "full": (10**6, 10**7, 10**8, 10**9),
}
BROKERS = {"tiny": 20, "quick": 100, "full": 1_000}
NODES = {"tiny": 300, "quick": 4_000, "full": 20_000}
EVENTS = {"tiny": 200, "quick": 5_000, "full": 20_000}
MAX_RANGES = 200
SAMPLE = 3
"""Brokers whose covering is computed: those of the median size."""


def points(size: str) -> Iterator[Point]:
    """More and more subscriptions at the same brokers."""
    for n in NUMBERS[size]:
        sizes = {"brokers": BROKERS[size], "nodes": NODES[size], "events": EVENTS[size]}
        yield {"n": n, **sizes, "max_ranges": MAX_RANGES}


def _streams(seed: int, brokers: int) -> list[np.uint64]:
    """Return where the random numbers of each broker begin."""
    return [np.uint64(((seed << 20) + broker) << 32) for broker in range(brokers)]


def measure(
    seed: int, n: int, brokers: int, nodes: int, events: int, max_ranges: int
) -> dict[str, Any]:
    """Draw all subscriptions, merge them over every link, and send events."""
    network, tables = network_of(seed, brokers, nodes, n), tables_of()
    streams = _streams(seed, brokers)
    bits = np.zeros((brokers, SIDE, WORDS), np.uint64)
    new = 0
    for broker in range(brokers):
        given = streams[broker], int(network.size[broker]), int(network.home[broker])
        new += fill(bits[broker], *given, *tables)
    drawn = int(network.size.sum())
    kinds, alone = [], []
    middle = np.argsort(network.size)[brokers // 2 :][:SAMPLE]
    for broker in middle.tolist():
        there = np.zeros((WIDEST, WIDEST, SIDE, SIDE), np.bool_)
        given = streams[broker], int(network.size[broker]), int(network.home[broker])
        note_kinds(there, *given, *tables)
        kinds.append(int(there.sum()))
        alone.append(uncovered(there))
    below, beyond = behind_links(bits, network.parent)
    order = hilbert_curve()
    words = SIDE * WORDS
    down, up = np.zeros((brokers, words), np.uint64), np.zeros((brokers, words), np.uint64)
    exact, kept, cells, added = [], [], 0, 0
    for one in range(1, brokers):
        for source, target in ((below, down), (beyond, up)):
            found, ranges, closed = merged(source[one].reshape(-1), order, max_ranges)
            target[one] = packed(found)
            exact.append(ranges)
            kept.append(min(ranges, max_ranges))
            cells += int(found.sum()) - closed
            added += closed
    totals = np.zeros(5, np.int64)
    route(
        network.parent,
        *links_of(network.parent),
        network.length,
        down,
        up,
        bits.reshape(brokers, words),
        below.reshape(brokers, words),
        beyond.reshape(brokers, words),
        *events_of(seed, network, tables, events),
        totals,
    )
    messages, in_vain, deliveries, hops, far = totals.tolist()
    sampled = network.size[middle]
    return {
        "drawn": drawn,
        "new when they came": new / drawn,
        "kinds": float(np.mean(kinds) / np.mean(sampled)),
        "uncovered": float(np.mean(alone) / np.mean(sampled)),
        "cells per broker": float(np.bitwise_count(bits).sum() / brokers),
        "ranges per link": float(np.mean(exact)),
        "most ranges": int(max(exact)),
        "kept per link": float(np.mean(kept)),
        "cells advertised per subscription": cells / drawn,
        "cells added by closed gaps": added / max(cells, 1),
        "messages per event": messages / events,
        "flooded": messages / events / max(1, brokers - 1),
        "in vain": in_vain / max(1, messages),
        "brokers reached": deliveries / events,
        "hops": hops / max(1, deliveries),
        "IP hops": far / max(1, deliveries),
    }


def claims(results: Results) -> Iterator[Claim]:
    """Yield the claims that such a network relies on."""
    advertised = results.column("cells advertised per subscription")
    yield Claim(
        PART,
        "control traffic per subscription falls as subscriptions are added",
        advertised == sorted(advertised, reverse=True),
        ", ".join(f"{value:,.4g}" for value in advertised) + " cells over all links",
        is_ours=True,
    )
    flooded = results.column("flooded")
    yield Claim(
        PART,
        "events still don't go everywhere",
        max(flooded) < 0.9,
        "over the share of all links: " + ", ".join(f"{share:.0%}" for share in flooded),
        is_ours=True,
    )


COLUMNS = (
    *("drawn", "new when they came", "kinds", "uncovered", "cells per broker"),
    *("ranges per link", "most ranges", "kept per link", "cells advertised per subscription"),
    *("cells added by closed gaps", "messages per event", "flooded", "in vain"),
    *("brokers reached", "hops", "IP hops"),
)


def tables(results: Results) -> Iterator[Table]:
    """All that was measured, by the number of subscriptions."""
    rows = [[name, *results.column(name)] for name in COLUMNS]
    heads = ["subscriptions", *(f"{n:,}" for n in results.column("n"))]
    yield Table("By the number of subscriptions", heads, rows)


def panels(results: Results) -> list[Panel]:
    """Growth."""
    shown = {
        "Ranges per link": "ranges per link",
        "Cells advertised per subscription": "cells advertised per subscription",
        "Share of links that an event takes": "flooded",
        "Event messages in vain": "in vain",
    }
    return [
        Panel(
            title,
            "subscriptions",
            "",
            [results.line("", "n", name)],
            "x" if name in ("flooded", "in vain", "ranges per link") else "xy",
        )
        for title, name in shown.items()
    ]


def facts(results: Results) -> dict[str, str]:
    """Return how things grow from the fewest subscriptions to the most."""
    first, last = results[0], results[-1]
    return {
        "n": f"{last['drawn']:,}",
        "cells": f"{last['cells advertised per subscription']:.2g}",
        "cells_first": f"{first['cells advertised per subscription']:,.0f}",
        "ranges": f"{first['ranges per link']:,.0f} to {last['ranges per link']:,.0f}",
        "flooded": f"{first['flooded']:.0%} to {last['flooded']:.0%}",
        "vain": f"{first['in vain']:.1%} and {last['in vain']:.1%}",
        "hops": f"{last['hops']:.1f}",
        "far": f"{last['IP hops']:.0f}",
        "new": f"{last['new when they came']:.2%}",
    }


EXPERIMENT = Experiment(
    name="beyond-billion",
    title="A thousand brokers, a billion subscriptions",
    parts=(PART,),
    about=f"""Simulated, every one of them: each subscription is drawn and marked in the bitmap of
    its broker, and forgotten. Brokers are random nodes of an internet (INET), each linked to the
    nearest one before it; they have shares of the subscriptions by Zipf's law (0.8). The space has
    two attributes of {SIDE:,} values, a place, about its broker's home and heavy-tailed, and a
    topic, by Zipf's law; boxes have 1 to {WIDEST} values of each. A link has the union of all that
    lies behind it, as ranges on the Hilbert curve, at most {MAX_RANGES}: the smallest gaps are
    closed. *Cells advertised* are exact, whatever the order of arrival: each cell passes each link
    once. *New when they came* are the subscriptions that their own broker advertises at all.
    Extrapolated: *kinds* (boxes that differ) and *uncovered* ones, as shares of all, are those of
    {SAMPLE} brokers of median size. Not simulated: withdrawals, failures, and the bytes of
    messages. An event comes from a random broker, near its home; it is *in vain* over a link
    behind which nothing holds it.""",
    points=points,
    measure=measure,
    claims=claims,
    tables=tables,
    panels=panels,
    facts=facts,
    seed=5,
    verdicts={
        PART: """No claim of the paper: ours. With {n} subscriptions {new} of them are advertised at
        all, {cells} cells per subscription over all links, where a million take {cells_first}. A
        link's table has {ranges} ranges before gaps are closed. An event takes {flooded} of the
        links, of which {vain} are in vain, and reaches its brokers after {hops} links of the
        overlay, {far} of the internet.""",
    },
)
