"""Encode events from the network: JSON texts to points, column by column where possible."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from keyword import iskeyword
from operator import itemgetter
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa

from rangecast.errors import InvalidValueError, RangecastError, UsageError, abbreviate
from rangecast.kernels.arrays import F64
from rangecast.model.attributes.base import (
    INT64_MAX,
    INT64_MIN,
    MISSING,
    Attribute,
    Integer,
    Number,
)
from rangecast.model.attributes.field_paths import value_at
from rangecast.model.attributes.patterns import ORDER_BYTES, Patterns, Text, TextOrder, order_of
from rangecast.model.attributes.text import OTHER, String
from rangecast.model.attributes.text_store import TEXTS
from rangecast.model.attributes.timestamps import (
    EPOCH,
    FINER_THAN_MICROSECONDS,
    MICROSECOND,
    Timestamp,
)
from rangecast.model.encoding.columns import coordinate
from rangecast.model.encoding.events import encode_event, encode_events
from rangecast.model.space import Space
from rangecast.server.json_text import DepthError, decoder_for, shallow

CLOUDEVENTS = "cloudevents"
_MAX_FLOAT = sys.float_info.max
"""An integer may be greater: it has no float."""
_ONE_BY_ONE = 6
"""Events below this many are faster one by one than column by column."""
_FEW = 48
"""Events below this many are faster one by one than as a table."""
_NUMBERS = {int, float, type(None)}
_TEXTS = {str, type(None)}
_EXACT = 2**53
_MOMENT = pa.timestamp("us", "UTC")
MAX_KEY = 1_000
"""Characters of the key of an object."""
_anything = msgspec.json.Decoder()
_encode = msgspec.json.Encoder().encode


@dataclass(slots=True, eq=False)
class EncodedEvents:
    """Valid events of a space, with their points."""

    lines: list[bytes]
    """Original events, one line each."""
    rows: list[dict[str, Any]]
    points: F64
    space: Space
    words: int
    """Words in the space when the points were encoded."""

    def take(self, places: Sequence[int]) -> EncodedEvents:
        """Return the events at some rows."""
        return EncodedEvents(
            [self.lines[at] for at in places],
            [self.rows[at] for at in places],
            self.points[places],
            self.space,
            self.words,
        )

    def points_in(self, space: Space) -> F64:
        """Return the points in terms of the current words of a space.

        Edits may have added words or attributes since the events were encoded.
        """
        if space is not self.space:
            self.points, self.space = points_of(self.rows, space), space
        elif self.words != count_words(space) or space.patterns:
            # Handles of texts are made again: the texts are in another array by now.
            with TEXTS.batch() as keep_texts:
                for axis, attribute in enumerate(space):
                    if isinstance(attribute, Text | Patterns):
                        values = _values(self.rows, attribute)
                        self.points[:, axis] = _text_coordinates(attribute, values)
                    elif isinstance(attribute, String):
                        values = _values(self.rows, attribute)
                        self.points[:, axis] = [attribute.coordinate(value) for value in values]
                keep_texts(self.points)
        self.words = count_words(space)
        return self.points


class TrackColumns(NamedTuple):
    """Event columns that tracks need."""

    key: str
    accuracy: str
    """Attribute of the accuracy; empty: positions are exact."""

    def check(self, event: dict[str, Any]) -> None:
        """Reject an event with an invalid key or accuracy; either may be missing."""
        value = event.get(self.key)
        if value is not None and not is_key(value):
            raise InvalidValueError(
                f"{self.key!r} must identify an object: a 64-bit integer or a string of at most "
                f"{MAX_KEY:,} characters\n  given: {abbreviate(value)}"
            )
        value = event.get(self.accuracy) if self.accuracy else None
        if value is not None and accuracy_of(value) is None:
            raise InvalidValueError(
                f"{self.accuracy!r} must be an accuracy: a number, 0 or more\n"
                f"  given: {abbreviate(value)}"
            )

    def without(self, rows: list[dict[str, Any]], space: Space) -> list[dict[str, Any]]:
        """Return events without the track columns that aren't attributes of the space."""
        return _without(rows, self.names, space)

    @property
    def names(self) -> frozenset[str]:
        """Names of the columns."""
        return frozenset(name for name in self if name)

    def are_valid(self, rows: Sequence[dict[str, Any]]) -> bool:
        """Return whether all events pass `check`."""
        keys = [row.get(self.key) for row in rows]
        kinds = {*map(type, keys)} - {type(None)}
        if kinds == {str}:
            if max(len(key) for key in keys if key is not None) > MAX_KEY:
                return False
        elif kinds and not all(key is None or is_key(key) for key in keys):
            return False
        return not self.accuracy or all(
            value is None or accuracy_of(value) is not None
            for value in (row.get(self.accuracy) for row in rows)
        )


def _without(
    rows: Sequence[dict[str, Any]], names: Collection[str], space: Space
) -> list[dict[str, Any]]:
    """Return events without fields that aren't attributes of the space."""
    own = set(names) - space.fields
    return [{name: row[name] for name in row if name not in own} for row in rows]


def accuracy_of(value: object) -> float | None:
    """Return an accuracy if it is valid, else `None`."""
    if type(value) not in (int, float):
        return None
    return float(value) if 0 <= value <= _MAX_FLOAT else None  # type: ignore[arg-type, operator]


def encoded(
    lines: Sequence[bytes],
    space: Space,
    *,
    ignore_unknown: bool,
    form: str = "",
    tracked: TrackColumns | None = None,
) -> tuple[EncodedEvents, list[tuple[int, str]]]:
    """Return the valid events of a space, and the row and error of each rejected one.

    tracked   columns that tracks need; they need not be attributes
    """
    words = count_words(space)
    taken, rows, rejected = _decoded(lines, form, tracked)
    extra = frozenset() if tracked is None else tracked.names
    try:
        points = points_of(rows, space, ignore_unknown=ignore_unknown, extra=extra)
    except (RangecastError, OverflowError):
        known = rows if tracked is None or ignore_unknown else tracked.without(rows, space)
        wrong = {index for index, _ in rejected}
        places = [at for at in range(len(lines)) if at not in wrong]
        kept: list[int] = []
        encoded_points: list[F64] = []
        for at, row in enumerate(known):
            try:
                encoded_points.append(encode_event(row, space, ignore_unknown=ignore_unknown))
                kept.append(at)
            except (RangecastError, OverflowError) as error:
                rejected.append((places[at], str(error)))
        rejected.sort()
        taken, rows = [taken[at] for at in kept], [rows[at] for at in kept]
        points = np.array(encoded_points).reshape(len(kept), len(space))
    return EncodedEvents(taken, rows, points, space, words), rejected


def _decoded(
    lines: Sequence[bytes], form: str, tracked: TrackColumns | None
) -> tuple[list[bytes], list[dict[str, Any]], list[tuple[int, str]]]:
    """Return the lines that are events, these events, and the row and error of each other line."""
    rejected: list[tuple[int, str]] = []
    taken: list[bytes] = []
    rows: list[dict[str, Any]] = []
    read = decoder_for(lines)
    if form != CLOUDEVENTS:
        with suppress(msgspec.DecodeError, UnicodeDecodeError):  # mostly all of them are fine
            rows = [read(line) for line in lines]
            if (
                {*map(type, rows)} <= {dict}
                and (tracked is None or tracked.are_valid(rows))
                and not any(b"\n" in line for line in lines)
            ):
                return [*map(bytes, lines)], rows, rejected
        rows = []
    for index, line in enumerate(lines):
        try:
            row = read(line)
        except DepthError as error:
            rejected.append((index, f"{error}\n  given: {abbreviate(_text(line))}"))
            continue
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            rejected.append((index, f"not JSON: {error}\n  given: {abbreviate(_text(line))}"))
            continue
        if not isinstance(row, dict):
            rejected.append(
                (index, f"an event must be a JSON object\n  given: {abbreviate(_text(line))}")
            )
            continue
        try:
            event = row_of(row) if form == CLOUDEVENTS else row
            if tracked is not None:
                tracked.check(event)
            rows.append(event)
        except RangecastError as error:
            rejected.append((index, str(error)))
            continue
        taken.append(_encode(row) if b"\n" in line else bytes(line))
    return taken, rows, rejected


def is_key(value: object) -> bool:
    """Return whether a value is a valid object key."""
    if type(value) is str:
        return len(value) <= MAX_KEY
    return type(value) is int and INT64_MIN <= value <= INT64_MAX


def without_long_events(
    taken: EncodedEvents, rejected: list[tuple[int, str]], max_bytes: int
) -> tuple[EncodedEvents, list[tuple[int, str]]]:
    """Reject events that are too long for a link; return as `encoded` does."""
    if all(len(line) <= max_bytes for line in taken.lines):
        return taken, rejected
    wrong = {at for at, _ in rejected}
    rows = [row for row in range(len(taken.lines) + len(wrong)) if row not in wrong]
    short = [at for at, line in enumerate(taken.lines) if len(line) <= max_bytes]
    long = [
        (row, f"the event has {len(line):,} bytes; a linked server accepts at most {max_bytes:,}")
        for row, line in zip(rows, taken.lines, strict=True)
        if len(line) > max_bytes
    ]
    return taken.take(short), sorted(rejected + long)


def code_of(
    line: bytes, space: Space, ignore_unknown: bool, form: str, tracked: TrackColumns | None = None
) -> str:
    """Return the code of the error that an event is rejected with; see `errors`."""
    try:
        row = decoder_for([line])(line)
        event = row_of(row) if form == CLOUDEVENTS else row
        if tracked is not None:
            tracked.check(event)
            (event,) = tracked.without([event], space)
        encode_event(event, space, ignore_unknown=ignore_unknown)
    except RangecastError as error:
        return error.code or UsageError.code
    except (msgspec.DecodeError, UnicodeDecodeError, OverflowError):
        pass
    return InvalidValueError.code


def points_of(
    rows: Sequence[dict[str, Any]],
    space: Space,
    *,
    ignore_unknown: bool = True,
    extra: Collection[str] = (),
) -> F64:
    """Return events as points, (events, d).

    extra   fields that events may have besides the attributes
    """
    if not space.patterns:
        return _points(rows, space, ignore_unknown, extra)
    return TEXTS.keep(lambda: _points(rows, space, ignore_unknown, extra))


def _points(
    rows: Sequence[dict[str, Any]], space: Space, ignore_unknown: bool, extra: Collection[str]
) -> F64:
    quick = None
    if len(rows) >= _ONE_BY_ONE and (
        ignore_unknown or set().union(*rows) <= space.fields.union(extra, ("id",))
    ):
        quick = _quick(_columns(rows, space), len(rows), space)
    if quick is not None:
        return quick
    if extra and not ignore_unknown:
        rows = _without(rows, extra, space)
    if len(rows) >= _FEW:
        with suppress(RangecastError, OverflowError):  # together they may not make a table
            return encode_events(rows, space, ignore_unknown=ignore_unknown).points.copy()
    points = [encode_event(row, space, ignore_unknown=ignore_unknown) for row in rows]
    return np.array(points).reshape(len(rows), len(space))


def _quick(columns: Iterable[Sequence[Any]], count: int, space: Space) -> F64 | None:
    """Return the points if every value is plain JSON of its attribute's kind, else `None`."""
    points = np.full((count, len(space)), np.inf)
    for axis, (attribute, values) in enumerate(zip(space, columns, strict=True)):
        kinds = set(map(type, values))
        try:
            if kinds <= _NUMBERS and isinstance(attribute, Number | Integer):
                column = _numbers(attribute, values, are_all_given=type(None) not in kinds)
            elif kinds <= _TEXTS and isinstance(attribute, Timestamp) and not attribute.epoch:
                column = _moments(attribute, values)
            elif kinds <= _TEXTS and isinstance(attribute, Text | Patterns | TextOrder):
                column = _text_coordinates(attribute, values)
            else:
                column = _convert_distinct(attribute, values)
        except (RangecastError, TypeError, ValueError, OverflowError):
            return None
        if column is None:
            return None
        points[:, axis] = column
    return points


def _columns(rows: Sequence[dict[str, Any]], space: Space) -> Iterable[Sequence[Any]]:
    """Return the values of events by attribute."""
    if len(space) > 1 and all(attribute.path is None for attribute in space):
        with suppress(KeyError):  # if each event has all of them, a column takes half the time
            return list(zip(*map(itemgetter(*space.names), rows), strict=True))
    return [_values(rows, attribute) for attribute in space]


def _values(rows: Sequence[dict[str, Any]], attribute: Attribute) -> list[Any]:
    """Return the values of events for an attribute."""
    if attribute.path is None:
        return [row.get(attribute.name) for row in rows]
    return [value_at(row, attribute.path) for row in rows]


def _numbers(
    attribute: Number | Integer, values: Sequence[Any], *, are_all_given: bool
) -> F64 | None:
    """Return a column of numbers; `None` if one of them needs conversion."""
    present = values if are_all_given else [value for value in values if value is not None]
    numbers = np.array(present, np.float64) + 0.0
    lo, hi = attribute.domain
    if not ((numbers >= lo) & (numbers <= hi)).all():  # so is NaN rejected
        return None
    if (
        isinstance(attribute, Integer)
        and not ((np.abs(numbers) < 2.0**53) & (numbers == np.floor(numbers))).all()
    ):
        return None
    if are_all_given:
        return numbers
    column = np.full(len(values), np.inf)
    column[[value is not None for value in values]] = numbers
    return column


def _moments(attribute: Timestamp, values: Sequence[Any]) -> F64 | None:
    """Return a column of timestamps given as text; `None` if one of them needs conversion."""
    lo, hi = attribute.domain
    with suppress(pa.ArrowInvalid):  # it knows fewer forms, and reads them four times as fast
        moments = pa.array(values, pa.string()).cast(_MOMENT).cast(pa.int64())
        is_missing = np.asarray(moments.is_null())
        micros = moments.fill_null(0).to_numpy()
        is_exact = (micros >= lo) & (micros <= hi) & (np.abs(micros) < _EXACT)
        if not (is_missing | is_exact).all():
            return None
        return np.where(is_missing, np.inf, micros)
    texts = [value for value in values if value is not None]
    if FINER_THAN_MICROSECONDS.search(" ".join(texts)) or any(map(str.isdecimal, texts)):
        return None
    column = np.full(len(values), np.inf)
    for index, text in enumerate(values):
        if text is not None:
            moment = datetime.fromisoformat(text)
            if moment.tzinfo is None:
                moment = moment.replace(tzinfo=UTC)
            micros = (moment - EPOCH) // MICROSECOND
            if not (lo <= micros <= hi and -_EXACT < micros < _EXACT):
                return None
            column[index] = micros
    return column


def _text_coordinates(attribute: Text | Patterns | TextOrder, values: Sequence[str | None]) -> F64:
    """Return a column of texts; those of ASCII need no validation."""
    texts = [value for value in {*values} if value is not None]
    if not all(map(str.isascii, texts)):
        return _convert_distinct(attribute, values)
    if isinstance(attribute, Patterns):
        codes = TEXTS.put_many(texts).tolist()
    elif isinstance(attribute, TextOrder):
        codes = [order_of(text[:ORDER_BYTES].encode()) for text in texts]
    else:
        codes = [attribute.codes.get(text, OTHER) for text in texts]
    coordinates: dict[str | None, float] = dict(zip(texts, codes, strict=True))
    coordinates[None] = MISSING
    return np.array([coordinates[value] for value in values], np.float64)


def _convert_distinct(attribute: Attribute, values: Sequence[Any]) -> F64:
    """Return a column, converting each distinct value once."""
    # True equals 1 and 1.0, so values of several types would share a place.
    if len({type(value) for value in values} - {type(None)}) > 1:
        raise TypeError("mixed")
    coordinates = {value: coordinate(attribute, value) for value in set(values)}
    return np.array([coordinates[value] for value in values], np.float64)


def rows_of(lines: Sequence[bytes], form: str) -> list[dict[str, Any]]:
    """Decode events of the log; each line is one JSON object.

    An event that an earlier version accepted may be nested too deep to decode; its deeper levels
    are replaced by null.
    """
    try:
        rows = _anything.decode(b"[%s]" % b",".join(lines))
    except RecursionError:
        rows = [_anything.decode(shallow(line)) for line in lines]
    return [row_of(row) for row in rows] if form == CLOUDEVENTS else rows


def points_of_lines(lines: Sequence[bytes], form: str, space: Space) -> F64:
    """Return events of the log as points, (events, d)."""
    if form != CLOUDEVENTS and len(lines) >= _ONE_BY_ONE:
        decoder = _fields_decoder(
            tuple([None if attribute.path else attribute.name for attribute in space])
        )
        if decoder is not None:
            try:
                rows = decoder.decode(b"[%s]" % b",".join(lines))
            except RecursionError:
                return points_of(rows_of(lines, form), space)
            columns = [[getattr(row, name) for row in rows] for name in space.names]
            quick = _quick(columns, len(rows), space)
            if quick is not None:
                return quick
    return points_of(rows_of(lines, form), space)


@lru_cache(maxsize=64)
def _fields_decoder(names: tuple[str | None, ...]) -> msgspec.json.Decoder[list[Any]] | None:
    """Return a decoder of only these fields, if they are valid field names of a class."""
    fields = [(name, Any, None) for name in names if name and name.isascii() and name[0] != "_"]
    if len(fields) < len(names) or any(iskeyword(field) for field, *_ in fields):
        return None
    return msgspec.json.Decoder(list[msgspec.defstruct("Light", fields, gc=False)])  # type: ignore[misc]


def row_of(envelope: dict[str, Any]) -> dict[str, Any]:
    """Return the event in a CloudEvents envelope: its data, with the envelope's id."""
    data = envelope.get("data")
    if not isinstance(data, dict) or "id" not in envelope or "specversion" not in envelope:
        raise UsageError(
            "a CloudEvent must have a specversion, an id and, as data, a JSON object with the "
            f"event's values\n  given: {abbreviate(envelope)}"
        )
    return {**data, "id": envelope["id"]}


def count_words(space: Space) -> int:
    """Return the number of words of a space; it only grows."""
    return sum(len(attribute.vocabulary) for attribute in space if isinstance(attribute, String))


def _text(line: bytes) -> str:
    return bytes(line[:200]).decode("utf-8", "replace")
