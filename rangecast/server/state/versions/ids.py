"""Ids of subscriptions by number, as the JSON of answers and messages, without an object per id.

One thread writes; any thread reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from rangecast.kernels.arrays import I64, U8
from rangecast.kernels.jit import jit
from rangecast.model.sets.members import Id

_LENGTH = 28
"""Bits of a span that are the length of a text; its start is above them."""
_LONG = (1 << _LENGTH) - 1
_COMMA = ord(",")
_NONE = b'""'
"""The text of a number without an id."""
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(list[Id]).decode


class _Ids(NamedTuple):
    """Arrays that readers use."""

    spans: I64
    """By number: where its text is."""
    texts: U8


class IdTexts:
    """Ids by number."""

    def __init__(self) -> None:
        self._ids = _Ids(np.zeros(0, np.int64), np.array([*_NONE], np.uint8))
        self._filled = len(_NONE)

    @property
    def memory(self) -> int:
        """Size in bytes."""
        return sum(array.nbytes for array in self._ids)

    def __getitem__(self, number: int) -> Id:
        return self.listed(np.array([number]))[0]

    def put(self, numbers: Sequence[int], ids: Sequence[Id]) -> None:
        """Set the ids of numbers, most of which keep theirs for ever."""
        if (least := max(numbers) + 1) > len(self._ids.spans):
            spans = np.full(max(least, least + len(self._ids.spans) // 4), len(_NONE))
            spans[: len(self._ids.spans)] = self._ids.spans
            self._ids = self._ids._replace(spans=spans)
        texts = [*map(_encode, ids)]
        at, lengths = np.array(numbers), np.array([*map(len, texts)])
        spans = self._ids.spans[at]
        is_new = spans & _LONG != lengths
        for same in np.flatnonzero(~is_new).tolist():
            is_new[same] = self._text(int(spans[same])) != texts[same]
        if is_new.any():
            chosen = np.flatnonzero(is_new)
            starts = self._append([texts[index] for index in chosen.tolist()], lengths[chosen])
            self._ids.spans[at[chosen]] = starts << _LENGTH | lengths[chosen]

    def _text(self, span: int) -> bytes:
        first = span >> _LENGTH
        return self._ids.texts[first : first + (span & _LONG)].tobytes()

    def _append(self, texts: Sequence[bytes], lengths: I64) -> I64:
        """Append texts; return where each begins."""
        more, first = b"".join(texts), self._filled
        if (end := first + len(more)) > len(self._ids.texts):
            larger = np.empty(end + first // 4, np.uint8)
            larger[:first] = self._ids.texts[:first]
            self._ids = self._ids._replace(texts=larger)
        self._ids.texts[first:end] = np.frombuffer(more, np.uint8)
        self._filled = end
        starts: I64 = first + np.cumsum(lengths) - lengths
        return starts

    def joined(self, numbers: I64) -> tuple[memoryview[int], I64]:
        """Return ids as JSON, each with a comma behind it, and where each begins, and the end."""
        spans, texts = self._ids
        wanted = spans[numbers]
        out = np.empty(len(wanted) + int((wanted & _LONG).sum()), np.uint8)
        starts = np.zeros(len(wanted) + 1, np.int64)
        _write(wanted, texts, out, starts)
        return out.data, starts

    def listed(self, numbers: I64) -> list[Id]:
        """Return ids."""
        out, _ = self.joined(numbers)
        return _decode(b"".join((b"[", out[:-1], b"]")))


@jit
def _write(spans: I64, texts: U8, out: U8, starts: I64) -> None:
    """Write texts, each with a comma."""
    at = 0
    for i in range(len(spans)):
        first, length = spans[i] >> _LENGTH, spans[i] & _LONG
        for j in range(length):
            out[at + j] = texts[first + j]
        at += length
        out[at] = _COMMA
        at += 1
        starts[i + 1] = at
