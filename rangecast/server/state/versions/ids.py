"""Ids of subscriptions by number, as the JSON of answers and messages, without an object per id.

One thread writes; any thread reads. Texts are appended to a buffer. Whenever the buffer is replaced
by a larger or a compacted one, so are the spans that refer to it: a reader that holds both never
finds a span of one buffer in another one. The id of a removed subscription stays until the buffer
is compacted, and until no thread that may have matched the subscription is `reading`.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import msgspec
import numpy as np

from rangecast.kernels.arrays import I64, U8
from rangecast.kernels.jit import jit
from rangecast.model.sets.members import Id

_LENGTH = 28
"""Bits of a span that are the length of a text; its start is above them."""
_LONG = (1 << _LENGTH) - 1
_GONE = 1 << 62
"""Bit of the span of a number that was removed."""
_COMMA = ord(",")
_NONE = b'""'
"""The text of a number without an id."""
_MIN_DEAD, _SHARE = 1 << 12, 16
"""Bytes of texts without a number below which the buffer isn't compacted, and numbers that there
have been per byte of such texts: their spans are copied with the buffer."""
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
        self._dead = 0
        """Bytes of texts that were replaced, or whose numbers were removed."""
        self._kept = 0
        """Bytes of these that the last compaction kept for a reader."""
        self._removed = array("q")
        self._removals = array("q")
        """Numbers removed since, and which removal each was."""
        self._last_removal = 0
        self._readers: dict[object, int] = {}
        """The last removal before each thread began to read."""

    @property
    def memory(self) -> int:
        """Size in bytes."""
        removed = self._removed.itemsize * (len(self._removed) + len(self._removals))
        return sum(array.nbytes for array in self._ids) + removed

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Keep the ids of subscriptions that are removed meanwhile.

        Another thread than the writing one enters it before it matches, and leaves it once it has
        the ids.
        """
        reader = object()
        self._readers[reader] = self._last_removal
        try:
            yield
        finally:
            del self._readers[reader]

    def __getitem__(self, number: int) -> Id:
        return self.listed(np.array([number]))[0]

    def put(self, numbers: Sequence[int], ids: Sequence[Id]) -> None:
        """Set the ids of numbers, most of which keep theirs until they are removed."""
        if (least := max(numbers) + 1) > len(self._ids.spans):
            spans = np.full(max(least, least + len(self._ids.spans) // 4), len(_NONE))
            spans[: len(self._ids.spans)] = self._ids.spans
            self._ids = self._ids._replace(spans=spans)
        texts = [*map(_encode, ids)]
        at, lengths = np.array(numbers), np.array([*map(len, texts)])
        spans = self._ids.spans[at]
        is_new = spans & (_LONG | _GONE) != lengths
        for same in np.flatnonzero(~is_new).tolist():
            is_new[same] = self._text(int(spans[same])) != texts[same]
        if is_new.any():
            chosen = np.flatnonzero(is_new)
            self._dead += _length_of(spans[chosen][spans[chosen] < _GONE])
            starts = self._append([texts[index] for index in chosen.tolist()], lengths[chosen])
            self._ids.spans[at[chosen]] = starts << _LENGTH | lengths[chosen]
            self._compact_if_due()

    def remove(self, numbers: Sequence[int]) -> None:
        """Drop the ids of numbers that no subscription has any more, once no thread reads them."""
        self._last_removal += 1
        self._removed.extend(numbers)
        self._removals.extend([self._last_removal] * len(numbers))
        self._dead += _length_of(self._ids.spans[numbers])
        self._ids.spans[numbers] |= _GONE
        self._compact_if_due()

    def _compact_if_due(self) -> None:
        least = max(_MIN_DEAD, len(self._ids.spans) // _SHARE)
        if self._dead > max(least, self._filled // 2, 2 * self._kept):
            self._compact()

    def _room(self, size: int) -> int:
        """Return the bytes that a new buffer has beside those that it begins with."""
        return max(size // 4, len(self._ids.spans) // _SHARE)

    def _compact(self) -> None:
        """Copy the texts that numbers have to a new buffer."""
        oldest = min([*self._readers.values()], default=self._last_removal)
        removed, removals = np.array(self._removed), np.array(self._removals)
        is_kept = removals > oldest
        spans, texts = self._ids.spans.copy(), self._ids.texts
        dropped = np.setdiff1d(removed[~is_kept], removed[is_kept])
        spans[dropped[spans[dropped] >= _GONE]] = len(_NONE)  # others were put again
        with_id = np.flatnonzero(spans > _LONG)
        old = spans[with_id]
        size = len(_NONE) + len(old) + _length_of(old)
        fresh, starts = (
            np.empty(size + self._room(size), np.uint8),
            np.zeros(len(old) + 1, np.int64),
        )
        fresh[: len(_NONE)] = texts[: len(_NONE)]
        _write(old, texts, fresh[len(_NONE) :], starts)
        spans[with_id] = starts[:-1] + len(_NONE) << _LENGTH | old & (_LONG | _GONE)
        self._ids, self._filled = _Ids(spans, fresh), size
        self._removed = array("q", removed[is_kept].tobytes())
        self._removals = array("q", removals[is_kept].tobytes())
        self._dead = self._kept = _length_of(spans[removed[is_kept]])

    def _text(self, span: int) -> bytes:
        first = (span & ~_GONE) >> _LENGTH
        return self._ids.texts[first : first + (span & _LONG)].tobytes()

    def _append(self, texts: Sequence[bytes], lengths: I64) -> I64:
        """Append texts; return where each begins."""
        more, first = b"".join(texts), self._filled
        if (end := first + len(more)) > len(self._ids.texts):
            larger = np.empty(end + self._room(first), np.uint8)
            larger[:first] = self._ids.texts[:first]
            self._ids = _Ids(self._ids.spans.copy(), larger)
        self._ids.texts[first:end] = np.frombuffer(more, np.uint8)
        self._filled = end
        starts: I64 = first + np.cumsum(lengths) - lengths
        return starts

    def joined(self, numbers: I64) -> tuple[memoryview[int], I64]:
        """Return ids as JSON, each with a comma behind it, and where each begins, and the end."""
        out, starts = _joined(self._ids, numbers)
        return out.data, starts

    def listed(self, numbers: I64) -> list[Id]:
        """Return ids."""
        out, _ = self.joined(numbers)
        return _decode(b"".join((b"[", out[:-1], b"]")))


def _joined(ids: _Ids, numbers: I64) -> tuple[U8, I64]:
    """Return texts, each with a comma behind it, and where each begins, and the end."""
    wanted = ids.spans[numbers]
    out = np.empty(len(wanted) + int((wanted & _LONG).sum()), np.uint8)
    starts = np.zeros(len(wanted) + 1, np.int64)
    _write(wanted, ids.texts, out, starts)
    return out, starts


def _length_of(spans: I64) -> int:
    """Return the bytes of the texts of some numbers, without those that have none."""
    return int((spans[spans > _LONG] & _LONG).sum())


@jit
def _write(spans: I64, texts: U8, out: U8, starts: I64) -> None:
    """Write texts, each with a comma."""
    at = 0
    for i in range(len(spans)):
        first, length = (spans[i] & ~_GONE) >> _LENGTH, spans[i] & _LONG
        for j in range(length):
            out[at + j] = texts[first + j]
        at += length
        out[at] = _COMMA
        at += 1
        starts[i + 1] = at
