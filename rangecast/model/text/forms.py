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
import unicodedata
from typing import Any

import numpy as np

from rangecast.kernels.arrays import F64, I64, AnyArray
from rangecast.model.attributes.text_store import TEXTS
from rangecast.model.text.programs import RECORD, sign

RAW, FOLDED, WORDS, ADDRESS = 0, 1, 2, 3
FORMS = 4
_SPACE = 32
_FIRST = np.zeros(1, np.int64)


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
"""Separators as spaces, other ASCII characters folded: for texts of ASCII."""


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
    records = np.zeros((len(texts), RECORD * FORMS), np.int64)
    alive = []
    for form in sorted(forms):
        if len(texts) == 1:
            own = form_of(texts[0], form)
            if own is not None:
                data = np.frombuffer(own or b" ", np.uint8)
                alive.append(data)
                records[0, RECORD * form], records[0, RECORD * form + 1] = (
                    address_of(data),
                    len(own),
                )
                sign(data, _FIRST, np.array([len(own)]), records, form)
            continue
        each = [form_of(text, form) for text in texts]
        data = np.frombuffer(b"".join(record or b"" for record in each) or b" ", np.uint8)
        alive.append(data)
        sizes = np.array([0 if record is None else len(record) for record in each], np.int64)
        starts = np.cumsum(sizes) - sizes
        is_there = np.array([record is not None for record in each], bool)
        records[:, RECORD * form] = np.where(is_there, address_of(data) + starts, 0)
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
                made[0, axis] = address_of(records)
            continue
        there = np.isfinite(column)
        handles, at = np.unique(column[there], return_inverse=True)
        records, data = _records(TEXTS.get(handles.tolist()), needed)
        alive += [records, data]
        column[there] = address_of(records) + at * records.strides[0]
    made.flags.writeable = points.flags.writeable
    return made, alive


def address_of(array: AnyArray) -> int:
    """Return where the items of an array lie."""
    address: int = array.__array_interface__["data"][0]
    return address
