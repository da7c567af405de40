"""`--commands` of `cover` and `merge`: apply commands in order, and write what each advertises."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from rangecast.cli.shared.output import counted
from rangecast.cli.shared.run import Run
from rangecast.cover.coverset import CoverSet
from rangecast.errors import UsageError
from rangecast.merge.summary import Summary
from rangecast.model.boxes import Boxes
from rangecast.model.commands import Commands, as_commands
from rangecast.model.space import Space


def check_commands(
    subscriptions: Path | None, commands: Path | None, unused: Mapping[str, bool]
) -> None:
    """Reject a call without work to do, and options that don't apply to commands."""
    if subscriptions is None and commands is None:
        raise UsageError(
            "neither subscriptions nor commands are given\n"
            "  hint: give SUBSCRIPTIONS, or --commands, or both"
        )
    for name, is_given in unused.items():
        if is_given:
            problem = "can't be combined with" if commands is not None else "requires"
            raise UsageError(f"{name} {problem} --commands\n  hint: leave {name} out")


def read_both(
    run: Run, space: Space, subscriptions: Path | None, commands: Path
) -> tuple[Boxes | None, Commands]:
    """Read the initial subscriptions, if any, and the commands."""
    boxes = None if subscriptions is None else run.subscriptions(subscriptions, space)
    kind = None
    if boxes is not None and boxes.rows:
        kind = int if pa.types.is_integer(boxes.ids.type) else str
    with run.task("reading commands"):
        return boxes, as_commands(run.file(commands), space, kind)


def cover_commands(
    run: Run, cover: CoverSet, pair: tuple[Boxes | None, Commands], uncovered: Path | None
) -> None:
    """Apply commands; write the messages of each, and finally the uncovered subscriptions."""
    boxes, todo = pair
    if boxes is not None:
        cover.subscribe_many(boxes)
    with run.task("doing commands"):
        forwards = cover.update_many(todo)
    table = todo.messages(forwards)
    run.write(table, run.output)
    if uncovered is not None:
        names = cover.uncovered()
        ids = pa.array(names, todo.ids.type if boxes is None else boxes.ids.type)
        run.write(
            pa.table({"id": ids, "filter": [cover[label].filter for label in names]}), uncovered
        )
    sent = int(pc.sum(pc.equal(table["action"], "subscribe")).as_py() or 0)
    exposed = int(pc.sum(table["exposed"]).as_py() or 0)
    facts = {
        "subscriptions": 0 if boxes is None else boxes.rows,
        "commands": len(todo.words),
        "sent": sent,
        "exposed": exposed,
        "withdrawn": len(table) - sent,
        "silent": len(todo.words) - len(table["command"].unique()),
        "live": len(cover),
        "uncovered": len(cover.uncovered()),
        "advertised": len(cover.advertised()),
        "index": cover.index,
        "k": cover.k,
        "work": {name: cost._asdict() for name, cost in cover.work._asdict().items()},
        "uncovered_file": uncovered,
    }
    detail = (
        f"neighbours receive {sent:,} subscribes, {exposed:,} of them exposed by removals, and "
        f"{facts['withdrawn']:,} unsubscribes; "
        f"{facts['silent']:,} commands send them nothing. {facts['live']:,} "
        f"subscriptions are live, {facts['uncovered']:,} of them uncovered"
    )
    run.done(counted(len(todo.words), "command"), len(todo.words), facts, [detail])


def merge_commands(
    run: Run,
    summary: Summary,
    todo: Commands,
    facts: dict[str, Any],
    *,
    ranges: Path | None,
    save: Path | None,
    overwrite: bool,
) -> None:
    """Apply commands; write the ranges to add and to drop, and finally the summary."""
    with run.task("doing commands"):
        table = summary.update_many(todo).table()
    run.write(table, run.output)
    starts, ends = summary.ranges()
    run.write(pa.table({"start": starts, "end": ends}), ranges)
    if save is not None:
        summary.save(save, overwrite=overwrite)
    added = int(pc.sum(pc.equal(table["action"], "add")).as_py() or 0)
    silent = len(todo.words) - len(table["command"].unique())
    facts |= {
        "commands": len(todo.words),
        "added": added,
        "dropped": len(table) - added,
        "silent": silent,
        "live": len(summary),
        "ranges": len(starts),
        "ranges_file": ranges,
        "saved": save,
        "cells_digest": summary.cells.digest,
    }
    detail = (
        f"neighbours receive {counted(added, 'range')} to add and {len(table) - added:,} to drop; "
        f"{silent:,} commands send them nothing. {counted(len(summary), 'subscription')} "
        f"sum to {counted(len(starts), 'range')}"
    )
    run.done(counted(len(todo.words), "command"), len(todo.words), facts, [detail])
