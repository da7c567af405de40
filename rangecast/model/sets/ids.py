"""Ids of input rows: type inference and duplicate detection.

An id is a 64-bit integer or a non-empty text. All ids of a source get one type: in CSV and JSON
Lines they are integers if every one of them is (`007` is a text), elsewhere if they have that type.

Consecutive ids, such as row numbers, cost nothing to check. Otherwise the ids seen so far are kept
as sorted runs of 64-bit keys (the integer itself, or a text's hash), merged like a binary counter:
8 bytes per id. A key that was seen before is looked up in the source itself, which tells a true
duplicate from a hash collision, and gives its first row.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rangecast.errors import UsageError
from rangecast.kernels.arrays import I64, Bool
from rangecast.model.attributes.base import INT64_MAX, plain
from rangecast.model.encoding.casts import is_text
from rangecast.model.io.batch import Batch, Values
from rangecast.model.sets.members import Id, as_id

NO_ID = "an id must be an integer or a non-empty string"

_WHOLE = r"^(0|-?[1-9][0-9]{0,17})$"


def as_ids(values: Values, kind: pa.DataType) -> tuple[pa.Array, Bool]:
    """Return ids as one type, and a mask of the invalid ones: missing, fractions, booleans."""
    if isinstance(values, list):
        ids = pa.array([_as_kind(id_or_none(value), kind) for value in values], kind)
    else:
        ids = _cast(values, kind)
    return ids, np.asarray(ids.is_null().to_numpy(zero_copy_only=False), dtype=np.bool_)


def id_or_none(value: object) -> Id | None:
    """Return a valid id as a Python integer or text; `None` for any other value."""
    try:
        return as_id(plain(value))
    except UsageError:
        return None


def _as_kind(id_: Id | None, kind: pa.DataType) -> Id | None:
    if id_ is None or not pa.types.is_integer(kind):
        return None if id_ is None else str(id_)
    return int(id_) if isinstance(id_, int) or re.match(_WHOLE, id_) else None


def _cast(ids: pa.Array, kind: pa.DataType) -> pa.Array:
    if pa.types.is_dictionary(ids.type):
        ids = ids.dictionary_decode()
    if pa.types.is_uint64(ids.type):
        ids = pc.if_else(pc.greater(ids, pa.scalar(INT64_MAX, pa.uint64())), None, ids)
    elif is_text(ids.type):
        if pa.types.is_integer(kind):
            ids = pc.if_else(pc.match_substring_regex(ids, _WHOLE), ids, None)
        elif pc.any(is_empty := pc.equal(ids, pa.scalar("", ids.type))).as_py():  # "" loads pandas
            ids = pc.if_else(is_empty, pa.scalar(None, ids.type), ids)
    elif not pa.types.is_integer(ids.type):
        return pa.nulls(len(ids), kind)
    return ids.cast(kind)


def _are_whole(ids: Values, texts_too: bool) -> bool:
    """Return whether all valid ids are integers, or with `texts_too`, texts of integers."""
    if isinstance(ids, list):
        whole = [id_ for id_ in map(id_or_none, ids) if id_ is not None]
        texts = [id_ for id_ in whole if isinstance(id_, str)]
        if texts and len(texts) < len(whole) and not texts_too:
            raise UsageError(
                "ids must be all integers or all strings; given: both\n"
                "  hint: give all of them as strings"
            )
        return not texts or (texts_too and all(re.match(_WHOLE, text) for text in texts))
    kind = ids.type.value_type if pa.types.is_dictionary(ids.type) else ids.type
    if not is_text(kind):
        return True
    if not texts_too:
        return False
    return bool(pc.all(pc.match_substring_regex(ids, _WHOLE), min_count=0).as_py())


def id_type(columns: Iterable[Values], *, texts_too: bool) -> pa.DataType | None:
    """Return the common type of the ids of a source, given column by column; `None` if it has none.

    With `texts_too`, texts may stand for integers. Otherwise the first column determines the type.
    """
    kind = None
    for ids in columns:
        if not _are_whole(ids, texts_too):
            return pa.large_string()
        kind = pa.int64()
        if not texts_too and not isinstance(ids, list):
            break
    return kind


class Duplicates:
    """Finds duplicate ids of a source; `read` reads it from the start."""

    def __init__(self, read: Callable[[], Iterator[Batch]]):
        self._read = read
        self._begin = self._end = 0
        """All integers from here to there were seen: what row numbers come to."""
        self._runs: list[I64] = []
        """Other keys, each run ascending and longer than the one after it."""

    def find(self, batch: Batch, ids: pa.Array, is_valid: Bool) -> Iterator[tuple[int, int]]:
        """Yield the index of each duplicate among the valid ids, and the row of the original."""
        keys = _keys(ids)[is_valid]
        if pa.types.is_integer(ids.type) and self._continued(keys):
            return
        order = np.argsort(keys, kind="stable")
        ordered = keys[order]
        seen = np.zeros(len(keys), np.bool_)
        seen[1:] = ordered[1:] == ordered[:-1]
        if self._begin < self._end:
            seen |= (ordered >= self._begin) & (ordered < self._end)
        for run in self._runs:
            at = np.minimum(np.searchsorted(run, ordered), len(run) - 1)
            seen |= run[at] == ordered
        self._enter(ordered[~seen])
        if seen.any():
            yield from self._confirmed(batch, ids, np.sort(np.flatnonzero(is_valid)[order[seen]]))

    def _continued(self, keys: I64) -> bool:
        """Return whether the ids continue a consecutive sequence, or there are none."""
        if not len(keys):
            return True
        if (
            self._runs
            or int(keys[-1]) - int(keys[0]) != len(keys) - 1
            or (np.diff(keys) != 1).any()
        ):
            return False
        if self._begin < self._end != keys[0]:
            return False
        if self._begin == self._end:
            self._begin = int(keys[0])
        self._end = int(keys[-1]) + 1
        return True

    def _enter(self, run: I64) -> None:
        while self._runs and len(self._runs[-1]) <= len(run):
            run = np.sort(np.concatenate([self._runs.pop(), run]), kind="stable")
        if len(run):
            self._runs.append(run)

    def _confirmed(self, batch: Batch, ids: pa.Array, places: I64) -> Iterator[tuple[int, int]]:
        """Yield true duplicates, ruling out hash collisions."""
        wanted = {ids[index].as_py() for index in places.tolist()}
        first: dict[Id, int] = {}
        for earlier in self._read():
            if "id" not in earlier.columns:
                continue
            ids_, _ = as_ids(earlier.columns["id"], ids.type)
            hits = pc.is_in(ids_, pa.array(list(wanted), ids.type))
            for index in np.flatnonzero(hits.to_numpy(zero_copy_only=False)).tolist():
                first.setdefault(ids_[index].as_py(), int(earlier.rows[index]))
            if len(first) == len(wanted):
                break
        for index in places.tolist():
            row = first[ids[index].as_py()]
            if row < batch.rows[index]:
                yield index, row


def _keys(ids: pa.Array) -> I64:
    if pa.types.is_integer(ids.type):
        return np.asarray(ids.fill_null(0).to_numpy(zero_copy_only=False), dtype=np.int64)
    return np.fromiter(map(hash, ids.to_pylist()), np.int64, len(ids))


class Places:
    """Index of a list of ids; ids of another file are looked up as texts or as integers."""

    def __init__(self, ids: pa.Array):
        self._whole = pa.types.is_integer(ids.type)
        if self._whole:
            values = ids.to_numpy()
            self._order = np.argsort(values, kind="stable")
            self._sorted = values[self._order]
        else:
            self._of = {text: index for index, text in enumerate(ids.to_pylist())}

    def find(self, ids: pa.Array) -> I64:
        """Return the index of each id in the list, or -1 if absent."""
        coded = ids if pa.types.is_dictionary(ids.type) else ids.dictionary_encode()
        places = self._find(coded.dictionary) if len(coded.dictionary) else np.zeros(0, np.int64)
        codes = coded.indices.fill_null(len(places)).to_numpy(zero_copy_only=False)
        return np.asarray(np.append(places, -1)[codes], dtype=np.int64)

    def _find(self, ids: pa.Array) -> I64:
        if not self._whole:
            of = self._of
            texts = ids.cast(pa.large_string()).to_pylist()
            return np.fromiter((of.get(text, -1) for text in texts), np.int64, len(texts))
        if not pa.types.is_integer(ids.type):
            ids, _ = as_ids(ids.cast(pa.large_string()), pa.int64())
        known = ids.is_valid().to_numpy(zero_copy_only=False)
        values = ids.fill_null(0).to_numpy(zero_copy_only=False)
        if not len(self._sorted):
            return np.full(len(values), -1)
        at = np.minimum(np.searchsorted(self._sorted, values), len(self._sorted) - 1)
        hits = known & (self._sorted[at] == values)
        return np.where(hits, self._order[at], -1)
