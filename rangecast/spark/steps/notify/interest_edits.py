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
from rangecast.model.io.rejected import CollectedRows
from rangecast.model.sets.members import Id
from rangecast.notify.board import Board
from rangecast.notify.new_interests import NewInterests
from rangecast.spark.steps.notify.board_schema import (
    BoardSchema,
    box_table,
    error_as_text,
    points_of,
)
from rangecast.spark.steps.notify.buckets import State, Work
from rangecast.spark.steps.notify.open_bucket import Entries, OpenBucket, cut

OPS = ("subscribe", "replace", "unsubscribe")
_NAMED = 10
"""Ids that an error names."""


class InterestEdits(NamedTuple):
    """Interests that leave, and interests that come; one that is replaced does both."""

    gone: list[Id]
    new: NewInterests


def checked_edits(rows: pa.Table, board: Board, board_schema: BoardSchema) -> InterestEdits:
    """Return the edits of a table; reject all of them if one can't be applied."""
    ids: list[Any] = rows["id"].to_pylist()
    ops = rows["op"].to_pylist()
    for one, op in zip(ids, ops, strict=True):
        if op not in OPS:
            raise _rejected(f"op must be one of {', '.join(OPS)}; given: {op!r} for {one!r}")
    if None in ids:
        raise _rejected(f"{ids.count(None):,} of them have no id")
    several = [one for one, count in Counter(ids).items() if count > 1]
    if several:
        raise _rejected(f"duplicate id: {_named(several)}; edit an interest only once")
    coming = [id_ for id_, op in zip(ids, ops, strict=True) if op == "subscribe"]
    gone = [id_ for id_, op in zip(ids, ops, strict=True) if op != "subscribe"]
    known = [one for one in coming if one in board]
    if known:
        raise _rejected(f"already subscribed: {_named(known)}; use replace")
    unknown = [one for one in gone if one not in board]
    if unknown:
        raise _rejected(f"not subscribed: {_named(unknown)}")
    new = rows.filter(pc.not_equal(rows["op"], "unsubscribe")).drop_columns("op")
    bad = CollectedRows()
    interests = board_schema.read(new, "edits of interests", bad, board.k)
    for one in bad.kept:
        raise _rejected(error_as_text(*one))
    return InterestEdits(gone, interests)


def _rejected(reason: str) -> UsageError:
    return UsageError(f"edits of interests: {reason}\n  hint: correct them; nothing was applied")


def _named(ids: Collection[Any]) -> str:
    shown = ", ".join(repr(id_) for id_ in sorted(ids)[:_NAMED])
    return shown if len(ids) <= _NAMED else f"{shown} and {len(ids) - _NAMED:,} more"


def apply_edits(folder: Path, state: State, edits: InterestEdits, board: Board, most: int) -> State:
    """Return the state after edits that `board` doesn't know yet.

    A bucket that is made has at most `most` boxes.
    """
    starts = [tuple(bucket.start) for bucket in state.buckets]
    opened: dict[int, OpenBucket] = {}

    def bucket_of(number: int) -> OpenBucket:
        if number not in opened:
            opened[number] = OpenBucket(folder, state.buckets[number], board.k)
        return opened[number]

    looked_for: dict[int, set[Id]] = defaultdict(set)
    boxes = 0
    for one in edits.gone:
        for key in map(tuple, board.bounds(one).tolist()):
            boxes += 1
            first = max(bisect_left(starts, key) - 1, 0)
            for number in range(first, max(bisect_right(starts, key), 1)):
                looked_for[number].add(one)
    leaving: dict[int, I32] = {}
    own_k: dict[Id, int] = {}
    for number, some in looked_for.items():
        table = bucket_of(number).table
        mine = pa.array(list(some), table["id"].type)
        rows = table.filter(pc.is_in(table["id"], value_set=mine))
        leaving[number] = rows["place"].to_numpy()
        own_k.update(zip(rows["id"].to_pylist(), rows["k"].to_pylist(), strict=True))
    assert sum(map(len, leaving.values())) == boxes, "a box lies outside of its bucket"

    ids = edits.new.ids.to_pylist()
    kept = {index: own_k[id_] for index, id_ in enumerate(ids) if id_ in own_k}
    new = box_table(edits.new._replace(wanted=kept | edits.new.wanted), board.k, state.id)
    state = state._replace(several=state.several or len(new) > len(ids))
    points = points_of(new)
    entries = Entries.of(board.lists(points))
    if not state.buckets:
        made = cut(folder, new, entries, most)
        return state._replace(buckets=made, work=Work(len(new), len(new)))
    keys = map(tuple, points.tolist())
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
