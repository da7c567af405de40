"""Members of a set: ids and their dense rows, with the same rules for every set.

An id is a 64-bit integer or a non-empty text, and all ids of a set have the type of its first
member. NumPy scalars are converted; booleans, floats and texts that cannot be encoded as UTF-8 are
rejected. Checks come first and change nothing, so `bind` and `release` cannot fail.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa

from rangecast.errors import DuplicateIdError, UnknownIdError, UsageError, abbreviate, did_you_mean
from rangecast.model.attributes.base import INT64_MAX, INT64_MIN
from rangecast.model.boxes import id_array
from rangecast.model.sets.ascending import AscendingRows

Id = str | int

_HINTED = 1000
"""Ids that are compared with an unknown one for a hint."""


def as_id(value: Any, noun: str = "subscription") -> Id:
    """Validate an id; return it as a Python integer or text."""
    if isinstance(value, str):
        if not value:
            raise UsageError(
                f"the id of {_a(noun)} must be an integer or a non-empty string\n"
                "  given: ''\n  hint: give it an id"
            )
        if not value.isascii():
            _check_text(value, noun)
        return str(value)
    if isinstance(value, int | np.integer) and not isinstance(value, bool):
        number = int(value)
        if INT64_MIN <= number <= INT64_MAX:
            return number
        raise UsageError(
            f"the id of {_a(noun)} must be a 64-bit integer or a string\n"
            f"  given: {abbreviate(number)}\n  hint: give it as a string"
        )
    raise UsageError(
        f"the id of {_a(noun)} must be an integer or a string; given: {type(value).__name__} "
        f"{abbreviate(value)}"
    )


def _check_text(text: str, noun: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise UsageError(
            f"the id of {_a(noun)} must be a string that UTF-8 can encode; given: {text!r}, which "
            "has a "
            "lone surrogate\n  hint: remove or replace that character"
        ) from None


def _a(noun: str) -> str:
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"


class Members:
    """Ids of a set with their rows, iterated in the order in which they were bound."""

    def __init__(self, noun: str = "subscription", kind: type | None = None):
        self.noun = noun
        self.kind = kind
        """Of all ids: `int` or `str`; `None` before the first one."""
        self._column: pa.Array | None = None
        """Ids whose rows are their places, until one of them is looked up."""
        self._rows = {}  # or `AscendingRows`

    @classmethod
    def of(cls, ids: Any, noun: str = "subscription") -> Members:
        """Return the members of a column of ids; the row of each is its index.

        Millions of ids stay a column until one of them is looked up.
        """
        members = cls(noun)
        column = id_array(ids)
        if len(column.unique()) < len(column):
            counts = column.value_counts()
            twice = counts.field("values")[counts.field("counts").to_numpy().argmax()]
            raise DuplicateIdError(f"duplicate id {twice.as_py()!r}; nothing was added")
        if len(column):
            members._column = column
            del members._rows  # made of the column when it is needed
            members.kind = int if pa.types.is_integer(column.type) else str
        return members

    @cached_property
    def _rows(self) -> dict[Id, int] | AscendingRows:
        column, self._column = self._column, None
        assert column is not None
        return _rows_of(column.to_pylist(), range(len(column)))

    def __len__(self) -> int:
        return len(self._rows) if self._column is None else len(self._column)

    def __iter__(self) -> Iterator[Id]:
        return iter(self._rows)

    def __contains__(self, subscription: object) -> bool:
        # True and 1.0 equal the integer 1, but are no ids.
        if not isinstance(subscription, str | int | np.integer) or isinstance(subscription, bool):
            return False
        return subscription in self._rows

    def items(self) -> Iterable[tuple[Id, int]]:
        """Return (id, row) pairs."""
        return self._rows.items()

    def rows(self) -> Iterable[int]:
        """Return the rows, in the order of the ids."""
        return self._rows.values()

    def new(self, subscription: Any, remedy: str = "use replace()") -> Id:
        """Validate the id of a new member; reject one that exists or has the other type."""
        new = as_id(subscription, self.noun)
        self.check_kind(new)
        if new in self._rows:
            raise DuplicateIdError(f"{self.noun} {new!r} already exists; {remedy}")
        return new

    def new_many(self, subscriptions: Iterable[Any] | pa.Array) -> list[Id]:
        """Validate the ids of new members; reject all of them if one is invalid.

        An Arrow array, as in `Boxes`, contains only ids of one type.
        """
        if isinstance(subscriptions, pa.Array):
            ids: list[Id] = subscriptions.to_pylist()
            if ids:
                self.check_kind(ids[0])
        else:
            ids = [as_id(subscription, self.noun) for subscription in subscriptions]
            self.check_kinds(ids)
        if not self._none_known(ids):
            known = next(id_ for id_ in ids if id_ in self._rows)
            raise DuplicateIdError(f"{self.noun} {known!r} already exists; nothing was added")
        _check_distinct(ids, "added")
        return ids

    def known_many(self, subscriptions: Iterable[Any] | pa.Array) -> tuple[list[Id], list[int]]:
        """Return members and their rows, without duplicates; reject all if one is unknown."""
        ids = self.listed(subscriptions)
        rows = [self.row(id_) for id_ in ids]
        _check_distinct(ids, "replaced")
        return ids, rows

    def either(self, subscription: Any) -> tuple[Id, int | None]:
        """Return an id and its row, or `None` if it is not a member; reject the other type."""
        id_ = as_id(subscription, self.noun)
        self.check_kind(id_)
        return id_, self._rows.get(id_)

    def either_many(self, column: pa.Array) -> tuple[list[Id], list[int | None]]:
        """Return ids, without duplicates, and their rows, as `either` does; all or none."""
        ids: list[Id] = column.to_pylist()
        if ids:
            self.check_kind(ids[0])
        _check_distinct(ids, "changed")
        if self._none_known(ids):
            return ids, [None] * len(ids)
        return ids, [self._rows.get(id_) for id_ in ids]

    def _none_known(self, ids: list[Id]) -> bool:
        """Return whether no id, of the right type, is a member."""
        if not ids or not len(self):
            return True
        if isinstance(self._rows, AscendingRows):
            return self._rows.none_known(ids)  # type: ignore[arg-type]
        return self._rows.keys().isdisjoint(ids)

    def row(self, subscription: Any) -> int:
        """Return the row of a member."""
        if subscription in self:
            return self._rows[subscription]
        raise UnknownIdError(f"no {self.noun} {subscription!r}: {self.hint(subscription)}")

    def hint(self, subscription: Any) -> str:
        """Return a hint with the members that an unknown id may stand for."""
        if (
            self.kind is not None
            and isinstance(subscription, str | int)
            and type(subscription) is not self.kind
        ):
            return f"the ids of this set are {self._kinds}"
        return did_you_mean(str(subscription), [str(id_) for id_ in islice(self._rows, _HINTED)])

    def bind(self, new: Id, row: int) -> None:
        """Bind a validated id to a row; an existing member is rebound."""
        self.bind_many([new], (row,))

    def bind_many(self, ids: list[Id], rows: Sequence[int]) -> None:
        """Bind validated ids to rows."""
        if not ids:
            return
        self.kind = type(ids[0])
        if not len(self):
            self._rows = _rows_of(ids, rows)
            return
        if isinstance(self._rows, AscendingRows):
            if self._rows.update(ids, rows):  # type: ignore[arg-type]
                return
            self._rows = dict(self._rows.items())
        self._rows.update(zip(ids, rows, strict=True))

    def release(self, subscription: Any) -> int:
        """Remove a member; return its row."""
        row = self.row(subscription)
        del self._rows[subscription]
        return row

    def release_many(self, subscriptions: Iterable[Any]) -> list[int]:
        """Remove members; return their rows. If one is unknown, none is removed."""
        rows = {subscription: self.row(subscription) for subscription in self.listed(subscriptions)}
        self.forget(rows)
        return list(rows.values())

    def forget(self, ids: Iterable[Id]) -> None:
        """Remove ids, ignoring those that are not members."""
        for id_ in ids:
            self._rows.pop(id_, None)

    def listed(self, subscriptions: Any) -> list[Any]:
        """Return ids as a list; reject a single id, because a text is not a list."""
        if isinstance(subscriptions, pa.Array | pa.ChunkedArray):
            return list(subscriptions.to_pylist())
        if isinstance(subscriptions, Iterable) and not isinstance(subscriptions, str | bytes):
            return list(subscriptions)
        raise UsageError(
            f"expected a list of {self.noun}s\n"
            f"  given: {type(subscriptions).__name__} {abbreviate(subscriptions)}\n"
            "  hint: put a single id into a list"
        )

    @property
    def _kinds(self) -> str:
        return "integers" if self.kind is int else "strings"

    def check_kinds(self, ids: list[Id]) -> None:
        """Reject ids of mixed types, or of another type than the members."""
        if ids:
            other = next((id_ for id_ in ids if type(id_) is not type(ids[0])), None)
            if other is not None:
                raise UsageError(_one_kind(f"{ids[0]!r} and {other!r}"))
            self.check_kind(ids[0])

    def check_kind(self, new: Id) -> None:
        """Reject an id of another type than the members."""
        if self.kind is not None and type(new) is not self.kind:
            raise UsageError(_one_kind(f"{new!r}, but this set's are {self._kinds}"))


def _rows_of(ids: list[Id], rows: Sequence[int]) -> dict[Id, int] | AscendingRows:
    """Return a mapping from ids of one type to rows."""
    ascending = AscendingRows()
    if isinstance(ids[0], int) and ascending.update(ids, rows):  # type: ignore[arg-type]
        return ascending
    return dict(zip(ids, rows, strict=True))


def _check_distinct(ids: list[Id], done: str) -> None:
    seen = set(ids)
    if len(seen) < len(ids):
        seen.clear()
        twice = next(id_ for id_ in ids if id_ in seen or seen.add(id_))  # type: ignore[func-returns-value]
        raise DuplicateIdError(f"duplicate id {twice!r}; nothing was {done}")


def _one_kind(kind: str) -> str:
    return f"the ids of a set must be all integers or all strings; given: {kind}"
