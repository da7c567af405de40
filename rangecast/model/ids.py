"""Ids at the edge: their type in text formats, and the search for those that stand twice.

An id may be an integer or a text. Ids that only ascend, as row numbers do, cost nothing to check.
Otherwise what was seen is kept as sorted runs of 64-bit keys (the integer itself, or a text's
hash), merged like a binary counter: 8 bytes an id. A key that was seen before is looked up in the
file itself, which tells a true duplicate from two texts with the same hash, and its first row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rangecast.errors import BadRow, FileError
from rangecast.kernels.arrays import I64, Bool
from rangecast.model.badrows import BadRows
from rangecast.model.files import Batch

_WHOLE = r"^(0|-?[1-9][0-9]{0,17})$"


def is_whole(ids: pa.Array) -> bool:
    """Whether all ids are integers, also when written as texts (but `007` is a text)."""
    if pa.types.is_integer(ids.type) or pa.types.is_null(ids.type):
        return True
    if not (pa.types.is_string(ids.type) or pa.types.is_large_string(ids.type)):
        return False
    return bool(pc.all(pc.match_substring_regex(ids, _WHOLE), min_count=0).as_py())


def id_type(batches: Iterator[Batch], *, columnar: bool) -> pa.DataType | None:
    """Return the type of a file's ids: int64 if all are whole numbers, else text; `None`: no ids.

    A columnar file has one type for all; of others every row must be looked at.
    """
    for _, data in batches:
        if "id" not in data.schema.names:
            return None
        if not is_whole(data.column("id")):
            return pa.large_string()
        if columnar:
            break
    return pa.int64()


def as_ids(ids: pa.Array, kind: pa.DataType) -> tuple[pa.Array, Bool]:
    """Return ids as one type, and which of them are not to be had (null, or a list)."""
    if pa.types.is_dictionary(ids.type):
        ids = ids.dictionary_decode()
    bad = ids.is_null().to_numpy(zero_copy_only=False)
    try:
        return ids.cast(kind), np.asarray(bad, dtype=np.bool_)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return pa.nulls(len(ids), kind), np.ones(len(ids), np.bool_)


class Places:
    """Where each id of a list stands; ids of another file are looked up as texts or as integers."""

    def __init__(self, ids: pa.Array):
        self._whole = pa.types.is_integer(ids.type)
        if self._whole:
            values = ids.to_numpy()
            self._order = np.argsort(values, kind="stable")
            self._sorted = values[self._order]
        else:
            self._of = {text: place for place, text in enumerate(ids.to_pylist())}

    def find(self, ids: pa.Array) -> I64:
        """Return the place of each id, -1 for one that isn't in the list."""
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
            texts = ids.cast(pa.large_string())
            whole = pc.match_substring_regex(texts, _WHOLE)
            ids = pc.if_else(whole, texts, None).cast(pa.int64())
        known = ids.is_valid().to_numpy(zero_copy_only=False)
        values = ids.fill_null(0).to_numpy(zero_copy_only=False)
        if not len(self._sorted):
            return np.full(len(values), -1)
        place = np.minimum(np.searchsorted(self._sorted, values), len(self._sorted) - 1)
        found = known & (self._sorted[place] == values)
        return np.where(found, self._order[place], -1)


class Duplicates:
    """Finds the ids of a file that stood there before."""

    def __init__(self, source: str, bad: BadRows, again: Callable[[], Iterator[Batch]]):
        self._source = source
        self._bad = bad
        self._again = again
        self._largest: int | None = None
        self._runs: list[I64] = []

    def check(self, batch: Batch, kind: pa.DataType | None) -> tuple[pa.Array, Bool]:
        """Return a batch's ids and which rows may go on; `None`: the ids are the row numbers."""
        good = np.ones(len(batch.rows), np.bool_)
        named = "id" in batch.data.schema.names
        if kind is None and not named:
            return pa.array(batch.rows), good
        if kind is None or not named:
            raise FileError(
                f"{self._source}: some rows have an id and some have none, from row "
                f"{batch.rows[0]} on; give one to all or to none"
            )
        ids, missing = as_ids(batch.data.column("id"), kind)
        for place in np.flatnonzero(missing).tolist():
            self._refuse(batch, place, "an id is an integer or a text, and never missing")
        good &= ~missing
        suspects = self._suspects(ids, good)
        for place, first in self._confirmed(batch, ids, suspects):
            self._refuse(batch, place, f"the id stands in row {first} already")
            good[place] = False
        return ids, good

    def _refuse(self, batch: Batch, place: int, reason: str) -> None:
        data = {name: str(batch.data.column(name)[place]) for name in batch.data.schema.names}
        remedy = "give each row an id of its own"
        row = int(batch.rows[place])
        self._bad.add(BadRow(self._source, row, "id", data["id"], reason, remedy), data)

    def _keys(self, ids: pa.Array) -> I64:
        if pa.types.is_integer(ids.type):
            return np.asarray(ids.fill_null(0).to_numpy(zero_copy_only=False), dtype=np.int64)
        return np.fromiter(map(hash, ids.to_pylist()), np.int64, len(ids))

    def _suspects(self, ids: pa.Array, good: Bool) -> list[int]:
        """Return the places whose key was seen before, and enter the keys."""
        keys = self._keys(ids)
        some = keys[good]
        if not len(some):
            return []
        ascends = pa.types.is_integer(ids.type) and bool((np.diff(some) > 0).all())
        if ascends and not self._runs and (self._largest is None or some[0] > self._largest):
            self._largest = int(some[-1])
            return []
        if not self._runs and self._largest is not None:
            self._runs.append(self._entered_so_far())
        order = np.argsort(keys, kind="stable")
        order = order[good[order]]
        ordered = keys[order]
        again = np.zeros(len(order), np.bool_)
        again[1:] = ordered[1:] == ordered[:-1]
        for run in self._runs:
            place = np.minimum(np.searchsorted(run, ordered), len(run) - 1)
            again |= run[place] == ordered
        self._enter(ordered[~again])
        return sorted(order[again].tolist())

    def _entered_so_far(self) -> I64:
        """Return the keys that ascended and so were not kept: read them once more."""
        kept: list[I64] = []
        for batch in self._again():
            ids, _ = as_ids(batch.data.column("id"), pa.int64())
            keys = self._keys(ids)
            ends = np.flatnonzero(keys == self._largest)
            kept.append(keys[: ends[0] + 1] if len(ends) else keys)
            if len(ends):
                break
        return np.unique(np.concatenate(kept))

    def _enter(self, run: I64) -> None:
        while self._runs and len(self._runs[-1]) <= len(run):
            run = np.sort(np.concatenate([self._runs.pop(), run]), kind="stable")
        if len(run):
            self._runs.append(run)

    def _confirmed(
        self, batch: Batch, ids: pa.Array, suspects: list[int]
    ) -> Iterator[tuple[int, int]]:
        """Yield (place, row where the same id stood first) of true duplicates, in one reading."""
        if not suspects:
            return
        wanted = {ids[place].as_py() for place in suspects}
        first: dict[object, int] = {}
        for earlier in self._again():
            found, _ = as_ids(earlier.data.column("id"), ids.type)
            hits = pc.is_in(found, pa.array(list(wanted), ids.type))
            for place in np.flatnonzero(hits.to_numpy(zero_copy_only=False)).tolist():
                first.setdefault(found[place].as_py(), int(earlier.rows[place]))
            if len(first) == len(wanted):
                break
        for place in suspects:
            row = first[ids[place].as_py()]
            if row < batch.rows[place]:
                yield place, row
