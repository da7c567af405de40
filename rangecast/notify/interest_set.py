"""The interests of a board by id: added, removed and replaced; the engine knows them by row."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any

from rangecast.kernels.arrays import F64
from rangecast.model.io.rejected import RejectedTarget, collecting_rejected
from rangecast.model.sets.base import MemberSet, UpsertResult
from rangecast.model.sets.members import Id, Members, as_id
from rangecast.model.validation.arguments import check_integer
from rangecast.notify.base import BoardEngine
from rangecast.notify.new_interests import NewInterests


class InterestSet(MemberSet, ABC):
    """Interests in the top k objects each."""

    def __init__(self, engine: BoardEngine):
        self.engine = engine
        """Engine with objects by slot and interests by row."""
        self.k = engine.options.k
        self._members = Members("interest")
        self._wanted: dict[int, int] = {}
        """List lengths of the interests that set one, by row."""
        self._ids: dict[int, Id] | None = None
        """Ids by row, built on the first call of `affected_interests`."""

    @abstractmethod
    def __getitem__(self, interest: Id) -> Any:
        """Return an interest with its current list, ready to receive messages."""

    def subscribe(self, interest: Id, *where: Any, k: int | None = None) -> Any:
        """Add an interest and return it with its list.

        where   without a space lo and hi, `None` or omitted if unbounded; over a space a filter:
                a text, a `Filter`, or a pair of bounds
        k       length of its list, if it differs from the board's
        """
        new = self._members.new(interest)
        region = self.engine.region(new, where)
        self._add(new, region, None if k is None else self._checked_k(k))
        return self[new]

    def region(self, interest: Id, *where: Any) -> F64:
        """Return a row for each box that `subscribe` would add: lower, then upper bounds."""
        return self.engine.region(interest, where)

    def unsubscribe(self, interest: Id) -> None:
        """Remove an interest."""
        self._drop(self._members.release(interest))

    def replace(self, interest: Id, *where: Any, k: int | None = None) -> Any:
        """Replace the range or filter of an interest; k stays unless given. Return it."""
        old = self._members.row(interest)
        region = self.engine.region(interest, where)
        wanted = self._wanted.get(old) if k is None else self._checked_k(k)
        self._add(as_id(interest), region, wanted)
        self._drop(old)
        return self[interest]

    def upsert(self, interest: Id, *where: Any, k: int | None = None) -> Any:
        """Add an interest, or replace the one with this id entirely; return it with its list."""
        new, old = self._members.either(interest)
        region = self.engine.region(new, where)
        self._add(new, region, None if k is None else self._checked_k(k))
        if old is not None:
            self._drop(old)
        return self[new]

    def subscribe_many(self, interests: Any, *, rejected: RejectedTarget = None) -> int:
        """Add interests, all or none; return their number.

        Takes a path, a table, a DataFrame, a list of dicts or a dict of columns: id, position_lo,
        position_hi and optionally k; over a space, <attribute>_lo and <attribute>_hi or
        filter instead.

        rejected   a list that receives the rejected rows, or the path of a file for them; by
                   default, the first rejected row raises an error, and nothing is added
        """
        added = (
            interests
            if isinstance(interests, NewInterests)
            else self._read_interests(interests, rejected)
        )
        if len(self):
            new = self._members.new_many(added.ids)
            rows = self.engine.add_regions(added.regions)
            self._members.bind_many(new, rows)
        else:
            members = Members.of(added.ids, "interest")
            rows = self.engine.add_regions(added.regions)
            if rows != range(len(rows)):
                members.bind_many(added.ids.to_pylist(), rows)
            self._members = members
        self._wanted.update((rows[at], k) for at, k in added.wanted.items())
        self._ids = None
        return len(added.ids)

    def unsubscribe_many(self, interests: Iterable[Id]) -> int:
        """Remove interests, all or none; return their number."""
        rows = self._members.release_many(interests)
        for row in rows:
            self._drop(row)
        return len(rows)

    def replace_many(self, interests: Any, *, rejected: RejectedTarget = None) -> int:
        """Replace the ranges or filters of interests, all or none; return their number."""
        new = self._read_interests(interests, rejected)
        ids, rows = self._members.known_many(new.ids)
        for at, (name, old) in enumerate(zip(ids, rows, strict=True)):
            self._add(name, new.regions[at], new.wanted.get(at, self._wanted.get(old)))
            self._drop(old)
        return len(ids)

    def upsert_many(self, interests: Any, *, rejected: RejectedTarget = None) -> UpsertResult:
        """Add new interests and replace existing ones, all or none; return both counts."""
        new = self._read_interests(interests, rejected)
        ids, rows = self._members.either_many(new.ids)
        for at, (name, old) in enumerate(zip(ids, rows, strict=True)):
            self._add(name, new.regions[at], new.wanted.get(at))
            if old is not None:
                self._drop(old)
        return UpsertResult.of(rows)

    def affected_interests(self, messages: Any) -> list[Id]:
        """Return the interests that messages of this board reach, each once."""
        if self._ids is None:
            self._ids = {
                row: name
                for name, first in self._members.items()
                for row in self.engine.rows_of(first)
            }
        ids = self._ids
        return list(dict.fromkeys(ids[row] for row in self.engine.rows_reached(messages)))

    def _checked_k(self, k: Any) -> int:
        return check_integer("k", k, max_value=self.k)

    def _add(self, name: Id, region: Any, wanted: int | None) -> None:
        row = self.engine.add_region(region)
        self._members.bind(name, row)
        if wanted is not None:
            self._wanted[row] = wanted
        if self._ids is not None:
            self._ids |= dict.fromkeys(self.engine.rows_of(row), name)

    def _drop(self, row: int) -> None:
        if self._ids is not None:
            for row_ in self.engine.rows_of(row):
                del self._ids[row_]
        self.engine.remove_region(row)
        self._wanted.pop(row, None)

    def _read_interests(self, interests: Any, rejected: RejectedTarget) -> NewInterests:
        """Return interests in any form as `NewInterests`; collect the rejected ones."""
        with collecting_rejected(rejected) as rows:
            return self.engine.tables.as_interests(interests, self.k, rows)
