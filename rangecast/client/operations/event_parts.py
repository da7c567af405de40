"""Events to match without publishing them, in parts that fit into a request."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from rangecast.client.errors import error_of, row_error
from rangecast.client.operations.parts import BULK, file_rows, json_array, present, split_rows
from rangecast.client.results import EventLabels
from rangecast.errors import (
    InvalidValueError,
    RangecastError,
    RejectedRow,
    RejectedRowError,
    UsageError,
    abbreviate,
    from_interface,
)
from rangecast.model.encoding.columns import nan_is_missing
from rangecast.model.encoding.events import values_of
from rangecast.model.io.files import format_of
from rangecast.model.io.records import REMEDY
from rangecast.model.io.tables import batches_of
from rangecast.model.sets.ids import NO_ID, as_ids, id_type

Row = Mapping[str, Any] | RangecastError
"""An event, or the reason why it can't be sent."""


def checked_event(event: Any) -> Mapping[str, Any]:
    """Return one event; reject anything but a dict."""
    values_of(event)
    values: Mapping[str, Any] = event
    return values


class EventParts:
    """Events as request bodies, and the results of each.

    nan          "error": NaN is rejected; "missing": it is a missing value: JSON has none
    one_by_one   an event that can't be sent is an error of its own
    names        the column of the ids, and those that are kept
    fields       the attributes of the space, if one of these names is another
    """

    def __init__(
        self,
        events: Any,
        nan: str,
        *,
        one_by_one: bool = False,
        names: tuple[str, ...] = ("id",),
        fields: Collection[str] | None = None,
    ):
        self._is_missing = nan_is_missing(nan)
        self._id, *self._keep = names
        self._dropped = set() if fields is None else {*names} - {*fields}
        self._kept: list[list[Any]] = [[] for _ in self._keep]
        self._events, self._one_by_one = events, one_by_one
        self._texts_too = False
        self._ids: list[Any] = []
        self._part: list[Row] = []
        """Events of the last request, and skipped events between them."""
        self._done = 0

    def rows(self) -> Iterator[Row]:
        """Yield the events in the format to send, or the reason why one can't be sent."""
        for event in self._given_parts():
            try:
                row = self._checked(checked_event(event))
            except RangecastError as error:
                yield error
            except Exception as error:  # an event whose own methods raise
                reason = f"{type(error).__name__}: {abbreviate(error)}"
                yield UsageError(f"the event can't be decoded: {reason}")
            else:
                self._ids.append(row.get(self._id))
                for name, values in zip(self._keep, self._kept, strict=True):
                    values.append(row.get(name))
                yield {name: row[name] for name in row if name not in self._dropped}

    def _given_parts(self) -> Iterator[Any]:
        events = self._events
        if isinstance(events, str) or hasattr(events, "__fspath__"):
            self._texts_too = format_of(events) in ("csv", "jsonl")
            yield from file_rows(events)
        elif isinstance(events, list) and (self._one_by_one or all(map(_is_dict, events))):
            yield from events
        else:
            for batch in batches_of(events, "events"):
                yield from present(batch.arrow())

    def _checked(self, event: Mapping[str, Any]) -> Mapping[str, Any]:
        missing = set()
        for name, value in event.items():
            if isinstance(value, str):
                _check_text(name, value)
            elif isinstance(value, float | np.floating) and not math.isfinite(value):
                if not (self._is_missing and math.isnan(value)):
                    raise InvalidValueError(f"{name!r} must be a finite number", str(value))
                missing.add(name)
            elif isinstance(value, bytes | bytearray):
                raise InvalidValueError(f"{name!r} must be a string", repr(value))
        return {name: value for name, value in event.items() if name not in missing}

    def __iter__(self) -> Iterator[bytes]:
        """Yield request bodies; call `taken` with the answer to each before the next."""
        for part in split_rows(self.rows(), BULK):
            self._part = [row for row, _ in part]
            yield json_array([body for row, body in part if not isinstance(row, RangecastError)])

    def taken(self, answer: Mapping[str, Any], name: str, *, is_strict: bool) -> list[Any]:
        """Return the result of each event of the last request, or its error.

        is_strict   raise the first error, as for a row of a table
        """
        wrong = {rejection["row"]: rejection for rejection in answer["rejected"]}
        answers = iter(answer[name])
        results: list[Any] = []
        sent = 0
        for at, row in enumerate(self._part, self._done):
            if isinstance(row, RangecastError):
                if is_strict:
                    raise self._as_row(at, row)
                results.append(row)
                continue
            if sent in wrong:
                if is_strict and wrong[sent]["code"] != UsageError.code:
                    raise row_error("events", wrong[sent], at, row)
                if is_strict:  # an attribute that there isn't is no fault of a row
                    raise UsageError(from_interface(wrong[sent]["reason"], "http"))
                reason = wrong[sent]["reason"]
                results.append(error_of(wrong[sent] | {"detail": reason}, 422))
            else:
                results.append(next(answers))
            sent += 1
        self._done += len(self._part)
        return results

    def _as_row(self, at: int, error: RangecastError) -> RangecastError:
        if not isinstance(error, InvalidValueError):
            return error
        column = error.reason.partition("'")[2].partition("'")[0]
        value = str(error).rpartition("given: ")[2]
        return RejectedRowError(RejectedRow("events", at, column, value, error.reason, REMEDY))

    def labels(self) -> EventLabels:
        """Return the ids of the events, and the kept columns."""
        absent = [
            name
            for name, values in zip(self._keep, self._kept, strict=True)
            if all(value is None for value in values)
        ]
        if absent and self._ids:
            raise UsageError(f"can't keep {absent[0]!r}: events have no such column")
        kept = pa.table(self._kept, names=self._keep) if self._keep else None
        return self._event_ids(), kept

    def _event_ids(self) -> pa.Array:
        """Return the ids of the events; without ids, their numbers."""
        if all(id_ is None for id_ in self._ids):
            return pa.array(range(len(self._ids)), pa.int64())
        kind = id_type([self._ids], texts_too=self._texts_too) or pa.int64()
        ids, missing = as_ids(self._ids, kind)
        if missing.any():
            row = int(missing.argmax())
            shown = abbreviate(self._ids[row])
            remedy = "give each row a unique id"
            raise RejectedRowError(RejectedRow("events", row, "id", shown, NO_ID, remedy))
        return ids


def _is_dict(value: Any) -> bool:
    return isinstance(value, Mapping)


def _check_text(name: str, value: str) -> None:
    """Reject a text that JSON can't represent."""
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            reason = f"{name!r} must be a string without lone surrogates"
            raise InvalidValueError(reason, repr(value)) from None
