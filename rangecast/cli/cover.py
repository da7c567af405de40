"""`rangecast cover`: which subscriptions are redundant, and what covers them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rangecast.cli.options import (
    BadRowsFile,
    IgnoreUnknown,
    Json,
    Output,
    Quiet,
    SpaceFile,
    SubscriptionsFile,
)

if TYPE_CHECKING:
    from rangecast.report.cover import Redundancy


def cover(
    subscriptions: SubscriptionsFile,
    space: SpaceFile,
    output: Output = "-",
    kept: Annotated[
        Path | None,
        typer.Option("--kept", help="Write the subscriptions to keep, with all their columns."),
    ] = None,
    plot: Annotated[
        Path | None, typer.Option("--plot", help="Draw the report: a .png or .svg file.")
    ] = None,
    bad_rows: BadRowsFile = None,
    ignore_unknown: IgnoreUnknown = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Write for each subscription what covers it: subscription, covered_by (empty: keep it).

    --kept writes those to keep as a file of subscriptions, which other commands take.
    """
    import time

    import pyarrow as pa

    from rangecast.cli.job import check_outputs, until_closed
    from rangecast.cli.output import compiling, counted, progress, summary, taken
    from rangecast.cover.batch import covered_by
    from rangecast.errors import UsageError
    from rangecast.model.badrows import BadRows
    from rangecast.model.files import BATCH_ROWS, TableWriter, format_of, write_table
    from rangecast.model.space import Space
    from rangecast.model.subscriptions import read_subscriptions
    from rangecast.model.subset import rows_of
    from rangecast.report.cover import draw, redundancy

    if plot is not None and plot.suffix.lower() not in (".png", ".svg"):
        raise UsageError(f"--plot takes a file that ends in .png or .svg; given: {plot}")
    if kept is not None:
        format_of(kept)  # refused before the work, not after it
    check_outputs([output, bad_rows, plot, kept], [subscriptions, space])
    where = Space.load(space)
    began = time.perf_counter()
    silent = quiet or as_json
    with (
        BadRows(bad_rows) as bad,
        progress(quiet=silent) as bars,
        compiling(quiet=silent) as compiled,
    ):
        reading = bars.add_task("reading subscriptions", total=None)
        boxes = read_subscriptions(
            subscriptions,
            where,
            bad_rows=bad,
            ignore_unknown=ignore_unknown,
            progress=lambda rows: bars.advance(reading, rows),
        )
        bars.remove_task(reading)
        bars.add_task("comparing", total=None)
        above = covered_by(boxes)
    coverers = pa.array(above, mask=above < 0)
    schema = pa.schema([("subscription", boxes.ids.type), ("covered_by", boxes.ids.type)])
    with until_closed(), TableWriter(output, schema) as writer:
        for first in range(0, boxes.rows, BATCH_ROWS):
            names = boxes.ids.slice(first, BATCH_ROWS)
            by = boxes.ids.take(coverers.slice(first, BATCH_ROWS))
            writer.write(pa.record_batch([names, by], schema=schema))
    if kept is not None:
        write_table(rows_of(subscriptions, boxes.ids.filter(pa.array(above < 0))), kept)
    seconds = time.perf_counter() - began
    found = redundancy(where, boxes, above)
    if plot is not None:
        draw(plot, found)
    facts = {
        "subscriptions": found.subscriptions,
        "kept": found.kept,
        "redundant": found.redundant,
        "equal": found.equal,
        "saved": round(found.saved, 4),
        "coverers": [one._asdict() for one in found.coverers],
        "by_attributes": [one._asdict() for one in found.by_attributes],
        "bad_rows": bad.count,
        "seconds": round(seconds, 3),
        "compiling": round(compiled.seconds, 3),
        "output": output,
        "kept_file": None if kept is None else str(kept),
        "plot": None if plot is None else str(plot),
    }
    text = (
        f"{counted(found.subscriptions, 'subscription')} "
        f"{taken(found.subscriptions, seconds, compiled.seconds)}; {_sentence(found)}"
    )
    if bad_rows is not None:
        text += f"; {counted(bad.count, 'bad row')} set aside in {bad_rows}"
    if found.redundant and not (quiet or as_json):
        _show(found)
    summary(text, facts, as_json=as_json, quiet=quiet)


def _sentence(found: Redundancy) -> str:
    """Return what was found, and what to do with it."""
    if not found.redundant:
        return "none is redundant: forward all of them"
    return (
        f"{found.redundant:,} are redundant ({found.saved:.1%}), of which {found.equal:,} are the "
        f"same as one that is kept. Forward {found.kept:,}: a neighbour receives the same events "
        f"and holds {found.saved:.1%} fewer subscriptions"
    )


def _show(found: Redundancy) -> None:
    """Show who covers most, and what is redundant by the number of attributes mentioned."""
    from rich.table import Table

    from rangecast.cli.output import console

    table = Table(title="the biggest coverers", title_justify="left")
    for heading in ("subscription", "covers", "filter"):
        table.add_column(heading, justify="right" if heading == "covers" else "left")
    for one in found.coverers:
        table.add_row(str(one.subscription), f"{one.covers:,}", one.filter)
    console.print(table, markup=False)
    table = Table(title="by attributes mentioned", title_justify="left")
    for heading in ("attributes", "subscriptions", "redundant", "share"):
        table.add_column(heading, justify="right")
    for group in found.by_attributes:
        share = group.redundant / group.subscriptions
        cells = (group.attributes, f"{group.subscriptions:,}", f"{group.redundant:,}")
        table.add_row(*map(str, cells), f"{share:.0%}")
    console.print(table)
