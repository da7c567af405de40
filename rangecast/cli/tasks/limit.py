"""What `rank --limit` means: a number of notifications per event, or per second of a timestamp."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from rangecast.errors import UsageError, near
from rangecast.model.attributes.base import Attribute
from rangecast.model.attributes.timestamps import Timestamp
from rangecast.model.encoding.columns import encode
from rangecast.model.encoding.event_columns import column_of
from rangecast.model.io.files import read_batches
from rangecast.model.io.records import pass_over
from rangecast.model.space import Space
from rangecast.rank.rate_limit import TIMELESS, Budget, seconds_of


def read_limit(given: str | None, clock: str | None = None) -> tuple[int | None, bool]:
    """Return the number of notifications, and whether it is per second instead of per event.

    A clock without a limit per second is refused: it would mean nothing.
    """
    if given is None:
        if clock is not None:
            raise UsageError(f"--clock {clock} needs a limit per second, such as --limit 5000/s")
        return None, False
    number, slash, unit = given.partition("/")
    if not number.strip().isdecimal() or int(number) < 1 or (slash and unit.strip() != "s"):
        raise UsageError(f"--limit takes a number such as 5, or 5000/s; given: {given}")
    if clock is not None and not slash:
        raise UsageError(
            f"--clock {clock} is for a limit per second, and --limit {given} is one per event\n"
            f"  hint: write --limit {given}/s, or leave out --clock"
        )
    return int(number), bool(slash)


def clock_of(space: Space, given: str | None) -> int:
    """Return the place of the timestamp that seconds are taken from."""
    times = [one.name for one in space if isinstance(one, Timestamp)]
    if given is None and len(times) == 1:
        return space.axis(times[0])
    if given in times:
        return space.axis(given)
    if given is None:
        told = f"this space has {len(times)} timestamps; say which with --clock"
    else:
        told = f"{given!r} is no timestamp of this space: {near(given, times)}"
    raise UsageError(f"--limit per second: {told}")


def in_order(events: Path, clock: Attribute) -> bool:
    """Whether every event of a file has a time, and none is of an earlier second than one before.

    Only the timestamps are looked at. What isn't one is left to the pass that reports it.
    """
    latest = TIMELESS
    for batch in read_batches(events, pass_over):
        values = column_of(batch.columns, clock)
        if values is None:
            if len(batch.rows):
                return False
            continue
        times, refused = encode(clock, values)
        seconds = np.concatenate([[latest], seconds_of(times[~refused])])
        if (seconds[1:] == TIMELESS).any() or (seconds[1:] < seconds[:-1]).any():
            return False
        latest = seconds[-1]
    return True


def per_second(
    pieces: Iterator[dict[str, pa.Array]], budget: Budget
) -> Iterator[dict[str, pa.Array]]:
    """Yield what each second has room for, the best of it.

    pieces   event, rank, subscription, score and the window, by event, then by rank
    """
    for piece in pieces:
        yield _columns(budget.add(pa.table(piece)))
    for rest in budget.end():
        yield _columns(rest)


def _columns(table: pa.Table) -> dict[str, pa.Array]:
    return {name: table[name].combine_chunks() for name in table.column_names}
