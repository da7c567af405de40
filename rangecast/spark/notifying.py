"""The step `notify`: top-k lists of millions of interests, kept up to date by a stream of updates.

    lists = KeptLists(session, folder, objects, interests, k=10)
    query = lists.start(updates)            # a streaming DataFrame: seq, id, y and perhaps x
    lists.read().show()                     # interest, rank, object, x, y

A micro-batch of updates is one batch of Paint-Batch, painted on the driver, which knows the objects
and where interests lie. Its messages go to all workers, and each applies them to the lists of its
interests, found by region in a tree over them.

    folder/
        messages/batch=000000012/   what was sent, as `rangecast notify` writes it, with arrivals
        state/000000012/            after this batch; `start` before the first one
            objects.parquet         id, x, y, arrival
            lists/*.parquet         id, x_lo, x_hi, k, and arrivals and ys of the objects in a list
        checkpoint/                 Spark's own

A state is written under another name and renamed when it is whole: that is the commit. A batch
that is run again is painted anew from the state before it if it wasn't committed, and passed over
if it was; so a restart loses nothing and applies nothing twice. The folder is on a file system
with an atomic rename that driver and workers share.

Each micro-batch reads and writes all lists, 16 k bytes an interest: make batches large.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import ArrayType, DoubleType, IntegerType, LongType, StringType, StructType

from rangecast.errors import UsageError
from rangecast.notify.board import Board
from rangecast.notify.given import MAX
from rangecast.notify.interests import Interests
from rangecast.notify.messages import Messages
from rangecast.notify.objects import Objects
from rangecast.notify.subscriber import Lists
from rangecast.notify.tables import message_rows, message_schema
from rangecast.spark.columns import need

_START = "start"
_SETTINGS = "settings.json"


class KeptLists:
    """The lists of all interests, in a folder; one process at a time may hold it."""

    def __init__(
        self,
        session: SparkSession,
        folder: str | Path,
        objects: DataFrame | None = None,
        interests: DataFrame | None = None,
        *,
        k: int = 10,
        algorithm: str = "sparse",
        epsilon: float | None = None,
    ):
        self._session = session
        self.folder = Path(folder).absolute()
        self._k = k
        self._how: dict[str, Any] = {"algorithm": algorithm, "epsilon": epsilon}
        self._board: Board | None = None
        if (self.folder / _SETTINGS).exists():
            there = json.loads((self.folder / _SETTINGS).read_text())
            if there != self._settings:
                raise UsageError(f"{folder}: was begun with {there}; given: {self._settings}")
            return
        if objects is None or interests is None:
            raise UsageError(f"{folder}: holds no lists yet; give it objects and interests")
        self._begin(objects, interests)

    def _begin(self, objects: DataFrame, interests: DataFrame) -> None:
        need(objects, ("id", "x", "y"), "objects")
        need(interests, ("id", "x_lo", "x_hi"), "interests")
        k = self._k
        table = objects.select("id", "x", "y").orderBy("id").toArrow()
        board = Board(k, table, **self._how)
        wanted = F.col("k") if "k" in interests.columns else F.lit(k)
        ranges = interests.select(
            "id",
            F.coalesce(F.col("x_lo").cast("double"), F.lit(-MAX)).alias("x_lo"),
            F.coalesce(F.col("x_hi").cast("double"), F.lit(MAX)).alias("x_hi"),
            F.coalesce(wanted, F.lit(k)).cast("int").alias("k"),
        )
        wrong = ranges.where("not x_lo <= x_hi or k < 1 or k > " + str(k)).limit(1).collect()
        if wrong:
            raise UsageError(f"interest {wrong[0]['id']!r}: needs x_lo <= x_hi and 1 <= k <= {k}")
        schema = _lists_schema(ranges.schema["id"].dataType)
        first = ranges.mapInArrow(_looker(board.table(), k), schema)
        self._commit(_START, board, first)
        self.folder.joinpath(_SETTINGS).write_text(json.dumps(self._settings))

    @property
    def _settings(self) -> dict[str, Any]:
        return {"k": self._k, **self._how}

    def start(self, updates: DataFrame, **trigger: Any) -> StreamingQuery:
        """Start to apply a stream of updates; `trigger` is Spark's, such as availableNow=True."""
        need(updates, ("seq", "id", "y"), "updates")
        writer = updates.writeStream.foreachBatch(self.apply)
        writer = writer.option("checkpointLocation", str(self.folder / "checkpoint"))
        return (writer.trigger(**trigger) if trigger else writer).start()

    def apply(self, updates: DataFrame, batch: int) -> None:
        """Apply a batch of updates in the order of `seq`; one that was committed does nothing."""
        if batch <= self.committed:
            return
        board = self._board or self._loaded()
        self._board = None  # until the batch is committed the folder alone is right
        columns = [name for name in ("id", "y", "x") if name in updates.columns]
        rows = updates.orderBy("seq").select(*columns).toArrow()
        messages = board.apply(zip(*(rows[name].to_pylist() for name in columns), strict=True))
        self._send(messages, batch, rows.schema.field("id").type)
        lists = self._session.read.parquet(str(self._state / "lists"))
        teller = _teller(messages.arrival, messages.y, messages.tile)
        self._commit(f"{batch:09}", board, lists.mapInArrow(teller, lists.schema))
        self._board = board

    @property
    def committed(self) -> int:
        """The number of the last batch that was applied for good, -1 before the first one."""
        name = self._state.name
        return -1 if name == _START else int(name)

    @property
    def _state(self) -> Path:
        states = [path for path in (self.folder / "state").iterdir() if path.name[0] != "."]
        return max(states, key=lambda path: "" if path.name == _START else path.name)

    def _loaded(self) -> Board:
        ranges = self._session.read.parquet(str(self._state / "lists")).select("x_lo", "x_hi")
        ends = ranges.toArrow()
        interests = Interests(ends["x_lo"].to_numpy(), ends["x_hi"].to_numpy())
        objects = pq.read_table(self._state / "objects.parquet")
        return Board(self._k, objects, interests, **self._how)

    def _send(self, messages: Messages, batch: int, kind: pa.DataType) -> None:
        """Write the messages of a batch, over those of an attempt that wasn't committed."""
        target = self.folder / "messages" / f"batch={batch:09}"
        shutil.rmtree(target, ignore_errors=True)
        seq = np.full(len(messages), batch, np.int64)
        rows = message_rows(messages, message_schema(kind), seq)
        table = pa.Table.from_batches([rows]).append_column("arrival", pa.array(messages.arrival))
        fresh = target.with_name(f".{target.name}-{uuid4().hex}")
        fresh.mkdir(parents=True)
        pq.write_table(table, fresh / "part.parquet")
        fresh.rename(target)

    def _commit(self, name: str, board: Board, lists: DataFrame) -> None:
        states = self.folder / "state"
        fresh = states / f".{name}-{uuid4().hex}"
        lists.write.parquet(str(fresh / "lists"))
        pq.write_table(board.table(), fresh / "objects.parquet")
        fresh.rename(states / name)
        for path in states.iterdir():
            if path.name != name:
                shutil.rmtree(path, ignore_errors=True)

    def read(self) -> DataFrame:
        """Return all lists as they were committed: interest, rank (from 1), object, x, y."""
        state = str(self._state)
        lists = self._session.read.parquet(f"{state}/lists")
        objects = self._session.read.parquet(f"{state}/objects.parquet")
        entries = lists.select(
            F.col("id").alias("interest"),
            "k",
            F.posexplode(F.arrays_zip("arrivals", "ys")).alias("place", "entry"),
        ).where("place < k and entry.arrivals >= 0")
        named = objects.select(F.col("id").alias("object"), "x", "arrival")
        return entries.join(named, F.col("entry.arrivals") == F.col("arrival")).select(
            "interest",
            (F.col("place") + 1).alias("rank"),
            "object",
            "x",
            F.col("entry.ys").alias("y"),
        )


def _lists_schema(kind: Any) -> StructType:
    schema = StructType().add("id", kind if isinstance(kind, StringType) else LongType())
    schema = schema.add("x_lo", DoubleType()).add("x_hi", DoubleType()).add("k", IntegerType())
    return schema.add("arrivals", ArrayType(LongType())).add("ys", ArrayType(DoubleType()))


Batches = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def _looker(objects: pa.Table, k: int) -> Batches:
    """Return what makes the first list of each interest, in a worker."""
    xs, ys = objects["x"].to_numpy(), objects["y"].to_numpy()
    arrivals = objects["arrival"].to_numpy()

    def look(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        line = Objects(xs, ys, arrivals)
        for batch in batches:
            yield _with_lists(batch, Lists.now(line, _interests_of(batch), k))

    return look


def _teller(arrival: Any, y: Any, tile: Any) -> Batches:
    """Return what applies messages to the lists of each batch of interests, in a worker."""

    def tell(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            rows = batch.num_rows
            arrivals, ys = (
                batch.column(name).flatten().to_numpy(zero_copy_only=False).reshape(rows, -1).copy()
                for name in ("arrivals", "ys")
            )
            lists = Lists(_interests_of(batch), arrivals, ys)
            lists.apply(arrival, y, tile)
            yield _with_lists(batch, lists)

    return tell


def _interests_of(batch: pa.RecordBatch) -> Interests:
    lo, hi = (batch.column(n).to_numpy(zero_copy_only=False) for n in ("x_lo", "x_hi"))
    return Interests(lo, hi)


def _with_lists(batch: pa.RecordBatch, lists: Lists) -> pa.RecordBatch:
    rows, k = lists.arrivals.shape
    offsets = pa.array(np.arange(0, (rows + 1) * k, k, dtype=np.int32))
    return pa.record_batch(
        {
            **{name: batch.column(name) for name in ("id", "x_lo", "x_hi", "k")},
            "arrivals": pa.ListArray.from_arrays(offsets, pa.array(lists.arrivals.ravel())),
            "ys": pa.ListArray.from_arrays(offsets, pa.array(lists.ys.ravel())),
        }
    )
