"""`rangecast cover`: which subscriptions are redundant, and what covers them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rangecast.cli.shared.option_groups import EngineOptions, SubscriptionOptions
from rangecast.cli.shared.options import (
    CommandsFile,
    CoverIndexOption,
    OptionalSubscriptionsFile,
    Output,
    Plot,
    SpaceFile,
)

if TYPE_CHECKING:
    from rangecast.report.cover import Redundancy


def cover(
    space: SpaceFile,
    on: EngineOptions,
    options: SubscriptionOptions,
    subscriptions: OptionalSubscriptionsFile = None,
    output: Output = "-",
    uncovered: Annotated[
        Path | None,
        typer.Option(
            "--uncovered", help="Write the uncovered subscriptions, with all their columns."
        ),
    ] = None,
    commands: CommandsFile = None,
    k: Annotated[
        str,
        typer.Option(
            "-k",
            metavar="[NUMBER|all|poset]",
            help="With --commands: coverers stored per subscription.",
        ),
    ] = "1",
    index: CoverIndexOption = "auto",
    plot: Plot = None,
) -> None:
    """Write the coverer of each subscription: subscription, covered_by (empty: uncovered).

    --uncovered writes the uncovered subscriptions as a file that other commands can read.

    With --commands, write what each command advertises to the neighbours of a broker instead:
    command (its row, from 0), action (subscribe, unsubscribe), subscription, exposed (whether it is
    sent because its coverer was removed). --uncovered then writes the uncovered ones at the end:
    id, filter. -k and --index change what a command costs, never a message.

    \b
    Examples:
      rangecast cover subscriptions.csv --space space.toml --uncovered uncovered.csv -o covered.csv
      rangecast cover subscriptions.csv --space space.toml --plot cover.svg
      rangecast cover --commands commands.csv --space space.toml -k 2 -o messages.csv
    """
    import pyarrow as pa

    from rangecast.cli.shared.output import counted
    from rangecast.cli.shared.run import Run
    from rangecast.cli.tasks.edit_commands import check_commands, cover_commands, read_both
    from rangecast.cover.coverset import CoverSet
    from rangecast.cover.warmup import begin
    from rangecast.model.answers.answerer import Choice
    from rangecast.model.io.files import BATCH_ROWS
    from rangecast.model.io.subset import rows_of
    from rangecast.report.cover import draw, redundancy

    unused = {"-k": k != "1", "--index": index != "auto"}
    if commands is not None:
        unused = {"--plot": plot is not None, "--engine spark": on.is_spark}
    check_commands(subscriptions, commands, unused)
    with Run.started(
        output,
        reads=[subscriptions, space, commands],
        tables=[uncovered],
        pictures=[plot],
        options=options,
    ) as run:
        where = run.space(space)
        if commands is not None:
            found_k = int(k) if k.isdecimal() else k
            live = CoverSet(where, index=index, k=found_k)
            cover_commands(run, live, read_both(run, where, subscriptions, commands), uncovered)
            return
        assert subscriptions is not None
        boxes = run.subscriptions(subscriptions, where)
        if not on.is_spark:
            compare, choice = begin(boxes)
            with run.task("comparing"):
                above = compare(boxes)
        else:
            from rangecast.cover.blocks.index import Blocks
            from rangecast.spark.steps.cover import covered_rows

            session = run.spark(on.master)
            with run.task("comparing on Spark"):
                above = covered_rows(session, boxes)
            choice = Choice(Blocks.name, "on Spark")
        coverers = pa.array(above, mask=above < 0)
        schema = pa.schema([("subscription", boxes.ids.type), ("covered_by", boxes.ids.type)])
        with run.writer(schema) as writer:
            for first in range(0, boxes.rows, BATCH_ROWS):
                names = boxes.ids.slice(first, BATCH_ROWS)
                by = boxes.ids.take(coverers.slice(first, BATCH_ROWS))
                writer.write(pa.record_batch([names, by], schema=schema))
        if uncovered is not None:
            run.write(
                rows_of(
                    run.file(subscriptions),
                    boxes.ids.filter(pa.array(above < 0)),
                    options.subscription_id or "id",
                ),
                uncovered,
            )
        summary = redundancy(where, boxes, above)
        if plot is not None:
            draw(plot, summary)
        if summary.redundant and not run.is_silent:
            _show(summary)
        facts = {
            "subscriptions": summary.subscriptions,
            "uncovered": summary.uncovered,
            "redundant": summary.redundant,
            "equal": summary.equal,
            "saved": round(summary.saved, 4),
            "coverers": [coverer._asdict() for coverer in summary.coverers],
            "by_attributes": [by_attribute._asdict() for by_attribute in summary.by_attributes],
            "uncovered_file": uncovered,
            "plot": plot,
            "index": choice.name,
            "plan": choice.why,
        }
        text = counted(summary.subscriptions, "subscription")
        run.done(text, summary.subscriptions, facts, [_sentence(summary)])


def _sentence(summary: Redundancy) -> str:
    """Return the result as a sentence, with a hint."""
    if not summary.redundant:
        return "none are redundant: advertise all of them"
    return (
        f"{summary.redundant:,} are redundant ({summary.saved:.1%}), "
        f"of which {summary.equal:,} equal an uncovered one. Advertise {summary.uncovered:,}: a "
        "neighbour "
        f"receives the same events and stores {summary.saved:.1%} fewer subscriptions"
    )


def _show(summary: Redundancy) -> None:
    """Show the main coverers, and redundancy by the number of attributes mentioned."""
    from rich.table import Table

    from rangecast.cli.shared.output import console

    table = Table(title="the biggest coverers", title_justify="left")
    for heading in ("subscription", "covers", "filter"):
        table.add_column(heading, justify="right" if heading == "covers" else "left")
    for coverer in summary.coverers:
        table.add_row(str(coverer.subscription), f"{coverer.covers:,}", coverer.filter)
    console.print(table, markup=False)
    table = Table(title="by attributes mentioned", title_justify="left")
    for heading in ("attributes", "subscriptions", "redundant", "share"):
        table.add_column(heading, justify="right")
    for group in summary.by_attributes:
        share = group.redundant / group.subscriptions
        cells = (group.attributes, f"{group.subscriptions:,}", f"{group.redundant:,}")
        table.add_row(*map(str, cells), f"{share:.0%}")
    console.print(table)
