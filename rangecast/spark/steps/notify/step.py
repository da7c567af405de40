"""The step `notify`: top-k lists of millions of interests, kept up to date by a stream of updates.

    lists = TopKLists(session, folder, objects, interests, k=10)
    query = lists.start(updates)            # streaming DataFrame: seq, id, value[, position]
    lists.edit(edits, number=0)             # interests: id, op, position_lo, position_hi, k
    lists.read().show()                     # interest, rank, object, position, value

With `space=`, the attributes of the space replace position, and interests are filters or
bounds of them: the columns are those of `Board` and of `rangecast notify --space`. With
`upper_bound_attribute=` the driver finds messages as a `Board` with this option does.

A micro-batch of updates is one batch of Paint-Batch, painted on the driver, which knows the objects
and where interests lie. Its messages go to the workers; each takes a bucket of boxes of interests
that lie side by side, applies the messages to the lists that they reach, and writes those that
changed (`open_bucket`). Buckets that no message can reach are left alone. An interest of several
boxes has a list for each, and `read` joins them. Edits of interests are applied between two
batches, on the driver (`interest_edits`).

    folder/
        lock                        held by the process that applies batches
        messages/batch=000000012/   what was sent, as `rangecast notify` writes it, with arrivals
        interests/, lists/, objects/    see `buckets`
        state.json                  the last batch and edit that count, and the files that do
        checkpoint/, edits_checkpoint/  Spark's own

The rename of `state.json` is the commit. A batch that is run again is painted again from the
state before it if it wasn't committed, and skipped if it was; so a restart loses nothing and
applies nothing twice. The same holds for edits. Files that no longer count stay for one more
commit, for readers. The folder is on a file system with an atomic rename that driver
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

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.query import StreamingQuery

from rangecast.errors import FileError, UsageError
from rangecast.model.io.atomic import atomic_folder
from rangecast.model.io.durable import sync_tree, try_lock
from rangecast.model.io.records import table_source
from rangecast.model.io.rejected import RejectedRows
from rangecast.model.snapshot import space_meta
from rangecast.model.space import Space
from rangecast.model.validation.flags import flag
from rangecast.notify.board import Board
from rangecast.notify.messages import Messages
from rangecast.notify.new_interests import NewInterests
from rangecast.notify.tables import Change, ObjectColumns, message_rows
from rangecast.spark.client_query import ClientQuery
from rangecast.spark.columns import arrow_ids, id_kind, reject_dots, reject_unknown, require_columns
from rangecast.spark.session import is_connect, parallelism
from rangecast.spark.steps.notify.board_schema import BoardSchema, interests_of
from rangecast.spark.steps.notify.buckets import (
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
from rangecast.spark.steps.notify.first_buckets import (
    SHARED,
    bucket_maker,
    first_boxes,
    sorted_strips,
)
from rangecast.spark.steps.notify.interest_edits import apply_edits, checked_edits
from rangecast.spark.steps.notify.open_bucket import OpenBucket

ENTRIES = 1 << 20
"""Objects in all lists of a bucket, 16 bytes each; a bucket that grows may have twice as many."""
Columns = ObjectColumns
_START = -1
"""The batch or edit before the first one."""


class TopKLists:
    """Top-k lists of all interests in a folder, with one writer and any number of readers.

    A new folder needs `objects` and `interests`, DataFrames with the columns that a `Board` takes;
    an existing one continues without them. Objects arrive in the order of their `seq` or
    `arrival`, or else of their ids. `close` it, or leave a `with`, so that another one can apply
    batches.
    """

    def __init__(
        self,
        session: SparkSession,
        folder: str | Path,
        objects: DataFrame | Columns | None = None,
        interests: DataFrame | NewInterests | None = None,
        *,
        space: Space | None = None,
        upper_bound_attribute: str | None = None,
        k: int = 10,
        algorithm: str = "sparse",
        epsilon: float | None = None,
        descending: bool = False,
    ):
        self._session = session
        self.folder = Path(folder).absolute()
        self._k = k
        self._how: dict[str, Any] = {
            "upper_bound_attribute": upper_bound_attribute,
            "algorithm": algorithm,
            "epsilon": epsilon,
            "descending": flag("descending", descending),
        }
        self._board_schema = BoardSchema(space, upper_bound_attribute)
        self._board: Board | None = None
        self._folder_lock: IO[str] | None = None
        self._lock = threading.RLock()
        """Held by the batch or the edit that is being applied: each stream has its thread."""
        self._settings = {"k": k, **self._how, **(space_meta(space) if space else {})}
        state = committed_state(self.folder)
        if state is not None:
            self._check_settings(state.settings)
            return
        if objects is None or interests is None:
            raise UsageError(f"{folder}: contains no lists yet; pass objects and interests")
        self._hold()
        boxes, kind = first_boxes(session, self._board_schema, interests, k)
        things = self._board_schema.objects(objects) if isinstance(objects, DataFrame) else objects
        self._begin(self._new_board(things), boxes, kind)

    def _check_settings(self, begun: dict[str, Any]) -> None:
        """Reject options that differ from those it was created with."""
        for name in (*begun, *self._settings):
            was, now = begun.get(name), self._settings.get(name)
            if was != now:
                raise UsageError(f"{self.folder}: was created with {name}={was!r}; given: {now!r}")

    def _new_board(self, objects: Any, interests: NewInterests | None = None) -> Board:
        how = {"space": self._board_schema.space, **self._how}
        board: Board = Board(self._k, objects=objects, interests=interests, **how)
        return board

    def _begin(self, board: Board, boxes: DataFrame, kind: str) -> None:
        initial = self.folder / "given"
        strips, several = sorted_strips(initial, boxes, self._max_boxes)
        make = bucket_maker(self.folder, board)
        made = self._run_on_workers(strips, _done(make), "done string").collect()
        results = [json.loads(row["done"]) for row in made]
        buckets = sorted(Bucket.of(bucket) for bucket, _ in results)  # by start, and then by bounds
        self._check_shared(buckets)
        works = [Work(), *(work for _, work in results)]
        work = Work.total(works)
        state = State(_START, _START, self._settings, kind, several, [], buckets, work)
        shutil.rmtree(initial)
        self._commit(state, board, board.table()["id"])

    @property
    def _max_boxes(self) -> int:
        """Maximum boxes of interests of a new bucket."""
        return max(1, ENTRIES // self._k)

    def close(self) -> None:
        """Release the lock, so that another process can apply batches."""
        self._board = None
        if self._folder_lock is not None:
            self._folder_lock.close()
            self._folder_lock = None

    def __enter__(self) -> TopKLists:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _hold(self) -> None:
        """Take the lock; raise an error if another process applies batches to this folder."""
        if self._folder_lock is not None:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        self._folder_lock = try_lock(self.folder / "lock")
        if self._folder_lock is None:
            raise UsageError(
                f"{self.folder}: another process applies batches there\n"
                "  hint: stop that process, or close() its TopKLists"
            )
        weakref.finalize(self, self._folder_lock.close)

    def start(self, updates: DataFrame, **trigger: Any) -> StreamingQuery | ClientQuery:
        """Start to apply a stream of updates; `trigger` is Spark's, such as availableNow=True."""
        self._check_updates(updates)
        return self._started(updates, self.apply, "checkpoint", trigger)

    def start_edits(self, edits: DataFrame, **trigger: Any) -> StreamingQuery | ClientQuery:
        """Start to apply a stream of edits of interests, beside that of updates or without it."""
        self._check_edits(edits)
        return self._started(edits, self.edit, "edits_checkpoint", trigger)

    def _started(
        self,
        stream: DataFrame,
        action: Callable[[DataFrame, int], None],
        checkpoint: str,
        trigger: dict[str, Any],
    ) -> StreamingQuery | ClientQuery:
        writer = stream.writeStream.option("checkpointLocation", str(self.folder / checkpoint))
        writer = writer.trigger(**trigger) if trigger else writer
        if is_connect(self._session):
            return ClientQuery(
                writer, self._session, lambda batch, number, _: action(batch, number)
            )
        return writer.foreachBatch(action).start()

    def edit(self, edits: DataFrame, number: int) -> None:
        """Add, change and remove interests: id, op, position_lo, position_hi and perhaps k.

        Over a space, filter or <attribute>_lo and <attribute>_hi replace position_lo and
        position_hi.
        An op is "subscribe", "replace" or "unsubscribe"; each id is edited once. If one of the
        edits is rejected, none is applied. An edit of a number that was committed does nothing, so
        count them from 0. One that comes gets its list at once, from the objects as they are.
        Replacing without a k keeps the old one.
        """
        self._check_edits(edits)
        kind = id_kind(edits, "id", "edits of interests")
        with self._lock:
            state = self._state
            if number <= state.edit:
                return
            self._hold()
            if kind.simpleString() != state.id:
                raise UsageError(
                    f"edits of interests: ids are of the type {kind.simpleString()}, but those of "
                    f"{self.folder} are {state.id}\n  hint: cast them"
                )
            rows = edits.toArrow()
            column = rows.column_names.index("id")
            rows = rows.set_column(column, "id", rows["id"].cast(arrow_ids(kind)))
            board = self._board = self._board or self._loaded(state)
            wanted = checked_edits(rows, board, self._board_schema)
            self._board = None  # until the edit is committed the folder alone is right
            state = apply_edits(self.folder, state, wanted, board, self._max_boxes)
            self._commit(state._replace(edit=number), board, pa.nulls(0))
            board.unsubscribe_many(wanted.gone)
            board.subscribe_many(wanted.new)
            self._board = board

    def apply(self, updates: DataFrame, batch: int) -> None:
        """Apply a batch of updates in the order of `seq`; one that was committed does nothing."""
        self._check_updates(updates)
        known = ("id", "value", *self._board_schema.places)
        columns = [name for name in known if name in updates.columns]
        if batch > self.committed:
            rows = updates.orderBy("seq").select(*columns).toArrow()
            self.apply_changes(
                self.valid_updates(rows, RejectedRows()), batch, rows.schema.field("id").type
            )

    def valid_updates(self, rows: pa.Table, rejected: RejectedRows) -> list[Change]:
        """Return the valid updates, to be applied in order: id, value and position.

        The others are added to `rejected`.
        """
        with self._lock:
            self._hold()
            if self._board is None:
                self._board = self._loaded(self._state)
            source, kind = table_source(rows, "updates"), rows.schema.field("id").type
            known = self._board.objects.__contains__
            parts = self._board_schema.files.read_updates(source, kind, known, rejected)
            return [change for part in parts for change in part.changes]

    def apply_changes(self, changes: Sequence[Change], batch: int, kind: pa.DataType) -> None:
        """Apply a batch that wasn't committed, of updates of objects with ids of this type."""
        with self._lock:
            self._hold()
            state = self._state
            board = self._board or self._loaded(state)
            self._board = None  # until the batch is committed the folder alone is right
            messages = board.update_batch(changes)
            self._send(messages, batch, kind)
            state = self._delivered(state._replace(batch=batch), messages)
            self._commit(state, board, pa.array([change.id for change in changes], kind))
            self._board = board

    def messages(self, batch: int) -> DataFrame:
        """Return the messages of a batch that was applied."""
        return self._session.read.parquet(f"file://{self._messages(batch)}")

    @property
    def committed(self) -> int:
        """Number of the last committed batch, -1 before the first one."""
        return self._state.batch

    @property
    def edited(self) -> int:
        """Number of the last committed edit of interests, -1 before the first one."""
        return self._state.edit

    @property
    def work(self) -> Work:
        """Work of the last batch or edit that was committed."""
        return self._state.work

    @property
    def _state(self) -> State:
        state = committed_state(self.folder)
        assert state is not None
        return state

    def _loaded(self, state: State) -> Board:
        tables = [read_members(self.folder, bucket) for bucket in state.buckets]
        objects = read_objects(self.folder, state.objects)
        return self._new_board(objects, interests_of(tables) if tables else None)

    def _signed(self, ys: Any) -> Any:
        """Return values of messages as lists hold them, the lowest first; and back."""
        return 0.0 - ys if self._how["descending"] else ys

    def _send(self, messages: Messages, batch: int, kind: pa.DataType) -> None:
        """Write the messages of a batch, over those of an attempt that wasn't committed."""
        seq = np.full(len(messages), batch, np.int64)
        rows = message_rows(messages, self._board_schema.files.message_schema(kind), seq)
        table = pa.Table.from_batches([rows]).append_column("arrival", pa.array(messages.arrival))
        with atomic_folder(self._messages(batch), overwrite=True) as folder:
            pq.write_table(table, folder / "part.parquet")
            sync_tree(folder)

    def _messages(self, batch: int) -> Path:
        return self.folder / "messages" / f"batch={batch:09}"

    def _delivered(self, state: State, messages: Messages) -> State:
        """Return the state after the workers applied messages to the lists that they reach."""
        arrival, y, tile = messages.arrival, self._signed(messages.value), messages.bounds
        reached = [at for at, bucket in enumerate(state.buckets) if bucket.reached_by(tile).any()]
        folder, k = self.folder, self._k

        def deliver(number: int) -> list[Any]:
            return [number, *OpenBucket(folder, state.buckets[number], k).deliver(arrival, y, tile)]

        buckets, works = list(state.buckets), [Work()]
        for row in self._run_on_workers(reached, _done(deliver), "done string").collect():
            number, bucket, work = json.loads(row["done"])
            buckets[number] = Bucket.of(bucket)
            works.append(work)
        self._check_shared([buckets[number] for number in reached])
        return state._replace(buckets=buckets, work=Work.total(works))

    def _check_shared(self, buckets: Sequence[Bucket]) -> None:
        """Reject lists that workers wrote where the driver doesn't see them."""
        for bucket in buckets:
            for part in bucket.lists:
                if not (self.folder / LISTS / part.file).exists():
                    raise FileError(
                        f"{self.folder}: a worker wrote lists that can't be found: {part.file}\n"
                        f"  hint: {SHARED}"
                    )

    def _commit(self, state: State, board: Board, changed: pa.Array | pa.ChunkedArray) -> None:
        """Write the objects that changed, and make this state the one that holds."""
        parts = write_objects(self.folder, state.objects, board.table, changed)
        written = parts[-1].rows if parts != state.objects else 0
        state = state._replace(objects=parts, work=state.work._replace(objects=written))
        before = committed_state(self.folder)
        state.commit(self.folder)
        sweep(self.folder, state.files() | (before.files() if before else set()))

    def _run_on_workers(
        self, items: Sequence[Any], task: Callable[[Any], pa.RecordBatch], schema: str
    ) -> DataFrame:
        """Run a task for each item on the workers; return the results."""

        def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                for bucket in batch.column(0).to_pylist():
                    yield task(items[bucket])

        tasks = min(len(items), 4 * parallelism(self._session))
        places = self._session.range(0, len(items), numPartitions=max(tasks, 1))
        return places.mapInArrow(run, schema)

    def read(self) -> DataFrame:
        """Return all committed lists: interest, rank (from 1), object, position, value.

        Over a space, the attributes replace position.
        """
        state = self._state
        schema = f"interest {state.id}, k int, rank int, arrival bigint, value double"
        folder, k = self.folder, self._k
        entries = self._run_on_workers(
            state.buckets, lambda bucket: _shown(OpenBucket(folder, bucket, k)), schema
        )
        if state.several:  # the best of the lists of its boxes, each object once
            best_first = Window.partitionBy("interest").orderBy("value", "arrival")
            distinct = entries.dropDuplicates(["interest", "arrival"])
            ranked = distinct.withColumn("rank", F.row_number().over(best_first))
            entries = ranked.where("rank <= k")
        objects = self._session.createDataFrame(read_objects(self.folder, state.objects))
        places = self._board_schema.places
        named = objects.select(F.col("id").alias("object"), *places, "arrival")
        rows = entries.withColumn("value", self._signed(F.col("value"))).join(named, "arrival")
        return rows.select("interest", "rank", "object", *places, "value")

    def _check_updates(self, updates: DataFrame) -> None:
        require_columns(updates, ("seq", "id", "value"), "updates")
        reject_unknown(updates, ("seq", "id", "value", *self._board_schema.places), "updates")
        reject_dots(updates.columns)

    def _check_edits(self, edits: DataFrame) -> None:
        self._board_schema.check_interests(edits, "edits of interests", ("op",))


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
            "k": pa.array(wanted[places]),
            "rank": pa.array((ranks + 1).astype(np.int32)),
            "arrival": pa.array(arrivals[shown]),
            "value": pa.array(ys[shown]),
        }
    )
