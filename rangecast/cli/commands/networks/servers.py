"""`rangecast route servers`: objects spread over a row of servers, and how far their queries go."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from rangecast.cli.shared.option_groups import RowOptions
from rangecast.cli.shared.options import (
    BoardInterests,
    BoardObjects,
    BoardSpace,
    ListLength,
    Output,
)


def servers(
    objects: BoardObjects,
    updates: Annotated[
        Path,
        typer.Argument(
            help="Updates in order: id, value and optionally position, as `rangecast notify` takes "
            "them."
        ),
    ],
    interests: BoardInterests,
    options: RowOptions,
    space: BoardSpace = None,
    zone_attribute: Annotated[
        str | None,
        typer.Option(
            "--zone-attribute",
            help="With --space: the attribute whose ranges servers own; the first one by default.",
        ),
    ] = None,
    k: ListLength = 10,
    number: Annotated[
        int, typer.Option("--servers", min=1, max=1000, help="Number of servers.")
    ] = 4,
    processes: Annotated[
        bool,
        typer.Option(
            "--processes",
            help="Run each server in a process of its own, linked over loopback; else all servers "
            "run in this one.",
        ),
    ] = False,
    algorithm: Annotated[
        Literal["dense", "sparse"],
        typer.Option(
            "--algorithm",
            help="dense: uses only the objects; sparse: fewer messages, also uses the interests.",
        ),
    ] = "sparse",
    batch_size: Annotated[
        int,
        typer.Option(
            "--batch-size",
            min=1,
            help="Updates per batch: of updates of one object that follow one another in a batch, "
            "only the last is made.",
        ),
    ] = 1,
    output: Output = "-",
) -> None:
    """Measure updates of objects that are spread over a row of servers that share nothing.

    Each server has the objects of a range of positions, or of values of one attribute. The server
    of an updated object asks its neighbours for the objects that matter, and sends the messages.

    Writes one row: servers, updates, changes (updates that were made), messages, first_k and min_y
    (queries), first_k_hops and min_y_hops (further servers that they visited), and max_objects (on
    one server, at the end). With --space, the queries are counted as queries, hops (further servers
    that they visited) and rivals (objects in the answers).

    \b
    Examples:
      rangecast generate topk --objects 2000 --interests 5000 --updates 500 -o data
      rangecast route servers data/objects.parquet data/updates.parquet data/interests.parquet
      rangecast route servers data/objects.parquet data/updates.parquet data/interests.parquet \\
        --servers 3 --processes --batch-size 50
      rangecast route servers flats.csv rents.csv wishes.csv --space space.toml \\
        --zone-attribute price
    """
    from itertools import chain, islice

    import pyarrow as pa

    from rangecast.cli.shared.output import counted
    from rangecast.cli.shared.run import Run
    from rangecast.cli.tasks.board_files import BoardFiles
    from rangecast.notify.servers.processes import ServerProcesses
    from rangecast.notify.servers.servers import Servers

    with Run.started(output, reads=[objects, updates, interests, space], options=options) as run:
        files = BoardFiles(run, (objects, updates, interests), space)
        most = files.max_k(k)
        settings: dict[str, Any] = {"objects": files.objects, "interests": files.interests}
        settings |= {"algorithm": algorithm, "space": files.space, "zone_attribute": zone_attribute}
        with run.task("starting servers"):
            row = (ServerProcesses if processes else Servers)(most, number, **settings)
        waiting = chain.from_iterable(
            changes for _, changes in files.read_updates(row.__contains__)
        )
        count = messages = 0
        with row, run.task("updating") as advance:
            while batch := list(islice(waiting, batch_size)):
                messages += len(row.update_batch(batch))
                count += len(batch)
                advance(len(batch), files.updates.reading)
            row.settle()
            facts = {
                "servers": number,
                "updates": count,
                "changes": row.seq,
                "messages": messages,
                **row.walks._asdict(),
                "max_objects": max(row.sizes),
            }
        schema = pa.schema([(name, pa.int64()) for name in facts])
        with run.writer(schema) as writer:
            columns = [pa.array([value]) for value in facts.values()]
            writer.write(pa.record_batch(columns, schema=schema))
        text = f"{counted(count, 'update')} on {counted(number, 'server')}"
        run.done(
            f"{text}: {counted(messages, 'message')}",
            count,
            facts | {"processes": processes, "batch_size": batch_size, "k": most},
        )
