"""Bulk publishing and subscribing: several requests, and their combined result."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from rangecast.client.errors import ServerError, row_error
from rangecast.client.operations.parts import (
    BULK,
    MAX_ROWS,
    arrow_bodies,
    encode,
    event_rows,
    json_array,
    split,
)
from rangecast.client.operations.requests import Call, Condition
from rangecast.client.results import (
    Published,
    PublishError,
    SubscribeError,
)
from rangecast.errors import RangecastError, RejectedRow
from rangecast.kernels.arrays import I64
from rangecast.model.encoding.subscriptions import exact_columns
from rangecast.model.io.kept_columns import identified
from rangecast.model.io.records import REMEDY, Source, file_source, pass_over, table_source
from rangecast.model.sets.base import UpsertResult
from rangecast.model.sets.ids import as_ids, id_type
from rangecast.model.sets.members import Id
from rangecast.model.space import Space

_LINES = {"Content-Type": "application/x-ndjson"}
_ARROW = {"Content-Type": "application/vnd.apache.arrow.stream"}
_FIELDS = {"id", "filter", "score", "weights", "consumer", "ttl", "track"}
"""Fields of a subscription in a JSON list; a table has others."""


class Publishing:
    """Requests that publish events, and the results so far.

    Each request has its own Idempotency-Key, so it can be retried if its answer is lost.
    """

    def __init__(self, path: str, events: Any, params: dict[str, Any], key: str | None):
        self._path, self._params = path, params
        self._key = key or f"client-{secrets.token_hex(12)}"
        self._parts = split(map(encode, event_rows(events)), MAX_ROWS)
        self._sent = self._answered = 0
        self._accepted = 0
        self._ends: tuple[str | None, str | None] = None, None
        self._rejected: list[RejectedRow] = []
        self._matches: list[list[Id]] | None = [] if "wait" in params else None

    def __iter__(self) -> Iterator[Call[Any]]:
        """Yield the requests; call `add` with each answer before the next."""
        number = 0
        while True:
            try:
                part = next(self._parts, None)
            except RangecastError as error:
                raise self.failed(error) from error
            if part is None:
                return
            self._sent += len(part)
            key = f"{self._key}.{number}" if number else self._key
            headers = _LINES | {"Idempotency-Key": key}
            body = b"\n".join(part)
            yield Call("POST", self._path, body, params=self._params, headers=headers)
            number += 1

    def add(self, answer: Mapping[str, Any]) -> None:
        """Process the answer to the last request."""
        for rejection in answer["rejected"]:
            error = row_error("events", rejection, self._answered + rejection["row"], None)
            self._rejected.append(error.rejected)
        self._accepted += answer["accepted"]
        self._ends = self._ends[0] or answer["first"], answer["last"] or self._ends[1]
        matches = answer.get("matches")
        if matches is None and answer["accepted"]:  # too many, or a request that came before
            self._matches = None
        elif self._matches is not None:
            self._matches += matches or []
        self._answered = self._sent

    def published(self) -> Published:
        """Return the results of the answered events."""
        return Published(self._accepted, *self._ends, self._rejected, self._matches)

    def failed(self, error: RangecastError) -> RangecastError:
        """Return the error of a request, with the results of the events before it."""
        status = error.status if isinstance(error, ServerError) else None
        if not self._answered and not isinstance(error, ServerError):
            return error  # nothing was sent
        text = str(error)
        if self._answered:
            text = (
                f"{self._accepted:,} events were published, up to row {self._answered - 1:,}; "
                f"then: {text}"
            )
        return PublishError(text, status, self.published(), self._answered)

    def result(self, rejected: list[RejectedRow] | None) -> Published:
        """Return the result of all events; rejected ones are added to the list, or raised."""
        result = self.published()
        if rejected is not None:
            rejected += result.rejected
        elif result.rejected:
            count = len(result.rejected)
            text = (
                f"{count:,} of {self._sent:,} {'event is' if self._sent == 1 else 'events are'} "
                f"rejected, {result.accepted:,} published; "
                f"row {result.rejected[0].row}: {result.rejected[0].reason}"
            )
            raise PublishError(text, 422, result)
        return result


class BulkOptions(NamedTuple):
    """Options of `Client.subscribe_many` and its kin."""

    rejected: list[RejectedRow] | None
    consumer: str | None
    create_consumer: bool
    progress: Callable[[int], None] | None
    is_patch: bool = False
    """Whether rows replace subscriptions, which keep the fields that aren't given."""
    id: str | None = None
    """Column of the ids, if it isn't `id`."""


class Subscribing:
    """Requests that save many subscriptions, and the results so far."""

    def __init__(
        self,
        path: str,
        source: Any,
        space: Space | None,
        condition: Condition,
        options: BulkOptions,
    ):
        self._path, self._space, self._options = path, space, options
        self._condition = dict([condition] if condition else [])
        self._is_strict = options.rejected is None
        self._params: dict[str, Any] = {"strict": self._is_strict}
        if options.create_consumer:
            self._params["create_consumer"] = True
        if options.consumer is not None:
            self._params["consumer"] = options.consumer
        if not is_file(source) and not is_table(source):
            if not isinstance(source, Iterable):
                table_source(source, "subscriptions")  # rejects it
            source = self._named(list(source))
        self._given = source
        self._rows: I64 = np.zeros(0, np.int64)
        """Row numbers of the last request."""
        self.accepted = self._inserted = 0
        self.rejected: list[RejectedRow] = []
        self._source = str(source) if is_file(source) else "subscriptions"

    def _named(self, rows: list[Any]) -> list[Any]:
        """Return rows with their ids in the column `id`."""
        column = self._options.id
        if column in (None, "id"):
            return rows
        return [
            {"id": row.get(column), **{name: row[name] for name in row if name != column}}
            if is_row(row)
            else row
            for row in rows
        ]

    def __iter__(self) -> Iterator[Call[Any]]:
        """Yield the requests; call `add` with each answer before the next."""
        try:
            is_json = isinstance(self._given, list) and _is_json(self._given)
            yield from self._json() if is_json else self._tables()
        except ServerError:
            raise
        except RangecastError as error:
            if not self.accepted:
                raise
            raise self.failed(error) from error

    def _json(self) -> Iterator[Call[Any]]:
        first = 0
        id_type([[row.get("id") for row in self._given if is_row(row)]], texts_too=False)
        for part in split(map(encode, self._given), BULK):
            self._rows = np.arange(first, first + len(part))
            yield self._call(json_array(part), {})
            first += len(part)

    def _tables(self) -> Iterator[Call[Any]]:
        tables: Any = self._given
        column, kind = self._options.id, None
        if is_file(tables):
            exact = () if self._space is None else exact_columns(self._space)
            source = identified(file_source(tables, exact), column)
            kind = _id_type(source)
        else:
            source = table_source(tables, "subscriptions", nan_is_null=True)
            source = identified(source, column) if is_table(tables) else source
        batches = source.read(None if self._is_strict else self._broken)
        seen: dict[str, None] = {}
        for batch in batches:
            for name in seen:  # a block of JSON has only the keys of its own lines
                batch.columns.setdefault(name, pa.nulls(len(batch.rows)))
            seen.update(dict.fromkeys(batch.columns))
            if column not in (None, "id"):
                batch.columns.pop(column, None)
            if kind is not None and "id" in batch.columns:
                batch.columns["id"] = as_ids(batch.columns["id"], kind)[0]
            for self._rows, body in arrow_bodies(batch):
                yield self._call(body, _ARROW)

    def _broken(self, row: int, text: str, why: str) -> None:
        self.rejected.append(
            RejectedRow(self._source, row, "(all)", text[:200], f"the row {why}", REMEDY)
        )

    def _call(self, body: bytes, headers: dict[str, str]) -> Call[Any]:
        headers = headers | self._condition
        is_repeatable = not self._condition
        method = "PATCH" if self._options.is_patch else "POST"
        return Call(
            method,
            self._path,
            body,
            params=self._params,
            headers=headers,
            repeatable=is_repeatable,
        )

    def add(self, answer: Mapping[str, Any]) -> None:
        """Process the answer to the last request."""
        rejected = answer["rejected"]
        if self._is_strict and rejected and not self.accepted:
            row = int(self._rows[rejected[0]["row"]])
            values = self._given[row] if isinstance(self._given, list) else None
            raise row_error(self._source, rejected[0], row, values)
        self.accepted += answer["accepted"]
        self._inserted += answer["inserted"]
        rejections = [
            row_error(self._source, rejection, int(self._rows[rejection["row"]]), None).rejected
            for rejection in rejected
        ]
        self.rejected += rejections
        if self._is_strict and rejections:
            before = f"{self.accepted:,} were saved by earlier requests; " if self.accepted else ""
            text = f"{before}row {rejections[0].row}: {rejections[0].reason}"
            raise SubscribeError(text, 422, self.accepted, self.rejected)

        if self._options.progress is not None:
            self._options.progress(len(self._rows))

    def result(self) -> UpsertResult:
        """Return the numbers of inserted and replaced subscriptions."""
        if self._options.rejected is not None:
            self._options.rejected.extend(
                sorted(self.rejected, key=lambda rejection: rejection.row or 0)
            )
        return UpsertResult(self._inserted, self.accepted - self._inserted)

    def failed(self, error: RangecastError) -> RangecastError:
        """Return the error of a request, with the results of the rows before it."""
        if isinstance(error, SubscribeError) or not self.accepted:
            return error
        status = error.status if isinstance(error, ServerError) else None
        text = f"{self.accepted:,} were saved by earlier requests; then: {error}"
        return SubscribeError(text, status, self.accepted, self.rejected)


def is_file(source: Any) -> bool:
    """Return whether this is the path of a file."""
    return isinstance(source, str | Path)


def is_table(source: Any) -> bool:
    """Return whether this is an Arrow table, a DataFrame or a dict of columns."""
    return isinstance(source, Mapping) or hasattr(source, "__arrow_c_stream__")


def is_row(source: Any) -> bool:
    """Return whether `source` is a single row: a mapping."""
    return isinstance(source, Mapping)


def _id_type(source: Source) -> pa.DataType | None:
    """Return the id type of a file, as a set that reads it infers it."""
    batches = source.read(pass_over, only="id")
    columns = (batch.columns["id"] for batch in batches if "id" in batch.columns)
    return id_type(columns, texts_too=source.texts_too)


def _is_json(rows: list[Any]) -> bool:
    """Return whether these are dicts of a subscription's fields, which are sent unchanged."""
    if not all(isinstance(row, Mapping) and row.keys() <= _FIELDS for row in rows):
        return False
    return not rows or all(any(name in row for row in rows) for name in ("id", "filter"))
