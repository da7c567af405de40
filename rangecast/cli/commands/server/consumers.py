"""`rangecast consumers`: list, show and delete the consumers of a server."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from rangecast.cli.shared.connection import AsJson, Connection

_HEADER = ["NAME", "OF", "LAG", "LISTENERS", "DELIVERY", "STATE"]


def consumers(
    at: Connection,
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME]...", help="Names of consumers (default: all)."),
    ] = None,
    delete: Annotated[
        bool, typer.Option("--delete", help="Delete these consumers and their subscriptions.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """List the consumers of a server: their space or board, their lag, and their delivery.

    LAG counts the edits and events in the log after the acknowledged position. With one NAME, all
    details of that consumer are shown.

    \b
    Examples:
      rangecast consumers
      rangecast consumers alerts
      rangecast consumers --delete alerts
    """
    import json

    from rangecast.cli.shared.output import aligned
    from rangecast.errors import UsageError

    if delete and not names:
        raise UsageError("--delete needs the names of consumers\n  hint: give NAME...")
    with at.client() as client:
        consumers_ = [client.consumer(name) for name in names] if names else client.consumers()
        if delete:
            for name in names or []:
                client.delete_consumer(name)
    if as_json:
        print(json.dumps({"deleted": names} if delete else {"consumers": consumers_}))
    elif delete:
        print(f"deleted: {', '.join(names or [])}")
    elif len(names or []) == 1:
        print(aligned([[key, _text(value)] for key, value in consumers_[0].items()]))
    elif consumers_:
        print(aligned([_HEADER, *map(_row, consumers_)]))
    else:
        print("There are no consumers. `rangecast subscribe FILTER --consumer NAME` makes one.")


def _row(consumer: dict[str, Any]) -> list[str]:
    source = f"board {consumer['board']}" if "board" in consumer else f"space {consumer['space']}"
    state = consumer.get("state", "-")
    if consumer.get("dead_letters"):
        state += f", {consumer['dead_letters']:,} dead letters"
    if consumer.get("error"):
        state += f": {consumer['error']}".partition("\n")[0]
    delivery = consumer["delivery"].get("kind", "pull")
    return [
        consumer["name"],
        source,
        f"{consumer['lag']:,}",
        str(consumer["listeners"]),
        delivery,
        state,
    ]


def _text(value: Any) -> str:
    import json

    if isinstance(value, dict | list):
        return json.dumps(value)
    return "-" if value is None else str(value)
