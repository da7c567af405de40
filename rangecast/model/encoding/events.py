"""Encoding of events: rows of a table, one column per attribute, as points of the space.

`EventFile` reads a file in batches, so it may be larger than memory. `encode_events` takes Python
objects. Both produce `Events`: ids and an array of coordinates.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from rangecast.errors import (
    FileError,
    InvalidValueError,
    RangecastError,
    UsageError,
    abbreviate,
    did_you_mean,
)
from rangecast.kernels.arrays import F64
from rangecast.model.attributes.base import MISSING, NanMeaning
from rangecast.model.attributes.field_paths import value_at
from rangecast.model.attributes.text_store import TEXTS
from rangecast.model.attributes.timestamps import is_whole
from rangecast.model.encoding.columns import coordinate, nan_is_missing
from rangecast.model.encoding.compiled import (
    compiled_encoder,
    encoder_of_texts,
    encoder_without_texts,
    plain_points,
)
from rangecast.model.encoding.event_columns import EventColumns
from rangecast.model.io.kept_columns import as_names, identified, kept_columns, kept_schema
from rangecast.model.io.read_progress import Reading
from rangecast.model.io.records import Records, Rows, file_source, table_source
from rangecast.model.io.rejected import RejectedRows
from rangecast.model.space import Space
from rangecast.model.validation.flags import flag
from rangecast.model.validation.unknown_columns import column_hint

PLAIN = EventColumns()
ANY = EventColumns(spans=True, probabilities=True)

_ERROR = NanMeaning.ERROR.value  # looking it up in the class takes longer than to compare


class Events(NamedTuple):
    """Batch of events: ids and coordinates, one row per event."""

    ids: pa.Array
    points: F64


class EventFile:
    """File of events, read in batches and encoded in a space."""

    def __init__(
        self,
        path: str | Path,
        space: Space,
        *,
        rejected: RejectedRows | None = None,
        nan: str = "error",
        ignore_unknown: bool = False,
        columns: EventColumns = PLAIN,
        id: str | None = None,  # noqa: A002
        keep: Sequence[str] = (),
    ):
        """Open a file; it is read during iteration.

        id     column of the ids, if not `id`
        keep   additional columns to keep; ids are then structs of the id and those of these columns
               that exist
        """
        self.path = path
        self.columns = columns
        self.space = space
        self.warnings: list[str] = []
        self._nan = nan
        self._ignore_unknown = flag("ignore_unknown", ignore_unknown)
        nan_is_missing(nan)  # a word that means nothing is rejected before anything runs
        exact = [
            column
            for attribute in space
            if is_whole(attribute)
            for column in columns.names(attribute)
        ]
        source = identified(file_source(path, exact), id)
        self._records = Records(source, rejected or RejectedRows(), self._check_columns)
        self._extra = {"id", id, *keep}
        self._keep = keep

    @property
    def id_type(self) -> pa.DataType | None:
        """Type of the ids; `None` if the file has none."""
        return self._records.id_type

    @cached_property
    def kept(self) -> pa.Schema:
        """Schema of the kept columns."""
        return kept_schema(self._records.source, self._keep)

    @property
    def reading(self) -> Reading:
        """Progress of reading the file."""
        return self._records.source.reading

    def check(self) -> None:
        """Reject a file that cannot be read, or whose first batch has an unknown column."""
        self._records.check()

    def __iter__(self) -> Iterator[Events]:
        """Yield events batch by batch; rejected rows go to `rejected`."""
        for rows, points in self._read():
            ids = rows.good_ids
            if len(self.kept):
                good = pa.array(rows.good)
                kept = [column.filter(good) for column in kept_columns(rows.batch, self.kept)]
                names = ["", *self.kept.names]  # a column may be called as the id is
                ids = pa.StructArray.from_arrays([ids, *kept], names)
            yield Events(ids, points)

    def tables(self) -> Iterator[tuple[pa.Table, F64]]:
        """Yield tables with all original columns, and their points, batch by batch."""
        for rows, points in self._read():
            table = pa.Table.from_batches([rows.batch.arrow()])
            yield table if rows.good.all() else table.filter(pa.array(rows.good)), points

    def find(self, wanted: str | int) -> tuple[dict[str, Any], F64] | None:
        """Return the values and the point of one event, found by id (as text) or by row number.

        Rows count from 0 and serve as ids in a file without ids. Returns `None` if there is no such
        event.
        """
        for rows, points in self._read():
            names = rows.batch.rows if isinstance(wanted, int) else rows.ids.cast(pa.string())
            at = np.flatnonzero(np.asarray(names)[rows.good] == wanted)
            if len(at):
                index = int(np.flatnonzero(rows.good)[at[0]])
                return rows.batch.row(index), points[at[0]]
        return None

    def _read(self) -> Iterator[tuple[Rows, F64]]:
        """Yield batches of rows, and the points of the good rows."""
        seen: set[str] = set()
        for rows in self._records:
            seen.update(rows.batch.columns)
            has_texts = bool(self.space.patterns) and self.columns.texts
            points = TEXTS.keep(partial(self._points, rows)) if has_texts else self._points(rows)
            yield rows, points
        valued = self.space.valued
        absent = [
            attribute.name for attribute in valued if seen.isdisjoint(self.columns.names(attribute))
        ]
        if seen and absent:
            self.warnings.append(
                f"{self.path} has no column for {', '.join(map(repr, absent))}: "
                "all its events lack a value there"
            )

    def _points(self, rows: Rows) -> F64:
        points = self.columns.points_of(self.space, rows, self._nan)
        return points if rows.good.all() else points[rows.good]

    def _check_columns(self, names: Sequence[str], where: str) -> None:
        known = set(self.columns.all_names(self.space))
        for name in names:
            if name not in self._extra and name not in known and not self._ignore_unknown:
                columns = self.space.event_columns
                hint = column_hint(name, columns, may_ignore=True)
                if name in ANY.all_names(self.space):
                    hint = "`rangecast rank` takes such columns with --span or --probabilities"
                raise FileError(
                    f"{where}: unknown column {name!r}: {did_you_mean(name, columns)}\n"
                    "  expected: a column for each attribute of the space, and 'id'\n"
                    f"  hint: {hint}"
                )


def values_of(event: Mapping[str, Any]) -> Iterable[tuple[str, Any]]:
    """Return the attribute names and values of one event."""
    try:
        return event.items()
    except AttributeError:
        raise UsageError(
            "an event is a dict from attributes to values\n"
            f"  given: {type(event).__name__} {abbreviate(event)}\n"
            "  hint: give a single dict; lists and tables go to match_many and rank_many"
        ) from None


def encode_event(
    event: Mapping[str, Any],
    space: Space,
    *,
    ignore_unknown: bool = False,
    nan: str = "error",
    by_name: bool = False,
) -> F64:
    """Return the coordinates of one event, (d,); absent values are missing.

    `ignore_unknown` and `nan` are as in `encode_events`. With `by_name`, values are looked up under
    the names of attributes, and sources are ignored.
    """
    if not by_name:
        point: F64 = encode_one(event, space, ignore_unknown=ignore_unknown, nan=nan)[0]
        return point
    if nan != NanMeaning.ERROR:
        nan_is_missing(nan)
    if ignore_unknown is not False:
        flag("ignore_unknown", ignore_unknown)
    if not space.patterns:
        return _point(event, space, ignore_unknown, nan)
    return TEXTS.keep_one(lambda: _point(event, space, ignore_unknown, nan))


def encode_one(
    event: Mapping[str, Any],
    space: Space,
    *,
    ignore_unknown: bool = False,
    nan: str = "error",
    texts: bool = True,
) -> F64:
    """Return the coordinates of one event, (1, d); see `encode_event`, and `EventColumns.texts`."""
    if nan != _ERROR or ignore_unknown is not False:
        nan_is_missing(nan)
        flag("ignore_unknown", ignore_unknown)
    if not space.patterns:
        encode = compiled_encoder(space)
    elif texts:
        return TEXTS.keep_one(partial(_encode_one, event, space, ignore_unknown, nan))
    else:
        encode = encoder_without_texts(space)
    point = encode(event, ignore_unknown, nan)  # as `_encode_one`, one call less
    return _encode_one(event, space, ignore_unknown, nan) if point is None else point


def encode_apart(
    event: Mapping[str, Any], space: Space, records: int, ignore_unknown: bool, nan: str
) -> tuple[F64, tuple[str | None, ...]] | None:
    """Return the coordinates of one event, (1, d), and its texts, which aren't stored.

    The coordinate of a text is the address of its record, the first one at `records`. `None`: the
    event is left to `encode_one`.
    """
    if nan != _ERROR or ignore_unknown is not False:
        nan_is_missing(nan)
        flag("ignore_unknown", ignore_unknown)
    return encoder_of_texts(space)(event, ignore_unknown, nan, records)


def _encode_one(event: Mapping[str, Any], space: Space, ignore_unknown: bool, nan: str) -> F64:
    point = compiled_encoder(space)(event, ignore_unknown, nan)
    if point is not None:
        return point
    if space.paths:
        event = _by_name(event, space, ignore_unknown=ignore_unknown)
    return _point(event, space, ignore_unknown, nan)[None]


def _point(event: Mapping[str, Any], space: Space, ignore_unknown: bool, nan: str) -> F64:
    point = [MISSING] * len(space)
    for name, value in values_of(event):
        axis = space.axes.get(name)
        if axis is not None:
            attribute = space.attributes[axis]
            try:
                point[axis] = coordinate(attribute, value, nan=nan)
            except InvalidValueError as error:
                if str(error).startswith(repr(name)):
                    raise
                raise InvalidValueError(f"{name!r}: {error}") from None
        elif name != "id" and not ignore_unknown:
            raise UsageError(_unknown(space, name))
    return np.array(point)


def _by_name(event: Mapping[str, Any], space: Space, *, ignore_unknown: bool) -> dict[str, Any]:
    """Return an event as a flat dict of values by attribute name."""
    values = dict(values_of(event))
    if not ignore_unknown:
        for name in values:
            if name != "id" and name not in space.fields:
                raise UsageError(_unknown(space, name))
    return {
        attribute.name: values.get(attribute.name)
        if attribute.path is None
        else value_at(values, attribute.path)
        for attribute in space
    }


def encode_events(
    events: Any,
    space: Space,
    *,
    ignore_unknown: bool = False,
    nan: str = "error",
    columns: EventColumns = PLAIN,
    id: str | None = None,  # noqa: A002
    keep: str | Sequence[str] = (),
) -> Events:
    """Encode events from a file, a table, a DataFrame, a dict of columns or a list of dicts.

    A key that is absent, `None` or null is a missing value. The first unusable event raises a
    `RejectedRowError`.

    ignore_unknown   allow values that are not attributes of the space
    nan              "error": NaN is rejected; "missing": it is a missing value
    columns          columns allowed besides values
    id               column of the ids, if not `id`
    keep             additional columns to keep with the ids, which are then structs
    """
    flag("ignore_unknown", ignore_unknown)
    nan_is_missing(nan)
    if id is None and not as_names(keep) and columns.are_values:
        points = plain_points(events, space, ignore_unknown=ignore_unknown, texts=columns.texts)
        if points is not None:
            return Events(pa.array(np.arange(len(points))), points)
    options: Any = {"ignore_unknown": ignore_unknown, "nan": nan, "columns": columns, "id": id}
    if not space.patterns or not columns.texts:
        return _encoded(events, space, **options, keep=keep)
    with TEXTS.batch() as keep_texts:
        encoded = _encoded(events, space, **options, keep=keep)
        keep_texts(encoded.points)
    return encoded


def encode_each(
    events: Iterable[Mapping[str, Any]],
    space: Space,
    *,
    ignore_unknown: bool,
    nan: str,
    texts: bool,
) -> tuple[list[F64], dict[int, RangecastError]]:
    """Return the points of the events that can be encoded, in parts, and the errors of the others.

    The options are those of `encode_one`.
    """
    nan_is_missing(nan)
    plain = plain_points(events, space, ignore_unknown=ignore_unknown, texts=texts)
    if plain is not None:
        return [plain], {}
    points, errors = list[F64](), dict[int, RangecastError]()
    for index, event in enumerate(events):
        try:
            points.append(
                encode_one(event, space, ignore_unknown=ignore_unknown, nan=nan, texts=texts)
            )
        except RangecastError as error:
            errors[index] = error
        except Exception as error:  # an event whose own methods raise
            reason = f"{type(error).__name__}: {abbreviate(error)}"
            errors[index] = UsageError(f"the event can't be decoded: {reason}")
    return points, errors


def _encoded(
    events: Any,
    space: Space,
    *,
    ignore_unknown: bool,
    nan: str,
    columns: EventColumns,
    id: str | None,  # noqa: A002
    keep: str | Sequence[str],
) -> Events:
    if isinstance(events, str | Path):
        options: Any = {"nan": nan, "ignore_unknown": ignore_unknown, "columns": columns}
        file = EventFile(events, space, **options, id=id, keep=as_names(keep))
        return _joined(list(file), space)
    names = as_names(keep)
    source = identified(table_source(events, "events"), id)
    known = {"id", id, *names, *columns.all_names(space)}
    kept = kept_schema(source, names)
    absent = [name for name in names if name not in kept.names]
    if absent:
        raise UsageError(f"events have no column {absent[0]!r} to keep")

    def check(names: Sequence[str], _where: str) -> None:
        for name in names:
            if name not in known and not ignore_unknown:
                raise UsageError(_unknown(space, name))

    encoded = []
    for rows in Records(source, RejectedRows(), check, unique=False):
        ids = rows.ids
        if names:
            arrays = [ids, *kept_columns(rows.batch, kept)]
            ids = pa.StructArray.from_arrays(arrays, ["", *names])
        encoded.append(Events(ids, columns.points_of(space, rows, nan)))
    return _joined(encoded, space)


def _joined(events: list[Events], space: Space) -> Events:
    if len(events) == 1:
        return events[0]
    if not events:
        return Events(pa.array([], pa.int64()), np.zeros((0, len(space))))
    every, points = zip(*events, strict=True)
    return Events(pa.concat_arrays(every), np.concatenate(points))


def _unknown(space: Space, name: str) -> str:
    return (
        f"unknown attribute {name!r}: {did_you_mean(str(name), space.event_columns)}\n"
        f"  hint: {column_hint(str(name), space.event_columns, may_ignore=True)}"
    )
