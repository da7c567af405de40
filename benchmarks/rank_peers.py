"""Peers for ranking: one small class for each, used in its fastest way."""

from __future__ import annotations

import sqlite3

import numpy as np

from benchmarks.peers import RankPeer, in_duckdb
from benchmarks.postgres import PostgresRank
from rangecast.kernels.arrays import F64, AnyArray


class NumpyPeer(RankPeer):
    """Has each attribute in one piece."""

    def __init__(self, lo: F64, hi: F64):
        super().__init__(lo, hi)
        self.low, self.high = np.ascontiguousarray(lo.T), np.ascontiguousarray(hi.T)


class NumpyOne(NumpyPeer):
    """Event by event, in pieces that double, until there are k. Few attributes pass a piece on."""

    name = "NumPy, early stop"
    first = 1024

    def best_one(self, point: F64, k: int) -> AnyArray:
        found: list[AnyArray] = []
        have, start, size = 0, 0, self.first
        while have < k and start < self.low.shape[1]:
            piece = slice(start, start + size)
            held = self.low[0, piece] <= point[0]
            held &= self.high[0, piece] >= point[0]
            for axis in range(1, len(point)):
                held &= self.low[axis, piece] <= point[axis]
                held &= self.high[axis, piece] >= point[axis]
            ranks = np.flatnonzero(held)[: k - have]
            found.append(ranks + start)
            have += len(ranks)
            start += size
            size *= 2
        return np.concatenate(found) if found else np.zeros(0, np.int64)


class NumpyLarger(NumpyOne):
    """The same with larger pieces, which is faster where few boxes hold an event."""

    name = "NumPy, early stop, larger pieces"
    first = 16_384


class NumpyBatch(NumpyPeer):
    """32 events at a time against a piece of boxes; those that have k leave."""

    name = "NumPy, early stop, batches"
    _EVENTS, _BOXES = 32, 1024

    def best(self, points: F64, k: int) -> list[AnyArray]:
        answers: list[AnyArray] = []
        for begin in range(0, len(points), self._EVENTS):
            some = points[begin : begin + self._EVENTS]
            active = np.arange(len(some))
            have = np.zeros(len(some), np.int64)
            events, ranks = [], []
            start = 0
            while len(active) and start < self.low.shape[1]:
                piece = slice(start, start + self._BOXES)
                held = self.low[0, piece] <= some[active, 0, None]
                held &= self.high[0, piece] >= some[active, 0, None]
                for axis in range(1, some.shape[1]):
                    held &= self.low[axis, piece] <= some[active, axis, None]
                    held &= self.high[axis, piece] >= some[active, axis, None]
                event, rank = np.nonzero(held)
                counts = np.bincount(event, minlength=len(active))
                within = np.arange(len(event)) - np.repeat(np.cumsum(counts) - counts, counts)
                kept = within < (k - have[active])[event]
                events.append(active[event[kept]])
                ranks.append(rank[kept] + start)
                have[active] += np.minimum(counts, k - have[active])
                active = active[have[active] < k]
                start += self._BOXES
            event, rank = np.concatenate(events), np.concatenate(ranks)
            order = np.argsort(event, kind="stable")
            answers += np.split(rank[order], np.cumsum(have)[:-1])
        return answers


class Ncls(RankPeer):
    """Nested containment lists over floats; all that match, then the k lowest numbers."""

    name = "ncls"
    package = "ncls"
    dimensions = (1,)

    def __init__(self, lo: F64, hi: F64):
        from ncls import FNCLS

        super().__init__(lo, hi)
        # Its ends are open: the next double is the first that isn't held.
        ends = np.nextafter(hi[:, 0], np.inf)
        self.lists = FNCLS(np.ascontiguousarray(lo[:, 0]), ends, np.arange(len(lo)))

    def best_one(self, point: F64, k: int) -> AnyArray:
        begin = np.array([point[0]])
        end = np.nextafter(begin, np.inf)
        _, ranks = self.lists.all_overlaps_both(begin, end, np.zeros(1, np.int64))
        if len(ranks) > k:
            ranks = np.partition(ranks, k)[:k]
        return np.sort(ranks).astype(np.int64)  # it gives numbers back as doubles


class Intervals(RankPeer):
    """The package intervaltree; all that match, then the k lowest numbers."""

    name = "intervaltree"
    package = "intervaltree"
    dimensions = (1,)

    def __init__(self, lo: F64, hi: F64):
        from intervaltree import Interval, IntervalTree

        super().__init__(lo, hi)
        ends = np.nextafter(hi[:, 0], np.inf).tolist()
        self.tree = IntervalTree(
            Interval(a, b, i) for i, (a, b) in enumerate(zip(lo[:, 0].tolist(), ends, strict=True))
        )

    def best_one(self, point: F64, k: int) -> AnyArray:
        return np.array(sorted(one.data for one in self.tree[float(point[0])])[:k], np.int64)


class Sqlite(RankPeer):
    """SQLite in memory: a scan in the order of the key, which stops at the limit."""

    name = "SQLite, order by and limit"

    def __init__(self, lo: F64, hi: F64):
        super().__init__(lo, hi)
        axes = range(lo.shape[1])
        names = ", ".join(f"lo{j}, hi{j}" for j in axes)
        self.database = sqlite3.connect(":memory:", isolation_level=None)
        self.database.execute(f"create table boxes (rank integer primary key, {names})")
        both = np.stack([lo, hi], axis=2).reshape(len(lo), -1)
        places = ", ".join("?" * (1 + both.shape[1]))
        self.database.executemany(
            f"insert into boxes values ({places})",
            ((i, *row) for i, row in enumerate(both.tolist())),
        )
        held = " and ".join(f"lo{j} <= ?{j + 1} and hi{j} >= ?{j + 1}" for j in axes)
        limit = f"?{lo.shape[1] + 1}"
        self._one = f"select rank from boxes where {held} order by rank limit {limit}"

    def best_one(self, point: F64, k: int) -> AnyArray:
        rows = self.database.execute(self._one, (*point.tolist(), k)).fetchall()
        return np.array(rows, np.int64).reshape(-1)

    def close(self) -> None:
        self.database.close()


class Duckdb(RankPeer):
    """DuckDB: order by and limit."""

    name = "DuckDB, order by and limit"
    package = "duckdb"

    def __init__(self, lo: F64, hi: F64):
        super().__init__(lo, hi)
        axes = range(lo.shape[1])
        self.database = in_duckdb(lo, hi, "rank")
        here = " and ".join(f"lo{j} <= ${j + 1} and hi{j} >= ${j + 1}" for j in axes)
        self._one = f"select rank from boxes where {here} order by rank limit "

    def best_one(self, point: F64, k: int) -> AnyArray:
        found = self.database.execute(f"{self._one}{k}", point.tolist()).fetchnumpy()
        return np.asarray(found["rank"])

    def close(self) -> None:
        self.database.close()


PEERS: tuple[type[RankPeer], ...] = (
    NumpyOne,
    NumpyLarger,
    NumpyBatch,
    Ncls,
    Intervals,
    Sqlite,
    Duckdb,
    PostgresRank,
)
