"""`rangecast verify`: does a result equal the local engine's answer?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rangecast.cli.options import (
    BadRowsFile,
    EventsFile,
    IgnoreUnknown,
    Json,
    MatchIndexOption,
    Nan,
    Quiet,
    SpaceFile,
)
from rangecast.model.attributes import NanMeaning

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from rangecast.cli.run import Run
    from rangecast.match.verify import Verdict
    from rangecast.model.boxes import Boxes
    from rangecast.model.events import Events
    from rangecast.model.space import Space


def verify(
    events: EventsFile,
    subscriptions: Annotated[
        Path,
        typer.Argument(
            help="Subscriptions: a file, a snapshot, or a folder of numbered snapshots; - is stdin."
        ),
    ],
    result: Annotated[
        Path,
        typer.Argument(
            help="The result to prove: a file or a folder of files with event and subscription, "
            "or event and subscriptions (lists); - is stdin."
        ),
    ],
    space: SpaceFile,
    index: MatchIndexOption = "auto",
    show: Annotated[
        int, typer.Option("--show", min=0, help="Number of differing events to show.")
    ] = 5,
    bad_rows: BadRowsFile = None,
    ignore_unknown: IgnoreUnknown = False,
    nan: Nan = NanMeaning.REFUSE,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Prove that a result is right: all matches of all events, none else, none twice.

    The exit code is 1 if it is not; the first differences are shown. A result that was made while
    the subscriptions changed has a column `version`, the number of the snapshot that answered.

    \b
    Examples:
      rangecast verify events.csv subscriptions.csv matches.csv --space space.toml
    """
    from dataclasses import asdict

    from rangecast.cli.output import counted
    from rangecast.cli.run import Run

    with Run.started(
        reads=[events, subscriptions, result, space],
        bad_rows=bad_rows,
        ignore_unknown=ignore_unknown,
        nan=nan,
        as_json=as_json,
        quiet=quiet,
    ) as run:
        where = run.space(space)
        verdict = verified(run, events, subscriptions, result, where, index=index, show=show)
        facts = {"holds": verdict.holds, **asdict(verdict)}
        facts["samples"] = [each._asdict() for each in verdict.samples]
        text = f"{counted(verdict.events, 'event')} verified"
        details = [in_words(verdict, str(result))]
        run.done(text, verdict.events, facts, details, is_loud=not verdict.holds)
    if not verdict.holds:
        raise typer.Exit(1)


def verified(
    run: Run,
    events: Path,
    subscriptions: Path,
    result: Path,
    space: Space,
    *,
    index: str = "auto",
    show: int = 5,
) -> Verdict:
    """Compare a result in files with the answer to events and subscriptions in files."""
    from itertools import count

    from rangecast.match.verify import verify as compare

    times = count()

    def read(fixed: Space) -> Iterator[Events]:
        source = run.events(events, fixed, again=next(times) > 0)
        yield from run.batches("reading events", source)

    sets = _subscription_sets(run, subscriptions, space)
    return compare(read, sets, _claimed(run.file(result)), index=index, show=show)


def _claimed(result: Path) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a result; those of a stream with the version that answered its batch."""
    import numpy as np
    import pyarrow as pa

    from rangecast.model.files import parts_of, read_tables
    from rangecast.store.commits import committed_batches

    batches = committed_batches(result)
    for folder, mark in batches.items():
        version = int(mark["version"])
        for data in read_tables(folder) if parts_of(folder) else ():
            yield data.append_column("version", pa.array(np.full(data.num_rows, version)))
    if not batches:
        yield from read_tables(result)


def _subscription_sets(run: Run, path: Path, space: Space) -> dict[int, tuple[Boxes, Space]]:
    """Return the subscriptions of a file or a snapshot, or those of each version in a folder."""
    from rangecast.errors import FileError
    from rangecast.model.snapshot import MANIFEST
    from rangecast.store.versions import load_set

    folders: dict[int, Path] = {}
    if (path / MANIFEST).exists():
        folders = {0: path}
    elif path.is_dir():
        folders = {int(each.name): each for each in path.iterdir() if each.name.isdecimal()}
    if not folders:
        return {0: (run.subscriptions(path, space), space)}
    sets = {number: load_set(folder) for number, folder in sorted(folders.items())}
    for number, (_, own) in sets.items():
        if own.definition() != space.definition():
            raise FileError(
                f"{folders[number]}: is a snapshot of another space; pass the space it was made in"
            )
    return sets


def in_words(verdict: Verdict, result: str) -> str:
    """Return what was found, for a person."""
    if verdict.holds:
        return (
            f"{result}: right: {verdict.events:,} events, {verdict.pairs:,} matches, "
            "none missing, none extra, none twice"
        )
    counts = ", ".join(f"{n:,} {what}" for what, n in verdict.differences().items() if n)
    told = (
        f"{result}: wrong: {counts}; {verdict.differing_events:,} of {verdict.events:,} events "
        f"differ in their matches, of which there should be {verdict.pairs:,}"
    )
    return "\n  ".join([told, *verdict.others, *map(str, verdict.samples)])
