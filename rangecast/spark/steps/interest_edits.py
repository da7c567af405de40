"""Edits of interests, which come, change and go between the batches of updates.

An edit is checked as a whole before anything is written. It goes to the buckets where its interests
lie: a few small files, whatever the size of the set. The lists of interests that come are made from
the objects as they are.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Collection
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rangecast.errors import UsageError
from rangecast.kernels.arrays import I32
from rangecast.model.badrows import KeptRows
from rangecast.model.members import Id
from rangecast.model.records import table_source
from rangecast.notify.line_board import LineBoard
from rangecast.notify.tables import InterestColumns, read_interests
from rangecast.spark.steps.buckets import State, Work
from rangecast.spark.steps.open_bucket import Entries, OpenBucket, cut
from rangecast.store.edits import OPS

EDIT_COLUMNS = ("id", "op", "x_lo", "x_hi", "k")
_NAMED = 10
"""Ids that an error names."""


class InterestEdits(NamedTuple):
    """Interests that leave, and interests that come; one that is replaced does both."""

    gone: list[Id]
    new: InterestColumns


def checked_edits(rows: pa.Table, board: LineBoard) -> InterestEdits:
    """Return the edits of a table; refuse all of them if one can't be applied."""
    ids: list[Any] = rows["id"].to_pylist()
    ops = rows["op"].to_pylist()
    for one, op in zip(ids, ops, strict=True):
        if op not in OPS:
            raise _refused(f"an op is {', '.join(OPS)}; given: {op!r} for {one!r}")
    if None in ids:
        raise _refused(f"{ids.count(None):,} of them have no id")
    several = [one for one, count in Counter(ids).items() if count > 1]
    if several:
        raise _refused(f"duplicate id: {_named(several)}; an interest is edited once")
    coming = [one for one, op in zip(ids, ops, strict=True) if op == "subscribe"]
    gone = [one for one, op in zip(ids, ops, strict=True) if op != "subscribe"]
    known = [one for one in coming if one in board]
    if known:
        raise _refused(f"already subscribed: {_named(known)}; use replace")
    unknown = [one for one in gone if one not in board]
    if unknown:
        raise _refused(f"not subscribed: {_named(unknown)}")
    new = rows.filter(pc.not_equal(rows["op"], "unsubscribe")).drop_columns("op")
    bad = KeptRows()
    source = table_source(new, "edits of interests", nan_is_null=True)
    ranges = read_interests(source, bad, most=board.k)
    for wrong, data in bad.kept:
        raise _refused(f"column {wrong.column!r}: {wrong.reason}; given: {data}")
    return InterestEdits(gone, ranges)


def _refused(reason: str) -> UsageError:
    return UsageError(f"edits of interests: {reason}\n  to do: correct them; nothing was applied")


def _named(ids: Collection[Any]) -> str:
    some = ", ".join(repr(one) for one in sorted(ids)[:_NAMED])
    return some if len(ids) <= _NAMED else f"{some} and {len(ids) - _NAMED:,} more"


def apply_edits(
    folder: Path, state: State, edits: InterestEdits, board: LineBoard, most: int
) -> State:
    """Return the state after edits that `board` doesn't know yet.

    A bucket that is made has at most `most` interests.
    """
    starts = [tuple(bucket.start) for bucket in state.buckets]
    opened: dict[int, OpenBucket] = {}

    def bucket_of(number: int) -> OpenBucket:
        if number not in opened:
            opened[number] = OpenBucket(folder, state.buckets[number], board.k)
        return opened[number]

    looked_for: dict[int, list[Id]] = defaultdict(list)
    for one in edits.gone:
        interest = board[one]
        key = interest.lo, interest.hi
        first = max(bisect_left(starts, key) - 1, 0)
        for number in range(first, max(bisect_right(starts, key), 1)):
            looked_for[number].append(one)
    leaving: dict[int, I32] = {}
    own_k: dict[Id, int] = {}
    for number, some in looked_for.items():
        table = bucket_of(number).table
        rows = table.filter(pc.is_in(table["id"], value_set=pa.array(some, table["id"].type)))
        leaving[number] = rows["place"].to_numpy()
        own_k.update(zip(rows["id"].to_pylist(), rows["k"].to_pylist(), strict=True))
    assert len(own_k) == len(edits.gone), "an interest lies outside of its bucket"

    ids, lo, hi, wanted = edits.new
    entries = Entries.now(board.line, lo, hi, board.k)
    shown = [
        wanted.get(place, own_k.get(one, board.k)) for place, one in enumerate(ids.to_pylist())
    ]
    kind = pa.string() if state.id == "string" else pa.int64()
    columns = {"id": ids.cast(kind), "x_lo": lo, "x_hi": hi, "k": pa.array(shown, pa.int32())}
    new = pa.table(columns)
    if not state.buckets:
        made = cut(folder, new, entries, most)
        return state._replace(buckets=made, work=Work(len(new), len(new)))
    keys = zip(lo.tolist(), hi.tolist(), strict=True)
    home = np.array([max(bisect_right(starts, key) - 1, 0) for key in keys], np.int64)
    buckets = [[bucket] for bucket in state.buckets]
    works = [Work()]
    for number in sorted({*leaving, *home.tolist()}):
        here = np.flatnonzero(home == number)
        gone = leaving.get(number, np.zeros(0, np.int32))
        if len(gone) or len(here):
            made, work = bucket_of(number).edit(gone, new.take(here), entries.take(here), most)
            buckets[number] = made
            works.append(work)
    after = [bucket for some in buckets for bucket in some]
    return state._replace(buckets=after, work=Work.total(works))
