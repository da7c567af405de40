"""Bitmasks: 64 comparisons at a time, and the positions of the set bits.

A byte that stands for a slab of an attribute is compared with 64 neighbouring bytes in one or two
instructions. The compiler doesn't generate these on its own, so they are written as LLVM vector
operations, which are portable: LLVM uses the widest registers of the machine.

Nothing here is bounds-checked: arrays of codes end with `PADDING` spare items, because the last
comparison reads on past the last code, and rows of lanes are made by `aligned_words`.
"""

# ruff: noqa: ARG001 - an intrinsic is given the types of all its arguments, needed or not

from __future__ import annotations

from typing import Any, NamedTuple, cast

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils

from rangecast.kernels.arrays import I32, I64, U64
from rangecast.kernels.bundle import address, intrinsic
from rangecast.kernels.jit import jit

ZERO = cast("int", np.int64(0))
"""Start value of a kernel's counters. With the constant 0, numba compiles the functions that the
kernel calls a second time.
"""
PADDING = 64
"""Spare items at the end of an array of codes, or of one to be packed."""
LANE_WORDS = 8
"""Words of a row of lanes: 64 bytes, one cache line."""
LANES = 64 * LANE_WORDS
QUAD = 4
"""Words that `narrow_quad` combines."""
_FEW_BITS = 6
"""Number of set bits up to which listing them one by one is faster than packing."""

BIT = ir.IntType(1)
BYTE = ir.IntType(8)
INDEX = ir.IntType(32)
WORD = ir.IntType(64)
_BYTES = ir.VectorType(BYTE, 64)
ROW = ir.VectorType(WORD, LANE_WORDS)
_QUAD = ir.VectorType(WORD, QUAD)
_ITEMS = ir.VectorType(ir.IntType(32), 16)
_ITEM_BITS = ir.VectorType(BIT, 16)
_DOUBLES = ir.VectorType(ir.DoubleType(), 8)


def aligned_words(rows: int) -> U64:
    """Return `rows` * LANE_WORDS words that begin at a cache line, so that no row straddles two."""
    room = np.empty((rows + 1) * LANE_WORDS, np.uint64)
    skip = (-room.ctypes.data // 8) % LANE_WORDS
    return room[skip : skip + rows * LANE_WORDS]


class Call(NamedTuple):
    """Context of an intrinsic while numba generates its code."""

    context: Any
    builder: Any
    signature: Any
    given: Any

    def place(self, which: int, index: Any, kind: Any) -> Any:
        """Return the address of an item of the pointer argument `which`, as a vector pointer."""
        count, pointer_kind = getattr(kind, "count", 1), self.signature.args[which]
        pointer = address(self.context, self.builder, pointer_kind, self.given[which], index, count)
        return self.builder.bitcast(pointer, kind.as_pointer())

    def load(self, which: int, index: Any, kind: Any) -> Any:
        """Return the vector that begins at an item of the argument `which`."""
        align = 1 if kind is _BYTES else 4 if kind is _ITEMS else 8
        return self.builder.load(self.place(which, index, kind), align=align)


def _in_eight_lanes(builder: Any, value: Any) -> Any:
    nothing = ir.Constant(_DOUBLES, ir.Undefined)
    first = builder.insert_element(nothing, value, ir.Constant(INDEX, 0))
    return builder.shuffle_vector(first, nothing, ir.Constant(ir.VectorType(INDEX, 8), [0] * 8))


def _in_all_lanes(builder: Any, value: Any) -> Any:
    nothing = ir.Constant(_BYTES, ir.Undefined)
    first = builder.insert_element(nothing, value, ir.Constant(INDEX, 0))
    zeros = ir.Constant(ir.VectorType(INDEX, 64), [0] * 64)
    return builder.shuffle_vector(first, nothing, zeros)


@intrinsic
def at_least(_typing: Any, codes: Any, begin: Any, value: Any) -> Any:
    """Return a mask: bit i is set if codes[begin + i] >= value."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        call = Call(context, builder, signature, arguments)
        loaded = call.load(0, arguments[1], _BYTES)
        above = builder.icmp_unsigned(">=", loaded, _in_all_lanes(builder, arguments[2]))
        return builder.bitcast(above, WORD)

    return types.uint64(codes, types.intp, types.uint8), generate


@intrinsic
def at_most(_typing: Any, codes: Any, begin: Any, value: Any) -> Any:
    """Return a mask: bit i is set if codes[begin + i] <= value."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        call = Call(context, builder, signature, arguments)
        loaded = call.load(0, arguments[1], _BYTES)
        below = builder.icmp_unsigned("<=", loaded, _in_all_lanes(builder, arguments[2]))
        return builder.bitcast(below, WORD)

    return types.uint64(codes, types.intp, types.uint8), generate


@intrinsic
def meeting(_typing: Any, codes: Any, lo: Any, hi: Any, above: Any, below: Any) -> Any:
    """Return a mask: bit i is set if codes[lo + i] <= above and below <= codes[hi + i]."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        call = Call(context, builder, signature, arguments)
        low = call.load(0, arguments[1], _BYTES)
        high = call.load(0, arguments[2], _BYTES)
        begun = builder.icmp_unsigned("<=", low, _in_all_lanes(builder, arguments[3]))
        going = builder.icmp_unsigned("<=", _in_all_lanes(builder, arguments[4]), high)
        return builder.bitcast(builder.and_(begun, going), WORD)

    return types.uint64(codes, types.intp, types.intp, types.uint8, types.uint8), generate


@intrinsic
def sharing(_typing: Any, codes: Any, lo: Any, hi: Any, above: Any, below: Any) -> Any:
    """Return a mask: bit i is set if codes[lo + i] is above or codes[hi + i] is below."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        call = Call(context, builder, signature, arguments)
        low = call.load(0, arguments[1], _BYTES)
        high = call.load(0, arguments[2], _BYTES)
        first = builder.icmp_unsigned("==", low, _in_all_lanes(builder, arguments[3]))
        last = builder.icmp_unsigned("==", _in_all_lanes(builder, arguments[4]), high)
        return builder.bitcast(builder.or_(first, last), WORD)

    return types.uint64(codes, types.intp, types.intp, types.uint8, types.uint8), generate


@intrinsic
def holding(_typing: Any, bounds: Any, lo: Any, hi: Any, above: Any, below: Any) -> Any:
    """Return a mask: bit i is set if bounds[lo + i] <= above and below <= bounds[hi + i]."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        call = Call(context, builder, signature, arguments)
        above, below = (_in_eight_lanes(builder, value) for value in arguments[3:])
        mask = ir.Constant(WORD, 0)
        for shift in range(0, 64, 8):
            step = ir.Constant(WORD, shift)
            low = call.load(0, builder.add(arguments[1], step), _DOUBLES)
            high = call.load(0, builder.add(arguments[2], step), _DOUBLES)
            begun = builder.fcmp_ordered("<=", low, above)
            going = builder.fcmp_ordered("<=", below, high)
            both = builder.bitcast(builder.and_(begun, going), BYTE)
            mask = builder.or_(mask, builder.shl(builder.zext(both, WORD), step))
        return mask

    return types.uint64(bounds, types.intp, types.intp, types.float64, types.float64), generate


@intrinsic
def narrow(_typing: Any, rows: Any, at: Any, table: Any, kept: Any, dropped: Any) -> Any:
    """Intersect the row at rows[at] with the row table[kept], minus the row table[dropped]."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        call = Call(context, builder, signature, arguments)
        pointer = call.place(0, arguments[1], ROW)
        keep = call.load(2, arguments[3], ROW)
        drop = call.load(2, arguments[4], ROW)
        left = builder.and_(builder.load(pointer, align=8), keep)
        builder.store(builder.and_(left, builder.not_(drop)), pointer, align=8)
        return context.get_dummy_value()

    return types.void(rows, types.intp, table, types.intp, types.intp), generate


@intrinsic
def narrow_quad(_typing: Any, words: Any, at: Any, source: Any, begin: Any) -> Any:
    """Intersect the QUAD words at words[at] with those at source[begin]."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        call = Call(context, builder, signature, arguments)
        pointer = call.place(0, arguments[1], _QUAD)
        both = builder.and_(builder.load(pointer, align=8), call.load(2, arguments[3], _QUAD))
        builder.store(both, pointer, align=8)
        return context.get_dummy_value()

    return types.void(words, types.intp, source, types.intp), generate


@intrinsic
def join_row(_typing: Any, rows: Any, at: Any, begin: Any) -> Any:
    """OR the row at rows[begin] into the row at rows[at]."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        call = Call(context, builder, signature, arguments)
        pointer = call.place(0, arguments[1], ROW)
        both = builder.or_(builder.load(pointer, align=8), call.load(0, arguments[2], ROW))
        builder.store(both, pointer, align=8)
        return context.get_dummy_value()

    return types.void(rows, types.intp, types.intp), generate


@intrinsic
def copy_row(_typing: Any, rows: Any, at: Any, source: Any, begin: Any) -> Any:
    """Copy the row at source[begin] to rows[at]."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        call = Call(context, builder, signature, arguments)
        row = call.load(2, arguments[3], ROW)
        builder.store(row, call.place(0, arguments[1], ROW), align=8)
        return context.get_dummy_value()

    return types.void(rows, types.intp, source, types.intp), generate


@intrinsic
def pack(_typing: Any, out: Any, at: Any, source: Any, begin: Any, mask: Any) -> Any:
    """Write the items of the 16 at source[begin] whose mask bit is set, contiguously.

    `out` needs room for 16, however many there are; the mask's other bits don't matter.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        call = Call(context, builder, signature, arguments)
        kind = ir.FunctionType(_ITEMS, [_ITEMS, _ITEM_BITS, _ITEMS])
        name = "llvm.experimental.vector.compress.v16i32"
        compress = cgutils.get_or_insert_function(builder.module, kind, name)
        items = call.load(2, arguments[3], _ITEMS)
        bits = builder.bitcast(builder.trunc(arguments[4], ir.IntType(16)), _ITEM_BITS)
        packed = builder.call(compress, [items, bits, ir.Constant(_ITEMS, ir.Undefined)])
        builder.store(packed, call.place(0, arguments[1], _ITEMS), align=4)
        return context.get_dummy_value()

    return types.void(out, types.intp, source, types.intp, types.uint64), generate


@intrinsic
def words_in_use(_typing: Any, rows: Any, at: Any) -> Any:
    """Return a mask: bit w is set if word w of the row at rows[at] has a bit set."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        call = Call(context, builder, signature, arguments)
        row = call.load(0, arguments[1], ROW)
        used = builder.icmp_unsigned("!=", row, ir.Constant(ROW, [0] * LANE_WORDS))
        return builder.zext(builder.bitcast(used, BYTE), WORD)

    return types.uint64(rows, types.intp), generate


@intrinsic
def prefetch(_typing: Any, items: Any, at: Any) -> Any:
    """Prefetch the cache line of items[at], of an array or a pointer; it may be out of bounds."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = signature.args[0]
        data = arguments[0]
        if not isinstance(kind, types.CPointer):  # it knows its length: nothing is read here
            data = cgutils.create_struct_proxy(kind)(context, builder, data).data
        pointer = builder.bitcast(builder.gep(data, [arguments[1]]), BYTE.as_pointer())
        numbers = [ir.IntType(32)] * 3
        function = ir.FunctionType(ir.VoidType(), [BYTE.as_pointer(), *numbers])
        call = cgutils.get_or_insert_function(builder.module, function, "llvm.prefetch.p0")
        read, keep, data_cache = (ir.Constant(ir.IntType(32), n) for n in (0, 3, 1))
        builder.call(call, [pointer, read, keep, data_cache])
        return context.get_dummy_value()

    return types.void(items, types.intp), generate


@intrinsic
def bits_set(_typing: Any, word: Any) -> Any:
    """Return the number of set bits of a word."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.ctpop(arguments[0])

    return types.intp(types.uint64), generate


@intrinsic
def lowest_bit(_typing: Any, word: Any) -> Any:
    """Return the position of the lowest set bit, 64 if there is none."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.Constant(BIT, 0))

    return types.intp(types.uint64), generate


@jit
def bits_up_to(count: int) -> np.uint64:
    """Return a word with the lowest `count` bits set."""
    if count >= 64:
        return np.uint64(0xFFFFFFFFFFFFFFFF)
    return (np.uint64(1) << np.uint64(max(count, 0))) - np.uint64(1)


@jit
def list_bits(word: np.uint64, first: int, out: I64, filled: int) -> int:
    """Append first + b for each set bit b of a word to a list; return the end of the list.

    Four at a time, so that most words take one turn: `out` needs room for four more.
    """
    end = filled + bits_set(word)
    bit = np.uint64(1)
    while filled < end:
        for ahead in range(4):
            out[filled + ahead] = first + lowest_bit(word)
            word &= word - bit
        filled += 4
    return int(end)


@jit
def pack_bits(word: np.uint64, source: I32, first: int, out: I32, filled: int) -> int:
    """Append source[first + b] for each set bit b of a word; `out` needs room for 64 more."""
    if bits_set(word) <= _FEW_BITS:
        while word:
            out[filled] = source[first + lowest_bit(word)]
            word &= word - np.uint64(1)
            filled += 1
        return filled
    for _ in range(4):
        pack(out, filled, source, first, word)
        filled += bits_set(word & np.uint64(0xFFFF))
        word >>= np.uint64(16)
        first += 16
    return filled
