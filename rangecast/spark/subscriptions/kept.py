"""Subscriptions as boxes, computed once and read several times: counted, sampled, indexed."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from pyspark.sql import DataFrame, SparkSession

from rangecast.model.boxes import Boxes
from rangecast.model.io.rejected import RejectedRows
from rangecast.model.space import Space
from rangecast.spark.session import is_connect, is_local
from rangecast.spark.shipped import build_folder
from rangecast.spark.subscriptions import packs
from rangecast.spark.subscriptions.encode import (
    boxes_of_rows,
    encode,
    encode_here,
    report_errors,
    without_duplicates,
)
from rangecast.spark.subscriptions.local_files import exceed
from rangecast.spark.subscriptions.packs import Packs
from rangecast.spark.worker_errors import raise_worker_errors

_HEAP_SHARE, _RESULT_SHARE = 16, 4
"""Parts of the JVM's heap and of the largest result up to which the driver collects a set directly:
Spark estimates its bytes, for files as they are compressed."""
_PLAIN = ("number", "integer", "timestamp", "boolean")
"""Attribute types whose bounds are plain numbers, without words."""


class SetSize(NamedTuple):
    """Size of a set."""

    rows: int
    boxes: int
    mentions: int
    """Attributes that the boxes mention, one by one."""
    dimensions: int
    seqs: int = 0
    """Rows whose order of arrival is given."""
    errors: int = 0
    """Rows that can't be used."""
    other_bytes: int = 0
    """Bytes of ids and weights."""

    @classmethod
    def of_boxes(cls, boxes: Boxes) -> SetSize:
        """Return the size of a set on the driver."""
        other_bytes = boxes.ids.nbytes + (0 if boxes.weights is None else boxes.weights.nbytes)
        mentions = int(boxes.mentions.sum())
        return cls(boxes.rows, len(boxes.lo), mentions, boxes.dimensions, other_bytes=other_bytes)


class KeptSet(NamedTuple):
    """Encoded subscriptions, as rows and as packs of rows."""

    rows: DataFrame
    packs: Packs
    space: Space
    """With every word that they mention."""
    folder: Path | None
    """Where packs lie, if all workers and the driver see it."""

    def size(self) -> SetSize:
        """Return the size of the set."""
        return SetSize(dimensions=len(self.space), **self.packs.counts())

    def gather(self, rejected: RejectedRows | None = None) -> Boxes:
        """Return all subscriptions on the driver, in order of arrival."""
        return boxes_of_rows(self.packs.collect(self.rows.schema), self.space, rejected)

    @contextmanager
    def usable(self, errors: int, rejected: RejectedRows | None) -> Iterator[KeptSet]:
        """Provide the valid subscriptions; report the others to `rejected`, or raise an error."""
        bad = rejected or RejectedRows()
        rows, folder = self.rows, self.folder
        if errors:
            report_errors(rows.filter("error is not null").toArrow(), bad)
            rows = rows.filter("error is null")
        good = rows
        if not self.packs.are_ids_apart():
            good = without_duplicates(rows, bad, self.packs.unpack(rows.schema, ["id"]))
        if good is self.rows:
            yield self
            return
        packed = good.mapInArrow(lambda batches: packs.pack(batches, folder), packs.SCHEMA)
        with _computed_packs(packed, folder) as kept:
            yield self._replace(rows=good, packs=kept)


def gather_small(
    subscriptions: DataFrame, space: Space, limit: int, rejected: RejectedRows | None = None
) -> Boxes | None:
    """Return all subscriptions on the driver if Spark says that they are small, else `None`.

    limit   bytes of a small set

    One job brings them as they are. Filters are left to the workers, which parse them side by
    side; so are bounds that are words, which are numbered.
    """
    if is_connect(subscriptions.sparkSession) or "filter" in subscriptions.columns:
        return None
    if any(attribute.type not in _PLAIN for attribute in space):
        return None
    plan: Any = subscriptions._jdf.queryExecution().optimizedPlan()
    if int(str(plan.stats().sizeInBytes())) > min(limit, _driver_room(subscriptions.sparkSession)):
        return None
    if exceed(subscriptions, limit):
        return None
    raise_worker_errors(subscriptions.sparkSession)
    return encode_here(subscriptions, space, rejected)


def _driver_room(session: SparkSession) -> int:
    """Return the bytes of a set that pass through the JVM of the driver."""
    context: Any = session.sparkContext
    room = int(context._jvm.java.lang.Runtime.getRuntime().maxMemory()) // _HEAP_SHARE
    largest = int(context._jsc.sc().conf().getSizeAsBytes("spark.driver.maxResultSize", "1g"))
    return min(room, largest // _RESULT_SHARE) if largest else room


@contextmanager
def keep_rows(subscriptions: DataFrame, space: Space) -> Iterator[KeptSet]:
    """Encode the subscriptions of a DataFrame, and keep them until the block ends."""
    with _folder(subscriptions.sparkSession) as folder:
        encoded = encode(subscriptions, space, folder)
        try:
            with _computed_packs(encoded.packs, folder) as kept:
                rows = kept.unpack(encoded.rows.schema)
                yield KeptSet(rows, kept, encoded.space, folder)
        finally:
            encoded.release()


@contextmanager
def _computed_packs(frame: DataFrame, folder: Path | None) -> Iterator[Packs]:
    kept = Packs.compute_packs(frame, folder)
    try:
        yield kept
    finally:
        kept.release()


@contextmanager
def _folder(session: SparkSession) -> Iterator[Path | None]:
    """Provide a folder that all workers see, if the master is local."""
    if not is_local(session):
        yield None
        return
    folder = build_folder()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
