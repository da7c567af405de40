"""Numbers of names, without an object per name.

The names are in one buffer of UTF-8, by number. A table with open addressing finds the number of a
name: an entry is a hash and a number, and at most two thirds of the table are used. A name takes 20
to 32 bytes beside its text; a dict of texts and numbers takes 140.

One thread writes; any thread reads.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

_FREE, _GONE = -1, -2
"""Entries without a number: a search ends at the first, and passes over the second."""
_NUMBER = 32
"""Bits of an entry that are the number; the hash is above them."""
_WHICH, _HASH = (1 << _NUMBER) - 1, (1 << 31) - 1
_LENGTH = 28
"""Bits of a span that are the length of a name; its start is above them."""
_LONG = (1 << _LENGTH) - 1
_MIN_SIZE = 64
_SHARE = 8
"""Numbers that there have been, per byte of texts whose names are gone, below which these aren't
dropped: the spans of all numbers are copied then."""


class _Names(NamedTuple):
    """Arrays that a search reads."""

    table: array[int]
    spans: array[int]
    """By number: where its name is."""
    texts: bytearray


class NameNumbers:
    """Mapping from names to numbers, each of which is given once."""

    def __init__(self) -> None:
        self._names = _Names(array("q", [_FREE] * _MIN_SIZE), array("q"), bytearray())
        self._count = 0
        self._used = 0
        """Entries of names, and of names that are gone."""
        self._gone = 0
        """Bytes of texts whose names are gone."""

    def __len__(self) -> int:
        return self._count

    @property
    def memory(self) -> int:
        """Size in bytes."""
        names = self._names
        return 8 * (len(names.table) + len(names.spans)) + len(names.texts)

    def get(self, name: str) -> int | None:
        """Return the number of a name, if it has one."""
        table, spans, texts = self._names
        text, key, mask = _encoded(name), hash(name) & _HASH, len(table) - 1
        at = key & mask
        while (entry := table[at]) != _FREE:
            if entry >> _NUMBER == key:
                span = spans[entry & _WHICH]
                first = span >> _LENGTH
                if texts[first : first + (span & _LONG)] == text:
                    return entry & _WHICH
            at = (at + 1) & mask
        return None

    def name(self, number: int) -> str:
        """Return the name that has a number."""
        _, spans, texts = self._names
        first = spans[number] >> _LENGTH
        text = texts[first : first + (spans[number] & _LONG)]
        return text.decode("utf-8", "surrogatepass")

    def bind(self, name: str, number: int) -> None:
        """Give a name a number; neither is bound."""
        if 3 * self._used >= 2 * len(self._names.table):
            self._renew(1)
        table, spans, texts = self._names
        text, key, mask = _encoded(name), hash(name) & _HASH, len(table) - 1
        if (more := number + 1 - len(spans)) > 0:
            spans.extend([0] * more)
        spans[number] = len(texts) << _LENGTH | len(text)
        texts += text
        at = key & mask
        while table[at] != _FREE:
            at = (at + 1) & mask
        table[at] = key << _NUMBER | number  # from now on it is found
        self._count += 1
        self._used += 1

    def bind_many(self, names: Sequence[str], numbers: Sequence[int]) -> None:
        """Give each name a number, as `bind` does, in half of the time."""
        if 3 * (self._used + len(names)) > 2 * len(self._names.table):
            self._renew(len(names))
        table, spans, texts = self._names
        if (more := max(numbers) + 1 - len(spans)) > 0:
            spans.extend([0] * more)
        mask, first = len(table) - 1, len(texts)
        encoded = [_encoded(name) for name in names]
        texts += b"".join(encoded)
        for name, text, number in zip(names, encoded, numbers, strict=True):
            spans[number] = first << _LENGTH | len(text)
            first += len(text)
            key = hash(name) & _HASH
            at = key & mask
            while table[at] != _FREE:
                at = (at + 1) & mask
            table[at] = key << _NUMBER | number  # from now on it is found
        self._count += len(names)
        self._used += len(names)

    def remove(self, name: str) -> int:
        """Remove a name; return its number."""
        number = self.get(name)
        if number is None:
            raise KeyError(name)
        table, spans, _ = self._names
        key, mask = hash(name) & _HASH, len(table) - 1
        at = key & mask
        while table[at] != key << _NUMBER | number:
            at = (at + 1) & mask
        table[at] = _GONE
        self._count -= 1
        self._gone += spans[number] & _LONG
        return number

    def _renew(self, more: int) -> None:
        """Make a table without names that are gone; with more names, half of it is used at most."""
        table, spans, texts = self._names
        entries = np.array(table)
        entries = entries[entries >= 0]
        size = _MIN_SIZE
        while size < 2 * (len(entries) + more):
            size *= 2
        home = (entries >> _NUMBER) & (size - 1)
        order = np.argsort(home, kind="stable")
        entries, ranks = entries[order], np.arange(len(order))
        at = np.maximum.accumulate(home[order] - ranks) + ranks  # the first free place from home on
        fresh = np.full(size, _FREE)
        fresh[at[at < size]] = entries[at < size]
        free = 0
        for entry in entries[at >= size].tolist():  # around the end, to the beginning
            while fresh[free] != _FREE:
                free += 1
            fresh[free] = entry
        if self._gone > max(len(texts) // 2, len(spans) // _SHARE):
            numbers = entries & _WHICH
            spans, texts = _compacted(spans, texts, np.sort(numbers).tolist())
            self._gone = 0
        self._names = _Names(array("q", fresh.tobytes()), spans, texts)
        self._used = len(entries)


def _compacted(
    spans: array[int], texts: bytearray, numbers: list[int]
) -> tuple[array[int], bytearray]:
    """Return the texts of some numbers, and where they are."""
    fresh, kept = array("q", bytes(8 * len(spans))), bytearray()
    for number in numbers:
        first, length = spans[number] >> _LENGTH, spans[number] & _LONG
        fresh[number] = len(kept) << _LENGTH | length
        kept += texts[first : first + length]
    return fresh, kept


def _encoded(name: str) -> bytes:
    """Return the text of a name, which may be anything that a request asks for."""
    return name.encode("utf-8", "surrogatepass")
