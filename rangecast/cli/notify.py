"""`rangecast notify`: the messages that keep every interest's top-k list up to date."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rangecast.cli.options import BadRowsFile, Json, Output, Quiet, at_least


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
        int,
        typer.Option(
            "-k", callback=at_least(1, 1 << 16), help="Objects in a list, where none is given."
        ),
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
        int | None,
        typer.Option(
            "--batch-size",
            callback=at_least(1),
            help="Updates in a batch, for --algorithm batch; by default 1000.",
        ),
    ] = None,
    sketch: Annotated[
        int | None,
        typer.Option(
            "--sketch",
            callback=at_least(1),
            help="Know the interests only as so many rectangles.",
        ),
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
    from rangecast.cli.output import compiling, counted, progress, summary, taken
    from rangecast.errors import UsageError, one_of
    from rangecast.model.badrows import BadRows
    from rangecast.model.files import TableWriter
    from rangecast.notify import tables
    from rangecast.notify.board import ALGORITHMS, Board
    from rangecast.notify.given import Change
    from rangecast.notify.messages import Messages
    from rangecast.notify.subscriber import Lists

    known = (*ALGORITHMS, "batch")
    if algorithm not in known:
        raise UsageError(f"no algorithm {algorithm!r}: {one_of(algorithm, known)}")
    if batch_size is not None and algorithm != "batch":
        raise UsageError(
            f"--batch-size is for --algorithm batch, and the algorithm is {algorithm}\n"
            "  to do: pass --algorithm batch, or leave out --batch-size"
        )
    size = batch_size or _BATCH
    check_outputs([output, bad_rows], [objects, updates, interests])
    began = time.perf_counter()
    count = batches = 0
    silent = quiet or as_json
    with (
        BadRows(bad_rows) as bad,
        progress(quiet=silent, output=output) as bars,
        compiling(quiet=silent) as compiled,
    ):
        kind = tables.common_id_type(objects, updates)
        things = tables.read_objects(objects, kind, bad)
        reading = bars.add_task("reading interests", total=None)
        wanted, largest = tables.read_interests(
            interests, bad, lambda rows: bars.advance(reading, rows)
        )
        bars.remove_task(reading)
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
                    while len(waiting) >= size:
                        batch, waiting = waiting[:size], waiting[size:]
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
        "compiling": round(compiled.seconds, 3),
        "output": output,
        "calls": board.work._asdict(),
    }
    text = (
        f"{counted(count, 'update')} of {counted(board.objects.count, 'object')} for "
        f"{counted(board.interests.count, 'interest')}: {counted(writer.rows, 'message')} "
        f"{taken(count, seconds, compiled.seconds)}"
    )
    if check and not wrong:
        text += "; all lists equal a recomputation"
    if bad_rows is not None:
        text += f"; {counted(bad.count, 'bad row')} set aside in {bad_rows}"
    summary(text, facts, as_json=as_json, quiet=quiet)
    if wrong:
        raise RuntimeError(f"{wrong:,} lists differ from a recomputation")


_BATCH = 1000
"""Updates in a batch, if nothing else is said."""
