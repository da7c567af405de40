"""`rangecast verify`: does a result equal the local engine's answer?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rangecast.cli.shared.option_groups import BothOptions
from rangecast.cli.shared.options import EventsFile, MatchIndexOption, SpaceFile

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from rangecast.cli.shared.run import Run
    from rangecast.match.verification.verify import Verdict
    from rangecast.model.boxes import Boxes
    from rangecast.model.encoding.events import Events
    from rangecast.model.space import Space


def verify(
    events: EventsFile,
    subscriptions: Annotated[
        Path,
        typer.Argument(
            help="Subscriptions: a file, a snapshot, or a folder of versions; - is stdin."
        ),
    ],
    result: Annotated[
        Path,
        typer.Argument(
            help="The result to verify: a file or a folder of files with event and subscription, "
            "or event and subscriptions (lists); - is stdin."
        ),
    ],
    space: SpaceFile,
    options: BothOptions,
    version: Annotated[
        int | None,
        typer.Option(
            "--version",
            min=1,
            help="Version, of a folder of versions, that answered all events (default: those that "
            "the result names, else the newest).",
        ),
    ] = None,
    index: MatchIndexOption = "auto",
    show: Annotated[
        int, typer.Option("--show", min=0, help="Number of differing events to show.")
    ] = 5,
) -> None:
    """Verify a result: it has all matches of all events, no others, and none twice.

    If it is wrong, the exit code is 1, and the first differences are shown.

    If the subscriptions are a folder of versions, each event is verified with the version that
    answered it: the folder of a stream's result names it for each batch, other results in a column
    `version`. A result that names no version is verified with the newest, or with --version.

    \b
    Examples:
      rangecast verify events.csv subscriptions.csv matches.csv --space space.toml
      rangecast verify events.csv versions matches.csv --space space.toml --version 1
    """
    from dataclasses import asdict

    from rangecast.cli.shared.output import counted
    from rangecast.cli.shared.run import Run

    with Run.started(reads=[events, subscriptions, result, space], options=options) as run:
        where = run.space(space)
        verdict = verified(
            run, events, subscriptions, result, where, version=version, index=index, show=show
        )
        facts = {"holds": verdict.holds, **asdict(verdict)}
        facts["samples"] = [sample._asdict() for sample in verdict.samples]
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
    version: int | None = None,
    index: str = "auto",
    show: int = 5,
) -> Verdict:
    """Compare a result file with the local engine's answer to event and subscription files."""
    from itertools import count

    from rangecast.match.verification.verify import verify as compare

    times = count()

    def read(fixed: Space) -> Iterator[Events]:
        source = run.events(events, fixed, again=next(times) > 0)
        yield from run.batches("reading events", source)

    sets, rows = _versions_to_verify(run, subscriptions, space, run.file(result), version)
    return compare(read, sets, rows, index=index, show=show)


def _versions_to_verify(
    run: Run, path: Path, space: Space, result: Path, version: int | None
) -> tuple[dict[int, tuple[Boxes, Space]], Iterator[pa.RecordBatch]]:
    """Return the subscription sets to verify a result with, by version, and the result's rows."""
    from itertools import chain, islice

    from rangecast.cli.shared.subscription_sets import check_version, one_set, versions_of
    from rangecast.store.commits import committed_batches
    from rangecast.store.versions import Versions, has_versions

    check_version(path, version)
    rows = _claimed(result)
    named = {int(mark["version"]) for mark in committed_batches(result).values()}
    if not named:
        first = list(islice(rows, 1))
        rows = chain(first, rows)
        if first and "version" in first[0].schema.names:
            named = {*Versions(path).all()}
    if version is None and named and has_versions(path):
        return versions_of(path, space, named), rows
    if version is not None:
        rows = _all_of(rows, version)
    return {version or 0: one_set(run, path, space, version)}, rows


def _all_of(rows: Iterator[pa.RecordBatch], version: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a result; reject rows of other versions."""
    from rangecast.errors import UsageError

    for batch in rows:
        if "version" in batch.schema.names:
            for other in batch.column("version").unique().to_pylist():
                if other != version:
                    raise UsageError(
                        f"the result has rows for version {other}; given: --version {version}\n"
                        "  hint: leave out --version"
                    )
        yield batch


def _claimed(result: Path) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a result; rows of a stream come with the version of their batch."""
    import numpy as np
    import pyarrow as pa

    from rangecast.model.io.files import parts_of, read_tables
    from rangecast.store.commits import committed_batches

    batches = committed_batches(result)
    for folder, mark in batches.items():
        version = int(mark["version"])
        for data in read_tables(folder) if folder.is_dir() and parts_of(folder) else ():
            yield data.append_column("version", pa.array(np.full(data.num_rows, version)))
    if not batches:
        yield from read_tables(result)


def _counted(count: int, many: str) -> str:
    """Return a number of differences in words: 2 pairs missing, 1 pair missing."""
    noun, _, rest = many.partition(" ")
    if count == 1:
        noun, rest = noun.removesuffix("s"), rest.replace("that don't", "that doesn't")
    return f"{count:,} {noun} {rest}"


def in_words(verdict: Verdict, result: str) -> str:
    """Return the outcome of a verification in words."""
    from rangecast.cli.shared.output import counted

    if verdict.holds:
        return (
            f"{result}: correct: {counted(verdict.events, 'event')}, "
            f"{counted(verdict.pairs, 'match', 'matches')}, "
            "none missing, none extra, none duplicated"
        )
    counts = ", ".join(_counted(n, what) for what, n in verdict.differences().items() if n)
    message = (
        f"{result}: incorrect: {counts}; {verdict.differing_events:,} of {verdict.events:,} "
        f"events differ in their matches; expected matches in all: {verdict.pairs:,}"
    )
    return "\n  ".join([message, *verdict.others, *map(str, verdict.samples)])
