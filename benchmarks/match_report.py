"""The matching benchmark as a page and a plot: ratios and work, which mean something elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.contest import (
    BUILD_SECONDS,
    PEER_BUILD_SECONDS,
    THREADS,
    Contestant,
    best,
)
from benchmarks.measure import Table
from benchmarks.page import machine, markdown, write

if TYPE_CHECKING:
    from benchmarks.match import Case

_PACKAGES = ("numpy", "numba", "shapely", "geoindex-rs", "rtree", "duckdb", "polars")
_COLOURS = {
    "Engine, untouched": "black",
    "scan": "tab:gray",
    "vcr": "tab:purple",
    "hilbert": "tab:brown",
    "rtree": "tab:green",
    "slabs": "tab:orange",
    "cells": "tab:red",
}


def write_page(path: Path, cases: Sequence[Case], tables: Sequence[Table]) -> None:
    """Write all tables as Markdown."""
    lines = [
        "# Matching beside the peers",
        "",
        "Made by `python -m benchmarks match`. Ratios are how many times as long the best peer",
        "takes as the row does, on the same data in the same run: above 1 is faster than every",
        "peer. Peers are called through their bulk interface, or event by event where that is",
        "faster. Seconds are of a core, the least of several alternating runs; those of all",
        "threads are of the wall. *Spread* is the slowest run over the fastest. *Visited* and",
        "*tested* count work and are the same on every machine.",
        "",
        "Slow rows were timed on fewer events, some on as few as 4. Of each row the ids of up to",
        "24 events in a batch and of 4 single ones were compared with the oracle's. What would",
        f"take longer to build than {PEER_BUILD_SECONDS:.0f} s (a peer) or",
        f"{BUILD_SECONDS:.0f} s (ours), judged by a tenth of the set, was left out and has no",
        "row, as has one of ours that would need 4 GB: the best peer is the best of",
        "those that have one.",
        "",
        machine(_PACKAGES),
        "",
        "![Ratios to the best peer](match.png)",
        "",
    ]
    lines += markdown(tables[0])
    for case in cases:
        lines += markdown(_case(case))
    for table in tables[1:]:
        lines += markdown(table)
    write(path, lines)


def _case(case: Case) -> Table:
    rows = []
    per_batch = best(case.everyone, lambda peer: peer.least)
    for one in case.everyone:
        mark = " (best peer)" if one is per_batch else " (auto)" if one.chosen else ""
        work, memory = one.work, one.memory / case.n
        rows.append(
            [
                one.name + mark,
                f"{case.batch_ratio(one):,.2f}",
                f"{one.batch.spread:.1f}",
                f"{case.single_ratio(one):,.2f}",
                f"{case.threads_ratio(one):,.2f}" if one.threads.runs else "",
                f"{work.visited / one.events:,.0f}" if work else "",
                f"{work.tested / one.events:,.0f}" if work else "",
                f"{memory:,.0f}" if memory else "",
                f"{memory / case.dimensions:,.1f}" if memory else "",
                f"{one.build:,.1f}",
            ]
        )
    headings = ["", "batches", "spread", "single events", f"{THREADS} threads", "visited an event"]
    headings += ["tested an event", "bytes a subscription", "and attribute", "build s"]
    title = f"{case.name}: {case.about}; n = {case.n:,}, {case.matches:,.0f} matches an event"
    return Table(title, headings, rows)


def write_plot(path: Path, cases: Sequence[Case]) -> None:
    """Draw the ratios of every workload on a log scale, with what we expect."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(13, 5.5), width_ratios=[2, 1.2])
    places = range(len(cases))
    left.bar(
        places,
        [case.batch_ratio(case.engine) for case in cases],
        width=0.55,
        color="tab:blue",
        alpha=0.55,
        label="live set, edited",
    )
    seen: set[str] = set()
    for place, case in enumerate(cases):
        for one in [case.untouched, *case.structures]:
            label = None if one.name in seen else one.name
            seen.add(one.name)
            left.plot(place, case.batch_ratio(one), **_marker(one), label=label)
        if case.expected:
            label = None if "expected" in seen else "expected"
            seen.add("expected")
            left.hlines(case.expected, place - 0.4, place + 0.4, colors="black", lw=2, label=label)
    left.axhline(1, color="black", lw=1, ls="--")
    left.text(len(cases) - 0.5, 1.08, "best peer", ha="right", fontsize=9)
    left.set_title("Batches, one thread")
    left.set_ylabel("times as fast as the best peer")
    left.legend(fontsize=9, ncols=2, loc="upper left")
    right.bar(
        places,
        [case.single_ratio(case.engine) for case in cases],
        width=0.55,
        color="tab:blue",
        alpha=0.55,
    )
    for place, case in enumerate(cases):
        for one in [case.untouched, *case.structures]:
            right.plot(place, case.single_ratio(one), **_marker(one))
    right.axhline(1, color="black", lw=1, ls="--")
    right.axhline(8, color="black", lw=2)
    right.set_title("Single events")
    for axes in (left, right):
        axes.set_yscale("log")
        axes.set_xticks(places, [case.name for case in cases], rotation=40, ha="right")
        axes.grid(axis="y", which="major", alpha=0.4)
    low, high = left.get_ylim()
    left.set_ylim(low, high * 6)  # room for the legend
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def _marker(one: Contestant) -> dict[str, Any]:
    """Return how to draw it: a structure as a dot, the untouched live set as an open diamond."""
    drawn: dict[str, Any] = {"color": _COLOURS.get(one.name, "tab:pink"), "linestyle": "none"}
    if one.kind == "engine":
        return drawn | {"marker": "D", "markersize": 11, "markerfacecolor": "none", "zorder": 3}
    return drawn | {"marker": "o", "markersize": 6}
