"""The plots of the page about matching; each returns an `Svg`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rangecast.kernels.arrays import F64, I64, AnyArray
from rangecast.report.facts import Group, MicroBatch, Region, Stage
from rangecast.report.plots import COLOURS, Svg, plot

_HALF, _THIRD = (5.4, 3.3), (4.0, 3.0)
"""Width in inches of a plot that takes half of the page, or a third."""

_VALUES = 11
"""Maximum number of values in a plot of shares by value: the largest, and a few with none."""


def moment(value: Any) -> str:
    """Return a point in time to the minute."""
    return str(np.datetime_as_string(np.datetime64(value), unit="m")).replace("T", " ")


def _log_edges(most: int) -> F64:
    """Return bin edges that grow, each bin at least as wide as the one before."""
    factor = (most + 1) ** (1 / 28) - 1
    edges, width = [1], 1
    while edges[-1] <= most:
        width = max(width, round(edges[-1] * factor))
        edges.append(edges[-1] + width)
    return np.array(edges) - 0.5


def _counted(svg: Svg, counts: I64, x: str, y: str, colour: str) -> Svg:
    """Draw a histogram with growing bins, and a separate bar for zero."""
    positive = counts[counts > 0]
    edges = _log_edges(int(counts.max(initial=1)))
    heights, _ = np.histogram(positive, edges)
    with plot(svg, title="", x=x, y=y, size=_THIRD) as axes:
        axes.bar(edges[:-1], heights, np.diff(edges), align="edge", color=colour)
        axes.bar([0.28], [int((counts == 0).sum())], [0.18], align="edge", color=COLOURS[1])
        axes.set_xscale("log")
        axes.set_xlim(0.24, edges[-1] * 1.1)
        ticks = [t for t in (1, 10, 100, 1000, 10**4, 10**5, 10**6, 10**7) if t < edges[-1]]
        axes.set_xticks([0.28 * 1.28, *ticks], ["none", *(f"{t:,}" for t in ticks)])
        axes.xaxis.set_minor_formatter(lambda *_: "")
        axes.tick_params("x", which="minor", bottom=False)
        axes.yaxis.set_major_formatter("{x:,.0f}")
        axes.grid(axis="x", visible=False)
    return svg


def per_subscription(counts: I64) -> Svg:
    """Return a histogram of the number of matches per subscription."""
    svg = Svg("Histogram of matches per subscription")
    return _counted(svg, counts, "matches (logarithmic)", "subscriptions", COLOURS[0])


def per_event(counts: I64) -> Svg:
    """Return a histogram of the number of matches per event."""
    svg = Svg("Histogram of matches per event")
    return _counted(svg, counts, "matches (logarithmic)", "events", COLOURS[0])


def concentration(counts: I64) -> Svg:
    """Plot the cumulative share of matches by subscription, the busiest first; counts descend."""
    svg = Svg("Share of matches by share of subscriptions, busiest first")
    total = max(int(counts.sum()), 1)
    places = np.unique(np.geomspace(1, max(len(counts), 1), 200).astype(np.int64))
    shares = np.cumsum(counts)[places - 1] / total if len(counts) else np.zeros(len(places))
    x = 100.0 * places / max(len(counts), 1)
    with plot(
        svg, title="", x="the busiest subscriptions", y="of all matches", size=_THIRD
    ) as axes:
        axes.plot(x, 100 * shares, color=COLOURS[0], linewidth=2)
        axes.fill_between(x, 100 * shares, color=COLOURS[0], alpha=0.15, linewidth=0)
        axes.plot(x, x, color=COLOURS[5], linewidth=1, linestyle="--")
        axes.set_xscale("log")
        axes.set_xlim(min(x[0], 50), 100)
        axes.set_ylim(0, 102)
        _plain_ticks(axes.xaxis, lambda value: f"{value:g}%")
        axes.yaxis.set_major_formatter("{x:.0f}%")
    return svg


def unwanted_over_time(group: Group) -> Svg:
    """Plot the share of events without a match over time, above the number of events."""
    svg = Svg("Share of events without a match, over time")
    shares = 100.0 * group.unwanted / np.maximum(group.events, 1)
    when = np.asarray(group.labels, dtype="datetime64[us]")
    step = (when[1] - when[0]) if len(when) > 1 else np.timedelta64(1, "m")
    with plot(svg, title="", y="without a match", size=_HALF) as axes:
        top = max(float(shares.max(initial=0.0)), 0.1) * 1.15
        heights = group.events / max(int(group.events.max(initial=1)), 1) * top * 0.3
        axes.bar(when, heights, width=step * 0.9, align="edge", color=COLOURS[5], alpha=0.3)
        axes.plot(when + step / 2, shares, color=COLOURS[1], linewidth=2)
        axes.set_ylim(0, top)
        axes.yaxis.set_major_formatter("{x:g}%")
        axes.grid(axis="x", visible=False)
    return svg


def unwanted_by_value(group: Group) -> Svg:
    """Return the share of events without a match for each value, the largest at the top."""
    shares = 100.0 * group.unwanted / np.maximum(group.events, 1)
    order = np.argsort(shares, kind="stable")[-_VALUES:]
    order = order[max(0, min(int((shares[order] == 0).sum()), len(order) - 3)) :]
    svg = Svg(f"Share of events without a match by {group.attribute}")
    with plot(svg, title="", x="without a match", size=_HALF) as axes:
        axes.barh([str(group.labels[i]) for i in order], shares[order], color=COLOURS[1])
        axes.xaxis.set_major_formatter("{x:g}%")
        axes.grid(axis="y", visible=False)
        axes.tick_params("y", length=0)
    return svg


def density(region: Region, values: AnyArray, label: str, colour: int) -> Svg:
    """Plot a log-scaled heat map of counts over two attributes; empty cells are transparent."""
    from matplotlib.colors import LinearSegmentedColormap, LogNorm, to_rgb

    svg = Svg(f"Map of {label} over {region.x} and {region.y}")
    hue = to_rgb(COLOURS[colour])
    ramp = LinearSegmentedColormap.from_list("ramp", [(*hue, 0.06), (*hue, 0.55), (*hue, 1.0)])
    positive = values[values > 0]
    least, most = (float(positive.min()), float(positive.max())) if len(positive) else (1.0, 10.0)
    shown = np.ma.masked_less_equal(values.astype(np.float64), 0)
    with plot(svg, title="", x=region.x, y=region.y, size=_THIRD) as axes:
        axes.grid(visible=False)
        for axis, edges in (("x", region.x_edges), ("y", region.y_edges)):
            if _grows(edges):
                getattr(axes, f"set_{axis}scale")("log")
                _plain_ticks(getattr(axes, f"{axis}axis"), _brief)
        mesh = axes.pcolormesh(
            region.x_edges,
            region.y_edges,
            shown,
            cmap=ramp,
            norm=LogNorm(least, max(most, least * 1.01)),
            rasterized=True,
        )
        scale = axes.figure.colorbar(mesh, ax=axes, location="top", aspect=34, pad=0.02, shrink=0.8)
        scale.set_label(label, size=9)
        scale.outline.set_visible(False)
        scale.ax.tick_params(labelsize=8, which="both", length=0)
        _plain_ticks(scale.ax.xaxis, _brief)
        scale.solids.set_rasterized(True)
    return svg


def _brief(value: float) -> str:
    """Return a short number for a scale: 0.1, 100, 1k, 1M."""
    for size, name in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:g}{name}"
    return f"{value:g}"


def _plain_ticks(axis: Any, form: Callable[[float], str]) -> None:
    """Label the decades of a logarithmic axis, and values in between if there are few decades."""
    from matplotlib.ticker import LogLocator

    lo, hi = axis.get_view_interval()
    if hi < 100 * lo:
        axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if hi > 4 * lo else range(1, 10)))
    axis.set_major_formatter(lambda value, _: form(value))
    axis.set_minor_formatter(lambda *_: "")


def _grows(edges: F64) -> bool:
    """Return whether the cells grow by a factor instead of having equal widths."""
    return bool(edges[0] > 0 and edges[-1] - edges[-2] > 4 * (edges[1] - edges[0]))


def _changes(axes: Any, stream: Sequence[MicroBatch]) -> None:
    """Mark where a new version took effect."""
    for index in range(1, len(stream)):
        if stream[index].version != stream[index - 1].version:
            axes.axvline(index - 0.5, color=COLOURS[3], linewidth=1.5)
            axes.annotate(
                f"version {stream[index].version}",
                (index - 0.5, 1.0),
                xycoords=("data", "axes fraction"),
                xytext=(5, -10),
                textcoords="offset points",
                color=COLOURS[3],
                fontsize=9,
            )
    axes.set_xlim(-0.6, len(stream) - 0.4)
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.yaxis.set_major_formatter("{x:,.0f}")
    axes.grid(axis="x", visible=False)


def stream_rates(stream: Sequence[MicroBatch], batch: Stage | None) -> Svg:
    """Return a bar chart of the events per second of each micro-batch."""
    svg = Svg("Events per second by micro-batch")
    rates = [row.events / max(row.seconds, 1e-9) for row in stream]
    with plot(svg, title="", x="micro-batch", y="events per second", size=_THIRD) as axes:
        axes.bar(range(len(rates)), rates, color=COLOURS[0])
        axes.set_ylim(0, max(rates) * 1.18)
        if batch is not None:
            whole = batch.events / max(batch.seconds, 1e-9)
            axes.set_ylim(0, max(*rates, whole) * 1.18)
            axes.axhline(whole, color=COLOURS[5], linewidth=1, linestyle="--")
        _changes(axes, stream)
    return svg


def stream_matches(stream: Sequence[MicroBatch]) -> Svg:
    """Return the matches per event of each micro-batch."""
    svg = Svg("Matches per event by micro-batch")
    means = [batch.matches / max(batch.events, 1) for batch in stream]
    with plot(svg, title="", x="micro-batch", y="matches per event", size=_THIRD) as axes:
        axes.plot(range(len(means)), means, color=COLOURS[0], linewidth=2, marker="o", markersize=4)
        axes.set_ylim(0, max(means) * 1.25 or 1)
        _changes(axes, stream)
    return svg


def stages(parts: Sequence[Stage]) -> Svg:
    """Return the seconds of each stage of the run, the first at the top."""
    svg = Svg("Seconds of each part of the run")
    size = (_THIRD[0], max(_THIRD[1], 0.32 * len(parts) + 0.7))
    with plot(svg, title="", x="seconds", size=size) as axes:
        drawn = axes.barh(
            [part.name for part in parts], [p.seconds for p in parts], color=COLOURS[2]
        )
        axes.bar_label(drawn, fmt="{:.1f}", padding=4, fontsize=9)
        axes.margins(x=0.12)
        axes.invert_yaxis()
        axes.grid(axis="y", visible=False)
        axes.tick_params("y", length=0)
    return svg
