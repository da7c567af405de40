"""`rangecast filter`: the events that a saved summary may match."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rangecast.cli.shared.option_groups import EventOptions
from rangecast.cli.shared.options import EventsFile, Output


def filter_(
    events: EventsFile,
    summary: Annotated[
        Path, typer.Argument(help="A summary: the folder that `rangecast merge --save` wrote.")
    ],
    options: EventOptions,
    output: Output = "-",
) -> None:
    """Write the events that may match some subscription, with all their columns.

    The summary includes its space and cells: neither the subscriptions nor the space file is
    needed. Every event that matches a subscription passes; some others pass as well (false
    positives).

    \b
    Examples:
      rangecast merge subscriptions.csv --space space.toml --max-ranges 1000 --save summary
      rangecast filter events.csv summary -o wanted.csv
    """
    import pyarrow as pa

    from rangecast.cli.shared.output import counted
    from rangecast.cli.shared.run import Run
    from rangecast.merge.summary import Summary
    from rangecast.model.io.files import one_table

    with Run.started(output, reads=[events], options=options) as run:
        loaded = Summary.open(summary)
        count, passed = 0, []
        with run.task("filtering events") as advance:
            source = run.events(events, loaded.space)
            for table, points in source.tables():
                count += len(points)
                if options.event_id not in (None, "id"):
                    table = table.drop_columns(["id"])  # a copy of that column
                passed.append(table.filter(pa.array(loaded.may_match_many(points))))
                advance(len(points), source.reading)
        result = one_table(events, passed)
        run.write(result, output)
        facts = {"events": count, "rows": len(result), "ranges": len(loaded.ranges())}
        run.done(f"{counted(count, 'event')}, of which {len(result):,} pass", count, facts)
