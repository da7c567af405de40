"""The step `match`: which subscriptions hold each event of a DataFrame.

    pairs = match(events, subscriptions, space)          # event, subscription
    rows = match(events, subscriptions, space, output="arrays")   # event, subscriptions

`events` may be a batch or a streaming DataFrame. Two plans, the same answer:

* broadcast: the structure is built once on the driver and mapped by every worker
  (`shipped`); events stay where they are, nothing is shuffled.
* partitioned: for sets that are too large for that; see `partitioned`.

`prepare` does the first part of the broadcast plan once, for many calls.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import DataType, LongType, StringType

from rangecast.errors import UsageError, near
from rangecast.match.choose import Plan, build, check_index, choose
from rangecast.model.badrows import BadRows
from rangecast.model.boxes import Boxes
from rangecast.model.snapshot import load_boxes
from rangecast.model.space import Space
from rangecast.spark.columns import id_kind, kept_fields, need_attributes
from rangecast.spark.events import encode_batch
from rangecast.spark.session import session_of
from rangecast.spark.shipped import Shipped, ship
from rangecast.spark.steps import partitioned
from rangecast.spark.steps.partitioned import GROUP_BYTES
from rangecast.spark.steps.results import Form, Served, answer, result_schema, warm
from rangecast.spark.subscriptions import (
    encode,
    encoded_boxes,
    gather,
    need_distinct_ids,
    need_no_errors,
)

OUTPUTS = ("pairs", "arrays")
PLANS = ("auto", "broadcast", "partitioned")
MAPPED_BYTES = 2 << 30
"""The largest structure that every host is given whole, unless told otherwise."""
_BYTES = 20
"""About what a structure takes for each attribute of a subscription."""


@dataclass(frozen=True)
class Prepared:
    """A set of subscriptions on its way to the workers: what `match` can use many times."""

    space: Space
    rows: int
    """How many subscriptions."""
    id_type: DataType
    """Of the subscriptions' ids: long or string."""
    plan: Plan
    """The structure, and why it was chosen."""
    memory: int
    """Bytes of the structure."""
    shipped: Shipped

    def release(self) -> None:
        """Remove the structure from the driver's host: nothing will be matched with it any more."""
        self.shipped.release()


def prepare(
    session: SparkSession,
    subscriptions: DataFrame | Boxes | str | Path,
    space: Space,
    *,
    index: str = "auto",
    bad_rows: BadRows | None = None,
) -> Prepared:
    """Build a structure over a DataFrame, `Boxes` or a snapshot folder, and ship it."""
    check_index(index)
    boxes, known = gathered(subscriptions, space, bad_rows)
    plan = choose(boxes, index)
    built = build(boxes, plan.name)
    ids, kind = spark_ids(boxes)
    shipped = ship(session, Served(built, ids))
    warm(shipped.open_here().structure, len(space))
    return Prepared(known, boxes.rows, kind, plan, built.memory, shipped)


def gathered(
    subscriptions: DataFrame | Boxes | str | Path, space: Space, bad_rows: BadRows | None = None
) -> tuple[Boxes, Space]:
    """Return subscriptions on the driver, and the space with every word that they mention."""
    _check_space(subscriptions, space)
    known = space
    if isinstance(subscriptions, Boxes):
        boxes = subscriptions
    elif isinstance(subscriptions, str | Path):
        boxes, known = _loaded(subscriptions, space)
    else:
        encoded, known = encode(subscriptions, space)
        boxes = gather(encoded, known, bad_rows)
    return boxes, known


def spark_ids(boxes: Boxes) -> tuple[pa.Array, DataType]:
    """Return ids as Spark takes them, and their type."""
    if pa.types.is_integer(boxes.ids.type):
        return boxes.ids, LongType()
    return boxes.ids.cast(pa.string()), StringType()


def match(
    events: DataFrame,
    subscriptions: DataFrame | Boxes | str | Path | Prepared,
    space: Space,
    *,
    output: str = "pairs",
    keep: Sequence[str] = (),
    event_id: str = "id",
    errors: str = "raise",
    index: str = "auto",
    plan: str = "auto",
    allow_missing: bool = False,
    nan: str = "refuse",
    mapped_bytes: int = MAPPED_BYTES,
    group_bytes: int = GROUP_BYTES,
) -> DataFrame:
    """Return which subscriptions hold each event.

    output          "pairs": event, subscription; "arrays": event, subscriptions, one row per event
    keep            columns of the events to keep in the output
    event_id        the column that names an event
    errors          "raise": an event that can't be used fails the job; "column": one more column
                    `error` tells what is wrong with it, and is null for all others
    plan            "broadcast", "partitioned", or "auto": by whether the structure would take more
                    than `mapped_bytes`
    group_bytes     about what the boxes of one partition may take in a worker
    allow_missing   whether events may lack the column of an attribute: all lack a value then
    """
    _one_of("output", output, OUTPUTS)
    _one_of("errors", errors, ("raise", "column"))
    _one_of("plan", plan, PLANS)
    session = session_of(events)
    _check_space(subscriptions, space)
    attributes = need_attributes(events, space, allow_missing=allow_missing)
    event_kind = id_kind(events, event_id, "events")
    events = events.withColumn(event_id, events[f"`{event_id}`"].cast(event_kind))
    taken = ("event", "subscription", "subscriptions", "error")
    kept = kept_fields(events, keep, taken)
    form = Form(output == "arrays", event_id, event_kind, kept, errors == "column")
    columns = dict.fromkeys([event_id, *attributes, *kept.names])
    events = events.select([events[f"`{name}`"] for name in columns])
    if isinstance(subscriptions, str | Path):
        subscriptions, space = _loaded(subscriptions, space)
    if _is_cut(plan, events, subscriptions, len(space), mapped_bytes):
        encoded, known = _encoded(session, subscriptions, space)
        kept_on_disk = encoded.persist(StorageLevel.DISK_ONLY)  # looked at several times
        try:
            if not isinstance(subscriptions, Boxes):
                need_no_errors(kept_on_disk)
                need_distinct_ids(kept_on_disk)
            return partitioned.match(
                events,
                encoded,
                known,
                form,
                index=index,
                nan=nan,
                group_bytes=group_bytes,
            )
        finally:
            kept_on_disk.unpersist()  # what is returned runs later, perhaps never: it starts anew
    prepared = (
        subscriptions
        if isinstance(subscriptions, Prepared)
        else prepare(session, subscriptions, space, index=index)
    )
    shipped, known = prepared.shipped, prepared.space

    def answer_all(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        served = shipped.open()
        for batch in batches:
            encoded = encode_batch(
                known,
                batch,
                form.event_id,
                nan=nan,
                raising=not form.errors,
            )
            yield from answer(served, batch, encoded, form)

    return events.mapInArrow(answer_all, result_schema(form, prepared.id_type))


def _check_space(subscriptions: DataFrame | Boxes | str | Path | Prepared, space: Space) -> None:
    """Refuse subscriptions that are known to be of another space."""
    if isinstance(subscriptions, Boxes) and subscriptions.dimensions != len(space):
        raise UsageError(
            f"boxes of {subscriptions.dimensions} attributes don't fit a space of {len(space)}"
        )
    if isinstance(subscriptions, Prepared):
        theirs = subscriptions.space
        if theirs.definition() != space.definition():
            raise UsageError(f"the subscriptions were prepared for {theirs}, not for {space}")


def _is_cut(
    plan: str,
    events: DataFrame,
    subscriptions: DataFrame | Boxes | Prepared,
    dimensions: int,
    mapped_bytes: int,
) -> bool:
    """Whether space is to be cut into partitions."""
    if plan == "broadcast":
        return False
    why_not = None
    if isinstance(subscriptions, Prepared):
        why_not = "these subscriptions are prepared for the broadcast plan; give them as they were"
    elif events.isStreaming:
        why_not = (
            "a streaming DataFrame can't be partitioned by space as a whole; to do: match each "
            "micro-batch, as rangecast.spark.stream.run does, or use plan='broadcast'"
        )
    if plan == "partitioned":
        if why_not:
            raise UsageError(why_not)
        return True
    if why_not or isinstance(subscriptions, Prepared):
        return False
    rows = subscriptions.rows if isinstance(subscriptions, Boxes) else subscriptions.count()
    return is_large(rows, dimensions, mapped_bytes)


def is_large(rows: int, dimensions: int, mapped_bytes: int = MAPPED_BYTES) -> bool:
    """Whether a set is too large to be given whole to every host."""
    return rows * dimensions * _BYTES > mapped_bytes


def _encoded(
    session: SparkSession, subscriptions: DataFrame | Boxes | Prepared, space: Space
) -> tuple[DataFrame, Space]:
    """Return subscriptions as boxes, and the space with every word that they mention."""
    assert not isinstance(subscriptions, Prepared)
    if isinstance(subscriptions, Boxes):
        return encoded_boxes(session, subscriptions), space
    return encode(subscriptions, space)


def _loaded(path: str | Path, space: Space) -> tuple[Boxes, Space]:
    """Return the subscriptions of a snapshot folder, and their space."""
    boxes, known = load_boxes(path)
    if known.definition() != space.definition():
        raise UsageError(f"{path}: is a snapshot of {known}, expected: {space}")
    return boxes, known


def _one_of(name: str, given: str, known: Sequence[str]) -> None:
    if given not in known:
        raise UsageError(f"no {name} {given!r}: {near(given, known)}")
