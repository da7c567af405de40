"""The delivery oracle: recipients of an event by the edits of a log, without an index.

It is simple, and independent of the code that it verifies: subscriptions are identified by id,
filters and events are parsed one by one, and every event is compared with each box. It takes
O(events x boxes) time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from rangecast.errors import RangecastError, UsageError, abbreviate, did_you_mean
from rangecast.kernels.arrays import F64
from rangecast.match.scan import Scan
from rangecast.model.boxes import Boxes
from rangecast.model.encoding.events import encode_event
from rangecast.model.filters.compile import ANY_BOXES
from rangecast.model.filters.filter import Filter
from rangecast.model.shapes.verification.places import places_of, without_places, words_hold
from rangecast.model.space import Space
from rangecast.server.state.edits import (
    AnyEdit,
    DeleteConsumer,
    DeleteSubscription,
    PutConsumer,
    PutSpace,
    PutSubscription,
)

Wanted = dict[str, list[str]]
"""Recipients of an event: by consumer, the ids of its subscriptions, best score first."""


class DeliveryOracle:
    """The subscriptions of a tenant at one log position.

    only   a consumer; matches of other consumers are skipped
    """

    def __init__(self, tenant: str, only: str | None = None):
        self._tenant = tenant
        self._only = only
        self._sets: dict[str, _Set] = {}
        self._best: dict[str, int] = {}

    def apply(self, edits: Iterable[AnyEdit], first: int) -> None:
        """Apply edits, the first of which has this seq."""
        for seq, edit in enumerate(edits, first):
            if edit.tenant == self._tenant:
                self._apply(edit, seq)

    def recipients(self, space: str, events: Sequence[object]) -> list[Wanted | None]:
        """Return the recipients of each event; `None` for a rejected event."""
        if space not in self._sets:
            raise UsageError(
                f"the log has no space {abbreviate(space)} of the tenant {self._tenant}: "
                f"{did_you_mean(space, [*self._sets])}"
            )
        return [
            None if names is None else self._by_consumer(space, names)
            for names in self._sets[space].holding(events)
        ]

    def score(self, space: str, name: str) -> float:
        """Return the score of a subscription."""
        return self._sets[space].known[name].put.score

    def _by_consumer(self, space: str, names: Iterable[str]) -> Wanted:
        known, wanted = self._sets[space].known, Wanted()
        for name in sorted(names, key=lambda id_: (-known[id_].put.score, known[id_].came)):
            owner = known[name].put.consumer
            if owner:
                wanted.setdefault(owner, []).append(name)
        return {owner: ids[: self._best.get(owner) or None] for owner, ids in wanted.items()}

    def _apply(self, edit: AnyEdit, seq: int) -> None:
        match edit:
            case PutSpace():
                known = self._sets[edit.name].known if edit.name in self._sets else {}
                self._sets[edit.name] = made = _Set(Space.from_definition(edit.definition))
                for subscription in known.values():  # the same filters, in what the space is by now
                    self._put(made, subscription)
            case PutConsumer():
                self._best[edit.name] = edit.max_per_event
            case DeleteConsumer():
                for kept in self._sets.values():
                    gone = [
                        subscription
                        for subscription, has in kept.known.items()
                        if has.put.consumer == edit.name
                    ]
                    for name in gone:
                        kept.end(name)
            case PutSubscription():
                kept = self._sets[edit.space]
                came = kept.known[edit.name].came if edit.name in kept.known else seq
                kept.end(edit.name)
                if edit.track is None:  # see `TracksOracle`
                    self._put(kept, _KnownSubscription(edit, came))
            case DeleteSubscription():
                self._sets[edit.space].end(edit.name)

    def _put(self, kept: _Set, subscription: _KnownSubscription) -> None:
        kept.put(subscription, is_asked_for=self._only in (None, subscription.put.consumer))


class _KnownSubscription(NamedTuple):
    put: PutSubscription
    came: int
    """The seq that first put it."""


class _Set:
    """The subscriptions of a space, with the boxes of those that are queried."""

    def __init__(self, space: Space):
        self.known: dict[str, _KnownSubscription] = {}
        self._space = space
        self._unread: dict[str, PutSubscription] = {}
        """Subscriptions whose filters are not parsed yet."""
        self._rows: dict[str, list[int]] = {}
        """The rows of the arrays that are a subscription's; the others are free."""
        self._free: list[int] = []
        self._lo, self._hi = np.empty((2, 0, len(space)))
        self._is_used = np.zeros(0, bool)
        self._names: list[str] = []
        """Id of each row, current or past."""

    def put(self, subscription: _KnownSubscription, *, is_asked_for: bool) -> None:
        """Add a new subscription."""
        self.known[subscription.put.name] = subscription
        if is_asked_for:
            self._unread[subscription.put.name] = subscription.put

    def end(self, name: str) -> None:
        """Remove a subscription, if it exists."""
        self.known.pop(name, None)
        self._unread.pop(name, None)
        rows = self._rows.pop(name, [])
        self._is_used[rows] = False
        self._free += rows

    def holding(self, events: Sequence[object]) -> Iterator[set[str] | None]:
        """Yield the subscriptions that match each event; `None` for an invalid event."""
        for put in self._unread.values():
            self._read(put)
        self._unread.clear()
        points = [self._point(event) for event in events]
        used = np.array([each for each in points if each is not None]).reshape(-1, len(self._space))
        rows = np.flatnonzero(self._is_used)
        boxes = Boxes.of(self._lo[rows], self._hi[rows], space=self._space)
        matches = Scan(without_places(boxes)).match(used)
        begin = 0
        for point in points:
            if point is None:
                yield None
            else:
                holding = rows[matches.of(begin)]
                yield {self._names[row] for row in holding if self._holds_shapes(row, point)}
                begin += 1

    def _holds_shapes(self, row: int, point: F64) -> bool:
        """Return whether the shapes of a box contain a point."""
        places = places_of(self._space)
        return places is None or all(
            self._lo[row, axis] == -np.inf
            or words_hold(places, axis, self._lo[row, axis : axis + 1], point)[0]
            for axis in places.axes
        )

    def _read(self, put: PutSubscription) -> None:
        # It was accepted: however many boxes its words make by now, all of them count.
        lo, hi = Filter.parse(put.filter, self._space, max_boxes=ANY_BOXES).arrays()
        self._make_room(len(lo))
        rows = self._rows[put.name] = [self._free.pop() for _ in lo]
        self._lo[rows], self._hi[rows], self._is_used[rows] = lo, hi, True
        for row in rows:
            self._names[row] = put.name

    def _point(self, event: object) -> F64 | None:
        if not isinstance(event, Mapping):
            return None
        try:
            return encode_event(event, self._space, ignore_unknown=True)
        except (RangecastError, OverflowError):
            return None

    def _make_room(self, count: int) -> None:
        """Make room for this many more rows."""
        if len(self._free) < count:
            size = len(self._names)
            more = max(count, size, 64)
            self._free += range(size, size + more)
            self._names += [""] * more
            empty = np.empty((more, len(self._space)))
            self._lo, self._hi = np.append(self._lo, empty, 0), np.append(self._hi, empty, 0)
            self._is_used = np.append(self._is_used, np.zeros(more, bool))
