"""Paper 001, section V: figures 14 and 17, traffic in the network of brokers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from math import log10
from typing import Any

import numpy as np

from experiments.experiment import (
    Claim,
    Experiment,
    Line,
    Panel,
    Point,
    Results,
    Values,
    in_order,
)
from experiments.notify.painting import (
    INTERESTS,
    K_HEADS,
    KS,
    OBJECTS,
    UPDATES,
    Data,
    made,
    made_stocks,
)
from experiments.notify.stocks import STOCKS
from rangecast.notify.line.interests import Interests
from rangecast.notify.messages import BYTES, LETTER_BYTES
from rangecast.overlay.networks.internet import DEGREE_EXPONENT, LEAF_SHARE, Internet
from rangecast.overlay.zones.geometry import Box
from rangecast.overlay.zones.traffic import Traffic, ZoneTraffic, holding
from rangecast.overlay.zones.zonemap import ZoneMap
from rangecast.report.markdown import Table

BROKERS = {"tiny": 30, "quick": 200, "full": 1_000}
NODES = {"tiny": 300, "quick": 4_000, "full": 20_000}
ZONINGS = {"at random": False, "by load": True}
"""Names of the ways to cut zones, and whether each cuts by load."""
HOWS = ("Unicast", "Unicast by zones", "Paint-Sparse", "Paint-Sparse(1)", "CN-Relax")
FIGURES = {"14": "uniform", "17": "stocks"}
LINKS = {"(a)": "overlay", "(b)": "ip"}
_CHUNK = 2_000


def points(size: str) -> Iterator[Point]:
    """Each workload, painted exactly and roughly for each k, and relaxed."""
    for data in FIGURES.values():
        is_uniform = data == "uniform"
        sizes = {
            "data": data,
            "objects": (OBJECTS if is_uniform else STOCKS)[size],
            "interests": INTERESTS[size] if is_uniform else INTERESTS[size] // 5,
            "updates": UPDATES[size] if is_uniform else 12 * UPDATES[size] // 5,
            "brokers": BROKERS[size],
            "nodes": NODES[size],
        }
        for how in ("Paint-Sparse", "Paint-Sparse(1)"):
            for k in KS:
                yield {**sizes, "how": how, "k": k}
        yield {**sizes, "how": "CN-Relax", "k": 0}


@lru_cache(1)
def _networks(interests: Interests, brokers: int, nodes: int, seed: int) -> dict[str, ZoneTraffic]:
    """Return a network by each way to cut zones, over one internet."""
    _, lo, hi = interests.columns()
    ends = np.stack([lo, hi], axis=1)
    frame = Box((float(lo.min()),) * 2, (float(hi.max()),) * 2)
    internet = Internet(nodes, seed=seed)
    return {
        name: ZoneTraffic(
            ZoneMap.grown(ends, brokers, frame, by_load=by_load, seed=seed),
            internet,
            ends,
            seed,
        )
        for name, by_load in ZONINGS.items()
    }


def measure(
    seed: int,
    data: str,
    objects: int,
    interests: int,
    updates: int,
    brokers: int,
    nodes: int,
    how: str,
    k: int,
) -> dict[str, Any]:
    """Send all updates by one approach; Paint-Sparse brings the letters of Unicast with it."""
    make = made if data == "uniform" else made_stocks
    given = make(seed, objects, interests, updates)
    networks = _networks(given.interests, brokers, nodes, seed)
    if how == "CN-Relax":
        xs = given.objects["position"].to_numpy()[given.ids]
        reach = holding(xs[:, None])
        relaxed = {name: network.relaxed(reach)[0] for name, network in networks.items()}
        return _row(relaxed, len(xs))
    return _painted(given, networks, k, how == "Paint-Sparse(1)")


def _painted(
    data: Data, networks: dict[str, ZoneTraffic], k: int, is_rough: bool
) -> dict[str, Any]:
    board = data.board(k, epsilon=1.0 if is_rough else None)
    changes, n = data.changes, len(data.ids)
    painted = dict.fromkeys(networks, Traffic())
    through, direct = dict(painted), dict(painted)
    for first in range(0, n, _CHUNK):
        messages = board.update_many(changes[first : first + _CHUNK])
        own = messages.slot == data.ids[messages.seq]
        for name, network in networks.items():
            painted[name] += network.painted(messages.bounds)[0]
            if not is_rough:
                by_zones, by_link = network.unicast(messages.bounds[own])
                through[name] += by_zones
                direct[name] += by_link
    row = _row(painted, n)
    if not is_rough:
        row |= _row(direct, n, "Unicast") | _row(through, n, "Unicast by zones")
    return row


def _row(found: dict[str, Traffic], updates: int, how: str = "") -> dict[str, Any]:
    """Return the mean cost of an update: one column per kind of cost and of zones."""
    before = f"{how}: " if how else ""
    row = {}
    for name, traffic in found.items():
        row[f"{before}overlay, {name}"] = traffic.overlay / updates
        row[f"{before}ip, {name}"] = traffic.ip / updates
        row[f"{before}server"] = traffic.server_bytes / updates
    return row


def _traffic(results: Results, data: str, links: str, zoning: str) -> dict[str, list[float]]:
    """Return bytes x links per update for each k, by approach."""
    some = results.where(data=data)
    column = f"{links}, {zoning}"
    found = {how: some.column(f"{how}: {column}", how="Paint-Sparse") for how in HOWS[:2]}
    found |= {how: some.column(column, how=how) for how in HOWS[2:4]}
    return found | {HOWS[4]: some.column(column, how=HOWS[4]) * len(KS)}


def ours(results: Results) -> dict[str, Values]:
    """All four figures, over zones that were cut at random."""
    return {
        f"Figure {figure}{panel}": in_order(K_HEADS, _traffic(results, data, links, "at random"))
        for figure, data in FIGURES.items()
        for panel, links in LINKS.items()
    }


def _times(above: Sequence[float], below: Sequence[float]) -> list[float]:
    return [a / max(b, 1e-9) for a, b in zip(above, below, strict=True)]


def claims(results: Results) -> Iterator[Claim]:
    """Yield the paper's claims about the figures."""
    for figure, data in FIGURES.items():
        for panel, links in LINKS.items():
            part = f"Figure {figure}{panel}"
            found = _traffic(results, data, links, "at random")
            yield from _said(part, found, 1 if figure == "14" else 2)


def _said(part: str, found: dict[str, list[float]], orders: int) -> Iterator[Claim]:
    letters, exact, rough, relaxed = (found[how] for how in (HOWS[0], *HOWS[2:]))
    others = [max(*some) for some in zip(exact, rough, relaxed, strict=True)]
    if orders == 1:
        worse = _times(letters, others)
        yield Claim(
            part,
            "Unicast performs worst for all k",
            min(worse) > 1,
            f"{min(worse):,.1f} to {max(worse):,.0f} times the next",
        )
    over = _times(letters, exact) + (_times(letters, rough) if orders == 2 else [])
    leads = "Paint-Sparse leads" if orders == 1 else "Paint-Sparse and Paint-Sparse(1) lead"
    yield Claim(
        part,
        f"{leads} Unicast by {'an order' if orders == 1 else 'two orders'} of magnitude",
        log10(max(min(over), 1e-9)) > orders - 0.1,
        f"{min(over):,.0f} to {max(over):,.0f} times",
    )
    if orders == 1:
        saved = _times(exact, rough)
        yield Claim(
            part,
            "Paint-Sparse(1) reduces traffic",
            all(time >= 1 for time in saved) and max(saved) > 1.1,
            f"{min(saved):.2f} to {max(saved):.2f} times less",
        )
    crossed = [k for k, one in zip(KS, _times(exact, relaxed), strict=True) if one > 1]
    yield Claim(
        part,
        f"CN-Relax is attractive {'when k > 10' if orders == 1 else 'around k = 10'}",
        bool(crossed) and crossed[0] in (10, 15),
        f"below Paint-Sparse from k = {crossed[0]} on" if crossed else "above it at all k",
    )


def tables(results: Results) -> Iterator[Table]:
    """The same over zones that were cut by load."""
    for figure, data in FIGURES.items():
        rows = [
            [f"{how}, {'overlay' if links == 'overlay' else 'IP'}", *values]
            for links in LINKS.values()
            for how, values in _traffic(results, data, links, "by load").items()
        ]
        title = f"Figure {figure}, zones by load: bytes x links per update"
        yield Table(title, ["", *K_HEADS], rows)


def panels(results: Results) -> list[Panel]:
    """All four figures."""
    return [
        Panel(
            f"{figure}{panel} {'overlay' if links == 'overlay' else 'IP'}, {data}",
            "k",
            "bytes x links per update",
            [
                Line(how, KS, values)
                for how, values in _traffic(results, data, links, "at random").items()
            ],
            "y",
        )
        for figure, data in FIGURES.items()
        for panel, links in LINKS.items()
    ]


EXPERIMENT = Experiment(
    name="notify-network",
    title="Traffic in the network of brokers (figures 14 and 17)",
    parts=tuple(f"Figure {figure}{panel}" for figure in FIGURES for panel in LINKS),
    about=f"""Brokers hold zones of the space of interests and are random nodes of an internet
    (INET: exponent {DEGREE_EXPONENT}, {LEAF_SHARE:.0%} of the nodes have degree one). The server is
    at the zone that holds the centre. Traffic is bytes x links, without the last hop to
    subscribers; {BYTES} bytes per painted message, {LETTER_BYTES} per letter of Unicast. The way of
    an update to the server isn't counted;
    CN-Relax, which has none, begins at the broker nearest to a random
    node. The paper doesn't say how letters travel: *Unicast* takes one overlay link from the server
    to a gateway, *by zones* it takes the way of all other messages. Nor does it say how zones are
    cut: the figures are for CAN's way, halves of the zones of random points; the tables below have
    Meghdoot's, by load. The paper's curves are lost; what it says of them is here.""",
    points=points,
    measure=measure,
    ours=ours,
    claims=claims,
    tables=tables,
    panels=panels,
    seed=1,
    verdicts={
        "Figure 14(a)": """Agrees: Unicast is the worst, 9 to 37 times Paint-Sparse, and
        CN-Relax passes Paint-Sparse between k = 10 and 15. With zones by load CN-Relax,
        which then meets twice as many zones, never does.""",
        "Figure 14(b)": "Agrees, and follows the same trends.",
        "Figure 17(a)": """Differs: painting sends two orders of magnitude less than Unicast only
        if its letters go by zones; over one overlay link each they are 34 to 40 times
        Paint-Sparse, up to 117 times Paint-Sparse(1). CN-Relax is 3 times Paint-Sparse at
        k = 20 and never nearer.""",
        "Figure 17(b)": "Differs, as 17(a).",
    },
)
