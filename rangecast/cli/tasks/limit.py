"""Rate limit of `rank --max-per-second`: the best notifications of each second."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from rangecast.model.attributes.base import Attribute
from rangecast.model.encoding.columns import encode
from rangecast.model.encoding.event_columns import column_of
from rangecast.model.io.files import read_batches
from rangecast.model.io.records import pass_over
from rangecast.rank.rate_limit import TIMELESS, RateLimiter, seconds_of


def in_order(events: Path, time: Attribute) -> bool:
    """Return whether every event of a file has a time, and the seconds never decrease.

    Only timestamps are read. Invalid ones are reported by a later pass.
    """
    latest = TIMELESS
    for batch in read_batches(events, pass_over):
        values = column_of(batch.columns, time)
        if values is None:
            if len(batch.rows):
                return False
            continue
        times, rejected = encode(time, values)
        seconds = np.concatenate([[latest], seconds_of(times[~rejected])])
        if (seconds[1:] == TIMELESS).any() or (seconds[1:] < seconds[:-1]).any():
            return False
        latest = seconds[-1]
    return True


def per_second(
    pieces: Iterator[dict[str, pa.Array]], limiter: RateLimiter
) -> Iterator[dict[str, pa.Array]]:
    """Yield the best notifications of each second.

    pieces   event, rank, subscription, score and the window, by event, then by rank
    """
    for piece in pieces:
        yield _columns(limiter.add(pa.table(piece)))
    for rest in limiter.end():
        yield _columns(rest)


def _columns(table: pa.Table) -> dict[str, pa.Array]:
    return {name: table[name].combine_chunks() for name in table.column_names}
