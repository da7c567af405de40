"""Events as bitmaps, LANES at a time: which of them lie in a box, in a few instructions.

Bit e of row c of attribute j's table says that event e has code c or above. The events that may lie
in a box are then the AND, over its attributes, of one row and not another: eight words for LANES
events.
"""

# ruff: noqa: ARG001 - an intrinsic is given the types of all its arguments, needed or not

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils

from rangecast.kernels.arrays import I64, U8, U64
from rangecast.kernels.bits import (
    BIT,
    BYTE,
    INDEX,
    LANE_WORDS,
    LANES,
    ROW,
    WORD,
    Call,
    join_row,
)
from rangecast.kernels.blocks import BLOCK
from rangecast.kernels.bundle import intrinsic, pointer
from rangecast.kernels.jit import jit

TABLE_ROWS = 257
"""Rows of an attribute's table: one per code, and one that is empty."""
SLOT_BYTES = 2 * BLOCK
"""Bytes of an attribute in a block of boxes: the codes of 64 lower bounds, then of 64 upper bounds.
"""

# Arguments of `list_lanes` that are pointers.
_ABOVE, _BELOW, _CODES, _ATTRIBUTES, _LANES, _MASKS, _KEYS = 0, 1, 2, 3, 7, 8, 9


@jit
def tabulate(codes: U8, attributes: I64, chunks: int, table: U64) -> None:
    """Build the tables of some events: for each attribute, `chunks` of LANES events each.

    attributes   those whose tables are read; the others get none
    """
    events, d = codes.shape
    rows, all_codes = pointer(table, 0), pointer(codes, 0)
    for j in attributes:
        for chunk in range(chunks):
            base = (j * chunks + chunk) * TABLE_ROWS * LANE_WORDS
            table[base : base + TABLE_ROWS * LANE_WORDS] = 0
            first = chunk * LANES
            for e in range(first, min(first + LANES, events)):
                lane = e - first
                word = base + np.int64(all_codes[e * d + j]) * LANE_WORDS + (lane >> 6)
                rows[word] |= np.uint64(1) << np.uint64(lane & 63)
            for row in range(base + 254 * LANE_WORDS, base - 1, -LANE_WORDS):
                join_row(rows, row, row + LANE_WORDS)


@intrinsic
def list_lanes(
    _typing: Any,
    above: Any,
    below: Any,
    codes: Any,
    attributes: Any,
    slot: Any,
    end: Any,
    box: Any,
    lanes: Any,
    masks: Any,
    keys: Any,
    filled: Any,
    key: Any,
) -> Any:
    """Append records of the events of `lanes` that may lie in a box; return the end of the records.

    above, below   tables of events (of one chunk) by the ends that lower and upper bounds meet
    codes          of slots, SLOT_BYTES each; those of the box are from slot to end
    box            its place in its block
    masks, keys    64 events that are not none, and key + which 64 they are; room for 8 more

    There is no branch in it but the loop over the slots: the words in use are packed.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        slot, end, box, filled, key = (arguments[i] for i in (4, 5, 6, 10, 11))
        call = Call(context, builder, signature, arguments)
        left = cgutils.alloca_once(builder, ROW)
        builder.store(call.load(_LANES, WORD(0), ROW), left)
        with cgutils.for_range_slice(builder, slot, end, WORD(1), WORD) as (at, _):
            axis = builder.sext(builder.load(call.place(_ATTRIBUTES, at, INDEX)), WORD)
            base = builder.mul(axis, WORD(TABLE_ROWS))
            code = builder.add(builder.mul(at, WORD(SLOT_BYTES)), box)
            lower = builder.zext(builder.load(call.place(_CODES, code, BYTE)), WORD)
            upper = call.place(_CODES, builder.add(code, WORD(BLOCK)), BYTE)
            upper = builder.add(builder.zext(builder.load(upper), WORD), WORD(1))
            places = (builder.mul(builder.add(base, c), WORD(LANE_WORDS)) for c in (lower, upper))
            kept, dropped = (
                call.load(table, pointer, ROW)
                for table, pointer in zip((_ABOVE, _BELOW), places, strict=True)
            )
            now = builder.and_(builder.load(left), kept)
            builder.store(builder.and_(now, builder.not_(dropped)), left)
        row = builder.load(left)
        used = builder.icmp_unsigned("!=", row, ROW([0] * LANE_WORDS))
        nothing = ROW(ir.Undefined)
        first = builder.insert_element(nothing, key, INDEX(0))
        same = ir.VectorType(INDEX, LANE_WORDS)([0] * LANE_WORDS)
        named = builder.add(
            builder.shuffle_vector(first, nothing, same), ROW(list(range(LANE_WORDS)))
        )
        kind = ir.FunctionType(ROW, [ROW, ir.VectorType(BIT, LANE_WORDS), ROW])
        name = f"llvm.experimental.vector.compress.v{LANE_WORDS}i64"
        compress = cgutils.get_or_insert_function(builder.module, kind, name)
        for values, out in ((row, _MASKS), (named, _KEYS)):
            packed = builder.call(compress, [values, used, nothing])
            builder.store(packed, call.place(out, filled, ROW), align=8)
        words = builder.ctpop(builder.bitcast(used, BYTE))
        return builder.add(filled, builder.zext(words, WORD))

    signature = types.intp(
        above,
        below,
        codes,
        attributes,
        types.intp,
        types.intp,
        types.intp,
        lanes,
        masks,
        keys,
        types.intp,
        types.intp,
    )
    return signature, generate
