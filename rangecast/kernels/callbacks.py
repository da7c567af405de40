"""Calls from one kernel into another that only its table names, by the address of its code.

A kernel that may have to call one of several others would have to contain them all, and take as
long to compile. By address it contains none, and needs no second call from Python either.
"""

# ruff: noqa: ARG001 - an intrinsic is given the types of all its arguments, needed or not

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numba
import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils

from rangecast.kernels.arrays import readonly
from rangecast.kernels.bundle import intrinsic

_TABLE = types.Array(types.int64, 1, "C", readonly=True)
_POINTS = types.Array(types.float64, 2, "C", readonly=True)
_ROWS = types.Array(types.int32, 1, "C")
_ARGUMENTS = (_TABLE, _POINTS, _ROWS)


@cache
def address_of(kernel: Callable[..., int]) -> int:
    """Return the address of a kernel (table, points, rows) -> count."""
    compiled: Any = kernel
    arguments = readonly(np.empty(0, np.int64)), readonly(np.empty((1, 1))), np.empty(0, np.int32)
    signature = tuple(map(numba.typeof, arguments))
    assert signature == _ARGUMENTS
    compiled.compile(signature)
    made = compiled.overloads[signature]
    address: int = made.library.get_pointer_to_function(made.fndesc.llvm_func_name)
    return address


@intrinsic
def call_at(_typing: Any, address: Any, table: Any, points: Any, rows: Any) -> Any:
    """Call the kernel at an address (`address_of`); return its count."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        convention = context.call_conv
        kind = convention.get_function_type(types.int64, _ARGUMENTS)
        callee = builder.inttoptr(arguments[0], ir.PointerType(kind))
        status, count = convention.call_function(
            builder, callee, types.int64, _ARGUMENTS, arguments[1:]
        )
        with cgutils.if_unlikely(builder, status.is_error):
            convention.return_status_propagate(builder, status)
        return count

    return types.int64(types.int64, table, points, rows), generate
