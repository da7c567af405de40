"""`rangecast check`: the meaning of a filter, before it is saved."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rangecast.cli.shared.option_groups import BothOptions
from rangecast.cli.shared.options import Plot, SpaceFile

if TYPE_CHECKING:
    from rangecast.cli.shared.run import Run
    from rangecast.model.boxes import Boxes
    from rangecast.model.filters.filter import Filter

_SHOWN = 10
"""Maximum number of alternatives, coverers and events shown."""


def check(
    space: SpaceFile,
    options: BothOptions,
    text: Annotated[
        str | None, typer.Argument(metavar="[FILTER]", help="The filter, in quotes.")
    ] = None,
    events: Annotated[
        Path | None,
        typer.Option("--events", help="Count how many of these events would match; - is stdin."),
    ] = None,
    subscriptions: Annotated[
        Path | None,
        typer.Option(
            "--subscriptions",
            help="Find which of these subscriptions (a file, a snapshot or versions) cover "
            "the filter; - is stdin.",
        ),
    ] = None,
    partition: Annotated[
        Path | None,
        typer.Option(
            "--partition",
            help="Subscriptions whose polygons should tile an area: show gaps, overlaps and "
            "T-junctions, and exit with 1 if there are any; - is stdin.",
        ),
    ] = None,
    plot: Plot = None,
) -> None:
    """Show the alternatives of a filter, what covers it, and how often it would match.

    A subscription covers the filter if it matches every event that the filter matches. A filter
    with a syntax error is shown with its position.

    \b
    Examples:
      rangecast check "price < 10 or price > 500" --space space.toml
      rangecast check "price < 10" --space space.toml --events events.csv
      rangecast check "within(place, circle(3, 4, 5))" --space city.toml --plot circle.svg
      rangecast check --partition zones.csv --space city.toml --plot zones.svg
    """
    from rangecast.errors import UsageError

    if (text is None) == (partition is None):
        raise UsageError("check takes a filter, or --partition with a file of subscriptions")
    if text is None:
        assert partition is not None
        if events is not None or subscriptions is not None:
            raise UsageError("--partition takes neither --events nor --subscriptions")
        _check_partition(partition, space, options, plot)
        return
    from rangecast.cli.shared.output import counted
    from rangecast.cli.shared.run import Run
    from rangecast.cli.shared.subscription_sets import one_set
    from rangecast.model.filters.filter import Filter

    with Run.started(reads=[space, events, subscriptions], pictures=[plot], options=options) as run:
        where = run.space(space)
        wanted = Filter.parse(text, where)
        if plot is not None:
            from rangecast.report.shape_plot import draw_filter

            draw_filter(wanted, plot)
        alternatives = [str(Filter(where, (box,))) for box in wanted.boxes]
        facts: dict[str, Any] = {"filter": str(wanted), "alternatives": alternatives}
        lines = [f"{counted(len(alternatives), 'alternative')}:"]
        lines += [f"  {alternative}" for alternative in _first_few(alternatives)]
        if subscriptions is not None:
            boxes, where = one_set(run, subscriptions, where, None)
            wanted = Filter.parse(text, where)  # a snapshot has words of its own
            coverers = _coverers(boxes, wanted)
            facts |= {"covered_by": coverers, "subscriptions": boxes.rows}
            listed = ", ".join(map(str, _first_few(coverers))) or "none"
            lines.append(f"covered by {listed} of {counted(boxes.rows, 'subscription')}")
        if events is not None:
            matched = _matched(run, events, wanted)
            facts |= matched
            share = 100 * matched["matches"] / max(matched["events"], 1)
            count = counted(matched["events"], "event")
            lines.append(f"would match {matched['matches']:,} of {count} ({share:.3g}%)")
            lines += [f"  {name}: {n:,} events hold" for name, n in matched["holding"].items()]
            if matched["first"]:
                lines.append(f"  the first: {', '.join(map(str, matched['first']))}")
        if not options.as_json:
            print("\n".join(lines))
        run.done("checked", None, facts)


def _check_partition(path: Path, space: Path, options: BothOptions, plot: Path | None) -> None:
    from rangecast.cli.shared.output import counted
    from rangecast.cli.shared.run import Run
    from rangecast.cli.shared.subscription_sets import one_set
    from rangecast.report.partition import check_partition
    from rangecast.report.partition_plot import draw_partition

    with Run.started(reads=[space, path], pictures=[plot], options=options) as run:
        boxes, where = one_set(run, path, run.space(space), None)
        report = check_partition(boxes, where)
        if plot is not None:
            draw_partition(report, plot, where)
        lines = [report.summary() or "a partition: no gap, no overlap"]
        lines += [f"  {text}" for text in _first_few([fault.text() for fault in report.faults])]
        if not options.as_json:
            print("\n".join(lines))
        faults = [fault._asdict() for fault in report.faults]
        facts = {"polygons": report.polygons, "edges": report.edges, "faults": faults}
        run.done(f"{counted(report.polygons, 'polygon')} checked", None, facts)
    if report.faults:
        raise typer.Exit(1)


def _first_few(texts: list[Any]) -> list[Any]:
    """Return the first `_SHOWN` items, then "... and N more" if any are left out."""
    more = len(texts) - _SHOWN
    return [*texts[:_SHOWN], f"... and {more:,} more"] if more > 0 else texts


def _coverers(boxes: Boxes, wanted: Filter) -> list[Any]:
    """Return the subscriptions that cover the filter box by box, in order of arrival."""
    import numpy as np

    rows = np.arange(boxes.rows)
    for low, high in zip(*wanted.arrays(), strict=True):
        around = (boxes.lo <= low).all(axis=1) & (high <= boxes.hi).all(axis=1)
        rows = np.intersect1d(rows, boxes.owner[around])
    ids: list[Any] = boxes.ids.take(rows).to_pylist()
    return ids


def _matched(run: Run, path: Path, wanted: Filter) -> dict[str, Any]:
    """Count the events that match a filter, and those that match each attribute's condition."""
    import numpy as np

    lo, hi = wanted.arrays()
    mentioned = np.flatnonzero((lo > -np.inf).any(axis=0) | (hi < np.inf).any(axis=0))
    holding = np.zeros(len(mentioned), np.int64)
    count = matches = 0
    first: list[Any] = []
    for ids, points in run.batches("reading events", run.events(path, wanted.space)):
        inside = np.zeros(len(points), np.bool_)
        by_axis = np.zeros((len(points), len(mentioned)), np.bool_)
        for low, high in zip(lo, hi, strict=True):
            within = (low <= points) & (points <= high)
            inside |= within.all(axis=1)
            by_axis |= within[:, mentioned]
        count, matches = count + len(points), matches + int(inside.sum())
        holding += by_axis.sum(axis=0)
        if len(first) < _SHOWN:
            places = np.flatnonzero(inside)[: _SHOWN - len(first)]
            first += ids.take(places).to_pylist()
    names = [wanted.space.names[axis] for axis in mentioned]
    return {
        "events": count,
        "matches": matches,
        "holding": dict(zip(names, holding.tolist(), strict=True)),
        "first": first,
    }
