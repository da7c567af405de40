"""`rangecast pipeline`: run a pipeline on Spark; ask history what a new filter would have found."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rangecast.cli.options import Json, Master, Output, Quiet, SpaceFile

app = typer.Typer(
    help="Pipelines on Spark, batch and streaming.", no_args_is_help=True, rich_markup_mode=None
)


@app.command("run")
def run(
    file: Annotated[Path, typer.Argument(help="The pipeline: a TOML file (docs/STREAMING.md).")],
    master: Master = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Run a pipeline to its end, or until Ctrl-C; it may be started again where it was."""
    from rangecast.cli.output import per_second, summary
    from rangecast.cli.progress import StreamProgress
    from rangecast.cli.spark import spark_session
    from rangecast.spark import Pipeline

    pipeline = Pipeline.load(file)
    settings = pipeline.spark
    output = "-" if any(sink.name == "console" for sink in pipeline.sinks) else None
    with (
        StreamProgress(
            as_json=as_json, quiet=quiet, doing="starting Spark", output=output
        ) as progress,
        spark_session(master or settings.master, settings.conf) as session,
    ):
        for sink in pipeline.sinks:
            progress.tell(f"{sink.name}: {sink.promise}")
        is_stream = pipeline.stream is not None
        progress.doing("waiting for the first batch" if is_stream else "matching all events")
        pipeline.run(session, progress.batch)
    totals = progress.totals
    text = (
        f"batches: {totals['batches']:,}; {totals['events']:,} events in, "
        f"{totals['matches']:,} matches out, {totals['bad_rows']:,} bad rows "
        f"({per_second(totals['events'], totals['seconds'])})"
    )
    facts = {**totals, "pipeline": file, "output": output}
    summary(text, facts, as_json=as_json, quiet=quiet)


@app.command("backfill")
def backfill(
    events: Annotated[
        Path, typer.Argument(help="History: a .csv, .jsonl or .parquet file, or a folder of them.")
    ],
    text: Annotated[str, typer.Option("--filter", help="The filter: price < 10 and ...")],
    space: SpaceFile,
    time: Annotated[
        str | None,
        typer.Option("--time", help="The column that dates an event; else the space's first."),
    ] = None,
    samples: Annotated[int, typer.Option("--samples", min=0, help="Events to show.")] = 5,
    output: Output = "-",
    master: Master = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Write how often a filter would have matched, by day: day, events, matches, bad_rows."""
    import json

    import pyarrow as pa

    from rangecast.cli.output import console, summary
    from rangecast.cli.progress import working
    from rangecast.cli.spark import spark_session
    from rangecast.model.files import write_table
    from rangecast.model.filters.filter import Filter
    from rangecast.model.space import Space
    from rangecast.spark import backfill as over_history
    from rangecast.spark import files_of

    known = Space.load(space)
    Filter.parse(text, known)  # a mistake in it is told before Spark is started
    history = files_of(events)
    keep = [] if time is None else [time]
    with (
        working("looking through history on Spark", quiet=quiet or as_json),
        spark_session(master) as session,
    ):
        days = over_history(
            history.read(session, known, keep, stream=False), text, known, time, samples
        )
    names = ("events", "matches", "bad_rows")
    counts = {name: [getattr(day, name) for day in days] for name in names}
    table = pa.table({"day": pa.array([day.day for day in days], pa.date32()), **counts})
    write_table(table, output)
    found = [sample for day in days for sample in day.samples]
    shown = found[:: max(1, len(found) // max(1, samples))][:samples]  # from all over the days
    totals = {name: sum(values) for name, values in counts.items()}
    if not (as_json or quiet):
        for sample in shown:
            console.print(json.dumps(sample, ensure_ascii=False), markup=False)
    share = 100 * totals["matches"] / max(1, totals["events"])
    line = (
        f"{totals['matches']:,} of {totals['events']:,} events match ({share:.2g}%), "
        f"on {sum(m > 0 for m in counts['matches']):,} of {len(days):,} days"
    )
    facts = {"filter": text, **totals, "days": len(days), "samples": shown, "output": output}
    summary(line, facts, as_json=as_json, quiet=quiet)
