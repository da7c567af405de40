"""The data source `rangecast`: the subscriptions of a snapshot, or of a folder of versions.

    spark.read.format("rangecast").load("searches")                     # the newest version
    spark.read.format("rangecast").option("version", 3).load("searches")

Columns: id, filter (a text), score, seq (the order of arrival), and weight_<attribute> if the
subscriptions have weights: what `match` and the other steps take as a DataFrame. Driver and workers
read the folder, so on a cluster all of them must mount it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import DoubleType, LongType, StringType, StructType

from rangecast.errors import UsageError
from rangecast.model.boxes import Boxes
from rangecast.model.filters.formatting import text_of_bounds
from rangecast.model.snapshot import MANIFEST
from rangecast.model.space import Space
from rangecast.spark.columns import as_spark_ids
from rangecast.store.versions import Versions, load_set

_PARTITION, _BATCH = 1 << 14, 1 << 12
"""Subscriptions of a partition, and of a record batch."""


class SubscriptionsSource(DataSource):
    """Spark data source for the subscriptions of a folder."""

    @classmethod
    def name(cls) -> str:
        """Return the name for `format`."""
        return "rangecast"

    def schema(self) -> StructType:
        """Return the columns."""
        boxes, space = _Place.of(self.options).load()
        whole = pa.types.is_integer(boxes.ids.type)
        fields = StructType().add("id", LongType() if whole else StringType())
        fields = (
            fields.add("filter", StringType()).add("score", DoubleType()).add("seq", LongType())
        )
        for name in _weights(boxes, space):
            fields = fields.add(name, DoubleType())
        return fields

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of the rows."""
        return _Reader(_Place.of(self.options))


class _Place(NamedTuple):
    """Location and version of the subscriptions, the same for all workers."""

    path: str
    version: int | None
    """`None`: the path is a snapshot."""

    @classmethod
    def of(cls, options: Any) -> _Place:
        path, version = options.get("path"), options.get("version")
        if path is None:
            raise UsageError(
                "the path is missing; hint: give a folder of subscriptions: load(path)"
            )
        if version is not None and not version.isdecimal():
            raise UsageError(f"option version: expected a whole number; given: {version!r}")
        if not (Path(path) / MANIFEST).exists():
            return cls(path, Versions(path).latest() if version is None else int(version))
        if version is not None:
            raise UsageError(
                f"{path}: is a single snapshot without versions\n"
                "  hint: leave out the option version, or give the folder of versions"
            )
        return cls(path, None)

    def load(self) -> tuple[Boxes, Space]:
        """Map the subscriptions; a worker that reads several partitions checks them once."""
        folder = Path(self.path) if self.version is None else Versions(self.path).path(self.version)
        return _mapped(self, folder.stat().st_ino, folder.stat().st_mtime_ns)


@lru_cache(maxsize=1)
def _mapped(place: _Place, *_: int) -> tuple[Boxes, Space]:
    if place.version is None:
        return load_set(place.path)
    return Versions(place.path).load(place.version)


class _Reader(DataSourceReader):
    def __init__(self, place: _Place):
        self._place = place

    def partitions(self) -> Sequence[InputPartition]:
        boxes, _ = self._place.load()
        return [InputPartition(begin) for begin in range(0, max(1, boxes.rows), _PARTITION)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        boxes, space = self._place.load()
        end = min(partition.value + _PARTITION, boxes.rows)
        for begin in range(partition.value, end, _BATCH):
            rows = np.arange(begin, min(begin + _BATCH, end))
            yield _batch(boxes.take(rows), rows, space)


def _batch(boxes: Boxes, seq: Any, space: Space) -> pa.RecordBatch:
    ends = boxes.box_offsets.tolist()
    texts = [
        text_of_bounds(space, boxes.lo[begin:end], boxes.hi[begin:end])
        for begin, end in pairwise(ends)
    ]
    columns = {
        "id": as_spark_ids(boxes.ids),
        "filter": pa.array(texts, pa.string()),
        "score": pa.array(boxes.scores),
        "seq": pa.array(seq),
    }
    for axis, name in enumerate(_weights(boxes, space)):
        assert boxes.weights is not None
        columns[name] = pa.array(np.ascontiguousarray(boxes.weights[:, axis]))
    return pa.record_batch(columns)


def _weights(boxes: Boxes, space: Space) -> list[str]:
    return [] if boxes.weights is None else [f"weight_{name}" for name in space.names]
