"""Rows of integer ids in an array, for ids that come in ascending order with few gaps.

A dict takes about 100 bytes per id, this takes 8. It iterates as a dict would, because each new id
is the largest so far; for ids that don't fit, a dict must take over.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from itertools import pairwise

_GAPS, _SMALL = 4, 1024
"""The array has at most this many items per id, beside a small number."""
_ABSENT = -(2**63)


class AscendingRows:
    """A mapping from ids to rows."""

    def __init__(self) -> None:
        self._rows = array("q")
        """The row of each id from `_first` on; the last one isn't absent."""
        self._first = 0
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[int]:
        return (id_ for id_, _ in self.items())

    def __contains__(self, id_: object) -> bool:
        return self.get(id_) is not None

    def __getitem__(self, id_: object) -> int:
        row = self.get(id_)
        if row is None:
            raise KeyError(id_)
        return row

    def get(self, id_: object) -> int | None:
        """Return the row of an id, or `None`."""
        if isinstance(id_, str):
            return None
        at = int(id_) - self._first  # type: ignore[call-overload]
        row = self._rows[at] if 0 <= at < len(self._rows) else _ABSENT
        return None if row == _ABSENT else row

    def items(self) -> Iterator[tuple[int, int]]:
        """Return (id, row) pairs."""
        return (pair for pair in enumerate(self._rows, self._first) if pair[1] != _ABSENT)

    def values(self) -> Iterator[int]:
        """Return the rows, in the order of the ids."""
        return (row for row in self._rows if row != _ABSENT)

    def none_known(self, ids: Sequence[int]) -> bool:
        """Return whether no id is known; ids that ascend without gaps take no time."""
        if ids[0] >= self._first + len(self._rows) and _are_consecutive(ids):
            return True
        return not any(id_ in self for id_ in ids)

    def update(self, ids: Sequence[int], rows: Sequence[int]) -> bool:
        """Set the rows of known ids and of new ones that fit; return whether all do."""
        if self.none_known(ids):
            if not self._has_room(ids):
                return False
            if _are_consecutive(ids):
                self._append_gap(ids[0])
                self._rows.extend(rows)
                self._count += len(ids)
                return True
        elif not self._has_room([id_ for id_ in ids if id_ not in self]):
            return False
        for id_, row in zip(ids, rows, strict=True):
            if id_ in self:
                self._rows[id_ - self._first] = row
            else:
                self._append_gap(id_)
                self._rows.append(row)
                self._count += 1
        return True

    def pop(self, id_: object, default: int | None = None) -> int | None:
        """Remove an id; return its row, or the default."""
        row = self.get(id_)
        if row is None:
            return default
        self._rows[int(id_) - self._first] = _ABSENT  # type: ignore[call-overload]
        self._count -= 1
        while self._rows and self._rows[-1] == _ABSENT:
            self._rows.pop()
        return row

    def __delitem__(self, id_: object) -> None:
        self.pop(id_)

    def _has_room(self, new: Sequence[int]) -> bool:
        """Return whether new ids ascend from the largest one with few gaps."""
        if not new:
            return True
        if not self._count:
            self._rows, self._first = array("q"), new[0]
        if new[0] < self._first + len(self._rows):
            return False
        if not _are_consecutive(new) and any(low >= high for low, high in pairwise(new)):
            return False
        most = _GAPS * (self._count + len(new)) + _SMALL
        if new[-1] - self._first >= most and self._count:
            gone = next(at for at, row in enumerate(self._rows) if row != _ABSENT)
            self._rows, self._first = self._rows[gone:], self._first + gone
        return new[-1] - self._first < most

    def _append_gap(self, id_: int) -> None:
        """Mark the ids between the largest one and a new one as absent."""
        self._rows.extend([_ABSENT] * (id_ - self._first - len(self._rows)))


def _are_consecutive(ids: Sequence[int]) -> bool:
    """Return whether each id is the one before it plus one."""
    return len(ids) == 1 or (
        ids[-1] - ids[0] == len(ids) - 1 and list(ids) == [*range(ids[0], ids[0] + len(ids))]
    )
