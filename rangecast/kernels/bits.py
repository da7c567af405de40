"""Sets as machine words: 64 comparisons at a time, and the bits of the answer one by one.

A byte that stands for a slab of an attribute is compared with 64 neighbouring bytes in one or two
instructions. The compiler doesn't find these by itself, so they are spelled out for it in LLVM's
own terms, which are the same on every machine: it uses the widest registers that there are.

Nothing here is bounds-checked: arrays of codes end with `PADDING` spare bytes, because the last
comparison reads on past the last code, and tables are made by `aligned_words`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

Words = npt.NDArray[np.uint64]

PADDING = 64
"""Spare bytes at the end of an array of codes."""
LANE_WORDS = 8
"""Words of a row of lanes: 64 bytes, one cache line."""
LANES = 64 * LANE_WORDS

_BIT = ir.IntType(1)
_BYTE = ir.IntType(8)
_INDEX = ir.IntType(32)
_WORD = ir.IntType(64)
_BYTES = ir.VectorType(_BYTE, 64)
_ROW = ir.VectorType(_WORD, LANE_WORDS)


def aligned_words(rows: int) -> Words:
    """Return `rows` * LANE_WORDS words that begin at a cache line, so that no row straddles two."""
    room = np.empty((rows + 1) * LANE_WORDS, np.uint64)
    skip = (-room.ctypes.data // 8) % LANE_WORDS
    return room[skip : skip + rows * LANE_WORDS]


@intrinsic
def pointer(_typing: Any, array: Any) -> Any:
    """Return where the items of an array begin, to be indexed like the array itself.

    numba counts the references to an array each time it is handed on, with an atomic instruction
    that can cost more than a whole inner loop. A pointer is just a number; the kernel's caller
    holds the array meanwhile.
    """

    def generate(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        return context.make_array(signature.args[0])(context, builder, given[0]).data

    return types.CPointer(array.dtype)(array), generate


@intrinsic
def offset(_typing: Any, array: Any, index: Any) -> Any:
    """Return a pointer to one item of an array, and so to those after it."""

    def generate(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, given[0]).data
        return builder.gep(data, [given[1]])

    return types.CPointer(array.dtype)(array, types.intp), generate


def _place(builder: Any, begin: Any, index: Any, vector: Any) -> Any:
    return builder.bitcast(builder.gep(begin, [index]), vector.as_pointer())


def _load(builder: Any, begin: Any, index: Any, vector: Any) -> Any:
    return builder.load(_place(builder, begin, index, vector), align=vector.element.width // 8)


def _in_all_lanes(builder: Any, value: Any) -> Any:
    nothing = ir.Constant(_BYTES, ir.Undefined)
    first = builder.insert_element(nothing, value, ir.Constant(_INDEX, 0))
    zeros = ir.Constant(ir.VectorType(_INDEX, 64), [0] * 64)
    return builder.shuffle_vector(first, nothing, zeros)


@intrinsic
def within(_typing: Any, codes: Any, lo: Any, hi: Any, value: Any) -> Any:
    """Bit i says whether codes[lo + i] <= value <= codes[hi + i], for 64 of them."""

    def generate(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        low = _load(builder, given[0], given[1], _BYTES)
        high = _load(builder, given[0], given[2], _BYTES)
        wanted = _in_all_lanes(builder, given[3])
        above = builder.icmp_unsigned("<=", low, wanted)
        below = builder.icmp_unsigned("<=", wanted, high)
        return builder.bitcast(builder.and_(above, below), _WORD)

    return types.uint64(codes, types.intp, types.intp, types.uint8), generate


@intrinsic
def touching(_typing: Any, codes: Any, lo: Any, hi: Any, value: Any) -> Any:
    """Bit i says whether value is codes[lo + i] or codes[hi + i], for 64 of them."""

    def generate(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        low = _load(builder, given[0], given[1], _BYTES)
        high = _load(builder, given[0], given[2], _BYTES)
        wanted = _in_all_lanes(builder, given[3])
        first = builder.icmp_unsigned("==", low, wanted)
        last = builder.icmp_unsigned("==", wanted, high)
        return builder.bitcast(builder.or_(first, last), _WORD)

    return types.uint64(codes, types.intp, types.intp, types.uint8), generate


@intrinsic
def narrow(_typing: Any, rows: Any, at: Any, table: Any, kept: Any, dropped: Any) -> Any:
    """Keep of the row at rows[at] what is in the row table[kept] and not in table[dropped]."""

    def generate(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        place = _place(builder, given[0], given[1], _ROW)
        keep = _load(builder, given[2], given[3], _ROW)
        drop = _load(builder, given[2], given[4], _ROW)
        left = builder.and_(builder.load(place, align=8), keep)
        builder.store(builder.and_(left, builder.not_(drop)), place, align=8)
        return context.get_dummy_value()

    return types.void(rows, types.intp, table, types.intp, types.intp), generate


@intrinsic
def copy_row(_typing: Any, rows: Any, at: Any, source: Any, begin: Any) -> Any:
    """Copy the row at source[begin] to rows[at]."""

    def generate(context: Any, builder: Any, _signature: Any, given: Any) -> Any:
        row = _load(builder, given[2], given[3], _ROW)
        builder.store(row, _place(builder, given[0], given[1], _ROW), align=8)
        return context.get_dummy_value()

    return types.void(rows, types.intp, source, types.intp), generate


@intrinsic
def words_in_use(_typing: Any, rows: Any, at: Any) -> Any:
    """Bit w says whether word w of the row at rows[at] has a bit set."""

    def generate(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        row = _load(builder, given[0], given[1], _ROW)
        used = builder.icmp_unsigned("!=", row, ir.Constant(_ROW, [0] * LANE_WORDS))
        return builder.zext(builder.bitcast(used, _BYTE), _WORD)

    return types.uint64(rows, types.intp), generate


@intrinsic
def bits_set(_typing: Any, word: Any) -> Any:
    """Return the number of bits of a word that are set."""

    def generate(_context: Any, builder: Any, _signature: Any, given: Any) -> Any:
        return builder.ctpop(given[0])

    return types.intp(types.uint64), generate


@intrinsic
def lowest_bit(_typing: Any, word: Any) -> Any:
    """Return the place of the lowest bit set, 64 if there is none."""

    def generate(_context: Any, builder: Any, _signature: Any, given: Any) -> Any:
        return builder.cttz(given[0], ir.Constant(_BIT, 0))

    return types.intp(types.uint64), generate
