"""Encoded subscriptions in packs: thousands of rows in one value of bytes (`spool`).

The JVM copies, caches and shuffles a pack as one row. The counts of a pack stand beside it, so that
the size of a set is known without opening any.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import StorageLevel
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from rangecast.spark.columns import arrow_schema
from rangecast.spark.subscriptions import spool
from rangecast.spark.subscriptions.packed_boxes import counts_of
from rangecast.spark.subscriptions.spool import Spool

COUNTS = ("rows", "boxes", "mentions", "seqs", "errors", "other_bytes")
"""Counts of a pack: its rows, boxes, mentions of attributes, rows with a `seq`, and with errors,
and the bytes of ids and weights."""
SCHEMA = ", ".join(f"{name} long" for name in (*COUNTS, "first", "last")) + ", data binary"
"""Columns of packs; `first` and `last` are the ids of a pack whose ids ascend, else null."""
_BYTES = 16 << 20
"""Bytes of a pack, at most, unless one row has more."""
_MAX_COMPARED = 1 << 24
"""Ids that the driver compares, at most."""


def pack(batches: Iterable[pa.RecordBatch], folder: Path | None) -> Iterator[pa.RecordBatch]:
    """Yield packs of encoded rows, which lie in `folder` if all workers see one."""
    with Spool(folder) as kept:
        for batch in batches:
            size = max(1, batch.num_rows * _BYTES // max(_BYTES, batch.nbytes))
            for begin in range(0, batch.num_rows, size):
                piece = batch.slice(begin, size)
                boxes, mentions = counts_of(piece.column("boxes"))
                missing = [piece.column(name).null_count for name in ("seq", "error")]
                present = (piece.num_rows - one for one in missing)
                other_bytes = sum(piece.column(name).nbytes for name in ("id", "weights"))
                counts = (piece.num_rows, boxes, mentions, *present, other_bytes)
                columns: dict[str, Any] = {
                    name: pa.array([count], pa.int64())
                    for name, count in zip(COUNTS, counts, strict=True)
                }
                for name, end in zip(("first", "last"), _ends(piece.column("id")), strict=True):
                    columns[name] = pa.array([end], pa.int64())
                yield pa.record_batch({**columns, "data": [kept.keep(piece)]})


def _ends(ids: pa.Array) -> tuple[int | None, int | None]:
    """Return the first and the last id, if they are integers that ascend."""
    if not pa.types.is_integer(ids.type) or ids.null_count:
        return None, None
    values = ids.to_numpy()
    if (values[1:] <= values[:-1]).any():
        return None, None
    return int(values[0]), int(values[-1])


def rows_of(streams: Iterable[pa.Buffer], schema: StructType) -> pa.Table:
    """Return the rows of some Arrow streams, which have the columns of `schema`."""
    tables = [spool.read(data) for data in streams]
    return pa.concat_tables(tables) if tables else arrow_schema(schema).empty_table()


class Packs(NamedTuple):
    """Computed packs, which can be read several times."""

    frame: DataFrame
    places: pa.Table | None
    """`frame` on the driver, if the rows of packs lie in files."""

    @classmethod
    def compute_packs(cls, frame: DataFrame, folder: Path | None) -> Packs:
        """Compute packs in a separate job; `folder` is the one that `pack` writes to."""
        if folder is None:
            return cls(frame.persist(StorageLevel.DISK_ONLY), None)
        places = frame.toArrow()
        return cls(frame.sparkSession.createDataFrame(places), places)

    def release(self) -> None:
        """Remove the data that Spark caches; the owner removes the folder."""
        if self.places is None:
            with suppress(Exception):  # its session may have ended, and the data with it
                self.frame.unpersist()

    def counts(self) -> dict[str, int]:
        """Return the counts of all packs together, by their names."""
        if self.places is not None:
            return {name: pc.sum(self.places[name]).as_py() or 0 for name in COUNTS}
        rows = self.frame.select(*COUNTS).collect()
        return {name: sum(row[name] for row in rows) for name in COUNTS}

    def are_ids_apart(self) -> bool:
        """Return whether all ids are known to differ.

        They do if they ascend within each pack and no two packs overlap. Else the driver compares
        them, if it can map them and they are few enough.
        """
        ends = self.frame.select("first", "last").toArrow() if self.places is None else self.places
        if not ends["first"].null_count:
            ordered = ends.select(["first", "last"]).sort_by("first")
            if (ordered["last"].to_numpy()[:-1] < ordered["first"].to_numpy()[1:]).all():
                return True
        if self.places is None or pc.sum(self.places["rows"]).as_py() > _MAX_COMPARED:
            return False
        ids = [spool.read(data.as_buffer())["id"] for data in self.places["data"]]
        chunks = [chunk for column in ids for chunk in column.chunks]
        return int(pc.count_distinct(pa.chunked_array(chunks), mode="all").as_py()) == sum(
            map(len, chunks)
        )

    def collect(self, schema: StructType) -> pa.Table:
        """Return the rows of all packs on the driver."""
        data = self.frame.select("data").toArrow() if self.places is None else self.places
        return rows_of((value.as_buffer() for value in data["data"]), schema)

    def unpack(self, schema: StructType, columns: Sequence[str] = ()) -> DataFrame:
        """Return the rows of packs, with some of their columns."""
        wanted = StructType([schema[name] for name in columns or schema.names])

        def open_all(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for rows in opened(batches):
                yield from rows.select(wanted.names).to_batches()

        return self.frame.select("data").mapInArrow(open_all, wanted)

    def sample(self, schema: StructType, fraction: float) -> pa.Table:
        """Return a deterministic sample of the rows on the driver."""
        if fraction >= 1:
            return self.collect(schema)
        if self.places is not None:
            return pa.concat_tables(
                _sampled(rows, fraction) for rows in opened(self.places.to_batches())
            )

        def take_some(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            with Spool(None) as kept:
                for rows in opened(batches):
                    yield pa.record_batch({"data": [kept.keep(_sampled(rows, fraction))]})

        sampled = self.frame.select("data").mapInArrow(take_some, "data binary").toArrow()
        return rows_of((value.as_buffer() for value in sampled["data"]), schema)


def _sampled(rows: pa.Table, fraction: float) -> pa.Table:
    chosen = np.random.default_rng(rows.num_rows).random(rows.num_rows) < fraction
    return rows.filter(pa.array(chosen))


def opened(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Yield the rows of each pack."""
    for batch in batches:
        for data in batch.column("data"):
            yield spool.read(data.as_buffer())
