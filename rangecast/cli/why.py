"""`rangecast why`: does this subscription hold this event, and if not, what is in the way?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rangecast.cli.options import (
    BadRowsFile,
    Combine,
    CombineOption,
    IgnoreUnknown,
    Json,
    Nan,
    Quiet,
    SpaceFile,
    SubscriptionsFile,
)
from rangecast.model.attributes import NanMeaning

if TYPE_CHECKING:
    from rangecast.cli.run import Run
    from rangecast.kernels.arrays import F64
    from rangecast.model.space import Space
    from rangecast.model.why import Explanation


def why(
    event: Annotated[
        str,
        typer.Argument(
            help="The event as JSON, such as '{\"price\": 12.5}'; - reads it from stdin. "
            "With --events, the id of an event there."
        ),
    ],
    subscriptions: SubscriptionsFile,
    subscription: Annotated[str, typer.Argument(metavar="ID", help="The subscription's id.")],
    space: SpaceFile,
    events: Annotated[
        Path | None,
        typer.Option("--events", help="A file of events, one of which is asked about; - is stdin."),
    ] = None,
    is_row: Annotated[
        bool,
        typer.Option("--row", help="EVENT is a row of --events, counted from 0, not an id."),
    ] = False,
    nan: Nan = NanMeaning.REFUSE,
    ignore_unknown: IgnoreUnknown = False,
    relaxed: Annotated[
        bool,
        typer.Option("--relaxed", help="Explain its rank by the weights that hold."),
    ] = False,
    combine: CombineOption = Combine.SUM,
    bad_rows: BadRowsFile = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Show, attribute by attribute, what a subscription wants and an event has, and its rank.

    Of several alternatives, the one that holds or comes nearest is shown, and what fails in the
    others.

    \b
    Examples:
      rangecast why '{"price": 12.5}' subscriptions.csv cheap --space space.toml
      rangecast why 1 subscriptions.csv cheap --space space.toml --events events.csv --row
    """
    from dataclasses import asdict

    from rangecast.cli.output import counted
    from rangecast.cli.run import Run
    from rangecast.cli.sets import one_set
    from rangecast.model.why import explain_match
    from rangecast.rank.explain import explain_rank

    with Run.started(
        reads=[event if event == "-" else None, subscriptions, space, events],
        bad_rows=bad_rows,
        ignore_unknown=ignore_unknown,
        nan=nan,
        as_json=as_json,
        quiet=quiet,
    ) as run:
        where = run.space(space)
        boxes, where = one_set(run, subscriptions, where, None)
        row = _row_of(boxes.ids, subscription)
        values, point = event_of(run, event, where, events, is_row=is_row)
        explanation = explain_match(where, boxes, row, point, values)
        place = explain_rank(boxes, row, point, relaxed=relaxed, combine=combine)
        facts = {
            "subscription": explanation.subscription,
            "matches": explanation.matches,
            "verdict": explanation.verdict,
            "rank": asdict(place) | {"verdict": place.verdict},
            "boxes": [[asdict(line) for line in box] for box in explanation.boxes],
        }
        if not as_json:
            _show(explanation)
            print(f"rank: {place.verdict}")
        run.done(f"{counted(boxes.rows, 'subscription')} read", boxes.rows, facts)


def _show(explanation: Explanation) -> None:
    """Show the alternative that holds or lacks least as a table, the others in a line each."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from rangecast.model.why import failures

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
        told = failures(boxes_of_it[number]) or "holds as well"
        console.print(f"alternative {number + 1}: {told}", markup=False, soft_wrap=True)
    if len(others) > _ALTERNATIVES:
        console.print(f"... and {len(others) - _ALTERNATIVES:,} more alternatives: see --json")
    console.print(explanation.verdict, markup=False, soft_wrap=True)


_ALTERNATIVES = 5
"""Other alternatives that are shown, one per line."""


def event_of(
    run: Run, given: str, space: Space, events: Path | None, *, is_row: bool
) -> tuple[dict[str, Any], F64]:
    """Return the event that a command was given, its values and its point."""
    from rangecast.errors import UsageError

    if events is not None:
        return _event_in_file(run, events, space, given, is_row=is_row)
    if is_row:
        raise UsageError("--row is for an event of a file\n  hint: pass --events FILE")
    return _event(run, given, space)


def _event(run: Run, given: str, space: Space) -> tuple[dict[str, Any], F64]:
    """Return an event that was given as JSON, its values and its point."""
    from rangecast.model.events import encode_events

    values = _values(run.file(Path(given)).read_text() if given == "-" else given)
    unknown = {*values} - space.fields
    passed_over = {"id"} | (unknown if run.ignore_unknown else set())
    values = {name: value for name, value in values.items() if name not in passed_over}
    return values, encode_events([values], space, nan=run.nan).points[0]


def _event_in_file(
    run: Run, path: Path, space: Space, wanted: str, *, is_row: bool
) -> tuple[dict[str, Any], F64]:
    """Return an event of a file, by its id or its row."""
    from rangecast.errors import UsageError

    source = run.events(path, space)
    if is_row and not wanted.isdecimal():
        raise UsageError(f"--row takes a number, counted from 0; given: {wanted!r}")
    found = source.find(int(wanted) if is_row else wanted)
    if found is None:
        what = f"row {wanted}" if is_row else f"event {wanted!r}"
        raise UsageError(f"{path} has no {what}, or it is a bad row")
    return found


def _values(text: str) -> dict[str, Any]:
    """Return an event that was given as JSON."""
    import json

    from rangecast.errors import UsageError

    try:
        values = json.loads(text)
    except ValueError as error:
        raise UsageError(f"the event is no JSON: {error}; given: {text}") from None
    if not isinstance(values, dict):
        raise UsageError(f"an event is a JSON object, from attributes to values; given: {text}")
    return values


def _row_of(ids: object, wanted: str) -> int:
    from rangecast.errors import UsageError, near

    known = [str(one) for one in ids.to_pylist()]  # type: ignore[attr-defined]
    if wanted not in known:
        raise UsageError(f"no subscription {wanted!r}: {near(wanted, known)}")
    return known.index(wanted)
