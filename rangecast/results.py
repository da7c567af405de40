"""Results of `match_many` and `rank_many`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from rangecast.kernels.arrays import I32, I64, AnyArray
from rangecast.match.result import MatchRows, joined
from rangecast.model.answers.results import Results
from rangecast.model.display import counted
from rangecast.model.sets.id_lists import IdLists
from rangecast.model.sets.members import Id
from rangecast.model.sets.rowstore import RowArrays
from rangecast.rank.result import Best


class Matches(Results[list[Id]]):
    """Matching subscriptions of each event, in order of arrival."""

    __slots__ = ("_found", "_lists", "event_ids", "kept")

    def __init__(
        self,
        matched: tuple[MatchRows, ...] | I32,
        event_ids: pa.Array | None,
        kept: pa.Table | None,
        lists: IdLists,
    ):
        """Create the result from the matched rows, given in chunks or for a single event."""
        self._found = matched
        self.event_ids = event_ids
        """Event ids of the batch; `None`: its events are numbered from 0."""
        self.kept = kept
        """Kept columns of the events, one row per event; `None` if there are none."""
        self._lists = lists

    @property
    def pieces(self) -> tuple[MatchRows, ...]:
        """Matches as rows of the set, in chunks of consecutive events.

        Each matching thread contributes its own chunks.
        """
        if isinstance(self._found, np.ndarray):
            self._found = (MatchRows(np.array((0, len(self._found))), self._found),)
        return self._found

    @property
    def matches(self) -> MatchRows:
        """Matches as rows of the set. The chunks are concatenated on first use."""
        if len(self.pieces) > 1:
            self._found = (joined(self.pieces),)
        return self.pieces[0]

    def __len__(self) -> int:
        return sum(len(piece.offsets) - 1 for piece in self.pieces)

    def _item(self, index: int) -> list[Id]:
        for piece in self.pieces:
            events = len(piece.offsets) - 1
            if index < events:
                break
            index -= events
        return self._lists.list(piece.of(index))

    def _size(self) -> str:
        count = sum(len(piece.rows) for piece in self.pieces)
        return f"{counted(count, 'match', 'matches')} of {counted(len(self), 'event')}"

    def _header(self) -> tuple[str, ...]:
        return "event", "subscriptions"

    def _label(self, index: int) -> Any:
        return index if self.event_ids is None else self.event_ids[index].as_py()

    @property
    def ids(self) -> AnyArray:
        """Ids of all matches, event by event as in `matches`, in any order within an event."""
        ids_ = [self._lists.ids[piece.rows] for piece in self.pieces]
        return ids_[0] if len(ids_) == 1 else np.concatenate(ids_)

    def split(self, pairs: int) -> Iterator[Matches]:
        """Split the matches into runs of consecutive events, without copying.

        Each run has at most `pairs` pairs, or is a single event.
        """
        first = 0
        if len(self.pieces) == 1 and len(self) and len(self.pieces[0].rows) <= pairs:
            yield self
            return
        for piece in self.pieces:
            offsets, begin, events = piece.offsets, 0, len(piece.offsets) - 1
            while begin < events:
                fitting = int(np.searchsorted(offsets, offsets[begin] + pairs, "right")) - 1
                end = max(begin + 1, fitting)
                rows = piece.rows[offsets[begin] : offsets[end]]
                matches = MatchRows(offsets[begin : end + 1] - offsets[begin], rows)
                own = slice(first + begin, first + end)
                yield Matches(
                    (matches,),
                    None if self.event_ids is None else self.event_ids[own],
                    None if self.kept is None else self.kept[own],
                    self._lists,
                )
                begin = end
            first += events

    def table(self) -> pa.Table:
        """Return all pairs: the columns event and subscription, and the kept columns.

        Events are in order. The subscriptions of an event are not sorted.
        """
        tables, first = [], 0
        for piece in self.pieces:
            columns = {
                "event": _events(self.event_ids, piece.events + first),
                "subscription": _subscriptions(self._lists.ids, piece.rows),
            }
            tables.append(_with_kept(columns, self.kept, piece.events + first))
            first += len(piece.offsets) - 1
        return pa.concat_tables(tables)


@dataclass(slots=True, eq=False, repr=False)
class Rankings(Results[list[tuple[Id, float]]]):
    """Top subscriptions of each event with their scores, best first."""

    best: Best
    """The rankings as rows of the set."""
    event_ids: pa.Array | None
    """Event ids of the batch; `None`: its events are numbered from 0."""
    kept: pa.Table | None
    """Kept columns of the events, one row per event; `None` if there are none."""
    _rows: RowArrays

    def __len__(self) -> int:
        return len(self.best.counts)

    def _item(self, index: int) -> list[tuple[Id, float]]:
        return ranking(self.best, index, self._rows)

    def _size(self) -> str:
        return f"{int(self.best.counts.sum()):,} ranked for {counted(len(self), 'event')}"

    def _header(self) -> tuple[str, ...]:
        return "event", "subscriptions and scores"

    def _label(self, index: int) -> Any:
        return index if self.event_ids is None else self.event_ids[index].as_py()

    def table(self) -> pa.Table:
        """Return all rankings: the columns event, rank, subscription, score and the kept ones."""
        event, rank, rows, scores = self.best.pairs()
        columns = {
            "event": _events(self.event_ids, event),
            "rank": pa.array(rank),
            "subscription": _subscriptions(self._rows.ids, rows),
            "score": pa.array(scores),
        }
        return _with_kept(columns, self.kept, event)


def ranking(best: Best, event: int, rows: RowArrays) -> list[tuple[Id, float]]:
    """Return the top subscriptions of one event with their scores, best first."""
    count = int(best.counts[event])
    ids, scores = rows.ids.take(best.rows[event, :count]), best.scores[event, :count]
    return list(zip(ids.tolist(), scores.tolist(), strict=True))


def separated(ids: pa.Array) -> tuple[pa.Array, pa.Table | None]:
    """Separate the ids of the events from the kept columns."""
    if not pa.types.is_struct(ids.type):
        return ids, None
    first, *kept = ids.flatten()
    return first, pa.table(kept, names=[ids.type.field(n + 1).name for n in range(len(kept))])


def _events(ids: pa.Array | None, places: I64) -> pa.Array:
    return pa.array(places) if ids is None else ids.take(pa.array(places))


def _with_kept(columns: dict[str, pa.Array], kept: pa.Table | None, events: I64) -> pa.Table:
    """Add the kept columns to a table, as `event_<name>` if the name is already used."""
    table = pa.table(columns)
    if kept is not None:
        taken = kept.take(pa.array(events))
        for name, column in zip(kept.column_names, taken.columns, strict=True):
            table = table.append_column(f"event_{name}" if name in columns else name, column)
    return table


def _subscriptions(every: AnyArray, matched: I32) -> pa.Array:
    ids = every[matched]
    if every.dtype == np.int64:
        return pa.array(ids, pa.int64())
    try:
        return pa.array(ids, pa.large_string())
    except pa.ArrowTypeError:  # a server may have ids of both kinds
        return pa.array([str(id_) for id_ in ids], pa.large_string())
