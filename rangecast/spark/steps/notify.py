"""The step `notify`: top-k lists of millions of interests, kept up to date by a stream of updates.

    lists = TopKLists(session, folder, objects, interests, k=10)
    query = lists.start(updates)            # a streaming DataFrame: seq, id, y and perhaps x
    lists.edit(edits, number=0)             # interests come and go: id, op, x_lo, x_hi, k
    lists.read().show()                     # interest, rank, object, x, y

A micro-batch of updates is one batch of Paint-Batch, painted on the driver, which knows the objects
and where interests lie. Its messages go to the workers; each takes a bucket of interests that lie
side by side, applies the messages to the lists that they reach, and writes those that changed
(`open_bucket`). Buckets that no message can reach are left alone. Edits of interests are applied
between two batches, on the driver (`interest_edits`).

    folder/
        lock                        held by the one who applies batches
        messages/batch=000000012/   what was sent, as `rangecast notify` writes it, with arrivals
        interests/, lists/, objects/    see `buckets`
        state.json                  the last batch and edit that count, and the files that do
        checkpoint/, edits_checkpoint/  Spark's own

The rename of `state.json` is the commit. A batch that is run again is painted again from the
state before it if it wasn't committed, and skipped if it was; so a restart loses nothing and
applies nothing twice. The same holds for edits. Files that no longer count stay for one more
commit, for those who are reading. The folder is on a file system with an atomic rename that driver
and workers share.
"""

from __future__ import annotations

import json
import shutil
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.query import StreamingQuery

from rangecast.errors import FileError, UsageError
from rangecast.model.badrows import BadRows
from rangecast.model.durable import sync_folder, sync_tree, try_lock
from rangecast.model.records import table_source
from rangecast.notify.line_board import LineBoard
from rangecast.notify.messages import Messages
from rangecast.notify.tables import (
    Change,
    InterestColumns,
    message_rows,
    message_schema,
    read_updates,
)
from rangecast.spark.columns import arrow_ids, id_kind, need, refuse_unknown
from rangecast.spark.session import need_classic, parallelism
from rangecast.spark.steps.buckets import (
    LISTS,
    Bucket,
    State,
    Work,
    committed_state,
    read_members,
    read_objects,
    sweep,
    write_objects,
)
from rangecast.spark.steps.first_buckets import SHARED, bucket_maker, sorted_strips
from rangecast.spark.steps.interest_edits import (
    EDIT_COLUMNS,
    apply_edits,
    checked_edits,
)
from rangecast.spark.steps.open_bucket import OpenBucket, ends_of

ENTRIES = 1 << 20
"""Objects in all lists of a bucket, 16 bytes each; a bucket that grows may have twice as many."""
_START = -1
"""The batch or edit before the first one."""


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
        self._turn = threading.RLock()
        """Held by the batch or the edit that is being applied: each stream has its thread."""
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
        refuse_unknown(objects, ("id", "x", "y", "seq"), "objects")
        need(interests, ("id", "x_lo", "x_hi"), "interests")
        refuse_unknown(interests, ("id", "x_lo", "x_hi", "k"), "interests")
        order = ["seq", "id"] if "seq" in objects.columns else ["id"]
        table = objects.orderBy(*order).select("id", "x", "y").toArrow()
        board = LineBoard(self._k, objects=table, **self._how)
        kind = id_kind(interests, "id", "interests").simpleString()
        given = self.folder / "given"
        strips = sorted_strips(given, interests, kind, self._k, self._most)
        make = bucket_maker(self.folder, board.line, self._k)
        made = self._on_each(strips, _done(make), "done string").collect()
        found = [json.loads(row["done"]) for row in made]
        buckets = sorted(Bucket.of(one) for one, _ in found)  # by start, and then by bounds
        self._check_shared(buckets)
        works = [Work(), *(work for _, work in found)]
        state = State(_START, _START, settings, kind, [], buckets, Work.total(works))
        shutil.rmtree(given)
        self._commit(state, board, table["id"])

    @property
    def _most(self) -> int:
        """Interests of a bucket when it is made."""
        return max(1, ENTRIES // self._k)

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
        _check_updates(updates)
        return self._started(updates, self.apply, "checkpoint", trigger)

    def start_edits(self, edits: DataFrame, **trigger: Any) -> StreamingQuery:
        """Start to apply a stream of edits of interests, beside that of updates or without it."""
        _check_edits(edits)
        return self._started(edits, self.edit, "edits_checkpoint", trigger)

    def _started(
        self,
        stream: DataFrame,
        action: Callable[[DataFrame, int], None],
        checkpoint: str,
        trigger: dict[str, Any],
    ) -> StreamingQuery:
        writer = stream.writeStream.foreachBatch(action)
        writer = writer.option("checkpointLocation", str(self.folder / checkpoint))
        return (writer.trigger(**trigger) if trigger else writer).start()

    def edit(self, edits: DataFrame, number: int) -> None:
        """Let interests come, change and go: id, op, x_lo, x_hi and perhaps k.

        An op is "subscribe", "replace" or "unsubscribe"; each id is edited once. If one of the
        edits is refused, none is applied. An edit of a number that was committed does nothing, so
        count them from 0. One that comes gets its list at once, from the objects as they are.
        Replacing without a k keeps the old one.
        """
        _check_edits(edits)
        kind = id_kind(edits, "id", "edits of interests")
        names = [name for name in EDIT_COLUMNS if name in edits.columns]
        with self._turn:
            state = self._state
            if number <= state.edit:
                return
            self._hold()
            if kind.simpleString() != state.id:
                raise UsageError(
                    f"edits of interests: ids are of the type {kind.simpleString()}, and those of "
                    f"{self.folder} are {state.id}\n  to do: cast them"
                )
            rows = edits.select(names).toArrow()
            rows = rows.set_column(0, "id", rows["id"].cast(arrow_ids(kind)))
            board = self._board = self._board or self._loaded(state)
            wanted = checked_edits(rows, board)
            self._board = None  # until the edit is committed the folder alone is right
            state = apply_edits(self.folder, state, wanted, board, self._most)
            self._commit(state._replace(edit=number), board, pa.nulls(0))
            board.unsubscribe_many(wanted.gone)
            board.subscribe_many(wanted.new)
            self._board = board

    def apply(self, updates: DataFrame, batch: int) -> None:
        """Apply a batch of updates in the order of `seq`; one that was committed does nothing."""
        _check_updates(updates)
        columns = [name for name in ("id", "y", "x") if name in updates.columns]
        if batch > self.committed:
            rows = updates.orderBy("seq").select(*columns).toArrow()
            self.apply_changes(self.usable(rows, BadRows()), batch, rows.schema.field("id").type)

    def usable(self, rows: pa.Table, bad: BadRows) -> list[Change]:
        """Return the updates that can be applied one after the other: id, y and perhaps x.

        Those that can't go to `bad`.
        """
        with self._turn:
            self._hold()
            if self._board is None:
                self._board = self._loaded(self._state)
            source, kind = table_source(rows, "updates"), rows.schema.field("id").type
            parts = read_updates(source, kind, self._board.objects.__contains__, bad)
            return [change for part in parts for change in part.changes]

    def apply_changes(self, changes: Sequence[Change], batch: int, kind: pa.DataType) -> None:
        """Apply a batch that wasn't committed, of updates of objects with ids of this type."""
        with self._turn:
            self._hold()
            state = self._state
            board = self._board or self._loaded(state)
            self._board = None  # until the batch is committed the folder alone is right
            messages = board.update_batch(changes)
            self._send(messages, batch, kind)
            state = self._told(state._replace(batch=batch), messages)
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
    def edited(self) -> int:
        """The number of the last edit of interests that was applied, -1 before the first one."""
        return self._state.edit

    @property
    def work(self) -> Work:
        """What the last batch or edit that was committed changed, wrote and read."""
        return self._state.work

    @property
    def _state(self) -> State:
        state = committed_state(self.folder)
        assert state is not None
        return state

    def _loaded(self, state: State) -> LineBoard:
        tables = [read_members(self.folder, one) for one in state.buckets]
        objects = read_objects(self.folder, state.objects)
        interests = None
        if tables:
            table = pa.concat_tables(tables).combine_chunks()
            interests = InterestColumns(table["id"].combine_chunks(), *ends_of(table), {})
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

    def _told(self, state: State, messages: Messages) -> State:
        """Return the state after the workers applied messages to the lists that they reach."""
        hear = [at for at, one in enumerate(state.buckets) if one.may_hear(messages.tile).any()]
        folder, k = self.folder, self._k
        arrival, y, tile = messages.arrival, self._signed(messages.y), messages.tile

        def tell(number: int) -> list[Any]:
            return [number, *OpenBucket(folder, state.buckets[number], k).tell(arrival, y, tile)]

        buckets, works = list(state.buckets), [Work()]
        for row in self._on_each(hear, _done(tell), "done string").collect():
            number, bucket, work = json.loads(row["done"])
            buckets[number] = Bucket.of(bucket)
            works.append(work)
        self._check_shared([buckets[number] for number in hear])
        return state._replace(buckets=buckets, work=Work.total(works))

    def _check_shared(self, buckets: Sequence[Bucket]) -> None:
        """Refuse lists that workers wrote where the driver doesn't see them."""
        for bucket in buckets:
            for part in bucket.lists:
                if not (self.folder / LISTS / part.file).exists():
                    raise FileError(
                        f"{self.folder}: a worker wrote lists that aren't there: {part.file}\n"
                        f"  to do: {SHARED}"
                    )

    def _commit(self, state: State, board: LineBoard, changed: pa.Array | pa.ChunkedArray) -> None:
        """Write the objects that changed, and make this state the one that holds."""
        parts = write_objects(self.folder, state.objects, board.table, changed)
        written = parts[-1].rows if parts != state.objects else 0
        state = state._replace(objects=parts, work=state.work._replace(objects=written))
        before = committed_state(self.folder)
        state.commit(self.folder)
        sweep(self.folder, state.files() | (before.files() if before else set()))

    def _on_each(
        self, items: Sequence[Any], task: Callable[[Any], pa.RecordBatch], schema: str
    ) -> DataFrame:
        """Return what a task gives for each of some items, in the workers."""

        def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                for place in batch.column(0).to_pylist():
                    yield task(items[place])

        tasks = min(len(items), 4 * parallelism(self._session))
        places = self._session.range(0, len(items), numPartitions=max(tasks, 1))
        return places.mapInArrow(run, schema)

    def read(self) -> DataFrame:
        """Return all lists as they were committed: interest, rank (from 1), object, x, y."""
        state = self._state
        schema = f"interest {state.id}, rank int, arrival bigint, y double"
        folder, k = self.folder, self._k
        entries = self._on_each(
            state.buckets, lambda bucket: _shown(OpenBucket(folder, bucket, k)), schema
        )
        objects = self._session.createDataFrame(read_objects(self.folder, state.objects))
        named = objects.select(F.col("id").alias("object"), "x", "arrival")
        found = entries.withColumn("y", self._signed(F.col("y"))).join(named, "arrival")
        return found.select("interest", "rank", "object", "x", "y")


def _check_updates(updates: DataFrame) -> None:
    need(updates, ("seq", "id", "y"), "updates")
    refuse_unknown(updates, ("seq", "id", "y", "x"), "updates")


def _check_edits(edits: DataFrame) -> None:
    need(edits, EDIT_COLUMNS[:4], "edits of interests")
    refuse_unknown(edits, EDIT_COLUMNS, "edits of interests")


def _done(task: Callable[[Any], list[Any]]) -> Callable[[Any], pa.RecordBatch]:
    """Return a task whose result goes to the driver as JSON."""
    return lambda item: pa.record_batch({"done": [json.dumps(task(item))]})


def _shown(bucket: OpenBucket) -> pa.RecordBatch:
    """Return what the lists of a bucket show."""
    arrivals, ys = bucket.entries(bucket.places)
    wanted = bucket.table["k"].to_numpy()
    shown = (np.arange(arrivals.shape[1]) < wanted[:, None]) & (arrivals >= 0)
    places, ranks = np.nonzero(shown)
    return pa.record_batch(
        {
            "interest": bucket.table["id"].combine_chunks().take(pa.array(places)),
            "rank": pa.array((ranks + 1).astype(np.int32)),
            "arrival": pa.array(arrivals[shown]),
            "y": pa.array(ys[shown]),
        }
    )
