"""`rangecast why`: why does a subscription match an event, or which conditions fail?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from rangecast.cli.shared.option_groups import BothOptions
from rangecast.cli.shared.options import (
    CombineOption,
    FileOfOneEvent,
    IsRow,
    OneEvent,
    SpaceFile,
    SubscriptionsFile,
    ToleranceOption,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from rangecast.model.explain import Explanation


def why(
    event: OneEvent,
    subscriptions: SubscriptionsFile,
    subscription: Annotated[str, typer.Argument(metavar="ID", help="The subscription's id.")],
    space: SpaceFile,
    options: BothOptions,
    events: FileOfOneEvent = None,
    is_row: IsRow = False,
    relaxed: Annotated[
        bool,
        typer.Option("--relaxed", help="Explain the rank by the weights of matching attributes."),
    ] = False,
    combine: CombineOption = "sum",
    tolerance: ToleranceOption = None,
) -> None:
    """Show each attribute of an event beside the condition of a subscription, and its rank.

    If the filter has several alternatives, the one that matches or comes nearest is shown in full,
    and the failing conditions of the others.

    \b
    Examples:
      rangecast why '{"price": 12.5}' subscriptions.csv cheap --space space.toml
      rangecast why 1 subscriptions.csv cheap --space space.toml --events events.csv --row
    """
    from dataclasses import asdict

    from rangecast.cli.shared.one_event import event_query
    from rangecast.model.explain import explain_match
    from rangecast.rank.explain import explain_rank
    from rangecast.rank.scores.tolerances import (
        check_tolerances,
        encode_tolerances,
        read_tolerances,
    )

    tolerances = read_tolerances(tolerance or [])
    check_tolerances(tolerances, relaxed=relaxed)
    with event_query(event, subscriptions, space, events, options, is_row=is_row) as asked:
        row = _row_of(asked.boxes.ids, subscription)
        explanation = explain_match(asked.space, asked.boxes, row, asked.point, asked.values)
        rank = explain_rank(
            asked.boxes,
            row,
            asked.point,
            relaxed=relaxed,
            combine=combine,
            tolerances=encode_tolerances(tolerances, asked.space),
        )
        facts = {
            "subscription": explanation.subscription,
            "matches": explanation.matches,
            "verdict": explanation.verdict,
            "rank": asdict(rank) | {"verdict": rank.verdict},
            "boxes": [[asdict(line) for line in box] for box in explanation.boxes],
        }
        if not options.as_json:
            _show(explanation)
            print(f"rank: {rank.verdict}")
        asked.done(facts)


def _show(explanation: Explanation) -> None:
    """Show the matching or nearest alternative as a table, and one line for each other one."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from rangecast.model.explain import failures

    console = Console(highlight=False)
    boxes_of_it, nearest = explanation.boxes, explanation.nearest
    several = len(boxes_of_it) > 1
    title = f"alternative {nearest + 1} of {len(boxes_of_it)}" if several else None
    table = Table(title=title, title_justify="left")
    for heading in ("attribute", "wanted", "value", "", "distance"):
        table.add_column(heading, overflow="fold")  # all of a value, on several lines if need be
    for line in boxes_of_it[nearest]:
        mark = ("in" if line.holds else "OUT") if line.mentioned else ""
        cells = (line.attribute, line.wanted, line.value, mark, line.distance)
        table.add_row(*map(escape, cells))
    console.print(table)
    others = [number for number in range(len(boxes_of_it)) if number != nearest]
    for number in others[:_ALTERNATIVES]:
        reason = failures(boxes_of_it[number]) or "matches as well"
        console.print(f"alternative {number + 1}: {reason}", markup=False, soft_wrap=True)
    if len(others) > _ALTERNATIVES:
        console.print(f"... and {len(others) - _ALTERNATIVES:,} more alternatives: see --json")
    console.print(explanation.verdict, markup=False, soft_wrap=True)


_ALTERNATIVES = 5
"""Maximum number of other alternatives shown, one per line."""


def _row_of(ids: pa.Array, wanted: str) -> int:
    from rangecast.errors import UnknownIdError, did_you_mean

    known = [str(id_) for id_ in ids.to_pylist()]
    if wanted not in known:
        raise UnknownIdError(f"no subscription {wanted!r}: {did_you_mean(wanted, known)}")
    return known.index(wanted)
