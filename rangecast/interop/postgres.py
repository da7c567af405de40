"""Tables of PostgreSQL with range columns: `read` and `write`.

The rules that match an event are the rows that a query of this kind finds, over all columns:

    select id from rules where (price is null or price @> :price) and (at is null or at @> :at)

So an empty cell is no condition, `(,)` is any value, and a range can't contain a missing value.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from rangecast.errors import FileError, InvalidValueError, abbreviate
from rangecast.interop.export import Bound, ExportResult, Term, export, plain_number
from rangecast.interop.result import (
    ImportResult,
    InvalidEntry,
    import_rules,
    rules_by_id,
    rules_listed,
    unknown_shape,
)
from rangecast.interop.rules import AllOf, AnyOf, Kind, Rule, Test, UnsupportedRuleError
from rangecast.model.attributes.timestamps import Timestamp
from rangecast.model.space import Space

_BOUND = r'("(?:[^"\\]|\\.|"")*"|[^",()\[\]{}\\]*)'
_RANGE = re.compile(rf"\s*([\[(]){_BOUND},{_BOUND}([\])])\s*")
_ESCAPED = re.compile(r'\\(.)|"(")')
_EXPECTED = "give a CSV file with a header, a list of rows with an id, or rows by id"


def read(source: str | Path | Any, space: Space | None = None) -> ImportResult:
    """Import the rows of a table with range columns.

    source   a CSV file with a header, a list of rows, or rows by id; each row has `id`, and all
             its other columns are ranges or multiranges, in the text form of PostgreSQL
    space    the types of the columns; by default numbers or timestamps

    An empty cell or null is no condition.
    """
    if isinstance(source, str | Path):
        rows = _rows(Path(source))
    elif isinstance(source, Mapping):
        rows = rules_by_id(source)
    elif isinstance(source, list):
        rows = rules_listed(source, _named_row, _EXPECTED, "rows")
    else:
        raise unknown_shape(source, _EXPECTED)
    return import_rules(rows, _rule, space)


def _named_row(row: Any) -> tuple[Any, Any] | None:
    if not isinstance(row, Mapping):
        return None
    return row.get("id"), {name: cell for name, cell in row.items() if name != "id"}


def _rows(path: Path) -> list[tuple[str, Any]]:
    """Return the rows of a CSV file by id; a row that doesn't fit the header is unreadable."""
    try:
        with path.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
            reader = csv.reader(file, strict=True)
            header = next(reader, [])
            if "id" not in header:
                raise FileError(f"{path}: has no column 'id'\n  hint: {_EXPECTED}")
            twice = next((name for name, count in Counter(header).items() if count > 1), None)
            if twice is not None:
                raise FileError(
                    f"{path}: two columns are named {twice!r}\n  hint: rename one, or drop it"
                )
            return list(_cells(reader, header))
    except OSError as error:
        raise FileError(f"{path}: can't be read: {error.strerror}") from None
    except csv.Error as error:  # of the header; errors of rows are reported one by one
        raise FileError(f"{path}: not a CSV file: {error}") from None


def _cells(reader: Any, header: list[str]) -> Iterator[tuple[str, Any]]:
    """Yield the cells of each row by column, with its id."""
    while True:
        line = reader.line_num + 1
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            yield f"line {line}", InvalidEntry(f"not CSV: {error}")
            continue
        if not cells:  # an empty line
            continue
        row = dict(zip(header, cells, strict=False))
        if len(cells) != len(header):
            reason = f"the row has {len(cells)} cells, but the header has {len(header)}"
            yield row.get("id") or f"line {line}", InvalidEntry(reason)
        elif not row["id"]:
            yield f"line {line}", InvalidEntry("the row has no id")
        else:
            yield row.pop("id"), row


def _rule(row: Any) -> Rule:
    if not isinstance(row, Mapping):
        raise UnsupportedRuleError(
            "", f"a row must have one cell per column; given: {abbreviate(row)}"
        )
    cells = [(name, cell) for name, cell in row.items() if cell not in (None, "")]
    return AllOf(tuple(_cell(name, cell) for name, cell in cells))


def _cell(name: str, cell: Any) -> Rule:
    text = str(cell).strip()
    if text.lower() == "empty":
        return AnyOf(())
    several = text[:1] == "{" and text[-1:] == "}"
    ranges = text[1:-1].strip() if several else text
    parts: list[Rule] = []
    at = 0
    while range_ := _RANGE.match(ranges, at):
        parts.append(_range(name, range_))
        at = range_.end()
        if not several or ranges[at : at + 1] != ",":
            break
        at += 1
    if at < len(ranges) or ranges.endswith(",") or not (parts or several):
        expected = "a range such as [1,5) or {[1,5),[7,9)}"
        raise UnsupportedRuleError(name, f"takes {expected}; given: {abbreviate(text)}")
    return AnyOf(tuple(parts))


def _range(name: str, range_: re.Match[str]) -> Test:
    bounds: list[Bound] = []
    kinds: set[Kind] = set()
    for text, sign, closed, endless in (
        (range_[2], ">", range_[1] == "[", "-infinity"),
        (range_[3], "<", range_[4] == "]", "infinity"),
    ):
        if text.startswith('"'):
            text = _ESCAPED.sub(lambda bound: bound[1] or bound[2], text[1:-1])
        if text == "" or text.strip().lower() == endless:
            continue
        kind, value = _value(name, text.strip())
        kinds.add(kind)
        bounds.append((sign + "=" * closed, value))
    if len(kinds) > 1:
        raise UnsupportedRuleError(name, f"the bounds have different types: {range_[0]}")
    return Test(name, name, kinds.pop() if kinds else None, bounds=tuple(bounds))


def _value(name: str, text: str) -> tuple[Kind, Any]:
    try:
        number = float(text)
        if math.isfinite(number):
            return "number", int(text) if re.fullmatch(r"-?[0-9]+", text) else number
    except ValueError:
        pass
    try:
        Timestamp("at").at_least(text)
        return "moment", text
    except InvalidValueError:
        reason = f"a bound must be a number or a timestamp; given: {text}"
        raise UnsupportedRuleError(name, reason) from None


def write(subscriptions: Any, space: Space) -> ExportResult:
    """Convert subscriptions to rows of ranges, by id, as CSV.

    subscriptions    what `Engine.subscribe_many` takes: a file, a table, a list of dicts
    """
    return export(subscriptions, space, _row, _csv)


def _row(alternatives: list[list[Term]]) -> dict[str, str]:
    if len(alternatives) > 1:
        raise UnsupportedRuleError(
            "", f"it is {len(alternatives)} alternatives, but a row can only hold one"
        )
    return {term.attribute.name: _ranges(term) for term in alternatives[0]}


def _ranges(term: Term) -> str:
    attribute = term.attribute
    if not attribute.ordered:
        raise UnsupportedRuleError(attribute.name, f"PostgreSQL has no range of a {attribute.type}")
    if term.missing:
        raise UnsupportedRuleError(attribute.name, "a range can't contain a missing value")
    if term.any_value:
        return "(,)"
    points: list[tuple[Bound, ...]] = [((">=", value), ("<=", value)) for value in term.values]
    ranges = [_range_text(bounds) for bounds in (*term.spans, *points)]
    return ranges[0] if len(ranges) == 1 else "{" + ",".join(ranges) + "}"


def _range_text(bounds: Iterable[Bound]) -> str:
    begin, end, low, high = "(", ")", "", ""
    for sign, value in bounds:
        text = f'"{value}"' if isinstance(value, datetime) else repr(plain_number(value))
        if sign[0] == ">":
            begin, low = "[" if sign == ">=" else "(", text
        else:
            end, high = "]" if sign == "<=" else ")", text
    return f"{begin}{low},{high}{end}"


def _csv(rules: dict[str, dict[str, str]]) -> str:
    names = list(dict.fromkeys(name for row in rules.values() for name in row))
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(["id", *names])
    for id_, row in rules.items():
        writer.writerow([id_, *(row.get(name, "") for name in names)])
    return file.getvalue()
