"""`rangecast publish`, `subscribe` and `token`: a server from the shell."""

from __future__ import annotations

from typing import Annotated

import typer

Server = Annotated[
    str, typer.Option("--to", envvar="RANGECAST_SERVER", help="The address of the server.")
]
Secret = Annotated[
    str | None,
    typer.Option("--token", envvar="RANGECAST_TOKEN", help="A token, if the server asks for one."),
]
SpaceName = Annotated[
    str | None,
    typer.Option("--space", help="The name of the space; not needed if there is only one."),
]
URL = "http://127.0.0.1:8080"
WAIT = 1.0
"""Seconds that a request for messages waits; also how long Ctrl-C may take."""


def publish(
    events: Annotated[str, typer.Argument(help="Events: .jsonl, .csv or .parquet; - is stdin.")],
    to: Server = URL,
    space: SpaceName = None,
    token: Secret = None,
    batch: Annotated[
        int, typer.Option("--batch", min=1, max=10_000, help="Events per request.")
    ] = 1_000,
    ignore_unknown: Annotated[
        bool, typer.Option("--ignore-unknown", help="Keep values that are no attribute.")
    ] = False,
) -> None:
    """Publish events of a file to a server; each request is durable when it is answered.

    Events that are refused are printed with the reason, and the rest goes on.

    \b
    Examples:
      rangecast publish events.jsonl --to http://127.0.0.1:8080
      tail -f quotes.jsonl | rangecast publish - --space market
    """
    import sys

    from rangecast.cli.feeding import batches_of
    from rangecast.server import need_server

    need_server()
    from rangecast.client import Client

    accepted = refused = row = 0
    with Client(to, space=_space(to, space, token), token=token) as client:
        for some in batches_of(events, batch):
            found = client.publish(some, ignore_unknown=ignore_unknown)
            accepted += found.accepted
            for place, reason in found.refused:
                refused += 1
                print(f"row {row + place} is refused: {reason}", file=sys.stderr)
            row += len(some)
    print(f"{accepted:,} events published, {refused:,} refused.")
    if refused:
        raise typer.Exit(2)


def subscribe(
    filter: Annotated[str, typer.Argument(help="What is wanted: price < 20 and ...")],  # noqa: A002
    to: Server = URL,
    space: SpaceName = None,
    token: Secret = None,
    name: Annotated[
        str | None, typer.Option("--id", help="Save it under this id (default: a new one).")
    ] = None,
    consumer: Annotated[
        str | None, typer.Option("--consumer", help="Who gets its matches (made if it is new).")
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", help="Print events that match, as JSON, until Ctrl-C.")
    ] = False,
) -> None:
    """Subscribe at a server. With --follow, print events that match as they come.

    With --follow alone, the subscription ends with the command. With --id or --consumer it stays,
    and the next --follow goes on where this one ended.

    \b
    Examples:
      rangecast subscribe "price < 20 and sector = 'tech'" --follow
      rangecast subscribe "price < 20" --id cheap --consumer alerts
    """
    import json
    import secrets

    from rangecast.cli.signals import until_interrupted
    from rangecast.server import need_server

    need_server()
    from rangecast.client import Client

    lasting = name is not None or consumer is not None or not follow
    mark = secrets.token_hex(4)
    name = name or f"subscription-{mark}"
    consumer = consumer or (f"follow-{mark}" if not lasting else f"{name}-follow")
    with Client(to, space=_space(to, space, token), token=token) as client:
        client.put_consumer(consumer)
        client.upsert_many([{"id": name, "filter": filter, "consumer": consumer}])
        if not follow:
            print(f"{name} is saved; its matches go to the consumer {consumer}.")
            return
        try:
            with until_interrupted() as is_over:
                while not is_over():
                    page = client.messages(consumer, wait=WAIT)
                    for message in page.items:
                        print(json.dumps(message._asdict()), flush=True)
                    client.acknowledge(consumer, page.position)
        finally:
            if not lasting:
                client.delete_consumer(consumer)


def token(
    label: Annotated[str, typer.Argument(help="What the token is for.")],
    to: Server = URL,
    token: Secret = None,
    scope: Annotated[
        list[str] | None,
        typer.Option("--scope", help="read, subscribe, publish or admin; can be repeated."),
    ] = None,
    tenant: Annotated[str, typer.Option("--tenant", help="Whose it is.")] = "default",
) -> None:
    """Make a token for a server and print it; nobody can see it again.

    From the first one on, the server serves nobody without a token. The first needs --scope admin.

    \b
    Examples:
      rangecast token "the operator" --scope admin
      rangecast token "quotes" --scope publish
    """
    from rangecast.server import need_server

    need_server()
    from rangecast.client import Client

    with Client(to, token=token) as client:
        print(client.make_token(label, scope, tenant=tenant))


def _space(to: str, space: str | None, token: str | None) -> str:
    """Return the space that is meant; the only one if none is named."""
    from rangecast.client import Client
    from rangecast.errors import UsageError

    if space is not None:
        return space
    with Client(to, token=token) as client:
        names = client.spaces()
    if len(names) != 1:
        found = f"there are {', '.join(names)}" if names else "there is none"
        raise UsageError(f"which space is meant? At {to} {found}\n  to do: give --space NAME")
    return names[0]
