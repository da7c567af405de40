"""Options and arguments that several commands share: each is declared once.

The choices of an option are a Literal, so that help lists them and the shell completes them. The
structures are registered in modules that load NumPy, which `--help` doesn't; a test compares both.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import typer

from rangecast.errors import UsageError
from rangecast.model.attributes.base import NanMeaning

MatchIndex = Literal["auto", "scan", "vcr", "hilbert", "rtree", "slabs", "cells", "tiles", "values"]
"""`auto`, and the keys of `match.choose.INDEXES`."""


RankIndex = Literal[
    "auto", "scan", "segment", "interval", "interval-ends", "rtree", "ir", "sopt", "slabs"
]
"""`auto`, and the keys of `rank.choose.INDEXES`."""


CoverIndex = Literal["auto", "scan", "kdtree", "zcurve", "blocks"]
"""`auto`, and the keys of `cover.choose.INDEXES`."""


Combine = Literal["sum", "min", "max", "product"]
"""Keys of `rank.combine.COMBINATIONS`."""


Span = Literal["overlap", "contain"]
"""Relation between a subscription and an event that is a span, as in `rank.slabs.index`."""


Algorithm = Literal["dense", "sparse", "batch", "batch-dense"]
"""Keys of `notify.board.ALGORITHMS`, and their batch variants."""


Format = Literal["parquet", "csv", "jsonl", "arrow"]
"""The file formats of `model.files.SUFFIXES`."""


FirstSighting = Literal["enter", "silent", "inside"]
"""Values of `track.rules.FIRST`."""


Engine = Literal["local", "spark"]
"""Engine that runs the kernels."""


Device = Literal["cuda"]
"""The keys of `device.devices.DEVICES`."""


MATCH_OPTIONS = (
    "Options follow a colon: vcr:side=16x8,overlapped,hash=no,cells=512; "
    "hilbert:bits=8,ranges=16; cells:memory=500MB."
)
"""Every option of `match.choose.OPTIONS`, by example."""
RANK_OPTIONS = "Options follow a colon: rtree:branching=50, ir:branching=50, sopt:branching=50."
"""Every option of `rank.choose.OPTIONS`, by example."""
COVER_OPTIONS = "Options follow a colon: kdtree:overflow=32,underflow=8."
"""Every option of `cover.choose.OPTIONS`, by example."""


def _index(verb: str, choices: Any, about: str) -> Any:
    """Return an option that takes the name of an index, with options of that index."""

    def checked(context: typer.Context, index: str) -> str:
        if not context.resilient_parsing and index != "auto":
            check: Callable[[str], object] = import_module(f"rangecast.{verb}.choose").check_index
            try:
                check(index)
            except UsageError as error:
                raise typer.BadParameter(str(error)) from None
        return index

    def completed(incomplete: str) -> list[str]:
        return [str(name) for name in get_args(choices) if name.startswith(incomplete)]

    listed = "|".join(get_args(choices))
    return typer.Option(
        "--index",
        metavar=f"[{listed}][:OPTION,...]",
        callback=checked,
        autocompletion=completed,
        help=about,
    )


def _picture(path: Path | None) -> Path | None:
    """Reject a path without the suffix of a picture."""
    if path is not None and path.suffix.lower() not in (".png", ".svg"):
        raise typer.BadParameter(f"must be a file that ends in .png or .svg; given: {path}")
    return path


EventsFile = Annotated[
    Path,
    typer.Argument(
        help="Events, one column per attribute: .csv, .jsonl, .parquet, .arrow, - for stdin, a "
        "folder, or a pattern in quotes, 'events/*.jsonl'."
    ),
]
OneEvent = Annotated[
    str,
    typer.Argument(
        metavar="EVENT",
        help="The event as JSON, such as '{\"price\": 12.5}'; - reads it from stdin. "
        "With --events, the id of an event there.",
    ),
]
FileOfOneEvent = Annotated[
    Path | None,
    typer.Option("--events", help="The file that contains the event; - is stdin."),
]
IsRow = Annotated[
    bool, typer.Option("--row", help="EVENT is a row of --events, counted from 0, not an id.")
]
SubscriptionsFile = Annotated[
    Path,
    typer.Argument(
        help="Subscriptions: id and filter, or id and <attribute>_lo, <attribute>_hi; - is stdin. "
        "Or a snapshot, or a folder of versions."
    ),
]
OptionalSubscriptionsFile = Annotated[
    Path | None,
    typer.Argument(
        help="Subscriptions: id and filter, or id and <attribute>_lo, <attribute>_hi; - is stdin. "
        "With --commands: the initial subscriptions, if any."
    ),
]
CommandsFile = Annotated[
    Path | None,
    typer.Option(
        "--commands",
        help="Commands to apply in order: command (subscribe, unsubscribe, replace), id, filter.",
    ),
]
SpaceFile = Annotated[
    Path, typer.Option("--space", help="The space: a TOML file of attributes; - is stdin.")
]
AsOf = Annotated[
    str | None,
    typer.Option(
        "--as-of",
        metavar="[VERSION|TIME]",
        help="Answer with an earlier version, of a folder of versions: its number, or a time such "
        "as 2026-01-31T09:30:00Z, for the version that was the newest then.",
    ),
]
Version = Annotated[
    int | None,
    typer.Option(
        "--version", min=1, help="Version to use from a folder of versions (default: the newest)."
    ),
]
Output = Annotated[
    str,
    typer.Option(
        "--output",
        "-o",
        help="Result file, format by suffix, replaced if it exists; - is CSV on stdout.",
    ),
]
Overwrite = Annotated[
    bool,
    typer.Option("--overwrite", help="Replace a space or a saved folder that already exists."),
]
"""Needed to replace files that users edit or continue from; results are replaced without it."""
Plot = Annotated[
    Path | None,
    typer.Option("--plot", callback=_picture, help="Draw the result to a .png or .svg file."),
]
MatchIndexOption = Annotated[
    str,
    _index("match", MatchIndex, f"Index structure; auto chooses one for the set. {MATCH_OPTIONS}"),
]
RankIndexOption = Annotated[
    str, _index("rank", RankIndex, f"Index structure; auto uses slabs. {RANK_OPTIONS}")
]
CoverIndexOption = Annotated[
    str, _index("cover", CoverIndex, f"With --commands: the covering index. {COVER_OPTIONS}")
]
RejectedFile = Annotated[
    Path | None,
    typer.Option("--rejected", help="Write rejected rows to this file and process the others."),
]
IgnoreUnknown = Annotated[
    bool, typer.Option("--ignore-unknown", help="Ignore columns that are not attributes.")
]
EventId = Annotated[
    str | None,
    typer.Option(
        "--id",
        metavar="COLUMN",
        help="The column with the ids of events (default: id; without one, rows are numbered).",
    ),
]
SubscriptionId = Annotated[
    str | None,
    typer.Option(
        "--subscription-id",
        metavar="COLUMN",
        help="The column with the ids of subscriptions (default: id).",
    ),
]
Keep = Annotated[
    list[str] | None,
    typer.Option(
        "--keep",
        metavar="COLUMN,...",
        help="Copy columns of events or subscriptions to the result; repeatable. A column that "
        "both have is written as event_COLUMN and subscription_COLUMN.",
    ),
]
Nan = Annotated[
    NanMeaning,
    typer.Option("--nan", help="Reject NaN in events (error), or treat it as a missing value."),
]
EngineOption = Annotated[
    Engine, typer.Option("--engine", help="Run locally, or on Spark (see --master).")
]
DeviceOption = Annotated[
    Device | None,
    typer.Option(
        "--device",
        help="Run on a GPU (cuda; requires rangecast[gpu]); default: on the CPU.",
    ),
]
BoardObjects = Annotated[
    Path,
    typer.Argument(
        help="Objects: id, position (with --space: a column per attribute), value and "
        "optionally arrival; - is stdin."
    ),
]
BoardInterests = Annotated[
    Path,
    typer.Argument(
        help="Interests: id, position_lo, position_hi (with --space: <attribute>_lo and "
        "<attribute>_hi, or filter) and optionally k; null is unbounded. - is stdin."
    ),
]
ListLength = Annotated[
    int,
    typer.Option(
        "--top",
        "-k",
        min=1,
        max=1 << 16,
        help="Number of objects per list, for interests without a k.",
    ),
]
BoardSpace = Annotated[
    Path | None,
    typer.Option("--space", help="The attributes of objects and interests, as TOML."),
]
UpperBoundAttribute = Annotated[
    str | None,
    typer.Option(
        "--upper-bound-attribute",
        help="With a --space of two attributes: the one on which interests have no lower "
        "bound. Makes finding messages faster.",
    ),
]
CombineOption = Annotated[
    Combine,
    typer.Option(
        "--combine",
        help="With --relaxed: how the weights of matching attributes are combined to a score.",
    ),
]
ToleranceOption = Annotated[
    list[str] | None,
    typer.Option(
        "--tolerance",
        metavar="ATTRIBUTE=NUMBER",
        help="With --relaxed: a value outside its range counts in part if it is nearer than this; "
        "seconds for timestamps. Repeat for several attributes.",
    ),
]
ExplainPlan = Annotated[
    bool, typer.Option("--explain-plan", help="Print which structure is used, and why.")
]
Track = Annotated[
    str | None,
    typer.Option(
        "--track",
        metavar="COLUMN",
        help="Write transitions of objects, identified by this column, instead of matches.",
    ),
]
TrackTime = Annotated[
    str | None,
    typer.Option(
        "--time",
        metavar="TIMESTAMP",
        help="With --track: the timestamp attribute that orders events (default: the only one).",
    ),
]
TrackFor = Annotated[
    str | None,
    typer.Option(
        "--for",
        metavar="LENGTH",
        help="With --track: confirm enter and exit only after this time, such as '30 s'.",
    ),
]
TrackDwell = Annotated[
    str | None,
    typer.Option(
        "--dwell", metavar="LENGTH", help="With --track: report stays that reach this length."
    ),
]
TrackFirst = Annotated[
    FirstSighting | None,
    typer.Option(
        "--first", help="With --track: what to report for an object that is inside when first seen."
    ),
]
TrackAfter = Annotated[
    str | None,
    typer.Option(
        "--after",
        metavar="LENGTH",
        help="With --track: an object without events for longer than this exits everywhere.",
    ),
]
TrackLateness = Annotated[
    str | None,
    typer.Option(
        "--lateness",
        metavar="LENGTH",
        help="With --track: how late an event may arrive after the newest; by default the events "
        "of an object must be in order.",
    ),
]
TrackInside = Annotated[
    bool, typer.Option("--inside", help="With --track: also report every event of a stay.")
]
TrackRulesFile = Annotated[
    Path | None,
    typer.Option(
        "--rules",
        metavar="FILE",
        help="With --track: TOML file with rules and policies of subscriptions "
        "(docs/how-to/tracks.md).",
    ),
]
Json = Annotated[
    bool,
    typer.Option(
        "--json",
        help="Print the summary as JSON: on stdout, or on stderr if the result is on stdout.",
    ),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress and no summary.")]
Master = Annotated[
    str | None,
    typer.Option("--master", help="Where Spark runs: local[*] (default), or a cluster's URL."),
]
Seed = Annotated[int, typer.Option("--seed", help="The same seed gives the same data.")]
