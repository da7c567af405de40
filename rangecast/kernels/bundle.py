"""Bundles of arrays, passed to kernels as one table of addresses.

A layout is a named tuple of arrays, its fields annotated with the types of `kernels.arrays`; a
matrix is annotated as `Annotated[F64, 2]`, and a field may be an `int`. A `Bundle` holds the arrays
of one and a table of their addresses. A kernel is passed only the table, because numba takes a
quarter of a microsecond for one array and half a microsecond more for every array of a tuple. The
first line of the kernel restores the layout, with the same names:

    tree = opened(table, Tree)            arrays, which have a length and can be sliced
    tree = pointers(opened(table, Tree))  pointers: indexed flat, without a length

numba counts the references to an array whenever it is handed from one function to the next, which
can cost more than an inner loop. A pointer is just a number. Neither keeps memory alive: the caller
of the kernel holds the bundle in the meantime. An array made in a kernel is freed after its last
use, even if a pointer into it is still in use; so pass the array to another function, and take the
pointer there.

With numba's bounds check on (NUMBA_BOUNDSCHECK=1), a pointer knows its length: an item, or a vector
(`bits`), that isn't wholly inside raises an IndexError. Addresses that a kernel computes from a
pointer keep that knowledge.
"""

# ruff: noqa: ARG001 - an intrinsic is given the types of all its arguments, needed or not

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import cache
from typing import Annotated, Any, Generic, TypeVar, get_args, get_origin, get_type_hints

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import extending, from_dtype, types
from numba.core import cgutils, config
from numba.core.typing import templates
from numba.np import arrayobj

from rangecast.kernels.arrays import I64, AnyArray, grown

intrinsic: Callable[[Callable[..., Any]], Callable[..., Any]] = extending.intrinsic
Layout = TypeVar("Layout", bound=tuple[Any, ...])

_COLUMNS = 3
"""Numbers per field in the table: address and shape, or the value of an `int`."""
_WORD = ir.IntType(64)
_EDITED: set[type[tuple[Any, ...]]] = set()


@cache
def _fields(layout: type[tuple[Any, ...]]) -> tuple[tuple[str, np.dtype[Any] | None, int], ...]:
    """Return name, dtype (`None`: an int) and number of dimensions of each field."""
    fields = []
    for name, hint in get_type_hints(layout, include_extras=True).items():
        dimensions = 1
        if get_origin(hint) is Annotated:
            hint, dimensions = get_args(hint)
        fields.append((name, None if hint is int else _dtype(hint), dimensions))
    return tuple(fields)


def _dtype(hint: Any) -> np.dtype[Any]:
    """Return the dtype of `NDArray[x]`: it is `ndarray[shape, dtype[x]]`, or an alias of that.

    With Python 3.12 and NumPy 2.5 it is the alias, whose one argument is x.
    """
    last = get_args(hint)[-1]
    dtype: np.dtype[Any] = np.dtype((get_args(last) or (last,))[0])
    return dtype


def table_size(layout: type[tuple[Any, ...]]) -> int:
    """Return the number of entries in a layout's table."""
    return _COLUMNS * len(_fields(layout))


Kind = TypeVar("Kind", bound=type[tuple[Any, ...]])


def edited(layout: Kind) -> Kind:
    """Make the arrays of a layout writable by kernels; otherwise they are read-only."""
    _EDITED.add(layout)
    return layout


class Bundle(Generic[Layout]):
    """The arrays of a layout, and the table of their addresses that kernels take.

    The arrays are made read-only, unless the layout is `edited`. It pickles as the arrays.
    """

    __slots__ = ("arrays", "table")

    def __init__(self, arrays: Layout):
        kind = type(arrays)
        table = np.zeros((len(arrays), _COLUMNS), np.int64)
        for row, value, (name, dtype, dimensions) in zip(table, arrays, _fields(kind), strict=True):
            if dtype is None:
                row[0] = value
                continue
            if value.dtype != dtype or value.ndim != dimensions or not value.flags.c_contiguous:
                raise TypeError(
                    f"{kind.__name__}.{name} takes a contiguous array of {dtype} with {dimensions} "
                    f"dimensions; given: {value.dtype}, {value.ndim}"
                )
            if kind not in _EDITED:
                value.flags.writeable = False
            row[0], row[1 : 1 + dimensions] = value.ctypes.data, value.shape
        self.arrays = arrays
        self.table: I64 = table.reshape(-1)
        self.table.flags.writeable = False

    @property
    def memory(self) -> int:
        """Bytes of all arrays; an array that has two names counts once."""
        arrays: dict[int, AnyArray] = {
            id(array): array for array in self.arrays if isinstance(array, np.ndarray)
        }
        return sum(array.nbytes for array in arrays.values())

    def replaced(self, **arrays: AnyArray) -> Bundle[Layout]:
        """Return a bundle with some arrays replaced; this one keeps the old ones."""
        return Bundle(self.arrays._replace(**arrays))  # type: ignore[attr-defined]

    def grown(self, *, fill: float = 0, **sizes: int) -> Bundle[Layout]:
        """Return a bundle in which some arrays have at least these sizes: this one, or a larger
        copy.
        """
        larger = {
            name: grown(getattr(self.arrays, name), size, fill) for name, size in sizes.items()
        }
        if all(array is getattr(self.arrays, name) for name, array in larger.items()):
            return self
        return self.replaced(**larger)

    def __reduce__(self) -> tuple[type[Bundle[Layout]], tuple[Layout]]:
        return Bundle, (self.arrays,)


@intrinsic
def opened(_typing: Any, table: Any, kind: Any) -> Any:
    """Return the arrays of a bundle, from its address table; `kind` is the layout's class."""
    layout = kind.instance_class
    readonly = layout not in _EDITED
    made = types.BaseTuple.from_types(
        tuple(
            types.intp
            if dtype is None
            else types.Array(from_dtype(dtype), dimensions, "C", readonly=readonly)
            for _, dtype, dimensions in _fields(layout)
        ),
        layout,
    )

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        values = []
        for i, field in enumerate(made.types):
            row = [
                builder.load(builder.gep(data, [_WORD(_COLUMNS * i + j)])) for j in range(_COLUMNS)
            ]
            if not isinstance(field, types.Array):
                values.append(row[0])
                continue
            array = context.make_array(field)(context, builder)
            size = context.get_abi_sizeof(context.get_data_type(field.dtype))
            shape = row[1 : 1 + field.ndim]
            strides = [_WORD(size)]
            if field.ndim == 2:
                strides.insert(0, builder.mul(shape[1], _WORD(size)))
            arrayobj.populate_array(
                array,
                data=builder.inttoptr(row[0], array.data.type),
                shape=shape,
                strides=strides,
                itemsize=_WORD(size),
                meminfo=None,
            )
            values.append(array._getvalue())
        return context.make_tuple(builder, made, values)

    return made(table, kind), generate


@intrinsic
def pointers(_typing: Any, bundle: Any) -> Any:
    """Return a named tuple of pointers to the arrays of another one, with the same names."""
    made = types.BaseTuple.from_types(
        tuple(
            _pointer_to(field.dtype) if isinstance(field, types.Array) else field
            for field in bundle.types
        ),
        bundle.instance_class,
    )

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        values = []
        for i, field in enumerate(bundle.types):
            value = builder.extract_value(arguments[0], i)
            if isinstance(field, types.Array):
                value = _point(context, builder, field, value, _WORD(0))
            values.append(value)
        return context.make_tuple(builder, made, values)

    return made(bundle), generate


@intrinsic
def pointer(_typing: Any, array: Any, first: Any) -> Any:
    """Return the address of item `first` of an array or a pointer, as a pointer."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _point(context, builder, signature.args[0], arguments[0], arguments[1])

    return _pointer_to(array.dtype)(array, types.intp), generate


@intrinsic
def bytes_at(_typing: Any, pointer: Any) -> Any:
    """Return a pointer to the bytes at an address; the caller must know how many there are."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], ir.IntType(8).as_pointer())

    return types.CPointer(types.uint8)(types.int64), generate


@intrinsic
def integers_at(_typing: Any, pointer: Any) -> Any:
    """Return a pointer to the integers of 64 bits at an address."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], ir.IntType(64).as_pointer())

    return types.CPointer(types.int64)(types.int64), generate


class Checked(types.Type):  # type: ignore[misc]
    """A pointer with the number of items that follow it."""

    def __init__(self, dtype: Any):
        self.dtype = dtype
        super().__init__(name=f"Checked({dtype})")


@extending.register_model(Checked)
class _CheckedModel(extending.models.StructModel):  # type: ignore[misc]
    def __init__(self, manager: Any, kind: Checked):
        members = [("data", types.CPointer(kind.dtype)), ("size", types.intp)]
        super().__init__(manager, kind, members)


def _pointer_to(dtype: Any) -> Any:
    return Checked(dtype) if config.BOUNDSCHECK else types.CPointer(dtype)


def _point(context: Any, builder: Any, kind: Any, value: Any, first: Any) -> Any:
    """Return the pointer to item `first` of an array or a pointer."""
    if isinstance(kind, types.CPointer):
        return builder.gep(value, [first])
    if isinstance(kind, types.Array):
        array = context.make_array(kind)(context, builder, value)
        data, size = array.data, array.nitems
    else:
        view = cgutils.create_struct_proxy(kind)(context, builder, value)
        data, size = view.data, view.size
    data_there = builder.gep(data, [first])
    if not config.BOUNDSCHECK:
        return data_there
    _check(context, builder, first, _WORD(0), size)
    made = cgutils.create_struct_proxy(Checked(kind.dtype))(context, builder)
    made.data, made.size = data_there, builder.sub(size, first)
    return made._getvalue()


def address(context: Any, builder: Any, kind: Any, value: Any, index: Any, count: int) -> Any:
    """Return the address of an item; check that `count` items follow if the pointer is checked."""
    if isinstance(kind, Checked):
        view = cgutils.create_struct_proxy(kind)(context, builder, value)
        _check(context, builder, index, _WORD(count), view.size)
        value = view.data
    return builder.gep(value, [index])


def _check(context: Any, builder: Any, index: Any, count: Any, size: Any) -> None:
    """Raise IndexError unless 0 <= index and index + count <= size."""
    below = builder.icmp_signed("<", index, _WORD(0))
    beyond = builder.icmp_signed(">", builder.add(index, count), size)
    with cgutils.if_unlikely(builder, builder.or_(below, beyond)):
        context.call_conv.return_user_exc(builder, IndexError, ("beyond what a pointer points to",))


@templates.infer_global(operator.getitem)
class _GetItem(templates.AbstractTemplate):  # type: ignore[misc]
    def generic(self, value: Any, _named: Any) -> Any:
        view = value[0]
        return view.dtype(view, types.intp) if isinstance(view, Checked) else None


@templates.infer_global(operator.setitem)
class _SetItem(templates.AbstractTemplate):  # type: ignore[misc]
    def generic(self, value: Any, _named: Any) -> Any:
        view = value[0]
        return types.void(view, types.intp, view.dtype) if isinstance(view, Checked) else None


@extending.lower_builtin(operator.getitem, Checked, types.Integer)  # type: ignore[untyped-decorator]
def _get_item(context: Any, builder: Any, signature: Any, value: Any) -> Any:
    pointer = address(context, builder, signature.args[0], value[0], value[1], 1)
    return context.unpack_value(builder, signature.return_type, pointer)


@extending.lower_builtin(operator.setitem, Checked, types.Integer, types.Any)  # type: ignore[untyped-decorator]
def _set_item(context: Any, builder: Any, signature: Any, value: Any) -> Any:
    pointer = address(context, builder, signature.args[0], value[0], value[1], 1)
    context.pack_value(builder, signature.args[2], value[2], pointer)
    return context.get_dummy_value()
