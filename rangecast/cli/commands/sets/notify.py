"""`rangecast notify`: the messages that keep every interest's top-k list up to date."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rangecast.cli.shared.option_groups import PlannedEngine, RowOptions
from rangecast.cli.shared.options import (
    Algorithm,
    BoardInterests,
    BoardObjects,
    BoardSpace,
    ListLength,
    Output,
    UpperBoundAttribute,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from rangecast.kernels.arrays import I64
    from rangecast.notify.board import Board
    from rangecast.notify.messages import Messages
    from rangecast.notify.tables import Change


def notify(
    objects: BoardObjects,
    updates: Annotated[
        Path,
        typer.Argument(
            help="Updates in order: id, value and optionally position (with --space: the "
            "attributes that change). Without a value the object is removed; with a position, a "
            "new id is added there and a known one moved. - is stdin."
        ),
    ],
    interests: BoardInterests,
    on: PlannedEngine,
    options: RowOptions,
    k: ListLength = 10,
    space: BoardSpace = None,
    upper_bound_attribute: UpperBoundAttribute = None,
    lists: Annotated[
        Path | None,
        typer.Option("--lists", help="Write the final lists: interest, rank, object, value."),
    ] = None,
    changes: Annotated[
        Path | None,
        typer.Option(
            "--changes",
            help="Write the changes of lists: seq, interest, change (entered, left, moved, "
            "changed), object, rank, rank_before, value; - is stdout.",
        ),
    ] = None,
    algorithm: Annotated[
        Algorithm,
        typer.Option(
            "--algorithm",
            help="dense: uses only the objects; sparse: fewer messages, also uses the interests; "
            "batch and batch-dense: like sparse and dense, with the net messages of each batch.",
        ),
    ] = "sparse",
    epsilon: Annotated[
        float | None,
        typer.Option("--epsilon", help="0 < e <= 1: fewer messages, a few of them unnecessary."),
    ] = None,
    batch_size: Annotated[
        int | None,
        typer.Option(
            "--batch-size",
            min=1,
            help="Updates per batch (default 1000), for --algorithm batch and batch-dense.",
        ),
    ] = None,
    sketch: Annotated[
        int | None,
        typer.Option("--sketch", min=1, help="Approximate the interests by this many rectangles."),
    ] = None,
    descending: Annotated[
        bool,
        typer.Option("--descending", help="Rank the highest value first instead of the lowest."),
    ] = False,
    verify: Annotated[
        bool,
        typer.Option(
            "--verify", help="Apply all messages, and verify every list by recomputing it."
        ),
    ] = False,
    output: Output = "-",
) -> None:
    """Write the messages that keep top-k lists up to date: seq, ordinal, object, position, value.

    An interest [l, r] is reached iff left_outer < l <= left_inner and right_inner <= r <
    right_outer; an end without a bound counts as 1.7976931348623157e308 or its negative. Messages
    are applied in the order of seq, the row of the update (or the number of the batch), and
    ordinal, the number of the message within it. With --space, a box is reached iff
    <attribute>_low_from <= lo <= <attribute>_low_to and <attribute>_high_from <= hi <=
    <attribute>_high_to for every attribute. Of a shape or arithmetic, lo and hi are its number,
    from 0 in the order in which interests mention it.

    --changes writes the effect of the messages on the lists: one row per object that enters, leaves
    or moves in the list of an interest, or changes its value there.

    Each update depends on those before it, so one process computes the messages. With --engine
    spark and --verify, the workers apply them to the lists and verify the lists.

    \b
    Examples:
      rangecast notify objects.csv updates.csv interests.csv --top 5 --verify -o messages.csv
      rangecast notify objects.csv updates.csv interests.csv -o messages.csv --changes -
      rangecast notify objects.csv updates.csv interests.csv --algorithm batch --batch-size 100
      rangecast notify flats.csv rents.csv wishes.csv --space space.toml -k 5 --lists lists.csv
      rangecast notify flats.csv rents.csv wishes.csv --space space.toml \\
        --upper-bound-attribute price -o sent.csv
    """
    from contextlib import ExitStack

    from rangecast.cli.shared.output import counted
    from rangecast.cli.shared.run import Run
    from rangecast.cli.tasks.board_files import BoardFiles
    from rangecast.errors import UsageError
    from rangecast.model.io.writer import TableWriter
    from rangecast.notify.board import Board
    from rangecast.notify.changes import ListChanges
    from rangecast.notify.tables import message_rows

    if on.is_spark and not verify:
        raise UsageError(
            "--engine spark has no effect here: one process computes the messages, and Spark only "
            "verifies lists\n  hint: pass --verify, or leave out --engine; "
            "rangecast.spark.TopKLists maintains lists on Spark"
        )
    in_batches = algorithm in ("batch", "batch-dense")
    if batch_size is not None and not in_batches:
        raise UsageError(
            f"--batch-size is only for batch and batch-dense; the algorithm is {algorithm}\n"
            "  hint: pass --algorithm batch, or leave out --batch-size"
        )
    size = (batch_size or _BATCH) if in_batches else None
    if space is not None and algorithm == "batch-dense":
        raise UsageError(
            "batch-dense is for a single position and can't be combined with --space\n"
            "  hint: --algorithm batch"
        )
    with Run.started(
        output, reads=[objects, updates, interests, space], tables=[lists, changes], options=options
    ) as run:
        files = BoardFiles(run, (objects, updates, interests), space, upper_bound_attribute)
        things, wanted = files.objects, files.interests
        is_dense = algorithm in ("dense", "batch-dense")
        board = Board(
            files.max_k(k),
            space=files.space,
            upper_bound_attribute=upper_bound_attribute,
            objects=things,
            interests=wanted,
            algorithm="dense" if is_dense else "sparse",
            epsilon=epsilon,
            sketch=sketch,
            descending=descending,
        )
        plan, why = board.plan
        if on.explain_plan:
            run.say(f"plan: {plan}: {why}")
        list_changes = None if changes is None else ListChanges(board, files.kind)
        kept = None
        if verify and not on.is_spark:
            kept = board.lists() if list_changes is None else list_changes.lists
        sent: list[Messages] = []
        schema = files.tables.message_schema(files.kind)
        steps = files.read_updates(board.objects.__contains__)
        count = batches = 0
        with ExitStack() as open_files, run.task("painting updates") as advance:
            writer = open_files.enter_context(run.writer(schema))
            if list_changes is not None:
                change_writer = open_files.enter_context(
                    TableWriter(str(changes), list_changes.schema)
                )
            for updates_done, messages, seq in _painted(board, steps, size):
                if list_changes is not None:
                    change_writer.write(list_changes.apply(messages, seq, updates_done))
                elif kept is not None:
                    kept.deliver(messages)
                if verify and kept is None:
                    sent.append(messages)
                if len(messages):
                    writer.write(message_rows(messages, schema, seq))
                painted = sum(map(len, updates_done))
                count, batches = count + painted, batches + (size is not None)
                advance(painted, files.updates.reading)
        wrong = 0 if kept is None else len(board.mismatches(kept))
        if lists is not None:
            run.write(board.list_table(), lists)
        if on.is_spark:
            from rangecast.spark.steps.notify.verify_lists import SentMessages, mismatches

            all_sent = SentMessages(
                files.space, board.k, descending, things, board.table(), wanted, sent
            )
            with run.task("verifying lists on Spark"):
                wrong = mismatches(run.spark(on.master), all_sent)
        facts = {
            "updates": count,
            "objects": len(board.objects),
            "interests": len(board),
            "k": board.k,
            "algorithm": algorithm,
            "descending": descending,
            "plan": f"{plan}: {why}",
            "messages": writer.rows,
            "changes": None if list_changes is None else change_writer.rows,
            "batches": batches,
            "verified": verify,
            "mismatches": wrong,
            "calls": board.work._asdict(),
        }
        text = (
            f"{counted(count, 'update')} of {counted(len(board.objects), 'object')} for "
            f"{counted(len(board), 'interest')}: {counted(writer.rows, 'message')}"
        )
        if list_changes is not None:
            text += f", {counted(change_writer.rows, 'change')} of lists"
        right = ["all lists equal the recomputed ones"] if verify and not wrong else []
        run.done(text, count, facts, right)
    if wrong:
        raise RuntimeError(f"{wrong:,} lists differ from the recomputed ones")


_BATCH = 1000
"""Default number of updates per batch."""


def _painted(
    board: Board, painted: Iterable[tuple[I64, list[Change]]], size: int | None
) -> Iterator[tuple[list[list[Any]], Messages, I64]]:
    """Yield the objects of each update or batch, their messages, and the number of each message.

    With a batch size, updates are painted in batches, and messages are numbered by batch.
    """
    from itertools import chain, islice

    if size is None:
        for rows, changes in painted:
            first = board.seq
            messages = board.update_many(changes)
            yield [[change.id] for change in changes], messages, rows[messages.seq - first]
        return
    waiting = chain.from_iterable(changes for _, changes in painted)
    while batch := list(islice(waiting, size)):
        messages = board.update_batch(batch)
        yield [[change.id for change in batch]], messages, messages.seq
