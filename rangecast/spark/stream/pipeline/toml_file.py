"""TOML files read into msgspec's structs; each error names the file, the key and what it takes.

What a key takes is the description in its annotation. msgspec tells where it found a mistake; here
its path is followed through the types and the values, for the words of the message.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec import inspect

from rangecast.errors import FileError, abbreviate, did_you_mean

T = TypeVar("T")


class Location(str):
    """A path, or a URL, which is kept unchanged."""


class Table(msgspec.Struct, forbid_unknown_fields=True):
    """A table of a file: its keys, their types and what they mean."""


def takes(what: str, **limits: Any) -> msgspec.Meta:
    """Return the annotation of a key."""
    return msgspec.Meta(description=what, **limits)


def read_toml(path: str | Path, kind: type[T]) -> T:
    """Read and check a file; paths in it count from its folder."""
    file = Path(path)
    try:
        values = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise FileError(f"{file}: can't be read: {error}") from None
    except tomllib.TOMLDecodeError as error:
        raise FileError(f"{file}: is not a TOML file: {error}") from None

    def locate(wanted: type, document: Any) -> Any:
        if not isinstance(document, str):
            raise TypeError("not a string")
        is_url = wanted is Location and "://" in document
        return wanted(document if is_url else (file.parent / document).resolve())

    try:
        return msgspec.convert(values, kind, dec_hook=locate)
    except msgspec.ValidationError as error:
        raise FileError(f"{file}: {_explained(str(error), kind, values)}") from None


def json_schema(kind: type) -> dict[str, Any]:
    """Return the JSON schema of a file; paths in it are texts."""
    return msgspec.json.schema(kind, schema_hook=lambda _: {"type": "string"})


def _explained(message: str, kind: type, value_: Any) -> str:
    """Return msgspec's message in the words of the file."""
    problem, at, path = message.rpartition(" - at `$")
    if not at:
        problem, path = message, ""
    what, types = _opened(inspect.type_info(kind))
    name = ""
    for key, index in re.findall(r"\.(\w+)|\[([\d.]+)\]", path):
        if index == "...":  # some value of a table whose keys are free
            what, types = _opened(types[0].value_type)
            key = next(
                key_ for key_, value in value_.items() if not isinstance(value, str | int | float)
            )
        elif index:
            name, value_ = f"{name}[{index}]", value_[int(index)]
            what, types = _opened(types[0].item_type)
            continue
        else:
            what, types = _keys(types, value_)[key]
        name, value_ = f"{name}.{key}", value_[key]
    named = re.fullmatch(r"(?s)Object (contains|missing) \w+ field `(.*)`", problem)
    if named:
        known = _keys(types, value_)
        name, key = f"{name}.{named[2]}".removeprefix("."), named[2]
        if named[1] == "contains":
            return f"{name}: unknown key: {did_you_mean(key, list(known))}"
        return f"{name}: is missing\n  expected: {known[key][0]}"
    name = name.removeprefix(".")
    choices = [str(choice) for kind in types for choice in _choices(kind)]
    if choices and isinstance(value_, str):
        return f"{name}: unknown {value_!r}: {did_you_mean(value_, choices)}\n  expected: {what}"
    is_tables = isinstance(value_, list) and value_ and isinstance(value_[0], dict)
    text = f"{len(value_)} tables" if is_tables else abbreviate(value_)
    return f"{name}: invalid value\n  given: {text}\n  expected: {what}"


_Opened = tuple[str, list[Any]]
"""Description of the expected value, and its types."""


def _opened(kind: inspect.Type) -> _Opened:
    what = ""
    if isinstance(kind, inspect.Metadata):
        what, kind = (kind.extra_json_schema or {}).get("description", ""), kind.type
    types: list[Any] = list(kind.types) if isinstance(kind, inspect.UnionType) else [kind]
    choices = [choice for kind in types for choice in _choices(kind)]
    if not what:
        known = ", ".join(repr(str(choice)) for choice in choices)
        what = f"one of {known}" if choices else "a table"
    return what, types


def _choices(kind: inspect.Type) -> list[Any]:
    if isinstance(kind, inspect.LiteralType):
        return list(kind.values)
    return [choice.value for choice in kind.cls] if isinstance(kind, inspect.EnumType) else []


def _keys(types: list[Any], table: dict[str, Any]) -> dict[str, _Opened]:
    """Return the keys of a table; if it may be of several types, of the one that it says."""
    tables = [kind for kind in types if isinstance(kind, inspect.StructType)]
    tags = [kind.tag for kind in tables if kind.tag is not None]
    keys = {str(tables[0].tag_field): _opened(inspect.LiteralType(tuple(tags)))} if tags else {}
    for kind in tables:
        if kind.tag is None or kind.tag == table.get(str(kind.tag_field)):
            keys |= {field.encode_name: _opened(field.type) for field in kind.fields}
    return keys
