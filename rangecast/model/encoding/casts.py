"""Casts of whole Arrow columns to doubles, integers and timestamps.

A cast returns `None` if it cannot handle every value of a column: a value has the wrong type, or
Arrow is more lenient than `attributes`. Nulls become 0.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rangecast.kernels.arrays import F64, I64, AnyArray, Bool
from rangecast.model.attributes.timestamps import (
    EPOCH_UNITS,
    FARTHEST_ZONE,
    FIRST_MOMENT,
    LAST_MOMENT,
    MICROSECOND,
)

_EXACT = 2**53
_LIKE_A_NUMBER = r"^[\s0-9.eE+-]*$"
_DAY = 86_400 * 10**6
_ZONE = FARTHEST_ZONE // MICROSECOND


def is_text(kind: pa.DataType) -> bool:
    """Return whether a type is a text type."""
    return bool(
        pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    )


def _is_number(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    )


def as_numpy(array: pa.Array) -> AnyArray:
    """Return a column as a NumPy array; nulls become 0."""
    return np.asarray(array.fill_null(0).to_numpy(zero_copy_only=False))


def _cast(array: pa.Array, kind: pa.DataType) -> pa.Array | None:
    try:
        return array.cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None


def doubles_of(array: pa.Array) -> F64 | None:
    """Return the nearest doubles of a column of numbers or texts; `None` if any is not a number."""
    if pa.types.is_decimal(array.type):
        # Arrow's own cast divides by a power of ten and can miss the nearest double.
        array = array.cast(pa.string())
    elif not _is_number(array.type) and not is_text(array.type):
        return None
    cast = _cast(array, pa.float64()) if not pa.types.is_integer(array.type) else array
    if cast is None:
        return None
    return np.asarray(as_numpy(cast).astype(np.float64) + 0.0)  # -0.0 becomes 0.0


def integers_of(array: pa.Array) -> I64 | None:
    """Return an integer column as int64; `None` if it has another type or a value overflows."""
    if is_text(array.type):
        array = None if _has_hexadecimal(array) else array
    elif not pa.types.is_integer(array.type) and not pa.types.is_decimal(array.type):
        return None
    cast = None if array is None else _cast(array, pa.int64())
    return None if cast is None else as_numpy(cast).astype(np.int64)


def _has_numbers(texts: pa.Array) -> bool:
    """Return whether any text may be a number."""
    return bool(pc.any(pc.match_substring_regex(texts, _LIKE_A_NUMBER)).as_py())


def _has_hexadecimal(texts: pa.Array) -> bool:
    """Return whether any text may be hexadecimal (`0x1F`), which only Arrow accepts."""
    _, offsets, data = texts.buffers()
    if data is None:
        return False
    ends = np.frombuffer(offsets, np.int64)[texts.offset : texts.offset + len(texts) + 1]
    data_ = data.slice(ends[0], ends[-1] - ends[0]).to_pybytes() if len(texts) else b""
    return b"x" in data_ or b"X" in data_


def as_doubles(whole: I64) -> tuple[F64, Bool]:
    """Return integers as doubles, and a mask of those that no double represents."""
    doubles = whole.astype(np.float64)
    if not len(whole) or (whole.min() >= -_EXACT and whole.max() <= _EXACT):
        return doubles, np.zeros(len(whole), np.bool_)
    fits = doubles < 2.0**63
    back = np.where(fits, doubles, 0.0).astype(np.int64)
    return doubles, ~fits | (back != whole)


class Moments(NamedTuple):
    """Column of timestamps in microseconds; `bad` marks those outside the calendar."""

    down: I64
    up: I64
    """Rounded up."""
    bad: Bool


def moments_of(array: pa.Array, epoch: str | None = None) -> Moments | None:
    """Return a column as timestamps; `None` if some values are not timestamps.

    epoch   unit of numbers since 1970; `None` means numbers are not timestamps
    """
    if epoch is not None and (_is_number(array.type) or is_text(array.type)):
        whole = _whole_numbers(array)
        if whole is not None:
            return _in_calendar(whole, EPOCH_UNITS[epoch])
        if not is_text(array.type) or _has_numbers(array):
            return None
    if is_text(array.type):
        return _moments_of_texts(array)
    if pa.types.is_date32(array.type):
        ticks, factor = array.cast(pa.int32()), _DAY
    elif pa.types.is_date64(array.type):
        ticks, factor = array.cast(pa.int64()), 1000
    elif pa.types.is_timestamp(array.type):
        ticks, factor = array.cast(pa.int64()), EPOCH_UNITS.get(array.type.unit, 0)
    else:
        return None
    whole = as_numpy(ticks).astype(np.int64)
    if not factor:  # nanoseconds
        down = whole // 1000
        return Moments(down, down + (whole % 1000 != 0), np.zeros(len(down), np.bool_))
    return _in_calendar(whole, factor)


def _in_calendar(ticks: I64, factor: int) -> Moments:
    bad = (ticks < -(-FIRST_MOMENT // factor)) | (ticks > LAST_MOMENT // factor)
    micros = np.where(bad, 0, ticks) * factor
    return Moments(micros, micros, bad)


def _whole_numbers(array: pa.Array) -> I64 | None:
    """Return a column of integers; `None` if some are not integers or exceed 64 bits."""
    if not pa.types.is_floating(array.type):
        return integers_of(array)
    doubles = as_numpy(array).astype(np.float64)
    fits = (np.abs(doubles) < 2.0**63) & (np.floor(doubles) == doubles)
    return doubles.astype(np.int64) if fits.all() else None


def _moments_of_texts(texts: pa.Array) -> Moments | None:
    moments = _cast(texts, pa.timestamp("us", "UTC"))
    if moments is None:
        moments = _cast(texts, pa.timestamp("us"))
    if moments is None:
        return None
    micros = as_numpy(moments.cast(pa.int64()))
    if (micros < FIRST_MOMENT + _ZONE).any() or (micros > LAST_MOMENT - _ZONE).any():
        return None  # Arrow knows a year 0
    return Moments(micros, micros, np.zeros(len(micros), np.bool_))
