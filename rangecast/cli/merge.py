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
    Nan,
    Output,
    Quiet,
    SpaceFile,
    SubscriptionsFile,
    at_least,
)
from rangecast.model.attributes import NanMeaning

if TYPE_CHECKING:
    from rangecast.merge.trade import Outcome

_MOST_EVENTS = 20_000
_ENOUGH = 16
"""Finer cells are not tried once a summary has so many times the budget of ranges."""
_NEARLY_ALL = 0.95
"""A summary that lets through so much saves hardly anything."""


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
    ranges: Annotated[
        Path | None,
        typer.Option("--ranges", help="Write the ranges of the recommended setting: start, end."),
    ] = None,
    redundant: Annotated[
        Path | None,
        typer.Option(
            "--redundant", help="Write the subscriptions that add nothing to those before them."
        ),
    ] = None,
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
    nan: Nan = NanMeaning.REFUSE,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Sum subscriptions up into ranges: write what each setting costs and lets through.

    A summary may let too much through, never too little. One row a setting: its attributes, bits
    and cells; its ranges before and within the budget; the share of the space that they hold; how
    many sample events pass and how many of these a subscription matches; the one to take.

    Of the one to take, --ranges writes the ranges, and --redundant the subscriptions that others
    hold together: the ranges are the same without them.
    """
    import numpy as np
    import pyarrow as pa

    from rangecast.cli.job import check_outputs
    from rangecast.cli.output import compiling, progress, summary
    from rangecast.errors import UsageError
    from rangecast.match.choose import build
    from rangecast.merge import trade
    from rangecast.merge.projection import chosen_attributes
    from rangecast.model.badrows import BadRows
    from rangecast.model.events import EventFile
    from rangecast.model.files import format_of, write_table
    from rangecast.model.space import Space
    from rangecast.model.subscriptions import read_subscriptions

    for file in (ranges, redundant):
        if file is not None:
            format_of(file)  # refused before the work, not after it
    check_outputs([output, plot, bad_rows, ranges, redundant], [subscriptions, space, events])
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
                nan=nan,
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
        for one in trade.settings(order, most=most, sampled=len(points) > 0):
            if (one.attributes, one.cells) in done:
                continue
            outcomes.append(trade.outcome(where, boxes, one, budget, points, matched, limit))
            bars.advance(trying)
            if outcomes[-1].all_ranges > _ENOUGH * budget:
                done.add((one.attributes, one.cells))
        best = trade.recommended(outcomes)
        found = trade.summed(where, boxes, best.setting, budget, points, limit)
        if redundant is not None:
            needless = boxes.ids.filter(pa.array(trade.redundant(where, boxes, found.cells, limit)))
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
    if ranges is not None:
        write_table(pa.table({"start": found.ranges.starts, "end": found.ranges.ends}), ranges)
    if redundant is not None:
        write_table(pa.table({"subscription": needless}), redundant)
    if plot is not None:
        draw(plot, outcomes, best, budget, len(points))
    facts = {
        "subscriptions": boxes.rows,
        "events": len(points),
        "settings": len(outcomes),
        "bad_rows": bad.count,
        "output": output,
        "ranges_file": None if ranges is None else str(ranges),
        "redundant_file": None if redundant is None else str(redundant),
        "redundant": None if redundant is None else len(needless),
        "cells_digest": found.cells.digest,
        "lets_through": _let_through(best, len(points)),
        "worth_it": _let_through(best, len(points)) < _NEARLY_ALL,
        "recommended": {name: column[outcomes.index(best)] for name, column in columns.items()},
        "warnings": warnings,
    }
    text = _sentence(best, boxes.rows)
    if redundant is not None:
        text += f"; {len(needless):,} of them add nothing to those before them"
    remedies = []
    if any(one.all_ranges > one.ranges for one in outcomes):
        remedies.append("a larger --budget")
    if most < len(where):
        remedies.append("more --attributes")
    text += _verdict(best, len(points), remedies)
    summary(text, facts, as_json=as_json, quiet=quiet)


def _sentence(best: Outcome, rows: int) -> str:
    """Say which setting to take and what it gives."""
    setting = best.setting
    text = (
        f"take {', '.join(setting.attributes)} with {setting.bits} bits and {setting.cells} cells: "
        f"{_count(rows, 'subscription')} sum{'s' if rows == 1 else ''} to "
        f"{_count(best.ranges, 'range')}, {best.share:.2%} of the space"
    )
    if best.all_ranges > best.ranges:
        text += f" ({best.all_ranges:,} before gaps up to {best.gap:,} were closed)"
    if best.passed:
        text += f"; {best.false_positives:.1%} of the sample events that pass are false"
    return text


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _let_through(best: Outcome, events: int) -> float:
    """Return the share of the sample events that pass, or of the space."""
    return best.passed / events if events else best.share


def _verdict(best: Outcome, events: int, remedies: list[str]) -> str:
    """Say so if a summary saves hardly anything, and what could make another one do better."""
    share = _let_through(best, events)
    if share < _NEARLY_ALL:
        return ""
    passing = "sample events" if events else "space"
    text = f"\nmerging isn't worth it on this data: {share:.1%} of the {passing} would pass anyway"
    asked_for = best.matched / events if events else 0.0
    if asked_for >= _NEARLY_ALL:
        return f"{text}; subscriptions match {asked_for:.1%} of them, and must get them"
    if remedies:
        text += f"; {' or '.join(remedies)} may hold more back"
    return text


def draw(path: Path, outcomes: Sequence[Outcome], best: Outcome, budget: int, events: int) -> None:
    """Draw what each setting lets through within the budget, by the ranges that it had before."""
    from rangecast.report.plots import COLOURS, figure

    lines: dict[tuple[str, int], list[Outcome]] = {}
    for one in outcomes:
        lines.setdefault((one.setting.cells, len(one.setting.attributes)), []).append(one)
    with figure(path, size=(8.5, 4.2)) as drawing:
        axes = drawing[0, 0]
        for (cells, count), mine in sorted(lines.items(), reverse=True):
            axes.plot(
                [one.all_ranges for one in mine],
                [100 * _let_through(one, events) for one in mine],
                "o-" if cells == "uniform" else "s--",
                color=COLOURS[(count - 1) % len(COLOURS)],
                markersize=4,
                label=f"{count} attribute{'s' if count > 1 else ''}, {cells}",
            )
        axes.axvline(budget, color="black", linewidth=1, linestyle=":", label="budget")
        if events:
            matched = 100 * best.matched / events
            axes.axhline(matched, color="black", linewidth=1, linestyle="--", label="match")
        axes.plot(
            best.all_ranges,
            100 * _let_through(best, events),
            "k*",
            markersize=14,
            label="recommended",
        )
        axes.set_title("What a summary lets through")
        axes.set_xlabel("ranges, before they are joined to meet the budget")
        axes.set_ylabel("sample events that pass, %" if events else "share of the space, %")
        axes.set_xscale("log")
        axes.set_ylim(bottom=0)
        axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
