"""Results of many queries or edits: a sequence with one item per query.

`r[i]` is the i-th result (negative indexes count from the end), and `r[i:j]` is a list of results.
`len` and iteration cover all results. `table()`, `to_pandas()` and `to_polars()` return all of them
as columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from itertools import islice
from operator import index
from typing import Any, SupportsIndex, TypeVar, overload

import pyarrow as pa

from rangecast.errors import UsageError
from rangecast.model.display import ITEMS, ROWS, brief, counted, few, html_table

Item = TypeVar("Item", covariant=True)


def _need(library: str) -> Any:
    try:
        return import_module(library)
    except ModuleNotFoundError as error:
        raise UsageError(
            f"to_{library}() needs {library}, which isn't installed\n  hint: install it, or use "
            "table(), an Arrow table"
        ) from error


class Results(Sequence[Item]):
    """Sequence view of columns. Subclasses define its length, items and table."""

    __slots__ = ()

    def _item(self, index: int) -> Item:
        """Return the item at a valid, non-negative index."""
        raise NotImplementedError

    def table(self) -> pa.Table:
        """Return all results as an Arrow table."""
        raise NotImplementedError

    def to_pandas(self) -> Any:
        """Return all results as a pandas DataFrame."""
        _need("pandas")
        return self.table().to_pandas()

    def to_polars(self) -> Any:
        """Return all results as a Polars DataFrame."""
        return _need("polars").from_arrow(self.table())

    def __repr__(self) -> str:
        """Return the size and the first few items in one line."""
        size = len(self)
        first = ", ".join(
            f"{brief(self._label(index))}: {_brief(item)}"
            for index, item in enumerate(islice(self, ITEMS))
        )
        more = ", ..." if size > ITEMS else ""
        return f"<{type(self).__name__}: {self._size()}{f': {first}{more}' if first else ''}>"

    def _repr_html_(self) -> str:
        """Return the first results as a table, for notebooks."""
        places = range(min(len(self), ROWS))
        title = f"{type(self).__name__}: {self._size()}"
        return html_table(title, self._header(), map(self._cells, places), len(self))

    def _size(self) -> str:
        """Return a short description of the size."""
        return counted(len(self), "result")

    def _header(self) -> tuple[str, ...]:
        """Return the column names of the HTML table."""
        return "", "result"

    def _cells(self, index: int) -> tuple[Any, ...]:
        """Return the cells of one row of the HTML table."""
        return self._label(index), self._item(index)

    def _label(self, index: int) -> Any:
        """Return the label of the query at an index."""
        return index

    @overload
    def __getitem__(self, index: SupportsIndex) -> Item: ...

    @overload
    def __getitem__(self, index: slice) -> list[Item]: ...

    def __getitem__(self, at_or_slice: SupportsIndex | slice) -> Item | list[Item]:
        """Return the item at an index (negative: from the end), or a list for a slice."""
        size = len(self)
        if isinstance(at_or_slice, slice):
            return [self._item(at) for at in range(*at_or_slice.indices(size))]
        at = index(at_or_slice)
        if not -size <= at < size:
            raise IndexError(f"there are {size:,} results, numbered from 0; given: {at}")
        return self._item(at % size)


def _brief(item: Any) -> str:
    return few(item, len(item)) if isinstance(item, list) else brief(item)
