"""The market's quotes, made by many workers: the rows are the same however many there are."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from rangecast.spark.session import parallelism
from rangecast.workloads.market import QUOTE, chunks, quotes, trading_day


def market_events(
    session: SparkSession,
    events: int,
    *,
    seed: int = 0,
    symbols: int = 400,
    partitions: int | None = None,
) -> DataFrame:
    """Return the events of `generate("market", ...)`, in order of time from partition to partition.

    A partition has whole chunks (`workloads.market.CHUNK` events); by default there are as many
    partitions as Spark has cores.
    """
    count = len(chunks(events))
    wanted = partitions or parallelism(session)
    numbers = session.range(0, count, 1, max(1, min(wanted, count)))

    def make(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        day = trading_day(seed, symbols)
        for batch in batches:
            for chunk in batch.column("id").to_pylist():
                yield quotes(day, chunk, events)

    return numbers.mapInArrow(make, from_arrow_schema(QUOTE))
