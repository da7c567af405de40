"""Where objects and interests lie: on a line, or in a space; and the columns that say so.

An interest is one or more boxes. A box is a point: its lower bounds, then its upper ones, as
coordinates. So one code keeps the lists of both.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from rangecast.errors import RejectedRow, UsageError
from rangecast.kernels.arrays import F64
from rangecast.model.io.records import table_source
from rangecast.model.io.rejected import CollectedRows, RejectedRows
from rangecast.model.space import Space
from rangecast.notify.boxes.tables import reject_residuals
from rangecast.notify.choose import board_tables
from rangecast.notify.new_interests import NewInterests, Regions
from rangecast.notify.tables import BoardTables
from rangecast.spark.columns import reject_dots, reject_unknown, require_columns


@dataclass(frozen=True)
class BoardSchema:
    """Schema of the objects and interests of a board, with or without a space."""

    space: Space | None
    upper_bound_attribute: str | None = None
    """Attribute of the space on which interests have no lower bound."""

    def __post_init__(self) -> None:
        """Reject a space that can't hold objects."""
        if self.space is None and self.upper_bound_attribute is not None:
            raise UsageError(
                f"upper_bound_attribute={self.upper_bound_attribute!r} is an attribute of a "
                "space, and there is no space\n"
                "  hint: give the space, or leave out upper_bound_attribute"
            )
        if self.space is not None:
            hint = "use a space without this attribute, or a Board, which has such interests"
            reject_residuals(self.space, "TopKLists", hint)
        _ = self.files

    @property
    def files(self) -> BoardTables:
        """Reader of objects, updates and interests."""
        return board_tables(self.space, self.upper_bound_attribute)

    @property
    def places(self) -> Sequence[str]:
        """The columns of a position."""
        return self.files.names

    @property
    def _interest(self) -> list[str]:
        """The columns that interests may have."""
        filters = [] if self.space is None else ["filter"]
        return ["id", *filters, *self.files.bound_names, "k"]

    def check_interests(self, frame: DataFrame, what: str, more: Sequence[str] = ()) -> None:
        """Reject missing and unknown columns of interests."""
        needed = ("id", "position_lo", "position_hi") if self.space is None else ("id",)
        require_columns(frame, (*needed, *more), what)
        known = [*self._interest[:1], *more, *self._interest[1:]]
        reject_unknown(frame, known, what)
        reject_dots(frame.columns)
        nothing = {name: pa.nulls(0) for name in frame.columns if name not in more}
        self.read(pa.table(nothing), what, RejectedRows(), 1)  # rejects a filter beside bounds

    def objects(self, frame: DataFrame) -> pa.Table:
        """Return the objects of a DataFrame, in order of arrival."""
        columns = ("id", *self.places, "value")
        require_columns(frame, columns, "objects")
        reject_unknown(frame, (*columns, "seq", "arrival"), "objects")
        reject_dots(frame.columns)
        came = [name for name in ("seq", "arrival") if name in frame.columns]
        if len(came) > 1:
            raise UsageError("objects have both 'seq' and 'arrival'\n  hint: drop one")
        return frame.orderBy(*came, "id").select(*columns).toArrow()

    def read(self, interests: pa.Table, what: str, bad: RejectedRows, most: int) -> NewInterests:
        """Return the interests of a table, in at most this many objects each.

        A bound that is NaN or infinite is none, as a null is.
        """
        for index, name in enumerate(interests.column_names):
            column = interests[name]
            if name[-3:] in ("_lo", "_hi") and pa.types.is_floating(column.type):
                end = -np.inf if name.endswith("_lo") else np.inf
                none = pc.or_(pc.is_nan(column), pc.equal(column, end))
                bounds = pc.if_else(none, pa.scalar(None, column.type), column)
                interests = interests.set_column(index, name, bounds)
        source = table_source(interests, what)
        return self.files.read_interests(source, bad, max_k=most)

    def boxes(self, interests: DataFrame, kind: str, k: int) -> DataFrame:
        """Return the boxes of interests with ids of this kind, as `boxes_of` does."""

        def encode(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                bad = CollectedRows()
                interests = self.read(pa.Table.from_batches([batch]), "interests", bad, k)
                wrong = [error_as_text(*rejection) for rejection in bad.kept]
                yield from boxes_of(interests, k, kind, wrong).to_batches()

        schema = f"id {kind}, point array<double>, k int, boxes int, error string"
        return interests.mapInArrow(encode, schema)


def id_type(kind: str) -> pa.DataType:
    """Return the Arrow type of ids of a kind, as Spark names it."""
    return pa.string() if kind == "string" else pa.int64()


def error_as_text(wrong: RejectedRow, data: Any) -> str:
    """Return the error of a row as text."""
    return f"column {wrong.column!r}: {wrong.reason}; given: {data}"


def box_table(interests: NewInterests, k: int, kind: str) -> pa.Table:
    """Return the boxes of interests: id, point, k. The default of a list is k."""
    wanted = np.full(len(interests.ids), k, np.int32)
    for index, own in interests.wanted.items():
        wanted[index] = own
    whose = pa.array(np.repeat(np.arange(len(wanted)), interests.regions.sizes))
    return pa.table(
        {
            "id": interests.ids.cast(id_type(kind)).take(whose),
            "point": as_points(interests.regions.points),
            "k": pa.array(wanted).take(whose),
        }
    )


def as_points(points: F64) -> pa.Array:
    """Return points as a column."""
    return pa.FixedSizeListArray.from_arrays(pa.array(points.ravel()), points.shape[1])


def boxes_of(interests: NewInterests, k: int, kind: str, wrong: Sequence[str] = ()) -> pa.Table:
    """Return the boxes of interests as Spark takes them: id, point, k, boxes, error.

    Each knows how many boxes its interest has. Faults of others are in rows of their own.
    """
    table = box_table(interests, k, kind)
    sizes = interests.regions.sizes.astype(np.int32)
    points = table["point"].cast(pa.list_(pa.float64()))
    boxes = table.set_column(1, "point", points).append_column(
        "boxes", pa.array(np.repeat(sizes, sizes))
    )
    errors = pa.table({"error": pa.array(wrong, pa.string())})
    return pa.concat_tables([boxes, errors], promote_options="default")


def points_of(table: pa.Table) -> F64:
    """Return the points of a table of boxes."""
    column = table["point"].combine_chunks()
    points: F64 = column.flatten().to_numpy(zero_copy_only=False)
    return points.reshape(len(table), column.type.list_size)


def interests_of(tables: Sequence[pa.Table]) -> NewInterests:
    """Return the interests of tables of boxes, in no particular order."""
    table = pa.concat_tables(tables).sort_by("id")
    runs = pc.run_end_encode(table["id"].combine_chunks())
    sizes = np.diff(runs.run_ends.to_numpy(), prepend=0).astype(np.int64)
    return NewInterests(runs.values, Regions(points_of(table), sizes), {})
