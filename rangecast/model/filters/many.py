"""Batch parser of filters: reads the `plain` subset, mostly in compiled code.

A kernel splits texts into conditions: attribute, operator, literal. It computes the range itself if
the attribute is a number or an integer and the literal converts to a double by one multiplication
or division. Other literals (quoted texts, times, long numbers) are listed, and each distinct one is
looked up once, in order of first mention. Texts of any other form, invalid ones, and those that can
never match are left to `Filter.parse`. So are small batches, where compiling the kernel does not
pay off.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from rangecast.errors import FilterError, InvalidValueError
from rangecast.kernels.arrays import F64, I8, I64, U8, Bool
from rangecast.kernels.jit import is_compiled, jit
from rangecast.model.attributes.base import Attribute, Integer, Interval, Number
from rangecast.model.filters.filter import Filter, boxes_of
from rangecast.model.filters.lexer import KEYWORDS
from rangecast.model.filters.many_shapes import read_polygons
from rangecast.model.filters.plain import range_of
from rangecast.model.space import Space

_FEW, _WORTH_COMPILING = 100, 100_000
"""Texts that are parsed one by one; how many of them, in all, for the kernel to be compiled."""
_PLAIN, _DIGITS, _WORD = 1, 2, 3
"""A literal is a number, one of digits alone, or something to be looked up; 0: none of these."""
_OTHER, _NUMBER, _INTEGER = 0, 1, 2
_LESS, _AT_MOST, _GREATER, _AT_LEAST, _EQUAL = 1, 2, 3, 4, 5
_SIGNS = ["", "<", "<=", ">", ">=", "="]
_TRUE, _FALSE, _BETWEEN, _AND = (
    int.from_bytes(word) for word in (b"true", b"false", b"between", b"and")
)
_POWERS = 10.0 ** np.arange(23)
"""The powers of ten that doubles carry exactly."""
_SURE = 15
"""Any number with at most this many digits is a double."""


class _Names(NamedTuple):
    """Attribute names in the form that the kernel reads."""

    text: U8
    ends: I64
    kinds: I8
    lowest: F64
    highest: F64


@jit
def _continues_identifier(byte: int) -> bool:
    """Return whether a byte may continue an identifier; any non-ASCII byte may."""
    letter = (byte | 32) - 97
    return 0 <= letter < 26 or 48 <= byte < 58 or byte == 95 or byte >= 128


@jit
def _spaces(data: U8, at: int, end: int) -> int:
    while at < end and (data[at] == 32 or 9 <= data[at] <= 13):
        at += 1
    return at


@jit
def _keyword(data: U8, at: int, end: int, length: int, word: int) -> bool:
    """Return whether a keyword, encoded as a number, is at this offset, in any case."""
    stop = at + length
    if stop > end or (stop < end and _continues_identifier(data[stop])):
        return False
    packed = 0
    for i in range(at, stop):
        packed = (packed << 8) | (data[i] | 32)
    return packed == word


@jit
def _sign(data: U8, at: int, end: int) -> tuple[int, int]:
    """Return the end of a comparison operator and its code, or 0 if there is none."""
    if at == end or not 60 <= data[at] <= 62:
        return at, 0
    first = data[at]
    follows = data[at + 1] if at + 1 < end else 0
    if first == 61:
        return at + 1 + (follows == 61), _EQUAL
    if follows == 61:
        return at + 2, _AT_MOST if first == 60 else _AT_LEAST
    if first == 60 and follows == 62:
        return at, 0
    return at + 1, _LESS if first == 60 else _GREATER


@jit
def _literal(data: U8, at: int, end: int) -> tuple[int, int, float]:
    """Return the end of a literal, its kind, and its value if it is a number."""
    if at == end:
        return at, 0, 0.0
    first = data[at]
    if first == 34 or first == 39:
        at += 1
        while at < end and data[at] != first:
            at += 1
        if at == end or (at + 1 < end and data[at + 1] == first):
            return at, 0, 0.0
        return at + 1, _WORD, 0.0
    if _keyword(data, at, end, 4, _TRUE):
        return at + 4, _WORD, 0.0
    if _keyword(data, at, end, 5, _FALSE):
        return at + 5, _WORD, 0.0
    at += first == 43 or first == 45
    whole = at
    mantissa = digits = power = 0
    while at < end and 48 <= data[at] < 58:
        digits += digits > 0 or data[at] != 48
        mantissa = mantissa * 10 + (data[at] - 48) if digits <= _SURE else 0
        at += 1
    length, kind = at - whole, _DIGITS
    if at < end and data[at] == 46:
        kind = _PLAIN
        at += 1
        while at < end and 48 <= data[at] < 58:
            digits += digits > 0 or data[at] != 48
            mantissa = mantissa * 10 + (data[at] - 48) if digits <= _SURE else 0
            power -= 1
            length += 1
            at += 1
    if length == 0:
        return at, 0, 0.0
    if at < end and (data[at] | 32) == 101:
        kind = _PLAIN
        at += 1
        negative = at < end and data[at] == 45
        at += at < end and (data[at] == 43 or data[at] == 45)
        ten, from_here = 0, at
        while at < end and 48 <= data[at] < 58:
            ten = min(10 * ten + data[at] - 48, 1000)
            at += 1
        if at == from_here:
            return at, 0, 0.0
        power += -ten if negative else ten
    if at < end and (_continues_identifier(data[at]) or data[at] == 46):
        return at, 0, 0.0
    if digits > _SURE or abs(power) >= len(_POWERS):
        return at, _WORD, 0.0
    value = mantissa / _POWERS[-power] if power < 0 else mantissa * _POWERS[power]
    return at, kind, -value if first == 45 else value


@jit
def _name(data: U8, at: int, end: int, names: _Names) -> tuple[int, int]:
    """Return the end of a name and its attribute's index, or -1 if it is unknown."""
    start = at
    while at < end and _continues_identifier(data[at]):
        at += 1
    before = 0
    for axis in range(len(names.ends) if at > start else 0):
        length = names.ends[axis] - before
        if length == at - start:
            same = 0
            while same < length and data[start + same] == names.text[before + same]:
                same += 1
            if same == length:
                return at, axis
        before = names.ends[axis]
    return at, -1


@jit
def _range(kind: int, sign: int, value: float) -> tuple[float, float]:
    """Return the range of a numeric comparison, before clipping to the domain."""
    lo, hi = -np.inf, np.inf
    if sign in (_EQUAL, _AT_LEAST):
        lo = value
    if sign in (_EQUAL, _AT_MOST):
        hi = value
    if sign == _GREATER:
        lo = value + 1.0 if kind == _INTEGER else np.nextafter(value, np.inf)
    if sign == _LESS:
        hi = value - 1.0 if kind == _INTEGER else np.nextafter(value, -np.inf)
    return lo + 0.0, hi + 0.0


@jit
def _cut(
    data: U8, ends: I64, row: int, names: _Names, lo: F64, hi: F64, good: Bool, listed: I64
) -> tuple[int, int]:
    """Compute the box of every text from `row` on, or mark the text for the parser (not `good`).

    listed   conditions whose literals need their attribute to be read, such as words and dates:
             row, axis, operator, start and end of the literal

    It stops when the list may be too short for the next text. Returns the next row, and the length
    of the list.
    """
    filled = 0
    literals = np.zeros((3, 2), np.int64)  # start and end; the first stands before its name
    kinds, signs, values = np.zeros(3, np.int64), np.zeros(3, np.int64), np.zeros(3)
    while row < len(good):
        at, end = ends[row], ends[row + 1]
        if filled + (end - at) // 2 > len(listed) and filled:
            break
        begun, is_good, goes_on = filled, good[row], True
        while is_good and goes_on:
            is_good = goes_on = False
            signs[:] = 0
            at = _spaces(data, at, end)
            stop, kinds[0], values[0] = _literal(data, at, end)
            if kinds[0] != 0:
                literals[0, 0], literals[0, 1] = at, stop
                at, turned = _sign(data, _spaces(data, stop, end), end)
                if turned == 0 or turned == _EQUAL:
                    break
                signs[0] = turned + 2 if turned <= _AT_MOST else turned - 2
                at = _spaces(data, at, end)
            if at == end or 48 <= data[at] < 58:
                break
            at, axis = _name(data, at, end, names)
            if axis < 0:
                break
            at, signs[1] = _sign(data, _spaces(data, at, end), end)
            if signs[1] != 0:
                # What stands before the name was turned around: both must be of one direction.
                alike = (signs[0] <= _AT_MOST) != (signs[1] <= _AT_MOST)
                if signs[0] != 0 and (signs[1] == _EQUAL or not alike):
                    break
                at = _spaces(data, at, end)
                stop, kinds[1], values[1] = _literal(data, at, end)
                literals[1, 0], literals[1, 1] = at, stop
                at = stop
            elif signs[0] == 0:
                if not _keyword(data, at, end, 7, _BETWEEN):
                    break
                signs[1], signs[2] = _AT_LEAST, _AT_MOST
                at = _spaces(data, at + 7, end)
                stop, kinds[1], values[1] = _literal(data, at, end)
                literals[1, 0], literals[1, 1] = at, stop
                at = _spaces(data, stop, end)
                if kinds[1] == 0 or not _keyword(data, at, end, 3, _AND):
                    break
                at = _spaces(data, at + 3, end)
                stop, kinds[2], values[2] = _literal(data, at, end)
                literals[2, 0], literals[2, 1] = at, stop
                at = stop
            is_good = True
            attribute = names.kinds[axis]
            for i in range(3):
                if signs[i] == 0:
                    continue
                if kinds[i] == 0:
                    is_good = False
                elif (attribute == _NUMBER and kinds[i] != _WORD) or (
                    attribute == _INTEGER and kinds[i] == _DIGITS
                ):
                    low, high = _range(attribute, signs[i], values[i])
                    lo[row, axis] = max(lo[row, axis], low, names.lowest[axis])
                    hi[row, axis] = min(hi[row, axis], high, names.highest[axis])
                    is_good = is_good and lo[row, axis] <= hi[row, axis]
                elif filled < len(listed):
                    item = listed[filled]
                    item[0], item[1], item[2] = row, axis, signs[i]
                    item[3], item[4] = literals[i, 0], literals[i, 1]
                    filled += 1
                else:
                    is_good = False  # a single text of very many: the parser takes it
            at = _spaces(data, at, end)
            if _keyword(data, at, end, 3, _AND):
                at, goes_on = at + 3, True
            elif at < end:
                is_good = False
        good[row] = is_good
        if not is_good:
            filled = begun
        row += 1
    return row, filled


Parse = Callable[[int, str], Filter]
"""Returns the filter of a text, which has this place among the others."""


def boxes_of_texts(
    texts: pa.Array | Sequence[Any],
    space: Space,
    reject: Callable[[int, FilterError], None],
    parse: Parse | None = None,
) -> tuple[F64, F64, I64]:
    """Return the boxes of texts: `lo` and `hi`, (boxes, d), and the number of boxes per good text.

    reject   called for each unusable text with its index and the reason; the text is left out
    parse    replacement for parsing a single text
    """
    count, parse = len(texts), parse or (lambda _, text: Filter.parse(text, space))
    lo, hi, good, several = (
        read_texts(texts, space) if _is_kernel_worthwhile(count) else _none(count, space)
    )
    sizes = good.astype(np.int64)
    parsed: list[Filter] = []
    for index in np.flatnonzero(~good).tolist():
        if index in several:
            parsed.append(several[index])
            sizes[index] = len(parsed[-1].boxes)
            continue
        text = texts[index]
        try:
            text = text.as_py() if isinstance(text, pa.Scalar) else text
            if not isinstance(text, str):
                raise FilterError("a filter must be a string", "write true to match every event")
            parsed.append(parse(index, text))
            sizes[index] = len(parsed[-1].boxes)
        except FilterError as error:
            reject(index, error)
    if not parsed:
        return lo[good], hi[good], sizes[good]
    is_read = np.repeat(good, sizes)
    all_lo, all_hi = np.empty((2, len(is_read), len(space)))
    all_lo[is_read], all_hi[is_read] = lo[good], hi[good]
    all_lo[~is_read], all_hi[~is_read], _ = boxes_of(space, parsed)
    return all_lo, all_hi, sizes[sizes > 0]


class _Parsed:
    """Counter of the texts that this process has parsed one by one."""

    count = 0


def _is_kernel_worthwhile(count: int) -> bool:
    """Return whether to use the kernel, which may have to be compiled first."""
    if count > _FEW and is_compiled(_cut):
        return True
    _Parsed.count += count
    return _Parsed.count >= _WORTH_COMPILING


Texts = tuple[F64, F64, Bool, dict[int, Filter]]
"""The box of each text, (texts, d), and for which it counts; the filters of some others."""


def _none(count: int, space: Space) -> Texts:
    """Return the result of `read_texts` if no text could be read."""
    bounds = np.empty((count, len(space)))
    return bounds, bounds, np.zeros(count, bool), {}


def read_texts(texts: pa.Array | Sequence[Any], space: Space) -> Texts:
    """Read the texts of the supported form as boxes.

    The others have several boxes, are invalid, or have an unsupported form.
    """
    try:
        array = texts if isinstance(texts, pa.Array) else pa.array(texts, pa.large_string())
        array = pa.concat_arrays([array.cast(pa.large_string())])  # its offsets begin at 0
    except (pa.ArrowException, UnicodeError, TypeError):
        return _none(len(texts), space)
    count, (_, offsets, data) = len(array), array.buffers()
    if not count or data is None:
        return _none(count, space)
    ends = np.frombuffer(offsets, np.int64)[array.offset : array.offset + count + 1]
    text = np.frombuffer(data, np.uint8)
    lo, hi = np.full((count, len(space)), -np.inf), np.full((count, len(space)), np.inf)
    good = np.asarray(array.is_valid())
    ranges: dict[tuple[int, int, bytes], Interval | None] = {}
    raw, names = data.to_pybytes(), _names(space)
    listed = np.empty((max(4 * count, 1024), 5), np.int64)
    row = 0
    while row < count:
        row, filled = _cut(text, ends, row, names, lo, hi, good, listed)
        _look_up(space, listed[:filled], raw, ranges, lo, hi, good)
    return lo, hi, good, read_polygons(text, ends, raw, space, lo, hi, good)


def _names(space: Space) -> _Names:
    names = [
        attribute.name.encode()
        if attribute.name.isascii() and attribute.name.lower() not in KEYWORDS
        else b""
        for attribute in space
    ]
    kinds: dict[type[Attribute], int] = {Number: _NUMBER, Integer: _INTEGER}
    return _Names(
        np.frombuffer(b"".join(names) or b" ", np.uint8),
        np.cumsum([len(name) for name in names]).astype(np.int64),
        np.array([kinds.get(type(attribute), _OTHER) for attribute in space], np.int8),
        np.array([attribute.domain[0] for attribute in space]),
        np.array([attribute.domain[1] for attribute in space]),
    )


def _look_up(
    space: Space,
    listed: I64,
    raw: bytes,
    ranges: dict[tuple[int, int, bytes], Interval | None],
    lo: F64,
    hi: F64,
    good: Bool,
) -> None:
    """Narrow boxes by the listed conditions; each distinct literal is looked up once."""
    intervals: list[Interval] = []
    failed = -1
    for row, axis, sign, start, end in listed.tolist():
        key = axis, sign, raw[start:end]
        if row != failed and key not in ranges:
            ranges[key] = _range_or_none(space, key)
        range_ = None if row == failed else ranges[key]
        if range_ is None:  # no later word of it gets a number
            failed, range_ = row, (np.inf, -np.inf)
        intervals.append(range_)
    if not intervals:
        return
    lows, highs = np.array(intervals).T
    places = listed[:, 0], listed[:, 1]
    np.maximum.at(lo, places, lows)
    np.minimum.at(hi, places, highs)
    good[listed[lo[places] > hi[places], 0]] = False


def _range_or_none(space: Space, key: tuple[int, int, bytes]) -> Interval | None:
    axis, sign, literal = key
    try:
        return range_of(space.attributes[axis], _SIGNS[sign], literal.decode())
    except (InvalidValueError, ValueError):
        return None
