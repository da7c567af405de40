"""Summaries over several subsets of many attributes (paper 004, sections 5 and 8).

The number of ranges grows fast with the number of attributes, so a summary takes a few. A split
summary keeps one summary for each of several subsets of attributes, in one of two ways:

    all    a subscription is in every one; an event must be held by all of them. For spaces where
           subscriptions mention most attributes.
    any    a subscription is in one, that of the largest subset which it mentions all of; an event
           must be held by one of them. For spaces where each mentions a few of many.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np

from rangecast.errors import UsageError
from rangecast.kernels.arrays import I64, Bool
from rangecast.merge.summary import Summary
from rangecast.model.boxes import Boxes, id_array
from rangecast.model.encoding.events import encode_event
from rangecast.model.filters.formatting import text_of_bounds
from rangecast.model.io.rejected import RejectedTarget
from rangecast.model.sets.base import Subscription, SubscriptionSet, UpsertResult
from rangecast.model.sets.members import Id, as_id
from rangecast.model.snapshot import (
    id_buffers,
    ids_of_buffers,
    load_arrays,
    save_arrays,
    space_meta,
    space_of_meta,
    with_prefix,
    without_prefix,
)
from rangecast.model.space import Space
from rangecast.model.validation.inputs import as_boxes, as_filter, as_points

_KIND = "split summary"
_EVERY, _NONE = -2, -1
"""Location of a subscription outside a single summary: in all, or in none, so that it may match
every event.
"""


class SplitSummary(SubscriptionSet):
    """One `Summary` for each subset of attributes; `options` are those of `Summary`."""

    def __init__(
        self,
        space: Space,
        *,
        subsets: Sequence[Sequence[str]],
        combine: Literal["all", "any"] = "all",
        **options: Any,
    ):
        super().__init__(space)
        if not subsets:
            raise UsageError("subsets need at least one subset of attributes")
        if combine not in ("all", "any"):
            raise UsageError(f"combine must be 'all' or 'any'; given: {combine!r}")
        self.combine = combine
        self.summaries = [Summary(self.space, attributes=subset, **options) for subset in subsets]
        self._unbounded = 0
        """Number of subscriptions in no summary."""

    # ---- commands

    def subscribe(self, subscription: Id, filter: Any) -> None:  # noqa: A002
        """Add a subscription: a filter, its text, or bounds (lo, hi). Its id must be new."""
        self.subscribe_many(self._boxes(self._members.new(subscription), filter))

    def unsubscribe(self, subscription: Id) -> None:
        """Remove a subscription."""
        self.unsubscribe_many([subscription])

    def replace(self, subscription: Id, filter: Any) -> None:  # noqa: A002
        """Replace the filter of a subscription; it keeps its position in the order of arrival."""
        self._members.row(subscription)
        self.replace_many(self._boxes(as_id(subscription), filter))

    def upsert(self, subscription: Id, filter: Any) -> bool:  # noqa: A002
        """Add a subscription, or replace the one with this id; return whether it is new."""
        id_, _ = self._members.either(subscription)
        return bool(self.upsert_many(self._boxes(id_, filter)).inserted)

    def subscribe_many(self, subscriptions: Any, *, rejected: RejectedTarget = None) -> int:
        """Add subscriptions: a file, a table, a DataFrame, dicts or `Boxes`; return their number.

        rejected   a list that receives the rejected rows, or the path of a file for them; by
                   default, the first rejected row raises an error, and nothing is added
        """
        boxes = as_boxes(subscriptions, self.space, rejected)
        ids = self._members.new_many(boxes.ids.to_pylist())
        homes = self._locations(_mentioned_by_all(boxes))
        for home in np.unique(homes).tolist():
            own = boxes if home == _EVERY else boxes.take(np.flatnonzero(homes == home))
            for summary in self._in(home):
                summary.subscribe_many(own)
        self._members.bind_many(ids, homes.tolist())
        self._unbounded += int(np.count_nonzero(homes == _NONE))
        return len(ids)

    def unsubscribe_many(self, subscriptions: Iterable[Id]) -> int:
        """Remove subscriptions; return their number. An id given twice counts once."""
        listed = self._members.listed(subscriptions)
        ids = [*{id_: self._members.row(id_) for id_ in listed}]
        homes = self._members.release_many(ids)
        for home in dict.fromkeys(homes):
            own = [id_ for id_, where in zip(ids, homes, strict=True) if where == home]
            for summary in self._in(home):
                summary.unsubscribe_many(own)
        self._unbounded -= homes.count(_NONE)
        return len(ids)

    def replace_many(self, subscriptions: Any, *, rejected: RejectedTarget = None) -> int:
        """Replace the filters of subscriptions; return their number."""
        boxes = as_boxes(subscriptions, self.space, rejected)
        ids, old = self._members.known_many(boxes.ids.to_pylist())
        new = self._locations(_mentioned_by_all(boxes)).tolist()
        for row, id_ in enumerate(ids):
            box = boxes.take([row])
            for summary in self._in(new[row]):
                change = summary.replace_many if new[row] == old[row] else summary.subscribe_many
                change(box)
            if new[row] != old[row]:
                for summary in self._in(old[row]):
                    summary.unsubscribe(id_)
        self._members.bind_many(ids, new)
        self._unbounded += new.count(_NONE) - old.count(_NONE)
        return len(ids)

    def upsert_many(self, subscriptions: Any, *, rejected: RejectedTarget = None) -> UpsertResult:
        """Add new subscriptions and replace existing ones; return both counts."""
        boxes = as_boxes(subscriptions, self.space, rejected)
        _, homes = self._members.either_many(boxes.ids)
        is_new = np.array([home is None for home in homes], np.bool_)
        self.replace_many(boxes.take(np.flatnonzero(~is_new)))
        self.subscribe_many(boxes.take(np.flatnonzero(is_new)))
        return UpsertResult.of(homes)

    # ---- questions

    def __getitem__(self, subscription: Id) -> Subscription:
        """Return a subscription's id and its filter, restricted to the summaries' attributes."""
        kept = [s.bounds(subscription) for s in self._in(self._members.row(subscription))]
        everything = np.full((1, len(self.space)), np.inf)
        lo = reduce(np.maximum, [-everything, *(lo for lo, _ in kept)])
        hi = reduce(np.minimum, [everything, *(hi for _, hi in kept)])
        return Subscription(as_id(subscription), text_of_bounds(self.space, lo, hi))

    def may_match(self, event: Mapping[str, Any]) -> bool:
        """Return whether an event may match a subscription; False is exact."""
        return bool(self.may_match_many(encode_event(event, self.space)[None])[0])

    def may_match_many(self, events: Any) -> Bool:
        """Return whether each event may match a subscription, as `Summary.may_match_many` does."""
        points = as_points(events, self.space)
        answers = np.stack([summary.may_match_many(points) for summary in self.summaries])
        if self.combine == "all":
            return np.asarray(answers.all(axis=0))
        return np.asarray(answers.any(axis=0) | (self._unbounded > 0))

    @property
    def memory(self) -> int:
        """Bytes of all summaries."""
        return sum(summary.memory for summary in self.summaries)

    # ---- snapshots

    def save(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Write everything as a snapshot folder; `open` restores it.

        An existing folder is rejected, or replaced with `overwrite`.
        """
        arrays = {"homes": np.fromiter(self._members.rows(), np.int64, len(self))}
        arrays |= id_buffers(id_array(list(self)))
        for number, summary in enumerate(self.summaries):
            arrays |= with_prefix(f"{number}.", summary.arrays())
        meta = {"combine": self.combine, "summaries": [s.options() for s in self.summaries]}
        meta |= space_meta(self.space)
        save_arrays(path, _KIND, arrays, meta, overwrite=overwrite)

    @classmethod
    def open(cls, path: str | Path) -> Self:
        """Return the set of a snapshot."""
        arrays, meta = load_arrays(path, _KIND)
        space = space_of_meta(meta)
        opened = cls(space, subsets=[space.names[:1]], combine=meta["combine"])
        opened.summaries = [
            Summary.of_arrays(space, without_prefix(f"{number}.", arrays), options)
            for number, options in enumerate(meta["summaries"])
        ]
        homes = arrays["homes"].tolist()
        opened._members.bind_many(ids_of_buffers(arrays).to_pylist(), homes)
        opened._unbounded = homes.count(_NONE)
        return opened

    # ---- inside

    def _boxes(self, subscription: Id, filter: Any) -> Boxes:  # noqa: A002
        lo, hi = as_filter(filter, self.space).arrays()
        return Boxes.of(lo, hi, owner=np.zeros(len(lo)), ids=[subscription], space=self.space)

    def _in(self, home: int) -> list[Summary]:
        """Return the summaries of a subscription."""
        if home == _EVERY:
            return self.summaries
        return [] if home == _NONE else [self.summaries[home]]

    def _locations(self, mentioned: Bool) -> I64:
        """Return the location of subscriptions, by the attributes that each mentions, (rows, d)."""
        if self.combine == "all":
            return np.full(len(mentioned), _EVERY)
        homes = np.full(len(mentioned), _NONE)
        sizes = [-len(summary.cells.axes) for summary in self.summaries]
        for number in np.argsort(sizes, kind="stable").tolist():
            fits = mentioned[:, self.summaries[number].cells.axes].all(axis=1)
            homes[fits & (homes == _NONE)] = number
        return homes


def _mentioned_by_all(boxes: Boxes) -> Bool:
    """Return which attributes are mentioned by all boxes of a subscription, (rows, d)."""
    if not boxes.rows:
        return np.zeros((0, boxes.dimensions), np.bool_)
    return np.logical_and.reduceat(boxes.mentions, boxes.box_offsets[:-1], axis=0)
