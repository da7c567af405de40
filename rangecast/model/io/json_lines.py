"""Reader of JSON Lines: one object per line; values do not depend on other lines.

Arrow reads a block of lines where this cannot change a value: it rounds integers to doubles if the
column has a fraction, and accepts some invalid JSON. Otherwise lines are read one by one.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pajson

from rangecast.errors import InvalidValueError
from rangecast.kernels.arrays import I64
from rangecast.model.attributes.numbers import read_number
from rangecast.model.io.batch import Batch, Broken, as_values

_BLOCK = 1 << 23
_DEEPEST = 100
"""Maximum nesting of brackets. Arrow crashes at some thousands."""
_LONGEST_INTEGER = 400
_FRACTIONS = pa.decimal128(38, 18)
_DIGITS = 1e19
"""Above this Arrow makes a wrong decimal of a number, and of some with an exponent."""
_EXPONENT = re.compile(rb"[0-9][eE][+-]?[0-9]")

_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*+"|[\[\]{}]')
_NO_NUMBER = re.compile(rb"[:,\[]\s*-?(?:Inf(?!inity)|(?<=-)NaN)")
"""Numbers that Arrow reads and JSON doesn't have, not even in Python."""


def read_json_lines(
    raw: pa.NativeFile, broken: Broken, exact: Collection[str], only: str | None
) -> Iterator[Batch]:
    """Yield the objects of a stream of lines; the options are those of `files.read_batches`."""
    first = 0
    for lines in _line_blocks(raw):
        rows = np.arange(first, first + len(lines))
        first += len(lines)
        data = _read_fast(lines, exact, only)
        batch = _read_each(rows, lines, broken) if data is None else Batch.of(data, int(rows[0]))
        if len(batch.rows):
            yield batch


def mentions(raw: pa.NativeFile, key: str) -> bool:
    """Return whether any object of a stream may have a key; much faster than parsing."""
    wanted = json.dumps(key).encode()
    rest = b""
    while block := raw.read(_BLOCK):
        rest += block
        if wanted in rest or b"\\u" in rest:
            return True
        rest = rest[-len(wanted) :]
    return False


def _line_blocks(raw: pa.NativeFile) -> Iterator[list[bytes]]:
    rest = raw.read(3).removeprefix(b"\xef\xbb\xbf")
    while block := raw.read(_BLOCK):
        head, newline, tail = (rest + block).rpartition(b"\n")
        rest = tail
        lines = [line for part in head.split(b"\n") if (line := part.strip())] if newline else []
        if lines:
            yield lines
    lines = [line for part in rest.split(b"\n") if (line := part.strip())]
    if lines:
        yield lines


def _read_fast(
    lines: list[bytes], exact: Collection[str], only: str | None
) -> pa.RecordBatch | None:
    """Read lines with Arrow; `None` if it fails, or might change a value."""
    packed = b"\n".join(lines)
    if not _is_safe(lines, packed):
        return None
    table = None if only is None else _single_column(packed, only)
    if table is None:
        table = _parsed(packed, None, "infer")
        kinds = {} if table is None else _retyped(table, packed, exact)
        if kinds is None:
            return None
        if table is not None and kinds:
            names = table.schema.names
            table = _parsed(packed, pa.schema(list(kinds.items())), "infer")
            table = None if table is None else table.select(names)  # in their own order
    if table is None or len(table) != len(lines):
        return None
    return table.combine_chunks().to_batches()[0]


def _single_column(packed: bytes, name: str) -> pa.Table | None:
    """Read one column of integers or texts; `None` if it has another type or is all null."""
    for kind in (pa.int64(), pa.large_string()):
        table = _parsed(packed, pa.schema([(name, kind)]), "ignore")
        if table is not None:
            return table if table.column(name).null_count < len(table) else None
    return None


def _is_safe(lines: list[bytes], packed: bytes) -> bool:
    """Return whether lines are UTF-8, not deeply nested, and read by Arrow as one object each."""
    if packed.count(b"}\n{") != len(lines) - 1 or packed[:1] != b"{" or packed[-1:] != b"}":
        return False
    nested = packed.count(b"[") or packed.count(b"{") != len(lines)
    if nested and any(line.count(b"[") + line.count(b"{") > _DEEPEST for line in lines):
        return False
    if (b"Inf" in packed or b"-NaN" in packed) and _NO_NUMBER.search(packed):
        return False
    try:
        packed.decode()
    except UnicodeDecodeError:
        return False
    return True


def _parsed(packed: bytes, schema: pa.Schema | None, others: str) -> pa.Table | None:
    read = pajson.ReadOptions(use_threads=False, block_size=len(packed) + 1)
    parse = pajson.ParseOptions(explicit_schema=schema, unexpected_field_behavior=others)
    try:
        return pajson.read_json(pa.BufferReader(packed), read, parse)
    except pa.ArrowInvalid:
        return None


def _retyped(
    table: pa.Table, packed: bytes, exact: Collection[str]
) -> dict[str, pa.DataType] | None:
    """Return the columns to read again, with their types; `None` if Arrow can't represent one.

    These are texts that look like timestamps, which attributes interpret, and numbers that must not
    be rounded.
    """
    kinds: dict[str, pa.DataType] = {}
    for name, column in zip(table.schema.names, table.columns, strict=True):
        if pa.types.is_struct(column.type):
            leaves = _leaves(column.type)
            if any(map(pa.types.is_timestamp, leaves)):
                return None
            if name in exact and any(map(pa.types.is_floating, leaves)):
                return None
        elif pa.types.is_timestamp(column.type):
            kinds[name] = pa.large_string()
        elif pa.types.is_floating(column.type) and (name == "id" or name in exact):
            largest = pc.max(pc.abs(column)).as_py()
            if name == "id" or not largest < _DIGITS or _EXPONENT.search(packed):
                return None
            kinds[name] = _FRACTIONS
    return kinds


def _leaves(kind: pa.DataType) -> list[pa.DataType]:
    """Return the types of all values within nested objects."""
    if pa.types.is_struct(kind):
        return [leaf for field in kind for leaf in _leaves(field.type)]
    return _leaves(kind.value_type) if pa.types.is_list(kind) else [kind]


def _read_each(rows: I64, lines: list[bytes], broken: Broken) -> Batch:
    """Read lines one by one, to locate broken rows and keep mixed types."""
    kept: list[dict[str, Any]] = []
    numbers: list[int] = []
    for number, line in zip(rows.tolist(), lines, strict=True):
        try:
            value = _object(line)
        except (ValueError, RecursionError) as error:
            broken(number, line.decode(errors="replace"), str(error).splitlines()[0])
            continue
        kept.append(value)
        numbers.append(number)
    names = dict.fromkeys(name for row in kept for name in row)
    columns = {name: as_values([row.get(name) for row in kept]) for name in names}
    return Batch(np.array(numbers, np.int64), columns)


def _object(line: bytes) -> dict[str, Any]:
    if line.count(b"[") + line.count(b"{") > _DEEPEST and _depth(line) > _DEEPEST:
        raise ValueError(f"is nested more than {_DEEPEST} deep")
    try:
        value = json.loads(
            line.decode(),
            parse_int=_integer,
            parse_float=_fraction,
            object_pairs_hook=_distinct,
        )
    except _DuplicateKeyError:
        raise
    except ValueError as error:
        raise ValueError(f"is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise ValueError("is not a JSON object")
    return value


class _DuplicateKeyError(ValueError):
    """Duplicate key in an object: choosing either value would be a guess."""


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    object_ = dict(pairs)
    if len(object_) < len(pairs):  # Arrow rejects them as well, so such a line comes here
        names = [name for name, _ in pairs]
        twice = next(name for index, name in enumerate(names) if name in names[:index])
        raise _DuplicateKeyError(f"has the key {twice!r} twice")
    return object_


def _depth(line: bytes) -> int:
    """Return the nesting depth of brackets."""
    depth = deepest = 0
    for token in _TOKEN.findall(line):
        depth += (token in b"[{") - (token in b"]}")
        deepest = max(deepest, depth)
    return deepest


def _integer(text: str) -> Any:
    return int(text) if len(text) <= _LONGEST_INTEGER else _fraction(text)


def _fraction(text: str) -> Any:
    """Parse a number exactly, as a `Decimal`; one beyond the range of doubles is infinite."""
    try:
        return read_number(text)
    except InvalidValueError:
        return math.copysign(math.inf, -1.0 if text.startswith("-") else 1.0)
