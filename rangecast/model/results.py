"""Results of many questions or commands at once: a sequence with one item per question.

`r[i]` is the result of the i-th one (negative: counted from the end), `len` and iteration go
through all of them, `table()`, `to_pandas()` and `to_polars()` have everything as columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from importlib import import_module
from itertools import islice
from operator import index
from typing import Any, TypeVar

import pyarrow as pa

from rangecast.errors import UsageError

Item = TypeVar("Item", covariant=True)
_SHOWN = 10
"""Results that a notebook shows, and parts of each of them."""


def _need(library: str) -> Any:
    try:
        return import_module(library)
    except ModuleNotFoundError as error:
        raise UsageError(
            f"to_{library}() needs {library}, which isn't installed\n  hint: install it, or use "
            "table(), an Arrow table"
        ) from error


def _brief(item: Any) -> str:
    if not isinstance(item, list) or len(item) <= _SHOWN:
        return str(item)
    return f"{', '.join(map(str, item[:_SHOWN]))}, ... {len(item):,} in all"


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
        _need("pandas")
        return self.table().to_pandas()

    def to_polars(self) -> Any:
        """Return everything as a Polars DataFrame."""
        return _need("polars").from_arrow(self.table())

    def __repr__(self) -> str:
        """Say what it is, not all that is in it."""
        return f"<{type(self).__name__}: {len(self):,} result{'s'[: len(self) != 1]}>"

    def _repr_html_(self) -> str:
        """Return the first results as a table, for notebooks."""
        rows = "".join(
            f"<tr><td>{escape(str(self._label(place)))}</td><td>{escape(_brief(item))}</td></tr>"
            for place, item in enumerate(islice(self, _SHOWN))
        )
        return f"<p>{escape(repr(self))}</p><table>{rows}</table>"

    def _label(self, place: int) -> Any:
        """Return what the question at a place is called."""
        return place

    def __getitem__(self, place: Any) -> Any:
        """Return the item at a place; a negative one counts from the end."""
        at, size = index(place), len(self)
        if not -size <= at < size:
            raise IndexError(f"there are {size:,} results, numbered from 0; given: {at}")
        return self._item(at % size)
