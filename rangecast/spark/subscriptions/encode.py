"""Subscriptions of a DataFrame as boxes: parsed by the workers, gathered or left where they are.

`encode` turns each row into its boxes as bytes (`packed_boxes`):

    id, seq (double or null), score, weights (binary or null), boxes (binary), error

It gives them as rows of Spark, or many together in packs (`packs`).

A string attribute numbers the words that the whole set mentions. So with one the workers first
report all words; then all number them alike. Texts are parsed once nevertheless, and numbered
afterwards (`model.filters.unnumbered`). Order of arrival is `seq`, or else the id.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructType,
)

from rangecast.errors import RejectedRow
from rangecast.kernels.arrays import F64, Bool
from rangecast.model.attributes.text import String
from rangecast.model.boxes import Boxes
from rangecast.model.encoding.subscriptions import (
    Part,
    check_columns,
    encode_part,
    join_parts,
)
from rangecast.model.filters.filter import Filter
from rangecast.model.filters.many import Parse
from rangecast.model.filters.unnumbered import ProvisionalParser, numbered
from rangecast.model.io.batch import Batch
from rangecast.model.io.records import REMEDY, Rows
from rangecast.model.io.rejected import CollectedRows, RejectedRows
from rangecast.model.space import Space
from rangecast.spark.columns import ERROR, ERROR_TYPE, arrow_ids, arrow_schema, id_kind
from rangecast.spark.events import TO_DO, error_array
from rangecast.spark.shipped import ship
from rangecast.spark.subscriptions import packs
from rangecast.spark.subscriptions.local_files import read_files
from rangecast.spark.subscriptions.packed_boxes import binary_of, floats_of, pack, unpack
from rangecast.spark.worker_errors import raise_worker_errors

_SLICE = 8192
"""Subscriptions that a worker hands over at a time."""
_PARSED = "parsed"
_ROW = "row"
_NEW_WORD = pa.struct([("axis", pa.int32()), ("word", pa.string())])


class EncodedSet(NamedTuple):
    """Subscriptions of a DataFrame as boxes."""

    rows: DataFrame
    packs: DataFrame
    """`rows`, packed (see `packs`)."""
    space: Space
    """The space, with every word that the subscriptions mention."""
    parsed: DataFrame | None = None
    """Boxes kept on the workers' disks meanwhile, so that texts are parsed once."""

    def release(self) -> None:
        """Remove the kept rows; `rows` can still be used, at the cost of parsing again."""
        if self.parsed is not None:
            with suppress(Exception):  # its session may have ended, and the data with it
                self.parsed.unpersist()


def encode(subscriptions: DataFrame, space: Space, folder: Path | None = None) -> EncodedSet:
    """Return the subscriptions as boxes, and the space with every word that they mention.

    folder   for packs; only if all workers and the driver share it
    """
    raise_worker_errors(subscriptions.sparkSession)
    kind = id_kind(subscriptions, "id", "subscriptions")
    check_columns("subscriptions", space, subscriptions.columns)
    known = copy.deepcopy(space)
    parsed = None
    if any(isinstance(attribute, String) for attribute in known):
        if "filter" in subscriptions.columns:
            parsed = _parsed(subscriptions, space).persist(StorageLevel.DISK_ONLY)
            new = parsed.selectExpr("inline(new)")
        else:
            new = _words_of_bounds(subscriptions, space, kind)
        for axis, word in sorted((row["axis"], row["word"]) for row in new.distinct().collect()):
            known.attributes[axis].number(word)

    def encode_all(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield _encoded(known, batch, kind)

    def pack_all(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return packs.pack(encode_all(batches), folder)

    rows = subscriptions if parsed is None else parsed.drop("new")
    encoded = rows.mapInArrow(encode_all, _schema(kind))
    return EncodedSet(encoded, rows.mapInArrow(pack_all, packs.SCHEMA), known, parsed)


def encode_here(
    subscriptions: DataFrame, space: Space, rejected: RejectedRows | None = None
) -> Boxes:
    """Encode subscriptions on the driver; they must be bounds, none of them words."""
    kind = id_kind(subscriptions, "id", "subscriptions")
    check_columns("subscriptions", space, subscriptions.columns)
    parts, errors = [], []
    rows = read_files(subscriptions)
    for batch in (subscriptions.toArrow() if rows is None else rows).to_batches():
        collected = CollectedRows()
        part, good = _part(space, batch, kind, collected, None)
        parts.append(part)
        if not good.all():
            errors.append(pa.record_batch(_rejected(batch, good, part.ids.type, collected)))
    bad = rejected or RejectedRows()
    if errors:
        report_errors(pa.Table.from_batches(errors), bad)
    if not parts:
        return boxes_in_order(arrow_schema(_schema(kind)).empty_table(), len(space))
    boxes = replace(join_parts([part._replace(seq=None) for part in parts], space), space=None)
    order = pa.table(
        {"id": boxes.ids, "seq": pa.concat_arrays(map(_seqs, parts)), _ROW: np.arange(boxes.rows)}
    )
    ordered = _arrived(order, bad)
    return boxes if ordered is order else boxes.take(ordered.column(_ROW).to_numpy())


def _parsed(subscriptions: DataFrame, space: Space) -> DataFrame:
    """Return the subscriptions with their texts parsed, and with the words that are new.

    The first row of a batch has the words that its task didn't have before.
    """

    def parse_all(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        reading = ProvisionalParser(space)
        for batch in batches:
            parsed = [reading.read(text) for text in batch.column("filter").to_pylist()]
            news = [[{"axis": axis, "word": word} for axis, word in reading.new]]
            reading.new.clear()
            more = news[: len(parsed)] + [None] * (len(parsed) - 1)
            batch = batch.append_column(_PARSED, pa.array(parsed, pa.binary()))
            yield batch.append_column("new", pa.array(more, pa.list_(_NEW_WORD)))

    word = StructType().add("axis", IntegerType()).add("word", StringType())
    schema = StructType([*subscriptions.schema.fields]).add(_PARSED, BinaryType())
    return subscriptions.mapInArrow(parse_all, schema.add("new", ArrayType(word)))


def _words_of_bounds(subscriptions: DataFrame, space: Space, kind: DataType) -> DataFrame:
    """Return the words that columns of bounds mention: reading these twice costs little."""
    before = {name: len(words) for name, words in space.vocabularies.items()}

    def report(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            _part(space, batch, kind, CollectedRows(), None)
        for name, words in space.vocabularies.items():
            new = words[before[name] :]
            axes = pa.array([space.axis(name)] * len(new), pa.int32())
            yield pa.record_batch({"axis": axes, "word": pa.array(new, pa.string())})

    return subscriptions.mapInArrow(report, "axis int, word string")


def _schema(kind: DataType) -> StructType:
    schema = StructType().add("id", kind).add("seq", DoubleType()).add("score", DoubleType())
    return schema.add("weights", BinaryType()).add("boxes", BinaryType()).add("error", ERROR)


class EncodedBoxes(NamedTuple):
    """Boxes from the driver as a DataFrame with the schema that `encode` returns."""

    rows: DataFrame
    release: Callable[[], None]
    """Deletes the files that workers memory-map."""


def encoded_boxes(session: SparkSession, boxes: Boxes) -> EncodedBoxes:
    """Return boxes from the driver as `encode` would; `seq` is their row.

    Each worker memory-maps the boxes and yields its share, so that the JVM never holds all.
    """
    shipped = ship(session, boxes)
    whole = pa.types.is_integer(boxes.ids.type)

    def hand_over(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        mapped = shipped.open()
        for batch in numbers:
            for number in batch.column("id").to_pylist():
                rows = np.arange(number * _SLICE, min((number + 1) * _SLICE, mapped.rows))
                piece = mapped.take(rows)
                yield pa.record_batch(
                    {
                        "id": piece.ids if whole else piece.ids.cast(pa.string()),
                        "seq": pa.array(rows.astype(np.float64)),
                        "score": pa.array(piece.scores),
                        "weights": _weights(piece.weights, len(rows)),
                        "boxes": pack(piece.lo, piece.hi, np.diff(piece.box_offsets)),
                        "error": pa.nulls(len(rows), ERROR_TYPE),
                    }
                )

    slices = session.range(-(-boxes.rows // _SLICE))
    rows = slices.mapInArrow(hand_over, _schema(LongType() if whole else StringType()))
    return EncodedBoxes(rows, shipped.release)


def boxes_of_rows(table: pa.Table, space: Space, rejected: RejectedRows | None = None) -> Boxes:
    """Return encoded subscriptions in order of arrival; those with an error are rejected."""
    bad = rejected or RejectedRows()
    if table.column("error").null_count < table.num_rows:
        report_errors(table, bad)
        table = table.filter(pc.is_null(table.column("error")))
    return boxes_of_table(table, len(space), bad)


def report_errors(table: pa.Table, bad: RejectedRows) -> None:
    """Report the rows with an error to `bad`."""
    wrong = table.filter(pc.is_valid(table.column("error")))
    for id_, error in zip(wrong["id"].to_pylist(), wrong["error"].to_pylist(), strict=True):
        source = f"subscription {id_!r}"
        reason, _, hint = error["reason"].partition(TO_DO)
        row = RejectedRow(source, None, error["column"], error["value"], reason, hint or REMEDY)
        bad.add(row, error["row"])


def boxes_of_table(table: pa.Table, dimensions: int, bad: RejectedRows | None = None) -> Boxes:
    """Return encoded subscriptions, none with an error, in order of arrival; duplicates are bad."""
    return boxes_in_order(_arrived(table, bad), dimensions)


def _arrived(table: pa.Table, bad: RejectedRows | None) -> pa.Table:
    """Return rows in order of arrival, the same ones if they are; duplicates are bad."""
    if _is_in_order(table):
        return table
    table = table.sort_by([("seq", "ascending"), ("id", "ascending")])
    return table if bad is None else _without_duplicates(table, bad)


def _is_in_order(table: pa.Table) -> bool:
    """Return whether rows are in order of arrival by their ids alone, and all ids differ."""
    ids = table.column("id")
    if table.column("seq").null_count < table.num_rows:
        return False
    return bool(pc.all(pc.less(ids[:-1], ids[1:])).as_py()) if len(ids) > 1 else True


def boxes_in_order(table: pa.Table, dimensions: int) -> Boxes:
    """Return encoded subscriptions without errors, in input order."""
    lo, hi, sizes = unpack(table.column("boxes"), dimensions)
    scores = weights = None
    if "score" in table.column_names:
        scores = table.column("score").to_numpy()
    if "weights" in table.column_names and table.column("weights").null_count < table.num_rows:
        ones = np.ones(dimensions).tobytes()
        weights = floats_of(table.column("weights").fill_null(ones), dimensions)
    return Boxes.of(
        lo,
        hi,
        owner=np.repeat(np.arange(len(sizes)), sizes),
        ids=table.column("id").combine_chunks(),
        scores=scores,
        weights=weights,
    )


def _without_duplicates(table: pa.Table, bad: RejectedRows) -> pa.Table:
    ids = table.column("id")
    counts = pc.value_counts(ids)
    twice = counts.filter(pc.greater(counts.field("counts"), 1)).field("values")
    if not len(twice):
        return table
    seen: set[Any] = set()
    keep = np.ones(table.num_rows, np.bool_)
    hits = pc.is_in(ids, twice).to_numpy(zero_copy_only=False)
    for index in np.flatnonzero(hits).tolist():
        id_ = ids[index].as_py()
        keep[index] = id_ not in seen
        if id_ in seen:
            _report_duplicate(id_, bad)
        seen.add(id_)
    return table.filter(pa.array(keep))


def without_duplicates(
    encoded: DataFrame, bad: RejectedRows, ids: DataFrame | None = None
) -> DataFrame:
    """Return the first subscription of each id; hand the others to `bad`, or raise.

    Like `boxes_of_table`, but as a separate Spark job, for sets too large for the driver. `ids` are
    those of all rows, if reading them costs less than reading the rows.
    """
    every = encoded if ids is None else ids
    if every.groupBy("id").count().filter("count > 1").isEmpty():
        return encoded
    in_order = Window.partitionBy("id").orderBy(F.asc_nulls_last("seq"))
    numbered = encoded.withColumn("_copy", F.row_number().over(in_order))
    for row in numbered.filter("_copy > 1").select("id").toLocalIterator():
        _report_duplicate(row["id"], bad)
    return numbered.filter("_copy = 1").drop("_copy")


def _report_duplicate(id_: Any, bad: RejectedRows) -> None:
    remedy = "give each subscription a unique id"
    row = RejectedRow(f"subscription {id_!r}", None, "id", str(id_), "duplicate id", remedy)
    bad.add(row, {"id": id_})


def need_no_errors(encoded: DataFrame) -> None:
    """Reject subscriptions that can't be used, showing the first; a job of its own."""
    wrong = encoded.filter("error is not null").limit(1).toArrow()
    report_errors(wrong, RejectedRows())


def _part(
    space: Space, batch: pa.RecordBatch, kind: DataType, bad: CollectedRows, parse: Parse | None
) -> tuple[Part, Bool]:
    rows = Rows("subscriptions", Batch.of(batch), bad)
    rows.take_ids(batch.column("id"), arrow_ids(kind))
    return encode_part(space, rows, parse), rows.good


def _encoded(space: Space, batch: pa.RecordBatch, kind: DataType) -> pa.RecordBatch:
    bad = CollectedRows()
    parse = None
    if _PARSED in batch.schema.names:
        parse = _numbering(space, batch.column(_PARSED).to_pylist())
        batch = batch.drop_columns([_PARSED])
    part, good = _part(space, batch, kind, bad, parse)
    named = {
        "id": part.ids,
        "seq": _seqs(part),
        "score": pa.array(part.scores),
        "weights": _weights(part.weights, len(part.ids)),
        "boxes": pack(part.lo, part.hi, part.sizes),
        "error": pa.nulls(len(part.ids), ERROR_TYPE),
    }
    usable = pa.record_batch(named)
    if good.all():
        return usable
    errors = _rejected(batch, good, part.ids.type, bad)
    empty = {name: pa.nulls(len(errors["id"]), array.type) for name, array in named.items()}
    return pa.concat_batches([usable, pa.record_batch({**empty, **errors})])


def _seqs(part: Part) -> pa.Array:
    return pa.nulls(len(part.ids), pa.float64()) if part.seq is None else pa.array(part.seq)


def _rejected(
    batch: pa.RecordBatch, good: Bool, id_type: pa.DataType, bad: CollectedRows
) -> dict[str, pa.Array]:
    """Return the ids and the errors of the rows of a batch that can't be used."""
    ids = batch.column("id").filter(pa.array(~good)).cast(id_type)
    return {"id": ids, "error": error_array(bad)}


def _numbering(space: Space, parsed: list[bytes | None]) -> Parse:
    """Return what numbers the words of filters that are parsed, and parses the others."""

    def parse(index: int, text: str) -> Filter:
        read = parsed[index]
        boxes = None if read is None else numbered(read, space)
        return Filter.parse(text, space) if boxes is None else boxes

    return parse


def _weights(weights: F64 | None, rows: int) -> pa.Array:
    """Return the weights of each row as bytes, nulls if all are 1."""
    if weights is None:
        return pa.nulls(rows, pa.binary())
    return binary_of(np.arange(rows + 1) * 8 * weights.shape[1], weights)
