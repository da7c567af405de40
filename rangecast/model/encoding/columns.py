"""Vectorized conversion of whole columns to coordinates and back.

Each function returns coordinates and a mask of the rejected rows. The reason for a rejection comes
from the single-value code of `attributes`, which `explain` and `explain_bounds` call. So each
message exists once, and a property test compares both implementations.

Casting a whole column with Arrow must give the same result as converting each value. Where Arrow is
more lenient, or fails on one value, each distinct value is converted separately.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rangecast.errors import InvalidValueError, UsageError
from rangecast.kernels.arrays import F64, I64, Bool
from rangecast.model.attributes.base import (
    INT64_MIN,
    MISSING,
    Attribute,
    Boolean,
    Integer,
    Interval,
    NanMeaning,
    Number,
    plain,
)
from rangecast.model.attributes.field_paths import checked
from rangecast.model.attributes.patterns import Patterns, TextOrder, orders_of
from rangecast.model.attributes.residuals import Residual
from rangecast.model.attributes.text import OTHER, String
from rangecast.model.attributes.text_store import TEXTS
from rangecast.model.attributes.timestamps import Timestamp
from rangecast.model.encoding.casts import (
    as_doubles,
    as_numpy,
    doubles_of,
    integers_of,
    is_text,
    moments_of,
)
from rangecast.model.io.batch import Values, value_at

_NAN = r"^\s*[+-]?(?i:nan)\s*$"


class Column(NamedTuple):
    """Coordinates of a column; `bad` marks rejected values, whose coordinates are undefined."""

    coordinates: F64
    bad: Bool


class Bounds(NamedTuple):
    """Ranges of one attribute; `bad` marks rejected rows, whose ranges are undefined."""

    lo: F64
    hi: F64
    bad: Bool


def encode(attribute: Attribute, values: Values, *, nan: str = "error") -> Column:
    """Return the coordinates of an event column; null is `MISSING`."""
    skip_nan = nan_is_missing(nan)
    array = _plain(attribute, values)
    if isinstance(array, list):
        return Column(*_each(array, lambda value: coordinate(attribute, value, nan=nan)))
    if skip_nan:
        array = _without_nan(attribute, array)
    if isinstance(attribute, Number):
        coordinates, bad = _numbers(attribute, array)
    elif isinstance(attribute, Integer):
        coordinates, bad = _integers(attribute, array)
    elif isinstance(attribute, Timestamp):
        coordinates, bad = _timestamps(attribute, array)
    elif _takes_texts(attribute) and pa.types.is_large_string(array.type):
        coordinates, bad = _texts(attribute, array), np.zeros(len(array), np.bool_)
    else:
        coordinates, bad = _by_value(array, lambda value: coordinate(attribute, value))
    with np.errstate(invalid="ignore"):
        bad |= (coordinates < attribute.domain[0]) | (coordinates > attribute.domain[1])
    missing = _nulls(attribute, array)
    coordinates[missing] = MISSING
    bad &= ~missing
    return Column(coordinates, bad)


def encode_bounds(attribute: Attribute, lo: Values | None, hi: Values | None, rows: int) -> Bounds:
    """Return the ranges of a subscription's two columns; null means unbounded on that side.

    An absent column is all null. If both ends are null, the attribute is unrestricted.
    """
    lo = pa.nulls(rows) if lo is None else _plain(attribute, lo)
    hi = pa.nulls(rows) if hi is None else _plain(attribute, hi)
    low, low_bad = _ends(attribute, lo, upper=False)
    high, high_bad = _ends(attribute, hi, upper=True)
    no_lo, no_hi = _nulls(attribute, lo), _nulls(attribute, hi)
    low[no_lo], high[no_hi] = attribute.domain
    bad = (low_bad & ~no_lo) | (high_bad & ~no_hi)
    np.maximum(low, attribute.domain[0], out=low)
    np.minimum(high, attribute.domain[1], out=high)
    with np.errstate(invalid="ignore"):
        bad |= ~(low <= high)
    if isinstance(attribute, String):
        bad |= (low != high) | no_lo | no_hi
    free = no_lo & no_hi
    low[free], high[free] = -np.inf, np.inf
    return Bounds(low, high, bad & ~free)


def nan_is_missing(nan: str) -> bool:
    """Return whether the option `nan` is "missing"; reject unknown values."""
    if nan not in tuple(NanMeaning):
        raise UsageError(
            f"nan is 'reject' or 'missing'; given: {nan!r}\n"
            "  hint: nan='missing' reads NaN in events as a missing value"
        )
    return nan == NanMeaning.MISSING


def decode(attribute: Attribute, coordinates: F64) -> pa.Array:
    """Return the values of coordinates; `MISSING` and a string's `OTHER` become null."""
    missing = coordinates == MISSING
    if isinstance(attribute, Number):
        return pa.array(coordinates, mask=missing)
    if isinstance(attribute, Integer | Timestamp):
        whole = np.where(missing, 0, coordinates).astype(np.int64)
        kind = pa.int64() if isinstance(attribute, Integer) else pa.timestamp("us", "UTC")
        return pa.array(whole, mask=missing).cast(kind)
    kind = pa.bool_() if isinstance(attribute, Boolean) else pa.string()
    distinct, inverse = np.unique(coordinates, return_inverse=True)
    values = [None if c == MISSING else attribute.value(c) for c in distinct.tolist()]
    return pa.array(values, kind).take(pa.array(inverse))


def coordinate(attribute: Attribute, value: Any, *, nan: str = "error") -> float:
    """Return the coordinate of an event's value; texts are parsed like those of a file."""
    value = _parsed(attribute, value, skip_nan=nan == NanMeaning.MISSING)
    return attribute.coordinate(value)


def bounds(attribute: Attribute, lo: Any, hi: Any) -> Interval:
    """Return the range between two values given as in a file; `None` is unbounded."""
    lo, hi = _parsed(attribute, lo), _parsed(attribute, hi)
    if lo is None and hi is None:
        return -math.inf, math.inf
    if isinstance(attribute, String) and lo != hi:
        raise InvalidValueError(
            f"{attribute.name!r} is a string: its two ends must be the same text, "
            f"given: {lo!r} and {hi!r}"
        )
    low = attribute.domain[0] if lo is None else _end(attribute, lo, upper=False)
    high = attribute.domain[1] if hi is None else _end(attribute, hi, upper=True)
    clipped = attribute.clip(low, high)
    if clipped is None:
        raise InvalidValueError(
            f"{attribute.name!r} can never match: no value of its domain lies between "
            f"{lo if lo is not None else 'its least'} and {hi if hi is not None else 'its largest'}"
        )
    return clipped


def explain(attribute: Attribute, values: Values, row: int) -> str:
    """Return the reason why `encode` rejects a row."""
    try:
        coordinate(attribute, value_at(values, row))
    except InvalidValueError as error:
        return error.reason
    raise AssertionError(f"{attribute!r}: row {row} is rejected by the column but not by the value")


def explain_bounds(
    attribute: Attribute, lo: Values | None, hi: Values | None, row: int
) -> tuple[str, str]:
    """Return the column at fault in a row that `encode_bounds` rejects, and the reason."""
    ends = {"lo": lo, "hi": hi}
    values = {end: None if array is None else value_at(array, row) for end, array in ends.items()}
    for end, value in values.items():
        try:
            parsed = _parsed(attribute, value)
            if parsed is not None:
                _end(attribute, parsed, upper=end == "hi")
        except InvalidValueError as error:
            return f"{attribute.name}_{end}", error.reason
    blamed = "hi" if values["hi"] is not None else "lo"
    try:
        bounds(attribute, values["lo"], values["hi"])
    except InvalidValueError as error:
        return f"{attribute.name}_{blamed}", error.reason
    raise AssertionError(f"{attribute!r}: {values} is rejected by the column but not by the value")


# ---- single values


def _parsed(attribute: Attribute, value: Any, *, skip_nan: bool = False) -> Any:
    """Parse a value given by a file or a caller; `None` means no value."""
    value = checked(attribute.name, plain(value))
    if isinstance(value, str):
        if _takes_blanks(attribute) and not value.strip():
            return None
        if skip_nan and _takes_nan(attribute) and re.match(_NAN, value):
            return None
        return attribute.parse(value)
    if skip_nan and isinstance(value, float) and math.isnan(value):
        return None
    return value


def _takes_blanks(attribute: Attribute) -> bool:
    """Return whether an empty text means no value; it is a value where values are texts."""
    return isinstance(attribute, Number | Integer | Timestamp | Boolean)


def _takes_nan(attribute: Attribute) -> bool:
    """Return whether the text `NaN` is read as the number."""
    return isinstance(attribute, Number | Integer)


def _end(attribute: Attribute, value: Any, *, upper: bool) -> float:
    if attribute.ordered:
        return attribute.at_most(value) if upper else attribute.at_least(value)
    interval = attribute.equal(value)
    if interval is None:
        raise InvalidValueError(f"{attribute.name!r} can never be {value!r}")
    return interval[upper]


# ---- columns


def _plain(attribute: Attribute, values: Values) -> Values:
    """Normalize a column to one of a few types."""
    if isinstance(values, list):
        if isinstance(attribute, Number) and set(map(type, values)) <= _NUMBERS:
            # Integers beside fractions: common, and to round them is right here.
            return _cast_list(values, pa.float64())
        if _takes_texts(attribute) and set(map(type, values)) <= _TEXTS:
            return _cast_list(values, pa.large_string())
        return values
    array = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if pa.types.is_float16(array.type):
        array = array.cast(pa.float32())
    if is_text(array.type):
        array = array.cast(pa.large_string())
    return array


_NUMBERS = {int, float, type(None)}
_TEXTS = {str, type(None)}


def _cast_list(values: list[Any], kind: pa.DataType) -> Values:
    try:
        return pa.array(values, kind)
    except (pa.ArrowException, OverflowError, UnicodeEncodeError):
        return values


def _without_nan(attribute: Attribute, array: pa.Array) -> pa.Array:
    if pa.types.is_floating(array.type):
        return pc.if_else(pc.is_nan(array), None, array)
    if is_text(array.type) and _takes_nan(attribute):
        return pc.if_else(pc.match_substring_regex(array, _NAN), None, array)
    return array


def _nulls(attribute: Attribute, values: Values) -> Bool:
    """Return a mask of the rows without a value."""
    if isinstance(values, list):
        flags = (_is_nothing(attribute, value) for value in values)
        return np.fromiter(flags, np.bool_, len(values))
    if pa.types.is_null(values.type):
        return np.ones(len(values), np.bool_)
    nulls = values.is_null()
    if is_text(values.type) and _takes_blanks(attribute):
        nulls = pc.or_(nulls, pc.fill_null(pc.equal(pc.utf8_trim_whitespace(values), ""), True))
    return np.asarray(nulls.to_numpy(zero_copy_only=False), dtype=np.bool_)


def _is_nothing(attribute: Attribute, value: Any) -> bool:
    value = plain(value)
    blank = isinstance(value, str) and _takes_blanks(attribute) and not value.strip()
    return value is None or blank


def _each(values: list[Any], convert: Callable[[Any], float]) -> tuple[F64, Bool]:
    """Convert values one by one; return coordinates and a mask of the rejected ones."""
    coordinates = np.full(len(values), np.nan)
    for index, value in enumerate(values):
        with suppress(InvalidValueError):
            coordinates[index] = convert(value)
    return coordinates, np.isnan(coordinates)


def _by_value(array: pa.Array, convert: Callable[[Any], float]) -> tuple[F64, Bool]:
    """Convert each distinct value once; for texts, booleans and unusual types.

    Results for nulls are undefined.
    """
    try:
        encoded = array.dictionary_encode()
        values, places = encoded.dictionary, encoded.indices.fill_null(0)
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid):
        values, places = array, pa.array(np.arange(len(array)))
    distinct = [value_at(values, index) for index in range(len(values))] or [None]
    converted, _ = _each(distinct, lambda value: math.nan if value is None else convert(value))
    coordinates = converted[np.asarray(places.to_numpy(zero_copy_only=False), dtype=np.int64)]
    return coordinates, np.isnan(coordinates)


def _takes_texts(attribute: Attribute) -> bool:
    """Return whether an attribute accepts any text."""
    if isinstance(attribute, String):
        return isinstance(attribute, Patterns) or not isinstance(attribute, Residual)
    return isinstance(attribute, TextOrder)


def _texts(attribute: Attribute, array: pa.Array) -> F64:
    """Return the coordinates of texts; results for nulls are undefined."""
    if isinstance(attribute, TextOrder):
        _, offsets, data = array.buffers()
        ends = np.frombuffer(offsets, np.int64)[array.offset : array.offset + len(array) + 1]
        signs = np.frombuffer(b"" if data is None else data, np.uint8)
        return orders_of(signs, ends[:-1], ends[1:])
    assert isinstance(attribute, String)
    if not attribute.codes and not isinstance(attribute, Patterns):
        return np.full(len(array), OTHER)
    encoded = array.dictionary_encode()
    distinct = encoded.dictionary.to_pylist() or [""]
    if isinstance(attribute, Patterns):
        known = TEXTS.put_many(distinct)
    else:
        codes = attribute.codes
        known = np.array([codes.get(text, OTHER) for text in distinct])
    places = encoded.indices.fill_null(0)
    return known[np.asarray(places.to_numpy(zero_copy_only=False), dtype=np.int64)]


def _numbers(attribute: Number, array: pa.Array) -> tuple[F64, Bool]:
    doubles = doubles_of(array)
    if doubles is None:
        return _by_value(array, lambda value: coordinate(attribute, value))
    return doubles, ~np.isfinite(doubles)


def _integers(attribute: Integer, array: pa.Array) -> tuple[F64, Bool]:
    whole = integers_of(array)
    if whole is not None:
        return as_doubles(whole)
    if pa.types.is_floating(array.type):
        doubles = as_numpy(array).astype(np.float64) + 0.0
        with np.errstate(invalid="ignore"):
            fits = (doubles >= float(INT64_MIN)) & (doubles < 2.0**63)
            return doubles, ~(fits & (np.floor(doubles) == doubles))
    return _by_value(array, lambda value: coordinate(attribute, value))


def _timestamps(attribute: Timestamp, array: pa.Array) -> tuple[F64, Bool]:
    moments = moments_of(array, attribute.epoch)
    if moments is None:
        return _by_value(array, lambda value: coordinate(attribute, value))
    coordinates, bad = as_doubles(moments.down)
    return coordinates, bad | (moments.down != moments.up) | moments.bad


def _ends(attribute: Attribute, values: Values, *, upper: bool) -> tuple[F64, Bool]:
    """Return the lower or upper ends of ranges, rounded inwards onto the attribute's grid."""

    def end_of(value: Any) -> float:
        parsed = _parsed(attribute, value)
        return math.nan if parsed is None else _end(attribute, parsed, upper=upper)

    if isinstance(values, list):
        return _each(values, end_of)
    if pa.types.is_null(values.type):
        return np.zeros(len(values)), np.zeros(len(values), np.bool_)
    if isinstance(attribute, Number):
        doubles = doubles_of(values)
        if doubles is not None:
            return doubles, ~np.isfinite(doubles)
    elif isinstance(attribute, Integer):
        whole = integers_of(values)
        if whole is not None:
            return _ends_of_whole(whole, upper), np.zeros(len(whole), np.bool_)
        if pa.types.is_floating(values.type):
            doubles = as_numpy(values).astype(np.float64)
            bad = ~np.isfinite(doubles)
            return (np.floor(doubles) if upper else np.ceil(doubles)) + 0.0, bad
    elif isinstance(attribute, Timestamp):
        moments = moments_of(values, attribute.epoch)
        if moments is not None:
            return _ends_of_whole(moments.down if upper else moments.up, upper), moments.bad
    return _by_value(values, end_of)


def _ends_of_whole(whole: I64, upper: bool) -> F64:
    ends, inexact = as_doubles(whole)
    for index in np.flatnonzero(inexact).tolist():
        ends[index] = _end(_LINE, int(whole[index]), upper=upper)
    return ends


_LINE = Integer("line")
"""The grid that integers and microseconds share."""
