"""`rangecast publish`, `status` and `token`: call a server from the shell."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from rangecast.cli.shared.connection import AsJson, Connection, SpaceName

if TYPE_CHECKING:
    from rangecast.errors import RejectedRow


def publish(
    events: Annotated[str, typer.Argument(help="Events: .jsonl, .csv or .parquet; - is stdin.")],
    at: Connection,
    space: SpaceName = None,
    batch: Annotated[
        int, typer.Option("--batch", min=1, max=10_000, help="Events per request.")
    ] = 1_000,
    ignore_unknown: Annotated[
        bool,
        typer.Option(
            "--ignore-unknown", help="Accept fields that are not attributes, and keep them."
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Publish the events of a file to a server; each request is durable once it is answered.

    Rejected events are printed with the reason, the others are published, and the exit code is 2. A
    request whose answer is lost is retried, and applied only once.

    \b
    Examples:
      rangecast publish events.jsonl --server http://127.0.0.1:8080
      tail -f quotes.jsonl | rangecast publish - --space market
    """
    import json
    import sys

    from rangecast.cli.shared.output import counted
    from rangecast.cli.tasks.event_batches import batches_of
    from rangecast.errors import for_interface

    accepted = rejected = row = 0
    try:
        with at.client_in(space) as client:
            for piece in batches_of(events, batch):
                rejections: list[RejectedRow] = []
                answer = client.publish(piece, ignore_unknown=ignore_unknown, rejected=rejections)
                accepted += answer.accepted
                rejected += len(rejections)
                for rejection in rejections:
                    shown_value = f"\n  given: {rejection.value}" if rejection.value else ""
                    reason = f"{rejection.column!r}: {rejection.reason}"
                    text = f"{reason}{shown_value}\n  hint: {rejection.remedy}"
                    number = row + (rejection.row or 0)
                    print(
                        f"row {number} was rejected: {for_interface(text, 'shell')}",
                        file=sys.stderr,
                    )
                row += len(piece)
    finally:  # also of what came before an error
        if as_json:
            print(json.dumps({"published": accepted, "rejected": rejected}))
        else:
            print(f"{counted(accepted, 'event')} published, {rejected:,} rejected.")
    if rejected:
        raise typer.Exit(2)


def status(
    at: Connection,
    as_json: AsJson = False,
) -> None:
    """Show the status of a server: readiness, contents, positions of its log.

    The exit code is 1 if the server answers but isn't ready for events.

    \b
    Examples:
      rangecast status
      rangecast status --server https://events.example.org --json
    """
    import json

    from rangecast.cli.shared.output import aligned

    with at.client() as client:
        state = {"ready": client.ready(), **client.status()}
    if as_json:
        print(json.dumps(state))
    else:
        print(aligned([[name.replace("_", " "), text] for name, text in _flat(state)]))
    if state["ready"] != "ok":
        raise typer.Exit(1)


def _flat(nested: object, name: str = "") -> list[tuple[str, str]]:
    """Return the values of a nested answer as text, by their path."""
    if isinstance(nested, dict):
        return [
            line
            for key, value in nested.items()
            for line in _flat(value, f"{name}.{key}" if name else key)
        ]
    if isinstance(nested, list):
        return [line for at, value in enumerate(nested) for line in _flat(value, f"{name}.{at}")]
    if isinstance(nested, bool) or not isinstance(nested, int):
        return [(name, {True: "yes", False: "no", None: "-"}.get(nested, str(nested)))]  # type: ignore[call-overload]
    return [(name, f"{nested:,}")]


def token(
    label: Annotated[str, typer.Argument(help="Purpose of the token.")],
    at: Connection,
    scope: Annotated[
        list[str] | None,
        typer.Option("--scope", help="read, subscribe, publish, link or admin; repeatable."),
    ] = None,
    tenant: Annotated[str, typer.Option("--tenant", help="The tenant of the token.")] = "default",
) -> None:
    """Create a token for a server and print it; it can't be shown again.

    Once a token exists, every request needs one. The first token must have --scope admin.

    \b
    Examples:
      rangecast token "the operator" --scope admin
      rangecast token "quotes" --scope publish
    """
    with at.client() as client:
        print(client.make_token(label, scope, tenant=tenant))
