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
    Nan,
    Quiet,
    SpaceFile,
)
from rangecast.model.attributes import NanMeaning

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from rangecast.match.verify import Verdict
    from rangecast.model.badrows import BadRows
    from rangecast.model.boxes import Boxes
    from rangecast.model.events import Events
    from rangecast.model.space import Space


def verify(
    events: EventsFile,
    subscriptions: Annotated[
        Path,
        typer.Argument(
            help="Subscriptions: a file, a snapshot, or a folder of numbered snapshots."
        ),
    ],
    result: Annotated[
        Path,
        typer.Argument(
            help="What to prove: a file, or a folder of files, with event and "
            "subscription, or event and subscriptions (lists)."
        ),
    ],
    space: SpaceFile,
    index: Annotated[
        str,
        typer.Option(
            "--index", help="What answers: auto, scan, vcr, hilbert, rtree, slabs, cells."
        ),
    ] = "auto",
    show: Annotated[
        int, typer.Option("--show", min=0, help="How many differing events are shown.")
    ] = 5,
    bad_rows: BadRowsFile = None,
    ignore_unknown: IgnoreUnknown = False,
    nan: Nan = NanMeaning.REFUSE,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Prove that a result is right: all matches of all events, none else, none twice.

    Exit code 1 if it is not; the first differences are shown. A result that was made while the
    subscriptions changed has a column `version`, the number of the snapshot that answered.
    """
    import time
    from dataclasses import asdict

    from rangecast.cli.output import per_second, summary
    from rangecast.model.space import Space

    began = time.perf_counter()
    verdict = verified(
        events,
        subscriptions,
        result,
        Space.load(space),
        index=index,
        show=show,
        bad_rows=bad_rows,
        ignore_unknown=ignore_unknown,
        nan=nan,
    )
    seconds = time.perf_counter() - began
    facts = {"holds": verdict.holds, **asdict(verdict), "seconds": round(seconds, 3)}
    facts["samples"] = [each._asdict() for each in verdict.samples]
    rate = per_second(verdict.events, seconds)
    text = f"{in_words(verdict, str(result))}\n  {seconds:.2f} s ({rate})"
    summary(text, facts, as_json=as_json, quiet=quiet and verdict.holds)
    if not verdict.holds:
        raise typer.Exit(1)


def verified(
    events: Path,
    subscriptions: Path,
    result: Path,
    space: Space,
    *,
    index: str = "auto",
    show: int = 5,
    bad_rows: Path | None = None,
    ignore_unknown: bool = False,
    nan: str = "refuse",
) -> Verdict:
    """Compare a result in files with the answer to events and subscriptions in files."""
    from rangecast.match.choose import check_index
    from rangecast.match.verify import verify as compare
    from rangecast.model.badrows import BadRows, KeptRows
    from rangecast.model.events import EventFile

    check_index(index)
    with BadRows(bad_rows) as bad:
        readings: list[BadRows] = [bad]  # later ones have nothing new to tell

        def read(fixed: Space) -> Iterator[Events]:
            yield from EventFile(
                events,
                fixed,
                bad_rows=readings.pop() if readings else KeptRows(),
                nan=nan,
                ignore_unknown=ignore_unknown,
            )

        sets = subscription_sets(subscriptions, space, bad, ignore_unknown=ignore_unknown)
        return compare(read, sets, _claimed(result), index=index, show=show)


def _claimed(result: Path) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a result; those of a stream with the version that answered its batch."""
    import numpy as np
    import pyarrow as pa

    from rangecast.model.files import parts_of, read_batches
    from rangecast.store.commits import committed_batches

    batches = committed_batches(result)
    for folder, mark in batches.items():
        version = int(mark["version"])
        for _, data in read_batches(folder) if parts_of(folder) else ():
            yield data.append_column("version", pa.array(np.full(data.num_rows, version)))
    if not batches:
        for _, data in read_batches(result):
            yield data


def subscription_sets(
    path: Path, space: Space, bad_rows: BadRows, *, ignore_unknown: bool
) -> dict[int, tuple[Boxes, Space]]:
    """Return the subscriptions of a file or a snapshot, or those of each version in a folder."""
    from rangecast.errors import FileError
    from rangecast.model.snapshot import MANIFEST, load_boxes
    from rangecast.model.subscriptions import read_subscriptions

    folders: dict[int, Path] = {}
    if (path / MANIFEST).exists():
        folders = {0: path}
    elif path.is_dir():
        folders = {int(each.name): each for each in path.iterdir() if each.name.isdecimal()}
    if not folders:
        boxes = read_subscriptions(path, space, bad_rows=bad_rows, ignore_unknown=ignore_unknown)
        return {0: (boxes, space)}
    sets = {number: load_boxes(folder) for number, folder in sorted(folders.items())}
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
