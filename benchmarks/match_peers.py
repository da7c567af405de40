"""Peers for matching: one small class for each, called as its documentation says."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.peers import MatchPeer, in_duckdb
from benchmarks.postgres import PostgresMatch
from rangecast.kernels.arrays import F64, AnyArray

os.environ.setdefault("POLARS_MAX_THREADS", "1")  # it reads this once, when it is loaded


class NumpyScan(MatchPeer):
    """Every event against every box: blocks that stay in cache, columns that lie in one piece."""

    name = "NumPy scan"
    splits = True
    _EVENTS, _BOXES = 32, 4096

    def __init__(self, lo: F64, hi: F64):
        super().__init__(lo, hi)
        self.low, self.high = np.ascontiguousarray(lo.T), np.ascontiguousarray(hi.T)

    def match(self, points: F64) -> tuple[AnyArray, AnyArray]:
        held = np.empty((self._EVENTS, self._BOXES), np.bool_)
        also = np.empty_like(held)
        events, rows = [np.zeros(0, np.intp)], [np.zeros(0, np.intp)]
        for event in range(0, len(points), self._EVENTS):
            some = points[event : event + self._EVENTS]
            for row in range(0, self.low.shape[1], self._BOXES):
                low, high = (ends[:, row : row + self._BOXES] for ends in (self.low, self.high))
                found = held[: len(some), : low.shape[1]]
                other = also[: len(some), : low.shape[1]]
                np.less_equal(low[0], some[:, 0, None], out=found)
                found &= np.greater_equal(high[0], some[:, 0, None], out=other)
                for axis in range(1, len(low)):
                    value = some[:, axis, None]
                    found &= np.less_equal(low[axis], value, out=other)
                    found &= np.greater_equal(high[axis], value, out=other)
                e, r = np.nonzero(found)
                events.append(e + event)
                rows.append(r + row)
        return np.concatenate(events), np.concatenate(rows)

    def match_one(self, point: F64) -> AnyArray:
        found = self.low[0] <= point[0]
        found &= self.high[0] >= point[0]
        axis = 1
        while axis < len(point) and np.count_nonzero(found) * 16 > len(found):
            found &= self.low[axis] <= point[axis]
            found &= self.high[axis] >= point[axis]
            axis += 1
        rows = np.flatnonzero(found)
        for rest in range(axis, len(point)):  # few are left: look at those alone
            low, high = self.low[rest].take(rows), self.high[rest].take(rows)
            rows = rows[(low <= point[rest]) & (high >= point[rest])]
        return rows

    def replace(self, rows: AnyArray, lo: F64, hi: F64) -> None:
        self.low[:, rows], self.high[:, rows] = lo.T, hi.T


class Shapely(MatchPeer):
    """GEOS' STR-tree, queried with an array of points.

    Without a predicate: it then compares bounding boxes, which is exact here, and is many times
    faster than `predicate="intersects"`.
    """

    name = "shapely STRtree"
    package = "shapely"
    dimensions = (2,)
    splits = True

    def __init__(self, lo: F64, hi: F64):
        import shapely

        super().__init__(lo, hi)
        self.points = shapely.points
        self.tree = shapely.STRtree(shapely.box(lo[:, 0], lo[:, 1], hi[:, 0], hi[:, 1]))

    def match(self, points: F64) -> Any:
        return self.tree.query(self.points(points))

    def match_one(self, point: F64) -> Any:
        return self.tree.query(self.points(point))


class Geoindex(MatchPeer):
    """A packed Hilbert R-tree in Rust; in bulk the join with a tree of the events."""

    name = "geoindex-rs"
    package = "geoindex_rs"
    dimensions = (2,)

    def __init__(self, lo: F64, hi: F64):
        from geoindex_rs import rtree

        super().__init__(lo, hi)
        self.rtree = rtree
        self.tree = self._tree(lo, hi)

    def _tree(self, lo: F64, hi: F64) -> Any:
        builder = self.rtree.RTreeBuilder(len(lo))
        builder.add(np.hstack([lo, hi]))
        return builder.finish()

    def match(self, points: F64) -> Any:
        return self.rtree.tree_join(self._tree(points, points), self.tree)

    def match_one(self, point: F64) -> Any:
        x, y = point
        return self.rtree.search(self.tree, x, y, x, y)

    def pairs(self, found: Any) -> tuple[AnyArray, AnyArray]:
        return np.asarray(found["left"]), np.asarray(found["right"])


class Rtree(MatchPeer):
    """The package rtree, loaded and queried in bulk.

    Nodes of 50 are a compromise: of sizes from 16 to 1000, 100 was best in 2-d, 50 in 4-d, 16 in
    8-d.
    """

    name = "libspatialindex"
    package = "rtree"

    def __init__(self, lo: F64, hi: F64):
        from rtree import index

        super().__init__(lo, hi)
        settings = index.Property(
            dimension=lo.shape[1], leaf_capacity=50, index_capacity=50, fill_factor=0.9
        )
        self.tree = index.Index((np.arange(len(lo)), lo, hi), properties=settings)

    def match(self, points: F64) -> Any:
        return self.tree.intersection_v(points, points)

    def match_one(self, point: F64) -> list[int]:
        value = point.tolist()
        return list(self.tree.intersection(value + value))

    def pairs(self, found: Any) -> tuple[AnyArray, AnyArray]:
        rows, counts = found
        return np.repeat(np.arange(len(counts)), counts.astype(np.int64)), rows

    def replace(self, rows: AnyArray, lo: F64, hi: F64) -> None:
        for row, low, high in zip(rows.tolist(), lo.tolist(), hi.tolist(), strict=True):
            self.tree.delete(row, [*self.lo[row], *self.hi[row]])
            self.tree.insert(row, low + high)
        self.lo[rows], self.hi[rows] = lo, hi

    def close(self) -> None:
        self.tree.close()


class Sqlite(MatchPeer):
    """SQLite's R*Tree module, in memory. It keeps bounds as float32, rounded outward.

    Bounds that float32 can't hold are kept beside it as auxiliary columns and checked once more.
    """

    name = "SQLite R*Tree"
    dimensions = range(1, 6)

    def __init__(self, lo: F64, hi: F64):
        super().__init__(lo, hi)
        axes = range(lo.shape[1])
        exact = all((ends == ends.astype(np.float32)).all() for ends in (lo, hi))
        columns = ["id", *(f"lo{j}, hi{j}" for j in axes)]
        checks = [f"lo{j} <= x{j} and hi{j} >= x{j}" for j in axes]
        if not exact:
            columns += [f"+exact_lo{j}, +exact_hi{j}" for j in axes]
            checks += [f"exact_lo{j} <= x{j} and exact_hi{j} >= x{j}" for j in axes]
        self.times = 1 if exact else 2
        places = ", ".join("?" * (1 + 2 * len(axes) * self.times))
        condition = " and ".join(checks)
        names = ", ".join(f"x{j}" for j in axes)
        self.database = sqlite3.connect(":memory:", isolation_level=None)
        self.database.execute(f"create virtual table boxes using rtree({', '.join(columns)})")
        self.database.execute(f"create temp table events (event integer primary key, {names})")
        self._put = f"insert or replace into boxes values ({places})"
        self._put_events = f"insert into events values ({', '.join('?' * (1 + lo.shape[1]))})"
        # `cross join` is SQLite's way to say which table goes outside.
        self._join = f"select event, id from events cross join boxes where {condition}"
        one = ", ".join(f"? as x{j}" for j in axes)
        self._one = f"select id from (select {one}) cross join boxes where {condition}"
        self.replace(np.arange(len(lo)), lo, hi)

    def replace(self, rows: AnyArray, lo: F64, hi: F64) -> None:
        values = np.tile(np.stack([lo, hi], axis=2).reshape(len(lo), -1), self.times)
        self.database.execute("begin")
        numbered = zip(rows.tolist(), values.tolist(), strict=True)
        self.database.executemany(self._put, ([row, *ends] for row, ends in numbered))
        self.database.execute("commit")

    def match(self, points: F64) -> list[tuple[int, int]]:
        self.database.execute("begin")
        numbered = enumerate(points.tolist())
        self.database.executemany(self._put_events, ([event, *x] for event, x in numbered))
        found = self.database.execute(self._join).fetchall()
        self.database.execute("rollback")
        return found

    def match_one(self, point: F64) -> list[tuple[int]]:
        return self.database.execute(self._one, point.tolist()).fetchall()

    def pairs(self, found: Any) -> tuple[AnyArray, AnyArray]:
        events, rows = np.array(found, dtype=np.int64).reshape(-1, 2).T
        return events, rows

    def rows(self, found: Any) -> AnyArray:
        return np.array(found, dtype=np.int64).reshape(-1)

    def close(self) -> None:
        self.database.close()


class Duckdb(MatchPeer):
    """DuckDB's join by inequalities, with events as an Arrow table."""

    name = "DuckDB"
    package = "duckdb"

    def __init__(self, lo: F64, hi: F64):
        super().__init__(lo, hi)
        axes = range(lo.shape[1])
        self.database = in_duckdb(lo, hi, "id")
        held = " and ".join(f"x{j} between lo{j} and hi{j}" for j in axes)
        self._join = f"select event, id from events join boxes on {held}"
        here = " and ".join(f"lo{j} <= ${j + 1} and hi{j} >= ${j + 1}" for j in axes)
        self._one = f"select id from boxes where {here}"

    def match(self, points: F64) -> Any:
        columns: dict[str, AnyArray] = {"event": np.arange(len(points), dtype=np.int32)}
        columns |= {f"x{j}": points[:, j] for j in range(points.shape[1])}
        self.database.register("events", pa.table(columns))
        return self.database.execute(self._join).fetchnumpy()

    def match_one(self, point: F64) -> Any:
        return self.database.execute(self._one, point.tolist()).fetchnumpy()

    def match_threads(self, points: F64, threads: int) -> object:
        self.database.execute(f"set threads = {threads}")
        try:
            return self.match(points)
        finally:
            self.database.execute("set threads = 1")

    def pairs(self, found: Any) -> tuple[AnyArray, AnyArray]:
        return found["event"], found["id"]

    def rows(self, found: Any) -> AnyArray:
        return np.asarray(found["id"])

    def close(self) -> None:
        self.database.close()


class Polars(MatchPeer):
    """Polars' join by inequalities; the streaming engine was the faster one in a trial in 4-d."""

    name = "Polars join_where"
    package = "polars"

    def __init__(self, lo: F64, hi: F64):
        import polars as pl

        super().__init__(lo, hi)
        self.pl = pl
        self.axes = range(lo.shape[1])
        columns: dict[str, AnyArray] = {"id": np.arange(len(lo), dtype=np.int32)}
        columns |= {f"lo{j}": lo[:, j] for j in self.axes} | {f"hi{j}": hi[:, j] for j in self.axes}
        self.boxes = pl.DataFrame(columns)

    def _held(self, values: Sequence[Any]) -> list[Any]:
        col = self.pl.col
        ends = [(col(f"lo{j}") <= x, col(f"hi{j}") >= x) for j, x in enumerate(values)]
        return [end for both in ends for end in both]

    def match(self, points: F64) -> Any:
        columns: dict[str, AnyArray] = {"event": np.arange(len(points), dtype=np.int32)}
        events = self.pl.DataFrame(columns | {f"x{j}": points[:, j] for j in self.axes})
        held = self._held([self.pl.col(f"x{j}") for j in self.axes])
        joined = events.lazy().join_where(self.boxes.lazy(), *held)
        return joined.select("event", "id").collect(engine="streaming")

    def match_one(self, point: F64) -> Any:
        return self.boxes.lazy().filter(*self._held(point.tolist())).select("id").collect()

    def pairs(self, found: Any) -> tuple[AnyArray, AnyArray]:
        return found["event"].to_numpy(), found["id"].to_numpy()

    def rows(self, found: Any) -> AnyArray:
        return np.asarray(found["id"].to_numpy())


PEERS: tuple[type[MatchPeer], ...] = (
    NumpyScan,
    Shapely,
    Geoindex,
    Rtree,
    Sqlite,
    Duckdb,
    Polars,
    PostgresMatch,
)
