"""Texts of a single event, in memory of the thread that matches it.

A batch stores its texts (`rangecast.model.attributes.text_store`) and reads all of them at once. A
single event that is matched at once needs neither: the coordinate of its text is the address of the
text's record, which lies in memory of the thread, and a text of ASCII is read where Python has it.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
from numba import types
from numba.core import cgutils

from rangecast.kernels.arrays import F64
from rangecast.kernels.bundle import bytes_at, integers_at, intrinsic
from rangecast.kernels.jit import direct, jit, jit_single
from rangecast.model.attributes.text_store import TEXTS
from rangecast.model.text.forms import (
    ADDRESS,
    FOLDED,
    FORMS,
    RAW,
    address_of,
    form_of,
    readable,
)
from rangecast.model.text.programs import RECORD, SIGNATURE, SIGNATURE_BITS, bit_of

STRIDE = 8 * RECORD * FORMS
"""Bytes from the records of one text to those of the next."""
_SCRATCH_BYTES = 1 << 16
_SPACE = 32


@intrinsic
def _data_of(_typing: Any, text: Any) -> Any:
    """Return the address of the characters of a Python string."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        proxy = cgutils.create_struct_proxy(signature.args[0])
        data = proxy(context, builder, value=arguments[0]).data
        return builder.ptrtoint(data, context.get_value_type(types.int64))

    return types.int64(text), generate


@jit
def _put_record(record: Any, form: int, address: int, size: int) -> None:
    """Write where a form of a text lies, its length and its signature."""
    own, text = RECORD * form, bytes_at(address)
    record[own], record[own + 1] = address, size
    for i in range(SIGNATURE):
        record[own + 2 + i] = 0
    for at in range(size - 1):
        bit = bit_of(np.int64(text[at]), np.int64(text[at + 1]))
        record[own + 2 + bit // SIGNATURE_BITS] |= np.int64(1) << (bit % SIGNATURE_BITS)


@jit
def _is_word(byte: int) -> bool:
    return 97 <= byte <= 122 or 48 <= byte <= 57


@jit
def _put_form(text: Any, size: int, form: int, out: Any) -> int:
    """Write a text of ASCII in the form FOLDED or WORDS; return its length."""
    filled = 0
    if form != FOLDED:
        out[0] = _SPACE
        filled = 1
    for i in range(size):
        byte = text[i]
        if 65 <= byte <= 90:
            byte += 32
        if form == FOLDED or _is_word(byte):
            out[filled] = byte
            filled += 1
        elif out[filled - 1] != _SPACE:
            out[filled] = _SPACE
            filled += 1
    if form != FOLDED and out[filled - 1] != _SPACE:
        out[filled] = _SPACE
        filled += 1
    return filled


@jit_single
def _read_ascii(text: str, scratch: int, at: int, record: int, forms: int) -> int:
    """Write the records of some forms, bits of `forms`, of a text of ASCII.

    scratch   address of memory for forms, of which `at` bytes are used
    record    address of the records

    Returns how many bytes are used then; -1: there is no room.
    """
    data, size = _data_of(text), len(text)
    for form in range(ADDRESS):
        if forms >> form & 1 == 0:
            continue
        address, length = data, size
        if form != RAW:
            if at + size + 2 > _SCRATCH_BYTES:
                return -1
            address = scratch + at
            length = _put_form(bytes_at(data), size, form, bytes_at(address))
            at += length
        _put_record(integers_at(record), form, address, length)
    return at


@jit_single
def _read_bytes(address: int, size: int, record: int, form: int) -> None:
    """Write the record of a form of a text; a text that lacks it has the address 0."""
    _put_record(integers_at(record), form, address, size)


class _Scratch(threading.local):
    """Memory of a thread for the texts of one event."""

    def __init__(self) -> None:
        self.data = np.empty(_SCRATCH_BYTES, np.uint8)
        self.address = address_of(self.data)
        self.reserve(1)

    def reserve(self, texts: int) -> None:
        """Make room for the records of this many texts."""
        self.rows = texts
        self._memory = np.zeros((texts, RECORD * FORMS), np.int64)
        self.records = address_of(self._memory)


class TextReader:
    """Reader of the texts of single events in the forms that conditions need."""

    def __init__(self, forms: dict[int, set[int]], axes: Sequence[int]):
        """`axes` are those of all texts of a space; `forms` has the forms needed, by axis."""
        self._axes = axes
        self._forms = {axis: set(numbers) for axis, numbers in forms.items()}
        self._read_ascii = direct(_read_ascii, "", 0, 0, 0, 0)
        self._needed = [
            (row, sum(1 << form for form in forms[axis]), sorted(forms[axis]))
            for row, axis in enumerate(axes)
            if axis in forms
        ]

    @property
    def records(self) -> int:
        """Address of the records of this thread, `STRIDE` bytes for each text."""
        if _SCRATCH.rows < len(self._axes):
            _SCRATCH.reserve(len(self._axes))
        return _SCRATCH.records

    def readable_one(self, point: F64) -> tuple[F64, Any]:
        """Return what `readable` does for one event, (1, d), valid until the thread's next call."""
        records, made = self.records, point.copy()
        texts: list[str | None] = []
        for row, axis in enumerate(self._axes):
            text = None
            if axis in self._forms and point.item(0, axis) < np.inf:  # else missing, or NaN
                (text,) = TEXTS.get([point.item(0, axis)])
                made[0, axis] = records + row * STRIDE
            texts.append(text)
        return (made, texts) if self.read(texts) else readable(point, self._forms)

    def read(self, texts: Sequence[str | None]) -> bool:
        """Write the records of texts into memory of the thread; return whether they fit.

        Keep the texts alive until the event is matched.
        """
        scratch, at = _SCRATCH, 0
        for row, mask, forms in self._needed:
            text = texts[row]
            if text is None:
                continue
            record = scratch.records + row * STRIDE
            if mask < 1 << ADDRESS and text.isascii():
                at = self._read_ascii(text, scratch.address, at, record, mask)
            else:
                at = _read_forms(text, forms, scratch, at, record)
            if at < 0:
                return False
        return True


def _read_forms(text: str, forms: list[int], scratch: _Scratch, at: int, record: int) -> int:
    """Do what `_read_ascii` does with any text and form."""
    for form in forms:
        own = form_of(text, form)
        size = 0 if own is None else len(own)
        if at + size > _SCRATCH_BYTES:
            return -1
        scratch.data[at : at + size] = np.frombuffer(own or b"", np.uint8)
        address = 0 if own is None else scratch.address + at
        _read_bytes(address, size, record, form)
        at += size
    return at


_SCRATCH = _Scratch()
