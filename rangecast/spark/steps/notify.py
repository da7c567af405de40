"""The step `notify`: top-k lists of millions of interests, kept up to date by a stream of updates.

    lists = TopKLists(session, folder, objects, interests, k=10)
    query = lists.start(updates)            # a streaming DataFrame: seq, id, y and perhaps x
    lists.read().show()                     # interest, rank, object, x, y

A micro-batch of updates is one batch of Paint-Batch, painted on the driver, which knows the objects
and where interests lie. Its messages go to the workers; each takes a bucket of interests that lie
side by side, applies the messages to their lists, and writes those that changed (`buckets`).
Buckets that no message can reach are left alone.

    folder/
        lock                        held by the one who applies batches
        messages/batch=000000012/   what was sent, as `rangecast notify` writes it, with arrivals
        interests/, lists/, objects/    see `buckets`
        state.json                  the last batch that was committed, and the files that count
        checkpoint/                 Spark's own

The rename of `state.json` is the commit. A batch that is run again is painted again from the
state before it if it wasn't committed, and skipped if it was; so a restart loses nothing and
applies nothing twice. Files that no longer count stay for one more batch, for those who are
reading. The folder is on a file system with an atomic rename that driver and workers share.
"""

from __future__ import annotations

import json
import shutil
import weakref
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StringType

from rangecast.errors import FileError, UsageError
from rangecast.kernels.arrays import F64, I32, I64
from rangecast.model.badrows import BadRows
from rangecast.model.durable import sync_folder, sync_tree, try_lock
from rangecast.model.numbers import MAX
from rangecast.model.records import table_source
from rangecast.notify.line_board import LineBoard
from rangecast.notify.messages import Messages
from rangecast.notify.objects import Objects
from rangecast.notify.tables import Change, message_rows, message_schema, read_updates
from rangecast.spark.columns import need
from rangecast.spark.session import need_classic, parallelism
from rangecast.spark.steps.buckets import (
    INTERESTS,
    LISTS,
    Bucket,
    FilePart,
    OpenBucket,
    State,
    Work,
    buckets_of,
    committed_state,
    read_objects,
    read_table,
    sweep,
    write_objects,
)

ENTRIES = 1 << 20
"""Objects in all lists of a bucket, 16 bytes each: a worker holds a bucket at a time."""
_SHARED = "give a folder on a file system that the driver and all workers mount"
_START = -1
"""The batch before the first one."""


class TopKLists:
    """The lists of all interests, in a folder. One at a time applies batches; any may read.

    It begins with `objects` and `interests`; a folder that has been begun goes on without them.
    `close` it, or leave a `with`, to let another one apply batches.
    """

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
        descending: bool = False,
    ):
        need_classic(session, "TopKLists")
        self._session = session
        self.folder = Path(folder).absolute()
        self._k = k
        self._how: dict[str, Any] = {
            "algorithm": algorithm,
            "epsilon": epsilon,
            "descending": descending,
        }
        self._board: LineBoard | None = None
        self._lock: IO[str] | None = None
        settings = {"k": k, **self._how}
        state = committed_state(self.folder)
        if state is not None:
            if state.settings != settings:
                raise UsageError(f"{folder}: was begun with {state.settings}; given: {settings}")
            return
        if objects is None or interests is None:
            raise UsageError(f"{folder}: holds no lists yet; give it objects and interests")
        self._begin(objects, interests, settings)

    def _begin(self, objects: DataFrame, interests: DataFrame, settings: dict[str, Any]) -> None:
        self._hold()
        need(objects, ("id", "x", "y"), "objects")
        need(interests, ("id", "x_lo", "x_hi"), "interests")
        k = self._k
        table = objects.select("id", "x", "y").orderBy("id").toArrow()
        board = LineBoard(k, objects=table, **self._how)
        wanted = F.col("k") if "k" in interests.columns else F.lit(k)
        kind = "string" if isinstance(interests.schema["id"].dataType, StringType) else "bigint"
        ranges = interests.select(
            F.col("id").cast(kind).alias("id"),
            F.coalesce(F.col("x_lo").cast("double"), F.lit(-MAX)).alias("x_lo"),
            F.coalesce(F.col("x_hi").cast("double"), F.lit(MAX)).alias("x_hi"),
            F.coalesce(wanted, F.lit(k)).cast("int").alias("k"),
        )
        wrong = ranges.where("not x_lo <= x_hi or k < 1 or k > " + str(k)).limit(1).collect()
        if wrong:
            raise UsageError(f"interest {wrong[0]['id']!r}: needs x_lo <= x_hi and 1 <= k <= {k}")
        seen = Observation()
        ranges = ranges.observe(seen, F.count(F.lit(1)).alias("rows"))
        writer = ranges.orderBy("x_lo", "x_hi").write.mode("overwrite")
        writer = writer.option("maxRecordsPerFile", max(1, ENTRIES // k))
        writer.parquet(f"file://{self.folder / INTERESTS}")
        empty = State(_START, settings, kind, [], buckets_of(self.folder), Work())
        there = sum(bucket.interests for bucket in empty.buckets)
        if there != seen.get["rows"]:
            raise FileError(
                f"{self.folder}: {seen.get['rows']:,} interests were written, and {there:,} of "
                f"them are there\n  to do: {_SHARED}"
            )
        sync_tree(self.folder / INTERESTS)
        looker = _looker(board.line)
        state = self._changed(empty, range(len(empty.buckets)), looker)
        self._commit(state, board, table["id"])

    def close(self) -> None:
        """Let another one apply batches."""
        self._board = None
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def __enter__(self) -> TopKLists:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _hold(self) -> None:
        """Refuse to apply batches where another one does: it goes on from its own state."""
        if self._lock is not None:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        self._lock = try_lock(self.folder / "lock")
        if self._lock is None:
            raise UsageError(
                f"{self.folder}: another one applies batches there\n"
                "  to do: stop that process, or close() its TopKLists"
            )
        weakref.finalize(self, self._lock.close)

    def start(self, updates: DataFrame, **trigger: Any) -> StreamingQuery:
        """Start to apply a stream of updates; `trigger` is Spark's, such as availableNow=True."""
        need(updates, ("seq", "id", "y"), "updates")
        writer = updates.writeStream.foreachBatch(self.apply)
        writer = writer.option("checkpointLocation", str(self.folder / "checkpoint"))
        return (writer.trigger(**trigger) if trigger else writer).start()

    def apply(self, updates: DataFrame, batch: int) -> None:
        """Apply a batch of updates in the order of `seq`; one that was committed does nothing."""
        columns = [name for name in ("id", "y", "x") if name in updates.columns]
        if batch > self.committed:
            rows = updates.orderBy("seq").select(*columns).toArrow()
            self.apply_changes(self.usable(rows, BadRows()), batch, rows.schema.field("id").type)

    def usable(self, rows: pa.Table, bad: BadRows) -> list[Change]:
        """Return the updates that can be applied one after the other: id, y and perhaps x.

        Those that can't go to `bad`.
        """
        self._hold()
        if self._board is None:
            self._board = self._loaded(self._state)
        source, kind = table_source(rows, "updates"), rows.schema.field("id").type
        parts = read_updates(source, kind, self._board.objects.__contains__, bad)
        return [change for part in parts for change in part.changes]

    def apply_changes(self, changes: Sequence[Change], batch: int, kind: pa.DataType) -> None:
        """Apply a batch that wasn't committed, of updates of objects with ids of this type."""
        self._hold()
        state = self._state
        board = self._board or self._loaded(state)
        self._board = None  # until the batch is committed the folder alone is right
        messages = board.update_batch(changes)
        self._send(messages, batch, kind)
        reached = [
            number for number, one in enumerate(state.buckets) if one.may_hear(messages.tile)
        ]
        teller = _teller(messages.arrival, self._signed(messages.y), messages.tile)
        state = self._changed(state._replace(batch=batch), reached, teller)
        self._commit(state, board, pa.array([change.id for change in changes], kind))
        self._board = board

    def messages(self, batch: int) -> DataFrame:
        """Return the messages of a batch that was applied."""
        return self._session.read.parquet(f"file://{self._messages(batch)}")

    @property
    def committed(self) -> int:
        """The number of the last batch that was applied for good, -1 before the first one."""
        return self._state.batch

    @property
    def work(self) -> Work:
        """What that batch changed, wrote and read."""
        return self._state.work

    @property
    def _state(self) -> State:
        state = committed_state(self.folder)
        assert state is not None
        return state

    def _loaded(self, state: State) -> LineBoard:
        tables = [read_table(self.folder, INTERESTS, one.file) for one in state.buckets]
        lo, hi = (
            np.concatenate([np.zeros(0), *(table[name].to_numpy() for table in tables)])
            for name in ("x_lo", "x_hi")
        )
        objects = read_objects(self.folder, state.objects)
        interests = {"id": np.arange(len(lo)), "x_lo": lo, "x_hi": hi}
        return LineBoard(self._k, objects=objects, interests=interests, **self._how)

    def _signed(self, ys: Any) -> Any:
        """Return values of messages as lists hold them, the lowest first; and back."""
        return 0.0 - ys if self._how["descending"] else ys

    def _send(self, messages: Messages, batch: int, kind: pa.DataType) -> None:
        """Write the messages of a batch, over those of an attempt that wasn't committed."""
        target = self._messages(batch)
        shutil.rmtree(target, ignore_errors=True)
        seq = np.full(len(messages), batch, np.int64)
        rows = message_rows(messages, message_schema(kind), seq)
        table = pa.Table.from_batches([rows]).append_column("arrival", pa.array(messages.arrival))
        fresh = target.with_name(f".{target.name}-{uuid4().hex}")
        fresh.mkdir(parents=True)
        pq.write_table(table, fresh / "part.parquet")
        sync_tree(fresh)
        fresh.rename(target)
        sync_folder(target.parent)

    def _messages(self, batch: int) -> Path:
        return self.folder / "messages" / f"batch={batch:09}"

    def _changed(self, state: State, numbers: Sequence[int], change: Effect) -> State:
        """Return the state after the lists of some buckets changed, on the workers."""

        def write(number: int, bucket: OpenBucket) -> pa.RecordBatch:
            changed = change(bucket)
            parts, written = bucket.write(changed)
            done = [number, parts, Work(len(changed), written, bucket.read)]
            return pa.record_batch({"done": [json.dumps(done)]})

        buckets, works = list(state.buckets), []
        for row in self._on_buckets(state, numbers, write, "done string").collect():
            number, parts, work = json.loads(row["done"])
            buckets[number] = buckets[number]._replace(parts=[FilePart(*part) for part in parts])
            works.append(work)
            lost = [part[0] for part in parts if not (self.folder / LISTS / part[0]).exists()]
            if lost:
                raise FileError(
                    f"{self.folder}: a worker wrote lists that aren't there: {lost[0]}\n"
                    f"  to do: {_SHARED}"
                )
        total = Work(*(sum(counts) for counts in zip(*works, strict=True)))
        return state._replace(buckets=buckets, work=total)

    def _commit(self, state: State, board: LineBoard, changed: pa.Array | pa.ChunkedArray) -> None:
        """Write the objects that changed, and make this state the one that holds."""
        parts = write_objects(self.folder, state.objects, board.table, changed)
        written = parts[-1].rows if parts != state.objects else 0
        state = state._replace(objects=parts, work=state.work._replace(objects=written))
        before = committed_state(self.folder)
        state.commit(self.folder)
        sweep(self.folder, state.files() | (before.files() if before else set()))

    def _on_buckets(
        self,
        state: State,
        numbers: Sequence[int],
        task: Callable[[int, OpenBucket], pa.RecordBatch],
        schema: str,
    ) -> DataFrame:
        """Return what a task gives for each of some buckets, opened one after the other."""
        folder, k = self.folder, self._k
        some: list[tuple[int, Bucket]] = [(number, state.buckets[number]) for number in numbers]

        def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                for place in batch.column(0).to_pylist():
                    number, bucket = some[place]
                    yield task(number, OpenBucket(folder, bucket, k))

        tasks = min(len(some), 4 * parallelism(self._session))
        places = self._session.range(0, len(some), numPartitions=max(tasks, 1))
        return places.mapInArrow(run, schema)

    def read(self) -> DataFrame:
        """Return all lists as they were committed: interest, rank (from 1), object, x, y."""
        state = self._state
        schema = f"interest {state.id}, rank int, arrival bigint, y double"
        entries = self._on_buckets(state, range(len(state.buckets)), _entries, schema)
        objects = self._session.createDataFrame(read_objects(self.folder, state.objects))
        named = objects.select(F.col("id").alias("object"), "x", "arrival")
        found = entries.withColumn("y", self._signed(F.col("y"))).join(named, "arrival")
        return found.select("interest", "rank", "object", "x", "y")


Effect = Callable[[OpenBucket], I32]
"""Changes lists of a bucket, in a worker; returns which."""


def _looker(objects: Objects) -> Effect:
    """Return what makes the first lists of a bucket."""
    _, xs, ys, arrivals = objects.columns()
    return lambda bucket: bucket.look(Objects(xs, ys, arrivals))


def _teller(arrival: I64, y: F64, tile: F64) -> Effect:
    """Return what applies messages to the lists of a bucket."""
    return lambda bucket: bucket.tell(arrival, y, tile)


def _entries(_: int, bucket: OpenBucket) -> pa.RecordBatch:
    """Return what the lists of a bucket show."""
    arrivals, wanted = bucket.lists.arrivals, bucket.table["k"].to_numpy()
    shown = (np.arange(arrivals.shape[1]) < wanted[:, None]) & (arrivals >= 0)
    places, ranks = np.nonzero(shown)
    return pa.record_batch(
        {
            "interest": bucket.table["id"].combine_chunks().take(pa.array(places)),
            "rank": pa.array((ranks + 1).astype(np.int32)),
            "arrival": pa.array(arrivals[shown]),
            "y": pa.array(bucket.lists.ys[shown]),
        }
    )
