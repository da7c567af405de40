"""`rangecast pipeline`: run a pipeline on Spark; backfill a new filter over past events."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rangecast.cli.shared.option_groups import App, OutputOptions
from rangecast.cli.shared.options import Master, Output, SpaceFile
from rangecast.errors import FileError

app = App(help="Pipelines on Spark, batch and streaming.")


@app.command("run")
def run(
    file: Annotated[
        Path, typer.Argument(help="The pipeline: a TOML file (docs/how-to/streaming.md).")
    ],
    options: OutputOptions,
    master: Master = None,
) -> None:
    """Run a pipeline to its end or until Ctrl-C; a restart continues where it stopped.

    \b
    Examples:
      rangecast pipeline run pipeline.toml --master 'local[4]'
    """
    from rangecast.cli.shared.output import counted
    from rangecast.cli.shared.progress import StreamProgress, answers
    from rangecast.cli.shared.run import Run
    from rangecast.cli.shared.spark_session import spark_session
    from rangecast.spark import Pipeline

    pipeline = Pipeline.load(file)
    settings, is_stream = pipeline.settings.spark, pipeline.settings.stream is not None
    sinks = [sink for of_step in pipeline.sinks.values() for sink in of_step]
    output = "-" if any(sink.name == "console" for sink in sinks) else None
    with (
        Run.started(output, options=options) as run,
        StreamProgress(run, doing="starting Spark") as progress,
        spark_session(master or settings.master, settings.conf) as session,
    ):
        for sink in sinks:
            run.say(f"{sink.name}: {sink.promise}")
        progress.doing("waiting for the first batch" if is_stream else "processing all events")
        pipeline.run(session, progress.add_batch)
        totals = progress.totals
        text = (
            f"{counted(totals['batches'], 'batch', 'batches')}: {totals['events']:,} events in, "
            f"{answers(totals['steps'])} out, {counted(totals['rejected'], 'rejected row')}"
        )
        run.done(text, totals["events"], {**totals, "pipeline": file}, seconds=totals["seconds"])


@app.command("check")
def check(
    file: Annotated[
        Path, typer.Argument(help="The pipeline: a TOML file (docs/how-to/streaming.md).")
    ],
    options: OutputOptions,
) -> None:
    """Check a pipeline without starting Spark, and show its graph.

    \b
    Examples:
      rangecast pipeline check pipeline.toml
    """
    from rangecast.cli.shared.output import counted
    from rangecast.cli.shared.run import Run
    from rangecast.spark.stream.pipeline.graph import described, missing_files
    from rangecast.spark.stream.pipeline.pipeline import Pipeline

    pipeline = Pipeline.load(file)
    missing = missing_files(pipeline.graph)
    if missing:
        raise FileError(f"{file}: {missing[0]}")
    with Run.started(options=options) as run:
        lines = described(pipeline.graph)
        for line in lines:
            run.say(line)
        steps = counted(len(pipeline.graph.nodes), "step")
        run.done(f"{file}: {steps}, nothing wrong", None, {"pipeline": file, "steps": lines})


@app.command("schema")
def schema() -> None:
    """Print the JSON schema of pipeline files, for editors that complete and check TOML.

    \b
    Examples:
      rangecast pipeline schema > pipeline.schema.json
    """
    import json

    from rangecast.spark.stream.pipeline.settings import Settings
    from rangecast.spark.stream.pipeline.toml_file import json_schema

    typer.echo(json.dumps(json_schema(Settings), indent=2))


@app.command("backfill")
def backfill(
    events: Annotated[
        Path,
        typer.Argument(help="Past events: a .csv, .jsonl or .parquet file, or a folder of them."),
    ],
    text: Annotated[str, typer.Option("--filter", help="The filter: price < 10 and ...")],
    space: SpaceFile,
    options: OutputOptions,
    time: Annotated[
        str | None,
        typer.Option(
            "--time", help="The column with the time of an event (default: the first timestamp)."
        ),
    ] = None,
    samples: Annotated[
        int, typer.Option("--samples", min=0, help="Number of matching events to show.")
    ] = 5,
    output: Output = "-",
    master: Master = None,
) -> None:
    """Write how often a filter would have matched, by day: day, events, matches, rejected.

    \b
    Examples:
      rangecast pipeline backfill events.csv --filter 'price < 10' --space space.toml
    """
    import json

    import pyarrow as pa

    from rangecast.cli.shared.run import Run
    from rangecast.model.filters.filter import Filter
    from rangecast.spark import backfill as over_history
    from rangecast.spark import files_of

    with Run.started(output, reads=[events, space], options=options) as run:
        where = run.space(space)
        Filter.parse(text, where)  # a mistake in it is reported before Spark is started
        history = files_of(events)
        keep = [] if time is None else [time]
        session = run.spark(master)
        with run.task("searching the history on Spark"):
            read = history.read(session, where, keep, stream=False)
            days = over_history(read, text, where, time, samples)
        names = ("events", "matches", "rejected")
        counts = {name: [getattr(day, name) for day in days] for name in names}
        table = pa.table({"day": pa.array([day.day for day in days], pa.date32()), **counts})
        run.write(table, output)
        drawn = [sample for day in days for sample in day.samples]
        shown = drawn[:: max(1, len(drawn) // max(1, samples))][:samples]  # from all over the days
        totals = {name: sum(values) for name, values in counts.items()}
        for sample in shown:
            run.say(json.dumps(sample, ensure_ascii=False))
        share = 100 * totals["matches"] / max(1, totals["events"])
        line = (
            f"{totals['matches']:,} of {totals['events']:,} events match ({share:.2g}%), "
            f"on {sum(m > 0 for m in counts['matches']):,} of {len(days):,} days"
        )
        facts = {"filter": text, **totals, "days": len(days), "samples": shown}
        run.done(line, totals["events"], facts)
