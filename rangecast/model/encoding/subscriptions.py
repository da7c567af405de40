"""Subscriptions from a file or a table, as `Boxes` in order of arrival.

Two layouts: `id, filter[, score][, weight_<attribute>...][, seq]`, where `filter` is a text of
the filter language, or wide, `id, <attribute>_lo, <attribute>_hi, ...` with the same optional
columns, where null is unbounded on that side.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from rangecast.errors import FileError, FilterError, did_you_mean
from rangecast.kernels.arrays import F64, I64
from rangecast.model.attributes.base import Integer, Number
from rangecast.model.attributes.timestamps import is_whole
from rangecast.model.boxes import Boxes, frozen
from rangecast.model.filters.filter import Filter
from rangecast.model.filters.many import Parse, boxes_of_texts
from rangecast.model.io.kept_columns import identified
from rangecast.model.io.read_progress import Reading
from rangecast.model.io.records import REMEDY, Records, Rows, Source, file_source, table_source
from rangecast.model.io.rejected import RejectedRows, RejectedTarget, collecting_rejected
from rangecast.model.space import Space
from rangecast.model.validation.flags import flag
from rangecast.model.validation.unknown_columns import column_hint

_SCORE = Number("score")
NOT_GIVEN = np.nan
"""A score or a weight that a row has none of."""
_SEQ = Integer("seq")


class Part(NamedTuple):
    """Subscriptions of one batch; `sizes` is the number of boxes of each."""

    ids: pa.Array
    lo: F64
    hi: F64
    sizes: I64
    scores: F64
    """NaN: not given."""
    weights: F64 | None
    """(rows, d), NaN: not given; `None`: none is."""
    seq: F64 | None

    def filled(self) -> Part:
        """Return the part with default scores (0) and weights (1) filled in."""
        weights = None if self.weights is None else np.nan_to_num(self.weights, nan=1.0)
        return self._replace(scores=np.nan_to_num(self.scores, nan=0.0), weights=weights)


class Replacements(NamedTuple):
    """Replacement subscriptions; scores and weights that are not given are kept."""

    boxes: Boxes
    """With a score of 0 and weights of 1 where they aren't given."""
    scores: F64
    """NaN: not given."""
    weights: F64 | None
    """(rows, d), NaN: not given; `None`: none is."""

    @classmethod
    def of(cls, boxes: Boxes) -> Replacements:
        """Return replacements that keep no scores or weights."""
        ones = np.ones((boxes.rows, boxes.dimensions))
        return cls(boxes, boxes.scores, ones if boxes.weights is None else boxes.weights)

    def onto(self, scores: F64, weights: F64 | None) -> Boxes:
        """Return the boxes, with absent scores and weights taken from the replaced rows."""
        kept = weights
        if self.weights is not None:
            before = np.ones(self.weights.shape) if weights is None else weights
            kept = np.where(np.isnan(self.weights), before, self.weights)
        return replace(
            self.boxes,
            scores=frozen(np.where(np.isnan(self.scores), scores, self.scores), np.float64),
            weights=None if kept is None else frozen(kept, np.float64),
        )


def read_subscriptions(
    path: str | Path,
    space: Space,
    *,
    rejected: RejectedTarget = None,
    ignore_unknown: bool = False,
    progress: Callable[[int, Reading], None] | None = None,
    id: str | None = None,  # noqa: A002
    keep: Sequence[str] = (),
) -> Boxes:
    """Read a file of subscriptions.

    rejected         a list or a file path that receives the rejected rows; without it, the first
                     one raises a `RejectedRowError`
    ignore_unknown   allow unknown columns
    progress         called for each batch with its rows and the read progress
    id               column of the ids, if not `id`
    keep             additional columns that the file may have
    """
    flag("ignore_unknown", ignore_unknown)
    source = identified(file_source(path, exact_columns(space)), id)
    extra = [*([] if id is None else [id]), *keep]
    with collecting_rejected(rejected) as bad:
        return _read(source, space, bad, ignore_unknown, progress or _silent, extra)


def exact_columns(space: Space) -> list[str]:
    """Return the columns of a file whose integers must not be rounded to doubles."""
    whole = [attribute.name for attribute in space if is_whole(attribute)]
    return ["seq", *(f"{name}_{end}" for name in whole for end in ("lo", "hi"))]


def encode_subscriptions(
    value: Any,
    space: Space,
    *,
    noun: str = "subscriptions",
    rejected: RejectedTarget = None,
    id: str | None = None,  # noqa: A002
) -> Boxes:
    """Encode subscriptions from a table, a DataFrame, a dict of columns or a list of dicts.

    The columns are those of a file. NaN in a pandas DataFrame is null.

    noun       name of the input in error messages
    rejected   as for `read_subscriptions`
    id         column of the ids, if not `id`
    """
    source = identified(table_source(value, noun, nan_is_null=True), id)
    with collecting_rejected(rejected) as bad:
        return _read(source, space, bad, None, _silent, [] if id is None else [id])


def read_replacements(value: Any, space: Space, rejected: RejectedTarget = None) -> Replacements:
    """Read subscriptions from a file or table, recording which scores and weights are given."""
    is_file = isinstance(value, str | Path)
    source = (
        file_source(value, exact_columns(space))
        if is_file
        else table_source(value, "subscriptions", nan_is_null=True)
    )
    with collecting_rejected(rejected) as bad:
        parts = _parts(source, space, bad, False if is_file else None, _silent)
    boxes = join_parts(parts, space)
    if not parts:
        return Replacements.of(boxes)
    scores, weights = np.concatenate([part.scores for part in parts]), None
    if any(part.weights is not None for part in parts):
        shapes = [(len(part.ids), len(space)) for part in parts]
        weights = np.concatenate(
            [
                np.full(shape, NOT_GIVEN) if part.weights is None else part.weights
                for part, shape in zip(parts, shapes, strict=True)
            ]
        )
    order = _order(parts)
    if order is not None:
        scores, weights = scores[order], None if weights is None else weights[order]
    return Replacements(boxes, scores, weights)


def _silent(rows: int, reading: Reading) -> None:
    """Ignore progress; the default callback."""


def _read(
    source: Source,
    space: Space,
    bad: RejectedRows,
    ignore_unknown: bool | None,
    progress: Callable[[int, Reading], None],
    extra: Sequence[str] = (),
) -> Boxes:
    return join_parts(_parts(source, space, bad, ignore_unknown, progress, extra), space)


def _parts(
    source: Source,
    space: Space,
    bad: RejectedRows,
    ignore_unknown: bool | None,
    progress: Callable[[int, Reading], None],
    extra: Sequence[str] = (),
) -> list[Part]:
    columns = SubscriptionColumns(space, ignore_unknown, extra)
    parts = []
    for rows in Records(source, bad, columns.check):
        parts.append(columns.part(rows))
        progress(len(rows), source.reading)
    return parts


def check_columns(source: str, space: Space, names: Sequence[str]) -> None:
    """Reject columns that are not valid for subscriptions, and tables that lack required ones."""
    SubscriptionColumns(space).check(names, source)


def encode_part(space: Space, rows: Rows, parse: Parse | None = None) -> Part:
    """Encode one batch of subscriptions; unusable rows are rejected.

    parse   replacement for parsing a single text; called with the index in the batch
    """
    columns = SubscriptionColumns(space)
    return columns.part(rows, parse).filled()


class SubscriptionColumns:
    """Columns of subscriptions in a space."""

    def __init__(self, space: Space, ignore_unknown: bool | None = None, more: Sequence[str] = ()):
        self.space = space
        self.ignore_unknown = bool(ignore_unknown)
        self.may_ignore = ignore_unknown is not None
        """Whether the caller has such an option."""
        self.weights = [Number(f"weight_{name}", min=0) for name in space.names]
        self.wide = [f"{name}_{end}" for name in space.names for end in ("lo", "hi")]
        self.known = ["id", "filter", "score", "seq", *self.wide, *(w.name for w in self.weights)]
        self.known += more
        self._optional = ", ".join(repr(name) for name in ("score", "seq", *more))

    def check(self, names: Sequence[str], where: str) -> None:
        """Reject columns that are not valid for subscriptions, and missing required ones."""
        for name in names:
            if name not in self.known and not self.ignore_unknown:
                raise FileError(
                    f"{where}: unknown column {name!r}: {did_you_mean(name, self.known)}\n"
                    "  expected: 'id', then 'filter' or <attribute>_lo and <attribute>_hi columns, "
                    f"and optionally {self._optional} and weight_<attribute>\n"
                    f"  hint: {column_hint(name, self.known, may_ignore=self.may_ignore)}"
                )
        wide = [name for name in names if name in self.wide]
        if "id" not in names or ("filter" in names) == bool(wide):
            raise FileError(
                f"{where}: subscriptions need 'id' and either 'filter' or "
                f"<attribute>_lo and <attribute>_hi columns; found: {', '.join(names)}"
            )

    def scores(self, rows: Rows) -> F64:
        """Return the score of each row, or NaN where absent."""
        return _or_missing(rows.coordinates(_SCORE))

    def all_weights(self, rows: Rows) -> F64 | None:
        """Return the weights, (rows, d), NaN where absent; `None` if there is no weight column."""
        if not any(weight.name in rows for weight in self.weights):
            return None
        columns = [_or_missing(rows.coordinates(weight)) for weight in self.weights]
        return np.stack(columns, axis=1)

    def part(self, rows: Rows, parse: Parse | None = None) -> Part:
        """Encode the subscriptions of a batch as boxes; unusable rows are rejected."""
        scores = self.scores(rows)
        seq = rows.needed(_SEQ, "an order of arrival is missing") if "seq" in rows else None
        weights = self.all_weights(rows)
        lo, hi, sizes = self._filters(rows, parse) if "filter" in rows else self._ranges(rows)
        good = rows.good
        return Part(
            rows.good_ids,
            lo,
            hi,
            sizes,
            scores[good],
            None if weights is None else weights[good],
            None if seq is None else seq[good],
        )

    def _filters(self, rows: Rows, parse: Parse | None) -> tuple[F64, F64, I64]:
        places = np.flatnonzero(rows.good)
        texts = rows.batch.columns["filter"]
        if isinstance(texts, pa.Array):
            texts = texts.filter(pa.array(rows.good))
        else:
            texts = [texts[index] for index in places.tolist()]

        def reject(at: int, error: FilterError) -> None:
            rows.reject(int(places[at]), "filter", error.reason, error.hint or REMEDY)

        def parse_row(at: int, text: str) -> Filter:
            return Filter.parse(text, self.space) if parse is None else parse(int(places[at]), text)

        return boxes_of_texts(texts, self.space, reject, parse_row)

    def _ranges(self, rows: Rows) -> tuple[F64, F64, I64]:
        lo, hi = (ends[rows.good] for ends in self.bounds(rows))
        return lo, hi, np.ones(len(lo), np.int64)

    def bounds(self, rows: Rows) -> tuple[F64, F64]:
        """Return the ranges of each row, (rows, d); rows with invalid ranges are rejected."""
        ends = [rows.bounds(attribute) for attribute in self.space]
        lo, hi = (np.stack(columns, axis=1) for columns in zip(*ends, strict=True))
        return lo, hi


def _or_missing(values: F64) -> F64:
    values[np.isposinf(values)] = NOT_GIVEN
    return values


def join_parts(parts: list[Part], space: Space) -> Boxes:
    """Return the subscriptions of all parts in order of arrival, with the defaults filled in."""
    dimensions = len(space)
    if not parts:
        return Boxes.of(np.zeros((0, dimensions)), np.zeros((0, dimensions)), space=space)
    order = _order(parts)
    parts = [part.filled() for part in parts]
    sizes = np.concatenate([part.sizes for part in parts])
    weighted = any(part.weights is not None for part in parts)
    boxes = Boxes.of(
        np.concatenate([part.lo for part in parts]).reshape(-1, dimensions),
        np.concatenate([part.hi for part in parts]).reshape(-1, dimensions),
        owner=np.repeat(np.arange(len(sizes)), sizes),
        ids=pa.concat_arrays([part.ids for part in parts]),
        scores=np.concatenate([part.scores for part in parts]),
        weights=np.concatenate(list(_weights(parts, dimensions))) if weighted else None,
        space=space,
    )
    return boxes if order is None else boxes.take(order)


def _order(parts: list[Part]) -> I64 | None:
    """Return the permutation into order of arrival; `None` if the rows have no `seq`."""
    arrival = [part.seq for part in parts if part.seq is not None]
    if not arrival:
        return None
    if len(arrival) < len(parts):
        raise FileError("some subscriptions have a 'seq' and some have none; give one to all")
    return np.argsort(np.concatenate(arrival), kind="stable")


def _weights(parts: list[Part], dimensions: int) -> Iterator[F64]:
    for part in parts:
        yield np.ones((len(part.ids), dimensions)) if part.weights is None else part.weights
