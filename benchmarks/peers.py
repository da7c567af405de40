"""Base classes of the peers of benchmarks.

A peer is what one would use instead of rangecast. It is built from boxes with finite bounds
(`finite` puts the domain's bounds where nothing is mentioned), and runs in one thread.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from rangecast.kernels.arrays import F64, AnyArray
from rangecast.model.boxes import Boxes
from rangecast.model.space import Space


def finite(boxes: Boxes, space: Space) -> tuple[F64, F64]:
    """Return the bounds with the domain's where a box has none: what a peer can be given."""
    low, high = np.array([a.domain for a in space]).T
    lo = np.where(np.isinf(boxes.lo), low, boxes.lo)
    hi = np.where(np.isinf(boxes.hi), high, boxes.hi)
    return lo, hi


def in_duckdb(lo: F64, hi: F64, key: str) -> Any:
    """Return a DuckDB of one thread with a table `boxes`: the key, then lo0, lo1 ..., hi0 ..."""
    import duckdb

    columns: dict[str, AnyArray] = {key: np.arange(len(lo), dtype=np.int32)}
    for name, ends in (("lo", lo), ("hi", hi)):
        columns |= {f"{name}{axis}": ends[:, axis] for axis in range(ends.shape[1])}
    database = duckdb.connect(config={"threads": 1})
    database.register("given", pa.table(columns))
    database.execute(f"create table boxes as select * from given order by {key}")
    database.unregister("given")
    return database


class Peer:
    """Base class of peers."""

    name: ClassVar[str]
    package: ClassVar[str | None] = None
    """Package that must be installed."""
    dimensions: ClassVar[Sequence[int]] = range(1, 101)
    """Numbers of attributes that it supports."""

    def __init__(self, lo: F64, hi: F64):
        self.lo, self.hi = lo, hi

    @classmethod
    def missing(cls) -> str | None:
        """Return why it can't take part here, `None` if it can."""
        if cls.package is not None and find_spec(cls.package) is None:
            return f"{cls.package} isn't installed"
        return None

    def clock(self) -> float:
        """Return the seconds of a core that it has used so far."""
        return time.process_time()

    def close(self) -> None:
        """Give back what isn't memory."""


class MatchPeer(Peer):
    """Base class of peers that match.

    `match` gives back whatever the peer itself gives; only that is timed. `pairs` turns it into
    (events, rows) to be checked.
    """

    splits: ClassVar[bool] = False
    """Whether several threads can match at once, each a share of the events."""

    def match(self, points: F64) -> Any:
        """Return all matches of all events, as the peer gives them."""
        raise NotImplementedError

    def match_one(self, point: F64) -> Any:
        """Return the rows of one event, as the peer gives them."""
        raise NotImplementedError

    def pairs(self, found: Any) -> tuple[AnyArray, AnyArray]:
        """Return what `match` gave as events and rows."""
        events, rows = found
        return events, rows

    def rows(self, found: Any) -> AnyArray:
        """Return what `match_one` gave as rows."""
        return np.asarray(found)

    def match_threads(self, points: F64, threads: int) -> object:
        """Match with this many threads; only the time counts."""
        with ThreadPoolExecutor(threads) as pool:
            return list(pool.map(self.match, np.array_split(points, threads)))

    def replace(self, rows: AnyArray, lo: F64, hi: F64) -> None:
        """Put other boxes in the place of some; by building again unless there is a better way."""
        self.lo[rows], self.hi[rows] = lo, hi
        self.close()
        type(self).__init__(self, self.lo, self.hi)


class RankPeer(Peer):
    """Base class of peers that rank.

    Its boxes lie best first, so that a box's number is its rank: those that can stop early scan in
    this order; those that can't find all that match and keep the lowest numbers.
    """

    def best_one(self, point: F64, k: int) -> AnyArray:
        """Return the ranks of the top k of one event."""
        raise NotImplementedError

    def best(self, points: F64, k: int) -> list[AnyArray]:
        """Return the ranks of the k best of each event."""
        return [self.best_one(point, k) for point in points]
