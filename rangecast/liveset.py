"""The live set of an engine: its rows, its edits, and its background rebuilds.

Consistency. A query reads one immutable `LiveView`: some static indexes (`parts`), the newest rows,
which are compared one by one, and the number of the last edit. An edit first prepares everything
that readers don't see yet: rows after the last visible one, and new indexes. Then it marks the
rows that it removes with its own number and publishes a new view by one assignment. So a query sees
all of an edit or none of it, and an edit that fails leaves the set unchanged.

Speed. More than `RECENT` new rows become a part of their own; `FAN` small parts are merged into
one. When a quarter of the set is new or dead, a background thread rebuilds all live rows, replays
the edits made in the meantime, and replaces the view.

Edits are serialized by a lock. A fork waits for the current edit; the child has no background
thread, and starts its own rebuild when one is due.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from rangecast.device.devices import check_device_index
from rangecast.device.live import DeviceSet
from rangecast.kernels.arrays import I64
from rangecast.match.choose import build_candidates, check_index
from rangecast.match.warmup import begin_selection
from rangecast.model.boxes import Boxes
from rangecast.model.filters.filter import Filter
from rangecast.model.filters.formatting import text_of
from rangecast.model.io.rejected import RejectedTarget
from rangecast.model.sets.base import Subscription, SubscriptionSet, UpsertResult
from rangecast.model.sets.forks import register_for_forks
from rangecast.model.sets.live_view import IndexPart, LiveView
from rangecast.model.sets.members import Id, Members, as_id
from rangecast.model.sets.rowstore import (
    NEVER,
    RowArrays,
    append,
    append_one,
    boxes_of,
    mark_dead,
    no_rows,
    terms_of,
    with_room_for_deaths,
)
from rangecast.model.shapes.verification.candidates import Verifier
from rangecast.model.space import Space
from rangecast.model.validation.arguments import score_of, weights_of
from rangecast.model.validation.inputs import as_boxes, as_filter, as_replacements
from rangecast.rank.choose import check_index as check_rank_index
from rangecast.rank.live import ranked_part
from rangecast.rebuilt import Part, Rebuilt, View, without_own_boxes

_log = logging.getLogger(__name__)
RECENT = 512
"""Maximum number of new rows that are scanned; beyond it they become a part."""
FAN = 4
"""Number of parts of similar size that are merged into one."""
SMALL = 1 << 18
"""Size beyond which a part is merged only in the background."""
_DICT_PIECE = 10_000
"""Ids that the background thread indexes at a time, so that other threads can run in between."""


class LiveSet(SubscriptionSet):
    """Mutable set of subscriptions; `Engine` adds the queries.

    index        matching index: `auto`, or a name from `rangecast.match.choose.INDEXES`,
                 optionally with options: `vcr:side=16`
    rank_index   ranking index: `auto`, or a name from `rangecast.rank.choose.INDEXES`
    device       `cuda`: match and rank on a GPU, without parts; `None`: on the CPU
    """

    def __init__(
        self,
        space: Space,
        *,
        index: str = "auto",
        rank_index: str = "auto",
        device: str | None = None,
    ):
        super().__init__(space)
        check_index(index)
        check_rank_index(rank_index)
        check_device_index(device, index)
        check_device_index(device, rank_index)
        self.index = index
        self.rank_index = rank_index
        self.device = device
        self.rebuild_count = 0
        """Number of background rebuilds that have succeeded."""
        self._one = 1, len(space)
        """Shape of a single point."""
        self._edits = threading.RLock()
        self._rebuilding: threading.Thread | None = None
        self._rebuilt_to = 0
        self._failure: Exception | None = None
        self._view: View = LiveView(
            no_rows(), 0, dead=0, edit=0, arrivals=0, verifier=Verifier.of(space)
        )
        verifier = self._view.verifier
        free = frozenset(() if verifier is None else verifier.places.axes)
        self._on_device = None if device is None else DeviceSet(device, len(space), free)
        register_for_forks(self)

    def __iter__(self) -> Iterator[Id]:
        """Iterate over the ids in order of arrival; later edits don't affect the iteration."""
        view = self._view
        ids: list[Id] = view.rows.ids[view.live()].tolist()
        return iter(ids)

    def __getitem__(self, subscription: Id) -> Subscription:
        """Return the filter, the score and the weights of a subscription."""
        with self._edits:
            row, rows = self._members.row(subscription), self._view.rows
        weights = {}
        if rows.weights is not None:
            pairs = zip(self.space.names, rows.weights[row].tolist(), strict=True)
            weights = {name: weight for name, weight in pairs if weight != 1}
        text = text_of(self.space, terms_of(rows, row))
        return Subscription(as_id(subscription), text, float(rows.scores[row]), weights)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the subscriptions and options; a copy is an independent set."""
        boxes = self.boxes()
        options = {"index": self.index, "rank_index": self.rank_index, "device": self.device}
        return _restored, (type(self), self.space, options, boxes)

    def boxes(self, first: int | None = None) -> Boxes:
        """Return the live subscriptions in order of arrival: all, or only the first `first`."""
        return boxes_of_view(self._view, self.space, first)

    @property
    def id_type(self) -> pa.DataType | None:
        """Type of the ids; `None` if the set has never had a subscription that determines it."""
        if not len(self):
            return None
        return pa.int64() if self._members.kind is int else pa.large_string()

    def select(self, subscriptions: Iterable[Id]) -> tuple[Boxes, I64]:
        """Return the subscriptions with these ids, and the position of each in the order of
        arrival.
        """
        ids = self._members.listed(subscriptions)
        with self._edits:
            rows = np.array([self._members.row(id_) for id_ in ids], np.int64)
            view = self._view
            return boxes_of(view.rows, rows, self.space), view.rows.arrival[rows]

    @property
    def memory(self) -> int:
        """Size in bytes of the rows and all indexes, without the ids."""
        view = self._view
        indexes = [p.masked[0][1] if p.masked else p.index for p in view.parts]
        numbers = [p.renumbered for p in view.parts if p.renumbered is not None]
        parts = sum(rows.nbytes for rows in numbers) + sum(i.memory for i in indexes)
        ranking = sum(r.structure.memory for p in view.parts for r in list(p.rankings.values()))
        held = 0 if self._on_device is None else self._on_device.memory
        return view.rows.memory + parts + ranking + held

    # ---- edits

    def subscribe(
        self,
        subscription: Id,
        filter: str | Filter,  # noqa: A002
        *,
        score: float = 0.0,
        weights: Mapping[str, float] | None = None,
    ) -> None:
        """Add a subscription; its id must be new. A weight not given is 1."""
        terms = as_filter(filter, self.space).boxes
        number, weights_ = score_of(score), weights_of(self.space, weights, None)
        with self._edits:
            new, view = self._members.new(subscription), self._view
            row = new, terms, number, weights_, view.arrivals
            self._publish([new], append_one(view.rows, view.count, *row), arrivals=1)

    def subscribe_many(
        self,
        subscriptions: Any,
        *,
        rejected: RejectedTarget = None,
        id: str | None = None,  # noqa: A002
    ) -> int:
        """Add subscriptions as one edit; return their number.

        Takes the path of a file, an Arrow table, a DataFrame, a list of dicts or a dict of columns,
        with the columns of a file (docs/how-to/spaces.md); or `Boxes`.

        rejected   a list that receives the rejected rows, or the path of a file for them; by
                   default, the first rejected row raises an error, and nothing is added
        id         the column of the ids, if it isn't `id`
        """
        boxes = as_boxes(subscriptions, self.space, rejected, id)
        with self._edits:
            ids, view = self._members.new_many(boxes.ids), self._view
            if ids:
                arrival = np.arange(view.arrivals, view.arrivals + boxes.rows)
                rows = append(view.rows, view.count, boxes, arrival, ids)
                self._publish(ids, rows, arrivals=len(ids))
        return len(ids)

    def upsert(
        self,
        subscription: Id,
        filter: str | Filter,  # noqa: A002
        *,
        score: float = 0.0,
        weights: Mapping[str, float] | None = None,
    ) -> bool:
        """Add a subscription, or replace the one with this id entirely; return whether it is new.

        A replaced subscription keeps its position in ties. A weight not given is 1.
        """
        terms = as_filter(filter, self.space).boxes
        number, weights_ = score_of(score), weights_of(self.space, weights, None)
        with self._edits:
            (id_, old), view = self._members.either(subscription), self._view
            arrival = view.arrivals if old is None else int(view.rows.arrival[old])
            rows = append_one(view.rows, view.count, id_, terms, number, weights_, arrival)
            is_new = old is None
            self._publish([id_], rows, [] if old is None else [old], arrivals=int(is_new))
        return is_new

    def upsert_many(self, subscriptions: Any, *, rejected: RejectedTarget = None) -> UpsertResult:
        """Add new subscriptions and replace existing ones, as one edit; return both counts.

        Takes what `subscribe_many` takes. Scores default to 0, weights to 1.
        """
        boxes = as_boxes(subscriptions, self.space, rejected)
        with self._edits:
            ids, before = self._members.either_many(boxes.ids)
            done = UpsertResult.of(before)
            if ids:
                view = self._view
                is_new = np.array([row is None for row in before])
                old = [row for row in before if row is not None]
                arrival = view.arrivals - 1 + np.cumsum(is_new)
                arrival[~is_new] = view.rows.arrival[old]
                rows = append(view.rows, view.count, boxes, arrival, ids)
                self._publish(ids, rows, old, arrivals=done.inserted)
        return done

    def unsubscribe(self, subscription: Id) -> None:
        """Remove a subscription."""
        with self._edits:
            row = self._members.row(subscription)
            self._publish([as_id(subscription)], None, [row])

    def unsubscribe_many(self, subscriptions: Iterable[Id]) -> int:
        """Remove subscriptions as one edit; return their number. An id given twice counts once."""
        ids = self._members.listed(subscriptions)
        with self._edits:
            rows = list(dict.fromkeys(map(self._members.row, ids)))
            if rows:
                self._publish(self._view.rows.ids[rows].tolist(), None, rows)
        return len(rows)

    def replace(
        self,
        subscription: Id,
        filter: str | Filter,  # noqa: A002
        *,
        score: float | None = None,
        weights: Mapping[str, float] | None = None,
    ) -> None:
        """Replace a subscription's filter; it keeps its position in ties.

        Scores and weights that are not given stay unchanged.
        """
        self._change(subscription, as_filter(filter, self.space), score, weights)

    def replace_many(self, subscriptions: Any, *, rejected: RejectedTarget = None) -> int:
        """Replace the filters of subscriptions as one edit; return their number.

        Takes what `subscribe_many` takes. Subscriptions keep their positions in ties; scores and
        weights that are not given stay unchanged. (`Boxes` always give all of them.)
        """
        replacements = as_replacements(subscriptions, self.space, rejected)
        with self._edits:
            ids, old = self._members.known_many(replacements.boxes.ids)
            if ids:
                view = self._view
                rows = view.rows
                weights = None if rows.weights is None else rows.weights[old]
                boxes = replacements.onto(rows.scores[old], weights)
                added = append(rows, view.count, boxes, rows.arrival[old], ids)
                self._publish(ids, added, old)
        return len(ids)

    def rescore(
        self,
        subscription: Id,
        score: float | None = None,
        *,
        weights: Mapping[str, float] | None = None,
    ) -> None:
        """Set the score or the weights of a subscription; values not given stay unchanged."""
        self._change(subscription, None, score, weights)

    def _change(
        self,
        subscription: Id,
        filter: Filter | None,  # noqa: A002
        score: float | None,
        weights: Mapping[str, float] | None,
    ) -> None:
        """Replace the row of a subscription; arguments that are `None` stay unchanged."""
        with self._edits:
            old, view = self._members.row(subscription), self._view
            rows = view.rows
            row = (
                as_id(subscription),
                terms_of(rows, old) if filter is None else filter.boxes,
                float(rows.scores[old]) if score is None else score_of(score),
                weights_of(
                    self.space, weights, None if rows.weights is None else rows.weights[old]
                ),
                int(rows.arrival[old]),
            )
            self._publish([row[0]], append_one(rows, view.count, *row), [old])

    def _publish(
        self,
        ids: list[Id],
        added: RowArrays | None,
        removed: Sequence[int] = (),
        arrivals: int = 0,
    ) -> None:
        """Apply one edit atomically: all of it takes effect, or the set stays as it was.

        added     the arrays with a new row for each id, behind the last one that counts
        removed   the old rows of ids
        """
        old, members, kind = self._view, self._members, self._members.kind
        rows = old.rows if added is None else added
        count = old.count + (0 if added is None else len(ids))
        dead, edit = np.array(removed, np.int64), old.edit + 1
        rows = with_room_for_deaths(rows, old.dead, len(dead))
        parts = self._grown(old.parts, rows, count, old.edit)
        if not old.parts and len(parts) == 1:
            rows = without_own_boxes(parts[0], rows, count, self.space)
        in_order = old.ascending == old.count and arrivals == count - old.count
        view: View = LiveView(
            rows,
            count,
            old.dead + len(dead),
            edit,
            old.arrivals + arrivals,
            count if in_order else old.ascending,
            parts,
            old.verifier,
            old.lineage,
        )
        try:
            if added is None:
                members.forget(ids)
            else:
                members.bind_many(ids, range(old.count, count))
            if len(dead):
                mark_dead(rows, old.dead, dead, edit)
            self._view = view
        except BaseException:
            self._view = old
            members.forget(ids)
            if len(dead):
                rows.died[dead] = NEVER
                members.bind_many(rows.ids[dead].tolist(), removed)
            members.kind = kind
            raise
        try:
            self._rebuild_if_due()
        except Exception as error:  # the edit is done; the set is only slower
            self._failure = error

    # ---- keeping fast

    def _grown(
        self, parts: tuple[Part, ...], rows: RowArrays, count: int, edit: int
    ) -> tuple[Part, ...]:
        """Return the parts after merging recent rows and small parts into larger parts."""
        indexed = parts[-1].end if parts else 0
        if count - indexed <= RECENT or self.device is not None:
            return parts
        parts = (*parts, self._part(rows, indexed, count, edit))
        while len(parts) > FAN:
            last = parts[-FAN:]
            start, end = last[0].start, last[-1].end
            uneven = last[0].count > FAN * last[-1].count
            if end - start > SMALL or uneven or start < self._barrier:
                break
            parts = (*parts[:-FAN], self._part(rows, start, end, edit))
        return parts

    @property
    def _barrier(self) -> int:
        """First row that is not part of the running rebuild: no part may span it."""
        return self._rebuilt_to if self._rebuilding is not None else 0

    def _part(self, rows: RowArrays, start: int, end: int, edit: int) -> Part:
        live = start + np.flatnonzero(rows.died[start:end] > edit)
        # A part beside the first will soon be joined with others: too short a life for a choice.
        index = "slabs" if start and self.index == "auto" else self.index
        structure = begin_selection(boxes_of(rows, live, self.space), index)
        return IndexPart.of(structure, live.astype(np.int32), start, end)

    def _rebuild_if_due(self) -> None:
        """Start a rebuild if too many rows are new or dead."""
        view = self._view
        base = view.parts[0].end if view.parts else 0
        loose = (view.indexed - base) + view.dead
        if self._rebuilding is not None or loose <= max(4 * RECENT, len(self) // 4):
            return
        if view.indexed < view.count and self.device is None:
            part = self._part(view.rows, view.indexed, view.count, view.edit)
            view = replace(view, parts=(*view.parts, part))
        thread = threading.Thread(
            target=self._rebuild, args=(view,), name="rangecast-rebuild", daemon=True
        )
        self._view, self._rebuilt_to, self._rebuilding = view, view.count, thread
        try:
            thread.start()
        except BaseException:
            self._rebuilding = None
            raise

    def _rebuild(self, begun: View) -> None:
        """Rebuild from all live rows, replay the edits made in the meantime, and swap the result
        in.
        """
        began = time.perf_counter()
        _log.info("rebuilding %s: %d rows, %d dead", self, begun.count, begun.dead)
        try:
            live = begun.live()  # in order of arrival, so that answers need little sorting
            boxes = boxes_of(begun.rows, live, self.space)
            ids = begun.rows.ids[live].tolist()
            rows = append(no_rows(), 0, boxes, begun.rows.arrival[live], ids)
            own = np.arange(len(live), dtype=np.int32)
            base: tuple[Part, ...] = ()
            if self.device is None:  # else there are no parts: only the dead rows go
                index = build_candidates(boxes, self.index)
                base = (IndexPart.of(index, own, 0, len(live)),)
                rows = without_own_boxes(base[0], rows, len(live), self.space)
            for combine in {kind for part in begun.parts for kind in tuple(part.rankings)}:
                base[0].rankings[combine] = ranked_part(
                    rows, own, self.space, self.rank_index, combine
                )
            members = Members(kind=self._members.kind)
            for first in range(0, len(ids), _DICT_PIECE):
                piece = ids[first : first + _DICT_PIECE]
                members.bind_many(piece, range(first, first + len(piece)))
            with self._edits:
                if self._rebuilding is threading.current_thread():
                    built = Rebuilt(begun, live, rows, base, members)
                    self._view = built.with_later_edits(self._view, self.space)
                    self._members, self._rebuilding = members, None
                    self.rebuild_count += 1
            taken = time.perf_counter() - began
            name = base[0].index.name if base else self.device
            _log.info("rebuilt %s as %s in %.3f s", self, name, taken)
        except Exception as error:
            _log.warning("a rebuild failed; the set stays correct but slower", exc_info=error)
            with self._edits:
                if self._rebuilding is threading.current_thread():
                    self._failure, self._rebuilding = error, None

    def _forked(self) -> None:
        self._rebuilding = None

    def wait_for_rebuild(self) -> None:
        """Wait until no rebuild is running; raise the error that ended the last one, if any."""
        thread = self._rebuilding
        if thread is not None:
            thread.join()
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure


def boxes_of_view(view: View, space: Space, first: int | None = None) -> Boxes:
    """Return the subscriptions that are live in a view, in order of arrival."""
    return boxes_of(view.rows, view.live()[:first], space)


def _restored(kind: type[LiveSet], space: Space, options: dict[str, Any], boxes: Boxes) -> LiveSet:
    made = kind(space, **options)
    made.subscribe_many(boxes)
    return made
