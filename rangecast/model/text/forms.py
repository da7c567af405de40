"""Forms of a text that conditions are verified on, as bytes in memory.

    RAW       the text itself, in UTF-8
    FOLDED    the text, case-folded: `str.casefold`, Unicode's full folding
    WORDS     its words, folded, with a space before, between and after them
    ADDRESS   the version and the bits of an IP address, such as `400001010...`; other texts have
              none

A word is a run of letters, marks and digits: of characters whose general category in Unicode is L,
M or N. Everything else separates words.
"""

from __future__ import annotations

import ipaddress
import threading
import unicodedata
from functools import cache
from typing import Any

import numpy as np

from rangecast.kernels.arrays import F64, I64, U8, AnyArray
from rangecast.kernels.jit import direct, jit_single
from rangecast.model.attributes.text_store import TEXTS
from rangecast.model.text.programs import RECORD, sign

RAW, FOLDED, WORDS, ADDRESS = 0, 1, 2, 3
_FORMS = 4
_SPACE = 32
_FIRST = np.zeros(1, np.int64)
_SCRATCH_BYTES = 1 << 16


class _Separators(dict[int, int]):
    """Translation table that maps word separators to spaces."""

    def __missing__(self, code: int) -> int:
        kept = code if unicodedata.category(chr(code))[0] in "LMN" else _SPACE
        self[code] = kept
        return kept


_SEPARATORS = _Separators()
_ASCII = bytes(
    ord(chr(code).lower()) if chr(code).isalnum() and code < 128 else _SPACE for code in range(256)
)
"""The same for texts of ASCII, folded."""


def fold(text: str) -> str:
    """Case-fold a text."""
    return text.casefold()


def words_in(text: str) -> list[str]:
    """Return the words of a text, case-folded, in order."""
    return fold(text).translate(_SEPARATORS).split()


def spaced(words: list[str]) -> str:
    """Join words to the form WORDS."""
    return " ".join(["", *words, ""])


def address_bits(text: str) -> str | None:
    """Return the version and bits of an IP address; `None` if the text is not an address."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    return f"{address.version}{int(address):0{address.max_prefixlen}b}"


def form_of(text: str, form: int) -> bytes | None:
    """Return a form of a text; `None` if the text does not have it."""
    if form == RAW:
        return text.encode()
    if form == FOLDED:
        return fold(text).encode()
    if form == WORDS:
        if text.isascii():
            return b" ".join([b"", *text.encode().translate(_ASCII).split(), b""])
        return spaced(words_in(text)).encode()
    bits = address_bits(text)
    return None if bits is None else bits.encode()


def _records(texts: list[str], forms: set[int]) -> tuple[I64, Any]:
    """Return the records of the texts' forms, one row per text, and the objects to keep alive."""
    records = np.zeros((len(texts), RECORD * _FORMS), np.int64)
    alive = []
    for form in sorted(forms):
        if len(texts) == 1:
            own = form_of(texts[0], form)
            if own is not None:
                data = np.frombuffer(own or b" ", np.uint8)
                alive.append(data)
                records[0, RECORD * form], records[0, RECORD * form + 1] = _address(data), len(own)
                sign(data, _FIRST, np.array([len(own)]), records, form)
            continue
        each = [form_of(text, form) for text in texts]
        data = np.frombuffer(b"".join(one or b"" for one in each) or b" ", np.uint8)
        alive.append(data)
        sizes = np.array([0 if one is None else len(one) for one in each], np.int64)
        starts = np.cumsum(sizes) - sizes
        is_there = np.array([one is not None for one in each], bool)
        records[:, RECORD * form] = np.where(is_there, _address(data) + starts, 0)
        records[:, RECORD * form + 1] = sizes
        sign(data, starts, sizes, records, form)
    return records, alive


def readable(points: F64, forms: dict[int, set[int]]) -> tuple[F64, Any]:
    """Replace text handles in points by addresses for kernels; also return what to keep alive.

    forms   forms that are needed of the texts of each axis

    A handle becomes the address of the forms of its text.
    """
    if not forms:
        return points, None
    made = points.copy()
    alive: list[Any] = []
    for axis, needed in forms.items():
        column = made[:, axis]
        if len(made) == 1:  # ten times quicker than what follows
            if made.item(0, axis) < np.inf:
                records, data = _records(TEXTS.get([made.item(0, axis)]), needed)
                alive += [records, data]
                made[0, axis] = _address(records)
            continue
        there = np.isfinite(column)
        handles, at = np.unique(column[there], return_inverse=True)
        records, data = _records(TEXTS.get(handles.tolist()), needed)
        alive += [records, data]
        column[there] = _address(records) + at * records.strides[0]
    made.flags.writeable = points.flags.writeable
    return made, alive


class _Scratch(threading.local):
    """Memory of a thread for the texts of one event."""

    def __init__(self) -> None:
        self.data = np.empty(_SCRATCH_BYTES, np.uint8)
        self.view = self.data.data
        self.address = _address(self.data)
        self.reserve(1)

    def reserve(self, axes: int) -> None:
        """Make room for the records of this many texts."""
        self.records = np.zeros((axes, RECORD * _FORMS), np.int64)
        self.records_at = _address(self.records)


@jit_single
def _note(data: U8, address: int, start: int, size: int, records: I64, row: int, form: int) -> None:
    """Write the record of one form of a text."""
    own = RECORD * form
    records[row, own], records[row, own + 1] = address + start, size
    records[row, own + 2 : own + RECORD] = 0
    sign(data, np.array([start]), np.array([size]), records[row : row + 1], form)


@cache
def _noting() -> Any:
    return direct(_note, np.empty(0, np.uint8), 0, 0, 0, np.empty((1, 1), np.int64), 0, 0)


def readable_one(points: F64, forms: dict[int, set[int]]) -> tuple[F64, Any]:
    """Return what `readable` does for one event, (1, d), valid until the thread's next call."""
    scratch, note = _SCRATCH, _noting()
    if len(scratch.records) < len(forms):
        scratch.reserve(len(forms))
    made = points.copy()
    at = 0
    for row, (axis, needed) in enumerate(forms.items()):
        handle = made.item(0, axis)
        if not handle < np.inf:
            continue  # missing, or NaN, which the search rejects
        (text,) = TEXTS.get([handle])
        for form in needed:
            own = form_of(text, form)
            if own is None:
                scratch.records[row, RECORD * form] = 0
                continue
            size = len(own)
            if at + size > _SCRATCH_BYTES:
                return readable(points, forms)
            scratch.view[at : at + size] = own
            note(scratch.data, scratch.address, at, size, scratch.records, row, form)
            at += size
        made[0, axis] = scratch.records_at + row * scratch.records.strides[0]
    return made, None


def _address(array: AnyArray) -> int:
    found: int = array.__array_interface__["data"][0]
    return found


_SCRATCH = _Scratch()
