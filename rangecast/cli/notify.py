"""`rangecast notify`: the messages that keep every interest's top-k list up to date."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rangecast.cli.options import BadRowsFile, Json, Output, Quiet


def notify(
    objects: Annotated[Path, typer.Argument(help="Objects: id, x, y.")],
    updates: Annotated[
        Path,
        typer.Argument(
            help="Updates in order: id, y and perhaps x. No y deletes; with an x, a new id is "
            "inserted and a known one moved."
        ),
    ],
    interests: Annotated[
        Path, typer.Argument(help="Interests: id, x_lo, x_hi and perhaps k; null is unbounded.")
    ],
    k: Annotated[
        int, typer.Option("-k", min=1, max=1 << 16, help="Objects in a list, where none is given.")
    ] = 10,
    algorithm: Annotated[
        str,
        typer.Option(
            "--algorithm",
            help="dense: from the objects alone; sparse: fewer messages, knowing the interests; "
            "batch: as sparse, and only what the end of each batch needs.",
        ),
    ] = "sparse",
    epsilon: Annotated[
        float | None,
        typer.Option("--epsilon", help="1/k to 1: fewer messages, some of them in vain."),
    ] = None,
    batch_size: Annotated[
        int, typer.Option("--batch-size", min=1, help="Updates in a batch, for --algorithm batch.")
    ] = 1000,
    sketch: Annotated[
        int | None,
        typer.Option("--sketch", min=1, help="Know the interests only as so many rectangles."),
    ] = None,
    check: Annotated[
        bool,
        typer.Option("--check", help="Apply all messages and compare every list with a new one."),
    ] = False,
    output: Output = "-",
    bad_rows: BadRowsFile = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Write the messages of all updates: seq, position, object, x, y and whom they reach.

    An interest [l, r] is reached iff left_outer < l <= left_inner and right_inner <= r <
    right_outer. Messages are applied in the order of seq, the row of the update (or the number of
    the batch), and position.
    """
    import time

    import numpy as np

    from rangecast.cli.job import check_outputs
    from rangecast.cli.output import console, per_second, progress, summary
    from rangecast.errors import UsageError, near
    from rangecast.kernels.jit import is_cold
    from rangecast.model.badrows import BadRows
    from rangecast.model.files import TableWriter
    from rangecast.notify import tables
    from rangecast.notify.board import ALGORITHMS, Board
    from rangecast.notify.given import Change
    from rangecast.notify.messages import Messages
    from rangecast.notify.subscriber import Lists

    known = (*ALGORITHMS, "batch")
    if algorithm not in known:
        raise UsageError(f"no algorithm {algorithm!r}: {near(algorithm, known)}")
    check_outputs([output, bad_rows], [objects, updates, interests])
    began = time.perf_counter()
    count = batches = 0
    with BadRows(bad_rows) as bad, progress(quiet=quiet or as_json) as bars:
        kind = tables.common_id_type(objects, updates)
        things = tables.read_objects(objects, kind, bad)
        reading = bars.add_task("reading interests", total=None)
        wanted, largest = tables.read_interests(
            interests, bad, lambda rows: bars.advance(reading, rows)
        )
        bars.remove_task(reading)
        if is_cold("notify") and not (quiet or as_json):
            console.print("compiling kernels: only the first time, for some seconds")
        board = Board(
            max(k, largest),
            things,
            wanted,
            algorithm="dense" if algorithm == "dense" else "sparse",
            epsilon=epsilon,
            sketch=sketch,
        )
        lists = Lists.now(board.objects, board.interests, board.k) if check else None
        schema = tables.message_schema(kind)
        task = bars.add_task("painting updates", total=None)
        with TableWriter(output, schema) as writer:

            def send(messages: Messages, seq: np.ndarray) -> None:
                if lists is not None:
                    lists.deliver(messages)
                if len(messages):
                    writer.write(tables.message_rows(messages, schema, seq))

            waiting: list[Change] = []
            for rows, changes in tables.read_updates(updates, kind, board.has, bad):
                count += len(changes)
                if algorithm == "batch":
                    waiting += changes
                    while len(waiting) >= batch_size:
                        batch, waiting = waiting[:batch_size], waiting[batch_size:]
                        messages = board.apply(batch)
                        send(messages, messages.seq)
                        batches += 1
                else:
                    first = board.seq
                    messages = board.run(changes)
                    send(messages, rows[messages.seq - first])
                bars.advance(task, len(changes))
            if waiting:
                messages = board.apply(waiting)
                send(messages, messages.seq)
                batches += 1
    wrong = 0
    if lists is not None:
        wrong = len(lists.wrong(board.objects))
    seconds = time.perf_counter() - began
    facts = {
        "updates": count,
        "objects": board.objects.count,
        "interests": board.interests.count,
        "k": board.k,
        "algorithm": algorithm,
        "messages": writer.rows,
        "batches": batches,
        "bad_rows": bad.count,
        "checked": check,
        "wrong_lists": wrong,
        "seconds": round(seconds, 3),
        "output": output,
        "calls": board.work._asdict(),
    }
    text = (
        f"{count:,} updates of {board.objects.count:,} objects for {board.interests.count:,} "
        f"interests: {writer.rows:,} messages in {seconds:.2f} s ({per_second(count, seconds)})"
    )
    if check and not wrong:
        text += "; all lists equal a recomputation"
    if bad_rows is not None:
        text += f"; {bad.count:,} bad rows set aside in {bad_rows}"
    summary(text, facts, as_json=as_json, quiet=quiet)
    if wrong:
        raise RuntimeError(f"{wrong:,} lists differ from a recomputation")
