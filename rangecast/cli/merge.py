"""`rangecast merge`: what subscriptions sum to, for several settings, and which one to take."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rangecast.cli.options import (
    BadRowsFile,
    IgnoreUnknown,
    Json,
    NanIsMissing,
    Output,
    Quiet,
    SpaceFile,
    SubscriptionsFile,
    at_least,
)

if TYPE_CHECKING:
    from rangecast.merge.trade import Outcome

_MOST_EVENTS = 20_000
_ENOUGH = 16
"""Finer cells are not tried once a summary has so many times the budget of ranges."""


def merge(
    subscriptions: SubscriptionsFile,
    space: SpaceFile,
    budget: Annotated[
        int,
        typer.Option("--budget", callback=at_least(1), help="Ranges that a summary may have."),
    ],
    events: Annotated[
        Path | None,
        typer.Option("--events", help="Sample events: what passes falsely is measured on them."),
    ] = None,
    output: Output = "-",
    plot: Annotated[
        Path | None, typer.Option("--plot", help="Draw the trade into this file: .png or .svg.")
    ] = None,
    most: Annotated[
        int, typer.Option("--attributes", min=1, help="Try 1 to this many attributes.")
    ] = 4,
    limit: Annotated[
        int, typer.Option("--limit", min=1, help="Ranges that one subscription may have.")
    ] = 64,
    bad_rows: BadRowsFile = None,
    ignore_unknown: IgnoreUnknown = False,
    nan_is_missing: NanIsMissing = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Sum subscriptions up into ranges: write what each setting costs and lets through.

    A summary may let too much through, never too little. One row a setting: its attributes, bits
    and cells; its ranges before and within the budget; the share of the space that they hold; how
    many sample events pass and how many of these a subscription matches; the one to take.
    """
    import numpy as np
    import pyarrow as pa

    from rangecast.cli.job import check_outputs
    from rangecast.cli.output import compiling, progress, summary
    from rangecast.errors import UsageError
    from rangecast.match.choose import build
    from rangecast.merge.projection import chosen_attributes
    from rangecast.merge.trade import outcome, recommended, settings
    from rangecast.model.badrows import BadRows
    from rangecast.model.events import EventFile
    from rangecast.model.files import write_table
    from rangecast.model.space import Space
    from rangecast.model.subscriptions import read_subscriptions

    check_outputs([output, plot, bad_rows], [subscriptions, space, events])
    if plot is not None and plot.suffix not in (".png", ".svg"):
        raise UsageError(f"{plot}: a plot is a .png or .svg file")
    where = Space.load(space)
    points = np.zeros((0, len(where)))
    warnings: list[str] = []
    silent = quiet or as_json
    with BadRows(bad_rows) as bad, progress(quiet=silent) as bars, compiling(quiet=silent):
        reading = bars.add_task("reading", total=None)
        boxes = read_subscriptions(
            subscriptions,
            where,
            bad_rows=bad,
            ignore_unknown=ignore_unknown,
            progress=lambda rows: bars.advance(reading, rows),
        )
        if events is not None:
            sample = EventFile(
                events,
                where,
                bad_rows=bad,
                nan_is_missing=nan_is_missing,
                ignore_unknown=ignore_unknown,
            )
            points = np.concatenate([points, *(batch.points for batch in sample)])
            warnings = sample.warnings
            if len(points) > _MOST_EVENTS:
                points = points[:: -(-len(points) // _MOST_EVENTS)]
        matched = np.zeros(len(points), np.bool_)
        if len(points):
            for first, piece in build(boxes).stream(points):
                counts = np.diff(piece.offsets)
                matched[first : first + len(counts)] |= counts > 0
        order = chosen_attributes(where, boxes, len(where), points if len(points) else None)
        trying = bars.add_task("trying settings", total=None)
        outcomes: list[Outcome] = []
        done: set[tuple[tuple[str, ...], str]] = set()
        for one in settings(order, most=most, sampled=len(points) > 0):
            if (one.attributes, one.cells) in done:
                continue
            outcomes.append(outcome(where, boxes, one, budget, points, matched, limit))
            bars.advance(trying)
            if outcomes[-1].all_ranges > _ENOUGH * budget:
                done.add((one.attributes, one.cells))
    best = recommended(outcomes)
    columns: dict[str, list[Any]] = {
        "attributes": [" ".join(one.setting.attributes) for one in outcomes],
        "bits": [one.setting.bits for one in outcomes],
        "cells": [one.setting.cells for one in outcomes],
        "all_ranges": [one.all_ranges for one in outcomes],
        "ranges": [one.ranges for one in outcomes],
        "gap": [float(one.gap) for one in outcomes],
        "share": [one.share for one in outcomes],
        "passed": [one.passed for one in outcomes],
        "matched": [one.matched for one in outcomes],
        "false_positives": [one.false_positives for one in outcomes],
        "recommended": [one is best for one in outcomes],
    }
    write_table(pa.table(columns), output)
    if plot is not None:
        draw(plot, outcomes, best, budget, len(points))
    facts = {
        "subscriptions": boxes.rows,
        "events": len(points),
        "settings": len(outcomes),
        "bad_rows": bad.count,
        "output": output,
        "recommended": {name: column[outcomes.index(best)] for name, column in columns.items()},
        "warnings": warnings,
    }
    summary(_sentence(best, boxes.rows), facts, as_json=as_json, quiet=quiet)


def _sentence(best: Outcome, rows: int) -> str:
    """Say which setting to take and what it gives."""
    setting = best.setting
    text = (
        f"take {', '.join(setting.attributes)} with {setting.bits} bits and {setting.cells} cells: "
        f"{rows:,} subscriptions sum to {best.ranges:,} ranges, {best.share:.2%} of the space"
    )
    if best.all_ranges > best.ranges:
        text += f" ({best.all_ranges:,} before gaps up to {best.gap:,} were closed)"
    if best.passed:
        text += f"; {best.false_positives:.1%} of the sample events that pass are false"
    return text


def draw(path: Path, outcomes: Sequence[Outcome], best: Outcome, budget: int, events: int) -> None:
    """Draw what each setting lets through within the budget, by the ranges that it had before."""
    from rangecast.report.plots import COLOURS, figure

    def height(one: Outcome) -> float:
        return 100 * (one.passed / events if events else one.share)

    lines: dict[tuple[str, int], list[Outcome]] = {}
    for one in outcomes:
        lines.setdefault((one.setting.cells, len(one.setting.attributes)), []).append(one)
    with figure(path, size=(8.5, 4.2)) as drawing:
        axes = drawing[0, 0]
        for (cells, count), mine in sorted(lines.items(), reverse=True):
            axes.plot(
                [one.all_ranges for one in mine],
                [height(one) for one in mine],
                "o-" if cells == "uniform" else "s--",
                color=COLOURS[(count - 1) % len(COLOURS)],
                markersize=4,
                label=f"{count} attribute{'s' if count > 1 else ''}, {cells}",
            )
        axes.axvline(budget, color="black", linewidth=1, linestyle=":", label="budget")
        if events:
            matched = 100 * best.matched / events
            axes.axhline(matched, color="black", linewidth=1, linestyle="--", label="match")
        axes.plot(best.all_ranges, height(best), "k*", markersize=14, label="recommended")
        axes.set_title("What a summary lets through")
        axes.set_xlabel("ranges, before they are joined to meet the budget")
        axes.set_ylabel("sample events that pass, %" if events else "share of the space, %")
        axes.set_xscale("log")
        axes.set_ylim(bottom=0)
        axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
