"""A picture of a tree of brokers, and what strategies save in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import cos, pi, sin
from pathlib import Path

from rangecast.report.plots import COLOURS, figure


def places_of(tree: Sequence[tuple[int, int]], brokers: int) -> list[tuple[float, float]]:
    """Return where to draw each broker: broker 0 in the middle, others on rings around it.

    Every broker gets a slice of its ring by the number of leaves behind it, so no two lines cross.
    """
    near: list[list[int]] = [[] for _ in range(brokers)]
    for one, other in tree:
        near[one].append(other)
        near[other].append(one)
    above, order, ring = [-1] * brokers, [0], [0] * brokers
    for one in order:
        for other in near[one]:
            if other != above[one]:
                above[other], ring[other] = one, ring[one] + 1
                order.append(other)
    leaves = [0] * brokers
    for one in reversed(order):
        leaves[one] = leaves[one] or 1
        if one:
            leaves[above[one]] += leaves[one]
    begin = [0.0] * brokers
    places = [(0.0, 0.0)] * brokers
    taken = [0] * brokers
    for one in order:
        if one:
            over = above[one]
            begin[one] = begin[over] + taken[over]
            taken[over] += leaves[one]
            angle = 2 * pi * (begin[one] + leaves[one] / 2) / leaves[0]
            places[one] = (ring[one] * cos(angle), ring[one] * sin(angle))
    return places


def draw(
    path: str | Path,
    tree: Sequence[tuple[int, int]],
    subscriptions: Sequence[int],
    by_link: Mapping[tuple[int, int], int],
    title: str,
) -> None:
    """Draw a tree: a line is as thick as its traffic, a broker as large as its subscriptions."""
    brokers = len(subscriptions)
    places = places_of(tree, brokers)
    most = max(by_link.values(), default=1) or 1
    largest = max(subscriptions, default=1) or 1
    with figure(path, size=(8.0, 8.0)) as axes:
        one = axes[0, 0]
        one.set_title(title)
        one.set_aspect("equal")
        one.axis("off")
        for ends in tree:
            events = by_link.get((min(ends), max(ends)), 0)
            (x0, y0), (x1, y1) = (places[end] for end in ends)
            width = 0.4 + 7 * events / most
            one.plot([x0, x1], [y0, y1], color=COLOURS[0], lw=width, alpha=0.7, zorder=1)
            if brokers <= 30:
                one.annotate(
                    f"{events:,}", ((x0 + x1) / 2, (y0 + y1) / 2), fontsize=8, ha="center", zorder=3
                )
        sizes = [30 + 400 * count / largest / max(1.0, brokers / 60) for count in subscriptions]
        xs, ys = zip(*places, strict=True)
        one.scatter(xs, ys, s=sizes, color=COLOURS[1], edgecolors="white", zorder=2)
        if brokers <= 30:
            for number, place in enumerate(places):
                one.annotate(str(number), place, fontsize=8, ha="center", va="center", zorder=4)
