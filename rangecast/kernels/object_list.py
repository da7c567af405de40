"""Lists of Python objects built directly from a kernel's rows, without an intermediate array.

A kernel that keeps the GIL returns `listed(rows, address, are_objects, integers)`. Its caller gets
a list of what an array at this address has at these rows: objects, or integers of 64 bits.

Making a Python integer takes three times as long as holding one that exists. So the objects of
0 to 65,535 are made once per process, 2.6 MB, when a set first needs them: `integers` is the
address of all of them, or 0.
"""

# ruff: noqa: ARG001 - an intrinsic is given the types of all its arguments, needed or not

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import extending, types
from numba.core import cgutils

from rangecast.kernels.arrays import AnyArray
from rangecast.kernels.bundle import intrinsic

_ROWS = types.Array(types.int32, 1, "C")
_MEMBERS = [
    ("rows", _ROWS),
    ("items", types.intp),
    ("are_objects", types.boolean),
    ("integers", types.intp),
]
_INTEGERS = 1 << 16
_AHEAD = 16
"""Objects that are fetched before they are held: most of the time goes by waiting for memory."""


_integers: list[AnyArray] = []


def integer_objects() -> AnyArray:
    """Return preallocated int objects, 0 to 65,535, shared by all sets.

    Kernels read them by address, so the caller must keep a reference to the array.
    """
    if not _integers:  # a lock could be held by another thread when the process forks
        _integers.append(np.arange(_INTEGERS).astype(object))
        del _integers[1:]  # of threads that make them at the same time, all share the first one's
    return _integers[0]


class _Listed(types.Type):  # type: ignore[misc]
    """Rows, and the address of the items of all rows."""

    def __init__(self) -> None:
        super().__init__(name="Listed")


_LISTED = _Listed()


@extending.register_model(_Listed)
class _Model(extending.models.StructModel):  # type: ignore[misc]
    def __init__(self, manager: Any, kind: Any):
        super().__init__(manager, kind, _MEMBERS)


@intrinsic
def listed(typing: Any, rows: Any, items: Any, are_objects: Any, integers: Any) -> Any:
    """Return the native struct that is boxed as a Python list."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        made = cgutils.create_struct_proxy(_LISTED)(context, builder)
        made.rows, made.items, made.are_objects, made.integers = arguments
        context.nrt.incref(builder, _ROWS, made.rows)
        return made._getvalue()

    return _LISTED(_ROWS, types.intp, types.boolean, types.intp), generate


@extending.box(_Listed)  # type: ignore[untyped-decorator]
def _box(kind: Any, value: Any, context: Any) -> Any:
    """Box the list, which owns a reference to each object in it."""
    builder, api = context.builder, context.pyapi
    held = cgutils.create_struct_proxy(kind)(context.context, builder, value=value)
    rows = context.context.make_array(_ROWS)(context.context, builder, value=held.rows)
    count = cgutils.unpack_tuple(builder, rows.shape, 1)[0]
    made = api.list_new(count)
    is_made = builder.icmp_unsigned("!=", made, ir.Constant(made.type, None))
    are_objects = cgutils.as_bool_bit(builder, held.are_objects)
    last = builder.sub(count, ir.Constant(count.type, 1))

    def each(items: Any) -> Iterator[tuple[Any, Any, Any]]:
        """Yield position, item and a later item of a loop over the rows."""
        with cgutils.for_range(builder, count) as loop:
            ahead = builder.add(loop.index, ir.Constant(count.type, _AHEAD))
            ahead = builder.select(builder.icmp_signed("<", ahead, last), ahead, last)
            later = _item(builder, items, rows.data, ahead)
            yield loop.index, _item(builder, items, rows.data, loop.index), later

    def hold(at: Any, item: Any) -> None:
        api.incref(item)
        api.list_setitem(made, at, item)

    with builder.if_then(builder.and_(is_made, are_objects)):
        for at, item, later in each(builder.inttoptr(held.items, made.type.as_pointer())):
            _fetch(builder, later)
            hold(at, item)
    with builder.if_then(builder.and_(is_made, builder.not_(are_objects))):
        integers = builder.inttoptr(held.integers, made.type.as_pointer())
        bound = builder.select(
            cgutils.is_null(builder, integers),
            ir.Constant(count.type, 0),
            ir.Constant(count.type, _INTEGERS),
        )
        for at, number, later in each(builder.inttoptr(held.items, count.type.as_pointer())):
            with builder.if_then(builder.icmp_unsigned("<", later, bound)):
                _fetch(builder, builder.load(builder.gep(integers, [later])))
            is_kept = builder.icmp_unsigned("<", number, bound)
            with builder.if_else(is_kept) as (kept, other):
                with kept:
                    hold(at, builder.load(builder.gep(integers, [number])))
                with other:
                    api.list_setitem(made, at, api.long_from_longlong(number))
    context.context.nrt.decref(builder, _ROWS, held.rows)
    return made


def _item(builder: Any, items: Any, rows: Any, at: Any) -> Any:
    row = builder.sext(builder.load(builder.gep(rows, [at])), at.type)
    return builder.load(builder.gep(items, [row]))


def _fetch(builder: Any, address: Any) -> None:
    """Prefetch an address that will be written."""
    word = ir.IntType(32)
    kind = ir.FunctionType(ir.VoidType(), [address.type, word, word, word])
    fetch = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
    builder.call(fetch, [address, *(ir.Constant(word, number) for number in (1, 3, 1))])
