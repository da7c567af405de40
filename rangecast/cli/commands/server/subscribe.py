"""`rangecast subscribe` and `unsubscribe`: manage the subscriptions of a server."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rangecast.cli.shared.connection import AsJson, Connection, SpaceName
from rangecast.cli.shared.options import Quiet

if TYPE_CHECKING:
    from rangecast.client import Client
    from rangecast.errors import RejectedRow

WAIT = 1.0
"""Seconds that a request waits for messages; also the longest delay of Ctrl-C."""


def subscribe(
    at: Connection,
    filter: Annotated[  # noqa: A002
        str | None, typer.Argument(help="The filter: price < 20 and ...")
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option(
            "--file",
            help="Save all subscriptions of a .csv, .jsonl, .parquet or .arrow file: id and "
            "filter, or id, <attribute>_lo and _hi; score, weight_<attribute>, consumer.",
        ),
    ] = None,
    space: SpaceName = None,
    name: Annotated[
        str | None, typer.Option("--id", help="Id of the subscription (default: a generated one).")
    ] = None,
    consumer: Annotated[
        str | None,
        typer.Option("--consumer", help="Consumer of the matches (created if it doesn't exist)."),
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", help="Print events that match, as JSON, until Ctrl-C.")
    ] = False,
    rejected: Annotated[
        Path | None,
        typer.Option(
            "--rejected", help="With --file: write rejected rows to this file and save the others."
        ),
    ] = None,
    track: Annotated[
        bool, typer.Option("--track", help="Receive transitions of objects instead of matches.")
    ] = False,
    on: Annotated[
        list[str] | None,
        typer.Option(
            "--on", help="With --track: kinds of transitions: enter, exit, inside, dwell."
        ),
    ] = None,
    dwell: Annotated[
        str | None,
        typer.Option(
            "--dwell", help="With --track: report stays that reach this length, such as '10 min'."
        ),
    ] = None,
    confirm: Annotated[
        str | None,
        typer.Option(
            "--for",
            help="With --track: confirm enter and exit only after this time, such as '30 s'.",
        ),
    ] = None,
    first: Annotated[
        str | None,
        typer.Option(
            "--first",
            help="With --track: what to report for objects that are inside when first seen: "
            "enter, silent or inside.",
        ),
    ] = None,
    until: Annotated[
        str | None, typer.Option("--until", help="With --track: a filter that ends a stay.")
    ] = None,
    deduplicate: Annotated[
        str | None,
        typer.Option(
            "--deduplicate", help="With --track: suppress repeats for this time, such as '10 min'."
        ),
    ] = None,
    throttle: Annotated[
        str | None,
        typer.Option(
            "--throttle", help="With --track: limit transitions per object, such as '3 per 1 h'."
        ),
    ] = None,
    renotify: Annotated[
        str | None,
        typer.Option(
            "--renotify",
            help="With --track: repeat the report of a stay at this interval, such as '2 h'.",
        ),
    ] = None,
    digest: Annotated[
        str | None,
        typer.Option(
            "--digest",
            help="With --track: deliver in digests, at '08:00 Mon-Fri Europe/Berlin' or 100 at a "
            "time.",
        ),
    ] = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Save a subscription, or a file of them, on a server. With --follow, print matches.

    With --follow alone, the subscription ends with the command. With --id or --consumer it stays,
    and the next --follow continues where this one ended.

    With --file, a row whose id exists replaces that subscription. The first rejected row ends the
    command, unless --rejected is given.

    \b
    Examples:
      rangecast subscribe "price < 20 and sector = 'tech'" --follow
      rangecast subscribe "price < 20" --id cheap --consumer alerts
      rangecast subscribe --file fences.csv --consumer fleet --rejected rejected.csv
      rangecast subscribe "speed > 80" --track --for '30 s' --follow
      rangecast subscribe "speed > 80" --track --throttle '3 per 1 h' --digest '08:00 Europe/Berlin'
    """
    from rangecast.cli.shared.policies import policy_of
    from rangecast.errors import UsageError

    rule: dict[str, Any] = {"on": on, "dwell": dwell, "for": confirm, "first": first}
    rule["until"] = until
    policy = policy_of(deduplicate, throttle, renotify, digest)
    rule = {option: value for option, value in rule.items() if value}
    for option in [] if track else [*rule, *policy]:
        raise UsageError(f"--{option} requires --track\n  hint: add --track, or leave it out")
    rule |= {"policy": policy} if policy else {}
    _check(filter, file, {"--id": name, "--follow": follow, "--track": track}, rejected)
    rule_ = rule if track else None
    with at.client_in(space) as client:
        if file is not None:
            _load(client, file, consumer, rejected, as_json=as_json, quiet=quiet)
        elif follow and name is None and consumer is None:
            _watch(client, filter or "", rule_)
        else:
            _save(client, filter or "", name, consumer, rule_, follow=follow, as_json=as_json)


def _check(
    filter: str | None,  # noqa: A002
    file: Path | None,
    single: dict[str, Any],
    rejected: Path | None,
) -> None:
    """Reject options that exclude each other."""
    from rangecast.errors import UsageError

    if (filter is None) == (file is None):
        raise UsageError("give either a filter or --file FILE\n  hint: see --help")
    if filter is not None and Path(filter).is_file():
        raise UsageError(f"{filter} is a file, not a filter\n  hint: pass it with --file {filter}")
    for option, value in single.items():
        if file is not None and value:
            raise UsageError(
                f"{option} is only for a single filter, not for --file\n  hint: leave it out"
            )
    if rejected is not None and file is None:
        raise UsageError("--rejected requires --file\n  hint: leave it out")


def _save(
    client: Client,
    filter: str,  # noqa: A002
    name: str | None,
    consumer: str | None,
    track: dict[str, Any] | None,
    *,
    follow: bool,
    as_json: bool,
) -> None:
    """Save a subscription and its consumer, both or neither; follow the consumer."""
    import json
    import secrets

    from rangecast.cli.signals import until_interrupted

    name = name or f"subscription-{secrets.token_hex(4)}"
    consumer = consumer or f"{name}-follow"
    client.upsert(name, filter, consumer=consumer, create_consumer=True, track=track)
    if not follow:
        if as_json:
            print(json.dumps({"id": name, "consumer": consumer}))
        else:
            what = "matches" if track is None else "transitions"
            print(f"{name} is saved; its {what} are delivered to the consumer {consumer}.")
        return
    with until_interrupted() as is_over:
        while not is_over():
            page = client.messages(consumer, wait=WAIT)
            for message in page.items:
                print(json.dumps(message._asdict(), default=str), flush=True)
            client.acknowledge(consumer, page.position)


def _watch(client: Client, filter: str, track: dict[str, Any] | None) -> None:  # noqa: A002
    """Print events that match a filter; the server stores nothing."""
    import json

    from rangecast.cli.signals import until_interrupted

    with until_interrupted() as is_over, client.watch(filter, track=track) as watch:
        while not is_over():
            message = watch.next(WAIT)
            if message is not None:
                print(json.dumps(message._asdict(), default=str), flush=True)


def _load(
    client: Client,
    file: Path,
    consumer: str | None,
    rejected: Path | None,
    *,
    as_json: bool,
    quiet: bool,
) -> None:
    """Save the subscriptions of a file."""
    import json
    import time
    from contextlib import ExitStack

    import pyarrow as pa

    from rangecast.cli.shared.output import counted, progress, taken
    from rangecast.client import SubscribeError
    from rangecast.errors import RejectedRowError, UsageError
    from rangecast.model.io.writer import TableWriter

    began = time.monotonic()
    bad: list[RejectedRow] | None = None if rejected is None else []
    with ExitStack() as open_files:
        texts = ("column", "value", "reason", "remedy")
        schema = pa.schema([("row", pa.int64()), *((name, pa.string()) for name in texts)])
        writer = None if rejected is None else TableWriter(rejected, schema)
        if writer is not None:  # an error comes before anything is saved
            open_files.enter_context(writer)
        bars = open_files.enter_context(progress(quiet=quiet, on_stdout=False))
        task = bars.add_task("saving subscriptions", total=None)
        try:
            saved = client.upsert_many(
                file,
                rejected=bad,
                consumer=consumer,
                create_consumer=True,
                progress=lambda rows: bars.advance(task, rows),
            )
        except (RejectedRowError, SubscribeError) as error:
            if isinstance(error, SubscribeError) and not error.rejected:
                raise
            where = "" if isinstance(error, RejectedRowError) else f"{file}: "
            raise UsageError(
                f"{where}{error}, or pass --rejected FILE to save the others"
            ) from None
        if writer is not None:
            rows = [
                {name: getattr(rejection, name) for name in schema.names} for rejection in bad or []
            ]
            writer.write(pa.RecordBatch.from_pylist(rows, schema))
    count = sum(saved)
    if as_json:
        facts = {"saved": count, "rejected": len(bad or []), "rejected_file": rejected}
        print(json.dumps(facts, default=str))
    elif not quiet:
        summary = f"{counted(count, 'subscription')} saved {taken(time.monotonic() - began)}"
        if rejected is not None:
            summary += f", {counted(len(bad or []), 'row')} rejected: see {rejected}"
        print(f"{summary}.")


def unsubscribe(
    at: Connection,
    ids: Annotated[list[str], typer.Argument(metavar="ID...", help="The ids of subscriptions.")],
    space: SpaceName = None,
    as_json: AsJson = False,
) -> None:
    """Remove subscriptions from a server.

    Unknown ids are printed, the others are removed, and the exit code is 2.

    \b
    Examples:
      rangecast unsubscribe cheap
      rangecast unsubscribe fence-1 fence-2 --space fleet
    """
    import json
    import sys

    from rangecast.cli.shared.output import counted
    from rangecast.errors import UnknownIdError

    ended: list[str] = []
    unknown: list[str] = []
    with at.client_in(space) as client:
        for id_ in ids:
            try:
                client.unsubscribe(id_)
                ended.append(id_)
            except UnknownIdError as error:
                unknown.append(id_)
                print(str(error), file=sys.stderr)
    if as_json:
        print(json.dumps({"ended": ended, "unknown": unknown}))
    else:
        print(f"{counted(len(ended), 'subscription')} ended, {len(unknown):,} unknown.")
    if unknown:
        raise typer.Exit(2)
