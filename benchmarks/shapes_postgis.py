"""Polygons in PostGIS: a GiST index of geometries, asked for those that cover points."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.postgres import server
from benchmarks.started import Unavailable
from rangecast.kernels.arrays import F64


class PostGIS:
    """A connection of its own, with the polygons and some points in tables."""

    def __init__(self, polygons: Sequence[str], points: F64):
        """Load polygons as WKT, numbered from 0, and points."""
        self.session = server().session()
        try:
            create = "create extension if not exists postgis"
            self.session.run("set client_min_messages = error", create)
        except RuntimeError as error:
            raise Unavailable(f"no PostGIS: {error}") from None
        self.backend = int(self.session.run("select pg_backend_pid()")[0])
        self.file = server().folder / "shapes.copy"
        self._load("given (id int4, wkt text)", polygons)
        self._load(
            "spots (id int4, wkt text)", [f"POINT ({x!r} {y!r})" for x, y in points.tolist()]
        )
        self.session.run(
            "create temp table polygons as select id, wkt::geometry as shape from given",
            "create index on polygons using gist (shape)",
            "create temp table points as select id, wkt::geometry as place from spots",
            "analyze polygons",
            "analyze points",
        )

    def _load(self, table: str, texts: Sequence[str]) -> None:
        lines = "".join(f"{number}\t{text}\n" for number, text in enumerate(texts))
        self.file.write_text(lines, encoding="ascii")
        self.session.run(f"create temp table {table}")
        self.session.run(f"copy {table.split()[0]} from '{self.file}'")

    def pairs(self) -> set[tuple[int, int]]:
        """Return (point, polygon) of all polygons that cover a point."""
        found = self.session.run(
            "select e.id, p.id from points e join polygons p on ST_Covers(p.shape, e.place)"
        )
        return {(int(a), int(b)) for a, _, b in (line.partition("|") for line in found)}

    def seconds(self, rounds: int) -> float:
        """Return the least processor seconds of the server for all points."""
        took = []
        for _ in range(rounds):
            began = self._clock()
            self.session.run(
                "select count(*) from points e join polygons p on ST_Covers(p.shape, e.place)"
            )
            took.append(self._clock() - began)
        return float(np.min(took))

    def _clock(self) -> float:
        try:
            used = Path(f"/proc/{self.backend}/schedstat").read_text(encoding="ascii")
        except OSError:
            return time.perf_counter()
        return int(used.split()[0]) / 1e9

    def close(self) -> None:
        """End the connection."""
        self.session.close()
        self.file.unlink(missing_ok=True)
