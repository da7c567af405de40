"""The interests of a board by id: they come, go and change; an index knows them by row."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from rangecast.errors import UsageError
from rangecast.kernels.arrays import F64, I64
from rangecast.model.io.rejected import RejectedTarget
from rangecast.model.sets.base import MemberSet, UpsertResult
from rangecast.model.sets.members import Id, Members, as_id
from rangecast.model.validation.arguments import whole


@dataclass(frozen=True)
class Regions:
    """Boxes of interests as points, lower and then upper bounds, and how many each has."""

    points: F64
    sizes: I64

    def __getitem__(self, place: Any) -> Any:
        """Return the points of one interest."""
        end = int(self._ends[place])
        return self.points[end - int(self.sizes[place]) : end]

    @cached_property
    def _ends(self) -> I64:
        return np.cumsum(self.sizes)


def checked_boxes(given: Any, attributes: int) -> F64:
    """Return boxes, lower and then upper bounds, as an array that fits."""
    boxes = np.ascontiguousarray(given, np.float64)
    if boxes.ndim != 2 or boxes.shape[1] != 2 * attributes:
        raise UsageError(f"boxes have {2 * attributes} columns; given: an array {boxes.shape}")
    if not (boxes[:, :attributes] <= boxes[:, attributes:]).all():
        raise UsageError("a box has a lower bound above its upper one, or NaN")
    return boxes


class NewInterests(NamedTuple):
    """Interests to add: an id and a region each, and how many objects some want, by place."""

    ids: pa.Array
    regions: Regions
    wanted: dict[int, int]

    def part(self, begin: int, end: int) -> NewInterests:
        """Return those at the places from begin to end."""
        first, last = (int(self.regions.sizes[:place].sum()) for place in (begin, end))
        wanted = {place - begin: k for place, k in self.wanted.items() if begin <= place < end}
        regions = Regions(self.regions.points[first:last], self.regions.sizes[begin:end])
        return NewInterests(self.ids[begin:end], regions, wanted)


class InterestSet(MemberSet):
    """Interests in at most k objects each."""

    def __init__(self, k: int):
        self.k = k
        self._members = Members("interest")
        self._wanted: dict[int, int] = {}
        """By row, for interests that say how many they want."""
        self._ids: dict[int, Id] | None = None
        """By row, from the first time that `affected_interests` is called."""

    def __getitem__(self, interest: Id) -> Any:
        """Return an interest with its list as it is now, ready to receive what comes next."""
        raise NotImplementedError

    def subscribe(self, interest: Id, *where: Any, k: int | None = None) -> Any:
        """Add an interest and return it with its list.

        where   lo and hi on a board without a space, without a bound where None or left out; else a
                filter: a text, a `Filter`, or a pair of bounds
        k       how many objects it wants, if not as many as the board has
        """
        new = self._members.new(interest)
        region = self._region(new, where)
        self._add(new, region, None if k is None else self._checked_k(k))
        return self[new]

    def region(self, interest: Id, *where: Any) -> F64:
        """Return a row for each box that `subscribe` would add: lower, then upper bounds."""
        return self._region(interest, where)

    def unsubscribe(self, interest: Id) -> None:
        """Remove an interest. (A sketch stays as it is: it may cover too much.)"""
        self._drop(self._members.release(interest))

    def replace(self, interest: Id, *where: Any, k: int | None = None) -> Any:
        """Give an interest another range or filter; without a k, its own stays. Return it."""
        old = self._members.row(interest)
        region = self._region(interest, where)
        wanted = self._wanted.get(old) if k is None else self._checked_k(k)
        self._add(as_id(interest), region, wanted)
        self._drop(old)
        return self[interest]

    def upsert(self, interest: Id, *where: Any, k: int | None = None) -> Any:
        """Add an interest, or replace all of the one that has its id; return it with its list."""
        one, old = self._members.either(interest)
        region = self._region(one, where)
        self._add(one, region, None if k is None else self._checked_k(k))
        if old is not None:
            self._drop(old)
        return self[one]

    def subscribe_many(self, interests: Any, *, rejected: RejectedTarget = None) -> int:
        """Add interests, all of them or none; return how many.

        They are a path, a table, a DataFrame, a list of dicts or a dict of columns: id,
        position_lo, position_hi and perhaps k; over a space, <attribute>_lo and <attribute>_hi or
        filter instead.

        rejected   a list that gets the rejected rows, or the path of a file for them; without, the
                   first one is an error, and nothing is added
        """
        given = (
            interests if isinstance(interests, NewInterests) else self._given(interests, rejected)
        )
        if len(self):
            new = self._members.new_many(given.ids)
            rows = self._add_regions(given.regions)
            self._members.bind_many(new, rows)
        else:
            members = Members.of(given.ids, "interest")
            rows = self._add_regions(given.regions)
            if rows != range(len(rows)):
                members.bind_many(given.ids.to_pylist(), rows)
            self._members = members
        self._wanted.update((rows[at], k) for at, k in given.wanted.items())
        self._ids = None
        return len(given.ids)

    def unsubscribe_many(self, interests: Iterable[Id]) -> int:
        """Remove interests, each once, all of them or none; return how many."""
        rows = self._members.release_many(interests)
        for row in rows:
            self._drop(row)
        return len(rows)

    def replace_many(self, interests: Any, *, rejected: RejectedTarget = None) -> int:
        """Give interests other ranges or filters, all of them or none; return how many."""
        given = self._given(interests, rejected)
        ids, rows = self._members.known_many(given.ids)
        for at, (one, old) in enumerate(zip(ids, rows, strict=True)):
            self._add(one, given.regions[at], given.wanted.get(at, self._wanted.get(old)))
            self._drop(old)
        return len(ids)

    def upsert_many(self, interests: Any, *, rejected: RejectedTarget = None) -> UpsertResult:
        """Add those of these that are new, replace those that exist, all or none; count both."""
        given = self._given(interests, rejected)
        ids, rows = self._members.either_many(given.ids)
        for at, (one, old) in enumerate(zip(ids, rows, strict=True)):
            self._add(one, given.regions[at], given.wanted.get(at))
            if old is not None:
                self._drop(old)
        return UpsertResult.of(rows)

    def affected_interests(self, messages: Any) -> list[Id]:
        """Return the interests that messages of this board go to, each once."""
        if self._ids is None:
            self._ids = {
                row: one for one, first in self._members.items() for row in self._rows_of(first)
            }
        ids = self._ids
        return list(dict.fromkeys(ids[row] for row in self._rows_reached(messages)))

    def _checked_k(self, k: Any) -> int:
        return whole("k", k, most=self.k)

    def _add(self, one: Id, region: Any, wanted: int | None) -> None:
        row = self._add_region(region)
        self._members.bind(one, row)
        if wanted is not None:
            self._wanted[row] = wanted
        if self._ids is not None:
            self._ids |= dict.fromkeys(self._rows_of(row), one)

    def _drop(self, row: int) -> None:
        if self._ids is not None:
            for one in self._rows_of(row):
                del self._ids[one]
        self._remove_region(row)
        self._wanted.pop(row, None)

    # ---- what a subclass says

    def _region(self, interest: Id, where: tuple[Any, ...]) -> F64:
        """Return the checked region of an interest."""
        raise NotImplementedError

    def _given(self, interests: Any, rejected: RejectedTarget) -> NewInterests:
        """Return what a caller gives as interests."""
        raise NotImplementedError

    def _add_region(self, region: F64) -> int:
        """Put a region, a point per box, into the index; return its row."""
        raise NotImplementedError

    def _add_regions(self, regions: Regions) -> range | list[int]:
        """Put regions into the index, and return their rows; a range if they are their places."""
        raise NotImplementedError

    def _rows_of(self, row: int) -> list[int]:
        """Return all rows of an interest, by its first one."""
        return [row]

    def _rows_reached(self, messages: Any) -> list[int]:
        """Return the rows that messages go to."""
        raise NotImplementedError

    def _remove_region(self, row: int) -> None:
        """Take a region out of the index."""
        raise NotImplementedError
