"""What one would rank with instead: one small class a peer, each given its best chance.

A peer is built from boxes with finite bounds that lie best first, so a box's number is its rank:
those that can stop early scan in this order; those that can't find all that match and keep the
lowest numbers. `best` takes all events and gives back the ranks of each; only that is timed.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from benchmarks.postgres import Postgres, server
from rangecast.kernels.arrays import F64, AnyArray


class RankPeer:
    """What every peer does."""

    name: ClassVar[str]
    package: ClassVar[str | None] = None
    dimensions: ClassVar[Sequence[int]] = range(1, 101)
    most: ClassVar[int] = 1 << 62
    """Boxes beyond which it takes too long to build."""

    def __init__(self, lo: F64, hi: F64):
        self.low, self.high = np.ascontiguousarray(lo.T), np.ascontiguousarray(hi.T)

    def best_one(self, point: F64, k: int) -> AnyArray:
        """Return the ranks of the k best of one event."""
        raise NotImplementedError

    def best(self, points: F64, k: int) -> list[AnyArray]:
        """Return the ranks of the k best of each event."""
        return [self.best_one(point, k) for point in points]

    def clock(self) -> float:
        """Return the seconds of a core that it has used so far."""
        return time.process_time()

    def close(self) -> None:
        """Give back what isn't memory."""


class NumpyOne(RankPeer):
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


class NumpyBatch(RankPeer):
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
    most = 20_000

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
        import duckdb
        import pyarrow as pa

        super().__init__(lo, hi)
        axes = range(lo.shape[1])
        columns = {"rank": np.arange(len(lo), dtype=np.int32)}
        columns |= {f"lo{j}": lo[:, j] for j in axes} | {f"hi{j}": hi[:, j] for j in axes}
        self.database = duckdb.connect(config={"threads": 1})
        self.database.register("given", pa.table(columns))
        self.database.execute("create table boxes as select * from given order by rank")
        here = " and ".join(f"lo{j} <= ${j + 1} and hi{j} >= ${j + 1}" for j in axes)
        self._one = f"select rank from boxes where {here} order by rank limit "

    def best_one(self, point: F64, k: int) -> AnyArray:
        found = self.database.execute(f"{self._one}{k}", point.tolist()).fetchnumpy()
        return np.asarray(found["rank"])

    def close(self) -> None:
        self.database.close()


class PostgresRanked(RankPeer):
    """PostgreSQL: a scan of the key's index, which stops at the limit."""

    name = "PostgreSQL, order by and limit"

    def __init__(self, lo: F64, hi: F64):
        super().__init__(lo, hi)
        self.peer = Postgres.__new__(Postgres)
        self.peer.server = server()
        self.peer.session = self.peer.server.session()
        self.peer.file = self.peer.server.folder / f"{id(self)}.copy"
        self.peer.answer = self.peer.server.folder / f"{id(self)}.answer"
        axes = range(lo.shape[1])
        self.peer._write(np.hstack([lo, hi]), np.arange(len(lo)))
        self.peer.backend = int(self.peer.session.run("select pg_backend_pid()")[0])
        columns = ", ".join(f"{name}{j} float8" for name in ("lo", "hi") for j in axes)
        held = " and ".join(
            f"lo{j} <= ${j + 1}::float8 and hi{j} >= ${j + 1}::float8" for j in axes
        )
        limit = f"${lo.shape[1] + 1}::int8"
        self.peer.session.run(
            "set client_min_messages = error",
            f"create temp table boxes (rank int4, {columns})",
            f"copy boxes from '{self.peer.file}' (format binary)",
            "create index on boxes (rank)",
            "analyze boxes",
            "set enable_sort = off",
            "set enable_seqscan = off",
            f"prepare one as select rank from boxes where {held} order by rank limit {limit}",
        )

    def best_one(self, point: F64, k: int) -> AnyArray:
        given = ", ".join([*map(repr, point.tolist()), str(k)])
        return np.array(self.peer.session.run(f"execute one({given})"), np.int64)

    def clock(self) -> float:
        return self.peer.clock()

    def close(self) -> None:
        self.peer.close()


PEERS: tuple[type[RankPeer], ...] = (
    NumpyOne,
    NumpyLarger,
    NumpyBatch,
    Ncls,
    Intervals,
    Sqlite,
    Duckdb,
    PostgresRanked,
)
