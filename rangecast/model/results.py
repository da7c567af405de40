"""Results of many questions or commands at once: a sequence with one item per question.

`r[i]` is the result of the i-th one (negative: counted from the end), `len` and iteration go
through all of them, `table()` and `to_pandas()` have everything as columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import index
from typing import Any, TypeVar

import pyarrow as pa

from rangecast.errors import UsageError

Item = TypeVar("Item", covariant=True)


class Results(Sequence[Item]):
    """Columns that are read as a sequence. A subclass says how many items, which, and its table."""

    __slots__ = ()

    def _item(self, place: int) -> Item:
        """Return an item by its place, which is there."""
        raise NotImplementedError

    def table(self) -> pa.Table:
        """Return everything as an Arrow table."""
        raise NotImplementedError

    def to_pandas(self) -> Any:
        """Return everything as a pandas DataFrame."""
        try:
            return self.table().to_pandas()
        except ModuleNotFoundError as error:
            raise UsageError(
                "to_pandas() needs pandas, which isn't installed\n  to do: install it, or use "
                "table(), an Arrow table"
            ) from error

    def __getitem__(self, place: Any) -> Any:
        """Return the item at a place; a negative one counts from the end."""
        at, size = index(place), len(self)
        if not -size <= at < size:
            raise IndexError(f"there are {size:,} results, numbered from 0; given: {at}")
        return self._item(at % size)
