"""Inference of a space from data: a type per column, with a one-line explanation.

An attribute type is possible for a column if `encode` accepts all of its values, and if they are
written in the usual way: `007` is a text and 5.0 is not an integer, though both could be parsed as
one. Columns are read in batches, and every type that is still possible is tried on each batch.
Fields of objects become columns of their own, with a source.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rangecast.errors import SpaceError, abbreviate
from rangecast.kernels.arrays import F64, I64, Bool
from rangecast.model.attributes.base import Attribute, Boolean, Integer, Number
from rangecast.model.attributes.column_names import RESERVED, columns_of
from rangecast.model.attributes.field_paths import Fields, source_of
from rangecast.model.attributes.text import Category, Hierarchy, String
from rangecast.model.attributes.timestamps import Timestamp
from rangecast.model.encoding.casts import is_text
from rangecast.model.encoding.columns import encode, explain
from rangecast.model.io.batch import Batch, Values, as_values, text_at
from rangecast.model.io.files import read_batches
from rangecast.model.io.tables import batches_of

CATEGORY_VALUES, LEAVES = 64, 1000
"""The most values of a category, and leaves of a hierarchy, that are listed."""
_ROWS_PER_VALUE = 10
"""A list of values is assumed complete if each was seen this often on average."""
_MARKS = (" > ", " / ", " | ", "::", "/", ">", "|", "\\")
"""Separators of the parts of a path."""
_TRIED = (Boolean, Integer, Number, Timestamp, String)
"""In this order: the first that takes all values."""
_WRITTEN: dict[type[Attribute], str] = {
    Boolean: r"^\s*(?i:true|false)\s*$",
    Integer: r"^\s*[+-]?(0|[1-9][0-9]*)\s*$",
    Number: r"^\s*[+-]?((0|[1-9][0-9]*)?(\.[0-9]*)?([eE][+-]?[0-9]+)?|(?i:nan))\s*$",
    Timestamp: r"^\s*[0-9]{4}-[0-9]{2}-[0-9]{2}",
    String: "",
}
"""Patterns of texts that stand for a value of a kind."""
_NAMED: dict[str, Any] = {
    "text": str,
    "boolean": bool | np.bool_,
    "number": int | float | Decimal | np.number,
    "moment": date | np.datetime64,
}
"""Names of types, those of Python."""
_SUITS: dict[str, type[Attribute]] = {"number": Number, "moment": Timestamp}


def infer_attributes(value: Any, *, bounds: bool) -> tuple[list[Attribute], dict[str, str]]:
    """Infer the attributes of a file or table, and explain each column; see `Space.infer`."""
    columns: dict[Fields, _Column] = {}
    nameless: dict[str, str] = {}
    rows = 0
    for batch, file in _batches(value):
        rows += len(batch.rows)
        named: Mapping[Any, Values] = batch.columns  # a DataFrame may have other names than texts
        for name, column in named.items():
            if not isinstance(name, str):
                nameless[abbreviate(name)] = "left out, its name isn't a string"
                continue
            for path, values in _flat((name,), column):
                known_column = columns.setdefault(path, _Column(path))
                try:
                    known_column.add(values, batch.rows, file)
                except Exception:  # values whose own methods raise
                    known_column.mix("values that can't be read")
    columns = _consistent(columns)
    clashes = _clashes(columns)
    attributes: list[Attribute] = []
    guesses = nameless
    for path, known in columns.items():
        attribute, guess = None, clashes.get(path, "")
        if not guess:
            attribute, guess = known.guess(rows, bounds=bounds)
        if attribute is not None:
            attributes.append(attribute)
            guesses[attribute.name] = guess
        else:
            guesses[known.source or known.name] = f"left out, {guess}"
    if not attributes:
        reasons = "".join(f"\n  {name}: {guess}" for name, guess in guesses.items())
        raise SpaceError(f"no column can be an attribute{reasons or ': there is none'}")
    return attributes, guesses


def _flat(path: Fields, values: Values) -> Iterator[tuple[Fields, Values]]:
    """Yield a column with its path; a column of objects is split into its fields."""
    fields: dict[str, Values] = {}
    if not isinstance(values, list):
        if pa.types.is_struct(values.type):
            names = [field.name for field in values.type]
            fields = {name: pc.struct_field(values, at) for at, name in enumerate(names)}
    elif all(value is None or isinstance(value, dict) for value in values):
        names = list(dict.fromkeys(name for value in values if value is not None for name in value))
        for name in names if all(isinstance(name, str) for name in names) else ():
            fields[name] = as_values(
                [None if value is None else value.get(name) for value in values]
            )
    if not fields:
        yield path, values
    for name, below in fields.items():
        yield from _flat((*path, name), below)


def _consistent(columns: dict[Fields, _Column]) -> dict[Fields, _Column]:
    """Drop columns that have objects in only some batches, together with their fields."""
    within = {path[:length] for path in columns for length in range(1, len(path))}
    for path in within & columns.keys():
        if columns[path].count:
            columns[path].mix("object")
        else:  # nothing but null, in some batch
            del columns[path]
    mixed = within & columns.keys()
    return {
        path: column
        for path, column in columns.items()
        if mixed.isdisjoint(path[:length] for length in range(1, len(path)))
    }


def _batches(value: Any) -> Iterator[tuple[Batch, str]]:
    """Yield batches with their row numbers per file, and the file's name if there are several."""
    if not isinstance(value, str | Path):
        for batch in batches_of(value, "events"):
            yield batch, ""
        return
    begun: list[tuple[int, Path]] = []
    for batch in read_batches(value, begun=begun):
        first, file = begun[-1]
        yield Batch(batch.rows - first, batch.columns), "" if file == Path(value) else str(file)


def _clashes(columns: Mapping[Fields, _Column]) -> dict[Fields, str]:
    """Return the columns whose names rule them out as attributes, with the reasons."""
    sources: dict[Fields, str] = {}
    taken: dict[str, str] = {}
    # Of price and price_lo, price is the attribute; of order_id and id within order, order_id.
    for path in sorted(columns, key=lambda path: (len(columns[path].name), len(path))):
        name = columns[path].name
        also = columns_of(name)
        both = next((other for other in also if other in taken), None)
        if name == "id":
            sources[path] = "it names the rows"
        elif not name.strip():
            sources[path] = "it has no name"
        elif len(path) > 1 and columns[path].source is None:
            sources[path] = "a source can't name a field that has both kinds of quotes in its name"
        elif not also.keys().isdisjoint(RESERVED):
            sources[path] = "the name is reserved for a column of subscription files; rename it"
        elif both is not None:
            sources[path] = f"a column {both!r} would also be {taken[both]}; rename it"
        else:
            taken |= also
    return sources


class _TypeCandidate:
    """Attribute type that has accepted all values of a column so far."""

    def __init__(self, attribute: Attribute):
        self.attribute = attribute
        self.lo, self.hi = np.inf, -np.inf
        self.nan = 0
        self.all_whole = True

    def add(self, coordinates: F64, count: int) -> None:
        """Update the statistics with coordinates, of which `count` are not null."""
        finite = coordinates[np.isfinite(coordinates)]
        self.lo = float(finite.min(initial=self.lo))
        self.hi = float(finite.max(initial=self.hi))
        self.nan += count - len(finite)
        self.all_whole = self.all_whole and bool((finite == np.floor(finite)).all())


class _Column:
    """Statistics of a column over the batches read so far."""

    def __init__(self, path: Fields):
        self.name = path[0] if len(path) == 1 else "_".join(path)
        self.source = None if len(path) == 1 else source_of(path)
        self.count = 0
        """Values that aren't null."""
        self.types: dict[str, None] = {}
        self.distinct: dict[str, None] = {}
        """Its texts, if it has texts; at most one more than is ever listed."""
        self.possible: dict[type[Attribute], _TypeCandidate] = {}
        if isinstance(self.name, str) and self.name.strip():
            self.possible = {kind: _TypeCandidate(self._made(kind)) for kind in _TRIED}
        self.rejected = ""
        """Why the kind that suits the type of its values doesn't take all of them."""
        self.nearly = ""
        """Why it isn't what most of its texts are."""

    def _made(self, kind: Any, *options: Any) -> Any:
        """Return an attribute of a type, with the column's name."""
        return kind(self.name, *options, source=self.source)

    def mix(self, kind: str) -> None:
        """Record a mixture of types, which no attribute accepts."""
        self.types[kind] = None
        self.possible.clear()

    def add(self, values: Values, rows: I64, file: str) -> None:
        """Add the values of a batch to the statistics."""
        if not isinstance(values, list) and pa.types.is_dictionary(values.type):
            values = values.dictionary_decode()
        nulls = _nulls(values)
        self.count += len(values) - nulls
        if nulls == len(values):
            return
        self.types |= dict.fromkeys(_types(values))
        for kind, tried in list(self.possible.items()):
            encoded = encode(tried.attribute, values, nan="missing")
            wrong = encoded.bad | _unusual_spelling(kind, values)
            if wrong.any():
                del self.possible[kind]
                index = int(np.flatnonzero(wrong)[0])
                where = f"row {rows[index]}" + (f" of {file}" if file else "")
                self._explain(tried.attribute, values, index, where, encoded.bad, wrong)
            else:
                tried.add(encoded.coordinates, len(values) - nulls)
        if String in self.possible and len(self.distinct) <= LEAVES:
            texts = values if isinstance(values, list) else values.unique().to_pylist()
            new = dict.fromkeys(text for text in texts if isinstance(text, str))
            self.distinct = dict(list((self.distinct | new).items())[: LEAVES + 1])

    def _explain(
        self,
        attribute: Attribute,
        values: Values,
        index: int,
        where: str,
        rejected: Bool,
        wrong: Bool,
    ) -> None:
        """Record why a type was ruled out, if a user would have expected it."""
        count = len(values) - _nulls(values)
        shown = f"{abbreviate(text_at(values, index))} in {where}"
        if "text" in self.types:
            if isinstance(attribute, Number | Timestamp) and 2 * wrong.sum() < count:
                self.nearly = f"; not {attribute.type} because of {shown}"
        elif rejected[index] and type(attribute) is _SUITS.get(next(iter(self.types))):
            self.rejected = f"{explain(attribute, values, index)}: {shown}"

    def guess(self, rows: int, *, bounds: bool) -> tuple[Attribute | None, str]:
        """Return the inferred attribute, or `None`, with the reason."""
        if not self.count:
            return None, f"it has no value in {_counted(rows, 'row')}"
        if not self.possible:
            listed = " and ".join(self.types)
            if len(self.types) > 1:
                return None, f"it has values of different types, {listed}"
            return None, self.rejected or f"no attribute type takes its values, {listed}"
        kind, tried = next(iter(self.possible.items()))
        missing = rows - self.count
        end = f" in {_counted(rows, 'row')}"
        end += f", {missing:,} missing" if missing else ""
        if tried.nan:
            end += f", {tried.nan:,} NaN (to read as missing: --nan missing, nan='missing')"
        if kind is String:
            attribute, text = self._texts(end)
        elif kind is Boolean:
            attribute, text = tried.attribute, f"boolean, true or false{end}"
        else:
            attribute, text = _ordered(tried, end, bounds=bounds)
        return attribute, text + self.nearly

    def _texts(self, end: str) -> tuple[Attribute, str]:
        """Infer a category, hierarchy or string."""
        if self.nearly:
            return self._made(String), f"string{end}"
        values = sorted(self.distinct)
        size = len(values)
        seen_often = self.count >= _ROWS_PER_VALUE * size
        if size <= LEAVES and seen_often:
            for mark in _MARKS:
                tree = _tree(values, mark)
                if tree is not None:
                    attribute = self._made(Hierarchy, tree)
                    above = _counted(len(attribute.ranges) - size, "concept")
                    text = f"hierarchy, paths by {mark!r}: {size:,} leaves, {above}{end}"
                    return attribute, text
        distinct = f"{_counted(size, 'distinct value')}"
        if size <= CATEGORY_VALUES and seen_often:
            return self._made(Category, values), f"category, {distinct}{end}"
        if size == self.count and size > 1:
            why = "no two are the same"
        elif size > CATEGORY_VALUES:
            distinct = distinct if size <= LEAVES else f"more than {LEAVES:,} distinct values"
            why = "too many to list"
        else:
            why = "too few rows to know all values"
        return self._made(String), f"string, {distinct}{end}: {why}"


def _ordered(tried: _TypeCandidate, end: str, *, bounds: bool) -> tuple[Attribute, str]:
    """Infer a number, integer or timestamp."""
    attribute = tried.attribute
    if tried.lo > tried.hi:
        return attribute, f"{attribute.type}, only NaN values{end}"
    low, high = (attribute.literal(array).strip("'") for array in (tried.lo, tried.hi))
    text = f"{attribute.type}, {low} to {high}{end}"
    is_exact = max(abs(tried.lo), abs(tried.hi)) <= 2**53
    if isinstance(attribute, Number) and tried.all_whole and is_exact:
        text += "; all are whole numbers, it may be an integer"
    if bounds:
        ends = {"min": attribute.value(tried.lo), "max": attribute.value(tried.hi)}
        attribute = type(attribute)(attribute.name, source=attribute.source, **ends)
        text += "; min and max are those of the data"
    return attribute, text


def _nulls(values: Values) -> int:
    return sum(value is None for value in values) if isinstance(values, list) else values.null_count


def _types(values: Values) -> Iterator[str]:
    """Yield the types of the values of a column, in the user's terms."""
    if isinstance(values, list):
        for value_ in {type(value): value for value in values if value is not None}.values():
            if not _is_nan(value_):  # which is a missing value among values of any type
                own = type(value_).__name__
                yield next((name for name, of in _NAMED.items() if isinstance(value_, of)), own)
        return
    kind = values.type
    if is_text(kind):
        yield "text"
    elif pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        yield "number"
    elif pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        yield "moment"
    else:
        yield "boolean" if pa.types.is_boolean(kind) else str(kind)


def _unusual_spelling(kind: type[Attribute], values: Values) -> Any:
    """Return a mask of the values that parse as a type but are not written like one."""
    if isinstance(values, list):
        return np.array([not _as_expected(kind, value) for value in values], np.bool_)
    odd = np.zeros(len(values), np.bool_)
    type_ = values.type
    if is_text(type_):
        odd = pc.invert(pc.match_substring_regex(values, _WRITTEN[kind])).fill_null(False)
        return np.asarray(odd.to_numpy(zero_copy_only=False), np.bool_)
    if (kind is Boolean and not pa.types.is_boolean(type_)) or (
        kind is Integer and not pa.types.is_integer(type_)
    ):
        odd[:] = values.is_valid().to_numpy(zero_copy_only=False)
    return odd


def _as_expected(kind: type[Attribute], value: Any) -> bool:
    if value is None or _is_nan(value):
        return True
    if isinstance(value, str):
        return re.search(_WRITTEN[kind], value) is not None
    if kind is Boolean:
        return isinstance(value, bool | np.bool_)
    return kind is not Integer or isinstance(value, int | np.integer)


def _is_nan(value: Any) -> bool:
    """Return whether a value is not equal to itself, like NaN and NaT."""
    try:
        return bool(value != value)
    except Exception:  # an array, `pd.NA`, or an object whose own methods raise
        return False


def _tree(values: list[str], mark: str) -> Any:
    """Return paths as a tree of their prefixes; `None` if they are not paths."""
    root: dict[str, Any] = {}
    concepts = set()
    for value in values:
        branch = root
        above = [*_beginnings(value, mark)]
        if not above or all(part.strip().isdigit() for part in value.split(mark)):
            return None
        for concept in above:
            branch = branch.setdefault(concept, {})
        branch[value] = None
        concepts.update(above)
    if len(concepts) >= len(values) or not concepts.isdisjoint(values):
        return None
    return _branch(root)


def _beginnings(path: str, mark: str) -> Iterator[str]:
    end = path.find(mark, 1)
    while end >= 0:
        yield path[:end]
        end = path.find(mark, end + len(mark))


def _branch(branch: dict[str, Any]) -> Any:
    leaves = [name for name, below in branch.items() if below is None]
    concepts = {name: _branch(below) for name, below in branch.items() if below is not None}
    if not leaves or not concepts:
        return leaves or concepts
    return [*leaves, concepts]


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
