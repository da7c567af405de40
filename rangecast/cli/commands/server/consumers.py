"""`rangecast consumers`: list, show and delete consumers of a server, and set their policies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from rangecast.cli.shared.connection import AsJson, Connection

if TYPE_CHECKING:
    from rangecast.client import Client

_OPTIONS = ("space", "board", "on_gap", "max_per_event", "max_per_second", "delivery")
"""Options of a consumer besides its policy."""
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
    deduplicate: Annotated[
        str | None, typer.Option("--deduplicate", help="Policy: no repeats for '10 min'.")
    ] = None,
    throttle: Annotated[
        str | None,
        typer.Option("--throttle", help="Policy: at most '3 per 1 h' of an object."),
    ] = None,
    renotify: Annotated[
        str | None, typer.Option("--renotify", help="Policy: report stays every '2 h'.")
    ] = None,
    digest: Annotated[
        str | None,
        typer.Option(
            "--digest",
            help="Policy: deliver together, at '08:00 Mon-Fri Europe/Berlin' or 100 at a time.",
        ),
    ] = None,
    no_policy: Annotated[
        bool, typer.Option("--no-policy", help="Deliver all transitions at once again.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """List, configure or delete the consumers of a server.

    The list shows the space or board, the lag and the delivery of each. LAG counts the edits and
    events in the log after the acknowledged position. With one NAME, all details of that consumer
    are shown.

    The policy options replace the delivery policy of the named consumers. It applies to the
    transitions of all subscriptions of a consumer together, after the policies of the
    subscriptions.

    \b
    Examples:
      rangecast consumers
      rangecast consumers alerts
      rangecast consumers --delete alerts
      rangecast consumers alerts --throttle '3 per 1 h' --digest '08:00 Europe/Berlin'
    """
    import json

    from rangecast.cli.shared.output import aligned
    from rangecast.cli.shared.policies import policy_of
    from rangecast.errors import UsageError

    policy = policy_of(deduplicate, throttle, renotify, digest)
    if sum(map(bool, (delete, policy, no_policy))) > 1:
        raise UsageError("--delete, a policy and --no-policy exclude each other")
    if (delete or policy or no_policy) and not names:
        option = "--delete" if delete else f"--{next(iter(policy), 'no-policy')}"
        raise UsageError(f"{option} requires the names of consumers\n  hint: give NAME...")
    with at.client() as client:
        for name in names or [] if policy or no_policy else []:
            _set_policy(client, name, policy or None)
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
        print("There are no consumers. `rangecast subscribe FILTER --consumer NAME` creates one.")


def _set_policy(client: Client, name: str, policy: dict[str, Any] | None) -> None:
    """Put a consumer with another policy and its other options as they are."""
    options = client.consumer(name)
    kept = {option: options[option] for option in _OPTIONS if option in options}
    kept["delivery"].pop("secret", None)  # is shown as dots; the consumer keeps its own
    client.put_consumer(name, **kept, policy=policy)


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
