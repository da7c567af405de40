"""`rangecast merge`: summaries of subscriptions for several settings, and the recommended one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rangecast.cli.shared.option_groups import BothOptions, EngineOptions
from rangecast.cli.shared.options import (
    CommandsFile,
    OptionalSubscriptionsFile,
    Output,
    Overwrite,
    Plot,
    SpaceFile,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from rangecast.cli.shared.run import Run
    from rangecast.kernels.arrays import F64, Bool
    from rangecast.merge.tuning import Outcome, Recommendation, Sample
    from rangecast.model.boxes import Boxes
    from rangecast.model.space import Space

_MAX_EVENTS = 20_000
"""Maximum number of sample events measured."""


def merge(
    space: SpaceFile,
    on: EngineOptions,
    options: BothOptions,
    max_ranges: Annotated[
        int, typer.Option("--max-ranges", min=1, help="Maximum number of ranges of a summary.")
    ],
    subscriptions: OptionalSubscriptionsFile = None,
    commands: CommandsFile = None,
    events: Annotated[
        Path | None,
        typer.Option("--events", help="Sample events, to measure false positives; - is stdin."),
    ] = None,
    weighting_events: Annotated[
        Path | None,
        typer.Option(
            "--weighting-events",
            help="Close gaps with few of these events first, instead of the shortest gaps.",
        ),
    ] = None,
    output: Output = "-",
    ranges: Annotated[
        Path | None,
        typer.Option("--ranges", help="Write the ranges of the recommended setting: start, end."),
    ] = None,
    bounding: Annotated[
        Path | None,
        typer.Option(
            "--bounding-boxes",
            help="Write at most --max-ranges boxes that contain all subscriptions: id, filter.",
        ),
    ] = None,
    save: Annotated[
        Path | None,
        typer.Option("--save", help="Save the summary as a folder, for Summary.open in Python."),
    ] = None,
    overwrite: Overwrite = False,
    redundant: Annotated[
        Path | None,
        typer.Option(
            "--redundant", help="Write the subscriptions that add no ranges to those before them."
        ),
    ] = None,
    plot: Plot = None,
    max_attributes: Annotated[
        int, typer.Option("--max-attributes", min=1, help="Try 1 to this many attributes.")
    ] = 4,
    max_ranges_per_subscription: Annotated[
        int,
        typer.Option(
            "--max-ranges-per-subscription", min=1, help="Maximum ranges of one subscription."
        ),
    ] = 64,
) -> None:
    """Summarize subscriptions as ranges: write the size and the false positives of each setting.

    A summary may have false positives, never false negatives. One row per setting: its attributes,
    bits and cells; its ranges, before and after they were joined to meet --max-ranges; the share of
    the space that they cover; how many sample events pass, and how many of these match a
    subscription; whether the setting is recommended.

    For the recommended setting, --ranges writes the ranges, --save the whole summary as a folder,
    and --redundant the subscriptions that add nothing to the ranges of those before them.

    Ranges are joined over their shortest gaps. With --weighting-events, the gaps with the fewest of
    these events are closed first: if some values are much more frequent than others, that gives far
    fewer false positives. Use other events than for --events, which measure the result.

    With --commands, write what each command advertises to the neighbours of a broker instead:
    command (its row, from 0), action (add, drop), start, end. The setting is the one recommended
    for SUBSCRIPTIONS, or, without them, for all subscriptions in the commands. --ranges and --save
    then write the final state.

    --bounding-boxes writes another kind of summary: plain boxes, as filters that any other program
    can use. They have more false positives than ranges, unless subscriptions lie in a few clusters.

    \b
    Examples:
      rangecast merge subscriptions.csv --space space.toml --max-ranges 1000 -o settings.csv
      rangecast merge subscriptions.csv --space space.toml --max-ranges 1000 \\
          --events events.csv --ranges ranges.parquet --plot trade.svg
      rangecast merge subscriptions.csv --space space.toml --max-ranges 1000 \\
          --commands commands.csv -o messages.csv
    """
    import pyarrow as pa

    from rangecast.cli.shared.output import counted
    from rangecast.cli.shared.run import Run
    from rangecast.cli.tasks.edit_commands import check_commands, merge_commands, read_both
    from rangecast.errors import UsageError
    from rangecast.merge import Summary, bounding_boxes, tuning
    from rangecast.model.snapshot import check_free
    from rangecast.report.merge import draw, table_of

    without = {
        "--weighting-events": weighting_events,
        "--bounding-boxes": bounding,
        "--redundant": redundant,
    }
    unused = {name: value is not None for name, value in [*without.items(), ("--plot", plot)]}
    unused["--engine spark"] = on.is_spark
    check_commands(subscriptions, commands, unused if commands is not None else {})
    if save is not None:
        check_free(save, overwrite=overwrite)
    if weighting_events is not None and events is not None and _is_same(weighting_events, events):
        raise UsageError(
            f"--weighting-events and --events are both {events}: the measured pass rate would be "
            "too optimistic\n"
            "  hint: split the file, and give one half to each"
        )
    with Run.started(
        output,
        reads=[subscriptions, space, events, weighting_events, commands],
        tables=[ranges, bounding, redundant],
        pictures=[plot],
        options=options,
    ) as run:
        where = run.space(space)
        first, todo = None, None
        if commands is not None:
            first, todo = read_both(run, where, subscriptions, commands)
            boxes = todo.boxes if first is None else first
        elif subscriptions is not None:
            boxes = run.subscriptions(subscriptions, where)
        sample = None
        if events is not None:
            points = _points(run, events, where)
            points = points[:: max(1, -(-len(points) // _MAX_EVENTS))]
            sample = tuning.Sample(points, _matched(boxes, points))
        weights = None if weighting_events is None else _points(run, weighting_events, where)
        union = None
        if on.is_spark:
            from rangecast.spark.steps.merge import union_by_workers

            union = union_by_workers(run.spark(on.master), boxes, max_ranges_per_subscription)
        with run.task("trying settings") as advance:
            recommendation = tuning.recommend(
                boxes,
                where,
                max_ranges,
                sample,
                max_attributes=max_attributes,
                max_ranges_per_subscription=max_ranges_per_subscription,
                union=union,
                weighting_events=weights,
                progress=advance,
            )
        best, cells = recommendation.best, recommendation.summary.cells
        if todo is not None:
            before = boxes.take([]) if first is None else first
            live = Summary.of(
                before,
                where,
                cells=cells,
                max_ranges_per_subscription=max_ranges_per_subscription,
                gap=best.gap,
            )
            facts = {"subscriptions": len(live), "recommended": best.setting._asdict()}
            merge_commands(run, live, todo, facts, ranges=ranges, save=save, overwrite=overwrite)
            return
        table = table_of(recommendation)
        run.write(table, output)
        starts, ends = recommendation.summary.ranges()
        run.write(pa.table({"start": starts, "end": ends}), ranges)
        if save is not None:
            recommendation.summary.save(save, overwrite=overwrite)
        details = [_sentence(best, boxes.rows)]
        hulls = None
        if bounding is not None:
            hulls = bounding_boxes(boxes, where, max_ranges)
            run.write(_filters(hulls, where), bounding)
            details.append(_hull_summary(hulls, sample))
        needless = None
        if redundant is not None:
            adds_nothing = pa.array(
                tuning.redundant(where, boxes, cells, max_ranges_per_subscription)
            )
            needless = boxes.ids.filter(adds_nothing)
            run.write(pa.table({"subscription": needless}), redundant)
            details.append(f"{len(needless):,} of them add nothing to the earlier ones")
        if plot is not None:
            draw(plot, recommendation, max_ranges)
        if not recommendation.is_worth_it:
            details[-1] += _verdict(recommendation, has_more=max_attributes < len(where))
        facts = {
            "subscriptions": boxes.rows,
            "events": best.events,
            "weighed_by": None if weights is None else len(weights),
            "settings": len(recommendation.outcomes),
            "ranges_file": ranges,
            "bounding_boxes_file": bounding,
            "bounding_boxes": None if hulls is None else hulls.rows,
            "saved": save,
            "redundant_file": redundant,
            "redundant": None if needless is None else len(needless),
            "plot": plot,
            "cells_digest": cells.digest,
            "pass_rate": best.pass_rate,
            "worth_it": recommendation.is_worth_it,
            "recommended": table.to_pylist()[recommendation.outcomes.index(best)],
        }
        text = f"{counted(boxes.rows, 'subscription')}, {counted(len(table), 'setting')} tried"
        run.done(text, None, facts, details)


def _is_same(path: Path, other: Path) -> bool:
    return path == other or (path.exists() and other.exists() and path.samefile(other))


def _points(run: Run, path: Path, space: Space) -> F64:
    """Return all events of a file."""
    import numpy as np

    batches = run.batches("reading events", run.events(path, space))
    return np.concatenate([np.zeros((0, len(space))), *(batch.points for batch in batches)])


def _matched(boxes: Boxes, points: F64) -> Bool:
    """Return which events lie in some box."""
    import numpy as np

    from rangecast.match.choose import build

    matched = np.zeros(len(points), np.bool_)
    for first, piece in build(boxes).stream(points):
        counts = np.diff(piece.offsets)
        matched[first : first + len(counts)] |= counts > 0
    return matched


def _filters(boxes: Boxes, space: Space) -> pa.Table:
    """Return boxes as a table of subscriptions."""
    import pyarrow as pa

    from rangecast.model.filters.formatting import text_of_bounds

    texts = [
        text_of_bounds(space, boxes.lo[[row]], boxes.hi[[row]]) for row in range(len(boxes.lo))
    ]
    return pa.table({"id": boxes.ids, "filter": texts})


def _hull_summary(hulls: Boxes, sample: Sample | None) -> str:
    """Return a sentence about the number of bounding boxes and their false positives."""
    from rangecast.cli.shared.output import counted

    text = counted(hulls.rows, "bounding box", "bounding boxes")
    if sample is None or not len(sample.points):
        return f"{text} contain all of them" if hulls.rows != 1 else f"{text} contains all of them"
    passed = _matched(hulls, sample.points).mean()
    return f"{passed:.1%} of the sample events pass {text}"


def _sentence(best: Outcome, rows: int) -> str:
    """Return a sentence about the recommended setting and its effect."""
    from rangecast.cli.shared.output import counted

    setting = best.setting
    text = (
        f"take {', '.join(setting.attributes)} with {setting.bits} bits and {setting.cells} cells: "
        f"{counted(rows, 'subscription')} sum{'s' if rows == 1 else ''} to "
        f"{counted(best.ranges, 'range')}, {best.coverage:.2%} of the space"
    )
    if best.all_ranges > best.ranges:
        text += f" ({best.all_ranges:,} before gaps up to {best.gap:,} were closed)"
    if best.passed:
        text += f"; {best.false_positives:.1%} of the sample events that pass are false"
    return text


def _verdict(recommendation: Recommendation, *, has_more: bool) -> str:
    """Return a remark that the summary saves hardly anything, and what might help."""
    best = recommendation.best
    passing = "sample events" if best.events else "space"
    text = f"\nmerging doesn't pay off on this data: {best.pass_rate:.1%} of the {passing} "
    text += "would still pass"
    if recommendation.matches_nearly_all:
        asked_for = best.matched / best.events
        return f"{text}; subscriptions match {asked_for:.1%} of them, which must pass"
    remedies = []
    if any(outcome.all_ranges > outcome.ranges for outcome in recommendation.outcomes):
        remedies.append("a larger --max-ranges")
    if has_more:
        remedies.append("a larger --max-attributes")
    return f"{text}; {' or '.join(remedies)} may filter out more" if remedies else text
