"""The data source `rangecast`: the subscriptions of a snapshot, or of a folder of versions.

    spark.read.format("rangecast").load("searches")                     # the newest version
    spark.read.format("rangecast").option("version", 3).load("searches")

Columns: id, filter (a text), score, seq (the order of arrival), and weight_<attribute> if the
subscriptions have weights: what `match` and the other steps take as a DataFrame. Driver and workers
read the folder, so on a cluster all of them must mount it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import DoubleType, LongType, StringType, StructType

from rangecast.errors import UsageError
from rangecast.model.boxes import Boxes
from rangecast.model.filters.text import text_of_bounds
from rangecast.model.snapshot import MANIFEST
from rangecast.model.space import Space
from rangecast.spark.columns import as_spark_ids
from rangecast.store.versions import Versions, load_set

_PARTITION, _BATCH = 50_000, 8192
"""Subscriptions of a partition, and of a record batch."""


class SubscriptionsSource(DataSource):
    """Subscriptions of a folder, for Spark."""

    @classmethod
    def name(cls) -> str:
        """Return what `format` calls it."""
        return "rangecast"

    def schema(self) -> StructType:
        """Return the columns."""
        boxes, space = _loaded(self.options)
        whole = pa.types.is_integer(boxes.ids.type)
        found = StructType().add("id", LongType() if whole else StringType())
        found = found.add("filter", StringType()).add("score", DoubleType()).add("seq", LongType())
        for name in _weights(boxes, space):
            found = found.add(name, DoubleType())
        return found

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return what reads the rows."""
        return _Reader(dict(self.options))


class _Reader(DataSourceReader):
    def __init__(self, options: dict[str, str]):
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        if "version" not in self._options and not _is_snapshot(self._options):
            folder = Versions(self._options["path"])
            self._options["version"] = str(folder.latest())  # all workers read the same one
        boxes, _ = _loaded(self._options)
        return [InputPartition(begin) for begin in range(0, max(1, boxes.rows), _PARTITION)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        boxes, space = _loaded(self._options)
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


def _is_snapshot(options: Any) -> bool:
    if "path" not in options:
        raise UsageError("which subscriptions? to do: give a folder, as load(path)")
    return (Path(options["path"]) / MANIFEST).exists()


def _loaded(options: Any) -> tuple[Boxes, Space]:
    """Map the subscriptions of a snapshot, or of a version in a folder of them."""
    if not _is_snapshot(options):
        versions = Versions(options["path"])
        version = options.get("version")
        if version is not None and not version.isdecimal():
            raise UsageError(f"option version: expected a whole number; given: {version!r}")
        return versions.load(versions.latest() if version is None else int(version))
    if "version" in options:
        raise UsageError(
            f"{options['path']}: is a single snapshot, which has no versions\n"
            "  to do: leave the option version out, or give the folder of the versions"
        )
    return load_set(options["path"])
