"""Costs and false positives of a summary's settings: as a table, and drawn."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from rangecast.merge.tuning import Outcome, Recommendation
from rangecast.report.plots import COLOURS, figure


def table_of(recommendation: Recommendation) -> pa.Table:
    """Return one row per setting that was tried."""
    rows = [
        {
            "attributes": " ".join(outcome.setting.attributes),
            "bits": outcome.setting.bits,
            "cells": outcome.setting.cells,
            "all_ranges": outcome.all_ranges,
            "ranges": outcome.ranges,
            "gap": float(outcome.gap),
            "coverage": outcome.coverage,
            "passed": outcome.passed,
            "matched": outcome.matched,
            "false_positives": outcome.false_positives,
            "recommended": outcome is recommendation.best,
        }
        for outcome in recommendation.outcomes
    ]
    return pa.Table.from_pylist(rows)


def draw(path: Path, recommendation: Recommendation, max_ranges: int) -> None:
    """Plot each setting's pass rate against its number of ranges before joining."""
    best = recommendation.best
    lines: dict[tuple[str, int], list[Outcome]] = {}
    for outcome in recommendation.outcomes:
        lines.setdefault((outcome.setting.cells, len(outcome.setting.attributes)), []).append(
            outcome
        )
    with figure(path, size=(8.5, 4.2)) as drawing:
        axes = drawing[0, 0]
        for (cells, count), mine in sorted(lines.items(), reverse=True):
            axes.plot(
                [setting.all_ranges for setting in mine],
                [100 * setting.pass_rate for setting in mine],
                "o-" if cells == "uniform" else "s--",
                color=COLOURS[(count - 1) % len(COLOURS)],
                markersize=4,
                label=f"{count} attribute{'s' if count > 1 else ''}, {cells}",
            )
        axes.axvline(max_ranges, color="black", linewidth=1, linestyle=":", label="max ranges")
        if best.events:
            matched = 100 * best.matched / best.events
            axes.axhline(matched, color="black", linewidth=1, linestyle="--", label="match")
        axes.plot(best.all_ranges, 100 * best.pass_rate, "k*", markersize=14, label="recommended")
        axes.set_title("What passes a summary")
        axes.set_xlabel("ranges, before they are joined")
        axes.set_ylabel("sample events that pass, %" if best.events else "share of the space, %")
        axes.set_xscale("log")
        axes.set_ylim(bottom=0)
        axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
