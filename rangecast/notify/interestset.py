"""The interests of a board by id: they come, go and change; the tree knows them by row."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from rangecast.errors import UsageError
from rangecast.kernels.arrays import AnyArray
from rangecast.model.arguments import finite, whole
from rangecast.model.boxes import id_array
from rangecast.model.members import Id, Members, as_id
from rangecast.model.numbers import MAX
from rangecast.model.sets import MemberSet
from rangecast.model.snapshot import id_buffers, ids_of_buffers
from rangecast.notify.interests import Interests
from rangecast.notify.subscriber import Interest
from rangecast.notify.tables import as_interests


class InterestSet(MemberSet):
    """Interests in at most k objects each, as they are or as a sketch of some rectangles."""

    def __init__(self, k: int, sketch: int | None):
        self.k = k
        self.sketch = sketch
        self._wanted: dict[int, int] = {}
        """By row, for interests that say how many they want."""
        self._watch(Interests(), Members("interest"))

    def _watch(self, tree: Interests, members: Members) -> None:
        """Take these interests, by row, in place of all others."""
        self.tree, self._members = tree, members
        self._sketch()

    def _sketch(self) -> None:
        self._known = self.tree if self.sketch is None else self.tree.sketch(self.sketch)

    def __getitem__(self, interest: Id) -> Interest:
        """Return an interest with its list as it is now, ready to receive what comes next."""
        raise NotImplementedError

    def subscribe(
        self,
        interest: Id,
        lo: float | None = None,
        hi: float | None = None,
        *,
        k: int | None = None,
    ) -> Interest:
        """Add an interest in [lo, hi], without bounds where None; return it with its list."""
        new = self._members.new(interest)
        low, high = _range(new, lo, hi)
        self._add(new, low, high, None if k is None else self._checked_k(k))
        return self[new]

    def unsubscribe(self, interest: Id) -> None:
        """Remove an interest. (A sketch stays as it is: it may cover too much.)"""
        self._drop(self._members.release(interest))

    def replace(
        self,
        interest: Id,
        lo: float | None = None,
        hi: float | None = None,
        *,
        k: int | None = None,
    ) -> Interest:
        """Give an interest another range; without a k, its own stays. Return it with its list."""
        old = self._members.row(interest)
        low, high = _range(interest, lo, hi)
        wanted = self._wanted.get(old) if k is None else self._checked_k(k)
        self._add(as_id(interest), low, high, wanted)
        self._drop(old)
        return self[interest]

    def subscribe_many(self, interests: Any) -> int:
        """Add interests (id, x_lo, x_hi and perhaps k), all of them or none; return how many.

        They are a path, a table, a DataFrame, a list of dicts or a dict of columns.
        """
        ids, lo, hi, wanted = as_interests(interests, self.k)
        if len(self):
            new = self._members.new_many(ids)
            rows = self.tree.add_many(lo, hi)
            self._members.bind_many(new, rows.tolist())
            self._sketch()
        else:
            self._watch(Interests(lo, hi), Members.of(ids, "interest"))
            rows = np.arange(len(ids), dtype=np.int32)
        self._wanted.update((int(rows[at]), k) for at, k in wanted.items())
        return len(ids)

    def unsubscribe_many(self, interests: Iterable[Id]) -> int:
        """Remove interests, each once, all of them or none; return how many."""
        rows = self._members.release_many(interests)
        for row in rows:
            self._drop(row)
        return len(rows)

    def replace_many(self, interests: Any) -> int:
        """Give interests other ranges, all of them or none; return how many."""
        column, lo, hi, wanted = as_interests(interests, self.k)
        ids, rows = self._members.known_many(column)
        for at, (one, old) in enumerate(zip(ids, rows, strict=True)):
            self._add(one, float(lo[at]), float(hi[at]), wanted.get(at, self._wanted.get(old)))
            self._drop(old)
        return len(ids)

    def _checked_k(self, k: Any) -> int:
        return whole("k", k, most=self.k)

    def _add(self, one: Id, lo: float, hi: float, wanted: int | None) -> None:
        row = self.tree.add(lo, hi)
        self._members.bind(one, row)
        if wanted is not None:
            self._wanted[row] = wanted
        if self.sketch is not None:
            self._known.add(lo, hi)
            if self._known.count > 2 * self.sketch:
                self._known = self._known.sketch(self.sketch)

    def _drop(self, row: int) -> None:
        self.tree.remove(row)
        self._wanted.pop(row, None)

    # ---- snapshots

    def _interest_arrays(self) -> dict[str, AnyArray]:
        """Return all interests as plain arrays, in order of arrival."""
        rows, lo, hi = self.tree.columns()
        place = np.empty(self.tree.rows, np.int64)
        place[rows] = np.arange(len(rows))
        members = np.fromiter(self._members.rows(), np.int64, len(self))
        wanted = [self._wanted.get(row, 0) for row in members.tolist()]
        order = place[members]
        return {
            **id_buffers(id_array(list(self))),
            "lo": lo[order],
            "hi": hi[order],
            "k": np.array(wanted, np.int64),
        }

    def _take_interests(self, arrays: Mapping[str, AnyArray]) -> None:
        """Take over the interests of a snapshot."""
        largest = int(arrays["k"].max(initial=0))
        if largest > self.k:
            raise UsageError(f"an interest wants {largest} objects; given: k={self.k}")
        self._wanted = {row: k for row, k in enumerate(arrays["k"].tolist()) if k}
        members = Members.of(ids_of_buffers(arrays), "interest")
        self._watch(Interests(arrays["lo"], arrays["hi"]), members)


def _range(interest: Any, lo: Any, hi: Any) -> tuple[float, float]:
    low = -MAX if lo is None else finite("lo", lo)
    high = MAX if hi is None else finite("hi", hi)
    if low > high:
        raise UsageError(f"interest {interest!r} is empty: {lo!r} is above {hi!r}")
    return low, high
