"""Encoded subscriptions in packs: thousands of rows in one value of bytes, an Arrow stream.

The JVM copies, caches and shuffles a pack as one row. The counts of a pack stand beside it, so that
the size of a set is known without opening any.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from rangecast.spark.columns import arrow_schema
from rangecast.spark.packed_boxes import counts_of

COUNTS = ("rows", "boxes", "mentions", "seqs", "errors")
"""Counts of a pack: its rows, boxes, mentions of attributes, rows with a `seq`, and with errors."""
SCHEMA = "rows long, boxes long, mentions long, seqs long, errors long, data binary"
_BYTES = 16 << 20
"""Bytes of a pack, at most, unless one row has more."""


def pack(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield packs of encoded rows."""
    for batch in batches:
        size = max(1, batch.num_rows * _BYTES // max(_BYTES, batch.nbytes))
        for begin in range(0, batch.num_rows, size):
            some = batch.slice(begin, size)
            boxes, mentions = counts_of(some.column("boxes"))
            missing = [some.column(name).null_count for name in ("seq", "error")]
            counts = (some.num_rows, boxes, mentions, *(some.num_rows - one for one in missing))
            columns: dict[str, Any] = {
                name: pa.array([count], pa.int64())
                for name, count in zip(COUNTS, counts, strict=True)
            }
            yield pa.record_batch({**columns, "data": [stream_of(some)]})


def stream_of(rows: pa.RecordBatch | pa.Table) -> bytes:
    """Return rows as an Arrow stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write(rows)
    return bytes(sink.getvalue())


def rows_of(streams: Iterable[pa.Buffer], schema: StructType) -> pa.Table:
    """Return the rows of some Arrow streams, which have the columns of `schema`."""
    tables = [pa.ipc.open_stream(data).read_all() for data in streams]
    return pa.concat_tables(tables) if tables else arrow_schema(schema).empty_table()


def collect(packs: DataFrame, schema: StructType) -> pa.Table:
    """Return the rows of all packs on the driver."""
    return rows_of((data.as_buffer() for data in packs.select("data").toArrow()["data"]), schema)


def count(packs: DataFrame) -> dict[str, int]:
    """Return the counts of all packs together, by their names."""
    found = packs.select(*COUNTS).collect()
    return {name: sum(row[name] for row in found) for name in COUNTS}


def unpack(packs: DataFrame, schema: StructType, columns: Sequence[str] = ()) -> DataFrame:
    """Return the rows of packs, with some of their columns."""
    wanted = StructType([schema[name] for name in columns or schema.names])

    def open_all(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for rows in opened(batches):
            yield from rows.select(wanted.names).to_batches()

    return packs.select("data").mapInArrow(open_all, wanted)


def sample(packs: DataFrame, schema: StructType, fraction: float) -> pa.Table:
    """Return some of the rows on the driver, always the same ones."""

    def take_some(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for rows in opened(batches):
            chosen = np.random.default_rng(rows.num_rows).random(rows.num_rows) < fraction
            yield pa.record_batch({"data": [stream_of(rows.filter(pa.array(chosen)))]})

    some = packs if fraction >= 1 else packs.select("data").mapInArrow(take_some, "data binary")
    return collect(some, schema)


def opened(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Yield the rows of each pack."""
    for batch in batches:
        for data in batch.column("data"):
            yield pa.ipc.open_stream(data.as_buffer()).read_all()
