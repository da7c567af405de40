"""Plot of a tree of brokers, and of the savings of strategies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import cos, pi, sin
from pathlib import Path

from rangecast.report.plots import COLOURS, figure


def places_of(tree: Sequence[tuple[int, int]], brokers: int) -> list[tuple[float, float]]:
    """Return the position of each broker: broker 0 in the middle, others on rings around it.

    Each broker gets a slice of its ring in proportion to the leaves behind it, so lines don't
    cross.
    """
    near: list[list[int]] = [[] for _ in range(brokers)]
    for node, other in tree:
        near[node].append(other)
        near[other].append(node)
    above, order, ring = [-1] * brokers, [0], [0] * brokers
    for node in order:
        for other in near[node]:
            if other != above[node]:
                above[other], ring[other] = node, ring[node] + 1
                order.append(other)
    leaves = [0] * brokers
    for node in reversed(order):
        leaves[node] = leaves[node] or 1
        if node:
            leaves[above[node]] += leaves[node]
    begin = [0.0] * brokers
    places = [(0.0, 0.0)] * brokers
    taken = [0] * brokers
    for node in order:
        if node:
            over = above[node]
            begin[node] = begin[over] + taken[over]
            taken[over] += leaves[node]
            angle = 2 * pi * (begin[node] + leaves[node] / 2) / leaves[0]
            places[node] = (ring[node] * cos(angle), ring[node] * sin(angle))
    return places


def draw(
    path: str | Path,
    tree: Sequence[tuple[int, int]],
    subscriptions: Sequence[int],
    by_link: Mapping[tuple[int, int], int],
    title: str,
) -> None:
    """Draw a tree: line widths show traffic, broker sizes show subscriptions."""
    brokers = len(subscriptions)
    places = places_of(tree, brokers)
    most = max(by_link.values(), default=1) or 1
    largest = max(subscriptions, default=1) or 1
    with figure(path, size=(8.0, 8.0)) as axes:
        axis = axes[0, 0]
        axis.set_title(title)
        axis.set_aspect("equal")
        axis.axis("off")
        for ends in tree:
            events = by_link.get((min(ends), max(ends)), 0)
            (x0, y0), (x1, y1) = (places[end] for end in ends)
            width = 0.4 + 7 * events / most
            axis.plot([x0, x1], [y0, y1], color=COLOURS[0], lw=width, alpha=0.7, zorder=1)
            if brokers <= 30:
                axis.annotate(
                    f"{events:,}", ((x0 + x1) / 2, (y0 + y1) / 2), fontsize=8, ha="center", zorder=3
                )
        sizes = [30 + 400 * count / largest / max(1.0, brokers / 60) for count in subscriptions]
        xs, ys = zip(*places, strict=True)
        axis.scatter(xs, ys, s=sizes, color=COLOURS[1], edgecolors="white", zorder=2)
        if brokers <= 30:
            for number, position in enumerate(places):
                axis.annotate(str(number), position, fontsize=8, ha="center", va="center", zorder=4)
