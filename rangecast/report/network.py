"""Plot of a network by zones: the zones, the path of one message, and the cost of approaches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rangecast.kernels.arrays import F64
from rangecast.report.plots import COLOURS, figure

_DOTS = 3_000
"""Maximum number of interests shown."""
Link = tuple[int, int]


@dataclass(frozen=True)
class MessagePath:
    """Path of one message: its rectangle, and the zones it crossed, link by link."""

    lo: F64
    hi: F64
    route: Sequence[Link]
    spread: Sequence[Link]


def draw(
    path: str | Path,
    zones: tuple[F64, F64],
    frame: tuple[F64, F64],
    server: int,
    interests: F64,
    way: MessagePath | None,
    costs: Mapping[str, tuple[float, float]],
    axis_names: tuple[str, str],
) -> None:
    """Draw zones (their lower and upper corners) with a message, and overlay and IP traffic.

    costs   by approach: bytes x overlay links and bytes x IP links, per update
    """
    low, high = frame
    with figure(path, columns=2, size=(6.6, 5.6)) as axes:
        left, right = axes[0]
        left.set(title="Zones, and the way of a message", xlabel=axis_names[0])
        left.set(ylabel=axis_names[1])
        left.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]))
        left.grid(visible=False)
        shown = interests[:: max(1, len(interests) // _DOTS)]
        left.plot(shown[:, 0], shown[:, 1], ",", color="#5c6b73", label="interests")
        lo, hi = np.clip(zones[0], low, high), np.clip(zones[1], low, high)
        _rectangles(left, lo, hi)
        centre = (lo + hi) / 2
        if way is not None:
            _way(left, way, centre, low, high)
        left.plot(
            *centre[server], "*", color=COLOURS[3], markersize=14, zorder=5, label="the server"
        )
        left.legend(loc="lower right", framealpha=0.9, frameon=True)
        right.set(title="Traffic per update", xlabel="bytes x links")
        places = np.arange(len(costs))
        for number, (name, side) in enumerate((("overlay links", 0), ("IP links", 1))):
            values = [max(cost[side], 1e-3) for cost in costs.values()]
            right.barh(places + 0.2 * (2 * number - 1), values, 0.38, label=name)
        right.set(xscale="log")
        right.set_yticks(places, list(costs))
        right.invert_yaxis()
        right.grid(axis="y", visible=False)
        right.legend()


def _rectangles(axes: Any, lo: F64, hi: F64) -> None:
    from matplotlib.collections import PatchCollection
    from matplotlib.patches import Rectangle

    boxes = [Rectangle(tuple(a), *(b - a)) for a, b in zip(lo, hi, strict=True)]
    axes.add_collection(
        PatchCollection(boxes, facecolor="none", edgecolor="#9aa5ab", linewidth=0.5)
    )


def _way(axes: Any, way: MessagePath, centre: F64, low: F64, high: F64) -> None:
    from matplotlib.patches import Rectangle

    a, b = np.clip(way.lo, low, high), np.clip(way.hi, low, high)
    axes.add_patch(
        Rectangle(
            tuple(a),
            *(b - a),
            facecolor=COLOURS[4],
            alpha=0.45,
            edgecolor=COLOURS[1],
            linewidth=2,
            label="its rectangle",
        )
    )
    parts = (way.route, COLOURS[3], "route"), (way.spread, COLOURS[0], "spread")
    for links, colour, name in parts:
        arrow = {"arrowstyle": "-|>", "color": colour, "lw": 1.4, "shrinkA": 0, "shrinkB": 0}
        for start, end in links:
            axes.annotate("", centre[end], centre[start], arrowprops=arrow)
        if links:
            axes.plot([], [], color=colour, label=name)
