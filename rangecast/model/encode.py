"""Whole Arrow columns to coordinates and back: `attributes`, vectorised.

Each function returns coordinates and a mask of the rows that it refuses. Why a row is refused is
left to the single-value code of `attributes`, which `explain` and `explain_bounds` call: so the
messages exist once, and a property test can hold the two to each other.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rangecast.errors import UsageError, ValueRefusedError
from rangecast.kernels.arrays import F64, I64, AnyArray, Bool
from rangecast.model.attributes import (
    INT64_MAX,
    INT64_MIN,
    MISSING,
    Attribute,
    Boolean,
    Integer,
    Interval,
    NanMeaning,
    Number,
    String,
    Timestamp,
)

_EXACT = 2**53
_MICROS = {"s": 10**6, "ms": 10**3, "us": 1}


class Column(NamedTuple):
    """Coordinates of a column; where `bad`, the value is refused and the coordinate undefined."""

    coordinates: F64
    bad: Bool


class Bounds(NamedTuple):
    """Ranges of one attribute; where `bad`, the row is refused and the range undefined."""

    lo: F64
    hi: F64
    bad: Bool


def encode(attribute: Attribute, array: pa.Array, *, nan: str = "refuse") -> Column:
    """Return the coordinates of an event's column; null is `MISSING`."""
    array = _plain(array)
    if pa.types.is_null(array.type):
        return Column(np.full(len(array), MISSING), np.zeros(len(array), np.bool_))
    if nan_is_missing(nan) and isinstance(attribute, Number | Integer):
        array = _without_nan(array)
    if isinstance(attribute, Number):
        coordinates, bad = _numbers(attribute, array)
    elif isinstance(attribute, Integer):
        coordinates, bad = _integers(attribute, array)
    elif isinstance(attribute, Timestamp):
        coordinates, bad = _timestamps(attribute, array)
    else:
        coordinates, bad = _by_value(array, lambda value: coordinate(attribute, value))
    with np.errstate(invalid="ignore"):
        bad |= (coordinates < attribute.domain[0]) | (coordinates > attribute.domain[1])
    missing = _nulls(attribute, array)
    coordinates[missing] = MISSING
    bad &= ~missing
    return Column(coordinates, bad)


def encode_bounds(
    attribute: Attribute, lo: pa.Array | None, hi: pa.Array | None, rows: int
) -> Bounds:
    """Return the ranges of a subscription's two columns; null is unbounded on that side.

    An absent column is all null. Both ends null: the attribute isn't mentioned.
    """
    lo = pa.nulls(rows) if lo is None else _plain(lo)
    hi = pa.nulls(rows) if hi is None else _plain(hi)
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
    """Return what the option `nan` says; refuse any other word."""
    if nan not in tuple(NanMeaning):
        raise UsageError(
            f"nan is 'refuse' or 'missing'; given: {nan!r}\n"
            "  to do: nan='missing' reads NaN in events as a missing value"
        )
    return nan == NanMeaning.MISSING


def decode(attribute: Attribute, coordinates: F64) -> pa.Array:
    """Return the values of coordinates; `MISSING` is null, and so is a string's `OTHER`."""
    missing = coordinates == MISSING
    if isinstance(attribute, Number):
        return pa.array(coordinates, mask=missing)
    if isinstance(attribute, Integer | Timestamp):
        whole = np.where(missing, 0, coordinates).astype(np.int64)
        kind = pa.int64() if isinstance(attribute, Integer) else pa.timestamp("us", "UTC")
        return pa.array(whole, mask=missing).cast(kind)
    kind = pa.bool_() if isinstance(attribute, Boolean) else pa.string()
    distinct, place = np.unique(coordinates, return_inverse=True)
    values = [None if c == MISSING else attribute.value(c) for c in distinct.tolist()]
    return pa.array(values, kind).take(pa.array(place))


def coordinate(attribute: Attribute, value: Any) -> float:
    """Return the coordinate of a value as a file gives it: texts are parsed."""
    return attribute.coordinate(_parsed(attribute, value))


def bounds(attribute: Attribute, lo: Any, hi: Any) -> Interval:
    """Return the range between two values as a file gives them; `None` is unbounded."""
    lo, hi = _parsed(attribute, lo), _parsed(attribute, hi)
    if lo is None and hi is None:
        return -math.inf, math.inf
    if isinstance(attribute, String) and lo != hi:
        raise ValueRefusedError(
            f"{attribute.name!r} is a string: its two ends must be the same text, "
            f"given: {lo!r} and {hi!r}"
        )
    low = attribute.domain[0] if lo is None else _end(attribute, lo, upper=False)
    high = attribute.domain[1] if hi is None else _end(attribute, hi, upper=True)
    clipped = attribute.clip(low, high)
    if clipped is None:
        raise ValueRefusedError(
            f"{attribute.name!r} can never hold: no value of its domain lies between "
            f"{lo if lo is not None else 'its least'} and {hi if hi is not None else 'its largest'}"
        )
    return clipped


def explain(attribute: Attribute, array: pa.Array, row: int) -> str:
    """Return why `encode` refuses a row."""
    try:
        coordinate(attribute, _scalar(array, row))
    except ValueRefusedError as error:
        return error.reason
    return f"{attribute.name!r} takes whole microseconds"  # all that a Python value can't show


def explain_bounds(
    attribute: Attribute, lo: pa.Array | None, hi: pa.Array | None, row: int
) -> tuple[str, str]:
    """Return which column `encode_bounds` blames for a refused row, and why."""
    ends = {"lo": None if lo is None else lo, "hi": None if hi is None else hi}
    values = {end: None if array is None else _scalar(array, row) for end, array in ends.items()}
    for end, value in values.items():
        try:
            parsed = _parsed(attribute, value)
            if parsed is not None:
                _end(attribute, parsed, upper=end == "hi")
        except ValueRefusedError as error:
            return f"{attribute.name}_{end}", error.reason
    blamed = "hi" if values["hi"] is not None else "lo"
    try:
        bounds(attribute, values["lo"], values["hi"])
    except ValueRefusedError as error:
        return f"{attribute.name}_{blamed}", error.reason
    raise AssertionError(f"{attribute!r}: {values} is refused by the column but not by the value")


def _plain(array: pa.Array) -> pa.Array:
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if pa.types.is_float16(array.type):
        array = array.cast(pa.float32())
    if _is_text(array.type):
        array = array.cast(pa.large_string())
    return array


def _is_text(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    )


def _without_nan(array: pa.Array) -> pa.Array:
    if pa.types.is_floating(array.type):
        return pc.if_else(pc.is_nan(array), None, array)
    if _is_text(array.type):
        return pc.if_else(pc.match_substring_regex(array, r"^\s*[+-]?(?i:nan)\s*$"), None, array)
    return array


def _is_number(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    )


def _nulls(attribute: Attribute, array: pa.Array) -> Bool:
    """Which rows have no value; an empty text is none, except where values are texts."""
    if pa.types.is_null(array.type):
        return np.ones(len(array), np.bool_)
    nulls = array.is_null()
    if _is_text(array.type) and isinstance(attribute, Number | Integer | Timestamp | Boolean):
        nulls = pc.or_(nulls, pc.fill_null(pc.equal(pc.utf8_trim_whitespace(array), ""), True))
    return np.asarray(nulls.to_numpy(zero_copy_only=False), dtype=np.bool_)


def _scalar(array: pa.Array, row: int) -> Any:
    try:
        return _plain(array)[row].as_py()
    except (ValueError, OverflowError):  # a moment that Python's datetime can't show
        return str(array[row])


def _parsed(attribute: Attribute, value: Any) -> Any:
    if not isinstance(value, str):
        return value
    plain = isinstance(attribute, Number | Integer | Timestamp | Boolean)
    if plain and not value.strip():
        return None
    return attribute.parse(value)


def _end(attribute: Attribute, value: Any, *, upper: bool) -> float:
    if attribute.ordered:
        return attribute.at_most(value) if upper else attribute.at_least(value)
    interval = attribute.equal(value)
    if interval is None:
        raise ValueRefusedError(f"{attribute.name!r} can never be {value!r}")
    return interval[upper]


def _by_value(array: pa.Array, convert: Callable[[Any], float]) -> tuple[F64, Bool]:
    """Convert each distinct value once; for texts, booleans and everything out of the ordinary."""
    try:
        encoded = array.dictionary_encode()
        values, places = encoded.dictionary, encoded.indices.fill_null(0)
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid):
        values, places = array, pa.array(np.arange(len(array)))
    found = np.full(max(len(values), 1), np.nan)
    for place in range(len(values)):
        try:
            value = _scalar(values, place)
            found[place] = np.nan if value is None else convert(value)
        except ValueRefusedError:
            pass
    coordinates = found[np.asarray(places.to_numpy(zero_copy_only=False), dtype=np.int64)]
    return coordinates, np.isnan(coordinates)


def _as_numpy(array: pa.Array) -> AnyArray:
    return np.asarray(array.fill_null(0).to_numpy(zero_copy_only=False))


def _cast(array: pa.Array, kind: pa.DataType) -> pa.Array | None:
    try:
        return array.cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None


def _doubles(array: pa.Array) -> F64 | None:
    """Return the nearest doubles of a column of numbers or texts, `None` if some aren't."""
    if pa.types.is_decimal(array.type):
        # Arrow's own cast divides by a power of ten and can miss the nearest double.
        array = array.cast(pa.string())
    elif not _is_number(array.type) and not _is_text(array.type):
        return None
    cast = _cast(array, pa.float64()) if not pa.types.is_integer(array.type) else array
    if cast is None:
        return None
    return np.asarray(_as_numpy(cast).astype(np.float64) + 0.0)  # -0.0 becomes 0.0


def _numbers(attribute: Number, array: pa.Array) -> tuple[F64, Bool]:
    doubles = _doubles(array)
    if doubles is None:
        return _by_value(array, lambda value: coordinate(attribute, value))
    return doubles, ~np.isfinite(doubles)


def _whole(array: pa.Array) -> I64 | None:
    """Return a column of integers as int64, `None` if it isn't one or some don't fit."""
    if _is_text(array.type) or pa.types.is_integer(array.type) or pa.types.is_decimal(array.type):
        cast = _cast(array, pa.int64())
        return None if cast is None else _as_numpy(cast).astype(np.int64)
    return None


def _carried(whole: I64) -> tuple[F64, Bool]:
    """Return integers as doubles, and which ones a double can't carry."""
    doubles = whole.astype(np.float64)
    if not len(whole) or (whole.min() >= -_EXACT and whole.max() <= _EXACT):
        return doubles, np.zeros(len(whole), np.bool_)
    fits = doubles < 2.0**63
    back = np.where(fits, doubles, 0.0).astype(np.int64)
    return doubles, ~fits | (back != whole)


def _integers(attribute: Integer, array: pa.Array) -> tuple[F64, Bool]:
    whole = _whole(array)
    if whole is not None:
        return _carried(whole)
    if pa.types.is_floating(array.type):
        doubles = _as_numpy(array).astype(np.float64) + 0.0
        with np.errstate(invalid="ignore"):
            fits = (doubles >= float(INT64_MIN)) & (doubles < 2.0**63)
            return doubles, ~(fits & (np.floor(doubles) == doubles))
    return _by_value(array, lambda value: coordinate(attribute, value))


def _micros(array: pa.Array) -> tuple[I64, I64] | None:
    """Return a column of moments in microseconds, rounded down and up; `None` if it isn't one."""
    if _is_text(array.type):
        moments = _cast(array, pa.timestamp("us", "UTC"))
        if moments is None:
            moments = _cast(array, pa.timestamp("us"))
    elif pa.types.is_date(array.type):
        moments = _cast(array, pa.timestamp("us"))
    else:
        moments = array if pa.types.is_timestamp(array.type) else None
    if moments is None:
        return None
    ticks = _as_numpy(moments.cast(pa.int64())).astype(np.int64)
    if moments.type.unit == "ns":
        down = ticks // 1000
        return down, down + (ticks % 1000 != 0)
    factor = _MICROS[moments.type.unit]
    if len(ticks) and max(abs(int(ticks.min())), abs(int(ticks.max()))) > INT64_MAX // factor:
        return None
    return ticks * factor, ticks * factor


def _timestamps(attribute: Timestamp, array: pa.Array) -> tuple[F64, Bool]:
    micros = _micros(array)
    if micros is None:
        return _by_value(array, lambda value: coordinate(attribute, value))
    down, up = micros
    coordinates, bad = _carried(down)
    return coordinates, bad | (down != up)


def _ends(attribute: Attribute, array: pa.Array, *, upper: bool) -> tuple[F64, Bool]:
    """Return the lower or upper ends of ranges, rounded inwards onto the attribute's grid."""
    if pa.types.is_null(array.type):
        return np.zeros(len(array)), np.zeros(len(array), np.bool_)
    whole: I64 | None = None
    if isinstance(attribute, Number):
        doubles = _doubles(array)
        if doubles is not None:
            return doubles, ~np.isfinite(doubles)
    elif isinstance(attribute, Integer):
        whole = _whole(array)
        if whole is None and pa.types.is_floating(array.type):
            doubles = _as_numpy(array).astype(np.float64)
            bad = ~np.isfinite(doubles)
            return (np.floor(doubles) if upper else np.ceil(doubles)) + 0.0, bad
    elif isinstance(attribute, Timestamp):
        micros = _micros(array)
        whole = None if micros is None else micros[not upper]
    if whole is not None:
        ends, inexact = _carried(whole)
        for place in np.flatnonzero(inexact).tolist():
            ends[place] = _end(_LINE, int(whole[place]), upper=upper)
        return ends, np.zeros(len(ends), np.bool_)
    return _by_value(array, lambda value: _end(attribute, _parsed(attribute, value), upper=upper))


_LINE = Integer("line")
"""The grid that integers and microseconds share."""
