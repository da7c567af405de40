"""Batch parser of polygons, `within(NAME, 'POLYGON ((...))')`, in compiled code.

A kernel reads the corners of each text, validates the ring and computes its bounds. It accepts only
simple rings: closed, without repeated corners or crossings, within one turn of longitudes, with
numbers of at most 18 digits. Any other text is left to the parser, which raises the errors. Numbers
are rounded correctly: as a quotient or product of two doubles with its remainder, or by the parser
if that does not determine the rounding.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rangecast.kernels.arrays import F64, I64, U8, Bool
from rangecast.kernels.jit import jit
from rangecast.model.attributes.places import Location, Place
from rangecast.model.filters.lexer import name_text
from rangecast.model.shapes.cover import has_one_box
from rangecast.model.shapes.exact.rings import crossing, meet

_DIGITS = 18
"""Digits of a number that is read here: they fit into 64 bits."""
_POWERS = 10.0 ** np.arange(23)
"""The powers of ten that doubles carry exactly."""
_SPLIT = 134217729.0  # 2**27 + 1
_DOUBT = 2.0**-48
"""Relative error of a remainder, with room to spare."""
_PAIRWISE = 64
"""Corners up to which edges are compared in pairs, without sorting them."""
_PIECE = 4096
"""Texts that are read at a time."""
_WITHIN, _POLYGON = (np.frombuffer(word, np.uint8) for word in (b"within", b"polygon"))


class Rings(NamedTuple):
    """Corners of many polygons with one ring each."""

    xs: F64
    ys: F64
    first: I64
    """(rings + 1,) where the corners of each begin."""

    def corners(self, ring: int) -> F64:
        """Return the corners of a ring, (n, 2)."""
        own = slice(self.first[ring], self.first[ring + 1])
        made: F64 = np.column_stack([self.xs[own], self.ys[own]])
        made.flags.writeable = False
        return made


class RingsRead(NamedTuple):
    """Rings that a kernel has read from texts."""

    rings: Rings
    rows: I64
    """(rings,) the text of each ring."""
    spans: I64
    """(rings, 2) where its WKT begins and ends."""
    is_canonical: Bool
    """(rings,) whether the text is written as filters are printed."""
    bounds: F64
    """(rings, 4) x0, y0, x1, y1."""
    is_small: Bool
    """(rings,) whether its bounds are its one box."""


@jit
def _spaces(data: U8, at: int, end: int) -> int:
    while at < end and (data[at] == 32 or 9 <= data[at] <= 13):
        at += 1
    return at


@jit
def _word(data: U8, at: int, end: int, word: U8) -> int:
    """Match a lower-case word at an offset, in any case; return its end, or -1."""
    if at + len(word) > end:
        return -1
    for i in range(len(word)):
        if data[at + i] | 32 != word[i]:
            return -1
    return at + len(word)


@jit
def _match_literal(data: U8, at: int, end: int, name: U8) -> int:
    """Match a text at an offset exactly; return its end, or -1."""
    if at + len(name) > end:
        return -1
    for i in range(len(name)):
        if data[at + i] != name[i]:
            return -1
    return at + len(name)


@jit
def _mark(data: U8, at: int, end: int, mark: int) -> int:
    """Skip spaces and match a punctuation mark; return its end, or -1."""
    at = _spaces(data, at, end)
    return at + 1 if at < end and data[at] == mark else -1


@jit
def _remainder(product: float, a: float, b: float) -> float:
    """Return the rounding error of the product of two doubles."""
    c = _SPLIT * a
    a_high = c - (c - a)
    a_low = a - a_high
    c = _SPLIT * b
    b_high = c - (c - b)
    b_low = b - b_high
    return a_low * b_low - (((product - a_high * b_high) - a_low * b_high) - a_high * b_low)


@jit
def decimal(mantissa: int, power: int) -> float:
    """Return the double nearest to mantissa * 10 ** power; NaN if the rounding is uncertain.

    The mantissa has at most 18 digits, and the power is between -22 and 22.
    """
    high = float(mantissa)
    if power == 0:
        return high
    low = float(mantissa - int(high))
    scale = _POWERS[abs(power)]
    if power < 0:
        value = high / scale
        product = value * scale
        rest = (((high - product) - _remainder(product, value, scale)) + low) / scale
    else:
        value = high * scale
        rest = _remainder(value, high, scale) + low * scale
    rounded = value + rest * (1.0 - _DOUBT)
    return rounded if rounded == value + rest * (1.0 + _DOUBT) else np.nan


@jit
def _digits(data: U8, at: int, end: int, value: int, last: int) -> tuple[int, int]:
    """Read digits up to `last`; return their end, and the value with them appended.

    A value of more than 64 bits overflows: the caller checks the number of digits.
    """
    while at < end and 48 <= data[at] <= last:
        value = 10 * value + (data[at] - 48)
        at += 1
    return at, value


@jit
def _number(data: U8, at: int, end: int) -> tuple[int, float]:
    """Return the end of a number and its value, or NaN if it is unsupported."""
    is_negative = at < end and data[at] == 45
    at += at < end and (data[at] == 43 or data[at] == 45)
    begun = at
    at, _ = _digits(data, at, end, 0, 48)  # zeros that lead
    first = at
    at, mantissa = _digits(data, at, end, 0, 57)
    digits, length, power = at - first, at - begun, 0
    if at < end and data[at] == 46:
        begun = at + 1
        at = begun
        if digits == 0:
            at, _ = _digits(data, at, end, 0, 48)
        first = at
        at, mantissa = _digits(data, at, end, mantissa, 57)
        digits, length, power = digits + at - first, length + at - begun, begun - at
    if at < end and (data[at] | 32) == 101:
        at += 1
        down = at < end and data[at] == 45
        at += at < end and (data[at] == 43 or data[at] == 45)
        ten = 0
        start = at
        while at < end and 48 <= data[at] < 58:
            ten = min(10 * ten + data[at] - 48, 1000)
            at += 1
        if at == start:
            return at, np.nan
        power += -ten if down else ten
    if length == 0 or digits > _DIGITS or (mantissa and abs(power) >= len(_POWERS)):
        return at, np.nan
    value = decimal(mantissa, power) if mantissa else 0.0
    return at, -value + 0.0 if is_negative else value


@jit
def _is_plain_space(data: U8, first: int, last: int) -> bool:
    """Return whether a text has only single blanks as whitespace, and none at its ends."""
    if first == last or data[first] == 32 or data[last - 1] == 32:
        return False
    for i in range(first, last):
        if 9 <= data[i] <= 13 or data[i] >= 128 or (data[i] == 32 and data[i + 1] == 32):
            return False
    return True


@jit
def _corners(data: U8, at: int, end: int, xs: F64, ys: F64, filled: int) -> tuple[int, int]:
    """Read the corners of a ring; return its end (-1 if unreadable) and the filled length."""
    while True:
        at = _spaces(data, at, end)
        at, x = _number(data, at, end)
        if not (at < end and (data[at] == 32 or 9 <= data[at] <= 13)):
            return -1, filled
        at, y = _number(data, _spaces(data, at, end), end)
        if np.isnan(x) or np.isnan(y):
            return -1, filled
        xs[filled], ys[filled] = x, y
        filled += 1
        at = _spaces(data, at, end)
        if at == end or (data[at] != 44 and data[at] != 41):
            return -1, filled
        at += 1
        if data[at - 1] == 41:
            return at, filled


@jit
def _is_simple(xs: F64, ys: F64, first: int, last: int, is_earth: bool) -> bool:
    """Return whether a ring needs no normalization and its edges do not cross."""
    count = last - first
    if count < 4 or xs[first] != xs[last - 1] or ys[first] != ys[last - 1]:
        return False
    for i in range(first, last - 1):
        if xs[i] == xs[i + 1] and ys[i] == ys[i + 1]:
            return False
        if is_earth and (abs(xs[i]) > 180.0 or abs(ys[i]) > 90.0):
            return False
        if is_earth and abs(xs[i + 1] - xs[i]) > 180.0:
            return False
    if count > _PAIRWISE:
        ends = np.full(1, count)
        return crossing(xs[first:last].copy(), ys[first:last].copy(), ends)[0] < 0
    low_x, high_x, low_y, high_y = np.empty((4, _PAIRWISE))
    for i in range(count - 1):
        low_x[i], high_x[i] = (
            min(xs[first + i], xs[first + i + 1]),
            max(xs[first + i], xs[first + i + 1]),
        )
        low_y[i], high_y[i] = (
            min(ys[first + i], ys[first + i + 1]),
            max(ys[first + i], ys[first + i + 1]),
        )
    for i in range(count - 1):
        x0, x1, y0, y1 = low_x[i], high_x[i], low_y[i], high_y[i]
        near = 0
        for j in range(i + 1, count - 1):  # without branches
            apart = (high_x[j] < x0) | (low_x[j] > x1) | (high_y[j] < y0) | (low_y[j] > y1)
            near += not apart
        a = first + i
        for b in range(a + 1, last - 1):
            if near == 0:
                break
            j = b - first
            if (high_x[j] < x0) | (low_x[j] > x1) | (high_y[j] < y0) | (low_y[j] > y1):
                continue
            near -= 1
            follows = (xs[a + 1] == xs[b] and ys[a + 1] == ys[b]) or (
                xs[b + 1] == xs[a] and ys[b + 1] == ys[a]
            )
            if meet(xs, ys, a, b, follows):
                return False
    return True


@jit
def _read(
    data: U8,
    ends: I64,
    rows: I64,
    name: U8,
    prefix: U8,
    is_earth: bool,
    xs: F64,
    ys: F64,
    first: I64,
    rings: I64,
    spans: I64,
    is_canonical: Bool,
    bounds: F64,
    is_small: Bool,
) -> int:
    """Read the polygons of some texts; return their number."""
    count = filled = 0
    for row in rows:
        at, end = ends[row], ends[row + 1]
        begun = at
        at = _word(data, _spaces(data, at, end), end, _WITHIN)
        at = -1 if at < 0 else _mark(data, at, end, 40)
        at = -1 if at < 0 else _match_literal(data, _spaces(data, at, end), end, name)
        at = -1 if at < 0 else _mark(data, at, end, 44)
        at = -1 if at < 0 else _spaces(data, at, end)
        if at < 0 or at == end or (data[at] != 39 and data[at] != 34):
            continue
        quote = data[at]
        wkt = at + 1
        at = _word(data, _spaces(data, wkt, end), end, _POLYGON)
        at = -1 if at < 0 else _mark(data, at, end, 40)
        at = -1 if at < 0 else _mark(data, at, end, 40)
        if at < 0:
            continue
        at, last = _corners(data, at, end, xs, ys, filled)
        at = -1 if at < 0 else _mark(data, at, end, 41)
        wkt_end = -1 if at < 0 else _mark(data, at, end, quote) - 1
        at = -1 if wkt_end < 0 else _mark(data, wkt_end + 1, end, 41)
        if at < 0 or _spaces(data, at, end) < end:
            continue
        if not _is_simple(xs, ys, filled, last, is_earth):
            continue
        x0 = x1 = xs[filled]
        y0 = y1 = ys[filled]
        for i in range(filled, last):
            x0, x1 = min(x0, xs[i]), max(x1, xs[i])
            y0, y1 = min(y0, ys[i]), max(y1, ys[i])
        if is_earth and (x0 <= -180.0 or x1 >= 180.0):  # it touches the antimeridian
            continue
        rings[count], spans[count, 0], spans[count, 1] = row, wkt, wkt_end
        is_canonical[count] = (
            _match_literal(data, begun, end, prefix) == wkt
            and wkt_end + 2 == end
            and _is_plain_space(data, wkt, wkt_end)
        )
        bounds[count, 0], bounds[count, 1], bounds[count, 2], bounds[count, 3] = x0, y0, x1, y1
        is_small[count] = has_one_box(xs, ys, filled, last, x0, y0, x1, y1)
        filled = last
        count += 1
        first[count] = filled
    return count


def read_rings(data: U8, ends: I64, rows: I64, place: Place) -> list[RingsRead]:
    """Return the rings of texts that consist of a single polygon on a place.

    data, ends   bytes of all texts, with the start of each and the end of the last
    rows         texts to read
    """
    if isinstance(place, Location) and place.edges == "geodesic":
        return []
    name = name_text(place.name)
    prefix = np.frombuffer(f"within({name}, '".encode(), np.uint8)
    made = []
    for start in range(0, len(rows), _PIECE):
        piece = rows[start : start + _PIECE]
        room = int((ends[piece + 1] - ends[piece]).sum()) // 4 + 1
        xs, ys = np.empty(room), np.empty(room)
        first, kinds = np.zeros(len(piece) + 1, np.int64), np.empty(len(piece), np.int64)
        spans, bounds = np.empty((len(piece), 2), np.int64), np.empty((len(piece), 4))
        is_canonical, is_small = np.empty(len(piece), np.bool_), np.empty(len(piece), np.bool_)
        texts = data, ends, piece, np.frombuffer(name.encode(), np.uint8), prefix
        seen = first, kinds, spans
        count = _read(*texts, place.earth, xs, ys, *seen, is_canonical, bounds, is_small)
        if not count:
            continue
        filled = first[count]
        rings = Rings(xs[:filled].copy(), ys[:filled].copy(), first[: count + 1])
        chosen = kinds[:count], spans[:count]
        made.append(
            RingsRead(rings, *chosen, is_canonical[:count], bounds[:count], is_small[:count])
        )
    return made
