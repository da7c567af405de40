"""Fences of Tile38 as subscriptions: `read`.

A file has one command per line, as `tile38-cli` takes them:

    SETHOOK|SETCHAN name [endpoint] [META key value] [EX seconds]
        NEARBY|WITHIN|INTERSECTS key [WHERE field min max] FENCE [DETECT ...] [COMMANDS ...] AREA
    AREA: POINT|CIRCLE lat lon meters | BOUNDS lat lon lat lon | OBJECT geojson

The objects are positions, for which WITHIN and INTERSECTS mean the same. Which transitions a fence
detects is left out: a subscription matches every position inside.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from rangecast.errors import FileError, abbreviate
from rangecast.interop.geojson import location_of, rule_of_geometry
from rangecast.interop.result import ImportResult, InvalidEntry, import_rules, unknown_shape
from rangecast.interop.rules import AllOf, FilterText, Rule, Test, UnsupportedRuleError
from rangecast.model.attributes.base import Number
from rangecast.model.attributes.places import Location
from rangecast.model.attributes.text import String
from rangecast.model.filters.lexer import name_text
from rangecast.model.shapes.geometry import number_text
from rangecast.model.space import Space

_WORD = re.compile(r"""\s*("(?:[^"\\]|\\.)*"|'[^']*'|\S+)""")
_EXPECTED = "give a text file with a SETHOOK or SETCHAN command on each line"
_SEARCHES = ("NEARBY", "WITHIN", "INTERSECTS")
_BEFORE = {"META": 2, "EX": 1}
"""Options of a hook that are ignored, and the number of words that follow each."""
_LEFT_OUT = {"DETECT": 1, "COMMANDS": 1, "LIMIT": 1, "CURSOR": 1, "SPARSE": 1, "DISTANCE": 0}
_LEFT_OUT |= {"NOFIELDS": 0, "CLIP": 0, "POINTS": 0, "IDS": 0, "OBJECTS": 0, "COUNT": 0}
_REJECTED = {
    **dict.fromkeys(("WHEREIN", "WHEREEVAL", "WHEREEVALSHA"), "use WHERE, or write the filter"),
    **dict.fromkeys(("ROAM", "NODWELL"), "a roaming fence has no counterpart"),
    **dict.fromkeys(("TILE", "QUADKEY", "HASH", "SECTOR", "GET"), "give the area as an OBJECT"),
    "BUFFER": "draw the buffer as an OBJECT",
    "MATCH": "a pattern for ids has no counterpart",
}
KEY = "key"
"""Attribute for the collection of an object, if the space has it."""


def read(
    source: str | Path | Sequence[str], space: Space | None = None, *, key: str = KEY
) -> ImportResult:
    """Import hooks and channels.

    source   a text file with one command per line, or a list of commands
    space    a space with a location, and a number for each field of WHERE; by default it has
             `position` on a sphere, as Tile38 measures it, the key and the fields
    key      the attribute for the collection of an object; collections are ignored if the space
             has no such attribute
    """
    lines = _lines(source)
    commands = [words for line in lines if (words := _words(line)) and words[0][:1] != "#"]
    known = ("SETHOOK", "SETCHAN")
    if not any(words[0].upper() in known for words in commands):
        raise unknown_shape(lines[:1], _EXPECTED)
    space = space or _space(commands, key)
    location = location_of(space)
    rules: list[tuple[str, Any]] = []
    for number, words in enumerate(commands):
        is_known = words[0].upper() in known and len(words) > 1
        reason = f"is not SETHOOK or SETCHAN; given: {abbreviate(words[0])}"
        id_ = words[1] if is_known else f"commands[{number}]"
        rules.append((id_, words if is_known else InvalidEntry(reason)))
    imported = import_rules(rules, lambda words: _rule(words, location, space, key), space)
    if any("DETECT" in (word.upper() for word in words) for words in commands):
        imported.notes.append("DETECT is left out: a subscription matches every position inside")
    if key not in space.axes:
        imported.notes.append(f"collections are left out: the space has no attribute {key!r}")
    return imported


def _lines(source: Any) -> list[str]:
    if not isinstance(source, str | Path):
        if not isinstance(source, list | tuple) or not all(isinstance(x, str) for x in source):
            raise unknown_shape(source, _EXPECTED)
        return list(source)
    try:
        text = Path(source).read_text(encoding="utf-8-sig", errors="surrogateescape")
    except OSError as error:
        raise FileError(f"{source}: can't be read: {error.strerror}") from None
    return text.splitlines()


def _words(line: str) -> list[str]:
    """Return the words of a command; everything after OBJECT is one word."""
    words: list[str] = []
    at = 0
    while match := _WORD.match(line, at):
        at = match.end()
        word = match[1]
        if word[0] in "'\"" and len(word) > 1 and word[-1] == word[0]:
            word = re.sub(r"\\(.)", r"\1", word[1:-1]) if word[0] == '"' else word[1:-1]
        words.append(word)
        if word.upper() == "OBJECT":
            words.append(line[at:].strip())
            break
    return words


def _space(commands: list[list[str]], key: str) -> Space:
    """Return a space for these commands: the position, the key, and the fields of WHERE."""
    taken = {"position", "longitude", "latitude", key}
    fields: dict[str, None] = {}
    for words in commands:
        for before, field in pairwise(words):
            if before.upper() == "WHERE" and field.isidentifier() and field not in taken:
                fields[field] = None
    return Space([Location("position", earth="sphere"), String(key), *map(Number, fields)])


def _rule(words: list[str], location: Location, space: Space, key: str) -> Rule:
    start, left = _start(words)
    search = words[start].upper()
    collection = words[start + 1] if start + 1 < left else ""
    if not collection:
        raise UnsupportedRuleError(search, "the key of a collection is missing")
    parts: list[Rule] = []
    if key in space.axes:
        parts.append(Test(key, key, "text", (collection,)))
    start += 2
    is_fence = False
    while start < left:
        word = words[start].upper()
        if word in _REJECTED and not (word == "MATCH" and words[start + 1 : start + 2] == ["*"]):
            raise UnsupportedRuleError(word, _REJECTED[word])
        if word == "WHERE":
            parts += _where(words[start + 1 : start + 4])
            start += 4
        elif word == "MATCH":
            start += 2
        elif word == "FENCE":
            is_fence = True
            start += 1
        elif word in _LEFT_OUT:
            start += 1 + _LEFT_OUT[word]
        else:
            parts.append(_area(word, words[start + 1 :], location))
            if not is_fence:
                raise UnsupportedRuleError(search, "the word FENCE is missing")
            return AllOf(tuple(parts))
    raise UnsupportedRuleError(search, "the area is missing")


def _start(words: list[str]) -> tuple[int, int]:
    """Return the start of a command's search, and the number of words."""
    start = 3 if words[0].upper() == "SETHOOK" else 2
    while start < len(words):
        word = words[start].upper()
        if word in _SEARCHES:
            return start, len(words)
        if word not in _BEFORE:
            raise UnsupportedRuleError(word, f"expected {', '.join(_SEARCHES)}, META or EX")
        start += 1 + _BEFORE[word]
    raise UnsupportedRuleError(words[0], f"expected {', '.join(_SEARCHES)}")


def _where(words: list[str]) -> list[Rule]:
    if len(words) < 3:
        raise UnsupportedRuleError("WHERE", "takes a field, a minimum and a maximum")
    field, *ends = words
    bounds: list[tuple[str, Any]] = []
    for sign, word in zip((">", "<"), ends, strict=True):
        is_open = word.startswith("(")
        text = word.removeprefix("(").lower()
        if text.strip("+-") == "inf":
            continue
        bounds.append((sign if is_open else f"{sign}=", _number(text, "WHERE")))
    return [Test(field, "WHERE", "number", bounds=tuple(bounds))] if bounds else []


def _number(text: str, path: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number) or not text.isascii() or "_" in text:
        raise UnsupportedRuleError(path, f"not a number: {abbreviate(text)}")
    return number


def _area(kind: str, words: list[str], location: Location) -> Rule:
    if kind == "OBJECT":
        try:
            geometry = json.loads(words[0] if words else "")
        except (ValueError, RecursionError) as error:
            raise UnsupportedRuleError(kind, f"not GeoJSON: {error}") from None
        if isinstance(geometry, dict) and geometry.get("type") == "Feature":
            geometry = geometry.get("geometry")
        return rule_of_geometry(geometry, location)
    counts = {"POINT": 3, "CIRCLE": 3, "BOUNDS": 4}
    if kind not in counts:
        raise UnsupportedRuleError(kind, "is not an area; expected POINT, CIRCLE, BOUNDS or OBJECT")
    if len(words) != counts[kind]:
        reason = f"takes {counts[kind]} numbers; given: {len(words)}"
        raise UnsupportedRuleError(kind, reason)
    numbers = [_number(word, kind) for word in words]
    if kind == "BOUNDS":
        south, west, north, east = (number_text(number) for number in numbers)
        longitude, latitude = (name_text(axis.name) for axis in location.coordinates)
        if numbers[1] > numbers[3]:
            raise UnsupportedRuleError(kind, "crosses the antimeridian: split it into two")
        ranges = f"{longitude} between {west} and {east} and {latitude} between {south} and {north}"
        return FilterText(ranges)
    y, x, radius = (number_text(number) for number in numbers)
    return FilterText(f"within({name_text(location.name)}, circle({x}, {y}, {radius} m))")
